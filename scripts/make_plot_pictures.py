"""Make the pictures of docs/plots.md: run its examples and save each figure under the name that follows it in the page.

    python scripts/make_plot_pictures.py

Needs axil[plots,demo].
"""

import os
import re
import tempfile
from io import BytesIO
from pathlib import Path

from matplotlib import pyplot
from PIL import Image

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n!\[.*?\]\((.*?)\))?", re.S)
COLOURS = 128  # of a picture: half the size of millions, and no difference to be seen


def main() -> None:
    os.chdir(tempfile.mkdtemp())  # for the page that an example writes
    names: dict = {}
    for code, picture in BLOCK.findall((DOCS / "plots.md").read_text(encoding="utf-8")):
        exec(compile(code, "docs/plots.md", "exec"), names)
        if picture.startswith("figures/plots/"):
            drawn = BytesIO()
            names["ax"].figure.savefig(drawn, dpi=80)
            image = Image.open(drawn).convert("RGB")
            if not names["ax"].images:  # a heat map needs all its colours
                image = image.quantize(COLOURS, dither=Image.Dither.NONE)
            # without the version of matplotlib in it, so that a picture changes only when the plot does
            image.save(DOCS / picture, optimize=True)
            pyplot.close("all")


if __name__ == "__main__":
    main()

"""Make the pictures of docs/plots.md and docs/forecasts.md: run the examples, save what they draw.

    python scripts/make_plot_pictures.py

Needs axil[plots,demo], and for the page of forecasts mlforecast.
"""

import os
import re
import tempfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from matplotlib import pyplot
from PIL import Image

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n!\[.*?\]\((.*?)\))?", re.S)
COLOURS = 128  # of a picture: half the size of millions, and no difference to be seen


def make_pictures(page: str, folder: str) -> None:
    """Run the examples of a page, and save the figures that it shows from a folder."""
    names: dict = {}
    for code, picture in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        exec(compile(code, page, "exec"), names)
        if picture.startswith(folder):
            drawn = BytesIO()
            names["ax"].figure.savefig(drawn, dpi=80)
            image = Image.open(drawn).convert("RGB")
            if not names["ax"].images:  # a heat map needs all its colours
                image = image.quantize(COLOURS, dither=Image.Dither.NONE)
            # without the version of matplotlib, so that a picture changes only when the plot does
            image.save(DOCS / picture, optimize=True)
            pyplot.close("all")


def main() -> None:
    os.chdir(tempfile.mkdtemp())  # for the page that an example writes
    make_pictures("plots.md", "figures/plots/")
    if find_spec("mlforecast"):
        make_pictures("forecasts.md", "figures/forecasts/")


if __name__ == "__main__":
    main()

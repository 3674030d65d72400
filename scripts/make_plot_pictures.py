"""Make the pictures of docs/plots.md: run its examples and save each figure under the name that follows it in the page.

    python scripts/make_plot_pictures.py

Needs axil[plots,demo].
"""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n!\[.*?\]\((.*?)\))?", re.S)


def main() -> None:
    names: dict = {}
    for code, picture in BLOCK.findall((DOCS / "plots.md").read_text(encoding="utf-8")):
        exec(compile(code, "docs/plots.md", "exec"), names)
        if picture:
            # without the version of matplotlib in it, so that a picture changes only when the plot does
            names["ax"].figure.savefig(
                DOCS / picture, dpi=80, pil_kwargs={"optimize": True}, metadata={"Software": None}
            )


if __name__ == "__main__":
    main()

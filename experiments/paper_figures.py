"""How the paper's figures are drawn and saved: without pyplot, and without anything in the file that changes from run to run."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from paper_setting import place
from PIL import Image

FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def save(figure: Figure, name: str) -> None:
    """docs/figures/NAME, .svg or .png; one that is there is kept, see `paper_setting.place`."""
    path = place(FIGURES, name)
    if path.suffix == ".svg":
        with rc_context({"svg.hashsalt": name}):
            figure.savefig(path, metadata={"Date": None, "Creator": None})
        return
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        path, optimize=True
    )  # a byte a pixel

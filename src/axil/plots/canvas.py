"""The one place that knows matplotlib: axes, colours, bars with labels and numbers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError
from axil.plots.sources import Prediction, text
from axil.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes


POSITIVE, NEGATIVE = "#1b5e9b", "#e8805c"  # apart for every eye, and dark and light without colour
NEUTRAL, DARK = "#cfcfcf", "#333333"
LINES = ("#1b5e9b", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#7f7f7f")  # Okabe and Ito's, in an order of contrast
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))

FIXED = "structure held fixed"
LONGEST = 28  # characters of a label
TITLE = 54  # characters of a name in a title
TEXT, LEAST = 9.0, 5.0  # points: the size of labels, and the smallest that can be read
LEADING = 1.35  # the height of a line in letters
LINE = 0.24  # inches for one bar


def new_axes(ax: Axes | None, height: float = 3.8) -> Axes:
    """The axes given, or those of a new figure, which makes room for its labels and is not known to pyplot."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("Plots are drawn with matplotlib, which is not installed: pip install axil[plots].") from None
    if ax is None:
        return Figure(figsize=(6.4, height), layout="constrained").subplots()
    if not isinstance(ax, Axes):
        raise InputError(f"ax is a {type(ax).__name__}; expected matplotlib axes, as from fig, ax = plt.subplots().")
    return ax


def shorten(label: Any, most: int = LONGEST) -> str:
    """A label of at most so many characters: both ends stay, the middle goes."""
    whole = text(label)
    if len(whole) <= most:
        return whole
    end = (most - 1) // 2
    return f"{whole[: most - 1 - end]}…{whole[-end:]}"


def numbers(values: Array) -> list[str]:
    """Numbers with the same decimals, three digits for the largest, and a real minus."""
    size = float(np.abs(values).max(initial=0.0))
    decimals = max(0, 2 - math.floor(math.log10(size))) if size else 0
    form = f",.{decimals}f" if 1e-5 <= size < 1e9 or not size else ".2e"
    return [format(value + 0.0, form).replace("-", "−") for value in values.tolist()]


def number(value: float) -> str:
    """One number by itself."""
    return numbers(np.array([value], dtype=np.float64))[0]


def head(one: Prediction) -> str:
    """The line of a title that says whose prediction this is."""
    value = "" if one.value is None else f"prediction {number(one.value)}"
    parts = [part for part in (shorten(one.name, TITLE - 24), value) if part]
    return ": ".join(parts) + "\n" if parts else ""


def fixed(name: str) -> str:
    """The name of an axis whose numbers hold with the structure held fixed; on two lines where it is long."""
    return f"{name}{' ' if len(name) < 28 else chr(10)}({FIXED})"


def dress(ax: Axes, title: str, x: str, y: str, grid: Any = "both") -> Axes:
    """Title, names of the axes, a light grid behind and no frame above or to the right."""
    width = max(24, int(11.7 * _inches(ax)[0]))  # characters of this size in a line
    lines = [part for line in title.split("\n") for part in textwrap.wrap(line, width)]
    ax.set_title("\n".join(lines), loc="left", fontsize=TEXT + 1, parse_math=False)
    ax.set_xlabel(x, fontsize=TEXT, parse_math=False)
    ax.set_ylabel(y, fontsize=TEXT, parse_math=False)
    ax.tick_params(labelsize=TEXT)
    ax.grid(visible=False)
    ax.grid(axis=grid, color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def few_ticks(ax: Axes) -> None:
    """Ticks along x that leave room between their numbers."""
    ax.locator_params(axis="x", nbins=max(2, min(6, int(_inches(ax)[0] / 0.9))))


def date_ticks(ax: Axes) -> None:
    """Ticks along x at dates, each written as short as those around it allow."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def whole_ticks(ax: Axes) -> None:
    """Ticks along x at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def name_cells(ax: Axes, rows: NDArray[Any], columns: NDArray[Any]) -> None:
    """Labels down and across a heat map; none on a side that has more of them than can be read."""
    across, down = _inches(ax)
    for axis, labels, room, turn in ((ax.yaxis, rows, down, 0), (ax.xaxis, columns, across, 90)):
        size, step = _letters(60 * room, len(labels))  # less than 72 points an inch: names and the scale take some
        named = list(labels) if step == 1 else []
        texts = [shorten(label, 16) for label in named]
        axis.set_ticks(range(len(named)), texts, fontsize=size, rotation=turn, parse_math=False)


def colour_bar(ax: Axes, image: Any, name: str, beyond: bool) -> None:
    """The scale of a heat map, beside it; with points at its ends if there are values beyond."""
    bar = ax.figure.colorbar(image, ax=ax, extend="both" if beyond else "neither", shrink=0.9)
    bar.set_label(name, fontsize=TEXT - 1)
    bar.ax.tick_params(labelsize=TEXT - 1)
    bar.outline.set_visible(False)


def _inches(ax: Axes) -> tuple[float, float]:
    """Width and height; those of new figures before room is made for labels."""
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    return box.width / dpi, box.height / dpi


def bars_height(n: int) -> float:
    """Inches for a figure of n bars."""
    return min(1.4 + LINE * n, 14.0)


def label_bars(ax: Axes, labels: Sequence[Any]) -> float:
    """Name the bars 0, 1, ... from the top, in letters that fit, and return their size.

    Of more bars than can be named every second, third, ... is.
    """
    n = len(labels)
    size, step = _letters(72 * _inches(ax)[1], n)
    shown = range(0, n, step)
    ax.set_yticks(list(shown), [shorten(labels[i]) for i in shown], fontsize=size, parse_math=False)
    ax.set_ylim(n - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    return size


def _letters(room: float, n: int) -> tuple[float, int]:
    """The size of letters for n lines in so many points, and every how many-th line can be written."""
    line = room / max(n, 1)
    return min(TEXT, max(LEAST, line / LEADING)), max(1, math.ceil(LEADING * LEAST / line))


def sign_bars(
    ax: Axes,
    labels: Sequence[Any],
    values: Array,
    starts: Array | None = None,
    rest: int | None = None,
    texts: list[str] | None = None,
) -> None:
    """Horizontal bars from the starts, or from 0, in the colour of their sign; each with its number, or text, beside.

    ``rest``: the bar that stands for many, grey and hatched.
    """
    colours = [NEGATIVE if value < 0 else POSITIVE for value in values]
    left = np.zeros(len(values)) if starts is None else starts
    drawn = ax.barh(np.arange(len(values)), values, left=left, color=colours, height=0.72)
    if rest is not None:
        drawn[rest].set(facecolor=NEUTRAL, edgecolor=DARK, hatch="///", linewidth=0.6)
    size = label_bars(ax, labels)
    ends = left + values
    _write_numbers(ax, ends, values < 0, texts or numbers(values), min(size, TEXT - 1))
    if starts is None:
        ax.axvline(0.0, color=DARK, linewidth=0.8)


def _write_numbers(ax: Axes, ends: Array, leftward: NDArray[np.bool_], texts: list[str], size: float) -> None:
    """A number at the end of each bar, outwards, and limits wide enough for them; none where they would be too small."""
    if size < LEAST + 1:
        return
    for i, (end, left, shown) in enumerate(zip(ends.tolist(), leftward.tolist(), texts)):
        ax.annotate(
            shown,
            (end, i),
            xytext=(-3 if left else 3, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=size,
            color=DARK,
        )
    widest = 0.62 * size * max(map(len, texts), default=0) + 8
    share = min(0.35, widest / (72 * 0.7 * _inches(ax)[0]))  # labels will take some of the width
    low, high = ax.dataLim.x0, ax.dataLim.x1
    pad = share / (1 - 2 * share) * ((high - low) or 1.0)
    ax.set_xlim(low - (pad if leftward.any() else 0.02 * pad), high + (pad if not leftward.all() else 0.02 * pad))


def sign_points(ax: Axes, x: Array, y: Array, signs: Array) -> None:
    """Points in the colour and shape of their sign: blue circles and orange triangles; those of sign 0 small and grey."""
    size = float(np.clip(6000 / max(len(x), 1), 5, 30))
    kinds = (
        (signs == 0, "0.7", ".", "zero"),
        (signs > 0, POSITIVE, "o", "positive"),
        (signs < 0, NEGATIVE, "v", "negative"),
    )
    for chosen, colour, marker, name in kinds:
        if chosen.any():
            area = size if name != "zero" else size / 2
            ax.scatter(
                x[chosen],
                y[chosen],
                s=area,
                c=colour,
                marker=marker,
                alpha=0.75,
                linewidths=0,
                label=name,
                rasterized=True,
            )


def corner(ax: Axes, lines: str) -> None:
    """A few words in the corner below on the right."""
    ax.text(
        0.985,
        0.04,
        lines,
        transform=ax.transAxes,
        ha="right",
        va="bottom",
        fontsize=TEXT,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 2},
    )


def key(ax: Axes) -> None:
    """A legend of what was drawn, where there is most room."""
    ax.legend(fontsize=TEXT - 1, frameon=True, framealpha=0.85, edgecolor="none")

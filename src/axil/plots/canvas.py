"""The one place that knows matplotlib's figures: axes, colours of the style in use, titles, ticks, heat maps."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.errors import InputError
from axil.plots.sources import Prediction, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes


POSITIVE, NEGATIVE = "#1b5e9b", "#e8805c"  # apart for every eye, and dark and light without colour
ON_DARK = "#8fcbff", "#cc5522"  # the same on dark styles, light and dark without colour
LINES = (
    "#1b5e9b",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#7f7f7f",
)  # Okabe and Ito's, in an order of contrast
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
GREY = "0.5"  # of marks: seen on light and on dark

FIXED = "structure held fixed"
LONGEST, SHORTEST = 44, 16  # characters of a label, as many as the axes have room for
TITLE = 54  # characters of a name in a title
TEXT, LEAST = 9.0, 5.0  # points: the size of labels, and the smallest that can be read
LEADING = 1.35  # the height of a line in letters
LETTER = 0.07  # inches for a letter of a label
WIDTH, LINE = 6.4, 0.24  # inches: of a figure, and for one bar
SEPARATED = 10_000  # from here on ticks have separators; years have none


@dataclass(frozen=True)
class Colours:
    """Colours that can be seen on the axes they are made for."""

    ink: Any  #: of words and lines
    ground: Any  #: behind them
    positive: str
    negative: str
    lines: tuple[str, ...]

    @property
    def is_dark(self) -> bool:
        """Whether the ground is dark."""
        return _luminance(self.ground) < 0.4


def new_axes(ax: Axes | None, height: float = 3.8, width: float = WIDTH) -> Axes:
    """The axes given, or those of a new figure of pyplot's, which makes room for its labels."""
    try:
        from matplotlib.axes import Axes
    except ImportError:
        raise InputError(
            "Plots are drawn with matplotlib, which is not installed: pip install axil[plots]."
        ) from None
    if ax is None:
        from matplotlib import pyplot

        return pyplot.figure(figsize=(width, height), layout="constrained").subplots()
    if not isinstance(ax, Axes):
        raise InputError(
            f"ax is a {type(ax).__name__}; expected matplotlib axes, as from fig, ax = plt.subplots()."
        )
    return ax


def colours(ax: Axes) -> Colours:
    """Colours that fit the style in which the axes were made, whatever style is in use by now."""
    from matplotlib.colors import to_rgba

    behind = [to_rgba(ax.get_facecolor()), to_rgba(ax.get_figure().get_facecolor())]  # type: ignore[union-attr]
    ground = next((tuple(one[:3]) for one in behind if one[3] > 0), (1.0, 1.0, 1.0))
    words = to_rgba(ax.xaxis.label.get_color())
    ink = tuple(0.8 * own + 0.2 * other for own, other in zip(words, ground))
    signs = ON_DARK if _luminance(ground) < 0.4 else (POSITIVE, NEGATIVE)
    return Colours(ink, ground, *signs, (signs[0], *LINES[1:]))


def _luminance(colour: Any) -> float:
    return float(np.dot(colour[:3], (0.299, 0.587, 0.114)))


def shorten(label: Any, most: int = LONGEST) -> str:
    """A label of at most ``most`` characters: both ends stay, the middle goes."""
    whole = text(label)
    if len(whole) <= most:
        return whole
    end = (most - 1) // 2
    return f"{whole[: most - 1 - end]}…{whole[-end:]}"


def numbers(values: FloatArray) -> list[str]:
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
    """The name of an axis of effects, which hold with the structure held fixed; on two lines where it is long."""
    return f"{name}{' ' if len(name) < 28 else chr(10)}({FIXED})"


def dress(ax: Axes, title: str, x: str, y: str, grid: Any = "both") -> Axes:
    """Title, names of the axes, ticks with separators, a faint grid behind and no frame above or to the right."""
    wrapped = [
        textwrap.wrap(line, max(20, int(11.7 * room(ax)))) for line in title.split("\n")
    ]  # letters an inch
    lines = [part for parts in wrapped for part in parts]
    ax.set_title("\n".join(lines), loc="left", fontsize=TEXT + 1, parse_math=False)
    ax.set_xlabel(x, fontsize=TEXT, parse_math=False)
    ax.set_ylabel(y, fontsize=TEXT, parse_math=False)
    ax.tick_params(labelsize=TEXT)
    ax.grid(visible=False)
    ax.grid(axis=grid, color=colours(ax).ink, alpha=0.13, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    _write_ticks(ax)
    return ax


def _write_ticks(ax: Axes) -> None:
    """Numbers at ticks with separators and without powers of ten beside the axis; all other ticks as they are."""
    from matplotlib.ticker import ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(partial(_written, axis))


def _written(axis: Any, value: float, _: Any) -> str:
    return tick(value, axis.get_majorticklocs())


def tick(value: float, ticks: FloatArray) -> str:
    """One of these ticks, with the decimals that tell them apart; separators from 10,000 on, so that years stay years."""
    size = float(np.abs(ticks).max(initial=abs(value)))
    step = float(np.diff(np.sort(ticks)).min(initial=size or 1.0))
    if size and not 1e-4 <= size < 1e12:
        return format(value + 0.0, ".3g").replace("-", "−")
    decimals = next(
        (d for d in range(12) if np.all(np.abs(np.round(ticks, d) - ticks) <= 1e-3 * step)), 12
    )
    return format(value + 0.0, f"{',' if size >= SEPARATED else ''}.{decimals}f").replace("-", "−")


def few_ticks(ax: Axes) -> None:
    """Ticks along x that leave room between their numbers."""
    ax.locator_params(axis="x", nbins=most_ticks(ax))


def most_ticks(ax: Axes) -> int:
    """How many ticks along x leave room between their numbers."""
    return max(2, min(6, int(room(ax) / 0.9)))


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


def round_numbers(low: float, high: float, most: int, powers: bool) -> FloatArray:
    """Round numbers around and between two, not many more than asked for: powers of ten, or evenly spaced ones."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    locator = LogLocator(numticks=most) if powers else MaxNLocator(nbins=most)
    return np.asarray(locator.tick_values(low, high))


def diverging(ax: Axes) -> Any:
    """Colours of a heat map around 0: red, white and blue, or on dark styles those of the signs around the ground."""
    from matplotlib.colors import LinearSegmentedColormap

    own = colours(ax)
    return (
        LinearSegmentedColormap.from_list("axil", [own.negative, own.ground, own.positive])
        if own.is_dark
        else "RdBu"
    )


def name_cells(ax: Axes, rows: NDArray[Any], columns: NDArray[Any]) -> None:
    """Labels down and across a heat map; none on a side that has more of them than can be read."""
    across, down = inches(ax)
    for axis, labels, room, turn in ((ax.yaxis, rows, down, 0), (ax.xaxis, columns, across, 90)):
        size, step = letters(
            60 * room, len(labels)
        )  # less than 72 points an inch: names and the scale take some
        named = list(labels) if step == 1 else []
        texts = [shorten(label, SHORTEST) for label in named]
        axis.set_ticks(range(len(named)), texts, fontsize=size, rotation=turn, parse_math=False)


def colour_bar(ax: Axes, image: Any, name: str, beyond: bool) -> None:
    """The scale of a heat map, beside it; with points at its ends if there are values beyond."""
    bar = ax.figure.colorbar(image, ax=ax, extend="both" if beyond else "neither", shrink=0.9)
    bar.set_label(name, fontsize=TEXT - 1)
    bar.ax.tick_params(labelsize=TEXT - 1)
    bar.outline.set_visible(False)


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height; those of new figures before room is made for labels."""
    box, dpi = ax.get_window_extent(), ax.figure.dpi
    return box.width / dpi, box.height / dpi


def room(ax: Axes) -> float:
    """Inches across that will be left once a figure has made room for the labels down the side."""
    longest = max((len(label.get_text()) for label in ax.get_yticklabels()), default=0)
    width = inches(ax)[0]
    return max(min(width, 1.29 * width - LETTER * longest - 0.4), 0.25 * width)


def letters(points: float, n: int) -> tuple[float, int]:
    """The size of letters where n lines share ``points`` points, and the step from one line that is written to the next."""
    line = points / max(n, 1)
    return min(TEXT, max(LEAST, line / LEADING)), max(1, math.ceil(LEADING * LEAST / line))

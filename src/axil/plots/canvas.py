"""Work with matplotlib's figures: axes, colours of the style in use, titles, ticks, heat maps."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError
from axil.plots.sources import Prediction, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis

RGB: TypeAlias = tuple[float, float, float]

# Colours of signs: every eye tells them apart, also without colour, as one is dark and one is light
POSITIVE = "#1b5e9b"
NEGATIVE = "#e8805c"
POSITIVE_ON_DARK = "#8fcbff"
NEGATIVE_ON_DARK = "#cc5522"
# Okabe and Ito's colours, in an order of contrast
LINES = ("#1b5e9b", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#7f7f7f")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
GREY = "0.5"  # of marks: seen on light and on dark

FIXED = "structure fixed"
LONGEST = 44  # characters of a label, if the axes have room for them
SHORTEST = 16  # characters of a label on small axes
TITLE = 54  # characters of a name in a title
TEXT = 9.0  # points: the size of labels
LEAST = 5.0  # points: the smallest letters that can be read
LEADING = 1.35  # the height of a line in letters
LETTER = 0.07  # inches for a letter of a label
LETTERS_PER_INCH = 11.7  # of a title
WIDTH = 6.4  # inches of a figure
LINE = 0.24  # inches for one bar
SEPARATED = 10_000  # ticks have separators from here on; years have none
DARK = 0.4  # luminance below which a ground is dark


@dataclass(frozen=True)
class Colours:
    """Colours that are visible on the background of the axes."""

    ink: RGB  #: of words and lines
    ground: RGB  #: behind them
    positive: str
    negative: str
    lines: tuple[str, ...]

    @property
    def is_dark(self) -> bool:
        """Whether the ground is dark."""
        return _luminance(self.ground) < DARK


def new_axes(ax: Axes | None, height: float = 3.8, width: float = WIDTH) -> Axes:
    """Return the user's axes, or those of a new figure with room for its labels."""
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
            f"ax is a {type(ax).__name__}; expected matplotlib axes, as from fig, ax = "
            "plt.subplots()."
        )
    return ax


def colours(ax: Axes) -> Colours:
    """Return colours that fit the style of the axes."""
    from matplotlib.colors import to_rgb, to_rgba

    ground: RGB = (1.0, 1.0, 1.0)
    figure = ax.get_figure()
    assert figure is not None
    for background in (figure.get_facecolor(), ax.get_facecolor()):
        red, green, blue, alpha = to_rgba(background)
        if alpha > 0:
            ground = (red, green, blue)
    words = to_rgb(ax.xaxis.label.get_color())
    red, green, blue = (0.8 * word + 0.2 * behind for word, behind in zip(words, ground))
    positive = POSITIVE
    negative = NEGATIVE
    if _luminance(ground) < DARK:
        positive = POSITIVE_ON_DARK
        negative = NEGATIVE_ON_DARK
    return Colours((red, green, blue), ground, positive, negative, (positive, *LINES[1:]))


def faded(colour: str, alphas: FloatArray) -> list[tuple[float, float, float, float]]:
    """Return a colour with each opacity, as matplotlib takes colours of marks."""
    from matplotlib.colors import to_rgba

    return [to_rgba(colour, alpha) for alpha in alphas.tolist()]


def _luminance(colour: RGB) -> float:
    """Return the perceived lightness of a colour, from 0 to 1."""
    return float(np.dot(colour, (0.299, 0.587, 0.114)))


def shorten(label: object, most: int = LONGEST) -> str:
    """Return a label with at most ``most`` characters, without its middle if it is longer."""
    full_text = text(label)
    if len(full_text) <= most:
        return full_text
    end = (most - 1) // 2
    return f"{full_text[: most - 1 - end]}…{full_text[-end:]}"


def numbers(values: FloatArray) -> list[str]:
    """Return numbers as text with the same decimals and a real minus.

    The largest has three digits.
    """
    size = float(np.abs(values).max(initial=0.0))
    if size:
        decimals = max(0, 2 - math.floor(math.log10(size)))
    else:
        decimals = 0
    if 1e-5 <= size < 1e9 or not size:
        form = f",.{decimals}f"
    else:
        form = ".2e"
    return [format(value + 0.0, form).replace("-", "−") for value in values.tolist()]


def number(value: float) -> str:
    """Return one number as text."""
    return numbers(np.array([value], dtype=np.float64))[0]


def head(prediction: Prediction) -> str:
    """Return the line of a title that names a prediction; "" for one without name and value."""
    words = []
    if prediction.name:
        words.append(shorten(prediction.name, TITLE - 24))
    if prediction.value is not None:
        words.append(f"prediction {number(prediction.value)}")
    if not words:
        return ""
    return ": ".join(words) + "\n"


def fixed(name: str) -> str:
    """Return the name of an axis of effects with the tree structure fixed.

    A long name is on two lines.
    """
    if len(name) < 28:
        separator = " "
    else:
        separator = "\n"
    return f"{name}{separator}({FIXED})"


def with_scale(name: str, scale: str) -> str:
    """Return the name of an axis, with the scale of the fit in brackets if it has a name."""
    if not scale:
        return name
    return f"{name} ({scale})"


def dress(ax: Axes, title: str, x: str, y: str, grid: Literal["both", "x", "y"] = "both") -> Axes:
    """Add a title, axis names, ticks with separators and a faint grid.

    Remove the frame above and to the right.
    """
    most = max(20, int(LETTERS_PER_INCH * room(ax)))
    lines = []
    for line in title.split("\n"):
        lines += textwrap.wrap(line, most)
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
    """Write the numbers of ticks with separators, and without powers of ten beside the axis."""
    from matplotlib.ticker import ScalarFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(partial(_tick_of_axis, axis))


def _tick_of_axis(axis: Axis, value: float, _: int | None) -> str:
    """Return the text of a tick, for matplotlib."""
    return tick(value, axis.get_majorticklocs())


def tick(value: float, ticks: FloatArray) -> str:
    """Return one of these ticks as text, with the decimals that distinguish them.

    Numbers have separators from 10,000 on, so that years have none.
    """
    size = float(np.abs(ticks).max(initial=abs(value)))
    step = float(np.diff(np.sort(ticks)).min(initial=size or 1.0))
    if size and not 1e-4 <= size < 1e12:
        return format(value + 0.0, ".3g").replace("-", "−")
    decimals = 0
    while decimals < 12 and np.any(np.abs(np.round(ticks, decimals) - ticks) > 1e-3 * step):
        decimals += 1
    if size >= SEPARATED:
        separator = ","
    else:
        separator = ""
    return format(value + 0.0, f"{separator}.{decimals}f").replace("-", "−")


def few_ticks(ax: Axes) -> None:
    """Limit the ticks along x so that their numbers have room."""
    ax.locator_params(axis="x", nbins=most_ticks(ax))


def most_ticks(ax: Axes) -> int:
    """Return the number of ticks along x whose numbers have room."""
    return max(2, min(6, int(room(ax) / 0.9)))


def date_ticks(ax: Axes) -> None:
    """Set ticks along x at dates, written as short as their neighbours allow."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def whole_ticks(ax: Axes) -> None:
    """Set ticks along x at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def round_numbers(low: float, high: float, most: int, powers: bool) -> FloatArray:
    """Return about ``most`` round numbers from ``low`` to ``high``.

    They are powers of ten, or evenly spaced.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    locator = LogLocator(numticks=most) if powers else MaxNLocator(nbins=most)
    return np.asarray(locator.tick_values(low, high))


def diverging(ax: Axes) -> Any:
    """Return the colours of a heat map around 0: red, white and blue, or those of a dark style."""
    from matplotlib.colors import LinearSegmentedColormap

    palette = colours(ax)
    if not palette.is_dark:
        return "RdBu"
    ends: list[Any] = [palette.negative, palette.ground, palette.positive]
    return LinearSegmentedColormap.from_list("axil", ends)


def name_cells(ax: Axes, rows: AnyArray, columns: AnyArray) -> None:
    """Label the rows and columns of a heat map, except on a side with too many of them."""
    across, down = inches(ax)
    _label_side(ax.yaxis, rows, down, rotation=0)
    _label_side(ax.xaxis, columns, across, rotation=90)


def _label_side(axis: Axis, labels: AnyArray, length: float, rotation: int) -> None:
    """Label one side of a heat map, ``length`` inches long."""
    # less than 72 points per inch, as names and the scale take some room
    size, step = letters(60 * length, len(labels))
    texts = []
    if step == 1:
        texts = [shorten(label, SHORTEST) for label in labels]
    axis.set_ticks(range(len(texts)), texts, fontsize=size, rotation=rotation, parse_math=False)


def colour_bar(ax: Axes, image: Any, name: str, beyond: bool) -> None:
    """Add the scale of a heat map, with pointed ends for values beyond it."""
    bar = ax.figure.colorbar(image, ax=ax, extend="both" if beyond else "neither", shrink=0.9)
    bar.set_label(name, fontsize=TEXT - 1)
    bar.ax.tick_params(labelsize=TEXT - 1)
    bar.outline.set_visible(False)


def inches(ax: Axes) -> tuple[float, float]:
    """Return width and height; for new figures before they make room for labels."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def room(ax: Axes) -> float:
    """Return the width in inches that the labels at the side leave."""
    longest = max((len(label.get_text()) for label in ax.get_yticklabels()), default=0)
    width, _ = inches(ax)
    return max(min(width, 1.29 * width - LETTER * longest - 0.4), 0.25 * width)


def letters(points: float, n: int) -> tuple[float, int]:
    """Return the size of letters for n lines in ``points`` points, and a step.

    The step is that from one written line to the next.
    """
    line = points / max(n, 1)
    size = min(TEXT, max(LEAST, line / LEADING))
    step = max(1, math.ceil(LEADING * LEAST / line))
    return size, step

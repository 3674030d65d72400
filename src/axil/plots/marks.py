"""Plot marks on axes: bars with labels and numbers, points by sign, a legend, words in a corner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.plots import canvas
from axil.plots.canvas import LEAST, LETTER, LINE, LONGEST, SHORTEST, TEXT, WIDTH

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

NARROW = 20  # characters of labels that a figure has room for
MANY = 500  # from so many points on they are more transparent, as some cover others


def bar_axes(ax: Axes | None, labels: Sequence[object], line: float = LINE) -> Axes:
    """Return the user's axes, or those of a new figure with room for labelled bars.

    Each bar takes ``line`` inches.
    """
    letters = max((len(canvas.shorten(label)) for label in labels), default=0)
    height = min(1.4 + line * len(labels), 14.0)
    return canvas.new_axes(ax, height, WIDTH + LETTER * max(0, letters - NARROW))


def label_bars(ax: Axes, labels: Sequence[object]) -> float:
    """Label the bars 0, 1, ... from the top in letters that fit, and return the letters' size.

    If there are too many bars, every second, third, ... has a label.
    """
    n = len(labels)
    across, down = canvas.inches(ax)
    size, step = canvas.letters(72 * down, n)
    most = int(np.clip(0.6 * across / LETTER, SHORTEST, LONGEST))
    places = list(range(0, n, step))
    texts = [canvas.shorten(labels[i], most) for i in places]
    ax.set_yticks(places, texts, fontsize=size, parse_math=False)
    ax.set_ylim(n - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    return size


def sign_bars(
    ax: Axes,
    labels: Sequence[object],
    values: FloatArray,
    starts: FloatArray | None = None,
    rest: int | None = None,
    texts: list[str] | None = None,
) -> None:
    """Plot horizontal bars in the colour of their sign, with their numbers beside them.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    labels : sequence
        The names of the bars.
    values : ndarray
        Their signed lengths.
    starts : ndarray, optional
        Where they begin; 0 by default.
    rest : int, optional
        The position of a bar that stands for many others, which is grey and hatched.
    texts : list of str, optional
        Texts in place of the numbers.
    """
    palette = canvas.colours(ax)
    bar_colours = [palette.negative if value < 0 else palette.positive for value in values]
    if starts is None:
        starts_of_bars = np.zeros(len(values))
    else:
        starts_of_bars = starts
    bars = ax.barh(
        np.arange(len(values)), values, left=starts_of_bars, color=bar_colours, height=0.72
    )
    if rest is not None:
        grey = (*palette.ink[:3], 0.2)
        bars[rest].set(facecolor=grey, edgecolor=palette.ink, hatch="///", linewidth=0.6)
    size = label_bars(ax, labels)
    numbers = texts or canvas.numbers(values)
    _write_numbers(ax, starts_of_bars + values, values < 0, numbers, min(size, TEXT - 1))
    if starts is None:
        ax.axvline(0.0, color=palette.ink, linewidth=0.8)


def _write_numbers(
    ax: Axes, ends: FloatArray, leftward: BoolArray, texts: list[str], size: float
) -> None:
    """Write a number outside the end of each bar, and widen the limits for it.

    Omit the numbers if they would be too small.
    """
    if size < LEAST + 1:
        return
    ink = canvas.colours(ax).ink
    for i, (end, is_left, number) in enumerate(zip(ends.tolist(), leftward.tolist(), texts)):
        ax.annotate(
            number,
            (end, i),
            xytext=(-3 if is_left else 3, 0),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="center",
            fontsize=size,
            color=ink,
            parse_math=False,
        )
    widest = 0.62 * size * max(map(len, texts), default=0) + 8
    share = min(0.35, widest / (72 * 0.85 * canvas.room(ax)))  # fonts differ in width
    low = ax.dataLim.x0
    high = ax.dataLim.x1
    has_left = bool(leftward.any())
    has_right = not leftward.all()
    n_sides = int(has_left) + int(has_right)
    pad = share / (1 - n_sides * share) * ((high - low) or 1.0)
    if has_left:
        left_pad = pad
    else:
        left_pad = 0.02 * pad
    if has_right:
        right_pad = pad
    else:
        right_pad = 0.02 * pad
    ax.set_xlim(low - left_pad, high + right_pad)


def sign_points(
    ax: Axes,
    x: FloatArray,
    y: FloatArray,
    signs: FloatArray,
    names: tuple[str, str] = ("positive", "negative"),
) -> None:
    """Plot positive points as blue circles, negative as orange triangles, zeros small and grey."""
    palette = canvas.colours(ax)
    size = float(np.clip(6000 / max(len(x), 1), 5, 30))
    if len(x) <= MANY:
        alpha = 0.75
    else:
        alpha = 0.5
    kinds = (
        (signs == 0, "0.7", ".", "zero", size / 2),
        (signs > 0, palette.positive, "o", names[0], size),
        (signs < 0, palette.negative, "v", names[1], size),
    )
    for mask, colour, marker, name, area in kinds:
        if mask.any():
            ax.scatter(
                x[mask],
                y[mask],
                s=area,
                c=colour,
                marker=marker,
                alpha=alpha,
                linewidths=0,
                label=name,
                rasterized=True,
            )


def spread(x: FloatArray, share: float = 0.3) -> FloatArray:
    """Return positions, with equal ones moved apart by up to ``share`` of the smallest gap.

    They stay unchanged if few are equal.
    """
    places, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    if len(x) < 4 * len(places):
        return x
    gap = 1.0
    if len(places) > 1:
        gap = float(np.diff(places).min(initial=np.inf))
    first_ranks = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(len(x), dtype=np.intp)
    ranks[np.argsort(codes, kind="stable")] = np.arange(len(x)) - first_ranks
    n_equal = counts[codes]
    offsets = 2 * ranks / np.maximum(n_equal - 1, 1) - (n_equal > 1)  # from -1 to 1
    return np.asarray(x + share * gap * offsets)


def corner(ax: Axes, lines: str) -> None:
    """Write a few words in the lower right corner."""
    palette = canvas.colours(ax)
    ax.text(
        0.985,
        0.04,
        lines,
        transform=ax.transAxes,
        ha="right",
        va="bottom",
        fontsize=TEXT,
        color=palette.ink,
        bbox={"facecolor": palette.ground, "edgecolor": "none", "alpha": 0.9, "pad": 2},
    )


def key(ax: Axes) -> None:
    """Add a legend at the emptiest place."""
    palette = canvas.colours(ax)
    ax.legend(
        fontsize=TEXT - 1,
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
        facecolor=palette.ground,
        labelcolor=palette.ink,
    )

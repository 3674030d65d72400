"""Marks on axes: bars with labels and numbers, points by sign, a legend, words in a corner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.plots import canvas
from axil.plots.canvas import LEAST, LETTER, LINE, LONGEST, SHORTEST, TEXT, WIDTH

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

NARROW = 20  # characters of labels that a figure has room for as it is
MANY = 500  # points, of which some stand on top of others


def bar_axes(ax: Axes | None, labels: Sequence[Any], line: float = LINE) -> Axes:
    """The axes given, or those of a new figure with room for bars of these labels, ``line`` inches each."""
    letters = max((len(canvas.shorten(label)) for label in labels), default=0)
    height = min(1.4 + line * len(labels), 14.0)
    return canvas.new_axes(ax, height, WIDTH + LETTER * max(0, letters - NARROW))


def label_bars(ax: Axes, labels: Sequence[Any]) -> float:
    """Name the bars 0, 1, ... from the top, in letters that fit, and return their size.

    Of more bars than can be named every second, third, ... is.
    """
    n = len(labels)
    across, down = canvas.inches(ax)
    size, step = canvas.letters(72 * down, n)
    shown, most = range(0, n, step), int(np.clip(0.6 * across / LETTER, SHORTEST, LONGEST))
    ax.set_yticks(
        list(shown),
        [canvas.shorten(labels[i], most) for i in shown],
        fontsize=size,
        parse_math=False,
    )
    ax.set_ylim(n - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    return size


def sign_bars(
    ax: Axes,
    labels: Sequence[Any],
    values: FloatArray,
    starts: FloatArray | None = None,
    rest: int | None = None,
    texts: list[str] | None = None,
) -> None:
    """Horizontal bars from the starts, or from 0, in the colour of their sign; each with its number, or text, beside.

    ``rest``: the bar that stands for many, grey and hatched.
    """
    own = canvas.colours(ax)
    colours = [own.negative if value < 0 else own.positive for value in values]
    left = np.zeros(len(values)) if starts is None else starts
    drawn = ax.barh(np.arange(len(values)), values, left=left, color=colours, height=0.72)
    if rest is not None:
        drawn[rest].set(
            facecolor=(*own.ink[:3], 0.2), edgecolor=own.ink, hatch="///", linewidth=0.6
        )
    size = label_bars(ax, labels)
    ends = left + values
    _write_numbers(ax, ends, values < 0, texts or canvas.numbers(values), min(size, TEXT - 1))
    if starts is None:
        ax.axvline(0.0, color=own.ink, linewidth=0.8)


def _write_numbers(
    ax: Axes, ends: FloatArray, leftward: BoolArray, texts: list[str], size: float
) -> None:
    """A number at the end of each bar, outwards, and limits wide enough for them; none where they would be too small."""
    if size < LEAST + 1:
        return
    ink = canvas.colours(ax).ink
    for i, (end, left, shown) in enumerate(zip(ends.tolist(), leftward.tolist(), texts)):
        ax.annotate(
            shown,
            (end, i),
            xytext=(-3 if left else 3, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=size,
            color=ink,
            parse_math=False,
        )
    widest = 0.62 * size * max(map(len, texts), default=0) + 8
    share = min(0.35, widest / (72 * 0.85 * canvas.room(ax)))  # fonts differ in width
    low, high = ax.dataLim.x0, ax.dataLim.x1
    sides = int(leftward.any()) + int(not leftward.all())
    pad = share / (1 - sides * share) * ((high - low) or 1.0)
    ax.set_xlim(
        low - (pad if leftward.any() else 0.02 * pad),
        high + (pad if not leftward.all() else 0.02 * pad),
    )


def sign_points(
    ax: Axes,
    x: FloatArray,
    y: FloatArray,
    signs: FloatArray,
    names: tuple[str, str] = ("positive", "negative"),
) -> None:
    """Points in the colour and shape of their sign: blue circles and orange triangles; those of sign 0 small and grey."""
    own = canvas.colours(ax)
    size = float(np.clip(6000 / max(len(x), 1), 5, 30))
    kinds = (
        (signs == 0, "0.7", ".", "zero"),
        (signs > 0, own.positive, "o", names[0]),
        (signs < 0, own.negative, "v", names[1]),
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
                alpha=0.75 if len(x) <= MANY else 0.5,
                linewidths=0,
                label=name,
                rasterized=True,
            )


def spread(x: FloatArray, share: float = 0.3) -> FloatArray:
    """Positions, equal ones moved apart by up to ``share`` of the least gap between places; unchanged where few are equal."""
    places, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    if len(x) < 4 * len(places):
        return x
    gap = float(np.diff(places).min(initial=np.inf)) if len(places) > 1 else 1.0
    ranks = np.empty(len(x), dtype=np.intp)
    ranks[np.argsort(codes, kind="stable")] = np.arange(len(x)) - np.repeat(
        np.cumsum(counts) - counts, counts
    )
    return np.asarray(
        x + share * gap * (2 * ranks / np.maximum(counts[codes] - 1, 1) - (counts[codes] > 1))
    )


def corner(ax: Axes, lines: str) -> None:
    """A few words in the corner below on the right."""
    own = canvas.colours(ax)
    ax.text(
        0.985,
        0.04,
        lines,
        transform=ax.transAxes,
        ha="right",
        va="bottom",
        fontsize=TEXT,
        color=own.ink,
        bbox={"facecolor": own.ground, "edgecolor": "none", "alpha": 0.9, "pad": 2},
    )


def key(ax: Axes) -> None:
    """A legend of what was drawn, where there is most room."""
    own = canvas.colours(ax)
    ax.legend(
        fontsize=TEXT - 1,
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
        facecolor=own.ground,
        labelcolor=own.ink,
    )

"""Intervals: how wide they are, whether they hold what they promise, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, counted, shown
from axil.inputs import as_number, as_numbers, as_vector, group_codes
from axil.plots import canvas, marks
from axil.plots.sources import labelled, numbers_in, one_output
from axil.scale import inverse_named

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

ENDS = ("prediction", "lower", "upper")
BINS = 10  # groups by the local scale, where none are given
FEWEST = 20  # rows of such a group
ELSEWHERE = (
    10.0  # times the range of all intervals: targets that are all further away are on another scale
)


def fan(frame: Any, *rows: Any, y: Any = None, output: Any = None, ax: Axes | None = None) -> Axes:
    """Draw prediction intervals, the lowest prediction first, and the true targets over them where they are known.

    Called as ``fan(frame)``, ``fan(frame, y)``, ``fan(predictive, X)`` or ``fan(predictive, X, y)``. ``frame``: what
    ``predictive.interval(X)`` returns, or ``{name: frame, ...}`` of the same rows for several coverages; of a ``predictive`` and
    its rows X the intervals of 90 % are drawn. ``y``: targets of these rows, in the units of the frame or, as other calls take
    them, on the scale of the fit that the frame names ("scale (log)"): whichever more intervals hold. Targets outside the widest
    interval are orange triangles.
    """
    frame, y = _intervals_of(frame, rows, y)
    named = dict(frame) if isinstance(frame, Mapping) else {"interval": frame}
    if not named:
        raise InputError(
            "frame is empty; expected what predictive.interval(X) returns, or {name: frame, ...}."
        )
    read = {str(name): _lines(one, output, ENDS) for name, one in named.items()}
    made = next(iter(read.values()))["prediction"]
    if any(not np.array_equal(lines["prediction"], made) for lines in read.values()):
        raise InputError(
            "The frames are of different predictions; expected intervals of the same rows, in the same order."
        )
    order = np.argsort(made, kind="stable")
    widest_first = sorted(
        read.items(), key=lambda one: -float(np.sum(one[1]["upper"] - one[1]["lower"]))
    )
    at = np.arange(len(order), dtype=np.float64)
    ax = canvas.new_axes(ax)
    for i, (name, lines) in enumerate(widest_first):
        opacity = 0.22 + 0.3 * i / len(read)
        ends = lines["lower"][order], lines["upper"][order]
        ax.fill_between(
            at,
            *ends,
            color=canvas.colours(ax).positive,
            alpha=opacity,
            linewidth=0,
            step="mid",
            label=name,
        )
    ax.plot(at, made[order], color=canvas.colours(ax).ink, linewidth=1.2, label="prediction")
    title, label = f"{counted(len(order), 'prediction', ',')}, the lowest first", "target"
    if y is not None:
        wide = widest_first[0][1]
        truth, given = _targets(y, wide, next(iter(named.values())))
        truth, label = truth[order], label + given
        outside = (truth < wide["lower"][order]) | (truth > wide["upper"][order])
        marks.sign_points(ax, at, truth, np.where(outside, -1.0, 1.0), ("target", "target outside"))
        title += f"\n{1 - outside.mean():.1%} of the targets are in the widest interval"
    canvas.dress(ax, title, "rows, by prediction", label)
    canvas.few_ticks(ax)
    marks.key(ax)
    return ax


def _intervals_of(frame: Any, rows: tuple[Any, ...], y: Any) -> tuple[Any, Any]:
    """Return the intervals that `fan` draws and the targets, from a frame or from a predictive and its rows."""
    targets = [*rows, *([] if y is None else [y])]
    if hasattr(frame, "interval"):
        if not rows:
            raise InputError(
                "fan got a predictive without rows; expected fan(predictive, X) or fan(predictive, X, y)."
            )
        frame, targets = frame.interval(rows[0]), targets[1:]
    if len(targets) > 1:
        raise InputError(
            f"fan got {len(targets)} arguments after the intervals; expected the targets alone: fan(frame, y), or "
            "fan(predictive, X, y)."
        )
    return frame, targets[0] if targets else None


def calibration(values: Any, *, ax: Axes | None = None) -> Axes:
    """The share of targets inside intervals of every coverage, against that coverage.

    ``values``: ``predictive.cdf(X, y)`` of rows with known targets, (n,). On the diagonal intervals hold what they promise; below
    it they are too short. Grey: where n exchangeable rows are with a probability of 95 %, calibration taken as perfect.
    """
    given = as_numbers(values, "values", "what predictive.cdf(X, y) returns")
    ranks = as_vector(given, len(given) if given.ndim else 1, "values", "drawn")
    if not len(ranks) or (ranks < 0).any() or (ranks > 1).any():
        raise InputError(
            "values are no probabilities; expected what predictive.cdf(X, y) returns, from 0 to 1."
        )
    promised = np.linspace(0.0, 1.0, 101)
    inside = np.sort(np.abs(2 * ranks - 1))
    held = np.searchsorted(inside, promised, side="right") / len(inside)
    slack = 1.96 * np.sqrt(promised * (1 - promised) / len(inside))
    ax = canvas.new_axes(ax)
    ax.fill_between(
        promised,
        promised - slack,
        promised + slack,
        color=canvas.colours(ax).ink,
        linewidth=0,
        alpha=0.15,
    )
    ax.plot([0, 1], [0, 1], color=canvas.colours(ax).ink, linewidth=0.8, linestyle="--")
    ax.plot(promised, held, color=canvas.colours(ax).positive, linewidth=1.8)
    for mark in (0.5, 0.8, 0.9):
        ax.plot(mark, held[round(100 * mark)], "o", color=canvas.colours(ax).ink, markersize=4)
    held_at = "\n".join(
        f"{mark:.0%} holds {held[round(100 * mark)]:.1%}" for mark in (0.5, 0.8, 0.9)
    )
    marks.corner(ax, held_at)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    canvas.dress(ax, f"Coverage of {len(ranks):,} targets", "promised", "held")
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.yaxis.set_major_formatter("{x:.0%}")
    return ax


def coverage(
    frame: Any,
    y: Any,
    groups: Any = None,
    *,
    coverage: float = 0.9,
    output: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """The share of targets inside their intervals by group, or from the smallest local scale to the largest.

    ``frame``: what ``predictive.interval(X, coverage)`` returns, ``y`` the targets as in `fan`, ``groups`` a label for each row.
    The promise (dashed) is for all rows together; here is where it is kept. Lines reach two standard errors either way.
    """
    scale, _ = labelled(frame, "scale")
    lines = _lines(frame, output, (*ENDS, scale))
    (truth, given), promised = _targets(y, lines, frame), as_number(coverage, "coverage")
    if not 0 < promised < 1:
        raise InputError(
            f"coverage is {shown(coverage)}; expected a number between 0 and 1, as the intervals were asked for."
        )
    inside = (lines["lower"] <= truth) & (truth <= lines["upper"])
    codes, names = (
        _by_scale(lines[scale]) if groups is None else group_codes(groups, len(truth), "groups")
    )
    rows = np.bincount(codes, minlength=len(names))
    held = np.bincount(codes, inside, len(names)) / np.maximum(rows, 1)
    error = np.sqrt(promised * (1 - promised) / np.maximum(rows, 1))
    labels = [f"{name} ({n:,})" for name, n in zip(names, rows.tolist())]
    ax = marks.bar_axes(ax, labels)
    places = np.arange(len(names), dtype=np.float64)
    ax.hlines(
        places,
        np.maximum(held - 2 * error, 0.0),
        np.minimum(held + 2 * error, 1.0),
        color=canvas.colours(ax).ink,
        alpha=0.25,
        linewidth=3,
        zorder=0.9,
    )
    ax.axvline(promised, color=canvas.colours(ax).ink, linewidth=1.0, linestyle="--")
    marks.sign_points(ax, held, places, np.where(held + 2 * error < promised, -1.0, 1.0))
    marks.label_bars(ax, labels)
    ax.set_xlim(min(0.5, float((held - 2 * error).min())) - 0.02, 1.02)
    by = "by local scale" if groups is None else "by group"
    title = f"Targets inside their intervals, {by}\n{inside.mean():.1%} of all {len(truth):,}{given}, {promised:.0%} promised"
    canvas.dress(ax, title, "share inside; lines: two standard errors", "")
    ax.xaxis.set_major_formatter("{x:.0%}")
    return ax


def _targets(y: Any, lines: dict[str, FloatArray], frame: Any) -> tuple[FloatArray, str]:
    """(n,): targets in the units of these intervals, and a word for a label where they were given on the scale of the fit.

    The wrong scale of the two holds hardly any target, and the right one most of them.
    """
    given, name = as_vector(y, len(lines["prediction"]), "y", "drawn"), labelled(frame, "scale")[1]
    inverse, found = inverse_named(name), [(given, "")]
    if inverse is not None:
        with np.errstate(all="ignore"):
            found.append((np.asarray(inverse(given)), f" (given as {name})"))

    def agreement(one: tuple[FloatArray, str]) -> tuple[float, float]:
        held = (lines["lower"] <= one[0]) & (one[0] <= lines["upper"])
        away = float(np.median(np.abs(one[0] - lines["prediction"])))
        return float(held.mean()), -away if np.isfinite(away) else -np.inf

    truth, word = max(found, key=agreement)  # the first of equal ones
    ends = np.concatenate([lines["lower"], lines["upper"]])
    low, high = (float(end) for end in (ends.min(), ends.max()))
    beyond = np.maximum(low - truth, truth - high)
    if len(truth) >= FEWEST and (beyond > ELSEWHERE * (high - low)).all():
        scale = f", and the model was fitted to {name}" if name else ""
        raise InputError(
            f"y runs from {given.min():.6g} to {given.max():.6g}, and the intervals from {low:.6g} to {high:.6g}{scale}. "
            "Expected targets in the units of the intervals, such as both in prices or both in logarithms."
        )
    return truth, word


def _by_scale(scale: FloatArray) -> tuple[IntArray, list[str]]:
    """Groups of equal size by the local scale, named by its range."""
    n = int(np.clip(len(scale) // FEWEST, 1, BINS))
    codes = np.empty(len(scale), dtype=np.intp)
    parts = np.array_split(np.argsort(scale, kind="stable"), n)
    for i, part in enumerate(parts):
        codes[part] = i
    return codes, [
        f"{canvas.number(scale[part[0]])} to {canvas.number(scale[part[-1]])}" for part in parts
    ]


def _lines(frame: Any, output: Any, columns: tuple[str, ...]) -> dict[str, FloatArray]:
    """Columns of a table of intervals, of one output."""
    lines, _ = one_output(frame, output, columns, "predictive.interval(X)")
    return {name: numbers_in(lines, name) for name in columns}

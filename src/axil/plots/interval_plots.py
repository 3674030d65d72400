"""Plot intervals: how wide they are, whether they cover what they promise, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, counted, shown
from axil.forecasts import ForecastIntervals
from axil.inputs import as_number, as_numbers, as_vector, group_codes
from axil.plots import canvas, marks
from axil.plots.forecast_plots import forecast_fan
from axil.plots.sources import labelled, numbers_in, one_output
from axil.scale import inverse_named

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

ENDS = ("prediction", "lower", "upper")
BINS = 10  # groups by the local scale, unless the user gives groups
FEWEST = 20  # rows of such a group
# targets are on another scale if all are further away than this many times the range of all
# intervals
FAR_AWAY = 10.0
MARKED_LEVELS = (0.5, 0.8, 0.9)


def fan(
    frame: Any,
    *rows: Any,
    y: Any = None,
    query: object = None,
    output: object = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot prediction intervals in the order of the predictions, with known true targets.

    It is called as ``fan(frame)``, ``fan(frame, y)``, ``fan(predictive, X)`` or ``fan(predictive,
    X, y)``. ``frame`` is what ``predictive.interval(X)`` returns, or ``{name: frame, ...}`` of the
    same rows for several levels. A ``predictive`` and its rows X stand for intervals of 90 %. ``y``
    are the targets of these rows, in the units of the frame or on the scale of the fit that the
    frame names ("scale (log)"): the plot takes the scale that more intervals cover. Targets outside
    the widest interval are orange triangles.

    For intervals of `axil.forecast`, ``fan(forecast.calibrate())``, the forecasts are drawn by
    date, after the observations, with intervals of 50 %, 80 % and 90 %. ``query`` is the series, by
    name or position; the first one is the default.
    """
    if isinstance(frame, ForecastIntervals):
        if rows or y is not None:
            raise InputError(
                "Intervals of forecasts have dates of their own; leave rows and y out."
            )
        if query is None:
            query = 0
        return forecast_fan(frame, query, ax)
    if query is not None:
        raise InputError(
            "query chooses a series of axil.forecast. These are intervals of rows, which are all "
            "drawn; leave it out."
        )
    frame, y = _intervals_of(frame, rows, y)
    if isinstance(frame, Mapping):
        frames = dict(frame)
    else:
        frames = {"interval": frame}
    if not frames:
        raise InputError(
            "frame is empty; expected what predictive.interval(X) returns, or {name: frame, ...}."
        )
    intervals = {str(name): _lines(table, output, ENDS) for name, table in frames.items()}
    predictions = next(iter(intervals.values()))["prediction"]
    if any(not np.array_equal(lines["prediction"], predictions) for lines in intervals.values()):
        raise InputError(
            "The frames are of different predictions; expected intervals of the same rows, in the "
            "same order."
        )
    order = np.argsort(predictions, kind="stable")
    widest_first = sorted(intervals, key=lambda name: -_total_width(intervals[name]))
    places = np.arange(len(order), dtype=np.float64)
    ax = canvas.new_axes(ax)
    palette = canvas.colours(ax)
    for i, name in enumerate(widest_first):
        ax.fill_between(
            places,
            intervals[name]["lower"][order],
            intervals[name]["upper"][order],
            color=palette.positive,
            alpha=0.22 + 0.3 * i / len(intervals),
            linewidth=0,
            step="mid",
            label=name,
        )
    ax.plot(places, predictions[order], color=palette.ink, linewidth=1.2, label="prediction")
    title = f"{counted(len(order), 'prediction', ',')}, the lowest first"
    target_label = "target"
    if y is not None:
        widest = intervals[widest_first[0]]
        targets, scale_note = _targets(y, widest, next(iter(frames.values())))
        target_label += scale_note
        is_outside = ((targets < widest["lower"]) | (targets > widest["upper"]))[order]
        signs = np.where(is_outside, -1.0, 1.0)
        marks.sign_points(ax, places, targets[order], signs, ("target", "target outside"))
        title += f"\n{1 - is_outside.mean():.1%} of the targets are in the widest interval"
    canvas.dress(ax, title, "rows, by prediction", target_label)
    canvas.few_ticks(ax)
    marks.key(ax)
    return ax


def _total_width(lines: dict[str, FloatArray]) -> float:
    """Return the sum of the widths of all intervals."""
    return float(np.sum(lines["upper"] - lines["lower"]))


def _intervals_of(frame: Any, rows: tuple[Any, ...], y: Any) -> tuple[Any, Any]:
    """Return the intervals and targets of `fan`, from a frame or from a predictive and its rows."""
    targets = list(rows)
    if y is not None:
        targets.append(y)
    if hasattr(frame, "interval"):
        if not rows:
            raise InputError(
                "fan got a predictive without rows; expected fan(predictive, X) or "
                "fan(predictive, X, y)."
            )
        frame = frame.interval(rows[0])
        targets = targets[1:]
    if len(targets) > 1:
        raise InputError(
            f"fan got {len(targets)} arguments after the intervals; expected the targets alone: "
            "fan(frame, y), or fan(predictive, X, y)."
        )
    return frame, targets[0] if targets else None


def calibration(values: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the share of targets inside intervals of every confidence level, against that level.

    ``values`` (n,) is ``predictive.cdf(X, y)`` for rows with known targets. On the diagonal,
    intervals cover what they promise. Below it they are too short. With perfect calibration, n
    exchangeable rows are in the grey area with a probability of 95 %.
    """
    numbers = as_numbers(values, "values", "what predictive.cdf(X, y) returns")
    ranks = as_vector(numbers, len(numbers) if numbers.ndim else 1, "values", "drawn")
    if not len(ranks) or (ranks < 0).any() or (ranks > 1).any():
        raise InputError(
            "values are no probabilities; expected what predictive.cdf(X, y) returns, from 0 to 1."
        )
    promised = np.linspace(0.0, 1.0, 101)
    needed = np.sort(np.abs(2 * ranks - 1))  # the level from which on an interval has the target
    covered = np.searchsorted(needed, promised, side="right") / len(needed)
    slack = 1.96 * np.sqrt(promised * (1 - promised) / len(needed))
    ax = canvas.new_axes(ax)
    palette = canvas.colours(ax)
    ax.fill_between(
        promised, promised - slack, promised + slack, color=palette.ink, linewidth=0, alpha=0.15
    )
    ax.plot([0, 1], [0, 1], color=palette.ink, linewidth=0.8, linestyle="--")
    ax.plot(promised, covered, color=palette.positive, linewidth=1.8)
    lines = []
    for mark in MARKED_LEVELS:
        covered_at_mark = covered[round(100 * mark)]
        ax.plot(mark, covered_at_mark, "o", color=palette.ink, markersize=4)
        lines.append(f"{mark:.0%}: covered {covered_at_mark:.1%}")
    marks.corner(ax, "\n".join(lines))
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    canvas.dress(ax, f"Coverage of {len(ranks):,} targets", "promised", "covered")
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.yaxis.set_major_formatter("{x:.0%}")
    return ax


def coverage(
    frame: Any,
    y: Any,
    *,
    groups: Any = None,
    confidence_level: float = 0.9,
    output: object = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of targets inside their intervals by group, or by local scale.

    Local scales run from the smallest to the largest.

    ``frame`` is what ``predictive.interval(X, confidence_level)`` returns, ``y`` are the
    targets as in `fan`, and ``groups`` is a label for each row. The promise (dashed) is for all
    rows together, and the plot shows where it is kept. Lines reach two standard errors to both
    sides.
    """
    scale, _ = labelled(frame, "scale")
    lines = _lines(frame, output, (*ENDS, scale))
    targets, scale_note = _targets(y, lines, frame)
    promised = as_number(confidence_level, "confidence_level")
    if not 0 < promised < 1:
        raise InputError(
            f"confidence_level is {shown(confidence_level)}; expected a number between 0 and 1, "
            "the level of the intervals."
        )
    is_inside = (lines["lower"] <= targets) & (targets <= lines["upper"])
    if groups is None:
        codes, ranges = _groups_by_scale(lines[scale])
        names = np.array(ranges)
        by = "by local scale"
    else:
        codes, names = group_codes(groups, len(targets), "groups")
        by = "by group"
    n_rows = np.bincount(codes, minlength=len(names))
    divisor = np.maximum(n_rows, 1)
    covered = np.bincount(codes, is_inside, len(names)) / divisor
    error = np.sqrt(promised * (1 - promised) / divisor)
    low = covered - 2 * error
    high = covered + 2 * error
    labels = [f"{name} ({n:,})" for name, n in zip(names, n_rows.tolist())]
    ax = marks.bar_axes(ax, labels)
    ink = canvas.colours(ax).ink
    places = np.arange(len(names), dtype=np.float64)
    ax.hlines(
        places,
        np.maximum(low, 0.0),
        np.minimum(high, 1.0),
        color=ink,
        alpha=0.25,
        linewidth=3,
        zorder=0.9,
    )
    ax.axvline(promised, color=ink, linewidth=1.0, linestyle="--")
    marks.sign_points(ax, covered, places, np.where(high < promised, -1.0, 1.0))
    marks.label_bars(ax, labels)
    ax.set_xlim(min(0.5, float(low.min())) - 0.02, 1.02)
    title = f"Targets inside their intervals, {by}\n"
    title += f"{is_inside.mean():.1%} of all {len(targets):,}{scale_note}, {promised:.0%} promised"
    canvas.dress(ax, title, "share inside; lines: two standard errors", "")
    ax.xaxis.set_major_formatter("{x:.0%}")
    return ax


def _targets(y: Any, lines: dict[str, FloatArray], frame: Any) -> tuple[FloatArray, str]:
    """Return the targets (n,) in the units of these intervals, and a note for a label.

    The user may give targets on the scale of the fit, which the note then names. Intervals cover
    hardly any target on the wrong scale, and most of them on the right one.
    """
    numbers = as_vector(y, len(lines["prediction"]), "y", "drawn")
    targets = numbers
    note = ""
    _, scale = labelled(frame, "scale")
    inverse = inverse_named(scale)
    if inverse is not None:
        with np.errstate(all="ignore"):
            inverted = np.asarray(inverse(numbers))
        if _agreement(inverted, lines) > _agreement(numbers, lines):
            targets = inverted
            note = f" (given as {scale})"
    low = float(min(lines["lower"].min(), lines["upper"].min()))
    high = float(max(lines["lower"].max(), lines["upper"].max()))
    beyond = np.maximum(low - targets, targets - high)
    if len(targets) >= FEWEST and (beyond > FAR_AWAY * (high - low)).all():
        if scale:
            fit = f", and the model was fitted to {scale}"
        else:
            fit = ""
        raise InputError(
            f"y runs from {numbers.min():.6g} to {numbers.max():.6g}, and the intervals from "
            f"{low:.6g} to {high:.6g}{fit}. Expected targets in the units of the intervals, such "
            "as both in prices or both in logarithms."
        )
    return targets, note


def _agreement(targets: FloatArray, lines: dict[str, FloatArray]) -> tuple[float, float]:
    """Return the share of targets inside their intervals, and a measure of agreement.

    The measure is minus the median distance from the predictions.
    """
    is_inside = (lines["lower"] <= targets) & (targets <= lines["upper"])
    distance = float(np.median(np.abs(targets - lines["prediction"])))
    if not np.isfinite(distance):
        distance = np.inf
    return float(is_inside.mean()), -distance


def _groups_by_scale(scale: FloatArray) -> tuple[IntArray, list[str]]:
    """Return the number of each row's group by its local scale, and the ranges of the groups.

    The groups have equal size.
    """
    n_groups = int(np.clip(len(scale) // FEWEST, 1, BINS))
    codes = np.empty(len(scale), dtype=np.intp)
    names = []
    for i, rows in enumerate(np.array_split(np.argsort(scale, kind="stable"), n_groups)):
        codes[rows] = i
        names.append(f"{canvas.number(scale[rows[0]])} to {canvas.number(scale[rows[-1]])}")
    return codes, names


def _lines(frame: Any, output: object, columns: tuple[str, ...]) -> dict[str, FloatArray]:
    """Return columns of a table of intervals, for one output."""
    lines, _ = one_output(frame, output, columns, "predictive.interval(X)")
    return {name: numbers_in(lines, name) for name in columns}

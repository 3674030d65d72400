"""The timeline: contributions to one prediction, or to forecasts, added up along the dates of the training rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.forecasts import Forecast
from axil.plots import canvas, marks
from axil.plots.sources import Prediction, along, one_prediction, query_position
from axil.plots.step_plots import as_reference, level, reference_of, running
from axil.scale import IDENTITY, TargetScale

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


@dataclass(frozen=True, eq=False)
class Line:
    """Levels that lead from a start to the prediction."""

    start: float
    times: NDArray[Any]  #: (m,) the dates of training rows, each once, in their order
    levels: FloatArray  #: (m,) after the rows of each date
    undated: int  #: how many rows have no date; they are in the first level


def timeline(
    source: Any,
    dates: Any = None,
    *,
    query: Any = 0,
    output: Any = None,
    reference: float | str = "mean",
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Contributions to one prediction, added up along the dates of the training rows: which times made the forecast?

    ``source``: an explanation. ``dates`` (n_train,): dates, periods or numbers, as an array or a column of any frame library.
    Contributions are ``w_j (y_j - reference)``; the curve starts at ``intercept + reference * sum w``, where all targets are at
    the reference, and ends at the prediction, which is marked. It rises where the targets of that time pull the prediction up.
    ``reference``: on the scale of the fit; by default the mean target, and 0 for plain contributions. Pushes, which count from no
    reference, start at the base of the scores. Rows without a date come before all others and are counted. ``name``: of the
    axis, if the column has none.

    Of an `axil.forecast` there is a curve for each horizon, which ends at its forecast; the dates are the forecast's own, and
    ``query`` is one of its series, by name or position.

    Of a model fitted to logarithms the levels are in the targets' own units. Of other transformed targets they are on the scale
    of the fit, which the label names.
    """
    if isinstance(source, Forecast):
        explanation, ones, dates = _horizons(source, query, dates)
    elif isinstance(source, Explanation):
        explanation, ones = source, [one_prediction(source, query, output, None, True)]
    else:
        raise InputError(
            f"source is {shown(source)}; expected an axil.Explanation: explainer(X), or what axil.forecast returned."
        )
    one = ones[0]
    at = reference_of(explanation, one, as_reference(reference))
    x = along(dates, len(one.weights), "dates")
    if x is None:
        raise InputError(
            "dates are text; expected dates or numbers. Parse them first: pandas.to_datetime(dates)."
        )
    lines = [_added_up(own, x, at or 0.0) for own in ones]
    ax = canvas.new_axes(ax)
    if isinstance(source, Forecast):
        _draw_horizons(ax, ones, lines)
    else:
        _draw(ax, one, lines[0], at)
    below = str(name or getattr(dates, "name", None) or "date")
    if lines[0].undated:
        below += f" ({lines[0].undated:,} rows without one come first)"
    title = f"{canvas.head(one)}Contributions of {len(x):,} training rows, added up along time"
    title += "" if one.exact else "\nderivative × target: not a decomposition"
    canvas.dress(ax, title, below, running(one, at))
    if x.dtype.kind == "M":
        canvas.date_ticks(ax)
    else:
        canvas.few_ticks(ax)
    return ax


def _horizons(
    source: Forecast, series: Any, dates: Any
) -> tuple[Explanation, list[Prediction], NDArray[Any]]:
    """The forecasts of one series, horizon after horizon, each with what no target makes in its intercept."""
    if dates is not None:
        raise InputError("A forecast has the dates of its training rows; leave dates out.")
    h, names, explanation = len(source.values), source.series[0], source.explain()
    k = query_position(series, names)
    scale = TargetScale("log", np.exp, base=np.e) if source.is_log else IDENTITY
    ones = []
    for t in range(h):
        one = one_prediction(explanation, k * h + t, None, None, True)
        intercept = float(one.intercept or 0.0) + float(source.base[t, k])
        ones.append(
            replace(
                one,
                intercept=intercept,
                value=None,
                scale=scale,
                name=f"{names[k]}, 1 to {h} ahead",
            )
        )
    return explanation, ones, source.row_dates


def _added_up(one: Prediction, x: NDArray[Any], reference: float) -> Line:
    """The contributions summed by date, then added up in the order of dates."""
    known = ~(np.isnat(x) if x.dtype.kind == "M" else np.isnan(x))
    if not known.any():
        raise InputError(
            "No training row has a date; expected dates or numbers, of which some may be missing."
        )
    parts = np.asarray(one.contributions) - one.weights * reference
    times, codes = np.unique(x[known], return_inverse=True)
    sums = np.bincount(codes, parts[known], len(times))
    start = float(one.intercept or 0.0) + reference * float(one.weights.sum())
    return Line(start, times, start + parts[~known].sum() + np.cumsum(sums), int((~known).sum()))


def _draw(ax: Axes, one: Prediction, line: Line, reference: float | None) -> None:
    """The levels in steps between two marks: where they start, and the prediction, where they end."""
    first = (
        f"all targets at {level(reference, one.scale)}"
        if reference
        else "base"
        if one.additive
        else "intercept"
    )
    end = float(line.levels[-1])
    times, levels = np.append(line.times[:1], line.times), np.append(line.start, line.levels)
    levels = one.scale.inverse(levels) if one.scale.is_log else levels
    ax.axhline(levels[0], color=canvas.GREY, linestyle=":", linewidth=1.2, label=first)
    ax.axhline(
        levels[-1],
        color=canvas.GREY,
        linestyle="--",
        linewidth=1.2,
        label=f"prediction {level(end, one.scale)}",
    )
    ax.plot(times, levels, color=canvas.colours(ax).positive, linewidth=1.6, drawstyle="steps-post")
    ax.plot(times[-1:], levels[-1:], "o", color=canvas.colours(ax).positive, markersize=5)
    marks.key(ax)


def _draw_horizons(ax: Axes, ones: list[Prediction], lines: list[Line]) -> None:
    """A curve for each horizon, the nearest faintest, and a mark at its end, the forecast."""
    colour, named = canvas.colours(ax).positive, {0, len(lines) // 2, len(lines) - 1}
    for t, (one, line) in enumerate(zip(ones, lines)):
        end = float(line.levels[-1])
        levels = np.append(line.start, line.levels)
        levels = one.scale.inverse(levels) if one.scale.is_log else levels
        look: dict[str, Any] = {"color": colour, "alpha": 0.3 + 0.7 * (t + 1) / len(lines)}
        label = f"{t + 1} ahead: {level(end, one.scale)}" if t in named else None
        ax.plot(
            np.append(line.times[:1], line.times),
            levels,
            linewidth=1.3,
            drawstyle="steps-post",
            label=label,
            **look,
        )
        ax.plot(line.times[-1:], levels[-1:], "o", markersize=4, **look)
    marks.key(ax)

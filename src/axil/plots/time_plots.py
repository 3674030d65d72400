"""Plot the timeline: contributions added up along the dates of the training rows.

They are contributions to one prediction, or to forecasts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.forecasts import Forecast
from axil.inputs.codes import missing
from axil.plots import canvas, marks
from axil.plots.sources import Prediction, along, one_prediction, query_position
from axil.plots.step_plots import as_reference, level, reference_of, running
from axil.scale import IDENTITY, TargetScale

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


@dataclass(frozen=True, eq=False)
class Line:
    """The levels from a start to the prediction."""

    start: float
    times: AnyArray  #: (m,) the distinct dates of training rows, in ascending order
    levels: FloatArray  #: (m,) after the rows of each date
    n_undated: int  #: rows without a date, which are in the first level


def timeline(
    source: Any,
    dates: Any = None,
    *,
    query: object = 0,
    output: object = None,
    reference: Literal["mean"] | float = "mean",
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot contributions to one prediction, added up along the dates of the training rows.

    ``source`` is an explanation. ``dates`` (n_train,) are dates, periods or numbers: an array or a
    column of any frame library. Contributions are ``w_j (y_j - reference)``. The curve starts at
    ``intercept + reference * sum w``, where all targets are at the reference, and ends at the
    prediction, which is marked. It rises where the targets of that time raise the prediction.
    ``reference`` is on the scale of the fit. The default is the mean target, and 0 gives plain
    contributions. For additive models contributions count from no reference, and the curve starts
    at the initial score. Rows without a date come before all others and are counted. ``name`` is
    that of the axis, if the column has none.

    For an `axil.forecast` there is a curve for each horizon, which ends at its forecast. The dates
    are the forecast's own, and ``query`` is one of its series, by name or position.

    For a model fitted to logarithms the levels are in the targets' own units. For other transformed
    targets they are on the scale of the fit, which the label names.
    """
    if isinstance(source, Forecast):
        explanation, predictions, dates = _horizons(source, query, dates)
    elif isinstance(source, Explanation):
        explanation = source
        predictions = [one_prediction(source, query, output, None, True)]
    else:
        raise InputError(
            f"source is {shown(source)}; expected an axil.Explanation: explainer(X), or what "
            "axil.forecast returned."
        )
    first = predictions[0]
    level_of_targets = reference_of(explanation, first, as_reference(reference))
    x = along(dates, len(first.weights), "dates")
    if x is None:
        raise InputError(
            "dates are text; expected dates or numbers. Parse them first: "
            "pandas.to_datetime(dates)."
        )
    lines = [_line(prediction, x, level_of_targets or 0.0) for prediction in predictions]
    ax = canvas.new_axes(ax)
    if isinstance(source, Forecast):
        _draw_horizons(ax, predictions, lines)
    else:
        _draw_line(ax, first, lines[0], level_of_targets)
    below = str(name or getattr(dates, "name", None) or "date")
    if lines[0].n_undated:
        below += f" ({lines[0].n_undated:,} rows without one come first)"
    title = f"{canvas.head(first)}Contributions of {len(x):,} training rows, added up along time"
    if not first.exact:
        title += "\nderivative × target: not a decomposition"
    canvas.dress(ax, title, below, running(first, level_of_targets))
    if x.dtype.kind == "M":
        canvas.date_ticks(ax)
    else:
        canvas.few_ticks(ax)
    return ax


def _horizons(
    forecast: Forecast, series: Any, dates: Any
) -> tuple[Explanation, list[Prediction], AnyArray]:
    """Return the forecasts of one series by horizon.

    Their intercept is the part that does not depend on targets. The other two results are the
    explanation of all forecasts, and the dates of the training rows.
    """
    if dates is not None:
        raise InputError("A forecast has the dates of its training rows; leave dates out.")
    n_horizons = len(forecast.values)
    names = forecast.series[0]
    explanation = forecast.explain()
    k = query_position(series, names)
    if forecast.is_log:
        scale = TargetScale("log", np.exp, base=np.e)
    else:
        scale = IDENTITY
    predictions = []
    for t in range(n_horizons):
        prediction = one_prediction(explanation, k * n_horizons + t, None, None, True)
        intercept = float(prediction.intercept or 0.0) + float(forecast.base[t, k])
        name = f"{names[k]}, 1 to {n_horizons} ahead"
        predictions.append(
            replace(prediction, intercept=intercept, value=None, scale=scale, name=name)
        )
    return explanation, predictions, forecast.row_dates


def _line(prediction: Prediction, x: AnyArray, reference: float) -> Line:
    """Sum the contributions by date, and accumulate them in the order of dates."""
    is_known = ~missing(x)
    if not is_known.any():
        raise InputError(
            "No training row has a date; expected dates or numbers, of which some may be missing."
        )
    contributions = np.asarray(prediction.contributions) - prediction.weights * reference
    times, codes = np.unique(x[is_known], return_inverse=True)
    sums = np.bincount(codes, contributions[is_known], len(times))
    start = float(prediction.intercept or 0.0) + reference * float(prediction.weights.sum())
    levels = start + contributions[~is_known].sum() + np.cumsum(sums)
    return Line(start, times, levels, int((~is_known).sum()))


def _curve(prediction: Prediction, line: Line) -> tuple[AnyArray, FloatArray]:
    """Return the dates and levels of a line from its start on.

    For logarithms the levels are in the targets' own units.
    """
    levels = np.append(line.start, line.levels)
    if prediction.scale.is_log:
        levels = prediction.scale.inverse(levels)
    return np.append(line.times[:1], line.times), levels


def _draw_line(ax: Axes, prediction: Prediction, line: Line, reference: float | None) -> None:
    """Plot the levels in steps between two marks: the start and the prediction."""
    if prediction.additive:
        start_name = "base"
    else:
        start_name = "intercept"
    if reference:
        start_name = f"all targets at {level(reference, prediction.scale)}"
    end_name = f"prediction {level(float(line.levels[-1]), prediction.scale)}"
    times, levels = _curve(prediction, line)
    colour = canvas.colours(ax).positive
    ax.axhline(levels[0], color=canvas.GREY, linestyle=":", linewidth=1.2, label=start_name)
    ax.axhline(levels[-1], color=canvas.GREY, linestyle="--", linewidth=1.2, label=end_name)
    ax.plot(times, levels, color=colour, linewidth=1.6, drawstyle="steps-post")
    ax.plot(times[-1:], levels[-1:], "o", color=colour, markersize=5)
    marks.key(ax)


def _draw_horizons(ax: Axes, predictions: list[Prediction], lines: list[Line]) -> None:
    """Plot a curve for each horizon, the nearest faintest, with a mark at its forecast."""
    n = len(lines)
    colour = canvas.colours(ax).positive
    for t, (prediction, line) in enumerate(zip(predictions, lines)):
        times, levels = _curve(prediction, line)
        alpha = 0.3 + 0.7 * (t + 1) / n
        label = None
        if t in (0, n // 2, n - 1):
            label = f"{t + 1} ahead: {level(float(line.levels[-1]), prediction.scale)}"
        ax.plot(
            times,
            levels,
            linewidth=1.3,
            drawstyle="steps-post",
            label=label,
            color=colour,
            alpha=alpha,
        )
        ax.plot(times[-1:], levels[-1:], "o", markersize=4, color=colour, alpha=alpha)
    marks.key(ax)

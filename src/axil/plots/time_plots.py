"""The timeline: contributions to one prediction, added up along the dates of the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.plots import canvas, marks
from axil.plots.sources import Prediction, along, one_prediction
from axil.plots.step_plots import as_reference, level, reference_of, running
from axil.types import Array

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


@dataclass(frozen=True, eq=False)
class Line:
    """Levels that lead from a start to the prediction."""

    start: float
    times: NDArray[Any]  #: (m,) the dates of training rows, each once, in their order
    levels: Array  #: (m,) after the rows of each date
    undated: int  #: how many rows have no date; they are in the first level


def timeline(
    source: Any,
    dates: Any,
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

    Of a model fitted to logarithms the levels are in the targets' own units. Of other transformed targets they are on the scale
    of the fit, which the label names.
    """
    if not isinstance(source, Explanation):
        raise InputError(f"source is {shown(source)}; expected an axil.Explanation: explainer(X).")
    one = one_prediction(source, query, output, None, True)
    at = reference_of(source, one, as_reference(reference))
    x = along(dates, len(one.weights), "dates")
    if x is None:
        raise InputError("dates are text; expected dates or numbers. Parse them first: pandas.to_datetime(dates).")
    line = _added_up(one, x, at or 0.0)
    ax = canvas.new_axes(ax)
    _draw(ax, one, line, at)
    below = str(name or getattr(dates, "name", None) or "date")
    if line.undated:
        below += f" ({line.undated:,} rows without one come first)"
    title = f"{canvas.head(one)}Contributions of {len(x):,} training rows, added up along time"
    title += "" if one.exact else "\nderivative × target: not a decomposition"
    canvas.dress(ax, title, below, running(one, at))
    if x.dtype.kind == "M":
        canvas.date_ticks(ax)
    else:
        canvas.few_ticks(ax)
    return ax


def _added_up(one: Prediction, x: NDArray[Any], reference: float) -> Line:
    """The contributions summed by date, then added up in the order of dates."""
    known = ~(np.isnat(x) if x.dtype.kind == "M" else np.isnan(x))
    if not known.any():
        raise InputError("No training row has a date; expected dates or numbers, of which some may be missing.")
    parts = np.asarray(one.contributions) - one.weights * reference
    times, codes = np.unique(x[known], return_inverse=True)
    sums = np.bincount(codes, parts[known], len(times))
    start = float(one.intercept or 0.0) + reference * float(one.weights.sum())
    return Line(start, times, start + parts[~known].sum() + np.cumsum(sums), int((~known).sum()))


def _draw(ax: Axes, one: Prediction, line: Line, reference: float | None) -> None:
    """The levels in steps between two marks: where they start, and the prediction, where they end."""
    first = f"all targets at {level(reference, one.scale)}" if reference else "base" if one.additive else "intercept"
    end = float(line.levels[-1])
    times, levels = np.append(line.times[:1], line.times), np.append(line.start, line.levels)
    levels = one.scale.inverse(levels) if one.scale.is_log else levels
    ax.axhline(levels[0], color=canvas.GREY, linestyle=":", linewidth=1.2, label=first)
    ax.axhline(
        levels[-1], color=canvas.GREY, linestyle="--", linewidth=1.2, label=f"prediction {level(end, one.scale)}"
    )
    ax.plot(times, levels, color=canvas.colours(ax).positive, linewidth=1.6, drawstyle="steps-post")
    ax.plot(times[-1:], levels[-1:], "o", color=canvas.colours(ax).positive, markersize=5)
    marks.key(ax)

"""Plot the waterfall: one prediction step by step, from the intercept to its value.

The steps are contributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from axil.arrays import FloatArray
from axil.comparison import Comparison
from axil.errors import InputError
from axil.explanation import Explanation
from axil.inputs import as_count, as_frame, as_list, as_number
from axil.plots import canvas, marks
from axil.plots.sources import (
    Prediction,
    largest,
    one_prediction,
    one_row,
    output_position,
    query_position,
    row_labels,
    text,
)
from axil.scale import TargetScale

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

WIDE = 20.0  # ticks are at powers of ten if the highest price is this many times the lowest


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps from a start to the prediction."""

    start: float
    first: str  #: the name of the start
    names: list[Any]
    values: FloatArray  #: (len(names),)
    has_rest: bool  #: whether the last step stands for all other rows
    last: str = "prediction"  #: the name of the end


def waterfall(
    source: Any,
    k: int = 10,
    *,
    query: object = 0,
    output: object = None,
    labels: Any = None,
    intercept: float | None = None,
    prediction: float | None = None,
    reference: Literal["mean"] | float = "mean",
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot one prediction step by step, from a start to its value.

    The steps are the k largest contributions and all others.

    Each step is ``w_j (y_j - reference)``. The start is ``intercept + reference * sum w``, which
    the model would predict if all targets were at the reference. The sum is the prediction for
    every reference. The mean target shows best which rows raise the prediction and which rows lower
    it.

    For a model fitted to logarithms the steps are factors, and the levels are in the targets' own
    units on a logarithmic axis. For other transformed targets all numbers are on the scale of the
    fit, which the labels name. ``intercept``, ``prediction`` and ``reference`` are always on that
    scale, as ``explanation.targets.mean()`` is.

    Parameters
    ----------
    source : Explanation, Comparison, frame or array of shape (n_train,)
        An explanation; what `axil.compare` returned, whose steps are the parts of a change, from
        the old model to the new one; a frame of `top`, with the ``prediction`` and, if it is known,
        the ``intercept``; or contributions, with the ``intercept`` if there is one.
    k : int, default 10
        How many training rows have a step of their own.
    query : int or label, default 0
        The prediction, by its position or by its label. A whole number that is a position is one;
        any other is a label.
    output : optional
        The name of one of several outputs; by default the class that is predicted.
    labels : sequence of length n_train, optional
        Names to show instead of the row labels.
    intercept, prediction : float, optional
        For frames and arrays, which do not hold them.
    reference : "mean" or float, default "mean"
        The level that targets count from: their mean, or a number; 0 for plain contributions, from
        the intercept. Frames and arrays, which do not hold the weights of all rows, and
        contributions, which are not multiples of targets, count from none.
    exact : bool, default True
        False if a frame or an array holds derivatives.
    ax : matplotlib axes, optional
        Where to draw; a new figure of pyplot's by default.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from axil import Explainer, plots
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0).fit(X[:300], y[:300])
    >>> ax = plots.waterfall(Explainer(forest, X[:300], y[:300])(X[300:310]), query=2)
    >>> ax.get_xlabel()
    'running sum of weight × (target − 149)'
    """
    k = as_count(k, "k")
    if isinstance(source, Comparison):
        return _draw_change(source, query, output, ax)
    if intercept is not None:
        intercept = as_number(intercept, "intercept")
    if prediction is not None:
        prediction = as_number(prediction, "prediction")
    requested = as_reference(reference)
    _check_numbers(source, intercept, prediction, requested)
    if isinstance(source, Explanation) or as_frame(source) is not None:
        explained = one_prediction(source, query, output, labels, exact)
        if explained.targets is None:
            raise InputError(
                "The frame has no column 'target'; expected one made by top or similar."
            )
        level_of_targets = reference_of(source, explained, requested)
        offset = level_of_targets or 0.0
        contributions = np.asarray(explained.contributions) - explained.weights * offset
    else:
        contributions = one_row(source, query, "contributions")
        level_of_targets = None
        names = row_labels(labels, len(contributions))
        explained = Prediction(contributions, names, exact=exact)
    if explained.intercept is not None:
        intercept = explained.intercept
    steps = _steps(explained, contributions, k, intercept, prediction, level_of_targets)
    ax = marks.bar_axes(ax, [steps.first, *steps.names, "prediction"])
    _draw_steps(ax, steps, explained.scale)
    n_shown = min(k, len(contributions))
    title = f"{canvas.head(explained)}{n_shown} largest contributions"
    if explained.complete:
        title += f" of {len(contributions):,}"
    if not explained.exact:
        title += "\nderivative × target: not a decomposition"
    return canvas.dress(ax, title, running(explained, level_of_targets), "training row", grid="x")


def _draw_change(source: Comparison, query: object, output: object, ax: Axes | None) -> Axes:
    """Plot the parts of the change of one prediction, from the old model to the new one."""
    i = query_position(query, source.query_index)
    k = output_position(output, source.outputs)
    parts = {}
    for name, values in source.parts.items():
        if name != "base" or values.any():
            parts[name] = float(values[i, k])
    steps = Steps(
        start=float(source.before[i, k]),
        first="old model",
        names=list(parts),
        values=np.array(list(parts.values())),
        has_rest=False,
        last="new model",
    )
    ax = marks.bar_axes(ax, [steps.first, *steps.names, steps.last])
    _draw_steps(ax, steps, source.scale)
    name = f"Query {text(source.query_index[i])}"
    if source.outputs is not None:
        name += f", output {text(source.outputs[k])}"
    title = f"{canvas.shorten(name, canvas.TITLE)}\nFrom the old model to the new one"
    below = "running sum of the parts of the change"
    if source.scale.is_log:
        below = "running product"
    return canvas.dress(ax, title, below, "", grid="x")


def reference_of(source: Any, prediction: Prediction, requested: float | None) -> float | None:
    """Return the level that targets count from, on the scale of the fit; None for zero.

    The default for an explanation is the mean target.
    """
    if prediction.additive and requested is not None:
        raise InputError(
            "Contributions of an additive model are not multiples of the targets, so they count "
            "from no reference; leave it out."
        )
    if requested is not None:
        return requested or None
    if prediction.additive or not isinstance(source, Explanation):
        return None
    targets = source.targets.reshape(len(source.targets), -1)[:, prediction.output]
    return float(targets.mean()) or None


def as_reference(value: object) -> float | None:
    """Check a reference, and return it; None stands for "mean"."""
    if isinstance(value, str) and value == "mean":
        return None
    return as_number(value, "reference")


def running(prediction: Prediction, reference: float | None) -> str:
    """Return the axis name of cumulative contributions: a sum, or for logarithms a product."""
    if prediction.scale.is_log:
        shift = prediction.scale.shift
        if shift:
            factor = f"{shift:g} + target"
        else:
            factor = "target"
        if reference is not None:
            factor += f" / {level(reference, prediction.scale)}"
        if " " in factor:
            factor = f"({factor})"
        return f"running product of {factor} ^ {prediction.quantity}"
    if prediction.additive:
        return "running sum of contributions to the score"
    target = prediction.scale.label("target")
    if reference is not None:
        target = f"({target} − {canvas.number(reference)})"
    return f"running sum of {prediction.quantity} × {target}"


def level(value: float, scale: TargetScale) -> str:
    """Return a level of the running sum as text, for logarithms in the targets' own units."""
    if scale.is_log:
        value = float(scale.inverse(np.array([value]))[0])
    return canvas.number(value)


def _check_numbers(
    source: Any, intercept: float | None, prediction: float | None, reference: float | None
) -> None:
    """Raise for numbers that the source already has, and for a missing one."""
    if isinstance(source, Explanation):
        if intercept is not None or prediction is not None:
            raise InputError(
                "An explanation has its own intercept and prediction; leave out intercept and "
                "prediction."
            )
        return
    if reference is not None:
        raise InputError(
            "reference needs the weights of all rows; pass an axil.Explanation, or leave it out."
        )
    is_frame = as_frame(source) is not None
    if not is_frame and prediction is not None:
        raise InputError(
            "Contributions of all rows and the intercept add up to the prediction; leave out "
            "prediction."
        )
    if is_frame and prediction is None:
        raise InputError(
            "A frame of the largest rows does not say what all others add; pass prediction= as "
            "well."
        )


def _steps(
    explained: Prediction,
    contributions: FloatArray,
    k: int,
    intercept: float | None,
    prediction: float | None,
    reference: float | None,
) -> Steps:
    """Return the k largest contributions and one step for all others."""
    start = intercept or 0.0
    has_unknown_intercept = intercept is None and not explained.complete
    if has_unknown_intercept:
        first = "start"
    else:
        first = "intercept"
    if reference is not None:
        start += float(reference * explained.weights.sum())
        first = f"all targets at {level(reference, explained.scale)}"
    chosen = largest(contributions, k)
    names = as_list(explained.labels[chosen])
    values = contributions[chosen]
    n_others = len(contributions) - len(chosen)
    if explained.complete and not n_others:
        return Steps(start, first, names, values, has_rest=False)
    if prediction is None:
        end = start + float(contributions.sum())
    else:
        end = float(prediction)
    rest_name = "all other rows"
    if explained.complete:
        rest_name = f"{n_others:,} other row{'s' * (n_others > 1)}"
    if first == "start":  # the unknown intercept is part of the rest
        rest_name += ", intercept"
    rest = end - start - values.sum()
    return Steps(start, first, [*names, rest_name], np.append(values, rest), has_rest=True)


def _draw_steps(ax: Axes, steps: Steps, scale: TargetScale) -> None:
    """Plot bars, each from the end of the one before, between marks of the first and last value."""
    n = len(steps.values)
    values = np.concatenate([[0.0], steps.values, [0.0]])
    ends = steps.start + np.cumsum(values)
    last = steps.last
    if scale.is_log:
        texts = [f"× {factor:.4g}" for factor in scale.factors(values)]
    else:
        texts = canvas.numbers(values)
        last = scale.label(last)
    texts[0] = f"\u2002{level(ends[0], scale)}"  # a space for the mark
    texts[-1] = f"\u2002{level(ends[-1], scale)}"
    if steps.has_rest:
        rest = n
    else:
        rest = None
    marks.sign_bars(ax, [steps.first, *steps.names, last], values, ends - values, rest, texts)
    ax.plot(ends[[0, n + 1]], [0, n + 1], "D", color=canvas.colours(ax).ink, markersize=5)
    tops = np.arange(n + 1)
    ax.vlines(ends[:-1], tops, tops + 1, color=canvas.GREY, linewidth=0.6, zorder=0.5)
    canvas.few_ticks(ax)
    if scale.is_log:
        _set_price_ticks(ax, scale)


def _set_price_ticks(ax: Axes, scale: TargetScale) -> None:
    """Set ticks at round numbers in the targets' own units along an axis of logarithms.

    They are at powers of ten if the axis spans a wide range.
    """
    assert scale.base is not None
    low, high = scale.factors(np.array(ax.get_xlim()))  # in the targets' own units, with the shift
    is_wide = high > WIDE * low
    if not 0 < low < high < np.inf or (is_wide and scale.shift):
        ax.xaxis.set_major_formatter(lambda x, _: level(x, scale))
        return
    most = canvas.most_ticks(ax)
    ticks = canvas.round_numbers(low - scale.shift, high - scale.shift, most, powers=is_wide)
    ticks = ticks[(ticks + scale.shift >= low) & (ticks + scale.shift <= high)]
    if is_wide:
        texts = [canvas.number(tick) for tick in ticks]
    else:
        texts = [canvas.tick(tick, ticks) for tick in ticks]
    ax.set_xticks(np.log(ticks + scale.shift) / np.log(scale.base), texts)

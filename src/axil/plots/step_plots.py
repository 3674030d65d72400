"""The waterfall: one prediction step by step, from the intercept over contributions to its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

WIDE = (
    20.0  # times the lowest price that the highest one is, from where on ticks are at powers of ten
)


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps that lead from a start to the prediction."""

    start: float
    first: str  #: what the start is called
    names: list[Any]
    values: FloatArray  #: as many as names
    rest: bool  #: whether the last step stands for all other rows
    last: str = "prediction"  #: what the end is called


def waterfall(
    source: Any,
    k: int = 10,
    *,
    query: Any = 0,
    output: Any = None,
    labels: Any = None,
    intercept: float | None = None,
    prediction: float | None = None,
    reference: float | str = "mean",
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One prediction step by step: from a start over the k largest contributions and all others to its value.

    Each step is ``w_j (y_j - reference)``, and the start is ``intercept + reference * sum w``, what the model would predict if
    all targets were at the reference. The sum is the prediction whatever the reference; the mean target shows best what pulls
    up and what down.

    Of a model fitted to logarithms the steps are factors, and the levels are in the targets' own units on a logarithmic axis.
    Of other transformed targets all numbers are on the scale of the fit, which the labels name. ``intercept``, ``prediction``
    and ``reference`` are always on that scale, as ``explanation.targets.mean()`` is.

    Parameters
    ----------
    source : Explanation, Comparison, frame or array of shape (n_train,)
        An explanation; what `axil.compare` returned, whose steps are the parts of a change, from the old model to the new one; a
        frame of `top`, with the ``prediction`` and, if it is known, the ``intercept``; or contributions, with
        the ``intercept`` if there is one.
    k : int, default 10
        How many training rows have a step of their own.
    query : int or label, default 0
        The prediction, by its position or by its label. A whole number that is a position is one; any other is a label.
    output : optional
        The name of one of several outputs; by default the class that is predicted.
    labels : sequence of length n_train, optional
        Names to show instead of the row labels.
    intercept, prediction : float, optional
        For frames and arrays, which do not hold them.
    reference : "mean" or float, default "mean"
        The level that targets count from: their mean, or a number; 0 for plain contributions, from the intercept. Frames and
        arrays, which do not hold the weights of all rows, and pushes, which are not multiples of targets, count from none.
    exact : bool, default True
        False where a frame or an array holds derivatives.
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
        return _changes(source, query, output, ax)
    given = ("intercept", intercept), ("prediction", prediction)
    intercept, prediction = (
        None if value is None else as_number(value, name) for name, value in given
    )
    asked = as_reference(reference)
    _check(source, intercept, prediction, asked)
    if isinstance(source, Explanation) or as_frame(source) is not None:
        one = one_prediction(source, query, output, labels, exact)
        if one.targets is None:
            raise InputError(
                "The frame has no column 'target'; expected one made by top or similar."
            )
        at = reference_of(source, one, asked)
        parts = np.asarray(one.contributions) - one.weights * (at or 0.0)
    else:
        parts, at = one_row(source, query, "contributions"), None
        one = Prediction(parts, row_labels(labels, len(parts)), exact=exact)
    start = intercept if one.intercept is None else one.intercept
    shift = None if at is None else (at, float(at * one.weights.sum()))
    steps = _steps(one, parts, k, start, prediction, shift)
    ax = marks.bar_axes(ax, [steps.first, *steps.names, "prediction"])
    _draw(ax, steps, one.scale)
    shown = min(k, len(parts))
    title = f"{canvas.head(one)}{shown} largest contributions" + (
        f" of {len(parts):,}" if one.complete else ""
    )
    title += "" if one.exact else "\nderivative × target: not a decomposition"
    return canvas.dress(ax, title, running(one, at), "training row", grid="x")


def _changes(source: Comparison, query: Any, output: Any, ax: Axes | None) -> Axes:
    """The parts of the change of one prediction, from the old model to the new one."""
    i, k = query_position(query, source.query_index), output_position(output, source.outputs)
    parts = {
        name: float(own[i, k]) for name, own in source.parts.items() if name != "base" or own.any()
    }
    steps = Steps(
        float(source.before[i, k]),
        "old model",
        list(parts),
        np.array([*parts.values()]),
        False,
        "new model",
    )
    ax = marks.bar_axes(ax, [steps.first, *steps.names, steps.last])
    _draw(ax, steps, source.scale)
    named = f"Query {text(source.query_index[i])}" + (
        f", output {text(source.outputs[k])}" if source.outputs is not None else ""
    )
    below = "running product" if source.scale.is_log else "running sum of the parts of the change"
    return canvas.dress(
        ax,
        f"{canvas.shorten(named, canvas.TITLE)}\nFrom the old model to the new one",
        below,
        "",
        grid="x",
    )


def reference_of(source: Any, one: Prediction, asked: float | None) -> float | None:
    """The level that targets count from, on the scale of the fit; None for none. By default the mean, which explanations know."""
    if one.additive and asked is not None:
        raise InputError(
            "Pushes are not multiples of the targets, so they count from no reference; leave it out."
        )
    if asked is not None:
        return asked or None
    if one.additive or not isinstance(source, Explanation):
        return None
    return float(source.targets.reshape(len(source.targets), -1)[:, one.output].mean()) or None


def as_reference(value: Any) -> float | None:
    """A number; None for "mean"."""
    return None if isinstance(value, str) and value == "mean" else as_number(value, "reference")


def running(one: Prediction, reference: float | None) -> str:
    """The name of an axis of contributions added up: a sum, or for logarithms a product."""
    target = one.scale.label("target")
    if one.scale.is_log:
        over = "" if reference is None else f" / {level(reference, one.scale)}"
        target = f"{one.scale.shift:g} + target" if one.scale.shift else "target"
        return f"running product of {f'({target}{over})' if ' ' in target + over else target} ^ {one.quantity}"
    if one.additive:
        return "running sum of contributions to the score"
    return f"running sum of {one.quantity} × " + (
        target if reference is None else f"({target} − {canvas.number(reference)})"
    )


def level(value: float, scale: TargetScale) -> str:
    """A level of the running sum, for logarithms as people read it."""
    return canvas.number(float(scale.inverse(np.array([value]))[0]) if scale.is_log else value)


def _check(
    source: Any, intercept: float | None, prediction: float | None, reference: float | None
) -> None:
    if isinstance(source, Explanation):
        if intercept is not None or prediction is not None:
            raise InputError(
                "An explanation has its own intercept and prediction; leave out intercept and prediction."
            )
        return
    if reference is not None:
        raise InputError(
            "reference needs the weights of all rows; pass an axil.Explanation, or leave it out."
        )
    if as_frame(source) is None and prediction is not None:
        raise InputError(
            "Contributions of all rows and the intercept add up to the prediction; leave out prediction."
        )
    if as_frame(source) is not None and prediction is None:
        raise InputError(
            "A frame of the largest rows does not say what all others add; pass prediction= as well."
        )


def _steps(
    one: Prediction,
    parts: FloatArray,
    k: int,
    intercept: float | None,
    prediction: float | None,
    shift: tuple[float, float] | None,
) -> Steps:
    """The k largest parts and the rest; ``shift`` is the reference and what the start moves by."""
    start, first = (intercept or 0.0), "intercept"
    if intercept is None and not one.complete:
        first = "start"
    if shift is not None:
        start, first = start + shift[1], f"all targets at {level(shift[0], one.scale)}"
    chosen = largest(parts, k)
    names = as_list(one.labels[chosen])
    values = parts[chosen]
    left = len(parts) - len(chosen)
    if one.complete and not left:
        return Steps(start, first, names, values, rest=False)
    end = start + float(parts.sum()) if prediction is None else float(prediction)
    others = f"{left:,} other row{'s' * (left > 1)}" if one.complete else "all other rows"
    if first == "start":  # nobody said what the intercept is, so it is in the rest
        others += ", intercept"
    return Steps(
        start, first, [*names, others], np.append(values, end - start - values.sum()), rest=True
    )


def _draw(ax: Axes, steps: Steps, scale: TargetScale) -> None:
    """Bars that each begin where the one before ended, between marks for the first and the last value."""
    n = len(steps.values)
    values = np.concatenate([[0.0], steps.values, [0.0]])
    ends = steps.start + np.cumsum(values)
    texts = (
        [f"× {factor:.4g}" for factor in scale.factors(values)]
        if scale.is_log
        else canvas.numbers(values)
    )
    texts[0], texts[-1] = (
        f"\u2002{level(end, scale)}" for end in (ends[0], ends[-1])
    )  # a space for the mark
    rest = n if steps.rest else None
    last = steps.last if scale.is_log else scale.label(steps.last)
    marks.sign_bars(ax, [steps.first, *steps.names, last], values, ends - values, rest, texts)
    ax.plot(ends[[0, n + 1]], [0, n + 1], "D", color=canvas.colours(ax).ink, markersize=5)
    ax.vlines(
        ends[:-1],
        np.arange(n + 1),
        np.arange(1, n + 2),
        color=canvas.GREY,
        linewidth=0.6,
        zorder=0.5,
    )
    canvas.few_ticks(ax)
    if scale.is_log:
        _price_ticks(ax, scale)


def _price_ticks(ax: Axes, scale: TargetScale) -> None:
    """Ticks at round numbers in the targets' own units along an axis of logarithms; at powers of ten where it spans many."""
    assert scale.base is not None
    ends, most = np.array(ax.get_xlim()), canvas.most_ticks(ax)
    low, high = scale.factors(ends)  # in the targets' own units, with the shift
    wide = high > WIDE * low
    if not 0 < low < high < np.inf or (wide and scale.shift):
        ax.xaxis.set_major_formatter(lambda x, _: level(x, scale))
        return
    ticks = canvas.round_numbers(low - scale.shift, high - scale.shift, most, powers=wide)
    ticks = ticks[(ticks + scale.shift >= low) & (ticks + scale.shift <= high)]
    words = [canvas.number(one) if wide else canvas.tick(one, ticks) for one in ticks]
    ax.set_xticks(np.log(ticks + scale.shift) / np.log(scale.base), words)

"""The waterfall: one prediction step by step, from the intercept over contributions to its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.errors import InputError
from axil.explanation import Explanation
from axil.inputs import as_count, as_frame, as_number
from axil.plots import canvas
from axil.plots.sources import Prediction, largest, one_prediction, one_row, row_labels
from axil.scale import TargetScale
from axil.types import Array

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps that lead from a start to the prediction."""

    start: float
    first: str  #: what the start is called
    names: list[Any]
    values: Array  #: as many as names
    rest: bool  #: whether the last step stands for all other rows


def contributions(
    source: Any,
    k: int = 10,
    *,
    query: int = 0,
    output: Any = None,
    labels: Any = None,
    intercept: float | None = None,
    prediction: float | None = None,
    reference: float | None = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """One prediction step by step: from the intercept over the k largest contributions and all others to its value.

    ``source``: an explanation; a frame of `top`, with the ``prediction`` and, if it is known, the ``intercept``; or contributions
    (n_train,), with the ``intercept`` if there is one. ``reference``: count targets from this level, ``w_j (y_j - reference)``,
    and start at ``intercept + reference * sum w``. That is the same sum and shows better what pulls up and what down; the mean
    target is a good choice. It needs the weights of all rows, so an explanation.

    Of a model fitted to logarithms the steps are factors, and the levels are prices on a logarithmic axis. Of other transformed
    targets all numbers are on the scale of the fit, which the labels name. ``intercept``, ``prediction`` and ``reference`` are
    always on that scale, as ``explanation.targets.mean()`` is.
    """
    k = as_count(k, "k")
    given = ("intercept", intercept), ("prediction", prediction), ("reference", reference)
    intercept, prediction, reference = (None if value is None else as_number(value, name) for name, value in given)
    _check(source, intercept, prediction, reference)
    if isinstance(source, Explanation) or as_frame(source) is not None:
        one = one_prediction(source, query, output, labels, exact)
        if one.targets is None:
            raise InputError("The frame has no column 'target'; expected one made by top or similar.")
        if one.additive and reference is not None:
            raise InputError("Pushes are not multiples of the targets, so they count from no reference; leave it out.")
        parts = np.asarray(one.contributions) - one.weights * (reference or 0.0)
    else:
        parts = one_row(source, query, "contributions")
        one = Prediction(parts, row_labels(labels, len(parts)), exact=exact)
    start = intercept if one.intercept is None else one.intercept
    shift = None if reference is None else (reference, float(reference * one.weights.sum()))
    steps = _steps(one, parts, k, start, prediction, shift)
    ax = canvas.new_axes(ax, canvas.bars_height(len(steps.names) + 2))
    _draw(ax, steps, one.scale)
    shown = min(k, len(parts))
    title = f"{canvas.head(one)}{shown} largest contributions" + (f" of {len(parts):,}" if one.complete else "")
    title += "" if one.exact else "\nderivative × target: not a decomposition"
    return canvas.dress(ax, title, canvas.fixed(running(one, reference)), "training row", grid="x")


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


def _check(source: Any, intercept: float | None, prediction: float | None, reference: float | None) -> None:
    if isinstance(source, Explanation):
        if intercept is not None or prediction is not None:
            raise InputError("An explanation has its own intercept and prediction; leave out intercept and prediction.")
        return
    if reference is not None:
        raise InputError("reference needs the weights of all rows; pass an axil.Explanation, or leave it out.")
    if as_frame(source) is None and prediction is not None:
        raise InputError("Contributions of all rows and the intercept add up to the prediction; leave out prediction.")
    if as_frame(source) is not None and prediction is None:
        raise InputError("A frame of the largest rows does not say what all others add; pass prediction= as well.")


def _steps(
    one: Prediction,
    parts: Array,
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
    names, values = one.labels[chosen].tolist(), parts[chosen]
    left = len(parts) - len(chosen)
    if one.complete and not left:
        return Steps(start, first, names, values, rest=False)
    end = start + float(parts.sum()) if prediction is None else float(prediction)
    others = f"{left:,} other rows" if one.complete else "all other rows"
    if first == "start":  # nobody said what the intercept is, so it is in the rest
        others += ", intercept"
    return Steps(start, first, [*names, others], np.append(values, end - start - values.sum()), rest=True)


def _draw(ax: Axes, steps: Steps, scale: TargetScale) -> None:
    """Bars that each begin where the one before ended, between marks for the first and the last value."""
    n = len(steps.values)
    values = np.concatenate([[0.0], steps.values, [0.0]])
    ends = steps.start + np.cumsum(values)
    texts = [f"× {factor:.4g}" for factor in scale.factors(values)] if scale.is_log else canvas.numbers(values)
    texts[0], texts[-1] = (f"\u2002{level(end, scale)}" for end in (ends[0], ends[-1]))  # a space for the mark
    rest = n if steps.rest else None
    last = "prediction" if scale.is_log else scale.label("prediction")
    canvas.sign_bars(ax, [steps.first, *steps.names, last], values, ends - values, rest, texts)
    ax.plot(ends[[0, n + 1]], [0, n + 1], "D", color=canvas.DARK, markersize=5)
    ax.vlines(ends[:-1], np.arange(n + 1), np.arange(1, n + 2), color="0.5", linewidth=0.6, zorder=0.5)
    canvas.few_ticks(ax)
    if scale.is_log:
        ax.xaxis.set_major_formatter(lambda x, _: level(x, scale))

"""TargetScale: targets that were transformed for the fit, and how to get back from them.

An example is a model that was fitted to logarithms of prices. Weights, contributions and the
verification are on the scale of the fit, where predictions are sums. People read the other one:

    prediction = inverse(intercept + sum_j k_j t_j),    t_j = forward(y_j)

For logarithms that is a product, ``e^intercept * prod_j y_j^k_j``, and each row has a factor in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.errors import AxilError, InputError, UnsupportedModelError, shown
from axil.inputs.numbers import as_array

Function = Callable[[FloatArray], Any]

#: Functions that a saved file, or the command line, may name; and what each undoes.
INVERSES: dict[str, Function] = {
    f.__name__: f
    for f in (np.exp, np.expm1, np.exp2, np.square, np.sinh, np.sqrt, np.log, np.log1p)
}
FORWARD: dict[str, Any] = dict(
    zip(INVERSES, (np.log, np.log1p, np.log2, np.sqrt, np.arcsinh, np.square, np.exp, np.expm1))
)
UNNAMED = "transformed"
LOGARITHM_NAMES = {np.e: "log", 2.0: "log2", 10.0: "log10"}  # by their base

# How far a target may be from itself after the transform and its inverse, of the largest |target|
ROUND_TRIP = 1e-6
# Two targets in the wrong order are rounding below this share of the largest |target|.
REVERSAL = 1e-9
# How close to a power an inverse must be to count as one, of the largest |logarithm|
LOGARITHM = 1e-9
N_COMPARED = 1000  # targets at which an inverse is compared with a power


@dataclass(frozen=True, eq=False, repr=False)
class TargetScale:
    """The scale on which a model was fitted; by default that of the targets."""

    name: str = ""  #: such as "log" or "sqrt", for labels; empty for the targets' own scale
    backward: Function | None = None  #: (n, K) from the scale of the fit to that of the targets
    onward: Function | None = None  #: the inverse, where the model transforms targets itself
    base: float | None = None  #: of logarithms; None for any other function
    shift: float = 0.0  #: added to targets before the logarithm is taken, as in log1p

    def __repr__(self) -> str:
        return f"<axil.TargetScale: {self.name or 'as given'}>"

    @property
    def is_identity(self) -> bool:
        """Return whether the model was fitted to the targets without a transform."""
        return not self.name

    @property
    def is_log(self) -> bool:
        """Return whether the model was fitted to logarithms, so that every row has a factor."""
        return self.base is not None

    def inverse(self, values: Any) -> FloatArray:
        """Return targets or predictions in the user's units: prices, not logarithms.

        Parameters
        ----------
        values : array of shape (n,) or (n, K)
            Numbers on the scale of the fit.

        Returns
        -------
        array of the same shape
        """
        name = "inverse_func"
        if self.onward:
            name = f"The inverse of {self.name}"
        return _applied(self.backward, values, name)

    def forward(self, values: Any) -> FloatArray:
        """Return targets as the user gives them on the scale of the fit.

        A model that transforms its targets itself is given them untransformed. Where the user
        transforms them, they are returned as they are.

        Parameters
        ----------
        values : array of shape (n,) or (n, K)
            Targets, given as ``y_train`` was.

        Returns
        -------
        array of the same shape
        """
        return _applied(self.onward, values, f"The model's {self.name} of the targets")

    def checked_forward(self, values: FloatArray, name: str) -> FloatArray:
        """Return `forward` of targets that the user gives; raise if one has no place on the scale.

        Parameters
        ----------
        values : array of shape (n, K)
            Targets, given as ``y_train`` was.
        name : str
            The parameter that they come from, for the message.
        """
        if self.is_identity:
            return values
        transformed = self.forward(values)
        is_bad = ~np.isfinite(transformed) | ~np.isfinite(self.inverse(transformed))
        if is_bad.any():
            raise InputError(
                f"{name} holds {values[is_bad][0]:.6g}, which is no target of this model. "
                f"Pass targets {self.as_given}."
            )
        return transformed

    @property
    def as_given(self) -> str:
        """A description of how users pass targets, for messages."""
        if self.is_identity:
            return "as y_train was given"
        if self.onward:
            return "as y_train was given, not transformed: the model does that itself"
        return f"as y_train was given, transformed ({self.name})"

    def factors(self, contributions: FloatArray) -> FloatArray:
        """Return ``(target + shift) ** weight`` from ``weight * log(target + shift)``."""
        assert self.base is not None
        with np.errstate(over="ignore"):
            return np.asarray(np.power(self.base, contributions))

    def label(self, word: str) -> str:
        """Return the name of a quantity on the scale of the fit, such as "contribution (log)"."""
        if self.is_identity:
            return word
        return f"{word} ({self.name})"


IDENTITY = TargetScale()


def inverse_named(name: str) -> Function | None:
    """Return the inverse of a scale with this name, such as "log"; None for other names."""
    function_by_scale: dict[str, Function] = {
        FORWARD[inverse].__name__: function for inverse, function in INVERSES.items()
    }
    function_by_scale["log10"] = partial(np.power, 10.0)
    return function_by_scale.get(name)


def _applied(function: Function | None, values: Any, name: str) -> FloatArray:
    """Apply a user's function to numbers, (n,) or (n, K), with checks; nan stays nan."""
    numbers = np.asarray(values, dtype=np.float64)
    if function is None or not numbers.size:
        return numbers
    if numbers.ndim == 2:
        table = numbers
    else:
        table = numbers[:, None]
    is_complete = ~np.isnan(table).any(axis=1)
    if not is_complete.all():  # functions and transformers may refuse nan
        results = np.full(table.shape, np.nan)
        results[is_complete] = _applied(function, table[is_complete], name)
        return results.reshape(numbers.shape)
    try:
        with np.errstate(all="ignore"):
            results = np.asarray(function(table), dtype=np.float64)
    except AxilError:
        raise
    except Exception as error:  # the user's own function
        raise InputError(
            f"{name} raised {type(error).__name__}: {shown(error, 200)}. Expected a function that "
            "takes an array of numbers."
        ) from error
    if results.size != numbers.size:
        raise InputError(
            f"{name} gave {results.shape} numbers for {numbers.shape}; expected one for each."
        )
    return results.reshape(numbers.shape)


@dataclass(frozen=True, eq=False)
class FittedTargets:
    """Targets of the training rows on both scales."""

    targets: FloatArray  #: (N, K) on the scale of the fit
    shown: FloatArray  #: (N, K) as people read them
    scale: TargetScale


def fitted_targets(
    model_scale: TargetScale, inverse_func: Any, given_targets: FloatArray, y: Any
) -> FittedTargets:
    """Return the targets on both scales, checked.

    Parameters
    ----------
    model_scale : TargetScale
        The scale that the model transforms its targets to.
    inverse_func : callable or None
        Undoes what the user did to the targets before the fit.
    given_targets : array of shape (N, K)
        The targets as ``y_train`` has them.
    y : array
        ``y_train`` itself, for its type: libraries transform targets in it, and float32 has other
        logarithms than float64.
    """
    if model_scale.is_identity and inverse_func is None:
        return FittedTargets(given_targets, given_targets, IDENTITY)
    if not model_scale.is_identity and inverse_func is not None:
        raise InputError(
            f"inverse_func is {shown(inverse_func)}, but this model transforms its targets itself "
            f"({model_scale.name}). Leave it out."
        )
    if model_scale.onward is None:
        return _inverted(user_scale(inverse_func), given_targets)
    dtype = as_array(y, "y_train").dtype
    if dtype.kind not in "biuf":
        dtype = np.dtype(np.float64)
    scale = replace(model_scale, onward=partial(_in_type, model_scale.onward, dtype))
    targets = scale.forward(given_targets)
    _require_finite(given_targets, targets, scale.name)
    rounding = _rounding(model_scale.onward, given_targets[:1].astype(dtype))
    slack = max(ROUND_TRIP, 64 * rounding) * float(np.abs(given_targets).max())
    _require_round_trip(given_targets, targets, scale, slack)
    _require_monotone(targets, given_targets, f"The model's {scale.name} of the targets")
    return FittedTargets(targets, given_targets, _recognised(scale, targets))


def _in_type(function: Function, dtype: np.dtype[Any], values: FloatArray) -> Any:
    return function(values.astype(dtype))


def _rounding(function: Function, values: AnyArray) -> float:
    """Return the relative rounding error of a function.

    NumPy's logarithms of int8 have half precision, for example.
    """
    with np.errstate(all="ignore"):
        dtype = np.asarray(function(values)).dtype
    if dtype.kind == "f":
        return float(np.finfo(dtype).eps)
    return 0.0


def user_scale(inverse_func: Any) -> TargetScale:
    """Return the scale of targets that the user transformed, from the function that undoes it."""
    if not callable(inverse_func):
        raise InputError(
            f"inverse_func is {shown(inverse_func)}; expected a function of arrays, such as np.exp."
        )
    name = getattr(inverse_func, "__name__", "")
    if INVERSES.get(name) is inverse_func:
        return TargetScale(FORWARD[name].__name__, inverse_func)
    return TargetScale(UNNAMED, inverse_func)


def _inverted(scale: TargetScale, targets: FloatArray) -> FittedTargets:
    """Return both scales of targets that are on the scale of the fit."""
    shown_targets = scale.inverse(targets)
    is_infinite = ~np.isfinite(shown_targets)
    if is_infinite.any():
        raise InputError(
            f"inverse_func gives {shown_targets[is_infinite][0]} for the target "
            f"{targets[is_infinite][0]:.6g}. Expected targets on the scale of the fit, such as "
            "logarithms: pass y_train as the model was fitted to it."
        )
    _require_monotone(targets, shown_targets, "inverse_func")
    return FittedTargets(targets, shown_targets, _recognised(scale, targets))


def loaded_targets(
    scale: TargetScale, targets: FloatArray, saved_targets: FloatArray | None
) -> FittedTargets:
    """Return both scales of targets (N, K) out of a file.

    ``saved_targets`` are the targets in the user's units. They must follow from the function.
    """
    fitted = _inverted(scale, targets)
    if saved_targets is None:
        return fitted
    slack = 64 * ROUND_TRIP * float(np.abs(saved_targets).max(initial=0.0))
    has_same_shape = saved_targets.shape == targets.shape
    if not has_same_shape or not np.allclose(saved_targets, fitted.shown, rtol=0.0, atol=slack):
        raise InputError(
            f"The inverse of {scale.name} leads to the targets {fitted.shown.min():.6g} to "
            f"{fitted.shown.max():.6g}, and the file shows {saved_targets.min():.6g} to "
            f"{saved_targets.max():.6g}. Pass the inverse_func that the explainer was made with."
        )
    return replace(fitted, shown=saved_targets)


def _require_finite(given_targets: FloatArray, targets: FloatArray, name: str) -> None:
    """Refuse targets that the transform makes infinite."""
    is_infinite = ~np.isfinite(targets)
    if is_infinite.any():
        raise InputError(
            f"The model's {name} of the target {given_targets[is_infinite][0]:.6g} is "
            f"{targets[is_infinite][0]}, which no model is fitted to ({int(is_infinite.sum())} of "
            f"{is_infinite.size} targets). Pass y_train as `fit` got it: the model transforms it "
            "itself."
        )


def _require_round_trip(
    given_targets: FloatArray, targets: FloatArray, scale: TargetScale, slack: float
) -> None:
    """Refuse a model whose inverse does not return the targets."""
    returned = scale.inverse(targets)
    with np.errstate(invalid="ignore"):
        errors = np.where(np.isfinite(returned), np.abs(returned - given_targets), np.inf)
    if errors.max() > slack:
        place = np.unravel_index(errors.argmax(), errors.shape)
        raise UnsupportedModelError(
            "transform of the targets",
            scale.name,
            f"its inverse does not lead back: the target {given_targets[place]:.10g} becomes "
            f"{targets[place]:.10g}, and that {returned[place]:.10g}",
            "Fit with a function and its inverse.",
        )


def _require_monotone(targets: FloatArray, shown_targets: FloatArray, name: str) -> None:
    """Refuse a function that reverses the order of some targets, or makes all equal."""
    for t, y in zip(targets.T, shown_targets.T):
        order = np.argsort(t, kind="stable")
        t_steps = np.diff(t[order])
        # Rounding to float32 makes some targets equal.
        y_steps = np.where(t_steps > 0, np.diff(y[order]), 0.0)
        slack = REVERSAL * float(np.abs(y).max(initial=0.0))
        falls = np.flatnonzero(y_steps < -slack)
        rises = np.flatnonzero(y_steps > slack)
        if len(falls) and len(rises):
            place = int(min(falls, rises, key=len)[0])
        elif np.ptp(t) > 0 and not len(falls) and not len(rises) and np.ptp(y) <= slack:
            place = int(np.argmax(t_steps))
        else:
            continue
        low = order[place]
        high = order[place + 1]
        raise InputError(
            f"{name} is not monotone: {t[low]:.10g} and {t[high]:.10g} stand for {y[low]:.10g} and "
            f"{y[high]:.10g}, while {len(rises)} steps between targets in order go up and "
            f"{len(falls)} down. Expected a function that keeps their order, or turns all of it "
            "round."
        )


def _recognised(scale: TargetScale, targets: FloatArray) -> TargetScale:
    """Return a known scale, such as a logarithm with its base, or the identity.

    The inverse is compared with powers at the targets and around them.
    """
    low = targets.min(axis=0)
    high = targets.max(axis=0)
    margin = np.maximum(high - low, 1.0) / 2
    sample = np.sort(targets, axis=0)[:: -(-len(targets) // N_COMPARED)]
    t = np.concatenate([sample, np.linspace(low - margin, high + margin, 64)])
    try:
        y = scale.inverse(t)
    except InputError:  # the function may refuse numbers beyond the targets
        return scale
    if np.array_equal(y, t):
        return IDENTITY
    for shift, logarithm in ((0.0, np.log), (1.0, np.log1p)):
        with np.errstate(all="ignore"):
            logs = logarithm(y)
        if not np.isfinite(logs).all():
            continue
        rate = float((logs * t).sum() / (t * t).sum())
        slack = LOGARITHM * max(1.0, float(np.abs(logs).max()))
        if rate and np.abs(logs - rate * t).max() <= slack:
            return _logarithm(scale, rate, shift)
    return scale


def _logarithm(scale: TargetScale, rate: float, shift: float) -> TargetScale:
    """Return the scale as a logarithm with the base ``exp(rate)``."""
    base = float(np.exp(rate))
    name = f"log base {base:.6g}"
    for usual_base, usual_name in LOGARITHM_NAMES.items():
        if abs(rate - np.log(usual_base)) <= LOGARITHM:
            base = usual_base
            name = usual_name
    if shift:
        if name == "log":
            name = "log1p"
        else:
            name = f"{name} of 1 + target"
    return replace(scale, name=name, base=base, shift=shift)

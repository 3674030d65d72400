"""TargetScale: a model fitted to transformed targets, such as logarithms of prices, and the way back to prices.

Weights, contributions and the proof are on the scale of the fit, where predictions are sums. People read the other one:

    prediction = inverse(intercept + sum_j k_j t_j),    t_j = forward(y_j)

For logarithms that is a product, ``e^intercept * prod_j y_j^k_j``, and each row has a factor in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from axil.arrays import FloatArray
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

ROUND_TRIP = 1e-6  # of the largest |target|: how far it may be from itself after the transform and its inverse
REVERSAL = 1e-9  # of the largest |target|: below it two targets in the wrong order are rounding
LOGARITHM = (
    1e-9  # of the largest |logarithm|: how close to a power an inverse must be to count as one
)
TRIED = 1000  # targets that an inverse is compared with a power at


@dataclass(frozen=True, eq=False, repr=False)
class TargetScale:
    """The scale that a model was fitted on. By default the targets' own, where all methods return what they are given."""

    name: str = ""  #: such as "log" or "sqrt", for labels; empty for the targets' own scale
    backward: Function | None = None  #: (n, K) from the scale of the fit to that of the targets
    onward: Function | None = (
        None  #: the other way, where the model transforms targets itself; else users have done it
    )
    base: float | None = None  #: of logarithms; None for any other function
    shift: float = 0.0  #: added to targets before the logarithm is taken, as in log1p

    def __repr__(self) -> str:
        return f"<axil.TargetScale: {self.name or 'as given'}>"

    @property
    def is_identity(self) -> bool:
        """Whether the model was fitted to the targets as they are."""
        return not self.name

    @property
    def is_log(self) -> bool:
        """Whether the model was fitted to logarithms, so that every row has a factor."""
        return self.base is not None

    def inverse(self, values: Any) -> FloatArray:
        """Targets or predictions of the scale of the fit, (n,) or (n, K), as people read them: prices, not logarithms.

        Parameters
        ----------
        values : array of shape (n,) or (n, K)
            Numbers on the scale of the fit.
        """
        what = f"The inverse of {self.name}" if self.onward else "inverse_func"
        return _applied(self.backward, values, what)

    def forward(self, values: Any) -> FloatArray:
        """Targets as the user gives them, (n,) or (n, K), on the scale of the fit.

        Where the model transforms its targets itself they are given untransformed. Where the user did it they are given
        transformed, and are returned as they are.

        Parameters
        ----------
        values : array of shape (n,) or (n, K)
            Targets, given as ``y_train`` was.
        """
        return _applied(self.onward, values, f"The model's {self.name} of the targets")

    def factors(self, contributions: FloatArray) -> FloatArray:
        """For logarithms: ``(target + shift) ** weight`` from ``weight * log(target + shift)``."""
        assert self.base is not None
        with np.errstate(over="ignore"):
            return np.asarray(np.power(self.base, contributions))

    def label(self, word: str) -> str:
        """The name of a quantity on the scale of the fit, such as "contribution (log)"."""
        return word if self.is_identity else f"{word} ({self.name})"


IDENTITY = TargetScale()


def inverse_named(name: str) -> Function | None:
    """The function that undoes a scale of this name, as labels have it: "log" or "sqrt"; None for one that is not known."""
    known: dict[str, Function] = {
        FORWARD[inverse].__name__: function for inverse, function in INVERSES.items()
    }
    return (known | {"log10": partial(np.power, 10.0)}).get(name)


def _applied(function: Function | None, values: Any, what: str) -> FloatArray:
    """A function of (n, K) numbers, whatever it raises or returns."""
    numbers = np.asarray(values, dtype=np.float64)
    if function is None or not numbers.size:
        return numbers
    table = numbers if numbers.ndim == 2 else numbers[:, None]
    known = ~np.isnan(table).any(axis=1)  # functions and transformers may refuse what is not known
    if not known.all():
        found = np.full(table.shape, np.nan)
        found[known] = _applied(function, table[known], what)
        return found.reshape(numbers.shape)
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(table), dtype=np.float64)
    except AxilError:
        raise
    except Exception as error:  # the user's own function
        raise InputError(
            f"{what} raised {type(error).__name__}: {shown(error, 200)}. Expected a function that takes an array of numbers."
        ) from error
    if found.size != numbers.size:
        raise InputError(
            f"{what} gave {found.shape} numbers for {numbers.shape}; expected one for each."
        )
    return found.reshape(numbers.shape)


@dataclass(frozen=True, eq=False)
class FittedTargets:
    """Targets of the training rows on both scales."""

    targets: FloatArray  #: (N, K) on the scale of the fit
    shown: FloatArray  #: (N, K) as people read them
    scale: TargetScale


def fitted_targets(own: TargetScale, inverse_func: Any, given: FloatArray, y: Any) -> FittedTargets:
    """Both scales of targets (N, K) that are given as ``y_train`` was, checked; ``own`` is the model's scale.

    ``y`` is ``y_train`` itself, for its type: libraries transform targets in it, and float32 has other logarithms than float64.
    """
    if own.is_identity and inverse_func is None:
        return FittedTargets(given, given, IDENTITY)
    if not own.is_identity and inverse_func is not None:
        raise InputError(
            f"inverse_func is {shown(inverse_func)}, but this model transforms its targets itself ({own.name}). Leave it out."
        )
    if own.onward is None:
        return _inverted(user_scale(inverse_func), given)
    kind = as_array(y, "y_train").dtype
    dtype = kind if kind.kind in "biuf" else np.dtype(np.float64)
    onward = own.onward
    scale = replace(own, onward=partial(_in_type, onward, dtype))
    targets = scale.forward(given)
    _require_finite(given, targets, own.name)
    again = scale.inverse(targets)
    slack = max(ROUND_TRIP, 64 * _digits(onward, given[:1].astype(dtype))) * float(
        np.abs(given).max()
    )
    with np.errstate(invalid="ignore"):
        off = np.where(np.isfinite(again), np.abs(again - given), np.inf)
    if off.max() > slack:
        row, output = np.unravel_index(off.argmax(), off.shape)
        raise UnsupportedModelError(
            "transform of the targets",
            own.name,
            f"its inverse does not lead back: the target {given[row, output]:.10g} becomes {targets[row, output]:.10g}, and that "
            f"{again[row, output]:.10g}",
            "Fit with a function and its inverse.",
        )
    _require_monotone(targets, given, f"The model's {own.name} of the targets")
    return FittedTargets(targets, given, _recognised(scale, targets))


def _in_type(function: Function, dtype: Any, values: FloatArray) -> Any:
    return function(values.astype(dtype))


def _digits(function: Function, values: FloatArray) -> float:
    """The relative rounding of what a function returns: NumPy's logarithms of int8 have half precision."""
    with np.errstate(all="ignore"):
        kind = np.asarray(function(values)).dtype
    return float(np.finfo(kind).eps) if kind.kind == "f" else 0.0


def user_scale(inverse_func: Any) -> TargetScale:
    """The scale of targets that the user transformed, from the function that undoes it."""
    if not callable(inverse_func):
        raise InputError(
            f"inverse_func is {shown(inverse_func)}; expected a function of arrays, such as np.exp."
        )
    name = getattr(inverse_func, "__name__", "")
    return TargetScale(
        FORWARD[name].__name__ if INVERSES.get(name) is inverse_func else UNNAMED, inverse_func
    )


def _inverted(scale: TargetScale, targets: FloatArray) -> FittedTargets:
    seen = scale.inverse(targets)
    if not np.isfinite(seen).all():
        bad = targets[~np.isfinite(seen)][0]
        raise InputError(
            f"inverse_func gives {seen[~np.isfinite(seen)][0]} for the target {bad:.6g}. Expected targets on the scale of the "
            "fit, such as logarithms: pass y_train as the model was fitted to it."
        )
    _require_monotone(targets, seen, "inverse_func")
    return FittedTargets(targets, seen, _recognised(scale, targets))


def loaded_targets(
    scale: TargetScale, targets: FloatArray, seen: FloatArray | None
) -> FittedTargets:
    """Both scales of targets (N, K) out of a file, which says what people read, once that follows from the function."""
    found = _inverted(scale, targets)
    if seen is None:
        return found
    slack = 64 * ROUND_TRIP * float(np.abs(seen).max(initial=0.0))
    if seen.shape != targets.shape or not np.allclose(seen, found.shown, rtol=0.0, atol=slack):
        raise InputError(
            f"The inverse of {scale.name} leads to the targets {found.shown.min():.6g} to {found.shown.max():.6g}, and the file "
            f"shows {seen.min():.6g} to {seen.max():.6g}. Pass the inverse_func that the explainer was made with."
        )
    return replace(found, shown=seen)


def _require_finite(given: FloatArray, targets: FloatArray, name: str) -> None:
    bad = ~np.isfinite(targets)
    if bad.any():
        raise InputError(
            f"The model's {name} of the target {given[bad][0]:.6g} is {targets[bad][0]}, which no model is fitted to "
            f"({int(bad.sum())} of {bad.size} targets). Pass y_train as `fit` got it: the model transforms it itself."
        )


def _require_monotone(targets: FloatArray, seen: FloatArray, what: str) -> None:
    """Raise where an order of targets is turned round, or lost altogether."""
    for t, y in zip(targets.T, seen.T):
        order, slack = np.argsort(t, kind="stable"), REVERSAL * float(np.abs(y).max(initial=0.0))
        steps = np.where(
            np.diff(t[order]) > 0, np.diff(y[order]), 0.0
        )  # rounding to float32 makes some equal
        falls, rises = np.flatnonzero(steps < -slack), np.flatnonzero(steps > slack)
        if (len(falls) and len(rises)) or (
            np.ptp(t) > 0 and not len(falls) and not len(rises) and np.ptp(y) <= slack
        ):
            at = (
                int(min(falls, rises, key=len)[0])
                if len(falls) and len(rises)
                else int(np.argmax(np.diff(t[order])))
            )
            i, j = order[at], order[at + 1]
            raise InputError(
                f"{what} is not monotone: {t[i]:.10g} and {t[j]:.10g} stand for {y[i]:.10g} and "
                f"{y[j]:.10g}, while {len(rises)} steps between targets in order go up and {len(falls)} down. "
                "Expected a function that keeps their order, or turns all of it round."
            )


def _recognised(scale: TargetScale, targets: FloatArray) -> TargetScale:
    """The scale, with its base where the inverse is a power, at the targets and around them; the targets' own if it is none."""
    low, high = targets.min(axis=0), targets.max(axis=0)
    beyond = np.maximum(high - low, 1.0) / 2
    some = np.sort(targets, axis=0)[:: -(-len(targets) // TRIED)]
    t = np.concatenate([some, np.linspace(low - beyond, high + beyond, 64)])
    try:
        y = scale.inverse(t)
    except InputError:  # beyond the targets
        return scale
    if np.array_equal(y, t):
        return IDENTITY
    for shift in (0.0, 1.0):
        with np.errstate(all="ignore"):
            logs = np.log1p(y) if shift else np.log(y)
        if not np.isfinite(logs).all():
            continue
        rate = float((logs * t).sum() / (t * t).sum())
        if rate and np.abs(logs - rate * t).max() <= LOGARITHM * max(
            1.0, float(np.abs(logs).max())
        ):
            return _logarithm(scale, rate, shift)
    return scale


def _logarithm(scale: TargetScale, rate: float, shift: float) -> TargetScale:
    base, name = float(np.exp(rate)), f"log base {np.exp(rate):.6g}"
    for known, usual in ((np.e, "log"), (2.0, "log2"), (10.0, "log10")):
        if abs(rate - np.log(known)) <= LOGARITHM:
            base, name = known, usual
    if shift:
        name = "log1p" if name == "log" else f"{name} of 1 + target"
    return replace(scale, name=name, base=base, shift=shift)

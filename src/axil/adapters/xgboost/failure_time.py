"""XGBoost's survival:aft: accelerated failure time, whose targets are intervals of times.

A row's time lies between two bounds: equal ones of an event, an infinite upper one of a row that
was censored, a lower one of 0 where only the upper one is known. With z = (log(bound) - F) / sigma
and f and C the density and the distribution function of the chosen distribution,

    an event:     g = f'(z) / (sigma f(z)),  h = (f'(z)^2 - f(z) f''(z)) / (sigma f(z))^2
    an interval:  g = d / (sigma p),         h = (d^2 - p (f'_u - f'_l)) / (sigma p)^2

with l and u for the bounds, d = f_u - f_l and p = C_u - C_l. XGBoost clips both, and puts constants
in the place of what is no number far from the bounds (src/common/survival_util.h). Differences
cancel there, so the functions are those of the C library, whose last bits NumPy's own do not have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from axil.arrays import AnyArray, BoolArray, FloatArray
from axil.errors import InputError
from axil.trees.losses import RoundRows, Squared

DEFAULT_BASE_SCORE = 0.5
LARGEST_GRADIENT = 15.0
LEAST_HESSIAN = 1e-16
LARGEST_HESSIAN = 15.0
LEAST_DENOMINATOR = 1e-12  # below which a quotient that is no number gets its limit
LARGEST_EXPONENT = 709.0  # of a finite exponential

#: kinds of targets, the lines of the limits of a distribution
EVENT, RIGHT_CENSORED, LEFT_CENSORED, INTERVAL = range(4)


def _of_each(function: Callable[[float], float]) -> Callable[[FloatArray], FloatArray]:
    """Return a function of arrays from one of the C library."""
    apply = np.frompyfunc(function, 1, 1)

    def of_array(values: FloatArray) -> FloatArray:
        return np.asarray(apply(values), dtype=np.float64)

    return of_array


_exp_of_finite = _of_each(math.exp)
_erf = _of_each(math.erf)
_log_of_positive = _of_each(math.log)


def _exp(x: FloatArray) -> FloatArray:
    """Return exponentials; infinity where they overflow."""
    finite = _exp_of_finite(np.minimum(x, LARGEST_EXPONENT))
    return np.where(x > LARGEST_EXPONENT, np.exp(x), finite)


class ErrorDistribution(ABC):
    """The distribution of the logarithms of times around their scores, in units of sigma."""

    #: (4, 2) g far from the bounds, by the kind of the target and whether z is positive
    gradient_limits: ClassVar[FloatArray]

    @abstractmethod
    def density(self, z: FloatArray) -> FloatArray:
        """Return f(z)."""

    @abstractmethod
    def probability(self, z: FloatArray) -> FloatArray:
        """Return C(z)."""

    @abstractmethod
    def slope(self, z: FloatArray) -> FloatArray:
        """Return f'(z)."""

    @abstractmethod
    def curvature(self, z: FloatArray) -> FloatArray:
        """Return f''(z)."""

    @abstractmethod
    def limits(self, sigma: float) -> tuple[FloatArray, FloatArray]:
        """Return g and h far from the bounds, (4, 2) each.

        A line belongs to a kind of targets, a column to whether z is positive.
        """


class Normal(ErrorDistribution):
    """Times of a log-normal distribution."""

    def density(self, z: FloatArray) -> FloatArray:
        """Return f(z)."""
        return _exp(-z * z / 2) / math.sqrt(2 * math.pi)

    def probability(self, z: FloatArray) -> FloatArray:
        """Return C(z)."""
        return 0.5 * (1 + _erf(z / math.sqrt(2)))

    def slope(self, z: FloatArray) -> FloatArray:
        """Return f'(z)."""
        return -z * self.density(z)

    def curvature(self, z: FloatArray) -> FloatArray:
        """Return f''(z)."""
        return (z * z - 1) * self.density(z)

    def limits(self, sigma: float) -> tuple[FloatArray, FloatArray]:
        """Return g and h far from the bounds, (4, 2) each."""
        h = 1 / (sigma * sigma)
        return (
            _limits(LARGEST_GRADIENT, -LARGEST_GRADIENT),
            np.array([[h, h], [0.0, h], [h, 0.0], [h, h]]),
        )


class LogisticDistribution(ErrorDistribution):
    """Times of a log-logistic distribution."""

    def density(self, z: FloatArray) -> FloatArray:
        """Return f(z)."""
        w = _exp(z)
        return np.where(_overflows(w), 0.0, w / ((1 + w) * (1 + w)))

    def probability(self, z: FloatArray) -> FloatArray:
        """Return C(z)."""
        w = _exp(z)
        return np.where(np.isinf(w), 1.0, w / (1 + w))

    def slope(self, z: FloatArray) -> FloatArray:
        """Return f'(z)."""
        w = _exp(z)
        return np.where(np.isinf(w), 0.0, self.density(z) * (1 - w) / (1 + w))

    def curvature(self, z: FloatArray) -> FloatArray:
        """Return f''(z)."""
        w = _exp(z)
        value = self.density(z) * (w * w - 4 * w + 1) / ((1 + w) * (1 + w))
        return np.where(_overflows(w), 0.0, value)

    def limits(self, sigma: float) -> tuple[FloatArray, FloatArray]:
        """Return g and h far from the bounds, (4, 2) each."""
        return _limits(1 / sigma, -1 / sigma), np.zeros((4, 2))


class ExtremeValue(ErrorDistribution):
    """Times of a Weibull distribution."""

    def density(self, z: FloatArray) -> FloatArray:
        """Return f(z)."""
        w = _exp(z)
        return np.where(np.isinf(w), 0.0, w * _exp(-w))

    def probability(self, z: FloatArray) -> FloatArray:
        """Return C(z)."""
        return 1 - _exp(-_exp(z))

    def slope(self, z: FloatArray) -> FloatArray:
        """Return f'(z)."""
        w = _exp(z)
        return np.where(np.isinf(w), 0.0, (1 - w) * self.density(z))

    def curvature(self, z: FloatArray) -> FloatArray:
        """Return f''(z)."""
        w = _exp(z)
        return np.where(_overflows(w), 0.0, (w * w - 3 * w + 1) * self.density(z))

    def limits(self, sigma: float) -> tuple[FloatArray, FloatArray]:
        """Return g and h far from the bounds, (4, 2) each."""
        h = LARGEST_HESSIAN
        return (
            _limits(1 / sigma, -LARGEST_GRADIENT),
            np.array([[0.0, h], [0.0, h], [0.0, 0.0], [0.0, h]]),
        )


DISTRIBUTIONS = {
    "normal": Normal(),
    "logistic": LogisticDistribution(),
    "extreme": ExtremeValue(),
}


def _overflows(w: FloatArray) -> BoolArray:
    """Return whether a number or its square is infinite."""
    return np.isinf(w) | np.isinf(w * w)


def _limits(below: float, above: float) -> FloatArray:
    """Return g far from the bounds, (4, 2), from that of events below and above their scores."""
    return np.array([[below, above], [0.0, above], [below, 0.0], [below, above]])


@dataclass(frozen=True, kw_only=True, eq=False)
class AcceleratedFailureTime(Squared):
    """The loss of survival:aft. Scores are logarithms of times, and base_score is a time."""

    name = "survival:aft"
    smooth = False
    recorded = True
    no_derivative: ClassVar[str] = "a target is an interval, which has two ends"

    bounds: FloatArray  #: (N, 2) the times between which that of each row lies
    distribution: ErrorDistribution
    sigma: float  #: aft_loss_distribution_scale

    @cached_property
    def _logarithms(self) -> FloatArray:
        """The logarithms of the bounds, (2, N); -inf of 0."""
        logarithms = np.full(self.bounds.T.shape, -np.inf)
        is_inside = (self.bounds.T > 0) & np.isfinite(self.bounds.T)
        logarithms[is_inside] = _log_of_positive(self.bounds.T[is_inside])
        logarithms[np.isinf(self.bounds.T)] = np.inf
        return logarithms

    @cached_property
    def _kinds(self) -> AnyArray:
        """The kind of each target, (N,)."""
        lower, upper = self.bounds.T
        conditions = [lower == upper, lower <= 0, np.isinf(upper)]
        return np.select(conditions, [EVENT, LEFT_CENSORED, RIGHT_CENSORED], INTERVAL)

    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, 1), with the row weights in them."""
        scores = rows.scores[:, 0].astype(np.float32).astype(np.float64)
        is_event = self._kinds == EVENT
        g = np.zeros(len(scores))
        h = np.zeros(len(scores))
        with np.errstate(all="ignore"):
            g[is_event], h[is_event] = self._of_events(scores, is_event)
            g[~is_event], h[~is_event] = self._of_intervals(scores, ~is_event)
        weights = rows.weights.astype(rows.precision)
        g = np.clip(g, -LARGEST_GRADIENT, LARGEST_GRADIENT).astype(rows.precision)
        h = np.clip(h, LEAST_HESSIAN, LARGEST_HESSIAN).astype(rows.precision)
        return (g * weights)[:, None], (h * weights)[:, None]

    def _of_events(self, scores: FloatArray, chosen: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return g and h of the chosen rows, whose times are known, (n,) each."""
        z = (self._logarithms[0, chosen] - scores[chosen]) / self.sigma
        density = self.distribution.density(z)
        slope = self.distribution.slope(z)
        curvature = self.distribution.curvature(z)
        g = Quotient(slope, self.sigma * density)
        h = Quotient(
            -(density * curvature - slope * slope), self.sigma * self.sigma * density * density
        )
        return self._limited(g, h, self._kinds[chosen], z > 0)

    def _of_intervals(self, scores: FloatArray, chosen: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return g and h of the chosen rows, whose times lie between two bounds, (n,) each."""
        kinds = self._kinds[chosen]
        is_open_below = kinds == LEFT_CENSORED
        is_open_above = np.isinf(self.bounds[chosen, 1])
        z_lower, z_upper = (self._logarithms[:, chosen] - scores[chosen]) / self.sigma
        z_lower = np.where(is_open_below, 0.0, z_lower)
        z_upper = np.where(is_open_above, 0.0, z_upper)

        def difference(function: Callable[[FloatArray], FloatArray], at_end: float) -> FloatArray:
            upper = np.where(is_open_above, at_end, function(z_upper))
            lower = np.where(is_open_below, 0.0, function(z_lower))
            return upper - lower

        density = difference(self.distribution.density, 0.0)
        probability = difference(self.distribution.probability, 1.0)
        slope = difference(self.distribution.slope, 0.0)
        scaled = self.sigma * probability
        g = Quotient(density, scaled)
        h = Quotient(-(probability * slope - density * density), scaled * scaled)
        return self._limited(g, h, kinds, (z_upper > 0) | (z_lower > 0))

    def _limited(
        self, g: Quotient, h: Quotient, kinds: AnyArray, is_above: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values of both quotients, with limits where these are no numbers."""
        of_g, of_h = self.distribution.limits(self.sigma)
        places = (kinds, is_above.astype(np.intp))
        return g.value(of_g[places]), h.value(of_h[places])

    def stored_link(self, means: FloatArray) -> FloatArray:
        """Return the scores of times (1,), in float32."""
        logs = _log_of_positive(means.astype(np.float32).astype(np.float64))
        return np.asarray(logs.astype(np.float32).astype(np.float64))

    def stored_means(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return base_score where the user gives none, (1,): XGBoost does not estimate it."""
        return np.array([DEFAULT_BASE_SCORE])

    def start_of(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the score of `stored_means`, (1,)."""
        return self.stored_link(self.stored_means(y, weights))

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require bounds (n, 2) of intervals of positive times."""
        lower, upper = y.T
        is_wrong = ~((lower >= 0) & np.isfinite(lower) & (upper > 0) & (lower <= upper))
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise InputError(
                f"{argument} has the bounds {lower[row]:g} and {upper[row]:g} at position {row}; "
                "expected a lower bound of 0 or more, and an upper bound above 0 that is not below "
                "it: equal ones for an event, infinity for a row that was censored."
            )


@dataclass(frozen=True)
class Quotient:
    """A quotient that may be no number where its denominator vanishes."""

    numerator: FloatArray
    denominator: FloatArray

    def value(self, limits: FloatArray) -> FloatArray:
        """Return the quotients, (n,), with limits in the place of those that are no numbers."""
        quotients = self.numerator / self.denominator
        vanishes = (self.denominator < LEAST_DENOMINATOR) & ~np.isfinite(quotients)
        return np.where(vanishes, limits, quotients)

"""How far a map from targets to predictions is from affine, measured in two ways; both are zero for weights times targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Map = Callable[[Array], Array]  #: targets (N,) to predictions (n,)

DRAWS = 50


def additivity(f: Map, y: Array, draws: int = DRAWS) -> float:
    """``f(y + a) + f(y + b) - f(y) - f(y + a + b)`` relative to ``f(y + a + b) - f(y)``, root mean squares over predictions.

    a and b change a tenth of the targets each, sampled at random: labels are flipped, values raised by a standard deviation.
    """
    rng, part = np.random.default_rng(0), len(y) // 10
    up = 1 - 2 * y if set(y.tolist()) == {0, 1} else np.full(len(y), y.std())
    defects, changes = [], []
    for _ in range(draws):
        first, second = rng.choice(len(y), (2, part), replace=False)
        a, b = np.zeros((2, len(y)))
        a[first], b[second] = up[first], up[second]
        defects.append(f(y + a) + f(y + b) - f(y) - f(y + a + b))
        changes.append(f(y + a + b) - f(y))
    return root_mean_square(defects) / root_mean_square(changes)


def root_mean_square(parts: list[Array]) -> float:
    return float(np.sqrt(np.square(parts).mean()))


@dataclass(frozen=True)
class Curve:
    """A prediction f as targets move along a straight line, x telling how far, beside one that has exact weights."""

    what: str
    x: Array
    f: Array
    tangent: Array  #: at the targets that were fitted
    at: float  #: where on x those are
    control: Array  #: what its exact counterpart predicts, fitted to the same targets
    exact: Array  #: the counterpart's weights, those of the first targets, times the targets
    counterpart: str
    along: str  #: what x is
    predicted: str  #: what f is

    @property
    def departures(self) -> tuple[float, float]:
        """Of f and of the control: the largest distance from the best straight line, relative to the range."""
        return from_line(self.x, self.f), from_line(self.x, self.control)


def from_line(x: Array, f: Array) -> float:
    return float(np.abs(off_line(x, f)).max() / np.ptp(f))


def off_line(x: Array, f: Array) -> Array:
    """f less its best straight line."""
    return f - np.polynomial.Polynomial.fit(x, f, 1)(x)

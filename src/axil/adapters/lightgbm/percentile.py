"""LightGBM's percentiles: leaf values of quantile, regression_l1 and mape, and where their fits start.

Formulas: PercentileFun, WeightedPercentileFun and RenewTreeOutput, src/objective/regression_objective.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.bagging import Seen
from axil.structure import Ranks
from axil.structure.ranks import Picks
from axil.types import Array

PERCENTILES = ("quantile", "regression_l1", "mape")  # objectives


@dataclass(frozen=True)
class Percentile(Ranks):
    """The rule of LightGBM. Settings of sums (lambda_l1, lambda_l2, path_smooth) do not reach its leaf values."""

    own_segment: bool = (
        True  #: from 4.7 on; before, weighted percentiles were mixed by the weights of the rows one further up
    )

    def even(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
        """Linear between ranks, counted from the largest."""
        place = (counts - 1) * (1.0 - self.alpha)
        down = place.astype(np.int64) + 1  # of the upper row
        last = down >= counts
        return np.where(last, 0, counts - down - 1), np.where(last, 0.0, 1.0 - (place - (down - 1)))

    def weighed(self, weights: Array) -> tuple[int, int, float]:
        """A mix of the rows whose cumulated weights are around the share; one of them where the upper weighs less than one."""
        n, total = len(weights), np.cumsum(weights)
        threshold = total[-1] * self.alpha
        at = min(int(np.searchsorted(total, threshold, side="right")), n - 1)
        if at in (0, n - 1):
            return at, at, 0.0
        lower, upper = (at - 1, at) if self.own_segment else (at, at + 1)
        if total[upper] - total[lower] < 1.0:
            return lower, lower, 0.0
        return at - 1, at, float((threshold - total[lower]) / (total[upper] - total[lower]))

    def base(self, targets: Array, picked: Picks) -> float:
        """The mix of two targets in float32, of which their difference is rounded first."""
        lower, upper = targets[picked.rows[:, 0]].astype(np.float32)
        if self.weights is None:
            return float(np.float32(upper - np.float64(upper - lower) * picked.shares[0, 0]))
        return float(np.float32(picked.shares[1, 0] * np.float64(upper - lower) + lower))


@dataclass(frozen=True)
class Gradients:
    """The gradients by which rows are sampled, and the ranks by which leaves get their values."""

    objective: str
    ranks: Percentile
    weights: Array | None  #: (N,) of the samples

    @classmethod
    def of(cls, objective: str, alpha: float, targets: Array, weights: Array | None) -> Gradients:
        """Gradients of a fit to targets (N,), all in float32; alpha is the setting of the objective."""
        own = weights
        if objective == "mape":
            scale = np.float32(1.0) / np.maximum(np.float32(1.0), np.abs(targets.astype(np.float32)))
            own = (scale if weights is None else scale * weights.astype(np.float32)).astype(np.float64)
        own_alpha = float(np.float32(alpha)) if objective == "quantile" else 0.5
        return cls(objective, Percentile(own_alpha, own, own_segment=_version() >= (4, 7)), weights)

    def start(self, targets: Array) -> tuple[float, float]:
        """Where the fit starts, the same percentile of the targets (N,), and how far float32 may leave it off."""
        found = self.ranks.picks(np.zeros(len(targets), dtype=np.int64), targets, np.ones(len(targets)))
        return self.ranks.base(targets, found), 2.0**-22 * float(np.abs(targets[found.rows[:, 0]]).max())

    def seen(self, residuals: Array) -> Seen:
        """The gradients where these residuals (N, 1) are left."""
        if self.objective == "quantile":
            above = residuals.astype(np.float32) > 0
            alpha = np.float32(self.ranks.alpha)
            pull = np.where(above, alpha, alpha - np.float32(1.0))
        else:
            pull = np.sign(residuals)
        if self.objective != "mape":
            return Seen(pull, weights=self.weights, residuals=residuals)
        assert self.ranks.weights is not None
        hessians = None if self.weights is None else self.weights[:, None]
        return Seen(pull * self.ranks.weights[:, None], hessians, residuals=residuals)


def _version() -> tuple[int, ...]:
    import lightgbm

    return tuple(int(part) for part in lightgbm.__version__.split(".")[:2])

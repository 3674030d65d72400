"""CatBoost's percentiles: exact leaves of MAE, Quantile, MultiQuantile and MAPE.

The module also computes where their fits start.

Formulas: CalcSampleQuantile, catboost/libs/helpers/quantile.cpp;
CalcOneDimensionalOptimumConstApprox, catboost/libs/metrics/optimal_const_for_loss.h;
CalcExactLeafDeltas, catboost/private/libs/algo/approx_calcer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, BoolArray, FloatArray, LeafArray
from axil.structure import Ranks
from axil.structure.ranks import Picks

PERCENTILES = ("MAE", "Quantile", "MultiQuantile", "MAPE")  # losses
EPSILON = float(np.finfo(np.float64).eps)  # DBL_EPSILON
BISECTED = 100  # rows from which on CatBoost bisects for the value
BISECTIONS = 100


@dataclass(frozen=True)
class CatBoostPercentile(Ranks):
    """The percentile rule of CatBoost: the first row that reaches the share, less or plus delta.

    Sample weights count in the base alone, and in leaves of several quantiles. MAPE divides weights
    by the sizes of the numbers that it takes a median of, which are targets for the base and
    residuals for leaves.
    """

    delta: float = 0.0
    weighs_leaves: bool = False
    by_size: bool = False  #: MAPE

    @property
    def follows_targets(self) -> bool:
        """Whether the weights are those of MAPE, which follow the targets."""
        return self.by_size

    def even(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the first row that reaches the share."""
        reached = np.ceil(counts * self.alpha - EPSILON).astype(np.int64)
        return np.clip(reached, 1, counts) - 1, np.zeros(len(counts))

    def weighed(self, weights: FloatArray) -> tuple[int, int, float]:
        """Return the first row that reaches the share."""
        need = self.alpha * _total(weights) - EPSILON
        at = min(int(np.searchsorted(np.cumsum(weights), need, side="left")), len(weights) - 1)
        return at, at, 0.0

    def picks(
        self,
        leaf: LeafArray,
        residuals: FloatArray,
        draw: AnyArray,
        is_base: bool = False,
    ) -> Picks:
        """Return the picked rows, and the sides of them on which delta puts the value."""
        if self.weighs_leaves or is_base:
            weights = self.weights
        else:
            weights = None
        if self.by_size:
            if weights is None:
                ones = np.ones(len(leaf), dtype=np.float32)
            else:
                ones = weights.astype(np.float32)
            weights = (
                ones / np.maximum(np.float32(1.0), np.abs(residuals.astype(np.float32)))
            ).astype(np.float64)
        picked = super(CatBoostPercentile, replace(self, weights=weights)).picks(
            leaf, residuals, draw
        )
        if self.delta <= 0:
            return picked
        value = np.zeros(int(leaf.max()) + 1)
        n = int(leaf.max()) + 1
        value[picked.leaves] = residuals[picked.rows[0]]
        if weights is None:
            w = np.ones(len(leaf))
        else:
            w = weights
        below = residuals < value[leaf]
        equal = residuals == value[leaf]
        above = self._searched(leaf, residuals, value, n)[
            leaf
        ]  # the search ends above these values
        below = below | (equal & above)
        equal = equal & ~above
        lower_weight, equal_weight, total = (
            np.bincount(leaf, w * is_counted, n)[picked.leaves]
            for is_counted in (below, equal, np.ones(len(leaf)))
        )
        down = lower_weight + equal_weight * self.alpha >= total * self.alpha - EPSILON
        percentiles = residuals[picked.rows[0]]
        values = percentiles + np.where(down, -self.delta, self.delta)
        # The sum is kept in float32. It decides on which side residuals of later trees are.
        rounded_values = values.astype(np.float32).astype(np.float64)
        return replace(picked, shifts=rounded_values - percentiles)

    @staticmethod
    def _searched(leaf: LeafArray, residuals: FloatArray, value: FloatArray, n: int) -> BoolArray:
        """Return for which leaves, (n,), the binary search of CatBoost ends above the percentile.

        A leaf of many rows is searched by bisection. It meets every value but some that are zero,
        or nearly: it approaches those from above, where no step falls on them.
        """
        lower = np.full(n, np.inf)
        upper = np.full(n, -np.inf)
        np.minimum.at(lower, leaf, residuals)
        np.maximum.at(upper, leaf, residuals)
        is_searched = np.bincount(leaf, minlength=n) >= BISECTED
        is_close_to_zero = np.abs(value) <= (upper - lower) * 2.0**-47
        leaves = np.flatnonzero(is_searched & is_close_to_zero)
        lower = lower[leaves] - EPSILON
        upper = upper[leaves]
        for _ in range(BISECTIONS):
            middle = (lower + upper) / 2
            is_reached = middle >= value[leaves]
            upper = np.where(is_reached, middle, upper)
            lower = np.where(is_reached, lower, middle)
        ends_above = np.zeros(n, dtype=np.bool_)
        ends_above[leaves] = upper > value[leaves]
        return ends_above


def _total(weights: FloatArray) -> float:
    """Return the sum of weights, added one after the other."""
    return float(np.cumsum(weights)[-1])


def rules(loss: dict[str, Any], weights: FloatArray | None) -> list[CatBoostPercentile]:
    """Return the rule of each output, from the settings of the loss."""
    name = str(loss["type"])
    settings = dict(loss.get("params", {}))
    alphas = [float(alpha) for alpha in str(settings.get("alpha", "0.5")).split(",")]
    if name == "MAPE":
        return [CatBoostPercentile(0.5, weights, by_size=True)]
    delta = float(settings.get("delta", 1e-6))
    return [
        CatBoostPercentile(alpha, weights, False, delta, name == "MultiQuantile")
        for alpha in alphas
    ]

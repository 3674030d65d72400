"""LightGBM's percentiles: leaf values of quantile, regression_l1 and mape.

The module also computes where their fits start.

Formulas: PercentileFun, WeightedPercentileFun and RenewTreeOutput,
src/objective/regression_objective.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.samplers import IterationGradients
from axil.arrays import FloatArray, IntArray
from axil.structure import Ranks
from axil.structure.ranks import Picks

PERCENTILES = ("quantile", "regression_l1", "mape")  # objectives


@dataclass(frozen=True)
class Percentile(Ranks):
    """The percentile rule of LightGBM.

    lambda_l1, lambda_l2 and path_smooth do not change these values.
    """

    #: from 4.7 on; before, weighted percentiles were mixed by the weights of the rows one further
    #: up
    own_segment: bool = True

    by_size: bool = (
        False  #: MAPE: whether ``weights`` are those of the samples over the sizes of the targets
    )
    sample_weights: FloatArray | None = (
        None  #: (N,) which `with_targets` of MAPE begins from; None: all one
    )

    @classmethod
    def of_mape(
        cls, targets: FloatArray, sample_weights: FloatArray | None, own_segment: bool
    ) -> Percentile:
        """Return the median of MAPE, which weighs a row by 1 / max(1, |target|), in float32."""
        weights = np.float32(1.0) / np.maximum(np.float32(1.0), np.abs(targets.astype(np.float32)))
        if sample_weights is not None:
            weights = weights * sample_weights.astype(np.float32)
        return cls(0.5, weights.astype(np.float64), False, own_segment, True, sample_weights)

    @property
    def follows_targets(self) -> bool:
        """Whether the weights are those of MAPE, which follow the targets."""
        return self.by_size

    def with_targets(self, targets: FloatArray) -> Percentile:
        """Return the rule for other targets, (N,)."""
        if self.by_size:
            return self.of_mape(targets, self.sample_weights, self.own_segment)
        return self

    def of_rows(self, rows: IntArray) -> Ranks:
        """Return the rule of a fit that has only these rows.

        Rows that do not remain are dropped again.
        """
        rule = super().of_rows(rows)
        if self.by_size:
            return rule
        return replace(rule, weights=_handed_on(rule.weights))

    def even(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], FloatArray]:
        """Return ranks and shares by linear interpolation, counted from the largest residual."""
        place = (counts - 1) * (1.0 - self.alpha)
        down = place.astype(np.int64) + 1  # of the upper row
        last = down >= counts
        return np.where(last, 0, counts - down - 1), np.where(last, 0.0, 1.0 - (place - (down - 1)))

    def weighed(self, weights: FloatArray) -> tuple[int, int, float]:
        """Return the two rows around the percentile by weight, and the share of the second.

        Where the upper row weighs less than one, it is the lower row alone.
        """
        n = len(weights)
        total = np.cumsum(weights)
        threshold = total[-1] * self.alpha
        at = min(int(np.searchsorted(total, threshold, side="right")), n - 1)
        if at in (0, n - 1):
            return at, at, 0.0
        if self.own_segment:
            lower, upper = (at - 1, at)
        else:
            lower, upper = (at, at + 1)
        if total[upper] - total[lower] < 1.0:
            return lower, lower, 0.0
        return at - 1, at, float((threshold - total[lower]) / (total[upper] - total[lower]))

    def base(self, targets: FloatArray, picked: Picks) -> float:
        """Return the percentile between two targets in float32; their difference is rounded."""
        lower, upper = targets[picked.rows[:, 0]].astype(np.float32)
        if self.weights is None:
            return float(np.float32(upper - np.float64(upper - lower) * picked.shares[0, 0]))
        return float(np.float32(picked.shares[1, 0] * np.float64(upper - lower) + lower))


@dataclass(frozen=True)
class Gradients:
    """The gradients by which rows are sampled, and the ranks by which leaves get their values."""

    objective: str
    ranks: Percentile
    weights: FloatArray | None  #: (N,) of the samples

    @classmethod
    def of(
        cls, objective: str, alpha: float, targets: FloatArray, weights: FloatArray | None
    ) -> Gradients:
        """Return the gradients of a fit to targets (N,) in float32.

        ``alpha`` is that of the objective.
        """
        weights = _handed_on(weights)
        own_segment = _version() >= (4, 7)
        if objective == "mape":
            return cls(objective, Percentile.of_mape(targets, weights, own_segment), weights)
        own_alpha = 0.5
        if objective == "quantile":
            own_alpha = float(np.float32(alpha))
        return cls(objective, Percentile(own_alpha, weights, own_segment=own_segment), weights)

    def start(self, targets: FloatArray) -> tuple[float, float]:
        """Return the initial prediction and its rounding error in float32.

        It is the same percentile of the targets (N,).
        """
        picked = self.ranks.picks(
            np.zeros(len(targets), dtype=np.int64), targets, np.ones(len(targets))
        )
        return self.ranks.base(targets, picked), 2.0**-22 * float(
            np.abs(targets[picked.rows[:, 0]]).max()
        )

    def seen(self, residuals: FloatArray) -> IterationGradients:
        """Return the gradients at these residuals, (N, 1)."""
        if self.objective == "quantile":
            above = residuals.astype(np.float32) > 0
            alpha = np.float32(self.ranks.alpha)
            pull = np.where(above, alpha, alpha - np.float32(1.0))
        else:
            pull = np.sign(residuals)
        if self.objective != "mape":
            return IterationGradients(pull, weights=self.weights, residuals=residuals)
        assert self.ranks.weights is not None
        if self.weights is None:
            hessians = None
        else:
            hessians = self.weights[:, None]
        return IterationGradients(pull * self.ranks.weights[:, None], hessians, residuals=residuals)


def _handed_on(weights: FloatArray | None) -> FloatArray | None:
    """Return the weights (N,) as Dataset.set_weight passes them on: None for ones."""
    if weights is not None and bool(np.all(weights == 1.0)):
        return None
    return weights


def _version() -> tuple[int, ...]:
    import lightgbm

    return tuple(int(number) for number in lightgbm.__version__.split(".")[:2])

"""scikit-learn's percentiles: leaf values of absolute_error, quantile and huber.

The models are boosting, trees and forests.

Formulas: fit_intercept_only, sklearn/_loss/loss.py; _weighted_percentile, sklearn/utils/stats.py;
sklearn/dummy.py; and the criterion MAE, sklearn/tree/_criterion.pyx.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from axil.aliases import ForeignModel
from axil.arrays import AnyArray, FloatArray, LeafArray
from axil.structure import Ranks
from axil.structure.ranks import Picks

PERCENTILES = ("absolute_error", "quantile", "huber")  # losses


@dataclass(frozen=True)
class SklearnPercentile(Ranks):
    """The percentile of NumPy; with weights the first row that reaches the share of the weights."""

    averages: bool = (
        False  #: whether the mean of two rows is taken where a row has just the share, as trees do
    )
    weighs_leaves: bool = (
        False  #: as gradient boosting weighs leaves where no weights were given: by ones
    )

    def even(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], FloatArray]:
        """Return ranks and the shares of the next ones, linear between ranks."""
        place = np.asarray((counts - 1) * self.alpha, dtype=np.float64)
        rank = np.floor(place).astype(np.int64)
        return rank, place - rank

    def weighed(self, weights: FloatArray) -> tuple[int, int, float]:
        """Return the first row that reaches the share of the weights, or its mean with the next."""
        total = np.cumsum(weights)
        threshold = self.alpha * total[-1] or np.nextafter(0.0, 1.0)
        at = min(int(np.searchsorted(total, threshold, side="left")), len(weights) - 1)
        if not self.averages or total[at] != threshold:
            return at, at, 0.0
        return at, min(int(np.searchsorted(total, threshold, side="right")), len(weights) - 1), 0.5

    def picks(
        self,
        leaf: LeafArray,
        residuals: FloatArray,
        draw: AnyArray,
        is_base: bool = False,
    ) -> Picks:
        """Return the picked rows."""
        if self.weighs_leaves and not is_base and self.weights is None:
            rule = replace(self, weights=np.ones(len(leaf)))
        else:
            rule = self
        return super(SklearnPercentile, rule).picks(leaf, residuals, draw, is_base)


def share_below(model: ForeignModel) -> float:
    """Return the share of rows below a model's percentile.

    scikit-learn computes it in this way from the model's quantile.
    """
    if model.loss in ("absolute_error", "huber"):
        return 0.5
    return 100 * float(model.alpha if hasattr(model, "alpha") else model.quantile) / 100


@dataclass(frozen=True)
class SklearnHuber(SklearnPercentile):
    """The median of a leaf's residuals, and the mean of their distances from it, cut off at delta.

    See HuberLoss, sklearn/_loss/loss.py. Delta is a percentile of the sizes of all residuals that a
    stage sees: it is held, and so is which rows are beyond it.
    """

    quantile: float = 0.9  #: of the sizes of residuals
    sampled: bool = (
        False  #: whether the rows of a stage were sampled; delta is then that of all rows
    )
    spreads = True

    def picks(
        self,
        leaf: LeafArray,
        residuals: FloatArray,
        draw: AnyArray,
        is_base: bool = False,
    ) -> Picks:
        """Return each leaf's median, the rows within delta of it, and the sum of those beyond."""
        medians = super().picks(leaf, residuals, draw, is_base)
        if is_base:
            return medians
        rows = np.flatnonzero(draw)
        sizes = np.sort(np.abs(residuals if self.sampled else residuals[rows]))
        delta = sizes[replace(self, alpha=self.quantile).weighed(np.ones(len(sizes)))[0]]
        at = np.searchsorted(medians.leaves, leaf[rows])
        n = len(medians.leaves)
        apart = residuals[rows] - residuals[medians.rows[0]][at]
        beyond = np.abs(apart) > delta
        counts = np.bincount(at, minlength=n)
        shares = np.stack([(1 + np.bincount(at[beyond], minlength=n)) / counts, np.zeros(n)])
        free = ~beyond & (rows != medians.rows[0][at])
        constants = np.bincount(at[beyond], delta * np.sign(apart[beyond]), n) / counts
        return Picks(
            medians.leaves,
            medians.rows[[0, 0]],
            shares,
            constants,
            rows[free],
            at[free],
            1.0 / counts,
        )

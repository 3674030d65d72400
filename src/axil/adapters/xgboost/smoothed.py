"""Absolute error and quantiles as XGBoost fits them from 3.4 on: Newton steps of smoothed losses.

Until 3.3 a leaf took a percentile of its rows' residuals (`percentile`). From 3.4 on both losses
are smoothed on the scale S of the residuals, which XGBoost computes in every round, for each
output, over all rows. With r = prediction - target:

    S = (sum w sqrt|r| / sum w)^2
    absolute error    g = w r d, h = w d,                      d = S / sqrt(S^2 + r^2)
    quantile alpha    g = w S / 2 (tanh x + 1 - 2 alpha),      x = r / (0.04 S)
                      h = 12.5 w max(tanh(x) / x, 0.0003)

Formulas: src/objective/regression_obj.cu, quantile_obj.cu, src/tree/fit_stump.cc and
src/common/stats.h. All is computed in float32, sums and their quotients in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.adapters.xgboost.percentile import XGBoostPercentile
from axil.aliases import ForeignObject
from axil.arrays import FloatArray
from axil.trees.losses import Loss, Slopes, Squared

SMOOTHING = np.float32(0.04)  # width of the smoothed corner of a quantile loss, in units of S
MIN_RATIO = np.float32(3e-4)  # below which tanh(x) / x does not fall
MIN_TOTAL_WEIGHT = 1e-6  # below which XGBoost takes S for 0
MIN_STUMP_HESSIAN = 1e-6  # of the Newton step that a fit to absolute error starts with


@dataclass(frozen=True, kw_only=True)
class SmoothedLoss(Squared):
    """A loss of residuals that is smoothed on their scale in each round."""

    weighted: bool = (
        False  #: whether the rows of the fit have weights: without them quantiles are interpolated
    )
    scale: FloatArray | None = None  #: (K,) S of one round; None before `of_round`

    smooth = False
    pooled = True

    def of_round(self, y: FloatArray, F: FloatArray, weights: FloatArray) -> Loss:
        """Return this loss with the scale of a round.

        The scale follows from targets and scores (N, K), and from the row weights (N,).
        """
        real = np.float32 if self.single else np.float64
        return replace(
            self, scale=_residual_scales(y.astype(real), F.astype(real), weights.astype(real))
        )

    def start_of(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the initial scores, (K,), of a fit to targets (N, K) with these row weights."""
        return np.array([self._start(k, column, weights) for k, column in enumerate(y.T)])

    def stored_means(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the initial scores, which are predictions."""
        return self.start_of(y, weights)

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        assert self.scale is not None  # `of_round` has put it in
        g, h = self.gradients(F - y, self.scale)
        return Slopes(g, h, np.nan, np.nan, np.nan)

    def _single(
        self, y: ForeignObject, F: ForeignObject, w: ForeignObject
    ) -> tuple[ForeignObject, ForeignObject]:
        assert self.scale is not None
        g, h = self.gradients(F - y, self.scale.astype(np.float32))
        return w * g, w * h

    @abstractmethod
    def gradients(self, residuals: Any, scale: Any) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h (N, K) without row weights.

        They have the precision of residuals and scales (K,).
        """

    @abstractmethod
    def _start(self, output: int, targets: FloatArray, weights: FloatArray) -> float:
        """Return the initial score of a fit to these targets (N,) of one output."""


@dataclass(frozen=True, kw_only=True)
class SmoothedAbsoluteError(SmoothedLoss):
    """The absolute error, smoothed within S of the target."""

    name = "smoothed absolute error"

    def gradients(self, residuals: Any, scale: Any) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h; see the class."""
        norms = np.hypot(scale, residuals)
        curvature = np.ones_like(residuals)
        np.divide(scale, norms, out=curvature, where=norms > 0)
        return residuals * curvature, curvature

    def _start(self, output: int, targets: FloatArray, weights: FloatArray) -> float:
        """Return the mean plus one Newton step from it, without regularisation."""
        mean = float(np.average(targets, weights=weights))
        residuals = mean - targets[:, None]
        scale = _residual_scales(targets[:, None], np.full_like(residuals, mean), weights)
        g, h = self.gradients(residuals, scale)
        return mean - float(weights @ g[:, 0]) / max(float(weights @ h[:, 0]), MIN_STUMP_HESSIAN)


@dataclass(frozen=True, kw_only=True)
class SmoothedQuantile(SmoothedLoss):
    """Quantile losses, one for each output.

    The corner of each is smoothed within 0.04 S of the target.
    """

    alphas: tuple[float, ...]  #: (K,) as XGBoost keeps them, in float32

    name = "smoothed quantile"

    def gradients(self, residuals: Any, scale: Any) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h; see the class. They are zeros for an output without residuals."""
        real = residuals.dtype.type
        has_scale = scale > 0
        x = residuals / np.where(has_scale, real(SMOOTHING) * scale, real(1))
        tanh_x = np.tanh(x.astype(np.float64)).astype(real)
        ratios = np.ones_like(x)
        np.divide(tanh_x, x, out=ratios, where=x != 0)
        ratios = np.maximum(ratios, real(MIN_RATIO))
        alphas = np.array(self.alphas, dtype=real)
        g = real(0.5) * scale * ((tanh_x + real(1)) - real(2) * alphas)
        h = real(np.float32(0.5) / SMOOTHING) * ratios
        return np.where(has_scale, g, real(0)), np.where(has_scale, h, real(0))

    def _start(self, output: int, targets: FloatArray, weights: FloatArray) -> float:
        """Return the quantile of the targets."""
        counted = np.flatnonzero(weights)
        targets = targets[counted]
        row_weights = None
        if self.weighted:
            row_weights = weights[counted]
        quantile = XGBoostPercentile(self.alphas[output], row_weights)
        all_rows = np.zeros(len(targets), dtype=np.intp)
        return float(quantile.values(all_rows, targets, np.ones(len(targets)), 1)[0])


def _residual_scales(y: FloatArray, F: FloatArray, weights: FloatArray) -> FloatArray:
    """Return S (K,) of targets and scores (N, K).

    It is in float64 or as float32 rounds it, by the type of the arrays.
    """
    total_weight = weights.sum(dtype=np.float64)
    if total_weight < MIN_TOTAL_WEIGHT:
        return np.zeros(y.shape[1])
    roots = weights[:, None] * np.sqrt(np.abs(F - y))
    mean_roots = roots.sum(axis=0, dtype=np.float64) / total_weight
    return np.asarray((mean_roots * mean_roots).astype(y.dtype), dtype=np.float64)

"""XGBoost's percentiles: leaf values of reg:absoluteerror and reg:quantileerror.

The module also computes where their fits start.

Formulas: Quantile and WeightedQuantile, src/common/stats.h, and UpdateTreeLeaf,
src/objective/adaptive.cc, up to XGBoost 3.3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.structure import Ranks

PERCENTILES = ("reg:absoluteerror", "reg:quantileerror")  # objectives


@dataclass(frozen=True)
class XGBoostPercentile(Ranks):
    """The percentile rule of XGBoost.

    Settings of sums (reg_lambda, reg_alpha, max_delta_step) do not reach its leaf values.
    """

    def even(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], FloatArray]:
        """Return ranks and shares by linear interpolation, with the first rank at 1 / (n + 1)."""
        place = self.alpha * (counts + 1.0)
        rank = np.floor(place).astype(np.int64) - 1
        low = self.alpha <= 1.0 / (counts + 1.0)
        high = self.alpha >= counts / (counts + 1.0)
        share = np.where(low | high, 0.0, place - 1.0 - rank)
        return np.where(low, 0, np.where(high, counts - 1, rank)), share

    def weighed(self, weights: FloatArray) -> tuple[int, int, float]:
        """Return the first row whose cumulated weight, all in float32, reaches the share."""
        total = np.cumsum(weights.astype(np.float32), dtype=np.float32)
        threshold = np.float32(np.float64(total[-1]) * self.alpha)
        at = min(int(np.searchsorted(total, threshold, side="left")), len(weights) - 1)
        return at, at, 0.0


def alphas(objective: dict[str, Any], n_outputs: int) -> list[float]:
    """Return the share of rows below the percentile of each output, in float32."""
    stated = json.loads(str(objective.get("quantile_loss_param", {}).get("quantile_alpha", "0.5")))
    shares = np.asarray(stated, dtype=np.float32).ravel().astype(np.float64)
    return [float(alpha) for alpha in np.broadcast_to(shares, n_outputs)]

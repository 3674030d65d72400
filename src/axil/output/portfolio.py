"""Portfolio: the weights of each prediction as positions in the training targets, and how they turn over.

A forecast of a smoother or of trees is a portfolio of past targets, prediction = intercept + sum_j k_j y_j. Its measures are
those of a portfolio:

    net = sum k,  gross = sum |k|,  short = sum of the negative k,  gross + 2 short = net
    top_share = sum |k| of the largest rows / gross,  effective_size = gross^2 / sum k^2
    turnover = sum_j |k_j - k_j of the query before|

Two more are of relevance-based prediction: fit, the squared correlation of weights and targets, and asymmetry, half the squared
difference between the correlations of the targets with the positive weights and with the negative ones.

Turnover needs the weights of one query more: the last of the batch before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import issparse

from axil.arrays import FloatArray
from axil.output.predictions import ROUNDING, WeightedSums, ratio


class Portfolio:
    """Portfolios of queries that come batch by batch, in their order."""

    def __init__(self, top: float, shares: FloatArray):
        """``top``: the share of training rows, the largest first, that ``top_share`` is about; ``shares`` of sum |weight|."""
        self.top, self.shares = top, shares
        self._before: FloatArray | None = (
            None  # (1, n_train) or (K, n_train): the weights of the query before
        )

    def columns(self, sums: WeightedSums) -> dict[str, Any]:
        """The columns of `Explanation.statistics`."""
        own = sums.weights.ndim == 3
        parts, n = (sums.weights if own else [sums.weights]), len(sums)
        shares, turnover, fit, asymmetry = np.zeros((4, len(parts), n))
        targets = np.asarray(sums.targets, dtype=np.float64).reshape(len(sums.targets), -1)
        last = np.zeros((len(parts), len(sums.targets)))
        for k, weights in enumerate(parts):
            held = max(
                1, math.ceil(self.top * weights.shape[1] * (1 - ROUNDING))
            )  # rows that the share is, rounded up
            before = None if self._before is None else self._before[k]
            for i in range(n):
                row = weights[[i]].toarray()[0] if issparse(weights) else weights[i]
                shares[k, i] = np.partition(np.abs(row), -held)[-held:].sum()
                turnover[k, i] = np.nan if before is None else np.abs(row - before).sum()
                fit[k, i], asymmetry[k, i] = _relevance(row, targets[:, k])
                before = row
            if n:
                last[k] = before
        if n:
            self._before = last
        gross = sums.sizes.reshape(shares.shape)
        net = sums.totals.reshape(shares.shape)
        counts = sums.curves(self.shares, np.zeros(0, dtype=np.intp))[0].transpose(1, 0, 2)
        counted: dict[str, Any] = {
            f"rows for {share:.6g}%": counts[:, :, i] for i, share in enumerate(100 * self.shares)
        }
        made: dict[str, Any] = {
            "effective_size": sums.effective_size.reshape(shares.shape),
            "negative_share": sums.negative_share.reshape(shares.shape),
            **counted,
            "net": net,
            "gross": gross,
            "short": -np.maximum(gross - net, 0.0) / 2 + 0.0,
            "top_share": ratio(shares, gross),
            "turnover": turnover,
        }
        # weights that several outputs share have no one target
        if targets.shape[1] == len(parts) and not sums.additive:
            made |= {"fit": fit, "asymmetry": asymmetry}
        labels = {"query": np.repeat(sums.query_index, len(parts))}
        if own and sums.outputs is not None:
            labels["output"] = np.tile(sums.outputs, n)
        return labels | {name: values.T.ravel() for name, values in made.items()}


def _relevance(weights: FloatArray, targets: FloatArray) -> tuple[float, float]:
    """fit and asymmetry of one query; nan where its weights, or the targets, are all the same."""
    longs, shorts = (
        _correlation(np.maximum(weights, 0), targets),
        _correlation(np.minimum(weights, 0), targets),
    )
    return _correlation(weights, targets) ** 2, (
        np.nan_to_num(longs) - np.nan_to_num(shorts)
    ) ** 2 / 2


def _correlation(a: FloatArray, b: FloatArray) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else np.nan

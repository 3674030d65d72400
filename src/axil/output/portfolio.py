"""Measure the weights of each prediction as a portfolio of the training targets.

The measures include how the portfolio turns over.

A forecast of a smoother or of trees is a portfolio of past targets, prediction = intercept + sum_j
k_j y_j. Its measures are those of a portfolio:

    net = sum k,  gross = sum |k|,  short = sum of the negative k,  gross + 2 short = net
    top_share = sum |k| of the largest rows / gross,  effective_size = gross^2 / sum k^2
    turnover = sum_j |k_j - k_j of the previous query|

Two more are of relevance-based prediction: fit, the squared correlation of weights and targets, and
asymmetry, half the squared difference between the correlations of the targets with the positive
weights and with the negative ones.

Turnover also needs the weights of the last query of the previous batch.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import issparse

from axil.arrays import AnyArray, FloatArray
from axil.output.predictions import ROUNDING, WeightedSums, ratio

Measures: TypeAlias = dict[str, FloatArray]


class Portfolio:
    """The portfolios of explained rows, batch by batch, in their order.

    Parameters
    ----------
    top : float
        The share of training rows, the largest first, that ``top_share`` is about.
    shares : ndarray
        The shares of sum |weight| whose numbers of rows are counted.
    """

    def __init__(self, top: float, shares: FloatArray):
        self.top = top
        self.shares = shares
        # (1, n_train) or (K, n_train): the weights of the previous query
        self._previous: FloatArray | None = None

    def columns(self, sums: WeightedSums) -> dict[str, Any]:
        """Return the columns of `Explanation.concentration` for a batch."""
        has_own_weights = sums.weights.ndim == 3
        if has_own_weights:
            weights_by_output = sums.weights
        else:
            weights_by_output = [sums.weights]
        n_sets = len(weights_by_output)
        targets = np.asarray(sums.targets, dtype=np.float64).reshape(len(sums.targets), -1)
        measures = self._measures_by_row(weights_by_output, targets, len(sums))
        shape = (n_sets, len(sums))
        gross = sums.sizes.reshape(shape)
        net = sums.totals.reshape(shape)
        columns: dict[str, AnyArray] = {
            "effective_size": sums.effective_size.reshape(shape),
            "negative_share": sums.negative_share.reshape(shape),
        }
        counts, _ = sums.curves(self.shares, np.zeros(0, dtype=np.intp))
        for i, share in enumerate(100 * self.shares):
            columns[f"rows for {share:.6g}%"] = counts[:, :, i].T
        columns["net"] = net
        columns["gross"] = gross
        columns["short"] = -np.maximum(gross - net, 0.0) / 2 + 0.0
        columns["top_share"] = ratio(measures["largest"], gross)
        columns["turnover"] = measures["turnover"]
        # outputs that share their weights have several targets
        if targets.shape[1] == n_sets and not sums.additive:
            columns["fit"] = measures["fit"]
            columns["asymmetry"] = measures["asymmetry"]
        labels: dict[str, AnyArray] = {"query": np.repeat(sums.query_index, n_sets)}
        if has_own_weights and sums.outputs is not None:
            labels["output"] = np.tile(sums.outputs, len(sums))
        return labels | {name: values.T.ravel() for name, values in columns.items()}

    def _measures_by_row(self, weights_by_output: Any, targets: FloatArray, n: int) -> Measures:
        """Return the measures (S, n) that need the weights of one explained row at a time."""
        n_sets = len(weights_by_output)
        names = ("largest", "turnover", "fit", "asymmetry")
        measures = {name: np.zeros((n_sets, n)) for name in names}
        last = np.zeros((n_sets, len(targets)))
        for k, weights in enumerate(weights_by_output):
            n_top = max(1, math.ceil(self.top * weights.shape[1] * (1 - ROUNDING)))
            if self._previous is None:
                previous = None
            else:
                previous = self._previous[k]
            for i in range(n):
                if issparse(weights):
                    row = weights[[i]].toarray()[0]
                else:
                    row = weights[i]
                measures["largest"][k, i] = np.partition(np.abs(row), -n_top)[-n_top:].sum()
                measures["turnover"][k, i] = np.nan
                if previous is not None:
                    measures["turnover"][k, i] = np.abs(row - previous).sum()
                measures["fit"][k, i], measures["asymmetry"][k, i] = _relevance(row, targets[:, k])
                previous = row
            if n:
                last[k] = previous
        if n:
            self._previous = last
        return measures


def _relevance(weights: FloatArray, targets: FloatArray) -> tuple[float, float]:
    """Return fit and asymmetry of one explained row; nan if weights or targets are all the same."""
    positive = _correlation(np.maximum(weights, 0), targets)
    negative = _correlation(np.minimum(weights, 0), targets)
    fit = _correlation(weights, targets) ** 2
    asymmetry = (np.nan_to_num(positive) - np.nan_to_num(negative)) ** 2 / 2
    return fit, float(asymmetry)


def _correlation(first: FloatArray, second: FloatArray) -> float:
    """Return the correlation of two arrays; nan if one of them is constant."""
    first = first - first.mean()
    second = second - second.mean()
    size = float(np.sqrt((first @ first) * (second @ second)))
    if size == 0:
        return np.nan
    return float(first @ second) / size

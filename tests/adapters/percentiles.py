"""Percentiles of residuals, and the weights that they lead to, in plain NumPy: the oracle for medians and quantiles.

A rule takes the weights of a leaf's rows, from the smallest residual to the largest, and gives two ranks and the share of the
second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rule = Callable[[Array], tuple[int, int, float]]


def picked(
    rule: Rule, residuals: Array, weights: Array, rows: NDArray[np.intp]
) -> list[tuple[int, float]]:
    """Rows with their shares, of the rows of one leaf."""
    order = sorted(rows.tolist(), key=lambda i: (residuals[i], i))
    first, second, share = rule(np.array([weights[i] for i in order]))
    return [(order[first], 1.0 - share), (order[second], share)]


def replayed(
    rule: Rule,
    y: Array,
    weights: Array,
    leaves: NDArray[np.integer],  # type: ignore[type-arg]
    rates: Sequence[float],
    base: float | None = None,
    offsets: Array | float = 0.0,
) -> tuple[Array, Array]:
    """(N,) predictions and (N, N) weights of boosting by percentiles, tree after tree; leaves are (N, T).

    The base is the same percentile of the targets where it is not given.
    """
    n = len(y)
    F, K = np.zeros(n) + offsets, np.zeros((n, n))
    if base is None:
        for row, share in picked(rule, y, weights, np.arange(n)):
            F += share * y[row]
            K[:, row] += share
    else:
        F += base
    for leaf, rate in zip(leaves.T, rates):
        residuals, made = y - F, np.eye(n) - K
        for number in np.unique(leaf):
            rows = np.flatnonzero(leaf == number)
            for row, share in picked(rule, residuals, weights, rows):
                F[rows] += rate * share * residuals[row]
                K[rows] += rate * share * made[row]
    return F, K

"""Sums whose order is fixed for every column by itself: what is asked with it changes no bit of an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from axil.arrays import FloatArray
from axil.kernels import MEASURES
from axil.kernels.cpu import column_sums

BLOCK_ROWS = (
    2048  # whose sums are made one after the other, then added block by block; as in the core
)


def weighted(
    weights: Any, values: FloatArray | None = None, measure: str = "weight", n_threads: int = 1
) -> FloatArray:
    """(n, M), or (K, n, M): ``sum_j f(k_j) v_j`` of weights (n, N), or (K, n, N), and values (N, M); None for ones.

    f is the weight itself, its size or its square. Sparse weights, in the order of their rows, give
    the bits of dense ones.
    """
    if weights.ndim == 3:
        return np.stack([weighted(own, values, measure, n_threads) for own in weights])
    if values is None:
        own = np.ones((weights.shape[1], 1))
    else:
        own = np.ascontiguousarray(values, dtype=np.float64)
    if issparse(weights):
        return _sparse(weights, own, measure)
    return column_sums(weights.T, own, MEASURES.index(measure), n_threads)


def _sparse(weights: Any, values: FloatArray, measure: str) -> FloatArray:
    if weights.has_sorted_indices:
        ordered = weights
    else:
        ordered = weights.sorted_indices()
    (n, n_rows), data = ordered.shape, ordered.data
    if measure == "weight":
        found = data
    elif measure == "size":
        found = np.abs(data)
    else:
        found = data * data
    blocks = -(-n_rows // BLOCK_ROWS)
    place = (
        np.repeat(np.arange(n) * blocks, np.diff(ordered.indptr)) + ordered.indices // BLOCK_ROWS
    )
    sums = np.zeros((n, values.shape[1]))
    for m, own in enumerate(values.T):  # bincount and cumsum add one number after the other
        parts = np.bincount(place, found * own[ordered.indices], n * blocks).reshape(n, blocks)
        if blocks:
            sums[:, m] = np.cumsum(parts, axis=1)[:, -1]
    return sums

"""Sums in a fixed order for every column by itself: other columns change no bit of an answer."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from axil.aliases import ForeignObject
from axil.arrays import FloatArray
from axil.kernels import MEASURES
from axil.kernels.cpu import column_sums

#: Rows whose sums are made one after the other, then added block by block; as in the core.
BLOCK_ROWS = 2048


def weighted(
    weights: FloatArray | ForeignObject,
    values: FloatArray | None = None,
    measure: str = "weight",
    n_threads: int = 1,
) -> FloatArray:
    """Return ``sum_j f(k_j) v_j``, (n, M) or (K, n, M).

    Parameters
    ----------
    weights : array or sparse array of shape (n, N) or (K, n, N)
        Sparse weights, in the order of their rows, give the bits of dense ones.
    values : array of shape (N, M), optional
        Ones by default.
    measure : "weight", "size" or "square"
        Whether f is the weight, its size or its square.
    n_threads : int
    """
    if weights.ndim == 3:
        return np.stack([weighted(rows, values, measure, n_threads) for rows in weights])
    if values is None:
        summed = np.ones((weights.shape[1], 1))
    else:
        summed = np.ascontiguousarray(values, dtype=np.float64)
    if issparse(weights):
        return _sparse(weights, summed, measure)
    return column_sums(weights.T, summed, MEASURES.index(measure), n_threads)


def _sparse(weights: ForeignObject, values: FloatArray, measure: str) -> FloatArray:
    """Return the sums of sparse weights (n, N), with the bits of those of dense ones."""
    if not weights.has_sorted_indices:
        weights = weights.sorted_indices()
    n, n_rows = weights.shape
    measured = weights.data
    if measure == "size":
        measured = np.abs(measured)
    elif measure == "square":
        measured = measured * measured
    n_blocks = -(-n_rows // BLOCK_ROWS)
    first_blocks = np.repeat(np.arange(n) * n_blocks, np.diff(weights.indptr))
    blocks = first_blocks + weights.indices // BLOCK_ROWS
    sums = np.zeros((n, values.shape[1]))
    for m, column in enumerate(values.T):
        # bincount and cumsum add one number after the other.
        products = measured * column[weights.indices]
        block_sums = np.bincount(blocks, products, n * n_blocks).reshape(n, n_blocks)
        if n_blocks:
            sums[:, m] = np.cumsum(block_sums, axis=1)[:, -1]
    return sums

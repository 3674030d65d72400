"""Tables of leaves read out by rows: weights, the largest of them, and predictions. Each costs T look-ups a row and column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import _core
from axil.structure import Structure

Array = NDArray[np.float64]
Reading = tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64], Array, Array, Array | None]


def reading(s: Structure, phi: Array, constant: Array) -> Reading:
    """What a read-out of weights reads: cells, where each tree's begin, a table by cells, a constant and the row weights.

    The weight of row j is ``w_j (constant + sum_t draw_tj phi_t[leaf_t(j)])``; phi is (L, S), the constant (S,).
    """
    return s.cells, s.cell_starts, by_cells(s, phi, drawn=True), constant, s.row_weights


def read_weights(read: Reading, first: int, out: Array, n_threads: int) -> None:
    """Fill ``out`` (rows, S) with the weights of the rows from ``first`` on."""
    _core.read_out(*read, first, out, n_threads)


def read_largest(read: Reading, scale: Array | None, values: Array, rows: NDArray[np.int64], n_threads: int) -> None:
    """Merge the largest |scale_j * weight| of each query into (S, k) weights and row numbers; see `_core.top_rows`."""
    _core.top_rows(*read, scale, values, rows, n_threads)


def read_values(s: Structure, values: Array, constant: Array, out: Array, n_threads: int) -> None:
    """Fill ``out`` (N, S): ``constant + sum_t values_t[leaf_t(j)]`` for the training rows j."""
    _core.read_out(s.cells, s.cell_starts, by_cells(s, values, drawn=False), constant, None, 0, out, n_threads)


def by_cells(s: Structure, of_leaves: Array, drawn: bool) -> Array:
    """A table of all trees by leaves, (L, S), as one by cells, times the draws where ``drawn``."""
    if len(s.draws) == 1:
        return of_leaves
    trees = (of_leaves[s.starts[t] : s.starts[t + 1]] for t in range(s.n_trees))
    return np.concatenate([s.to_cells(own, drawn) for own in trees])

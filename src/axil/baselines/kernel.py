"""The kernel of an ensemble's leaves: how alike two rows are to a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import _core
from axil.replay.walk import leaf_totals
from axil.structure import Structure

Array = NDArray[np.float64]
Leaves = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class LeafKernel:
    """``k(x, j) = phi(x)' phi(j) = sum_t [leaf_t(x) = leaf_t(j)] / W_t^2``, of features ``phi(x)[l] = [x in l] / W_l``.

    W_l is the number (the weight) of the training rows in leaf l, drawn for its tree or not. So sharing a small leaf counts
    more: this is the weighted leaf path of Brophy et al.
    """

    leaves: NDArray[np.unsignedinteger[Any]]  #: (T, N) of the training rows
    starts: NDArray[np.int64]  #: (T + 1,)
    weights: Array | None  #: (N,) row weights
    totals: Array  #: (L,) W
    features: Array  #: (L,) 1 / W, zero where a leaf has no rows
    n_threads: int

    @classmethod
    def of(cls, structure: Structure, n_threads: int) -> LeafKernel:
        """Count every leaf's rows: O(T N)."""
        leaves = structure.leaves()
        totals = leaf_totals(leaves, structure.n_leaves, structure.row_weights, n_threads)
        features = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        return cls(leaves, structure.starts, structure.row_weights, totals, features, n_threads)

    def between(self, queries: Leaves) -> Array:
        """(n, N): k of rows in these leaves, (T, n), with all training rows. O(T) a pair."""
        n = queries.shape[1]
        table = np.zeros((len(self.features), n))
        for t, leaf in enumerate(queries):
            met = self.starts[t] + leaf
            table[met, np.arange(n)] = self.features[met] ** 2
        return self.read_out(table).T

    def read_out(self, table: Array) -> Array:
        """(N, S): the sums over trees of a table over leaves, (L, S), at the training rows' leaves."""
        table, out = np.ascontiguousarray(table), np.empty((self.leaves.shape[1], table.shape[1]))
        _core.read_out(self.leaves, self.starts, table, np.zeros(table.shape[1]), None, 0, out, self.n_threads)
        return out

    def gather(self, v: Array) -> Array:
        """(L, S): ``sum over rows j in l of w_j v_j``, from (N, S)."""
        sums = np.empty((len(self.features), v.shape[1]))
        none, every = np.empty(0, dtype=np.int64), np.arange(len(self.leaves))
        _core.sweep(
            self.leaves,
            self.starts,
            np.array(v, order="C"),
            none,
            sums,
            None,
            every,
            sums,
            self.weights,
            self.n_threads,
        )
        return sums

    def gram_of_leaves(self) -> Array:
        """(L, L), upper triangle: ``sum_j w_j phi(j) phi(j)'``, the N x N kernel's counterpart among leaves. O(T^2 N)."""
        gram = np.empty((len(self.features), len(self.features)))
        _core.cooccurrence(self.leaves, self.starts, self.weights, gram, self.n_threads)
        np.fill_diagonal(gram, self.totals)
        gram *= self.features
        gram *= self.features[:, None]
        return gram

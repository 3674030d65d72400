"""The kernel of an ensemble's leaves: how alike two rows are to a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, LeafArray
from axil.kernels import Rows
from axil.kernels.choose import host_backend
from axil.structure import Structure


@dataclass(frozen=True)
class LeafKernel:
    """``k(x, j) = phi(x)' phi(j) = sum_t [leaf_t(x) = leaf_t(j)] / W_t^2``, of features ``phi(x)[l] = [x in l] / W_l``.

    W_l is the number (the weight) of the training rows in leaf l, drawn for its tree or not. So sharing a small leaf counts
    more: this is the weighted leaf path of Brophy et al.
    """

    leaves: NDArray[np.unsignedinteger[Any]]  #: (T, N) of the training rows
    rows: Rows  #: the training rows by these leaves, with their weights
    starts: NDArray[np.int64]  #: (T + 1,)
    totals: FloatArray  #: (L,) W
    features: FloatArray  #: (L,) 1 / W, zero where a leaf has no rows

    @classmethod
    def of(cls, structure: Structure, n_threads: int) -> LeafKernel:
        """Count every leaf's rows: O(T N)."""
        return cls.from_leaves(
            structure.leaves(), structure.starts, structure.row_weights, n_threads
        )

    @classmethod
    def from_leaves(
        cls,
        leaves: NDArray[np.unsignedinteger[Any]],
        starts: NDArray[np.int64],
        row_weights: FloatArray | None,
        n_threads: int,
    ) -> LeafKernel:
        """`of`, for the leaves (T, N) of training rows and their weights, None for ones."""
        rows = host_backend(n_threads).rows(leaves, starts, row_weights)
        weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
        totals = rows.leaf_sums(weights[:, None], None)[:, 0]
        features = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        return cls(leaves, rows, starts, totals, features)

    def between(self, queries: LeafArray) -> FloatArray:
        """(n, N): k of rows in these leaves, (T, n), with all training rows. O(T) per pair."""
        n, values = queries.shape[1], self.features**2
        table = np.zeros((len(values), n))
        for t, leaf in enumerate(queries):
            met = self.starts[t] + leaf.astype(np.intp)
            table[met, np.arange(n)] = values[met]
        return self.read_out(table).T

    def matches(self, queries: LeafArray) -> FloatArray:
        """(n, N): in how many trees rows in these leaves, (T, n), share a leaf with each training row."""
        out = np.empty((self.rows.n_rows, queries.shape[1]))
        self.rows.matches(np.ascontiguousarray(queries.T, dtype=self.leaves.dtype), None, 0, out)
        return out.T

    def read_out(self, table: FloatArray) -> FloatArray:
        """(N, S): the sums over trees of a table over leaves, (L, S), at the training rows' leaves."""
        table, out = np.ascontiguousarray(table), np.empty((self.rows.n_rows, table.shape[1]))
        self.rows.read_out(table, np.zeros(table.shape[1]), None, 0, out)
        return out

    def gather(self, v: FloatArray) -> FloatArray:
        """(L, S): ``sum over rows j in l of w_j v_j``, from (N, S)."""
        return self.rows.leaf_sums(v, self.rows.weights)

    def gram_of_leaves(self) -> FloatArray:
        """(L, L), upper triangle: ``sum_j w_j phi(j) phi(j)'``, the N x N kernel's counterpart among leaves. O(T^2 N)."""
        gram = np.empty((len(self.features), len(self.features)))
        self.rows.cooccurrence(0, len(self.starts) - 1, self.rows.weights, gram)
        np.fill_diagonal(gram, self.totals)
        gram *= self.features
        gram *= self.features[:, None]
        return gram

"""Shared leaves: in how many trees training rows of a shard are in the leaves of explained rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.kernels import Backend, Cells, Rows
from axil.kernels.choose import host_backend
from axil.structure import Structure

BLOCK_BYTES = 1 << 25  # of similarities that are handed on at a time
RULES = ("alike", "variance", "error", "improved")  # by which trees count; see `similar`


def leaf_rows(structures: Sequence[Structure], n_initial: int, backend: Backend) -> list[Rows]:
    """Return the training rows by leaves, without the first ``n_initial`` trees.

    All rows are in it, sampled for a tree or not.
    """
    rows = []
    for s in structures:
        starts = s.starts[n_initial:] - s.starts[n_initial]
        rows.append(backend.rows(np.ascontiguousarray(s.leaves()[n_initial:]), starts))
    return rows


def tree_spreads(n_rows: IntArray, added: FloatArray, starts: IntArray) -> FloatArray:
    """Return the variance of what each tree adds to the predictions of the rows.

    It is summed over outputs.

    Parameters
    ----------
    n_rows : array of shape (L,)
        The number of rows in each leaf, over all shards.
    added : array of shape (L, K)
        What each leaf adds to the predictions of its rows.
    starts : array of shape (T + 1,)
        The first leaf of each tree.

    Returns
    -------
    array of shape (T,)
    """
    spreads = np.zeros(len(starts) - 1)
    for t in range(len(spreads)):
        leaves = slice(starts[t], starts[t + 1])
        total = n_rows[leaves].sum()
        mean = n_rows[leaves] @ added[leaves] / total
        spreads[t] = (n_rows[leaves] @ (added[leaves] - mean) ** 2).sum() / total
    return spreads


def count_rows(leaves: LeafArray, starts: IntArray) -> IntArray:
    """Return the number of rows in each leaf, (L,), of rows in these leaves, (T, N)."""
    counts = [np.bincount(leaf, minlength=n) for leaf, n in zip(leaves, np.diff(starts))]
    return np.concatenate(counts)


@dataclass(frozen=True, eq=False)
class TreeWeights:
    """The weights of trees: equal for all rows, or by how far a tree reduced a row's error."""

    of_trees: Sequence[FloatArray] | None = None  #: (T,) for each set of trees
    #: for a block of rows the errors that trees took away, (T, rows) for each set of trees; below
    #: zero where they added to them
    reductions: Callable[[slice], Sequence[FloatArray]] | None = None
    counted: bool = False  #: whether all trees that took some error away count alike

    def on(self, shard: object) -> TreeWeights:
        """Return the weights of the trees for the rows of a shard; in memory there is one shard."""
        return self

    def of_rows(self, rows: slice) -> list[FloatArray]:
        """Return the weights of trees by row, (T, rows), for each set of trees.

        The weights of a row sum to 1 over all trees, or to 0 if no tree counts.
        """
        assert self.reductions is not None
        weights = [np.maximum(reductions, 0.0) for reductions in self.reductions(rows)]
        if self.counted:
            weights = [(of_set > 0).astype(np.float64) for of_set in weights]
        total = sum(of_set.sum(axis=0) for of_set in weights)
        return [
            np.divide(of_set, total, out=np.zeros_like(of_set), where=total > 0)
            for of_set in weights
        ]


@dataclass(frozen=True, eq=False)
class SharedLeaves:
    """The leaves of n explained rows and of the rows of a shard, in the trees of all outputs."""

    rows: Sequence[Rows]  #: by leaves, for each set of trees
    leaves: Sequence[Cells]  #: (n, T) of the explained rows for each set, of the same types
    n_threads: int = 1
    tree_weights: TreeWeights | None = None  #: how much trees count; None: all alike

    @classmethod
    def of(
        cls, rows: Sequence[Rows], leaves: Sequence[LeafArray], n_threads: int = 1
    ) -> SharedLeaves:
        """Return the shared leaves for leaves (n, T) of any type."""
        converted = [
            np.ascontiguousarray(of_set, dtype=set_rows.cells.dtype)
            for set_rows, of_set in zip(rows, leaves)
        ]
        return cls(rows, converted, n_threads)

    @property
    def _n(self) -> int:
        """The number of explained rows."""
        return len(self.leaves[0])

    @property
    def _counts_by_row(self) -> bool:
        """Whether the weights of trees differ from row to row."""
        return self.tree_weights is not None and self.tree_weights.of_trees is None

    @property
    def _of_trees(self) -> Sequence[FloatArray | None]:
        """The weights of the trees in each set; None if all are equal."""
        if self.tree_weights is None or self.tree_weights.of_trees is None:
            return [None] * len(self.rows)
        return self.tree_weights.of_trees

    @property
    def _total_weight(self) -> float:
        """The sum of the weights of all trees."""
        total = 0.0
        for leaves, weights in zip(self.leaves, self._of_trees):
            if weights is None:
                total += float(leaves.shape[1])
            else:
                total += float(weights.sum())
        return total or 1.0

    def block(self, first: int, n_rows: int) -> FloatArray:
        """Return the shares of trees for the rows from ``first`` on, (n, n_rows)."""
        if self.tree_weights is not None and self.tree_weights.reductions is not None:
            return self._by_row(first, self.tree_weights.of_rows(slice(first, first + n_rows)))
        shares = np.zeros((n_rows, self._n))
        of_set = np.empty((n_rows, self._n))
        for rows, leaves, weights in zip(self.rows, self.leaves, self._of_trees):
            rows.matches(leaves, weights, first, of_set)
            shares += of_set
        shares /= self._total_weight
        return shares.T

    def _by_row(self, first: int, weights: Sequence[FloatArray]) -> FloatArray:
        """Return `block` row by row, for tree weights that depend on the row, (T, rows)."""
        n_rows = weights[0].shape[1]
        shares = np.zeros((n_rows, self._n))
        for rows, leaves, of_rows in zip(self.rows, self.leaves, weights):
            is_met = np.zeros((rows.n_cells, self._n))
            met = rows.starts[:-1] + leaves.astype(np.int64)
            is_met[met, np.arange(self._n)[:, None]] = 1.0
            of_set = np.empty((n_rows, self._n))
            rows.scaled_read_out(is_met, np.ascontiguousarray(of_rows), first, of_set)
            shares += of_set
        return shares.T

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the first row of each block, and its shares, (n, rows)."""
        n_rows = self.rows[0].n_rows
        numbers_per_row = max(self._n, 1)
        if self._counts_by_row:
            n_trees = sum(leaves.shape[1] for leaves in self.leaves)
            numbers_per_row = max(numbers_per_row, n_trees)
        step = max(1, BLOCK_BYTES // (8 * numbers_per_row))
        for first in range(0, n_rows, step):
            yield first, self.block(first, min(step, n_rows - first))

    def largest(self, k: int) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return the k largest shares and their rows, (n, k) each.

        Rows without a leaf in common leave places free, with row -1.
        """
        values = np.zeros((self._n, k))
        rows = np.full((self._n, k), -1, dtype=np.int64)
        if len(self.rows) == 1 and not self._counts_by_row:
            self.rows[0].top_matches(self.leaves[0], self._of_trees[0], values, rows)
            return values / self._total_weight, rows
        backend = host_backend(self.n_threads)
        for first, block in self.blocks():
            backend.top(np.ascontiguousarray(block.T), first, None, values, rows)
        rows[values <= 0] = -1
        return values, rows

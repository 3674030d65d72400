"""Shared leaves: in how many trees the training rows of a shard are in the leaves of queries."""

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


def leaf_rows(structures: Sequence[Structure], based: int, backend: Backend) -> list[Rows]:
    """The training rows by leaves, drawn for a tree or not, without the first ``based`` trees."""
    found = []
    for s in structures:
        starts = s.starts[based:] - s.starts[based]
        found.append(backend.rows(np.ascontiguousarray(s.leaves()[based:]), starts))
    return found


def tree_spreads(n_rows: IntArray, added: FloatArray, starts: IntArray) -> FloatArray:
    """Return the variance of what each tree adds to the predictions of the rows, summed over outputs.

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
    sizes = np.diff(starts)
    return np.concatenate([np.bincount(own, minlength=n) for own, n in zip(leaves, sizes)])


@dataclass(frozen=True, eq=False)
class TreeWeights:
    """How much each tree counts: the same for all rows, or for each row by what the tree did to its error."""

    of_trees: Sequence[FloatArray] | None = None  #: (T,) for each set of trees
    #: of a block of rows the errors that trees took away, (T, rows) for each set of trees; below
    #: zero where they added to them
    reductions: Callable[[slice], Sequence[FloatArray]] | None = None
    counted: bool = False  #: whether all trees that took some error away count alike

    def on(self, shard: object) -> TreeWeights:
        """Return how much trees count for the rows of a shard; in memory there is one."""
        return self

    def of_rows(self, rows: slice) -> list[FloatArray]:
        """(T, rows) for each set of trees: how much trees count for each row, 1 over all trees of a row; 0 where none does."""
        assert self.reductions is not None
        found = [np.maximum(part, 0.0) for part in self.reductions(rows)]
        if self.counted:
            found = [(part > 0).astype(np.float64) for part in found]
        whole = sum(part.sum(axis=0) for part in found)
        return [np.divide(part, whole, out=np.zeros_like(part), where=whole > 0) for part in found]


@dataclass(frozen=True, eq=False)
class SharedLeaves:
    """The leaves of n queries beside those of the rows of a shard, in the trees of all outputs."""

    rows: Sequence[Rows]  #: by leaves, for each set of trees
    asked: Sequence[Cells]  #: (n, T) each, of the same types
    n_threads: int = 1
    counted: TreeWeights | None = None  #: how much trees count; None: all alike

    @classmethod
    def of(
        cls, rows: Sequence[Rows], asked: Sequence[LeafArray], n_threads: int = 1
    ) -> SharedLeaves:
        """For leaves (n, T) of any type."""
        own = [
            np.ascontiguousarray(leaves, dtype=part.cells.dtype)
            for part, leaves in zip(rows, asked)
        ]
        return cls(rows, own, n_threads)

    @property
    def _of_trees(self) -> Sequence[FloatArray | None]:
        """For each set of trees how much they count; None for alike."""
        if self.counted is None:
            known = None
        else:
            known = self.counted.of_trees
        if known is None:
            return [None] * len(self.rows)
        return known

    @property
    def _whole(self) -> float:
        """How much all trees count together."""
        parts = [
            float(own.shape[1]) if w is None else w.sum()
            for own, w in zip(self.asked, self._of_trees)
        ]
        return float(sum(parts)) or 1.0

    def block(self, first: int, n_rows: int) -> FloatArray:
        """(n, n_rows): the share of all trees, for the rows from ``first`` on."""
        if self.counted is not None and self.counted.reductions is not None:
            return self._by_row(first, self.counted.of_rows(slice(first, first + n_rows)))
        found = np.zeros((n_rows, len(self.asked[0])))
        part = np.empty((n_rows, len(self.asked[0])))
        for rows, own, weights in zip(self.rows, self.asked, self._of_trees):
            rows.matches(own, weights, first, part)
            found += part
        found /= self._whole
        return found.T

    def _by_row(self, first: int, weights: Sequence[FloatArray]) -> FloatArray:
        """(n, rows): `block` where trees count (T, rows), row by row."""
        n = len(self.asked[0])
        found = np.zeros((weights[0].shape[1], n))
        for rows, own, counted in zip(self.rows, self.asked, weights):
            met = np.zeros((rows.n_cells, n))
            met[rows.starts[:-1] + own.astype(np.int64), np.arange(n)[:, None]] = 1.0
            part = np.empty((counted.shape[1], n))
            rows.scaled_read_out(met, np.ascontiguousarray(counted), first, part)
            found += part
        return found.T

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """The number of the first row, and shares (n, rows)."""
        n_rows = self.rows[0].n_rows
        if self.counted is None or self.counted.of_trees is not None:
            by_row = 0
        else:
            by_row = sum(a.shape[1] for a in self.asked)
        step = max(1, BLOCK_BYTES // (8 * max(len(self.asked[0]), by_row, 1)))
        for first in range(0, n_rows, step):
            yield first, self.block(first, min(step, n_rows - first))

    def largest(self, k: int) -> tuple[FloatArray, NDArray[np.int64]]:
        """(n, k) each: the largest shares and their rows; rows without a leaf in common leave places free, with row -1."""
        n = len(self.asked[0])
        values = np.zeros((n, k))
        rows = np.full((n, k), -1, dtype=np.int64)
        if len(self.rows) == 1 and (self.counted is None or self.counted.of_trees is not None):
            self.rows[0].top_matches(self.asked[0], self._of_trees[0], values, rows)
            return values / self._whole, rows
        for first, block in self.blocks():
            host_backend(self.n_threads).top(
                np.ascontiguousarray(block.T), first, None, values, rows
            )
        rows[values <= 0] = -1
        return values, rows

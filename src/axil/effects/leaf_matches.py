"""Shared leaves: in how many trees the training rows of a shard are in the leaves of queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.kernels import Backend, Cells, Rows
from axil.kernels.cpu import Cpu
from axil.structure import Structure
from axil.types import Array, Leaves

BLOCK_BYTES = 1 << 25  # of similarities that are handed on at a time


def leaf_rows(structures: Sequence[Structure], based: int, backend: Backend) -> list[Rows]:
    """The training rows by leaves, drawn for a tree or not, without the first ``based`` trees."""
    found = []
    for s in structures:
        starts = s.starts[based:] - s.starts[based]
        found.append(backend.rows(np.ascontiguousarray(s.leaves()[based:]), starts))
    return found


@dataclass(frozen=True, eq=False)
class SharedLeaves:
    """The leaves of n queries beside those of the rows of a shard, in the trees of all outputs."""

    rows: Sequence[Rows]  #: by leaves, for each set of trees
    asked: Sequence[Cells]  #: (n, T) each, of the same types
    n_threads: int = 1

    @classmethod
    def of(cls, rows: Sequence[Rows], asked: Sequence[Leaves], n_threads: int = 1) -> SharedLeaves:
        """For leaves (n, T) of any type."""
        own = [np.ascontiguousarray(leaves, dtype=part.cells.dtype) for part, leaves in zip(rows, asked)]
        return cls(rows, own, n_threads)

    @property
    def _n_trees(self) -> int:
        return max(sum(int(own.shape[1]) for own in self.asked), 1)

    def block(self, first: int, n_rows: int) -> Array:
        """(n, n_rows): the share of all trees, for the rows from ``first`` on."""
        found, part = np.zeros((n_rows, len(self.asked[0]))), np.empty((n_rows, len(self.asked[0])))
        for rows, own in zip(self.rows, self.asked):
            rows.matches(own, None, first, part)
            found += part
        found /= self._n_trees
        return found.T

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """The number of the first row, and shares (n, rows)."""
        n_rows = self.rows[0].n_rows
        step = max(1, BLOCK_BYTES // (8 * max(len(self.asked[0]), 1)))
        for first in range(0, n_rows, step):
            yield first, self.block(first, min(step, n_rows - first))

    def largest(self, k: int) -> tuple[Array, NDArray[np.int64]]:
        """(n, k) each: the largest shares and their rows; rows without a leaf in common leave places free, with row -1."""
        n = len(self.asked[0])
        values, rows = np.zeros((n, k)), np.full((n, k), -1, dtype=np.int64)
        if len(self.rows) == 1:
            self.rows[0].top_matches(self.asked[0], None, values, rows)
            return values / self._n_trees, rows
        for first, block in self.blocks():
            Cpu(self.n_threads).top(np.ascontiguousarray(block.T), first, None, values, rows)
        rows[values <= 0] = -1
        return values, rows

"""The rows of every tree sorted by cell, in segments of one cell each.

So sums over cells have a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import cupy as cp
import numpy as np

from axil.kernels import Numbers
from axil.machine.arrays import DeviceArray

ROWS_AT_MOST = 2**32 - 2**12  # numbered in 32 bits
CHUNK = 4096  # rows that one warp sorts
COUNTED = 1 << 25  # cells by chunks counted at a time
SEGMENT = 64  # least rows of a segment
SEGMENTS = 16384  # of a tree, roughly, above which they grow longer
SHARED = 48 << 10  # bytes in which one warp counts


@dataclass(frozen=True)
class SortedTree:
    """The rows of one tree, sorted by cell and, within one, by number."""

    order: DeviceArray  #: (N,) row numbers
    segments: DeviceArray  #: (S + 1,) where segments begin and end in ``order``
    cells: DeviceArray  #: (S,) the cell of each segment
    first: DeviceArray  #: (cells + 1,) the first segment of each cell, counted over all trees
    begin: int  #: the first segment of the tree

    @property
    def n_segments(self) -> int:
        return len(self.cells)


@dataclass(frozen=True)
class SortedRows:
    """The rows of all trees."""

    order: DeviceArray  #: (T, N) on the device
    segments: DeviceArray  #: the bounds of every tree's segments, tree after tree
    cells: DeviceArray  #: the cell of every segment, within its tree
    first: DeviceArray  #: (C + 1,) the first segment of every cell
    starts: Numbers  #: (T + 1,) of the cells
    begins: Numbers  #: (T + 1,) of the segments
    counts: DeviceArray  #: (C,) rows of every cell, on the host

    @classmethod
    def of(
        cls, cells: DeviceArray, starts: Numbers, on_device: DeviceArray, run: Callable[..., None]
    ) -> SortedRows:
        """Sort rows by counting, in O(T N) and with 4 bytes per row and tree."""
        n_trees, n = cells.shape
        order = cp.empty((n_trees, n), dtype=cp.uint32)
        counts = np.empty(int(starts[-1]), dtype=np.int64)
        n_chunks = max(1, -(-n // CHUNK))
        for first, last in _runs(starts, n_chunks):
            if first == last:
                continue
            cell_slice = slice(int(starts[first]), int(starts[last]))
            widest = int(np.diff(starts[first : last + 1]).max())
            if 4 * widest > SHARED:
                for t in range(first, last):
                    wide = int(starts[t + 1] - starts[t])
                    order[t] = cp.argsort(cells[t], kind="stable")
                    counts[starts[t] : starts[t + 1]] = cp.bincount(
                        cells[t].astype(cp.int64), minlength=wide
                    ).get()
                continue
            counted = cp.empty((cell_slice.stop - cell_slice.start, n_chunks), dtype=cp.uint32)
            common = (cells, n, first, CHUNK, n_chunks, on_device, counted)
            grid = (n_chunks, last - first)
            run("count_cells", grid, (32,), *common, shared=4 * widest)
            ends = cp.cumsum(counted, dtype=cp.int64)
            run("scatter_rows", grid, (32,), *common, ends, order, shared=4 * widest)
            last_of_cells = ends.reshape(counted.shape)[:, -1].get()
            counts[cell_slice] = np.diff(last_of_cells, prepend=0)
        return cls._segmented(order, np.asarray(starts), counts, n)

    @classmethod
    def _segmented(
        cls, order: DeviceArray, starts: Numbers, counts: DeviceArray, n: int
    ) -> SortedRows:
        length = max(SEGMENT, -(-n // SEGMENTS))
        per_cell = -(-counts // length)
        first = np.concatenate([[0], np.cumsum(per_cell)])
        begins = first[starts]
        cell = np.repeat(np.arange(len(counts)), per_cell)
        tree = np.repeat(np.arange(len(starts) - 1), np.diff(begins))
        ends = np.cumsum(counts)
        at = ends[cell] - counts[cell] - tree * n + length * (np.arange(len(cell)) - first[cell])
        bounds = np.insert(at, begins[1:], n)  # a tree's last segment ends with its rows
        put = cp.asarray
        return cls(
            order,
            put(bounds.astype(np.uint32)),
            put((cell - starts[tree]).astype(np.uint32)),
            put(first.astype(np.uint32)),
            starts,
            begins,
            counts,
        )

    @cached_property
    def trees(self) -> list[SortedTree]:
        return [self._tree(t) for t in range(len(self.starts) - 1)]

    def alone(self, t: int) -> SortedRows:
        """Return the rows of one tree, without a copy of their order."""
        tree = self.trees[t]
        starts = self.starts[t : t + 2] - self.starts[t]
        order = self.order[t : t + 1]
        first = tree.first - cp.uint32(tree.begin)
        counts = self.counts[self.starts[t] : self.starts[t + 1]]
        return SortedRows(
            order, tree.segments, tree.cells, first, starts, np.array([0, tree.n_segments]), counts
        )

    def _tree(self, t: int) -> SortedTree:
        a = int(self.begins[t])
        b = int(self.begins[t + 1])
        first = self.first[int(self.starts[t]) : int(self.starts[t + 1]) + 1]
        return SortedTree(
            self.order[t], self.segments[a + t : b + t + 1], self.cells[a:b], first, a
        )


def _runs(starts: Numbers, n_chunks: int) -> list[tuple[int, int]]:
    """Return runs of trees that are counted together."""
    most = max(1, COUNTED // n_chunks)
    bounds = [0]
    for t in range(1, len(starts) - 1):
        if starts[t + 1] - starts[bounds[-1]] > most or t - bounds[-1] >= 65535:
            bounds.append(t)
    return list(pairwise([*bounds, len(starts) - 1]))

"""Blocks of alike rows on the device, with which the largest weights are found without reading every row.

No row of a block exceeds the sum over trees of the largest entry among the leaves that occur in the
block. One level of blocks is enough: a GPU computes all their bounds, and opens those that reach
the k-th largest so far. See `kernels.bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from axil.arrays import FloatArray
from axil.kernels import Numbers
from axil.kernels.bounds import DIMENSIONS, SAMPLE, axes_of
from axil.kernels.cpu import CpuRows
from axil.kernels.cuda.largest import keep
from axil.kernels.cuda.launch import THREADS, WARPS, blocks

BLOCK_ROWS = 256  # of a block, and the places that are filled at most; as in kernels.cu
STEPS = 256  # of a row's place along each axis; with DIMENSIONS axes a number of 64 bits
PLACED = 1 << 22  # rows at a time
NOBODY = (1 << 32) - 1  # the number of no row
# lists of more than 1 / LISTED of all rows' leaves bound too little, unless they are short
LISTED = 16
LEAST_LISTED = 4096
# of which lists are made: a bit per leaf is shared memory
MOST_LEAVES = 1 << 18
MOST_TREES = (1 << 16) - 1
OPENED = 4  # times the look-ups that cores may take, which are dearer, a query may take
BOUND_BYTES = 1 << 30  # of bounds held at a time


@dataclass(frozen=True)
class CudaBlocks:
    """The rows in the order of their blocks, and which leaves occur in each block."""

    cells: Any  #: (T, N) in that order
    order: Any  #: (N,) row numbers
    ends: Any  #: (blocks * T,) where lists end
    lists: Any  #: entries of tables, tree by tree; the last of each tree is marked
    starts: Any  #: (T + 1,) of the cells, on the device
    run: Callable[..., None]  #: starts a kernel

    @property
    def n_blocks(self) -> int:
        return len(self.ends) // len(self.cells)

    @classmethod
    def of(cls, rows: Any, starts: Any, run: Callable[..., None]) -> CudaBlocks | None:
        """The blocks of `CudaRows`, whose ``starts`` are on the device; None where rows are not alike, or trees too large."""
        n_trees, n = rows.cells.shape
        widest = int(np.diff(rows.starts).max(initial=0))
        if not 0 < n_trees <= MOST_TREES or widest > MOST_LEAVES:
            return None
        order = along_curve(rows, run)
        cells = cp.empty_like(rows.cells)
        n_blocks = -(-n // BLOCK_ROWS)
        run("take_rows", (blocks(n, THREADS), n_trees), (THREADS,), rows.cells, n, order, n, cells)
        counts = cp.empty(n_blocks * n_trees, dtype=cp.uint32)
        common = ((n_blocks, n_trees), (BLOCK_ROWS,), cells, n, n_trees, starts, counts)
        shared = 4 * -(-widest // 32)
        run("list_leaves", *common, None, None, shared=shared)
        ends = cp.cumsum(counts, dtype=cp.int64)
        total = int(ends[-1].get())
        if total > max(LEAST_LISTED, n * n_trees // LISTED):
            return None
        lists = cp.empty(total, dtype=cp.uint32)
        run("list_leaves", *common, ends, lists, shared=shared)
        return cls(cells, order, ends, lists, starts, run)

    def search(
        self,
        table: Any,
        constant: Any,
        weights: Any,
        scale: Any,
        most: int,
        values: FloatArray,
        rows: Numbers,
        done: Any,
    ) -> None:
        """Merges the k largest of the queries that take at most ``most`` look-ups; ``done`` says which these are."""
        (n_trees, n), n_blocks, k = self.cells.shape, self.n_blocks, values.shape[1]
        if k > BLOCK_ROWS:
            return
        factors = [None if of is None else self._largest(of) for of in (weights, scale)]
        step = max(1, BOUND_BYTES // (8 * n_blocks))
        for first in range(0, len(constant), step):
            own = constant[first : first + step]
            part = slice(first, first + step)
            entries = cp.ascontiguousarray(table[:, part])
            columns = len(own)
            bounds = cp.empty((columns, n_blocks))
            read = (self.lists, self.ends, n_trees, n_blocks, entries, columns, own, *factors)
            self.run(
                "bound_blocks", (blocks(n_blocks), -(-columns // 32)), (32, WARPS), *read, bounds
            )
            found = cp.empty((columns, k))
            at = cp.empty((columns, k), dtype=cp.uint32)
            ended = cp.empty(columns, dtype=cp.uint8)
            of_rows = (self.cells, n, n_trees, self.starts, self.order, n_blocks, bounds)
            asked = (cp.ascontiguousarray(entries.T), own, weights, scale, k)
            allowed = OPENED * most // (n_trees * BLOCK_ROWS)
            self.run(
                "search_blocks",
                (columns,),
                (BLOCK_ROWS,),
                *of_rows,
                *asked,
                allowed,
                found,
                at,
                ended,
            )
            done[part] = ended.get()
            which = np.flatnonzero(done[part])
            taken = at.get().astype(np.int64)[which]
            taken[taken == NOBODY] = -1
            keep(taken, found.get()[which], scale, which, values[part], rows[part])

    def _largest(self, factors: Any) -> Any:
        """(blocks,): the largest |factor| of the rows of each block."""
        largest = cp.empty(self.n_blocks)
        grid = (blocks(self.n_blocks, THREADS),)
        self.run(
            "block_factors",
            grid,
            (THREADS,),
            factors,
            self.order,
            len(self.order),
            self.n_blocks,
            largest,
        )
        return largest


def along_curve(rows: Any, run: Callable[..., None]) -> Any:
    """(N,): row numbers, those of alike rows near each other: along a curve through the places of `bounds.places`."""
    n_trees, n = rows.cells.shape
    sampled = cp.asarray(np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64))
    seen = cp.empty((n_trees, len(sampled)), dtype=rows.cells.dtype)
    run(
        "take_rows",
        (blocks(len(sampled), THREADS), n_trees),
        (THREADS,),
        rows.cells,
        n,
        sampled,
        len(sampled),
        seen,
    )
    some = CpuRows(seen.get(), rows.starts, None, rows.n_threads)
    axes = axes_of(some)
    own = np.empty((len(sampled), DIMENSIONS))
    some.read_out(axes, np.zeros(DIMENSIONS), None, 0, own)
    low = own.min(axis=0)
    step = (STEPS - 1) / (float((own.max(axis=0) - low).max()) or 1.0)
    table = cp.asarray(step * axes)
    constant = cp.asarray(-step * low)
    numbers = cp.empty(n, dtype=cp.uint64)
    for first in range(0, n, PLACED):
        part = numbers[first : first + PLACED]
        places = cp.empty((len(part), DIMENSIONS))
        rows.read_out(table, constant, None, first, places)
        run("along_curve", (blocks(len(part), THREADS),), (THREADS,), places, len(part), part)
    return cp.argsort(numbers)

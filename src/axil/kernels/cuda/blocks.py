"""Blocks of alike rows on the device, which find the largest weights without all rows.

No row of a block exceeds the sum over trees of the largest entry among the leaves that occur in the
block. One level of blocks is enough: a GPU computes all their bounds, and opens those that reach
the k-th largest so far. See `kernels.bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cupy as cp
import numpy as np

from axil.arrays import FloatArray
from axil.kernels import Numbers
from axil.kernels.bounds import DIMENSIONS, SAMPLE, axes_of
from axil.kernels.cpu import CpuRows
from axil.kernels.cuda.cells import KeptCells
from axil.kernels.cuda.largest import keep
from axil.kernels.cuda.launch import THREADS, WARPS, blocks
from axil.machine.arrays import DeviceArray

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

    cells: DeviceArray  #: (T, N) in that order
    order: DeviceArray  #: (N,) row numbers
    ends: DeviceArray  #: (blocks * T,) where lists end
    lists: DeviceArray  #: entries of tables, tree by tree; the last of each tree is marked
    starts: DeviceArray  #: (T + 1,) of the cells, on the device
    run: Callable[..., None]  #: starts a kernel

    @property
    def n_blocks(self) -> int:
        return len(self.ends) // len(self.cells)

    @classmethod
    def of(
        cls, rows: KeptCells, starts: DeviceArray, run: Callable[..., None]
    ) -> CudaBlocks | None:
        """Return the blocks of rows; None if rows are not similar enough, or trees too large.

        ``starts`` are those of the rows, on the device.
        """
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
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        scale: DeviceArray,
        most: int,
        values: FloatArray,
        rows: Numbers,
        done: DeviceArray,
    ) -> None:
        """Merge the k largest of the columns that take at most ``most`` look-ups.

        The search marks these columns in ``done``.
        """
        n_trees, n = self.cells.shape
        n_blocks = self.n_blocks
        k = values.shape[1]
        if k > BLOCK_ROWS:
            return
        factors = [None if of is None else self._largest(of) for of in (weights, scale)]
        step = max(1, BOUND_BYTES // (8 * n_blocks))
        for first in range(0, len(constant), step):
            constants = constant[first : first + step]
            columns_slice = slice(first, first + step)
            entries = cp.ascontiguousarray(table[:, columns_slice])
            columns = len(constants)
            bounds = cp.empty((columns, n_blocks))
            bound_arguments = (
                self.lists,
                self.ends,
                n_trees,
                n_blocks,
                entries,
                columns,
                constants,
                *factors,
            )
            self.run(
                "bound_blocks",
                (blocks(n_blocks), -(-columns // 32)),
                (32, WARPS),
                *bound_arguments,
                bounds,
            )
            entries_found = cp.empty((columns, k))
            positions = cp.empty((columns, k), dtype=cp.uint32)
            is_done = cp.empty(columns, dtype=cp.uint8)
            of_rows = (self.cells, n, n_trees, self.starts, self.order, n_blocks, bounds)
            column_arguments = (cp.ascontiguousarray(entries.T), constants, weights, scale, k)
            allowed = OPENED * most // (n_trees * BLOCK_ROWS)
            self.run(
                "search_blocks",
                (columns,),
                (BLOCK_ROWS,),
                *of_rows,
                *column_arguments,
                allowed,
                entries_found,
                positions,
                is_done,
            )
            done[columns_slice] = is_done.get()
            done_columns = np.flatnonzero(done[columns_slice])
            row_numbers = positions.get().astype(np.int64)[done_columns]
            row_numbers[row_numbers == NOBODY] = -1
            keep(
                row_numbers,
                entries_found.get()[done_columns],
                scale,
                done_columns,
                values[columns_slice],
                rows[columns_slice],
            )

    def _largest(self, factors: DeviceArray) -> DeviceArray:
        """Return the largest |factor| of the rows of each block, (blocks,)."""
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


def along_curve(rows: KeptCells, run: Callable[..., None]) -> DeviceArray:
    """Return the row numbers, (N,), ordered so that similar rows are near each other.

    The order follows a curve through the places of `bounds.places`.
    """
    n_trees, n = rows.cells.shape
    sampled = cp.asarray(np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64))
    sampled_cells = cp.empty((n_trees, len(sampled)), dtype=rows.cells.dtype)
    run(
        "take_rows",
        (blocks(len(sampled), THREADS), n_trees),
        (THREADS,),
        rows.cells,
        n,
        sampled,
        len(sampled),
        sampled_cells,
    )
    sampled_rows = CpuRows(sampled_cells.get(), rows.starts, None, rows.n_threads)
    axes = axes_of(sampled_rows)
    sampled_places = np.empty((len(sampled), DIMENSIONS))
    sampled_rows.read_out(axes, np.zeros(DIMENSIONS), None, 0, sampled_places)
    low = sampled_places.min(axis=0)
    step = (STEPS - 1) / (float((sampled_places.max(axis=0) - low).max()) or 1.0)
    table = cp.asarray(step * axes)
    constant = cp.asarray(-step * low)
    numbers = cp.empty(n, dtype=cp.uint64)
    for first in range(0, n, PLACED):
        block_numbers = numbers[first : first + PLACED]
        block_places = cp.empty((len(block_numbers), DIMENSIONS))
        rows.read_out(table, constant, None, first, block_places)
        run(
            "along_curve",
            (blocks(len(block_numbers), THREADS),),
            (THREADS,),
            block_places,
            len(block_numbers),
            block_numbers,
        )
    return cp.argsort(numbers)

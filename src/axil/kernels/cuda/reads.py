"""Read-outs: what tables of cells make of every row, whole, as moments, or the largest alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import cupy as cp
import numpy as np

from axil.arrays import FloatArray
from axil.kernels import Numbers
from axil.kernels.cuda.blocks import CudaBlocks
from axil.kernels.cuda.cells import KeptCells, runs_of
from axil.kernels.cuda.checks import (
    expect,
    expect_output,
    expect_places,
    expect_rows,
    expect_weights,
)
from axil.kernels.cuda.largest import merge
from axil.kernels.cuda.launch import (
    THREADS,
    WARPS,
    blocks,
    filled,
    lanes_of,
    processors,
    shared_bytes,
    total_bytes,
    within_memory,
)
from axil.machine.arrays import DeviceArray
from axil.machine.blocks import spans

# columns, threads and rows of a block that shares a tile; as in kernels.cu
TILE = 16
TILE_THREADS = 512
TILE_ROWS = 1024
COUNTED = 16  # queries whose shared leaves a thread counts; as in kernels.cu
FEW_COLUMNS = 4  # below which a tile does not pay
READ_BYTES = 1 << 32  # of a read-out that is summed up or searched on the device, at most
READ_SHARE = 16  # and of all memory, as a divisor


class ReadOuts(KeptCells):
    """Sums over the trees, row by row."""

    @within_memory()
    def read_out(
        self,
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        first: int,
        out: DeviceArray,
    ) -> None:
        rows, columns = out.shape
        expect_output("out", out, (rows, columns), apart=True)
        self._expect_read(table, constant, weights, columns)
        expect_rows(first, rows, self.n_rows)
        with filled(out) as device_out:
            if out.size:
                self._read(
                    self._rows_put(table),
                    self._put(constant),
                    self._put(weights),
                    first,
                    device_out,
                )

    def _expect_read(
        self, table: DeviceArray, constant: DeviceArray, weights: DeviceArray, columns: int
    ) -> None:
        expect("table", table, (self.n_cells, columns), apart=True)
        expect("constant", constant, (columns,))
        expect_weights("weights", weights, self.n_rows)

    def _read(
        self,
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        first: int,
        out: DeviceArray,
    ) -> None:
        rows, columns = out.shape
        runs = self._runs
        if runs is None or columns < FEW_COLUMNS:
            return self._read_rows(table, constant, weights, None, first, out)
        device_bounds, shared_memory = runs
        height = -(-columns // TILE)
        grid = (max(1, min(-(-rows // TILE_ROWS), -(-4 * processors() // height))), height)
        read = (
            self.cells,
            self.n_rows,
            self._starts,
            device_bounds,
            len(device_bounds) - 1,
            table,
            table.strides[0] // 8,
            columns,
        )
        written = (constant, weights, first, rows, out, out.strides[0] // 8)
        self._run("read_out_tile", grid, (TILE_THREADS,), *read, *written, shared=shared_memory)

    @property
    def _runs(self) -> tuple[DeviceArray, int] | None:
        """Return the bounds of runs of trees whose tiles fit into shared memory, and their bytes.

        Returns None if the tile of a single tree does not fit.
        """
        return self._kept.get("runs", self._make_runs)

    def _make_runs(self) -> tuple[DeviceArray, int] | None:
        bounds = runs_of(self.starts, shared_bytes() // (8 * TILE), self.n_trees)
        if bounds is None:
            return None
        widest = int(np.diff(self.starts[bounds]).max(initial=0))
        return cp.asarray(bounds, dtype=cp.int32), 8 * TILE * widest

    def _read_rows(
        self,
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        factors: DeviceArray,
        first: int,
        out: DeviceArray,
        trees: Numbers | None = None,
    ) -> None:
        rows, columns = out.shape
        lanes = lanes_of(columns)
        grid = (blocks(rows, WARPS * 32 // lanes), -(-columns // lanes))
        chosen = self.some(trees)
        of_rows = (self.cells, self.n_rows, chosen.trees, len(chosen.trees), chosen.starts)
        read = (*of_rows, table, table.strides[0] // 8, columns, lanes)
        written = (constant, weights, factors, first, rows, out, out.strides[0] // 8)
        self._run("read_out_rows", grid, (32, WARPS), *read, *written)

    @within_memory()
    def moments(
        self,
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        values: DeviceArray,
        out: FloatArray,
    ) -> None:
        columns = table.shape[1]
        self._expect_read(table, constant, weights, columns)
        expect("values", values, (self.n_rows, *getattr(values, "shape", ())[1:]))
        expect_output("out", out, (2, columns, values.shape[1]))
        table = self._rows_put(table)
        constant = self._put(constant)
        w = self._put(weights)
        v = self._put(values)
        for span, block in self._in_blocks(table, constant, w):
            out[0, span] = (cp.abs(block).T @ v).get()
            block *= block
            out[1, span] = (block.T @ v).get()

    def _in_blocks(
        self, table: DeviceArray, constant: DeviceArray, weights: DeviceArray
    ) -> Iterator[tuple[slice, DeviceArray]]:
        """Yield read-outs of all rows, as many columns at a time as memory allows.

        The columns come first.
        """
        for span in spans(table.shape[1], self._columns_at_once()):
            block = cp.empty((self.n_rows, span.stop - span.start))
            if block.size:
                self._read(table[:, span], constant[span], weights, 0, block)
            yield span, block

    def _columns_at_once(self) -> int:
        """Return how many columns of all rows memory allows at a time."""
        most = min(READ_BYTES, total_bytes() // READ_SHARE)
        return int(max(TILE, most // (8 * max(self.n_rows, 1)) // TILE * TILE))

    @within_memory()
    def top(
        self,
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        scale: DeviceArray,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        columns = table.shape[1]
        self._expect_read(table, constant, weights, columns)
        expect_places(values, rows, columns, scale, self.n_rows)
        if not self.n_rows or not columns or not values.shape[1]:
            return
        arguments = (self._rows_put(table), self._put(constant))
        factors = (self._put(weights), self._put(scale))
        self._bounded.top(
            CudaBlocks.search, self._top_rows, self.cells.size, *arguments, factors, values, rows
        )

    def _top_rows(
        self,
        table: DeviceArray,
        constant: DeviceArray,
        weights: DeviceArray,
        scale: DeviceArray,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        for span, block in self._in_blocks(table, constant, weights):
            merge(block, 0, scale, values[span], rows[span], self._kernel)

    @within_memory()
    def index(self, n_queries: int, available: int) -> bool:
        make = partial(CudaBlocks.of, self, self._starts, self._run)
        return self._bounded.make(self.cells, n_queries, available, make)

    @within_memory()
    def matches(
        self, queries: DeviceArray, weights: DeviceArray, first: int, out: DeviceArray
    ) -> None:
        rows, columns = out.shape
        self._expect_queries(queries, weights, columns)
        expect_output("out", out, (rows, columns))
        expect_rows(first, rows, self.n_rows)
        with filled(out) as device_out:
            if out.size:
                self._match(
                    cp.ascontiguousarray(cp.asarray(queries).T),
                    self._put(weights),
                    first,
                    device_out,
                )

    def _match(
        self, queries: DeviceArray, weights: DeviceArray, first: int, out: DeviceArray
    ) -> None:
        """Fill in the matches of ``queries`` (trees, columns)."""
        rows, columns = out.shape
        if weights is None and self.cells.itemsize == 1 and self.n_trees < 1 << 16:
            grid = (-(-rows // (4 * THREADS)), -(-columns // COUNTED))
            counted = (self.cells, self.n_rows, self.n_trees, queries, columns)
            return self._run("match_bytes", grid, (THREADS,), *counted, first, rows, out)
        lanes = lanes_of(columns)
        grid = (blocks(rows, WARPS * 32 // lanes), -(-columns // lanes))
        read = (self.cells, self.n_rows, self.n_trees, queries, columns, lanes, weights)
        self._run("match_rows", grid, (32, WARPS), *read, first, rows, out)

    def _expect_queries(self, queries: DeviceArray, weights: DeviceArray, columns: int) -> None:
        expect("queries", queries, (columns, self.n_trees), self.cells.dtype)
        expect_weights("weights", weights, self.n_trees)
        if weights is not None and not bool(((weights >= 0) & (weights < np.inf)).all()):
            raise ValueError("weights must be finite and not below 0")

    @within_memory()
    def top_matches(
        self, queries: DeviceArray, weights: DeviceArray, values: FloatArray, rows: Numbers
    ) -> None:
        columns = len(queries)
        self._expect_queries(queries, weights, columns)
        expect_places(values, rows, columns, None, self.n_rows)
        if rows.max(initial=-1) >= 0:
            raise ValueError("rows must be free, all -1")
        if not self.n_rows or not columns or not values.shape[1]:
            return
        device_queries = cp.asarray(queries).T
        weights = self._put(weights)
        for span in spans(columns, self._columns_at_once()):
            block = cp.empty((self.n_rows, span.stop - span.start))
            self._match(cp.ascontiguousarray(device_queries[:, span]), weights, 0, block)
            merge(block, 0, None, values[span], rows[span], self._kernel)
        rows[values <= 0] = -1

    @within_memory()
    def scaled_read_out(
        self,
        table: DeviceArray,
        factors: DeviceArray,
        first: int,
        out: DeviceArray,
        trees: Numbers | None = None,
    ) -> None:
        rows, columns = out.shape
        chosen = self.some(trees)
        expect("table", table, (chosen.n_cells, columns))
        expect_rows(first, rows, self.n_rows)
        expect("factors", factors, (len(chosen.trees), rows))
        expect_output("out", out, (rows, columns))
        with filled(out) as device_out:
            if out.size:
                self._read_rows(
                    self._rows_put(table), None, None, self._put(factors), first, device_out, trees
                )

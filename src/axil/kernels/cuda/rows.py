"""The cells of the training rows on the device, and the passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from axil.errors import InputError
from axil.kernels import Cells, Numbers, Rows
from axil.kernels.cuda.checks import (
    expect,
    expect_cells,
    expect_output,
    expect_places,
    expect_rows,
    expect_trees,
    expect_weights,
)
from axil.kernels.cuda.copies import copy_of
from axil.kernels.cuda.largest import merge
from axil.kernels.cuda.launch import (
    MOST_BLOCKS,
    THREADS,
    WARPS,
    blocks,
    kernel,
    lanes_of,
    launch,
    processors,
    shared_bytes,
    total_bytes,
    within_memory,
)
from axil.kernels.cuda.sorted import ROWS_AT_MOST, SortedRows
from axil.machine.arrays import is_host
from axil.machine.shared import Kept
from axil.types import Array

WIDE = 64  # columns of a warp that takes pairs of them
MOST_APPLIED = 4  # trees that such a warp looks up
SHARED_LEAVES = 1024  # of trees that share a pass
SHARED_MEMORY = 8  # the part of all memory, as a divisor, that their co-occurrences may take
TILE, TILE_THREADS, TILE_ROWS = (
    16,
    512,
    1024,
)  # columns, threads and rows of a block that shares a tile of a table; as in kernels.cu
TILE_TREES = 8  # of a block that counts cells by cells; as in kernels.cu
FEW_COLUMNS = 4  # below which a tile does not pay
COUNT_THREADS = 512  # of a block that counts cells by cells
COUNTED_ROWS = 1 << 14  # least rows of such a block
READ_BYTES = 1 << 32  # of a read-out that is summed up or searched on the device, at most
READ_SHARE = 16  # and of all memory, as a divisor


class CudaRows(Rows):
    """The cells on the device, and, once sums over them are asked for, the rows of each tree sorted by cell.

    Walks of single rows through the whole fit, `deletions` and `gradient_factors`, are left to the rows ``beside``, on the cores.
    """

    xp = cp
    swept = 256

    @within_memory()
    def __init__(self, cells: Cells, starts: Numbers, weights: Array | None, beside: Rows):
        expect_cells(cells, starts)
        expect_weights("weights", weights, cells.shape[1])
        self.weights, self.beside = weights, beside
        self.n_rows, self.n_cells = int(cells.shape[1]), int(starts[-1])
        if self.n_rows > ROWS_AT_MOST:
            raise InputError(f'{self.n_rows} training rows; a GPU takes {ROWS_AT_MOST}. Use device="cpu".')
        self.every = np.arange(len(cells))
        self.starts = np.array(starts)
        self._starts, self._trees = cp.asarray(self.starts), cp.arange(len(cells), dtype=cp.int32)
        self._copy = copy_of(cells)
        self.cells = self._copy.cells
        self._weights = None if weights is None else cp.asarray(weights)
        self._kept = Kept()
        self.shared_leaves = min(SHARED_LEAVES, total_bytes() // SHARED_MEMORY // (8 * max(self.n_cells, 1)))

    @property
    def n_trees(self) -> int:
        return len(self.every)

    def _kernel(self, name: str) -> Any:
        return kernel(self.cells.dtype.name, name)

    def _run(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any, shared: int = 0) -> None:
        launch(self._kernel(name), grid, block, *arguments, shared=shared)

    def _put(self, array: Any) -> Any:
        if array is None:
            return None
        if array is self.weights:
            return self._weights
        return cp.ascontiguousarray(cp.asarray(array))

    def _numbers(self, trees: Numbers) -> Any:
        """Tree numbers on the device, which has those of neighbours already."""
        if len(trees) and trees[-1] - trees[0] == len(trees) - 1 and (np.diff(trees) == 1).all():
            return self._trees[trees[0] : trees[-1] + 1]
        return cp.asarray(trees, dtype=cp.int32)

    @property
    def sorted(self) -> SortedRows:
        return self._kept.get("sorted", self._sort)

    def _sort(self) -> SortedRows:
        make = partial(SortedRows.of, self.cells, self.starts, self._starts, self._run)
        return self._copy.kept.get(self.starts.tobytes(), make)

    @within_memory()
    def sweep(
        self,
        state: Any,
        apply: Numbers,
        table: Any,
        apply_weights: Any,
        gather: Numbers,
        sums: Any,
        gather_weights: Any,
    ) -> None:
        expect_output("state", state, (self.n_rows, *getattr(state, "shape", ())[1:]))
        columns = state.shape[1]
        expect("table", table, (self.n_cells, columns))
        expect_output("sums", sums, (self.n_cells, columns))
        for name, numbers in (("apply", apply), ("gather", gather)):
            expect_trees(name, numbers, self.n_trees)
        for name, weights in (("apply_weights", apply_weights), ("gather_weights", gather_weights)):
            expect_weights(name, weights, self.n_rows)
        if not columns:
            return
        on_device = self._put(state)
        a, g, table = self._put(apply_weights), self._put(gather_weights), self._put(table)
        lanes, trees, n_apply = lanes_of(columns), self._numbers(apply), len(apply)
        if not len(gather) and n_apply:
            grid = (blocks(self.n_rows, WARPS * 32 // lanes), -(-columns // lanes))
            read = (self.cells, self.n_rows, columns, lanes, trees, n_apply, self._starts, table, a)
            self._run("apply_trees", grid, (32, WARPS), *read, on_device)
        for run in neighbours(gather):
            self._gather(run, on_device, (trees, n_apply, table, a), sums, g, lanes)
            n_apply = 0  # done on the way to the first sums
        if is_host(state):
            on_device.get(out=state)

    def _gather(self, run: Numbers, state: Any, applied: tuple[Any, ...], sums: Any, g: Any, lanes: int) -> None:
        """Sums over the cells of neighbouring trees; the trees applied are so on the way to the first sums."""
        columns, (trees, n_apply, table, a) = state.shape[1], applied
        sorted_trees = self.sorted.trees[run[0] : run[-1] + 1]
        begin, end = sorted_trees[0].begin, sorted_trees[-1].begin + sorted_trees[-1].n_segments
        parts = cp.empty((end - begin, columns))
        wide = columns // WIDE if columns % WIDE == 0 else 0
        for own in sorted_trees:
            gathered = (own.order, own.segments, own.n_segments, g, state, parts[own.begin - begin :])
            if wide and n_apply <= MOST_APPLIED:
                pairs = 2 if wide % 2 == 0 else 1
                read = (self.cells, self.n_rows, columns, trees, self._starts, table, a)
                grid = (blocks(own.n_segments), wide // pairs)
                self._run(f"gather_wide_{pairs}_{n_apply}", grid, (32, WARPS), *read, *gathered)
            else:
                several = (self.cells, self.n_rows, columns, lanes, trees, n_apply, self._starts, table, a)
                grid = (blocks(own.n_segments), -(-columns // lanes))
                self._run("gather_segments", grid, (32, WARPS), *several, *gathered)
            n_apply = 0
        cells = slice(int(self.starts[run[0]]), int(self.starts[run[-1] + 1]))
        found = sums[cells] if not is_host(sums) else cp.empty((cells.stop - cells.start, columns))
        self._combine(self.sorted.first[cells.start : cells.stop + 1], begin, parts, lanes, found)
        if is_host(sums):
            found.get(out=sums[cells])

    def _combine(self, first: Any, begin: int, parts: Any, lanes: int, found: Any) -> None:
        """Sums over the segments of cells, whose numbers ``first`` has."""
        columns, n_cells = parts.shape[1], len(first) - 1
        grid = (max(1, min(n_cells, MOST_BLOCKS)), -(-columns // lanes))
        self._run("combine_segments", grid, (32, WARPS), parts, columns, lanes, first, begin, n_cells, found)

    def leaf_sums(self, v: Any, weights: Any) -> Any:
        """As for all rows, on the device where v is there."""
        sums = (np if is_host(v) else cp).empty((self.n_cells, v.shape[1]))
        state = cp.array(v, order="C") if is_host(v) else v
        self.sweep(state, self.every[:0], sums, None, self.every, sums, weights)
        return sums

    @within_memory()
    def read_out(self, table: Any, constant: Any, weights: Any, first: int, out: Any) -> None:
        rows, columns = out.shape
        expect_output("out", out, (rows, columns), apart=True)
        expect("table", table, (self.n_cells, columns), apart=True)
        expect("constant", constant, (columns,))
        expect_weights("weights", weights, self.n_rows)
        expect_rows(first, rows, self.n_rows)
        made = out if not is_host(out) else cp.empty(out.shape)
        if out.size:
            self._read(self._rows_put(table), self._put(constant), self._put(weights), first, made)
        if is_host(out):
            out[...] = made.get()

    @staticmethod
    def _rows_put(table: Any) -> Any:
        """A table on the device; its rows may lie apart there."""
        table = cp.asarray(table)
        return table if table.strides[1] == table.itemsize else cp.ascontiguousarray(table)

    def _read(self, table: Any, constant: Any, weights: Any, first: int, out: Any) -> None:
        rows, columns = out.shape
        runs = self._runs
        if runs is None or columns < FEW_COLUMNS:
            return self._read_rows(table, constant, weights, None, first, out)
        on_device, taken = runs
        height = -(-columns // TILE)
        grid = (max(1, min(-(-rows // TILE_ROWS), -(-4 * processors() // height))), height)
        read = (
            self.cells,
            self.n_rows,
            self._starts,
            on_device,
            len(on_device) - 1,
            table,
            table.strides[0] // 8,
            columns,
        )
        written = (constant, weights, first, rows, out, out.strides[0] // 8)
        self._run("read_out_tile", grid, (TILE_THREADS,), *read, *written, shared=taken)

    @property
    def _runs(self) -> tuple[Any, int] | None:
        """Bounds of runs of trees whose tiles fit into shared memory, and the bytes they take; None: a tree does not."""
        return self._kept.get("runs", self._make_runs)

    def _make_runs(self) -> tuple[Any, int] | None:
        bounds = runs_of(self.starts, shared_bytes() // (8 * TILE), self.n_trees)
        if bounds is None:
            return None
        widest = int(np.diff(self.starts[bounds]).max(initial=0))
        return cp.asarray(bounds, dtype=cp.int32), 8 * TILE * widest

    def _read_rows(self, table: Any, constant: Any, weights: Any, factors: Any, first: int, out: Any) -> None:
        rows, columns = out.shape
        lanes = lanes_of(columns)
        grid = (blocks(rows, WARPS * 32 // lanes), -(-columns // lanes))
        read = (self.cells, self.n_rows, self.n_trees, self._starts, table, table.strides[0] // 8, columns, lanes)
        written = (constant, weights, factors, first, rows, out, out.strides[0] // 8)
        self._run("read_out_rows", grid, (32, WARPS), *read, *written)

    @within_memory()
    def moments(self, table: Any, constant: Any, weights: Any, values: Any, out: Array) -> None:
        columns = table.shape[1]
        expect("table", table, (self.n_cells, columns), apart=True)
        expect("constant", constant, (columns,))
        expect_weights("weights", weights, self.n_rows)
        expect("values", values, (self.n_rows, *getattr(values, "shape", ())[1:]))
        expect_output("out", out, (2, columns, values.shape[1]))
        table, constant, w, v = self._rows_put(table), self._put(constant), self._put(weights), self._put(values)
        for part, block in self._in_blocks(table, constant, w):
            out[0, part] = (cp.abs(block).T @ v).get()
            block *= block
            out[1, part] = (block.T @ v).get()

    def _in_blocks(self, table: Any, constant: Any, weights: Any) -> Iterator[tuple[slice, Any]]:
        """Read-outs of all rows, as many columns at a time as memory allows, and which these are."""
        columns = table.shape[1]
        most = min(READ_BYTES, total_bytes() // READ_SHARE)
        step = int(max(TILE, most // (8 * max(self.n_rows, 1)) // TILE * TILE))
        for start in range(0, columns, step):
            part = slice(start, min(start + step, columns))
            block = cp.empty((self.n_rows, part.stop - part.start))
            if block.size:
                self._read(table[:, part], constant[part], weights, 0, block)
            yield part, block

    @within_memory()
    def top(self, table: Any, constant: Any, weights: Any, scale: Any, values: Array, rows: Numbers) -> None:
        columns = table.shape[1]
        expect("table", table, (self.n_cells, columns), apart=True)
        expect("constant", constant, (columns,))
        expect_weights("weights", weights, self.n_rows)
        expect_places(values, rows, columns, scale, self.n_rows)
        table, constant, w = self._rows_put(table), self._put(constant), self._put(weights)
        if not self.n_rows or not columns or not values.shape[1]:
            return
        scale = self._put(scale)
        for part, block in self._in_blocks(table, constant, w):
            merge(block, 0, scale, values[part], rows[part], self._kernel)

    @within_memory()
    def cooccurrence(self, first: int, last: int, weights: Any, out: Any) -> None:
        if not 0 <= first <= last <= self.n_trees:
            raise ValueError(f"trees {first} to {last} of {self.n_trees}")
        own = int(self.starts[last] - self.starts[first])
        expect_output("out", out, (own, own))
        expect_weights("weights", weights, self.n_rows)
        made = out if not is_host(out) else cp.empty(out.shape)
        made.fill(0.0)
        units, unit = self._units(weights)
        starts, each = self.starts[first : last + 1], 4 if units is None else 8
        tiles = runs_of(starts, int(np.sqrt(shared_bytes() // each)), TILE_TREES)
        if not self.n_rows or last - first < 2:
            pass  # nothing is shared
        elif tiles is None:
            grid = (blocks(self.n_rows, THREADS), last - first)
            counted = (self.cells, self.n_rows, self._starts, first, last, units, made, len(made))
            self._run("cooccur_apart", grid, (THREADS,), *counted)
        else:
            n = len(tiles) - 1
            pairs = np.array([(a, b) for a in range(n) for b in range(a, n)], dtype=np.int32)
            widths = starts[tiles[1:]] - starts[tiles[:-1]]
            taken = each * int((widths[pairs[:, 0]] * widths[pairs[:, 1]]).max())
            split = max(1, min(-(-self.n_rows // COUNTED_ROWS), -(-8 * processors() // len(pairs))))
            name = "cooccur_counts" if units is None else "cooccur_units"
            of_tiles = (cp.asarray(tiles, dtype=cp.int32), cp.asarray(pairs))
            common = (self.cells, self.n_rows, self._starts, first)
            written = (units, -(-self.n_rows // split), made, len(made))
            self._run(name, (len(pairs), split), (COUNT_THREADS,), *common, *of_tiles, *written, shared=taken)
        self._run("units_to_numbers", (blocks(made.size, THREADS),), (THREADS,), made, made.size, unit)
        if is_host(out):
            made.get(out=out)

    def _units(self, weights: Any) -> tuple[Any, float]:
        """The weights as multiples of a power of two, so small that all of them together still fit into 62 bits."""
        if weights is None:
            return None, 1.0
        w = self._put(weights)
        total = float(cp.abs(w).sum())
        unit = 2.0 ** (np.ceil(np.log2(total)) - 62) if total > 0 else 1.0
        return cp.rint(w / unit).astype(cp.int64).view(cp.uint64), float(unit)

    @within_memory()
    def pair_sums(self, table: Any, factors: Any, first: int, out: Array) -> None:
        expect("table", table, (self.n_cells, self.n_cells))
        if factors is not None:
            expect("factors", factors, (self.n_trees, len(out)))
        expect_output("out", out, (len(out),))
        expect_rows(first, len(out), self.n_rows)
        made = cp.empty(len(out))
        if len(out):
            read = (self.cells, self.n_rows, self.n_trees, self._starts, self._put(table), self._put(factors))
            self._run("pair_sums", (blocks(len(out), THREADS),), (THREADS,), *read, first, len(out), made)
        out[...] = made.get()

    @within_memory()
    def scaled_read_out(self, table: Any, factors: Any, first: int, out: Any) -> None:
        rows, columns = out.shape
        expect("table", table, (self.n_cells, columns))
        expect_rows(first, rows, self.n_rows)
        expect("factors", factors, (self.n_trees, rows))
        expect_output("out", out, (rows, columns))
        made = out if not is_host(out) else cp.empty(out.shape)
        if out.size:
            self._read_rows(self._rows_put(table), None, None, self._put(factors), first, made)
        if is_host(out):
            out[...] = made.get()

    @within_memory()
    def residual_factors(self, steps: Array, levels: Array, draws: Array, start: Array, first: int, out: Array) -> None:
        rows = out.shape[1]
        for name, table in (("steps", steps), ("levels", levels), ("draws", draws)):
            expect(name, table, (self.n_cells,))
        expect_rows(first, rows, self.n_rows)
        expect("start", start, (rows,))
        expect_output("out", out, (self.n_trees, rows))
        made = cp.empty(out.shape)
        if out.size:
            read = (self.cells, self.n_rows, self.n_trees, self._starts, *map(self._put, (steps, levels, draws, start)))
            self._run("residual_factors", (blocks(rows, THREADS),), (THREADS,), *read, first, rows, made)
        out[...] = made.get()

    def gradient_factors(self, *arguments: Any, **named: Any) -> None:
        self.beside.gradient_factors(*arguments, **named)

    def deletions(self, *arguments: Any, **named: Any) -> None:
        self.beside.deletions(*arguments, **named)

    @within_memory()
    def replay(
        self,
        values: Array,
        targets: Array,
        weights: Array | None,
        single: bool,
        single_score: bool,
        score: Array,
        sums: Array,
        counts: Array,
    ) -> None:
        expect("values", values, (self.n_cells,))
        expect("targets", targets, (self.n_rows,))
        expect_weights("weights", weights, self.n_rows)
        expect_output("score", score, (self.n_rows,))
        for name, table in (("sums", sums), ("counts", counts)):
            expect_output(name, table, (self.n_cells,))
        found, own_score = cp.empty(self.n_cells), cp.array(score)
        v, y, w = self._put(values), self._put(targets), self._put(weights)
        for t in range(self.n_trees):
            own, cells = self.sorted.trees[t], slice(int(self.starts[t]), int(self.starts[t + 1]))
            parts = cp.empty((own.n_segments, 1))
            read = (
                own.order,
                own.segments,
                own.cells,
                own.n_segments,
                v[cells],
                y,
                w,
                bool(single),
                bool(single_score),
            )
            self._run("replay_segments", (blocks(own.n_segments),), (32, WARPS), *read, own_score, parts)
            self._combine(own.first, own.begin, parts, 1, found[cells])
        own_score.get(out=score)
        found.get(out=sums)
        counts[...] = self.sorted.counts


def neighbours(numbers: Numbers) -> list[Numbers]:
    """Runs of tree numbers that follow each other."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1) if len(numbers) else []


def runs_of(starts: Numbers, most_cells: int, most_trees: int) -> list[int] | None:
    """Bounds of runs of at most so many cells and trees; None where a single tree has more cells."""
    if np.diff(starts).max(initial=0) > most_cells:
        return None
    bounds = [0]
    while bounds[-1] < len(starts) - 1:
        fits = int(np.searchsorted(starts, starts[bounds[-1]] + most_cells, side="right")) - 1
        bounds.append(min(fits, bounds[-1] + most_trees))
    return bounds

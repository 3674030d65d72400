"""Sums over cells: passes over the rows, and the replay of a fit.

Rows are sorted by cell, so that every sum has a fixed order.
"""

from __future__ import annotations

import cupy as cp
import numpy as np

from axil.arrays import FloatArray
from axil.kernels import Numbers
from axil.kernels.cuda.cells import KeptCells
from axil.kernels.cuda.checks import expect, expect_output, expect_trees, expect_weights
from axil.kernels.cuda.launch import MOST_BLOCKS, WARPS, blocks, lanes_of, within_memory
from axil.machine.arrays import DeviceArray, is_host

WIDE = 64  # columns of a warp that takes pairs of them
MOST_APPLIED = 4  # trees that such a warp looks up


class CellSums(KeptCells):
    """Sums over the rows of each cell."""

    @within_memory()
    def sweep(
        self,
        state: DeviceArray,
        apply: Numbers,
        table: DeviceArray,
        apply_weights: DeviceArray,
        gather: Numbers,
        sums: DeviceArray,
        gather_weights: DeviceArray,
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
        a = self._put(apply_weights)
        g = self._put(gather_weights)
        table = self._put(table)
        lanes = lanes_of(columns)
        trees = self._numbers(apply)
        n_apply = len(apply)
        if not len(gather) and n_apply:
            grid = (blocks(self.n_rows, WARPS * 32 // lanes), -(-columns // lanes))
            read = (self.cells, self.n_rows, columns, lanes, trees, n_apply, self._starts, table, a)
            self._run("apply_trees", grid, (32, WARPS), *read, on_device)
        for run in neighbours(gather):
            self._gather(run, on_device, (trees, n_apply, table, a), sums, g, lanes)
            n_apply = 0  # done on the way to the first sums
        if is_host(state):
            on_device.get(out=state)

    def _gather(
        self,
        run: Numbers,
        state: DeviceArray,
        applied: tuple[DeviceArray, ...],
        sums: DeviceArray,
        g: DeviceArray,
        lanes: int,
    ) -> None:
        """Sum over the cells of neighbouring trees.

        Trees are applied on the way to the first sums.
        """
        columns = state.shape[1]
        trees, n_apply, table, a = applied
        sorted_trees = self.sorted.trees[run[0] : run[-1] + 1]
        begin = sorted_trees[0].begin
        end = sorted_trees[-1].begin + sorted_trees[-1].n_segments
        segment_sums = cp.empty((end - begin, columns))
        if columns % WIDE == 0:
            wide = columns // WIDE
        else:
            wide = 0
        for tree in sorted_trees:
            gathered = (
                tree.order,
                tree.segments,
                tree.n_segments,
                g,
                state,
                segment_sums[tree.begin - begin :],
            )
            if wide and n_apply <= MOST_APPLIED:
                if wide % 2 == 0:
                    pairs = 2
                else:
                    pairs = 1
                read = (self.cells, self.n_rows, columns, trees, self._starts, table, a)
                grid = (blocks(tree.n_segments), wide // pairs)
                self._run(f"gather_wide_{pairs}_{n_apply}", grid, (32, WARPS), *read, *gathered)
            else:
                several = (
                    self.cells,
                    self.n_rows,
                    columns,
                    lanes,
                    trees,
                    n_apply,
                    self._starts,
                    table,
                    a,
                )
                grid = (blocks(tree.n_segments), -(-columns // lanes))
                self._run("gather_segments", grid, (32, WARPS), *several, *gathered)
            n_apply = 0
        cells = slice(int(self.starts[run[0]]), int(self.starts[run[-1] + 1]))
        if not is_host(sums):
            cell_sums = sums[cells]
        else:
            cell_sums = cp.empty((cells.stop - cells.start, columns))
        self._combine(
            self.sorted.first[cells.start : cells.stop + 1], begin, segment_sums, lanes, cell_sums
        )
        if is_host(sums):
            cell_sums.get(out=sums[cells])

    def _combine(
        self,
        first: DeviceArray,
        begin: int,
        segment_sums: DeviceArray,
        lanes: int,
        cell_sums: DeviceArray,
    ) -> None:
        """Sum over the segments of cells, whose numbers ``first`` has."""
        columns = segment_sums.shape[1]
        n_cells = len(first) - 1
        grid = (max(1, min(n_cells, MOST_BLOCKS)), -(-columns // lanes))
        self._run(
            "combine_segments",
            grid,
            (32, WARPS),
            segment_sums,
            columns,
            lanes,
            first,
            begin,
            n_cells,
            cell_sums,
        )

    def leaf_sums(self, v: DeviceArray, weights: DeviceArray) -> DeviceArray:
        """Return the sums of v over the rows of each cell, on the device if v is there."""
        sums = (np if is_host(v) else cp).empty((self.n_cells, v.shape[1]))
        if is_host(v):
            state = cp.array(v, order="C")
        else:
            state = v
        self.sweep(state, self.every[:0], sums, None, self.every, sums, weights)
        return sums

    @within_memory()
    def replay(
        self,
        values: FloatArray,
        targets: FloatArray,
        weights: FloatArray | None,
        single: bool,
        single_score: bool,
        score: FloatArray,
        sums: FloatArray,
        counts: FloatArray,
    ) -> None:
        expect("values", values, (self.n_cells,))
        expect("targets", targets, (self.n_rows,))
        expect_weights("weights", weights, self.n_rows)
        expect_output("score", score, (self.n_rows,))
        for name, table in (("sums", sums), ("counts", counts)):
            expect_output(name, table, (self.n_cells,))
        cell_sums = cp.empty(self.n_cells)
        device_score = cp.array(score)
        v = self._put(values)
        y = self._put(targets)
        w = self._put(weights)
        for t in range(self.n_trees):
            tree = self.sorted.trees[t]
            cells = slice(int(self.starts[t]), int(self.starts[t + 1]))
            segment_sums = cp.empty((tree.n_segments, 1))
            read = (
                tree.order,
                tree.segments,
                tree.cells,
                tree.n_segments,
                v[cells],
                y,
                w,
                bool(single),
                bool(single_score),
            )
            self._run(
                "replay_segments",
                (blocks(tree.n_segments),),
                (32, WARPS),
                *read,
                device_score,
                segment_sums,
            )
            self._combine(tree.first, tree.begin, segment_sums, 1, cell_sums[cells])
        device_score.get(out=score)
        cell_sums.get(out=sums)
        counts[...] = self.sorted.counts


def neighbours(numbers: Numbers) -> list[Numbers]:
    """Return runs of tree numbers that follow each other."""
    if len(numbers):
        return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return []

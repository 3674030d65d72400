"""Deletions: each row's walk through the trees in equations of its own.

One thread walks for each row and output.
"""

from __future__ import annotations

import cupy as cp

from axil.kernels.cuda.cells import KeptCells
from axil.kernels.cuda.checks import expect, expect_output, expect_rows, expect_weights
from axil.kernels.cuda.launch import THREADS, blocks, free_bytes, processors, to_host, within_memory
from axil.machine.arrays import DeviceArray, is_host, namespace
from axil.machine.blocks import spans

RULE = 5  # numbers that say how the scale of a leaf follows from its weight
WALKING = 1024  # threads per multiprocessor, at most
KEPT_BYTES = 1 << 30  # of what these remember of their rows, at most
KEPT_SHARE = 4  # and of free memory, as a divisor
MOVED_BYTES = 1 << 28  # of results that go to the host at a time


class Deleted(KeptCells):
    """The leave-one-out residuals of rows on the GPU."""

    @within_memory()
    def deletions(
        self,
        levels: int,
        table: DeviceArray,
        rules: DeviceArray,
        shifts: DeviceArray,
        draws: DeviceArray,
        weights: DeviceArray,
        values: DeviceArray,
        slopes: DeviceArray,
        steps: DeviceArray,
        drifts: DeviceArray,
        start: DeviceArray,
        base: DeviceArray,
        changed: DeviceArray,
        first: int,
        residuals: DeviceArray,
        added: DeviceArray,
    ) -> None:
        outputs, rows = start.shape
        expect_rows(first, rows, self.n_rows)
        n_leaves = self._leaves_of(levels)
        expect("table", table, (n_leaves, n_leaves), apart=True)
        expect("rules", rules, (n_leaves, RULE))
        expect_weights("shifts", shifts, n_leaves)
        expect("draws", draws, (levels,))
        expect_weights("weights", weights, rows)
        expect("values", values, (n_leaves, outputs))
        expect("slopes", slopes, (n_leaves,))
        expect("steps", steps, (self.n_trees, self.n_trees))
        expect("drifts", drifts, (self.n_trees,))
        for name, vectors in (("start", start), ("base", base), ("changed", changed)):
            expect(name, vectors, (outputs, rows))
        outputs_and_heights = [(residuals, self.n_trees + 1), (added, self.n_trees)]
        for name, (out, height) in zip(("residuals", "added"), outputs_and_heights):
            if out is not None:
                expect_output(name, out, (outputs, height, rows))
        if not rows or not outputs:
            return
        in_turn = not namespace(steps).tril(steps, -1).any()
        leaf_starts = self._starts if levels == 1 else cp.asarray(self.starts // levels)
        table = self._rows_put(table)
        of_leaves = (leaf_starts, int(levels), table, table.strides[0] // table.itemsize)
        of_leaves = (*of_leaves, *map(self._put, (rules, shifts, draws)))
        of_trees = (*map(self._put, (values, slopes, steps)), bool(in_turn), self._put(drifts))
        moved = any(out is not None and is_host(out) for out, _ in outputs_and_heights)
        step = max(THREADS, MOVED_BYTES // (8 * outputs * (self.n_trees + 1))) if moved else rows
        for span in spans(rows, step):
            n = span.stop - span.start
            span_weights = None if weights is None else self._put(weights[span])
            device_outputs = [
                cp.empty((outputs, height, n)) if moved and out is not None else out
                for out, height in outputs_and_heights
            ]
            slots, memory = self._kept_by_threads(
                n, outputs, (device_outputs[1] is None) + (not in_turn)
            )
            read = (
                self.cells,
                self.n_rows,
                self.n_trees,
                self._starts,
                *of_leaves,
                span_weights,
                *of_trees,
            )
            of_rows = (self._put(vectors[:, span]) for vectors in (start, base, changed))
            written = (first + span.start, n, outputs, *device_outputs, memory)
            self._run(
                "deletions", (slots // THREADS, outputs), (THREADS,), *read, *of_rows, *written
            )
            for (out, _), device_output in zip(outputs_and_heights, device_outputs):
                if out is not None and is_host(out):
                    to_host(device_output, out[:, :, span])
                elif device_output is not out:
                    out[:, :, span] = device_output

    def _leaves_of(self, levels: int) -> int:
        """Return the number of all leaves, each of ``levels`` cells."""
        if levels < 1:
            raise ValueError("levels must be at least 1")
        for t, count in enumerate(self.starts[1:] - self.starts[:-1]):
            if count % levels:
                raise ValueError(f"tree {t} has {count} cells, no multiple of {levels} levels")
        return self.n_cells // levels

    def _kept_by_threads(self, rows: int, outputs: int, numbers: int) -> tuple[int, DeviceArray]:
        """Return the number of threads that walk at a time, and their memory.

        A thread has ``numbers`` numbers for each tree and output.
        """
        needed = 8 * outputs * self.n_trees * numbers
        most = min(KEPT_BYTES, free_bytes() // KEPT_SHARE) // max(needed, 1) // THREADS
        grid = max(1, min(blocks(rows, THREADS), processors() * WALKING // THREADS, most))
        return grid * THREADS, cp.empty(grid * THREADS * needed // 8) if needed else None

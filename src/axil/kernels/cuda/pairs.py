"""Pairs of trees: the rows that their cells share, and sums over pairs row by row."""

from __future__ import annotations

import cupy as cp
import numpy as np

from axil.arrays import FloatArray
from axil.kernels.cuda.cells import KeptCells, runs_of
from axil.kernels.cuda.checks import expect, expect_output, expect_rows, expect_weights
from axil.kernels.cuda.launch import (
    THREADS,
    blocks,
    filled,
    processors,
    shared_bytes,
    within_memory,
)
from axil.machine.arrays import DeviceArray, is_host

TILE_TREES = 8  # of a block that counts cells by cells; as in kernels.cu
COUNT_THREADS = 512  # of such a block
COUNTED_ROWS = 1 << 14  # its least rows


class Pairs(KeptCells):
    """Sums over pairs of trees."""

    @within_memory()
    def cooccurrence(self, first: int, last: int, weights: DeviceArray, out: DeviceArray) -> None:
        if not 0 <= first <= last <= self.n_trees:
            raise ValueError(f"trees {first} to {last} of {self.n_trees}")
        width = int(self.starts[last] - self.starts[first])
        expect_output("out", out, (width, width))
        expect_weights("weights", weights, self.n_rows)
        if is_host(out):
            device_out = cp.empty(out.shape)
        else:
            device_out = out
        device_out.fill(0.0)
        units, unit = self._units(weights)
        if self.n_rows and last - first > 1:  # else nothing is shared
            self._count_shared(first, last, units, device_out)
        self._run(
            "units_to_numbers",
            (blocks(device_out.size, THREADS),),
            (THREADS,),
            device_out,
            device_out.size,
            unit,
        )
        if is_host(out):
            device_out.get(out=out)

    def _count_shared(
        self, first: int, last: int, units: DeviceArray | None, out: DeviceArray
    ) -> None:
        """Count the rows that cells of two trees share, in units of their weights."""
        starts = self.starts[first : last + 1]
        if units is None:
            name = "cooccur_counts"
            bytes_per_count = 4
        else:
            name = "cooccur_units"
            bytes_per_count = 8
        tiles = runs_of(starts, int(np.sqrt(shared_bytes() // bytes_per_count)), TILE_TREES)
        common = (self.cells, self.n_rows, self._starts, first)
        if tiles is None:
            grid = (blocks(self.n_rows, THREADS), last - first)
            self._run("cooccur_apart", grid, (THREADS,), *common, last, units, out, len(out))
            return
        n = len(tiles) - 1
        pairs = np.array([(a, b) for a in range(n) for b in range(a, n)], dtype=np.int32)
        widths = starts[tiles[1:]] - starts[tiles[:-1]]
        most_counts = int((widths[pairs[:, 0]] * widths[pairs[:, 1]]).max())
        split = max(1, min(-(-self.n_rows // COUNTED_ROWS), -(-8 * processors() // len(pairs))))
        self._run(
            name,
            (len(pairs), split),
            (COUNT_THREADS,),
            *common,
            cp.asarray(tiles, dtype=cp.int32),
            cp.asarray(pairs),
            units,
            -(-self.n_rows // split),
            out,
            len(out),
            shared=bytes_per_count * most_counts,
        )

    def _units(self, weights: DeviceArray) -> tuple[DeviceArray, float]:
        """Return the weights as multiples of a power of two, and this power.

        It is so large that the sum of all weights still fits into 62 bits.
        """
        if weights is None:
            return None, 1.0
        w = self._put(weights)
        total = float(cp.abs(w).sum())
        if total > 0:
            unit = 2.0 ** (np.ceil(np.log2(total)) - 62)
        else:
            unit = 1.0
        return cp.rint(w / unit).astype(cp.int64).view(cp.uint64), float(unit)

    @within_memory()
    def pair_sums(
        self, table: DeviceArray, factors: DeviceArray, first: int, out: FloatArray
    ) -> None:
        expect("table", table, (self.n_cells, self.n_cells))
        if factors is not None:
            expect("factors", factors, (self.n_trees, len(out)))
        expect_output("out", out, (len(out),))
        expect_rows(first, len(out), self.n_rows)
        read = (
            self.cells,
            self.n_rows,
            self.n_trees,
            self._starts,
            self._put(table),
            self._put(factors),
        )
        with filled(out) as device_out:
            if len(out):
                self._run(
                    "pair_sums",
                    (blocks(len(out), THREADS),),
                    (THREADS,),
                    *read,
                    first,
                    len(out),
                    device_out,
                )

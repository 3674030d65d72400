"""Pairs of trees: the rows that their cells share, and sums over pairs row by row."""

from __future__ import annotations

from typing import Any

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
from axil.machine.arrays import is_host

TILE_TREES = 8  # of a block that counts cells by cells; as in kernels.cu
COUNT_THREADS = 512  # of such a block
COUNTED_ROWS = 1 << 14  # its least rows


class Pairs(KeptCells):
    """Sums over pairs of trees."""

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
            self._run(
                name,
                (len(pairs), split),
                (COUNT_THREADS,),
                *common,
                *of_tiles,
                *written,
                shared=taken,
            )
        self._run(
            "units_to_numbers", (blocks(made.size, THREADS),), (THREADS,), made, made.size, unit
        )
        if is_host(out):
            made.get(out=out)

    def _units(self, weights: Any) -> tuple[Any, float]:
        """The weights as multiples of a power of two, so small that all of them together still fit into 62 bits."""
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
    def pair_sums(self, table: Any, factors: Any, first: int, out: FloatArray) -> None:
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
        with filled(out) as made:
            if len(out):
                self._run(
                    "pair_sums",
                    (blocks(len(out), THREADS),),
                    (THREADS,),
                    *read,
                    first,
                    len(out),
                    made,
                )

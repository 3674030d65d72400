"""The rows of a fit on the device: all passes over them together."""

from __future__ import annotations

from axil.kernels.cuda.checks import expect, expect_output, expect_rows
from axil.kernels.cuda.deletions import Deleted
from axil.kernels.cuda.factors import CudaFactors
from axil.kernels.cuda.launch import THREADS, blocks, filled, within_memory
from axil.kernels.cuda.pairs import Pairs
from axil.kernels.cuda.products import CellSums
from axil.kernels.cuda.reads import ReadOuts
from axil.machine.arrays import DeviceArray


class CudaRows(CellSums, ReadOuts, Pairs, CudaFactors, Deleted):
    """Rows on the device."""

    @within_memory()
    def residual_factors(
        self,
        steps: DeviceArray,
        levels: DeviceArray,
        draws: DeviceArray,
        start: DeviceArray,
        first: int,
        out: DeviceArray,
    ) -> None:
        rows = out.shape[1]
        for name, table in (("steps", steps), ("levels", levels), ("draws", draws)):
            expect(name, table, (self.n_cells,))
        expect_rows(first, rows, self.n_rows)
        expect("start", start, (rows,))
        expect_output("out", out, (self.n_trees, rows))
        read = (
            self.cells,
            self.n_rows,
            self.n_trees,
            self._starts,
            *map(self._put, (steps, levels, draws, start)),
        )
        with filled(out) as device_out:
            if out.size:
                self._run(
                    "residual_factors",
                    (blocks(rows, THREADS),),
                    (THREADS,),
                    *read,
                    first,
                    rows,
                    device_out,
                )

"""The kernels on an NVIDIA GPU, through CuPy.

They are loaded when a device is asked for, and compiled at first use; CuPy stores the result.
Cells and weights stay on the device. States, tables and sums may be arrays of the device, which
stay there, or of the host, which are copied there and back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import cupy as cp
from cupyx.scipy.linalg import solve_triangular

from axil.arrays import FloatArray
from axil.kernels import Backend, Costs, Numbers, Triangle
from axil.kernels.cuda.checks import expect_block
from axil.kernels.cuda.largest import merge
from axil.kernels.cuda.launch import kernel, within_memory
from axil.kernels.cuda.leaves import assign
from axil.kernels.cuda.rows import CudaRows
from axil.machine.arrays import DeviceArray, is_host

# Of an H200, by benchmarks/gpu.py; trees of more leaves look up more slowly than `walk` says.
COSTS = Costs(
    sweep=1.0,
    pair=0.44,
    fill=1.0,
    walk=1.0,
    read=0.14,
    solve=0.26,
    inverse=0.025,
    product=0.012,
    visit_seconds=3e-12,
)


class CudaTriangle(Triangle):
    """cuBLAS."""

    def __init__(self, factor: DeviceArray):
        self.factor = cp.asarray(factor)

    @within_memory()
    def solve(self, right: DeviceArray, transposed: bool) -> None:
        if right.size:
            solution = solve_triangular(
                self.factor, cp.asarray(right), trans=int(transposed), unit_diagonal=True
            )
            if not is_host(right):
                right[...] = solution
            else:
                right[...] = solution.get()

    @within_memory()
    def inverse(self, overwrite: bool) -> DeviceArray:
        if not len(self.factor):
            return cp.empty((0, 0))
        return cp.ascontiguousarray(
            solve_triangular(
                self.factor, cp.eye(len(self.factor)), trans=1, unit_diagonal=True, overwrite_b=True
            )
        )


@dataclass(frozen=True)
class Cuda(Backend):
    """The current GPU."""

    n_threads: int  #: of the host

    name = "cuda"
    costs = COSTS
    xp = cp

    def rows(
        self, cells: DeviceArray, starts: Numbers, weights: FloatArray | None = None
    ) -> CudaRows:
        return CudaRows(cells, starts, weights, self.n_threads)

    def triangle(self, factor: DeviceArray) -> CudaTriangle:
        return CudaTriangle(factor)

    @within_memory()
    def top(
        self, block: DeviceArray, first: int, scale: DeviceArray, values: FloatArray, rows: Numbers
    ) -> None:
        expect_block(block, first, scale, values, rows)
        if block.size and values.size:
            if scale is not None:
                scale = cp.asarray(scale)
            merge(
                cp.ascontiguousarray(cp.asarray(block)),
                first,
                scale,
                values,
                rows,
                partial(kernel, "uint8"),
            )

    def assign(self, *arguments: DeviceArray) -> bool:
        return assign(*arguments)

    def guard(self) -> AbstractContextManager[None]:
        return within_memory()

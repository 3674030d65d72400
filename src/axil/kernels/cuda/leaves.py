"""Leaves of rows on the device, from the trees' own tests; see `adapters.routes`."""

from __future__ import annotations

import cupy as cp
import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, RealArray
from axil.kernels import Cells, Numbers
from axil.kernels.cuda.launch import THREADS, blocks, kernel, launch, within_memory

CODE_BYTES = 1 << 30  # of the codes of the rows that are walked together


@within_memory()
def assign(
    values: RealArray,
    columns: Numbers,
    thresholds: FloatArray,
    views: Numbers,
    outcomes: NDArray[np.uint8],
    nodes: NDArray[np.int32],
    starts: Numbers,
    single: bool,
    strict: bool,
    zero: float,
    out: Cells,
) -> bool:
    """Assign leaves on the GPU; see `Backend.assign`.

    Routes come from `adapters.routes.make_routes`, and are not checked.
    """
    n_rows = len(values)
    n_columns = len(columns) - 1
    n_views = len(views)
    n_trees = len(starts) - 1
    if out.shape != (n_trees, n_rows):
        raise ValueError(f"out must be (trees, rows), {(n_trees, n_rows)}; it is {out.shape}")
    view_starts = np.searchsorted(views[:, 0], np.arange(n_columns + 1))
    tests = [cp.asarray(block) for block in (columns, thresholds, view_starts, views, outcomes)]
    device_nodes = cp.asarray(nodes)
    infinite = cp.zeros(1, dtype=cp.uint32)
    begins = cp.asarray(starts)
    cell = out.dtype.name
    step = max(1, CODE_BYTES // (2 * max(n_views, 1)))
    for first in range(0, n_rows, step):
        block = cp.asarray(values[first : first + step])
        rows = len(block)
        codes = cp.empty((n_views, rows), dtype=cp.uint16)
        leaves = cp.empty((n_trees, rows), dtype=out.dtype)
        steps = tuple(stride // block.itemsize for stride in block.strides)
        grid = blocks(rows, THREADS)
        if n_columns:
            tested = (block, rows, *steps, *tests, single, strict, float(zero), codes, infinite)
            launch(kernel(cell, f"code_{block.dtype.name}"), (grid, n_columns), (THREADS,), *tested)
        if n_trees:
            launch(
                kernel(cell, "walk_trees"),
                (grid, n_trees),
                (THREADS,),
                codes,
                rows,
                device_nodes,
                begins,
                leaves,
            )
        for t in range(n_trees):
            leaves[t].get(out=out[t, first : first + rows])
    return bool(infinite.get()[0])

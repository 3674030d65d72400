"""Places of training rows, a few numbers each, so that rows with many cells in common lie close together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from axil.kernels import Rows
from axil.machine.threads import one_blas_thread
from axil.types import Array

DIMENSIONS = 8
SAMPLE = 1 << 14  # rows that decide on the axes
ROUNDS = 12  # of subspace iteration: any axes are right, better ones make blocks of rows more alike
READ_ROWS = 1 << 16  # placed at a time


def places(rows: Rows, some: Rows) -> NDArray[np.float32]:
    """(N, DIMENSIONS): the first principal axes of the rows' cells, as a sample of them has these axes.

    A row is a vector of zeros and ones, one for each of its cells, and a cell counts by ``1 / sqrt(rows in it)``.
    """
    axes = _axes(some)
    made = np.empty((rows.n_rows, DIMENSIONS), dtype=np.float32)
    for first in range(0, rows.n_rows, READ_ROWS):
        part = made[first : first + READ_ROWS]
        read = np.empty(part.shape)
        rows.read_out(axes, np.zeros(DIMENSIONS), None, first, read)
        part[:] = read
    return made


@one_blas_thread()
def _axes(some: Rows) -> Array:
    """(C, DIMENSIONS): what each cell adds to a row's place."""
    n, none = some.n_rows, np.zeros(DIMENSIONS)
    shrink = 1 / np.sqrt(np.maximum(some.leaf_sums(np.ones((n, 1)), None), 1.0))
    axes = shrink * np.random.default_rng(0).normal(size=(some.n_cells, DIMENSIONS))
    own = np.empty((n, DIMENSIONS))
    for _ in range(ROUNDS):
        some.read_out(axes, none, None, 0, own)
        own -= own.mean(axis=0)
        axes = shrink * np.linalg.qr(shrink * some.leaf_sums(own, None))[0]
    return np.ascontiguousarray(axes)

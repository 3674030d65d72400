"""Blocks of alike training rows, with which the largest weights are found without reading every row; see cpp/blocks.cpp."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.kernels import Cells, Numbers, Rows
from axil.machine.arrays import namespace
from axil.machine.threads import one_blas_thread

LEAST_ROWS = 1 << 16  # below that all rows are read as fast as blocks are looked through
BUILD = 400  # queries whose rows are read in the time that making blocks takes
# a query that takes more than 1 / SHARE of all look-ups, each some 15 times as dear, reads all rows
# instead
SHARE = 32
PROBED = 32  # queries that decide for a batch whether blocks pay
FEW = 16  # places: blocks that do not pay for so few never pay


class Bounded:
    """The blocks of some rows: made when they pay, given up when they turn out not to.

    They are published whole, by one assignment. Whether there are any changes no answer: the same
    rows, the same bits.
    """

    def __init__(self, build: float = 1.0) -> None:
        """``build``: how many times `BUILD` queries have to pay for the blocks."""
        self.blocks: Any = None
        self._build = build
        self._wanted = True
        self._asked = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles make their own, when they pay."""
        return Bounded, (self._build,)

    def make(self, cells: Any, n_queries: int, available: int, build: Callable[[], Any]) -> bool:
        """Makes blocks if the queries so far and ``n_queries`` more pay for them, and ``available`` bytes hold them twice."""
        pays = cells.shape[1] >= LEAST_ROWS and self._asked + n_queries >= self._build * BUILD
        if self._wanted and self.blocks is None and pays and 2 * size(cells) <= available:
            with self._lock:
                if self._wanted and self.blocks is None:
                    made = build()  # None: the rows are not alike enough
                    self.blocks = made
                    self._wanted = made is not None
        return self.blocks is not None

    def top(
        self,
        search: Callable[..., None],
        read: Callable[..., None],
        n_look_ups: int,
        table: Any,
        constant: Any,
        factors: tuple[Any, Any],
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merges the k largest into their places, as `Rows.top` does; ``factors`` are its weights and scale.

        ``search`` takes the blocks, table, constant, factors, the look-ups that a query may take, places, and an array that it
        fills: which queries are done. ``read`` finds the largest of the others, by reading all rows in ``n_look_ups``.
        """
        xp = namespace(table)
        blocks = self.blocks
        n = len(constant)
        done = np.zeros(n, dtype=np.uint8)
        if n <= 2 * PROBED:
            parts = [slice(0, n)]
        else:
            parts = [slice(0, PROBED), slice(PROBED, n)]
        for part in parts if blocks is not None else []:
            own = xp.ascontiguousarray(table[:, part]), xp.ascontiguousarray(constant[part])
            search(
                blocks,
                *own,
                *factors,
                int(n_look_ups / SHARE),
                values[part],
                rows[part],
                done[part],
            )
            if done[part].mean() < 0.5:
                if factors[1] is None and values.shape[1] <= FEW:
                    self.blocks = None
                    self._wanted = False
                break
        left = np.flatnonzero(done == 0)
        self._asked += len(left)
        if len(left) == n:
            read(table, constant, *factors, values, rows)
        elif len(left):
            some = values[left]
            places = rows[left]
            read(
                xp.ascontiguousarray(table[:, xp.asarray(left)]),
                constant[xp.asarray(left)],
                *factors,
                some,
                places,
            )
            values[left], rows[left] = some, places


def size(cells: Cells) -> int:
    """Bytes of the blocks, at most: cells and lists of them (``rows_per_number``), and 44 per row while they are made."""
    trees, rows = cells.shape
    return int(trees * rows * cells.itemsize + 4 * trees * rows // 5 + 44 * rows)


DIMENSIONS = 8
SAMPLE = 1 << 14  # rows that decide on the axes
ROUNDS = 12  # of subspace iteration: any axes are right, better ones make blocks of rows more alike
READ_ROWS = 1 << 16  # placed at a time


def places(rows: Rows, some: Rows) -> NDArray[np.float32]:
    """(N, DIMENSIONS): the first principal axes of the rows' cells, as a sample of them has these axes.

    A row is a vector of zeros and ones, one for each of its cells, and a cell counts by ``1 /
    sqrt(rows in it)``.
    """
    axes = axes_of(some)
    made = np.empty((rows.n_rows, DIMENSIONS), dtype=np.float32)
    for first in range(0, rows.n_rows, READ_ROWS):
        part = made[first : first + READ_ROWS]
        read = np.empty(part.shape)
        rows.read_out(axes, np.zeros(DIMENSIONS), None, first, read)
        part[:] = read
    return made


@one_blas_thread()
def axes_of(some: Rows) -> FloatArray:
    """(C, DIMENSIONS): what each cell adds to a row's place."""
    n = some.n_rows
    none = np.zeros(DIMENSIONS)
    shrink = 1 / np.sqrt(np.maximum(some.leaf_sums(np.ones((n, 1)), None), 1.0))
    axes = shrink * np.random.default_rng(0).normal(size=(some.n_cells, DIMENSIONS))
    own = np.empty((n, DIMENSIONS))
    for _ in range(ROUNDS):
        some.read_out(axes, none, None, 0, own)
        own -= own.mean(axis=0)
        axes = shrink * np.linalg.qr(shrink * some.leaf_sums(own, None))[0]
    return np.ascontiguousarray(axes)

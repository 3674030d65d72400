"""Blocks of alike training rows, through which the largest weights are found without all rows.

See cpp/blocks.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from axil.aliases import ForeignObject
from axil.arrays import FloatArray
from axil.kernels import Cells, Numbers, Rows
from axil.machine.arrays import AnyPlaceArray, namespace
from axil.machine.blocks import spans
from axil.machine.threads import one_blas_thread

Blocks = TypeVar("Blocks")

LEAST_ROWS = 1 << 16  # below that all rows are read as fast as blocks are looked through
BUILD = 400  # explained rows for which all rows are read in the time that making blocks takes
#: An explained row that takes more than 1 / SHARE of all look-ups, each some 15 times as dear,
#: reads all rows instead.
SHARE = 32
PROBED = 32  # explained rows that decide for a batch whether blocks pay
FEW = 16  # places: blocks that do not pay for so few never pay


class Bounded:
    """The blocks of some rows, built if they pay and dropped if they do not.

    They are published whole, by one assignment. Whether there are any changes no answer: the same
    rows, the same bits.

    Parameters
    ----------
    build : float
        For how many times `BUILD` explained rows the blocks have to pay.
    """

    def __init__(self, build: float = 1.0) -> None:
        #: the blocks of a back end; None if there are none
        self.blocks: ForeignObject = None
        self._build = build
        self._may_pay = True
        self._n_read = 0  # explained rows for which all rows were read
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Bounded], tuple[float]]:
        """Return the arguments of a copy, which builds its own blocks if they pay."""
        return Bounded, (self._build,)

    def make(
        self, cells: Cells, n_queries: int, available: int, build: Callable[[], Blocks | None]
    ) -> bool:
        """Make blocks if they pay, and return whether there are any.

        Parameters
        ----------
        cells : array of shape (T, N)
        n_queries : int
            The explained rows to come.
        available : int
            Bytes, which must hold the blocks twice.
        build : callable
            Returns the blocks, or None if the rows are not alike enough.
        """
        n_reads = self._n_read + n_queries
        pays = cells.shape[1] >= LEAST_ROWS and n_reads >= self._build * BUILD
        if self._may_pay and self.blocks is None and pays and 2 * size(cells) <= available:
            with self._lock:
                if self._may_pay and self.blocks is None:
                    self.blocks = build()
                    self._may_pay = self.blocks is not None
        return self.blocks is not None

    def top(
        self,
        search: Callable[..., None],
        read: Callable[..., None],
        n_look_ups: int,
        table: AnyPlaceArray,
        constant: AnyPlaceArray,
        factors: tuple[AnyPlaceArray | None, AnyPlaceArray | None],
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merge the k largest into their places, as `Rows.top` does.

        Parameters
        ----------
        search : callable
            Takes the blocks, the table, the constant, the factors, the look-ups that an explained
            row may take, the places, and an array in which it marks the explained rows that are
            done.
        read : callable
            Finds the largest for the others, by reading all rows.
        n_look_ups : int
            The look-ups of a read.
        table, constant : array of shape (C, S) and (S,)
        factors : pair of arrays of shape (N,), or None
            The weights and the scale of `Rows.top`.
        values, rows : array of shape (S, k)
            The places.
        """
        xp = namespace(table)
        n_columns = len(constant)
        is_done = np.zeros(n_columns, dtype=np.uint8)
        blocks = self.blocks
        if blocks is not None:
            most_look_ups = int(n_look_ups / SHARE)
            for columns in _probe_and_rest(n_columns):
                search(
                    blocks,
                    xp.ascontiguousarray(table[:, columns]),
                    xp.ascontiguousarray(constant[columns]),
                    *factors,
                    most_look_ups,
                    values[columns],
                    rows[columns],
                    is_done[columns],
                )
                if is_done[columns].mean() < 0.5:
                    self._give_up_for_few(factors[1], values.shape[1])
                    break
        open_columns = np.flatnonzero(is_done == 0)
        self._n_read += len(open_columns)
        if len(open_columns) == n_columns:
            read(table, constant, *factors, values, rows)
        elif len(open_columns):
            open_values = values[open_columns]
            open_rows = rows[open_columns]
            device_columns = xp.asarray(open_columns)
            open_table = xp.ascontiguousarray(table[:, device_columns])
            read(open_table, constant[device_columns], *factors, open_values, open_rows)
            values[open_columns] = open_values
            rows[open_columns] = open_rows

    def _give_up_for_few(self, scale: AnyPlaceArray | None, k: int) -> None:
        """Drop blocks that do not pay even for a few places without a scale."""
        if scale is None and k <= FEW:
            self.blocks = None
            self._may_pay = False


def _probe_and_rest(n_columns: int) -> list[slice]:
    """Return the columns that decide whether blocks pay, then the others."""
    if n_columns <= 2 * PROBED:
        return [slice(0, n_columns)]
    return [slice(0, PROBED), slice(PROBED, n_columns)]


def size(cells: Cells) -> int:
    """Return the bytes of the blocks, at most.

    They have the cells, lists of them (``rows_per_number``), and 44 bytes per row while they are
    made.
    """
    n_trees, n_rows = cells.shape
    return int(n_trees * n_rows * cells.itemsize + 4 * n_trees * n_rows // 5 + 44 * n_rows)


DIMENSIONS = 8
SAMPLE = 1 << 14  # rows that decide on the axes
ROUNDS = 12  # of subspace iteration: any axes are right, better ones make blocks of rows more alike
READ_ROWS = 1 << 16  # placed at a time


def places(rows: Rows, sampled_rows: Rows) -> NDArray[np.float32]:
    """Return the first principal axes of the rows' cells, (N, DIMENSIONS).

    The axes are those of a sample of the rows. A row is a vector of zeros and ones, one for each
    cell, and a cell counts by ``1 / sqrt(rows in it)``.
    """
    axes = axes_of(sampled_rows)
    row_places = np.empty((rows.n_rows, DIMENSIONS), dtype=np.float32)
    for block in spans(rows.n_rows, READ_ROWS):
        sums = np.empty((block.stop - block.start, DIMENSIONS))
        rows.read_out(axes, np.zeros(DIMENSIONS), None, block.start, sums)
        row_places[block] = sums
    return row_places


@one_blas_thread()
def axes_of(rows: Rows) -> FloatArray:
    """Return what each cell adds to the position of its rows on the axes, (C, DIMENSIONS)."""
    zeros = np.zeros(DIMENSIONS)
    counts = rows.leaf_sums(np.ones((rows.n_rows, 1)), None)
    shrinkage = 1 / np.sqrt(np.maximum(counts, 1.0))
    axes = shrinkage * np.random.default_rng(0).normal(size=(rows.n_cells, DIMENSIONS))
    row_places = np.empty((rows.n_rows, DIMENSIONS))
    for _ in range(ROUNDS):
        rows.read_out(axes, zeros, None, 0, row_places)
        row_places -= row_places.mean(axis=0)
        axes = shrinkage * np.linalg.qr(shrinkage * rows.leaf_sums(row_places, None))[0]
    return np.ascontiguousarray(axes)

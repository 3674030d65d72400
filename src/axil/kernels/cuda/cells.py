"""The cells of the training rows on the device: what every pass over them starts from."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial

import cupy as cp
import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.kernels import Cells, Numbers, Rows
from axil.kernels.bounds import Bounded
from axil.kernels.cuda.checks import expect_cells, expect_trees, expect_weights
from axil.kernels.cuda.launch import free_bytes, kernel, launch, total_bytes, within_memory
from axil.kernels.cuda.order import ROWS_AT_MOST, SortedRows
from axil.machine.arrays import DeviceArray
from axil.machine.memory import in_words
from axil.machine.threads import Cache


@dataclass(frozen=True, eq=False)
class Copy:
    """Cells on the GPU, with arrays computed from them."""

    source: weakref.ref[Cells]  #: the array of the host
    cells: DeviceArray
    kept: Cache

    def __reduce__(self) -> tuple[Callable[[Cells], Copy], tuple[Cells]]:
        """Return how to make this copy in another process, which has no weak references to it."""
        return copy_of, (self.cells.get(),)


COPIES: list[Copy] = []  # of read-only arrays of the host, as long as those live


def known_copy(cells: Cells) -> Copy | None:
    """Return the copy of a read-only array on the GPU; None if there is none."""
    return next((device_copy for device_copy in COPIES if device_copy.source() is cells), None)


def copy_of(cells: Cells) -> Copy:
    """Return cells on the device, with one copy for an array that nobody can change.

    Replay and weights go over the same rows.
    """
    cells_copy = None
    if not cells.flags.writeable:
        cells_copy = known_copy(cells)
    if cells_copy is not None:
        return cells_copy
    needed = cells.size * (cells.dtype.itemsize + 4)
    free = free_bytes()
    if needed > free:
        raise InputError(
            f"The leaf numbers of {cells.shape[1]} rows in {len(cells)} trees, sorted and as they "
            f"are, take {in_words(needed)} "
            f'on the GPU, where {in_words(free)} are free. Use device="cpu".'
        )
    cells_copy = Copy(weakref.ref(cells), cp.asarray(cells), Cache())
    if not cells.flags.writeable:
        COPIES.append(cells_copy)
        weakref.finalize(cells, COPIES.remove, cells_copy)
    return cells_copy


# 0.6 + 4e6 / rows times as many queries as on cores pay for blocks of alike rows
BUILD = 0.6
BUILD_ROWS = 4e6
SHARED_LEAVES = 1024  # of trees that share a pass
SHARED_MEMORY = 8  # the part of all memory, as a divisor, that their co-occurrences may take


@dataclass(frozen=True)
class SomeTrees:
    """Some of the trees, whose cells follow each other."""

    trees: DeviceArray  #: their numbers, on the device
    starts: DeviceArray  #: where the cells of each begin, on the device
    n_cells: int


class KeptCells(Rows):
    """The cells on the GPU; sums also need the rows of each tree sorted by cell."""

    xp = cp
    swept = 256
    times = 8

    @within_memory()
    def __init__(self, cells: Cells, starts: Numbers, weights: FloatArray | None, n_threads: int):
        expect_cells(cells, starts)
        expect_weights("weights", weights, cells.shape[1])
        self.weights = weights
        self.n_threads = n_threads
        self.n_rows = int(cells.shape[1])
        self.n_cells = int(starts[-1])
        if self.n_rows > ROWS_AT_MOST:
            raise InputError(
                f'{self.n_rows} training rows; a GPU takes {ROWS_AT_MOST}. Use device="cpu".'
            )
        self.every = np.arange(len(cells))
        self.starts = np.array(starts)
        self._starts = cp.asarray(self.starts)
        self._trees = cp.arange(len(cells), dtype=cp.int32)
        self._copy = copy_of(cells)
        self.cells = self._copy.cells
        if weights is None:
            self._weights = None
        else:
            self._weights = cp.asarray(weights)
        self._kept = Cache()
        self._bounded = Bounded(BUILD + BUILD_ROWS / max(self.n_rows, 1))
        self.shared_leaves = min(
            SHARED_LEAVES, total_bytes() // SHARED_MEMORY // (8 * max(self.n_cells, 1))
        )

    @property
    def n_trees(self) -> int:
        return len(self.every)

    def _kernel(self, name: str) -> ForeignObject:
        return kernel(self.cells.dtype.name, name)

    def _run(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: DeviceArray,
        shared: int = 0,
    ) -> None:
        launch(self._kernel(name), grid, block, *arguments, shared=shared)

    def _put(self, array: DeviceArray) -> DeviceArray:
        if array is None:
            return None
        if array is self.weights:
            return self._weights
        return cp.ascontiguousarray(cp.asarray(array))

    @staticmethod
    def _rows_put(table: DeviceArray) -> DeviceArray:
        """Return a table on the GPU, whose rows may lie apart."""
        table = cp.asarray(table)
        if table.strides[1] == table.itemsize:
            return table
        return cp.ascontiguousarray(table)

    def _numbers(self, trees: Numbers) -> DeviceArray:
        """Return tree numbers on the GPU, which may be there already."""
        if len(trees) and trees[-1] - trees[0] == len(trees) - 1 and (np.diff(trees) == 1).all():
            return self._trees[trees[0] : trees[-1] + 1]
        return cp.asarray(trees, dtype=cp.int32)

    def some(self, trees: Numbers | None) -> SomeTrees:
        """Return these trees, on the device; all trees for None."""
        if trees is None:
            return SomeTrees(self._trees, self._starts, self.n_cells)
        expect_trees("trees", trees, self.n_trees)
        return self._kept.get(trees.tobytes(), partial(self._some, trees))

    def _some(self, trees: Numbers) -> SomeTrees:
        starts = np.append(0, np.cumsum(np.diff(self.starts)[trees])).astype(np.int64)
        return SomeTrees(cp.asarray(trees, dtype=cp.int32), cp.asarray(starts), int(starts[-1]))

    def tree(self, number: int) -> KeptCells:
        return self._kept.get(("tree", number), partial(self._alone, number))

    @within_memory()
    def _alone(self, number: int) -> KeptCells:
        single = copy(self)
        single.narrow(number, self.sorted)
        return single

    def narrow(self, number: int, rows: SortedRows) -> None:
        """Drop all trees but one, whose rows are sorted already."""
        self.cells = self.cells[number : number + 1]
        self._trees = self._trees[:1]
        self.starts = self.starts[number : number + 2] - self.starts[number]
        self.every = np.arange(1)
        self.n_cells = int(self.starts[-1])
        self._starts = cp.asarray(self.starts)
        self._kept = Cache()
        self._bounded = Bounded(BUILD + BUILD_ROWS / max(self.n_rows, 1))
        self._kept.get("sorted", partial(rows.alone, number))

    @property
    def sorted(self) -> SortedRows:
        return self._kept.get("sorted", self._sort)

    def _sort(self) -> SortedRows:
        make = partial(SortedRows.of, self.cells, self.starts, self._starts, self._run)
        return self._copy.kept.get(self.starts.tobytes(), make)


def runs_of(starts: Numbers, most_cells: int, most_trees: int) -> list[int] | None:
    """Return the bounds of runs of at most ``most_cells`` cells and ``most_trees`` trees.

    Returns None if a single tree has more cells.
    """
    if np.diff(starts).max(initial=0) > most_cells:
        return None
    bounds = [0]
    while bounds[-1] < len(starts) - 1:
        fits = int(np.searchsorted(starts, starts[bounds[-1]] + most_cells, side="right")) - 1
        bounds.append(min(fits, bounds[-1] + most_trees))
    return bounds

"""The kernels on the CPU: the compiled core, BLAS and LAPACK.

No other module of the package imports the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from axil import _core
from axil.arrays import AnyArray, FloatArray
from axil.kernels import LINKS, Backend, Cells, Costs, Numbers, Program, Rows, Triangle
from axil.kernels.bounds import SAMPLE, Bounded, places
from axil.machine.blocks import spans
from axil.machine.cancellation import add_kernels
from axil.machine.progress import track
from axil.machine.threads import Cache, one_blas_thread

# Some 20 times a second, while a kernel runs
add_kernels(lambda check: _core.on_poll(check))

BLOCK = 256  # leaves worked on between two moments at which Ctrl-C takes effect
SWEPT_CELLS = 4096  # of a tree times columns: the tables of a pass stay in the second-level cache
LEAST_SWEPT = 16  # columns: a row of the state is whole cache lines
#: Up to so many columns, all rows are read sooner in double precision than screened in single.
FEW_COLUMNS = 8
READ_ROWS = 1 << 17  # rows of few columns that are read at a time
#: Of two cores
COSTS = Costs(
    sweep=1.0,
    pair=0.8,
    fill=20.0,
    walk=2.7,
    read=0.18,
    solve=0.09,
    inverse=0.035,
    product=0.14,
    visit_seconds=3e-10,
)


def _walked(kernel: Callable[..., None]) -> Callable[..., None]:
    """Return the method of `Rows` that walks through the rounds of a `Program`."""

    def method(self: CpuRows, program: Program, *arguments: object, **named: object) -> None:
        rounds = (
            program.rounds,
            program.terms,
            program.scales,
            program.moves,
            program.steps,
            program.draws,
        )
        link = LINKS.index(program.link)
        kernel(
            self.cells,
            self.starts,
            *rounds,
            link,
            program.product,
            *arguments,
            **named,
            n_threads=self.n_threads,
        )

    return method


def _passed(kernel: Callable[..., None]) -> Callable[..., None]:
    """Return the method of `Rows` that calls a kernel of the core.

    The kernel takes the arguments of the method between the cells and the number of threads.
    """

    def method(self: CpuRows, *arguments: object, **named: object) -> None:
        kernel(self.cells, self.starts, *arguments, **named, n_threads=self.n_threads)

    return method


class CpuRows(Rows):
    """Rows in the memory of the host, and the threads that share a pass over them."""

    sweep = _passed(_core.sweep)
    read_out = _passed(_core.read_out)
    moments = _passed(_core.moments)
    _top_rows = _passed(_core.top_rows)
    matches = _passed(_core.matches)
    top_matches = _passed(_core.top_matches)
    pair_sums = _passed(_core.pair_sums)
    residual_factors = _passed(_core.residual_factors)
    deletions = _passed(_core.deletions)
    replay = _passed(_core.replay)
    gradient_factors = _walked(_core.gradient_factors)
    #: the sums of what `gradient_factors` adds in each term's cells, and of their sizes
    gradient_sums = _walked(_core.gradient_sums)

    def __init__(self, cells: Cells, starts: Numbers, weights: FloatArray | None, n_threads: int):
        self.cells = cells
        self.starts = starts
        self.weights = weights
        self.n_threads = n_threads
        self.n_rows = int(cells.shape[1])
        self.n_cells = int(starts[-1])
        self.every = np.arange(len(cells))
        self.shared_bytes = cells.itemsize
        cells_per_tree = self.n_cells / max(len(cells), 1)
        while self.swept > LEAST_SWEPT and self.swept * cells_per_tree > SWEPT_CELLS:
            self.swept //= 2
        self._bounded = Bounded()

    def tree(self, number: int) -> CpuRows:
        """Return these rows in one of the trees, through views of the same arrays."""
        starts = self.starts[number : number + 2] - self.starts[number]
        return CpuRows(self.cells[number : number + 1], starts, self.weights, self.n_threads)

    def product(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return ``a @ b``, added up in a fixed order; see `product`."""
        return product(a, b, self.n_threads)

    def top(
        self,
        table: FloatArray,
        constant: FloatArray,
        weights: FloatArray | None,
        scale: FloatArray | None,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merge the k largest, through blocks of similar rows if these pay."""
        search = partial(_core.top_blocks, n_threads=self.n_threads)
        self._bounded.top(
            search, self._read_top, self.cells.size, table, constant, (weights, scale), values, rows
        )

    def _read_top(
        self,
        table: FloatArray,
        constant: FloatArray,
        weights: FloatArray | None,
        scale: FloatArray | None,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merge the k largest, by reading all rows.

        Many columns are screened in single precision first. The bits are the same.
        """
        if len(constant) > FEW_COLUMNS:
            return self._top_rows(table, constant, weights, scale, values, rows)
        for span in spans(self.n_rows, READ_ROWS):
            block = np.empty((span.stop - span.start, len(constant)))
            self.read_out(table, constant, weights, span.start, block)
            _core.top(block, span.start, scale, values, rows, self.n_threads)

    def index(self, n_queries: int, available: int) -> bool:
        """Build blocks of similar rows if they pay, and return whether there are any."""
        return self._bounded.make(self.cells, n_queries, available, self._make_blocks)

    @property
    def blocks(self) -> _core.Blocks | None:
        """The blocks that `top` searches; None if there are none."""
        blocks: _core.Blocks | None = self._bounded.blocks
        return blocks

    def _make_blocks(self) -> _core.Blocks | None:
        """Return blocks of similar rows; None if the rows are not similar enough."""
        sampled = np.linspace(0, self.n_rows - 1, min(SAMPLE, self.n_rows)).astype(np.intp)
        sampled_cells = np.ascontiguousarray(self.cells[:, sampled])
        sampled_rows = CpuRows(sampled_cells, self.starts, None, self.n_threads)
        row_places = places(self, sampled_rows)
        return _core.blocks(self.cells, self.starts, row_places, self.n_threads)

    def cooccurrence(
        self, first: int, last: int, weights: FloatArray | None, out: FloatArray
    ) -> None:
        """Count the rows that cells of two trees share."""
        starts = self.starts[first : last + 1] - self.starts[first]
        _core.cooccurrence(self.cells[first:last], starts, weights, out, self.n_threads)

    def scaled_read_out(
        self,
        table: FloatArray,
        factors: FloatArray,
        first: int,
        out: FloatArray,
        trees: Numbers | None = None,
    ) -> None:
        """Fill ``out`` with sums over the trees, each times a factor of the row."""
        if trees is None:
            return _core.scaled_read_out(
                self.cells, self.starts, table, factors, first, out, self.n_threads
            )
        numbers, starts = self._chosen_trees(trees)
        # The kernel takes neighbouring trees: a copy, of these rows alone
        cells = np.ascontiguousarray(self.cells[numbers, first : first + len(out)])
        _core.scaled_read_out(cells, starts, table, factors, 0, out, self.n_threads)

    def factor_sums(
        self,
        factors: FloatArray,
        codes: Numbers,
        first: int,
        sums: FloatArray,
        trees: Numbers | None = None,
    ) -> None:
        """Add factors to the sums of cells and groups."""
        numbers, starts = self._chosen_trees(trees)
        n = len(codes)
        has_shapes = factors.shape == (len(numbers), n) and len(sums) == starts[-1]
        if not has_shapes or not 0 <= first <= self.n_rows - n:
            raise ValueError(
                f"factors {factors.shape}, sums {sums.shape}, {n} rows from {first} on do not fit "
                "together"
            )
        _core.factor_sums(
            self.cells,
            self.starts,
            numbers,
            np.ascontiguousarray(factors),
            codes,
            first,
            sums,
            self.n_threads,
        )

    def _chosen_trees(self, trees: Numbers | None) -> tuple[Numbers, Numbers]:
        """Return tree numbers, and the first cell of each in a table of only these trees."""
        if trees is None:
            return self.every, self.starts
        if len(trees) and not 0 <= trees.min() <= trees.max() < len(self.cells):
            raise ValueError(f"trees has a number that is none of the {len(self.cells)} trees")
        return trees, np.append(0, np.cumsum(np.diff(self.starts)[trees])).astype(np.int64)


def product(a: FloatArray, b: FloatArray, n_threads: int = 1) -> FloatArray:
    """Return ``a @ b`` for a (m, k) and b (k, S).

    Each number is added up in the order of k, so no column depends on those beside it.
    """
    out = np.empty((a.shape[0], b.shape[1]))
    if a.strides[1] != a.itemsize:
        a = np.ascontiguousarray(a)
    _core.product(a, np.ascontiguousarray(b), out, n_threads)
    return out


def column_sums(
    block: FloatArray, values: FloatArray, measure: int, n_threads: int = 1
) -> FloatArray:
    """Return ``sum_j f(block[j, s]) values[j, m]``, (S, M); see `_core.column_sums`."""
    out = np.empty((block.shape[1], values.shape[1]))
    _core.column_sums(block, values, measure, out, n_threads)
    return out


@dataclass(frozen=True)
class CellLists:
    """Some cells for each of n explained rows, with coefficients."""

    starts: Numbers  #: (n + 1,) where the cells of each explained row begin
    cells: Numbers
    coefficients: FloatArray | None  #: None for ones


def ordered_read_out(
    values: FloatArray,
    rows: NDArray[np.uint16],
    ends: Numbers,
    block_rows: int,
    cell_lists: CellLists,
    out: FloatArray,
    n_threads: int = 1,
) -> None:
    """Fill ``out`` (n, rows) from entries in the order of cells; see `_core.ordered_read_out`."""
    lists = (cell_lists.starts, cell_lists.cells, cell_lists.coefficients)
    _core.ordered_read_out(values, rows, ends, block_rows, *lists, out, n_threads)


def number_keys(keys: NDArray[np.uint64]) -> tuple[Numbers, int]:
    """Return the number of each key among the distinct ones, (N,), and how many these are.

    Keys are numbered in the order of their first rows.
    """
    numbers = np.empty(len(keys), dtype=np.int64)
    return numbers, _core.number_keys(np.ascontiguousarray(keys), numbers)


def encodings_before(
    numbers: NDArray[np.uint32],
    count: int,
    values: NDArray[np.uint8] | NDArray[np.float32],
    scales: NDArray[np.float32],
) -> NDArray[np.uint8]:
    """Return encodings of rows by those before them that have the same number, (E, N).

    See `_core.encodings_before`.
    """
    bins = np.empty((len(scales), len(numbers)), dtype=np.uint8)
    _core.encodings_before(numbers, count, values, scales, bins)
    return bins


def exchanged(partners: Numbers) -> Numbers:
    """Return the numbers from 0 on after each was exchanged with its partner in turn, (N,)."""
    order = np.arange(len(partners))
    _core.exchange(partners, order)
    return order


def bootstrapped(seed: int, n_rows: int, n_drawn: int) -> Numbers:
    """Return how often each row is in ``RandomState(seed).randint(0, n_rows, n_drawn)``, (N,)."""
    times = np.empty(n_rows, dtype=np.int64)
    _core.bootstrap(seed, n_drawn, times)
    return times


def drawn_sums(
    leaves: AnyArray, draws: FloatArray, values: FloatArray, n_leaves: int
) -> tuple[FloatArray, Numbers]:
    """Return the sums of values over the rows of each leaf of a tree, times their sample counts.

    Returns
    -------
    sums : array of shape (L, S)
        Of the values (N, S).
    counts : array of shape (L,)
        The number of sampled rows in each leaf.
    """
    sums = np.empty((n_leaves, values.shape[1]))
    counts = np.empty(n_leaves, dtype=np.int64)
    _core.drawn_sums(leaves, draws, values, sums, counts)
    return sums, counts


def ranges(leaves: AnyArray, values: FloatArray, n_leaves: int) -> tuple[FloatArray, FloatArray]:
    """Return the lowest and the highest value of the rows in each leaf of a tree, (L, S) each.

    ``values`` is (N, S). A leaf without rows, or with missing values only, has nan.
    """
    low, high = np.empty((2, n_leaves, values.shape[1]))
    _core.ranges(leaves, values, low, high)
    return low, high


def leaf_rows(
    cells: Cells,
    starts: Numbers,
    draws: FloatArray,
    weights: FloatArray | None,
    factors: FloatArray,
    n_threads: int = 1,
) -> tuple[FloatArray, NDArray[np.int32], Numbers]:
    """Return the entries of rows in their leaves; see `_core.leaf_rows`.

    Returns
    -------
    data : array of shape (n_entries,)
    rows : array of shape (n_entries,)
    ends : array of shape (L + 1,)
        Where the entries of each leaf begin.
    """
    arguments = (cells, starts, np.ascontiguousarray(draws), weights, factors)
    ends = np.empty(len(factors) + 1, dtype=np.int64)
    # The first call counts the entries of each leaf, the second fills them in.
    _core.leaf_rows(*arguments, ends, np.empty(0), np.empty(0, dtype=np.int32), n_threads)
    np.cumsum(ends, out=ends)
    data = np.empty(int(ends[-1]))
    rows = np.empty(int(ends[-1]), dtype=np.int32)
    if len(data):
        _core.leaf_rows(*arguments, ends, data, rows, n_threads)
    return data, rows, ends


# Large trees, and the leaves of rows in them, node by node
Ways = _core.Ways
descend = _core.descend


def feature_differences(*arguments: object) -> None:
    """Add the parts of features in differences of predictions; see `_core.feature_differences`."""
    _core.feature_differences(*arguments)  # type: ignore[arg-type]


def refit_rounds(
    cells: Cells,
    starts: Numbers,
    rounds: Numbers,
    moves: Numbers,
    steps: FloatArray,
    terms: Numbers,
    link: str,
    *further: Any,
) -> None:
    """Move the states of several fits through rounds and sum their gradients over leaves.

    See `_core.refit_rounds`.
    """
    _core.refit_rounds(cells, starts, rounds, moves, steps, terms, LINKS.index(link), *further)


class CpuTriangle(Triangle):
    """A triangle solved by LAPACK on the diagonal blocks, and by products between them.

    Ctrl-C takes effect between two blocks.
    """

    def __init__(self, factor: FloatArray, n_threads: int = 1):
        self.factor = factor
        self.n_threads = n_threads
        self._inverses = Cache()  # of diagonal blocks, by their first row

    @one_blas_thread()
    def solve(self, right: FloatArray, transposed: bool) -> None:
        """Solve ``M x = right``, or ``M' x = right``, in the place of ``right``.

        Explained rows are solved for with M itself, each column in an order of its own; see
        `product`.
        """
        if not right.size:
            return
        M = self.factor
        blocks = spans(len(M), BLOCK)
        if transposed:
            for block in blocks:
                remainder = right[block] - M[: block.start, block].T @ right[: block.start]
                corner = M[block, block].T
                right[block] = blas.dtrsm(1.0, corner, remainder, lower=1, trans_a=0, diag=1)
        else:
            for block in reversed(blocks):
                later = slice(block.stop, None)
                solved = product(M[block, later], right[later], self.n_threads)
                remainder = right[block] - solved
                right[block] = product(self._corner_inverse(block), remainder, self.n_threads)

    def _corner_inverse(self, block: slice) -> FloatArray:
        """Return the inverse of a diagonal block."""

        def inverse() -> FloatArray:
            corner = self.factor[block, block].T
            inverted = lapack.dtrtri(corner, lower=1, unitdiag=1)[0].T
            return np.ascontiguousarray(np.triu(inverted))

        return self._inverses.get(block.start, inverse)

    @one_blas_thread()
    def inverse(self, overwrite: bool) -> FloatArray:
        """Return the inverse of M', block of rows by block of rows.

            X[a, c] = -X[a, a] sum_{c <= b < a} M'[a, b] X[b, c]

        The inverse X takes the half that M leaves free. Only diagonal blocks, which both need, are
        stored apart.
        """
        matrix = self.factor
        if not overwrite:
            matrix = self.factor.copy()
        corners: list[tuple[slice, FloatArray]] = []
        for block in track(spans(len(matrix), BLOCK), "the leaf matrix"):
            corner = np.tril(lapack.dtrtri(matrix[block, block].T, lower=1, unitdiag=1)[0])
            for earlier_block, earlier_corner in corners:
                between = slice(earlier_block.stop, block.start)
                products = matrix[earlier_block, block].T @ earlier_corner
                products += matrix[between, block].T @ matrix[between, earlier_block]
                np.negative(corner @ products, out=matrix[block, earlier_block])
            corners.append((block, corner))
        for block, corner in corners:
            matrix[block, block] = corner
            matrix[block, block.stop :] = 0.0
        return matrix


@dataclass(frozen=True)
class Cpu(Backend):
    """The cores of this machine."""

    n_threads: int

    name = "cpu"
    costs = COSTS

    def rows(self, cells: Cells, starts: Numbers, weights: FloatArray | None = None) -> CpuRows:
        """Return rows with these cells, which are not copied."""
        return CpuRows(cells, starts, weights, self.n_threads)

    def triangle(self, factor: FloatArray) -> CpuTriangle:
        """Return the triangle of a factor, which is not copied."""
        return CpuTriangle(factor, self.n_threads)

    def top(
        self,
        block: FloatArray,
        first: int,
        scale: FloatArray | None,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merge a block of rows into the k largest of every column."""
        _core.top(block, first, scale, values, rows, self.n_threads)

    def sums(self, block: FloatArray, values: FloatArray, measure: int = 0) -> FloatArray:
        """Return ``sum_j f(block[j, s]) values[j, m]``, (S, M)."""
        return column_sums(block, np.ascontiguousarray(values), measure, self.n_threads)

    def assign(self, *arguments: Any) -> bool:
        """Fill in the leaf of each row in each tree."""
        return _core.assign(*(*arguments, self.n_threads))

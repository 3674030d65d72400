"""The kernels on the CPU: the compiled core, BLAS and LAPACK. No other module of the package imports the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from axil import _core
from axil.arrays import FloatArray
from axil.kernels import LINKS, Backend, Cells, Costs, Numbers, Program, Rows, Triangle
from axil.kernels.bounds import SAMPLE, Bounded, places
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.machine.threads import Cache, one_blas_thread

BLOCK = 256  # leaves worked on between two moments at which Ctrl-C takes effect
SWEPT_CELLS = 4096  # of a tree times columns: the tables of a pass stay in the second-level cache
LEAST_SWEPT = 16  # columns: a row of the state is whole cache lines
FEW_COLUMNS = (
    8  # columns up to which all rows are read sooner in double precision than screened in single
)
READ_ROWS = 1 << 17  # rows of few columns that are read at a time
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
)  # two cores


def _walked(kernel: Callable[..., None]) -> Callable[..., None]:
    """The method of `Rows` that walks through the rounds of a `Program`."""

    def method(self: CpuRows, program: Program, *arguments: Any, **named: Any) -> None:
        rounds = (
            program.rounds,
            program.terms,
            program.scales,
            program.moves,
            program.steps,
            program.draws,
        )
        link = LINKS.index(program.link), program.product
        kernel(
            self.cells, self.starts, *rounds, *link, *arguments, **named, n_threads=self.n_threads
        )

    return method


def _passed(kernel: Callable[..., None]) -> Callable[..., None]:
    """The method of `Rows` whose arguments a kernel of the core takes between the cells and the number of threads."""

    def method(self: CpuRows, *arguments: Any, **named: Any) -> None:
        kernel(self.cells, self.starts, *arguments, **named, n_threads=self.n_threads)

    return method


class CpuRows(Rows):
    """The arrays themselves, and how many threads share a pass over them."""

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
    gradient_sums = _walked(
        _core.gradient_sums
    )  #: the sums of what it puts into each term's cells, and of their sizes

    def __init__(self, cells: Cells, starts: Numbers, weights: FloatArray | None, n_threads: int):
        self.cells = cells
        self.starts = starts
        self.weights = weights
        self.n_threads = n_threads
        self.n_rows = int(cells.shape[1])
        self.n_cells = int(starts[-1])
        self.every = np.arange(len(cells))
        self.shared_bytes = cells.itemsize
        per_tree = self.n_cells / max(len(cells), 1)
        while self.swept > LEAST_SWEPT and self.swept * per_tree > SWEPT_CELLS:
            self.swept //= 2
        self._bounded = Bounded()

    def tree(self, number: int) -> CpuRows:
        starts = self.starts[number : number + 2] - self.starts[number]
        return CpuRows(self.cells[number : number + 1], starts, self.weights, self.n_threads)

    def product(self, a: FloatArray, b: FloatArray) -> FloatArray:
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
        """`top` by reading all rows: many columns in single precision first, few as they are. The bits are the same."""
        if len(constant) > FEW_COLUMNS:
            return self._top_rows(table, constant, weights, scale, values, rows)
        for part in spans(self.n_rows, READ_ROWS):
            block = np.empty((part.stop - part.start, len(constant)))
            self.read_out(table, constant, weights, part.start, block)
            _core.top(block, part.start, scale, values, rows, self.n_threads)

    def index(self, n_queries: int, available: int) -> bool:
        return self._bounded.make(self.cells, n_queries, available, self._make_blocks)

    @property
    def blocks(self) -> _core.Blocks | None:
        """The blocks that `top` looks through, where there are any."""
        found: _core.Blocks | None = self._bounded.blocks
        return found

    def _make_blocks(self) -> _core.Blocks | None:
        sampled = np.linspace(0, self.n_rows - 1, min(SAMPLE, self.n_rows)).astype(np.intp)
        some = CpuRows(
            np.ascontiguousarray(self.cells[:, sampled]), self.starts, None, self.n_threads
        )
        return _core.blocks(self.cells, self.starts, places(self, some), self.n_threads)

    def cooccurrence(
        self, first: int, last: int, weights: FloatArray | None, out: FloatArray
    ) -> None:
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
        if trees is None:
            return _core.scaled_read_out(
                self.cells, self.starts, table, factors, first, out, self.n_threads
            )
        some, starts = self._some(
            trees
        )  # the kernel takes neighbouring trees: a copy, of these rows alone
        cells = np.ascontiguousarray(self.cells[some, first : first + len(out)])
        _core.scaled_read_out(cells, starts, table, factors, 0, out, self.n_threads)

    def factor_sums(
        self,
        factors: FloatArray,
        codes: Numbers,
        first: int,
        sums: FloatArray,
        trees: Numbers | None = None,
    ) -> None:
        some, starts = self._some(trees)
        n = len(codes)
        if (
            factors.shape != (len(some), n)
            or len(sums) != starts[-1]
            or not 0 <= first <= self.n_rows - n
        ):
            raise ValueError(
                f"factors {factors.shape}, sums {sums.shape}, {n} rows from {first} on do not fit together"
            )
        own = np.ascontiguousarray(factors)
        _core.factor_sums(self.cells, self.starts, some, own, codes, first, sums, self.n_threads)

    def _some(self, trees: Numbers | None) -> tuple[Numbers, Numbers]:
        """Tree numbers, and where the cells of each begin where the others' are left out."""
        if trees is None:
            return self.every, self.starts
        if len(trees) and not 0 <= trees.min() <= trees.max() < len(self.cells):
            raise ValueError(f"trees has a number that is none of the {len(self.cells)} trees")
        return trees, np.append(0, np.cumsum(np.diff(self.starts)[trees])).astype(np.int64)


def product(a: FloatArray, b: FloatArray, n_threads: int = 1) -> FloatArray:
    """``a @ b`` for a (m, k) and b (k, S), each number added up in the order of k: no column depends on those beside it."""
    out = np.empty((a.shape[0], b.shape[1]))
    if a.strides[1] == a.itemsize:
        own = a
    else:
        own = np.ascontiguousarray(a)
    _core.product(own, np.ascontiguousarray(b), out, n_threads)
    return out


def column_sums(
    block: FloatArray, values: FloatArray, measure: int, n_threads: int = 1
) -> FloatArray:
    """(S, M): ``sum_j f(block[j, s]) values[j, m]``; see `_core.column_sums`."""
    out = np.empty((block.shape[1], values.shape[1]))
    _core.column_sums(block, values, measure, out, n_threads)
    return out


def number_keys(keys: NDArray[np.uint64]) -> tuple[Numbers, int]:
    """(N,): the number of each key among the different ones, in the order they are met; and how many there are."""
    numbers = np.empty(len(keys), dtype=np.int64)
    return numbers, _core.number_keys(np.ascontiguousarray(keys), numbers)


def encodings_before(
    numbers: NDArray[np.uint32],
    count: int,
    values: NDArray[np.uint8] | NDArray[np.float32],
    scales: NDArray[np.float32],
) -> NDArray[np.uint8]:
    """(E, N): encodings of rows by those before them that have their number; see `_core.encodings_before`."""
    bins = np.empty((len(scales), len(numbers)), dtype=np.uint8)
    _core.encodings_before(numbers, count, values, scales, bins)
    return bins


def exchanged(partners: Numbers) -> Numbers:
    """(N,): the numbers from 0, of which each in turn changes places with its partner."""
    order = np.arange(len(partners))
    _core.exchange(partners, order)
    return order


def bootstrapped(seed: int, n_rows: int, n_drawn: int) -> Numbers:
    """(N,): how often each row is in ``RandomState(seed).randint(0, n_rows, n_drawn)``."""
    times = np.empty(n_rows, dtype=np.int64)
    _core.bootstrap(seed, n_drawn, times)
    return times


def drawn_sums(
    leaves: NDArray[Any], draws: FloatArray, values: FloatArray, n_leaves: int
) -> tuple[FloatArray, Numbers]:
    """(L, S) sums of the values (N, S) of rows in each leaf of a tree, times their draws, and (L,) how many were drawn."""
    sums = np.empty((n_leaves, values.shape[1]))
    counts = np.empty(n_leaves, dtype=np.int64)
    _core.drawn_sums(leaves, draws, values, sums, counts)
    return sums, counts


def ranges(
    leaves: NDArray[Any], values: FloatArray, n_leaves: int
) -> tuple[FloatArray, FloatArray]:
    """(L, S) twice: the lowest and the highest value of the rows (N, S) in each leaf of a tree; nan where there is none."""
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
    """The entries of rows in their leaves, the rows, and where those of each leaf begin: (L + 1,); see `_core.leaf_rows`."""
    given = cells, starts, np.ascontiguousarray(draws), weights, factors
    ends = np.empty(len(factors) + 1, dtype=np.int64)
    _core.leaf_rows(*given, ends, np.empty(0), np.empty(0, dtype=np.int32), n_threads)
    np.cumsum(ends, out=ends)
    data = np.empty(int(ends[-1]))
    rows = np.empty(int(ends[-1]), dtype=np.int32)
    if len(data):
        _core.leaf_rows(*given, ends, data, rows, n_threads)
    return data, rows, ends


# large trees, and the leaves of rows in them, node by node
Ways = _core.Ways
descend = _core.descend


def refit_rounds(
    cells: Cells,
    starts: Numbers,
    rounds: Numbers,
    moves: Numbers,
    steps: FloatArray,
    terms: Numbers,
    link: str,
    *rest: Any,
) -> None:
    """Moves the states of several fits through rounds and sums their gradients over leaves; see `_core.refit_rounds`."""
    _core.refit_rounds(cells, starts, rounds, moves, steps, terms, LINKS.index(link), *rest)


class CpuTriangle(Triangle):
    """LAPACK on the diagonal blocks, products between them: Ctrl-C takes effect between two blocks."""

    def __init__(self, factor: FloatArray, n_threads: int = 1):
        self.factor = factor
        self.n_threads = n_threads
        self._kept = Cache()  # the inverses of diagonal blocks

    @one_blas_thread()
    def solve(self, right: FloatArray, transposed: bool) -> None:
        """QueryBatch are solved for, not transposed, in an order of its own for each; see `product`."""
        M = self.factor
        blocks = spans(len(self.factor), BLOCK)
        if not right.size:
            return
        for own in blocks if transposed else reversed(blocks):
            if transposed:
                seen = right[own] - M[: own.start, own].T @ right[: own.start]
                right[own] = blas.dtrsm(1.0, M[own, own].T, seen, lower=1, trans_a=0, diag=1)
            else:
                seen = right[own] - product(M[own, own.stop :], right[own.stop :], self.n_threads)
                right[own] = product(self._corner(own), seen, self.n_threads)

    def _corner(self, own: slice) -> FloatArray:
        """The inverse of a diagonal block."""

        def made() -> FloatArray:
            return np.ascontiguousarray(
                np.triu(lapack.dtrtri(self.factor[own, own].T, lower=1, unitdiag=1)[0].T)
            )

        return self._kept.get(own.start, made)

    @one_blas_thread()
    def inverse(self, overwrite: bool) -> FloatArray:
        """Inverts M', block of rows by block of rows: ``X[a, c] = -X[a, a] sum_{c <= b < a} M'[a, b] X[b, c]``.

        The inverse X takes the half that M leaves free. Only diagonal blocks, which both need, are
        kept aside.
        """
        if overwrite:
            made = self.factor
        else:
            made = self.factor.copy()
        corners: list[tuple[slice, FloatArray]] = []
        for own in track(spans(len(made), BLOCK), "the leaf matrix"):
            corner = np.tril(lapack.dtrtri(made[own, own].T, lower=1, unitdiag=1)[0])
            for before, of_before in corners:
                met = made[before, own].T @ of_before
                met += made[before.stop : own.start, own].T @ made[before.stop : own.start, before]
                np.negative(corner @ met, out=made[own, before])
            corners.append((own, corner))
        for own, corner in corners:
            made[own, own] = corner
            made[own, own.stop :] = 0.0
        return made


@dataclass(frozen=True)
class Cpu(Backend):
    """The cores of this machine."""

    n_threads: int

    name = "cpu"
    costs = COSTS

    def rows(self, cells: Cells, starts: Numbers, weights: FloatArray | None = None) -> CpuRows:
        return CpuRows(cells, starts, weights, self.n_threads)

    def triangle(self, factor: FloatArray) -> CpuTriangle:
        return CpuTriangle(factor, self.n_threads)

    def top(
        self,
        block: FloatArray,
        first: int,
        scale: FloatArray | None,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        _core.top(block, first, scale, values, rows, self.n_threads)

    def sums(self, block: FloatArray, values: FloatArray, measure: int = 0) -> FloatArray:
        return column_sums(block, np.ascontiguousarray(values), measure, self.n_threads)

    def assign(self, *arguments: Any) -> bool:
        return _core.assign(*(*arguments, self.n_threads))

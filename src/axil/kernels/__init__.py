"""The contract of the kernels: loops over training rows, wherever the rows are kept.

A `Backend` makes `Rows`, the cells of N training rows in T trees where its kernels can reach them,
and `Triangle`, the factor of the leaf matrix. Everything about boosting is decided above this
package; nothing here knows a rate, a base or a tree's values.

Conventions. Cell c of tree t is entry ``starts[t] + c`` of a table, and ``cell_t(j)`` is that entry
for row j. A cell is a leaf, or a leaf and a sample count where rows were sampled (`Structure`). C
is the number of all cells. Tables are (C, S) float64, one column per explained row. Arguments and
results are arrays of the host, or of the back end's own module ``xp``, which may keep them on a
device; tree numbers are the host's. Outputs are written in place and nothing is converted: a wrong
type or layout raises TypeError, wrong shapes and numbers raise ValueError, and a call that is
refused changes nothing. Weights are (N,), or None for ones. If ``rows.weights`` itself is passed, a
back end can use its own copy. Cell numbers are trusted.

Every sum has a fixed order: one back end gives the same bits for the same call, whatever the number
of threads. On the CPU a column has the same bits whatever columns are beside it. Calls may run in
several threads at once, release the GIL, and Ctrl-C takes effect. Back ends, rows and triangles can
be pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from axil.aliases import ForeignObject
from axil.arrays import FloatArray, RealArray
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.threads import Cache
from axil.structure import Structure

Cells: TypeAlias = NDArray[np.unsignedinteger[Any]]
Numbers: TypeAlias = NDArray[np.int64]

SUMMED_CELLS = 4096  # of trees whose sums are gathered in one pass: they stay in the caches
NONE = np.zeros(0, dtype=np.int64)  # no trees
NONE.setflags(write=False)


@dataclass(frozen=True)
class Costs:
    """The time of a back end's steps, measured by benchmarks/.

    All but the last are on the scale of ``sweep``.
    """

    sweep: float  #: per row, tree and query of a sweep
    pair: float  #: per row and pair of trees, for the co-occurrence
    fill: float  #: per pair of leaves, for memory that is written for the first time
    walk: float  #: per row and pair of trees, for `Rows.deletions`
    read: float  #: per row, tree and query of a read-out
    solve: float  #: per pair of leaves and query, for `Triangle.solve`
    inverse: float  #: per three leaves, for `Triangle.inverse`
    product: float  #: per three leaves, for products of matrices of leaves by leaves
    visit_seconds: float  #: seconds per unit of this scale


MEASURES = ("weight", "size", "square")
LINKS = ("identity", "inverse", "share")


@dataclass(frozen=True, eq=False)
class Program:
    """The rounds of a fit in the form that `Rows.gradient_factors` uses.

    A term adds a multiple of a row's gradient to a place, and a move adds a step to a row's state.
    The arrays do not change. A back end may keep copies of them in ``device_copies``.
    """

    rounds: Numbers  #: (R + 1, 2) where the terms and the moves of each round begin
    terms: Numbers  #: (M, 3) tree, output and place of each
    #: the tables of all terms, one number per cell of the tree, one table after the other
    scales: FloatArray
    moves: Numbers  #: (Q, 2) tree and output of each
    steps: FloatArray  #: the tables of all moves
    #: (T, N) what multiplies a row's gradient in each tree; None for ones
    draws: NDArray[np.uint8] | None
    #: of LINKS: the state itself, ``1 / (1 + state)``, or the state over the sum of the row's
    #: states
    link: str
    product: bool  #: whether moves multiply a state, or are added
    device_copies: Cache = field(default_factory=Cache, repr=False)  #: made by back ends

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the arguments of a copy, for which back ends make their own copies."""
        arrays = (self.rounds, self.terms, self.scales, self.moves, self.steps, self.draws)
        return Program, (*arrays, self.link, self.product)


class Rows(ABC):
    """The cells of N training rows in T trees, and their weights, near the back end."""

    xp: ForeignObject = np  #: the module of its arrays
    cells: AnyPlaceArray  #: (T, N) the cells, an array of ``xp``
    weights: FloatArray | None  #: (N,) the row weights, None for ones, on the host
    n_rows: int  #: N
    n_cells: int  #: C
    starts: Numbers  #: (T + 1,) where the cells of each tree begin
    every: Numbers  #: (T,) the numbers of all trees
    n_threads: int = 1  #: of the host, that prepare what kernels are given
    #: explained rows that share a pass, so that tables of their leaves stay in the caches
    swept: int = 128
    #: leaves up to which trees pay for sharing a pass, through the co-occurrence of their leaves
    shared_leaves: int = 200
    #: bytes per row and tree, for the co-occurrence of larger trees that share a pass
    shared_bytes: int = 0
    times: int = 1  #: how many times more rows are walked at once than stay in a CPU's caches

    @abstractmethod
    def tree(self, number: int) -> Rows:
        """Return these rows in a single tree, without a copy."""

    @abstractmethod
    def sweep(
        self,
        state: FloatArray,
        apply: Numbers,
        table: FloatArray,
        apply_weights: FloatArray | None,
        gather: Numbers,
        sums: FloatArray,
        gather_weights: FloatArray | None,
    ) -> None:
        """Add tables of some trees to the state, and gather sums of the new state for others.

        One pass over the rows does both. The state (N, S) changes in place.

            state[j] += a_j sum_{t in apply} table[cell_t(j)]
            sums[c]   = sum of g_j state[j] over the rows j in cell c of tree t,     t in gather

        a and g are the weights; ``apply`` and ``gather`` are tree numbers, possibly none. Other
        entries of ``sums`` stay; it may be ``table`` itself if no tree is in both.
        """

    def leaf_sums(self, v: FloatArray, weights: FloatArray | None) -> FloatArray:
        """Return the weighted sums of v (N, S) over every cell, (C, S), in O(T N S).

        sums[c] = sum_{j in c} w_j v[j]
        """
        sums = np.empty((self.n_cells, v.shape[1]))
        state = np.array(v, order="C")
        n_together = int(max(1, SUMMED_CELLS * len(self.every) // max(self.n_cells, 1)))
        for first in range(0, len(self.every), n_together):
            trees = self.every[first : first + n_together]
            self.sweep(state, NONE, sums, None, trees, sums, weights)
        return sums

    @abstractmethod
    def read_out(
        self,
        table: FloatArray,
        constant: FloatArray,
        weights: FloatArray | None,
        first: int,
        out: FloatArray,
    ) -> None:
        """Fill ``out`` (rows, S) with sums over the trees, for the rows from ``first`` on.

            out[j - first] = w_j (constant + sum_t table[cell_t(j)])

        ``constant`` is (S,). The rows of ``table`` and of ``out`` may lie apart. This takes T
        look-ups per row and column.
        """

    def product(self, a: AnyPlaceArray, b: AnyPlaceArray) -> AnyPlaceArray:
        """Return ``a @ b`` for arrays of the back end, a (m, k) and b (k, S)."""
        return a @ b

    @abstractmethod
    def moments(
        self,
        table: FloatArray,
        constant: FloatArray,
        weights: FloatArray | None,
        values: FloatArray,
        out: FloatArray,
    ) -> None:
        """Sum values (N, M) times the sizes, and the squares, of the results of `read_out`.

            out[0, s, m] = sum_j |k_js| values[j, m],     out[1, s, m] = sum_j k_js^2 values[j, m]

        The read-out k of all rows is never stored. This takes T look-ups per row and column, and
        2 M multiplications.
        """

    @abstractmethod
    def top(
        self,
        table: FloatArray,
        constant: FloatArray,
        weights: FloatArray | None,
        scale: FloatArray | None,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merge the results of `read_out` for all rows into the k largest of every column.

        See `Backend.top`. The read-out is never stored. ``scale`` is (N,) or None.
        """

    @abstractmethod
    def matches(
        self, queries: Cells, weights: FloatArray | None, first: int, out: FloatArray
    ) -> None:
        """Fill ``out`` (rows, S) with the weights of the trees in which two rows share a cell.

            out[j - first, s] = sum of w_t over the trees t with cell_t(j) = queries[s, t]

        ``queries`` (S, T) are cells of the same type as those of the rows. ``weights`` (T,) are
        those of the trees, None for ones, and none is below 0. The sum goes tree by tree.
        """

    @abstractmethod
    def top_matches(
        self, queries: Cells, weights: FloatArray | None, values: FloatArray, rows: Numbers
    ) -> None:
        """Fill in the k largest results of `matches` for all rows, (S, k) each.

        The largest come first, equal ones by row number. A row that shares no cell with a query has
        no place. Free places have row -1 and value 0; all are free before the call.
        """

    def index(self, n_queries: int, available: int) -> bool:
        """Build an index that makes `top` faster, if it pays, and return whether there is one.

        It pays for ``n_queries`` explained rows or fewer, and must fit into ``available`` bytes. It
        changes no answer.
        """
        return False

    @abstractmethod
    def cooccurrence(
        self, first: int, last: int, weights: FloatArray | None, out: FloatArray
    ) -> None:
        """Count the rows that cells of two trees share, among the trees first .. last - 1.

            out[c, d] = sum of w_j over the rows in cell c of tree s and in cell d of tree t,  s < t

        Here c and d count from the first cell of tree ``first``. ``out`` is square, and zero
        wherever s >= t. This takes one visit per row and pair of trees.
        """

    @abstractmethod
    def pair_sums(
        self, table: FloatArray, factors: FloatArray | None, first: int, out: FloatArray
    ) -> None:
        """Fill ``out`` (rows,) with sums over pairs of trees.

            out[j - first] = sum_{s <= t} factors[s, j - first] table[cell_s(j), cell_t(j)]

        ``table`` is (C, C), ``factors`` (T, rows) or None for ones. This takes T^2 / 2 look-ups per
        row.
        """

    @abstractmethod
    def scaled_read_out(
        self,
        table: FloatArray,
        factors: FloatArray,
        first: int,
        out: FloatArray,
        trees: Numbers | None = None,
    ) -> None:
        """Fill ``out`` (rows, S) with sums over the trees, each times a factor of the row.

            out[j - first] = sum_t factors[t, j - first] table[cell_t(j)]

        ``factors`` is (T, rows). With ``trees``, only these are summed: factors are theirs, in
        their order, and ``table`` has only their cells. This takes T look-ups per row and column.
        """

    @abstractmethod
    def factor_sums(
        self,
        factors: FloatArray,
        codes: Numbers,
        first: int,
        sums: FloatArray,
        trees: Numbers | None = None,
    ) -> None:
        """Add factors (T, rows) to the sums (C, groups) of cells and groups.

            sums[c, g] += sum of factors[t, j - first] over rows j in cell c of tree t with code g

        ``codes`` (rows,) are the groups of the rows, and are trusted. ``trees`` as in
        `scaled_read_out`.
        """

    @abstractmethod
    def residual_factors(
        self,
        steps: FloatArray,
        levels: FloatArray,
        draws: FloatArray,
        start: FloatArray,
        first: int,
        out: FloatArray,
    ) -> None:
        """Walk through the trees and record how far each residual is from the level of its cell.

        With ``r_j = start[j - first]`` at first and ``c = cell_t(j)``, for t = 0 .. T - 1:

            out[t, j - first] = draws[c] (r_j - levels[c]),   then   r_j -= steps[c]

        Tables are (C,), ``start`` is (rows,), ``out`` (T, rows).
        """

    @abstractmethod
    def gradient_factors(
        self,
        program: Program,
        intercepts: FloatArray,
        slopes: FloatArray,
        state: FloatArray,
        first: int,
        out: FloatArray,
    ) -> None:
        """Walk through the rounds of a fit and record the addends of each row's gradient.

        In each round, s is the state (K, rows), which changes in place, and c the cell of row j in
        the tree of a term or a move. First, for every output k,

            g_k = intercepts[k, j - first] + slopes[k, j - first] link(s[:, j - first])_k

        then for every term, and after those for every move,

            out[place, j - first] += scales[c] g_output draws[tree, j]
            s[output, j - first]  *= steps[c], or += where moves are added

        ``intercepts`` and ``slopes`` are (K, rows), ``out`` (places, rows), which starts from 0.
        """

    @abstractmethod
    def deletions(
        self,
        levels: int,
        table: FloatArray,
        rules: FloatArray,
        shifts: FloatArray | None,
        draws: FloatArray,
        weights: FloatArray | None,
        values: FloatArray,
        slopes: FloatArray,
        steps: FloatArray,
        drifts: FloatArray,
        start: FloatArray,
        base: FloatArray,
        changed: FloatArray,
        first: int,
        residuals: FloatArray | None,
        added: FloatArray | None,
    ) -> None:
        """Walk the rows from ``first`` on through the trees, each with its own equations.

        `weights.deletion` derives them. A leaf has ``levels`` cells, and l_t is row j's leaf among
        all L leaves. With r at first ``start[k, j]`` and (kept, drawn, weight, stiffer, constant)
        the row's factors in its leaf, for t = 0 .. T - 1 and each output k:

            seen           = values[l_t, k] + changed[k, j] slopes[l_t] + sum_{s < t} table[l_t,
            l_s] added[k, s, j] q_t            = kept (seen - drawn r) added[k, t, j] = -(weight r +
            stiffer q_t + constant),   then r             -= sum_{s <= t} steps[t, s] q_s +
            drifts[t] base[k, j]

        and ``residuals[k, t, j]`` is r before tree t, or after all where t = T. With w the row's
        weight times ``draws[level]`` of its cell, a the scale of the leaf and a' the scale without
        the row, the factors are

            a' / a,   a w,   w,   1 / a' - 1 / a,   and shift / a where a' = 0

        and 1, 0, w, 0, 0 in a constant leaf, of scale 0. ``rules`` (L, 5) has the weight of each
        leaf, the weight up to which none is left, a, l2 and the steps of `NewtonRule`; with
        ``shifts`` (L,) a' is 0 if no weight is left.

        ``table`` is (L, L), and its rows may lie apart. ``values`` is (L, K), ``slopes`` (L,),
        ``draws`` (levels,), ``weights`` (rows,) or None for ones, ``steps`` (T, T), ``drifts``
        (T,), and ``start``, ``base`` and ``changed`` are (K, rows). ``residuals`` (K, T + 1, rows)
        and ``added`` (K, T, rows) are None if the caller needs them not. This takes T^2 / 2
        look-ups per row.
        """

    @abstractmethod
    def replay(
        self,
        values: FloatArray,
        targets: FloatArray,
        weights: FloatArray | None,
        single: bool,
        single_score: bool,
        score: FloatArray,
        sums: FloatArray,
        counts: FloatArray,
    ) -> None:
        """Walk through the trees with the model's own values and sum the residuals of each cell.

        For t = 0 .. T - 1, over the rows j in cell c of tree t:

            sums[c] = sum_j round(w_j round(targets_j - score_j))
            then   score_j += values[cell_t(j)]

        ``single`` rounds to float32, and ``single_score`` the score after every tree. ``score``
        (N,) changes in place. ``sums`` and ``counts``, the number of rows, are (C,).
        """


class Triangle(ABC):
    """The factor M of the leaf matrix, (L, L), unit upper triangular, near the back end."""

    @abstractmethod
    def solve(self, right: FloatArray, transposed: bool) -> None:
        """Solve ``M x = right``, or ``M' x = right``, in the place of ``right`` (L, S).

        This takes L^2 / 2 multiplications per column.
        """

    @abstractmethod
    def inverse(self, overwrite: bool) -> FloatArray:
        """Return the inverse of M', lower triangular (L, L), in L^3 / 6 multiplications.

        With ``overwrite`` it takes the memory of the factor, which is lost.
        """


class Backend(ABC):
    """A kind of machine that kernels run on."""

    name: str
    n_threads: int  #: of the host, that its work may take
    costs: Costs
    xp: ForeignObject = np  #: the module of its arrays

    @abstractmethod
    def rows(self, cells: Cells, starts: Numbers, weights: FloatArray | None = None) -> Rows:
        """Return rows with these cells (T, N), each counted within its tree.

        ``starts`` (T + 1,) says where the cells of each tree begin, ``weights`` is (N,).
        """

    def rows_of(self, structure: Structure) -> Rows:
        """Return the rows of a structure, by cells."""
        return self.rows(structure.cells, structure.cell_starts, structure.row_weights)

    @abstractmethod
    def triangle(self, factor: FloatArray) -> Triangle:
        """Return the triangle of a factor (L, L), whose entries below the diagonal are ignored."""

    @abstractmethod
    def top(
        self,
        block: FloatArray,
        first: int,
        scale: FloatArray | None,
        values: FloatArray,
        rows: Numbers,
    ) -> None:
        """Merge a block (rows, S) of the rows from ``first`` on into the k largest of every column.

        The entries with the largest ``|scale_j block[j - first, s]|`` come first, equal ones by row
        number. ``values`` (S, k) are the entries, not scaled, and ``rows`` (S, k) their row
        numbers. Free places have row -1 and come last.
        """

    def sums(self, block: AnyPlaceArray, values: FloatArray, measure: int = 0) -> FloatArray:
        """Return ``sum_j f(block[j, s]) values[j, m]``, (S, M), on the host.

        ``block`` is (N, S), ``values`` (N, M), and ``measure`` is the position of f in `MEASURES`.
        """
        measured = (block, abs(block), block * block)[measure]
        return host(measured.T @ like(values, block))

    @abstractmethod
    def assign(
        self,
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
        """Fill ``out`` (T, n) with the leaf of each row of ``values`` (n, features) in each tree.

        See `adapters.routes`. The code of a value x in a column is the number of its thresholds
        below x, with ``strict`` of those below or equal. A node (view, rank, left, right) sends a
        row left if its code in that view is at most the rank. Returns whether a value in the
        columns used is infinite.
        """

    def guard(self) -> AbstractContextManager[None]:
        """Turn memory errors of this back end into messages for people."""
        return nullcontext()

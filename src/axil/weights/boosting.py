"""Boosted trees: their weight matrix K as K v, K'u and single rows of K, matrix-free.

With w the row weights, W their sum, A_t the leaf membership of tree t, B_t its draws, P_t the map
from its leaf sums to its leaf values and eta_t its rate, boosting is

    base = sum_j w_j y_j / W  (or a constant),   r = y - base - offsets
    t = 1..T:  v_t = P_t A_t' (w B_t r) + shift_t,   r = r - eta_t A_t v_t
    F(x) = base + offset(x) + sum_t eta_t v_t[leaf_t(x)]

`BoostedTrees.fit` runs this, an affine map of y; `matvec` runs it with any vector in place of y and without constants: the linear
map alone. The transpose runs the trees backwards; for the prediction at x

    p = 0;   t = T..1:  phi_t = P_t' (eta_t e[leaf_t(x)] - eta_t A_t' p),   p_j = p_j + w_j B_tj phi_t[leaf_t(j)]
    beta = 1 - sum_j p_j
    base estimated:  weights k_j = p_j + beta w_j / W,   intercept = -p'offsets
    base constant:   weights k_j = p_j,                  intercept = beta base - p'offsets

plus `constants`, where there are shifts.

phi are the adjoints of the leaf sums, beta is that of the base. `Coefficients` generalise eta:
after some trees the residuals change by several trees' values at once (DART), or not at all
(forests, parallel trees). `passes` runs over the rows either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.kernels import Backend, Numbers, Rows
from axil.kernels.products import weighted
from axil.machine.arrays import have_same_values, host, like
from axil.machine.blocks import spans
from axil.machine.threads import Cache, one_blas_thread
from axil.structure import Structure
from axil.weights import hat_matrix, removal
from axil.weights.answers import Answer, RowEffects
from axil.weights.deletion import Deletion, InLeafMatrix
from axil.weights.deletion_work import Work as DeletionWork
from axil.weights.engine import Memory, Seconds, TreeEngine, diagonal, own_leaves, sum_of_squares
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import LeafMatrix, asked, cooccurrence, sums_at
from axil.weights.left_out import LeftOut, left_out
from axil.weights.levels import Level, at_share, shares_of
from axil.weights.passes import Adjoints, Passes, leaf_sums
from axil.weights.replays import ByReplay, sum_responses
from axil.weights.residuals import FittedValues, predictions
from axil.weights.tree_answers import ReadOutAnswer, SweptAnswer, guarded

TURNED_ROWS = (
    1 << 10
)  # rows of a state copied to lie query by query at a time: both sides stay in the caches

# Up to that many queries take as long as one: of a pass over the rows memory sets the pace, as of a
# factor that is read.
FEW_SWEPT = 4
FEW_READ = 3
FEW_SOLVED = 8

WORTH = 0.1  # seconds that sweeps have to take, before another way is thought of

KEPT_SUMS = 4  # arrays of the training rows whose leaf sums are kept


class BoostedTrees(TreeEngine):
    """K and its transpose for one structure, by sweeps over the rows, or in the leaf matrix (`prepared`).

    A kept value is published whole, by one assignment, so any number of threads may ask, and an
    exception breaks nothing.
    """

    def __init__(
        self,
        structure: Structure,
        backend: Backend,
        offset_sums: FloatArray | None = None,
        once: bool = False,
    ):
        """Keeps the rows on the back end; ``offset_sums`` (L, K): the leaf sums of the offsets, where rows are elsewhere.

        ``once``: these trees are fitted to one column of targets, and asked nothing else; see `Passes`.
        """
        self.structure = s = structure
        self.backend = backend
        self.rows = backend.rows_of(s)
        self.leaf_matrix: LeafMatrix | None = None  # None: by sweeps
        self._passes = Passes(s, self.rows, once)
        self._target_sums: list[
            tuple[FloatArray, Any]
        ] = []  # arrays with their leaf sums, the latest last
        self._kept_fit: FittedValues | None = None
        self._last_deletions: tuple[FloatArray, Deletion] | None = (
            None  # with the targets of its fit
        )
        self._kept = Cache()  # these trees in the leaf matrix
        if offset_sums is None and s.offsets is not None:
            offset_sums = leaf_sums(s, self.rows, s.offsets)
        self._offset_sums = offset_sums

    # -- the contract ------------------------------------------------------------------------------

    @guarded
    def weight_rows(self, queries: LeafArray | None, base: float = 1.0) -> Answer:
        return self._answer(own_leaves(self.structure, queries), self._counted(queries, base))

    def _answer(self, leaves: LeafArray, base: float) -> Answer:
        """The weights of the predictions in these trees' leaves, (n, T). Cost O(T N) per query."""
        if self.leaf_matrix is None:
            state, adjoints = self._swept(leaves, base)
            return SweptAnswer(
                self.backend, state, self.intercepts(adjoints, self.constants(leaves))
            )
        adjoints = self.adjoints(leaves, base)
        return ReadOutAnswer(self, adjoints, self.intercepts(adjoints, self.constants(leaves)))

    @guarded
    def matvec(self, queries: LeafArray | None, v: FloatArray, base: float = 1.0) -> FloatArray:
        """The linear map alone, in O(T (N + n) S): a constant base and offsets take no part."""
        if self.structure.initial is None:
            start = self.mean(v)
        else:
            start = np.zeros(v.shape[1])
        residual, values, _ = map(host, self._passes.forward(v, start))
        base = self._counted(queries, base)
        if queries is None and base == 1.0:
            return np.asarray(v - residual)
        return predictions(
            self.structure, base * start, values, own_leaves(self.structure, queries).T
        )

    @guarded
    def rmatvec(self, queries: LeafArray | None, u: FloatArray, base: float = 1.0) -> FloatArray:
        """In one sweep or one read-out: O(T (N + n) S)."""
        if queries is None and self._counted(queries, base) == 1.0:
            return self._combine_own(u)
        return self.row_sum(queries, u, base).dense().T

    @guarded
    def row_sum(self, queries: LeafArray | None, u: Any, base: float = 1.0) -> Answer:
        """In one sweep or one read-out: O(T (N + n) S)."""
        s = self.structure
        xp = self.rows.xp
        leaves = own_leaves(self.structure, queries)
        if self.leaf_matrix is not None:
            adjoints, intercepts = self.mixed_adjoints(leaves, u, self._counted(queries, base))
            return ReadOutAnswer(self, adjoints, intercepts)
        alpha, counted = self._mixed_sources(leaves, u, self._counted(queries, base))
        state = xp.zeros((s.n_rows, u.shape[1]))
        adjoints = self._passes.backward(state, alpha, counted)
        return SweptAnswer(
            self.backend, state, self.intercepts(adjoints, u.T @ self.constants(leaves))
        )

    def mixed_adjoints(self, leaves: LeafArray, u: Any, base: float) -> tuple[Adjoints, FloatArray]:
        """The adjoints of sums of predictions in these trees' leaves, (n, T), and `intercepts`, from the leaf matrix alone."""
        alpha, counted = self._mixed_sources(leaves, u, base)
        assert self.leaf_matrix is not None
        phi = self.leaf_matrix.adjoints_of(alpha)
        adjoints = Adjoints(phi, float(self.structure.beta[-1]) * counted - self._on_base(phi))
        return adjoints, self.intercepts(adjoints, u.T @ self.constants(leaves))

    def _mixed_sources(self, leaves: LeafArray, u: Any, base: float) -> tuple[Any, Any]:
        """(L, S) and (S,): the derivatives of sums, with (n, S) factors, by the leaf values, and how often the base counts."""
        s = self.structure
        xp = self.rows.xp
        met = s.starts[:-1] + leaves.astype(np.int64)
        counted = base * np.asarray(u.sum(axis=0)).ravel()
        return xp.asarray(sums_at(met, s.total_leaves, u, s.final)), xp.asarray(counted)

    def _counted(self, queries: LeafArray | None, base: float) -> float:
        """How often the base counts, where it is asked for so often: in the training rows' own predictions it may not."""
        if queries is not None:
            return base
        return base * self.structure.initial_in_fit

    @guarded
    def predicted(self, queries: LeafArray | None, targets: FloatArray) -> FloatArray:
        """The fit itself: the affine map, replayed once in O(T (N + n) K)."""
        if queries is not None:
            return self.fit(targets).predictions(own_leaves(self.structure, queries).T)
        offsets, (started, residual, *_) = self.structure.offsets, self._replay(targets)
        made = np.subtract(started, residual, out=residual)
        if offsets is None:
            return made
        return made + offsets

    @guarded
    def leverage(self, available: int) -> FloatArray:
        """O(T^2 N + L^3) in the leaf matrix, O(T N^2) otherwise, whichever is less of what fits."""
        if self._work(1).leaf_matrix_pays(available):
            return hat_matrix.leverage_in_leaf_matrix(self.space(), self.rows)
        return diagonal(self._own_weights(available))

    def squares(self, available: int) -> float:
        """O(T^2 N + L^3) in the leaf matrix, O(T N^2) otherwise, whichever is less of what fits."""
        if self._work(hat_matrix.MATRICES).leaf_matrix_pays(available):
            return hat_matrix.squares_in_leaf_matrix(self.space(), self.rows)
        return sum_of_squares(self._own_weights(available))

    @guarded
    def approximate_matvec(self, v: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Each tree as if it were alone, ``B = sum_t final_t A_t D_t A_t' w B_t``, in two passes of all trees.

        D_t is the scale of leaf values over the roots of the leaves' weights: trees that see each
        other's residuals say less where leaves are large.
        """
        s = self.structure
        return approximate_rows(s, self.rows, host(leaf_sums(s, self.rows, v)))

    def costs(self, available: int) -> Seconds:
        each = self.backend.costs
        deletions = self._deletion_work
        return Seconds(
            leverage=self._work(1).seconds(available),
            squares=self._work(hat_matrix.MATRICES).seconds(available),
            column=each.visit_seconds * each.sweep * self.structure.n_rows * self.structure.n_trees,
            deletion=deletions.in_leaf_matrix if deletions.needed <= available else np.inf,
            replays=deletions.by_replay,
        )

    @guarded
    def removal(self, queries: LeafArray | None, targets: FloatArray) -> Sequence[RowEffects]:
        fits = removal.fits(self.rows, self.fit(targets))
        adjoints = self.adjoints(own_leaves(self.structure, queries))
        return [removal.ReadOutEffects(fit, adjoints) for fit in fits]

    def deletion(
        self, queries: LeafArray | None, targets: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        return self.deletions(targets, available).effects(own_leaves(self.structure, queries))

    @guarded
    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        return left_out(self.deletions(targets, available))

    @guarded
    def deletions(self, targets: FloatArray, available: int) -> Deletion:
        """The fits to these targets without one row each: in the leaf matrix, or by replays where that does not fit or
        takes less."""
        last = self._last_deletions
        if last is None or not have_same_values(last[0], targets):
            fitted = self.fit(targets)
            last = fitted.targets, self._deletions(fitted, available)
            self._last_deletions = last
        return last[1]

    def _deletions(self, fitted: FittedValues, available: int) -> Deletion:
        s = self.structure
        work = self._deletion_work
        replayed = ByReplay(fitted, self._fit_without)
        if not work.uses_leaf_matrix(available):
            return replayed
        levels = []
        for share in shares_of(s):
            if share == 0:
                trees = self
            else:
                trees = BoostedTrees(at_share(s, share), self.backend)
            levels.append(Level.of(share, self.rows, trees.fit(fitted.targets), trees.space()))
        responses = None
        if rule_of(s).needs_walk:
            responses = sum_responses(s, cooccurrence(s, self.rows, 0, s.n_trees), self.backend)
        return InLeafMatrix(levels, replayed, available - work.needed, responses)

    def _fit_without(self, row: int, targets: FloatArray) -> FittedValues:
        gone = np.array([row])
        rule = rule_of(self.structure)
        if rule.needs_walk:
            return rule.fit_without(self.structure, gone, targets, self.backend)
        left = rule.without(self.structure, gone, targets, self.backend)
        return BoostedTrees(left, self.backend, once=True).fit(targets)

    def replays(self, targets: FloatArray, available: int) -> int:
        """How many rows' exact deletions are replayed."""
        found = self.deletions(targets, available)
        n_rows = self.structure.n_rows
        if isinstance(found, InLeafMatrix):
            return len(found.by_replay(slice(0, n_rows)))
        return n_rows

    @property
    def _deletion_work(self) -> DeletionWork:
        return DeletionWork.of(self.structure, self.backend.costs, self.leaf_matrix is not None)

    def pushes(self, queries: LeafArray | None, targets: FloatArray) -> Sequence[RowEffects]:
        return removal.pushes(self.rows, self.fit(targets), own_leaves(self.structure, queries))

    def without(self, rows: IntArray, targets: FloatArray) -> BoostedTrees:
        left = rule_of(self.structure).without(self.structure, rows, targets, self.backend)
        return BoostedTrees(left, self.backend)

    def with_targets(self, targets: FloatArray) -> BoostedTrees:
        structure = rule_of(self.structure).with_targets(self.structure, targets, self.backend)
        if structure is self.structure:
            return self
        return BoostedTrees(structure, self.backend)

    @property
    def memory(self) -> Memory:
        s = self.structure
        cells = int(self.structure.cell_starts[-1])
        if len(s.sample_counts) == 1:
            drawn = 0
        else:
            drawn = 2 * cells
        if self.leaf_matrix is None:
            numbers = s.n_rows + 2 * s.total_leaves + drawn
        else:
            numbers = 3 * cells
        return Memory(8 * numbers, LeafMatrix.size(s))

    @guarded
    def prepared(self, n_queries: int | None = None, available: int | None = None) -> BoostedTrees:
        """These trees in the leaf matrix, which is built once, in O(T^2 N), and inverted once, where that pays."""
        if self.leaf_matrix is not None:
            return self
        if n_queries is None:
            return self._in_space(LeafMatrix.inverts(self.structure))
        fits = (
            "prepared" in self._kept.known()
            or available is None
            or 2 * LeafMatrix.size(self.structure) <= available
        )
        if fits and self.prepare_pays(n_queries):
            return self._in_space(self.inverse_pays(n_queries))
        return self

    # -- the fit -----------------------------------------------------------------------------------

    def fit(self, targets: FloatArray) -> FittedValues:
        """Base and leaf values of the fit to these targets (N, K) less the offsets, in O(T N K); the last fit is kept."""
        kept = self._kept_fit
        if kept is None or not np.array_equal(kept.targets, targets):
            _, _, values, sums = self._replay(targets)
            self._kept_fit = kept = FittedValues(
                self.structure, targets.copy(), self._base(targets), values, sums
            )
        return kept

    def _replay(self, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Runs the fit, constants included: targets less offsets and last residuals, (N, K), leaf values and sums, (L, K)."""
        offsets = self.structure.offsets
        if offsets is None:
            started = targets
        else:
            started = targets - offsets
        residual, values, sums = map(
            host, self._passes.forward(started, self._base(targets), self.structure.shifted_values)
        )
        return started, residual, values, sums

    def linear(self, v: FloatArray, base: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(L, S) twice: leaf values and sums of the linear map alone for vectors v (N, S) from base (S,)."""
        _, values, sums = map(host, self._passes.forward(v, base, None))
        return values, sums

    def tree_residuals(self, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield the residuals that each tree of a fit to targets (N, 1) sees, (N,)."""
        s = self.structure
        fit = self.fit(targets)
        for _, residual in zip(range(s.n_trees), fit.residuals(s.leaves(), fit.started())):
            yield residual[:, 0].copy()

    def tree_residual_slopes(self, v: FloatArray) -> Iterator[FloatArray]:
        """Yield how the residuals of each tree move with the targets by vectors v (N, S), (N, S)."""
        s = self.structure
        base = np.zeros(v.shape[1])
        fit = FittedValues(s, v, base, *self.linear(v, base))
        for _, slopes in zip(range(s.n_trees), fit.residuals(s.leaves(), v)):
            yield slopes

    def constants(self, queries: LeafArray | None) -> FloatArray:
        """(n,): the part of predictions in these trees' leaves, (n, T), that comes from shifts of leaf values.

        It is what a fit to targets of zero predicts that starts from zero.
        """
        s = self.structure
        leaves = s.leaves() if queries is None else queries.T
        if s.linear_leaves.shift is None:
            return np.zeros(leaves.shape[1])
        values = self._kept.get(("constants", self.leaf_matrix is None), self._constant_values)
        return predictions(s, np.zeros(1), values, leaves)[:, 0]

    def _constant_values(self) -> FloatArray:
        s = self.structure
        none = np.zeros(1)
        if self.leaf_matrix is not None:
            return self.leaf_matrix.leaf_values(np.zeros((s.total_leaves, 1)), none)
        return host(self._passes.forward(np.zeros((s.n_rows, 1)), none, s.shifted_values)[1])

    def sum_weights(self, seeds: FloatArray) -> FloatArray:
        """(N, S): the derivatives by the targets of ``seeds' (leaf sums)``, for seeds (L, S), in one sweep."""
        xp = self.rows.xp
        n = seeds.shape[1]
        p = xp.zeros((self.structure.n_rows, n))
        seeds = xp.asarray(seeds)
        self._passes.backward(p, xp.zeros_like(seeds), xp.zeros(n), seeds)
        return host(p)

    def _base(self, targets: FloatArray) -> FloatArray:
        """(K,): the numbers that the fit to these targets starts from."""
        if self.structure.initial is None:
            return self.mean(targets)
        return self.structure.initial

    @one_blas_thread()
    def mean(self, v: FloatArray) -> FloatArray:
        """(S,): the weighted means of (N, S) vectors, where the base is estimated."""
        s = self.structure
        return np.asarray(
            (v.sum(axis=0) if s.row_weights is None else s.row_weights @ v) / s.total_weight
        )

    # -- rows of K ---------------------------------------------------------------------------------

    def _swept(self, queries: LeafArray, base: float) -> tuple[Any, Adjoints]:
        """The weights, (N, n), by sweeps over some queries at a time (`Rows.swept`)."""
        s = self.structure
        n = len(queries)
        xp = self.rows.xp
        most = self.rows.swept
        if n <= most:
            state = xp.zeros((s.n_rows, n))
            return state, self._passes.backward(state, asked(s, queries, xp), xp.full(n, base))
        out = xp.empty((n, s.n_rows)).T
        phi = xp.empty((s.total_leaves, n))
        beta = xp.empty(n)
        for part in spans(n, most):
            state, adjoints = self._swept(queries[part], base)
            for rows in spans(s.n_rows, TURNED_ROWS):
                out[rows, part] = state[rows]
            phi[:, part], beta[part] = adjoints.phi, adjoints.beta
        return out, Adjoints(phi, beta)

    @one_blas_thread()
    def adjoints(self, queries: LeafArray, base: float = 1.0) -> Adjoints:
        """The adjoints of predictions in these trees' leaves, (n, T); from the leaf matrix alone, where there is one."""
        if self.leaf_matrix is None:
            return self._swept(queries, base)[1]
        phi = self.leaf_matrix.adjoints(queries)
        return Adjoints(phi, base * float(self.structure.beta[-1]) - self._on_base(phi))

    def _on_base(self, phi: Any) -> Any:
        """(S,): what adjoints (L, S) of the leaf sums take from that of the base."""
        return self.rows.product(like(self.structure.initial_in_sums, phi)[None], phi)[0]

    def read_out(self, adjoints: Adjoints, first: int, out: FloatArray) -> None:
        """Fills ``out`` (rows, S) with the weights of the training rows from ``first`` on. Cost O(T) per row and query."""
        table, constant = self._read(adjoints)
        self.rows.read_out(table, constant, self.rows.weights, first, out)

    def largest(
        self, adjoints: Adjoints, scale: FloatArray | None, k: int
    ) -> tuple[FloatArray, Numbers]:
        """(S, k) twice: the k weights of each query with the largest |scale_j * weight|, and their row numbers."""
        table, constant = self._read(adjoints)
        values = np.zeros((len(constant), k))
        rows = np.full((len(constant), k), -1, dtype=np.int64)
        self.rows.top(table, constant, self.rows.weights, scale, values, rows)
        return values, rows

    def moments(self, adjoints: Adjoints, values: FloatArray) -> FloatArray:
        """(2, S, M): sums of values (N, M) under the sizes of the weights and under their squares, in one read-out."""
        table, constant = self._read(adjoints)
        found = np.empty((2, len(constant), values.shape[1]))
        self.rows.moments(table, constant, self.rows.weights, values, found)
        return found

    @one_blas_thread()
    def product(self, adjoints: Adjoints, targets: FloatArray) -> FloatArray:
        """(S, K): weights times targets (N, K) from their leaf sums, kept for the latest arrays: no pass over the rows."""
        sums = next(
            (sums for known, sums in self._target_sums if have_same_values(known, targets)), None
        )
        if sums is None:
            sums = leaf_sums(self.structure, self.rows, self.rows.xp.asarray(targets))
            self._target_sums = [*self._target_sums[1 - KEPT_SUMS :], (targets, sums)]
        made = host(self.rows.product(like(sums, adjoints.phi).T, adjoints.phi)).T
        if self.structure.initial is not None:
            return made
        return made + np.outer(host(adjoints.beta), self.mean(targets))

    def _read(self, adjoints: Adjoints) -> tuple[Any, Any]:
        """Table by cells and constant, from the base, of the weights ``w_j (constant + sum_t draw_tj phi_t[leaf_t(j)])``."""
        return self.structure.by_cells(
            adjoints.phi, drawn=True
        ), adjoints.beta * self.structure.mean_weight

    @one_blas_thread()
    def intercepts(self, adjoints: Adjoints, constants: FloatArray) -> FloatArray:
        """(S, K): the part of predictions that no target makes, without the queries' offsets; see `constants` (S,)."""
        base = self.structure.initial
        if base is None:
            n_outputs = 1
        else:
            n_outputs = len(base)
        if base is None:
            constant = np.zeros((len(adjoints.beta), n_outputs))
        else:
            constant = np.outer(host(adjoints.beta), base)
        constant += constants[:, None]
        if self._offset_sums is None:
            return constant
        return (
            constant
            - host(self.rows.product(like(self._offset_sums.T, adjoints.phi), adjoints.phi)).T
        )

    @one_blas_thread()
    def _combine_own(self, u: FloatArray) -> FloatArray:
        """(N, S): K'u without the training rows' leaves: the residuals' adjoints start from -u."""
        xp = self.rows.xp
        p = xp.array(-u, order="C")
        self._passes.backward(
            p, xp.zeros((self.structure.total_leaves, u.shape[1])), xp.asarray(weighted(u.T)[:, 0])
        )
        return host(p) + u

    # -- the leaf matrix ---------------------------------------------------------------------------

    def in_leaf_matrix(self, space: LeafMatrix) -> BoostedTrees:
        """These trees with a leaf matrix that was built for them."""
        made = copy(self)
        made.leaf_matrix = space
        return made

    def _in_space(self, inverts: bool) -> BoostedTrees:
        """These trees in the leaf matrix, which is kept, as its inverse is: one that is there already serves all."""
        if not inverts:
            return self._kept.get("prepared", lambda: self._built(False))
        made = self._kept.get("inverted", self._inverted)
        self._kept.put("prepared", made)
        return made

    def _inverted(self) -> BoostedTrees:
        known: BoostedTrees | None = self._kept.known().get("prepared")
        if known is None or known.leaf_matrix is None:
            return self._built(True)
        return self.in_leaf_matrix(known.leaf_matrix.inverted())

    def _built(self, inverts: bool) -> BoostedTrees:
        return self.in_leaf_matrix(
            LeafMatrix.build(self.structure, self.backend, self.rows, inverts)
        )

    def space(self) -> LeafMatrix:
        """The leaf matrix, built unless it is there."""
        space = self.prepared().leaf_matrix
        assert space is not None
        return space

    def prepare_pays(self, n_queries: int) -> bool:
        """Whether the leaf matrix takes less time than sweeps for this many queries, with all that is to be made first."""
        swept, *prepared = self._visits(n_queries)
        return self.backend.costs.visit_seconds * swept > WORTH and min(prepared) < swept

    def inverse_pays(self, n_queries: int) -> bool:
        """Whether this many queries take less time with the inverse of the leaf matrix, which is to be made first,
        than by solves."""
        _, solved, looked_up = self._visits(n_queries)
        return looked_up < solved

    def _visits(self, n_queries: int) -> tuple[float, float, float]:
        """The work of this many queries by sweeps, by solves in the leaf matrix and by its inverse, with what is to be
        made first."""
        s = self.structure
        costs = self.backend.costs
        known = self._kept.known()
        visits = s.n_trees + sum(len(group.changes) for group in self._passes.groups)
        sweep = costs.sweep * max(n_queries, FEW_SWEPT) * s.n_rows * visits / 2
        build = (
            costs.pair * s.n_rows * s.n_trees * (s.n_trees - 1) / 2 + costs.fill * s.total_leaves**2
        )
        if "prepared" in known:
            space = 0.0
        else:
            space = build
        space += costs.read * max(n_queries, FEW_READ) * s.n_trees * s.n_rows
        solve = costs.solve * max(n_queries, FEW_SOLVED) * s.total_leaves**2
        if "inverted" in known:
            inverse = 0.0
        else:
            inverse = costs.inverse * s.total_leaves**3
        return (
            sweep,
            space + solve,
            space + inverse + costs.read * n_queries * s.n_trees * s.total_leaves,
        )

    def _work(self, matrices: int) -> hat_matrix.LeverageWork:
        return hat_matrix.LeverageWork.of(
            self.structure, self.backend.costs, self.leaf_matrix is not None, matrices
        )

    def _own_weights(self, available: int) -> Iterator[tuple[int, FloatArray]]:
        s = self.structure
        return hat_matrix.batches(
            s, lambda leaves: self._answer(leaves, s.initial_in_fit).dense(), available
        )


def approximate_rows(s: Structure, rows: Rows, sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows of `BoostedTrees.approximate_matvec` from the leaf sums of the vectors.

    Parameters
    ----------
    s : Structure
        The structure of n rows, which may be those of one shard.
    rows : Rows
    sums : array of shape (L, S)
        The leaf sums of the vectors over all training rows.

    Returns
    -------
    array of shape (n, S), array of shape (n,)
        The product, and the diagonal of the matrix.
    """
    roots = np.sqrt(np.where(s.leaf_weights > 0, s.leaf_weights, np.inf))
    scales = (np.repeat(s.final, s.n_leaves) * s.linear_leaves.scale / roots)[:, None]
    product = np.empty((s.n_rows, sums.shape[1]))
    diagonal = np.empty((s.n_rows, 1))
    table = s.by_cells(scales * sums, drawn=False)
    rows.read_out(table, np.zeros(sums.shape[1]), None, 0, product)
    rows.read_out(s.by_cells(scales, drawn=True), np.zeros(1), rows.weights, 0, diagonal)
    return product, diagonal[:, 0]

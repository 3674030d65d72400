"""Boosted trees: their weight matrix K as K v, K'u and single rows of K, matrix-free.

With w the row weights, W their sum, A_t the leaf membership of tree t, B_t its sample counts, P_t
the map from its leaf sums to its leaf values and eta_t its learning rate, boosting is

    base = sum_j w_j y_j / W  (or a constant),   r = y - base - offsets
    t = 1..T:  v_t = P_t A_t' (w B_t r) + shift_t,   r = r - eta_t A_t v_t
    F(x) = base + offset(x) + sum_t eta_t v_t[leaf_t(x)]

`BoostedTrees.fit` runs this, an affine map of y. `matvec` runs it with any vector in place of y and
without constants: the linear map alone. The transpose runs the trees backwards; for the prediction
at x

    p = 0;   t = T..1:  phi_t = P_t' (eta_t e[leaf_t(x)] - eta_t A_t' p),
                        p_j = p_j + w_j B_tj phi_t[leaf_t(j)]
    beta = 1 - sum_j p_j
    base estimated:  weights k_j = p_j + beta w_j / W,   intercept = -p'offsets
    base constant:   weights k_j = p_j,                  intercept = beta base - p'offsets

plus `constants`, if there are shifts.

phi are the adjoints of the leaf sums, beta is that of the initial prediction ``base``.
`Coefficients` generalise eta: after some trees the residuals change by several trees' values at
once (DART), or not at all (forests, parallel trees). `passes` runs over the rows either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.kernels import Backend, Numbers, Rows
from axil.kernels.products import weighted
from axil.machine.arrays import AnyPlaceArray, have_same_values, host, like
from axil.machine.blocks import spans
from axil.machine.log import logger
from axil.machine.threads import Cache, one_blas_thread
from axil.structure import Structure
from axil.weights import hat_matrix, removal
from axil.weights.answers import Answer, RowEffects
from axil.weights.deletion import Deletion, InLeafMatrix
from axil.weights.engine import Memory, Seconds, TreeEngine, diagonal, own_leaves, sum_of_squares
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import LeafMatrix, cooccurrence, sums_at, value_adjoints
from axil.weights.left_out import LeftOut, left_out
from axil.weights.levels import Level, at_share, shares_of
from axil.weights.passes import Adjoints, Passes, leaf_sums
from axil.weights.replays import ByReplay, sum_responses
from axil.weights.residuals import FittedValues, predictions
from axil.weights.tree_answers import ReadOutAnswer, StateAnswer, guarded
from axil.weights.work import SQUARES_MATRICES, DeletionWork, LeverageWork, PredictionWork

# rows of a state copied to lie query by query at a time: both sides stay in the caches
TURNED_ROWS = 1 << 10

WORTH = 0.1  # seconds that passes have to take before another algorithm is considered

CACHED_SUMS = 4  # arrays of the training rows whose leaf sums are cached


class BoostedTrees(TreeEngine):
    """K and its transpose for one structure, by passes over the rows or in the leaf matrix.

    A cached value is published whole, by one assignment, so any number of threads may use the
    trees, and an exception breaks nothing.

    Parameters
    ----------
    structure : Structure
    backend : Backend
        Holds the rows.
    offset_sums : array of shape (L, K), optional
        The leaf sums of the offsets, if the rows are elsewhere.
    once : bool
        Whether the trees are fitted to one column of targets and used for nothing else; see
        `Passes`.
    """

    def __init__(
        self,
        structure: Structure,
        backend: Backend,
        offset_sums: FloatArray | None = None,
        once: bool = False,
    ):
        self.structure = structure
        self.backend = backend
        self.rows = backend.rows_of(structure)
        self.leaf_matrix: LeafMatrix | None = None  # None: weights come by passes
        self._passes = Passes(structure, self.rows, once)
        # arrays with their leaf sums, the latest last
        self._target_sums: list[tuple[FloatArray, AnyPlaceArray]] = []
        self._last_fit: FittedValues | None = None
        self._last_deletions: tuple[FloatArray, Deletion] | None = None  # with the fit's targets
        self._cache = Cache()  # these trees in the leaf matrix
        if offset_sums is None and structure.offsets is not None:
            offset_sums = leaf_sums(structure, self.rows, structure.offsets)
        self._offset_sums = offset_sums

    # -- the contract ------------------------------------------------------------------------------

    @guarded
    def weight_rows(self, queries: LeafArray | None, base: float = 1.0) -> Answer:
        """Return the weights of predictions in these leaves; see `Engine.weight_rows`."""
        return self._answer(own_leaves(self.structure, queries), self._base_count(queries, base))

    def _answer(self, leaves: LeafArray, base: float) -> Answer:
        """Return the weights of predictions in these trees' leaves, (n, T). Cost O(T N) each."""
        if self.leaf_matrix is None:
            state, adjoints = self._backward(leaves, base)
            intercepts = self.intercepts(adjoints, self.constants(leaves))
            return StateAnswer(self.backend, state, intercepts)
        adjoints = self.adjoints(leaves, base)
        return ReadOutAnswer(self, adjoints, self.intercepts(adjoints, self.constants(leaves)))

    @guarded
    def matvec(self, queries: LeafArray | None, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return K v, (n, S), in O(T (N + n) S); see `Engine.matvec`.

        A constant initial prediction and offsets take no part.
        """
        if self.structure.initial is None:
            start = self.mean(v)
        else:
            start = np.zeros(v.shape[1])
        residual, values, _ = map(host, self._passes.forward(v, start))
        base = self._base_count(queries, base)
        if queries is None and base == 1.0:
            return np.asarray(v - residual)
        leaves = own_leaves(self.structure, queries).T
        return predictions(self.structure, base * start, values, leaves)

    @guarded
    def rmatvec(self, queries: LeafArray | None, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return K'u, (N, S), in one backward pass or one read-out: O(T (N + n) S)."""
        if queries is None and self._base_count(queries, base) == 1.0:
            return self._rmatvec_of_training_rows(u)
        return self.row_sum(queries, u, base).dense().T

    @guarded
    def row_sum(self, queries: LeafArray | None, u: FloatArray, base: float = 1.0) -> Answer:
        """Return the weights of sums of predictions, in O(T (N + n) S); see `Engine.row_sum`."""
        s = self.structure
        xp = self.rows.xp
        leaves = own_leaves(s, queries)
        base = self._base_count(queries, base)
        if self.leaf_matrix is not None:
            return ReadOutAnswer(self, *self.mixed_adjoints(leaves, u, base))
        alpha, base_counts = self._mixed_sources(leaves, u, base)
        state = xp.zeros((s.n_rows, u.shape[1]))
        adjoints = self._passes.backward(state, alpha, base_counts)
        intercepts = self.intercepts(adjoints, u.T @ self.constants(leaves))
        return StateAnswer(self.backend, state, intercepts)

    def mixed_adjoints(
        self, leaves: LeafArray, u: FloatArray, base: float
    ) -> tuple[Adjoints, FloatArray]:
        """Return the adjoints of sums of predictions, and their intercepts, by the leaf matrix.

        ``leaves`` (n, T) are those of these trees, ``u`` (n, S) the factors of the predictions.
        """
        alpha, base_counts = self._mixed_sources(leaves, u, base)
        assert self.leaf_matrix is not None
        phi = self.leaf_matrix.adjoints_of(alpha)
        beta = float(self.structure.beta[-1]) * base_counts - self._on_base(phi)
        adjoints = Adjoints(phi, beta)
        return adjoints, self.intercepts(adjoints, u.T @ self.constants(leaves))

    def _mixed_sources(
        self, leaves: LeafArray, u: FloatArray, base: float
    ) -> tuple[AnyPlaceArray, AnyPlaceArray]:
        """Return the derivatives of sums of predictions by leaf values, (L, S), and base counts.

        The base counts, (S,), say how often the initial prediction is in each sum.
        """
        s = self.structure
        xp = self.rows.xp
        met = s.starts[:-1] + leaves.astype(np.int64)
        base_counts = base * np.asarray(u.sum(axis=0)).ravel()
        return xp.asarray(sums_at(met, s.total_leaves, u, s.final)), xp.asarray(base_counts)

    def _base_count(self, queries: LeafArray | None, base: float) -> float:
        """Return how often the initial prediction counts; see `Structure.initial_in_fit`."""
        if queries is not None:
            return base
        return base * self.structure.initial_in_fit

    @guarded
    def predicted(self, queries: LeafArray | None, targets: FloatArray) -> FloatArray:
        """Return the predictions of the fit to these targets, replayed in O(T (N + n) K)."""
        if queries is not None:
            return self.fit(targets).predictions(own_leaves(self.structure, queries).T)
        started, residual, *_ = self._replay(targets)
        scores = np.subtract(started, residual, out=residual)
        if self.structure.offsets is None:
            return scores
        return scores + self.structure.offsets

    @guarded
    def leverage(self, available: int) -> FloatArray:
        """Return ``K[j, j]``, (N,).

        O(T^2 N + L^3) in the leaf matrix, O(T N^2) otherwise, whichever is less of what fits.
        """
        if self._leverage_work(1).leaf_matrix_pays(available):
            return hat_matrix.leverage_in_leaf_matrix(self.space(), self.rows)
        return diagonal(self._training_weights(available))

    def squares(self, available: int) -> float:
        """Return ``sum_ij K[i, j]^2``.

        O(T^2 N + L^3) in the leaf matrix, O(T N^2) otherwise, whichever is less of what fits.
        """
        if self._leverage_work(SQUARES_MATRICES).leaf_matrix_pays(available):
            return hat_matrix.squares_in_leaf_matrix(self.space(), self.rows)
        return sum_of_squares(self._training_weights(available))

    @guarded
    def approximate_matvec(self, v: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return B v and the diagonal of B for ``B = sum_t final_t A_t D_t A_t' w B_t``.

        So each tree is taken as if it were alone, in two passes over all trees. D_t is the scale of
        leaf values over the roots of the leaves' weights: trees that see each other's residuals say
        less where leaves are large.
        """
        s = self.structure
        return approximate_rows(s, self.rows, host(leaf_sums(s, self.rows, v)))

    def costs(self, available: int) -> Seconds:
        """Return the estimated seconds of work on all training rows within ``available`` bytes."""
        s = self.structure
        costs = self.backend.costs
        deletions = self._deletion_work
        in_leaf_matrix = np.inf
        if deletions.needed <= available:
            in_leaf_matrix = deletions.in_leaf_matrix
        return Seconds(
            leverage=self._leverage_work(1).seconds(available),
            squares=self._leverage_work(SQUARES_MATRICES).seconds(available),
            column=costs.visit_seconds * costs.sweep * s.n_rows * s.n_trees,
            deletion=in_leaf_matrix,
            replays=deletions.by_replay,
        )

    @guarded
    def removal(self, queries: LeafArray | None, targets: FloatArray) -> Sequence[RowEffects]:
        """Return the first-order effects of deleting training rows; see `Deletable.removal`."""
        fits = removal.fits(self.rows, self.fit(targets))
        adjoints = self.adjoints(own_leaves(self.structure, queries))
        return [removal.ReadOutEffects(fit, adjoints) for fit in fits]

    def deletion(
        self, queries: LeafArray | None, targets: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        """Return the exact changes of predictions without each row; see `Deletable.deletion`."""
        return self.deletions(targets, available).effects(own_leaves(self.structure, queries))

    @guarded
    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Return each training row's prediction by the refit without it."""
        return left_out(self.deletions(targets, available))

    @guarded
    def deletions(self, targets: FloatArray, available: int) -> Deletion:
        """Return the fits to these targets without one row each.

        They are computed in the leaf matrix, or by replays if it does not fit or takes longer.
        """
        last = self._last_deletions
        if last is None or not have_same_values(last[0], targets):
            fitted = self.fit(targets)
            last = (fitted.targets, self._deletions(fitted, available))
            self._last_deletions = last
        return last[1]

    def _deletions(self, fitted: FittedValues, available: int) -> Deletion:
        """Compute `deletions` of a fit."""
        s = self.structure
        work = self._deletion_work
        replayed = ByReplay(fitted, self._fit_without)
        if not work.uses_leaf_matrix(available):
            return replayed
        levels = []
        for share in shares_of(s):
            trees = self
            if share != 0:
                trees = BoostedTrees(at_share(s, share), self.backend)
            levels.append(Level.of(share, self.rows, trees.fit(fitted.targets), trees.space()))
        responses = None
        if rule_of(s).needs_walk:
            responses = sum_responses(s, cooccurrence(s, self.rows, 0, s.n_trees), self.backend)
        return InLeafMatrix(levels, replayed, available - work.needed, responses)

    def _fit_without(self, row: int, targets: FloatArray) -> FittedValues:
        """Return the fit to targets without one row, by a replay."""
        rows = np.array([row])
        rule = rule_of(self.structure)
        if rule.needs_walk:
            return rule.fit_without(self.structure, rows, targets, self.backend)
        remaining = rule.without(self.structure, rows, targets, self.backend)
        return BoostedTrees(remaining, self.backend, once=True).fit(targets)

    def replays(self, targets: FloatArray, available: int) -> int:
        """Return how many rows' exact deletions are replayed."""
        deletions = self.deletions(targets, available)
        n_rows = self.structure.n_rows
        if isinstance(deletions, InLeafMatrix):
            return len(deletions.by_replay(slice(0, n_rows)))
        return n_rows

    def gradient_contributions(
        self, queries: LeafArray | None, targets: FloatArray
    ) -> Sequence[RowEffects]:
        """Return the contributions of training rows; see `Deletable.gradient_contributions`."""
        leaves = own_leaves(self.structure, queries)
        return removal.contributions(self.rows, self.fit(targets), leaves)

    def without(self, rows: IntArray, targets: FloatArray) -> BoostedTrees:
        """Return the trees of the fit to targets (N, K) without these rows."""
        remaining = rule_of(self.structure).without(self.structure, rows, targets, self.backend)
        return BoostedTrees(remaining, self.backend)

    def with_targets(self, targets: FloatArray) -> BoostedTrees:
        """Return the trees of the fit to other targets (N, K), with its own active set."""
        structure = rule_of(self.structure).with_targets(self.structure, targets, self.backend)
        if structure is self.structure:
            return self
        return BoostedTrees(structure, self.backend)

    @property
    def memory(self) -> Memory:
        """The bytes that explained rows and the leaf matrix take."""
        s = self.structure
        n_cells = int(s.cell_starts[-1])
        if self.leaf_matrix is not None:
            n_numbers = 3 * n_cells
        else:
            n_numbers = s.n_rows + 2 * s.total_leaves
            if len(s.sample_counts) > 1:
                n_numbers += 2 * n_cells
        return Memory(8 * n_numbers, LeafMatrix.size(s))

    @guarded
    def prepared(self, n_queries: int | None = None, available: int | None = None) -> BoostedTrees:
        """Return these trees in the leaf matrix if that pays; see `Engine.prepared`.

        The leaf matrix is built once, in O(T^2 N), and inverted once.
        """
        if self.leaf_matrix is not None:
            return self
        if n_queries is None:
            return self._in_leaf_matrix(LeafMatrix.inverts(self.structure))
        is_built = "prepared" in self._cache.known()
        size = 2 * LeafMatrix.size(self.structure)
        fits = is_built or available is None or size <= available
        if fits and self.prepare_pays(n_queries):
            logger.debug("the leaf matrix for %d rows", n_queries)
            return self._in_leaf_matrix(self.inverse_pays(n_queries))
        logger.debug("backward passes for %d rows", n_queries)
        return self

    # -- the fit -----------------------------------------------------------------------------------

    def fit(self, targets: FloatArray) -> FittedValues:
        """Return the fit to these targets (N, K), in O(T N K). The last fit is cached."""
        last = self._last_fit
        if last is None or not np.array_equal(last.targets, targets):
            _, _, values, sums = self._replay(targets)
            last = FittedValues(
                self.structure, targets.copy(), self._initial(targets), values, sums
            )
            self._last_fit = last
        return last

    def _replay(self, targets: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Replay the fit with its constants.

        Returns
        -------
        started, residual : arrays of shape (N, K)
            The targets less the offsets, and what the last tree leaves over of them.
        values, sums : arrays of shape (L, K)
            The leaf values before any learning rate, and the leaf sums.
        """
        started = targets
        if self.structure.offsets is not None:
            started = targets - self.structure.offsets
        initial = self._initial(targets)
        fit = self._passes.forward(started, initial, self.structure.shifted_values)
        residual, values, sums = map(host, fit)
        return started, residual, values, sums

    def linear(self, v: FloatArray, base: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return leaf values and sums of the linear map alone, (L, S) each.

        ``v`` (N, S) are vectors and ``base`` (S,) the initial predictions.
        """
        _, values, sums = map(host, self._passes.forward(v, base, None))
        return values, sums

    def tree_residuals(self, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield the residuals that each tree of a fit to targets (N, 1) sees, (N,)."""
        s = self.structure
        fit = self.fit(targets)
        for _, residual in zip(range(s.n_trees), fit.residuals(s.leaves(), fit.started())):
            yield residual[:, 0].copy()

    def tree_residual_slopes(self, v: FloatArray) -> Iterator[FloatArray]:
        """Yield each tree's residual derivatives, (N, S), along target vectors (N, S)."""
        s = self.structure
        base = np.zeros(v.shape[1])
        fit = FittedValues(s, v, base, *self.linear(v, base))
        for _, slopes in zip(range(s.n_trees), fit.residuals(s.leaves(), v)):
            yield slopes

    def constants(self, queries: LeafArray | None) -> FloatArray:
        """Return the part of predictions that comes from shifts of leaf values, (n,).

        It is what a fit to targets of zero predicts that starts from zero. ``queries`` (n, T) are
        these trees' leaves.
        """
        s = self.structure
        leaves: LeafArray = s.leaves() if queries is None else queries.T
        if s.linear_leaves.shift is None:
            return np.zeros(leaves.shape[1])
        values = self._cache.get(("constants", self.leaf_matrix is None), self._constant_values)
        return predictions(s, np.zeros(1), values, leaves)[:, 0]

    def _constant_values(self) -> FloatArray:
        """Return the leaf values of the fit to targets of zero, (L, 1)."""
        s = self.structure
        zero = np.zeros(1)
        if self.leaf_matrix is not None:
            return self.leaf_matrix.leaf_values(np.zeros((s.total_leaves, 1)), zero)
        return host(self._passes.forward(np.zeros((s.n_rows, 1)), zero, s.shifted_values)[1])

    def sum_weights(self, seeds: FloatArray) -> FloatArray:
        """Return the derivatives of ``seeds.T @ leaf_sums`` by the targets, (N, S)."""
        xp = self.rows.xp
        n = seeds.shape[1]
        state = xp.zeros((self.structure.n_rows, n))
        seeds = xp.asarray(seeds)
        self._passes.backward(state, xp.zeros_like(seeds), xp.zeros(n), seeds)
        return host(state)

    def _initial(self, targets: FloatArray) -> FloatArray:
        """Return the initial prediction of the fit to these targets, (K,)."""
        if self.structure.initial is None:
            return self.mean(targets)
        return self.structure.initial

    @one_blas_thread()
    def mean(self, v: FloatArray) -> FloatArray:
        """Return the weighted means of vectors (N, S), (S,)."""
        s = self.structure
        if s.row_weights is None:
            total = v.sum(axis=0)
        else:
            total = s.row_weights @ v
        return np.asarray(total / s.total_weight)

    # -- rows of K ---------------------------------------------------------------------------------

    def _backward(self, queries: LeafArray, base: float) -> tuple[AnyPlaceArray, Adjoints]:
        """Return the weights, (N, n), by backward passes for `Rows.swept` rows at a time."""
        s = self.structure
        n = len(queries)
        xp = self.rows.xp
        most = self.rows.swept
        if n <= most:
            state = xp.zeros((s.n_rows, n))
            alpha = value_adjoints(s, queries, xp)
            return state, self._passes.backward(state, alpha, xp.full(n, base))
        weights = xp.empty((n, s.n_rows)).T
        phi = xp.empty((s.total_leaves, n))
        beta = xp.empty(n)
        for batch in spans(n, most):
            state, adjoints = self._backward(queries[batch], base)
            for rows in spans(s.n_rows, TURNED_ROWS):
                weights[rows, batch] = state[rows]
            phi[:, batch] = adjoints.phi
            beta[batch] = adjoints.beta
        return weights, Adjoints(phi, beta)

    @one_blas_thread()
    def adjoints(self, queries: LeafArray, base: float = 1.0) -> Adjoints:
        """Return the adjoints of predictions in these trees' leaves, (n, T).

        The leaf matrix, if there is one, has them without a pass over the rows.
        """
        if self.leaf_matrix is None:
            return self._backward(queries, base)[1]
        phi = self.leaf_matrix.adjoints(queries)
        return Adjoints(phi, base * float(self.structure.beta[-1]) - self._on_base(phi))

    def _on_base(self, phi: AnyPlaceArray) -> AnyPlaceArray:
        """Return the adjoints of the initial prediction, given those of the leaf sums, (S,)."""
        return self.rows.product(like(self.structure.initial_in_sums, phi)[None], phi)[0]

    def read_out(self, adjoints: Adjoints, first: int, out: FloatArray) -> None:
        """Fill ``out``, (rows, S), with the weights of the training rows from ``first`` on.

        Cost O(T) for each weight.
        """
        table, constant = self._weight_table(adjoints)
        self.rows.read_out(table, constant, self.rows.weights, first, out)

    def largest(
        self, adjoints: Adjoints, scale: FloatArray | None, k: int
    ) -> tuple[FloatArray, Numbers]:
        """Return the k weights of largest ``|scale_j * weight|`` and their rows, (S, k) each."""
        table, constant = self._weight_table(adjoints)
        values = np.zeros((len(constant), k))
        rows = np.full((len(constant), k), -1, dtype=np.int64)
        self.rows.top(table, constant, self.rows.weights, scale, values, rows)
        return values, rows

    def moments(self, adjoints: Adjoints, values: FloatArray) -> FloatArray:
        """Return sums of values (N, M) under |weight| and under weight^2, (2, S, M).

        They take one read-out.
        """
        table, constant = self._weight_table(adjoints)
        moments = np.empty((2, len(constant), values.shape[1]))
        self.rows.moments(table, constant, self.rows.weights, values, moments)
        return moments

    @one_blas_thread()
    def product(self, adjoints: Adjoints, targets: FloatArray) -> FloatArray:
        """Return weights times targets (N, K), (S, K), from the leaf sums of the targets.

        Those of the latest targets are cached, so this takes no pass over the rows.
        """
        sums = self._leaf_sums_of(targets)
        product = host(self.rows.product(like(sums, adjoints.phi).T, adjoints.phi)).T
        if self.structure.initial is not None:
            return product
        return product + np.outer(host(adjoints.beta), self.mean(targets))

    def _leaf_sums_of(self, targets: FloatArray) -> AnyPlaceArray:
        """Return the leaf sums of targets, (L, K), on the back end."""
        for cached_targets, sums in self._target_sums:
            if have_same_values(cached_targets, targets):
                return sums
        sums = leaf_sums(self.structure, self.rows, self.rows.xp.asarray(targets))
        self._target_sums = [*self._target_sums[1 - CACHED_SUMS :], (targets, sums)]
        return sums

    def _weight_table(self, adjoints: Adjoints) -> tuple[AnyPlaceArray, AnyPlaceArray]:
        """Return the table by cells and the constant that weights are read out of.

        Weights are ``w_j (constant + sum_t count_tj phi_t[leaf_t(j)])``. The constant comes from
        the initial prediction.
        """
        table = self.structure.by_cells(adjoints.phi, drawn=True)
        return table, adjoints.beta * self.structure.mean_weight

    @one_blas_thread()
    def intercepts(self, adjoints: Adjoints, constants: FloatArray) -> FloatArray:
        """Return the part of predictions that no target makes, (S, K).

        Offsets of explained rows are not in it. For ``constants`` (S,) see `constants`.
        """
        initial = self.structure.initial
        if initial is None:
            intercepts = np.zeros((len(adjoints.beta), 1))
        else:
            intercepts = np.outer(host(adjoints.beta), initial)
        intercepts += constants[:, None]
        if self._offset_sums is None:
            return intercepts
        offset_sums = like(self._offset_sums.T, adjoints.phi)
        return intercepts - host(self.rows.product(offset_sums, adjoints.phi)).T

    @one_blas_thread()
    def _rmatvec_of_training_rows(self, u: FloatArray) -> FloatArray:
        """Return K'u, (N, S), of the training rows: the residuals' adjoints start from -u."""
        xp = self.rows.xp
        state = xp.array(-u, order="C")
        alpha = xp.zeros((self.structure.total_leaves, u.shape[1]))
        self._passes.backward(state, alpha, xp.asarray(weighted(u.T)[:, 0]))
        return host(state) + u

    # -- the leaf matrix ---------------------------------------------------------------------------

    def in_leaf_matrix(self, space: LeafMatrix) -> BoostedTrees:
        """Return these trees with a leaf matrix that was built for them."""
        trees = copy(self)
        trees.leaf_matrix = space
        return trees

    def _in_leaf_matrix(self, inverts: bool) -> BoostedTrees:
        """Return these trees in the leaf matrix, which is cached, as its inverse is."""
        if not inverts:
            return self._cache.get("prepared", lambda: self._built(False))
        trees = self._cache.get("inverted", self._inverted)
        self._cache.put("prepared", trees)
        return trees

    def _inverted(self) -> BoostedTrees:
        """Return these trees with the inverse of the leaf matrix."""
        prepared: BoostedTrees | None = self._cache.known().get("prepared")
        if prepared is None or prepared.leaf_matrix is None:
            return self._built(True)
        return self.in_leaf_matrix(prepared.leaf_matrix.inverted())

    def _built(self, inverts: bool) -> BoostedTrees:
        """Return these trees with a new leaf matrix."""
        space = LeafMatrix.build(self.structure, self.backend, self.rows, inverts)
        return self.in_leaf_matrix(space)

    def space(self) -> LeafMatrix:
        """Return the leaf matrix; build it unless it is there."""
        space = self.prepared().leaf_matrix
        assert space is not None
        return space

    def prepare_pays(self, n_queries: int) -> bool:
        """Return whether the leaf matrix takes less time than passes for this many rows.

        The time to build it counts.
        """
        work = self.prediction_work(n_queries)
        if self.backend.costs.visit_seconds * work.by_passes <= WORTH:
            return False
        return min(work.by_solves, work.by_inverse) < work.by_passes

    def inverse_pays(self, n_queries: int) -> bool:
        """Return whether the inverse takes less time than solves for this many rows."""
        work = self.prediction_work(n_queries)
        return work.by_inverse < work.by_solves

    def prediction_work(self, n_queries: int) -> PredictionWork:
        """Return the work of the weights of this many rows by each algorithm."""
        n_changes = sum(len(group.changes) for group in self._passes.groups)
        built = self._cache.known()
        return PredictionWork.of(
            self.structure,
            self.backend.costs,
            n_queries,
            n_changes,
            "prepared" in built,
            "inverted" in built,
        )

    @property
    def _deletion_work(self) -> DeletionWork:
        """The work of deletions of all rows."""
        has_leaf_matrix = self.leaf_matrix is not None
        return DeletionWork.of(self.structure, self.backend.costs, has_leaf_matrix)

    def _leverage_work(self, matrices: int) -> LeverageWork:
        """Return the work of leverages, or of squares; see `LeverageWork.of`."""
        has_leaf_matrix = self.leaf_matrix is not None
        return LeverageWork.of(self.structure, self.backend.costs, has_leaf_matrix, matrices)

    def _training_weights(self, available: int) -> Iterator[tuple[int, FloatArray]]:
        """Yield K in batches of rows, (rows, N), with the number of the first row."""
        s = self.structure

        def weights(leaves: LeafArray) -> FloatArray:
            return self._answer(leaves, s.initial_in_fit).dense()

        return hat_matrix.batches(s, weights, available)


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

"""The weight matrix K of an ensemble as an operator: K v, K'u and single rows of K.

With w the row weights, W their sum, A_t the leaf membership of tree t, B_t its draws, P_t the map from its leaf sums to its
leaf values and eta_t its rate, boosting is

    base = sum_j w_j y_j / W  (or a constant),   r = y - base - offsets
    t = 1..T:  v_t = P_t A_t' (w B_t r),   r = r - eta_t A_t v_t
    F(x) = base + offset(x) + sum_t eta_t v_t[leaf_t(x)]

`forward` runs this with any vector in place of y. The transpose runs the trees backwards; for the prediction at x

    p = 0;   t = T..1:  phi_t = P_t' (eta_t e[leaf_t(x)] - eta_t A_t' p),   p_j = p_j + w_j B_tj phi_t[leaf_t(j)]
    beta = 1 - sum_j p_j
    base estimated:  weights k_j = p_j + beta w_j / W,   intercept = -p'offsets
    base constant:   weights k_j = p_j,                  intercept = beta base - p'offsets

phi are the adjoints of the leaf sums, beta is that of the base. `Coefficients` generalise eta: after some trees the residuals
change by several trees' values at once (DART), or not at all (forests, parallel trees). Trees fitted between two changes of the
residuals form a group and share a pass over the rows. In plain boosting a group may hold several trees too: each tree's sums are
then corrected for the group's other trees through their co-occurrence.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from axil.kernels import Backend, Numbers, Rows
from axil.machine.progress import track
from axil.machine.shared import Kept, one_blas_thread
from axil.structure import Structure
from axil.types import Array, Leaves
from axil.weights.leaf_space import INVERTED, LeafSpace, asked, cooccurrence

# Trees share a pass: counting their co-occurrence once costs less than the passes it avoids, two of them or one of a few columns.
SHARED_TREES = 4
SWEPT = 128  # queries that share a sweep
SHARED_LEAVES = 200
SHARED_CELLS = 2048  # their co-occurrence is counted by cells: 32 MiB


@dataclass(frozen=True)
class Group:
    """Consecutive trees that share a pass, and what is subtracted from the residuals after them: (tree, coefficient)."""

    first: int
    last: int
    changes: list[tuple[int, float]]
    in_turn: bool = False  #: whether the trees were nevertheless fitted one after the other

    @property
    def trees(self) -> range:
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Adjoints:
    """The adjoints of S predictions: their derivatives by the leaf sums and by the base."""

    phi: Array  #: (L, S)
    beta: Array  #: (S,)


class Operators:
    """K and its transpose for one structure, matrix-free: by sweeps, or in leaf space (`prepared`).

    A kept value is published whole, by one assignment, so any number of threads may ask, and an exception breaks nothing.
    """

    def __init__(self, structure: Structure, backend: Backend, offset_sums: Array | None = None):
        """Keeps the rows on the back end; ``offset_sums`` (L, K): the leaf sums of the offsets, where rows are elsewhere."""
        self.structure = s = structure
        self.backend = backend
        self.rows: Rows = backend.rows_of(s)
        self.leaf_space: LeafSpace | None = None  # None: by sweeps
        self._groups = shared_groups(s) if s.coefficients is None else groups_of(s)
        self._target_sums: tuple[Array, Array] | None = None
        self._kept_fit: tuple[Array, Array, Array] | None = None  # targets, base and leaf values
        self._kept = Kept()  # leaf space, and by the first tree of a group the co-occurrence within it
        self._offset_sums = offset_sums if s.offsets is None else self.leaf_sums(s.offsets)
        self.base_share = s.leaf_weights * np.repeat(s.beta[:-1], s.n_leaves)  # of each leaf sum's adjoint

    def leaf_sums(self, v: Array) -> Array:
        """(L, S): ``sums[l] = sum over rows j in leaf l of w_j draw_j v_j`` for all leaves of all trees, from v (N, S)."""
        s, cells = self.structure, self.rows.leaf_sums(v, self.rows.weights)
        return np.concatenate([s.to_leaves(self._cells_of(cells, t), drawn=True) for t in range(s.n_trees)])

    def forward(self, v: Array, base: Array | None = None) -> Array:
        """K v for (N, S) vectors, in O(T N S); with ``base`` (S,) the fit starts from these numbers instead.

        Without it this is the linear map alone: a constant base and offsets do not enter.
        """
        residual, _ = self._fit(v, base)
        return np.asarray(v - residual)

    def leaf_values(self, v: Array, base: Array | None = None) -> Array:
        """(L, S): the leaf values before the rate, v_t above, that `forward` computes on its way."""
        return self._fit(v, base)[1]

    def fit(self, targets: Array) -> tuple[Array, Array]:
        """(K,) and (L, K): base and leaf values of the fit to these targets (N, K) less the offsets; the last fit is kept."""
        kept = self._kept_fit
        if kept is None or not np.array_equal(kept[0], targets):
            s = self.structure
            base = self.mean(targets) if s.base is None else s.base
            started = targets if s.offsets is None else targets - s.offsets
            self._kept_fit = kept = targets.copy(), base, self.leaf_values(started, base)
        return kept[1:]

    @one_blas_thread()
    def combine(self, queries: Leaves, u: Array, base: float = 1.0) -> Array:
        """(N, S): sums of the weights of n predictions times (n, S) factors, in one sweep or one read-out; see `weights`."""
        s, out = self.structure, np.zeros((self.structure.n_rows, u.shape[1]))
        alpha = np.zeros((s.total_leaves, u.shape[1]))
        for t, coefficient in enumerate(s.final):
            np.add.at(alpha, s.starts[t] + queries[:, t].astype(np.intp), coefficient * u)
        if self.leaf_space is None:
            self._sweep(out, alpha, base * u.sum(axis=0))
            return out
        phi = self.leaf_space.adjoints_of(alpha)
        self.read_out(Adjoints(phi, base * s.beta[-1] * u.sum(axis=0) - self.base_share @ phi), 0, out)
        return out

    @one_blas_thread()
    def _fit(self, v: Array, base: Array | None) -> tuple[Array, Array]:
        """Runs boosting on v (N, S): its last residuals, (N, S), and its leaf values, (L, S)."""
        s = self.structure
        if base is None:
            base = self.mean(v) if s.base is None else np.zeros(v.shape[1])
        residual = np.array(v - s.beta[0] * base, order="C")
        values = np.zeros((s.total_leaves, v.shape[1]))
        table = np.zeros((s.cell_starts[-1], v.shape[1]))
        sums = np.empty_like(table)
        done: list[int] = []
        for group in track(self._groups, "forward"):
            self._pass(residual, done, table, None, list(group.trees), sums, s.row_weights)
            for t in group.trees:
                own = s.to_leaves(self._cells_of(sums, t), drawn=True)
                if group.in_turn and t > group.first:
                    before, here, _ = self._within(group, t)
                    earlier = slice(s.starts[group.first], s.starts[t])
                    taken = np.repeat(s.rates[group.first : t], s.n_leaves[group.first : t])[:, None] * values[earlier]
                    own = own - self._table(group)[before, here].T @ taken
                values[s.starts[t] : s.starts[t + 1]] = s.leaf_values(t, own)
            for t, coefficient in group.changes:
                of_leaves = -coefficient * values[s.starts[t] : s.starts[t + 1]]
                self._cells_of(table, t)[...] = s.to_cells(of_leaves, drawn=False)
            done = [t for t, _ in group.changes]
            if s.beta[group.last + 1] != s.beta[group.last]:
                residual -= (s.beta[group.last + 1] - s.beta[group.last]) * base
        self._pass(residual, done, table, None, [], sums, None)
        return residual, values

    def backward(self, u: Array) -> Array:
        """K'u for (N, S) vectors, in O(T N S)."""
        p = np.array(-u, order="C")
        self._sweep(p, np.zeros((self.structure.total_leaves, u.shape[1])), u.sum(axis=0))
        p += u
        return p

    def weights(self, queries: Leaves, base: float = 1.0) -> tuple[Array, Adjoints]:
        """(n, N) weights of the predictions in these leaves, (n, T), and their adjoints. Cost O(T N) per query.

        ``base``: how often the base counts in a prediction; 0 where an offset of the query replaces it.
        """
        if self.leaf_space is None:
            return self._swept(queries, base)
        out = np.empty((self.structure.n_rows, len(queries)))
        adjoints = self.adjoints(queries, base)
        self.read_out(adjoints, 0, out)
        return out.T, adjoints

    def _swept(self, queries: Leaves, base: float) -> tuple[Array, Adjoints]:
        """The weights by sweeps, `SWEPT` queries at a time, so that tables of their leaves stay in the caches."""
        s, n = self.structure, len(queries)
        if n <= SWEPT:
            state = np.zeros((s.n_rows, n))
            return state.T, self._sweep(state, asked(s, queries), np.full(n, base))
        out, phi, beta = np.empty((n, s.n_rows)), np.empty((s.total_leaves, n)), np.empty(n)
        for first in range(0, n, SWEPT):
            part = slice(first, first + SWEPT)
            out[part], adjoints = self._swept(queries[part], base)
            phi[:, part], beta[part] = adjoints.phi, adjoints.beta
        return out, Adjoints(phi, beta)

    @one_blas_thread()
    def adjoints(self, queries: Leaves, base: float = 1.0) -> Adjoints:
        """The adjoints of these predictions from leaf space alone, without a pass over the rows; see `LeafSpace.adjoints`."""
        assert self.leaf_space is not None
        phi = self.leaf_space.adjoints(queries)
        return Adjoints(phi, base * self.structure.beta[-1] - self.base_share @ phi)

    def read_out(self, adjoints: Adjoints, first: int, out: Array) -> None:
        """Fills ``out`` (rows, S) with the weights of the training rows from ``first`` on. Cost O(T) per row and query."""
        table, constant = self._read(adjoints)
        self.rows.read_out(table, constant, self.rows.weights, first, out)

    def largest(self, adjoints: Adjoints, scale: Array | None, k: int) -> tuple[Array, Numbers]:
        """(S, k) twice: the k weights of each query with the largest |scale_j * weight|, and their row numbers."""
        table, constant = self._read(adjoints)
        values, rows = np.zeros((len(constant), k)), np.full((len(constant), k), -1, dtype=np.int64)
        self.rows.top(table, constant, self.rows.weights, scale, values, rows)
        return values, rows

    @one_blas_thread()
    def product(self, adjoints: Adjoints, targets: Array) -> Array:
        """(S, K): weights times targets (N, K) from the targets' leaf sums, which are kept: no pass over the rows."""
        kept = self._target_sums
        if kept is None or kept[0] is not targets:
            self._target_sums = kept = targets, self.leaf_sums(targets)
        made = adjoints.phi.T @ kept[1]
        return made if self.structure.base is not None else made + np.outer(adjoints.beta, self.mean(targets))

    def base_weight(self, adjoints: Adjoints) -> Array:
        """(S,): the base's addition to the weight of every training row of row weight one."""
        return adjoints.beta * self.mean_weight

    def _read(self, adjoints: Adjoints) -> tuple[Array, Array]:
        """Table by cells and constant of the weights ``w_j (constant + sum_t draw_tj phi_t[leaf_t(j)])``."""
        return self.structure.by_cells(adjoints.phi, drawn=True), self.base_weight(adjoints)

    @one_blas_thread()
    def intercepts(self, adjoints: Adjoints) -> Array:
        """(S, K): the part of each prediction that comes from no target, without the query's own offset."""
        base = self.structure.base
        n_outputs = 1 if base is None else len(base)
        constant = np.zeros((len(adjoints.beta), n_outputs)) if base is None else np.outer(adjoints.beta, base)
        return constant if self._offset_sums is None else constant - adjoints.phi.T @ self._offset_sums

    def prepared(self) -> Operators:
        """These operators in leaf space, which is built once, in O(T^2 N)."""
        return self if self.leaf_space is not None else self._kept.get("prepared", self._prepare)

    def _prepare(self) -> Operators:
        made = copy(self)
        made.leaf_space = LeafSpace.build(self.structure, self.backend, self.rows)
        return made

    def prepare_pays(self, n_queries: int) -> bool:
        """Whether building leaf space and asking it takes less time than sweeping for this many queries."""
        s, costs = self.structure, self.backend.costs
        visits = s.n_trees + sum(len(group.changes) for group in self._groups)
        sweep = costs.sweep * n_queries * s.n_rows * visits / 2
        build = costs.pair * s.n_rows * s.n_trees * (s.n_trees - 1) / 2
        if s.total_leaves <= INVERTED:
            ask = costs.inverse * s.total_leaves**3 + costs.read * n_queries * s.n_trees * s.total_leaves
        else:
            ask = costs.solve * n_queries * s.total_leaves**2
        return build + ask + costs.read * n_queries * s.n_trees * s.n_rows < sweep

    @property
    def mean_weight(self) -> float:
        """The weight that the base, where it is the mean, gives a target of row weight one."""
        return 1.0 / self.structure.total_weight if self.structure.base is None else 0.0

    @one_blas_thread()
    def mean(self, v: Array) -> Array:
        """(S,): the weighted means of (N, S) vectors, where the base is estimated."""
        s = self.structure
        return np.asarray(v.mean(axis=0) if s.row_weights is None else s.row_weights @ v / s.total_weight)

    @one_blas_thread()
    def _sweep(self, p: Array, alpha: Array, beta: Array) -> Adjoints:
        """Runs the trees backwards from the state p (N, S), which ends as the weights; alpha is overwritten."""
        s = self.structure
        phi = np.zeros_like(alpha)
        table = np.zeros((s.cell_starts[-1], p.shape[1]))
        sums = np.empty_like(table)
        done: list[int] = []
        for group in track(self._groups[::-1], "weights"):
            self._pass(p, done, table, s.row_weights, [t for t, _ in group.changes], sums, None)
            for t, coefficient in group.changes:
                gathered = s.to_leaves(self._cells_of(sums, t), drawn=False)
                alpha[s.starts[t] : s.starts[t + 1]] -= coefficient * gathered
            for t in reversed(group.trees):
                own = slice(s.starts[t], s.starts[t + 1])
                if group.in_turn and t < group.last:
                    _, here, after = self._within(group, t)
                    later = phi[s.starts[t + 1] : s.starts[group.last + 1]]
                    alpha[own] -= s.rates[t] * (self._table(group)[here, after] @ later)
                phi[own] = s.leaf_values_transpose(t, alpha[own])
                self._cells_of(table, t)[...] = s.to_cells(phi[own], drawn=True)
            done = list(group.trees)
        beta = s.beta[-1] * beta - self.base_share @ phi
        self._cells_of(table, done[0])[...] += beta * self.mean_weight  # the base rides on the first tree's pass
        self._pass(p, done, table, s.row_weights, [], sums, None)
        return Adjoints(phi, beta)

    def _cells_of(self, table: Array, t: int) -> Array:
        starts = self.structure.cell_starts
        return table[starts[t] : starts[t + 1]]

    def _pass(
        self,
        state: Array,
        apply: list[int],
        table: Array,
        apply_weights: Array | None,
        gather: list[int],
        sums: Array,
        gather_weights: Array | None,
    ) -> None:
        """One pass over the rows; all tables are by cells."""
        trees, wanted = np.array(apply, dtype=np.int64), np.array(gather, dtype=np.int64)
        self.rows.sweep(state, trees, table, apply_weights, wanted, sums, gather_weights)

    def _within(self, group: Group, t: int) -> tuple[slice, slice, slice]:
        """The places of the leaves of the group's trees before t, of t and after t in the group's own table."""
        first, start, end, last = self.structure.starts[[group.first, t, t + 1, group.last + 1]]
        return slice(0, start - first), slice(start - first, end - first), slice(end - first, last - first)

    def _table(self, group: Group) -> Array:
        first, last = group.first, group.last + 1
        return self._kept.get(first, lambda: cooccurrence(self.structure, self.rows, first, last))


def groups_of(structure: Structure) -> list[Group]:
    """The trees between two changes of the residuals; in plain boosting every tree by itself."""
    if structure.coefficients is None:
        return [Group(t, t, [(t, float(rate))]) for t, rate in enumerate(structure.rates)]
    omega, beta = structure.coefficients.omega, structure.coefficients.beta
    groups, first = [], 0
    for t in range(structure.n_trees):
        step = omega[t + 1] - omega[t]
        changed = np.flatnonzero(step)
        if len(changed) or beta[t + 1] != beta[t] or t == structure.n_trees - 1:
            groups.append(Group(first, t, [(int(s), float(step[s])) for s in changed]))
            first = t + 1
    return groups


def shared_groups(structure: Structure) -> list[Group]:
    """Plain boosting in groups of at most `SHARED_TREES` trees and `SHARED_LEAVES` leaves."""
    bounds = [0]
    for t in range(1, structure.n_trees):
        leaves = structure.starts[t + 1] - structure.starts[bounds[-1]]
        many = leaves > SHARED_LEAVES or len(structure.draws) * leaves > SHARED_CELLS
        if t - bounds[-1] == SHARED_TREES or many:
            bounds.append(t)
    bounds.append(structure.n_trees)
    spans = [range(a, b) for a, b in pairwise(bounds)]
    return [Group(s[0], s[-1], [(t, float(structure.rates[t])) for t in s], in_turn=True) for s in spans]

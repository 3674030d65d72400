"""The weight matrix K as an operator: K v, K'u and single rows of K.

With w the row weights, W their sum, A_t the leaf membership of tree t, P_t the map from its leaf sums to its leaf values
and eta_t its rate, boosting is

    base = sum_j w_j y_j / W  (or a constant),   r = y - base - offsets
    t = 1..T:  v_t = P_t A_t' (w r),   r = r - eta_t A_t v_t
    F(x) = base + offset(x) + sum_t eta_t v_t[leaf_t(x)]

`forward` runs this with any vector in place of y. The transpose runs the trees backwards; for the prediction at x

    p = 0;   t = T..1:  phi_t = eta_t P_t' (e[leaf_t(x)] - A_t' p),   p_j = p_j + w_j phi_t[leaf_t(j)]
    beta = 1 - sum_j p_j
    base estimated:  weights k_j = p_j + beta w_j / W,   intercept = -p'offsets
    base constant:   weights k_j = p_j,                  intercept = beta base - p'offsets

phi are the adjoints of the leaf sums, beta is that of the base. A sweep passes over the rows once per block of trees: the
block's leaf sums are gathered together, then each tree's are corrected for the block's trees that go before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import _core
from axil.leaf_space import LeafSpace
from axil.progress import track
from axil.structure import Structure

Array = NDArray[np.float64]
Leaves = NDArray[np.integer[Any]]

# Time per row, tree and query of a sweep, and of the other engine's steps on the same scale; see benchmarks/.
SWEEP_COST = 1.0
PAIR_COST = 0.7  # per row and pair of trees, to prepare leaf space
READ_COST = 0.15  # per row, tree and query, once it is prepared
SOLVE_COST = 0.3  # per pair of leaves and query

# Trees share a pass where the rows' state outgrows the caches and the trees' joint co-occurrence stays small.
CACHED_BYTES = 8 << 20
BLOCK_TREES = 5
BLOCK_LEAVES = 200


@dataclass(frozen=True)
class Adjoints:
    """What S predictions ask of the leaf sums and of the base."""

    phi: Array  #: (L, S)
    beta: Array  #: (S,)


class Operators:
    """K and its transpose for one structure, matrix-free."""

    def __init__(self, structure: Structure, n_threads: int):
        self.structure = structure
        self.n_threads = n_threads
        self.leaf_space: LeafSpace | None = None
        self._shared = share_passes(structure.n_leaves)
        self._tables: dict[int, Array] = {}  # first tree of a block -> co-occurrence within the block
        offsets, weights = structure.offsets, structure.row_weights
        self._offset_sums = None if offsets is None else self.leaf_sums(offsets[:, None], weights)[:, 0]

    def leaf_sums(self, v: Array, row_weights: Array | None) -> Array:
        """``sums[l] = sum over rows j in leaf l of w_j v_j`` for all leaves of all trees: (N, S) -> (L, S)."""
        s = self.structure
        sums = np.empty((s.total_leaves, v.shape[1]))
        self._pass(np.array(v, order="C"), [], sums, None, range(s.n_trees), sums, row_weights)
        return sums

    def forward(self, v: Array) -> tuple[Array, Array, Array]:
        """K v for (N, S) vectors: fitted values (N, S), what each leaf adds (L, S) and the base (S,).

        Only the linear map: a constant base and offsets take no part. Cost O(T N S).
        """
        s = self.structure
        base = self._mean(v) if s.base is None else np.zeros(v.shape[1])
        residual = np.array(v - base, order="C")
        minus = np.zeros((s.total_leaves, v.shape[1]))  # what each leaf takes off the residuals
        sums = np.empty_like(minus)
        done: list[int] = []
        for block in track(self._blocks(v.shape[1]), "forward"):
            self._pass(residual, done, minus, None, block, sums, s.row_weights)
            for t in block:
                own = sums[s.starts[t] : s.starts[t + 1]]
                before, here, _ = self._within(block, t)
                if t > block[0]:
                    own += self._table(block)[before, here].T @ minus[s.starts[block[0]] : s.starts[t]]
                minus[s.starts[t] : s.starts[t + 1]] = -s.rates[t] * s.leaf_values(t, own)
            done = block
        self._pass(residual, done, minus, None, [], sums, None)
        return v - residual, -minus, base

    def backward(self, u: Array) -> Array:
        """K'u for (N, S) vectors, in O(T N S)."""
        p = np.array(-u, order="C")
        self._sweep(p, None, u.sum(axis=0))
        p += u
        return p

    def weights(self, queries: Leaves) -> tuple[Array, Adjoints]:
        """(n, N) weights of the predictions in these leaves, (n, T), and their adjoints. Cost O(T N) a query."""
        out = np.zeros((self.structure.n_rows, len(queries)))
        if self.leaf_space is None:
            return out.T, self._sweep(out, queries, np.ones(len(queries)))
        adjoints = self.adjoints(queries)
        self.read_out(adjoints, 0, out)
        return out.T, adjoints

    def adjoints(self, queries: Leaves) -> Adjoints:
        """The adjoints of these predictions from leaf space alone, without a pass over the rows. Cost O(L^2) a query."""
        self.prepare()
        assert self.leaf_space is not None
        phi = self.leaf_space.adjoints(queries)
        return Adjoints(phi, 1.0 - self.structure.leaf_weights @ phi)

    def read_out(self, adjoints: Adjoints, first: int, out: Array) -> None:
        """Fill ``out`` (rows, S) with the weights of the training rows from ``first`` on. Cost O(T) a row and query."""
        s = self.structure
        constant = adjoints.beta * self._mean_weight
        _core.read_out(s.leaves, s.starts, adjoints.phi, constant, s.row_weights, first, out, self.n_threads)

    def intercepts(self, adjoints: Adjoints) -> Array:
        """(S,): the part of each prediction that no target makes, the query's own offset aside."""
        constant = (self.structure.base or 0.0) * adjoints.beta
        return constant if self._offset_sums is None else constant - self._offset_sums @ adjoints.phi

    def prepare(self) -> None:
        """Build leaf space, in O(T^2 N)."""
        if self.leaf_space is None:
            self.leaf_space = LeafSpace.build(self.structure, self.n_threads)

    def prepare_pays(self, n_queries: int) -> bool:
        """Whether building leaf space and asking it takes less time than sweeping for this many queries."""
        s = self.structure
        sweep = SWEEP_COST * n_queries * s.n_trees * s.n_rows
        build = PAIR_COST * s.n_rows * s.n_trees * (s.n_trees - 1) / 2
        ask = n_queries * (READ_COST * s.n_trees * s.n_rows + SOLVE_COST * s.total_leaves**2)
        return build + ask < sweep

    @property
    def _mean_weight(self) -> float:
        """What the base, where it is the mean, gives a target of row weight one."""
        return 1.0 / self.structure.total_weight if self.structure.base is None else 0.0

    def _mean(self, v: Array) -> Array:
        s = self.structure
        return np.asarray(v.mean(axis=0) if s.row_weights is None else s.row_weights @ v / s.total_weight)

    def _sweep(self, p: Array, queries: Leaves | None, beta: Array) -> Adjoints:
        """Run the trees backwards from the state p (N, S), which ends as the weights; see the module's formulas."""
        s = self.structure
        phi = np.zeros((s.total_leaves, p.shape[1]))
        sums = np.empty_like(phi)
        done: list[int] = []
        for block in track(self._blocks(p.shape[1])[::-1], "weights"):
            self._pass(p, done, phi, s.row_weights, block, sums, None)
            for t in reversed(block):
                adjoint = -sums[s.starts[t] : s.starts[t + 1]]
                _, here, after = self._within(block, t)
                if t < block[-1]:
                    adjoint -= self._table(block)[here, after] @ phi[s.starts[t + 1] : s.starts[block[-1] + 1]]
                if queries is not None:
                    adjoint[queries[:, t], np.arange(len(queries))] += 1.0
                phi[s.starts[t] : s.starts[t + 1]] = s.rates[t] * s.leaf_values_transpose(t, adjoint)
            done = block
        beta = beta - s.leaf_weights @ phi
        last = phi.copy()
        last[: s.starts[1]] += beta * self._mean_weight  # the base rides on the first tree's pass
        self._pass(p, done, last, s.row_weights, [], sums, None)
        return Adjoints(phi, beta)

    def _pass(
        self,
        state: Array,
        apply: list[int],
        table: Array,
        apply_weights: Array | None,
        gather: list[int] | range,
        sums: Array,
        gather_weights: Array | None,
    ) -> None:
        trees, wanted = np.array(apply, dtype=np.int64), np.array(gather, dtype=np.int64)
        leaves, starts = self.structure.leaves, self.structure.starts
        _core.sweep(leaves, starts, state, trees, table, apply_weights, wanted, sums, gather_weights, self.n_threads)

    def _blocks(self, n_columns: int) -> list[list[int]]:
        shared = self.structure.n_rows * n_columns * 8 > CACHED_BYTES
        return self._shared if shared else [[t] for t in range(self.structure.n_trees)]

    def _within(self, block: list[int], t: int) -> tuple[slice, slice, slice]:
        """Where the leaves of the block's trees before t, of t and after t stand in the block's own table."""
        first, start, end, last = self.structure.starts[[block[0], t, t + 1, block[-1] + 1]]
        return slice(0, start - first), slice(start - first, end - first), slice(end - first, last - first)

    def _table(self, block: list[int]) -> Array:
        if block[0] not in self._tables:
            s = self.structure
            part = slice(block[0], block[-1] + 1)
            starts = s.starts[block[0] : block[-1] + 2] - s.starts[block[0]]
            table = np.empty((starts[-1], starts[-1]))
            _core.cooccurrence(s.leaves[part], starts, s.row_weights, table, self.n_threads)
            self._tables[block[0]] = table
        return self._tables[block[0]]


def share_passes(n_leaves: NDArray[np.int64]) -> list[list[int]]:
    """Consecutive trees in blocks of at most `BLOCK_TREES` trees and `BLOCK_LEAVES` leaves."""
    blocks: list[list[int]] = []
    room = 0
    for t, n in enumerate(n_leaves):
        if not blocks or len(blocks[-1]) == BLOCK_TREES or n > room:
            blocks.append([])
            room = BLOCK_LEAVES
        blocks[-1].append(t)
        room -= int(n)
    return blocks

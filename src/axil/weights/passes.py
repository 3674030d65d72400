"""Passes over the training rows that run boosting forwards, as it was fitted, and backwards, as its transpose; see `boosting`.

Trees fitted between two changes of the residuals form a group and share a pass. In plain boosting a
group may hold several trees too: each tree's sums are then corrected for the group's other trees
through their co-occurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.kernels import Rows
from axil.machine.progress import track
from axil.machine.threads import Cache, one_blas_thread
from axil.structure import Structure
from axil.weights.leaf_matrix import cooccurrence

# Trees share a pass: counting their co-occurrence once costs less than the passes it avoids, two of
# them or one of a few columns.
SHARED_TREES = 4
SHARED_CELLS = 2048  # their co-occurrence is counted by cells: 32 MiB
LARGE_LEAVES = (
    768  # of larger trees that share a pass: tables of 16 columns stay in the second-level cache
)
EXACT_SINGLE = 1 << 24  # up to which single precision holds every count


@dataclass(frozen=True)
class TreeGroup:
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

    phi: Any  #: (L, S), an array of the back end
    beta: Any  #: (S,)


class Passes:
    """Boosting over the training rows of one structure. What it keeps is published whole: any number of threads may run it."""

    def __init__(self, structure: Structure, rows: Rows, once: bool = False):
        """``once``: they run once, for a column or two, which does not pay for counting what trees have in common."""
        self.structure = structure
        self.rows = rows
        shared = structure.coefficients is None and not once
        if shared:
            self.groups = shared_groups(structure, rows)
        else:
            self.groups = groups_of(structure)
        # by the first tree of a group: for each of its trees the co-occurrence with those after it
        self._kept = Cache()
        self._plain = len(structure.sample_counts) == 1  # cells are leaves
        self._rates = rows.xp.asarray(
            np.repeat(structure.learning_rates, structure.n_leaves)[:, None]
        )
        self._scale = rows.xp.asarray(structure.linear_leaves.scale[:, None])

    @one_blas_thread()
    def forward(
        self, v: FloatArray, base: FloatArray, leaf_values: Callable[[int, Any], Any] | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Runs boosting on v (N, S) from base (S,), by default without constants. Cost O(T N S).

            r = v - beta[0] base;   t = 1..T:  S_t = A_t' (w B_t r),   v_t = P_t S_t,   r = r - eta_t A_t v_t

        ``leaf_values`` gives v_t for a tree's number and its sums, in place of P_t. Returns the last residuals, (N, S), the leaf
        values and the leaf sums, (L, S).
        """
        s = self.structure
        xp = self.rows.xp
        base = xp.asarray(base)
        value_of = leaf_values or s.leaf_values
        residual = xp.ascontiguousarray(xp.asarray(v) - s.beta[0] * base)
        values, of_leaves = xp.zeros((2, s.total_leaves, v.shape[1]))
        table = xp.zeros((int(s.cell_starts[-1]), v.shape[1]))
        sums = xp.empty_like(table)
        done: list[int] = []
        for group in track(self.groups, "forward"):
            self._pass(residual, done, table, None, list(group.trees), sums, s.row_weights)
            for t in group.trees:
                own = s.to_leaves(t, self._cells_of(sums, t), drawn=True)
                leaves = slice(s.starts[t], s.starts[t + 1])
                if group.in_turn:
                    for before in range(group.first, t):
                        shared = self._table(group)[before - group.first]
                        here = slice(
                            leaves.start - s.starts[before + 1], leaves.stop - s.starts[before + 1]
                        )
                        taken = values[s.starts[before] : s.starts[before + 1]] * float(
                            s.learning_rates[before]
                        )
                        own = own - shared[:, here].T.astype(np.float64, copy=False) @ taken
                of_leaves[leaves], values[leaves] = own, value_of(t, own)
            for t, coefficient in group.changes:
                taken = -coefficient * values[s.starts[t] : s.starts[t + 1]]
                self._cells_of(table, t)[...] = s.to_cells(t, taken, drawn=False)
            done = [t for t, _ in group.changes]
            if s.beta[group.last + 1] != s.beta[group.last]:
                residual -= float(s.beta[group.last + 1] - s.beta[group.last]) * base
        self._pass(residual, done, table, None, [], sums, None)
        return residual, values, of_leaves

    @one_blas_thread()
    def backward(
        self, p: FloatArray, alpha: FloatArray, beta: FloatArray, seeds: FloatArray | None = None
    ) -> Adjoints:
        """Runs the trees backwards from the state p (N, S), which ends as the weights; alpha is overwritten. Cost O(T N S).

            t = T..1:  phi_t = P_t' (alpha_t - eta_t A_t' p) + seeds_t,   p_j = p_j + w_j B_tj phi_t[leaf_t(j)]

        with alpha (L, S) the adjoints of the leaf values, beta (S,) how often the base counts, and
        seeds (L, S) adjoints of the leaf sums besides those that the values give them.
        """
        s, xp = self.structure, self.rows.xp
        # Where cells are leaves, a tree's adjoints take the place of its sums, which are done with
        # by then.
        phi = xp.zeros_like(alpha)
        sums = phi if self._plain else xp.empty((int(s.cell_starts[-1]), p.shape[1]))
        table = phi if self._plain else xp.zeros_like(sums)
        done: list[int] = []
        for group in track(self.groups[::-1], "weights"):
            self._pass(p, done, table, s.row_weights, [t for t, _ in group.changes], sums, None)
            if self._plain and group.in_turn:
                own = slice(int(s.starts[group.first]), int(s.starts[group.last + 1]))
                asked = alpha[own]
                asked -= self._rates[own] * sums[own]
            else:
                for t, coefficient in group.changes:
                    gathered = s.to_leaves(t, self._cells_of(sums, t), drawn=False)
                    asked = alpha[int(s.starts[t]) : int(s.starts[t + 1])]
                    asked -= coefficient * gathered
            for t in reversed(group.trees):
                own = slice(int(s.starts[t]), int(s.starts[t + 1]))
                asked, found = alpha[own], phi[own]
                if group.in_turn and t < group.last:
                    shared = self._table(group)[t - group.first].astype(np.float64, copy=False)
                    taken = self.rows.product(shared, phi[own.stop : int(s.starts[group.last + 1])])
                    taken *= float(s.learning_rates[t])
                    asked -= taken
                if s.linear_leaves.mixing is None:
                    xp.multiply(self._scale[own], asked, out=found)
                else:
                    found[...] = s.leaf_values_transpose(t, asked)
                if seeds is not None:
                    found += seeds[own]
                if not self._plain:
                    self._cells_of(table, t)[...] = s.to_cells(t, found, drawn=True)
            done = list(group.trees)
        beta = (
            float(s.beta[-1]) * beta
            - self.rows.product(xp.asarray(s.initial_in_sums)[None], phi)[0]
        )
        first = self._cells_of(table, done[0])
        kept = first.copy()
        first[...] += beta * s.mean_weight  # the base rides on the first tree's pass
        self._pass(p, done, table, s.row_weights, [], sums, None)
        first[...] = kept
        return Adjoints(phi, beta)

    def _cells_of(self, table: FloatArray, t: int) -> FloatArray:
        starts = self.structure.starts
        draws = len(self.structure.sample_counts)
        return table[draws * int(starts[t]) : draws * int(starts[t + 1])]

    def _pass(
        self,
        state: FloatArray,
        apply: list[int],
        table: FloatArray,
        apply_weights: FloatArray | None,
        gather: list[int],
        sums: FloatArray,
        gather_weights: FloatArray | None,
    ) -> None:
        """One pass over the rows; all tables are by cells."""
        trees = np.array(apply, dtype=np.int64)
        wanted = np.array(gather, dtype=np.int64)
        self.rows.sweep(state, trees, table, apply_weights, wanted, sums, gather_weights)

    def _table(self, group: TreeGroup) -> list[FloatArray]:
        """For each of the group's trees but the last the co-occurrence of its leaves with those of the trees after it."""
        return self._kept.get(group.first, lambda: self._count(group))

    def _count(self, group: TreeGroup) -> list[FloatArray]:
        s = self.structure
        dtype = _table_type(self.structure)
        together = cooccurrence(s, self.rows, group.first, group.last + 1)
        starts = [
            int(start - s.starts[group.first]) for start in s.starts[group.first : group.last + 2]
        ]
        return [together[a:b, b:].astype(dtype, order="C") for a, b in pairwise(starts[:-1])]


def leaf_sums(structure: Structure, rows: Rows, v: FloatArray) -> FloatArray:
    """(L, S): ``sums[l] = sum over rows j in leaf l of w_j draw_j v_j`` for all leaves of all trees, from v (N, S)."""
    return structure.by_leaves(rows.leaf_sums(v, rows.weights), drawn=True)  # type: ignore[no-any-return]


def groups_of(structure: Structure) -> list[TreeGroup]:
    """The trees between two changes of the residuals; in plain boosting every tree by itself."""
    if structure.coefficients is None:
        return [
            TreeGroup(t, t, [(t, float(rate))]) for t, rate in enumerate(structure.learning_rates)
        ]
    omega = structure.coefficients.omega
    beta = structure.coefficients.beta
    groups = []
    first = 0
    for t in range(structure.n_trees):
        step = omega[t + 1] - omega[t]
        changed = np.flatnonzero(step)
        if len(changed) or beta[t + 1] != beta[t] or t == structure.n_trees - 1:
            groups.append(TreeGroup(first, t, [(int(s), float(step[s])) for s in changed]))
            first = t + 1
    return groups


def shared_groups(structure: Structure, rows: Rows) -> list[TreeGroup]:
    """Plain boosting in groups of up to `SHARED_TREES` trees.

    Trees of `Rows.shared_leaves` leaves together share a pass. So do larger ones, as far as their
    co-occurrence takes no more than `Rows.shared_bytes` per row and tree.
    """
    bounds = [0]
    for t in range(1, structure.n_trees):
        first = bounds[-1]
        leaves = structure.n_leaves[first : t + 1].astype(np.int64)
        pairs = (int(leaves.sum()) ** 2 - int(np.square(leaves).sum())) // 2
        few = leaves.sum() <= rows.shared_leaves
        kept = _table_type(
            structure
        ).itemsize * pairs <= rows.shared_bytes * structure.n_rows * len(leaves)
        fits = few or (kept and leaves.sum() <= LARGE_LEAVES)
        if (
            t - first == SHARED_TREES
            or not fits
            or len(structure.sample_counts) * leaves.sum() > SHARED_CELLS
        ):
            bounds.append(t)
    bounds.append(structure.n_trees)
    spans = [range(a, b) for a, b in pairwise(bounds)]
    return [
        TreeGroup(s[0], s[-1], [(t, float(structure.learning_rates[t])) for t in s], in_turn=True)
        for s in spans
    ]


def _table_type(structure: Structure) -> np.dtype[Any]:
    """Single precision where co-occurrences are counts of rows, which it holds exactly."""
    counts = (
        structure.row_weights is None
        and len(structure.sample_counts) == 1
        and structure.n_rows <= EXACT_SINGLE
    )
    return np.dtype(np.float32 if counts else np.float64)

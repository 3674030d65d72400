"""Passes over the training rows: boosting forwards, as it was fitted, and backwards, transposed.

See `boosting`.

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
from axil.machine.arrays import AnyPlaceArray
from axil.machine.progress import track
from axil.machine.threads import Cache, one_blas_thread
from axil.structure import Structure
from axil.weights.leaf_matrix import cooccurrence

# Trees share a pass: counting their co-occurrence once costs less than the passes it avoids, two of
# them or one of a few columns.
SHARED_TREES = 4
SHARED_CELLS = 2048  # their co-occurrence is counted by cells: 32 MiB
# of larger trees that share a pass: tables of 16 columns stay in the second-level cache
LARGE_LEAVES = 768
EXACT_SINGLE = 1 << 24  # up to which single precision holds every count


@dataclass(frozen=True)
class TreeGroup:
    """Consecutive trees that share a pass over the rows, with the residuals' change after them."""

    first: int
    last: int
    changes: list[tuple[int, float]]  #: tree and coefficient, which residuals lose
    in_turn: bool = False  #: whether the trees were nevertheless fitted one after the other

    @property
    def trees(self) -> range:
        """The numbers of the trees."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Adjoints:
    """The derivatives of S predictions by the leaf sums and by the initial prediction."""

    phi: AnyPlaceArray  #: (L, S), an array of the back end
    beta: AnyPlaceArray  #: (S,)


class Passes:
    """Boosting over the training rows of one structure.

    Cached values are published whole, so any number of threads may run it.
    """

    def __init__(self, structure: Structure, rows: Rows, once: bool = False):
        """Group the trees.

        With ``once``, they run once, for a column or two, which does not pay for counting what
        trees have in common.
        """
        self.structure = structure
        self.rows = rows
        if structure.coefficients is None and not once:
            self.groups = shared_groups(structure, rows)
        else:
            self.groups = groups_of(structure)
        # by the first tree of a group: for each of its trees the co-occurrence with those after it
        self._tables = Cache()
        self._cells_are_leaves = len(structure.sample_counts) == 1
        rates = np.repeat(structure.learning_rates, structure.n_leaves)
        self._rates = rows.xp.asarray(rates[:, None])
        self._scale = rows.xp.asarray(structure.linear_leaves.scale[:, None])

    @one_blas_thread()
    def forward(
        self,
        v: FloatArray,
        base: FloatArray,
        leaf_values: Callable[[int, AnyPlaceArray], AnyPlaceArray] | None = None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Run boosting on v (N, S) from base (S,). Cost O(T N S).

            r = v - beta[0] base;   t = 1..T:  S_t = A_t' (w B_t r),   v_t = P_t S_t,
                                               r = r - eta_t A_t v_t

        Parameters
        ----------
        v : array of shape (N, S)
        base : array of shape (S,)
            The initial prediction.
        leaf_values : callable, optional
            v_t from a tree's number and its leaf sums (L_t, S). Default: P_t, without constants.

        Returns
        -------
        residuals : array of shape (N, S)
            What the last tree leaves over.
        values, sums : arrays of shape (L, S)
            The leaf values before any learning rate, and the leaf sums.
        """
        s = self.structure
        xp = self.rows.xp
        base = xp.asarray(base)
        if leaf_values is None:
            leaf_values = s.leaf_values
        residual = xp.ascontiguousarray(xp.asarray(v) - s.beta[0] * base)
        values, sums = xp.zeros((2, s.total_leaves, v.shape[1]))
        table = xp.zeros((int(s.cell_starts[-1]), v.shape[1]))
        cell_sums = xp.empty_like(table)
        changed: list[int] = []
        for group in track(self.groups, "forward"):
            self._pass(residual, changed, table, None, list(group.trees), cell_sums, s.row_weights)
            for t in group.trees:
                tree_sums = s.to_leaves(t, self._cells_of(cell_sums, t), drawn=True)
                if group.in_turn:
                    tree_sums = self._less_earlier(group, t, tree_sums, values)
                leaves = s.leaves_of(t)
                sums[leaves] = tree_sums
                values[leaves] = leaf_values(t, tree_sums)
            for t, coefficient in group.changes:
                change = -coefficient * values[s.leaves_of(t)]
                self._cells_of(table, t)[...] = s.to_cells(t, change, drawn=False)
            changed = [t for t, _ in group.changes]
            if s.beta[group.last + 1] != s.beta[group.last]:
                residual -= float(s.beta[group.last + 1] - s.beta[group.last]) * base
        self._pass(residual, changed, table, None, [], cell_sums, None)
        return residual, values, sums

    def _less_earlier(
        self, group: TreeGroup, t: int, tree_sums: AnyPlaceArray, values: AnyPlaceArray
    ) -> AnyPlaceArray:
        """Return the leaf sums of tree t, (L_t, S), less those of earlier trees in its group."""
        s = self.structure
        leaves = s.leaves_of(t)
        for before in range(group.first, t):
            end = s.starts[before + 1]
            shared = self._table(group)[before - group.first]
            of_tree = shared[:, slice(leaves.start - end, leaves.stop - end)]
            steps = values[s.leaves_of(before)] * float(s.learning_rates[before])
            tree_sums = tree_sums - of_tree.T.astype(np.float64, copy=False) @ steps
        return tree_sums

    @one_blas_thread()
    def backward(
        self, p: FloatArray, alpha: FloatArray, beta: FloatArray, seeds: FloatArray | None = None
    ) -> Adjoints:
        """Run the trees backwards. Cost O(T N S).

            t = T..1:  phi_t = P_t' (alpha_t - eta_t A_t' p) + seeds_t,
                       p_j = p_j + w_j B_tj phi_t[leaf_t(j)]

        Parameters
        ----------
        p : array of shape (N, S)
            The state, which ends as the weights. Changed in place.
        alpha : array of shape (L, S)
            The adjoints of the leaf values. Overwritten.
        beta : array of shape (S,)
            How often the initial prediction counts.
        seeds : array of shape (L, S), optional
            Adjoints of the leaf sums besides those that the values give them.
        """
        s = self.structure
        xp = self.rows.xp
        phi = xp.zeros_like(alpha)
        if self._cells_are_leaves:
            # A tree's adjoints take the place of its sums, which are used up by then.
            sums = phi
            table = phi
        else:
            sums = xp.empty((int(s.cell_starts[-1]), p.shape[1]))
            table = xp.zeros_like(sums)
        applied: list[int] = []
        for group in track(self.groups[::-1], "weights"):
            gathered = [t for t, _ in group.changes]
            self._pass(p, applied, table, s.row_weights, gathered, sums, None)
            self._subtract_state(group, alpha, sums)
            for t in reversed(group.trees):
                self._fill_adjoints(group, t, alpha, phi, seeds)
                if not self._cells_are_leaves:
                    of_tree = phi[s.leaves_of(t)]
                    self._cells_of(table, t)[...] = s.to_cells(t, of_tree, drawn=True)
            applied = list(group.trees)
        initial_in_sums = xp.asarray(s.initial_in_sums)[None]
        beta = float(s.beta[-1]) * beta - self.rows.product(initial_in_sums, phi)[0]
        first = self._cells_of(table, applied[0])
        adjoints_of_first = first.copy()
        first[...] += beta * s.mean_weight  # the initial prediction rides on the first tree's pass
        self._pass(p, applied, table, s.row_weights, [], sums, None)
        first[...] = adjoints_of_first
        return Adjoints(phi, beta)

    def _subtract_state(self, group: TreeGroup, alpha: AnyPlaceArray, sums: AnyPlaceArray) -> None:
        """Subtract the gathered state of the rows from the adjoints of a group's leaf values."""
        s = self.structure
        if self._cells_are_leaves and group.in_turn:
            leaves = slice(int(s.starts[group.first]), int(s.starts[group.last + 1]))
            of_group = alpha[leaves]
            of_group -= self._rates[leaves] * sums[leaves]
            return
        for t, coefficient in group.changes:
            gathered = s.to_leaves(t, self._cells_of(sums, t), drawn=False)
            of_tree = alpha[s.leaves_of(t)]
            of_tree -= coefficient * gathered

    def _fill_adjoints(
        self,
        group: TreeGroup,
        t: int,
        alpha: AnyPlaceArray,
        phi: AnyPlaceArray,
        seeds: FloatArray | None,
    ) -> None:
        """Fill the adjoints of the leaf sums of tree t."""
        s = self.structure
        leaves = s.leaves_of(t)
        of_values = alpha[leaves]
        of_sums = phi[leaves]
        if group.in_turn and t < group.last:
            shared = self._table(group)[t - group.first].astype(np.float64, copy=False)
            later = phi[leaves.stop : int(s.starts[group.last + 1])]
            of_later = self.rows.product(shared, later)
            of_later *= float(s.learning_rates[t])
            of_values -= of_later
        if s.linear_leaves.mixing is None:
            self.rows.xp.multiply(self._scale[leaves], of_values, out=of_sums)
        else:
            of_sums[...] = s.leaf_values_transpose(t, of_values)
        if seeds is not None:
            of_sums += seeds[leaves]

    def _cells_of(self, table: AnyPlaceArray, t: int) -> AnyPlaceArray:
        """Return the part of a table by cells that tree t has."""
        starts = self.structure.cell_starts
        return table[int(starts[t]) : int(starts[t + 1])]

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
        """Run once over the rows; see `Rows.sweep`. All tables are by cells."""
        applied = np.array(apply, dtype=np.int64)
        gathered = np.array(gather, dtype=np.int64)
        self.rows.sweep(state, applied, table, apply_weights, gathered, sums, gather_weights)

    def _table(self, group: TreeGroup) -> list[FloatArray]:
        """Return the co-occurrence of each tree's leaves with those of later trees of a group."""
        return self._tables.get(group.first, lambda: self._count(group))

    def _count(self, group: TreeGroup) -> list[FloatArray]:
        """Compute `_table`."""
        s = self.structure
        dtype = _table_type(self.structure)
        together = cooccurrence(s, self.rows, group.first, group.last + 1)
        bounds = s.starts[group.first : group.last + 2] - s.starts[group.first]
        spans = pairwise(bounds[:-1].tolist())
        return [together[start:end, end:].astype(dtype, order="C") for start, end in spans]


def leaf_sums(structure: Structure, rows: Rows, v: FloatArray) -> FloatArray:
    """Return the leaf sums of v (N, S), (L, S).

    They are ``sums[l] = sum over rows j in leaf l of w_j * count_j * v_j`` of all leaves.
    """
    sums: FloatArray = structure.by_leaves(rows.leaf_sums(v, rows.weights), drawn=True)
    return sums


def groups_of(structure: Structure) -> list[TreeGroup]:
    """Return groups of trees between changes of the residuals.

    In plain boosting each group has one tree.
    """
    if structure.coefficients is None:
        rates = structure.learning_rates
        return [TreeGroup(t, t, [(t, float(rate))]) for t, rate in enumerate(rates)]
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
    """Return plain boosting in groups of up to `SHARED_TREES` trees.

    Trees of `Rows.shared_leaves` leaves together share a pass. So do larger ones, as far as their
    co-occurrence takes no more than `Rows.shared_bytes` per row and tree.
    """
    item_bytes = _table_type(structure).itemsize
    bounds = [0]
    for t in range(1, structure.n_trees):
        first = bounds[-1]
        sizes = structure.n_leaves[first : t + 1].astype(np.int64)
        n_leaves = int(sizes.sum())
        n_pairs = (n_leaves**2 - int(np.square(sizes).sum())) // 2
        most_bytes = rows.shared_bytes * structure.n_rows * len(sizes)
        fits_memory = item_bytes * n_pairs <= most_bytes and n_leaves <= LARGE_LEAVES
        fits = n_leaves <= rows.shared_leaves or fits_memory
        has_many_cells = len(structure.sample_counts) * n_leaves > SHARED_CELLS
        if t - first == SHARED_TREES or not fits or has_many_cells:
            bounds.append(t)
    bounds.append(structure.n_trees)
    groups = []
    for first, end in pairwise(bounds):
        changes = [(t, float(structure.learning_rates[t])) for t in range(first, end)]
        groups.append(TreeGroup(first, end - 1, changes, in_turn=True))
    return groups


def _table_type(structure: Structure) -> np.dtype[Any]:
    """Return single precision if co-occurrences are counts of rows, which it stores exactly."""
    has_counts = structure.row_weights is None and len(structure.sample_counts) == 1
    if has_counts and structure.n_rows <= EXACT_SINGLE:
        return np.dtype(np.float32)
    return np.dtype(np.float64)

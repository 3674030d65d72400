"""Forests: trees that do not see each other, kept as an inverted index from leaves to the rows that made them.

A prediction is ``sum_t c_t v_t[leaf_t(x)]`` with ``v_t[l] = leaf_scale[l] * sum over rows j in l of w_j draw_j y_j``, so the
weights of a query are the entries of the T leaves it meets, added up: their cost is the size of these leaves, not T * N.

Without some rows a leaf may be empty. Its tree then says nothing of a query there, and the mean is over the other trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.kernels.cpu import Cpu, leaf_rows
from axil.structure import Regularisation, Structure
from axil.types import Array, Leaves
from axil.weights import ranks_left, removal
from axil.weights.answers import Answer, KnownAnswer, KnownEffects, RowEffects, dense
from axil.weights.engine import Memory, Seconds, TreeEngine, own_leaves
from axil.weights.leaf_space import shares
from axil.weights.left_out import LeftOut
from axil.weights.new_targets import with_targets
from axil.weights.residuals import over_the_rest
from axil.weights.rows_left import known_regularisation, without

FOREST_SECONDS = 5e-9  # per row, tree and column, or row and pair of trees


def is_forest(structure: Structure) -> bool:
    """Whether no tree sees another, nor a base or offsets: leaves hold means of the targets themselves, whatever these are."""
    c, base = structure.coefficients, structure.base
    if structure.regularisation is not None and structure.regularisation.bends:
        return False
    if c is None or base is None or structure.offsets is not None or structure.mixing or structure.shift is not None:
        return False
    if structure.regularisation is not None and structure.regularisation.by_weight:
        return False  # a row's deletion would change every leaf
    return not c.omega[:-1].any() and (not base.any() or not c.beta[:-1].any())


class Forest(TreeEngine):
    """K of a forest as a product of two sparse matrices; 12 bytes for each row that each tree was fitted on."""

    is_sparse = True

    def __init__(self, structure: Structure):
        self.structure = s = structure
        self.rows = Cpu(1).rows_of(s)
        self._final = np.repeat(s.final, s.n_leaves)
        factors = s.leaf_scale * self._final
        draws = s.draws if s.is_ranked else s.draws[:, None]
        data, rows, ends = leaf_rows(s.cells, s.starts, draws, s.row_weights, factors)
        ends = ends.astype(np.int32) if len(data) <= np.iinfo(np.int32).max else ends  # else rows become as wide
        self._rows_of_leaves = csr_array((data, rows, ends), shape=(s.total_leaves, s.n_rows))

    # -- the contract ---------------------------------------------------------------------------------------------------

    def ask(self, queries: Leaves | None, base: float = 1.0) -> Answer:
        weights = csr_array(self._met(queries) @ self._rows_of_leaves)
        return KnownAnswer(weights, np.tile(base * self._constant, (weights.shape[0], 1)))

    def apply(self, queries: Leaves | None, v: Array, base: float = 1.0) -> Array:
        s, table = self.structure, np.asarray(self._rows_of_leaves @ v)
        if queries is not None or s.emptied is not None:
            return np.asarray(self._met(queries) @ table)
        columns = np.ascontiguousarray(table.reshape(len(table), -1))
        out = np.empty((s.n_rows, columns.shape[1]))
        Cpu(1).rows(s.leaves(), s.starts).read_out(columns, np.zeros(columns.shape[1]), None, 0, out)
        return out.reshape(s.n_rows, *table.shape[1:])

    def combine(self, queries: Leaves | None, u: Any, base: float = 1.0) -> Array:
        return dense(self._rows_of_leaves.T @ (self._met(queries).T @ u))

    def mixed(self, queries: Leaves | None, u: Any, base: float = 1.0) -> Answer:
        counted = np.asarray(u.sum(axis=0)).ravel()
        return KnownAnswer(self.combine(queries, u).T, np.outer(counted, base * self._constant))

    def predicted(self, queries: Leaves | None, targets: Array) -> Array:
        return self.apply(queries, targets) + self._constant

    def leverage(self, available: int) -> Array:
        """A row meets no other leaves than its own: ``K[j, j] = sum_t`` of its entries there."""
        return np.asarray(self._rows_of_leaves.sum(axis=0)).ravel()

    def squares(self, available: int) -> float:
        """Tree by tree over the pairs of leaves that share rows: O(T^2 N)."""
        R, members, total = self._rows_of_leaves, csr_array(self._train.T), 0.0
        others = csr_array(R.T)
        for a, b in pairwise(self.structure.starts):
            total += float((members[a:b] @ self._train).multiply(R[a:b] @ others).sum())
        return total

    def costs(self, available: int) -> Seconds:
        column = FOREST_SECONDS * self.structure.n_rows * self.structure.n_trees
        return Seconds(column, column * self.structure.n_trees, column, column, np.inf)

    def removal(self, queries: Leaves | None, targets: Array) -> Sequence[RowEffects]:
        """``-weight * (y_j - level[l] v[l])`` over the leaves l met; see `removal`."""
        R, level = self._rows_of_leaves, removal.levels(self.structure)[0]
        met, found = self._met(queries), []
        for y, values in zip(targets.T, self._leaf_values(targets).T):
            at = np.repeat(level * values, np.diff(R.indptr))
            effects = csr_array((R.data * (at - y[R.indices]), R.indices, R.indptr), shape=R.shape)
            found.append(KnownEffects(csr_array(met @ effects)))
        return found

    def deletion(self, queries: Leaves | None, targets: Array, available: int) -> Sequence[RowEffects]:
        """No tree sees another, so a row's deletion changes its own leaves alone: see `_changes`.

        nan where no tree has another row in the query's leaf.
        """
        s, R, met = self.structure, self._rows_of_leaves, self._met(queries)
        before = np.asarray(met @ (R @ targets))
        leaves, rows, changes, last = self._changes(targets)
        leaf = leaves[last]
        lost = csr_array(met @ csr_array((self._final[leaf], (leaf, rows[last])), R.shape))
        query, row = lost.nonzero()
        without = np.asarray(lost[query, row])
        found = []
        for own, change in zip(before.T, changes.T):
            effects = csr_array(met @ csr_array((change, (leaves, rows)), shape=R.shape))
            if len(query):
                at = own[query]
                made = at + np.asarray(effects[query, row])
                over = over_the_rest(s, made, without, np.zeros(1), np.zeros(1)) - made
                effects = csr_array(effects + csr_array((over, (query, row)), shape=effects.shape))
            found.append(KnownEffects(effects))
        return found

    def left_out(self, targets: Array, available: int) -> LeftOut:
        """A row meets no other leaves than its own, so its prediction changes by the sum of what they do."""
        s, (leaves, rows, found, last) = self.structure, self._changes(targets)
        changes, lost = np.zeros((s.n_rows, targets.shape[1])), np.zeros((s.n_rows, 1))
        np.add.at(changes, rows, found)
        np.add.at(lost, rows, np.where(last, self._final[leaves], 0.0)[:, None])
        made = over_the_rest(s, self.predicted(None, targets) + changes, lost, np.zeros(1), np.zeros(1))
        return LeftOut(made, emptied=np.asarray(np.isnan(made).any(axis=1)))

    def _changes(self, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], Array, NDArray[np.bool_]]:
        """(entries,) twice the leaf and the row of an entry; (entries, K) the change of predictions in the leaf without the row.

        That is ``c_t (a' (S - w b y) - a S)``. And (entries,) whether no row is left in the leaf then: its value is gone.
        """
        s, rule = self.structure, known_regularisation(self.structure)
        if s.is_ranked:
            leaf, rows, after, last = ranks_left.without_each(s, targets)
            values = self._leaf_values(targets)[leaf, 0]
            return leaf, rows, (self._final[leaf] * (after - values))[:, None], last
        leaf, weight = self._entries
        left, before = removal.left_of(s.leaf_weights[leaf], weight), s.leaf_scale[leaf]
        scale = Regularisation(rule.l2[leaf], rule.steps[leaf]).scale(left)
        values = self._leaf_values(targets)[leaf]
        sums = np.divide(values, before[:, None], out=np.zeros_like(values), where=before[:, None] > 0)
        after = scale[:, None] * (sums - weight[:, None] * targets[self._rows_of_leaves.indices])
        after[left == 0] = 0.0
        changes = self._final[leaf][:, None] * (after - values)
        return leaf, self._rows_of_leaves.indices, np.asarray(changes), np.asarray(left == 0)

    @property
    def _entries(self) -> tuple[NDArray[np.intp], Array]:
        """(entries,) twice: the leaf of each entry of the index, and the weight of its row in the tree: weight * draw."""
        s, R = self.structure, self._rows_of_leaves
        leaf = np.repeat(np.arange(s.total_leaves), np.diff(R.indptr))
        tree = np.searchsorted(s.starts, leaf, side="right") - 1
        drawn = s.draws[(s.cells[tree, R.indices] // s.n_leaves[tree]).astype(np.intp)]
        return leaf, drawn if s.row_weights is None else drawn * s.row_weights[R.indices]

    def pushes(self, queries: Leaves | None, targets: Array) -> Sequence[RowEffects]:
        """No tree sees another: the residuals are the targets, and the pushes weights times targets."""
        weights = csr_array(self._met(queries) @ self._rows_of_leaves)
        return [KnownEffects(csr_array(weights.multiply(y))) for y in targets.T]

    def without(self, rows: NDArray[np.intp], targets: Array) -> Forest:
        return Forest(without(self.structure, rows, targets, Cpu(1)))

    def with_targets(self, targets: Array) -> Forest:
        structure = with_targets(self.structure, targets, Cpu(1))
        return self if structure is self.structure else Forest(structure)

    @property
    def memory(self) -> Memory:
        s = self.structure
        return Memory(24 * s.n_trees * -(-s.n_rows * s.n_trees // s.total_leaves), 0)

    def out_of_bag(self, rows: NDArray[np.intp]) -> tuple[KnownAnswer, NDArray[np.bool_]]:
        """The weights of training rows in the trees that were fitted without them, as if there were no others.

        And (n,) whether there is such a tree: if not, the row has no weights.
        """
        s, met = self.structure, self._train[rows]
        met.data = s.unseen(rows).T.ravel().astype(float)
        held = np.asarray(met @ self._final)
        share = np.divide(s.final.sum(), held, out=np.zeros_like(held), where=held != 0)
        weights = csr_array(met @ self._rows_of_leaves).multiply(share[:, None]).tocsr()
        return KnownAnswer(csr_array(weights), np.tile(self._constant, (len(rows), 1))), held != 0

    # -- the index ------------------------------------------------------------------------------------------------------

    @property
    def _constant(self) -> Array:
        """(K,): what the base puts into every prediction."""
        s = self.structure
        return np.asarray(s.beta[-1] * (np.zeros(1) if s.base is None else s.base))

    def _leaf_values(self, targets: Array) -> Array:
        """(L, K): the values of the leaves in a fit to targets (N, K), before the trees' coefficients; 0 where these are."""
        made, final = np.asarray(self._rows_of_leaves @ targets), self._final[:, None]
        return np.asarray(np.divide(made, final, out=np.zeros_like(made), where=final != 0))

    @cached_property
    def _train(self) -> csr_array:
        """(N, L): `_met` of the training rows."""
        return self._ones(self.structure.leaves().T)

    def _met(self, queries: Leaves | None) -> csr_array:
        """(n, L): one for each leaf that a query meets."""
        return self._train if queries is None else self._ones(own_leaves(self.structure, queries))

    def _ones(self, leaves: Leaves) -> csr_array:
        """(n, L): one at each of these leaves, (n, T); of trees that lost a leaf's rows zero there, and the more of others."""
        s, (n, n_trees) = self.structure, leaves.shape
        size = np.int32 if max(s.total_leaves, n * n_trees) < 1 << 31 else np.int64
        met = leaves.astype(size, order="C") + s.starts[:-1].astype(size)
        ends = np.arange(0, n * n_trees + 1, n_trees, dtype=size)
        ones = np.ones((n, n_trees))
        if s.emptied is not None:  # the index has the coefficients
            ones = np.divide(shares(s, met), s.final, out=np.zeros_like(ones), where=s.final != 0)
        return csr_array((ones.ravel(), met.ravel(), ends), shape=(n, s.total_leaves))

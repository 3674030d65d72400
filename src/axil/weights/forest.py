"""Forests: trees that do not see each other, as an inverted index from leaves to their rows.

A prediction is ``sum_t c_t v_t[leaf_t(x)]`` with ``v_t[l] = leaf_scale[l] * sum over rows j in l of
w_j count_j y_j``, so the weights of an explained row are the entries of the T leaves it meets,
added up: their cost is the size of these leaves, not T * N.

Without some rows a leaf may be empty. It then has the value of its nearest ancestor that still has
rows (`inherited`): an inner node, which has a row of the index of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray
from axil.kernels.choose import host_backend
from axil.kernels.cpu import leaf_rows
from axil.structure import NewtonRule, Structure
from axil.structure.ancestors import NO_NODE
from axil.structure.nodes import Ids
from axil.weights import percentile_rule, removal
from axil.weights.answers import Answer, KnownAnswer, KnownEffects, RowEffects, dense
from axil.weights.engine import Memory, Seconds, TreeEngine, own_leaves
from axil.weights.fit_rules import rule_of
from axil.weights.inherited import ancestors_of, l2_of
from axil.weights.left_out import LeftOut
from axil.weights.parts import remaining_weight
from axil.weights.residuals import FittedValues
from axil.weights.sum_rule import lighter, rescaled

FOREST_SECONDS = 5e-9  # per row, tree and column, or row and pair of trees


def is_forest(structure: Structure) -> bool:
    """Return whether trees are independent of each other, of an initial prediction and of offsets.

    Leaves then hold means of the targets themselves, whatever these are.
    """
    coefficients = structure.coefficients
    initial = structure.initial
    rule = structure.leaf_rule
    if rule is not None and (rule.newton.has_active_set or rule.newton.by_weight):
        return False  # without a row every leaf would change where l2 follows the weights
    if (
        coefficients is None
        or initial is None
        or structure.offsets is not None
        or structure.linear_leaves.mixing
        or structure.linear_leaves.shift is not None
    ):
        return False
    sees_initial = initial.any() and coefficients.beta[:-1].any()
    return structure.averages and not coefficients.omega[:-1].any() and not sees_initial


class Forest(TreeEngine):
    """K of a forest as a product of two sparse matrices.

    It takes 12 bytes for each row that each tree was fitted on.

    Parameters
    ----------
    structure : Structure
    picked : sparse array of shape (L, N), optional
        The shares of the rows that leaves without rows take their values from, if these are
        percentiles.
    """

    is_sparse = True
    moves_other_residuals = False

    def __init__(self, structure: Structure, picked: csr_array | None = None):
        s = structure
        self.structure = structure
        self.backend = host_backend(1)
        self.rows = self.backend.rows_of(s)
        self._final = np.repeat(s.final, s.n_leaves)
        factors = s.linear_leaves.scale * self._final
        if s.counts_by_leaf:
            draws = s.sample_counts
        else:
            draws = s.sample_counts[:, None]
        data, rows, ends = leaf_rows(s.cells, s.starts, draws, s.row_weights, factors)
        if len(data) <= np.iinfo(np.int32).max:
            ends = ends.astype(np.int32)  # else row numbers become as wide
        index = csr_array((data, rows, ends), shape=(s.total_leaves, s.n_rows))
        self._scale = s.linear_leaves.scale
        # the node of the trees that each row of the index has; -1: a tree without rows
        self._node = np.arange(s.total_leaves)
        # the row of the index that each leaf has the value of; None: its own
        self._place: Ids | None = None
        if picked is not None:
            index = csr_array(index + csr_array(picked * self._final[:, None]))
        elif s.leaf_rule is not None and s.leaf_rule.emptied is not None:
            index = self._with_ancestors(index, np.flatnonzero(s.leaf_rule.emptied))
        self._rows_of_leaves = index

    def _with_ancestors(self, index: csr_array, emptied: Ids) -> csr_array:
        """Return the index with a row for each ancestor whose value leaves without rows have."""
        s = self.structure
        ancestors = ancestors_of(self.structure)
        weights = ancestors.totals(s.leaf_weights)
        nodes = ancestors.nearest(emptied, weights > 0)
        trees = np.searchsorted(s.starts, emptied, side="right") - 1
        keys = np.where(nodes == NO_NODE, -1 - trees, nodes)  # a row for each tree without rows
        keys, place = np.unique(keys, return_inverse=True)
        lost = keys[keys < 0]
        node_keys = keys[keys >= 0]

        filled = np.flatnonzero(s.leaf_weights > 0)
        scale = 1.0 / (weights[node_keys] + l2_of(s, ancestors, node_keys))
        below = csr_array(ancestors.below(node_keys, filled, s.total_leaves) * scale[:, None])
        unscaled = np.divide(
            1.0,
            s.linear_leaves.scale,
            out=np.zeros_like(s.linear_leaves.scale),
            where=s.linear_leaves.scale > 0,
        )
        of_nodes = csr_array(below * unscaled) @ index
        final = self._final[s.starts[-1 - lost]]
        of_trees = np.outer(final, self._all_rows)

        tree_of_node = np.empty(len(keys), dtype=np.int64)
        tree_of_node[place] = trees
        self._place = np.arange(s.total_leaves)
        self._place[emptied] = s.total_leaves + place
        self._final = np.append(self._final, s.final[tree_of_node])
        self._node = np.concatenate([self._node, np.full(len(lost), NO_NODE), node_keys])
        self._scale = np.concatenate(
            [s.linear_leaves.scale, np.ones(len(lost)) / self._total, scale]
        )
        return csr_array(vstack([index, csr_array(of_trees), of_nodes]))

    @property
    def _row_weights(self) -> FloatArray:
        """The weight of each row in a tree that samples it once, (N,)."""
        s = self.structure
        if s.row_weights is None:
            return np.ones(s.n_rows)
        return s.row_weights

    @property
    def _total(self) -> float:
        """The weight of all rows."""
        return float(self._row_weights.sum())

    @property
    def _all_rows(self) -> FloatArray:
        """The weight of each row in the mean of all rows, (N,).

        A tree without rows predicts this mean.
        """
        return np.asarray(self._row_weights / self._total)

    # -- the contract ------------------------------------------------------------------------------

    def weight_rows(self, queries: LeafArray | None, base: float = 1.0) -> Answer:
        """Return the weights of explained rows and the constants of their predictions."""
        weights = csr_array(self._met(queries) @ self._rows_of_leaves)
        return KnownAnswer(weights, np.tile(base * self._constant, (weights.shape[0], 1)))

    def matvec(self, queries: LeafArray | None, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_j k_j(x) v_j``, (n, S), for vectors (N, S)."""
        s = self.structure
        table = np.asarray(self._rows_of_leaves @ v)
        if queries is not None:
            return np.asarray(self._met(queries) @ table)
        if self._place is not None:
            table = table[self._place]
        columns = np.ascontiguousarray(table.reshape(len(table), -1))
        out = np.empty((s.n_rows, columns.shape[1]))
        host_backend(1).rows(s.leaves(), s.starts).read_out(
            columns, np.zeros(columns.shape[1]), None, 0, out
        )
        return out.reshape(s.n_rows, *table.shape[1:])

    def rmatvec(self, queries: LeafArray | None, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_x k_j(x) u_x``, (N, S), for vectors (n, S)."""
        return dense(self._rows_of_leaves.T @ (self._met(queries).T @ u))

    def row_sum(self, queries: LeafArray | None, u: FloatArray, base: float = 1.0) -> Answer:
        """Return the weights of sums of predictions; see `Engine.row_sum`."""
        base_counts = np.asarray(u.sum(axis=0)).ravel()
        intercepts = np.outer(base_counts, base * self._constant)
        return KnownAnswer(self.rmatvec(queries, u).T, intercepts)

    def predicted(self, queries: LeafArray | None, targets: FloatArray) -> FloatArray:
        """Return the predictions of the fit to targets (N, K), (n, K)."""
        return self.matvec(queries, targets) + self._constant

    def leverage(self, available: int) -> FloatArray:
        """Return ``K[j, j]``, (N,): the sum of a row's entries in its own leaves.

        Those in trees without rows count, too. A row meets no other leaves.
        """
        n_leaves = self.structure.total_leaves
        in_leaves = np.asarray(self._rows_of_leaves[:n_leaves].sum(axis=0)).ravel()
        lost = n_leaves + np.flatnonzero(self._node[n_leaves:] == NO_NODE)
        in_lost_trees = np.asarray(self._rows_of_leaves[lost].sum(axis=0)).ravel()
        return np.asarray(in_leaves + in_lost_trees)

    def squares(self, available: int) -> float:
        """Return ``sum_ij K[i, j]^2`` in O(T^2 N).

        The sum runs tree by tree over pairs of leaves that share rows.
        """
        index = self._rows_of_leaves
        members = csr_array(self._train.T)
        transposed = csr_array(index.T)
        total = 0.0
        for a, b in pairwise([*self.structure.starts, len(self._node)]):
            shared = members[a:b] @ self._train
            total += float(shared.multiply(index[a:b] @ transposed).sum())
        return total

    def costs(self, available: int) -> Seconds:
        """Return the time of work on all training rows within ``available`` bytes."""
        column = FOREST_SECONDS * self.structure.n_rows * self.structure.n_trees
        return Seconds(column, column * self.structure.n_trees, column, column, np.inf)

    def removal(self, queries: LeafArray | None, targets: FloatArray) -> Sequence[RowEffects]:
        """Return ``-weight * (y_j - level[l] v[l])`` over the leaves l met; see `removal`."""
        index = self._rows_of_leaves
        level = removal.levels(self.structure)[0]
        level = np.append(level, np.ones(len(self._node) - len(level)))
        met = self._met(queries)
        effects = []
        for y, values in zip(targets.T, self._leaf_values(targets).T):
            level_values = np.repeat(level * values, np.diff(index.indptr))
            data = index.data * (level_values - y[index.indices])
            of_leaves = csr_array((data, index.indices, index.indptr), shape=index.shape)
            effects.append(KnownEffects(csr_array(met @ of_leaves)))
        return effects

    def deletion(
        self, queries: LeafArray | None, targets: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        """Return the exact changes without each row, which affect its own leaves alone.

        No tree sees another; see `_changes`.
        """
        met = self._met(queries)
        leaves, rows, changes = self._changes(targets)
        shape = self._rows_of_leaves.shape
        return [
            KnownEffects(csr_array(met @ csr_array((change, (leaves, rows)), shape=shape)))
            for change in changes.T
        ]

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Return each row's prediction without it: it changes by the sum of its leaves' changes."""
        s = self.structure
        places, rows, leaf_changes = self._changes(targets)
        is_met = (places < s.total_leaves) | (self._node[places] == NO_NODE)
        changes = np.zeros((s.n_rows, targets.shape[1]))
        np.add.at(changes, rows[is_met], leaf_changes[is_met])
        predictions = self.predicted(None, targets) + changes
        return LeftOut(predictions, emptied=np.asarray(np.isnan(predictions).any(axis=1)))

    def _changes(self, targets: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the changes of leaf values without each of their rows.

        They are multiplied by the tree's coefficient: ``c_t (a' (S - w b y) - a S)``. If no other
        row remains, the value is that of the nearest ancestor with rows of the tree, or of all
        other rows if it has none; nan if there is none.

        Returns
        -------
        places, rows : arrays of shape (entries,)
            The row of the index, and the training row.
        changes : array of shape (entries, K)
        """
        s = self.structure
        rule = self.structure.newton_rule
        if s.counts_by_leaf:
            leaf, rows, after = percentile_rule.without_each(s, targets)
            values = self._leaf_values(targets)[leaf, 0]
            return leaf, rows, (self._final[leaf] * (after - values))[:, None]
        place, weight = self._entries
        rows = self._rows_of_leaves.indices
        all_values = self._leaf_values(targets)
        sums = self._sums(all_values)
        weights = self._weights
        l2 = self._l2(rule)
        remaining = remaining_weight(weights[place], weight)
        steps = np.append(rule.steps, np.ones(len(weights) - len(rule.steps)))[place]
        scale = NewtonRule(l2[place], steps).scale(remaining)
        after = scale[:, None] * (sums[place] - weight[:, None] * targets[rows])
        last = np.flatnonzero((remaining == 0) & (weight > 0))
        after[last] = self._values_beside(place[last], rows[last], sums, weights, targets)
        changes = self._final[place][:, None] * (after - all_values[place])
        return place, rows, np.asarray(changes)

    def _values_beside(
        self, place: Ids, rows: Ids, sums: FloatArray, weights: FloatArray, targets: FloatArray
    ) -> FloatArray:
        """Return the values of index entries without their last training row, (n, K)."""
        s = self.structure
        ancestors = ancestors_of(self.structure)
        node = self._node[place]
        n_leaves = s.total_leaves
        filled = ancestors.totals((s.leaf_weights > 0).astype(np.float64)).astype(np.int64)
        above = np.full(len(node), NO_NODE)
        inner_positions = np.flatnonzero(node != NO_NODE)
        above[inner_positions] = ancestors.nearest_beside(node[inner_positions], filled)
        values = np.empty((len(place), targets.shape[1]))

        inner = np.flatnonzero(above != NO_NODE)
        remaining = ancestors.totals(weights[:n_leaves])[above[inner]] - weights[place[inner]]
        rest = ancestors.totals(sums[:n_leaves])[above[inner]] - sums[place[inner]]
        values[inner] = rest / (remaining + l2_of(s, ancestors, above[inner]))[:, None]

        lost = np.flatnonzero(above == NO_NODE)
        row_weights = self._row_weights
        lost_weights = row_weights[rows[lost]]
        other_weights = remaining_weight(np.full(len(lost), self._total), lost_weights)[:, None]
        rest = row_weights @ targets - lost_weights[:, None] * targets[rows[lost]]
        values[lost] = np.divide(
            rest, other_weights, out=np.full_like(rest, np.nan), where=other_weights > 0
        )
        return values

    @cached_property
    def _weights(self) -> FloatArray:
        """The weight of the training rows in each row of the index, (places,)."""
        s = self.structure
        if self._place is None:
            return s.leaf_weights
        place, weight = self._entries
        inner = np.bincount(place, weight, len(self._node))
        return np.append(s.leaf_weights, inner[s.total_leaves :])

    def _sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of row weight * sample count * target of these values, (places, K)."""
        scale = self._scale[:, None]
        return np.asarray(np.divide(values, scale, out=np.zeros_like(values), where=scale > 0))

    def _l2(self, rule: NewtonRule) -> FloatArray:
        """Return what regularisation adds to the weight of each row of the index, (places,)."""
        s = self.structure
        inner = self._node[s.total_leaves :]
        inner_l2 = np.zeros(len(inner))
        inner_l2[inner != NO_NODE] = l2_of(s, ancestors_of(s), inner[inner != NO_NODE])
        return np.append(rule.l2, inner_l2)

    @property
    def _entries(self) -> tuple[IntArray, FloatArray]:
        """The row of the index of each entry, and row weight * sample count, (entries,) each."""
        s = self.structure
        index = self._rows_of_leaves
        place = np.repeat(np.arange(len(self._node)), np.diff(index.indptr))
        is_leaf = place < s.total_leaves
        leaf = place[is_leaf]
        rows = index.indices[is_leaf]
        tree = np.searchsorted(s.starts, leaf, side="right") - 1
        weight = np.empty(len(place))
        weight[is_leaf] = s.sample_counts[(s.cells[tree, rows] // s.n_leaves[tree]).astype(np.intp)]
        if s.row_weights is not None:
            weight[is_leaf] *= s.row_weights[rows]
        inner_scale = (self._scale * self._final)[place[~is_leaf]]
        weight[~is_leaf] = index.data[~is_leaf] / inner_scale
        return place, weight

    def gradient_contributions(
        self, queries: LeafArray | None, targets: FloatArray
    ) -> Sequence[RowEffects]:
        """Return the contributions of training rows, which are weights times targets.

        No tree sees another, so the residuals are the targets.
        """
        weights = csr_array(self._met(queries) @ self._rows_of_leaves)
        return [KnownEffects(csr_array(weights.multiply(y))) for y in targets.T]

    def without(self, rows: IntArray, targets: FloatArray) -> Forest:
        """Return the engine of the fit to targets (N, K) without these rows."""
        s = self.structure
        if not s.counts_by_leaf:
            return Forest(rescaled(lighter(s, rows, self.backend)))
        return _ranked(rule_of(s).without(s, rows, targets, self.backend), targets)

    def with_targets(self, targets: FloatArray) -> Forest:
        """Return the engine of the fit to other targets (N, K)."""
        structure = rule_of(self.structure).with_targets(self.structure, targets, self.backend)
        if structure is self.structure:
            return self
        return _ranked(structure, targets)

    def fit(self, targets: FloatArray) -> FittedValues:
        """Return the leaf values and sums of the fit to targets (N, K)."""
        s = self.structure
        values = self._leaf_values(targets)
        sums = self._sums(values)[: s.total_leaves]
        if self._place is not None:
            values = values[self._place]
        assert s.initial is not None  # see `is_forest`
        return FittedValues(s, targets, s.initial, values[: s.total_leaves], sums)

    def sum_weights(self, seeds: FloatArray) -> FloatArray:
        """Return the derivatives of ``seeds.T @ leaf_sums`` by the targets, (N, S), for (L, S)."""
        s = self.structure
        derivatives = np.empty((s.n_rows, seeds.shape[1]))
        table = np.ascontiguousarray(s.by_cells(seeds, drawn=True))
        self.rows.read_out(table, np.zeros(seeds.shape[1]), self.rows.weights, 0, derivatives)
        return derivatives

    def tree_residuals(self, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield the targets of each tree, (N,), for targets (N, 1): the targets themselves."""
        for _ in range(self.structure.n_trees):
            yield targets[:, 0]

    def tree_residual_slopes(self, v: FloatArray) -> Iterator[FloatArray]:
        """Yield the derivatives of a tree's targets along vectors v (N, S), which are v."""
        for _ in range(self.structure.n_trees):
            yield v

    @property
    def memory(self) -> Memory:
        """The bytes that explained rows and `prepared` take."""
        s = self.structure
        return Memory(24 * s.n_trees * -(-s.n_rows * s.n_trees // s.total_leaves), 0)

    def out_of_bag(self, rows: IntArray) -> tuple[KnownAnswer, BoolArray]:
        """Return the weights of training rows in the trees that were fitted without them.

        They are as if there were no other trees. The second value, (n,), says whether there is such
        a tree: if not, the row has no weights.
        """
        s = self.structure
        met = self._train[rows]
        met.data = (s.sampled_counts(rows) == 0).T.ravel().astype(float)
        final = np.asarray(met @ self._final)
        has_tree = final != 0
        share = np.divide(s.final.sum(), final, out=np.zeros_like(final), where=has_tree)
        weights = csr_array(met @ self._rows_of_leaves).multiply(share[:, None]).tocsr()
        constants = np.tile(self._constant, (len(rows), 1))
        return KnownAnswer(csr_array(weights), constants), has_tree

    # -- the index ---------------------------------------------------------------------------------

    @property
    def _constant(self) -> FloatArray:
        """The constant of every prediction, from the initial prediction, (K,)."""
        s = self.structure
        if s.initial is None:
            return np.zeros(1)
        return np.asarray(s.beta[-1] * s.initial)

    def _leaf_values(self, targets: FloatArray) -> FloatArray:
        """Return fitted values (places, K) for targets (N, K), before the trees' coefficients.

        0 if the coefficient is 0.
        """
        steps = np.asarray(self._rows_of_leaves @ targets)
        final = self._final[:, None]
        return np.asarray(np.divide(steps, final, out=np.zeros_like(steps), where=final != 0))

    @cached_property
    def _train(self) -> csr_array:
        """`_met` of the training rows, (N, places)."""
        return self._ones(self.structure.leaves().T)

    def _met(self, queries: LeafArray | None) -> csr_array:
        """Return ones at the entries that each explained row selects, sparse (n, places)."""
        if queries is None:
            return self._train
        return self._ones(own_leaves(self.structure, queries))

    def _ones(self, leaves: LeafArray) -> csr_array:
        """Return ones at the entries of these leaves (n, T), sparse (n, places)."""
        s = self.structure
        n, n_trees = leaves.shape
        dtype: type[np.signedinteger[Any]] = np.int64
        if max(s.total_leaves, n * n_trees) < 1 << 31:
            dtype = np.int32
        met = leaves.astype(dtype, order="C") + s.starts[:-1].astype(dtype)
        if self._place is not None:
            met = self._place.astype(dtype)[met]
        ends = np.arange(0, n * n_trees + 1, n_trees, dtype=dtype)
        return csr_array((np.ones(n * n_trees), met.ravel(), ends), shape=(n, len(self._node)))


def _ranked(structure: Structure, targets: FloatArray) -> Forest:
    """Return the forest of a structure of percentiles.

    Leaves without rows have the percentiles of their ancestors.
    """
    if rule_of(structure).emptied is None:
        return Forest(structure)
    return Forest(structure, percentile_rule.inherited_rows(structure, targets))

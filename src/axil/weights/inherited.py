"""Inherited values: averaged trees whose leaves have lost all their rows.

Such a leaf has the value of its nearest ancestor that still has rows of the tree's sample: the
value that the tree would predict there if it were pruned at that ancestor. A tree whose whole
sample is gone predicts the mean of all rows left where it has no base, else the base.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedQuestionError
from axil.structure import Ancestors, NewtonRule, NodeRule, Structure, with_nodes
from axil.structure.ancestors import NO_NODE
from axil.structure.nodes import Ids, Nodes
from axil.weights.fit_rules import rule_of


def ancestors_of(s: Structure) -> Ancestors:
    """Return the nodes of averaged trees, or only their roots if the splits are unknown."""
    ancestors = rule_of(s).ancestors
    if ancestors is None:
        return Ancestors.roots(s.n_leaves)
    return ancestors


def inheriting(s: Structure) -> Structure:
    """Return the structure with a rule by which leaves without rows have their ancestors' values.

    That is the rule of smoothing, where a node without rows has no share of its own value.
    """
    leaf_rule = rule_of(s)
    newton = leaf_rule.newton
    if leaf_rule.emptied is None or not leaf_rule.emptied.any() or leaf_rule.ranks_rows:
        return s
    nodes: Nodes | None
    if isinstance(newton, NodeRule):
        nodes = newton.nodes
    else:
        nodes = ancestors_of(s).nodes(s.n_leaves, newton.l2)
    if nodes is None:
        raise UnsupportedQuestionError(
            "without",
            "leaves would lose all their rows, and the adapter of this model does not state the "
            "nodes above them",
            "Ask for fewer rows, or let the adapter pass `ancestors` to BoostedFit.",
        )
    _require_rows_in_trees(s, nodes)
    nodes = _sharing(nodes, s.leaf_weights)
    return replace(s, leaf_rule=replace(leaf_rule, newton=with_nodes(newton, nodes)))


def _require_rows_in_trees(s: Structure, nodes: Nodes) -> None:
    """Refuse trees without a base that would lose their whole samples.

    Such a tree predicts the mean of all rows left, which is no value of its nodes.
    """
    if s.beta.any():
        return
    n_lost = int((nodes.totals(s.leaf_weights)[nodes.starts[:-1]] == 0).sum())
    if n_lost:
        raise UnsupportedQuestionError(
            "without",
            f"{n_lost} of {s.n_trees} trees with monotone constraints would lose all rows of "
            "their samples",
            "Ask for fewer rows, or fit with more of them.",
        )


def _sharing(nodes: Nodes, leaf_weights: FloatArray) -> Nodes:
    """Return the nodes in a form in which nodes without rows have their parents' values."""
    nodes = nodes.emptied(leaf_weights == 0)
    is_empty = nodes.totals(leaf_weights) == 0
    own_shares = 1.0 if nodes.own is None else nodes.own
    shares = np.where(is_empty, 0.0, own_shares)
    shares[nodes.starts[:-1]] = 1.0  # a root has no parent
    rivals = nodes.rivals
    if rivals is not None:
        rivals = rivals[~is_empty[rivals[:, 0]]]
    return replace(nodes, own=shares, rivals=rivals)


def inherited_values(
    s: Structure, values: FloatArray, sums: FloatArray, mean: FloatArray
) -> FloatArray:
    """Return the leaf values (L, K) with inherited ones for leaves without rows.

    Parameters
    ----------
    s : Structure
        Knows which leaves have no rows.
    values, sums : arrays of shape (L, K)
        Values by the rows of each leaf alone, and what they are made of: row weight * sample count
        * residual.
    mean : array of shape (K,)
        The weighted mean of the targets.
    """
    emptied = rule_of(s).emptied
    if emptied is None or not emptied.any():
        return values
    with_ancestors = values.copy()
    if s.newton_rule.has_active_set or s.newton_rule.couples_leaves:
        inheriting_rule = inheriting(s).newton_rule
        if sums.shape[1] > 1:  # the outputs of a tree share its active set
            return inheriting_rule.linearise(sums[:, 0], s.leaf_weights).values(s.n_leaves, sums)
        with_ancestors[:, 0] = inheriting_rule.leaf_values(sums[:, 0], s.leaf_weights)
        return with_ancestors
    leaves = np.flatnonzero(emptied)
    ancestors = ancestors_of(s)
    weights = ancestors.totals(s.leaf_weights)
    nodes = ancestors.nearest(leaves, weights > 0)
    has_node = nodes != NO_NODE
    if s.beta.any():
        with_ancestors[leaves[~has_node]] = 0.0
    else:
        with_ancestors[leaves[~has_node]] = mean
    nodes = nodes[has_node]
    scale = NewtonRule(l2_of(s, ancestors, nodes), np.ones(len(nodes))).scale(weights[nodes])
    with_ancestors[leaves[has_node]] = scale[:, None] * ancestors.totals(sums)[nodes]
    return with_ancestors


def l2_of(s: Structure, ancestors: Ancestors, nodes: Ids) -> FloatArray:
    """Return what regularisation adds to the weights of these inner nodes, (n,)."""
    if ancestors.l2 is not None:
        return ancestors.l2_of(nodes, s.total_leaves)
    l2 = s.newton_rule.l2
    finite = l2[np.isfinite(l2)]
    return np.full(len(nodes), finite.min(initial=np.inf) if len(finite) else 0.0)


@dataclass(frozen=True)
class InheritedValues:
    """The values that leaves of averaged trees would have without rows, each leaf by itself."""

    structure: Structure
    sums: FloatArray  #: (L, K) of row weight * sample count * residual in each leaf

    @cached_property
    def node(self) -> Ids:
        """The nearest ancestor of each leaf that has other rows, (L,); -1 if there is none."""
        s = self.structure
        filled = self._ancestors.totals((s.leaf_weights > 0).astype(np.float64)).astype(np.int64)
        return self._ancestors.nearest_beside(np.arange(s.total_leaves), filled)

    @cached_property
    def _ancestors(self) -> Ancestors:
        """The nodes of the trees."""
        return ancestors_of(self.structure)

    @cached_property
    def has_rows(self) -> BoolArray:
        """Whether the tree of each leaf has rows in other leaves, (L,)."""
        return np.asarray(self.node != NO_NODE)

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of the other rows in the nearest ancestor of each leaf, (L,)."""
        weights = self.structure.leaf_weights
        return np.where(self.has_rows, self._ancestors.totals(weights)[self.node] - weights, 0.0)

    @cached_property
    def scale(self) -> FloatArray:
        """The factor of their sum, (L,)."""
        l2 = np.zeros(self.structure.total_leaves)
        l2[self.has_rows] = l2_of(self.structure, self._ancestors, self.node[self.has_rows])
        scale = NewtonRule(l2, np.ones(len(l2))).scale(self.weights)
        return np.where(self.has_rows, scale, 0.0)

    @cached_property
    def values(self) -> FloatArray:
        """The inherited values, (L, K); zero if the tree has no other rows."""
        rest = self._ancestors.totals(self.sums)[self.node] - self.sums
        return np.where(self.has_rows[:, None], self.scale[:, None] * rest, 0.0)

    @cached_property
    def of_base(self) -> FloatArray:
        """The fall of the values per unit of the initial prediction, (L,)."""
        return (
            np.repeat(self.structure.beta[:-1], self.structure.n_leaves) * self.scale * self.weights
        )

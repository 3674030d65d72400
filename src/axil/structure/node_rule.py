"""The rule of leaves that depend on the nodes above them: path smoothing and monotone bounds.

LightGBM, XGBoost and scikit-learn give every node a value when they split its parent, and go from
the root down. Smoothing mixes a node's own value with its parent's. A monotone split bounds all
values below it by the middle of its two children's values, or by values that other splits made
before. With the active set fixed, the value of every node is an affine map of the sums of the
tree's leaves: its own Newton value is such a map of the sum of all rows below it, a smoothed value
mixes two maps, and a value at a bound has the map of that bound.

The active set changes where a sum reaches a threshold of `NewtonRule`, where a value reaches or
leaves a bound, and where another of several values becomes the nearest bound. Inner nodes count as
far as leaf values depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray
from axil.structure.newton import CoupledLeaves, NewtonRule, first_finite
from axil.structure.nodes import Ids, Nodes

if TYPE_CHECKING:
    from typing_extensions import Self

THRESHOLD, LOWER, UPPER, RIVAL = range(4)


@dataclass(frozen=True)
class NodeValues:
    """The values of M nodes, and their bounds."""

    raw: FloatArray  #: (M,) before bounds
    bounded: FloatArray  #: (M,) the values themselves
    bounds: FloatArray  #: (2, M) the lower and the upper bound
    #: (2, M, 2) the two nodes whose mean value is the bound, or one node twice; -1: no bound
    ends: Ids

    @property
    def is_bounded(self) -> BoolArray:
        """Whether the value is at a bound, (M,)."""
        return np.asarray(self.raw != self.bounded)

    def ends_of(self, nodes: Ids) -> Ids:
        """Return the two nodes, (n, 2), whose mean value bounds each bounded node, (n,)."""
        side = (self.raw[nodes] > self.bounded[nodes]).astype(np.int64)
        return np.asarray(self.ends[side, nodes])


@dataclass(frozen=True)
class NodeMaps:
    """The values of M nodes of one tree as affine maps of the sums of its L leaves."""

    raw: FloatArray  #: (M, L) before bounds
    raw_shift: FloatArray  #: (M,)
    rows: FloatArray  #: (M, L)
    shift: FloatArray  #: (M,)


class Changes(NamedTuple):
    """Changes of the active set."""

    kinds: Ids  #: THRESHOLD, LOWER, UPPER or RIVAL
    at: Ids  #: the node, or the row of the table of rivals
    gaps: FloatArray  #: how far a sum is from its threshold, or two values are apart
    order: FloatArray  #: the gaps in units of sums, to compare them

    def at_positions(self, positions: Ids) -> Changes:
        """Return some of the changes."""
        return Changes(
            self.kinds[positions],
            self.at[positions],
            self.gaps[positions],
            self.order[positions],
        )


@dataclass(frozen=True)
class NodeRule(NewtonRule):
    """A Newton rule with the smoothing and the monotone bounds of the nodes above each leaf."""

    nodes: Nodes = field(kw_only=True)

    @property
    def is_monotone(self) -> bool:
        """Whether splits bound the values below them."""
        signs = self.nodes.signs
        if signs is not None and signs.any():
            return True
        return self.nodes.rivals is not None and len(self.nodes.rivals) > 0

    @property
    def smooths_nodes(self) -> bool:
        """Whether the value of a node is averaged with its parent's."""
        return self.nodes.own is not None

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless the rule fits trees with these numbers of leaves, (T,)."""
        super().check(n_leaves)
        self.nodes.check(n_leaves)

    def reached(self, is_empty: BoolArray) -> Self:
        """Return the rule for other rows, which may be in leaves (L,) that had none."""
        rule = super().reached(is_empty)
        at, leaves = self.nodes.ends
        l2_of_nodes = self.nodes.l2.copy()
        l2_of_nodes[at] = rule.l2[leaves]
        return replace(rule, nodes=replace(self.nodes, l2=l2_of_nodes))

    def emptied(self, is_empty: BoolArray) -> Self:
        """Return the rule after these leaves, (L,), have lost their rows: they bound no others."""
        nodes = self.nodes.emptied(is_empty)
        if nodes is self.nodes:
            return self
        return replace(self, nodes=nodes)

    def for_remaining(
        self,
        before: FloatArray,
        left: FloatArray,
        counts: tuple[FloatArray, FloatArray] | None,
    ) -> NewtonRule:
        """Return the rule after rows were deleted; see `NewtonRule.for_remaining`."""
        if not self.couples_leaves:  # the nodes are evidence of the fit with all rows alone
            return NewtonRule(self.l2, self.steps, self.by_weight, self.l1, self.max_step)
        rule = self
        if self.smooths_nodes:
            assert counts is not None
            rule = replace(self, nodes=self.nodes.recounted(counts, (before, left)))
        return rule.emptied((before > 0) & (left == 0))

    def leaf_values(self, sums: FloatArray, leaf_weights: FloatArray) -> FloatArray:
        """Return the leaf values before the learning rate, (L,), of leaf sums and weights (L,)."""
        at, leaves = self.nodes.ends
        values = np.empty_like(sums)
        values[leaves] = self.node_values(sums, leaf_weights).bounded[at]
        return values

    def node_values(self, sums: FloatArray, leaf_weights: FloatArray) -> NodeValues:
        """Return the values of all nodes, from the roots down, of leaf sums and weights (L,)."""
        nodes = self.nodes
        n = len(nodes.leaf)
        raw = self.step(nodes.totals(sums), nodes.totals(leaf_weights) + nodes.l2)
        bounds = np.repeat([[-np.inf], [np.inf]], n, axis=1)
        values = NodeValues(raw, raw.copy(), bounds, np.full((2, n, 2), -1))
        bounds_below = values.bounds.copy()
        ends_below = values.ends.copy()
        for stage, splits in enumerate(nodes.stages if self.couples_leaves else ()):
            children = nodes.children[splits]
            if nodes.own is not None:
                own_shares = nodes.own[children]
                raw[children] = (
                    own_shares * raw[children] + (1.0 - own_shares) * values.bounded[splits, None]
                )
            if nodes.rivals is not None:
                _bound_by_rivals(values, nodes.rivals_by_stage[stage])
            elif nodes.signs is not None:
                for of_node, below in ((values.bounds, bounds_below), (values.ends, ends_below)):
                    below[:, children] = below[:, splits, None]
                    of_node[:, children] = below[:, children]
            values.bounded[children] = np.clip(raw[children], *values.bounds[:, children])
            if nodes.signs is not None and nodes.rivals is None:
                signs = nodes.signs[splits]
                _bound_below(signs, children, values.bounded, bounds_below, ends_below)
        return values

    def _couple(
        self,
        sums: FloatArray,
        leaf_weights: FloatArray,
        denominators: FloatArray,
        shift: FloatArray,
    ) -> tuple[BoolArray, list[csr_array | None]]:
        is_bounded = np.zeros(len(sums), dtype=np.bool_)
        matrices: list[csr_array | None] = []
        if not self.couples_leaves:
            return is_bounded, matrices
        values = self.node_values(sums, leaf_weights)
        at, leaves = self.nodes.ends
        is_bounded[leaves] = values.is_bounded[at]
        for t in range(len(self.nodes.starts) - 1):
            maps, leaves_of_tree = self._leaf_maps(t, sums, leaf_weights, values)
            if maps is None:
                matrices.append(None)
            else:
                shift[leaves_of_tree] = maps.shift
                matrices.append(csr_array(maps.rows))
        return is_bounded, matrices

    def bytes_needed(self, sums: FloatArray, leaf_weights: FloatArray) -> int:
        """Return the memory in bytes of all matrices, and of the maps of the largest tree."""
        if not self.couples_leaves:
            return 0
        nodes = self.nodes
        n_leaves = (np.diff(nodes.starts) + 1) // 2
        if nodes.own is not None and not np.isin(nodes.own, (0.0, 1.0)).all():
            n_entries = int((n_leaves**2).sum())  # every leaf depends on the root
        else:
            n_entries = self._count_entries(n_leaves, self.node_values(sums, leaf_weights))
        return 12 * n_entries + 4 * 16 * int(n_leaves.max()) ** 2

    def _count_entries(self, n_leaves: NDArray[np.int64], values: NodeValues) -> int:
        """Return a lower bound of the number of entries of all matrices."""
        nodes = self.nodes
        most = np.repeat(n_leaves, np.diff(nodes.starts))
        n_used = nodes.totals(np.ones(int(n_leaves.sum())))  # leaves that each value depends on
        for splits in nodes.stages:
            children = nodes.children[splits].ravel()
            if nodes.own is not None:
                has_parents_value = nodes.own[children] == 0
                of_parents = np.repeat(n_used[splits], 2)
                n_used[children[has_parents_value]] = of_parents[has_parents_value]
            bounded = children[values.is_bounded[children]]
            n_used[bounded] = np.minimum(n_used[values.ends_of(bounded)].sum(axis=1), most[bounded])
        return int(n_used[nodes.ends[0]].sum())

    def coupled_leaves(self, sums: FloatArray, leaf_weights: FloatArray) -> CoupledLeaves | None:
        """Return the derivatives of one tree's leaf values by all of its leaves.

        None if each value depends on its own leaf alone.

        A node's value ``V = scale S + shift`` moves by ``-V scale`` with its weight. A leaf's value
        is a mean, with weights that are not negative, of values that nodes had before smoothing and
        bounds. Each of those is a multiple of the node's sum, ``V = shrink S / (W + l2)`` with ``0
        <= shrink <= 1``, since l1 and a largest step only bring a value closer to zero. So
        ``share`` mixes these multiples as the tree mixes the values. Nothing is divided by a sum of
        leaves: the shrinking of a node whose sum is next to zero is that of the same node without
        l1 and a largest step, or it is zero.
        """
        values = self.node_values(sums, leaf_weights)
        maps, _ = self._leaf_maps(0, sums, leaf_weights, values)
        if maps is None:
            return None
        nodes = self.nodes
        inside = nodes.inside()
        at = np.flatnonzero(nodes.leaf >= 0)
        leaves = at[np.argsort(nodes.leaf[at])]
        totals = inside @ sums
        denominators = inside @ leaf_weights + nodes.l2
        scale, shift = self.step_map(totals, denominators)
        free = np.divide(1.0, denominators, out=np.zeros_like(totals), where=denominators > 0)
        before = np.abs(totals) * free
        after = np.abs(self.step(totals, denominators))
        of_zero_sums = np.full_like(totals, float(self.l1 == 0))
        ratio = np.divide(after, before, out=of_zero_sums, where=before > 0)
        shrink = np.minimum(1.0, ratio)

        def mix(by_node: FloatArray) -> FloatArray:
            """Return leaf values by leaf sums, (L, L), for node values ``by_node`` times sums."""
            rows = by_node[:, None] * inside
            return _pass_down(nodes, rows, np.zeros_like(shift), values).rows[leaves]

        return CoupledLeaves(
            by_sum=maps.rows,
            by_weight=mix(-(scale * totals + shift) * scale),
            share=mix(shrink * free),
            terms=mix(free),
        )

    def _leaf_maps(
        self, t: int, sums: FloatArray, leaf_weights: FloatArray, values: NodeValues
    ) -> tuple[NodeMaps | None, slice]:
        """Return the maps of the leaves of tree t, and which of all L leaves they are.

        The maps are None if the value of each leaf depends on its own sum alone.
        """
        nodes = self.nodes
        first, last = nodes.starts[t : t + 2]
        at = np.flatnonzero(nodes.leaf[first:last] >= 0)
        is_smoothed = nodes.own is not None and not bool((nodes.own[first:last] == 1).all())
        is_bounded = values.is_bounded[first + at].any()
        if last - first == 1 or not (is_smoothed or is_bounded):
            return None, slice(0)
        maps, leaves = self._node_maps(t, sums, leaf_weights, values)
        at = at[np.argsort(nodes.leaf[first + at])]
        return NodeMaps(maps.raw[at], maps.raw_shift[at], maps.rows[at], maps.shift[at]), leaves

    def _node_maps(
        self, t: int, sums: FloatArray, leaf_weights: FloatArray, values: NodeValues
    ) -> tuple[NodeMaps, slice]:
        """Return the maps of all nodes of tree t, and which of all L leaves are its own."""
        first, last = self.nodes.starts[t : t + 2]
        numbers = self.nodes.leaf[first:last]
        leaves = slice(int(numbers[numbers >= 0].min()), int(numbers.max()) + 1)
        tree = self.nodes.tree(t)
        inside = tree.inside()
        denominators = inside @ leaf_weights[leaves] + tree.l2
        scale, shift = self.step_map(inside @ sums[leaves], denominators)
        of_tree = NodeValues(
            values.raw[first:last],
            values.bounded[first:last],
            values.bounds[:, first:last],
            values.ends[:, first:last] - first,
        )
        return _pass_down(tree, scale[:, None] * inside, shift, of_tree), leaves

    def nearest_changes(
        self,
        sums: FloatArray,
        leaf_weights: FloatArray,
        k: int,
        slopes: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the k nearest changes of the active set; see `NewtonRule.nearest_changes`."""
        if not self.couples_leaves:
            return super().nearest_changes(sums, leaf_weights, k, slopes)
        values = self.node_values(sums, leaf_weights)
        changes = self._changes(values, sums, leaf_weights)
        nearest = first_finite(changes.gaps, changes.order, k)
        changes = changes.at_positions(nearest)
        return self._change_maps(changes, values, sums, leaf_weights), changes.gaps

    def _changes(self, values: NodeValues, sums: FloatArray, leaf_weights: FloatArray) -> Changes:
        """Return all changes of nodes that leaf values depend on."""
        nodes = self.nodes
        n = len(nodes.leaf)
        is_used = self._used_nodes(values)
        denominators = nodes.totals(leaf_weights) + nodes.l2
        # What makes the raw value of a bounded node does not matter: it stays beyond the bound.
        is_free = is_used & ~values.is_bounded
        is_beyond = np.stack([values.raw < values.bounded, values.raw > values.bounded])
        has_room = values.bounds[0] < values.bounds[1]
        may_reach = (is_free | (is_used & is_beyond)) & has_room
        to_bounds = np.where(may_reach, np.abs(values.raw - values.bounds), np.inf)
        to_thresholds = self.distances_to_thresholds(nodes.totals(sums), denominators)
        to_thresholds = np.where(is_free, to_thresholds, np.inf)
        finite = np.where(np.isfinite(to_bounds), to_bounds, 0.0)
        kinds = np.repeat([THRESHOLD, LOWER, UPPER], n)
        at = np.tile(np.arange(n), 3)
        gaps = [to_thresholds, *to_bounds]
        order = [to_thresholds, *finite * np.minimum(denominators, 1e300)]
        if nodes.rivals is not None:
            node, side, rival = nodes.rivals.T
            is_held = is_used[node] & values.is_bounded[node]
            is_held &= (values.raw[node] > values.bounded[node]) == (side == 1)
            apart = np.abs(values.bounded[rival] - values.bounded[node])
            apart[~is_held | (apart == 0)] = np.inf  # rivals of one value are at one bound
            gaps.append(apart)
            smaller = np.minimum(denominators[rival], denominators[node])
            order.append(np.where(is_held, apart, 0.0) * smaller)
            kinds = np.append(kinds, np.full(len(node), RIVAL))
            at = np.append(at, np.arange(len(node)))
        return Changes(kinds, at, np.concatenate(gaps), np.concatenate(order))

    def _used_nodes(self, values: NodeValues) -> BoolArray:
        """Return which nodes, (M,), are leaves, or have a value that leaf values depend on."""
        if self.nodes.own is not None:
            return np.ones(len(self.nodes.leaf), dtype=np.bool_)
        is_used = self.nodes.leaf >= 0
        bounded = np.flatnonzero(values.is_bounded)
        ends = values.ends_of(bounded)
        n_used_before = -1
        n_used = int(is_used.sum())
        while n_used != n_used_before:  # the values of a bound may be bounded themselves
            is_used[ends[is_used[bounded]]] = True
            n_used_before = n_used
            n_used = int(is_used.sum())
        return is_used

    def _change_maps(
        self, changes: Changes, values: NodeValues, sums: FloatArray, leaf_weights: FloatArray
    ) -> FloatArray:
        """Return the sum or the difference of values that changes its sign, as maps (L, k)."""
        nodes = self.nodes
        seeds = np.zeros((len(sums), len(changes.at)))
        node_of_change = changes.at
        if nodes.rivals is not None:
            is_rival = changes.kinds == RIVAL
            of_rivals = nodes.rivals[np.where(is_rival, changes.at, 0), 0]
            node_of_change = np.where(is_rival, of_rivals, changes.at)
        trees = np.searchsorted(nodes.starts, node_of_change, side="right") - 1
        for t in np.unique(trees).tolist():
            first = nodes.starts[t]
            maps, leaves = self._node_maps(t, sums, leaf_weights, values)
            inside = nodes.tree(t).inside()
            for i in np.flatnonzero(trees == t).tolist():
                kind = int(changes.kinds[i])
                node = int(node_of_change[i])
                if kind == THRESHOLD:
                    seeds[leaves, i] = inside[node - first]
                elif kind == RIVAL and nodes.rivals is not None:
                    rival = nodes.rivals[changes.at[i], 2]
                    seeds[leaves, i] = maps.rows[rival - first] - maps.rows[node - first]
                else:
                    ends = values.ends[kind - LOWER, node] - first
                    seeds[leaves, i] = maps.raw[node - first] - maps.rows[ends].mean(axis=0)
        return seeds

    def _of_tree(self, t: int, leaves: slice) -> Self:
        return replace(super()._of_tree(t, leaves), nodes=self.nodes.tree(t))


def with_nodes(rule: NewtonRule, nodes: Nodes | None) -> NewtonRule:
    """Return a rule with the nodes above its leaves, or the rule itself without nodes."""
    if nodes is None:
        return rule
    return NodeRule(rule.l2, rule.steps, rule.by_weight, rule.l1, rule.max_step, nodes=nodes)


def _pass_down(tree: Nodes, rows: FloatArray, shift: FloatArray, values: NodeValues) -> NodeMaps:
    """Return the maps of all nodes of a tree, from the root down.

    ``rows`` (M, L) and ``shift`` (M,) are the maps of the nodes' own Newton values.
    """
    maps = NodeMaps(rows.copy(), shift.copy(), rows, shift)
    is_bounded = values.is_bounded
    for parent in np.flatnonzero(tree.leaf < 0):
        for child in tree.children[parent]:
            if tree.own is not None:
                own_shares = tree.own[child]
                maps.raw[child] = (
                    own_shares * maps.raw[child] + (1.0 - own_shares) * maps.rows[parent]
                )
                of_parent = (1.0 - own_shares) * maps.shift[parent]
                maps.raw_shift[child] = own_shares * maps.raw_shift[child] + of_parent
            maps.rows[child] = maps.raw[child]
            maps.shift[child] = maps.raw_shift[child]
            if is_bounded[child]:
                ends = values.ends_of(child)
                maps.rows[child] = maps.rows[ends].mean(axis=0)
                maps.shift[child] = maps.shift[ends].mean()
    return maps


def _bound_by_rivals(values: NodeValues, rivals: Ids) -> None:
    """Bound nodes by the nearest of their rivals on each side."""
    node, side, rival = rivals.T
    nearness = np.where(side == 0, 1.0, -1.0) * values.bounded[rival]
    order = np.lexsort((nearness, side, node))
    key = (2 * node + side)[order]
    is_last = np.ones(len(key), dtype=np.bool_)
    is_last[:-1] = key[1:] != key[:-1]
    nearest = order[is_last]
    values.bounds[side[nearest], node[nearest]] = values.bounded[rival[nearest]]
    values.ends[side[nearest], node[nearest]] = rival[nearest, None]


def _bound_below(
    signs: NDArray[np.int8],
    children: Ids,
    bounded: FloatArray,
    bounds_below: FloatArray,
    ends_below: Ids,
) -> None:
    """Bound the nodes below each monotone split by the mean of the values of its children.

    Where predictions must rise, the left child gets an upper bound and the right child a lower one.
    """
    middles = bounded[children].mean(axis=1)
    for sign, sides in ((1, (1, 0)), (-1, (0, 1))):
        at = np.flatnonzero(signs == sign)
        for side, nodes in zip(sides, children[at].T):
            bounds_below[side, nodes] = middles[at]
            ends_below[side, nodes] = children[at]

"""Changes that are near: sums and values which, if they move a little, are moved, clipped or bounded in another way.

A sum changes its pattern at l1, at zero and where its value is at the largest step; a value at its bounds; and a bound, where it
is the nearest of several values, when another becomes the nearest. Inner nodes count as far as values of leaves depend on them.
Pools of leaves change where two meet or one comes apart: see `Chains.nearest`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.structure.nodes import Ids, Nodes
from axil.structure.pattern import node_maps
from axil.structure.regularisation import Regularisation, Values

THRESHOLD, LOWER, UPPER, RIVAL = range(4)


@dataclass(frozen=True)
class Near:
    """Distances to changes."""

    kinds: Ids
    at: Ids  #: nodes, rows of rivals, or leaves where there are no nodes
    gaps: FloatArray  #: of sums at thresholds, of values elsewhere
    order: FloatArray  #: the same in units of sums, to compare them

    def first(self, k: int) -> Near:
        """The k nearest."""
        order = np.where(np.isfinite(self.gaps), self.order, np.inf)
        kept = np.argsort(order, kind="stable")[:k]
        kept = kept[np.isfinite(order[kept])]
        return Near(self.kinds[kept], self.at[kept], self.gaps[kept], self.order[kept])


def nearest(
    rule: Regularisation,
    sums: FloatArray,
    leaf_weights: FloatArray,
    k: int,
    slopes: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """(L, k') and (k',): the k nearest changes, as maps of the leaf sums, and how far each is.

    ``slopes`` (L,), where each leaf's pattern is its own: how fast sums may move; the nearest are then those that are soonest.
    """
    n_leaves = len(sums)
    if rule.chains is not None:
        return rule.chains.nearest(sums, leaf_weights, leaf_weights + rule.l2, k)
    if rule.nodes is None or not rule.mixes:
        free = rule.scale(leaf_weights)
        denominators = np.divide(1.0, free, out=np.full_like(free, np.inf), where=free > 0)
        gaps = _to_thresholds(rule, sums, denominators)
        order = gaps if slopes is None else gaps / slopes
        near = Near(np.full(n_leaves, THRESHOLD), np.arange(n_leaves), gaps, order).first(k)
        seeds = np.zeros((n_leaves, len(near.at)))
        seeds[near.at, np.arange(len(near.at))] = 1.0
        return seeds, near.gaps
    values = rule.node_values(sums, leaf_weights)
    near = _near_nodes(rule, rule.nodes, values, sums, leaf_weights).first(k)
    return _seeds(rule, rule.nodes, near, values, sums, leaf_weights), near.gaps


def _to_thresholds(rule: Regularisation, sums: FloatArray, denominators: FloatArray) -> FloatArray:
    """How far sums are from where they would be moved, put to zero or clipped otherwise."""
    size, gaps = np.abs(sums), np.full(len(sums), np.inf)
    if rule.l1 > 0:
        gaps = np.abs(size - rule.l1)
    if rule.max_step < np.inf:
        gaps = np.minimum(gaps, np.abs(size - rule.l1 - rule.max_step * denominators))
    gaps[~np.isfinite(denominators)] = np.inf  # left at zero, whatever the sum
    return gaps


def _near_nodes(
    rule: Regularisation, nodes: Nodes, values: Values, sums: FloatArray, leaf_weights: FloatArray
) -> Near:
    """All changes of nodes that leaves depend on."""
    used, n = _used(nodes, values), len(nodes.leaf)
    denominators = nodes.totals(leaf_weights) + nodes.l2
    free = used & (
        values.raw == values.bounded
    )  # a value at a bound is what it is whatever made the value beyond
    back = np.stack(
        [values.raw < values.bounded, values.raw > values.bounded]
    )  # the bound that it may come back from
    apart = (
        values.bounds[0] < values.bounds[1]
    )  # between two bounds of one value there is no way out
    to_bounds = np.where((free | (used & back)) & apart, np.abs(values.raw - values.bounds), np.inf)
    gaps = [
        np.where(free, _to_thresholds(rule, nodes.totals(sums), denominators), np.inf),
        *to_bounds,
    ]
    order = [
        gaps[0],
        *np.where(np.isfinite(to_bounds), to_bounds, 0.0) * np.minimum(denominators, 1e300),
    ]
    kinds, at = np.repeat([THRESHOLD, LOWER, UPPER], n), np.tile(np.arange(n), 3)
    if nodes.rivals is not None:
        node, side, other = nodes.rivals.T
        held = used[node] & (values.bounded[node] != values.raw[node])
        held &= (values.raw[node] > values.bounded[node]) == (side == 1)
        apart = np.abs(values.bounded[other] - values.bounded[node])
        apart[~held | (apart == 0)] = np.inf  # rivals of one value are at one bound
        gaps.append(apart)
        order.append(
            np.where(held, apart, 0.0) * np.minimum(denominators[other], denominators[node])
        )
        kinds, at = np.append(kinds, np.full(len(node), RIVAL)), np.append(at, np.arange(len(node)))
    return Near(kinds, at, np.concatenate(gaps), np.concatenate(order))


def _used(nodes: Nodes, values: Values) -> BoolArray:
    """(M,): leaves, and the nodes in whose middle a value is that leaves depend on."""
    if nodes.own is not None:
        return np.ones(len(nodes.leaf), dtype=np.bool_)
    used, bounded = nodes.leaf >= 0, np.flatnonzero(values.raw != values.bounded)
    side = (values.raw[bounded] > values.bounded[bounded]).astype(np.int64)
    ends = values.ends[side, bounded]
    n_used_before = -1
    n_used = int(used.sum())
    while (
        n_used != n_used_before
    ):  # a value may be in the middle of values that are bounded themselves
        used[ends[used[bounded]]] = True
        n_used_before = n_used
        n_used = int(used.sum())
    return used


def _seeds(
    rule: Regularisation,
    nodes: Nodes,
    near: Near,
    values: Values,
    sums: FloatArray,
    leaf_weights: FloatArray,
) -> FloatArray:
    """(L, k): the sums and the differences of values that change their signs, as maps of the leaf sums, tree by tree."""
    seeds, at = np.zeros((len(sums), len(near.at))), near.at
    if nodes.rivals is not None:
        rivals = near.kinds == RIVAL
        at = np.where(rivals, nodes.rivals[np.where(rivals, near.at, 0), 0], near.at)
    trees = np.searchsorted(nodes.starts, at, side="right") - 1
    for t in np.unique(trees).tolist():
        first, own = nodes.starts[t], np.flatnonzero(trees == t)
        maps, leaves = node_maps(rule, t, sums, leaf_weights, values)
        inside = nodes.tree(t).inside()
        for i, kind, node in zip(own.tolist(), near.kinds[own].tolist(), at[own].tolist()):
            if kind == THRESHOLD:
                seeds[leaves, i] = inside[node - first]
            elif kind == RIVAL and nodes.rivals is not None:
                seeds[leaves, i] = (
                    maps.rows[nodes.rivals[near.at[i], 2] - first] - maps.rows[node - first]
                )
            else:
                middle = values.ends[kind - LOWER, node] - first
                seeds[leaves, i] = maps.raw[node - first] - maps.rows[middle].mean(axis=0)
    return seeds

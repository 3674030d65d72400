"""The pattern of a fit: which sums l1 moved up or down or to zero, and which values were clipped or bounded.

With the pattern held fixed, as the splits are, every leaf value is an affine map of the sums of its tree's leaves,

    v = P S + shift

A sum beyond l1 has ``scale * S - sign * scale * l1``; one within it, zero; a clipped value, plus or minus max_step. A value at a
monotone bound is the middle of two children's values further up, each of which is such a map itself, of the sum over all rows
below it; and smoothing mixes a node's own map with its parent's. Leaves that are pooled have the sum of all their sums, divided
by that of their ``W + l2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import FloatArray
from axil.structure.nodes import Ids, Nodes
from axil.structure.regularisation import Regularisation, Values


@dataclass(frozen=True)
class Pattern:
    """Leaf values as an affine map of leaf sums, and the leaves where something was held for it."""

    scale: FloatArray  #: (L,) P's diagonal, where no tree mixes its leaves
    shift: FloatArray | None  #: (L,) None: zero
    mixing: tuple[csr_array | None, ...] | None  #: (L_t, L_t) P of each tree that mixes its leaves
    counts: dict[str, int]  #: how many leaves were moved by l1, put to zero, clipped and bounded

    def values(self, n_leaves: NDArray[np.int64], sums: FloatArray) -> FloatArray:
        """(L, K): the leaf values before the rate of leaves with these sums, (L, K)."""
        values = self.scale[:, None] * sums
        for matrix, (a, b) in zip(self.mixing or (), pairwise([0, *np.cumsum(n_leaves)])):
            if matrix is not None:
                values[a:b] = matrix @ sums[a:b]
        return values if self.shift is None else values + self.shift[:, None]


@dataclass(frozen=True)
class Maps:
    """Nodes of one tree as affine maps of the sums of its L leaves."""

    raw: FloatArray  #: (M, L) before bounds
    raw_shift: FloatArray  #: (M,)
    rows: FloatArray  #: (M, L)
    shift: FloatArray  #: (M,)


def hold(rule: Regularisation, sums: FloatArray, leaf_weights: FloatArray) -> Pattern:
    """The pattern that leaves of these sums (L,) and weights (L,) are in."""
    free = rule.scale(leaf_weights)
    if not rule.bends and not rule.mixes:
        return Pattern(free, None, None, {})
    denominators = np.divide(1.0, free, out=np.zeros_like(free), where=free > 0)
    scale, shift = _affine(rule, sums, denominators)
    bounded = np.zeros(len(sums), dtype=np.bool_)
    kinds = {
        "moved": (scale > 0) & (shift != 0),
        "zero": (scale == 0) & (shift == 0) & (free > 0),
        "clipped": (scale == 0) & (shift != 0),
    }
    mixing: list[csr_array | None] = []
    if rule.chains is not None:
        bounded = rule.leaf_values(sums, leaf_weights) != rule.step(sums, denominators)
        mixing = rule.chains.mixing(sums, denominators)
    elif rule.mixes:
        assert rule.nodes is not None
        values = rule.node_values(sums, leaf_weights)
        at, leaves = rule.nodes.ends
        bounded[leaves] = (values.raw != values.bounded)[at]
        for t in range(len(rule.nodes.starts) - 1):
            maps, own = tree_maps(rule, t, sums, leaf_weights, values)
            if maps is not None:
                shift[own] = maps.shift
            mixing.append(None if maps is None else csr_array(maps.rows))
    mixed = any(matrix is not None for matrix in mixing)
    counts = {kind: int((found & ~bounded).sum()) for kind, found in kinds.items()} | {
        "bounded": int(bounded.sum())
    }
    return Pattern(scale, shift if shift.any() else None, tuple(mixing) if mixed else None, counts)


def bytes_needed(rule: Regularisation, sums: FloatArray, leaf_weights: FloatArray) -> int:
    """Bytes that the mixing of these leaves takes, and the maps of the largest tree while it is made."""
    if not rule.mixes:
        return 0
    if rule.chains is not None:
        return (
            3 * 12 * rule.chains.entries(sums, leaf_weights + rule.l2)
        )  # while one is made of the product of two
    nodes, values = _nodes(rule), rule.node_values(sums, leaf_weights)
    n_leaves = (np.diff(nodes.starts) + 1) // 2
    most = np.repeat(n_leaves, np.diff(nodes.starts))
    if (
        nodes.own is not None and not np.isin(nodes.own, (0.0, 1.0)).all()
    ):  # every leaf depends on the root
        entries = int((n_leaves**2).sum())
    else:
        support = nodes.totals(np.ones(len(sums)))
        for splits in nodes.stages:
            children = nodes.children[splits].ravel()
            if nodes.own is not None:
                has_parents = nodes.own[children] == 0
                support[children[has_parents]] = np.repeat(support[splits], 2)[has_parents]
            bounded = children[values.raw[children] != values.bounded[children]]
            ends = values.ends[
                (values.raw[bounded] > values.bounded[bounded]).astype(np.int64), bounded
            ]
            support[bounded] = np.minimum(support[ends].sum(axis=1), most[bounded])
        entries = int(support[nodes.ends[0]].sum())
    return 12 * entries + 4 * 16 * int(n_leaves.max()) ** 2


def tree_maps(
    rule: Regularisation, t: int, sums: FloatArray, leaf_weights: FloatArray, values: Values
) -> tuple[Maps | None, slice]:
    """The maps of one tree's leaves, None where each depends on its own sum alone; and which of all L they are."""
    nodes, first, last = _nodes(rule), *_nodes(rule).starts[t : t + 2]
    at = np.flatnonzero(nodes.leaf[first:last] >= 0)
    alone = nodes.own is None or bool((nodes.own[first:last] == 1).all())
    if last - first == 1 or (alone and (values.raw == values.bounded)[first + at].all()):
        return None, slice(0)
    maps, leaves = node_maps(rule, t, sums, leaf_weights, values)
    own = at[np.argsort(nodes.leaf[first + at])]
    return Maps(*(part[own] for part in vars(maps).values())), leaves


@dataclass(frozen=True)
class LeafMaps:
    """Leaf values of one tree by the sums and weights of all its leaves, (L, L) each, with the active set fixed."""

    by_sum: FloatArray  #: derivatives by the sums
    by_weight: FloatArray  #: derivatives by the weights
    share: FloatArray  #: ``values = share @ sums``; no entry is negative, or larger than that of ``terms``
    #: the same without l1 and a largest step: ``terms @ sums of |w g|`` bounds what rows put into values
    terms: FloatArray


def leaf_maps(rule: Regularisation, sums: FloatArray, leaf_weights: FloatArray) -> LeafMaps | None:
    """Return how the values of one tree's leaves depend on all of its leaves.

    None where each depends on itself alone.

    A node's value ``V = scale S + shift`` moves by ``-V scale`` with its weight. A leaf's value is
    a mean, with weights that are not negative, of values that nodes had before smoothing and
    bounds. Each of those is a multiple of the node's sum, ``V = shrink S / (W + l2)`` with ``0 <=
    shrink <= 1``, since l1 and a largest step only bring a value closer to zero. So ``share`` mixes
    these multiples as the tree mixes the values. Nothing is divided by a sum of leaves: the
    shrinking of a node whose sum is next to zero is that of the same node without l1 and a largest
    step, or it is zero.
    """
    values = rule.node_values(sums, leaf_weights)
    maps, _ = tree_maps(rule, 0, sums, leaf_weights, values)
    if maps is None:
        return None
    nodes = _nodes(rule)
    inside, at = nodes.inside(), np.flatnonzero(nodes.leaf >= 0)
    totals, denominators = inside @ sums, inside @ leaf_weights + nodes.l2
    scale, shift = _affine(rule, totals, denominators)
    free = np.divide(1.0, denominators, out=np.zeros_like(totals), where=denominators > 0)
    before, after = np.abs(totals) * free, np.abs(rule.step(totals, denominators))
    unmoved = np.full_like(totals, float(rule.l1 == 0))  # of a sum of zero
    shrink = np.minimum(1.0, np.divide(after, before, out=unmoved, where=before > 0))
    leaves = at[np.argsort(nodes.leaf[at])]

    def mixed(by_node: FloatArray) -> FloatArray:
        """Return leaf values by the sums of leaves, (L, L), for nodes whose value is ``by_node`` times their sum."""
        rows = by_node[:, None] * inside
        return _down(
            nodes, rows, np.zeros_like(shift), values.raw, values.bounded, values.ends
        ).rows[leaves]

    return LeafMaps(
        by_sum=maps.rows,
        by_weight=mixed(-(scale * totals + shift) * scale),
        share=mixed(shrink * free),
        terms=mixed(free),
    )


def node_maps(
    rule: Regularisation, t: int, sums: FloatArray, leaf_weights: FloatArray, values: Values
) -> tuple[Maps, slice]:
    """The maps of all nodes of one tree, and which of all L leaves are its own."""
    nodes, first, last = _nodes(rule), *_nodes(rule).starts[t : t + 2]
    numbers = nodes.leaf[first:last]
    leaves = slice(int(numbers[numbers >= 0].min()), int(numbers.max()) + 1)
    tree = nodes.tree(t)
    inside = tree.inside()
    scale, shift = _affine(rule, inside @ sums[leaves], inside @ leaf_weights[leaves] + tree.l2)
    of_tree = values.raw[first:last], values.bounded[first:last], values.ends[:, first:last] - first
    return _down(tree, scale[:, None] * inside, shift, *of_tree), leaves


def _down(
    tree: Nodes,
    rows: FloatArray,
    shift: FloatArray,
    raw: FloatArray,
    bounded: FloatArray,
    ends: Ids,
) -> Maps:
    """The maps of all nodes of a tree from those that they would have by themselves, split by split."""
    maps = Maps(rows.copy(), shift.copy(), rows, shift)
    for parent in np.flatnonzero(tree.leaf < 0):
        for child in tree.children[parent]:
            if tree.own is not None:
                own = tree.own[child]
                maps.raw[child] = own * maps.raw[child] + (1.0 - own) * maps.rows[parent]
                maps.raw_shift[child] = (
                    own * maps.raw_shift[child] + (1.0 - own) * maps.shift[parent]
                )
            maps.rows[child], maps.shift[child] = maps.raw[child], maps.raw_shift[child]
            if raw[child] != bounded[child]:
                middle = ends[int(raw[child] > bounded[child]), child]
                maps.rows[child], maps.shift[child] = (
                    maps.rows[middle].mean(axis=0),
                    maps.shift[middle].mean(),
                )
    return maps


def _affine(
    rule: Regularisation, sums: FloatArray, denominators: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Scale and shift of `Regularisation.step` where these sums are."""
    size, sign = np.abs(sums), np.sign(sums)
    scale = np.divide(1.0, denominators, out=np.zeros_like(sums), where=denominators > 0)
    shift = -rule.l1 * sign * scale
    zero = (size <= rule.l1) & (rule.l1 > 0)
    with np.errstate(invalid="ignore"):  # no step times no limit
        clipped = (size - rule.l1 > rule.max_step * denominators) & (
            denominators > 0
        )  # 0: left at zero
    scale[zero | clipped] = shift[zero] = 0.0
    shift[clipped] = sign[clipped] * rule.max_step
    return scale, shift


def _nodes(rule: Regularisation) -> Nodes:
    assert rule.nodes is not None
    return rule.nodes

"""The pattern of a fit: which sums l1 moved up or down or to zero, and which values were clipped or bounded.

With the pattern held fixed, as the splits are, every leaf value is an affine map of the sums of its tree's leaves,

    v = P S + shift

A sum beyond l1 has ``scale * S - sign * scale * l1``; one within it, zero; a clipped value, plus or minus max_step. A value at a
monotone bound is the middle of two children's values further up, each of which is such a map itself, of the sum over all rows
below it; and smoothing mixes a node's own map with its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from axil.structure.nodes import Ids, Nodes
from axil.structure.regularisation import Regularisation, Values
from axil.types import Array


@dataclass(frozen=True)
class Pattern:
    """Leaf values as an affine map of leaf sums, and the leaves where something was held for it."""

    scale: Array  #: (L,) P's diagonal, where no tree mixes its leaves
    shift: Array | None  #: (L,) None: zero
    mixing: tuple[csr_array | None, ...] | None  #: (L_t, L_t) P of each tree that mixes its leaves
    counts: dict[str, int]  #: how many leaves were moved by l1, put to zero, clipped and bounded


@dataclass(frozen=True)
class Maps:
    """Nodes of one tree as affine maps of the sums of its L leaves."""

    raw: Array  #: (M, L) before bounds
    raw_shift: Array  #: (M,)
    rows: Array  #: (M, L)
    shift: Array  #: (M,)


def hold(rule: Regularisation, sums: Array, leaf_weights: Array) -> Pattern:
    """The pattern that leaves of these sums (L,) and weights (L,) are in."""
    free = rule.scale(leaf_weights)
    if not rule.bends and not rule.mixes:
        return Pattern(free, None, None, {})
    scale, shift = _affine(rule, sums, np.divide(1.0, free, out=np.zeros_like(free), where=free > 0))
    bounded = np.zeros(len(sums), dtype=np.bool_)
    kinds = {
        "moved": (scale > 0) & (shift != 0),
        "zero": (scale == 0) & (shift == 0) & (free > 0),
        "clipped": (scale == 0) & (shift != 0),
    }
    mixing: list[csr_array | None] = []
    if rule.mixes:
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
    counts = {kind: int((found & ~bounded).sum()) for kind, found in kinds.items()} | {"bounded": int(bounded.sum())}
    return Pattern(scale, shift if shift.any() else None, tuple(mixing) if mixed else None, counts)


def tree_maps(
    rule: Regularisation, t: int, sums: Array, leaf_weights: Array, values: Values
) -> tuple[Maps | None, slice]:
    """The maps of one tree's leaves, None where each depends on its own sum alone; and which of all L they are."""
    nodes, first, last = _nodes(rule), *_nodes(rule).starts[t : t + 2]
    at = np.flatnonzero(nodes.leaf[first:last] >= 0)
    if last - first == 1 or (nodes.own is None and (values.raw == values.bounded)[first + at].all()):
        return None, slice(0)
    maps, leaves = node_maps(rule, t, sums, leaf_weights, values)
    own = at[np.argsort(nodes.leaf[first + at])]
    return Maps(*(part[own] for part in vars(maps).values())), leaves


def node_maps(rule: Regularisation, t: int, sums: Array, leaf_weights: Array, values: Values) -> tuple[Maps, slice]:
    """The maps of all nodes of one tree, and which of all L leaves are its own."""
    nodes, first, last = _nodes(rule), *_nodes(rule).starts[t : t + 2]
    numbers = nodes.leaf[first:last]
    leaves = slice(int(numbers[numbers >= 0].min()), int(numbers.max()) + 1)
    tree, at = nodes.tree(t), np.flatnonzero(numbers >= 0)
    inside = np.zeros((last - first, leaves.stop - leaves.start))
    inside[at, tree.leaf[at]] = 1.0
    for splits in reversed(tree.levels):
        inside[splits] = inside[tree.children[splits]].sum(axis=1)
    scale, shift = _affine(rule, inside @ sums[leaves], inside @ leaf_weights[leaves] + tree.l2)
    raw, bounded = values.raw[first:last], values.bounded[first:last]
    return _down(tree, scale[:, None] * inside, shift, raw, bounded, values.makers[:, first:last] - first), leaves


def nearest(rule: Regularisation, sums: Array, leaf_weights: Array, k: int) -> tuple[Array, Array]:
    """(L, k') and (k',): the k leaves nearest to a change of their pattern, as maps of the sums, and how far each may go.

    Nearest by what the leaf's own sum may change by. A map is the leaf's sum or, near a bound, its value less the bound.
    """
    L, free = len(sums), rule.scale(leaf_weights)
    denominators = np.divide(1.0, free, out=np.full_like(free, np.inf), where=free > 0)
    size = np.abs(sums)
    distances = np.full((3, L), np.inf)  # to a threshold, a lower and an upper bound, in units of the sum
    if rule.l1 > 0:
        distances[0] = np.abs(size - rule.l1)
    if rule.max_step < np.inf:
        distances[0] = np.minimum(distances[0], np.abs(size - rule.l1 - rule.max_step * denominators))
    distances[0, free == 0] = np.inf
    if rule.bounds:
        nodes, values = _nodes(rule), rule.node_values(sums, leaf_weights)
        at, leaves = nodes.ends
        apart = np.abs(values.raw[at] - values.bounds[:, nodes.parents[at]])
        distances[1:, leaves] = np.where(np.isfinite(apart), apart, np.inf) * np.minimum(denominators[leaves], 1e300)
    kinds, leaves = np.unravel_index(np.argsort(distances, axis=None)[:k], distances.shape)
    known = np.isfinite(distances[kinds, leaves])
    kinds, leaves = kinds[known], leaves[known]
    seeds, found = np.zeros((L, len(leaves))), distances[kinds, leaves]
    for i, (kind, leaf) in enumerate(zip(kinds, leaves)):
        if kind == 0:
            seeds[leaf, i] = 1.0
            continue
        node = at[np.flatnonzero(nodes.leaf[at] == leaf)[0]]
        t = int(np.searchsorted(nodes.starts, node, side="right")) - 1
        own, part = node_maps(rule, t, sums, leaf_weights, values)
        parent, first = nodes.parents[node], nodes.starts[t]
        middle = nodes.children[values.makers[kind - 1, parent]] - first
        seeds[part, i] = own.raw[node - first] - own.rows[middle].mean(axis=0)
        found[i] = apart[kind - 1, np.flatnonzero(at == node)[0]]
    return seeds, found


def _down(tree: Nodes, rows: Array, shift: Array, raw: Array, bounded: Array, makers: Ids) -> Maps:
    """The maps of all nodes of a tree from those that they would have by themselves, from the root down."""
    maps = Maps(rows.copy(), shift.copy(), rows, shift)
    for splits in tree.levels:
        for parent, children in zip(splits, tree.children[splits]):
            for child in children:
                if tree.own is not None:
                    own = tree.own[child]
                    maps.raw[child] = own * maps.raw[child] + (1.0 - own) * maps.rows[parent]
                    maps.raw_shift[child] = own * maps.raw_shift[child] + (1.0 - own) * maps.shift[parent]
                maps.rows[child], maps.shift[child] = maps.raw[child], maps.raw_shift[child]
                if raw[child] != bounded[child]:
                    middle = tree.children[makers[int(raw[child] > bounded[child]), parent]]
                    maps.rows[child], maps.shift[child] = maps.rows[middle].mean(axis=0), maps.shift[middle].mean()
    return maps


def _affine(rule: Regularisation, sums: Array, denominators: Array) -> tuple[Array, Array]:
    """Scale and shift of `Regularisation.step` where these sums are."""
    size, sign = np.abs(sums), np.sign(sums)
    scale = np.divide(1.0, denominators, out=np.zeros_like(sums), where=denominators > 0)
    shift = -rule.l1 * sign * scale
    zero = (size <= rule.l1) & (rule.l1 > 0)
    with np.errstate(invalid="ignore"):  # no step times no limit
        clipped = size - rule.l1 > rule.max_step * denominators
    scale[zero | clipped] = shift[zero] = 0.0
    shift[clipped] = sign[clipped] * rule.max_step
    return scale, shift


def _nodes(rule: Regularisation) -> Nodes:
    assert rule.nodes is not None
    return rule.nodes

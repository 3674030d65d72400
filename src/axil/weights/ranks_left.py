"""Ranks left: fits by percentiles, walked through tree by tree, where each leaf ranks the rows that are left of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from axil.arrays import FloatArray
from axil.structure import Structure
from axil.structure.ancestors import NO_NODE
from axil.structure.nodes import Ids
from axil.structure.ranks import Picks, Positions, RankedFit
from axil.weights.inherited import ancestors_of
from axil.weights.residuals import FittedValues


def fit(structure: Structure, targets: FloatArray) -> FittedValues:
    """The fit to targets (N, 1) by the ranks of the rows that it has. Cost O(T N log N)."""
    return _walked(structure, targets)[0]


def without(structure: Structure, targets: FloatArray) -> Structure:
    """The structure of that fit, with its ranks held. A leaf that no row is left in has the value zero.

    A leaf of averaged trees has its ancestor's value instead, as a shift.
    """
    s = structure
    fitted, picks = _walked(s, targets)
    cells, shares, shift = s.leaves().copy(), np.zeros_like(s.draws), np.zeros(s.total_leaves)
    for t, found in enumerate(picks):
        cells[t] += (found.codes(s.n_rows) * s.n_leaves[t]).astype(cells.dtype)
        shares[1 : 1 + len(found.levels), s.starts[t] + found.leaves] = found.levels
        if found.shifts is not None:
            shift[s.starts[t] + found.leaves] = found.shifts
    there, emptied = fitted.structure.leaf_weights, fitted.structure.emptied
    has_shift = s.shift is not None
    assert s.ranks is not None
    if emptied is not None and (
        s.ranks.based or s.beta.any()
    ):  # a forest that starts from nothing has the rows: see `inherited_rows`
        shift[emptied] = fitted.values[emptied, 0]
        has_shift = True
    return replace(
        fitted.structure,
        cells=cells,
        draws=shares,
        leaf_scale=there,
        shift=shift if has_shift else None,
    )


def inherited_rows(structure: Structure, targets: FloatArray) -> csr_array:
    """Return the shares (L, N) of the rows that give leaves without rows their ancestors' percentiles."""
    s, y = structure, targets[:, 0]
    assert s.emptied is not None
    leaves, rows, shares = [], [], []
    for _, found, part in _inherited(s, y, np.flatnonzero(s.emptied)):
        for row, share in zip(part.rows, part.shares):
            leaves.append(found)
            rows.append(row)
            shares.append(share)
    index = (
        (np.concatenate(leaves), np.concatenate(rows))
        if leaves
        else (np.zeros(0, int), np.zeros(0, int))
    )
    data = np.concatenate(shares) if shares else np.zeros(0)
    return csr_array((data, index), shape=(s.total_leaves, s.n_rows))


def without_each(s: Structure, targets: FloatArray) -> tuple[Positions, Positions, FloatArray]:
    """(entries,) each: a leaf of a forest, a row that counts in it, and the leaf's value without the row.

    The fits of one tree without one row of every leaf at a time, as often as its largest leaf has rows.
    """
    assert s.ranks is not None
    y, found = targets[:, 0], []
    for t, leaf in enumerate(s.leaves()):
        counted = s.ranks.counted(t, s.n_rows)
        order = counted[np.argsort(leaf[counted], kind="stable")]
        own = leaf[order].astype(np.intp)
        size = np.bincount(own, minlength=int(s.n_leaves[t]))
        place = np.arange(len(order)) - (np.cumsum(size) - size)[own]
        for k in range(int(size.max(initial=0))):
            gone = order[place == k]
            picks = s.ranks.less(gone, s.n_rows).picks(t, leaf, y)
            values = np.zeros(int(s.n_leaves[t]))
            values[picks.leaves] = picks.values(y)
            at = leaf[gone].astype(np.intp)
            after = values[at]
            last = size[at] == 1
            after[last] = _beside(s, t, s.starts[t] + at[last], gone[last], y)
            found.append((s.starts[t] + at, gone, after))
    leaves, rows, after = (np.concatenate(part) for part in zip(*found))
    return leaves, rows, after


def _beside(s: Structure, t: int, leaves: Ids, rows: Ids, y: FloatArray) -> FloatArray:
    """Return the value of each of these leaves of tree t, (n,), that has no row but its own, once that is gone."""
    ancestors, found = ancestors_of(s), np.zeros(len(leaves))
    filled = ancestors.totals((s.leaf_weights > 0).astype(np.float64)).astype(np.int64)
    nodes = ancestors.nearest_beside(leaves, filled)
    for place, (node, row) in enumerate(zip(nodes, rows)):
        assert s.ranks is not None
        rest = s.ranks.less(np.array([row]), s.n_rows)
        found[place] = _value_of(s, rest, t, int(node), y)
    return found


def _value_of(s: Structure, ranks: RankedFit, t: int, node: int, y: FloatArray) -> float:
    """Return the percentile of the rows of one node of tree t; of all rows where there is no node, nan where none is left."""
    picks = _picks_of(s, ranks, t, np.array([node]), y)
    return float(picks.values(y)[0]) if len(picks.leaves) else np.nan


def _picks_of(s: Structure, ranks: RankedFit, t: int, nodes: Ids, y: FloatArray) -> Picks:
    """Return the rows picked for nodes of tree t that have no leaf in common; -1: for all rows, drawn or not."""
    if nodes[0] == NO_NODE:
        ranks = replace(ranks, drawn=None)
        label = np.zeros(s.n_rows, dtype=np.int64)
    else:
        own = np.arange(s.starts[t], s.starts[t + 1])
        inside = ancestors_of(s).below(nodes, own, s.total_leaves).tocoo()
        of_leaves = np.full(len(own), NO_NODE)
        of_leaves[inside.col - s.starts[t]] = inside.row
        label = of_leaves[s.leaves()[t].astype(np.intp)]
        ranks = ranks.less(np.flatnonzero(label == NO_NODE), s.n_rows)
        label = np.maximum(label, 0)
    if ranks.rows is not None and not len(ranks.rows):
        none = np.zeros(0, dtype=np.int64)
        return Picks(none, np.zeros((2, 0), dtype=np.int64), np.zeros((2, 0)))
    return ranks.picks(t, label, y)


def _inherited(s: Structure, y: FloatArray, emptied: Ids) -> Iterator[tuple[int, Ids, Picks]]:
    """Yield the tree of leaves without rows, leaves of one ancestor or of several apart, and the picks for each leaf.

    ``y`` (N,): what the trees were fitted to. A tree without any row has the percentile of all rows where it has no base.
    """
    assert s.ranks is not None
    ancestors = ancestors_of(s)
    nodes = ancestors.nearest(emptied, ancestors.totals(s.leaf_weights) > 0)
    trees = np.searchsorted(s.starts, emptied, side="right") - 1
    for tree, node in sorted(set(zip(trees.tolist(), nodes.tolist()))):
        if node == NO_NODE and (s.ranks.based or s.beta.any()):
            continue
        picks = _picks_of(s, s.ranks, tree, np.array([node]), y)
        if not len(picks.leaves):
            continue
        leaves = emptied[(trees == tree) & (nodes == node)]
        one = np.zeros(len(leaves), dtype=np.int64)
        yield tree, leaves, Picks(leaves, picks.rows[:, one], picks.shares[:, one])


def _walked(s: Structure, targets: FloatArray) -> tuple[FittedValues, list[Picks]]:
    """The fit, and the rows picked for every tree."""
    assert s.ranks is not None
    assert s.base is not None  # a percentile is in the first tree
    values, there, leaves, picks = (
        np.zeros((s.total_leaves, 1)),
        np.zeros(s.total_leaves),
        s.leaves(),
        [],
    )
    fitted = FittedValues(s, targets, s.base, values, values)
    seen = np.empty(0)
    for t, residual in zip(range(s.n_trees), fitted.residuals(leaves, fitted.started())):
        found = s.ranks.picks(t, leaves[t], residual[:, 0])
        own = s.starts[t] + found.leaves
        values[own, 0] = found.values(residual[:, 0])
        if found.shifts is not None:
            values[own, 0] += found.shifts
        there[own] = 1.0
        picks.append(found)
        seen = residual[:, 0].copy() if t == int(s.ranks.based) else seen
    emptied = (s.leaf_weights > 0) & (there == 0)
    if s.emptied is not None:
        emptied |= s.emptied
    lost = emptied if s.averages and emptied.any() else None
    left = replace(s, leaf_weights=there, emptied=lost)
    if lost is not None:
        for _, found_leaves, part in _inherited(left, seen, np.flatnonzero(lost)):
            values[found_leaves, 0] = part.values(seen)
    return replace(fitted, structure=left), picks

"""Ranks left: fits by percentiles, walked through tree by tree, where each leaf ranks the rows that are left of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from axil.structure import Structure
from axil.structure.ranks import Picks, Positions
from axil.types import Array
from axil.weights.residuals import FittedValues


def fit(structure: Structure, targets: Array) -> FittedValues:
    """The fit to targets (N, 1) by the ranks of the rows that it has. Cost O(T N log N)."""
    return _walked(structure, targets)[0]


def without(structure: Structure, targets: Array) -> Structure:
    """The structure of that fit, with its ranks held. A leaf that no row is left in has the value zero."""
    s = structure
    fitted, picks = _walked(s, targets)
    cells, shares, shift = s.leaves().copy(), np.zeros_like(s.draws), np.zeros(s.total_leaves)
    for t, found in enumerate(picks):
        cells[t] += (found.codes(s.n_rows) * s.n_leaves[t]).astype(cells.dtype)
        shares[1 : 1 + len(found.levels), s.starts[t] + found.leaves] = found.levels
        if found.shifts is not None:
            shift[s.starts[t] + found.leaves] = found.shifts
    there = fitted.structure.leaf_weights
    return replace(
        fitted.structure, cells=cells, draws=shares, leaf_scale=there, shift=None if s.shift is None else shift
    )


def without_each(s: Structure, targets: Array) -> tuple[Positions, Positions, Array, NDArray[np.bool_]]:
    """(entries,) each: a leaf of a forest, a row that counts in it, the leaf's value without the row, and whether none is left.

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
            found.append((s.starts[t] + at, gone, values[at], size[at] == 1))
    leaves, rows, after, last = (np.concatenate(part) for part in zip(*found))
    return leaves, rows, after, last


def _walked(s: Structure, targets: Array) -> tuple[FittedValues, list[Picks]]:
    """The fit, and the rows picked for every tree."""
    assert s.ranks is not None
    assert s.base is not None  # a percentile is in the first tree
    values, there, leaves, picks = np.zeros((s.total_leaves, 1)), np.zeros(s.total_leaves), s.leaves(), []
    fitted = FittedValues(s, targets, s.base, values, values)
    for t, residual in zip(range(s.n_trees), fitted.residuals(leaves, fitted.started())):
        found = s.ranks.picks(t, leaves[t], residual[:, 0])
        own = s.starts[t] + found.leaves
        values[own, 0] = found.values(residual[:, 0])
        if found.shifts is not None:
            values[own, 0] += found.shifts
        there[own] = 1.0
        picks.append(found)
    emptied = (s.leaf_weights > 0) & (there == 0)
    lost = emptied if s.averages and emptied.any() else None
    return replace(fitted, structure=replace(s, leaf_weights=there, emptied=lost)), picks

"""Borders: residuals that the residuals of other rows must not cross while an active set is fixed.

A percentile is r_lower (1 - f) + r_upper f. Its active set stays while every row of the leaf is
below, between or above these two rows as it was. With Huber's loss it stays while every row is
within the threshold or beyond it. Rows that were not sampled for a tree count as if they had been.
So a change may be reported that is none, but no change is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.structure import Structure
from axil.weights.fit_rules import TreeFits

ROUNDING = 1e-12  # of the largest residual: a smaller difference is none
SECONDS = 2.0  # that a radius may take
ENTRY_SECONDS = 3e-8  # per row, tree and target that is moved
TOGETHER = 64  # targets moved at a time

#: The leaf of every row in a tree, (N,), and the lower and the upper row of that leaf, (N,) each.
PickedRows = tuple[NDArray[np.int64], list[NDArray[np.int64]]]


@dataclass(frozen=True)
class Border:
    """A border that each row of a tree is on one side of: the residual of a row, or a constant."""

    rows: NDArray[np.int64] | None  #: (N,) the row whose residual is the border; None: a constant
    at: float = 0.0  #: the constant

    def gaps(self, residuals: FloatArray) -> FloatArray:
        """Return the signed distance of each row from the border, (N,)."""
        if self.rows is None:
            return residuals - self.at
        return residuals - residuals[self.rows]

    def slopes(self, slopes: FloatArray) -> FloatArray:
        """Return the change of each distance along the slopes of residuals (N, S)."""
        if self.rows is None:
            return slopes
        return slopes - slopes[self.rows]

    @property
    def movable_rows(self) -> slice | BoolArray:
        """The rows that may change sides."""
        if self.rows is None:
            return slice(None)
        return np.asarray(self.rows != np.arange(len(self.rows)))


def count_changed_leaves(trees: TreeFits, before: FloatArray, after: FloatArray) -> int:
    """Return the number of leaves whose percentiles use other rows with the targets ``after``.

    ``before`` and ``after`` are targets, (N, 1).
    """
    s = trees.structure
    n_changed = 0
    residuals_of_trees = zip(trees.tree_residuals(before), trees.tree_residuals(after))
    for (leaf, picked), (old, new) in zip(picked_rows(s), residuals_of_trees):
        is_crossed = np.zeros(s.n_rows, dtype=np.bool_)
        for border_rows in picked:
            was_below, was_near = _sides(old, border_rows)
            is_below, is_near = _sides(new, border_rows)
            is_crossed |= (was_below != is_below) & ~(was_near & is_near)
        n_changed += len(np.unique(leaf[is_crossed]))
    return n_changed


def radius(trees: TreeFits, targets: FloatArray, borders_of_trees: list[list[Border]]) -> float:
    """Return the smallest change of one target that moves a row across a border, or a lower bound.

    0 if no bound is known.
    """
    s = trees.structure
    moving = np.flatnonzero(np.any(s.row_counts() != 0, axis=0) | (s.initial is None))
    if not trees.moves_other_residuals:
        moving = moving[:0]
    if ENTRY_SECONDS * s.n_rows * s.n_trees * len(moving) > SECONDS:
        return 0.0
    least = np.inf
    for borders, residuals in zip(borders_of_trees, trees.tree_residuals(targets)):
        for border in borders:  # a target moves its own residual one for one
            gaps = np.abs(border.gaps(residuals))[border.movable_rows]
            least = min(least, float(gaps.min(initial=np.inf)))
    for first in range(0, len(moving), TOGETHER):
        moved = moving[first : first + TOGETHER]
        units = np.zeros((s.n_rows, len(moved)))
        units[moved, np.arange(len(moved))] = 1.0
        of_trees = zip(
            borders_of_trees, trees.tree_residuals(targets), trees.tree_residual_slopes(units)
        )
        for borders, residuals, slopes in of_trees:
            for border in borders:
                least = min(least, _nearest(border, residuals, slopes))
    if np.isfinite(least):
        return least
    return 0.0


def _nearest(border: Border, residuals: FloatArray, slopes: FloatArray) -> float:
    """Return the smallest change of a target that moves a row across a border."""
    steepest = np.abs(border.slopes(slopes)).max(axis=1)
    unreached = np.full(len(residuals), np.inf)
    gaps = np.abs(border.gaps(residuals))
    changes = np.divide(gaps, steepest, out=unreached, where=steepest > ROUNDING)
    return float(changes[border.movable_rows].min(initial=np.inf))


def picked_rows(s: Structure) -> Iterator[PickedRows]:
    """Yield the leaf of every row in each tree, and the lower and the upper row of that leaf.

    A row of a leaf without these rows stands for itself.
    """
    for t, (first, last) in enumerate(pairwise(s.starts)):
        level, leaf = np.divmod(s.cells[t].astype(np.int64), int(last - first))
        lower = np.full(last - first, -1, dtype=np.int64)
        lower_rows = np.flatnonzero(level == 1)
        lower[leaf[lower_rows]] = lower_rows
        upper = lower.copy()
        upper_rows = np.flatnonzero(level == 2)
        upper[leaf[upper_rows]] = upper_rows
        if len(upper_rows):
            row_of_leaf = [lower, upper]
        else:
            row_of_leaf = [lower]
        rows = [table[leaf] for table in row_of_leaf]
        yield leaf, [np.where(row < 0, np.arange(s.n_rows), row) for row in rows]


def borders_of(picked_of_trees: Iterable[PickedRows]) -> list[list[Border]]:
    """Return the borders of each tree: the residuals of the picked rows."""
    return [[Border(rows) for rows in picked] for _, picked in picked_of_trees]


def _sides(residuals: FloatArray, border_rows: NDArray[np.int64]) -> tuple[BoolArray, BoolArray]:
    """Return whether each row is below the row of its leaf, and whether they are nearly equal.

    Both have shape (N,). Of equal rows the first counts as below.
    """
    gap = residuals - residuals[border_rows]
    is_near = np.abs(gap) <= ROUNDING * float(np.abs(residuals).max(initial=0.0))
    is_below = (gap < 0) | ((gap == 0) & (np.arange(len(gap)) < border_rows))
    return is_below, is_near

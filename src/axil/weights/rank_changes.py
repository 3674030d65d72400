"""Ranks that change: rows that come to lie on the other side of those that a leaf takes its value from, or of a cut.

A leaf's value is r_lower (1 - f) + r_upper f. It stays so while every row of the leaf is below, between or above these two as it
was; and where residuals are cut off, while every row is within or beyond. Rows
that a tree did not draw count as if it had: so a change may be told of that is none, but none is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.structure import Structure
from axil.weights.boosting import BoostedTrees
from axil.weights.forest import Forest
from axil.weights.residuals import FittedValues

ROUNDING = 1e-12  # of the largest residual: what is less apart is equal
SECONDS = 2.0  # that a radius may take
ENTRY_SECONDS = 3e-8  # per row, tree and target that is moved
TOGETHER = 64  # targets moved at a time

Trees = BoostedTrees | Forest


def leaves_beyond(engine: Trees, before: FloatArray, after: FloatArray) -> int:
    """How many leaves take their values from other rows with the targets ``after`` (N, 1) than with those ``before``."""
    s, changed = engine.structure, 0
    if len(s.draws) > 3 or (s.ranks is not None and s.ranks.rule.follows_targets):
        return _spread_beyond(engine, after)
    both = zip(_residuals(engine, before), _residuals(engine, after))
    for (leaf, rows), (old, new) in zip(_picked(s), both):
        flips = np.zeros(s.n_rows, dtype=np.bool_)
        for own in rows:
            (was, old_near), (now, new_near) = (_side(part, own) for part in (old, new))
            flips |= (was != now) & ~(old_near & new_near)
        changed += len(np.unique(leaf[flips]))
    return changed


def _spread_beyond(engine: Trees, after: FloatArray) -> int:
    """How many leaves have other rows or constants by the rule, where all rows may count; all of them where that is not known."""
    s, changed = engine.structure, 0
    if s.ranks is None:
        return s.total_leaves
    shift = np.zeros(s.total_leaves) if s.shift is None else s.shift
    ranks = replace(s.ranks, rule=s.ranks.rule.with_targets(after[:, 0]))
    for t, residual in zip(range(s.n_trees), _residuals(engine, after)):
        level, leaf = np.divmod(s.cells[t].astype(np.int64), int(s.n_leaves[t]))
        found = ranks.picks(t, leaf, residual)
        moved = np.zeros(int(s.n_leaves[t]), dtype=np.bool_)
        moved[leaf[found.codes(s.n_rows) != level]] = True
        shares = s.draws[1 : 1 + len(found.levels), s.starts[t] + found.leaves]
        moved[found.leaves[(np.abs(found.levels - shares) > ROUNDING).any(axis=0)]] = True
        if found.shifts is not None:
            apart = np.abs(found.shifts - shift[s.starts[t] + found.leaves])
            moved[found.leaves[apart > ROUNDING * float(np.abs(residual).max(initial=0.0))]] = True
        changed += int(moved.sum())
    return changed


def radius(engine: Trees, targets: FloatArray) -> float:
    """The smallest change of one target that brings a row to the other side, or less; 0: no bound is known."""
    s = engine.structure
    if len(s.draws) > 3:  # constants move with the targets too
        return 0.0
    if s.ranks is not None and s.ranks.rule.follows_targets:
        return 0.0
    chosen = np.flatnonzero(np.any(s.row_draws() != 0, axis=0) | (s.base is None))
    if isinstance(engine, Forest):
        chosen = chosen[:0]  # no target moves another row's residual
    if ENTRY_SECONDS * s.n_rows * s.n_trees * len(chosen) > SECONDS:
        return 0.0
    least = np.inf
    for edges, r in zip(_edges(s), _residuals(engine, targets)):
        for edge in edges:  # a target moves its own residual one for one
            least = min(least, float(np.abs(edge.gaps(r))[edge.others].min(initial=np.inf)))
    for first in range(0, len(chosen), TOGETHER):
        moved = chosen[first : first + TOGETHER]
        units = np.zeros((s.n_rows, len(moved)))
        units[moved, np.arange(len(moved))] = 1.0
        both = zip(_residuals(engine, targets), _residuals(engine, units, slopes=True))
        for edges, (r, slopes) in zip(_edges(s), both):
            for edge in edges:
                steep = np.abs(edge.slopes(slopes)).max(axis=1)
                ratio = np.divide(
                    np.abs(edge.gaps(r)),
                    steep,
                    out=np.full(s.n_rows, np.inf),
                    where=steep > ROUNDING,
                )
                least = min(least, float(ratio[edge.others].min(initial=np.inf)))
    return least if np.isfinite(least) else 0.0


def _residuals(engine: Trees, targets: FloatArray, slopes: bool = False) -> Iterator[FloatArray]:
    """The residuals that each tree saw, (N,), with these targets (N, 1); with ``slopes`` (N, S) by the linear map alone."""
    s = engine.structure
    if isinstance(engine, Forest):
        yield from [targets if slopes else targets[:, 0]] * s.n_trees
        return
    if slopes:
        none = np.zeros(targets.shape[1])
        fit = FittedValues(s, targets, none, *engine.linear(targets, none))
        yield from (found for _, found in zip(range(s.n_trees), fit.residuals(s.leaves(), targets)))
        return
    fit = engine.fit(targets)
    yield from (
        found[:, 0].copy()
        for _, found in zip(range(s.n_trees), fit.residuals(s.leaves(), fit.started()))
    )


@dataclass(frozen=True)
class Edge:
    """A border that each row of a leaf is on one side of: the residual of a row, or a constant."""

    rows: NDArray[np.int64] | None  #: (N,)
    at: float = 0.0

    def gaps(self, residuals: FloatArray) -> FloatArray:
        """(N,): how far each row is beyond."""
        return residuals - (self.at if self.rows is None else residuals[self.rows])

    def slopes(self, slopes: FloatArray) -> FloatArray:
        """(N, S): how fast each row moves away, with the slopes of residuals (N, S)."""
        return slopes if self.rows is None else slopes - slopes[self.rows]

    @property
    def others(self) -> Any:
        """The rows that may change sides."""
        return slice(None) if self.rows is None else self.rows != np.arange(len(self.rows))


def _edges(s: Structure) -> Iterator[list[Edge]]:
    """For each tree what its rows are on either side of."""
    if s.cut is not None:
        yield from [[Edge(None, -s.cut.delta), Edge(None, s.cut.delta)]] * s.n_trees
    else:
        yield from ([Edge(own) for own in rows] for _, rows in _picked(s))


def _picked(s: Structure) -> Iterator[tuple[NDArray[np.int64], list[NDArray[np.int64]]]]:
    """For each tree the leaf of every row, and the lower and upper row of that leaf; the row itself where it has none."""
    for t, (first, last) in enumerate(pairwise(s.starts)):
        level, leaf = np.divmod(s.cells[t].astype(np.int64), int(last - first))
        lower = np.full(last - first, -1, dtype=np.int64)
        rows = np.flatnonzero(level == 1)
        lower[leaf[rows]] = rows
        upper, rows = lower.copy(), np.flatnonzero(level == 2)
        upper[leaf[rows]] = rows
        own = [part[leaf] for part in ([lower, upper] if len(rows) else [lower])]
        yield leaf, [np.where(part < 0, np.arange(s.n_rows), part) for part in own]


def _side(residuals: FloatArray, of: NDArray[np.int64]) -> tuple[BoolArray, BoolArray]:
    """(N,) twice: whether each row is below the row of its leaf, the first of equals, and whether both are as good as equal."""
    gap = residuals - residuals[of]
    near = np.abs(gap) <= ROUNDING * float(np.abs(residuals).max(initial=0.0))
    return (gap < 0) | ((gap == 0) & (np.arange(len(gap)) < of)), near

"""Parts: training rows as parts of the leaves that they are in, and what becomes of a leaf without one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.machine.arrays import like, where
from axil.structure import NewtonRule, Structure

# times the rest of its leaf: the fit without so heavy a row is replayed, as differences would lose
# digits
DOMINANT = 1e4
ROUNDING = 4 * float(np.finfo(float).eps)  # of a sum of weights: what is less is none


def remaining_weight(total: Any, part: Any) -> Any:
    """Return weights less parts of them; exactly zero where rounding alone remains."""
    remaining = total - part
    return where(remaining > ROUNDING * total, remaining, 0.0)


@dataclass(frozen=True)
class Parts:
    """Rows as parts of their leaves: for every cell, where rows weigh the same, else for every tree and row of a block."""

    leaf: Any  #: (...) numbered among all L leaves
    weight: Any  #: (...) of the row in the tree: weight * draw

    @classmethod
    def of_cells(cls, s: Structure) -> Parts:
        """The parts of a row in each cell, (C,)."""
        leaves = [np.tile(np.arange(a, b), len(s.sample_counts)) for a, b in pairwise(s.starts)]
        return cls(
            np.concatenate(leaves),
            np.concatenate([np.repeat(s.sample_counts, n) for n in s.n_leaves]),
        )

    @classmethod
    def of_rows(cls, s: Structure, rows: slice) -> Parts:
        """The parts of each row in each tree, (T, rows)."""
        cells = s.cells[:, rows]
        level, leaf = (
            (slice(None), cells)
            if len(s.sample_counts) == 1
            else np.divmod(cells, s.n_leaves[:, None].astype(cells.dtype))
        )
        weight = s.sample_counts[level] if s.sample_counts.ndim == 1 else s.row_counts(rows)
        if s.row_weights is not None:
            weight = weight * s.row_weights[rows]
        return cls(s.starts[:-1, None] + leaf.astype(np.int64), np.broadcast_to(weight, leaf.shape))

    def is_singleton(self, s: Structure) -> BoolArray:
        """Whether no other row has weight in a leaf that follows its rows."""
        return self.last(s) & (self.of(s.linear_leaves.scale) > 0)  # type: ignore[no-any-return]

    def last(self, s: Structure) -> BoolArray:
        """Whether no other row has weight in the leaf."""
        return (self.left(s) == 0) & (self.weight > 0)  # type: ignore[no-any-return]

    def dominant(self, s: Structure) -> BoolArray:
        """Whether the row outweighs the rest of the leaf by `DOMINANT`."""
        return self.left_scale(s) > DOMINANT * self.of(s.linear_leaves.scale)  # type: ignore[no-any-return]

    def of(self, table: FloatArray) -> Any:
        """The entries of a table (L,) for each leaf."""
        return like(table, self.leaf)[self.leaf]

    def left(self, s: Structure) -> Any:
        """The weight of each leaf without the row."""
        return remaining_weight(self.of(s.leaf_weights), self.weight)

    def left_scale(self, s: Structure) -> Any:
        """The scale of each leaf without the row."""
        rule = s.newton_rule
        own = NewtonRule(self._of_rule(rule.l2), self._of_rule(rule.steps))
        left = self.left(s)
        moving = self.of(s.linear_leaves.scale) > 0
        if s.linear_leaves.shift is not None:
            moving = moving & (left > 0)  # a shift would be all that is left of the value
        return where(moving, own.scale(left), 0.0)

    def _of_rule(self, table: FloatArray) -> Any:
        """The entries of a table (L,) for each leaf, without a look-up where all are the same."""
        if not len(table) or (table != table[0]).any():
            return self.of(table)
        return np.broadcast_to(like(table[:1], self.leaf), self.leaf.shape)


class RowTest:
    """Tells which training rows pass a test in any tree: `Parts.is_singleton` or `Parts.dominant`.

    A heavier row passes rather than a lighter one. So where the heaviest row would pass in no leaf,
    no row passes.
    """

    def __init__(self, s: Structure, such: Callable[[Parts, Structure], BoolArray]):
        self._structure = s
        self._such = such
        of_cells = Parts.of_cells(s)
        self._cells: BoolArray | None = such(of_cells, s)
        if s.row_weights is not None:
            heaviest = Parts(of_cells.leaf, of_cells.weight * s.row_weights.max(initial=0.0))
            rather = such(heaviest, s) | heaviest.is_singleton(s)
            if rather.any():
                self._cells = None
            else:
                self._cells = rather

    def __call__(self, rows: slice) -> BoolArray:
        """(rows,): whether each of these rows passes the test in any tree."""
        s = self._structure
        if self._cells is None:
            return np.asarray(self._such(Parts.of_rows(s, rows), s).any(axis=0))
        found = np.zeros(rows.stop - rows.start, dtype=np.bool_)
        for cells, (a, b) in zip(s.cells[:, rows], pairwise(s.cell_starts)):
            if self._cells[a:b].any():
                found |= self._cells[a:b][cells]
        return found

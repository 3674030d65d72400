"""Parts: training rows as parts of the leaves that they are in, and leaves without one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.machine.arrays import AnyPlaceArray, like, where
from axil.structure import NewtonRule, Structure

# times the rest of its leaf: the fit without so heavy a row is replayed, as differences would lose
# digits
DOMINANT = 1e4
ROUNDING = 4 * float(np.finfo(float).eps)  # of a sum of weights: what is less is none


def remaining_weight(total: AnyPlaceArray, part: AnyPlaceArray) -> AnyPlaceArray:
    """Return weights less parts of them; exactly zero where rounding alone remains."""
    remaining = total - part
    return where(remaining > ROUNDING * total, remaining, 0.0)


@dataclass(frozen=True)
class Parts:
    """Rows as parts of their leaves: one entry per cell, or per tree and row of a block.

    The arrays may be on a device.
    """

    leaf: AnyPlaceArray  #: (...) numbered among all L leaves
    weight: AnyPlaceArray  #: (...) of the row in the tree: row weight * sample count

    @classmethod
    def of_cells(cls, s: Structure) -> Parts:
        """Return the share of a row of weight one in the weight of each cell, (C,)."""
        leaves = [np.tile(np.arange(a, b), len(s.sample_counts)) for a, b in pairwise(s.starts)]
        weights = [np.repeat(s.sample_counts, n) for n in s.n_leaves]
        return cls(np.concatenate(leaves), np.concatenate(weights))

    @classmethod
    def of_rows(cls, s: Structure, rows: slice) -> Parts:
        """Return the share of each row in the weight of its leaf in each tree, (T, rows)."""
        leaf = s.leaves(rows)
        if len(s.sample_counts) == 1:
            weight = np.full((1, 1), s.sample_counts[0])
        else:
            weight = s.row_counts(rows)
        if s.row_weights is not None:
            weight = weight * s.row_weights[rows]
        return cls(s.starts[:-1, None] + leaf.astype(np.int64), np.broadcast_to(weight, leaf.shape))

    def is_singleton(self, s: Structure) -> BoolArray:
        """Return whether the row alone has a weight in a leaf that depends on its rows."""
        is_free: BoolArray = self.of(s.linear_leaves.scale) > 0
        return self.last(s) & is_free

    def last(self, s: Structure) -> BoolArray:
        """Return whether the row is the only one with a weight in its leaf."""
        is_last: BoolArray = (self.left(s) == 0) & (self.weight > 0)
        return is_last

    def dominant(self, s: Structure) -> BoolArray:
        """Return whether the row outweighs the rest of the leaf by `DOMINANT`."""
        is_dominant: BoolArray = self.left_scale(s) > DOMINANT * self.of(s.linear_leaves.scale)
        return is_dominant

    def of(self, table: FloatArray) -> AnyPlaceArray:
        """Return the entries of a table by leaves, (L,), for each part."""
        return like(table, self.leaf)[self.leaf]

    def left(self, s: Structure) -> AnyPlaceArray:
        """Return the weight of each leaf without the row."""
        return remaining_weight(self.of(s.leaf_weights), self.weight)

    def left_scale(self, s: Structure) -> AnyPlaceArray:
        """Return the scale of each leaf without the row."""
        rule = NewtonRule(self._of_rule(s.newton_rule.l2), self._of_rule(s.newton_rule.steps))
        remaining = self.left(s)
        is_free = self.of(s.linear_leaves.scale) > 0
        if s.linear_leaves.shift is not None:
            is_free = is_free & (remaining > 0)  # a shift would be all that is left of the value
        return where(is_free, rule.scale(remaining), 0.0)

    def _of_rule(self, table: FloatArray) -> AnyPlaceArray:
        """Return the entry of a table (L,) for each part, without a look-up if all are equal."""
        if not len(table) or (table != table[0]).any():
            return self.of(table)
        return np.broadcast_to(like(table[:1], self.leaf), self.leaf.shape)


class RowTest:
    """Whether training rows pass a test in any tree: `Parts.is_singleton` or `Parts.dominant`.

    A heavier row passes rather than a lighter one. So where the heaviest row would pass in no leaf,
    no row passes.
    """

    def __init__(self, s: Structure, passes: Callable[[Parts, Structure], BoolArray]):
        self._structure = s
        self._passes = passes
        of_cells = Parts.of_cells(s)
        self._cells: BoolArray | None = passes(of_cells, s)
        if s.row_weights is not None:
            heaviest = Parts(of_cells.leaf, of_cells.weight * s.row_weights.max(initial=0.0))
            may_pass = passes(heaviest, s) | heaviest.is_singleton(s)
            if may_pass.any():
                self._cells = None  # rows are tested one by one
            else:
                self._cells = may_pass

    def __call__(self, rows: slice) -> BoolArray:
        """Return whether each of these rows passes the test in any tree, (rows,)."""
        s = self._structure
        if self._cells is None:
            return np.asarray(self._passes(Parts.of_rows(s, rows), s).any(axis=0))
        has_passed = np.zeros(rows.stop - rows.start, dtype=np.bool_)
        for cells, (a, b) in zip(s.cells[:, rows], pairwise(s.cell_starts)):
            if self._cells[a:b].any():
                has_passed |= self._cells[a:b][cells]
        return has_passed

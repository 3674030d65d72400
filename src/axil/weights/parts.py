"""Parts: training rows as parts of the leaves that they are in, and what becomes of a leaf without one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from axil.structure import Regularisation, Structure
from axil.types import Array
from axil.weights.removal import known_regularisation, left_of

DOMINANT = (
    1e4  # times the rest of its leaf: the fit without so heavy a row is replayed, as differences would lose digits
)


@dataclass(frozen=True)
class Parts:
    """Rows as parts of their leaves: for every cell, where rows weigh the same, else for every tree and row of a block."""

    leaf: NDArray[np.int64]  #: (...) numbered among all L leaves
    weight: Array  #: (...) of the row in the tree: weight * draw

    @classmethod
    def of_cells(cls, s: Structure) -> Parts:
        """One for each cell, (C,)."""
        leaves = [np.tile(np.arange(a, b), len(s.draws)) for a, b in pairwise(s.starts)]
        return cls(np.concatenate(leaves), np.concatenate([np.repeat(s.draws, n) for n in s.n_leaves]))

    @classmethod
    def of_rows(cls, s: Structure, rows: slice) -> Parts:
        """One for each tree and row, (T, rows)."""
        cells = s.cells[:, rows]
        n_leaves = s.n_leaves[:, None].astype(cells.dtype)
        level, leaf = (0, cells) if len(s.draws) == 1 else np.divmod(cells, n_leaves)
        weight = np.broadcast_to(s.draws[level], leaf.shape)
        if s.row_weights is not None:
            weight = weight * s.row_weights[rows]
        return cls(s.starts[:-1, None] + leaf.astype(np.int64), weight)

    def lonely(self, s: Structure) -> NDArray[np.bool_]:
        """Whether no other row has weight in a leaf that follows its rows."""
        return np.asarray((self.left(s) == 0) & (self.weight > 0) & (s.leaf_scale[self.leaf] > 0))

    def dominant(self, s: Structure) -> NDArray[np.bool_]:
        """Whether the row outweighs the rest of the leaf by `DOMINANT`."""
        return np.asarray(self.left_scale(s) > DOMINANT * s.leaf_scale[self.leaf])

    def left(self, s: Structure) -> Array:
        """The weight of each leaf without the row."""
        return left_of(s.leaf_weights[self.leaf], self.weight)

    def left_scale(self, s: Structure) -> Array:
        """The scale of each leaf without the row."""
        rule = known_regularisation(s)
        own = Regularisation(rule.l2[self.leaf], rule.steps[self.leaf])
        return np.where(s.leaf_scale[self.leaf] > 0, own.scale(self.left(s)), 0.0)

    def factors(self, s: Structure) -> Array:
        """(..., 5): a' / a, a w b, w b, 1 / a' - 1 / a, and what the sum of a leaf that no row is left in loses besides.

        A constant leaf stays as it is.
        """
        scale, left = s.leaf_scale[self.leaf], self.left_scale(s)
        moving = scale > 0
        kept = np.divide(left, scale, out=np.ones_like(scale), where=moving)
        stiffer = np.where(moving & (left > 0), -self.weight, 0.0)  # exactly, after one step
        several = moving & (left > 0) & (known_regularisation(s).steps[self.leaf] > 1)
        stiffer[several] = 1.0 / left[several] - 1.0 / scale[several]
        constant = np.zeros_like(scale)
        if s.shift is not None:
            np.divide(s.shift[self.leaf], scale, out=constant, where=moving & (left == 0))
        return np.stack([kept, scale * self.weight, self.weight, stiffer, constant], axis=-1)


class Which:
    """Which training rows have, in any tree, a part of their leaf that is such and such."""

    def __init__(self, s: Structure, such: Callable[[Parts, Structure], NDArray[np.bool_]]):
        self._structure, self._such = s, such
        self._cells = such(Parts.of_cells(s), s) if s.row_weights is None else None

    def __call__(self, rows: slice) -> NDArray[np.bool_]:
        """(rows,): each of these."""
        s = self._structure
        if self._cells is None:
            return np.asarray(self._such(Parts.of_rows(s, rows), s).any(axis=0))
        found = np.zeros(rows.stop - rows.start, dtype=np.bool_)
        for cells, (a, b) in zip(s.cells[:, rows], pairwise(s.cell_starts)):
            if self._cells[a:b].any():
                found |= self._cells[a:b][cells]
        return found

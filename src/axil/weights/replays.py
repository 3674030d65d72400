"""Replays: deletions of rows by fits without one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.machine.progress import track
from axil.weights.answers import RowEffects
from axil.weights.deletion_work import walked_blocks
from axil.weights.levels import base_without
from axil.weights.residuals import FittedValues

HELD = 1 << 28  # bytes of fits without rows that are kept from one batch of queries to the next


@dataclass(frozen=True)
class ByReplay:
    """Deletions by fits without one row after the other."""

    fitted: FittedValues  #: with all rows
    refit: Callable[[int, FloatArray], FittedValues]  #: without this row, to these targets
    _kept: dict[int, FittedValues | None] = field(
        default_factory=dict
    )  #: fits without single rows, as far as they fit

    def blocks(self) -> list[slice]:
        return walked_blocks(self.fitted.structure, self.fitted.targets.shape[1])

    def without(self, j: int) -> FittedValues | None:
        """The fit without row j; None: no weight is left."""
        if j not in self._kept:
            lost = np.isnan(base_without(self.fitted, slice(j, j + 1))).any()
            found = None if lost else self.refit(j, self.fitted.targets)
            s = self.fitted.structure
            if 8 * (s.n_rows + 4 * s.total_leaves) * len(self._kept) > HELD:
                return found
            self._kept[j] = found
        return self._kept[j]

    def alone(self, rows: slice) -> FloatArray:
        f, leaves = self.fitted, self.fitted.structure.leaves(rows)
        found = np.full((f.targets.shape[1], len(leaves) + 1, leaves.shape[1]), np.nan)
        for i, j in enumerate(range(rows.start, rows.stop)):
            fitted = self.without(j)
            if fitted is not None:
                seen = fitted.residuals(leaves[:, i : i + 1], f.started(slice(j, j + 1)))
                for t, residual in enumerate(seen):
                    found[:, t, i] = residual[0]
        return found

    def changes(self, j: int, queries: LeafArray) -> FloatArray:
        """(n, K): the changes of predictions in these leaves, (n, T), without row j."""
        before, fitted = self.fitted.predictions(queries.T), self.without(j)
        return (
            np.full_like(before, np.nan)
            if fitted is None
            else fitted.predictions(queries.T) - before
        )

    def effects(self, queries: LeafArray) -> Sequence[RowEffects]:
        return [ReplayedEffects(self, queries, k) for k in range(self.fitted.targets.shape[1])]


@dataclass(frozen=True)
class ReplayedEffects(RowEffects):
    """Changes of n predictions of one output on deleting each of N rows, by replays."""

    deletion: ByReplay
    queries: LeafArray
    output: int

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        for j in track(range(self.deletion.fitted.structure.n_rows), "deletions"):
            yield j, self.deletion.changes(j, self.queries)[None, :, self.output]

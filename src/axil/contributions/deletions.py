"""AdditiveDeletions: replays of fits of boosted trees of any loss without some of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from axil.aliases import FeatureTable
from axil.arrays import FloatArray, IntArray
from axil.contributions.boosting import Boosting
from axil.errors import InputError
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.replay.deletions import ReplayedDeletions
from axil.replay.queries import Offsets, QueryBatch, reflected

if TYPE_CHECKING:
    from axil.contributions.additive_model import AdditiveModel

TOGETHER = 1 << 15  # rows of all copies that replays walk together: their scores stay in the cache
# times the score of a fit without rows: a change of the model's own score to it is not taken, for
# it loses digits
HUGE = 1e3
SECONDS = 6e-8  # of one row in one step of a tree, with its gradient; measured on one core


@dataclass(frozen=True, eq=False)
class AdditiveDeletions(ReplayedDeletions):
    """Deletions by replays, which recompute the gradients of the rows that remain."""

    model: AdditiveModel

    @property
    def has_first_order(self) -> bool:
        boosting = self.model.boosting
        return not boosting.underived and not boosting.label_weights.are_counted

    @property
    def pass_seconds(self) -> float:
        return SECONDS * self.model.shape[0] * len(self.model.boosting.walked.steps)

    def seconds(self, available: int) -> tuple[float, bool]:
        return self.model.shape[0] * self.pass_seconds, False

    def predicted_without(self, queries: QueryBatch, rows: IntArray) -> FloatArray:
        remaining_weights = self.model.boosting.walked.weights.copy()
        remaining_weights[rows] = 0.0
        if not remaining_weights.any():
            raise InputError(
                f"Without {len(rows)} rows no row with a weight is left; ask for a smaller set."
            )
        model = self.model.with_offsets_of(queries)
        fits = model.deleted([rows[:0], rows], "without")
        before, without = fits.scores(queries.coordinates)
        change = without - before
        after = without
        if model.offsets is not None:  # of these rows, which both fits leave out
            after = after + model.offsets.values
        is_huge = np.abs(change) > HUGE * np.abs(without)
        scores = np.where(is_huge, after, queries.own_predictions + change)
        return reflected(scores, self.model.reflection)

    def own_predictions(self, sets_of_rows: Sequence[IntArray]) -> Iterator[FloatArray]:
        offsets = Offsets.of(
            self.model.boosting.rows.offsets, self.model.shape[0], self.model.adapter
        )
        model = self.model.boosting.shifted(
            offsets
        )  # which may stand in for the base, and then it does not move
        leaves = model.walked.leaves.T
        no_rows = np.zeros(0, dtype=np.intp)
        with_all = model.deleted([no_rows], "without").scores(leaves)[0]
        n_together = replays_together(model)
        for first in range(0, len(sets_of_rows), n_together):
            some_sets = sets_of_rows[first : first + n_together]
            fits = model.deleted(some_sets, "without")
            for number, rows in enumerate(some_sets):
                without = fits[number].scores(leaves[rows])[0]
                scores = model.fitted[rows] + (without - with_all[rows])
                yield reflected(scores, self.model.reflection)


def by_replay(model: Boosting, X: FeatureTable) -> Iterator[tuple[int, list[FloatArray]]]:
    """Yield the changes of scores in replays of the refit without one row each.

    A block has many replays. It has the number of its first training row and, for each output, the
    changes (rows, n). The only row of any weight cannot be deleted: its changes are nan.
    """
    leaves = model.located(X)[0]
    n_rows = len(model.targets)
    no_rows = np.zeros(0, dtype=np.intp)
    before = model.deleted([no_rows], "removal").scores(leaves)[0]
    weighted_rows = np.flatnonzero(model.walked.weights)
    for block in track(spans(n_rows, replays_together(model)), "removal"):
        rows = np.arange(block.start, block.stop)
        if len(weighted_rows) == 1:
            deleted_rows = [no_rows] * len(rows)
        else:
            deleted_rows = list(rows[:, None])
        change = model.deleted(deleted_rows, "removal").scores(leaves) - before  # (rows, n, K)
        if len(weighted_rows) == 1:
            change[np.isin(rows, weighted_rows)] = np.nan
        yield block.start, list(change.transpose(2, 0, 1))


def replays_together(model: Boosting) -> int:
    """Return the number of replays that run at the same time."""
    return max(1, TOGETHER // int(model.targets.size))

"""Deletions: the fits of a verified model without some of its training rows.

`axil.weights` and `axil.contributions` define a deletion: the rows are gone, the tree structure is
fixed, and every rule of the library is applied to the rows that remain. The classes here ask for
it: in memory, or in the partitions of Dask collections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.adapters.contract import Kind
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import notes
from axil.machine.progress import track
from axil.reductions.top import Best
from axil.replay.queries import QueryBatch
from axil.replay.training_columns import GroupCodes, Positions

if TYPE_CHECKING:
    from axil.replay.verified_model import Refittable, VerifiedModel

REPLAYED = (
    "exact with the fitted structure fixed: every leaf value is computed again; not a retraining"
)


@dataclass(frozen=True)
class WithoutRows:
    """Predictions of the refit without some training rows."""

    before: FloatArray  #: (n, K) with all rows
    after: FloatArray  #: (n, K)
    #: leaves of averaged trees that lose all their rows, and have their ancestors' values
    emptied: int = 0


@dataclass(frozen=True)
class WithoutGroups:
    """Predictions without each of G groups of training rows."""

    names: AnyArray  #: (G,)
    counts: IntArray  #: (G,) rows of each
    before: FloatArray  #: (n, K) with all rows
    after: FloatArray  #: (n, K, G); nan where no row is left


@dataclass(frozen=True, eq=False)
class Deletions(ABC):
    """The refits of a model without some of its training rows.

    A subclass defines the methods that its kind of model has. `Capabilities` refuses all others
    before.
    """

    model: VerifiedModel

    @property
    def has_first_order(self) -> bool:
        """Whether there are first-order effects of deletions."""
        return True

    @property
    def has_active_set(self) -> bool:
        """Whether leaf values need more than a linear rule of the weights of their own rows."""
        return False

    @property
    def ranks_or_clips(self) -> bool:
        """Whether leaves rank their rows, or clip residuals: percentiles, Huber's loss."""
        return False

    @property
    def is_exact_fast(self) -> bool:
        """Whether exact effects of single rows take no longer than first-order ones."""
        return False

    @property
    def n_emptied(self) -> int:
        """The number of leaves without rows in averaged trees; they inherit a value."""
        return 0

    @property
    def pass_seconds(self) -> float:
        """The approximate time of a refit without some rows."""
        return 0.0

    def seconds(self, available: int) -> tuple[float, bool]:
        """Return the seconds that all single deletions take, and whether in the leaf matrix.

        ``available`` bytes may be taken.
        """
        return 0.0, True

    def n_replayed(self) -> int:
        """Return the number of rows whose deletion is replayed, as for another active set."""
        return 0

    def note(self) -> str:
        """Return the note on exact deletions of single rows."""
        if not self.has_active_set:
            return notes.NOTE
        n_replayed = self.model.kept.get("replayed", self.n_replayed)
        return notes.replayed(n_replayed, self.model.shape[0])

    @property
    def replay_note(self) -> str:
        """The note of tables on fits that were computed again."""
        if self.model.kind is Kind.ADDITIVE:
            return self.model.note(REPLAYED)
        if self.has_active_set:
            return self.model.note(notes.PATTERN)
        return self.model.note(notes.NOTE)

    def share_of(self, rows: Positions) -> float:
        """Return the share of these rows in the weight of the fit; 0 if there are no splits."""
        raise NotImplementedError

    def without(self, queries: QueryBatch, rows: Positions) -> WithoutRows:
        """Return predictions of the fit, and of the refit without these rows, splits fixed."""
        raise NotImplementedError

    def without_groups(
        self, queries: QueryBatch, group_codes: Sequence[GroupCodes]
    ) -> WithoutGroups:
        """Return predictions without each group of training rows."""
        raise NotImplementedError

    def in_turn(self, batch: QueryBatch, best: Best) -> Best:
        """Return rows that are chosen one after the other, in sets as large as ``best``.

        Each row has the largest effect after the deletion of the rows before it.

        The effects are exact.
        """
        raise NotImplementedError

    def training_errors(self, out_of_fold: Any, method: str) -> tuple[Sequence[Any], str] | None:
        """Return the targets minus out-of-fold predictions, shard by shard, and their source.

        None: the place of the rows has no algorithm of its own.
        """
        return None


class ReplayedDeletions(Deletions):
    """Deletions of training rows in this process."""

    model: Refittable

    @abstractmethod
    def predicted_without(self, queries: QueryBatch, rows: IntArray) -> FloatArray:
        """Return the predictions of the refit without these rows, (n, K); the splits are fixed."""

    @abstractmethod
    def own_predictions(self, sets_of_rows: Sequence[IntArray]) -> Iterator[FloatArray]:
        """Yield the predictions (rows, K) of each set of training rows by the refit without them.

        Predictions, or scores, have the offsets of the fit. They are nan if none of the rows that
        an output was fitted to is left.
        """

    def share_of(self, rows: Positions) -> float:
        row_weights = self.model.row_weights
        return float(row_weights[rows].sum() / row_weights.sum())

    def without(self, queries: QueryBatch, rows: Positions) -> WithoutRows:
        before = self.model.predicted(queries)  # which compares them with the model
        return WithoutRows(before, self.predicted_without(queries, rows))

    def without_groups(
        self, queries: QueryBatch, group_codes: Sequence[GroupCodes]
    ) -> WithoutGroups:
        ((codes, names),) = group_codes
        before = self.model.predicted(queries)  # which compares them with the model
        after = np.full((*before.shape, len(names)), np.nan)
        for group in track(range(len(names)), "groups"):
            rows = np.flatnonzero(codes == group)
            if np.delete(self.model.row_weights, rows).any():
                after[:, :, group] = self.predicted_without(queries, rows)
        return WithoutGroups(names, np.bincount(codes, minlength=len(names)), before, after)

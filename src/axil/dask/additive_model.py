"""PartitionedAdditiveModel: scores as sums of what rows in the partitions of Dask collections put into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.attribution import CONTRIBUTIONS, Kind, Source
from axil.attribution.leaf_matches import TreeWeights
from axil.contributions.contributions import (
    CHANGED,
    Contributions,
    check_added,
    check_sums,
    sizes_of,
)
from axil.dask.additive_rows import AdditiveTreeWeights, LeafBatch, leaf_row_counts
from axil.dask.cluster import literal, task
from axil.dask.model import PartitionedModel
from axil.dask.on_workers import HeldRows
from axil.machine.threads import Cache
from axil.replay.queries import Combination, QueryBatch
from axil.replay.replayed_stages import ReplayedStages
from axil.replay.score_checks import leaf_scores

ASKED_QUERIES = 1024  # sent to the workers at a time


@dataclass(frozen=True)
class HeldAdditiveRows(HeldRows):
    """The training rows on the workers, and the fit here and there."""

    walked: ReplayedStages  #: without rows
    shared: Any  #: the same, delayed and held
    largest: float  #: |score| of a training row
    #: (L, 1), or (L, K) where trees are shared: what all rows put into each leaf, by absolute value
    leaf_sizes: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedAdditiveModel(PartitionedModel):
    """Training rows in partitions whose gradients make the scores; there are no derivatives here."""

    training_rows: HeldAdditiveRows
    verify: bool = True
    kept: Cache = field(default_factory=Cache)

    kind = Kind.ADDITIVE
    source = CONTRIBUTIONS
    contribution_source = CONTRIBUTIONS
    has_leaves = True

    @property
    def trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        return self.training_rows.walked.fit.table.n_leaves, [slice(None)]

    @property
    def scored(self) -> Any:
        names = self.classes
        if names is None or self.outputs is not None:
            return None
        return names[1]

    @property
    def starts_elsewhere(self) -> bool:
        return not self.training_rows.walked.fit.schedule.shares_of_initial[0]

    @property
    def rescales_trees(self) -> bool:
        return self.training_rows.walked.fit.schedule.tree_shares is not None

    def _tree_weights(self, rule: str) -> TreeWeights:
        walked = self.training_rows.walked
        if rule != "variance":
            return AdditiveTreeWeights(
                counted=rule == "improved", walked=walked, n_threads=self.n_threads
            )
        n_rows = self.shards.total(leaf_row_counts, walked.starts)
        return TreeWeights([Contributions(walked, self.limits).spreads(n_rows)])

    def most_asked(self) -> int:
        return ASKED_QUERIES

    def _starts(self, queries: QueryBatch) -> FloatArray:
        """Return where scores start, (n, K)."""
        base = self.training_rows.walked.fit.initial.values
        starts: FloatArray = queries.offsets.base * base + queries.offsets.values
        return starts

    def asked(self, batch: Any, source: Source) -> Any:
        """Return the query batch that goes to the workers."""
        walked = self.training_rows.walked
        if isinstance(batch, Combination):
            contributions = Contributions(walked, self.limits)
            leaves: Any = contributions.mixed_tables(batch.coordinates, batch.factors)
            starts = batch.of(self._starts(batch.queries))
        else:
            leaves = np.ascontiguousarray(batch.coordinates)
            starts = self._starts(batch)
        leaf_batch = LeafBatch(leaves, starts, batch.start, self.n_threads)
        return task(LeafBatch.with_fit, literal(leaf_batch), self.training_rows.shared)

    def verify_predictions(self, batch: Any, predictions: FloatArray | None) -> None:
        """Compare the sums of leaves with the model's scores, and the sums of contributions with those of leaves."""
        if not self.verify or not len(batch):
            return
        training_rows = self.training_rows
        fit = training_rows.walked.fit
        largest = training_rows.largest
        if isinstance(batch, Combination):
            queries = batch.queries
        else:
            queries = batch
        starts = self._starts(queries)
        leaves = queries.coordinates
        sizes = sizes_of(fit, fit.initial.values, training_rows.leaf_sizes, leaves)
        sizes += np.abs(queries.offsets.values)
        as_added = leaf_scores(fit, leaves, starts, rounded=True)
        tolerance = self.adapter.gradient_tolerance
        check_sums(as_added, queries.predictions, sizes, tolerance, largest, CHANGED)
        if predictions is not None:
            of_leaves = leaf_scores(fit, leaves, starts, rounded=False)
            check_added(batch, predictions, of_leaves, sizes, largest)

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        loss = self.training_rows.walked.loss
        if loss.meaning:
            return {loss.meaning: self.calibrated(scores, loss.mean(scores))}
        return {}

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        n_rows, n_outputs = self.shape
        if whole:
            return 16 * n_rows * n_outputs
        return 8 * (len(self.training_rows.walked.leaves) + 64 * n_outputs)

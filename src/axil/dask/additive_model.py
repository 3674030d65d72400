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
from axil.machine.threads import Kept
from axil.replay.queries import Combination, Queries
from axil.replay.replayed_stages import ReplayedStages
from axil.replay.score_checks import leaf_scores

ASKED_QUERIES = 1024  # sent to the workers at a time


@dataclass(frozen=True)
class HeldAdditiveRows(HeldRows):
    """The training rows on the workers, and the fit here and there."""

    walked: ReplayedStages  #: without rows
    shared: Any  #: the same, delayed and held
    largest: float  #: |score| of a training row
    leaf_sizes: FloatArray  #: (L, 1), or (L, K) where trees are shared: what all rows put into each leaf, by absolute value


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedAdditiveModel(PartitionedModel):
    """Training rows in partitions whose gradients make the scores; there are no derivatives here."""

    held: HeldAdditiveRows
    verify: bool = True
    kept: Kept = field(default_factory=Kept)

    kind = Kind.ADDITIVE
    source = CONTRIBUTIONS
    contribution_source = CONTRIBUTIONS
    has_leaves = True

    @property
    def trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        return self.held.walked.fit.n_leaves, [slice(None)]

    @property
    def scored(self) -> Any:
        names = self.classes
        return None if names is None or self.outputs is not None else names[1]

    @property
    def starts_elsewhere(self) -> bool:
        return not self.held.walked.fit.schedule.shares_of_initial[0]

    @property
    def rescales_trees(self) -> bool:
        return self.held.walked.fit.schedule.tree_shares is not None

    def _tree_weights(self, rule: str) -> TreeWeights:
        walked = self.held.walked
        if rule != "variance":
            return AdditiveTreeWeights(
                counted=rule == "improved", walked=walked, n_threads=self.n_threads
            )
        n_rows = self.shards.total(leaf_row_counts, walked.starts)
        return TreeWeights([Contributions(walked, self.limits).spreads(n_rows)])

    def most_asked(self) -> int:
        return ASKED_QUERIES

    def _starts(self, queries: Queries) -> FloatArray:
        """(n, K): where scores start."""
        found: FloatArray = (
            queries.offsets.base * self.held.walked.fit.base_value + queries.offsets.values
        )
        return found

    def asked(self, batch: Any, source: Source) -> Any:
        if isinstance(batch, Combination):
            tables = Contributions(self.held.walked, self.limits).mixed_tables(
                batch.coordinates, batch.factors
            )
            own = LeafBatch(
                tables, batch.of(self._starts(batch.queries)), batch.start, self.n_threads
            )
        else:
            leaves = np.ascontiguousarray(batch.coordinates)
            own = LeafBatch(leaves, self._starts(batch), batch.start, self.n_threads)
        return task(LeafBatch.with_fit, literal(own), self.held.shared)

    def prove(self, batch: Any, predictions: FloatArray | None) -> None:
        """Compare the sums of leaves with the model's scores, and the sums of pushes with those of leaves."""
        if not self.verify or not len(batch):
            return
        held, fit = self.held, self.held.walked.fit
        rows = batch.queries if isinstance(batch, Combination) else batch
        starts = self._starts(rows)
        of_leaves, as_added = (
            leaf_scores(fit, rows.coordinates, starts, rounded=own) for own in (False, True)
        )
        sizes = sizes_of(fit, fit.base_value, held.leaf_sizes, rows.coordinates)
        sizes += np.abs(rows.offsets.values)
        check_sums(
            as_added,
            rows.predictions,
            sizes,
            self.adapter.gradient_tolerance,
            held.largest,
            CHANGED,
        )
        if predictions is not None:
            check_added(batch, predictions, of_leaves, sizes, held.largest)

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        loss = self.held.walked.loss
        return {loss.meaning: self.calibrated(scores, loss.mean(scores))} if loss.meaning else {}

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        n_rows, n_outputs = self.shape
        return (
            16 * n_rows * n_outputs
            if whole
            else 8 * (len(self.held.walked.leaves) + 64 * n_outputs)
        )

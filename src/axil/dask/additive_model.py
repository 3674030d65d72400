"""Scores as sums of what training rows in partitions put into them.

Given the model's own leaf values, a row's scores before every tree depend on that row alone. So
each partition is walked by itself, and the sums of gradients that made each leaf value are sums
over partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import AnyArray, BoolArray, Cells, FloatArray, IntArray
from axil.attribution import CONTRIBUTIONS, Attribution, Effects, Kind, Source
from axil.attribution.block_effects import BlockEffects, LeafComparison, NoEffects
from axil.attribution.capabilities import SCORES_ALONE, TREES_BY_ERRORS, Refusal
from axil.attribution.leaf_matches import SharedLeaves, TreeWeights, count_rows
from axil.contributions.additive_model import calibrated
from axil.contributions.contributions import (
    CHANGED,
    Contributions,
    check_added,
    check_sums,
    sizes_of,
)
from axil.dask.cluster import Delayed, Features, HeldRows, PartitionRows, literal, task
from axil.dask.gathered_contributions import GatheredAdditiveModel
from axil.dask.model import PartitionedModel
from axil.dask.training_rows import ObservedRows, Place, SharedFit
from axil.machine.memory import Budget, Limits
from axil.machine.threads import Cache
from axil.replay.compare_predictions import Miss, furthest, worse
from axil.replay.fitted_trees import FittedTrees
from axil.replay.queries import Combination, QueryBatch
from axil.replay.recover import assign_leaves
from axil.replay.replayed_stages import ReplayedStages, leaf_scores, lost_beside
from axil.replay.verified_model import FitOffsets
from axil.structure import RowTotals, Transferable

SENT_ROWS = 1024  # explained rows that are sent to the workers at a time


@dataclass(frozen=True)
class HeldAdditiveRows(HeldRows):
    """The training rows on the workers, and the fit in this process and on the workers."""

    walked: ReplayedStages  #: without rows
    shared: Delayed  #: the same
    largest: float  #: the largest absolute score of a training row
    #: (L, 1), or (L, K) where trees are shared: what all rows put into each leaf, by absolute value
    leaf_sizes: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedAdditiveModel(PartitionedModel):
    """Training rows in partitions whose gradients make the scores; it has no derivatives."""

    training_rows: HeldAdditiveRows
    verify: bool = True
    kept: Cache = field(default_factory=Cache)

    kind = Kind.ADDITIVE
    source = CONTRIBUTIONS

    @property
    def walked(self) -> ReplayedStages:
        """The fit, without rows."""
        return self.training_rows.walked

    @property
    def tree_layout(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The number of leaves of each tree; the only entry has all trees."""
        return self.walked.fit.table.n_leaves, [slice(None)]

    def has_link_of(self, source: Source) -> bool:
        """Return whether a link turns scores into predictions."""
        return bool(self.walked.loss.meaning)

    @property
    def fit_offsets(self) -> FitOffsets:
        """The offsets of the training rows that replaced the initial prediction in the fit."""
        replaced_initial = not self.walked.fit.schedule.shares_of_initial[0]
        return FitOffsets(replaced_initial, replaced_initial)

    @property
    def trees(self) -> PartitionedAdditiveTrees:
        """The trees."""
        return PartitionedAdditiveTrees(self)

    def own_refusals(self) -> dict[str, Refusal]:
        """Return the methods that this model refuses because of its own fit."""
        refusals = super().own_refusals()
        if self.names.classes is None:
            refusals["find_label_issues"] = (
                "labels that are counts or amounts are checked by fits without folds of the rows, "
                "which other losses than squared error do not have over partitions",
                "Use training rows in memory.",
            )
        if not self.walked.loss.predicts_targets:
            refusals[TREES_BY_ERRORS] = SCORES_ALONE
        return refusals

    def for_method(  # type: ignore[override]
        self, method: str
    ) -> PartitionedAdditiveModel | GatheredAdditiveModel:
        """Return the model that answers a method: this one, or one with numbers for all rows."""
        if method == "find_label_issues":
            return GatheredAdditiveModel(self)
        return self

    def most_asked(self) -> int:
        """Return how many explained rows are sent to the workers at a time."""
        return SENT_ROWS

    def _starts(self, batch: QueryBatch) -> FloatArray:
        """Return the initial scores of explained rows, (n, K)."""
        starts: FloatArray = (
            batch.offsets.base * self.walked.fit.initial.values + batch.offsets.values
        )
        return starts

    def asked(self, batch: QueryBatch | Combination, source: Source) -> Delayed:
        """Return the batch that goes to the workers."""
        if isinstance(batch, Combination):
            contributions = Contributions(self.walked, self.limits)
            leaves: Any = contributions.mixed_tables(batch.coordinates, batch.factors)
            starts = batch.of(self._starts(batch.queries))
        else:
            leaves = np.ascontiguousarray(batch.coordinates)
            starts = self._starts(batch)
        leaf_batch = LeafBatch(leaves, starts, batch.start, self.n_threads)
        return task(LeafBatch.with_fit, literal(leaf_batch), self.training_rows.shared)

    def verify_predictions(
        self, batch: QueryBatch | Combination, predictions: FloatArray | None
    ) -> None:
        """Raise unless leaf values add up to scores, and contributions to leaf values."""
        if not self.verify or not len(batch):
            return
        fit = self.walked.fit
        largest = self.training_rows.largest
        if isinstance(batch, Combination):
            rows = batch.queries
        else:
            rows = batch
        starts = self._starts(rows)
        leaves = rows.coordinates
        sizes = sizes_of(fit, fit.initial.values, self.training_rows.leaf_sizes, leaves)
        sizes += np.abs(rows.offsets.values)
        rounded_scores = leaf_scores(fit, leaves, starts, rounded=True)
        tolerance = self.adapter.gradient_tolerance
        check_sums(rounded_scores, rows.predictions, sizes, tolerance, largest, CHANGED)
        if predictions is not None:
            exact_scores = leaf_scores(fit, leaves, starts, rounded=False)
            check_added(batch, predictions, exact_scores, sizes, largest)

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        """Return the probabilities or means that belong to scores, by name."""
        loss = self.walked.loss
        if loss.meaning:
            return {loss.meaning: calibrated(self.adapter, scores, loss.mean(scores))}
        return {}

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        """Return the bytes that an explained row takes in this process."""
        n_rows, n_outputs = self.shape
        if whole:
            return 16 * n_rows * n_outputs
        return 8 * (len(self.walked.leaves) + 64 * n_outputs)


@dataclass(frozen=True, eq=False)
class PartitionedAdditiveTrees(FittedTrees):
    """The trees of a model of contributions whose rows are in partitions."""

    model: PartitionedAdditiveModel

    @property
    def are_rescaled(self) -> bool:
        """Whether trees are scaled again after others were fitted, as in DART."""
        return self.model.walked.fit.schedule.tree_shares is not None

    def weights(self, rule: str) -> TreeWeights:
        """Return the weights of trees in comparisons of rows."""
        model = self.model
        walked = model.walked
        if rule != "variance":
            return AdditiveTreeWeights(
                counted=rule == "improved", walked=walked, n_threads=model.n_threads
            )
        n_rows = model.shards.total(leaf_row_counts, walked.starts)
        return TreeWeights([Contributions(walked, model.limits).spreads(n_rows)])


# -- the work on one partition ---------------------------------------------------------------------


@dataclass(frozen=True)
class AdditivePartition(PartitionRows, Attribution["LeafBatch"]):
    """The n training rows of one partition: their leaves, targets and labels."""

    leaves: Cells  #: (T, n)
    rounded: FloatArray  #: (n, K) targets as the library keeps them
    weights: FloatArray  #: (n,)
    score: FloatArray  #: (n, K) or (K,) before the first tree

    def leaves_of(self, rows: IntArray) -> list[AnyArray]:
        """Return the leaves of some rows, (T, rows)."""
        return [np.ascontiguousarray(self.leaves[:, rows])]

    def contributions(self, walked: ReplayedStages, n_threads: int) -> Contributions:
        """Return the contributions of these rows to scores, from a fit that has no rows itself."""
        fit_of_rows = replace(
            walked, leaves=self.leaves, targets=self.rounded, weights=self.weights, start=self.score
        )
        return Contributions(fit_of_rows, Limits(n_threads, Budget(None)))

    def contribution_effects(self, query_batch: LeafBatch) -> Effects:
        """Return the contributions of these rows to the scores of a batch."""
        batch = query_batch
        n_outputs = self.targets.shape[1]
        assert batch.walked is not None
        if not len(self.index):
            return NoEffects([(k,) for k in range(n_outputs)], batch.starts, batch.first)
        contributions = self.contributions(batch.walked, batch.n_threads)
        read: Any = contributions.blocks
        if batch.is_of_sums:
            read = contributions.read
        effects = BlockEffects(
            partial(read, batch.leaves),
            self.targets.shape,
            len(batch.starts),
            batch.starts,
            first=batch.first,
        )
        effects.shared_leaves = lambda: SharedLeaves.of([contributions.rows], [batch.leaves])
        return effects

    def leaf_comparison(self, query_batch: LeafBatch) -> Effects:
        """Return the leaves that explained rows share with these rows."""
        batch = query_batch
        assert batch.walked is not None
        rows = self.contributions(batch.walked, batch.n_threads).rows
        return LeafComparison(
            lambda: SharedLeaves.of([rows], [batch.leaves]),
            self.targets.shape,
            len(batch.starts),
            batch.first,
        )


@dataclass(frozen=True)
class LeafBatch(Transferable):
    """The leaves of n explained rows, as axil sends them to the workers."""

    #: (n, T); of sums of rows for each output a table (C_k, n), see `Contributions.read`
    leaves: Any
    starts: FloatArray  #: (n, K) initial scores
    first: int  #: the position of the first row in the whole request
    n_threads: int
    walked: ReplayedStages | None = None  #: the fit, whose steps are those of all rows

    @property
    def is_of_sums(self) -> bool:
        """Whether the batch is of sums of explained rows."""
        return isinstance(self.leaves, list)

    def with_fit(self, walked: ReplayedStages) -> LeafBatch:
        """Return the batch with the fit that explains it."""
        return replace(self, walked=walked)


def leaf_row_counts(rows: AdditivePartition, starts: IntArray, _: None = None) -> IntArray:
    """Return the number of these rows in each leaf, (L,)."""
    return count_rows(rows.leaves, starts)


@dataclass(frozen=True, eq=False)
class AdditiveTreeWeights(TreeWeights):
    """Weights of trees that differ by row: how much a tree reduced the error of the row."""

    walked: ReplayedStages | None = None
    n_threads: int = 1

    def on(self, shard: object) -> TreeWeights:
        """Return the weights of trees for the rows of a partition."""
        assert isinstance(shard, AdditivePartition)
        assert self.walked is not None
        rows = shard.contributions(self.walked, self.n_threads)
        return TreeWeights(None, lambda block: [rows.reductions(block)], self.counted)


@dataclass(frozen=True)
class GradientSums(RowTotals):
    """Sums of gradients over leaves, and how far scores are from the model's."""

    counts: NDArray[np.int64]  #: (L,) rows of the fit
    g: FloatArray  #: (L, 1), or (L, K) where trees are shared
    h: FloatArray
    sizes: FloatArray  #: likewise, of absolute values of g
    largest: float = field(metadata={"both": max})  #: the largest absolute score of these rows
    #: digits lost in the rounding of the scores that these rows start from
    lost: float = field(metadata={"both": max})
    miss: Miss = field(
        metadata={"both": worse}
    )  #: the largest distance of a score from the model's

    @classmethod
    def of(
        cls, rows: AdditivePartition, fit: BoostedFit, in_fit: BoolArray, miss: Miss
    ) -> GradientSums:
        """Walk rows through the fit with the model's own leaf values.

        Parameters
        ----------
        rows : AdditivePartition
        fit : BoostedFit
            The fit, without rows.
        in_fit : array of shape (n,)
            Whether each row was not held out of the fit.
        miss : Miss
            The largest distance of a score from the model's.
        """
        starts = fit.table.starts
        gradients, hessians, sizes = (np.zeros_like(fit.table.leaf_values) for _ in range(3))
        counts = np.zeros(int(starts[-1]), dtype=np.int64)
        score: AnyArray = (rows.score + np.zeros_like(rows.rounded)).astype(fit.score_precision)
        for trees in fit.schedule.trees_of_rounds:
            g, h = fit.loss.weighted_slopes(rows.rounded, score, rows.weights)
            for t in trees:
                leaf = rows.leaves[t]
                n_leaves = int(fit.table.n_leaves[t])
                leaves = slice(starts[t], starts[t + 1])
                counts[leaves] = np.bincount(leaf[in_fit], minlength=n_leaves)
                for column, k in enumerate(fit.schedule.outputs_of(t, score.shape[1])):
                    gradients[leaves, column] = np.bincount(leaf, g[:, k], n_leaves)
                    hessians[leaves, column] = np.bincount(leaf, h[:, k], n_leaves)
                    sizes[leaves, column] = np.bincount(leaf, np.abs(g[:, k]), n_leaves)
                    values = fit.table.leaf_values[leaves, column].astype(score.dtype, copy=False)
                    score[:, k] += values[leaf]
        largest = float(np.abs(score).max(initial=0.0))
        return cls(counts, gradients, hessians, sizes, largest, lost_beside(rows.score), miss)


def walk_partition(
    X: Features, observed: ObservedRows, in_bag: None, place: Place, shared: SharedFit
) -> tuple[AdditivePartition, GradientSums]:
    """Assign the rows to their leaves and walk them through the fit.

    Memory has their n T leaf numbers.
    """
    (fit,) = shared.fits
    (weights,) = place.row_weights
    (held_out,) = place.held_out
    assert weights is not None
    X, labels = place.read(X, observed, shared.adapter)
    n_rows = len(observed.targets)
    limits = Limits(shared.n_threads, Budget(None))  # of this worker
    leaves = assign_leaves(shared.adapter, X, n_rows, fit.table.n_leaves, limits)
    start = fit.schedule.shares_of_initial[0] * fit.initial.values
    if observed.offsets is not None:
        start = start + observed.offsets
    rows = AdditivePartition(
        place.start, observed.targets_as_given, labels, leaves, observed.targets, weights, start
    )
    if held_out is None:
        in_fit = np.ones(n_rows, dtype=np.bool_)
    else:
        in_fit = ~held_out
    miss = _furthest_score(X, rows, shared)
    return rows, GradientSums.of(rows, fit, in_fit, miss)


def _furthest_score(X: Features, rows: AdditivePartition, shared: SharedFit) -> Miss:
    """Return the largest difference of sums of leaf values from the library's scores of rows."""
    n_rows = len(rows.index)
    checked = np.arange(0, n_rows, max(1, -(-n_rows // shared.n_checked)))
    if not len(checked):
        return Miss(0.0, 0, 0.0, 0.0)
    expected = shared.adapter.scores(inputs.take_rows(X, checked))
    sums = leaf_scores(shared.fits[0], rows.leaves[:, checked].T, rounded=True)
    miss = furthest(sums, expected)
    return replace(miss, row=rows.start + int(checked[miss.row]))

"""Predictions as weighted sums of targets that lie in the partitions of Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import OffsetRule
from axil.arrays import FloatArray
from axil.attribution import WEIGHTS, Kind, Quantity, Source
from axil.attribution.capabilities import Refusal
from axil.attribution.leaf_matches import TreeWeights, tree_spreads
from axil.dask.cluster import (
    Cluster,
    Delayed,
    literal,
    task,
)
from axil.dask.deletions import IN_MEMORY, Planned, Refits
from axil.dask.exact_deletions import PartitionedDeletions
from axil.dask.exact_rows import AdjointBatch, ExactPartition, HeldExactRows, cooccurrences
from axil.dask.fits import Fit, FitTreeWeights, leaf_row_counts, residuals
from axil.dask.gathered_model import GatheredModel
from axil.dask.model import PartitionedModel
from axil.machine.threads import Cache
from axil.reductions.choice import Allowed
from axil.replay.compare_predictions import check_answer
from axil.replay.fitted_trees import FittedTrees
from axil.replay.queries import Combination, QueryBatch
from axil.replay.verified_model import FitOffsets, VerifiedModel, WeightLayout
from axil.structure import Structure, all_n_leaves, output_groups
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import own_leaves
from axil.weights.fit_rules import rule_of
from axil.weights.forest import is_forest
from axil.weights.leaf_matrix import LeafMatrix

SENT_BYTES = 1 << 22  # of adjoints that are sent to the workers at a time: Dask warns of more

#: Methods with a number for every training row in their answer or argument, see `GatheredModel`.
GATHERED_METHODS = frozenset(
    {
        "find_label_issues",
        "diagnostics.degrees_of_freedom",
        "influence",
        "diagnostics.leave_one_out",
        "diagnostics.leave_one_out_curve",
        "diagnostics.leverage",
        "min_label_changes",
        "jacobian.sensitivity",
        "shapley",
        "diagnostics.standard_error",
        "what_if",
    }
)
#: Those of them that fit the model again without some rows.
GATHERED_DELETIONS = (
    "find_label_issues",
    "influence",
    "diagnostics.leave_one_out_curve",
    "shapley",
)


def in_leaf_matrix(
    cluster: Cluster,
    partitions: list[Delayed],
    trees: BoostedTrees,
    entry: int,
    n_threads: int,
) -> BoostedTrees:
    """Return the trees in the leaf matrix: O(T^2 N) on the workers, 8 L^2 bytes from each."""
    if trees.leaf_matrix is not None:
        return trees
    if is_forest(trees.structure):
        return trees.in_leaf_matrix(LeafMatrix(trees.structure, None, trees.backend))
    tasks = [task(cooccurrences, partition, entry, n_threads) for partition in partitions]
    together = np.require(cluster.total(tasks), requirements=["C", "W", "A"])
    return trees.in_leaf_matrix(LeafMatrix.of(trees.structure, together, trees.backend))


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedExactModel(PartitionedModel):
    """Training rows in partitions whose targets make the predictions.

    The trees are in this process, in the leaf matrix.
    """

    training_rows: HeldExactRows
    kept: Cache = field(default_factory=Cache)

    kind = Kind.EXACT
    source = WEIGHTS

    @property
    def weight_layout(self) -> WeightLayout:
        """The groups of outputs that share their weights: those of each entry."""
        n_entries = len(self.training_rows.entries)
        return WeightLayout(output_groups(n_entries), is_shared=n_entries == 1)

    @property
    def trees(self) -> PartitionedExactTrees:
        """The trees."""
        return PartitionedExactTrees(self)

    def prepared(self) -> PartitionedExactModel:
        """Return this model, in the leaf matrix."""
        _ = self.entries
        return self

    @property
    def entries(self) -> list[BoostedTrees]:
        """The entries of the fitted trees, in the leaf matrix."""
        return self.kept.get("entries", self._entries)

    def _entries(self) -> list[BoostedTrees]:
        rows = self.training_rows
        return [
            in_leaf_matrix(self.cluster, rows.partitions, trees, entry, self.n_threads)
            for entry, trees in enumerate(rows.entries)
        ]

    @property
    def tree_layout(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The number of leaves of each tree, (T,), and which trees each entry has."""
        structures = [trees.structure for trees in self.training_rows.entries]
        trees_of_entries: list[Any] = []
        for structure in structures:
            if structure.columns is None:
                trees_of_entries.append(slice(None))
            else:
                trees_of_entries.append(structure.columns)
        return all_n_leaves(structures), trees_of_entries

    @property
    def fit_offsets(self) -> FitOffsets:
        """The offsets of the training rows in the fit."""
        were_given = any(s.offsets is not None for s in self.trees.structures or ())
        structure = self.training_rows.entries[0].structure
        is_added = self.adapter.offset_rule is OffsetRule.ADDED
        return FitOffsets(were_given, not is_added and not structure.initial_in_fit)

    def own_refusals(self) -> dict[str, Refusal]:
        """Return the methods that this model refuses because of its own fit."""
        refusals = super().own_refusals()
        reason = self.refits.unknown_reason()
        if reason:
            refusals |= dict.fromkeys(GATHERED_DELETIONS, (reason, IN_MEMORY))
        if any(rule_of(trees.structure).clips_residuals for trees in self.training_rows.entries):
            refusals["what_if"] = (
                "with other targets other residuals are clipped (Huber's loss), and axil does "
                "not compute which over partitions",
                "Multiply explainer(X).weights by the changes of the targets, which keeps the "
                "set of clipped residuals fixed.",
            )
        return refusals

    def for_method(self, method: str) -> VerifiedModel:
        """Return the model that answers a method: this one, or one with numbers for all rows."""
        if method in GATHERED_METHODS:
            return self.kept.get("gathered model", lambda: GatheredModel.of(self))
        return self

    # -- explained rows ----------------------------------------------------------------------------

    def most_asked(self) -> int:
        """Return how many explained rows are sent to the workers at a time."""
        n_leaves = sum(trees.structure.total_leaves for trees in self.training_rows.entries)
        return max(1, SENT_BYTES // (8 * n_leaves))

    def asked(self, batch: QueryBatch | Combination, source: Source) -> AdjointBatch | Delayed:
        """Return the adjoints of a batch, from the leaf matrix alone, for the workers."""
        phi = []
        beta = []
        intercepts = []
        leaves = []
        totals = []
        for trees in self.entries:
            batch_leaves = np.ascontiguousarray(own_leaves(trees.structure, batch.coordinates))
            base = batch.offsets.base
            if isinstance(batch, Combination):
                adjoints, constants = trees.mixed_adjoints(batch_leaves, batch.factors, base)
                batch_leaves = batch_leaves[:0]  # sums are in no leaf
            else:
                adjoints = trees.adjoints(batch_leaves, base)
                constants = trees.intercepts(adjoints, trees.constants(batch_leaves))
            intercepts.append(constants)
            phi.append(adjoints.phi)
            beta.append(adjoints.beta)
            leaves.append(batch_leaves)
            totals.append(trees.structure.total_weight)
        adjoint_batch = AdjointBatch(
            phi,
            beta,
            intercepts,
            totals,
            leaves,
            batch.offsets.values,
            batch.start,
            self.n_threads,
        )
        if source.quantity in (Quantity.WEIGHT, Quantity.SIMILARITY):
            return adjoint_batch
        if source.quantity is not Quantity.CONTRIBUTION:
            self.refits.refuse_unknown("removal")
        plans = self.refits.plans(source.quantity is Quantity.DELETION)
        return task(Planned, literal(adjoint_batch), *plans)

    def predicted(self, queries: QueryBatch) -> FloatArray:
        """Return the predictions of the fit, (n, K), offsets included; they must be the model's."""
        predictions = self.refits.predicted(self.refits.fits(), queries)
        check_answer(self.verification, predictions, queries.labels, lambda: queries.predictions)
        return predictions

    def verify_predictions(
        self, batch: QueryBatch | Combination, predictions: FloatArray | None
    ) -> None:
        """Raise unless predictions (n, K) are the model's own; None: compute them."""
        if predictions is None:
            assert isinstance(batch, QueryBatch)
            predictions = self.predicted(batch)
        check_answer(
            self.verification, predictions, batch.labels, lambda: batch.predictions, batch.sizes
        )

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        """Return the bytes that an explained row takes in this process."""
        entries = self.training_rows.entries
        if whole:
            return 8 * self.shape[0] * len(entries)
        return 8 * sum(trees.structure.total_leaves for trees in entries)

    def with_residuals(self, allowed: Sequence[Delayed]) -> Sequence[Delayed]:
        """Return the training rows that may be listed, with their residuals."""
        shared = self.refits.fits(), self.n_threads
        return self.shards.each(residuals_of, shared, allowed)

    # -- changes of the training rows --------------------------------------------------------------

    @property
    def deletions(self) -> PartitionedDeletions:
        """The refits without some of the training rows."""
        return PartitionedDeletions(self)

    @property
    def refits(self) -> Refits:
        """Refits without some of the rows."""
        return Refits(self)


@dataclass(frozen=True, eq=False)
class PartitionedExactTrees(FittedTrees):
    """The trees of a model whose targets have weights, and whose rows are in partitions."""

    model: PartitionedExactModel

    @property
    def structures(self) -> list[Structure] | None:
        """The boosted trees of each group of outputs; None if there is a forest."""
        structures = [trees.structure for trees in self.model.training_rows.entries]
        if any(map(is_forest, structures)):
            return None
        return structures

    @property
    def are_boosted(self) -> bool:
        """Whether trees are fitted one after the other."""
        return self.structures is not None

    @property
    def are_rescaled(self) -> bool:
        """Whether trees are scaled again after others were fitted, as in DART."""
        entries = self.model.training_rows.entries
        return any(trees.structure.coefficients is not None for trees in entries)

    def weights(self, rule: str) -> TreeWeights:
        """Return how much each tree counts in comparisons."""
        fits = self.model.refits.fits()
        if rule != "variance":
            return FitTreeWeights(counted=rule == "improved", fits=fits)
        spreads = []
        for entry, fit in enumerate(fits):
            n_rows = self.model.shards.total(leaf_row_counts, entry)
            structure = fit.structure
            leaf_effects = np.repeat(structure.final, structure.n_leaves)[:, None] * fit.values
            spreads.append(tree_spreads(n_rows, leaf_effects, structure.starts))
        return TreeWeights(spreads)


# -- the work on one partition ---------------------------------------------------------------------


def residuals_of(
    partition: ExactPartition, shared: tuple[list[Fit], int], allowed: Allowed
) -> Allowed:
    """Return the training rows that may be listed, with their residuals."""
    return replace(allowed, residuals=residuals(partition, shared))

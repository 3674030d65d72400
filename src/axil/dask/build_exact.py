"""From trees with exact weights and partitioned training rows to a model verified as in memory.

Three passes over the rows: totals of the targets; leaves, replay and sums over leaves;
co-occurrence of leaves. Each is a sum over partitions, added on the workers. What follows from the
sums is done in this process, where nothing has the size of N.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import cast

import numpy as np

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Form, LeafTotals, Model, Totals
from axil.dask.builder import Builder, WalkedPartitions, refuse_encoded
from axil.dask.cluster import Delayed, literal, task
from axil.dask.exact_model import PartitionedExactModel, in_leaf_matrix
from axil.dask.exact_rows import HeldExactRows, LeafSums, furthest_row, replay_partition
from axil.dask.training_rows import PartitionedRows, require_rows
from axil.errors import UnsupportedModelError
from axil.kernels.choose import host_backend
from axil.machine.memory import Budget
from axil.replay.compare import check_leaves, refuse_rows, verified
from axil.replay.compare_predictions import Miss, worse
from axil.replay.radius import ActiveSet
from axil.replay.recover import Replay, replayed
from axil.replay.verification import Verification, worst_of
from axil.replay.walk import Walked
from axil.structure import cell_dtype
from axil.weights.boosting import BoostedTrees


@dataclass
class ExactBuilder(Builder):
    """The builder of trees whose predictions are weighted sums of the targets."""

    of_second_class = False
    walk_partition = staticmethod(replay_partition)

    def build(self) -> PartitionedExactModel:
        """Replay the fit on the workers, as `axil.replay.build.build` does in memory."""
        _require_trees(self.adapter)
        return cast(PartitionedExactModel, super().build())

    def read(self, observed: list[Delayed]) -> tuple[list[BoostedFit], list[int]]:
        """Return the fits for the totals of the targets, and the partitions' sizes."""
        totals: list[Totals] = self.cluster.collect([rows.totals for rows in observed])
        self.totals = reduce(add, totals)
        _check_totals(self.adapter, self.totals)
        fits = self.adapter.trees(PartitionedRows(self.totals))
        _refuse_sampled(fits, self.data.has_sample_counts)
        _require_leaf_matrix(fits, self.limits.budget)
        return fits, [partition_totals.n_rows for partition_totals in totals]

    def settled(self, walked: WalkedPartitions) -> PartitionedExactModel:
        """Return the model of the leaf sums of all partitions after checking them."""
        leaf_sums: list[LeafSums] = [
            self.cluster.total([evidence.sums[entry] for evidence in walked.evidence])
            for entry in range(len(walked.fits))
        ]
        leaf_totals = [LeafTotals(sums.leaf_weights, sums.residuals) for sums in leaf_sums]
        fits = self.adapter.trees(PartitionedRows(self.totals, leaf_totals))
        entries = []
        verifications = []
        for entry, (fit, sums) in enumerate(zip(fits, leaf_sums)):
            replay = self._replay(fit, sums)
            trees = BoostedTrees(
                replay.structure, host_backend(self.limits.n_threads), sums.offsets
            )
            if self.verify:
                trees = in_leaf_matrix(
                    self.cluster, walked.rows, trees, entry, self.limits.n_threads
                )
                verifications.append(self._verified(walked, fit, sums, replay, trees, entry))
            entries.append(trees)
        training_rows = HeldExactRows(walked.rows, walked.sizes, walked.label_dtype, entries)
        if self.verify:
            verification = worst_of(verifications)
        else:
            verification = None
        return PartitionedExactModel(
            **self.model_fields, training_rows=training_rows, verification=verification
        )

    @staticmethod
    def without_rows(fit: BoostedFit) -> BoostedFit:
        """Return the part of a fit that all partitions share."""
        return replace(
            fit, weights=replace(fit.weights, row_weights=None, held_out=None), sampler=None
        )

    def _replay(self, fit: BoostedFit, sums: LeafSums) -> Replay:
        """Return the replay over all rows; its structure has no rows itself."""
        n_trees = len(fit.table.n_leaves)
        n_outputs = sums.residuals.shape[1]
        cells = np.empty((n_trees, 0), dtype=cell_dtype(int(fit.table.n_leaves.max())))
        no_rows = np.empty((0, n_outputs))
        if sums.cut is None:
            draws = np.ones(1)
        else:
            draws = np.array([1.0, 0.0])
        walked = Walked(
            cells,
            draws,
            sums.counts,
            sums.leaf_weights,
            sums.residuals,
            no_rows,
            sums.drawn_weights,
            cut=sums.cut,
        )
        # Offsets of no row, but there: trees that see them are no forest.
        if sums.offsets is None:
            offsets = None
        else:
            offsets = no_rows
        totals = sums.extent.weight, self.totals.n_rows
        return replayed(self.without_rows(fit), walked, offsets, totals)

    def _verified(
        self,
        walked: WalkedPartitions,
        fit: BoostedFit,
        sums: LeafSums,
        replay: Replay,
        trees: BoostedTrees,
        entry: int,
    ) -> Verification:
        """Compare leaves and predictions with the model's."""
        leaf_error = check_leaves(self.adapter, self.without_rows(fit), replay, sums.extent)
        miss = self._furthest(walked, sums, trees, entry)
        pattern = ActiveSet.of(replay, None)
        return verified(self.adapter, fit, replay, sums.extent, leaf_error, miss, pattern)

    def _furthest(
        self, walked: WalkedPartitions, sums: LeafSums, trees: BoostedTrees, entry: int
    ) -> Miss:
        """Return the largest difference of predictions from the leaf matrix from the model's."""
        structure = trees.structure
        extent = sums.extent
        if structure.initial is None:
            base = extent.sums / extent.weight
        else:
            base = structure.initial
        assert trees.leaf_matrix is not None
        leaf_values = trees.leaf_matrix.leaf_values(sums.started, base)
        added = np.repeat(structure.final, structure.n_leaves)[:, None] * leaf_values
        predictions = literal((added, structure.beta[-1] * base))
        tasks = [
            task(furthest_row, rows, evidence, entry, predictions, self.limits.n_threads)
            for rows, evidence in zip(walked.rows, walked.evidence)
        ]
        misses: list[Miss] = [miss for miss in self.cluster.collect(tasks) if miss is not None]
        return reduce(worse, misses)


def _require_trees(model: Model) -> None:
    """Refuse by name a model that is not one model of trees."""
    if model.form is Form.SMOOTHER:
        raise UnsupportedModelError(
            "model",
            f"a linear smoother of {model.library}",
            "its weights are a product of matrices of all training rows, which partitions do not "
            "add up to",
            "Use training rows in memory.",
        )
    if model.form is not Form.TREES:
        raise UnsupportedModelError(
            "model",
            "several models in one",
            "partitions are replayed for the trees of one model",
            "Use training rows in memory, or explain the models inside one by one.",
        )
    if model.missing_targets:
        raise UnsupportedModelError(
            "targets",
            "that may be missing",
            "partitions are replayed with one weight per row, and such a row counts in some "
            "outputs alone",
            "Use training rows in memory.",
        )


def _check_totals(adapter: Adapter, whole: Totals) -> None:
    require_rows(whole.n_rows, whole.weight != 0)
    if adapter.fitted_rows is not None and adapter.fitted_rows != whole.n_rows:
        refuse_rows(adapter, whole.n_rows, adapter.fitted_rows)


def _refuse_sampled(fitted: list[BoostedFit], recorded: bool) -> None:
    sampler = fitted[0].sampler
    refuse_encoded(fitted[0])
    if sampler is not None and not recorded:
        raise UnsupportedModelError(
            "row sampling",
            sampler.name,
            "on a cluster each machine samples its own rows, in an order that no model records, so "
            "the sampling cannot be replayed on partitions",
            "Fit with all rows, use training rows in memory in the order of the fit, or pass the "
            "recorded sample counts as in_bag=.",
        )


def _require_leaf_matrix(fitted: list[BoostedFit], budget: Budget) -> None:
    """Refuse a leaf matrix that does not fit into memory, before X is read."""
    needed = 0
    for trees in fitted:
        c = trees.schedule.coefficients
        total = int(trees.table.n_leaves.sum())
        if c is None or c.omega[:-1].any():
            needed += 2 * 8 * total**2
        else:
            needed += 0
    instead = (
        "On several machines weights are computed in the leaf matrix only, 8 bytes for each pair "
        "of leaves and as much again while it is built. Raise memory_limit, fit fewer or smaller "
        "trees, or use training rows in memory, which can do without."
    )
    budget.require(needed, "The leaf matrix", instead)

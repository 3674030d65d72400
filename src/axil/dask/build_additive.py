"""From a boosted model of any loss and partitioned training rows to a verified model.

Targets, weights and offsets come to this process, 8 bytes each per row, as the model is read with
them. Features and leaves stay on the workers. One pass over the rows sums the gradients that
made each leaf value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import TrainingRows
from axil.arrays import FloatArray
from axil.contributions.contributions import Contributions, mixed_terms
from axil.dask.additive_model import (
    GradientSums,
    HeldAdditiveRows,
    PartitionedAdditiveModel,
    walk_partition,
)
from axil.dask.builder import Builder, WalkedPartitions, refuse_encoded
from axil.dask.cluster import Delayed, task
from axil.dask.training_rows import require_rows
from axil.errors import UnsupportedModelError
from axil.machine.memory import Limits
from axil.replay.build import with_rows
from axil.replay.compare import check_leaf_counts
from axil.replay.compare_predictions import check_score
from axil.replay.gradient_walk import walk
from axil.replay.replayed_stages import ReplayedStages
from axil.replay.verification import Verification
from axil.structure import cell_dtype
from axil.trees.residual_losses import Custom


@dataclass
class AdditiveBuilder(Builder):
    """The builder of boosted trees whose scores are sums of contributions."""

    of_second_class = True
    walk_partition = staticmethod(walk_partition)

    def read(self, observed: list[Delayed]) -> tuple[list[BoostedFit], list[int]]:
        """Return the fit for the gathered targets, with the weights of all rows in leaves."""
        sizes: list[int] = self.cluster.collect([task(len, rows.targets) for rows in observed])
        n_rows = sum(sizes)
        require_rows(n_rows, True)
        self.limits.budget.require(
            6 * 8 * n_rows * (self.adapter.n_outputs + 1),
            f"The targets and weights of {n_rows} training rows, gathered here",
            "Raise memory_limit.",
        )
        targets = self._gathered([rows.targets for rows in observed])
        weights = self._gathered([rows.weights for rows in observed])
        offsets = self._gathered([rows.offsets for rows in observed])
        assert targets is not None
        require_rows(n_rows, weights is None or bool(weights.any()))
        (fit,) = self.adapter.trees(TrainingRows(None, targets, weights, offsets))
        fit.loss.check(targets)
        _refuse(fit)
        row_weights = with_rows(fit, weights, None).weights.row_weights
        if row_weights is None:
            row_weights = np.ones(n_rows)
        if fit.weights.leaf_factors is not None:
            row_weights = row_weights * fit.weights.leaf_factors
        return [replace(fit, weights=replace(fit.weights, row_weights=row_weights))], sizes

    def _gathered(self, columns: list[Delayed]) -> FloatArray | None:
        """Return the numbers of all partitions, in this process; None if there are none."""
        arrays = [array for array in self.cluster.collect(columns) if array is not None]
        if arrays:
            return np.concatenate(arrays)
        return None

    def settled(self, walked: WalkedPartitions) -> PartitionedAdditiveModel:
        """Return the model after a check that all partitions' gradients explain its leaf values."""
        (fit,) = walked.fits
        sums: GradientSums = self.cluster.total(walked.evidence)
        if self.verify:
            check_leaf_counts(self.adapter, fit, sums.counts)
        stages = self._stages(self.without_rows(fit), sums)
        verification = None
        if self.verify:
            verification = self._verification(fit, sums, stages)
        training_rows = HeldAdditiveRows(
            walked.rows,
            walked.sizes,
            walked.label_dtype,
            stages,
            self.cluster.share(stages),
            sums.largest,
            _leaf_sizes(stages, sums, self.limits),
        )
        return PartitionedAdditiveModel(
            **self.model_fields,
            training_rows=training_rows,
            verification=verification,
            verify=self.verify,
        )

    @staticmethod
    def without_rows(fit: BoostedFit) -> BoostedFit:
        """Return the part of the fit that all partitions share."""
        return replace(
            fit,
            weights=replace(fit.weights, row_weights=None, held_out=None, leaf_factors=None),
            initial=replace(fit.initial, follows_targets=False),
            sampler=None,
        )

    def _stages(self, fit: BoostedFit, sums: GradientSums) -> ReplayedStages:
        """Return the walk of all rows from their sums, tree by tree.

        One row per leaf stands for all rows that are in it.
        """
        width = int(fit.table.n_leaves.max())
        n_outputs = len(fit.initial.values)
        leaves = np.minimum(np.arange(width), fit.table.n_leaves[:, None] - 1).astype(
            cell_dtype(width)
        )
        rounds = iter(_rounds(fit, sums, width, n_outputs))
        standing = replace(
            fit,
            table=replace(
                fit.table, leaf_counts=None, value_slack=fit.table.value_slack + sums.lost
            ),
            loss=Custom(objective=lambda scores: next(rounds), rounded=np.float64),
        )
        targets = np.zeros((width, n_outputs))
        stages = walk(self.adapter, standing, leaves, targets, None, self.verify, 1)
        no_rows = np.empty((0, n_outputs))
        return replace(
            stages,
            fit=fit,
            leaves=leaves[:, :0],
            targets=no_rows,
            weights=np.empty(0),
            score=no_rows,
            gradients=None,
        )

    def _verification(
        self, fit: BoostedFit, sums: GradientSums, stages: ReplayedStages
    ) -> Verification:
        """Compare scores with the model's; leaf values were compared in the walk."""
        scale = max(sums.largest, 1e-300)
        return Verification(
            n_rows=int(sums.counts[: fit.table.n_leaves[0]].sum()),
            n_trees=len(fit.table.n_leaves),
            max_error=check_score(self.adapter, sums.miss, scale),
            leaf_error=stages.leaf_error,
            tolerance=self.adapter.gradient_tolerance,
            scale=scale,
            recovered=dict(stages.recovered),
            details={"loss": fit.loss.name},
        )


def _refuse(fit: BoostedFit) -> None:
    """Refuse by name losses whose gradients axil does not sum over partitions."""
    refuse_encoded(fit)
    for setting, value, reason in _unsummed_settings(fit):
        raise UnsupportedModelError(
            setting, value, reason, "Use training rows in memory, or fit with another setting."
        )


def _unsummed_settings(fit: BoostedFit) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and reason of each setting that is not summed over partitions."""
    if fit.sampler is not None:
        reason = "on a cluster each machine samples its own rows, in an order that no model records"
        yield "row sampling", fit.sampler.name, reason
    if fit.leaf_rule.averages:
        yield "boosting", "rf", "axil does not average trees over partitions with this loss"
    elif fit.schedule.tree_shares is not None:
        yield "boosting", "dart", "it removes trees from the scores and adds them back"
    if fit.loss.recorded:
        yield "objective", "custom", "its gradients need all rows at once"
    if fit.loss.pooled:
        yield "objective", fit.loss.name, "its gradients depend on the residuals of all rows"
    if fit.loss.joint:
        reason = "axil does not sum their systems over partitions"
        yield "leaves", "solved for all classes together", reason
    n_steps = int(np.max(fit.leaf_rule.steps))
    if n_steps > 1:
        reason = "each step needs the sums of the previous step over all rows"
        yield "leaf steps", f"{n_steps} per tree", reason
    if _has_parallel_trees(fit):
        reason = "axil sums the gradients of one tree per iteration and output over partitions"
        yield "parallel trees", "several per iteration", reason
    if fit.leaf_rule.coupling_rule is not None:
        setting = "path_smooth"
        if fit.leaf_rule.smoothing is None:
            setting = "monotone_constraints"
        reason = "axil does not sum the nodes of such trees of this loss over partitions"
        yield setting, "set", reason


def _has_parallel_trees(fit: BoostedFit) -> bool:
    """Return whether several trees have the same iteration and output."""
    rounds = fit.schedule.rounds
    outputs = fit.schedule.outputs
    round_and_output = rounds
    if outputs is not None:
        round_and_output = rounds * (int(outputs.max()) + 1) + outputs
    return len(np.unique(round_and_output)) < len(round_and_output)


def _leaf_sizes(stages: ReplayedStages, sums: GradientSums, limits: Limits) -> FloatArray:
    """Return the sums of the absolute contributions of all rows to each leaf."""
    sizes = np.zeros_like(sums.sizes)
    for terms in Contributions(stages, limits).terms:
        for term in terms:
            leaves = slice(*stages.starts[term.tree : term.tree + 2])
            column = stages.fit.schedule.column(term.output)
            sizes[leaves, column] += np.abs(term.scale) * sums.sizes[leaves, column]
    return mixed_terms(stages, sizes)


def _rounds(
    fit: BoostedFit, sums: GradientSums, width: int, n_outputs: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Return G and H of each iteration, (width, K).

    Row i stands for leaf i of the iteration's tree of that output.
    """
    starts = fit.table.starts
    rounds = []
    for iteration in np.unique(fit.schedule.rounds):
        gradients, hessians = np.zeros((2, width, n_outputs))
        for t in np.flatnonzero(fit.schedule.rounds == iteration):
            leaves = slice(starts[t], starts[t + 1])
            n_leaves = int(fit.table.n_leaves[t])
            outputs = fit.schedule.outputs_served(int(t))
            gradients[:n_leaves, outputs] = sums.g[leaves]
            hessians[:n_leaves, outputs] = sums.h[leaves]
        rounds.append((gradients, hessians))
    return rounds

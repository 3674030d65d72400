"""CatBoost's models with exact weights: squared error, medians, quantiles and Huber."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.catboost.base import ROUNDING, CatBoostAdapter
from axil.adapters.catboost.percentile import rules
from axil.adapters.catboost.permutations import AveragingFold
from axil.adapters.catboost.pool import zeros_above_negatives
from axil.adapters.catboost.refusals import CatBoostReading, doubt
from axil.adapters.catboost.settings import (
    Stage,
    base_factor,
    coefficients,
    settings_of_each_tree,
    shrunk_further,
)
from axil.adapters.contract import TrainingRows
from axil.adapters.percentiles import require_rows, with_initial_tree
from axil.aliases import ForeignModel
from axil.arrays import FloatArray, LeafArray
from axil.errors import InputError, UnsupportedModelError


class ExactCatBoost(CatBoostAdapter):
    """A CatBoost model whose predictions are weighted sums of the targets."""

    def __init__(self, model: ForeignModel, reading: CatBoostReading):
        super().__init__(model, reading)
        self.has_initial_tree = reading.has_percentile_leaves
        self.repeats_targets = self.has_initial_tree
        self.settles = reading.is_continued and not self.has_initial_tree
        if self.has_initial_tree:  # residuals and percentiles of them are in float32
            self.rounding = replace(self.rounding, residuals=np.float32)
            self.leaf_tolerance = 4 * ROUNDING
        if reading.on_gpu:
            self.score_precision = np.float32

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return all trees as one entry, which serves every output.

        Where targets are missing, or leaf values are percentiles, each output has its own entry.
        """
        if self.has_initial_tree:
            return self._percentiles(rows)
        if self.missing_targets and np.isnan(rows.targets).any():
            return self._with_missing(rows)
        return [self._entry(rows, rows.totals.means)]

    def _with_missing(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry per output, in which rows without its target have no weight.

        l2 follows the weights of all rows.
        """
        is_present = ~np.isnan(rows.targets)
        weights = is_present.astype(np.float64)
        if rows.weights is not None:
            weights *= rows.weights[:, None]
        for k in np.flatnonzero(~weights.any(axis=0))[:1]:
            raise InputError(
                f"y_train has no number in column {k}; "
                "expected a target of some row for each output."
            )
        means = (weights * np.nan_to_num(rows.targets)).sum(axis=0) / weights.sum(axis=0)
        all_outputs = self._entry(rows, means)
        if rows.weights is None:
            recorded_by = np.ones(len(is_present))
        else:
            recorded_by = rows.weights
        if self.n_outputs == 1:
            columns = None
        else:
            columns = np.arange(len(self._n_leaves))
        return [
            replace(
                all_outputs,
                table=replace(
                    all_outputs.table,
                    leaf_values=all_outputs.table.leaf_values[:, [k]],
                    columns=columns,
                ),
                initial=InitialPrediction(
                    follows_targets=all_outputs.initial.follows_targets,
                    values=all_outputs.initial.values[[k]],
                ),
                weights=replace(
                    all_outputs.weights,
                    row_weights=np.ascontiguousarray(weights[:, k]),
                    recorded_by=recorded_by,
                    scaling_weights=rows.weights,
                ),
                leaf_rule=replace(
                    all_outputs.leaf_rule,
                    l2_by_weight=all_outputs.leaf_rule.l2_by_weight and rows.weights is not None,
                ),
            )
            for k in range(self.n_outputs)
        ]

    def _entry(self, rows: TrainingRows, means: FloatArray) -> BoostedFit:
        """Return all trees, for all outputs, whose targets have these means (K,)."""
        blob = self._blob
        last = self._fits[-1]
        factor = base_factor(last, len(self._n_leaves), blob.scale, blob.bias, means)
        base_value = blob.bias / factor
        rates, l2, steps = self._regularisation(rows, base_value)
        recorded = self._recorded()
        recorded_by = self._recorded_by(rows)
        if recorded_by is None:
            l2 = self._with_light_leaves(l2, recorded)
        if last.leaves_zero:
            l2 = np.full_like(l2, np.inf)
        scale = blob.scale * self._shrunk_further(rows, base_value)
        if rows.at_hand:
            sparse_column = zeros_above_negatives(rows.X)
        else:
            sparse_column = None
        return BoostedFit(
            table=TreeTable(
                n_leaves=self._n_leaves,
                leaf_values=blob.scale * blob.leaf_values.reshape(-1, self.n_outputs),
                leaf_counts=self._counts(rows),
                leaf_weights=recorded,
            ),
            weights=WeightRule(recorded_by=recorded_by),
            leaf_rule=LeafRule(
                l2=l2,
                steps=steps,
                chains=self._chains,
                l2_by_weight=last.scales_l2,
                cut=self._reading.cut,
            ),
            score_precision=self.score_precision,
            initial=InitialPrediction(
                follows_targets=self._estimated,
                values=base_value,
            ),
            schedule=Schedule.one_by_one(rates, coefficients(last, rates, scale, factor)),
            placement=self._placement(rows),
            explain_mismatch=partial(doubt, self._reading.is_continued, sparse_column),
        )

    def _percentiles(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry per output of trees whose leaf values are percentiles of residuals."""
        require_rows(rows, "loss_function", self._reading.losses[-1])
        blob = self._blob
        last = self._fits[-1]
        n_trees = len(self._n_leaves)
        ranks = rules(self._reading.last["loss_function"], rows.weights)
        one_leaf = np.zeros(len(rows.targets), dtype=np.int64)
        drawn_once = np.ones(len(rows.targets))
        starts = [
            rule.picks(one_leaf, target, drawn_once, True).value(target)
            for rule, target in zip(ranks, rows.targets.T)
        ]
        factor = base_factor(last, n_trees, blob.scale, blob.bias, np.array(starts))
        rates = np.full(n_trees, last.rate)
        if self._reading.is_continued:
            rates[:] = np.nan
        leaf_values = blob.scale * blob.leaf_values.reshape(-1, self.n_outputs)
        entries = []
        for k, rule in enumerate(ranks):
            entry = BoostedFit(
                table=TreeTable(
                    n_leaves=self._n_leaves,
                    leaf_values=leaf_values[:, [k]],
                    leaf_counts=self._counts(rows),
                    leaf_weights=self._recorded(),
                    columns=None if len(ranks) == 1 else np.arange(n_trees),
                ),
                weights=WeightRule(recorded_by=self._recorded_by(rows)),
                leaf_rule=LeafRule(l2=np.zeros(int(self._n_leaves.sum()))),
                initial=InitialPrediction(values=np.zeros(1)),
                schedule=Schedule.one_by_one(rates, coefficients(last, rates, blob.scale, factor)),
                placement=self._placement(rows),
                score_precision=self.score_precision,
            )
            start = float(blob.bias[k] / factor)
            slack = 4 * ROUNDING * abs(start)
            entries.append(
                with_initial_tree(entry, rule, rows, start if self._estimated else None, slack)
            )
        return entries

    def _shrunk_further(self, rows: TrainingRows, base: FloatArray) -> float:
        """Return the factor of the remaining trees that is due to trees that shrink() removed."""
        last = self._fits[-1]
        n_trees = len(self._n_leaves)
        if not last.shrink or n_trees >= last.iterations or not (rows.at_hand or rows.leaf_totals):
            return 1.0
        mean_weight = rows.totals.weight / rows.totals.n_rows
        if self._chains is None:
            first_chains = None
        else:
            first_chains = self._chains.tree(0)
        first_stage = next(self._stages(rows, base))
        factor = shrunk_further(last, n_trees, first_stage, mean_weight, first_chains)
        if factor != 1.0 and not rows.at_hand:
            raise UnsupportedModelError(
                "training rows",
                "on several machines",
                f"shrink() removed trees that had multiplied the remaining ones by {factor:.6g}. "
                "The rows of the first tree show this factor, and rows in partitions are "
                "replayed before axil knows it",
                "Use axil.Explainer with all rows in memory, or fit with as many iterations as "
                "there are trees.",
            )
        return factor

    def _recorded_by(self, rows: TrainingRows) -> FloatArray | None:
        """Return the recorded row weights, (N,), if they differ from the weights of the fit."""
        if rows.totals.even or not self._shuffled(rows) or rows.weights is None:
            return None
        has_numbers = bool(self._blob.number_features)
        fold = AveragingFold.of(rows.totals.n_rows, self._reading.last, has_numbers)
        return fold.recorded(rows.weights)

    def _regularisation(
        self, rows: TrainingRows, base: FloatArray
    ) -> tuple[FloatArray, FloatArray, int | FloatArray]:
        """Return learning rates (T,), l2 (L,), and the number of steps, one for all or (L,)."""
        mean_weight = rows.totals.weight / rows.totals.n_rows
        if self.settles and rows.leaf_totals is not None:
            return settings_of_each_tree(self._fits, self._stages(rows, base), mean_weight)
        last = self._fits[-1]
        rates = np.full(len(self._n_leaves), last.rate)
        l2 = np.full(self._n_leaves.sum(), last.scaled_l2(mean_weight))
        return rates, l2, last.steps

    def l2_at(self, l2: FloatArray, before: float, after: float) -> FloatArray:
        """Return l2, (L,), if the mean row weight has another value.

        Several outputs keep it in float32, rounded once it is scaled.
        """
        scaled = super().l2_at(l2, before, after)
        for fit in self._fits:
            if fit.rounds_l2:
                is_of_fit = np.isclose(l2, fit.scaled_l2(before), rtol=ROUNDING, atol=0)
                scaled[is_of_fit] = fit.scaled_l2(after)
        return scaled

    def _stages(self, rows: TrainingRows, base: FloatArray) -> Iterator[Stage]:
        """Yield the sums of the leaves of each tree, from which their values follow.

        Only the first tree comes where the rows have not been walked through the fit.
        """
        ends = np.cumsum(self._n_leaves)[:-1]
        negligible = 1e-9 * rows.totals.largest or 1.0
        tree_values = np.split(self._blob.leaf_values.reshape(-1, self.n_outputs), ends)
        if rows.leaf_totals is None:
            yield self._first_stage(rows, base, tree_values[0], negligible)
            return
        (totals,) = rows.leaf_totals
        tree_sums = np.split(totals.sums, ends)
        tree_weights = np.split(totals.weights, ends)
        for sums, weights, values in zip(tree_sums, tree_weights, tree_values):
            yield Stage(sums, weights, values, negligible)

    def _first_stage(
        self, rows: TrainingRows, base: FloatArray, values: FloatArray, negligible: float
    ) -> Stage:
        if rows.weights is None:
            row_weights = np.ones(len(rows.targets))
        else:
            row_weights = rows.weights
        residuals = rows.targets - base
        if rows.offsets is not None:
            residuals = residuals - rows.offsets
        leaf = self._training_leaves(rows)[0]

        def leaf_sums(numbers: FloatArray) -> FloatArray:
            return np.bincount(leaf, numbers, len(values)).astype(np.float64)

        sums = [leaf_sums(row_weights * residual) for residual in residuals.T]
        return Stage(np.stack(sums, axis=1), leaf_sums(row_weights), values, negligible)

    def _training_leaves(self, rows: TrainingRows) -> LeafArray:
        """Return the leaves of the training rows in the fit, (T, N)."""
        placement = self._placement(rows)
        if placement is None or rows.leaves is not None:
            return self.leaves_of(rows).T
        leaves = np.empty((len(self._n_leaves), len(rows.targets)), dtype=np.uint16)
        placement.assign(leaves, 1)
        return leaves

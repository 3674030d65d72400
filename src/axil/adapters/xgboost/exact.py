"""XGBoost's boosters with exact weights.

These have squared error, or an objective whose leaf values are percentiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.contract import (
    Coefficients,
    LeafTotals,
    OffsetRule,
    Totals,
    TrainingRows,
)
from axil.adapters.percentiles import require_rows, with_initial_tree
from axil.adapters.xgboost.base import OpenedBooster, XGBoostAdapter
from axil.adapters.xgboost.draws import DrawPlan, Subsample
from axil.adapters.xgboost.percentile import PERCENTILES, XGBoostPercentile, alphas
from axil.adapters.xgboost.plan import plan_of, plan_of_draws
from axil.adapters.xgboost.rates import (
    ROUNDING,
    ObservedLeaves,
    confirmed,
    is_silent,
    rate_of_steps,
    recover,
)
from axil.adapters.xgboost.refusals import continued
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import UnsupportedModelError

CHECKED_ITERATIONS = 4  # compared with the data before the settings are trusted
# of the largest leaf value: a rate that leads to the values of the first tree is taken as stated
AS_STATED = 1e-5


class ExactXGBoost(XGBoostAdapter):
    """An XGBoost booster whose predictions are weighted sums of the targets."""

    def __init__(self, opened_booster: OpenedBooster):
        super().__init__(opened_booster)
        self.has_initial_tree = self._reading.objective in PERCENTILES
        if self.has_initial_tree and self._model.base_estimated:
            self.offset_rule = OffsetRule.REPLACES_TREE

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry for each output, or one for all if they share leaves."""
        n_rows = rows.totals.n_rows
        if rows.at_hand:
            plan = plan_of_draws(self._model, self._settings, n_rows, rows.weights)
        else:
            plan = plan_of(self._model, self._settings, n_rows)
        factors = self._drop_factors(plan)
        if self.has_initial_tree:
            return self._percentiles(rows, plan, factors)
        rates, l2 = self._rates(rows)
        if self._model.shared and not self._rule.bends:
            outputs_of_entries = [np.arange(self.n_outputs)]
        else:  # each output has a pattern of its own
            outputs_of_entries = [np.array([output]) for output in range(self.n_outputs)]
        entries = []
        for outputs in outputs_of_entries:
            places = self._trees_of(outputs[0])
            tree_l2 = [l2[t] for t in places]
            entry = self._entry(places, outputs, rates[places], tree_l2, rows.totals.weighted)
            if plan.samples:
                entry = replace(entry, sampler=Subsample(plan, places))
            entry = self._with_coefficients(entry, places, factors, rows.totals.offset)
            slack = entry.learning_rates * self._residual_errors(rows.totals.largest)[places]
            entry = replace(
                entry,
                table=replace(entry.table, value_slack=np.repeat(slack, entry.table.n_leaves)),
            )
            if self._rule.bends:
                entry = self._bent(entry, places, outputs[0], tree_l2)
            entries.append(entry)
        return entries

    def _trees_of(self, output: int) -> IntArray:
        """Return the numbers of the trees that serve an output, (T',)."""
        if self._model.shared:
            return np.arange(self._n_trees)
        return np.flatnonzero(self._groups == output)

    def _with_coefficients(
        self, trees: BoostedFit, places: IntArray, factors: FloatArray | None, offset: bool
    ) -> BoostedFit:
        """Return the trees with their table of coefficients, unless they add one after the other.

        Parallel trees see the same residual; DART drops and scales; and a fit with base_margin does
        not start from the base_score that predictions are given without it (InitOutPredictions,
        src/predictor/predictor.cc).
        """
        beta = np.ones(len(places) + 1)
        if offset and (trees.initial.follows_targets or trees.initial.values.any()):
            beta[:-1] = 0
        if factors is None and self._model.n_parallel == 1 and beta.all():
            return trees
        iteration = np.append(self._iterations[places], self._n_iterations)
        omega = np.where(iteration[:, None] > iteration[:-1], trees.learning_rates, 0.0)
        rates = trees.learning_rates
        if factors is not None:
            omega *= factors[np.ix_(iteration, places)]
            rates = omega[-1].copy()
        return replace(trees, schedule=Schedule.one_by_one(rates, Coefficients(omega, beta)))

    def _bent(
        self, trees: BoostedFit, places: IntArray, output: int, l2: list[FloatArray]
    ) -> BoostedFit:
        """Return the entry of an output with the L1, step and bounds of its leaves."""
        column = output if self._model.shared else 0
        shares = trees.learning_rates
        if trees.schedule.tree_shares is not None:
            shares = trees.schedule.tree_shares[-1]
        nodes = self._rule.nodes([self._trees[t] for t in places], column, l2, shares)
        # Outputs that share trees have leaf numbers of their own: a replay overwrites them.
        columns = places.astype(np.int64) if self._model.shared else trees.table.columns
        return replace(
            trees,
            leaf_rule=replace(
                trees.leaf_rule, l1=self._rule.l1, max_step=self._rule.max_step, nodes=nodes
            ),
            table=replace(
                trees.table, columns=columns, leaf_values=trees.table.leaf_values[:, [column]]
            ),
        )

    def _percentiles(
        self, rows: TrainingRows, plan: DrawPlan, factors: FloatArray | None
    ) -> list[BoostedFit]:
        """Return the entries of all outputs if leaf values are percentiles of residuals."""
        require_rows(rows, "objective", self._reading.objective)
        if rows.totals.offset and self._model.base_estimated:
            raise UnsupportedModelError(
                "base_margin",
                f"given with {self._reading.objective}",
                "predictions then start from a percentile of the targets, and the fit started "
                "from another number",
                "Fit with a number as base_score.",
            )
        shares = alphas(self._reading.objective_settings, self.n_outputs)
        return [
            self._percentiles_of(
                output, XGBoostPercentile(alpha, rows.weights), rows, plan, factors
            )
            for output, alpha in enumerate(shares)
        ]

    def _percentiles_of(
        self,
        output: int,
        ranks: XGBoostPercentile,
        rows: TrainingRows,
        plan: DrawPlan,
        factors: FloatArray | None,
    ) -> BoostedFit:
        """Return the entry of one output whose leaf values are percentiles of residuals."""
        places = self._trees_of(output)
        if plan.samples:
            sampler = Subsample(plan, places)
        else:
            sampler = None
        rates = self._percentile_rates(rows, places, output, ranks, sampler)
        l2 = [np.zeros(len(self._trees[t].leaves)) for t in places]
        entry = self._entry(places, np.array([output]), rates, l2, rows.totals.weighted)
        if self._model.shared:
            columns = places.astype(np.int64)
            entry = replace(
                entry,
                table=replace(
                    entry.table, leaf_values=entry.table.leaf_values[:, [output]], columns=columns
                ),
            )
        entry = replace(entry, sampler=sampler, explain_mismatch=self._explain_steps(places))
        entry = self._with_coefficients(entry, places, factors, rows.totals.offset)
        residual_errors = self._residual_errors(rows.totals.largest)[places]
        residual_errors = residual_errors + 2 * ROUNDING * float(np.ptp(rows.targets))
        slack = np.nan_to_num(entry.learning_rates, nan=1.0) * residual_errors
        entry = replace(
            entry, table=replace(entry.table, value_slack=np.repeat(slack, entry.table.n_leaves))
        )
        start = float(entry.initial.values[0])
        if self._model.base_estimated:
            estimated_start = start
        else:
            estimated_start = None
        return with_initial_tree(entry, ranks, rows, estimated_start, 8 * ROUNDING * abs(start))

    def _explain_steps(
        self, places: IntArray
    ) -> Callable[[BoolArray], UnsupportedModelError | None] | None:
        """Return why percentiles of these trees may disagree with the data.

        The reason is that later trees are Newton steps.
        """
        is_stepped = [self._trees[t].is_stepped for t in places]
        ranked = [place for place, stepped in enumerate(is_stepped) if stepped is False]
        if not ranked or True not in is_stepped[ranked[-1] + 1 :]:
            return None
        return partial(continued, ranked[-1] + 1)

    def _percentile_rates(
        self,
        rows: TrainingRows,
        places: IntArray,
        output: int,
        ranks: XGBoostPercentile,
        sampler: Subsample | None,
    ) -> FloatArray:
        """Return the rates, (T',).

        They are the rate of the settings if the first tree confirms it, otherwise nan. axil
        recovers the latter.
        """
        stated = self._stated_rate
        l2 = self._settings.number("reg_lambda")
        first = self._trees[places[0]]
        confirms = self._first_tree_confirms(rows, int(places[0]), output, ranks, sampler)
        rate = stated
        if not (confirms or self._drops or len(first.splits) == 0):
            rate = np.nan
        rates = np.full(len(places), rate)
        knows_l2 = confirms and abs(rate_of_steps(first, l2) - stated) <= 1e-3 * stated
        for place, t in enumerate(places):
            tree = self._trees[t]
            if is_silent(tree):
                rates[place] = 0.0
            elif knows_l2 and abs(rate_of_steps(tree, l2) - stated) > 1e-3 * stated:
                rates[place] = np.nan
        return rates

    def _first_tree_confirms(
        self,
        rows: TrainingRows,
        place: int,
        output: int,
        ranks: XGBoostPercentile,
        sampler: Subsample | None,
    ) -> bool:
        """Return whether the rate of the settings explains the first tree of an output."""
        tree = self._trees[place]
        if rows.leaves is None:
            leaf = self._rows.first_leaves(rows.X)[:, place]
        else:
            leaf = self.leaves_of(rows)[:, place]
        draws: FloatArray | BoolArray = np.ones(len(leaf))
        if rows.in_bag is not None:
            draws = rows.in_bag[:, place]
        elif sampler is not None:
            draws = sampler.bag(0)
        if rows.offsets is None:
            start = self._model.base_score
        else:
            start = rows.offsets
        start = np.broadcast_to(start, rows.targets.shape)[:, output]
        residuals = (rows.targets[:, output] - start).astype(np.float32).astype(np.float64)
        expected = self._stated_rate * ranks.values(leaf, residuals, draws, len(tree.leaves))
        values = tree.values[:, output if self._model.shared else 0]
        errors = np.abs(values - expected)
        return bool(errors.max() <= AS_STATED * np.abs(values).max(initial=0.0))

    @property
    def settles(self) -> bool:  # type: ignore[override]
        """Whether axil confirms or infers the settings from leaf sums.

        Any rate explains the value of a single leaf, and any targets explain a zero.
        """
        has_splits = any(len(tree.splits) for tree in self._trees)
        return has_splits and not self.has_initial_tree and not self._drops

    def _rates(self, rows: TrainingRows) -> tuple[FloatArray, list[FloatArray]]:
        """Return learning rates, (T,), and what is added to the leaves' weights of each tree.

        There is one array (L_t,) for each tree. Both are those of the settings where a few trees
        confirm them on the data, and all others by themselves; else the data decide.
        """
        stated = self._stated_rate
        l2 = self._settings.number("reg_lambda")
        if rows.leaf_totals is None and stated == 0:
            # a schedule ended at 0: the walk goes on by the model's own values, at any rate
            stated = 1.0
        rates = np.where([is_silent(tree) for tree in self._trees], 0.0, stated)
        as_stated = rates, [np.where(self._zero(tree), np.inf, l2) for tree in self._trees]
        if not self.settles or rows.leaf_totals is None:
            return as_stated
        observed = self._observe(rows.leaf_totals, rows.totals)
        n_checked = int(np.searchsorted(self._iterations, CHECKED_ITERATIONS)) + 1
        first = list(islice(observed, n_checked))
        first_agree = all(leaves.agree(stated, l2) for leaves in first if leaves.values.any())
        later_agree = (
            is_silent(tree) or confirmed(tree, stated, l2) for tree in self._trees[n_checked:]
        )
        if first_agree and not self._rule.bends and all(later_agree):
            return as_stated
        trees = [*first, *observed]
        settings = recover(trees, stated, l2, self._model.n_parallel)
        leaf_l2 = [
            np.where(leaves.zero, np.inf, tree_l2)
            for leaves, tree_l2 in zip(trees, settings.lambdas)
        ]
        return settings.rates, leaf_l2

    def _observe(self, entries: list[LeafTotals], totals: Totals) -> Iterator[ObservedLeaves]:
        """Return the leaves of each tree with the sums behind their values."""
        if self._model.shared:
            entries = [replace(entries[0], sums=np.hstack([entry.sums for entry in entries]))]
        totals_of_tree: dict[int, LeafTotals] = {}
        for output, entry in enumerate(entries):
            places = np.flatnonzero(self._groups == output)
            ends = np.cumsum([len(self._trees[t].leaves) for t in places])[:-1]
            tree_weights = np.split(entry.weights, ends)
            tree_sums = np.split(entry.sums, ends)
            for place, weights, sums in zip(places.tolist(), tree_weights, tree_sums):
                totals_of_tree[place] = LeafTotals(weights, sums)
        return (self._observe_tree(t, totals_of_tree[t], totals) for t in range(self._n_trees))

    def _observe_tree(self, t: int, leaf_totals: LeafTotals, totals: Totals) -> ObservedLeaves:
        """Return the leaves of one tree with the sums behind their values."""
        tree = self._trees[t]
        weights = leaf_totals.weights
        sums = leaf_totals.sums
        zero = self._zero(tree) | (weights <= 0)
        if not self._rule.bends:
            # A loaded model has lost min_child_weight, but where there are residuals no other leaf
            # is zero.
            size = float(np.abs(sums).sum()) + ROUNDING * totals.largest * totals.weight
            zero |= (np.abs(sums).max(axis=1) > 1e-12 * size) & ~tree.values.any(axis=1)
        value_weights = np.broadcast_to(weights[:, None], tree.values.shape)
        observed = ObservedLeaves(
            values=tree.values[~zero].ravel(),
            weights=value_weights[~zero].ravel(),
            sums=sums[~zero].ravel(),
            zero=zero,
            tree=tree,
            slack=float(self._residual_errors(totals.largest)[t]),
        )
        if not self._rule.bends:
            return observed

        def bent(l2: float) -> FloatArray:
            leaf_l2 = np.where(zero, np.inf, l2)
            return self._rule.values(tree, leaf_l2, sums, weights)[~zero].ravel()

        return replace(observed, bent=bent, max_step=self._rule.max_step)

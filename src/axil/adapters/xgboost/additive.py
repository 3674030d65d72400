"""XGBoost's boosters read by the gradients of their objective.

Their scores are sums of contributions. Leaf values: CalcWeight, src/tree/param.h. All is kept in
float32 and added in float64.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.class_weights import WEIGHS_CLASSES, label_factors
from axil.adapters.contract import Kind, TargetForm, TrainingRows
from axil.adapters.objective import Objective
from axil.adapters.refusals import OTHER_GROUPS, first_of
from axil.adapters.xgboost.base import OpenedBooster, XGBoostAdapter
from axil.adapters.xgboost.document import Tree
from axil.adapters.xgboost.draws import DrawPlan, Subsample
from axil.adapters.xgboost.loss import (
    CLASSES,
    FROM_STEP,
    FROM_ZERO,
    OWN_START,
    UNESTIMATED,
    XGBoostObjective,
)
from axil.adapters.xgboost.plan import plan_of
from axil.adapters.xgboost.rates import (
    confirmed,
    is_clipped,
    is_silent,
    rate_of_clip,
    rate_of_gain,
    shows_rate,
)
from axil.aliases import FeatureTable
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.trees.losses import Loss, Softmax


class AdditiveXGBoost(XGBoostAdapter):
    """An XGBoost booster read by the gradients of its objective."""

    kind = Kind.ADDITIVE
    gradient_tolerance = (
        1e-5  # scores are float32 sums over the trees, and gradients are computed from those
    )

    def __init__(self, opened_booster: OpenedBooster):
        super().__init__(opened_booster)
        self._objective = XGBoostObjective(self._reading, self._model)
        n_classes = int(self._model.parameters.get("num_class", "0"))
        if self._objective.name in CLASSES:
            self.n_outputs = n_classes
            self.classes = np.arange(n_classes)
        self.target_form = self._objective.target_form

    def scores(self, X: FeatureTable, offsets: FloatArray | None = None) -> FloatArray:
        """Return the raw scores, (n, K), with offsets for base_margin."""
        return self.predictions(X, offsets, output_margin=True)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return all trees; those of one iteration see the same scores.

        An iteration has several trees for several classes, or in parallel.
        """
        plan = plan_of(self._model, self._settings, rows.totals.n_rows)
        l2 = self._settings.number("reg_lambda")
        l2_of_trees = [np.where(self._zero(tree), np.inf, l2) for tree in self._trees]
        schedule = self._schedule(rows, plan, l2)
        rates = schedule.learning_rates
        all_trees = np.arange(self._n_trees)
        n_columns = 1
        if self._model.shared:
            n_columns = self.n_outputs
        entry = self._entry(
            all_trees, np.arange(n_columns), rates, l2_of_trees, rows.totals.weighted
        )
        loss = self._loss(rows)
        sampler = None
        if plan.samples:
            sampler = Subsample(plan, all_trees)
        leaf_factors = None
        if not loss.recorded:
            leaf_factors = self._leaf_factors(rows.targets)
        fit = replace(
            entry,
            table=self._tree_table(entry.table, schedule, self._largest_score(rows)),
            leaf_rule=self._leaf_rule(entry.leaf_rule, l2_of_trees, rates),
            schedule=schedule,
            initial=self._initial(loss),
            loss=loss,
            weights=replace(entry.weights, leaf_factors=leaf_factors),
            sampler=sampler,
            no_derivative=self._no_derivative(loss),
        )
        return [fit]

    def _schedule(self, rows: TrainingRows, plan: DrawPlan, l2: float) -> Schedule:
        """Return the rounds and outputs of the trees, and how they add up."""
        rates = self._rates_of_trees(l2)
        tree_shares = None
        drop_factors = self._drop_factors(plan)
        if drop_factors is not None:
            tree_shares = rates * drop_factors  # 0 for trees that come later
            rates = tree_shares[-1].copy()
        outputs = None
        if not self._model.shared and self.n_outputs > 1:
            outputs = self._groups
        elif not self._model.shared:
            outputs = np.zeros_like(self._groups)
        initial_shares = None
        if rows.totals.offset:  # the initial prediction is that of predictions without base_margin
            initial_shares = np.append(np.zeros(self._n_iterations), 1.0)
        return Schedule(rates, self._iterations, outputs, tree_shares, initial_shares)

    def _largest_score(self, rows: TrainingRows) -> float:
        """Return the size of the targets, or of the sums of trees where bounds are infinite."""
        if self.target_form is not TargetForm.BOUNDS:
            return rows.totals.largest
        return float(sum(np.abs(tree.values).max() for tree in self._trees))

    def _tree_table(self, table: TreeTable, schedule: Schedule, largest: float) -> TreeTable:
        """Return the leaves with the sums of hessians that XGBoost recorded.

        DART rounds scores far from zero otherwise, and hessians with them.
        """
        leaf_hessians = None
        value_slack: FloatArray | float = 0.0
        if not schedule.is_plain:
            slack = schedule.learning_rates * self._residual_errors(largest)
            value_slack = np.repeat(slack, table.n_leaves)
        elif table.leaf_weights is not None:
            n_shared = 1
            if self._model.shared:
                n_shared = self.n_outputs
            leaf_hessians = table.leaf_weights * n_shared
        return replace(
            table,
            leaf_counts=None,
            leaf_weights=None,
            leaf_hessians=leaf_hessians,
            value_slack=value_slack,
        )

    def _leaf_rule(
        self, rule: LeafRule, l2_of_trees: list[FloatArray], rates: FloatArray
    ) -> LeafRule:
        """Return how the leaf values follow from the rows."""
        nodes = None
        if self._rule.signs.any():
            nodes = self._rule.nodes(self._trees, 0, l2_of_trees, np.nan_to_num(rates, nan=1.0))
        return replace(
            rule,
            nodes=nodes,
            l1=self._settings.number("reg_alpha"),
            max_step=self._settings.max_step or np.inf,
            min_hessian=self._min_hessian,
        )

    def _initial(self, loss: Loss) -> InitialPrediction:
        """Return the initial prediction: the scores of base_score."""
        is_softmax = isinstance(loss, Softmax)
        values = np.broadcast_to(self._model.base_score, (self.n_outputs,)).copy()
        if not is_softmax:
            values = self._link(loss, values)
        is_estimated = self._model.base_estimated and loss.name not in OWN_START
        fixed_reason = ""
        if loss.name in FROM_STEP and self._model.base_estimated:
            fixed_reason = FROM_ZERO
        return InitialPrediction(
            values,
            follows_targets=is_estimated and (self._objective.recent or not is_softmax),
            fixed_reason=fixed_reason,
        )

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement in "counts", "weights" or "values"."""
        advice = super().causes(mismatch)
        if self._objective.ranks_rows and mismatch in ("values", "weights"):
            return f"{OTHER_GROUPS}\n{advice}"
        return advice

    @property
    def single_output_setting(self) -> str:
        """Return the setting that prevents several outputs."""
        signs = self._rule.signs.any()
        return first_of(
            {
                WEIGHS_CLASSES: self._objective.positive_factor != 1,
                "DART": self._drops,
                "monotone constraints": signs,
            }
        )

    @property
    def has_labels(self) -> bool:
        """Return whether it has several targets.

        They are numbers; those of a classifier are a label each.
        """
        return self._model.n_outputs > 1 and self._objective.name not in CLASSES

    def _loss(self, rows: TrainingRows) -> Loss:
        return self._objective.loss(rows)

    def _link(self, loss: Loss, base: FloatArray) -> FloatArray:
        """Return the scores of base_score, (K,).

        It is stored as a mean except for several classes.
        """
        return loss.stored_link(base)

    def _no_derivative(self, loss: Loss) -> str:
        """Return why there are no derivatives by the targets; empty if there are.

        XGBoost's other initial predictions are one Newton step from 0 of all rows (src/objective).
        """
        if loss.no_derivative:
            return loss.no_derivative
        if loss.pooled:
            return (
                "in every round its gradients are scaled by the residuals of all rows, which axil "
                "does not differentiate"
            )
        if loss.name in OWN_START and self._model.base_estimated:
            return FROM_ZERO
        return ""

    def _rates_of_trees(self, l2: float) -> FloatArray:
        """Return the learning rates, (T,): that of the settings if the trees confirm it.

        It is nan, and the replay finds it, where a tree of three values or more shows another one:
        with schedules, and in models that were loaded from a file, which does not keep the rate.
        Two values have some rate for any targets. There the gain of a split, which XGBoost keeps,
        shows the rate.
        """
        rate = self._stated_rate
        rates = np.full(self._n_trees, rate)
        if self._drops:
            return rates
        most = self._settings.max_step or np.inf
        negligible = 1e-5 * max(float(np.abs(tree.values).max()) for tree in self._trees)
        for t, tree in enumerate(self._trees):
            if is_silent(tree):
                rates[t] = 0.0
            elif not tree.values.any() or confirmed(tree, rate, l2):
                continue
            elif len(np.unique(np.abs(tree.values[np.abs(tree.values) > negligible]))) > 2:
                rates[t] = np.nan
            elif not shows_rate(tree, rate, l2):
                rates[t] = self._shown_rate(tree, l2, most)
        return rates

    def _shown_rate(self, tree: Tree, l2: float, most: float) -> float:
        """Return the rate that a tree of two values shows, otherwise the stated one.

        It is nan if that is zero.
        """
        rate_shown = np.nan
        has_alpha = self._settings.number("reg_alpha") > 0
        signs = self._settings.monotone_signs
        # which are in gains; with constraints, be they all 0, XGBoost takes gains from values,
        # without reg_alpha
        bends_gains = has_alpha and (most < np.inf or len(signs) > 0)
        if not (bends_gains or any(signs) or is_clipped(tree, most)):
            rate_shown = rate_of_gain(tree, l2)
        # Any value is near some rate of few digits times max_delta_step, so there must be another
        # sign of a clip.
        if np.isnan(rate_shown):
            rate = self._stated_rate
        else:
            rate = rate_shown
        reaches_limit = np.abs(tree.values).max() >= (1 - 1e-5) * rate * most
        if reaches_limit or (np.isnan(rate_shown) and is_clipped(tree, most)):
            rate_shown = rate_of_clip(tree, most)
        if np.isnan(rate_shown) and self._stated_rate > 0:
            rate_shown = self._stated_rate
        return rate_shown

    @property
    def _min_hessian(self) -> float:
        """The hessian below which XGBoost sets the value of a class in a shared leaf to zero.

        See CalcWeight, src/tree/param.h.

        Files lose it, but without reg_alpha nothing else leads to zeros. From XGBoost 3.4 on, which
        has smoothed losses, no value is set to zero; but 3.4 may have saved a model of an older
        version, which has such zeros.
        """
        if not self._model.shared or self._objective.has_smoothed_loss:
            return 0.0
        has_zeros = any((tree.values == 0).any() for tree in self._trees)
        if self._model.version >= (3, 4) and not has_zeros:
            return 0.0
        if self._settings.number("reg_alpha"):
            return self._settings.number("min_child_weight")
        return np.inf

    def _leaf_factors(self, targets: FloatArray) -> FloatArray | None:
        """Return the factors of scale_pos_weight, (N,).

        It weighs rows whose label is exactly 1.
        """
        return label_factors((targets == 1).astype(float), self._objective.positive_factor)


class OwnObjectiveXGBoost(AdditiveXGBoost):
    """A booster that was fitted with a user's own objective.

    Its settings also name an objective, of XGBoost or of the user.
    """

    def __init__(self, custom: Objective, opened_booster: OpenedBooster):
        super().__init__(opened_booster)
        # XGBoost estimates a start where the objective is its own, and starts from this number
        # where it is a function.
        if self._model.base_estimated and np.any(self._model.base_score != UNESTIMATED):
            raise InputError(
                "objective is given, but this XGBoost model was fitted with "
                f"objective={self._objective.name}: leave it out."
            )
        self._custom = custom

    def _loss(self, rows: TrainingRows) -> Loss:
        return self._custom.loss(rows.targets, rows.weights, np.float32, np.zeros(0, np.float32))

    def _link(self, loss: Loss, base: FloatArray) -> FloatArray:
        """Return the scores of base_score by the link of the objective beside the function.

        The model names this objective.
        """
        return self._objective.link_beside_function(base)

    def causes(self, mismatch: str) -> str:
        """Return the causes of `XGBoostAdapter.causes`, after that of another function."""
        advice = (
            "The objective given is not the function of the fit; a fit with "
            f"objective={self._objective.name!r} itself takes none."
        )
        return f"{advice}\n{super().causes(mismatch)}"

    def _no_derivative(self, loss: Loss) -> str:
        return "how the gradients of a user's own objective move with the targets is not known"

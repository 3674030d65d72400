"""CatBoost's models read by the gradients of their loss, whose scores are sums of contributions.

Steps: CalcLeafValues, catboost/private/libs/algo/. All rows count in every leaf. A tree takes
leaf_estimation_iterations steps, each from where the last one ended.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.catboost.base import CatBoostAdapter
from axil.adapters.catboost.loss import (
    CLASS_WEIGHT_RULES,
    COUPLED_LOSSES,
    GROUPED_LOSSES,
    WITHOUT_CLASSES,
    loss_of,
    no_derivative,
)
from axil.adapters.catboost.refusals import CatBoostReading
from axil.adapters.catboost.settings import coefficients
from axil.adapters.catboost.shrinkage import KEPT_AS_EXPONENTIALS, ExponentialShrinkage
from axil.adapters.class_weights import with_class_weight_advice
from axil.adapters.contract import Kind, TargetForm, TrainingRows
from axil.adapters.refusals import OTHER_GROUPS
from axil.aliases import FeatureTable, ForeignModel
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.trees.losses import Loss
from axil.trees.residual_losses import ResidualLoss


class AdditiveCatBoost(CatBoostAdapter):
    """A CatBoost model read by the gradients of its loss."""

    kind = Kind.ADDITIVE
    gradient_tolerance = 1e-6  # of a mean that is kept in float32

    def __init__(self, model: ForeignModel, reading: CatBoostReading):
        super().__init__(model, reading)
        names = np.asarray(model.classes_)
        # Other classes that the model names have no output.
        self._has_all_classes = self.n_outputs == 1 or len(names) == self.n_outputs
        self._present_classes = self._blob.present_classes
        has_classes = len(names) > 0 and WITHOUT_CLASSES.isdisjoint(reading.losses)
        if has_classes and self._has_all_classes:
            self.classes = names
        elif has_classes:
            self.classes = names[self._present_classes]
        # Those of auto_class_weights and scale_pos_weight too, as numbers.
        stated_weights = reading.values("data_processing_options", "class_weights")[-1]
        positions = self._present_classes
        if self._has_all_classes:
            positions = [*range(len(names))]
        if reading.losses[-1] in COUPLED_LOSSES and self._fits[-1].backtracks:
            self.gradient_tolerance = 1e-5  # of a step that rounding may have halved
        if reading.losses[-1] == "Cox":
            self.target_form = TargetForm.TIMES
        self.class_weight = None
        if stated_weights:
            self.class_weight = {
                k: float(stated_weights[position]) for k, position in enumerate(positions)
            }
        rule = str(reading.values("data_processing_options", "auto_class_weights")[-1])
        self.counts_classes_by = CLASS_WEIGHT_RULES.get(rule)

    @property
    def single_output_setting(self) -> str:
        """The setting that belongs to one output."""
        if self.encodings:
            return "categories that are encoded by the targets"
        if any(self._reading.shrink_rates):
            return "model_shrink_rate"
        return ""

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores of the classes that were in the data, (n, K).

        CatBoost gives others a score of minus infinity.
        """
        if self._has_all_classes:
            return self.predictions(X)
        raw = self._model.predict(self._pool(X), prediction_type="RawFormulaVal")
        return np.asarray(raw, dtype=np.float64)[:, self._present_classes]

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return all trees, whose leaves have a value for each of several classes."""
        blob = self._blob
        last = self._fits[-1]
        n_trees = len(self._n_leaves)
        if blob.scale != 1 or n_trees > last.iterations:
            raise InputError(
                "This CatBoost model was changed after its fit (set_scale_and_bias) or continued "
                "(init_model): pass the model as one fit made it."
            )
        loss = self._loss(rows)
        recorded_weights = None
        if rows.totals.even or not self._shuffled(rows):
            recorded_weights = self._recorded()
        mean_weight = rows.totals.weight / rows.totals.n_rows
        l2 = np.full(int(self._n_leaves.sum()), last.scaled_l2(mean_weight))
        outputs = None
        if self.n_outputs == 1:
            outputs = np.zeros(n_trees, dtype=np.int64)
        rates = np.full(n_trees, last.rate)
        schedule = Schedule(rates, np.arange(n_trees), outputs)
        shrunk = coefficients(last, rates, 1.0, 1.0)
        shrinkage = None
        if shrunk is not None:
            shrinkage = self._shrinkage(n_trees)
            schedule = replace(
                schedule, learning_rates=shrunk.omega[-1].copy(), tree_shares=shrunk.omega
            )
        fit = BoostedFit(
            table=TreeTable(
                n_leaves=self._n_leaves,
                leaf_values=blob.leaf_values.reshape(-1, self.n_outputs),
                leaf_counts=self._counts(rows),
            ),
            leaf_rule=LeafRule(
                l2=self._with_light_leaves(l2, recorded_weights),
                l2_by_weight=last.scales_l2,
                steps=last.steps,
                chains=self._chains,
                halves_steps=last.backtracks,
                is_centred=loss.name == "PairLogit",
            ),
            schedule=schedule,
            initial=self._initial(loss),
            loss=loss,
            placement=self._placement(rows),
            no_derivative=no_derivative(loss, shrinkage),
            shrinkage=shrinkage,
        )
        return [fit]

    def _initial(self, loss: Loss) -> InitialPrediction:
        """Return the initial prediction; losses of residuals start from a median or a quantile."""
        values = np.asarray(self._blob.bias, dtype=np.float64)
        if not self._estimated:
            return InitialPrediction(values)
        if isinstance(loss, ResidualLoss):
            reason = "the fit starts from a median or a quantile"
            return InitialPrediction(values, fixed_reason=reason)
        return InitialPrediction(values, follows_targets=True)

    def _shrinkage(self, n_trees: int) -> ExponentialShrinkage | None:
        """Return the shrinkage of scores that CatBoost keeps as exponentials; None for others."""
        if self._reading.losses[-1] not in KEPT_AS_EXPONENTIALS:
            return None
        last = self._fits[-1]
        factors = [last.shrinkage(tree) for tree in range(1, n_trees)]
        return ExponentialShrinkage(np.array([*factors, 1.0]))

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement in "counts" or "values"."""
        causes = with_class_weight_advice(self.class_weight, super().causes(mismatch))
        if mismatch == "values" and self._reading.losses[-1] in GROUPED_LOSSES:
            causes = f"{OTHER_GROUPS}\n{causes}"
        if mismatch != "values" or not any(fit.backtracks for fit in self._fits):
            return causes
        advice = "Backtracking shortened a step: fit with leaf_estimation_backtracking='No'."
        return f"{causes}\n{advice}"

    def _loss(self, rows: TrainingRows) -> Loss:
        return loss_of(self._reading, rows)

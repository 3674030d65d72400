"""CatBoost models whose gradient is known: log-losses, MultiClass, Poisson, Tweedie, Huber, LogCosh, RMSE.

Formulas: catboost/private/libs/algo_helpers/error_functions.h; steps: CalcLeafValues,
catboost/private/libs/algo/. All rows count in every leaf. A tree takes leaf_estimation_iterations
steps, each from where the last one ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.catboost.adapter import CatBoostAdapter
from axil.adapters.catboost.refusals import REFUSALS, CatBoostReading
from axil.adapters.catboost.settings import coefficients
from axil.adapters.catboost.shrinkage import KEPT_AS_EXPONENTIALS, ExponentialShrinkage
from axil.adapters.class_weights import class_weight_advice
from axil.adapters.contract import ClassWeightRule, Kind, TrainingRows
from axil.adapters.refusals import Refusal, gradient_refusals
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.trees.losses import Logistic, Loss, Softmax, Squared, poisson, tweedie
from axil.trees.residual_losses import Huber, LogCosh, Pinball, ResidualLoss

#: Losses of several labels for each row: every output is a log-loss of its own.
_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")
#: Losses whose targets are probabilities or several labels, so that the model names no classes of
#: the rows.
_WITHOUT_CLASSES = {"CrossEntropy", *_SEVERAL_LABELS}

# By loss_function: its settings, and whether leaf values are gradient steps.
_LOSSES: dict[str, Callable[[dict[str, Any], bool], Loss]] = {
    "RMSE": lambda settings, gradient: Squared(unit_hessian=gradient),
    **dict.fromkeys(
        ("Logloss", "CrossEntropy", "MultiClassOneVsAll", *_SEVERAL_LABELS),
        lambda settings, gradient: Logistic(unit_hessian=gradient),
    ),
    "MultiClass": lambda settings, gradient: Softmax(unit_hessian=gradient, joint=not gradient),
    "Poisson": lambda settings, gradient: poisson(unit_hessian=gradient),
    "Tweedie": lambda settings, gradient: tweedie(
        float(settings.get("variance_power", 1.5)), unit_hessian=gradient
    ),
    "Huber": lambda settings, gradient: Huber(
        delta=float(settings["delta"]), flat=True, unit_hessian=gradient
    ),
    "LogCosh": lambda settings, gradient: LogCosh(unit_hessian=gradient),
    # of gradient steps; leaves that are medians are refused by leaf_estimation_method
    "MAE": lambda settings, gradient: Pinball(near=1e-6, unit_hessian=True),
    "Quantile": lambda settings, gradient: Pinball(
        alpha=float(settings.get("alpha", 0.5)),
        near=float(settings.get("delta", 1e-6)),
        unit_hessian=True,
    ),
}


def _balanced(counts: FloatArray, sums: FloatArray) -> FloatArray:
    """Return the weights of auto_class_weights="Balanced" (catboost/private/libs/target/calc_class_weights.cpp).

    CatBoost cuts the sums of the rows' weights to whole numbers; they are in single precision here.
    """
    whole = np.floor(sums * (1 + 2 * float(np.finfo(np.float32).eps)))
    return np.asarray(np.divide(whole.max(), whole, out=np.ones_like(whole), where=whole > 0))


_RULES: dict[str, ClassWeightRule] = {
    "Balanced": _balanced,
    "SqrtBalanced": lambda counts, sums: np.sqrt(_balanced(counts, sums)),
}


def _l2(model: CatBoostReading) -> float:
    return float(model.values("tree_learner_options", "l2_leaf_reg")[-1] or 0.0)


def _no_derivative(loss: Loss, shrinkage: ExponentialShrinkage | None) -> str:
    """Return why scores have no derivatives by the targets; empty where they have."""
    if not loss.smooth:
        return "its gradient has corners, between which it does not follow the targets"
    if shrinkage is not None:
        return (
            "model_shrink_rate shrinks the scores of this loss through a logarithm of about four "
            "digits, which moves in steps"
        )
    return ""


def _border(model: CatBoostReading) -> str:
    named = (
        settings["loss_function"].get("params", {}).get("border")
        for settings in model.blob.settings
    )
    found = [
        border
        for border in (*named, *model.values("data_processing_options", "target_border"))
        if border
    ]
    if found:
        return str(found[0])
    return ""


def _gave_up(model: CatBoostReading) -> str:
    backtracks = (
        model.values("tree_learner_options", "leaf_estimation_backtracking")[-1] != "No"
        and model.steps > 1
    )
    zeros = backtracks and not model.blob.leaf_values.any()
    if zeros:
        return f"AnyImprovement with leaf_estimation_iterations={model.steps}"
    return ""


def _unknown_shrinkage(model: CatBoostReading) -> str:
    """Return the setting that leaves shrunk trees or a shrunk initial prediction of unknown size."""
    rate = next(filter(None, model.shrink_rates), None)
    if rate is None:
        return ""
    n_iterations = int(model.last["boosting_options"]["iterations"])
    if len(model.blob.depths) < n_iterations:
        return f"{rate:g} with early stopping"
    if model.blob.bias.any():
        return f"{rate:g} with boost_from_average"
    return ""


GRADIENT_REFUSALS = gradient_refusals(
    REFUSALS,
    Refusal(
        "leaf_estimation_iterations",
        lambda model: (
            model.pools_leaves and model.steps > 1 and f"{model.steps} with monotone_constraints"
        ),
        "CatBoost pools leaves again after each step, and axil replays the pools of one step only",
        "Fit with leaf_estimation_iterations=1 and model_shrink_rate=0, or without "
        "monotone_constraints.",
    ),
    Refusal(
        "loss_function",
        lambda model: next((loss for loss in model.losses if loss not in _LOSSES), ""),
        "axil does not know its gradient",
        'Fit with loss_function "Logloss", "MultiClass", "CrossEntropy", "Poisson" or "Tweedie".',
    ),
    Refusal(
        "leaf_estimation_method",
        lambda model: "Simple" in model.methods and "Simple",
        "its leaf values are not replayed",
        'Fit with leaf_estimation_method="Newton" or "Gradient".',
    ),
    Refusal(
        "leaf_estimation_backtracking",
        _gave_up,
        "CatBoost gave up every step, as it may with Huber: all leaves are zero, and no data would disagree with that",
        'Fit with leaf_estimation_backtracking="No" or leaf_estimation_iterations=1.',
    ),
    Refusal(
        "l2_leaf_reg",
        lambda model: "MultiClass" in model.losses and _l2(model) < 1e-6 and "0 with MultiClass",
        "a leaf's values for all classes are then not determined",
        "Fit with l2_leaf_reg above 0.",
    ),
    Refusal(
        "target_border",
        _border,
        "axil does not read which targets counted as 1",
        "Fit on targets of 0 and 1.",
    ),
    Refusal(
        "init_model",
        lambda model: len(model.blob.settings) > 1 and f"{len(model.blob.settings)} fits",
        "axil replays a fit that was made at once",
        "Fit all trees at once.",
    ),
    Refusal(
        "model_shrink_rate",
        _unknown_shrinkage,
        "CatBoost had multiplied what is left by a factor that the model does not keep",
        "Fit with model_shrink_rate=0, or without both boost_from_average and early stopping.",
    ),
)


class CatBoostWithLoss(CatBoostAdapter):
    """A CatBoost model read by the gradients of its loss."""

    refusals = GRADIENT_REFUSALS
    kind = Kind.ADDITIVE
    gradient_tolerance = 1e-6  # of a mean that is kept in float32

    def __init__(self, model: Any, reading: CatBoostReading):
        super().__init__(model, reading)
        names = np.asarray(model.classes_)
        self._named = len(names)
        self._present = self._blob.present_classes
        has_classes = len(names) > 0 and _WITHOUT_CLASSES.isdisjoint(self._reading.losses)
        if has_classes:
            self.classes = names if self._all_present else names[self._present]
        # Those of auto_class_weights and scale_pos_weight too, as numbers.
        weighed = self._reading.values("data_processing_options", "class_weights")[-1]
        places = range(len(names)) if self._all_present else self._present
        self.class_weight = (
            {k: float(weighed[place]) for k, place in enumerate(places)} if weighed else None
        )
        self.counts_classes_by = _RULES.get(
            str(self._reading.values("data_processing_options", "auto_class_weights")[-1])
        )

    @property
    def single_output_setting(self) -> str:
        """The setting that belongs to one output."""
        if self.encodings:
            return "categories that are encoded by the targets"
        if any(self._reading.shrink_rates):
            return "model_shrink_rate"
        return ""

    @property
    def _all_present(self) -> bool:
        """Whether every class that the model names was in the data; others have no output."""
        return self.n_outputs == 1 or self._named == self.n_outputs

    def scores(self, X: Any) -> FloatArray:
        """(n, K): of the classes that were in the data; CatBoost gives others a score of minus infinity."""
        if self._all_present:
            return self.predictions(X)
        found = np.asarray(
            self._model.predict(self._pool(X), prediction_type="RawFormulaVal"), dtype=np.float64
        )
        return found[:, self._present]

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return all trees; for several classes each has a leaf value for every one."""
        blob = self._blob
        last = self._fits[-1]
        n_trees = len(self._n_leaves)
        if blob.scale != 1 or n_trees > last.iterations:
            raise InputError(
                "This CatBoost model was changed after its fit (set_scale_and_bias) or continued (init_model): pass the model "
                "as one fit made it."
            )
        loss = self._loss()
        from_mean = not isinstance(loss, ResidualLoss)  # others start from medians or quantiles
        if not rows.totals.even and self._shuffled(rows):
            recorded = None
        else:
            recorded = self._recorded()
        l2 = np.full(
            int(self._n_leaves.sum()), last.scaled_l2(rows.totals.weight / rows.totals.n_rows)
        )
        if recorded is not None:
            is_light = recorded <= self._least_weight
            is_chained = self._in_chains()
            self._require_no_light_chains(recorded[is_light & is_chained])
            l2 = np.where(is_light & ~is_chained, np.inf, l2)
        if self.n_outputs > 1:
            outputs = None
        else:
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
                leaf_weights=None,
            ),
            leaf_rule=LeafRule(
                l2=l2, steps=last.steps, chains=self._chains, l2_by_weight=last.scales_l2
            ),
            initial=InitialPrediction(
                follows_targets=self._estimated and from_mean,
                values=np.asarray(blob.bias, dtype=np.float64),
                fixed_reason=""
                if from_mean or not self._estimated
                else "the fit starts from a median or a quantile",
            ),
            schedule=schedule,
            placement=self._placement(rows),
            loss=loss,
            no_derivative=_no_derivative(loss, shrinkage),
            shrinkage=shrinkage,
        )
        return [fit]

    def _shrinkage(self, n_trees: int) -> ExponentialShrinkage | None:
        """Return the shrinkage of scores that CatBoost keeps as exponentials; None for others."""
        if self._reading.losses[-1] not in KEPT_AS_EXPONENTIALS:
            return None
        last = self._fits[-1]
        factors = [last.shrinkage(tree) for tree in range(1, n_trees)]
        return ExponentialShrinkage(np.array([*factors, 1.0]))

    def causes(self, what: str) -> str:
        """The most likely reason for a disagreement in "counts" or "values"."""
        found = f"{class_weight_advice(self.class_weight)}\n{super().causes(what)}".lstrip()
        if what != "values" or not any(fit.backtracks for fit in self._fits):
            return found
        return (
            f"{found}\nBacktracking shortened a step: fit with leaf_estimation_backtracking='No'."
        )

    def _loss(self) -> Loss:
        said = self._reading.last["loss_function"]
        gradient = self._reading.methods[-1] == "Gradient"
        return _LOSSES[str(said["type"])](said.get("params", {}), gradient)

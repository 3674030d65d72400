"""CatBoost's losses whose gradients axil knows, and the refusals of all others.

Formulas: catboost/private/libs/algo_helpers/error_functions.h.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from axil.adapters.catboost.coupled import (
    CatBoostCox,
    coupled_loss,
    require_one_block,
)
from axil.adapters.catboost.refusals import REFUSALS, CatBoostReading
from axil.adapters.catboost.shrinkage import ExponentialShrinkage
from axil.adapters.contract import ClassWeightRule, TrainingRows
from axil.adapters.refusals import Refusal, gradient_refusals
from axil.arrays import FloatArray
from axil.trees.coupled_losses import require_groups
from axil.trees.losses import Logistic, Loss, Softmax, Squared, poisson, tweedie
from axil.trees.residual_losses import Huber, LogCosh, Pinball

#: Losses of several labels for each row: every output is a log-loss of its own.
_SEVERAL_LABELS = ("MultiLogloss", "MultiCrossEntropy")
#: Losses whose targets are probabilities or several labels, so that the model names no classes of
#: the rows.
WITHOUT_CLASSES = {"CrossEntropy", *_SEVERAL_LABELS}

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


GROUPED_LOSSES = ("QueryRMSE", "PairLogit")
COUPLED_LOSSES = (*GROUPED_LOSSES, "Cox")


def loss_of(reading: CatBoostReading, rows: TrainingRows) -> Loss:
    """Return the loss of the last fit of a model, for these rows."""
    stated = reading.last["loss_function"]
    takes_gradient_steps = reading.methods[-1] == "Gradient"
    name = str(stated["type"])
    if name in GROUPED_LOSSES:
        groups = require_groups(rows.groups, name)
        return coupled_loss(name, takes_gradient_steps, groups, rows.weights)
    if name == "Cox":
        require_one_block(len(rows.targets))
        return CatBoostCox(takes_gradient_steps=takes_gradient_steps)
    return _LOSSES[str(stated["type"])](stated.get("params", {}), takes_gradient_steps)


def _balanced(counts: FloatArray, sums: FloatArray) -> FloatArray:
    """Return the weights of auto_class_weights="Balanced".

    Formula: catboost/private/libs/target/calc_class_weights.cpp. CatBoost cuts the sums of the
    rows' weights to whole numbers; they are in single precision here.
    """
    whole = np.floor(sums * (1 + 2 * float(np.finfo(np.float32).eps)))
    return np.asarray(np.divide(whole.max(), whole, out=np.ones_like(whole), where=whole > 0))


CLASS_WEIGHT_RULES: dict[str, ClassWeightRule] = {
    "Balanced": _balanced,
    "SqrtBalanced": lambda counts, sums: np.sqrt(_balanced(counts, sums)),
}


def _l2(model: CatBoostReading) -> float:
    return float(model.values("tree_learner_options", "l2_leaf_reg")[-1] or 0.0)


def no_derivative(loss: Loss, shrinkage: ExponentialShrinkage | None) -> str:
    """Return why scores have no derivatives by the targets; empty if they have."""
    if loss.couples_rows and not loss.smooth:
        return loss.no_derivative
    if not loss.smooth:
        return (
            "its gradient changes in steps, so its derivative by the targets is zero or not defined"
        )
    if shrinkage is not None:
        return (
            "with this loss model_shrink_rate shrinks scores by a logarithm of about four "
            "digits, which changes in steps"
        )
    return ""


def _border(model: CatBoostReading) -> str:
    named = (
        settings["loss_function"].get("params", {}).get("border")
        for settings in model.blob.settings
    )
    borders = [
        border
        for border in (*named, *model.values("data_processing_options", "target_border"))
        if border
    ]
    if borders:
        return str(borders[0])
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
    """Return the setting that shrinks trees or the initial prediction by an unknown factor."""
    rate = next(filter(None, model.shrink_rates), None)
    if rate is None:
        return ""
    n_iterations = int(model.last["boosting_options"]["iterations"])
    if len(model.blob.depths) < n_iterations:
        return f"{rate:g} with early stopping"
    if model.blob.bias.any():
        return f"{rate:g} with boost_from_average"
    return ""


#: the first whose derivatives of Cox are known
COX_VERSION = (1, 2, 10)
_KNOWN = (*_LOSSES, *COUPLED_LOSSES)


def _pairs_at_random(model: CatBoostReading) -> str:
    """Return max_pairs of PairLogit, which samples pairs at random."""
    settings = model.last["loss_function"].get("params", {})
    if "PairLogit" not in model.losses or "max_pairs" not in settings:
        return ""
    return f"PairLogit with max_pairs={settings['max_pairs']}"


def _older_cox(model: CatBoostReading) -> str:
    """Return the version that trained a model of Cox, where its derivatives are not replayed."""
    if "Cox" not in model.losses:
        return ""
    info = model.blob.info.get("catboost_version_info", "")
    stated = re.search(r"tags/v(\d+)\.(\d+)\.(\d+)", info)
    if stated is None:
        return "Cox of a CatBoost that does not state its version"
    version = tuple(int(number) for number in stated.groups())
    if version < COX_VERSION:
        return f"Cox of CatBoost {'.'.join(stated.groups())}"
    return ""


def _groups_beside(model: CatBoostReading) -> str:
    """Return a setting beside which losses of groups and of rows at risk are not replayed."""
    name = next((loss for loss in model.losses if loss in COUPLED_LOSSES), "")
    if name == "Cox" and model.blob.category_columns:
        return "Cox with categories, which shuffle the rows of one time"
    if name and model.encoded:
        return f"{name} with {model.encoded}"
    if name and model.on_gpu:
        return f"{name} on a GPU"
    if name == "PairLogit" and model.pools_leaves:
        return "PairLogit with monotone_constraints"
    return ""


GRADIENT_REFUSALS = gradient_refusals(
    REFUSALS,
    Refusal(
        "loss_function",
        _pairs_at_random,
        "CatBoost samples pairs at random",
        "Fit without max_pairs.",
    ),
    Refusal(
        "loss_function",
        _older_cox,
        "it had other derivatives, and axil replays those of CatBoost 1.2.10 and later",
        "Fit again with a newer CatBoost.",
    ),
    Refusal(
        "loss_function",
        _groups_beside,
        "axil replays this loss for fits on a CPU without categories encoded by the targets; "
        "with PairLogit it does not replay monotone constraints",
        'Fit with task_type="CPU", a larger one_hot_max_size, or loss_function="QueryRMSE".',
    ),
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
        lambda model: next((loss for loss in model.losses if loss not in _KNOWN), ""),
        "axil does not know its gradient",
        'Fit with loss_function "Logloss", "MultiClass", "CrossEntropy", "Poisson", "Tweedie", '
        '"QueryRMSE" or "PairLogit".',
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
        "CatBoost gave up every step, as it may with Huber: all leaves are zero, and no data "
        "would disagree with that",
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
        "CatBoost had multiplied the remaining trees by a factor that the model does not record",
        "Fit with model_shrink_rate=0, or without both boost_from_average and early stopping.",
    ),
)

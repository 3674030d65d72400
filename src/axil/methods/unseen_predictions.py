"""Predictions of the training rows by fits that did not see them, from the fitted model alone.

The rows are split into folds. The fit is replayed without the rows of each with the tree structure
fixed, and these rows are predicted. That takes a pass over rows and trees per fold, O(T N). Leaving
out every row by itself takes one pass or one solve per row, and residuals of both rank wrong labels
nearly alike (experiments/label_issues.py). Forests and linear smoothers leave out every row: there
it takes less time than folds.
"""

from __future__ import annotations

import numpy as np

from axil.arrays import FloatArray
from axil.errors import ApproximationWarning, InputError, UnsupportedQuestionError, shown, warn
from axil.methods import leave_one_out
from axil.methods.folds import BY_FOLDS, fold_predictions, number_of_folds
from axil.methods.noise import leverages
from axil.replay.exact_model import ExactModel
from axil.replay.fitted_trees import are_boosted
from axil.weights.forest import Forest
from axil.weights.left_out import LEAST_LEFT
from axil.weights.members import Residual, Sum
from axil.weights.smoother import Smoother

METHODS = ("folds", "leave-one-out")  # of predictions that the model makes of its own training rows
MOST_UNKNOWN = (
    0.5  # of the training rows: above it their predictions without themselves correct too few
)
BY_WEIGHTS = "by what the weights of the other rows say of each target; not a retraining"
WITH_METHODS = (
    'expected "folds", "leave-one-out", {}or an array of your own out-of-fold predictions '
    "of the training rows, as from "
    "sklearn.model_selection.cross_val_predict(model, X_train, y_train)."
)


def has_closed_form(verified: ExactModel) -> bool:
    """Return whether leave-one-out takes less time than folds.

    In forests a row changes its own leaves alone.

    Unless class weights are counted from the labels: then it changes all leaves.
    """
    if counts_classes(verified):
        return False
    return verified.deletions.is_exact_fast or all(
        isinstance(engine, Smoother) for engine in verified.engines
    )


def counts_classes(verified: ExactModel) -> bool:
    """Return whether class weights are counted again for the remaining rows.

    Then only sets of rows have leave-out predictions.
    """
    rules = [s.leaf_rule for engine in verified.engines for s in engine.structures]
    counts = [rule.class_counts for rule in rules if rule is not None]
    return any(class_counts is not None and class_counts.is_known for class_counts in counts)


def unseen_predictions(verified: ExactModel, method: str) -> tuple[FloatArray, str]:
    """Return out-of-fold predictions of the training rows, (N, K), and the note on them.

    Parameters
    ----------
    verified : ExactModel
        A model with exact weights.
    method : "folds" or "leave-one-out"
        "folds" is without each row all the same where that takes less time (`has_closed_form`). A
        model that cannot be fitted without some of its rows has the targets at which its rows' own
        predictions would agree with them.
    """
    if method == "leave-one-out" and counts_classes(verified):
        leave_one_out.left_out(verified)  # refused
    try:
        if method == "leave-one-out" or has_closed_form(verified):
            predictions = leave_one_out.rest(verified)
            note = verified.deletions.note()
        else:
            predictions = fold_predictions(verified)
            note = BY_FOLDS.format(number_of_folds(verified))
    except UnsupportedQuestionError as error:
        return _agreeing_values(verified, error.reason), BY_WEIGHTS
    if np.isnan(predictions).any(axis=1).mean() <= MOST_UNKNOWN:
        return predictions, note
    reason = (
        "most training rows are alone in one of their leaves, so leave-one-out fits say no more"
    )
    return _agreeing_values(verified, reason), BY_WEIGHTS


def _agreeing_values(verified: ExactModel, reason: str) -> FloatArray:
    """Return `agreeing_values`; warn if they only approximate leave-one-out predictions."""
    lost = any(
        getattr(engine.structure, "is_ranked", False)
        for engine in verified.engines
        if isinstance(engine, Forest)
    )
    combines = any(isinstance(engine, (Sum, Residual)) for engine in verified.engines)
    if lost or are_boosted(verified.trees) or combines:
        warn(
            f"The leave-one-out predictions are approximate here: {reason}. axil returns instead "
            "the targets at which each row's own prediction would equal its target, a few "
            "percent nearer to the rows' targets. Out-of-fold predictions of your own are "
            "better: cross_val_predict(model, X_train, y_train), as out_of_fold of influence and "
            "find_label_issues.",
            ApproximationWarning,
        )
    return agreeing_values(verified)


def agreeing_values(verified: ExactModel) -> FloatArray:
    """Return ``(F_j - K_jj y_j) / (1 - K_jj)``, (N, K).

    At this target row j's own prediction would equal it: the prediction of row j by all other rows.
    It is nan if K_jj is within 1e-6 of one.
    """
    leverage = leverages(verified)
    remaining_share = 1.0 - leverage
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            remaining_share > LEAST_LEFT,
            (verified.fitted() - leverage * verified.targets) / remaining_share,
            np.nan,
        )


def as_method(given: str, others: str = "") -> str:
    """Return the method that out_of_fold names, checked."""
    if given not in METHODS:
        raise InputError(f"out_of_fold is {shown(given)}; {WITH_METHODS.format(others)}")
    return given

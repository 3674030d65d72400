"""Errors of the training rows, by predictions that did not see them where there are such."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.machine.progress import track
from axil.methods import leave_one_out
from axil.methods.folds import fold_predictions, number_of_folds
from axil.methods.unseen_predictions import agreeing_values
from axil.replay.exact_model import ExactModel
from axil.replay.fitted_trees import boosted_structures
from axil.weights.engine import by_output
from axil.weights.forest import Forest

PATIENCE = 600.0  # seconds that errors may take, above which a cheaper source is taken


def training_errors(
    model: ExactModel, out_of_fold: FloatArray | None, method: str
) -> tuple[FloatArray, str]:
    """Return the out-of-sample errors of the training rows, and their source.

    The sources are, in this order: out-of-fold predictions (N, K), out-of-bag predictions,
    leave-one-out predictions, leverages, and the fit itself. With the method "leaves", boosted
    trees take the fit at once, and other models take folds where leave-one-out takes longer.
    Intervals have their coverage with any of these. Errors that are nearer to those of new rows
    make them narrower.

    Returns
    -------
    errors : ndarray of shape (N, K)
        They are nan for a row of which nothing is known.
    source : str
    """
    if out_of_fold is not None:
        return model.targets - out_of_fold, "out-of-fold"
    if is_bagged(model):
        return model.targets - out_of_bag_predictions(model), "out-of-bag"
    if method == "leaves" and boosted_structures(model.trees) is not None:
        return model.targets - model.fitted(), "fit"
    if method == "leaves" and _folds_are_faster(model):
        errors = _errors_of_refits(model, fold_predictions)
        if errors is not None:
            return errors, "folds"
    if leave_one_out.seconds_of(model) <= PATIENCE:
        errors = _errors_of_refits(model, leave_one_out.predictions)
        if errors is not None:
            return errors, "leave-one-out"
    return _errors_of_fit(model)


def _folds_are_faster(model: ExactModel) -> bool:
    """Return whether refits without folds take less time than the leave-one-out fits."""
    seconds_of_folds = number_of_folds(model) * model.deletions.pass_seconds
    return leave_one_out.seconds_of(model) > seconds_of_folds


def _errors_of_refits(
    model: ExactModel, predictions_of: Callable[[ExactModel], FloatArray]
) -> FloatArray | None:
    """Return the errors of refits (N, K); None if they are unsupported, or nan for most rows.

    Leave-one-out errors are nan for most rows if most are singletons in one of their leaves.
    """
    try:
        errors = model.targets - predictions_of(model)
    except UnsupportedQuestionError:
        return None
    if np.isfinite(errors).all(axis=1).mean() > 0.5:
        return errors
    return None


def _errors_of_fit(model: ExactModel) -> tuple[FloatArray, str]:
    """Return the errors by leverages, or those of the fit itself, and their source."""
    available = model.budget.available
    if sum(engine.costs(available).leverage for engine in model.engines) <= PATIENCE:
        errors = model.targets - agreeing_values(model)
        if np.isfinite(errors).any(axis=0).all():
            return errors, "leverage"
    return model.targets - model.fitted(), "fit"


def is_bagged(model: ExactModel) -> bool:
    """Return whether the model is a forest whose trees leave rows out."""
    forests = [engine for engine in model.engines if isinstance(engine, Forest)]
    return len(forests) == len(model.engines) and all(
        forest.structure.has_unsampled_rows for forest in forests
    )


def out_of_bag_predictions(model: ExactModel) -> FloatArray:
    """Return the prediction of each row by the trees that were fitted without it, (N, K).

    It is nan if there is no such tree. The predictions are computed once.
    """
    return model.kept.get("out of bag", lambda: _out_of_bag(model))


def _out_of_bag(model: ExactModel) -> FloatArray:
    """Compute `out_of_bag_predictions`."""
    rows = np.arange(len(model.targets))
    engine_predictions = []
    for engine, targets in by_output(model.engines, model.targets):
        assert isinstance(engine, Forest)
        step = model.budget.batch_size(engine.memory.per_query)
        predictions = np.empty_like(targets)
        for first in track(range(0, len(rows), step), "out of bag"):
            batch = rows[first : first + step]
            answer, is_out_of_bag = engine.out_of_bag(batch)
            values = answer.product(targets) + answer.intercepts
            predictions[batch] = np.where(is_out_of_bag[:, None], values, np.nan)
        engine_predictions.append(predictions)
    return np.concatenate(engine_predictions, axis=1)

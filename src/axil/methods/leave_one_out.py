"""Leave-one-out fits of all training rows, computed once per model."""

from __future__ import annotations

import numpy as np

from axil.aliases import LeaveOneOut
from axil.arrays import BoolArray, FloatArray
from axil.attribution import notes
from axil.contributions.additive_model import AdditiveModel
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.progress import in_time, track
from axil.methods.folds import fold_predictions, number_of_folds
from axil.methods.noise import announce
from axil.replay.exact_model import ExactModel
from axil.weights.engine import by_output
from axil.weights.left_out import ErrorCurve, LeftOut

LONGEST = 6 * 3600.0  # seconds of replays, above which they are refused
ALONE = (
    "no other training row with a weight is in one of the row's leaves, so a fit without the row "
    "does not predict it"
)
METHOD = "diagnostics.leave_one_out"
METHODS: tuple[LeaveOneOut, ...] = ("exact", "folds")
BY_FOLDS_INSTEAD = 'method="folds" takes less.'
INSTEAD = (
    "find_label_issues and calibrate need none of it if you pass predictions of your own: "
    "out_of_fold=cross_val_predict(model, X_train, y_train)."
)


def left_out(model: ExactModel) -> list[LeftOut]:
    """Return the leave-one-out fits of all training rows, engine by engine.

    They are computed once. axil warns before, if that takes long.
    """
    return model.kept.get("left out", lambda: _left_out(model))


def _left_out(model: ExactModel) -> list[LeftOut]:
    """Compute `left_out`; raise if it would take hours."""
    available = model.budget.available
    seconds = seconds_of(model)
    if LONGEST < seconds < np.inf:
        raise InputError(
            f"Leaving out each of {len(model.targets)} training rows takes as many replays of the "
            f"fit, {in_time(seconds)}, as the leaf matrix does not fit into memory, or this model "
            "has none (percentiles, bounds). Raise memory_limit, explain a model of fewer leaves, "
            "or use your own cross-validation."
        )
    announce(f"Leaving out each of {len(model.targets)} training rows takes", seconds, INSTEAD)
    return [
        engine.deletable(METHOD).left_out(targets, available)
        for engine, targets in by_output(model.engines, model.targets)
    ]


def scores_of(model: AdditiveModel, method: str) -> FloatArray:
    """Return the leave-one-out score of each training row, (N, K).

    Parameters
    ----------
    model : AdditiveModel
    method : "exact" or "folds"
        "exact" replays the fit once per row, "folds" once per fold of the rows.
    """
    try:
        if method == "folds":
            return fold_predictions(model)
        return model.kept.get("left out", lambda: _scores_by_replays(model))
    except UnsupportedQuestionError as error:
        raise UnsupportedQuestionError(METHOD, error.reason, error.instead) from None


def _scores_by_replays(model: AdditiveModel) -> FloatArray:
    """Compute the scores of all training rows by the refits without each of them, (N, K).

    It is nan for the only row of any weight.
    """
    n_rows = model.shape[0]
    seconds = n_rows * model.deletions.pass_seconds
    if seconds > LONGEST:
        raise InputError(
            f"Leaving out each of {n_rows} training rows takes as many replays of the fit, "
            f'{in_time(seconds)}. Ask for method="folds", which takes '
            f"{number_of_folds(model)} of them."
        )
    announce(f"Leaving out each of {n_rows} training rows takes", seconds, BY_FOLDS_INSTEAD)
    sets_of_rows = list(np.arange(n_rows)[:, None])
    weighted_rows = np.flatnonzero(model.row_weights)
    if len(weighted_rows) == 1:
        del sets_of_rows[weighted_rows[0]]
    scores = np.full(model.shape, np.nan)
    replays = model.deletions.own_predictions(sets_of_rows)
    for rows, scores_of_rows in zip(track(sets_of_rows, "leave-one-out"), replays):
        scores[rows] = scores_of_rows
    return scores


def seconds_of(model: ExactModel) -> float:
    """Estimate the time that `left_out` takes.

    It is 0 if the fits are cached, and inf if the model refuses them.
    """
    if "left out" in model.kept.known():
        return 0.0
    return model.deletions.seconds(model.budget.available)[0]


def predictions(model: ExactModel) -> FloatArray:
    """Return the leave-one-out prediction of each training row, (N, K).

    It is nan for a row that is a singleton in one of its leaves.
    """
    return np.concatenate([fits.predictions for fits in left_out(model)], axis=1)


def rest(model: ExactModel) -> FloatArray:
    """Return the leave-one-out prediction of each training row, (N, K).

    An empty leaf adds nothing.

    So rows have a prediction, too, that are singletons in some of their leaves.
    """
    return np.concatenate([fits.without for fits in left_out(model)], axis=1)


def note_on(is_singleton: BoolArray, note: str = notes.NOTE) -> str:
    """Return the note on a table of leave-one-out predictions, with the number of nan ones."""
    n_singletons = int(is_singleton.sum())
    if n_singletons:
        return f"{note}; nan in {n_singletons} of {len(is_singleton)} lines: {ALONE}"
    return note


def curves(model: ExactModel) -> list[ErrorCurve] | None:
    """Return the errors by the number of trees, engine by engine; None if an engine has none."""
    engine_curves = [fits.curve for fits in left_out(model) if fits.curve is not None]
    if len(engine_curves) == len(model.engines):
        return engine_curves
    return None

"""Leave-one-out fits of all training rows, computed once per model."""

from __future__ import annotations

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.attribution import notes
from axil.errors import InputError
from axil.machine.progress import in_time
from axil.methods.noise import announce
from axil.replay.exact_model import ExactModel
from axil.weights.left_out import ErrorCurve, LeftOut

LONGEST = 6 * 3600.0  # seconds of replays, above which they are refused
ALONE = (
    "no other training row of any weight is in one of the row's leaves, so no fit without it says "
    "what it would be"
)
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
        engine.deletable("diagnostics.leave_one_out").left_out(targets, available)
        for engine, targets in model.by_output(model.targets)
    ]


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
    """Return the leave-one-out prediction of each training row, where an empty leaf adds nothing, (N, K).

    So rows have a prediction, too, that are singletons in some of their leaves.
    """
    return np.concatenate([fits.without for fits in left_out(model)], axis=1)


def note_on(is_singleton: BoolArray, note: str = notes.NOTE) -> str:
    """Return the note on a table of leave-one-out predictions, which says how many are nan."""
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

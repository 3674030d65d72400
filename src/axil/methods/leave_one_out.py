"""Fits without each training row, computed once per model."""

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
ALONE = "no other training row of any weight is in one of the row's leaves, so no fit without it says what it would be"
INSTEAD = (
    "find_label_issues and calibrate need none of it if you pass predictions of your own: "
    "out_of_fold=cross_val_predict(model, X_train, y_train)."
)


def left_out(proven: ExactModel) -> list[LeftOut]:
    """Each training row in the fit without it, engine by engine; made once, after a warning where that takes long."""
    return proven.kept.get("left out", lambda: _left_out(proven))


def _left_out(proven: ExactModel) -> list[LeftOut]:
    available = proven.budget.available
    seconds = seconds_of(proven)
    if LONGEST < seconds < np.inf:
        raise InputError(
            f"Leaving out each of {len(proven.targets)} training rows takes as many replays of the fit, {in_time(seconds)}, as "
            "the leaf matrix does not fit into memory, or this model has none (percentiles, bounds). Raise "
            "memory_limit, explain a "
            "model of fewer leaves, or use your own cross-validation."
        )
    announce(f"Leaving out each of {len(proven.targets)} training rows takes", seconds, INSTEAD)
    return [
        engine.deletable("diagnostics.leave_one_out").left_out(targets, available)
        for engine, targets in proven.by_output(proven.targets)
    ]


def seconds_of(proven: ExactModel) -> float:
    """The time that `left_out` takes, roughly: none where it is known; inf where it is refused."""
    if "left out" in proven.kept.known():
        return 0.0
    return proven.deletion_seconds(proven.budget.available)[0]


def predictions(proven: ExactModel) -> FloatArray:
    """(N, K): the prediction of each training row without itself; nan where no other row says anything of it."""
    return np.concatenate([one.predictions for one in left_out(proven)], axis=1)


def rest(proven: ExactModel) -> FloatArray:
    """The same, with the predictions of fits in which a row's leaf is left empty and adds nothing."""
    return np.concatenate([one.without for one in left_out(proven)], axis=1)


def note_on(alone: BoolArray, note: str = notes.NOTE) -> str:
    """The note on a table of predictions without the row itself, some of which do not exist."""
    n = int(alone.sum())
    if n:
        return f"{note}; nan in {n} of {len(alone)} lines: {ALONE}"
    return note


def curves(proven: ExactModel) -> list[ErrorCurve] | None:
    """Return the errors by the number of trees, engine by engine; None if an engine has none."""
    found = [one.curve for one in left_out(proven) if one.curve is not None]
    if len(found) == len(proven.engines):
        return found
    return None

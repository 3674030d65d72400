"""Left out: each training row's prediction without itself, and the error of these after every number of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import ApproximationWarning, InputError, UnsupportedQuestionError, shown, warn
from axil.machine.progress import in_time
from axil.output import tables
from axil.questions.noise import announce
from axil.replay.held import row_beyond
from axil.replay.proven import ProvenModel
from axil.types import Array
from axil.weights.left_out import Curve, LeftOut

LONGEST = 6 * 3600.0  # seconds of replays, above which they are refused
ALONE = (
    "no other training row of any weight is in one of the row's leaves (in any, where trees are averaged), so no fit without it "
    "says what it would be"
)
INSTEAD = (
    "audit and calibrate do without where they get your own: out_of_fold=cross_val_predict(model, X_train, y_train)."
)


def left_out(proven: ProvenModel) -> list[LeftOut]:
    """Each training row in the fit without it, engine by engine; made once, after a warning where that takes long."""
    return proven.kept.get("left out", lambda: _left_out(proven))


def _left_out(proven: ProvenModel) -> list[LeftOut]:
    available, seconds = proven.budget.available, seconds_of(proven)
    if LONGEST < seconds < np.inf:
        raise InputError(
            f"Leaving out each of {len(proven.targets)} training rows does not fit into memory in leaf space, and replays would "
            f"take {in_time(seconds)}. Raise memory_limit, explain a model of fewer leaves, or use your own cross-validation."
        )
    announce(f"Leaving out each of {len(proven.targets)} training rows takes", seconds, INSTEAD)
    return [engine.left_out(targets, available) for engine, targets in proven.by_output(proven.targets)]


def seconds_of(proven: ProvenModel) -> float:
    """The time that `left_out` takes, roughly: none where it is known; inf where it is refused."""
    if "left out" in proven.kept.known():
        return 0.0
    costs = [engine.costs(proven.budget.available) for engine in proven.engines]
    return sum(min(cost.deletion, cost.replays) for cost in costs)


def pattern_note(proven: ProvenModel) -> str:
    """The note on exact deletions of single rows, after a warning where one of them changes the pattern that is held."""
    row = proven.kept.get("row beyond", lambda: _row_beyond(proven))
    if row < 0:
        return tables.NOTE
    warn_pattern(f"Without single training rows, such as {shown(proven.index[row])}, leaves would have another pattern")
    return tables.HELD


def warn_pattern(found: str) -> None:
    """Warn of deletions that change the pattern which is held fixed."""
    warn(
        f"{found}: sums that L1 moves or puts to zero, values at a clip or a bound. The predictions hold the pattern of the "
        "fit fixed, as they hold its splits; a refit on the same splits differs (explainer.verification.held).",
        ApproximationWarning,
    )


def _row_beyond(proven: ProvenModel) -> int:
    """The position of a training row whose deletion changes the pattern; -1: there is none."""
    for engine, own in proven.by_output(proven.targets):
        found = row_beyond(engine, own, proven.budget.available)
        if found is not None:
            return found
    return -1


def predictions(proven: ProvenModel) -> Array:
    """(N, K): the prediction of each training row without itself; nan where no other row says anything of it."""
    return np.concatenate([one.predictions for one in left_out(proven)], axis=1)


def leave_one_out(proven: ProvenModel) -> Any:
    """The table of `Questions.leave_one_out`."""
    found, targets = proven.scale.inverse(predictions(proven)), proven.shown
    columns: dict[str, Any] = {"row": np.repeat(proven.index, targets.shape[1])}
    if proven.outputs is not None:
        columns["output"] = np.tile(proven.outputs, len(targets))
    columns |= {"target": targets.ravel(), "prediction": found.ravel(), "residual": (targets - found).ravel()}
    columns["alone"] = np.isnan(found).ravel()
    return tables.note(tables.make(columns, proven.backend), note_on(columns["alone"], pattern_note(proven)))


def note_on(alone: NDArray[np.bool_], note: str = tables.NOTE) -> str:
    """The note on a table of predictions without the row itself, some of which do not exist."""
    n = int(alone.sum())
    return f"{note}; nan in {n} of {len(alone)} lines: {ALONE}" if n else note


def _curves(proven: ProvenModel) -> list[Curve] | None:
    """Engine by engine; None where one has none."""
    found = [one.curve for one in left_out(proven) if one.curve is not None]
    return found if len(found) == len(proven.engines) else None


def loo_curve(proven: ProvenModel) -> Any:
    """The table of `Questions.loo_curve`."""
    known = _curves(proven)
    if known is None:
        raise UnsupportedQuestionError(
            "loo_curve",
            "the trees of this model are not fitted one after the other to what those before leave over (a forest, DART, model "
            "shrinkage, or no trees at all), so its first trees are no model by themselves",
            "leave_one_out works for it; refit with fewer trees to compare.",
        )
    if not any(curve.rows for curve in known):
        raise UnsupportedQuestionError(
            "loo_curve",
            "every training row is alone in one of its leaves, so none has a prediction without itself",
            "Fit with larger leaves.",
        )
    steps, several = known[0].trees, proven.outputs is not None
    columns: dict[str, Any] = {"trees": np.repeat(steps, proven.targets.shape[1])}
    if several:
        columns["output"] = np.tile(proven.outputs, len(steps))  # type: ignore[arg-type]
    columns[proven.scale.label("error")] = np.concatenate([curve.left_out for curve in known], axis=1).ravel()
    columns[proven.scale.label("training_error")] = np.concatenate([curve.fitted for curve in known], axis=1).ravel()
    return tables.note(tables.make(columns, proven.backend), tables.NOTE)

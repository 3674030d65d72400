"""leave_one_out: each training row's prediction without itself, and the error of these after every number of trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.attribution import notes
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.progress import in_time
from axil.methods.noise import announce
from axil.methods.question import Question, output_columns
from axil.output import tables
from axil.replay.exact_model import ExactModel
from axil.weights.left_out import ErrorCurve, LeftOut

LONGEST = 6 * 3600.0  # seconds of replays, above which they are refused
ALONE = "no other training row of any weight is in one of the row's leaves, so no fit without it says what it would be"
INSTEAD = (
    "find_label_issues and calibrate need none of it if you pass predictions of your own: "
    "out_of_fold=cross_val_predict(model, X_train, y_train)."
)


class LeaveOneOut(Question):
    """The question, as methods of `Explainer`."""

    def leave_one_out(self) -> Any:
        """The prediction of every training row by the fit without that row, and what it leaves of the target.

        A frame with the columns row, target, prediction, residual = target - prediction, alone, and
        output if there are several, in the order of the training rows. Exact with the structure
        held fixed. ``alone``: no other row of any weight is in one of the row's leaves, or none is
        left at all, so nothing but the row's own target says what its prediction would be;
        prediction and residual are nan.

        The row did help to choose the splits, so these residuals are smaller than those of refits without it. In the leaf matrix,
        O(T^2) per training row and blocks of rows at a time: some seconds for a million rows and 100 trees
        (docs/scaling.md). Where the leaf matrix does not fit, one replay per row. Made once for an explainer; a
        `CostWarning` says where that takes more than 30 seconds. Of a model fitted to transformed targets all columns are in
        the targets' own units. Refused for trees, forests and bagged trees with balanced classes, where every row has a part in
        the weights of all others.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> left_out = explainer.leave_one_out()
        >>> change = explainer.without(X.loc[[7]], [7])
        >>> bool(abs(left_out["prediction"][7] - change["after"][0]) < 1e-9)
        True
        """
        model = self._answering("leave_one_out")
        targets, index = model.gathered
        if model.seen is not None:
            targets = model.seen
        made = model.left_out_predictions(predictions)
        found = model.scale.inverse(made)
        columns = output_columns("row", index, model.outputs)
        columns |= {
            "target": targets.ravel(),
            "prediction": found.ravel(),
            "residual": (targets - found).ravel(),
        }
        columns["alone"] = np.isnan(found).ravel()
        note = model.note(note_on(columns["alone"], model.deletion_note()))
        return tables.note(tables.make(columns, model.backend), note)

    def leave_one_out_curve(self) -> Any:
        """The mean squared leave-one-out error after every number of trees, from 0 (the base alone) to all of them.

        A frame with the columns trees, error, training_error, and output if there are several. ``error`` is that of
        `leave_one_out` for the model of the first trees, ``training_error`` that of the same rows in the fit with all; by sample
        weights, where the fit had some. Rows that have no prediction without themselves are left out of both. Exact with the
        structure held fixed, from the same pass as `leave_one_out`. The splits followed the targets of all rows, so the error is
        too small, and it goes on falling where that of refits rises: it is no rule for when to stop
        (measured in docs/evidence_deletions.md). Of a model fitted to transformed targets errors are on the scale of the fit:
        "error (log)". Not for forests, DART and model shrinkage, whose first trees are no model by themselves.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> curve = explainer.leave_one_out_curve()
        >>> len(curve), bool((curve["error"] > curve["training_error"]).all())
        (21, True)
        """
        model = self._answering("leave_one_out_curve")
        known = _curves(model)
        if known is None:
            raise UnsupportedQuestionError(
                "leave_one_out_curve",
                "the trees of this model are not fitted one after the other to what those before leave over (a forest, DART, "
                "model shrinkage, no trees at all, or percentiles, the first of which is the start), so its first trees are no "
                "model by themselves",
                "leave_one_out works for it; refit with fewer trees to compare.",
            )
        if not any(curve.rows for curve in known):
            raise UnsupportedQuestionError(
                "leave_one_out_curve",
                "every training row is alone in one of its leaves, so none has a prediction without itself",
                "Fit with larger leaves.",
            )
        columns = output_columns("trees", known[0].trees, model.outputs)
        for name, errors in (("error", "left_out"), ("training_error", "fitted")):
            found = np.concatenate([getattr(curve, errors) for curve in known], axis=1)
            columns[model.scale.label(name)] = found.ravel()
        return tables.note(tables.make(columns, model.backend), model.note(model.deletion_note()))


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
        engine.deletable("leave_one_out").left_out(targets, available)
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


def _curves(proven: ExactModel) -> list[ErrorCurve] | None:
    """Engine by engine; None where one has none."""
    found = [one.curve for one in left_out(proven) if one.curve is not None]
    if len(found) == len(proven.engines):
        return found
    return None

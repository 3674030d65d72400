"""blame: which training targets raise the error on validation rows, and what correcting each would gain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil import inputs
from axil.effects import notes
from axil.errors import ApproximationWarning, InputError, UnsupportedQuestionError, shown, warn
from axil.machine.progress import in_time
from axil.output import tables
from axil.questions import leave_one_out
from axil.questions.noise import WARNED, leverages
from axil.questions.question import Asked, Question, output_columns, warn_without_offsets
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array
from axil.weights.boosting import BoostedTrees
from axil.weights.forest import Forest
from axil.weights.left_out import LEAST_LEFT
from axil.weights.members import Residual, Sum

MOST_ALONE = 0.5  # of the training rows: above it their predictions without themselves correct too few


class Blame(Question):
    """The question, as a method of `Explainer`."""

    def blame(self, X_val: Any, y_val: Any, out_of_fold: Any = "leave-one-out", init_score: Any = None) -> Any:
        """Which training targets raise the error on validation rows, and what correcting each would gain.

        A frame with the columns row, target, gradient, corrected, gain, and output if there are several, largest gain first.
        ``gradient``: of the mean squared validation error in the row's target, ``(2 / n) K'(prediction - y_val)``, in one sweep;
        predictions are weights times targets, in float64.
        ``corrected``: what else the target might be: with "leave-one-out" the prediction without the row, structure held fixed
        (`leave_one_out`; nan where there is none); or your own out-of-fold predictions as an array (n_train,) or (n_train, K).
        Some models have ``(F_j - K_jj y_j) / (1 - K_jj)`` instead: those that `leave_one_out` refuses, takes more than 30 seconds
        for, or has no prediction from for most rows, such as forests of full depth. This is the target at which the row's own
        prediction would agree with it, of forests the mean of the others by weight. For boosted trees an `ApproximationWarning`
        says so.
        ``gain``: by how much the mean squared validation error would fall if this one target were corrected, exactly
        ``-(d gradient_j + d^2 / n sum_i K_ij^2)`` with d the correction; the squares are streamed.
        ``out_of_fold=None``: gradients alone, the largest first. Several outputs have a mean squared error each.

        Of a model fitted to transformed targets the error is on the scale of the fit, such as the squared error of logarithms,
        and so are "gradient (log)" and "gain (log)"; target and corrected are in the targets' own units. ``y_val`` and
        ``out_of_fold`` are given as ``y_train`` was.

        Of an additive explainer the error is the log-loss, or deviance, to first order: of classes the columns are row, target,
        corrected, gain, by how much the mean loss would fall per unit that the label moves towards the class ``corrected``; of
        counts and amounts row, target and gradient. One sweep backwards, O(T N K).

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,) or (n, K)
            Their targets, or classes, given as ``y_train`` was.
        out_of_fold : "leave-one-out", None or array of shape (n_train,) or (n_train, K)
            What the training targets might be instead.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `explain`.
        """
        model = self._model
        model.can("blame")
        if model.kind == "additive":
            if not (isinstance(out_of_fold, str) and out_of_fold == "leave-one-out"):
                raise InputError("out_of_fold is for models with exact weights; this one has pushes. Leave it out.")
            if not model.boosting.loss.meaning:
                raise UnsupportedQuestionError(
                    "blame",
                    "it is of the deviance of classes, counts and amounts",
                    "Fit with squared error, which has exact weights.",
                )
            out_of_fold = None
        queries, y = validation(model, X_val, y_val, init_score)
        corrected = None if out_of_fold is None else corrections(model, out_of_fold)
        gradient = error_gradient(model, queries, y)
        if model.kind == "additive" and model.boosting.class_names is not None:
            return sorted_table(model, *_by_class(model.boosting, gradient, model.index), notes.FIRST_ORDER)
        columns, keys = output_columns("row", model.index, model.outputs), np.abs(gradient.ravel())
        columns |= {"target": model.shown.ravel(), model.scale.label("gradient"): gradient.ravel()}
        if corrected is None:
            return sorted_table(model, columns, keys, notes.FIRST_ORDER if model.kind == "additive" else notes.NOTE)
        gain = gains(model, queries, gradient, corrected).ravel()
        columns |= {"corrected": model.scale.inverse(corrected).ravel(), model.scale.label("gain"): gain}
        return sorted_table(model, columns, gain, leave_one_out.note_on(np.isnan(corrected).ravel()))


def sorted_table(model: Any, columns: dict[str, Any], keys: Array, note: str) -> Any:
    """The table, the row of the largest key first, nan last."""
    order = np.argsort(-keys, kind="stable")
    return tables.note(tables.make({name: values[order] for name, values in columns.items()}, model.backend), note)


def _by_class(model: Any, gradient: Array, index: NDArray[Any]) -> tuple[dict[str, Any], Array]:
    """Columns and gains: the best other class of each row, to first order."""
    names = model.class_names
    assert names is not None
    full = gradient if gradient.shape[1] > 1 else np.column_stack([np.zeros(len(gradient)), gradient])
    targets = model.targets if gradient.shape[1] > 1 else np.column_stack([1 - model.targets, model.targets])
    own = targets.argmax(axis=1)
    every = np.arange(len(own))
    others = full.copy()
    others[every, own] = np.inf
    best = others.argmin(axis=1)
    gain = full[every, own] - full[every, best]
    columns = {"row": index, "target": names[own], "corrected": names[best], "gain": gain}
    return columns, gain


def validation(model: Any, X_val: Any, y_val: Any, init_score: Any) -> tuple[Queries, Array]:
    """Validation rows and their targets (n, K), checked."""
    inputs.refuse_other_order(X_val, y_val, "y_val", "X_val")
    warn_without_offsets(model, init_score, "X_val", "y_val")
    queries: Queries = model.queries(X_val, init_score)
    if not len(queries):
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    return queries, model.as_targets(y_val, len(queries), "y_val", "validation")


def corrections(proven: ProvenModel, given: Any) -> Array:
    """(N, K): what the targets might be instead; see `blame`."""
    if not isinstance(given, str):
        return proven.folds(given)  # type: ignore[no-any-return]
    if given != "leave-one-out":
        raise InputError(
            f'out_of_fold is {shown(given)}; expected "leave-one-out", None, or an array of your own out-of-fold '
            "predictions of the training rows, as from sklearn.model_selection.cross_val_predict(model, X_train, y_train)."
        )
    return said_by_others(proven)[0]


def said_by_others(proven: ProvenModel) -> tuple[Array, bool]:
    """(N, K): the prediction of each training row without itself, and True; or its agreeing value by its weights, and False."""
    seconds, available = leave_one_out.seconds_of(proven), proven.budget.available
    if WARNED < seconds < np.inf and seconds > sum(e.costs(available).leverage for e in proven.engines):
        longer = f"fits without each of {len(proven.targets)} training rows take {in_time(seconds)} on two cores"
        return _agreeing_values(proven, f'{longer}, and explainer.leave_one_out()["prediction"] waits for them'), False
    try:
        alone = np.isnan(leave_one_out.predictions(proven))
    except UnsupportedQuestionError as error:
        return _agreeing_values(proven, error.reason), False
    if alone.mean() <= MOST_ALONE:
        return leave_one_out.rest(proven), True
    reason = "most training rows are alone in one of their leaves, so no fit without them says more"
    return _agreeing_values(proven, reason), False


def _agreeing_values(proven: ProvenModel, reason: str) -> Array:
    """(N, K): ``(F_j - K_jj y_j) / (1 - K_jj)``, the target at which row j's own prediction would agree with it.

    That is what all other rows say of row j. Where K_jj is within 1e-6 of one they say nothing: nan.
    """
    lost = any(getattr(engine.structure, "is_ranked", False) for engine in proven.engines if isinstance(engine, Forest))
    if lost or any(isinstance(engine, (BoostedTrees, Sum, Residual)) for engine in proven.engines):
        warn(
            f"The leave-one-out predictions are approximate here: {reason}. In their place are the targets at which rows' own "
            "predictions would agree with them, a few percent nearer to the rows' targets. Out-of-fold predictions of your own "
            "are better: cross_val_predict(model, X_train, y_train), as out_of_fold of blame and audit.",
            ApproximationWarning,
        )
    return agreeing_values(proven)


def agreeing_values(proven: ProvenModel) -> Array:
    """(N, K): the target at which each row's own prediction would agree with it; nan where others say nothing of it."""
    leverage = leverages(proven)
    left = 1.0 - leverage
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > LEAST_LEFT, (proven.fitted() - leverage * proven.targets) / left, np.nan)


def error_gradient(model: Any, queries: Queries, y: Array) -> Array:
    """(N, K): the derivative of the mean loss on validation targets (n, K) by the training targets: J'u, u that by scores.

    For squared error J is K, and u is ``2 (prediction - y)``.
    """
    found: Array = model.pulled_back(queries, model.loss_slopes(queries, y)) / len(y)
    return found


def gains(proven: ProvenModel, queries: Queries, gradient: Array, corrected: Array) -> Array:
    """(N, K): by how much that error would fall if one target were corrected."""
    moved = corrected - proven.targets
    return -(moved * gradient + moved**2 / len(queries) * _column_squares(proven, queries))


def _column_squares(proven: ProvenModel, queries: Queries) -> Array:
    """(N, 1) or (N, K): ``sum_i K_ij^2`` over the queries i."""
    total: Any = 0.0
    for part in Asked(proven, queries).parts():
        weights = part.weights
        squares = weights.multiply(weights) if issparse(weights) else np.square(weights)
        total = total + np.asarray(squares.sum(axis=-2)).reshape(-1, len(proven.targets)).T
    return np.asarray(total)

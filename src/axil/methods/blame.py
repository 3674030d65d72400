"""blame: which training targets raise the error on validation rows, and what correcting each would gain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil import inputs
from axil.arrays import FloatArray
from axil.attribution import Kind, notes
from axil.errors import InputError, UnsupportedQuestionError
from axil.methods import leave_one_out
from axil.methods.question import Asked, Question, output_columns, warn_without_offsets
from axil.methods.unseen_predictions import as_method, unseen_predictions
from axil.output import tables
from axil.replay.exact_model import ExactModel
from axil.replay.queries import QueryBatch


class Blame(Question):
    """The question, as a method of `Explainer`."""

    def blame(
        self, X_val: Any, y_val: Any, out_of_fold: Any = "folds", init_score: Any = None
    ) -> Any:
        """Which training targets raise the error on validation rows, and what correcting each would gain.

        A frame with the columns row, target, gradient, corrected, gain, and output if there are several, largest gain first.
        ``gradient``: of the mean squared validation error in the row's target, ``(2 / n) K'(prediction - y_val)``, in one sweep;
        predictions are weights times targets, in float64.
        ``corrected``: what else the target might be. With "folds" it is the prediction of a fit without a
        fold of the rows, this one among them, the structure held fixed. With "leave-one-out" it is the
        prediction without this row alone (`leave_one_out`), which takes longer. An array (n_train,) or
        (n_train, K) has your own out-of-fold predictions.
        Models that cannot be fitted without some of their rows have ``(F_j - K_jj y_j) / (1 - K_jj)``
        instead: the target at which the row's own prediction would agree with it, of neighbours the mean of
        the others by weight. So have forests where most rows are alone in their leaves. For boosted trees an
        `ApproximationWarning` says so.
        ``gain``: by how much the mean squared validation error would fall if this one target were corrected, exactly
        ``-(d gradient_j + d^2 / n sum_i K_ij^2)`` with d the correction; the squares are streamed.
        ``out_of_fold=None``: gradients alone, the largest first. Several outputs have a mean squared error each.

        Of a model fitted to transformed targets the error is on the scale of the fit, such as the squared error of logarithms,
        and so are "gradient (log)" and "gain (log)"; target and corrected are in the targets' own units. ``y_val`` and
        ``out_of_fold`` are given as ``y_train`` was.

        Of an additive explainer the error is the log-loss, or deviance, to first order: of classes
        the columns are row, target, corrected, gain, by how much the mean loss would fall per unit
        that the label moves towards the class ``corrected``; of counts and amounts row, target and
        gradient. One sweep backwards, O(T N K).

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,) or (n, K)
            Their targets, or classes, given as ``y_train`` was.
        out_of_fold : "folds", "leave-one-out", None or array of shape (n_train,) or (n_train, K)
            What the training targets might be instead.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `explain`.
        """
        model = self._model
        model.capabilities.require("blame")
        if model.kind is Kind.ADDITIVE:
            if not (isinstance(out_of_fold, str) and out_of_fold == "folds"):
                raise InputError(
                    "out_of_fold is for models with exact weights; this one has pushes. Leave it out."
                )
            if not model.boosting.loss.meaning:
                raise UnsupportedQuestionError(
                    "blame",
                    "it is of the deviance of classes, counts and amounts",
                    "Fit with squared error, which has exact weights.",
                )
            out_of_fold = None
        queries, y = validation(model, X_val, y_val, init_score)
        if out_of_fold is None:
            corrected = None
        else:
            corrected = corrections(model, out_of_fold)
        gradient = error_gradient(model, queries, y)
        if model.kind is Kind.ADDITIVE and model.boosting.class_names is not None:
            return sorted_table(
                model, *_by_class(model.boosting, gradient, model.index), notes.FIRST_ORDER
            )
        columns = output_columns("row", model.index, model.outputs)
        keys = np.abs(gradient.ravel())
        columns |= {"target": model.shown.ravel(), model.scale.label("gradient"): gradient.ravel()}
        if corrected is None:
            return sorted_table(
                model,
                columns,
                keys,
                notes.FIRST_ORDER if model.kind is Kind.ADDITIVE else notes.NOTE,
            )
        gain = gains(model, queries, gradient, corrected).ravel()
        columns |= {
            "corrected": model.scale.inverse(corrected).ravel(),
            model.scale.label("gain"): gain,
        }
        return sorted_table(
            model, columns, gain, leave_one_out.note_on(np.isnan(corrected).ravel())
        )


def sorted_table(model: Any, columns: dict[str, Any], keys: FloatArray, note: str) -> Any:
    """The table, the row of the largest key first, nan last."""
    order = np.argsort(-keys, kind="stable")
    return tables.note(
        tables.make({name: values[order] for name, values in columns.items()}, model.backend), note
    )


def _by_class(
    model: Any, gradient: FloatArray, index: NDArray[Any]
) -> tuple[dict[str, Any], FloatArray]:
    """Columns and gains: the best other class of each row, to first order."""
    names = model.class_names
    assert names is not None
    if gradient.shape[1] > 1:
        full = gradient
    else:
        full = np.column_stack([np.zeros(len(gradient)), gradient])
    if gradient.shape[1] > 1:
        targets = model.targets
    else:
        targets = np.column_stack([1 - model.targets, model.targets])
    own = targets.argmax(axis=1)
    every = np.arange(len(own))
    others = full.copy()
    others[every, own] = np.inf
    best = others.argmin(axis=1)
    gain = full[every, own] - full[every, best]
    columns = {"row": index, "target": names[own], "corrected": names[best], "gain": gain}
    return columns, gain


def validation(
    model: Any, X_val: Any, y_val: Any, init_score: Any
) -> tuple[QueryBatch, FloatArray]:
    """Validation rows and their targets (n, K), checked."""
    inputs.refuse_other_order(X_val, y_val, "y_val", "X_val")
    warn_without_offsets(model, init_score, "X_val", "y_val")
    queries: QueryBatch = model.queries(X_val, init_score)
    if not len(queries):
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    return queries, model.as_targets(y_val, len(queries), "y_val", "validation")


def corrections(proven: ExactModel, given: Any) -> FloatArray:
    """Return what the targets might be instead, (N, K); see `blame`."""
    if not isinstance(given, str):
        return proven.folds(given)  # type: ignore[no-any-return]
    return unseen_predictions(proven, as_method(given, "None, "))[0]


def error_gradient(model: Any, queries: QueryBatch, y: FloatArray) -> FloatArray:
    """(N, K): the derivative of the mean loss on validation targets (n, K) by the training targets: J'u, u that by scores.

    For squared error J is K, and u is ``2 (prediction - y)``.
    """
    found: FloatArray = model.pulled_back(queries, model.loss_slopes(queries, y)) / len(y)
    return found


def gains(
    proven: ExactModel, queries: QueryBatch, gradient: FloatArray, corrected: FloatArray
) -> FloatArray:
    """(N, K): by how much that error would fall if one target were corrected."""
    moved = corrected - proven.targets
    return -(moved * gradient + moved**2 / len(queries) * _column_squares(proven, queries))


def _column_squares(proven: ExactModel, queries: QueryBatch) -> FloatArray:
    """(N, 1) or (N, K): ``sum_i K_ij^2`` over the queries i."""
    total: Any = 0.0
    for part in Asked(proven, queries).parts():
        weights = part.weights
        if issparse(weights):
            squares = weights.multiply(weights)
        else:
            squares = np.square(weights)
        total = total + np.asarray(squares.sum(axis=-2)).reshape(-1, len(proven.targets)).T
    return np.asarray(total)

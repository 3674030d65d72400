"""Influence of training targets on the error on validation rows, and the gain of corrections."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, OutOfFold, TableLike
from axil.arrays import AnyArray, FloatArray
from axil.attribution import Kind, notes
from axil.contributions.additive_model import AdditiveModel
from axil.contributions.boosting import Boosting
from axil.errors import InputError, UnsupportedQuestionError
from axil.methods import leave_one_out
from axil.methods.kinds import additive_model, exact_model, refittable_model
from axil.methods.method import ExplainedRows, Method, output_columns, warn_without_offsets
from axil.methods.unseen_predictions import as_method, unseen_predictions
from axil.output import tables
from axil.replay.exact_model import ExactModel
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import Refittable, VerifiedModel


class Influence(Method):
    """Provide `Explainer.influence`."""

    def influence(
        self,
        X_val: TableLike,
        y_val: ArrayLike,
        *,
        out_of_fold: OutOfFold | None = "folds",
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return the influence of each training target on the error on validation rows.

        The table has a line per training row, and per output if there are several, with the columns
        row, output and

        - target, the target of the fit;
        - gradient, the derivative of the mean squared validation error by the target,
          ``(2 / n) K'(prediction - y_val)``. One backward pass computes it;
        - corrected, a prediction of the target that did not see it; see ``out_of_fold``;
        - gain, by how much the mean squared validation error would fall if this target alone became
          ``corrected``: exactly ``-(d gradient_j + d^2 / n sum_i K_ij^2)``, with d the correction.

        Rows of the largest gain come first. With ``out_of_fold=None`` there are only gradients, and
        the largest come first. Each output has its own mean squared error.

        For a model that was fitted to transformed targets, the error is on the scale of the fit,
        such as the squared error of logarithms, and so are "gradient (log)" and "gain (log)".
        Target and corrected are in the targets' own units. You pass ``y_val`` and ``out_of_fold``
        on the scale of ``y_train``.

        For an additive explainer the error is the log-loss, or the deviance, to first order. With
        classes the columns are row, target, corrected and gain: by how much the mean loss would
        fall per unit that the label moves towards the class ``corrected``. With counts and amounts
        they are row, target and gradient. One backward pass computes them, in O(T N K).

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,) or (n, K)
            Their targets, or classes, on the scale of ``y_train``.
        out_of_fold : "folds", "leave-one-out", None or array of shape (n_train,) or (n_train, K)
            Where the column corrected comes from. "folds" predicts each row by a refit without one
            fold of the rows, the tree structure fixed. "leave-one-out" takes the fit without this
            row alone (`leave_one_out`), which takes longer. An array has your own out-of-fold
            predictions. Models that cannot be fitted without some of their rows use
            ``(F_j - K_jj y_j) / (1 - K_jj)`` instead, the target at which the row's own prediction
            would agree with it; so do forests in which most rows are the only row of their leaves.
            For boosted trees an `ApproximationWarning` says so.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `explain`.
        """
        model = self._answering("influence")
        if model.kind is Kind.ADDITIVE:
            if not (isinstance(out_of_fold, str) and out_of_fold == "folds"):
                raise InputError(
                    "out_of_fold is for models with exact weights; this one has contributions. "
                    "Leave it out."
                )
            if not additive_model(model).boosting.loss.meaning:
                raise UnsupportedQuestionError(
                    "influence",
                    "it is of the deviance of classes, counts and amounts",
                    "Fit with squared error, which has exact weights.",
                )
            out_of_fold = None
        refittable = refittable_model(model)
        queries, y = validation(refittable, X_val, y_val, init_score)
        if out_of_fold is None:
            corrected = None
        else:
            corrected = corrections(exact_model(model), out_of_fold)
        gradient = error_gradient(refittable, queries, y)
        if isinstance(model, AdditiveModel) and model.boosting.class_names is not None:
            columns, keys = _by_class(model.boosting, gradient, model.index)
            return sorted_table(model, columns, keys, notes.FIRST_ORDER)
        columns = output_columns("row", model.index, model.names.outputs)
        keys = np.abs(gradient.ravel())
        columns |= {"target": model.shown.ravel(), model.scale.label("gradient"): gradient.ravel()}
        if corrected is None:
            if model.kind is Kind.ADDITIVE:
                return sorted_table(model, columns, keys, notes.FIRST_ORDER)
            return sorted_table(model, columns, keys, notes.NOTE)
        gain = gains(exact_model(model), queries, gradient, corrected).ravel()
        columns |= {
            "corrected": model.scale.inverse(corrected).ravel(),
            model.scale.label("gain"): gain,
        }
        return sorted_table(
            model, columns, gain, leave_one_out.note_on(np.isnan(corrected).ravel())
        )


def sorted_table(
    model: VerifiedModel, columns: dict[str, AnyArray], keys: FloatArray, note: str
) -> DataFrame:
    """Return the table with the row of the largest key first, nan last."""
    order = np.argsort(-keys, kind="stable")
    return tables.note(
        tables.make({name: values[order] for name, values in columns.items()}, model.backend), note
    )


def _by_class(
    boosting: Boosting, gradient: FloatArray, index: AnyArray
) -> tuple[dict[str, AnyArray], FloatArray]:
    """Return the columns and gains of classes: the best other class of each row, first order."""
    names = boosting.class_names
    assert names is not None
    if gradient.shape[1] > 1:
        by_class = gradient
        targets = boosting.targets
    else:
        by_class = np.column_stack([np.zeros(len(gradient)), gradient])
        targets = np.column_stack([1 - boosting.targets, boosting.targets])
    label = targets.argmax(axis=1)
    positions = np.arange(len(label))
    other_classes = by_class.copy()
    other_classes[positions, label] = np.inf
    best = other_classes.argmin(axis=1)
    gain = by_class[positions, label] - by_class[positions, best]
    columns = {"row": index, "target": names[label], "corrected": names[best], "gain": gain}
    return columns, gain


def validation(
    model: Refittable, X_val: TableLike, y_val: ArrayLike, init_score: ArrayLike | None
) -> tuple[QueryBatch, FloatArray]:
    """Check validation rows and return them with their targets, (n, K)."""
    inputs.refuse_other_order(X_val, y_val, "y_val", "X_val")
    warn_without_offsets(model, init_score, "X_val", "y_val")
    queries: QueryBatch = model.queries(X_val, init_score)
    if not len(queries):
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    return queries, model.changes.as_targets(y_val, len(queries), "y_val", "validation")


def corrections(model: ExactModel, out_of_fold: ArrayLike) -> FloatArray:
    """Return out-of-fold predictions of the training rows, (N, K)."""
    if not isinstance(out_of_fold, str):
        return model.training.out_of_fold(out_of_fold)  # type: ignore[no-any-return]
    return unseen_predictions(model, as_method(out_of_fold, "None, "))[0]


def error_gradient(model: Refittable, queries: QueryBatch, y: FloatArray) -> FloatArray:
    """Return the derivative of the mean validation loss by the training targets, (N, K).

    It is J'u / n, with u the derivative of the loss by the scores. For squared error J is K, and u
    is ``2 (prediction - y)``.
    """
    gradient: FloatArray = model.changes.pulled_back(
        queries, model.changes.loss_slopes(queries, y)
    ) / len(y)
    return gradient


def gains(
    model: ExactModel, queries: QueryBatch, gradient: FloatArray, corrected: FloatArray
) -> FloatArray:
    """Return the fall of the mean squared error if one target were corrected, (N, K)."""
    correction = corrected - model.targets
    squares = _column_squares(model, queries)
    return -(correction * gradient + correction**2 / len(queries) * squares)


def _column_squares(model: ExactModel, queries: QueryBatch) -> FloatArray:
    """Return ``sum_i K_ij^2`` over the explained rows i, (N, 1) or (N, K)."""
    total: Any = 0.0
    for sums in ExplainedRows(model, queries).parts():
        weights = sums.weights
        if issparse(weights):
            squares = weights.multiply(weights)
        else:
            squares = np.square(weights)
        total = total + np.asarray(squares.sum(axis=-2)).reshape(-1, len(model.targets)).T
    return np.asarray(total)

"""Calibrate classes: from rows with known classes to prediction sets.

This is `Explainer.calibrate` of classifiers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.aliases import ArrayLike, LabelsLike, TableLike
from axil.arrays import FloatArray, IntArray
from axil.attribution import Kind, Location
from axil.errors import InputError, UnsupportedQuestionError
from axil.methods.class_labels import as_probabilities
from axil.methods.intervals.calibration_groups import CalibrationGroups
from axil.methods.intervals.calibration_rows import (
    RepeatedRowsMessage,
    chosen_rows,
    groups_of,
    new_rows,
)
from axil.methods.intervals.class_predictive import ClassPredictive, class_probabilities
from axil.methods.intervals.training_errors import is_bagged, out_of_bag_predictions

WORDING = RepeatedRowsMessage(
    "the same features and the same class",
    "The model is too sure of rows that it was fitted on, and the sets would be too small",
    ', or out_of_fold=cross_val_predict(model, X_train, y_train, method="predict_proba") without '
    "X_cal and y_cal; for a forest with bootstrap calibrate() takes the trees that were fitted "
    "without each row",
)


def calibrate_classes(
    model: Any,
    X: TableLike | None,
    y: ArrayLike | None,
    out_of_fold: ArrayLike | None,
    init_score: ArrayLike | None,
    groups: LabelsLike | None,
) -> ClassPredictive:
    """Return the prediction sets of a classifier, with the parameters of `Explainer.calibrate`."""
    if model.location is Location.PARTITIONS:
        raise UnsupportedQuestionError(
            "calibrate",
            "prediction sets are not made over training rows in Dask collections",
            "Use training rows in memory.",
        )
    model = model.as_fitted
    if X is not None:
        if out_of_fold is not None:
            raise InputError(
                "Sets of classes are calibrated by X_cal and y_cal, or by out_of_fold alone. Leave "
                "one of them out."
            )
        return _from_new_rows(model, X, y, init_score, groups)
    grouped = CalibrationGroups.of(groups, model.features, model, model.shape[0], "training")
    if out_of_fold is not None:
        ordered = model.training.ordered_values(out_of_fold, "out_of_fold")
        probabilities = as_probabilities(ordered, model.shape[0], len(model.names.class_names))
        return _from_training_rows(model, probabilities, "out-of-fold", grouped)
    if model.kind is not Kind.EXACT or not is_bagged(model):
        raise InputError(
            "There is nothing to calibrate with: X_cal and y_cal are missing, out_of_fold too, and "
            "this model is no forest whose trees leave rows out. Pass rows that the model was not "
            "fitted on, or out_of_fold=cross_val_predict(model, X_train, y_train, "
            'method="predict_proba").'
        )
    return _from_training_rows(model, out_of_bag_predictions(model), "out-of-bag", grouped)


def _from_new_rows(
    model: Any,
    X: TableLike,
    y: ArrayLike | None,
    init_score: ArrayLike | None,
    groups: LabelsLike | None,
) -> ClassPredictive:
    """Return the prediction sets from rows that the model was not fitted on."""
    new = new_rows(
        model,
        X,
        y,
        init_score,
        groups,
        lambda n: model.changes.as_targets(y, n, "y_cal", "calibration"),
        WORDING,
    )
    probabilities = class_probabilities(model, new.queries)
    return ClassPredictive(model, probabilities, _class_codes(new.targets), "held out", new.groups)


def _from_training_rows(
    model: Any, probabilities: FloatArray, source: str, grouped: CalibrationGroups | None
) -> ClassPredictive:
    """Return the prediction sets from probabilities (N, C) of the training rows.

    Each row's probabilities come from a fit that did not see it.
    """
    is_known = np.isfinite(probabilities).all(axis=1)
    rows = chosen_rows(np.flatnonzero(is_known), grouped)
    if not len(rows):
        raise InputError(
            "Every tree of this forest was fitted on every row, so none is out of bag. Pass X_cal "
            "and y_cal."
        )
    codes = _class_codes(np.asarray(model.targets)[rows])
    return ClassPredictive(model, probabilities[rows], codes, source, groups_of(grouped, rows))


def _class_codes(targets: FloatArray) -> IntArray:
    """Return the class of each row, (n,), from one-hot targets, or from 0 and 1 for two classes."""
    if targets.shape[1] > 1:
        return np.asarray(targets.argmax(axis=1))
    return targets[:, 0].astype(np.intp)

"""Calibrate: from rows with known targets to predictive distributions (`Explainer.calibrate`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, CalibrationMethod, FeatureTable, LabelsLike, TableLike
from axil.arrays import FloatArray
from axil.attribution import WEIGHTS
from axil.errors import InputError
from axil.machine.progress import track
from axil.methods.intervals.calibrate_classes import calibrate_classes
from axil.methods.intervals.calibration_dates import CalibrationDates
from axil.methods.intervals.calibration_groups import CalibrationGroups
from axil.methods.intervals.calibration_rows import (
    RepeatedRowsMessage,
    chosen_rows,
    fit_targets,
    groups_of,
    new_rows,
)
from axil.methods.intervals.conformal import Conformal
from axil.methods.intervals.deviance_scale import DevianceScale, check_options_of_means
from axil.methods.intervals.local import PENALTY, Local, Own, Surroundings, around, joined
from axil.methods.intervals.pooling import ByPlace, ByPrediction
from axil.methods.intervals.predictive import Predictive
from axil.methods.intervals.training_errors import (
    is_bagged,
    out_of_bag_predictions,
    training_errors,
)
from axil.methods.kinds import exact_model
from axil.methods.method import Method
from axil.methods.noise import leverages
from axil.replay.exact_model import ExactModel
from axil.replay.verified_model import VerifiedModel
from axil.weights.forest import Forest

METHODS: tuple[CalibrationMethod, ...] = ("leaves", "exact")
# Rows of a leaf below which the leaf says nothing of a training row's error: its splits followed
# the row's own target, so that the few rows beside the row have errors like its own, and the rows
# around a new row have not. The number was chosen on made-up data; without it 90 % intervals around
# a model with leaves of two rows held 74 % (tests/methods/intervals/test_calibrate.py).
CROWD = 20
WORDING = RepeatedRowsMessage(
    "the same features and the same target",
    "Errors of rows that the model was fitted on are too small, and so would be the intervals",
    ", or out_of_fold=cross_val_predict(model, X_train, y_train) without X_cal and y_cal; of a "
    "forest with bootstrap calibrate() takes the trees that were fitted without each row",
)
ALIKE_TARGET = "the same target, which no two training rows share"


class Calibrate(Method):
    """Provide `Explainer.calibrate`."""

    def calibrate(
        self,
        X_cal: TableLike | None = None,
        y_cal: ArrayLike | None = None,
        *,
        out_of_fold: ArrayLike | None = None,
        init_score: ArrayLike | None = None,
        groups: LabelsLike | None = None,
        min_group_size: int | None = None,
        coordinates: tuple[str | int, str | int] | None = None,
        dates: LabelsLike | None = None,
        method: CalibrationMethod = "leaves",
    ) -> Predictive:
        """Return prediction intervals and distributions, or for a classifier sets of classes.

        A model of numbers has an `axil.Predictive`, with intervals. A classifier has an
        `axil.ClassPredictive`, with `predict_set`, `probability` and `why`.

        ``calibrate(X_cal, y_cal)`` uses rows that the model was not fitted on. The intervals then
        cover exactly, for rows that are exchangeable with them (`axil.Predictive`).
        ``calibrate(out_of_fold=predictions)`` uses predictions of the training rows by refits
        without them, such as ``cross_val_predict(model, X_train, y_train)``. No rows are lost, and
        coverage is near the confidence level, without a guarantee. ``calibrate()`` is for forests
        with bootstrap. It uses out-of-bag predictions, which cost nothing, with the same coverage.

        Boosted trees with a Poisson, gamma or Tweedie loss take held-out rows alone. Their
        intervals compare Pearson residuals: errors over the standard deviation that the loss
        assumes.

        The local scale of errors comes from errors of the training rows: out-of-fold ones if you
        pass them, out-of-bag ones for forests, otherwise those of the fit. Coverage does not depend
        on them, but width does. From more than 5,000 calibration rows axil samples 5,000, always
        the same ones. The coverage of all rows to come is then nearly always within 0.01 of the
        confidence level.

        Calibration rows that equal training rows in all features and in the target are rows of the
        fit, if they are more than training rows that equal one another. If most rows are such, axil
        raises an error; otherwise it leaves them out with a warning.

        Parameters
        ----------
        X_cal : table, optional
            Rows that the model was not fitted on, in no way; not for choosing its settings either.
        y_cal : array of shape (n,) or (n, K), optional
            Their targets, given as ``y_train`` was.
        out_of_fold : array of shape (n_train,) or (n_train, K), optional
            Predictions of the training rows by refits without them, given as ``y_train`` was.
            Together with ``X_cal`` they only make the local scale.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the calibration rows, as in `Explainer.explain`.

        groups : array of shape (n,) or str, optional
            A label for each row of X_cal, or for each training row where there is no X_cal; or the
            name of a column of the features. Intervals then hold with the probability asked for
            within each group, from the calibration rows of that group alone: at least 9 for 90 %,
            and about 100 for widths that are not wider than they need be.
        min_group_size : int, optional
            Groups of fewer calibration rows join their nearest groups until each pool has as many.
            Rows of a group without calibration rows are then in the nearest pool. Intervals hold
            within each pool. `axil.Predictive.calibration_groups` lists the pools.
        coordinates : tuple of two columns, optional
            The latitude and the longitude, by name or position. Groups are then near if their
            places are. By default they are near if the deciles of their predictions are.
        dates : array of shape (n,) or str, optional
            A date or a number, such as a year, for each calibration row, or the name of a column of
            the features. axil then warns of rows that are newer than all calibration rows.
        method : "leaves" or "exact", default "leaves"
            How boosted trees tell the errors nearby; other models always use their weights.
            "leaves": the training rows in the leaves of the row to predict, with the errors of the
            fit; O(T) per prediction. With ``out_of_fold`` alone only in leaves of 20 rows or more:
            splits of smaller ones follow single targets. "exact": the training rows by their
            weights, with the errors of `leave_one_out`; O(T N) per prediction, intervals about 3 %
            shorter.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> forest = RandomForestRegressor(50, min_samples_leaf=3, random_state=0)
        >>> forest = forest.fit(X[:300], y[:300])
        >>> Explainer(forest, X[:300], y[:300]).calibrate()
        <axil.Predictive: 300 calibration rows, out-of-bag; errors nearby: out-of-bag>
        """
        verified = self._model
        verified.capabilities.require("calibrate")
        if (X_cal is None) != (y_cal is None):
            if X_cal is None:
                missing = "X_cal"
            else:
                missing = "y_cal"
            raise InputError(f"{missing} is missing: calibration rows take both X_cal and y_cal.")
        if X_cal is None and init_score is not None:
            raise InputError(
                "init_score is for the rows of X_cal, and there are none. Leave it out."
            )
        method = inputs.as_choice(method, METHODS, "method")
        options = RowOptions.of(groups, min_group_size, coordinates, dates)
        if verified.names.class_names is not None:
            if method != "leaves":
                raise InputError(
                    'method="exact" is of intervals of numbers, and this model predicts classes. '
                    "Leave it out."
                )
            if min_group_size is not None or dates is not None:
                raise InputError(
                    "min_group_size and dates are of intervals of numbers, and this model predicts "
                    "classes. Leave them out."
                )
            of_classes = calibrate_classes(verified, X_cal, y_cal, out_of_fold, init_score, groups)
            return cast(Predictive, of_classes)  # which has the same methods, and refuses others
        if verified.variance_power is not None:
            check_options_of_means(X_cal is not None, out_of_fold, method)
        if out_of_fold is None:
            folds = None
        else:
            folds = verified.training.out_of_fold(out_of_fold)
        if X_cal is not None:
            return held_out(verified, X_cal, y_cal, folds, init_score, options, method)
        return from_training_rows(verified, folds, options, method)


@dataclass(frozen=True)
class RowOptions:
    """The user's groups and dates of calibration rows, and how small groups are pooled."""

    labels: LabelsLike | None
    least: int | None  #: calibration rows of each pool
    coordinates: tuple[str | int, str | int] | None
    dates: LabelsLike | None

    @classmethod
    def of(
        cls,
        labels: LabelsLike | None,
        least: int | None,
        coordinates: tuple[str | int, str | int] | None,
        dates: LabelsLike | None,
    ) -> RowOptions:
        """Check the options of `Explainer.calibrate`."""
        if least is not None:
            least = inputs.as_count(least, "min_group_size")
            if labels is None:
                raise InputError(
                    "min_group_size is about groups, and groups is missing. Pass groups too."
                )
        elif coordinates is not None:
            raise InputError(
                "coordinates say which groups are near, for min_group_size, which is missing. Pass "
                "min_group_size too."
            )
        return cls(labels, least, coordinates, dates)

    def groups(
        self, X: FeatureTable, model: VerifiedModel, n: int, rows: str
    ) -> CalibrationGroups | None:
        """Return the groups of n rows with features X; None if there are none."""
        return CalibrationGroups.of(self.labels, X, model, n, rows)

    def newest(self, X: FeatureTable, model: VerifiedModel, rows: str) -> CalibrationDates | None:
        """Return the newest date of rows with features X; None if there are no dates."""
        if self.dates is None:
            return None
        return CalibrationDates.of(self.dates, X, model.adapter.feature_names, rows)

    def pooled(
        self, groups: CalibrationGroups | None, X: FeatureTable, predictions: FloatArray
    ) -> CalibrationGroups | None:
        """Return groups of calibration rows, pooled if the user wants it.

        The rows have features X and predictions (n, K).
        """
        if groups is None or self.least is None:
            return groups
        if self.coordinates is None:
            return groups.pooled(self.least, ByPrediction(predictions))
        return groups.pooled(self.least, ByPlace.of(self.coordinates, X))


def from_training_rows(
    model: VerifiedModel, folds: FloatArray | None, options: RowOptions, method: str
) -> Predictive:
    """Calibrate with out-of-fold or out-of-bag predictions of the training rows."""
    model.capabilities.require("calibrate without X_cal and y_cal")
    exact = exact_model(model)
    if folds is None and not is_bagged(exact):
        raise InputError(
            "There is nothing to calibrate with: X_cal and y_cal are missing, out_of_fold too, and "
            "this model is no forest whose trees leave rows out. Pass rows that the model was not "
            "fitted on, or "
            "out_of_fold=cross_val_predict(model, X_train, y_train)."
        )
    grouped = options.groups(model.features, model, model.shape[0], "training")
    if folds is not None:
        return from_folds(exact, folds, grouped, options, method)
    return from_out_of_bag(exact, grouped, options)


def held_out(
    model: Any,
    X: FeatureTable,
    y: ArrayLike | None,
    folds: Any,
    init_score: ArrayLike | None,
    options: RowOptions,
    method: str,
) -> Predictive:
    """Calibrate with rows that the model was not fitted on."""
    wording = WORDING
    if model.features is None:
        wording = replace(WORDING, alike=ALIKE_TARGET)
    power = model.variance_power
    if power is not None:
        wording = replace(wording, instead="")
    new = new_rows(
        model,
        X,
        y,
        init_score,
        options.labels,
        lambda n: fit_targets(model, y, n, "y_cal", "calibration"),
        wording,
    )
    newest = options.newest(X, model, "calibration")
    if power is None:
        scale: Surroundings | DevianceScale = surroundings_of(model, folds, method)
    else:
        scale = DevianceScale(power)
    local = scale.local(model, new.queries)
    return Predictive(
        model,
        scale,
        conformal_rows(local, new.targets - local.predictions),
        "held out",
        options.pooled(new.groups, new.queries.rows, new.queries.predictions),
        newest,
    )


def surroundings_of(model: Any, folds: Any, method: str) -> Surroundings:
    """Return the errors and targets of the training rows, for held-out calibration rows."""
    errors_and_source = model.deletions.training_errors(folds, method)
    if errors_and_source is None:
        local_errors, source = training_errors(exact_model(model), folds, method)
        errors_and_source = [local_errors], source
    errors, source = errors_and_source
    return Surroundings.of(model, errors, source, method)


def from_folds(
    verified: ExactModel,
    folds: FloatArray,
    grouped: CalibrationGroups | None,
    options: RowOptions,
    method: str,
) -> Predictive:
    """Calibrate with out-of-fold predictions (N, K) of the training rows."""
    if verified.features is None:
        raise InputError(
            "This explainer was loaded from a file, which keeps no features, and out_of_fold "
            "needs those of the training rows. Load it with them: "
            "axil.load(path, model, X_train=X_train)."
        )
    errors, source = training_errors(verified, folds, method)
    surroundings = Surroundings.of(verified, [errors], source, method).of_large_leaves(CROWD)
    rows = chosen_rows(np.arange(len(verified.targets)), grouped)
    offsets = (
        verified.base_offsets()
    )  # any other offset moves no weight, and predictions are out of fold
    queries = verified.queries(
        inputs.take_rows(verified.features, rows), None if offsets is None else offsets[rows]
    )
    own_rows = Own(rows, leverages(verified)[rows] if surroundings.by_leaf is None else None)
    local = around(verified, surroundings, queries, own_rows, folds[rows])
    return Predictive(
        verified,
        surroundings,
        conformal_rows(local, errors[rows]),
        "out-of-fold",
        options.pooled(groups_of(grouped, rows), queries.rows, local.predictions),
        options.newest(verified.features, verified, "training"),
    )


def from_out_of_bag(
    verified: ExactModel, grouped: CalibrationGroups | None, options: RowOptions
) -> Predictive:
    """Calibrate with the trees of a forest that were fitted without each row."""
    errors, source = training_errors(verified, None, "exact")
    surroundings = Surroundings.of(verified, [errors], source, "exact")
    rows = chosen_rows(np.flatnonzero(np.isfinite(errors).all(axis=1)), grouped)
    if not len(rows):
        raise InputError(
            "Every tree of this forest was fitted on every row, so none is out of bag. "
            "Pass X_cal and y_cal."
        )
    parts = []
    step = verified.budget.batch_size(verified.bytes_per_query(WEIGHTS))
    for first in track(range(0, len(rows), step), "intervals"):
        some = rows[first : first + step]
        answers = [
            engine.out_of_bag(some)[0] for engine in verified.engines if isinstance(engine, Forest)
        ]
        sums = [answer.moments(values) for answer, values in zip(answers, surroundings.values[0])]
        parts.append(
            surroundings.usual.local(
                sums, verified.weight_layout.output_groups, out_of_bag_predictions(verified)[some]
            )
        )
    local = joined(parts)
    if grouped is not None:
        features = inputs.take_rows(verified.features, rows)
        grouped = options.pooled(groups_of(grouped, rows), features, local.predictions)
    return Predictive(
        verified,
        surroundings,
        conformal_rows(local, errors[rows]),
        "out-of-bag",
        grouped,
        options.newest(verified.features, verified, "training"),
    )


def conformal_rows(local: Local, errors: FloatArray) -> tuple[Conformal, ...]:
    """Return the calibration rows with their errors (n, K), output by output."""
    penalty = np.full(local.features.shape[-1], PENALTY)
    return tuple(
        Conformal(local.features[:, k], local.sizes[:, k], errors[:, k], penalty)
        for k in range(errors.shape[1])
    )

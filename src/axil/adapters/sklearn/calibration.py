"""Calibrated classifiers: the curves that lead from the scores of classifiers to probabilities.

With ``ensemble=False`` there is one classifier, fitted to all rows. By default there is one per
fold, each fitted to the other folds and calibrated on its own, and the probability is the mean of
theirs. axil explains the mean of their scores before calibration, and shows the mean probability
beside it: no score leads to a mean of several curves.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv

from axil.adapters.contract import TrainingRows
from axil.adapters.members import Member, SumModel
from axil.adapters.sklearn.base import protected_copy
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.copies import owned


class Scored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A stand-in for a classifier whose rows are its scores, (n,) or (n, K)."""

    def __init__(self, classes: ForeignObject = None):
        self.classes = self.classes_ = classes

    def decision_function(self, X: FeatureTable) -> ForeignObject:
        """Return the scores."""
        return X


class Likely(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A stand-in for a classifier whose rows are its probabilities, (n, C)."""

    def __init__(self, classes: ForeignObject = None):
        self.classes = self.classes_ = classes

    def predict_proba(self, X: FeatureTable) -> ForeignObject:
        """Return the probabilities."""
        return X


@dataclass(frozen=True)
class Calibration:
    """The fixed curves of a calibrated classifier, which scikit-learn itself applies."""

    notes: ClassVar[dict[str, str]] = {
        "exact": "predictions are probabilities before calibration, and the calibration curve is "
        "fixed",
        "additive": "probabilities are calibrated, and the calibration curve is fixed",
    }

    #: scikit-learn's classifier and curves, with a `Scored` or `Likely` in place of the classifier
    curves: ForeignObject
    columns: IntArray  #: the classes of the classifier inside among all
    before: Any  #: the `Calibration` of the classifier inside, which has the same scores
    #: from predictions to what the curves were fitted to, where these are no scores or
    #: probabilities
    decisions: Callable[[FloatArray], FloatArray] | None = None

    def probabilities(self, scores: FloatArray, means: FloatArray) -> FloatArray:
        """Return probabilities, (n, K), from scores and their means by the link, (n, K) each."""
        if self.before is not None:
            means = self.before.probabilities(scores, means)
        has_one_score = scores.shape[1] == 1  # of the second of two classes
        if self.decisions is not None:
            inputs = self.decisions(scores)
        elif isinstance(self.curves.estimator, Scored):
            inputs = scores[:, 0] if has_one_score else scores
        else:
            inputs = np.hstack([1 - means, means]) if has_one_score else means
        predicted = np.asarray(self.curves.predict_proba(inputs), dtype=np.float64)
        probabilities = predicted[:, self.columns]
        if has_one_score and self.decisions is None:
            return probabilities[:, 1:]
        return probabilities


def calibrate(adapter: Any, calibrated: ForeignModel) -> None:
    """Set the curves around a classifier as the calibration of its adapter."""
    inside = calibrated.estimator
    inner_names = np.asarray(inside.classes_)
    names = np.asarray(calibrated.classes)
    # Names of classes reach a classifier by their numbers where method="temperature".
    is_numbered = len(inner_names) == len(names) and not np.isin(inner_names, names).all()
    if is_numbered:
        columns = np.arange(len(names))
    else:
        columns = np.searchsorted(names, inner_names)
    if hasattr(inside, "decision_function"):
        stand_in = Scored
    else:
        stand_in = Likely
    curves = copy.copy(calibrated)
    curves.calibrators = copy.deepcopy(calibrated.calibrators)
    curves.estimator = stand_in(inner_names)
    adapter.calibration = Calibration(
        curves,
        columns,
        before=getattr(adapter, "calibration", None),
        decisions=getattr(adapter, "decisions", None),
    )
    if is_numbered:
        adapter.classes = names


@dataclass(frozen=True)
class MeanOfCurves:
    """The calibration of an ensemble, whose probabilities are means over its classifiers."""

    notes: ClassVar[dict[str, str]] = {
        "exact": "predictions are means of the classifiers' probabilities before calibration, the "
        "probability is calibrated",
        "additive": "scores are means of the classifiers' scores, the probability is the mean of "
        "their calibrated ones",
        "derivative": "scores are means of the classifiers' scores before calibration",
    }

    def probabilities(self, scores: FloatArray, means: FloatArray) -> FloatArray | None:
        """Return None: a mean of several curves follows from no score."""
        return None


def folds_of(model: ForeignModel, X: FeatureTable, codes: IntArray) -> list[IntArray]:
    """Return the rows that each classifier of a calibrated ensemble was fitted on.

    The ``cv`` of the model splits them again.

    Parameters
    ----------
    model : CalibratedClassifierCV
        A fitted ensemble whose ``cv`` samples nothing at random, or from a seed.
    X : table of N rows
        The training rows.
    codes : array of shape (N,)
        The number of each row's class.
    """
    try:
        splits = check_cv(model.cv, codes, classifier=True).split(X, codes)
        folds = [np.arange(len(codes))[fitted] for fitted, _ in splits]
    except Exception as error:  # a list of splits of more rows, too few rows for as many folds
        raise InputError(
            f"The model's cv does not split these {len(codes)} rows ({error}). Pass exactly the "
            "rows that it was fitted on."
        ) from error
    n_fitted = len(model.calibrated_classifiers_)
    if len(folds) != n_fitted:
        raise InputError(
            f"The model's cv splits these rows into {len(folds)} folds, and it has {n_fitted} "
            "classifiers. Pass exactly the rows that it was fitted on."
        )
    return folds


def ensemble_members(model: ForeignModel) -> list[Member]:
    """Return the classifiers of a calibrated ensemble with their shares in the mean."""
    share = 1 / len(model.calibrated_classifiers_)
    members = []
    for i, calibrated in enumerate(model.calibrated_classifiers_):
        require_all_classes(model, calibrated)
        inside = calibrated.estimator
        name = f"calibrated_classifiers_[{i}].estimator"
        members.append(Member(name, inside, share, weighted=takes_weights(inside)))
    return members


def members_on_folds(
    model: ForeignModel, members: list[Member], rows: TrainingRows
) -> list[Member]:
    """Return the classifiers of a calibrated ensemble with the rows of their own fits."""
    folds = folds_of(model, rows.X, rows.targets.argmax(axis=1))
    return [replace(member, rows=fold) for member, fold in zip(members, folds)]


class CalibratedEnsemble(SumModel):
    """The adapter of a calibrated ensemble: the mean of probabilities before calibration."""

    def __init__(self, model: ForeignModel, members: list[Member], columns: Any):
        names = owned(np.asarray(model.classes_))
        super().__init__(self._mean_before, members, columns, names)
        self._splitting = model
        self._whole = protected_copy(model)
        self.calibration = MeanOfCurves()

    def members_on(self, rows: TrainingRows) -> list[Member]:
        """Return the classifiers with the rows that each of them was fitted on."""
        return members_on_folds(self._splitting, self.members, rows)

    def _mean_before(self, X: FeatureTable) -> FloatArray:
        """Return the mean of the classifiers' probabilities before calibration, (n, K)."""
        return np.asarray(np.mean([member.model.predictions(X) for member in self.members], axis=0))

    def mean_probabilities(self, X: FeatureTable) -> FloatArray:
        """Return the calibrated probabilities that the model predicts, (n, K)."""
        # It warns of names that rows have and the fit had not, or the other way round.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(self._whole.predict_proba(X), dtype=np.float64)


def require_all_classes(model: ForeignModel, calibrated: ForeignModel) -> None:
    """Raise if the fold of a classifier lacked some class."""
    if len(calibrated.estimator.classes_) != len(model.classes_):
        raise UnsupportedModelError(
            "cv",
            str(model.cv),
            "one of its classifiers was fitted on rows without some class",
            "Fit with fewer folds, which leave rows of every class to each classifier, or with "
            "ensemble=False.",
        )


def takes_weights(estimator: ForeignModel) -> bool:
    """Return whether calibration handed sample weights on to a classifier.

    It hands them to those alone whose fit names them.
    """
    return "sample_weight" in signature(estimator.fit).parameters

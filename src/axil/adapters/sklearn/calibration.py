"""Calibrated classifiers: the curves that lead from the scores of one classifier to the probabilities that are predicted."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from axil.types import Array


class Scored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Stands in for a classifier whose scores, (n,) or (n, K), are known: they are its rows."""

    def __init__(self, classes: Any = None):
        self.classes = self.classes_ = classes

    def decision_function(self, X: Any) -> Any:
        """The scores."""
        return X


class Likely(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Stands in for a classifier whose probabilities, (n, C), are known: they are its rows."""

    def __init__(self, classes: Any = None):
        self.classes = self.classes_ = classes

    def predict_proba(self, X: Any) -> Any:
        """The probabilities."""
        return X


@dataclass(frozen=True)
class Calibration:
    """Curves of a calibrated classifier, held fixed, which scikit-learn itself applies."""

    notes: ClassVar[dict[str, str]] = {
        "exact": "probabilities are those before calibration",
        "additive": "probabilities are calibrated, and the curve of the calibration is held fixed",
    }

    curves: Any  #: scikit-learn's classifier and curves, with a `Scored` or `Likely` in the place of the classifier
    columns: NDArray[np.intp]  #: the classes of the classifier inside among all
    before: Any  #: the `Calibration` of the classifier inside, which has the same scores

    def probabilities(self, scores: Array, means: Array) -> Array:
        """(n, K): from scores (n, K) and what the link makes of them."""
        if self.before is not None:
            means = self.before.probabilities(scores, means)
        alone = scores.shape[1] == 1  # of the second of two classes
        if isinstance(self.curves.estimator, Scored):
            given = scores[:, 0] if alone else scores
        else:
            given = np.hstack([1 - means, means]) if alone else means
        found = np.asarray(self.curves.predict_proba(given), dtype=np.float64)[:, self.columns]
        return found[:, 1:] if alone else found


def calibrate(adapter: Any, calibrated: Any) -> None:
    """Tell the adapter of a classifier of the curves around it."""
    inside, curves = calibrated.estimator, copy.copy(calibrated)
    own, names = np.asarray(inside.classes_), np.asarray(calibrated.classes)
    # Names of classes reach a classifier by their numbers where method="temperature".
    numbered = len(own) == len(names) and not np.isin(own, names).all()
    columns = np.arange(len(names)) if numbered else np.searchsorted(names, own)
    curves.calibrators = copy.deepcopy(calibrated.calibrators)
    curves.estimator = (Scored if hasattr(inside, "decision_function") else Likely)(own)
    adapter.calibration = Calibration(curves, columns, getattr(adapter, "calibration", None))
    if numbered:
        adapter.classes = names

"""Searches over settings, frozen models, thresholds and calibrations.

axil explains the model inside that predicts.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from axil.adapters.refusals import not_fitted
from axil.aliases import ForeignModel
from axil.errors import InputError

__all__ = [
    "CALIBRATED",
    "inside_of",
    "is_calibrated",
    "is_calibrated_ensemble",
    "kinds_of",
    "own_threshold",
    "unwrapped",
]

_MISSING = object()
# the attribute of a CalibratedClassifierCV that has classifiers with their curves
CALIBRATED = "calibrated_classifiers_"
# Classes of scikit-learn that predict with one fitted model inside: the attribute that has it. A
# threshold moves the class that is predicted, not the probability.
_AROUND_ONE = {
    "FrozenEstimator": "estimator",
    "FixedThresholdClassifier": "estimator_",
    "TunedThresholdClassifierCV": "estimator_",
    "CalibratedClassifierCV": CALIBRATED,
    "_CalibratedClassifier": "estimator",
}

# Those that predict a class by a threshold: the attribute that has it, "auto" for that of `predict`
_THRESHOLDS = {
    "FixedThresholdClassifier": "threshold",
    "TunedThresholdClassifierCV": "best_threshold_",
}


def unwrapped(model: ForeignModel) -> ForeignModel:
    """Return the model inside others; the object itself if there is nothing around it.

    Around a model there may be fitted searches (GridSearchCV and all that follow its interface), a
    FrozenEstimator, and classifiers with a threshold or a calibration.
    """
    while (inside := inside_of(model)) is not None:
        model = inside[1]
    return model


def inside_of(model: ForeignModel) -> tuple[str, Any] | None:
    """Return the model that this one predicts with, and the attribute that has it.

    It is None if it has none inside.

    A search predicts with ``best_estimator_`` alone, which was fitted to all rows after the search.
    A frozen model is never fitted again, whatever is around it. A calibrated classifier has one
    inside, unless it is an ensemble.
    """
    names = [_AROUND_ONE[kind] for kind in kinds_of(model) if kind in _AROUND_ONE]
    if names:
        name = names[0]
    elif _is_search(model):
        name = "best_estimator_"
    else:
        return None
    inside = vars(model).get(name, _MISSING)
    if inside is _MISSING and not names:
        _refuse_search_without_model(model)
    if inside is _MISSING:
        raise not_fitted(model)
    if name == CALIBRATED:
        if len(inside) > 1:
            return None
        return (name, inside[0])
    return name, inside


def _refuse_search_without_model(search: ForeignModel) -> None:
    """Raise for a fitted search that keeps no model."""
    if search.refit is False and {"cv_results_", "best_params_", "study_"} & vars(search).keys():
        raise InputError(
            f"This {type(search).__name__} has refit=False: it keeps no model, only scores. Fit a "
            "model with its best_params_ to all rows and pass that, or search with refit=True."
        )


def is_calibrated(model: object) -> bool:
    """Return whether an object is a classifier with its calibration curves.

    CalibratedClassifierCV stores such objects.
    """
    return "_CalibratedClassifier" in kinds_of(model)


def is_calibrated_ensemble(model: object) -> bool:
    """Return whether an object is a fitted CalibratedClassifierCV with one classifier per fold."""
    return "CalibratedClassifierCV" in kinds_of(model) and len(vars(model).get(CALIBRATED, ())) > 1


def own_threshold(model: ForeignModel) -> Any:
    """Return the threshold that a classifier itself predicts classes by, a number or "auto".

    It is None if the classifier has none.
    """
    for kind in kinds_of(model):
        if kind in _THRESHOLDS:
            return vars(model)[_THRESHOLDS[kind]]
    return None


def kinds_of(model: object) -> list[str]:
    """Return the names of scikit-learn's classes that an object is an instance of.

    The name of its own class comes first.
    """
    return [kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sklearn.")]


def _is_search(model: object) -> bool:
    """Return whether an object is a search, by its class or by its fitted attributes."""
    attributes = getattr(model, "__dict__", {})  # looked up statically: a proxy answers to any name
    if "refit" not in attributes:
        return False
    names = [kind.__name__ for kind in type(model).__mro__]
    if "BaseSearchCV" in names or names[0].endswith("SearchCV"):
        return True
    has_params = getattr_static(model, "best_params_", _MISSING) is not _MISSING
    return "best_estimator_" in attributes and has_params

"""Searches over settings, frozen models, thresholds and calibrations: the model inside that predicts is explained."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from axil.adapters.refusals import not_fitted
from axil.errors import InputError

__all__ = [
    "CALIBRATED",
    "inside_of",
    "is_calibrated",
    "is_calibrated_ensemble",
    "kinds_of",
    "unwrapped",
]

_MISSING = object()
CALIBRATED = "calibrated_classifiers_"  # the attribute of a CalibratedClassifierCV that has classifiers with their curves
# Classes of scikit-learn that predict with one fitted model inside: the attribute that has it. A threshold moves the class that
# is predicted, not the probability.
_AROUND_ONE = {
    "FrozenEstimator": "estimator",
    "FixedThresholdClassifier": "estimator_",
    "TunedThresholdClassifierCV": "estimator_",
    "CalibratedClassifierCV": CALIBRATED,
    "_CalibratedClassifier": "estimator",
}


def unwrapped(model: Any) -> Any:
    """The model inside a fitted search (GridSearchCV and all that follow its interface), a FrozenEstimator, a classifier with a
    threshold or a calibrated one; else the object.
    """
    while (found := inside_of(model)) is not None:
        model = found[1]
    return model


def inside_of(model: Any) -> tuple[str, Any] | None:
    """The model that this one predicts with, and the attribute that has it; None where this one has no other around it.

    A search predicts with ``best_estimator_`` alone, which was fitted to all rows after the search. A frozen model is never
    fitted again, whatever is around it. A calibrated classifier has one inside, unless it is an ensemble.
    """
    name = next((_AROUND_ONE[kind] for kind in kinds_of(model) if kind in _AROUND_ONE), None)
    if name is None and not _is_search(model):
        return None
    found = vars(model).get(name or "best_estimator_", _MISSING)
    if found is _MISSING:
        if (
            name is None
            and model.refit is False
            and {"cv_results_", "best_params_", "study_"} & vars(model).keys()
        ):
            raise InputError(
                f"This {type(model).__name__} has refit=False: it keeps no model, only scores. Fit a model with its "
                "best_params_ to all rows and pass that, or search with refit=True."
            )
        raise not_fitted(model)
    if name == CALIBRATED:
        if len(found) > 1:
            return None
        found = found[0]
    return name or "best_estimator_", found


def is_calibrated(model: Any) -> bool:
    """Whether an object is a classifier with the curves that calibrate it, as a CalibratedClassifierCV keeps them."""
    return "_CalibratedClassifier" in kinds_of(model)


def is_calibrated_ensemble(model: Any) -> bool:
    """Return whether an object is a fitted CalibratedClassifierCV with a classifier for each fold."""
    return "CalibratedClassifierCV" in kinds_of(model) and len(vars(model).get(CALIBRATED, ())) > 1


def kinds_of(model: Any) -> list[str]:
    """The names of scikit-learn's classes that an object is of, its own first."""
    return [kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sklearn.")]


def _is_search(model: Any) -> bool:
    """Whether an object is a search by its class, or by what its fit has put into it."""
    own = getattr(model, "__dict__", {})  # looked up statically: a proxy answers to any name
    names = [kind.__name__ for kind in type(model).__mro__]
    named = "BaseSearchCV" in names or names[0].endswith("SearchCV")
    fitted = (
        "best_estimator_" in own and getattr_static(model, "best_params_", _MISSING) is not _MISSING
    )
    return "refit" in own and (named or fitted)

"""Searches over settings, frozen models and thresholds: the model inside that predicts is the one that is explained."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from axil.adapters.refusals import not_fitted
from axil.errors import InputError

__all__ = ["unwrapped"]

_MISSING = object()
# Classes of scikit-learn that predict with one fitted model inside: the attribute that has it. A threshold moves the class that
# is predicted, not the probability.
_AROUND_ONE = {
    "FrozenEstimator": "estimator",
    "FixedThresholdClassifier": "estimator_",
    "TunedThresholdClassifierCV": "estimator_",
}


def unwrapped(model: Any) -> Any:
    """The model inside a fitted search (GridSearchCV and all that follow its interface), a FrozenEstimator or a classifier with a
    threshold; else the object.

    A search predicts with ``best_estimator_`` alone, which was fitted to all rows after the search. A frozen model is never
    fitted again, whatever is around it.
    """
    while True:
        inside = next((_AROUND_ONE[name] for name in _own_kinds(model) if name in _AROUND_ONE), None)
        if inside is None and not _is_search(model):
            return model
        found = vars(model).get(inside or "best_estimator_", _MISSING)
        if found is _MISSING:
            if (
                inside is None
                and model.refit is False
                and {"cv_results_", "best_params_", "study_"} & vars(model).keys()
            ):
                raise InputError(
                    f"This {type(model).__name__} has refit=False: it keeps no model, only scores. Fit a model with its "
                    "best_params_ to all rows and pass that, or search with refit=True."
                )
            raise not_fitted(model)
        model = found


def _own_kinds(model: Any) -> list[str]:
    """The names of scikit-learn's classes that an object is of."""
    return [kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sklearn.")]


def _is_search(model: Any) -> bool:
    """Whether an object is a search by its class, or by what its fit has put into it."""
    own = getattr(model, "__dict__", {})  # looked up statically: a proxy answers to any name
    names = [kind.__name__ for kind in type(model).__mro__]
    named = "BaseSearchCV" in names or names[0].endswith("SearchCV")
    fitted = "best_estimator_" in own and getattr_static(model, "best_params_", _MISSING) is not _MISSING
    return "refit" in own and (named or fitted)

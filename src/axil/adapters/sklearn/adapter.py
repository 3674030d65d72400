"""From any of scikit-learn's models to its adapter; the classes that are refused have reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from axil.adapters.contract import Model
from axil.adapters.refusals import not_fitted
from axil.adapters.sklearn.boosting import GradientBoostingAdapter, HistGradientBoostingAdapter
from axil.adapters.sklearn.neighbours import NeighboursAdapter
from axil.adapters.sklearn.refusals import fits_init, refuse_class
from axil.adapters.sklearn.smoothers import (
    GaussianProcessAdapter,
    KernelRidgeAdapter,
    LinearRegressionAdapter,
    RidgeAdapter,
)
from axil.adapters.sklearn.transforms import TransformedAdapter
from axil.adapters.sklearn.trees import ForestAdapter, bags_trees

ADAPTERS: dict[str, Callable[[Any], Model]] = {
    "GradientBoostingRegressor": GradientBoostingAdapter,
    "HistGradientBoostingRegressor": HistGradientBoostingAdapter,
    **dict.fromkeys(
        (
            *("DecisionTreeRegressor", "DecisionTreeClassifier", "ExtraTreeRegressor", "ExtraTreeClassifier"),
            *("RandomForestRegressor", "RandomForestClassifier", "ExtraTreesRegressor", "ExtraTreesClassifier"),
            *("BaggingRegressor", "BaggingClassifier"),
        ),
        ForestAdapter,
    ),
    "LinearRegression": LinearRegressionAdapter,
    "Ridge": RidgeAdapter,
    "RidgeCV": RidgeAdapter,
    "KernelRidge": KernelRidgeAdapter,
    "GaussianProcessRegressor": GaussianProcessAdapter,
    **dict.fromkeys(
        ("KNeighborsRegressor", "KNeighborsClassifier", "RadiusNeighborsRegressor", "RadiusNeighborsClassifier"),
        NeighboursAdapter,
    ),
    "TransformedTargetRegressor": TransformedAdapter.of,
}


def read(model: Any) -> Model | None:
    """The adapter for a model of scikit-learn, None for any other object; raises for what is refused."""
    for kind in type(model).__mro__:
        if not kind.__module__.startswith("sklearn."):
            continue
        refuse_class(kind.__name__)
        if kind.__name__ in ADAPTERS:
            require_fitted(model)
            if _of_several(model):
                return None  # see `wrappers`
            return ADAPTERS[kind.__name__](model)
    return None


def _of_several(model: Any) -> bool:
    """Whether a model consists of others that any library may have made."""
    if hasattr(model, "estimators_features_"):
        return not bags_trees(model)
    return hasattr(model, "init_") and hasattr(model, "n_estimators_") and fits_init(model)


def require_fitted(model: Any) -> None:
    """Raise for a model that has not been fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        raise not_fitted(model) from None

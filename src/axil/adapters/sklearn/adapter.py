"""From any of scikit-learn's models to its adapter; the classes that are refused have reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from axil.adapters.contract import Model
from axil.adapters.refusals import not_fitted
from axil.adapters.searches import kinds_of
from axil.adapters.sklearn.boosting import (
    GradientBoostingAdapter,
    HistGradientBoostingAdapter,
    leaves_of,
)
from axil.adapters.sklearn.draws import bags_trees
from axil.adapters.sklearn.neighbours import NeighboursAdapter
from axil.adapters.sklearn.refusals import fits_init, refuse_class
from axil.adapters.sklearn.smoothers import (
    BayesianRidgeAdapter,
    GaussianProcessAdapter,
    KernelRidgeAdapter,
    LinearRegressionAdapter,
    RidgeAdapter,
    RidgeClassifierAdapter,
)
from axil.adapters.sklearn.transforms import TransformedAdapter
from axil.adapters.sklearn.trees import ForestAdapter

Reader = TypeVar("Reader")

ADAPTERS: dict[str, Callable[[Any], Model]] = {
    "GradientBoostingRegressor": GradientBoostingAdapter,
    "HistGradientBoostingRegressor": HistGradientBoostingAdapter,
    **dict.fromkeys(
        (
            *(
                "DecisionTreeRegressor",
                "DecisionTreeClassifier",
                "ExtraTreeRegressor",
                "ExtraTreeClassifier",
            ),
            *(
                "RandomForestRegressor",
                "RandomForestClassifier",
                "ExtraTreesRegressor",
                "ExtraTreesClassifier",
            ),
            *("BaggingRegressor", "BaggingClassifier"),
        ),
        ForestAdapter,
    ),
    "LinearRegression": LinearRegressionAdapter,
    "Ridge": RidgeAdapter,
    "RidgeCV": RidgeAdapter,
    "RidgeClassifier": RidgeClassifierAdapter,
    "RidgeClassifierCV": RidgeClassifierAdapter,
    "BayesianRidge": BayesianRidgeAdapter,
    "ARDRegression": BayesianRidgeAdapter,
    "KernelRidge": KernelRidgeAdapter,
    "GaussianProcessRegressor": GaussianProcessAdapter,
    **dict.fromkeys(
        (
            "KNeighborsRegressor",
            "KNeighborsClassifier",
            "RadiusNeighborsRegressor",
            "RadiusNeighborsClassifier",
        ),
        NeighboursAdapter,
    ),
    "TransformedTargetRegressor": TransformedAdapter.of,
}


def read(model: Any, leaves_only: bool = False) -> Model | None:
    """The adapter for a model of scikit-learn, None for any other object; refuses nothing where leaves alone are read."""
    if leaves_only:
        return leaves_of(model)
    for kind in kinds_of(model):
        refuse_class(kind)
        if kind in ADAPTERS:
            break
    reader = reader_of(model, ADAPTERS)
    return (
        None if reader is None or _of_several(model) else reader(model)
    )  # of several: see `wrappers`


def reader_of(model: Any, readers: Mapping[str, Reader]) -> Reader | None:
    """The reader of a model by the names of scikit-learn's classes; None for other objects. Raises where it is not fitted."""
    found = next((readers[kind] for kind in kinds_of(model) if kind in readers), None)
    if found is not None:
        require_fitted(model)
    return found


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

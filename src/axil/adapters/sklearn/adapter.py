"""From any scikit-learn model to its adapter; classes that axil refuses have reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from axil.adapters.contract import Model
from axil.adapters.refusals import not_fitted
from axil.adapters.searches import kinds_of
from axil.adapters.sklearn.boosting import (
    GradientBoostingAdapter,
    HistGradientBoostingAdapter,
    leaves_of,
)
from axil.adapters.sklearn.draws import samples_trees
from axil.adapters.sklearn.neighbours import NeighboursAdapter
from axil.adapters.sklearn.refusals import CLASSES, fits_init, refuse_class
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
from axil.aliases import ForeignModel

Reader = TypeVar("Reader")

ADAPTERS: dict[str, Callable[[ForeignModel], Model]] = {
    **dict.fromkeys(
        (
            "DecisionTreeRegressor",
            "DecisionTreeClassifier",
            "ExtraTreeRegressor",
            "ExtraTreeClassifier",
            "RandomForestRegressor",
            "RandomForestClassifier",
            "ExtraTreesRegressor",
            "ExtraTreesClassifier",
            "BaggingRegressor",
            "BaggingClassifier",
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


BOOSTED: dict[str, type[GradientBoostingAdapter] | type[HistGradientBoostingAdapter]] = {
    "GradientBoostingClassifier": GradientBoostingAdapter,
    "GradientBoostingRegressor": GradientBoostingAdapter,
    "HistGradientBoostingClassifier": HistGradientBoostingAdapter,
    "HistGradientBoostingRegressor": HistGradientBoostingAdapter,
}


def read(
    model: ForeignModel, by_gradients: bool = False, leaves_only: bool = False
) -> Model | None:
    """Return the adapter of a model of scikit-learn; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    by_gradients : bool
        Whether only gradient boosting is read, by its gradients even if it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Nothing is refused then.
    """
    if leaves_only:
        return leaves_of(model)
    boosted = next((kind for kind in kinds_of(model) if kind in BOOSTED), None)
    if boosted is not None:
        return _read_boosted(model, boosted, by_gradients)
    if by_gradients:
        return None
    for kind in kinds_of(model):
        refuse_class(kind)
        if kind in ADAPTERS:
            break
    reader = reader_of(model, ADAPTERS)
    if reader is None or _has_models_of_any_library(model):  # see `wrappers`
        return None
    return reader(model)


def _read_boosted(model: ForeignModel, kind: str, by_gradients: bool) -> Model | None:
    """Return the adapter of gradient boosting of this class.

    None stands for boosting that starts from the predictions of another model.
    """
    require_fitted(model)
    starts_from_model = _has_models_of_any_library(model)
    if starts_from_model and not by_gradients and kind not in CLASSES:
        return None
    return BOOSTED[kind](model, by_gradients)


def reader_of(model: ForeignModel, readers: Mapping[str, Reader]) -> Reader | None:
    """Return the reader of a model by the names of its classes; None for other objects.

    Raise for a model that is not fitted.
    """
    reader = next((readers[kind] for kind in kinds_of(model) if kind in readers), None)
    if reader is not None:
        require_fitted(model)
    return reader


def _has_models_of_any_library(model: ForeignModel) -> bool:
    """Return whether a model consists of others, which may be of any library."""
    if hasattr(model, "estimators_features_"):
        return not samples_trees(model)
    return hasattr(model, "init_") and hasattr(model, "n_estimators_") and fits_init(model)


def require_fitted(model: ForeignModel) -> None:
    """Raise for a model that has not been fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        raise not_fitted(model) from None

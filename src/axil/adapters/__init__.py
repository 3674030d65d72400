"""From any fitted model to its adapter: one package per library.

A package is imported only once its library is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from axil.adapters.contract import Adapter, Kind, Model
from axil.adapters.members import InsideModels
from axil.adapters.pipeline import TREES, last_step, library_readers, search, state_threshold
from axil.adapters.registration import is_adapter, register, registered, require_contract
from axil.adapters.searches import unwrapped
from axil.aliases import ForeignModel, ForeignObject
from axil.errors import InputError, UnsupportedModelError, shown

__all__ = [
    "Kind",
    "Model",
    "Reading",
    "around",
    "examine",
    "find",
    "find_by_gradients",
    "fingerprint",
    "parts_of",
    "read",
    "read_leaves",
    "register",
    "unread",
]

# Library: what it calls the models that axil reads. Each has a package of the same name here.
_LIBRARIES = {
    "lightgbm": "lightgbm.LGBMRegressor, lightgbm.LGBMClassifier, lightgbm.Booster",
    "xgboost": "xgboost.XGBRegressor, xgboost.XGBRFRegressor, xgboost.XGBClassifier, "
    "xgboost.Booster",
    "catboost": "catboost.CatBoostRegressor, catboost.CatBoostClassifier, catboost.CatBoost",
    "sksurv": "scikit-survival's gradient boosting and forests",
    "sklearn": "scikit-learn's trees, forests, gradient boosting, linear models, networks and "
    "pipelines of these",
    "statsmodels": "statsmodels' results of OLS, WLS and GLS",
}


_TAKE_OBJECTIVES = ("lightgbm", "xgboost")  #: libraries that fit a user's own objective

# Objects around models, by the beginning of their names, and what to pass in their place.
_FORECASTERS = {
    "mlforecast.": "it to axil.forecast(forecaster, data), or one of its models_ to "
    "axil.Explainer, with the features and targets of its preprocess(df, return_X_y=True); "
    "targets that were transformed (differences) are explained as they reach the model",
    "skforecast.direct.": "it to axil.forecast(forecaster, data), or one of its estimators_, with "
    "filter_train_X_y_for_step(step, X, y) of the X and y of its create_train_X_y",
    "skforecast.": "it to axil.forecast(forecaster, data), or its estimator "
    "(in some versions regressor), with the X_train and y_train of its create_train_X_y(y)",
    "darts.": "its model (of several horizons one of model.estimators_), with the lagged rows "
    "that create_lagged_training_data makes",
    "sktime.": "its estimator_ (of several horizons one of estimators_), with the table of lags "
    "that it was fitted on",
    "mlflow.": "the model of its own library: unwrap_python_model(), get_raw_model(), or "
    "mlflow.sklearn.load_model, mlflow.lightgbm.load_model, mlflow.xgboost.load_model, "
    "mlflow.catboost.load_model of the same address",
}


@dataclass(frozen=True)
class Reading:
    """The adapter of a fitted model, or the reason why it has no exact weights."""

    adapter: Model | None  #: None: it has no adapter, but perhaps derivatives
    not_exact: (
        UnsupportedModelError | None
    )  #: why it has no exact weights; None: it has, or axil does not know the model

    @property
    def kind(self) -> Kind | None:
        """The kind of the model's numbers; None for an unknown model."""
        if self.adapter is not None:
            return self.adapter.kind
        if self.not_exact is None:
            return None
        return Kind.DERIVATIVE


def examine(model: ForeignModel) -> Reading:
    """Read a fitted model of any kind; raise for one that has not even derivatives."""
    try:
        adapter = find(model)
    except UnsupportedModelError as error:
        if not error.derivative:
            raise
        return Reading(None, error)
    return Reading(adapter, None if adapter is None else adapter.not_exact)


def read(model: ForeignModel) -> Model:
    """Return the adapter of a fitted model with exact weights; raise for any other object."""
    adapter = find(model)
    if adapter is None:
        raise unread(model)
    if adapter.not_exact is not None:
        raise adapter.not_exact
    return adapter


def find(model: ForeignModel) -> Model | None:
    """Return the adapter of a fitted model, of exact weights or of boosted trees.

    It is None for an object that axil does not know.

    An adapter is its own. Raise for a model that has neither weights nor score contributions, by
    the setting.
    """
    if is_adapter(model):
        require_contract(model)
        return cast(Model, model)
    readers = [*registered.values(), *library_readers(_LIBRARIES)]
    adapter: Model | None = search(model, readers, "wrappers")
    if adapter is None:
        return None
    state_threshold(adapter, model)
    if adapter.kind is Kind.ADDITIVE:
        _require_classes(adapter)
    return adapter


def find_by_gradients(model: ForeignModel, objective: ForeignObject = None) -> Adapter | None:
    """Return the adapter that reads boosted trees by their gradients, of squared error too.

    It is None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    objective : callable, optional
        The user's own function that the model was fitted with.
    """
    if objective is None:
        readers = library_readers(TREES, by_gradients=True)
        adapter: Adapter | None = search(model, readers, "side_by_side")
    else:
        adapter = search(model, library_readers(_TAKE_OBJECTIVES, objective=objective))
        if adapter is None:
            raise InputError(
                f"objective is given, but the model is a {type(model).__name__}: only LightGBM and "
                "XGBoost take such functions. Leave it out."
            )
    if adapter is not None:
        state_threshold(adapter, model)
        _require_classes(adapter)
    return adapter


def _require_classes(adapter: Model) -> None:
    """Raise for a classifier of boosted trees whose labels were all of one class."""
    if adapter.n_outputs == 1 and adapter.classes is not None and len(adapter.classes) < 2:
        raise UnsupportedModelError(
            "classes_",
            shown(adapter.classes.tolist()),
            "all labels of the fit are of one class, so no training row speaks for another",
            "Fit it to labels of two classes or more.",
        )


def parts_of(model: ForeignModel) -> InsideModels | None:
    """Return the models inside a model of several, if some of them have no exact weights.

    It is None for other objects.
    """
    if "sklearn" not in sys.modules:
        return None
    parts: InsideModels | None = import_module("axil.adapters.sklearn.parts").parts_of(model)
    return parts


def read_leaves(model: ForeignModel) -> Model | None:
    """Return the adapter of any model of trees; None for other objects.

    Only its members about leaves may be used.
    """
    adapter: Model | None = search(model, library_readers(TREES, leaves_only=True))
    return adapter


def unread(model: object) -> InputError | UnsupportedModelError:
    """Return the error for an object that axil does not read.

    The object is a model of a class that is not supported, or no model.
    """
    if isinstance(model, type):
        return InputError(
            f"The model is the class {model.__name__} itself; expected a fitted model: "
            f"{model.__name__}(...).fit(X, y)."
        )
    kind = _class_name(model)
    if way := around(model):
        return InputError(f"The model is a {kind}, which holds the model that axil reads. {way}")
    inner = _innermost(model)
    if inner is not model:
        reason = (
            f"it is what this {type(model).__name__} predicts with, and axil reads {_readable()}"
        )
        return UnsupportedModelError("class", _class_name(inner), reason, _INSIDE)
    if _has(model, "best_estimator_"):
        return InputError(
            f"The model is a {kind}, a search that axil does not know. Pass the model that it "
            "chose: its best_estimator_."
        )
    if _has(model, "predict"):
        return UnsupportedModelError("class", kind, f"axil reads {_readable()}", _INSIDE)
    return InputError(f"The model is a {kind}; axil reads {_readable()}. {_INSIDE}")


_INSIDE = (
    "If this object wraps such a model (a file, an ensemble of your own), pass the fitted model "
    "inside, with the features as they reach it."
)


def _readable() -> str:
    """Return the names of the models that axil reads."""
    return ", ".join((*_LIBRARIES.values(), *registered))


def _class_name(model: object) -> str:
    """Return the name of a model's class with its module."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def _innermost(model: ForeignModel) -> ForeignModel:
    """Return the model that searches and pipelines around it predict with.

    It is the object itself if nothing is around it.
    """
    inner = unwrapped(model)
    while (last := last_step(inner)) is not None:
        inner = last
    return inner


def _has(model: object, name: str) -> bool:
    """Return whether an object has an attribute; an error on access counts as no."""
    try:
        return hasattr(model, name)
    except Exception:  # of an object that is no model
        return False


def around(model: object) -> str:
    """Return advice for an object that contains a model, such as a forecaster.

    It is empty for other objects.
    """
    module = f"{type(model).__module__}."
    for name, way in _FORECASTERS.items():
        if module.startswith(name):
            return f"Pass {way}."
    return ""


def fingerprint(model: ForeignModel, objective: ForeignObject = None) -> str:
    """Return the fingerprint of a fitted model of any kind; equal models have equal ones."""
    if objective is None:
        adapter = examine(model).adapter
    else:
        adapter = find_by_gradients(model, objective)
    if adapter is None:
        return ""
    return adapter.fingerprint

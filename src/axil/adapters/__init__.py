"""From any fitted model to its adapter: one module per library, none of which is imported before its library is."""

from __future__ import annotations

from typing import Any, cast

from axil.adapters.contract import Model, TreeModel
from axil.adapters.pipeline import search
from axil.errors import InputError

__all__ = ["Model", "find", "read", "unknown"]

# Library: what it calls the models that axil reads. Each has a module of the same name here with ``read(model)``.
_LIBRARIES = {
    "lightgbm": "lightgbm.LGBMRegressor, lightgbm.Booster",
    "xgboost": "xgboost.XGBRegressor, xgboost.XGBRFRegressor, xgboost.Booster",
    "catboost": "catboost.CatBoostRegressor, catboost.CatBoost",
    "sklearn": "scikit-learn's trees, forests, gradient boosting, linear smoothers and pipelines of these",
}


def read(model: Any) -> Model:
    """The adapter for a fitted model; raises for what axil does not know and refuses what is not linear."""
    adapter = find(model)
    if adapter is None:
        raise InputError(unknown(model))
    return adapter


def find(model: Any) -> Model | None:
    """The adapter for a fitted model, None for an object that axil does not know; an adapter is its own."""
    if isinstance(model, TreeModel):
        return cast(Model, model)
    found: Model | None = search(model, _LIBRARIES, "adapter")
    return found


def unknown(model: Any) -> str:
    """What to say of an object that axil does not know."""
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    return (
        f"The model is a {kind}; axil reads {', '.join(_LIBRARIES.values())}. If this object wraps such a model "
        "(a search, a file), pass the fitted model inside, with the features as they reach it."
    )

"""From any fitted model to its adapter: one module per library, none of which is imported before its library is."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from axil.adapters.base import Adapter, FittedTrees
from axil.errors import InputError

__all__ = ["Adapter", "FittedTrees", "read"]

# Library: what it calls the models that axil reads. Each has a module of the same name here with ``read(model)``.
_LIBRARIES = {
    "lightgbm": "lightgbm.LGBMRegressor, lightgbm.Booster",
}


def read(model: Any) -> Adapter:
    """The adapter for a fitted model; raises for what axil does not read and refuses what is not linear."""
    for library in _LIBRARIES:
        if library in sys.modules:
            adapter: Adapter | None = import_module(f"{__name__}.{library}").read(model)
            if adapter is not None:
                return adapter
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    raise InputError(
        f"The model is a {kind}; axil reads {', '.join(_LIBRARIES.values())}. If this object wraps such a model "
        "(a pipeline, a search, a file), pass the fitted model inside, with the features as they reach it."
    )

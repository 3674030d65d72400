"""From a fitted model and leaves that were fitted again to a model of the same class, through pipelines and searches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib import import_module
from typing import Any

from axil.adapters.pipeline import TREES, last_step
from axil.adapters.searches import CALIBRATED, inside_of
from axil.errors import UnsupportedQuestionError


def rewritten(model: Any, make: Callable[[Any, Any], Any], X: Any = None) -> Any:
    """The model with the fitted one inside made anew: ``make(inside, rows as they reach it)``; all around it is held fixed."""
    inside = inside_of(model)
    if inside is not None:
        made, (name, fitted) = copy.copy(model), inside
        new = rewritten(fitted, make, X)
        setattr(made, name, [new] if name == CALIBRATED else new)
        return made
    if last_step(model) is not None:
        made = copy.copy(model)
        rows = X if X is None or len(model.steps) == 1 else model[:-1].transform(X)
        (*first, (name, last)) = model.steps
        made.steps = [*first, (name, rewritten(last, make, rows))]
        return made
    if hasattr(model, "regressor_") and hasattr(model, "transformer_"):
        made = copy.copy(model)
        made.regressor_ = rewritten(model.regressor_, make, X)
        return made
    return make(model, X)


def writer(model: Any) -> Any:
    """The module that writes models of this one's library."""
    names = [kind.__module__.split(".")[0] for kind in type(model).__mro__]
    library = next((name for name in TREES if name in names), None)
    if library is None:
        raise UnsupportedQuestionError(
            "refit",
            f"models of {names[0]} are not written",
            "Ask explainer.without(X, rows) or what_if(X, targets).",
        )
    return import_module(f"axil.adapters.{library}.writer")

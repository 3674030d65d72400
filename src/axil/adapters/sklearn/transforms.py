"""TransformedTargetRegressor: the regressor inside, of whatever library, and the scale of the targets that it was fitted to."""

from __future__ import annotations

import hashlib
import warnings
from functools import partial
from typing import Any

import numpy as np

from axil import adapters
from axil.adapters.boundary import Around
from axil.adapters.contract import Model
from axil.errors import UnsupportedModelError
from axil.scale import UNNAMED, TargetScale


class TransformedAdapter(Around):
    """The adapter of the regressor inside, which predicts transformed targets, with the scale that leads back from them.

    A transformer that was fitted to the targets is held fixed, as splits are.
    """

    def __init__(self, inner: Model, scale: TargetScale):
        self._inside = inner
        self.scale = scale
        self.fingerprint = hashlib.sha256(
            f"{inner.fingerprint} transformed targets".encode()
        ).hexdigest()

    @classmethod
    def of(cls, model: Any) -> TransformedAdapter:
        """The adapter of a fitted TransformedTargetRegressor."""
        reading = adapters.examine(model.regressor_)
        inner, error = reading.adapter, reading.not_exact
        if error is not None:
            # Derivatives are of the regressor's own predictions, so they are not offered for the whole.
            raise UnsupportedModelError(
                error.setting,
                error.value,
                error.reason,
                "axil.Explainer explains its regressor_ on the transformed targets.",
                error.condition,
            )
        if inner is None:
            raise adapters.unread(model.regressor_)
        if not inner.scale.is_identity:
            raise UnsupportedModelError(
                "transform of the targets",
                f"{inner.scale.name} inside a TransformedTargetRegressor",
                "axil leads back through one transform",
                "Fit with one of the two, or with one function that does both.",
            )
        own = model.transformer_
        backward, onward = (
            partial(_quietly, method) for method in (own.inverse_transform, own.transform)
        )
        return cls(inner, TargetScale(_name(own), backward, onward))


def _quietly(method: Any, values: Any) -> Any:
    """Call a method of a transformer without the warnings that came with the fit already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(method(values))


def _name(transformer: Any) -> str:
    """The function's own name, or the transformer's."""
    if type(transformer).__name__ != "FunctionTransformer":
        return type(transformer).__name__
    name = str(getattr(transformer.func, "__name__", UNNAMED))
    return name if name.isidentifier() else UNNAMED  # a lambda has no name

"""TransformedTargetRegressor: the regressor inside, of whatever library, and the scale of the targets that it was fitted to."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from axil import adapters
from axil.adapters.contract import Model
from axil.errors import UnsupportedModelError
from axil.scale import UNNAMED, Function, TargetScale


class TransformedAdapter:
    """The adapter of the regressor inside, which predicts transformed targets, with the scale that leads back from them.

    A transformer that was fitted to the targets is held fixed, as splits are.
    """

    def __init__(self, inner: Model, scale: TargetScale):
        self._inner = inner
        self.scale = scale
        self.fingerprint = hashlib.sha256(f"{inner.fingerprint} transformed targets".encode()).hexdigest()

    @classmethod
    def of(cls, model: Any) -> TransformedAdapter:
        """The adapter of a fitted TransformedTargetRegressor."""
        try:
            inner = adapters.read(model.regressor_)
        except UnsupportedModelError as error:
            if not error.derivative:
                raise
            # Derivatives are of the regressor's own predictions, so they are not offered for the whole.
            raise UnsupportedModelError(
                error.setting,
                error.value,
                error.reason,
                "axil.JacobianExplainer explains its regressor_ on the transformed targets.",
                error.condition,
            ) from None
        return cls(inner, TargetScale(_name(model.transformer_), *_functions(model.transformer_)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _functions(transformer: Any) -> tuple[Function, Function]:
    """From transformed targets back, and there, without the warnings that came with the fit already."""

    def quietly(method: Any) -> Function:
        def call(values: Any) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return np.asarray(method(values))

        return call

    return quietly(transformer.inverse_transform), quietly(transformer.transform)


def _name(transformer: Any) -> str:
    """The function's own name, or the transformer's."""
    if type(transformer).__name__ != "FunctionTransformer":
        return type(transformer).__name__
    name = str(getattr(transformer.func, "__name__", UNNAMED))
    return name if name.isidentifier() else UNNAMED  # a lambda has no name

"""TransformedTargetRegressor: the regressor inside, of any library, on the scale of its targets."""

from __future__ import annotations

import hashlib
import warnings
from functools import partial

import numpy as np

from axil import adapters
from axil.adapters.boundary import Around
from axil.adapters.contract import Model
from axil.aliases import ForeignModel, ForeignObject
from axil.errors import UnsupportedModelError
from axil.scale import UNNAMED, TargetScale


class TransformedAdapter(Around):
    """The adapter of the regressor inside, with the inverse of the transform of its targets.

    A transformer that was fitted to the targets stays fixed, as splits do.
    """

    def __init__(self, inner: Model, scale: TargetScale):
        self._inside = inner
        self.scale = scale
        content = f"{inner.fingerprint} transformed targets"
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def of(cls, model: ForeignModel) -> TransformedAdapter:
        """Return the adapter of a fitted TransformedTargetRegressor."""
        reading = adapters.examine(model.regressor_)
        inner = reading.adapter
        error = reading.not_exact
        if error is not None:
            # Derivatives are of the regressor's own predictions, so the whole has none.
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
        transformer = model.transformer_
        backward = partial(_quietly, transformer.inverse_transform)
        onward = partial(_quietly, transformer.transform)
        return cls(inner, TargetScale(_name(transformer), backward, onward))


def _quietly(method: ForeignObject, values: ForeignObject) -> ForeignObject:
    """Call a method of a transformer without the warnings that the fit gave already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(method(values))


def _name(transformer: ForeignModel) -> str:
    """Return the name of the transformer's function, or of its class."""
    if type(transformer).__name__ != "FunctionTransformer":
        return type(transformer).__name__
    name = str(getattr(transformer.func, "__name__", UNNAMED))
    # a lambda has no name
    if name.isidentifier():
        return name
    return UNNAMED

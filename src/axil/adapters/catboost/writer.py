"""Leaves that were fitted again, written into a CatBoost model: its bytes with other values and weights in their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.adapters.catboost.blob import HEAD, LEAF_VALUES, LEAF_WEIGHTS, parse
from axil.structure.leaves import LeafFit
from axil.types import Array


def write(model: Any, fits: list[LeafFit]) -> Any:
    """A model of the same class with these leaves; the model itself is not touched."""
    (fit,) = fits  # all outputs share trees
    state = model.__getstate__()
    blob, data = parse(state["__model"]), bytearray(state["__model"])
    for field, numbers in ((LEAF_VALUES, fit.values / blob.scale), (LEAF_WEIGHTS, fit.weights)):
        start, n = blob.trees.vector(field)
        if n:  # some exports lose the weights
            _put(data, HEAD + start, numbers)
    written: Any = object.__new__(type(model))
    written.__setstate__(state | {"__model": bytes(data)})
    if fit.estimated:
        bias = fit.share * fit.base
        written.set_scale_and_bias(blob.scale, bias.tolist() if len(bias) > 1 else float(bias[0]))
    return written


def _put(data: bytearray, start: int, numbers: Array) -> None:
    found = np.ascontiguousarray(numbers, dtype="<f8").tobytes()
    data[start : start + len(found)] = found

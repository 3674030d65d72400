"""Leaves that were fitted again, written into a CatBoost model: its bytes with other values and weights in their places."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from axil.adapters.catboost.blob import HEAD, LEAF_VALUES, LEAF_WEIGHTS, parse
from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError, shown
from axil.structure.leaves import LeafFit


def write(model: Any, fits: list[LeafFit]) -> Any:
    """A model of the same class with these leaves; the model itself is not touched."""
    import catboost

    (fit,) = fits  # all outputs share trees
    state = model.__getstate__()
    blob, data = parse(state["__model"]), bytearray(state["__model"])
    for field, numbers in ((LEAF_VALUES, fit.values / blob.scale), (LEAF_WEIGHTS, fit.weights)):
        start, n = blob.trees.vector(field)
        if n:  # some exports lose the weights
            _put(data, HEAD + start, numbers)
    written: Any = object.__new__(type(model))
    try:
        written.__setstate__(state | {"__model": bytes(data)})
    except catboost.CatBoostError as error:  # of targets around 1e18
        raise UnsupportedQuestionError(
            "refit",
            f"CatBoost cannot read what it writes of this model ({shown(error)})",
            "Fit to targets in another unit, such as millions.",
        ) from error
    if fit.estimated:
        bias = fit.share * fit.base
        written.set_scale_and_bias(blob.scale, bias.tolist() if len(bias) > 1 else float(bias[0]))
    if fit.class_weights is not None:
        _put_class_weights(written, fit.class_weights, blob.present_classes)
    return written


def _put_class_weights(model: Any, weights: FloatArray, present: list[int]) -> None:
    """Write the weights of the classes that were in the data into the settings that the model keeps of its fit."""
    metadata = model.get_metadata()
    settings = json.loads(metadata["params"])
    stated = np.array(settings["data_processing_options"]["class_weights"], dtype=np.float64)
    stated[slice(None) if len(stated) == len(weights) else present] = np.float32(weights)
    settings["data_processing_options"]["class_weights"] = stated.tolist()
    metadata["params"] = json.dumps(settings)


def _put(data: bytearray, start: int, numbers: FloatArray) -> None:
    found = np.ascontiguousarray(numbers, dtype="<f8").tobytes()
    data[start : start + len(found)] = found

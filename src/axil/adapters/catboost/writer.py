"""Refitted leaves, written into the bytes of a CatBoost model in place of the old ones."""

from __future__ import annotations

import json

import numpy as np

from axil.adapters.catboost.blob import HEAD, LEAF_VALUES, LEAF_WEIGHTS, parse
from axil.aliases import ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError, shown
from axil.structure.leaves import LeafFit


def write(model: ForeignModel, fits: list[LeafFit]) -> ForeignModel:
    """Return a model of the same class with these leaves; the model itself is not touched."""
    import catboost

    (fit,) = fits  # all outputs share trees
    state = model.__getstate__()
    blob = parse(state["__model"])
    data = bytearray(state["__model"])
    for field, numbers in ((LEAF_VALUES, fit.values / blob.scale), (LEAF_WEIGHTS, fit.weights)):
        start, length = blob.trees.vector(field)
        if length:  # some exports lose the weights
            _put(data, HEAD + start, numbers)
    written: ForeignObject = object.__new__(type(model))
    try:
        written.__setstate__(state | {"__model": bytes(data)})
    except catboost.CatBoostError as error:  # of targets around 1e18
        raise UnsupportedQuestionError(
            "refit",
            f"CatBoost cannot read what it writes of this model ({shown(error)})",
            "Fit to targets in another unit, such as millions.",
        ) from error
    if fit.estimated:
        bias = (fit.share * fit.base).tolist()
        if len(bias) == 1:
            (bias,) = bias
        written.set_scale_and_bias(blob.scale, bias)
    if fit.class_weights is not None:
        _put_class_weights(written, fit.class_weights, blob.present_classes)
    return written


def _put_class_weights(model: ForeignModel, weights: FloatArray, present: list[int]) -> None:
    """Write the weights of the classes in the data into the settings that the model keeps."""
    metadata = model.get_metadata()
    settings = json.loads(metadata["params"])
    class_weights = np.array(settings["data_processing_options"]["class_weights"], dtype=np.float64)
    if len(class_weights) != len(weights):
        class_weights[present] = np.float32(weights)
    else:
        class_weights[:] = np.float32(weights)
    settings["data_processing_options"]["class_weights"] = class_weights.tolist()
    metadata["params"] = json.dumps(settings)


def _put(data: bytearray, start: int, numbers: FloatArray) -> None:
    content = np.ascontiguousarray(numbers, dtype="<f8").tobytes()
    data[start : start + len(content)] = content

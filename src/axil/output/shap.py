"""Explanations in the form of the package shap, where training rows take the place of features."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.errors import InputError
from axil.output.predictions import WeightedSums
from axil.types import Array


def to_shap(sums: WeightedSums, values: Array) -> Any:
    """A ``shap.Explanation`` of contributions (n, n_train) or (n, n_train, K); see `Explanation.to_shap`."""
    try:
        from shap import Explanation
    except ImportError as error:
        raise InputError(
            "to_shap makes an object of the package shap, which is not installed: pip install shap."
        ) from error
    shown = sums.named
    data = shown if shown.ndim == 1 else np.full(len(shown), np.nan)  # shap has one number per feature, not K
    return Explanation(
        values=np.array(values),
        base_values=np.array(sums.intercepts),
        data=np.tile(data, (len(sums), 1)),
        feature_names=[str(label) for label in sums.index],
        output_names=None if sums.outputs is None else [str(name) for name in sums.outputs],
    )

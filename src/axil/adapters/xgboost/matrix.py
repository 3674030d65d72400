"""Rows as they come, in XGBoost's own matrix."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from axil.adapters.frames import as_frame, compressed, floats, word_columns
from axil.errors import InputError
from axil.inputs.libraries import needed_pandas


def as_matrix(X: Any, booster: Any, missing: float) -> Any:
    """A DMatrix of X: numpy, pandas and sparse as they are, polars and pyarrow tables in float64, nulls as nan."""
    import xgboost

    names, types = booster.feature_names, booster.feature_types
    frame = as_frame(X)
    if frame is not None:
        pandas = _as_pandas(frame, types)
        if pandas is not None:
            return xgboost.DMatrix(pandas, missing=missing, enable_categorical=True)
        X = floats(frame)
    else:
        X = compressed(X) if sparse.issparse(X) else np.asarray(X)
    return xgboost.DMatrix(X, missing=missing, feature_names=names, feature_types=types, enable_categorical=True)


def _as_pandas(frame: nw.DataFrame[Any], types: list[str] | None) -> Any:
    """The pandas frame where X is one, or where categories need one; None where numbers will do."""
    if frame.implementation.is_pandas():
        return frame.to_native()
    categorical = word_columns(frame)
    if not categorical:
        return None
    if "c" not in (types or []):
        raise InputError(
            f"The model was fitted without category columns, this table has {len(categorical)} "
            f"({', '.join(categorical[:5])}). Encode them as for the fit."
        )
    needed_pandas("A table of another library with categories for XGBoost")
    whole = frame.with_columns(nw.col(*categorical).cast(nw.String)).to_pandas()
    return whole.astype(dict.fromkeys(categorical, "category"))

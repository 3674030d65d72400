"""Rows as they come, in XGBoost's own matrix."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.errors import InputError
from axil.inputs.libraries import needed_pandas

_CATEGORIES = (nw.Categorical, nw.Enum, nw.String)


def as_matrix(X: Any, booster: Any, missing: float) -> Any:
    """A DMatrix of X: numpy, pandas and sparse as they are, polars and pyarrow tables in float64, nulls as nan."""
    import xgboost

    names, types = booster.feature_names, booster.feature_types
    frame = None if sparse.issparse(X) else nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        pandas = _as_pandas(frame, types)
        if pandas is not None:
            return xgboost.DMatrix(pandas, missing=missing, enable_categorical=True)
        X = _as_numbers(frame)
    elif sparse.issparse(X):
        X = sparse.csr_matrix(X) if X.format != "csc" else sparse.csc_matrix(X)
    else:
        X = np.asarray(X)
    return xgboost.DMatrix(X, missing=missing, feature_names=names, feature_types=types, enable_categorical=True)


def _as_pandas(frame: nw.DataFrame[Any], types: list[str] | None) -> Any:
    """The pandas frame where X is one, or where categories need one; None where numbers will do."""
    if frame.implementation.is_pandas():
        return frame.to_native()
    categorical = [
        name for name, dtype in frame.schema.items() if isinstance(dtype, _CATEGORIES) or dtype in _CATEGORIES
    ]
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


def _as_numbers(frame: nw.DataFrame[Any]) -> Any:
    columns = np.empty(frame.shape, dtype=np.float64, order="F")
    for i, name in enumerate(frame.columns):
        columns[:, i] = frame[name].cast(nw.Float64).to_numpy()
    return columns


def as_table(X: Any) -> NDArray[np.floating[Any]] | None:
    """The numbers of X that XGBoost casts to float32, cast already where they are not floats; None for all but numbers."""
    frame = None if sparse.issparse(X) else nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        if not frame.implementation.is_pandas():
            return None if any(not dtype.is_numeric() for dtype in frame.schema.values()) else _as_numbers(frame)
        if any(not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" for dtype in X.dtypes):
            return None
        return np.asarray(X.to_numpy(dtype=np.float32))
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        return None
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)

"""Rows as LightGBM takes them: categories of frames numbered as at the fit."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from axil.errors import InputError
from axil.types import Array


def as_lightgbm(X: Any, categories: list[Any]) -> Any:
    """X as every version of LightGBM takes it without a word: numpy, pandas, or a csr or csc matrix (not array)."""
    if bool(sparse.issparse(X)):
        return sparse.csc_matrix(X) if X.format == "csc" else sparse.csr_matrix(X)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.asarray(X)
    return X if frame.implementation.is_pandas() else _from_frame(frame, categories)


def from_pandas(frame: Any, categories: list[Any]) -> Array | None:
    """A pandas frame in float64, categories numbered as at the fit; None where it has columns of other kinds."""
    kinds = [getattr(dtype, "kind", "") if isinstance(dtype, np.dtype) else "" for dtype in frame.dtypes]
    categorical = [i for i, dtype in enumerate(frame.dtypes) if str(dtype) == "category"]
    if any(kind not in "biuf" or not kind for i, kind in enumerate(kinds) if i not in categorical):
        return None
    if not categorical:
        return np.asarray(frame.to_numpy(dtype=np.float64))
    if len(categories) != len(categorical):
        return None
    number = dict(zip(categorical, categories))
    columns = np.empty(frame.shape, dtype=np.float64, order="F")
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        if i in number:
            codes = column.cat.set_categories(number[i]).cat.codes.to_numpy()
            columns[:, i] = np.where(codes < 0, np.nan, codes)
        else:
            columns[:, i] = column.to_numpy()
    return columns


def _from_frame(frame: nw.DataFrame[Any], categories: list[Any]) -> Array:
    """A polars or pyarrow table in float64, nulls as nan and categories numbered as at the fit."""
    kinds = (nw.Categorical, nw.Enum, nw.String)
    categorical = [name for name, dtype in frame.schema.items() if isinstance(dtype, kinds) or dtype in kinds]
    if len(categorical) != len(categories):
        raise InputError(
            f"The model was fitted with {len(categories)} category columns of a pandas frame, this table "
            f"has {len(categorical)} ({', '.join(categorical[:5])}). Pass a pandas frame with the same categories."
        )
    columns = np.empty(frame.shape, dtype=np.float64, order="F")
    number = dict(zip(categorical, categories))
    for i, name in enumerate(frame.columns):
        if name in number:
            codes = {category: code for code, category in enumerate(number[name])}
            columns[:, i] = [codes.get(value, np.nan) for value in frame[name].to_list()]
        else:
            columns[:, i] = frame[name].cast(nw.Float64).to_numpy()
    return columns

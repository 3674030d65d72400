"""Rows as LightGBM takes them: categories of frames numbered as at the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from axil.adapters.frames import as_frame, compressed, floats, word_columns
from axil.arrays import FloatArray
from axil.errors import InputError


def as_lightgbm(X: Any, categories: list[Any]) -> Any:
    """X as every version of LightGBM takes it without a word: numpy, pandas, or a csr or csc matrix (not array)."""
    if bool(sparse.issparse(X)):
        return compressed(X)
    frame = as_frame(X)
    if frame is None:
        return np.asarray(X)
    if frame.implementation.is_pandas():
        if len(X) == 1:
            return X.copy()  # LightGBM 4.1 warns of one row that is part of a larger table
        return X
    categorical = word_columns(frame)
    if len(categorical) != len(categories):
        raise InputError(
            f"The model was fitted with {len(categories)} category columns of a pandas frame, this table "
            f"has {len(categorical)} ({', '.join(categorical[:5])}). Pass a pandas frame with the same categories."
        )
    return floats(frame, categories=dict(zip(categorical, categories)))


def from_pandas(frame: Any, categories: list[Any]) -> FloatArray | None:
    """A pandas frame in float64, categories numbered as at the fit; None where it has columns of other kinds."""
    kinds = [
        getattr(dtype, "kind", "") if isinstance(dtype, np.dtype) else "" for dtype in frame.dtypes
    ]
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

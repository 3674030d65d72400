"""Rows of any container as CatBoost reads them: pools for predictions, and single columns.

CatBoost itself reads numpy, pandas and scipy's sparse matrices without loss.
"""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.frames import as_frame, as_pandas, compressed
from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import AnyArray
from axil.errors import InputError
from axil.inputs.codes import numbered


def pool(X: FeatureTable, names: list[str] | None, cat_features: list[int]) -> ForeignObject:
    """Return a catboost.Pool of X.

    If CatBoost cannot make one, raise an error with the reason.
    """
    import catboost

    try:
        return _pool(X, names, cat_features)
    except catboost.CatBoostError as error:
        advice = ""
        if cat_features:
            advice = (
                f" Columns {cat_features} (from 0) are categories in this model: "
                "pass whole numbers or text there."
            )
        reason = str(error).rstrip(".")
        raise InputError(f"CatBoost does not take these rows: {reason}.{advice}") from error


def _pool(X: FeatureTable, names: list[str] | None, cat_features: list[int]) -> ForeignObject:
    """Return the Pool. CatBoost finds columns by name if both have names, otherwise by position."""
    import catboost

    if bool(sparse.issparse(X)):
        rows: FeatureTable = compressed(X)
        # Beside categories CatBoost takes whole numbers alone.
        if cat_features and np.all(rows.data == np.rint(rows.data)):
            rows = rows.astype(np.int64)
        return catboost.Pool(rows, cat_features=cat_features or None)
    frame = as_frame(X)
    if frame is None:
        return catboost.Pool(np.asarray(X), cat_features=cat_features or None)
    column_names = [str(name) for name in frame.columns]  # pandas numbers columns by default
    if names is not None and set(names) <= set(column_names):
        cat_features = [column_names.index(names[i]) for i in cat_features]
    if frame.implementation.is_pandas():
        rows = frame.to_native()
    else:
        rows = _as_pandas_table(frame, [frame.columns[i] for i in cat_features])
    if names is None:
        rows = rows.set_axis([str(i) for i in range(rows.shape[1])], axis=1)
    return catboost.Pool(rows, cat_features=cat_features or None)


def _as_pandas_table(frame: nw.DataFrame[Any], categorical: list[str]) -> ForeignObject:
    """Return a table of another library as pandas; raise for missing categories."""
    for name in categorical:
        if frame[name].null_count():
            raise InputError(
                f"Column {name!r} is categorical in this CatBoost model and has missing values "
                "here, which CatBoost does not take: give them the name that they had in the fit."
            )
    return as_pandas(frame, categorical, "A table of another library for CatBoost")


def category_column(X: FeatureTable, i: int) -> AnyArray:
    """Return a column of categories, (N,), of any container."""
    if bool(sparse.issparse(X)):
        return _sparse_column(X, i).astype(np.int64)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.asarray(np.asarray(X)[:, i])
    values = frame.get_column(frame.columns[i])  # names may be numbers
    if values.dtype.is_integer():
        return np.asarray(values.to_numpy())
    return np.array(values.to_list(), dtype=object)


def number_column(X: FeatureTable, i: int) -> NDArray[np.float32]:
    """Return a column of numbers in CatBoost's precision, (N,), of any container."""
    if sparse.issparse(X):
        values = _sparse_column(X, i)
    else:
        values = _dense_column(X, i)
    if values.dtype.kind not in "biuf":
        numbers = [np.nan if value is None else value for value in values.tolist()]
        values = np.array(numbers, dtype=np.float64)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


def _sparse_column(X: FeatureTable, i: int) -> AnyArray:
    return np.asarray(sparse.csc_matrix(X)[:, [i]].toarray()[:, 0])


def _dense_column(X: FeatureTable, i: int) -> AnyArray:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.asarray(np.asarray(X)[:, i])
    if frame.implementation.is_pandas() and isinstance(X.dtypes.iloc[i], np.dtype):
        return np.asarray(X.iloc[:, i].to_numpy())
    return np.asarray(frame.get_column(frame.columns[i]).cast(nw.Float64).to_numpy())


def zeros_above_negatives(X: FeatureTable) -> int | None:
    """Return the first sparse column with both zeros and negative numbers; None for dense rows."""
    if not sparse.issparse(X):
        return None
    columns = sparse.csc_matrix(X)
    for i in range(columns.shape[1]):
        stored = columns.data[columns.indptr[i] : columns.indptr[i + 1]]
        if len(stored) < columns.shape[0] and np.any(stored < 0):
            return i
    return None


def most_categories(X: FeatureTable, cat_features: list[int]) -> int:
    """Return the largest number of different values in any column of categories."""
    frame = as_frame(X)
    if frame is not None:
        return max(frame.get_column(frame.columns[i]).n_unique() for i in cat_features)
    return max(len(numbered(category_column(X, i))[1]) for i in cat_features)

"""Rows of any kind as CatBoost takes them without loss: it reads numpy, pandas and scipy's sparse matrices itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from axil.adapters.catboost.categories import column
from axil.adapters.frames import as_frame, as_pandas, compressed
from axil.errors import InputError
from axil.inputs.codes import numbered


def pool(X: Any, names: list[str] | None, cat_features: list[int]) -> Any:
    """A catboost.Pool of X, or an error that says why CatBoost does not make one."""
    import catboost

    try:
        return _pool(X, names, cat_features)
    except catboost.CatBoostError as error:
        also = f" Columns {cat_features} (from 0) are categories in this model: pass whole numbers or text there."
        raise InputError(
            f"CatBoost does not take these rows: {str(error).rstrip('.')}.{also if cat_features else ''}"
        ) from error


def _pool(X: Any, names: list[str] | None, cat_features: list[int]) -> Any:
    """Return the Pool. CatBoost finds columns by the model's names where both have names, else by position."""
    import catboost

    if bool(sparse.issparse(X)):
        rows: Any = compressed(X)
        if cat_features and np.all(
            rows.data == np.rint(rows.data)
        ):  # beside categories CatBoost takes whole numbers alone
            rows = rows.astype(np.int64)
        return catboost.Pool(rows, cat_features=cat_features or None)
    frame = as_frame(X)
    if frame is None:
        return catboost.Pool(np.asarray(X), cat_features=cat_features or None)
    spelled = [str(name) for name in frame.columns]  # pandas names columns 0, 1, 2 by default
    if names is not None and set(names) <= set(spelled):
        cat_features = [spelled.index(names[i]) for i in cat_features]
    if frame.implementation.is_pandas():
        rows = frame.to_native()
    else:
        categorical = [frame.columns[i] for i in cat_features]
        for name in categorical:
            if frame[name].null_count():
                raise InputError(
                    f"Column {name!r} is categorical in this CatBoost model and has missing values here, which CatBoost "
                    "does not take: give them the name that they had in the fit."
                )
        rows = as_pandas(frame, categorical, "A table of another library for CatBoost")
    if names is None:
        rows = rows.set_axis([str(i) for i in range(rows.shape[1])], axis=1)
    return catboost.Pool(rows, cat_features=cat_features or None)


def zeros_above_negatives(X: Any) -> int | None:
    """The first column of sparse rows that has both zeros and negative numbers; None for dense rows."""
    if not sparse.issparse(X):
        return None
    columns = sparse.csc_matrix(X)
    for i in range(columns.shape[1]):
        own = columns.data[columns.indptr[i] : columns.indptr[i + 1]]
        if len(own) < columns.shape[0] and np.any(own < 0):
            return i
    return None


def most_categories(X: Any, cat_features: list[int]) -> int:
    """How many different values the column of categories with the most of them has."""
    frame = as_frame(X)
    if frame is not None:
        return max(frame.get_column(frame.columns[i]).n_unique() for i in cat_features)
    return max(len(numbered(column(X, i))[1]) for i in cat_features)

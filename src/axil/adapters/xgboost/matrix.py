"""Rows as they come, in XGBoost's own matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.frames import as_frame, compressed, floats, single_table, word_columns
from axil.errors import InputError, counted, shown
from axil.inputs.categories import listed_categories
from axil.inputs.libraries import needed_pandas


def as_matrix(X: Any, booster: Any, missing: float, categories: Sequence[list[Any]] = ()) -> Any:
    """Return a DMatrix of X: numpy, pandas and sparse as they are, polars and pyarrow tables in float64, nulls as nan.

    ``categories`` of each feature, as models from 3.1 on keep them: XGBoost refuses a frame that lists others, even where no row
    has them.
    """
    import xgboost

    names, types = booster.feature_names, booster.feature_types
    frame = as_frame(X)
    if frame is not None:
        pandas = _as_pandas(frame, types)
        if pandas is not None:
            pandas = _with_known_categories(pandas, categories)
            return xgboost.DMatrix(pandas, missing=missing, enable_categorical=True)
        X = floats(frame)
    else:
        X = compressed(X) if sparse.issparse(X) else np.asarray(X)
    return xgboost.DMatrix(
        X, missing=missing, feature_names=names, feature_types=types, enable_categorical=True
    )


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
    whole = frame.with_columns(nw.col(*categorical).cast(nw.String)).to_pandas()
    listed = {name: listed_categories(frame, name) for name in categorical}
    pd = needed_pandas("A table of another library with categories for XGBoost")
    return whole.astype(
        {
            name: "category" if known is None else pd.CategoricalDtype(known)
            for name, known in listed.items()
        }
    )


def _with_known_categories(X: Any, categories: Sequence[list[Any]]) -> Any:
    """Return a pandas frame without categories that no row has and the model does not know; refuses those that rows have."""
    if len(categories) != X.shape[1]:
        return X
    table = X
    for name, known in zip(X.columns, categories):
        listed = getattr(X[name].dtype, "categories", None)
        if listed is None or not known or set(listed) <= set(known):
            continue
        used = X[name].cat.remove_unused_categories()
        new = [value for value in used.cat.categories if value not in set(known)]
        if new:
            n_rows = int((used == new[0]).sum())
            raise InputError(
                f"Column {shown(name)} holds the category {shown(new[0])} ({counted(n_rows, 'row')}), which no row of the fit "
                "had, and XGBoost refuses such rows. Leave these rows out, or the value empty if it is to count as missing."
            )
        if table is X:
            table = X.copy(deep=False)
        table[name] = used
    return table


def coded_table(
    X: Any, types: list[str], categories: Sequence[list[Any]]
) -> NDArray[np.floating[Any]] | None:
    """(n, features): numbers, and categories as a model numbers them; None where XGBoost itself has to look at them.

    Arrays have numbers for categories already. A frame's are found by their names among the model's own (from 3.1 on).
    """
    chosen = [kind == "c" for kind in types]
    if isinstance(X, np.ndarray):
        table = single_table(X)
        return (
            None if table is None or (table[:, chosen] < 0).any() else table
        )  # of which XGBoost takes none
    frame = as_frame(X)
    if frame is None or not frame.implementation.is_pandas() or len(categories) != len(chosen):
        return None
    found = np.empty(X.shape, dtype=np.float32, order="F")
    for i, (name, own) in enumerate(zip(X.columns, chosen)):
        column, codes = X[name], getattr(X[name], "cat", None)
        if own != (codes is not None) or (not own and not _is_plain(column.dtype)):
            return None
        if codes is None:
            found[:, i] = column.to_numpy()
            continue
        place = {category: number for number, category in enumerate(categories[i])}
        numbers = np.array(
            [*(place.get(label, -1) for label in codes.categories), np.nan], dtype=np.float32
        )
        found[:, i] = numbers[codes.codes]
        if (found[:, i] < 0).any():
            return None
    return found


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"

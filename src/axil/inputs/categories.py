"""Categories of frames: one numbering for tables that were read separately, and values that no training row has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw

from axil.inputs.codes import is_missing

_CATEGORIES = (nw.Categorical, nw.Enum)


Frame: TypeAlias = nw.DataFrame[Any]


def align_categories(frame: Frame, like: Frame, others: bool = False) -> Frame:
    """Return the frame with the categories of each column in the order of ``like``, and those that only it has behind them.

    A library that takes the numbers of a frame's categories for those of the fit then finds the
    right ones. Categories that no row has are left out, unless ``like`` has them. Frames of other
    libraries than pandas are aligned where ``others``.
    """
    if frame.implementation.is_pandas() and like.implementation.is_pandas():
        return _with_dtypes(frame, _pandas_dtypes(frame, like))
    if others:
        return _with_enums(frame, like, listed=False)
    return frame


def share_categories(frame: Frame, more: Frame) -> tuple[Frame, Frame]:
    """Return two frames of the same columns with the same categories: those of the first, then those that only ``more`` has."""
    if frame.implementation.is_pandas() and more.implementation.is_pandas():
        dtypes = _pandas_dtypes(more, frame)
        return _with_dtypes(frame, dtypes), _with_dtypes(more, dtypes)
    more = _with_enums(more, frame, listed=True)
    return _with_enums(frame, more, listed=True), more


def category_columns(frame: Frame) -> list[str]:
    """Return the names of the columns of categories or text."""
    return [
        name for name, dtype in frame.schema.items() if _is_categories(dtype) or dtype == nw.String
    ]


def distinct_values(frame: Frame, name: str) -> list[Any]:
    """Return the different values of a column, those that are missing left out."""
    return [value for value in frame.get_column(name).unique().to_list() if not is_missing(value)]


def listed_categories(frame: Frame, name: str) -> list[Any] | None:
    """Return the categories of a column, which rows may have or not; None where its kind lists none."""
    dtype = frame.schema[name]
    if frame.implementation.is_pandas():
        categories = getattr(frame.to_native()[name].dtype, "categories", None)
        if categories is None:
            return None
        return list(categories)
    if isinstance(dtype, nw.Enum):
        return list(dtype.categories)
    return None


def _pandas_dtypes(frame: Frame, like: Frame) -> dict[Any, Any]:
    """Return by column the pandas dtypes whose categories are those of ``like``, then the others that rows have."""
    import pandas as pd

    X = frame.to_native()
    fitted = like.to_native()
    dtype_by_column = {}
    for name in X.columns:
        dtype = X[name].dtype
        if name in fitted.columns:
            known = fitted[name].dtype
        else:
            known = None
        if not (isinstance(dtype, pd.CategoricalDtype) and isinstance(known, pd.CategoricalDtype)):
            continue
        is_alike = (
            list(dtype.categories) == list(known.categories) and dtype.ordered == known.ordered
        )
        if is_alike and dtype.categories.dtype == known.categories.dtype:
            continue
        further = _further(X[name].cat.remove_unused_categories().cat.categories, known.categories)
        if further:
            known = pd.CategoricalDtype(known.categories.append(pd.Index(further)), known.ordered)
        dtype_by_column[name] = known
    return dtype_by_column


def _with_dtypes(frame: Frame, dtype_by_column: dict[Any, Any]) -> Frame:
    """Return a frame of pandas with these dtypes; every row keeps its value, whatever its number is."""
    if not dtype_by_column:
        return frame
    table = frame.to_native().copy(deep=False)
    for (
        name,
        dtype,
    ) in (
        dtype_by_column.items()
    ):  # pandas takes dtypes of another order for equal, and astype leaves them
        table[name] = table[name].cat.set_categories(dtype.categories, ordered=dtype.ordered)
    return nw.from_native(table, eager_only=True)


def _with_enums(frame: Frame, like: Frame, listed: bool) -> Frame:
    """Return a frame of another library with the categories of ``like``, then its own; ``listed``: of columns that list them."""
    columns = []
    for name, dtype in frame.schema.items():
        known_dtype = like.schema.get(name)
        if known_dtype is None or not (_is_categories(dtype) and _is_categories(known_dtype)):
            continue
        if listed and not isinstance(dtype, nw.Enum) and not isinstance(known_dtype, nw.Enum):
            continue
        known = listed_categories(like, name)
        if known is None:
            known = sorted(distinct_values(like, name))
        categories = [*known, *_further(distinct_values(frame, name), known)]
        columns.append(nw.col(name).cast(nw.String).cast(nw.Enum(categories)))
    if columns:
        return frame.with_columns(*columns)
    return frame


def _is_categories(dtype: Any) -> bool:
    return isinstance(dtype, _CATEGORIES) or dtype in _CATEGORIES


def _further(values: Iterable[Any], known: Iterable[Any]) -> list[Any]:
    """Return the values that are not known, in their order."""
    seen = set(known)
    return [value for value in values if value not in seen]

"""Categories of frames: one numbering for tables read apart, and values no training row has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import narwhals.stable.v2 as nw

from axil.aliases import ForeignObject
from axil.inputs.codes import is_missing
from axil.inputs.libraries import Frame

LabelT = TypeVar("LabelT")

_CATEGORIES = (nw.Categorical, nw.Enum)


def align_categories(frame: Frame, reference: Frame, not_only_pandas: bool = False) -> Frame:
    """Return the frame with the categories of each column in the order of the reference.

    Categories that only the frame has come last. A library that takes the numbers of a frame's
    categories for those of the fit then finds the right ones. Categories that no row has are left
    out, unless the reference has them. Frames of other libraries than pandas are aligned only with
    ``not_only_pandas``.
    """
    if frame.implementation.is_pandas() and reference.implementation.is_pandas():
        return _with_dtypes(frame, _pandas_dtypes(frame, reference))
    if not_only_pandas:
        return _with_enums(frame, reference, only_listed=False)
    return frame


def share_categories(frame: Frame, second: Frame) -> tuple[Frame, Frame]:
    """Return two frames with the same columns and the same categories.

    The categories are those of the first frame, then those that only the second has.
    """
    if frame.implementation.is_pandas() and second.implementation.is_pandas():
        dtypes = _pandas_dtypes(second, frame)
        return _with_dtypes(frame, dtypes), _with_dtypes(second, dtypes)
    second = _with_enums(second, frame, only_listed=True)
    return _with_enums(frame, second, only_listed=True), second


def category_columns(frame: Frame) -> list[str]:
    """Return the names of the columns of categories or text."""
    return [
        name for name, dtype in frame.schema.items() if _is_categories(dtype) or dtype == nw.String
    ]


def distinct_values(frame: Frame, name: str) -> list[Any]:
    """Return the distinct values of a column, without missing ones."""
    return [value for value in frame.get_column(name).unique().to_list() if not is_missing(value)]


def listed_categories(frame: Frame, name: str) -> list[Any] | None:
    """Return the categories that the type of a column lists, whether rows have them or not.

    Returns None for a type that lists none.
    """
    dtype = frame.schema[name]
    if frame.implementation.is_pandas():
        categories = getattr(frame.to_native()[name].dtype, "categories", None)
        if categories is None:
            return None
        return list(categories)
    if isinstance(dtype, nw.Enum):
        return list(dtype.categories)
    return None


def _pandas_dtypes(frame: Frame, reference: Frame) -> dict[Any, ForeignObject]:
    """Return the pandas dtypes of the columns whose categories have to change, by column.

    The categories are those of the reference, then the others that rows have.
    """
    X = frame.to_native()
    reference_table = reference.to_native()
    dtype_by_column = {}
    for name in X.columns:
        if name in reference_table.columns:
            dtype = _aligned_dtype(X[name], reference_table[name].dtype)
            if dtype is not None:
                dtype_by_column[name] = dtype
    return dtype_by_column


def _aligned_dtype(column: ForeignObject, reference_dtype: ForeignObject) -> ForeignObject | None:
    """Return the dtype of a pandas column with the categories of the reference first.

    Returns None if one of them has no categories, or the categories are the same already.
    """
    import pandas as pd

    dtype = column.dtype
    dtypes = (dtype, reference_dtype)
    if not all(isinstance(checked_dtype, pd.CategoricalDtype) for checked_dtype in dtypes):
        return None
    categories = reference_dtype.categories
    is_same_type = dtype.categories.dtype == categories.dtype
    is_same_order = dtype.ordered == reference_dtype.ordered
    if is_same_type and is_same_order and list(dtype.categories) == list(categories):
        return None
    new_categories = _values_not_in(
        categories, column.cat.remove_unused_categories().cat.categories
    )
    if new_categories:
        categories = categories.append(pd.Index(new_categories))
    return pd.CategoricalDtype(categories, reference_dtype.ordered)


def _with_dtypes(frame: Frame, dtype_by_column: dict[Any, ForeignObject]) -> Frame:
    """Return a pandas frame with these dtypes and the same values."""
    if not dtype_by_column:
        return frame
    table = frame.to_native().copy(deep=False)
    for name, dtype in dtype_by_column.items():
        # For pandas, dtypes with another order of categories are equal, and astype changes nothing.
        table[name] = table[name].cat.set_categories(dtype.categories, ordered=dtype.ordered)
    return nw.from_native(table, eager_only=True)


def _with_enums(frame: Frame, reference: Frame, only_listed: bool) -> Frame:
    """Return a frame of another library with the categories of the reference, then its own.

    With ``only_listed``, only columns whose type lists categories in one of the frames change.
    """
    columns = []
    for name, dtype in frame.schema.items():
        reference_dtype = reference.schema.get(name)
        if reference_dtype is None:
            continue
        if not (_is_categories(dtype) and _is_categories(reference_dtype)):
            continue
        is_listed = isinstance(dtype, nw.Enum) or isinstance(reference_dtype, nw.Enum)
        if only_listed and not is_listed:
            continue
        categories = listed_categories(reference, name)
        if categories is None:
            categories = sorted(distinct_values(reference, name))
        new_categories = _values_not_in(categories, distinct_values(frame, name))
        enum = nw.Enum([*categories, *new_categories])
        columns.append(nw.col(name).cast(nw.String).cast(enum))
    if columns:
        return frame.with_columns(*columns)
    return frame


def _is_categories(dtype: ForeignObject) -> bool:
    """Return whether a dtype of narwhals is one of categories."""
    return isinstance(dtype, _CATEGORIES) or dtype in _CATEGORIES


def _values_not_in(categories: Iterable[LabelT], values: Iterable[LabelT]) -> list[LabelT]:
    """Return the values that are no categories, in their order."""
    category_set = set(categories)
    return [value for value in values if value not in category_set]

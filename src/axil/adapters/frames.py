"""Tables of any library as columns of numbers, and sparse matrices as libraries take them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import AnyArray, RealArray
from axil.inputs.libraries import needed_pandas

_WORDS = (nw.Categorical, nw.Enum, nw.String)


def as_frame(X: FeatureTable) -> nw.DataFrame[Any] | None:
    """Return the table that X is; None for arrays and sparse matrices."""
    if sparse.issparse(X):
        return None
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame
    return None


def compressed(X: FeatureTable) -> FeatureTable:
    """Return a sparse matrix or array as a csc or csr matrix.

    Every version of a library takes these.
    """
    if X.format == "csc":
        return sparse.csc_matrix(X)
    return sparse.csr_matrix(X)


def word_columns(frame: nw.DataFrame[Any]) -> list[str]:
    """Return the names of the columns of categories or text."""
    schema = frame.schema.items()
    return [name for name, dtype in schema if isinstance(dtype, _WORDS) or dtype in _WORDS]


def as_pandas(frame: nw.DataFrame[Any], objects: Collection[str], source: str) -> ForeignObject:
    """Return a pandas frame; ``what`` names the caller that needs it.

    The columns named in ``objects`` stay as they are; others become numbers in float64, nulls nan.
    """
    columns = {}
    for name in frame.columns:
        if name in objects:
            columns[name] = np.array(frame[name].to_list(), dtype=object)
        else:
            columns[name] = frame[name].cast(nw.Float64).to_numpy()
    return needed_pandas(source).DataFrame(columns)


def floats(
    frame: nw.DataFrame[Any],
    dtype: DTypeLike = np.float64,
    categories: Mapping[str, Sequence[ForeignObject]] | None = None,
) -> AnyArray:
    """Return the table in floats, nulls as nan: (n, columns).

    A column named in ``categories`` has the number of each value among its categories.
    """
    table = np.empty(frame.shape, dtype=dtype, order="F")
    for i, name in enumerate(frame.columns):
        if categories is not None and name in categories:
            codes = {category: code for code, category in enumerate(categories[name])}
            table[:, i] = [codes.get(value, np.nan) for value in frame[name].to_list()]
        else:
            table[:, i] = frame[name].cast(nw.Float64).to_numpy()
    return table


def array_of_floats(X: FeatureTable) -> RealArray | None:
    """Return an array of numbers as libraries that keep float32 read it; None for all else.

    Floats stay as they are, other numbers become float32.
    """
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        return None
    if X.dtype in (np.float32, np.float64):
        return X
    return X.astype(np.float32)


def single_table(X: FeatureTable) -> RealArray | None:
    """Return the numbers of X for a library that casts them to float32.

    It is None if X has other things than numbers.

    Numbers that are not floats are cast already.
    """
    frame = as_frame(X)
    if frame is None:
        return array_of_floats(X)
    if not frame.implementation.is_pandas():
        if all(dtype.is_numeric() for dtype in frame.schema.values()):
            return floats(frame)
        return None
    if any(not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" for dtype in X.dtypes):
        return None
    return np.asarray(X.to_numpy(dtype=np.float32))

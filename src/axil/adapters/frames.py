"""Tables of any library as columns of numbers, and sparse matrices as libraries take them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from axil.inputs.libraries import needed_pandas

_WORDS = (nw.Categorical, nw.Enum, nw.String)


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """The table that X is; None for arrays and sparse matrices."""
    frame = None if sparse.issparse(X) else nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def compressed(X: Any) -> Any:
    """A sparse matrix or array as a csc or csr matrix, which every version of a library takes."""
    return sparse.csc_matrix(X) if X.format == "csc" else sparse.csr_matrix(X)


def word_columns(frame: nw.DataFrame[Any]) -> list[str]:
    """The names of the columns of categories or text."""
    return [
        name for name, dtype in frame.schema.items() if isinstance(dtype, _WORDS) or dtype in _WORDS
    ]


def as_pandas(frame: nw.DataFrame[Any], objects: Collection[str], what: str) -> Any:
    """A pandas frame, which ``what`` needs: numbers in float64, nulls as nan; the columns named in ``objects`` as they are."""
    columns = {
        name: np.array(frame[name].to_list(), dtype=object)
        if name in objects
        else frame[name].cast(nw.Float64).to_numpy()
        for name in frame.columns
    }
    return needed_pandas(what).DataFrame(columns)


def floats(
    frame: nw.DataFrame[Any],
    dtype: DTypeLike = np.float64,
    categories: Mapping[str, Sequence[Any]] | None = None,
) -> NDArray[Any]:
    """(n, columns): the table in floats, nulls as nan; of a column named in ``categories`` the number of each category there."""
    found = np.empty(frame.shape, dtype=dtype, order="F")
    for i, name in enumerate(frame.columns):
        if categories is not None and name in categories:
            codes = {category: code for code, category in enumerate(categories[name])}
            found[:, i] = [codes.get(value, np.nan) for value in frame[name].to_list()]
        else:
            found[:, i] = frame[name].cast(nw.Float64).to_numpy()
    return found


def array_of_floats(X: Any) -> NDArray[np.floating[Any]] | None:
    """An array of numbers as libraries that keep float32 read it: floats as they are, others in float32; None for all else."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "biuf":
        return None
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)


def single_table(X: Any) -> NDArray[np.floating[Any]] | None:
    """The numbers of X that a library casts to float32, cast already where they are not floats; None for all but numbers."""
    frame = as_frame(X)
    if frame is None:
        return array_of_floats(X)
    if not frame.implementation.is_pandas():
        return (
            None
            if any(not dtype.is_numeric() for dtype in frame.schema.values())
            else floats(frame)
        )
    if any(not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" for dtype in X.dtypes):
        return None
    return np.asarray(X.to_numpy(dtype=np.float32))

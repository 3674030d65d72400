"""Data that answers depend on: copies that no one else can change, handed out read-only."""

from __future__ import annotations

import mmap
from typing import Any, TypeVar

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.inputs.numbers import is_sparse
from axil.inputs.tables import as_frame

Kind = TypeVar("Kind", bound=np.generic)


def frozen(values: NDArray[Kind]) -> NDArray[Kind]:
    """The array itself, through a view that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def owned(values: NDArray[Kind]) -> NDArray[Kind]:
    """A copy that cannot be written to."""
    return frozen(np.array(values))


def owned_rows(X: Any) -> Any:
    """Rows of any kind that stay as they are whatever becomes of X: a copy where X can be changed, else X itself.

    Frames that copy on writing (polars, pyarrow, pandas from 3.0 on) share their memory until
    someone writes. An array that is read-only, as `np.load` with ``mmap_mode="r"`` gives it, is not
    copied at all.
    """
    if is_sparse(X):
        frame = None
    else:
        frame = as_frame(X)
    if frame is not None:
        pandas = frame.implementation.is_pandas()
        if pandas:
            kept = frame.to_native().copy(deep=not _copies_on_write())
        else:
            kept = frame.clone().to_native()
        if X is frame:
            return nw.from_native(kept, eager_only=True)
        return kept
    if is_sparse(X):
        return X.copy()
    if not isinstance(X, np.ndarray):
        return X
    if _is_constant(X):
        return X
    return frozen(X.copy(order="K"))


def _copies_on_write() -> bool:
    import pandas as pd

    return int(pd.__version__.split(".")[0]) >= 3 or pd.options.mode.copy_on_write is True


def _is_constant(X: NDArray[Any]) -> bool:
    """Whether neither the array nor any that it is a view of can be written to."""
    base: Any = X
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None or isinstance(base, (bytes, mmap.mmap))

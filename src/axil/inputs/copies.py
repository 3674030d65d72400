"""Copies of the data that answers depend on: read-only, and nobody else can change them."""

from __future__ import annotations

import mmap
from typing import TypeVar

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.aliases import FeatureTable
from axil.arrays import AnyArray
from axil.inputs.libraries import Frame
from axil.inputs.numbers import is_sparse
from axil.inputs.tables import as_frame

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(values: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a view of the array that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def owned(values: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return a copy that cannot be written to."""
    return frozen(np.array(values))


def owned_rows(X: FeatureTable) -> FeatureTable:
    """Return rows that do not change with X: a copy if X can be changed, otherwise X.

    Frames that copy on writing (polars, pyarrow, pandas from 3.0 on) share their memory until
    someone writes. An array that is read-only, as `np.load` with ``mmap_mode="r"`` gives it, is not
    copied at all.
    """
    if is_sparse(X):
        return X.copy()
    frame = as_frame(X)
    if frame is not None:
        copied_frame = _copied_frame(frame)
        if X is frame:
            return nw.from_native(copied_frame, eager_only=True)
        return copied_frame
    if not isinstance(X, np.ndarray) or _is_constant(X):
        return X
    return frozen(X.copy(order="K"))


def _copied_frame(frame: Frame) -> FeatureTable:
    """Return a copy of a frame, as its library has it."""
    if frame.implementation.is_pandas():
        return frame.to_native().copy(deep=not _copies_on_write())
    return frame.clone().to_native()


def _copies_on_write() -> bool:
    """Return whether pandas copies a frame when someone writes to it."""
    import pandas as pd

    return int(pd.__version__.split(".")[0]) >= 3 or pd.options.mode.copy_on_write is True


def _is_constant(X: AnyArray) -> bool:
    """Return whether nobody can write to the array, or to an array that it is a view of."""
    base: object = X
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return base is None or isinstance(base, (bytes, mmap.mmap))

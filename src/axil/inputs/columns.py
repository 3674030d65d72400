"""Columns of tables, by name or position, and labels of training rows that are one of them."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, meant, shown
from axil.inputs.labels import as_labels, position_of
from axil.inputs.numbers import is_sparse, is_whole
from axil.inputs.tables import as_frame, row_labels, take_rows


def column_names(given: tuple[Any, ...], known: list[str] | None, n: int) -> list[str]:
    """The names of the columns: those of the first frame among the tables given, else the model's, else x0, x1, ..."""
    for X in given:
        frame = as_frame(X)
        if frame is not None:
            return [str(name) for name in frame.columns]
    return [f"x{i}" for i in range(n)] if known is None else list(known)


def chosen_columns(columns: Any, names: list[str], what: str = "columns") -> list[int]:
    """The positions of columns given by name or position; all for None."""
    if columns is None:
        return list(range(len(names)))
    try:
        given = [columns] if isinstance(columns, str) or is_whole(columns) else list(columns)
    except Exception:  # nothing that can be gone through
        raise InputError(f"{what} is {shown(columns)}; expected a list of names or positions.") from None
    found = []
    for column in given:
        place = position_of(column, names)
        if is_whole(column) and 0 <= column < len(names):
            place = int(column)
        if place is None:
            raise InputError(
                f"{what} names {shown(column)}; expected names such as {shown(names[0])}, or positions below {len(names)}."
                f"{meant(column, names)}"
            )
        found.append(place)
    return found


def feature_columns(X: Any, rows: NDArray[np.intp], chosen: list[int]) -> list[NDArray[Any]]:
    """Some columns, by position, of some rows of X, as arrays."""
    frame = as_frame(X)
    if frame is not None:
        part = frame[rows, chosen]
        return [_values(part[:, i]) for i in range(len(chosen))]
    if is_sparse(X):
        return list(take_rows(X, rows)[:, chosen].toarray().T)
    return [np.asarray(X[:, i][rows]) for i in chosen]


def _values(series: nw.Series[Any]) -> NDArray[Any]:
    """A column as an array; categories through a list, for pyarrow loses the missing ones on the way to an array.

    NumPy has no integers of 128 bits: those that need so many stay Python's own.
    """
    kinds = (nw.Categorical, nw.Enum)
    if series.dtype in (nw.Int128, nw.UInt128):
        return np.array(series.to_list())
    if isinstance(series.dtype, kinds) or series.dtype in kinds:
        return np.array(series.to_list(), dtype=object)
    return np.asarray(series.to_numpy())


def row_values(given: Any, features: Any, known: list[str] | None, what: str) -> Any:
    """One value per training row: those given, or the column of the training rows that a text names.

    ``features`` are the training rows, None where they are not at hand; ``known`` the names that the model has for its columns.
    """
    if not isinstance(given, str):
        return given
    if features is None:
        raise InputError(
            f"{what} is {shown(given)}, a column of training rows that are not at hand. Pass a value for each training row; or, "
            "for an explainer that was loaded, load it with them: axil.load(path, model, X_train=X_train)."
        )
    names = column_names((features,), known, features.shape[1])
    if given not in names:
        raise InputError(
            f"{what} is {shown(given)}, which is no column of X_train; expected one of {shown(names[:5], 200)}, or a value for "
            f"each training row.{meant(given, names)}"
        )
    return feature_columns(features, np.arange(features.shape[0]), [names.index(given)])[0]


def row_index(given: Any, features: Any, known: list[str] | None, n: int) -> NDArray[Any]:
    """(N,): labels of the training rows: those given, or in a column of theirs; else their own. A copy."""
    if given is None:
        return np.arange(n) if features is None else row_labels(features)
    return np.array(as_labels(row_values(given, features, known, "index"), n, "index"))

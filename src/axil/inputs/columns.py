"""Columns of tables, by name or position, and labels of training rows that are one of them."""

from __future__ import annotations

from hashlib import blake2b
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown, suggestion
from axil.inputs.codes import is_missing, numbered
from axil.inputs.labels import as_labels, position_of, refuse_other_order
from axil.inputs.numbers import is_sparse, is_whole
from axil.inputs.tables import as_frame, row_labels, take_rows

Keys = NDArray[np.uint64]

KEYED = 1 << 20  # cells of an array that are turned into keys at a time
SINGLE_BITS = np.uint64(29)  # of a number of double precision that single precision does not have


def column_names(given: tuple[Any, ...], known: list[str] | None, n: int) -> list[str]:
    """The names of the columns: those of the first frame among the tables given, else the model's, else x0, x1, ..."""
    for X in given:
        frame = as_frame(X)
        if frame is not None:
            return [str(name) for name in frame.columns]
    if known is None:
        return [f"x{i}" for i in range(n)]
    return list(known)


def chosen_columns(columns: Any, names: list[str], what: str = "columns") -> list[int]:
    """The positions of columns given by name or position; all for None."""
    if columns is None:
        return list(range(len(names)))
    try:
        if isinstance(columns, str) or is_whole(columns):
            given = [columns]
        else:
            given = list(columns)
    except Exception:  # nothing that can be gone through
        raise InputError(
            f"{what} is {shown(columns)}; expected a list of names or positions."
        ) from None
    found = []
    for column in given:
        place = position_of(column, names)
        if is_whole(column) and 0 <= column < len(names):
            place = int(column)
        if place is None:
            raise InputError(
                f"{what} names {shown(column)}; expected names such as {shown(names[0])}, or positions below {len(names)}."
                f"{suggestion(column, names)}"
            )
        found.append(place)
    return found


def feature_columns(X: Any, rows: IntArray, chosen: list[int]) -> list[NDArray[Any]]:
    """Some columns, by position, of some rows of X, as arrays."""
    frame = as_frame(X)
    if frame is not None:
        wanted = list(dict.fromkeys(chosen))
        part = frame[rows, wanted]
        values = {i: _values(part.get_column(name)) for i, name in zip(wanted, part.columns)}
        return [values[i] for i in chosen]
    if is_sparse(X):
        return list(take_rows(X, rows)[:, chosen].toarray().T)
    return [np.asarray(X[:, i][rows]) for i in chosen]


def _values(series: nw.Series[Any]) -> NDArray[Any]:
    """A column as an array; categories through a list, for pyarrow loses the missing ones on the way to an array.

    NumPy has no integers of 128 bits: numbers that need more than 64 stay Python's own.
    """
    kinds = (nw.Categorical, nw.Enum)
    if series.dtype in (nw.Int128, nw.UInt128):
        return np.array(series.to_list())
    if isinstance(series.dtype, kinds) or series.dtype in kinds:
        return np.array(series.to_list(), dtype=object)
    return np.asarray(series.to_numpy())


def row_values(
    given: Any, features: Any, known: list[str] | None, what: str, rows: str = "training"
) -> Any:
    """One value per row of training, or of another kind: those given, or the column of the rows that a text names.

    ``features`` are the rows, None where they are not at hand; ``known`` the names that the model has for its columns.
    """
    if not isinstance(given, str):
        refuse_other_order(
            features, given, what, {"training": "X_train", "calibration": "X_cal"}.get(rows, "X")
        )
        return given
    if features is None:
        raise InputError(
            f"{what} is {shown(given)}, a column of {rows} rows that are not at hand. Pass a value for each {rows} row; or, "
            "for an explainer that was loaded, load it with them: axil.load(path, model, X_train=X_train)."
        )
    names = column_names((features,), known, features.shape[1])
    if given not in names:
        if rows == "training":
            table = "X_train"
        else:
            table = f"the {rows} rows"
        raise InputError(
            f"{what} is {shown(given)}, which is no column of {table}; expected one of "
            f"{shown(names[:5], 200)}, or a value for each {rows} row.{suggestion(given, names)}"
        )
    return feature_columns(features, np.arange(features.shape[0]), [names.index(given)])[0]


def row_index(given: Any, features: Any, known: list[str] | None, n: int) -> NDArray[Any]:
    """(N,): labels of the training rows: those given, or in a column of theirs; else their own. A copy."""
    if given is None:
        if features is None:
            return np.arange(n)
        return row_labels(features)
    return np.array(as_labels(row_values(given, features, known, "index"), n, "index"))


def is_single(X: Any) -> bool:
    """Whether some column of X holds numbers of single precision."""
    frame = as_frame(X)
    if frame is None:
        return bool(X.dtype == np.float32)
    return any(dtype == nw.Float32 for dtype in frame.schema.values())


def row_keys(X: Any, targets: FloatArray, single: bool) -> Keys:
    """(n,): a key for each row of X with its targets (n, K), equal where features and targets are; the same on any machine.

    The key is a sum of one random number per column and value, in which zeros count nothing: so
    sparse rows have the keys of dense ones. ``single``: features count as equal to the precision of
    float32, as where one of two tables has it. Targets always do, because logarithms that a model
    takes of them depend on their places in memory by a last bit.
    """
    found = np.zeros(len(targets), dtype=np.uint64)
    p = X.shape[1]
    frame = as_frame(X)
    if is_sparse(X):
        rows = X.tocsr()
        if not rows.has_canonical_format:
            rows = rows.copy()
        rows.sum_duplicates()
        sums = np.append(np.uint64(0), np.cumsum(_mixed(_numbers(rows.data), rows.indices, single)))
        found += sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    elif frame is not None:
        for i in range(p):
            found += _mixed(_numbers(_values(frame[:, i])), i, single)
    else:
        step = max(1, KEYED // max(p, 1))
        for first in range(0, len(X), step):
            part = X[first : first + step]
            if part.dtype.kind in "biuf":
                found[first : first + step] += _mixed(_numbers(part), np.arange(p), single).sum(
                    axis=1, dtype=np.uint64
                )
            else:
                for i in range(p):
                    found[first : first + step] += _mixed(_numbers(part[:, i]), i, single)
    for k, column in enumerate(np.asarray(targets, dtype=np.float64).T):
        found += _mixed(column, p + k, True)
    return found


def _numbers(values: NDArray[Any]) -> FloatArray:
    """A column as float64: text by a number that stands for it, nan where a value is missing."""
    if values.dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if values.dtype.kind in "mM":
        return np.where(np.isnat(values), np.nan, values.astype(np.int64).astype(np.float64))
    codes, labels = numbered(values)
    return np.array([_number(label) for label in labels.tolist()], dtype=np.float64)[codes]


def _number(label: Any) -> float:
    if is_missing(label):
        return float("nan")
    if isinstance(label, Real):
        return float(label)
    if isinstance(label, str):
        text = label
    else:
        text = repr(label)
    whole = int.from_bytes(
        blake2b(text.encode("utf-8", "backslashreplace"), digest_size=6).digest(), "big"
    )
    return float(whole) + 0.5  # below 2^53, and no whole number that a code might be


def _mixed(values: FloatArray, columns: Any, single: bool) -> Keys:
    """A random number for each value in its column, zero for zero; the function of Steele, Lea and Flood, 2014 (SplitMix64)."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(
        np.uint64
    )  # one nan, and no zero below zero
    if single:
        bits = (bits + (np.uint64(1) << (SINGLE_BITS - np.uint64(1)))) >> SINGLE_BITS
    with np.errstate(over="ignore"):
        z = bits + np.asarray(columns).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z = z ^ (z >> np.uint64(31))
    return np.where(values == 0, np.uint64(0), z)


def occurrences(keys: Keys, asked: Keys) -> IntArray:
    """How often each key asked for is among the keys."""
    known, which = np.unique(asked, return_inverse=True)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.bincount(at[known[at] == keys], minlength=len(known))[which.ravel()]

"""Columns of tables, by name or position, and labels of training rows that are one of them."""

from __future__ import annotations

from hashlib import blake2b
from numbers import Real

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.aliases import FeatureTable
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, shown, suggestion
from axil.inputs.codes import is_missing, numbered
from axil.inputs.labels import as_labels, position_of, refuse_other_order
from axil.inputs.libraries import FrameColumn
from axil.inputs.numbers import is_sparse, is_whole
from axil.inputs.tables import as_frame, row_labels, take_rows

Keys = NDArray[np.uint64]

KEYED = 1 << 20  # cells of an array that are turned into keys at a time
SINGLE_BITS = np.uint64(29)  # of a number of double precision that single precision does not have
#: The argument that has the rows of this kind, for messages.
TABLE_OF_ROWS = {"training": "X_train", "calibration": "X_cal"}


def column_names(
    tables: tuple[FeatureTable, ...], model_names: list[str] | None, n: int
) -> list[str]:
    """Return the names of the columns.

    They are those of the first frame among the tables, else those of the model, else x0, x1, ...
    """
    for X in tables:
        frame = as_frame(X)
        if frame is not None:
            return [str(name) for name in frame.columns]
    if model_names is None:
        return [f"x{i}" for i in range(n)]
    return list(model_names)


def chosen_columns(columns: object, names: list[str], argument: str = "columns") -> list[int]:
    """Return the positions of columns that the user names or numbers; all columns for None."""
    if columns is None:
        return list(range(len(names)))
    try:
        if isinstance(columns, str) or is_whole(columns):
            chosen = [columns]
        else:
            chosen = list(columns)  # type: ignore[call-overload]
    except Exception:  # nothing that can be gone through
        raise InputError(
            f"{argument} is {shown(columns)}; expected a list of names or positions."
        ) from None
    return [_column_position(column, names, argument) for column in chosen]


def without_hidden(
    chosen: list[int], hidden: set[int], names: list[str], are_named: bool
) -> list[int]:
    """Return the chosen columns that are not hidden; refuse to hide one that the user names.

    Parameters
    ----------
    chosen : list of int
        Columns by position.
    hidden : set of int
    names : list of str
        The names of all columns.
    are_named : bool
        Whether the user chose the columns, which are otherwise the default ones.
    """
    both = [names[column] for column in chosen if column in hidden]
    if both and are_named:
        raise InputError(
            f"hide names {shown(both[0])}, which columns names too. Leave it out of one of them."
        )
    return [column for column in chosen if column not in hidden]


def _column_position(column: object, names: list[str], argument: str) -> int:
    """Return the position of a column."""
    if is_whole(column) and 0 <= column < len(names):
        return int(column)
    place = position_of(column, names)
    if place is None:
        raise InputError(
            f"{argument} names {shown(column)}; expected names such as {shown(names[0])}, or "
            f"positions below {len(names)}.{suggestion(column, names)}"
        )
    return place


def feature_columns(X: FeatureTable, rows: IntArray, columns: list[int]) -> list[AnyArray]:
    """Return some columns, by position, of some rows of X, as arrays."""
    frame = as_frame(X)
    if frame is not None:
        distinct_columns = list(dict.fromkeys(columns))
        selected = frame[rows, distinct_columns]
        values_by_column = {
            column: column_values(selected.get_column(name))
            for column, name in zip(distinct_columns, selected.columns)
        }
        return [values_by_column[column] for column in columns]
    if is_sparse(X):
        return list(take_rows(X, rows)[:, columns].toarray().T)
    return [np.asarray(X[:, column][rows]) for column in columns]


def column_values(column: FrameColumn) -> AnyArray:
    """Return the column of a frame as an array.

    NumPy has no integers of 128 bits: numbers that need more than 64 stay Python's own.
    """
    category_types = (nw.Categorical, nw.Enum)
    if column.dtype in (nw.Int128, nw.UInt128):
        return np.array(column.to_list())
    if isinstance(column.dtype, category_types) or column.dtype in category_types:
        # Through a list: on the way to an array pyarrow loses the missing categories.
        return np.array(column.to_list(), dtype=object)
    return np.asarray(column.to_numpy())


def row_values(
    values: object,
    features: FeatureTable | None,
    model_names: list[str] | None,
    name: str,
    rows: str = "training",
) -> object:
    """Return one value per row: those that the user passes, or a column that the user names.

    Parameters
    ----------
    values : array, sequence or str
    features : table or None
        The rows; None if they are not at hand.
    model_names : list of str or None
        The names that the model has for its columns.
    name : str
        The argument, for messages.
    rows : str
        The kind of the rows, for messages.
    """
    if not isinstance(values, str):
        refuse_other_order(features, values, name, TABLE_OF_ROWS.get(rows, "X"))
        return values
    if features is None:
        raise InputError(
            f"{name} is {shown(values)}, a column of {rows} rows that are not at hand. Pass a "
            f"value for each {rows} row; or, for an explainer that was loaded, load it with them: "
            "axil.load(path, model, X_train=X_train)."
        )
    names = column_names((features,), model_names, features.shape[1])
    if values not in names:
        table = f"the {rows} rows"
        if rows == "training":
            table = "X_train"
        raise InputError(
            f"{name} is {shown(values)}, which is no column of {table}; expected one of "
            f"{shown(names[:5], 200)}, or a value for each {rows} row.{suggestion(values, names)}"
        )
    return feature_columns(features, np.arange(features.shape[0]), [names.index(values)])[0]


def row_index(
    labels: object, features: FeatureTable | None, model_names: list[str] | None, n: int
) -> AnyArray:
    """Return the labels of the training rows, (N,), as a copy.

    They are those that the user passes, or a column that the user names; else those of the table.
    """
    if labels is not None:
        values = row_values(labels, features, model_names, "index")
        return np.array(as_labels(values, n, "index"))
    if features is None:
        return np.arange(n)
    return row_labels(features)


def is_single(X: FeatureTable) -> bool:
    """Return whether some column of X has numbers of single precision."""
    frame = as_frame(X)
    if frame is None:
        return bool(X.dtype == np.float32)
    return any(dtype == nw.Float32 for dtype in frame.schema.values())


def row_keys(X: FeatureTable, targets: FloatArray, single: bool) -> Keys:
    """Return a key for each row, (n,), which rows with equal features and targets share.

    The key is a sum of one random number per column and value, in which zeros count nothing: so
    sparse rows have the keys of dense ones. It is the same on any machine.

    Parameters
    ----------
    X : table
    targets : array of shape (n, K)
        They count as equal to the precision of float32, because logarithms that a model takes of
        them depend on their places in memory by a last bit.
    single : bool
        Whether features also count as equal to that precision, as one of two tables may have it.
    """
    n_columns = X.shape[1]
    frame = as_frame(X)
    if is_sparse(X):
        row_sums = _keys_of_sparse(X, single)
    elif frame is not None:
        row_sums = np.zeros(len(targets), dtype=np.uint64)
        for i in range(n_columns):
            row_sums += _mixed(_numbers(column_values(frame[:, i])), i, single)
    else:
        row_sums = _keys_of_array(X, single)
    for k, column in enumerate(np.asarray(targets, dtype=np.float64).T):
        row_sums += _mixed(column, n_columns + k, True)
    return row_sums


def _keys_of_sparse(X: FeatureTable, single: bool) -> Keys:
    """Return the keys of the rows of a sparse matrix, (n,)."""
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
    rows.sum_duplicates()
    cell_keys = _mixed(_numbers(rows.data), rows.indices, single)
    cumulated = np.append(np.uint64(0), np.cumsum(cell_keys))
    return np.asarray(cumulated[rows.indptr[1:]] - cumulated[rows.indptr[:-1]])


def _keys_of_array(X: AnyArray, single: bool) -> Keys:
    """Return the keys of the rows of an array, (n,)."""
    n_columns = X.shape[1]
    row_sums = np.zeros(len(X), dtype=np.uint64)
    step = max(1, KEYED // max(n_columns, 1))
    for start in range(0, len(X), step):
        block = X[start : start + step]
        block_sums = row_sums[start : start + step]
        if block.dtype.kind in "biuf":
            cell_keys = _mixed(_numbers(block), np.arange(n_columns), single)
            block_sums += cell_keys.sum(axis=1, dtype=np.uint64)
        else:
            for i in range(n_columns):
                block_sums += _mixed(_numbers(block[:, i]), i, single)
    return row_sums


def _numbers(values: AnyArray) -> FloatArray:
    """Return a column as float64, with a number for each text, and nan for missing values."""
    if values.dtype.kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if values.dtype.kind in "mM":
        return np.where(np.isnat(values), np.nan, values.astype(np.int64).astype(np.float64))
    codes, labels = numbered(values)
    return np.array([_number(label) for label in labels.tolist()], dtype=np.float64)[codes]


def _number(label: object) -> float:
    """Return a number in place of a label."""
    if is_missing(label):
        return float("nan")
    if isinstance(label, Real):
        return float(label)
    if isinstance(label, str):
        text = label
    else:
        text = repr(label)
    digest = blake2b(text.encode("utf-8", "backslashreplace"), digest_size=6).digest()
    # Below 2^53, and no whole number that a code might be
    return float(int.from_bytes(digest, "big")) + 0.5


def _mixed(values: FloatArray, columns: int | IntArray, single: bool) -> Keys:
    """Return a random number for each value in its column, and zero for zero.

    The function is that of Steele, Lea and Flood, 2014 (SplitMix64).
    """
    # One nan, and no zero below zero
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)
    if single:
        bits = (bits + (np.uint64(1) << (SINGLE_BITS - np.uint64(1)))) >> SINGLE_BITS
    with np.errstate(over="ignore"):
        z = bits + np.asarray(columns).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z = z ^ (z >> np.uint64(31))
    return np.where(values == 0, np.uint64(0), z)


def occurrences(keys: Keys, wanted_keys: Keys) -> IntArray:
    """Return how often each wanted key is among the keys."""
    distinct, codes = np.unique(wanted_keys, return_inverse=True)
    places = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    counts = np.bincount(places[distinct[places] == keys], minlength=len(distinct))
    return counts[codes.ravel()]

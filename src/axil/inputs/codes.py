"""Labels told apart, whatever type holds them: group numbers, and rows found by their labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from axil.arrays import AnyArray, BoolArray, IntArray
from axil.inputs.libraries import loaded_pandas

BLOCK = 1 << 16  # labels that are turned into objects of Python at a time
#: Types of which one value stands for a missing one: nan and NaT. It differs from itself.
UNEQUAL_TO_ITSELF = (
    float,
    np.floating,
    complex,
    np.complexfloating,
    Decimal,
    datetime,
    np.datetime64,
    np.timedelta64,
)


def is_missing(value: object) -> bool:
    """Return whether a label is None, nan, pandas.NA or NaT (pandas.NaT is a datetime)."""
    if value is None or value is getattr(loaded_pandas(), "NA", None):
        return True
    return isinstance(value, UNEQUAL_TO_ITSELF) and bool(value != value)


def missing(values: AnyArray) -> BoolArray:
    """Return `is_missing` for each value of an array of one dimension."""
    if values.dtype.kind == "O":
        return np.array([is_missing(value) for value in values.tolist()], dtype=np.bool_)
    if values.dtype.kind in "fcmM":
        return np.asarray(values != values)
    return np.zeros(len(values), dtype=np.bool_)


def keys(values: AnyArray) -> list[Hashable]:
    """Return a key for each label, which equal labels share in arrays of any type.

    So 1, 1.0 and True have the same key, and a date in any unit. All missing labels have the key
    None.
    """
    if values.dtype.kind == "O":
        return [_key(value) for value in values.tolist()]
    if values.dtype.kind in "mM":
        label_keys = _instants(values)
    else:
        label_keys = values.tolist()
    for i in np.flatnonzero(missing(values)):
        label_keys[i] = None
    return label_keys


def _key(value: Any) -> Hashable:
    """Return the key of one label."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, tuple):
        return tuple(_key(level) for level in value)
    instant = as_datetime64(value)
    if instant is not None:
        return _instants(np.array([instant]))[0]
    return value  # type: ignore[no-any-return]


def as_datetime64(value: Any) -> np.datetime64 | np.timedelta64 | None:
    """Return a date or a span of time in the types of NumPy.

    Returns None for everything else, and for a date with a time zone.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return value
    # Timestamps and spans of pandas have nanoseconds, which those of Python lose.
    if isinstance(value, datetime) and value.tzinfo is None:
        if hasattr(value, "to_datetime64"):
            return value.to_datetime64()  # type: ignore[no-any-return]
        return np.datetime64(value)
    if isinstance(value, timedelta):
        if hasattr(value, "to_timedelta64"):
            return value.to_timedelta64()  # type: ignore[no-any-return]
        return np.timedelta64(value)
    return None


def _instants(values: AnyArray) -> list[Hashable]:
    """Return keys of dates, or of spans of time, in any unit.

    A key has the type, the seconds and the rest of a second in femtoseconds: int64 holds both.
    """
    seconds = values.astype(f"{values.dtype.kind}8[s]")
    femtoseconds = (values - seconds).astype("m8[fs]")
    pairs = zip(seconds.astype(np.int64).tolist(), femtoseconds.astype(np.int64).tolist())
    return [(values.dtype.type, *pair) for pair in pairs]


def numbered(values: AnyArray) -> tuple[IntArray, AnyArray]:
    """Return the number of each label, and the distinct labels.

    All missing labels count as one, which comes last. Numbers are sorted before text. Other labels
    of mixed types stay in the order of their first rows.

    Returns
    -------
    codes : array of shape (N,)
    labels : array of shape (n_labels,)
    """
    if values.dtype.kind not in "OUS":
        labels, codes = np.unique(values, return_inverse=True)
        return codes.reshape(-1).astype(np.intp, copy=False), labels
    # First by the labels as they are, then by the keys of the distinct ones, which are fewer.
    number_by_label: dict[Any, int] = {}
    codes = np.fromiter(
        (number_by_label.setdefault(label, len(number_by_label)) for label in values.tolist()),
        np.intp,
        len(values),
    )
    number_by_key: dict[Hashable, int] = {}
    distinct: list[Any] = []
    merged = np.empty(len(number_by_label), dtype=np.intp)
    for i, label in enumerate(number_by_label):
        merged[i] = number_by_key.setdefault(_key(label), len(number_by_key))
        if len(number_by_key) > len(distinct):
            distinct.append(label)
    order = _order(distinct)
    rank = np.empty(len(distinct), dtype=np.intp)
    rank[order] = np.arange(len(distinct))
    labels = np.empty(len(distinct), dtype=object)
    for place, number in enumerate(order):
        if is_missing(distinct[number]):
            labels[place] = np.nan
        else:
            labels[place] = distinct[number]
    if values.dtype != object:
        labels = labels.astype(values.dtype)
    return rank[merged[codes]], labels


def _order(labels: list[Any]) -> list[int]:
    """Return the positions of distinct labels in sorted order, if they can be sorted."""
    positions = range(len(labels))
    last = [i for i in positions if is_missing(labels[i])]
    present = [i for i in positions if not is_missing(labels[i])]
    texts = [i for i in present if isinstance(labels[i], str)]
    numbers = [i for i in present if not isinstance(labels[i], str)]
    try:
        numbers.sort(key=labels.__getitem__)
        texts.sort(key=labels.__getitem__)
    except TypeError:
        return list(positions)
    return numbers + texts + last


def repeated(values: AnyArray) -> int | None:
    """Return the position of the first label that occurs before it; None if all differ."""
    earlier_keys: set[Hashable] = set()
    for i, key in enumerate(_keys_in_blocks(values)):
        if key in earlier_keys:
            return i
        earlier_keys.add(key)
    return None


def _keys_in_blocks(values: AnyArray) -> Iterator[Hashable]:
    """Yield the key of each label, without a list of all of them."""
    for start in range(0, len(values), BLOCK):
        yield from keys(values[start : start + BLOCK])


def matching_rows(labels: AnyArray, index: AnyArray) -> IntArray:
    """Return the rows of an index that have one of these distinct labels, in the order of the rows.

    Only the keys of the labels are stored, because an index may be long.

    Returns
    -------
    array of shape (2, n_matches)
        The number of the label, and the position of the row.
    """
    number_by_key = {key: i for i, key in enumerate(keys(labels))}
    rows = np.arange(len(index))
    if index.dtype.kind in "iuf" and None not in number_by_key:
        rows = _rows_with_numbers(index, number_by_key)
    matches = [
        (number_by_key[key], row)
        for row, key in zip(rows, _keys_in_blocks(index[rows]))
        if key in number_by_key
    ]
    return np.array(matches, dtype=np.intp).reshape(-1, 2).T


def _rows_with_numbers(index: AnyArray, label_keys: dict[Hashable, int]) -> IntArray:
    """Return the rows of an index of numbers that may have one of these keys."""
    numbers = [key for key in label_keys if isinstance(key, (Real, Decimal))]
    if not numbers:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.isin(index, np.array(numbers)))

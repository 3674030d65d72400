"""Equal labels told from different ones, whatever holds them: numbers for groups, and rows by their labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, IntArray
from axil.inputs.libraries import loaded_pandas

BLOCK = 1 << 16  # labels that are turned into objects of Python at a time
# Kinds of which one value stands for none: nan and NaT.
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


def is_missing(value: Any) -> bool:
    """Whether a label is None, nan, pandas.NA or a date that is not one (pandas.NaT is a datetime)."""
    if value is None or value is getattr(loaded_pandas(), "NA", None):
        return True
    return isinstance(value, UNEQUAL_TO_ITSELF) and bool(value != value)


def missing(values: NDArray[Any]) -> BoolArray:
    """`is_missing` for each value of an array of one dimension."""
    if values.dtype.kind == "O":
        return np.array([is_missing(value) for value in values.tolist()], dtype=np.bool_)
    if values.dtype.kind in "fcmM":
        return np.asarray(values != values)
    return np.zeros(len(values), dtype=np.bool_)


def keys(values: NDArray[Any]) -> list[Hashable]:
    """A key for each label, the same for equal labels in arrays of any kind: 1 == 1.0 == True, a date in any unit.

    All missing labels have the key None.
    """
    kind = values.dtype.kind
    if kind in "mM":
        found: list[Hashable] = _instants(values)
    elif kind == "O":
        return [_key(value) for value in values.tolist()]
    else:
        found = values.tolist()
    for i in np.flatnonzero(missing(values)):
        found[i] = None
    return found


def _key(value: Any) -> Hashable:
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, tuple):
        return tuple(_key(part) for part in value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _instants(np.array([value]))[0]
    if isinstance(value, datetime) and value.tzinfo is None:
        # of pandas, in ns
        if hasattr(value, "to_datetime64"):
            exact = value.to_datetime64()
        else:
            exact = np.datetime64(value)
        return _instants(np.array([exact]))[0]
    if isinstance(value, timedelta):
        if hasattr(value, "to_timedelta64"):
            exact = value.to_timedelta64()
        else:
            exact = np.timedelta64(value)
        return _instants(np.array([exact]))[0]
    return value  # type: ignore[no-any-return]


def _instants(values: NDArray[Any]) -> list[Hashable]:
    """Dates or spans of time in any unit as seconds and the rest of one in femtoseconds, which int64 holds."""
    kind = values.dtype.kind
    seconds = values.astype(f"{kind}8[s]")
    rest = (values - seconds).astype("m8[fs]")
    pairs = zip(seconds.astype(np.int64).tolist(), rest.astype(np.int64).tolist())
    return [(values.dtype.type, *pair) for pair in pairs]


def numbered(values: NDArray[Any]) -> tuple[IntArray, NDArray[Any]]:
    """Each label's number (N,) and the different labels, sorted where they have an order; one for all that are missing.

    These come last. Numbers are sorted before text; other labels of mixed kinds stay in the order
    they are met in.
    """
    if values.dtype.kind not in "OUS":
        groups, codes = np.unique(values, return_inverse=True)
        return codes.reshape(-1).astype(np.intp, copy=False), groups
    seen: dict[Any, int] = {}  # as they are; then by their keys, of the different ones alone
    codes = np.fromiter(
        (seen.setdefault(label, len(seen)) for label in values.tolist()), np.intp, len(values)
    )
    known: dict[Hashable, int] = {}
    labels: list[Any] = []
    merged = np.empty(len(seen), dtype=np.intp)
    for i, label in enumerate(seen):
        merged[i] = known.setdefault(_key(label), len(known))
        if len(known) > len(labels):
            labels.append(label)
    order = _order(labels)
    codes = merged[codes]
    groups = np.empty(len(labels), dtype=object)
    for place, own in enumerate(order):
        if is_missing(labels[own]):
            groups[place] = np.nan
        else:
            groups[place] = labels[own]
    rank = np.empty(len(labels), dtype=np.intp)
    rank[order] = np.arange(len(labels))
    return rank[codes], groups if values.dtype == object else groups.astype(values.dtype)


def _keys(values: NDArray[Any]) -> Iterator[Hashable]:
    for start in range(0, len(values), BLOCK):
        yield from keys(values[start : start + BLOCK])


def _order(labels: list[Any]) -> list[int]:
    """Positions of different labels in sorted order, as far as there is one."""
    places = range(len(labels))
    known = [i for i in places if not is_missing(labels[i])]
    last = [i for i in places if is_missing(labels[i])]
    texts = [i for i in known if isinstance(labels[i], str)]
    others = [i for i in known if not isinstance(labels[i], str)]
    try:
        return sorted(others, key=labels.__getitem__) + sorted(texts, key=labels.__getitem__) + last
    except TypeError:
        return list(places)


def repeated(values: NDArray[Any]) -> int | None:
    """The position of the first label that was there before; None where all differ."""
    seen: set[Hashable] = set()
    for i, key in enumerate(_keys(values)):
        if key in seen:
            return i
        seen.add(key)
    return None


def places(asked: NDArray[Any], index: NDArray[Any]) -> IntArray:
    """(2, found): which of these different labels rows of this index have, and where these rows stand, in their order.

    Only the labels asked for are kept: an index may be long.
    """
    known = {key: i for i, key in enumerate(keys(asked))}
    if index.dtype.kind in "iuf" and None not in known:
        numbers = [key for key in known if isinstance(key, (Real, Decimal))]
        if numbers:
            rows = np.flatnonzero(np.isin(index, np.array(numbers)))
        else:
            rows = np.empty(0, dtype=np.intp)
    else:
        rows = np.arange(len(index))
    found = [(known[key], row) for row, key in zip(rows, _keys(index[rows])) if key in known]
    return np.array(found, dtype=np.intp).reshape(-1, 2).T

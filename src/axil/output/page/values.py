"""Values as JSON has them, short: numbers of some seven digits, everything else as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.inputs.codes import missing

DIGITS = 7  # significant ones of a number that is shown but not proven with
FEWER_DIGITS = 4  # of features where there are very many
DAY = 86400 * 10**9  # nanoseconds
WHOLE = 2.0**53  # up to here a float that is a whole number is written in full


def number(value: float, digits: int = DIGITS) -> Any:
    """A float of ``digits`` significant digits, whole numbers in full; None for nan, text for infinity."""
    if value != value:
        return None
    if abs(value) < WHOLE and value == int(value):
        return int(value)
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) == np.inf:
        return "∞" if value > 0 else "−∞"
    return int(rounded) if abs(rounded) < WHOLE and rounded == int(rounded) else rounded


def numbers(values: NDArray[Any], digits: int = DIGITS) -> list[Any]:
    """`number` for each element of an array of one dimension."""
    return [number(value, digits) for value in np.asarray(values, dtype=np.float64).tolist()]


def nested(values: NDArray[Any]) -> list[Any]:
    """(n, outer, ...) numbers as [outer][n * ...], in short: what a script reads one output at a time."""
    return [numbers(own.ravel()) for own in np.moveaxis(values, 1, 0)]


def labels(values: NDArray[Any]) -> list[str]:
    """Names of rows or groups as text."""
    if values.dtype.kind in "mM":
        return _dates(values) if values.dtype.kind == "M" else _spans(values)
    return [str(value) for value in values.tolist()]


def cells(values: NDArray[Any], digits: int = DIGITS) -> list[Any]:
    """A column of features: numbers and truth values as such, None where missing, all else as text."""
    kind = values.dtype.kind
    if kind in "biu":
        return list(values.tolist())
    if kind == "f":
        return numbers(values, digits)
    if kind in "mM":
        return [None if gone else text for gone, text in zip(missing(values), labels(values))]
    return [
        None if gone else _plain(value, digits)
        for gone, value in zip(missing(values), values.tolist())
    ]


def _dates(values: NDArray[Any]) -> list[str]:
    """Days, or days and times to the second or the fraction of one that all need; "NaT" where missing."""
    known = values[~missing(values)]
    unit: Any = next(
        (unit for unit in ("D", "s", "ms", "us") if (known == known.astype(f"M8[{unit}]")).all()),
        "ns",
    )
    return [
        text.replace("T", " ") if text != "NaT" else text
        for text in np.datetime_as_string(values, unit).tolist()
    ]


def _spans(values: NDArray[Any]) -> list[str]:
    """Days, and the time of day where one of them needs it: "-1 days +23:30:00"."""
    gone = missing(values)
    days = np.where(gone, np.timedelta64(0, "D"), values).astype("m8[D]")
    rest = (np.where(gone, np.timedelta64(0, "s"), values) - days).astype("m8[ns]").astype(np.int64)
    days, rest = days.astype(np.int64) - (rest < 0), np.where(rest < 0, rest + DAY, rest)
    return [
        "NaT" if none else _span(day, ns, rest.any())
        for none, day, ns in zip(gone, days.tolist(), rest.tolist())
    ]


def _span(days: int, rest: int, timed: bool) -> str:
    if not timed:
        return f"{days} days"
    seconds, fraction = divmod(rest, 10**9)
    digits = (
        ""
        if not fraction
        else f".{fraction // 1000:06d}"
        if fraction % 1000 == 0
        else f".{fraction:09d}"
    )
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"
    return f"{days} days {'+' if days < 0 else ''}{time}"


def _plain(value: Any, digits: int) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    return number(float(value), digits) if isinstance(value, (float, np.floating)) else str(value)

"""Write values as short JSON: numbers of some seven digits, and everything else as text."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from axil.arrays import AnyArray
from axil.inputs.codes import missing

DIGITS = 7  # significant digits of a number that the page's verification does not add up
FEWER_DIGITS = 4  # of features where there are very many
NANOSECONDS_PER_DAY = 86400 * 10**9
EXACT_INTEGERS = 2.0**53  # up to here a float that is a whole number is written in full

JSONValue: TypeAlias = "bool | int | float | str | None"


def number(value: float, digits: int = DIGITS) -> int | float | str | None:
    """Return a float with this many significant digits; whole numbers keep all digits.

    Return None for nan, and text for infinity.
    """
    if value != value:
        return None
    if abs(value) < EXACT_INTEGERS and value == int(value):
        return int(value)
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) == np.inf:
        if value > 0:
            return "∞"
        return "−∞"
    if abs(rounded) < EXACT_INTEGERS and rounded == int(rounded):
        return int(rounded)
    return rounded


def numbers(values: AnyArray, digits: int = DIGITS) -> list[int | float | str | None]:
    """Return `number` of each element of an array of one dimension."""
    return [number(value, digits) for value in np.asarray(values, dtype=np.float64).tolist()]


def nested(values: AnyArray) -> list[list[int | float | str | None]]:
    """Return numbers (n, outer, ...) as [outer][n * ...].

    A script then reads one output at a time.
    """
    return [numbers(column.ravel()) for column in np.moveaxis(values, 1, 0)]


def labels(values: AnyArray) -> list[str]:
    """Return the labels of rows or groups as text."""
    if values.dtype.kind == "M":
        return _dates(values)
    if values.dtype.kind == "m":
        return _durations(values)
    return [str(value) for value in values.tolist()]


def cells(values: AnyArray, digits: int = DIGITS) -> list[JSONValue]:
    """Return a column of features as numbers, truth values, text, or None for missing values."""
    kind = values.dtype.kind
    if kind in "biu":
        return list(values.tolist())
    if kind == "f":
        return list(numbers(values, digits))
    if kind in "mM":
        texts: list[JSONValue] = list(labels(values))
    else:
        texts = [_cell(value, digits) for value in values.tolist()]
    return [None if is_gone else text for is_gone, text in zip(missing(values), texts)]


def _dates(values: AnyArray) -> list[str]:
    """Return dates as text, to the finest unit that one of them needs; "NaT" if missing."""
    dates = values[~missing(values)]
    finest: Any = "ns"
    for unit in ("D", "s", "ms", "us"):
        if (dates == dates.astype(f"M8[{unit}]")).all():
            finest = unit
            break
    texts = []
    for text in np.datetime_as_string(values, finest).tolist():
        texts.append(text if text == "NaT" else text.replace("T", " "))
    return texts


def _durations(values: AnyArray) -> list[str]:
    """Return durations as days, with the time of day if one needs it: "-1 days +23:30:00"."""
    is_missing = missing(values)
    durations = np.where(is_missing, np.timedelta64(0, "s"), values)
    truncated = np.where(is_missing, np.timedelta64(0, "D"), values).astype("m8[D]")
    times = (durations - truncated).astype("m8[ns]").astype(np.int64)
    is_negative = times < 0
    days = truncated.astype(np.int64) - is_negative
    times = np.where(is_negative, times + NANOSECONDS_PER_DAY, times)
    has_times = bool(times.any())
    texts = []
    for is_gone, n_days, nanoseconds in zip(is_missing, days.tolist(), times.tolist()):
        texts.append("NaT" if is_gone else _duration(n_days, nanoseconds, has_times))
    return texts


def _duration(days: int, nanoseconds: int, has_time: bool) -> str:
    """Return one duration as text."""
    if not has_time:
        return f"{days} days"
    seconds, fraction = divmod(nanoseconds, 10**9)
    decimals = ""
    if fraction:
        decimals = f".{fraction:09d}"
        if fraction % 1000 == 0:
            decimals = f".{fraction // 1000:06d}"
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{decimals}"
    if days < 0:
        sign = "+"
    else:
        sign = ""
    return f"{days} days {sign}{time}"


def _cell(value: Any, digits: int) -> JSONValue:
    """Return a value of mixed types as JSON has it."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return number(float(value), digits)
    return str(value)

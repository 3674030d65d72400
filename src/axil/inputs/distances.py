"""Distances along a column: how far apart two rows may lie, in numbers or in time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta, timezone
from numbers import Real
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from axil.arrays import AnyArray
from axil.errors import InputError, shown
from axil.inputs.codes import as_datetime64, missing
from axil.inputs.labels import is_truth

DType: TypeAlias = np.dtype[Any]

DOUBLE = np.finfo(np.float64).eps
DAY = np.timedelta64(1, "D")
UNITS: dict[str, np.timedelta64] = {
    "D": DAY,
    "W": 7 * DAY,
    "M": np.timedelta64(1, "M"),
    "Y": np.timedelta64(12, "M"),
}
FIRST = np.datetime64("0001-01-01")
LAST = np.datetime64("9999-12-31")
MOST_DAYS = int((LAST - FIRST) / DAY)
IN_TIME = 'a number of days, a timedelta, or text such as "90D", "18M" or "3Y"'


def as_points(values: AnyArray, name: str) -> AnyArray:
    """Return a column (n,) as float64 or datetime64, with nan or NaT for missing values.

    Raises for a column of anything but numbers or dates.
    """
    if values.dtype.kind == "M":
        return values.astype("M8[us]")
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    is_missing = missing(values)
    if values.dtype.kind == "O":
        present = values[~is_missing].tolist()
    else:
        present = list(values[~is_missing][:1])
    if _are_dates(present, name):
        points = np.full(len(values), np.datetime64("NaT"), dtype="M8[us]")
        points[~is_missing] = [_instant(value) for value in present]
        return points
    numbers = np.full(len(values), np.nan)
    numbers[~is_missing] = present
    return numbers


def _are_dates(values: list[Any], name: str) -> bool:
    """Return whether values are dates; raises unless all are dates or all are numbers."""
    dates = (date, np.datetime64)
    is_date = [isinstance(value, dates) for value in values]
    contents = ""
    if any(is_date) and not all(is_date):
        contents = "both numbers and dates"
    for value in values:
        if is_truth(value) or not isinstance(value, (*dates, Real)):
            contents = shown(value)
            break
    if contents:
        raise InputError(
            f"{name} holds {contents}; expected numbers or dates. pandas.to_datetime makes dates "
            "of text."
        )
    return any(is_date)


def _instant(value: Any) -> np.datetime64:
    """Return a date in microseconds, one with a time zone in UTC."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        value = as_datetime64(value)
    return np.datetime64(value).astype("M8[us]")  # type: ignore[no-any-return]


def interval_around(
    points: AnyArray, distance: object, name: str, dtypes: tuple[DType, ...] = ()
) -> tuple[AnyArray, AnyArray]:
    """Return the lowest and the highest values that lie within a distance of these points.

    Numbers at exactly this distance lie within it however they were rounded, such as 1.0 at 0.3
    from 0.7.

    Parameters
    ----------
    points : array of shape (n,)
    distance : object
        As the user passes it.
    name : str
        The column, for messages.
    dtypes : tuple of dtype
        The types that the points and the values had.

    Returns
    -------
    pair of arrays of shape (n,)
    """
    if points.dtype.kind == "f":
        return _number_interval(points, distance, name, dtypes)
    step = _step(distance)
    if step is None:
        raise InputError(
            f"within has the distance {shown(distance)}; expected {IN_TIME}, as {name} holds dates."
        )
    if step.dtype == "m8[us]":
        is_too_far = bool(abs(step) > np.timedelta64(MOST_DAYS, "D"))
    else:
        is_too_far = bool(abs(step.astype(int)) > MOST_DAYS / 28)
    if not is_too_far:
        low = _moved(points, -step)
        high = _moved(points, step)
        is_too_far = any(((end < FIRST) | (end > LAST + DAY)).any() for end in (low, high))
    if is_too_far:
        raise InputError(
            f"within has the distance {shown(distance)}, which leads from the dates of {name} past "
            "those of the calendar. Take a shorter one."
        )
    return low, high


def _number_interval(
    points: AnyArray, distance: object, name: str, dtypes: tuple[DType, ...]
) -> tuple[AnyArray, AnyArray]:
    """Return `interval_around` for numbers."""
    radius: float | AnyArray
    share = _as_share(distance)
    if share is not None:
        radius = share * np.abs(points)
    elif _is_size(distance):
        radius = float(distance)
    else:
        raise InputError(
            f"within has the distance {shown(distance)}; expected a number, as {name} holds "
            'numbers, of zero or more, or a percentage such as "25%".'
        )
    if not np.any(radius):
        return points, points
    reach = radius + _rounding(dtypes) * (np.abs(points) + radius)
    return points - reach, points + reach


def _as_share(distance: object) -> float | None:
    """Return a percentage such as "25%" as a share; None for others."""
    if not isinstance(distance, str):
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", distance)
    if match is None:
        return None
    return float(match[1]) / 100


def just_before(points: AnyArray, dtypes: tuple[DType, ...] = ()) -> AnyArray:
    """Return the highest values that lie before these points, (n,).

    Numbers that differ from a point only by rounding lie at it, not before it.
    """
    if points.dtype.kind != "f":
        return np.asarray(points - np.timedelta64(1, "us"))
    rounded = points - _rounding(dtypes) * np.abs(points)
    return np.asarray(np.minimum(rounded, np.nextafter(points, -np.inf)))


def _rounding(dtypes: Iterable[DType]) -> float:
    """Return the largest relative difference of two numbers that were meant to be equal.

    Each may be off by half an eps of its type, and sums of them by rounding besides.
    """
    precisions = [float(np.finfo(dtype).eps) for dtype in dtypes if dtype.kind == "f"]
    return max(precisions, default=float(DOUBLE)) + 2 * float(DOUBLE)


def _step(distance: object) -> np.timedelta64 | None:
    """Return a span of time of at least zero, in microseconds or in months; None for others."""
    if isinstance(distance, str):
        match = re.fullmatch(r"\s*(\d{1,6})\s*([DWMY])\s*", distance)
        if match is None:
            return None
        step = int(match[1]) * UNITS[match[2]]
        if match[2] in "MY":
            return step
        return step.astype("m8[us]")  # type: ignore[no-any-return]
    if isinstance(distance, (timedelta, np.timedelta64)):
        return _span(distance)
    if not _is_size(distance):
        return None
    days = min(float(distance), 2.0 * MOST_DAYS)
    return np.timedelta64(round(days * 86400e6), "us")


def _span(distance: timedelta | np.timedelta64) -> np.timedelta64 | None:
    """Return a timedelta in microseconds; None if it is negative or of no certain length."""
    if isinstance(distance, np.timedelta64) and np.datetime_data(distance.dtype)[0] in ("Y", "M"):
        return None
    span = np.timedelta64(as_datetime64(distance)).astype("m8[us]")  # type: ignore[arg-type]
    if span >= np.timedelta64(0, "us"):
        return span  # type: ignore[no-any-return]
    return None


def _moved(points: AnyArray, step: np.timedelta64) -> AnyArray:
    """Return dates later by a span.

    A span of months leads to the same day of the month, or to its last day if there is no such day.
    """
    if step.dtype == "m8[us]":
        return np.asarray(points + step)
    months = points.astype("M8[M]")
    time_in_month = points - months.astype("M8[us]")
    later_months = months + step
    last_day = (later_months + 1).astype("M8[D]") - later_months.astype("M8[D]") - DAY
    days = time_in_month.astype("m8[D]")
    new_days = np.minimum(days, last_day)
    return np.asarray(later_months.astype("M8[us]") + new_days + (time_in_month - days))


def _is_size(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number from zero up."""
    if is_truth(value) or not isinstance(value, (Real, np.number)):
        return False
    return 0 <= float(value) < float("inf")

"""The gate for distances along a column: how far apart two rows may lie, in numbers or in time."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, shown
from axil.inputs.codes import missing
from axil.inputs.labels import is_truth

DOUBLE = np.finfo(np.float64).eps
DAY = np.timedelta64(1, "D")
UNITS: dict[str, Any] = {
    "D": DAY,
    "W": 7 * DAY,
    "M": np.timedelta64(1, "M"),
    "Y": np.timedelta64(12, "M"),
}
FIRST = np.datetime64("0001-01-01")
LAST = np.datetime64("9999-12-31")
MOST_DAYS = int((LAST - FIRST) / DAY)
IN_TIME = 'a number of days, a timedelta, or text such as "90D", "18M" or "3Y"'


def as_points(values: NDArray[Any], what: str) -> NDArray[Any]:
    """(n,): a column as float64 or as datetime64, nan or NaT where it is missing; everything else is refused."""
    if values.dtype.kind == "M":
        return values.astype("M8[us]")
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    gone = missing(values)
    if values.dtype.kind == "O":
        known = values[~gone].tolist()
    else:
        known = list(values[~gone][:1])
    strange = [
        one for one in known if is_truth(one) or not isinstance(one, (date, np.datetime64, Real))
    ]
    is_date = [isinstance(one, (date, np.datetime64)) for one in known]
    if strange or (any(is_date) and not all(is_date)):
        if strange:
            found = shown(strange[0])
        else:
            found = "both numbers and dates"
        raise InputError(
            f"{what} holds {found}; expected numbers or dates. pandas.to_datetime makes dates of text."
        )
    if not any(is_date):
        made = np.full(len(values), np.nan)
        made[~gone] = known
        return made
    made = np.full(len(values), np.datetime64("NaT"), dtype="M8[us]")
    made[~gone] = [_instant(one) for one in known]
    return made


def _instant(value: Any) -> np.datetime64:
    """A date in microseconds, one with a time zone in UTC."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(timezone.utc).replace(tzinfo=None)
        # of pandas
        if hasattr(value, "to_datetime64"):
            value = value.to_datetime64()
    return np.datetime64(value).astype("M8[us]")  # type: ignore[no-any-return]


def interval_around(
    points: NDArray[Any], distance: Any, name: str, dtypes: tuple[np.dtype[Any], ...] = ()
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lowest and the highest value, (n,) each, that lie within a distance of these points; ``name`` is their column's.

    Numbers at the very distance lie within it whatever was rounded, such as 1.0 at 0.3 from 0.7;
    ``dtypes`` are those that points and values had.
    """
    what = f"within has the distance {shown(distance)}"
    if points.dtype.kind == "f":
        if not _is_size(distance):
            raise InputError(
                f"{what}; expected a number, as {name} holds numbers, of zero or more."
            )
        radius = float(distance)
        if radius == 0.0:
            return points, points
        reach = radius + _rounding(dtypes) * (np.abs(points) + radius)
        return points - reach, points + reach
    step = _step(distance)
    if step is None:
        raise InputError(f"{what}; expected {IN_TIME}, as {name} holds dates.")
    if step.dtype == "m8[us]":
        far = abs(step) > np.timedelta64(MOST_DAYS, "D")
    else:
        far = abs(step.astype(int)) > MOST_DAYS / 28
    if far:
        ends = (points, points)
    else:
        ends = (_moved(points, -step), _moved(points, step))
    if far or any(((end < FIRST) | (end > LAST + DAY)).any() for end in ends):
        raise InputError(
            f"{what}, which leads from the dates of {name} past those of the calendar. Take a shorter one."
        )
    return ends


def just_before(points: NDArray[Any], dtypes: tuple[np.dtype[Any], ...] = ()) -> NDArray[Any]:
    """(n,): the highest values that lie before these points; numbers that were only rounded lie at them, not before."""
    if points.dtype.kind != "f":
        return np.asarray(points - np.timedelta64(1, "us"))
    return np.asarray(
        np.minimum(points - _rounding(dtypes) * np.abs(points), np.nextafter(points, -np.inf))
    )


def _rounding(dtypes: tuple[np.dtype[Any], ...]) -> float:
    """How far a number of these types may be from the one that was meant: either by half an eps of its type, and sums besides."""
    return (
        float(max([np.finfo(one).eps for one in dtypes if one.kind == "f"], default=DOUBLE))
        + 2 * DOUBLE
    )


def _step(distance: Any) -> Any:
    """A span of time of at least zero, in microseconds or in months; None for what is none."""
    if isinstance(distance, str):
        found = re.fullmatch(r"\s*(\d{1,6})\s*([DWMY])\s*", distance)
        if found is None:
            return None
        step = int(found[1]) * UNITS[found[2]]
        return step if found[2] in "MY" else step.astype("m8[us]")
    if isinstance(distance, np.timedelta64) and np.datetime_data(distance.dtype)[0] in ("Y", "M"):
        return None  # of no certain length
    if isinstance(distance, (timedelta, np.timedelta64)):
        span = (
            distance.to_timedelta64()
            if hasattr(distance, "to_timedelta64")
            else np.timedelta64(distance)
        )
        span = span.astype("m8[us]")
        return span if span >= np.timedelta64(0, "us") else None  # no NaT either
    if not _is_size(distance):
        return None
    return np.timedelta64(round(min(float(distance), 2.0 * MOST_DAYS) * 86400e6), "us")


def _moved(points: NDArray[Any], step: Any) -> NDArray[Any]:
    """Dates later by a span; by months to the same day of the month, or to its last where there is no such day."""
    if step.dtype == "m8[us]":
        return np.asarray(points + step)
    months = points.astype("M8[M]")
    since = points - months.astype("M8[us]")
    later = months + step
    last = (later + 1).astype("M8[D]") - later.astype("M8[D]") - DAY
    days = since.astype("m8[D]")
    return np.asarray(later.astype("M8[us]") + np.minimum(days, last) + (since - days))


def _is_size(value: Any) -> bool:
    return (
        isinstance(value, (Real, np.number))
        and not is_truth(value)
        and 0 <= float(value) < float("inf")
    )

"""The gate for distances along a column: how far apart two rows may lie, in numbers or in time."""

from __future__ import annotations

import re
from datetime import date, timedelta
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, shown
from axil.inputs.labels import is_truth

UNITS = {"D": "days", "W": "weeks", "M": "months", "Y": "years"}
IN_TIME = 'a number of days, a timedelta, or text such as "90D", "18M" or "3Y"'


def as_points(values: NDArray[Any], what: str) -> NDArray[Any]:
    """(n,): a column as float64 or as datetime64, nan or NaT where it is missing; everything else is refused."""
    import pandas as pd

    if values.dtype.kind == "M":
        return np.asarray(pd.DatetimeIndex(values).as_unit("us"))
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    missing = np.asarray(pd.isna(values))
    known = values[~missing].tolist() if values.dtype.kind == "O" else list(values[~missing][:1])
    strange = [one for one in known if is_truth(one) or not isinstance(one, (date, np.datetime64, Real))]
    is_date = [isinstance(one, (date, np.datetime64)) for one in known]
    if strange or (any(is_date) and not all(is_date)):
        found = shown(strange[0]) if strange else "both numbers and dates"
        raise InputError(f"{what} holds {found}; expected numbers or dates. pandas.to_datetime makes dates of text.")
    if not any(is_date):
        made = np.full(len(values), np.nan)
        made[~missing] = known
        return made
    return np.asarray(pd.to_datetime(pd.Series(values), utc=True).dt.tz_localize(None).dt.as_unit("us"))


def interval_around(points: NDArray[Any], distance: Any, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lowest and the highest value, (n,) each, that lie within a distance of these points; ``name`` is their column's."""
    import pandas as pd

    what = f"within has the distance {shown(distance)}"
    if points.dtype.kind == "f":
        if not _is_size(distance):
            raise InputError(f"{what}; expected a number, as {name} holds numbers, of zero or more.")
        return points - float(distance), points + float(distance)
    step: Any = None
    if isinstance(distance, str):
        found = re.fullmatch(r"\s*(\d{1,6})\s*([DWMY])\s*", distance)
        step = None if found is None else pd.DateOffset(**{UNITS[found[2]]: int(found[1])})
    elif isinstance(distance, (timedelta, np.timedelta64)) and not pd.isna(distance):
        step = pd.Timedelta(distance) if pd.Timedelta(distance) >= pd.Timedelta(0) else None
    elif _is_size(distance):
        step = pd.Timedelta(days=float(distance))
    if step is None:
        raise InputError(f"{what}; expected {IN_TIME}, as {name} holds dates.")
    days = pd.DatetimeIndex(points)
    try:
        return np.asarray(days - step), np.asarray(days + step)
    except (OverflowError, ValueError):
        raise InputError(f"{what}, which leads from the dates of {name} past those of the calendar.") from None


def _is_size(value: Any) -> bool:
    return isinstance(value, (Real, np.number)) and not is_truth(value) and 0 <= float(value) < float("inf")

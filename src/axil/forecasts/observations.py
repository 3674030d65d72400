"""Observations of time series that a user names by date, and by series where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from axil.aliases import DataFrame, ForeignObject, Series
from axil.arrays import AnyArray, BoolArray
from axil.errors import InputError, shown
from axil.inputs import as_number
from axil.inputs.libraries import needed_pandas


@dataclass(frozen=True, eq=False)
class Change:
    """Another value of one observation."""

    series: object
    date: object
    value: float


Changes = Sequence[Change]


def as_changes(values: Mapping[ForeignObject, float], series_names: Sequence[object]) -> Changes:
    """Return the observations that ``{date: value}`` or ``{(series, date): value}`` names."""
    if not hasattr(values, "items") or len(getattr(values, "shape", ())) > 1:
        raise InputError(
            f"values is a {type(values).__name__}; expected {{date: value, ...}}, or "
            "{(series, date): value, ...} of several series."
        )
    changes = []
    for key, value in values.items():
        series, date = _series_and_date(key, series_names)
        number = as_number(value, f"the value at {shown(key)}")
        changes.append(Change(series, date, number))
    if not changes:
        raise InputError("values is empty; expected at least one {date: value}.")
    return changes


def _series_and_date(
    key: ForeignObject, series_names: Sequence[object]
) -> tuple[object, ForeignObject]:
    """Return the series and the date that a key names."""
    if isinstance(key, tuple) and len(key) == 2:
        series, date = key
        if series not in series_names:
            raise InputError(
                f"There is no series {shown(series)}; the forecaster was fitted to "
                f"{', '.join(map(shown, series_names[:5]))}."
            )
        return series, date
    if len(series_names) > 1:
        raise InputError(
            f"{shown(key)} names no series, and there are {len(series_names)}. Name each "
            f"observation by series and date, such as ({shown(series_names[0])}, {shown(key)})."
        )
    return series_names[0], key


def pandas_index(dates: Series | AnyArray) -> ForeignObject:
    """Return dates as an index of pandas, which has one type for all dates."""
    return needed_pandas("Dates of observations").Index(dates)


def date_like(date: ForeignObject, dates: ForeignObject) -> ForeignObject:
    """Return the date in the type of an index of pandas: text becomes a date if it has dates."""
    if dates.dtype.kind != "M" and not hasattr(dates.dtype, "tz"):
        return date
    try:
        parsed = needed_pandas("A date").Timestamp(date)
    except (TypeError, ValueError) as error:
        raise InputError(f"{shown(date)} is no date; expected one like {dates[0]}.") from error
    if parsed.tzinfo is None and getattr(dates.dtype, "tz", None) is not None:
        parsed = parsed.tz_localize(dates.dtype.tz)
    return parsed


def require_observation(is_observation: BoolArray, change: Change) -> None:
    """Raise unless exactly one observation is the changed one."""
    n_observations = int(np.count_nonzero(is_observation))
    if n_observations == 1:
        return
    if n_observations:
        number = f"{n_observations} observations"
    else:
        number = "no observation"
    raise InputError(
        f"The data has {number} of {shown(change.series)} at {shown(str(change.date))}; expected "
        "one. Name a date of the data that the forecaster was fitted on."
    )


def with_changes(series: Series, changes: Changes) -> Series:
    """Return a series of pandas, with dates for its index, with other values."""
    changed = series.astype(np.float64)
    for change in changes:
        is_changed = np.asarray(series.index == date_like(change.date, series.index))
        require_observation(is_changed, change)
        changed.iloc[int(np.flatnonzero(is_changed)[0])] = change.value
    return changed


def series_of(data: ForeignObject) -> dict[object, Series]:
    """Return the series of a wide frame, of a long one by series and date, or of a mapping."""
    if isinstance(data, Mapping):
        return dict(data)
    if data.index.nlevels == 1:
        return {name: data[name] for name in data.columns}
    names = dict.fromkeys(data.index.get_level_values(0))
    return {name: data.iloc[:, 0].xs(name, level=0) for name in names}


def with_series_changes(data: ForeignObject, changes: Changes) -> dict[object, Series] | DataFrame:
    """Return the data of several series, of the form that they have, with other values."""
    changed_data = data.copy()
    by_series = series_of(data)
    for name in dict.fromkeys(change.series for change in changes):
        series_changes = [change for change in changes if change.series == name]
        values = with_changes(by_series[name].squeeze(), series_changes)
        if isinstance(data, Mapping) or data.index.nlevels == 1:
            changed_data[name] = values
            continue
        column = changed_data.columns[0]
        is_series = data.index.get_level_values(0) == name
        changed_data[column] = changed_data[column].astype(np.float64)
        changed_data.loc[is_series, column] = values.to_numpy()
    return changed_data

"""Targets of survival analysis: times of events, and intervals in which times lie.

Users give them as the libraries take them: signed times, with a minus sign where a row was
censored; records of an event and a time, as scikit-survival's ``Surv`` makes them; and two bounds
per row.
"""

from __future__ import annotations

import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError
from axil.inputs.numbers import as_numbers, as_vector
from axil.inputs.tables import as_frame


def as_signed_times(values: ForeignObject, name: str = "y_train") -> ForeignObject:
    """Return records of an event and a time as signed times, (N,); other values unchanged.

    Parameters
    ----------
    values : structured array, frame or other values
        Records have two fields: truth values, whether the time is of an event, and times.
    name : str
        The argument, for messages.
    """
    columns = _columns_of_records(values, name)
    if columns is None:
        return values
    is_event, times = columns
    numbers = as_vector(times, len(is_event), name)
    is_negative = numbers < 0
    if is_negative.any():
        row = int(np.argmax(is_negative))
        raise InputError(
            f"{name} has the time {numbers[row]:g} at position {row}, beside a column of events; "
            "expected times of 0 or more. Without that column a minus sign says that a row was "
            "censored."
        )
    return np.where(is_event, numbers, -numbers)


def _columns_of_records(values: ForeignObject, name: str) -> tuple[BoolArray, ForeignObject] | None:
    """Return whether each time is of an event, (N,), and the times; None for other values."""
    frame = as_frame(values)
    if frame is not None:
        if len(frame.columns) != 2:
            return None
        columns = [frame[column].to_numpy() for column in frame.columns]
    elif isinstance(values, np.ndarray) and values.dtype.names and values.ndim == 1:
        if len(values.dtype.names) != 2:
            return None
        columns = [values[field] for field in values.dtype.names]
    else:
        return None
    first, second = columns
    if first.dtype.kind == "b":
        return first, second
    if second.dtype.kind == "b":
        return second, first
    return None


def as_bounds(
    values: object, n_rows: int, name: str = "y_train", rows: str = "training"
) -> FloatArray:
    """Return the bounds between which the time of each row lies, (N, 2).

    Parameters
    ----------
    values : array of shape (N, 2) or (N,)
        Bounds, or signed times: a time of an event is both bounds, and the time of a censored row
        is the lower one.
    n_rows : int
    name, rows : str
        The argument and the kind of its rows, for messages.
    """
    expected = f"two bounds, or a signed time, for each of the {n_rows} {rows} rows"
    numbers = as_numbers(values, name, expected)
    if numbers.shape in ((n_rows,), (n_rows, 1)):
        signed_times = as_vector(numbers, n_rows, name, rows)
        times = np.abs(signed_times)
        return np.stack([times, np.where(signed_times < 0, np.inf, times)], axis=1)
    if numbers.shape != (n_rows, 2):
        raise InputError(
            f"{name} has shape {numbers.shape}; expected ({n_rows}, 2) or ({n_rows},): {expected}."
        )
    return numbers


def signed_times_of(bounds: FloatArray) -> FloatArray:
    """Return the lower bounds, (N, 1), with a minus sign where the upper one is infinite."""
    lower, upper = bounds.T
    return np.asarray(np.where(np.isinf(upper), -lower, lower)[:, None])

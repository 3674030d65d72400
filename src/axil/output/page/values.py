"""Values as JSON has them, short: numbers of some seven digits, everything else as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGITS = 7  # significant ones of a number that is shown but not proven with
FEWER_DIGITS = 4  # of features where there are very many
WHOLE = 2.0**53  # up to here a float that is a whole number is written in full


def number(value: float, digits: int = DIGITS) -> Any:
    """A float of so many significant digits, whole numbers in full; None for nan, text for infinity."""
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
        import pandas as pd

        return [str(value) for value in pd.Index(values).astype(str)]
    return [str(value) for value in values.tolist()]


def cells(values: NDArray[Any], digits: int = DIGITS) -> list[Any]:
    """A column of features: numbers and truth values as such, None where missing, all else as text."""
    kind = values.dtype.kind
    if kind in "biu":
        return list(values.tolist())
    if kind == "f":
        return numbers(values, digits)
    import pandas as pd

    if kind in "mM":
        return [None if missing else text for missing, text in zip(pd.isna(values), labels(values))]
    return [None if missing else _plain(value, digits) for missing, value in zip(pd.isna(values), values.tolist())]


def _plain(value: Any, digits: int) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    return number(float(value), digits) if isinstance(value, (float, np.floating)) else str(value)

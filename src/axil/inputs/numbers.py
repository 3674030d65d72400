"""Numbers: arrays and settings that people pass become real numbers here, or are refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from numbers import Real
from typing import Any, TypeGuard, TypeVar

import narwhals.stable.v2 as nw
import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.inputs.libraries import FrameColumn, as_native, loaded_pandas
from axil.machine.arrays import is_away

Choice = TypeVar("Choice", bound=str)

MOST_COUNTED = 2**63 - 1
MOST_THREADS = 2**31 - 1  # a C int, which kernels take

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

#: What to do about arrays of other kinds than numbers.
_ADVICE = {
    "c": "Take the real part yourself if that is meant.",
    "M": "Count dates from a day of your own, such as (dates - dates.min()).days.",
    "m": "Turn spans of time into numbers, such as spans.days.",
    "U": "Convert text with .astype(float).",
    "S": "Convert text with .astype(float).",
    "V": "Pass one field of the structured array.",
}

_REAL = (Real, Decimal, np.bool_)
_NOT_REAL = (np.timedelta64,)  # which counts as a whole number to NumPy


def is_sparse(X: object) -> bool:
    """Return whether X is a scipy.sparse matrix or array."""
    return "scipy.sparse" in sys.modules and bool(sys.modules["scipy.sparse"].issparse(X))


def on_host(values: ForeignObject, name: str) -> ForeignObject:
    """Return the values, or a copy on the host if they are an array on a GPU.

    Such an array may be CuPy's, a tensor of torch, or another that CuPy can read.
    """
    if not is_away(values):
        return values
    if hasattr(values, "get"):
        return values.get()
    if hasattr(values, "detach"):
        return values.detach().cpu().numpy()
    try:
        cupy: ForeignObject = import_module("cupy")
    except ImportError:
        kind = type(values).__name__
        raise InputError(
            f"{name} is a {kind} on a GPU, which is read through CuPy, and that is not installed. "
            "Copy it to the host."
        ) from None
    return cupy.asarray(values).get()


def as_array(values: object, name: str) -> AnyArray:
    """Return the values of any array, series or frame as a NumPy array.

    NumPy has no integers of 128 bits: those that need more than 64 stay Python's own.
    """
    host_values = on_host(values, name)
    native = as_native(host_values)
    wide_types = (nw.Int128, nw.UInt128)
    if isinstance(native, nw.Series) and native.dtype in wide_types:
        return np.array(native.to_list())
    if isinstance(native, nw.DataFrame) and any(
        dtype in wide_types for dtype in native.schema.values()
    ):
        return np.column_stack([np.array(native[name].to_list()) for name in native.columns])
    return np.asarray(host_values)


def unmasked(values: ForeignObject, name: str) -> ForeignObject:
    """Return the values on the host, and the data of a masked array.

    Raises if something is masked, which no model sees.
    """
    values = on_host(values, name)
    if isinstance(values, (list, tuple)):
        arrays = values
    else:
        arrays = (values,)
    if any(isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array) for array in arrays):
        raise InputError(
            f"{name} is masked in places, which no model sees. Drop these rows, or fill them in: "
            ".filled()."
        )
    if isinstance(values, np.ma.MaskedArray):
        return values.data
    return values


def is_number_dtype(dtype: ForeignObject) -> bool:
    """Return whether a dtype has real numbers or truth values.

    The dtype is one of NumPy or pandas (nullable, Arrow, sparse).
    """
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biuf"
    from pandas.api import types

    is_numeric = types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)
    return bool(is_numeric and not types.is_complex_dtype(dtype) and str(dtype) != "category")


def as_numbers(values: object, name: str, expected: str = "real numbers") -> FloatArray:
    """Return real numbers of any shape in float64, with nan for missing ones.

    Raises for everything that only looks like numbers: complex numbers, masked entries, dates,
    spans of time, text, categories, records, and whole numbers beyond float64.
    """
    values = unmasked(values, name)
    if values is None or is_sparse(values):
        raise InputError(f"{name} is a {type(values).__name__}; expected {expected}.")
    try:
        numbers = _number_array(values)
    except (InputError, MemoryError):
        raise
    except _NotNumeric as error:
        raise InputError(
            f"{name} is not numeric: it has dtype {shown(error)}; expected {expected}."
            f"{error.advice}"
        ) from None
    except Exception as error:  # each kind of array has its own
        raise InputError(
            f"{name} is not numeric ({shown(error, 200)}); expected {expected}."
        ) from None
    kind = numbers.dtype.kind
    if kind == "O":
        return from_objects(numbers, name, expected)
    if kind not in "biuf":
        raise InputError(
            f"{name} is not numeric: it has dtype {numbers.dtype}; expected {expected}. "
            f"{_ADVICE.get(kind, '')}"
        )
    with np.errstate(over="ignore"):  # of a longdouble; infinity is refused where it matters
        floats = numbers.astype(np.float64, copy=False)
    return np.require(floats, requirements="A")  # the core takes nothing else


class _NotNumeric(Exception):
    """A column of a dtype that has no numbers."""

    advice = (
        " Convert categories and text with .astype(float) if they are numbers, and dates into "
        "spans such as days."
    )

    def __init__(self, dtype: ForeignObject):
        super().__init__(str(dtype))


def _number_array(values: ForeignObject) -> AnyArray:
    """Return a NumPy array of the values of any array, series or frame.

    It is one of objects where their type is not known yet.
    """
    pd = loaded_pandas()
    native = as_native(values)
    if pd is not None and isinstance(native, pd.Series):
        return _pandas_numbers(native, [native.dtype])
    if pd is not None and isinstance(native, pd.DataFrame):
        return _pandas_numbers(native, list(native.dtypes))
    if isinstance(native, nw.Series):
        return _column_numbers(native)
    if isinstance(native, nw.DataFrame):
        columns = [_column_numbers(native[name]) for name in native.columns]
        return np.column_stack(columns or [np.empty((len(native), 0))])
    return np.asarray(native)


def _pandas_numbers(table: ForeignObject, dtypes: list[ForeignObject]) -> AnyArray:
    """Return the values of a pandas series or frame whose columns have these dtypes."""
    for dtype in dtypes:
        # Other kinds of NumPy's types are refused later, with advice of their own.
        is_left_for_later = getattr(dtype, "kind", "") in "cOmMV"
        if str(dtype) == "category" or not (is_number_dtype(dtype) or is_left_for_later):
            raise _NotNumeric(dtype)
    are_all_numpy = all(isinstance(dtype, np.dtype) for dtype in dtypes)
    if are_all_numpy or not all(map(is_number_dtype, dtypes)):
        return np.asarray(table.to_numpy())
    return np.asarray(table.to_numpy(dtype=np.float64, na_value=np.nan))


def _column_numbers(column: FrameColumn) -> AnyArray:
    """Return the numbers of a column of narwhals, or its objects."""
    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return np.asarray(column.cast(nw.Float64).to_numpy())
    if dtype not in (nw.Object, nw.Unknown):
        raise _NotNumeric(dtype)
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def from_objects(values: AnyArray, name: str, expected: str) -> FloatArray:
    """Return an array of Python's own numbers, Decimal and Fraction among them, in float64.

    None and pandas.NA become nan.
    """
    types = set(map(type, values.flat))
    real_or_none = (*_REAL, type(None))
    if all(issubclass(kind, real_or_none) and not issubclass(kind, _NOT_REAL) for kind in types):
        try:
            return values.astype(np.float64)
        except (OverflowError, TypeError, ValueError):
            pass  # one by one, to say where
    pandas_na = getattr(loaded_pandas(), "NA", None)
    numbers = np.empty(values.shape)
    flat_numbers = numbers.reshape(-1)
    for i, value in enumerate(values.flat):
        if value is None or value is pandas_na:
            flat_numbers[i] = np.nan
            continue
        if isinstance(value, _NOT_REAL) or not isinstance(value, _REAL):
            raise InputError(
                f"{name} is not numeric: it holds {shown(value)}, a {type(value).__name__}, at "
                f"position {i}; expected {expected}."
            )
        try:
            flat_numbers[i] = float(value)
        except (OverflowError, ValueError):
            raise InputError(
                f"{name} holds {shown(value)} at position {i}, which is no float64; expected "
                f"{expected}."
            ) from None
    return numbers


def as_vector(
    values: object, n_rows: int, name: str, rows: str = "training", missing: bool = False
) -> FloatArray:
    """Return one finite float64 number per row, (N,).

    With ``missing``, numbers may also be nan. ``rows`` says which rows, for messages.
    """
    vector = as_numbers(values, name, f"one number for each of the {n_rows} {rows} rows")
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (n_rows,):
        raise InputError(
            f"{name} has shape {vector.shape}; expected ({n_rows},), one number for each of the "
            f"{n_rows} {rows} rows."
        )
    if missing:
        is_bad = np.isinf(vector)
    else:
        is_bad = ~np.isfinite(vector)
    bad_rows = np.flatnonzero(is_bad)
    if len(bad_rows):
        raise InputError(
            f"{name} holds {vector[bad_rows[0]]} at position {bad_rows[0]} ({len(bad_rows)} of "
            f"{n_rows} are not finite). Drop these rows as the fit did, or fill them in."
        )
    return vector


def as_table(
    values: object,
    n_rows: int,
    n_outputs: int,
    name: str,
    rows: str = "training",
    missing: bool = False,
) -> FloatArray:
    """Return finite numbers with a column per output, (N, K); one output may be (N,).

    With ``missing``, numbers may also be nan. ``rows`` says which rows, for messages.
    """
    if n_outputs == 1:
        return as_vector(values, n_rows, name, rows, missing)[:, None]
    table = as_numbers(values, name, f"a table of numbers, ({n_rows}, {n_outputs})")
    if table.shape != (n_rows, n_outputs):
        raise InputError(
            f"{name} has shape {table.shape}; expected ({n_rows}, {n_outputs}), one column per "
            "output."
        )
    return np.stack([as_vector(column, n_rows, name, rows, missing) for column in table.T], axis=1)


def as_offsets(values: object, n_rows: int, n_outputs: int, rows: str) -> FloatArray | None:
    """Return offsets (N, K); None if the user passes none."""
    if values is None:
        return None
    return as_table(values, n_rows, n_outputs, "init_score", rows)


def as_in_bag(values: object, n_rows: int) -> FloatArray | None:
    """Return how often each tree sampled each row, (N, T); None for None."""
    if values is None:
        return None
    in_bag = as_numbers(values, "in_bag", "a table of sample counts, one row per training row")
    if in_bag.ndim != 2 or len(in_bag) != n_rows:
        raise InputError(f"in_bag has shape {in_bag.shape}; expected ({n_rows}, number of trees).")
    if not (np.isfinite(in_bag).all() and (in_bag >= 0).all()):
        raise InputError(
            "in_bag holds numbers that are negative or not finite; expected how often each row was "
            "sampled."
        )
    return in_bag


def as_weights(values: object, n_rows: int) -> FloatArray | None:
    """Return sample weights (N,), none of them negative and not all zero, or None."""
    weights = weights_of_some(values, n_rows)
    if weights is not None and not weights.any():
        raise InputError("sample_weight is zero everywhere; expected at least one positive weight.")
    return weights


def weights_of_some(values: object, n_rows: int) -> FloatArray | None:
    """Return the sample weights of some of the rows, which may all be zero.

    A single number is the weight of every row.
    """
    if values is None:
        return None
    if isinstance(values, Real) or (isinstance(values, np.ndarray) and values.ndim == 0):
        values = np.full(n_rows, values)
    weights = as_vector(values, n_rows, "sample_weight")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        raise InputError(
            f"sample_weight holds {weights[negative[0]]} at position {negative[0]}; expected "
            "weights that are not negative."
        )
    return weights


def _setting(
    value: object, name: str, expected: str, is_valid: Callable[[FloatArray], Any]
) -> FloatArray:
    """Return a number or a few numbers, if they are valid."""
    numbers = None
    with suppress(InputError):  # the message below quotes the value
        numbers = as_numbers(value, name, expected)
    if numbers is None or not is_valid(numbers):
        raise InputError(f"{name} is {shown(value)}; expected {expected}.")
    return numbers


def as_sizes(value: object, n: int, name: str) -> FloatArray:
    """Return a number from 0 up, or n of them."""

    def are_sizes(numbers: FloatArray) -> bool:
        return numbers.shape in ((), (n,)) and bool((np.isfinite(numbers) & (numbers >= 0)).all())

    return _setting(value, name, f"a number from 0 up, or {n} of them, one per output", are_sizes)


def as_shares(shares: object) -> FloatArray:
    """Return shares above 0 and up to 1, (n_shares,)."""

    def are_shares(numbers: FloatArray) -> bool:
        is_list = numbers.ndim < 2 and numbers.size > 0
        return is_list and bool(((numbers > 0) & (numbers <= 1)).all())

    expected = "numbers above 0 and up to 1, such as (0.5, 0.8, 0.95)"
    return np.atleast_1d(_setting(shares, "shares", expected, are_shares))


def as_share(value: object, name: str) -> float:
    """Return one share above 0 and up to 1."""

    def is_share(number: FloatArray) -> bool:
        return number.shape == () and bool(0 < number <= 1)

    return float(_setting(value, name, "a number above 0 and up to 1", is_share))


def as_number(value: object, name: str) -> float:
    """Return one finite number."""

    def is_finite(number: FloatArray) -> bool:
        return number.shape == () and bool(np.isfinite(number))

    return float(_setting(value, name, "a finite number", is_finite))


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number.

    Truth values and spans of time are none, although they count as such to Python or NumPy.
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def as_count(value: object, name: str, least: int = 1, most: int = MOST_COUNTED) -> int:
    """Return a whole number from ``least`` to ``most``."""
    if not is_whole(value) or not least <= value <= most:
        limit = ""
        if most != MOST_COUNTED:
            limit = f" to {most}"
        raise InputError(
            f"{name} is {shown(value)}; expected a whole number from {least} up{limit}."
        )
    return int(value)


def as_flag(value: object, name: str) -> bool:
    """Return True or False; raise for all other values."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} is {shown(value)}; expected True or False.")
    return bool(value)


def as_choice(value: object, choices: tuple[Choice, ...], name: str) -> Choice:
    """Return the one of several words that the user passes."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    words = [f'"{choice}"' for choice in choices]
    raise InputError(f"{name} is {shown(value)}; expected {', '.join(words[:-1])} or {words[-1]}.")


def as_bytes(value: object) -> int:
    """Return a number of bytes, from a number or from text such as "2GiB" or "500 MB"."""
    n_bytes: float | np.floating | None = None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?\s*", value.upper())
        if match is not None:
            n_bytes = float(match[1]) * _UNITS[match[2] or "B"]
    elif is_whole(value) or isinstance(value, (float, np.floating)):
        n_bytes = value
    if n_bytes is None or not 1 <= n_bytes <= MOST_COUNTED:
        raise InputError(
            f"memory_limit is {shown(value)}; expected a positive number of bytes or text such as "
            '"2GiB".'
        )
    return int(n_bytes)

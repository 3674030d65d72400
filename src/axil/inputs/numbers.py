"""The gate for numbers: every array and every setting that people pass is refused here, or is real numbers from here on."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from numbers import Real
from typing import Any, TypeVar

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.inputs.libraries import as_native, loaded_pandas
from axil.machine.arrays import is_away

Choice = TypeVar("Choice", bound=str)

MOST_COUNTED = 2**63 - 1
MOST_THREADS = 2**31 - 1  # a C int, which kernels take

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}

_ADVICE = {
    "c": "Take the real part yourself if that is meant.",
    "M": "Count dates from a day of your own, such as (dates - dates.min()).days.",
    "m": "Turn spans of time into numbers, such as spans.days.",
    "U": "Convert text with .astype(float).",
    "S": "Convert text with .astype(float).",
    "V": "Pass one field of the structured array.",
}


def is_sparse(X: Any) -> bool:
    """Whether X is a scipy.sparse matrix or array."""
    return "scipy.sparse" in sys.modules and bool(sys.modules["scipy.sparse"].issparse(X))


def on_host(values: Any, what: str) -> Any:
    """The values themselves, or a copy where they are an array on a GPU: CuPy's, a tensor, or another by way of CuPy."""
    if not is_away(values):
        return values
    if hasattr(values, "get"):
        return values.get()
    if hasattr(values, "detach"):
        return values.detach().cpu().numpy()
    try:
        cupy: Any = import_module("cupy")
    except ImportError:
        kind = type(values).__name__
        raise InputError(
            f"{what} is a {kind} on a GPU, which is read through CuPy, and that is not installed. Copy it to the host."
        ) from None
    return cupy.asarray(values).get()


def as_array(values: Any, what: str) -> NDArray[Any]:
    """Return a numpy array of what any array, series or frame holds.

    NumPy has no integers of 128 bits: those that need more than 64 stay Python's own.
    """
    values = on_host(values, what)
    native = as_native(values)
    wide = (nw.Int128, nw.UInt128)
    if isinstance(native, nw.Series) and native.dtype in wide:
        return np.array(native.to_list())
    if isinstance(native, nw.DataFrame) and any(dtype in wide for dtype in native.schema.values()):
        return np.column_stack([np.array(native[name].to_list()) for name in native.columns])
    return np.asarray(values)


def unmasked(values: Any, what: str) -> Any:
    """The values on the host, or the data of a masked array of which nothing is masked; refuses any other."""
    values = on_host(values, what)
    if isinstance(values, (list, tuple)):
        parts = values
    else:
        parts = (values,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise InputError(
            f"{what} is masked in places, which no model sees. Drop these rows, or fill them in: .filled()."
        )
    if isinstance(values, np.ma.MaskedArray):
        return values.data
    return values


def is_number_dtype(dtype: Any) -> bool:
    """Whether a dtype of numpy or pandas (nullable, Arrow, sparse) holds real numbers or truth values."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biuf"
    from pandas.api import types

    numeric = types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype)
    return bool(numeric and not types.is_complex_dtype(dtype) and str(dtype) != "category")


def as_numbers(values: Any, what: str, expected: str = "real numbers") -> FloatArray:
    """Real numbers of any shape in float64, nan where they are missing; refuses all that only looks like numbers.

    That is complex numbers, masked entries, dates, spans of time, text, categories, records and
    whole numbers beyond float64.
    """
    values = unmasked(values, what)
    if values is None or is_sparse(values):
        raise InputError(f"{what} is a {type(values).__name__}; expected {expected}.")
    try:
        found = _plain(values)
    except (InputError, MemoryError):
        raise
    except _NoNumbers as error:
        raise InputError(
            f"{what} is not numeric: it has dtype {shown(error)}; expected {expected}.{error.advice}"
        ) from None
    except Exception as error:  # each kind of array has its own
        raise InputError(
            f"{what} is not numeric ({shown(error, 200)}); expected {expected}."
        ) from None
    kind = found.dtype.kind
    if kind == "O":
        return from_objects(found, what, expected)
    if kind not in "biuf":
        raise InputError(
            f"{what} is not numeric: it has dtype {found.dtype}; expected {expected}. {_ADVICE.get(kind, '')}"
        )
    with np.errstate(over="ignore"):  # of a longdouble; infinity is refused where it matters
        return np.require(
            found.astype(np.float64, copy=False), requirements="A"
        )  # the core takes nothing else


class _NoNumbers(Exception):
    """A column of a dtype that holds no numbers."""

    advice = " Convert categories and text with .astype(float) if they are numbers, and dates into spans such as days."

    def __init__(self, dtype: Any):
        super().__init__(str(dtype))


def _plain(values: Any) -> NDArray[Any]:
    """A numpy array of the values of any array, series or frame; of objects where their kind is not known yet."""
    pd = loaded_pandas()
    native = as_native(values)
    if pd is not None and isinstance(native, (pd.Series, pd.DataFrame)):
        if isinstance(native, pd.Series):
            dtypes = [native.dtype]
        else:
            dtypes = list(native.dtypes)
        for dtype in dtypes:
            if (not is_number_dtype(dtype) and getattr(dtype, "kind", "") not in "cOmMV") or str(
                dtype
            ) == "category":
                raise _NoNumbers(dtype)
        if all(isinstance(dtype, np.dtype) for dtype in dtypes) or not all(
            map(is_number_dtype, dtypes)
        ):
            return np.asarray(native.to_numpy())
        return np.asarray(native.to_numpy(dtype=np.float64, na_value=np.nan))
    if isinstance(native, nw.Series):
        return _column(native)
    if isinstance(native, nw.DataFrame):
        return np.column_stack(
            [_column(native[name]) for name in native.columns] or [np.empty((len(native), 0))]
        )
    return np.asarray(native)


def _column(series: nw.Series[Any]) -> NDArray[Any]:
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return np.asarray(series.cast(nw.Float64).to_numpy())
    if dtype not in (nw.Object, nw.Unknown):
        raise _NoNumbers(dtype)
    return np.fromiter(series.to_list(), dtype=object, count=len(series))


_REAL = (Real, Decimal, np.bool_)
_NO_REAL = (np.timedelta64,)  # which counts as a whole number to numpy


def from_objects(values: NDArray[Any], what: str, expected: str) -> FloatArray:
    """Return an array of Python's own numbers, Decimal and Fraction among them, in float64.

    None and pandas.NA become nan.
    """
    kinds = set(map(type, values.flat))
    plain = all(
        issubclass(kind, (*_REAL, type(None))) and not issubclass(kind, _NO_REAL) for kind in kinds
    )
    if plain:
        try:
            return values.astype(np.float64)
        except (OverflowError, TypeError, ValueError):
            pass  # one by one, to say where
    pandas = loaded_pandas()
    if pandas is None:
        no_value = None
    else:
        no_value = pandas.NA
    numbers = np.empty(values.shape)
    flat_numbers = numbers.reshape(-1)
    for i, value in enumerate(values.flat):
        if value is None or value is no_value:
            flat_numbers[i] = np.nan
            continue
        if isinstance(value, _NO_REAL) or not isinstance(value, _REAL):
            raise InputError(
                f"{what} is not numeric: it holds {shown(value)}, a {type(value).__name__}, at position {i}; expected {expected}."
            )
        try:
            flat_numbers[i] = float(value)
        except (OverflowError, ValueError):
            raise InputError(
                f"{what} holds {shown(value)} at position {i}, which is no float64; expected {expected}."
            ) from None
    return numbers


def as_vector(
    values: Any, n_rows: int, what: str, rows: str = "training", missing: bool = False
) -> FloatArray:
    """One finite float64 number per row, or nan where numbers may be ``missing``."""
    vector = as_numbers(values, what, f"one number for each of the {n_rows} {rows} rows")
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (n_rows,):
        raise InputError(
            f"{what} has shape {vector.shape}; expected ({n_rows},), one number for each of the {n_rows} {rows} rows."
        )
    bad = np.flatnonzero(np.isinf(vector) if missing else ~np.isfinite(vector))
    if len(bad):
        raise InputError(
            f"{what} holds {vector[bad[0]]} at position {bad[0]} ({len(bad)} of {n_rows} are not finite). "
            "Drop these rows as the fit did, or fill them in."
        )
    return vector


def as_table(
    values: Any,
    n_rows: int,
    n_outputs: int,
    what: str,
    rows: str = "training",
    missing: bool = False,
) -> FloatArray:
    """(N, K): finite numbers, or nan where they may be ``missing``, one column per output; (N,) will do for one output."""
    if n_outputs == 1:
        return as_vector(values, n_rows, what, rows, missing)[:, None]
    table = as_numbers(values, what, f"a table of numbers, ({n_rows}, {n_outputs})")
    if table.shape != (n_rows, n_outputs):
        raise InputError(
            f"{what} has shape {table.shape}; expected ({n_rows}, {n_outputs}), one column per output."
        )
    return np.stack([as_vector(column, n_rows, what, rows, missing) for column in table.T], axis=1)


def as_offsets(values: Any, n_rows: int, n_outputs: int, rows: str) -> FloatArray | None:
    """(N, K) offsets, None if none were given."""
    if values is None:
        return None
    return as_table(values, n_rows, n_outputs, "init_score", rows)


def as_bags(values: Any, n_rows: int) -> FloatArray | None:
    """(N, T) draw counts, finite and not negative; None if none were given."""
    if values is None:
        return None
    bags = as_numbers(values, "in_bag", "a table of draw counts, one row per training row")
    if bags.ndim != 2 or len(bags) != n_rows:
        raise InputError(f"in_bag has shape {bags.shape}; expected ({n_rows}, number of trees).")
    if not (np.isfinite(bags).all() and (bags >= 0).all()):
        raise InputError(
            "in_bag holds numbers that are negative or not finite; expected how often each row was "
            "drawn."
        )
    return bags


def as_weights(values: Any, n_rows: int) -> FloatArray | None:
    """Sample weights: finite, not negative, not all zero; None if none were given."""
    weights = weights_of_some(values, n_rows)
    if weights is not None and not weights.any():
        raise InputError("sample_weight is zero everywhere; expected at least one positive weight.")
    return weights


def weights_of_some(values: Any, n_rows: int) -> FloatArray | None:
    """Return the sample weights of some of the rows, which may all be zero; one number is that of every row."""
    if values is None:
        return None
    if isinstance(values, Real) or (isinstance(values, np.ndarray) and values.ndim == 0):
        values = np.full(n_rows, values)
    weights = as_vector(values, n_rows, "sample_weight")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        raise InputError(
            f"sample_weight holds {weights[negative[0]]} at position {negative[0]}; expected weights that are not negative."
        )
    return weights


def _setting(value: Any, what: str, expected: str, fits: Callable[[FloatArray], Any]) -> FloatArray:
    """One number or a few that fit, which a message can quote."""
    try:
        found = as_numbers(value, what, expected)
    except InputError:
        found = None
    if found is None or not fits(found):
        raise InputError(f"{what} is {shown(value)}; expected {expected}.")
    return found


def as_sizes(value: Any, n: int, what: str) -> FloatArray:
    """A number from 0 up, or n of them."""
    expected = f"a number from 0 up, or {n} of them, one per output"
    return _setting(
        value, what, expected, lambda x: x.shape in ((), (n,)) and (np.isfinite(x) & (x >= 0)).all()
    )


def as_shares(shares: Any) -> FloatArray:
    """Shares above 0 and up to 1."""
    expected = "numbers above 0 and up to 1, such as (0.5, 0.8, 0.95)"
    fitting = _setting(
        shares, "shares", expected, lambda x: x.ndim < 2 and x.size and ((x > 0) & (x <= 1)).all()
    )
    return np.atleast_1d(fitting)


def as_share(value: Any, what: str) -> float:
    """One share above 0 and up to 1."""
    return float(
        _setting(
            value, what, "a number above 0 and up to 1", lambda x: x.shape == () and 0 < x <= 1
        )
    )


def as_number(value: Any, what: str) -> float:
    """One finite number."""
    return float(
        _setting(value, what, "a finite number", lambda x: x.shape == () and np.isfinite(x))
    )


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, and not a truth value or a span of time, which count as such to Python or numpy."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def as_count(value: Any, what: str, least: int = 1, most: int = MOST_COUNTED) -> int:
    """A whole number from ``least`` up."""
    if not is_whole(value) or not least <= value <= most:
        if most == MOST_COUNTED:
            below = ""
        else:
            below = f" to {most}"
        raise InputError(
            f"{what} is {shown(value)}; expected a whole number from {least} up{below}."
        )
    return int(value)


def as_flag(value: Any, what: str) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{what} is {shown(value)}; expected True or False.")
    return bool(value)


def as_choice(value: object, choices: tuple[Choice, ...], what: str) -> Choice:
    """Return the one of several words that the user passed."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    words = [f'"{choice}"' for choice in choices]
    raise InputError(f"{what} is {shown(value)}; expected {', '.join(words[:-1])} or {words[-1]}.")


def as_bytes(value: Any) -> int:
    """A number of bytes from a number or from text such as "2GiB" or "500 MB"."""
    found: Any = None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?\s*", value.upper())
        if match is None:
            found = None
        else:
            found = float(match[1]) * _UNITS[match[2] or "B"]
    elif is_whole(value) or isinstance(value, (float, np.floating)):
        found = value
    if found is None or not 1 <= found <= MOST_COUNTED:
        raise InputError(
            f'memory_limit is {shown(value)}; expected a positive number of bytes or text such as "2GiB".'
        )
    return int(found)

"""Values that people pass by mistake, by what a parameter expects: those that are right all the same, and those that are not."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse

DAY = np.datetime64("2020-01-01")
HUGE = 10**400  # no float64
LONGER = 10**5000  # a number that Python does not even write


class Unwilling:
    """Nothing can be made of it, not even text."""

    def __repr__(self):
        raise RuntimeError("no")

    __str__ = __hash__ = __eq__ = __array__ = __len__ = __iter__ = __bool__ = __float__ = __repr__


def same_vector(v: np.ndarray) -> Iterator[tuple[str, Any]]:
    """A vector of small whole numbers in other containers, which must give the same answer."""
    whole = v.astype(int)
    yield "list", v.tolist()
    yield "tuple", tuple(v.tolist())
    for dtype in ("float16", "float32", "longdouble", ">f8", ">i2", "int8", "uint64"):
        yield dtype, v.astype(dtype)
    yield "strided", np.repeat(v, 2)[::2]
    yield "reversed", v[::-1].copy()[::-1]
    yield "read only", np.frombuffer(v.tobytes())
    yield "a column", v[:, None]
    yield "np.matrix", np.asmatrix(v).T
    yield "objects", v.astype(object)
    yield "decimals", [Decimal(int(x)) for x in v]
    yield "fractions", [Fraction(int(x)) for x in v]
    yield "nothing masked", np.ma.MaskedArray(v, mask=np.zeros(len(v), bool))
    labelled = pd.Series(v, index=[f"r{i}" for i in range(len(v))])
    yield "pandas", labelled
    yield "pandas index", pd.Index(v)
    yield "pandas frame", labelled.to_frame()
    for dtype in (
        "Int64",
        "Float64",
        "Sparse[float64]",
        pd.ArrowDtype(pa.int64()),
        pd.ArrowDtype(pa.float64()),
    ):
        yield f"pandas {dtype}", labelled.astype(dtype)
    yield (
        "pandas decimals",
        pd.Series([Decimal(int(x)) for x in v], dtype=pd.ArrowDtype(pa.decimal128(10, 2))),
    )
    yield "pandas array", pd.array(whole)
    yield "polars", pl.Series(whole)
    yield "polars frame", pl.DataFrame({"y": whole})
    yield "polars decimals", pl.Series(whole).cast(pl.Decimal(10, 2))
    yield "pyarrow", pa.array(whole)
    yield "pyarrow chunks", pa.chunked_array([pa.array(whole[:3]), pa.array(whole[3:])])
    yield "pyarrow table", pa.table({"y": whole})
    if set(v.tolist()) <= {0.0, 1.0}:
        yield "bool", v.astype(bool)
        yield "pandas boolean", labelled.astype("boolean")
        yield "polars boolean", pl.Series(v.astype(bool))


def no_numbers(v: np.ndarray) -> Iterator[tuple[str, Any]]:
    """What looks like a vector of numbers and is none."""
    n, whole = len(v), v.astype(int)
    mask = np.arange(n) == n // 2
    yield "complex", v.astype(complex)
    yield "complex list", [complex(x) for x in v]
    yield "pandas complex", pd.Series(v.astype(complex))
    yield "masked", np.ma.MaskedArray(v, mask=mask)
    yield "masked list", [np.ma.masked, *v[1:].tolist()]
    yield "datetime64", DAY + whole
    yield "timedelta64", whole.astype("m8[D]")
    yield "pandas dates", pd.Series(DAY + whole)
    yield "pandas zoned dates", pd.Series(pd.to_datetime(DAY + whole).tz_localize("UTC"))
    yield "pandas spans", pd.Series(whole.astype("m8[s]"))
    yield "periods", pd.Series(pd.period_range("2020", periods=n, freq="D"))
    yield "intervals", pd.Series(pd.interval_range(0, n, periods=n))
    yield "Python dates", [datetime.date(2020, 1, 1)] * n
    yield "Python spans", [datetime.timedelta(1)] * n
    yield "timedelta objects", np.array([np.timedelta64(1, "D")] * n, dtype=object)
    yield "structured", np.array([(x,) for x in v], dtype=[("y", "f8")])
    yield "text", np.array([str(x) for x in v])
    yield "text list", [str(x) for x in v]
    yield "bytes", np.array([str(x).encode() for x in v])
    yield "pandas text", pd.Series([str(x) for x in v])
    yield "categories", pd.Series(v).astype("category")
    yield "mixed", [*v[1:].tolist(), "x"]
    yield "polars text", pl.Series([str(x) for x in v])
    yield "polars dates", pl.Series([datetime.date(2020, 1, 1)] * n)
    yield "polars spans", pl.Series([datetime.timedelta(1)] * n)
    yield "pyarrow text", pa.array([str(x) for x in v])
    yield "pyarrow dates", pa.array([datetime.date(2020, 1, 1)] * n)
    yield "None inside", [None, *v[1:].tolist()]
    yield "pandas NA", pd.Series(v).astype("Int64").mask(mask)
    yield "NA objects", [pd.NA, *v[1:].tolist()]
    yield "polars null", pl.Series([None, *whole[1:].tolist()])
    yield "pyarrow null", pa.array([None, *whole[1:].tolist()])
    yield "nan", np.where(mask, np.nan, v)
    yield "inf", np.where(mask, np.inf, v)
    yield "beyond float64", [HUGE, *v[1:].tolist()]
    yield "beyond text", [LONGER, *v[1:].tolist()]
    yield "longdouble beyond", np.array([np.longdouble("1e400"), *v[1:]])
    yield "longer", np.append(v, v)
    yield "shorter", v[:-1]
    yield "three dimensions", v.reshape(1, -1, 1)
    yield "ragged", [[1.0], *v[1:].tolist()]
    yield "a dict", dict(enumerate(v))
    yield "a set", set(range(n))
    yield "a generator", (x for x in v)
    yield "csr", sparse.csr_matrix(v)
    yield "a word", "1.5"
    yield "an object", object()
    yield "unwilling", Unwilling()
    yield "unwilling list", [Unwilling()] * n
    yield "a type", float


def same_tables(X: np.ndarray) -> Iterator[tuple[str, Any]]:
    """A table of small whole numbers in other containers, which not every library takes."""
    names = [f"c{i}" for i in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    for dtype in ("Int64", "Float64", "float16", "longdouble", pd.SparseDtype("float64", 0.0)):
        yield f"pandas {dtype}", frame.astype(dtype)
    for kind in (pa.int64(), pa.float64(), pa.decimal128(25, 2)):
        yield f"pandas {kind}", frame.astype("int64").astype(pd.ArrowDtype(kind))
    yield "objects", frame.astype(object)
    yield (
        "pandas columns of two levels",
        frame.set_axis(pd.MultiIndex.from_product([["a"], names]), axis=1),
    )
    yield "pandas whole numbers for names", frame.set_axis(range(len(names)), axis=1)
    yield "polars decimals", pl.DataFrame(X, schema=names).cast(pl.Decimal(10, 2))
    yield (
        "pyarrow decimals",
        pa.table(
            {
                name: pa.array(column).cast(pa.decimal128(25, 2))
                for name, column in zip(names, X.astype(int).T)
            }
        ),
    )
    yield "csr of whole numbers", sparse.csr_array(X.astype(np.int8))
    yield "coo", sparse.coo_matrix(X)
    yield "longdouble", X.astype("longdouble")
    yield "float16", X.astype("float16")
    yield "big-endian", X.astype(">f8")
    yield "Fortran", np.asfortranarray(X)
    yield "np.matrix", np.asmatrix(X)
    yield "a list", X.tolist()
    yield "nothing masked", np.ma.MaskedArray(X, mask=False)


def odd_tables(X: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Tables that some libraries take and others do not, with other values."""
    names = [f"c{i}" for i in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    for name, value in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
        other = X.copy()
        other[0, 0] = value
        yield name, other
        yield f"pandas {name}", pd.DataFrame(other, columns=names)
    yield "no rows", X[:0]
    yield "pandas odd names", frame.set_axis(pd.Index([*names[1:], "\ud800"], dtype=object), axis=1)
    yield "pandas odd labels", frame.set_axis(pd.Index(["\ud800"] * len(X), dtype=object))
    yield "polars null", pl.DataFrame(X, schema=names).with_columns(pl.lit(None).alias(names[0]))
    yield "pandas text", frame.assign(c0="a")
    yield "pandas None", frame.assign(c0=None)
    yield "pandas dates", frame.assign(c0=pd.Timestamp("2020-01-01"))
    yield "pandas spans", frame.assign(c0=pd.Timedelta("1D"))
    yield "pandas periods", frame.assign(c0=pd.Period("2020"))
    yield "pandas categories", frame.assign(c0=pd.Categorical(["a"] * len(X)))
    yield "polars text", pl.DataFrame(X, schema=names).with_columns(pl.lit("a").alias("c0"))
    yield (
        "polars dates",
        pl.DataFrame(X, schema=names).with_columns(pl.lit(datetime.date(2020, 1, 1)).alias("c0")),
    )
    yield (
        "polars categories",
        pl.DataFrame(X, schema=names).with_columns(pl.lit("a").cast(pl.Categorical).alias("c0")),
    )
    yield "pyarrow text", pa.table({name: ["a"] * len(X) for name in names})
    yield "text", X.astype(str)
    yield "bytes", X.astype("S")


def no_tables(X: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Tables that nobody takes."""
    names = [f"c{i}" for i in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    mask = np.zeros(X.shape, bool)
    mask[0, 0] = True
    yield "masked", np.ma.MaskedArray(X, mask=mask)
    yield "complex", X.astype(complex)
    yield "pandas complex", frame.astype(complex)
    yield "complex csr", sparse.csr_matrix(X.astype(complex))
    yield "dates", DAY + X.astype(int)
    yield "spans", X.astype(int).astype("m8[D]")
    yield "structured", np.zeros((len(X), X.shape[1]), dtype=[("a", "f8")])
    yield "columns of one name", frame.set_axis(["a"] * X.shape[1], axis=1)
    yield (
        "pyarrow columns of one name",
        pa.Table.from_arrays([pa.array(c) for c in X.T], names=["a"] * X.shape[1]),
    )
    yield "one dimension", X[0]
    yield "three dimensions", X[None]
    yield "too wide", np.hstack([X, X])
    yield "a series", frame["c0"]
    yield "lazy", pl.DataFrame(X, schema=names).lazy()
    yield "ragged", [[1.0], [1.0, 2.0]]
    yield "text list", [["a"] * X.shape[1]]
    yield "beyond float64", [[HUGE] * X.shape[1]]
    yield "a word", "X.csv"
    yield "None", None
    yield "an object", object()
    yield "unwilling", Unwilling()
    yield "a dict", dict.fromkeys(names, X[:, 0])


NO_COUNTS = [
    0,
    -1,
    1.5,
    3.0,
    True,
    np.True_,
    "3",
    None,
    np.nan,
    np.inf,
    HUGE,
    LONGER,
    [3],
    np.array([3]),
    3 + 0j,
    {},
    Unwilling(),
    np.timedelta64(3, "D"),
]
NO_FLAGS = [0, 1, None, "yes", "", [], np.array([True]), pd.NA, np.nan, 1.0, Unwilling()]
NO_LIMITS = [
    0,
    -1,
    np.inf,
    -np.inf,
    np.nan,
    True,
    "999" * 200 + "GB",
    "",
    "GB",
    "-1GB",
    "1 PB",
    HUGE,
    LONGER,
    1j,
    [1],
    object(),
    Unwilling(),
    np.timedelta64(3, "D"),
    0.5,
]
NO_CHOICES = [
    "",
    "Weight",
    None,
    0,
    True,
    [],
    ["weight"],
    {},
    np.array(["weight"]),
    b"weight",
    Unwilling(),
    pd.NA,
]
NO_NUMBERS = [
    "1",
    1j,
    np.nan,
    np.inf,
    [1.0, 2.0],
    {},
    HUGE,
    pd.NA,
    DAY,
    np.timedelta64(1, "D"),
    object(),
    Unwilling(),
    np.ma.masked,
]
NO_COLUMNS = [
    3.5,
    slice(0, 1),
    "unknown",
    -1,
    99,
    True,
    [True],
    [None],
    [[0]],
    {"a": 1},
    np.array([0.5]),
    object(),
    Unwilling(),
    [Unwilling()],
    HUGE,
]
NO_POSITIONS = [
    None,
    True,
    np.True_,
    1.0,
    "0",
    (0, 0),
    Ellipsis,
    [True],
    [0.0],
    [[0]],
    {},
    pd.NA,
    slice("a", "b"),
    [10**6],
    np.zeros((1, 1), int),
    Unwilling(),
    DAY,
]


def same_labels(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Labels of text in other containers."""
    yield "array", np.array(names)
    yield "objects", np.array(names, dtype=object)
    yield "pandas", pd.Series(names)
    yield "pandas index", pd.Index(names)
    yield "categories", pd.Series(names).astype("category")
    yield "pandas arrow", pd.Series(names, dtype=pd.ArrowDtype(pa.string()))
    yield "polars", pl.Series(names)
    yield "polars categories", pl.Series(names).cast(pl.Categorical)
    yield "pyarrow", pa.array(names)
    yield "pyarrow chunks", pa.chunked_array([names])
    yield "pyarrow dictionary", pa.array(names).dictionary_encode()


def no_labels(n: int) -> Iterator[tuple[str, Any]]:
    """What names no rows."""
    yield "masked", np.ma.MaskedArray(np.arange(n), mask=np.arange(n) == 0)
    yield "structured", np.zeros(n, dtype=[("a", "f8"), ("b", "f8")])
    yield "dicts", [{}] * n
    yield "lists", [[0], [0, 1]] * (n // 2)
    yield "sets", [set()] * n
    yield "lone surrogates", ["\ud800"] * n
    yield "tuples of surrogates", [("a", "\udfff")] * n
    yield "shorter", ["a"] * (n - 1)
    yield "two columns", np.zeros((n, 2))
    yield "a word", "a"
    yield "a number", 3
    yield "None", [Unwilling()] * n
    yield "an object", object()
    yield "unwilling", Unwilling()


EQUAL_TO_ONE = (
    "categories",
    "complex",
    "complex list",
    "pandas complex",
)  # as labels of a class that is called 1
ODD_LABELS = [  # of which every container of the right length is a set of labels
    lambda n: [pd.NA] * n,
    lambda n: [None] * n,
    lambda n: [np.nan] * n,
    lambda n: [(0, 1)] * n,
    lambda n: [1, "a"] * (n // 2),
    lambda n: np.arange(n) * 1j,
    lambda n: DAY + np.arange(n),
    lambda n: pd.Series(pd.period_range("2020", periods=n, freq="D")),
    lambda n: pd.interval_range(0, n, periods=n),
    lambda n: pd.Series([1, None] * (n // 2), dtype="Int64"),
    lambda n: pl.Series([datetime.date(2020, 1, 1)] * n),
    lambda n: pa.array([None] * n),
    lambda n: np.arange(n).astype("S"),
    lambda n: [HUGE] * n,
]

"""Labels are told apart as pandas tells them apart, without it."""

from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from axil import InputError
from axil.inputs import (
    as_labels,
    asked_labels,
    group_codes,
    interval_around,
    label_codes,
    named_rows,
    places_among,
)
from axil.output.page import values as page_values

DAYS = pd.date_range("2020-01-31", periods=3, freq="36h")
COLUMNS = {
    "int": [3, 1, 3, 2],
    "int8": np.array([3, -1, 3], dtype=np.int8),
    "uint64": np.array([2**64 - 1, 0, 2**63], dtype=np.uint64),
    "bool": [True, False, True],
    "float": [0.5, np.nan, -0.0, 0.0, np.nan, np.inf],
    "float32": np.array([0.1, 0.2, 0.1], dtype=np.float32),
    "text": ["b", "a", "b", "ü"],
    "fixed text": np.array(["bb", "a", "bb"]),
    "bytes": np.array([b"bb", b"a"]),
    "text with gaps": ["b", None, "a", None, float("nan")],
    "text and numbers": ["b", 2, "a", 1, None],
    "equal numbers": np.array([1, 1.0, True, 2, np.float64(2)], dtype=object),
    "tuples": [("b", 1), ("a", 2), ("b", 1)],
    "tuples with nan": [("b", float("nan")), ("b", float("nan")), ("a", 1.0)],
    "no order": [1, datetime(2020, 1, 1), ("a",), 1],
    "datetimes": DAYS.append(DAYS[:1]).to_numpy(),
    "days": np.array(["2020-01-02", "NaT", "2020-01-01", "NaT"], dtype="M8[D]"),
    "spans": np.array([5, 3, 5], dtype="m8[s]"),
    "Series with zone": pd.Series(DAYS.tz_localize("Europe/Paris")),
    "Series of dates": pd.Series([*DAYS, pd.NaT]),
    "Series of categories": pd.Series(["b", "a", "b", None], dtype="category"),
    "Series of periods": pd.Series(pd.period_range("2020-01", periods=3, freq="M")),
    "Python's dates": [date(2020, 1, 2), date(2020, 1, 1), date(2020, 1, 2)],
    "decimals": [Decimal("1.5"), Decimal("0.5"), 1.5],
    "empty": [],
}


@pytest.mark.parametrize("what", COLUMNS)
def test_groups_are_those_of_pandas(what):
    given = COLUMNS[what]
    labels = as_labels(given, len(given), "labels")
    try:
        codes, groups = pd.factorize(labels, sort=True, use_na_sentinel=False)
    except TypeError:
        codes, groups = pd.factorize(labels, use_na_sentinel=False)
    found, names = group_codes(given, len(given))
    np.testing.assert_array_equal(found, codes)
    assert names.dtype == groups.dtype
    assert list(map(repr, names.tolist())) == list(map(repr, groups.tolist()))
    alone, expected = label_codes(given, len(given), "distinct"), pd.factorize(labels)[0]
    for i in range(len(labels)):
        same = expected == expected[i] if expected[i] >= 0 else np.arange(len(labels)) == i
        np.testing.assert_array_equal(alone == alone[i], same)


@pytest.mark.parametrize(
    "given",
    [
        pd.Series([2, None, 1, 2], dtype="Int64"),
        [2, float("nan"), 1, 2.0],
        [Decimal(2), Decimal("NaN"), Decimal(1), 2],
    ],
)
def test_missing_labels_come_last(given):
    """Also among objects, where older versions of pandas leave them anywhere, or raise."""
    codes, groups = group_codes(np.array(given, dtype=object), 4)
    np.testing.assert_array_equal(codes, [1, 2, 0, 1])
    assert list(map(float, groups[:2])) == [1, 2]
    assert np.isnan(groups[2])


INDEXES = {
    "int": (np.arange(5), [3, 0.0, np.int8(1)], [3, 0, 1]),
    "float": (np.array([0.5, np.nan, 2.0]), [2, np.nan], [2, 1]),
    "text": (np.array(["a", "b"], dtype=object), ["b", np.str_("a")], [1, 0]),
    "tuples": (pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]).to_numpy(), [("b", 2)], [1]),
    "dates": (
        DAYS.to_numpy(),
        [DAYS[1], DAYS[2].to_pydatetime(), DAYS[0].to_datetime64()],
        [1, 2, 0],
    ),
    "coarse dates": (
        np.array(["2020-01-31", "2020-02-01"], dtype="M8[D]"),
        [pd.Timestamp("2020-02-01")],
        [1],
    ),
    "nanoseconds": (np.array([1, 2], dtype="M8[ns]"), [pd.Timestamp(2)], [1]),
    "zone": (DAYS.tz_localize("UTC").to_numpy(), [DAYS[1].tz_localize("UTC")], [1]),
    "spans": (
        np.array([1, 2], dtype="m8[s]"),
        [timedelta(seconds=2), pd.Timedelta(seconds=1)],
        [1, 0],
    ),
    "Python's dates": (
        np.array([date(2020, 1, 1), date(2020, 1, 2)], dtype=object),
        [date(2020, 1, 2)],
        [1],
    ),
    "shared": (np.array([1, 2, 1]), [2, 1], [1, 0, 2]),
    "truths": (np.array([False, True, "x"], dtype=object), [True], [1]),
}


@pytest.mark.parametrize("what", INDEXES)
def test_rows_by_label(what):
    index, asked, expected = INDEXES[what]
    np.testing.assert_array_equal(named_rows(asked, index), expected)
    which, there = places_among(asked_labels(asked), index)
    np.testing.assert_array_equal(there[np.argsort(which)], expected)


@pytest.mark.parametrize(
    ("index", "asked", "message"),
    [
        (np.arange(3), [True], r"rows has shape \(1,\); expected \(3,\)"),
        (np.arange(3), ["1"], "names row '1'"),
        (
            np.arange(3),
            [1, 5],
            "names row 5 .1 of 2 are unknown.; expected positions of training rows, from 0 to 2.$",
        ),
        (
            np.array(["a", "b"]),
            [0],
            "expected labels of training rows, such as 'a': those of index=, or the index of a pandas",
        ),
        (np.array([7, 8]), [0], "expected labels of training rows, such as 7: those of index="),
        (np.arange(3), [1, 1.0], "names row 1.0 twice"),
        (DAYS.to_numpy(), ["2020-01-31"], "names row '2020-01-31'"),
        (DAYS.tz_localize("UTC").to_numpy(), [DAYS[0]], "are unknown"),
    ],
)
def test_rows_that_are_not_there(index, asked, message):
    with pytest.raises(InputError, match=message):
        named_rows(asked, index)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series, lambda marks: iter(marks)])
def test_rows_marked_with_a_truth_value_for_each(kind):
    """Where the index has truth values itself they are labels, as above."""
    index = np.array(["a", "b", "c"])
    np.testing.assert_array_equal(named_rows(kind([True, False, True]), index), [0, 2])
    with pytest.raises(InputError, match="rows has the row labels of X_train in another order"):
        named_rows(pd.Series([True, False, True], index=index[::-1]), index)


def as_text(values):
    """NaT is nan there from pandas 3 on."""
    return [str(text).replace("nan", "NaT") for text in pd.Index(values).astype(str)]


@pytest.mark.parametrize(
    "values",
    [
        ["2020-01-31", "1999-12-01", "NaT"],
        ["2020-01-31T00:00:00", "2020-01-31T10:30:00"],
        ["2020-01-31T00:00:00.250", "NaT"],
        ["2020-01-31T00:00:00.000001"],
        ["2020-01-31T00:00:00.000000001"],
    ],
)
def test_dates_are_written_as_pandas_writes_them(values):
    dates = np.array(values, dtype="M8[ns]")
    assert page_values.labels(dates) == as_text(dates)


@pytest.mark.parametrize("values", [[1, 2], [0, -1], [1.5, -0.25], [1e-5], [None, 2]])
def test_spans_are_written_as_pandas_writes_them(values):
    spans = pd.to_timedelta(values, unit="D").as_unit("ns").to_numpy()
    assert page_values.labels(spans) == as_text(spans)


@pytest.mark.parametrize(
    ("distance", "step"),
    [
        ("18M", pd.DateOffset(months=18)),
        ("1Y", pd.DateOffset(years=1)),
        ("90D", pd.DateOffset(days=90)),
        ("2W", pd.DateOffset(weeks=2)),
        (1.5, pd.Timedelta(days=1.5)),
        (timedelta(hours=7), pd.Timedelta(hours=7)),
        (np.timedelta64(7, "h"), pd.Timedelta(hours=7)),
    ],
)
def test_distances_in_time_are_those_of_pandas(distance, step):
    days = pd.DatetimeIndex(
        ["2020-02-29 13:00", "2020-08-31", "1969-12-31 23:59:59.000001", "NaT"]
    ).as_unit("us")
    low, high = interval_around(days.to_numpy(), distance, "sold")
    np.testing.assert_array_equal(low, days - step)
    np.testing.assert_array_equal(high, days + step)


def test_numbers_at_the_very_distance_lie_within_it():
    """0.7 + 0.3 is 1.0 to people, and 0.1 + 0.2 is 0.3; the next number of one decimal is not within."""
    at, far = np.meshgrid(np.arange(-50, 51), np.arange(0, 40, 3))
    at, far = at.ravel(), far.ravel()
    for kind in (np.float64, np.float32):
        dtypes = (np.dtype(kind),) * 2
        for way in (-1, 1):
            value, beyond = ((at + way * (far + more)) / 10 for more in (0, 1))
            for point, distance, own, other in zip(
                (at / 10).astype(kind), far / 10, value.astype(kind), beyond
            ):
                low, high = interval_around(
                    np.array([point], dtype=np.float64), distance, "a", dtypes
                )
                assert low[0] <= own <= high[0]
                assert not low[0] <= other <= high[0]

"""Values as JSON has them."""

import json

import numpy as np
import pandas as pd
import pytest

from axil.output.page.values import cells, labels, number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1 + 0.2, 0.3),
        (1234567.89, 1234568),
        (102345678.0, 102345678),  # a parcel number in a column of floats keeps its digits
        (-0.0, 0),
        (1e300, 1e300),
        (float("nan"), None),
        (float("inf"), "∞"),
        (float("-inf"), "−∞"),
    ],
)
def test_numbers_are_short(value, expected):
    assert number(value) == expected


def test_cells_of_every_kind():
    columns = [
        np.array([1, 2]),
        np.array([True, False]),
        np.array([1.25, np.nan]),
        np.array(["a", None], dtype=object),
        np.array([1.5, pd.NA], dtype=object),
        np.array(["2020-01-02", "NaT"], dtype="datetime64[ns]"),
        np.array([np.int64(3), np.bool_(True)], dtype=object),
    ]
    expected = [
        [1, 2],
        [True, False],
        [1.25, None],
        ["a", None],
        [1.5, None],
        ["2020-01-02", None],
        [3, True],
    ]
    assert [cells(column) for column in columns] == expected
    json.dumps([cells(column) for column in columns], allow_nan=False)


def test_labels_are_text():
    assert labels(np.array([3, 4])) == ["3", "4"]
    assert labels(pd.date_range("2020-01-01", periods=2).to_numpy()) == ["2020-01-01", "2020-01-02"]
    assert labels(pd.MultiIndex.from_tuples([("a", 1)]).to_numpy()) == ["('a', 1)"]

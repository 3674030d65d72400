"""Columns of tables and options: features, and columns beside them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import axil
from axil.inputs import columns
from axil.output.shown_columns import columns_of

RNG = np.random.default_rng(0)


def frames(n_columns):
    names = [f"x{i}" for i in range(n_columns)]
    return pd.DataFrame(RNG.normal(size=(30, n_columns)), columns=names), names


def test_some_columns_of_some_rows():
    X, names = frames(4)
    beside = (
        pd.DataFrame({"street": list("abcdef") * 5, "x1": 0.0}),
        pd.DataFrame({"owner": range(30)}),
    )
    found = columns_of(X, X, names, beside)
    assert found.names == [*names, "street", "owner"]
    rows = np.array([7, 2, 2])
    x3, street, owner, x0, again = found.of_training(rows, [3, 4, 5, 0, 3])
    np.testing.assert_array_equal(x3, X["x3"].iloc[rows])
    np.testing.assert_array_equal(x0, X["x0"].iloc[rows])
    np.testing.assert_array_equal(again, x3)
    assert street.tolist() == ["b", "c", "c"]
    assert owner is None
    assert found.of_queries(rows, [5])[0].tolist() == [7, 2, 2]
    assert found.of_queries(rows, [4]) == [None]


@pytest.mark.parametrize("make", [pd.DataFrame, lambda frame: frame.to_numpy()])
def test_no_feature_and_no_column_beside(make):
    X, names = frames(2)
    found = columns_of(make(X), make(X), names)
    assert found.of_training(np.arange(3), []) == []
    np.testing.assert_array_equal(found.of_queries(np.arange(3), [1])[0], X["x1"].iloc[:3])


def test_frames_are_read_once_for_all_columns(monkeypatch):
    """Reading a frame anew for each of its columns takes seconds where there are a thousand."""
    counts = {}
    for n_columns in (3, 60):
        X, _ = frames(n_columns)
        explainer = axil.Explainer(Ridge().fit(X, X["x0"]), X, X["x0"])
        read, reads = columns.as_frame, []
        with monkeypatch.context() as patched:
            patched.setattr(
                columns,
                "as_frame",
                lambda given, read=read, reads=reads: reads.append(1) or read(given),
            )
            table = explainer.similar(X[:2], 3)
        assert len([name for name in table.columns if str(name).startswith("x")]) >= 3
        counts[n_columns] = len(reads)
    assert counts[60] == counts[3] > 0

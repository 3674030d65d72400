"""Data is checked in words that a user understands, before any work."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from axil import InputError
from axil.inputs import as_features, as_mask, as_vector, as_weights, row_labels, take_rows

NAMES = ["size", "year", "rooms"]
VALUES = np.arange(12.0).reshape(4, 3)
TABLES = {
    "numpy": VALUES,
    "pandas": pd.DataFrame(VALUES, columns=NAMES, index=list("abcd")),
    "polars": pl.DataFrame(VALUES, schema=NAMES),
    "pyarrow": pa.table(dict(zip(NAMES, VALUES.T))),
    "csr": sp.csr_matrix(VALUES),
    "csc": sp.csc_array(VALUES),
    "coo": sp.coo_matrix(VALUES),
    "list": VALUES.tolist(),
}


def check(X, names=NAMES):
    model = SimpleNamespace(
        library="LightGBM", n_features=3, feature_names=names, spelling=str.strip, takes_text=False
    )
    return as_features(X, model, "X_train")


def dense(X):
    if sp.issparse(X):
        return X.toarray()
    return np.asarray(X.to_pandas() if isinstance(X, pa.Table) else X)


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_passes_and_can_be_sliced(kind):
    X = check(TABLES[kind])
    assert X.shape == (4, 3)
    np.testing.assert_array_equal(dense(take_rows(X, slice(1, 3))), VALUES[1:3])
    np.testing.assert_array_equal(dense(take_rows(X, np.array([3, 0]))), VALUES[[3, 0]])


def test_names_are_compared_as_the_library_spells_them():
    assert check(pd.DataFrame(VALUES, columns=["size ", " year", "rooms"])).shape == (4, 3)


def test_labels_are_the_users_own():
    assert list(row_labels(TABLES["pandas"])) == list("abcd")
    assert list(row_labels(TABLES["polars"])) == [0, 1, 2, 3]
    assert list(row_labels(VALUES)) == [0, 1, 2, 3]
    index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    assert row_labels(pd.DataFrame(VALUES, index=index))[2] == ("b", 1)


REFUSED = {
    "one dimension": (VALUES[0], r"shape \(3,\); expected two dimensions"),
    "a series": (pd.Series([1.0, 2.0]), "expected a numpy array"),
    "too narrow": (VALUES[:, :2], r"has 2 columns; the LightGBM model was fitted on 3"),
    "text array": (np.array([["a", "b", "c"]]), "expected numbers"),
    "text in an object array": (
        np.array([[1.0, "a", True]], dtype=object),
        "holds 'a', a str, at position 1; expected numb",
    ),
    "dates in an object array": (
        np.array([[1, np.timedelta64(1, "D"), 2]], dtype=object),
        "expected numbers",
    ),
    "text among objects": (
        pd.DataFrame({"size": [1, "a"], "year": 1, "rooms": 2}),
        r"not numeric: size \(object\)",
    ),
    "other names": (
        pd.DataFrame(VALUES, columns=["size", "year", "beds"]),
        r"missing \['rooms'\], unexpected \['beds'\]",
    ),
    "other order": (
        pd.DataFrame(VALUES[:, ::-1], columns=NAMES[::-1]),
        r"another order: \[.*\] instead of \[.*\]\. Select",
    ),
    "a name twice": (
        pd.DataFrame(VALUES, columns=["size", "year", "size"]),
        "has several columns named 'size'",
    ),
    "text column": (
        pl.DataFrame({"size": ["a"], "year": [1], "rooms": [2]}),
        r"not numeric: size \(String\)",
    ),
    "dates": (
        pd.DataFrame({"size": pd.to_datetime(["2020-01-01"]), "year": 1, "rooms": 2}),
        "not numeric: size",
    ),
    "ragged list": ([[1, 2, 3], [4]], "expected a numeric table"),
    "a word": ("X.csv", "is a str"),
    "nothing": (None, "is a NoneType"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_tables_that_cannot_be_used(what):
    X, message = REFUSED[what]
    with pytest.raises(InputError, match=message):
        check(X)


def test_categories_and_booleans_are_left_to_the_library():
    frame = pd.DataFrame({"size": [1.5], "year": pd.Categorical(["a"]), "rooms": [True]})
    assert check(frame) is frame


@pytest.mark.parametrize(
    "table",
    [
        np.array([[1.5, 2, True], [None, np.float32(3), False]], dtype=object),
        pd.DataFrame({"size": [1.5, None], "year": [2, 3], "rooms": [True, False]}).astype(object),
        pd.DataFrame(
            {"size": [1.5, pd.NA], "year": [2, 3], "rooms": [True, False]}, index=[7, 7]
        ).astype(object),
        pl.DataFrame(
            {
                "size": pl.Series([1.5, None], dtype=pl.Object),
                "year": [2, 3],
                "rooms": [True, False],
            }
        ),
    ],
    ids=["array", "pandas", "pandas.NA", "polars"],
)
def test_objects_that_are_numbers_are_numbers(table):
    found = check(table)
    np.testing.assert_array_equal(np.asarray(found, dtype=float), [[1.5, 2, 1], [np.nan, 3, 0]])
    if isinstance(table, pd.DataFrame):
        assert table.dtypes.eq(object).all()  # the user's own table stays as it is
        assert found.index.equals(table.index)


@pytest.mark.parametrize(
    "values",
    [[1, 2, 3], pd.Series([1, 2, 3]), pl.Series([1, 2, 3]), pa.array([1, 2, 3]), np.ones((3, 1))],
)
def test_vectors_of_every_kind(values):
    assert as_vector(values, 3, "y_train").shape == (3,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], r"shape \(2,\); expected \(3,\)"),
        (np.ones((3, 2)), r"shape \(3, 2\)"),
        ([1, np.nan, 3], r"nan at position 1 \(1 of 3 are not finite\)"),
        ([1, 2, np.inf], "inf at position 2"),
        (["a", "b", "c"], "not numeric"),
        ([None, 1, 2], "at position 0|not numeric"),
        (5.0, r"shape \(\)"),
    ],
)
def test_vectors_that_cannot_be_used(values, message):
    with pytest.raises(InputError, match=message):
        as_vector(values, 3, "y_train")


def test_weights():
    assert as_weights(None, 3) is None
    with pytest.raises(InputError, match=r"-1\.0 at position 1"):
        as_weights([1, -1, 1], 3)
    with pytest.raises(InputError, match="zero everywhere"):
        as_weights([0, 0, 0], 3)


@pytest.mark.parametrize("n_rows", [0, 3])
def test_a_mask_of_numbers(n_rows):
    """Partitions may be empty."""
    with pytest.raises(InputError, match="among holds numbers or text"):
        as_mask(np.zeros(n_rows), n_rows, "among")

"""Deletions and pushes of squared error over Dask collections: the numbers of one machine, with one row, some, or groups gone."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from test_contract import case_of, explainer_of
from test_dask import over_dask, unequal

import axil

SAME = [
    ("lightgbm", "regressor weighted scored"),
    ("lightgbm", "dart"),
    ("lightgbm", "rf without bagging"),
    ("lightgbm", "weights some zero"),
    ("xgboost", "base_margin base_score=2 weighted"),
    ("xgboost", "one_output_per_tree weighted"),
    ("catboost", "baseline weighted steps"),
    ("catboost", "multi weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "ExtraTreesRegressor outputs weighted"),
    ("sklearn", "DecisionTreeClassifier weighted"),
]


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def close(found, expected):
    """Partitions merely add in another order: 1e-12 of the largest number."""
    slack = 1e-12 * max(1.0, np.nanmax(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=slack, equal_nan=True)


def same_table(found, expected, numbers):
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        if name in numbers:
            close(found[name].to_numpy(), expected[name].to_numpy())
        else:
            np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize(("library", "name"), SAME)
def test_the_numbers_of_one_machine(library, name):
    case = case_of(library, name)
    explainer, whole, X = over_dask(case), explainer_of(library, name), case.X_new[:4]
    n = len(case.y)
    for method in ("exact", "first-order"):
        close(explainer.removal(X, method).compute(), whole.removal(X, method))
    close(explainer.pushes(X).compute(), whole.pushes(X))
    gone = whole.index[[0, n // 2, n - 1]].tolist()
    found, expected = explainer.without(gone, X), whole.without(gone, X)
    same_table(found, expected, ("before", "after", "change"))
    assert found.attrs == expected.attrs
    labels = np.arange(n) % 3
    found = explainer.removal_group(X, da.from_array(labels, chunks=(unequal(n),)))
    same_table(found, whole.removal_group(X, labels), ("before", "after", "change"))
    for ask in ("removal_top", "removal_set"):
        found, expected = getattr(explainer, ask)(X, 3), getattr(whole, ask)(X, 3)
        assert list(found.columns) == list(expected.columns)
        close(found["effect"].abs(), expected["effect"].abs())  # ties may come in another order
    same_table(explainer.leave_one_out().compute(), whole.leave_one_out(), ("target", "prediction", "residual"))

"""Rows in partitions of unequal sizes, one small model, and how numbers over partitions are compared with one machine."""

from itertools import pairwise

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from tests.contract_models import offsets_of
from tests.fits import explainer_of_fit

X, Y = load_diabetes(return_X_y=True, as_frame=True)
X.index = Y.index = [f"patient {i}" for i in range(len(X))]
WEIGHTS = pd.Series(np.random.default_rng(0).uniform(0.5, 2, len(Y)), index=X.index)
QUERIES = X.iloc[[5, 17, 200]]


def unequal(n):
    """Five partitions, one of them empty and one of a single row."""
    first = n // 2 - 7
    return (first, 0, 1, n - first - 17, 16)


def partitioned(values, sizes=None):
    """A Dask collection of these rows."""
    sizes = unequal(len(values)) if sizes is None else sizes
    if isinstance(values, (pd.DataFrame, pd.Series)):
        ends = np.cumsum((0, *sizes))
        return dd.from_map(
            lambda part: part, [values.iloc[a:b] for a, b in pairwise(ends)], meta=values.iloc[:0]
        )
    values = np.asarray(values)
    return da.from_array(values, chunks=(sizes, *values.shape[1:]))


def over_dask(case, **arguments):
    given = (case.X, case.y, case.sample_weight, offsets_of(case))
    return explainer_of_fit(
        case.model, *(None if v is None else partitioned(v) for v in given), **arguments
    )


def changed(row, by):
    targets = Y.copy()
    targets.iloc[row] += by
    return targets


def close(found, expected):
    """Partitions merely add in another order: 1e-12 of the largest number."""
    slack = 1e-12 * max(1.0, np.nanmax(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=slack, equal_nan=True)


def same_table(found, expected, numbers):
    """Tables are equal, but for the rounding of these columns."""
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        if name in numbers:
            close(found[name].to_numpy(), expected[name].to_numpy())
        else:
            np.testing.assert_array_equal(found[name], expected[name])

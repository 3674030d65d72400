"""Small models and plenty of fresh rows, for tests of intervals."""

from functools import cache

import numpy as np
from lightgbm import LGBMRegressor

import axil


def rows(n, seed):
    """Exchangeable rows whose errors are larger where the third feature is, and skewed."""
    draws = np.random.default_rng(seed)
    X = draws.uniform(size=(n, 4))
    noise = (draws.exponential(size=n) - 1) * (0.2 + 2 * X[:, 2])
    return X, 5 * X[:, 0] + np.sin(6 * X[:, 1]) + noise


@cache
def explainer():
    X, y = rows(300, 0)
    model = LGBMRegressor(
        n_estimators=25, num_leaves=7, min_child_samples=5, verbose=-1, n_jobs=1
    ).fit(X, y)
    return axil.Explainer(model, X, y, n_threads=1)


@cache
def predictive():
    return explainer().calibrate(*rows(60, 1))

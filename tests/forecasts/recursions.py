"""Forecasts by hand, for tests: rows of lags, and boosted trees refitted at their splits."""

import numpy as np
import pytest

lgb = pytest.importorskip("lightgbm")

LAGS = [1, 2, 6]
WINDOW = 3
N_TREES = 12
RATE = 0.1


def new_model():
    return lgb.LGBMRegressor(
        n_estimators=N_TREES, learning_rate=RATE, num_leaves=6, verbose=-1, n_jobs=1
    )


def row_at(differences, t):
    """Return the features of differences[t]: its lags, and the mean of the last three."""
    lags = [differences[t - lag] for lag in LAGS]
    return np.array([*lags, np.mean(differences[t - WINDOW : t])])


def training_rows(differences):
    dates = range(max(LAGS), len(differences))
    return np.array([row_at(differences, t) for t in dates]), np.array(differences[max(LAGS) :])


def refitted(model, X, y):
    """Return a function that predicts one row at the model's splits, its leaves fitted to y."""
    leaves = model.predict(X, pred_leaf=True)
    base = y.mean()
    fitted_values = np.full(len(y), base)
    values_by_tree = []
    for tree in range(N_TREES):
        residuals = y - fitted_values
        n_rows = np.bincount(leaves[:, tree], minlength=6)
        sums = np.bincount(leaves[:, tree], residuals, 6)
        values_by_tree.append(RATE * sums / np.maximum(n_rows, 1))
        fitted_values = fitted_values + values_by_tree[-1][leaves[:, tree]]

    def predict(row):
        row_leaves = model.predict(row[None], pred_leaf=True)[0]
        return base + sum(values[leaf] for values, leaf in zip(values_by_tree, row_leaves))

    return predict

"""One definition of deletion: the rows are gone, the splits stay, and every rule of the library follows the rows that remain.

On one column of zeros and ones trees have the same splits whatever rows they are fitted to. There a retrained model is the fit
without the rows: an independent reference.
"""

from copy import deepcopy

import numpy as np
import pytest
from catboost import CatBoostRegressor

import axil

N = 90
RNG = np.random.default_rng(0)
X = RNG.integers(0, 2, (N, 1)).astype(float)
X_NEW = np.array([[0.0], [1.0]])
NUMBERS = X[:, 0] + RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.5, 2.0, N)
SOME_ZERO = np.where(np.arange(N) % 3 == 0, 0.0, WEIGHTS)
GONE = np.array([0, 1, 2, 5, 7, 11, 12])  # with and without weight
LEFT = np.delete(np.arange(N), GONE)
SINGLE = 1e-6  # of predictions of order one, which libraries make of targets in single precision

CAT = {
    "iterations": 4,
    "depth": 1,
    "learning_rate": 0.5,
    "l2_leaf_reg": 5,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
}

STUMPS = {
    "catboost": (CatBoostRegressor(**CAT), NUMBERS, None),
    "catboost weighted": (CatBoostRegressor(**CAT), NUMBERS, WEIGHTS),
    "catboost some weights zero": (CatBoostRegressor(**CAT), NUMBERS, SOME_ZERO),
    "catboost steps": (CatBoostRegressor(**CAT, leaf_estimation_iterations=3), NUMBERS, SOME_ZERO),
    "catboost monotone": (CatBoostRegressor(**CAT, monotone_constraints=[1]), NUMBERS, WEIGHTS),
    "catboost median": (CatBoostRegressor(**CAT, loss_function="MAE"), NUMBERS, None),
}


def raw(model, rows):
    """(n, K): predictions, or scores before any link."""
    if hasattr(model, "decision_function"):
        found = model.decision_function(rows)
    elif "catboost" in type(model).__module__:
        found = model.predict(rows, prediction_type="RawFormulaVal")
    else:
        found = model.predict(rows, raw_score=True)
    return np.asarray(found, dtype=float).reshape(len(rows), -1)


def table(found, column):
    return found[column].to_numpy().reshape(len(X_NEW), -1)


@pytest.mark.parametrize("name", STUMPS)
def test_a_retrained_stump_is_the_fit_without_the_rows(name):
    model, y, weights = STUMPS[name]
    explainer = axil.Explainer(deepcopy(model).fit(X, y, sample_weight=weights), X, y, weights)
    for gone in (GONE, [4], [3]):  # a row with weight, and one that has none where some are zero
        left = np.delete(np.arange(N), gone)
        own = None if weights is None else weights[left]
        expected = raw(deepcopy(model).fit(X[left], y[left], sample_weight=own), X_NEW)
        found = explainer.without(X_NEW, gone)
        np.testing.assert_allclose(table(found, "after"), expected, rtol=0, atol=SINGLE)
        again = explainer.refit(drop=gone)
        np.testing.assert_allclose(raw(again.model, X_NEW), expected, rtol=0, atol=SINGLE)
        if len(gone) == 1:
            effects = explainer.removal(X_NEW, method="exact").reshape(*expected.shape, N)[:, :, gone[0]]
            np.testing.assert_allclose(effects, table(found, "change"), rtol=0, atol=1e-9)
    groups = np.where(np.isin(np.arange(N), GONE), "gone", "left")
    by_group = explainer.removal(X_NEW, groups=groups)
    part = by_group[by_group["group"] == "gone"]
    after = explainer.without(X_NEW, GONE)
    np.testing.assert_allclose(table(part, "after"), table(after, "after"), rtol=0, atol=1e-9)
    if explainer.kind == "exact":
        alone = explainer.leave_one_out()["prediction"].to_numpy().reshape(N, -1)
        for row in (3, 4):
            own = explainer.without(X[[row]], [row])["after"].to_numpy()
            np.testing.assert_allclose(alone[row], own, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in STUMPS if name.startswith("catboost")])
def test_targets_that_do_not_change_leave_the_model_as_it_is(name):
    """Rows without weight stay: CatBoost multiplies l2_leaf_reg by the mean weight of all rows."""
    model, y, weights = STUMPS[name]
    explainer = axil.Explainer(deepcopy(model).fit(X, y, sample_weight=weights), X, y, weights)
    again = explainer.refit(targets={60: y[60]})
    assert len(again.index) == N
    np.testing.assert_allclose(raw(again.model, X_NEW), raw(explainer.model, X_NEW), rtol=0, atol=SINGLE)

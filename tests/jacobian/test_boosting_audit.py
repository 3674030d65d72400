"""Audit of boosted classifiers and counts against loops over trees and rows, and against the pushes themselves."""

import lightgbm as lgb
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from xgboost import XGBClassifier

import axil
from axil import InputError, UnsupportedQuestionError

SETTINGS = {"n_estimators": 15, "num_leaves": 6, "min_child_samples": 8, "verbose": -1, "n_jobs": 1}


def made(n_classes):
    """Rows of classes that one feature gives, eight of them wrong."""
    rng = np.random.default_rng(0)
    X = rng.random((240, 3))
    y = (n_classes * X[:, 0]).astype(int)
    wrong = rng.choice(240, 8, replace=False)
    y[wrong] = (y[wrong] + 1) % n_classes
    return X, y, wrong


def neighbours(leaves, y, k):
    """(N,): the share of class k among the other rows in the leaves (N, T), tree by tree."""
    n, found = len(y), []
    for j in range(n):
        mates = [np.flatnonzero((own == own[j]) & (np.arange(n) != j)) for own in leaves.T]
        found.append(np.mean([(y[own] == k).mean() for own in mates if len(own)]))
    return np.array(found)


def test_two_classes():
    """1e-12: shares of some ten rows. 1e-6: pushes add up to the scores that closely."""
    X, y, wrong = made(2)
    model = lgb.LGBMClassifier(**SETTINGS).fit(X, y)
    explainer = axil.JacobianExplainer(model, X, y, n_threads=2)
    table = explainer.audit()
    assert len(set(table["row"].head(8)) & set(wrong)) >= 6  # two are at the border
    assert list(table.columns) == ["row", "target", "expected", "probability", "quality", "suspect"]
    assert table["quality"].is_monotonic_increasing
    by_row = table.set_index("row").sort_index()
    second = neighbours(model.predict(X, pred_leaf=True), y, 1)
    np.testing.assert_allclose(by_row["quality"], np.where(y == 1, second, 1 - second), rtol=1e-12)
    np.testing.assert_array_equal(by_row["expected"], (second > 0.5).astype(int))
    np.testing.assert_array_equal(table["suspect"], table["expected"] != table["target"])
    assert f"{table['suspect'].sum()} of 240 labels are not the class of most of these rows" in table.attrs["axil"]
    without = model.predict(X, raw_score=True) - np.diagonal(explainer.pushes(X))
    np.testing.assert_allclose(by_row["probability"], np.where(y == 1, expit(without), expit(-without)), rtol=1e-6)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_several_classes(library):
    X, y, wrong = made(3)
    names = np.array(["a", "b", "c"])
    if library == "lightgbm":
        model, y_fit = lgb.LGBMClassifier(**SETTINGS), names[y]
        leaves = model.fit(X, y_fit).predict(X, pred_leaf=True)
    else:
        model, y_fit = XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1), y
        leaves = model.fit(X, y_fit).apply(X)
    explainer = axil.JacobianExplainer(model, X, y_fit, n_threads=1)
    table = explainer.audit()
    assert len(set(table["row"].head(8)) & set(wrong)) >= 7
    by_row = table.set_index("row").sort_index()
    shares = np.stack([neighbours(leaves, y, k) for k in range(3)], axis=1)
    np.testing.assert_allclose(by_row["quality"], shares[np.arange(240), y], rtol=1e-12)
    classes = names if library == "lightgbm" else np.arange(3)
    np.testing.assert_array_equal(by_row["expected"], classes[shares.argmax(axis=1)])
    raw = {"raw_score": True} if library == "lightgbm" else {"output_margin": True}
    scores = model.predict(X, **raw) - np.stack([np.diagonal(own) for own in explainer.pushes(X)], axis=1)
    np.testing.assert_allclose(by_row["probability"], softmax(scores, axis=1)[np.arange(240), y], rtol=1e-5)


def test_out_of_fold_probabilities_are_taken_as_they_are():
    X, y, _ = made(2)
    explainer = axil.JacobianExplainer(lgb.LGBMClassifier(**SETTINGS).fit(X, y), X, y)
    second = np.random.default_rng(1).random(240)
    table = explainer.audit(second).set_index("row").sort_index()
    np.testing.assert_allclose(table["quality"], np.where(y == 1, second, 1 - second))
    usual = [(1 - second[y == 0]).mean(), second[y == 1].mean()]
    other = np.where(y == 1, (1 - second) >= usual[0], second >= usual[1])
    own = np.where(y == 1, second, 1 - second)
    sure = np.where(y == 1, second >= usual[1], (1 - second) >= usual[0])
    np.testing.assert_array_equal(table["suspect"], other & ~(sure & (own >= 1 - own)))
    with pytest.raises(InputError, match="out_of_fold"):
        explainer.audit(second[:-1])


def test_counts_are_judged_by_their_residuals():
    rng = np.random.default_rng(0)
    X = rng.random((300, 3))
    y = rng.poisson(np.exp(1 + 2 * X[:, 0])).astype(float)
    wrong = rng.choice(300, 5, replace=False)
    y[wrong] += 60
    model = lgb.LGBMRegressor(objective="poisson", **SETTINGS).fit(X, y)
    explainer = axil.JacobianExplainer(model, X, y)
    table = explainer.audit()
    assert set(table["row"].head(5)) == set(wrong)
    assert abs(table["suspect"].sum() - 5) <= 2
    by_row = table.set_index("row").sort_index()
    without = model.predict(X, raw_score=True) - np.diagonal(explainer.pushes(X))
    np.testing.assert_allclose(by_row["expected"], np.exp(without), rtol=1e-5)
    np.testing.assert_allclose(by_row["residual"], y - by_row["expected"])
    np.testing.assert_array_equal(explainer.audit(np.full(300, 5.0)).set_index("row").sort_index()["expected"], 5.0)


def test_models_without_leaves_or_means_are_refused():
    X, y, _ = made(2)
    logistic = axil.JacobianExplainer(LogisticRegression(tol=1e-10).fit(X, y), X, y)
    with pytest.raises(UnsupportedQuestionError, match="audit"):
        logistic.audit()
    amounts = lgb.LGBMRegressor(objective="huber", **SETTINGS).fit(X, X[:, 0])
    with pytest.raises(UnsupportedQuestionError, match="audit"):
        axil.JacobianExplainer(amounts, X, X[:, 0]).audit()

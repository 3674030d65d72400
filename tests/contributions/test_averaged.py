"""LightGBM's boosting="rf" with losses other than squared error: every tree takes one step from the start; scores are means."""

from functools import cache

import lightgbm as lgb
import numpy as np
import pytest
from scipy.special import expit, logit, softmax

import axil
from axil.methods.method import verified_model

N = 150
RNG = np.random.default_rng(8)
X, NEW = RNG.normal(size=(N, 3)), RNG.normal(size=(5, 3))
SIGNAL = X[:, 0] + RNG.normal(size=N) / 2
W = RNG.uniform(0.5, 2.0, N).astype(np.float32).astype(float)
FOREST = {
    "boosting_type": "rf",
    "subsample": 0.7,
    "subsample_freq": 1,
    "n_estimators": 6,
    "num_leaves": 5,
}
FOREST |= {"min_child_samples": 8, "verbose": -1, "n_jobs": 1}
TARGETS = {
    "binary": (SIGNAL > 0.3).astype(int),
    "multiclass": np.digitize(SIGNAL, [-0.5, 0.5]),
    "poisson": RNG.poisson(np.exp(0.5 * SIGNAL)),
}
LINKS = {"binary": logit, "multiclass": np.log, "poisson": np.log}


def slopes(objective, columns, F):
    """Return g and h, (N, K) each; LightGBM multiplies h of K classes by K / (K - 1), and that of counts by exp(0.7)."""
    if objective == "poisson":
        return np.exp(F) - columns, np.exp(F + 0.7)
    p = expit(F) if objective == "binary" else softmax(F, axis=1)
    return p - columns, p * (1 - p) * (1.0 if objective == "binary" else 1.5)


def columns_of(objective, y):
    return (
        (y[:, None] == np.arange(3)).astype(float)
        if objective == "multiclass"
        else np.asarray(y, float)[:, None]
    )


@cache
def case(objective, from_average=True):
    kind = lgb.LGBMRegressor if objective == "poisson" else lgb.LGBMClassifier
    model = kind(objective=objective, boost_from_average=from_average, reg_lambda=1.5, **FOREST)
    model.fit(X, TARGETS[objective], sample_weight=W)
    return model, axil.Explainer(model, X, TARGETS[objective], sample_weight=W)


def replayed(objective, columns, w, from_average=True):
    """Return scores of the new rows (n, K), and contributions (n, K, N)."""
    model, explainer = case(objective, from_average)
    drawn = verified_model(explainer).boosting.walked.drawn
    K = columns.shape[1]
    start = (
        LINKS[objective](np.average(columns, axis=0, weights=w)) if from_average else np.zeros(K)
    )
    g, h = slopes(objective, columns, np.tile(start, (N, 1)))
    leaves, asked = (
        model.predict(rows, pred_leaf=True).reshape(len(rows), -1) for rows in (X, NEW)
    )
    found = np.zeros((len(NEW), K, N))
    n = leaves.shape[1] // K
    for t in range(leaves.shape[1]):
        k, own = t % K, w * drawn[t]
        for i, leaf in enumerate(asked[:, t]):
            rows = leaves[:, t] == leaf
            found[i, k, rows] += (-own * g[:, k])[rows] / ((own * h[:, k])[rows].sum() + 1.5) / n
    return start + found.sum(axis=2), found


@pytest.mark.parametrize("from_average", [True, False])
@pytest.mark.parametrize("objective", TARGETS)
def test_contributions_are_those_of_a_replay(objective, from_average):
    model, explainer = case(objective, from_average)
    scores, expected = replayed(
        objective, columns_of(objective, TARGETS[objective]), W, from_average
    )
    explanation = explainer(NEW)
    contributions = np.reshape(explanation.contributions, expected.shape)
    np.testing.assert_allclose(contributions, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(
        np.reshape(explanation.predictions, scores.shape), scores, rtol=0, atol=1e-6
    )
    raw = (
        model.predict(NEW, raw_score=True).reshape(scores.shape) / 6
    )  # which LightGBM does not average
    np.testing.assert_allclose(raw, scores, rtol=0, atol=1e-6)
    means = {"binary": expit, "multiclass": lambda F: softmax(F, axis=1), "poisson": np.exp}[
        objective
    ](scores)
    theirs = model.predict(NEW) if objective == "poisson" else model.predict_proba(NEW)
    np.testing.assert_allclose(
        theirs if objective != "binary" else theirs[:, 1], np.squeeze(means), atol=1e-6
    )


@pytest.mark.parametrize("objective", TARGETS)
def test_deletions_and_other_targets(objective):
    y, explainer = TARGETS[objective], case(objective)[1]
    gone = [4, 9, 100]
    w = W.copy()
    w[gone] = 0.0
    after = replayed(objective, columns_of(objective, y), w)[0]
    predictions_after = explainer.without(NEW, gone)["after"]
    np.testing.assert_allclose(np.reshape(predictions_after, after.shape), after, rtol=0, atol=1e-6)
    again = explainer.refit(drop=gone)
    np.testing.assert_allclose(
        np.reshape(again(NEW).predictions, after.shape), after, rtol=0, atol=1e-6
    )
    changed = y.copy()
    changed[[0, 50]] = 1 - (y[[0, 50]] > 0)
    after = replayed(objective, columns_of(objective, changed), W)[0]
    predictions_after = explainer.what_if(NEW, {row: int(changed[row]) for row in (0, 50)})["after"]
    np.testing.assert_allclose(np.reshape(predictions_after, after.shape), after, rtol=0, atol=1e-6)


@pytest.mark.parametrize("objective", ["binary", "poisson"])
def test_derivatives_are_differences_of_replays(objective):
    y, explainer = TARGETS[objective], case(objective)[1]
    found = explainer(NEW).weights
    for row in (0, 17, 80):
        step = 1e-5 * np.eye(N)[row][:, None]
        both = [
            replayed(objective, columns_of(objective, y) + sign * step, W)[0] for sign in (1, -1)
        ]
        expected = (both[0] - both[1])[:, 0] / 2e-5
        np.testing.assert_allclose(found[:, row], expected, rtol=0, atol=1e-5 * np.abs(found).max())


def test_wrong_rows_do_not_pass():
    model, _ = case("binary")
    y = TARGETS["binary"]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, 1 - y, sample_weight=W)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X[::-1], y[::-1], sample_weight=W[::-1])  # other rows are drawn then


def test_leaves_that_lose_all_rows_are_refused():
    model, explainer = case("binary")
    leaf = model.predict(X, pred_leaf=True)[:, 0]
    gone = np.flatnonzero(leaf == leaf[0])
    for ask in (lambda: explainer.without(NEW, gone), lambda: explainer.refit(drop=gone)):
        with pytest.raises(axil.UnsupportedQuestionError, match="would lose all rows"):
            ask()


def test_trees_without_a_split():
    """They lack the start, and say a step of their rows in its place; that of the first iteration says nothing."""
    y = TARGETS["binary"]
    for gain in (18.0, 1000.0):
        model = lgb.LGBMClassifier(min_split_gain=gain, **FOREST).fit(X, y)
        explainer = axil.Explainer(model, X, y)
        explanation = explainer(NEW)
        made = explanation.contributions.sum(axis=1) + explanation.intercepts
        np.testing.assert_allclose(made, model.predict(NEW, raw_score=True) / 6, rtol=0, atol=1e-6)
        after = explainer.without(NEW, [1, 2])["after"]
        np.testing.assert_allclose(
            explainer.refit(drop=[1, 2])(NEW).predictions, after, rtol=0, atol=1e-6
        )


def test_saved_and_loaded(tmp_path):
    model, explainer = case("multiclass")
    explainer.save(tmp_path / "forest.npz")
    again = axil.load(tmp_path / "forest.npz", model)
    np.testing.assert_array_equal(again(NEW).contributions, explainer(NEW).contributions)
    assert axil.supports(model).kind == "additive"

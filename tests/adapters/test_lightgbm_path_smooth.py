"""path_smooth where rows weigh differently: LightGBM smooths by row counts that it estimates from its histograms.

Columns of few whole numbers have a bin for each, so that a replay here can estimate the counts as LightGBM does.
"""

import lightgbm as lgb
import numpy as np
import pytest

import axil
from axil.adapters.lightgbm.text import parse

N = 150


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 9, size=(N, 3)).astype(float)
    y = X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=N)
    return X, y, rng.uniform(0.2, 3.0, size=N)


def fitted(model, X, y, w, **settings):
    settings = {"n_estimators": 6, "num_leaves": 8, "min_child_samples": 5, "learning_rate": 0.3, **settings}
    return model(min_data_in_bin=1, n_jobs=1, verbose=-1, **settings).fit(X, y, sample_weight=w)


def estimated(values, threshold, hessians):
    """The rows that LightGBM takes a split for, to the left: what is left by the bins on the right, each rounded."""
    factor = len(values) / hessians.sum()
    right = sum(int(hessians[values == v].sum() * factor + 0.5) for v in np.unique(values) if v > threshold)
    return len(values) - right


def smoothed_tree(tree, X, g, h, smooth):
    """(N,): the value of each row's leaf before the rate, from gradients and second derivatives."""
    features, thresholds = tree.integers("split_feature"), tree.floats("threshold")
    found = np.zeros(len(X))

    def raw(rows):
        return -g[rows].sum() / h[rows].sum()

    def go(node, rows, value):
        if node >= tree.n_leaves - 1:
            found[rows] = value
            return
        column, at = X[rows, features[node]], thresholds[node]
        left = estimated(column, at, h[rows])
        for child, own, n in zip(tree.children[node], (column <= at, column > at), (left, len(rows) - left)):
            below = rows[own]
            go(child, below, (n * raw(below) + smooth * value) / (n + smooth))

    go(0, np.arange(len(X)), raw(np.arange(len(X))))
    return found


def replay(model, X, y, w, smooth, rate):
    trees = parse(model.booster_.model_to_string()).trees
    w = w.astype(np.float32).astype(float)
    score = np.full(len(X), np.average(y, weights=w))
    for tree in trees:
        g = (score - y).astype(np.float32).astype(float) * w
        score = score + rate * smoothed_tree(tree, X, g, w, smooth)
    return score


@pytest.mark.parametrize("smooth", [0.5, 4.0, 60.0])
def test_weighted_models_have_the_weights_of_a_replay(smooth):
    X, y, w = table()
    y = y.astype(np.float32).astype(float)
    model = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=smooth)
    assert (
        np.abs(replay(model, X, y, w, smooth, 0.3) - model.predict(X)).max() < 1e-6
    )  # the replay here is LightGBM's fit
    explainer = axil.Explainer(model, X, y, sample_weight=w)
    assert explainer.kind == "exact"
    found = explainer.what_if(X[:20], {7: float(y[7] + 2.0)})["change"].to_numpy()
    other = np.where(np.arange(N) == 7, y + 2.0, y)
    expected = replay(model, X, other, w, smooth, 0.3) - replay(model, X, y, w, smooth, 0.3)
    assert np.abs(found - expected[:20]).max() < 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {"data_sample_strategy": "goss", "learning_rate": 0.5},
        {"subsample": 0.7, "subsample_freq": 1},
        {"boosting_type": "dart"},
        {"reg_alpha": 0.5, "reg_lambda": 1.0, "max_delta_step": 0.8},
        {"boosting_type": "rf", "subsample": 0.7, "subsample_freq": 1},
    ],
    ids=["goss", "bagging", "dart", "l1", "rf"],
)
def test_right_data_are_proven_and_wrong_ones_are_not(settings):
    X, y, w = table(1)
    model = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=3.0, **settings)
    explanation = axil.Explainer(model, X, y, sample_weight=w).explain(X[:5])
    made = explanation.intercepts + explanation.contributions.sum(-1)
    assert np.abs(made - model.predict(X[:5])).max() < 1e-5
    first, last = np.argsort(y)[[0, -1]]
    swapped, changed, shuffled = y.copy(), y.copy(), np.random.default_rng(2).permutation(y)
    swapped[[first, last]], changed[first] = y[[last, first]], y[first] + 1.0
    for wrong in (swapped, changed, shuffled):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, wrong, sample_weight=w)


def test_settings_that_hide_the_counts_are_refused_by_name():
    X, y, w = table(2)
    bounded = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=3.0, monotone_constraints=[1, 0, 0])
    with pytest.raises(axil.UnsupportedModelError, match="monotone_constraints"):
        axil.Explainer(bounded, X, y, sample_weight=w)
    schedule = lgb.reset_parameter(learning_rate=[0.3, 0.2, 0.1])
    data = lgb.Dataset(X, y, weight=w)
    params = {"path_smooth": 3.0, "num_leaves": 8, "verbose": -1, "num_threads": 1}
    with pytest.raises(axil.UnsupportedModelError, match="schedule of rates"):
        axil.Explainer(lgb.train(params, data, 3, callbacks=[schedule]), X, y, sample_weight=w)

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
    settings = {
        "n_estimators": 6,
        "num_leaves": 8,
        "min_child_samples": 5,
        "learning_rate": 0.3,
        **settings,
    }
    return model(min_data_in_bin=1, n_jobs=1, verbose=-1, **settings).fit(X, y, sample_weight=w)


def estimated(values, threshold, hessians):
    """The rows that LightGBM takes a split for, to the left: what is left by the bins on the right, each rounded."""
    factor = len(values) / hessians.sum()
    right = sum(
        int(hessians[values == v].sum() * factor + 0.5) for v in np.unique(values) if v > threshold
    )
    return len(values) - right


def smoothed_tree(tree, X, g, h, smooth):
    """(N, N): what the gradient of each row (columns) puts into the value of each row's leaf before the rate."""
    features, thresholds = tree.integers("split_feature"), tree.floats("threshold")
    found = np.zeros((len(X), len(X)))

    def raw(rows):
        return np.where(np.isin(np.arange(len(X)), rows), -g, 0.0) / h[rows].sum()

    def go(node, rows, value):
        if node >= tree.n_leaves - 1:
            found[rows] = value
            return
        column, at = X[rows, features[node]], thresholds[node]
        left = estimated(column, at, h[rows])
        for child, own, n in zip(
            tree.children[node], (column <= at, column > at), (left, len(rows) - left)
        ):
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
        score = score + rate * smoothed_tree(tree, X, g, w, smooth).sum(axis=1)
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
    changes = explainer.what_if(X[:20], {7: float(y[7] + 2.0)})["change"].to_numpy()
    other = np.where(np.arange(N) == 7, y + 2.0, y)
    expected = replay(model, X, other, w, smooth, 0.3) - replay(model, X, y, w, smooth, 0.3)
    assert np.abs(changes - expected[:20]).max() < 1e-6


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


def test_counts_that_only_all_leaves_together_tell():
    """Splits far above the leaves: their counts move each leaf by less than its digits, and all of them by more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 5))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * rng.normal(size=6000)
    w = rng.uniform(0.2, 3.0, size=6000)
    settings = {
        "n_estimators": 3,
        "num_leaves": 63,
        "learning_rate": 0.1,
        "subsample": 0.5,
        "subsample_freq": 1,
    }
    model = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=0.1, **settings)
    explanation = axil.Explainer(model, X, y, sample_weight=w).explain(X[:5])
    made = explanation.intercepts + explanation.contributions.sum(-1)
    assert np.abs(made - model.predict(X[:5])).max() < 1e-5
    changed = np.where(np.arange(6000) == int(np.argmax(y)), y + 1.0, y)
    with pytest.raises((axil.ExactnessError, axil.UnsupportedModelError)):
        axil.Explainer(model, X, changed, sample_weight=w)


def test_settings_that_hide_the_counts_are_refused_by_name():
    X, y, w = table(2)
    bounded = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=3.0, monotone_constraints=[1, 0, 0])
    with pytest.raises(axil.UnsupportedModelError, match="monotone_constraints"):
        axil.Explainer(bounded, X, y, sample_weight=w)
    schedule = lgb.reset_parameter(learning_rate=[0.3, 0.2, 0.1])
    data = lgb.Dataset(X, y, weight=w)
    params = {"path_smooth": 3.0, "num_leaves": 8, "verbose": -1, "num_threads": 1}
    with pytest.raises(axil.UnsupportedModelError, match="learning-rate schedule"):
        axil.Explainer(lgb.train(params, data, 3, callbacks=[schedule]), X, y, sample_weight=w)


@pytest.mark.parametrize("smooth", [0.5, 40.0])
def test_pushes_of_a_classifier_are_those_of_a_replay(smooth):
    """A row also pushes into leaves beside its own, through the nodes above both."""
    X, y, _ = table(3)
    labels = y > np.median(y)
    model = fitted(lgb.LGBMClassifier, X, labels, None, path_smooth=smooth)
    start = np.log(labels.mean() / (1 - labels.mean()))
    score, pushes = np.full(N, start), np.zeros((N, N))
    for tree in parse(model.booster_.model_to_string()).trees:
        p = 1 / (1 + np.exp(-score))
        g, h = (
            (p - labels).astype(np.float32).astype(float),
            (p * (1 - p)).astype(np.float32).astype(float),
        )
        made = 0.3 * smoothed_tree(tree, X, g, h, smooth)
        pushes, score = pushes + made, score + made.sum(axis=1)
    assert (
        np.abs(score - model.predict(X, raw_score=True)).max() < 1e-6
    )  # the replay here is LightGBM's fit
    explainer = axil.Explainer(model, X, labels)
    assert explainer.kind == "additive"
    explanation = explainer.explain(X)
    assert np.abs(explanation.contributions - pushes).max() < 1e-6
    groups = np.arange(N) % 3
    table_ = explainer.group(X[:4], groups)
    expected = np.array([[pushes[i, groups == k].sum() for k in range(3)] for i in range(4)])
    assert (
        np.abs(
            np.sort(table_["contribution"].to_numpy().reshape(4, 3), axis=1)
            - np.sort(expected, axis=1)
        ).max()
        < 1e-6
    )
    with pytest.raises(axil.UnsupportedQuestionError, match="smoothed by row counts"):
        explainer.without(X[:2], [0])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (lgb.LGBMClassifier, {"data_sample_strategy": "goss", "learning_rate": 0.5}),
        (lgb.LGBMClassifier, {"subsample": 0.7, "subsample_freq": 1, "reg_alpha": 0.1}),
        (lgb.LGBMRegressor, {"objective": "poisson", "boosting_type": "dart"}),
    ],
    ids=["goss", "bagging", "poisson dart"],
)
def test_pushes_of_right_data_are_proven_and_of_wrong_ones_are_not(kind, settings):
    X, y, w = table(4)
    targets = y > np.median(y) if kind is lgb.LGBMClassifier else np.round(np.exp(y / 4))
    model = fitted(kind, X, targets, w, path_smooth=3.0, **settings)
    explanation = axil.Explainer(model, X, targets, sample_weight=w).explain(X[:5])
    made = np.asarray(explanation.intercepts) + explanation.contributions.sum(-1)
    assert np.abs(made - model.predict(X[:5], raw_score=True)).max() < 1e-5
    first, last = np.argsort(y)[[0, -1]]
    swapped, shuffled = targets.copy(), np.random.default_rng(2).permutation(targets)
    swapped[[first, last]] = targets[[last, first]]
    for wrong in (swapped, shuffled):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, wrong, sample_weight=w)


@pytest.mark.parametrize("smooth", [2.0, 20.0])
def test_deletions_estimate_counts_again(smooth):
    """Columns of zeros and ones have one bin on each side of a split: the estimate is its share of the weight, rounded."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(N, 4)).astype(float)
    y = (X @ [1.0, -0.5, 0.3, 0.2] + rng.normal(size=N)).astype(np.float32).astype(float)
    w = rng.uniform(0.2, 3.0, size=N)
    model = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=smooth)
    explainer = axil.Explainer(model, X, y, sample_weight=w)
    for gone in ([3], [0, 17, 60, 61, 90, 120]):
        left = np.delete(np.arange(N), gone)
        expected = replay(model, X[left], y[left], w[left], smooth, 0.3)
        with pytest.warns(axil.ApproximationWarning, match="path_smooth=0"):
            changes = explainer.without(X[left], gone)
        np.testing.assert_allclose(changes["after"], expected, rtol=0, atol=1e-6)
    with pytest.warns(axil.ApproximationWarning, match="path_smooth=0"):
        alone = explainer.diagnostics.leave_one_out()["prediction"]
    with pytest.warns(axil.ApproximationWarning, match="path_smooth=0"):
        after = explainer.without(X[[3]], [3])["after"]
    np.testing.assert_allclose(alone[3], after[0], rtol=0, atol=1e-9)


def test_deletions_where_bins_lead_counts_away():
    """Nine bins in a column: estimates are close to LightGBM's own, and no further away than counts in proportion."""
    X, y, w = table()
    y = y.astype(np.float32).astype(float)
    model = fitted(lgb.LGBMRegressor, X, y, w, path_smooth=2.0)
    explainer, apart, moved = axil.Explainer(model, X, y, sample_weight=w), [], []
    for row in range(0, N, 10):
        left = np.delete(np.arange(N), row)
        expected = replay(model, X[left], y[left], w[left], 2.0, 0.3)
        with pytest.warns(axil.ApproximationWarning, match="path_smooth=0"):
            changes = explainer.without(X[left], [row])
        apart.append(np.abs(changes["after"] - expected).mean())
        moved.append(np.abs(changes["before"] - expected).mean())
    assert np.mean(apart) < 0.3 * np.mean(moved)


def test_explainers_of_files_estimate_counts_again(tmp_path):
    X, y, w = table()
    explainer = axil.Explainer(
        fitted(lgb.LGBMRegressor, X, y, w, path_smooth=2.0), X, y, sample_weight=w
    )
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", explainer.model)
    with pytest.warns(axil.ApproximationWarning, match="path_smooth=0"):
        found, expected = (each.without(X[:5], [3, 4]) for each in (loaded, explainer))
    np.testing.assert_array_equal(found["after"], expected["after"])

"""LightGBM models of other losses whose first trees find no split: the start, wherever LightGBM keeps it."""

import lightgbm as lgb
import numpy as np
import pytest
from scipy.special import logit

import axil

N = 60
RNG = np.random.default_rng(5)
X, SCORE = RNG.normal(size=(N, 2)), RNG.normal(size=N)
W = RNG.uniform(0.5, 2.0, N)
TARGETS = {
    "binary": (SCORE > 0.4).astype(int),
    "poisson": RNG.poisson(np.exp(0.3 * SCORE)),
    "multiclass": np.digitize(SCORE, [-0.5, 0.6]),
}
LINKS = {"binary": logit, "poisson": np.log, "multiclass": np.log}
BOOSTING = ("gbdt", "dart")


def shares(objective, weights):
    """Return the scores that a fit of these weights starts from, (K,)."""
    y = TARGETS[objective]
    columns = np.eye(3)[y].T if objective == "multiclass" else y[None]
    return np.array([LINKS[objective](np.average(column, weights=weights)) for column in columns])


def fitted(objective, boosting, from_average):
    settings = {"objective": objective, "boosting": boosting, "boost_from_average": from_average}
    settings |= {
        "min_data_in_leaf": N,
        "verbose": -1,
        "num_class": 3 if objective == "multiclass" else 1,
    }
    return lgb.train(settings, lgb.Dataset(X, TARGETS[objective], weight=W), 4)


@pytest.mark.parametrize("from_average", [True, False])
@pytest.mark.parametrize("boosting", BOOSTING)
@pytest.mark.parametrize("objective", TARGETS)
def test_models_without_a_split(objective, boosting, from_average):
    model, y = fitted(objective, boosting, from_average), TARGETS[objective]
    explainer = axil.Explainer(model, X, y, sample_weight=W)
    explanation = explainer(X[:2])
    expected = shares(objective, W)
    np.testing.assert_allclose(
        model.predict(X[:2], raw_score=True).reshape(2, -1), np.tile(expected, (2, 1)), rtol=1e-6
    )
    np.testing.assert_array_equal(explanation.contributions, 0.0)
    np.testing.assert_allclose(
        explanation.intercepts.reshape(2, -1), np.tile(expected, (2, 1)), rtol=1e-6
    )
    less = np.where(np.arange(N) % 5 == 0, 0.0, W)
    after = np.reshape(explainer.without(X[:2], less == 0)["after"], (2, -1))
    np.testing.assert_allclose(after, np.tile(shares(objective, less), (2, 1)), rtol=1e-6)
    for change in ({"drop": np.flatnonzero(less == 0)}, {"sample_weight": less}):
        again = explainer.refit(**change).model.predict(X[:2], raw_score=True)
        np.testing.assert_allclose(
            again.reshape(2, -1), np.tile(shares(objective, less), (2, 1)), rtol=1e-6
        )


@pytest.mark.parametrize("from_average", [True, False])
@pytest.mark.parametrize("boosting", BOOSTING)
@pytest.mark.parametrize("objective", TARGETS)
def test_derivatives_of_models_without_a_split(objective, boosting, from_average):
    """Of link(mean), by every target."""
    model, y = fitted(objective, boosting, from_average), TARGETS[objective]
    explainer = axil.Explainer(model, X, y, sample_weight=W)
    if objective == "multiclass":
        found = explainer.jacobian.derivatives(X[:2], output=1, target=1)
        np.testing.assert_array_equal(
            explainer.jacobian.derivatives(X[:2], output=0, target=1), 0.0
        )
        slope = 1 / np.average(y == 1, weights=W)
    else:
        found, mean = explainer.jacobian.derivatives(X[:2]), np.average(y, weights=W)
        slope = 1 / mean if objective == "poisson" else 1 / (mean * (1 - mean))
    np.testing.assert_allclose(found, np.tile(slope * W / W.sum(), (2, 1)), rtol=1e-6)


def test_trees_after_a_first_one_without_a_split():
    """The constant is in the scores from the second iteration on, as the start that it is."""
    y = TARGETS["binary"]
    booster = lgb.Booster(
        {"objective": "binary", "boost_from_average": False, "min_data_in_leaf": N, "verbose": -1},
        lgb.Dataset(X, y, weight=W, params={"feature_pre_filter": False}),
    )
    booster.update()
    booster.reset_parameter({"min_data_in_leaf": 5})
    for _ in range(3):
        booster.update()
    sizes = [tree["num_leaves"] for tree in booster.dump_model()["tree_info"]]
    assert sizes[0] == 1
    assert max(sizes) > 1
    explainer = axil.Explainer(booster, X, y, sample_weight=W)
    explanation = explainer(X)
    scores = booster.predict(X, raw_score=True)
    np.testing.assert_allclose(
        explanation.contributions.sum(axis=1) + explanation.intercepts, scores, atol=1e-6
    )
    np.testing.assert_allclose(explanation.intercepts, shares("binary", W)[0], rtol=1e-6)


def test_classes_that_start_later_than_others_are_refused_by_name():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    y = np.where(np.arange(300) < 8, 2, rows[:, 0] > 0).astype(int)
    settings = {
        "objective": "multiclass",
        "num_class": 3,
        "boost_from_average": False,
        "verbose": -1,
    }
    settings |= {"min_sum_hessian_in_leaf": 20, "min_gain_to_split": 5.0}
    model = lgb.train(settings, lgb.Dataset(rows, y), 2)
    first = [tree["num_leaves"] for tree in model.dump_model()["tree_info"]][:3]
    assert min(first) == 1
    assert max(first) > 1
    assert axil.supports(model).kind == "no"
    with pytest.raises(axil.UnsupportedModelError, match="boost_from_average"):
        axil.Explainer(model, rows, y)

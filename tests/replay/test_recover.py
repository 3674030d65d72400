"""Recorded draws, several outputs, offsets: the walk through fits that are not plain."""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import GradientBoostingRegressor

import axil
from axil import ExactnessError, InputError
from axil.methods.method import verified_model
from tests.reference import dense_weights

RNG = np.random.default_rng(0)
X = RNG.random((500, 5))
Y = X @ np.arange(5) + RNG.normal(size=500)
QUIET = {"objective": "regression", "verbose": -1, "seed": 3}


@pytest.fixture(scope="module")
def bagged():
    return lgb.train({**QUIET, "bagging_fraction": 0.6, "bagging_freq": 1}, lgb.Dataset(X, Y), 12)


def bags_of(explainer):
    s = verified_model(explainer).engines[0].structure
    return s.sample_counts[s.cells // s.n_leaves[:, None]].T


def test_replayed_bags_can_be_recorded_and_given_back(bagged):
    explainer = axil.Explainer(bagged, X, Y)
    bags = bags_of(explainer)
    assert set(np.unique(bags)) == {0.0, 1.0}
    assert 0.5 < bags.mean() < 0.7
    again = axil.Explainer(bagged, X, Y, in_bag=bags)
    np.testing.assert_array_equal(again(X[:5]).weights, explainer(X[:5]).weights)


def test_a_bag_that_is_wrong_is_never_used(bagged):
    bags = bags_of(axil.Explainer(bagged, X, Y))
    bags[:, 7] = bags[::-1, 7]
    with pytest.raises(ExactnessError, match="could not be replayed") as caught:
        axil.Explainer(bagged, X, Y, in_bag=bags)
    assert caught.value.tree == 7
    with pytest.raises(ExactnessError, match=r"could not be replayed .* pass them as in_bag="):
        axil.Explainer(bagged, X, Y, in_bag=np.ones_like(bags))


def test_a_replay_that_misses_names_the_sampler_and_the_tree(bagged):
    order = np.random.default_rng(0).permutation(
        len(Y)
    )  # the same rows, but LightGBM draws them by their position
    with pytest.raises(ExactnessError, match=r"LightGBM bagging.*pass them as in_bag=") as caught:
        axil.Explainer(bagged, X[order], Y[order])
    assert caught.value.tree == 0


def test_a_sampler_that_cannot_be_replayed_takes_recorded_bags():
    """scikit-learn without a seed: refused by name, unless the draws are given."""
    model = GradientBoostingRegressor(
        n_estimators=6, subsample=0.5, random_state=np.random.RandomState(5)
    ).fit(X, Y)
    with pytest.raises(axil.UnsupportedModelError, match="random_state"):
        axil.Explainer(model, X, Y)
    seeded = GradientBoostingRegressor(n_estimators=6, subsample=0.5, random_state=5).fit(X, Y)
    bags = bags_of(axil.Explainer(seeded, X, Y))
    explained = axil.Explainer(model, X, Y, in_bag=bags)
    np.testing.assert_allclose(explained(X[:9]).predictions, model.predict(X[:9]), atol=1e-9)


@pytest.mark.parametrize(
    ("bags", "message"),
    [
        (np.ones((499, 12)), r"in_bag has shape \(499, 12\)"),
        (np.ones((500, 11)), "in_bag has 11 columns; expected one for each of the 12 trees"),
        (-np.ones((500, 12)), "negative"),
        ("often", "not numeric|shape"),
    ],
)
def test_bad_bags(bagged, bags, message):
    with pytest.raises(InputError, match=message):
        axil.Explainer(bagged, X, Y, in_bag=bags)


def test_out_of_bag_rows_have_no_weight_in_their_tree():
    model = lgb.train(
        {**QUIET, "bagging_fraction": 0.5, "bagging_freq": 1, "boost_from_average": False},
        lgb.Dataset(X, Y),
        1,
    )
    explainer = axil.Explainer(model, X, Y)
    out = bags_of(explainer)[:, 0] == 0
    assert 150 < out.sum() < 350
    weights = explainer(X).weights
    assert not weights[:, out].any()
    assert weights[:, ~out].any(axis=0).all()


def test_rows_sum_to_one_columns_do_not_under_sampling(bagged):
    K = axil.Explainer(bagged, X, Y).jacobian.matrix()
    np.testing.assert_allclose(K.sum(axis=1), 1.0, atol=1e-12)
    assert np.abs(K.sum(axis=0) - 1.0).max() > 1e-3


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_several_outputs(strategy):
    targets = np.stack([Y, Y**2 / 10, -Y], axis=1)
    model = xgb.XGBRegressor(
        n_estimators=5, multi_strategy=strategy, tree_method="hist", n_jobs=1, base_score=0.5
    ).fit(X, targets)
    explainer = axil.Explainer(model, X, targets)
    explanation = explainer(X[:7])
    own_trees = strategy == "one_output_per_tree"
    assert explanation.weights.shape == ((7, 3, 500) if own_trees else (7, 500))
    np.testing.assert_allclose(explanation.predictions, model.predict(X[:7]), atol=1e-5)
    assert explanation[2:4].weights.shape == ((2, 3, 500) if own_trees else (2, 500))
    assert explanation[1].predictions.shape == (1, 3)
    table = explainer.top(X[:2], 3)
    assert len(table) == 2 * 3 * 3
    assert list(table["output"][:9]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert explainer.jacobian.matrix().shape == ((500, 3, 500) if own_trees else (500, 500))
    for engine, found in zip(
        verified_model(explainer).engines,
        np.swapaxes(explanation.weights.reshape(7, -1, 500), 0, 1),
    ):
        s = engine.structure
        leaves = verified_model(explainer).adapter.leaves(X[:7])
        expected, _ = dense_weights(s, leaves if s.columns is None else leaves[:, s.columns])
        np.testing.assert_allclose(found, expected, atol=1e-13)
    if own_trees:
        v = np.random.default_rng(0).normal(size=(500, 3))
        K = explainer.jacobian.matrix()
        for found, expected in (
            (explainer.jacobian.operator @ v.ravel(), np.einsum("ikj,jk->ik", K, v)),
            (explainer.jacobian.operator.T @ v.ravel(), np.einsum("ikj,ik->jk", K, v)),
        ):
            np.testing.assert_allclose(found.reshape(500, 3), expected, atol=1e-11)


def test_wrong_shapes_of_several_outputs():
    targets = np.stack([Y, -Y], axis=1)
    model = xgb.XGBRegressor(n_estimators=2, n_jobs=1, base_score=0.5).fit(X, targets)
    with pytest.raises(InputError, match=r"expected \(500, 2\)"):
        axil.Explainer(model, X, Y)


def test_held_out_rows_have_weight_zero():
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=5, early_stopping=True, random_state=0).fit(X, Y)
    weights = axil.Explainer(model, X, Y)(X).weights
    assert (~weights.any(axis=0)).sum() == 50


@pytest.mark.parametrize("extra", [{"init_score": Y}, {"in_bag": np.ones((500, 1))}])
def test_a_smoother_takes_neither_offsets_nor_bags(extra):
    from sklearn.linear_model import Ridge

    with pytest.raises(InputError, match="neither init_score nor in_bag"):
        axil.Explainer(Ridge().fit(X, Y), X, Y, **extra)


def test_rows_all_drawn_twice_weigh_as_rows_drawn_once():
    model = lgb.train(QUIET, lgb.Dataset(X, Y), 4)
    once = axil.Explainer(model, X, Y)(X[:5]).weights
    twice = axil.Explainer(model, X, Y, in_bag=np.full((500, 4), 2.0), verify=False)(X[:5]).weights
    np.testing.assert_allclose(twice, once, rtol=0, atol=1e-14)

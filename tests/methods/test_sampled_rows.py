"""Which rows each tree saw, and forests' predictions of rows by the trees that did not see them."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.tree import DecisionTreeRegressor

import axil

RNG = np.random.default_rng(0)
N = 150
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"))
X.index = [f"row {i}" for i in range(N)]
Y = (X["a"] + X["b"] * X["c"]).to_numpy() + RNG.normal(scale=0.3, size=N)
CLASSES = np.array(["one", "three", "two"])[np.digitize(Y, [-0.5, 0.5])]
FORESTS = {
    "forest": lambda: RandomForestRegressor(60, oob_score=True, random_state=0).fit(X, Y),
    "extra trees": lambda: ExtraTreesRegressor(
        60, bootstrap=True, oob_score=True, random_state=0
    ).fit(X, Y),
    "two outputs": lambda: RandomForestRegressor(60, oob_score=True, random_state=0).fit(
        X, np.column_stack([Y, Y**2])
    ),
    "classes": lambda: RandomForestClassifier(60, oob_score=True, random_state=0).fit(X, CLASSES),
    "bagging": lambda: BaggingRegressor(
        DecisionTreeRegressor(min_samples_leaf=3), 60, oob_score=True, random_state=0
    ).fit(X, Y),
}


def targets_of(name):
    return {"two outputs": np.column_stack([Y, Y**2]), "classes": CLASSES}.get(name, Y)


@pytest.mark.parametrize("name", FORESTS)
def test_out_of_bag_predictions_are_those_of_the_library(name):
    forest = FORESTS[name]()
    explainer = axil.Explainer(forest, X, targets_of(name))
    unseen = explainer.diagnostics.out_of_bag()
    expected = getattr(forest, "oob_prediction_", getattr(forest, "oob_decision_function_", None))
    np.testing.assert_allclose(unseen.predictions, expected, rtol=1e-9, atol=1e-12)
    assert list(unseen.query_index) == list(X.index)
    np.testing.assert_array_equal(np.diagonal(unseen.weights), 0.0)
    np.testing.assert_allclose(unseen.weights.sum(axis=-1), 1.0)
    some = explainer.diagnostics.out_of_bag(["row 7", "row 3"])
    np.testing.assert_allclose(some.weights, unseen.weights[[7, 3]])
    n_outputs = 1
    if unseen.outputs is not None:
        n_outputs = len(unseen.outputs)
    assert len(unseen.top(2)) == 2 * N * n_outputs


def test_weights_out_of_bag_are_means_over_the_trees_that_did_not_see_the_row():
    forest = FORESTS["forest"]()
    explainer = axil.Explainer(forest, X, Y)
    counts = explainer.diagnostics.in_bag()
    leaves = forest.apply(X)
    row = 11
    expected = np.zeros(N)
    unseen_trees = np.flatnonzero(counts[row] == 0)
    for tree in unseen_trees:
        own = counts[:, tree] * (leaves[:, tree] == leaves[row, tree])
        expected += own / own.sum() / len(unseen_trees)
    np.testing.assert_allclose(explainer.diagnostics.out_of_bag(["row 11"]).weights[0], expected)


def test_counts_are_those_of_the_bootstrap():
    forest = FORESTS["forest"]()
    counts = axil.Explainer(forest, X, Y).diagnostics.in_bag()
    for tree, sampled in enumerate(forest.estimators_samples_):
        np.testing.assert_array_equal(counts[:, tree], np.bincount(sampled, minlength=N))
    again = axil.Explainer(forest, X, Y, in_bag=counts)
    np.testing.assert_allclose(
        again(X.head(3)).weights, axil.Explainer(forest, X, Y)(X.head(3)).weights
    )


@pytest.mark.parametrize("objective", ["regression", "poisson"])
def test_counts_of_boosted_trees_sum_to_their_leaves(objective):
    settings = {"n_estimators": 6, "bagging_fraction": 0.6, "bagging_freq": 1, "verbose": -1}
    y = Y
    if objective == "poisson":
        y = np.round(np.exp(Y))
    model = lgb.LGBMRegressor(objective=objective, **settings).fit(X, y)
    counts = axil.Explainer(model, X, y).diagnostics.in_bag()
    assert counts.shape == (N, 6)
    leaves = model.predict(X, pred_leaf=True)
    trees = model.booster_.trees_to_dataframe()
    trees = trees[trees["node_index"].str.contains("L")]
    for tree in range(6):
        own = trees[trees["tree_index"] == tree]
        places = own["node_index"].str.split("L").str[1].astype(int)
        found = np.bincount(leaves[:, tree], counts[:, tree], minlength=len(own))
        np.testing.assert_array_equal(found[places], own["count"])


def test_rows_that_early_stopping_held_out_were_seen_by_no_tree():
    model = HistGradientBoostingRegressor(max_iter=5, early_stopping=True, random_state=0)
    counts = axil.Explainer(model.fit(X, Y), X, Y).diagnostics.in_bag()
    assert set(counts.sum(axis=1)) == {0.0, float(counts.shape[1])}
    assert (counts.sum(axis=1) == 0).sum() == 15


def test_quantiles_without_sampling_see_every_row():
    model = lgb.LGBMRegressor(objective="quantile", n_estimators=4, verbose=-1).fit(X, Y)
    counts = axil.Explainer(model, X, Y).diagnostics.in_bag()
    np.testing.assert_array_equal(counts, np.ones((N, 4)))
    assert axil.leaves(model, X).shape == (N, 4)


LIBRARIES = {
    "lightgbm": (
        lambda: lgb.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, Y),
        lambda model: model.predict(X, pred_leaf=True),
    ),
    "xgboost": (
        lambda: xgb.XGBClassifier(n_estimators=4).fit(X, Y > 0),
        lambda model: model.apply(X),
    ),
    "forest": (FORESTS["forest"], lambda model: model.apply(X)),
    "gradient boosting": (
        lambda: GradientBoostingRegressor(n_estimators=5).fit(X, Y),
        lambda model: model.apply(X),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_leaves_are_those_of_the_library_but_for_their_numbers(name):
    make, leaves_of = LIBRARIES[name]
    model = make()
    expected = np.asarray(leaves_of(model)).reshape(N, -1)
    found = axil.leaves(model, X)
    assert found.shape == expected.shape
    for own, other in zip(found.T, expected.T):
        pairs = set(zip(own.tolist(), other.tolist()))
        assert len(pairs) == len(set(own.tolist())) == len(set(other.tolist()))


def test_what_is_refused():
    boosting = axil.Explainer(lgb.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, Y), X, Y)
    with pytest.raises(axil.UnsupportedQuestionError, match="no forest whose trees leave rows out"):
        boosting.diagnostics.out_of_bag()
    classes = axil.Explainer(
        lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, CLASSES), X, CLASSES
    )
    with pytest.raises(axil.UnsupportedQuestionError, match="out_of_bag"):
        classes.diagnostics.out_of_bag()
    for model, y in ((Ridge(), Y), (RidgeClassifier(), CLASSES)):
        linear = axil.Explainer(model.fit(X, y), X, y)
        with pytest.raises(axil.UnsupportedQuestionError, match="no trees of its own"):
            linear.diagnostics.in_bag()
    few = RandomForestRegressor(1, random_state=0).fit(X, Y)
    explainer = axil.Explainer(few, X, Y)
    seen = np.flatnonzero(explainer.diagnostics.in_bag()[:, 0])[0]
    with pytest.raises(axil.InputError, match="Every tree was fitted on row"):
        explainer.diagnostics.out_of_bag([f"row {seen}"])
    assert len(explainer.diagnostics.out_of_bag()) == (explainer.diagnostics.in_bag() == 0).sum()

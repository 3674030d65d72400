"""without, of averages: members and trees without rows are no part of the mean."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor
from xgboost import XGBRegressor

import axil
from axil.methods.method import verified_model
from tests.methods.method_models import forest_data
from tests.replay.monotone_models import Tree, clipped


def test_probabilities_without_rows_add_up_to_one():
    X, y = load_wine(return_X_y=True)
    model = RandomForestClassifier(20, random_state=0).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    with pytest.warns(axil.SplitsWarning):
        table = explainer.without(X, y == 1)
    np.testing.assert_allclose(table.groupby("query")["after"].sum(), 1.0, atol=1e-12)
    np.testing.assert_array_equal(table[table["output"] == 1]["after"], 0.0)
    np.testing.assert_allclose(
        explainer.without(X, [70]).groupby("query")["after"].sum(), 1.0, atol=1e-12
    )


BAGS = {
    "boosting": BaggingRegressor(
        GradientBoostingRegressor(n_estimators=3), 4, max_samples=5, random_state=0
    ),
    "neighbouring trees": VotingRegressor(
        [("a", DecisionTreeRegressor()), ("b", RandomForestRegressor(3, random_state=0))]
    ),
    "trees and a line": VotingRegressor(
        [("a", DecisionTreeRegressor()), ("b", Ridge())], weights=[3, 1]
    ),
}


@pytest.mark.parametrize("name", BAGS)
def test_models_without_rows_are_no_part_of_the_mean(name):
    """A boosted model has no prediction once all rows of its bag are gone."""
    X, y, Q = forest_data()
    model = clone(BAGS[name]).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    gone = model.estimators_samples_[0] if name == "boosting" else np.arange(0, 40, 2)
    sizes, found, total = (
        [3, 1] if name == "trees and a line" else [1] * len(model.estimators_),
        0.0,
        0.0,
    )
    for i, (size, member) in enumerate(zip(sizes, model.estimators_)):
        if name == "boosting":
            if i == 0:
                continue  # no row of its bag is left
            w = np.bincount(model.estimators_samples_[i], minlength=40).astype(float)
            inside = axil.Explainer(member, X, y, sample_weight=w)
        else:
            inside = axil.Explainer(member, X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            after = inside.without(Q, gone)["after"].to_numpy()
        found += size * np.nan_to_num(after)
        total += size * ~np.isnan(after)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = np.where(total > 0, found / np.maximum(total, 1e-300), np.nan)
        np.testing.assert_allclose(explainer.without(Q, gone)["after"], expected, atol=1e-10)
        single = np.stack([explainer.without(Q, [j])["change"] for j in range(40)], axis=1)
        np.testing.assert_allclose(explainer.removal(Q, method="exact"), single, atol=1e-10)
        left_out = explainer.diagnostics.leave_one_out()
        own = np.array([explainer.without(X[[j]], [j])["after"][0] for j in range(40)])
    kept = ~left_out["alone"]
    np.testing.assert_allclose(left_out["prediction"][kept], own[kept], atol=1e-10)
    assert name == "boosting" or np.array_equal(
        kept, ~np.isnan(own)
    )  # boosted rows that are alone in a leaf have none


def test_rows_that_hold_much_of_the_weight_are_told():
    X, y, new = forest_data()
    weights = np.where(np.arange(40) < 2, 10.0, 1.0)  # two rows of 40 hold a third
    explainer = axil.Explainer(
        GradientBoostingRegressor(n_estimators=3).fit(X, y, weights), X, y, sample_weight=weights
    )
    with pytest.warns(axil.SplitsWarning, match="rows deleted hold 34 % of the weight of the fit"):
        explainer.without(new, [0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", axil.SplitsWarning)
        explainer.without(new, [2, 3, 4])
    line = axil.Explainer(Ridge().fit(X, y), X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", axil.SplitsWarning)
        line.without(new, np.arange(20))  # a linear model has no splits
    boosted = axil.Explainer(GradientBoostingRegressor(n_estimators=3).fit(X, y), X, y)
    with pytest.warns(axil.SplitsWarning, match="hold 50 %"):
        boosted.refit(drop=np.arange(20))


def test_a_label_that_several_rows_share_names_all_of_them():
    """A deletion request names a customer; in memory, of a classifier and in partitions."""
    frames = pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    customer = rng.integers(0, 30, 120)
    X = pd.DataFrame(
        rng.normal(size=(120, 3)), columns=list("abc"), index=np.sort(customer)
    ).rename_axis("customer")
    y = X["a"] + rng.normal(size=120)
    small = {"n_estimators": 5, "num_leaves": 4, "verbose": -1, "n_jobs": 1}
    named, gone = [3, 7], X.index.isin([3, 7])
    classes = (y > 0).astype(int)
    for model, targets in ((LGBMRegressor(**small), y), (LGBMClassifier(**small), classes)):
        explainer = axil.Explainer(model.fit(X, targets), X, targets)
        table = explainer.without(X.head(3), named)
        pd.testing.assert_frame_equal(table, explainer.without(X.head(3), gone))
        assert table.attrs["deleted"] == gone.sum() > 2
        assert len(explainer.refit(drop=named).index) == (~gone).sum()
    parts = (
        frames.from_pandas(X, npartitions=2, sort=False),
        frames.from_pandas(y, npartitions=2, sort=False),
    )
    table = axil.Explainer(LGBMRegressor(**small).fit(X, y), *parts).without(X.head(3), named)
    assert table.attrs["deleted"] == gone.sum()


MONOTONE_SIGNS = np.array([1, 0, 0, 1])


def trees_of(model, X, weights):
    """Return XGBoost's trees, in which splits bound nothing that have a child without rows."""
    document = json.loads(model.get_booster().save_raw("json"))
    leaves = model.apply(X).astype(int)
    trees = []
    for nodes, leaf in zip(document["learner"]["gradient_booster"]["model"]["trees"], leaves.T):
        left_children = np.array(nodes["left_children"])
        right_children = np.array(nodes["right_children"])
        features = np.minimum(nodes["split_indices"], len(MONOTONE_SIGNS) - 1)
        no_signs = np.zeros_like(left_children)
        unsigned = Tree(left_children, right_children, no_signs, leaf, np.zeros(len(no_signs)))
        has_rows = unsigned.totals(weights) > 0
        is_bounding = (left_children >= 0) & has_rows[left_children] & has_rows[right_children]
        signs = np.where(is_bounding, MONOTONE_SIGNS[features], 0)
        trees.append(replace(unsigned, signs=signs))
    return trees


def refit_predictions(trees, targets, weights, coefficients):
    """Return the predictions (N,) of the leaves of XGBoost, fitted to rows of these weights.

    A node without rows has the value zero before it is bounded. ``coefficients`` (T + 1, T) say how
    much each tree counts in the scores that each tree is fitted to, and in predictions.
    """
    base = np.average(targets, weights=weights)
    additions = np.zeros((len(targets), len(trees)))
    for t, tree in enumerate(trees):
        scores = base + additions @ coefficients[t]
        totals = tree.totals(weights)
        sums = tree.totals(weights * (targets - scores))
        raw = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
        additions[:, t] = clipped(tree, raw)[tree.rows]
    return base + additions @ coefficients[-1]


def fit_that_loses_all_bounds(booster, seed):
    """Return a monotone model, its data, and rows without which no monotone split is left."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] + rng.normal(size=60)
    rows = np.flatnonzero(rng.random(60) < 0.93)
    model = XGBRegressor(
        booster=booster,
        n_estimators=15,
        max_depth=6,
        min_child_weight=0,
        learning_rate=0.5,
        reg_lambda=0,
        monotone_constraints=tuple(MONOTONE_SIGNS.tolist()),
        n_jobs=1,
        random_state=seed,
    )
    if booster == "dart":
        model.set_params(rate_drop=0.5)
    return model.fit(X, y), X, y, rows


@pytest.mark.parametrize(("booster", "seed"), [("gbtree", 7), ("dart", 7), ("dart", 24)])
def test_bounds_end_where_every_monotone_split_has_a_child_without_rows(booster, seed):
    model, X, y, rows = fit_that_loses_all_bounds(booster, seed)
    explainer = axil.Explainer(model, X, y)
    (structure,) = verified_model(explainer).trees.structures
    coefficients = np.tri(16, 15, -1) * structure.learning_rates
    if structure.coefficients is not None:
        coefficients = structure.coefficients.omega
    weights = np.ones(60)
    trees = trees_of(model, X, weights)
    assert any(tree.signs.any() for tree in trees)
    # Targets are kept in float32, and XGBoost adds scores up in float32.
    of_fit = refit_predictions(trees, y, weights, coefficients)
    np.testing.assert_allclose(of_fit, model.predict(X), atol=1e-6)
    weights[rows] = 0.0
    trees = trees_of(model, X, weights)
    assert not any(tree.signs.any() for tree in trees)
    expected = refit_predictions(trees, y, weights, coefficients)
    with pytest.warns(axil.SplitsWarning):
        after = explainer.without(X, rows)["after"]
    np.testing.assert_allclose(after, expected, atol=1e-6)
    with pytest.warns(axil.SplitsWarning):
        refitted = explainer.refit(drop=rows)
    np.testing.assert_allclose(refitted.model.predict(X), expected, atol=1e-6)
    np.testing.assert_allclose(refitted.without(X, [])["before"], expected, atol=1e-6)


def test_bounds_end_over_partitions_as_on_one_machine():
    arrays = pytest.importorskip("dask.array")
    model, X, y, rows = fit_that_loses_all_bounds("dart", 7)
    columns = arrays.from_array(X, chunks=(20, 4)), arrays.from_array(y, chunks=20)
    in_partitions = axil.Explainer(model, *columns)
    with pytest.warns(axil.SplitsWarning):
        after = in_partitions.without(X, rows)["after"]
    with pytest.warns(axil.SplitsWarning):
        refitted = axil.Explainer(model, X, y).refit(drop=rows)
    np.testing.assert_allclose(after, refitted.model.predict(X), atol=1e-6)

"""Models made in steps: pruned, warm-started, continued, summed. Exact, or refused by name; the data are not blamed."""

import pickle
import warnings

import catboost as cb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, RandomForestRegressor

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 5))
Y = X[:, 0] * 2 + X[:, 1] ** 2 + RNG.normal(size=100)
WRONG = Y + 0.5 * (np.arange(100) == 7)


def refuse(model, setting, says, X=X, y=Y):
    with pytest.raises(axil.UnsupportedModelError, match=says) as caught:
        axil.Explainer(model, X, y)
    assert caught.value.setting == setting


def updated(updater, tree_method="hist", **params):
    rows = xgb.DMatrix(X, Y)
    how = {"max_depth": 5, "tree_method": tree_method, "verbosity": 0}
    grown = xgb.train(how, rows, 10)
    return xgb.train(
        {**how, "process_type": "update", "updater": updater, **params}, rows, 10, xgb_model=grown
    )


def through_file(booster, path):
    booster.save_model(path)
    return xgb.Booster(model_file=path)


@pytest.mark.parametrize("tree_method", ["hist", "exact"])
def test_trees_pruned_after_the_fit_are_refused(tree_method, tmp_path):
    booster = updated("prune", tree_method, gamma=5.0)
    loaded = [through_file(booster, tmp_path / name) for name in ("model.json", "model.ubj")]
    for model in (booster, *loaded, pickle.loads(pickle.dumps(booster))):
        refuse(model, "updater", "process_type=update")


@pytest.mark.parametrize(
    ("updater", "params"), [("prune", {}), ("refresh", {}), ("refresh", {"refresh_leaf": False})]
)
def test_updates_that_change_nothing_are_exact(updater, params):
    assert axil.Explainer(updated(updater, **params), X, Y).verification.max_error < 1e-6


def test_pruned_trees_of_an_ordinary_fit_are_exact_and_wrong_targets_noticed(tmp_path):
    """tree_method=exact prunes what it has grown: no update."""
    booster = xgb.train(
        {"tree_method": "exact", "gamma": 5.0, "verbosity": 0}, xgb.DMatrix(X, Y), 10
    )
    for model in (booster, through_file(booster, tmp_path / "model.json")):
        axil.Explainer(model, X, Y)
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, WRONG)


def in_steps(model, *steps, second=(X, Y)):
    """Fitted with warm_start; a step is settings that change before it."""
    data = (X, Y)
    for settings in steps:
        model.set_params(**settings).fit(*data)
        data = second
    return model


FORESTS = (BaggingRegressor, RandomForestRegressor)


@pytest.mark.parametrize("kind", FORESTS)
def test_forests_grown_in_steps_are_replayed(kind):
    model = in_steps(
        kind(warm_start=True, random_state=0),
        {"n_estimators": 3},
        {"n_estimators": 6},
        {"n_estimators": 9},
    )
    assert axil.Explainer(model, X, Y).verification.max_error < 1e-12


def test_bags_of_classes_grown_in_steps_are_replayed():
    labels = Y > 0
    model = BaggingClassifier(n_estimators=3, warm_start=True, random_state=0).fit(X, labels)
    model.set_params(n_estimators=7).fit(X, labels)
    assert axil.Explainer(model, X, labels).verification.max_error < 1e-12


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((kind, {"max_samples": 0.5}) for kind in FORESTS),
        (BaggingRegressor, {"random_state": 1}),
    ],  # a forest keeps seeds
)
def test_forests_grown_with_other_settings_are_refused(kind, change):
    model = in_steps(
        kind(warm_start=True, random_state=0), {"n_estimators": 4}, {"n_estimators": 8, **change}
    )
    refuse(model, "warm_start", "4 last trees that agree")


@pytest.mark.parametrize("kind", FORESTS)
def test_forests_grown_on_other_rows_are_refused(kind):
    more = np.vstack([X, X]), np.tile(Y, 2)
    model = in_steps(
        kind(warm_start=True, random_state=0), {"n_estimators": 4}, {"n_estimators": 8}, second=more
    )
    refuse(model, "warm_start", "other rows or with other settings", *more)


@pytest.mark.parametrize("kind", FORESTS)
def test_wrong_targets_of_forests_grown_in_steps_are_blamed(kind):
    """A wrong target shows in the trees that drew its row, which lie here and there."""
    model = in_steps(
        kind(warm_start=True, random_state=0), {"n_estimators": 5}, {"n_estimators": 10}
    )
    for wrong in (WRONG, Y[::-1]):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, wrong)


def boosted(rows=slice(None), init=None, **params):
    how = {
        "iterations": 3,
        "depth": 3,
        "learning_rate": 0.3,
        "verbose": 0,
        "allow_writing_files": False,
        **params,
    }
    return cb.CatBoostRegressor(**how).fit(X[rows], Y[rows], init_model=init)


def test_catboost_models_continued_from_another_kind_are_refused():
    for first in (
        boosted(loss_function="MAE"),
        boosted(l2_leaf_reg=7, leaf_estimation_iterations=3),
    ):
        refuse(boosted(init=first), "init_model", "another loss, on other rows, or with settings")
    part = boosted(rows=slice(50), init=boosted())
    refuse(part, "init_model", "3 of 6 trees")  # the rows of the first fit
    refuse(part, "init_model", "3 of 6 trees", X[:50], Y[:50])  # and those of the second


def test_continued_catboost_models_are_exact_and_wrong_targets_blamed():
    model = boosted(init=boosted(l2_leaf_reg=7))
    axil.Explainer(model, X, Y)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, WRONG)


def test_sums_of_catboost_models_are_refused(tmp_path):
    summed = cb.sum_models([boosted(), boosted(depth=2)], weights=[0.5, 0.5])
    summed.save_model(str(tmp_path / "model.cbm"))
    loaded = cb.CatBoost().load_model(str(tmp_path / "model.cbm"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        continued = boosted(init=summed)
    for model in (summed, loaded, continued):
        refuse(model, "sum_models", "2 models")


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
@pytest.mark.parametrize("from_average", [True, False])
def test_catboost_models_cut_after_a_fit_that_shrank_them_are_exact(mode, from_average):
    """Trees that are taken off had shrunk those before them."""
    how = {
        "iterations": 9,
        "model_shrink_rate": 0.3,
        "model_shrink_mode": mode,
        "boost_from_average": from_average,
    }
    for n_trees in (1, 4):
        model = boosted(**how)
        model.shrink(n_trees)
        axil.Explainer(model, X, Y)
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, WRONG)

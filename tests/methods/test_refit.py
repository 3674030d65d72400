"""refit: the model again at its own splits, written as a model of its library."""

from __future__ import annotations

import pickle

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn import ensemble, linear_model, neighbors
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import axil
from axil.methods.method import verified_model
from axil.methods.refit import with_features
from tests.adapters.xgboost_models import VERSION as XGBOOST

N, TRAIN = 260, 200
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"), index=[f"r{i}" for i in range(N)])
LEVEL = X["a"] + np.sin(3 * X["b"]) + RNG.normal(size=N) / 2
TARGETS = {
    "numbers": LEVEL + 5,
    "two": pd.Series(np.where(LEVEL > 0, "yes", "no"), index=X.index),
    "three": pd.Series(np.digitize(LEVEL, [-0.5, 0.6]), index=X.index),
    "counts": pd.Series(RNG.poisson(np.exp(LEVEL / 2)), index=X.index).astype(float),
    "prices": np.exp(LEVEL),
}
LIGHT = {"n_estimators": 8, "num_leaves": 6, "verbose": -1, "n_jobs": 1}
XGB = {"n_estimators": 8, "max_depth": 3, "n_jobs": 1}
CAT = {"iterations": 8, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
MODELS = {
    "lightgbm": (lightgbm.LGBMRegressor(**LIGHT), "numbers"),
    "lightgbm l1": (lightgbm.LGBMRegressor(**LIGHT, reg_alpha=2.0, reg_lambda=1.0), "numbers"),
    "lightgbm monotone": (
        lightgbm.LGBMRegressor(**LIGHT, monotone_constraints=[1, 0, -1]),
        "numbers",
    ),
    "lightgbm clipped": (lightgbm.LGBMRegressor(**LIGHT, max_delta_step=0.5), "numbers"),
    "lightgbm bagging": (
        lightgbm.LGBMRegressor(**LIGHT, subsample=0.7, subsample_freq=1),
        "numbers",
    ),
    "lightgbm goss": (
        lightgbm.LGBMRegressor(**LIGHT, data_sample_strategy="goss", learning_rate=0.5),
        "numbers",
    ),
    "lightgbm dart": (
        lightgbm.LGBMRegressor(**LIGHT, boosting_type="dart", drop_rate=0.5),
        "numbers",
    ),
    "lightgbm forest": (
        lightgbm.LGBMRegressor(**LIGHT, boosting_type="rf", subsample=0.7, subsample_freq=1),
        "numbers",
    ),
    "lightgbm median": (lightgbm.LGBMRegressor(**LIGHT, objective="l1"), "numbers"),
    "lightgbm quantile bagging": (
        lightgbm.LGBMRegressor(
            **LIGHT, objective="quantile", alpha=0.8, subsample=0.7, subsample_freq=1
        ),
        "numbers",
    ),
    "lightgbm mape": (lightgbm.LGBMRegressor(**LIGHT, objective="mape"), "numbers"),
    "xgboost median": (xgboost.XGBRegressor(**XGB, objective="reg:absoluteerror"), "numbers"),
    "xgboost quantile subsample": (
        xgboost.XGBRegressor(
            **XGB, objective="reg:quantileerror", quantile_alpha=0.8, subsample=0.7
        ),
        "numbers",
    ),
    "xgboost median parallel": (
        xgboost.XGBRegressor(
            **XGB, objective="reg:absoluteerror", num_parallel_tree=2, subsample=0.7
        ),
        "numbers",
    ),
    "catboost median": (catboost.CatBoostRegressor(**CAT, loss_function="MAE"), "numbers"),
    "stages quantile": (
        ensemble.GradientBoostingRegressor(
            n_estimators=8, loss="quantile", alpha=0.8, subsample=0.7, random_state=0
        ),
        "numbers",
    ),
    "histograms median": (
        ensemble.HistGradientBoostingRegressor(max_iter=8, loss="absolute_error"),
        "numbers",
    ),
    "forest of medians": (
        ensemble.RandomForestRegressor(
            5, criterion="absolute_error", min_samples_leaf=8, random_state=0
        ),
        "numbers",
    ),
    "lightgbm two": (lightgbm.LGBMClassifier(**LIGHT, scale_pos_weight=2.0), "two"),
    "lightgbm two bagging": (
        lightgbm.LGBMClassifier(**LIGHT, subsample=0.7, subsample_freq=1),
        "two",
    ),
    "lightgbm three": (lightgbm.LGBMClassifier(**LIGHT), "three"),
    "lightgbm counts": (lightgbm.LGBMRegressor(**LIGHT, objective="poisson"), "counts"),
    "xgboost": (xgboost.XGBRegressor(**XGB), "numbers"),
    "xgboost l1": (xgboost.XGBRegressor(**XGB, reg_alpha=2.0), "numbers"),
    "xgboost monotone": (xgboost.XGBRegressor(**XGB, monotone_constraints=(1, 0, -1)), "numbers"),
    "xgboost subsample": (xgboost.XGBRegressor(**XGB, subsample=0.7), "numbers"),
    "xgboost dart": (xgboost.XGBRegressor(**XGB, booster="dart", rate_drop=0.5), "numbers"),
    "xgboost parallel": (
        xgboost.XGBRegressor(**XGB, num_parallel_tree=2, subsample=0.7),
        "numbers",
    ),
    "xgboost forest": (xgboost.XGBRFRegressor(**XGB), "numbers"),
    "xgboost two": (xgboost.XGBClassifier(**XGB), "two numbers"),
    "xgboost three": (xgboost.XGBClassifier(**XGB), "three"),
    "xgboost three vector leaves": (
        xgboost.XGBClassifier(**XGB, multi_strategy="multi_output_tree"),
        "three",
    ),
    "xgboost two by weight of class": (
        xgboost.XGBClassifier(**XGB, scale_pos_weight=3.0),
        "two numbers",
    ),
    "xgboost two stumps": (xgboost.XGBClassifier(**{**XGB, "max_depth": 1}), "two numbers"),
    "xgboost two stumps l1": (
        xgboost.XGBClassifier(**{**XGB, "max_depth": 1}, reg_alpha=0.5),
        "two numbers",
    ),
    "xgboost two clipped": (xgboost.XGBClassifier(**XGB, max_delta_step=0.4), "two numbers"),
    "xgboost counts": (xgboost.XGBRegressor(**XGB, objective="count:poisson"), "counts"),
    "catboost": (catboost.CatBoostRegressor(**CAT), "numbers"),
    "catboost depthwise": (catboost.CatBoostRegressor(**CAT, grow_policy="Depthwise"), "numbers"),
    "catboost two": (catboost.CatBoostClassifier(**CAT), "two"),
    "catboost three": (catboost.CatBoostClassifier(**CAT), "three"),
    "stages": (ensemble.GradientBoostingRegressor(n_estimators=8), "numbers"),
    "stages subsample": (
        ensemble.GradientBoostingRegressor(n_estimators=8, subsample=0.7, random_state=0),
        "numbers",
    ),
    "stages early": (
        ensemble.GradientBoostingRegressor(n_estimators=8, n_iter_no_change=3, random_state=0),
        "numbers",
    ),
    "stages two": (ensemble.GradientBoostingClassifier(n_estimators=8), "two"),
    "stages three": (ensemble.GradientBoostingClassifier(n_estimators=8), "three"),
    "histograms": (ensemble.HistGradientBoostingRegressor(max_iter=8), "numbers"),
    "histograms early": (
        ensemble.HistGradientBoostingRegressor(max_iter=8, early_stopping=True, random_state=0),
        "numbers",
    ),
    "histograms three": (ensemble.HistGradientBoostingClassifier(max_iter=8), "three"),
    "forest": (ensemble.RandomForestRegressor(8, min_samples_leaf=25, random_state=0), "numbers"),
    "tree three": (DecisionTreeClassifier(min_samples_leaf=30), "three"),
    "tree two monotone": (
        DecisionTreeClassifier(min_samples_leaf=12, monotonic_cst=[-1, 0, -1]),
        "two",
    ),
    "trees two monotone": (
        ensemble.ExtraTreesClassifier(
            5, min_samples_leaf=12, monotonic_cst=[-1, 0, -1], random_state=0
        ),
        "two",
    ),
    "line": (linear_model.LinearRegression(), "numbers"),
    "ridge": (linear_model.RidgeCV(), "numbers"),
    "pipeline": (make_pipeline(StandardScaler(), lightgbm.LGBMRegressor(**LIGHT)), "numbers"),
    "search": (
        GridSearchCV(lightgbm.LGBMRegressor(**LIGHT), {"num_leaves": [4, 6]}, cv=2),
        "numbers",
    ),
    "logarithms": (
        TransformedTargetRegressor(
            lightgbm.LGBMRegressor(**LIGHT), func=np.log, inverse_func=np.exp
        ),
        "prices",
    ),
}
if XGBOOST < (3, 1):  # which trains no parallel trees of medians
    del MODELS["xgboost median parallel"]
TARGETS["two numbers"] = (TARGETS["two"] == "yes").astype(int)
SINGLE = 3e-6  # libraries that keep targets in single precision


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model, name = MODELS[request.param]
    y = TARGETS[name]
    model.fit(X[:TRAIN], y[:TRAIN])
    return request.param, axil.Explainer(model, X[:TRAIN], y[:TRAIN]), y


def predicted(explainer, rows):
    """What the library itself predicts: classes as probabilities."""
    model = explainer.model
    return np.asarray(
        model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
    )


def test_dropped_rows_give_the_model_of_without(fitted):
    _, explainer, _ = fitted
    gone, queries = list(X.index[:9]), X[TRAIN : TRAIN + 20]
    before = predicted(explainer, queries)
    again = explainer.refit(drop=gone)
    assert type(again.model) is type(explainer.model)
    assert set(again.index) <= set(X.index[9:TRAIN])
    assert np.array_equal(predicted(explainer, queries), before)  # the old model is as it was
    after = explainer.without(queries, gone)
    predictions_after = again.without(queries, [])["after"].to_numpy()
    assert np.allclose(predictions_after, after["after"], rtol=SINGLE, atol=SINGLE)


def test_other_targets_give_the_model_of_what_if(fitted):
    name, explainer, y = fitted
    changed, queries = {"r3": y.iloc[10], "r4": y.iloc[50]}, X[TRAIN : TRAIN + 20]
    again = explainer.refit(targets=changed)
    if name in ("lightgbm l1", "lightgbm clipped", "xgboost l1") or "monotone" in name:
        return
    if explainer.verification.active_set is not None and explainer.verification.active_set.ranked:
        return  # what_if holds the ranks
    after = explainer.what_if(queries, changed)["after"].to_numpy()
    predictions_after = again.what_if(queries, {})["after"].to_numpy()
    assert np.allclose(predictions_after, after, rtol=SINGLE, atol=SINGLE)


def test_added_rows_are_in_the_proof_and_in_the_next_refit(fitted):
    name, explainer, y = fitted
    again = explainer.refit(add=(X[TRAIN:], y[TRAIN:]))
    assert list(again.index[-3:]) == list(X.index[-3:])
    assert again.verification.n_rows == len(again.index) > len(explainer.index) * 0.9
    back = again.refit(drop=list(X.index[TRAIN:]))
    if "early" not in name:  # which leaves the rows out that were held out
        assert np.allclose(
            predicted(back, X[TRAIN:]), predicted(explainer, X[TRAIN:]), rtol=SINGLE, atol=SINGLE
        )


@pytest.mark.parametrize(
    "name", ["lightgbm", "lightgbm three", "xgboost", "xgboost two", "catboost", "catboost three"]
)
def test_libraries_save_and_load_what_was_written(name, tmp_path):
    model, target = MODELS[name]
    y = TARGETS[target]
    again = axil.Explainer(model.fit(X[:TRAIN], y[:TRAIN]), X[:TRAIN], y[:TRAIN]).refit(
        drop=["r1", "r2"]
    )
    queries, path = X[TRAIN:], str(tmp_path / "model.json")
    if "lightgbm" in name:
        loaded = lightgbm.Booster(model_str=again.model.booster_.model_to_string())
        assert np.array_equal(
            loaded.predict(queries, raw_score=True), again.model.predict(queries, raw_score=True)
        )
        shares = again.model.predict(queries, pred_contrib=True).reshape(
            len(queries), -1, X.shape[1] + 1
        )
        scores = again.model.predict(queries, raw_score=True).reshape(len(queries), -1)
        assert np.allclose(shares.sum(axis=2), scores)
    elif "xgboost" in name:
        again.model.save_model(path)
        loaded = xgboost.Booster(model_file=path)
        found = again.model.get_booster().predict(xgboost.DMatrix(queries))
        assert np.array_equal(loaded.predict(xgboost.DMatrix(queries)), found)
    else:
        again.model.save_model(path, format="json")
        loaded = type(model)().load_model(path, format="json")
        found, expected = (
            each.predict(queries, prediction_type="RawFormulaVal") for each in (loaded, again.model)
        )
        assert np.allclose(found, expected, rtol=1e-12)
    copied = pickle.loads(pickle.dumps(again.model))
    assert np.array_equal(copied.predict(queries), again.model.predict(queries))


def test_node_counts_and_weights_are_those_of_the_new_rows():
    y = TARGETS["numbers"]
    model = lightgbm.LGBMRegressor(**LIGHT).fit(X[:TRAIN], y[:TRAIN])
    again = axil.Explainer(model, X[:TRAIN], y[:TRAIN]).refit(drop=list(X.index[:50]))
    tree = again.model.booster_.dump_model()["tree_info"][0]["tree_structure"]
    assert tree["internal_count"] == tree["internal_weight"] == 150
    assert tree["internal_value"] == pytest.approx(y[50:TRAIN].mean(), rel=1e-6)
    forest = ensemble.RandomForestRegressor(3, min_samples_leaf=40, bootstrap=False).fit(
        X[:TRAIN], y[:TRAIN]
    )
    again = axil.Explainer(forest, X[:TRAIN], y[:TRAIN]).refit(drop=list(X.index[:9]))
    assert [tree.tree_.n_node_samples[0] for tree in again.model.estimators_] == [191] * 3
    assert again.model.estimators_[0].tree_.value[0].item() == pytest.approx(y[9:TRAIN].mean())


WHOLE = {
    "extra": (ensemble.ExtraTreesRegressor(4, min_samples_leaf=20, random_state=0), "numbers"),
    "forest": (
        ensemble.RandomForestRegressor(
            4, bootstrap=False, max_features=2, min_samples_leaf=20, random_state=0
        ),
        "numbers",
    ),
    "extra three": (ensemble.ExtraTreesClassifier(4, min_samples_leaf=20, random_state=0), "three"),
    "forest two": (
        ensemble.RandomForestClassifier(
            4, bootstrap=False, max_features=2, min_samples_leaf=20, random_state=0
        ),
        "two",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_forests_of_weighted_rows_that_were_not_drawn(name):
    """Leaves are means by weight, and the model keeps the weights of the rows that are left."""
    model, target = WHOLE[name]
    y, weights = TARGETS[target][:TRAIN], np.random.default_rng(3).uniform(0.2, 2.0, TRAIN)
    explainer = axil.Explainer(
        model.fit(X[:TRAIN], y, sample_weight=weights), X[:TRAIN], y, sample_weight=weights
    )
    gone, queries = list(X.index[:5]), X[TRAIN:]
    again = explainer.refit(drop=gone, sample_weight={"r9": 3.0}).refit(targets={"r8": y.iloc[30]})
    weights[9], y = 3.0, y.copy()
    y["r8"] = y.iloc[30]
    classes = getattr(model, "classes_", None)
    columns = (
        y.to_numpy()[:, None]
        if classes is None
        else (y.to_numpy()[:, None] == classes).astype(float)
    )
    leaves, asked = model.apply(X[5:TRAIN]), model.apply(queries)
    shares = [(own[:, None] == at) * weights[5:] for own, at in zip(asked.T, leaves.T)]
    expected = np.mean(
        [share @ columns[5:] / share.sum(axis=1, keepdims=True) for share in shares], axis=0
    )
    np.testing.assert_allclose(
        predicted(again, queries).reshape(expected.shape), expected, rtol=0, atol=1e-12
    )
    dropped, after = explainer.refit(drop=gone), explainer.without(queries, gone)["after"]
    np.testing.assert_allclose(predicted(dropped, queries).ravel(), after, rtol=0, atol=1e-12)
    left = np.delete(np.asarray(explainer._arguments.sample_weight), range(5))
    axil.Explainer(dropped.model, X[5:TRAIN], TARGETS[target][5:TRAIN], sample_weight=left)
    if hasattr(model, "_sample_weight"):
        np.testing.assert_array_equal(dropped.model._sample_weight, left)


def test_patterns_follow_the_rows_that_are_left():
    """One leaf that L1 sets to zero once most of its rows are gone."""
    x = np.repeat([0.0, 1.0], 30)[:, None]
    y = np.where(x[:, 0] == 1, 1.0, -1.0)
    model = lightgbm.LGBMRegressor(
        n_estimators=1,
        num_leaves=2,
        min_child_samples=5,
        learning_rate=1.0,
        reg_alpha=5.0,
        verbose=-1,
    ).fit(x, y)
    again = axil.Explainer(model, x, y).refit(drop=list(range(30, 58)))
    mean = y[[*range(30), 58, 59]].mean()
    sums = np.array([(y[:30] - mean).sum(), (y[58:] - mean).sum()])
    values = mean + np.sign(sums) * np.maximum(np.abs(sums) - 5.0, 0) / [30, 2]
    assert again.model.predict([[0.0], [1.0]]) == pytest.approx(values, rel=1e-6)


@pytest.mark.parametrize("target", ["numbers", "two", "three"])
def test_rows_come_into_leaves_that_had_none(target):
    kind = catboost.CatBoostRegressor if target == "numbers" else catboost.CatBoostClassifier
    y = TARGETS[target]
    explainer = axil.Explainer(kind(**CAT | {"depth": 6}).fit(X[:60], y[:60]), X[:60], y[:60])
    assert explainer.refit(add=(X[60:], y[60:])).verification.n_rows == N


def test_weights_by_label_and_for_all_rows():
    y = TARGETS["numbers"]
    explainer = axil.Explainer(
        lightgbm.LGBMRegressor(**LIGHT).fit(X[:TRAIN], y[:TRAIN]), X[:TRAIN], y[:TRAIN]
    )
    heavy = np.ones(TRAIN)
    heavy[5] = 3.0
    found = explainer.refit(sample_weight={"r5": 3.0}), explainer.refit(sample_weight=heavy)
    assert np.array_equal(*(predicted(each, X) for each in found))
    unweighted = explainer.refit(
        sample_weight={"r5": 0.0}
    )  # it stays, without weight: only drop= deletes rows
    assert len(unweighted.index) == TRAIN
    assert np.allclose(
        predicted(unweighted, X),
        predicted(explainer.refit(drop=["r5"]), X),
        rtol=SINGLE,
        atol=SINGLE,
    )


def test_neighbours_are_fitted_anew():
    y = TARGETS["numbers"]
    explainer = axil.Explainer(
        neighbors.KNeighborsRegressor().fit(X[:TRAIN], y[:TRAIN]), X[:TRAIN], y[:TRAIN]
    )
    again = explainer.refit(drop=["r0"], targets={"r1": 9.0})
    changed = y[:TRAIN].copy()
    changed["r1"] = 9.0
    expected = neighbors.KNeighborsRegressor().fit(X[1:TRAIN], changed[1:])
    assert np.array_equal(again.model.predict(X), expected.predict(X))


def test_offsets_come_with_added_rows():
    y, offsets = TARGETS["numbers"], np.linspace(-1, 1, N)
    model = xgboost.XGBRegressor(**XGB).fit(X[:TRAIN], y[:TRAIN], base_margin=offsets[:TRAIN])
    explainer = axil.Explainer(model, X[:TRAIN], y[:TRAIN], init_score=offsets[:TRAIN])
    again = explainer.refit(add=(X[TRAIN:], y[TRAIN:], None, offsets[TRAIN:]))
    assert again.verification.n_rows == N
    with pytest.raises(axil.InputError, match="add has 2 parts, and init_score needs one"):
        explainer.refit(add=(X[TRAIN:], y[TRAIN:]))


def test_what_cannot_be_written_is_refused_by_name():
    y = TARGETS["numbers"]
    forest = ensemble.RandomForestRegressor(3, criterion="absolute_error", random_state=0)
    full = axil.Explainer(forest.fit(X[:TRAIN], y[:TRAIN]), X[:TRAIN], y[:TRAIN])
    with pytest.raises(
        axil.UnsupportedQuestionError, match="leaves of averaged trees would lose all rows"
    ):
        full.refit(drop=list(X.index[:20]))
    voting = ensemble.VotingRegressor(
        [("a", linear_model.LinearRegression()), ("b", lightgbm.LGBMRegressor(**LIGHT))]
    )
    with pytest.raises(
        axil.UnsupportedQuestionError, match="models of several others are not written"
    ):
        axil.Explainer(voting.fit(X, y), X, y).refit(drop=["r1"])
    words = X.assign(a=np.array(list("abcdefgh"))[np.arange(N) % 8])
    encoded = catboost.CatBoostRegressor(**CAT, cat_features=["a"]).fit(words, y)
    with pytest.raises(
        axil.UnsupportedQuestionError, match="categories were encoded by the targets"
    ):
        axil.Explainer(encoded, words, y).refit(drop=["r1"])
    logistic = linear_model.LogisticRegression(C=1.0, tol=1e-10).fit(X, TARGETS["two"])
    with pytest.raises(axil.UnsupportedQuestionError, match="no splits to keep"):
        axil.Explainer(logistic, X, TARGETS["two"]).refit(drop=["r1"])


def test_bad_input_is_named():
    y = TARGETS["numbers"]
    model = lightgbm.LGBMRegressor(**LIGHT).fit(X[:TRAIN], y[:TRAIN])
    explainer = axil.Explainer(model, X[:TRAIN], y[:TRAIN])
    with pytest.raises(axil.InputError, match="nobody"):
        explainer.refit(drop=["nobody"])
    with pytest.raises(axil.InputError, match="add has to be"):
        explainer.refit(add=X)
    with pytest.raises(axil.InputError, match="targets is a list"):
        explainer.refit(targets=[1.0])
    with pytest.raises(axil.InputError, match="no row with a weight is left"):
        explainer.refit(drop=np.ones(TRAIN, dtype=bool))
    model.fit(X, y)
    with pytest.raises(axil.InputError, match="fitted again or changed since"):
        explainer.refit(drop=["r1"])


def test_a_loaded_explainer_says_what_to_do(tmp_path):
    y = TARGETS["numbers"]
    model = lightgbm.LGBMRegressor(**LIGHT).fit(X, y)
    axil.Explainer(model, X, y).save(tmp_path / "e.npz")
    with pytest.raises(axil.UnsupportedQuestionError, match="loaded from a file"):
        axil.load(tmp_path / "e.npz", model, X_train=X).refit(drop=["r1"])


@pytest.mark.parametrize("name", ["lightgbm median", "catboost median", "xgboost median"])
def test_rows_without_weight_keep_their_ranks(name):
    """CatBoost ranks them in leaves, and others take values between their ranks."""
    model, y = MODELS[name][0], TARGETS["numbers"][:TRAIN]
    weights = np.where(np.arange(TRAIN) % 3 == 0, 0.0, 1.5)
    explainer = axil.Explainer(
        model.fit(X[:TRAIN], y, sample_weight=weights), X[:TRAIN], y, sample_weight=weights
    )
    gone, queries = list(X.index[:9]), X[TRAIN:]
    expected = explainer.without(queries, gone)["after"]
    assert np.allclose(
        explainer.refit(drop=gone).model.predict(queries), expected, rtol=SINGLE, atol=SINGLE
    )


def test_a_label_of_several_rows_drops_them_all_and_the_explainer_says_how_many():
    customers = X[:TRAIN].set_axis(np.arange(TRAIN) // 4)  # four rows each
    model = lightgbm.LGBMRegressor(**LIGHT).fit(customers, TARGETS["numbers"][:TRAIN])
    explainer = axil.Explainer(model, customers, TARGETS["numbers"][:TRAIN].to_numpy())
    again = explainer.refit(drop=[3, 7])
    assert len(again.index) == TRAIN - 8
    assert f"{TRAIN - 8} training rows (8 dropped)" in repr(again)
    assert "dropped" not in repr(explainer) + repr(again.refit(targets={5: 1.0}))
    after = explainer.without(X[TRAIN:], [3, 7])
    assert after.attrs["deleted"] == 8
    np.testing.assert_allclose(again.model.predict(X[TRAIN:]), after["after"], rtol=1e-6)


def test_added_rows_beside_dates():
    """Rows of arrays have no labels: they are numbered, and the dates of the others stay."""
    dates = np.arange("2011-01-01", "2015-01-01", dtype="datetime64[D]").astype("datetime64[ns]")[
        :TRAIN
    ]
    rows, y = X.to_numpy(), TARGETS["numbers"].to_numpy()
    model = lightgbm.LGBMRegressor(**LIGHT).fit(rows[:TRAIN], y[:TRAIN])
    again = axil.Explainer(model, rows[:TRAIN], y[:TRAIN], index=dates).refit(
        add=(rows[TRAIN:], y[TRAIN:])
    )
    assert list(again.index[:TRAIN]) == list(dates)
    assert list(again.index[TRAIN:]) == list(range(N - TRAIN))
    assert again.refit(drop=[dates[3]]).verification.n_rows == N - 1


def replayed(leaves, queries, y, weights, l2, rate):
    """Predictions of boosting with squared error, by numpy: leaves (n, T) of the rows, and of the rows that are predicted."""
    start = np.average(y, axis=0, weights=weights).astype(np.float32).astype(float)
    score, made = np.tile(start, (len(y), 1)), np.tile(start, (len(queries), 1))
    for leaf, met in zip(leaves.T, queries.T):
        for number in np.unique(leaf):
            rows = leaf == number
            residuals = weights[rows] @ (y[rows] - score[rows])
            value = rate * residuals / (weights[rows].sum() + l2)
            score[rows] += value
            made[met == number] += value
    return made


@pytest.mark.parametrize("bends", [{}, {"reg_alpha": 0.5}, {"max_delta_step": 0.2}])
def test_vector_leaves_of_xgboost(bends):
    """With L1 or clipped steps each output has a pattern of its own in the trees that all share."""
    y = np.column_stack([TARGETS["numbers"], 10 * RNG.normal(size=N)])[:TRAIN]
    settings = {**XGB, **bends, "multi_strategy": "multi_output_tree", "base_score": 0.0}
    model = xgboost.XGBRegressor(**settings).fit(X[:TRAIN], y)
    explainer = axil.Explainer(model, X[:TRAIN], y)
    gone = X.index[:9].tolist()
    expected = np.asarray(explainer.without(X[TRAIN:], gone)["after"]).reshape(-1, 2)
    predictions = explainer.refit(drop=gone).model.predict(X[TRAIN:])
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_weights_of_several_outputs():
    """CatBoost scales l2 by the mean weight, and rounds it to float32 where there are several outputs."""
    y = (
        np.column_stack([TARGETS["numbers"], 10 * RNG.normal(size=N)])[:TRAIN]
        .astype(np.float32)
        .astype(float)
    )
    weights = RNG.uniform(0.1, 1.1, TRAIN).astype(np.float32).astype(float)
    model = catboost.CatBoostRegressor(**CAT, loss_function="MultiRMSE", learning_rate=0.25)
    model.fit(X[:TRAIN], y, sample_weight=weights)
    explainer = axil.Explainer(model, X[:TRAIN], y, sample_weight=weights)
    left = np.arange(7, TRAIN)
    changed = weights.copy()
    changed[0] = 2.0
    leaves, queries = model.calc_leaf_indexes(X[:TRAIN]), model.calc_leaf_indexes(X[TRAIN:])
    cases = {"drop": (left, weights), "sample_weight": (np.arange(TRAIN), changed)}
    for name, (rows, new) in cases.items():
        again = explainer.refit(
            **({"drop": list(X.index[:7])} if name == "drop" else {"sample_weight": changed})
        )
        l2 = float(np.float32(3 * new[rows].mean()))
        expected = replayed(leaves[rows], queries, y[rows], new[rows], l2, 0.25)
        np.testing.assert_allclose(again.model.predict(X[TRAIN:]), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("loss", ["RMSE", "MAE", "MultiRMSE"])
def test_weights_and_a_category_that_no_split_uses(loss):
    """CatBoost shuffles the rows for the encodings, and records the weights of rows in this order."""
    table = X[:TRAIN].assign(word=RNG.choice(list("uvwxyz"), TRAIN))
    y = (3 * table["a"]).to_numpy()
    y = np.column_stack([y, -y]) if loss == "MultiRMSE" else y
    weights = RNG.uniform(0.1, 1.1, TRAIN)
    settings = CAT | {"depth": 1, "iterations": 3, "cat_features": ["word"], "loss_function": loss}
    model = catboost.CatBoostRegressor(**settings).fit(table, y, sample_weight=weights)
    explainer = axil.Explainer(model, table, y, sample_weight=weights)
    assert not verified_model(explainer).adapter.encodings
    gone = list(X.index[:7])
    after = explainer.without(table[-20:], gone)["after"].to_numpy()
    predictions = explainer.refit(drop=gone).model.predict(table[-20:])
    np.testing.assert_allclose(predictions.ravel(), after, rtol=0, atol=1e-6)  # l2 in float32
    for more in ({"targets": {X.index[3]: y[5]}}, {"sample_weight": {X.index[3]: 2.0}}):
        assert explainer.refit(**more).verification is not None


INSIDE = {
    "ridge": linear_model.Ridge(),
    "line": linear_model.LinearRegression(),
    "kernel": KernelRidge(),
    "neighbours": neighbors.KNeighborsRegressor(),
}


@pytest.mark.parametrize("name", INSIDE)
def test_smoothers_to_transformed_targets_are_fitted_to_those(name):
    y = np.exp(TARGETS["numbers"] / np.abs(TARGETS["numbers"]).max())
    model = TransformedTargetRegressor(INSIDE[name], func=np.log, inverse_func=np.exp)
    explainer = axil.Explainer(model.fit(X[:TRAIN], y[:TRAIN]), X[:TRAIN], y[:TRAIN])
    again = explainer.refit(drop=list(X.index[:3]))
    expected = clone(model).fit(X[3:TRAIN], y[3:TRAIN]).predict(X[TRAIN:])
    np.testing.assert_allclose(again.model.predict(X[TRAIN:]), expected, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_initial_predictions_of_xgboost_that_need_an_exponent(scale):
    """XGBoost 2 reads 0.5 instead of a number with more digits than its own notation has."""
    y = scale * (TARGETS["numbers"][:TRAIN] - 7.0)
    model = xgboost.XGBRegressor(**XGB).fit(X[:TRAIN], y)
    explainer = axil.Explainer(model, X[:TRAIN], y)
    deleted = X.index[:9].tolist()
    expected = np.asarray(explainer.without(X[TRAIN:], deleted)["after"])
    predictions = explainer.refit(drop=deleted).model.predict(X[TRAIN:])
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.fixture(scope="module")
def moved_rows():
    """Return features and targets, and the same with 30 rows moved."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(200, 4))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + rng.normal(scale=0.3, size=200)
    moved_X = X.copy()
    moved_y = y.copy()
    moved_X[:30] += rng.normal(size=(30, 4))
    moved_y[:30] += rng.normal(size=30)
    return X, y, moved_X, moved_y


def test_rows_with_other_features_keep_their_samples_in_a_forest(moved_rows):
    X, y, moved_X, moved_y = moved_rows
    model = ensemble.RandomForestRegressor(12, min_samples_leaf=12, random_state=0).fit(X, y)
    refitted = with_features(axil.Explainer(model, X, y), moved_X, moved_y)
    leaves = model.apply(moved_X)
    query_leaves = model.apply(X[:9])
    expected = np.zeros(9)
    for tree, sampled in enumerate(model.estimators_samples_):
        counts = np.bincount(sampled, minlength=len(y))
        for i, leaf in enumerate(query_leaves[:, tree]):
            in_leaf = counts * (leaves[:, tree] == leaf)
            expected[i] += in_leaf @ moved_y / in_leaf.sum() / len(model.estimators_)
    np.testing.assert_allclose(refitted.model.predict(X[:9]), expected, rtol=1e-12)


def test_rows_with_other_features_are_a_fit_of_boosted_trees_at_the_same_splits(moved_rows):
    X, y, moved_X, moved_y = moved_rows
    weight = np.linspace(0.5, 2.0, len(y))
    settings = {"n_estimators": 20, "num_leaves": 6, "learning_rate": 0.3, "verbose": -1}
    model = lightgbm.LGBMRegressor(**settings).fit(X, y, sample_weight=weight)
    refitted = with_features(axil.Explainer(model, X, y, sample_weight=weight), moved_X, moved_y)
    leaves = model.predict(moved_X, pred_leaf=True)
    query_leaves = model.predict(X[:9], pred_leaf=True)
    base = np.average(moved_y, weights=weight)
    fitted_values = np.full(len(y), base)
    expected = np.full(9, base)
    for tree in range(leaves.shape[1]):
        residuals = moved_y - fitted_values
        sums = np.bincount(leaves[:, tree], weight * residuals, 6)
        values = 0.3 * sums / np.bincount(leaves[:, tree], weight, 6)
        fitted_values += values[leaves[:, tree]]
        expected += values[query_leaves[:, tree]]
    np.testing.assert_allclose(refitted.model.predict(X[:9]), expected, rtol=1e-6)
    again = with_features(axil.Explainer(model, X, y, sample_weight=weight), X, y)
    np.testing.assert_allclose(again.model.predict(X), model.predict(X), rtol=1e-6)


def test_refits_of_xgboost_round_scores_as_the_library_does():
    """Targets of many digits leave rounding in the scores, which later trees follow."""
    rng = np.random.default_rng(1)
    X_train = rng.normal(size=(200, 4))
    y_train = X_train[:, 0] + X_train[:, 1] ** 2 + rng.normal(size=200) + 5
    model = xgboost.XGBRegressor(n_estimators=10, max_depth=6).fit(X_train, y_train)
    explainer = axil.Explainer(model, X_train, y_train)
    for n_rows in (20, 100, 150):
        dropped_rows = list(range(n_rows))
        expected = explainer.without(X_train, dropped_rows)["after"]
        predictions = explainer.refit(drop=dropped_rows).model.predict(X_train)
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    "names", [[0, 1, 2, 3], [("a", 0), ("a", 1), ("b", 0), ("b", 1)]], ids=["numbers", "tuples"]
)
def test_rows_are_added_to_frames_whose_columns_are_no_text(names):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)))
    frame.columns = names
    y = rng.normal(size=60)
    X_train = frame.to_numpy()
    model = xgboost.XGBRegressor(n_estimators=3).fit(X_train[:50], y[:50])
    of_arrays = axil.Explainer(model, X_train[:50], y[:50]).refit(add=(X_train[50:], y[50:]))
    explainer = axil.Explainer(model, frame[:50], y[:50])
    again = explainer.refit(add=(frame[50:], y[50:]))
    expected = of_arrays.model.predict(X_train)
    np.testing.assert_array_equal(again.model.predict(X_train), expected)
    comparison = axil.compare(explainer, again, frame[:2])
    np.testing.assert_allclose(comparison.after[:, 0], expected[:2], rtol=0, atol=1e-6)

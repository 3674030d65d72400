"""axil.similarity against the libraries' own leaves."""

from __future__ import annotations

import warnings
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
Y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * RNG.normal(size=240)
CLASSES = np.digitize(Y, [-0.7, 0.7])
GROUPS = [24] * 10
FEW = {"n_estimators": 6, "random_state": 0}


def boosted(objective: str, target: Any = Y, **more: Any) -> lgb.Booster:
    settings = {"objective": objective, "verbose": -1, "min_data_in_leaf": 5, "num_leaves": 9}
    return lgb.train(settings, lgb.Dataset(X, target, **more), 6)


def by_xgboost(objective: str, target: Any, **more: Any) -> xgb.Booster:
    return xgb.train({"objective": objective, "max_depth": 3}, xgb.DMatrix(X, target, **more), 6)


def leaves_of_xgboost(model: xgb.Booster) -> Any:
    return model.predict(xgb.DMatrix(X), pred_leaf=True)


def yeti() -> cb.CatBoost:
    settings = {
        "loss_function": "YetiRank",
        "iterations": 6,
        "verbose": 0,
        "allow_writing_files": False,
    }
    return cb.CatBoost(settings).fit(cb.Pool(X, CLASSES, group_id=np.repeat(np.arange(10), 24)))


MODELS: dict[str, tuple[Any, Any]] = {
    "squared error": (lambda: boosted("regression"), lambda m: m.predict(X, pred_leaf=True)),
    "classes": (
        lambda: lgb.LGBMClassifier(n_estimators=4, verbose=-1).fit(X, CLASSES),
        lambda m: m.predict(X, pred_leaf=True),
    ),
    "quantile": (lambda: boosted("quantile"), lambda m: m.predict(X, pred_leaf=True)),
    "lambdarank": (
        lambda: boosted("lambdarank", CLASSES, group=GROUPS),
        lambda m: m.predict(X, pred_leaf=True),
    ),
    "xgboost, ranks": (lambda: by_xgboost("rank:ndcg", CLASSES, group=GROUPS), leaves_of_xgboost),
    "xgboost, survival": (lambda: by_xgboost("survival:cox", np.exp(Y)), leaves_of_xgboost),
    "xgboost, medians": (lambda: by_xgboost("reg:absoluteerror", Y), leaves_of_xgboost),
    "catboost, medians": (
        lambda: cb.CatBoostRegressor(
            loss_function="MAE", iterations=6, verbose=0, allow_writing_files=False
        ).fit(X, Y),
        lambda m: m.calc_leaf_indexes(X),
    ),
    "catboost, ranks": (yeti, lambda m: m.calc_leaf_indexes(X)),
    "forest": (
        lambda: RandomForestRegressor(**FEW, min_samples_leaf=3).fit(X, Y),
        lambda m: m.apply(X),
    ),
    "absolute error": (
        lambda: RandomForestRegressor(**FEW, criterion="absolute_error").fit(X, Y),
        lambda m: m.apply(X),
    ),
    "stages": (
        lambda: GradientBoostingClassifier(**FEW, init=LinearClassifier()).fit(X, CLASSES),
        lambda m: m.apply(X),
    ),
    "outliers": (
        lambda: IsolationForest(**FEW).fit(X),
        lambda m: np.stack(
            [tree.apply(X[:, own]) for tree, own in zip(m.estimators_, m.estimators_features_)],
            axis=1,
        ),
    ),
}


class LinearClassifier(LinearRegression):  # type: ignore[misc]
    """A start that axil refuses: it is fitted to the classes."""

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), 3), 1 / 3)


def expected(leaves: Any, weights: Any = None) -> np.ndarray:
    """(n, n) by the definition."""
    own = np.asarray(leaves).reshape(len(X), -1)
    count = np.ones(own.shape[1]) if weights is None else weights
    return ((own[:, None] == own[None]) * count).sum(axis=2) / count.sum()


@pytest.mark.parametrize("name", MODELS)
def test_is_the_share_of_trees_with_a_common_leaf(name: str) -> None:
    make, leaves = MODELS[name]
    model = make()
    right = expected(leaves(model))
    np.testing.assert_allclose(axil.similarity(model, X[:50], X), right[:50], rtol=1e-15)
    found, rows = axil.similarity(model, X[:50], X, k=7)
    order = np.argsort(-right[:50], axis=1, kind="stable")[:, :7]
    largest = np.take_along_axis(right[:50], order, axis=1)
    np.testing.assert_array_equal(rows, np.where(largest > 0, order, -1))
    np.testing.assert_allclose(found, largest, rtol=1e-15)


def test_histograms_of_a_loss_that_is_refused() -> None:
    model = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, max_iter=5).fit(X, Y)
    found = axil.similarity(model, X)
    np.testing.assert_array_equal(np.diag(found), 1.0)
    alike = found == 1
    assert len(np.unique(model.predict(X)[alike[0]])) == 1  # the same leaves, the same prediction
    assert 0 < found.mean() < 1
    np.testing.assert_allclose(
        5 * found, np.rint(5 * found), rtol=1e-15
    )  # shares of five trees, without the base


def test_trees_may_be_weighted() -> None:
    model, weights = boosted("quantile"), np.array([5.0, 0, 1, 0.1, 0.3, 2])
    right = expected(model.predict(X, pred_leaf=True), weights)
    np.testing.assert_allclose(axil.similarity(model, X, tree_weights=weights), right, rtol=1e-14)
    found, rows = axil.similarity(model, X, X, k=5, tree_weights=weights, n_threads=2)
    np.testing.assert_allclose(found, -np.sort(-right, axis=1)[:, :5], rtol=1e-14)
    assert (np.take_along_axis(right, rows, axis=1) == found).mean() > 0.9


def test_pipelines_frames_and_the_same_bits_for_any_thread_count() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), RandomForestRegressor(**FEW)).fit(frame, Y)
    one, three = (axil.similarity(model, frame, frame, k=4, n_threads=n) for n in (1, 3))
    for a, b in zip(one, three):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one[0][:, 0], 1.0)


def test_fewer_rows_than_asked_for() -> None:
    found, rows = axil.similarity(boosted("regression"), X[:3], X[:2], k=10)
    assert found.shape == rows.shape == (3, 2)


def test_what_has_no_leaves_is_refused() -> None:
    with pytest.raises(axil.UnsupportedQuestionError, match="no trees"):
        axil.similarity(LinearRegression().fit(X, Y), X)
    linear = xgb.train({"booster": "gblinear"}, xgb.DMatrix(X, Y), 3)
    with pytest.raises(axil.AxilError, match="linear model"):
        axil.similarity(linear, X)
    with pytest.raises(axil.InputError, match="tree_weights"):
        axil.similarity(boosted("regression"), X, tree_weights=-np.ones(6))
    with pytest.raises(axil.InputError, match="columns"):
        axil.similarity(boosted("regression"), X, X[:, :3])


def test_novelty_is_the_mean_distance_from_the_boxes_of_the_leaves() -> None:
    model, new = boosted("regression"), RNG.normal(size=(30, 4)) * 1.5
    leaves, own, spread = (
        model.predict(X, pred_leaf=True),
        model.predict(new, pred_leaf=True),
        X.std(axis=0),
    )
    right = np.zeros(30)
    for t in range(leaves.shape[1]):
        for i, row in enumerate(new):
            inside = X[leaves[:, t] == own[i, t]]
            right[i] += np.log1p(
                np.maximum(np.maximum(inside.min(0) - row, row - inside.max(0)), 0) / spread
            ).sum()
    np.testing.assert_allclose(axil.novelty(model, new, X), right / leaves.shape[1], rtol=1e-12)
    np.testing.assert_array_equal(axil.novelty(model, X, X), 0.0)


def test_novelty_of_rows_beyond_the_edge_whose_leaves_stay() -> None:
    model, held_out = boosted("lambdarank", CLASSES, group=GROUPS), RNG.normal(size=(60, 4))
    new = X[:40].copy()
    new[:, 0] = X[:, 0].max()
    far = new.copy()
    far[:, 0] *= 5
    np.testing.assert_array_equal(axil.similarity(model, far, X), axil.similarity(model, new, X))
    assert (
        axil.novelty(model, far, X, held_out=held_out)
        > axil.novelty(model, new, X, held_out=held_out)
    ).mean() > 0.8


def test_novelty_of_frames_with_words_and_missing_values() -> None:
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        e=pd.Categorical(np.where(Y > 0, "dear", "cheap"))
    )
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1).fit(frame, Y)
    new = frame.head(9).copy()
    new.loc[3, "a"] = np.nan
    novelties = axil.novelty(model, new, frame)
    assert np.isfinite(novelties).all()
    with pytest.raises(axil.InputError, match="nothing that X could be compared with"):
        axil.novelty(model, new, frame.head(0))


@pytest.mark.parametrize(
    "table", [np.asarray, lambda rows: pd.DataFrame(rows, columns=list("abcd"))]
)
def test_training_rows_are_not_held_out(table: Any) -> None:
    """They lie inside their boxes, and every other row would be as novel as can be."""
    model, new, held_out = boosted("regression"), RNG.normal(size=(20, 4)), RNG.normal(size=(70, 4))
    with pytest.raises(
        axil.InputError, match="50 of the 50 held_out rows are training rows: the same features"
    ):
        axil.novelty(model, table(new), table(X), held_out=table(X[:50]))
    mixed = np.concatenate([X[:30], held_out])
    with pytest.warns(
        UserWarning, match=r"30 of the 100 held_out rows are training rows.* 70 held_out rows stay"
    ):
        novelties = axil.novelty(model, table(new), table(X), held_out=table(mixed))
    np.testing.assert_array_equal(novelties, axil.novelty(model, new, X, held_out=held_out))
    assert axil.novelty(model, new, X, held_out=held_out[:0]).shape == (20,)


def test_held_out_rows_may_equal_training_rows_by_chance() -> None:
    coarse, target = RNG.integers(9, size=(300, 2)).astype(float), RNG.normal(size=300)
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1).fit(coarse[:200], target[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert axil.novelty(model, coarse[:5], coarse[:200], held_out=coarse[200:]).shape == (5,)


SEVERAL = {
    "voting": VotingRegressor(
        [("a", GradientBoostingRegressor(**FEW)), ("b", RandomForestRegressor(**FEW))]
    ),
    "voting pipelines": VotingRegressor(
        [("a", make_pipeline(StandardScaler(), RandomForestRegressor(**FEW)))]
    ),
    "stacking": StackingRegressor(
        [("a", GradientBoostingRegressor(**FEW))], final_estimator=LinearRegression()
    ),
    "bagging": BaggingRegressor(RandomForestRegressor(**FEW), 3, max_features=3, random_state=0),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_models_of_several_ensembles_share_the_leaves_of_all(name: str) -> None:
    model = SEVERAL[name].fit(X, Y)
    leaves = []
    columns = getattr(model, "estimators_features_", [slice(None)] * len(model.estimators_))
    for member, own in zip(model.estimators_, columns):
        rows = X[:, own]
        if hasattr(member, "steps"):
            rows, member = member[:-1].transform(rows), member[-1]
        leaves.append(member.apply(rows))
    found = np.hstack(leaves)
    expected = (found[:5, None] == found[None]).mean(axis=2)
    np.testing.assert_allclose(axil.similarity(model, X[:5], X), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(axil.novelty(model, X[:5], X), 0.0)
    assert (axil.novelty(model, 9 + X[:5], X) > 0).all()


def test_members_without_trees_are_named() -> None:
    model = VotingRegressor([("a", RandomForestRegressor(**FEW)), ("b", LinearRegression())]).fit(
        X, Y
    )
    with pytest.raises(
        axil.UnsupportedQuestionError, match=r"named_estimators_\['b'\] has no trees"
    ):
        axil.similarity(model, X[:2], X)


def test_rows_in_dask_collections_are_refused_by_name():
    dask_array = pytest.importorskip("dask.array")
    model = lgb.LGBMRegressor(n_estimators=3, verbose=-1, n_jobs=1).fit(X, Y)
    collection = dask_array.from_array(np.asarray(X), chunks=(100, -1))
    calls = {
        "X_train": lambda: axil.novelty(model, X[:2], collection, held_out=X[:3]),
        "other": lambda: axil.similarity(model, X[:2], collection),
        "X": lambda: axil.similarity(model, collection),
    }
    for name, call in calls.items():
        with pytest.raises(axil.UnsupportedQuestionError, match="Dask collection") as refusal:
            call()
        assert refusal.value.question == name

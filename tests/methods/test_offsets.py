"""Offsets of explained rows mean what they mean in the library's own ``predict``."""

from __future__ import annotations

import warnings
from functools import partial

import dask.array as da
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from catboost import CatBoostRegressor, Pool

import axil
from axil.baselines import TREX, BoostIn
from axil.methods.method import verified_model
from tests.fits import explainer_of_fit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = X[:, 0] + 20 + RNG.normal(size=80)
BOTH = np.c_[Y, 3 - Y]
ASKED, MARGIN = RNG.normal(size=(7, 4)), RNG.normal(size=7) + 4
VALID = RNG.normal(size=7) + 20
TRAINED = RNG.normal(size=80)
WEIGHTS = RNG.uniform(1, 2, size=80)

XGBOOST = {
    "estimated base": ({}, Y, None, None),
    "constant base": ({"base_score": 7.0}, Y, None, None),
    "weights": ({}, Y, WEIGHTS, None),
    "margin in the fit": ({}, Y, None, TRAINED),
    "parallel trees": ({"num_parallel_tree": 3, "learning_rate": 1.0}, Y, None, None),
    "dart": ({"booster": "dart", "rate_drop": 0.5}, Y, None, None),
    "forest": (
        {"num_parallel_tree": 3, "learning_rate": 1.0, "n_estimators": 1, "base_score": 7.0},
        Y,
        None,
        None,
    ),
    "two outputs": (
        {"base_score": 0.5},
        BOTH,
        None,
        None,
    ),  # of which XGBoost before 3.1 estimates none for each
    "two outputs that share trees": (
        {"multi_strategy": "multi_output_tree", "tree_method": "hist", "base_score": 0.5},
        BOTH,
        None,
        None,
    ),
}
SAME = {"rtol": 0, "atol": 1e-6 * 30}  # of predictions in single precision, the largest some 25


def fitted(name: str) -> tuple[xgboost.XGBRegressor, axil.Explainer, np.ndarray]:
    settings, y, weights, margin = XGBOOST[name]
    model = xgboost.XGBRegressor(**({"n_estimators": 5, "max_depth": 3} | settings))
    model.fit(X, y, sample_weight=weights, base_margin=margin)
    return (
        model,
        axil.Explainer(model, X, y, sample_weight=weights, init_score=margin),
        np.asarray(y),
    )


def margins(y: np.ndarray) -> np.ndarray:
    return MARGIN if y.ndim == 1 else np.c_[MARGIN, -MARGIN]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("name", XGBOOST)
def test_a_margin_takes_the_place_of_the_base(name: str, prepared: bool) -> None:
    model, explainer, y = fitted(name)
    m = margins(y)
    expected = model.get_booster().predict(xgboost.DMatrix(ASKED, base_margin=m))
    if prepared:
        explainer.precompute()
    explanation = explainer(ASKED, init_score=m)
    np.testing.assert_allclose(explanation.predictions, expected, **SAME)
    np.testing.assert_allclose(explainer(ASKED).predictions, model.predict(ASKED), **SAME)
    parts = list(explainer.iter(ASKED, batch_size=3, init_score=m))
    np.testing.assert_allclose(
        np.concatenate([part.predictions for part in parts]), expected, **SAME
    )
    top, own = explainer.top(ASKED, 3, init_score=m), explanation.top(3)
    pd.testing.assert_frame_equal(top, own, rtol=1e-9)
    for k in range(
        1 if y.ndim == 1 else 2
    ):  # weights are the derivatives of these very predictions
        changed = explainer.what_if(ASKED, {4: y[4] + 1.0}, init_score=m)
        weights = (
            explanation.weights[:, k] if explanation.weights.ndim == 3 else explanation.weights
        )
        moved = changed[changed.output == k] if y.ndim == 2 else changed
        np.testing.assert_allclose(moved.change, weights[:, 4], rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            moved.before, expected if y.ndim == 1 else expected[:, k], **SAME
        )


@pytest.mark.parametrize(
    "name", ["estimated base", "constant base", "weights", "margin in the fit"]
)
def test_influence_and_baselines_with_a_margin(name: str) -> None:
    model, explainer, y = fitted(name)
    explanation = explainer(ASKED, init_score=MARGIN)
    error = explanation.predictions - VALID
    influences = explainer.influence(ASKED, VALID, init_score=MARGIN).sort_values("row")
    np.testing.assert_allclose(
        influences.gradient, 2 / 7 * explanation.weights.T @ error, rtol=0, atol=1e-5
    )
    moved = influences.corrected.to_numpy() - y
    after = np.square(error[:, None] + explanation.weights * moved).mean(axis=0)
    np.testing.assert_allclose(influences.gain, np.square(error).mean() - after, rtol=0, atol=1e-4)
    base = float(model.predict(ASKED)[0] - model.predict(ASKED, base_margin=np.zeros(7))[0])
    np.testing.assert_allclose(
        BoostIn(explainer).scores(ASKED, VALID, init_score=MARGIN),
        BoostIn(explainer).scores(ASKED, VALID - MARGIN + base),
        rtol=0,
        atol=1e-4,
    )


def test_other_libraries_add_offsets() -> None:
    """CatBoost's predict adds a baseline; LightGBM's takes none, so it is added to what it predicts."""
    cat = CatBoostRegressor(iterations=4, depth=3, verbose=0, allow_writing_files=False).fit(X, Y)
    expected = cat.predict(Pool(ASKED, baseline=MARGIN))
    np.testing.assert_allclose(
        axil.Explainer(cat, X, Y)(ASKED, init_score=MARGIN).predictions, expected, **SAME
    )
    light = lightgbm.LGBMRegressor(n_estimators=4, verbose=-1).fit(X, Y)
    expected = light.predict(ASKED) + MARGIN
    np.testing.assert_allclose(
        axil.Explainer(light, X, Y)(ASKED, init_score=MARGIN).predictions, expected, **SAME
    )


def test_margins_over_dask() -> None:
    da = pytest.importorskip("dask.array")
    for name in ("estimated base", "constant base", "two outputs"):
        model, whole, y = fitted(name)
        explainer = axil.Explainer(
            model,
            da.from_array(X, chunks=(30, 4)),
            da.from_array(y, chunks=(30,) if y.ndim == 1 else (30, 2)),
        )
        m = margins(y)
        expected = whole(ASKED, init_score=m)
        found = explainer(ASKED, init_score=m)
        np.testing.assert_allclose(found.predictions, expected.predictions, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-14)
        found, expected = explainer.top(ASKED, 3, init_score=m), whole.top(ASKED, 3, init_score=m)
        pd.testing.assert_frame_equal(
            found.drop(columns="prediction"), expected.drop(columns="prediction"), rtol=1e-9
        )
        # Over Dask predictions are made of sums over leaves, less XGBoost's base, which is in single precision.
        np.testing.assert_allclose(found["prediction"], expected["prediction"], rtol=1e-6)


def test_margins_through_a_pipeline() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), xgboost.XGBRegressor(n_estimators=5, max_depth=3)).fit(
        X, Y
    )
    expected = model[-1].predict(model[0].transform(ASKED), base_margin=MARGIN)
    np.testing.assert_allclose(
        axil.Explainer(model, X, Y)(ASKED, init_score=MARGIN).predictions, expected, **SAME
    )


NEAR = Y + RNG.normal(size=80) - 3  # offsets near the targets, which the base is not to be added to
IN_THE_FIT = {
    "estimated base": ({}, Y, NEAR, None),
    "weights": ({}, Y, NEAR, WEIGHTS),
    "estimated base of zero": ({}, np.where(np.arange(80) % 2, 1.0, -1.0), TRAINED, None),
    "constant base": ({"base_score": 7.0}, Y, NEAR, None),
    "parallel trees": ({"num_parallel_tree": 3, "colsample_bynode": 0.5}, Y, NEAR, None),
    "forest": ({"num_parallel_tree": 3, "learning_rate": 1.0, "n_estimators": 1}, Y, NEAR, None),
    "forest from zero": (
        {"num_parallel_tree": 3, "learning_rate": 1.0, "n_estimators": 1, "base_score": 0},
        Y,
        NEAR,
        None,
    ),
    "two outputs": ({"base_score": 0.5}, BOTH, np.c_[NEAR, -NEAR], None),
    "two outputs that share trees": (
        {"multi_strategy": "multi_output_tree", "max_depth": 1, "base_score": 0.5},
        BOTH,
        np.c_[NEAR, -NEAR],
        WEIGHTS,
    ),
}


def without_each_row(
    model: xgboost.XGBRegressor, y: np.ndarray, margin: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """(N, K): each training row by the trees refitted without it at fixed leaves, starting from its margin alone."""
    leaves = (
        model.get_booster()
        .predict(xgboost.DMatrix(X), pred_leaf=True)
        .reshape(len(X), -1)
        .astype(int)
    )
    settings = model.get_params()
    parallel, shared = settings["num_parallel_tree"] or 1, settings["multi_strategy"] is not None
    groups = [list(range(y.shape[1]))] if shared else [[k] for k in range(y.shape[1])]
    found = np.empty(y.shape)
    for j in range(len(X)):
        w = np.where(np.arange(len(X)) == j, 0.0, weights)
        score, trees = margin.astype(float), iter(leaves.T)
        for _ in range(settings["n_estimators"]):
            residual, score = y - score, score.copy()
            for own in groups:
                for leaf in (next(trees) for _ in range(parallel)):
                    sums = np.stack([np.bincount(leaf, w * residual[:, k]) for k in own], axis=1)
                    values = sums / (np.bincount(leaf, w) + 1.0)[:, None]
                    score[:, own] += settings["learning_rate"] / parallel * values[leaf]
        found[j] = score[j]
    return found


@pytest.mark.parametrize("name", IN_THE_FIT)
def test_a_margin_of_the_fit_takes_the_place_of_the_base_in_training_rows(name: str) -> None:
    """leave_one_out, the rows' own predictions and K itself, whether or not the leaf matrix is there, here and over Dask."""
    settings, y, margin, weights = IN_THE_FIT[name]
    settings = {
        "n_estimators": 3,
        "max_depth": 2,
        "min_child_weight": 5,
        "learning_rate": 0.3,
        **settings,
    }
    model = xgboost.XGBRegressor(**settings).fit(X, y, sample_weight=weights, base_margin=margin)
    explainer = axil.Explainer(model, X, y, sample_weight=weights, init_score=margin)
    rows, offsets = y.reshape(80, -1), margin.reshape(80, -1)
    expected = without_each_row(model, rows, offsets, np.ones(80) if weights is None else weights)
    left_out = (
        explainer.diagnostics.leave_one_out()["prediction"].to_numpy().reshape(expected.shape)
    )
    np.testing.assert_allclose(left_out, expected, **SAME)
    own = model.predict(X, base_margin=margin).reshape(expected.shape)
    np.testing.assert_allclose(verified_model(explainer).fitted(), own, **SAME)
    weights_of = explainer(X, init_score=margin).weights.reshape(80, -1, 80)
    for engine, K in zip(verified_model(explainer).engines, np.swapaxes(weights_of, 0, 1)):
        for one in (engine, engine.prepared()):
            np.testing.assert_allclose(one.leverage(1 << 30), np.diagonal(K), rtol=0, atol=1e-14)
            np.testing.assert_allclose(one.squares(1 << 30), np.square(K).sum(), rtol=1e-12)
            np.testing.assert_allclose(one.matvec(None, np.eye(80)), K, rtol=0, atol=1e-14)
            np.testing.assert_allclose(one.rmatvec(None, np.eye(80)).T, K, rtol=0, atol=1e-14)
    pytest.importorskip("dask")
    from dask import array as da

    parts = [
        None if a is None else da.from_array(a, chunks=(30, *a.shape[1:]))
        for a in (X, y, weights, margin)
    ]
    over_dask = explainer_of_fit(model, *parts).diagnostics.leave_one_out()["prediction"]
    np.testing.assert_allclose(
        over_dask.to_numpy().reshape(left_out.shape), left_out, rtol=0, atol=1e-12
    )


def test_a_margin_of_the_fit_in_adjusted_prices_and_noise() -> None:
    """Both come from what the rows' own predictions leave over."""
    model = xgboost.XGBRegressor(n_estimators=3, max_depth=2).fit(X, Y, base_margin=NEAR)
    explainer = axil.Explainer(model, X, Y, init_score=NEAR)
    alike = explainer.similar(ASKED, k=3, adjust=True, init_score=MARGIN)
    predicted, own = model.predict(ASKED, base_margin=MARGIN), model.predict(X, base_margin=NEAR)
    expected = alike.target + predicted[alike["query"]] - own[alike.row]
    np.testing.assert_allclose(alike.adjusted, expected, **SAME)
    K = explainer(X, init_score=NEAR).weights
    noise = np.sqrt(np.square(Y - own).sum() / np.square(np.eye(80) - K).sum())
    expected = noise * np.sqrt(np.square(explainer(ASKED).weights).sum(axis=1))
    np.testing.assert_allclose(explainer.diagnostics.standard_error(ASKED), expected, rtol=1e-5)


def test_trex_with_a_margin_in_the_fit() -> None:
    """Its surrogate follows what the trees add to the margins, without the base."""
    model = xgboost.XGBRegressor(n_estimators=30, max_depth=3).fit(X, Y, base_margin=NEAR)
    trex = TREX(axil.Explainer(model, X, Y, init_score=NEAR), l2=1e-4)
    assert trex.fidelity[0] > 0.8  # with the base in one of them below 0
    own = axil.Explainer(
        xgboost.XGBRegressor(n_estimators=30, max_depth=3, base_score=0).fit(X, Y - NEAR),
        X,
        Y - NEAR,
    )
    expected = TREX(own, l2=1e-4).scores(ASKED, VALID - MARGIN)
    np.testing.assert_allclose(
        trex.scores(ASKED, VALID, init_score=MARGIN),
        expected,
        rtol=0,
        atol=1e-4 * np.abs(expected).max(),
    )


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
def test_rows_without_offsets_of_an_xgboost_fit_with_offsets_are_told(objective):
    """Rates of exposure: the base would stand in for the offset, and no number shows it."""
    rng = np.random.default_rng(0)
    X, offset = rng.normal(size=(60, 2)), rng.normal(size=60)
    y = rng.poisson(np.exp(offset)).astype(float)
    model = xgboost.XGBRegressor(objective=objective, n_estimators=3, max_depth=2, n_jobs=1)
    for placed in (np.asarray, partial(da.from_array, chunks=30)):
        rows = placed(X), placed(y)
        explainer = explainer_of_fit(
            model.fit(X, y, base_margin=offset), *rows, init_score=placed(offset)
        )
        with pytest.warns(
            UserWarning,
            match="X comes without any: predictions of X start from the initial prediction",
        ):
            explainer.top(X[:1], 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            explainer.top(X[:1], 1, init_score=offset[:1])
            explainer_of_fit(model.fit(X, y), *rows).top(X[:1], 1)


WITH_OFFSETS = {
    "lightgbm": lambda: lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(
        X, Y, init_score=TRAINED
    ),
    "lightgbm counts": lambda: lightgbm.LGBMRegressor(
        objective="poisson", n_estimators=5, verbose=-1
    ).fit(X, np.round(Y), init_score=TRAINED),
    "xgboost": lambda: xgboost.XGBRegressor(n_estimators=5, max_depth=2).fit(
        X, Y, base_margin=TRAINED
    ),
    "xgboost counts": lambda: xgboost.XGBRegressor(
        objective="count:poisson", n_estimators=5, max_depth=2
    ).fit(X, np.round(Y), base_margin=TRAINED),
    "catboost": lambda: CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False).fit(
        Pool(X, Y, baseline=TRAINED)
    ),
}


@pytest.mark.parametrize("placed", [np.asarray, partial(da.from_array, chunks=40)])
@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_targets_of_rows_without_offsets_are_told(name, placed):
    """Their errors would be those of the offsets, whatever the library predicts without any."""
    y, rng = np.round(Y) if "counts" in name else Y, np.random.default_rng(5)
    rows, targets, margin = rng.normal(size=(30, 4)), rng.normal(size=30) + 20, rng.normal(size=30)
    explainer = axil.Explainer(
        WITH_OFFSETS[name](), placed(X), placed(y), init_score=placed(TRAINED)
    )
    asked = ["influence"] if "counts" in name else ["calibrate", "influence", "shapley"]
    if placed is not np.asarray:
        asked = [question for question in asked if question == "calibrate"]
    for question in asked:
        ask = getattr(explainer, question)
        X_name, y_name = ("X_cal", "y_cal") if question == "calibrate" else ("X_val", "y_val")
        told = f"{X_name} comes without any: its predictions lack the offsets that are part of {y_name}"
        with pytest.warns(UserWarning, match=told):
            ask(rows, targets)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            ask(rows, targets, init_score=margin)
    if "xgboost" not in name:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            explainer.top(rows, 2)

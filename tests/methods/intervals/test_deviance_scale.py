"""Intervals of counts and amounts, beside Pearson residuals ranked by NumPy."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostRegressor
from sklearn.ensemble import HistGradientBoostingRegressor

import axil
from axil.errors import InputError, UnsupportedQuestionError

SMALL = {"n_estimators": 20, "n_jobs": 1}
MODELS = {  # a model, and the power of the mean that is the variance
    "lightgbm poisson": (lgb.LGBMRegressor(objective="poisson", verbose=-1, **SMALL), 1.0),
    "lightgbm gamma": (lgb.LGBMRegressor(objective="gamma", verbose=-1, **SMALL), 2.0),
    "lightgbm tweedie": (
        lgb.LGBMRegressor(objective="tweedie", tweedie_variance_power=1.3, verbose=-1, **SMALL),
        1.3,
    ),
    "xgboost poisson": (xgb.XGBRegressor(objective="count:poisson", max_depth=3, **SMALL), 1.0),
    "xgboost gamma": (xgb.XGBRegressor(objective="reg:gamma", max_depth=3, **SMALL), 2.0),
    "catboost poisson": (
        CatBoostRegressor(20, loss_function="Poisson", verbose=False, thread_count=1),
        1.0,
    ),
    "sklearn poisson": (HistGradientBoostingRegressor(loss="poisson", max_iter=20), 1.0),
    "sklearn gamma": (HistGradientBoostingRegressor(loss="gamma", max_iter=20), 2.0),
}
LEVEL = 0.8


def rows(n, power, seed):
    """Return features and targets whose variance is near to the mean to this power."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    means = np.exp(0.8 * X["a"].to_numpy() + 0.3 * X["b"].to_numpy())
    if power == 1.0:
        return X, rng.poisson(means).astype(float)
    amounts = rng.gamma(2.0, means / 2) + 0.001
    if power < 2.0:
        amounts *= rng.random(n) < 0.5
    return X, amounts


@pytest.fixture(params=MODELS, scope="module")
def case(request):
    model, power = MODELS[request.param]
    X, y = rows(300, power, 0)
    calibration = rows(101, power, 1)
    model.fit(X, y)
    explainer = axil.Explainer(model, X, y)
    return model, power, explainer, calibration, rows(200, power, 2)


def pearson(model, power, X, y):
    means = model.predict(X).astype(float)
    deviations = means ** (power / 2)
    return means, deviations, (y - means) / deviations


def test_intervals_are_quantiles_of_pearson_residuals(case):
    model, power, explainer, (X_cal, y_cal), (new, _) = case
    table = explainer.calibrate(X_cal, y_cal).interval(new, LEVEL)
    residuals = pearson(model, power, X_cal, y_cal)[2]
    n = len(residuals)
    reach = np.sort(np.abs(residuals))[int(np.ceil(LEVEL * (n + 1))) - 1]
    means = model.predict(new).astype(float)
    deviations = means ** (power / 2)
    np.testing.assert_allclose(table["prediction"], means, rtol=1e-5)
    np.testing.assert_allclose(table["upper"], means + reach * deviations, rtol=1e-5)
    lower = np.maximum(means - reach * deviations, 0.0)
    np.testing.assert_allclose(table["lower"], lower, rtol=1e-5, atol=1e-5)
    middle = np.sort(np.abs(residuals))[(n - 1) // 2]
    np.testing.assert_allclose(table["scale"], middle * deviations, rtol=1e-5)


def test_asymmetric_intervals_and_quantiles_cut_off_both_tails(case):
    model, power, explainer, (X_cal, y_cal), (new, _) = case
    predictive = explainer.calibrate(X_cal, y_cal)
    residuals = np.sort(pearson(model, power, X_cal, y_cal)[2])
    n = len(residuals)
    place = int(np.ceil((1 + LEVEL) / 2 * (n + 1)))
    means = model.predict(new).astype(float)
    ends = means[:, None] + residuals[[n - place, place - 1]] * means[:, None] ** (power / 2)
    ends = np.maximum(ends, 0.0)
    table = predictive.interval(new, LEVEL, symmetric=False)
    np.testing.assert_allclose(table[["lower", "upper"]], ends, rtol=1e-5, atol=1e-5)
    quantiles = predictive.quantiles(new, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    np.testing.assert_allclose(quantiles, ends, rtol=1e-5, atol=1e-5)
    assert (predictive.sample(new, 20, random_state=0) >= 0).all()


def test_targets_are_inside_as_often_as_asked_for(case):
    _, _, explainer, (X_cal, y_cal), (new, y_new) = case
    counted = explainer.calibrate(X_cal, y_cal).coverage(new, y_new, confidence_level=LEVEL)
    # 200 rows, 101 calibration rows: four standard deviations of both
    assert counted["covered"][0] > LEVEL - 4 * np.sqrt(LEVEL * (1 - LEVEL) * (1 / 200 + 1 / 101))


def test_a_count_that_ties_with_a_calibration_row_is_inside():
    """The rounding of residuals must not push ends past whole numbers, or zeros out."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, (200, 2)).astype(float)
    y = rng.poisson(0.7 + X[:, 0]).astype(float)
    model = lgb.LGBMRegressor(objective="poisson", verbose=-1, **SMALL).fit(X, y)
    one = np.tile([[1.0, 1.5]], (19, 1))  # one leaf: the errors of all rows have one size
    counts = np.repeat([0.0, 1.0, 2.0, 3.0, 4.0], [4, 4, 4, 4, 3])
    predictive = axil.Explainer(model, X, y).calibrate(one, counts)
    ends = predictive.quantiles(one[:1], (0.1, 0.35, 0.7, 0.9))[0]
    np.testing.assert_array_equal(ends, [0.0, 1.0, 3.0, 4.0])
    np.testing.assert_array_equal(
        predictive.cdf(np.tile(one[:1], (5, 1)), np.arange(5.0)),
        [0.125, 0.325, 0.525, 0.725, 0.9],
    )


def test_offsets_and_groups():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(420, 2))
    exposure = rng.uniform(0.5, 20.0, 420)
    y = rng.poisson(exposure * np.exp(X[:, 0])).astype(float)
    offsets = np.log(exposure)
    fit = slice(0, 200)
    held_out = slice(200, 300)
    new = slice(300, 420)
    model = lgb.LGBMRegressor(objective="poisson", verbose=-1, **SMALL)
    model.fit(X[fit], y[fit], init_score=offsets[fit])
    explainer = axil.Explainer(model, X[fit], y[fit], init_score=offsets[fit])
    means = np.exp(model.predict(X, raw_score=True) + offsets)
    labels = np.where(X[:, 1] > 0, "right", "left")
    predictive = explainer.calibrate(
        X[held_out], y[held_out], init_score=offsets[held_out], groups=labels[held_out]
    )
    table = predictive.interval(X[new], LEVEL, init_score=offsets[new], groups=labels[new])
    residuals = np.abs(y - means) / np.sqrt(means)
    upper = np.empty(120)
    for label in ("left", "right"):
        known = np.sort(residuals[held_out][labels[held_out] == label])
        reach = known[int(np.ceil(LEVEL * (len(known) + 1))) - 1]
        is_of_group = labels[new] == label
        upper[is_of_group] = (means + reach * np.sqrt(means))[new][is_of_group]
    np.testing.assert_allclose(table["upper"], upper, rtol=1e-6)
    pooled = explainer.calibrate(
        X[held_out],
        y[held_out],
        init_score=offsets[held_out],
        groups=np.arange(100) % 10,
        min_group_size=20,
    )
    # groups without calibration rows join the nearest pool by their scores
    far = pooled.interval(X[new], LEVEL, init_score=offsets[new], groups=np.full(120, 99))
    assert far["pool"].nunique() > 1


def test_a_booster_and_a_saved_explainer_have_the_same_intervals(tmp_path):
    X, y = rows(300, 1.0, 0)
    calibration = rows(100, 1.0, 1)
    new = rows(50, 1.0, 2)[0]
    model = lgb.LGBMRegressor(objective="poisson", verbose=-1, **SMALL).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    explainer.save(tmp_path / "counts.npz")
    expected = explainer.calibrate(*calibration).interval(new)
    others = (
        axil.Explainer(model.booster_, X, y),
        axil.load(tmp_path / "counts.npz", model),
    )
    for other in others:
        pd.testing.assert_frame_equal(other.calibrate(*calibration).interval(new), expected)


def test_refusals(case):
    _, _, explainer, (X_cal, y_cal), (new, _) = case
    predictive = explainer.calibrate(X_cal, y_cal)
    assert predictive.training_errors == "loss"
    for ask in (predictive.why, predictive.to_html):
        with pytest.raises(UnsupportedQuestionError, match="the variance of the loss"):
            ask(new)
    for options in ({}, {"out_of_fold": np.ones(300)}):
        with pytest.raises(UnsupportedQuestionError, match="Pass X_cal and y_cal"):
            explainer.calibrate(**options)
    for options in ({"method": "exact"}, {"out_of_fold": np.ones(300)}):
        with pytest.raises(InputError, match="the variance of its loss"):
            explainer.calibrate(X_cal, y_cal, **options)
    with pytest.raises(InputError, match="y_cal goes down to -1"):
        explainer.calibrate(X_cal, y_cal * 0.0 - 1.0)

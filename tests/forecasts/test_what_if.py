"""Forecast.what_if: changed observations, against a recursion in NumPy at the same splits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import axil
from tests.forecasts.recursions import LAGS, WINDOW, new_model, refitted, row_at, training_rows

lgb = pytest.importorskip("lightgbm")
mlforecast = pytest.importorskip("mlforecast")
pytest.importorskip("skforecast")

from mlforecast.lag_transforms import RollingMean  # noqa: E402
from mlforecast.target_transforms import (  # noqa: E402
    Differences,
    GlobalSklearnTransformer,
    LocalStandardScaler,
)
from skforecast.preprocessing import RollingFeatures  # noqa: E402
from skforecast.recursive import ForecasterRecursive, ForecasterRecursiveMultiSeries  # noqa: E402
from sklearn.ensemble import RandomForestRegressor  # noqa: E402
from sklearn.preprocessing import FunctionTransformer, StandardScaler  # noqa: E402

H = 4
PARTS = ["targets", "training features", "lags", "recursion", "base"]


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(3)
    steps = np.arange(150)
    values = 50 + 0.3 * steps + 6 * np.sin(steps / 3) + rng.normal(size=150)
    return pd.Series(values, pd.date_range("2005-01-01", periods=150, freq="MS"), name="sales")


def as_frame(series):
    return pd.DataFrame({"unique_id": "sales", "ds": series.index, "y": series.to_numpy()})


def changed(series, values):
    after = series.copy()
    for date, value in values.items():
        after[date] = value
    return after


def recursion(values, predict, fed=None):
    """Return the rows of the steps, and the forecasts; ``fed`` are predictions to take instead."""
    differences = list(np.diff(values))
    level = values[-1]
    rows = []
    forecasts = []
    for step in range(H):
        rows.append(row_at(differences, len(differences)))
        if fed is None:
            differences.append(predict(rows[-1]))
        else:
            differences.append(fed[step])
        level += differences[-1]
        forecasts.append(level)
    return np.array(rows), np.array(forecasts)


def by_hand(before, after):
    """Return the forecasts before and after, and the five parts, of a model of differences."""
    X, y = training_rows(list(np.diff(before)))
    new_X, new_y = training_rows(list(np.diff(after)))
    model = new_model().fit(X, y)
    fitted = refitted(model, X, y)
    with_targets = refitted(model, X, new_y)
    with_rows = refitted(model, new_X, new_y)
    steps, forecasts_before = recursion(before, fitted)
    fed = [fitted(row) for row in steps]
    lag_steps, _ = recursion(after, None, fed)
    new_steps, forecasts_after = recursion(after, with_rows)
    predictions = [
        [with_targets(row) for row in steps],
        [with_rows(row) for row in steps],
        [with_rows(row) for row in lag_steps],
        [with_rows(row) for row in new_steps],
    ]
    stages = [forecasts_before, *(before[-1] + np.cumsum(p) for p in predictions), forecasts_after]
    return forecasts_before, forecasts_after, dict(zip(PARTS, np.diff(stages, axis=0)))


def check(table, expected):
    before, after, parts = expected
    np.testing.assert_allclose(table["before"], before, rtol=1e-7)
    np.testing.assert_allclose(table["after"], after, rtol=1e-7)
    for name in PARTS:
        np.testing.assert_allclose(table[name], parts[name], atol=1e-5, err_msg=name)
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["change"], atol=1e-10)


CHANGES = {
    "the last value": {"2017-06-01": 70.0},
    "values of the middle": {pd.Timestamp("2012-03-01"): 60.0, "2012-09-01": 95.0},
    "a value that is a lag alone": {"2005-03-01": 20.0},
}


@pytest.mark.parametrize("values", CHANGES.values(), ids=CHANGES)
def test_the_paths_are_those_of_a_recursion_by_hand(series, values):
    after = changed(series, values)
    expected = by_hand(series.to_numpy(), after.to_numpy())
    assert np.abs(expected[1] - expected[0]).max() > 0.01
    forecaster = mlforecast.MLForecast(
        {"lgb": new_model()},
        freq="MS",
        lags=LAGS,
        lag_transforms={1: [RollingMean(WINDOW)]},
        target_transforms=[Differences([1])],
    ).fit(as_frame(series))
    forecast = axil.forecast(forecaster, as_frame(series), h=H)
    check(forecast.what_if(values), expected)
    recursive = ForecasterRecursive(
        estimator=new_model(),
        lags=LAGS,
        differentiation=1,
        window_features=RollingFeatures(["mean"], window_sizes=WINDOW),
    )
    recursive.fit(y=series)
    check(axil.forecast(recursive, series, h=H).what_if(values), expected)
    np.testing.assert_allclose(recursive.predict(H), forecast.values[:, 0])  # they are as they were


def test_an_unchanged_value_changes_nothing(series):
    forecaster = ForecasterRecursive(estimator=new_model(), lags=LAGS, differentiation=1)
    forecaster.fit(y=series)
    table = axil.forecast(forecaster, series, h=H).what_if({series.index[40]: series.iloc[40]})
    assert (table[["change", *PARTS]] == 0).all().all()


def test_targets_are_the_weights_times_the_change(series):
    forecaster = ForecasterRecursive(estimator=new_model(), lags=LAGS)
    forecaster.fit(y=series)
    forecast = axil.forecast(forecaster, series, h=H)
    weights = forecast.explain().weights[:, list(forecast.row_dates).index(series.index[100])]
    table = forecast.what_if({series.index[100]: series.iloc[100] + 5})
    np.testing.assert_allclose(table["targets"], 5 * weights, atol=1e-5)
    assert (table["base"] == 0).all()


@pytest.mark.parametrize("transform", ["scaler", "log"])
def test_scales_and_logarithms_follow_the_changed_series(series, transform):
    if transform == "scaler":
        target_transform = LocalStandardScaler()
    else:
        target_transform = GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))
    forecaster = mlforecast.MLForecast(
        {"lgb": new_model()}, freq="MS", lags=LAGS, target_transforms=[target_transform]
    ).fit(as_frame(series))
    values = {"2014-03-01": 200.0, "2017-06-01": 70.0}
    table = axil.forecast(forecaster, as_frame(series), h=H).what_if(values)

    def fitted_scale(numbers):
        if transform == "log":
            return np.log, np.exp
        scaler = StandardScaler().fit(numbers[:, None])
        return (
            lambda v: scaler.transform(np.reshape(v, (-1, 1)))[:, 0],
            lambda v: scaler.inverse_transform(np.reshape(v, (-1, 1)))[:, 0],
        )

    forward, _ = fitted_scale(series.to_numpy())
    after = changed(series, values).to_numpy()
    new_forward, new_inverse = fitted_scale(after)
    lagged = forward(series.to_numpy())
    history = list(new_forward(after))
    rows = np.array([[lagged[t - lag] for lag in LAGS] for t in range(6, 150)])
    new_rows = np.array([[history[t - lag] for lag in LAGS] for t in range(6, 150)])
    predict = refitted(new_model().fit(rows, lagged[6:]), new_rows, np.array(history[6:]))
    for _ in range(H):
        history.append(predict(np.array([history[-lag] for lag in LAGS])))
    np.testing.assert_allclose(table["after"], new_inverse(np.array(history[-H:])), rtol=1e-6)
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["change"], atol=1e-9)
    assert (table["base"] != 0).all() == (transform == "scaler")


def test_forests_keep_their_samples(series):
    model = RandomForestRegressor(8, min_samples_leaf=15, random_state=0)
    forecaster = ForecasterRecursive(estimator=model, lags=LAGS)
    forecaster.fit(y=series)
    values = {"2012-03-01": 200.0}
    table = axil.forecast(forecaster, series, h=1).what_if(values)
    history = changed(series, values).to_numpy()
    rows = np.array([[history[t - lag] for lag in LAGS] for t in range(6, 150)])
    targets = history[6:]
    row = np.array([[history[-lag] for lag in LAGS]])
    fitted = forecaster.estimator
    leaves = fitted.apply(rows)
    expected = 0.0
    for tree, sampled in enumerate(fitted.estimators_samples_):
        counts = np.bincount(sampled, minlength=len(rows))
        in_leaf = counts * (leaves[:, tree] == fitted.apply(row)[0, tree])
        expected += in_leaf @ targets / in_leaf.sum() / 8
    np.testing.assert_allclose(table["after"], expected, rtol=1e-9)


@pytest.fixture(scope="module")
def two_series(series):
    visits = 20 + 3 * np.cos(np.arange(150) / 4)
    return pd.DataFrame({"sales": series, "visits": visits}, index=series.index).asfreq("MS")


def test_several_series_are_named_in_the_keys(two_series):
    frame = two_series.melt(ignore_index=False, var_name="unique_id", value_name="y")
    frame = frame.rename_axis("ds").reset_index()
    forecaster = mlforecast.MLForecast({"lgb": new_model()}, freq="MS", lags=LAGS).fit(frame)
    forecast = axil.forecast(forecaster, frame, h=2)
    table = forecast.what_if({("visits", "2017-06-01"): 40.0})
    assert table["series"].tolist() == ["sales", "sales", "visits", "visits"]
    assert (table.loc[table["series"] == "sales", "lags"] == 0).all()
    assert table.loc[2, "lags"] > 1
    by_index = pd.Series([40.0], pd.MultiIndex.from_tuples([("visits", "2017-06-01")]))
    pd.testing.assert_frame_equal(forecast.what_if(by_index), table)
    with pytest.raises(
        axil.InputError, match=r"names no series, and there are 2\. .*\('sales', '20"
    ):
        forecast.what_if({"2017-06-01": 40.0})
    with pytest.raises(axil.InputError, match="There is no series 'rain'"):
        forecast.what_if({("rain", "2017-06-01"): 40.0})


@pytest.mark.parametrize("form", ["wide", "mapping", "long"])
def test_every_form_of_several_series_gives_one_answer(two_series, form):
    forecaster = ForecasterRecursiveMultiSeries(
        estimator=new_model(), lags=LAGS, encoding="ordinal", transformer_series=None
    )
    data = two_series
    if form == "mapping":
        data = {name: two_series[name] for name in two_series}
    if form == "long":
        index = pd.MultiIndex.from_product([list(two_series), two_series.index])
        data = pd.DataFrame({"value": two_series.to_numpy().T.ravel()}, index=index)
    forecaster.fit(series=data, suppress_warnings=True)
    values = {("sales", "2012-03-01"): 200.0, ("visits", "2017-06-01"): 40.0}
    table = axil.forecast(forecaster, data, h=3).what_if(values)
    after = two_series.copy()
    after.loc["2012-03-01", "sales"] = 200.0
    after.loc["2017-06-01", "visits"] = 40.0

    def rows_of(frame):
        blocks = []
        for code, name in enumerate(frame):
            history = frame[name].to_numpy()
            blocks += [[*(history[t - lag] for lag in LAGS), code] for t in range(6, 150)]
        return np.array(blocks, dtype=float)

    model = new_model().fit(rows_of(two_series), two_series.to_numpy()[6:].T.ravel())
    predict = refitted(model, rows_of(after), after.to_numpy()[6:].T.ravel())
    for code, name in enumerate(two_series):
        history = list(after[name])
        for _ in range(3):
            history.append(predict(np.array([*(history[-lag] for lag in LAGS), code])))
        rows_of_series = table[table["series"] == name]
        np.testing.assert_allclose(rows_of_series["after"], history[-3:], rtol=1e-7)


def test_wrong_values_are_named(series):
    forecaster = ForecasterRecursive(estimator=new_model(), lags=LAGS)
    forecaster.fit(y=series)
    forecast = axil.forecast(forecaster, series, h=2)
    wrong = [
        ({"2030-01-01": 1.0}, "no observation of 'sales' at '2030-01-01'"),
        ({"sunday": 1.0}, "'sunday' is no date; expected one like 2005-01-01"),
        ({"2010-01-01": np.nan}, "expected a finite number"),
        ({}, "values is empty"),
        ([1.0], "values is a list; expected {date: value"),
    ]
    for values, message in wrong:
        with pytest.raises(axil.InputError, match=message):
            forecast.what_if(values)
    log = mlforecast.MLForecast(
        {"lgb": new_model()},
        freq="MS",
        lags=LAGS,
        target_transforms=[GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))],
    ).fit(as_frame(series))
    with pytest.raises(axil.InputError, match="such as positive ones for logarithms"):
        axil.forecast(log, as_frame(series), h=2).what_if({"2017-06-01": -1.0})

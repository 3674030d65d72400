"""Direct forecasters, with a model for each step, and losses of counts and amounts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import axil
from tests.forecasts.recursions import LAGS, new_model, refitted

lgb = pytest.importorskip("lightgbm")
mlforecast = pytest.importorskip("mlforecast")
pytest.importorskip("skforecast")

from mlforecast.target_transforms import Differences  # noqa: E402
from skforecast.direct import ForecasterDirect  # noqa: E402
from skforecast.recursive import ForecasterRecursive, ForecasterRecursiveMultiSeries  # noqa: E402

H = 3
N_STEPS = 5  # of the forecasters, each with a model
N = 120
WARM_UP = max(LAGS)


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(5)
    steps = np.arange(N)
    values = 30 + 0.2 * steps + 5 * np.sin(steps / 3) + rng.normal(size=N)
    return pd.Series(values, pd.date_range("2010-01-01", periods=N, freq="MS"), name="sales")


def as_frame(series):
    return pd.DataFrame({"unique_id": "sales", "ds": series.index, "y": series.to_numpy()})


def rows_of_step(values, step, library):
    """Return the rows whose targets are ``step`` steps after their first lag, and the targets.

    skforecast leaves out rows that have no target at the last of all steps.
    """
    n_last = len(values) - step
    if library == "skforecast":
        n_last = len(values) - N_STEPS
    origins = np.arange(WARM_UP - 1, n_last)
    X = np.array([[values[origin + 1 - lag] for lag in LAGS] for origin in origins])
    return X, values[origins + step]


def last_row(values):
    return np.array([values[-lag] for lag in LAGS])


def direct_by_hand(values, library):
    """Return predictions (H,) and weights (H, N) of the values as targets, of H models."""
    predictions = []
    weights = np.zeros((H, len(values)))
    for step in range(1, H + 1):
        X, y = rows_of_step(values, step, library)
        fitted = new_model().fit(X, y)
        row = last_row(values)[None]
        predictions.append(fitted.predict(row)[0])
        of_rows = axil.Explainer(fitted, X, y)(row).weights[0]
        first = WARM_UP - 1 + step
        weights[step - 1, first : first + len(y)] = of_rows
    return np.array(predictions), weights


def forecasts_of(library, series, differences):
    transforms = None
    order = None
    if differences:
        transforms = [Differences([1])]
        order = 1
    if library == "skforecast":
        forecaster = ForecasterDirect(
            estimator=new_model(), steps=N_STEPS, lags=LAGS, differentiation=order
        )
        forecaster.fit(y=series)
        return forecaster, axil.forecast(forecaster, series, h=H)
    frame = as_frame(series)
    forecaster = mlforecast.MLForecast(
        {"lgb": new_model()},
        freq="MS",
        lags=LAGS,
        target_transforms=transforms,
    ).fit(frame, max_horizon=N_STEPS)
    return forecaster, axil.forecast(forecaster, frame, h=H)


@pytest.mark.parametrize("differences", [False, True])
@pytest.mark.parametrize("library", ["skforecast", "mlforecast"])
def test_weights_are_those_of_the_models_of_each_step(series, library, differences):
    _, forecast = forecasts_of(library, series, differences)
    values = series.to_numpy()
    if differences:
        predictions, weights = direct_by_hand(np.diff(values), library)
        predictions = values[-1] + np.cumsum(predictions)
        weights = np.cumsum(weights, axis=0)
        weights = np.concatenate([np.zeros((H, 1)), weights], axis=1)
    else:
        predictions, weights = direct_by_hand(values, library)
    np.testing.assert_allclose(forecast.values[:, 0], predictions, rtol=1e-6)
    explanation = forecast.explain()
    by_date = pd.DataFrame(explanation.weights.T, forecast.row_dates).reindex(series.index)
    np.testing.assert_allclose(by_date.fillna(0.0).to_numpy().T, weights, atol=1e-8)
    np.testing.assert_allclose(
        explanation.predictions + forecast.base[:, 0], predictions, rtol=1e-6
    )
    assert forecast.path().empty
    assert len(forecast.explainers) == H
    with pytest.raises(axil.UnsupportedQuestionError, match=r"Take forecast\.explainers"):
        forecast.explainer  # noqa: B018
    total = forecast.group("year").groupby("step")["contribution"].sum()
    np.testing.assert_allclose(total, explanation.predictions, rtol=1e-9)


@pytest.mark.parametrize("library", ["skforecast", "mlforecast"])
def test_other_observations_reach_each_model(series, library):
    _, forecast = forecasts_of(library, series, differences=False)
    table = forecast.what_if({"2015-05-01": 99.0, "2019-12-01": 20.0})
    values = series.to_numpy()
    changed = values.copy()
    changed[[series.index.get_loc("2015-05-01"), N - 1]] = [99.0, 20.0]
    expected = []
    for step in range(1, H + 1):
        model = new_model().fit(*rows_of_step(values, step, library))
        expected.append(refitted(model, *rows_of_step(changed, step, library))(last_row(changed)))
    np.testing.assert_allclose(table["after"], expected, rtol=1e-7)
    parts = ["targets", "training features", "lags", "recursion", "base"]
    np.testing.assert_allclose(table[parts].sum(axis=1), table["change"], atol=1e-10)
    assert (table[["recursion", "base"]] == 0).all().all()
    assert (table[["targets", "training features", "lags"]] != 0).any().all()


@pytest.mark.parametrize("library", ["skforecast", "mlforecast"])
def test_vintages_of_direct_forecasters(series, library):
    _, old = forecasts_of(library, series[:-1], differences=True)
    _, new = forecasts_of(library, series, differences=True)
    table = axil.compare(old, new).table()
    np.testing.assert_allclose(table["before"], old.values[1:, 0], rtol=1e-7)
    np.testing.assert_allclose(table["after"], new.values[:-1, 0], rtol=1e-7)
    np.testing.assert_allclose(table.iloc[:, 7:].sum(axis=1), table["change"], atol=1e-9)


@pytest.mark.parametrize("library", ["skforecast", "mlforecast"])
def test_more_steps_than_models_are_refused(series, library):
    forecaster, _ = forecasts_of(library, series, differences=False)
    data = series
    if library == "mlforecast":
        data = as_frame(series)
    with pytest.raises(axil.InputError, match=r"h is 6, and this .* has models of 5 steps"):
        axil.forecast(forecaster, data, h=6)


def test_models_of_some_horizons_alone_are_refused(series):
    frame = as_frame(series)
    forecaster = mlforecast.MLForecast({"lgb": new_model()}, freq="MS", lags=LAGS)
    with pytest.raises(axil.InputError, match="models of some horizons alone"):
        axil.forecast(forecaster.fit(frame, horizons=[2, 4]), frame, h=2)


@pytest.fixture(scope="module")
def promotions(series):
    """Return a further feature at the dates of the fit and of ten more."""
    dates = pd.date_range(series.index[0], periods=N + 10, freq="MS")
    return pd.DataFrame({"promotion": np.random.default_rng(1).normal(size=N + 10)}, index=dates)


def test_further_features_of_direct_forecasters(series, promotions):
    forecaster = ForecasterDirect(estimator=new_model(), steps=3, lags=LAGS)
    forecaster.fit(y=series, exog=promotions[:N])
    forecast = axil.forecast(forecaster, series, h=H, exog=promotions)
    expected = forecaster.predict(steps=H, exog=promotions[N:])
    np.testing.assert_allclose(forecast.values[:, 0], expected, rtol=1e-9)
    assert np.isfinite(forecast.explain().weights).all()  # which adds up to the forecasts
    frame = as_frame(series).assign(promotion=promotions["promotion"].to_numpy()[:N])
    later = promotions[N:].rename_axis("ds").reset_index().assign(unique_id="sales")
    direct = mlforecast.MLForecast({"lgb": new_model()}, freq="MS", lags=LAGS)
    direct.fit(frame, max_horizon=3, static_features=[])
    forecast = axil.forecast(direct, frame, h=H, exog=later)
    np.testing.assert_allclose(forecast.values[:, 0], direct.predict(H, X_df=later)["lgb"])
    assert np.isfinite(forecast.explain().weights).all()
    with pytest.raises(axil.InputError, match="Pass them as exog="):
        axil.forecast(direct, frame, h=H)


@pytest.mark.parametrize("form", ["of all", "mapping", "long"])
def test_further_features_of_several_series(series, promotions, form):
    wide = pd.DataFrame({"sales": series, "visits": 100 - series}).asfreq("MS")
    by_series = {"sales": promotions, "visits": promotions * 2}
    if form == "of all":
        by_series = dict.fromkeys(wide, promotions)
    forecaster = ForecasterRecursiveMultiSeries(
        estimator=new_model(), lags=LAGS, encoding="ordinal"
    )
    exog_of_fit = {name: exog[:N] for name, exog in by_series.items()}
    forecaster.fit(series=wide, exog=exog_of_fit, suppress_warnings=True)
    exog = by_series
    if form == "of all":
        exog = promotions
    if form == "long":
        exog = pd.concat(by_series)
    forecast = axil.forecast(forecaster, wide, h=H, exog=exog)
    later = {name: frame[N:] for name, frame in by_series.items()}
    expected = forecaster.predict(steps=H, exog=later, suppress_warnings=True)
    expected = expected.pivot(columns="level", values="pred")[["sales", "visits"]]
    np.testing.assert_allclose(forecast.values, expected, rtol=1e-9)
    assert np.isfinite(forecast.explain().weights).all()
    changed = forecast.what_if({("visits", "2019-12-01"): 10.0})
    assert (changed["change"] != 0).any()
    with pytest.raises(axil.InputError, match="features promotion, and exog is not given"):
        axil.forecast(forecaster, wide, h=H)
    with pytest.raises(axil.InputError, match="exog has no features of the series 'visits'"):
        axil.forecast(forecaster, wide, h=H, exog={"sales": promotions})
    with pytest.raises(axil.InputError, match="exog lacks the feature 'promotion'"):
        axil.forecast(forecaster, wide, h=H, exog=promotions.rename(columns={"promotion": "p"}))


@pytest.mark.parametrize("objective", ["tweedie", "poisson", "gamma"])
@pytest.mark.parametrize("direct", [False, True])
def test_contributions_to_logarithms_of_counts_and_amounts(series, objective, direct):
    amounts = series.round()
    model = lgb.LGBMRegressor(objective=objective, n_estimators=10, num_leaves=5, verbose=-1)
    if direct:
        forecaster = ForecasterDirect(estimator=model, steps=H, lags=LAGS)
    else:
        forecaster = ForecasterRecursive(estimator=model, lags=LAGS)
    forecaster.fit(y=amounts)
    forecast = axil.forecast(forecaster, amounts, h=H)
    assert forecast.is_log
    np.testing.assert_allclose(forecast.values[:, 0], forecaster.predict(H), rtol=1e-9)
    explanation = forecast.explain()
    assert explanation.kind == "additive"
    logarithms = explanation.intercepts + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(np.exp(logarithms), forecast.values[:, 0], rtol=1e-6)
    top = forecast.top(2)
    assert "weight" not in top.columns
    np.testing.assert_allclose(np.exp(top["contribution (log)"]), top["factor"])
    by_year = forecast.group("year").groupby("step")["contribution (log)"].sum()
    np.testing.assert_allclose(by_year, explanation.contributions.sum(axis=1), rtol=1e-9)
    table = forecast.what_if({"2019-12-01": 90.0})
    np.testing.assert_allclose(table.iloc[:, 6:].sum(axis=1), table["change"], atol=1e-10)
    assert (table["targets"] != 0).any()


def test_counts_under_differences_are_refused(series):
    model = lgb.LGBMRegressor(objective="poisson", n_estimators=5, verbose=-1)
    forecaster = ForecasterRecursive(estimator=model, lags=LAGS, differentiation=1)
    rising = series.abs().cumsum()
    forecaster.fit(y=rising)
    with pytest.raises(
        axil.UnsupportedQuestionError, match="counts or amounts without differences"
    ):
        axil.forecast(forecaster, rising, h=H)

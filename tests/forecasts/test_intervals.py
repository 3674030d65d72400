"""Intervals of forecasts from backtests, against backtests by hand, and the plots of forecasts."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import axil
from axil.forecasts.readers import reader_of
from axil.forecasts.runs import record
from tests.forecasts.recursions import LAGS, new_model

lgb = pytest.importorskip("lightgbm")
mlforecast = pytest.importorskip("mlforecast")
pytest.importorskip("skforecast")

from mlforecast.target_transforms import GlobalSklearnTransformer  # noqa: E402
from skforecast.direct import ForecasterDirect  # noqa: E402
from skforecast.recursive import ForecasterRecursive, ForecasterRecursiveMultiSeries  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

H = 3
N = 90
N_WINDOWS = 12


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(8)
    steps = np.arange(N)
    dates = pd.date_range("2014-01-01", periods=N, freq="MS")
    return pd.DataFrame(
        {
            "sales": 40 + 0.2 * steps + 5 * np.sin(steps / 3) + rng.normal(size=N),
            "visits": 20 + 3 * np.cos(steps / 4) + rng.normal(size=N),
        },
        index=dates,
    )


def as_frame(wide):
    frame = wide.melt(ignore_index=False, var_name="unique_id", value_name="y")
    return frame.rename_axis("ds").reset_index()


def new_forecaster(kind, **settings):
    if kind == "mlforecast":
        return mlforecast.MLForecast({"lgb": new_model()}, freq="MS", lags=LAGS, **settings)
    if kind == "recursive":
        return ForecasterRecursive(estimator=new_model(), lags=LAGS, differentiation=1)
    if kind == "direct":
        return ForecasterDirect(estimator=new_model(), lags=LAGS, steps=H)
    return ForecasterRecursiveMultiSeries(estimator=new_model(), lags=LAGS, encoding="ordinal")


def fitted_and_forecasts(kind, wide):
    """Return a fitted forecaster, its data, and its forecasts (H, S)."""
    forecaster = new_forecaster(kind)
    if kind == "mlforecast":
        data = as_frame(wide)
        values = forecaster.fit(data).predict(H)["lgb"].to_numpy().reshape(-1, H).T
    elif kind == "several":
        data = wide.asfreq("MS")
        forecaster.fit(series=data, suppress_warnings=True)
        table = forecaster.predict(steps=H, suppress_warnings=True)
        values = table.pivot(columns="level", values="pred")[list(wide)].to_numpy()
    else:
        data = wide["sales"].asfreq("MS")
        forecaster.fit(y=data)
        values = forecaster.predict(steps=H).to_numpy()[:, None]
    return forecaster, data, values


@pytest.mark.parametrize("kind", ["mlforecast", "recursive", "direct", "several"])
@pytest.mark.parametrize("step_size", [1, 2])
def test_intervals_and_coverage_are_those_of_backtests_by_hand(wide, kind, step_size):
    forecaster, data, values = fitted_and_forecasts(kind, wide)
    forecast = axil.forecast(forecaster, data, h=H)
    calibrated = forecast.calibrate(N_WINDOWS, step_size)
    level = 0.6
    table = calibrated.interval(level)
    n_series = values.shape[1]
    errors = np.empty((N_WINDOWS, H, n_series))
    for window in range(N_WINDOWS):
        end = N - H - (N_WINDOWS - 1 - window) * step_size
        _, _, forecasts = fitted_and_forecasts(kind, wide[:end])
        errors[window] = wide.to_numpy()[end : end + H, :n_series] - forecasts
    place = math.ceil((N_WINDOWS + 1) * level)
    bounds = np.sort(np.abs(errors), axis=0)[place - 1]
    np.testing.assert_allclose(table["lower"], (values - bounds).T.ravel(), rtol=1e-7)
    np.testing.assert_allclose(table["upper"], (values + bounds).T.ravel(), rtol=1e-7)
    for step in range(H):
        covered = []
        for window in range(N_WINDOWS):
            # The windows whose observation at this step came before the window began.
            is_past = [(window - w) * step_size >= step + 1 for w in range(N_WINDOWS)]
            past = np.sort(np.abs(errors[is_past, step]), axis=0)
            rank = math.ceil((len(past) + 1) * level)
            if rank <= len(past):
                covered.append(np.abs(errors[window, step]) <= past[rank - 1])
        of_step = table[table["step"] == step + 1]
        np.testing.assert_allclose(of_step["coverage"], np.mean(covered, axis=0))
        assert (of_step["windows"] == len(covered)).all()


def test_intervals_of_logarithms_are_ratios(wide):
    frame = as_frame(wide)
    logarithms = GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))
    forecaster = new_forecaster("mlforecast", target_transforms=[logarithms]).fit(frame)
    forecast = axil.forecast(forecaster, frame, h=2)
    table = forecast.calibrate(10).interval(0.9)
    np.testing.assert_allclose(
        table["upper"] / table["forecast"], table["forecast"] / table["lower"]
    )
    assert (table["lower"] > 0).all()


def test_further_features_reach_the_windows(wide):
    dates = pd.date_range("2014-01-01", periods=N + H, freq="MS")
    exog = pd.DataFrame({"price": np.random.default_rng(2).normal(size=N + H)}, index=dates)
    frame = as_frame(wide[["sales"]]).assign(price=exog["price"].to_numpy()[:N])
    later = exog[N:].rename_axis("ds").reset_index().assign(unique_id="sales")
    forecaster = new_forecaster("mlforecast")
    forecaster.fit(frame, static_features=[])
    by_frame = axil.forecast(forecaster, frame, h=H, exog=later).calibrate(4).interval(0.5)
    series = wide["sales"].asfreq("MS")
    recursive = ForecasterRecursive(estimator=new_model(), lags=LAGS)
    recursive.fit(y=series, exog=exog[:N])
    by_series = axil.forecast(recursive, series, h=H, exog=exog).calibrate(4).interval(0.5)
    np.testing.assert_allclose(by_frame["upper"], by_series["upper"], rtol=1e-7)


def test_what_cannot_be_calibrated_is_named(wide):
    forecaster, data, _ = fitted_and_forecasts("recursive", wide)
    forecast = axil.forecast(forecaster, data, h=H)
    with pytest.raises(
        axil.InputError, match=r"12 windows of backtests are too few .* at least 19"
    ):
        forecast.calibrate(12).interval(0.95)
    with pytest.raises(axil.InputError, match="the shortest series has 90"):
        forecast.calibrate(90)
    with pytest.raises(axil.InputError, match="between 0 and 1"):
        forecast.calibrate(2).interval(90)
    reader = reader_of(forecaster, data, None, None)
    run = record(reader.before_last(5, H), H)
    np.testing.assert_allclose(reader.observed(run, 5)[:, 0], data.iloc[-5 : -5 + H])
    with pytest.raises(axil.InputError, match="The series 'sales' has gaps"):
        reader.observed(run, 6)


def test_shares_are_those_of_absolute_weights(wide):
    forecaster, data, _ = fitted_and_forecasts("several", wide)
    forecast = axil.forecast(forecaster, data, h=2)
    shares = forecast.share()
    np.testing.assert_allclose(shares.groupby(["series", "step"])["share"].sum(), 1.0)
    years = pd.to_datetime(forecast.row_dates).year
    weights = np.abs(forecast.explain().weights)
    expected = [weights[:, years == year].sum(axis=1) for year in sorted(set(years))]
    expected = np.array(expected) / weights.sum(axis=1)
    np.testing.assert_allclose(shares["share"], expected.T.ravel())
    with pytest.raises(axil.InputError, match="expected a label for each of the"):
        forecast.share(["a", "b"])


def test_forecasts_and_intervals_say_what_they_are(wide):
    forecaster, data, _ = fitted_and_forecasts("direct", wide)
    forecast = axil.forecast(forecaster, data, h=2)
    assert repr(forecast) == (
        "<axil.forecasts.Forecast: 2 steps of 1 series, 2021-07-01 to 2021-08-01; "
        "83 training rows; 2 models, one for each step>"
    )
    assert "2 models, one for each step" in forecast._repr_html_()
    calibrated = forecast.calibrate(1)
    assert repr(calibrated) == (
        "<axil.forecasts.ForecastIntervals: 2 steps of 1 series; 1 window of backtests>"
    )
    assert "1 window of backtests" in calibrated._repr_html_()


@pytest.fixture
def plots():
    pytest.importorskip("matplotlib").use("agg")
    return pytest.importorskip("axil.plots")


def test_the_fan_of_a_forecast_has_its_intervals_by_date(wide, plots):
    forecaster, data, _ = fitted_and_forecasts("mlforecast", wide)
    calibrated = axil.forecast(forecaster, data, h=H).calibrate(10)
    ax = plots.fan(calibrated, query="visits")
    widest = ax.collections[0].get_paths()[0].get_extents()
    table = calibrated.interval(0.9)
    of_series = table[table["series"] == "visits"]
    assert widest.ymax == pytest.approx(max(of_series["upper"].max(), wide["visits"].iloc[-1]))
    assert widest.ymin == pytest.approx(min(of_series["lower"].min(), wide["visits"].iloc[-1]))
    line = next(line for line in ax.lines if line.get_label() == "forecast")
    np.testing.assert_allclose(line.get_ydata()[1:], of_series["forecast"])
    assert "visits, 3 steps ahead" in ax.get_title("left")
    with pytest.raises(axil.InputError, match="leave rows and y out"):
        plots.fan(calibrated, y=[1.0])


def test_shares_are_drawn_in_plain_words(wide, plots):
    forecaster, data, _ = fitted_and_forecasts("mlforecast", wide)
    forecast = axil.forecast(forecaster, data, h=H)
    ax = plots.group(forecast, query="visits", output=2)
    shares = forecast.share()
    shares_shown = shares[(shares["series"] == "visits") & (shares["step"] == 2)]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], shares_shown["share"])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        str(y) for y in shares_shown["group"]
    ]
    title = ax.get_title("left").replace("\n", " ")
    assert "for visits 2021-08-01 rests on" in title
    assert "of it comes from 20" in title
    few = plots.group(forecast, "month", k=3)
    assert few.get_yticklabels()[-1].get_text() == "9 others"
    assert sum(bar.get_width() for bar in few.patches) == pytest.approx(1.0)
    with pytest.raises(axil.InputError, match="output is 4"):
        plots.group(forecast, output=4)

"""axil.forecast: the dates that made a forecast, checked against recursions made by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import axil
from axil.methods.method import verified_model

lgb = pytest.importorskip("lightgbm")
mlforecast = pytest.importorskip("mlforecast")
pytest.importorskip("skforecast")

from mlforecast.target_transforms import Differences, GlobalSklearnTransformer, LocalStandardScaler  # noqa: E402
from skforecast.direct import ForecasterDirect  # noqa: E402
from skforecast.recursive import ForecasterRecursive, ForecasterRecursiveMultiSeries  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

LAGS = [1, 2, 12]
H = 5


def model():
    return lgb.LGBMRegressor(n_estimators=15, num_leaves=6, verbose=-1, n_jobs=1)


@pytest.fixture(scope="module")
def series():
    """Carbon dioxide month by month, which statsmodels ships."""
    data = pytest.importorskip("statsmodels.api").datasets.co2.load_pandas().data["co2"]
    return data.resample("MS").mean().interpolate().asfreq("MS")["1980":].rename("co2")


def by_hand(values):
    """Weights (H, rows) of the targets in the forecasts, and the forecasts, of a series that differences were taken of."""
    changes = np.diff(values)
    rows = np.array([[changes[t - lag] for lag in LAGS] for t in range(max(LAGS), len(changes))])
    fitted = model().fit(rows, changes[max(LAGS) :])
    explainer = axil.Explainer(fitted, rows, changes[max(LAGS) :])
    weights, made, level = [], [], values[-1]
    known = list(changes)
    for _ in range(H):
        row = np.array([[known[-lag] for lag in LAGS]])
        weights.append(explainer(row).weights[0])
        known.append(fitted.predict(row)[0])
        level += known[-1]
        made.append(level)
    return np.cumsum(weights, axis=0), np.array(made), explainer


def test_differences_against_a_recursion_by_hand_date_by_date(series):
    forecaster = ForecasterRecursive(estimator=model(), lags=LAGS, differentiation=1)
    forecaster.fit(y=series)
    found = axil.forecast(forecaster, series, h=H)
    weights, made, _ = by_hand(series.to_numpy())
    np.testing.assert_allclose(found.values[:, 0], made, rtol=1e-9)
    np.testing.assert_allclose(found.explain().weights, weights, atol=1e-9)
    np.testing.assert_allclose(found.base[:, 0], series.iloc[-1])
    assert (found.explainer.index == series.index[13:].to_numpy()).all()
    frame = pd.DataFrame({"unique_id": "co2", "ds": series.index, "y": series.to_numpy()})
    other = mlforecast.MLForecast(
        {"lgb": model()}, freq="MS", lags=LAGS, target_transforms=[Differences([1])]
    )
    again = axil.forecast(other.fit(frame), frame, h=H)
    np.testing.assert_allclose(again.values, found.values, rtol=1e-9)
    np.testing.assert_allclose(again.explain().weights, weights, atol=1e-9)


@pytest.fixture(scope="module")
def frame(series):
    one = pd.DataFrame({"unique_id": "co2", "ds": series.index, "y": series.to_numpy()})
    level = 20 + np.sin(np.arange(len(series)) / 2)
    return pd.concat([one, one.assign(unique_id="waves", y=level)], ignore_index=True)


@pytest.mark.parametrize(
    "transforms",
    [
        None,
        [Differences([1, 12])],
        [LocalStandardScaler()],
        [Differences([1]), LocalStandardScaler()],
        "log",
    ],
)
def test_contributions_and_base_make_the_forecasts(frame, transforms):
    log = transforms == "log"
    given = [GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))] if log else transforms
    forecaster = mlforecast.MLForecast(
        {"lgb": model()}, freq="MS", lags=LAGS, date_features=["month"], target_transforms=given
    ).fit(frame)
    before = forecaster.predict(H)
    found = axil.forecast(forecaster, frame, h=H)
    assert found.is_log is log
    parts = found.explain()
    made = (parts.intercepts + parts.contributions.sum(axis=1)).reshape(2, H).T + found.base
    np.testing.assert_allclose(np.exp(made) if log else made, found.values, rtol=1e-6)
    assert found.values.T.ravel() == pytest.approx(before["lgb"].to_numpy())
    pd.testing.assert_frame_equal(forecaster.predict(H), before)  # the forecaster is as it was


def test_tables_name_series_dates_and_steps(frame):
    forecaster = mlforecast.MLForecast({"lgb": model()}, freq="MS", lags=LAGS).fit(frame)
    found = axil.forecast(forecaster, frame, h=3)
    top = found.top(2)
    assert list(top.columns[:4]) == ["series", "date", "step", "forecast"]
    assert len(top) == 2 * 3 * 2
    assert top["row"].str.match(r"(co2|waves) \d{4}-\d{2}-01").all()
    groups = found.group("series")
    assert set(groups["group"]) == {"co2", "waves"}
    totals = groups.groupby(["series", "step"])["weight"].sum()
    np.testing.assert_allclose(totals, 1.0)  # a model from its mean, without a transform
    assert set(found.group("year")["group"]) >= {1985, 1999}
    with pytest.raises(axil.InputError, match='expected "year", "quarter", "month", "series"'):
        found.group("week")


def test_weights_are_per_unit_of_each_series_under_a_scaler(frame):
    """A unit of carbon dioxide and one of the waves are different shares of their deviations."""
    frame = frame.assign(y=frame["y"].where(frame["unique_id"] == "co2", frame["y"] * 1e4))
    forecaster = mlforecast.MLForecast(
        {"lgb": model()}, freq="MS", lags=LAGS, target_transforms=[LocalStandardScaler()]
    ).fit(frame)
    forecast = axil.forecast(forecaster, frame, h=2)
    deviations = frame.groupby("unique_id")["y"].std(ddof=0)
    weights = forecast.explain().weights
    row_series = np.array([label.split()[0] for label in forecast.row_labels])
    top = forecast.top(3)
    np.testing.assert_allclose(top["weight"] * top["target"], top["contribution"], rtol=1e-9)
    for _, line in top.iterrows():
        position = 2 * ["co2", "waves"].index(line["series"]) + line["step"] - 1
        row = list(forecast.row_labels).index(line["row"])
        expected = weights[position, row] / deviations[row_series[row]]
        assert line["weight"] == pytest.approx(expected, rel=1e-6)
    by_series = forecast.group("series")
    for name in ("co2", "waves"):
        expected = weights[:, row_series == name].sum(axis=1) / deviations[name]
        of_group = by_series.loc[by_series["group"] == name, "weight"]
        np.testing.assert_allclose(of_group, expected, rtol=1e-6)
    assert forecast.group("year")["weight"].isna().all()
    alone = axil.forecast(forecaster.fit(frame[:264]), frame[:264], h=2)
    assert alone.group("year")["weight"].notna().all()


def test_quarters_and_the_base_of_logarithms_are_labelled(frame):
    logarithms = GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))
    forecaster = mlforecast.MLForecast(
        {"lgb": model()}, freq="MS", lags=LAGS, target_transforms=[logarithms]
    ).fit(frame)
    forecast = axil.forecast(forecaster, frame, h=2)
    quarters = forecast.group("quarter")
    assert sorted(set(quarters["group"])) == [1, 2, 3, 4]
    by_month = forecast.group("month").groupby(["series", "step"])["weight"].sum()
    by_quarter = quarters.groupby(["series", "step"])["weight"].sum()
    np.testing.assert_allclose(by_quarter, by_month)
    for table in (forecast.table(), quarters, forecast.top(2)):
        assert "base (log)" in table.columns
        assert "base" not in table.columns


def test_path_lists_the_features_that_are_forecasts(frame):
    forecaster = mlforecast.MLForecast({"lgb": model()}, freq="MS", lags=LAGS).fit(frame)
    found = axil.forecast(forecaster, frame, h=3)
    path = found.path()
    own = path[path["series"] == "co2"]
    assert own[["step", "feature"]].to_numpy().tolist() == [[2, "lag1"], [3, "lag1"], [3, "lag2"]]
    assert own["value"].to_numpy() == pytest.approx(found.values[[0, 1, 0], 0])
    assert found.table()["forecast features"].tolist() == [0, 1, 2] * 2


def test_forecasters_that_are_not_read_are_named(frame):
    with pytest.raises(axil.InputError, match="expected mlforecast's MLForecast, or skforecast"):
        axil.forecast(model(), frame)
    forecaster = mlforecast.MLForecast({"lgb": model()}, freq="MS", lags=LAGS).fit(frame)
    with pytest.raises(axil.InputError, match=r"data is a numpy\.ndarray; expected pandas"):
        axil.forecast(forecaster, frame.to_numpy())
    two = mlforecast.MLForecast({"a": model(), "b": model()}, freq="MS", lags=LAGS).fit(frame)
    with pytest.raises(axil.InputError, match="say which, such as model='a'"):
        axil.forecast(two, frame, h=2)
    assert axil.forecast(two, frame, h=2, model="b").values.shape == (2, 2)


@pytest.mark.parametrize(("encoding", "differences"), [("ordinal", None), ("onehot", 1)])
def test_several_series_of_skforecast_by_date_and_series(frame, encoding, differences):
    wide = frame.pivot(index="ds", columns="unique_id", values="y").asfreq("MS")
    forecaster = ForecasterRecursiveMultiSeries(
        estimator=model(), lags=LAGS, encoding=encoding, differentiation=differences
    )
    forecaster.fit(series=wide, suppress_warnings=True)
    found = axil.forecast(forecaster, wide, h=3)
    own = forecaster.predict(steps=3, suppress_warnings=True).pivot(columns="level", values="pred")
    np.testing.assert_allclose(found.values, own[["co2", "waves"]], rtol=1e-9)
    rows = pd.Series(found.row_labels)
    assert rows[[0, len(rows) - 1]].tolist() == [
        f"co2 {found.row_dates[0]!s:.10}",
        "waves 2001-12-01",
    ]
    assert found.explainer.targets[-1] == pytest.approx(
        (wide["waves"].diff() if differences else wide["waves"]).iloc[-1]
    )
    with pytest.raises(axil.InputError, match="fitted without further features: leave exog out"):
        axil.forecast(forecaster, wide, h=3, exog=wide)


def test_an_explainer_of_a_forecaster_says_what_to_pass(series):
    direct = ForecasterDirect(estimator=model(), steps=3, lags=LAGS)
    direct.fit(y=series)
    with pytest.raises(axil.InputError, match=r"axil.forecast\(forecaster, data\)"):
        axil.Explainer(direct, series, series)
    assert "axil.forecast(forecaster, data)" in str(
        axil.supports(ForecasterRecursive(estimator=model(), lags=2))
    )


@pytest.mark.parametrize("transforms", [[Differences([1])], "log"])
def test_the_timeline_has_a_curve_for_each_horizon_that_ends_at_its_forecast(frame, transforms):
    plots = pytest.importorskip("axil.plots")
    pytest.importorskip("matplotlib").use("agg")
    given = (
        [GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))]
        if transforms == "log"
        else transforms
    )
    forecaster = mlforecast.MLForecast(
        {"lgb": model()}, freq="MS", lags=LAGS, target_transforms=given
    ).fit(frame)
    found = axil.forecast(forecaster, frame, h=4)
    ax = plots.timeline(found, query="waves")
    curves = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    np.testing.assert_allclose(
        [line.get_ydata()[-1] for line in curves], found.values[:, 1], rtol=1e-6
    )
    assert "waves, 1 to 4 ahead" in ax.get_title(loc="left")
    with pytest.raises(axil.InputError, match="leave dates out"):
        plots.timeline(found, found.row_dates)


def test_the_page_runs_and_shows_what_it_prints(capsys):
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "forecasts.md").read_text(encoding="utf-8")
    names = {}
    examples = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", page, re.S)
    assert len(examples) == page.count("```python")
    assert page.count("```text") == sum(output != "" for _, output in examples) == 4
    for code, output in examples:
        exec(code, names)
        assert _masked(capsys.readouterr().out) == _masked(output)
    links = re.findall(r"!\[.+?\]\((figures/forecasts/.+?\.png)\)", page)
    pictures = [
        f"figures/forecasts/{name}.png" for name in re.findall(r"^ax = plots\.(\w+)", page, re.M)
    ]
    assert links == pictures
    assert all((docs / name).exists() for name in links)


def _masked(text):
    """A table without its numbers, which depend on versions, and without the width of its columns."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d[\d.]*", "#", text)).strip()


@pytest.fixture(scope="module")
def with_exog(series):
    """A forecaster with two further features, and these at the dates of the fit and of ten more."""
    dates = pd.date_range(series.index[0], periods=len(series) + 10, freq="MS")
    rng = np.random.default_rng(0)
    exog = pd.DataFrame(
        {"price": rng.normal(size=len(dates)), "sale": rng.normal(size=len(dates))}, index=dates
    )
    forecaster = ForecasterRecursive(estimator=model(), lags=LAGS)
    forecaster.fit(y=series, exog=exog.loc[series.index])
    return forecaster, exog


def test_further_features_are_those_of_the_fit_and_of_the_steps(series, with_exog):
    forecaster, exog = with_exog
    found = axil.forecast(forecaster, series, h=H, exog=exog)
    expected = forecaster.predict(steps=H, exog=exog.iloc[len(series) :])
    np.testing.assert_allclose(found.values[:, 0], expected, rtol=1e-9)
    n = len(series)
    bad = {
        "the steps alone": (
            exog.iloc[n:],
            rf"no row for {n - 12} of the {n - 12} dates of the fit, first 1981-01-01",
        ),
        "the fit alone": (
            exog.iloc[:n],
            "exog has 0 rows after the dates of the fit; expected one for each of the 5",
        ),
        "nothing": (None, "fitted with the further features price, sale, and exog is not given"),
        "one of them": (exog[["price"]], "exog lacks the feature 'sale'"),
        "an array": (exog.to_numpy(), "exog is a ndarray; expected a pandas frame"),
    }
    for given, message in bad.values():
        with pytest.raises(axil.InputError, match=message):
            axil.forecast(forecaster, series, h=H, exog=given)
    plain = ForecasterRecursive(estimator=model(), lags=LAGS)
    plain.fit(y=series)
    with pytest.raises(axil.InputError, match="leave exog out"):
        axil.forecast(plain, series, h=H, exog=exog)


def test_further_features_of_mlforecast_are_asked_for(series):
    data = pd.DataFrame(
        {
            "unique_id": "co2",
            "ds": series.index,
            "y": series.to_numpy(),
            "price": np.arange(len(series)),
        }
    )
    forecaster = mlforecast.MLForecast(models={"lgb": model()}, freq="MS", lags=LAGS)
    forecaster.fit(data, static_features=[])
    with pytest.raises(axil.InputError, match="Pass them as exog="):
        axil.forecast(forecaster, data, h=H)


def test_vintages_are_compared_and_folded_in(series):
    """Two fits of one series, a year apart: rows are dates of nanoseconds, and arrays where the model took arrays."""
    for as_numpy in (False, True):
        data = pd.DataFrame({"unique_id": "co2", "ds": series.index, "y": series.to_numpy()})
        made = []
        for last in (len(data) - 12, len(data)):
            forecaster = mlforecast.MLForecast(models={"lgb": model()}, freq="MS", lags=LAGS)
            forecaster.fit(data.iloc[:last], as_numpy=as_numpy)
            made.append(axil.forecast(forecaster, data.iloc[:last], h=H))
        old, new = (one.explainer for one in made)
        X = verified_model(new).features[-3:]
        found = axil.compare(old, new, X)
        table = found.table()
        np.testing.assert_allclose(table.iloc[:, 4:].sum(axis=1), table["change"], atol=1e-6)
        assert (found.rows.status == 2).sum() == 12  # added
        assert str(found.top(3)["row"].dtype).startswith("datetime64")
        again = old.refit(add=(verified_model(new).features[-12:], series.to_numpy()[-12:]))
        assert again.verification.n_rows == len(new.index)


def test_sample_weights_are_those_of_the_forecaster(series):
    sample_weight = np.linspace(0.5, 2.0, len(series))
    data = pd.DataFrame({"unique_id": "co2", "ds": series.index, "y": series.to_numpy()})
    data["weight"] = sample_weight
    by_column = mlforecast.MLForecast({"lgb": model()}, freq="MS", lags=LAGS)
    by_column.fit(data, weight_col="weight")
    weights = axil.forecast(by_column, data, h=H).explain().weights
    values = series.to_numpy()
    rows = np.array([[values[t - lag] for lag in LAGS] for t in range(12, len(values))])
    fitted = model().fit(rows, values[12:], sample_weight=sample_weight[12:])
    explainer = axil.Explainer(fitted, rows, values[12:], sample_weight=sample_weight[12:])
    first_step = np.array([[values[-lag] for lag in LAGS]])
    np.testing.assert_allclose(weights[0], explainer(first_step).weights[0], atol=1e-9)
    by_date = pd.Series(sample_weight, series.index)
    by_function = ForecasterRecursive(estimator=model(), lags=LAGS, weight_func=by_date.get)
    by_function.fit(y=series)
    forecast = axil.forecast(by_function, series, h=H)
    np.testing.assert_allclose(forecast.explain().weights, weights, atol=1e-9)
    assert (forecast.what_if({"1990-01-01": 400.0})["targets"] != 0).any()
    assert np.isfinite(forecast.calibrate(2).interval(0.5)["upper"]).all()
    with pytest.raises(axil.UnsupportedQuestionError, match="rows of the forecasters have sample"):
        axil.compare(forecast, forecast)


def test_steps_that_are_no_dates_have_no_years(series):
    data = pd.DataFrame({"unique_id": "co2", "ds": range(len(series)), "y": series.to_numpy()})
    forecaster = mlforecast.MLForecast({"lgb": model()}, freq=1, lags=LAGS).fit(data)
    forecast = axil.forecast(forecaster, data, h=2)
    assert forecast.top(1)["row"].between(12, len(series)).all()
    with pytest.raises(axil.InputError, match="the steps of the data are no dates, such as 12"):
        forecast.group("year")

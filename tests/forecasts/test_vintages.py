"""axil.compare of two forecasts, against a recursion in NumPy at the old splits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import axil
from tests.forecasts.recursions import LAGS, new_model, refitted, row_at, training_rows

lgb = pytest.importorskip("lightgbm")
mlforecast = pytest.importorskip("mlforecast")
pytest.importorskip("skforecast")

from mlforecast.lag_transforms import RollingMean  # noqa: E402
from mlforecast.target_transforms import (  # noqa: E402
    Differences,
    GlobalSklearnTransformer,
    LocalStandardScaler,
)
from skforecast.recursive import ForecasterRecursive  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

PARTS = [
    "rows revised",
    "rows removed",
    "rows added",
    "features moved",
    "base moved",
    "new splits",
]
N_NEW = 2  # months between the vintages
H_OLD = 6


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(3)
    steps = np.arange(150)
    values = 50 + 0.3 * steps + 6 * np.sin(steps / 3) + rng.normal(size=150)
    return pd.Series(values, pd.date_range("2005-01-01", periods=150, freq="MS"), name="sales")


@pytest.fixture(scope="module")
def revised(series):
    after = series.copy()
    after.iloc[[60, 61]] += 10
    return after


def as_frame(series):
    return pd.DataFrame({"unique_id": "sales", "ds": series.index, "y": series.to_numpy()})


def logarithms():
    return GlobalSklearnTransformer(FunctionTransformer(np.log, np.exp))


def vintage(series, h, transforms=None, **settings):
    forecaster = mlforecast.MLForecast(
        {"lgb": new_model()},
        freq="MS",
        lags=LAGS,
        lag_transforms={1: [RollingMean(3)]},
        target_transforms=transforms,
    ).fit(as_frame(series), **settings)
    return axil.forecast(forecaster, as_frame(series), h=h)


def recursion(values, predict, h):
    """Return the rows of the steps and the predictions, of a model of differences."""
    differences = list(np.diff(values))
    rows = []
    for _ in range(h):
        rows.append(row_at(differences, len(differences)))
        differences.append(predict(rows[-1]))
    return rows, np.array(differences[-h:])


def test_the_parts_are_those_of_a_recursion_by_hand(series, revised):
    old_values = series.to_numpy()[:-N_NEW]
    new_values = revised.to_numpy()
    comparison = axil.compare(
        vintage(series[:-N_NEW], H_OLD, [Differences([1])]), vintage(revised, 5, [Differences([1])])
    )
    X, y = training_rows(list(np.diff(old_values)))
    new_X, new_y = training_rows(list(np.diff(new_values)))
    old_model = new_model().fit(X, y)
    old_predict = refitted(old_model, X, y)
    with_revised = refitted(old_model, new_X[:-N_NEW], new_y[:-N_NEW])
    with_added = refitted(old_model, new_X, new_y)
    new_predict = refitted(new_model().fit(new_X, new_y), new_X, new_y)
    old_rows, old_predictions = recursion(old_values, old_predict, H_OLD)
    new_rows, new_predictions = recursion(new_values, new_predict, H_OLD - N_NEW)
    revised_predictions = np.array([with_revised(row) for row in old_rows])
    added_predictions = np.array([with_added(row) for row in old_rows])
    moved_predictions = np.array([with_added(row) for row in new_rows])
    mixed = np.concatenate([added_predictions[:N_NEW], moved_predictions])
    by_old = [old_predictions, revised_predictions, revised_predictions, added_predictions, mixed]
    stages = [(old_values[-1] + np.cumsum(steps))[N_NEW:] for steps in by_old]
    stages += [new_values[-1] + np.cumsum(steps) for steps in (moved_predictions, new_predictions)]
    table = comparison.table()
    np.testing.assert_allclose(table["before"], stages[0], rtol=1e-7)
    np.testing.assert_allclose(table["after"], stages[-1], rtol=1e-7)
    for name, part in zip(PARTS, np.diff(stages, axis=0)):
        np.testing.assert_allclose(table[name], part, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["change"], atol=1e-10)
    assert table["old step"].tolist() == [3, 4, 5, 6]
    assert table["new step"].tolist() == [1, 2, 3, 4]
    assert comparison.n_rows["added"] == N_NEW
    assert "4 forecasts of the same dates" in repr(comparison)
    assert "rows: 1" in comparison._repr_html_()


@pytest.mark.parametrize("transform", ["scaler", "log"])
def test_the_parts_sum_to_the_change_on_the_scale_of_the_series(series, revised, transform):
    def transforms():
        if transform == "scaler":
            return [LocalStandardScaler()]
        return [logarithms()]

    old = vintage(series[:-1], 4, transforms())
    new = vintage(revised, 3, transforms(), as_numpy=False)
    table = axil.compare(old, new).table()
    np.testing.assert_allclose(table["before"], old.values[1:, 0], rtol=1e-7)
    np.testing.assert_allclose(table["after"], new.values[:, 0], rtol=1e-7)
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["change"], atol=1e-9)
    assert (table["base moved"] != 0).all() == (transform == "scaler")


def test_one_forecaster_that_is_fitted_again_and_a_window_that_moves(series):
    forecaster = ForecasterRecursive(estimator=new_model(), lags=LAGS)
    forecaster.fit(y=series[:-1])
    old = axil.forecast(forecaster, series[:-1], h=3)
    forecaster.fit(y=series[24:])
    new = axil.forecast(forecaster, series[24:], h=2)
    comparison = axil.compare(old, new)
    assert comparison.n_rows == {"kept": 119, "revised": 0, "added": 1, "removed": 24}
    table = comparison.table()
    np.testing.assert_allclose(table["before"], old.values[1:, 0])
    assert (table["rows removed"] != 0).all()
    assert (table[["rows revised", "base moved"]] == 0).all().all()
    np.testing.assert_allclose(table[PARTS].sum(axis=1), table["change"], atol=1e-10)
    unchanged = axil.compare(new, new).table()
    assert (unchanged[PARTS] == 0).all().all()


def test_what_cannot_be_compared_is_named(series):
    old = vintage(series[:-6], 3)
    new = vintage(series, 3)
    wrong = [
        ((old, new), "expected a date that both forecast"),
        ((old.explainer, new), "expected what axil.forecast returned"),
        ((old, new.explainer), "expected an axil.Explainer"),
        ((old, vintage(series[:-6], 3, [logarithms()])), "takes logarithms"),
    ]
    for pair, message in wrong:
        with pytest.raises(axil.InputError, match=message):
            axil.compare(*pair)
    with pytest.raises(axil.InputError, match="leave X and init_score out"):
        axil.compare(old, new, series)
    with pytest.raises(axil.InputError, match="X is not given"):
        axil.compare(old.explainer, new.explainer)
    other_lags = ForecasterRecursive(estimator=new_model(), lags=[1, 2])
    other_lags.fit(y=series)
    with pytest.raises(axil.InputError, match="expected the same lags"):
        axil.compare(axil.forecast(other_lags, series, h=3), new)

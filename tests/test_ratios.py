"""Ratio studies: golden values of a published package, and derivatives by finite differences."""

from __future__ import annotations

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor

import axil
from axil.ratios import STATISTICS

N_SALES = 240


def sales(n: int = N_SALES) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and prices by a formula, so that any other program can make them too."""
    i = np.arange(n)
    prices = 100_000 + 1_000 * ((i * 37) % 401) + 13.0 * i
    ratios = 1.02 - 0.0004 * (prices / 1000 - 300) + 0.18 * np.sin(1.7 * i)
    return prices * ratios, prices


def test_golden_values() -> None:
    """The first three are those of assesspy 2.0.2 on the same sales."""
    golden = {"COD": 11.439997608217201, "PRD": 1.0175842275635443, "PRB": -0.039211084920937375}
    table = axil.ratio_study(*sales()).table.set_index("statistic")
    for name, value in golden.items():
        assert table.loc[name, "value"] == pytest.approx(value, rel=1e-12)


def test_vertical_equity_by_groups() -> None:
    """Quarters of 80 sales: the ratios are 1.1 of the cheapest and 0.9 of the dearest."""
    prices = np.linspace(1e5, 5e5, 80)
    ratios = np.repeat([1.1, 1.0, 1.0, 0.9], 20)
    table = axil.ratio_study(prices * ratios, prices).table.set_index("statistic")
    assert table.loc["VEI", "value"] == pytest.approx(-20.0)
    assert not table.loc["VEI", "meets"]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("n", [240, 41, 631])
def test_derivatives_by_predictions(name: str, n: int) -> None:
    values, prices = sales(n)
    slopes = STATISTICS[name].slopes(values, prices)
    compute = STATISTICS[name].compute
    ratios = values / prices
    middle = np.argsort(ratios)[n // 2 - 1 : n // 2 + 2].tolist()
    for place in [0, 5, n - 1, *middle]:
        step = np.zeros(n)
        step[place] = 1e-6 * prices[place]
        numeric = (compute(values + step, prices) - compute(values - step, prices)) / (
            2 * step[place]
        )
        assert slopes[place] == pytest.approx(numeric, rel=1e-4, abs=1e-6 * np.abs(slopes).max())


def test_strata_and_intervals() -> None:
    values, prices = sales()
    towns = np.where(np.arange(N_SALES) % 3, "north", "south")
    study = axil.ratio_study(values, prices, by=towns)
    table = study.table
    assert list(dict.fromkeys(table["stratum"])) == ["all", "north", "south"]
    assert ((table["low"] <= table["value"]) & (table["value"] <= table["high"])).all()
    line = table[(table["stratum"] == "south") & (table["statistic"] == "COD")].iloc[0]
    is_south = towns == "south"
    assert line["value"] == STATISTICS["COD"].compute(values[is_south], prices[is_south])
    assert line["sales"] == 80
    again = axil.ratio_study(values, prices, by=towns)
    pd.testing.assert_frame_equal(table, again.table)
    few = axil.ratio_study(values[:19], prices[:19]).table
    assert np.isnan(few["value"].iloc[4])
    assert not few["meets"].iloc[4]


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_influence_of_training_rows(statistic: str, is_log: bool) -> None:
    """The derivatives are those of predictions that are computed again from changed targets."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 4)), columns=list("abcd"))
    y = np.exp(12 + 0.3 * X["a"] + 0.2 * X["b"] * X["c"] + rng.normal(0, 0.1, 300))
    model = lightgbm.LGBMRegressor(n_estimators=15, num_leaves=8, verbose=-1, n_jobs=1)
    if is_log:
        model = TransformedTargetRegressor(model, func=np.log, inverse_func=np.exp)
    model.fit(X[:200], y[:200])
    explainer = axil.Explainer(model, X[:200], y[:200])
    new = X[200:]
    prices = y[200:].to_numpy()
    study = axil.ratio_study(model.predict(new), prices)
    table = study.influence(explainer, new, statistic).set_index("row")
    weights = explainer(new).weights
    targets = y[:200].to_numpy()
    for row in table.index[:5]:
        changes = []
        for percent in (1e-4, -1e-4):
            changed = targets.copy()
            changed[row] *= 1 + percent
            if is_log:
                values = np.exp(np.log(model.predict(new)) + weights @ np.log(changed / targets))
            else:
                values = model.predict(new) + weights @ (changed - targets)
            changes.append(STATISTICS[statistic].compute(values, prices))
        slope = (changes[0] - changes[1]) / 2e-4
        assert table.loc[row, "per percent"] == pytest.approx(0.01 * slope, rel=2e-2)


def test_refusals() -> None:
    values, prices = sales()
    with pytest.raises(axil.InputError, match="above zero"):
        axil.ratio_study(-values, prices)
    with pytest.raises(axil.InputError, match="predictions"):
        axil.ratio_study(values[:3], prices)
    X = np.random.default_rng(0).normal(size=(N_SALES, 3))
    model = lightgbm.LGBMRegressor(verbose=-1).fit(X, prices)
    explainer = axil.Explainer(model, X, prices)
    study = axil.ratio_study(values, prices)
    with pytest.raises(axil.InputError, match="Pass the model and the rows"):
        study.influence(explainer, X)
    with pytest.raises(axil.InputError, match="statistic"):
        study.influence(explainer, X, "mean")
    with pytest.raises(axil.InputError, match="rows"):
        study.influence(explainer, X[:5])

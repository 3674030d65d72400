"""Predictive distributions: their coverage over many repetitions, and their numbers against plain NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestRegressor

import axil
from axil import InputError
from axil.methods.intervals.conformal import Conformal, least_rows
from axil.methods.intervals.local import around
from axil.methods.method import verified_model
from tests.methods.intervals.interval_models import explainer, predictive, rows

REPETITIONS, TEST = 200, 50
Q, Y_Q = rows(TEST, 2)


@pytest.fixture(scope="module")
def atoms():
    """(TEST, 60): the predictive distributions of Q, from the lowest up, by quantiles at every place."""
    n = predictive().n_calibration
    return predictive().quantiles(Q, np.arange(1, n + 1) / (n + 1))


def expected_coverage(n, coverage, symmetric):
    """The mean over all calibration rows, where none of the errors are equal."""
    if symmetric:
        return np.ceil(round((n + 1) * coverage, 9)) / (n + 1)
    return 1 - 2 * np.floor(round((n + 1) * (1 - coverage) / 2, 9)) / (n + 1)


def assert_covers(held, n, coverage, symmetric):
    """Within four standard errors; a repetition's own coverage follows a beta distribution around the mean."""
    expected = expected_coverage(n, coverage, symmetric)
    assert expected >= coverage - 1e-12
    per_repetition = expected * (1 - expected) * (1 / (n + 2) + 1 / TEST)
    assert abs(np.mean(held) - expected) < 4 * np.sqrt(per_repetition / REPETITIONS)


def test_coverage_of_20_rows_over_repetitions():
    """Fresh calibration and test rows each time."""
    n, held = 20, {True: [], False: []}
    X, y = rows(REPETITIONS * (n + TEST), 30)
    for i in range(REPETITIONS):
        first, last = i * (n + TEST) + n, (i + 1) * (n + TEST)
        own = explainer().calibrate(X[first - n : first], y[first - n : first])
        for symmetric, found in held.items():
            table = own.interval(X[first:last], 0.9, symmetric=symmetric)
            found.append(
                ((table["lower"] <= y[first:last]) & (table["upper"] >= y[first:last])).mean()
            )
    for symmetric, found in held.items():
        assert_covers(found, n, 0.9, symmetric)


@pytest.mark.parametrize(
    "n", [9, 100, *(pytest.param(n, marks=pytest.mark.slow) for n in (20, 400))]
)
def test_coverage_over_repetitions(n):
    """Likewise for several coverages, with all that is known around the rows computed once."""
    own, size = predictive(), n + TEST
    X, y = rows(REPETITIONS * size, 40 + n)
    proven = verified_model(explainer())
    local = around(proven, own._around, proven.queries(X))
    errors, held = y - local.predictions[:, 0], {}
    for i in range(REPETITIONS):
        cal, test = slice(i * size, i * size + n), slice(i * size + n, (i + 1) * size)
        calibrated = Conformal(
            local.features[cal, 0], local.sizes[cal, 0], errors[cal], own._rows[0].penalty
        )
        some = replace(own, _rows=(calibrated,))
        for coverage in (0.5, 0.8, 0.9):
            for symmetric in (True, False):
                if n >= least_rows(coverage if symmetric else (1 + coverage) / 2):
                    lower, upper, _ = some._ends(local[test], coverage, symmetric)
                    inside = (lower[:, 0] <= errors[test]) & (errors[test] <= upper[:, 0])
                    held.setdefault((coverage, symmetric), []).append(inside.mean())
    for setting, found in held.items():
        assert_covers(found, n, *setting)


def test_too_few_rows_are_an_error():
    few = explainer().calibrate(*rows(8, 3))
    with pytest.raises(
        InputError,
        match=r"confidence_level is 0.9, which takes at least 9 calibration rows; there are 8",
    ):
        few.interval(Q)
    assert np.isfinite(few.interval(Q, 0.85)["upper"]).all()
    with pytest.raises(InputError, match="at least 19"):
        explainer().calibrate(*rows(18, 3)).interval(Q, symmetric=False)
    with pytest.raises(InputError, match=r"q is 0.95, which takes at least 19"):
        explainer().calibrate(*rows(18, 3)).quantiles(Q, [0.5, 0.95])


def test_quantiles_are_in_order_and_are_the_ends_of_intervals(atoms):
    assert (np.diff(atoms, axis=1) >= 0).all()
    table = predictive().interval(Q, 0.9, symmetric=False)
    ends = table[["lower", "upper"]].to_numpy()  # at (1 - 0.9) / 2, which is one rounding from 0.05
    np.testing.assert_allclose(predictive().quantiles(Q, [0.05, 0.95]), ends, rtol=1e-12)
    np.testing.assert_allclose(
        predictive().quantiles(Q, 0.5)[:, 0], np.median(atoms, axis=1), rtol=1e-12
    )


def test_symmetric_intervals_are_around_the_prediction():
    table = predictive().interval(Q)
    np.testing.assert_allclose(
        (table["lower"] + table["upper"]) / 2, table["prediction"], rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(table["prediction"], explainer()(Q).predictions, rtol=1e-9)
    half = predictive().interval(Q, 0.5)  # as many rows below as above: 30 or 31 of 60
    assert (table["scale"] <= (half["upper"] - half["lower"]) / 2 + 1e-12).all()


def test_measures_of_the_distribution(atoms):
    """Against the definitions, atom by atom."""
    apart = np.abs(atoms[:, :, None] - atoms[:, None, :]).mean(axis=(1, 2))
    crps = np.abs(atoms - Y_Q[:, None]).mean(axis=1) - apart / 2
    np.testing.assert_allclose(predictive().crps(Q, Y_Q), crps, rtol=1e-9)
    np.testing.assert_allclose(predictive().std(Q), atoms.std(axis=1), rtol=1e-9)
    n = atoms.shape[1]
    rank = (atoms < Y_Q[:, None]).sum(axis=1)
    np.testing.assert_allclose(predictive().cdf(Q, Y_Q), (rank + 0.5) / (n + 1), rtol=1e-12)
    at = predictive().cdf(Q, atoms[:, 9])
    np.testing.assert_allclose(at, 10 / (n + 1), rtol=1e-12)  # midway in the step
    made, std = predictive().predict(Q, return_std=True)
    np.testing.assert_array_equal(std, predictive().std(Q))
    np.testing.assert_allclose(made, predictive().predict(Q))


def test_a_frozen_estimator_predicts_with_deviations():
    """As other libraries hold models that have no ``fit``."""
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator(predictive())
    made, std = frozen.predict(Q, return_std=True)
    np.testing.assert_array_equal(made, predictive().predict(Q))
    np.testing.assert_array_equal(std, predictive().std(Q))


def test_samples_are_atoms(atoms):
    drawn = predictive().sample(Q, 7, random_state=3)
    assert drawn.shape == (TEST, 7)
    assert all(np.isin(drawn[i], atoms[i]).all() for i in range(TEST))
    np.testing.assert_array_equal(drawn, predictive().sample(Q, 7, random_state=3))
    assert not np.array_equal(drawn, predictive().sample(Q, 7, random_state=4))


def test_results_respect_the_memory_limit():
    (X, y), (X_cal, y_cal) = rows(300, 6), rows(60, 7)
    model = LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y)
    free, limited = (
        axil.Explainer(model, X, y, memory_limit=limit).calibrate(X_cal, y_cal)
        for limit in (None, "4MB")
    )
    with pytest.raises(
        InputError, match=r"50 x 100000 draws would take .* allowed by memory_limit. Ask for fewer"
    ):
        limited.sample(Q, 100_000)
    with pytest.raises(InputError, match=r"300 x 5000 quantiles would take"):
        limited.quantiles(X, np.linspace(0.1, 0.9, 5000))
    for ask in (
        lambda own: own.sample(Q, 2000, random_state=0),
        lambda own: own.quantiles(Q, np.linspace(0.1, 0.9, 200)),
    ):
        np.testing.assert_allclose(
            ask(free), ask(limited), rtol=1e-12
        )  # products of fewer rows differ in last bits


def test_samples_of_several_outputs_depend_on_each_other_as_errors_do():
    X, X_cal = rows(300, 6)[0], rows(200, 7)[0]
    noise, more = (np.random.default_rng(seed).normal(size=n) for seed, n in ((0, 300), (1, 200)))
    targets = [
        np.column_stack([5 * A[:, 0] + e, 5 * A[:, 0] - e]) for A, e in ((X, noise), (X_cal, more))
    ]
    model = RandomForestRegressor(30, min_samples_leaf=5, random_state=0).fit(X, targets[0])
    own = axil.Explainer(model, X, targets[0]).calibrate(X_cal, targets[1])
    drawn = own.sample(Q[:5], 2000, random_state=0)
    assert drawn.shape == (5, 2000, 2)
    for one in drawn:
        assert np.corrcoef(one.argsort(axis=0).argsort(axis=0).T)[0, 1] < -0.8
    every = own.quantiles(Q[:5], np.arange(1, 201) / 201)
    assert all(np.isin(drawn[i, :, k], every[i, :, k]).all() for i in range(5) for k in range(2))


def test_uncertainty_rank_is_a_share_and_rises_with_the_scale():
    table = predictive().interval(Q)
    assert table["uncertainty_rank"].between(0, 1).all()
    order = np.argsort(table["scale"].to_numpy())
    assert np.corrcoef(np.arange(TEST), table["uncertainty_rank"].to_numpy()[order])[0, 1] > 0.9


@pytest.mark.parametrize("inverse", [np.exp, lambda t: np.exp(-t)], ids=["rising", "falling"])
def test_intervals_of_prices(inverse):
    """Ends and quantiles go through the inverse; measures are of the distribution in prices."""
    (X, y), (X_cal, y_cal) = rows(300, 4), rows(60, 5)
    model = LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(X, y / 10)
    logs = axil.Explainer(model, X, y / 10).calibrate(X_cal, y_cal / 10)
    prices = axil.Explainer(model, X, y / 10, inverse_func=inverse).calibrate(X_cal, y_cal / 10)
    for symmetric in (True, False):
        one = logs.interval(Q, 0.9, symmetric=symmetric)
        other = prices.interval(Q, 0.9, symmetric=symmetric)
        ends = np.sort(inverse(one[["lower", "upper"]].to_numpy()), axis=1)
        np.testing.assert_allclose(other[["lower", "upper"]], ends, rtol=1e-12)
        np.testing.assert_allclose(
            other["prediction"], inverse(one["prediction"].to_numpy()), rtol=1e-12
        )
        column = "scale (log)" if inverse is np.exp else verified_model(prices).scale.label("scale")
        np.testing.assert_array_equal(other[column], one["scale"])
    atoms = np.sort(inverse(logs.quantiles(Q, np.arange(1, 61) / 61)), axis=1)
    np.testing.assert_allclose(prices.quantiles(Q, np.arange(1, 61) / 61), atoms, rtol=1e-12)
    np.testing.assert_allclose(prices.std(Q), atoms.std(axis=1), rtol=1e-9)
    truth = inverse(Y_Q / 10)
    apart = np.abs(atoms[:, :, None] - atoms[:, None, :]).mean(axis=(1, 2))
    np.testing.assert_allclose(
        prices.crps(Q, Y_Q / 10), np.abs(atoms - truth[:, None]).mean(axis=1) - apart / 2, rtol=1e-9
    )
    np.testing.assert_allclose(
        prices.cdf(Q, Y_Q / 10), ((atoms < truth[:, None]).sum(axis=1) + 0.5) / 61, rtol=1e-12
    )


def test_infinite_ends_stay_so_in_prices():
    """Whatever the inverse makes of them; other outputs of the row are not touched."""
    X, y = rows(100, 8)
    both = np.column_stack([y, y]) / 10
    model = RandomForestRegressor(5, random_state=0).fit(X, both)
    own = axil.Explainer(model, X, both, inverse_func=np.exp).calibrate()
    shown = own._shown(np.array([[np.inf, 0.2], [-np.inf, 0.1]]))
    np.testing.assert_array_equal(shown, [[np.inf, np.exp(0.2)], [-np.inf, np.exp(0.1)]])


def test_several_outputs_are_each_their_own():
    """A forest of two outputs: the second is a copy of the first times ten, and so are its intervals."""
    (X, y), (X_cal, y_cal) = rows(200, 6), rows(40, 7)
    both = RandomForestRegressor(20, min_samples_leaf=4, random_state=0).fit(
        X, np.column_stack([y, 10 * y])
    )
    own = axil.Explainer(both, X, np.column_stack([y, 10 * y])).calibrate(
        X_cal, np.column_stack([y_cal, 10 * y_cal])
    )
    table = own.interval(Q[:5])
    assert list(table.columns) == [
        "query",
        "output",
        "prediction",
        "lower",
        "upper",
        "scale",
        "uncertainty_rank",
    ]
    for column in ("lower", "upper", "scale"):
        np.testing.assert_allclose(
            10 * table[column][table["output"] == 0].to_numpy(), table[column][table["output"] == 1]
        )
    assert own.quantiles(Q[:5], [0.2, 0.5]).shape == (5, 2, 2)
    assert own.std(Q[:5]).shape == (5, 2)
    assert own.sample(Q[:5], 3, random_state=0).shape == (5, 3, 2)
    assert own.crps(Q[:5], np.column_stack([Y_Q, Y_Q])[:5]).shape == (5, 2)


def test_why_against_all_weights():
    table = predictive().why(Q[:6], 5)
    weights, errors = (
        np.abs(explainer()(Q[:6]).weights),
        explainer().targets - explainer().model.predict(rows(300, 0)[0]),
    )
    parts = weights * np.abs(errors)
    for i in range(6):
        lines, order = table[table["query"] == i], np.argsort(-parts[i], kind="stable")[:5]
        np.testing.assert_array_equal(lines["row"], order)
        np.testing.assert_allclose(lines["share"], parts[i][order] / parts[i].sum(), rtol=1e-6)
        np.testing.assert_allclose(lines["error"], errors[order], rtol=1e-6)
        np.testing.assert_allclose(lines["weight"].abs(), weights[i][order], rtol=1e-6)
    whole = predictive().why(Q[:2], 1000)
    np.testing.assert_allclose(whole.groupby("query")["share"].sum(), 1.0, rtol=1e-9)


def test_no_rows():
    assert len(predictive().interval(Q[:0])) == 0
    assert predictive().quantiles(Q[:0], [0.1, 0.9]).shape == (0, 2)
    assert len(predictive().why(Q[:0])) == 0

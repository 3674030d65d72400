"""statsmodels' least squares: weights against the closed form, other targets against a refit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import axil
from tests.adapters.sklearn_models import table

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")

DATA = table(120)
Y, WEIGHT = DATA.y, DATA.weight
X, X_NEW = (np.hstack([np.ones((len(rows), 1)), rows]) for rows in (DATA.X, DATA.X_new))
SIGMA = 0.5 ** np.abs(np.subtract.outer(np.arange(len(Y)), np.arange(len(Y))))


def frame(rows):
    made = pd.DataFrame(rows[:, :4], columns=list("abcd"))
    return made.assign(kind=[f"kind {int(kind)}" for kind in rows[:, 4]])


FRAME, FRAME_NEW = frame(DATA.X), frame(DATA.X_new)
FORMULA = "y ~ a + np.log(b**2 + 1) + C(kind) + center(d)"


def by_formula(y, fit=smf.ols, **how):
    return fit(FORMULA, FRAME.assign(y=y), **how).fit()


CASES = {  # how to fit to targets, training rows and new ones
    "ols": (lambda y: sm.OLS(y, X).fit(), X, X_NEW),
    "ols by qr": (lambda y: sm.OLS(y, X).fit(method="qr"), X, X_NEW),
    "ols robust errors": (lambda y: sm.OLS(y, X).fit(cov_type="HC3"), X, X_NEW),
    "ols of a frame": (
        lambda y: sm.OLS(y, FRAME[list("abcd")]).fit(),
        FRAME[list("abcd")],
        FRAME_NEW[list("abcd")],
    ),
    "ols collinear": (
        lambda y: sm.OLS(y, X[:, [0, 1, 1]]).fit(),
        X[:, [0, 1, 1]],
        X_NEW[:, [0, 1, 1]],
    ),
    "wls": (lambda y: sm.WLS(y, X, weights=WEIGHT).fit(), X, X_NEW),
    "gls": (lambda y: sm.GLS(y, X, sigma=SIGMA).fit(), X, X_NEW),
    "gls of variances": (lambda y: sm.GLS(y, X, sigma=WEIGHT).fit(), X, X_NEW),
    "formula": (by_formula, FRAME[["a", "b", "d", "kind"]], FRAME_NEW[["a", "b", "d", "kind"]]),
    "weighted formula": (
        lambda y: by_formula(y, smf.wls, weights=WEIGHT),
        FRAME[["a", "b", "d", "kind"]],
        FRAME_NEW[["a", "b", "d", "kind"]],
    ),
}


@cache
def fitted(name):
    return CASES[name][0](Y)


@pytest.mark.parametrize("name", CASES)
def test_weights_make_the_predictions_and_a_what_if_is_a_refit(name):
    fit, rows, new = CASES[name]
    model = fitted(name)
    assert axil.supports(model).exact
    explainer = axil.Explainer(model, rows, Y)
    scale = np.abs(Y).max()
    # least squares in float64
    np.testing.assert_allclose(
        explainer(new).predictions, model.predict(new), rtol=0, atol=1e-11 * scale
    )
    changed = Y.copy()
    changed[:5] += 3.0
    after = explainer.what_if(new, dict(zip(range(5), changed[:5])))["after"]
    np.testing.assert_allclose(after, fit(changed).predict(new), rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("name", CASES)
def test_other_data_than_those_of_the_fit_show(name):
    rows, model = CASES[name][1], fitted(name)
    one, two = Y.copy(), Y.copy()
    one[3] += 1e-3
    two[[4, 90]] = two[[90, 4]]
    wrong = [(rows, one), (rows, two), (rows[1:], Y[1:]), (rows[::-1], Y)]
    for X_train, y_train in wrong:
        with pytest.raises((axil.ExactnessError, axil.InputError)):
            axil.Explainer(model, X_train, y_train)


def test_weights_are_the_closed_form():
    weights = axil.Explainer(fitted("wls"), X, Y, sample_weight=WEIGHT)(X_NEW).weights
    expected = X_NEW @ np.linalg.solve((X.T * WEIGHT) @ X, X.T * WEIGHT)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-13)
    weights = axil.Explainer(fitted("gls"), X, Y)(X_NEW).weights
    inverse = np.linalg.inv(SIGMA)
    np.testing.assert_allclose(
        weights, X_NEW @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse), rtol=0, atol=1e-13
    )


def test_removal_is_a_derivative():
    explainer = axil.Explainer(fitted("wls"), X, Y)
    step = 1e-5 * WEIGHT[7]
    nearly = [
        sm.WLS(Y, X, weights=WEIGHT + sign * step * (np.arange(len(Y)) == 7)).fit().predict(X_NEW)
        for sign in (-1, 1)
    ]
    slope = WEIGHT[7] * (nearly[0] - nearly[1]) / (2 * step)
    np.testing.assert_allclose(
        explainer.removal(X_NEW, method="first-order")[:, 7], slope, rtol=0, atol=1e-8
    )  # of a difference quotient
    with pytest.raises(axil.UnsupportedQuestionError):
        axil.Explainer(fitted("gls"), X, Y).removal(X_NEW)


def test_other_weights_than_those_of_the_model_are_refused():
    with pytest.raises(axil.InputError, match="sample_weight of row 3"):
        axil.Explainer(
            fitted("wls"), X, Y, sample_weight=np.where(np.arange(len(Y)) == 3, 2 * WEIGHT, WEIGHT)
        )
    with pytest.raises(axil.InputError, match="takes no sample_weight"):
        axil.Explainer(fitted("ols"), X, Y, sample_weight=WEIGHT)


def test_rows_that_a_formula_dropped_are_not_rows_of_the_fit():
    holes = FRAME.assign(y=Y)
    holes.loc[3, "a"] = np.nan
    model = smf.ols("y ~ a + b", holes).fit()
    with pytest.raises(axil.ExactnessError, match="fitted on 119 rows"):
        axil.Explainer(model, holes[["a", "b"]], Y)
    kept = holes.dropna()
    explainer = axil.Explainer(model, kept[["a", "b"]], kept["y"])
    with pytest.raises(axil.InputError, match="missing or infinite"):
        explainer(holes.loc[2:4, ["a", "b"]])


def test_a_formula_takes_the_columns_that_it_names():
    with pytest.raises(axil.InputError, match=r"unexpected \['c'\]"):
        axil.Explainer(fitted("formula"), FRAME, Y)


def test_results_without_their_data():
    model = sm.OLS(Y, X).fit()
    model.remove_data()
    np.testing.assert_allclose(
        axil.Explainer(model, X, Y)(X_NEW).predictions, model.predict(X_NEW), rtol=0, atol=1e-10
    )
    for rows, targets in ((X, Y + (np.arange(len(Y)) == 3)), (X[::-1], Y), (X[1:], Y[1:])):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, rows, targets)


REFUSED = {
    "fit_regularized": (lambda: sm.OLS(Y, X).fit_regularized(alpha=0.1), "fit_regularized"),
    "QuantReg": (lambda: sm.QuantReg(Y, X).fit(), "class"),
    "RLM": (lambda: sm.RLM(Y, X).fit(), "class"),
    "GLSAR": (lambda: sm.GLSAR(Y, X).iterative_fit(2), "class"),
    "GLM": (lambda: sm.GLM(Y, X).fit(), "class"),
    "Logit": (lambda: sm.Logit(Y > 5, X).fit(disp=0), "class"),
    "two outputs": (lambda: sm.OLS(np.stack([Y, Y], axis=1), X).fit(), "params"),
    "AutoReg": (lambda: sm.tsa.AutoReg(Y, 1).fit(), "class"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_least_squares_is_refused(name):
    make, setting = REFUSED[name]
    found = axil.supports(make())
    assert (found.kind, found.setting) == ("no", setting)


def test_a_model_that_was_not_fitted():
    with pytest.raises(axil.InputError, match="OLS has not been fitted"):
        axil.supports(sm.OLS(Y, X))

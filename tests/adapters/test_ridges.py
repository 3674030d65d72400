"""Ridge regression with estimated penalties, penalties of each output, and classes: closed forms and fits without rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingRegressor
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    LinearRegression,
    Ridge,
    RidgeClassifier,
    RidgeCV,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.adapters import smoother_models
from tests.adapters.sklearn_models import labels, table, two

DATA = table(60)
X, Y, WEIGHT, X_NEW = DATA.X, DATA.y, DATA.weight, DATA.X_new[:7]
TWO = np.stack([Y, np.random.default_rng(5).normal(size=len(Y))], axis=1)


def solved(X, y, weight, penalties, X_new):
    """Predictions of weighted least squares with a penalty of each coefficient, by the normal equations."""
    w = np.ones(len(X)) if weight is None else weight
    used = np.isfinite(penalties)
    centre, mean = np.average(X, axis=0, weights=w), np.average(y, axis=0, weights=w)
    Z = (X - centre)[:, used]
    coefficients = np.linalg.solve(
        Z.T @ (Z * w[:, None]) + np.diag(penalties[used]), Z.T @ (w[:, None] * (y - mean))
    )
    return mean + (X_new - centre)[:, used] @ coefficients


def penalties_of(model):
    """(p,): the precision of each coefficient by that of the noise."""
    precisions = np.broadcast_to(model.lambda_, model.coef_.shape)
    left_out = precisions >= getattr(model, "threshold_lambda", np.inf)
    return np.where(left_out, np.inf, precisions / model.alpha_)


ESTIMATED = {
    "bayesian": (BayesianRidge(), None),
    "bayesian weighted": (BayesianRidge(), WEIGHT),
    "ard": (ARDRegression(threshold_lambda=1e9), None),
    "ard columns left out": (ARDRegression(threshold_lambda=20.0), None),
}


@pytest.mark.parametrize("name", ESTIMATED)
def test_estimated_precisions_are_held(name, recwarn):
    """Weights, other targets and fits without rows, by the normal equations with the precisions of the fit."""
    model, weight = clone(ESTIMATED[name][0]), ESTIMATED[name][1]
    model.fit(X, Y) if weight is None else model.fit(X, Y, sample_weight=weight)
    assert axil.supports(model).exact
    explainer, penalties = axil.Explainer(model, X, Y, sample_weight=weight), penalties_of(model)
    assert np.isinf(penalties).any() == ("left out" in name)
    np.testing.assert_allclose(explainer(X_NEW).weights @ Y, model.predict(X_NEW), rtol=1e-9)
    changed = Y.copy()
    changed[4] = 0.0
    expected = solved(X, changed[:, None], weight, penalties, X_NEW)[:, 0]
    np.testing.assert_allclose(explainer.what_if(X_NEW, {4: 0.0})["after"], expected, rtol=1e-9)
    keep = ~np.isin(np.arange(len(Y)), [3, 8])
    left = None if weight is None else weight[keep]
    expected = solved(X[keep], Y[keep, None], left, penalties, X_NEW)[:, 0]
    np.testing.assert_allclose(explainer.without(X_NEW, [3, 8])["after"], expected, rtol=1e-9)
    again = explainer.refit(drop=[3, 8])
    np.testing.assert_allclose(again.model.predict(X_NEW), expected, rtol=1e-9)
    np.testing.assert_array_equal(again.model.lambda_, model.lambda_)
    assert np.isfinite(again.model.predict(X_NEW, return_std=True)[1]).all()
    whole, before = explainer.refit().model, model.predict(X_NEW, return_std=True)
    np.testing.assert_allclose(whole.predict(X_NEW, return_std=True), before, rtol=1e-6)
    loo = explainer.diagnostics.leave_one_out()["prediction"].to_numpy()
    one = np.arange(len(Y)) != 9
    own = None if weight is None else weight[one]
    np.testing.assert_allclose(
        loo[9], solved(X[one], Y[one, None], own, penalties, X[9:10])[0, 0], rtol=1e-9
    )


@pytest.mark.parametrize(
    "model", [Ridge(np.array([0.5, 20.0])), RidgeCV(np.logspace(-2, 4, 7), alpha_per_target=True)]
)
def test_each_output_has_its_own_penalty(model):
    model = clone(model).fit(X, TWO)
    alphas = np.asarray(getattr(model, "alpha_", model.alpha if hasattr(model, "alpha") else None))
    assert alphas[0] != alphas[1]
    explainer = axil.Explainer(model, X, TWO)
    keep = np.arange(len(X)) != 5
    for k, alpha in enumerate(alphas):
        alone = Ridge(alpha).fit(X, TWO[:, k])
        expected = axil.Explainer(alone, X, TWO[:, k])(X_NEW).weights
        np.testing.assert_allclose(explainer(X_NEW).weights[:, k], expected, rtol=0, atol=1e-12)
        after = explainer.without(X_NEW, [5])["after"].to_numpy().reshape(len(X_NEW), 2)[:, k]
        np.testing.assert_allclose(
            after, Ridge(alpha).fit(X[keep], TWO[keep, k]).predict(X_NEW), rtol=1e-9
        )
        again = explainer.refit(drop=[5]).model
        np.testing.assert_allclose(again.predict(X_NEW)[:, k], after, rtol=1e-9)


CLASSIFIERS = [name for name in smoother_models.CLASSES if "balanced" not in name]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes_without_rows_are_those_of_a_fit(name):
    """Fits of scikit-learn itself without the rows, with the penalty that was chosen."""
    case = smoother_models.CLASSES[name]()
    keep = ~np.isin(np.arange(len(case.y)), [3, 8])
    settings = {"alphas": [float(case.model.alpha_)]} if hasattr(case.model, "alpha_") else {}
    how = {} if case.sample_weight is None else {"sample_weight": case.sample_weight[keep]}
    fitted = clone(case.model).set_params(**settings).fit(case.X[keep], case.y[keep], **how)
    expected = smoother_models.Shares(fitted, None, None, None, None).predict(case.X_new[:4])
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    after = explainer.without(case.X_new[:4], [3, 8])["after"].to_numpy().reshape(expected.shape)
    np.testing.assert_allclose(after, expected, atol=1e-9)
    again = explainer.refit(drop=[3, 8]).model.decision_function(case.X_new[:4])
    np.testing.assert_allclose(again, fitted.decision_function(case.X_new[:4]), atol=1e-9)
    assert "ridge regression of targets 0 and 1" in explainer.top(case.X_new[:2]).attrs["axil"]
    np.testing.assert_array_equal(explainer.targets, case.targets)


def test_balanced_classes_are_counted_again_by_refit_alone():
    case = smoother_models.CLASSES["ridge classifier balanced"]()
    explainer = axil.Explainer(case.model, case.X, case.y)
    for ask in (
        lambda: explainer.without(case.X_new, [1]),
        explainer.diagnostics.leave_one_out,
        lambda: explainer.removal(case.X_new),
    ):
        with pytest.raises(
            axil.UnsupportedQuestionError, match="counts the classes of the rows that are left"
        ):
            ask()
    found = explainer.refit(drop=[1]).model
    keep = np.arange(len(case.y)) != 1
    np.testing.assert_allclose(
        found.coef_, clone(case.model).fit(case.X[keep], case.y[keep]).coef_, atol=1e-12
    )


def test_without_an_intercept_classes_are_refused():
    model = RidgeClassifier(fit_intercept=False).fit(X, two(Y))
    assert axil.supports(model).setting == "fit_intercept"
    with pytest.raises(
        axil.UnsupportedModelError, match="explain a Ridge that is fitted to numbers -1 and 1"
    ):
        axil.Explainer(model, X, two(Y))
    alone = Ridge(fit_intercept=False).fit(X, np.where(two(Y) == "above", -1.0, 1.0))
    assert axil.Explainer(alone, X, np.where(two(Y) == "above", -1.0, 1.0)).kind == "exact"


def test_around_ridges():
    """Pipelines, searches, calibration, voting of members whose outputs share weights and do not."""
    classes = labels(Y)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), RidgeClassifier()),
        {"ridgeclassifier__alpha": [1, 10]},
        cv=2,
    )
    search.fit(X, classes)
    found = axil.Explainer(search, X, classes)(X_NEW).predictions
    np.testing.assert_allclose(found, (1 + search.decision_function(X_NEW)) / 2, atol=1e-12)
    calibrated = CalibratedClassifierCV(RidgeClassifier(), cv=2, ensemble=False).fit(X, two(Y))
    assert axil.Explainer(calibrated, X, two(Y)).kind == "exact"
    sparse = RidgeClassifier(tol=1e-13).fit(csr_matrix(X), classes)
    assert axil.Explainer(sparse, csr_matrix(X), classes).kind == "exact"
    voting = VotingRegressor(
        [("ridge", BayesianRidge()), ("least squares", LinearRegression())]
    ).fit(X, Y)
    np.testing.assert_allclose(
        axil.Explainer(voting, X, Y)(X_NEW).predictions, voting.predict(X_NEW), rtol=1e-9
    )


@pytest.mark.parametrize("around", [OneVsRestClassifier, MultiOutputClassifier, BaggingClassifier])
def test_members_without_probabilities_are_refused_by_name(around):
    y = (
        np.stack([Y > 5, Y > 6], axis=1).astype(int)
        if around is MultiOutputClassifier
        else labels(Y)
    )
    model = around(RidgeClassifier()).fit(X, y)
    assert axil.supports(model).kind == "no"
    with pytest.raises(axil.UnsupportedModelError, match="RidgeClassifier"):
        axil.Explainer(model, X, y)

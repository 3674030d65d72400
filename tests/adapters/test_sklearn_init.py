"""Gradient boosting from the predictions of another model: against the library, and brute force with the splits held fixed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.methods.method import verified_model
from tests.adapters.sklearn_models import Case, table

DATA = table(150)
SIZE = np.abs(DATA.y).max()
SINGLE = 1e-6 * SIZE  # scikit-learn hands init its features in float32, in which it then solves


def fit(init, X=DATA.X, weight=None, X_new=DATA.X_new, **settings):
    model = GradientBoostingRegressor(
        **{"n_estimators": 6, "random_state": 3, "init": init, **settings}
    )
    return Case(model.fit(X, DATA.y, sample_weight=weight), X, DATA.y, weight, X_new)


CASES = {
    "linear regression": lambda: fit(LinearRegression()),
    "ridge": lambda: fit(Ridge(3.0)),
    "ridge weighted": lambda: fit(Ridge(3.0), weight=DATA.weight),
    "kernel ridge": lambda: fit(KernelRidge(alpha=2.0, kernel="rbf", gamma=0.1)),
    "neighbours": lambda: fit(KNeighborsRegressor(5)),
    "forest": lambda: fit(RandomForestRegressor(3, max_depth=4, random_state=0)),
    "boosting": lambda: fit(GradientBoostingRegressor(n_estimators=2, random_state=1)),
    "pipeline": lambda: fit(make_pipeline(StandardScaler(), Ridge())),
    "subsample": lambda: fit(Ridge(), subsample=0.6),
    "early stopping": lambda: fit(Ridge(), n_iter_no_change=3, n_estimators=20),
    "early stopping and subsample": lambda: fit(
        KNeighborsRegressor(3), n_iter_no_change=3, subsample=0.7
    ),
    "sparse": lambda: fit(KNeighborsRegressor(4), csr_matrix(DATA.X), X_new=csr_matrix(DATA.X_new)),
}
CASES = {name: cache(make) for name, make in CASES.items()}


def explain(case):
    return axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)


@pytest.mark.parametrize("name", CASES)
def test_weights_make_the_predictions(name):
    case = CASES[name]()
    assert axil.supports(case.model).exact
    explainer = explain(case)
    explanation = explainer(case.X_new)
    np.testing.assert_allclose(
        explanation.predictions, case.model.predict(case.X_new), rtol=0, atol=SINGLE
    )
    assert np.abs(explanation.intercepts).max() <= SINGLE


@pytest.mark.parametrize("name", CASES)
def test_the_map_is_the_same_however_it_is_asked(name):
    case = CASES[name]()
    explainer = explain(case)
    K, (engine,) = explainer.jacobian.matrix(), verified_model(explainer).engines
    v = np.random.default_rng(0).normal(size=(len(K), 2))
    # sums of float64 numbers in another order
    np.testing.assert_allclose(engine.matvec(None, v), K @ v, rtol=0, atol=1e-11)
    np.testing.assert_allclose(engine.rmatvec(None, v), K.T @ v, rtol=0, atol=1e-11)
    np.testing.assert_allclose(engine.leverage(1 << 30), np.diagonal(K), rtol=0, atol=1e-11)
    np.testing.assert_allclose(engine.squares(1 << 30), np.square(K).sum(), rtol=1e-9)
    np.testing.assert_allclose(
        explainer.jacobian.sensitivity(case.X, [3, 8]), K[:, [3, 8]], rtol=0, atol=1e-11
    )


def test_what_if_is_a_fit_to_other_targets_with_the_same_leaves():
    case = CASES["ridge"]()
    changed = case.y.copy()
    changed[:5] += 2.0
    start = Ridge(3.0).fit(case.X, changed)
    score, new = start.predict(case.X), start.predict(case.X_new)
    for (tree,) in case.model.estimators_:
        leaf, leaf_new, residual = tree.apply(case.X), tree.apply(case.X_new), changed - score
        means = {own: 0.1 * residual[leaf == own].mean() for own in np.unique(leaf)}
        score, new = score + [means[own] for own in leaf], new + [means[own] for own in leaf_new]
    explanation = explain(case).what_if(case.X_new, {row: changed[row] for row in range(5)})
    np.testing.assert_allclose(explanation["after"], new, rtol=0, atol=SINGLE)


@pytest.mark.parametrize("name", CASES)
def test_other_data_than_those_of_the_fit_show(name):
    case = CASES[name]()
    kept = verified_model(explain(case)).adapter.kept_rows(len(case.y))
    first, second = (3, int(case.y.argmax())) if kept is None else kept[[0, case.y[kept].argmax()]]
    one, two = case.y.copy(), case.y.copy()
    one[first] += 0.5
    two[[first, second]] = two[[second, first]]
    weight = None if case.sample_weight is None else case.sample_weight[1:]
    wrong = [
        replace(case, y=one),
        replace(case, y=two),
        replace(case, X=case.X[1:], y=case.y[1:], sample_weight=weight),
    ]
    for given in wrong:
        with pytest.raises((axil.ExactnessError, axil.InputError)):
            explain(given)


ILL = {
    "ridge": Ridge(),
    "least squares": LinearRegression(),
    "kernel ridge": KernelRidge(alpha=0.1, kernel="rbf"),
    "pipeline": make_pipeline(StandardScaler(), Ridge()),
    "voting": VotingRegressor([("ridge", Ridge()), ("near", KNeighborsRegressor(3))]),
}


@pytest.mark.parametrize("shift", [0.0, 30.0])
@pytest.mark.parametrize("name", ILL)
def test_an_init_that_float32_leaves_off_the_solution(name, shift):
    """The library solves for init in float32, whatever the features are; collinear columns lose some digits."""
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:200] + shift
    y = y[:200]
    model = GradientBoostingRegressor(init=clone(ILL[name]), n_estimators=5, random_state=0).fit(
        X, y
    )
    explainer = axil.Explainer(model, X, y)
    np.testing.assert_allclose(explainer(X[:20]).predictions, model.predict(X[:20]), rtol=1e-3)
    changed = y.copy()
    changed[7] *= 1.001  # which the trees show
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, changed)


def test_questions_without_an_answer_say_so(tmp_path):
    explainer = explain(CASES["ridge"]())
    for ask in (
        explainer.removal,
        explainer.jacobian.gradient_contributions,
        lambda X: explainer.without(X, [0]),
    ):
        with pytest.raises(axil.UnsupportedQuestionError, match="residuals of another model"):
            ask(DATA.X_new)
    with pytest.raises(axil.UnsupportedQuestionError, match="leave_one_out"):
        explainer.diagnostics.leave_one_out()
    with pytest.warns(axil.ApproximationWarning, match="approximate here"):
        explainer.influence(DATA.X_new, np.zeros(len(DATA.X_new)))
    with pytest.raises(axil.UnsupportedQuestionError, match="not saved"):
        explainer.save(tmp_path / "file.npz")
    assert np.all(explainer.diagnostics.standard_error(DATA.X_new[:3]) > 0)


@pytest.mark.parametrize(
    ("init", "setting"),
    [(Lasso(), "init.class"), (make_pipeline(StandardScaler(), Lasso()), "init.class")],
)
def test_an_init_that_is_not_exact_is_refused(init, setting):
    found = axil.supports(fit(init).model)
    assert (found.kind, found.setting) == ("no", setting)


def test_no_derivative_of_other_losses_from_another_model():
    model = GradientBoostingClassifier(n_estimators=2, init=RandomForestClassifier(2)).fit(
        DATA.X, DATA.y > 5
    )
    found = axil.supports(model)
    assert (found.kind, found.setting) == ("no", "init")


def test_a_later_fit_of_init_moves_nothing():
    case = fit(Ridge(3.0))
    explainer, before = explain(case), case.model.predict(case.X_new)
    case.model.init_.fit(case.X, case.y[::-1])
    np.testing.assert_allclose(explainer(case.X_new).predictions, before, rtol=0, atol=SINGLE)

"""Implicit derivatives of scikit-learn's learners against exact weights and against refits with other targets."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.optimize import root
from scipy.sparse import csr_array
from scipy.special import expit, softmax
from sklearn.linear_model import (
    GammaRegressor,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.errors import ApproximationWarning
from tests.adapters.sklearn_models import VERSION
from tests.implicit.implicit_models import cancer, diabetes, read, slope, weights, wine

# Before scikit-learn 1.6 newton-cholesky fits several classes one against the rest.
OF_CLASSES = {"solver": "newton-cholesky" if VERSION >= (1, 6) else "newton-cg", "tol": 1e-12}
ROWS = (0, 7, 31)  # whose targets and weights are changed in refits


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_of_squared_error_it_is_the_exact_weights_of_ridge(fit_intercept):
    X, y = diabetes()
    w = weights(100)
    settings = {
        "power": 0,
        "solver": "newton-cholesky",
        "tol": 1e-12,
        "fit_intercept": fit_intercept,
    }
    model = TweedieRegressor(alpha=0.03, **settings).fit(X[:100], y[:100], sample_weight=w)
    ridge = Ridge(0.03 * w.sum(), fit_intercept=fit_intercept).fit(
        X[:100], y[:100], sample_weight=w
    )
    exact = axil.Explainer(ridge, X[:100], y[:100], sample_weight=w)(X)
    found = read(model, X[:100], y[:100], w)
    assert found.target_derivatives(X).shape == (1, 120, 100)
    np.testing.assert_allclose(found.target_derivatives(X)[0], exact.weights, atol=1e-10)
    np.testing.assert_allclose(found.predictions(X)[:, 0], exact.predictions, rtol=1e-10)


GENERALISED = [
    PoissonRegressor(alpha=0.3, tol=1e-11, max_iter=10000),
    GammaRegressor(alpha=0.1, tol=1e-11, max_iter=10000, solver="newton-cholesky"),
    TweedieRegressor(power=1.5, alpha=0.1, tol=1e-11, max_iter=10000, solver="newton-cholesky"),
    TweedieRegressor(power=0, alpha=0.2, tol=1e-11, max_iter=10000),
    TweedieRegressor(
        power=1.5, alpha=0.5, link="identity", tol=1e-11, max_iter=10000, solver="newton-cholesky"
    ),
    PoissonRegressor(
        alpha=0.3, tol=1e-11, max_iter=10000, fit_intercept=False, solver="newton-cholesky"
    ),
]


@pytest.mark.parametrize("model", GENERALISED, ids=str)
@pytest.mark.parametrize("output", ["raw", "probability"])
def test_generalised_linear_models_against_refits(model, output):
    """Refits end within 1e-9 of the optimum, and differences of fourth order with steps of a percent within 1e-6."""
    X, y = diabetes(60)
    y = y / 50
    w = weights(60)
    model.fit(X, y, w)
    found = read(model, X, y, w, output=output)
    np.testing.assert_allclose(found.predictions(X), _means(model, X, output)[:, None], rtol=1e-10)
    by_targets, by_weights = found.target_derivatives(X[:9])[0], found.weight_derivatives(X[:9])[0]

    def refitted(y, w):
        return _means(model.fit(X, y, w), X[:9], output)

    for row in ROWS:
        moved = slope(lambda y: refitted(y, w), y, np.eye(60)[row], 0.01)
        np.testing.assert_allclose(by_targets[:, row], moved, atol=2e-6)
        moved = slope(lambda w: refitted(y, w), w, np.eye(60)[row], 0.01)
        np.testing.assert_allclose(by_weights[:, row], moved, atol=2e-6)


def _means(model, X, output):
    means = model.predict(X)
    identity = model.get_params().get("link") == "identity" or model.get_params().get("power") == 0
    return means if output == "probability" or identity else np.log(means)


LOGISTIC = [
    LogisticRegression(C=0.7, tol=1e-12, solver="newton-cholesky"),
    LogisticRegression(C=0.7, tol=1e-12, solver="newton-cholesky", fit_intercept=False),
    LogisticRegression(C=0.2, tol=1e-12, max_iter=10000, solver="liblinear", intercept_scaling=3.0),
    LogisticRegression(C=0.7, tol=1e-12, solver="newton-cholesky", class_weight={0: 1.0, 1: 2.5}),
]


@pytest.mark.parametrize("model", LOGISTIC, ids=str)
@pytest.mark.parametrize("output", ["raw", "probability"])
def test_logistic_regression_against_refits(model, output):
    """A target between 0 and 1 is a row of each class with a share of the weight; so it moves inwards only."""
    X, y = cancer(80)
    w = weights(80)
    model.fit(X, y, w)
    found = read(model, X, y, w, output=output)
    by_targets, by_weights = found.target_derivatives(X[:9])[0], found.weight_derivatives(X[:9])[0]
    factor = np.where(y == 1, 2.5, 1.0) if model.class_weight else np.ones(80)
    plain = LogisticRegression(**{**model.get_params(), "class_weight": None})
    np.testing.assert_allclose(found.predictions(X), _logits(model, X, output)[:, None], rtol=1e-10)

    def shared(row, step):
        more = np.append(w * factor, 0.0)
        more[row], more[-1] = (1 - step) * more[row], step * more[row]
        return _logits(
            plain.fit(X[[*range(80), row]], np.append(y, 1 - y[row]), more), X[:9], output
        )

    for row in ROWS:
        inwards = (
            -3 * shared(row, 0.0) + 4 * shared(row, 1e-3) - shared(row, 2e-3)
        ) / 2e-3  # of second order
        np.testing.assert_allclose(by_targets[:, row] * (1 - 2 * y[row]), inwards, atol=2e-5)
        moved = slope(
            lambda w: _logits(model.fit(X, y, w), X[:9], output), w, np.eye(80)[row], 0.01
        )
        np.testing.assert_allclose(by_weights[:, row], moved, atol=2e-6)


def _logits(model, X, output):
    return model.decision_function(X) if output == "raw" else model.predict_proba(X)[:, 1]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("output", ["raw", "probability"])
def test_softmax_against_an_independent_optimum(intercept, output):
    """When one target of a row rises, all its targets give way by 1 / K; the optimum is found by other means."""
    X, y = wine()
    w = weights(len(y))
    model = LogisticRegression(C=0.5, **OF_CLASSES, fit_intercept=intercept).fit(X, y, w)
    found = read(model, X, y, w, output=output)
    targets, derivatives = np.eye(3)[y], found.target_derivatives(X[:6])
    np.testing.assert_array_equal(found.targets, targets)
    np.testing.assert_array_equal(found.outputs, [0, 1, 2])
    Z = np.hstack([X, np.ones((len(X), 1))]) if intercept else X
    penalty = np.r_[np.full(6, 2.0), np.zeros(int(intercept))]
    start = np.hstack([model.coef_, model.intercept_[:, None]]) if intercept else model.coef_

    def optimum(Y, w):
        def gradient(theta):
            B = theta.reshape(3, -1)
            free = (penalty == 0) * B.sum(axis=0)  # all intercepts may move together: they stay
            return (
                (w[:, None] * (softmax(Z @ B.T, axis=1) - Y)).T @ Z + penalty * B + free
            ).ravel()

        scores = Z[:6] @ root(gradient, start.ravel(), tol=1e-13).x.reshape(3, -1).T
        return softmax(scores, axis=1) if output == "probability" else scores

    for row, k in ((0, 0), (5, 2), (40, 1)):
        direction = np.zeros_like(targets)
        direction[row] = np.eye(3)[k] - 1 / 3
        moved = slope(lambda Y: optimum(Y, w), targets, direction, 0.01)
        np.testing.assert_allclose(derivatives[k][:, row], moved[:, k], atol=1e-6)
    moved = slope(lambda w: optimum(targets, w), w, np.eye(len(y))[5], 0.01)
    np.testing.assert_allclose(found.weight_derivatives(X[:6])[:, :, 5].T, moved, atol=1e-6)


@pytest.mark.skipif(
    VERSION < (1, 7), reason="before scikit-learn 1.7 networks take no sample_weight"
)
def test_networks_against_other_optima():
    """The fit is led on to where its gradient, written down here once more, vanishes; so are those with other targets."""
    X, y = diabetes(60)
    y, w = (y - y.mean()) / y.std(), weights(60)
    settings = {
        "activation": "tanh",
        "solver": "lbfgs",
        "max_iter": 50000,
        "max_fun": 500000,
        "random_state": 0,
    }
    model = MLPRegressor(hidden_layer_sizes=(2,), alpha=2.0, tol=1e-12, **settings).fit(X, y, w)

    def split(theta):
        return theta[:20].reshape(10, 2), theta[20:22].reshape(2, 1), theta[22:24], theta[24:]

    def optimum(y, w):
        def gradient(theta):
            A, B, a, b = split(theta)
            hidden = np.tanh(X @ A + a)
            error = w * (hidden @ B[:, 0] + b - y)
            back = error[:, None] * B[:, 0] * (1 - hidden**2)
            parts = (
                X.T @ back + 2 * A,
                (hidden.T @ error)[:, None] + 2 * B,
                back.sum(axis=0),
                [error.sum()],
            )
            return np.concatenate([np.ravel(part) for part in parts])

        return root(gradient, start, tol=1e-13).x

    def predict(theta):
        A, B, a, b = split(theta)
        return np.tanh(X[:9] @ A + a) @ B[:, 0] + b

    start = np.concatenate([part.ravel() for part in (*model.coefs_, *model.intercepts_)])
    start = optimum(y, w)
    parts = split(start)
    model.coefs_, model.intercepts_ = list(parts[:2]), list(parts[2:])
    found = read(model, X, y, w)
    assert found.verification.details["newton_step"] < 1e-9
    assert found.verification.details["damping"] == 0
    by_targets, by_weights = found.target_derivatives(X[:9])[0], found.weight_derivatives(X[:9])[0]
    for row in ROWS:
        moved = slope(lambda y: predict(optimum(y, w)), y, np.eye(60)[row], 0.01)
        np.testing.assert_allclose(by_targets[:, row], moved, atol=1e-6)
        moved = slope(lambda w: predict(optimum(y, w)), w, np.eye(60)[row], 0.01)
        np.testing.assert_allclose(by_weights[:, row], moved, atol=1e-6)


def test_network_classifiers_say_what_they_predict():
    X, y = wine()
    settings = {
        "alpha": 1.0,
        "activation": "tanh",
        "solver": "lbfgs",
        "max_iter": 20000,
        "max_fun": 100000,
    }
    for labels in (y, np.where(y == 0, "a", "b")):
        model = MLPClassifier(hidden_layer_sizes=(3,), tol=1e-12, random_state=0, **settings).fit(
            X, labels
        )
        found = read(model, X, labels, output="probability")
        probabilities = model.predict_proba(X)
        several = probabilities.shape[1] > 2
        np.testing.assert_allclose(
            found.predictions(X), probabilities if several else probabilities[:, 1:]
        )
        assert (found.outputs is None) != several
        own = found.target_derivatives(X)[:, range(len(X)), range(len(X))]
        assert own.min() > 0  # a row's own target pulls its prediction
        raw = read(model, X, labels)
        made = softmax(raw.predictions(X), axis=1) if several else expit(raw.predictions(X))
        np.testing.assert_allclose(made, found.predictions(X))


def test_several_fits_of_one_class_against_the_rest_are_refused():
    X, y = wine()
    solver = "newton-cholesky" if VERSION < (1, 6) else "lbfgs"
    model = LogisticRegression(solver=solver).fit(X, y)
    if VERSION >= (1, 6):
        model.multi_class = "ovr"  # as scikit-learn before 1.8 kept the setting
    with pytest.raises(axil.UnsupportedModelError) as caught:
        read(model, X, y)
    assert caught.value.setting == "multi_class"


def test_a_penalty_chosen_by_cross_validation_is_held_fixed():
    for X, y in (cancer(), wine()):
        settings = {**OF_CLASSES, "tol": 1e-10}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attributes that are to change
            model = LogisticRegressionCV(Cs=[0.1, 1.0], cv=3, **settings).fit(X, y)
        C = float(np.ravel(model.C_)[0])
        expected = read(LogisticRegression(C=C, **settings).fit(X, y), X, y).target_derivatives(
            X[:5]
        )
        np.testing.assert_allclose(read(model, X, y).target_derivatives(X[:5]), expected, atol=1e-5)


def test_sparse_rows_and_pipelines():
    X, y = cancer()
    settings = {"C": 0.5, "tol": 1e-10, "max_iter": 10000}
    model = LogisticRegression(**settings).fit(X, y)
    expected = read(model, X, y).target_derivatives(X[:5])
    sparse = read(model, csr_array(X), y)
    np.testing.assert_allclose(sparse.target_derivatives(csr_array(X[:5])), expected, atol=1e-12)
    raw = X * np.arange(1, 9) + 4
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(**settings)).fit(raw, y)
    Z = StandardScaler().fit_transform(raw)
    expected = read(pipeline[-1], Z, y).target_derivatives(Z[:5])
    found = read(pipeline, raw, y)
    np.testing.assert_allclose(found.target_derivatives(raw[:5]), expected, atol=1e-12)
    assert found.target_derivatives(raw[:0]).shape == (1, 0, 150)
    assert found.predictions(raw[:0]).shape == (0, 1)


def test_other_data_and_early_stops_are_refused():
    X, y = cancer()
    model = LogisticRegression().fit(X, y)
    with pytest.raises(axil.ExactnessError, match="Newton step"):
        read(model, X, 1 - y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they have not converged
        early = LogisticRegression(max_iter=1).fit(X, y)
        network = MLPClassifier(hidden_layer_sizes=(3,), max_iter=20, random_state=0).fit(X, y)
    with pytest.raises(
        axil.ExactnessError, match=r"did not converge.*max_iter=1 .*smaller tol.*not the rows"
    ):
        read(early, X, y)
    with pytest.raises(
        axil.ExactnessError, match=r"did not converge.*max_iter=20 .*stationary point"
    ):
        read(network, X, y)


def test_a_loose_fit_is_reported_and_warned_about():
    X, y = cancer()
    loose = LogisticRegression(tol=0.01).fit(X, y)
    with pytest.warns(ApproximationWarning, match="^The model is not quite at a stationary point"):
        found = read(loose, X, y)
    assert 1e-2 < found.verification.details["newton_step"] <= 0.1
    assert found.verification.details["gradient_norm"] > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tight = read(LogisticRegression(tol=1e-10, solver="newton-cholesky").fit(X, y), X, y)
        assert read(loose, X, y, verify=False).verification is None
    assert tight.verification.details["newton_step"] < 1e-6


def test_what_is_refused_and_what_is_none_of_its_business():
    X, y = cancer()
    by_name = (
        {"penalty": "elasticnet"} if VERSION < (1, 8) else {}
    )  # from 1.8 on l1_ratio alone says it
    refused = [
        (LogisticRegression(**by_name, l1_ratio=1.0, solver="saga", max_iter=5000), "penalty"),
        (MLPClassifier(hidden_layer_sizes=(3,), alpha=0.0, max_iter=5), "alpha"),
        (
            MLPClassifier(hidden_layer_sizes=(3,), early_stopping=True, max_iter=20),
            "early_stopping",
        ),
    ]
    for model, setting in refused:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        with pytest.raises(axil.UnsupportedModelError) as caught:
            read(model, X, y)
        assert caught.value.setting == setting
    with pytest.raises(axil.UnsupportedModelError, match="flat or bends down"):
        read(PoissonRegressor(alpha=0.0).fit(np.hstack([X, X]), y), np.hstack([X, X]), y)
    assert read(axil, X, y) is None
    with pytest.raises(axil.InputError, match="not been fitted"):
        read(LogisticRegression(), X, y)
    model = LogisticRegression().fit(X, y)
    for match, arguments in {
        "loss": {"loss": "log_loss"},
        "offsets": {"init_score": np.zeros(len(y))},
        "negative": {"sample_weight": -np.ones(len(y))},
    }.items():
        with pytest.raises(axil.InputError, match=match):
            read(model, X, y, **arguments)
    with pytest.raises(axil.InputError, match="columns"):
        read(model, X[:, :3], y)
    with pytest.raises(axil.InputError, match="classes"):
        read(model, X, y + 1)
    with pytest.raises(axil.InputError, match="no rows"):
        read(model, X[:0], y[:0])
    broken = X.copy()
    broken[2, 2] = np.nan
    with pytest.raises(axil.InputError, match="missing"):
        read(model, broken, y)


def test_reading_needs_no_torch():
    program = (
        "import sys; from axil.implicit.readers import FitInputs; from axil.implicit import torch as reader; "
        "print(reader.read(FitInputs(None, None, None, limits=None)), 'torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == [
        "None",
        "False",
    ]

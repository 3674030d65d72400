"""Smooth learners through the public explainer."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor, TweedieRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.implicit import optimum
from tests.implicit.implicit_models import cancer, diabetes, wine


def test_a_pipeline_on_a_frame():
    X, y = cancer()
    X = pd.DataFrame(X * 3 + 1, columns=list("abcdefgh"), index=np.arange(150) + 1000)
    model = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8)).fit(X, y)
    explainer = axil.Explainer(model, X, y, output="probability")
    explanation = explainer(X.iloc[:4])
    np.testing.assert_allclose(explanation.predictions, model.predict_proba(X.iloc[:4])[:, 1])
    assert list(explanation.query_index) == [1000, 1001, 1002, 1003]
    top = explainer.top(X.iloc[:4], k=3)
    pd.testing.assert_frame_equal(top, explanation.top(3))
    batches = np.vstack([part.weights for part in explainer.iter(X.iloc[:4], batch_size=3)])
    np.testing.assert_allclose(batches, explanation.weights)
    assert explainer.jacobian.by_sample_weight(X.iloc[:4]).shape == (4, 150)
    assert len(explainer(X.iloc[:0])) == 0
    with pytest.raises(axil.InputError, match="another order"):
        explainer(X[list("hgfedcba")])


def test_classes_have_weights_each():
    X, y = wine()
    labels = np.array(["red", "rose", "white"])[y]
    model = LogisticRegression(tol=1e-8, max_iter=1000).fit(X, labels)
    explainer = axil.Explainer(model, X, labels)
    explanation = explainer(X[:4])
    assert explanation.weights.shape == (4, 3, len(y))
    np.testing.assert_allclose(explanation.predictions, model.decision_function(X[:4]))
    assert list(explainer.outputs) == ["red", "rose", "white"]
    assert explainer.jacobian.by_sample_weight(X[:4]).shape == (4, 3, len(y))
    assert set(explanation.top(2)["output"]) == {"red", "rose", "white"}


LED = {"solver": "lbfgs", "tol": 1e-12, "max_iter": 50000, "max_fun": 500000, "random_state": 0}
LEARNERS = {
    "logistic": (LogisticRegression(tol=1e-8), cancer),
    "pipeline of logistic": (make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8)), cancer),
    "softmax": (LogisticRegression(tol=1e-8, max_iter=1000), wine),
    "poisson": (PoissonRegressor(tol=1e-8, max_iter=1000), diabetes),
    "tweedie by the identity": (
        TweedieRegressor(power=1.5, link="identity", solver="newton-cholesky"),
        diabetes,
    ),
    "network": (
        MLPRegressor(hidden_layer_sizes=(2,), alpha=2.0, activation="tanh", **LED),
        diabetes,
    ),
}


@pytest.mark.parametrize("largest", [0, optimum.DENSE_PARAMETERS])
@pytest.mark.parametrize("name", LEARNERS)
def test_copies_of_explainers_give_the_same_bits(name, largest, monkeypatch):
    monkeypatch.setattr(optimum, "DENSE_PARAMETERS", largest)
    model, data = LEARNERS[name]
    X, y = data()
    y = y / 50 if name in ("network", "tweedie by the identity") else y
    for output in ("raw", "probability"):
        explainer = axil.Explainer(model.fit(X, y), X, y, output=output)
        for again in (copy.deepcopy(explainer), pickle.loads(pickle.dumps(explainer))):
            found, expected = again(X[:5]), explainer(X[:5])
            np.testing.assert_array_equal(found.weights, expected.weights)
            np.testing.assert_array_equal(found.predictions, expected.predictions)


def test_a_budget_is_kept():
    X, y = cancer()
    model = LogisticRegression().fit(X, y)
    with pytest.raises(axil.InputError, match="memory_limit"):
        axil.Explainer(model, X, y, memory_limit=100_000)(np.repeat(X, 10, axis=0))


def test_smooth_learners_are_known_to_have_a_derivative_only():
    X, y = cancer()
    model = LogisticRegression().fit(X, y)
    explainer = axil.Explainer(model, X, y)
    assert axil.supports(model).kind == explainer.kind == "derivative"
    explanation = explainer(X[:9])
    assert not explanation.exact
    assert "derivative" in repr(explanation)
    assert "derivative" in repr(explainer)

"""The operator of smooth learners, and derivatives of one class by the labels of another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.adapters.sklearn_models import table

DATA = table(50)
X, X_NEW = StandardScaler().fit_transform(DATA.X), DATA.X_new[:4]
NUMBERS, BINARY, SEVERAL = np.abs(DATA.y), DATA.y > 5, np.digitize(DATA.y, [4, 6])
CLOSE = {"tol": 1e-12, "max_iter": 20_000}
LEARNERS: dict[str, Any] = {
    "two classes": (LogisticRegression(**CLOSE), BINARY),
    "classes": (LogisticRegression(**CLOSE), SEVERAL),
    "classes balanced": (
        make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", **CLOSE)),
        SEVERAL,
    ),
    "numbers": (PoissonRegressor(**CLOSE), NUMBERS),
    "network": (
        MLPClassifier(
            (3,),
            activation="tanh",
            solver="lbfgs",
            alpha=5.0,
            max_fun=100_000,
            random_state=0,
            **CLOSE,
        ),
        SEVERAL,
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("output", ["raw", "probability"])
def test_the_operator_has_the_blocks_of_all_outputs(name: str, output: str) -> None:
    model, y = LEARNERS[name]
    explainer = axil.Explainer(model.fit(X, y), X, y, output=output)
    if explainer.outputs is None:
        matrix = explainer.jacobian.derivatives(X)
    else:
        blocks = np.stack(
            [explainer.jacobian.derivatives(X, output=one) for one in explainer.outputs], axis=1
        )
        size = len(X) * len(explainer.outputs)
        matrix = blocks.transpose(0, 1, 3, 2).reshape(size, size)
        own = [
            explainer.jacobian.derivatives(X, output=one, target=one) for one in explainer.outputs
        ]
        np.testing.assert_allclose(np.stack(own, axis=1), explainer(X).weights, rtol=0, atol=1e-14)
    v = np.random.default_rng(0).normal(size=len(matrix))
    operator = explainer.jacobian.operator
    np.testing.assert_allclose(
        operator @ v, matrix @ v, rtol=0, atol=1e-11 * np.abs(matrix @ v).max()
    )
    np.testing.assert_allclose(
        operator.T @ v, matrix.T @ v, rtol=0, atol=1e-11 * np.abs(matrix.T @ v).max()
    )


def test_a_label_that_moves_to_another_class_moves_every_class() -> None:
    """Against fits in which a share of the row's weight has the other class."""
    learner = LogisticRegression(C=0.5, **CLOSE)
    model, step, row = learner.fit(X, SEVERAL), 1e-3, 11
    explainer = axil.Explainer(model, X, SEVERAL, output="probability")
    was, other = int(SEVERAL[row]), (int(SEVERAL[row]) + 1) % 3
    twice, labels = np.vstack([X, X[[row]]]), np.append(SEVERAL, other)
    weights = np.ones(len(twice))
    weights[row], weights[-1] = 1 - step, step
    moved = LogisticRegression(C=0.5, **CLOSE).fit(twice, labels, sample_weight=weights)
    slope = (moved.predict_proba(X_NEW) - model.predict_proba(X_NEW)) / step
    for output in range(3):
        found = explainer.jacobian.derivatives(X_NEW, output=output)
        np.testing.assert_allclose(
            found[:, other, row] - found[:, was, row], slope[:, output], rtol=2e-2, atol=2e-5
        )
        np.testing.assert_array_equal(
            explainer.jacobian.derivatives(X_NEW, output=output, target=other), found[:, other]
        )
    assert explainer.jacobian.derivatives(X_NEW[:0], output=0).shape == (0, 3, 50)

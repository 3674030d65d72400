"""Deletions of linear smoothers against fits of scikit-learn to the rows that are left."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

import axil


@pytest.mark.parametrize("zeros", [0, 2], ids=["weights", "weights with zeros"])
def test_rows_that_nearly_determine_their_predictions(zeros: int) -> None:
    """A kernel of condition 1e9 leaves ``1 - K[j, j]`` next to nothing."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(10, 2))
    y = 5 + rng.normal(size=10)
    weights = rng.uniform(2e3, 4e4, size=10)
    weights[:zeros] = 0.0
    X_new = rng.normal(size=(6, 2))
    model = KernelRidge(alpha=1e-3, kernel="poly")
    model.fit(X, y, sample_weight=weights)
    explainer = axil.Explainer(model, X, y, sample_weight=weights)
    effects = np.asarray(explainer.removal(X_new, method="exact"))
    own_predictions = np.asarray(explainer.diagnostics.leave_one_out()["prediction"])
    for row in range(10):
        remaining = np.arange(10) != row
        refitted = KernelRidge(alpha=1e-3, kernel="poly")
        refitted.fit(X[remaining], y[remaining], sample_weight=weights[remaining])
        change = refitted.predict(X_new) - model.predict(X_new)
        np.testing.assert_allclose(effects[:, row], change, atol=1e-5)
        after = explainer.without(X_new, [row])["after"]
        np.testing.assert_allclose(after, refitted.predict(X_new), atol=1e-5)
        alone = refitted.predict(X[[row]])[0]
        np.testing.assert_allclose(own_predictions[row], alone, rtol=1e-5, atol=1e-5)
    rows = [1, 4, 7]
    remaining = np.delete(np.arange(10), rows)
    refitted = KernelRidge(alpha=1e-3, kernel="poly")
    refitted.fit(X[remaining], y[remaining], sample_weight=weights[remaining])
    after = explainer.without(X_new, rows)["after"]
    np.testing.assert_allclose(after, refitted.predict(X_new), atol=1e-5)

"""LeafMatch against the leaves that the libraries themselves report."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import axil
from axil.baselines import LeafMatch
from axil.methods.method import verified_model
from tests.baselines.direct import BOOSTED, FORESTS, asked
from tests.subsets import chosen

X, Y = load_diabetes(return_X_y=True)


def shared(of_queries, of_rows):
    """(n, N): by the definition, from leaves (n, T) and (N, T)."""
    return (of_queries[:, None, :] == of_rows[None, :, :]).mean(axis=2)


def test_scores_are_shares_of_the_leaves_that_lightgbm_reports():
    model = LGBMRegressor(n_estimators=30, verbose=-1, n_jobs=1).fit(X[:300], Y[:300])
    found = LeafMatch(axil.Explainer(model, X[:300], Y[:300])).scores(X[300:])
    wanted = shared(model.predict(X[300:], pred_leaf=True), model.predict(X[:300], pred_leaf=True))
    np.testing.assert_allclose(
        found, wanted, rtol=1e-14
    )  # whole numbers over T, divided in another order


def test_scores_are_shares_of_the_leaves_of_a_forest():
    model = RandomForestRegressor(20, min_samples_leaf=4, random_state=0).fit(X[:300], Y[:300])
    found = LeafMatch(axil.Explainer(model, X[:300], Y[:300])).scores(X[300:], Y[300:])
    np.testing.assert_allclose(
        found, shared(model.apply(X[300:]), model.apply(X[:300])), rtol=1e-14
    )


def test_trees_of_all_classes_count():
    classes = np.digitize(Y, [100, 200])[:300]
    model = LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1).fit(X[:300], classes)
    found = LeafMatch(axil.Explainer(model, X[:300], classes)).scores(X[300:])
    wanted = shared(model.predict(X[300:], pred_leaf=True), model.predict(X[:300], pred_leaf=True))
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize(("library", "name"), chosen(3, BOOSTED + FORESTS))
def test_every_library(library, name):
    a, total, trees = asked(library, name), 0.0, 0
    for engine in verified_model(a.explainer).engines:
        s = engine.structure
        queries = a.leaves if s.columns is None else a.leaves[:, s.columns]
        own = s.leaves().T
        weights = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
        total = total + shared(queries, own) * own.shape[1] * (weights > 0)
        trees += own.shape[1]
    np.testing.assert_allclose(a.scores(LeafMatch(a.explainer), y=False), total / trees, rtol=1e-14)

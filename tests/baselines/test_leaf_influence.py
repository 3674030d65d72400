"""LeafInfluence against the published forward recursion and against finite differences of a weighted fit."""

import numpy as np
import pytest

from axil.baselines import LeafInfluence
from tests.baselines.direct import BOOSTED, FORESTS, Fit, asked, rounding
from tests.subsets import chosen


def forward(a):
    """The published recursion: every leaf value's derivative by every row's weight, carried from tree to tree, O(T N^2)."""
    total = 0.0
    for fit, queries, targets in a.fits():
        s, n = fit.s, fit.s.n_rows
        of_values = []  # (L_t, N): d v_t / d w
        for t in range(s.n_trees):
            A = np.eye(s.n_leaves[t])[fit.leaf[t]]
            of_rows = sum(
                (fit.omega[t, u] * of_values[u][fit.leaf[u]] for u in range(t)), np.zeros((n, n))
            )
            direct = (
                A * (fit.draw[t] * (fit.residuals[t] - fit.values[t][fit.leaf[t]]))[:, None]
            ).T
            through = (A * (fit.weights * fit.draw[t])[:, None]).T @ of_rows
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = (direct - through) / fit.totals[t][:, None]
            of_values.append(np.where(np.isfinite(moved), moved, 0.0))
        derivative = sum(fit.omega[-1, t] * of_values[t][queries[:, t]] for t in range(s.n_trees))
        total = total + (targets - fit.predict(queries))[:, None] * derivative * fit.weights
    return total


@pytest.mark.parametrize(("library", "name"), BOOSTED + FORESTS)
def test_scores_are_the_published_recursion(library, name):
    a = asked(library, name)
    expected = forward(a)
    found = a.scores(LeafInfluence(a.explainer))
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-11 * np.abs(expected).max() + rounding(a)
    )


@pytest.mark.parametrize(("library", "name"), chosen(3, BOOSTED + FORESTS))
def test_scores_are_derivatives_of_the_loss_by_row_weights(library, name):
    """Central differences of a fit with one weight changed; their error is of order step^2, checked on 12 rows."""
    a = asked(library, name)
    found = a.scores(LeafInfluence(a.explainer))
    step, rows = 1e-4, np.random.default_rng(1).permutation(len(a.explainer.targets))[:12]
    expected = np.zeros((len(a.targets), len(rows)))
    for fit, queries, targets in a.fits():
        for i, j in enumerate(rows):
            losses = []
            for sign in (1, -1):
                weights = fit.weights.copy()
                weights[j] += sign * step
                moved = Fit(fit.s, fit.y, fit.output, weights)
                losses.append((targets - moved.predict(queries)) ** 2 / 2)
            expected[:, i] -= fit.weights[j] * (losses[0] - losses[1]) / (2 * step)
    np.testing.assert_allclose(
        found[:, rows], expected, rtol=0, atol=1e-6 * np.abs(found).max() + rounding(a) / step
    )


@pytest.mark.parametrize(
    ("library", "name"), [("lightgbm", "bagging scored"), ("xgboost", "hist subsample weighted")]
)
def test_without_targets_scores_are_effects_on_the_prediction(library, name):
    a = asked(library, name)
    scores = a.scores(LeafInfluence(a.explainer), y=False)
    ((fit, queries, targets),) = a.fits()
    errors = targets - fit.predict(queries)
    with_targets = a.scores(LeafInfluence(a.explainer))
    tolerance = 1e-10 * np.abs(with_targets).max()
    np.testing.assert_allclose(scores * errors[:, None], with_targets, rtol=0, atol=tolerance)


def test_without_targets_scores_are_first_order_deletions():
    """The base of this model is no mean, so a deletion leaves it as it is."""
    a = asked("lightgbm", "bagging scored")
    scores = a.scores(LeafInfluence(a.explainer), y=False)
    effects = a.explainer.removal(a.X, method="first-order")
    np.testing.assert_allclose(scores, -effects, rtol=0, atol=1e-10 * np.abs(scores).max())


def test_leaf_matrix_and_sweeps_agree(monkeypatch):
    a = asked("lightgbm", "bagging scored")
    swept = a.scores(LeafInfluence(a.explainer))
    monkeypatch.setattr("axil.weights.boosting.BoostedTrees.prepare_pays", lambda self, n: True)
    np.testing.assert_allclose(
        a.scores(LeafInfluence(a.explainer)), swept, rtol=0, atol=1e-12 * np.abs(swept).max()
    )

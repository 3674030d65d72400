"""Residuals tree by tree, against the definition on random structures."""

import numpy as np
import pytest

from axil.kernels.cpu import Cpu
from axil.weights.boosting import BoostedTrees
from tests.reference import random_structure, replay

SETTINGS = {
    "plain": {},
    "weighted l2": {"weighted": True, "l2": 0.5},
    "offsets base": {"offsets": True, "base": 0.7},
    "mixed": {"mixed": True},
    "draws": {"draws": (1.0, 0.0, 2.0), "weighted": True},
    "drops": {"coefficients": "drops", "draws": (1.0, 0.0)},
    "shrinkage": {"coefficients": "shrinkage", "base": 0.7},
    "parallel": {"coefficients": "parallel", "weighted": True},
    "forest": {"coefficients": "forest", "offsets": True},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_residuals_are_targets_less_the_prediction_so_far(setting, seed):
    """The prediction before tree t is that of the structure's table cut after row t."""
    s = random_structure(seed, **SETTINGS[setting])
    y = np.random.default_rng(seed).normal(
        size=(s.n_rows, 2 if s.offsets is None and s.initial is None else 1)
    )
    fit = BoostedTrees(s, Cpu(1)).fit(y)
    leaves = s.leaves()
    offsets = 0.0 if s.offsets is None else s.offsets
    omega = (
        np.tril(np.tile(s.learning_rates, (s.n_trees + 1, 1)), -1)
        if s.coefficients is None
        else s.coefficients.omega
    )
    found = [r.copy() for r in fit.residuals(leaves, y - offsets)]
    assert len(found) == s.n_trees + 1
    for t, residual in enumerate(found):
        made = s.beta[t] * fit.base + sum(
            omega[t, u] * fit.values[s.starts[u] + leaves[u].astype(int)]
            for u in range(min(t, s.n_trees))
        )
        np.testing.assert_allclose(residual, y - offsets - made, rtol=0, atol=1e-12)
    for k, column in enumerate(y.T):
        expected = replay(s, column, leaves.T)
        np.testing.assert_allclose(fit.predictions(leaves)[:, k], expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose((y - offsets - found[-1])[:, k], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "setting", [name for name in SETTINGS if name != "mixed"]
)  # whose values are no quotients
def test_pulls_of_a_leaf_balance_its_l2(setting):
    """Weighted pulls of a leaf sum to l2 times its value: that is what its value solves."""
    s = random_structure(5, **SETTINGS[setting])
    y = np.random.default_rng(5).normal(size=(s.n_rows, 1))
    fit = BoostedTrees(s, Cpu(1)).fit(y)
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
    sums = np.zeros(s.total_leaves)
    for rows in (slice(0, 17), slice(17, s.n_rows)):
        trees = []
        for step in fit.steps(rows):
            np.testing.assert_array_equal(
                step.leaf, s.starts[step.tree] + s.leaves()[step.tree, rows].astype(int)
            )
            np.add.at(sums, step.leaf, w[rows] * step.gradient(0))
            trees.append(step.tree)
        assert trees == list(range(s.n_trees))
    filled = s.linear_leaves.scale > 0
    l2 = np.where(filled, 1 / np.where(filled, s.linear_leaves.scale, 1.0) - s.leaf_weights, 0.0)
    np.testing.assert_allclose(sums, l2 * fit.values[:, 0], rtol=0, atol=1e-12)

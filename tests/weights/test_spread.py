"""Means around rows and queries against loops over trees and rows."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.ensemble import ExtraTreesRegressor, VotingRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

import axil
from axil.kernels.choose import host_backend
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from axil.weights.boosting import BoostedTrees
from axil.weights.forest import Forest
from axil.weights.spread import around_leaves, around_weights, everywhere
from tests.reference import random_structure

ENGINES = {
    "boosting": lambda s: BoostedTrees(s, Cpu(2)),
    "forest": Forest,
}
SHAPES = {
    "plain": {},
    "bootstrap": {"draws": (0.0, 1.0, 2.0)},
    "weighted": {"weighted": True},
    "deep": {"n_rows": 60, "most_leaves": 50},
    "one row": {"n_rows": 1},
}


def by_loops(leaves, queries, values, own, tree_weights=None):
    """(n, S): trees and rows one by one; ``own``: query i is row i, and left out."""
    found = np.full((len(queries), values.shape[1]), np.nan)
    for i, met in enumerate(queries):
        means = []
        weights = []
        for t, leaf in enumerate(met):
            rows = [j for j in range(len(values)) if leaves[t, j] == leaf and not (own and j == i)]
            rows = [j for j in rows if not np.isnan(values[j]).any()]
            if rows:
                means.append(values[rows].mean(axis=0))
                weights.append(1.0)
                if tree_weights is not None:
                    weights[-1] = tree_weights[t]
        if sum(weights) > 0:
            found[i] = np.average(means, axis=0, weights=weights)
    return found


@pytest.mark.parametrize("shape", ["plain", "deep"])
def test_trees_count_by_their_weights(shape):
    """One weight is 0: a row that only this tree has neighbours of is nan. 1e-12 as below."""
    structure = random_structure(1, **SHAPES[shape])
    values = np.random.default_rng(0).exponential(size=(structure.n_rows, 2))
    values[::3] = np.nan
    tree_weights = 0.7 ** np.arange(structure.n_trees)
    tree_weights[1] = 0.0
    leaves = structure.leaves()
    rows = host_backend(1).rows_of(structure)
    for queries, met in ((None, leaves.T), (leaves.T[:9], leaves.T[:9])):
        found = around_leaves(structure, rows, queries, values, tree_weights)
        expected = by_loops(leaves, met, values, queries is None, tree_weights)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("engine", ENGINES)
def test_equal_to_loops(engine, shape, unknown):
    """1e-12: sums of some ten numbers of order one, the row's own taken out of them again."""
    forest = {"base": 0.0, "coefficients": "forest"} if engine == "forest" else {}
    structure = random_structure(1, **SHAPES[shape], **forest)
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(structure.n_rows, 2))
    if unknown:
        values[::3] = np.nan
    leaves, made = structure.leaves(), ENGINES[engine](structure)
    np.testing.assert_allclose(
        made.around(None, values), by_loops(leaves, leaves.T, values, True), rtol=1e-12
    )
    queries = np.stack([rng.integers(0, n, 9) for n in structure.n_leaves], axis=1)
    np.testing.assert_allclose(
        made.around(queries, values), by_loops(leaves, queries, values, False), rtol=1e-12
    )


def test_a_row_says_nothing_of_itself():
    """However large its own value is; 1e-9: what is left of twelve digits once 1000 is taken out again."""
    structure = random_structure(2)
    values = np.random.default_rng(0).exponential(size=(structure.n_rows, 1))
    trees = BoostedTrees(structure, Cpu(1))
    before = trees.around(None, values)
    for row in range(0, structure.n_rows, 7):
        other = values.copy()
        other[row] = 1000.0
        np.testing.assert_allclose(trees.around(None, other)[row], before[row], rtol=1e-9)


def test_sparse_weights_count_by_size():
    weights = csr_array(np.array([[0.5, -0.5, 0.0], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]]))
    values = np.array([[1.0], [3.0], [5.0]])
    np.testing.assert_allclose(around_weights(weights, values, own=False), [[2.0], [3.5], [5.0]])
    np.testing.assert_allclose(
        around_weights(weights, values, own=True), [[3.0], [11 / 3], [np.nan]]
    )
    values[0] = np.nan
    np.testing.assert_allclose(around_weights(weights, values, own=False), [[3.0], [13 / 3], [5.0]])
    np.testing.assert_allclose(everywhere(2, values), [[4.0], [4.0]])


def test_every_kind_of_engine_answers():
    rng = np.random.default_rng(0)
    X = rng.random((60, 3))
    y = X[:, 0] + rng.normal(size=60)
    values = rng.exponential(size=(60, 1))
    forest, near = (
        ExtraTreesRegressor(5, max_depth=3, random_state=0).fit(X, y),
        KNeighborsRegressor(4).fit(X, y),
    )
    alone = {
        name: _around(model, X, y, values) for name, model in (("forest", forest), ("near", near))
    }
    np.testing.assert_allclose(
        _around(Ridge().fit(X, y), X, y, values), np.full((60, 1), values.mean())
    )
    nearest = near.kneighbors(X, return_distance=False)
    others = [[j for j in own if j != i] for i, own in enumerate(nearest)]
    np.testing.assert_allclose(alone["near"][:, 0], [values[own, 0].mean() for own in others])
    both = VotingRegressor([("forest", forest), ("ridge", Ridge())]).fit(X, y)
    np.testing.assert_allclose(_around(both, X, y, values), (alone["forest"] + values.mean()) / 2)


def _around(model, X, y, values):
    engines = verified_model(axil.Explainer(model, X, y)).engines
    return engines[0].around(None, values)

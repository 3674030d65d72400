"""The inverted index of a forest against the dense recursion."""

import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import axil
from axil.kernels.choose import host_backend
from axil.weights.boosting import BoostedTrees
from axil.weights.forest import Forest, is_forest
from tests.reference import dense_weights, random_structure

SHAPES = {
    "plain": {},
    "bootstrap": {"draws": (0.0, 1.0, 2.0, 3.0)},
    "weighted": {"weighted": True, "draws": (0.0, 1.0)},
    "deep": {"n_rows": 200, "most_leaves": 150},
    "one row": {"n_rows": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_to_the_dense_recursion(shape):
    structure = random_structure(0, base=0.0, coefficients="forest", **SHAPES[shape])
    assert is_forest(structure)
    forest = Forest(structure)
    rng = np.random.default_rng(0)
    queries = np.stack([rng.integers(0, n, 9) for n in structure.n_leaves], axis=1)
    np.testing.assert_allclose(
        forest.weight_rows(queries).dense(), dense_weights(structure, queries)[0], atol=1e-14
    )
    K = dense_weights(structure, structure.leaves().T)[0]
    v = rng.normal(size=(structure.n_rows, 3))
    np.testing.assert_allclose(forest.matvec(None, v), K @ v, atol=1e-12)
    np.testing.assert_allclose(forest.rmatvec(None, v), K.T @ v, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_fits_are_those_of_the_same_trees_as_boosting(shape):
    structure = random_structure(0, base=0.0, coefficients="forest", **SHAPES[shape])
    forest = Forest(structure)
    trees = BoostedTrees(structure, host_backend(1))
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(structure.n_rows, 2))
    fit = forest.fit(targets)
    expected = trees.fit(targets)
    np.testing.assert_allclose(fit.values, expected.values, atol=1e-12)
    np.testing.assert_allclose(fit.sums, expected.sums, atol=1e-12)
    seeds = rng.normal(size=(structure.total_leaves, 3))
    np.testing.assert_allclose(forest.sum_weights(seeds), trees.sum_weights(seeds), atol=1e-12)


def test_boosting_is_no_forest():
    assert not is_forest(random_structure(0))
    assert not is_forest(random_structure(0, base=0.0, coefficients="parallel"))
    assert not is_forest(
        random_structure(0, coefficients="forest")
    )  # its mean enters every prediction


def test_weights_cost_the_leaves_met():
    rng = np.random.default_rng(0)
    X, y = rng.random((3000, 5)), rng.random(3000)
    model = RandomForestRegressor(20, random_state=0).fit(X, y)
    explanation = axil.Explainer(model, X, y)(X[:50], sparse=True)
    assert explanation.weights.nnz < 50 * 20 * 10  # leaves of one or a few rows, out of 3000
    np.testing.assert_allclose(explanation.weights.sum(axis=1), 1.0)
    assert explanation.top(500)["weight"].iloc[-1] == 0.0  # filled up where fewer rows have weight
    assert explanation.top(500).groupby("query")["row"].nunique().eq(500).all()


def test_classes_are_one_hot_targets():
    rng = np.random.default_rng(0)
    X = rng.random((300, 4))
    y = np.array(["low", "middle", "high"])[(3 * X[:, 0]).astype(int)]
    model = RandomForestClassifier(10, random_state=0).fit(X, y)
    explanation = axil.Explainer(model, X, y)(X[:5])
    assert explanation.weights.shape == (5, 300)
    assert explanation.targets.shape == (300, 3)
    assert list(explanation.outputs) == ["high", "low", "middle"]
    np.testing.assert_allclose(explanation.predictions, model.predict_proba(X[:5]), atol=1e-12)
    assert explanation.contributions.shape == (5, 3, 300)
    table = explanation.top(2)
    assert list(table.columns) == [
        "query",
        "output",
        "prediction",
        "probability",
        "rank",
        "row",
        "weight",
        "target",
        "contribution",
    ]
    assert list(table["output"][:6]) == ["high", "high", "low", "low", "middle", "middle"]
    groups = explanation.group(y)
    own = groups[groups["output"] == groups["group"]]
    np.testing.assert_allclose(
        own["contribution"].to_numpy().reshape(5, 3), explanation.predictions, atol=1e-12
    )


def test_unknown_classes():
    X, y = np.arange(10.0)[:, None], np.array(["a", "b"] * 5)
    model = RandomForestClassifier(2).fit(X, y)
    with pytest.raises(
        axil.InputError, match="holds 'c' at position 0; the model knows the classes a, b"
    ):
        axil.Explainer(model, X, np.array(["c"] * 10))


def test_trees_that_start_from_a_base_or_offsets_are_no_forest():
    assert not is_forest(random_structure(0, base=2.0, coefficients="forest"))
    assert not is_forest(random_structure(0, base=0.0, offsets=True, coefficients="forest"))


@pytest.mark.parametrize("margin", [False, True])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_parallel_trees_of_one_iteration(margin, n_outputs):
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 4)), 5 + rng.random((200, n_outputs))
    offsets = rng.random((200, n_outputs)) if margin else None
    model = xgb.XGBRegressor(
        n_estimators=1, num_parallel_tree=4, subsample=0.8, base_score=2.0, n_jobs=1
    )
    model.fit(X, y, base_margin=offsets)
    explanation = axil.Explainer(model, X, y, init_score=offsets)(X[:5])
    expected = model.predict(X[:5]).reshape(explanation.predictions.shape)
    np.testing.assert_allclose(explanation.predictions, expected, rtol=0, atol=1e-5)

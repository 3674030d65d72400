"""Effects of deleting rows against the derivative of an independent weighted replay."""

import numpy as np
import pytest
from reference import random_structure, removal_effects, reweighted_replay
from test_contract import case_of, explainer_of, offsets_of
from test_operators import SHAPES, random_queries

from axil.engines import ForestEngine, TreeEngine
from axil.forest import Forest, is_forest
from axil.operators import Operators
from axil.removal import without

CLOSE = {"rtol": 0, "atol": 1e-10}  # effects of order one, by float64 sums over a few hundred rows
MORE = {
    "steps": {"l2": 2.0, "steps": 4, "weighted": True},
    "l2 by weight": {"l2": 2.0, "by_weight": True, "weighted": True},
    "l2 by weight steps bags": {"l2": 2.0, "by_weight": True, "steps": 3, "draws": (1.0, 0.0, 2.5)},
    "plain forest": {"base": 0.0, "coefficients": "forest", "draws": (0.0, 1.0, 2.0), "l2": 0.5, "weighted": True},
}
SHAPES = {name: shape for name, shape in (SHAPES | MORE).items() if not shape.get("mixed")}


def engine_of(structure, prepared):
    if is_forest(structure):
        return ForestEngine(Forest(structure))
    operators = Operators(structure, 2)
    if prepared:
        operators.prepare()
    return TreeEngine(operators)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_derivative_of_a_weighted_replay(shape, prepared, monkeypatch):
    monkeypatch.setattr("axil.removal.BLOCK_ENTRIES", 200)  # several blocks of rows
    structure = random_structure(4, **SHAPES[shape])
    queries = random_queries(structure, 5)
    y = np.random.default_rng(0).normal(size=(structure.n_rows, 1)) + 3
    rows = np.arange(0, structure.n_rows, -(-structure.n_rows // 40))
    (answer,) = engine_of(structure, prepared).removal(queries, y)
    expected = removal_effects(structure, y[:, 0], queries, rows)
    np.testing.assert_allclose(answer.dense()[:, rows], expected, **CLOSE)


@pytest.mark.parametrize("shape", SHAPES)
def test_fits_without_rows(shape):
    structure = random_structure(4, **SHAPES[shape])
    rows = np.arange(structure.n_rows - 1)[::3]
    y = np.random.default_rng(0).normal(size=structure.n_rows)
    queries = random_queries(structure, 5)
    w = np.ones(structure.n_rows) if structure.row_weights is None else structure.row_weights.copy()
    w[rows] = 0.0
    expected = reweighted_replay(structure, y, w, queries).real
    operators = without(structure, rows, 2)
    weights, adjoints = operators.weights(queries)
    np.testing.assert_allclose(weights @ y + operators.intercepts(adjoints)[:, 0], expected, **CLOSE)
    assert not weights[:, rows].any()


MODELS = [
    ("lightgbm", "regressor weighted scored"),
    ("lightgbm", "weighted lambda_l2=3"),
    ("lightgbm", "categorical weighted"),
    ("lightgbm", "boost_from_average=False"),
    ("lightgbm", "scored"),
    ("lightgbm", "rate schedule"),
    ("xgboost", "defaults"),
    ("catboost", "defaults"),
    ("catboost", "weighted"),
    ("catboost", "baseline weighted steps"),
    ("catboost", "shrink weighted steps"),
    ("catboost", "continued loaded steps"),
    ("catboost", "weights minute"),
    ("catboost", "multi weighted"),
    ("catboost", "scale and bias"),
]


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_models_against_a_weighted_replay(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    found = explainer.removal(case.X_new[:4])
    leaves = explainer._adapter.leaves(case.X_new[:4])
    rows = np.arange(0, len(explainer.targets), 29)
    for k, effects in enumerate([found] if explainer.outputs is None else found):
        s = explainer._engines[k if len(explainer._engines) > 1 else 0].structure
        own = leaves if s.columns is None else leaves[:, s.columns]
        expected = removal_effects(s, explainer._targets[:, k], own, rows)
        np.testing.assert_allclose(effects[:, rows], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        assert np.abs(expected).max() > 0
    assert offsets_of(case) is None or explainer._engines[0].structure.offsets is not None

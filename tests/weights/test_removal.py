"""Effects of deleting rows against the derivative of an independent weighted replay."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import axil
from axil import InputError, UnsupportedQuestionError
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from axil.weights.answers import gathered
from axil.weights.boosting import BoostedTrees
from axil.weights.fit_rules import rule_of
from axil.weights.forest import Forest, is_forest
from tests.adapters import sklearn_models
from tests.contract_models import case_of, explainer_of, offsets_of
from tests.reference import random_structure, removal_effects, reweighted_replay
from tests.weights.test_boosting import SHAPES, random_queries

CLOSE = {"rtol": 0, "atol": 1e-10}  # effects of order one, by float64 sums over a few hundred rows
MORE = {
    "steps": {"l2": 2.0, "steps": 4, "weighted": True},
    "l2 by weight": {"l2": 2.0, "by_weight": True, "weighted": True},
    "l2 by weight steps bags": {"l2": 2.0, "by_weight": True, "steps": 3, "draws": (1.0, 0.0, 2.5)},
    "plain forest": {
        "base": 0.0,
        "coefficients": "forest",
        "draws": (0.0, 1.0, 2.0),
        "l2": 0.5,
        "weighted": True,
    },
}
SHAPES = {name: shape for name, shape in (SHAPES | MORE).items() if not shape.get("mixed")}


def engine_of(structure, prepared):
    if is_forest(structure):
        return Forest(structure)
    engine = BoostedTrees(structure, Cpu(2))
    return engine.prepared() if prepared else engine


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_derivative_of_a_weighted_replay(shape, prepared, monkeypatch):
    monkeypatch.setattr("axil.weights.removal.BLOCK_ENTRIES", 200)  # several blocks of rows
    structure = random_structure(4, **SHAPES[shape])
    queries = random_queries(structure, 5)
    y = np.random.default_rng(0).normal(size=(structure.n_rows, 1)) + 3
    rows = np.arange(0, structure.n_rows, -(-structure.n_rows // 40))
    (answer,) = engine_of(structure, prepared).removal(queries, y)
    expected = removal_effects(structure, y[:, 0], queries, rows)
    np.testing.assert_allclose(gathered(answer, structure.n_rows)[:, rows], expected, **CLOSE)


@pytest.mark.parametrize("shape", SHAPES)
def test_fits_without_rows(shape):
    structure = random_structure(4, **SHAPES[shape])
    rows = np.arange(structure.n_rows - 1)[::3]
    y = np.random.default_rng(0).normal(size=structure.n_rows)
    queries = random_queries(structure, 5)
    w = np.ones(structure.n_rows) if structure.row_weights is None else structure.row_weights.copy()
    w[rows] = 0.0
    expected = reweighted_replay(structure, y, w, queries, len(rows)).real
    left = rule_of(structure).without(structure, rows, y[:, None], Cpu(2))
    trees = BoostedTrees(left, Cpu(2))
    weights, adjoints = trees.weight_rows(queries).dense(), trees.adjoints(queries)
    np.testing.assert_allclose(
        weights @ y + trees.intercepts(adjoints, trees.constants(queries))[:, 0], expected, **CLOSE
    )
    assert not weights[:, rows].any()


MODELS = {
    "lightgbm": [
        "regressor weighted scored",
        "weighted lambda_l2=3",
        "categorical weighted",
        "boost_from_average=False",
        "scored",
        "rate schedule",
        "weights some zero",
        "bagging weighted lambda_l2=1",
        "goss weighted",
        "dart",
        "dart bagging weighted",
        "dart scored",
        "rf weighted lambda_l2=2",
    ],
    "xgboost": [
        "regressor weighted",
        "base_margin base_score=2 weighted",
        "hist subsample weighted",
        "dart weighted",
        "dart parallel",
        "dart outputs",
        "one_output_per_tree weighted",
        "multi_output_tree weighted",
        "base_margin multi_output_tree",
        "regressor forest weighted",
    ],
    "catboost": [
        "defaults",
        "weighted",
        "baseline weighted steps",
        "30 steps",
        "shrink weighted steps",
        "continued loaded steps",
        "weights minute",
        "multi weighted",
        "multi steps",
        "scale and bias",
        "boost_from_average=False weighted",
    ],
    "sklearn": [
        "stages weighted",
        "stages subsample weighted",
        "stages n_iter_no_change weighted",
        "hist l2 weighted",
        "hist early stopping weighted",
    ],
    "forest": ["regressor", "classifier", "outputs"],
}
CASES = [(library, name) for library, names in MODELS.items() for name in names]


@cache
def forest_of(name):
    """Forests whose leaves hold several rows: in a leaf of one row the derivative is zero."""
    data = sklearn_models.table()
    y = {"classifier": data.y > 5, "outputs": np.stack([data.y, data.y**2], axis=1)}.get(
        name, data.y
    )
    kind = RandomForestClassifier if name == "classifier" else RandomForestRegressor
    model = kind(7, min_samples_leaf=6, random_state=0).fit(data.X, y, data.weight)
    case = sklearn_models.Case(model, data.X, y, data.weight, data.X_new)
    return case, axil.Explainer(model, data.X, y, sample_weight=data.weight)


def pair_of(library, name):
    """A case and its explainer."""
    return (
        forest_of(name)
        if library == "forest"
        else (case_of(library, name), explainer_of(library, name))
    )


def of_output(structure, k):
    """The structure with the base and the offsets of one output alone."""
    base = (
        None
        if structure.initial is None
        else structure.initial[k if len(structure.initial) > 1 else 0].reshape(1)
    )
    offsets = None if structure.offsets is None else structure.offsets[:, [k]]
    return replace(structure, initial=base, offsets=offsets)


@pytest.mark.parametrize(("library", "name"), CASES)
def test_models_against_a_weighted_replay(library, name):
    case, explainer = pair_of(library, name)
    found = explainer.removal(case.X_new[:4], method="first-order")
    leaves = verified_model(explainer).adapter.leaves(case.X_new[:4])
    rows = np.arange(0, len(explainer.targets), 29)
    largest = 0.0
    for k, effects in enumerate([found] if explainer.outputs is None else np.swapaxes(found, 0, 1)):
        shared = len(verified_model(explainer).engines) == 1
        s = verified_model(explainer).engines[0 if shared else k].structure
        own = leaves if s.columns is None else leaves[:, s.columns]
        expected = removal_effects(
            of_output(s, k if shared else 0), verified_model(explainer).targets[:, k], own, rows
        )
        np.testing.assert_allclose(
            effects[:, rows], expected, rtol=0, atol=1e-6 * max(np.abs(effects).max(), 1e-30)
        )
        largest = max(largest, np.abs(expected).max())
    assert largest > 0
    assert (
        offsets_of(case) is None
        or verified_model(explainer).engines[0].structure.offsets is not None
    )


@pytest.mark.parametrize(
    "name", ["linear regression weighted", "ridge", "ridge weighted", "kernel ridge weighted"]
)
def test_smoothers_against_refits_with_other_weights(name):
    """Central differences of refits: their own error is a few 1e-8 of the effects."""
    case, explainer = case_of("smoother", name), explainer_of("smoother", name)
    w = np.ones(len(case.y)) if case.sample_weight is None else np.array(case.sample_weight)
    effects = explainer.removal(case.X_new, method="first-order")
    for j in (0, 17, 100):
        step = 1e-4 * (np.arange(len(w)) == j)
        up, down = (
            clone(case.model).fit(case.X, case.y, sample_weight=w + s).predict(case.X_new)
            for s in (step, -step)
        )
        expected = -w[j] * (up - down) / 2e-4
        np.testing.assert_allclose(
            effects[:, j], expected, rtol=0, atol=1e-5 * np.abs(effects).max()
        )


def test_what_has_no_removal_is_refused_by_name():
    for library, name, what in [
        ("smoother", "neighbours", "removal has no answer here: neighbours"),
        ("smoother", "gaussian process", "Gaussian process"),
    ]:
        explainer, X = explainer_of(library, name), case_of(library, name).X_new
        for ask in (explainer.removal, lambda X, e=explainer: e.removal(X, k=3, same_sign=True)):
            with pytest.raises(UnsupportedQuestionError, match=what):
                ask(X)
    smoothed, X = (
        explainer_of("lightgbm", "path_smooth=2"),
        case_of("lightgbm", "path_smooth=2").X_new,
    )
    with pytest.raises(UnsupportedQuestionError, match=r"first-order.*path_smooth"):
        smoothed.removal(X, method="first-order")


SETS = [
    ("lightgbm", "weighted"),
    ("xgboost", "one_output_per_tree"),
    ("catboost", "multi weighted"),
    ("forest", "outputs"),
    ("smoother", "ridge"),
]


@pytest.mark.parametrize("method", ["exact", "first-order"])
@pytest.mark.parametrize(("library", "name"), SETS)
def test_sets_are_the_largest_effects_of_one_sign(library, name, method, monkeypatch):
    case, explainer = pair_of(library, name)
    monkeypatch.setattr(
        "axil.machine.memory.BATCH_BYTES",
        8 * len(case.y) * 3 * len(verified_model(explainer).engines),
    )
    effects = explainer.removal(case.X_new[:5], method=method).reshape(
        -1, len(case.y)
    )  # a line for each query and output
    table = explainer.removal(case.X_new[:5], k=6, same_sign=True, method=method)
    parts = table.groupby("query" if explainer.outputs is None else ["query", "output"], sort=False)
    assert len(parts) == len(effects)
    for (_, part), found in zip(parts, effects):
        up, down = np.sort(np.maximum(found, 0))[::-1][:6], np.sort(np.minimum(found, 0))[:6]
        expected = up if up.sum() >= -down.sum() else down
        np.testing.assert_allclose(
            part["effect"], expected[expected != 0], rtol=0, atol=1e-12 * np.abs(found).max()
        )
        assert list(part["rank"]) == list(range(1, len(part) + 1))
        np.testing.assert_allclose(
            found[part["row"]], part["effect"], rtol=0, atol=1e-12 * np.abs(found).max()
        )
    assert ("first-order" in table.attrs["axil"]) == (method == "first-order")


GREEDY = [
    ("lightgbm", "bagging weighted lambda_l2=1"),
    ("xgboost", "base_margin base_score=2 weighted"),
    ("catboost", "weighted"),
    ("xgboost", "one_output_per_tree"),
    ("forest", "regressor"),
]


@pytest.mark.parametrize(("library", "name"), GREEDY)
def test_greedy_sets_have_exact_effects(library, name):
    """The effects down to each rank add up to what a replay without these rows changes; each row is the best one then."""
    case, explainer = pair_of(library, name)
    table = explainer.removal(case.X_new[:2], k=3, same_sign=True, greedy=True)
    assert "exact" in table.attrs["axil"]
    leaves = verified_model(explainer).adapter.leaves(case.X_new[:2])
    for k in range(len(verified_model(explainer).engines)):
        s = verified_model(explainer).engines[k].structure
        own = leaves if s.columns is None else leaves[:, s.columns]
        y = verified_model(explainer).targets[:, k]
        w = np.ones(len(y)) if s.row_weights is None else s.row_weights.copy()
        part = table if explainer.outputs is None else table[table["output"] == k]
        for i, query in enumerate(explainer(case.X_new[:2]).query_index):
            rows = part.loc[part["query"] == query]
            assert len(rows) == 3
            assert len(set(np.sign(rows["effect"]))) == 1
            before, left = reweighted_replay(s, y, w, own[[i]]).real[0], w.copy()
            for n_gone, (row, effect) in enumerate(zip(rows["row"], rows["effect"]), 1):
                left[row] = 0.0
                after = reweighted_replay(s, y, left, own[[i]], n_gone).real[0]
                np.testing.assert_allclose(
                    effect, after - before, rtol=0, atol=1e-10 * np.abs(y).max()
                )
                before = after


def test_greedy_sets_move_further():
    """On real predictions, deleting a greedy set moves more than, or as much as, the first-order one of its size."""
    X, explainer = case_of("lightgbm", "regressor").X_new[:5], explainer_of("lightgbm", "regressor")
    s, leaves = (
        verified_model(explainer).engines[0].structure,
        verified_model(explainer).adapter.leaves(X),
    )
    moved = {}
    for greedy in (False, True):
        table = explainer.removal(X, k=8, same_sign=True, greedy=greedy, method="first-order")
        moved[greedy] = []
        for i, (_, part) in enumerate(table.groupby("query", sort=False)):
            w = np.ones(s.n_rows)
            before = reweighted_replay(s, explainer.targets, w, leaves[[i]]).real[0]
            w[part["row"]] = 0.0
            moved[greedy].append(
                abs(reweighted_replay(s, explainer.targets, w, leaves[[i]]).real[0] - before)
            )
    assert np.mean(moved[True]) >= np.mean(moved[False])


@pytest.mark.filterwarnings("ignore::axil.ApproximationWarning")
def test_limits_and_no_queries(monkeypatch):
    case = case_of("lightgbm", "regressor")
    explainer = axil.Explainer(case.model, case.X, case.y, memory_limit="256 KiB")
    monkeypatch.setattr("axil.methods.removal.PATIENCE", 0.0)  # for replays
    with pytest.raises(InputError, match=r"memory_limit.*removal\(X, k=10\)"):
        explainer.removal(case.X)
    with pytest.warns(axil.ApproximationWarning, match="first-order") as said:
        table = explainer.removal(case.X, k=2, same_sign=True)
    assert said[0].filename == __file__
    assert len(table) == 2 * len(case.y)
    assert "first-order" in table.attrs["axil"]
    assert explainer.removal(case.X[:0]).shape == (0, len(case.y))
    assert list(explainer.removal(case.X[:0], k=2, same_sign=True).columns) == [
        "query",
        "rank",
        "row",
        "effect",
    ]
    with pytest.raises(InputError, match="k is 0"):
        explainer.removal(case.X, k=0, same_sign=True)

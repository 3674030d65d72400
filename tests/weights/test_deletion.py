"""Exact deletions against fits without the row: an independent replay, `engine.without`, and refits of the libraries."""

from dataclasses import replace

import numpy as np
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.base import clone

import axil
from axil import InputError, UnsupportedQuestionError
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from axil.structure import LinearLeaves
from axil.weights import deletion, work
from axil.weights.answers import gathered
from axil.weights.boosting import BoostedTrees
from axil.weights.deletion import InLeafMatrix
from axil.weights.replays import ByReplay
from axil.weights.sum_rule import SumRule
from tests.contract_models import case_of, explainer_of
from tests.reference import predicted_numbers, random_structure, reweighted_replay
from tests.weights.test_boosting import random_queries
from tests.weights.test_removal import CASES, SHAPES, engine_of, of_output, pair_of

ENOUGH = 1 << 30  # bytes
SHAPES |= {
    "l2 by one weight": {"l2": 2.0, "by_weight": True},
    "l2 by weight shifted": {"l2": 2.0, "by_weight": True, "weighted": True, "shifted": True},
    "l2 by weight many rows": {"l2": 50.0, "by_weight": True, "weighted": True, "n_rows": 400},
    "steps drops offsets": {
        "l2": 2.0,
        "steps": 3,
        "coefficients": "drops",
        "offsets": True,
        "draws": (1.0, 0.0),
    },
}


def targets_of(s):
    return np.random.default_rng(0).normal(size=(s.n_rows, 1)) + 3


def weights_without(s, j):
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights.copy()
    w[j] = 0.0
    return w


@pytest.fixture(params=["the leaf matrix", "kept", "replays"])
def way(request, monkeypatch):
    """By the formula with several blocks of rows, its additions to sums made again or kept; or by replays."""
    monkeypatch.setattr(work, "BLOCK_ENTRIES", 200)
    monkeypatch.setattr(deletion, "EFFECT_ENTRIES", 200)
    monkeypatch.setattr(deletion, "CACHED_BYTES", (1 << 30) if request.param == "kept" else 0)
    monkeypatch.setattr(
        work.DeletionWork, "uses_leaf_matrix", lambda self, available: request.param != "replays"
    )
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
def test_effects_are_those_of_a_fit_without_the_row(shape, way):
    """Sums of a few hundred products of order one; in shifted leaves without l2 values grow to some hundreds."""
    s = random_structure(4, **SHAPES[shape])
    queries, y = random_queries(s, 5), targets_of(s)
    rows = np.arange(0, s.n_rows, -(-s.n_rows // 30))
    (answer,) = engine_of(s, prepared=False).deletion(queries, y, ENOUGH)
    before = reweighted_replay(s, y[:, 0], weights_without(s, []), queries).real
    after = [
        reweighted_replay(s, y[:, 0], weights_without(s, j), queries, 1).real
        for j in rows
        if s.n_rows > 1
    ]
    expected = (
        np.array(after).T - before[:, None] if after else np.full((5, 1), np.nan)
    )  # without the only row nothing is left
    np.testing.assert_allclose(gathered(answer, s.n_rows)[:, rows], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_left_out_of_their_own_predictions(shape, way):
    """nan exactly where no other row of any weight is in one of the row's leaves, or in any where trees are averaged."""
    s = random_structure(4, **SHAPES[shape])
    y, leaves = targets_of(s), s.leaves()
    found = engine_of(s, prepared=False).left_out(y, ENOUGH).predictions[:, 0]
    drawn = s.sample_counts[s.cells // s.n_leaves[:, None]] * weights_without(s, [])
    expected = []
    for j in range(s.n_rows):
        others = [
            np.delete(drawn[t] * (leaves[t] == leaves[t, j]), j).sum() for t in range(s.n_trees)
        ]
        moved = s.linear_leaves.scale[s.starts[:-1] + leaves[:, j].astype(int)] > 0
        lonely = (np.array(others) == 0) & (drawn[:, j] > 0) & moved
        if s.n_rows == 1 or (lonely.any() and not s.averages):
            expected.append(np.nan)
            continue
        offset = 0.0 if s.offsets is None else s.offsets[j, 0]
        expected.append(
            reweighted_replay(s, y[:, 0], weights_without(s, j), leaves.T[[j]], 1).real[0] + offset
        )
        if s.n_rows > 100 and j > 40:
            break
    np.testing.assert_allclose(found[: len(expected)], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "shape", ["weighted", "l2", "offsets", "bags weighted l2", "shifted", "l2 by weight"]
)
def test_errors_after_every_number_of_trees_are_those_of_shorter_fits(shape):
    s = random_structure(6, n_rows=60, most_leaves=4, **SHAPES[shape])
    y = targets_of(s)
    curve = engine_of(s, False).left_out(y, ENOUGH).curve
    assert list(curve.trees) == list(range(s.n_trees + 1))
    found = engine_of(s, False).left_out(y, ENOUGH).predictions[:, 0]
    kept = ~np.isnan(found)
    w = weights_without(s, [])[kept]
    for n in (1, 3, s.n_trees):
        shorter = first_trees(s, n)
        alone = engine_of(shorter, False).left_out(y, ENOUGH).predictions[kept, 0]
        np.testing.assert_allclose(
            curve.left_out[n, 0], np.average((y[kept, 0] - alone) ** 2, weights=w), rtol=1e-11
        )
        own = engine_of(shorter, False).predicted(None, y)[kept, 0]
        np.testing.assert_allclose(
            curve.fitted[n, 0], np.average((y[kept, 0] - own) ** 2, weights=w), rtol=1e-11
        )
    assert curve.rows == kept.sum()


def first_trees(s, n):
    """The structure of the first n trees."""
    rule, end = s.newton_rule, s.starts[n]
    return replace(
        s,
        cells=np.ascontiguousarray(s.cells[:n]),
        n_leaves=s.n_leaves[:n],
        leaf_weights=s.leaf_weights[:end],
        linear_leaves=LinearLeaves(
            s.linear_leaves.scale[:end],
            None if s.linear_leaves.shift is None else s.linear_leaves.shift[:end],
        ),
        learning_rates=s.learning_rates[:n],
        leaf_rule=SumRule(replace(rule, l2=rule.l2[:end], steps=rule.steps[:end])),
    )


@pytest.mark.parametrize("coefficients", ["drops", "shrinkage", "forest"])
def test_trees_that_are_not_fitted_in_turn_have_no_curve(coefficients):
    s = random_structure(6, coefficients=coefficients, base=1.0)
    assert engine_of(s, False).left_out(targets_of(s), ENOUGH).curve is None


def test_parallel_trees_have_errors_after_whole_rounds():
    s = random_structure(6, n_trees=9, coefficients="parallel")
    assert list(engine_of(s, False).left_out(targets_of(s), ENOUGH).curve.trees) == [0, 3, 6, 9]


def test_a_row_that_outweighs_its_leaves_is_replayed():
    """1e9 times heavier than all others: differences of leaf sums would keep seven digits."""
    s = random_structure(4, weighted=True, l2=1e-9)
    w = s.row_weights.copy()
    w[3] *= 1e9
    leaf_weights = np.concatenate(
        [np.bincount(leaf, w, n) for leaf, n in zip(s.leaves(), s.n_leaves)]
    )
    linear_leaves = LinearLeaves(s.newton_rule.scale(leaf_weights))
    s = replace(s, row_weights=w, leaf_weights=leaf_weights, linear_leaves=linear_leaves)
    engine, y, queries = BoostedTrees(s, Cpu(2)), targets_of(s), random_queries(s, 5)
    assert 3 in engine.deletions(y, ENOUGH).by_replay(slice(0, s.n_rows))
    left = weights_without(s, 3)
    expected = (
        reweighted_replay(s, y[:, 0], left, queries, 1).real
        - reweighted_replay(s, y[:, 0], w, queries).real
    )
    found = gathered(engine.deletion(queries, y, ENOUGH)[0], len(y))
    np.testing.assert_allclose(found[:, 3], expected, rtol=0, atol=1e-11)
    own = reweighted_replay(s, y[:, 0], left, s.leaves().T[[3]], 1).real[0]
    found = engine.left_out(y, ENOUGH).predictions[3, 0]
    np.testing.assert_allclose(found, own, rtol=0, atol=1e-11)


def test_memory_decides_between_leaf_matrix_and_replays():
    s = random_structure(4, n_rows=200)
    y = targets_of(s)
    assert isinstance(BoostedTrees(s, Cpu(1)).deletions(y, ENOUGH), InLeafMatrix)
    assert isinstance(BoostedTrees(s, Cpu(1)).deletions(y, 8 * s.total_leaves**2), ByReplay)


@pytest.mark.parametrize(("library", "name"), CASES)
def test_models_against_fits_without_the_row(library, name):
    """1e-9 of the largest effect: the replay of the reference adds up the same rows in another order."""
    case, explainer = pair_of(library, name)
    found = explainer.removal(case.X_new[:4], method="exact")
    left_out = explainer.diagnostics.leave_one_out()
    leaves = verified_model(explainer).adapter.leaves(case.X_new[:4])
    rows = np.arange(0, len(explainer.targets), 61)
    for k, effects in enumerate([found] if explainer.outputs is None else np.swapaxes(found, 0, 1)):
        shared = len(verified_model(explainer).engines) == 1
        s = verified_model(explainer).engines[0 if shared else k].structure
        own, y = (
            leaves if s.columns is None else leaves[:, s.columns],
            verified_model(explainer).targets[:, k],
        )
        s = of_output(s, k if shared else 0)
        before = reweighted_replay(s, y, weights_without(s, []), own).real
        expected = [
            reweighted_replay(s, y, weights_without(s, j), own, 1).real - before for j in rows
        ]
        scale = np.abs(effects).max()
        np.testing.assert_allclose(
            effects[:, rows], np.array(expected).T, rtol=0, atol=1e-9 * scale
        )
        part = (
            left_out
            if explainer.outputs is None
            else left_out[left_out["output"] == explainer.outputs[k]]
        )
        alone = predicted_numbers(part) - verified_model(explainer).fitted()[:, k]
        changes = [
            (
                reweighted_replay(s, y, weights_without(s, j), s.leaves().T[[j]], 1)
                - fitted_of(s, y, j)
            ).real[0]
            for j in rows
        ]
        known = ~np.isnan(alone[rows])
        np.testing.assert_allclose(
            alone[rows][known], np.array(changes)[known], rtol=0, atol=1e-9 * np.abs(y).max()
        )
        assert known.any() or "weights minute" in name


def fitted_of(s, y, j):
    return reweighted_replay(s, y, weights_without(s, []), s.leaves().T[[j]])


@pytest.mark.parametrize(
    "name", ["linear regression weighted", "ridge", "ridge weighted", "kernel ridge weighted"]
)
def test_smoothers_against_refits_without_rows(name):
    """1e-8: least squares of the library, solved again, keeps some ten digits of predictions of order ten."""
    case, explainer = case_of("smoother", name), explainer_of("smoother", name)
    w = np.ones(len(case.y)) if case.sample_weight is None else np.array(case.sample_weight)
    before, effects = case.model.predict(case.X_new), explainer.removal(case.X_new)
    left_out = explainer.diagnostics.leave_one_out()["prediction"].to_numpy()
    for rows in ([0], [17], [100], [3, 50, 51]):
        left = w.copy()
        left[rows] = 0.0
        refit = clone(case.model).fit(case.X, case.y, sample_weight=left)
        changes = explainer.without(case.X_new, rows)
        np.testing.assert_allclose(changes["after"], refit.predict(case.X_new), rtol=0, atol=1e-8)
        if len(rows) == 1:
            np.testing.assert_allclose(
                effects[:, rows[0]], refit.predict(case.X_new) - before, rtol=0, atol=1e-8
            )
            np.testing.assert_allclose(
                left_out[rows], refit.predict(case.X[rows]), rtol=0, atol=1e-8
            )


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("lightgbm", "weighted lambda_l2=3"),
        ("xgboost", "one_output_per_tree weighted"),
        ("catboost", "weighted"),
        ("forest", "outputs"),
    ],
)
def test_sets_of_rows_against_a_fit_without_them(library, name):
    case, explainer = pair_of(library, name)
    rows = [0, 5, 6, 40, 90]
    table = explainer.without(case.X_new[:4], [verified_model(explainer).index[j] for j in rows])
    leaves, n_outputs = (
        verified_model(explainer).adapter.leaves(case.X_new[:4]),
        verified_model(explainer).targets.shape[1],
    )
    for k in range(n_outputs):
        shared = len(verified_model(explainer).engines) == 1
        s = verified_model(explainer).engines[0 if shared else k].structure
        own, y = (
            leaves if s.columns is None else leaves[:, s.columns],
            verified_model(explainer).targets[:, k],
        )
        expected = reweighted_replay(
            of_output(s, k if shared else 0), y, weights_without(s, rows), own, len(rows)
        ).real
        np.testing.assert_allclose(
            table["after"][k::n_outputs], expected, rtol=0, atol=1e-9 * np.abs(y).max()
        )
    np.testing.assert_allclose(
        table["after"] - table["before"], table["change"], rtol=0, atol=1e-12 * np.abs(y).max()
    )
    assert "exact" in table.attrs["axil"]


def test_what_has_no_deletion_is_refused_by_name():
    explainer, X = explainer_of("smoother", "neighbours"), case_of("smoother", "neighbours").X_new
    for question, ask in {
        "removal": lambda: explainer.removal(X, method="exact"),
        "without": lambda: explainer.without(X, [0]),
        "leave_one_out": explainer.diagnostics.leave_one_out,
    }.items():
        with pytest.raises(
            UnsupportedQuestionError,
            match=f"{question} has no answer here.*neighbours and Gaussian",
        ):
            ask()


def test_bad_rows_and_methods():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    with pytest.raises(InputError, match="method"):
        explainer.removal(case.X_new, method="second-order")
    with pytest.raises(InputError, match="rows is 'abc'; expected a list"):
        explainer.without(case.X_new, "abc")
    with pytest.raises(InputError, match="no row with a weight is left"):
        explainer.without(case.X_new, range(len(case.y)))
    unchanged = explainer.without(case.X_new, [])
    np.testing.assert_allclose(unchanged["change"], 0.0, atol=1e-12 * np.abs(case.y).max())


def test_long_work_is_announced(monkeypatch):
    monkeypatch.setattr("axil.methods.noise.WARNED", 0.0)
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    with pytest.warns(axil.CostWarning, match="Exact deletions of .* take") as said:
        explainer.removal(case.X_new[:2])
    assert said[0].filename == __file__
    assert 'method="first-order" takes less' in str(said[0].message)
    median = LGBMRegressor(objective="l1", n_estimators=3, verbose=-1).fit(case.X[:60], case.y[:60])
    with pytest.warns(
        axil.CostWarning, match=r"take .*explainer\.without\(X, rows\) is one replay"
    ):  # no first order
        axil.Explainer(median, case.X[:60], case.y[:60]).removal(case.X_new[:2])


def test_a_row_with_nearly_all_weight_leaves_the_others_their_answers():
    """CatBoost's l2 follows the total weight: with shares up to 0.996 there are 300 levels, whose products overflow."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y, w = 3 * X[:, 0] + rng.normal(size=400), 10 ** rng.uniform(-3, 3, 400)
    w[0] = 3e7
    model = CatBoostRegressor(
        iterations=3, depth=3, learning_rate=0.3, verbose=0, thread_count=1, random_seed=0
    )
    explainer = axil.Explainer(model.fit(X, y, sample_weight=w), X, y, sample_weight=w)
    found, rows = explainer.removal(X[:3]), [0, 1, 57, 111, 209, 399]
    assert np.isfinite(found).all()
    expected = np.stack([explainer.without(X[:3], [j])["change"] for j in rows], axis=1)
    # Without the first row leaf sums are differences of numbers a hundred times larger, thrice.
    np.testing.assert_allclose(found[:, rows], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[:, rows[1:]], expected[:, 1:], rtol=0, atol=1e-13)

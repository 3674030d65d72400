"""Shapley values of targets against all coalitions, each fitted by an independent replay."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor

import axil
from axil import InputError, UnsupportedQuestionError
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of
from tests.reference import replay
from tests.weights.test_removal import of_output


def brute_force(worth, n):
    """(n,): Shapley values of a game by the definition, over all 2^n coalitions."""
    known = {frozenset(c): worth(c) for size in range(n + 1) for c in combinations(range(n), size)}
    values = np.zeros(n)
    for player in range(n):
        for coalition, value in known.items():
            if player not in coalition:
                m = len(coalition)
                share = factorial(m) * factorial(n - m - 1) / factorial(n)
                values[player] += share * (known[coalition | {player}] - value)
    return values


def worth_of(explainer, X, y, baseline, codes, k):
    """The game of output k: minus the mean squared error of a replay with the targets of some groups of rows."""
    shared = len(verified_model(explainer).engines) == 1
    s = verified_model(explainer).engines[0 if shared else k].structure
    leaves = verified_model(explainer).adapter.leaves(X)
    own, s = leaves if s.columns is None else leaves[:, s.columns], of_output(s, k if shared else 0)
    targets = verified_model(explainer).targets[:, k]

    def worth(coalition):
        z = np.where(np.isin(codes, coalition), targets, baseline)
        return -np.mean((y - replay(s, z, own)) ** 2)

    return worth


@pytest.fixture(scope="module")
def nine():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    model = GradientBoostingRegressor(n_estimators=6, max_depth=2, random_state=0).fit(X, y)
    return axil.Explainer(model, X, y), rng.normal(size=(5, 2)), rng.normal(size=5)


@pytest.mark.parametrize("baseline", ["mean", "own"])
def test_every_row_of_nine(nine, baseline):
    """1e-12: 512 coalitions of errors of order one, each with a weight."""
    explainer, X, y = nine
    given = np.linspace(-1, 1, 9) if baseline == "own" else "mean"
    frame = explainer.shapley(X, y, baseline=given)
    numbers = given if baseline == "own" else np.full(9, explainer.targets.mean())
    expected = brute_force(worth_of(explainer, X, y, numbers, np.arange(9), 0), 9)
    assert frame["value"].is_monotonic_decreasing
    found = frame.set_index("row").sort_index()
    np.testing.assert_allclose(found["value"], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["baseline"], numbers)
    assert "exact" in frame.attrs["axil"]


MODELS = [
    ("lightgbm", "bagging weighted lambda_l2=1"),
    ("lightgbm", "dart"),
    ("xgboost", "one_output_per_tree weighted"),
    ("catboost", "multi weighted"),
    ("xgboost", "multi_output_tree weighted"),
]


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_groups_of_real_models(library, name):
    """Six groups of rows as players; 1e-9 of the fall of the error."""
    case, explainer = case_of(library, name), explainer_of(library, name)
    n, n_outputs = verified_model(explainer).targets.shape
    rng, codes = np.random.default_rng(0), np.arange(n) % 6
    X = case.X_new[:8]
    y = verified_model(explainer).predicted(verified_model(explainer).queries(X)) + rng.normal(
        size=(8, n_outputs)
    )
    frame = explainer.shapley(X, y if n_outputs > 1 else y[:, 0], groups=[f"g{c}" for c in codes])
    for k in range(n_outputs):
        targets = verified_model(explainer).targets[:, k]
        expected = brute_force(worth_of(explainer, X, y[:, k], targets.mean(), codes, k), 6)
        part = frame if n_outputs == 1 else frame[frame["output"] == explainer.outputs[k]]
        part = part.set_index("group").sort_index()
        np.testing.assert_allclose(
            part["value"], expected, rtol=0, atol=1e-9 * np.abs(expected).max()
        )
        assert part["rows"].sum() == n


def test_values_sum_to_the_fall_of_the_error_also_of_what_others_say():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    y = np.linspace(0, 1, len(case.X_new))
    frame = explainer.shapley(case.X_new, y, baseline="others").set_index("row").sort_index()
    others = explainer.diagnostics.leave_one_out()["prediction"].to_numpy()
    np.testing.assert_array_equal(frame["baseline"], others)
    unknown = {row: value for row, value in enumerate(others) if not np.isnan(value)}
    before = explainer.what_if(case.X_new, unknown)
    fall = np.mean((y - before["after"]) ** 2) - np.mean((y - before["before"]) ** 2)
    np.testing.assert_allclose(
        frame["value"].sum(), fall, rtol=1e-6
    )  # before: LightGBM's own predictions
    np.testing.assert_array_equal(frame["value"].isna(), np.isnan(others))


def test_rows_alone_in_their_leaves_have_the_values_of_the_nodes_above():
    from sklearn.tree import DecisionTreeRegressor

    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    explainer = axil.Explainer(DecisionTreeRegressor(random_state=0).fit(X, y), X, y)
    others = explainer.diagnostics.leave_one_out()["prediction"].to_numpy()
    assert not np.isclose(others, y).any()
    fall = (
        np.mean((y + 1 - others) ** 2) - 1.0
    )  # of the error, from the targets of others to those of all rows
    assert explainer.shapley(X, y + 1, baseline="others")["value"].sum() == pytest.approx(
        fall, rel=1e-12
    )


def test_refusals():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    y = np.zeros(len(case.X_new))
    for bad, message in [
        ("median", 'expected "mean", "others"'),
        (np.zeros(3), "baseline has shape"),
    ]:
        with pytest.raises(InputError, match=message):
            explainer.shapley(case.X_new, y, baseline=bad)
    with pytest.raises(InputError, match="X_val has no rows"):
        explainer.shapley(case.X_new[:0], y[:0])
    with pytest.raises(InputError, match="groups"):
        explainer.shapley(case.X_new, y, groups=[1, 2])
    X = case_of("smoother", "neighbours").X_new
    with pytest.raises(UnsupportedQuestionError, match="leave_one_out"):
        explainer_of("smoother", "neighbours").shapley(X, np.zeros(len(X)), baseline="others")

"""Questions about deleting rows, streamed, against those that hold every effect, and what tables say of rows that stand alone."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor
from test_contract import case_of, explainer_of
from test_removal import pair_of

import axil
from axil import InputError
from axil.weights import deletion

MODELS = [
    ("lightgbm", "bagging weighted lambda_l2=1"),
    ("xgboost", "multi_output_tree weighted"),
    ("xgboost", "one_output_per_tree"),
    ("forest", "outputs"),
    ("smoother", "ridge"),
]


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks of rows and batches of queries, and nothing kept from one batch to the next."""
    monkeypatch.setattr(deletion, "EFFECT_ENTRIES", 3000)
    monkeypatch.setattr(deletion, "HELD", 0)


@pytest.mark.parametrize("method", ["exact", "first-order"])
@pytest.mark.parametrize(("library", "name"), MODELS)
def test_top_rows_have_the_largest_effects(library, name, method, small_blocks):
    """Effects are read out for other batches of queries: up to the rounding of sums over the trees."""
    case, explainer = pair_of(library, name)
    effects = explainer.removal(case.X_new[:5], method).reshape(-1, 5, len(case.y))
    table = explainer.removal_top(case.X_new[:5], 4, method)
    keys = ["query"] if explainer.outputs is None else ["query", "output"]
    parts = table.groupby(keys, sort=False)
    assert len(parts) == 5 * len(effects)
    for (_, part), found in zip(parts, np.swapaxes(effects, 0, 1).reshape(-1, len(case.y))):
        close = {"rtol": 0, "atol": 1e-12 * np.abs(found).max()}
        assert list(part["rank"]) == [1, 2, 3, 4]
        np.testing.assert_allclose(found[part["row"]], part["effect"], **close)
        np.testing.assert_allclose(np.abs(part["effect"]), np.sort(np.abs(found))[::-1][:4], **close)
    assert ("first-order" in table.attrs["axil"]) == (method == "first-order")


def test_outputs_that_share_trees_share_the_walk(small_blocks, monkeypatch):
    case = case_of("xgboost", "multi_output_tree weighted")
    explainer = axil.Explainer(case.model, case.X, case.y, case.sample_weight)
    walked, walk = [], deletion.Level.walk
    monkeypatch.setattr(
        deletion.Level,
        "walk",
        lambda self, rows, *more, **named: walked.append(rows.start) or walk(self, rows, *more, **named),
    )
    for ask in (explainer.removal, lambda X: explainer.removal_set(X, 3), lambda X: explainer.removal_top(X, 3)):
        walked.clear()
        ask(case.X_new[:2])
        assert len(walked) > 1
        assert len(walked) == len(set(walked))


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_groups_are_deleted_whole(library, name):
    case, explainer = pair_of(library, name)
    labels = np.array(["north", "south", "west"])[np.arange(len(case.y)) % 3]
    table = explainer.removal_group(case.X_new[:4], labels)
    n_outputs = len(table) // (4 * 3)
    assert list(table["group"][:3]) == ["north", "south", "west"]
    assert list(table["rows"][:3]) == [int((labels == name).sum()) for name in ("north", "south", "west")]
    for group, part in table.groupby("group", sort=False):
        expected = explainer.without(list(np.flatnonzero(labels == group)), case.X_new[:4])
        assert len(part) == len(expected) == 4 * n_outputs
        for column in ("query", "before", "after", "change"):
            np.testing.assert_array_equal(part[column], expected[column])


def test_without_the_only_group_nothing_is_left():
    explainer = explainer_of("lightgbm", "regressor")
    case = case_of("lightgbm", "regressor")
    table = explainer.removal_group(case.X_new[:2], ["all"] * len(case.y))
    assert table["after"].isna().all()
    assert table["before"].notna().all()
    with pytest.raises(InputError, match="labels"):
        explainer.removal_group(case.X_new[:2], ["all"])


def test_tables_of_no_queries_have_their_columns():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    assert list(explainer.removal_top(case.X_new[:0]).columns) == ["query", "rank", "row", "effect"]
    table = explainer.removal_group(case.X_new[:0], np.zeros(len(case.y)))
    assert list(table.columns) == ["query", "group", "rows", "before", "after", "change"]
    assert len(table) == 0


def test_tables_say_which_rows_stand_alone_and_why():
    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    X[1] = X[0]  # these two share a leaf of a tree grown in full
    explainer = axil.Explainer(DecisionTreeRegressor().fit(X, y), X, y)
    table = explainer.leave_one_out()
    assert list(table["alone"]) == [False, False] + [True] * 8
    assert list(table["prediction"].isna()) == list(table["alone"])
    assert "nan in 8 of 10 lines: no other training row" in table.attrs["axil"]
    loose = explainer_of("lightgbm", "regressor").leave_one_out()
    assert not loose["alone"].any()
    assert "nan" not in loose.attrs["axil"]
    blamed = explainer.blame(X[:2], y[:2])
    assert blamed["corrected"].isna().any()
    assert "no other training row" in blamed.attrs["axil"]
    valued = explainer.shapley(X[:2], y[:2], baseline="others")
    assert list(valued["value"].isna()) == [False] * 2 + [True] * 8  # nan last
    assert "nan in 8 of 10 lines: no other training row" in valued.attrs["axil"]

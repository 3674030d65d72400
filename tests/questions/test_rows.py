"""Questions about deleting rows, streamed, against those that hold every effect, and what tables say of rows that stand alone."""

import warnings

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor
from test_contract import case_of, explainer_of
from test_removal import pair_of
from xgboost import XGBRFRegressor

import axil
from axil import InputError
from axil.errors import CostWarning
from axil.questions import noise
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


FORESTS = {
    "tree": DecisionTreeRegressor(),
    "forest": RandomForestRegressor(6, random_state=0),
    "bagged trees": BaggingRegressor(DecisionTreeRegressor(), 6, max_features=2, random_state=0),
    "lightgbm": LGBMRegressor(
        boosting_type="rf", n_estimators=6, bagging_freq=1, bagging_fraction=0.5, min_child_samples=1, verbose=-1
    ),
    "lightgbm l2": LGBMRegressor(
        boosting_type="rf",
        n_estimators=6,
        bagging_freq=1,
        bagging_fraction=0.5,
        min_child_samples=1,
        reg_lambda=2,
        verbose=-1,
    ),
    "xgboost": XGBRFRegressor(n_estimators=6, min_child_weight=0, reg_lambda=0.0),
    "xgboost l2 from 3": XGBRFRegressor(n_estimators=6, min_child_weight=0, base_score=3.0),
    "xgboost from 0": XGBRFRegressor(n_estimators=6, min_child_weight=0, base_score=0.0),
}


def forest_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, 3 * X[:, 0] + X[:, 1] ** 2 + 10 + rng.normal(size=40), rng.normal(size=(6, 3))


def leaves_and_draws(model, X, Q):
    """Leaves (n, T) of training rows and queries by the library itself, and how often each tree drew each row, (N, T)."""
    if isinstance(model, LGBMRegressor):
        leaves = [model.booster_.predict(rows, pred_leaf=True) for rows in (X, Q)]
        s = axil.Explainer(model, X, forest_data()[1]).proven.engines[0].structure
        return *leaves, s.draws[s.cells // s.n_leaves[:, None]].T  # LightGBM does not say which rows it drew
    if isinstance(model, XGBRFRegressor):
        s = axil.Explainer(model, X, forest_data()[1]).proven.engines[0].structure
        return model.apply(X), model.apply(Q), s.draws[s.cells // s.n_leaves[:, None]].T
    if isinstance(model, BaggingRegressor):
        drawn = zip(model.estimators_, model.estimators_features_)
        X_leaves, Q_leaves = zip(*[(tree.apply(X[:, own]), tree.apply(Q[:, own])) for tree, own in drawn])
        counts = [np.bincount(rows, minlength=len(X)) for rows in model.estimators_samples_]
        return np.stack(X_leaves, 1), np.stack(Q_leaves, 1), np.stack(counts, 1)
    if isinstance(model, DecisionTreeRegressor):
        return model.apply(X)[:, None], model.apply(Q)[:, None], np.ones((len(X), 1))
    counts = [np.bincount(rows, minlength=len(X)) for rows in model.estimators_samples_]
    return model.apply(X), model.apply(Q), np.stack(counts, 1)


def mean_of_the_rest(model, X, y, Q, gone):
    """The mean over the trees that still have rows in the query's leaf, row after row; nan where none has."""
    of_rows, of_queries, draws = leaves_and_draws(model, X, Q)
    left = ~np.isin(np.arange(len(X)), gone)
    boosted = isinstance(model, (LGBMRegressor, XGBRFRegressor))
    l2 = (0.0 if isinstance(model, LGBMRegressor) else 1.0) if boosted and model.reg_lambda is None else 0.0
    l2 = float(model.reg_lambda) if boosted and model.reg_lambda is not None else l2
    base = y[left].mean() if boosted else 0.0  # both estimate it
    base = base if not boosted or getattr(model, "base_score", None) is None else model.base_score
    found = np.full(len(Q), np.nan)
    for i, leaves in enumerate(of_queries):
        outputs = []
        for t, leaf in enumerate(leaves):
            w = draws[:, t] * (of_rows[:, t] == leaf) * left
            if w.sum() > 0:
                outputs.append(base + w @ (y - base) / (w.sum() + l2))
        found[i] = np.mean(outputs) if outputs else np.nan
    return found


@pytest.mark.parametrize("name", FORESTS)
def test_trees_without_rows_in_the_leaf_are_no_part_of_the_mean(name):
    """LightGBM and XGBoost keep targets in float32, XGBoost leaf values too: some 1e-7 of values of order ten."""
    X, y, Q = forest_data()
    single = name.startswith(("lightgbm", "xgboost"))
    model = clone(FORESTS[name]).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    close = {"rtol": 0, "atol": 1e-5 if single else 1e-10}
    before = mean_of_the_rest(model, X, y, Q, [])
    np.testing.assert_allclose(before, model.predict(Q), **close)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for gone in (np.arange(0, 40, 2), np.arange(1, 37)):
            expected = mean_of_the_rest(model, X, y, Q, gone)
            np.testing.assert_allclose(explainer.without(Q, gone)["after"], expected, **close)
            groups = np.where(np.isin(np.arange(40), gone), "gone", "left")
            table = explainer.removal_group(Q, groups)
            np.testing.assert_allclose(table[table["group"] == "gone"]["after"], expected, **close)
        expected = np.stack([mean_of_the_rest(model, X, y, Q, [j]) for j in range(40)], axis=1)
        np.testing.assert_allclose(explainer.removal(Q), expected - before[:, None], **close)
        effects = np.nan_to_num(expected - before[:, None])
        top = explainer.removal_top(Q, k=3)
        largest = top[top["rank"] == 1].set_index("query")["effect"].reindex(range(6), fill_value=0.0)
        np.testing.assert_allclose(np.abs(largest), np.abs(effects).max(axis=1), **close)
    table = explainer.leave_one_out()
    own = np.array([mean_of_the_rest(model, X, y, X[[j]], [j])[0] for j in range(40)])
    np.testing.assert_allclose(table["prediction"], own, **close)
    np.testing.assert_array_equal(table["alone"], np.isnan(own))


def test_probabilities_without_rows_add_up_to_one():
    X, y = load_wine(return_X_y=True)
    model = RandomForestClassifier(20, random_state=0).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    with pytest.warns(UserWarning, match="are nan: without the deleted rows no tree has a training row left"):
        table = explainer.without(X, y == 1)
    sums = table.groupby("query")["after"].sum(min_count=3)
    assert sums.isna().any()
    np.testing.assert_allclose(sums.dropna(), 1.0, atol=1e-12)
    np.testing.assert_allclose(explainer.without(X, [70]).groupby("query")["after"].sum(), 1.0, atol=1e-12)


def test_effects_without_a_rank_are_said():
    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    explainer = axil.Explainer(DecisionTreeRegressor().fit(X, y), X, y)
    with pytest.warns(UserWarning, match="2 effects have no rank"):
        assert len(explainer.removal_top(X[:2])) == 0
    with pytest.warns(UserWarning, match="2 effects have no rank"):
        assert len(explainer.removal_set(X[:2], 3)) == 0
    with pytest.warns(UserWarning, match="2 of 20 effects are nan"):
        explainer.removal(X[:2])


BAGS = {
    "boosting": BaggingRegressor(GradientBoostingRegressor(n_estimators=3), 4, max_samples=5, random_state=0),
    "neighbouring trees": VotingRegressor(
        [("a", DecisionTreeRegressor()), ("b", RandomForestRegressor(3, random_state=0))]
    ),
    "trees and a line": VotingRegressor([("a", DecisionTreeRegressor()), ("b", Ridge())], weights=[3, 1]),
}


@pytest.mark.parametrize("name", BAGS)
def test_models_without_rows_are_no_part_of_the_mean(name):
    """A boosted model has no prediction once all rows of its bag are gone; a tree, where it has no row in the leaf."""
    X, y, Q = forest_data()
    model = clone(BAGS[name]).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    gone = model.estimators_samples_[0] if name == "boosting" else np.arange(0, 40, 2)
    sizes, found, total = [3, 1] if name == "trees and a line" else [1] * len(model.estimators_), 0.0, 0.0
    for i, (size, member) in enumerate(zip(sizes, model.estimators_)):
        if name == "boosting":
            if i == 0:
                continue  # no row of its bag is left
            w = np.bincount(model.estimators_samples_[i], minlength=40).astype(float)
            inside = axil.Explainer(member, X, y, sample_weight=w)
        else:
            inside = axil.Explainer(member, X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            after = inside.without(Q, gone)["after"].to_numpy()
        found += size * np.nan_to_num(after)
        total += size * ~np.isnan(after)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = np.where(total > 0, found / np.maximum(total, 1e-300), np.nan)
        np.testing.assert_allclose(explainer.without(Q, gone)["after"], expected, atol=1e-10)
        single = np.stack([explainer.without(Q, [j])["change"] for j in range(40)], axis=1)
        np.testing.assert_allclose(explainer.removal(Q, method="exact"), single, atol=1e-10)
        left_out = explainer.leave_one_out()
        own = np.array([explainer.without(X[[j]], [j])["after"][0] for j in range(40)])
    kept = ~left_out["alone"]
    np.testing.assert_allclose(left_out["prediction"][kept], own[kept], atol=1e-10)
    assert name == "boosting" or np.array_equal(kept, ~np.isnan(own))  # boosted rows that are alone in a leaf have none


def test_greedy_sets_of_forests_follow_exact_effects():
    X, y, Q = forest_data()
    explainer = axil.Explainer(RandomForestRegressor(6, random_state=0).fit(X, y), X, y)
    table = explainer.removal_set(Q, 3, greedy=True)
    first, effects = table[table["rank"] == 1], np.nan_to_num(explainer.removal(Q))
    for query, row, effect in zip(first["query"], first["row"], first["effect"]):
        np.testing.assert_allclose(effect, effects[query, row], atol=1e-12)
    together = table.groupby("query")["effect"].agg(lambda effects: len(set(np.sign(effects))))
    assert (together == 1).all()
    for query, rows in table.groupby("query"):
        change = explainer.without(Q[[query]], rows["row"].tolist())["change"][0]
        np.testing.assert_allclose(rows["effect"].sum(), change, atol=1e-12)


def test_long_work_on_sets_and_groups_is_announced(monkeypatch):
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    monkeypatch.setattr(noise, "PATIENCE", 1e-6)
    with pytest.warns(CostWarning, match="Fits without each of 2 groups take some"):
        explainer.removal_group(case.X_new[:2], np.arange(len(case.y)) % 2)
    with pytest.warns(CostWarning, match="Greedy sets of 2 predictions take some"):
        explainer.removal_set(case.X_new[:2], 2, greedy=True)

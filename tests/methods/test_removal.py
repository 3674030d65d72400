"""removal, streamed, against the array of every effect; groups and sets, against fits without them."""

import json
import warnings

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeRegressor
from xgboost import XGBRFRegressor

import axil
from axil import InputError
from axil.attribution import notes
from axil.methods import noise
from axil.methods.method import verified_model
from axil.weights import deletion
from tests.contract_models import case_of, explainer_of
from tests.methods import method_models
from tests.methods.method_models import forest_data, small_batches
from tests.subsets import mostly_slow
from tests.weights.test_removal import pair_of

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
    monkeypatch.setattr(deletion, "CACHED_BYTES", 0)


@pytest.mark.parametrize("method", ["exact", "first-order"])
@pytest.mark.parametrize(("library", "name"), MODELS)
def test_top_rows_have_the_largest_effects(library, name, method, small_blocks):
    """Effects are read out for other batches of queries: up to the rounding of sums over the trees."""
    case, explainer = pair_of(library, name)
    effects = explainer.removal(case.X_new[:5], method=method).reshape(
        -1, len(case.y)
    )  # a line for each query and output
    table = explainer.removal(case.X_new[:5], k=4, method=method)
    keys = ["query"] if explainer.outputs is None else ["query", "output"]
    parts = table.groupby(keys, sort=False)
    assert len(parts) == len(effects)
    for (_, part), found in zip(parts, effects):
        close = {"rtol": 0, "atol": 1e-12 * np.abs(found).max()}
        assert list(part["rank"]) == [1, 2, 3, 4]
        np.testing.assert_allclose(found[part["row"]], part["effect"], **close)
        np.testing.assert_allclose(
            np.abs(part["effect"]), np.sort(np.abs(found))[::-1][:4], **close
        )
    assert ("first-order" in table.attrs["axil"]) == (method == "first-order")


def test_outputs_that_share_trees_share_the_walk(small_blocks, monkeypatch):
    case = case_of("xgboost", "multi_output_tree weighted")
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    walked, walk = [], deletion.Level.walk
    monkeypatch.setattr(
        deletion.Level,
        "walk",
        lambda self, rows, *more, **named: (
            walked.append(rows.start) or walk(self, rows, *more, **named)
        ),
    )
    for ask in (
        explainer.removal,
        lambda X: explainer.removal(X, k=3, same_sign=True),
        lambda X: explainer.removal(X, k=3),
    ):
        walked.clear()
        ask(case.X_new[:2])
        assert len(walked) > 1
        assert len(walked) == len(set(walked))


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_groups_are_deleted_whole(library, name):
    case, explainer = pair_of(library, name)
    labels = np.array(["north", "south", "west"])[np.arange(len(case.y)) % 3]
    table = explainer.removal(case.X_new[:4], groups=labels)
    n_outputs = len(table) // (4 * 3)
    assert list(table["group"][:3]) == ["north", "south", "west"]
    assert list(table["rows"][:3]) == [
        int((labels == name).sum()) for name in ("north", "south", "west")
    ]
    for group, part in table.groupby("group", sort=False):
        expected = explainer.without(case.X_new[:4], list(np.flatnonzero(labels == group)))
        assert len(part) == len(expected) == 4 * n_outputs
        for column in ("query", "before", "after", "change"):
            np.testing.assert_array_equal(part[column], expected[column])


def test_without_the_only_group_nothing_is_left():
    explainer = explainer_of("lightgbm", "regressor")
    case = case_of("lightgbm", "regressor")
    table = explainer.removal(case.X_new[:2], groups=["all"] * len(case.y))
    assert table["after"].isna().all()
    assert table["before"].notna().all()
    with pytest.raises(InputError, match="groups"):
        explainer.removal(case.X_new[:2], groups=["all"])


def test_tables_of_no_queries_have_their_columns():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    assert list(explainer.removal(case.X_new[:0], k=10).columns) == [
        "query",
        "rank",
        "row",
        "effect",
    ]
    table = explainer.removal(case.X_new[:0], groups=np.zeros(len(case.y)))
    assert list(table.columns) == ["query", "group", "rows", "before", "after", "change"]
    assert len(table) == 0


FORESTS = {
    "tree": DecisionTreeRegressor(),
    "forest": RandomForestRegressor(6, random_state=0),
    "bagged trees": BaggingRegressor(DecisionTreeRegressor(), 6, max_features=2, random_state=0),
    "lightgbm": LGBMRegressor(
        boosting_type="rf",
        n_estimators=6,
        bagging_freq=1,
        bagging_fraction=0.5,
        min_child_samples=1,
        verbose=-1,
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


def leaves_and_draws(model, X, Q):
    """Leaves (n, T) of training rows and queries by the library itself, and how often each tree drew each row, (N, T)."""
    if isinstance(model, LGBMRegressor):
        leaves = [model.booster_.predict(rows, pred_leaf=True) for rows in (X, Q)]
        s = verified_model(axil.Explainer(model, X, forest_data()[1])).engines[0].structure
        return *leaves, s.sample_counts[
            s.cells // s.n_leaves[:, None]
        ].T  # LightGBM does not say which rows it drew
    if isinstance(model, XGBRFRegressor):
        s = verified_model(axil.Explainer(model, X, forest_data()[1])).engines[0].structure
        return model.apply(X), model.apply(Q), s.sample_counts[s.cells // s.n_leaves[:, None]].T
    if isinstance(model, BaggingRegressor):
        drawn = zip(model.estimators_, model.estimators_features_)
        X_leaves, Q_leaves = zip(
            *[(tree.apply(X[:, own]), tree.apply(Q[:, own])) for tree, own in drawn]
        )
        counts = [np.bincount(rows, minlength=len(X)) for rows in model.estimators_samples_]
        return np.stack(X_leaves, 1), np.stack(Q_leaves, 1), np.stack(counts, 1)
    if isinstance(model, DecisionTreeRegressor):
        return model.apply(X)[:, None], model.apply(Q)[:, None], np.ones((len(X), 1))
    counts = [np.bincount(rows, minlength=len(X)) for rows in model.estimators_samples_]
    return model.apply(X), model.apply(Q), np.stack(counts, 1)


def paths_of(model):
    """For each tree, by leaf as the library numbers it, the sets of leaves below the nodes above it, the nearest first."""

    def walk(node, children, leaf, found):
        if leaf(node) is not None:
            found[leaf(node)] = [{leaf(node)}]
            return {leaf(node)}
        below = set().union(*(walk(child, children, leaf, found) for child in children(node)))
        for own in below:
            found[own].append(below)
        return below

    def sides(node):
        return [node["left_child"], node["right_child"]]

    def index(node):
        return node.get("leaf_index", 0 if "leaf_value" in node else None)

    trees = []
    if isinstance(model, LGBMRegressor):
        for info in model.booster_.dump_model()["tree_info"]:
            walk(info["tree_structure"], sides, index, found := {})
            trees.append(found)
    elif isinstance(model, XGBRFRegressor):
        for text in model.get_booster().get_dump(dump_format="json"):
            walk(
                json.loads(text),
                lambda node: node["children"],
                lambda node: node["nodeid"] if "leaf" in node else None,
                found := {},
            )
            trees.append(found)
    else:
        for member in getattr(model, "estimators_", [model]):
            left, right = member.tree_.children_left, member.tree_.children_right
            walk(
                0,
                lambda node, left=left, right=right: [left[node], right[node]],
                lambda node, left=left: node if left[node] < 0 else None,
                found := {},
            )
            trees.append(found)
    return trees


def mean_of_ancestors(model, X, y, Q, gone):
    """The mean over trees where a leaf without rows has the value of its nearest ancestor that has some, row after row."""
    of_rows, of_queries, draws = leaves_and_draws(model, X, Q)
    left = ~np.isin(np.arange(len(X)), gone)
    boosted = isinstance(model, (LGBMRegressor, XGBRFRegressor))
    l2 = (
        (0.0 if isinstance(model, LGBMRegressor) else 1.0)
        if boosted and model.reg_lambda is None
        else 0.0
    )
    l2 = float(model.reg_lambda) if boosted and model.reg_lambda is not None else l2
    base = y[left].mean() if boosted else 0.0  # both estimate it
    base = base if not boosted or getattr(model, "base_score", None) is None else model.base_score
    found, paths = np.full(len(Q), np.nan), paths_of(model)
    for i, leaves in enumerate(of_queries):
        outputs = []
        for t, leaf in enumerate(leaves):
            for below in paths[t][leaf]:
                w = draws[:, t] * np.isin(of_rows[:, t], list(below)) * left
                if w.sum() > 0:
                    outputs.append(base + w @ (y - base) / (w.sum() + l2))
                    break
        assert len(outputs) == len(leaves)
        found[i] = np.mean(outputs)
    return found


@pytest.mark.parametrize("name", mostly_slow(2, FORESTS))
def test_leaves_without_rows_have_the_values_of_their_ancestors(name):
    """LightGBM and XGBoost keep targets in float32, XGBoost leaf values too: some 1e-7 of values of order ten."""
    X, y, Q = forest_data()
    single = name.startswith(("lightgbm", "xgboost"))
    model = clone(FORESTS[name]).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    close = {"rtol": 0, "atol": 1e-5 if single else 1e-10}
    before = mean_of_ancestors(model, X, y, Q, [])
    np.testing.assert_allclose(before, model.predict(Q), **close)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for gone in (np.arange(0, 40, 2), np.arange(1, 37)):
            expected = mean_of_ancestors(model, X, y, Q, gone)
            np.testing.assert_allclose(explainer.without(Q, gone)["after"], expected, **close)
            groups = np.where(np.isin(np.arange(40), gone), "gone", "left")
            table = explainer.removal(Q, groups=groups)
            np.testing.assert_allclose(table[table["group"] == "gone"]["after"], expected, **close)
    expected = np.stack([mean_of_ancestors(model, X, y, Q, [j]) for j in range(40)], axis=1)
    np.testing.assert_allclose(explainer.removal(Q), expected - before[:, None], **close)
    effects = expected - before[:, None]
    top = explainer.removal(Q, k=3)
    largest = top[top["rank"] == 1].set_index("query")["effect"].reindex(range(6), fill_value=0.0)
    np.testing.assert_allclose(np.abs(largest), np.abs(effects).max(axis=1), **close)
    table = explainer.diagnostics.leave_one_out()
    own = np.array([mean_of_ancestors(model, X, y, X[[j]], [j])[0] for j in range(40)])
    np.testing.assert_allclose(table["prediction"], own, **close)
    assert not table["alone"].any()


def test_effects_without_a_rank_are_said():
    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    weights = np.append(1.0, np.zeros(9))
    explainer = axil.Explainer(
        DecisionTreeRegressor().fit(X, y, weights), X, y, sample_weight=weights
    )
    with pytest.warns(UserWarning, match="2 effects have no rank"):
        assert len(explainer.removal(X[:2], k=10)) == 0
    with pytest.warns(UserWarning, match="2 effects have no rank"):
        assert len(explainer.removal(X[:2], k=3, same_sign=True)) == 0
    with pytest.warns(UserWarning, match="2 of 20 effects are nan"):
        explainer.removal(X[:2])


def test_greedy_sets_of_forests_follow_exact_effects():
    X, y, Q = forest_data()
    explainer = axil.Explainer(RandomForestRegressor(6, random_state=0).fit(X, y), X, y)
    table = explainer.removal(Q, k=3, same_sign=True, greedy=True)
    first, effects = table[table["rank"] == 1], np.nan_to_num(explainer.removal(Q))
    for query, row, effect in zip(first["query"], first["row"], first["effect"]):
        np.testing.assert_allclose(effect, effects[query, row], atol=1e-12)
    together = table.groupby("query")["effect"].agg(lambda effects: len(set(np.sign(effects))))
    assert (together == 1).all()
    for query, rows in table.groupby("query"):
        change = explainer.without(Q[[query]], rows["row"].tolist())["change"][0]
        np.testing.assert_allclose(rows["effect"].sum(), change, atol=1e-12)


@pytest.mark.parametrize(("library", "name"), method_models.MODELS[:9])
def test_sets_by_pushes_are_the_largest_of_one_sign(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    steps = explainer.jacobian.gradient_contributions(case.X_new)
    small_batches(monkeypatch, explainer)
    np.testing.assert_allclose(
        explainer.jacobian.gradient_contributions(case.X_new),
        steps,
        rtol=0,
        atol=1e-12 * np.abs(steps).max(),
    )
    frame = explainer.removal(case.X_new, k=3, same_sign=True, by="contribution")
    assert list(frame.columns) == [
        "query",
        *(["output"] if steps.ndim == 3 else []),
        "rank",
        "row",
        "contribution",
    ]
    assert frame.attrs["axil"] == notes.NOTE
    keys = ["query"] if steps.ndim == 2 else ["output", "query"]
    for key, own in frame.groupby(keys):
        *output, query = key
        values = (
            steps[query]
            if steps.ndim == 2
            else steps[query, list(explainer.outputs).index(output[0])]
        )
        expected = max(np.sort(values)[-3:].clip(0).sum(), -np.sort(values)[:3].clip(None, 0).sum())
        np.testing.assert_allclose(np.abs(own["contribution"]).sum(), expected, rtol=1e-9)
        np.testing.assert_allclose(own["contribution"], values[own["row"]], rtol=1e-9)


def test_pushes_that_do_not_exist_are_refused():
    case, explainer = case_of("smoother", "ridge"), explainer_of("smoother", "ridge")
    with pytest.raises(axil.UnsupportedQuestionError, match="not tree by tree"):
        explainer.jacobian.gradient_contributions(case.X_new)
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    with pytest.raises(InputError, match='expected "effect" or "contribution"'):
        explainer.removal(case.X_new, k=2, same_sign=True, by="weight")
    with pytest.raises(InputError, match='by="contribution" has none: leave them out'):
        explainer.removal(case.X_new, k=2, same_sign=True, greedy=True, by="contribution")
    assert explainer.jacobian.gradient_contributions(case.X_new[:0]).shape == (0, len(case.y))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": "all", "k": 3}, "leave k, method, by, same_sign and greedy out"),
        ({"groups": "all", "method": "exact"}, "leave k, method, by, same_sign and greedy out"),
        ({"groups": "all", "by": "contribution"}, "leave k, method, by, same_sign and greedy out"),
        ({"groups": "all", "greedy": True}, "leave k, method, by, same_sign and greedy out"),
        ({"same_sign": True}, "say how many with k"),
        ({"greedy": True}, "say how many with k"),
        ({"k": 3, "init_score": 0.0}, "init_score is taken with groups"),
        ({"k": 3, "by": "contribution", "method": "exact"}, "method and greedy compute effects"),
        ({"k": 0}, "k is 0"),
        ({"k": 3, "method": "guess"}, "method is 'guess'"),
        ({"k": 3, "greedy": 1}, "greedy is 1"),
    ],
)
def test_options_that_would_change_nothing_are_refused(given, message):
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    given = {
        name: ["all"] * len(case.y) if name == "groups" else value for name, value in given.items()
    }
    with pytest.raises(InputError, match=message):
        explainer.removal(case.X_new, **given)


def test_long_work_on_sets_and_groups_is_announced(monkeypatch):
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    monkeypatch.setattr(noise, "PATIENCE", 1e-6)
    with pytest.warns(axil.CostWarning, match="Refits without each of 2 groups take some"):
        explainer.removal(case.X_new[:2], groups=np.arange(len(case.y)) % 2)
    with pytest.warns(axil.CostWarning, match="Greedy sets of 2 predictions take some"):
        explainer.removal(case.X_new[:2], k=2, greedy=True)

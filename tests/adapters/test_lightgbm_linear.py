"""Linear leaves of LightGBM against a replay in plain NumPy, which solves every leaf's ridge regression itself."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from tests.adapters.common import check_refusal
from tests.adapters.lightgbm_models import BAG, CAT, Case, booster, table, with_gaps

Array = NDArray[np.float64]

LINEAR: dict[str, Any] = {"linear_tree": True, "n_trees": 6}
PARAMS: dict[str, dict[str, Any]] = {
    "default": {},
    "penalty": {"linear_lambda": 1.0},
    "missing values": {"data": with_gaps(), "lambda_l2": 2.0, "min_data_in_leaf": 3},
    "missing values weighted": {"data": with_gaps(), "weighted": True, "linear_lambda": 0.01},
    "categories": {**CAT, "weighted": True},
    "bagging": {**BAG, "linear_lambda": 0.1},
    "small bags": {"bagging_fraction": 0.4, "bagging_freq": 2, "data": with_gaps()},
    "from zero": {"boost_from_average": False, "learning_rate": 1.0},
    "small leaves": {"min_data_in_leaf": 1, "num_leaves": 63, "linear_lambda": 0.1},
}


@cache
def case_of(name: str) -> Case:
    return booster(**{**LINEAR, **PARAMS[name]})


@cache
def explainer_of(name: str) -> axil.Explainer:
    case = case_of(name)
    return axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)


def leaves_below(node: dict[str, Any], above: frozenset[int] = frozenset()) -> list[dict[str, Any]]:
    """The leaves of a dumped tree with the features of numbers on their branches."""
    if "split_index" not in node:
        return [{"branch": sorted(above), **node}]
    own = above | ({node["split_feature"]} if node["decision_type"] == "<=" else frozenset())
    return leaves_below(node["left_child"], own) + leaves_below(node["right_child"], own)


def oracle(name: str, queries: Array) -> Array:
    """(n, N): weights of the queries, from dense matrices for every leaf."""
    case, params = case_of(name), PARAMS[name]
    X, n = case.X.astype(np.float32).astype(np.float64), len(case.y)
    w = (
        np.ones(n)
        if case.sample_weight is None
        else case.sample_weight.astype(np.float32).astype(np.float64)
    )
    own, asked = (
        np.asarray(case.model.predict(rows, pred_leaf=True)) for rows in (case.X, queries)
    )
    start = w / w.sum() * (params.get("boost_from_average", True))
    K, found = np.tile(start, (n, 1)), np.tile(start, (len(queries), 1))
    rate, sampler = params.get("learning_rate", 0.1), None
    if "bagging_fraction" in params:
        adapter: Any = read(case.model)
        sampler = adapter._settings.bagging(n)
    for t, tree in enumerate(case.model.dump_model()["tree_info"]):
        left, drawn = np.eye(n) - K, np.ones(n)
        if sampler is not None:
            bag, sampler = sampler.attempt(False, None)
            drawn, sampler = bag.astype(float), sampler.grown()
        for leaf in leaves_below(tree["tree_structure"]):
            rows, there = (
                np.flatnonzero(each[:, t] == leaf["leaf_index"]) for each in (own, asked)
            )
            counted = w * drawn * (own[:, t] == leaf["leaf_index"])
            more = params.get("lambda_l2", 0.0)
            value = rate * (counted @ left) / (counted.sum() + more)
            features, constant = leaf.get("leaf_features", []), leaf.get("leaf_const")
            K[rows], found[there] = K[rows] + value, found[there] + value
            if not features and constant == leaf["leaf_value"]:
                continue
            one = [1.0] * (constant != 0.0)
            fits = (counted > 0) & ~np.isnan(X[:, leaf["branch"]]).any(axis=1)
            B = np.column_stack([X[:, features], *([np.ones(n)] * len(one))])
            ridge = np.diag([params.get("linear_lambda", 0.0)] * len(features) + [0.0] * len(one))
            normal = (B[fits] * counted[fits, None]).T @ B[fits] + ridge
            made = rate * np.linalg.solve(normal, (B[fits] * counted[fits, None]).T @ left[fits])
            for weights, places, values in ((K, rows, X[rows]), (found, there, queries[there])):
                basis = np.column_stack([values[:, features], *([np.ones(len(values))] * len(one))])
                whole = ~np.isnan(basis).any(axis=1)
                weights[places[whole]] += basis[whole] @ made - value
    return found


@pytest.mark.parametrize("name", [name for name in PARAMS if name != "categories"])
def test_weights_are_those_of_a_replay(name: str) -> None:
    case, explainer = case_of(name), explainer_of(name)
    K = oracle(name, case.X_new)
    size = np.abs(case.model.predict(case.X_new)).max()
    np.testing.assert_allclose(K @ case.y, case.model.predict(case.X_new), rtol=0, atol=1e-6 * size)
    explanation = explainer(case.X_new)
    assert explainer.kind == "exact"
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-6 * np.abs(K).max())
    assert not np.any(explanation.intercepts)


@pytest.mark.parametrize("name", PARAMS)
def test_mistakes_in_the_targets_are_found(name: str) -> None:
    case, explainer = case_of(name), explainer_of(name)
    assert explainer.verification.max_error < 1e-7
    weighs = np.flatnonzero(
        np.abs(explainer.jacobian.operator @ np.eye(len(case.y))).max(axis=0) > 1e-4
    )
    first, second = weighs[[0, -1]]
    swapped, changed = case.y.copy(), case.y.copy()
    swapped[[first, second]], changed[first] = case.y[[second, first]], case.y[first] + 0.1
    for wrong in (swapped, changed, case.y[::-1], case.y + 1.0):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(case.model, case.X, wrong, sample_weight=case.sample_weight)
    if case.sample_weight is not None:
        with pytest.raises(axil.ExactnessError, match="weight of leaf"):
            axil.Explainer(case.model, case.X, case.y)


def test_rows_of_another_table_are_found() -> None:
    case = case_of("default")
    X = case.X.copy()
    X[:, 0] *= 1.0 + 1e-3  # which changes slopes and hardly a leaf
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, X, case.y)


def test_questions_that_follow_from_weights() -> None:
    case, explainer = case_of("missing values weighted"), explainer_of("missing values weighted")
    K, queries = oracle("missing values weighted", case.X_new), case.X_new
    targets = {0: 5.0, 3: -1.0}
    moved = K[:, [0, 3]] @ (np.array([5.0, -1.0]) - case.y[[0, 3]])
    np.testing.assert_allclose(explainer.what_if(queries, targets)["change"], moved, atol=1e-7)
    everywhere = oracle("missing values weighted", case.X)
    np.testing.assert_allclose(explainer.diagnostics.leverage(), np.diag(everywhere), atol=1e-7)
    v = np.linspace(-1, 1, len(case.y))
    np.testing.assert_allclose(explainer.jacobian.operator @ v, everywhere @ v, atol=1e-6)
    np.testing.assert_allclose(explainer.jacobian.operator.T @ v, everywhere.T @ v, atol=1e-6)
    top = explainer.top(queries[:2], k=3)
    np.testing.assert_allclose(top["weight"][:3], K[0, top["row"][:3]], atol=1e-7)
    influence = explainer.influence(queries, case.model.predict(queries) + 1.0)
    assert len(influence) == len(case.y)
    one, batch = explainer(queries[:1]).weights, explainer(queries).weights[:1]
    np.testing.assert_array_equal(one, batch)


@pytest.mark.parametrize(
    "question",
    [
        "without",
        "removal",
        "diagnostics.leave_one_out",
        "jacobian.gradient_contributions",
        "refit",
        "save",
    ],
)
def test_questions_without_an_answer_say_so(question: str, tmp_path: Any) -> None:
    case, explainer = case_of("default"), explainer_of("default")
    arguments: dict[str, tuple[Any, ...]] = {
        "without": (case.X_new, [0]),
        "diagnostics.leave_one_out": (),
        "refit": (),
        "save": (tmp_path / "explainer.axil",),
    }
    with pytest.raises(axil.UnsupportedQuestionError):
        attrgetter(question)(explainer)(*arguments.get(question, (case.X_new,)))


def test_features_that_lightgbm_leaves_out_of_a_singular_leaf() -> None:
    """A copy of a column, and one that is constant in leaves: their coefficients are exactly zero in the model."""
    data = table()
    for rows in (data.X, data.X_new):
        rows[:, 1] = rows[:, 0]
        rows[:, 2] = np.where(rows[:, 3] > np.median(data.X[:, 3]), 5.0, rows[:, 2])
    case = booster(data, **LINEAR, num_leaves=15)
    assert any(len(leaf.columns) <= len(leaf.branch) for leaf in read(case.model)._leaves[-1])  # type: ignore[attr-defined]
    explainer = axil.Explainer(case.model, case.X, case.y)
    explanation = explainer(case.X_new)
    np.testing.assert_allclose(
        explanation.weights @ case.y, case.model.predict(case.X_new), rtol=1e-6
    )


def test_a_leaf_whose_coefficients_are_rounding_is_refused_by_name() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    X[:, 2] = X[:, 0] + X[:, 1]  # in single precision, but for rounding
    y = X[:, 0] * X[:, 1] + X[:, 2] ** 2
    model = lgb.train({"linear_tree": True, "verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 10)
    with pytest.raises(
        axil.UnsupportedModelError,
        match=r"linear_lambda=0 with leaf \d+ of tree \d+.*larger linear_lambda",
    ):
        axil.Explainer(model, X, y)


def test_models_that_were_saved_or_continued() -> None:
    case = case_of("penalty")
    text = case.model.model_to_string()
    loaded = lgb.Booster(model_str=text)
    assert read(loaded).fingerprint == read(case.model).fingerprint
    K = axil.Explainer(loaded, case.X, case.y)(case.X_new).weights
    np.testing.assert_allclose(K, explainer_of("penalty")(case.X_new).weights, atol=1e-12)
    last = text.rindex("leaf_coeff=") + len("leaf_coeff=")
    other = lgb.Booster(model_str=text[:last] + "9" + text[last:].lstrip("-"))
    assert read(other).fingerprint != read(case.model).fingerprint
    params = {"linear_tree": True, "linear_lambda": 1.0, "verbose": -1, "num_threads": 1}
    data = lgb.Dataset(case.X, case.y, free_raw_data=False, params=params)
    plain = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(case.X, case.y), 3)
    longer = lgb.train(params, data, 3, init_model=plain)
    explainer = axil.Explainer(longer, case.X, case.y)
    np.testing.assert_allclose(
        explainer(case.X_new).weights @ case.y, longer.predict(case.X_new), rtol=1e-6
    )


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "dart": ({"boosting": "dart"}, "boosting=dart"),
    "rf": ({"boosting": "rf", **BAG}, "boosting=rf"),
    "goss": ({"data_sample_strategy": "goss"}, "GOSS"),
    "huber": ({"objective": "huber"}, "objective=huber"),
    "l1": ({"lambda_l1": 0.5}, "lambda_l1"),
    "path_smooth": ({"path_smooth": 2.0}, "path_smooth"),
    "max_delta_step": ({"max_delta_step": 0.5}, "max_delta_step"),
    "monotone": ({"monotone_constraints": [1] * 8}, "monotone_constraints"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_settings_beside_linear_leaves_that_are_refused(name: str) -> None:
    params, setting = OTHERS[name]
    check_refusal(
        booster(linear_tree=True, n_trees=3, **params).model,
        "linear_tree",
        f"True with {setting}",
        None,
    )


def test_a_schedule_of_rates_is_refused() -> None:
    model = booster(
        **LINEAR, callbacks=[lgb.reset_parameter(learning_rate=lambda i: 0.1 / (i + 1))]
    ).model
    check_refusal(model, "learning_rate", "one for each tree", None)

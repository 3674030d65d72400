"""CatBoost models of other losses than squared error with monotone constraints: leaves of a chain are pooled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.isotonic import isotonic_regression

import axil

Array = NDArray[np.float64]

N_ROWS, N_QUERIES, DEPTH = 150, 6, 3
SIGNS = {0: 1, 1: -1}  # by feature
LOSSES = ("Logloss", "CrossEntropy", "Poisson", "Huber:delta=0.7")
SETTINGS: dict[str, dict[str, Any]] = {
    "Newton": {},
    "Gradient": {"leaf_estimation_method": "Gradient"},
    "Ordered": {"boosting_type": "Ordered"},
}


@dataclass(frozen=True)
class Case:
    """A fitted model with its training data and rows to explain."""

    model: Any
    X: Array
    y: Array
    sample_weight: Array | None
    queries: Array

    def explainer(self) -> axil.Explainer:
        """Explain the model on its training data."""
        return axil.Explainer(self.model, self.X, self.y, sample_weight=self.sample_weight)

    def scores(self, model: Any) -> Array:
        """Return the raw scores (n,) that a model gives the rows to explain."""
        return np.asarray(model.predict(self.queries, prediction_type="RawFormulaVal"))


def fitted(
    loss: str, weighted: bool = False, defaults: tuple[str, ...] = (), **changes: object
) -> Case:
    """Fit targets that follow the constrained features, with much noise."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N_ROWS, 3)).round(1)
    signal = X[:, 0] - X[:, 1] + X[:, 2] + 1.5 * rng.normal(size=N_ROWS)
    targets = {
        "Logloss": signal > 0,
        "CrossEntropy": expit(signal),
        "Poisson": rng.poisson(np.exp(0.4 * signal)),
    }
    y = np.asarray(targets.get(loss, signal), dtype=np.float64)
    sample_weight = rng.integers(1, 5, N_ROWS) / 2 if weighted else None
    settings: dict[str, object] = {
        "loss_function": loss,
        "iterations": 8,
        "depth": DEPTH,
        "learning_rate": 0.3,
        "monotone_constraints": SIGNS,
        "leaf_estimation_iterations": 1,
        "model_shrink_rate": 0,
        "verbose": False,
        "allow_writing_files": False,
        "thread_count": 1,
        **changes,
    }
    for name in defaults:
        del settings[name]
    model = cb.CatBoost(settings)
    model.fit(cb.Pool(X, y, weight=sample_weight))
    return Case(model, X, y, sample_weight, rng.normal(size=(N_QUERIES, 3)).round(1))


def chains(model: Any, folder: Path) -> list[list[list[int]]]:
    """Return the chains of leaves of each tree, in the order in which values must rise."""
    path = folder / "model.json"
    model.save_model(str(path), format="json")
    chains_of_trees = []
    for tree in json.loads(path.read_text())["oblivious_trees"]:
        signs = [SIGNS.get(split["float_feature_index"], 0) for split in tree["splits"]]
        by_free_splits: dict[tuple[int, ...], list[tuple[list[int], int]]] = {}
        for leaf in range(1 << len(signs)):
            outcomes = [leaf >> split & 1 for split in range(len(signs))]
            pairs = list(zip(outcomes, signs))
            free = tuple(outcome for outcome, sign in pairs if sign == 0)
            rank = [outcome if sign > 0 else 1 - outcome for outcome, sign in pairs if sign != 0]
            by_free_splits.setdefault(free, []).append((rank, leaf))
        chains_of_trees.append(
            [[leaf for _, leaf in sorted(chain)] for chain in by_free_splits.values()]
        )
    return chains_of_trees


def derivatives(loss: str, y: Array, score: Array) -> tuple[Array, Array]:
    """Return the negative gradients and the hessians of a loss."""
    if loss in ("Logloss", "CrossEntropy"):
        mean = expit(score)
        return y - mean, mean * (1 - mean)
    if loss == "Poisson":
        mean = np.exp(score)
        return y - mean, mean
    delta = float(loss.split("=")[1])
    residual = y - score
    return np.clip(residual, -delta, delta), (np.abs(residual) < delta).astype(np.float64)


def replayed(case: Case, loss: str, present: NDArray[np.bool_], folder: Path) -> Array:
    """Fit the leaf values again in NumPy on the rows that are present; return the scores of the queries (n,)."""
    params = case.model.get_all_params()
    weights = np.ones(N_ROWS) if case.sample_weight is None else case.sample_weight
    weights = np.where(present, weights, 0.0)
    l2 = float(np.float32(params["l2_leaf_reg"])) * weights[present].mean()
    rate = float(np.float32(params["learning_rate"]))
    shrinkage = 1 - float(np.float32(params["model_shrink_rate"])) * rate
    y = np.float64(np.float32(case.y))
    row_scores, scores = np.zeros(N_ROWS), np.zeros(N_QUERIES)
    leaves_of_rows = case.model.calc_leaf_indexes(case.X).T
    leaves_of_queries = case.model.calc_leaf_indexes(case.queries).T
    trees = zip(leaves_of_rows, leaves_of_queries, chains(case.model, folder))
    for number, (leaves, query_leaves, tree_chains) in enumerate(trees):
        if number > 0:
            row_scores, scores = shrinkage * row_scores, shrinkage * scores
        gradients, hessians = derivatives(loss, y, row_scores)
        if params["leaf_estimation_method"] == "Gradient":
            hessians = np.ones(N_ROWS)
        sums = np.bincount(leaves, weights * gradients, 1 << DEPTH)
        denominators = np.bincount(leaves, weights * hessians, 1 << DEPTH) + l2
        values = np.zeros(1 << DEPTH)
        for chain in tree_chains:
            values[chain] = isotonic_regression(
                sums[chain] / denominators[chain], sample_weight=denominators[chain]
            )
        row_scores = row_scores + rate * values[leaves]
        scores = scores + rate * values[query_leaves]
    return scores


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("loss", LOSSES)
def test_contributions_and_deletions(
    loss: str, settings: dict[str, Any], weighted: bool, tmp_path: Path
) -> None:
    case = fitted(loss, weighted, **settings)
    explainer = case.explainer()
    everybody = np.ones(N_ROWS, dtype=bool)
    scores = case.scores(case.model)
    np.testing.assert_allclose(replayed(case, loss, everybody, tmp_path), scores, atol=1e-6)
    explanation = explainer(case.queries)
    sums = explanation.contributions.sum(axis=-1) + explanation.intercepts
    np.testing.assert_allclose(sums, scores, atol=1e-9)

    deleted = np.arange(5, 20)
    present = everybody.copy()
    present[deleted] = False
    expected = replayed(case, loss, present, tmp_path)
    assert np.abs(expected - scores).max() > 1e-3
    after = np.asarray(explainer.without(case.queries, deleted)["after"])
    np.testing.assert_allclose(after, expected, atol=1e-6)
    refitted = explainer.refit(drop=deleted).model
    np.testing.assert_allclose(case.scores(refitted), after, atol=1e-9)


@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
def test_shrunk_models(mode: str, tmp_path: Path) -> None:
    """CatBoost shrinks models with constraints before it adds a tree."""
    settings = {"model_shrink_rate": 0.1, "model_shrink_mode": mode}
    case = fitted("Huber:delta=0.7", **settings)
    explainer = case.explainer()
    explanation = explainer(case.queries)
    sums = explanation.contributions.sum(axis=-1) + explanation.intercepts
    np.testing.assert_allclose(sums, case.scores(case.model), atol=1e-9)
    deleted = np.arange(12)
    after = np.asarray(explainer.without(case.queries, deleted)["after"])
    refitted = explainer.refit(drop=deleted).model
    np.testing.assert_allclose(case.scores(refitted), after, atol=1e-9)
    if mode == "Constant":
        present = np.arange(N_ROWS) >= 12
        expected = replayed(case, "Huber:delta=0.7", present, tmp_path)
        np.testing.assert_allclose(after, expected, atol=1e-6)


@pytest.mark.parametrize("loss", ["Logloss", "Poisson"])
def test_defaults_of_constraints(loss: str) -> None:
    """CatBoost sets model_shrink_rate=0.01 and one step per leaf where there are constraints."""
    case = fitted(loss, defaults=("model_shrink_rate", "leaf_estimation_iterations"))
    assert case.model.get_all_params()["model_shrink_rate"] > 0
    assert case.model.get_all_params()["leaf_estimation_iterations"] == 1
    explainer = case.explainer()
    explanation = explainer(case.queries)
    sums = explanation.contributions.sum(axis=-1) + explanation.intercepts
    np.testing.assert_allclose(sums, case.scores(case.model), atol=1e-9)
    deleted = np.arange(12)
    after = np.asarray(explainer.without(case.queries, deleted)["after"])
    refitted = explainer.refit(drop=deleted).model
    np.testing.assert_allclose(case.scores(refitted), after, atol=1e-9)


def test_files_keep_the_constraints(tmp_path: Path) -> None:
    case = fitted("Logloss")
    explainer = case.explainer()
    path = tmp_path / "explainer.axil"
    explainer.save(path)
    loaded = axil.load(path, case.model)
    deleted = np.arange(9)
    np.testing.assert_array_equal(
        loaded.without(case.queries, deleted)["after"],
        explainer.without(case.queries, deleted)["after"],
    )


def test_constraints_of_several_outputs_are_not_enforced() -> None:
    rng = np.random.default_rng(0)
    case = fitted("Logloss")
    labels = np.column_stack([case.y, rng.integers(0, 2, N_ROWS)])
    model = cb.CatBoost({**case.model.get_params(), "loss_function": "MultiLogloss"})
    model.fit(case.X, labels)
    explanation = axil.Explainer(model, case.X, labels)(case.queries)
    sums = explanation.contributions.sum(axis=-1) + explanation.intercepts
    np.testing.assert_allclose(sums, case.scores(model), atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "setting", "value"),
    [
        ({"leaf_estimation_iterations": 5}, "leaf_estimation_iterations", "5 with"),
    ],
)
def test_refusals(settings: dict[str, Any], setting: str, value: str) -> None:
    case = fitted("Logloss", **settings)
    with pytest.raises(axil.UnsupportedModelError, match=f"{setting}={value}"):
        case.explainer()

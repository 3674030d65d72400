"""CatBoost classifiers of several labels per row: every label has a log-loss of its own, and all share the splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import catboost as cb
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import axil

Array = NDArray[np.float64]

N_ROWS, N_QUERIES, DEPTH, N_TREES = 120, 5, 3, 6
LOSSES = ("MultiLogloss", "MultiCrossEntropy")
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "gradient steps": {"leaf_estimation_method": "Gradient", "leaf_estimation_iterations": 1},
    "several steps": {"leaf_estimation_iterations": 4, "leaf_estimation_backtracking": "No"},
    "ordered boosting": {"boosting_type": "Ordered"},
    "L2": {"l2_leaf_reg": 0.5},
}


@dataclass(frozen=True)
class Case:
    """A fitted classifier with its training data and rows to explain."""

    model: cb.CatBoostClassifier
    X: Array
    labels: Array
    sample_weight: Array | None
    queries: Array

    def explainer(self) -> axil.Explainer:
        """Explain the model on its training data."""
        return axil.Explainer(self.model, self.X, self.labels, sample_weight=self.sample_weight)


def fitted(loss: str, settings: dict[str, Any], weighted: bool) -> Case:
    """Fit three labels; with ``MultiCrossEntropy`` they are probabilities."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N_ROWS, 4))
    signal = np.column_stack([X[:, 0], X[:, 1] * X[:, 2], X[:, 3] - 0.4])
    noisy = signal + rng.normal(size=signal.shape)
    labels = (noisy > 0).astype(np.float64) if loss == "MultiLogloss" else expit(noisy)
    sample_weight = rng.uniform(0.5, 2.0, N_ROWS) if weighted else None
    model = cb.CatBoostClassifier(
        loss_function=loss,
        iterations=N_TREES,
        depth=DEPTH,
        learning_rate=0.3,
        verbose=False,
        allow_writing_files=False,
        thread_count=1,
        **settings,
    )
    model.fit(X, labels, sample_weight=sample_weight)
    return Case(model, X, labels, sample_weight, rng.normal(size=(N_QUERIES, 4)))


def replayed(case: Case, present: NDArray[np.bool_]) -> Array:
    """Fit the leaf values again in NumPy on the rows that are present; return the scores of the queries (n, K)."""
    params = case.model.get_all_params()
    weights = np.ones(N_ROWS) if case.sample_weight is None else case.sample_weight
    weights = np.where(present, np.float64(np.float32(weights)), 0.0)
    l2 = float(np.float32(params["l2_leaf_reg"])) * weights[present].mean()
    rate = float(np.float32(params["learning_rate"]))
    newton = params["leaf_estimation_method"] == "Newton"
    targets = np.float64(np.float32(case.labels))
    leaves_of_rows = case.model.calc_leaf_indexes(case.X)
    leaves_of_queries = case.model.calc_leaf_indexes(case.queries)
    n_leaves = 1 << DEPTH
    scores = np.zeros((N_QUERIES, targets.shape[1]))
    for label, target in enumerate(targets.T):
        row_scores = np.zeros(N_ROWS)
        for leaf, leaf_of_queries in zip(leaves_of_rows.T, leaves_of_queries.T):
            value = np.zeros(n_leaves)
            for _ in range(int(params["leaf_estimation_iterations"])):
                probability = expit(row_scores + value[leaf])
                gradients = np.bincount(leaf, weights * (target - probability), n_leaves)
                hessian_of_rows = probability * (1 - probability) if newton else np.ones(N_ROWS)
                hessians = np.bincount(leaf, weights * hessian_of_rows, n_leaves)
                value += gradients / (hessians + l2)
            row_scores += rate * value[leaf]
            scores[:, label] += rate * value[leaf_of_queries]
    return scores


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("loss", LOSSES)
def test_contributions_add_up_to_the_scores(
    loss: str, settings: dict[str, Any], weighted: bool
) -> None:
    case = fitted(loss, settings, weighted)
    explanation = case.explainer()(case.queries)
    scores = case.model.predict(case.queries, prediction_type="RawFormulaVal")
    sums = explanation.contributions.sum(axis=-1) + explanation.intercepts
    np.testing.assert_allclose(sums, scores, atol=1e-6)
    np.testing.assert_allclose(scores, replayed(case, np.ones(N_ROWS, dtype=bool)), atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("loss", LOSSES)
def test_deletions(loss: str, settings: dict[str, Any], weighted: bool) -> None:
    """``without`` and ``refit`` agree with a replay in NumPy on the rows that remain."""
    case = fitted(loss, settings, weighted)
    explainer = case.explainer()
    deleted = np.array([3, 17, 40, 99])
    present = np.ones(N_ROWS, dtype=bool)
    present[deleted] = False
    expected = replayed(case, present)
    after = np.asarray(explainer.without(case.queries, deleted)["after"]).reshape(expected.shape)
    np.testing.assert_allclose(after, expected, atol=1e-6)
    refitted = explainer.refit(drop=deleted).model
    scores = refitted.predict(case.queries, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_labels_of_another_shape_are_refused() -> None:
    case = fitted("MultiLogloss", {}, weighted=False)
    with pytest.raises(axil.InputError):
        axil.Explainer(case.model, case.X, case.labels[:, 0])


def test_tables_have_rows_for_each_label() -> None:
    case = fitted("MultiLogloss", {}, weighted=False)
    table = case.explainer().top(case.queries[:1], k=3)
    np.testing.assert_array_equal(table["output"], np.repeat([0, 1, 2], 3))
    probabilities = expit(case.model.predict(case.queries[:1], prediction_type="RawFormulaVal"))
    np.testing.assert_allclose(table["probability"], np.repeat(probabilities, 3), atol=1e-6)

"""CatBoost models with losses other than squared error that shrink before each tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import catboost as cb
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.multiclass import OneVsRestClassifier

import axil

Array = NDArray[np.float64]

N_ROWS = 150
N_QUERIES = 6
DEPTH = 3
L2 = 2.0
DELETED = np.arange(5, 20)
KEPT_AS_EXPONENTIALS = ("Logloss", "CrossEntropy", "Poisson")
TWEEDIE = "Tweedie:variance_power=1.5"


@dataclass(frozen=True)
class Case:
    """A fitted model with its training data and rows to explain."""

    model: cb.CatBoost
    X: Array
    y: Array
    queries: Array

    def explainer(self) -> axil.Explainer:
        """Explain the model on its training data."""
        return axil.Explainer(self.model, self.X, self.y)

    def scores(self, model: cb.CatBoost) -> Array:
        """Return the raw scores (n,) that a model gives the rows to explain."""
        return np.asarray(model.predict(self.queries, prediction_type="RawFormulaVal"))


def fitted(loss: str, **settings: object) -> Case:
    """Fit a model that shrinks strongly."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N_ROWS, 3)).round(1)
    signal = X[:, 0] - X[:, 1] + rng.normal(size=N_ROWS)
    targets = {
        "Logloss": signal > 0,
        "CrossEntropy": expit(signal),
        "Poisson": rng.poisson(np.exp(0.4 * signal)),
        TWEEDIE: np.exp(0.4 * signal),
    }
    y = np.asarray(targets[loss], dtype=np.float64)
    model = cb.CatBoost(
        {
            "loss_function": loss,
            "iterations": 10,
            "depth": DEPTH,
            "learning_rate": 0.3,
            "l2_leaf_reg": L2,
            "leaf_estimation_method": "Newton",
            "leaf_estimation_iterations": 1,
            "leaf_estimation_backtracking": "No",
            "boost_from_average": False,
            "model_shrink_rate": 0.4,
            "verbose": False,
            "allow_writing_files": False,
            "thread_count": 1,
            **settings,
        }
    )
    model.fit(X, y)
    return Case(model, X, y, rng.normal(size=(N_QUERIES, 3)).round(1))


def rough_log(number: float) -> float:
    """Return a logarithm by Mineiro's formula, from mantissa and exponent, in single precision."""
    single = np.float32
    mantissa, exponent = np.frexp(single(number))
    scaled_bits = single(float(exponent) + 2.0 * float(mantissa) + 125.0)
    curve = single(1.72587999) / (single(0.3520887068) + mantissa)
    base_2 = scaled_bits - single(124.22551499) - single(1.498030302) * mantissa - curve
    return float(single(0.69314718) * base_2)


def derivatives(loss: str, y: Array, score: Array) -> tuple[Array, Array]:
    """Return the negative gradients and the hessians of a loss."""
    if loss == "Poisson":
        mean = np.exp(score)
        return y - mean, mean
    if loss == TWEEDIE:
        return (
            y * np.exp(-0.5 * score) - np.exp(0.5 * score),
            0.5 * y * np.exp(-0.5 * score) + 0.5 * np.exp(0.5 * score),
        )
    mean = expit(score)
    return y - mean, mean * (1 - mean)


def replayed(case: Case, loss: str, present: NDArray[np.bool_], exact_log: bool = False) -> Array:
    """Fit the leaf values again on the rows that are present; return scores of the queries."""
    params = case.model.get_all_params()
    rate = float(np.float32(params["learning_rate"]))
    shrink_rate = float(np.float32(params["model_shrink_rate"]))
    y = np.float64(np.float32(case.y))
    row_scores = np.zeros(N_ROWS)
    scores = np.zeros(N_QUERIES)
    trees = zip(
        case.model.calc_leaf_indexes(case.X).T, case.model.calc_leaf_indexes(case.queries).T
    )
    for number, (leaves, query_leaves) in enumerate(trees):
        if number > 0:
            factor = 1 - shrink_rate * rate
            if params["model_shrink_mode"] == "Decreasing":
                factor = 1 - shrink_rate / number
            if loss in KEPT_AS_EXPONENTIALS and not exact_log:
                row_scores = np.array([rough_log(odds) for odds in np.exp(row_scores)])
            row_scores = factor * row_scores
            scores = factor * scores
        values = np.zeros(1 << DEPTH)
        for _ in range(int(params["leaf_estimation_iterations"])):
            gradients, hessians = derivatives(loss, y, row_scores + values[leaves])
            sums = np.bincount(leaves, present * gradients, 1 << DEPTH)
            values += sums / (np.bincount(leaves, present * hessians, 1 << DEPTH) + L2)
        row_scores = row_scores + rate * values[leaves]
        scores = scores + rate * values[query_leaves]
    return scores


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("mode", ["Constant", "Decreasing"])
@pytest.mark.parametrize("loss", [*KEPT_AS_EXPONENTIALS, TWEEDIE])
def test_contributions_and_deletions(loss: str, mode: str, steps: int) -> None:
    case = fitted(loss, model_shrink_mode=mode, leaf_estimation_iterations=steps)
    explainer = case.explainer()
    everybody = np.ones(N_ROWS, dtype=bool)
    scores = case.scores(case.model)
    np.testing.assert_allclose(replayed(case, loss, everybody), scores, atol=1e-6)
    explanation = explainer(case.queries)
    sums = explanation.contributions.sum(axis=-1) + explanation.intercepts
    np.testing.assert_allclose(sums, scores, atol=1e-9)
    present = everybody.copy()
    present[DELETED] = False
    expected = replayed(case, loss, present)
    assert np.abs(expected - scores).max() > 1e-3
    after = np.asarray(explainer.without(case.queries, DELETED)["after"])
    np.testing.assert_allclose(after, expected, atol=1e-6)
    refitted = explainer.refit(drop=DELETED).model
    np.testing.assert_allclose(case.scores(refitted), after, atol=1e-9)


def test_the_approximate_logarithm_is_seen() -> None:
    case = fitted("Logloss")
    everybody = np.ones(N_ROWS, dtype=bool)
    exact = replayed(case, "Logloss", everybody, exact_log=True)
    assert np.abs(exact - case.scores(case.model)).max() > 1e-5


def test_what_if_is_the_refit() -> None:
    case = fitted("CrossEntropy")
    explainer = case.explainer()
    after = np.asarray(explainer.what_if(case.queries, {0: 0.9})["after"])
    refitted = explainer.refit(targets={0: 0.9}).model
    np.testing.assert_allclose(case.scores(refitted), after, atol=1e-9)


def test_files_answer_as_before(tmp_path: Path) -> None:
    case = fitted("Logloss")
    explainer = case.explainer()
    path = tmp_path / "explainer.axil"
    explainer.save(path)
    loaded = axil.load(path, case.model)
    np.testing.assert_array_equal(
        loaded(case.queries).contributions, explainer(case.queries).contributions
    )
    np.testing.assert_array_equal(
        loaded.without(case.queries, DELETED)["after"],
        explainer.without(case.queries, DELETED)["after"],
    )


def test_there_are_no_derivatives() -> None:
    case = fitted("Logloss")
    with pytest.raises(axil.UnsupportedQuestionError, match="logarithm of about four digits"):
        case.explainer().jacobian.derivatives(case.queries)


def test_several_models_side_by_side_are_refused() -> None:
    case = fitted("Logloss")
    labels = np.digitize(case.X[:, 0], [-0.5, 0.5])
    binary = cb.CatBoostClassifier(iterations=3, model_shrink_rate=0.1, verbose=False)
    model = OneVsRestClassifier(binary.set_params(allow_writing_files=False)).fit(case.X, labels)
    assert axil.supports(model).kind == "no"
    with pytest.raises(axil.UnsupportedModelError, match="model_shrink_rate"):
        axil.Explainer(model, case.X, labels)


def test_wrong_targets_are_noticed() -> None:
    case = fitted("Logloss")
    targets = case.y.copy()
    targets[7] = 1 - targets[7]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, case.X, targets)

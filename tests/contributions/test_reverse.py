"""Cross-class blocks of J, against central differences of an independent replay."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import axil
from tests.contributions.boosting_models import BINARY, CASES, X_NEW, N, X, case_of, replayed
from tests.contributions.fixed_structure import differences, softmax

ROWS = [3, 60]
SEVERAL = [name for name in CASES if case_of(name).targets.shape[1] > 1]


@pytest.mark.parametrize("name", SEVERAL)
def test_every_block_is_the_derivative_of_a_replay(name):
    """Central differences are good to 1e-8 or so of the largest derivative of all blocks."""
    case = case_of(name)
    explainer = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
    K = case.targets.shape[1]
    found = np.stack(
        [explainer.jacobian.derivatives(X_NEW, output=k) for k in explainer.outputs]
    )  # (output, n, target, N)

    def scores(column, c):
        y = case.targets.copy()
        y[:, c] = column
        return replayed(case, y)

    for c in range(K):
        expected = differences(
            lambda v, c=c: scores(v, c), case.targets[:, c], ROWS, 1e-5
        )  # (rows, n, output)
        assert (
            np.abs(found[:, :, c, ROWS] - expected.transpose(2, 1, 0)).max()
            < 1e-6 * np.abs(found).max()
        )
    weights = explainer(X_NEW).weights
    for k in range(K):
        assert np.abs(found[k, :, k] - weights[:, k]).max() <= 1e-12 * np.abs(weights).max()
        one = explainer.jacobian.derivatives(
            X_NEW, output=explainer.outputs[k], target=explainer.outputs[0]
        )
        np.testing.assert_array_equal(one, found[k, :, 0])


def test_softmax_couples_classes_and_one_versus_all_does_not():
    coupled, apart = (case_of(f"lightgbm {name}") for name in ("multiclass", "multiclassova"))
    for case, moves in ((coupled, True), (apart, False)):
        explainer = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
        assert np.any(explainer.jacobian.derivatives(X_NEW, output=0, target=1) != 0) == moves


def test_probabilities():
    """By the chain rule from the blocks of all scores: a class's probability moves with the score of each."""
    case = case_of("xgboost multiclass")
    raw = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
    explainer = axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, output="probability"
    )
    p = softmax(case.scores(X_NEW))
    blocks = np.stack(
        [raw.jacobian.derivatives(X_NEW, output=k, target=2) for k in range(3)]
    )  # (score, n, N)
    slopes = p[:, 1, None] * (np.eye(3)[1] - p)  # (n, score)
    expected = np.einsum("nk,knj->nj", slopes, blocks)
    found = explainer.jacobian.derivatives(X_NEW, output=1, target=2)
    assert (
        np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
    )  # XGBoost's scores are float32


def test_one_output_has_one_block():
    case = case_of("lightgbm binary")
    explainer = axil.Explainer(case.model, X, case.y)
    np.testing.assert_allclose(
        explainer.jacobian.derivatives(X_NEW), explainer(X_NEW).weights, rtol=1e-12
    )
    with pytest.raises(axil.InputError, match="one output"):
        explainer.jacobian.derivatives(X_NEW, output=1)


def test_what_there_is_no_block_of_is_refused():
    case = case_of("catboost multiclass")
    explainer = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
    for named in ({}, {"output": 7}, {"output": True}, {"output": 0, "target": "first"}):
        with pytest.raises(axil.InputError, match=r"expected one of explainer\.outputs"):
            explainer.jacobian.derivatives(X_NEW, **named)
    small = axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, memory_limit=8 * N * 30
    )
    with pytest.raises(axil.InputError, match="memory_limit"):
        small.jacobian.derivatives(X, output=0)
    smooth = axil.Explainer(
        LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, BINARY), X, BINARY
    )
    np.testing.assert_array_equal(
        smooth.jacobian.derivatives(X_NEW), smooth(X_NEW).weights
    )  # of one score there is one block

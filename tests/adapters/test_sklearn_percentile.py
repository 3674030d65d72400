"""Medians and quantiles of scikit-learn's boosting, trees and forests against percentiles in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from tests.adapters.common import check_wrong_targets
from tests.adapters.percentiles import Rule, picked, replayed
from tests.adapters.sklearn_models import N_TREES, RANKED

Array = NDArray[np.float64]


def even(alpha: float) -> Rule:
    """Linear between ranks, as np.percentile is."""

    def rule(weights: Array) -> tuple[int, int, float]:
        place = alpha * (len(weights) - 1)
        return int(place), min(int(place) + 1, len(weights) - 1), place - int(place)

    return rule


def first(alpha: float, averages: bool = False) -> Rule:
    """The first row that reaches the share of the weights; the mean with the next where it has just the share."""

    def rule(weights: Array) -> tuple[int, int, float]:
        need, total = alpha * np.cumsum(weights)[-1], 0.0
        for rank, weight in enumerate(weights):
            total += weight
            if total >= need or rank == len(weights) - 1:
                break
        return rank, min(rank + 1, len(weights) - 1), 0.5 * (averages and total == need)

    return rule


BOOSTED: dict[str, tuple[Rule, Rule, float]] = {  # of leaves and of the base, and the rate
    "stages absolute_error": (first(0.5), even(0.5), 0.1),
    "stages absolute_error weighted": (first(0.5), first(0.5), 0.1),
    "stages absolute_error zero": (first(0.5), first(0.5), 0.1),
    "hist absolute_error": (even(0.5), even(0.5), 0.1),
    "hist quantile": (even(0.3), even(0.3), 0.1),
    "hist absolute_error weighted": (first(0.5), first(0.5), 0.1),
}


@pytest.mark.parametrize("name", BOOSTED)
def test_boosted_weights_are_those_of_a_replay(name: str) -> None:
    case, (rule, start, rate) = RANKED[name](), BOOSTED[name]
    y, n = case.y, len(case.y)
    weights = np.ones(n) if case.sample_weight is None else case.sample_weight
    leaves = read(case.model).leaves(case.X)  # type: ignore[attr-defined]
    rows = [] if "zero" in name else picked(start, y, weights, np.arange(n))
    base = float(sum(share * y[row] for row, share in rows))
    F, K = replayed(rule, y, weights, leaves, [rate] * N_TREES, base)
    left = 1 - K.sum(axis=1)  # how often the base counts
    for row, share in rows:
        K[:, row] += share * left
    np.testing.assert_allclose(F, case.model.predict(case.X), rtol=0, atol=1e-12)
    explanation = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)(
        case.X
    )
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-12)


def test_weights_of_a_tree_of_medians() -> None:
    case = RANKED["tree absolute_error"]()
    leaf = case.model.apply(case.X)
    weights = axil.Explainer(case.model, case.X, case.y)(case.X).weights
    for row, own in enumerate(weights):
        expected = np.zeros(len(own))
        for i, share in picked(
            first(0.5, True), case.y, np.ones(len(own)), np.flatnonzero(leaf == leaf[row])
        ):
            expected[i] += share
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", BOOSTED)
def test_without_ranks_the_rows_that_are_left_again(name: str) -> None:
    case, (rule, start, rate) = RANKED[name](), BOOSTED[name]
    gone = np.random.default_rng(0).choice(len(case.y), 25, replace=False)
    left = np.delete(np.arange(len(case.y)), gone)
    y, weights = (
        case.y[left],
        np.ones(len(left)) if case.sample_weight is None else case.sample_weight[left],
    )
    leaves = read(case.model).leaves(case.X)[left]  # type: ignore[attr-defined]
    rows = [] if "zero" in name else picked(start, y, weights, np.arange(len(y)))
    base = float(sum(share * y[row] for row, share in rows))
    expected, _ = replayed(rule, y, weights, leaves, [rate] * N_TREES, base)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    np.testing.assert_allclose(
        explainer.without(case.X[left], gone.tolist())["after"], expected, rtol=0, atol=1e-12
    )


def test_deletions_of_a_tree_of_medians() -> None:
    """The median of the others in the leaf, or in the nearest node above it that has others."""
    case = RANKED["tree absolute_error"]()
    explainer, leaf = axil.Explainer(case.model, case.X, case.y), case.model.apply(case.X)
    table, effects = explainer.diagnostics.leave_one_out(), explainer.removal(case.X[:20])
    below = (
        case.model.decision_path(case.X).toarray().astype(bool)
    )  # (rows, nodes), and a node has a larger number than its parent
    for row in range(len(leaf)):
        gone = np.arange(len(leaf)) == row
        nodes = [node for node in np.flatnonzero(below[row]) if (below[:, node] & ~gone).any()]
        expected = np.median(case.y[below[:, nodes[-1]] & ~gone])
        assert table["prediction"][row] == pytest.approx(expected, abs=1e-12)
        met = leaf[:20] == leaf[row]
        assert not effects[~met, row].any()
        np.testing.assert_allclose(
            effects[met, row], expected - case.model.predict(case.X[:20])[met], atol=1e-12
        )


def test_forests_of_medians_are_sparse_and_know_the_rows_out_of_bag() -> None:
    case = RANKED["forest absolute_error"]()
    explainer = axil.Explainer(case.model, case.X, case.y)
    weights = explainer(case.X_new, sparse=True).weights
    assert weights.nnz <= 2 * N_TREES * len(case.X_new)
    assert explainer.calibrate(case.X_new, np.zeros(len(case.X_new))).interval(case.X_new).shape[
        0
    ] == len(case.X_new)
    assert (
        explainer.calibrate(case.X_new, np.zeros(len(case.X_new))).training_errors == "out-of-bag"
    )
    effects = explainer.removal(case.X_new[:4])
    for row in (3, 40):
        changes = explainer.without(case.X_new[:4], [row])["change"]
        np.testing.assert_allclose(effects[:, row], changes, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["stages quantile subsample", "hist absolute_error early stopping", "forest absolute_error"],
)
def test_wrong_targets_are_noticed(name: str) -> None:
    check_wrong_targets(RANKED[name](), least=1e-6)

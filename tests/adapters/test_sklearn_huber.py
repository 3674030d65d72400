"""Huber boosting of scikit-learn against a replay in plain NumPy: a median, and distances from it that are cut off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor

import axil
from axil.adapters import read
from axil.adapters.sklearn.draws import StageSampler
from tests.adapters.common import drawn_rows
from tests.adapters.sklearn_models import CUT, boosted

Array = NDArray[np.float64]

PLAIN = {
    "stages huber": 0.9,
    "stages huber alpha=0.5": 0.5,
    "stages huber zero whole targets": 0.7,
    "stages huber subsample": 0.8,
}


def replayed(
    y: Array,
    leaves: NDArray[Any],
    queries: NDArray[Any],
    alpha: float,
    zero: bool,
    drawn: NDArray[Any],
    weighed: bool = False,
) -> tuple[Array, Array]:
    """(n,) predictions and (n, N) weights, delta and the pattern held, of queries in these leaves.

    Leaves are made of the rows that were drawn, (T, N); delta is that of all rows.
    """
    n = len(y)
    order = np.argsort(y, kind="stable")
    start = np.zeros(n)
    if weighed:  # the first row that reaches half of the weight
        start[order[(n - 1) // 2]] = 1.0
    elif not zero:  # np.percentile
        start[order[(n - 1) // 2]] += 0.5
        start[order[n // 2]] += 0.5
    K, c = np.tile(start, (n, 1)), np.zeros(n)
    found, constants = np.tile(start, (len(queries), 1)), np.zeros(len(queries))
    for leaf, met, bag in zip(leaves.T, queries.T, drawn):
        r, made, left = y - K @ y - c, np.eye(n) - K, -c
        delta = np.sort(np.abs(r))[int(np.ceil(100 * alpha / 100 * n - 1e-9)) - 1]
        for number in np.unique(leaf):
            rows = np.flatnonzero((leaf == number) & bag)
            middle = rows[np.argsort(r[rows], kind="stable")[int(np.ceil(len(rows) / 2)) - 1]]
            apart = r[rows] - r[middle]
            share = np.zeros(n)
            share[rows[np.abs(apart) <= delta]] = 1 / len(rows)
            share[middle] += 1 - share.sum()
            constant = (np.sign(apart) * delta)[np.abs(apart) > delta].sum() / len(rows)
            for K_, c_, own in ((K, c, leaf == number), (found, constants, met == number)):
                K_[own] += 0.1 * share @ made
                c_[own] += 0.1 * (share @ left + constant)
    return found @ y + constants, found


def oracle(name: str, rows: Any = slice(None)) -> tuple[Array, Array]:
    case = CUT[name]()
    leaves, queries = (read(case.model).leaves(X) for X in (case.X, case.X_new))  # type: ignore[attr-defined]
    drawn = np.ones((leaves.shape[1], len(case.y)), dtype=np.bool_)
    if "subsample" in name:
        sampler = StageSampler(len(case.y), None, 0.6, 3, 1)
        drawn = np.stack(
            [drawn_rows(sampler, t, leaf, case.y) > 0 for t, leaf in enumerate(leaves.T)]
        )
    return replayed(
        case.y[rows], leaves[rows], queries, PLAIN[name], "zero" in name, drawn[:, rows]
    )


def test_weights_of_one_make_another_start() -> None:
    """With weights the fit starts from a row's target, without them from the middle of two."""
    case = CUT["stages huber"]()
    X, y, ones = case.X[:60], case.y[:60], np.ones(60)
    model = GradientBoostingRegressor(loss="huber", n_estimators=5, random_state=0).fit(
        X, y, sample_weight=ones
    )
    explainer = axil.Explainer(model, X, y, sample_weight=ones)
    leaves, queries = (read(model).leaves(rows) for rows in (X, case.X_new))  # type: ignore[attr-defined]
    drawn = np.ones((5, 60), dtype=np.bool_)
    F, K = replayed(y, leaves, queries, 0.9, False, drawn, weighed=True)
    np.testing.assert_allclose(F, model.predict(case.X_new), rtol=0, atol=1e-10)
    np.testing.assert_allclose(explainer(case.X_new).weights, K, rtol=0, atol=1e-12)
    left = np.arange(1, 60)
    after, _ = replayed(y[left], leaves[left], queries, 0.9, False, drawn[:, left], weighed=True)
    np.testing.assert_allclose(
        explainer.without(case.X_new, [0])["after"], after, rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(
        explainer.refit(drop=[0]).model.predict(case.X_new), after, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("name", PLAIN)
def test_weights_and_deletions_are_those_of_a_replay(name: str) -> None:
    case = CUT[name]()
    explainer = axil.Explainer(case.model, case.X, case.y)
    F, K = oracle(name)
    assert explainer.kind == "exact"
    np.testing.assert_allclose(F, case.model.predict(case.X_new), rtol=0, atol=1e-10)
    explanation = explainer(case.X_new)
    if (
        "whole" in name
    ):  # of equal residuals rounding may choose another: the same numbers, other rows
        np.testing.assert_allclose(explanation.weights @ case.y, K @ case.y, rtol=0, atol=1e-9)
        return
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-12)
    gone = [3, 7, 50]
    left = oracle(name, np.setdiff1d(np.arange(len(case.y)), gone))[0]
    np.testing.assert_allclose(
        explainer.without(case.X_new, gone)["after"], left, rtol=0, atol=1e-9
    )


def test_the_share_of_residuals_that_were_cut_off_is_told() -> None:
    case = CUT["stages huber alpha=0.5"]()
    held = axil.Explainer(case.model, case.X, case.y).verification.active_set  # type: ignore[union-attr]
    assert held is not None
    assert held.ranked == held.n_leaves
    assert (
        0.1 < held.cut < 0.6
    )  # delta is a median of sizes, and distances from a leaf's own median are smaller
    assert "of the residuals are clipped" in str(held)


def test_wrong_targets_are_noticed() -> None:
    case, rng = CUT["stages huber"](), np.random.default_rng(0)
    weights = np.abs(axil.Explainer(case.model, case.X, case.y)(case.X).weights).max(axis=0)
    changed, swapped = case.y.copy(), case.y.copy()
    one, other = np.argsort(weights)[-2:]
    changed[one] += 0.02 * np.ptp(case.y)
    swapped[[one, other]] = swapped[[other, one]]
    for wrong in (rng.permutation(case.y), changed, swapped):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(case.model, case.X, wrong)


def test_a_refit_of_drawn_rows_is_the_fit_without_the_others() -> None:
    case = CUT["stages huber subsample"]()
    explainer = axil.Explainer(case.model, case.X, case.y)
    after = explainer.without(case.X_new, [3, 7, 50])["after"]
    np.testing.assert_allclose(
        explainer.refit(drop=[3, 7, 50]).model.predict(case.X_new), after, rtol=0, atol=1e-9
    )


def test_other_targets_that_change_the_pattern_are_replayed() -> None:
    case = CUT["stages huber"]()
    explainer = axil.Explainer(case.model, case.X, case.y)
    targets = {0: case.y[0] + 50}
    after = explainer.what_if(case.X_new, targets)["after"]
    refitted = explainer.refit(targets=targets).model.predict(case.X_new)
    np.testing.assert_allclose(refitted, after, rtol=0, atol=1e-9)


def test_sample_weights_are_refused_by_name() -> None:
    case = boosted(loss="huber", fit_with={"weighted": True})
    with pytest.raises(axil.UnsupportedModelError, match="sample_weight"):
        axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)

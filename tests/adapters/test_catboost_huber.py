"""Huber boosting of CatBoost against a replay in plain NumPy, which cuts residuals off itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from tests.adapters.catboost_models import CUT, regressor
from tests.adapters.common import Data, as_float32
from tests.adapters.huber import replayed

Array = NDArray[np.float64]

PLAIN: dict[str, dict[str, Any]] = {
    "Huber": {"newton": True},
    "Huber weighted": {"newton": True},
    "Huber Gradient weighted": {},
    "Huber whole targets": {"newton": True, "delta": 1.0},
}


def oracle(name: str, rows: Any = slice(None)) -> tuple[Array, Array, Array]:
    """Predictions, weights and constants of the new rows in the fit to some rows on the model's splits; the others are gone."""
    case, more = CUT[name](), {"delta": 0.7, **PLAIN[name]}
    y, adapter = as_float32(case.y), read(case.model)
    leaves, queries = (adapter.leaves(X) for X in (case.X, case.X_new))  # type: ignore[attr-defined]
    weights = np.ones(len(y)) if case.sample_weight is None else as_float32(case.sample_weight)
    l2 = 3.0 * weights[rows].sum() / len(y[rows])
    rates = [float(np.float32(0.3))] * leaves.shape[1]
    return replayed(
        y[rows], weights[rows], leaves[rows], rates, l2=l2, base=0.0, queries=queries, **more
    )


@pytest.mark.parametrize("name", PLAIN)
def test_weights_and_deletions_are_those_of_a_replay(name: str) -> None:
    case = CUT[name]()
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    F, K, _ = oracle(name)
    scale = np.abs(case.y).max()
    assert explainer.kind == "exact"
    assert explainer.verification.active_set.cut > 0  # type: ignore[union-attr]
    np.testing.assert_allclose(F, case.model.predict(case.X_new), rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(explainer(case.X_new).weights, K, rtol=0, atol=1e-9)
    gone = [3, 7, 50]
    left = oracle(name, np.setdiff1d(np.arange(len(case.y)), gone))[0]
    np.testing.assert_allclose(
        explainer.without(case.X_new, gone)["after"], left, rtol=0, atol=1e-6 * scale
    )


@pytest.mark.parametrize("name", PLAIN)
def test_a_refit_is_the_fit_to_the_rows_left(name: str) -> None:
    """It is proven again: rows that are cut off count in the weights that CatBoost records, whatever they do in values."""
    case = CUT[name]()
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    again = explainer.refit(drop=[3, 7, 50])
    left = oracle(name, np.setdiff1d(np.arange(len(case.y)), [3, 7, 50]))[0]
    np.testing.assert_allclose(
        again.model.predict(case.X_new), left, rtol=0, atol=1e-6 * np.abs(case.y).max()
    )


@pytest.mark.parametrize("name", ["Huber", "Huber Gradient weighted"])
def test_wrong_targets_are_noticed(name: str) -> None:
    case, rng = CUT[name](), np.random.default_rng(0)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    carried = np.flatnonzero(np.abs(explainer(case.X).weights).max(axis=0) > 0.02)
    changed, swapped = case.y.copy(), case.y.copy()
    one, other = rng.choice(carried, 2, replace=False)
    changed[one] += 0.05 * np.ptp(case.y)
    swapped[[one, other]] = swapped[[other, one]]
    for wrong in (rng.permutation(case.y), changed, swapped):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(case.model, case.X, wrong, sample_weight=case.sample_weight)


def test_several_steps_are_additive() -> None:
    case = regressor(
        loss_function="Huber:delta=0.7",
        leaf_estimation_iterations=2,
        leaf_estimation_backtracking="No",
    )
    assert axil.Explainer(case.model, case.X, case.y).kind == "additive"


def test_several_steps_with_targets_just_at_delta() -> None:
    """A residual of just delta has no second derivative."""
    case = CUT["Huber whole targets"]()
    params = {"loss_function": "Huber:delta=1", "leaf_estimation_backtracking": "No"}
    model = regressor(leaf_estimation_iterations=2, **params).model.copy()
    model = model.__class__(**{**model.get_params(), "iterations": 6}).fit(case.X, case.y)
    assert axil.Explainer(model, case.X, case.y).kind == "additive"


def test_residuals_at_the_threshold_follow_targets_in_float32() -> None:
    """Targets are in tenths. With a learning rate of 1, residuals are 1.0 but for float32 rounding.

    CatBoost decides by targets in float32 whether such rows are cut off. Newton leaves jump there.
    """
    rng = np.random.default_rng(302)
    n_rows = int(rng.integers(15, 40))
    X = rng.integers(0, 3, size=(n_rows, 2)).astype(float)
    y = np.round(rng.normal(size=n_rows), 1)
    settings = {"iterations": 15, "depth": 2, "learning_rate": 1.0, "random_seed": 302}
    ones = np.ones(n_rows)
    data = Data(X, y, ones, ones, X)
    model = regressor(data, loss_function="Huber:delta=1.0", **settings).model
    explainer = axil.Explainer(model, X, y)
    for row in (22, 24, 31, 34):
        after = explainer.without(X, [row])["after"]
        again = explainer.refit(drop=[row]).model.predict(X)
        np.testing.assert_allclose(after, again, rtol=0, atol=1e-6)

"""CatBoost's exact leaves of MAE, Quantile, MultiQuantile and MAPE against percentiles in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from catboost import CatBoostRegressor
from numpy.typing import NDArray

import axil
from axil.adapters import read
from tests.adapters.catboost_models import RANKED, regressor
from tests.adapters.common import as_float32, check_wrong_targets

Array = NDArray[np.float64]


def percentile(values: Array, weights: Array, alpha: float, delta: float) -> tuple[int, float]:
    """The row that first reaches the share of the weights, and delta with its sign."""
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    need, total = alpha * weights.sum(), 0.0
    for i in order:
        total += weights[i]
        if total >= need - 2.3e-16:
            break
    below, same = weights[values < values[i]].sum(), weights[values == values[i]].sum()
    return i, -delta if below + alpha * same >= need - 2.3e-16 else delta


FITS = pytest.mark.parametrize(
    ("name", "alpha", "delta"),
    [
        ("MAE", 0.5, 1e-6),
        ("MAE weighted", 0.5, 1e-6),
        ("quantile", 0.9, 1e-6),
        ("quantile delta", 0.3, 0.01),
        ("MAPE", 0.5, 0),
    ],
)


def replayed(name: str, alpha: float, delta: float, kept: NDArray[np.intp]) -> tuple[Array, Array]:
    """Predictions (n,) of these rows of a case and weights (n, n), by a fit to them alone at the splits of the model."""
    case = RANKED[name]()
    y, n = as_float32(case.y)[kept], len(kept)
    weights = np.ones(n) if case.sample_weight is None else as_float32(case.sample_weight)[kept]
    sized = np.float64(np.float32(1.0) / np.maximum(np.float32(1.0), np.abs(y.astype(np.float32))))
    row, shift = percentile(y, sized if name == "MAPE" else weights, alpha, delta)
    F, K = np.full(n, y[row] + shift), np.tile(np.eye(n)[row], (n, 1))
    for leaf in read(case.model).leaves(case.X)[kept].T:  # type: ignore[attr-defined]
        residuals, made = as_float32(y - F), np.eye(n) - K
        for number in np.unique(leaf):
            rows = np.flatnonzero(leaf == number)
            counted = np.ones(len(rows))  # sample weights do not count in leaves
            if name == "MAPE":  # which takes residuals for targets
                sizes = np.maximum(np.float32(1), np.abs(residuals[rows].astype(np.float32)))
                counted = (np.float32(1) / sizes).astype(np.float64)
            at, shift = percentile(residuals[rows], counted, alpha, delta)
            F[rows] += np.float64(np.float32(0.3)) * (residuals[rows[at]] + shift)
            K[rows] += np.float64(np.float32(0.3)) * made[rows[at]]
    return F, K


@FITS
def test_without_ranks_the_rows_that_are_left_again(name: str, alpha: float, delta: float) -> None:
    case = RANKED[name]()
    gone = np.random.default_rng(0).choice(len(case.y), 25, replace=False)
    left = np.delete(np.arange(len(case.y)), gone)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    predictions_after = explainer.without(case.X[left], gone.tolist())["after"]
    np.testing.assert_allclose(
        predictions_after, replayed(name, alpha, delta, left)[0], rtol=0, atol=1e-6
    )


@FITS
def test_weights_are_those_of_a_replay(name: str, alpha: float, delta: float) -> None:
    case = RANKED[name]()
    F, K = replayed(name, alpha, delta, np.arange(len(case.y)))
    np.testing.assert_allclose(F, case.model.predict(case.X), rtol=0, atol=1e-6)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    explanation = explainer(case.X)
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-6)
    held = explainer.verification.active_set  # type: ignore[union-attr]
    assert held is not None
    assert (held.shift > 0) == (delta > 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_several_quantiles_of_one_column_of_targets(weighted: bool) -> None:
    case = regressor(loss_function="MultiQuantile:alpha=0.2,0.7", weighted=weighted)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    explanation = explainer(case.X_new)
    np.testing.assert_allclose(
        explanation.predictions, case.model.predict(case.X_new), rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(
        explanation.weights @ case.y + explanation.intercepts,
        explanation.predictions,
        rtol=0,
        atol=1e-6,
    )
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, case.X, case.y[::-1], sample_weight=case.sample_weight)


@pytest.mark.parametrize("name", ["quantile", "MAE weighted", "MAPE"])
def test_wrong_targets_are_noticed(name: str) -> None:
    check_wrong_targets(
        RANKED[name](), least=1e-3, error=(axil.ExactnessError, axil.UnsupportedModelError)
    )


def test_a_value_of_zero_that_many_rows_have() -> None:
    """CatBoost bisects for the value of a leaf of 100 rows or more, and never quite arrives at zero."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), np.maximum(rng.integers(-3, 4, 400), 0).astype(float)
    model = CatBoostRegressor(
        loss_function="Quantile:alpha=0.1",
        iterations=4,
        depth=2,
        verbose=0,
        allow_writing_files=False,
    )
    explainer = axil.Explainer(model.fit(X, y), X, y)
    np.testing.assert_allclose(
        explainer(X[:9]).predictions, model.predict(X[:9]), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("size", [1.0, 0.1])
def test_a_search_that_meets_zero(size: float) -> None:
    """The first middle of -4 and 4 is zero; that of -0.4 and 0.4 is below.

    The search starts below the smallest value.
    """
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 2))
    y = size * rng.permutation(np.repeat([-4.0, -1, 0, 1, 4], [60, 70, 140, 70, 60]))
    model = CatBoostRegressor(
        loss_function="Quantile:alpha=0.6", iterations=3, depth=1, verbose=0, bootstrap_type="No"
    )
    model.set_params(allow_writing_files=False, leaf_estimation_iterations=1)
    explanation = axil.Explainer(model.fit(X, y), X, y)(X)
    np.testing.assert_allclose(explanation.predictions, model.predict(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e-13])
def test_deletions_and_refits_put_delta_on_the_same_side(size: float) -> None:
    """Targets that are equal in single precision alone, and targets below delta: rounding chooses the side."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)).round(1)
    y = size * (1000 + 1e-5 * rng.normal(size=200))
    model = CatBoostRegressor(
        loss_function="Quantile:alpha=0.5;delta=0.001", iterations=5, depth=3, verbose=0
    )
    model.set_params(
        allow_writing_files=False,
        bootstrap_type="No",
        leaf_estimation_iterations=1,
        learning_rate=1.0,
    )
    explainer = axil.Explainer(model.fit(X, y), X, y)
    dropped_rows = [3, 70, 151]
    refitted = explainer.refit(drop=dropped_rows).model.predict(X)
    predictions_after = explainer.without(X, dropped_rows)["after"]
    allowed = 3e-7 * max(0.001, np.abs(y).max())
    np.testing.assert_allclose(predictions_after, refitted, rtol=0, atol=allowed)
    for row in dropped_rows:
        other_target = {row: y[row] * 1.5}
        refitted = explainer.refit(targets=other_target).model.predict(X)
        predictions_after = explainer.what_if(X, other_target)["after"]
        np.testing.assert_allclose(predictions_after, refitted, rtol=0, atol=allowed)

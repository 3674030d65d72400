"""Weights of monotone models against fits again with the same splits and the same clipped leaves, and against wrong data."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from axil import Explainer
from axil.errors import AxilError, InputError
from axil.inputs import take_rows
from tests.adapters import catboost_models, sklearn_models, xgboost_models
from tests.replay.monotone_models import MODELS, Fit, Pooled
from tests.subsets import mostly_slow


@cache
def fitted(name: str) -> Fit | Pooled:
    return MODELS[name]()


@cache
def explained(name: str) -> Explainer:
    fit = fitted(name)
    return Explainer(fit.model, fit.X, fit.y, sample_weight=fit.weights)


def predictions(fit: Fit | Pooled) -> np.ndarray:
    classes = hasattr(fit.model, "predict_proba")
    if type(fit.model).__name__ == "Booster" and "xgboost" in type(fit.model).__module__:
        import xgboost

        return np.asarray(fit.model.predict(xgboost.DMatrix(fit.X)), dtype=float)
    return np.asarray(
        fit.model.predict_proba(fit.X)[:, 1] if classes else fit.model.predict(fit.X), dtype=float
    )


def weights_of(name: str) -> np.ndarray:
    """(n, N): of the value, or of the probability of the second class by its one-hot targets."""
    return np.asarray(explained(name)(fitted(name).X).weights, dtype=float)


@pytest.mark.parametrize("name", MODELS)
def test_leaves_are_clipped_and_the_reference_is_the_model(name):
    fit, held = fitted(name), explained(name).verification.active_set
    assert held.bounded > 0.1 * held.n_leaves
    # Boosting libraries round residuals to float32 on the way, 6e-8 of the largest.
    np.testing.assert_allclose(
        fit.again(fit.y), predictions(fit), atol=1e-6 * np.abs(predictions(fit)).max()
    )


@pytest.mark.parametrize("name", MODELS)
def test_targets_move_predictions_by_the_weights(name):
    fit, weights, radius = (
        fitted(name),
        weights_of(name),
        explained(name).verification.active_set.radius,
    )
    rng = np.random.default_rng(0)
    step = min(1e-3, radius / 2)
    for row in rng.choice(len(fit.y), 12, replace=False):
        up, down = (
            fit.again(fit.y + sign * step * (np.arange(len(fit.y)) == row)) for sign in (1, -1)
        )
        # The map is linear within the radius, so that only the rounding of the difference is left: 1e-15 / 1e-5.
        np.testing.assert_allclose((up - down) / (2 * step), weights[:, row], atol=1e-9, rtol=1e-7)


def wrong(fit: Fit | Pooled) -> dict[str, tuple]:
    rng = np.random.default_rng(1)
    i, j = rng.choice(len(fit.y), 2, replace=False)
    one, two = fit.y.copy(), fit.y.copy()
    one[i] = 1 - one[i] if set(one) == {0.0, 1.0} else one[i] + 0.01
    j = next(k for k in range(len(fit.y)) if fit.y[k] != fit.y[i]) if fit.y[i] == fit.y[j] else j
    two[[i, j]] = two[[j, i]]
    rest = np.delete(np.arange(len(fit.y)), i)
    w = fit.weights
    found = {
        "one target": (fit.X, one, w),
        "two targets swapped": (fit.X, two, w),
        "a row less": (fit.X[rest], fit.y[rest], None if w is None else w[rest]),
    }
    if w is not None:
        found["weights scaled"] = (fit.X, fit.y, 1.01 * w)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_wrong_data_are_noticed(name):
    fit = fitted(name)
    for X, y, w in wrong(fit).values():
        with pytest.raises(AxilError):
            Explainer(fit.model, X, y, sample_weight=w)


def test_trees_too_large_for_tables_of_leaves_are_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = X[:, 0] + np.sin(5 * X[:, 1]) + rng.normal(size=1500)
    model = ExtraTreesRegressor(4, monotonic_cst=[1, 0, 0], random_state=0).fit(X, y)
    with pytest.raises(
        InputError, match=r"which leaves depend on which .* would take .* allowed by memory_limit"
    ):
        Explainer(model, X, y, memory_limit="30 MB")


BENT = ("monoton", "reg_alpha", "max_delta_step")
GRID = [
    *(
        ("xgboost", name)
        for name in xgboost_models.CASES
        if any(word in name for word in BENT) and "=0" not in name
    ),
    *(("sklearn", name) for name in sklearn_models.CASES if "monoton" in name and "=0" not in name),
    *(("catboost", name) for name in catboost_models.CASES if name.startswith("monotone ")),
]


@pytest.mark.parametrize(("library", "name"), mostly_slow(3, GRID))
def test_wrong_data_of_sampled_models_are_noticed(library, name):
    """One target changed, two swapped, a row left out, weights scaled; ``=500`` has no leaf but zero, and says nothing."""
    case = {"xgboost": xgboost_models, "sklearn": sklearn_models, "catboost": catboost_models}[
        library
    ].CASES[name]()
    margin = getattr(case, "base_margin", getattr(case, "baseline", None))
    rng, y = np.random.default_rng(2), np.asarray(case.y)
    changed, swapped = y.copy(), y.copy()
    i = int(rng.integers(len(y)))
    j = next(k for k in rng.permutation(len(y)) if np.all(y[k] != y[i]))
    changed[i] = y[j]
    swapped[[i, j]] = y[[j, i]]
    rest = np.delete(np.arange(len(y)), i)
    w = case.sample_weight
    wrong = (
        [(case.X, changed, w, margin)]
        if name == "reg_alpha=500"
        else [
            (case.X, changed, w, margin),
            (case.X, swapped, w, margin),
            (
                take_rows(case.X, rest),
                y[rest],
                None if w is None else w[rest],
                None if margin is None else margin[rest],
            ),
        ]
    )
    if (
        w is not None and "Forest" not in name and "Bagging" not in name
    ):  # which draw by the weights' proportions
        wrong.append((case.X, y, 1.01 * w, margin))
    right = Explainer(case.model, case.X, y, sample_weight=w, init_score=margin)
    active_set = right.verification.active_set
    if active_set is not None and active_set.clipped == active_set.n_leaves:
        pytest.skip("before 3.1 XGBoost finds no split here, and every leaf is at its largest step")
    for X, targets, weights, offsets in wrong:
        with pytest.raises(AxilError):
            Explainer(case.model, X, targets, sample_weight=weights, init_score=offsets)

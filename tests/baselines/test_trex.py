"""TREX against kernel ridge regression with the whole kernel matrix."""

import numpy as np
import pytest

from axil import InputError
from axil.baselines import TREX, trex
from tests.baselines.direct import BOOSTED, FORESTS, asked, kernel
from tests.subsets import chosen


def surrogate(fit, queries, l2):
    """The terms a_j (n, N) at the queries, and f at the training rows, from (K + ridge / w) dual = y among rows that count."""
    between, gram = kernel(fit.s, queries)
    counted = fit.weights > 0
    ridge = l2 * fit.weights.sum()
    dual = np.zeros(len(fit.y))
    system = gram[np.ix_(counted, counted)] + np.diag(ridge / fit.weights[counted])
    dual[counted] = np.linalg.solve(system, (fit.y - fit.offsets)[counted])
    return dual / 2 * between, gram @ dual


def direct(a, l2, with_targets=True):
    """How the squared error at each query changes when one row's term is left out of the sum."""
    total = 0.0
    for fit, queries, targets in a.fits():
        terms, _ = surrogate(fit, queries, l2)
        if with_targets:
            whole = terms.sum(axis=1, keepdims=True)
            # Offsets replace the base in XGBoost's fit, so the surrogate of the targets has none.
            replaced_base = (1 - fit.s.initial_in_fit) * fit.s.beta[-1] * fit.base
            y = targets[:, None] - replaced_base
            total = total + (y - (whole - terms)) ** 2 / 2 - (y - whole) ** 2 / 2
        else:
            total = total + terms
    return total


@pytest.mark.parametrize(("library", "name"), chosen(2, BOOSTED + FORESTS))
@pytest.mark.parametrize(("among", "l2"), [("rows", 0.003), ("leaves", 0.003), ("leaves", 1e-5)])
def test_scores_are_those_of_kernel_ridge_regression(library, name, among, l2, monkeypatch):
    """By either system; the one among leaves gets alpha as a difference, 1 / l2 of whose rounding stays."""
    a = asked(library, name)
    solver = trex.among_rows if among == "rows" else trex.among_leaves
    monkeypatch.setattr(trex, "among_rows", solver)
    monkeypatch.setattr(trex, "among_leaves", solver)
    expected = direct(a, l2)
    found = a.scores(TREX(a.explainer, l2))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_without_targets_scores_add_up_to_half_of_the_fit():
    a = asked("lightgbm", "weighted lambda_l2=3")
    baseline = TREX(a.explainer, l2=1e-6)
    found = a.scores(baseline, y=False)
    np.testing.assert_allclose(
        found, direct(a, 1e-6, with_targets=False), rtol=0, atol=1e-7 * np.abs(found).max()
    )
    fit = 2 * baseline.scores(a.case.X).sum(axis=1)
    fitted = a.case.model.predict(a.case.X)
    missed = np.average((fit - fitted) ** 2, weights=a.case.sample_weight)
    spread = np.average(
        (fitted - np.average(fitted, weights=a.case.sample_weight)) ** 2,
        weights=a.case.sample_weight,
    )
    np.testing.assert_allclose(baseline.fidelity, 1 - missed / spread, rtol=1e-5)


@pytest.mark.parametrize(("library", "name"), [*BOOSTED[2::5], FORESTS[4]])
def test_fidelity_is_how_far_the_fit_is_the_model(library, name):
    a = asked(library, name)
    found = TREX(a.explainer).fidelity
    for k, (fit, queries, _) in enumerate(a.fits()):
        model, (_, f) = fit.predict(fit.leaf.T), surrogate(fit, queries, 0.003)
        spread = np.average(
            (model - np.average(model, weights=fit.weights)) ** 2, weights=fit.weights
        )
        expected = 1 - np.average((model - f) ** 2, weights=fit.weights) / spread
        if np.ptp(model) < 1e-12 and not np.allclose(
            model, f
        ):  # a constant that the fit without an intercept misses
            expected = -np.inf
        np.testing.assert_allclose(found[k], expected, rtol=1e-6, atol=1e-6)


def test_a_smaller_l2_follows_the_model_more_closely():
    """As long as it does not come to follow the targets where the model does not."""
    explainer = asked("xgboost", "regressor weighted").explainer
    fidelity = [float(TREX(explainer, l2=l2).fidelity[0]) for l2 in (1.0, 1e-2, 1e-4)]
    assert fidelity == sorted(fidelity)


@pytest.mark.parametrize("l2", [0, -1.0, np.nan, np.inf, "small"])
def test_a_ridge_that_is_none_is_refused(l2):
    with pytest.raises(InputError, match="l2 is"):
        TREX(asked("lightgbm", "regressor").explainer, l2=l2)

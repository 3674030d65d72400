"""TREX against kernel ridge regression with the whole kernel matrix."""

import numpy as np
import pytest
from direct import BOOSTED, FORESTS, asked, kernel

from axil import InputError
from axil.baselines import TREX, trex


def direct(a, l2, with_targets=True):
    """alpha from (K + ridge / w) alpha = F among the rows that count."""
    total = 0.0
    for fit, queries, targets in a.fits():
        between, gram = kernel(fit.s, queries)
        counted = fit.weights > 0
        ridge = l2 * fit.weights.sum()
        fitted = fit.predict(fit.leaf.T) + fit.offsets
        alpha = np.zeros(len(fitted))
        system = gram[np.ix_(counted, counted)] + np.diag(ridge / fit.weights[counted])
        alpha[counted] = np.linalg.solve(system, fitted[counted])
        error = targets - fit.predict(queries) if with_targets else np.ones(len(queries))
        total = total + error[:, None] * alpha * between
    return total


@pytest.mark.parametrize(("library", "name"), (BOOSTED + FORESTS)[::2])
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


def test_without_targets_scores_add_up_to_the_surrogate():
    a = asked("lightgbm", "weighted lambda_l2=3")
    baseline = TREX(a.explainer, l2=1e-6)
    found = a.scores(baseline, y=False)
    np.testing.assert_allclose(found, direct(a, 1e-6, with_targets=False), rtol=0, atol=1e-7 * np.abs(found).max())
    surrogate = baseline.scores(a.case.X).sum(axis=1)
    fitted = a.case.model.predict(a.case.X)
    missed = np.average((surrogate - fitted) ** 2, weights=a.case.sample_weight)
    spread = np.average((fitted - np.average(fitted, weights=a.case.sample_weight)) ** 2, weights=a.case.sample_weight)
    np.testing.assert_allclose(baseline.fidelity, 1 - missed / spread, rtol=1e-5)
    assert baseline.fidelity > 0.95


def test_positive_terms_lower_the_loss():
    """By the row's term in the surrogate: taking a small share of it from F raises L by that share of the score."""
    a = asked("xgboost", "regressor weighted")
    baseline = TREX(a.explainer)
    terms, scores, share = a.scores(baseline, y=False), a.scores(baseline), 1e-6
    errors = a.targets - np.asarray(a.case.model.predict(a.X), dtype=float)[:, None]
    raised = ((errors + share * terms) ** 2 - errors**2) / 2
    np.testing.assert_allclose(scores, raised / share, rtol=0, atol=1e-5 * np.abs(scores).max())


def test_a_smaller_l2_follows_the_model_more_closely():
    explainer = asked("xgboost", "regressor weighted").explainer
    fidelity = [float(TREX(explainer, l2=l2).fidelity[0]) for l2 in (1.0, 1e-2, 1e-4, 1e-6)]
    assert fidelity == sorted(fidelity)


def test_several_outputs_need_targets():
    a = asked("xgboost", "multi_output_tree weighted")
    with pytest.raises(InputError, match="several outputs"):
        TREX(a.explainer).scores(a.X)


@pytest.mark.parametrize("l2", [0, -1.0, np.nan, np.inf, "small"])
def test_a_ridge_that_is_none_is_refused(l2):
    with pytest.raises(InputError, match="l2 is"):
        TREX(asked("lightgbm", "regressor").explainer, l2=l2)

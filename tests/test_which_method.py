"""The experiment that compares predicted changes with refits: its measure, and a cell by hand."""

import sys
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
from scipy.stats import spearmanr

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


@pytest.fixture
def which_method(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    sys.modules.pop("which_method", None)
    import which_method

    return which_method


def test_the_measure_is_spearmans_correlation_and_zero_for_constants(which_method):
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=(30, 3)).round(1)  # with ties
    actual = predicted + rng.normal(size=(30, 3))
    predicted[:, 2] = 1.0
    expected = [spearmanr(predicted[:, row], actual[:, row])[0] for row in range(2)]
    assert which_method.correlation(predicted, actual) == pytest.approx(sum(expected) / 3)


@pytest.mark.slow
def test_a_cell_compares_refits_with_predicted_changes(which_method, monkeypatch):
    monkeypatch.setattr(which_method, "N_DELETIONS", dict.fromkeys(which_method.KINDS, 3))
    problem = which_method.Problem("friedman", None, 20, 5)
    cell = which_method.measure(problem)
    rows = problem.deletions["halves"][1]
    assert len(np.unique(rows)) == len(problem.y) // 2
    kept = np.delete(np.arange(len(problem.y)), rows)
    model = lgb.LGBMRegressor(**problem.settings)
    before = model.fit(problem.X, problem.y).predict(problem.X_new)
    after = model.fit(problem.X[kept], problem.y[kept]).predict(problem.X_new)
    np.testing.assert_allclose(cell["halves|actual"][1], after - before, rtol=1e-5, atol=1e-6)
    sums = cell["halves|LeafInfluence"], cell["single rows|LeafInfluence"]
    assert all(np.isfinite(changes).all() and changes.any() for changes in sums)
    assert set(cell) == {
        f"{kind}|{column}"
        for kind in which_method.KINDS
        for column in (
            "actual",
            "actual loss",
            *which_method.METHODS,
            *which_method.LOSS_METHODS,
        )
    }

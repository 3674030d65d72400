"""Fits with computed leaf values in the core, against the same fits in NumPy."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

import axil
from axil.methods.method import verified_model
from axil.replay.computed_walk import ComputedWalk, FitRows
from tests.contributions.boosting_models import CASES, X, case_of, explain
from tests.contributions.sampled_models import MODELS as SAMPLED
from tests.contributions.sampled_models import model_of

GONE = (np.zeros(0, dtype=np.intp), np.arange(7), np.array([3, 50]))


def walk_of(boosting):
    """Return the walk through three fits of one model, each without other rows."""
    replayed = boosting.walked
    row_weights = boosting.label_weights.without(replayed, GONE)
    rows = FitRows.of_replay(replayed, boosting.targets, boosting.rows.offsets, row_weights)
    return ComputedWalk(replayed, replayed.fit, rows, 1)


def compare(boosting):
    """Return whether the core has a form for this model; its fits must be those of NumPy."""
    if walk_of(boosting).exponential_scores() is None:
        return False
    in_core = []
    for n_threads in (1, 3):
        walk = walk_of(boosting)
        in_core.append(walk.run_in_core(walk.exponential_scores(n_threads)))
    expected = walk_of(boosting).run()
    largest = np.abs(expected.leaf_values).max()
    np.testing.assert_allclose(
        in_core[0].leaf_values, expected.leaf_values, rtol=1e-10, atol=1e-12 * largest
    )
    np.testing.assert_array_equal(in_core[0].initial, expected.initial)
    np.testing.assert_array_equal(in_core[0].leaf_values, in_core[1].leaf_values)
    return True


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case().loss != "squared"])
def test_fits_in_the_core_are_those_of_numpy(name):
    boosting = verified_model(explain(case_of(name))).boosting
    loss = boosting.walked.fit.loss
    initial_moves = any(step_round.base for step_round in boosting.walked.rounds)
    has_form = loss.curvature is not None and loss.exponent != 0 and not loss.cancels
    assert compare(boosting) == (has_form and not initial_moves)


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_and_drops_count(name):
    case = model_of(name)
    compare(
        verified_model(
            axil.Explainer(
                case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
            )
        ).boosting
    )


def test_scores_beyond_all_numbers_are_left_to_numpy():
    walk = walk_of(verified_model(explain(case_of("lightgbm binary"))).boosting)
    walk.start -= 1e4
    assert walk.run_in_core(walk.exponential_scores()) is None
    assert not walk.leaf_values.any()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_histogram_boosting_is_not_fitted_to_one_class(n_classes: int) -> None:
    """Scores then start where gradients are differences of numbers near one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.digitize(X[:, 0], [0.0, 0.7][: n_classes - 1])
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=3).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    for label in range(n_classes):
        deleted = y != label
        with pytest.raises(axil.UnsupportedQuestionError, match="of one class"):
            explainer.without(X[:2], deleted)
        with pytest.raises(axil.UnsupportedQuestionError, match="of one class"):
            explainer.refit(drop=deleted)


def test_histogram_boosting_is_fitted_to_two_classes_of_three() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.digitize(X[:, 0], [0.0, 0.7])
    model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=3).fit(X, y)
    after = axil.Explainer(model, X, y).without(X[:2], y == 2)["after"]
    assert np.isfinite(after).all()

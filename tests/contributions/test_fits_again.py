"""Fits again in the core, against the same fits in NumPy."""

import numpy as np
import pytest

import axil
from axil.contributions import fits_again
from axil.methods.question import verified_model
from tests.contributions.boosting_models import CASES, X, case_of, explain
from tests.contributions.sampled_models import MODELS as SAMPLED
from tests.contributions.sampled_models import model_of

GONE = (np.zeros(0, dtype=np.intp), np.arange(7), np.array([3, 50]))


def copies_of(explained):
    """Three fits of one model, each without other rows."""
    walked = explained.walked
    remaining = explained.label_weights.without(walked, GONE)
    return fits_again._Copies(walked, explained.targets, walked.fit.loss, remaining)


def compare(explained):
    """Whether the core has a form for this model; its fits must be those of NumPy, whatever the number of threads."""
    several = [copies_of(explained) for _ in range(3)]
    if several[0].states(1) is None:
        return False
    found = [copies.run(copies.states(n_threads)) for copies, n_threads in zip(several, (1, 3))]
    expected = several[2].run(None)
    largest = np.abs(expected.values).max()
    np.testing.assert_allclose(found[0].values, expected.values, rtol=1e-10, atol=1e-12 * largest)
    np.testing.assert_array_equal(found[0].base, expected.base)
    np.testing.assert_array_equal(found[0].values, found[1].values)
    return True


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case().loss != "squared"])
def test_fits_in_the_core_are_those_of_numpy(name):
    done = compare(explained := verified_model(explain(case_of(name))).boosting)
    loss, based = explained.walked.fit.loss, any(one.base for one in explained.walked.rounds)
    assert done == (
        loss.curvature is not None and loss.exponent != 0 and not loss.cancels and not based
    )


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_and_drops_count(name):
    case = model_of(name)
    compare(
        verified_model(axil.Explainer(case.model, X, case.y, case.weights, case.offsets)).boosting
    )


def test_scores_beyond_all_numbers_are_left_to_numpy():
    explained = verified_model(explain(case_of("lightgbm binary"))).boosting
    copies = copies_of(explained)
    copies.score -= 1e4
    assert copies.run(copies.states(1)) is None

"""Venn-Abers probabilities against isotonic regression of the calibration rows and the new one."""

from itertools import product

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from axil.methods.intervals.venn_abers import VennAbers, merged, normalised


def rows(n, has_ties, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    if has_ties:
        scores = np.round(scores, 1)
    return scores, (rng.random(n) < scores).astype(float)


@pytest.mark.parametrize("has_ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 30, 150])
def test_bounds_are_isotonic_values_with_either_label(n, has_ties):
    scores, labels = rows(n, has_ties)
    rng = np.random.default_rng(1)
    new = np.concatenate([rng.random(20), np.round(rng.random(9), 1), scores[:4], [-1.0, 2.0]])
    low, high = VennAbers(scores, labels).bounds(new)
    for label, bounds in ((0.0, low), (1.0, high)):
        for score, bound in zip(new, bounds):
            isotonic = IsotonicRegression()
            isotonic.fit(np.append(scores, score), np.append(labels, label))
            assert bound == pytest.approx(isotonic.predict([score])[0], abs=1e-12)


def test_bounds_enclose_the_probability():
    scores, labels = rows(80, False)
    low, high = VennAbers(scores, labels).bounds(np.linspace(0, 1, 50))
    probability = merged(low, high)
    assert (low <= probability).all()
    assert (probability <= high).all()
    assert (np.diff(low) >= -1e-12).all()
    assert ((probability > 0) & (probability < 1)).all()


def test_labels_of_one_class_alone():
    low, high = VennAbers(np.array([0.2, 0.4]), np.zeros(2)).bounds(np.array([0.1, 0.3, 0.9]))
    np.testing.assert_allclose(low, 0.0)
    np.testing.assert_allclose(high, [1 / 3, 1 / 2, 1.0])


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_normalised_bounds_are_the_extremes_of_the_division(n_classes):
    rng = np.random.default_rng(n_classes)
    ends = rng.random((2, 40, n_classes))
    low = ends.min(axis=0)
    high = ends.max(axis=0)
    low[:5, 0] = 0.0
    high[3:8, 1] = 1.0
    probabilities, lower, upper = normalised(low, high)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (lower <= probabilities).all()
    assert (probabilities <= upper).all()
    smallest = np.ones_like(low)
    largest = np.zeros_like(low)
    for is_high in product([False, True], repeat=n_classes):
        chosen = np.where(is_high, high, low)
        chosen /= chosen.sum(axis=1, keepdims=True)
        smallest = np.minimum(smallest, chosen)
        largest = np.maximum(largest, chosen)
    np.testing.assert_allclose(lower, smallest, atol=1e-12)
    np.testing.assert_allclose(upper, largest, atol=1e-12)

"""Weights of balanced classes, compared with those that scikit-learn makes of the rows that remain."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from axil.structure import UNKNOWN, ClassCounts

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, (40, 2))
OWN = RNG.uniform(0.5, 2.0, 40)


@pytest.mark.parametrize("n_labels", [1, 2])
@pytest.mark.parametrize("emptied", [False, True], ids=["", "a class is gone"])
def test_weights_are_those_of_the_rows_present(n_labels, emptied):
    labels = LABELS[:, :n_labels]
    present = np.arange(40) % 5 > 0
    if emptied:
        present &= labels[:, 0] != 1
    expected = np.zeros(40)
    expected[present] = OWN[present] * compute_sample_weight("balanced", labels[present])
    np.testing.assert_allclose(ClassCounts(labels, OWN).weights(present), expected, rtol=1e-12)


def test_classes_count_by_weight():
    """All classes have the same total then."""
    present = np.arange(40) % 5 > 0
    found = ClassCounts(LABELS[:, :1], OWN, by_weight=True).weights(present)
    totals = np.bincount(LABELS[:, 0], found)
    np.testing.assert_allclose(totals, OWN[present].sum() / 3, rtol=1e-12)
    factors = (found / OWN)[present]
    assert all(np.ptp(factors[LABELS[present, 0] == one]) < 1e-12 for one in range(3))


def test_weights_of_a_fit_follow_the_rule_or_not():
    counts = ClassCounts(LABELS[:, :1], OWN)
    weights = OWN * compute_sample_weight("balanced", LABELS[:, 0])
    assert counts.follows(weights)
    assert not counts.follows(weights * np.where(np.arange(40) == 3, 1.001, 1.0))
    assert counts.is_known
    assert not UNKNOWN.is_known

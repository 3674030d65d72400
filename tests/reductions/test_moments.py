"""Moments over shards, against sums by NumPy."""

import numpy as np
import pytest

from axil.reductions import Moments
from tests.reductions.shards import CUTS, FORMS, OUTPUTS, N, data


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
def test_sums_under_sizes_and_squares(form, cut):
    made, values = data(form), np.random.default_rng(3).integers(-4, 5, (N, 3)).astype(float)
    n_served = 1 if form in ("shared", "sparse") else OUTPUTS
    found = made.reduced(Moments(), CUTS[cut], lambda a, b: [values[a:b]] * n_served)
    assert len(found.sums) == n_served
    for output, (sizes, squares) in enumerate(found.sums):
        own = made.numbers[:, output]
        np.testing.assert_array_equal(sizes, np.abs(own) @ values)
        np.testing.assert_array_equal(squares, np.square(own) @ values)
    np.testing.assert_array_equal(found.predictions, made.contribution_sums + made.intercepts)

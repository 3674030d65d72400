"""The largest weights, gathered from blocks and from what others found."""

import numpy as np
import pytest

from axil.weights.largest import Largest


def gathered(weights, scale, k, parts):
    """Each part of the rows either as a block or as what another Largest found in it."""
    n_rows, n = weights.shape
    largest = Largest(n, k, n_rows, scale)
    for rows, merged in parts:
        if merged:
            other = Largest(n, k, n_rows, scale)
            other.add(weights[rows], rows.start)
            largest.merge(other.values, other.rows)
        else:
            largest.add(weights[rows], rows.start)
    return largest


@pytest.mark.parametrize("by", ["weight", "contribution"])
@pytest.mark.parametrize("k", [1, 7, 60])
@pytest.mark.parametrize(
    "merged", [(True, True, True), (False, True, True), (True, False, True), (True, True, False)]
)
def test_what_others_found_is_merged_as_blocks_are(by, k, merged):
    rng = np.random.default_rng(0)
    weights = rng.integers(-9, 10, (50, 4)) / 4  # with many ties, which go by row number
    targets = rng.choice([-2.0, 0.0, 0.5, 1.0], 50)
    spans = [slice(30, 50), slice(0, 5), slice(5, 30)]
    found = gathered(weights, None if by == "weight" else targets, k, zip(spans, merged))
    sizes = np.abs(weights if by == "weight" else weights * targets[:, None])
    for column, (values, rows) in enumerate(zip(found.values, found.rows)):
        right = np.lexsort((np.arange(50), -sizes[:, column]))[:k]
        np.testing.assert_array_equal(rows, right)
        np.testing.assert_array_equal(values, weights[right, column])

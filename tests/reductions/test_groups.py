"""Groups over shards, against sums by NumPy."""

import numpy as np
import pytest

from axil.inputs import group_codes
from axil.reductions import Groups
from tests.reductions.shards import CUTS, FORMS, N, data

NAMES = np.array(["north", "south", "west", "east"])[np.random.default_rng(2).integers(0, 4, N)]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels", [NAMES, np.arange(N), np.zeros(N)], ids=["names", "rows", "one"])
def test_sums_by_group(form, cut, labels):
    made = data(form)
    found = made.reduced(Groups(), CUTS[cut], lambda a, b: group_codes(labels[a:b], b - a))
    assert found.groups.tolist() == group_codes(labels, N)[1].tolist()
    for g, name in enumerate(found.groups):
        own = labels == name
        np.testing.assert_array_equal(found.effects[:, :, g], made.numbers[:, :, own].sum(axis=2))
        np.testing.assert_array_equal(
            found.contributions[:, :, g], made.contributions[:, :, own].sum(axis=2)
        )
    np.testing.assert_array_equal(found.predictions, made.contribution_sums + made.intercepts)

"""Whole over shards: all effects, gathered in the order of the rows."""

import numpy as np
import pytest
from scipy.sparse import issparse

from axil.reductions import Whole
from axil.reductions.whole import joined
from tests.reductions.shards import CUTS, FORMS, OUTPUTS, QUERIES, data


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("adds_up", [True, False])
def test_all_effects(form, cut, adds_up):
    made = data(form)
    found = made.reduced(Whole(adds_up=adds_up), CUTS[cut])
    for output, own in enumerate(found.by_output(OUTPUTS)):
        np.testing.assert_array_equal(own, made.numbers[:, output])
    np.testing.assert_array_equal(
        found.contribution_sums, made.contribution_sums if adds_up else 0 * made.contribution_sums
    )
    np.testing.assert_array_equal(found.intercepts, made.intercepts)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
def test_sparse_ones_where_outputs_share_them(form, cut):
    made = data(form)
    found = made.reduced(Whole(sparse=True), CUTS[cut])
    assert all(map(issparse, found.parts)) == (form in ("shared", "sparse"))
    for output, own in enumerate(found.by_output(OUTPUTS)):
        np.testing.assert_array_equal(
            own.toarray() if issparse(own) else own, made.numbers[:, output]
        )


def test_batches_of_queries_are_joined():
    made = [data("blocks", seed) for seed in (0, 1, 2)]
    found = joined((one.reduced(Whole(), CUTS["three"]) for one in made), 3 * QUERIES)
    assert len(found) == 3 * QUERIES
    for output, own in enumerate(found.by_output(OUTPUTS)):
        np.testing.assert_array_equal(own, np.concatenate([one.numbers[:, output] for one in made]))
    np.testing.assert_array_equal(
        found.predictions, np.concatenate([one.contribution_sums + one.intercepts for one in made])
    )

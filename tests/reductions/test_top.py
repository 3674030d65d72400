"""TopRows and Ranked over shards, against sorted NumPy arrays."""

import numpy as np
import pytest

from axil.reductions import Ranked, TopRows
from tests.reductions.shards import CUTS, FORMS, OUTPUTS, QUERIES, N, check_best, data


def largest(sizes, k):
    """The positions of the k largest, equal ones in their order."""
    return sorted(range(len(sizes)), key=lambda j: (-sizes[j], j))[:k]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by", ["weight", "contribution"])
@pytest.mark.parametrize("k", [1, 6, 40])
def test_top(form, cut, by, k):
    made = data(form)
    found = made.reduced(TopRows(k, by), CUTS[cut])
    sizes = np.abs(made.contributions if by == "contribution" else made.numbers)
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        rows = [j for j in largest(sizes[i, output], k) if sizes[i, output, j] > 0]
        listed = found.columns["position"][i, output]
        assert listed[: len(rows)].tolist() == rows
        np.testing.assert_array_equal(found.size[i, output, : len(rows)], sizes[i, output, rows])
        assert (
            found.size[i, output, len(rows) :] <= 0
        ).all()  # rows without effect, or free places
    np.testing.assert_array_equal(found.predictions, made.contribution_sums + made.intercepts)


@pytest.mark.parametrize("cut", CUTS)
def test_top_by_a_column(cut):
    made, column = (
        data("blocks"),
        np.random.default_rng(1).integers(-3, 4, (N, OUTPUTS)).astype(float),
    )
    found = made.reduced(TopRows(5), CUTS[cut], lambda a, b: column[a:b])
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        check_best(
            found, largest(np.abs(made.numbers[i, output] * column[:, output]), 5), made, i, output
        )


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
def test_more_places_than_rows(form, cut):
    found = data(form).reduced(TopRows(2 * N), CUTS[cut])
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        listed = found.columns["position"][i, output]
        assert len(set(listed[listed >= 0])) == (listed >= 0).sum()


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", ["blocks", "pushes"])
def test_ranked(form, cut):
    made = data(form)
    made.numbers[0, 1, 7], made.numbers[3, 0, 33] = np.nan, np.nan  # without a rank
    found = made.reduced(Ranked(4), CUTS[cut])
    assert found.unranked == 2
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        rows = largest(np.abs(np.nan_to_num(made.numbers[i, output])), 4)
        assert found.best.columns["position"][i, output].tolist() == rows


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
def test_ranked_by_one_sign(form, cut):
    made = data(form)
    found = made.reduced(Ranked(4, same_sign=True), CUTS[cut]).best
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        own = made.numbers[i, output]
        above, below = np.maximum(own, 0), np.maximum(-own, 0)
        up, down = largest(above, 4), largest(below, 4)
        rows = down if below[down].sum() > above[up].sum() else up
        assert found.columns["position"][i, output].tolist() == rows
        np.testing.assert_array_equal(found.columns["effect"][i, output], own[rows])

"""Choice over shards, with rows allowed, labels listed once, one sign and ranges, against the definition row by row."""

from itertools import product

import numpy as np
import pytest

from axil.inputs import label_codes
from axil.reductions.choice import Allowed, Choice
from axil.reductions.nearness import WithinRange
from tests.reductions.shards import CUTS, FORMS, OUTPUTS, QUERIES, N, check_best, data
from tests.subsets import mostly_slow

RNG = np.random.default_rng(4)
AMONG = RNG.random(N) < 0.6
LABELS = np.array([None if i % 11 == 0 else f"owner {i % 9}" for i in range(N)], dtype=object)
VALUES = np.where(RNG.random(N) < 0.1, np.nan, RNG.integers(0, 20, N).astype(float))
LOWEST = np.array([0.0, 5.0, 5.0, 12.0, 30.0])  # no row is in the last range
RANGES = LOWEST, LOWEST + 8
NEAR = (WithinRange(*RANGES),)


def expected(own, k, i, among, distinct, positive, ranges):
    """The positions to list for query i, by the definition."""
    kept, seen = [], set()
    for j in sorted(range(N), key=lambda j: (-abs(own[j]), j)):
        out_of_range = ranges and not RANGES[0][i] <= VALUES[j] <= RANGES[1][i]
        if (among and not AMONG[j]) or (positive and own[j] <= 0) or out_of_range:
            continue
        if distinct and LABELS[j] is not None and LABELS[j] in seen:
            continue
        seen.add(LABELS[j])
        kept.append(j)
    return kept[:k]


def allowed(among, distinct, ranges, residuals=None):
    """The column of rows from a to b, as questions make it."""
    return lambda a, b: Allowed(
        among=np.flatnonzero(AMONG[a:b]) if among else None,
        codes=label_codes(LABELS[a:b], b - a, "distinct") if distinct else None,
        keys=LABELS[a:b] if distinct else None,
        near_values=(VALUES[a:b],) if ranges else (),
        residuals=None if residuals is None else residuals[a:b],
    )


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("among", "distinct", "positive", "ranges"), mostly_slow(2, product([False, True], repeat=4))
)
@pytest.mark.parametrize("k", [3, 15])
def test_the_rows_listed(form, cut, among, distinct, positive, ranges, k):
    made = data(form)
    # Zeros of a sparse array are listed in the order of the rows too, after all others.
    choice = Choice(k, positive, distinct, NEAR if ranges else ())
    found = made.reduced(choice, CUTS[cut], allowed(among, distinct, ranges))
    assert found.allowed == (AMONG.sum() if among else N)
    np.testing.assert_array_equal(found.sizes, np.abs(made.numbers).sum(axis=2))
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        rows = expected(made.numbers[i, output], k, i, among, distinct, positive, ranges)
        check_best(found.best, rows, made, i, output)
        listed = np.abs(made.numbers[i, output, rows])
        np.testing.assert_allclose(
            found.shares[i, output, : len(rows)], np.cumsum(listed) / found.sizes[i, output]
        )
    np.testing.assert_array_equal(found.predictions, made.contribution_sums + made.intercepts)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranges", [False, True])
def test_residuals_for_adjusted_targets(form, cut, ranges):
    made, residuals = data(form), RNG.integers(-6, 7, (N, OUTPUTS)).astype(float)
    choice = Choice(6, near=NEAR if ranges else ())
    found = made.reduced(choice, CUTS[cut], allowed(False, False, ranges, residuals))
    np.testing.assert_array_equal(found.weights, made.numbers.sum(axis=2))
    np.testing.assert_array_equal(found.bias, (made.numbers * residuals.T).sum(axis=2))
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        rows = expected(made.numbers[i, output], 6, i, False, False, False, ranges)
        check_best(found.best, rows, made, i, output)
        np.testing.assert_array_equal(
            found.best.columns["residual"][i, output, : len(rows)], residuals[rows, output]
        )


def test_ranges_of_a_later_batch():
    """Effects say at which of all queries their batch begins."""
    made = data("blocks")
    ranges = [np.concatenate([np.full(3, -1.0), edge]) for edge in RANGES]
    choice = Choice(4, near=(WithinRange(*ranges),))
    found = made.reduced(choice, CUTS["three"], allowed(False, False, True), first=3)
    for i, output in np.ndindex(QUERIES, OUTPUTS):
        check_best(
            found.best,
            expected(made.numbers[i, output], 4, i, False, False, False, True),
            made,
            i,
            output,
        )

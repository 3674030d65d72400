"""Chains of leaves against isotonic regression, and their changes against steps to either side."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import isotonic_regression

from axil.structure import Chains, IsotonicRule

N_LEAVES = np.array([8, 1, 16, 4])


def example(seed):
    """Three trees in chains of four leaves and one of one leaf; a quarter of the leaves have no rows."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(N_LEAVES) - N_LEAVES
    order = np.concatenate([start + rng.permutation(n) for start, n in zip(starts, N_LEAVES)])
    lengths = np.concatenate([[1] if n == 1 else [4] * (n // 4) for n in N_LEAVES])
    chains = Chains(order, np.append(0, np.cumsum(lengths)), np.append(0, np.cumsum(N_LEAVES)))
    chains.check(N_LEAVES)
    weights = rng.uniform(1, 9, len(order)) * (rng.random(len(order)) > 0.25)
    sums = np.where(weights > 0, rng.normal(0, 3, len(order)), 0.0)
    return (
        IsotonicRule(np.full(len(order), 0.5), np.ones(len(order)), chains=chains),
        sums,
        weights,
    )


def by_regression(rule, sums, weights):
    denominators = weights + rule.l2
    values = sums / denominators
    for start, end in zip(rule.chains.starts[:-1], rule.chains.starts[1:]):
        own = rule.chains.order[start:end]
        values[own] = isotonic_regression(values[own], sample_weight=denominators[own])
    return values


def affine(pattern, sums):
    assert pattern.mixing is not None
    assert pattern.shift is None
    starts, values = np.append(0, np.cumsum(N_LEAVES)), pattern.scale * sums
    for t, matrix in enumerate(pattern.mixing):
        if matrix is not None:
            values[starts[t] : starts[t + 1]] = matrix @ sums[starts[t] : starts[t + 1]]
    return values


@pytest.mark.parametrize("seed", range(8))
def test_values_and_pattern_are_those_of_an_isotonic_regression(seed):
    rule, sums, weights = example(seed)
    expected = by_regression(rule, sums, weights)
    np.testing.assert_allclose(rule.leaf_values(sums, weights), expected, rtol=1e-13, atol=1e-14)
    pattern = rule.linearise(sums, weights)
    np.testing.assert_allclose(affine(pattern, sums), expected, rtol=1e-13, atol=1e-14)
    assert (
        pattern.counts["bounded"]
        == (np.abs(expected - sums / (weights + rule.l2)) > 1e-12).sum()
        > 0
    )
    assert sum(pattern.counts.values()) == pattern.counts["bounded"]
    assert rule.bytes_needed(sums, weights) >= sum(
        12 * m.nnz for m in pattern.mixing if m is not None
    )
    moved = sums + 1e-9 * np.random.default_rng(seed).normal(size=len(sums)) * (
        weights > 0
    )  # changes no pool
    np.testing.assert_allclose(
        affine(pattern, moved), by_regression(rule, moved, weights), rtol=1e-13, atol=1e-14
    )


@pytest.mark.parametrize("seed", range(8))
def test_pools_change_where_the_nearest_change_is(seed):
    """Along the gradient of a change values leave the pattern at its distance, and none does before the nearest."""
    rule, sums, weights = example(seed)
    pattern, rng = rule.linearise(sums, weights), np.random.default_rng(seed)
    seeds, gaps = rule.nearest_changes(sums, weights, 100)

    def beyond(moved):
        return np.abs(affine(pattern, moved) - by_regression(rule, moved, weights)).max()

    assert len(gaps) > 5
    for _ in range(20):
        direction = rng.normal(size=len(sums)) * (weights > 0)
        signed = np.sign(
            seeds.T @ sums
        )  # a gap is the size of a difference of values, which falls to zero
        speed = -signed * (seeds.T @ direction)
        first = (gaps[speed > 0] / speed[speed > 0]).min()
        assert beyond(sums + 0.999 * first * direction) < 1e-12
        assert beyond(sums + 1.001 * first * direction) > 1e-9


WRONG = {
    "a leaf twice": {"order": np.array([0, 0, 2, 3])},
    "a leaf of another tree": {"order": np.array([0, 2, 1, 3])},
    "a leaf less": {"order": np.arange(3)},
    "chains of real numbers": {"order": np.arange(4.0)},
    "chains backwards": {"starts": np.array([0, 2, 1, 4])},
    "a chain through two trees": {"starts": np.array([0, 1, 4])},
    "a chain before the first leaf": {"starts": np.array([-1, 0, 2, 4])},
    "another number of trees": {"trees": np.array([0, 4])},
}


@pytest.mark.parametrize("name", WRONG)
def test_chains_that_do_not_fit_are_refused(name):
    right = {"order": np.arange(4), "starts": np.array([0, 2, 4]), "trees": np.array([0, 2, 4])}
    Chains(**right).check(np.array([2, 2]))
    with pytest.raises(ValueError, match="chain"):
        Chains(**{**right, **WRONG[name]}).check(np.array([2, 2]))

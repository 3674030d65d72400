"""Differences of predictions by feature: trees of every kind of test, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from axil import _core
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes

N_FEATURES = 5
GROUPS = np.array([0, 1, 2, 1, 3], dtype=np.int32)
N_OUTPUTS = 2


def routes_of(seed: int, n_trees: int = 6, n_nodes: int = 15) -> Routes:
    """Return complete binary trees of random tests, on numbers and on categories."""
    rng = np.random.default_rng(seed)
    below = np.arange(1, 2 * n_nodes + 1).reshape(-1, 2)
    children = np.where(below < n_nodes, below, ~(below - n_nodes))
    n_splits = n_trees * n_nodes
    features = rng.integers(0, N_FEATURES, n_splits)
    kinds = rng.integers(0, SplitKind.CATEGORIES, n_splits)
    kinds[features == 4] = SplitKind.CATEGORIES
    places = np.flatnonzero(features == 4).tolist()
    outcomes = {place: rng.integers(0, 2, 5).astype(np.uint8) for place in places}
    nodes = Splits(
        starts=np.arange(n_trees + 1) * n_nodes,
        features=features,
        thresholds=rng.normal(size=n_splits).round(1),
        kinds=kinds.astype(np.int64),
        children=np.tile(children, (n_trees, 1)),
        outcomes=outcomes,
    )
    routes = make_routes(
        nodes, single=bool(seed % 2), strict=bool(seed % 3), zero=0.05, infinite=True
    )
    assert routes is not None
    return routes


def table(seed: int, n_rows: int = 6) -> np.ndarray:
    """Return rows of numbers, zeros, missing values and, in the last column, categories."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, N_FEATURES)).round(1)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[rng.random(rows.shape) < 0.1] = 0.0
    rows[:, 4] = rng.integers(-1, 5, n_rows)
    return rows


def sums(routes: Routes, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sums of the leaf values of rows, (n, K)."""
    leaves = np.empty((routes.n_trees, len(rows)), dtype=np.uint16)
    routes.assign(rows, leaves, 1)
    starts = routes.starts[:-1] + np.arange(routes.n_trees)
    return np.asarray(values[leaves + starts[:, None]].sum(axis=0))


def differences(
    routes: Routes,
    queries: np.ndarray,
    rows: np.ndarray,
    pairs: np.ndarray,
    values: np.ndarray,
    n_threads: int = 1,
) -> np.ndarray:
    out = np.zeros((len(pairs), int(GROUPS.max()) + 1, N_OUTPUTS))
    _core.feature_differences(
        queries,
        rows,
        pairs,
        routes.columns,
        routes.thresholds,
        routes.views,
        routes.outcomes,
        routes.nodes,
        routes.starts,
        routes.single,
        routes.strict,
        routes.zero,
        GROUPS,
        values,
        out,
        n_threads,
    )
    return out


@pytest.mark.parametrize("seed", range(6))
def test_shapley_values_by_brute_force(seed: int) -> None:
    routes = routes_of(seed)
    queries = table(seed + 100)
    rows = np.asfortranarray(table(seed + 200, 4))
    values = np.random.default_rng(seed).normal(size=(routes.n_trees * 16, N_OUTPUTS))
    pairs = np.array([(i, j) for i in range(6) for j in range(4)])
    actual = differences(routes, queries, rows, pairs, values)
    n_groups = actual.shape[1]
    subsets = list(itertools.product([False, True], repeat=n_groups))
    for pair, (query, row) in enumerate(pairs.tolist()):
        is_joined = np.array(subsets)[:, GROUPS]
        worth = dict(
            zip(subsets, sums(routes, np.where(is_joined, queries[query], rows[row]), values))
        )
        expected = np.zeros((n_groups, N_OUTPUTS))
        for subset, group in itertools.product(subsets, range(n_groups)):
            if subset[group]:
                continue
            size = sum(subset)
            share = (
                math.factorial(size)
                * math.factorial(n_groups - size - 1)
                / math.factorial(n_groups)
            )
            joined = (*subset[:group], True, *subset[group + 1 :])
            expected[group] += share * (worth[joined] - worth[subset])
        np.testing.assert_allclose(actual[pair], expected, atol=1e-13)
    threaded = differences(routes, queries, rows, pairs, values, 2)
    np.testing.assert_array_equal(threaded, actual)


def test_refusals() -> None:
    routes = routes_of(0)
    queries = table(1)
    values = np.zeros((routes.n_trees * 16, N_OUTPUTS))
    with pytest.raises(ValueError, match="pair 0 names a row that does not exist"):
        differences(routes, queries, queries, np.array([[0, 6]]), values)
    with pytest.raises(ValueError, match="leaf_values has shape"):
        differences(routes, queries, queries, np.array([[0, 1]]), values[1:])
    with pytest.raises(ValueError, match="a row has length"):
        differences(routes, queries, queries[:, :4], np.array([[0, 1]]), values)

"""The trees in which rows share the leaves of queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from axil.kernels.cpu import Cpu
from tests.kernels.forests import DTYPES, Forest, forest, largest

WEIGHTS = ["none", "any", "halved", "some are zero", "all are zero"]


def weights_of(kind: str, n_trees: int) -> np.ndarray | None:
    rng = np.random.default_rng(1)
    return {
        "none": None,
        "any": rng.random(n_trees),
        "halved": 0.5 ** np.arange(n_trees),
        "some are zero": rng.choice([0.0, 0.25, 3.0], n_trees),
        "all are zero": np.zeros(n_trees),
    }[kind]


def queries_of(f: Forest, n: int) -> np.ndarray:
    """QueryBatch (n, T) that share many leaves with some rows."""
    found = f.leaves[:, f.rng.integers(0, f.n_rows, n)].T.copy()
    found[:, ::3] = np.minimum(found[:, ::3], 1)
    return found


def shared(f: Forest, queries: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """(N, n): added tree by tree, as the kernels do."""
    out = np.zeros((f.n_rows, len(queries)))
    for t, leaf in enumerate(f.leaves):
        out += (1.0 if weights is None else weights[t]) * (leaf[:, None] == queries[:, t])
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("n", [0, 1, 8, 19])
def test_matches_are_sums_over_shared_leaves(backend: Any, dtype: type, kind: str, n: int) -> None:
    f = forest(dtype)
    queries, weights = queries_of(f, n), weights_of(kind, len(f.n_leaves))
    for first, stop in ((0, f.n_rows), (65, 700), (5, 5)):
        out = np.full((stop - first, n), np.nan)
        f.rows(backend(2)).matches(queries, weights, first, out)
        np.testing.assert_array_equal(out, shared(f, queries, weights)[first:stop])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("k", [0, 1, 10, 1200])
def test_top_matches_are_the_largest_above_zero(
    backend: Any, dtype: type, kind: str, k: int
) -> None:
    f = forest(dtype)
    queries, weights = queries_of(f, 11), weights_of(kind, len(f.n_leaves))
    values, rows = largest(shared(f, queries, weights), None, k)
    rows[values <= 0] = -1
    for n_threads in (1, 3):
        found, at = np.zeros((11, k)), np.full((11, k), -1, np.int64)
        f.rows(backend(n_threads)).top_matches(queries, weights, found, at)
        np.testing.assert_array_equal(at, rows)
        np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("kind", ["none", "any", "halved"])
@pytest.mark.parametrize("n_trees", [1, 64, 255, 256, 700])
def test_more_trees_than_a_byte_counts(backend: Any, kind: str, n_trees: int) -> None:
    f = Forest(5003, [3] * n_trees, np.uint8)
    queries, weights = queries_of(f, 9), weights_of(kind, n_trees)
    values, rows = largest(shared(f, queries, weights), None, 6)
    for n_threads in (1, 5):
        found, at = np.zeros((9, 6)), np.full((9, 6), -1, np.int64)
        f.rows(backend(n_threads)).top_matches(queries, weights, found, at)
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(at[values > 0], rows[values > 0])


@pytest.mark.parametrize(
    ("rows", "queries", "weights", "found", "places"),
    [
        ([[1, 1, 0], [1, 0, 0], [0, 0, 0]], [[1, 1, 1]], None, [[2, 1, 0]], [[0, 1, -1]]),
        (
            [[1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2]],
            [[1, 1, 1], [2, 2, 2]],
            None,
            [[3, 2, 1], [3, 2, 1]],
            [[0, 1, 2], [3, 2, 1]],
        ),
        ([[1, 1, 1]] * 4, [[1, 1, 1]], None, [[3, 3, 3]], [[0, 1, 2]]),
        (
            [[1, 1, 0], [1, 0, 0], [0, 0, 0]],
            [[1, 1, 1]],
            [0.5, 0.25, 0.25],
            [[0.75, 0.5, 0]],
            [[0, 1, -1]],
        ),
        ([[0, 0, 1], [1, 1, 0]], [[1, 1, 1]], [0.25, 0.25, 1.0], [[1, 0.5, 0]], [[0, 1, -1]]),
    ],
    ids=[
        "no leaf in common has no place",
        "two queries",
        "ties go to the first rows",
        "tree weights",
        "one heavy tree",
    ],
)
def test_cases_that_assessors_check(
    backend: Any, rows: Any, queries: Any, weights: Any, found: Any, places: Any
) -> None:
    """The situations of the tests that Cook County's assessor publishes for its comparables (model-res-avm, get_comps)."""
    leaves = np.ascontiguousarray(np.array(rows, np.uint8).T)
    values, at = np.zeros((len(queries), 3)), np.full((len(queries), 3), -1, np.int64)
    own = None if weights is None else np.array(weights)
    backend(2).rows(leaves, np.arange(0, 12, 3)).top_matches(
        np.array(queries, np.uint8), own, values, at
    )
    np.testing.assert_array_equal(values, found)
    np.testing.assert_array_equal(at, places)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"queries": np.zeros((2, 7), np.uint16)}, TypeError),
        ({"queries": np.zeros((2, 6), np.uint8)}, ValueError),
        ({"weights": np.ones(6)}, ValueError),
        ({"weights": -np.ones(7)}, ValueError),
        ({"weights": np.full(7, np.nan)}, ValueError),
        ({"values": np.zeros((3, 4))}, ValueError),
        ({"rows": np.zeros((2, 4), np.int64)}, ValueError),
    ],
)
def test_refused(backend: Any, changed: dict[str, Any], error: type[Exception]) -> None:
    f = forest(n_rows=50)
    arguments: dict[str, Any] = {
        "queries": np.zeros((2, 7), np.uint8),
        "weights": None,
        "values": np.zeros((2, 4)),
        "rows": np.full((2, 4), -1, np.int64),
    }
    with pytest.raises(error):
        f.rows(backend(1)).top_matches(**arguments | changed)


def test_no_rows_or_trees() -> None:
    values, rows = np.zeros((2, 3)), np.full((2, 3), -1, np.int64)
    Cpu(1).rows(np.zeros((4, 0), np.uint8), np.arange(5)).top_matches(
        np.zeros((2, 4), np.uint8), None, values, rows
    )
    Cpu(1).rows(np.zeros((0, 9), np.uint8), np.zeros(1, np.int64)).top_matches(
        np.zeros((2, 0), np.uint8), np.ones(0), values, rows
    )
    assert (rows == -1).all()

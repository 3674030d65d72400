"""The largest values of blocks and of sums that are never made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.forests import COLUMNS, DTYPES, Forest, forest, largest, one


class TestTop:
    @pytest.mark.parametrize("columns", COLUMNS)
    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("k", [0, 1, 10, 1500])
    def test_blocks_in_any_order(self, backend: Any, columns: int, scaled: bool, k: int) -> None:
        rng = np.random.default_rng(columns)
        weights = rng.integers(-30, 31, (1200, columns)) / 8  # with many ties, also across blocks
        scale = rng.choice([0.5, 1.0, 2.0], 1200) if scaled else None
        right = largest(weights, scale, k)
        for blocks in ([0, 1, 2, 3], [2, 0, 3, 1]):
            values, rows = np.zeros((columns, k)), np.full((columns, k), -1, np.int64)
            for b in blocks:
                backend(2).top(weights[300 * b : 300 * (b + 1)], 300 * b, scale, values, rows)
            np.testing.assert_array_equal(rows, right[1])
            np.testing.assert_array_equal(values, right[0])

    @pytest.mark.parametrize(
        ("n_rows", "columns", "k"), [(300_000, 1, 10), (40_000, 33, 5), (20_000, 3, 6000)]
    )
    def test_threads_do_not_matter(self, backend: Any, n_rows: int, columns: int, k: int) -> None:
        weights = np.random.default_rng(0).normal(size=(n_rows, columns))
        for n_threads in (1, 2, 5):
            values, rows = np.zeros((columns, k)), np.full((columns, k), -1, np.int64)
            backend(n_threads).top(weights, 0, None, values, rows)
            right = largest(weights, None, k)
            np.testing.assert_array_equal(rows, right[1])
            np.testing.assert_array_equal(values, right[0])

    def test_all_zero(self, backend: Any) -> None:
        values, rows = np.zeros((2, 3)), np.full((2, 3), -1, np.int64)
        for first in (0, 100):
            backend(1).top(np.zeros((100, 2)), first, None, values, rows)
        np.testing.assert_array_equal(rows, [[0, 1, 2]] * 2)


class TestTopRows:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("columns", [0, 1, 10, 31, 33, 70])
    @pytest.mark.parametrize("k", [0, 1, 10])
    def test_is_top_of_read_out(
        self, backend: Any, dtype: type, weighted: bool, scaled: bool, columns: int, k: int
    ) -> None:
        f = forest(dtype, n_rows=30_007 if columns == 10 else 1003)
        table = f.rng.integers(-30, 31, (f.total, columns)) / 8  # no rounding, and many ties
        constant = f.rng.integers(-30, 31, columns) / 8
        weights = f.rng.choice([0.5, 1.0, 4.0], f.n_rows) if weighted else None
        scale = f.rng.choice([-2.0, 0.0, 1.0], f.n_rows) if scaled else None
        all_weights = one(weights) * (
            constant + sum(f.rows_of(table, t) for t in range(len(f.n_leaves)))
        )
        right = largest(all_weights, scale, k)
        for n_threads in (1, 3):
            values, rows = np.zeros((columns, k)), np.full((columns, k), -1, np.int64)
            f.rows(backend(n_threads)).top(table, constant, weights, scale, values, rows)
            np.testing.assert_array_equal(rows, right[1])
            np.testing.assert_array_equal(values, right[0])

    def test_sizes_that_single_precision_does_not_tell_apart(self, backend: Any) -> None:
        """Sums that cancel, of numbers far larger than what is left of them."""
        f = Forest(5000, [40, 40, 31], np.uint8)
        table = f.normal(f.total, 3)
        table[f.part(1)] = -1e6 + 1e-4 * f.normal(40, 3)
        table[f.part(0)] = 1e6 + 1e-4 * f.normal(40, 3)
        table[f.part(2)] *= 1e-4
        values, rows = np.zeros((3, 20)), np.full((3, 20), -1, np.int64)
        f.rows(backend(2)).top(table, np.zeros(3), None, None, values, rows)
        exact = np.empty((5000, 3))
        f.rows(backend(1)).read_out(table, np.zeros(3), None, 0, exact)
        np.testing.assert_array_equal(rows, largest(exact, None, 20)[1])

    def test_more_places_than_rows_and_tiny_weights(self, backend: Any) -> None:
        f = forest(n_rows=50)
        table = 1e-60 * f.normal(f.total, 2)
        values, rows = np.zeros((2, 60)), np.full((2, 60), -1, np.int64)
        f.rows(backend(2)).top(table, np.zeros(2), None, None, values, rows)
        exact = np.empty((50, 2))
        f.rows(backend(1)).read_out(table, np.zeros(2), None, 0, exact)
        np.testing.assert_array_equal(rows, largest(exact, None, 60)[1])

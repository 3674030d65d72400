"""Every kernel of every back end against its formula in NumPy, one thread against several, and what must be refused."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import astuple
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from devices import GPU, gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from axil import _core
from axil.kernels import LINKS, Backend, Program, Rows
from axil.kernels.cpu import Cpu
from axil.machine.arrays import host

COLUMNS = [0, 1, 2, 3, 7, 10, 16, 17, 33]
DTYPES = [np.uint8, np.uint16, np.uint32]
# The kernels add in another order than NumPy: sums of up to 20,000 numbers of size 1 differ by far less than this.
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


@pytest.fixture(scope="module", params=[pytest.param(Cpu, id="cpu"), *GPU])
def backend(request: pytest.FixtureRequest) -> Any:
    """Makes a back end of so many threads; every one of them goes through all that follows."""
    return request.param


class Forest:
    """Random leaves of ragged trees, without any model behind them."""

    def __init__(self, n_rows: int, n_leaves: list[int], dtype: type, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_rows, self.n_leaves = n_rows, n_leaves
        self.starts = np.concatenate([[0], np.cumsum(n_leaves)]).astype(np.int64)
        self.leaves = np.empty((len(n_leaves), n_rows), dtype)
        for t, n in enumerate(n_leaves):
            self.leaves[t] = np.minimum(self.rng.geometric(2 / (n + 1), n_rows) - 1, n - 1)  # a few large leaves
        self.leaves.setflags(write=False)
        self.starts.setflags(write=False)

    @property
    def total(self) -> int:
        return int(self.starts[-1])

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape)

    def weights(self, weighted: bool) -> np.ndarray | None:
        return self.rng.uniform(0.5, 2, self.n_rows) if weighted else None

    def rows(self, backend: Backend, weights: np.ndarray | None = None) -> Rows:
        return backend.rows(self.leaves, self.starts, weights)

    def one_hot(self, t: int) -> np.ndarray:
        return np.eye(self.n_leaves[t])[self.leaves[t]]

    def rows_of(self, table: np.ndarray, t: int) -> np.ndarray:
        """The rows of ``table`` that the training rows look up in tree t."""
        return table[self.starts[t] + self.leaves[t].astype(np.int64)]

    def leaf_sums(self, t: int, values: np.ndarray) -> np.ndarray:
        out = np.zeros((self.n_leaves[t], values.shape[1]))
        np.add.at(out, self.leaves[t], values)
        return out

    def part(self, t: int) -> slice:
        return slice(int(self.starts[t]), int(self.starts[t + 1]))


def forest(dtype: type = np.uint8, n_rows: int = 1003, seed: int = 0) -> Forest:
    most = {np.uint8: 31, np.uint16: 300, np.uint32: 70000}[dtype]
    return Forest(n_rows, [5, 1, most, 17, 2, 31, 8], dtype, seed)


def one(weights: np.ndarray | None) -> Any:
    return 1.0 if weights is None else weights[:, None]


def trees(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def largest(values: np.ndarray, scale: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """What `top` must find in all the rows: (values, rows), each (S, k)."""
    sizes = np.abs(values if scale is None else scale[:, None] * values)
    out, rows = np.zeros((values.shape[1], k)), np.full((values.shape[1], k), -1)
    for s in range(values.shape[1]):
        order = np.lexsort([np.arange(len(values)), -sizes[:, s]])[:k]
        out[s, : len(order)], rows[s, : len(order)] = values[order, s], order
    return out, rows


class TestSweep:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("columns", COLUMNS)
    def test_formula(self, backend: Any, dtype: type, weighted: bool, columns: int) -> None:
        f = forest(dtype)
        a, g = f.weights(weighted), f.weights(weighted)
        state, table, sums = f.normal(f.n_rows, columns), f.normal(f.total, columns), f.normal(f.total, columns)
        expected, untouched = state.copy(), sums.copy()
        apply, gather = [6, 2, 3], [1, 0, 5]
        expected += one(a) * sum(f.rows_of(table, t) for t in apply)
        f.rows(backend(1)).sweep(state, trees(*apply), table, a, trees(*gather), sums, g)
        np.testing.assert_allclose(state, expected, **CLOSE)
        for t in range(len(f.n_leaves)):
            right = f.leaf_sums(t, one(g) * expected) if t in gather else untouched[f.part(t)]
            np.testing.assert_allclose(sums[f.part(t)], right, **CLOSE)

    @pytest.mark.parametrize("apply", [(), (4,)])
    @pytest.mark.parametrize("gather", [(), (2,)])
    def test_either_list_may_be_empty(self, backend: Any, apply: tuple[int, ...], gather: tuple[int, ...]) -> None:
        f = forest()
        state, table, sums = f.normal(f.n_rows, 3), f.normal(f.total, 3), np.zeros((f.total, 3))
        expected = state + (f.rows_of(table, 4) if apply else 0)
        f.rows(backend(2)).sweep(state, trees(*apply), table, None, trees(*gather), sums, None)
        np.testing.assert_allclose(state, expected, **CLOSE)
        np.testing.assert_allclose(sums[f.part(2)], f.leaf_sums(2, expected) if gather else 0, **CLOSE)

    def test_weights_of_one_are_no_weights(self, backend: Any) -> None:
        f = forest()
        ones, table, results = np.ones(f.n_rows), f.normal(f.total, 5), []
        start = f.normal(f.n_rows, 5)
        for w in (None, ones):
            state, sums = start.copy(), np.zeros((f.total, 5))
            f.rows(backend(1)).sweep(state, trees(1, 2), table, w, trees(0), sums, w)
            results.append((state, sums))
        np.testing.assert_array_equal(results[0][0], results[1][0])
        np.testing.assert_array_equal(results[0][1], results[1][1])

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
    @pytest.mark.parametrize("columns", [1, 10, 33])
    def test_threads_do_not_matter(self, backend: Any, dtype: type, columns: int) -> None:
        f = forest(dtype, n_rows=200_001 if columns == 1 else 20_001)
        start, table, results = f.normal(f.n_rows, columns), f.normal(f.total, columns), []
        for n_threads in (1, 2, 5):
            state, sums = start.copy(), np.zeros((f.total, columns))
            f.rows(backend(n_threads)).sweep(state, trees(3), table, None, trees(0, 2, 5), sums, None)
            results.append((state, sums))
        for state, sums in results[1:]:
            np.testing.assert_array_equal(state, results[0][0])
            np.testing.assert_array_equal(sums, results[0][1])
        np.testing.assert_allclose(sums[f.part(5)], f.leaf_sums(5, state), **CLOSE)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_leaf_sums_leave_the_state_alone(self, backend: Any, weighted: bool) -> None:
        f = forest()
        w, v = f.weights(weighted), np.asfortranarray(f.normal(f.n_rows, 3))
        before = v.copy()
        sums = f.rows(backend(2), w).leaf_sums(v, w)
        right = np.concatenate([f.leaf_sums(t, one(w) * v) for t in range(len(f.n_leaves))])
        np.testing.assert_allclose(sums, right, **CLOSE)
        np.testing.assert_array_equal(v, before)


class TestReadOut:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("columns", COLUMNS)
    def test_formula(self, backend: Any, dtype: type, weighted: bool, columns: int) -> None:
        f = forest(dtype)
        table, constant, w = f.normal(f.total, columns), f.normal(columns), f.weights(weighted)
        expected = one(w) * (constant + sum(f.rows_of(table, t) for t in range(len(f.n_leaves))))
        for first, n in [(0, f.n_rows), (17, 500), (f.n_rows - 1, 1), (f.n_rows, 0)]:
            out = np.empty((n, columns))
            f.rows(backend(1)).read_out(table, constant, w, first, out)
            np.testing.assert_allclose(out, expected[first : first + n], **CLOSE)

    @pytest.mark.parametrize("columns", [1, 10, 33])
    def test_threads_and_blocks_do_not_matter(self, backend: Any, columns: int) -> None:
        f = forest(n_rows=50_001)
        table, constant = f.normal(f.total, columns), f.normal(columns)
        outs = [np.empty((f.n_rows, columns)) for _ in range(3)]
        for n_threads, out in zip((1, 2, 5), outs):
            f.rows(backend(n_threads)).read_out(table, constant, None, 0, out)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])
        block = np.empty((1000, columns))
        f.rows(backend(2)).read_out(table, constant, None, 333, block)
        np.testing.assert_array_equal(block, outs[0][333:1333])

    def test_rows_of_table_and_output_may_lie_apart(self, backend: Any) -> None:
        f = forest()
        table, constant, wide = f.normal(f.total, 9)[:, 2:7], f.normal(5), np.full((f.n_rows, 8), 7.0)
        f.rows(backend(2)).read_out(table, constant, None, 0, wide[:, 1:6])
        right = constant + sum(f.rows_of(table, t) for t in range(len(f.n_leaves)))
        np.testing.assert_allclose(wide[:, 1:6], right, **CLOSE)
        assert (wide[:, [0, 6, 7]] == 7).all()
        with pytest.raises(ValueError, match="next to each other"):
            f.rows(backend(2)).read_out(table, constant, None, 0, np.empty((5, f.n_rows)).T)


class TestMoments:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("columns", COLUMNS)
    def test_are_sums_under_sizes_of_read_out(self, backend: Any, dtype: type, weighted: bool, columns: int) -> None:
        f = forest(dtype)
        table, constant, w = f.normal(f.total, columns), f.normal(columns), f.weights(weighted)
        values, k = f.normal(f.n_rows, 4), np.empty((f.n_rows, columns))
        f.rows(backend(1)).read_out(table, constant, w, 0, k)
        out = np.full((2, columns, 4), 7.0)
        f.rows(backend(2)).moments(table, constant, w, values, out)
        for found, sizes in zip(out, (np.abs(k), k**2)):
            rounding = 1e-12 * (sizes.T @ np.abs(values))  # sums of either sign cancel
            assert (np.abs(found - sizes.T @ values) <= rounding).all()

    @pytest.mark.parametrize("columns", [1, 10, 130])
    def test_threads_do_not_matter(self, backend: Any, columns: int) -> None:
        f = forest(n_rows=50_001)
        table, constant, values = f.normal(f.total, columns), f.normal(columns), f.normal(f.n_rows, 3)
        outs = [np.empty((2, columns, 3)) for _ in range(3)]
        for n_threads, out in zip((1, 2, 5), outs):
            f.rows(backend(n_threads)).moments(table, constant, None, values, out)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])


class TestCooccurrence:
    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("n_rows", [1003, 30_000])
    def test_formula(self, backend: Any, dtype: type, weighted: bool, n_rows: int) -> None:
        f = forest(dtype, n_rows)
        w = f.weights(weighted)
        outs = [f.normal(f.total, f.total) for _ in range(2)]
        for n_threads, out in zip((1, 3), outs):
            f.rows(backend(n_threads)).cooccurrence(0, len(f.n_leaves), w, out)
        np.testing.assert_array_equal(outs[0], outs[1])
        for t in range(len(f.n_leaves)):
            for s in range(len(f.n_leaves)):
                right = f.one_hot(s).T @ (one(w) * f.one_hot(t)) if s < t else 0
                np.testing.assert_allclose(out[f.part(s), f.part(t)], right, **CLOSE)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_many_trees_of_many_leaves_in_uint32(self, backend: Any, weighted: bool) -> None:
        f = Forest(5000, [3, 40, 5] * 7 + [700, 1], np.uint32)
        w, out = f.weights(weighted), np.empty((f.total, f.total))
        f.rows(backend(2)).cooccurrence(0, len(f.n_leaves), w, out)
        hot = np.concatenate([f.one_hot(t) for t in range(len(f.n_leaves))], axis=1)
        right = hot.T @ (one(w) * hot)
        for t in range(len(f.n_leaves)):
            right[f.starts[t] :, f.part(t)] = 0
        np.testing.assert_allclose(out, right, **CLOSE)

    @pytest.mark.parametrize(("first", "last"), [(0, 7), (2, 6), (3, 4), (5, 5)])
    def test_some_trees(self, backend: Any, first: int, last: int) -> None:
        f = forest()
        w, whole = f.weights(True), np.empty((f.total, f.total))
        rows = f.rows(backend(2), w)
        rows.cooccurrence(0, 7, rows.weights, whole)
        own = slice(f.starts[first], f.starts[last])
        out = f.normal(own.stop - own.start, own.stop - own.start)
        rows.cooccurrence(first, last, rows.weights, out)
        np.testing.assert_array_equal(out, whole[own, own])


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

    @pytest.mark.parametrize(("n_rows", "columns", "k"), [(300_000, 1, 10), (40_000, 33, 5), (20_000, 3, 6000)])
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
        all_weights = one(weights) * (constant + sum(f.rows_of(table, t) for t in range(len(f.n_leaves))))
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


class TestReplay:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("single", [False, True])
    @pytest.mark.parametrize("single_score", [False, True])
    def test_formula(self, backend: Any, dtype: type, weighted: bool, single: bool, single_score: bool) -> None:
        f = forest(dtype, n_rows=20_003)
        values, targets, w = f.normal(f.total), f.normal(f.n_rows), f.weights(weighted)
        start, results = f.normal(f.n_rows), []
        for n_threads in (1, 2, 5):
            score, sums, counts = start.copy(), f.normal(f.total), f.normal(f.total)
            f.rows(backend(n_threads)).replay(values, targets, w, single, single_score, score, sums, counts)
            results.append((score, sums))
            rows = [np.bincount(f.leaves[t], minlength=n) for t, n in enumerate(f.n_leaves)]
            np.testing.assert_array_equal(counts, np.concatenate(rows))
        for other in results[1:]:
            np.testing.assert_array_equal(other[0], results[0][0])
            np.testing.assert_array_equal(other[1], results[0][1])
        expected = start.copy()
        for t in range(len(f.n_leaves)):
            rounded = np.float32 if single else np.float64
            residuals = (targets - expected).astype(rounded).astype(np.float64) * (1 if w is None else w)
            residuals = residuals.astype(rounded).astype(np.float64)
            np.testing.assert_allclose(sums[f.part(t)], f.leaf_sums(t, residuals[:, None])[:, 0], **CLOSE)
            expected += f.rows_of(values, t)
            expected = expected.astype(np.float32 if single_score else np.float64).astype(np.float64)
        np.testing.assert_array_equal(score, expected)  # the same additions in the same order

    def test_as_many_leaves_as_rows_take_turns_in_and_one_more(self, backend: Any) -> None:
        f = Forest(2000, [63, 64, 65], np.uint8)
        sums, counts = np.empty((2, f.total))
        f.rows(backend(1)).replay(np.zeros(f.total), np.ones(2000), None, False, False, np.zeros(2000), sums, counts)
        rows = [np.bincount(f.leaves[t], minlength=n) for t, n in enumerate(f.n_leaves)]
        np.testing.assert_array_equal(counts, np.concatenate(rows))
        np.testing.assert_array_equal(sums, counts)


class TestScaledReadOut:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("columns", COLUMNS)
    def test_formula(self, backend: Any, dtype: type, columns: int) -> None:
        f = forest(dtype)
        table, factors = f.normal(f.total, columns), f.normal(len(f.n_leaves), f.n_rows)
        expected = sum(factors[t][:, None] * f.rows_of(table, t) for t in range(len(f.n_leaves)))
        for first, n in [(0, f.n_rows), (17, 500), (f.n_rows - 1, 1), (f.n_rows, 0)]:
            out = f.normal(n, columns)
            part = np.ascontiguousarray(factors[:, first : first + n])
            f.rows(backend(2)).scaled_read_out(table, part, first, out)
            np.testing.assert_allclose(out, expected[first : first + n], **CLOSE)

    def test_threads_do_not_matter(self, backend: Any) -> None:
        f = forest(n_rows=50_001)
        table, factors = f.normal(f.total, 10), f.normal(len(f.n_leaves), f.n_rows)
        outs = [np.empty((f.n_rows, 10)) for _ in range(3)]
        for n_threads, out in zip((1, 2, 5), outs):
            f.rows(backend(n_threads)).scaled_read_out(table, factors, 0, out)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_some_trees(self, backend: Any, dtype: type) -> None:
        f = forest(dtype, n_rows=3003)
        trees, groups = np.array([5, 0, 2]), 4
        cells = np.concatenate([np.arange(f.starts[t], f.starts[t + 1]) for t in trees])
        whole, codes = f.normal(len(f.n_leaves), 2500), f.rng.integers(0, groups, 2500)
        others = np.zeros_like(whole)
        others[trees] = whole[trees]
        table, out, expected = f.normal(f.total, 9), np.empty((2500, 9)), np.empty((2500, 9))
        rows = f.rows(backend(2))
        rows.scaled_read_out(table[cells], whole[trees], 400, out, trees)
        rows.scaled_read_out(table, others, 400, expected)
        np.testing.assert_allclose(out, expected, **CLOSE)
        for some, own in ((None, np.arange(len(f.n_leaves))), (trees, trees)):
            n_cells = sum(f.n_leaves[t] for t in own)
            sums, again = np.ones((n_cells, groups)), np.ones((n_cells, groups))
            rows.factor_sums(whole[own], codes, 400, sums, some)
            rows.factor_sums(whole[own], codes, 400, again, some)
            parts = []
            for t in own:
                parts.append(np.ones((f.n_leaves[t], groups)))
                np.add.at(parts[-1], (f.leaves[t, 400:2900], codes), whole[t])
            np.testing.assert_allclose(sums, np.concatenate(parts), **CLOSE)
            np.testing.assert_array_equal(sums, again)
        with pytest.raises(ValueError, match="trees has"):
            rows.scaled_read_out(table[cells], whole[trees], 400, out, np.array([5, 0, 99]))
        with pytest.raises(ValueError, match="2500 rows from 600 on"):
            rows.factor_sums(whole[trees], codes, 600, np.zeros((len(cells), groups)), trees)

    def test_one_tree(self, backend: Any) -> None:
        f = forest(n_rows=3003)
        rows, v = f.rows(backend(2)), f.normal(f.n_rows, 5)
        sums = rows.leaf_sums(v, None)
        for t in (0, 3, len(f.n_leaves) - 1):
            own = rows.tree(t)
            assert (own.n_rows, own.n_cells, len(own.every)) == (f.n_rows, f.n_leaves[t], 1)
            np.testing.assert_array_equal(own.leaf_sums(v, None), sums[f.part(t)])
            state, table = v.copy(), f.normal(f.n_leaves[t], 5)
            own.sweep(state, own.every, table, None, own.every[:0], table, None)
            np.testing.assert_allclose(state, v + table[f.leaves[t]], **CLOSE)


class TestResidualFactors:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_formula(self, backend: Any, dtype: type) -> None:
        f = forest(dtype, n_rows=20_003)
        steps, levels, draws, start = f.normal(f.total), f.normal(f.total), f.normal(f.total), f.normal(f.n_rows)
        outs = [f.normal(len(f.n_leaves), f.n_rows) for _ in range(3)]
        for n_threads, out in zip((1, 2, 5), outs):
            f.rows(backend(n_threads)).residual_factors(steps, levels, draws, start, 0, out)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])
        residuals = start.copy()
        for t, out in enumerate(outs[0]):
            np.testing.assert_allclose(out, f.rows_of(draws, t) * (residuals - f.rows_of(levels, t)), **CLOSE)
            residuals -= f.rows_of(steps, t)
        part = np.empty((len(f.n_leaves), 500))
        f.rows(backend(2)).residual_factors(steps, levels, draws, start[17:517], 17, part)
        np.testing.assert_array_equal(part, outs[0][:, 17:517])


class TestGradientFactors:
    """Two rounds of two trees, one of them a tree of before that moves again, and a place that two terms share."""

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("link", LINKS)
    @pytest.mark.parametrize("product", [True, False])
    def test_formula(self, backend: Any, dtype: type, link: str, product: bool) -> None:
        f = forest(dtype, n_rows=3003)
        terms, moves = [(0, 0, 0), (2, 1, 1), (3, 1, 1), (5, 0, 2)], [(0, 0), (2, 1), (0, 0)]
        rounds = np.array([[0, 0], [2, 2], [4, 3]])
        scales, steps = ([f.rng.uniform(0.5, 2, f.n_leaves[t]) for t, *_ in some] for some in (terms, moves))
        draws = f.rng.integers(0, 3, f.leaves.shape).astype(np.uint8) if dtype is np.uint16 else None
        program = Program(
            rounds,
            np.array(terms),
            np.concatenate(scales),
            np.array(moves),
            np.concatenate(steps),
            draws,
            link,
            product,
        )
        intercepts, slopes = f.normal(2, f.n_rows), f.normal(2, f.n_rows)
        start = f.rng.uniform(1, 2, (2, f.n_rows))
        state, expected = start.copy(), np.zeros((4, f.n_rows))
        for (first_term, first_move), (last_term, last_move) in pairwise(rounds):
            linked = {"identity": state, "inverse": 1 / (1 + state), "share": state / state.sum(axis=0)}[link]
            g = intercepts + slopes * linked
            for (t, k, place), scale in list(zip(terms, scales))[first_term:last_term]:
                expected[place] += scale[f.leaves[t]] * g[k] * (1 if draws is None else draws[t])
            for (t, k), step in list(zip(moves, steps))[first_move:last_move]:
                state[k] = state[k] * step[f.leaves[t]] if product else state[k] + step[f.leaves[t]]
        outs = []
        for n_threads in (1, 2, 5):
            own, out = start.copy(), f.normal(4, f.n_rows)
            f.rows(backend(n_threads)).gradient_factors(program, intercepts, slopes, own, 0, out)
            np.testing.assert_allclose(own, state, **CLOSE)
            np.testing.assert_allclose(out, expected, **CLOSE)
            outs.append(out)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])
        part, own = np.empty((4, 500)), start[:, 17:517].copy()
        some = (np.ascontiguousarray(each[:, 17:517]) for each in (intercepts, slopes))
        f.rows(backend(2)).gradient_factors(program, *some, own, 17, part)
        np.testing.assert_array_equal(part, outs[0][:, 17:517])


class TestPairSums:
    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
    @pytest.mark.parametrize("scaled", [False, True])
    def test_formula(self, backend: Any, dtype: type, scaled: bool) -> None:
        f = forest(dtype, n_rows=20_003)
        table, n_trees = f.normal(f.total, f.total), len(f.n_leaves)
        factors = f.normal(n_trees, f.n_rows) if scaled else None
        place = f.starts[:-1, None] + f.leaves.astype(np.int64)
        expected = np.zeros(f.n_rows)
        for s in range(n_trees):
            own = sum(table[place[s], place[t]] for t in range(s, n_trees))
            expected += own if factors is None else factors[s] * own
        outs = [f.normal(f.n_rows) for _ in range(3)]
        for n_threads, out in zip((1, 2, 5), outs):
            f.rows(backend(n_threads)).pair_sums(table, factors, 0, out)
        np.testing.assert_allclose(outs[0], expected, **CLOSE)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])
        part = None if factors is None else np.ascontiguousarray(factors[:, 333:1333])
        out = f.normal(1000)
        f.rows(backend(2)).pair_sums(table, part, 333, out)
        np.testing.assert_allclose(out, expected[333:1333], **CLOSE)


class TestDeletions:
    """Numbers below one, and what trees send to each other small, so that nothing grows from tree to tree."""

    @staticmethod
    def arguments(f: Forest, outputs: int, levels: int, by_row: bool, in_turn: bool) -> dict[str, Any]:
        T, n_leaves = len(f.n_leaves), f.total // levels
        steps = f.rng.uniform(-0.2, 0.2, (T, T))
        return {
            "levels": levels,
            "table": f.rng.uniform(-0.2, 0.2, (n_leaves, n_leaves + 3))[:, :n_leaves],
            "factors": f.rng.uniform(-1, 1, (T * f.n_rows if by_row else f.total, 5)),
            "by_row": by_row,
            "values": f.normal(n_leaves, outputs),
            "slopes": f.normal(n_leaves),
            "steps": np.diag(np.diag(steps)) if in_turn else np.tril(steps),
            "drifts": np.zeros(T) if in_turn else f.normal(T),
            **{name: f.normal(outputs, f.n_rows) for name in ("start", "base", "changed")},
        }

    @staticmethod
    def expected(f: Forest, a: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and additions by the formula, each row's equations as they stand."""
        T, levels = len(f.n_leaves), a["levels"]
        counts = np.array(f.n_leaves)[:, None] // levels
        leaf = f.starts[:-1, None] // levels + f.leaves.astype(np.int64) % counts
        if a["by_row"]:
            factors = a["factors"].reshape(T, f.n_rows, 5)
        else:
            factors = a["factors"][f.starts[:-1, None] + f.leaves.astype(np.int64)]
        residuals = np.empty((len(a["start"]), T + 1, f.n_rows))
        q, x = np.zeros((2, len(a["start"]), T, f.n_rows))
        for k, r in enumerate(a["start"].copy()):
            for t in range(T):
                residuals[k, t] = r
                kept, drawn, weight, stiffer, constant = factors[t].T
                seen = a["values"][leaf[t], k] + a["changed"][k] * a["slopes"][leaf[t]]
                seen += sum((a["table"][leaf[t], leaf[s]] * x[k, s] for s in range(t)), np.zeros(f.n_rows))
                q[k, t] = kept * (seen - drawn * r)
                x[k, t] = -(weight * r + stiffer * q[k, t] + constant)
                r = r - a["steps"][t, : t + 1] @ q[k, : t + 1] - a["drifts"][t] * a["base"][k]
            residuals[k, T] = r
        return residuals, x

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(("outputs", "levels", "by_row", "in_turn"), [(1, 1, False, True), (3, 2, True, False)])
    def test_formula(self, backend: Any, dtype: type, outputs: int, levels: int, by_row: bool, in_turn: bool) -> None:
        n_leaves = [levels * n for n in (5, 1, 31, 17, 2, 120, 8, 3, 9)]  # an odd number of trees
        f = Forest(20_003, n_leaves, dtype)
        a = self.arguments(f, outputs, levels, by_row, in_turn)
        residuals, added = self.expected(f, a)
        found = [(f.normal(*residuals.shape), f.normal(*added.shape)) for _ in range(3)]
        for n_threads, (r, x) in zip((1, 2, 5), found):
            f.rows(backend(n_threads)).deletions(**a, first=0, residuals=r, added=x)
        np.testing.assert_allclose(found[0][0], residuals, **CLOSE)
        np.testing.assert_allclose(found[0][1], added, **CLOSE)
        for r, x in found[1:]:
            np.testing.assert_array_equal(r, found[0][0])
            np.testing.assert_array_equal(x, found[0][1])
        alone = f.normal(*residuals.shape), f.normal(*added.shape)
        f.rows(backend(2)).deletions(**a, first=0, residuals=alone[0], added=None)
        f.rows(backend(2)).deletions(**a, first=0, residuals=None, added=alone[1])
        np.testing.assert_array_equal(alone[0], found[0][0])
        np.testing.assert_array_equal(alone[1], found[0][1])

    def test_some_rows(self, backend: Any) -> None:
        f = forest(n_rows=900)
        a = self.arguments(f, 2, 1, False, True)
        _, added = self.expected(f, a)
        own, out = slice(333, 850), f.normal(2, len(f.n_leaves), 517)
        some = {name: np.ascontiguousarray(a[name][:, own]) for name in ("start", "base", "changed")}
        f.rows(backend(2)).deletions(**a | some, first=333, residuals=None, added=out)
        np.testing.assert_allclose(out, added[:, :, own], **CLOSE)

    def test_arrays_of_the_back_end(self, backend: Any) -> None:
        """They stay where they are; a table's rows lie apart there too."""
        f = forest(n_rows=900)
        rows, a = f.rows(backend(2)), self.arguments(f, 2, 1, True, False)
        residuals, added = self.expected(f, a)
        there = {name: rows.xp.asarray(one) if isinstance(one, np.ndarray) else one for name, one in a.items()}
        there["table"] = rows.xp.zeros((f.total, f.total + 2))[:, : f.total]
        there["table"][...] = rows.xp.asarray(a["table"])
        out = rows.xp.empty(residuals.shape)
        rows.deletions(**there, first=0, residuals=out, added=None)
        np.testing.assert_allclose(host(out), residuals, **CLOSE)
        out = rows.xp.empty(added.shape)
        rows.deletions(**there, first=0, residuals=None, added=out)
        np.testing.assert_allclose(host(out), added, **CLOSE)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"levels": 0}, "levels must be at least 1"),
            ({"levels": 2}, "no multiple of 2 levels"),
            ({"table": np.zeros((95, 94))}, "table"),
            ({"table": np.zeros((95, 95)).T[::-1]}, "next to each other"),
            ({"factors": np.zeros((95, 4))}, "factors"),
            ({"by_row": True}, "factors"),
            ({"values": np.zeros((95, 3))}, "values"),
            ({"slopes": np.zeros(94)}, "slopes"),
            ({"steps": np.zeros((7, 6))}, "steps"),
            ({"drifts": np.zeros(6)}, "drifts"),
            ({"base": np.zeros((2, 49))}, "base"),
            ({"changed": np.zeros((3, 50))}, "changed"),
            ({"first": 1}, "rows"),
            ({"residuals": np.zeros((2, 7, 50))}, "residuals"),
            ({"added": np.zeros((2, 8, 50))}, "added"),
        ],
    )
    def test_other_shapes(self, backend: Any, changes: dict[str, Any], message: str) -> None:
        f = forest(n_rows=50)
        a = self.arguments(f, 2, 1, False, True) | {"first": 0, "residuals": None, "added": None}
        with pytest.raises(ValueError, match=message):
            f.rows(backend(1)).deletions(**a | changes)


class TestTriangle:
    """Of sizes below, at and above the blocks that it is worked on in."""

    # Numbers below 1 / size off the diagonal: the inverse is of order one, and so are the errors' multiples of 1e-16.
    @staticmethod
    def factor(n: int) -> np.ndarray:
        return np.triu(np.random.default_rng(n).uniform(-1, 1, (n, n)) / max(n, 1), 1) + np.eye(n)

    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize(("n", "columns"), [(0, 2), (1, 3), (30, 0), (256, 1), (700, 5)])
    def test_solve(self, backend: Any, n: int, columns: int, transposed: bool) -> None:
        M, right = self.factor(n), np.random.default_rng(0).normal(size=(n, columns))
        solved = right.copy()
        backend(1).triangle(M).solve(solved, transposed)
        np.testing.assert_allclose((M.T if transposed else M) @ solved, right, **CLOSE)

    @pytest.mark.parametrize("n", [0, 1, 30, 256, 700])
    def test_inverse(self, backend: Any, n: int) -> None:
        M = self.factor(n)
        kept, given = M.copy(), M.copy()
        triangle = backend(1).triangle(given)
        found = host(triangle.inverse(overwrite=False))
        np.testing.assert_array_equal(given, kept)
        np.testing.assert_allclose(found @ M.T, np.eye(n), **CLOSE)
        np.testing.assert_array_equal(np.triu(found, 1), 0)
        np.testing.assert_array_equal(host(triangle.inverse(overwrite=True)), found)

    def test_what_is_below_the_diagonal_is_ignored(self, backend: Any) -> None:
        M, noise = self.factor(300), np.tril(np.random.default_rng(0).normal(size=(300, 300)), -1)
        for transposed in (False, True):
            clean, noisy = np.ones((300, 2)), np.ones((300, 2))
            backend(1).triangle(M).solve(clean, transposed)
            backend(1).triangle(M + noise).solve(noisy, transposed)
            np.testing.assert_array_equal(clean, noisy)
        clean, noisy = (host(backend(1).triangle(made).inverse(overwrite=True)) for made in (M.copy(), M + noise))
        np.testing.assert_array_equal(clean, noisy)


def test_back_ends_rows_and_triangles_are_pickled(backend: Any) -> None:
    f, w = forest(), np.ones(1003)
    made = backend(2)
    table, outs, solved = f.normal(f.total, 3), np.empty((2, f.n_rows, 3)), np.ones((2, 9, 1))
    for i, one_of in enumerate((lambda value: value, lambda value: pickle.loads(pickle.dumps(value)))):
        rows = one_of(f.rows(one_of(made), w))
        rows.read_out(table, np.zeros(3), rows.weights, 0, outs[i])
        one_of(made.triangle(TestTriangle.factor(9))).solve(solved[i], False)
    np.testing.assert_array_equal(*outs)
    np.testing.assert_array_equal(*solved)


def test_a_back_end_has_costs(backend: Any) -> None:
    assert all(cost > 0 for cost in astuple(backend(1).costs))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_rows", "n_leaves"), [(0, [3, 1]), (0, []), (5, []), (5, [1]), (1, [2])])
def test_nothing_or_next_to_nothing(backend: Any, dtype: type, n_rows: int, n_leaves: list[int]) -> None:
    f = Forest(n_rows, n_leaves, dtype)
    state, table, sums = f.normal(n_rows, 2), f.normal(f.total, 2), f.normal(f.total, 2)
    expected, every = state + sum(f.rows_of(table, t) for t in range(len(n_leaves))), np.arange(len(n_leaves))
    f.rows(backend(2)).sweep(state, every, table, None, every, sums, None)
    np.testing.assert_allclose(state, expected, **CLOSE)
    for t in every:
        np.testing.assert_allclose(sums[f.part(t)], f.leaf_sums(t, expected), **CLOSE)
    out = np.empty((n_rows, 2))
    f.rows(backend(2)).read_out(table, np.zeros(2), None, 0, out)
    np.testing.assert_allclose(out, sum((f.rows_of(table, t) for t in every), np.zeros((n_rows, 2))), **CLOSE)
    moments = np.full((2, 2, 1), 7.0)
    f.rows(backend(2)).moments(table, np.zeros(2), None, np.ones((n_rows, 1)), moments)
    np.testing.assert_allclose(moments[..., 0], [np.abs(out).sum(axis=0), np.square(out).sum(axis=0)], **CLOSE)
    pairs = f.normal(f.total, f.total)
    f.rows(backend(2)).cooccurrence(0, len(f.n_leaves), None, pairs)
    assert pairs.sum() == n_rows * len(n_leaves) * (len(n_leaves) - 1) / 2
    again = f.normal(n_rows, 2)
    f.rows(backend(2)).scaled_read_out(table, np.ones((len(n_leaves), n_rows)), 0, again)
    np.testing.assert_allclose(again, out, **CLOSE)
    diagonal = f.normal(n_rows)
    f.rows(backend(2)).pair_sums(np.ones((f.total, f.total)), None, 0, diagonal)
    np.testing.assert_array_equal(diagonal, len(n_leaves) * (len(n_leaves) + 1) / 2)
    score, seen, counts = np.zeros(n_rows), f.normal(f.total), f.normal(f.total)
    f.rows(backend(2)).replay(table[:, 0].copy(), np.ones(n_rows), None, False, False, score, seen, counts)
    assert counts.sum() == n_rows * len(n_leaves)
    np.testing.assert_allclose(score, out[:, 0], **CLOSE)
    assert f.total == 0 or n_rows or not seen.any()
    values, rows = np.zeros((2, 1)), np.full((2, 1), -1, np.int64)
    backend(2).top(out, 0, None, values, rows)
    assert (rows >= 0).all() == (n_rows > 0)
    again = np.full((2, 1), -1, np.int64)
    f.rows(backend(2)).top(table, np.zeros(2), None, None, values, again)
    np.testing.assert_array_equal(again, rows)


@given(
    n_rows=st.integers(0, 300),
    n_leaves=st.lists(st.integers(1, 60), max_size=9),
    columns=st.integers(0, 40),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_sweeping_every_tree_is_reading_out(
    backend: Any, n_rows: int, n_leaves: list[int], columns: int, dtype: type, seed: int
) -> None:
    f = Forest(n_rows, n_leaves, dtype, seed)
    table, constant, w = f.normal(f.total, columns), f.normal(columns), f.weights(True)
    state, sums, out = np.zeros((n_rows, columns)), np.zeros((f.total, columns)), np.empty((n_rows, columns))
    every = np.arange(len(n_leaves))
    f.rows(backend(2)).sweep(state, every, table, w, every[:2], sums, w)
    f.rows(backend(2)).read_out(table, constant, w, 0, out)
    np.testing.assert_allclose(out, state + one(w) * constant, **CLOSE)
    for t in every[:2]:
        np.testing.assert_allclose(sums[f.part(t)], f.leaf_sums(t, one(w) * state), **CLOSE)


class TestRefusals:
    """Wrong dtypes and layouts raise TypeError, wrong shapes ValueError: nothing is converted or read out of bounds."""

    def sweep(self, backend: Any, n_threads: int = 1, **changed: Any) -> None:
        f = forest(n_rows=50)
        arguments = {
            "cells": f.leaves,
            "starts": f.starts,
            "state": np.zeros((50, 4)),
            "apply": trees(0),
            "table": np.zeros((f.total, 4)),
            "apply_weights": None,
            "gather": trees(1),
            "sums": np.zeros((f.total, 4)),
            "gather_weights": None,
        } | changed
        backend(n_threads).rows(arguments.pop("cells"), arguments.pop("starts")).sweep(**arguments)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("cells", np.zeros((7, 50), np.int64)),
            ("cells", np.zeros((50, 7), np.uint8).T),
            ("starts", np.zeros(8, np.int32)),
            ("state", np.zeros((50, 4), np.float32)),
            ("state", np.zeros((4, 50)).T),
            ("state", np.zeros((50, 8))[:, ::2]),
            ("state", np.broadcast_to(0.0, (50, 4))),
            ("state", None),
            ("apply", np.zeros(1, np.int32)),
            ("table", np.zeros((95, 4), np.float32)),
            ("apply_weights", np.ones(50, np.float32)),
            ("gather_weights", np.ones(100)[::2]),
            ("sums", np.asfortranarray(np.zeros((95, 4)))),
        ],
    )
    def test_type_or_layout(self, backend: Any, name: str, value: Any) -> None:
        with pytest.raises(TypeError):
            self.sweep(backend, **{name: value})

    def test_read_only_output(self, backend: Any) -> None:
        sums = np.zeros((95, 4))
        sums.setflags(write=False)
        with pytest.raises(TypeError):
            self.sweep(backend, sums=sums)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("starts", np.arange(7), "starts has length 7 where 8 is expected"),
            ("starts", np.arange(1, 9), "begin with 0"),
            ("starts", trees(0, 5, 6, 37, 30, 31, 32, 95), "tree 3 has no leaves"),
            ("state", np.zeros((49, 4)), r"state has shape \(49, 4\) where \(50, 4\) is expected"),
            ("table", np.zeros((94, 4)), "table has shape"),
            ("sums", np.zeros((95, 3)), "sums has shape"),
            ("apply", trees(7), "apply has tree 7, but there are 7 trees"),
            ("gather", trees(-1), "gather has tree -1"),
            ("apply_weights", np.ones(49), "apply_weights has length 49"),
            ("gather_weights", np.ones(51), "gather_weights has length 51"),
            ("n_threads", 0, "n_threads"),
        ],
    )
    def test_shape(self, backend: Any, name: str, value: Any, message: str) -> None:
        if name == "n_threads" and backend is gpu:
            pytest.skip("threads are the CPU's")
        with pytest.raises(ValueError, match=message):
            self.sweep(backend, **{name: value})

    @pytest.mark.parametrize(("first", "n"), [(-1, 3), (0, 51), (48, 3), (2**62, 1)])
    def test_rows_to_read_out(self, backend: Any, first: int, n: int) -> None:
        f = forest(n_rows=50)
        with pytest.raises(ValueError, match="rows"):
            f.rows(backend(1)).read_out(np.zeros((95, 2)), np.zeros(2), None, first, np.zeros((n, 2)))

    def test_other_shapes(self, backend: Any) -> None:
        f = forest(n_rows=50)
        with pytest.raises(ValueError, match="constant"):
            f.rows(backend(1)).read_out(np.zeros((95, 2)), np.zeros(3), None, 0, np.zeros((50, 2)))
        with pytest.raises(ValueError, match="values"):
            f.rows(backend(1)).moments(np.zeros((95, 2)), np.zeros(2), None, np.zeros((49, 3)), np.zeros((2, 2, 3)))
        with pytest.raises(ValueError, match=r"\(2, 2, 3\)"):
            f.rows(backend(1)).moments(np.zeros((95, 2)), np.zeros(2), None, np.zeros((50, 3)), np.zeros((2, 3, 2)))
        with pytest.raises(ValueError, match="out"):
            f.rows(backend(1)).cooccurrence(0, len(f.n_leaves), None, np.zeros((95, 94)))
        with pytest.raises(ValueError, match="factors"):
            f.rows(backend(1)).scaled_read_out(np.zeros((95, 2)), np.zeros((7, 49)), 0, np.zeros((50, 2)))
        with pytest.raises(ValueError, match="rows"):
            f.rows(backend(1)).scaled_read_out(np.zeros((95, 2)), np.zeros((7, 9)), 42, np.zeros((9, 2)))
        with pytest.raises(ValueError, match="table"):
            f.rows(backend(1)).pair_sums(np.zeros((95, 94)), None, 0, np.zeros(50))
        with pytest.raises(ValueError, match="factors"):
            f.rows(backend(1)).pair_sums(np.zeros((95, 95)), np.zeros((6, 50)), 0, np.zeros(50))
        with pytest.raises(ValueError, match="targets"):
            f.rows(backend(1)).replay(np.zeros(95), np.zeros(49), None, False, False, np.zeros(50), *np.zeros((2, 95)))
        rows = np.full((2, 3), -1, np.int64)
        with pytest.raises(ValueError, match="values"):
            backend(1).top(np.zeros((5, 2)), 0, None, np.zeros((3, 3)), rows)
        with pytest.raises(ValueError, match="scale"):
            backend(1).top(np.zeros((5, 2)), 6, np.ones(10), np.zeros((2, 3)), rows)
        with pytest.raises(ValueError, match="beyond the end of scale"):
            backend(1).top(np.zeros((5, 2)), 0, np.ones(10), np.zeros((2, 3)), rows + 11)


def test_instruction_set() -> None:
    assert _core.instruction_set() in {"x86-64-v4", "x86-64-v3", "baseline"}


INTERRUPTED = """
import signal, time
import numpy as np
from {module} import {name}

leaves = np.zeros((2000, 200_000), np.uint8)
starts = np.arange(2001)
out = np.empty((200_000, 16))
table = np.zeros((2000, 16))
began = time.perf_counter()
signal.setitimer(signal.ITIMER_REAL, 0.1)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    while True:  # the alarm falls into some call of many chunks
        {name}(2).rows(leaves, starts).read_out(table, np.zeros(16), None, 0, out)
except KeyboardInterrupt:
    print(time.perf_counter() - began)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm on this system")
def test_an_interrupt_is_noticed(backend: Any) -> None:
    if backend is gpu:
        gpu(1)
    script = INTERRUPTED.format(module=backend.__module__, name=backend.__name__)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert float(run.stdout) < 10

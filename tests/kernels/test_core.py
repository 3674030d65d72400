"""Every kernel of every back end against its formula in NumPy, one thread against several.

The largest values, the factors of questions and refusals are in files of their own.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axil import _core
from axil.machine.arrays import host
from tests.devices import gpu
from tests.kernels.forests import CLOSE, COLUMNS, DTYPES, Forest, forest, one, trees


class TestSweep:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("columns", COLUMNS)
    def test_formula(self, backend: Any, dtype: type, weighted: bool, columns: int) -> None:
        f = forest(dtype)
        a, g = f.weights(weighted), f.weights(weighted)
        state, table, sums = (
            f.normal(f.n_rows, columns),
            f.normal(f.total, columns),
            f.normal(f.total, columns),
        )
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
    def test_either_list_may_be_empty(
        self, backend: Any, apply: tuple[int, ...], gather: tuple[int, ...]
    ) -> None:
        f = forest()
        state, table, sums = f.normal(f.n_rows, 3), f.normal(f.total, 3), np.zeros((f.total, 3))
        expected = state + (f.rows_of(table, 4) if apply else 0)
        f.rows(backend(2)).sweep(state, trees(*apply), table, None, trees(*gather), sums, None)
        np.testing.assert_allclose(state, expected, **CLOSE)
        np.testing.assert_allclose(
            sums[f.part(2)], f.leaf_sums(2, expected) if gather else 0, **CLOSE
        )

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
            f.rows(backend(n_threads)).sweep(
                state, trees(3), table, None, trees(0, 2, 5), sums, None
            )
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
        table, constant, wide = (
            f.normal(f.total, 9)[:, 2:7],
            f.normal(5),
            np.full((f.n_rows, 8), 7.0),
        )
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
    def test_are_sums_under_sizes_of_read_out(
        self, backend: Any, dtype: type, weighted: bool, columns: int
    ) -> None:
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
        table, constant, values = (
            f.normal(f.total, columns),
            f.normal(columns),
            f.normal(f.n_rows, 3),
        )
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


class TestReplay:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("single", [False, True])
    @pytest.mark.parametrize("single_score", [False, True])
    def test_formula(
        self, backend: Any, dtype: type, weighted: bool, single: bool, single_score: bool
    ) -> None:
        f = forest(dtype, n_rows=20_003)
        values, targets, w = f.normal(f.total), f.normal(f.n_rows), f.weights(weighted)
        start, results = f.normal(f.n_rows), []
        for n_threads in (1, 2, 5):
            score, sums, counts = start.copy(), f.normal(f.total), f.normal(f.total)
            f.rows(backend(n_threads)).replay(
                values, targets, w, single, single_score, score, sums, counts
            )
            results.append((score, sums))
            rows = [np.bincount(f.leaves[t], minlength=n) for t, n in enumerate(f.n_leaves)]
            np.testing.assert_array_equal(counts, np.concatenate(rows))
        for other in results[1:]:
            np.testing.assert_array_equal(other[0], results[0][0])
            np.testing.assert_array_equal(other[1], results[0][1])
        expected = start.copy()
        for t in range(len(f.n_leaves)):
            rounded = np.float32 if single else np.float64
            residuals = (targets - expected).astype(rounded).astype(np.float64) * (
                1 if w is None else w
            )
            residuals = residuals.astype(rounded).astype(np.float64)
            np.testing.assert_allclose(
                sums[f.part(t)], f.leaf_sums(t, residuals[:, None])[:, 0], **CLOSE
            )
            expected += f.rows_of(values, t)
            expected = expected.astype(np.float32 if single_score else np.float64).astype(
                np.float64
            )
        np.testing.assert_array_equal(score, expected)  # the same additions in the same order

    def test_as_many_leaves_as_rows_take_turns_in_and_one_more(self, backend: Any) -> None:
        f = Forest(2000, [63, 64, 65], np.uint8)
        sums, counts = np.empty((2, f.total))
        f.rows(backend(1)).replay(
            np.zeros(f.total), np.ones(2000), None, False, False, np.zeros(2000), sums, counts
        )
        rows = [np.bincount(f.leaves[t], minlength=n) for t, n in enumerate(f.n_leaves)]
        np.testing.assert_array_equal(counts, np.concatenate(rows))
        np.testing.assert_array_equal(sums, counts)


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
        clean, noisy = (
            host(backend(1).triangle(made).inverse(overwrite=True))
            for made in (M.copy(), M + noise)
        )
        np.testing.assert_array_equal(clean, noisy)


def test_back_ends_rows_and_triangles_are_pickled(backend: Any) -> None:
    f, w = forest(), np.ones(1003)
    made = backend(2)
    table, outs, solved = f.normal(f.total, 3), np.empty((2, f.n_rows, 3)), np.ones((2, 9, 1))
    for i, one_of in enumerate(
        (lambda value: value, lambda value: pickle.loads(pickle.dumps(value)))
    ):
        rows = one_of(f.rows(one_of(made), w))
        rows.read_out(table, np.zeros(3), rows.weights, 0, outs[i])
        one_of(made.triangle(TestTriangle.factor(9))).solve(solved[i], False)
    np.testing.assert_array_equal(*outs)
    np.testing.assert_array_equal(*solved)


def test_a_back_end_has_costs(backend: Any) -> None:
    assert all(cost > 0 for cost in astuple(backend(1).costs))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n_rows", "n_leaves"), [(0, [3, 1]), (0, []), (5, []), (5, [1]), (1, [2])]
)
def test_nothing_or_next_to_nothing(
    backend: Any, dtype: type, n_rows: int, n_leaves: list[int]
) -> None:
    f = Forest(n_rows, n_leaves, dtype)
    state, table, sums = f.normal(n_rows, 2), f.normal(f.total, 2), f.normal(f.total, 2)
    expected, every = (
        state + sum(f.rows_of(table, t) for t in range(len(n_leaves))),
        np.arange(len(n_leaves)),
    )
    f.rows(backend(2)).sweep(state, every, table, None, every, sums, None)
    np.testing.assert_allclose(state, expected, **CLOSE)
    for t in every:
        np.testing.assert_allclose(sums[f.part(t)], f.leaf_sums(t, expected), **CLOSE)
    out = np.empty((n_rows, 2))
    f.rows(backend(2)).read_out(table, np.zeros(2), None, 0, out)
    np.testing.assert_allclose(
        out, sum((f.rows_of(table, t) for t in every), np.zeros((n_rows, 2))), **CLOSE
    )
    moments = np.full((2, 2, 1), 7.0)
    f.rows(backend(2)).moments(table, np.zeros(2), None, np.ones((n_rows, 1)), moments)
    np.testing.assert_allclose(
        moments[..., 0], [np.abs(out).sum(axis=0), np.square(out).sum(axis=0)], **CLOSE
    )
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
    f.rows(backend(2)).replay(
        table[:, 0].copy(), np.ones(n_rows), None, False, False, score, seen, counts
    )
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
    state, sums, out = (
        np.zeros((n_rows, columns)),
        np.zeros((f.total, columns)),
        np.empty((n_rows, columns)),
    )
    every = np.arange(len(n_leaves))
    f.rows(backend(2)).sweep(state, every, table, w, every[:2], sums, w)
    f.rows(backend(2)).read_out(table, constant, w, 0, out)
    np.testing.assert_allclose(out, state + one(w) * constant, **CLOSE)
    for t in every[:2]:
        np.testing.assert_allclose(sums[f.part(t)], f.leaf_sums(t, one(w) * state), **CLOSE)


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
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    assert float(run.stdout) < 10

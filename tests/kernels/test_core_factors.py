"""Kernels of single questions: scaled read-outs, factors of residuals and gradients, pairs and deletions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from axil import _core
from axil.kernels import LINKS, Program
from axil.kernels.cpu import Cpu, drawn_sums, leaf_rows, ranges, refit_rounds
from axil.machine.arrays import host
from axil.structure import NewtonRule
from tests.kernels.forests import CLOSE, COLUMNS, DTYPES, Forest, forest


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
        steps, levels, draws, start = (
            f.normal(f.total),
            f.normal(f.total),
            f.normal(f.total),
            f.normal(f.n_rows),
        )
        outs = [f.normal(len(f.n_leaves), f.n_rows) for _ in range(3)]
        for n_threads, out in zip((1, 2, 5), outs):
            f.rows(backend(n_threads)).residual_factors(steps, levels, draws, start, 0, out)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])
        residuals = start.copy()
        for t, out in enumerate(outs[0]):
            np.testing.assert_allclose(
                out, f.rows_of(draws, t) * (residuals - f.rows_of(levels, t)), **CLOSE
            )
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
        scales, steps = (
            [f.rng.uniform(0.5, 2, f.n_leaves[t]) for t, *_ in some] for some in (terms, moves)
        )
        draws = (
            f.rng.integers(0, 3, f.leaves.shape).astype(np.uint8) if dtype is np.uint16 else None
        )
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
            linked = {
                "identity": state,
                "inverse": 1 / (1 + state),
                "share": state / state.sum(axis=0),
            }[link]
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


class TestGradientSums:
    """Sums over leaves of what the same walk writes down, each term in a place of its own."""

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("link", LINKS)
    def test_formula(self, dtype: type, link: str) -> None:
        f = forest(dtype, n_rows=20_003)
        terms, moves = [(0, 0, 3), (2, 1, 1), (3, 1, 0), (0, 1, 2)], [(0, 0), (2, 1)]
        scales, steps = (
            [f.rng.uniform(0.5, 2, f.n_leaves[t]) for t, *_ in some] for some in (terms, moves)
        )
        lists = (
            np.array([[0, 0], [2, 2], [4, 2]]),
            np.array(terms),
            np.concatenate(scales),
            np.array(moves),
        )
        draws = (
            f.rng.integers(0, 3, f.leaves.shape).astype(np.uint8) if dtype is np.uint16 else None
        )
        program = Program(*lists, np.concatenate(steps), draws, link, True)
        given, start = (
            (f.normal(2, f.n_rows), f.normal(2, f.n_rows)),
            f.rng.uniform(1, 2, (2, f.n_rows)),
        )
        factors = np.empty((4, f.n_rows))
        Cpu(2).rows(f.leaves, f.starts).gradient_factors(program, *given, start.copy(), 0, factors)
        put = [(f.leaves[t], factors[place], int(f.n_leaves[t])) for t, _, place in terms]
        expected = [
            np.stack([np.bincount(leaf, own, n), np.bincount(leaf, abs(own), n)], 1)
            for leaf, own, n in put
        ]
        outs = []
        for n_threads in (1, 2, 5):
            sums = np.ones((len(program.scales), 2))  # which is added to
            Cpu(n_threads).rows(f.leaves, f.starts).gradient_sums(
                program, *given, start.copy(), 0, sums
            )
            np.testing.assert_allclose(sums - 1, np.concatenate(expected), rtol=1e-10, atol=1e-10)
            outs.append(sums)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])


class TestRefitRounds:
    """Three rounds of two fits: a tree whose leaves moved rows before, two terms of one round, a round without moves."""

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("link", ["inverse", "share"])
    @pytest.mark.parametrize("curvature", [0.0, 0.7])
    def test_formula(self, dtype: type, link: str, curvature: float) -> None:
        f = forest(dtype, n_rows=20_003)
        moves, terms = [(0, 0), (2, 1), (0, 1)], [(0, 0), (2, 1), (3, 1), (5, 0)]
        rounds = np.array([[0, 0], [0, 2], [2, 3], [3, 4]])
        steps = [f.rng.uniform(0.5, 2, (2, f.n_leaves[t])) for t, _ in moves]
        draws = (
            f.rng.integers(0, 3, f.leaves.shape).astype(np.uint8) if dtype is np.uint16 else None
        )
        intercepts, slopes, weights = (
            f.normal(2, f.n_rows),
            f.normal(2, f.n_rows),
            f.rng.uniform(0, 2, (2, f.n_rows)),
        )
        start = f.rng.uniform(1, 2, (2, 2, f.n_rows))
        state, expected = start.copy(), []
        for (first_move, first_term), (last_move, last_term) in pairwise(rounds):
            for (t, k), step in list(zip(moves, steps))[first_move:last_move]:
                state[:, k] *= step[:, f.leaves[t]]
            p = 1 / (1 + state) if link == "inverse" else state / state.sum(axis=1, keepdims=True)
            for t, k in terms[first_term:last_term]:
                w = weights * (1 if draws is None else draws[t])
                g, h = (
                    w * (intercepts[k] + slopes[k] * p[:, k]),
                    w * (curvature * p * (1 - p) if curvature else 1 + 0 * p)[:, k],
                )
                sums = [
                    [np.bincount(f.leaves[t], each[c], f.n_leaves[t]) for each in (g, h)]
                    for c in range(2)
                ]
                expected.append(np.transpose(sums, (0, 2, 1)))
        lists = rounds, np.array(moves), np.concatenate(steps, axis=1), np.array(terms)
        outs = []
        for n_threads in (1, 2, 5):
            own, sums = start.copy(), np.empty((2, sum(f.n_leaves[t] for t, _ in terms), 2))
            given = link, curvature, intercepts, slopes, weights, draws, own, sums, n_threads
            refit_rounds(f.leaves, f.starts, *lists, *given)
            np.testing.assert_allclose(own, state, **CLOSE)
            np.testing.assert_allclose(sums, np.concatenate(expected, axis=1), **CLOSE)
            outs.append(sums)
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])
        one_by_one, own = [], start.copy()
        for i in range(3):
            (a, b), (c, d) = rounds[i : i + 2]
            part = np.array([[0, 0], [c - a, d - b]])
            some = np.concatenate([np.zeros((2, 0)), *steps[a:c]], axis=1)
            sums = np.empty((2, sum(f.n_leaves[t] for t, _ in terms[b:d]), 2))
            given = link, curvature, intercepts, slopes, weights, draws, own, sums, 2
            moved, asked = (
                np.array(each, dtype=np.int64).reshape(-1, 2) for each in (moves[a:c], terms[b:d])
            )
            refit_rounds(f.leaves, f.starts, part, moved, some, asked, *given)
            one_by_one.append(sums)
        np.testing.assert_array_equal(np.concatenate(one_by_one, axis=1), outs[0])

    def test_rounds_that_do_not_fit(self) -> None:
        f = forest(np.uint8, n_rows=50)
        ones, none = np.ones((1, 50)), np.zeros((0, 2), dtype=np.int64)
        for rounds in ([[0, 0]], [[0, 0], [0, 2]], [[0, 1], [0, 1]], [[0, 0], [1, 1]]):
            given = (
                "inverse",
                1.0,
                ones,
                ones,
                ones,
                None,
                np.ones((1, 1, 50)),
                np.empty((1, int(f.n_leaves[0]), 2)),
                1,
            )
            with pytest.raises(ValueError, match="rounds must"):
                refit_rounds(
                    f.leaves,
                    f.starts,
                    np.array(rounds),
                    none,
                    np.zeros((1, 0)),
                    np.array([[0, 0]]),
                    *given,
                )


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
    def arguments(
        f: Forest, outputs: int, levels: int, weighted: bool, in_turn: bool
    ) -> dict[str, Any]:
        """Leaves of any kind: constant ones, some that no weight is left in, after one or three steps, with and without l2."""
        T, n_leaves = len(f.n_leaves), f.total // levels
        steps = f.rng.uniform(-0.2, 0.2, (T, T))
        weight = f.rng.choice([0.5, 2.0, 3.0], n_leaves)
        scale = f.rng.choice([0.0, 0.6, 0.8, 1.1], n_leaves)
        l2, newton = f.rng.choice([0.0, 1.5], n_leaves), f.rng.choice([1.0, 3.0], n_leaves)
        l2[scale == 0] = np.inf
        return {
            "levels": levels,
            "table": f.rng.uniform(-0.2, 0.2, (n_leaves, n_leaves + 3))[:, :n_leaves],
            "rules": np.stack([weight, 1e-15 * weight, scale, l2, newton], axis=1),
            "shifts": f.normal(n_leaves) if weighted else None,
            "draws": np.array([0.5, 0.0])[:levels],
            "weights": f.rng.uniform(0.5, 1.0, f.n_rows) if weighted else None,
            "values": f.normal(n_leaves, outputs),
            "slopes": f.normal(n_leaves),
            "steps": np.diag(np.diag(steps)) if in_turn else np.tril(steps),
            "drifts": np.zeros(T) if in_turn else f.normal(T),
            **{name: f.normal(outputs, f.n_rows) for name in ("start", "base", "changed")},
        }

    @staticmethod
    def factors(a: dict[str, Any], leaf: np.ndarray, level: np.ndarray) -> np.ndarray:
        """(T, rows, 5): of rows in these leaves and levels."""
        weight = a["draws"][level] * (1.0 if a["weights"] is None else a["weights"])
        whole, least, scale, l2, steps = a["rules"][leaf].transpose(2, 0, 1)
        left = np.where(whole - weight > least, whole - weight, 0.0)
        after = NewtonRule(l2, steps).scale(left)
        after[(scale == 0) | ((left == 0) & (a["shifts"] is not None))] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(scale == 0, 1.0, after / scale)
            stiffer = np.where(after == 0, 0.0, np.where(steps > 1, 1 / after - 1 / scale, -weight))
            lost = np.zeros_like(after) if a["shifts"] is None else a["shifts"][leaf] / scale
        return np.stack(
            [
                kept,
                scale * weight,
                weight,
                stiffer,
                np.where((after == 0) & (scale > 0), lost, 0.0),
            ],
            axis=2,
        )

    @staticmethod
    def expected(f: Forest, a: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Residuals and additions by the formula, each row's equations as they stand."""
        T, levels = len(f.n_leaves), a["levels"]
        counts = np.array(f.n_leaves)[:, None] // levels
        level, leaf = np.divmod(f.leaves.astype(np.int64), counts)
        leaf += f.starts[:-1, None] // levels
        factors = TestDeletions.factors(a, leaf, level)
        residuals = np.empty((len(a["start"]), T + 1, f.n_rows))
        q, x = np.zeros((2, len(a["start"]), T, f.n_rows))
        for k, r in enumerate(a["start"].copy()):
            for t in range(T):
                residuals[k, t] = r
                kept, drawn, weight, stiffer, constant = factors[t].T
                seen = a["values"][leaf[t], k] + a["changed"][k] * a["slopes"][leaf[t]]
                seen += sum(
                    (a["table"][leaf[t], leaf[s]] * x[k, s] for s in range(t)), np.zeros(f.n_rows)
                )
                q[k, t] = kept * (seen - drawn * r)
                x[k, t] = -(weight * r + stiffer * q[k, t] + constant)
                r = r - a["steps"][t, : t + 1] @ q[k, : t + 1] - a["drifts"][t] * a["base"][k]
            residuals[k, T] = r
        return residuals, x

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(
        ("outputs", "levels", "weighted", "in_turn"), [(1, 1, False, True), (3, 2, True, False)]
    )
    def test_formula(
        self, backend: Any, dtype: type, outputs: int, levels: int, weighted: bool, in_turn: bool
    ) -> None:
        n_leaves = [levels * n for n in (5, 1, 31, 17, 2, 120, 8, 3, 9)]  # an odd number of trees
        f = Forest(20_003, n_leaves, dtype)
        a = self.arguments(f, outputs, levels, weighted, in_turn)
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
        some = {
            name: np.ascontiguousarray(a[name][:, own]) for name in ("start", "base", "changed")
        }
        f.rows(backend(2)).deletions(**a | some, first=333, residuals=None, added=out)
        np.testing.assert_allclose(out, added[:, :, own], **CLOSE)

    def test_arrays_of_the_back_end(self, backend: Any) -> None:
        """They stay where they are; a table's rows lie apart there too."""
        f = forest(n_rows=900)
        rows, a = f.rows(backend(2)), self.arguments(f, 2, 1, True, False)
        residuals, added = self.expected(f, a)
        there = {
            name: rows.xp.asarray(one) if isinstance(one, np.ndarray) else one
            for name, one in a.items()
        }
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
            ({"rules": np.zeros((95, 4))}, "rules"),
            ({"shifts": np.zeros(94)}, "shifts"),
            ({"draws": np.zeros(2)}, "draws"),
            ({"weights": np.zeros(49)}, "weights"),
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_drawn_sums(dtype: type) -> None:
    f = forest(dtype)
    draws, values = f.rng.integers(0, 3, f.n_rows).astype(np.float64), f.normal(f.n_rows, 3)
    for leaves, n in zip(f.leaves, f.n_leaves):
        sums, counts = drawn_sums(leaves, draws, values, n)
        expected = [np.bincount(leaves, draws * column, n) for column in values.T]
        np.testing.assert_allclose(sums, np.stack(expected, axis=1), **CLOSE)
        np.testing.assert_array_equal(counts, np.bincount(leaves, draws > 0, n))
    for wrong, match in ((draws[1:], "draws"), (draws, "values")):
        with pytest.raises(ValueError, match=match):
            drawn_sums(
                f.leaves[0], wrong, values[: len(values) - (match == "values")], f.n_leaves[0]
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranges(dtype: type) -> None:
    f = forest(dtype)
    values = f.normal(f.n_rows, 3)
    values[f.rng.random(values.shape) < 0.2] = np.nan
    values[0, 0], values[1, 1] = np.inf, -np.inf
    for leaves, n in zip(f.leaves, f.n_leaves):
        low, high = ranges(leaves, values, n + 1)  # of which the last has no rows
        frame = pd.DataFrame(values).groupby(leaves)
        np.testing.assert_array_equal(low, frame.min().reindex(range(n + 1)))
        np.testing.assert_array_equal(high, frame.max().reindex(range(n + 1)))
    with pytest.raises(ValueError, match="values"):
        ranges(f.leaves[0], values[1:], f.n_leaves[0])


class TestLeafRows:
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("by_leaf", [False, True])
    def test_formula(self, dtype: type, weighted: bool, by_leaf: bool) -> None:
        f = forest(dtype)
        n_leaves, weights, factors = np.array(f.n_leaves), f.weights(weighted), f.normal(f.total)
        levels = 3 if n_leaves.max() * 3 <= np.iinfo(dtype).max else 1
        level = f.rng.integers(levels, size=f.leaves.shape)
        cells = (f.leaves + level * n_leaves[:, None]).astype(dtype)
        draws = f.normal(levels, f.total if by_leaf else 1)
        draws[levels - 1] = 0.0 if levels > 1 else 1.0  # not entries
        for n_threads in (1, 3):
            data, rows, ends = leaf_rows(cells, f.starts, draws, weights, factors, n_threads)
            assert (ends[0], ends[-1]) == (0, len(data))
            for t in range(len(n_leaves)):
                at = f.starts[t] + f.leaves[t].astype(np.int64)
                drawn = draws[level[t], at if by_leaf else 0]
                entries = (np.ones(f.n_rows) if weights is None else weights) * drawn * factors[at]
                for leaf in range(f.starts[t], f.starts[t + 1]):
                    own = np.flatnonzero((at == leaf) & (entries != 0))
                    part = slice(ends[leaf], ends[leaf + 1])
                    assert np.array_equal(rows[part], own)
                    assert np.array_equal(data[part], entries[own])

    def test_refusals(self) -> None:
        f = forest()
        data, rows, ends = leaf_rows(f.leaves, f.starts, np.ones((1, 1)), None, np.ones(f.total))
        given = f.leaves, f.starts, np.ones((1, 1)), None, np.ones(f.total)
        for wrong, match in (
            ((ends[:-1], data, rows), "ends"),
            ((ends[::-1].copy(), data, rows), "increase"),
            ((ends, data, rows[1:]), "rows"),
            ((np.minimum(ends, 5), data, rows), "room"),
        ):
            with pytest.raises(ValueError, match=match):
                _core.leaf_rows(*given, *wrong, 1)
        with pytest.raises(ValueError, match="draws"):
            _core.leaf_rows(f.leaves, f.starts, np.ones((1, 2)), *given[3:], ends, data, rows, 1)

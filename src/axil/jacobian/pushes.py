"""Pushes: what each training row's own gradient put into a score; with the base they add up to it, for any loss.

With g_sj the gradient that stage s, one step of one tree, saw of row j, c_sj what multiplies its weight there, v the leaf's value
and G its sum of ``w c g``, a row puts ``-w_j c_sj g_sj share_s[l]``, ``share = -v / G``, into its leaf's value, and so into the
score of every x in the leaf:

    push_j(x) = sum_s coefficient_s [leaf_s(j) = leaf_s(x)] (-w_j c_sj g_sj share_s[leaf_s(j)])
    base + sum_j push_j(x) = F(x)

L1 and clips are in the share; a leaf that solves for all outputs together has a matrix in its place. Given the model's own leaf
values a row's scores before every tree depend on that row alone, so blocks of rows are walked and read out: nothing of size
(T, N) or (n, N) exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from axil.errors import ExactnessError
from axil.jacobian.stages import Walked
from axil.kernels import Program
from axil.kernels.cpu import Cpu
from axil.machine.progress import track
from axil.types import Array, Leaves

BLOCK_ENTRIES = 1 << 21  # factors held at a time, over all trees and outputs
LARGEST = 300.0  # of |a F|: far from where exp(a F) overflows
EXACT = 1e-6  # of the largest score: how closely pushes add up

CHANGED = "The model may have changed since the explainer was made: make a new one."


@dataclass(frozen=True)
class Term:
    """One stage, ready for blocks of rows."""

    round: int
    tree: int
    output: int
    place: int  #: of its tree among those of its output
    scale: Array  #: (L_t,) or (L_t, K): what ``w c g``, or its column m, is multiplied by


@dataclass(frozen=True)
class Pushes:
    """The account of every score of one replayed fit. Nothing in it changes after it is made."""

    walked: Walked
    n_threads: int

    # -- what the model says --------------------------------------------------------------------------------------------

    @property
    def base(self) -> Array:
        """(K,): where every score starts; the scores of rows that no row pushes."""
        return self.walked.base

    @property
    def n_outputs(self) -> int:
        """K."""
        return int(self.walked.targets.shape[1])

    @cached_property
    def trees(self) -> list[NDArray[np.intp]]:
        """For each output the trees that serve it, in order."""
        smooth, T = self.walked.smooth, len(self.walked.leaves)
        if smooth.shared:
            return [np.arange(T)] * self.n_outputs
        return [np.flatnonzero(smooth.outputs == k) for k in range(self.n_outputs)]

    def scores(self, queries: Leaves) -> Array:
        """(n, K): sums of the model's own leaf values in these leaves, (n, T)."""
        w, trees = self.walked, self.walked.smooth.trees
        made = self.base + np.zeros((len(queries), self.n_outputs))
        for t in range(len(trees.n_leaves)):
            own = slice(None) if w.smooth.shared else slice(int(w.smooth.outputs[t]), int(w.smooth.outputs[t]) + 1)
            made[:, own] += trees.values[w.starts[t] + queries[:, t].astype(np.intp)]
        return made

    def bytes_per_query(self) -> int:
        """Bytes that one query takes while its pushes are handed on block by block, with its part of a block."""
        return 8 * (sum(int(self.walked.smooth.trees.n_leaves[own].sum()) for own in self.trees) + 64 * self.n_outputs)

    # -- rows -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _terms(self) -> list[list[Term]]:
        """The stages of each round."""
        w = self.walked
        coefficients = np.zeros(len(w.steps))
        for one in w.rounds:
            for s, coefficient in one.changes:
                coefficients[s] += coefficient
        places = [{int(t): i for i, t in enumerate(own)} for own in self.trees]
        found = []
        for number, one in enumerate(w.rounds):
            terms = []
            for s in one.stages:
                t, k, step = int(w.stage_tree[s]), int(w.stage_output[s]), w.steps[s]
                scale = -coefficients[s] * step.share
                if step.inverse is not None:
                    scale = scale[:, None] * step.inverse[:, k, :]
                terms.append(Term(number, t, k, places[k][t], scale))
            found.append(terms)
        return found

    @cached_property
    def _exponent(self) -> float:
        """The loss's, where exp(a F) of no training row can overflow on its way through the trees; else 0."""
        w = self.walked
        if not w.loss.exponent:
            return 0.0
        most = float(np.abs(w.start).max(initial=0.0))
        for one in w.rounds:
            most += sum(float(np.abs(gain).max(initial=0.0)) for _, _, gain in w.gains(one))
        return float(w.loss.exponent) if abs(w.loss.exponent) * most <= LARGEST else 0.0

    @cached_property
    def _moves(self) -> list[list[tuple[int, int, Array]]]:
        """For each round (tree, output, (L_t,)): what scores gain in each leaf."""
        return [self.walked.gains(one) for one in self.walked.rounds]

    @cached_property
    def _program(self) -> Program | None:
        """The rounds as a kernel walks through them; None for a loss or leaves that it does not know."""
        w, a = self.walked, self._exponent
        form = w.loss.affine(w.targets[:1])
        terms = [term for one in self._terms for term in one]
        if form is None or w.gradients is not None or a != w.loss.exponent or any(t.scale.ndim > 1 for t in terms):
            return None
        if w.drawn is not None and w.drawn.dtype != np.uint8:
            return None
        moves = [move for one in self._moves for move in one]
        begin = np.append(0, np.cumsum([len(own) for own in self.trees]))
        bounds = [(0, 0), *((len(some), len(others)) for some, others in zip(self._terms, self._moves))]
        steps = np.concatenate([np.zeros(0), *(gain for *_, gain in moves)])
        return Program(
            rounds=np.cumsum(bounds, axis=0, dtype=np.int64),
            terms=_numbers([(term.tree, term.output, begin[term.output] + term.place) for term in terms], 3),
            scales=np.concatenate([np.zeros(0), *(term.scale for term in terms)]),
            moves=_numbers([(t, k) for t, k, _ in moves], 2),
            steps=np.exp(a * steps) if a else steps,
            draws=w.drawn,
            link=form.link,
            product=bool(a),
        )

    def factors(self, rows: slice) -> list[Array]:
        """For each output (T_k, rows): what each row puts into the score of whoever shares its leaf, tree by tree."""
        n, ends = rows.stop - rows.start, np.cumsum([len(own) for own in self.trees])
        if self._program is not None:
            whole = np.empty((int(ends[-1]), n))
            self._run(self._program, rows, whole)
        else:
            whole = np.zeros((int(ends[-1]), n))
        found = np.split(whole, ends[:-1])
        if self._program is None:
            self._share(found, rows)
        return found

    def _start(self, rows: slice) -> Array:
        w = self.walked
        return np.broadcast_to(w.start if w.start.ndim == 1 else w.start[rows], w.targets[rows].shape)

    def _counted(self, rows: slice) -> Array:
        """(rows,): what multiplies gradients in every tree."""
        w = self.walked
        return w.weights[rows] if w.smooth.factors is None else w.weights[rows] * w.smooth.factors[rows]

    def _run(self, program: Program, rows: slice, out: Array) -> None:
        """Walk these rows through the fit by the kernel."""
        w, a, counted = self.walked, self._exponent, self._counted(rows)
        form = w.loss.affine(w.targets[rows])
        assert form is not None
        intercepts, slopes = (np.ascontiguousarray(counted * part.T) for part in (form.intercepts, form.slopes))
        start = self._start(rows).T
        state = np.ascontiguousarray(np.exp(a * start)) if a else np.array(start, order="C")
        training = Cpu(self.n_threads).rows(w.leaves, w.starts)
        training.gradient_factors(program, intercepts, slopes, state, rows.start, out)

    def _share(self, found: list[Array], rows: slice) -> None:
        """Share the rows out to threads, which walk them through the fit."""
        parts = np.linspace(rows.start, rows.stop, self.n_threads + 1).astype(int)
        spans = [slice(a, b) for a, b in pairwise(parts) if b > a]
        if len(spans) < 2 or self.walked.gradients is not None:
            self._fill(found, rows, rows.start)
        else:
            with ThreadPoolExecutor(len(spans)) as pool:
                list(pool.map(lambda span: self._fill(found, span, rows.start), spans))

    def _fill(self, found: list[Array], rows: slice, first: int) -> None:
        """Walk these rows through the fit, writing their factors into the columns from ``first`` on."""
        w, columns = self.walked, slice(rows.start - first, rows.stop - first)
        y, weights, leaves = w.targets[rows], self._counted(rows)[:, None], w.leaves[:, rows]
        score = np.array(self._start(rows))
        for terms, moves in zip(self._terms, self._moves):
            kept = w.gradients
            g = weights * (w.loss.gradient(y, score) if kept is None else kept[terms[0].round, rows])
            for term in terms:
                leaf = leaves[term.tree]
                if term.scale.ndim == 1:
                    put = np.take(term.scale, leaf)
                    put *= g[:, term.output]
                else:
                    put = np.einsum("jm,jm->j", term.scale[leaf], g)
                if w.drawn is not None:
                    put *= w.drawn[term.tree, rows]
                found[term.output][term.place, columns] += put
            for t, k, gain in moves:
                score[:, k] += np.take(gain, leaves[t])

    def _blocks(self, n: int) -> Iterator[slice]:
        n_rows = len(self.walked.targets)
        entries = sum(len(own) for own in self.trees) + n * self.n_outputs
        step = max(64, BLOCK_ENTRIES // entries)
        return (slice(a, min(a + step, n_rows)) for a in range(0, n_rows, step))

    def blocks(self, queries: Leaves) -> Iterator[tuple[int, list[Array]]]:
        """Blocks of rows: the first one's number, and for each output their pushes (rows, n) on queries in these leaves.

        Once all are given, their sums must be the scores, or `ExactnessError` is raised.
        """
        n, expected = len(queries), self.scores(queries)
        tables = [self._table(queries, k) for k in range(self.n_outputs)]
        total = np.tile(self.base, (n, 1))
        for rows in track(list(self._blocks(n)), "pushes"):
            made = []
            for k, factors in enumerate(self.factors(rows)):
                out = np.empty((rows.stop - rows.start, n))
                self._read_out(k, tables[k], factors, rows, out)
                total[:, k] += out.sum(axis=0)
                made.append(out)
            yield rows.start, made
        self._agree(total, expected, "explained row")

    def _table(self, queries: Leaves, k: int) -> Array:
        """(C_k, n): 1 at the leaves of each query in the trees of output k."""
        n_leaves = self.walked.smooth.trees.n_leaves[self.trees[k]]
        starts = np.cumsum(n_leaves) - n_leaves
        table = np.zeros((int(n_leaves.sum()), len(queries)))
        at = starts + queries[:, self.trees[k]].astype(np.int64)
        table[at, np.arange(len(queries))[:, None]] = 1.0
        return table

    def _read_out(self, k: int, table: Array, factors: Array, rows: slice, out: Array) -> None:
        w, own = self.walked, self.trees[k]
        starts = np.append(0, np.cumsum(w.smooth.trees.n_leaves[own])).astype(np.int64)
        if len(own) == len(w.leaves):
            Cpu(self.n_threads).rows(w.leaves, starts).scaled_read_out(table, factors, rows.start, out)
        else:  # the kernel takes whole tables of leaves: a copy, of this block alone
            leaves = np.ascontiguousarray(w.leaves[own, rows])
            Cpu(self.n_threads).rows(leaves, starts).scaled_read_out(table, factors, 0, out)

    def dense(self, queries: Leaves) -> Array:
        """(K, n, N)."""
        out = np.empty((self.n_outputs, len(self.walked.targets), len(queries)))
        for first, made in self.blocks(queries):
            for own, block in zip(out, made):
                own[first : first + len(block)] = block
        return out.swapaxes(1, 2)

    def cells_by_group(self, codes: NDArray[np.intp], n_groups: int) -> list[Array]:
        """For each output (C_k, groups): what the rows of each group, numbered (N,), together put into each leaf; one walk."""
        sums = [np.zeros((int(self.walked.smooth.trees.n_leaves[own].sum()), n_groups)) for own in self.trees]
        for rows in track(list(self._blocks(0)), "pushes"):
            for k, factors in enumerate(self.factors(rows)):
                for cells, at, own in zip(*self._places(k, rows), factors):
                    key = cells.astype(np.intp) * n_groups + codes[rows]
                    part = sums[k][at]
                    part += np.bincount(key, own, part.size).reshape(part.shape)
        return sums

    def _places(self, k: int, rows: slice) -> tuple[list[Leaves], list[slice]]:
        """For each tree of output k the leaves of some rows, and where its leaves are among those of the output."""
        ends = np.cumsum(self.walked.smooth.trees.n_leaves[self.trees[k]])
        begins = np.append(0, ends[:-1])
        return [self.walked.leaves[t, rows] for t in self.trees[k]], [slice(*span) for span in zip(begins, ends)]

    def sums_by_group(self, queries: Leaves, cells: list[Array]) -> Array:
        """(n, K, groups): pushes on queries in these leaves, (n, T), summed by group; `cells_by_group` gives the cells."""
        out = np.zeros((len(queries), self.n_outputs, cells[0].shape[1]))
        for k, own in enumerate(self.trees):
            for t, at in zip(own, self._places(k, slice(0, 0))[1]):
                out[:, k] += cells[k][at][queries[:, t].astype(np.intp)]
        self._agree(self.base + out.sum(axis=2), self.scores(queries), "explained row")
        return out

    def on_itself(self) -> Array:
        """(N, K): the push of each row on its own score. O(T N), and no other pushes are computed."""
        found = np.zeros((len(self.walked.targets), self.n_outputs))
        for rows in track(list(self._blocks(0)), "pushes"):
            found[rows] = np.stack([factors.sum(axis=0) for factors in self.factors(rows)], axis=1)
        return found

    # -- proof ----------------------------------------------------------------------------------------------------------

    def prove(self) -> float:
        """Compare what all rows together put into each leaf with the leaf's own value; the largest difference, relative.

        So the account adds up for every x, whichever leaves it falls into.
        """
        w = self.walked
        sums = [own[:, 0] for own in self.cells_by_group(np.zeros(len(w.targets), dtype=np.intp), 1)]
        worst, scale = 0.0, self._scale()
        for k, found in enumerate(sums):
            column = k if w.smooth.shared else 0
            at = np.concatenate([np.arange(w.starts[t], w.starts[t + 1]) for t in self.trees[k]])
            error = np.abs(found - w.smooth.trees.values[at, column])
            largest = int(error.argmax())
            if not error[largest] <= EXACT * scale:
                expected = float(w.smooth.trees.values[at[largest], column])
                raise ExactnessError("sum of the pushes in a leaf", float(found[largest]), expected, CHANGED)
            worst = max(worst, float(error[largest]) / scale)
        return worst

    def _scale(self) -> float:
        return max(float(np.abs(self.walked.score).max()), float(np.abs(self.base).max()), 1e-300)

    def _agree(self, total: Array, expected: Array, what: str) -> None:
        if not len(total):
            return
        error = np.abs(total - expected)
        worst = np.unravel_index(int(error.argmax()), error.shape)
        scale = max(self._scale(), float(np.abs(expected).max()))
        if not error[worst] <= EXACT * scale:
            cause = "Please report it: the account of this model does not add up."
            raise ExactnessError(f"score of {what} {worst[0]} (from 0)", total[worst], expected[worst], cause)


def _numbers(lines: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(lines, dtype=np.int64).reshape(-1, columns)

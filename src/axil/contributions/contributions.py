"""Contributions of training rows to scores: what the gradient of each row put into them, for any loss.

With g_sj the gradient that stage s, one step of one tree, saw of row j, c_sj what multiplies its
weight there, v the leaf's value and G its sum of ``w c g``, a row puts ``-w_j c_sj g_sj
share_s[l]``, ``share = -v / G``, into its leaf's value, and so into the score of every x in the
leaf:

    push_j(x) = sum_s coefficient_s [leaf_s(j) = leaf_s(x)] (-w_j c_sj g_sj share_s[leaf_s(j)])
    base + sum_j push_j(x) = F(x)

L1 and clips are in the share; a leaf that solves for all outputs together has a matrix in its
place. Given the model's own leaf values a row's scores before every tree depend on that row alone,
so blocks of rows are walked and read out: nothing of size (T, N) or (n, N) exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import FloatArray, IntArray, LeafArray
from axil.contributions.factors import Factors
from axil.errors import ExactnessError
from axil.kernels.cpu import CpuRows
from axil.machine.arrays import host, like
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.replay.compare import CHECKED_ROWS
from axil.replay.queries import Combination, QueryBatch
from axil.replay.replayed_stages import ReplayedStages, leaf_scores, lost_beside
from axil.weights.leaf_matrix import sums_at

BLOCK_ENTRIES = 1 << 21  # factors held at a time, over all trees and outputs
SUMMED_ROWS = 1 << 17  # whose states and gradients are made at a time
EXACT = 1e-6  # of all pushes on a score, in absolute value: how closely they add up

DIVERGED = (
    1e7  # by how much other scores are larger where single precision has no digit left of this one
)
NOT_ADDED_UP = "Please report it: the account of this model does not add up."
CHANGED = "The model may have changed since the explainer was made: make a new one."


class Contributions(Factors):
    """The account of every score of one replayed fit."""

    # -- what the model says -----------------------------------------------------------------------

    @property
    def base(self) -> FloatArray:
        """(K,): where every score starts; the scores of rows that no row pushes."""
        return self.walked.base

    def scores(self, queries: LeafArray) -> FloatArray:
        """(n, K): sums of the model's own leaf values in these leaves, (n, T)."""
        return leaf_scores(self.walked.fit, queries)

    def sizes(self, queries: LeafArray) -> FloatArray:
        """(n, K): what errors of scores in these leaves are relative to; see `sizes_of`."""
        return sizes_of(self.walked.fit, self.base, self._leaf_sums[1], queries, self._ordinary)

    @cached_property
    def _ordinary(self) -> float:
        """Return the size below which an error counts as that of an ordinary score.

        Offsets may leave so little to learn that all leaf values are lost in the rounding of the
        scores that the fit starts from; errors within that rounding are none.
        """
        ordinary = ordinary_size(self.walked.fit, self.base, self._leaf_sums[1])
        return max(ordinary, lost_beside(self.walked.start) / EXACT)

    def bytes_per_query(self) -> int:
        """Bytes that one query takes while its pushes are handed on block by block, with its part of a block."""
        return 8 * (sum(int(starts[-1]) for starts in self.starts) + 64 * self.n_outputs)

    # -- rows --------------------------------------------------------------------------------------

    def _blocks(self, n: int) -> list[slice]:
        entries = sum(len(own) for own in self.trees) + n * self.n_outputs
        return spans(len(self.walked.targets), max(64, self._block_entries() // entries))

    def _block_entries(self) -> int:
        """Factors and pushes held at a time: on a device, where the walk goes over all of a block at once, a batch of them."""
        if self.backend.xp is np or self._program is None:
            return BLOCK_ENTRIES
        budget = self.limits.budget
        return max(BLOCK_ENTRIES, min(budget.batch_bytes, budget.available // 4) // 8)

    def blocks(self, queries: LeafArray) -> Iterator[tuple[int, list[Any]]]:
        """Blocks of rows: the first one's number, and for each output their pushes (rows, n) on queries in these leaves.

        Arrays of the back end. Their sums, which `agree` compares, must be the scores.
        """
        with self.backend.guard():
            tables = [self._table(queries, k) for k in range(self.n_outputs)]
        return self.read(tables)

    def read(self, tables: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
        """`blocks` for any numbers of leaves: for each output (C_k, n), how often what is put into a leaf counts."""
        n = tables[0].shape[1]
        xp = self.backend.xp
        with self.backend.guard():
            tables = [xp.asarray(table) for table in tables]
            for rows in track(self._blocks(n), "pushes"):
                made = []
                for k, factors in enumerate(self.factors(rows)):
                    out = xp.empty((rows.stop - rows.start, n))
                    self.rows.scaled_read_out(tables[k], factors, rows.start, out, self._own(k))
                    made.append(out)
                yield rows.start, made

    def mixed_tables(self, queries: LeafArray, u: Any) -> list[FloatArray]:
        """For each output (C_k, m): sums of the leaves of queries, (n, T), times (n, m) factors, dense or sparse."""
        found: list[FloatArray] = []
        for k, starts in enumerate(self.starts):
            found.append(self._mixed(k, sums_at(self._met(queries, k), int(starts[-1]), u), True))
        return found

    def _met(self, queries: LeafArray, k: int) -> NDArray[np.int64]:
        """(n, T_k): the leaves of queries in the trees of output k, numbered among all leaves of these."""
        return self.starts[k][:-1] + queries[:, self.trees[k]].astype(np.int64)

    @cached_property
    def _mixes(self) -> dict[tuple[int, int], FloatArray]:
        """By tree and output (L_t, L_t): what a row of each leaf puts into the others', where these depend on each other."""
        w = self.walked
        stages = zip(w.stage_tree.tolist(), w.stage_output.tolist(), w.steps)
        return {(t, k): step.mix.share for t, k, step in stages if step.mix is not None}

    def _mixed(self, k: int, table: Any, transposed: bool) -> Any:
        """A table (C_k, m) of what rows put into their own leaves as one of what is in each leaf, in place; or transposed."""
        for t, (a, b) in zip(self.trees[k].tolist(), pairwise(self.starts[k])):
            if (t, k) in self._mixes:
                share = self._mixes[t, k]
                table[a:b] = like(share.T if transposed else share, table) @ table[a:b]
        return table

    def _own(self, k: int) -> NDArray[np.int64] | None:
        """The trees of output k, as kernels take them: None for all."""
        if len(self.trees[k]) == len(self.walked.leaves):
            return None
        return self.trees[k].astype(np.int64)

    def _table(self, queries: LeafArray, k: int) -> Any:
        """(C_k, n): 1 at the leaves of each query in the trees of output k; what rows of others put in, where leaves mix."""
        xp = self.backend.xp
        table = xp.zeros((int(self.starts[k][-1]), len(queries)))
        table[xp.asarray(self._met(queries, k)), xp.arange(len(queries))[:, None]] = 1.0
        return self._mixed(k, table, True)

    def cells_by_group(self, codes: IntArray, n_groups: int) -> list[FloatArray]:
        """For each output (C_k, groups): what the rows of each group, numbered (N,), together put into each leaf; one walk."""
        return [
            self._mixed(k, sums, False) for k, (sums,) in enumerate(self._own_sums(codes, n_groups))
        ]

    def _own_sums(
        self, codes: IntArray, n_groups: int, sizes: bool = False
    ) -> list[list[FloatArray]]:
        """For each output (C_k, groups): what rows put into their own leaves; with ``sizes`` its absolute values, too."""
        xp = self.backend.xp
        with self.backend.guard():
            sums = [
                [xp.zeros((int(starts[-1]), n_groups)) for _ in range(1 + sizes)]
                for starts in self.starts
            ]
            for rows in track(self._blocks(0), "pushes"):
                own_codes = xp.asarray(codes[rows].astype(np.int64))
                for k, factors in enumerate(self.factors(rows)):
                    self.rows.factor_sums(factors, own_codes, rows.start, sums[k][0], self._own(k))
                    for of_sizes in sums[k][1:]:
                        taken = xp.abs(factors, out=factors)
                        self.rows.factor_sums(taken, own_codes, rows.start, of_sizes, self._own(k))
            return [[host(each) for each in own] for own in sums]

    def sums_by_group(self, queries: LeafArray, cells: list[FloatArray]) -> FloatArray:
        """(n, K, groups): pushes on queries in these leaves, (n, T), summed by group; `cells_by_group` gives the cells."""
        out = np.zeros((len(queries), self.n_outputs, cells[0].shape[1]))
        for k, table in enumerate(cells):
            for leaves in self._met(queries, k).T:
                out[:, k] += table[leaves]
        self.agree(self.base + out.sum(axis=2), queries)
        return out

    def on_itself(self) -> FloatArray:
        """(N, K): the push of each row on its own score. O(T N), and no other pushes are computed."""
        found = np.zeros((len(self.walked.targets), self.n_outputs))
        with self.backend.guard():
            for rows in track(self._blocks(0), "pushes"):
                for k, factors in enumerate(self.factors(rows)):
                    for place, t in enumerate(self.trees[k].tolist() if self._mixes else ()):
                        if (t, k) in self._mixes:
                            own = np.diagonal(self._mixes[t, k])[self.walked.leaves[t, rows]]
                            factors[place] *= like(own, factors)
                    found[rows, k] = host(factors.sum(axis=0))
        return found

    # -- proof -------------------------------------------------------------------------------------

    def verify_sums(self) -> float:
        """Compare what all rows together put into each leaf with the leaf's own value; the largest difference, relative.

        So the account adds up for every x, whichever leaves it falls into. An error is relative to
        the largest score, since what a library rounds away from gradients next to zero is not
        relative to them, or to the terms of the leaf's own value (see `axil.replay.newton_steps`),
        if these are larger. It is never relative to the pushes themselves: pushes that are wrong
        may be of any size. Beside scores far larger than theirs, in a fit that diverged, training
        rows, up to `CHECKED_ROWS`, are compared with all that is pushed there.
        """
        w, (found, terms) = self.walked, self._leaf_sums
        largest = max(float(np.abs(w.score).max()), float(np.abs(self.base).max()))
        scale = np.maximum(terms, largest)
        scale[scale == 0] = 1.0
        error = np.abs(found - w.fit.table.leaf_values) / scale
        worst = np.unravel_index(int(error.argmax()), error.shape)
        if not error[worst] <= EXACT:
            expected = float(w.fit.table.leaf_values[worst])
            raise ExactnessError(
                "sum of the pushes in a leaf", float(found[worst]), expected, CHANGED
            )
        step = -(-len(w.targets) // CHECKED_ROWS)
        asked = w.leaves.T[::step]
        if largest > DIVERGED * float(self.sizes(asked).min()):
            self.agree(leaf_scores(w.fit, asked, self.base, values=found), asked, step)
        return float(error[worst])

    @cached_property
    def _leaf_sums(self) -> tuple[FloatArray, FloatArray]:
        """(L, 1), or (L, K) where outputs share trees: what all rows put into each leaf, and its terms; one walk."""
        w = self.walked
        made = np.zeros((2, *w.fit.table.leaf_values.shape))
        n_terms = sum(len(own) for own in self.trees)
        program = self._program
        in_core = program is not None and self.backend.xp is np and len(program.terms) == n_terms
        no_group = np.zeros(len(w.targets), dtype=np.intp)
        if in_core:
            every = self._sums_in_core()
        else:
            every = self._own_sums(no_group, 1, sizes=True)
        for k, (own, sums) in enumerate(zip(self.trees, every)):
            at = np.concatenate([np.arange(w.starts[t], w.starts[t + 1]) for t in own])
            found = self._mixed(k, sums[0], False)
            made[:, at, w.fit.schedule.column(k)] = found[:, 0], sums[1][:, 0]
        return made[0], mixed_terms(w, made[1])

    def _sums_in_core(self) -> list[list[FloatArray]]:
        """`_own_sums` with sizes by one kernel that writes no factor down, where every tree of an output has one term."""
        program = self._program
        own_rows = self.rows
        assert program is not None
        assert isinstance(own_rows, CpuRows)
        sums = np.zeros((len(program.scales), 2))
        for rows in track(spans(len(self.walked.targets), SUMMED_ROWS), "pushes"):
            own_rows.gradient_sums(program, *self._given(rows), rows.start, sums)
        ends = np.cumsum([len(term.scale) for one in self.terms for term in one])
        by_place = dict(zip(program.terms[:, 2].tolist(), np.split(sums, ends[:-1])))
        places = iter(sorted(by_place))
        found = []
        for own in self.trees:
            made = np.concatenate([by_place[next(places)] for _ in own])
            found.append([made[:, :1], made[:, 1:]])
        return found

    def agree(self, total: FloatArray, queries: LeafArray, step: int = 0) -> None:
        """Raise unless these are the scores of queries in these leaves, or of every training row at this step."""
        if not len(total):
            return
        expected = self.scores(queries)
        sizes = self.sizes(queries)
        largest = float(np.abs(self.walked.score).max(initial=0.0))
        check_sums(total, expected, sizes, EXACT, largest, NOT_ADDED_UP, step)


def mixed_terms(walked: ReplayedStages, sizes: FloatArray) -> FloatArray:
    """Return the terms of leaf values, (L, 1) or (L, K), from the sizes that rows put into own leaves.

    See `axil.replay.newton_steps`. A leaf whose value depends on its own rows alone has these
    ``sizes`` as its terms; where leaves of a tree depend on each other, ``sizes`` are sums of |w
    g|.
    """
    terms = sizes.copy()
    for t, k, step in zip(walked.stage_tree.tolist(), walked.stage_output.tolist(), walked.steps):
        if step.mix is not None:
            own = slice(walked.starts[t], walked.starts[t + 1])
            column = walked.fit.schedule.column(k)
            terms[own, column] = step.mix.terms @ sizes[own, column]
    return terms


def sizes_of(
    fit: BoostedFit,
    base: FloatArray,
    leaf_sizes: FloatArray,
    leaves: LeafArray,
    least: float | None = None,
) -> FloatArray:
    """(n, K): the absolute values that scores are sums of: of the base (K,), and of the terms of their leaves (n, T).

    Errors are relative to these terms, since beside a score of 1e27 any other would pass for exact.
    Less than an ordinary leaf of each tree holds does not count, ``least`` where it is known:
    gradients next to zero are rounded beside the scores and targets that they come of.
    """
    if least is None:
        least = ordinary_size(fit, base, leaf_sizes)
    found: FloatArray = np.maximum(leaf_scores(fit, leaves, np.abs(base), values=leaf_sizes), least)
    return found


def ordinary_size(fit: BoostedFit, base: FloatArray, leaf_sizes: FloatArray) -> float:
    """The size of a score in an ordinary leaf of every tree, for the output whose is the largest."""
    typical: FloatArray = np.abs(base)  # a new array
    for t, own in enumerate(np.split(leaf_sizes, np.cumsum(fit.table.n_leaves)[:-1])):
        ordinary = np.sort(own, axis=0)[(len(own) - 1) // 2]
        outputs = fit.schedule.outputs_served(t)
        typical[outputs] += ordinary
    return float(typical.max())


def check_added(
    asked: QueryBatch | Combination,
    made: FloatArray,
    of_leaves: FloatArray,
    sizes: FloatArray,
    largest: float,
) -> None:
    """Raise unless what pushes add up to, (n, K), are the scores of leaves of these rows, or the sums of them asked for."""
    if isinstance(asked, Combination):
        of_leaves = asked.of(of_leaves)
        sizes = np.asarray(abs(asked.coefficients) @ sizes)
    check_sums(made, of_leaves, sizes, EXACT, largest, NOT_ADDED_UP)


def check_sums(
    found: FloatArray,
    expected: FloatArray,
    sizes: FloatArray,
    tolerance: float,
    largest: float,
    cause: str,
    step: int = 0,
) -> None:
    """Raise where scores (n, K) are further apart than the tolerance times their sizes; see `sizes_of`.

    ``largest``: the largest |score| of a training row. ``step``: these are the training rows at this step, not explained ones.
    """
    error = np.abs(found - expected)
    allowed = tolerance * sizes
    beyond = np.flatnonzero(~(error <= allowed).all(axis=1))
    if not len(beyond):
        return
    at = np.unravel_index(
        int((error[beyond] - allowed[beyond]).argmax()), error[beyond].shape
    )  # nan before all others
    row = int(beyond[at[0]])
    if not largest <= DIVERGED * float(sizes[row].max()):
        cause = (
            f"The fit has scores of up to {largest:.1e}: it diverged, and beside them the library rounded away what made this "
            "score. Fit with a smaller learning rate or more regularisation."
        )
    what = f"score of {'training' if step else 'explained'} row {row * max(step, 1)} (from 0)"
    raise ExactnessError(what, float(found[row, at[1]]), float(expected[row, at[1]]), cause)

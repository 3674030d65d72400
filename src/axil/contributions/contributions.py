"""Contributions of training rows to scores: what the gradient of each row put into them.

They exist for any loss.

With g_sj the gradient that stage s, one step of one tree, saw of row j, c_sj what multiplies its
weight there, v the leaf's value and G its sum of ``w c g``, a row puts ``-w_j c_sj g_sj
share_s[l]``, ``share = -v / G``, into its leaf's value, and so into the score of every x in the
leaf:

    c_j(x) = sum_s coefficient_s [leaf_s(j) = leaf_s(x)] (-w_j c_sj g_sj share_s[leaf_s(j)])
    base + sum_j c_j(x) = F(x)

L1 and clips are in the share; a leaf that solves for all outputs together has a matrix in its
place. Given the model's own leaf values a row's scores before every tree depend on that row alone,
so blocks of rows are walked and read out: nothing of size (T, N) or (n, N) exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import FloatArray, IntArray, LeafArray
from axil.contributions.factors import Factors
from axil.errors import ExactnessError
from axil.kernels.cpu import CellLists, CpuRows
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.replay.compare_predictions import CHECKED_ROWS
from axil.replay.queries import Combination, QueryBatch
from axil.replay.replayed_stages import ReplayedStages, leaf_scores, lost_beside
from axil.weights.leaf_matrix import sums_at

BLOCK_ENTRIES = 1 << 21  # factors in memory at a time, over all trees and outputs
SUMMED_ROWS = 1 << 17  # whose states and gradients are made at a time
EXACT = 1e-6  # relative to the sum of absolute contributions: how closely they add up

DIVERGED = (
    1e7  # by how much other scores are larger where single precision has no digit left of this one
)
NOT_ADDED_UP = "The contributions do not add up to the score of the model. Please report it."
CHANGED = "The model may have changed since the explainer was made: make a new one."


class Contributions(Factors):
    """The contributions of training rows to all scores of one replayed fit."""

    # -- what the model says -----------------------------------------------------------------------

    @property
    def base(self) -> FloatArray:
        """The initial score, (K,): the score of a row to which no training row contributes."""
        return self.walked.base

    def scores(self, queries: LeafArray) -> FloatArray:
        """Return sums of the model's leaf values, (n, K), in the leaves ``queries`` (n, T)."""
        return leaf_scores(self.walked.fit, queries)

    def sizes(self, queries: LeafArray) -> FloatArray:
        """Return the numbers that errors of scores in these leaves are relative to, (n, K)."""
        return sizes_of(self.walked.fit, self.base, self._leaf_sums[1], queries, self._ordinary)

    @cached_property
    def _ordinary(self) -> float:
        """Return the smallest size that errors are relative to: that of an ordinary score.

        Offsets may leave so little to learn that all leaf values are lost in the rounding of the
        scores that the fit starts from; errors within that rounding are none.
        """
        ordinary = ordinary_size(self.walked.fit, self.base, self._leaf_sums[1])
        return max(ordinary, lost_beside(self.walked.start) / EXACT)

    def bytes_per_query(self) -> int:
        """Return the bytes of one explained row and of its share of a block.

        Contributions are passed on block by block.
        """
        return 8 * (sum(int(starts[-1]) for starts in self.starts) + 64 * self.n_outputs)

    # -- rows --------------------------------------------------------------------------------------

    def _blocks(self, n: int) -> list[slice]:
        return self.row_blocks(slice(0, len(self.walked.targets)), n)

    def row_blocks(self, rows: slice, n: int = 0) -> list[slice]:
        """Return blocks of rows whose factors and contributions to n scores fit into memory."""
        entries = sum(len(trees) for trees in self.trees) + n * self.n_outputs
        step = max(64, self._block_entries() // entries)
        blocks = spans(rows.stop - rows.start, step)
        return [slice(rows.start + block.start, rows.start + block.stop) for block in blocks]

    def _block_entries(self) -> int:
        """The number of factors and contributions in memory at a time.

        On a GPU the walk handles all of a block at once, and memory has a batch of blocks.
        """
        if self.backend.xp is np or self._program is None:
            return BLOCK_ENTRIES
        budget = self.limits.budget
        return max(BLOCK_ENTRIES, min(budget.batch_bytes, budget.available // 4) // 8)

    def blocks(self, queries: LeafArray) -> Iterator[tuple[int, list[AnyPlaceArray]]]:
        """Yield blocks of training rows with their contributions to rows in these leaves.

        A block has the number of its first row, and for each output contributions (rows, n) as an
        array of the back end. Their sums must be the scores; `agree` compares.
        """
        with self.backend.guard():
            tables = [self._table(queries, k) for k in range(self.n_outputs)]
        return self.read(tables)

    def read(self, tables: Sequence[AnyPlaceArray]) -> Iterator[tuple[int, list[AnyPlaceArray]]]:
        """Yield `blocks` for tables of leaves.

        For each output a table (C_k, n) says how often a leaf counts for each of n results.
        """
        n = tables[0].shape[1]
        xp = self.backend.xp
        with self.backend.guard():
            tables = [xp.asarray(table) for table in tables]
            for rows in track(self._blocks(n), "contributions"):
                contributions = []
                for k, factors in enumerate(self.factors(rows)):
                    out = xp.empty((rows.stop - rows.start, n))
                    self.rows.scaled_read_out(tables[k], factors, rows.start, out, self._own(k))
                    contributions.append(out)
                yield rows.start, contributions

    def mixed_tables(self, queries: LeafArray, u: AnyPlaceArray) -> list[FloatArray]:
        """Return the leaves of rows (n, T) times factors (n, m) by output, (C_k, m).

        The factors may be dense or sparse.
        """
        tables: list[FloatArray] = []
        for k, starts in enumerate(self.starts):
            tables.append(self._mixed(k, sums_at(self._met(queries, k), int(starts[-1]), u), True))
        return tables

    def _met(self, queries: LeafArray, k: int) -> NDArray[np.int64]:
        """Return the leaves of explained rows in the trees of output k, (n, T_k).

        They are numbered over these trees.
        """
        return self.starts[k][:-1] + queries[:, self.trees[k]].astype(np.int64)

    @cached_property
    def _mixes(self) -> dict[tuple[int, int], FloatArray]:
        """Matrices (L_t, L_t) by tree and output, for leaves whose values depend on each other.

        An entry says how much a row of one leaf adds to another leaf.
        """
        w = self.walked
        stages = zip(w.stage_tree.tolist(), w.stage_output.tolist(), w.steps)
        return {(t, k): step.mix.share for t, k, step in stages if step.mix is not None}

    def _mixed(self, k: int, table: AnyPlaceArray, transposed: bool) -> AnyPlaceArray:
        """Return the table (C_k, m) of leaf values that follow from the rows' own leaves.

        With ``transposed`` it is the transpose of this map. The table is overwritten. It changes
        only if leaf values depend on each other.
        """
        for t, (a, b) in zip(self.trees[k].tolist(), pairwise(self.starts[k])):
            if (t, k) in self._mixes:
                share = self._mixes[t, k]
                table[a:b] = like(share.T if transposed else share, table) @ table[a:b]
        return table

    def _own(self, k: int) -> NDArray[np.int64] | None:
        """Return the trees of output k as kernels take them; None for all trees."""
        if len(self.trees[k]) == len(self.walked.leaves):
            return None
        return self.trees[k].astype(np.int64)

    def _table(self, queries: LeafArray, k: int) -> AnyPlaceArray:
        """Return a table (C_k, n) that selects the leaves of each row in the trees of output k.

        If leaf values depend on each other, it also has the shares of the other leaves.
        """
        xp = self.backend.xp
        table = xp.zeros((int(self.starts[k][-1]), len(queries)))
        table[xp.asarray(self._met(queries, k)), xp.arange(len(queries))[:, None]] = 1.0
        return self._mixed(k, table, True)

    def cells_of(self, queries: LeafArray, k: int) -> CellLists:
        """Return the leaves whose rows contribute to rows in these leaves (n, T), in output k.

        These are their own leaves, or with coefficients also those that a leaf value depends on.
        """
        if self._mixes:
            table = csr_array(self._table(queries, k).T)
            return CellLists(
                table.indptr.astype(np.int64), table.indices.astype(np.int64), table.data
            )
        cells = self._met(queries, k)
        starts = np.arange(len(queries) + 1, dtype=np.int64) * cells.shape[1]
        return CellLists(starts, cells.reshape(-1), None)

    def cells_by_group(self, codes: IntArray, n_groups: int) -> list[FloatArray]:
        """Return the contributions of each group to each leaf, by output, (C_k, groups).

        ``codes`` (N,) has the number of each row's group. One walk serves all groups.
        """
        return [
            self._mixed(k, sums, False) for k, (sums,) in enumerate(self._own_sums(codes, n_groups))
        ]

    def _own_sums(
        self, codes: IntArray, n_groups: int, sizes: bool = False
    ) -> list[list[FloatArray]]:
        """Return the contributions of rows to their own leaves by output and group, (C_k, groups).

        With ``sizes``, also return the sums of the absolute values.
        """
        xp = self.backend.xp
        with self.backend.guard():
            sums = [
                [xp.zeros((int(starts[-1]), n_groups)) for _ in range(1 + sizes)]
                for starts in self.starts
            ]
            for rows in track(self._blocks(0), "contributions"):
                own_codes = xp.asarray(codes[rows].astype(np.int64))
                for k, factors in enumerate(self.factors(rows)):
                    self.rows.factor_sums(factors, own_codes, rows.start, sums[k][0], self._own(k))
                    for of_sizes in sums[k][1:]:
                        sizes_of_factors = xp.abs(factors, out=factors)
                        self.rows.factor_sums(
                            sizes_of_factors, own_codes, rows.start, of_sizes, self._own(k)
                        )
            return [[host(values) for values in output_sums] for output_sums in sums]

    def sums_by_group(self, queries: LeafArray, cells: list[FloatArray]) -> FloatArray:
        """Return the contributions to rows in these leaves (n, T), summed by group, (n, K, groups).

        `cells_by_group` returns ``cells``.
        """
        out = np.zeros((len(queries), self.n_outputs, cells[0].shape[1]))
        for k, table in enumerate(cells):
            for leaves in self._met(queries, k).T:
                out[:, k] += table[leaves]
        self.agree(self.base + out.sum(axis=2), queries)
        return out

    def on_itself(self) -> FloatArray:
        """Return the contribution of each row to its own score, (N, K), in O(T N)."""
        contributions = np.zeros((len(self.walked.targets), self.n_outputs))
        with self.backend.guard():
            for rows in track(self._blocks(0), "contributions"):
                for k, factors in enumerate(self.factors(rows)):
                    for place, t in enumerate(self.trees[k].tolist() if self._mixes else ()):
                        if (t, k) in self._mixes:
                            shares = np.diagonal(self._mixes[t, k])[self.walked.leaves[t, rows]]
                            factors[place] *= like(shares, factors)
                    contributions[rows, k] = host(factors.sum(axis=0))
        return contributions

    # -- verification ------------------------------------------------------------------------------

    def verify_sums(self) -> float:
        """Compare the sum of all contributions in each leaf with the leaf's value.

        Return the largest difference, relative. If it is small, contributions add up for every x,
        whichever leaves it falls into. An error is relative to the largest score, because what a
        library rounds away from gradients next to zero is not relative to them, or to the terms of
        the leaf's own value (see `axil.replay.newton_steps`), if these are larger. It is never
        relative to the contributions themselves: wrong contributions may be of any size. If scores
        are far larger than theirs, in a fit that diverged, up to `CHECKED_ROWS` training rows are
        compared with all contributions to them.
        """
        w, (leaf_sums, terms) = self.walked, self._leaf_sums
        largest = max(float(np.abs(w.score).max()), float(np.abs(self.base).max()))
        scale = np.maximum(terms, largest)
        scale[scale == 0] = 1.0
        error = np.abs(leaf_sums - w.fit.table.leaf_values) / scale
        worst = np.unravel_index(int(error.argmax()), error.shape)
        if not error[worst] <= EXACT:
            expected = float(w.fit.table.leaf_values[worst])
            raise ExactnessError(
                "sum of the contributions in a leaf", float(leaf_sums[worst]), expected, CHANGED
            )
        step = -(-len(w.targets) // CHECKED_ROWS)
        checked_leaves = w.leaves.T[::step]
        if largest > DIVERGED * float(self.sizes(checked_leaves).min()):
            self.agree(
                leaf_scores(w.fit, checked_leaves, self.base, values=leaf_sums),
                checked_leaves,
                step,
            )
        return float(error[worst])

    @cached_property
    def _leaf_sums(self) -> tuple[FloatArray, FloatArray]:
        """The sums of contributions to each leaf, and of their absolute terms, from one walk.

        Both have shape (L, 1), or (L, K) if outputs share trees.
        """
        w = self.walked
        totals = np.zeros((2, *w.fit.table.leaf_values.shape))
        n_terms = sum(len(trees) for trees in self.trees)
        program = self._program
        in_core = program is not None and self.backend.xp is np and len(program.terms) == n_terms
        no_group = np.zeros(len(w.targets), dtype=np.intp)
        if in_core:
            every = self._sums_in_core()
        else:
            every = self._own_sums(no_group, 1, sizes=True)
        for k, (trees, sums) in enumerate(zip(self.trees, every)):
            at = np.concatenate([np.arange(w.starts[t], w.starts[t + 1]) for t in trees])
            mixed = self._mixed(k, sums[0], False)
            totals[:, at, w.fit.schedule.column(k)] = mixed[:, 0], sums[1][:, 0]
        return totals[0], mixed_terms(w, totals[1])

    def _sums_in_core(self) -> list[list[FloatArray]]:
        """Return `_own_sums` with sizes from one kernel that stores no factors.

        Every tree of an output must have one term.
        """
        program = self._program
        own_rows = self.rows
        assert program is not None
        assert isinstance(own_rows, CpuRows)
        sums = np.zeros((len(program.scales), 2))
        for rows in track(spans(len(self.walked.targets), SUMMED_ROWS), "contributions"):
            own_rows.gradient_sums(program, *self._given(rows), rows.start, sums)
        ends = np.cumsum([len(term.scale) for terms in self.terms for term in terms])
        by_place = dict(zip(program.terms[:, 2].tolist(), np.split(sums, ends[:-1])))
        places = iter(sorted(by_place))
        sums_of_outputs = []
        for trees in self.trees:
            place_sums = np.concatenate([by_place[next(places)] for _ in trees])
            sums_of_outputs.append([place_sums[:, :1], place_sums[:, 1:]])
        return sums_of_outputs

    def agree(self, total: FloatArray, queries: LeafArray, step: int = 0) -> None:
        """Raise unless ``total`` has the scores of rows in these leaves.

        At a ``step`` they are the scores of all training rows.
        """
        if not len(total):
            return
        expected = self.scores(queries)
        sizes = self.sizes(queries)
        largest = float(np.abs(self.walked.score).max(initial=0.0))
        check_sums(total, expected, sizes, EXACT, largest, NOT_ADDED_UP, step)


def mixed_terms(walked: ReplayedStages, sizes: FloatArray) -> FloatArray:
    """Return the terms of leaf values, (L, 1) or (L, K).

    See `axil.replay.newton_steps`. ``sizes`` has what rows add to their own leaves. They are the
    terms of a leaf whose value depends on its own rows alone. If leaves of a tree depend on each
    other, ``sizes`` are sums of |w g|.
    """
    terms = sizes.copy()
    for t, k, step in zip(walked.stage_tree.tolist(), walked.stage_output.tolist(), walked.steps):
        if step.mix is not None:
            leaves = slice(walked.starts[t], walked.starts[t + 1])
            column = walked.fit.schedule.column(k)
            terms[leaves, column] = step.mix.terms @ sizes[leaves, column]
    return terms


def sizes_of(
    fit: BoostedFit,
    base: FloatArray,
    leaf_sizes: FloatArray,
    leaves: LeafArray,
    least: float | None = None,
) -> FloatArray:
    """Return the absolute values whose sums are the scores, (n, K).

    They are those of the initial score (K,) and of the terms of the leaves (n, T). Errors are
    relative to these terms, because beside a score of 1e27 any other would pass for exact. The size
    is at least ``least``, if given, or what an ordinary leaf of each tree has: gradients next to
    zero are rounded relative to the scores and targets that they come from.
    """
    if least is None:
        least = ordinary_size(fit, base, leaf_sizes)
    sizes: FloatArray = np.maximum(leaf_scores(fit, leaves, np.abs(base), values=leaf_sizes), least)
    return sizes


def ordinary_size(fit: BoostedFit, base: FloatArray, leaf_sizes: FloatArray) -> float:
    """Return the size of a score in an ordinary leaf of every tree, for the largest output."""
    typical: FloatArray = np.abs(base)  # a new array
    for t, sizes_of_tree in enumerate(np.split(leaf_sizes, np.cumsum(fit.table.n_leaves)[:-1])):
        ordinary = np.sort(sizes_of_tree, axis=0)[(len(sizes_of_tree) - 1) // 2]
        outputs = fit.schedule.outputs_served(t)
        typical[outputs] += ordinary
    return float(typical.max())


def check_added(
    batch: QueryBatch | Combination,
    contribution_sums: FloatArray,
    of_leaves: FloatArray,
    sizes: FloatArray,
    largest: float,
) -> None:
    """Raise `ExactnessError` unless the contributions sum to the model's raw scores, (n, K).

    ``batch`` has the explained rows, or sums of them.
    """
    if isinstance(batch, Combination):
        of_leaves = batch.of(of_leaves)
        sizes = np.asarray(abs(batch.coefficients) @ sizes)
    check_sums(contribution_sums, of_leaves, sizes, EXACT, largest, NOT_ADDED_UP)


def check_sums(
    sums: FloatArray,
    expected: FloatArray,
    sizes: FloatArray,
    tolerance: float,
    largest: float,
    cause: str,
    step: int = 0,
) -> None:
    """Raise if scores (n, K) differ by more than the tolerance times their sizes; see `sizes_of`.

    Parameters
    ----------
    largest : float
        The largest absolute score of a training row.
    step : int
        If not 0, the rows are the training rows at this step, and not explained rows.
    """
    error = np.abs(sums - expected)
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
            f"The fit diverged: it has scores of up to {largest:.1e}, and beside them the library "
            "rounded this score away. Fit with a smaller learning rate or more regularisation."
        )
    quantity = f"score of {'training' if step else 'explained'} row {row * max(step, 1)} (from 0)"
    raise ExactnessError(quantity, float(sums[row, at[1]]), float(expected[row, at[1]]), cause)

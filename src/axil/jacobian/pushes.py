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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import ExactnessError
from axil.jacobian.agreement import leaf_scores
from axil.jacobian.factors import Factors
from axil.machine.arrays import host, is_host
from axil.machine.progress import track
from axil.types import Array, Leaves

BLOCK_ENTRIES = 1 << 21  # factors held at a time, over all trees and outputs
EXACT = 1e-6  # of the largest score: how closely pushes add up

CHANGED = "The model may have changed since the explainer was made: make a new one."


class Pushes(Factors):
    """The account of every score of one replayed fit."""

    # -- what the model says --------------------------------------------------------------------------------------------

    @property
    def base(self) -> Array:
        """(K,): where every score starts; the scores of rows that no row pushes."""
        return self.walked.base

    def scores(self, queries: Leaves) -> Array:
        """(n, K): sums of the model's own leaf values in these leaves, (n, T)."""
        return leaf_scores(self.walked.smooth, queries)

    def bytes_per_query(self) -> int:
        """Bytes that one query takes while its pushes are handed on block by block, with its part of a block."""
        return 8 * (sum(int(self.walked.smooth.trees.n_leaves[own].sum()) for own in self.trees) + 64 * self.n_outputs)

    # -- rows -----------------------------------------------------------------------------------------------------------

    def _blocks(self, n: int) -> Iterator[slice]:
        n_rows = len(self.walked.targets)
        entries = sum(len(own) for own in self.trees) + n * self.n_outputs
        step = max(64, self._block_entries() // entries)
        return (slice(a, min(a + step, n_rows)) for a in range(0, n_rows, step))

    def _block_entries(self) -> int:
        """Factors and pushes held at a time: on a device, where the walk goes over all of a block at once, a batch of them."""
        if self.backend.xp is np or self._program is None:
            return BLOCK_ENTRIES
        budget = self.limits.budget
        return max(BLOCK_ENTRIES, min(budget.batch_bytes, budget.available // 4) // 8)

    def blocks(self, queries: Leaves) -> Iterator[tuple[int, list[Any]]]:
        """Blocks of rows: the first one's number, and for each output their pushes (rows, n) on queries in these leaves.

        Arrays of the back end. Once all are given, their sums must be the scores, or `ExactnessError` is raised.
        """
        n, expected, xp = len(queries), self.scores(queries), self.backend.xp
        with self.backend.guard():
            tables = [self._table(queries, k) for k in range(self.n_outputs)]
            total = [xp.full(n, base) for base in self.base]
            for rows in track(list(self._blocks(n)), "pushes"):
                made = []
                for k, factors in enumerate(self.factors(rows)):
                    out = xp.empty((rows.stop - rows.start, n))
                    self.rows.scaled_read_out(tables[k], factors, rows.start, out, self._own(k))
                    total[k] += out.sum(axis=0)
                    made.append(out)
                yield rows.start, made
            found = np.stack([host(each) for each in total], axis=1)
        self._agree(found, expected, "explained row")

    def _own(self, k: int) -> NDArray[np.int64] | None:
        """The trees of output k, as kernels take them: None for all."""
        return None if len(self.trees[k]) == len(self.walked.leaves) else self.trees[k].astype(np.int64)

    def _table(self, queries: Leaves, k: int) -> Any:
        """(C_k, n): 1 at the leaves of each query in the trees of output k."""
        n_leaves, xp = self.walked.smooth.trees.n_leaves[self.trees[k]], self.backend.xp
        starts = np.cumsum(n_leaves) - n_leaves
        table = xp.zeros((int(n_leaves.sum()), len(queries)))
        at = starts + queries[:, self.trees[k]].astype(np.int64)
        table[xp.asarray(at), xp.arange(len(queries))[:, None]] = 1.0
        return table

    def dense(self, queries: Leaves) -> Array:
        """(K, n, N), on the host."""
        out = np.empty((self.n_outputs, len(self.walked.targets), len(queries)))
        for first, made in self.blocks(queries):
            for own, block in zip(out, made):
                part = own[first : first + len(block)]
                if is_host(block):
                    part[...] = block
                else:
                    block.get(out=part)
        return out.swapaxes(1, 2)

    def cells_by_group(self, codes: NDArray[np.intp], n_groups: int) -> list[Array]:
        """For each output (C_k, groups): what the rows of each group, numbered (N,), together put into each leaf; one walk."""
        xp = self.backend.xp
        with self.backend.guard():
            sums = [xp.zeros((int(self.walked.smooth.trees.n_leaves[own].sum()), n_groups)) for own in self.trees]
            for rows in track(list(self._blocks(0)), "pushes"):
                own_codes = xp.asarray(codes[rows].astype(np.int64))
                for k, factors in enumerate(self.factors(rows)):
                    self.rows.factor_sums(factors, own_codes, rows.start, sums[k], self._own(k))
            return [host(found) for found in sums]

    def sums_by_group(self, queries: Leaves, cells: list[Array]) -> Array:
        """(n, K, groups): pushes on queries in these leaves, (n, T), summed by group; `cells_by_group` gives the cells."""
        out = np.zeros((len(queries), self.n_outputs, cells[0].shape[1]))
        for k, own in enumerate(self.trees):
            n_leaves = self.walked.smooth.trees.n_leaves[own]
            for t, begin in zip(own, np.cumsum(n_leaves) - n_leaves):
                out[:, k] += cells[k][begin + queries[:, t].astype(np.intp)]
        self._agree(self.base + out.sum(axis=2), self.scores(queries), "explained row")
        return out

    def on_itself(self) -> Array:
        """(N, K): the push of each row on its own score. O(T N), and no other pushes are computed."""
        found = np.zeros((len(self.walked.targets), self.n_outputs))
        with self.backend.guard():
            for rows in track(list(self._blocks(0)), "pushes"):
                found[rows] = np.stack([host(factors.sum(axis=0)) for factors in self.factors(rows)], axis=1)
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

"""Deletion: the refits without one training row each, exactly, with the tree structure fixed.

Without row j the leaf weights of its T leaves J fall, and so their scales go from a to a'. All
other equations of the fit (see `boosting`) stay as they are. So the refit without the row is the
old one with something added to the sums of these leaves. With R the responses of leaf values to
leaf sums (`leaf_matrix`), v the leaf values and u their derivative by the initial prediction,

    r_t = y_j - offset_j - beta_t base' - sum_{s < t} omega[t, s] q_s
    q_t = a'_t / a_t (v_t + d u_t + sum_{s < t} R[t, s] x_s - a_t w b_t r_t)
    x_t = -(w b_t r_t + q_t (1 / a'_t - 1 / a_t))         (-w b_t (r_t - q_t) for a = 1 / (W + l2))

tree by tree, where t and s stand for the row's own leaves. q are their values without the row, r
its residuals, x what is added to the sums, and ``d = -w (y_j - base) / (W - w)`` the change of an
initial prediction that follows the targets. Then

    F(x) without the row - F(x) = sum_t phi_t[leaf_t(j)] x_t + beta(x) d

with the adjoints phi and beta of the explained row: the first-order formula of `removal`, with the
residuals and values after the deletion in place of those before. A leaf that no row remains in has
the value zero; in averaged trees it has the value of its nearest ancestor that has rows
(`inherited`). O(T^2) per training row once, O(T) per explained row after.

Where l2 is in proportion to the mean weight of the N rows, a deletion changes every leaf unless the
row's weight is the mean: l2 becomes ``l2 (1 - s)`` with ``1 - s = (1 - e) N / (N - 1)`` and e = w_j
/ W. Rows of one share s use the fit with that l2 in place of the old one. If there are many shares,
the answer is interpolated in s between `Level`s, at as many Chebyshev points as leave less than
rounding: all poles are at s >= 1, as denominators are W + l2 (1 - s).

Rows that change the active set of a leaf (`replays`) or outweigh the rest of one by far are
replayed, O(T N) each. All rows are replayed if the leaf matrix does not fit into memory, or if
leaves depend on others' sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.progress import track
from axil.machine.threads import Cache
from axil.weights.answers import RowEffects
from axil.weights.inherited import InheritedValues
from axil.weights.leaf_matrix import value_adjoints
from axil.weights.levels import Level, base_without, l2_shares
from axil.weights.parts import Parts, RowTest
from axil.weights.passes import Adjoints
from axil.weights.replays import ByReplay, changing_rows
from axil.weights.residuals import FittedValues
from axil.weights.work import BLOCK_ENTRIES, COPIES, blocks_of, walked_blocks

# of outputs by trees, or explained rows, by training rows whose effects are read out at a time
EFFECT_ENTRIES = 1 << 19
# bytes of additions to sums that are cached from one batch of explained rows to the next
CACHED_BYTES = 1 << 29


class Deletion(Protocol):
    """The leave-one-out refits to some targets."""

    @property
    def fitted(self) -> FittedValues:
        """The fit with all rows."""

    def blocks(self) -> list[slice]:
        """Return the training rows in the blocks to walk."""

    def alone(self, rows: slice) -> AnyPlaceArray:
        """Return the residuals of each of these rows in the refit without it, (K, T + 1, rows).

        They are those that each tree sees, and those that the last one leaves over, on the back
        end. They are nan if no weight remains.
        """

    def effects(self, queries: LeafArray) -> Sequence[RowEffects]:
        """Return the changes of predictions in these leaves (n, T) without each row, by output.

        They are nan if no weight remains.
        """


class InLeafMatrix:
    """Deletions by the formula; refits without rows that it does not hold for are replayed.

    Parameters
    ----------
    levels : list of Level
        One for each of `shares_of`.
    replayed : ByReplay
    available : int
        The bytes that blocks of rows may take. What all rows add to sums is cached if it takes at
        most `CACHED_BYTES` and a quarter of them.
    responses : array of shape (L, L), optional
        Of leaf sums to leaf sums, if there is an active set.
    is_replayed : callable, optional
        Which rows of a slice are replayed, if that is known already.
    """

    def __init__(
        self,
        levels: list[Level],
        replayed: ByReplay,
        available: int,
        responses: FloatArray | None = None,
        is_replayed: Callable[[slice], BoolArray] | None = None,
    ):
        self.levels = levels
        self.replayed = replayed
        self._rows = levels[0].rows
        self.times = int(min(max(available // (COPIES * 8 * BLOCK_ENTRIES), 1), self._rows.times))
        s = self.fitted.structure
        n_outputs = self.fitted.targets.shape[1]
        needed = 8 * len(levels) * n_outputs * s.n_trees * s.n_rows
        self._caches_additions = needed <= min(CACHED_BYTES, available // 4)
        self._cache = Cache()
        # of each level, the block of rows that was walked last
        self._last_block: dict[int, tuple[slice, AnyPlaceArray]] = {}
        self._dominant = RowTest(s, Parts.dominant)
        self._responses = responses
        self._is_replayed = is_replayed

    @property
    def fitted(self) -> FittedValues:
        """The fit with all rows."""
        return self.replayed.fitted

    def blocks(self) -> list[slice]:
        """Return the training rows in the blocks to walk."""
        return walked_blocks(self.fitted.structure, self.fitted.targets.shape[1], self.times)

    def added(self, i: int, rows: slice) -> AnyPlaceArray:
        """Return the additions to sums at level i, (K, T, rows), on the back end."""
        if self._caches_additions:
            return self._cache.get(i, lambda: self._all_added(i))[:, :, rows]
        last = self._last_block.get(i)  # outputs are read out in turn: they share the walk
        if last is None or last[0] != rows:
            last = (rows, self._added(i, rows))
            self._last_block[i] = last
        return last[1]

    def _added(self, i: int, rows: slice) -> AnyPlaceArray:
        """Compute `added` for these rows alone."""
        n_outputs = self.fitted.targets.shape[1]
        shape = (n_outputs, self.fitted.structure.n_trees, rows.stop - rows.start)
        additions = self._rows.xp.empty(shape)
        self.levels[i].walk(rows, base_without(self.fitted, rows), added=additions)
        return additions

    def _all_added(self, i: int) -> AnyPlaceArray:
        """Compute `added` for all rows."""
        s = self.fitted.structure
        additions = self._rows.xp.empty((self.fitted.targets.shape[1], s.n_trees, s.n_rows))
        for rows in track(self.blocks(), "deletions"):
            additions[:, :, rows] = self._added(i, rows)
        return additions

    def alone(self, rows: slice) -> AnyPlaceArray:
        """Return the residuals of each of these rows in the refit without it; see `Deletion`."""
        s = self.fitted.structure
        base = base_without(self.fitted, rows)
        xp = self._rows.xp
        residuals = xp.empty((len(base), s.n_trees + 1, base.shape[1]))
        self.levels[0].walk(rows, base, residuals=residuals)
        if len(self.levels) > 1:
            basis = xp.asarray(self.basis(rows))
            of_level = xp.empty(residuals.shape)
            residuals *= basis[0]
            for i, level in enumerate(self.levels[1:], 1):
                level.walk(rows, base, residuals=of_level)
                of_level *= basis[i]
                residuals += of_level
        for j in self.by_replay(rows):
            of_row = self.replayed.alone(slice(j, j + 1))[:, :, 0]
            residuals[:, :, j - rows.start] = like(of_row, residuals)
        return residuals

    def effects(self, queries: LeafArray) -> Sequence[RowEffects]:
        """Return the changes of predictions in these leaves without each row; see `Deletion`."""
        adjoints = [level.adjoints(queries) for level in self.levels]
        before = self.fitted.predictions(queries.T)
        by_l2 = [level.fitted.predictions(queries.T) - before for level in self.levels]
        return [
            LeafMatrixEffects(self, queries, adjoints, by_l2, k) for k in range(before.shape[1])
        ]

    def basis(self, rows: slice) -> FloatArray:
        """Return the shares of the levels in the answer about each row, (levels, rows).

        These are Lagrange's polynomials in the barycentric form, with products as sums of
        logarithms: where one row has nearly all weight there are hundreds of levels, and products
        of their distances overflow. A row at a level has that level alone.
        """
        s = self.fitted.structure
        shares = np.array([level.share for level in self.levels])
        n = rows.stop - rows.start
        if len(shares) == 1:
            return np.ones((1, n))
        if s.l2_weights is None:
            at = l2_shares(s, np.ones(1))
        else:
            at = l2_shares(s, s.l2_weights[rows])
        distances = np.broadcast_to(at, (1, n)) - shares[:, None]
        between = shares[:, None] - shares + np.eye(len(shares))
        logs = np.log(np.abs(between)).sum(axis=1)
        barycentric = np.prod(np.sign(between), axis=1) * np.exp(logs.min() - logs)
        is_met = distances == 0
        terms = barycentric[:, None] / np.where(is_met, 1.0, distances)
        basis = np.where(is_met.any(axis=0), is_met, terms / terms.sum(axis=0))
        return np.asarray(basis, dtype=np.float64)

    def by_replay(self, rows: slice) -> IntArray:
        """Return the positions of the rows that are replayed.

        They outweigh the rest of a leaf by far, or change the active set of one.
        """
        if self._is_replayed is not None:
            return np.asarray(rows.start + np.flatnonzero(self._is_replayed(rows)))
        is_replayed = self._dominant(rows)
        if self._responses is not None:
            s = self.fitted.structure
            is_replayed = is_replayed | self._cache.get("changing", self._changing)[rows]
            if s.averages:  # a leaf without rows has another node's active set
                is_replayed = is_replayed | Parts.of_rows(s, rows).last(s).any(axis=0)
        return np.asarray(rows.start + np.flatnonzero(is_replayed))

    def _changing(self) -> BoolArray:
        """Return whether a row's deletion changes the active set of a leaf, (N,)."""
        s = self.fitted.structure
        responses = self._responses
        assert responses is not None
        is_changing = np.zeros(s.n_rows, dtype=np.bool_)
        for rows in track(blocks_of(s, 8 * s.total_leaves, BLOCK_ENTRIES), "pattern"):
            additions = self.added(0, rows)
            is_changing[rows] = changing_rows(self.fitted, additions, rows, responses)
        return is_changing


@dataclass(frozen=True)
class LeafMatrixEffects(RowEffects):
    """Changes of n predictions of one output on deleting each of N rows, to be read out."""

    deletion: InLeafMatrix
    queries: LeafArray
    adjoints: list[Adjoints]  #: at each level
    by_l2: list[FloatArray]  #: (n, K) at each level: what its l2 alone changes
    output: int

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the first row of each block of training rows, and the changes, (rows, n)."""
        with self.deletion.levels[0].space.backend.guard():
            yield from self._blocks()

    def _blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield `blocks` under the guard of the back end."""
        deletion = self.deletion
        fitted = deletion.fitted
        s = fitted.structure
        k = self.output
        put = deletion.levels[0].rows.xp.asarray
        # sample counts are in the additions
        tables = [s.by_cells(adjoints.phi, drawn=False) for adjoints in self.adjoints]
        by_l2 = [put(of_level[:, k]) for of_level in self.by_l2]
        # a block of every output is held at a time
        per_row = max(len(self.queries), s.n_trees) * len(fitted.base)
        for rows in blocks_of(s, per_row, EFFECT_ENTRIES * deletion.times):
            base_changes = base_without(fitted, rows)[k] - fitted.base[k]
            changes = host(self._read_out(rows, tables, put(base_changes), by_l2))
            changes[np.isnan(base_changes)] = np.nan
            if s.averages:
                changes += self._inherited(rows)
            for j in deletion.by_replay(rows):
                changes[j - rows.start] = deletion.replayed.changes(int(j), self.queries)[:, k]
            yield rows.start, changes

    def _read_out(
        self,
        rows: slice,
        tables: list[AnyPlaceArray],
        base_changes: AnyPlaceArray,
        by_l2: list[AnyPlaceArray],
    ) -> AnyPlaceArray:
        """Return the changes by the formula, (rows, n), on the back end."""
        deletion = self.deletion
        xp = deletion.levels[0].rows.xp
        basis = xp.asarray(deletion.basis(rows))
        changes, of_level = xp.zeros((2, rows.stop - rows.start, len(self.queries)))
        for i, level in enumerate(deletion.levels):
            additions = basis[i] * deletion.added(i, rows)[self.output]
            level.rows.scaled_read_out(tables[i], additions, rows.start, of_level)
            changes += of_level
            changes += np.outer(basis[i] * base_changes, self.adjoints[i].beta)
            changes += np.outer(basis[i], by_l2[i])
        return changes

    def _inherited(self, rows: slice) -> FloatArray:
        """Return the addends to changes, (rows, n), if averaged trees lose a leaf's last row."""
        structure = self.deletion.fitted.structure
        values = inherited_without(self.deletion.fitted, rows)[:, :, self.output]
        if not values.any():
            return np.zeros(1)
        level = self.deletion.levels[0]
        xp = level.rows.xp
        table = xp.asarray(structure.by_cells(value_adjoints(structure, self.queries), drawn=False))
        changes = xp.zeros((rows.stop - rows.start, len(self.queries)))
        values = xp.asarray(np.ascontiguousarray(values))
        level.rows.scaled_read_out(table, values, rows.start, changes)
        return host(changes)


def inherited_without(fitted: FittedValues, rows: slice) -> FloatArray:
    """Return the values of averaged leaves without their last row, (T, rows, K).

    Each of the rows is deleted by itself. Leaves that have other rows, and leaves of a constant
    value, have zeros.
    """
    structure = fitted.structure
    parts = Parts.of_rows(structure, rows)
    is_emptied = parts.last(structure) & (parts.of(structure.linear_leaves.scale) > 0)
    beside = InheritedValues(structure, fitted.sums)
    base_change = np.nan_to_num(base_without(fitted, rows).T - fitted.base)
    values = beside.values[parts.leaf] - beside.of_base[parts.leaf][:, :, None] * base_change
    is_inherited = is_emptied & beside.has_rows[parts.leaf]
    return np.where(is_inherited[:, :, None], values, 0.0)

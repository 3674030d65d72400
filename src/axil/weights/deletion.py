"""Deletion: the fits without one training row each, exactly, with the structure held fixed.

Without row j the leaf weights of its T leaves J fall, and so their scales go from a to a'. All other equations of the fit (see
`boosting`) stay as they are. So the fit without the row is the old one with something added to the sums of these leaves. With R
the responses of leaf values to leaf sums (`leaf_matrix`), v the leaf values and u their derivative by the base,

    r_t = y_j - offset_j - beta_t base' - sum_{s < t} omega[t, s] q_s
    q_t = a'_t / a_t (v_t + d u_t + sum_{s < t} R[t, s] x_s - a_t w b_t r_t)
    x_t = -(w b_t r_t + q_t (1 / a'_t - 1 / a_t))         (-w b_t (r_t - q_t) for a = 1 / (W + l2))

tree by tree, where t and s stand for the row's own leaves. q are their values without the row, r
its residuals, x what is added to the sums, and ``d = -w (y_j - base) / (W - w)`` the change of an
estimated base. Then

    F(x) without the row - F(x) = sum_t phi_t[leaf_t(j)] x_t + beta(x) d

with the adjoints phi and beta of the query: the first-order formula of `removal`, with the
residuals and values after the deletion in place of those before. A leaf that no row is left in has
the value zero; of averaged trees it has the value of its nearest ancestor that has rows
(`inherited`). O(T^2) per row once, O(T) per query after.

Where l2 is in proportion to the mean weight of the N rows, a deletion changes every leaf unless the
row's weight is the mean: l2 becomes ``l2 (1 - s)`` with ``1 - s = (1 - e) N / (N - 1)`` and e = w_j
/ W. Rows of one share s use the fit with that l2 in place of the old one. Where there are many
shares, the answer is interpolated in s between `Level`s, at as many Chebyshev points as leave less
than rounding: all poles are at s >= 1, as denominators are W + l2 (1 - s).

Rows that change the active set of a leaf (`replays`) or outweigh the rest of one by far are
replayed, O(T N) each; and all rows where the leaf matrix does not fit, or where leaves depend on
others' sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray
from axil.machine.arrays import host, like
from axil.machine.progress import track
from axil.machine.threads import Cache
from axil.weights.answers import RowEffects
from axil.weights.deletion_work import BLOCK_ENTRIES, COPIES, blocks_of, walked_blocks
from axil.weights.inherited import InheritedValues
from axil.weights.leaf_matrix import asked
from axil.weights.levels import Level, base_without, l2_shares
from axil.weights.parts import Parts, RowTest
from axil.weights.passes import Adjoints
from axil.weights.replays import ByReplay, changing_rows
from axil.weights.residuals import FittedValues

EFFECT_ENTRIES = (
    1 << 19
)  # of outputs by trees, or queries, by rows whose effects are read out at a time
HELD = 1 << 29  # bytes of additions to sums that are kept from one batch of queries to the next


class Deletion(Protocol):
    """The fits to some targets without one row each."""

    @property
    def fitted(self) -> FittedValues:
        """The fit with all rows."""

    def blocks(self) -> list[slice]:
        """The training rows in blocks to walk."""

    def alone(self, rows: slice) -> Any:
        """(K, T + 1, rows), of the back end: residuals of each of these rows in the fit without it; nan: no weight is left.

        They are those that each tree sees, and those that the last one leaves.
        """

    def effects(self, queries: LeafArray) -> Sequence[RowEffects]:
        """For each output the changes of predictions in these leaves, (n, T), on deleting each row; nan: no weight is left."""


class InLeafMatrix:
    """Deletions by the formula; fits without rows that it does not hold for are replayed."""

    def __init__(
        self,
        levels: list[Level],
        replayed: ByReplay,
        available: int,
        responses: FloatArray | None = None,
        known: Callable[[slice], BoolArray] | None = None,
    ):
        """Keeps what all rows add to sums, where `HELD` bytes and a quarter of ``available`` hold it.

        There is one level for each of `shares_of`. Blocks of rows have the size that the back end wants, within ``available``.
        ``responses`` (L, L) of leaf sums to leaf sums, where there is a pattern. ``known``: which rows are replayed, where that
        was found out before.
        """
        self.levels = levels
        self.replayed = replayed
        self._rows = levels[0].rows
        self.times = int(min(max(available // (COPIES * 8 * BLOCK_ENTRIES), 1), self._rows.times))
        s = self.fitted.structure
        outputs = self.fitted.targets.shape[1]
        self._holds = 8 * len(levels) * outputs * s.n_trees * s.n_rows <= min(HELD, available // 4)
        self._kept = Cache()
        self._last: dict[
            int, tuple[slice, Any]
        ] = {}  # of each level, the block of rows that was walked last
        self._dominant = RowTest(s, Parts.dominant)
        self._responses = responses
        self._known = known

    @property
    def fitted(self) -> FittedValues:
        return self.replayed.fitted

    def blocks(self) -> list[slice]:
        return walked_blocks(self.fitted.structure, self.fitted.targets.shape[1], self.times)

    def added(self, i: int, rows: slice) -> Any:
        """(K, T, rows), an array of the back end: the additions to sums at level i."""
        if self._holds:
            return self._kept.get(i, lambda: self._all_added(i))[:, :, rows]
        last = self._last.get(i)  # outputs are read out block by block in turn: they share the walk
        if last is None or last[0] != rows:
            self._last[i] = last = rows, self._added(i, rows)
        return last[1]

    def _added(self, i: int, rows: slice) -> Any:
        shape = self.fitted.targets.shape[1], self.fitted.structure.n_trees, rows.stop - rows.start
        found = self._rows.xp.empty(shape)
        self.levels[i].walk(rows, base_without(self.fitted, rows), added=found)
        return found

    def _all_added(self, i: int) -> Any:
        s = self.fitted.structure
        found = self._rows.xp.empty((self.fitted.targets.shape[1], s.n_trees, s.n_rows))
        for rows in track(self.blocks(), "deletions"):
            found[:, :, rows] = self._added(i, rows)
        return found

    def alone(self, rows: slice) -> Any:
        s = self.fitted.structure
        base = base_without(self.fitted, rows)
        xp = self._rows.xp
        found = xp.empty((len(base), s.n_trees + 1, base.shape[1]))
        basis = xp.asarray(self.basis(rows))
        self.levels[0].walk(rows, base, residuals=found)
        if len(self.levels) > 1:
            part = xp.empty(found.shape)
            found *= basis[0]
            for i, level in enumerate(self.levels[1:], 1):
                level.walk(rows, base, residuals=part)
                part *= basis[i]
                found += part
        for j in self.by_replay(rows):
            found[:, :, j - rows.start] = like(self.replayed.alone(slice(j, j + 1))[:, :, 0], found)
        return found

    def effects(self, queries: LeafArray) -> Sequence[RowEffects]:
        adjoints = [level.adjoints(queries) for level in self.levels]
        before = self.fitted.predictions(queries.T)
        started = [level.fitted.predictions(queries.T) - before for level in self.levels]
        return [
            LeafSpaceEffects(self, queries, adjoints, started, k) for k in range(before.shape[1])
        ]

    def basis(self, rows: slice) -> FloatArray:
        """(levels, rows): the shares of the levels in the answer about each row: Lagrange's polynomials.

        In the barycentric form, with products as sums of logarithms: where one row has nearly all
        weight there are hundreds of levels, and products of their distances overflow. A row at a
        level has that level alone.
        """
        s = self.fitted.structure
        shares = np.array([level.share for level in self.levels])
        if len(shares) == 1:
            return np.ones((1, rows.stop - rows.start))
        weights = s.l2_weights
        at = l2_shares(s, np.ones(1) if weights is None else weights[rows])
        apart = np.broadcast_to(at, (1, rows.stop - rows.start)) - shares[:, None]
        between = shares[:, None] - shares + np.eye(len(shares))
        logs = np.log(np.abs(between)).sum(axis=1)
        weights = np.prod(np.sign(between), axis=1) * np.exp(logs.min() - logs)
        met = apart == 0
        found = weights[:, None] / np.where(met, 1.0, apart)
        return np.asarray(
            np.where(met.any(axis=0), met, found / found.sum(axis=0)), dtype=np.float64
        )

    def by_replay(self, rows: slice) -> IntArray:
        """The positions of the rows that are replayed: they outweigh the rest of a leaf by far, or change the pattern of one."""
        if self._known is not None:
            return np.asarray(rows.start + np.flatnonzero(self._known(rows)))
        found = self._dominant(rows)
        if self._responses is not None:
            found = found | self._kept.get("changing", self._changing)[rows]
            if self.fitted.structure.averages:  # a leaf without rows has another node's pattern
                found = found | Parts.of_rows(self.fitted.structure, rows).last(
                    self.fitted.structure
                ).any(axis=0)
        return np.asarray(rows.start + np.flatnonzero(found))

    def _changing(self) -> BoolArray:
        """(N,): whether a row's deletion changes the pattern of a leaf."""
        s = self.fitted.structure
        responses = self._responses
        assert responses is not None
        found = np.zeros(s.n_rows, dtype=np.bool_)
        for rows in track(blocks_of(s, 8 * s.total_leaves, BLOCK_ENTRIES), "pattern"):
            found[rows] = changing_rows(self.fitted, self.added(0, rows), rows, responses)
        return found


@dataclass(frozen=True)
class LeafSpaceEffects(RowEffects):
    """Changes of n predictions of one output on deleting each of N rows, to be read out."""

    deletion: InLeafMatrix
    queries: LeafArray
    asked: list[Adjoints]  #: at each level
    started: list[FloatArray]  #: (n, K) at each level: what its l2 alone changes
    output: int

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        with self.deletion.levels[0].space.backend.guard():
            yield from self._blocks()

    def _blocks(self) -> Iterator[tuple[int, FloatArray]]:
        d = self.deletion
        k = self.output
        n = len(self.queries)
        s = d.fitted.structure
        put = d.levels[0].rows.xp.asarray
        tables = [
            s.by_cells(adjoints.phi, drawn=False) for adjoints in self.asked
        ]  # draws are in the additions
        started = [put(of_level[:, k]) for of_level in self.started]
        per_row = max(n, s.n_trees) * len(
            d.fitted.base
        )  # a block of every output is held at a time
        for rows in blocks_of(s, per_row, EFFECT_ENTRIES * d.times):
            changed = base_without(d.fitted, rows)[k] - d.fitted.base[k]
            basis = put(d.basis(rows))
            by_base = put(changed)
            out, part = d.levels[0].rows.xp.zeros((2, rows.stop - rows.start, n))
            for i, level in enumerate(d.levels):
                level.rows.scaled_read_out(
                    tables[i], basis[i] * d.added(i, rows)[k], rows.start, part
                )
                out += part
                out += np.outer(basis[i] * by_base, self.asked[i].beta)
                out += np.outer(basis[i], started[i])
            found = host(out)
            found[np.isnan(changed)] = np.nan
            if s.averages:
                found += self._inherited(rows)
            for j in d.by_replay(rows):
                found[j - rows.start] = d.replayed.changes(int(j), self.queries)[:, k]
            yield rows.start, found

    def _inherited(self, rows: slice) -> FloatArray:
        """Return what is added to changes, (rows, n), where averaged trees lose all rows of the explained row's leaf."""
        deletion = self.deletion
        values = inherited_without(deletion.fitted, rows)[:, :, self.output]
        if not values.any():
            return np.zeros(1)
        structure = deletion.fitted.structure
        level = deletion.levels[0]
        table = level.rows.xp.asarray(
            structure.by_cells(asked(structure, self.queries), drawn=False)
        )
        found = level.rows.xp.zeros((rows.stop - rows.start, len(self.queries)))
        level.rows.scaled_read_out(
            table, level.rows.xp.asarray(np.ascontiguousarray(values)), rows.start, found
        )
        return host(found)


def inherited_without(fitted: FittedValues, rows: slice) -> FloatArray:
    """Return by how much the values of averaged leaves, (T, rows, K), rise above zero that have lost their last row.

    Each of the rows is taken out by itself. Leaves that it leaves other rows have zeros, and
    constant leaves.
    """
    structure = fitted.structure
    parts = Parts.of_rows(fitted.structure, rows)
    emptied = parts.last(structure) & (parts.of(structure.linear_leaves.scale) > 0)
    beside = InheritedValues(structure, fitted.sums)
    base_change = np.nan_to_num(base_without(fitted, rows).T - fitted.base)
    values = beside.values[parts.leaf] - beside.of_base[parts.leaf][:, :, None] * base_change
    return np.where((emptied & beside.has_rows[parts.leaf])[:, :, None], values, 0.0)

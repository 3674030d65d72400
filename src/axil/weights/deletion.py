"""Deletion: the fits without one training row each, exactly, with the structure held fixed.

Without row j the leaf weights of its T leaves J fall, and so their scales go from a to a'. All other equations of the fit (see
`boosting`) stay as they are. So the fit without the row is the old one with something added to the sums of these leaves. With R
the responses of leaf values to leaf sums (`leaf_space`), v the leaf values and u their derivative by the base,

    r_t = y_j - offset_j - beta_t base' - sum_{s < t} omega[t, s] q_s
    q_t = a'_t / a_t (v_t + d u_t + sum_{s < t} R[t, s] x_s - a_t w b_t r_t)
    x_t = -(w b_t r_t + q_t (1 / a'_t - 1 / a_t))         (-w b_t (r_t - q_t) for a = 1 / (W + l2))

tree by tree, where t and s stand for the row's own leaves. q are their values without the row, r its residuals, x what is added
to the sums, and ``d = -w (y_j - base) / (W - w)`` the change of an estimated base. Then

    F(x) without the row - F(x) = sum_t phi_t[leaf_t(j)] x_t + beta(x) d

with the adjoints phi and beta of the query: the first-order formula of `removal`, with the residuals and values after the
deletion in place of those before. A leaf that no row is left in has the value zero. O(T^2) per row once, O(T) per query after.

Where l2 grows with the total weight W, a deletion changes every leaf, by a smooth function of the share e = w_j / W. Rows of one
share use the fit with l2 (1 - e) in place of the old one. Where there are many shares, the answer is interpolated in e between
`Level`s, at as many Chebyshev points as leave less than rounding: all poles are at e >= 1, as denominators are W + l2 (1 - e).

Where leaf space does not fit, fits are replayed one by one: O(T N) per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.kernels import Backend, Costs, Rows
from axil.machine.arrays import host, is_host, like
from axil.machine.progress import track
from axil.machine.threads import Kept
from axil.structure import Structure
from axil.types import Array, Leaves
from axil.weights.answers import RowEffects
from axil.weights.leaf_space import LeafSpace, asked, cooccurrence
from axil.weights.parts import Parts, Which, factors_of
from axil.weights.passes import Adjoints
from axil.weights.removal import known_regularisation, left_of, rescaled
from axil.weights.residuals import FittedValues, over_the_rest

BLOCK_ENTRIES = 1 << 22  # of outputs by trees by rows that are walked at a time
EFFECT_ENTRIES = 1 << 19  # of outputs by trees, or queries, by rows whose effects are read out at a time
CONFLICT, LINE = 64, 8  # numbers: rows of a table a multiple of this long meet in a cache; those of one line of it
LOST = 1e-17  # what interpolation may leave, of the answer
HELD = 1 << 29  # bytes of additions to sums that are kept from one batch of queries to the next
OWN_FACTORS = 4  # times smaller blocks where row weights differ
COPIES = 4  # of a block that are held at a time; with factors of rows four times as many, of blocks a fourth
REPLAYS = 4  # passes over the trees that a replay without a row takes
GROUP_SECONDS = 1e-4  # per tree of a replay besides
BEYOND = 1e-7  # of the largest leaf value: a leaf that is off by less is within the rounding of its pattern
TINY = 1e-150  # a scale of leaves whose values are constant


@dataclass(frozen=True)
class Alone:
    """The fits without each of some rows, where these rows see them: each its own."""

    residuals: (
        Any  #: (K, T + 1, rows), of the back end: seen by each tree, and left by the last; nan: no weight is left
    )


class Deletion(Protocol):
    """The fits to some targets without one row each."""

    @property
    def fitted(self) -> FittedValues:
        """The fit with all rows."""

    def blocks(self) -> list[slice]:
        """The training rows in blocks to walk."""

    def alone(self, rows: slice) -> Alone:
        """The fits without each of these rows, as the row itself sees them."""

    def effects(self, queries: Leaves) -> Sequence[RowEffects]:
        """For each output the changes of predictions in these leaves, (n, T), on deleting each row; nan: no weight is left."""


@dataclass(frozen=True)
class Level:
    """The fit with one l2, in leaf space; its tables are arrays of the rows' back end."""

    share: float  #: of all weight, by which l2 is less than it was
    rows: Rows
    fitted: FittedValues
    space: LeafSpace
    responses: Any  #: (L, L) of leaf values to leaf sums; its rows may lie apart
    values: Any  #: (L, K) of the leaves
    of_base: Any  #: (L,) of leaf values to the base
    factors: Any  #: (cells, 5); None: row weights differ
    steps: Any  #: (T, T) of the residuals by leaf values, from one tree to the next
    drifts: Any  #: (T,) likewise by the base

    @classmethod
    def of(cls, share: float, rows: Rows, fitted: FittedValues, space: LeafSpace) -> Level:
        s, responses, put = fitted.structure, space.responses, rows.xp.asarray
        of_base = -(responses @ like(s.base_share, responses))
        factors = put(Parts.of_cells(s).factors(s)) if s.row_weights is None else None
        if s.coefficients is None:
            steps, drifts = np.diag(s.rates), np.zeros(s.n_trees)
        else:
            steps, drifts = np.diff(s.coefficients.omega, axis=0), np.diff(s.beta)
        tables = (apart(responses), put(np.ascontiguousarray(fitted.values)), of_base, factors)
        return cls(share, rows, fitted, space, *tables, put(np.tril(steps)), put(drifts))

    def adjoints(self, queries: Leaves) -> Adjoints:
        """Gives the adjoints of the predictions whose leaves are ``queries``, (n, T)."""
        s, phi = self.fitted.structure, self.space.adjoints(queries)
        return Adjoints(phi, float(s.beta[-1]) - like(s.base_share, phi) @ phi)

    def walk(self, rows: slice, base: Array, residuals: Any = None, added: Any = None) -> None:
        """Fills (K, T + 1, rows) with the residuals r of the rows without them, (K, T, rows) with the additions x to sums.

        ``base`` (K, rows): without the row.
        """
        s, f = self.fitted.structure, self.fitted
        by_row = self.factors is None
        factors = factors_of(s, rows, self.rows) if self.factors is None else self.factors
        base = np.ascontiguousarray(base)
        start = np.ascontiguousarray(f.started(rows).T - s.beta[0] * base)
        self.rows.deletions(
            len(s.draws),
            self.responses,
            factors,
            by_row,
            self.values,
            self.of_base,
            self.steps,
            self.drifts,
            start,
            base,
            base - f.base[:, None],
            rows.start,
            residuals,
            added,
        )


def apart(table: Any) -> Any:
    """A square table whose rows do not all begin at the same places of a CPU's cache: a copy where they would."""
    n = len(table)
    if n % CONFLICT or not is_host(table):
        return table
    out = np.empty((n, n + LINE))[:, :n]
    out[...] = table
    return out


def base_without(fitted: FittedValues, rows: slice) -> Array:
    """(K, rows): the base of the fit without each of these rows; nan where no weight is left."""
    s, targets = fitted.structure, fitted.targets[rows].T
    w = np.ones(targets.shape[1]) if s.row_weights is None else s.row_weights[rows]
    left = left_of(np.array(s.total_weight), w)
    left = np.where(left > 0, left, np.nan)
    before = fitted.base[:, None] + np.zeros_like(targets)
    return np.asarray(before - (w / left) * (targets - before if s.base is None else np.zeros_like(targets)))


class InLeafSpace:
    """Deletions by the formula; fits without a row that outweighs the rest of a leaf by far are replayed."""

    def __init__(self, levels: list[Level], replayed: ByReplay, available: int):
        """Keeps what all rows add to sums, where `HELD` bytes and a quarter of ``available`` hold it.

        There is one level for each of `shares_of`. Blocks of rows have the size that the back end wants, within ``available``.
        """
        self.levels, self.replayed, self._rows = levels, replayed, levels[0].rows
        self.times = int(min(max(available // (COPIES * 8 * BLOCK_ENTRIES), 1), self._rows.times))
        s, outputs = self.fitted.structure, self.fitted.targets.shape[1]
        self._holds = 8 * len(levels) * outputs * s.n_trees * s.n_rows <= min(HELD, available // 4)
        self._kept = Kept()
        self._last: dict[int, tuple[slice, Any]] = {}  # of each level, the block of rows that was walked last
        self._dominant = Which(s, Parts.dominant)

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

    def alone(self, rows: slice) -> Alone:
        s, base, xp = self.fitted.structure, base_without(self.fitted, rows), self._rows.xp
        found, basis = xp.empty((len(base), s.n_trees + 1, base.shape[1])), xp.asarray(self.basis(rows))
        self.levels[0].walk(rows, base, residuals=found)
        if len(self.levels) > 1:
            part = xp.empty(found.shape)
            found *= basis[0]
            for i, level in enumerate(self.levels[1:], 1):
                level.walk(rows, base, residuals=part)
                part *= basis[i]
                found += part
        for j in self.dominant(rows):
            found[:, :, j - rows.start] = like(self.replayed.alone(slice(j, j + 1)).residuals[:, :, 0], found)
        return Alone(found)

    def effects(self, queries: Leaves) -> Sequence[RowEffects]:
        adjoints = [level.adjoints(queries) for level in self.levels]
        before = self.fitted.predictions(queries.T)
        started = [level.fitted.predictions(queries.T) - before for level in self.levels]
        return [LeafSpaceEffects(self, queries, adjoints, started, k) for k in range(before.shape[1])]

    def basis(self, rows: slice) -> Array:
        """(levels, rows): the shares of the levels in the answer about each row: Lagrange's polynomials.

        In the barycentric form, with products as sums of logarithms: where one row has nearly all weight there are hundreds of
        levels, and products of their distances overflow. A row at a level has that level alone.
        """
        s, shares = self.fitted.structure, np.array([level.share for level in self.levels])
        if len(shares) == 1:
            return np.ones((1, rows.stop - rows.start))
        at = (np.ones(1) if s.row_weights is None else s.row_weights[rows]) / s.total_weight
        apart = np.broadcast_to(at, (1, rows.stop - rows.start)) - shares[:, None]
        between = shares[:, None] - shares + np.eye(len(shares))
        logs = np.log(np.abs(between)).sum(axis=1)
        weights = np.prod(np.sign(between), axis=1) * np.exp(logs.min() - logs)
        met = apart == 0
        found = weights[:, None] / np.where(met, 1.0, apart)
        return np.asarray(np.where(met.any(axis=0), met, found / found.sum(axis=0)), dtype=np.float64)

    def dominant(self, rows: slice) -> NDArray[np.intp]:
        """The positions of the rows that outweigh the rest of one of their leaves by `DOMINANT`."""
        return np.asarray(rows.start + np.flatnonzero(self._dominant(rows)))


@dataclass(frozen=True)
class LeafSpaceEffects:
    """Changes of n predictions of one output on deleting each of N rows, to be read out."""

    deletion: InLeafSpace
    queries: Leaves
    asked: list[Adjoints]  #: at each level
    started: list[Array]  #: (n, K) at each level: what its l2 alone changes
    output: int

    def dense(self) -> Array:
        return gathered(self, self.deletion.fitted.structure.n_rows, len(self.queries))

    def blocks(self) -> Iterator[tuple[int, Array]]:
        with self.deletion.levels[0].space.backend.guard():
            yield from self._blocks()

    def _blocks(self) -> Iterator[tuple[int, Array]]:
        d, k, n = self.deletion, self.output, len(self.queries)
        s, put = d.fitted.structure, d.levels[0].rows.xp.asarray
        tables = [s.by_cells(adjoints.phi, drawn=False) for adjoints in self.asked]  # draws are in the additions
        started = [put(of_level[:, k]) for of_level in self.started]
        per_row = max(n, s.n_trees) * len(d.fitted.base)  # a block of every output is held at a time
        for rows in blocks_of(s, per_row, EFFECT_ENTRIES * d.times):
            changed = base_without(d.fitted, rows)[k] - d.fitted.base[k]
            basis, by_base = put(d.basis(rows)), put(changed)
            out, part = d.levels[0].rows.xp.zeros((2, rows.stop - rows.start, n))
            for i, level in enumerate(d.levels):
                level.rows.scaled_read_out(tables[i], basis[i] * d.added(i, rows)[k], rows.start, part)
                out += part
                out += np.outer(basis[i] * by_base, self.asked[i].beta)
                out += np.outer(basis[i], started[i])
            found = host(out)
            found[np.isnan(changed)] = np.nan
            if s.averages:
                found += self._over_the_rest(rows, found)
            for j in d.dominant(rows):
                found[j - rows.start] = d.replayed.changes(int(j), self.queries)[:, k]
            yield rows.start, found

    def _over_the_rest(self, rows: slice, changes: Array) -> Array:
        """(rows, n): what is added to changes where averaged trees lose all rows of the query's leaf."""
        d, k = self.deletion, self.output
        s, f, level = d.fitted.structure, d.fitted, d.levels[0]
        gone, values = emptied_with(f, rows)
        if not gone.any():
            return np.zeros(1)
        put = level.rows.xp.asarray
        table = put(s.by_cells(asked(s, self.queries), drawn=False))
        lost, taken = level.rows.xp.zeros((2, *changes.shape))
        level.rows.scaled_read_out(table, put(gone), rows.start, lost)
        level.rows.scaled_read_out(table, put(np.ascontiguousarray(values[:, :, k])), rows.start, taken)
        made = f.predictions(self.queries.T)[:, k] + changes
        base = base_without(f, rows)[k][:, None]
        return over_the_rest(s, made, host(lost), host(taken), base) - made

    def sparse(self) -> csr_array | None:
        return None


def emptied_with(fitted: FittedValues, rows: slice) -> tuple[Array, Array]:
    """(T, rows) ones where an averaged tree has no other row in the row's leaf, and (T, rows, K) what it puts there without it.

    That is the value of a constant leaf, and the base where it is in the trees' outputs.
    """
    s, parts = fitted.structure, Parts.of_rows(fitted.structure, rows)
    gone = np.asarray(parts.last(s), dtype=np.float64)
    held = np.where((parts.of(s.leaf_scale) > 0)[:, :, None], 0.0, fitted.values[parts.leaf])
    based = s.base_in_trees[:, None, None] * np.nan_to_num(base_without(fitted, rows).T)
    return gone, gone[:, :, None] * (held + based)


@dataclass(frozen=True)
class ByReplay:
    """Deletions by fits without one row after the other."""

    fitted: FittedValues  #: with all rows
    refit: Callable[[int, Array], FittedValues]  #: without this row, to these targets

    def blocks(self) -> list[slice]:
        return walked_blocks(self.fitted.structure, self.fitted.targets.shape[1])

    def without(self, j: int) -> FittedValues | None:
        """The fit without row j; None: no weight is left."""
        lost = np.isnan(base_without(self.fitted, slice(j, j + 1))).any()
        return None if lost else self.refit(j, self.fitted.targets)

    def changes_pattern(self, j: int) -> bool:
        """Whether leaves would have another pattern than the one held without row j."""
        without = self.without(j)
        return without is not None and leaves_beyond(without.structure, without.sums, without.values) > 0

    def alone(self, rows: slice) -> Alone:
        f, leaves = self.fitted, self.fitted.structure.leaves(rows)
        found = np.full((f.targets.shape[1], len(leaves) + 1, leaves.shape[1]), np.nan)
        for i, j in enumerate(range(rows.start, rows.stop)):
            fitted = self.without(j)
            if fitted is not None:
                seen = fitted.residuals(leaves[:, i : i + 1], f.started(slice(j, j + 1)))
                for t, residual in enumerate(seen):
                    found[:, t, i] = residual[0]
        return Alone(found)

    def changes(self, j: int, queries: Leaves) -> Array:
        """(n, K): the changes of predictions in these leaves, (n, T), without row j."""
        before, fitted = self.fitted.predictions(queries.T), self.without(j)
        return np.full_like(before, np.nan) if fitted is None else fitted.predictions(queries.T) - before

    def effects(self, queries: Leaves) -> Sequence[RowEffects]:
        return [ReplayedEffects(self, queries, k) for k in range(self.fitted.targets.shape[1])]


@dataclass(frozen=True)
class ReplayedEffects:
    """Changes of n predictions of one output on deleting each of N rows, by replays."""

    deletion: ByReplay
    queries: Leaves
    output: int

    def dense(self) -> Array:
        return gathered(self, self.deletion.fitted.structure.n_rows, len(self.queries))

    def blocks(self) -> Iterator[tuple[int, Array]]:
        for j in track(range(self.deletion.fitted.structure.n_rows), "deletions"):
            yield j, self.deletion.changes(j, self.queries)[None, :, self.output]

    def sparse(self) -> csr_array | None:
        return None


def leaves_beyond(s: Structure, sums: Array, values: Array) -> int:
    """How many leaves of these sums (L, K) have other values (L, K) by the rule than by the pattern; K is one where it bends."""
    assert s.regularisation is not None
    return len(_apart(s.regularisation.leaf_values(sums[:, 0], s.leaf_weights), values[:, 0]))


def _apart(values: Array, held: Array) -> NDArray[np.intp]:
    return np.flatnonzero(np.abs(values - held) > BEYOND * np.abs(held).max(initial=0.0))


def row_beyond(deletion: Deletion, available: int) -> int | None:
    """A training row without which leaves would have another pattern than the one that is held; None: there is none."""
    f = deletion.fitted
    rule, n_rows = f.structure.regularisation, f.structure.n_rows
    if rule is None or not rule.bends:
        return None
    if isinstance(deletion, InLeafSpace) and Sums.fits(deletion, available):
        level = deletion.levels[0]
        together = cooccurrence(f.structure, level.rows, 0, f.structure.n_trees)
        return Sums(deletion, sum_responses(f.structure, together, level.space.backend)).row_beyond()
    replayed = deletion.replayed if isinstance(deletion, InLeafSpace) else deletion
    assert isinstance(replayed, ByReplay)
    return next((j for j in track(range(n_rows), "pattern") if replayed.changes_pattern(j)), None)


def sum_responses(s: Structure, together: Any, backend: Backend) -> Array:
    """(L, L): the responses of leaf sums to leaf sums, from co-occurrences over all rows, which are overwritten."""
    free = np.where(s.leaf_scale > 0, s.leaf_scale, TINY)  # of a constant leaf the sum counts, and moves nothing
    space = LeafSpace.of(replace(s, leaf_scale=free, shift=None), together, backend)
    return np.asarray(host(space.responses) / free[:, None])


class Sums:
    """The leaf sums and values of the fits without each row: those of all leaves, and not of the row's own alone."""

    def __init__(self, deletion: InLeafSpace, responses: Array):
        self.deletion, self.responses = deletion, responses
        self.by_base = responses @ deletion.fitted.structure.base_share

    @staticmethod
    def fits(deletion: InLeafSpace, available: int) -> bool:
        """Whether there is memory for them, and one level of l2."""
        return len(deletion.levels) == 1 and 3 * LeafSpace.size(deletion.fitted.structure) <= available

    def row_beyond(self) -> int | None:
        """A row without which the pattern changes; None: there is none."""
        d, s = self.deletion, self.deletion.fitted.structure
        step = max(1, BLOCK_ENTRIES // (8 * s.total_leaves))
        for first in track(range(0, s.n_rows, step), "pattern"):
            rows = slice(first, min(first + step, s.n_rows))
            heavy: list[int] = d.dominant(rows).tolist()
            found = [j for j in heavy if d.replayed.changes_pattern(j)] or [
                j for j in self.among(rows) if j not in heavy
            ]
            if found:
                return found[0]
        return None

    def among(self, rows: slice) -> list[int]:
        """Which of these rows change the pattern, by the formula."""
        f, shift = self.deletion.fitted, self.deletion.fitted.structure.shift
        s, parts, n = f.structure, Parts.of_rows(f.structure, rows), rows.stop - rows.start
        rule, shift = known_regularisation(s), np.zeros(s.total_leaves) if shift is None else shift
        column = np.broadcast_to(np.arange(n), parts.leaf.shape)
        added = host(self.deletion.added(0, rows))[0]
        placed = csr_array((added.ravel(), (column.ravel(), parts.leaf.ravel())), shape=(n, s.total_leaves))
        moved = base_without(f, rows)[0] - f.base[0]
        sums = f.sums[:, 0] + placed @ self.responses.T - np.outer(moved, self.by_base)
        values, weights = s.leaf_scale * sums + shift, np.tile(s.leaf_weights, (n, 1))
        left, scale, after = parts.left(s), parts.of(s.leaf_scale), parts.left_scale(s)
        ratio = np.divide(after, scale, out=np.zeros_like(scale), where=scale > 0)
        own = np.divide(
            values[column, parts.leaf] - parts.of(shift) * ratio, after, out=np.zeros_like(scale), where=after > 0
        )
        sums[column, parts.leaf] = np.where(scale > 0, own, np.where(left > 0, sums[column, parts.leaf], 0.0))
        weights[column, parts.leaf] = left
        several = rule.nodes is None and rule.chains is None
        ruled = (
            rule.leaf_values(sums, weights)
            if several
            else np.stack([rule.leaf_values(*row) for row in zip(sums, weights)])
        )
        there = np.flatnonzero(~np.isnan(moved))
        return [rows.start + int(i) for i in there if len(_apart(ruled[i], values[i]))]


def gathered(effects: RowEffects, n_rows: int, n: int) -> Array:
    """(n, N): effects that come in blocks."""
    out = np.empty((n_rows, n))
    for first, block in effects.blocks():
        out[first : first + len(block)] = block
    return out.T


def blocks_of(s: Structure, per_row: int, entries: int) -> list[slice]:
    """The training rows in blocks of about ``entries`` numbers, ``per_row`` for each row."""
    step = max(16, entries // per_row)
    return [slice(first, min(first + step, s.n_rows)) for first in range(0, s.n_rows, step)]


def walked_blocks(s: Structure, outputs: int, times: int = 1) -> list[slice]:
    """The training rows in blocks to walk; in smaller ones where each row has factors of its own in every tree."""
    entries = times * BLOCK_ENTRIES
    return blocks_of(s, s.n_trees * outputs, entries if s.row_weights is None else entries // OWN_FACTORS)


def shares_of(s: Structure, weights: Array | None = None) -> Array:
    """(levels,): the shares of all weight at which leaf space is needed; 0 alone where l2 does not follow the total weight.

    ``weights``: the different row weights, sorted, where the rows are elsewhere.
    """
    if not known_regularisation(s).by_weight:
        return np.zeros(1)
    if weights is None:
        weights = np.unique(np.ones(1) if s.row_weights is None else s.row_weights)
    at = weights / s.total_weight
    at = np.asarray(at[left_of(np.ones(1), at) > 0])
    if len(at) < 2:
        return at if len(at) else np.zeros(1)
    middle, half = (at[0] + at[-1]) / 2, (at[-1] - at[0]) / 2
    pole = (1 - middle) / half
    n = int(np.ceil(-np.log(LOST) / np.log(pole + np.sqrt(pole**2 - 1)))) + 1
    return at if len(at) <= n else middle + half * np.cos(np.pi * (np.arange(n) + 0.5) / n)


def at_share(s: Structure, share: float) -> Structure:
    """The structure where l2 is less by this share; all else as it is."""
    return s if share == 0 else rescaled(s, known_regularisation(s).scaled(1 - share))


@dataclass(frozen=True)
class Work:
    """Seconds and bytes that deletions of all rows take, roughly."""

    in_leaf_space: float
    by_replay: float
    needed: int  #: bytes, in leaf space

    @classmethod
    def of(cls, s: Structure, costs: Costs, ready: bool) -> Work:
        """``ready``: leaf space is there already."""
        shares = shares_of(s)
        levels = len(shares)
        built = levels - (ready and 0.0 in shares)
        leaf_space = costs.pair * s.n_rows * s.n_trees**2 / 2 + costs.inverse * s.total_leaves**3
        pairs = levels * costs.walk * s.n_rows * s.n_trees**2 / 2
        replay = REPLAYS * costs.visit_seconds * costs.sweep * s.n_rows * s.n_trees + GROUP_SECONDS * s.n_trees
        matrix = 8 * s.total_leaves**2
        blocks = COPIES * 8 * min(BLOCK_ENTRIES, s.n_rows * s.n_trees)
        return cls(
            costs.visit_seconds * (built * leaf_space + pairs),
            s.n_rows * replay,
            built * LeafSpace.size(s) + levels * matrix + blocks,
        )

    def uses_leaf_space(self, available: int) -> bool:
        """Whether it fits and is the faster way."""
        return self.needed <= available and self.in_leaf_space <= self.by_replay

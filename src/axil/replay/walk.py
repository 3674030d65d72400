"""The walk through a fit of residuals with the model's own leaf values: what its rows, all or some of them, add to the leaves.

Where all rows are in every tree, a kernel walks block by block, because a row's residuals depend on
no other row. `TreeWalk` goes tree by tree through fits that draw rows, scale trees again, cut
residuals off or take percentiles. `gradient_walk` is the walk for any other loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit, RowGradients
from axil.adapters.contract import Adapter
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.kernels.choose import backend_of, host_backend
from axil.kernels.cpu import drawn_sums
from axil.machine.memory import Budget, Limits
from axil.machine.progress import track
from axil.structure import CutRows, RankedFit, Ranks, cell_dtype

Leaves = NDArray[np.unsignedinteger[Any]]

ELSEWHERE = "Raise memory_limit, or keep them on disk with scratch=directory."
MOST_DRAWS = np.iinfo(np.uint16).max  # different numbers of draws that are told apart


@dataclass(frozen=True)
class Walked:
    """Sums that rows add to their leaves on a walk; rows are independent, so parts of a data set add up to the whole."""

    cells: Leaves  #: (T, N), see `Structure`
    draws: FloatArray  #: (D,) or (D, L), see `Structure`
    counts: NDArray[np.int64]  #: (L,) rows that each leaf was fitted on
    leaf_weights: FloatArray  #: (L,)
    sums: FloatArray  #: (L, K) of weight * draw * residual, as the library rounds them
    score: FloatArray  #: (N, K) the model's predictions of the rows
    drawn_weights: FloatArray  #: (L,) of all rows that each leaf was fitted on, whatever its ranks
    shift: FloatArray | None = (
        None  #: (L,) constants in leaf values that are percentiles; None: none
    )
    ranks: RankedFit | None = None  #: what percentiles follow from; None: there are none
    cut: CutRows | None = None  #: the part of the sums that no target makes; None: there is none


def walk(
    adapter: Adapter,
    trees: BoostedFit,
    leaves: Leaves,
    targets: FloatArray,
    offsets: FloatArray | None,
    limits: Limits,
) -> Walked:
    """Walk through the fit with some or all of its rows."""
    plain = (
        trees.sampler is None
        and trees.schedule.coefficients is None
        and trees.leaf_rule.ranks is None
    )
    plain = plain and trees.leaf_rule.cut is None
    if plain:
        return _walk_fast(adapter, trees, leaves, targets, offsets, limits)
    return TreeWalk(adapter, trees, leaves, targets, offsets, limits.budget).run()


def round_to(precision: type[np.floating[Any]], values: FloatArray) -> FloatArray:
    """The values as the library keeps them, in float64; nan stays nan."""
    with np.errstate(over="ignore"):
        rounded = values.astype(precision).astype(np.float64, copy=False)
    if np.isinf(rounded).any():
        raise InputError(
            f"Targets or weights up to {np.abs(values).max():.3g} overflow the library's {precision.__name__}. Pass "
            "those of the fit."
        )
    return rounded


def leaf_totals(
    leaves: Leaves, n_leaves: NDArray[np.int64], weights: FloatArray | None, n_threads: int
) -> FloatArray:
    """(L,): the sum of the weights of every leaf's rows, their number where there are no weights."""
    starts = np.concatenate([[0], np.cumsum(n_leaves)])
    if weights is None:
        counted = np.ones((leaves.shape[1], 1))
    else:
        counted = weights[:, None]
    return host_backend(n_threads).rows(leaves, starts).leaf_sums(counted, None)[:, 0]


def _walk_fast(
    adapter: Adapter,
    trees: BoostedFit,
    leaves: Leaves,
    targets: FloatArray,
    offsets: FloatArray | None,
    limits: Limits,
) -> Walked:
    """Plain boosting on all rows: the residuals of a row depend on no other, so a kernel walks block by block."""
    weights = trees.weights.row_weights
    starts = np.concatenate([[0], np.cumsum(trees.table.n_leaves)])
    leaves.setflags(
        write=False
    )  # they are the cells of the structure: a back end may keep one copy for both
    rows = backend_of(limits).rows(leaves, starts, weights)
    score = np.empty(targets.shape, order="F")
    sums = np.empty((starts[-1], targets.shape[1]))
    counts = np.empty(starts[-1])
    single, single_score = (
        p is np.float32 for p in (adapter.rounding.residuals, adapter.rounding.scores)
    )
    for k in range(targets.shape[1]):
        own = score[:, k]
        total = np.empty(starts[-1])
        own[:] = trees.initial.values[k]
        if offsets is not None:
            own += offsets[:, k]
        values = np.ascontiguousarray(trees.table.leaf_values[:, k])
        target = np.ascontiguousarray(targets[:, k])
        if single_score:
            own[:], values = own.astype(np.float32), values.astype(np.float32).astype(np.float64)
        rows.replay(values, target, weights, single, single_score, own, total, counts)
        sums[:, k] = total
    if weights is None:
        leaf_weights = counts
    else:
        leaf_weights = leaf_totals(leaves, trees.table.n_leaves, weights, limits.n_threads)
    if trees.weights.held_out is not None:
        counts = leaf_totals(
            leaves, trees.table.n_leaves, (~trees.weights.held_out).astype(float), limits.n_threads
        )
    return Walked(
        leaves,
        np.ones(1),
        np.rint(counts).astype(np.int64),
        leaf_weights,
        sums,
        score,
        leaf_weights,
    )


class TreeWalk:
    """Any other fit, tree by tree: samplers, coefficients, predictions kept in single precision."""

    def __init__(
        self,
        adapter: Adapter,
        trees: BoostedFit,
        leaves: Leaves,
        targets: FloatArray,
        offsets: FloatArray | None,
        budget: Budget,
    ):
        self.adapter = adapter
        self.trees = trees
        self.targets = targets
        self.offsets = offsets
        # which those of some rows may not be
        self.leaves = np.ascontiguousarray(leaves)
        self.budget = budget
        self.starts = np.concatenate([[0], np.cumsum(trees.table.n_leaves)])
        self.score = self._start(
            1.0 if trees.schedule.coefficients is None else trees.schedule.coefficients.beta[0]
        )
        self.added = 0  # trees up to here are in the predictions
        # (T,): after which trees the coefficients of others, or the base, change
        self.changes = np.zeros(0, dtype=np.bool_)
        if trees.schedule.coefficients is not None:
            omega = trees.schedule.coefficients.omega
            beta = trees.schedule.coefficients.beta
            self.changes = (omega[1:] != omega[:-1]).any(axis=1) | (beta[1:] != beta[:-1])
        # (N, 1 + K) weights and weighted residuals at the scores reached; None: they are not
        # computed yet
        self._weighted_residuals: FloatArray | None = None
        self.levels = [
            1.0
        ]  # first, so that a structure with a single level of draws is one without sampling
        self.known = np.zeros(
            0, dtype=np.uint16
        )  # the codes of whole numbers of draws; MOST_DRAWS: not yet met
        # Codes of the draws, two bytes if there are many.
        if trees.sampler is None and trees.leaf_rule.ranks is None:
            self.codes = None
        else:
            self.codes = self._empty(np.uint8)
        if trees.leaf_rule.ranks is None:
            self.shares = None
        else:
            self.shares = np.zeros((3 + trees.leaf_rule.ranks.spreads, int(self.starts[-1])))
        if trees.sampler is None or trees.leaf_rule.ranks is None:
            self.drawn = None
        else:
            self.drawn = self._empty(np.uint8)
        self.shift: FloatArray | None = None
        # whose residuals are cut off
        if trees.leaf_rule.cut is None:
            self.beyond = None
        else:
            self.beyond = self._empty(np.uint8)

    def _empty(self, dtype: type[np.unsignedinteger[Any]]) -> Leaves:
        shape = (self.leaves.shape[0], self.leaves.shape[1])
        return self.budget.empty(
            shape, dtype, "How often each row was drawn for each tree", ELSEWHERE
        )

    def run(self) -> Walked:
        trees, n_trees = self.trees, len(self.trees.table.n_leaves)
        total, n_outputs = int(self.starts[-1]), self.targets.shape[1]
        self.sums, self.leaf_weights = np.zeros((total, n_outputs)), np.zeros(total)
        self.cut_sums, self.free = np.zeros((total, n_outputs)), np.zeros(total)
        drawn_weights, counts = np.zeros(total), np.zeros(total, dtype=np.int64)
        for t in track(range(n_trees), "replay"):
            own, n = slice(self.starts[t], self.starts[t + 1]), int(trees.table.n_leaves[t])
            residuals = self._seen(t)
            draw = self._draw(t, residuals)
            taken = (
                draw
                if trees.weights.held_out is None
                else np.where(trees.weights.held_out, 0.0, draw)
            )  # held out: of weight 0
            if self._in_core:
                weighted, counts[own] = drawn_sums(
                    self.leaves[t], taken, self._weighted(residuals), n
                )
                drawn_weights[own] = self.leaf_weights[own] = weighted[:, 0]
                self.sums[own] = weighted[:, 1:]
            else:
                drawn = (
                    draw if trees.weights.row_weights is None else draw * trees.weights.row_weights
                )
                drawn_weights[own] = self.leaf_weights[own] = np.bincount(self.leaves[t], drawn, n)
                if trees.leaf_rule.ranks is None:
                    self.sums[own] = self._leaf_sums(t, residuals, draw, drawn)
                else:
                    self.sums[own], self.leaf_weights[own] = self._pick(
                        t, trees.leaf_rule.ranks, residuals, draw
                    )
                counts[own] = np.bincount(self.leaves[t], taken > 0, n)
            self._advance(t)
        draws, ranks, cut = (
            np.array(self.levels) if self.shares is None else self.shares,
            None,
            None,
        )
        if trees.leaf_rule.ranks is not None:
            rows = (
                None if trees.weights.held_out is None else np.flatnonzero(~trees.weights.held_out)
            )
            single = self.adapter.rounding.residuals is np.float32
            ranks = RankedFit(
                trees.leaf_rule.ranks, trees.initial.is_first_tree, self.drawn, rows, single
            )
        if self.beyond is not None:
            draws = np.append(draws, np.zeros_like(draws))
            cut = CutRows(self.cut_sums, self.free, int(self.beyond.sum()), self.beyond.size)
        found = counts, self.leaf_weights, self.sums, self.score, drawn_weights
        return Walked(self._cells(), draws, *found, self.shift, ranks, cut)

    def _seen(self, t: int) -> FloatArray:
        """(N, K): the residuals that tree t sees; those that are cut off are rounded later, with their weights."""
        residuals = self.targets - self.score
        cut = self.trees.leaf_rule.cut
        if cut is None or self.beyond is None:
            return self._rounded(residuals, self.adapter.rounding.residuals)
        self.beyond[t] = cut.beyond(residuals[:, 0])
        return cut.kept(residuals)

    @staticmethod
    def _rounded(values: FloatArray, precision: type[np.floating[Any]]) -> FloatArray:
        if precision is not np.float64:
            return values.astype(precision).astype(np.float64)
        return values

    def _draw(self, t: int, residuals: FloatArray) -> FloatArray:
        """(N,): how often each row was drawn for tree t; told apart by a code for the structure's cells."""
        if self.trees.sampler is None or self.codes is None:
            return np.ones(len(self.targets))
        tree = t - self.trees.initial.is_first_tree
        if tree < 0:  # the base, which is made of all rows
            return np.ones(len(self.targets))
        gradients = RowGradients(residuals)
        (drawn,) = self.trees.sampler.draw(range(tree, tree + 1), self.leaves[t : t + 1], gradients)
        draw: FloatArray = drawn.astype(np.float64)
        if self.shares is not None:
            return draw
        if drawn.dtype.kind in "iu" and drawn.min(initial=0) >= 0:
            most = int(drawn.max(initial=0))
        else:
            most = MOST_DRAWS
        if most < MOST_DRAWS:
            more = most + 1 - len(self.known)
            self.known = np.append(self.known, np.full(max(more, 0), MOST_DRAWS, dtype=np.uint16))
            codes = self.known.take(drawn)
            if codes.max(initial=0) == MOST_DRAWS:
                present = np.flatnonzero(np.bincount(drawn))
                self.known[present] = [self._code(float(level)) for level in present]
                codes = self.known.take(drawn)
        else:
            present = np.sort(self.levels)
            found = np.minimum(np.searchsorted(present, draw), len(present) - 1)
            if (present[found] != draw).any():
                present, found = np.unique(draw, return_inverse=True)
            codes = np.array([self._code(float(level)) for level in present])[found]
        if codes.max(initial=0) > np.iinfo(self.codes.dtype).max:
            wider = self._empty(np.uint16)
            wider[:t] = self.codes[:t]
            self.codes = wider
        self.codes[t] = codes
        return draw

    def _pick(
        self, t: int, ranks: Ranks, residuals: FloatArray, draw: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Percentiles (L_t, 1) of the leaves of tree t, and what the shares of the rows picked for each add up to, (L_t,)."""
        assert self.shares is not None
        assert self.codes is not None
        n = int(self.trees.table.n_leaves[t])
        start = self.starts[t]
        if self.drawn is not None:
            if ranks.by_draws:
                self.drawn[t] = draw
            else:
                self.drawn[t] = draw > 0
        if self.trees.weights.held_out is not None:
            draw = np.where(self.trees.weights.held_out, 0.0, draw)
        found = ranks.picks(
            self.leaves[t], residuals[:, 0], draw, t < self.trees.initial.is_first_tree
        )
        self.codes[t] = found.codes(len(residuals))
        self.shares[1 : 1 + len(found.levels), start + found.leaves] = found.levels
        sums = np.zeros((n, 1))
        weights = np.zeros(n)
        sums[found.leaves, 0] = found.values(residuals[:, 0])
        weights[found.leaves] = 1.0
        if found.shifts is not None:
            if self.shift is None:
                self.shift = np.zeros(len(self.trees.table.leaf_values))
            self.shift[start + found.leaves] = found.shifts
        return sums, weights

    def _code(self, level: float) -> int:
        """The number of a level of draws, a new one if need be."""
        if level not in self.levels:
            if len(self.levels) == MOST_DRAWS:
                if self.trees.sampler is None:
                    name = ""
                else:
                    name = self.trees.sampler.name
                raise InputError(
                    f"{name} draws rows in more than {MOST_DRAWS} different numbers; expected few, as 0, 1, 2."
                )
            self.levels.append(level)
        return self.levels.index(level)

    @property
    def _in_core(self) -> bool:
        """Whether nothing is rounded or picked on the way from residuals to the sums of leaves."""
        return (
            self.adapter.rounding.residuals is np.float64
            and self.trees.leaf_rule.ranks is None
            and self.beyond is None
        )

    def _weighted(self, residuals: FloatArray) -> FloatArray:
        """Return the weights of the rows beside weight * residual, (N, 1 + K).

        All trees of a forest see the same residuals, so they are weighted once.
        """
        if self._weighted_residuals is None:
            weights = self.trees.weights.row_weights
            if weights is None:
                weights = np.ones(len(residuals))
            self._weighted_residuals = np.column_stack([weights, residuals * weights[:, None]])
        return self._weighted_residuals

    def _leaf_sums(
        self, t: int, residuals: FloatArray, draw: FloatArray, drawn: FloatArray
    ) -> FloatArray:
        precision = self.adapter.rounding.residuals
        weights = self.trees.weights.row_weights
        if weights is not None or self.beyond is not None:
            residuals = self._rounded(
                residuals if weights is None else residuals * weights[:, None], precision
            )
        if self.trees.sampler is not None:
            residuals = self._rounded(residuals * draw[:, None], precision)
        n = int(self.trees.table.n_leaves[t])
        if self.beyond is not None and self.trees.leaf_rule.cut is not None:
            own = slice(self.starts[t], self.starts[t + 1])
            off = self.beyond[t] != 0
            leaf = self.leaves[t]
            self.cut_sums[own, 0] = np.bincount(leaf[off], residuals[off, 0], n)
            self.free[own] = np.bincount(leaf[~off], drawn[~off], n)
            if not self.trees.leaf_rule.cut.weighs:
                self.leaf_weights[own] = self.free[own]
        return np.stack([np.bincount(self.leaves[t], column, n) for column in residuals.T], axis=1)

    def _advance(self, t: int) -> None:
        """Let the model's predictions follow tree t.

        Where earlier trees are dropped or scaled, a library that keeps predictions in single
        precision adds up all again.
        """
        c = self.trees.schedule.coefficients
        if c is not None and not self.changes[t]:
            return
        self._weighted_residuals = None
        if c is None:
            self._add(t, 1.0)
            return
        changed = np.flatnonzero(c.omega[t + 1] - c.omega[t])
        again = self.adapter.rounding.scores is not np.float64 and bool(
            (changed < self.added).any()
        )
        if again:
            self.score = self._start(c.beta[t + 1])
            changed = np.flatnonzero(c.omega[t + 1])
        elif c.beta[t + 1] != c.beta[t]:
            self.score = self.score + (c.beta[t + 1] - c.beta[t]) * self.trees.initial.values
        change = c.omega[t + 1, changed] - (0.0 if again else c.omega[t, changed])
        shares = np.divide(
            change,
            c.omega[-1, changed],
            out=np.zeros(len(changed)),
            where=c.omega[-1, changed] != 0,
        )
        if (
            self.adapter.rounding.scores is np.float64 and len(changed) == len(c.omega) - 1
        ):  # a forest
            table = (
                self.trees.table.leaf_values * np.repeat(shares, self.trees.table.n_leaves)[:, None]
            )
            added = np.empty_like(self.score)
            host_backend(1).rows(self.leaves, self.starts).read_out(
                table, np.zeros(table.shape[1]), None, 0, added
            )
            self.score = self.score + added
        else:
            for s, share in zip(changed, shares):
                self._add(int(s), float(share))
        self.added = max(self.added, t + 1 if len(changed) else 0)

    def _start(self, beta: float) -> FloatArray:
        """The predictions before any tree."""
        start = beta * self.trees.initial.values + np.zeros_like(self.targets)
        return self._rounded(
            start if self.offsets is None else start + self.offsets, self.adapter.rounding.scores
        )

    def _add(self, s: int, share: float) -> None:
        """Add a share of what tree s adds in the end."""
        precision = self.adapter.rounding.scores
        values = self._rounded(
            share * self.trees.table.leaf_values[self.starts[s] : self.starts[s + 1]], precision
        )
        self.score = self._rounded(self.score + values[self.leaves[s]], precision)

    def _cells(self) -> Leaves:
        """(T, N): leaf and draw of each row as one number."""
        codes = self.codes
        half = len(self.levels)
        if self.beyond is None and (codes is None or (self.shares is None and half == 1)):
            return self.leaves
        levels = (
            (half if self.beyond is None else 2 * half) if self.shares is None else len(self.shares)
        )
        dtype = cell_dtype(int(self.trees.table.n_leaves.max()) * levels)
        in_place = dtype is self.leaves.dtype.type and self.leaves.flags.writeable
        if in_place:
            cells = self.leaves
        else:
            cells = self._empty(dtype)
        for t, n in enumerate(self.trees.table.n_leaves):
            if codes is None:
                level = np.zeros(len(self.targets), dtype)
            else:
                level = codes[t].astype(dtype)
            if self.beyond is not None:
                level += self.beyond[t].astype(dtype) * dtype(half)
            cells[t] = self.leaves[t] + level * dtype(n)
        return cells

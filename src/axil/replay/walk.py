"""The walk through a fit of residuals with the model's own leaf values.

Its result is what the rows, all or some of them, add to the leaves. Where all rows are in every
tree, a kernel walks block by block, because a row's residuals depend on no other row. `TreeWalk`
goes tree by tree through fits that sample rows, scale trees again, clip residuals or take
percentiles.

This is one of two strategies behind one record, `BoostedFit`. It serves the models that have exact
weights: the linear map from targets to predictions needs sums of targets, sample counts and active
sets, and float32 libraries round residuals in another order than gradients. `gradient_walk` is the
strategy for every loss, and its docstring says why both exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit, RowGradients
from axil.adapters.contract import Adapter
from axil.arrays import AnyArray, Cells, FloatArray, RealType
from axil.errors import InputError
from axil.kernels.choose import backend_of, host_backend
from axil.kernels.cpu import drawn_sums
from axil.machine.memory import Budget, Limits
from axil.machine.progress import track
from axil.structure import Coefficients, CutRows, RankedFit, Ranks, cell_dtype

Leaves = Cells

ELSEWHERE = "Raise memory_limit, or keep them on disk with scratch=directory."
MOST_LEVELS = np.iinfo(np.uint16).max  # different sample counts that are told apart


@dataclass(frozen=True)
class Walked:
    """Sums that rows add to their leaves on a walk.

    Rows are independent, so parts of a data set add up to the whole.
    """

    cells: Leaves  #: (T, N), see `Structure`
    draws: FloatArray  #: (D,) or (D, L), see `Structure`
    counts: NDArray[np.int64]  #: (L,) rows that each leaf was fitted on
    leaf_weights: FloatArray  #: (L,)
    sums: FloatArray  #: (L, K) of weight * count * residual, as the library rounds them
    score: FloatArray  #: (N, K) the model's predictions of the rows
    drawn_weights: FloatArray  #: (L,) of all rows that each leaf was fitted on, whatever its ranks
    #: (L,) constants in leaf values that are percentiles; None: none
    shift: FloatArray | None = None
    ranks: RankedFit | None = None  #: what percentiles follow from; None: there are none
    cut: CutRows | None = None  #: the part of the sums that no target makes; None: there is none


def walk(
    adapter: Adapter,
    fit: BoostedFit,
    leaves: Leaves,
    targets: FloatArray,
    offsets: FloatArray | None,
    limits: Limits,
) -> Walked:
    """Walk through a fit of residuals with some or all of its rows.

    Parameters
    ----------
    leaves : unsigned array of shape (T, N)
    targets : array of shape (N, K)
    offsets : array of shape (N, K) or None
    """
    is_plain = (
        fit.sampler is None
        and fit.schedule.coefficients is None
        and fit.leaf_rule.ranks is None
        and fit.leaf_rule.cut is None
    )
    if is_plain:
        return _walk_in_blocks(adapter, fit, leaves, targets, offsets, limits)
    return TreeWalk(adapter, fit, leaves, targets, offsets, limits.budget).run()


def round_to(precision: RealType, values: FloatArray) -> FloatArray:
    """Return the values as the library keeps them, in float64; nan and infinite ones stay."""
    with np.errstate(over="ignore"):
        rounded = values.astype(precision).astype(np.float64, copy=False)
    is_finite = np.isfinite(values)
    if np.isinf(rounded[is_finite]).any():
        raise InputError(
            f"Targets or weights up to {np.abs(values[is_finite]).max():.3g} overflow the "
            f"library's {precision.__name__}. Pass those of the fit."
        )
    return rounded


def leaf_totals(
    leaves: Leaves, n_leaves: NDArray[np.int64], weights: FloatArray | None, n_threads: int
) -> FloatArray:
    """Return the sum of weights over every leaf's rows, (L,); their number without weights."""
    if weights is None:
        weights = np.ones(leaves.shape[1])
    starts = np.concatenate([[0], np.cumsum(n_leaves)])
    return host_backend(n_threads).rows(leaves, starts).leaf_sums(weights[:, None], None)[:, 0]


def _walk_in_blocks(
    adapter: Adapter,
    fit: BoostedFit,
    leaves: Leaves,
    targets: FloatArray,
    offsets: FloatArray | None,
    limits: Limits,
) -> Walked:
    """Walk through plain boosting on all rows, by a kernel that takes blocks of rows."""
    table = fit.table
    weights = fit.weights.row_weights
    starts = np.concatenate([[0], np.cumsum(table.n_leaves)])
    # They are the cells of the structure: a back end may keep one copy for both.
    leaves.setflags(write=False)
    rows = backend_of(limits).rows(leaves, starts, weights)
    scores = np.empty(targets.shape, order="F")
    sums = np.empty((starts[-1], targets.shape[1]))
    counts = np.empty(starts[-1])
    rounds_residuals = adapter.rounding.residuals is np.float32
    rounds_scores = fit.score_precision is np.float32
    for output in range(targets.shape[1]):
        score = scores[:, output]
        score[:] = fit.initial.values[output]
        if offsets is not None:
            score += offsets[:, output]
        leaf_values = np.ascontiguousarray(table.leaf_values[:, output])
        if rounds_scores:
            score[:] = score.astype(np.float32)
            leaf_values = leaf_values.astype(np.float32).astype(np.float64)
        target = np.ascontiguousarray(targets[:, output])
        sums_of_output = np.empty(starts[-1])
        rows.replay(
            leaf_values,
            target,
            weights,
            rounds_residuals,
            rounds_scores,
            score,
            sums_of_output,
            counts,
        )
        sums[:, output] = sums_of_output
    leaf_weights = counts
    if weights is not None:
        leaf_weights = leaf_totals(leaves, table.n_leaves, weights, limits.n_threads)
    if fit.weights.held_out is not None:
        is_in_fit = (~fit.weights.held_out).astype(float)
        counts = leaf_totals(leaves, table.n_leaves, is_in_fit, limits.n_threads)
    return Walked(
        leaves,
        np.ones(1),
        np.rint(counts).astype(np.int64),
        leaf_weights,
        sums,
        scores,
        leaf_weights,
    )


class SampleLevels:
    """The different numbers of times that rows are sampled, and their codes in the cells.

    Parameters
    ----------
    codes : array of shape (T, N)
        Filled tree by tree. It becomes wider if there are many levels.
    widened : callable
        Returns an empty array of the same shape with two bytes per entry.
    name : str
        What samples the rows, for messages.
    """

    def __init__(self, codes: Leaves, widened: Callable[[], Leaves], name: str):
        self.codes = codes
        # First, so that a structure with a single level is one without sampling.
        self.levels = [1.0]
        self._widened = widened
        self._name = name
        #: the codes of whole numbers; `MOST_LEVELS`: not yet met
        self._code_of_number = np.zeros(0, dtype=np.uint16)

    def encode(self, tree: int, sample_counts: AnyArray) -> None:
        """Store the sample counts (N,) of a tree as codes."""
        codes = self._codes_of(sample_counts)
        if codes.max(initial=0) > np.iinfo(self.codes.dtype).max:
            wider = self._widened()
            wider[:tree] = self.codes[:tree]
            self.codes = wider
        self.codes[tree] = codes

    def _codes_of(self, sample_counts: AnyArray) -> AnyArray:
        """Return the codes of sample counts, (N,)."""
        is_whole = sample_counts.dtype.kind in "iu" and sample_counts.min(initial=0) >= 0
        if is_whole and int(sample_counts.max(initial=0)) < MOST_LEVELS:
            return self._codes_of_numbers(sample_counts)
        levels = np.sort(self.levels)
        counts = sample_counts.astype(np.float64)
        places = np.minimum(np.searchsorted(levels, counts), len(levels) - 1)
        if (levels[places] != counts).any():
            levels, places = np.unique(counts, return_inverse=True)
        return np.array([self._code(float(level)) for level in levels])[places]

    def _codes_of_numbers(self, sample_counts: AnyArray) -> AnyArray:
        """Return the codes of whole numbers, (N,), from a table."""
        n_new = int(sample_counts.max(initial=0)) + 1 - len(self._code_of_number)
        if n_new > 0:
            not_met = np.full(n_new, MOST_LEVELS, dtype=np.uint16)
            self._code_of_number = np.append(self._code_of_number, not_met)
        codes = self._code_of_number.take(sample_counts)
        if codes.max(initial=0) == MOST_LEVELS:
            numbers = np.flatnonzero(np.bincount(sample_counts))
            self._code_of_number[numbers] = [self._code(float(number)) for number in numbers]
            codes = self._code_of_number.take(sample_counts)
        return codes

    def _code(self, level: float) -> int:
        """Return the number of a level, a new one if need be."""
        if level not in self.levels:
            if len(self.levels) == MOST_LEVELS:
                raise InputError(
                    f"{self._name} samples rows in more than {MOST_LEVELS} different numbers; "
                    "expected few, as 0, 1, 2."
                )
            self.levels.append(level)
        return self.levels.index(level)


class TreeWalk:
    """The walk tree by tree, for fits that are not plain boosting on all rows."""

    def __init__(
        self,
        adapter: Adapter,
        fit: BoostedFit,
        leaves: Leaves,
        targets: FloatArray,
        offsets: FloatArray | None,
        budget: Budget,
    ):
        self.adapter = adapter
        self.fit = fit
        self.targets = targets
        self.offsets = offsets
        # The leaves of some rows may not be contiguous.
        self.leaves = np.ascontiguousarray(leaves)
        self.budget = budget
        self.starts = fit.table.starts
        coefficients = fit.schedule.coefficients
        share_of_initial = 1.0
        #: (T,): after which trees the coefficients of others, or of the initial prediction, change
        self.changes = np.zeros(0, dtype=np.bool_)
        if coefficients is not None:
            omega = coefficients.omega
            beta = coefficients.beta
            share_of_initial = beta[0]
            self.changes = (omega[1:] != omega[:-1]).any(axis=1) | (beta[1:] != beta[:-1])
        self.score = self._initial_scores(share_of_initial)
        self.n_added = 0  # trees up to here are in the predictions
        #: (N, 1 + K) weights and weighted residuals at the scores reached; None: not computed yet
        self._weighted_residuals: FloatArray | None = None
        sampler_name = ""
        if fit.sampler is not None:
            sampler_name = fit.sampler.name
        self.samples: SampleLevels | None = None
        if fit.sampler is not None or fit.leaf_rule.ranks is not None:
            codes = self._empty(np.uint8)
            self.samples = SampleLevels(codes, lambda: self._empty(np.uint16), sampler_name)
        #: shares of the rows that percentiles are taken from
        self.shares: FloatArray | None = None
        #: (T, N) sample counts of a fit of percentiles
        self.rank_counts: Leaves | None = None
        if fit.leaf_rule.ranks is not None:
            self.shares = np.zeros((3 + fit.leaf_rule.ranks.spreads, int(self.starts[-1])))
            if fit.sampler is not None:
                self.rank_counts = self._empty(np.uint8)
        #: (L,) constants in percentiles
        self.shift: FloatArray | None = None
        #: (T, N) which residuals are clipped
        self.is_clipped: Leaves | None = None
        if fit.leaf_rule.cut is not None:
            self.is_clipped = self._empty(np.uint8)
        total_leaves = int(self.starts[-1])
        n_outputs = targets.shape[1]
        self.sums = np.zeros((total_leaves, n_outputs))
        self.leaf_weights = np.zeros(total_leaves)
        self.sampled_weights = np.zeros(total_leaves)
        self.counts = np.zeros(total_leaves, dtype=np.int64)
        self.clipped_sums = np.zeros((total_leaves, n_outputs))
        self.unclipped_weights = np.zeros(total_leaves)

    def _empty(self, dtype: type[np.unsignedinteger[Any]]) -> Leaves:
        """Return an array of shape (T, N) within the budget."""
        shape = (self.leaves.shape[0], self.leaves.shape[1])
        return self.budget.empty(
            shape, dtype, "How often each row was sampled for each tree", ELSEWHERE
        )

    def run(self) -> Walked:
        """Walk through all trees."""
        for t in track(range(len(self.fit.table.n_leaves)), "replay"):
            self._sum_leaves(t)
            self._advance(t)
        ranked_fit = None
        sample_counts = self.shares
        if sample_counts is None:
            levels = [1.0]
            if self.samples is not None:
                levels = self.samples.levels
            sample_counts = np.array(levels)
        elif self.fit.leaf_rule.ranks is not None:
            ranked_fit = self._ranked_fit(self.fit.leaf_rule.ranks)
        clipped_rows = None
        if self.is_clipped is not None:
            sample_counts = np.append(sample_counts, np.zeros_like(sample_counts))
            n_clipped = int(self.is_clipped.sum())
            clipped_rows = CutRows(
                self.clipped_sums, self.unclipped_weights, n_clipped, self.is_clipped.size
            )
        return Walked(
            self._cells(),
            sample_counts,
            self.counts,
            self.leaf_weights,
            self.sums,
            self.score,
            self.sampled_weights,
            self.shift,
            ranked_fit,
            clipped_rows,
        )

    def _ranked_fit(self, ranks: Ranks) -> RankedFit:
        """Return the ranked rows and weights from which percentiles follow."""
        rows = None
        if self.fit.weights.held_out is not None:
            rows = np.flatnonzero(~self.fit.weights.held_out)
        rounding = self.adapter.rounding
        return RankedFit(
            ranks,
            based=self.fit.initial.is_first_tree,
            drawn=self.rank_counts,
            rows=rows,
            single=rounding.residuals is np.float32,
            single_targets=rounding.targets is np.float32,
        )

    # -- sums over leaves --------------------------------------------------------------------------

    def _place(self, t: int) -> slice:
        """Return the places of a tree's leaves among all."""
        return slice(int(self.starts[t]), int(self.starts[t + 1]))

    def _sum_leaves(self, t: int) -> None:
        """Compute the sums of the rows over the leaves of tree t."""
        fit = self.fit
        place = self._place(t)
        n_leaves = int(fit.table.n_leaves[t])
        residuals = self.residuals_before(t)
        sample_counts = self._sample(t, residuals)
        counts_in_fit = sample_counts
        if fit.weights.held_out is not None:
            counts_in_fit = np.where(fit.weights.held_out, 0.0, sample_counts)
        if self._is_summed_in_core:
            weighted_residuals = self._weighted(residuals)
            sums, counts = drawn_sums(self.leaves[t], counts_in_fit, weighted_residuals, n_leaves)
            self.counts[place] = counts
            self.sampled_weights[place] = sums[:, 0]
            self.leaf_weights[place] = sums[:, 0]
            self.sums[place] = sums[:, 1:]
            return
        weights = sample_counts
        if fit.weights.row_weights is not None:
            weights = sample_counts * fit.weights.row_weights
        leaf_weights = np.bincount(self.leaves[t], weights, n_leaves)
        self.sampled_weights[place] = leaf_weights
        self.leaf_weights[place] = leaf_weights
        if fit.leaf_rule.ranks is None:
            self.sums[place] = self._rounded_sums(t, residuals, sample_counts, weights)
        else:
            percentiles, row_shares = self._pick(t, fit.leaf_rule.ranks, residuals, counts_in_fit)
            self.sums[place] = percentiles
            self.leaf_weights[place] = row_shares
            self._note_counts(t, fit.leaf_rule.ranks, sample_counts)
        self.counts[place] = np.bincount(self.leaves[t], counts_in_fit > 0, n_leaves)

    @property
    def _is_summed_in_core(self) -> bool:
        """Whether the core can sum residuals directly, without rounding or ranks between."""
        return (
            self.adapter.rounding.residuals is np.float64
            and self.fit.leaf_rule.ranks is None
            and self.is_clipped is None
        )

    def residuals_before(self, t: int) -> FloatArray:
        """Return the residuals (N, K) that tree t sees.

        Clipped residuals are rounded later, with their weights.
        """
        residuals = self.targets - self.score
        cut = self.fit.leaf_rule.cut
        if cut is None or self.is_clipped is None:
            return _rounded(residuals, self.adapter.rounding.residuals)
        self.is_clipped[t] = cut.beyond(residuals[:, 0])
        return cut.kept(residuals)

    def _weighted(self, residuals: FloatArray) -> FloatArray:
        """Return the weights of the rows beside weight * residual, (N, 1 + K).

        All trees of a forest see the same residuals, so they are weighted once.
        """
        if self._weighted_residuals is None:
            weights = self.fit.weights.row_weights
            if weights is None:
                weights = np.ones(len(residuals))
            self._weighted_residuals = np.column_stack([weights, residuals * weights[:, None]])
        return self._weighted_residuals

    def _rounded_sums(
        self, t: int, residuals: FloatArray, sample_counts: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Return the sums of weight * count * residual over the leaves of tree t, (L_t, K).

        The products are rounded one after the other, as the library does.
        """
        precision = self.adapter.rounding.residuals
        row_weights = self.fit.weights.row_weights
        if row_weights is not None:
            residuals = _rounded(residuals * row_weights[:, None], precision)
        elif self.is_clipped is not None:
            residuals = _rounded(residuals, precision)
        if self.fit.sampler is not None:
            residuals = _rounded(residuals * sample_counts[:, None], precision)
        n_leaves = int(self.fit.table.n_leaves[t])
        cut = self.fit.leaf_rule.cut
        if self.is_clipped is not None and cut is not None:
            place = self._place(t)
            leaves = self.leaves[t]
            is_clipped = self.is_clipped[t] != 0
            clipped = residuals[is_clipped, 0]
            self.clipped_sums[place, 0] = np.bincount(leaves[is_clipped], clipped, n_leaves)
            unclipped_weights = np.bincount(leaves[~is_clipped], weights[~is_clipped], n_leaves)
            self.unclipped_weights[place] = unclipped_weights
            if not cut.weighs:
                self.leaf_weights[place] = unclipped_weights
        sums = [np.bincount(self.leaves[t], column, n_leaves) for column in residuals.T]
        return np.stack(sums, axis=1)

    # -- sampled rows and percentiles --------------------------------------------------------------

    def _sample(self, t: int, residuals: FloatArray) -> FloatArray:
        """Return how often each row, (N,), was sampled for tree t."""
        sampler = self.fit.sampler
        tree = t - int(self.fit.initial.is_first_tree)
        if sampler is None or tree < 0:  # the initial prediction is made of all rows
            return np.ones(len(self.targets))
        trees = range(tree, tree + 1)
        (counts,) = sampler.draw(trees, self.leaves[t : t + 1], RowGradients(residuals))
        if self.samples is not None and self.shares is None:
            self.samples.encode(t, counts)
        return np.asarray(counts.astype(np.float64))

    def _note_counts(self, t: int, ranks: Ranks, sample_counts: FloatArray) -> None:
        """Note how often rows were sampled for a tree of percentiles."""
        if self.rank_counts is None:
            return
        if ranks.by_draws:
            self.rank_counts[t] = sample_counts
        else:
            self.rank_counts[t] = sample_counts > 0

    def _pick(
        self, t: int, ranks: Ranks, residuals: FloatArray, counts_in_fit: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Pick the rows whose residuals are the percentiles of the leaves of tree t.

        Returns
        -------
        percentiles : array of shape (L_t, 1)
        row_shares : array of shape (L_t,)
            What the shares of the rows that were picked add up to.
        """
        assert self.shares is not None
        assert self.samples is not None
        n_leaves = int(self.fit.table.n_leaves[t])
        start = self.starts[t]
        is_base = t < self.fit.initial.is_first_tree
        picks = ranks.picks(self.leaves[t], residuals[:, 0], counts_in_fit, is_base)
        if picks.shifts is not None:
            unrounded_residuals = self.targets - self.score
            picks = picks.with_rounding(residuals[:, 0], unrounded_residuals[:, 0])
            residuals = unrounded_residuals
        self.samples.codes[t] = picks.codes(len(residuals))
        self.shares[1 : 1 + len(picks.levels), start + picks.leaves] = picks.levels
        percentiles = np.zeros((n_leaves, 1))
        percentiles[picks.leaves, 0] = picks.values(residuals[:, 0])
        row_shares = np.zeros(n_leaves)
        row_shares[picks.leaves] = 1.0
        if picks.shifts is not None:
            if self.shift is None:
                self.shift = np.zeros(len(self.fit.table.leaf_values))
            self.shift[start + picks.leaves] = picks.shifts
        return percentiles, row_shares

    # -- scores ------------------------------------------------------------------------------------

    def _initial_scores(self, share: float) -> FloatArray:
        """Return the predictions (N, K) before any tree, with a share of the initial prediction."""
        scores = share * self.fit.initial.values + np.zeros_like(self.targets)
        if self.offsets is not None:
            scores = scores + self.offsets
        return _rounded(scores, self.fit.score_precision)

    def _advance(self, t: int) -> None:
        """Let the model's predictions follow tree t."""
        coefficients = self.fit.schedule.coefficients
        if coefficients is None:
            self._weighted_residuals = None
            self._add(t, 1.0)
        elif self.changes[t]:
            self._weighted_residuals = None
            self._advance_by(coefficients, t)

    def _advance_by(self, coefficients: Coefficients, t: int) -> None:
        """Let predictions follow tree t and all trees whose coefficients change after it.

        Where earlier trees are dropped or scaled, a library that keeps predictions in single
        precision adds up all again.
        """
        omega = coefficients.omega
        beta = coefficients.beta
        changed = np.flatnonzero(omega[t + 1] - omega[t])
        keeps_double = self.fit.score_precision is np.float64
        changes_earlier = bool((changed < self.n_added).any())
        if changes_earlier and not keeps_double:
            self.score = self._initial_scores(beta[t + 1])
            changed = np.flatnonzero(omega[t + 1])
            gains = omega[t + 1, changed]
        else:
            if beta[t + 1] != beta[t]:
                self.score = self.score + (beta[t + 1] - beta[t]) * self.fit.initial.values
            gains = omega[t + 1, changed] - omega[t, changed]
        final = omega[-1, changed]
        shares = np.divide(gains, final, out=np.zeros(len(changed)), where=final != 0)
        is_forest = len(changed) == len(omega) - 1
        if keeps_double and is_forest:
            self._add_all(shares)
        else:
            for tree, share in zip(changed.tolist(), shares.tolist()):
                self._add(tree, share)
        if len(changed):
            self.n_added = max(self.n_added, t + 1)

    def _add(self, tree: int, share: float) -> None:
        """Add the leaf values of a tree, times a share, to the predictions."""
        precision = self.fit.score_precision
        values = _rounded(share * self.fit.table.leaf_values[self._place(tree)], precision)
        self.score = _rounded(self.score + values[self.leaves[tree]], precision)

    def _add_all(self, shares: FloatArray) -> None:
        """Add the leaf values of all trees, times these shares, (T,), to the predictions."""
        table = self.fit.table.leaf_values * np.repeat(shares, self.fit.table.n_leaves)[:, None]
        gains = np.empty_like(self.score)
        rows = host_backend(1).rows(self.leaves, self.starts)
        rows.read_out(table, np.zeros(table.shape[1]), None, 0, gains)
        self.score = self.score + gains

    # -- cells -------------------------------------------------------------------------------------

    def _cells(self) -> Leaves:
        """Return leaf and sample level of each row as one number, (T, N)."""
        n_sample_levels = 1
        if self.samples is not None:
            n_sample_levels = len(self.samples.levels)
        if self.shares is not None:
            n_levels = len(self.shares)
        elif self.is_clipped is not None:
            n_levels = 2 * n_sample_levels
        elif n_sample_levels > 1:
            n_levels = n_sample_levels
        else:
            return self.leaves
        dtype = cell_dtype(int(self.fit.table.n_leaves.max()) * n_levels)
        cells = self.leaves
        if dtype is not self.leaves.dtype.type or not self.leaves.flags.writeable:
            cells = self._empty(dtype)
        for t, n_leaves in enumerate(self.fit.table.n_leaves):
            level = np.zeros(len(self.targets), dtype)
            if self.samples is not None:
                level = self.samples.codes[t].astype(dtype)
            if self.is_clipped is not None:
                level += self.is_clipped[t].astype(dtype) * dtype(n_sample_levels)
            cells[t] = self.leaves[t] + level * dtype(n_leaves)
        return cells


def _rounded(values: FloatArray, precision: RealType) -> FloatArray:
    """Return values as a library rounds them, in float64."""
    if precision is np.float64:
        return values
    return np.asarray(values.astype(precision).astype(np.float64))

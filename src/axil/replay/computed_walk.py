"""The walk through a fit with computed leaf values: a refit with the tree structure fixed.

The rows, their targets or their weights are others than those of the fit.

Nothing is linear here: gradients follow the scores, scores the leaf values of the trees before, and
every leaf value is computed again from the rows. Splits, learning rates, sample counts, dropped
trees and halved steps are those of the replay with recorded values (`gradient_walk`).

The walk serves two purposes. A refit writes a model of the library, so gradients and scores are
rounded as the library rounds them. Deletions and other targets ask for the change that they make in
a fit of double precision, where rounding would hide single rows. Several such fits, each without
other rows, are walked together: copies of the training rows, one below the other, with leaves of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import AnyArray, BoolArray, FloatArray, LeafArray
from axil.errors import UnsupportedQuestionError
from axil.kernels import Cells
from axil.kernels.choose import host_backend
from axil.machine.blocks import row_blocks
from axil.machine.progress import track
from axil.replay.exponential_scores import ExponentialScores, Move
from axil.replay.newton_steps import Step, centring, joint_steps, leaf_step
from axil.replay.replayed_stages import ReplayedStages, Round
from axil.replay.row_scores import RowScores
from axil.structure import IsotonicRule, NodeRule, cell_dtype
from axil.trees.coupled_losses import CoupledLoss
from axil.trees.losses import RoundRows

# Of the largest leaf value of a tree: what rounding leaves between two fits of the same rows.
SAME_VALUE = 1e-6


@dataclass(frozen=True)
class RowWeights:
    """The weights of N rows in C fits; a row that a fit lacks has the weight 0."""

    weights: FloatArray  #: (C, N) as the initial prediction counts rows
    #: (C, N) what multiplies the weights in leaves, or (1, N) in all fits; None: nothing
    factors: FloatArray | None
    l2_factors: FloatArray  #: (C,) what l2 is multiplied by
    is_present: BoolArray | None = None  #: (C, N) rows that each fit has; None: all

    @classmethod
    def of_one_fit(cls, weights: FloatArray, factors: FloatArray | None) -> RowWeights:
        """Return the weights of a single fit to rows with these weights and factors, (N,) each."""
        if factors is not None:
            factors = factors[None]
        return cls(weights[None], factors, np.ones(1))

    def in_initial(self, is_newton_start: bool) -> FloatArray:
        """Return the weights (C, N) in the initial prediction.

        Factors count in it if it is a Newton step.
        """
        if is_newton_start and self.factors is not None:
            return self.weights * self.factors
        return self.weights

    @property
    def in_leaves(self) -> FloatArray:
        """The weights times the factors, (C, N)."""
        if self.factors is None:
            return self.weights
        return self.weights * self.factors


@dataclass(frozen=True)
class FitRows:
    """The N rows of C fits on the same trees."""

    targets: FloatArray  #: (N, K)
    leaves: Cells  #: (T, N)
    sample_counts: AnyArray | None  #: (T, N) how often each row was drawn for each tree
    offsets: FloatArray | None  #: (N, K)
    row_weights: RowWeights

    @classmethod
    def of_replay(
        cls,
        replayed: ReplayedStages,
        targets: FloatArray,
        offsets: FloatArray | None,
        row_weights: RowWeights,
    ) -> FitRows:
        """Return the rows of a replay with other targets (N, K) or weights."""
        return cls(targets, replayed.leaves, replayed.drawn, offsets, row_weights)


@dataclass(frozen=True)
class ComputedFits:
    """C fits on the same trees: initial predictions, and the addends of the leaves to scores."""

    replayed: ReplayedStages
    initial: FloatArray  #: (C, K) as it counts in predictions
    leaf_values: FloatArray  #: (C, L, 1), or (C, L, K) where outputs share trees

    def __getitem__(self, number: int) -> ComputedFits:
        """Return one of these fits."""
        fit = slice(number, number + 1)
        return replace(self, initial=self.initial[fit], leaf_values=self.leaf_values[fit])

    def scores(self, leaves: LeafArray) -> FloatArray:
        """Return the scores (C, n, K) of rows in these leaves, (n, T)."""
        starts = self.replayed.starts
        schedule = self.replayed.fit.schedule
        n_fits, n_outputs = self.initial.shape
        scores = self.initial[:, None] + np.zeros((n_fits, len(leaves), n_outputs))
        for tree, start in enumerate(starts[:-1]):
            places = start + leaves[:, tree].astype(np.intp)
            scores[:, :, schedule.outputs_served(tree)] += self.leaf_values[:, places]
        return scores


def require_rows_in_leaves(n_empty: int) -> None:
    """Refuse fits of averaged trees in which leaves have no rows."""
    if n_empty:
        raise UnsupportedQuestionError(
            "A deletion",
            f"{n_empty} leaves of averaged trees would lose all rows, and take the values of "
            "nodes above them, which axil does not compute with this loss",
            "Delete fewer rows, or use contributions: they add up to the score for every loss.",
        )


def computed_fits(
    replayed: ReplayedStages, fit: BoostedFit, rows: FitRows, n_threads: int = 1
) -> ComputedFits:
    """Return the fits of these rows in double precision, in O(C T N).

    Parameters
    ----------
    replayed : ReplayedStages
        The replay, whose rounds, halved steps and dropped trees are fixed.
    fit : BoostedFit
        Loss and leaf rule.
    rows : FitRows
    """
    walk = ComputedWalk(replayed, fit, rows, n_threads)
    exponential_scores = walk.exponential_scores()
    if exponential_scores is not None:
        computed = walk.run_in_core(exponential_scores)
        if computed is not None:
            return computed
    return walk.run()


class ComputedWalk:
    """Copies of the training rows on their way through the fit, one for each of C fits.

    Parameters
    ----------
    is_rounded : bool
        Whether gradients and scores are rounded as the library rounds them. Then there is one fit,
        and `leaf_sums`, `leaf_hessians` and `raw_values` say what its leaves are made of.
    """

    def __init__(
        self,
        replayed: ReplayedStages,
        fit: BoostedFit,
        rows: FitRows,
        n_threads: int,
        is_rounded: bool = False,
    ):
        self.replayed = replayed
        self.fit = fit
        self.rows = rows
        self.n_copies = len(rows.row_weights.weights)
        self.n_threads = n_threads
        self.is_rounded = is_rounded
        self.targets = np.tile(rows.targets, (self.n_copies, 1))
        self.initial = self._initial_predictions()
        self.start = self._initial_scores()
        self.leaf_weights = rows.row_weights.in_leaves
        self.leaf_values = np.zeros((self.n_copies, *fit.table.leaf_values.shape))
        if is_rounded:
            self.raw_values = np.zeros_like(fit.table.leaf_values)
            self.leaf_sums = np.zeros_like(fit.table.leaf_values)
            self.leaf_hessians = np.zeros_like(fit.table.leaf_values)

    def _initial_predictions(self) -> FloatArray:
        """Return the initial predictions (C, K), which may follow the targets."""
        if not self.fit.initial.follows_targets:
            return np.tile(self.fit.initial.values, (self.n_copies, 1))
        loss = self.fit.loss
        all_weights = self.rows.row_weights.in_initial(loss.newton_start)
        # The logarithm of a mean that is 0 without some rows is minus infinity.
        if isinstance(loss, CoupledLoss):
            return np.stack([loss.start_from(rows) for rows in self._initial_rows()])
        with np.errstate(divide="ignore"):
            initial = [loss.refit_start_of(self.rows.targets, weights) for weights in all_weights]
        return np.asarray(np.stack(initial), dtype=np.float64)

    def _initial_rows(self) -> list[RoundRows]:
        """Return the rows of each fit with all scores at 0, for losses whose start needs them."""
        row_weights = self.rows.row_weights
        zeros = np.zeros_like(self.rows.targets)
        rows_of_fits = []
        for copy, weights in enumerate(row_weights.in_leaves):
            is_present = None
            if row_weights.is_present is not None:
                is_present = row_weights.is_present[copy]
            rows_of_fits.append(RoundRows(self.rows.targets, zeros, weights, 0, is_present))
        return rows_of_fits

    def _initial_scores(self) -> FloatArray:
        """Return the scores (C * N, K) before the first round."""
        scores = np.zeros_like(self.targets)
        share = float(self.fit.schedule.shares_of_initial[0])
        # Where offsets stand in for the initial prediction, that may be infinite by now.
        if share:
            scores += share * np.repeat(self.initial, len(self.rows.targets), axis=0)
        if self.rows.offsets is not None:
            scores += np.tile(self.rows.offsets, (self.n_copies, 1))
        return scores

    def exponential_scores(self, n_threads: int | None = None) -> ExponentialScores | None:
        """Return the scores as the core walks them; None if it has no form for the loss."""
        if self.fit.shrinkage is not None:
            return None
        if any(step_round.base for step_round in self.replayed.rounds):
            return None
        n_rows, n_outputs = self.rows.targets.shape
        return ExponentialScores.of(
            self.fit.loss,
            self.rows.leaves,
            self.replayed.starts,
            self.rows.targets,
            self.leaf_weights,
            self.rows.sample_counts,
            self.start.reshape(self.n_copies, n_rows, n_outputs),
            n_threads or self.n_threads,
        )

    # -- rounds ------------------------------------------------------------------------------------

    def run(self) -> ComputedFits:
        """Walk through all rounds."""
        with row_blocks(len(self.targets), self.n_threads) as each_block:
            row_scores = RowScores(
                self.fit,
                self.targets,
                self.start,
                self.rows.row_weights.weights,
                self.rows.row_weights.factors,
                self.is_rounded,
                each_block,
                host_backend(self.n_threads),
            )
            row_scores.is_present = self.rows.row_weights.is_present
            values_of_stages: dict[int, FloatArray] = {}
            for step_round in track(self.replayed.rounds, "refit"):
                steps = self._steps(step_round, row_scores)
                moves = self._finish_round(step_round, steps, values_of_stages)
                for tree, output, gain in moves:
                    row_scores.add(self._leaves_of(tree), output, gain.ravel())
                if step_round.base:
                    moved = step_round.base * self.initial
                    row_scores.current += np.repeat(moved, len(self.rows.targets), axis=0)
                if step_round.is_last and self.fit.shrinkage is not None:
                    tree, _ = self._tree_and_output(step_round.stages[0])
                    row_scores.shrink(self.fit.shrinkage, tree)
        return self._fits()

    def run_in_core(self, states: ExponentialScores) -> ComputedFits | None:
        """Walk through all rounds in the core; None if a sum leaves the range of numbers."""
        values_of_stages: dict[int, FloatArray] = {}
        moves: list[Move] = []
        for step_round in track(self.replayed.rounds, "refit"):
            steps = self._steps_in_core(step_round, states, moves)
            if steps is None:
                self.leaf_values[:] = 0.0
                return None
            moves = self._finish_round(step_round, steps, values_of_stages)
        return self._fits()

    def _fits(self) -> ComputedFits:
        """Return the fits after all rounds."""
        share = float(self.fit.schedule.shares_of_initial[-1])
        initial = np.zeros_like(self.initial)
        if share:
            initial = share * self.initial
        return ComputedFits(self.replayed, initial, self.leaf_values)

    def _finish_round(
        self, step_round: Round, steps: list[Step], values_of_stages: dict[int, FloatArray]
    ) -> list[Move]:
        """Record the leaf values of a round, and return the changes of scores."""
        for stage, step in zip(step_round.stages, steps):
            scale = float(self.replayed.scales[stage])
            values = step.scaled(scale).value.reshape(self.n_copies, -1)
            if self.fit.loss.couples_rows and self.is_rounded:
                values = self._with_values_of_fit(stage, values)
            values_of_stages[stage] = values
            if self.is_rounded:
                place, column = self._place_of_stage(stage)
                self.raw_values[place, column] += values[0]
        moves = []
        for stage, coefficient in step_round.changes:
            place, column = self._place_of_stage(stage)
            gain = coefficient * values_of_stages[stage]
            self.leaf_values[:, place, column] += gain
            if self.fit.loss.couples_rows:
                gain = coefficient * self._with_values_of_fit(stage, values_of_stages[stage])
            moves.append((*self._tree_and_output(stage), gain))
        return moves

    def _with_values_of_fit(self, stage: int, values: FloatArray) -> FloatArray:
        """Return leaf values (C, L_t), or the replayed ones if both differ by rounding alone.

        Ranks turn on ties, so scores advance with the model's own values where these are unchanged.
        """
        replayed_values = self.replayed.steps[stage].value
        rounding = SAME_VALUE * float(np.abs(replayed_values).max(initial=0.0))
        return np.where(np.abs(values - replayed_values) <= rounding, replayed_values, values)

    # -- steps -------------------------------------------------------------------------------------

    def _steps(self, step_round: Round, row_scores: RowScores) -> list[Step]:
        """Return the steps of a round's stages from the scores reached."""
        row_scores.compute_gradients()
        if self.fit.loss.joint:
            return self._joint_steps(step_round, row_scores)
        steps = []
        for stage in step_round.stages:
            tree, output = self._tree_and_output(stage)
            n_leaves = self.n_copies * int(self.fit.table.n_leaves[tree])
            leaves = self._leaves_of(tree)[None]
            sample_counts = self._sample_counts(tree)
            G, H = row_scores.leaf_sums(leaves, n_leaves, output, sample_counts)
            if self.is_rounded:
                place, column = self._place_of_stage(stage)
                self.leaf_sums[place, column] = -G
                self.leaf_hessians[place, column] = H
            steps.append(self._step(tree, output, G, H))
        return steps

    def _joint_steps(self, step_round: Round, row_scores: RowScores) -> list[Step]:
        """Return the steps of a tree whose leaf values are solved for over all outputs."""
        tree, _ = self._tree_and_output(step_round.stages[0])
        weights = row_scores.sum_weights
        sample_counts = self._sample_counts(tree)
        if sample_counts is not None:
            weights = weights * sample_counts
        means = self.fit.loss.mean(row_scores.current)
        l2 = self._l2(tree).ravel()
        return joint_steps(row_scores.g, means, weights, self._leaves_of(tree), l2)

    def _steps_in_core(
        self, step_round: Round, states: ExponentialScores, moves: list[Move]
    ) -> list[Step] | None:
        """Return the steps of a round after these moves; None if sums are not finite."""
        terms = [self._tree_and_output(stage) for stage in step_round.stages]
        sums_of_terms = states.sums([(moves, terms)])
        if not all(np.isfinite(sums).all() for sums in sums_of_terms):
            return None
        steps = []
        for (tree, output), sums in zip(terms, sums_of_terms):
            G, H = sums.transpose(2, 0, 1).reshape(2, -1)
            steps.append(self._step(tree, output, G, H))
        return steps

    def _step(self, tree: int, output: int, G: FloatArray, H: FloatArray) -> Step:
        """Return the step of a tree for an output from its sums G and H, (C * L_t,) each."""
        if self.fit.leaf_rule.averages:
            lost_all_rows = (H == 0) & np.tile(self._had_rows[self._place(tree)], self.n_copies)
            require_rows_in_leaves(int(lost_all_rows.sum()))
        l2 = self._l2(tree)
        if self.replayed.zeroed is not None:
            column = self.fit.schedule.column(output)
            place = self._place(tree)
            is_zeroed = self.replayed.zeroed_again(place, column, H.reshape(l2.shape))
            l2 = np.where(is_zeroed, np.inf, l2)
        step = leaf_step(G, H, l2.ravel(), self.fit.leaf_rule.l1, self.fit.leaf_rule.max_step)
        if self.fit.leaf_rule.is_centred:
            return replace(step, value=self._centred_values(tree, step.value))
        if self.fit.leaf_rule.coupling_rule is None:
            return step
        return replace(
            step, value=self._coupled_values(self.fit.leaf_rule.coupling_rule, tree, G, H)
        )

    def _centred_values(self, tree: int, values: FloatArray) -> FloatArray:
        """Return the values (C * L_t,) of leaves, less the mean of each fit."""
        n_leaves = self.n_copies * int(self.fit.table.n_leaves[tree])
        weights = self.rows.row_weights.weights.ravel()
        leaf_weights = np.bincount(self._leaves_of(tree), weights, n_leaves)
        shape = self.n_copies, -1
        copies = zip(values.reshape(shape), leaf_weights.reshape(shape))
        return np.concatenate([centring(weights) @ of_fit for of_fit, weights in copies])

    def _coupled_values(
        self, coupling_rule: NodeRule | IsotonicRule, tree: int, G: FloatArray, H: FloatArray
    ) -> FloatArray:
        """Return the values (C * L_t,) of leaves that depend on each other.

        A node that no row of a fit is left in bounds no others.
        """
        rule = coupling_rule.tree(tree, self._place(tree))
        n_leaves = self.n_copies * int(self.fit.table.n_leaves[tree])
        has_weight = self.leaf_weights.ravel() > 0
        sample_counts = self._sample_counts(tree)
        if sample_counts is not None:
            has_weight = has_weight & (sample_counts > 0)
        n_rows = np.bincount(self._leaves_of(tree), has_weight, n_leaves)
        values = []
        shape = self.n_copies, -1
        copies = zip(
            G.reshape(shape),
            H.reshape(shape),
            n_rows.reshape(shape),
            self.rows.row_weights.l2_factors,
        )
        for g, h, n_rows_of_fit, l2_factor in copies:
            rule_of_fit = rule.scaled(l2_factor).emptied(n_rows_of_fit == 0)
            values.append(rule_of_fit.leaf_values(-g, h))
        return np.concatenate(values)

    # -- trees -------------------------------------------------------------------------------------

    def _tree_and_output(self, stage: int) -> tuple[int, int]:
        """Return the tree of a stage and the output that it serves."""
        replayed = self.replayed
        return int(replayed.stage_tree[stage]), int(replayed.stage_output[stage])

    def _place(self, tree: int) -> slice:
        """Return the places of a tree's leaves among all."""
        starts = self.replayed.starts
        return slice(int(starts[tree]), int(starts[tree + 1]))

    def _place_of_stage(self, stage: int) -> tuple[slice, int]:
        """Return the rows and the column of a stage in tables of leaf values."""
        tree, output = self._tree_and_output(stage)
        return self._place(tree), self.fit.schedule.column(output)

    def _leaves_of(self, tree: int) -> Cells:
        """Return the leaves (C * N,) of a tree, numbered copy after copy."""
        leaves: Cells = self.rows.leaves[tree]
        if self.n_copies == 1:
            return leaves
        n_leaves = int(self.fit.table.n_leaves[tree])
        dtype = cell_dtype(self.n_copies * n_leaves)
        first_leaves = n_leaves * np.arange(self.n_copies)
        numbers = (first_leaves[:, None] + leaves).ravel()
        return numbers.astype(dtype)

    def _sample_counts(self, tree: int) -> FloatArray | None:
        """Return how often each row (C * N,) was sampled for a tree; None stands for once each."""
        if self.rows.sample_counts is None:
            return None
        return np.tile(self.rows.sample_counts[tree], self.n_copies)

    def _l2(self, tree: int) -> FloatArray:
        """Return what regularisation adds to the hessians of a tree's leaves, (C, L_t)."""
        return np.outer(self.rows.row_weights.l2_factors, self.fit.leaf_rule.l2[self._place(tree)])

    @cached_property
    def _had_rows(self) -> NDArray[np.bool_]:
        """Whether rows with a weight were in each leaf in the replay, (L,)."""
        has_rows = []
        for tree, leaves in enumerate(self.replayed.leaves):
            weights = self.replayed.weights * self.replayed.counted(tree)
            has_rows.append(np.bincount(leaves, weights, int(self.fit.table.n_leaves[tree])) > 0)
        return np.concatenate(has_rows)

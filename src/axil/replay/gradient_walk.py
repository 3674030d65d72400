"""The walk through a fit by the gradients of its loss, with the model's own leaf values.

Scores start from an initial prediction and offsets. In every round some stages, each one step of
one tree for one output, look at the same scores; then the scores of the training rows change by
multiples of stages' leaf values:

    G = sum of w g,  H = sum of w h over a leaf's rows,   v = -soft(G, l1) / (H + l2), clipped
    F = F + coefficient * v[leaf]

Plain boosting has one stage per round, with the learning rate as coefficient. Several Newton steps
on one tree are stages whose coefficient is 1 until the tree is done and the learning rate from
then on. DART takes earlier stages, with the first tree also the initial prediction, out of the
scores and puts them back smaller: what changes after a round may be the stages of any round before.
The result, `ReplayedStages`, is ready to be run backwards.

Why there are two strategies behind one record. `BoostedFit` describes every fit, and this walk
takes every loss, squared error too; the tests compare both walks there. `walk` exists beside it for
squared error, percentiles and Huber's loss, because exact weights need something else from a fit.
They need the sums of targets, sample counts and active sets that make the linear map from targets
to predictions, and no derivatives. It also rounds residuals in the order of the libraries, which
differs from the order in which they round gradients. One walk for both would be a class of two
halves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit, RowGradients, Shrinkage
from axil.adapters.contract import Adapter
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.kernels import Backend
from axil.kernels.choose import host_backend
from axil.machine.blocks import BlockWorker, row_blocks
from axil.machine.progress import track
from axil.replay.compare import (
    check_gradient_nodes,
    check_gradient_values,
    check_hessians,
    check_initial,
    check_leaf_counts,
    counts_of_leaves,
)
from axil.replay.exponential_scores import FARTHEST, ExponentialScores, Move, Term
from axil.replay.newton_steps import (
    Step,
    StepSearch,
    bounded_step,
    centred_step,
    joint_steps,
    leaf_step,
    whole_steps,
)
from axil.replay.recover import recover_rates
from axil.replay.replayed_stages import ReplayedStages, Round, start_factors
from axil.replay.row_scores import RowScores
from axil.replay.walk import Leaves
from axil.structure import IsotonicRule, NodeRule

ROUNDINGS = 8  # of the sum of |w g| that a leaf's sum of w g may be off by
WALKED_LEAVES = 1 << 14  # of trees that the core walks through at a time
# Of a leaf value: what rounding may add to it. More is seen in values near zero alone.
ROUNDED = 1e-3


def walk(
    adapter: Adapter,
    fit: BoostedFit,
    leaves: Leaves,
    targets: FloatArray,
    offsets: FloatArray | None,
    check: bool,
    n_threads: int,
) -> ReplayedStages:
    """Walk through the fit, and compute every leaf value from the scores of the model's own trees.

    Parameters
    ----------
    leaves : unsigned array of shape (T, N)
    targets : array of shape (N, K)
    offsets : array of shape (N, K) or None
    check : bool
        Whether counts, leaf values and an initial prediction that disagree with the model's raise
        `ExactnessError`.
    """
    with row_blocks(len(targets), n_threads) as each_block:
        gradient_walk = GradientWalk(
            adapter, fit, leaves, targets, offsets, each_block, host_backend(n_threads)
        )
        return gradient_walk.run(check)


class GradientWalk:
    """The state of the walk: the scores reached, and the steps of every tree so far."""

    def __init__(
        self,
        adapter: Adapter,
        fit: BoostedFit,
        leaves: Leaves,
        targets: FloatArray,
        offsets: FloatArray | None,
        each_block: BlockWorker,
        backend: Backend,
    ):
        n_rows = len(targets)
        self.each_block = each_block
        self.backend = backend
        self.adapter = adapter
        self.fit = fit
        self.loss = fit.loss
        self.leaves = leaves
        self.targets = targets
        self.starts = fit.table.starts
        self.n_steps = int(np.max(fit.leaf_rule.steps))
        self.weights = np.ones(n_rows)
        if fit.weights.row_weights is not None:
            self.weights = np.asarray(fit.weights.row_weights)
        self.start = fit.schedule.shares_of_initial[0] * fit.initial.values
        if offsets is not None:
            self.start = self.start + offsets
        self.row_scores = self._row_scores()
        self.drawn: AnyArray | None = None
        if fit.sample_type is not None:
            self.drawn = np.zeros(leaves.shape, dtype=fit.sample_type)
        # By stage:
        self.stage_tree: list[int] = []
        self.stage_output: list[int] = []
        self.steps: list[Step] = []
        self.scales: list[float] = []
        self.rounds: list[Round] = []
        #: of each iteration: the number of its last round, and its stages
        self.iteration_ends: list[tuple[int, list[int]]] = []
        #: of each round, where a loss cannot be asked about single rows
        self.recorded_gradients: list[AnyArray] = []
        self.replayed_values = np.zeros_like(fit.table.leaf_values)  # leaf values before the rate
        #: (L,) sums of w h over the rows of each leaf, and its outputs
        self.hessians = np.zeros(len(fit.table.leaf_values))
        self.zeroed: BoolArray | None = None
        if fit.leaf_rule.min_hessian > 0:
            self.zeroed = np.zeros(fit.table.leaf_values.shape, dtype=np.bool_)
        self.keeps_light_values = False
        #: of each tree, before the rate, where splits must be monotone
        self.node_values: list[FloatArray] = []
        #: of the nodes of each tree, where they are smoothed
        self.smoothing_shares: list[FloatArray] = []
        #: (L_t, 2) sums of g and h of all trees, where the core walks
        self.core_sums: dict[Term, FloatArray] | None = None
        #: the scores, where the core walks trees of several steps
        self.core_scores: ExponentialScores | None = None
        #: the steps of such a tree that are still to be taken, before their factors
        self.steps_ahead: list[list[Step]] = []
        #: (T, N) the deviations of the scores that each tree saw, where a shrinkage leaves one
        self.deviations: NDArray[np.float32] | None = None
        if fit.shrinkage is not None:
            self.deviations = np.zeros(leaves.shape, dtype=np.float32)
        #: (L, K) the sums of |w g| that leaf values are made of, where `_noise` asks for them
        self.magnitudes: FloatArray | None = None

    def _row_scores(self) -> RowScores:
        """Return the scores before the first round."""
        factors = None
        if self.fit.weights.leaf_factors is not None:
            factors = self.fit.weights.leaf_factors[None]
        return RowScores(
            self.fit,
            self.targets,
            self.start,
            self.weights[None],
            factors,
            True,
            self.each_block,
            self.backend,
        )

    def run(self, check: bool) -> ReplayedStages:
        """Walk through all rounds; with ``check``, compare the leaves with the model's."""
        if check:
            self._check_before()
        iterations = self.fit.schedule.trees_of_rounds
        self._start_core(iterations)
        for number, trees in enumerate(track(iterations, "replay")):
            self.iterate(number, trees)
        final_scores = self.row_scores.current
        if self.core_sums is not None:
            final_scores = self._final_scores()
            self.core_scores = None
        if self.deviations is not None:
            final_scores = final_scores - self.row_scores.deviation
        if check and self.drawn is not None:  # by now all rows are sampled
            self._check_counts()
        rates, recovered = recover_rates(self.fit, self.replayed_values)
        leaf_error = 0.0
        if check:
            leaf_error = self._check_leaves(rates)
        self._settle(rates)
        if self.smoothing_shares and self.fit.leaf_rule.nodes is not None:
            settled = replace(self.fit.leaf_rule.nodes, own=np.concatenate(self.smoothing_shares))
            self.fit = replace(self.fit, leaf_rule=replace(self.fit.leaf_rule, nodes=settled))
        recorded_gradients = None
        if self.recorded_gradients:
            recorded_gradients = np.stack(self.recorded_gradients)
        return ReplayedStages(
            fit=self.fit,
            leaves=self.leaves,
            starts=self.starts,
            drawn=self.drawn,
            targets=self.targets,
            weights=self.weights,
            stage_tree=np.array(self.stage_tree),
            stage_output=np.array(self.stage_output),
            steps=tuple(self.steps),
            rounds=tuple(self.rounds),
            score=final_scores,
            leaf_error=leaf_error,
            recovered=recovered,
            scales=np.array(self.scales),
            start=self.start,
            zeroed=self.zeroed,
            keeps_light_values=self.keeps_light_values,
            gradients=recorded_gradients,
            round_losses=tuple(self.row_scores.round_losses),
            deviations=self.deviations,
        )

    # -- comparisons with the model ----------------------------------------------------------------

    def _check_before(self) -> None:
        """Compare row counts and initial scores, before any leaf value is computed."""
        fit = self.fit
        if self.drawn is None:
            self._check_counts()
        if fit.initial.follows_targets:
            weights = self.weights * start_factors(fit, len(self.targets))
            initial = self.loss.start_of(self.targets, weights)
            largest_target = float(np.abs(self.targets).max())
            scale = np.maximum(max(1.0, largest_target), np.abs(fit.initial.values))
            rounding = self.loss.start_rounding(fit.initial.values)
            slack = rounding + self.adapter.gradient_tolerance * scale
            check_initial(self.adapter, fit, initial, slack)

    def _check_counts(self) -> None:
        """Compare the row counts of the leaves with the model."""
        if self.fit.table.leaf_counts is None:
            return
        rows = self.backend.rows(self.leaves, self.starts)
        counts = counts_of_leaves(self.fit, rows, self.drawn)
        check_leaf_counts(self.adapter, self.fit, counts)

    def _check_leaves(self, rates: FloatArray) -> float:
        """Compare values of leaves and nodes, and hessians, with the model.

        Returns
        -------
        float
            The largest error of a leaf value.
        """
        fit = self.fit
        values = self.replayed_values * np.repeat(rates, fit.table.n_leaves)[:, None]
        leaf_error = check_gradient_values(self.adapter, fit, values, self.start, self._noise)
        if self.node_values:
            # A rate that is not stated is in no value of a node.
            stated_rates = np.where(np.isnan(fit.learning_rates), 1.0, rates)
            node_values = [rate * of_tree for rate, of_tree in zip(stated_rates, self.node_values)]
            check_gradient_nodes(self.adapter, fit, np.concatenate(node_values))
        if fit.table.leaf_hessians is not None:
            check_hessians(self.adapter, fit, self.hessians, self._leaf_weights())
        return leaf_error

    def _noise(self) -> FloatArray:
        """Return the rounding errors of the sums of |w g| in each leaf, (L, K).

        They are roundings in the library's precision. The fit is walked through once more. Walks
        that are not repeated have no noise.
        """
        magnitudes = np.zeros_like(self.replayed_values)
        is_repeated = not (
            self.drawn is not None
            or self.loss.recorded
            or self.loss.joint
            or self.n_steps > 1
            or self.node_values
        )
        if not is_repeated:
            return magnitudes
        second_walk = GradientWalk(
            self.adapter,
            self.fit,
            self.leaves,
            self.targets,
            None,
            self.each_block,
            self.backend,
        )
        second_walk.start = self.start
        second_walk.row_scores = second_walk._row_scores()
        second_walk.magnitudes = magnitudes
        for number, trees in enumerate(self.fit.schedule.trees_of_rounds):
            second_walk.iterate(number, trees)
        rates = np.nan_to_num(self.fit.learning_rates, nan=1.0)
        rates_of_leaves = np.repeat(rates, self.fit.table.n_leaves)[:, None]
        precision = float(np.finfo(self.adapter.rounding.targets).eps)
        return np.asarray(ROUNDINGS * precision * rates_of_leaves * magnitudes)

    def _leaf_weights(self) -> FloatArray:
        """Return the weights (L,) of the rows in each leaf, sampled or not."""
        rows = self.backend.rows(self.leaves, self.starts)
        return rows.leaf_sums(self.weights[:, None], None)[:, 0]

    # -- the walk in the core ----------------------------------------------------------------------

    def _start_core(self, iterations: list[range]) -> None:
        """Start the walk in the core if it supports the fit, at once or step by step."""
        exponential_scores = self._exponential_scores()
        if exponential_scores is None:
            return
        if self.n_steps > 1:
            self.core_sums = {}
            self.core_scores = exponential_scores
        else:
            self.core_sums = self._all_sums(exponential_scores, iterations)

    def _exponential_scores(self) -> ExponentialScores | None:
        """Return the scores as the core walks them, in double precision; None if it cannot."""
        if not self._is_plain():
            return None
        largest = np.abs(self.row_scores.current).max(initial=0.0)
        for values in np.split(self.fit.table.leaf_values, self.starts[1:-1]):
            largest += np.abs(values).max(initial=0.0)
        exponent = self.loss.exponent
        if not exponent or not abs(exponent) * largest <= FARTHEST:
            return None
        return ExponentialScores.of(
            self.loss,
            self.leaves,
            self.starts,
            self.targets,
            self.row_scores.sum_weights[None],
            self.drawn,
            self.row_scores.current[None],
            self.backend.n_threads,
        )

    def _is_plain(self) -> bool:
        """Return whether the core supports everything in the fit."""
        fit = self.fit
        if fit.sampler is not None and fit.sampler.needs_gradients:
            return False
        has_special_steps = (
            self.drawn is not None
            or fit.leaf_rule.coupling_rule is not None
            or self.zeroed is not None
        )
        if self.n_steps > 1 and has_special_steps:
            return False
        is_rounded = self.loss.single or self.row_scores.as_kept is not None
        initial_moves = bool(np.any(np.diff(fit.schedule.shares_of_initial)))
        return (
            fit.schedule.is_plain
            and not self.loss.recorded
            and not is_rounded
            and not initial_moves
        )

    def _all_sums(
        self, exponential_scores: ExponentialScores, iterations: list[range]
    ) -> dict[Term, FloatArray]:
        """Return the sums of g and h over the leaves of every tree and output.

        Scores follow the model's own leaf values. The core walks through some trees at a time,
        because the sums that threads hold of their leaves then stay in the caches.
        """
        all_sums: dict[Term, FloatArray] = {}
        rounds: list[tuple[list[Move], list[Term]]] = []
        moves: list[Move] = []
        n_leaves = 0
        for trees in iterations:
            self._draw(trees)
            terms = [(tree, output) for tree in trees for output in self._outputs(tree)]
            rounds.append((moves, terms))
            moves = [
                (tree, output, self._recorded_values(tree, output)[None]) for tree, output in terms
            ]
            n_leaves += sum(gains.size for *_, gains in moves)
            if n_leaves > WALKED_LEAVES or trees is iterations[-1]:
                walked_terms = [term for _, terms_of_round in rounds for term in terms_of_round]
                for term, sums in zip(walked_terms, exponential_scores.sums(rounds)):
                    all_sums[term] = sums[0]
                rounds = []
                n_leaves = 0
        return all_sums

    def _final_scores(self) -> FloatArray:
        """Return the scores (N, K) from the model's own leaf values."""
        n_outputs = self.targets.shape[1]
        table = np.zeros((self.starts[-1], n_outputs))
        for tree in range(len(self.leaves)):
            place = self._place(tree)
            table[place, self._outputs(tree)] = self.fit.table.leaf_values[place]
        gains = np.empty_like(self.targets)
        rows = self.backend.rows(self.leaves, self.starts)
        rows.read_out(table, np.zeros(n_outputs), None, 0, gains)
        return np.asarray(self.start + gains)

    # -- rounds ------------------------------------------------------------------------------------

    def iterate(self, iteration: int, trees: range) -> None:
        """Walk through one iteration.

        A tree takes several steps only if it is the only one of its iteration.
        """
        scales = self._scales(trees[0])
        scores = self.row_scores
        scores_before = scores.current
        if self.n_steps > 1:
            scores_before = scores_before.copy()
        all_stages: list[int] = []
        for number, scale in enumerate(scales):
            self._compute_gradients(trees, is_first=number == 0)
            stages = [stage for tree in trees for stage in self._stages(tree, scale)]
            all_stages += stages
            if number < len(scales) - 1:
                self._advance_within_trees(stages)
        scores.current = scores_before
        self._advance_by_recorded_values(iteration, trees)
        shares_of_initial = self.fit.schedule.shares_of_initial
        moved = float(shares_of_initial[iteration + 1] - shares_of_initial[iteration])
        if moved:
            scores.current += moved * self.fit.initial.values
        if self.fit.shrinkage is not None:
            self._shrink(self.fit.shrinkage, trees.start)
        self.iteration_ends.append((len(self.rounds), all_stages))
        self.rounds.append(Round(tuple(stages), (), moved, is_last=True))

    def _shrink(self, shrinkage: Shrinkage, tree: int) -> None:
        """Shrink the scores after a tree, and record their deviation for the next tree."""
        assert self.deviations is not None
        self.row_scores.shrink(shrinkage, tree)
        if tree + 1 < len(self.deviations):
            self.deviations[tree + 1] = self.row_scores.deviation[:, 0]

    def _advance_within_trees(self, stages: list[int]) -> None:
        """Finish a round whose trees take further steps: the steps themselves move the scores."""
        changes = tuple((stage, 1.0) for stage in stages)
        self.rounds.append(Round(tuple(stages), changes))
        for stage in stages:
            output = self.stage_output[stage]
            self._add(self.stage_tree[stage], output, self.steps[stage].value)

    def _advance_by_recorded_values(self, iteration: int, trees: range) -> None:
        """Add the leaf values that the model records to the scores after an iteration."""
        for tree, share in self._shares(iteration, trees):
            for output in self._outputs(tree):
                self._add(tree, output, share * self._recorded_values(tree, output))
        if self.core_scores is None:
            return
        moves: list[Move] = []
        for tree in trees:
            for output in self._outputs(tree):
                moves.append((tree, output, self._recorded_values(tree, output)[None]))
        self.core_scores.move(moves)

    def _compute_gradients(self, trees: range, is_first: bool) -> None:
        """Compute the gradients; before the first step of the trees, sample their rows."""
        if self.core_sums is not None:  # the core walks
            return
        self.row_scores.compute_gradients()
        if self.loss.recorded:
            self.recorded_gradients.append(self.row_scores.g.astype(self.loss.gradient_type))
        if is_first:
            self._draw(trees)

    def _draw(self, trees: range) -> None:
        """Sample the rows of the trees of an iteration."""
        sampler = self.fit.sampler
        if self.drawn is None:
            return
        assert sampler is not None
        gradients = None
        if sampler.needs_gradients:
            weights = self.row_scores.sum_weights[:, None]
            gradients = RowGradients(-weights * self.row_scores.g, weights * self.row_scores.h)
        drawn_trees = slice(trees.start, trees.stop)
        self.drawn[drawn_trees] = sampler.draw(trees, self.leaves[drawn_trees], gradients)

    def _moved_shares(self, iteration: int) -> FloatArray:
        """Return the changes of all trees' coefficients, (T,), after an iteration of DART."""
        tree_shares = self.fit.schedule.tree_shares
        assert tree_shares is not None
        return np.asarray(tree_shares[iteration + 1] - tree_shares[iteration])

    def _shares(self, iteration: int, trees: range) -> list[tuple[int, float]]:
        """Return the trees whose share in the scores changes after an iteration.

        With each comes the share of its final values that is added.
        """
        if self.fit.schedule.tree_shares is None:
            return [(tree, 1.0) for tree in trees]
        moved = self._moved_shares(iteration)
        final = self.fit.schedule.tree_shares[-1]
        return [(int(tree), float(moved[tree] / final[tree])) for tree in np.flatnonzero(moved)]

    def _add(self, tree: int, output: int, values: FloatArray) -> None:
        """Add the values (L_t,) of the rows' leaves to the scores of an output."""
        if self.core_sums is None:  # else the core walks
            self.row_scores.add(self.leaves[tree], output, values)

    # -- trees -------------------------------------------------------------------------------------

    def _place(self, tree: int) -> slice:
        """Return the places of a tree's leaves among all."""
        return slice(int(self.starts[tree]), int(self.starts[tree + 1]))

    def _outputs(self, tree: int) -> list[int]:
        """Return the outputs that a tree serves."""
        return self.fit.schedule.outputs_of(tree, self.targets.shape[1])

    def _recorded_values(self, tree: int, output: int) -> FloatArray:
        """Return the model's own leaf values (L_t,) of a tree for an output."""
        return self.fit.table.leaf_values[self._place(tree), self.fit.schedule.column(output)]

    def _stages(self, tree: int, scale: float) -> list[int]:
        """Take one step of a tree, and return its stages, one for each of its outputs."""
        place = self._place(tree)
        first = len(self.steps)
        for column, (output, step) in enumerate(zip(self._outputs(tree), self._steps_of(tree))):
            scaled_step = step.scaled(scale)
            self.replayed_values[place, column] += scaled_step.value
            self.stage_tree.append(tree)
            self.stage_output.append(output)
            self.steps.append(scaled_step)
            self.scales.append(scale)
        return list(range(first, len(self.steps)))

    def _steps_of(self, tree: int) -> list[Step]:
        """Return the next step of a tree for each of its outputs, before it is scaled."""
        if self.loss.joint:
            weights = self.row_scores.sum_weights
            if self.drawn is not None:
                weights = weights * self.drawn[tree]
            means = self.loss.mean(self.row_scores.current)
            l2 = self.fit.leaf_rule.l2[self._place(tree)]
            return joint_steps(self.row_scores.g, means, weights, self.leaves[tree], l2)
        if self.core_scores is not None:
            return self.steps_ahead.pop(0)
        return [
            self._step(tree, column, output) for column, output in enumerate(self._outputs(tree))
        ]

    def _step(self, tree: int, column: int, output: int) -> Step:
        """Return the step of a tree for one output, whose values are in this column."""
        place = self._place(tree)
        G, H = self._sums(tree, output)
        self.hessians[place] += H
        l2 = self.fit.leaf_rule.l2[place]
        if self.zeroed is not None:
            self.zeroed[place, column] = self._zeroed(place, column, H)
            l2 = np.where(self.zeroed[place, column], np.inf, l2)
        step = leaf_step(G, H, l2, self.fit.leaf_rule.l1, self.fit.leaf_rule.max_step)
        if self.fit.leaf_rule.coupling_rule is not None:
            rule = self._rule_of(tree, self.fit.leaf_rule.coupling_rule, -G, H)
            step = bounded_step(rule, G, H, step)
            if isinstance(rule, NodeRule):
                self.node_values.append(rule.node_values(-G, H).bounded)
        if self.fit.leaf_rule.is_centred:
            leaf_weights = np.bincount(self.leaves[tree], self.weights, len(step.value))
            step = centred_step(step, leaf_weights)
        if self.magnitudes is not None:
            self.magnitudes[place, column] = self._magnitudes_of(tree, output, step)
        return step

    def _sums(self, tree: int, output: int) -> tuple[FloatArray, FloatArray]:
        """Return the sums G and H over the leaves of a tree, (L_t,) each."""
        if self.core_sums is not None:
            sums = self.core_sums[tree, output]
            return sums[:, 0], sums[:, 1]
        sample_counts = None
        if self.drawn is not None:
            sample_counts = self.drawn[tree]
        n_leaves = int(self.fit.table.n_leaves[tree])
        leaves = self.leaves[tree : tree + 1]
        return self.row_scores.leaf_sums(leaves, n_leaves, output, sample_counts)

    def _magnitudes_of(self, tree: int, output: int, step: Step) -> FloatArray:
        """Return the sums of the absolute terms of leaf values, (L_t,)."""
        weights = self.row_scores.sum_weights
        sizes = weights * np.abs(self.row_scores.g[:, output])
        sums = np.bincount(self.leaves[tree], sizes, len(step.value))
        if step.mix is None:
            return np.asarray(sums * step.share)
        return np.asarray(np.abs(step.mix.share) @ sums)

    def _zeroed(self, place: slice, column: int, H: FloatArray) -> BoolArray:
        """Return which leaf values (L_t,) of a tree the library set to zero for their weight."""
        min_hessian = self.fit.leaf_rule.min_hessian
        is_zero = self.fit.table.leaf_values[place, column] == 0
        is_light = (1 - ROUNDED) * min_hessian > H
        if np.isfinite(min_hessian) and is_light[~is_zero].any():
            self.keeps_light_values = True
        return np.asarray(((1 + ROUNDED) * min_hessian > H) & is_zero)

    def _rule_of(
        self,
        tree: int,
        coupling_rule: NodeRule | IsotonicRule,
        sums: FloatArray,
        hessians: FloatArray,
    ) -> NodeRule | IsotonicRule:
        """Return the rule of a tree whose leaves depend on each other.

        It has the shares that smoothing left its nodes. Nodes that a refit left without weight
        bound no others.
        """
        rule = coupling_rule.tree(tree, self._place(tree))
        counts = self.weights > 0
        if self.drawn is not None:
            counts = counts & (self.drawn[tree] > 0)
        n_rows = np.bincount(self.leaves[tree], counts, len(rule.l2))
        rule = rule.emptied(n_rows == 0)
        if self.fit.leaf_rule.smoothing is None or not isinstance(rule, NodeRule):
            return rule
        values = self.fit.table.leaf_values[self._place(tree), 0]
        shares = self.fit.leaf_rule.smoothing.own(tree, sums, hessians, values)
        self.smoothing_shares.append(shares)
        return replace(rule, nodes=replace(rule.nodes, own=shares))

    # -- steps that may have been halved -----------------------------------------------------------

    def _scales(self, tree: int) -> list[float]:
        """Return the factor of each of the tree's steps.

        They are found on the leaf that needs most steps, that of largest value or of least H. A
        tree of zeros had every step given up.
        """
        if self.n_steps == 1:
            return [1.0]
        if self.loss.couples_rows:
            return self._scales_by_loss(tree)
        place = self._place(tree)
        values = self.fit.table.leaf_values[place]
        n_rows = np.bincount(self.leaves[tree], minlength=len(values))
        is_usable = (n_rows > 0) & np.isfinite(self.fit.leaf_rule.l2[place]) & values.any(axis=1)
        usable = np.flatnonzero(is_usable)
        if not len(usable):
            self._look_ahead(tree, [0.0])
            return [0.0]
        self._look_ahead(tree, [1.0] * self.n_steps)
        leaf_weights: AnyArray = n_rows
        if not self.row_scores.has_unit_weights:
            leaf_weights = np.bincount(self.leaves[tree], self.weights, len(values))
        largest_leaf = int(usable[np.abs(values[usable]).max(axis=1).argmax()])
        slow_leaves = {self._leaf_of_least_hessian(tree, usable), largest_leaf}
        paths = [self._path_to(tree, leaf, float(leaf_weights[leaf])) for leaf in slow_leaves]
        _, scales = max(paths, key=lambda path: (path[0], len(path[1])))
        if any(scale != 1 for scale in scales):
            self._look_ahead(tree, scales)
        return scales

    def _scales_by_loss(self, tree: int) -> list[float]:
        """Return the factor of each step of the tree, if the loss of all rows decides it.

        A step that does not lower the loss is halved, and every attempt counts as a step.
        """
        if not self.fit.leaf_rule.halves_steps:
            return [1.0] * self.n_steps
        scores = self.row_scores
        scores_before = scores.current.copy()
        best = scores.total_loss()
        scales: list[float] = []
        n_attempts = 0
        while n_attempts < self.n_steps:
            scores.compute_gradients()
            step = self._step(tree, 0, self._outputs(tree)[0])
            moves = step.value[self.leaves[tree], None]
            scores_reached = scores.current
            scale = 1.0
            while True:
                n_attempts += 1
                scores.current = scores_reached + scale * moves
                loss = scores.total_loss()
                if loss < best:
                    best = loss
                    break
                scale /= 2
                if n_attempts >= self.n_steps:
                    scale = 0.0
                    scores.current = scores_reached
                    break
            scales.append(scale)
        scores.current = scores_before
        return scales

    def _path_to(self, tree: int, leaf: int, leaf_weight: float) -> tuple[bool, list[float]]:
        """Return whether steps lead to the value of a leaf, and their factors on the best path."""
        place = self._place(tree)
        goal = self.fit.table.leaf_values[place][leaf] / self.fit.learning_rates[tree]
        path = None
        if self.steps_ahead:
            path = whole_steps(self.loss, self.steps_ahead, leaf, leaf_weight, goal)
        if path is not None:
            return path
        rows = self.leaves[tree] == leaf
        if self.core_scores is None:
            scores = self.row_scores.current[rows]
        else:
            scores = self.core_scores.scores(rows)
        l2 = float(self.fit.leaf_rule.l2[place][leaf])
        search = StepSearch(self.loss, self.targets[rows], scores, self.weights[rows], l2, goal)
        return search.way(self.n_steps)

    def _look_ahead(self, tree: int, scales: list[float]) -> None:
        """Compute the steps of a tree in the core, if the core supports the fit.

        From steps that are too long for it on, it walks no more.
        """
        if self.core_scores is None:
            return
        l2 = self.fit.leaf_rule.l2[self._place(tree)]

        def step_of(sums: FloatArray) -> Step:
            return leaf_step(
                sums[:, 0], sums[:, 1], l2, self.fit.leaf_rule.l1, self.fit.leaf_rule.max_step
            )

        self.steps_ahead = self.core_scores.steps(tree, self._outputs(tree), scales, step_of)
        if not self.steps_ahead:
            self.row_scores.current = self.core_scores.scores(slice(None))
            self.core_scores = None
            self.core_sums = None

    def _leaf_of_least_hessian(self, tree: int, usable: IntArray) -> int:
        """Return the leaf with the smallest hessian before the first step, over all outputs.

        ``usable`` has the leaves to choose from.
        """
        if self.steps_ahead:
            first_steps = self.steps_ahead[0]
            with np.errstate(divide="ignore"):
                denominators = sum(1.0 / step.share[usable] for step in first_steps)
            l2 = self.fit.leaf_rule.l2[self._place(tree)][usable]
            return int(usable[np.argmin(denominators - len(first_steps) * l2)])
        slopes = self.loss.slopes(self.targets, self.row_scores.current)
        hessians = np.broadcast_to(slopes.h, self.targets.shape).sum(axis=1)
        sums = np.bincount(self.leaves[tree], self.weights * hessians)
        return int(usable[sums[usable].argmin()])

    # -- the end of the walk -----------------------------------------------------------------------

    def _settle(self, rates: FloatArray) -> None:
        """Apply the learning rates, and end the last step of each tree at its leaf values.

        The rows of a leaf share what rounding adds, so the value that their contributions add up to
        is the model's own too.
        """
        computed_values = np.repeat(rates, self.fit.table.n_leaves)[:, None] * self.replayed_values
        recorded_values = self.fit.table.leaf_values
        is_near = np.abs(computed_values - recorded_values) < ROUNDED * np.abs(computed_values)
        rounding_factors = np.divide(
            recorded_values, computed_values, out=np.ones_like(computed_values), where=is_near
        )
        stages_of_trees = self._stages_of_trees()
        for iteration, (number, stages) in enumerate(self.iteration_ends):
            last_round = self.rounds[number]
            if self.fit.schedule.tree_shares is None:
                gains = {stage: rates[self.stage_tree[stage]] for stage in stages}
            else:
                gains = {}
                moved = self._moved_shares(iteration)
                for tree in np.flatnonzero(moved).tolist():
                    gains |= dict.fromkeys(stages_of_trees[tree], moved[tree])
            # The steps before the last are in the scores whole.
            for stage in set(stages).difference(last_round.stages):
                gains[stage] -= 1.0
            changes = tuple((stage, float(gain)) for stage, gain in gains.items())
            self.rounds[number] = replace(last_round, changes=changes)
            for stage in stages:
                is_last = stage in last_round.stages
                self._settle_step(stage, rates, rounding_factors, is_last)

    def _stages_of_trees(self) -> dict[int, list[int]]:
        """Return the stages of each tree."""
        stages_of_trees: dict[int, list[int]] = {}
        for stage, tree in enumerate(self.stage_tree):
            stages_of_trees.setdefault(tree, []).append(stage)
        return stages_of_trees

    def _settle_step(
        self, stage: int, rates: FloatArray, rounding_factors: FloatArray, is_last: bool
    ) -> None:
        """Scale the shares of rows in a step; the last step has the rest of the leaf values."""
        tree = self.stage_tree[stage]
        column = self.fit.schedule.column(self.stage_output[stage])
        place = self._place(tree)
        step = self.steps[stage]
        factors = rounding_factors[place, column]
        share = step.share
        mix = step.mix
        if mix is None:
            share = factors * share
        else:
            mix = replace(mix, share=factors[:, None] * mix.share)
        value = step.value
        if is_last and rates[tree] != 0:
            recorded_values = self.fit.table.leaf_values[place, column]
            rest = recorded_values / rates[tree] - self.replayed_values[place, column]
            value = value + rest
        self.steps[stage] = replace(step, value=value, share=share, mix=mix)

"""The walk through a fit by the gradients of its loss, with the model's own leaf values, ready to be run backwards.

Scores start from a base and offsets. In every round some stages, each one step of one tree for one
output, look at the same scores; then the scores of the training rows change by multiples of stages'
leaf values:

    G = sum of w g,  H = sum of w h over a leaf's rows,   v = -soft(G, l1) / (H + l2), clipped
    F = F + coefficient * v[leaf]

Plain boosting has one stage per round, with the rate as coefficient. Several Newton steps on one
tree are stages whose coefficient is 1 until the tree is done and the rate from then on. DART takes
earlier stages, with the first tree also the base, out of the scores and puts them back smaller:
what changes after a round may be the stages of any round before, and the base.

`walk` is the other walk, for residuals: it keeps sums of targets instead of steps, because these make the linear map of exact
weights. This one keeps every step with its derivatives. Any loss can be walked through here, squared error too, where the tests
compare both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit, RowGradients
from axil.adapters.contract import Adapter
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.kernels import NONE, Backend
from axil.kernels.choose import host_backend
from axil.machine.blocks import Each, row_blocks
from axil.machine.progress import track
from axil.replay.exponential_scores import FARTHEST, ExponentialScores, Move, Term
from axil.replay.newton_steps import (
    Step,
    StepSearch,
    bounded_step,
    joint_steps,
    leaf_step,
    whole_steps,
)
from axil.replay.recover import recover_rates
from axil.replay.replayed_stages import ReplayedStages, Round, start_factors
from axil.replay.score_checks import (
    check_counts,
    check_hessians,
    check_nodes,
    check_start,
    check_values,
)
from axil.structure import IsotonicRule, NodeRule
from axil.trees.losses import Loss, Slopes

Leaves = NDArray[np.unsignedinteger[Any]]

ROUNDINGS = 8  # of the sum of |w g| that a leaf's sum of w g may be off by
WALKED_LEAVES = 1 << 14  # of trees that the core walks through at a time
ROUNDED = (
    1e-3  # of a leaf value: what rounding may add to it; more is seen in values near zero alone
)


def walk(
    adapter: Adapter,
    fit: BoostedFit,
    leaves: Leaves,
    targets: FloatArray,
    offsets: FloatArray | None,
    check: bool,
    n_threads: int,
) -> ReplayedStages:
    """Walk through the fit, computing every leaf value from the scores that the model's own trees lead to.

    With ``check``, counts, leaf values and the start of the fit that disagree with the model's
    raise `ExactnessError`.
    """
    with row_blocks(len(targets), n_threads) as each:
        return GradientWalk(
            adapter, fit, leaves, targets, offsets, each, host_backend(n_threads)
        ).run(check)


class GradientWalk:
    """The state of the walk: the scores reached, and what every tree so far was found to be made of."""

    def __init__(
        self,
        adapter: Adapter,
        fit: BoostedFit,
        leaves: Leaves,
        targets: FloatArray,
        offsets: FloatArray | None,
        each: Each,
        backend: Backend,
    ):
        self.each, self.backend = each, backend
        self.adapter = adapter
        self.fit = fit
        self.loss = fit.loss
        self.leaves = leaves
        self.targets = targets
        self.n_steps = int(np.max(fit.leaf_rule.steps))
        n_rows = len(targets)
        weighted = fit.weights.row_weights is not None and not fit.loss.recorded
        self.weights = np.asarray(fit.weights.row_weights) if weighted else np.ones(n_rows)
        factored = (
            self.weights
            if fit.weights.leaf_factors is None
            else self.weights * fit.weights.leaf_factors
        )
        # what gradients are still to be multiplied by: those in single precision were rounded with
        # their weights
        self.counted = np.ones(n_rows) if fit.loss.single else factored
        self.seen_weights = factored if fit.loss.single else None
        self.even = bool(np.all(self.counted == 1))
        self.starts = fit.table.starts
        base = fit.schedule.shares_of_initial[0] * fit.initial.values
        self.start = base if offsets is None else base + offsets
        self.score = self.start + np.zeros_like(targets)
        # the scores as the library keeps them, if otherwise; where trees are dropped, it adds them
        # up again
        kept = fit.score_precision if fit.schedule.tree_shares is None else np.float64
        self.kept = None if kept is np.float64 else self.score.astype(kept)
        self.bends = np.empty(
            (targets.shape[1], n_rows, 2)
        )  # g and h of the scores reached, filled again and again
        self.gradients: list[FloatArray] = []
        self.round_losses: list[Loss] = []
        self.drawn = (
            None if fit.sample_type is None else np.zeros(leaves.shape, dtype=fit.sample_type)
        )
        self.stage_tree: list[int] = []
        self.stage_output: list[int] = []
        self.steps: list[Step] = []
        self.scales: list[float] = []
        self.rounds: list[Round] = []
        self.ends: list[
            tuple[int, list[int]]
        ] = []  # of each iteration: its last round, and its stages
        self.zeroed = (
            np.zeros(fit.table.leaf_values.shape, dtype=np.bool_)
            if fit.leaf_rule.min_hessian > 0
            else None
        )
        self.keeps_light_values = False
        self.replayed = np.zeros_like(fit.table.leaf_values)  # leaf values before the rate
        self.hessians = np.zeros(
            len(fit.table.leaf_values)
        )  # (L,) sums of w h over the rows of each leaf, and its outputs
        self.node_values: list[
            FloatArray
        ] = []  # of each tree, before the rate, where splits must be monotone
        self.shares: list[FloatArray] = []  # of the nodes of each tree, where they are smoothed
        self.found: dict[Term, FloatArray] | None = (
            None  # (L_t, 2) sums of g and h of all trees, where the core walks
        )
        self.states: ExponentialScores | None = None  # where the core walks trees of several steps
        self.ahead: list[
            list[Step]
        ] = []  # the steps of such a tree that are still to be taken, before their factors
        self.deviation = np.zeros((n_rows, 1))  # of the scores, where a shrinkage leaves one
        self.deviations = None  # (T, N) those that each tree saw
        if fit.shrinkage is not None:
            self.deviations = np.zeros(leaves.shape, dtype=np.float32)
        # (L, K) of the sums of |w g| that they are made of, where `_noise` asks for them
        self.sizes: FloatArray | None = None

    def run(self, check: bool) -> ReplayedStages:
        """Walk through all rounds; with ``check``, compare what is found with the model on the way."""
        if check:
            self._check_start()
        iterations = self.fit.schedule.trees_of_rounds
        states = self._states()
        if states is not None and self.n_steps > 1:
            self.found = {}
            self.states = states
        elif states is not None:
            self.found = self._all_sums(states, iterations)
        del states  # of the size of all rows
        for number, trees in enumerate(track(iterations, "replay")):
            self.iterate(number, trees)
        if self.found is not None:
            self.score = self._scores()
            self.states = None
        if self.deviations is not None:
            self.score = self.score - self.deviation
        if check and self.drawn is not None:
            self._check_counts()
        rates, recovered = recover_rates(self.fit, self.replayed)
        if check:
            leaf_error = self._check_leaves(rates)
        else:
            leaf_error = 0.0
        self._settle(rates)
        if self.shares and self.fit.leaf_rule.nodes is not None:
            settled = replace(self.fit.leaf_rule.nodes, own=np.concatenate(self.shares))
            self.fit = replace(self.fit, leaf_rule=replace(self.fit.leaf_rule, nodes=settled))
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
            score=self.score,
            leaf_error=leaf_error,
            recovered=recovered,
            scales=np.array(self.scales),
            start=self.start,
            zeroed=self.zeroed,
            keeps_light_values=self.keeps_light_values,
            gradients=np.stack(self.gradients) if self.gradients else None,
            round_losses=tuple(self.round_losses),
            deviations=self.deviations,
        )

    def _check_start(self) -> None:
        """Compare the initial scores and, where all rows are in every tree, the row counts with the model."""
        fit = self.fit
        if fit.initial.follows_targets:
            counted = self.weights * start_factors(fit, len(self.targets))
            initial = self.loss.start_of(self.targets, counted)
            rounding = self.loss.start_rounding(fit.initial.values)
            check_start(self.adapter, initial, fit, self.targets, rounding)
        if self.drawn is None:  # before any leaf value is computed
            self._check_counts()

    def _check_counts(self) -> None:
        """Compare the row counts of the leaves with the model."""
        rows = self.backend.rows(self.leaves, self.starts)
        check_counts(self.adapter, self.fit, rows, self.drawn)

    def _check_leaves(self, rates: FloatArray) -> float:
        """Compare the values of leaves and nodes, and sums of hessians, with the model; return the largest error of a leaf."""
        fit = self.fit
        replayed = self.replayed * np.repeat(rates, fit.table.n_leaves)[:, None]
        leaf_error = check_values(self.adapter, fit, replayed, self.start, self._noise)
        if fit.table.leaf_hessians is not None:
            check_hessians(self.adapter, fit, self.hessians, self._leaf_weights())
        if self.node_values:
            # a rate that is not stated is in no value of a node
            stated_rates = np.where(np.isnan(fit.learning_rates), 1.0, rates)
            values = [rate * own for rate, own in zip(stated_rates, self.node_values)]
            check_nodes(self.adapter, fit, np.concatenate(values))
        return leaf_error

    def _states(self) -> ExponentialScores | None:
        """The scores as the core walks them through the fit, in double precision."""
        fit = self.fit
        a = self.loss.exponent
        needs_gradients = fit.sampler is not None and fit.sampler.needs_gradients
        plain = fit.schedule.is_plain and not needs_gradients and not self.loss.recorded
        if self.n_steps > 1 and (
            self.drawn is not None
            or fit.leaf_rule.coupling_rule is not None
            or self.zeroed is not None
        ):
            return None
        if (
            not plain
            or self.loss.single
            or self.kept is not None
            or np.any(np.diff(fit.schedule.shares_of_initial))
        ):
            return None
        most = np.abs(self.score).max(initial=0.0)
        most += sum(
            np.abs(own).max(initial=0.0)
            for own in np.split(self.fit.table.leaf_values, self.starts[1:-1])
        )
        if not a or not abs(a) * most <= FARTHEST:
            return None
        given = (
            self.leaves,
            self.starts,
            self.targets,
            self.counted[None],
            self.drawn,
            self.score[None],
        )
        return ExponentialScores.of(self.loss, *given, self.backend.n_threads)

    def _all_sums(
        self, states: ExponentialScores, iterations: list[range]
    ) -> dict[Term, FloatArray]:
        """The sums of g and h over the leaves of every tree and output, from the model's own values of the trees before.

        Some trees at a time: the sums that threads hold of their leaves stay in the caches.
        """
        found: dict[Term, FloatArray] = {}
        rounds: list[tuple[list[Move], list[Term]]] = []
        moves: list[Move] = []
        walked = 0
        for trees in iterations:
            self._draw(trees, None)
            terms = [(t, k) for t in trees for k in self._outputs(t)]
            rounds.append((moves, terms))
            moves = [(t, k, self._values(t, k)[None]) for t, k in terms]
            walked += sum(gains.size for *_, gains in moves)
            if walked > WALKED_LEAVES or trees is iterations[-1]:
                every = [term for _, own in rounds for term in own]
                found |= {term: sums[0] for term, sums in zip(every, states.sums(rounds))}
                rounds = []
                walked = 0
        return found

    def _values(self, t: int, k: int) -> FloatArray:
        """(L_t,): the model's own leaf values of a tree for an output."""
        return self.fit.table.leaf_values[
            self.starts[t] : self.starts[t + 1], self.fit.schedule.column(k)
        ]

    def _scores(self) -> FloatArray:
        """(N, K): the scores that the model's own leaf values lead to."""
        table = np.zeros((self.starts[-1], self.targets.shape[1]))
        found = np.empty_like(self.targets)
        for t in range(len(self.leaves)):
            place = slice(self.starts[t], self.starts[t + 1])
            table[place, self._outputs(t)] = self.fit.table.leaf_values[place]
        rows = self.backend.rows(self.leaves, self.starts)
        rows.read_out(table, np.zeros(self.targets.shape[1]), None, 0, found)
        return np.asarray(self.start + found)

    def _noise(self) -> FloatArray:
        """(L, K): roundings of the sums of all |w g| in each leaf, in the library's precision; the fit is walked once more."""
        found = np.zeros_like(self.replayed)
        if (
            self.drawn is not None
            or self.loss.recorded
            or self.loss.joint
            or self.n_steps > 1
            or self.node_values
        ):
            return found  # which are not walked twice
        again = GradientWalk(
            self.adapter, self.fit, self.leaves, self.targets, None, self.each, self.backend
        )
        again.start, again.score = self.start, self.start + np.zeros_like(self.targets)
        again.sizes = found
        for number, trees in enumerate(self.fit.schedule.trees_of_rounds):
            again.iterate(number, trees)
        rates = np.repeat(np.nan_to_num(self.fit.learning_rates, nan=1.0), self.fit.table.n_leaves)[
            :, None
        ]
        return np.asarray(ROUNDINGS * float(np.finfo(self.adapter.precision).eps) * rates * found)

    def _leaf_weights(self) -> FloatArray:
        """Return the weights (L,) of the rows in each leaf, drawn or not."""
        rows = self.backend.rows(self.leaves, self.starts)
        return rows.leaf_sums(self.weights[:, None], None)[:, 0]

    def iterate(self, iteration: int, trees: range) -> None:
        """The trees of one iteration, of which each takes its steps: several only where it is the only one."""
        scales = self._scales(trees[0])
        before = self.score if self.n_steps == 1 else self.score.copy()
        own: list[list[int]] = []
        for number, scale in enumerate(scales):
            slopes = None if self.found is not None else self._slopes()
            if slopes is not None and self.loss.recorded:
                self.gradients.append(slopes.g.astype(np.float32))
            if number == 0 and self.found is None:
                self._draw(trees, slopes)
            stages = [s for t in trees for s in self._stages(t, slopes, scale)]
            own.append(stages)
            if number < len(scales) - 1:
                self.rounds.append(Round(tuple(stages), tuple((stage, 1.0) for stage in stages)))
                self._advance(stages)
        self.score = before
        self._close(trees)
        for t, share in self._shares(iteration, trees):
            place = slice(self.starts[t], self.starts[t + 1])
            for column, k in enumerate(self._outputs(t)):
                self._add(t, k, share * self.fit.table.leaf_values[place, column])
        if self.states is not None:
            self.states.move(
                [(t, k, self._values(t, k)[None]) for t in trees for k in self._outputs(t)]
            )
        moved = float(
            self.fit.schedule.shares_of_initial[iteration + 1]
            - self.fit.schedule.shares_of_initial[iteration]
        )
        if moved:
            self.score += moved * self.fit.initial.values
        if self.fit.shrinkage is not None:
            self._shrink(trees.start)
        self.ends.append((len(self.rounds), [s for stages in own for s in stages]))
        self.rounds.append(Round(tuple(own[-1]), (), moved, is_last=True))

    def _shrink(self, tree: int) -> None:
        """Have the scores deviate from the sums of their trees, as a shrinkage leaves them."""
        assert self.fit.shrinkage is not None
        assert self.deviations is not None
        sums = self.score - self.deviation
        self.deviation = self.fit.shrinkage.deviation(tree, sums, self.deviation)
        self.score = sums + self.deviation
        if tree + 1 < len(self.deviations):
            self.deviations[tree + 1] = self.deviation[:, 0]

    def _close(self, trees: range) -> None:
        """The trees of an iteration have their steps; the scores follow the model's own values."""

    def _draw(self, trees: range, slopes: Any) -> None:
        """Draw the rows of an iteration's trees."""
        sampler = self.fit.sampler
        if self.drawn is None:
            return
        assert sampler is not None
        gradients = None
        if sampler.needs_gradients:
            if self.fit.weights.leaf_factors is None:
                w = self.weights
            else:
                w = self.weights * self.fit.weights.leaf_factors
            g = np.broadcast_to(slopes.g, self.targets.shape)
            h = np.broadcast_to(slopes.h, self.targets.shape)
            gradients = RowGradients(-w[:, None] * g, w[:, None] * h)
        own = slice(trees.start, trees.stop)
        self.drawn[own] = sampler.draw(trees, self.leaves[own], gradients)

    def _moved(self, iteration: int) -> FloatArray:
        """(T,): by how much the coefficients of all trees change after an iteration of DART."""
        assert self.fit.schedule.tree_shares is not None
        return np.asarray(
            self.fit.schedule.tree_shares[iteration + 1] - self.fit.schedule.tree_shares[iteration]
        )

    def _shares(self, iteration: int, trees: range) -> list[tuple[int, float]]:
        """Trees whose part in the scores changes after an iteration, and by how much of their final values."""
        if self.fit.schedule.tree_shares is None:
            return [(t, 1.0) for t in trees]
        moved = self._moved(iteration)
        final = self.fit.schedule.tree_shares[-1]
        return [(int(t), float(moved[t] / final[t])) for t in np.flatnonzero(moved)]

    def _slopes(self) -> Slopes:
        """The slopes at the scores reached; g and h alone, which is all that leaf values need; see ``counted``.

        Threads share blocks of rows; a loss that is asked about all rows at once is.
        """
        if self.kept is None:
            scores = self.score
        else:
            scores = self.kept
        loss = self.loss
        if loss.pooled:
            loss = loss.of_round(self.targets, scores, self.weights)
            self.round_losses.append(loss)

        def put(rows: slice) -> None:
            score = scores[rows]
            if self.seen_weights is None:
                g, h = loss.leaf_slopes(self.targets[rows], score.astype(np.float64, copy=False))
            else:
                g, h = loss.seen(self.targets[rows], score, self.seen_weights[rows])
            self.bends[:, rows, 0], self.bends[:, rows, 1] = np.transpose(g), np.transpose(h)

        if self.loss.recorded:
            put(slice(None))
        else:
            self.each(put)
        g, h = self.bends.transpose(2, 1, 0)
        return Slopes(g, h, np.nan, np.nan, np.nan)

    def _sums(self, t: int, k: int, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(L_t,) each: the sums G and H of w times output k's slopes over the leaves of a tree."""
        if self.found is not None:
            return self.found[t, k][:, 0], self.found[t, k][:, 1]
        rows = self.backend.rows(self.leaves[t : t + 1], self.starts[t : t + 2] - self.starts[t])
        sums = np.empty((rows.n_cells, 2))
        rows.sweep(
            self.bends[k],
            NONE,
            sums,
            None,
            rows.every,
            sums,
            None if w is self.counted and self.even else w,
        )
        return sums[:, 0], sums[:, 1]

    def _scales(self, t: int) -> list[float]:
        """Factor of each of the tree's steps; found on the leaf that needs most steps, that of largest value or of least H.

        A tree of zeros had every step given up.
        """
        if self.n_steps == 1:
            return [1.0]
        place = slice(self.starts[t], self.starts[t + 1])
        values, l2 = self.fit.table.leaf_values[place], self.fit.leaf_rule.l2[place]
        sizes = np.bincount(self.leaves[t], minlength=len(values))
        usable = np.flatnonzero((sizes > 0) & np.isfinite(l2) & values.any(axis=1))
        self._look_ahead(t, [1.0] * self.n_steps if len(usable) else [0.0])
        if not len(usable):
            return [0.0]
        weight = sizes if self.even else np.bincount(self.leaves[t], self.weights, len(values))
        found, ahead = [], self.ahead
        for leaf in {
            self._least(t, usable),
            int(usable[np.abs(values[usable]).max(axis=1).argmax()]),
        }:
            goal = values[leaf] / self.fit.learning_rates[t]
            way = whole_steps(self.loss, ahead, leaf, float(weight[leaf]), goal) if ahead else None
            if way is None:
                rows = self.leaves[t] == leaf
                score = self.score[rows] if self.states is None else self.states.scores(rows)
                search = StepSearch(
                    self.loss, self.targets[rows], score, self.weights[rows], float(l2[leaf]), goal
                )
                way = search.way(self.n_steps)
            found.append(way)
        scales = max(found, key=lambda way: (way[0], len(way[1])))[1]
        if any(scale != 1 for scale in scales):
            self._look_ahead(t, scales)
        return scales

    def _look_ahead(self, t: int, scales: list[float]) -> None:
        """Have the core take the steps of a tree, where it walks; from steps that are too long for it on, it walks no more."""
        if self.states is None:
            return
        l2 = self.fit.leaf_rule.l2[self.starts[t] : self.starts[t + 1]]

        def made(sums: FloatArray) -> Step:
            return leaf_step(
                sums[:, 0], sums[:, 1], l2, self.fit.leaf_rule.l1, self.fit.leaf_rule.max_step
            )

        self.ahead = self.states.steps(t, self._outputs(t), scales, made)
        if not self.ahead:
            self.score = self.states.scores(slice(None))
            self.states = None
            self.found = None

    def _least(self, t: int, usable: IntArray) -> int:
        """The leaf of these that has the least H, over all outputs, before the first step of a tree."""
        if self.ahead:
            with np.errstate(divide="ignore"):
                bent = sum(1.0 / step.share[usable] for step in self.ahead[0])
            l2 = self.fit.leaf_rule.l2[self.starts[t] : self.starts[t + 1]][usable]
            return int(usable[np.argmin(bent - len(self.ahead[0]) * l2)])
        h = np.broadcast_to(self.loss.slopes(self.targets, self.score).h, self.targets.shape).sum(
            axis=1
        )
        return int(usable[np.bincount(self.leaves[t], self.weights * h)[usable].argmin()])

    def _outputs(self, t: int) -> list[int]:
        return self.fit.schedule.outputs_of(t, self.targets.shape[1])

    def _stages(self, t: int, slopes: Any, scale: float) -> list[int]:
        """One step of tree t, a stage for each of its outputs."""
        place = slice(self.starts[t], self.starts[t + 1])
        w = (
            self.counted
            if self.drawn is None or self.found is not None
            else self.counted * self.drawn[t]
        )
        if self.loss.joint:
            steps = joint_steps(
                slopes.g,
                self.loss.mean(self.score),
                w,
                self.leaves[t],
                self.fit.leaf_rule.l2[place],
            )
        elif self.states is not None:
            steps = self.ahead.pop(0)
        else:
            steps = []
            for column, k in enumerate(self._outputs(t)):
                G, H = self._sums(t, k, w)
                self.hessians[place] += H
                l2 = self.fit.leaf_rule.l2[place]
                if self.zeroed is not None:
                    self.zeroed[place, column] = self._zeroed(place, column, H)
                    l2 = np.where(self.zeroed[place, column], np.inf, l2)
                step, bounds = (
                    leaf_step(G, H, l2, self.fit.leaf_rule.l1, self.fit.leaf_rule.max_step),
                    self.fit.leaf_rule.coupling_rule,
                )
                if bounds is not None:
                    rule = self._smoothed(t, self._bounds_of_rows(bounds, t), -G, H)
                    step = bounded_step(rule, G, H, step)
                    if isinstance(rule, NodeRule):
                        self.node_values.append(rule.node_values(-G, H).bounded)
                steps.append(step)
                if self.sizes is not None:
                    sums = np.bincount(self.leaves[t], w * np.abs(slopes.g[:, k]), len(G))
                    self.sizes[place, column] = (
                        sums * step.share if step.mix is None else np.abs(step.mix.share) @ sums
                    )
        first = len(self.steps)
        for column, (k, step) in enumerate(zip(self._outputs(t), steps)):
            step = step.scaled(scale)
            self.replayed[place, column] += step.value
            self.stage_tree.append(t)
            self.stage_output.append(k)
            self.steps.append(step)
            self.scales.append(scale)
        return list(range(first, len(self.steps)))

    def _zeroed(self, place: slice, column: int, H: FloatArray) -> BoolArray:
        """Return which leaf values (L_t,) of a tree the library set to zero for their weight."""
        min_hessian = self.fit.leaf_rule.min_hessian
        is_zero = self.fit.table.leaf_values[place, column] == 0
        if np.isfinite(min_hessian) and ((1 - ROUNDED) * min_hessian > H)[~is_zero].any():
            self.keeps_light_values = True
        return np.asarray(((1 + ROUNDED) * min_hessian > H) & is_zero)

    def _bounds_of_rows(self, bounds: NodeRule | IsotonicRule, t: int) -> NodeRule | IsotonicRule:
        """Return the rule of a tree, in which nodes that a refit left without weight are no bounds."""
        rule = bounds.tree(t, slice(self.starts[t], self.starts[t + 1]))
        counts = self.weights > 0
        if self.drawn is not None:
            counts = counts & (self.drawn[t] > 0)
        return rule.emptied(np.bincount(self.leaves[t], counts, len(rule.l2)) == 0)

    def _smoothed(
        self, t: int, rule: NodeRule | IsotonicRule, sums: FloatArray, weights: FloatArray
    ) -> NodeRule | IsotonicRule:
        """Return the rule of a tree, with the shares that smoothing left its nodes."""
        if self.fit.leaf_rule.smoothing is None or not isinstance(rule, NodeRule):
            return rule
        values = self.fit.table.leaf_values[self.starts[t] : self.starts[t + 1], 0]
        self.shares.append(self.fit.leaf_rule.smoothing.own(t, sums, weights, values))
        return replace(rule, nodes=replace(rule.nodes, own=self.shares[-1]))

    def _advance(self, stages: list[int]) -> None:
        for s in stages:
            self._add(self.stage_tree[s], self.stage_output[s], self.steps[s].value)

    def _add(self, tree: int, output: int, values: FloatArray) -> None:
        """Add the values (L_t,) of the rows' leaves to the scores of an output."""
        if self.found is not None:  # the core walks
            return

        def put(rows: slice) -> None:
            self.score[rows, output] += values[self.leaves[tree, rows]]
            if self.kept is not None:
                self.kept[rows, output] += values.astype(self.kept.dtype)[self.leaves[tree, rows]]

        self.each(put)

    def _stages_of_trees(self) -> dict[int, list[int]]:
        """Return the stages of each tree."""
        stages_of: dict[int, list[int]] = {}
        for s, t in enumerate(self.stage_tree):
            stages_of.setdefault(t, []).append(s)
        return stages_of

    def _settle(self, rates: FloatArray) -> None:
        """Put the rates in, and give each tree's last step what the model's own leaf values leave for it.

        A leaf's rows share what rounding adds: the value that pushes add up to is the model's own
        too.
        """
        made = np.repeat(rates, self.fit.table.n_leaves)[:, None] * self.replayed
        own = self.fit.table.leaf_values
        near = np.abs(made - own) < ROUNDED * np.abs(made)
        rounded = np.divide(own, made, out=np.ones_like(made), where=near)
        stages_of = self._stages_of_trees()
        for iteration, (number, stages) in enumerate(self.ends):
            one = self.rounds[number]
            if self.fit.schedule.tree_shares is None:
                gains = {s: rates[self.stage_tree[s]] for s in stages}
            else:
                moved = self._moved(iteration)
                gains = {s: moved[t] for t in np.flatnonzero(moved) for s in stages_of[int(t)]}
            # The steps before the last are in the scores whole.
            for s in set(stages).difference(one.stages):
                gains[s] -= 1.0
            self.rounds[number] = replace(
                one, changes=tuple((s, float(gain)) for s, gain in gains.items())
            )
            for s in stages:
                t = self.stage_tree[s]
                column = self.fit.schedule.column(self.stage_output[s])
                place = slice(self.starts[t], self.starts[t + 1])
                step = self.steps[s]
                factor = rounded[place, column]
                value = step.value
                share = step.share
                mix = step.mix
                if mix is None:
                    share = factor * share
                else:
                    mix = replace(mix, share=factor[:, None] * mix.share)
                if s in one.stages and rates[t] != 0:
                    value = value + (own[place, column] / rates[t] - self.replayed[place, column])
                self.steps[s] = Step(
                    value, step.by_g, step.by_h, step.by_l2, share, step.inverse, step.solved, mix
                )

"""The fit again with other targets, or without some rows: splits, rates, draws and halved steps are held fixed.

Nothing is linear here: gradients follow the scores, scores the leaf values of the trees before, and
every leaf value is computed again. The walk runs freely, so that the change it makes is that of the
fit in double precision. Several fits, each without other rows, are walked together: copies of the
training rows, one below the other, with leaves of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.contributions.remaining_rows import RemainingRows
from axil.errors import UnsupportedQuestionError
from axil.machine.progress import track
from axil.replay.exponential_scores import ExponentialScores, Move
from axil.replay.newton_steps import Step, joint_steps, leaf_step
from axil.replay.replayed_stages import ReplayedStages, Round
from axil.structure import IsotonicRule, NodeRule
from axil.trees.losses import Loss

Rows = IntArray


@dataclass(frozen=True)
class FitsAgain:
    """C fits at one fixed structure: where scores start, and what each leaf adds to them."""

    walked: ReplayedStages
    base: FloatArray  #: (C, K)
    values: FloatArray  #: (C, L, 1), or (C, L, K) where trees are shared

    def __getitem__(self, number: int) -> FitsAgain:
        """Return one of these fits by itself."""
        own = slice(number, number + 1)
        return replace(self, base=self.base[own], values=self.values[own])

    def scores(self, queries: LeafArray) -> FloatArray:
        """(C, n, K): of rows in these leaves, (n, T)."""
        w = self.walked
        made = self.base[:, None] + np.zeros((len(self.base), len(queries), w.targets.shape[1]))
        for t in range(len(w.leaves)):
            made[:, :, w.fit.schedule.outputs_served(t)] += self.values[
                :, w.starts[t] + queries[:, t].astype(np.intp)
            ]
        return made


def require_rows_in_leaves(n_empty: int) -> None:
    """Refuse fits of averaged trees in which leaves have no rows."""
    if n_empty:
        raise UnsupportedQuestionError(
            "A deletion",
            f"{n_empty} leaves of averaged trees would lose all rows, and take the values of nodes above them, which are not "
            "computed with this loss",
            "Delete fewer rows, or use contributions: they add up to the score for every loss.",
        )


def refit(
    walked: ReplayedStages,
    targets: FloatArray,
    loss: Loss,
    remaining: RemainingRows,
    n_threads: int = 1,
) -> FitsAgain:
    """Return the fits to targets (N, K), whose loss may be another too, of the rows that remain in each.

    O(C T N). A leaf that no row of any weight is left in adds nothing.
    """
    copies = _Copies(walked, targets, loss, remaining)
    states = copies.states(n_threads)
    if states is None:
        found = None
    else:
        found = copies.run(states)
    found = found or copies.run(None)
    assert found is not None
    return found


class _Copies:
    """Copies of the training rows on their way through the fit."""

    def __init__(
        self, walked: ReplayedStages, targets: FloatArray, loss: Loss, remaining: RemainingRows
    ):
        weights = remaining.weights
        factors = remaining.factors
        self.walked = walked
        self.loss = loss
        self.n_copies = len(weights)
        if loss.newton_start and factors is not None:
            counted = weights * factors
        else:
            counted = weights
        trees = walked.fit
        self.base = np.tile(trees.initial.values, (self.n_copies, 1))
        if trees.initial.follows_targets:
            with np.errstate(
                divide="ignore"
            ):  # the logarithm of a mean that is 0 without these rows
                self.base = np.stack(
                    [loss.start_of(targets, row_weights) for row_weights in counted]
                )
        self.row_weights = weights
        if factors is None:
            self.weights = weights
        else:
            self.weights = weights * factors
        self.l2_factors = remaining.l2_factors
        self.targets = np.tile(targets, (self.n_copies, 1))
        score = np.tile(walked.start + np.zeros_like(targets), (self.n_copies, 1))
        # 0 where offsets stand in for the base, which may be infinite by now
        share = float(walked.fit.schedule.shares_of_initial[0])
        if share:
            moved = share * (self.base - trees.initial.values)
        else:
            moved = np.zeros_like(self.base)
        self.score = score + np.repeat(moved, len(targets), axis=0)
        self.deviation = np.zeros((len(self.score), 1))  # see `BoostedFit.shrinkage`

    def run(self, states: ExponentialScores | None) -> FitsAgain | None:
        """Walk through all rounds, in the core where there are states; None where one of these leaves the range of numbers."""
        w, n_copies = self.walked, self.n_copies
        values = np.zeros((n_copies, *w.fit.table.leaf_values.shape))
        made: dict[int, FloatArray] = {}  # (C, L_t) what each stage adds
        moves: list[Move] = []
        for one in track(w.rounds, "refit"):
            steps = self._steps(one) if states is None else self._steps_in_core(states, one, moves)
            if steps is None:
                return None
            for stage, step in zip(one.stages, steps):
                made[stage] = step.scaled(float(w.scales[stage])).value.reshape(n_copies, -1)
            moves = []
            for stage, coefficient in one.changes:
                t, k = int(w.stage_tree[stage]), int(w.stage_output[stage])
                moves.append((t, k, coefficient * made[stage]))
                values[:, w.starts[t] : w.starts[t + 1], w.fit.schedule.column(k)] += moves[-1][2]
            if states is None:
                for t, k, gain in moves:
                    self.score[:, k] += gain.ravel()[self._leaves(t)]
                if one.base:
                    self.score += one.base * np.repeat(self.base, len(w.targets), axis=0)
                if one.is_last and w.fit.shrinkage is not None:
                    self._shrink(int(w.stage_tree[one.stages[0]]))
        share = float(w.fit.schedule.shares_of_initial[-1])
        return FitsAgain(w, share * self.base if share else np.zeros_like(self.base), values)

    def states(self, n_threads: int) -> ExponentialScores | None:
        """The scores as the core walks them through the fit; None where it has no form for the loss."""
        w = self.walked
        if w.fit.shrinkage is not None or any(one.base for one in w.rounds):
            return None
        n, K = w.targets.shape
        score = self.score.reshape(self.n_copies, n, K)
        return ExponentialScores.of(
            self.loss, w.leaves, w.starts, self.targets[:n], self.weights, w.drawn, score, n_threads
        )

    def _shrink(self, tree: int) -> None:
        """Have the scores deviate from the sums of their trees, as a shrinkage leaves them."""
        assert self.walked.fit.shrinkage is not None
        sums = self.score - self.deviation
        self.deviation = self.walked.fit.shrinkage.deviation(tree, sums, self.deviation)
        self.score = sums + self.deviation

    def _leaves(self, t: int) -> Rows:
        """(C * N,): leaves of tree t, those of each copy after those of the copies before."""
        firsts = int(self.walked.fit.table.n_leaves[t]) * np.arange(self.n_copies)
        return np.asarray((firsts[:, None] + self.walked.leaves[t].astype(np.intp)).ravel())

    def _steps(self, one: Round) -> list[Step]:
        """The steps of a round's stages from these scores."""
        w = self.walked
        loss = self.loss
        slopes = self._slopes()
        leaves = {t: self._leaves(t) for t in {int(w.stage_tree[s]) for s in one.stages}}
        if loss.joint:
            ((t, own),) = leaves.items()
            return joint_steps(
                slopes[0], loss.mean(self.score), self._counted(t), own, self._l2(t, 0)
            )
        found = []
        for stage in one.stages:
            t = int(w.stage_tree[stage])
            k = int(w.stage_output[stage])
            counted = self._counted(t)
            n = self.n_copies * int(w.fit.table.n_leaves[t])
            g, h = (np.broadcast_to(each, self.targets.shape)[:, k] for each in slopes)
            G, H = (
                np.asarray(np.bincount(leaves[t], counted * each, n), dtype=np.float64)
                for each in (g, h)
            )
            found.append(self._step(t, k, G, H))
        return found

    def _slopes(self) -> tuple[Any, Any]:
        """Return g and h of the rows of all copies, (C * N, K) or numbers."""
        if not self.loss.pooled:
            return self.loss.leaf_slopes(self.targets, self.score)
        parts = []
        copies = zip(
            np.split(self.targets, self.n_copies),
            np.split(self.score, self.n_copies),
            self.row_weights,
        )
        for targets, score, weights in copies:
            parts.append(self.loss.of_round(targets, score, weights).leaf_slopes(targets, score))
        g, h = zip(*parts)
        return np.concatenate(g), np.concatenate(h)

    def _steps_in_core(
        self, states: ExponentialScores, one: Round, moves: list[Move]
    ) -> list[Step] | None:
        """The steps of a round's stages after these moves; None where sums are not finite."""
        w = self.walked
        terms = [(int(w.stage_tree[s]), int(w.stage_output[s])) for s in one.stages]
        found = states.sums([(moves, terms)])
        if not all(np.isfinite(sums).all() for sums in found):
            return None
        return [
            self._step(t, k, *sums.transpose(2, 0, 1).reshape(2, -1))
            for (t, k), sums in zip(terms, found)
        ]

    def _step(self, t: int, k: int, G: FloatArray, H: FloatArray) -> Step:
        """The step of tree t for output k from sums (C * L_t,) of gradients and hessians."""
        w = self.walked
        if w.fit.leaf_rule.averages:
            require_rows_in_leaves(int((H == 0).sum()))
        step = leaf_step(G, H, self._l2(t, k, H), w.fit.leaf_rule.l1, w.fit.leaf_rule.max_step)
        if w.fit.leaf_rule.coupling_rule is None:
            return step
        return replace(step, value=self._bounded(w.fit.leaf_rule.coupling_rule, t, G, H))

    def _bounded(
        self, bounds: NodeRule | IsotonicRule, t: int, G: FloatArray, H: FloatArray
    ) -> FloatArray:
        """(C * L_t,): the values of monotone trees; a node that no row of a copy is left in is no bound there."""
        rule = bounds.tree(t, slice(self.walked.starts[t], self.walked.starts[t + 1]))
        values = []
        sums_by_copy = zip(G.reshape(self.n_copies, -1), H.reshape(self.n_copies, -1))
        for (g, h), factor in zip(sums_by_copy, self.l2_factors):
            values.append(rule.scaled(factor).emptied(h == 0).leaf_values(-g, h))
        return np.concatenate(values)

    def _counted(self, t: int) -> FloatArray:
        """(C * N,): weight * factor * draw."""
        drawn = self.walked.drawn
        return (self.weights if drawn is None else self.weights * drawn[t]).ravel()

    def _l2(self, t: int, k: int, H: FloatArray | None = None) -> FloatArray:
        """Return what regularisation adds to the sums H of second derivatives, (C * L_t,); inf where a leaf is set to zero."""
        w = self.walked
        own = slice(int(w.starts[t]), int(w.starts[t + 1]))
        l2 = np.outer(self.l2_factors, w.fit.leaf_rule.l2[own])
        if H is not None and w.zeroed is not None:
            column = w.fit.schedule.column(k)
            l2 = np.where(w.zeroed_again(own, column, H.reshape(l2.shape)), np.inf, l2)
        return np.asarray(l2.ravel())

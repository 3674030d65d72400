"""The result of a walk through a fit by its gradients: everything that contributions and derivatives are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import BoolArray, FloatArray
from axil.replay.exponential_scores import Term
from axil.replay.newton_steps import Step
from axil.trees.losses import Loss


@dataclass(frozen=True)
class Round:
    """Stages that see the same scores, and the change of the scores after them."""

    stages: tuple[int, ...]
    changes: tuple[tuple[int, float], ...]  #: (stage, what its values are multiplied by)
    base: float = 0.0  #: how many initial predictions are added besides
    is_last: bool = False  #: whether the trees of these stages have taken all their steps


@dataclass(frozen=True)
class ReplayedStages:
    """A fit that was walked through, stage by stage: each is one step of one tree for one output."""

    fit: BoostedFit
    leaves: NDArray[np.unsignedinteger[Any]]  #: (T, N)
    starts: NDArray[np.int64]  #: (T + 1,) where each tree's leaves begin among all
    drawn: (
        NDArray[Any] | None
    )  #: (T, N) with what factor each row was drawn for each tree; None: all were
    targets: FloatArray  #: (N, K)
    weights: FloatArray  #: (N,) as the base counts rows; 0 for one that the fit held out
    stage_tree: NDArray[np.int64]
    stage_output: NDArray[np.int64]
    steps: tuple[Step, ...]  #: by stage
    rounds: tuple[Round, ...]
    score: FloatArray  #: (N, K) of the training rows, in the end
    leaf_error: float  #: relative to the largest leaf value
    recovered: dict[str, Any]
    scales: FloatArray  #: (stages,) what a step was shortened by; 1 for whole ones
    start: FloatArray  #: (N, K) or (K,) scores of the training rows, before the first round
    #: (L, K) values that the library set to zero for their weight, where K share trees
    zeroed: BoolArray | None = None
    keeps_light_values: bool = (
        False  #: whether the library kept a value whose weight is less than ``lightest``
    )
    gradients: FloatArray | None = (
        None  #: (rounds, N, K) where a loss cannot be asked about single rows
    )
    round_losses: tuple[Loss, ...] = ()  #: the loss of each round where it depends on all rows
    #: (T, N) how far the scores that each tree was fitted to are from the sums of the trees before
    #: it; None: they are these sums
    deviations: NDArray[np.float32] | None = None

    @property
    def loss(self) -> Loss:
        """Loss that the trees were fitted to."""
        return self.fit.loss

    @property
    def base(self) -> FloatArray:
        """(K,): where predictions start."""
        return np.asarray(self.fit.schedule.shares_of_initial[-1] * self.fit.initial.values)

    def loss_of_round(self, number: int) -> Loss:
        """Return the loss whose gradients the stages of a round are made of."""
        if self.round_losses:
            return self.round_losses[number]
        return self.loss

    def seen_scores(
        self, step_round: Round, sums: FloatArray, rows: slice = slice(None)
    ) -> FloatArray:
        """Return the scores that a round saw, (n, K), from the sums of the trees before it."""
        if self.deviations is None:
            return sums
        tree = self.stage_tree[step_round.stages[0]]
        return np.asarray(sums + self.deviations[tree, rows, None])

    def gains(self, step_round: Round) -> list[tuple[int, int, FloatArray]]:
        """Return what the scores gain after a round: (tree, output, (L_t,) by its leaf), once per tree and output."""
        gains: dict[Term, FloatArray] = {}

        def add(term: Term, gain: FloatArray) -> None:
            if term in gains:
                gains[term] = gains[term] + gain
            else:
                gains[term] = gain

        for stage, coefficient in step_round.changes:
            term = int(self.stage_tree[stage]), int(self.stage_output[stage])
            add(term, coefficient * self.steps[stage].value)
        if step_round.base:
            # All leaves of one tree, of whichever, have the same.
            for output, base in enumerate(self.fit.initial.values):
                add((0, output), np.full(int(self.fit.table.n_leaves[0]), step_round.base * base))
        return [(tree, output, gain) for (tree, output), gain in gains.items()]

    def l2(self, tree: int, output: int) -> FloatArray:
        """Return what regularisation adds to a leaf's H, (L_t,); infinite where the library set the value to zero."""
        place = slice(self.starts[tree], self.starts[tree + 1])
        l2 = self.fit.leaf_rule.l2[place]
        if self.zeroed is None:
            return l2
        return np.where(self.zeroed[place, self.fit.schedule.column(output)], np.inf, l2)

    def zeroed_again(self, place: slice, column: int, H: FloatArray) -> BoolArray:
        """Return which leaf values, (..., L_t), of another fit on these splits are set to zero for their weight H.

        Where it is not known below which weight the library does so, these are the values that it
        set to zero in this fit. A library that kept a light value in this fit sets none to zero.
        """
        assert self.zeroed is not None
        if self.keeps_light_values:
            return np.zeros(H.shape, dtype=np.bool_)
        if np.isfinite(self.fit.leaf_rule.min_hessian):
            return np.asarray(self.fit.leaf_rule.min_hessian > H)
        return np.broadcast_to(self.zeroed[place, column], H.shape)

    def counted(self, tree: int) -> FloatArray:
        """Return factor * draw, (N,), which a row's weight is multiplied by in this tree's leaves."""
        factors = self.fit.weights.leaf_factors
        if factors is None:
            factors = np.ones(len(self.weights))
        return factors if self.drawn is None else factors * self.drawn[tree]

    @property
    def start_factors(self) -> FloatArray:
        """(N,): see the function `start_factors`."""
        return start_factors(self.fit, len(self.weights))

    @property
    def means(self) -> FloatArray:
        """(K,): of the targets."""
        return np.average(self.targets, axis=0, weights=self.weights * self.start_factors)

    def start_slopes(self) -> FloatArray:
        """Return the slopes (K, K) of the initial scores by the targets' means; 0 where these are constants."""
        n_outputs = self.targets.shape[1]
        if not self.fit.initial.follows_targets:
            return np.zeros((n_outputs, n_outputs))
        return self.loss.start_slopes(self.means)


def start_factors(fit: BoostedFit, n_rows: int) -> FloatArray:
    """Return what a row's weight is multiplied by in the means that the fit starts from, (N,)."""
    if fit.loss.newton_start and fit.weights.leaf_factors is not None:
        return fit.weights.leaf_factors
    return np.ones(n_rows)

"""ReplayedStages: a fit that was walked through by its gradients, stage by stage.

Contributions and derivatives are computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import AnyArray, BoolArray, FloatArray, LeafArray
from axil.kernels import Cells
from axil.replay.exponential_scores import Term
from axil.replay.newton_steps import Step
from axil.trees.losses import Loss

ADDED_ENTRIES = 1 << 18  # leaf values added up at a time, of all trees
LOST = 4  # roundings of the largest score, below which a value changes no score that it is added to


@dataclass(frozen=True)
class Round:
    """Stages that see the same scores, and the change of the scores after them."""

    stages: tuple[int, ...]
    changes: tuple[tuple[int, float], ...]  #: (stage, what its values are multiplied by)
    base: float = 0.0  #: how many initial predictions are added besides
    is_last: bool = False  #: whether the trees of these stages have taken all their steps


@dataclass(frozen=True)
class ReplayedStages:
    """The replay of a fit: each stage is one step of one tree for one output."""

    fit: BoostedFit
    leaves: Cells  #: (T, N)
    starts: NDArray[np.int64]  #: (T + 1,) where each tree's leaves begin among all
    #: (T, N) with what factor each row was sampled for each tree; None: all were, once
    drawn: AnyArray | None
    targets: FloatArray  #: (N, K)
    #: (N,) as the initial prediction counts rows; 0 for one that the fit held out
    weights: FloatArray
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
    #: whether the library kept a value whose weight is less than ``min_hessian``
    keeps_light_values: bool = False
    #: (rounds, N, K) where a loss cannot be asked about single rows
    gradients: FloatArray | None = None
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
        """The initial prediction, (K,)."""
        return self.fit.initial_scores

    def loss_of_round(self, number: int) -> Loss:
        """Return the loss whose gradients the stages of a round have."""
        if self.round_losses:
            return self.round_losses[number]
        return self.loss

    def seen_scores(
        self, step_round: Round, sums: FloatArray, rows: slice = slice(None)
    ) -> FloatArray:
        """Return the scores before a round, (n, K), as sums of the trees before it."""
        if self.deviations is None:
            return sums
        tree = self.stage_tree[step_round.stages[0]]
        return np.asarray(sums + self.deviations[tree, rows, None])

    def gains(self, step_round: Round) -> list[tuple[int, int, FloatArray]]:
        """Return the change of the scores in a round, once per tree and output.

        Returns
        -------
        list of (tree, output, gain)
            The gain has the shape (L_t,), a number for each leaf.
        """
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
            # It is the same in all leaves of one tree. Any tree serves.
            n_leaves = int(self.fit.table.n_leaves[0])
            for output, initial in enumerate(self.fit.initial.values):
                add((0, output), np.full(n_leaves, step_round.base * initial))
        return [(tree, output, gain) for (tree, output), gain in gains.items()]

    def l2(self, tree: int, output: int) -> FloatArray:
        """Return what regularisation adds to a leaf's H, (L_t,).

        It is infinite if the library set the value to zero.
        """
        place = slice(self.starts[tree], self.starts[tree + 1])
        l2 = self.fit.leaf_rule.l2[place]
        if self.zeroed is None:
            return l2
        return np.where(self.zeroed[place, self.fit.schedule.column(output)], np.inf, l2)

    def zeroed_again(self, place: slice, column: int, H: FloatArray) -> BoolArray:
        """Return which leaf values of a refit are set to zero for their weight.

        Where it is not known below which weight the library sets values to zero, these are the
        values that it set to zero in this fit. A library that kept a light value in this fit sets
        none to zero.

        Parameters
        ----------
        place : slice
            The leaves among all.
        column : int
            The column of ``leaf_values``.
        H : array of shape (..., L_t)
            The weights in the other fit.

        Returns
        -------
        array of shape (..., L_t)
        """
        assert self.zeroed is not None
        if self.keeps_light_values:
            return np.zeros(H.shape, dtype=np.bool_)
        if np.isfinite(self.fit.leaf_rule.min_hessian):
            return np.asarray(self.fit.leaf_rule.min_hessian > H)
        return np.broadcast_to(self.zeroed[place, column], H.shape)

    def counted(self, tree: int) -> FloatArray:
        """Return sample count times factor of each row in the leaves of a tree, (N,)."""
        factors = np.ones(len(self.weights))
        if self.fit.weights.leaf_factors is not None:
            factors = self.fit.weights.leaf_factors
        if self.drawn is None:
            return factors
        return np.asarray(factors * self.drawn[tree])

    @property
    def start_factors(self) -> FloatArray:
        """The factors of `start_factors`, (N,)."""
        return start_factors(self.fit, len(self.weights))

    @property
    def means(self) -> FloatArray:
        """The means of the targets, (K,)."""
        return np.average(self.targets, axis=0, weights=self.weights * self.start_factors)

    def start_slopes(self) -> FloatArray:
        """Return the slopes (K, K) of the initial scores by the means of the targets.

        They are 0 if the initial scores are constants.
        """
        n_outputs = self.targets.shape[1]
        if not self.fit.initial.follows_targets:
            return np.zeros((n_outputs, n_outputs))
        return self.loss.start_slopes(self.means)


def start_factors(fit: BoostedFit, n_rows: int) -> FloatArray:
    """Return the factors of row weights in the means behind the initial prediction, (N,)."""
    if fit.loss.newton_start and fit.weights.leaf_factors is not None:
        return fit.weights.leaf_factors
    return np.ones(n_rows)


def lost_beside(scores: FloatArray) -> float:
    """Return the rounding error in double precision of sums with scores of this size."""
    return LOST * float(np.finfo(np.float64).eps) * float(np.abs(scores).max(initial=0.0))


def leaf_scores(
    fit: BoostedFit,
    leaves: LeafArray,
    start: FloatArray | None = None,
    rounded: bool = False,
    values: FloatArray | None = None,
) -> FloatArray:
    """Return the sums of the leaf values that the model records.

    Parameters
    ----------
    leaves : array of shape (n, T)
    start : array of shape (K,) or (n, K), optional
        The initial scores; default: those of the fit.
    rounded : bool
        Whether values are added up as the library adds them, in its precision, in which a thousand
        trees are off by 1e-5 and more.
    values : array of shape (L, 1), or (L, K) where outputs share trees, optional
        Other leaf values than the model's.

    Returns
    -------
    array of shape (n, K)
    """
    if values is None:
        values = fit.table.leaf_values
    if start is None:
        start = fit.initial_scores
    scores: AnyArray = start + np.zeros((len(leaves), 1))
    if rounded:
        scores = scores.astype(fit.score_precision)
    first_leaves = np.cumsum(fit.table.n_leaves) - fit.table.n_leaves
    all_outputs = np.arange(scores.shape[1])
    trees_of_outputs: list[tuple[Any, Any]] = [(all_outputs, slice(None))]
    if fit.schedule.outputs is not None:
        trees_of_outputs = [(all_outputs[[k]], fit.schedule.outputs == k) for k in all_outputs]
    n_together = max(1, ADDED_ENTRIES // max(len(first_leaves), 1))
    for first in range(0, len(leaves), n_together):
        rows = slice(first, first + n_together)
        for outputs, trees in trees_of_outputs:
            places = first_leaves[trees] + leaves[rows, trees].astype(np.intp)
            gains = values[places].astype(scores.dtype, copy=False)
            terms = np.concatenate([scores[rows, None, outputs], gains], axis=1)
            scores[rows, outputs] = np.cumsum(terms, axis=1)[:, -1]  # tree after tree
    return np.asarray(scores, dtype=np.float64)

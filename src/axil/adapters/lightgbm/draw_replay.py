"""Which rows LightGBM drew for each tree.

LightGBM's samplers run again, and the leaves of the model confirm the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import RowGradients
from axil.adapters.lightgbm.samplers import Bagging, Goss, IterationGradients, SamplerState
from axil.arrays import FloatArray, LeafArray
from axil.structure import NewtonRule, Ranks

DrawArray = NDArray[np.bool_ | np.float32]  #: whether, or with what factor, rows are sampled

MOST_STEPS = 20_000  # trees looked at in search of attempts that found no split
MANY_ROWS = 100_000  # from here on, leaf counts do not agree by coincidence
CLOSE_WEIGHTS = (
    1e-6  # of the weight of a leaf: how far its rounding to single precision may leave it off
)
CLOSE_VALUES = 1e-5  # of the largest leaf value of a tree

# How leaves agree with samples.
OTHER_COUNTS = 0
SAME_COUNTS = 1
SAME_VALUES = 2


@dataclass(frozen=True)
class LeafEvidence:
    """Records of the model about its T trees, L leaves in all, by which samples are confirmed."""

    starts: NDArray[np.int64]  #: (T + 1,)
    counts: NDArray[np.int64]  #: (L,)
    values: FloatArray  #: (L,)
    rates: FloatArray  #: (T,) what multiplies the values of each tree; nan where it is not known
    rule: NewtonRule
    weights: FloatArray | None  #: (N,)
    ranks: Ranks | None = None  #: where leaf values are percentiles
    #: whether the values do not follow from sums by the rule: row counts were estimated
    counts_alone: bool = False
    #: (L,) sums of second derivatives that the model records, where leaf values do not show them
    leaf_weights: FloatArray | None = None

    def leaves_of(self, tree: int) -> slice:
        """Return the positions of a tree's leaves among all leaves."""
        return slice(self.starts[tree], self.starts[tree + 1])

    def tree_values(self, tree: int) -> FloatArray:
        """Return the values of one tree's leaves, (L_t,)."""
        return self.values[self.leaves_of(tree)]

    def n_rows(self, tree: int) -> int:
        """Return how many rows a tree was fitted on."""
        return int(self.counts[self.leaves_of(tree)].sum())

    def lone(self, tree: int) -> bool:
        """Return whether a tree found no split."""
        return int(self.starts[tree + 1] - self.starts[tree]) == 1

    def agreement(
        self,
        tree: int,
        leaf: LeafArray,
        drawn: DrawArray,
        gradients: IterationGradients | None,
        output: int = 0,
    ) -> int:
        """Compare the leaves of a tree with those that follow from sampled rows.

        Parameters
        ----------
        tree : int
            The number of the tree.
        leaf : array of shape (N,)
            The leaf that each row falls into.
        drawn : array of shape (N,)
            Whether, or with what factor, each row is sampled.
        gradients : IterationGradients or None
            Those of all rows; None: counts alone are compared.
        output : int
            The output that the tree serves.

        Returns
        -------
        int
            ``OTHER_COUNTS``, ``SAME_COUNTS`` with other values, or ``SAME_VALUES``.
        """
        if not self._has_counts(tree, leaf, drawn):
            return OTHER_COUNTS
        if gradients is None or self._has_values(tree, leaf, drawn, gradients, output):
            return SAME_VALUES
        return SAME_COUNTS

    def _has_counts(self, tree: int, leaf: LeafArray, drawn: DrawArray) -> bool:
        """Return whether the leaves of a tree have as many sampled rows as the model records."""
        counts = self.counts[self.leaves_of(tree)]
        rows = np.flatnonzero(drawn)
        if len(rows) != counts.sum():
            return False
        return bool((np.bincount(leaf[rows], minlength=len(counts)) == counts).all())

    def _has_values(
        self,
        tree: int,
        leaf: LeafArray,
        drawn: DrawArray,
        gradients: IterationGradients,
        output: int,
    ) -> bool:
        """Return whether sampled rows explain the leaf weights and leaf values of a tree."""
        leaves = self.leaves_of(tree)
        n_leaves = len(self.counts[leaves])
        if self.leaf_weights is not None:
            row_weights = drawn * gradients.weighted_hessians[:, output].astype(np.float64)
            leaf_weights = np.bincount(leaf, row_weights, n_leaves)
            if not np.allclose(leaf_weights, self.leaf_weights[leaves], CLOSE_WEIGHTS, 0.0):
                return False
        if self.counts_alone or len(drawn) >= MANY_ROWS:
            return True
        if self.ranks is not None:
            assert gradients.residuals is not None
            residuals = gradients.residuals[:, output]
            return self._agrees(tree, self.ranks.values(leaf, residuals, drawn, n_leaves))
        rows = np.flatnonzero(drawn)
        factors = drawn[rows].astype(np.float64)
        sums, totals = (
            np.bincount(leaf[rows], factors * of_rows[rows, output], n_leaves)
            for of_rows in (gradients.weighted_gradients, gradients.weighted_hessians)
        )
        tree_rule = self.rule.tree(tree, leaves)
        return self._agrees(tree, tree_rule.leaf_values(sums, totals))

    def _agrees(self, tree: int, steps: FloatArray) -> bool:
        """Return whether leaf values before the learning rate, (L_t,), explain those of a tree."""
        values = self.tree_values(tree)
        rate = self.rates[tree]
        if np.isnan(rate):  # any sample then agrees with a tree of one value that is not zero
            rate = (steps @ values) / ((steps @ steps) or 1.0)
        errors = np.abs(values - rate * steps)
        return bool(errors.max() <= CLOSE_VALUES * np.abs(values).max())


@dataclass(frozen=True)
class _Candidate:
    """One possibility for the sampled rows of an iteration."""

    drawn: DrawArray
    states: tuple[SamplerState, ...]  #: of the sampler after them
    n_failures: int  #: how many attempts before them found no split


class DrawReplay:
    """The sampled rows of each tree, from a sampler and its state.

    Between two trees the fit may have tried others that found no split, and have begun again
    (continued training; GOSS also if the rate changes): what agrees with the model's leaves is
    taken, and where nothing does, the plain next sample.

    Parameters
    ----------
    name : str
        The name of the sampler, for messages.
    starts : sequence of SamplerState
        States from which the fit may have begun.
    evidence : LeafEvidence
        What the model records about its leaves.
    n_failures : int
        How many attempts without a tree are looked through.
    forest : bool
        Whether the trees are those of a forest, which keeps trees without a split.
    gradients_at : callable
        Returns the gradients where residuals (N, K) are left.
    """

    needs_gradients = True

    def __init__(
        self,
        name: str,
        starts: Sequence[SamplerState],
        evidence: LeafEvidence,
        n_failures: int,
        forest: bool = False,
        gradients_at: Callable[[FloatArray], IterationGradients] = IterationGradients,
    ):
        self.name = name
        self.dtype: type[np.generic] = np.uint8
        if isinstance(starts[0], Goss):
            self.dtype = np.float32
        self._gradients_at = gradients_at
        self._starts = tuple(starts)
        self._evidence = evidence
        self._n_failures = n_failures
        self._forest = forest
        self._begin()

    def _begin(self) -> None:
        self._states = self._starts  # several, as long as the data do not show which is right
        self._failures_left = self._n_failures  # below 0: the sampled rows were lost

    def draw(self, trees: range, leaves: LeafArray, gradients: RowGradients | None) -> DrawArray:
        """Return the factor of each row, (N,), in the trees of one iteration.

        These trees share their rows.
        """
        assert gradients is not None  # GOSS samples by them, and the evidence of leaves needs them
        if gradients.hessians is None:
            iteration_gradients = self._gradients_at(gradients.negative)
        else:
            iteration_gradients = IterationGradients(gradients.negative, gradients.hessians)
        drawn = self.draw_iteration(trees, leaves, iteration_gradients)
        return np.broadcast_to(drawn, (len(trees), len(drawn)))

    def draw_iteration(
        self, trees: range, leaves: LeafArray, gradients: IterationGradients
    ) -> DrawArray:
        """Return with what factor each row was sampled for these trees, (N,).

        ``leaves`` are (trees, N).
        """
        if trees[0] == 0:
            self._begin()
        split_trees = [t for t in trees if not self._evidence.lone(t)]
        if not split_trees:
            return self._draw_without_split(trees[0], leaves.shape[1], gradients)
        full = self._evidence.n_rows(split_trees[0]) == leaves.shape[1]
        best_agreement = -1
        best = _Candidate(np.ones(leaves.shape[1], dtype=np.bool_), self._states, 0)
        for candidate in self._candidates(trees[0], full, leaves.shape[1], gradients):
            agreement = min(
                self._evidence.agreement(
                    t, leaves[t - trees[0]], candidate.drawn, gradients, t - trees[0]
                )
                for t in split_trees
            )
            if agreement > best_agreement:
                best_agreement = agreement
                best = candidate
            if agreement == SAME_VALUES:
                break
        self._states = best.states
        if best_agreement > OTHER_COUNTS:
            self._failures_left -= best.n_failures
        else:  # once lost, the sampled rows go on but are not searched
            self._failures_left = -1
        return best.drawn

    def _draw_without_split(
        self, tree: int, n_rows: int, gradients: IterationGradients
    ) -> DrawArray:
        """Return the sampled rows of an iteration without a split.

        A forest keeps its trees, boosting only the first.
        """
        every_row = np.ones(n_rows, dtype=np.bool_)
        if tree > 0 and not self._forest:
            return every_row
        attempts = [state.attempt(False, gradients) for state in self._states]
        states = [state for _, state in attempts]
        if self._forest:
            states = [state.grown() for state in states]
        self._states = tuple(states)
        if tree == 0:
            return every_row
        return attempts[0][0]

    def _candidates(
        self, tree: int, full: bool, n_rows: int, gradients: IterationGradients
    ) -> Iterator[_Candidate]:
        """Return samples for one iteration, the most likely first."""
        is_searched = self._failures_left >= 0
        states = [*self._states]
        if is_searched and tree > 0:
            states.extend(self._starts)
        for n_failures in range(max(self._failures_left, 0) + 1):
            next_states = []
            for state in states:
                drawn, after = state.attempt(full, gradients)
                next_states.append(after)
                grown: tuple[SamplerState, ...] = (after.grown(),)
                if full and after is state and len(self._states) > 1:
                    grown = self._states
                yield _Candidate(drawn, grown, n_failures)
            if full and n_failures == 0 and is_searched:  # an earlier training without a sampler
                yield _Candidate(np.ones(n_rows, dtype=np.bool_), self._states, 0)
            if self._forest or tree == 0:
                return
            if all(after is state for after, state in zip(next_states, states)):
                if not is_searched:
                    return
                # a sample may by chance hold all rows, as that of GOSS does where few gradients are
                # small
                next_states = []
                for state in states:
                    drawn, after = state.attempt(False, gradients)
                    next_states.append(after)
                    if drawn.all():
                        yield _Candidate(drawn, (after.grown(),), n_failures)
            states = next_states


@dataclass(frozen=True)
class _History:
    """Outcomes of the attempts at the first trees."""

    n_trees: int
    state: Bagging | None
    n_failures_left: int
    finds_split: list[bool]  #: of each attempt


def histories(
    start: Bagging | None, leaves: LeafArray, evidence: LeafEvidence, n_failures: int
) -> Iterator[list[bool]]:
    """Yield possible outcomes of all attempts at trees: whether each found a split.

    n_failures of the attempts left no tree. The samples, if there are any, must agree with the
    counts of the leaves (N, T). Failures late in the training come first.
    """
    n_trees = leaves.shape[1]
    todo = [_History(0, start, n_failures, [])]
    for _ in range(MOST_STEPS):
        if not todo:
            return
        history = todo.pop()
        if history.n_trees == n_trees:
            yield history.finds_split + [False] * history.n_failures_left
            continue
        leaf = leaves[:, history.n_trees]
        todo.extend(reversed(list(_next_histories(history, leaf, evidence))))


def _next_histories(
    history: _History, leaf: LeafArray, evidence: LeafEvidence
) -> Iterator[_History]:
    """Return the histories that are longer by one tree, whose rows have these leaves, (N,)."""
    t = history.n_trees
    is_lone = evidence.lone(t)
    if t == 0:
        most_failures = 0
    else:
        most_failures = history.n_failures_left
    state = history.state
    for n_failures in range(most_failures + 1):
        bag = None
        if state is not None:
            bag, state = state.attempt(False, None)
        if bag is not None and not is_lone and not evidence.agreement(t, leaf, bag, None):
            continue
        yield _History(
            t + 1,
            state if state is None or is_lone else state.grown(),
            history.n_failures_left - n_failures,
            [*history.finds_split, *[False] * n_failures, not is_lone],
        )

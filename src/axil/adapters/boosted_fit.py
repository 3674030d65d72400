"""BoostedFit: all that a library says about fitted trees, for every library and every loss.

A fit starts from initial scores and offsets. In every round the library computes the negative
gradients and the hessians of the loss at the scores reached so far, gives each leaf of the round's
trees a value from the sums of its rows, and adds the trees to the scores. `Schedule` says which
trees belong to a round, which output they serve and how much of them is added; the loss says what
the gradients are. Squared error is the loss whose gradients are residuals and whose hessians are
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, BoolArray, Cells, FloatArray, LeafArray, RealType
from axil.errors import UnsupportedModelError
from axil.kernels import Backend
from axil.structure import (
    Ancestors,
    Chains,
    ClassCounts,
    Coefficients,
    Cut,
    IsotonicRule,
    NodeRule,
    Nodes,
    Ranks,
)
from axil.trees.losses import Loss, Squared


@dataclass(frozen=True)
class RowGradients:
    """The gradients by which a sampler may choose rows."""

    #: (N, K) minus the gradients of the loss by the scores. With hessians they are multiplied by
    #: the row weights
    negative: FloatArray
    hessians: FloatArray | None = (
        None  #: (N, K), multiplied by the row weights; None: residuals of squared error, all one
    )


class Sampler(Protocol):
    """The sampled rows of each tree; callers ask for the trees in order."""

    name: str  #: for messages: "LightGBM bagging"
    needs_gradients: bool  #: whether the rows depend on the gradients before the round
    dtype: type[np.generic]  #: of what `draw` returns

    def draw(self, trees: range, leaves: LeafArray, gradients: RowGradients | None) -> AnyArray:
        """Return how often, or with what factor, each row was sampled for these trees of one round.

        Parameters
        ----------
        trees : range
            The numbers of the trees.
        leaves : array of shape (len(trees), N)
            The leaf of each row in each of them.
        gradients : RowGradients or None
            The gradients before the round; None only if the sampler does not need them.

        Returns
        -------
        array of shape (len(trees), N)
            0 stands for a row that is not sampled.
        """


class Placement(Protocol):
    """The leaves of the training rows in the fit, if predictions of the same rows use other leaves.

    A library that encodes categories by the targets of the rows before, and predicts by those of
    all rows, needs it.
    """

    @property
    def encodings(self) -> int:
        """The number of encodings that are fixed, like splits."""

    def assign(self, out: Cells, n_threads: int, backend: Backend | None = None) -> None:
        """Fill ``out`` (T, N) with the leaves of all training rows."""


class Smoothing(Protocol):
    """The shares of nodes in path smoothing, if leaf sums determine them."""

    def own(
        self, tree: int, sums: FloatArray, weights: FloatArray, values: FloatArray
    ) -> FloatArray:
        """Return the shares of one tree's nodes, (M_t,).

        Parameters
        ----------
        tree : int
        sums, weights : arrays of shape (L_t,)
            The sums of negative gradients and of hessians over the rows of each leaf.
        values : array of shape (L_t,)
            The model's leaf values.
        """


class Shrinkage(Protocol):
    """Model shrinkage that leaves scores which are not the sums of their trees."""

    def deviation(self, tree: int, tree_sums: FloatArray, before: FloatArray) -> FloatArray:
        """Return the differences of the scores of the library from the sums of their shrunk trees.

        Parameters
        ----------
        tree : int
            The tree after which the scores are shrunk. It is a round by itself.
        tree_sums : array of any shape
            The sums of the leaf values so far, by the tree shares of the schedule.
        before : array of the same shape
            The deviation of the scores that the tree was added to.
        """


@dataclass(frozen=True)
class Schedule:
    """The rounds and outputs of T trees, and how the trees add up to scores.

    With ``v_t`` the value of a row's leaf in tree t before the learning rate, the scores that round
    r sees are

        initial_shares[r] * initial + offsets + sum over t of tree_shares[r, t] * v_t

    and the last row of both tables makes predictions. Plain boosting needs no tables: a tree counts
    with its learning rate from the round after its own on. In a forest of averaged trees no tree
    sees another. DART takes trees out of the scores and puts them back smaller; model shrinkage
    scales all trees before a new one is added.
    """

    learning_rates: (
        FloatArray  #: (T,) nan: the model does not state the rate, and the replay finds it
    )
    rounds: NDArray[
        np.int64
    ]  #: (T,) the round of each tree, rising; trees of one round see the same scores
    outputs: NDArray[np.int64] | None = (
        None  #: (T,) the output that each tree serves; None: every tree serves all
    )
    tree_shares: FloatArray | None = None  #: (R + 1, T); None: plain boosting
    initial_shares: FloatArray | None = None  #: (R + 1,); None: all one

    @classmethod
    def one_by_one(
        cls, learning_rates: FloatArray, coefficients: Coefficients | None = None
    ) -> Schedule:
        """Return the schedule of trees with all outputs, each tree in a round by itself."""
        rounds = np.arange(len(learning_rates))
        if coefficients is None:
            return cls(learning_rates, rounds)
        return cls(learning_rates, rounds, None, coefficients.omega, coefficients.beta)

    @classmethod
    def in_stages(cls, learning_rates: FloatArray, n_outputs: int) -> Schedule:
        """Return the schedule of plain boosting with one tree per round and output."""
        numbers = np.arange(len(learning_rates))
        return cls(learning_rates, numbers // n_outputs, numbers % n_outputs)

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return int(self.rounds[-1]) + 1

    @property
    def is_plain(self) -> bool:
        """Whether trees are added one after the other by their learning rates."""
        return self.tree_shares is None

    @cached_property
    def trees_of_rounds(self) -> list[range]:
        """The numbers of the trees of each round."""
        first = np.flatnonzero(np.diff(self.rounds, prepend=-1)).tolist()
        return [range(start, end) for start, end in pairwise([*first, len(self.rounds)])]

    @cached_property
    def unfitted_shares(self) -> FloatArray:
        """The part of the labels that is left to fit when each tree is made, (T,), from 0 to 1.

        A tree fits what the scores that it sees have left of the labels. So in plain boosting the
        part left falls by the learning rate with every round, and in a forest it is 1 for all
        trees. A rate that the model does not state counts as 0.
        """
        n_trees = len(self.learning_rates)
        outputs = np.zeros(n_trees, dtype=np.int64)
        if self.outputs is not None:
            outputs = self.outputs
        rates = np.nan_to_num(self.learning_rates, nan=0.0)
        unfitted = np.zeros(n_trees)
        fitted_by_output = np.zeros(int(outputs.max(initial=0)) + 1)
        for number, trees in enumerate(self.trees_of_rounds):
            of_round = slice(trees.start, trees.stop)
            if self.tree_shares is not None:
                fitted_by_trees = np.nan_to_num(self.tree_shares[number]) * unfitted
                fitted_by_output = np.bincount(outputs, fitted_by_trees, len(fitted_by_output))
            unfitted[of_round] = np.clip(1.0 - fitted_by_output[outputs[of_round]], 0.0, 1.0)
            if self.tree_shares is None:
                np.add.at(fitted_by_output, outputs[of_round], rates[of_round] * unfitted[of_round])
        return unfitted

    @property
    def shares_of_initial(self) -> FloatArray:
        """``initial_shares``, with ones if it is None, (R + 1,)."""
        if self.initial_shares is None:
            return np.ones(self.n_rounds + 1)
        return self.initial_shares

    @property
    def coefficients(self) -> Coefficients | None:
        """The shares of trees and initial prediction before each tree; None for plain boosting.

        Every tree must be a round by itself.
        """
        if self.tree_shares is None:
            return None
        return Coefficients(self.tree_shares, self.shares_of_initial)

    def column(self, output: int) -> int:
        """Return the column of ``leaf_values`` that has the values for an output."""
        if self.outputs is None:
            return output
        return 0

    def outputs_served(self, tree: int) -> slice:
        """Return the outputs that a tree serves, as a slice of all."""
        if self.outputs is None:
            return slice(None)
        output = int(self.outputs[tree])
        return slice(output, output + 1)

    def outputs_of(self, tree: int, n_outputs: int) -> list[int]:
        """Return the outputs that a tree serves."""
        if self.outputs is None:
            return list(range(n_outputs))
        return [int(self.outputs[tree])]


@dataclass(frozen=True)
class TreeTable:
    """The leaves of T trees, as the model records them.

    Leaves are stacked, tree after tree, L in all.
    """

    n_leaves: NDArray[np.int64]  #: (T,)
    #: (L, K), or (L, 1) where each tree serves one output: what each leaf adds to a prediction,
    #: learning rates included
    leaf_values: FloatArray
    #: (L,) sampled rows of each leaf, as the model counts them; None: it does not
    leaf_counts: NDArray[np.int64] | None = None
    #: (L,) sums of weight * sample count over the rows of each leaf; None: not recorded
    leaf_weights: FloatArray | None = None
    #: (L,) sums of weight * hessian over the rows of each leaf, and over its outputs where these
    #: share trees; None: not recorded
    leaf_hessians: FloatArray | None = None
    #: (L,) what the library adds to the values as it prints them: an initial prediction in the
    #: leaves of the first tree
    printed_shift: FloatArray | float = 0.0
    #: (L,) rounding error of values that are sums in single precision in an unknown order
    value_slack: FloatArray | float = 0.0
    #: (T,) the columns of `Adapter.leaves` that belong to these trees; None: all
    columns: NDArray[np.int64] | None = None

    @property
    def starts(self) -> NDArray[np.int64]:
        """The position of each tree's first leaf among all leaves, (T + 1,)."""
        return np.concatenate([[0], np.cumsum(self.n_leaves)]).astype(np.int64)


@dataclass(frozen=True)
class LeafRule:
    """The rule from the rows of a leaf to its value.

    With S the sum over a leaf's rows of weight * sample count * negative gradient and H that of
    weight * sample count * hessian, the leaf's value before the learning rate is ``S / (H + l2)``.
    After ``steps`` Newton steps of squared error it is ``(1 - (l2 / (H + l2)) ** steps) * S / H``.
    A leaf that the library sets to zero has l2 = inf. ``l1``, ``max_step``, ``nodes`` and
    ``chains`` change values further: see `axil.structure`. With squared error they take K = 1.
    """

    l2: FloatArray  #: (L,) what regularisation adds to the denominator of each leaf
    l2_by_weight: bool = False  #: whether l2 is in proportion to the mean weight of all rows
    l1: float = 0.0  #: by how much a sum is moved towards zero
    max_step: float = np.inf  #: the largest |value| of a leaf before the learning rate
    #: the library sets a leaf with a smaller H to zero; inf: any zero may be of this kind
    min_hessian: float = 0.0
    steps: int | FloatArray = 1  #: Newton steps, of all leaves or (L,) of each
    halves_steps: bool = False  #: whether steps that do not lower the loss are halved
    #: where leaf values depend on more than their own rows, or inner nodes are evidence
    nodes: Nodes | None = None
    #: finds the shares of the nodes' own values, tree by tree, from the sums of the leaves
    smoothing: Smoothing | None = None
    chains: Chains | None = None  #: the chains of leaves along which values must rise
    #: the percentile of residuals that is a leaf's value; there is no regularisation then
    ranks: Ranks | None = None
    cut: Cut | None = None  #: where residuals are cut off before they are added up; takes K = 1
    #: whether the mean value of a tree's leaves, which count by the weights of their rows, is taken
    #: off all of them
    is_centred: bool = False
    #: whether trees are averaged, so that a leaf without rows takes the value of a node above it
    averages: bool = False
    #: the nodes of averaged trees, whose values leaves without rows have; None: they have the
    #: values of their roots
    ancestors: Ancestors | None = None

    @cached_property
    def coupling_rule(self) -> NodeRule | IsotonicRule | None:
        """Return the rule of leaf values that depend on other leaves of their tree, if any does.

        The rule takes leaf sums of negative gradients and of hessians.
        """
        settings = (self.l2, np.ones_like(self.l2), self.l2_by_weight, self.l1, self.max_step)
        if self.chains is not None:
            return IsotonicRule(*settings, chains=self.chains)
        if self.nodes is None:
            return None
        rule = NodeRule(*settings, nodes=self.nodes)
        if rule.couples_leaves:
            return rule
        return None


@dataclass(frozen=True)
class InitialPrediction:
    """The scores that a fit starts from, before the first tree and without offsets."""

    values: FloatArray  #: (K,)
    #: whether they are the link of the weighted means of the targets, so that other targets lead
    #: to other values; else they are constants
    follows_targets: bool = False
    #: why the values follow the targets in a way that a replay does not compute; empty: they do not
    fixed_reason: str = ""
    #: whether the first tree, of a single leaf, is the initial prediction, a percentile of the
    #: targets; ``values`` are then added to it. See `Model.has_initial_tree`
    is_first_tree: bool = False

    @property
    def constants(self) -> FloatArray | None:
        """The values if they are constants, (K,); None if they depend on the targets."""
        if self.follows_targets:
            return None
        return np.asarray(self.values, dtype=np.float64)


@dataclass(frozen=True)
class WeightRule:
    """The weights of the training rows in the fit, if they differ from the sample weights."""

    row_weights: FloatArray | None = None  #: (N,) in place of the sample weights
    #: (N,) factors of the row weights in leaves, which do not reach the initial prediction
    leaf_factors: FloatArray | None = None
    #: how ``row_weights``, or the sample counts, follow from the labels of the rows; None: they do
    #: not
    class_counts: ClassCounts | None = None
    held_out: BoolArray | None = None  #: (N,) rows that took no part in the fit (early stopping)
    #: (N,) the weights whose mean l2 is in proportion to, where rows have no weight for want of a
    #: target; None: ``row_weights``
    scaling_weights: FloatArray | None = None
    #: (N,) what ``leaf_weights`` are sums of; None: of the weights of the fit
    recorded_by: FloatArray | None = None


@dataclass(frozen=True)
class BoostedFit:
    """The statements of a fitted model about its T trees and K outputs."""

    table: TreeTable
    leaf_rule: LeafRule
    schedule: Schedule
    initial: InitialPrediction
    loss: Loss = Squared()  # noqa: RUF009 - a frozen value
    weights: WeightRule = WeightRule()
    sampler: Sampler | None = None  #: None: all rows count once in every tree
    #: None: training rows had the leaves that `Adapter.assign` gives them
    placement: Placement | None = None
    #: how scores of training rows deviate from the sums of their trees; None: they do not
    shrinkage: Shrinkage | None = None
    #: precision in which the library keeps the scores of its training rows
    score_precision: RealType = np.float64
    #: returns why trees may disagree with the data of the last fit, from those (T,) that agree
    explain_mismatch: Callable[[BoolArray], UnsupportedModelError | None] | None = None
    no_derivative: str = ""  #: why there are no derivatives by the targets; empty: there are

    @property
    def learning_rates(self) -> FloatArray:
        """The learning rates of `Schedule`, (T,)."""
        return self.schedule.learning_rates

    @property
    def initial_scores(self) -> FloatArray:
        """The initial scores of predictions without offsets, (K,)."""
        return np.asarray(self.schedule.shares_of_initial[-1] * self.initial.values)

    @property
    def sample_type(self) -> type[np.generic] | None:
        """The type that holds sample counts, or the factors of sampled rows.

        It is None if no rows are sampled.
        """
        if self.sampler is None:
            return None
        return self.sampler.dtype

    def with_learning_rates(self, learning_rates: FloatArray) -> BoostedFit:
        """Return the fit with these learning rates, (T,)."""
        return replace(self, schedule=replace(self.schedule, learning_rates=learning_rates))

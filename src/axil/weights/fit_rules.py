"""The rules of fits: how all leaf values follow from the rows, with the tree structure fixed.

Leaf values follow from the sums of their rows (`SumRule`), from sums of clipped residuals
(`HuberRule`), or from the rows of a certain rank (`PercentileRule`). Each class has the deletions,
the fits to other targets and the active set of its fits. The active set is what makes leaf values
linear in the targets while it stays as it is: which sums L1 moves, which values are clipped or
bounded, which rows a percentile is taken from, and which residuals are clipped.

To add a rule, write a subclass of `FitRule` and let the replay pass it to `Structure`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.kernels import Backend
from axil.structure import RuleState, Structure
from axil.weights.parts import Parts, RowTest
from axil.weights.residuals import FittedValues


class TreeFits(Protocol):
    """The interface that rules use to compute fits of a structure with the active set fixed."""

    structure: Structure
    backend: Backend

    @property
    def moves_other_residuals(self) -> bool:
        """Whether a target moves the residuals of other rows."""

    def fit(self, targets: FloatArray) -> FittedValues:
        """Return the fit to targets (N, K)."""

    def tree_residuals(self, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield the residuals that each tree of a fit to targets (N, 1) sees, (N,)."""

    def tree_residual_slopes(self, v: FloatArray) -> Iterator[FloatArray]:
        """Yield each tree's residual derivatives, (N, S), along target vectors (N, S)."""

    def sum_weights(self, seeds: FloatArray) -> FloatArray:
        """Return the derivatives of ``seeds.T @ leaf_sums`` by the targets, (N, S), for (L, S)."""


@dataclass(frozen=True)
class FitRule(RuleState, ABC):
    """The rule from the rows and targets of a fit to its leaf values."""

    ranks_rows: ClassVar[bool] = False  #: whether a fit sorts the rows of each leaf

    @property
    @abstractmethod
    def has_active_set(self) -> bool:
        """Whether leaf values are linear in the targets only while an active set is fixed."""

    @property
    @abstractmethod
    def needs_walk(self) -> bool:
        """Whether deletions need the rule, tree by tree, since leaf values are no mere means."""

    @abstractmethod
    def has_formula(self, structure: Structure) -> bool:
        """Return whether deletions of single rows follow from the leaf matrix."""

    @abstractmethod
    def no_first_order(self, structure: Structure) -> str:
        """Return why the derivative by a row's weight is unknown, or "" if it is known."""

    @abstractmethod
    def without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of a fit to targets (N, K) without these rows. Cost O(T N)."""

    @abstractmethod
    def fit_without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> FittedValues:
        """Return the fit of `without`; the structure of the fit need not have its active set."""

    @abstractmethod
    def with_targets(
        self, structure: Structure, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of the fit to other targets (N, K), with its own active set.

        One replay of the fit, O(T N K). Percentiles sort the rows of each leaf besides.
        """

    @abstractmethod
    def count_changed_leaves(self, trees: TreeFits, before: FloatArray, after: FloatArray) -> int:
        """Return the number of leaves whose active set differs with targets ``after`` (N, K)."""

    @abstractmethod
    def radius(self, trees: TreeFits, targets: FloatArray) -> float:
        """Return the smallest change of one target that changes the active set, or a lower bound.

        0 if no bound is known.
        """

    def whole_sums(self, fitted: FittedValues) -> FloatArray:
        """Return the leaf sums of a fit, (L, K), with the parts that no target moves."""
        return fitted.sums

    def active_set_counts(
        self, structure: Structure, replayed: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the numbers of leaves of each kind in the active set, from those of the replay."""
        return dict(replayed)

    def with_all_rows(self, structure: Structure) -> Structure:
        """Return the structure in which all sampled rows count, as if no residual were clipped."""
        return structure

    def singletons(self, structure: Structure) -> Callable[[slice], BoolArray]:
        """Return the test whether a row is the only one that counts in one of its leaves."""
        return RowTest(self.with_all_rows(structure), Parts.is_singleton)


@dataclass(frozen=True)
class RankedOrClippedRule(FitRule):
    """The rule of a fit in which residuals decide which rows count, and how much.

    Any deletion may change that in any leaf, so every fit without rows is walked through with the
    rule, tree by tree.
    """

    @property
    def has_active_set(self) -> bool:
        """Return True: leaf values are linear in the targets only while an active set is fixed."""
        return True

    @property
    def needs_walk(self) -> bool:
        """Return True: deletions need the rule, tree by tree."""
        return True

    def has_formula(self, structure: Structure) -> bool:
        """Return False: a deletion moves ranks, or which residuals are clipped, in any leaf."""
        return False


def rule_of(structure: Structure) -> FitRule:
    """Return the rule of a fit. Raises ValueError if it is not known."""
    rule = structure.leaf_rule
    if not isinstance(rule, FitRule):
        raise ValueError(f"a structure with the leaf rule {rule}, expected a FitRule")
    return rule


def needs_walk(structure: Structure) -> bool:
    """Return whether deletions need the rule of the fit, tree by tree."""
    return rule_of(structure).needs_walk

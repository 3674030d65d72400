"""The rules of fits: how all leaf values of a fit follow from its rows, with the tree structure fixed.

Leaf values follow from the sums of their rows (`SumRule`), from sums of residuals that are cut off
at a threshold (`HuberRule`), or from the rows of a certain rank (`PercentileRule`). Each rule has
its deletions, its fits to other targets and its active set in one class. The active set is what
makes leaf values linear in the targets while it stays as it is: which sums L1 moves, which values
are clipped or bounded, which rows a percentile is taken from, and which residuals are cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from axil.arrays import FloatArray, IntArray
from axil.kernels import Backend
from axil.structure import Structure
from axil.weights.huber_rule import HuberRule
from axil.weights.percentile_rule import PercentileRule
from axil.weights.residuals import FittedValues
from axil.weights.rows_left import SumRule

if TYPE_CHECKING:
    from axil.weights.boosting import BoostedTrees
    from axil.weights.forest import Forest


class FitRule(Protocol):
    """How the leaf values of a fit follow from its rows and targets."""

    @property
    def has_active_set(self) -> bool:
        """Whether leaf values are linear in the targets only while an active set is fixed."""

    @property
    def needs_walk(self) -> bool:
        """Whether fits without some rows need the rule, tree by tree: leaf values are no mere means."""

    @property
    def has_formula(self) -> bool:
        """Whether deletions of single rows follow from the leaf matrix."""

    @property
    def ranks_rows(self) -> bool:
        """Whether a fit sorts the rows of each leaf."""

    @property
    def no_first_order(self) -> str:
        """Why no derivative by the weight of a row is known; empty: one is."""

    def without(self, rows: IntArray, targets: FloatArray, backend: Backend) -> Structure:
        """Return the structure of a fit to targets (N, K) without these rows. Cost O(T N)."""

    def fit_without(self, rows: IntArray, targets: FloatArray, backend: Backend) -> FittedValues:
        """Return the fit of `without`, with no active set made of it."""

    def with_targets(self, targets: FloatArray, backend: Backend) -> Structure:
        """Return the structure of the fit to other targets (N, K), with its own active set.

        One replay of the fit, O(T N K). Percentiles sort the rows of each leaf besides.
        """

    def count_changed_leaves(
        self, engine: BoostedTrees | Forest, before: FloatArray, after: FloatArray
    ) -> int:
        """Return how many leaves have another active set with the targets ``after`` (N, K)."""

    def whole_sums(self, fitted: FittedValues) -> FloatArray:
        """Return the leaf sums of a fit with all that its rows put into them, (L, K)."""

    def held(self, counts: dict[str, Any]) -> dict[str, Any]:
        """Return the counts of what is fixed, from those that the replay found."""

    def radius(self, engine: BoostedTrees | Forest, targets: FloatArray) -> float:
        """Return the smallest change of one target that changes the active set, or a lower bound.

        0 where no bound is known.
        """


def rule_of(structure: Structure) -> FitRule:
    """Return the rule of a fit."""
    if structure.is_ranked:
        return PercentileRule(structure)
    if structure.cut is not None:
        return HuberRule(structure, structure.cut)
    return SumRule(structure)


def bends(structure: Structure) -> bool:
    """Return whether fits without some rows need the rule of the fit, tree by tree."""
    return rule_of(structure).needs_walk

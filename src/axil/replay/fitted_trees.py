"""FittedTrees: the trees of a verified model, by whose leaves rows are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from axil.arrays import FloatArray
from axil.attribution.leaf_matches import TreeWeights, count_rows, tree_spreads
from axil.structure import Structure
from axil.weights.boosting import BoostedTrees
from axil.weights.residuals import FittedValues

if TYPE_CHECKING:
    from axil.replay.exact_model import ExactModel


class FittedTrees(ABC):
    """The trees of a model that has trees of its own."""

    @property
    def structures(self) -> Sequence[Structure] | None:
        """The boosted trees of each group of outputs, if their targets have weights; else None."""
        return None

    @property
    def are_boosted(self) -> bool:
        """Whether trees are fitted one after the other.

        Then weights do not follow from shared leaves.
        """
        return True

    @property
    @abstractmethod
    def are_rescaled(self) -> bool:
        """Whether trees are scaled again after others were fitted, as in DART."""

    @abstractmethod
    def weights(self, rule: str) -> TreeWeights:
        """Return the weight of each boosted tree in comparisons of rows.

        Parameters
        ----------
        rule : "variance", "error" or "improved"
            See ``tree_weights`` of `Explainer.similar`.
        """


def are_boosted(trees: FittedTrees | None) -> bool:
    """Return whether there are trees that are fitted one after the other."""
    return trees is not None and trees.are_boosted


def boosted_structures(trees: FittedTrees | None) -> Sequence[Structure] | None:
    """Return the boosted trees of each group of outputs; None if there are none with weights."""
    if trees is None:
        return None
    return trees.structures


@dataclass(frozen=True, eq=False)
class ExactTrees(FittedTrees):
    """The trees of a model in this process whose targets have weights."""

    model: ExactModel

    @property
    def structures(self) -> Sequence[Structure] | None:
        engines = self.model.engines
        structures = [engine.structure for engine in engines if isinstance(engine, BoostedTrees)]
        if len(structures) == len(engines):
            return structures
        return None

    @property
    def are_boosted(self) -> bool:
        return all(isinstance(engine, BoostedTrees) for engine in self.model.engines)

    @property
    def are_rescaled(self) -> bool:
        return any(s.coefficients is not None for s in self.structures or ())

    def weights(self, rule: str) -> TreeWeights:
        n_initial = int(self.model.adapter.has_initial_tree)
        fits = [
            cast(BoostedTrees, engine).fit(targets)
            for engine, targets in zip(self.model.engines, self.model.own_targets())
        ]
        if rule == "variance":
            return TreeWeights([_spreads(fit)[n_initial:] for fit in fits])
        return TreeWeights(
            None,
            lambda rows: [fit.reductions(rows)[n_initial:] for fit in fits],
            rule == "improved",
        )


def _spreads(fit: FittedValues) -> FloatArray:
    """Return the variance of what each tree adds to the predictions of the training rows, (T,)."""
    starts = fit.structure.starts
    return tree_spreads(count_rows(fit.structure.leaves(), starts), fit.added, starts)

"""Leaf rules: what a fit needs besides its affine map once its rows or its targets change.

A `Structure` says how leaf values follow from the targets while the active set is fixed. Its leaf
rule has all the rest: how leaf values follow from the rows of a leaf, which nodes are above a leaf
that loses its rows, and how row weights follow from labels. `axil.weights` has one class per rule,
with the fits that the rule leads to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.structure.ancestors import Ancestors
from axil.structure.class_counts import ClassCounts
from axil.structure.newton import NewtonRule
from axil.structure.records import Transferable, expect


@dataclass(frozen=True)
class RuleState(Transferable):
    """The state that all leaf rules share, and the interface that `Structure` uses."""

    newton: NewtonRule  #: how leaf values follow from leaf sums and leaf weights
    ancestors: Ancestors | None = None  #: the nodes of averaged trees; None: they are not known
    #: (L,) leaves of averaged trees that lost all their rows, and have the values of their nearest
    #: ancestors; None: there is none
    emptied: BoolArray | None = None
    #: how row weights follow from the labels of the rows that remain; None: they do not
    class_counts: ClassCounts | None = None

    clips_residuals: ClassVar[bool] = False  #: whether residuals count up to a threshold only

    @property
    def n_initial_trees(self) -> int:
        """The number of trees, 0 or 1, in the role of the initial prediction."""
        return 0

    @property
    def recorded_counts(self) -> NDArray[np.uint8] | None:
        """How often each row was sampled for each tree, (T, N); None if the structure has it."""
        return None

    def check(self, n_leaves: NDArray[np.int64], n_rows: int, sample_counts: FloatArray) -> None:
        """Raise ValueError unless the rule fits trees with these numbers of leaves, (T,).

        Parameters
        ----------
        n_leaves : array of shape (T,)
        n_rows : int
            The number of training rows.
        sample_counts : array of shape (D,) or (D, L)
            How often rows count; see `Structure`.
        """
        self.newton.check(n_leaves)
        if self.ancestors is not None:
            self.ancestors.check(n_leaves)
        if self.emptied is not None:
            expect("emptied", self.emptied, np.bool_, (int(n_leaves.sum()),))
        if self.class_counts is not None:
            self.class_counts.check(n_rows)

    def levels_sampled(self, sample_counts: FloatArray) -> FloatArray:
        """Return how often rows of each level were sampled, (D,), from how often they count."""
        return sample_counts

    def counted_residuals(self, residuals: FloatArray) -> FloatArray:
        """Return the residuals, clipped as they are in the sums of their leaves."""
        return residuals

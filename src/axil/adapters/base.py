"""The contract between a model library and the rest of axil."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FittedTrees:
    """What a fitted model says about its trees; leaves are stacked, tree after tree, L in all.

    The value of leaf l in tree t before the rate is ``sum over its rows of w*r / (sum over its rows of w + l2[l])``,
    or, where ``mixing[t]`` is given, ``mixing[t] @ (sums of w*r of the tree's leaves)``.
    """

    n_leaves: NDArray[np.int64]  #: (T,)
    values: NDArray[np.float64]  #: (L,) what each leaf adds to a prediction, the rate included and the base not
    counts: NDArray[np.int64]  #: (L,) training rows in each leaf, by the model's own account
    weights: NDArray[np.float64] | None  #: (L,) their sample weights, where the model says
    l2: NDArray[np.float64]  #: (L,) what regularisation adds to the leaf's denominator
    rates: NDArray[np.float64]  #: (T,) learning rates as far as the model states them; nan: it does not
    base: float | None  #: the constant every prediction starts from; None: the weighted mean of the targets
    base_value: float  #: that start as a number
    mixing: tuple[NDArray[np.float64], ...] | None = None  #: per tree (L_t, L_t), from leaf sums to leaf values


class Adapter(Protocol):
    """One fitted model, read once. Construction refuses what is not linear, by name."""

    library: str  #: for messages
    n_features: int
    feature_names: list[str] | None  #: None where the model was fitted without names
    precision: type[np.floating[Any]]  #: in which the library keeps targets, weights and residuals
    tolerance: float  #: of predictions, relative to the largest |prediction|
    leaf_tolerance: float  #: of leaf values in a replay that rounds as the library does, relative likewise
    fingerprint: str  #: of the trees; equal models have equal ones

    def spelling(self, name: str) -> str:
        """How the library writes a column's name."""

    def trees(
        self,
        targets: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
        offsets: NDArray[np.float64] | None,
    ) -> FittedTrees:
        """The model's trees, given the training targets, sample weights and offsets, rounded to ``precision``."""

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree, from 0, every row of X falls into."""

    def predictions(self, X: Any) -> NDArray[np.float64]:
        """(n,): what the model predicts by default, without offsets."""

    def causes(self, what: str) -> str:
        """The likeliest reason, in this library, for a disagreement in "counts", "weights" or "values"."""

"""LinearSteps: boosted trees whose leaves are regressions on features.

The trees are one linear map from targets to coefficients.

A prediction is ``features(x) @ steps @ targets``. Tree t has P_t coefficients ``c_t = A_t (y -
F_t)``, made of what the trees before it leave over, and F_t+1 = F_t + B_t c_t. So coefficients
follow from targets tree after tree, and the weights of an explained row from its features in the
opposite order. Either takes O(N p) multiplications per tree and column, for N rows and p features
per leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.kernels.cpu import product


@dataclass(frozen=True)
class LinearTree:
    """One tree: P coefficients of its L leaves.

    Each leaf's own value, for rows that lack a feature, is among the coefficients.
    """

    features: Any  #: B, sparse (N, P): what the fit multiplied the coefficients by
    leaf: LeafArray  #: (N,)
    weights: FloatArray  #: (N,) weight * sample
    complete: BoolArray  #: (N,) rows that take part in the regression of their leaf
    values: NDArray[np.int64]  #: (L,) which coefficients are the leaves' values
    inverse: Any  #: sparse (P, P): from sums over the rows to coefficients, the rate included
    #: (L,) the smallest eigenvalue of each leaf's regression, relative to the largest
    steady: FloatArray

    def solved(self, residuals: FloatArray) -> FloatArray:
        """Return the coefficients (P, S) for residuals (N, S)."""
        weighted = self.weights[:, None] * residuals
        sums = self.features.T @ (self.complete[:, None] * weighted)
        for coefficients, column in zip(sums.T, weighted.T):
            coefficients[self.values] = np.bincount(self.leaf, column, len(self.values))
        return np.asarray(self.inverse @ sums)

    def pulled(self, u: FloatArray) -> FloatArray:
        """Return the product of the transpose of `solved` with u (P, S): (N, S)."""
        sums = self.inverse.T @ u
        by_features = self.complete[:, None] * (self.features @ sums)
        return np.asarray(self.weights[:, None] * (by_features + sums[self.values][self.leaf]))


@dataclass(frozen=True)
class LinearSteps:
    """The map (P, N) from targets to the coefficients of all trees.

    The first coefficient is the initial prediction.
    """

    start: FloatArray  #: (N,) of each target in the start
    trees: Sequence[LinearTree]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of coefficients, P, and of training rows, N."""
        return 1 + sum(tree.inverse.shape[0] for tree in self.trees), len(self.start)

    @property
    def T(self) -> TransposedSteps:
        """The transposed map, from coefficients to training rows."""
        return TransposedSteps(self)

    def places(self) -> Iterator[tuple[LinearTree, slice]]:
        """Return each tree with the places of its coefficients."""
        first = 1
        for tree in self.trees:
            last = first + tree.inverse.shape[0]
            yield tree, slice(first, last)
            first = last

    def __matmul__(self, v: FloatArray) -> FloatArray:
        """Return the coefficients (P, S) for vectors (N, S) in place of the targets."""
        coefficients = np.empty((self.shape[0], v.shape[1]))
        coefficients[0] = product(self.start[None], v)[0]
        residuals = v - coefficients[0]
        for tree, places in self.places():
            coefficients[places] = tree.solved(residuals)
            residuals -= tree.features @ coefficients[places]
        return coefficients


@dataclass(frozen=True)
class TransposedSteps:
    """The transpose (N, P)."""

    steps: LinearSteps

    def __matmul__(self, u: FloatArray) -> FloatArray:
        """Return the weights of the targets in ``u' coefficients``, for u (P, S): (N, S)."""
        weights = np.zeros((self.steps.shape[1], u.shape[1]))
        for tree, places in reversed(list(self.steps.places())):
            weights += tree.pulled(u[places] - tree.features.T @ weights)
        at_start = u[:1] - product(np.ones((1, len(weights))), weights)
        return np.asarray(weights + self.steps.start[:, None] * at_start)

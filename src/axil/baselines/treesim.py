"""TreeSim and LeafMatch: training rows that meet the same leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.arrays import FloatArray
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.tree_baselines import Batch, KernelBaseline


@dataclass(frozen=True)
class TreeSim(KernelBaseline):
    """The similarity of x and row j in the `LeafKernel`.

    It is negative if their targets lie on two sides of F(x).

        score(x, j) = w_j k(x, j) sign((y_j - F(x)) (y - F(x)))

    with an inner product over several outputs, and y_j less its offset. Without y the similarity
    alone: w_j k(x, j). Of a classifier the sign is + where both rows are of one class, else -, and
    the kernel has the trees of all classes. (Brophy, Hammoudeh and Lowd, JMLR 24(154), 2023.) O(T
    N) per explained row.
    """

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        out += self.kernels[0].between(queries.leaves.T) * fit.row_weights
        if queries.targets is not None:
            is_equal = queries.targets[:, None, :] == fit.walked.targets[None, :, :]
            out *= np.where(is_equal.all(axis=2), 1.0, -1.0)

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        for trees, kernel in zip(self.trees, self.kernels):
            similarities = kernel.between(trees.leaves(queries.coordinates))
            similarities *= trees.row_weights
            out += similarities
        errors = queries.errors
        if errors is not None:
            targets = np.concatenate([trees.fit.started() for trees in self.trees], axis=1)
            products = np.zeros_like(out)
            for error, prediction, target in zip(errors.T, queries.predictions.T, targets.T):
                products += (target - prediction[:, None]) * error[:, None]
            out *= np.sign(products)


@dataclass(frozen=True)
class LeafMatch(KernelBaseline):
    """The share of trees in which x and row j are in one leaf.

    Assessors count comparables from a boosted model in this way.

        score(x, j) = sum_t [leaf_t(x) = leaf_t(j)] / T

    From 0 to 1, whatever the targets are: neither y nor the row's target, its weight or the size of
    the leaf is in it, but rows of weight zero score zero. T counts the trees of all outputs. O(T N)
    per explained row.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> from axil import Explainer
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
    >>> float(LeafMatch(explainer).scores(X.head(1))[0, 0])  # a row shares all its own leaves
    1.0
    """

    @property
    def n_trees(self) -> int:
        """Return the number of trees of all outputs."""
        return sum(len(kernel.starts) - 1 for kernel in self.kernels)

    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        n_shared = self.kernels[0].matches(queries.leaves.T)
        out += n_shared * (fit.row_weights > 0) / max(self.n_trees, 1)

    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        for trees, kernel in zip(self.trees, self.kernels):
            out += kernel.matches(trees.leaves(queries.coordinates)) * (trees.row_weights > 0)
        out /= max(self.n_trees, 1)

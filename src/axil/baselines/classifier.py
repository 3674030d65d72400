"""A verified classifier as baselines read it: gradients and leaves of its replayed fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import FloatArray, IntArray
from axil.contributions.additive_model import AdditiveModel
from axil.errors import InputError
from axil.kernels.choose import host_backend
from axil.replay.replayed_stages import Round, leaf_scores
from axil.trees.losses import Logit, Loss, Softmax

# Positions of trees for the kernel, which gets one tree at a time
NO_TREES = np.zeros(0, dtype=np.int64)
ONE_TREE = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class ClassQueries:
    """Explained rows of a classifier."""

    leaves: IntArray  #: (n, T)
    scores: FloatArray  #: (n, K) raw
    targets: FloatArray | None  #: (n, K) of 0 and 1; None: not given

    def __len__(self) -> int:
        return len(self.leaves)

    def part(self, rows: slice) -> ClassQueries:
        """Return a slice of the rows."""
        if self.targets is None:
            targets = None
        else:
            targets = self.targets[rows]
        return ClassQueries(self.leaves[rows], self.scores[rows], targets)


class FittedClassifier:
    """A boosted classifier with log-loss, softmax or one-vs-all.

    Other losses and DART are refused.
    """

    def __init__(self, verified_model: AdditiveModel):
        self.verified_model = verified_model
        self.walked = verified_model.boosting.contributions.walked
        fit = self.walked.fit
        if not isinstance(fit.loss, (Logit, Softmax)):
            raise InputError(
                f"The model was fitted to the loss {fit.loss.name!r}; expected log-loss or "
                "softmax, or squared error. For "
                "other losses there are no baselines."
            )
        if fit.schedule.tree_shares is not None:
            raise InputError(
                "The model was fitted with DART, which drops trees and puts them back smaller; the "
                "baselines are defined for "
                "trees that are added one after the other. Ask axil.Explainer, which takes DART."
            )
        if fit.leaf_rule.coupling_rule is not None:
            raise InputError(
                "The model was fitted with monotone constraints or path_smooth, which make a "
                "leaf value depend on other leaves; the baselines are defined for leaves that "
                "depend on their own rows alone. Ask axil.Explainer, which takes both."
            )
        if not np.isin(self.walked.targets, (0.0, 1.0)).all():
            raise InputError(
                "y_train holds shares; expected classes, 0 and 1 for a model that has no names for "
                "them."
            )
        #: (stages,) what a step's leaf values are multiplied by at the end
        self.rates = np.zeros(len(self.walked.steps))
        for round in self.walked.rounds:
            for stage, coefficient in round.changes:
                self.rates[stage] += coefficient

    @property
    def loss(self) -> Loss:
        """Return the loss of the fit."""
        return self.walked.fit.loss

    @property
    def n_threads(self) -> int:
        """Return how many threads to use."""
        return self.verified_model.n_threads

    @property
    def n_rows(self) -> int:
        """Return the number of training rows."""
        return len(self.walked.targets)

    @property
    def row_weights(self) -> FloatArray:
        """Return the weights of the rows in the loss, (N,)."""
        factors = self.walked.fit.weights.leaf_factors
        if factors is None:
            return self.walked.weights
        return self.walked.weights * factors

    def queries(self, X: FeatureTable, y: ForeignObject) -> ClassQueries:
        """Return checked rows; the sums of their leaves must be the model's scores."""
        batch = self.verified_model.queries(X)
        self.verified_model.verify_predictions(batch, None)
        targets = None
        if y is not None:
            targets = self.verified_model.changes.as_targets(y, len(batch), "y", "explained")
            if not np.isin(targets, (0.0, 1.0)).all():
                raise InputError("y holds numbers other than 0 and 1; expected classes.")
        leaves = batch.coordinates.astype(np.intp)
        return ClassQueries(leaves, leaf_scores(self.walked.fit, leaves), targets)

    def rounds(self, queries: ClassQueries) -> Iterator[tuple[Round, FloatArray, FloatArray]]:
        """Yield the rounds of the fit, last first, with the scores before each.

        Yields
        ------
        round : Round
        row_scores : array of shape (N, K)
            Scores of the training rows. The next round changes them in place.
        query_scores : array of shape (n, K)
            Scores of the explained rows. The next round changes them in place.
        """
        walked = self.walked
        row_scores = walked.score.copy()
        query_scores = queries.scores.copy()
        for round in walked.rounds[::-1]:
            for tree, output, gain in walked.gains(round):
                row_scores[:, output] -= gain[walked.leaves[tree]]
            for stage, coefficient in round.changes:
                tree = int(walked.stage_tree[stage])
                output = int(walked.stage_output[stage])
                values = walked.steps[stage].value[queries.leaves[:, tree]]
                query_scores[:, output] -= coefficient * values
            yield round, row_scores, query_scores

    def spread(
        self, tree: int, table: FloatArray, row_factors: FloatArray, out: FloatArray
    ) -> None:
        """Add ``row_factors[j] * table[leaf of j]`` to ``out`` (N, n); ``table`` is (leaves, n)."""
        self._sweep(tree, out, ONE_TREE, table, row_factors, NO_TREES)

    def gathered(self, tree: int, values: FloatArray, n_leaves: int) -> FloatArray:
        """Return the sums of values (N, n) over the training rows of each leaf, (n_leaves, n)."""
        table = np.empty((n_leaves, values.shape[1]))
        self._sweep(tree, values, NO_TREES, table, None, ONE_TREE)
        return table

    def _sweep(
        self,
        tree: int,
        state: FloatArray,
        applied: NDArray[np.int64],
        table: FloatArray,
        row_factors: FloatArray | None,
        gathered: NDArray[np.int64],
    ) -> None:
        leaves = self.walked.leaves[tree : tree + 1]
        starts = np.array([0, len(table)])
        rows = host_backend(self.n_threads).rows(leaves, starts)
        rows.sweep(state, applied, table, row_factors, gathered, table, None)

"""Label checks of classifiers over partitions: numbers of all training rows are gathered.

A label check takes each row's score, what the row itself put into it, and the classes of the other
rows in its leaves. The first two follow from a row's own leaves and the sums of all rows, and the
last from sums over leaves. So workers compute them for their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import OffsetRule
from axil.arrays import AnyArray, FloatArray
from axil.attribution import Capabilities, Kind, Location
from axil.dask.columns import GatheredColumns
from axil.kernels.choose import host_backend
from axil.replay.output_names import OutputNames
from axil.replay.replayed_stages import ReplayedStages, leaf_scores
from axil.structure import LinearLeaves, Structure
from axil.trees.losses import Loss
from axil.weights.spread import around_training_rows, known_leaf_sums

if TYPE_CHECKING:
    from axil.dask.additive_model import AdditivePartition, PartitionedAdditiveModel


@dataclass(frozen=True, eq=False)
class GatheredContributions:
    """The contributions of the training rows to their own scores."""

    origin: PartitionedAdditiveModel

    def on_itself(self) -> FloatArray:
        """Return the contribution of each row to its own score, (N, K)."""
        shared = self.origin.walked, self.origin.n_threads
        return np.concatenate(self.origin.filled_shards.collected(own_contributions, shared))


@dataclass(frozen=True, eq=False)
class GatheredBoosting:
    """The part of the fit of a boosted classifier that label checks need."""

    origin: PartitionedAdditiveModel

    @property
    def loss(self) -> Loss:
        """The loss of the fit."""
        return self.origin.walked.loss

    @property
    def class_names(self) -> AnyArray | None:
        """The names of the classes; None for numbers."""
        return self.origin.names.classes

    @property
    def contributions(self) -> GatheredContributions:
        """The contributions of the training rows."""
        return GatheredContributions(self.origin)

    @property
    def unfitted_shares(self) -> FloatArray:
        """The part of the labels that is left to fit when each tree is made, (T,)."""
        return self.origin.walked.fit.schedule.unfitted_shares

    @property
    def fitted(self) -> FloatArray:
        """The scores of the training rows, (N, K), with their offsets."""
        origin = self.origin
        scores = np.concatenate(origin.filled_shards.collected(final_scores, origin.walked))
        if (
            origin.fit_offsets.replaced_initial
            and origin.adapter.offset_rule is not OffsetRule.ADDED
        ):
            return scores - origin.walked.base
        return scores

    def expected_targets(self, scores: FloatArray) -> FloatArray:
        """Return the probabilities that belong to scores, (N, K)."""
        return self.loss.mean(scores)


@dataclass(frozen=True, eq=False)
class GatheredAdditiveModel:
    """A model like one in memory, for label checks; its rows are on the workers."""

    origin: PartitionedAdditiveModel

    kind = Kind.ADDITIVE
    location = Location.PARTITIONS

    @property
    def capabilities(self) -> Capabilities:
        """The methods that the model in partitions answers."""
        return self.origin.capabilities

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of training rows and of outputs."""
        return self.origin.shape

    @property
    def boosting(self) -> GatheredBoosting:
        """The fit."""
        return GatheredBoosting(self.origin)

    @property
    def names(self) -> OutputNames:
        """The names of the outputs and of the classes."""
        return self.origin.names

    @property
    def training(self) -> GatheredColumns:
        """The columns of the training rows."""
        return GatheredColumns(self.origin)

    @property
    def targets(self) -> FloatArray:
        """The targets of the fit, (N, K); for two classes, whether a row is of the second."""
        return self.origin.training.gathered()[0]

    @property
    def index(self) -> AnyArray:
        """The labels of the training rows, (N,)."""
        return self.origin.training.gathered()[1]

    @property
    def backend(self) -> str:
        """The name of the library of tables."""
        return self.origin.backend

    def around(self, values: FloatArray, tree_weights: FloatArray | None) -> FloatArray:
        """Return the means of values (N, S) over the other rows in each row's leaves, (N, S).

        ``tree_weights``, (T,), are the weights of the trees in these means; None: all one.
        """
        shards = self.origin.filled_shards
        columns = shards.cut(values)
        shared = self.origin.walked.starts, self.origin.n_threads
        sums = shards.total(sums_around, shared, columns)
        with_sums = (*shared, sums, tree_weights)
        return np.concatenate(shards.collected(means_around, with_sums, columns))


# -- the work on one partition ---------------------------------------------------------------------


def own_contributions(
    partition: AdditivePartition, shared: tuple[ReplayedStages, int], _: None
) -> FloatArray:
    """Return the contribution of each of these rows to its own score, (n, K)."""
    walked, n_threads = shared
    return partition.contributions(walked, n_threads).on_itself()


def final_scores(partition: AdditivePartition, walked: ReplayedStages, _: None) -> FloatArray:
    """Return the scores of these rows after all trees, (n, K), in double precision."""
    starts = partition.score + np.zeros_like(partition.rounded)
    return leaf_scores(walked.fit, partition.leaves.T, starts, rounded=False)


def sums_around(
    partition: AdditivePartition, shared: tuple[NDArray[np.int64], int], values: FloatArray
) -> FloatArray:
    """Return the leaf sums of values (n, S), see `known_leaf_sums`."""
    starts, n_threads = shared
    s = _membership(partition, starts)
    return known_leaf_sums(s, host_backend(n_threads).rows_of(s), values)


def means_around(
    partition: AdditivePartition,
    shared: tuple[NDArray[np.int64], int, FloatArray, FloatArray | None],
    values: FloatArray,
) -> FloatArray:
    """Return the means of values over the other rows in each row's leaves, (n, S)."""
    starts, n_threads, sums, tree_weights = shared
    s = _membership(partition, starts)
    rows = host_backend(n_threads).rows_of(s)
    return around_training_rows(s, rows, sums, values, tree_weights)


def _membership(partition: AdditivePartition, starts: NDArray[np.int64]) -> Structure:
    """Return trees with the leaves of these rows, in which all rows have the same weight."""
    n_leaves = np.diff(starts)
    ones = np.ones(int(starts[-1]))
    trees = np.ones(len(n_leaves))
    return Structure(
        partition.leaves, n_leaves, ones, LinearLeaves(ones.copy()), trees, np.zeros(1)
    )

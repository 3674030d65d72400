"""The user's training rows as partitions: how they are read, and what travels with them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn, cast

import numpy as np

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import LeafTotals, Model, Totals, TrainingRows
from axil.arrays import AnyArray, BoolArray, FloatArray, RealType
from axil.dask.cluster import (
    Cluster,
    Collection,
    Delayed,
    Features,
    UserValues,
    layout,
    named,
    partitions,
    task,
)
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.copies import frozen, owned
from axil.inputs.label_classes import LabelClasses
from axil.replay.compare_predictions import CHECKED_ROWS
from axil.replay.walk import round_to


@dataclass(frozen=True)
class TargetFormat:
    """The format in which a library reads targets: outputs or classes, with their types."""

    n_outputs: int
    classes: AnyArray | LabelClasses | None
    of_second_class: bool  #: whether two classes are one column: whether a row is of the second
    targets: RealType
    offsets: RealType


@dataclass(frozen=True)
class ObservedRows:
    """Targets, weights and offsets of a partition's n rows, as the library keeps them."""

    targets_as_given: FloatArray  #: (n, K)
    targets: FloatArray  #: (n, K)
    weights: FloatArray | None  #: (n,)
    offsets: FloatArray | None  #: (n, K)

    @property
    def totals(self) -> Totals:
        """The sums over these rows that the adapter needs to read the model."""
        return Totals.of(self.targets, self.weights, self.offsets)


def observe(
    number: int,
    y: UserValues,
    weights: UserValues,
    offsets: UserValues,
    target_format: TargetFormat,
) -> ObservedRows:
    """Check and round the targets, weights and offsets of a partition."""
    n_outputs = target_format.n_outputs
    with named(number):
        n_rows = len(y)
        targets = owned(inputs.as_targets(y, n_rows, n_outputs, target_format.classes))
        if target_format.of_second_class:
            targets = targets[:, 1:]
        weights = inputs.weights_of_some(weights, n_rows)
        if weights is not None:
            weights = round_to(target_format.targets, weights)
        offsets = inputs.as_offsets(offsets, n_rows, n_outputs, "training")
        if offsets is not None:
            offsets = round_to(target_format.offsets, offsets)
        return ObservedRows(targets, round_to(target_format.targets, targets), weights, offsets)


@dataclass(frozen=True)
class Collections:
    """The user's data as lists of delayed partitions, all of the same rows."""

    X: list[Delayed]
    y: list[Delayed]
    weights: list[Delayed]
    offsets: list[Delayed]
    in_bag: list[Delayed]

    @classmethod
    def of(
        cls,
        X: Collection,
        y: Collection,
        sample_weight: Collection,
        init_score: Collection,
        in_bag: Collection = None,
    ) -> Collections:
        """Return the partitions of these collections after checking that they match those of X."""
        feature_partitions = partitions(X, "X")
        if y is None:
            raise InputError(
                "y is None; expected the targets, a Dask Series or Array with the partitions of X."
            )
        collections = {
            "y": y,
            "sample_weight": sample_weight,
            "init_score": init_score,
            "in_bag": in_bag,
        }
        aligned: list[list[Delayed]] = []
        for name, values in collections.items():
            if values is None:
                aligned.append([None] * len(feature_partitions))
            else:
                aligned.append(partitions(values, name, layout(X)))
        return cls(feature_partitions, *aligned)

    def observed(self, cluster: Cluster, target_format: TargetFormat) -> list[Delayed]:
        """Return the `ObservedRows` of each partition, which stay on the workers."""
        columns = zip(range(len(self.y)), self.y, self.weights, self.offsets)
        return cluster.hold([task(observe, *row_values, target_format) for row_values in columns])

    @property
    def has_sample_counts(self) -> bool:
        """Whether the user passed the sampled rows of all trees."""
        return self.in_bag[0] is not None


class PartitionedRows(TrainingRows):
    """Training rows of which only totals, and after the walk leaf totals, are in this process."""

    def __init__(self, totals: Totals, leaf_totals: list[LeafTotals] | None = None):
        """Keep the totals; `leaf_totals` is None before the walk."""
        object.__setattr__(self, "_totals", totals)
        object.__setattr__(self, "_leaf_totals", leaf_totals)

    @property
    def at_hand(self) -> bool:
        """Whether the rows are in this process."""
        return False

    @property
    def totals(self) -> Totals:
        """The sums over all rows."""
        return cast(Totals, vars(self)["_totals"])

    @property
    def leaf_totals(self) -> list[LeafTotals] | None:
        """The sums over the rows of each leaf; None before the walk."""
        return cast("list[LeafTotals] | None", vars(self)["_leaf_totals"])

    def _refuse(self) -> NoReturn:
        raise UnsupportedModelError(
            "training rows",
            "on several machines",
            "axil infers what the model does not state (which trees were tried and dropped, "
            "class weights) from all training rows together",
            "Use training rows in memory, or fit the model in one go.",
        )

    X = targets = weights = offsets = in_bag = property(_refuse)


@dataclass(frozen=True)
class SharedFit:
    """The objects that the work on every partition shares."""

    adapter: Any
    fits: list[BoostedFit]  #: without what belongs to single rows
    n_checked: int  #: the rows of each partition that the library itself predicts, for comparison
    n_threads: int


@dataclass(frozen=True)
class Place:
    """The position of a partition, with the facts of each fit about its rows alone."""

    number: int
    start: int  #: the number of its first row, among all
    row_weights: list[FloatArray | None]
    held_out: list[BoolArray | None]

    def read(
        self, X: Features, observed: ObservedRows, adapter: Model
    ) -> tuple[Features, AnyArray]:
        """Return the checked features of the partition's rows, and their labels.

        Rows without labels have their positions among all rows.
        """
        with named(self.number):
            X = inputs.as_features(X, adapter, "X")
            n_rows = len(observed.targets)
            if X.shape[0] != n_rows:
                raise InputError(
                    f"X has {X.shape[0]} rows and y {n_rows}; expected the same rows. Repartition "
                    "them alike."
                )
        labels = inputs.row_labels(X)
        if not hasattr(X, "index"):
            labels = labels + self.start
        return X, frozen(labels)


def places(
    sizes: list[int],
    row_weights: list[FloatArray | None],
    held_out: list[BoolArray | None],
) -> list[Place]:
    """Return the places of partitions of these sizes, from the facts of each fit about all rows."""
    partition_places = []
    for number, (first, last) in enumerate(pairwise(np.cumsum([0, *sizes]).tolist())):
        rows = slice(first, last)
        weights_here = [_rows_of(weights, rows) for weights in row_weights]
        held_out_here = [_rows_of(is_held_out, rows) for is_held_out in held_out]
        partition_places.append(Place(number, first, weights_here, held_out_here))
    return partition_places


def _rows_of(values: AnyArray | None, rows: slice) -> AnyArray | None:
    if values is None:
        return None
    return values[rows]


def n_checked_rows(sizes: list[int]) -> int:
    """Return how many rows of each partition are compared with the library's own predictions."""
    n_partitions = sum(size > 0 for size in sizes)
    return -(-CHECKED_ROWS // max(1, n_partitions))


def require_rows(n_rows: int, has_weight: bool) -> None:
    """Refuse partitions without rows, or without any weight."""
    if n_rows == 0:
        raise InputError(
            "X has no rows in any partition; expected the rows that the model was fitted on."
        )
    if not has_weight:
        raise InputError("sample_weight is zero everywhere; expected at least one positive weight.")

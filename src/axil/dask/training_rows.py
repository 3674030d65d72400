"""The user's training rows as partitions: how they are read, and what travels to the workers with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import LeafTotals, Totals, TrainingRows
from axil.arrays import BoolArray, FloatArray
from axil.dask.cluster import Cluster, layout, partitions, task
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.copies import frozen, owned
from axil.inputs.label_classes import LabelClasses
from axil.replay.checks import CHECKED_ROWS
from axil.replay.walk import round_to


@dataclass(frozen=True)
class TargetFormat:
    """The outputs or classes that a library reads targets as, and the types in which it keeps targets and offsets."""

    n_outputs: int
    classes: NDArray[Any] | LabelClasses | None
    of_second_class: (
        bool  #: whether the target of two classes is one column: whether a row is of the second
    )
    targets: type[np.floating[Any]]
    offsets: type[np.floating[Any]]


@dataclass(frozen=True)
class ObservedRows:
    """Targets, weights and offsets of a partition's n rows, as the library keeps them."""

    targets_as_given: FloatArray  #: (n, K)
    targets: FloatArray  #: (n, K)
    weights: FloatArray | None  #: (n,)
    offsets: FloatArray | None  #: (n, K)

    @property
    def totals(self) -> Totals:
        return Totals.of(self.targets, self.weights, self.offsets)


@contextmanager
def named(number: int) -> Iterator[None]:
    """Say in which partition an input was found wrong."""
    try:
        yield
    except InputError as error:
        raise InputError(f"In partition {number} (from 0): {error}") from None


def observe(
    number: int, y: Any, weights: Any, offsets: Any, target_format: TargetFormat
) -> ObservedRows:
    """Check and round the targets, weights and offsets of a partition; 8 bytes per row and number."""
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

    X: list[Any]
    y: list[Any]
    weights: list[Any]
    offsets: list[Any]
    bags: list[Any]

    @classmethod
    def of(
        cls, X: Any, y: Any, sample_weight: Any, init_score: Any, bags: Any = None
    ) -> Collections:
        """Return the partitions of these collections, which must be those of X."""
        parts = partitions(X, "X")
        if y is None:
            raise InputError(
                "y is None; expected the targets, a Dask Series or Array with the partitions of X."
            )
        collections = {
            "y": y,
            "sample_weight": sample_weight,
            "init_score": init_score,
            "in_bag": bags,
        }
        nothing: list[Any] = [None] * len(parts)
        aligned = [
            nothing if values is None else partitions(values, name, layout(X))
            for name, values in collections.items()
        ]
        return cls(parts, *aligned)

    def observed(self, cluster: Cluster, target_format: TargetFormat) -> list[Any]:
        """Return the `ObservedRows` of each partition, delayed and held."""
        arguments = zip(range(len(self.y)), self.y, self.weights, self.offsets)
        return cluster.hold([task(observe, *parts, target_format) for parts in arguments])

    @property
    def has_bags(self) -> bool:
        """Whether the draws of all trees were recorded."""
        return self.bags[0] is not None


class PartitionedRows(TrainingRows):
    """Training rows of which only the totals are here and, after the walk, those of leaves."""

    def __init__(self, totals: Totals, leaf_totals: list[LeafTotals] | None = None):
        object.__setattr__(self, "_totals", totals)
        object.__setattr__(self, "_leaf_totals", leaf_totals)

    @property
    def at_hand(self) -> bool:
        return False

    @property
    def totals(self) -> Totals:
        return cast(Totals, vars(self)["_totals"])

    @property
    def leaf_totals(self) -> list[LeafTotals] | None:
        return cast("list[LeafTotals] | None", vars(self)["_leaf_totals"])

    def _elsewhere(self) -> Any:
        raise UnsupportedModelError(
            "training rows",
            "on several machines",
            "what this model does not state itself (which trees were tried and dropped, weights of classes) follows from all "
            "of its training rows only",
            "Use training rows in memory, or fit the model in one go.",
        )

    X = targets = weights = offsets = bags = property(_elsewhere)


@dataclass(frozen=True)
class SharedFit:
    """The objects that the work on every partition shares."""

    adapter: Any
    fits: list[BoostedFit]  #: without what belongs to single rows
    n_checked: int  #: rows of each partition whose prediction is asked of the library
    n_threads: int


@dataclass(frozen=True)
class Place:
    """Which partition this is, and what each fit says of its rows alone."""

    number: int
    start: int  #: its first row, among all
    row_weights: list[FloatArray | None]
    held_out: list[BoolArray | None]

    def read(self, X: Any, observed: ObservedRows, adapter: Any) -> tuple[Any, NDArray[Any]]:
        """Return the checked features of the partition's rows, and their labels: positions among all rows where X has none."""
        with named(self.number):
            X = inputs.as_features(X, adapter, "X")
            n_rows = len(observed.targets)
            if X.shape[0] != n_rows:
                raise InputError(
                    f"X has {X.shape[0]} rows and y {n_rows}; expected the same rows. Repartition them alike."
                )
        labels = inputs.row_labels(X)
        return X, frozen(labels if hasattr(X, "index") else labels + self.start)


def places(
    sizes: list[int],
    row_weights: list[FloatArray | None],
    held_out: list[BoolArray | None],
) -> list[Place]:
    """Return the places of partitions of these sizes, from what each fit says of all rows."""
    partition_places = []
    for number, (first, last) in enumerate(pairwise(np.cumsum([0, *sizes]).tolist())):
        own_weights = [None if weights is None else weights[first:last] for weights in row_weights]
        own_held_out = [None if rows is None else rows[first:last] for rows in held_out]
        partition_places.append(Place(number, first, own_weights, own_held_out))
    return partition_places


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

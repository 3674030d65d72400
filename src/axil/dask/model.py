"""Verified models whose training rows lie in the partitions of Dask collections."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import FloatArray, IntArray
from axil.attribution import Location
from axil.dask.cluster import (
    Cluster,
    Collection,
    Delayed,
    Features,
    HeldRows,
    Layout,
    PartitionRows,
    PartitionShards,
    UserValues,
    named,
    partitions,
    task,
)
from axil.errors import InputError
from axil.machine.memory import Limits
from axil.output.rules import Rules, measured, said_by
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice, packed
from axil.replay.queries import Offsets, QueryBatch
from axil.replay.recover import assign_leaves
from axil.replay.verification import Verification
from axil.replay.verified_model import VerifiedModel
from axil.scale import IDENTITY, TargetScale

NOT_THE_SAME = "expected a collection that is the same whenever it is computed"


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedModel(VerifiedModel):
    """A model that was verified on training rows in partitions, whatever its kind."""

    location = Location.PARTITIONS

    adapter: Any
    training_rows: HeldRows
    cluster: Cluster
    limits: Limits
    verification: Verification | None
    features: Collection  #: the training rows as the user passed them
    parts_of_X: list[Delayed]  #: their partitions
    layout: Layout  #: of the collection, for columns that come later
    scale: TargetScale = IDENTITY
    backend: str = "pandas"

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of training rows and of outputs."""
        return sum(self.training_rows.sizes), self.adapter.n_outputs

    @property
    def shards(self) -> PartitionShards:
        """The partitions of the training rows."""
        rows = self.training_rows
        return PartitionShards(self.cluster, rows.partitions, rows.sizes)

    @property
    def filled_shards(self) -> PartitionShards:
        """The partitions that have rows."""
        rows = self.training_rows
        filled = [number for number, size in enumerate(rows.sizes) if size]
        return PartitionShards(
            self.cluster,
            [rows.partitions[number] for number in filled],
            [rows.sizes[number] for number in filled],
        )

    @property
    def targets(self) -> Collection:
        """(N, K): a Dask array of the targets as given, in the partitions of the collection."""
        return self._column("targets", (self.shape[1],), np.float64)

    @property
    def index(self) -> Collection:
        """(N,): a Dask array of the labels of the training rows, in these partitions."""
        return self._column("index", (), self.training_rows.label_dtype)

    def _column(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Collection:
        """Return an attribute of all partitions as one Dask array."""
        rows = self.training_rows
        columns = [
            da.from_delayed(getattr(partition, name), (size, *shape), dtype)
            for partition, size in zip(rows.partitions, rows.sizes)
            if size
        ]
        return da.concatenate(columns)

    @property
    def gathered(self) -> tuple[FloatArray, NDArray[Any]]:
        """Targets and labels of all rows, in this process."""
        return self.kept.get("gathered", self._gather)

    def _gather(self) -> tuple[FloatArray, NDArray[Any]]:
        rows = self.training_rows
        filled = [partition for partition, size in zip(rows.partitions, rows.sizes) if size]
        targets = self.cluster.collect([partition.targets for partition in filled])
        labels = self.cluster.collect([partition.index for partition in filled])
        return np.concatenate(targets), np.concatenate(labels)

    @property
    def table(self) -> None:
        """The features of the training rows in this process, of which there are none."""
        return None

    def share_of(self, rows: Sequence[Sequence[int]]) -> float:
        """Return the share of some rows in the number of all: weights stay in the partitions."""
        return sum(map(len, rows)) / max(self.shape[0], 1)

    # -- explained rows ----------------------------------------------------------------------------

    def queries(self, X: Features, init_score: UserValues = None) -> QueryBatch:
        """Return the rows of X and their offsets, checked."""
        if dask.is_dask_collection(X):
            raise InputError(
                "X is a Dask collection; expected the rows to explain in memory. Pass X.compute(), "
                "in batches."
            )
        inputs.refuse_other_order(X, init_score, "init_score", "X")
        rows = inputs.as_features(X, self.adapter, "X")
        self.warn_of_unseen(rows)
        offsets = Offsets.of(init_score, rows.shape[0], self.adapter)
        return QueryBatch(self.adapter, rows, offsets, inputs.row_labels(rows), self.n_threads)

    def batches(
        self, queries: QueryBatch, size: int, what: str, even_empty: bool = False
    ) -> Iterator[tuple[int, QueryBatch]]:
        """Yield batches that are small enough to be sent to the workers."""
        n_sent = self.most_asked()
        for start, batch in super().batches(queries, size, what, even_empty):
            for first in range(0, max(len(batch), 1), n_sent):
                yield start + first, batch[first : first + n_sent]

    @abstractmethod
    def most_asked(self) -> int:
        """Return how many explained rows are sent to the workers at a time."""

    # -- columns -----------------------------------------------------------------------------------

    def column_names(self, rows: Features) -> list[str]:
        """Return the names of the features."""
        return inputs.column_names((rows,), self.adapter.feature_names, rows.shape[1])

    def cut(self, values: Collection, name: str) -> list[Delayed]:
        """Return the partitions of a collection, which must be those of the training rows."""
        return partitions(values, name, self.layout)

    def gathered_values(self, values: Collection, name: str) -> NDArray[Any]:
        """Return a user's values of all training rows in this process, in the order of the rows."""
        numbered = [[number, name, column] for number, column in enumerate(self.cut(values, name))]
        parts = self.shards.collected(ordered_values, None, numbered)
        return np.concatenate([values_here for values_here in parts if len(values_here)])

    def coded(self, labels: Collection | str, what: str = "groups") -> Sequence[Delayed]:
        """Return each row's group number and the names of the groups, partition by partition."""
        if isinstance(labels, str):
            labels = self._feature(labels, what)
        return self.shards.each(coded_rows, what, self.cut(labels, what))

    def gathered_groups(
        self, labels: Collection | str, what: str = "groups"
    ) -> tuple[IntArray, NDArray[Any]]:
        """Return the group number of each training row and the groups' names, in this process."""
        pairs = self.cluster.collect(list(self.coded(labels, what)))
        row_names = np.concatenate([names[codes] for codes, names in pairs if len(codes)])
        return inputs.group_codes(row_names, len(row_names), what)

    def n_groups(self, coded: Sequence[Delayed]) -> int:
        """Return how many groups there are at most."""
        return sum(self.cluster.collect([task(len, pair[1]) for pair in coded]))

    def _feature(self, column: str | int, name: str) -> Collection:
        """Return a column of the collection, by name or position."""
        if isinstance(self.features, da.Array):
            names = inputs.column_names((), self.adapter.feature_names, self.features.shape[1])
            return self.features[:, inputs.chosen_columns(column, names, name)[0]]
        names = [str(column_name) for column_name in self.features.columns]
        place = inputs.chosen_columns(column, names, name)[0]
        return self.features.iloc[:, place]

    def choice(self, known: Columns, k: int, rules: Rules) -> tuple[Choice, Sequence[Delayed]]:
        """Return how rows are chosen, and which of each partition may be listed; see `similar`."""
        choice = Choice(
            inputs.as_count(k, "k"), distinct=rules.distinct is not None, n_threads=self.n_threads
        )
        no_column: list[Delayed] = [None] * len(self.training_rows.sizes)
        masks = no_column
        masks_by_row = no_column
        keys = no_column
        values = no_column
        dropped = no_column
        if rules.dropped is not None:
            dropped = [rules.dropped[a:b] for a, b in pairwise(self.shards.starts)]
        if rules.is_by_query:
            masks_by_row = self._masks_by_row(known, rules)
        elif rules.among is not None:
            masks = self._masks(rules.among)
        if rules.distinct is not None:
            keys = self.cut(self._distinct_column(rules.distinct), "distinct")
        origin: Any = None
        if rules.within is not None or rules.asof is not None:
            place = rules.column(known)[0]
            points, what, _ = rules.points(known)
            column = self._feature(place, "within")
            origin = (known.names[place], points[:1], what)
            if isinstance(column.dtype, np.dtype):
                dtype = column.dtype
            else:
                dtype = np.dtype(object)
            choice = replace(choice, ranges=rules.ranges(known, dtype))
            values = self.cut(column, "within")
        columns = zip(range(len(no_column)), masks, dropped, masks_by_row, keys, values)
        return choice, self.shards.each(allowed_rows, origin, [list(rows) for rows in columns])

    def _distinct_column(self, distinct: Collection | str | int) -> Collection:
        if isinstance(distinct, str) or inputs.is_whole(distinct):
            return self._feature(distinct, "distinct")
        return distinct

    def _masks_by_row(self, known: Columns, rules: Rules) -> list[list[Delayed]]:
        """Return for each partition its part of the mask of each explained row."""
        masks = [self._masks(rules.among, row) for row in known.each_query()]
        if masks:
            return [list(masks_here) for masks_here in zip(*masks)]
        return [[] for _ in self.training_rows.sizes]

    def _masks(
        self, among: Collection | Callable[..., Collection], *row: Features
    ) -> list[Delayed]:
        """Return the partitions of a mask of the rows that may be listed.

        It is a collection, or a function of the training rows.
        """
        if callable(among) and not dask.is_dask_collection(among):
            among = said_by(among, self.features, *row, rows="the Dask collection X_train")
        return self.cut(among, "among")

    def features_of(self, known: Columns) -> Callable[[IntArray, list[int]], list[Any]]:
        """Return a function that looks up columns of training rows by position."""
        return self._features

    def _features(self, positions: NDArray[np.int64], columns: list[int]) -> list[NDArray[Any]]:
        """Return columns of training rows from the user's collection, both by position."""
        rows, inverse = np.unique(positions, return_inverse=True)
        rows_by_partition = list(by_partition(rows, self.shards.starts))
        tasks = [
            task(recomputed_rows, self.parts_of_X[p], self.training_rows.partitions[p], rows_here)
            for p, rows_here in rows_by_partition
        ]
        results: list[RecomputedRows] = self.cluster.collect(tasks)
        columns_by_partition = [
            self._checked_columns(p, recomputed, columns)
            for (p, _), recomputed in zip(rows_by_partition, results)
        ]
        if not columns_by_partition:
            return [np.empty(0) for _ in columns]
        if columns:
            return [np.concatenate(column)[inverse] for column in zip(*columns_by_partition)]
        return []

    @property
    @abstractmethod
    def trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The number of leaves of each tree, (T,), and which trees each entry has."""

    def _checked_columns(
        self, number: int, recomputed: RecomputedRows, columns: list[int]
    ) -> list[NDArray[Any]]:
        """Return columns of rows that were computed again; they must be those of the replay."""
        X = inputs.as_features(recomputed.X, self.adapter, "X")
        n_rows = X.shape[0]
        n_leaves, entries = self.trees
        leaves = assign_leaves(self.adapter, X, n_rows, n_leaves, self.limits)
        is_same = not hasattr(X, "index") or np.array_equal(inputs.row_labels(X), recomputed.labels)
        for trees, leaves_before in zip(entries, recomputed.leaves):
            is_same = is_same and np.array_equal(leaves[trees], leaves_before)
        if not is_same:
            raise InputError(
                f"Rows of partition {number} (from 0) of X_train are not those that the explainer "
                f"was made of; {NOT_THE_SAME}. Persist it, or make the explainer again."
            )
        return inputs.feature_columns(X, np.arange(n_rows), columns)


# -- the work on one partition ---------------------------------------------------------------------


def refuse_other_order(shard: PartitionRows, values: UserValues, name: str) -> None:
    """Refuse values of a partition's rows that are labelled in another order."""
    labelled = pd.Series(np.zeros(len(shard.index)), index=shard.index)
    inputs.refuse_other_order(labelled, values, name, instead="Sort it like X_train.")


def ordered_values(shard: PartitionRows, _: None, numbered: list[Any]) -> NDArray[Any]:
    """Return a user's values of these rows, from the partition's number, their name and them."""
    number, name, values = numbered
    with named(number):
        refuse_other_order(shard, values, name)
        array = np.asarray(values)
        if len(array) != len(shard.index):
            raise InputError(
                f"{name} has {len(array)} rows and X {len(shard.index)}; expected the same rows."
            )
        return array


def coded_rows(
    shard: PartitionRows, name: str, labels: UserValues
) -> tuple[IntArray, NDArray[Any]]:
    """Return each row's group number and the names of the groups."""
    refuse_other_order(shard, labels, name)
    return inputs.group_codes(labels, len(shard.index), name)


def allowed_rows(shard: PartitionRows, origin: Any, columns: list[Any]) -> Allowed:
    """Return the rows of a partition that may be listed.

    Parameters
    ----------
    shard : PartitionRows
    origin : tuple or None
        What the values are measured from, as `measured` takes it.
    columns : list
        The number of the partition, then its mask, which rows are dropped, the masks of each
        explained row, its labels and its values as the user gave them; None where there are none.
    """
    number, mask, dropped, masks_by_row, keys, values = columns
    n_rows = len(shard.index)
    with named(number):
        for row_mask in masks_by_row or ():
            refuse_other_order(shard, row_mask, "among")
        for name, column in (("among", mask), ("distinct", keys), ("within", values)):
            refuse_other_order(shard, column, name)
        among = None
        if mask is not None or dropped is not None:
            is_allowed = np.ones(n_rows, dtype=np.bool_)
            if mask is not None:
                is_allowed &= inputs.as_mask(mask, n_rows, "among")
            if dropped is not None:
                is_allowed &= ~dropped
            among = np.flatnonzero(is_allowed)
        bits = None
        if masks_by_row is not None:
            bits = packed(
                (inputs.as_mask(row_mask, n_rows, "among") for row_mask in masks_by_row), n_rows
            )
        labels = None
        codes = None
        if keys is not None:
            labels = inputs.as_labels(keys, n_rows, "distinct").astype(object)
            codes = inputs.label_codes(labels, n_rows, "distinct")
        points = None
        if values is not None:
            points = measured(np.asarray(values), *origin)
    return Allowed(among, bits, codes, labels, points)


@dataclass(frozen=True)
class RecomputedRows:
    """Rows of a partition as its collection has them now, and the leaves of their replay."""

    X: Any  #: (n, features)
    labels: NDArray[Any]  #: (n,) when they were replayed
    leaves: list[NDArray[Any]]  #: (T, n) for each entry of the fitted trees


def recomputed_rows(X: Features, partition: Delayed, rows: IntArray) -> RecomputedRows:
    """Return some rows of a partition, by position."""
    if X.shape[0] != len(partition.index):
        raise InputError(
            f"A partition of X_train has {X.shape[0]} rows now and had {len(partition.index)} when "
            f"the explainer was made; {NOT_THE_SAME}."
        )
    return RecomputedRows(
        inputs.take_rows(X, rows), partition.index[rows], partition.leaves_of(rows)
    )


def by_partition(
    positions: NDArray[np.int64], starts: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the partitions of some rows, and the rows' positions there.

    Parameters
    ----------
    positions : array
        Sorted positions among all rows.
    starts : array
        The first position of each partition, and the number of all rows.
    """
    owners = np.searchsorted(starts, positions, side="right") - 1
    for p in np.unique(owners):
        yield int(p), positions[owners == p] - starts[p]

"""Columns of training rows in the partitions of Dask collections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from axil import inputs
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.dask.cluster import (
    Collection,
    Delayed,
    Features,
    PartitionRows,
    UserValues,
    named,
    partitions,
    task,
)
from axil.errors import InputError, shown
from axil.output.near_rules import Measure
from axil.output.rules import Rules, said_by
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice, packed
from axil.replay.recover import assign_leaves
from axil.replay.training_columns import Positions, TrainingColumns

if TYPE_CHECKING:
    from axil.dask.model import PartitionedModel

NOT_THE_SAME = "expected a collection that is the same whenever it is computed"


@dataclass(frozen=True, eq=False)
class PartitionedColumns(TrainingColumns):
    """The columns of training rows in partitions."""

    model: PartitionedModel

    @property
    def table(self) -> None:
        """None: the features of the training rows are not in this process."""
        return None

    @property
    def by_shard(self) -> list[Delayed]:
        """The partitions of the features."""
        return self.model.parts_of_X

    def gathered(self) -> tuple[FloatArray, AnyArray]:
        """Targets and labels of all rows, in this process."""
        return self.model.kept.get("gathered", self._gather)

    def _gather(self) -> tuple[FloatArray, AnyArray]:
        rows = self.model.training_rows
        filled = [partition for partition, size in zip(rows.partitions, rows.sizes) if size]
        targets = self.model.cluster.collect([partition.targets for partition in filled])
        labels = self.model.cluster.collect([partition.index for partition in filled])
        return np.concatenate(targets), np.concatenate(labels)

    def names(self, rows: Features) -> list[str]:
        """Return the names of the features."""
        return inputs.column_names((rows,), self.model.adapter.feature_names, rows.shape[1])

    def cut(self, values: Collection, name: str) -> list[Delayed]:
        """Return the partitions of a collection, which must be those of the training rows."""
        return partitions(values, name, self.model.layout)

    def gathered_values(self, values: Collection, name: str) -> AnyArray:
        """Return a user's values of all training rows in this process, in the order of the rows."""
        numbered = [[number, name, column] for number, column in enumerate(self.cut(values, name))]
        parts = self.model.shards.collected(ordered_values, None, numbered)
        return np.concatenate([values_here for values_here in parts if len(values_here)])

    def group_codes(self, labels: Collection | str, name: str = "groups") -> Sequence[Delayed]:
        """Return each row's group number and the names of the groups, partition by partition."""
        return self._partition_codes(labels, name)

    def gathered_group_codes(
        self, labels: Collection | str, name: str = "groups"
    ) -> tuple[IntArray, AnyArray]:
        """Return the group number of each training row and the groups' names, in this process."""
        pairs = self.model.cluster.collect(list(self._partition_codes(labels, name)))
        row_names = np.concatenate([names[codes] for codes, names in pairs if len(codes)])
        return inputs.group_codes(row_names, len(row_names), name)

    def _partition_codes(self, labels: Collection | str, name: str) -> Sequence[Delayed]:
        if isinstance(labels, str):
            labels = self._feature(labels, name)
        return self.model.shards.each(coded_rows, name, self.cut(labels, name))

    def most_groups(self, group_codes: Sequence[Delayed]) -> int:
        """Return the largest possible number of groups."""
        return sum(self.model.cluster.collect([task(len, pair[1]) for pair in group_codes]))

    def _feature(self, column: str | int, name: str) -> Collection:
        """Return a column of the collection, by name or position."""
        if isinstance(self.model.features, da.Array):
            names = inputs.column_names(
                (), self.model.adapter.feature_names, self.model.features.shape[1]
            )
            return self.model.features[:, inputs.chosen_columns(column, names, name)[0]]
        names = [str(column_name) for column_name in self.model.features.columns]
        place = inputs.chosen_columns(column, names, name)[0]
        return self.model.features.iloc[:, place]

    def choice(self, listed: Columns, k: int, rules: Rules) -> tuple[Choice, Sequence[Delayed]]:
        """Return how rows are chosen, and which of each partition may be listed; see `similar`."""
        choice = Choice(
            inputs.as_count(k, "k"),
            distinct=rules.distinct is not None,
            n_threads=self.model.n_threads,
        )
        no_column: list[Delayed] = [None] * len(self.model.training_rows.sizes)
        masks = no_column
        masks_by_row = no_column
        keys = no_column
        values: list[list[Delayed]] = [[] for _ in no_column]
        dropped = no_column
        if rules.dropped is not None:
            dropped = [rules.dropped[a:b] for a, b in pairwise(self.model.shards.starts)]
        if rules.is_by_query:
            masks_by_row = self._masks_by_row(listed, rules)
        elif rules.among is not None:
            masks = self._masks(rules.among)
        if rules.distinct is not None:
            keys = self.cut(self._distinct_column(rules.distinct), "distinct")
        near = []
        measures = []
        for rule in rules.near(listed):
            columns = [self._feature(column, "within") for column in rule.columns]
            near.append(rule.nearness([_numpy_dtype(column) for column in columns]))
            measures.append((rule.measure, len(columns)))
            for column in columns:
                for values_here, part in zip(values, self.cut(column, "within")):
                    values_here.append(part)
        choice = replace(choice, near=tuple(near))
        by_partition = zip(range(len(no_column)), masks, dropped, masks_by_row, keys, values)
        return choice, self.model.shards.each(
            allowed_rows, measures, [list(rows) for rows in by_partition]
        )

    def _distinct_column(self, distinct: Collection | str | int) -> Collection:
        if isinstance(distinct, str) or inputs.is_whole(distinct):
            return self._feature(distinct, "distinct")
        return distinct

    def _masks_by_row(self, listed: Columns, rules: Rules) -> list[list[Delayed]]:
        """Return for each partition its part of the mask of each explained row."""
        masks = [self._masks(rules.among, row) for row in listed.each_query()]
        if masks:
            return [list(masks_here) for masks_here in zip(*masks)]
        return [[] for _ in self.model.training_rows.sizes]

    def _masks(
        self, among: Collection | Callable[..., Collection], *row: Features
    ) -> list[Delayed]:
        """Return the partitions of a mask of the rows that may be listed.

        It is a collection, or a function of the training rows.
        """
        if callable(among) and not dask.is_dask_collection(among):
            among = said_by(among, self.model.features, *row, rows="the Dask collection X_train")
        return self.cut(among, "among")

    def lookup(self, listed: Columns) -> Callable[[IntArray, Sequence[int]], list[AnyArray | None]]:
        """Return a function that looks up columns of training rows by position."""
        return self._columns_at

    def _columns_at(self, positions: IntArray, columns: Sequence[int]) -> list[AnyArray | None]:
        """Return columns of training rows from the user's collection, both by position."""
        rows, inverse = np.unique(positions, return_inverse=True)
        rows_by_partition = list(by_partition(rows, self.model.shards.starts))
        tasks = [
            task(
                recomputed_rows,
                self.model.parts_of_X[p],
                self.model.training_rows.partitions[p],
                rows_here,
            )
            for p, rows_here in rows_by_partition
        ]
        results: list[RecomputedRows] = self.model.cluster.collect(tasks)
        columns_by_partition = [
            self._checked_columns(p, recomputed, columns)
            for (p, _), recomputed in zip(rows_by_partition, results)
        ]
        if not columns_by_partition:
            return [np.empty(0) for _ in columns]
        if columns:
            return [np.concatenate(column)[inverse] for column in zip(*columns_by_partition)]
        return []

    def positions(self, rows: UserValues) -> Positions:
        """Return the positions of some rows in each partition.

        Labels name them, or truth values of X_train mark them.
        """
        if dask.is_dask_collection(rows):
            masks = [list(numbered) for numbered in enumerate(self.cut(rows, "rows"))]
            return [
                marks.tolist() for marks in self.model.shards.collected(marked_rows, None, masks)
            ]
        labels = inputs.asked_labels(rows)
        places = self.model.shards.collected(labelled_rows, labels)
        which_labels = np.concatenate([pair[0] for pair in places])
        missing = np.flatnonzero(np.bincount(which_labels, minlength=len(labels)) == 0)
        if len(missing):
            raise InputError(
                f"rows names row {shown(labels[missing[0]])} ({len(missing)} of {len(labels)} are "
                "unknown); expected labels of training rows: the index of a Dask DataFrame, else "
                "positions from 0."
            )
        return [pair[1].tolist() for pair in places]

    def positions_by_partition(self, rows: IntArray) -> list[IntArray]:
        """Return the positions in each partition of rows by their numbers among all, sorted."""
        starts = self.model.shards.starts
        return [rows[(rows >= first) & (rows < last)] - first for first, last in pairwise(starts)]

    def out_of_fold(self, predictions: Collection) -> Any:
        """Return the partitions of out-of-fold predictions."""
        return self.cut(predictions, "out_of_fold")

    def gathered_table(self, values: Collection, name: str) -> FloatArray:
        """Return a user's number for every training row and output, (N, K), in this process."""
        numbered = [[number, name, column] for number, column in enumerate(self.cut(values, name))]
        return np.concatenate(self.model.shards.collected(table_of, None, numbered))

    def ordered_values(self, values: Collection, name: str) -> Collection:
        """Return a user's values; their order is compared partition by partition."""
        return values

    def column_for_categories(self, name: str) -> None:
        """Return None: the columns are not in this process."""
        return None

    def _checked_columns(
        self, number: int, recomputed: RecomputedRows, columns: Sequence[int]
    ) -> list[AnyArray]:
        """Return columns of recomputed rows after checking that they are those of the replay."""
        X = inputs.as_features(recomputed.X, self.model.adapter, "X")
        n_rows = X.shape[0]
        n_leaves, entries = self.model.tree_layout
        leaves = assign_leaves(self.model.adapter, X, n_rows, n_leaves, self.model.limits)
        is_same = not hasattr(X, "index") or np.array_equal(inputs.row_labels(X), recomputed.labels)
        for trees, leaves_before in zip(entries, recomputed.leaves):
            is_same = is_same and np.array_equal(leaves[trees], leaves_before)
        if not is_same:
            raise InputError(
                f"Rows of partition {number} (from 0) of X_train are not those that the explainer "
                f"was made of; {NOT_THE_SAME}. Persist it, or make the explainer again."
            )
        return inputs.feature_columns(X, np.arange(n_rows), list(columns))


@dataclass(frozen=True, eq=False)
class GatheredColumns(PartitionedColumns):
    """The columns of training rows in partitions; those that users pass are gathered here."""

    def positions(self, rows: UserValues) -> IntArray:
        """Return the positions of the rows that labels name, or truth values mark."""
        return inputs.named_rows(rows, self.gathered()[1])

    def group_codes(self, labels: Collection | str, name: str = "groups") -> Sequence[Any]:
        """Return the group of each row and the names of the groups, of all rows together."""
        return [self.gathered_group_codes(labels, name)]

    def ordered_values(self, values: Collection, name: str) -> AnyArray:
        """Return a user's values of all training rows, from a collection in their order."""
        return self.gathered_values(values, name)

    def out_of_fold(self, predictions: Collection) -> FloatArray:
        """Return the user's out-of-fold predictions of all training rows, (N, K)."""
        return self.gathered_table(predictions, "out_of_fold")


# -- the work on one partition ---------------------------------------------------------------------


def refuse_other_order(shard: PartitionRows, values: UserValues, name: str) -> None:
    """Refuse values of a partition's rows that are labelled in another order."""
    labelled = pd.Series(np.zeros(len(shard.index)), index=shard.index)
    inputs.refuse_other_order(labelled, values, name, instead="Sort it like X_train.")


def ordered_values(shard: PartitionRows, _: None, numbered: list[Any]) -> AnyArray:
    """Return a user's values of the rows of a partition."""
    number, name, values = numbered
    with named(number):
        refuse_other_order(shard, values, name)
        array = np.asarray(values)
        if len(array) != len(shard.index):
            raise InputError(
                f"{name} has {len(array)} rows and X {len(shard.index)}; expected the same rows."
            )
        return array


def coded_rows(shard: PartitionRows, name: str, labels: UserValues) -> tuple[IntArray, AnyArray]:
    """Return each row's group number and the names of the groups."""
    refuse_other_order(shard, labels, name)
    return inputs.group_codes(labels, len(shard.index), name)


def _numpy_dtype(column: Collection) -> np.dtype[Any]:
    """Return the type of a column; object for types that NumPy does not have."""
    if isinstance(column.dtype, np.dtype):
        return column.dtype
    return np.dtype(object)


def allowed_rows(
    shard: PartitionRows, measures: list[tuple[Measure, int]], columns: list[Any]
) -> Allowed:
    """Return the rows of a partition that may be listed.

    Parameters
    ----------
    shard : PartitionRows
    measures : list
        For each rule of ``within``, how columns become values, and how many columns it has.
    columns : list
        The number of the partition, then its mask, which rows are dropped, the masks of each
        explained row, its labels, and the list of all columns of the rules; None if there are none.
    """
    number, mask, dropped, masks_by_row, keys, near_columns = columns
    n_rows = len(shard.index)
    with named(number):
        for row_mask in masks_by_row or ():
            refuse_other_order(shard, row_mask, "among")
        for name, column in (("among", mask), ("distinct", keys)):
            refuse_other_order(shard, column, name)
        for column in near_columns:
            refuse_other_order(shard, column, "within")
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
        values = _values_of_rules(measures, near_columns)
    return Allowed(among, bits, codes, labels, values)


def _values_of_rules(
    measures: list[tuple[Measure, int]], columns: Sequence[UserValues]
) -> tuple[AnyArray, ...]:
    """Return the values of the rows of a partition that each rule of ``within`` compares."""
    values = []
    first = 0
    for measure, n_columns in measures:
        columns_of_rule = columns[first : first + n_columns]
        values.append(measure.values([np.asarray(column) for column in columns_of_rule]))
        first += n_columns
    return tuple(values)


@dataclass(frozen=True)
class RecomputedRows:
    """Rows of a partition as its collection has them now, and the leaves of their replay."""

    X: FeatureTable  #: (n, features)
    labels: AnyArray  #: (n,) when they were replayed
    leaves: list[AnyArray]  #: (T, n) for each entry of the fitted trees


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


def labelled_rows(shard: PartitionRows, labels: AnyArray, _: None) -> IntArray:
    """Return which of the labels these rows have, and their positions, (2, n_labels_here)."""
    return inputs.places_among(labels, shard.index)


def marked_rows(shard: PartitionRows, _: None, numbered: list[Any]) -> IntArray:
    """Return the positions of the rows with a true value; for ``numbered`` see `table_of`."""
    number, mask = numbered
    with named(number):
        return np.flatnonzero(inputs.as_mask(mask, len(shard.index), "rows"))


def table_of(shard: PartitionRows, _: None, numbered: list[Any]) -> FloatArray:
    """Return a user's numbers of these rows, (n, K).

    ``numbered`` has the number of the partition, the name of the argument, and the numbers.
    """
    number, name, values = numbered
    n_rows, n_outputs = shard.targets.shape
    with named(number):
        refuse_other_order(shard, values, name)
        return inputs.as_table(values, n_rows, n_outputs, name)

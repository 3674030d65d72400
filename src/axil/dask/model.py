"""VerifiedModel models whose training rows lie in the partitions of Dask collections; each partition is a shard."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import FloatArray, IntArray
from axil.attribution import Location
from axil.dask.cluster import Cluster, partitions, task
from axil.dask.on_workers import HeldRows, OnWorkers
from axil.dask.training_rows import named
from axil.errors import InputError
from axil.machine.memory import Limits
from axil.output.rules import measured, said_by
from axil.reductions.choice import Allowed, Choice, packed
from axil.replay.queries import Offsets, QueryBatch
from axil.replay.recover import assign_leaves
from axil.replay.verified_model import VerifiedModel
from axil.scale import IDENTITY, TargetScale


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedModel(VerifiedModel):
    """A model proven on training rows in partitions, whatever its kind."""

    location = Location.PARTITIONS

    adapter: Any
    training_rows: HeldRows
    cluster: Cluster
    limits: Limits
    verification: Any
    features: Any  #: the user's collection of training rows
    parts_of_X: list[Any]  #: its partitions, delayed
    layout: tuple[float, ...]  #: of the collection, for columns that come later
    scale: TargetScale = IDENTITY
    backend: str = "pandas"

    @property
    def shape(self) -> tuple[int, int]:
        return sum(self.training_rows.sizes), self.adapter.n_outputs

    @property
    def shards(self) -> OnWorkers:
        return OnWorkers(self.cluster, self.training_rows.partitions, self.training_rows.sizes)

    @property
    def targets(self) -> Any:
        """(N, K): a Dask array of the targets as given, in the partitions of the collection."""
        return self._column("targets", (self.shape[1],), np.float64)

    @property
    def index(self) -> Any:
        """(N,): a Dask array of the labels of the training rows, in the partitions of the collection."""
        return self._column("index", (), self.training_rows.label_dtype)

    def _column(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        rows = self.training_rows
        columns = [
            da.from_delayed(getattr(partition, name), (size, *shape), dtype)
            for partition, size in zip(rows.partitions, rows.sizes)
            if size
        ]
        return da.concatenate(columns)

    @property
    def gathered(self) -> tuple[FloatArray, NDArray[Any]]:
        """Targets and labels of all rows, for explanations that have all their effects anyhow."""
        return self.kept.get("gathered", self._gather)

    def _gather(self) -> tuple[FloatArray, NDArray[Any]]:
        rows = self.training_rows
        filled = [partition for partition, size in zip(rows.partitions, rows.sizes) if size]
        targets = self.cluster.collect([partition.targets for partition in filled])
        labels = self.cluster.collect([partition.index for partition in filled])
        return np.concatenate(targets), np.concatenate(labels)

    @property
    def table(self) -> Any:
        return None

    def share_of(self, rows: Any) -> float:
        """The share of the number of rows: their weights stay in the partitions."""
        return sum(map(len, rows)) / max(self.shape[0], 1)

    # -- queries -----------------------------------------------------------------------------------

    def queries(self, X: Any, init_score: Any = None) -> QueryBatch:
        if dask.is_dask_collection(X):
            raise InputError(
                "X is a Dask collection; expected the rows to explain in memory. Pass X.compute(), in batches."
            )
        inputs.refuse_other_order(X, init_score, "init_score", "X")
        rows = inputs.as_features(X, self.adapter, "X")
        self.warn_of_unseen(rows)
        offsets = Offsets.of(init_score, rows.shape[0], self.adapter)
        return QueryBatch(self.adapter, rows, offsets, inputs.row_labels(rows), self.n_threads)

    def batches(
        self, queries: QueryBatch, size: int, what: str, even_empty: bool = False
    ) -> Iterator[tuple[int, QueryBatch]]:
        most = self.most_asked()
        for start, batch in super().batches(queries, size, what, even_empty):
            for first in range(0, max(len(batch), 1), most):
                yield start + first, batch[first : first + most]

    @abstractmethod
    def most_asked(self) -> int:
        """How many queries are sent to the workers at a time."""

    # -- columns -----------------------------------------------------------------------------------

    def column_names(self, rows: Any) -> list[str]:
        return inputs.column_names((rows,), self.adapter.feature_names, rows.shape[1])

    def cut(self, given: Any, what: str) -> list[Any]:
        """Partitions of a collection that has those of the training rows."""
        return partitions(given, what, self.layout)

    def coded(self, labels: Any, what: str = "groups") -> Sequence[Any]:
        if isinstance(labels, str):
            labels = self._feature(labels, what)
        return self.shards.each(coded_rows, what, self.cut(labels, what))

    def gathered_groups(self, labels: Any, what: str = "groups") -> tuple[IntArray, NDArray[Any]]:
        coded = self.cluster.collect(list(self.coded(labels, what)))
        row_names = np.concatenate([names[codes] for codes, names in coded if len(codes)])
        return inputs.group_codes(row_names, len(row_names), what)

    def n_groups(self, coded: Sequence[Any]) -> int:
        return sum(self.cluster.collect([task(len, pair[1]) for pair in coded]))

    def _feature(self, name: Any, what: str) -> Any:
        """A column of the collection, by name or position."""
        if isinstance(self.features, da.Array):
            names = inputs.column_names((), self.adapter.feature_names, self.features.shape[1])
            return self.features[:, inputs.chosen_columns(name, names, what)[0]]
        place = inputs.chosen_columns(
            name, [str(column) for column in self.features.columns], what
        )[0]
        return self.features.iloc[:, place]

    def choice(self, known: Any, k: Any, rules: Any) -> tuple[Any, Sequence[Any]]:
        choice = Choice(
            inputs.as_count(k, "k"), distinct=rules.distinct is not None, n_threads=self.n_threads
        )
        nothing: list[Any] = [None] * len(self.training_rows.sizes)
        masks = nothing
        by_query = nothing
        keys = nothing
        values = nothing
        if rules.is_by_query:
            each = [self._masks(rules.among, one) for one in known.each_query()]
            if each:
                by_query = [list(own) for own in zip(*each)]
            else:
                by_query = [[] for _ in nothing]
        elif rules.among is not None:
            masks = self._masks(rules.among)
        if rules.distinct is not None:
            named = isinstance(rules.distinct, str) or inputs.is_whole(rules.distinct)
            keys = self.cut(
                self._feature(rules.distinct, "distinct") if named else rules.distinct, "distinct"
            )
        about: Any = None
        if rules.within is not None or rules.asof is not None:
            place, (points, what, _) = rules.column(known)[0], rules.points(known)
            column = self._feature(place, "within")
            about = (known.names[place], points[:1], what)
            if isinstance(column.dtype, np.dtype):
                own = column.dtype
            else:
                own = np.dtype(object)
            choice = replace(choice, ranges=rules.ranges(known, own))
            values = self.cut(column, "within")
        given = zip(range(len(nothing)), masks, by_query, keys, values)
        return choice, self.shards.each(allowed_rows, about, [list(one) for one in given])

    def _masks(self, among: Any, *query: Any) -> list[Any]:
        """Partitions of a mask of the rows that may be listed: given as a collection, or by a function of the training rows."""
        if callable(among) and not hasattr(among, "dask"):
            among = said_by(among, self.features, *query, rows="the Dask collection X_train")
        return self.cut(among, "among")

    def features_of(self, known: Any) -> Callable[[IntArray, list[int]], list[Any]]:
        return self._features

    def _features(self, positions: NDArray[np.int64], wanted: list[int]) -> list[NDArray[Any]]:
        """These columns, by position, of the rows at these positions among all, from the user's collection."""
        rows, back = np.unique(positions, return_inverse=True)
        pairs = list(by_partition(rows, self.shards.starts))
        found: list[Taken] = self.cluster.collect(
            [
                task(taken, self.parts_of_X[p], self.training_rows.partitions[p], own)
                for p, own in pairs
            ]
        )
        parts = [self._checked(p, one, wanted) for (p, _), one in zip(pairs, found)]
        if not parts:
            return [np.empty(0) for _ in wanted]
        if wanted:
            return [np.concatenate(column)[back] for column in zip(*parts)]
        return []

    @property
    @abstractmethod
    def trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        """(T,) the leaves of all the model's trees; and for each entry of the fitted trees which of them it has."""

    def _checked(self, p: int, one: Taken, wanted: list[int]) -> list[NDArray[Any]]:
        """The columns of rows that the collection gives again; they must be those of the replay."""
        X = inputs.as_features(one.X, self.adapter, "X")
        n = X.shape[0]
        same = not hasattr(X, "index") or np.array_equal(inputs.row_labels(X), one.labels)
        n_leaves, entries = self.trees
        now = assign_leaves(self.adapter, X, n, n_leaves, self.limits)
        same = same and all(
            np.array_equal(now[own], then) for own, then in zip(entries, one.leaves)
        )
        if not same:
            raise InputError(
                f"Rows of partition {p} (from 0) of X_train are not those that the explainer was made of; expected a collection "
                "that is the same whenever it is computed. Persist it, or make the explainer again."
            )
        return inputs.feature_columns(X, np.arange(n), wanted)


def refuse_other_order(shard: Any, given: Any, what: str) -> None:
    """`inputs.refuse_other_order` for values of a partition's rows."""
    labelled = pd.Series(np.zeros(len(shard.index)), index=shard.index)
    inputs.refuse_other_order(labelled, given, what, instead="Sort it like X_train.")


def coded_rows(shard: Any, what: str, labels: Any) -> tuple[IntArray, NDArray[Any]]:
    """Each row's group number and the names of the groups."""
    refuse_other_order(shard, labels, what)
    return inputs.group_codes(labels, len(shard.index), what)


def allowed_rows(shard: Any, about: Any, given: list[Any]) -> Allowed:
    """The rows of a partition that may be listed: its number, then masks, labels and values as given, None for none.

    ``about`` says what the values are measured from, as `measured` takes it.
    """
    number, mask, masks, keys, values = given
    n = len(shard.index)
    with named(number):
        every = [("among", one) for one in masks or ()]
        for what, own in (*every, ("among", mask), ("distinct", keys), ("within", values)):
            refuse_other_order(shard, own, what)
        if mask is None:
            among = None
        else:
            among = np.flatnonzero(inputs.as_mask(mask, n, "among"))
        if masks is None:
            bits = None
        else:
            bits = packed((inputs.as_mask(one, n, "among") for one in masks), n)
        if keys is None:
            labels = None
        else:
            labels = inputs.as_labels(keys, n, "distinct").astype(object)
        if labels is None:
            codes = None
        else:
            codes = inputs.label_codes(labels, n, "distinct")
        if values is None:
            points = None
        else:
            points = measured(np.asarray(values), *about)
    return Allowed(among, bits, codes, labels, points)


@dataclass(frozen=True)
class Taken:
    """Some rows of a partition, as its collection has them now, and as they were when they were replayed."""

    X: Any  #: (n, features)
    labels: NDArray[Any]  #: (n,) then
    leaves: list[NDArray[Any]]  #: (T, n) then, for each entry of the fitted trees


def taken(X: Any, partition: Any, rows: IntArray) -> Taken:
    """The features of these rows."""
    if X.shape[0] != len(partition.index):
        raise InputError(
            f"A partition of X_train has {X.shape[0]} rows now and had {len(partition.index)} when the explainer was made; "
            "expected a collection that is the same whenever it is computed."
        )
    if hasattr(partition, "structures"):
        leaves = [np.ascontiguousarray(s.leaves()[:, rows]) for s in partition.structures]
    else:
        leaves = [np.ascontiguousarray(partition.leaves[:, rows])]
    return Taken(inputs.take_rows(X, rows), partition.index[rows], leaves)


def by_partition(
    positions: NDArray[np.int64], starts: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Partitions with rows among these, sorted positions among all rows, and the rows' positions there."""
    owners = np.searchsorted(starts, positions, side="right") - 1
    for p in np.unique(owners):
        yield int(p), positions[owners == p] - starts[p]

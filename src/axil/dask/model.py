"""Verified models whose training rows lie in the partitions of Dask collections."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from axil import inputs
from axil.attribution import Location
from axil.dask.cluster import (
    Cluster,
    Collection,
    Delayed,
    Features,
    HeldRows,
    Layout,
    PartitionShards,
    UserValues,
)
from axil.dask.columns import PartitionedColumns
from axil.errors import InputError
from axil.machine.memory import Limits
from axil.replay.queries import Offsets, QueryBatch
from axil.replay.verification import Verification
from axil.replay.verified_model import VerifiedModel
from axil.scale import IDENTITY, TargetScale

NOT_THE_SAME = "expected a collection that is the same whenever it is computed"


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedModel(VerifiedModel):
    """A model of any kind that was verified on training rows in partitions."""

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
        """The targets as a Dask array (N, K), in the partitions of the collection."""
        return self._column("targets", (self.shape[1],), np.float64)

    @property
    def index(self) -> Collection:
        """The labels of the training rows as a Dask array (N,), in these partitions."""
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
        self.training.warn_of_unseen(rows)
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

    @property
    def training(self) -> PartitionedColumns:
        """The columns of the training rows."""
        return PartitionedColumns(self)

    @property
    @abstractmethod
    def tree_layout(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The number of leaves of each tree, (T,), and which trees each entry has."""

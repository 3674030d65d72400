"""OnWorkers: training rows in the partitions of Dask collections, each partition a shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.dask.cluster import Cluster, literal, task
from axil.structure import Transferable


@dataclass(frozen=True)
class HeldRows:
    """The training rows on the workers."""

    partitions: list[Any]  #: delayed, held; each a `HeldPart`
    sizes: list[int]
    label_dtype: np.dtype[Any]


@dataclass(frozen=True)
class HeldPart(Transferable):
    """A shard on a worker: the kept part of n training rows."""

    start: int  #: the number of the first row, among all
    targets: FloatArray  #: (n, K) as given
    index: NDArray[Any]  #: (n,) the labels

    @property
    def shown(self) -> FloatArray:
        """(n, K): the targets as people read them."""
        return self.targets


@dataclass(frozen=True, eq=False)
class OnWorkers:
    """Shards on the workers of a cluster; only what reductions make of them travels."""

    cluster: Cluster
    parts: list[Any]  #: delayed, held; each a `Shard`
    sizes: list[int]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each shard, and of all rows."""
        return np.cumsum([0, *self.sizes])

    def _tasks(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None
    ) -> list[Any]:
        own: Any = shared if hasattr(shared, "dask") else literal(shared)
        given = [None] * len(self.parts) if columns is None else columns
        return [task(work, part, own, column) for part, column in zip(self.parts, given)]

    def total(
        self,
        work: Callable[..., Any],
        shared: Any,
        columns: Sequence[Any] | None = None,
        here: bool = False,
    ) -> Any:
        """The sum of ``work(shard, shared, column)``, added on the workers, or in this process where it is large."""
        tasks = self._tasks(work, shared, columns)
        if here:
            return reduce(add, self.cluster.each(tasks))
        return self.cluster.total(tasks)

    def each(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """The results of ``work(shard, shared, column)``, held on the workers."""
        return self.cluster.hold(self._tasks(work, shared, columns))

    def collected(
        self, work: Callable[..., Any], shared: Any = None, columns: Sequence[Any] | None = None
    ) -> list[Any]:
        """The results of ``work(shard, shared, column)``, in this process."""
        return self.cluster.collect(self._tasks(work, shared, columns))

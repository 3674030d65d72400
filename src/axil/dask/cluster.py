"""Dask collections as aligned partitions, and the work on them by workers or in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import isnan
from operator import add
from typing import Any, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask import delayed
from numpy.typing import NDArray

from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.inputs import as_choice
from axil.kernels.choose import DEVICES
from axil.structure import Transferable

Collection: TypeAlias = Any  #: a Dask DataFrame, Series or Array
Delayed: TypeAlias = Any  #: a value that Dask computes, or has computed, on a worker
Client: TypeAlias = Any  #: a `distributed.Client`
Features: TypeAlias = Any  #: a table of features, of any library
UserValues: TypeAlias = Any  #: values of training rows, of any library of arrays or tables
Result: TypeAlias = Any  #: whatever the work on a partition returns
Shared: TypeAlias = Any  #: an argument of the work on every partition, delayed or not
Layout: TypeAlias = tuple[float, ...]  #: the number of rows of each partition; nan: not known yet

CLIENT_METHODS = ("persist", "compute", "gather")
FAN_IN = 4  # values that are added at a time: the shape of a sum depends on their number alone


def refuse_gpu(device: str) -> None:
    """Raise for a GPU, which keeps no partition from one task to the next."""
    if as_choice(device, DEVICES, "device") == "cuda":
        raise InputError(
            'device is "cuda"; expected "cpu" or "auto": partitions are worked on by the cores of '
            "their workers, because a task may run on any worker, and no GPU keeps a partition "
            "from one task to the next. Leave device out. Or, where 5 bytes per row and tree fit "
            "on one GPU, pass the training rows in memory, such as X_train.compute()."
        )


# -- collections -----------------------------------------------------------------------------------


def layout(values: Collection) -> Layout:
    """Return the number of rows of each partition of a Dask collection."""
    if isinstance(values, da.Array):
        return tuple(values.chunks[0])
    return (float("nan"),) * int(values.npartitions)


def partitions(values: Collection, name: str, expected: Layout | None = None) -> list[Delayed]:
    """Return the partitions of a Dask collection: frames, series, or blocks of rows of an array.

    Parameters
    ----------
    values : Dask DataFrame, Series or Array
    name : str
        The name of the argument, for messages.
    expected : tuple, optional
        The layout that the collection must have. Sizes that are not known yet are compared when
        the partitions are computed.
    """
    # A Delayed has every attribute, so its class is asked.
    if not dask.is_dask_collection(values) or not hasattr(type(values), "to_delayed"):
        raise InputError(
            f"{name} is a {type(values).__module__}.{type(values).__name__}; expected a Dask "
            "DataFrame, Series or Array with the partitions of X, as X_train is a Dask collection. "
            "Pass all of them as collections, or all in memory."
        )
    if expected is not None:
        _check_layout(layout(values), name, expected)
    if not isinstance(values, da.Array):
        return list(values.to_delayed())
    blocks = values
    if values.ndim > 1:
        blocks = values.rechunk(dict.fromkeys(range(1, values.ndim), -1))
    return list(blocks.to_delayed().ravel())


def _check_layout(sizes: Layout, name: str, expected: Layout) -> None:
    """Refuse a layout that is not the expected one."""
    if len(sizes) != len(expected):
        raise InputError(
            f"{name} has {len(sizes)} partitions and X has {len(expected)}; expected the same rows "
            "in each. Take both from one collection, or repartition (rechunk) them alike."
        )
    for number, (size, expected_size) in enumerate(zip(sizes, expected)):
        if size != expected_size and not (isnan(size) or isnan(expected_size)):
            raise InputError(
                f"{name} has {size} rows in partition {number} (from 0) and X has {expected_size}; "
                "expected the same. Rechunk one like the other."
            )


@contextmanager
def named(number: int) -> Iterator[None]:
    """Name the partition in errors about an input."""
    try:
        yield
    except InputError as error:
        raise InputError(f"In partition {number} (from 0): {error}") from None


# -- work ------------------------------------------------------------------------------------------


class Cluster:
    """The place of the work: the workers of a client, or Dask's scheduler in this process.

    Whatever is kept on the workers is the result of tasks that lead back to the user's collections
    and to arguments that the scheduler has. So Dask computes again what a worker that dies had.
    """

    def __init__(self, client: Client = None):
        """Check the client; None stands for Dask's scheduler in this process."""
        is_client = all(callable(getattr(client, name, None)) for name in CLIENT_METHODS)
        if client is not None and not is_client:
            raise InputError(
                f"client is {shown(client)}; expected a distributed.Client, or None for Dask's own "
                "scheduler."
            )
        self._client = client

    def hold(self, values: list[Delayed]) -> list[Delayed]:
        """Compute these values and keep them on the workers."""
        if self._client is not None:
            return list(self._client.persist(values))
        with _lost_workers_named():
            return list(dask.persist(*values))

    def share(self, value: object) -> Delayed:
        """Return one value for all tasks, sent once; a task computes it again if it is lost."""
        return self.hold([delayed(pickle.loads)(pickle.dumps(value))])[0]

    def collect(self, values: list[Delayed]) -> list[Any]:
        """Return the computed values in this process, in order."""
        if self._client is None:
            with _lost_workers_named():
                return list(dask.compute(*values))
        return list(self._client.gather(self._client.compute(values)))

    def iterate(self, values: list[Delayed]) -> Iterator[Any]:
        """Yield the computed values in this process, in order, without storing them."""
        if self._client is None:
            yield from self.collect(values)
            return
        futures = self._client.compute(values)[::-1]
        while futures:
            yield futures.pop().result()

    def total(self, values: list[Delayed]) -> Result:
        """Return the sum of the values, added on the workers in a fixed order and shape."""
        return self.collect([delayed_sum(values)])[0]


@contextmanager
def _lost_workers_named() -> Iterator[None]:
    """Raise `InputError` if the workers that keep the rows are gone, as after unpickling."""
    try:
        yield
    except (ValueError, AttributeError) as error:
        # Dask 2024.8 hands the futures themselves to the tasks.
        if not str(error).startswith(("Missing dependency", "'Future' object has no attribute")):
            raise
        raise InputError(
            "The training rows of this explainer are held by the workers of a Dask cluster, and no "
            "client is open. Ask while the client is open, or make the explainer again; a pickle "
            "does not hold these rows."
        ) from None


def delayed_sum(values: list[Delayed]) -> Delayed:
    """Return the delayed sum of these values, added in their order and in a fixed shape."""
    while len(values) > 1:
        values = [delayed(_sum)(values[i : i + FAN_IN]) for i in range(0, len(values), FAN_IN)]
    return values[0]


def _sum(values: list[Result]) -> Result:
    """Return the sum, from the first to the last."""
    return reduce(add, values)


def literal(value: object) -> Delayed:
    """Return a value as an argument that many tasks share; the graph stores it once."""
    return delayed(value, traverse=False)


def task(function: Callable[..., Any], *arguments: Shared) -> Delayed:
    """Return a delayed call."""
    return delayed(function)(*arguments)


# -- shards ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionRows(Transferable):
    """The training rows of one partition, as a worker keeps them: a shard of n rows."""

    start: int  #: the number of the first row, among all
    targets: FloatArray  #: (n, K) as the user passed them
    index: AnyArray  #: (n,) the labels

    @property
    def shown(self) -> FloatArray:
        """The targets in the user's units, (n, K)."""
        return self.targets


@dataclass(frozen=True)
class HeldRows:
    """All training rows, on the workers."""

    partitions: list[Delayed]  #: each a `PartitionRows`
    sizes: list[int]
    label_dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False)
class PartitionShards:
    """The partitions as shards: reductions run on the workers, and only their results travel."""

    cluster: Cluster
    partitions: list[Delayed]  #: each a `Shard`
    sizes: list[int]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of the first row of each shard, and of all rows."""
        return np.cumsum([0, *self.sizes])

    def cut(self, vectors: FloatArray) -> list[FloatArray]:
        """Return the vectors of the rows of each shard, from those of all rows, (N, S)."""
        return [vectors[first:last] for first, last in pairwise(self.starts)]

    def _tasks(
        self, work: Callable[..., Any], shared: Shared, columns: Sequence[Any] | None
    ) -> list[Delayed]:
        """Return a call for each shard, which share one argument."""
        argument = shared
        if not dask.is_dask_collection(shared):
            argument = literal(shared)
        if columns is None:
            columns = [None] * len(self.partitions)
        pairs = zip(self.partitions, columns)
        return [task(work, partition, argument, column) for partition, column in pairs]

    def total(
        self,
        work: Callable[..., Any],
        shared: Shared,
        columns: Sequence[Any] | None = None,
        here: bool = False,
    ) -> Result:
        """Return the sum of ``work(shard, shared, column)`` over the shards.

        It is added on the workers; with ``here``, for results that are large, in this process.
        """
        tasks = self._tasks(work, shared, columns)
        if here:
            return reduce(add, self.cluster.iterate(tasks))
        return self.cluster.total(tasks)

    def each(
        self, work: Callable[..., Any], shared: Shared, columns: Sequence[Any] | None = None
    ) -> Sequence[Delayed]:
        """Return the results of ``work(shard, shared, column)``, which stay on the workers."""
        return self.cluster.hold(self._tasks(work, shared, columns))

    def collected(
        self, work: Callable[..., Any], shared: Shared = None, columns: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return the results of ``work(shard, shared, column)``, in this process."""
        return self.cluster.collect(self._tasks(work, shared, columns))

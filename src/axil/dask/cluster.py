"""Dask collections as aligned partitions, and the few ways in which axil has them worked on."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from math import isnan
from operator import add
from typing import Any

import dask
import dask.array as da
from dask import delayed

from axil.errors import InputError, shown
from axil.inputs import as_choice
from axil.kernels.choose import DEVICES

_ASKED = ("persist", "compute", "gather")  # of a client
FAN_IN = 4  # parts that are added at a time: the shape of a sum depends on their number alone


def refuse_gpu(device: str) -> None:
    """Raise for a GPU, which keeps no partition from one task to the next."""
    if as_choice(device, DEVICES, "device") == "cuda":
        raise InputError(
            'device is "cuda"; expected "cpu" or "auto": partitions are worked on by the cores of their workers, because a task '
            "may run on any worker, and no GPU keeps a partition from one task to the next. Leave device out. Or, where 5 bytes "
            "per row and tree fit on one GPU, pass the training rows in memory, such as X_train.compute()."
        )


def layout(values: Any) -> tuple[float, ...]:
    """How many rows each partition of a Dask collection has, nan where that is not known yet."""
    return (
        tuple(values.chunks[0])
        if isinstance(values, da.Array)
        else (float("nan"),) * values.npartitions
    )


def partitions(values: Any, what: str, like: tuple[float, ...] | None = None) -> list[Any]:
    """The partitions of a Dask collection as delayed values: frames and series, or blocks of rows of an array.

    ``like`` is the layout that they must have. Where it is not known the partitions are compared once they are there.
    """
    if not dask.is_dask_collection(values) or not hasattr(
        type(values), "to_delayed"
    ):  # a Delayed has every attribute
        raise InputError(
            f"{what} is a {type(values).__module__}.{type(values).__name__}; expected a Dask DataFrame, Series or Array "
            "with the partitions of X, as X_train is a Dask collection. Pass all of them as collections, or all in memory."
        )
    own = layout(values)
    if like is not None and len(own) != len(like):
        raise InputError(
            f"{what} has {len(own)} partitions and X has {len(like)}; expected the same rows in each. "
            "Take both from one collection, or repartition (rechunk) them alike."
        )
    for number, (given, expected) in enumerate(zip(own, like or ())):
        if given != expected and not (isnan(given) or isnan(expected)):
            raise InputError(
                f"{what} has {given} rows in partition {number} (from 0) and X has {expected}; expected the same. "
                "Rechunk one like the other."
            )
    if not isinstance(values, da.Array):
        return list(values.to_delayed())
    if values.ndim > 1:
        wide = values.rechunk(dict.fromkeys(range(1, values.ndim), -1))
    else:
        wide = values
    return list(wide.to_delayed().ravel())


class Cluster:
    """Where the work is done: by a client's workers, or where there is none by Dask's own scheduler in this process.

    All that is held is a result of tasks that lead back to the user's collections and to arguments
    that the scheduler has, so a worker that dies takes nothing along that is not computed again.
    """

    def __init__(self, client: Any = None):
        if client is not None and not all(callable(getattr(client, name, None)) for name in _ASKED):
            raise InputError(
                f"client is {shown(client)}; expected a distributed.Client, or None for Dask's own scheduler."
            )
        self._client = client

    def hold(self, parts: list[Any]) -> list[Any]:
        """Compute these and keep the results on the workers."""
        if self._client is not None:
            return list(self._client.persist(parts))
        with _named():
            return list(dask.persist(*parts))

    def share(self, value: Any) -> Any:
        """One value for all tasks, sent once; a task makes it, so that it is made again where it was lost."""
        return self.hold([delayed(pickle.loads)(pickle.dumps(value))])[0]

    def collect(self, parts: list[Any]) -> list[Any]:
        """The results, in order."""
        if self._client is None:
            with _named():
                return list(dask.compute(*parts))
        return list(self._client.gather(self._client.compute(parts)))

    def each(self, parts: list[Any]) -> Iterator[Any]:
        """The results, in order, one by one: none is kept that was handed out."""
        if self._client is None:
            yield from self.collect(parts)
            return
        futures = self._client.compute(parts)[::-1]
        while futures:
            yield futures.pop().result()

    def total(self, parts: list[Any]) -> Any:
        """The sum of the results, added on the workers in the order of the parts and in a fixed shape."""
        return self.collect([added(parts)])[0]


@contextmanager
def _named() -> Iterator[None]:
    """Raise InputError where rows were left with the workers of a cluster that is gone, as of a pickle that outlived it."""
    try:
        yield
    except (ValueError, AttributeError) as error:
        # Dask 2024.8 hands the futures themselves to the tasks.
        if not str(error).startswith(("Missing dependency", "'Future' object has no attribute")):
            raise
        raise InputError(
            "The training rows of this explainer are held by the workers of a Dask cluster, and no client is open. Ask while the "
            "client is open, or make the explainer again; a pickle does not hold these rows."
        ) from None


def added(parts: list[Any]) -> Any:
    """The delayed sum of these, added in their order and in a fixed shape."""
    while len(parts) > 1:
        parts = [delayed(sum_of)(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    return parts[0]


def sum_of(parts: list[Any]) -> Any:
    """The sum, from the first to the last."""
    return reduce(add, parts)


def literal(value: Any) -> Any:
    """A value as one argument of many tasks, which the graph then holds once."""
    return delayed(value, traverse=False)


def task(function: Callable[..., Any], *arguments: Any) -> Any:
    """A delayed call."""
    return delayed(function)(*arguments)

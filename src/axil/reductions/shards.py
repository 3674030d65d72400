"""Shards: the places where training rows lie, one on one machine.

`answer` reduces over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Protocol, TypeVar

from axil.attribution import Shard, Source
from axil.machine.cancellation import check_cancelled
from axil.machine.log import logger
from axil.reductions.reduction import Reduction, ReductionResult


class Shards(Protocol):
    """Training rows in one or several places.

    ``work(shard, shared, column)`` is computed where the rows of a shard are. ``shared`` is the
    same for all shards, and ``columns`` has one entry for each of them.
    """

    @property
    def sizes(self) -> Sequence[int]:
        """The number of rows in each place."""

    def total(
        self,
        work: Callable[..., Any],
        shared: Any,
        columns: Sequence[Any] | None = None,
        here: bool = False,
    ) -> Any:
        """Return the sum of ``work(shard, shared, column)`` over the shards, in their order.

        With ``here``, results are added in this process.
        """

    def each(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """Return the results of ``work(shard, shared, column)``, which stay with the shards."""

    def collected(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """Return the results of ``work(shard, shared, column)`` in this process."""


@dataclass(frozen=True)
class Here:
    """All training rows in this process."""

    shard: Any  #: the model itself, which is the `Shard` of all its rows

    @property
    def sizes(self) -> Sequence[int]:
        """The number of all rows."""
        return [len(self.shard.targets)]

    def total(
        self,
        work: Callable[..., Any],
        shared: Any,
        columns: Sequence[Any] | None = None,
        here: bool = False,
    ) -> Any:
        """Return ``work(shard, shared, column)`` of the one shard."""
        column = None if columns is None else columns[0]
        return work(self.shard, shared, column)

    def each(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """Return the one result in a list."""
        return [self.total(work, shared, columns)]

    collected = each


R = TypeVar("R", bound=ReductionResult)


def answer(
    model: Any,
    queries: Any,
    source: Source,
    reduction: Reduction[R],
    size: int,
    columns: Sequence[Any] | None = None,
) -> Iterator[tuple[Any, R]]:
    """Yield batches of explained rows, each with the result of a reduction over all shards.

    If the effects add up to predictions, the model verifies that they do.

    Parameters
    ----------
    model : VerifiedModel
    queries : QueryBatch
        All explained rows.
    source : Source
        The number that is reduced.
    reduction : Reduction
    size : int
        The explained rows of a batch.
    columns : sequence, optional
        The values that the method brings along for each shard: groups, errors, masks.
    """
    start = perf_counter()
    for _, batch in model.batches(queries, size, source.name, even_empty=True):
        check_cancelled()
        work = partial(_reduced, source, reduction)
        request = model.asked(batch, source)
        result: R = model.shards.total(work, request, columns, reduction.is_large)
        model.verify_predictions(batch, result.predictions if source.adds_up else None)
        yield batch, result
    logger.info(
        "%s of %d rows by %d training rows, %s, in %.3f s",
        source.name,
        len(queries),
        model.shape[0],
        type(reduction).__name__,
        perf_counter() - start,
    )


def _reduced(
    source: Source, reduction: Reduction[R], shard: Shard, query_batch: Any, column: Any
) -> R:
    """Return the result over one shard, in the process of its rows."""
    return reduction.of(shard, shard.effects(source, query_batch), column)

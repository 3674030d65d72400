"""Shards: the places where training rows lie, one on one machine; and `answer`, which runs a reduction over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from axil.attribution import Shard, Source
from axil.reductions.reduction import Found, Reduction


class Shards(Protocol):
    """Training rows in one or several places."""

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
        """The sum of ``work(shard, shared, column)`` over the shards, added in their order; ``here``: in this process."""

    def each(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """The results of ``work(shard, shared, column)``, kept where the shards are."""

    def collected(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """The results of ``work(shard, shared, column)``, in this process."""


@dataclass(frozen=True)
class Here:
    """All training rows in this process."""

    shard: Any

    @property
    def sizes(self) -> Sequence[int]:
        return [len(self.shard.targets)]

    def total(
        self,
        work: Callable[..., Any],
        shared: Any,
        columns: Sequence[Any] | None = None,
        here: bool = False,
    ) -> Any:
        return work(self.shard, shared, None if columns is None else columns[0])

    def each(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        return [self.total(work, shared, columns)]

    collected = each


F = TypeVar("F", bound=Found)


def answer(
    model: Any,
    queries: Any,
    source: Source,
    want: Reduction[F],
    size: int,
    columns: Sequence[Any] | None = None,
) -> Iterator[tuple[Any, F]]:
    """Batches of ``size`` queries, each with its reduced effects; the sums must be the model's predictions.

    ``columns`` has, for each shard, the values that the question brings along: groups, errors, masks.
    """
    for _, batch in model.batches(queries, size, source.name, even_empty=True):
        work = partial(_work, source, want)
        found: F = model.shards.total(work, model.asked(batch, source), columns, want.is_large)
        model.verify_predictions(batch, found.predictions if source.adds_up else None)
        yield batch, found


def _work(source: Source, want: Reduction[F], shard: Shard, asked: Any, column: Any) -> F:
    """The reduction of the effects of one shard, where its rows are."""
    return want.of(shard, shard.effects(source, asked), column)

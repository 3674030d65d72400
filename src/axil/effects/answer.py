"""answer: run a reduction over the effects of all training rows, in batches of queries that fit, and prove the sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from axil.effects.source import Found, Reduction, Shard, Source

F = TypeVar("F", bound=Found)


def answer(
    model: Any, queries: Any, source: Source, want: Reduction[F], size: int, columns: Sequence[Any] | None = None
) -> Iterator[tuple[Any, F]]:
    """Batches of ``size`` queries, each with its reduced effects; the sums must be the model's predictions.

    ``columns`` has, for each shard, the values that the question brings along: groups, errors, masks.
    """
    for _, batch in model.batches(queries, size, source.name, even_empty=True):
        work = partial(_work, source, want)
        found: F = model.shards.total(work, model.asked(batch, source), columns, want.is_large)
        model.prove(batch, found.predictions if source.adds_up else None)
        yield batch, found


def _work(source: Source, want: Reduction[F], shard: Shard, asked: Any, column: Any) -> F:
    """The reduction of the effects of one shard, where its rows are."""
    return want.of(shard, shard.effects(source, asked), column)

"""Shards: the places where training rows lie. One machine is one shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Shards(Protocol):
    """Training rows in one or several places."""

    @property
    def sizes(self) -> Sequence[int]:
        """The number of rows in each place."""

    def total(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None, here: bool = False
    ) -> Any:
        """The sum of ``work(shard, shared, column)`` over the shards, added in their order; ``here``: in this process."""

    def each(self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None) -> Sequence[Any]:
        """The results of ``work(shard, shared, column)``, kept where the shards are."""


@dataclass(frozen=True)
class Here:
    """All training rows in this process."""

    shard: Any

    @property
    def sizes(self) -> Sequence[int]:
        return [len(self.shard.targets)]

    def total(
        self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None, here: bool = False
    ) -> Any:
        return work(self.shard, shared, None if columns is None else columns[0])

    def each(self, work: Callable[..., Any], shared: Any, columns: Sequence[Any] | None = None) -> Sequence[Any]:
        return [self.total(work, shared, columns)]

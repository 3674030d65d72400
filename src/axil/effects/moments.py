"""Moments: sums of values of the training rows under the sizes of the weights, and under their squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from axil.effects.source import Effects, Found, Reduction, Shard
from axil.types import Array


@dataclass(frozen=True)
class Summed(Found):
    """Sums for each engine."""

    sums: list[Array]  #: (2, n, M) each

    def __add__(self, other: Summed) -> Summed:
        sums = [mine + theirs for mine, theirs in zip(self.sums, other.sums)]
        return Summed(self.made + other.made, self.intercepts, sums)


@dataclass(frozen=True)
class Moments(Reduction[Summed]):
    """Sums under |weight| and weight^2; the column has the values (rows, M) for each engine."""

    def of(self, shard: Shard, effects: Effects, column: Any) -> Summed:
        return Summed(effects.made(), effects.intercepts, effects.moments(column))

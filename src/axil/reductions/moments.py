"""Moments: sums of values of the training rows under the sizes of the weights, and under their squares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from axil.arrays import FloatArray
from axil.attribution import Effects, Shard
from axil.reductions.reduction import Found, Reduction
from axil.structure.records import each


@dataclass(frozen=True)
class Summed(Found):
    """Sums for each engine."""

    sums: list[FloatArray] = field(metadata={"both": each})  #: (2, n, M) each


@dataclass(frozen=True)
class Moments(Reduction[Summed]):
    """Sums under |weight| and weight^2; the column has the values (rows, M) for each engine."""

    def of(self, shard: Shard, effects: Effects, column: Any) -> Summed:
        return Summed(effects.made(), effects.intercepts, effects.moments(column))

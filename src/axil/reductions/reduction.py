"""The contract of reductions: what becomes of effects. Results of all shards are added in the order of the shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from axil.arrays import FloatArray
from axil.attribution.effects import Effects
from axil.attribution.protocols import Shard
from axil.structure import RowTotals


@dataclass(frozen=True)
class Found(RowTotals):
    """The result of a reduction over some shards."""

    made: FloatArray  #: (n, K) what their rows add to each prediction
    #: (n, K) what no row adds; the same in every shard
    intercepts: FloatArray = field(metadata={"both": lambda mine, theirs: mine})

    @property
    def predictions(self) -> FloatArray:
        """(n, K)."""
        return self.made + self.intercepts


F = TypeVar("F", bound=Found, covariant=True)


class Reduction(ABC, Generic[F]):
    """A way to reduce effects to a result; frozen, so that it can travel to the rows."""

    #: whether results have the size of the effects, so that they are not added on the way
    is_large: ClassVar[bool] = False

    @abstractmethod
    def of(self, shard: Shard, effects: Effects, column: Any) -> F:
        """The result over one shard, with the column that the question cut as the rows are; results of shards add up."""

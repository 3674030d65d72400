"""The contract of reductions: what effects are reduced to.

Results of shards add up in their order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from axil.arrays import FloatArray
from axil.attribution.effects import Effects, Shard
from axil.structure import RowTotals
from axil.structure.records import added_members


@dataclass(frozen=True)
class ReductionResult(RowTotals):
    """The result of a reduction over some shards."""

    contribution_sums: FloatArray  #: (n, K) what their rows add to each prediction
    #: (n, K) what no row adds; the same in every shard
    intercepts: FloatArray = field(metadata={"both": lambda left, right: left})

    @property
    def predictions(self) -> FloatArray:
        """The predictions that contributions and intercepts add up to, (n, K)."""
        return self.contribution_sums + self.intercepts


R = TypeVar("R", bound=ReductionResult, covariant=True)


class Reduction(ABC, Generic[R]):
    """A reduction of effects to a result; it can be sent to the rows."""

    #: whether results have the size of the effects, so that they are not added on the way
    is_large: ClassVar[bool] = False

    @abstractmethod
    def of(self, shard: Shard, effects: Effects, column: Any) -> R:
        """Return the result over one shard.

        Parameters
        ----------
        shard : Shard
        effects : Effects
        column : object
            The values that the method cut as the rows are, such as group numbers.
        """


@dataclass(frozen=True)
class MomentSums(ReductionResult):
    """Sums for each engine."""

    sums: list[FloatArray] = field(metadata={"both": added_members})  #: (2, n, M) each


@dataclass(frozen=True)
class Moments(Reduction[MomentSums]):
    """Sums of values under |weight| and weight^2; the column has the values (rows, M) by engine."""

    def of(self, shard: Shard, effects: Effects, column: list[FloatArray]) -> MomentSums:
        """Return the sums over one shard."""
        sums = effects.moments(column)
        return MomentSums(effects.contribution_sums(), effects.intercepts, sums)

"""Top: the training rows of the largest effects on each prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.attribution import Effects, Shard
from axil.attribution.effects import LabelledRows, add_contributions
from axil.inputs import label_codes
from axil.reductions.reduction import Reduction, ReductionResult
from axil.structure.records import added_members
from axil.weights.largest import Largest


@dataclass(frozen=True)
class Best(ReductionResult):
    """The k largest effects on each prediction, the largest first.

    Equal ones are in the rows' order.
    """

    k: int
    #: (n, K, k') the number that rows are ranked by, from 0 up; -1: a free place. k' <= k where
    #: rows are few
    size: FloatArray
    #: (n, K, k') each: position, row, effect, contribution, target, and what the method adds
    columns: dict[str, AnyArray]
    distinct: bool = False  #: of rows with one label in the column ``key`` only the largest counts

    def __add__(self, other: Best) -> Best:
        """Return the largest effects of both results; the rows of ``other`` come after these."""
        results = [result for result in (self, other) if result.size.shape[2]] or [self]
        size = np.concatenate([result.size for result in results], axis=2)
        columns = {
            name: np.concatenate([result.columns[name] for result in results], axis=2)
            for name in self.columns
        }
        order = np.argsort(-size, axis=2, kind="stable")
        if self.distinct:
            size = _taken(size, order)
            size = np.where(_repeated(_taken(columns["key"], order)), -1.0, size)
            of_distinct = np.argsort(-size, axis=2, kind="stable")[:, :, : self.k]
            size = _taken(size, of_distinct)
            order = _taken(order, of_distinct)
        else:
            order = order[:, :, : self.k]
            size = _taken(size, order)
        chosen = {name: _taken(column, order) for name, column in columns.items()}
        # also where a label was there before
        chosen["position"] = np.where(size < 0, -1, chosen["position"])
        contribution_sums = self.contribution_sums + other.contribution_sums
        return Best(contribution_sums, self.intercepts, self.k, size, chosen, self.distinct)


def _taken(values: AnyArray, order: IntArray) -> AnyArray:
    """Return values (n, K, m) in a given order along the last axis."""
    return np.take_along_axis(values, order, axis=2)


def _repeated(keys: AnyArray) -> BoolArray:
    """Return whether a label occurred before among the m of one prediction, (n, K, m).

    A label that is missing never was.
    """
    codes = label_codes(keys.ravel(), keys.size, "distinct").reshape(keys.shape)
    order = np.argsort(codes, axis=2, kind="stable")
    is_repeated_in_order = np.diff(_taken(codes, order), axis=2, prepend=-1) == 0
    is_repeated = np.empty(keys.shape, dtype=np.bool_)
    np.put_along_axis(is_repeated, order, is_repeated_in_order, axis=2)
    return is_repeated


def best_of(
    shard: LabelledRows,
    largest: list[Largest],
    k: int,
    contribution_sums: FloatArray,
    intercepts: FloatArray,
    factors: FloatArray | None = None,
) -> Best:
    """Return the result from the largest of each output, with the columns of the rows.

    For ``factors`` (rows, K) see `Effects.factors`.
    """
    values = np.stack([collector.values for collector in largest], axis=1)
    rows = np.stack([collector.rows for collector in largest], axis=1)
    outputs = np.arange(values.shape[1])[:, None]
    contributions = values
    if factors is not None:
        contributions = values * factors[rows, outputs]
    columns = {
        "position": np.where(rows < 0, -1, shard.start + rows),
        "row": shard.index[rows],
        "effect": values,
        "contribution": contributions,
        "target": shard.shown[rows, outputs],
    }
    sizes = np.stack([_ranked_sizes(collector) for collector in largest], axis=1)
    size = np.where(rows < 0, -1.0, sizes)
    return Best(contribution_sums, intercepts, k, size, columns)


def _ranked_sizes(collector: Largest) -> FloatArray:
    """Return the sizes by which a collector ranks its rows, (n, k)."""
    if collector.scale is None:
        return np.abs(collector.values)
    return np.abs(collector.values * collector.scale[collector.rows])


def collectors(
    effects: Effects,
    k: int,
    n_threads: int,
    scales: FloatArray | None = None,
    n_queries: int | None = None,
    room: int = 0,
) -> list[Largest]:
    """Return one top-k collector per output.

    With ``scales`` (rows, K), rows are ranked by ``abs(effect * scale)``. For ``n_queries`` and
    ``room`` see `Largest`.
    """
    n_rows, n_outputs = effects.shape
    columns = [None] * n_outputs if scales is None else scales.T
    return [
        Largest(effects.n, k, n_rows, column, n_threads, n_queries, room, effects.backend)
        for column in columns
    ]


@dataclass(frozen=True)
class TopRows(Reduction[Best]):
    """The k rows of largest |effect| or |contribution|.

    With a column (rows, K), rows are ranked by ``abs(effect * column)`` instead.
    """

    k: int
    by: str = "weight"  #: or "contribution"
    n_queries: int | None = None  #: of the whole request, of which a batch is a part
    room: int = 0  #: bytes that may be taken to find the largest sooner
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: FloatArray | None) -> Best:
        """Return the largest effects of one shard."""
        scales = column
        if column is None and self.by == "contribution":
            scales = effects.factors
        largest = collectors(effects, self.k, self.n_threads, scales, self.n_queries, self.room)
        if effects.shape[0]:
            sums = effects.largest(largest)
        else:
            sums = np.zeros((effects.n, effects.shape[1]))
        return best_of(shard, largest, self.k, sums, effects.intercepts, effects.factors)


@dataclass(frozen=True)
class Ranking(ReductionResult):
    """The largest effects on each prediction.

    They are those above zero and those below it, or those of both signs together.
    """

    sides: list[Best] = field(metadata={"both": added_members})
    unranked: int  #: effects that are nan

    @property
    def best(self) -> Best:
        """Return the k largest effects on each prediction.

        If signs are apart, they are those of the sign with the larger sum.
        """
        if len(self.sides) == 1:
            return self.sides[0]
        above, below = self.sides
        falls = (below.size.sum(axis=2) > above.size.sum(axis=2))[:, :, None]
        columns = {
            name: np.where(falls, below.columns[name], column)
            for name, column in above.columns.items()
        }
        size = np.where(falls, below.size, above.size)
        return Best(above.contribution_sums, above.intercepts, above.k, size, columns)


@dataclass(frozen=True)
class Ranked(Reduction[Ranking]):
    """The k rows of largest |effect|, or with ``same_sign`` those of either sign.

    An effect that is nan has no rank.
    """

    k: int
    same_sign: bool = False
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: None) -> Ranking:
        """Return the largest effects of one shard."""
        clips: list[Callable[[FloatArray, float], FloatArray]] = [_without_nan]
        if self.same_sign:
            clips = [np.fmax, np.fmin]
        largest = [collectors(effects, self.k, self.n_threads) for _ in clips]
        sums = np.zeros((effects.n, effects.shape[1]))
        unranked = 0
        for outputs, first, block in effects.parts():
            numbers = block.data if issparse(block) else block
            unranked += int(np.isnan(numbers).sum())
            add_contributions(sums, effects.factors, outputs, first, block)
            for clip, side in zip(clips, largest):
                clipped = clip(numbers, 0.0)
                for output in outputs:
                    _add_clipped(side[output], block, clipped, first)
        sides = [best_of(shard, side, self.k, sums, effects.intercepts) for side in largest]
        return Ranking(sums, effects.intercepts, sides, unranked)


def _add_clipped(collector: Largest, block: Any, clipped: FloatArray, first: int) -> None:
    """Add a block's clipped numbers to a collector; a sparse block has only its entries."""
    if issparse(block):
        entries = (clipped, block.indices, block.indptr)
        collector.add_sparse(csr_array(entries, block.shape[::-1]))
    else:
        collector.add(clipped, first)


def _without_nan(numbers: AnyArray, instead: float) -> AnyArray:
    """Return the numbers with ``instead`` in the place of nan."""
    return np.where(np.isnan(numbers), instead, numbers)

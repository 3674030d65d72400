"""TopRows: the training rows of the largest effects on each prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.attribution import Effects, Shard
from axil.attribution.effects import add_made
from axil.inputs import label_codes
from axil.reductions.reduction import Found, Reduction
from axil.structure.records import each
from axil.weights.largest import Largest


@dataclass(frozen=True)
class Best(Found):
    """The k largest effects on each prediction, the largest first, equal ones in the order of the rows."""

    k: int
    #: (n, K, k') the number that rows are ranked by, from 0 up; -1: a free place. k' <= k where
    #: rows are few
    size: FloatArray
    #: (n, K, k') each: position, row, effect, contribution, target, and what the question adds
    columns: dict[str, NDArray[Any]]
    distinct: bool = False  #: of rows with one label in the column ``key`` only the largest counts

    def __add__(self, other: Best) -> Best:
        """The best of both; the rows of ``other`` come after these."""
        mine = [part for part in (self, other) if part.size.shape[2]] or [self]
        size = np.concatenate([part.size for part in mine], axis=2)
        columns = {
            name: np.concatenate([part.columns[name] for part in mine], axis=2)
            for name in self.columns
        }
        order = np.argsort(-size, axis=2, kind="stable")
        if self.distinct:
            size = np.where(
                _repeated(np.take_along_axis(columns["key"], order, axis=2)), -1.0, _by(order, size)
            )
            again = np.argsort(-size, axis=2, kind="stable")[:, :, : self.k]
            size = _by(again, size)
            order = _by(again, order)
        else:
            order = order[:, :, : self.k]
            size = _by(order, size)
        chosen = {name: _by(order, column) for name, column in columns.items()}
        chosen["position"] = np.where(
            size < 0, -1, chosen["position"]
        )  # also where a label was there before
        return Best(self.made + other.made, self.intercepts, self.k, size, chosen, self.distinct)


def _by(order: IntArray, values: Any) -> Any:
    return np.take_along_axis(values, order, axis=2)


def _repeated(keys: NDArray[Any]) -> BoolArray:
    """(n, K, m): whether a label was there before, among the m of one prediction; one that is missing never was."""
    codes = label_codes(keys.ravel(), keys.size, "distinct").reshape(keys.shape)
    order = np.argsort(codes, axis=2, kind="stable")
    there = np.diff(_by(order, codes), axis=2, prepend=-1) == 0
    found = np.empty(keys.shape, dtype=np.bool_)
    np.put_along_axis(found, order, there, axis=2)
    return found


def best_of(
    shard: Any,
    largest: list[Largest],
    k: int,
    made: FloatArray,
    intercepts: FloatArray,
    factors: FloatArray | None = None,
) -> Best:
    """The result from the largest of each output, with what is known of the rows; see `Effects.factors`."""
    values, rows = (
        np.stack([getattr(one, name) for one in largest], axis=1) for name in ("values", "rows")
    )
    outputs = np.arange(values.shape[1])[:, None]
    sizes = [
        np.abs(one.values if one.scale is None else one.values * one.scale[one.rows])
        for one in largest
    ]
    columns = {
        "position": np.where(rows < 0, -1, shard.start + rows),
        "row": shard.index[rows],
        "effect": values,
        "contribution": values if factors is None else values * factors[rows, outputs],
        "target": shard.shown[rows, outputs],
    }
    return Best(made, intercepts, k, np.where(rows < 0, -1.0, np.stack(sizes, axis=1)), columns)


def collectors(
    effects: Effects, k: int, n_threads: int, scales: FloatArray | None = None, **hints: Any
) -> list[Largest]:
    """For each output what collects the k largest of these effects, or with scales (rows, K) of effects times these."""
    n_rows, n_outputs = effects.shape
    columns = [None] * n_outputs if scales is None else scales.T
    return [
        Largest(effects.n, k, n_rows, own, n_threads, backend=effects.backend, **hints)
        for own in columns
    ]


@dataclass(frozen=True)
class TopRows(Reduction[Best]):
    """The k rows of largest |effect|, or |contribution|; ``column`` (rows, K) ranks by |effect * column| instead."""

    k: int
    by: str = "weight"  #: or "contribution"
    n_queries: int | None = None  #: of the whole request, of which a batch is a part
    room: int = 0  #: bytes that may be taken to find the largest sooner
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: Any) -> Best:
        if column is not None:
            scales = column
        elif self.by == "contribution":
            scales = effects.factors
        else:
            scales = None
        largest = collectors(
            effects, self.k, self.n_threads, scales, n_queries=self.n_queries, room=self.room
        )
        if effects.shape[0]:
            made = effects.largest(largest)
        else:
            made = np.zeros((effects.n, effects.shape[1]))
        return best_of(shard, largest, self.k, made, effects.intercepts, effects.factors)


@dataclass(frozen=True)
class Ranking(Found):
    """The largest effects on each prediction: above zero and below it, or of both signs together."""

    sides: list[Best] = field(metadata={"both": each})
    unranked: int  #: effects that are nan

    @property
    def best(self) -> Best:
        """Where signs are apart, the effects of the sign that adds up to more, for each prediction."""
        if len(self.sides) == 1:
            return self.sides[0]
        above, below = self.sides
        falls = (below.size.sum(axis=2) > above.size.sum(axis=2))[:, :, None]
        columns = {
            name: np.where(falls, below.columns[name], own) for name, own in above.columns.items()
        }
        return Best(
            above.made, above.intercepts, above.k, np.where(falls, below.size, above.size), columns
        )


@dataclass(frozen=True)
class Ranked(Reduction[Ranking]):
    """The k rows of largest |effect|, or with ``same_sign`` those of either sign; an effect that is nan has no rank."""

    k: int
    same_sign: bool = False
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: Any) -> Ranking:
        if self.same_sign:
            clips: list[Any] = [np.fmax, np.fmin]
        else:
            clips = [_known]
        largest = [collectors(effects, self.k, self.n_threads) for _ in clips]
        made = np.zeros((effects.n, effects.shape[1]))
        unranked = 0
        for outputs, first, block in effects.parts():
            if issparse(block):
                numbers = block.data
            else:
                numbers = block
            unranked += int(np.isnan(numbers).sum())
            add_made(made, effects.factors, outputs, first, block)
            for clip, side in zip(clips, largest):
                clipped = clip(numbers, 0.0)
                for output in outputs:
                    if issparse(block):
                        side[output].add_sparse(
                            csr_array((clipped, block.indices, block.indptr), block.shape[::-1])
                        )
                    else:
                        side[output].add(clipped, first)
        sides = [best_of(shard, side, self.k, made, effects.intercepts) for side in largest]
        return Ranking(made, effects.intercepts, sides, unranked)


def _known(numbers: Any, instead: float) -> Any:
    """The numbers, with ``instead`` in the place of nan."""
    return np.where(np.isnan(numbers), instead, numbers)

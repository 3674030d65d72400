"""Comparables: the training rows that people allow to be listed beside a prediction, the largest effects first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.attribution import Effects, Shard
from axil.attribution.block_effects import BlockEffects, Once
from axil.attribution.effects import numbers_at
from axil.attribution.leaf_matches import SharedLeaves, TreeWeights
from axil.machine.arrays import host
from axil.reductions.reduction import Found, Reduction
from axil.reductions.top import Best, best_of, collectors
from axil.weights.largest import Largest

MORE = 4  # times as many rows are read where too few of those read have labels of their own


@dataclass(frozen=True, eq=False)
class Allowed:
    """The rows of one shard that may be listed, and what is known of them besides."""

    among: IntArray | None = None  #: positions of the rows allowed, ascending; None for all
    by_query: NDArray[np.uint8] | None = (
        None  #: (n, rows / 8) bits of the rows allowed beside each query; None for all
    )
    codes: IntArray | None = (
        None  #: (rows,) rows of one number are listed once, by the largest of them
    )
    keys: NDArray[Any] | None = (
        None  #: (rows,) the labels that the numbers stand for, which other shards may have too
    )
    values: NDArray[Any] | None = (
        None  #: (rows,) of the column that must lie within a query's range
    )
    residuals: FloatArray | None = (
        None  #: (rows, K) targets less the rows' own predictions, for adjusted targets
    )
    kept: dict[Any, list[FloatArray]] = field(default_factory=dict, repr=False)

    def beside_ones(self, output_groups: list[Sequence[int]]) -> list[FloatArray]:
        """(rows, 1 + m) for each group of outputs: ones, and the residuals; the same arrays whenever they are asked for."""
        assert self.residuals is not None
        name = tuple(map(tuple, output_groups))
        if name not in self.kept:
            ones = np.ones((len(self.residuals), 1))
            own = self.residuals
            self.kept[name] = [
                np.concatenate([ones, own[:, list(outputs)]], axis=1) for outputs in output_groups
            ]
        return self.kept[name]

    @property
    def n(self) -> int | None:
        """How many rows are allowed; None for all."""
        if self.among is None:
            return None
        return len(self.among)


def packed(masks: Iterable[BoolArray], n_rows: int) -> NDArray[np.uint8]:
    """(n, rows / 8): masks of rows, one for each query, as bits."""
    found = [np.packbits(mask) for mask in masks]
    if found:
        return np.stack(found)
    return np.zeros((0, -(-n_rows // 8)), dtype=np.uint8)


@dataclass(frozen=True)
class Compared(Found):
    """The rows to list beside n predictions, and sums over all rows."""

    best: Best  #: with the column ``key`` where rows of one label are listed once
    allowed: int  #: how many rows may be listed
    sizes: FloatArray  #: (n, K) sums of |effect|
    weights: FloatArray  #: (n, K) sums of effects; of adjusted targets alone
    bias: FloatArray  #: (n, K) sums of effect * residual; of adjusted targets alone

    @property
    def shares(self) -> FloatArray:
        """(n, K, k): of the rows down to each one in the sum of all sizes."""
        listed = np.where(self.best.size < 0, 0.0, np.abs(self.best.columns["effect"]))
        whole = np.broadcast_to(self.sizes[:, :, None], listed.shape)
        found: FloatArray = np.divide(
            np.cumsum(listed, axis=2), whole, out=np.zeros_like(listed), where=whole > 0
        )
        return found


@dataclass(frozen=True, eq=False)
class Choice(Reduction[Compared]):
    """The k rows of largest |effect|, or of most shared leaves, among those allowed."""

    k: int  #: how many per prediction
    positive: bool = False  #: only effects above zero
    distinct: bool = False  #: of rows with one label the largest alone
    #: (n,) each: the values that rows must have, query by query
    ranges: tuple[NDArray[Any], NDArray[Any]] | None = None
    n_threads: int = 1
    by_leaves: bool = False  #: the rows that share most leaves, not those of largest |effect|
    tree_weights: TreeWeights | None = None  #: how much each tree counts for these; None: all alike
    #: (n, K) 1 or -1: the sign that effects must have to be listed, of all queries; None: any
    sides: FloatArray | None = None
    of_class: bool = (
        False  #: whether effects of rows of another class than the output's count as below zero
    )

    @property
    def is_plain(self) -> bool:
        """Whether the largest are listed, whatever their sign, label and range."""
        return not (
            self.positive or self.distinct or self.ranges is not None or self.sides is not None
        )

    def of(self, shard: Shard, effects: Effects, column: Any) -> Compared:
        allowed: Allowed = Allowed() if column is None else column
        n_rows, n_outputs = effects.shape
        if self.by_leaves or self.sides is not None:
            weights = self.tree_weights
            on_shard = None if weights is None or not n_rows else weights.on(shard)
            return replace(self, tree_weights=on_shard)._of_some(shard, effects, allowed)
        once = (
            Once(effects)
            if isinstance(effects, BlockEffects) and allowed.residuals is None
            else None
        )
        if self.is_plain and allowed.among is None and allowed.by_query is None:
            largest = collectors(effects, self.k, self.n_threads)
            made = (
                (once or effects).largest(largest) if n_rows else np.zeros((effects.n, n_outputs))
            )
        else:
            largest = self._chosen(once or effects, allowed)
            made = effects.made() if once is None else once.total
        best = best_of(shard, largest, self.k, made, effects.intercepts, effects.factors)
        none = np.zeros_like(made)
        sums = self._sums(effects, allowed) if once is None else (once.sizes, none, none)
        return self._compared(
            best, np.stack([one.rows for one in largest], axis=1), allowed, n_rows, sums
        )

    def _compared(
        self,
        best: Best,
        rows: NDArray[np.int64],
        allowed: Allowed,
        n_rows: int,
        sums: tuple[FloatArray, FloatArray, FloatArray],
    ) -> Compared:
        """The rows (n, K, k) chosen, with what is known of them."""
        if self.distinct:
            assert allowed.keys is not None
            best = replace(best, columns=best.columns | {"key": allowed.keys[rows]}, distinct=True)
        if allowed.residuals is not None:
            residual = allowed.residuals[rows, np.arange(rows.shape[1])[:, None]]
            best = replace(best, columns=best.columns | {"residual": residual})
        if allowed.n is None:
            n_allowed = n_rows
        else:
            n_allowed = allowed.n
        return Compared(best.made, best.intercepts, best, n_allowed, *sums)

    # -- rows by their leaves, or of one side ------------------------------------------------------

    def _of_some(self, shard: Shard, effects: Effects, allowed: Allowed) -> Compared:
        """The rows are chosen first; then effects are read once for all of them."""
        n_rows = effects.shape[0]
        if (
            self.by_leaves
            and self.is_plain
            and allowed.among is None
            and allowed.by_query is None
            and n_rows
        ):
            found = collectors(effects, self.k, self.n_threads)
            values, rows = self._alike(effects).largest(found[0].k)
            for one in found:
                one.merge(values, rows)
        else:
            found = self._chosen(effects, allowed)
        rows = np.stack([one.rows for one in found], axis=1)
        ranks = np.where(rows < 0, -1.0, np.stack([one.values for one in found], axis=1))
        numbers, made, sizes = numbers_at(effects, rows)
        walked = isinstance(
            effects, BlockEffects
        )  # else sums have an order that the other queries do not change
        if not walked:
            made = effects.made()
        for output, one in enumerate(found):
            one.values = numbers[:, output]
        best = best_of(shard, found, self.k, made, effects.intercepts, effects.factors)
        columns = best.columns | ({"similarity": np.maximum(ranks, 0.0)} if self.by_leaves else {})
        best = replace(best, size=ranks, columns=columns)
        none = np.zeros_like(made)
        read = walked and allowed.residuals is None
        if read:
            sums = (sizes, none, none)
        else:
            sums = self._sums(effects, allowed)
        return self._compared(best, rows, allowed, n_rows, sums)

    def _alike(self, effects: Effects) -> SharedLeaves:
        assert effects.alike is not None
        return replace(effects.alike(), counted=self.tree_weights)

    def _numbers(self, effects: Effects) -> Iterator[tuple[Sequence[int], int, Any]]:
        """Outputs, first row, and numbers (n, rows) that rows are ranked by: shares of leaves, those of one side, or effects."""
        if self.by_leaves:
            alike = self._alike(effects)
        else:
            alike = None
        if self.sides is None:
            if alike is None:
                yield from ((outputs, first, block.T) for outputs, first, block in effects.parts())
            else:
                yield from (
                    (range(effects.shape[1]), first, shares) for first, shares in alike.blocks()
                )
            return
        sides = self.sides[effects.first : effects.first + effects.n]
        for outputs, first, block in effects.parts():
            dense = np.asarray(block.T.toarray() if issparse(block) else host(block.T))
            if alike is None:
                near = None
            else:
                near = alike.block(first, dense.shape[1])
            for output in outputs:
                signed = dense * sides[:, output, None]
                if self.of_class and effects.factors is not None:
                    signed *= np.where(
                        effects.factors[first : first + dense.shape[1], output] > 0, 1.0, -1.0
                    )
                yield (
                    (output,),
                    first,
                    np.maximum(signed, 0.0) if near is None else np.where(signed > 0, near, 0.0),
                )

    def _sums(
        self, effects: Effects, allowed: Allowed
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(n, K) each: sums of |effect|, of effects, and of effect * residual."""
        n_rows, n_outputs = effects.shape
        ones = np.ones((n_rows, 1))
        none = np.zeros((effects.n, n_outputs))
        if not n_rows:
            return none, none, none
        output_groups = effects.output_groups
        parts = effects.moments([ones] * len(output_groups))
        sizes = np.concatenate(
            [np.tile(own[0], len(outputs)) for own, outputs in zip(parts, output_groups)], axis=1
        )
        if allowed.residuals is None:
            return sizes, none, none
        sums = effects.products(allowed.beside_ones(output_groups))
        weights = np.concatenate(
            [np.tile(own[:, :1], len(outputs)) for own, outputs in zip(sums, output_groups)], axis=1
        )
        return sizes, weights, np.concatenate([own[:, 1:] for own in sums], axis=1)

    # -- rows --------------------------------------------------------------------------------------

    def _chosen(self, effects: Effects, allowed: Allowed) -> list[Largest]:
        """The rows to list, for each output, with the numbers that they are ranked by; free places have row -1."""
        n_rows, n_outputs = effects.shape
        found = collectors(effects, self.k, self.n_threads)
        candidates: list[list[tuple[FloatArray, NDArray[np.int64]]]] = [
            [] for _ in range(n_outputs)
        ]
        if self.by_leaves or self.sides is not None:
            rule = replace(self, positive=True)
        else:
            rule = self
        for outputs, first, numbers in self._numbers(effects) if n_rows else ():
            own = rule.listed(numbers, first, allowed, effects.first)
            for output in outputs:
                candidates[output].append(own)
        for one, parts in zip(found, candidates):
            if parts:
                values, rows = (np.concatenate(each, axis=1) for each in zip(*parts))
                one.merge(*_merged(values, rows, allowed.codes if self.distinct else None, one.k))
        return found

    def listed(
        self, numbers: Any, first: int, allowed: Allowed, query: int
    ) -> tuple[FloatArray, NDArray[np.int64]]:
        """Values and rows (n, k) to list of a block of rows from ``first`` on, from its numbers (n, rows)."""
        n, n_rows = numbers.shape
        among = None
        if allowed.among is not None:
            inside = allowed.among[(allowed.among >= first) & (allowed.among < first + n_rows)]
            among = inside - first
        if self.distinct and allowed.codes is not None:
            codes = allowed.codes[first : first + n_rows]
        else:
            codes = None
        if self.ranges is None and allowed.by_query is None:
            values, rows = self._rows(numbers, among, codes)
        else:
            values = np.zeros((n, self.k))
            rows = np.full((n, self.k), -1, dtype=np.int64)
            for some, near in self._near(allowed, first, n_rows, query, n):
                if among is None:
                    both = near
                else:
                    both = np.intersect1d(near, among, assume_unique=True)
                if len(both):
                    own = self._rows(numbers[some], both, codes)
                    values[some, : own[0].shape[1]], rows[some, : own[1].shape[1]] = own
        return values, np.where(rows < 0, -1, rows + first)

    def _near(
        self, allowed: Allowed, first: int, n_rows: int, query: int, n: int
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Groups of n queries from ``query`` on that allow the same of these rows: their places, and the rows' positions."""
        which = np.arange(n)
        if allowed.by_query is None and self.ranges is not None:
            ends = np.stack([edge[query : query + n] for edge in self.ranges])
            which = np.unique(ends, axis=1, return_inverse=True)[1].ravel()
        for group in np.unique(which):
            some = np.flatnonzero(which == group)
            at = query + some[0]
            inside = np.ones(n_rows, dtype=bool)
            if self.ranges is not None:
                assert allowed.values is not None
                values, (lowest, highest) = (
                    allowed.values[first : first + n_rows],
                    (edge[at] for edge in self.ranges),
                )
                inside = (values >= lowest) & (
                    values <= highest
                )  # neither is true of what is missing
            if allowed.by_query is not None:
                inside &= np.unpackbits(allowed.by_query[at])[first : first + n_rows].astype(bool)
            yield some, np.flatnonzero(inside)

    def _rows(
        self, numbers: Any, among: IntArray | None, codes: IntArray | None
    ) -> tuple[FloatArray, NDArray[np.int64]]:
        """Values and positions (n, k) of the rows to list among these, from numbers (n, rows)."""
        if among is not None:
            numbers = numbers[:, among]
            if codes is None:
                codes = None
            else:
                codes = codes[among]
        if self.positive:
            if issparse(numbers):
                numbers = numbers.maximum(0.0).tocsr()
            else:
                numbers = np.maximum(numbers, 0.0)
        k = min(self.k, numbers.shape[1])
        if codes is None:
            one = Largest.of(numbers, k, n_threads=self.n_threads)
            values = one.values
            rows = one.rows
        else:
            values, rows = _distinct(numbers, k, codes, self.n_threads)
        if among is not None:
            rows = np.where(rows < 0, -1, among[rows])
        return values, np.where(values > 0, rows, -1) if self.positive else rows


def _distinct(
    numbers: Any, k: int, codes: IntArray, n_threads: int
) -> tuple[FloatArray, NDArray[np.int64]]:
    """The largest of each number of a label. More rows are read until every prediction has k of them."""
    n, n_rows = numbers.shape
    values = np.zeros((n, k))
    rows = np.full((n, k), -1, dtype=np.int64)
    left = np.arange(n)
    size = min(2 * k, n_rows)
    while len(left):
        found = Largest.of(numbers[left], size, n_threads=n_threads)
        short = []
        for i, own, at in zip(left, found.values, found.rows):
            first = np.sort(np.unique(codes[at], return_index=True)[1])[:k]
            if len(first) < k and size < n_rows:
                short.append(i)
            else:
                values[i, : len(first)], rows[i, : len(first)] = own[first], at[first]
        left = np.array(short, dtype=np.intp)
        size = min(MORE * size, n_rows)
    return values, rows


def _merged(
    values: FloatArray, rows: NDArray[np.int64], codes: IntArray | None, k: int
) -> tuple[FloatArray, NDArray[np.int64]]:
    """(n, k) each: the largest of all candidates, free places last; of rows with one number the largest alone."""
    size = np.where(rows < 0, -1.0, np.abs(values))
    order = np.lexsort((rows, -size))
    values, rows, size = (np.take_along_axis(each, order, axis=1) for each in (values, rows, size))
    if codes is not None:
        for own, at in zip(size, rows):
            kept = np.zeros(len(at), dtype=bool)
            kept[np.unique(np.where(at < 0, -1, codes[at]), return_index=True)[1]] = True
            own[~kept] = -1.0
        order = np.argsort(-size, axis=1, kind="stable")
        values, rows, size = (
            np.take_along_axis(each, order, axis=1) for each in (values, rows, size)
        )
    free = size < 0
    values = np.where(free, 0.0, values)[:, :k]
    rows = np.where(free, -1, rows)[:, :k]
    missing = k - values.shape[1]
    if missing > 0:
        values = np.pad(values, ((0, 0), (0, missing)))
        rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=-1)
    return values, rows

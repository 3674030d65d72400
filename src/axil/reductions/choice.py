"""Choice: the training rows that may be listed beside a prediction, the largest effects first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.attribution import Effects, Shard
from axil.attribution.block_effects import BlockEffects, Once
from axil.attribution.effects import numbers_at
from axil.attribution.leaf_matches import SharedLeaves, TreeWeights
from axil.machine.arrays import host
from axil.reductions.nearness import Nearness
from axil.reductions.reduction import Reduction, ReductionResult
from axil.reductions.top import Best, best_of, collectors
from axil.weights.largest import Largest, MaybeSparse

MORE = 4  # times as many rows are read if too few of those read have labels of their own

Candidates = tuple[FloatArray, NDArray[np.int64]]  #: (n, k) each: numbers, and rows; -1 for none
OutputGroups = list[Sequence[int]]


@dataclass(frozen=True, eq=False)
class Allowed:
    """The rows of one shard that may be listed, with their labels and distances."""

    among: IntArray | None = None  #: positions of the rows allowed, ascending; None for all
    #: (n, rows / 8) bits of the rows allowed beside each explained row; None for all
    by_query: NDArray[np.uint8] | None = None
    #: (rows,) of the rows of one number only the one with the largest effect is listed
    codes: IntArray | None = None
    #: (rows,) the labels that the numbers stand for, which other shards may have too
    keys: AnyArray | None = None
    #: (rows,) or (rows, 3) each, for each rule of `Choice.near`
    near_values: tuple[AnyArray, ...] = ()
    #: (rows, K) targets less the rows' own predictions, for adjusted targets
    residuals: FloatArray | None = None
    #: by groups of outputs, the arrays of `ones_and_residuals`
    cache: dict[Any, list[FloatArray]] = field(default_factory=dict, repr=False)

    def ones_and_residuals(self, output_groups: OutputGroups) -> list[FloatArray]:
        """Return ones and the residuals, (rows, 1 + m), for each group of m outputs.

        They are the same arrays in every call, so that products with them are fast.
        """
        assert self.residuals is not None
        residuals = self.residuals
        name = tuple(map(tuple, output_groups))
        if name not in self.cache:
            ones = np.ones((len(residuals), 1))
            self.cache[name] = [
                np.concatenate([ones, residuals[:, list(outputs)]], axis=1)
                for outputs in output_groups
            ]
        return self.cache[name]

    @property
    def n(self) -> int | None:
        """The number of rows allowed; None for all."""
        if self.among is None:
            return None
        return len(self.among)


def packed(masks: Iterable[BoolArray], n_rows: int) -> NDArray[np.uint8]:
    """Return masks of rows, one for each explained row, as bits, (n, rows / 8)."""
    bits = [np.packbits(mask) for mask in masks]
    if bits:
        return np.stack(bits)
    return np.zeros((0, -(-n_rows // 8)), dtype=np.uint8)


@dataclass(frozen=True)
class Compared(ReductionResult):
    """The rows to list beside n predictions, and sums over all rows."""

    best: Best  #: with the column ``key`` where rows of one label are listed once
    allowed: int  #: how many rows may be listed
    sizes: FloatArray  #: (n, K) sums of |effect|
    weights: FloatArray  #: (n, K) sums of effects; of adjusted targets alone
    bias: FloatArray  #: (n, K) sums of effect * residual; of adjusted targets alone

    @property
    def has_effects(self) -> bool:
        """Whether the listed rows have effects, and are not only compared by their leaves."""
        return "effect" in self.best.columns

    def with_predictions(self, predictions: FloatArray) -> Compared:
        """Return this result, which has no effects, with the predictions (n, K) of the model."""
        best = replace(self.best, intercepts=predictions)
        return replace(self, best=best, intercepts=predictions)

    @property
    def shares(self) -> FloatArray:
        """The share of the rows down to each listed row in the sum of all sizes, (n, K, k)."""
        sizes = np.where(self.best.size < 0, 0.0, np.abs(self.best.columns["effect"]))
        total = np.broadcast_to(self.sizes[:, :, None], sizes.shape)
        shares: FloatArray = np.divide(
            np.cumsum(sizes, axis=2), total, out=np.zeros_like(sizes), where=total > 0
        )
        return shares


@dataclass(frozen=True)
class EffectSums:
    """Sums over all rows, (n, K) each; see `Compared`."""

    sizes: FloatArray
    weights: FloatArray
    bias: FloatArray

    @classmethod
    def of_sizes(cls, sizes: FloatArray) -> EffectSums:
        """Return the sums if targets are not adjusted: the others are zero."""
        zeros = np.zeros_like(sizes)
        return cls(sizes, zeros, zeros)


@dataclass(frozen=True, eq=False)
class Choice(Reduction[Compared]):
    """The k rows of largest |effect|, or of most shared leaves, among those allowed."""

    k: int  #: how many per prediction
    positive: bool = False  #: only effects above zero
    distinct: bool = False  #: of rows with one label the largest alone
    near: tuple[Nearness, ...] = ()  #: how near rows must be to each explained row
    n_threads: int = 1
    by_leaves: bool = False  #: the rows that share most leaves, not those of largest |effect|
    tree_weights: TreeWeights | None = None  #: how much each tree counts for these; None: all alike
    #: (n, K) 1 or -1: the sign that effects must have to be listed, of all explained rows;
    #: None: any
    sides: FloatArray | None = None
    #: whether effects of rows of another class than the output's count as below zero
    of_class: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the largest rows are listed, without conditions on sign, label and nearness."""
        has_condition = self.positive or self.distinct or bool(self.near)
        return not has_condition and self.sides is None

    def _lists_all(self, allowed: Allowed) -> bool:
        """Return whether all rows may be listed beside all explained rows."""
        return self.is_plain and allowed.among is None and allowed.by_query is None

    def of(self, shard: Shard, effects: Effects, column: Allowed | None) -> Compared:
        """Return the rows to list from one shard; the column says which are allowed."""
        allowed = Allowed() if column is None else column
        if self.by_leaves or self.sides is not None:
            on_shard = None
            if self.tree_weights is not None and effects.shape[0]:
                on_shard = self.tree_weights.on(shard)
            return replace(self, tree_weights=on_shard)._by_other_numbers(shard, effects, allowed)
        readable = effects
        if isinstance(effects, BlockEffects) and allowed.residuals is None:
            readable = Once(effects)
        contribution_sums = None
        if self._lists_all(allowed):
            largest = collectors(effects, self.k, self.n_threads)
            if effects.shape[0]:
                contribution_sums = readable.largest(largest)
            else:
                contribution_sums = np.zeros((effects.n, effects.shape[1]))
        else:
            largest = self._chosen(readable, allowed)
        if isinstance(readable, Once):
            sums = EffectSums.of_sizes(readable.sizes)
            if contribution_sums is None:
                contribution_sums = readable.total
        else:
            if contribution_sums is None:
                contribution_sums = effects.contribution_sums()
            sums = self._sums(effects, allowed)
        intercepts = effects.intercepts
        best = best_of(shard, largest, self.k, contribution_sums, intercepts, effects.factors)
        rows = np.stack([collector.rows for collector in largest], axis=1)
        return self._compared(best, rows, allowed, effects.shape[0], sums)

    def _compared(
        self,
        best: Best,
        rows: NDArray[np.int64],
        allowed: Allowed,
        n_rows: int,
        sums: EffectSums,
    ) -> Compared:
        """Return the result for chosen rows (n, K, k), with their other columns."""
        columns = dict(best.columns)
        if self.distinct:
            assert allowed.keys is not None
            columns["key"] = allowed.keys[rows]
        if allowed.residuals is not None:
            columns["residual"] = allowed.residuals[rows, np.arange(rows.shape[1])[:, None]]
        best = replace(best, columns=columns, distinct=self.distinct or best.distinct)
        n_allowed = n_rows if allowed.n is None else allowed.n
        return Compared(
            best.contribution_sums,
            best.intercepts,
            best,
            n_allowed,
            sums.sizes,
            sums.weights,
            sums.bias,
        )

    # -- rows by their leaves, or of one side ------------------------------------------------------

    def _by_other_numbers(self, shard: Shard, effects: Effects, allowed: Allowed) -> Compared:
        """Return the result for rows that other numbers than |effect| rank.

        The rows are chosen first. Then effects are read once for all of them.
        """
        n_rows = effects.shape[0]
        if self.by_leaves and self._lists_all(allowed) and n_rows:
            chosen = collectors(effects, self.k, self.n_threads)
            values, largest_rows = self._shared_leaves(effects).largest(chosen[0].k)
            for collector in chosen:
                collector.merge(values, largest_rows)
        else:
            chosen = self._chosen(effects, allowed)
        rows = np.stack([collector.rows for collector in chosen], axis=1)
        ranks = np.stack([collector.values for collector in chosen], axis=1)
        ranks = np.where(rows < 0, -1.0, ranks)
        if not effects.has_numbers:
            return self._without_numbers(shard, effects, allowed, chosen)
        numbers, contribution_sums, sizes = numbers_at(effects, rows)
        is_walked = isinstance(effects, BlockEffects)
        if not is_walked:  # sums have an order that the other explained rows do not change
            contribution_sums = effects.contribution_sums()
        for output, collector in enumerate(chosen):
            collector.values = numbers[:, output]
        intercepts = effects.intercepts
        best = best_of(shard, chosen, self.k, contribution_sums, intercepts, effects.factors)
        columns = dict(best.columns)
        if self.by_leaves:
            columns["similarity"] = np.maximum(ranks, 0.0)
        best = replace(best, size=ranks, columns=columns)
        if is_walked and allowed.residuals is None:
            sums = EffectSums.of_sizes(sizes)
        else:
            sums = self._sums(effects, allowed)
        return self._compared(best, rows, allowed, n_rows, sums)

    def _without_numbers(
        self, shard: Shard, effects: Effects, allowed: Allowed, chosen: list[Largest]
    ) -> Compared:
        """Return the result for rows chosen by their leaves, without effects and sums of them."""
        zeros = np.zeros((effects.n, effects.shape[1]))
        best = best_of(shard, chosen, self.k, zeros, effects.intercepts)
        columns = dict(best.columns)
        del columns["effect"], columns["contribution"]
        rows = np.stack([collector.rows for collector in chosen], axis=1)
        columns["similarity"] = np.stack([collector.values for collector in chosen], axis=1)
        size = np.where(rows < 0, -1.0, columns["similarity"])
        best = replace(best, size=size, columns=columns)
        sums = EffectSums.of_sizes(zeros)
        return self._compared(best, rows, allowed, effects.shape[0], sums)

    def _shared_leaves(self, effects: Effects) -> SharedLeaves:
        """Return the leaves that explained rows share with the rows, with the trees' weights."""
        assert effects.shared_leaves is not None
        return replace(effects.shared_leaves(), tree_weights=self.tree_weights)

    def _numbers(self, effects: Effects) -> Iterator[tuple[Sequence[int], int, MaybeSparse]]:
        """Yield outputs, the first row, and the numbers (n, rows) that rows are ranked by.

        These are shares of leaves, those of one side, or effects.
        """
        shared = self._shared_leaves(effects) if self.by_leaves else None
        if self.sides is not None:
            yield from self._numbers_of_sides(effects, self.sides, shared)
        elif shared is None:
            for outputs, first, block in effects.parts():
                yield outputs, first, block.T
        else:
            for first, shares in shared.blocks():
                yield range(effects.shape[1]), first, shares

    def _numbers_of_sides(
        self, effects: Effects, sides: FloatArray, shared: SharedLeaves | None
    ) -> Iterator[tuple[Sequence[int], int, MaybeSparse]]:
        """Yield `_numbers` of one side: 0 for rows whose effects are on the other one."""
        sides = sides[effects.first : effects.first + effects.n]
        for outputs, first, block in effects.parts():
            dense_block = block.T.toarray() if issparse(block) else host(block.T)
            numbers = np.asarray(dense_block)
            n_rows = numbers.shape[1]
            shares = None if shared is None else shared.block(first, n_rows)
            for output in outputs:
                signed = numbers * sides[:, output, None]
                if self.of_class and effects.factors is not None:
                    factors = effects.factors[first : first + n_rows, output]
                    signed *= np.where(factors > 0, 1.0, -1.0)
                if shares is None:
                    yield (output,), first, np.maximum(signed, 0.0)
                else:
                    yield (output,), first, np.where(signed > 0, shares, 0.0)

    def _sums(self, effects: Effects, allowed: Allowed) -> EffectSums:
        """Return sums of |effect|, of effects, and of effect * residual."""
        n_rows, n_outputs = effects.shape
        zeros = np.zeros((effects.n, n_outputs))
        if not n_rows:
            return EffectSums(zeros, zeros, zeros)
        groups = effects.output_groups
        moments = effects.moments([np.ones((n_rows, 1))] * len(groups))
        sizes = [np.tile(of_group[0], len(group)) for of_group, group in zip(moments, groups)]
        if allowed.residuals is None:
            return EffectSums(np.concatenate(sizes, axis=1), zeros, zeros)
        sums = effects.products(allowed.ones_and_residuals(groups))
        weights = [np.tile(of_group[:, :1], len(group)) for of_group, group in zip(sums, groups)]
        bias = [of_group[:, 1:] for of_group in sums]
        return EffectSums(*(np.concatenate(parts, axis=1) for parts in (sizes, weights, bias)))

    # -- rows --------------------------------------------------------------------------------------

    def _chosen(self, effects: Effects, allowed: Allowed) -> list[Largest]:
        """Return the rows to list for each output, with the numbers that they are ranked by.

        Free places have row -1.
        """
        n_rows, n_outputs = effects.shape
        chosen = collectors(effects, self.k, self.n_threads)
        if not n_rows:
            return chosen
        rule = self
        if self.by_leaves or self.sides is not None:
            rule = replace(self, positive=True)
        candidates: list[list[Candidates]] = [[] for _ in range(n_outputs)]
        for outputs, first, numbers in self._numbers(effects):
            of_block = rule.listed(numbers, first, allowed, effects.first)
            for output in outputs:
                candidates[output].append(of_block)
        codes = allowed.codes if self.distinct else None
        for collector, blocks in zip(chosen, candidates):
            if blocks:
                values = np.concatenate([of_block[0] for of_block in blocks], axis=1)
                rows = np.concatenate([of_block[1] for of_block in blocks], axis=1)
                collector.merge(*_merged(values, rows, codes, collector.k))
        return chosen

    def listed(self, numbers: MaybeSparse, first: int, allowed: Allowed, query: int) -> Candidates:
        """Return numbers and rows (n, k) to list of a block of rows.

        Parameters
        ----------
        numbers : array of shape (n, rows)
            The numbers of the block.
        first : int
            The first row of the block.
        allowed : Allowed
        query : int
            The first of the n explained rows.
        """
        n, n_rows = numbers.shape
        among = None
        if allowed.among is not None:
            inside = (allowed.among >= first) & (allowed.among < first + n_rows)
            among = allowed.among[inside] - first
        codes = None
        if self.distinct and allowed.codes is not None:
            codes = allowed.codes[first : first + n_rows]
        if not self.near and allowed.by_query is None:
            values, rows = self._rows(numbers, among, codes)
        else:
            values = np.zeros((n, self.k))
            rows = np.full((n, self.k), -1, dtype=np.int64)
            for places, positions in self._allowed_groups(allowed, first, n_rows, query, n):
                if among is not None:
                    positions = np.intersect1d(positions, among, assume_unique=True)
                if len(positions):
                    of_group = self._rows(numbers[places], positions, codes)
                    k = of_group[0].shape[1]
                    values[places, :k] = of_group[0]
                    rows[places, :k] = of_group[1]
        return values, np.where(rows < 0, -1, rows + first)

    def _allowed_groups(
        self, allowed: Allowed, first: int, n_rows: int, query: int, n: int
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield groups of explained rows that allow the same rows of a block.

        A group has the places of its explained rows, and the positions of the allowed rows.
        """
        near = [rule.of(slice(query, query + n)) for rule in self.near]
        group_of_query = np.arange(n)
        if allowed.by_query is None and near:
            codes = np.stack([rule.codes() for rule in near])
            group_of_query = np.unique(codes, axis=1, return_inverse=True)[1].ravel()
        for group in np.unique(group_of_query):
            places = np.flatnonzero(group_of_query == group)
            is_allowed = np.ones(n_rows, dtype=bool)
            for rule, values in zip(near, allowed.near_values):
                is_allowed &= rule.allows(places[0], values[first : first + n_rows])
            if allowed.by_query is not None:
                bits = np.unpackbits(allowed.by_query[query + places[0]])[first : first + n_rows]
                is_allowed &= bits.astype(bool)
            yield places, np.flatnonzero(is_allowed)

    def _rows(
        self, numbers: MaybeSparse, among: IntArray | None, codes: IntArray | None
    ) -> Candidates:
        """Return numbers and positions (n, k) of the rows to list, from numbers (n, rows)."""
        if among is not None:
            numbers = numbers[:, among]
            if codes is not None:
                codes = codes[among]
        if self.positive:
            if isinstance(numbers, np.ndarray):
                numbers = np.maximum(numbers, 0.0)
            else:
                numbers = numbers.maximum(0.0).tocsr()
        k = min(self.k, numbers.shape[1])
        if codes is None:
            largest = Largest.of(numbers, k, n_threads=self.n_threads)
            values = largest.values
            rows = largest.rows
        else:
            values, rows = _distinct(numbers, k, codes, self.n_threads)
        if among is not None:
            rows = np.where(rows < 0, -1, among[rows])
        if self.positive:
            rows = np.where(values > 0, rows, -1)
        return values, rows


def _distinct(numbers: MaybeSparse, k: int, codes: IntArray, n_threads: int) -> Candidates:
    """Return the k largest numbers of different labels, and their positions, (n, k) each.

    More rows are read until every prediction has k of them.
    """
    n, n_rows = numbers.shape
    values = np.zeros((n, k))
    rows = np.full((n, k), -1, dtype=np.int64)
    unfinished = np.arange(n)
    size = min(2 * k, n_rows)
    while len(unfinished):
        largest = Largest.of(numbers[unfinished], size, n_threads=n_threads)
        short = []
        for i, largest_values, positions in zip(unfinished, largest.values, largest.rows):
            first = np.sort(np.unique(codes[positions], return_index=True)[1])[:k]
            if len(first) < k and size < n_rows:
                short.append(i)
            else:
                values[i, : len(first)] = largest_values[first]
                rows[i, : len(first)] = positions[first]
        unfinished = np.array(short, dtype=np.intp)
        size = min(MORE * size, n_rows)
    return values, rows


def _merged(
    values: FloatArray, rows: NDArray[np.int64], codes: IntArray | None, k: int
) -> Candidates:
    """Return the k largest of all candidates, (n, k) each, free places last.

    With ``codes``, of rows with one number only the largest is returned.
    """
    size = np.where(rows < 0, -1.0, np.abs(values))
    order = np.lexsort((rows, -size))
    values, rows, size = _in_order(order, values, rows, size)
    if codes is not None:
        for sizes, positions in zip(size, rows):
            codes_of_row = np.where(positions < 0, -1, codes[positions])
            is_first = np.zeros(len(positions), dtype=bool)
            is_first[np.unique(codes_of_row, return_index=True)[1]] = True
            sizes[~is_first] = -1.0
        order = np.argsort(-size, axis=1, kind="stable")
        values, rows, size = _in_order(order, values, rows, size)
    is_free = size < 0
    values = np.where(is_free, 0.0, values)[:, :k]
    rows = np.where(is_free, -1, rows)[:, :k]
    n_missing = k - values.shape[1]
    if n_missing > 0:
        values = np.pad(values, ((0, 0), (0, n_missing)))
        rows = np.pad(rows, ((0, 0), (0, n_missing)), constant_values=-1)
    return values, rows


def _in_order(order: IntArray, *arrays: AnyArray) -> tuple[AnyArray, ...]:
    """Return arrays (n, m), each row sorted by the given order."""
    return tuple(np.take_along_axis(array, order, axis=1) for array in arrays)

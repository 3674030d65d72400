"""The rule of leaves whose values must rise along an order: those that would not are pooled.

CatBoost bounds the leaves of a symmetric tree like this. The leaves of a pool have one value, the
sum of all their sums over that of their ``W + l2``. With the pools fixed, leaf values are a linear
map of leaf sums. Pools change where two of them meet or one comes apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray
from axil.structure.newton import CoupledLeaves, NewtonRule, first_finite, inverse_or
from axil.structure.nodes import Ids
from axil.structure.records import Transferable

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Chains(Transferable):
    """The L leaves of T trees as chains along which values must rise.

    A leaf without a bound is a chain of its own. Values are those of an isotonic regression.
    """

    order: Ids  #: (L,) leaf numbers: tree after tree, chain after chain, each in rising order
    starts: Ids  #: (C + 1,) where each chain begins in ``order``
    trees: Ids  #: (T + 1,) where each tree begins in ``order``

    def __post_init__(self) -> None:
        for value in vars(self).values():
            value.setflags(write=False)

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless the chains fit trees with these numbers of leaves, (T,)."""
        ends = np.concatenate([[0], np.cumsum(n_leaves)])
        for name, array in vars(self).items():
            if array.ndim != 1 or array.dtype != np.int64:
                raise ValueError(
                    f"{name} of the chains is {array.dtype} {array.shape}, expected numbers in a "
                    "row"
                )
        if not np.array_equal(self.trees, ends) or len(self.order) != ends[-1]:
            raise ValueError(
                f"chains of {len(self.order)} leaves, expected the {ends[-1]} of all trees, tree "
                "after tree"
            )
        tree = np.repeat(np.arange(len(n_leaves)), n_leaves)
        if not np.array_equal(np.sort(self.order), np.arange(ends[-1])) or not np.array_equal(
            tree[self.order], tree
        ):
            raise ValueError("a leaf that is in the chains of another tree, twice or not at all")
        is_rising = (np.diff(self.starts) > 0).all()
        is_inside = (self.starts >= 0).all() and (self.starts <= ends[-1]).all()
        if not (is_rising and is_inside and np.isin(ends, self.starts).all()):
            raise ValueError(
                "chains that do not begin one after the other, or go on in another tree"
            )

    def tree(self, t: int) -> Chains:
        """Return the chains of one tree, its leaves numbered from 0."""
        first, last = self.trees[t : t + 2]
        starts = self.starts[(self.starts >= first) & (self.starts <= last)] - first
        return Chains(self.order[first:last] - first, starts, self.trees[t : t + 2] - first)

    def longest(self) -> Ids:
        """Return the number of leaves in the longest chain of each tree, (T,)."""
        first_chains = np.searchsorted(self.starts, self.trees[:-1])
        return np.maximum.reduceat(np.diff(self.starts), first_chains)

    def pools(self, sums: FloatArray, denominators: FloatArray) -> Ids:
        """Return the number of the pool of each leaf, (L,), for leaf sums and ``W + l2``.

        Pools are numbered along the order.
        """
        S = sums[self.order].tolist()
        D = denominators[self.order].tolist()
        is_first = np.ones(len(S), dtype=np.bool_)
        for start, end in pairwise(self.starts.tolist()):
            if end - start == 1:
                continue
            pools: list[tuple[int, float, float]] = []  # where each begins, its S and its D
            for place in range(start, end):
                begin = place
                s = S[place]
                d = D[place]
                while pools and pools[-1][1] * d >= s * pools[-1][2]:  # the value does not rise
                    begin, s_before, d_before = pools.pop()
                    s = s + s_before
                    d = d + d_before
                pools.append((begin, s, d))
            is_first[start:end] = False
            is_first[[begin for begin, *_ in pools]] = True
        pool_of_leaf = np.empty(len(S), dtype=np.int64)
        pool_of_leaf[self.order] = np.cumsum(is_first) - 1
        return pool_of_leaf

    def pooled(self, sums: FloatArray, denominators: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sum and the ``W + l2`` of each leaf's pool, (L,) each."""
        pool = self.pools(sums, denominators)
        pool_sums = np.bincount(pool, sums).astype(np.float64)
        pool_denominators = np.bincount(pool, denominators).astype(np.float64)
        return pool_sums[pool], pool_denominators[pool]

    def count_entries(self, sums: FloatArray, denominators: FloatArray) -> int:
        """Return the number of entries of all `matrices`."""
        return int((np.bincount(self.pools(sums, denominators)) ** 2).sum())

    def matrices(self, sums: FloatArray, denominators: FloatArray) -> list[csr_array | None]:
        """Return the map from leaf sums to leaf values of each tree, (L_t, L_t).

        None for a tree without pools of several leaves.
        """
        pool = self.pools(sums, denominators)
        pool_denominators = np.bincount(pool, denominators)
        matrices: list[csr_array | None] = []
        for start, end in pairwise(self.trees):
            n_leaves = end - start
            pool_in_tree = pool[start:end] - pool[start:end].min()
            if len(np.unique(pool_in_tree)) == n_leaves:
                matrices.append(None)
                continue
            inside = csr_array((np.ones(n_leaves), (pool_in_tree, np.arange(n_leaves))))
            scale = inverse_or(pool_denominators[pool[start:end]], 0.0)
            matrices.append(csr_array(inside.T @ inside).multiply(scale[:, None]).tocsr())
        return matrices

    def nearest(
        self, sums: FloatArray, leaf_weights: FloatArray, denominators: FloatArray, k: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return the k nearest changes of the pools as maps of the leaf sums, and their distances.

        Two neighbouring pools come together where their values meet. A pool comes apart where the
        value of its first leaves no longer exceeds that of its last ones. Both are differences of
        the values left and right of a place in a chain.
        """
        pool = self.pools(sums, denominators)[self.order]
        totals = np.stack([sums, denominators, leaf_weights])[:, self.order]
        before, after = _running_totals(pool, totals)
        places = np.setdiff1d(np.arange(len(pool)), self.starts)
        totals_before = before[:, places - 1]
        right = after[:, places]
        gaps = np.abs(right[0] / right[1] - totals_before[0] / totals_before[1])
        gaps[(totals_before[2] == 0) & (right[2] == 0)] = (
            np.inf
        )  # no target moves leaves without rows
        nearest = first_finite(gaps, gaps * np.minimum(totals_before[1], right[1]), k)
        maps = np.zeros((len(pool), len(nearest)))
        for i, at in enumerate(nearest):
            place = places[at]
            start = np.searchsorted(pool, pool[place - 1])
            end = np.searchsorted(pool, pool[place], side="right")
            maps[self.order[start:place], i] = -1.0 / totals_before[1, at]
            maps[self.order[place:end], i] = 1.0 / right[1, at]
        return maps, gaps[nearest]


def _running_totals(pool: Ids, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return running totals of numbers (3, L) within each pool, from its start and from its end."""
    before = numbers.copy()
    after = numbers.copy()
    places = np.flatnonzero(np.diff(pool) == 0)
    for place in places + 1:
        before[:, place] += before[:, place - 1]
    for place in places[::-1]:
        after[:, place] += after[:, place + 1]
    return before, after


@dataclass(frozen=True)
class IsotonicRule(NewtonRule):
    """A Newton rule with values that rise along chains; it has neither L1 nor a largest step."""

    chains: Chains = field(kw_only=True)

    @property
    def is_monotone(self) -> bool:
        """Whether values must rise along some order of the leaves."""
        return True

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless the rule fits trees with these numbers of leaves, (T,)."""
        super().check(n_leaves)
        self.chains.check(n_leaves)

    def leaf_values(self, sums: FloatArray, leaf_weights: FloatArray) -> FloatArray:
        """Return the leaf values before the learning rate, (L,), of leaf sums and weights (L,)."""
        denominators = inverse_or(self.scale(leaf_weights), 0.0)
        return self.step(*self.chains.pooled(sums, denominators))

    def _couple(
        self,
        sums: FloatArray,
        leaf_weights: FloatArray,
        denominators: FloatArray,
        shift: FloatArray,
    ) -> tuple[BoolArray, list[csr_array | None]]:
        is_bounded = self.leaf_values(sums, leaf_weights) != self.step(sums, denominators)
        return np.asarray(is_bounded), self.chains.matrices(sums, denominators)

    def coupled_leaves(self, sums: FloatArray, leaf_weights: FloatArray) -> CoupledLeaves | None:
        """Return the derivatives of one tree's leaf values by the leaves of their pools.

        A pool has the value ``V = S / D`` for the sums S of its leaf sums and D of their ``W +
        l2``, so every leaf of the pool moves it by ``1 / D`` with its sum, and by ``-V / D`` with
        its weight.
        """
        denominators = inverse_or(self.scale(leaf_weights), 0.0)
        pool = self.chains.pools(sums, denominators)
        if len(np.unique(pool)) == len(pool):
            return None
        is_same_pool = pool[:, None] == pool
        _, pool_denominators = self.chains.pooled(sums, denominators)
        share = is_same_pool * inverse_or(pool_denominators, 0.0)[:, None]
        values = self.leaf_values(sums, leaf_weights)
        return CoupledLeaves(
            by_sum=share, by_weight=-values[:, None] * share, share=share, terms=share
        )

    def bytes_needed(self, sums: FloatArray, leaf_weights: FloatArray) -> int:
        """Return the memory in bytes of the matrices while one is made of the product of two."""
        return 3 * 12 * self.chains.count_entries(sums, leaf_weights + self.l2)

    def nearest_changes(
        self,
        sums: FloatArray,
        leaf_weights: FloatArray,
        k: int,
        slopes: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the k nearest changes of the pools; see `NewtonRule.nearest_changes`."""
        return self.chains.nearest(sums, leaf_weights, leaf_weights + self.l2, k)

    def _of_tree(self, t: int, leaves: slice) -> Self:
        return replace(super()._of_tree(t, leaves), chains=self.chains.tree(t))

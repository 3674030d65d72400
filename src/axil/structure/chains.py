"""Chains: leaves of a tree whose values must rise along an order, and are pooled wherever they would not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import FloatArray
from axil.structure.nodes import Ids
from axil.structure.transfer import Transferable


@dataclass(frozen=True)
class Chains(Transferable):
    """All L leaves of T trees as chains along which values must rise; a leaf that is free is a chain of its own.

    Values are those of an isotonic regression: neighbours whose values would not rise are pooled, and all leaves of a pool have
    the value ``sum S / sum (W + l2)``.
    """

    order: Ids  #: (L,) leaf numbers, tree after tree, chain after chain, each in the order that its values must rise in
    starts: Ids  #: (C + 1,) where each chain begins in it
    trees: Ids  #: (T + 1,) where each tree begins in it

    def __post_init__(self) -> None:
        for value in vars(self).values():
            value.setflags(write=False)

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Refuse chains that are not of trees of these numbers of leaves, (T,)."""
        ends = np.concatenate([[0], np.cumsum(n_leaves)])
        for name, array in vars(self).items():
            if array.ndim != 1 or array.dtype != np.int64:
                raise ValueError(
                    f"{name} of the chains is {array.dtype} {array.shape}, expected numbers in a row"
                )
        if not np.array_equal(self.trees, ends) or len(self.order) != ends[-1]:
            raise ValueError(
                f"chains of {len(self.order)} leaves, expected the {ends[-1]} of all trees, tree after tree"
            )
        tree = np.repeat(np.arange(len(n_leaves)), n_leaves)
        if not np.array_equal(np.sort(self.order), np.arange(ends[-1])) or not np.array_equal(
            tree[self.order], tree
        ):
            raise ValueError("a leaf that is in the chains of another tree, twice or not at all")
        rising = (
            (np.diff(self.starts) > 0).all()
            and (self.starts >= 0).all()
            and (self.starts <= ends[-1]).all()
        )
        if not (rising and np.isin(ends, self.starts).all()):
            raise ValueError(
                "chains that do not begin one after the other, or go on in another tree"
            )

    def tree(self, t: int) -> Chains:
        """The chains of one tree, its leaves numbered from 0."""
        first, last = self.trees[t : t + 2]
        starts = self.starts[(self.starts >= first) & (self.starts <= last)] - first
        return Chains(self.order[first:last] - first, starts, self.trees[t : t + 2] - first)

    def longest(self) -> Ids:
        """(T,): how many leaves the longest chain of each tree has."""
        return np.maximum.reduceat(
            np.diff(self.starts), np.searchsorted(self.starts, self.trees[:-1])
        )

    def pools(self, sums: FloatArray, denominators: FloatArray) -> Ids:
        """(L,): the pool that each leaf of these sums and ``W + l2`` is in, numbered along the order."""
        S, D = sums[self.order].tolist(), denominators[self.order].tolist()
        first = np.ones(len(S), dtype=np.bool_)
        for start, end in pairwise(self.starts.tolist()):
            if end - start == 1:
                continue
            found: list[tuple[int, float, float]] = []
            for begin in range(start, end):
                s, d = S[begin], D[begin]
                while (
                    found and found[-1][1] * d >= s * found[-1][2]
                ):  # their quotients, without a division
                    begin, s, d = found[-1][0], s + found[-1][1], d + found[-1][2]
                    found.pop()
                found.append((begin, s, d))
            first[start:end] = False
            first[[begin for begin, *_ in found]] = True
        pool = np.empty(len(S), dtype=np.int64)
        pool[self.order] = np.cumsum(first) - 1
        return pool

    def pooled(self, sums: FloatArray, denominators: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(L,) twice: sums and ``W + l2`` of the pool that each leaf is in."""
        pool = self.pools(sums, denominators)
        of_sums, of_denominators = (
            np.bincount(pool, own).astype(np.float64)[pool] for own in (sums, denominators)
        )
        return of_sums, of_denominators

    def entries(self, sums: FloatArray, denominators: FloatArray) -> int:
        """How many entries `mixing` has."""
        return int((np.bincount(self.pools(sums, denominators)) ** 2).sum())

    def mixing(self, sums: FloatArray, denominators: FloatArray) -> list[csr_array | None]:
        """(L_t, L_t) of each tree: its leaf values as a map of their sums; None where no leaf is pooled."""
        pool = self.pools(sums, denominators)
        total = np.bincount(pool, denominators)
        found: list[csr_array | None] = []
        for start, end in pairwise(self.trees):
            own = pool[start:end] - pool[start:end].min()
            if len(np.unique(own)) == end - start:
                found.append(None)
                continue
            inside = csr_array((np.ones(end - start), (own, np.arange(end - start))))
            scale = np.divide(
                1.0,
                total[pool[start:end]],
                out=np.zeros(end - start),
                where=total[pool[start:end]] > 0,
            )
            found.append(csr_array(inside.T @ inside).multiply(scale[:, None]).tocsr())
        return found

    def nearest(
        self, sums: FloatArray, leaf_weights: FloatArray, denominators: FloatArray, k: int
    ) -> tuple[FloatArray, FloatArray]:
        """(L, k') and (k',): the k nearest changes, as maps of the leaf sums, and how far each is.

        Two neighbouring pools come together where their values meet; a pool comes apart where the value of its first leaves
        no longer exceeds that of its last ones. Both are differences of the values left and right of a place in a chain.
        """
        pool = self.pools(sums, denominators)[self.order]
        before, after = self._halves(
            pool, np.stack([sums, denominators, leaf_weights])[:, self.order]
        )
        places = np.setdiff1d(np.arange(len(pool)), self.starts)
        left, right = before[:, places - 1], after[:, places]
        gaps = np.abs(right[0] / right[1] - left[0] / left[1])
        gaps[(left[2] == 0) & (right[2] == 0)] = np.inf  # no target moves leaves without rows
        order = np.where(np.isfinite(gaps), gaps * np.minimum(left[1], right[1]), np.inf)
        kept = np.argsort(order, kind="stable")[:k]
        kept = kept[np.isfinite(order[kept])]
        seeds = np.zeros((len(pool), len(kept)))
        for i, at in enumerate(kept):
            place = places[at]
            start, end = (
                np.searchsorted(pool, pool[place - 1]),
                np.searchsorted(pool, pool[place], side="right"),
            )
            seeds[self.order[start:place], i] = -1.0 / left[1, at]
            seeds[self.order[place:end], i] = 1.0 / right[1, at]
        return seeds, gaps[kept]

    def _halves(self, pool: Ids, numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Running totals (3, L) of numbers along the order, within each pool: up to each place, and from each place on."""
        before, after = numbers.copy(), numbers.copy()
        for place in np.flatnonzero(np.diff(pool) == 0) + 1:
            before[:, place] += before[:, place - 1]
        for place in np.flatnonzero(np.diff(pool) == 0)[::-1]:
            after[:, place] += after[:, place + 1]
        return before, after

"""Ranks: the rows that give a leaf its value if this is a percentile of the rows' residuals.

A percentile is the residual of one row, or a fixed mix of two neighbours in rank:

    v = (1 - f) r_lower + f r_upper

Held fixed, as the splits are, these rows and shares make a leaf's value linear in the targets. Of
rows with equal residuals the first counts as the lower.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray, LeafArray
from axil.structure.records import Transferable

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Picks:
    """The rows whose residuals are the values of the leaves of one tree."""

    leaves: Positions  #: (n,)
    rows: Positions  #: (2, n) lower and upper; the same row twice where it is one
    shares: FloatArray  #: (2, n)
    shifts: FloatArray | None = None  #: (n,) constants that the library adds; None: none
    free: Positions | None = None  #: (M,) rows that count besides, all of a leaf alike; None: none
    free_at: Positions | None = None  #: (M,) which of the n leaves each is in
    free_shares: FloatArray | None = None  #: (n,) of each such row

    def value(self, residuals: FloatArray) -> float:
        """Return the percentile of the first leaf."""
        return float(self.values(residuals)[0]) + (
            0.0 if self.shifts is None else float(self.shifts[0])
        )

    def values(self, residuals: FloatArray) -> FloatArray:
        """Return percentiles of residuals (N,) by these rows and shares, (n,), without shifts."""
        percentiles = np.asarray((self.shares * residuals[self.rows]).sum(axis=0))
        if self.free is None or self.free_at is None or self.free_shares is None:
            return percentiles
        return percentiles + self.free_shares * np.bincount(
            self.free_at, residuals[self.free], len(percentiles)
        )

    def codes(self, n_rows: int) -> NDArray[np.uint8]:
        """Return the code of each row, (N,).

        It is 1 for the lower row of a leaf, also if that is the upper one too, 2 for the upper row,
        3 for free rows, and 0 for all others.
        """
        row_codes = np.zeros(n_rows, dtype=np.uint8)
        for code in (1, 0):
            row_codes[self.rows[code]] = code + 1
        if self.free is not None:
            row_codes[self.free] = 3
        return row_codes

    def with_rounding(self, rounded_residuals: FloatArray, residuals: FloatArray) -> Picks:
        """Return the picks, with the rounding of residuals added to their constants."""
        if self.shifts is None:
            return self
        rounding = self.values(rounded_residuals) - self.values(residuals)
        return replace(self, shifts=self.shifts + rounding)

    @property
    def levels(self) -> FloatArray:
        """The shares of a row of each code from 1 on, (2, n) or (3, n)."""
        if self.free_shares is None:
            return self.shares
        return np.concatenate([self.shares, self.free_shares[None]])


@dataclass(frozen=True)
class Ranks(Transferable, ABC):
    """A library's rule for percentiles."""

    alpha: float  #: the share of rows below, 0.5 for a median
    weights: FloatArray | None = None  #: (N,) of the rows; None: all alike
    by_draws: bool = False  #: whether a row that was drawn twice counts twice
    spreads: ClassVar[bool] = (
        False  #: whether all rows of a leaf may count, beside those of a certain rank
    )

    @abstractmethod
    def even(self, counts: Positions) -> tuple[Positions, FloatArray]:
        """Return the lower rank from 0 and the share of the next rank, (n,) each.

        ``counts`` (n,) are the numbers of rows in the leaves, from 1 up.
        """

    @abstractmethod
    def weighed(self, weights: FloatArray) -> tuple[int, int, float]:
        """Return the lower and the upper rank from 0, and the share of the upper one.

        ``weights`` are those of the rows of one leaf, in the order of their ranks.
        """

    def picks(
        self,
        leaf: LeafArray,
        residuals: FloatArray,
        draw: AnyArray,
        is_base: bool = False,
    ) -> Picks:
        """Return the rows picked for the leaves of one tree, or for the initial prediction.

        Parameters
        ----------
        leaf, residuals, draw : arrays of shape (N,)
            The leaf and the residual of each row, and how often it was sampled.
        is_base : bool
            Whether the tree stands for the initial prediction.
        """
        rows = np.flatnonzero(draw)
        weights = self.weights
        if self.by_draws and not (draw[rows] == 1).all():
            if weights is None:
                weights = draw
            else:
                weights = weights * draw
        order = rows[np.argsort(residuals[rows], kind="stable")]
        order = order[np.argsort(leaf[order], kind="stable")]
        leaves, first, counts = np.unique(leaf[order], return_index=True, return_counts=True)
        if weights is None:
            lower, share = self.even(counts)
            upper = np.minimum(lower + 1, counts - 1)
        else:
            w = weights[order]
            rank_pairs = [self.weighed(w[start : start + n]) for start, n in zip(first, counts)]
            lower, upper = (
                np.array([rank_pair[k] for rank_pair in rank_pairs], dtype=np.int64)
                for k in range(2)
            )
            share = np.array([rank_pair[2] for rank_pair in rank_pairs])
        upper = np.where(share == 0, lower, upper)
        picked = np.stack([order[first + lower], order[first + upper]])
        return Picks(leaves.astype(np.int64), picked, np.stack([1.0 - share, share]))

    @property
    def follows_targets(self) -> bool:
        """Whether the weights for the ranks depend on the targets.

        Then every change of a target changes them.
        """
        return False

    def with_targets(self, targets: FloatArray) -> Ranks:
        """Return the rule for other targets (N,)."""
        return self

    def of_rows(self, rows: IntArray) -> Ranks:
        """Return the rule of a fit that has only these rows."""
        if self.weights is None:
            return self
        return replace(self, weights=self.weights[rows])

    def base(self, targets: FloatArray, picked: Picks) -> float:
        """Return the percentile of all targets (N,) from picked rows, as the library rounds it."""
        return picked.value(targets)

    def values(
        self,
        leaf: LeafArray,
        residuals: FloatArray,
        draw: AnyArray,
        n_leaves: int,
    ) -> FloatArray:
        """Return the percentiles, (n_leaves,); 0 for a leaf without rows."""
        picks = self.picks(leaf, residuals, draw)
        out = np.zeros(n_leaves)
        out[picks.leaves] = picks.values(residuals)
        return out


@dataclass(frozen=True)
class RankedFit(Transferable):
    """The rule of a fit by percentiles, and the rows that each of its trees sampled."""

    rule: Ranks  #: with the weights of all N rows
    based: bool  #: whether the first tree is the base, the percentile of all targets
    drawn: NDArray[np.uint8] | None = (
        None  #: (T, N) how often each row was drawn for each tree; None: all were, once
    )
    rows: IntArray | None = None  #: the rows that the fit has; None: all
    #: whether the library ranks residuals in single precision: which are equal depends on it
    single: bool = False
    #: whether the library keeps targets in single precision, in which some of them become equal
    single_targets: bool = False

    def rounded_targets(self, targets: FloatArray) -> FloatArray:
        """Return the targets as the library keeps them."""
        if not self.single_targets:
            return targets
        return targets.astype(np.float32).astype(np.float64)

    def less(self, rows: IntArray, n_rows: int) -> RankedFit:
        """Return the refit without some more of the N rows."""
        remains = np.zeros(n_rows, dtype=np.bool_)
        remains[slice(None) if self.rows is None else self.rows] = True
        remains[rows] = False
        return replace(self, rows=np.flatnonzero(remains))

    def picks(self, t: int, leaf: LeafArray, residuals: FloatArray) -> Picks:
        """Return the rows whose residuals are the values of the leaves of tree t.

        Parameters
        ----------
        t : int
        leaf, residuals : arrays of shape (N,)
            The leaf of each row, and its residual before the tree.
        """
        draw = self._draw(t, len(leaf))
        is_base = self.based and t == 0
        ranked_residuals = residuals
        if self.single:
            ranked_residuals = residuals.astype(np.float32).astype(np.float64)
        sampled = self.rows
        if sampled is None:
            picks = self.rule.picks(leaf, ranked_residuals, draw, is_base)
        else:
            rule = self.rule.of_rows(sampled)
            picks = rule.picks(leaf[sampled], ranked_residuals[sampled], draw[sampled], is_base)
            free = picks.free
            if free is not None:
                free = sampled[free]
            picks = replace(picks, rows=sampled[picks.rows], free=free)
        return picks.with_rounding(ranked_residuals, residuals)

    def last(self, leaves: LeafArray) -> BoolArray:
        """Return whether a row is the only one with a weight in its leaf, (T, N)."""
        is_last = np.zeros(leaves.shape, dtype=np.bool_)
        for t, leaf in enumerate(leaves):
            rows = self.counted(t, len(leaf))
            is_last[t, rows] = np.bincount(leaf[rows], minlength=1)[leaf[rows]] == 1
        return is_last

    def counted(self, t: int, n_rows: int) -> IntArray:
        """Return the rows that count in tree t."""
        drawn = self._draw(t, n_rows) > 0
        if self.rows is None:
            return np.flatnonzero(drawn)
        return self.rows[drawn[self.rows]]

    def _draw(self, t: int, n_rows: int) -> AnyArray:
        """Return how often each row was sampled for tree t, (N,)."""
        return np.ones(n_rows, dtype=np.uint8) if self.drawn is None else self.drawn[t]

"""Losses in which the gradient of a row depends on the scores of other rows.

These are the rows of its group, or the rows at risk.

A ranking loss is a sum over pairs of rows of one group, of which one has the better label. With d
the difference of their scores, a pair adds ``-lambda`` to the gradient of the better row,
``lambda`` to that of the worse one, and ``mu`` to both hessians. How large lambda and mu are
depends on d, and in the losses of this package also on the ranks of the two rows by their scores.
A row that is alone in its group has no gradient.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray, RealArray, RealType
from axil.errors import InputError
from axil.trees.losses import RoundRows, Slopes, Squared

#: why there are no derivatives by the targets
RANKS_TURN = "its gradients turn on the ranks and the labels of rows, which change in steps"
PAIRS_AT_A_TIME = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CoupledLoss(Squared):
    """A loss whose gradients depend on all rows of a fit. Its scores are its predictions."""

    smooth = False
    recorded = True
    couples_rows = True
    no_derivative: ClassVar[str] = RANKS_TURN

    def start_of(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the initial scores of a fit to targets (N, 1) of rows with these weights, (N,)."""
        return self.start_from(RoundRows(y, np.zeros_like(y), weights, 0))

    def start_from(self, rows: RoundRows) -> FloatArray:
        """Return the initial score of a fit to these rows, (1,)."""
        return np.zeros(1)

    @abstractmethod
    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, 1) of all rows of a fit, with the row weights in them."""

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        raise NotImplementedError("the gradients of single rows are not defined")


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupedLoss(CoupledLoss):
    """A loss of rows that come in groups."""

    groups: IntArray  #: (N,) the number of each row's group

    has_groups: ClassVar[bool] = True


@dataclass(frozen=True)
class RankedRows:
    """The rows of all groups, each group from its highest score to its lowest.

    Ties keep the order of the rows.
    """

    rows: IntArray  #: (n,) positions among the rows of the fit
    group: IntArray  #: (n,) the number of the group at each place
    starts: IntArray  #: (Q + 1,) the places where the groups begin

    @classmethod
    def of(cls, groups: IntArray, scores: RealArray, present: IntArray) -> RankedRows:
        """Return the present rows of these groups (N,) in the order of their scores (N,)."""
        group = groups[present]
        order = np.lexsort((-scores[present], group))
        sizes = np.bincount(group, minlength=int(groups[-1]) + 1)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        return cls(present[order], group, starts)

    @cached_property
    def ranks(self) -> IntArray:
        """The rank of each place within its group, from 0, (n,)."""
        return np.arange(len(self.rows)) - self.starts[self.group]

    @property
    def n_groups(self) -> int:
        """The number of groups, those without present rows included."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> IntArray:
        """The numbers of present rows of the groups, (Q,)."""
        return np.diff(self.starts)

    def have_one_score(self, scores: AnyArray) -> BoolArray:
        """Return whether all rows of a group have the same score, (Q,), from the scores (n,)."""
        have_one = np.ones(self.n_groups, dtype=np.bool_)
        filled = np.flatnonzero(self.sizes)
        first = self.starts[:-1][filled]
        last = self.starts[1:][filled] - 1
        have_one[filled] = scores[first] == scores[last]
        return have_one

    def best_sums(
        self, labels: FloatArray, gains: FloatArray, factors: FloatArray, top: int
    ) -> FloatArray:
        """Return the sums of ``gains * factors`` over the first ``top`` places of each group, (Q,).

        The gains (n,) come in the order of the labels (n,), the largest of each group first; the
        factors (n,) stay at their places.
        """
        in_order = gains[np.lexsort((-labels, self.group))]
        counted = self.ranks < top
        terms = factors[counted] * in_order[counted]
        return np.bincount(self.group[counted], terms, self.n_groups)

    def pairs(self, labels: FloatArray, top: int) -> Iterator[LabelPairs]:
        """Yield the pairs of places of one group, block by block.

        One place of each pair is among the first ``top`` of its group. A block has whole groups.
        Its pairs are those of unequal labels (n,), ordered by the upper place and then by the
        lower one.
        """
        places = np.arange(len(self.rows))
        n_below = np.where(self.ranks < top, self.starts[1:][self.group] - 1 - places, 0)
        n_pairs = np.concatenate([[0], np.cumsum(n_below)])[self.starts]
        first = 0
        while first < self.n_groups:
            last = int(np.searchsorted(n_pairs, n_pairs[first] + PAIRS_AT_A_TIME, side="right")) - 1
            last = max(last, first + 1)
            block = slice(int(self.starts[first]), int(self.starts[last]))
            upper = np.repeat(places[block], n_below[block])
            firsts = np.repeat(np.cumsum(n_below[block]) - n_below[block], n_below[block])
            lower = upper + 1 + np.arange(len(upper)) - firsts
            yield LabelPairs.of_unequal(upper, lower, labels)
            first = last


@dataclass(frozen=True)
class LabelPairs:
    """Pairs of places in `RankedRows`, of which one has the better label."""

    better: IntArray
    worse: IntArray

    @classmethod
    def of_unequal(cls, first: IntArray, second: IntArray, labels: FloatArray) -> LabelPairs:
        """Return the pairs of these places whose labels (n,) are not equal."""
        differs = labels[first] != labels[second]
        first = first[differs]
        second = second[differs]
        is_worse = labels[first] < labels[second]
        return cls(np.where(is_worse, second, first), np.where(is_worse, first, second))


@dataclass(frozen=True)
class PairSums:
    """Gradients and hessians of rows as sums over pairs.

    They are added in the order in which the libraries add them.
    """

    n_rows: int
    precision: RealType
    g: FloatArray = field(init=False)  #: (N,)
    h: FloatArray = field(init=False)  #: (N,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "g", np.zeros(self.n_rows, dtype=self.precision))
        object.__setattr__(self, "h", np.zeros(self.n_rows, dtype=self.precision))

    def add(self, better: IntArray, worse: IntArray, g: FloatArray, h: FloatArray) -> None:
        """Add ``g`` to the better rows and subtract it from the worse ones; add ``h`` to both."""
        rows = np.stack([better, worse], axis=1).ravel()
        rounded = g.astype(self.precision)
        np.add.at(self.g, rows, np.stack([rounded, -rounded], axis=1).ravel())
        np.add.at(self.h, rows, np.repeat(h.astype(self.precision), 2))


def require_groups(groups: IntArray | None, objective: str) -> IntArray:
    """Return the groups of a ranking model; raise if the user passes none."""
    if groups is None:
        raise InputError(
            f"The model was fitted with {objective}, which ranks rows within groups. Pass the "
            "groups of the fit: group=, sizes or a label for each row."
        )
    return groups


def norm_factors(group_sums: FloatArray) -> FloatArray:
    """Return ``log2(1 + S) / S`` for the sums S of the groups, (Q,); 1 for groups without pairs."""
    has_pairs = group_sums > 0
    factors = np.ones_like(group_sums)
    factors[has_pairs] = np.log2(1 + group_sums[has_pairs]) / group_sums[has_pairs]
    return factors


def weighted(rows: RoundRows, g: RealArray, h: RealArray) -> tuple[FloatArray, FloatArray]:
    """Return gradients and hessians (N, 1), from those of the rows (N,) without row weights."""
    weights = rows.weights.astype(rows.precision)
    return (g * weights)[:, None], (h * weights)[:, None]

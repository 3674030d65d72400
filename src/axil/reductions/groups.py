"""Groups: sums of effects and contributions over groups of training rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import Effects, Shard
from axil.errors import counted
from axil.inputs import group_codes
from axil.machine.arrays import host
from axil.reductions.reduction import Reduction, ReductionResult
from axil.weights.answers import dense


@dataclass(frozen=True)
class Grouped(ReductionResult):
    """Sums over groups of training rows."""

    groups: AnyArray  #: (G,) their names
    effects: FloatArray  #: (n, K, G)
    contributions: FloatArray  #: (n, K, G)

    def __add__(self, other: Grouped) -> Grouped:
        """Return the sums over the rows of both, whose groups may differ."""
        results = [result for result in (self, other) if len(result.groups)] or [self]
        names = np.concatenate([result.groups for result in results])
        codes, groups = group_codes(names, len(names))
        effects = _sums([result.effects for result in results], codes, len(groups))
        contributions = _sums([result.contributions for result in results], codes, len(groups))
        contribution_sums = self.contribution_sums + other.contribution_sums
        return Grouped(contribution_sums, self.intercepts, groups, effects, contributions)

    def folded(self, fold: GroupFold) -> Grouped:
        """Return the sums with small groups put together."""
        n_groups = len(fold.names)
        effects = _sums([self.effects], fold.places, n_groups)
        contributions = _sums([self.contributions], fold.places, n_groups)
        return replace(self, groups=fold.names, effects=effects, contributions=contributions)


@dataclass(frozen=True, eq=False)
class GroupFold:
    """Groups of few rows put together in one, so that no sum tells of a few rows alone."""

    places: IntArray  #: (G,) the place of each group among the names
    names: AnyArray  #: the large groups, and then the one of all others

    @classmethod
    def of(cls, codes: IntArray, names: AnyArray, least: int) -> GroupFold:
        """Return the groups with at least so many rows, from the group of each row, (N,).

        All others are in one. If these have too few rows together, the smallest of the large groups
        joins them.
        """
        sizes = np.bincount(codes, minlength=len(names))
        order = np.argsort(sizes, kind="stable")
        totals = np.cumsum(sizes[order])
        n_small = int((sizes < least).sum())
        while 0 < n_small < len(names) and totals[n_small - 1] < least:
            n_small += 1
        if n_small == 0:
            return cls(np.arange(len(names)), names)
        large = np.sort(order[n_small:])
        places = np.full(len(names), len(large))
        places[large] = np.arange(len(large))
        label = f"{counted(n_small, 'group')} of few rows"
        all_names = np.empty(len(large) + 1, dtype=object)
        all_names[:-1] = names[large]
        all_names[-1] = label
        return cls(places, all_names)


def _sums(columns_of_results: list[FloatArray], codes: IntArray, n_groups: int) -> FloatArray:
    """Return the sums of the columns of one code, (n, K, n_groups), from the first to the last."""
    columns = np.concatenate(columns_of_results, axis=2)
    sums = np.zeros((*columns.shape[:2], n_groups))
    for column, code in enumerate(codes):
        sums[:, :, code] += columns[:, :, column]
    return sums


@dataclass(frozen=True)
class Groups(Reduction[Grouped]):
    """Sums by group; the column has the rows' group numbers and the names of the groups."""

    def of(self, shard: Shard, effects: Effects, column: tuple[IntArray, AnyArray]) -> Grouped:
        """Return the sums over one shard."""
        codes, groups = column
        by_group = effects.by_group(codes, len(groups))
        if by_group is None:
            by_group = _summed(effects, codes, len(groups))
        sums, contributions = by_group
        return Grouped(contributions.sum(axis=2), effects.intercepts, groups, sums, contributions)


def _summed(effects: Effects, codes: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray]:
    """Return sums of effects and of contributions by group, (n, K, n_groups) each.

    They come from sparse effects, or block by block.
    """
    sums, contributions = np.zeros((2, effects.n, effects.shape[1], n_groups))
    for outputs, first, block in effects.parts():
        n_rows = block.shape[0]
        rows = slice(first, first + n_rows)
        numbers = block if issparse(block) else host(block)
        plain_sums = _by_group(np.ones(n_rows), codes[rows], n_groups, numbers)
        for output in outputs:
            sums[:, output] += plain_sums
            if effects.factors is None:
                contributions[:, output] += plain_sums
            else:
                factors = effects.factors[rows, output]
                contributions[:, output] += _by_group(factors, codes[rows], n_groups, numbers)
    return sums, contributions


def _by_group(
    factors: FloatArray, codes: IntArray, n_groups: int, numbers: FloatArray | csr_array
) -> FloatArray:
    """Return sums of numbers (rows, n) times factors (rows,) by group, (n, n_groups)."""
    n_rows = len(factors)
    members = csc_array((factors, codes, np.arange(n_rows + 1)), shape=(n_groups, n_rows))
    return dense(members @ numbers).T

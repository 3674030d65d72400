"""Groups: sums of effects and contributions over groups of training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from axil.arrays import FloatArray, IntArray
from axil.attribution import Effects, Shard
from axil.inputs import group_codes
from axil.machine.arrays import host
from axil.reductions.reduction import Found, Reduction


@dataclass(frozen=True)
class Grouped(Found):
    """Sums over groups of training rows."""

    groups: NDArray[Any]  #: (G,) their names
    effects: FloatArray  #: (n, K, G)
    contributions: FloatArray  #: (n, K, G)

    def __add__(self, other: Grouped) -> Grouped:
        parts = [part for part in (self, other) if len(part.groups)] or [self]
        names = np.concatenate([part.groups for part in parts])
        codes, groups = group_codes(names, len(names))
        effects = _sums([part.effects for part in parts], codes, len(groups))
        contributions = _sums([part.contributions for part in parts], codes, len(groups))
        return Grouped(self.made + other.made, self.intercepts, groups, effects, contributions)


def _sums(parts: list[FloatArray], codes: IntArray, n_groups: int) -> FloatArray:
    """(n, K, n_groups): columns of the same code added, from the first to the last."""
    columns = np.concatenate(parts, axis=2)
    out = np.zeros((*columns.shape[:2], n_groups))
    for column, code in enumerate(codes):
        out[:, :, code] += columns[:, :, column]
    return out


@dataclass(frozen=True)
class Groups(Reduction[Grouped]):
    """Sums by group; the column has the rows' group numbers and the names of the groups."""

    def of(self, shard: Shard, effects: Effects, column: Any) -> Grouped:
        codes, groups = column
        known = effects.by_group(codes, len(groups))
        if known is None:
            sums, contributions = _summed(effects, codes, len(groups))
        else:
            sums, contributions = known
        return Grouped(contributions.sum(axis=2), effects.intercepts, groups, sums, contributions)


def _summed(effects: Effects, codes: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray]:
    """(n, K, groups) twice: from sparse effects, or block by block."""
    sums, contributions = np.zeros((2, effects.n, effects.shape[1], n_groups))
    for outputs, first, block in effects.parts():
        n_rows = block.shape[0]
        own = slice(first, first + n_rows)
        ends = np.arange(n_rows + 1)
        if issparse(block):
            rows = block
        else:
            rows = host(block)
        plain = None
        for output in outputs:
            if plain is None:
                plain = _by_group(np.ones(n_rows), codes[own], ends, n_groups, rows)
            sums[:, output] += plain
            if effects.factors is None:
                contributions[:, output] += plain
            else:
                contributions[:, output] += _by_group(
                    effects.factors[own, output], codes[own], ends, n_groups, rows
                )
    return sums, contributions


def _by_group(
    values: FloatArray, codes: IntArray, ends: IntArray, n_groups: int, block: Any
) -> FloatArray:
    """(n, groups): sums of a block (rows, n) times values (rows,) by group."""
    member = csc_array((values, codes, ends), shape=(n_groups, len(values)))
    total = member @ block
    return np.asarray((total.toarray() if hasattr(total, "toarray") else total).T)

"""Whole: all effects, collected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, hstack, issparse, vstack

from axil.arrays import FloatArray
from axil.attribution import Effects, Shard
from axil.attribution.block_effects import BlockEffects, Once
from axil.reductions.reduction import Reduction, ReductionResult
from axil.weights.largest import MaybeSparse


def _beside(left: list[MaybeSparse], right: list[MaybeSparse]) -> list[MaybeSparse]:
    """Return effects (n, rows) followed by those of other rows, sparse if both are."""
    joined_parts = []
    for pair in zip(left, right):
        if all(map(issparse, pair)):
            joined_parts.append(hstack(pair, format="csr"))
        else:
            joined_parts.append(np.concatenate(pair, axis=1))
    return joined_parts


@dataclass(frozen=True)
class Gathered(ReductionResult):
    """Effects (n, rows), once for all outputs that share them."""

    #: one for all outputs, or one for each; scipy.sparse where asked for
    parts: list[MaybeSparse] = field(metadata={"both": _beside})

    def by_output(self, n_outputs: int) -> list[MaybeSparse]:
        """Return the effects (n, rows) of each output."""
        if len(self.parts) == 1:
            return self.parts * n_outputs
        return self.parts

    def __len__(self) -> int:
        """Return the number of explained rows."""
        return len(self.contribution_sums)


def joined(batches: Iterator[Gathered], n: int) -> Gathered:
    """Return the effects of n explained rows from batches of them.

    Dense effects are copied to their place as they come.
    """
    contribution_sums = []
    intercepts = []
    wholes: list[Any] = []  # lists of sparse parts, or arrays (n, rows)
    n_done = 0
    while n_done < n:
        batch = next(batches)
        if len(batch) == n:
            return batch
        contribution_sums.append(batch.contribution_sums)
        intercepts.append(batch.intercepts)
        if not wholes:
            wholes = [_empty_like(block, n) for block in batch.parts]
        for whole, block in zip(wholes, batch.parts):
            if isinstance(whole, list):
                whole.append(block)
            else:
                whole[n_done : n_done + len(batch)] = block
        n_done += len(batch)
    parts = [vstack(whole, format="csr") if isinstance(whole, list) else whole for whole in wholes]
    return Gathered(np.concatenate(contribution_sums), np.concatenate(intercepts), parts)


def _empty_like(part: MaybeSparse, n: int) -> list[MaybeSparse] | FloatArray:
    """Return an empty list for sparse effects, or an array (n, rows) for dense ones."""
    if issparse(part):
        return []
    return np.empty((n, part.shape[1]))


@dataclass(frozen=True)
class Whole(Reduction[Gathered]):
    """All effects; with ``sparse`` as scipy.sparse if all outputs share them."""

    sparse: bool = False
    adds_up: bool = True  #: whether the rows make the predictions, so that their sums are needed

    is_large: ClassVar[bool] = True

    def of(self, shard: Shard, effects: Effects, column: None) -> Gathered:
        """Return the effects of one shard."""
        readable = effects
        if isinstance(effects, BlockEffects):
            readable = Once(effects, sizes=False)
        sparse_groups = effects.sparse() if self.sparse else None
        parts: list[MaybeSparse]
        if sparse_groups is None or len(sparse_groups) > 1:
            parts = list(readable.dense())
        else:
            parts = [sparse_groups[0][1]]
        if self.sparse and len(parts) == 1:
            parts = [csr_array(parts[0])]
        if not self.adds_up:
            contribution_sums = np.zeros((effects.n, effects.shape[1]))
        elif isinstance(readable, Once):
            contribution_sums = readable.total
        else:
            contribution_sums = effects.contribution_sums()
        return Gathered(contribution_sums, effects.intercepts, parts)

"""Whole: all effects, gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, hstack, issparse, vstack

from axil.effects.blocks import BlockEffects, Once
from axil.effects.source import Effects, Found, Shard


@dataclass(frozen=True)
class Gathered(Found):
    """Effects (n, rows), once for all outputs that share them."""

    parts: list[Any]  #: one for all outputs, or one for each; scipy.sparse where asked for

    def by_output(self, n_outputs: int) -> list[Any]:
        """The effects (n, rows) of each output."""
        return self.parts * n_outputs if len(self.parts) == 1 else self.parts

    def __add__(self, other: Gathered) -> Gathered:
        parts = [_beside(mine, theirs) for mine, theirs in zip(self.parts, other.parts)]
        return Gathered(self.made + other.made, self.intercepts, parts)

    def __len__(self) -> int:
        return len(self.made)


def _beside(mine: Any, theirs: Any) -> Any:
    """Effects (n, rows) of other rows beside these, sparse where both are."""
    if issparse(mine) and issparse(theirs):
        return hstack([mine, theirs], format="csr")
    return np.concatenate([mine, theirs], axis=1)


def joined(batches: list[Gathered]) -> Gathered:
    """The effects of batches of queries, one after the other."""
    if len(batches) == 1:
        return batches[0]
    made, intercepts = (np.concatenate([getattr(one, name) for one in batches]) for name in ("made", "intercepts"))
    return Gathered(made, intercepts, [_below(parts) for parts in zip(*(one.parts for one in batches))])


def _below(parts: tuple[Any, ...]) -> Any:
    """Effects (n, rows) of batches of queries, one below the other."""
    return vstack(parts, format="csr") if all(map(issparse, parts)) else np.concatenate(parts)


@dataclass(frozen=True)
class Whole:
    """All effects; with ``sparse`` as scipy.sparse where all outputs share them."""

    sparse: bool = False
    adds_up: bool = True  #: whether the rows make the predictions, so that their sums are asked for

    is_large: ClassVar[bool] = True

    def of(self, shard: Shard, effects: Effects, column: Any) -> Gathered:
        if isinstance(effects, BlockEffects):
            once = Once(effects)
            parts = once.dense()
            made = once.total if self.adds_up else np.zeros_like(once.total)
            parts = [csr_array(parts[0])] if self.sparse and len(parts) == 1 else parts
            return Gathered(made, effects.intercepts, parts)
        known = effects.sparse() if self.sparse else None
        made = effects.made() if self.adds_up else np.zeros((effects.n, effects.shape[1]))
        if known is not None and len(known) == 1:
            return Gathered(made, effects.intercepts, [numbers for _, numbers in known])
        parts = effects.dense()
        if self.sparse and len(parts) == 1:
            parts = [csr_array(part) for part in parts]
        return Gathered(made, effects.intercepts, parts)

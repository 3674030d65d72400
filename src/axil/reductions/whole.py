"""Whole: all effects, gathered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, hstack, issparse, vstack

from axil.attribution import Effects, Shard
from axil.attribution.block_effects import BlockEffects, Once
from axil.reductions.reduction import Found, Reduction


def _beside(mine: list[Any], theirs: list[Any]) -> list[Any]:
    """Effects (n, rows) of other rows beside these, part by part, sparse where both are."""
    both = list(zip(mine, theirs))
    return [
        hstack(two, format="csr") if all(map(issparse, two)) else np.concatenate(two, axis=1)
        for two in both
    ]


@dataclass(frozen=True)
class Gathered(Found):
    """Effects (n, rows), once for all outputs that share them."""

    #: one for all outputs, or one for each; scipy.sparse where asked for
    parts: list[Any] = field(metadata={"both": _beside})

    def by_output(self, n_outputs: int) -> list[Any]:
        """The effects (n, rows) of each output."""
        if len(self.parts) == 1:
            return self.parts * n_outputs
        return self.parts

    def __len__(self) -> int:
        return len(self.made)


def joined(batches: Iterator[Gathered], n: int) -> Gathered:
    """The effects of n queries in batches, one below the other; dense ones are put in their place as they come."""
    made = []
    intercepts = []
    parts = list[Any]()
    done = 0
    while done < n:
        one = next(batches)
        if len(one) == n:
            return one
        made.append(one.made)
        intercepts.append(one.intercepts)
        if not parts:
            parts = [[] if issparse(part) else np.empty((n, part.shape[1])) for part in one.parts]
        for whole, part in zip(parts, one.parts):
            if isinstance(whole, list):
                whole.append(part)
            else:
                whole[done : done + len(one)] = part
        done += len(one)
    below = [vstack(whole, format="csr") if isinstance(whole, list) else whole for whole in parts]
    return Gathered(np.concatenate(made), np.concatenate(intercepts), below)


@dataclass(frozen=True)
class Whole(Reduction[Gathered]):
    """All effects; with ``sparse`` as scipy.sparse where all outputs share them."""

    sparse: bool = False
    adds_up: bool = True  #: whether the rows make the predictions, so that their sums are asked for

    is_large: ClassVar[bool] = True

    def of(self, shard: Shard, effects: Effects, column: Any) -> Gathered:
        if isinstance(effects, BlockEffects):
            once = Once(effects, sizes=False)
        else:
            once = None
        if self.sparse:
            known = effects.sparse()
        else:
            known = None
        if known is None or len(known) > 1:
            parts: list[Any] = (once or effects).dense()
        else:
            parts = [known[0][1]]
        if self.sparse and len(parts) == 1:
            parts = [csr_array(parts[0])]
        made = np.zeros((effects.n, effects.shape[1]))
        if self.adds_up:
            if once is None:
                made = effects.made()
            else:
                made = once.total
        return Gathered(made, effects.intercepts, parts)

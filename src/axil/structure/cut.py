"""The clipping of residuals in Huber's loss: they count as no more than delta, either way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.arrays import BoolArray, FloatArray
from axil.structure.records import RowTotals, Transferable


@dataclass(frozen=True)
class Cut(Transferable):
    """The threshold at which residuals are clipped."""

    delta: float
    weighs: bool = True  #: whether rows beyond delta count in the denominators of their leaves
    closed: bool = True  #: whether a residual of just delta is within
    single: bool = False  #: whether the library compares targets and offsets in float32

    def rounding(self, targets: FloatArray, offsets: FloatArray | None) -> FloatArray:
        """Return what the library's precision adds to targets less offsets, (N,).

        It decides of residuals that are delta but for this rounding. Where their rows count, or do
        not count, in the denominator of a leaf, its value jumps there.
        """
        rounding = np.zeros(len(targets))
        if self.single:
            rounding = rounding + (targets.astype(np.float32) - targets)[:, 0]
            if offsets is not None:
                rounding = rounding - (offsets.astype(np.float32) - offsets)[:, 0]
        return rounding

    def beyond(self, residuals: FloatArray) -> BoolArray:
        """Return which residuals are cut off."""
        size = np.abs(residuals)
        if self.closed:
            return np.asarray(size > self.delta)
        return np.asarray(size >= self.delta)

    def kept(self, residuals: FloatArray) -> FloatArray:
        """Return the clipped residuals."""
        return np.asarray(np.clip(residuals, -self.delta, self.delta))


@dataclass(frozen=True)
class CutRows(RowTotals, Transferable):
    """The part of clipped rows in the L leaf sums of a fit, and the weights of all other rows."""

    sums: FloatArray  #: (L, 1) of weight * draw * delta, with its sign, over the rows beyond
    free: FloatArray  #: (L,) of weight * draw over the rows within
    beyond: int  #: residuals that were cut off, over all trees
    seen: int  #: residuals in all

    @property
    def share(self) -> float:
        """The share of residuals that were cut off."""
        return self.beyond / max(self.seen, 1)

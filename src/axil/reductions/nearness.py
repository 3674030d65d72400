"""How near a training row must be to an explained row, by a column of numbers or by its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray

ROUNDING = 1e-12  # of the chord between two places


class Nearness(Protocol):
    """The condition on the distance of listed rows from each of n explained rows."""

    def of(self, places: IntArray | slice) -> Nearness:
        """Return the nearness to some of the explained rows."""

    def codes(self) -> IntArray:
        """Return a number for each explained row, (n,); equal ones allow the same rows."""

    def allows(self, query: int, values: AnyArray) -> BoolArray:
        """Return which rows, by their values, lie near one explained row.

        Missing values give false.
        """

    def arrays(self) -> list[AnyArray]:
        """Return all that it depends on."""


@dataclass(frozen=True, eq=False)
class WithinRange:
    """The condition that a number or date lies in a range around that of the explained row."""

    lowest: AnyArray  #: (n,)
    highest: AnyArray  #: (n,)

    def of(self, places: IntArray | slice) -> WithinRange:
        """Return the ranges of some of the explained rows."""
        return WithinRange(self.lowest[places], self.highest[places])

    def codes(self) -> IntArray:
        """Return a number for each different range, (n,)."""
        ends = np.stack([self.lowest, self.highest])
        return np.unique(ends, axis=1, return_inverse=True)[1].ravel()

    def allows(self, query: int, values: AnyArray) -> BoolArray:
        """Return which values (rows,) lie in the range of one explained row."""
        return np.asarray((values >= self.lowest[query]) & (values <= self.highest[query]))

    def arrays(self) -> list[AnyArray]:
        """Return the ends of the ranges."""
        return [self.lowest, self.highest]


@dataclass(frozen=True, eq=False)
class WithinDistance:
    """The condition that a place, a point on the unit sphere, is near that of the explained row."""

    centres: FloatArray  #: (n, 3)
    chord: float  #: the longest straight line between the two

    def of(self, places: IntArray | slice) -> WithinDistance:
        """Return the centres of some of the explained rows."""
        return WithinDistance(self.centres[places], self.chord)

    def codes(self) -> IntArray:
        """Return a number for each different centre, (n,)."""
        return np.unique(self.centres, axis=0, return_inverse=True)[1].ravel()

    def allows(self, query: int, values: AnyArray) -> BoolArray:
        """Return which places (rows, 3) are near the centre of one explained row."""
        chords = np.linalg.norm(values - self.centres[query], axis=1)
        return np.asarray(chords <= self.chord + ROUNDING)

    def arrays(self) -> list[AnyArray]:
        """Return the centres and the radius."""
        return [self.centres, np.array([self.chord])]

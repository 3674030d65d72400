"""Venn-Abers prediction: calibrated probabilities of an event.

They come from the scores and labels of calibration rows. A new row with score s joins the n
calibration rows twice, with label 0 and with label 1. Isotonic regression of the labels on the
scores gives it p0 and p1 (Vovk and Petej, UAI 2014). For rows that are exchangeable with the
calibration rows, one of both is perfectly calibrated. The probability that minimises the regret of
the log-loss is ``p1 / (1 - p0 + p1)``.

The isotonic value at a row is max over a of min over b of the mean label of the rows from a to b,
where a is at or before the row and b at or after it. With cumulative numbers of rows W and sums of
labels S, these means are slopes between a point of the diagram (W, S) before the row and one after
it. Only the corners of two lower convex hulls can have the extreme slopes: that of the points
before the row, and that of the points after it. The hulls of all places are found in one pass each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from axil.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class VennAbers:
    """Calibration rows, whose labels are to follow their scores."""

    scores: FloatArray  #: (n,)
    labels: FloatArray  #: (n,) 0 and 1

    def bounds(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p0 and p1 (m,), the lower and upper bounds of the probability at these scores."""
        distinct, inverse = np.unique(scores, return_inverse=True)
        low = np.empty(len(distinct))
        high = np.empty(len(distinct))
        for i, score in enumerate(distinct):
            # Calibration rows of the same score are in one group with the new row.
            before = int(np.searchsorted(self._distinct_scores, score, "left"))
            after = int(np.searchsorted(self._distinct_scores, score, "right"))
            low[i] = self._isotonic_value(before, after, 0.0)
            high[i] = self._isotonic_value(before, after, 1.0)
        return low[inverse], high[inverse]

    @cached_property
    def _distinct_scores(self) -> FloatArray:
        """The scores of the groups of calibration rows of one score, (G,), in order."""
        return np.unique(self.scores)

    @cached_property
    def _diagram(self) -> FloatArray:
        """Cumulative numbers of rows and sums of labels, (G + 1, 2), from (0, 0) on."""
        group = np.searchsorted(self._distinct_scores, self.scores)
        n_groups = len(self._distinct_scores)
        numbers = np.bincount(group, minlength=n_groups)
        sums = np.bincount(group, self.labels, minlength=n_groups)
        diagram = np.zeros((n_groups + 1, 2))
        diagram[1:, 0] = np.cumsum(numbers)
        diagram[1:, 1] = np.cumsum(sums)
        return diagram

    @cached_property
    def _hulls_before(self) -> list[IntArray]:
        """For each place the corners of the lower hull of the points up to it."""
        return _growing_hulls(self._diagram)

    @cached_property
    def _hulls_after(self) -> list[IntArray]:
        """For each place the corners of the lower hull of the points from it on."""
        last = len(self._diagram) - 1
        mirrored = (self._diagram[last] - self._diagram)[::-1] * (1.0, -1.0)
        return [last - corners for corners in _growing_hulls(mirrored)[::-1]]

    def _isotonic_value(self, before: int, after: int, label: float) -> float:
        """Return the isotonic value of a new row between two places of the diagram.

        Parameters
        ----------
        before, after : int
            The number of groups with a lower score, and with a score that is not higher.
        label : float
            The label of the new row.
        """
        first = self._diagram[self._hulls_before[before]]
        last = self._diagram[self._hulls_after[after]] + (1.0, label)
        rise = last[None, :, 1] - first[:, None, 1]
        run = last[None, :, 0] - first[:, None, 0]
        return float((rise / run).min(axis=1).max())


def _growing_hulls(points: FloatArray) -> list[IntArray]:
    """Return the corners of the lower convex hull of the first p points, for p from 1 to P.

    The points (P, 2) are in the order of their first coordinates, which differ.
    """
    corners: list[int] = []
    hulls = []
    for place, (x, y) in enumerate(points):
        while len(corners) > 1:
            x0, y0 = points[corners[-2]]
            x1, y1 = points[corners[-1]]
            if (y1 - y0) * (x - x1) < (y - y1) * (x1 - x0):
                break
            corners.pop()
        corners.append(place)
        hulls.append(np.array(corners))
    return hulls


def merged(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the probability between p0 and p1 that minimises the regret of the log-loss."""
    return high / (1.0 - low + high)


def normalised(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return probabilities of all classes that add up to one, with their bounds.

    Each class is calibrated against all others, so the merged probabilities m add up to one for
    two classes only. ``m_k / sum(m)`` rises with m_k and falls with every other m_j. It is
    therefore least where m_k is p0 and every m_j is p1, and largest where m_k is p1 and every m_j
    is p0. Probabilities that lie between p0 and p1 and add up to one lie between these bounds too.
    For two classes the bounds are p0 and p1.

    Parameters
    ----------
    low, high : ndarray of shape (m, C)
        p0 and p1 of each row and class.

    Returns
    -------
    probabilities, lower, upper : ndarray of shape (m, C)
    """
    probabilities = merged(low, high)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    low_of_others = low.sum(axis=1, keepdims=True) - low
    high_of_others = high.sum(axis=1, keepdims=True) - high
    return probabilities, low / (low + high_of_others), high / (high + low_of_others)

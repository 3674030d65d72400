"""scikit-survival's losses, and the hazards of its forests in the form of a loss.

Targets are times, with a minus sign where a row was censored. Boosting fits each tree to the
negative gradients by squared error, so leaf values are their means, and every h is the row weight.

A survival tree predicts a cumulative hazard with the estimator of Nelson and Aalen. In a leaf, with
c the number of times that a row was sampled, times its weight, and Y(t) the sum of c over the rows
of the leaf whose times are t or later,

    hazard at t = sum over events j of the leaf with t_j <= t of  c_j / Y(t_j)

The risk score is the sum of these hazards over the times of all events, so an event j puts
``c_j n_j / Y(t_j)`` into it, where n_j is the number of such times from t_j on. A censored row puts
nothing into it: it stands in Y alone. A forest predicts the mean over its trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from axil.adapters.boosted_fit import Sampler
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray, LeafArray, RealType
from axil.errors import UnsupportedQuestionError
from axil.trees.coupled_losses import CoupledLoss
from axil.trees.losses import RoundRows, Squared
from axil.trees.survival_losses import Cox, RowsAtRisk, check_times


@dataclass(frozen=True, kw_only=True)
class SurvivalCox(Cox):
    """The loss "coxph". All rows of one time are at risk, and all events of a time count there."""

    name = "coxph"
    gradient_type: ClassVar[RealType] = np.float64

    def slopes_in_order(self, rows: RoundRows, at_risk: RowsAtRisk) -> tuple[AnyArray, AnyArray]:
        """Return g and h of the rows at risk, (n,) each, times the row weights."""
        exponentials = np.exp(rows.scores[at_risk.rows, 0])
        total = float(exponentials[::-1].cumsum()[-1])
        totals = at_risk.totals(total, exponentials, at_risk.starts_later)
        hazards = np.cumsum(np.where(at_risk.is_event, 1 / totals, 0.0))
        ends = np.append(np.flatnonzero(at_risk.starts_later)[1:], len(hazards)) - 1
        hazards_at_times = np.repeat(hazards[ends], np.diff(ends, prepend=-1))
        g = exponentials * hazards_at_times - at_risk.is_event
        weights = rows.weights[at_risk.rows]
        return g * weights, weights


@dataclass(frozen=True, kw_only=True)
class LogTimes(Squared):
    """The loss "ipcwls": squared error of the logarithm of a time.

    It is the same whether the time is of an event or not.
    """

    name = "ipcwls"
    smooth = False
    recorded = True
    gradient_type: ClassVar[RealType] = np.float64
    no_derivative: ClassVar[str] = "a time has a sign, which says whether it is of an event"

    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, 1), with the row weights in them."""
        g = rows.scores - np.log(np.abs(rows.targets))
        weights = rows.weights[:, None]
        return weights * g, weights

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require times other than 0."""
        check_times(y, argument)


@dataclass(frozen=True, kw_only=True)
class CensoredLogTimes(LogTimes):
    """The loss "squared": a censored row has no gradient where its score is beyond its time."""

    name = "squared"

    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, 1), with the row weights in them."""
        g, h = super().fit_gradients(rows)
        counts = (g < 0) | (rows.targets > 0)
        return np.where(counts, g, 0.0), h


STAGE_LOSSES = {
    "coxph": SurvivalCox(),
    "squared": CensoredLogTimes(),
    "ipcwls": LogTimes(),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class LeafHazards(CoupledLoss):
    """The risk scores of the leaves of a survival forest, tree after tree.

    A leaf value is minus the sum of its rows' g; h is 0, and l2 is 1.
    """

    leaves: LeafArray  #: (T, N)
    sampler: Sampler | None

    name = "Nelson-Aalen"
    gradient_type: ClassVar[RealType] = np.float64
    no_derivative: ClassVar[str] = "hazards turn on the order of the times, which changes in steps"

    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, 1) in the tree of this round, with the row weights in them."""
        tree = rows.number
        leaves = self.leaves[tree].astype(np.intp)
        signed_times = rows.targets[:, 0]
        is_present = rows.is_present
        if is_present is None:
            is_present = np.ones(len(signed_times), dtype=np.bool_)
        sampled = self._sample_counts(tree, leaves)
        self._check_filled(leaves, sampled, is_present, tree)
        counts = np.where(is_present, rows.weights * sampled, 0.0)
        is_event = (signed_times > 0) & is_present
        times = np.abs(signed_times)
        event_times = np.unique(times[is_event])
        n_later = len(event_times) - np.searchsorted(event_times, times, side="left")
        totals = sums_from_then_on(leaves, times, counts)
        hazards = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        g = -np.where(is_event, rows.weights * n_later * hazards, 0.0)
        return g[:, None], np.zeros((len(g), 1))

    def _sample_counts(self, tree: int, leaves: IntArray) -> FloatArray:
        """Return how often each row was sampled for a tree, (N,)."""
        if self.sampler is None:
            return np.ones(len(leaves))
        drawn = self.sampler.draw(range(tree, tree + 1), leaves[None], None)[0]
        return np.asarray(drawn, dtype=np.float64)

    def _check_filled(
        self, leaves: IntArray, sampled: FloatArray, is_present: BoolArray, tree: int
    ) -> None:
        """Raise if a leaf has lost all rows that were sampled for its tree."""
        was_filled = np.bincount(leaves, sampled) > 0
        is_filled = np.bincount(leaves, np.where(is_present, sampled, 0.0)) > 0
        n_emptied = int((was_filled & ~is_filled).sum())
        if n_emptied:
            raise UnsupportedQuestionError(
                "A deletion",
                f"{n_emptied} leaves of tree {tree} would lose all rows, and have no hazard",
                "Delete fewer rows, or use contributions: they add up to the risk score.",
            )

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require times other than 0."""
        check_times(y, argument)


def sums_from_then_on(leaves: AnyArray, times: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the sum of the counts of the rows of a row's leaf that have its time or a later one.

    Parameters
    ----------
    leaves, times, counts : arrays of shape (N,)

    Returns
    -------
    array of shape (N,)
    """
    order = np.lexsort((-times, leaves))
    ordered_leaves = leaves[order]
    ordered_times = times[order]
    sums = np.cumsum(counts[order])
    starts = np.flatnonzero(np.diff(ordered_leaves, prepend=-1))
    before = np.append(0.0, sums)[starts]
    sums -= np.repeat(before, np.diff(np.append(starts, len(sums))))
    is_last = np.append(
        (np.diff(ordered_leaves) != 0) | (np.diff(ordered_times) != 0), len(sums) > 0
    )
    ends = np.flatnonzero(is_last)
    at_times = np.repeat(sums[ends], np.diff(ends, prepend=-1))
    totals = np.empty_like(sums)
    totals[order] = at_times
    return totals

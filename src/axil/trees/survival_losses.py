"""The partial likelihood of Cox's model, by which boosted trees learn the logarithm of a hazard.

A target is the time of a row: positive where an event ended it, negative where the row was
censored. Rows come in the order of their times. With R the sum of ``exp(F)`` over the rows at risk
at a time, and r and q the sums of 1 / R and 1 / R^2 over the events up to a row,

    g = exp(F) r - event,   h = exp(F) r - exp(F)^2 q

Libraries differ in which rows of one time are still at risk, in how they round, and in what row
weights do.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError
from axil.trees.coupled_losses import CoupledLoss
from axil.trees.losses import RoundRows


@dataclass(frozen=True)
class RowsAtRisk:
    """The present rows of a fit in the order of their times; rows of one time keep their order."""

    rows: IntArray  #: (n,) positions among all rows of the fit
    times: FloatArray  #: (n,)
    is_event: BoolArray  #: (n,)

    @classmethod
    def of(cls, rows: RoundRows) -> RowsAtRisk:
        """Return the present rows in order."""
        present = rows.present
        times = np.abs(rows.targets[present, 0])
        order = np.argsort(times, kind="stable")
        ordered = present[order]
        return cls(ordered, times[order], rows.targets[ordered, 0] > 0)

    @property
    def starts_later(self) -> BoolArray:
        """(n,): whether a row's time is later than that of the row before it."""
        return np.diff(self.times, prepend=0.0) > 0

    def totals(self, total: float, exponentials: FloatArray, leaves: BoolArray) -> FloatArray:
        """Return R at each row, (n,).

        Parameters
        ----------
        total : float
            The sum over all rows, from which sums are taken off in the order of the times.
        exponentials : array of shape (n,)
        leaves : bool array of shape (n,)
            At which rows all rows before them that are still counted leave.
        """
        period = np.cumsum(leaves)
        sums = np.bincount(period, exponentials)
        return np.asarray(np.subtract.accumulate(np.append(total, sums[:-1]))[period])

    def slopes(self, totals: FloatArray, exponentials: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return g and h of the rows in order, (n,) each, without row weights."""
        inverse = np.where(self.is_event, 1 / totals, 0.0)
        inverse_square = np.where(self.is_event, 1 / (totals * totals), 0.0)
        first = exponentials * np.cumsum(inverse)
        second = exponentials * exponentials * np.cumsum(inverse_square)
        return first - self.is_event, first - second


def check_times(y: FloatArray, argument: str) -> None:
    """Require signed times other than 0, which has no sign."""
    if (y == 0).any():
        raise InputError(
            f"{argument} has times of 0; this loss takes times above 0, with a minus sign "
            "where a row was censored."
        )


@dataclass(frozen=True, kw_only=True)
class Cox(CoupledLoss):
    """Minus the logarithm of Cox's partial likelihood."""

    name = "Cox"
    no_derivative: ClassVar[str] = (
        "its gradients turn on the order of the times, which changes in steps"
    )

    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, 1), with the row weights in them where the library has them there."""
        at_risk = RowsAtRisk.of(rows)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            g_in_order, h_in_order = self.slopes_in_order(rows, at_risk)
        g = np.zeros((len(rows.targets), 1), dtype=g_in_order.dtype)
        h = np.zeros_like(g)
        g[at_risk.rows, 0] = g_in_order
        h[at_risk.rows, 0] = h_in_order
        return g, h

    @abstractmethod
    def slopes_in_order(self, rows: RoundRows, at_risk: RowsAtRisk) -> tuple[AnyArray, AnyArray]:
        """Return g and h of the rows at risk, (n,) each."""

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require times other than 0, some of them of events."""
        check_times(y, argument)
        if whole and not (y > 0).any():
            raise InputError(
                f"{argument} has no time of an event, and all times of censored rows are below 0."
            )

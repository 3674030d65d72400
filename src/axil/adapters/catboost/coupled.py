"""CatBoost's losses of groups of rows, QueryRMSE and PairLogit, and of rows at risk, Cox.

Formulas: catboost/private/libs/algo_helpers/error_functions.h. All is computed in float64. With w
the weights of the rows and the mean of a group taken by them:

    QueryRMSE    g = w (d - mean of d in the group),   h = w,   d = F - y
    PairLogit    each pair of rows of a group with other labels: lambda = W p, mu = W p (1 - p),
                 p = 1 / (1 + exp(F_better - F_worse)), W the weight of the group

Gradients of QueryRMSE are linear in targets and scores, so predictions are linear in the targets.
The mean value of a tree of PairLogit is taken off all its leaves; leaf_estimation_method="Gradient"
divides by the number of pairs of each row.

Every event of Cox takes all rows before it out of the risk set, be they of its own time. Row
weights are in no derivative. leaf_estimation_method="Gradient" divides by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray, RealType
from axil.errors import UnsupportedModelError
from axil.trees.coupled_losses import CoupledLoss, GroupedLoss, RankedRows
from axil.trees.losses import RoundRows, Slopes
from axil.trees.survival_losses import Cox, RowsAtRisk

BLOCK = 500  # rows whose derivatives CatBoost computes together


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryRMSE(GroupedLoss):
    """Squared error within groups: a shift of all scores of a group changes nothing."""

    name = "QueryRMSE"
    smooth = True
    no_derivative: ClassVar[str] = ""
    gradient_type: ClassVar[RealType] = np.float64

    def fit_gradients(self, rows: RoundRows) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h (N, 1), with the row weights in them."""
        weights = self._present_weights(rows)
        residuals = self.couple(rows.scores - rows.targets, weights)
        return weights[:, None] * residuals, weights[:, None]

    def total(self, rows: RoundRows) -> float:
        """Return the sum of squares."""
        residuals = self.couple(rows.scores - rows.targets, rows.weights)
        return float((rows.weights[:, None] * residuals**2).sum())

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        """Return the derivatives of each row by itself; `couple` does the rest."""
        return Slopes(F - y, 1.0, 1.0, 0.0, -1.0)

    def couple(self, of_rows: FloatArray, weights: FloatArray) -> FloatArray:
        """Subtract the weighted mean of each group from its rows."""
        weighted = weights.reshape(-1, *[1] * (of_rows.ndim - 1)) * of_rows
        means = self._sums(weighted) * self._inverse_sums(weights)
        return of_rows - means[self.groups]

    def couple_adjoints(self, of_rows: FloatArray, weights: FloatArray) -> FloatArray:
        """Apply the transpose of `couple`."""
        shares = weights * self._inverse_sums(weights).ravel()[self.groups]
        return of_rows - shares[:, None] * self._sums(of_rows)[self.groups]

    def _present_weights(self, rows: RoundRows) -> FloatArray:
        if rows.is_present is None:
            return rows.weights
        return np.where(rows.is_present, rows.weights, 0.0)

    def _sums(self, values: FloatArray) -> FloatArray:
        """Return the sums over the groups, (Q, ...)."""
        starts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        return np.asarray(np.add.reduceat(values, starts, axis=0))

    def _inverse_sums(self, weights: FloatArray) -> FloatArray:
        """Return one over the weight of each group, (Q, 1); 0 for groups without weight."""
        totals = np.bincount(self.groups, weights)[:, None]
        return np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairLogit(GroupedLoss):
    """The log-loss of the order of each pair of rows of a group with other labels."""

    takes_gradient_steps: bool

    name = "PairLogit"
    gradient_type: ClassVar[RealType] = np.float64

    def fit_gradients(self, rows: RoundRows) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h (N, 1), with the weights of the groups in them."""
        n_rows = len(rows.targets)
        g = np.zeros(n_rows)
        h = np.zeros(n_rows)
        scores = rows.scores[:, 0]
        for better, worse, weights in self._pairs(rows):
            p = 1 / (1 + np.exp(scores[better] - scores[worse]))
            g += np.bincount(worse, weights * p, n_rows) - np.bincount(better, weights * p, n_rows)
            curvatures = weights
            if not self.takes_gradient_steps:
                curvatures = weights * p * (1 - p)
            for side in (better, worse):
                h += np.bincount(side, curvatures, n_rows)
        return g[:, None], h[:, None]

    def total(self, rows: RoundRows) -> float:
        """Return the sum over pairs."""
        scores = rows.scores[:, 0]
        total = 0.0
        for better, worse, weights in self._pairs(rows):
            total += float((weights * np.log1p(np.exp(scores[worse] - scores[better]))).sum())
        return total

    def _pairs(self, rows: RoundRows) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Yield the better and the worse rows of pairs and their weights, block by block."""
        n_rows = len(rows.targets)
        ranked = RankedRows.of(self.groups, np.zeros(n_rows), rows.present)
        filled = np.flatnonzero(ranked.sizes)
        weights = np.zeros(ranked.n_groups)
        weights[filled] = rows.weights[ranked.rows[ranked.starts[filled]]]
        for pairs in ranked.pairs(rows.targets[ranked.rows, 0], n_rows):
            better = ranked.rows[pairs.better]
            yield better, ranked.rows[pairs.worse], weights[ranked.group[pairs.better]]


@dataclass(frozen=True, kw_only=True)
class CatBoostCox(Cox):
    """The loss of Cox."""

    takes_gradient_steps: bool

    gradient_type: ClassVar[type[np.floating[Any]]] = np.float64

    def slopes_in_order(self, rows: RoundRows, at_risk: RowsAtRisk) -> tuple[AnyArray, AnyArray]:
        """Return g and h of the rows at risk, (n,) each, or the row weights for h."""
        _, exponentials, totals = self._at_risk(rows, at_risk)
        g, h = at_risk.slopes(totals, exponentials)
        if self.takes_gradient_steps:
            return g, rows.weights[at_risk.rows]
        return g, h

    def total(self, rows: RoundRows) -> float:
        """Return minus the logarithm of the partial likelihood."""
        at_risk = RowsAtRisk.of(rows)
        scores, _, totals = self._at_risk(rows, at_risk)
        terms = scores[at_risk.is_event] - np.log(totals[at_risk.is_event])
        return -float(terms.sum())

    def _at_risk(
        self, rows: RoundRows, at_risk: RowsAtRisk
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the scores in order, less the largest, their exponentials, and R at each row."""
        scores = rows.scores[at_risk.rows, 0]
        scores = scores - scores.max()
        exponentials = np.exp(scores)
        in_order_of_rows = exponentials[np.argsort(at_risk.rows)]
        total = float(in_order_of_rows.sum())
        return scores, exponentials, at_risk.totals(total, exponentials, at_risk.is_event)


def require_one_block(n_rows: int) -> None:
    """Raise if there are more rows than CatBoost differentiates together with the loss Cox."""
    if n_rows > BLOCK:
        raise UnsupportedModelError(
            "loss_function",
            f"Cox on {n_rows} rows",
            f"CatBoost 1.2.10 gives each row after the first {BLOCK} the derivative of an earlier "
            f"row, {BLOCK} places before it, so that leaves do not follow from their own rows",
            'Fit XGBoost with objective="survival:cox".',
        )


def coupled_loss(
    name: str, takes_gradient_steps: bool, groups: IntArray, weights: FloatArray | None
) -> CoupledLoss:
    """Return the loss of this name for rows of these groups and weights, (N,) each."""
    if name == "QueryRMSE":
        return QueryRMSE(groups=groups)
    varies = weights is not None and ((np.diff(groups) == 0) & (np.diff(weights) != 0)).any()
    if varies:
        raise UnsupportedModelError(
            "sample_weight",
            "different within a group, with PairLogit",
            "CatBoost gives all pairs of a group the weight of one of its rows, which the model "
            "does not record",
            "Fit with one weight for each group.",
        )
    return PairLogit(groups=groups, takes_gradient_steps=takes_gradient_steps)

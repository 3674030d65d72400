"""XGBoost's survival:cox.

Formulas: src/objective/regression_obj.cu. All rows of earlier times have left the risk set
(Breslow's way with ties), while sums over events go on row by row. Row weights multiply gradients
alone. The risk set begins with a sum of float32 exponentials, and loses float64 ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.trees.losses import RoundRows
from axil.trees.survival_losses import Cox, RowsAtRisk

MIN_START_HESSIAN = 1e-6  # of the Newton step that a fit starts with


@dataclass(frozen=True, kw_only=True)
class XGBoostCox(Cox):
    """The loss of survival:cox; base_score is a hazard ratio."""

    name = "survival:cox"

    def slopes_in_order(self, rows: RoundRows, at_risk: RowsAtRisk) -> tuple[AnyArray, AnyArray]:
        """Return g and h of the rows at risk, (n,) each, times the row weights."""
        scores = rows.scores[at_risk.rows, 0].astype(np.float32).astype(np.float64)
        exponentials = np.exp(scores)
        total = float(np.cumsum(exponentials.astype(np.float32).astype(np.float64))[-1])
        totals = at_risk.totals(total, exponentials, at_risk.starts_later)
        g, h = at_risk.slopes(totals, exponentials)
        weights = rows.weights[at_risk.rows]
        return (g * weights).astype(rows.precision), (h * weights).astype(rows.precision)

    def start_from(self, rows: RoundRows) -> FloatArray:
        """Return the initial score of a fit to these rows, (1,): one Newton step from 0."""
        g, h = self.fit_gradients(rows)
        total = max(float(h.astype(np.float64).sum()), MIN_START_HESSIAN)
        step = np.float32(-float(g.astype(np.float64).sum()) / total)
        return self.stored_link(np.exp(np.float64(step))[None].astype(np.float32))

    def stored_means(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return base_score, (1,)."""
        return np.exp(self.start_of(y, weights))

    def stored_link(self, means: FloatArray) -> FloatArray:
        """Return the scores of hazard ratios (1,), in float32."""
        logs = np.log(means.astype(np.float32).astype(np.float64))
        return np.asarray(logs.astype(np.float32).astype(np.float64))

"""Removal: what predictions would change by if training rows were deleted, to first order, with the structure held fixed.

The derivative of a prediction with respect to the sample weight w_j of row j uses the adjoints phi
of the leaf sums and beta of the base (see `boosting`). With r_tj the residual that tree t sees,
b_tj how often it drew the row, v_t its leaf values and P_t's diagonal, the scale of a leaf, a
function of its weight:

    I_j = sum_t b_tj phi_t[l] (r_tj - level_t[l]) + beta (y_j - base) / W,     l = leaf_t(j)
    level = -v scale' / scale^2         (v itself for scale = 1 / (W_l + l2))

The second term is there where the base is estimated. The effect of deleting row j is ``-w_j I_j``.
Where l2 is in proportion to the mean weight W / N of the rows, ``(1 / N - w_j / W) phi' drift`` is
added: the row takes its weight out of the sum, and itself out of the number of rows, with

    drift = v (d scale / d l2) l2 / scale^2

Residuals follow from the leaf
values row by row, so rows are worked on in blocks and no (T, N) table of them ever exists.

What a row's residuals put into the steps of the trees is read out the same way, with no level and
with the scale of x's own leaves in place of phi; see `pushes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.kernels import Rows
from axil.machine.arrays import host, like
from axil.machine.blocks import spans
from axil.structure import Structure
from axil.weights.answers import RowEffects
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import asked
from axil.weights.passes import Adjoints
from axil.weights.residuals import FittedValues

BLOCK_ENTRIES = 1 << 20  # residuals held at a time, over all trees


@dataclass(frozen=True)
class RemovalFit:
    """The numbers of a fit to the targets of one output that removal needs."""

    training: Rows
    fitted: FittedValues
    output: int
    level: FloatArray  #: (L,)
    drift: FloatArray  #: (L,)

    def factors(self, rows: slice) -> Any:
        """(T, rows), an array of the back end: b_tj (r_tj - level_t[l])."""
        s = self.fitted.structure
        k = self.output
        out = self.training.xp.empty((s.n_trees, rows.stop - rows.start))
        if (
            s.coefficients is not None or rule_of(s).clips_residuals
        ):  # residuals are not simply what the trees before leave over
            for step in self.fitted.steps(rows):
                out[step.tree] = like(
                    step.drawn * (step.residual[:, k] - self.level[step.leaf]), out
                )
            return out
        tables = np.stack(
            [np.repeat(s.learning_rates, s.n_leaves) * self.fitted.values[:, k], self.level], axis=1
        )
        steps, levels = np.ascontiguousarray(s.by_cells(tables, drawn=False).T)
        draws = s.by_cells(np.ones((s.total_leaves, 1)), drawn=True)[:, 0]
        start = self.fitted.started(rows)[:, k] - self.fitted.base[k]
        self.training.residual_factors(steps, levels, draws, start, rows.start, out)
        return out

    def from_base(self, rows: slice) -> FloatArray:
        """(rows,): ``(y_j - base) / W``, or 0 where the base is a constant."""
        above = self.fitted.targets[rows, self.output] - self.fitted.base[self.output]
        return np.asarray(self.fitted.structure.mean_weight * above)

    def l2_changes(self, rows: slice) -> FloatArray:
        """Return the relative change of l2 on deleting each of these rows, (rows,), to first order."""
        s = self.fitted.structure
        weights = self.fitted.structure.l2_weights
        if weights is None:
            return np.zeros(rows.stop - rows.start)
        return 1.0 / s.n_present - weights[rows] / s.l2_total


def fits(training: Rows, fitted: FittedValues) -> list[RemovalFit]:
    """The fits of each of the K outputs to the targets of these rows."""
    level, drift = levels(fitted.structure)
    return [
        RemovalFit(training, fitted, k, level * values, drift * values)
        for k, values in enumerate(fitted.values.T)
    ]


def levels(s: Structure) -> tuple[FloatArray, FloatArray]:
    """(L,) twice: level and drift, each for a leaf value of one."""
    reason = rule_of(s).no_first_order(s)
    if reason:
        raise UnsupportedQuestionError(
            'removal with method="first-order"',
            reason,
            'Leave method out, or pass method="exact": every fit without a row is then replayed.',
        )
    rule = s.newton_rule
    by_weight, by_l2 = rule.slopes(s.leaf_weights)
    square = s.linear_leaves.scale**2
    level = np.divide(-by_weight, square, out=np.zeros_like(square), where=square > 0)
    if not rule.by_weight:
        return level, np.zeros_like(level)
    l2 = np.where(np.isfinite(rule.l2), rule.l2, 0.0)
    drift = np.divide(by_l2 * l2, square, out=np.zeros_like(square), where=square > 0)
    return level, drift


@dataclass(frozen=True)
class ReadOutEffects(RowEffects):
    """Effects of deleting each of N rows on n predictions of one output, or, with the other sign, what each row does there."""

    fit: RemovalFit
    adjoints: Adjoints
    sign: float = -1.0

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        s = self.fit.fitted.structure
        n = len(self.adjoints.beta)
        xp = self.fit.training.xp
        phi = xp.asarray(self.adjoints.phi)
        beta = xp.asarray(self.adjoints.beta)
        of_l2 = xp.asarray(self.fit.drift) @ phi
        moves_l2 = bool(self.fit.drift.any())
        table = s.by_cells(phi, drawn=False)  # draws are in the factors already
        step = max(64, min(BLOCK_ENTRIES // s.n_trees, BLOCK_ENTRIES // max(n, 1)))
        for rows in spans(s.n_rows, step):
            out = xp.empty((rows.stop - rows.start, n))
            self.fit.training.scaled_read_out(table, self.fit.factors(rows), rows.start, out)
            out += np.outer(xp.asarray(self.fit.from_base(rows)), beta)
            if s.row_weights is None:
                out *= self.sign
            else:
                out *= xp.asarray(self.sign * s.row_weights[rows, None])
            if moves_l2:
                out += np.outer(xp.asarray(self.fit.l2_changes(rows)), of_l2)
            yield rows.start, host(out)


def pushes(
    training: Rows, fitted: FittedValues, queries: NDArray[np.integer[Any]]
) -> list[ReadOutEffects]:
    """For each of the K outputs of a fit what each row puts into the steps of the trees at queries in these leaves, (n, T).

        s_j = sum_t final_t w_j b_tj r_tj [leaf_t(j) = leaf_t(x)] / (W + l2),       sum_j s_j = F(x) - base

    as a leaf's value is the sum over its rows of ``w_j b_tj r_tj / (W + l2)``. Residuals are taken
    as they are: what other rows had a part in them is not followed, as the weights do. Where L1
    moved a sum or a step was clipped, all that made the leaf's value have their share of what is
    left: the value over what it would be without the shift. O(T N) per query.
    """
    s = fitted.structure
    table = asked(fitted.structure, queries)
    whole = rule_of(s).whole_sums(fitted)
    for t, (a, b) in enumerate(pairwise(s.starts)):
        if s.linear_leaves.shift is None:
            table[a:b] = s.leaf_values_transpose(t, table[a:b])
            continue
        values = fitted.values[a:b]
        sums = whole[a:b]
        linear = s.leaf_values(t, sums)
        fixed = np.where(
            linear == 0, np.divide(values, sums, out=np.zeros_like(sums), where=sums != 0), 0.0
        )
        share = np.divide(values, linear, out=np.zeros_like(sums), where=linear != 0)
        table[a:b] = s.leaf_values_transpose(t, share * table[a:b]) + fixed * table[a:b]
    none = np.zeros(s.total_leaves)
    adjoints = Adjoints(table, np.zeros(len(queries)))
    return [
        ReadOutEffects(RemovalFit(training, fitted, k, none, none), adjoints, 1.0)
        for k in range(fitted.values.shape[1])
    ]

"""Removal: how predictions change without training rows, to first order.

The tree structure stays fixed. The derivative of a prediction with respect to the sample weight w_j
of row j uses the adjoints phi of the leaf sums and beta of the initial prediction (see `boosting`).
With r_tj the residual that tree t sees, b_tj how often it sampled the row, v_t its leaf values and
P_t's diagonal, the scale of a leaf, a function of its weight:

    I_j = sum_t b_tj phi_t[l] (r_tj - level_t[l]) + beta (y_j - base) / W,     l = leaf_t(j)
    level = -v scale' / scale^2         (v itself for scale = 1 / (W_l + l2))

The second term is there if the initial prediction follows the targets. The effect of deleting row j
is ``-w_j I_j``. Where l2 is in proportion to the mean weight W / N of the rows, ``(1 / N - w_j / W)
phi' drift`` is added: the row takes its weight out of the sum, and itself out of the number of
rows, with

    drift = v (d scale / d l2) l2 / scale^2

Residuals follow from the leaf values row by row, so rows are worked on in blocks and no (T, N)
table of them ever exists.

The contributions of rows to the steps of the trees are read out in the same manner, with no level
and with the scale of x's own leaves in place of phi; see `contributions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.errors import UnsupportedQuestionError
from axil.kernels import Rows
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.blocks import spans
from axil.structure import Structure
from axil.weights.answers import RowEffects
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import value_adjoints
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

    def factors(self, rows: slice) -> AnyPlaceArray:
        """Return b_tj (r_tj - level_t[l]), (T, rows), on the back end."""
        s = self.fitted.structure
        k = self.output
        factors = self.training.xp.empty((s.n_trees, rows.stop - rows.start))
        if s.coefficients is not None or rule_of(s).clips_residuals:
            # residuals are not simply what the trees before leave over
            for step in self.fitted.steps(rows):
                of_tree = step.count * (step.residual[:, k] - self.level[step.leaf])
                factors[step.tree] = like(of_tree, factors)
            return factors
        steps = np.repeat(s.learning_rates, s.n_leaves) * self.fitted.values[:, k]
        tables = s.by_cells(np.stack([steps, self.level], axis=1), drawn=False)
        steps_by_cell, levels_by_cell = np.ascontiguousarray(tables.T)
        counts = s.by_cells(np.ones((s.total_leaves, 1)), drawn=True)[:, 0]
        start = self.fitted.started(rows)[:, k] - self.fitted.base[k]
        self.training.residual_factors(
            steps_by_cell, levels_by_cell, counts, start, rows.start, factors
        )
        return factors

    def from_base(self, rows: slice) -> FloatArray:
        """Return ``(y_j - base) / W``, (rows,); 0 if the initial prediction is a constant."""
        above = self.fitted.targets[rows, self.output] - self.fitted.base[self.output]
        return np.asarray(self.fitted.structure.mean_weight * above)

    def l2_changes(self, rows: slice) -> FloatArray:
        """Return the relative change of l2 on deleting each row, (rows,), to first order."""
        s = self.fitted.structure
        weights = s.l2_weights
        if weights is None:
            return np.zeros(rows.stop - rows.start)
        return 1.0 / s.n_present - weights[rows] / s.l2_total


def fits(training: Rows, fitted: FittedValues) -> list[RemovalFit]:
    """Return the numbers that removal needs, for each of the K outputs of a fit."""
    level, drift = levels(fitted.structure)
    return [
        RemovalFit(training, fitted, k, level * values, drift * values)
        for k, values in enumerate(fitted.values.T)
    ]


def levels(s: Structure) -> tuple[FloatArray, FloatArray]:
    """Return level and drift of a leaf value of one, (L,) each; see the module docstring."""
    reason = rule_of(s).no_first_order(s)
    if reason:
        raise UnsupportedQuestionError(
            'removal with method="first-order"',
            reason,
            'Leave method out, or pass method="exact": every leave-one-out fit is then replayed.',
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
    """Effects of deleting each of N rows on n predictions of one output.

    With ``sign`` 1, they are the contributions of the rows.
    """

    fit: RemovalFit
    adjoints: Adjoints
    sign: float = -1.0

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the first row of each block of training rows, and its effects, (rows, n)."""
        s = self.fit.fitted.structure
        n = len(self.adjoints.beta)
        xp = self.fit.training.xp
        phi = xp.asarray(self.adjoints.phi)
        beta = xp.asarray(self.adjoints.beta)
        of_l2 = xp.asarray(self.fit.drift) @ phi
        moves_l2 = bool(self.fit.drift.any())
        table = s.by_cells(phi, drawn=False)  # sample counts are in the factors already
        step = max(64, min(BLOCK_ENTRIES // s.n_trees, BLOCK_ENTRIES // max(n, 1)))
        for rows in spans(s.n_rows, step):
            effects = xp.empty((rows.stop - rows.start, n))
            self.fit.training.scaled_read_out(table, self.fit.factors(rows), rows.start, effects)
            effects += np.outer(xp.asarray(self.fit.from_base(rows)), beta)
            if s.row_weights is None:
                effects *= self.sign
            else:
                effects *= xp.asarray(self.sign * s.row_weights[rows, None])
            if moves_l2:
                effects += np.outer(xp.asarray(self.fit.l2_changes(rows)), of_l2)
            yield rows.start, host(effects)


def contributions(training: Rows, fitted: FittedValues, queries: LeafArray) -> list[ReadOutEffects]:
    """Return the contributions of the rows to predictions in these leaves (n, T), for each output.

        s_j = sum_t final_t w_j b_tj r_tj [leaf_t(j) = leaf_t(x)] / (W + l2)
        sum_j s_j = F(x) - base

    A leaf's value is the sum over its rows of ``w_j b_tj r_tj / (W + l2)``. Residuals are taken as
    they are: the part that other rows had in them is not followed, as weights follow it. Where L1
    moved a sum or a step was clipped, all rows that made the leaf's value have their share of it:
    the value over what it would be without the shift. O(T N) per explained row.
    """
    s = fitted.structure
    table = value_adjoints(s, queries)
    whole_sums = rule_of(s).whole_sums(fitted)
    for t in range(s.n_trees):
        leaves = s.leaves_of(t)
        if s.linear_leaves.shift is None:
            table[leaves] = s.leaf_values_transpose(t, table[leaves])
            continue
        values = fitted.values[leaves]
        sums = whole_sums[leaves]
        linear = s.leaf_values(t, sums)
        per_sum = np.divide(values, sums, out=np.zeros_like(sums), where=sums != 0)
        fixed = np.where(linear == 0, per_sum, 0.0)
        share = np.divide(values, linear, out=np.zeros_like(sums), where=linear != 0)
        of_sums = s.leaf_values_transpose(t, share * table[leaves])
        table[leaves] = of_sums + fixed * table[leaves]
    zeros = np.zeros(s.total_leaves)
    adjoints = Adjoints(table, np.zeros(len(queries)))
    return [
        ReadOutEffects(RemovalFit(training, fitted, k, zeros, zeros), adjoints, 1.0)
        for k in range(fitted.values.shape[1])
    ]

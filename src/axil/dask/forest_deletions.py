"""Deletions of single rows of a forest over partitions.

Each deletion changes the values of the row's own leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.kernels.choose import host_backend
from axil.structure import NewtonRule
from axil.weights.answers import RowEffects
from axil.weights.inherited import InheritedValues
from axil.weights.leaf_matrix import value_adjoints
from axil.weights.parts import Parts, remaining_weight
from axil.weights.residuals import FittedValues
from axil.weights.work import blocks_of

BLOCK_ENTRIES = 1 << 20  # of trees, or explained rows, by rows that are worked on at a time


@dataclass(frozen=True)
class ForestEffects(RowEffects):
    """Changes of n predictions of one output on deleting each row of a forest.

    No tree sees another, so a row's own leaves change alone.
    """

    fitted: FittedValues
    leaves: LeafArray  #: (n, T) of the explained rows
    output: int
    n_threads: int
    mean: FloatArray  #: (K,) of the targets of all rows

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the changes of predictions block by block of training rows."""
        s = self.fitted.structure
        n_explained = len(self.leaves)
        rows = host_backend(self.n_threads).rows_of(s)
        table = s.by_cells(value_adjoints(s, self.leaves), drawn=False)
        inherited = inherited_values_of(self.fitted)
        for block in blocks_of(s, max(n_explained, s.n_trees), BLOCK_ENTRIES):
            out = np.empty((block.stop - block.start, n_explained))
            changes = forest_changes(self.fitted, block, inherited, self.mean)
            output_changes = np.ascontiguousarray(changes[:, :, self.output])
            rows.scaled_read_out(table, output_changes, block.start, out)
            yield block.start, out


def inherited_values_of(fitted: FittedValues) -> InheritedValues:
    """Return the values of the leaves of a forest if they had no rows."""
    scale = fitted.structure.linear_leaves.scale[:, None]
    sums = np.divide(fitted.values, scale, out=np.zeros_like(fitted.values), where=scale > 0)
    return InheritedValues(fitted.structure, sums)


def forest_changes(
    fitted: FittedValues, rows: slice, inherited: InheritedValues, mean: FloatArray
) -> FloatArray:
    """Return the changes of the values of each row's leaves without it, (T, rows, K).

    Parameters
    ----------
    fitted : FittedValues
        The forest, with the rows of a partition.
    rows : slice
    inherited : InheritedValues
    mean : array of shape (K,)
        The mean of the targets of all rows, in all partitions.
    """
    s = fitted.structure
    parts = Parts.of_rows(fitted.structure, rows)
    rule = s.newton_rule
    targets = fitted.targets[rows]
    remaining = parts.left(s)
    scale = NewtonRule(rule.l2[parts.leaf], rule.steps[parts.leaf]).scale(remaining)[:, :, None]
    remaining_sums = inherited.sums[parts.leaf] - parts.weight[:, :, None] * targets

    if s.row_weights is None:
        weights = np.ones(len(targets))
    else:
        weights = s.row_weights[rows]
    total = np.full(len(targets), s.total_weight)
    weight_of_others = remaining_weight(total, weights)[:, None]
    moment_of_others = s.total_weight * mean - weights[:, None] * targets
    mean_of_others = np.divide(
        moment_of_others,
        weight_of_others,
        out=np.full_like(moment_of_others, np.nan),
        where=weight_of_others > 0,
    )
    values_without_rows = np.where(
        inherited.has_rows[parts.leaf][:, :, None], inherited.values[parts.leaf], mean_of_others
    )

    is_empty = (remaining == 0)[:, :, None]
    values = np.where(is_empty, values_without_rows, scale * remaining_sums)
    is_sampled = (parts.weight != 0)[:, :, None]
    return np.where(is_sampled, values - fitted.values[parts.leaf], 0.0)


def left_out_of_forest(fitted: FittedValues, mean: FloatArray, n_outputs: int) -> FloatArray:
    """Return the leave-one-out predictions (n, K) of the rows of a forest."""
    s = fitted.structure
    inherited = inherited_values_of(fitted)
    predictions = np.empty_like(fitted.targets)
    for rows in blocks_of(s, s.n_trees * n_outputs, BLOCK_ENTRIES):
        changes = forest_changes(fitted, rows, inherited, mean)
        moved = np.einsum("t,tjk->jk", s.final, changes)
        predictions[rows] = fitted.predictions(s.leaves(rows)) + moved
    return predictions

"""Replays: refits without single rows that are walked again, and which rows need that.

Deletions follow from the leaf matrix by a formula (`deletion`) while the active set stays as it is.
A row whose deletion changes the active set of some leaf is replayed: the refit without it is walked
through, tree by tree, by the rule of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.kernels import Backend
from axil.machine.arrays import AnyPlaceArray, host
from axil.machine.progress import track
from axil.structure import LinearLeaves, NewtonRule, Structure
from axil.weights.answers import RowEffects
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.levels import base_without
from axil.weights.parts import Parts
from axil.weights.residuals import FittedValues
from axil.weights.sum_rule import BEYOND
from axil.weights.work import walked_blocks

# of fits without rows that are cached from one batch of explained rows to the next
CACHED_BYTES = 1 << 28
TINY = 1e-150  # a scale of leaves whose values are constant


@dataclass(frozen=True)
class ByReplay:
    """Deletions of single rows, each by a refit."""

    fitted: FittedValues  #: with all rows
    refit: Callable[[int, FloatArray], FittedValues]  #: without this row, to these targets
    #: fits without single rows, as far as they fit into memory; None: no weight remains
    _fit_by_row: dict[int, FittedValues | None] = field(default_factory=dict)

    def blocks(self) -> list[slice]:
        """Return the training rows in blocks to walk."""
        return walked_blocks(self.fitted.structure, self.fitted.targets.shape[1])

    def without(self, j: int) -> FittedValues | None:
        """Return the fit without row j; None if no weight remains."""
        if j in self._fit_by_row:
            return self._fit_by_row[j]
        fit = None
        if not np.isnan(base_without(self.fitted, slice(j, j + 1))).any():
            fit = self.refit(j, self.fitted.targets)
        s = self.fitted.structure
        if 8 * (s.n_rows + 4 * s.total_leaves) * len(self._fit_by_row) <= CACHED_BYTES:
            self._fit_by_row[j] = fit
        return fit

    def alone(self, rows: slice) -> FloatArray:
        """Return the residuals of each row in the refit without it, (K, T + 1, rows)."""
        leaves = self.fitted.structure.leaves(rows)
        shape = (self.fitted.targets.shape[1], len(leaves) + 1, leaves.shape[1])
        residuals = np.full(shape, np.nan)
        for i, j in enumerate(range(rows.start, rows.stop)):
            fit = self.without(j)
            if fit is None:
                continue
            started = self.fitted.started(slice(j, j + 1))
            for t, residual in enumerate(fit.residuals(leaves[:, i : i + 1], started)):
                residuals[:, t, i] = residual[0]
        return residuals

    def changes(self, j: int, queries: LeafArray) -> FloatArray:
        """Return the changes of predictions in these leaves, (n, T), without row j, (n, K)."""
        before = self.fitted.predictions(queries.T)
        fit = self.without(j)
        if fit is None:
            return np.full_like(before, np.nan)
        return fit.predictions(queries.T) - before

    def effects(self, queries: LeafArray) -> Sequence[RowEffects]:
        """Return the changes of predictions in these leaves, (n, T), for each output."""
        return [ReplayedEffects(self, queries, k) for k in range(self.fitted.targets.shape[1])]


@dataclass(frozen=True)
class ReplayedEffects(RowEffects):
    """Changes of n predictions of one output on deleting each of N rows, by replays."""

    deletion: ByReplay
    queries: LeafArray
    output: int

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield each training row, and the changes without it, (1, n)."""
        for j in track(range(self.deletion.fitted.structure.n_rows), "deletions"):
            yield j, self.deletion.changes(j, self.queries)[None, :, self.output]


def sum_responses(s: Structure, together: AnyPlaceArray, backend: Backend) -> FloatArray:
    """Return the responses of leaf sums to leaf sums, (L, L).

    ``together`` (L, L): the co-occurrences of leaves over all rows, which are overwritten.
    """
    linear = s.linear_leaves
    # The sum of a leaf with a constant value counts, but it moves nothing.
    free = np.where(linear.scale > 0, linear.scale, TINY)
    unshifted = replace(s, linear_leaves=LinearLeaves(free, mixing=linear.mixing))
    space = LeafMatrix.of(unshifted, together, backend)
    return np.asarray(host(space.responses) / free[:, None])


def changing_rows(
    fitted: FittedValues, added: AnyPlaceArray, rows: slice, responses: FloatArray
) -> BoolArray:
    """Return whether the deletion of each row changes the active set of a leaf, (rows,).

    Leaf sums and values without the row follow for all leaves by the formula, and the rule must
    give the same values.

    Parameters
    ----------
    fitted : FittedValues
        The fit with all rows.
    added : array of shape (K, T, rows)
        What the deletions add to the sums of the rows' leaves.
    rows : slice
    responses : array of shape (L, L)
        See `sum_responses`.
    """
    s = fitted.structure
    n = rows.stop - rows.start
    rule = s.newton_rule
    linear = s.linear_leaves
    shift = np.zeros(s.total_leaves) if linear.shift is None else linear.shift
    parts = Parts.of_rows(s, rows)
    column = np.broadcast_to(np.arange(n), parts.leaf.shape)
    entries = (host(added)[0].ravel(), (column.ravel(), parts.leaf.ravel()))
    placed = csr_array(entries, shape=(n, s.total_leaves))
    moved = base_without(fitted, rows)[0] - fitted.base[0]
    sums = fitted.sums[:, 0] + placed @ responses.T - np.outer(moved, responses @ s.initial_in_sums)
    values = linear.scale * sums + shift
    weights = np.tile(s.leaf_weights, (n, 1))
    remaining = parts.left(s)
    scale = parts.of(linear.scale)
    scale_left = parts.left_scale(s)
    ratio = np.divide(scale_left, scale, out=np.zeros_like(scale), where=scale > 0)
    sums_left = np.divide(
        values[column, parts.leaf] - parts.of(shift) * ratio,
        scale_left,
        out=np.zeros_like(scale),
        where=scale_left > 0,
    )
    of_constant_leaves = np.where(remaining > 0, sums[column, parts.leaf], 0.0)
    sums[column, parts.leaf] = np.where(scale > 0, sums_left, of_constant_leaves)
    weights[column, parts.leaf] = remaining
    if rule.couples_leaves:  # a bound that acts on no leaf may act on one without a row
        by_rule = np.vstack([rule.leaf_values(*of_row) for of_row in zip(sums, weights)])
    else:
        plain = NewtonRule(rule.l2, rule.steps, rule.by_weight, rule.l1, rule.max_step)
        by_rule = plain.leaf_values(sums, weights)
    largest = np.abs(values).max(axis=1, initial=0.0)
    is_apart = np.abs(by_rule - values) > BEYOND * largest[:, None]
    return np.asarray(is_apart.any(axis=1) & ~np.isnan(moved))

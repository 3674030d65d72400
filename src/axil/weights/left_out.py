"""Left out: each training row in the refit without it, after all trees and after fewer of them.

Row j in the refit without it has the residuals r_t of `deletion`: r_t is what t trees leave over,
wherever tree t was fitted to what the model of the trees before it leaves over. So one pass over
the rows gives the squared errors after every such number of trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.progress import track
from axil.structure import Structure
from axil.weights.deletion import Deletion, InLeafMatrix, inherited_without
from axil.weights.fit_rules import rule_of
from axil.weights.levels import base_without
from axil.weights.residuals import FittedValues
from axil.weights.work import walked_blocks

# of 1 - leverage: below it a row's own prediction says nothing that its own target does not
LEAST_LEFT = 1e-6


class ErrorCurve(Protocol):
    """Mean squared errors after numbers of trees, over the rows with a leave-one-out prediction."""

    @property
    def trees(self) -> NDArray[np.int64]:
        """The numbers of trees, (S,)."""

    @property
    def left_out(self) -> FloatArray:
        """The leave-one-out errors, (S, K)."""

    @property
    def fitted(self) -> FloatArray:
        """The errors of the same rows in the fit with all rows, (S, K)."""

    @property
    def rows(self) -> int:
        """The number of rows."""


@dataclass(frozen=True)
class Curve:
    """The `ErrorCurve` of rows in one place."""

    trees: NDArray[np.int64]  #: (S,)
    left_out: FloatArray  #: (S, K) of each row in the fit without it
    rows: int
    model: FittedValues  #: the fit with all rows
    is_counted: BoolArray  #: (N,) whether the row has a leave-one-out prediction

    @cached_property
    def fitted(self) -> FloatArray:
        """The errors of the same rows in the fit to all rows, (S, K).

        They take a pass over the rows, which only callers that plot the curve need.
        """
        s = self.model.structure
        model = self.model
        n_outputs = len(model.base)
        replaced = (1 - s.initial_in_fit) * s.beta[-1] * model.base
        sums = np.zeros((len(self.trees), n_outputs))
        total = 0.0
        for rows in walked_blocks(s, n_outputs):
            weights = error_weights(s, rows, self.is_counted[rows])
            for t, residual in enumerate(model.residuals(s.leaves(rows), model.started(rows))):
                if t not in self.trees:
                    continue
                error = residual
                if t == s.n_trees:
                    error = residual + replaced
                place = np.searchsorted(self.trees, t)
                sums[place] += np.einsum("jk,jk,j->k", error, error, weights)
            total += weights.sum()
        return means(sums, total)


@dataclass(frozen=True)
class LeftOut:
    """The leave-one-out predictions of the training rows."""

    predictions: FloatArray  #: (N, K); nan: no other row says anything about it
    #: (N, K) the same, also of rows that leave a leaf empty, which then adds nothing; None: they
    #: have none
    rest: FloatArray | None = None
    #: None: there is none, as the trees are not fitted one after the other
    curve: ErrorCurve | None = None
    #: (N,) rows of averaged trees without which no weight remains; None: trees are not averaged
    emptied: BoolArray | None = None

    @property
    def without(self) -> FloatArray:
        """`rest`, or `predictions` where there is none, (N, K)."""
        if self.rest is None:
            return self.predictions
        return self.rest


def left_out(deletion: Deletion) -> LeftOut:
    """Return each training row in the refit without it, in one pass over the rows.

    A singleton, the only row of one of its leaves, has no prediction, nor has a row whose deletion
    leaves no weight. In averaged trees a singleton has the value of its leaf's nearest ancestor
    that has other rows.
    """
    fitted = deletion.fitted
    s = fitted.structure
    if s.averages:
        return _averaged(deletion)
    is_singleton = rule_of(s).singletons(s)
    trees = stages(s)
    rest = np.empty_like(fitted.targets)
    predictions = np.empty_like(rest)
    is_counted = np.empty(s.n_rows, dtype=np.bool_)
    sums = np.zeros((len(trees), len(fitted.base)))
    total = 0.0
    for rows in track(deletion.blocks(), "training rows"):
        residuals = _residuals_at(trees, deletion.alone(rows), s.n_trees)
        has_no_weight = np.isnan(host(residuals[:, 0])).any(axis=0)
        counted = ~(is_singleton(rows) | has_no_weight)
        is_counted[rows] = counted
        weights = error_weights(s, rows, counted)
        if not s.initial_in_fit:
            # the last residuals have the initial prediction in them, which the offset replaces
            residuals[:, -1] += like(s.beta[-1] * base_without(fitted, rows), residuals)
        rest[rows] = fitted.targets[rows] - host(residuals[:, -1]).T
        predictions[rows] = np.where(counted[:, None], rest[rows], np.nan)
        if not counted.all():
            residuals[:, :, like(np.flatnonzero(~counted), residuals)] = 0.0
        sums += host(np.einsum("ktj,ktj,j->tk", residuals, residuals, like(weights, residuals)))
        total += weights.sum()
    curve = None
    if _has_curve(s, len(trees)):
        curve = Curve(trees, means(sums, total), int(is_counted.sum()), fitted, is_counted)
    return LeftOut(predictions, rest, curve)


def _residuals_at(
    trees: NDArray[np.int64], residuals: AnyPlaceArray, n_trees: int
) -> AnyPlaceArray:
    """Return the residuals (K, T, rows) after some numbers of trees; they may be all."""
    if len(trees) > n_trees:
        return residuals
    return residuals[:, like(trees, residuals)]


def _has_curve(s: Structure, n_stages: int) -> bool:
    """Return whether the first trees alone are a model, so that errors by their number exist."""
    if rule_of(s).ranks_rows:  # the initial prediction is a tree
        return False
    has_no_steps = s.coefficients is not None and n_stages <= 2  # the initial prediction, and all
    return not has_no_steps


def _averaged(deletion: Deletion) -> LeftOut:
    """Return `left_out` for averaged trees: no number of them but all is a model."""
    fitted = deletion.fitted
    s = fitted.structure
    predictions = np.empty_like(fitted.targets)
    for rows in track(deletion.blocks(), "training rows"):
        # targets less offsets less predictions
        residuals = host(deletion.alone(rows)[:, -1]).T
        if isinstance(deletion, InLeafMatrix):
            inherited = np.einsum("t,tjk->jk", s.final, inherited_without(fitted, rows))
            inherited[deletion.by_replay(rows) - rows.start] = 0.0  # replays have it
            residuals = residuals - inherited
        if not s.initial_in_fit:  # as in `left_out`: the offset replaces the initial prediction
            residuals = residuals + s.beta[-1] * base_without(fitted, rows).T
        predictions[rows] = fitted.targets[rows] - residuals
    return LeftOut(predictions, emptied=np.asarray(np.isnan(predictions).any(axis=1)))


def error_weights(s: Structure, rows: slice, is_counted: BoolArray) -> FloatArray:
    """Return the weight of each of these rows in a mean error, (rows,)."""
    if s.row_weights is None:
        return is_counted.astype(np.float64)
    return is_counted * s.row_weights[rows]


def means(sums: FloatArray, total: float) -> FloatArray:
    """Return sums over the weight of all rows that count; nan if no row counts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums / total)


def stages(s: Structure) -> NDArray[np.int64]:
    """Return the numbers t of trees with a fit of their own, and that of all trees."""
    coefficients = s.coefficients
    if coefficients is None:
        return np.arange(s.n_trees + 1)
    omega = coefficients.omega
    beta = coefficients.beta
    stages = []
    for t in range(s.n_trees):
        has_same_start = beta[t] == s.initial_in_fit * beta[-1]
        if has_same_start and np.array_equal(omega[t, :t], omega[-1, :t]):
            stages.append(t)
    return np.array([*stages, s.n_trees])

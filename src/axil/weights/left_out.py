"""Left out: each training row in the fit without it, after the last tree and after every number of trees.

Row j in the fit without it has the residuals r_t of `deletion`: r_t is what t trees leave over,
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
from axil.machine.arrays import host, like
from axil.machine.progress import track
from axil.structure import Structure
from axil.weights.deletion import Deletion, InLeafMatrix, inherited_without
from axil.weights.deletion_work import walked_blocks
from axil.weights.fit_rules import rule_of
from axil.weights.levels import base_without
from axil.weights.residuals import FittedValues

# of 1 - leverage: below it a row's own prediction says nothing that its own target does not
LEAST_LEFT = 1e-6


class ErrorCurve(Protocol):
    """Mean squared errors after numbers of trees, of rows with a prediction without themselves."""

    @property
    def trees(self) -> NDArray[np.int64]:
        """The numbers of trees, (S,)."""

    @property
    def left_out(self) -> FloatArray:
        """The leave-one-out errors, (S, K)."""

    @property
    def fitted(self) -> FloatArray:
        """The errors of the same rows in the fit with all, (S, K)."""

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
    kept: BoolArray  #: (N,) the rows

    @cached_property
    def fitted(self) -> FloatArray:
        """(S, K): errors of the same rows in the fit with all; a pass over the rows that only who draws the curve needs."""
        s = self.model.structure
        model = self.model
        n_outputs = len(model.base)
        replaced = (1 - s.initial_in_fit) * s.beta[-1] * model.base
        sums = np.zeros((len(self.trees), n_outputs))
        total = 0.0
        for rows in walked_blocks(s, n_outputs):
            counted = counts(s, rows, self.kept[rows])
            for t, residual in enumerate(model.residuals(s.leaves(rows), model.started(rows))):
                if t in self.trees:
                    if t == s.n_trees:
                        seen = residual + replaced
                    else:
                        seen = residual
                    sums[np.searchsorted(self.trees, t)] += np.einsum(
                        "jk,jk,j->k", seen, seen, counted
                    )
            total += counted.sum()
        return means(sums, total)


@dataclass(frozen=True)
class LeftOut:
    """Each training row in the fit without it."""

    predictions: FloatArray  #: (N, K); nan: no other row says anything of it
    #: (N, K) the same, of rows that leave a leaf empty too, which then adds nothing; None: they
    #: have none
    rest: FloatArray | None = None
    curve: ErrorCurve | None = (
        None  #: None: there is none, as the trees are not fitted one after the other
    )
    #: (N,) rows of averaged trees without which no weight is left; None: trees are not averaged
    emptied: BoolArray | None = None

    @property
    def without(self) -> FloatArray:
        """(N, K): `rest`, or `predictions` where there is none."""
        if self.rest is None:
            return self.predictions
        return self.rest


def left_out(deletion: Deletion) -> LeftOut:
    """Each training row in the fit without it, in one pass over the rows.

    A row that no other row shares one of its leaves with has no prediction, nor one whose deletion
    leaves no weight. In averaged trees such a row has the value of its leaf's nearest ancestor that
    has other rows.
    """
    fitted = deletion.fitted
    if fitted.structure.averages:
        return _averaged(deletion)
    s = fitted.structure
    is_singleton = rule_of(s).singletons(s)
    trees = stages(s)
    found = np.empty_like(fitted.targets)
    sums = np.zeros((len(trees), len(fitted.base)))
    total = 0.0
    rest = np.empty_like(found)
    every = np.empty(s.n_rows, dtype=np.bool_)
    for rows in track(deletion.blocks(), "training rows"):
        left = deletion.alone(rows)
        if len(trees) <= s.n_trees:
            left = left[:, like(trees, left)]
        every[rows] = kept = ~(is_singleton(rows) | np.isnan(host(left[:, 0])).any(axis=0))
        counted = counts(s, rows, kept)
        if (
            not s.initial_in_fit
        ):  # the last residuals have the base in them, which the row's offset stands in for
            left[:, -1] += like(s.beta[-1] * base_without(fitted, rows), left)
        rest[rows] = fitted.targets[rows] - host(left[:, -1]).T
        found[rows] = np.where(kept[:, None], rest[rows], np.nan)
        if not kept.all():
            left[:, :, like(np.flatnonzero(~kept), left)] = 0.0
        sums += host(np.einsum("ktj,ktj,j->tk", left, left, like(counted, left)))
        total += counted.sum()
    # the base is a tree; the base alone and all trees
    if s.counts_by_leaf or (s.coefficients is not None and len(trees) <= 2):
        return LeftOut(found, rest)
    return LeftOut(found, rest, Curve(trees, means(sums, total), int(every.sum()), fitted, every))


def _averaged(deletion: Deletion) -> LeftOut:
    """`left_out` for averaged trees: no number of them but all is a model."""
    fitted = deletion.fitted
    s = fitted.structure
    found = np.empty_like(fitted.targets)
    for rows in track(deletion.blocks(), "training rows"):
        left = host(deletion.alone(rows)[:, -1]).T  # targets less offsets less predictions
        if isinstance(deletion, InLeafMatrix):
            inherited = np.einsum("t,tjk->jk", s.final, inherited_without(fitted, rows))
            inherited[deletion.by_replay(rows) - rows.start] = 0.0  # replays have it
            left = left - inherited
        if not s.initial_in_fit:  # as in `left_out`: the row's offset stands in for the base
            left = left + s.beta[-1] * base_without(fitted, rows).T
        found[rows] = fitted.targets[rows] - left
    return LeftOut(found, emptied=np.asarray(np.isnan(found).any(axis=1)))


def counts(s: Structure, rows: slice, kept: BoolArray) -> FloatArray:
    """(rows,): how much each of these rows counts in a mean error."""
    if s.row_weights is None:
        return kept.astype(np.float64)
    return kept * s.row_weights[rows]


def means(sums: FloatArray, total: float) -> FloatArray:
    """Sums over the weight of all rows that count; nan where there are none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums / total)


def stages(s: Structure) -> NDArray[np.int64]:
    """(S,): the numbers of trees t after which predictions are those that tree t was fitted to; and that of all trees."""
    c = s.coefficients
    if c is None:
        return np.arange(s.n_trees + 1)

    def agrees(t: int) -> bool:
        started = c.beta[t] == s.initial_in_fit * c.beta[-1]
        return bool(started and np.array_equal(c.omega[t, :t], c.omega[-1, :t]))

    return np.array([*(t for t in range(s.n_trees) if agrees(t)), s.n_trees])

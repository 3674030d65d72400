"""Levels: the fit in the leaf matrix, with the l2 that it had or less, and walks of rows through it in equations of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.kernels import Rows
from axil.machine.arrays import is_host, like
from axil.structure import Structure
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.parts import ROUNDING, remaining_weight
from axil.weights.passes import Adjoints
from axil.weights.residuals import FittedValues
from axil.weights.sum_rule import rescaled

# numbers: rows of a table a multiple of this long meet in a cache; those of one line of it
CONFLICT = 64
LINE = 8
LOST = 1e-17  # what interpolation may leave, of the answer


@dataclass(frozen=True)
class Level:
    """The fit with one l2, in the leaf matrix; its tables are arrays of the rows' back end."""

    share: float  #: of all weight, by which l2 is less than it was
    rows: Rows
    fitted: FittedValues
    space: LeafMatrix
    responses: Any  #: (L, L) of leaf values to leaf sums; its rows may lie apart
    values: Any  #: (L, K) of the leaves
    of_base: Any  #: (L,) of leaf values to the base
    rules: Any  #: (L, 5) how scales follow from weights; see `Rows.deletions`
    steps: Any  #: (T, T) of the residuals by leaf values, from one tree to the next
    drifts: Any  #: (T,) likewise by the base

    @classmethod
    def of(cls, share: float, rows: Rows, fitted: FittedValues, space: LeafMatrix) -> Level:
        s = fitted.structure
        responses = space.responses
        put = rows.xp.asarray
        of_base = -(responses @ like(s.initial_in_sums, responses))
        rule = s.newton_rule
        least = ROUNDING * s.leaf_weights
        rules = put(
            np.stack([s.leaf_weights, least, s.linear_leaves.scale, rule.l2, rule.steps], axis=1)
        )
        if s.coefficients is None:
            steps = np.diag(s.learning_rates)
            drifts = np.zeros(s.n_trees)
        else:
            steps = np.diff(s.coefficients.omega, axis=0)
            drifts = np.diff(s.beta)
        tables = (apart(responses), put(np.ascontiguousarray(fitted.values)), of_base, rules)
        return cls(share, rows, fitted, space, *tables, put(np.tril(steps)), put(drifts))

    def adjoints(self, queries: LeafArray) -> Adjoints:
        """Gives the adjoints of the predictions whose leaves are ``queries``, (n, T)."""
        s = self.fitted.structure
        phi = self.space.adjoints(queries)
        return Adjoints(phi, float(s.beta[-1]) - like(s.initial_in_sums, phi) @ phi)

    def walk(self, rows: slice, base: FloatArray, residuals: Any = None, added: Any = None) -> None:
        """Fills (K, T + 1, rows) with the residuals r of the rows without them, (K, T, rows) with the additions x to sums.

        ``base`` (K, rows): without the row.
        """
        s = self.fitted.structure
        f = self.fitted
        base = np.ascontiguousarray(base)
        start = np.ascontiguousarray(f.started(rows).T - s.beta[0] * base)
        self.rows.deletions(
            len(s.sample_counts),
            self.responses,
            self.rules,
            s.linear_leaves.shift,
            s.sample_counts,
            None if s.row_weights is None else s.row_weights[rows],
            self.values,
            self.of_base,
            self.steps,
            self.drifts,
            start,
            base,
            base - f.base[:, None],
            rows.start,
            residuals,
            added,
        )


def apart(table: Any) -> Any:
    """A square table whose rows do not all begin at the same places of a CPU's cache: a copy where they would."""
    n = len(table)
    if n % CONFLICT or not is_host(table):
        return table
    out = np.empty((n, n + LINE))[:, :n]
    out[...] = table
    return out


def base_without(fitted: FittedValues, rows: slice) -> FloatArray:
    """(K, rows): the base of the fit without each of these rows; nan where no weight is left."""
    s = fitted.structure
    targets = fitted.targets[rows].T
    if s.row_weights is None:
        w = np.ones(targets.shape[1])
    else:
        w = s.row_weights[rows]
    left = remaining_weight(np.array(s.total_weight), w)
    left = np.where(left > 0, left, np.nan)
    before = fitted.base[:, None] + np.zeros_like(targets)
    return np.asarray(
        before - (w / left) * (targets - before if s.initial is None else np.zeros_like(targets))
    )


def shares_of(s: Structure, weights: FloatArray | None = None) -> FloatArray:
    """(levels,): the shares by which l2 falls at which the leaf matrix is needed; 0 alone where it does not follow the
    rows' weights.

    ``weights``: the different row weights, sorted, where the rows are elsewhere.
    """
    if not s.newton_rule.by_weight:
        return np.zeros(1)
    if weights is None:
        if s.l2_weights is None:
            return np.zeros(1)
        weights = np.unique(s.l2_weights)
    at = l2_shares(s, weights)
    at = np.asarray(at[remaining_weight(np.ones(1), weights / s.l2_total) > 0])
    if len(at) < 2:
        return at if len(at) else np.zeros(1)
    middle, half = (at[0] + at[-1]) / 2, (at[-1] - at[0]) / 2
    pole = (1 - middle) / half
    n = int(np.ceil(-np.log(LOST) / np.log(pole + np.sqrt(pole**2 - 1)))) + 1
    return at if len(at) <= n else middle + half * np.cos(np.pi * (np.arange(n) + 0.5) / n)


def l2_shares(s: Structure, weights: FloatArray) -> FloatArray:
    """Return the shares by which l2 falls without one row of each of these weights.

    The mean weight of n rows is W / n, and (W - w) / (n - 1) without a row of weight w: less by the share
    ``(n w - W) / ((n - 1) W)``, which is 0 for a row of mean weight.
    """
    n = s.n_present
    total = s.l2_total
    return np.asarray((n * weights - total) / (max(n - 1, 1) * total))


def at_share(s: Structure, share: float) -> Structure:
    """Return the structure where l2 is less by this share; all else as it is."""
    if share == 0:
        return s
    rule = replace(rule_of(s), newton=s.newton_rule.scaled(1 - share))
    return rescaled(replace(s, leaf_rule=rule))

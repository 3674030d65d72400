"""Levels: the fit in the leaf matrix with its l2 or less, and the walks of rows through it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.kernels import Rows
from axil.machine.arrays import AnyPlaceArray, is_host, like
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
    responses: AnyPlaceArray  #: (L, L) of leaf values to leaf sums; its rows may lie apart
    values: AnyPlaceArray  #: (L, K) of the leaves
    of_base: AnyPlaceArray  #: (L,) of leaf values to the initial prediction
    rules: AnyPlaceArray  #: (L, 5) how scales follow from weights; see `Rows.deletions`
    steps: AnyPlaceArray  #: (T, T) of the residuals by leaf values, from one tree to the next
    drifts: AnyPlaceArray  #: (T,) likewise by the initial prediction

    @classmethod
    def of(cls, share: float, rows: Rows, fitted: FittedValues, space: LeafMatrix) -> Level:
        """Return the level of a fit whose leaf matrix is ``space``."""
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
        values = put(np.ascontiguousarray(fitted.values))
        tables = (_apart(responses), values, of_base, rules)
        return cls(share, rows, fitted, space, *tables, put(np.tril(steps)), put(drifts))

    def adjoints(self, queries: LeafArray) -> Adjoints:
        """Return the adjoints of the predictions of rows in these leaves, (n, T)."""
        s = self.fitted.structure
        phi = self.space.adjoints(queries)
        return Adjoints(phi, float(s.beta[-1]) - like(s.initial_in_sums, phi) @ phi)

    def walk(
        self,
        rows: slice,
        base: FloatArray,
        residuals: AnyPlaceArray = None,
        added: AnyPlaceArray = None,
    ) -> None:
        """Fill in the leave-one-out residuals of rows, or the changes of leaf sums by deletions.

        Parameters
        ----------
        rows : slice
        base : array of shape (K, rows)
            The initial prediction without each row.
        residuals : array of shape (K, T + 1, rows), optional
            Filled with the residuals r; see `deletion`.
        added : array of shape (K, T, rows), optional
            Filled with the additions x to the sums of the rows' leaves.
        """
        s = self.fitted.structure
        base = np.ascontiguousarray(base)
        start = np.ascontiguousarray(self.fitted.started(rows).T - s.beta[0] * base)
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
            base - self.fitted.base[:, None],
            rows.start,
            residuals,
            added,
        )


def _apart(table: AnyPlaceArray) -> AnyPlaceArray:
    """Return a square table whose rows do not all begin at the same places of a CPU's cache."""
    n = len(table)
    if n % CONFLICT or not is_host(table):
        return table
    padded = np.empty((n, n + LINE))[:, :n]
    padded[...] = table
    return padded


def base_without(fitted: FittedValues, rows: slice) -> FloatArray:
    """Return the initial prediction of the refit without each of these rows, (K, rows).

    nan if no weight remains.
    """
    s = fitted.structure
    targets = fitted.targets[rows].T
    if s.row_weights is None:
        weights = np.ones(targets.shape[1])
    else:
        weights = s.row_weights[rows]
    remaining = remaining_weight(np.array(s.total_weight), weights)
    remaining = np.where(remaining > 0, remaining, np.nan)
    before = fitted.base[:, None] + np.zeros_like(targets)
    if s.initial is None:
        above = targets - before
    else:
        above = np.zeros_like(targets)
    return np.asarray(before - (weights / remaining) * above)


def shares_of(s: Structure, weights: FloatArray | None = None) -> FloatArray:
    """Return the shares of l2 at which a leaf matrix is computed, (levels,).

    That is 0 alone where l2 does not follow the weights of the rows.

    Parameters
    ----------
    s : Structure
    weights : array, optional
        The different row weights, sorted, if the rows are elsewhere.
    """
    if not s.newton_rule.by_weight:
        return np.zeros(1)
    if weights is None:
        if s.l2_weights is None:
            return np.zeros(1)
        weights = np.unique(s.l2_weights)
    has_others = remaining_weight(np.ones(1), weights / s.l2_total) > 0
    shares = np.asarray(l2_shares(s, weights)[has_others])
    if len(shares) == 0:
        return np.zeros(1)
    if len(shares) == 1:
        return shares
    middle = (shares[0] + shares[-1]) / 2
    half = (shares[-1] - shares[0]) / 2
    pole = (1 - middle) / half
    n_points = int(np.ceil(-np.log(LOST) / np.log(pole + np.sqrt(pole**2 - 1)))) + 1
    if len(shares) <= n_points:
        return shares
    chebyshev_points = np.cos(np.pi * (np.arange(n_points) + 0.5) / n_points)
    return np.asarray(middle + half * chebyshev_points)


def l2_shares(s: Structure, weights: FloatArray) -> FloatArray:
    """Return the shares by which l2 falls if one row of each weight is deleted.

    The mean weight of n rows is W / n, and (W - w) / (n - 1) without a row of weight w. It is less
    by the share ``(n w - W) / ((n - 1) W)``, which is 0 for a row of mean weight.
    """
    n = s.n_present
    total = s.l2_total
    return np.asarray((n * weights - total) / (max(n - 1, 1) * total))


def at_share(s: Structure, share: float) -> Structure:
    """Return the structure with l2 reduced by this share, and no other change."""
    if share == 0:
        return s
    rule = replace(rule_of(s), newton=s.newton_rule.scaled(1 - share))
    return rescaled(replace(s, leaf_rule=rule))

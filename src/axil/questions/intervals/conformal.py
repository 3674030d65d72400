"""Conformal: the distribution of a new row's error, from those of calibration rows, by full conformal prediction.

Each row has an error r, a size s > 0 and features f, where s and f come from its query and the training data alone. Errors are
compared on a logarithmic scale, on which a ridge follows the features:

    z = log(|r| / s + SOFTENED),    z ~ f b,    |b|^2 penalised by fixed numbers

The ridge is fitted to the n calibration rows *and* to the new row with a candidate error, so that all n + 1 rows are treated
alike; a row's score is what the ridge leaves over of its z. With A = F'F + penalty of the calibration rows, e what their own
ridge leaves over, g = f A^-1 f and u_i = f_i A^-1 f, row i scores at least as much as the new row exactly where

    z <= f b + e_i (1 + g) / (1 + u_i)                      (where 1 + u_i > 0)

So every calibration row puts one `atom` on the new row's error, with the sign of its own. If the rows are exchangeable, the true
error is at any of the n + 1 places among the n atoms with the same probability: whatever the model, the features and n, and no
calibration row is set aside. The penalty is fixed, because one that the calibration rows choose would break the symmetry.

Where 1 + u_i <= 0 the comparison turns round: the row is above the new one from some error on, or always. Its atom then goes
where it makes an interval longer: of a positive error to infinity for an upper end and to zero for a lower one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from axil.types import Array

SOFTENED = 0.5  # of a row's size: errors that are smaller say little of it, and their logarithms a lot


@dataclass(frozen=True, eq=False)
class Conformal:
    """n calibration rows."""

    features: Array  #: (n, p)
    sizes: Array  #: (n,)
    errors: Array  #: (n,) signed
    penalty: Array  #: (p,)

    def __getitem__(self, rows: Any) -> Conformal:
        return Conformal(self.features[rows], self.sizes[rows], self.errors[rows], self.penalty)

    @cached_property
    def _inverse(self) -> Array:
        """(p + 1, p + 1): A^-1, with an intercept that is not penalised."""
        design = _with_intercept(self.features)
        return np.asarray(np.linalg.inv(design.T @ design + np.diag(np.append(0.0, self.penalty))))

    @cached_property
    def _fit(self) -> tuple[Array, Array]:
        """(p + 1,) coefficients of the calibration rows' own ridge, and (n,) what it leaves over."""
        design, z = _with_intercept(self.features), np.log(np.abs(self.errors) / self.sizes + SOFTENED)
        b = self._inverse @ (design.T @ z)
        return b, z - design @ b

    def scales(self, features: Array, sizes: Array) -> Array:
        """(m,): the sizes times what the calibration rows' own ridge makes of the features."""
        return np.asarray(sizes * np.exp(_with_intercept(features) @ self._fit[0]))

    def magnitudes(self, features: Array, sizes: Array) -> Array:
        """(m, n): the atoms of new rows with features (m, p) and sizes (m,), unsigned; inf where 1 + u <= 0."""
        b, left = self._fit
        design = _with_intercept(features)
        half = design @ self._inverse
        g = np.einsum("mp,mp->m", half, design)[:, None]
        u = half @ _with_intercept(self.features).T
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            at = (design @ b)[:, None] + left * np.where(1 + u > 0, (1 + g) / (1 + u), np.inf)
            at = np.where(1 + u > 0, at, np.inf)
            return np.asarray(sizes[:, None] * np.maximum(np.exp(at) - SOFTENED, 0.0))

    def drawn(self, features: Array, sizes: Array) -> Array:
        """(m, n): the atoms of new rows with features (m, p) and sizes (m,), in the order of the calibration rows."""
        signs = np.sign(self.errors)
        with np.errstate(invalid="ignore"):
            return np.where(signs == 0, 0.0, signs * self.magnitudes(features, sizes))

    def atoms(self, features: Array, sizes: Array) -> Array:
        """(m, n): the same atoms, from the lowest up."""
        return np.sort(self.drawn(features, sizes), axis=1)

    def bounds(self, features: Array, sizes: Array) -> tuple[Array, Array]:
        """(m, n) twice: the atoms from the lowest up, for lower ends and for upper ends; see the module."""
        found = self.drawn(features, sizes)
        nowhere, signs = np.isinf(found), np.sign(self.errors)
        lower, upper = (np.where(nowhere & (signs == away), 0.0, found) for away in (1.0, -1.0))
        return np.sort(lower, axis=1), np.sort(upper, axis=1)

    def lower(self, features: Array, sizes: Array) -> Array:
        """(m, n): the atoms for lower ends."""
        return self.bounds(features, sizes)[0]

    def upper(self, features: Array, sizes: Array) -> Array:
        """(m, n): the atoms for upper ends."""
        return self.bounds(features, sizes)[1]


def _with_intercept(features: Array) -> Array:
    return np.column_stack([np.ones(len(features)), features])


def order_of(share: float, n: int) -> int:
    """The place, from 1, among n sorted atoms that another error is at or below with at least this probability; n + 1: none."""
    return math.ceil(round((n + 1) * share, 9))


def least_rows(share: float) -> int:
    """The fewest calibration rows with an atom that another error is at or below with at least this probability."""
    n = max(1, math.ceil(round(share / (1.0 - share), 9)))
    return n if order_of(share, n) <= n else n + 1

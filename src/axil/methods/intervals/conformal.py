"""Conformal: the distribution of a new row's error, by full conformal prediction.

The errors of calibration rows give this distribution. Each row has an error r, a size s > 0 and
features f, where s and f come from its query and the training data alone. Errors are compared on a
logarithmic scale, on which a ridge follows the features:

    z = log(|r| / s + SOFTENED),    z ~ f b,    |b|^2 penalised by fixed numbers

The ridge is fitted to the n calibration rows *and* to the new row with a candidate error, so that
all n + 1 rows are treated alike; a row's score is what the ridge leaves over of its z. With A = F'F
+ penalty of the calibration rows, e what their own ridge leaves over, g = f A^-1 f and u_i = f_i
A^-1 f, row i scores at least as much as the new row exactly where

    z <= f b + e_i (1 + g) / (1 + u_i)                      (where 1 + u_i > 0)

So every calibration row puts one `atom` on the new row's error, with the sign of its own. If the
rows are exchangeable, the true error is at any of the n + 1 places among the n atoms with the same
probability: whatever the model, the features and n, and no calibration row is set aside. The
penalty is fixed, because one that the calibration rows choose would break the symmetry.

An interval needs the atoms at two places in their order alone, and |u_i|^2 <= g_i g tells which
rows these can be of, some dozens of thousands; only they are looked at (`Conformal.at_places`).

Where 1 + u_i <= 0 the comparison turns round: the row is above the new one from some error on, or
always. Its atom then goes where it makes an interval longer: of a positive error to infinity for an
upper end and to zero for a lower one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from axil.arrays import FloatArray

SOFTENED = (
    0.5  # of a row's size: errors that are smaller say little of it, and their logarithms a lot
)


@dataclass(frozen=True, eq=False)
class Conformal:
    """n calibration rows."""

    features: FloatArray  #: (n, p)
    sizes: FloatArray  #: (n,)
    errors: FloatArray  #: (n,) signed
    penalty: FloatArray  #: (p,)

    def __getitem__(self, rows: Any) -> Conformal:
        return Conformal(self.features[rows], self.sizes[rows], self.errors[rows], self.penalty)

    @cached_property
    def _inverse(self) -> FloatArray:
        """A^-1 with an intercept that is not penalised, (p + 1, p + 1)."""
        design = _with_intercept(self.features)
        return np.asarray(np.linalg.inv(design.T @ design + np.diag(np.append(0.0, self.penalty))))

    @cached_property
    def _fit(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients (p + 1,) and residuals (n,) of the calibration rows' ridge regression."""
        design = _with_intercept(self.features)
        z = np.log(np.abs(self.errors) / self.sizes + SOFTENED)
        b = self._inverse @ (design.T @ z)
        return b, z - design @ b

    def scales(self, features: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the sizes times the prediction of the ridge regression from the features, (m,)."""
        return np.asarray(sizes * np.exp(_with_intercept(features) @ self._fit[0]))

    def magnitudes(self, features: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the unsigned atoms of new rows, (m, n); inf where 1 + u <= 0.

        The rows have features (m, p) and sizes (m,).
        """
        return self._magnitudes(
            features, sizes, self._left_of(features, _with_intercept(self.features), self._fit[1])
        )

    def reaches(self, features: FloatArray) -> FloatArray:
        """Return the largest possible |u| of a calibration row and each new row, (m,).

        The new rows have features (m, p).
        """
        new_leverages, leverages = (
            _leverages(_with_intercept(rows), self._inverse) for rows in (features, self.features)
        )
        return np.asarray(np.sqrt(new_leverages * leverages.max()))

    def at_places(self, features: FloatArray, sizes: FloatArray, places: list[int]) -> FloatArray:
        """Return `magnitudes` at these places, sorted upwards and counted from 0, (m, P).

        It is fastest for new rows of similar `reaches`.
        """
        design, residuals = self._in_order
        reach = self.reaches(features).max(initial=0.0) * (1 + 1e-6)  # more than rounding
        least, most = np.sort(residuals / np.array([[1 + reach], [max(1 - reach, 1e-300)]]), axis=0)
        values = np.empty((len(features), len(places)))
        for p, place in enumerate(places):
            first = np.searchsorted(most, least[place])
            last = np.searchsorted(least, most[place], "right")
            if reach >= 1:
                some = slice(0, None)
            else:
                some = slice(first, last)
            block_values = self._left_of(features, design[some], residuals[some])
            values[:, p] = np.partition(block_values, place - some.start, axis=1)[
                :, place - some.start
            ]
        return self._magnitudes(features, sizes, values)

    @cached_property
    def _in_order(self) -> tuple[FloatArray, FloatArray]:
        """Designs (n, p + 1) and residuals (n,) of the calibration rows, by rising residual."""
        residuals = self._fit[1]
        order = np.argsort(residuals, kind="stable")
        return _with_intercept(self.features)[order], residuals[order]

    def _left_of(
        self, features: FloatArray, design: FloatArray, residuals: FloatArray
    ) -> FloatArray:
        """Return ``e (1 + g) / (1 + u)`` of some calibration rows, (m, n'); inf where 1 + u <= 0.

        The rows have designs (n', p + 1) and residuals e (n',).
        """
        new = _with_intercept(features)
        u = new @ self._inverse @ design.T
        u += 1
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            values = residuals * (1 + _leverages(new, self._inverse))[:, None] / u
        values[u <= 0] = np.inf
        return np.asarray(values)

    def _magnitudes(
        self, features: FloatArray, sizes: FloatArray, residuals: FloatArray
    ) -> FloatArray:
        """Return the unsigned atoms of new rows, (m, P), for these residuals."""
        with np.errstate(over="ignore"):
            at = np.exp(residuals + (_with_intercept(features) @ self._fit[0])[:, None])
            return np.asarray(sizes[:, None] * np.maximum(at - SOFTENED, 0.0))

    def drawn(self, features: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the atoms of new rows in the order of the calibration rows, (m, n).

        The new rows have features (m, p) and sizes (m,).
        """
        signs = np.sign(self.errors)
        with np.errstate(invalid="ignore"):
            return np.where(signs == 0, 0.0, signs * self.magnitudes(features, sizes))

    def atoms(self, features: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the atoms of new rows, sorted upwards, (m, n)."""
        return np.sort(self.drawn(features, sizes), axis=1)

    def bounds(self, features: FloatArray, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the atoms for lower ends and for upper ends, sorted upwards, (m, n) each.

        See the module.
        """
        atoms = self.drawn(features, sizes)
        nowhere = np.isinf(atoms)
        signs = np.sign(self.errors)
        lower, upper = (np.where(nowhere & (signs == away), 0.0, atoms) for away in (1.0, -1.0))
        return np.sort(lower, axis=1), np.sort(upper, axis=1)

    def lower(self, features: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the atoms for lower ends, (m, n)."""
        return self.bounds(features, sizes)[0]

    def upper(self, features: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the atoms for upper ends, (m, n)."""
        return self.bounds(features, sizes)[1]


def _with_intercept(features: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(features)), features])


def _leverages(design: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return f A^-1 f for each row f of a design (m, p + 1), (m,)."""
    return np.asarray(np.einsum("mp,mp->m", design @ inverse, design))


def order_of(share: float, n: int) -> int:
    """Return the rank, from 1, of the smallest of n sorted atoms with at least this probability.

    It is the probability that another error is at or below the atom. n + 1 stands for none.
    """
    return math.ceil(round((n + 1) * share, 9))


def least_rows(share: float) -> int:
    """Return the fewest calibration rows that have an atom of at least this probability."""
    n = max(1, math.ceil(round(share / (1.0 - share), 9)))
    if order_of(share, n) <= n:
        return n
    return n + 1

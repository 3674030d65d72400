"""Systems with the Hessian of a training loss, by Cholesky or by conjugate gradients.

They are damped where they must be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy import linalg

from axil.arrays import FloatArray
from axil.machine.blocks import spans

Product = Callable[[FloatArray], FloatArray]  # from (P, m) to the Hessian times it

# up to here the Hessian is written down: its factor takes seconds and every query after it little
DENSE_PARAMETERS = 3000
SMALLEST = 1e-10  # eigenvalue, relative to the largest, that still counts as positive
CG_TOLERANCE = 1e-7  # residual of conjugate gradients, relative to the right-hand side
CG_STEPS = 1000
# damping of an indefinite Hessian, relative to its largest eigenvalue: a smaller one takes too many
# steps
CG_FLOOR = 1e-5
LANCZOS_STEPS = 100
LANCZOS_NOISE = 1e-9  # of an eigenvalue, relative to the largest
CHUNK_BYTES = 1 << 26


class Singular(Exception):
    """The Hessian is not positive definite, and damping was not allowed."""


class Solver(Protocol):
    """A solver of linear systems with H, or with H + damping I."""

    name: str
    damping: float  #: what was added to the diagonal
    residual: float  #: largest residual so far, relative to the right-hand side

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solutions, (P, m), for right-hand sides (P, m)."""


class Dense:
    """H by its Cholesky factor: P^3 / 3 operations once, and P^2 for each right-hand side.

    ``flat`` (P, r) are directions along which the loss is known not to change. Solutions have no
    component in them. A parameter that moves nothing, such as a dead unit's bias, has a row of
    zeros: it stays where it is.
    """

    name = "cholesky"
    residual = 0.0

    def __init__(
        self,
        product: Product,
        n_parameters: int,
        bytes_a_column: int,
        flat: FloatArray,
        may_damp: bool,
    ):
        hessian = np.empty((n_parameters, n_parameters))
        size = max(1, CHUNK_BYTES // max(bytes_a_column, 1))
        for span in spans(n_parameters, size):
            hessian[:, span] = product(np.eye(n_parameters, span.stop - span.start, -span.start))
        hessian = (hessian + hessian.T) / 2
        dead = np.asarray(np.abs(hessian).sum(axis=0) == 0)
        hessian[dead, dead] = 1.0
        self._flat = flat
        self.damping = 0.0
        self._live = (~dead)[:, None]
        hessian += flat @ flat.T * max(float(np.abs(np.diag(hessian)).max()), 1.0)
        factor = _factor(hessian)
        if factor is None:
            if not may_damp:
                raise Singular
            ends = linalg.eigvalsh(hessian)
            self.damping = needed_damping(float(ends[0]), float(ends[-1]))
            hessian[np.diag_indices_from(hessian)] += self.damping
            factor = _factor(hessian)
            if factor is None:
                raise Singular
        self._scale, self._factor = factor

    def solve(self, right: FloatArray) -> FloatArray:
        """Return H^-1 right, without its flat part, (P, m)."""
        right = (right - self._flat @ (self._flat.T @ right)) * self._live
        return np.asarray(self._scale * linalg.cho_solve(self._factor, self._scale * right))


def _factor(hessian: FloatArray) -> tuple[FloatArray, tuple[FloatArray, bool]] | None:
    """Return scales, and the factor of the Hessian with ones on its diagonal.

    Returns None if the Hessian is not safely positive definite.
    """
    diagonal = np.diag(hessian)
    if not (diagonal > 0).all():
        return None
    scale = 1 / np.sqrt(diagonal)[:, None]
    scaled = hessian * scale * scale.T
    norm = float(np.abs(scaled).sum(axis=0).max())
    try:
        factor = linalg.cho_factor(scaled, lower=True, overwrite_a=True)
    except linalg.LinAlgError:
        return None
    inverse_condition, _ = linalg.lapack.dpocon(factor[0], norm, uplo="L")
    if inverse_condition > np.finfo(float).eps:
        return (scale, factor)
    return None


def needed_damping(smallest: float, largest: float) -> float:
    """Return the addition to the diagonal that makes all eigenvalues positive.

    It reflects a negative end of the spectrum, and lifts a flat one off zero.
    """
    return max(SMALLEST * largest - smallest, -2 * smallest, 0.0)


class ConjugateGradients:
    """H^-1 by conjugate gradients for several right-hand sides at once.

    This takes some products with H for each, and no matrix. Whether H has negative curvature
    anywhere is not known beforehand. If Lanczos or a solution meets such a direction, the damping
    rises to more than its curvature, and stays so; the solution begins again.
    """

    name = "conjugate gradients"

    def __init__(self, product: Product, n_parameters: int, flat: FloatArray, may_damp: bool):
        self._product = product
        self._flat = flat
        self._may_damp = may_damp
        self.residual = self.damping = 0.0
        smallest, self._largest = spectrum_ends(lambda v: self._project(product(v)), n_parameters)
        if smallest < -LANCZOS_NOISE * self._largest:
            self._damp(smallest)

    def _project(self, right: FloatArray) -> FloatArray:
        """Return right-hand sides without their flat part."""
        return np.asarray(right - self._flat @ (self._flat.T @ right))

    def _damp(self, curvature: float) -> None:
        """Raise the damping above a negative curvature."""
        if not self._may_damp:
            raise Singular
        self.damping = max(
            2 * self.damping, CG_FLOOR * self._largest, needed_damping(curvature, self._largest)
        )

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solutions, (P, m).

        The search stops when every residual is within `CG_TOLERANCE` of its right-hand side, or
        after `CG_STEPS`.
        """
        while True:
            solution = self._try(self._project(right))
            if not isinstance(solution, float):
                return solution
            self._damp(solution)

    def _try(self, residual: FloatArray) -> FloatArray | float:
        """Return the solution, or the curvature of a direction along which H is not positive."""
        direction = residual.copy()
        solution = np.zeros_like(residual)
        norm = np.einsum("pm,pm->m", residual, residual)
        start = np.where(norm > 0, norm, 1.0)
        for _ in range(CG_STEPS):
            open_ = norm > CG_TOLERANCE**2 * start
            if not open_.any():
                break
            applied = self._project(self._product(direction))
            length = np.where(open_, np.einsum("pm,pm->m", direction, direction), 1.0)
            curvature = np.einsum("pm,pm->m", direction, applied) / length
            if (curvature[open_] + self.damping <= 0).any():
                return float(curvature[open_].min())
            applied += self.damping * direction
            step = np.where(
                open_, norm / np.where(open_, (curvature + self.damping) * length, 1.0), 0.0
            )
            solution += step * direction
            residual -= step * applied
            before = norm
            norm = np.einsum("pm,pm->m", residual, residual)
            direction = residual + norm / np.where(open_, before, 1.0) * direction
        self.residual = max(self.residual, float(np.sqrt(norm / start).max(initial=0.0)))
        return solution


def spectrum_ends(product: Product, n_parameters: int) -> tuple[float, float]:
    """Return estimates of the smallest and the largest eigenvalue, by some steps of Lanczos.

    They lie within the spectrum, near its ends.
    """
    v = np.random.default_rng(0).standard_normal((n_parameters, 1))
    basis = [v / np.linalg.norm(v)]
    alpha = []
    beta = []
    for _ in range(min(LANCZOS_STEPS, n_parameters)):
        w = product(basis[-1])
        alpha.append(float((basis[-1].T @ w)[0, 0]))
        basis_matrix = np.hstack(basis)
        for _ in range(2):  # once is not enough in float64
            w = w - basis_matrix @ (basis_matrix.T @ w)
        beta.append(float(np.linalg.norm(w)))
        if beta[-1] <= 1e-12 * max(map(abs, alpha)):
            break
        basis.append(w / beta[-1])
    ends = linalg.eigvalsh_tridiagonal(alpha, beta[: len(alpha) - 1])
    return float(ends[0]), float(ends[-1])

"""Linear smoothers: ``k(x) = features(x) @ solution``, or sparse weights as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.adapters.contract import FittedSmoother
from axil.adapters.linear_steps import LinearSteps
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.kernels.cpu import product
from axil.machine.threads import one_blas_thread
from axil.structure import Structure
from axil.weights.answers import Answer, KnownAnswer, KnownEffects, RowEffects, dense
from axil.weights.engine import (
    Deletable,
    Memory,
    Seconds,
    diagonal,
    rows_of_weights,
    sum_of_squares,
)
from axil.weights.left_out import LEAST_LEFT, LeftOut
from axil.weights.spread import around_weights, everywhere

PRODUCT_SECONDS = 1e-10  # per multiplication
STEP_SECONDS = 1e-8  # per coefficient of a row, there and back


@dataclass(frozen=True)
class Smoother(Deletable):
    """K of a linear smoother: a product of features and solution, or sparse weights as they are."""

    fitted: FittedSmoother
    n_outputs: int

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        return self.fitted.solution is None

    @property
    def structure(self) -> Structure:  # type: ignore[override]
        raise UnsupportedQuestionError(
            "save",
            "an explainer of a linear smoother is not saved",
            "Keep the model and the data, and make it again.",
        )

    def _features(self, queries: Any) -> Any:
        """(n, p): the coordinates of the queries, those of the training rows for None."""
        if queries is None:
            return self.fitted.training
        return queries

    @one_blas_thread()
    def weight_rows(self, queries: Any, base: float = 1.0) -> Answer:
        features = self._features(queries)
        intercepts = np.zeros((features.shape[0], self.n_outputs))
        if self.fitted.solution is None:
            return KnownAnswer(features, intercepts)
        if isinstance(self.fitted.solution, LinearSteps):
            return KnownAnswer((self.fitted.solution.T @ features.T.toarray()).T, intercepts)
        return KnownAnswer(product(features, self.fitted.solution), intercepts)

    @one_blas_thread()
    def matvec(self, queries: Any, v: FloatArray, base: float = 1.0) -> FloatArray:
        solution = self.fitted.solution
        return np.asarray(self._features(queries) @ (v if solution is None else solution @ v))

    @one_blas_thread()
    def rmatvec(self, queries: Any, u: Any, base: float = 1.0) -> FloatArray:
        seen = self._features(queries).T @ u
        solution = self.fitted.solution
        return dense(seen if solution is None else solution.T @ dense(seen))

    def row_sum(self, queries: Any, u: Any, base: float = 1.0) -> Answer:
        return KnownAnswer(self.rmatvec(queries, u).T, np.zeros((u.shape[1], self.n_outputs)))

    def predicted(self, queries: Any, targets: FloatArray) -> FloatArray:
        return self.matvec(queries, targets)

    def leverage(self, available: int) -> FloatArray:
        s = self.fitted
        if s.solution is None:
            return np.asarray(s.training.diagonal())
        if isinstance(s.solution, LinearSteps):
            return diagonal(rows_of_weights(self, s.solution.shape[1]))
        return np.asarray(np.einsum("ij,ji->i", s.training, s.solution))

    @one_blas_thread()
    def squares(self, available: int) -> float:
        s = self.fitted
        if s.solution is None:
            return float(s.training.multiply(s.training).sum())
        if isinstance(s.solution, LinearSteps):
            return sum_of_squares(rows_of_weights(self, s.solution.shape[1]))
        return float(np.vdot(s.training.T @ s.training, s.solution @ s.solution.T))

    def costs(self, available: int) -> Seconds:
        if isinstance(self.fitted.solution, LinearSteps):
            column = STEP_SECONDS * self.fitted.training.nnz
            each = self.fitted.training.shape[0] * column
            return Seconds(each, each, column, np.inf, np.inf)
        column = PRODUCT_SECONDS * float(math.prod(self.fitted.training.shape))
        if self.fitted.solution is None:
            columns = 1
        else:
            columns = 2 * self.fitted.training.shape[1]
        return Seconds(column, columns * column, column, columns * column, np.inf)

    def _solution(self, question: str) -> FloatArray:
        """(p, N): the solution of weighted least squares; refused where it is of anything else."""
        if isinstance(self.fitted.solution, LinearSteps):
            raise UnsupportedQuestionError(
                question,
                "its leaves are regressions, each of which would be solved again without the row",
                "Weights, what_if and influence work for it; refit without the row to see what it "
                "does.",
            )
        if self.fitted.undeletable:
            raise UnsupportedQuestionError(
                question,
                self.fitted.undeletable,
                "Weights, what_if and influence work for it; refit(drop=) counts the classes "
                "again.",
            )
        if not self.fitted.weighs_squares or self.fitted.solution is None:
            raise UnsupportedQuestionError(
                question,
                "neighbours and Gaussian processes have no sample weights, so there is none to take away: without a row "
                "others would take its place",
                "Weights, what_if and influence work for it; refit without the row to see what it "
                "does.",
            )
        return self.fitted.solution

    def removal(self, queries: Any, targets: FloatArray) -> Sequence[RowEffects]:
        """Weighted least squares: ``d F(x) / d w_j = k_j(x) / w_j * residual_j``."""
        self._solution("removal")
        residuals = targets - self.predicted(None, targets)
        weights = self.weight_rows(queries).dense()
        return [KnownEffects(-weights * column) for column in residuals.T]

    def pushes(self, queries: Any, targets: FloatArray) -> Sequence[RowEffects]:
        raise UnsupportedQuestionError(
            "jacobian.gradient_contributions",
            "they are those of trees, and a linear smoother is fitted at once, not tree by tree",
            "Use the contributions of its explanation: weights times targets.",
        )

    def deletion(self, queries: Any, targets: FloatArray, available: int) -> Sequence[RowEffects]:
        """Weighted least squares: ``-k_j(x) residual_j / (1 - K[j, j])``; nan where K[j, j] is one."""
        self._solution("removal")
        moves = self._residuals_alone(targets, available)
        weights = self.weight_rows(queries).dense()
        return [KnownEffects(-weights * column) for column in moves.T]

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Weighted least squares: the residual without the row is ``residual_j / (1 - K[j, j])``."""
        self._solution("diagnostics.leave_one_out")
        return LeftOut(targets - self._residuals_alone(targets, available))

    def _residuals_alone(self, targets: FloatArray, available: int) -> FloatArray:
        """(N, K): the residual of each row in the fit without it; nan where nothing but the row determines its prediction."""
        left = 1.0 - self.leverage(available)[:, None]
        residuals = targets - self.predicted(None, targets)
        alone = np.divide(
            residuals, left, out=np.full_like(residuals, np.nan), where=left > LEAST_LEFT
        )
        solution = self.fitted.solution
        has_factor = self._has_residual_factor()
        if isinstance(solution, np.ndarray) and has_factor.any():
            diagonals = np.diagonal(solution)[:, None]
            has_digits = has_factor[:, None] & (diagonals > 0)
            np.divide(solution @ targets, diagonals, out=alone, where=has_digits)
        return alone

    def _has_residual_factor(self) -> BoolArray:
        """Return for which rows (N,) the solution has the row of ``I - K``."""
        factors = self.fitted.residual_factors
        if factors is None:
            return np.zeros(int(self.fitted.training.shape[0]), dtype=np.bool_)
        return np.isfinite(factors)

    def _residual_rows(self, rows: IntArray, solution: FloatArray) -> FloatArray:
        """Return rows of ``I - K``, (rows, N), divided by their factors where they have some."""
        residual_rows = -(self.fitted.training[rows] @ solution)
        residual_rows[np.arange(len(rows)), rows] += 1.0
        has_factor = self._has_residual_factor()[rows]
        residual_rows[has_factor] = solution[rows[has_factor]]
        return np.asarray(residual_rows)

    def around(self, queries: Any, values: FloatArray) -> FloatArray:
        """By |weight| where weights are sparse; a dense smoother has no rows around a query, and one mean for all."""
        features = self._features(queries)
        if self.fitted.solution is None:
            return around_weights(features, values, own=queries is None)
        return everywhere(features.shape[0], values)

    @one_blas_thread()
    def without(self, rows: IntArray, targets: FloatArray) -> Smoother:
        """Weighted least squares: ``k'(x) = k(x) - k_S(x) (I - K_SS)^-1 (I - K)_S`` for a set S of rows."""
        solution = self._solution("without")
        own = self._residual_rows(rows, solution)
        if not self._is_determined(own[:, rows], rows):
            raise InputError(
                f"Nothing but the {len(rows)} rows named determines their own predictions, so there is no fit without them; "
                "ask for a smaller set."
            )
        changed = solution - solution[:, rows] @ np.linalg.solve(own[:, rows], own)
        changed[:, rows] = 0.0
        factors = self.fitted.residual_factors
        if factors is not None:
            factors = factors.copy()
            factors[rows] = np.nan
        fitted = replace(self.fitted, solution=changed, residual_factors=factors)
        return replace(self, fitted=fitted)

    def _is_determined(self, residual_matrix: FloatArray, rows: IntArray) -> bool:
        """Return whether the rows that are left determine the predictions of these rows.

        ``residual_matrix`` has the rows and columns of `_residual_rows` that belong to these rows.
        """
        if not len(rows):
            return True
        smallest = np.linalg.svd(residual_matrix, compute_uv=False)[-1]
        if self._has_residual_factor()[rows].all():
            return bool(smallest > 0)
        return bool(smallest > LEAST_LEFT)

    @property
    def memory(self) -> Memory:
        n_rows = int(self.fitted.training.shape[0])
        solution = self.fitted.solution
        if isinstance(solution, LinearSteps):  # a pass through the trees has some copies of both
            return Memory(8 * (4 * n_rows + 2 * solution.shape[0]), 0)
        return Memory(8 * n_rows, 0)

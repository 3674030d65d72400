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
    ExplainedRows,
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
    """K of a linear smoother: a product of features and solution, or sparse weights."""

    fitted: FittedSmoother
    n_outputs: int

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        """Whether most weights are known to be zero."""
        return self.fitted.solution is None

    @property
    def structure(self) -> Structure:  # type: ignore[override]
        """Refuse: a smoother has no tree structure."""
        raise UnsupportedQuestionError(
            "save",
            "an explainer of a linear smoother is not saved",
            "Keep the model and the data, and make it again.",
        )

    def _features(self, queries: ExplainedRows) -> Any:
        """Return the coordinates of explained rows, (n, p); those of the training rows for None."""
        if queries is None:
            return self.fitted.training
        return queries

    @one_blas_thread()
    def weight_rows(self, queries: ExplainedRows, base: float = 1.0) -> Answer:
        """Return the weights of explained rows and the constants of their predictions."""
        features = self._features(queries)
        intercepts = np.zeros((features.shape[0], self.n_outputs))
        if self.fitted.solution is None:
            return KnownAnswer(features, intercepts)
        if isinstance(self.fitted.solution, LinearSteps):
            return KnownAnswer((self.fitted.solution.T @ features.T.toarray()).T, intercepts)
        return KnownAnswer(product(features, self.fitted.solution), intercepts)

    @one_blas_thread()
    def matvec(self, queries: ExplainedRows, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_j k_j(x) v_j``, (n, S), for vectors (N, S)."""
        solution = self.fitted.solution
        if solution is not None:
            v = solution @ v
        return np.asarray(self._features(queries) @ v)

    @one_blas_thread()
    def rmatvec(self, queries: ExplainedRows, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_x k_j(x) u_x``, (N, S), for vectors (n, S)."""
        product_with_features = self._features(queries).T @ u
        solution = self.fitted.solution
        if solution is None:
            return dense(product_with_features)
        return dense(solution.T @ dense(product_with_features))

    def row_sum(self, queries: ExplainedRows, u: FloatArray, base: float = 1.0) -> Answer:
        """Return the weights of sums of predictions; see `Engine.row_sum`."""
        return KnownAnswer(self.rmatvec(queries, u).T, np.zeros((u.shape[1], self.n_outputs)))

    def predicted(self, queries: ExplainedRows, targets: FloatArray) -> FloatArray:
        """Return the predictions of the fit to targets (N, K), (n, K)."""
        return self.matvec(queries, targets)

    def leverage(self, available: int) -> FloatArray:
        """Return ``K[j, j]``, (N,)."""
        s = self.fitted
        if s.solution is None:
            return np.asarray(s.training.diagonal())
        if isinstance(s.solution, LinearSteps):
            return diagonal(rows_of_weights(self, s.solution.shape[1]))
        return np.asarray(np.einsum("ij,ji->i", s.training, s.solution))

    @one_blas_thread()
    def squares(self, available: int) -> float:
        """Return ``sum_ij K[i, j]^2``."""
        s = self.fitted
        if s.solution is None:
            return float(s.training.multiply(s.training).sum())
        if isinstance(s.solution, LinearSteps):
            return sum_of_squares(rows_of_weights(self, s.solution.shape[1]))
        return float(np.vdot(s.training.T @ s.training, s.solution @ s.solution.T))

    def costs(self, available: int) -> Seconds:
        """Return the time of work on all training rows within ``available`` bytes."""
        if isinstance(self.fitted.solution, LinearSteps):
            column = STEP_SECONDS * self.fitted.training.nnz
            all_rows = self.fitted.training.shape[0] * column
            return Seconds(all_rows, all_rows, column, np.inf, np.inf)
        column = PRODUCT_SECONDS * float(math.prod(self.fitted.training.shape))
        if self.fitted.solution is None:
            columns = 1
        else:
            columns = 2 * self.fitted.training.shape[1]
        return Seconds(column, columns * column, column, columns * column, np.inf)

    def _solution(self, question: str) -> FloatArray:
        """Return the solution of weighted least squares, (p, N); refuse any other smoother."""
        if isinstance(self.fitted.solution, LinearSteps):
            raise UnsupportedQuestionError(
                question,
                "its leaves are regressions, each of which would be solved again without the row",
                "Weights, what_if and influence work for it; fit again without the row to see what "
                "it does.",
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
                "neighbours and Gaussian processes have no sample weights, so there is none to "
                "take away: without a row others would take its place",
                "Weights, what_if and influence work for it; fit again without the row to see what "
                "it does.",
            )
        return self.fitted.solution

    def removal(self, queries: ExplainedRows, targets: FloatArray) -> Sequence[RowEffects]:
        """Return the first-order effects of deleting rows, by weighted least squares.

        ``d F(x) / d w_j = k_j(x) / w_j * residual_j``.
        """
        self._solution("removal")
        residuals = targets - self.predicted(None, targets)
        weights = self.weight_rows(queries).dense()
        return [KnownEffects(-weights * column) for column in residuals.T]

    def gradient_contributions(
        self, queries: ExplainedRows, targets: FloatArray
    ) -> Sequence[RowEffects]:
        """Return the contributions of training rows; see `Deletable.gradient_contributions`."""
        raise UnsupportedQuestionError(
            "jacobian.gradient_contributions",
            "they are those of trees, and a linear smoother is fitted at once, not tree by tree",
            "Use the contributions of its explanation: weights times targets.",
        )

    def deletion(
        self, queries: ExplainedRows, targets: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        """Return the exact changes without each row, by weighted least squares.

        They are ``-k_j(x) residual_j / (1 - K[j, j])``, and nan if K[j, j] is one.
        """
        self._solution("removal")
        residuals = self._residuals_alone(targets, available)
        weights = self.weight_rows(queries).dense()
        return [KnownEffects(-weights * column) for column in residuals.T]

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Return each row's prediction by the refit without it, by weighted least squares.

        Its residual without the row is ``residual_j / (1 - K[j, j])``.
        """
        self._solution("diagnostics.leave_one_out")
        return LeftOut(targets - self._residuals_alone(targets, available))

    def _residuals_alone(self, targets: FloatArray, available: int) -> FloatArray:
        """Return the residual of each row in the refit without it, (N, K).

        nan if only the row itself determines its prediction.
        """
        remaining = 1.0 - self.leverage(available)[:, None]
        residuals = targets - self.predicted(None, targets)
        alone = np.divide(
            residuals,
            remaining,
            out=np.full_like(residuals, np.nan),
            where=remaining > LEAST_LEFT,
        )
        solution = self.fitted.solution
        has_factor = self._has_residual_factor()
        if isinstance(solution, np.ndarray) and has_factor.any():
            diagonals = np.diagonal(solution)[:, None]
            has_digits = has_factor[:, None] & (diagonals > 0)
            np.divide(solution @ targets, diagonals, out=alone, where=has_digits)
        return alone

    def _has_residual_factor(self) -> BoolArray:
        """Return whether the solution has the row of ``I - K`` of each training row, (N,)."""
        factors = self.fitted.residual_factors
        if factors is None:
            return np.zeros(int(self.fitted.training.shape[0]), dtype=np.bool_)
        return np.isfinite(factors)

    def _residual_rows(self, rows: IntArray, solution: FloatArray) -> FloatArray:
        """Return rows of ``I - K``, (rows, N), divided by their factors if they have some."""
        residual_rows = -(self.fitted.training[rows] @ solution)
        residual_rows[np.arange(len(rows)), rows] += 1.0
        has_factor = self._has_residual_factor()[rows]
        residual_rows[has_factor] = solution[rows[has_factor]]
        return np.asarray(residual_rows)

    def around(self, queries: ExplainedRows, values: FloatArray) -> FloatArray:
        """Return the means of values by |weight|, (n, S).

        A dense smoother has no rows around an explained row, so it has one mean for all.
        """
        features = self._features(queries)
        if self.fitted.solution is None:
            return around_weights(features, values, own=queries is None)
        return everywhere(features.shape[0], values)

    @one_blas_thread()
    def without(self, rows: IntArray, targets: FloatArray) -> Smoother:
        """Return the smoother without a set S of rows, by weighted least squares.

        ``k'(x) = k(x) - k_S(x) (I - K_SS)^-1 (I - K)_S``.
        """
        solution = self._solution("without")
        residual_rows = self._residual_rows(rows, solution)
        of_rows = residual_rows[:, rows]
        if not self._is_determined(of_rows, rows):
            raise InputError(
                f"Nothing but the {len(rows)} rows named determines their own predictions, so "
                "there is no fit without them; ask for a smaller set."
            )
        changed = solution - solution[:, rows] @ np.linalg.solve(of_rows, residual_rows)
        changed[:, rows] = 0.0
        factors = self.fitted.residual_factors
        if factors is not None:
            factors = factors.copy()
            factors[rows] = np.nan
        fitted = replace(self.fitted, solution=changed, residual_factors=factors)
        return replace(self, fitted=fitted)

    def _is_determined(self, residual_matrix: FloatArray, rows: IntArray) -> bool:
        """Return whether the remaining rows determine the predictions of these rows.

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
        """The bytes that explained rows and `prepared` take."""
        n_rows = int(self.fitted.training.shape[0])
        solution = self.fitted.solution
        if isinstance(solution, LinearSteps):  # a pass through the trees has some copies of both
            return Memory(8 * (4 * n_rows + 2 * solution.shape[0]), 0)
        return Memory(8 * n_rows, 0)

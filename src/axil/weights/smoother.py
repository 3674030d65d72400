"""Linear smoothers as an engine: a product of features and solution, or sparse weights as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import FittedSmoother
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.shared import one_blas_thread
from axil.structure import Structure
from axil.types import Array
from axil.weights.answers import Answer, DenseAnswer, Effects, SparseAnswer
from axil.weights.contract import Engine

PRODUCT_SECONDS = 1e-10  # per multiplication


@dataclass(frozen=True)
class SmootherEngine:
    """Linear smoothers: a product of features and solution, or sparse weights as they are."""

    smoother: FittedSmoother
    n_outputs: int

    @property
    def is_sparse(self) -> bool:
        return self.smoother.solution is None

    @property
    def structure(self) -> Structure:
        raise InputError("An explainer of a linear smoother is not saved: make it again from the model and its data.")

    @one_blas_thread()
    def ask(self, queries: Any, base: float = 1.0) -> Answer:
        intercepts = np.zeros((queries.shape[0], self.n_outputs))
        if self.smoother.solution is None:
            return SparseAnswer(queries, intercepts)
        return DenseAnswer(queries @ self.smoother.solution, intercepts)

    def ask_training_rows(self) -> Answer:
        return self.ask(self.smoother.training)

    def fitted(self, targets: Array) -> Array:
        return self.forward(targets)

    def predicted(self, queries: Any, targets: Array) -> Array:
        return self.apply(queries, targets)

    def forward(self, v: Array) -> Array:
        return self.apply(self.smoother.training, v)

    def backward(self, u: Array) -> Array:
        return self.combine(self.smoother.training, u)

    @one_blas_thread()
    def apply(self, queries: Any, v: Array, base: float = 1.0) -> Array:
        s = self.smoother
        return np.asarray(queries @ (v if s.solution is None else s.solution @ v))

    @one_blas_thread()
    def combine(self, queries: Any, u: Array, base: float = 1.0) -> Array:
        s = self.smoother
        seen = queries.T @ u
        return np.asarray(seen if s.solution is None else s.solution.T @ seen)

    def leverage(self, available: int) -> Array:
        s = self.smoother
        if s.solution is None:
            return np.asarray(s.training.diagonal())
        return np.asarray(np.einsum("ij,ji->i", s.training, s.solution))

    @one_blas_thread()
    def squares(self, available: int) -> float:
        s = self.smoother
        if s.solution is None:
            return float(s.training.multiply(s.training).sum())
        return float(np.vdot(s.training.T @ s.training, s.solution @ s.solution.T))

    def leverage_seconds(self, available: int) -> float:
        return self.forward_seconds(1)

    def squares_seconds(self, available: int) -> float:
        return self.forward_seconds(1 if self.smoother.solution is None else 2 * self.smoother.training.shape[1])

    def forward_seconds(self, columns: int) -> float:
        return PRODUCT_SECONDS * columns * float(math.prod(self.smoother.training.shape))

    def removal(self, queries: Any, targets: Array) -> Sequence[Effects]:
        """Weighted least squares: ``d F(x) / d w_j = k_j(x) / w_j * residual_j``."""
        if not self.smoother.weighs_squares:
            raise UnsupportedQuestionError(
                "removal",
                "neighbours and Gaussian processes have no sample weights, so there is no derivative to take: without a row "
                "others would take its place",
                "Weights, what_if and blame work for it; refit without the row to see what it does.",
            )
        residuals, none = targets - self.fitted(targets), np.zeros((queries.shape[0], 1))
        weights = self.ask(queries).dense()
        return [DenseAnswer(-weights * column, none) for column in residuals.T]

    def steps(self, queries: Any, targets: Array) -> Sequence[Effects]:
        raise UnsupportedQuestionError(
            "steps",
            "they are those of trees, and a linear smoother is fitted at once, not tree by tree",
            "Use the contributions of its explanation: weights times targets.",
        )

    def without(self, rows: NDArray[np.intp]) -> Engine:
        raise UnsupportedQuestionError(
            "removal_set with greedy=True",
            "the solution of a linear smoother is not computed again without rows",
            "Use greedy=False, or refit without the rows: a smoother keeps no structure that a refit would change.",
        )

    def streamed_bytes(self) -> int:
        return 8 * int(self.smoother.training.shape[0])

    def preparation(self) -> int:
        return 0

    def prepared(self) -> SmootherEngine:
        return self  # the solution is there

    def prepared_for(self, n_queries: int, available: int) -> SmootherEngine:
        return self

"""Implicit differentiation of a smooth learner at its optimum: J = -G H^-1 C.

The paper calls it the target-response Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from axil.adapters.contract import Defaults, Kind
from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import (
    ApproximationWarning,
    ExactnessError,
    InputError,
    UnsupportedModelError,
    warn,
)
from axil.implicit.row_losses import Link, Loss
from axil.implicit.solvers import DENSE_PARAMETERS, ConjugateGradients, Dense, Singular, Solver
from axil.inputs import ModelColumns
from axil.machine.memory import Budget
from axil.replay.compare_predictions import furthest
from axil.replay.verification import Verification

# a Newton step that moves no score by more than this, relative to their spread, is an optimum
NEAR = 1e-2
FAR = 0.1  # and one that moves some score by more than this is none
#: Of predictions computed here from the model's own, relative: libraries may keep float32.
SCORE_TOLERANCE = 1e-5
RESIDUAL = 1e-4  # of conjugate gradients, above which the user is warned


class Learner(Protocol):
    """Scores as a smooth function of P parameters, at the fitted ones."""

    parameters: FloatArray  #: (P,)
    bytes_a_direction: int  #: that a push or a product takes for each of its directions

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the scores of rows, (n, K)."""

    def jacobian(self, X: FeatureTable) -> FloatArray:
        """Return the derivatives of the scores of rows by the parameters, (n, K, P)."""

    def push(self, directions: FloatArray) -> FloatArray:
        """Return the derivatives of training scores along directions (P, m), (N, K, m)."""

    def pull(self, pulls: FloatArray) -> FloatArray:
        """Return the gradient of the sum of factors (N, K) times the training scores, (P,)."""

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """Return the product of the Hessian of the rows' losses and directions, (P, m).

        ``gradient`` and ``curvature`` are the derivatives of the losses by the scores.
        """


@dataclass(frozen=True)
class Training:
    """The loss that the parameters minimise.

    sum_i w_i l(scores_i, targets_i) + sum_p penalty_p theta_p^2 / 2
    """

    loss: Loss
    targets: FloatArray  #: (N, K)
    weights: FloatArray  #: (N,) as the loss has them
    penalty: FloatArray  #: (P,)
    #: (N,) d (weight in the loss) / d (weight that the user passes): class weights
    weight_factors: FloatArray | float = 1.0
    #: (P,) d penalty / d (any row's weight), of losses that are means over the rows
    penalty_growth: FloatArray | float = 0.0
    #: (P, r) orthonormal directions that move no prediction and no loss
    flat: FloatArray | None = None
    #: whether a Hessian that is not positive definite means that the optimum is not unique
    convex: bool = True


@dataclass(frozen=True)
class Predictor:
    """The differentiated function: a link applied to the scores.

    It comes with the model's own account of it.
    """

    library: str
    columns: ModelColumns
    prepare: Callable[[ForeignObject], ForeignObject]  #: from the user's rows to the learner's
    predict: Callable[[Any], FloatArray]  #: (n, K) from the learner's rows, by the model itself
    link: Link
    outputs: AnyArray | None
    remedy: str  #: what to do about a fit that did not converge
    #: in a sentence, that the model itself says that its fit did not converge; empty: it does not
    unfinished: str = ""
    class_names: AnyArray | None = None  #: (C,) of a classifier
    #: from scores to the predictions of the model, where the differentiated function is scores
    meaning_of_scores: Link | None = None


class Implicit(Defaults):
    """A smooth learner with derivatives of its predictions.

    With H the Hessian of the training loss by the parameters, g(x) the gradient of the prediction
    and s = H^-1 g(x),

        d prediction / d y_j = -s' d2L / d theta d y_j
        d prediction / d w_j = -s' d2L / d theta d w_j

    Construction factorises H (P^3 / 3 operations, or none with conjugate gradients) and verifies by
    a Newton step that the parameters are the optimum on these data. An explained row costs one
    solve and one pass over the training rows.
    """

    kind = Kind.DERIVATIVE

    def __init__(
        self,
        predictor: Predictor,
        learner: Learner,
        training: Training,
        X: FeatureTable,
        n_threads: int,
        budget: Budget,
        verify: bool,
    ):
        self._n_threads = n_threads
        self._predictor = predictor
        self._learner = learner
        self._training = training
        self.library = predictor.library
        columns = predictor.columns
        self.n_features = columns.n_features
        self.feature_names = columns.feature_names
        self.takes_text = columns.takes_text
        self.spelling = columns.spelling  # type: ignore[method-assign]
        self.targets = training.targets
        self.outputs = predictor.outputs
        self.class_names = predictor.class_names
        self.meaning_of_scores = predictor.meaning_of_scores
        self.n_outputs = training.targets.shape[1]
        self.classes = None
        scores = learner.scores(X)
        self._link_slopes = predictor.link(scores)[1]  # (N, K, K) of the training rows
        losses = training.loss(scores, training.targets)
        w = training.weights
        self._gradient = losses.gradient
        self._cross = losses.cross * w[:, None, None]
        weighted = losses.gradient * w[:, None], losses.curvature * w[:, None, None]
        if not all(np.isfinite(array).all() for array in (*weighted, self._cross)):
            raise InputError(
                "The training loss or its derivatives are not finite at the fitted parameters: "
                "most likely X_train or "
                "y_train are not what the model was fitted on."
            )
        product = partial(_hessian_product, learner, training.penalty, weighted)

        self._warned = 0.0  # of this damping
        self.verification: Verification | None = None
        with threadpool_limits(n_threads):
            self._solver = self._choose(product, budget)
            gradient = learner.pull(weighted[0]) + training.penalty * learner.parameters
            if verify:
                moved = learner.push(self._solver.solve(gradient[:, None]))[:, :, 0]
            else:
                moved = None
        if moved is not None:
            predictions = predictor.predict(X)
            max_error = check_predictions(predictor.link(scores)[0], predictions)
            details = {
                "solver": self._solver.name,
                "parameters": len(learner.parameters),
                "gradient_norm": float(np.linalg.norm(gradient)) / float(w.sum()),
                "newton_step": _relative(moved, scores),
                "damping": self._solver.damping,
            }
            errors = max_error, 0.0, SCORE_TOLERANCE, _size(predictions)
            self.verification = Verification(len(self.targets), 0, *errors, details=details)
            self._check_optimum(scores, moved)
        self._check_solver()

    def _choose(self, product: Callable[[FloatArray], FloatArray], budget: Budget) -> Solver:
        n_parameters = len(self._learner.parameters)
        may_damp = not self._training.convex
        if self._training.flat is not None:
            flat = self._training.flat
        else:
            flat = np.zeros((n_parameters, 0))
        try:
            if n_parameters <= DENSE_PARAMETERS and 24 * n_parameters**2 <= budget.available:
                return Dense(product, n_parameters, self._learner.bytes_a_direction, flat, may_damp)
            return ConjugateGradients(product, n_parameters, flat, may_damp)
        except Singular:
            raise UnsupportedModelError(
                "Hessian",
                "singular",
                "the training loss is flat or bends down along some direction (collinear columns, "
                "more columns than rows, "
                "classes that a plane separates), so its optimum and the derivative are not "
                "determined",
                "Fit with a (larger) L2 penalty, or leave out redundant columns.",
            ) from None

    def _check_optimum(self, scores: FloatArray, moved: FloatArray) -> None:
        """Raise if a Newton step moves the solution: model and data then do not belong together."""
        assert self.verification is not None  # it was asked for
        details = self.verification.details
        distance = details["newton_step"]
        worst = np.unravel_index(int(np.abs(moved).argmax()), moved.shape)
        unfinished = self._predictor.unfinished
        remedy = self._predictor.remedy
        if not distance <= FAR:
            where = (
                "The model is far from a stationary point of its training loss, where no such "
                "derivative exists."
            )
            if unfinished:
                cause = (
                    f"{unfinished} {where} {remedy} If a fit that has converged disagrees as well, "
                    "these are not the rows, "
                    "targets or weights that it was fitted on."
                )
            else:
                cause = (
                    f"{where} Most likely these are not the rows, targets or weights that it was "
                    "fitted on, or the fit "
                    f"stopped early. {remedy}"
                )
            raise ExactnessError(
                f"score of training row {worst[0]} (from 0) after one Newton step",
                float(scores[worst] - moved[worst]),
                float(scores[worst]),
                cause,
            )
        if distance > NEAR:
            if unfinished:
                said = f"{unfinished} "
            else:
                said = ""
            _warn(
                f"{said}The model is not quite at a stationary point of its training loss: a "
                "Newton step moves scores by up to "
                f"{distance:.1e} of their spread (gradient norm {details['gradient_norm']:.1e}), "
                "and derivatives are off by "
                f"about as much. {remedy}"
            )

    def _check_solver(self) -> None:
        """Warn of damping, which may grow from call to call, and of systems without a solution."""
        solver = self._solver
        if solver.damping > self._warned:
            self._warned = solver.damping
            _warn(
                f"The Hessian of the training loss is not positive definite: {solver.damping:.2e} "
                "was added to its diagonal, "
                "and derivatives are those of a loss with so much more L2 penalty. "
                f"{self._predictor.remedy}"
            )
        if solver.residual > RESIDUAL:
            _warn(
                f"Conjugate gradients left a residual of {solver.residual:.1e}: the Hessian is too "
                "badly conditioned for "
                "them, and derivatives are off by at least as much. Train with more weight decay."
            )

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the model's own predictions, (n, K)."""
        rows = self._predictor.prepare(X)
        if rows.shape[0]:
            return self._predictor.predict(rows)
        return np.zeros((0, self.targets.shape[1]))

    def target_derivatives(self, X: FeatureTable) -> FloatArray:
        """Return -s' C_k, of output k's prediction by column k of the targets, (K, n, N)."""
        return self._derivatives(
            X, lambda k, s, pushed: np.einsum("ijq,ij->qi", pushed, -self._cross[:, :, k])
        )

    def crossed_derivatives(
        self, X: FeatureTable, output: int, columns: Sequence[int]
    ) -> FloatArray:
        """Return the derivatives of one output's prediction by columns of the targets.

        The shape is (columns, n, N).
        """
        rows = self._predictor.prepare(X)
        derivatives = np.zeros((len(columns), rows.shape[0], len(self.targets)))
        if rows.shape[0] == 0:
            return derivatives
        with threadpool_limits(self._n_threads):
            slopes = self._predictor.link(self._learner.scores(rows))[1]
            gradients = np.einsum("qj,qjp->pq", slopes[:, output], self._learner.jacobian(rows))
            moves = self._learner.push(self._solver.solve(gradients))
            for column, column_derivatives in zip(columns, derivatives):
                column_derivatives[...] = -np.einsum("ijq,ij->qi", moves, self._cross[:, :, column])
        self._check_solver()
        return derivatives

    def along(self, direction: FloatArray) -> FloatArray:
        """Return J v, (N, K), for the predictions of the training rows.

        The direction v of their targets is (N, K).
        """
        with threadpool_limits(self._n_threads):
            pulled = self._learner.pull(np.einsum("ijk,ik->ij", self._cross, direction))
            scores = -self._learner.push(self._solver.solve(pulled[:, None]))[:, :, 0]
        self._check_solver()
        return np.asarray(np.einsum("ikj,ij->ik", self._link_slopes, scores))

    def across(self, u: FloatArray) -> FloatArray:
        """Return J'u, (N, K), for u (N, K)."""
        with threadpool_limits(self._n_threads):
            pulled = self._learner.pull(np.einsum("ikj,ik->ij", self._link_slopes, u))
            scores = -self._learner.push(self._solver.solve(pulled[:, None]))[:, :, 0]
        self._check_solver()
        return np.asarray(np.einsum("ijk,ij->ik", self._cross, scores))

    def weight_derivatives(self, X: FeatureTable) -> FloatArray:
        """Return the derivatives of output k's prediction by the sample weights, (K, n, N).

        Class weights and penalties stay fixed.
        """
        t = self._training
        pull = np.broadcast_to(
            np.asarray(t.penalty_growth) * self._learner.parameters, self._learner.parameters.shape
        )

        def by_weights(k: int, s: FloatArray, pushed: FloatArray) -> FloatArray:
            loss_derivatives = np.einsum("ijq,ij->qi", pushed, self._gradient)
            return np.asarray(-(loss_derivatives + (pull @ s)[:, None]) * t.weight_factors)

        return self._derivatives(X, by_weights)

    def _derivatives(
        self, X: FeatureTable, contract: Callable[[int, FloatArray, FloatArray], FloatArray]
    ) -> FloatArray:
        rows = self._predictor.prepare(X)
        n = rows.shape[0]
        n_train, n_outputs = self.targets.shape
        derivatives = np.zeros((n_outputs, n, n_train))
        if n == 0:
            return derivatives
        with threadpool_limits(self._n_threads):
            slopes = self._predictor.link(self._learner.scores(rows))[1]
            gradients = np.einsum("qkj,qjp->kpq", slopes, self._learner.jacobian(rows))
            for k in range(n_outputs):
                s = self._solver.solve(gradients[k])
                derivatives[k] = contract(k, s, self._learner.push(s))
        self._check_solver()
        return derivatives

    def bytes_per_query(self) -> int:
        """Return the bytes that an explained row takes, for all outputs and the result."""
        n_train, n_outputs = self.targets.shape
        n_parameters = len(self._learner.parameters)
        return int(
            8 * (n_outputs * (2 * n_parameters + n_train) + 6 * n_parameters)
            + self._learner.bytes_a_direction
        )


def _hessian_product(
    learner: Learner,
    penalty: FloatArray,
    weighted: tuple[FloatArray, FloatArray],
    directions: FloatArray,
) -> FloatArray:
    """Return the product of the Hessian of the training loss and directions (P, m), (P, m).

    ``weighted`` are the gradient and the curvature of the rows' losses by the scores.
    """
    return learner.product(directions, *weighted) + penalty[:, None] * directions


def check_predictions(predictions: FloatArray, expected: FloatArray) -> float:
    """Return the largest difference, relative to the largest prediction.

    Raises if the model itself predicts something else.
    """
    scale = _size(expected)
    miss = furthest(predictions, expected)
    if not miss.error <= SCORE_TOLERANCE * scale:
        quantity = f"prediction of row {miss.row} (from 0)"
        raise ExactnessError(
            quantity, miss.found, miss.expected, "The model may have been changed."
        )
    return miss.error / scale


def _size(predictions: FloatArray) -> float:
    """Return the largest |prediction|; 1 if all are zero."""
    return float(np.abs(predictions).max(initial=0.0)) or 1.0


def _relative(moved: FloatArray, scores: FloatArray) -> float:
    """Return the largest move, relative to the spread of the scores of its output."""
    spread = np.ptp(scores, axis=0)
    return float((np.abs(moved).max(axis=0) / np.where(spread > 0, spread, 1.0)).max())


def _warn(message: str) -> None:
    """Warn that derivatives are approximate."""
    warn(message, ApproximationWarning)

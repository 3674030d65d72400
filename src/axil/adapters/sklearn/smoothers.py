"""scikit-learn's linear smoothers.

These are linear regression, ridge regression and its classifiers, Bayesian ridge, kernel ridge and
Gaussian processes.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from axil.adapters.contract import FittedSmoother, SmootherModel
from axil.adapters.refusals import refusal, refuse
from axil.adapters.sklearn.base import SklearnAdapter, numbers
from axil.adapters.sklearn.refusals import RIDGE_CLASSIFIERS, SMOOTHERS
from axil.adapters.sklearn.solvers import (
    SOLVERS,
    Unsolved,
    condition_number,
    is_fitted_sparse,
    kernel_ridge,
    least_squares,
    regressor_of,
    run_again,
    seeds_of_runs,
    with_ones,
)
from axil.adapters.stored_rows import check_rows
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray, RealType
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.inputs.copies import owned

#: Why the deletion of a row changes the weights of all others.
RECOUNTED = (
    "class_weight='balanced' counts the classes of the rows that are left, "
    "which changes the weight of every row"
)


class SmootherAdapter(SklearnAdapter, SmootherModel):
    """Base of the smoothers: features and a solution, both without the targets.

    Direct solvers come within 1e-9 of the solution in float64 and 1e-6 in float32, if it is well
    determined. Where a fit is further off, `again` runs its solver on the same data: up to
    ``widest`` it may be off there too.
    """

    def __init__(self, model: ForeignModel):
        super().__init__(model)
        refuse(SMOOTHERS, model)
        self.n_outputs = self._count_outputs(model)
        if self._in_single_precision():
            self.tolerance = 1e-6
            self.widest = 1e-5
        self.tolerance = max(self.tolerance, self._rounding_of_targets())
        self.widest = max(self.widest, self.tolerance)
        content = pickle.dumps([type(model).__name__, self._state()], 4)
        self.fingerprint = hashlib.sha256(content).hexdigest()

    def _count_outputs(self, model: ForeignModel) -> int:
        coefficients = np.asarray(model.coef_)
        if coefficients.ndim == 1:
            return 1
        return len(coefficients)

    def _state(self) -> ForeignObject:
        """Return the fitted numbers, for the fingerprint."""
        return np.asarray(self._model.coef_), np.asarray(self._model.intercept_)

    def _in_single_precision(self) -> bool:
        """Return whether the features came in float32, in which scikit-learn then solves."""
        state = self._state()
        if isinstance(state, tuple):
            arrays = state
        else:
            arrays = (state,)
        return any(array.dtype == np.float32 for array in arrays)

    def _rounding_of_targets(self) -> float:
        """Return how far predictions may be off because the model rounds its targets."""
        return 0.0

    def _rows(self, X: FeatureTable) -> FeatureTable:
        return dense(numbers(X, np.float64))

    def _as_given(self, X: FeatureTable) -> FeatureTable:
        """Return rows in the precision that scikit-learn computes with, sparse if they are."""
        return numbers(X, _precision(X))

    def _as_fitted(self, X: FeatureTable) -> FeatureTable:
        """Return rows in the precision of the fit, sparse if they are."""
        if self._in_single_precision():
            return self._as_given(X).astype(np.float32)
        return self._as_given(X).astype(np.float64)

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return what ``predict`` gives, (n, K)."""
        return self._predicted(self._model, self._as_given(X))

    def again(
        self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None
    ) -> FloatArray | None:
        """Return the predictions of the solver when it runs again on these data, (N, K).

        None if it cannot be, or need not. A solver that samples rows without a seed is run several
        times, and the run that ends furthest from the solution counts.
        """
        rows = self._as_fitted(X)
        fitted_rows = self._rows_of_fit()
        if fitted_rows is not None and not _are_equal(fitted_rows, rows):
            return None
        predictions = []
        for seed in seeds_of_runs(self._model):
            refitted = run_again(self._model, rows, targets, weights, seed)
            if refitted is None:
                return None
            predictions.append(self._predicted(refitted, self._as_given(X)))
        if len(predictions) == 1:
            return predictions[0]
        exact = _solved(self.smoother(X, weights), targets)
        return max(predictions, key=lambda predicted: float(np.abs(predicted - exact).max()))

    def unsolved(
        self, X: FeatureTable, weights: FloatArray | None, error: float
    ) -> UnsupportedModelError:
        """Return why the solver may stay so far from the solution."""
        fit = Unsolved(
            self._model,
            error,
            self._in_single_precision(),
            self._condition(X, weights),
            bool(issparse(X)),
        )
        reason = refusal(SOLVERS, fit)
        assert reason is not None  # the last row of the table takes all
        return reason

    def _rows_of_fit(self) -> FeatureTable:
        """Return the rows of the fit, if the model stores them."""
        return None

    def _condition(self, X: FeatureTable, weights: FloatArray | None) -> float:
        """Return the condition number of the matrix that the fit solves with."""
        return 1.0

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement.

        Whether it is the solver was checked before, as far as that can be told.
        """
        drawn = ""
        if len(seeds_of_runs(self._model)) > 1:
            drawn = (
                f"{self._model.solver} stopped at tol={self._model.tol:g} and sampled rows "
                'without a seed, so its fit cannot be repeated: fit with solver="cholesky" or '
                '"svd", or with tol=1e-12 and an integer random_state.\n'
            )
        return drawn + (
            "These are not the rows, targets or sample weights that the model was fitted on, or "
            "not in its order; or columns or targets were transformed for the fit (scaled, a "
            "logarithm)."
        )


def dense(rows: FeatureTable) -> FeatureTable:
    """Return rows as an array."""
    if issparse(rows):
        return rows.toarray()
    return rows


def _are_equal(rows: FeatureTable, fitted_rows: FeatureTable) -> bool:
    return rows.shape == fitted_rows.shape and not np.any(dense(rows != fitted_rows))


def _precision(X: FeatureTable) -> RealType:
    """Return the type that scikit-learn computes with.

    It is float32 if all columns have it, else float64.
    """
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        types = [*X.dtypes]
    else:
        types = [getattr(X, "dtype", None)]
    if all(kind == np.float32 for kind in types):
        return np.float32
    return np.float64


def rounding_of_mean(targets: Any, n_terms: int) -> float:
    """Return a bound on the rounding of means that scikit-learn takes in the targets' own type.

    The bound is relative to the targets.
    """
    dtype = np.asarray(targets).dtype
    if dtype.kind != "f" or dtype.itemsize >= 8:
        return 0.0
    return 8 * float(np.finfo(dtype).eps) * float(np.sqrt(n_terms))


def _solved(fitted: FittedSmoother | list[FittedSmoother], targets: FloatArray) -> FloatArray:
    """Return the predictions of the exact solution for the training rows, (N, K)."""
    if isinstance(fitted, list):
        smoothers = fitted
    else:
        smoothers = [fitted]
    columns = np.array_split(targets, len(smoothers), axis=1)
    predictions = [
        smoother.training @ (np.asarray(smoother.solution) @ column)
        for smoother, column in zip(smoothers, columns)
    ]
    return np.hstack(predictions)


class LinearRegressionAdapter(SmootherAdapter):
    """Least squares."""

    def _penalties(self) -> list[float | FloatArray]:
        """Return the penalty that all outputs share, or one for each output.

        A penalty has shape (p,) where coefficients have their own.
        """
        return [0.0]

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the singular values of the rows are those of the fit.

        Least squares keep them. Targets without noise would fit some of the rows as well.
        """
        expected = getattr(self._model, "singular_", None)
        if expected is None:
            return
        centred = self._centred(self._rows(X), weights)
        values = np.linalg.svd(centred, compute_uv=False)[: len(expected)]
        if np.asarray(expected).dtype == np.float32:
            relative = 1e-3
        else:
            relative = 1e-6
        slack = relative * float(np.max(expected, initial=0.0))
        if len(values) < len(expected) or not np.all(np.abs(values - expected) <= slack):
            raise ExactnessError(
                "size of the features (largest singular value)",
                float(values[0]),
                float(expected[0]),
                "These are not the rows, or not the weights, that the model was fitted on: pass "
                "exactly those.",
            )

    def _centred(self, rows: FloatArray, weights: FloatArray | None) -> FloatArray:
        """Return the rows as least squares see them."""
        w = np.ones(len(rows)) if weights is None else weights
        centre = w @ rows / w.sum() if self._model.fit_intercept else 0.0
        return np.asarray((rows - centre) * np.sqrt(w)[:, None])

    def smoother(
        self, X: FeatureTable, weights: FloatArray | None
    ) -> FittedSmoother | list[FittedSmoother]:
        """Return the map from the targets to intercept and coefficients.

        It is a list with a map for each output where penalties differ.
        """
        rows = self._rows(X)
        features = with_ones(rows)
        used_rows = self._in_used_directions(rows, weights)
        intercept = bool(self._model.fit_intercept)
        smoothers = []
        for penalty in self._penalties():
            solution = least_squares(used_rows, weights, penalty, intercept)
            smoothers.append(FittedSmoother(features, solution, weighs_squares=True))
        if len(smoothers) == 1:
            return smoothers[0]
        return smoothers

    def _in_used_directions(self, rows: FloatArray, weights: FloatArray | None) -> FloatArray:
        """Return the rows without the directions that scikit-learn dropped as too small (tol)."""
        rank = getattr(self._model, "rank_", None)
        if rank is None or rank >= rows.shape[1]:
            return rows
        directions = np.linalg.svd(self._centred(rows, weights), full_matrices=False)[2][:rank]
        return np.asarray(rows @ directions.T @ directions)

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> FloatArray:
        """Return the features after a column of ones, (n, p + 1)."""
        return with_ones(self._rows(X))

    def again(
        self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None
    ) -> FloatArray | None:
        """Run the solver as in the fit, also for sparse rows that you pass as a dense array."""
        if is_fitted_sparse(self._model) and not issparse(X):
            X = csr_matrix(self._rows(X))
        return super().again(X, targets, weights)

    def _condition(self, X: FeatureTable, weights: FloatArray | None) -> float:
        centred = self._centred(self._rows(X), weights)
        moments = centred.T @ centred
        conditions = []
        for penalty in self._penalties():
            penalties = np.broadcast_to(penalty, len(moments))
            used = np.isfinite(penalties)
            matrix = moments[np.ix_(used, used)] + np.diag(penalties[used])
            conditions.append(condition_number(matrix))
        return max(conditions)


class RidgeAdapter(LinearRegressionAdapter):
    """Ridge regression, whose outputs may have different penalties.

    RidgeCV has those that it chose, which stay fixed.
    """

    def _penalties(self) -> list[float | FloatArray]:
        return [*alphas_of(self._model)]


def alphas_of(model: ForeignModel) -> list[float]:
    """Return the ``alpha`` that all outputs share, or one for each output if they differ.

    Chosen penalties come before the setting.
    """
    if hasattr(model, "alpha_"):
        setting = model.alpha_
    else:
        setting = model.alpha
    alphas = np.ravel(setting).astype(np.float64)
    if np.all(alphas == alphas[0]):
        return [float(alphas[0])]
    return [float(alpha) for alpha in alphas]


class BayesianRidgeAdapter(LinearRegressionAdapter):
    """Bayesian and automatic relevance determination regression, the estimated precisions fixed.

    Their coefficients are those of ridge regression whose penalty is the precision of the
    coefficients, ``lambda_``, divided by that of the noise, ``alpha_``. ARDRegression has one for
    each coefficient, and leaves out those above a threshold.
    """

    def _penalties(self) -> list[float | FloatArray]:
        model = self._model
        precisions = np.asarray(model.lambda_, dtype=np.float64)
        penalties = precisions / float(model.alpha_)
        if penalties.ndim == 0:
            return [float(penalties)]
        return [np.where(precisions < model.threshold_lambda, penalties, np.inf)]


class RidgeClassifierAdapter(RidgeAdapter):
    """Ridge regression of the classes, coded as -1 and 1.

    Its decision d is read as the share (1 + d) / 2, which is the ridge regression of targets 0 and
    1: the intercept is not penalised, so doubling the targets and taking one away does the same to
    the predictions.
    """

    about_predictions = (
        "scores are (1 + decision_function) / 2, the ridge regression of targets 0 and 1"
    )
    predicts_probabilities = False

    def __init__(self, model: ForeignModel):
        refuse(RIDGE_CLASSIFIERS, model)
        has_labels = str(model._label_binarizer.y_type_).startswith("multilabel")
        if has_labels:
            self.classes = None
        else:
            self.classes = owned(np.asarray(model.classes_))
        self.weighs_classes = bool(model.class_weight)
        super().__init__(model)

    def _count_outputs(self, model: ForeignModel) -> int:
        return len(model.classes_)

    def row_weights(self, targets: FloatArray, weights: FloatArray | None) -> FloatArray | None:
        """Return the sample weights times the weights of the rows' classes."""
        if not self._model.class_weight:
            return weights
        from sklearn.utils.class_weight import compute_sample_weight

        if self.classes is None:
            labels = targets
        else:
            labels = self.classes[targets.argmax(axis=1)]
        factors = compute_sample_weight(self._model.class_weight, labels)
        factors = np.asarray(factors, dtype=np.float64)
        if weights is None:
            return factors
        return weights * factors

    def smoother(
        self, X: FeatureTable, weights: FloatArray | None
    ) -> FittedSmoother | list[FittedSmoother]:
        """Return the map from targets of 0 and 1 to intercept and coefficients."""
        fitted = super().smoother(X, weights)
        assert isinstance(fitted, FittedSmoother)  # one penalty for all classes
        if isinstance(self._model.class_weight, str):
            return replace(fitted, undeletable=RECOUNTED)
        return fitted

    def again(
        self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None
    ) -> FloatArray | None:
        """Return the predictions of ridge regression of -1 and 1 with the same solver."""
        coded = 2.0 * targets - 1.0
        if self._has_two_classes:
            coded = coded[:, 1:]
        refitted = run_again(regressor_of(self._model), self._as_fitted(X), coded, weights)
        if refitted is None:
            return None
        decisions = np.asarray(refitted.predict(self._as_given(X)), dtype=np.float64)
        return self._shares(decisions)

    @property
    def _has_two_classes(self) -> bool:
        return self.classes is not None and len(self.classes) == 2

    def _predicted(self, model: ForeignModel, rows: FeatureTable) -> FloatArray:
        return self._shares(np.asarray(model.decision_function(rows), dtype=np.float64))

    def decisions(self, shares: FloatArray) -> FloatArray:
        """Return the ``decision_function`` for predictions that are these shares, (n, K)."""
        decisions = 2.0 * shares - 1.0
        if self._has_two_classes:
            return decisions[:, 1]
        return decisions

    def _shares(self, decisions: FloatArray) -> FloatArray:
        """Return the shares (n, K) of the classes that decisions express.

        The decisions of two classes are those of the second.
        """
        shares = (1.0 + decisions.reshape(len(decisions), -1)) / 2.0
        if self._has_two_classes:
            return np.hstack([1.0 - shares, shares])
        return shares


class KernelAdapter(SmootherAdapter):
    """Base of smoothers whose features are a kernel with the rows of the fit.

    The model keeps these rows.
    """

    def __init__(self, model: ForeignModel):
        super().__init__(model)
        self.fitted_rows = int(self._rows_of_fit().shape[0])

    def _count_outputs(self, model: ForeignModel) -> int:
        if np.ndim(self._state()) == 1:
            return 1
        return int(self._state().shape[1])

    def _in_single_precision(self) -> bool:
        return bool(self._rows_of_fit().dtype == np.float32)

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the rows are those of the fit."""
        check_rows(self._rows_of_fit(), self._rows(X))


class KernelRidgeAdapter(KernelAdapter):
    """Kernel ridge regression."""

    def _rows_of_fit(self) -> FeatureTable:
        return self._model.X_fit_

    def _state(self) -> ForeignObject:
        return np.asarray(self._model.dual_coef_)

    def smoother(
        self, X: FeatureTable, weights: FloatArray | None
    ) -> FittedSmoother | list[FittedSmoother]:
        """Return the map from the targets to dual coefficients.

        It is a list with a map for each output where penalties differ.
        """
        gram = self._gram(X)
        features = self.coordinates(X)
        smoothers = []
        for penalty in alphas_of(self._model):
            solution = kernel_ridge(gram, weights, penalty)
            smoother = FittedSmoother(
                features,
                solution,
                weighs_squares=True,
                residual_factors=_residual_factors(len(gram), weights, penalty),
            )
            smoothers.append(smoother)
        if len(smoothers) == 1:
            return smoothers[0]
        return smoothers

    def _gram(self, X: FeatureTable) -> FloatArray:
        """Return the kernel of these rows with themselves, (N, N)."""
        return np.asarray(self._model._get_kernel(self._rows(X)))

    def _condition(self, X: FeatureTable, weights: FloatArray | None) -> float:
        gram = self._gram(X)
        if weights is not None:
            gram = gram * np.sqrt(np.outer(weights, weights))
        identity = np.eye(len(gram))
        return max(condition_number(gram + alpha * identity) for alpha in alphas_of(self._model))

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> FloatArray:
        """Return the kernel with the training rows, (n, N)."""
        rows = self._rows(X)
        if len(rows) == 0:
            return np.zeros((0, len(self._model.X_fit_)))
        return np.asarray(self._model._get_kernel(rows, self._model.X_fit_))


def _residual_factors(n_rows: int, weights: FloatArray | None, penalty: float) -> FloatArray:
    """Return the factors (N,) of `FittedSmoother.residual_factors` in kernel ridge regression.

    With W the diagonal matrix of the weights, the solution is ``A = (G + penalty / W)^-1``, so that
    ``I - G A = (penalty / W) A``.
    """
    if weights is None:
        weights = np.ones(n_rows)
    factors = np.full(n_rows, np.nan)
    if penalty > 0:
        np.divide(penalty, weights, out=factors, where=weights > 0)
    return factors


class GaussianProcessAdapter(KernelAdapter):
    """The mean of a Gaussian process.

    Parameters of the kernel that were fitted to the targets are fixed with the rest.
    """

    def _rows_of_fit(self) -> FeatureTable:
        return np.asarray(self._model.X_train_)

    def _state(self) -> ForeignObject:
        return np.asarray(self._model.alpha_)

    def _rounding_of_targets(self) -> float:
        """Return the rounding of the targets' mean and deviation, which normalize_y takes."""
        if not self._model.normalize_y:
            return 0.0
        return rounding_of_mean(self._model.y_train_, len(self._model.y_train_))

    def smoother(self, X: FeatureTable, weights: FloatArray | None) -> FittedSmoother:
        """Return the map from the targets to dual coefficients.

        normalize_y centres the targets and scales them there and back.
        """
        if weights is not None:
            raise InputError("A Gaussian process takes no sample_weight: leave it out.")
        kernel = self._kernel(X)
        solution = kernel_ridge(kernel, None, 0.0)
        if self._model.normalize_y:
            mean = np.full(len(kernel), 1.0 / len(kernel))
            solution = np.vstack([solution - np.outer(solution.sum(axis=1), mean), mean])
        return FittedSmoother(self.coordinates(X), solution)

    def _kernel(self, X: FeatureTable) -> FloatArray:
        """Return the kernel of the training rows, with the noise that alpha adds, (N, N)."""
        kernel = np.asarray(self._model.kernel_(self._rows(X)))
        kernel[np.diag_indices_from(kernel)] += np.asarray(self._model.alpha, dtype=float)
        return kernel

    def _condition(self, X: FeatureTable, weights: FloatArray | None) -> float:
        return condition_number(self._kernel(X))

    def _as_given(self, X: FeatureTable) -> FeatureTable:
        return dense(super()._as_given(X))

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> FloatArray:
        """Return the kernel with the training rows, (n, N).

        A last column of ones stands for the targets' mean where normalize_y adds it again.
        """
        rows = self._rows(X)
        fitted = self._model.X_train_
        kernel = np.zeros((0, len(fitted)))
        if len(rows):
            kernel = np.asarray(self._model.kernel_(rows, fitted))
        if self._model.normalize_y:
            return np.hstack([kernel, np.ones((len(kernel), 1))])
        return kernel

"""The exact solutions of linear smoothers, and how far scikit-learn's own solvers stay from them.

A linear smoother predicts ``features(x) @ solution @ y``, with both factors free of the targets.
scikit-learn's solvers stop at a tolerance of their own (sag, saga, sparse_cg, lsqr) or where their
precision ends. Run again on the data given, a solver stays as far from the exact solution as it did
in the fit. This distinguishes such a model from one of other data.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from axil.adapters.refusals import Refusal
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import UnsupportedModelError

RUNS = 8  # of a solver that samples rows without a seed
SAME_ESTIMATE = 1e-6  # relative: of precisions that the same fit estimates on the same data
ITERATIVE_SOLVERS = ("sag", "saga", "sparse_cg", "lsqr")


def least_squares(
    X: FloatArray, weights: FloatArray | None, l2: float | FloatArray, intercept: bool
) -> FloatArray:
    """Return the linear map from targets to intercept and coefficients of (ridge) regression.

    With an intercept columns and targets are centred at their weighted means, as the intercept is
    not penalised.

    Parameters
    ----------
    X : array of shape (N, p)
        The features.
    weights : array of shape (N,), optional
        The sample weights.
    l2 : float, or array of shape (p,)
        The penalty of all coefficients, or of each of them. Where it is infinite, the coefficient
        is zero. Without any penalty the coefficients are those of minimum norm.
    intercept : bool
        Whether there is an intercept.

    Returns
    -------
    array of shape (p + 1, N)
    """
    if weights is None:
        w = np.ones(len(X))
    else:
        w = weights
    root = np.sqrt(w)[:, None]
    if intercept:
        centre = w @ X / w.sum()
    else:
        centre = np.zeros(X.shape[1])
    Z = (X - centre) * root
    if np.ndim(l2):  # one penalty of 1, once each column is divided by the root of its own
        shrink = 1.0 / np.sqrt(l2)
        coefficients = shrink[:, None] * _ridge(Z * shrink, 1.0)
    else:
        coefficients = _ridge(Z, float(l2))
    coefficients = coefficients * root.T
    if not intercept:
        return np.vstack([np.zeros(len(X)), coefficients])
    mean = w / w.sum()
    coefficients = coefficients - np.outer(coefficients.sum(axis=1), mean)  # centring the targets
    return np.vstack([mean - centre @ coefficients, coefficients])


def _ridge(Z: FloatArray, l2: float) -> FloatArray:
    """Return the map (p, N) from targets to coefficients of ridge regression without intercept."""
    if l2 > 0:
        U, s, Vt = linalg.svd(Z, full_matrices=False)
        return np.asarray((Vt.T * (s / (s**2 + l2))) @ U.T)
    return np.asarray(linalg.pinv(Z))


def with_ones(X: FloatArray) -> FloatArray:
    """Return X with a first column of ones, for the intercept."""
    return np.hstack([np.ones((len(X), 1)), X])


def kernel_ridge(gram: FloatArray, weights: FloatArray | None, l2: float) -> FloatArray:
    """Return the map from targets to dual coefficients, (N, N).

    Parameters
    ----------
    gram : array of shape (N, N)
        The Gram matrix of the training rows.
    weights : array of shape (N,), optional
        The sample weights.
    l2 : float
        The penalty.
    """
    if weights is None:
        root = np.ones(len(gram))
    else:
        root = np.sqrt(weights)
    regular = gram * np.outer(root, root) + l2 * np.eye(len(gram))
    try:
        # An ill-conditioned matrix warns; the replay shows whether that matters.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solved = linalg.solve(regular, np.diag(root), assume_a="pos")
    except np.linalg.LinAlgError:
        raise UnsupportedModelError(
            "alpha",
            f"{l2:g}",
            "the kernel's matrix is singular in float64, so its solution is not determined",
            "Fit with a larger alpha, or scale the features.",
        ) from None
    return np.asarray(root[:, None] * solved)


def condition_number(matrix: FloatArray) -> float:
    """Return the condition number of a symmetric matrix without negative eigenvalues.

    It is infinite where rounding has made one negative.
    """
    values = np.linalg.eigvalsh(matrix)
    if values[0] > 0:
        return float(values[-1] / values[0])
    return float("inf")


@dataclass(frozen=True)
class Unsolved:
    """A fit whose solver stays too far from the solution."""

    model: ForeignModel
    error: float  #: of its predictions, relative to the largest
    is_single: bool  #: whether it was solved in float32
    condition: float  #: of the matrix that it solves with
    is_sparse: bool = False  #: whether its features are sparse

    @property
    def off(self) -> str:
        """Describe how far the predictions are from those of the exact solution."""
        return f"predictions off by {self.error:.1e}"


def solver_of(model: ForeignModel) -> ForeignModel:
    """Return the solver that a fit used, or the setting solver; None if there is neither."""
    return getattr(model, "solver_", getattr(model, "solver", None))


def _stopped(fit: Unsolved) -> str:
    solver = solver_of(fit.model)
    if solver not in ITERATIVE_SOLVERS:
        return ""
    n_iter = getattr(fit.model, "n_iter_", None)
    if n_iter is None:
        steps = ""
    else:
        steps = f", n_iter_={int(np.max(n_iter))}"
    return f"{solver} (tol={fit.model.tol:g}, max_iter={fit.model.max_iter}{steps}, {fit.off})"


def is_fitted_sparse(model: ForeignModel) -> bool:
    """Return whether a LinearRegression was fitted on sparse features, by lsqr.

    Only a dense fit has a rank.
    """
    return not any(hasattr(model, name) for name in ("alpha", "alphas", "rank_", "lambda_"))


def _stopped_sparse(fit: Unsolved) -> str:
    if not is_fitted_sparse(fit.model):
        return ""
    return f"{getattr(fit.model, 'tol', 1e-6):g} ({fit.off})"


def _searched_sparse(fit: Unsolved) -> str:
    if not fit.is_sparse or not hasattr(fit.model, "alphas"):
        return ""
    cv = getattr(fit.model, "cv", None)
    if cv is None:
        return ""
    return f"{cv} ({fit.off})"


def _single(fit: Unsolved) -> str:
    if not fit.is_single:
        return ""
    return f"float32 ({fit.off}, condition number {fit.condition:.1e})"


def _ill_conditioned(fit: Unsolved) -> str:
    if hasattr(fit.model, "alphas"):
        name = "alpha_"
    else:
        name = "alpha"
    alpha = getattr(fit.model, name, None)
    if alpha is None:
        smallest = ""
    else:
        smallest = f" with alpha={np.min(alpha):g}"
    return f"{fit.condition:.1e}{smallest} ({fit.off})"


#: Of fits that the same solver, run again on the data given, leaves as far from the solution. The
#: last row takes all.
SOLVERS: tuple[Refusal[Unsolved], ...] = (
    Refusal(
        "solver",
        _stopped,
        "an iterative solver stopped before it had converged, as it does when it is run again on "
        "these data",
        'Fit with tol=1e-12 and a large max_iter, or with solver="cholesky" or "svd" on dense '
        "features.",
    ),
    Refusal(
        "tol",
        _stopped_sparse,
        "lsqr, which fits sparse features, stopped before it had converged, as it does when it is "
        "run again on these data",
        "Fit with tol=1e-12, or on dense features.",
    ),
    Refusal(
        "cv",
        _searched_sparse,
        "RidgeCV with cv fits sparse features by sparse_cg, which stopped before it had converged, "
        "as it does when it is run again on these data",
        "Fit Ridge with the alpha_ that was found and tol=1e-12 and explain that, or fit without "
        "cv, or on dense features.",
    ),
    Refusal(
        "dtype",
        _single,
        "the fit was solved in single precision, which is too coarse to reach the solution; axil "
        "repeated the fit on these data with the same result",
        "Fit on features in float64. An init of gradient boosting is always fitted in float32: "
        "scale its features, or give it a larger alpha.",
    ),
    Refusal(
        "condition number",
        _ill_conditioned,
        "double precision is too coarse to reach the solution; axil repeated the fit on these "
        "data with the same result",
        "Fit with a larger alpha (of a Gaussian process: or a WhiteKernel), or scale the features.",
    ),
)


def seeds_of_runs(model: ForeignModel) -> list[int | None]:
    """Return the seed of each run that shows how far the solver stays from the solution.

    None stands for the seed of the model, if it has any. A fit by sag or saga without a seed of its
    own may have ended further from the solution, or closer, than any single run.
    """
    is_seeded = isinstance(getattr(model, "random_state", None), (int, np.integer))
    if solver_of(model) not in ("sag", "saga") or is_seeded:
        return [None]
    return list(range(RUNS))


def run_again(
    model: ForeignModel,
    X: FeatureTable,
    targets: FloatArray,
    weights: FloatArray | None,
    seed: int | None = None,
) -> ForeignObject:
    """Return the model fitted again, with all that the targets chose fixed.

    Returns None if it cannot be fitted again.
    """
    from sklearn.base import clone

    if targets.shape[1] == 1:
        y = targets[:, 0]
    else:
        y = targets
    if has_chosen_for_each_output(model):
        model = _with_alphas(model)
    if weights is None:
        sample_weight = {}
    else:
        sample_weight = {"sample_weight": weights}
    try:
        # The first fit has warned already, for example that it did not converge.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if hasattr(model, "solver_"):
                solver = {"solver": model.solver_}
            else:
                solver = {}
            settings = chosen(model) or solver
            if seed is not None:
                settings = {**settings, "random_state": seed}
            refitted = clone(model).set_params(**settings).fit(X, y, **sample_weight)
            if _estimated_alike(model, refitted):
                return refitted
            return None
    # A user's own subclass or kernel may do anything: then there is no such evidence.
    except Exception:
        return None


def _estimated_alike(model: ForeignModel, refitted: ForeignModel) -> bool:
    """Return whether two fits estimated the same precisions; True for models that estimate none.

    On other data they do not.
    """
    if not (hasattr(model, "lambda_") and hasattr(refitted, "lambda_")):
        return True
    estimates = zip((model.alpha_, model.lambda_), (refitted.alpha_, refitted.lambda_))
    return all(np.allclose(a, b, rtol=SAME_ESTIMATE, atol=0) for a, b in estimates)


def has_chosen_for_each_output(model: ForeignModel) -> bool:
    """Return whether a RidgeCV chose a penalty for each of several outputs."""
    return bool(getattr(model, "alpha_per_target", False)) and np.size(model.alpha_) > 1


def _with_alphas(model: ForeignModel) -> ForeignModel:
    """Return a Ridge with the penalties of a RidgeCV that chose one for each output.

    The search of a RidgeCV takes one penalty for all.
    """
    from sklearn.linear_model import Ridge

    return Ridge(alpha=model.alpha_, fit_intercept=model.fit_intercept)


def regressor_of(model: ForeignModel) -> ForeignModel:
    """Return the unfitted regressor that a RidgeClassifier or RidgeClassifierCV fits to classes."""
    from sklearn.linear_model import Ridge, RidgeCV

    if hasattr(model, "alphas"):
        regressor = RidgeCV(fit_intercept=model.fit_intercept, cv=model.cv)
        regressor.alpha_ = model.alpha_
        return regressor
    settings = model.get_params(deep=False)
    del settings["class_weight"]
    regressor = Ridge(**settings)
    if hasattr(model, "solver_"):
        regressor.solver_ = model.solver_
    return regressor


def chosen(model: ForeignModel) -> dict[str, Any]:
    """Return settings that fix what the fit of a model chose from the targets."""
    if hasattr(model, "kernel_"):
        return {"kernel": model.kernel_, "optimizer": None}
    if hasattr(model, "alphas"):
        return {"alphas": [float(np.ravel(model.alpha_)[0])]}
    return {}

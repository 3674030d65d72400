"""How far scikit-learn's own solvers stay from the solution of the data they are given, and what to do about it.

A solver stops at a tolerance of its own (sag, saga, sparse_cg, lsqr) or where its precision ends. Run again on the data given
it stays as far from the exact solution as it did in the fit, which distinguishes such a model from one of other data.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters.refusals import Refusal
from axil.arrays import FloatArray

RUNS = 8  # of a solver that draws rows without a seed
SAME_ESTIMATE = 1e-6  # relative: of precisions that the same fit estimates on the same data


@dataclass(frozen=True)
class Unsolved:
    """A fit whose solver stays too far from the solution."""

    model: Any
    error: float  #: of its predictions, relative to the largest
    single: bool  #: whether it was solved in float32
    condition: float  #: of the matrix that it solves with
    sparse: bool = False  #: whether its features are

    @property
    def off(self) -> str:
        return f"predictions off by {self.error:.1e}"


def _stopped(fit: Unsolved) -> str:
    solver = getattr(fit.model, "solver_", getattr(fit.model, "solver", None))
    if solver not in ("sag", "saga", "sparse_cg", "lsqr"):
        return ""
    n_iter = getattr(fit.model, "n_iter_", None)
    steps = "" if n_iter is None else f", n_iter_={int(np.max(n_iter))}"
    return f"{solver} (tol={fit.model.tol:g}, max_iter={fit.model.max_iter}{steps}, {fit.off})"


def fitted_sparse(model: Any) -> bool:
    """Whether a LinearRegression was fitted on sparse features, by lsqr: only a dense fit has a rank."""
    return not any(hasattr(model, name) for name in ("alpha", "alphas", "rank_", "lambda_"))


def _stopped_sparse(fit: Unsolved) -> str:
    return f"{getattr(fit.model, 'tol', 1e-6):g} ({fit.off})" if fitted_sparse(fit.model) else ""


def _searched_sparse(fit: Unsolved) -> str:
    cv = getattr(fit.model, "cv", None) if hasattr(fit.model, "alphas") else None
    return f"{cv} ({fit.off})" if fit.sparse and cv is not None else ""


def _of(fit: Unsolved) -> str:
    alpha = (
        getattr(fit.model, "alpha_", None)
        if hasattr(fit.model, "alphas")
        else getattr(fit.model, "alpha", None)
    )
    smallest = "" if alpha is None else f" with alpha={np.min(alpha):g}"
    return f"{fit.condition:.1e}{smallest} ({fit.off})"


#: Of fits that the same solver, run again on the data given, leaves as far from the solution; the last takes all.
SOLVERS: tuple[Refusal[Unsolved], ...] = (
    Refusal(
        "solver",
        _stopped,
        "an iterative solver stopped before it had converged, as it does when it is run again on these data",
        'Fit with tol=1e-12 and a large max_iter, or with solver="cholesky" or "svd" on dense features.',
    ),
    Refusal(
        "tol",
        _stopped_sparse,
        "lsqr, which fits sparse features, stopped before it had converged, as it does when it is run again on these data",
        "Fit with tol=1e-12, or on dense features.",
    ),
    Refusal(
        "cv",
        _searched_sparse,
        "RidgeCV with cv fits sparse features by sparse_cg, which stopped before it had converged, as it does when it is run "
        "again on these data",
        "Fit Ridge with the alpha_ that was found and tol=1e-12 and explain that, or fit without cv, or on dense features.",
    ),
    Refusal(
        "dtype",
        lambda fit: fit.single and f"float32 ({fit.off}, condition number {fit.condition:.1e})",
        "the fit was solved in single precision, which ends before the solution does, also when it is run again on these data",
        "Fit on features in float64. An init of gradient boosting is always fitted in float32: scale its features, or give it a "
        "larger alpha.",
    ),
    Refusal(
        "condition number",
        _of,
        "double precision ends before the solution does, also when the fit is run again on these data",
        "Fit with a larger alpha (of a Gaussian process: or a WhiteKernel), or scale the features.",
    ),
)


def seeds_of_runs(model: Any) -> list[int | None]:
    """Return the seed of each run that shows how far the solver stays from the solution; None: that of the model, if any.

    A fit by sag or saga without a seed of its own may have ended further from the solution, or closer, than any one run.
    """
    solver = getattr(model, "solver_", getattr(model, "solver", None))
    is_seeded = isinstance(getattr(model, "random_state", None), (int, np.integer))
    if solver not in ("sag", "saga") or is_seeded:
        return [None]
    return list(range(RUNS))


def run_again(
    model: Any, X: Any, targets: FloatArray, weights: FloatArray | None, seed: int | None = None
) -> Any:
    """Return the model fitted again, all that was chosen by the targets held fixed; None where it cannot be."""
    from sklearn.base import clone

    y = targets[:, 0] if targets.shape[1] == 1 else targets
    if has_chosen_for_each_output(model):
        model = _with_alphas(model)
    how = {} if weights is None else {"sample_weight": weights}
    try:
        with (
            warnings.catch_warnings()
        ):  # that it did not converge, say: the first fit has warned of that
            warnings.simplefilter("ignore")
            solver = {"solver": model.solver_} if hasattr(model, "solver_") else {}
            settings = chosen(model) or solver
            if seed is not None:
                settings = {**settings, "random_state": seed}
            found = clone(model).set_params(**settings).fit(X, y, **how)
            return found if _estimated_alike(model, found) else None
    except (
        Exception
    ):  # a user's own subclass or kernel may do anything: then there is no such evidence
        return None


def _estimated_alike(model: Any, again: Any) -> bool:
    """Return whether two fits estimated the same precisions, if they are of a kind that does: on other data they do not."""
    estimated = [(fit.alpha_, fit.lambda_) for fit in (model, again) if hasattr(fit, "lambda_")]
    if not estimated:
        return True
    first, second = estimated
    return all(
        np.allclose(own, other, rtol=SAME_ESTIMATE, atol=0) for own, other in zip(first, second)
    )


def has_chosen_for_each_output(model: Any) -> bool:
    """Return whether a RidgeCV chose a penalty for each of several outputs."""
    return bool(getattr(model, "alpha_per_target", False)) and np.size(model.alpha_) > 1


def _with_alphas(model: Any) -> Any:
    """Return the Ridge that stands for a RidgeCV which chose a penalty for each output: its search takes one for all."""
    from sklearn.linear_model import Ridge

    return Ridge(alpha=model.alpha_, fit_intercept=model.fit_intercept)


def regressor_of(model: Any) -> Any:
    """Return the unfitted regressor that a RidgeClassifier or RidgeClassifierCV fits to its classes."""
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


def chosen(model: Any) -> dict[str, Any]:
    """Settings that hold what the fit of a model chose by the targets."""
    if hasattr(model, "kernel_"):
        return {"kernel": model.kernel_, "optimizer": None}
    return {"alphas": [float(np.ravel(model.alpha_)[0])]} if hasattr(model, "alphas") else {}


def condition_number(matrix: FloatArray) -> float:
    """Condition number of a symmetric matrix with no negative eigenvalues; infinite where rounding has made one."""
    values = np.linalg.eigvalsh(matrix)
    return float(values[-1] / values[0]) if values[0] > 0 else float("inf")

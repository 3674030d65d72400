"""Smoothers whose solver stops short of the solution: exact within what is said, or refused by name; wrong data never pass."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6))
Y = X @ RNG.normal(size=6) + RNG.normal(size=200) + 3
X_NEW = RNG.normal(size=(50, 6))
SPARSE, SINGLE = sparse.csr_matrix(X), X.astype(np.float32)
STEEP = sparse.csr_matrix(
    RNG.normal(size=(200, 60)) @ np.diag(np.logspace(0, 2, 60))
)  # which lsqr takes many steps for


def process(alpha, kernel=None, **settings):
    return GaussianProcessRegressor(
        kernel or kernels.RBF(5.0), alpha=alpha, optimizer=None, **settings
    )


def fitted(model, rows):
    with warnings.catch_warnings():  # that it did not converge
        warnings.simplefilter("ignore")
        return model.fit(rows, Y)


REFUSED = {
    "sparse rows and cv": (RidgeCV(cv=3), SPARSE, "cv", "sparse_cg.*tol=1e-12"),
    "sag": (Ridge(solver="sag", tol=1e-4, random_state=0), X, "solver", "tol=0.0001.*n_iter_="),
    "sag, unseeded": (Ridge(solver="sag", tol=1e-4), X, "solver", "tol=0.0001.*n_iter_="),
    "saga": (Ridge(solver="saga", tol=1e-4, random_state=0), X, "solver", "cholesky"),
    "sag, one step": (
        Ridge(solver="sag", tol=1e-9, max_iter=1, random_state=0),
        X,
        "solver",
        "max_iter=1",
    ),
    "sparse_cg": (Ridge(solver="sparse_cg", tol=1e-4), X, "solver", "sparse_cg"),
    "sparse_cg, stopped": (
        Ridge(solver="sparse_cg", tol=1e-12, max_iter=2),
        X,
        "solver",
        "max_iter=2",
    ),
    "lsqr": (Ridge(solver="lsqr", tol=1e-4), X, "solver", "lsqr"),
    "ridge, sparse": (Ridge(), SPARSE, "solver", "sparse_cg"),
    "pipeline": (
        make_pipeline(StandardScaler(), Ridge(solver="lsqr", tol=1e-3)),
        X,
        "solver",
        "lsqr",
    ),
    "linear, sparse": (LinearRegression(), STEEP, "tol", "tol=1e-12"),
    "kernel, float32": (KernelRidge(alpha=1e-3), SINGLE, "dtype", "float64"),
    "process, float64": (
        process(1e-10, kernels.DotProduct()),
        X,
        "condition number",
        "alpha=1e-10",
    ),
    "kernel, float64": (KernelRidge(alpha=1e-9), X, "condition number", "larger alpha"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_solver_that_stopped_short_is_refused_by_name(name):
    model, rows, setting, says = REFUSED[name]
    fitted(model, rows)
    with pytest.raises(axil.UnsupportedModelError, match=says) as caught:
        axil.Explainer(model, rows, Y)
    assert caught.value.setting == setting
    assert "these data" in str(caught.value)


ACCEPTED = {
    "sag": (Ridge(solver="sag", tol=1e-9, max_iter=10**5, random_state=0), X),
    "sag, unseeded": (Ridge(solver="sag", tol=1e-8, max_iter=10**5), X),
    "sparse_cg": (Ridge(solver="sparse_cg", tol=1e-10), SPARSE),
    "ridge, float32": (Ridge(), SINGLE),
    "ridge, float32, sparse": (Ridge(tol=1e-8), SPARSE.astype(np.float32)),
    "penalty chosen": (RidgeCV(), SINGLE),
    "kernel, float32": (KernelRidge(kernel="rbf"), SINGLE),
    "kernel": (KernelRidge(alpha=1e-6), X),
    "process": (process(1e-10), X),
    "process, normalised": (process(1e-10, normalize_y=True), X),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_solver_leaves_is_allowed_and_nothing_else_is(name):
    """Up to 1e-6 in float64 and 1e-5 in float32; a target changed by a tenth of their spread, or two swapped, is noticed."""
    model, rows = ACCEPTED[name]
    fitted(model, rows)
    explainer = axil.Explainer(model, rows, Y)
    allowed = explainer.verification.tolerance
    assert allowed <= (1e-5 if rows.dtype == np.float32 else 1e-6)
    new = X_NEW.astype(rows.dtype)
    for asked in (rows, new):
        predicted = model.predict(asked)
        made = explainer(asked).weights @ Y
        assert np.abs(made - predicted).max() <= allowed * max(
            np.abs(predicted).max(), explainer.verification.scale
        )
    wrong = Y.copy()
    wrong[3] += 0.1 * Y.std()
    swapped = Y.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    refused: tuple[type[Exception], ...] = (axil.ExactnessError,)
    words = "not the rows, targets or sample weights"
    if name == "ridge, float32, sparse":
        # An old SciPy stops short in single precision when it is run again on the wrong targets.
        refused = (axil.ExactnessError, axil.UnsupportedModelError)
        words += "|an iterative solver stopped before it had converged"
    for targets in (wrong, swapped):
        with pytest.raises(refused, match=words):
            axil.Explainer(model, rows, targets)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, rows[::-1], Y)


def test_wrong_data_do_not_pass_for_a_solver_that_stopped_short():
    """A refusal or a disagreement: what matters is that no explainer is made of them."""
    for name in REFUSED:
        model, rows, *_ = REFUSED[name]
        fitted(model, rows)
        wrong = Y.copy()
        wrong[3] += Y.std()
        with pytest.raises((axil.ExactnessError, axil.UnsupportedModelError)):
            axil.Explainer(model, rows, wrong)


def test_the_data_are_blamed_where_they_are_wrong_and_the_solver_is_loose():
    """All targets in reverse order lie far outside of what sag leaves."""
    model = fitted(Ridge(solver="sag", tol=1e-4, random_state=0), X)
    with pytest.raises(axil.ExactnessError, match="not the rows, targets or sample weights"):
        axil.Explainer(model, X, Y[::-1])


@pytest.mark.parametrize("seed", [16, 76, 105])
def test_a_solver_without_a_seed_is_run_several_times(seed):
    """One run with another seed ends ten times closer to the solution than these fits did."""
    rows, targets = load_diabetes(return_X_y=True)
    model = Ridge(solver="sag", tol=1e-2, random_state=np.random.RandomState(seed)).fit(
        rows, targets
    )
    with pytest.raises(axil.UnsupportedModelError, match="sag"):
        axil.Explainer(model, rows, targets)


def test_wrong_data_of_a_solver_without_a_seed():
    model = fitted(Ridge(solver="sag", tol=1e-4), X)
    with pytest.raises(axil.ExactnessError, match=r"sampled rows without a seed.*\n.*not the rows"):
        axil.Explainer(model, X, Y[::-1])


def test_sparse_rows_of_a_fit_may_be_given_dense():
    model = fitted(LinearRegression(), STEEP)
    with pytest.raises(axil.UnsupportedModelError, match="lsqr"):
        axil.Explainer(model, STEEP.toarray(), Y)


def test_a_model_that_cannot_be_fitted_again_is_held_to_the_usual_tolerance():
    class Own(Ridge):
        def __init__(self, *, solver="lsqr", tol=1e-3, must=None):
            if must is None:
                raise ValueError("must")
            super().__init__(solver=solver, tol=tol)
            self.must = must

        def get_params(self, deep=True):
            return {}

    model = fitted(Own(must=1), X)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, Y)


def test_a_fit_lost_in_rounding_is_named_where_a_row_far_off_shows_it():
    """Coefficients of rows that are all alike are 0, or rounding errors as sparse features get them."""
    rows, targets = np.tile([9.5e8, 1.16e9], (5, 1)), [1.0, 0, 1, 0, 0]
    model = Ridge().fit(rows, targets)
    model.coef_ = np.array([-1.36e-8, 9.6e-9])
    model.intercept_ = 0.4 - rows[0] @ model.coef_
    explainer = axil.Explainer(model, rows, targets)
    with pytest.raises(
        axil.ExactnessError, match=r"far from all training rows(.|\n)*may have changed"
    ):
        explainer([[1.1e9, 1e9]])

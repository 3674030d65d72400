"""A proof that proves something: smoothers are refused rows that they were not fitted on."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4))
Y = X @ np.arange(4.0) + RNG.normal(size=50)
OTHER = RNG.normal(size=(50, 4))
WIDE = RNG.normal(size=(12, 30))  # fewer rows than features: any rows interpolate
WIDE_Y = RNG.normal(size=12)

SMOOTHERS = {
    "least squares": LinearRegression(),
    "ridge": Ridge(),
    "ridge by cross-validation": RidgeCV(),
    "kernel ridge": KernelRidge(alpha=0.1, kernel="rbf"),
    "linear kernel ridge": KernelRidge(alpha=0.1),
    "gaussian process": GaussianProcessRegressor(alpha=0.1, optimizer=None),
    "centred gaussian process": GaussianProcessRegressor(
        alpha=0.1, optimizer=None, normalize_y=True
    ),
    "neighbours": KNeighborsRegressor(3),
    "weighted neighbours": KNeighborsRegressor(3, weights="distance", algorithm="brute"),
    "neighbours within a radius": RadiusNeighborsRegressor(3.0),
}
KEEP = [name for name in SMOOTHERS if "kernel" in name or "process" in name or "neighbours" in name]
MISTAKES = {
    "permuted": lambda X: X[::-1],
    "noise": lambda X: np.random.default_rng(5).normal(size=X.shape),
    "of another fit": lambda X: X + 0.5,
    "columns in another order": lambda X: X[:, ::-1],
    "one value": lambda X: X + np.eye(*X.shape),
}


@pytest.mark.parametrize(
    "steps", [(), (StandardScaler(),), (SimpleImputer(), PCA(3))], ids=["plain", "scaled", "pca"]
)
@pytest.mark.parametrize("kind", SMOOTHERS)
def test_other_rows_are_refused(kind: str, steps: tuple[object, ...]) -> None:
    model = make_pipeline(*steps, SMOOTHERS[kind]) if steps else SMOOTHERS[kind]
    model.fit(X, Y)
    axil.Explainer(model, X, Y)
    for mistake, make in MISTAKES.items():
        with pytest.raises((axil.ExactnessError, axil.InputError)) as error:
            axil.Explainer(model, make(X), Y)
        if kind in KEEP:
            assert isinstance(error.value, axil.ExactnessError), mistake
            expected = (
                "another order"
                if mistake == "permuted" and not steps
                else "order of the fit|in its order"
            )
            error.match(expected)


@pytest.mark.parametrize("kind", SMOOTHERS)
def test_fewer_rows_than_features(kind: str) -> None:
    model = SMOOTHERS[kind].fit(WIDE, WIDE_Y)
    if kind != "neighbours within a radius":
        axil.Explainer(model, WIDE, WIDE_Y)
    for make in MISTAKES.values():
        with pytest.raises((axil.ExactnessError, axil.InputError)):
            axil.Explainer(model, make(WIDE), WIDE_Y)


@pytest.mark.parametrize(
    "kind", ["neighbours", "weighted neighbours", "neighbours within a radius"]
)
def test_other_targets_of_neighbours_are_refused(kind: str) -> None:
    model = SMOOTHERS[kind].fit(X, Y)
    for targets, words in ((Y[::-1], "another order"), (Y + np.eye(50)[7], "row 7")):
        with pytest.raises(axil.ExactnessError, match=words):
            axil.Explainer(model, X, targets)


def test_targets_without_noise_do_not_hide_missing_rows() -> None:
    """Half the rows lead to the very same coefficients, but not to the same weights."""
    exact = X @ np.arange(4.0)
    model = LinearRegression().fit(X, exact)
    axil.Explainer(model, X, exact)
    with pytest.raises(axil.ExactnessError, match="not the rows"):
        axil.Explainer(model, X[:25], exact[:25])
    weights = np.linspace(1, 3, 50)
    axil.Explainer(LinearRegression().fit(X, exact, weights), X, exact, sample_weight=weights)
    with pytest.raises(axil.ExactnessError, match="weights"):
        axil.Explainer(model, X, exact, sample_weight=weights)


def test_rows_of_other_types_are_the_same_rows() -> None:
    """What the fit rounded, or kept sparse, is compared as it was kept."""
    single = X.astype(np.float32)
    holes = np.where(np.abs(X) < 0.5, 0.0, X)
    far = X + 1e9  # of which float32 keeps the first digits alone
    for model in (KNeighborsRegressor(3), KernelRidge(alpha=0.5), LinearRegression()):
        axil.Explainer(model.fit(single, Y), single, Y)
    axil.Explainer(KNeighborsRegressor(3).fit(single, Y), single.astype(np.float64), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axil.Explainer(KNeighborsRegressor(3).fit(far, Y), far, Y)
    for given in (sparse.csr_matrix(holes), holes):
        axil.Explainer(
            KNeighborsRegressor(3, algorithm="brute").fit(sparse.csr_matrix(holes), Y), given, Y
        )
        with pytest.raises(axil.ExactnessError, match="another order"):
            axil.Explainer(
                KNeighborsRegressor(3, algorithm="brute").fit(sparse.csr_matrix(holes), Y),
                given[::-1],
                Y,
            )
    gaps = np.where(np.abs(X) < 0.1, np.nan, X)
    from sklearn.metrics import pairwise_distances

    distances = pairwise_distances(gaps, metric="nan_euclidean")
    axil.Explainer(KNeighborsRegressor(3, metric="precomputed").fit(distances, Y), distances, Y)

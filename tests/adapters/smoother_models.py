"""Linear smoothers and pipelines of scikit-learn, with the data they were fitted on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    LinearRegression,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
)
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.adapters.sklearn_models import COSTS, Case, labels, table, two

DATA = table()
TWO = np.stack([DATA.y, DATA.y**2], axis=1)
UNLIKE = np.stack([DATA.y, np.random.default_rng(5).normal(size=len(DATA.y))], axis=1)
FIXED = RBF(2.0, "fixed") + WhiteKernel(0.5, "fixed")


def fit(
    model: Any, X: Any = DATA.X, y: Any = DATA.y, weight: Any = None, X_new: Any = DATA.X_new
) -> Case:
    """The model on this data."""
    return Case(
        model.fit(X, y) if weight is None else model.fit(X, y, sample_weight=weight),
        X,
        y,
        weight,
        X_new,
    )


def frame(rows: np.ndarray) -> pd.DataFrame:
    """Five numeric columns and one of text."""
    made = pd.DataFrame(rows[:, [0, 1, 2, 3, 5]], columns=list("abcde"))
    return made.assign(kind=[f"kind {int(kind)}" for kind in rows[:, 4]])


def piped(*steps: Any) -> Case:
    """A pipeline on a frame with text."""
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["kind"]), remainder=StandardScaler()
    )
    return fit(make_pipeline(encode, *steps), frame(DATA.X), X_new=frame(DATA.X_new))


def collinear() -> Case:
    doubled = [np.hstack([rows, rows[:, :2]]) for rows in (DATA.X, DATA.X_new)]
    return fit(LinearRegression(), doubled[0], X_new=doubled[1])


def uneven() -> Case:
    """Columns of such different sizes that scikit-learn leaves the small ones out."""
    sizes = np.logspace(9, -3, DATA.X.shape[1])
    return fit(LinearRegression(), DATA.X * sizes, X_new=DATA.X_new * sizes)


def squared(rows: np.ndarray) -> np.ndarray:
    """Twice as many columns."""
    return np.hstack([rows, rows**2])


def single(model: Any) -> Case:
    """The model fitted in float32."""
    return fit(model, DATA.X.astype(np.float32), X_new=DATA.X_new.astype(np.float32))


@dataclass(frozen=True)
class Shares(Case):
    """A classifier whose decisions are read as shares."""

    @property
    def targets(self) -> np.ndarray:
        """(N, K): zeros and ones."""
        if np.ndim(self.y) == 2:
            return np.asarray(self.y, dtype=float)
        return np.asarray(self.y[:, None] == self.model.classes_, dtype=float)

    def predict(self, X: Any) -> np.ndarray:
        """(n, K): the decisions d as (1 + d) / 2, those of two classes as of both."""
        decisions = self.model.decision_function(X)
        decisions = np.stack([-decisions, decisions], axis=1) if decisions.ndim == 1 else decisions
        return (1 + decisions) / 2


def shares(model: Any, y: Any, weight: Any = None) -> Shares:
    """The classifier fitted to these classes."""
    return Shares(model.fit(DATA.X, y, sample_weight=weight), DATA.X, y, weight, DATA.X_new)


CASES: dict[str, Callable[[], Case]] = {
    "linear regression": lambda: fit(LinearRegression()),
    "linear regression weighted": lambda: fit(LinearRegression(), weight=DATA.weight),
    "linear regression no intercept": lambda: fit(LinearRegression(fit_intercept=False)),
    "linear regression collinear": collinear,
    "linear regression directions left out": uneven,
    "linear regression two outputs": lambda: fit(LinearRegression(), y=TWO),
    "ridge": lambda: fit(Ridge(3.0)),
    "ridge weighted": lambda: fit(Ridge(3.0), weight=DATA.weight),
    "ridge no intercept": lambda: fit(Ridge(0.1, fit_intercept=False)),
    "ridge two outputs": lambda: fit(Ridge(1.0), y=TWO),
    "ridge cv": lambda: fit(RidgeCV([0.1, 1.0, 10.0])),
    "ridge penalties of two outputs": lambda: fit(Ridge(np.array([0.5, 20.0])), y=TWO),
    "ridge penalties of two outputs weighted": lambda: fit(
        Ridge(np.array([0.5, 20.0])), y=TWO, weight=DATA.weight
    ),
    "ridge cv penalties of two outputs": lambda: fit(
        RidgeCV(np.logspace(-2, 4, 7), alpha_per_target=True), y=UNLIKE
    ),
    "bayesian ridge estimated": lambda: fit(BayesianRidge()),
    "bayesian ridge estimated weighted": lambda: fit(BayesianRidge(), weight=DATA.weight),
    "bayesian ridge estimated no intercept": lambda: fit(BayesianRidge(fit_intercept=False)),
    "bayesian ridge estimated few rows": lambda: fit(
        BayesianRidge(), squared(DATA.X[:8]), DATA.y[:8], X_new=squared(DATA.X_new)
    ),
    "ard estimated": lambda: fit(ARDRegression()),
    "ard estimated columns left out": lambda: fit(ARDRegression(threshold_lambda=60.0)),
    "ard estimated no column": lambda: fit(ARDRegression(threshold_lambda=1e-4)),
    "kernel ridge penalties of two outputs": lambda: fit(
        KernelRidge(alpha=np.array([0.5, 20.0]), gamma=0.1, kernel="rbf"), y=TWO
    ),
    "kernel ridge": lambda: fit(KernelRidge(alpha=0.5, kernel="rbf", gamma=0.1)),
    "kernel ridge weighted": lambda: fit(
        KernelRidge(alpha=0.5, kernel="rbf", gamma=0.1), weight=DATA.weight
    ),
    "kernel ridge linear": lambda: fit(KernelRidge(alpha=2.0)),
    "kernel ridge two outputs": lambda: fit(KernelRidge(alpha=1.0, kernel="rbf"), y=TWO),
    "ridge float32": lambda: single(Ridge(3.0)),
    "kernel ridge float32": lambda: single(KernelRidge(alpha=2.0, kernel="rbf", gamma=0.1)),
    "neighbours by distance float32": lambda: single(KNeighborsRegressor(5, weights="distance")),
    "neighbours by distance sparse": lambda: fit(
        KNeighborsRegressor(5, weights="distance"), csr_matrix(DATA.X), X_new=csr_matrix(DATA.X_new)
    ),
    "neighbours": lambda: fit(KNeighborsRegressor(7)),
    "neighbours by distance": lambda: fit(KNeighborsRegressor(5, weights="distance")),
    "neighbours by a function": lambda: fit(KNeighborsRegressor(5, weights=lambda d: np.exp(-d))),
    "neighbours two outputs": lambda: fit(KNeighborsRegressor(3), y=TWO),
    "neighbours within a radius": lambda: fit(RadiusNeighborsRegressor(30.0)),
    "neighbours within a radius by distance": lambda: fit(
        RadiusNeighborsRegressor(30.0, weights="distance")
    ),
    "gaussian process": lambda: fit(GaussianProcessRegressor(FIXED)),
    "gaussian process centred": lambda: fit(
        GaussianProcessRegressor(FIXED, normalize_y=True, alpha=0.1)
    ),
    "gaussian process optimised": lambda: fit(
        GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True)
    ),
    "gaussian process not optimised": lambda: fit(
        GaussianProcessRegressor(RBF(2.0), optimizer=None, alpha=0.1)
    ),
    "pipeline lightgbm": lambda: piped(lgb.LGBMRegressor(n_estimators=8, verbose=-1)),
    "pipeline linear leaves": lambda: piped(
        lgb.LGBMRegressor(n_estimators=8, linear_tree=True, verbose=-1)
    ),
    "pipeline forest": lambda: piped(RandomForestRegressor(5, random_state=0)),
    "pipeline ridge": lambda: piped(Ridge()),
    "pipeline selection": lambda: piped(
        SelectKBest(f_regression, k=4), RandomForestRegressor(5, random_state=0)
    ),
    "pipeline of one step": lambda: fit(make_pipeline(Ridge())),
}
CASES = {name: cache(make) for name, make in CASES.items()}

#: Decisions of classifiers, which are read as shares.
CLASSES: dict[str, Callable[[], Case]] = {
    "ridge classifier": lambda: shares(RidgeClassifier(2.0), two(DATA.y)),
    "ridge classifier three classes": lambda: shares(RidgeClassifier(), labels(DATA.y)),
    "ridge classifier weighted": lambda: shares(RidgeClassifier(), labels(DATA.y), DATA.weight),
    "ridge classifier costs": lambda: shares(
        RidgeClassifier(class_weight=COSTS), labels(DATA.y), DATA.weight
    ),
    "ridge classifier balanced": lambda: shares(
        RidgeClassifier(class_weight="balanced"), labels(DATA.y)
    ),
    "ridge classifier labels": lambda: shares(RidgeClassifier(), (TWO > [5.0, 30.0]).astype(int)),
    "ridge classifier cv": lambda: shares(RidgeClassifierCV([0.1, 1.0, 10.0]), two(DATA.y)),
    "ridge classifier cv folds": lambda: shares(
        RidgeClassifierCV([0.1, 10.0], cv=3), labels(DATA.y)
    ),
}
CLASSES = {name: cache(make) for name, make in CLASSES.items()}

"""Small fitted models of every class that the paper's table "Applicability" names, and of many that it does not.

The page of supported settings (docs/models.md) is made from what the adapters refuse; here real models are asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn import ensemble, linear_model, neighbors, neural_network, svm, tree
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, scale
from xgboost import XGBClassifier, XGBRegressor, XGBRFRegressor

N_ROWS, N_TREES = 150, 10
COLUMNS = [2, 3, 0, 8]  # bmi, blood pressure, age and s5
RBF = kernels.RBF
QUIET: dict[str, dict[str, Any]] = {  # settings that are none of the table's business
    "lightgbm": {"n_estimators": N_TREES, "num_leaves": 8, "n_jobs": 1, "verbose": -1},
    "xgboost": {"n_estimators": N_TREES, "max_depth": 3, "n_jobs": 1},
    "catboost": {
        "iterations": N_TREES,
        "depth": 3,
        "thread_count": 1,
        "silent": True,
        "allow_writing_files": False,
    },
    "HistGradientBoosting": {"max_iter": N_TREES, "max_leaf_nodes": 8},
    "MLP": {
        "hidden_layer_sizes": (2,),
        "solver": "lbfgs",
        "max_iter": 5000,
        "max_fun": 50000,
        "tol": 1e-12,
    },
    "LogisticRegression": {"tol": 1e-8, "max_iter": 1000},
}
SEEDED = ("ensemble", "tree", "neural_network", "kernel_approximation", "catboost")


@dataclass(frozen=True)
class Asked:
    """One fitted model and the data it was fitted on."""

    group: str
    name: str  #: how the model was made
    task: str  #: "values", "two classes", "three classes" or "counts"
    paper: str  #: what the paper says of its class: Yes, No, Approx. or nothing
    model: Any
    X: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Plan:
    """A model to fit: classes with settings, the last of which is the model and those before it its transformers."""

    steps: tuple[tuple[Any, dict[str, Any]], ...]
    task: str = "values"

    @property
    def name(self) -> str:
        return " → ".join(
            f"{made.__name__}({', '.join(f'{name}={_shown(value)}' for name, value in settings.items())})"
            for made, settings in self.steps
        )

    def fit(self) -> tuple[Any, np.ndarray, np.ndarray]:
        made = [kind(**_unseen(kind) | settings) for kind, settings in self.steps]
        X, y = data(self.task)
        X = X[:, 0] if self.steps[-1][0] is IsotonicRegression else X
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small networks that have not converged
            return (made[0] if len(made) == 1 else make_pipeline(*made)).fit(X, y), X, y


def data(task: str) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of scikit-learn's diabetes data, with targets for the task."""
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X[:N_ROWS, COLUMNS]), scale(y[:N_ROWS])
    if task in ("two classes", "three classes"):
        cuts = [0.0] if task == "two classes" else np.quantile(y, [1 / 3, 2 / 3])
        return X, np.digitize(y, cuts)
    return X, np.round(3 + 2 * y).clip(1) if task == "counts" else y


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", str(value))


def _unseen(kind: Any) -> dict[str, Any]:
    """What a model of this class is made with besides."""
    found: dict[str, Any] = {}
    for name, settings in QUIET.items():
        if kind.__module__.startswith(name) or kind.__name__.startswith(name):
            found |= settings
    if "ensemble" in kind.__module__ and not found and "n_estimators" in kind().get_params():
        found["n_estimators"] = N_TREES
    if any(part in kind.__module__ for part in SEEDED):
        found["random_seed" if "catboost" in kind.__module__ else "random_state"] = 0
    return found


def one(kind: Any, task: str = "values", **settings: Any) -> Plan:
    return Plan(((kind, settings),), task)


LGB, XGB, CAT = LGBMRegressor, XGBRegressor, CatBoostRegressor
GBR, HIST = ensemble.GradientBoostingRegressor, ensemble.HistGradientBoostingRegressor
#: class: what the paper says of it, and models
PLANS: dict[str, tuple[str, list[Plan]]] = {
    "linear regression": ("Yes", [one(linear_model.LinearRegression)]),
    "regression tree, forest": (
        "Yes",
        [
            one(tree.DecisionTreeRegressor, max_depth=4),
            one(ensemble.RandomForestRegressor),
            one(ensemble.ExtraTreesRegressor),
            one(ensemble.BaggingRegressor),
            one(LGB, boosting_type="rf", subsample=0.7, subsample_freq=1),
            one(XGBRFRegressor),
        ],
    ),
    "classification tree, forest": (
        "Yes",
        [
            one(tree.DecisionTreeClassifier, "two classes", max_depth=4),
            one(ensemble.RandomForestClassifier, "two classes"),
            one(ensemble.RandomForestClassifier, "three classes", class_weight="balanced"),
            one(ensemble.ExtraTreesClassifier, "three classes"),
        ],
    ),
    "GBM, squared error": (
        "Yes",
        [one(LGB), one(XGB, reg_lambda=0.0), one(CAT, l2_leaf_reg=0.0), one(GBR), one(HIST)],
    ),
    "GBM, L2-regularised leaves": (
        "Yes",
        [one(LGB, reg_lambda=2.0), one(XGB), one(CAT), one(HIST, l2_regularization=2.0)],
    ),
    "GBM, row subsampling": (
        "Yes",
        [
            one(LGB, subsample=0.7, subsample_freq=1),
            one(XGB, subsample=0.7),
            one(CAT, subsample=0.7, bootstrap_type="Bernoulli"),
            one(GBR, subsample=0.7),
        ],
    ),
    "GBM, other draws": (
        "",
        [
            one(LGB, data_sample_strategy="goss"),
            one(LGB, boosting_type="dart"),
            one(XGB, booster="dart", rate_drop=0.3),
        ],
    ),
    "GBM, L1-regularised leaves": ("No", [one(LGB, reg_alpha=2.0), one(XGB, reg_alpha=2.0)]),
    "GBM, absolute error": (
        "No",
        [
            one(LGB, objective="l1"),
            one(XGB, objective="reg:absoluteerror"),
            one(CAT, loss_function="MAE"),
            one(GBR, loss="absolute_error"),
            one(HIST, loss="absolute_error"),
        ],
    ),
    "GBM, Huber": (
        "No",
        [
            one(LGB, objective="huber"),
            one(XGB, objective="reg:pseudohubererror"),
            one(CAT, loss_function="Huber:delta=1"),
            one(GBR, loss="huber"),
        ],
    ),
    "GBM, quantile": (
        "No",
        [
            one(LGB, objective="quantile"),
            one(XGB, objective="reg:quantileerror", quantile_alpha=0.7),
            one(CAT, loss_function="Quantile:alpha=0.7"),
            one(GBR, loss="quantile"),
            one(HIST, loss="quantile", quantile=0.7),
        ],
    ),
    "GBM, log-loss": (
        "No",
        [
            one(LGBMClassifier, "two classes"),
            one(XGBClassifier, "two classes"),
            one(CatBoostClassifier, "two classes"),
            one(ensemble.GradientBoostingClassifier, "two classes"),
            one(ensemble.HistGradientBoostingClassifier, "two classes"),
            one(LGBMClassifier, "three classes"),
        ],
    ),
    "GBM, logarithmic link": (
        "",
        [
            one(LGB, "counts", objective="poisson"),
            one(XGB, "counts", objective="count:poisson"),
            one(CAT, "counts", loss_function="Poisson"),
            one(HIST, "counts", loss="gamma"),
        ],
    ),
    "GBM, other settings": (
        "",
        [
            one(LGB, linear_tree=True),
            one(LGB, monotone_constraints=[1, 0, 0, 0]),
            one(LGB, max_delta_step=0.1),
            one(XGB, booster="gblinear"),
        ],
    ),
    "linear smoothers": (
        "",
        [
            one(linear_model.Ridge),
            one(linear_model.RidgeCV),
            one(KernelRidge, kernel="rbf", gamma=0.1),
            one(GaussianProcessRegressor, kernel=RBF(2.0), alpha=0.5, optimizer=None),
            one(GaussianProcessRegressor, kernel=RBF(2.0), alpha=0.5),
            one(neighbors.KNeighborsRegressor),
            one(neighbors.RadiusNeighborsRegressor, radius=2.5),
            Plan(((SplineTransformer, {}), (linear_model.Ridge, {}))),
        ],
    ),
    "network with fixed features": (
        "Yes",
        [Plan(((RBFSampler, {"gamma": 0.1}), (linear_model.Ridge, {})))],
    ),
    "ordinary neural network": (
        "No",
        [
            one(neural_network.MLPRegressor, activation="tanh", alpha=3.0),
            one(neural_network.MLPRegressor, activation="relu", alpha=3.0),
            one(neural_network.MLPClassifier, "two classes", activation="tanh", alpha=3.0),
            one(neural_network.MLPRegressor, activation="tanh", alpha=0.0),
        ],
    ),
    "other differentiable learner": (
        "Approx.",
        [
            one(linear_model.LogisticRegression, "two classes"),
            one(linear_model.LogisticRegression, "three classes"),
            one(linear_model.PoissonRegressor, "counts", tol=1e-8),
            one(linear_model.GammaRegressor, "counts", tol=1e-8),
        ],
    ),
    "others": (
        "",
        [
            one(linear_model.Lasso, alpha=0.1),
            one(linear_model.ElasticNet, alpha=0.1),
            one(linear_model.HuberRegressor),
            one(linear_model.QuantileRegressor),
            one(svm.SVR),
            one(svm.SVC, "two classes"),
            one(IsotonicRegression),
            one(tree.DecisionTreeRegressor, criterion="absolute_error", max_depth=4),
            one(ensemble.AdaBoostRegressor),
            one(ensemble.AdaBoostClassifier, "two classes"),
            one(TransformedTargetRegressor, func=np.exp, inverse_func=np.log),
        ],
    ),
}


def fitted() -> Iterator[Asked]:
    """All of them, fitted one after the other."""
    for group, (paper, plans) in PLANS.items():
        for plan in plans:
            yield Asked(group, plan.name, plan.task, paper, *plan.fit())

"""Boosting with losses that have pushes but are not in the grid of `boosting_models`: robust ones and users' own."""

import numpy as np

from tests.adapters.xgboost_models import VERSION
from tests.contributions.boosting_models import (
    BINARY,
    CAT,
    CLASSES,
    COUNTS,
    CR,
    GB,
    GC,
    L2,
    LC,
    LGB,
    LR,
    MORE,
    SCORE,
    WEIGHTS,
    XC,
    XGB,
    XR,
    Case,
)  # fmt: skip
from tests.contributions.fixed_structure import LOSSES, sigmoid, softmax

LOSSES |= {
    "huber0.4 flat": lambda y, F: (np.clip(F - y, -0.4, 0.4), 1.0 * (np.abs(F - y) <= 0.4)),
    "fair0.7": lambda y, F: (
        0.7 * (F - y) / (np.abs(F - y) + 0.7),
        0.49 / (np.abs(F - y) + 0.7) ** 2,
    ),
    "pseudo0.7": lambda y, F: (
        (F - y) / np.sqrt(1 + ((F - y) / 0.7) ** 2),
        (1 + ((F - y) / 0.7) ** 2) ** -1.5,
    ),
    "logcosh": lambda y, F: (np.tanh(F - y), np.cosh(F - y) ** -2.0),
    "mae": lambda y, F: (
        0.5 * np.sign(F - y) * (np.abs(F - y) >= 1e-6),
        np.ones_like(F),
    ),  # CatBoost's delta
    "quantile0.3": lambda y, F: (np.where(y < F, 0.7, -0.3), np.ones_like(F)),
    "squaredlog": lambda y, F: (
        (np.log1p(F) - np.log1p(y)) / (1 + F),
        np.maximum((1 - np.log1p(F) + np.log1p(y)) / (1 + F) ** 2, 1e-6),
    ),
    "exponential": lambda y, F: (
        (1 - y) * np.exp(F) - y * np.exp(-F),
        (1 - y) * np.exp(F) + y * np.exp(-F),
    ),
}


def logistic(y, F):
    """An estimator's own objective: (labels, scores) -> gradients, hessians."""
    p = sigmoid(F)
    return p - y, p * (1 - p)


def weighted_logistic(y, F, sample_weight):
    g, h = logistic(y, F)
    return sample_weight * g, sample_weight * h


def soft(y, F):
    p = softmax(F)
    return p - (y[:, None] == np.arange(p.shape[1])), 1.5 * p * (1 - p)


def kernel(y, F):
    """An objective whose gradients are not of single rows: they are centred."""
    d = F - y
    return d - 0.1 * d.mean(), np.ones_like(d)


MODELS = {
    "lightgbm fair": lambda: Case(
        LR(**LGB, objective="fair", fair_c=0.7), SCORE, "fair0.7", "mean", WEIGHTS
    ),
    "lightgbm custom": lambda: Case(LC(**LGB, objective=logistic), BINARY, "logistic", "zero"),
    "xgboost pseudo-huber": lambda: Case(
        XR(**XGB, objective="reg:pseudohubererror", huber_slope=0.7),
        SCORE,
        "pseudo0.7",
        "own",
        WEIGHTS,
        more=L2,
    ),
    "xgboost squared log": lambda: Case(
        XR(**XGB, objective="reg:squaredlogerror"), COUNTS, "squaredlog", "own", WEIGHTS, more=L2
    ),
    "xgboost squared error by class": lambda: Case(
        XR(**XGB, scale_pos_weight=3.0),
        BINARY.astype(float),
        "squared",
        "newton",
        WEIGHTS,
        more={**L2, "factors": np.where(BINARY, 3.0, 1.0), "start_factors": True},
    ),
    "xgboost vector leaves": lambda: Case(
        XC(**XGB, multi_strategy="multi_output_tree"),
        CLASSES,
        "softmax2",
        "own",
        WEIGHTS,
        more={
            **L2,
            "lightest": 1.0 if VERSION < (3, 4) else 0.0,
        },  # min_child_weight, for each class of a leaf
    ),
    "xgboost custom": lambda: Case(
        XR(**XGB, objective=logistic), BINARY, "logistic", "own", more=L2
    ),
    "catboost huber": lambda: Case(
        CR(
            **CAT,
            loss_function="Huber:delta=0.4",
            leaf_estimation_iterations=2,
            leaf_estimation_backtracking="No",
        ),
        SCORE,
        "huber0.4 flat",
        "own",
        WEIGHTS,
        more={**MORE, "steps": 2},
    ),
    "catboost logcosh": lambda: Case(
        CR(**CAT, loss_function="LogCosh", leaf_estimation_method="Newton"),
        SCORE,
        "logcosh",
        "own",
        WEIGHTS,
        more=MORE,
    ),
    "catboost mae by gradients": lambda: Case(
        CR(**CAT, loss_function="MAE", leaf_estimation_method="Gradient"),
        SCORE,
        "mae",
        "own",
        WEIGHTS,
        more=MORE,
    ),
    "catboost quantile by gradients": lambda: Case(
        CR(
            **CAT,
            loss_function="Quantile:alpha=0.3",
            leaf_estimation_method="Gradient",
            leaf_estimation_iterations=2,
        ),
        SCORE,
        "quantile0.3",
        "own",
        WEIGHTS,
        more={**MORE, "steps": 2},
    ),
    "sklearn exponential": lambda: Case(
        GC(**GB, loss="exponential"), BINARY, "exponential", "logit2", WEIGHTS
    ),
}

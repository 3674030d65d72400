"""Every loss with every setting that makes its leaves in another way: exact or refused by name, and wrong labels are caught."""

import numpy as np
import pytest

import axil
from axil.methods.method import verified_model
from tests.contributions.boosting_models import (
    BINARY,
    CAT,
    CC,
    CLASSES,
    COUNTS,
    CR,
    GB,
    GC,
    LC,
    LGB,
    LR,
    POSITIVE,
    SCORE,
    SHARES,
    WEIGHTS,
    X_NEW,
    XC,
    XGB,
    XR,
    Case,
    N,
    X,
)

NOISY = SCORE + np.random.default_rng(1).normal(0, 0.5, N)
LOSSES = {
    ("lightgbm", "binary"): (LC, BINARY, {}),
    ("lightgbm", "multiclass"): (LC, CLASSES, {}),
    ("lightgbm", "multiclassova"): (LC, CLASSES, {}),
    ("lightgbm", "cross_entropy"): (LR, SHARES, {}),
    ("lightgbm", "poisson"): (LR, COUNTS, {}),
    ("lightgbm", "gamma"): (LR, POSITIVE, {}),
    ("lightgbm", "tweedie"): (LR, COUNTS, {}),
    ("lightgbm", "huber"): (LR, NOISY, {"alpha": 0.4}),
    ("lightgbm", "fair"): (LR, NOISY, {}),
    ("xgboost", "binary:logistic"): (XC, BINARY, {}),
    ("xgboost", "binary:logitraw"): (XC, BINARY, {}),
    ("xgboost", "reg:logistic"): (XR, SHARES, {}),
    ("xgboost", "multi:softprob"): (XC, CLASSES, {}),
    ("xgboost", "multi:softmax"): (
        XC,
        CLASSES,
        {"multi_strategy": "multi_output_tree"},
    ),  # vector leaves
    ("xgboost", "count:poisson"): (XR, COUNTS, {}),
    ("xgboost", "reg:gamma"): (XR, POSITIVE, {}),
    ("xgboost", "reg:tweedie"): (XR, COUNTS, {}),
    ("xgboost", "reg:pseudohubererror"): (XR, NOISY, {}),
    ("xgboost", "reg:squaredlogerror"): (XR, COUNTS, {}),
    ("catboost", "Logloss"): (CC, BINARY, {}),
    ("catboost", "MultiClass"): (CC, CLASSES, {}),
    ("catboost", "MultiClassOneVsAll"): (CC, CLASSES, {}),
    ("catboost", "CrossEntropy"): (CC, SHARES, {}),
    ("catboost", "Poisson"): (CR, COUNTS, {}),
    ("catboost", "Tweedie:variance_power=1.5"): (CR, COUNTS, {}),
    ("catboost", "Huber:delta=0.4"): (CR, NOISY, {}),
    ("catboost", "LogCosh"): (CR, NOISY, {"leaf_estimation_method": "Newton"}),
    ("sklearn", "log_loss"): (GC, BINARY, {}),
    ("sklearn", "exponential"): (GC, BINARY, {}),
}
DART = {"boosting_type": "dart", "drop_rate": 0.4}
SETTINGS = {
    "lightgbm": {
        "bagging": {"subsample": 0.6, "subsample_freq": 1},
        "goss": {
            "data_sample_strategy": "goss",
            "top_rate": 0.3,
            "other_rate": 0.3,
            "learning_rate": 0.5,
        },
        "dart": DART,
        "l1": {"reg_alpha": 0.7},
        "clipped": {"max_delta_step": 0.3},
        "all": {
            **DART,
            "subsample": 0.6,
            "subsample_freq": 2,
            "reg_alpha": 0.3,
            "max_delta_step": 0.5,
            "reg_lambda": 1.0,
        },
    },
    "xgboost": {
        "subsample": {"subsample": 0.6},
        "parallel": {"num_parallel_tree": 3, "subsample": 0.7},
        "dart": {"booster": "dart", "rate_drop": 0.4},
        "l1": {"reg_alpha": 0.7},
        "clipped": {"max_delta_step": 0.3},
        "all": {
            "booster": "dart",
            "rate_drop": 0.4,
            "subsample": 0.7,
            "reg_alpha": 0.3,
            "max_delta_step": 0.5,
            "num_parallel_tree": 2,
        },
        "exact": {"tree_method": "exact", "subsample": 0.6},
        "approx": {"tree_method": "approx", "subsample": 0.6, "seed_per_iteration": True},
    },
    "catboost": {
        "mvs": {"bootstrap_type": "MVS", "subsample": 0.6},
        "bernoulli": {"bootstrap_type": "Bernoulli", "subsample": 0.6},
        "gradient steps": {"leaf_estimation_method": "Gradient"},
        "four steps": {"leaf_estimation_iterations": 4},
    },
    "sklearn": {"subsample": {"subsample": 0.6}},
}
REFUSED = {("Huber:delta=0.4", "four steps"): "leaf_estimation_backtracking"}
UNFITTED = ("dart", "all", "exact", "approx")  # with vector leaves, by XGBoost itself
FIXED = {"lightgbm": LGB, "xgboost": XGB, "catboost": CAT, "sklearn": GB}
LOSS_NAME = {
    "lightgbm": "objective",
    "xgboost": "objective",
    "catboost": "loss_function",
    "sklearn": "loss",
}
GRID = [
    (library, loss, setting)
    for library, loss in LOSSES
    for setting in SETTINGS[library]
    if not (loss == "multi:softmax" and setting in UNFITTED)
]


@pytest.mark.slow
@pytest.mark.parametrize(("library", "loss", "setting"), GRID)
def test_exact_or_refused_and_wrong_labels_are_caught(library, loss, setting):
    kind, y, own = LOSSES[library, loss]
    given = {**FIXED[library], LOSS_NAME[library]: loss, **own, **SETTINGS[library][setting]}
    model = kind(**given).fit(X, y, sample_weight=WEIGHTS)
    if (loss, setting) in REFUSED:
        with pytest.raises(axil.UnsupportedModelError, match=REFUSED[loss, setting]):
            axil.Explainer(model, X, y, sample_weight=WEIGHTS)
        return
    explainer = axil.Explainer(model, X, y, sample_weight=WEIGHTS)
    scores = Case(model, y, "", "").scores(X_NEW)
    explanation = explainer(X_NEW)
    made = explanation.intercepts + explanation.contributions.sum(axis=-1)
    assert np.abs(made.reshape(scores.shape) - scores).max() <= 1e-6 * np.abs(scores).max()
    leaves = verified_model(explainer).adapter.leaves(X).T
    apart = (leaves != leaves[:, :1]).any(
        axis=0
    )  # swapping rows that share all leaves leads to the same fit
    other = int(np.flatnonzero(apart & (y != y[0]))[0])
    flipped, swapped = y.copy(), y.copy()
    flipped[0], swapped[[0, other]] = y[other], y[[other, 0]]
    for wrong in (flipped, swapped):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, wrong, sample_weight=WEIGHTS)

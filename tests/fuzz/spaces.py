"""Search spaces of tuners, and the settings that people add by hand, for random models of every library.

Bounds are those that the tuners state: Optuna's LightGBMTuner and its examples for XGBoost and CatBoost, FLAML's estimators,
auto-sklearn's histogram boosting. Where a space grows with the data, its upper end is kept small enough to fit in a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.data import Array, Draw


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, evenly spread or so in their logarithms."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        ends = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        found = float(rng.uniform(*ends))
        found = float(np.exp(found)) if self.log else found
        return round(found) if self.whole else found


Space = dict[str, Range | tuple[Any, ...]]


def drawn(draw: Draw, space: Space, share: float = 1.0) -> dict[str, Any]:
    """Each setting of a space with this chance."""
    found = {}
    for name, values in space.items():
        if draw.rng.random() < share:
            options = (values.draw(draw.rng),) if isinstance(values, Range) else values
            found[name] = draw.pick(name, *options)
    return found


TREES = Range(20, 200, log=True, whole=True)
LEAVES = Range(4, 256, log=True, whole=True)
PENALTY = Range(2**-10, 2**10, log=True)  # FLAML's, for L1 and L2
SMALL_PENALTY = Range(1e-8, 10.0, log=True)  # Optuna's
RATE = Range(2**-10, 1.0, log=True)

OPTUNA_LIGHTGBM: Space = {
    "lambda_l1": SMALL_PENALTY,
    "lambda_l2": SMALL_PENALTY,
    "num_leaves": Range(2, 256, whole=True),
    "feature_fraction": Range(0.4, 1.0),
    "bagging_fraction": Range(0.4, 1.0),
    "bagging_freq": Range(1, 7, whole=True),
    "min_child_samples": Range(5, 100, whole=True),
    "n_estimators": TREES,
}
FLAML_LIGHTGBM: Space = {
    "n_estimators": TREES,
    "num_leaves": LEAVES,
    "min_child_samples": Range(2, 128, log=True, whole=True),
    "learning_rate": RATE,
    "max_bin": (7, 15, 31, 63, 127, 255, 511, 1023),
    "colsample_bytree": Range(0.01, 1.0),
    "reg_alpha": PENALTY,
    "reg_lambda": PENALTY,
}
OPTUNA_XGBOOST: Space = {
    "n_estimators": TREES,
    "lambda": SMALL_PENALTY,
    "alpha": SMALL_PENALTY,
    "subsample": Range(0.2, 1.0),
    "colsample_bytree": Range(0.2, 1.0),
    "max_depth": (3, 5, 7, 9),
    "min_child_weight": Range(2, 10, whole=True),
    "eta": Range(1e-3, 1.0, log=True),
    "gamma": Range(1e-8, 1.0, log=True),
    "grow_policy": ("depthwise", "lossguide"),
}
FLAML_XGBOOST: Space = {
    "n_estimators": TREES,
    "max_leaves": LEAVES,
    "max_depth": (0, 0, 6, 12),
    "grow_policy": ("lossguide",),
    "tree_method": ("hist",),
    "min_child_weight": Range(1e-3, 128.0, log=True),
    "learning_rate": RATE,
    "subsample": Range(0.1, 1.0),
    "colsample_bylevel": Range(0.01, 1.0),
    "colsample_bytree": Range(0.01, 1.0),
    "reg_alpha": PENALTY,
    "reg_lambda": PENALTY,
}
DART_XGBOOST: Space = {
    "sample_type": ("uniform", "weighted"),
    "normalize_type": ("tree", "forest"),
    "rate_drop": Range(1e-8, 1.0, log=True),
    "skip_drop": Range(1e-8, 1.0, log=True),
}
OPTUNA_CATBOOST: Space = {
    "iterations": Range(20, 120, log=True, whole=True),
    "depth": Range(1, 9, whole=True),
    "l2_leaf_reg": Range(1e-8, 100.0, log=True),
    "random_strength": Range(1e-8, 10.0, log=True),
    "colsample_bylevel": Range(0.1, 1.0),
    "boosting_type": ("Plain", "Plain", "Ordered"),
    "learning_rate": Range(1e-2, 0.5, log=True),
}
FLAML_CATBOOST: Space = {
    "iterations": Range(40, 160, log=True, whole=True),
    "early_stopping_rounds": Range(10, 40, log=True, whole=True),
    "learning_rate": Range(0.005, 0.2, log=True),
}
AUTO_SKLEARN: Space = {
    "max_iter": TREES,
    "learning_rate": Range(0.01, 1.0, log=True),
    "max_leaf_nodes": Range(3, 256, log=True, whole=True),
    "min_samples_leaf": Range(1, 200, log=True, whole=True),
    "l2_regularization": Range(1e-10, 1.0, log=True),
    "max_features": Range(0.3, 1.0),
    "early_stopping": (False, False, True),
    "n_iter_no_change": Range(2, 20, whole=True),
    "validation_fraction": Range(0.05, 0.4),
}

STEP: Space = {"max_delta_step": (0.1, 1.0, 5.0, 10.0)}
METHODS: Space = {"monotone_constraints_method": ("basic", "basic", "intermediate", "advanced")}


L1 = (1e-8, 1e-3, 0.05, 0.5, 5.0)


def regularised(draw: Draw, l1: str) -> dict[str, Any]:
    """An L1 penalty of this name and a largest step, each for some models."""
    return drawn(draw, {l1: L1}, 0.15) | drawn(draw, {"max_delta_step": (0.01, 0.3, 2.0)}, 0.08)


def signs(draw: Draw, X: Array, y: Array, usable: list[int]) -> list[int]:
    """Monotone constraints for up to three columns, mostly in the direction that the data have."""
    found = [0] * X.shape[1]
    for column in draw.rng.permutation(usable)[: int(draw.rng.integers(1, 4))]:
        rows = np.isfinite(X[:, column])
        slope = (
            float(((X[rows, column] - X[rows, column].mean()) * (y[rows] - y[rows].mean())).sum())
            if rows.any()
            else 0.0
        )
        found[column] = (1 if slope >= 0 else -1) * (1 if draw.rng.random() < 0.8 else -1)
    draw.chosen["monotone"] = found
    return found


def groups(draw: Draw, n_columns: int) -> list[list[int]]:
    """Columns in two groups that may interact."""
    order = [int(column) for column in draw.rng.permutation(n_columns)]
    cut = int(draw.rng.integers(1, n_columns))
    draw.chosen["interaction"] = True
    return [order[:cut], order[cut:]]

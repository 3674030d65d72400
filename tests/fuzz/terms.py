"""Contributions of random boosted models against the terms of their leaf values, from what the library itself records.

A row j counts in the tree of iteration t with a gradient g_tj, which follows from the library's own scores before that tree. Its
share in a leaf's value is at most 1 / (H + l2), H that of the leaf it is in, which the library records:

    |contribution of j| <= sum over t of rate |w_j g_tj| / (H_t + l2)

Contributions that are shared out by a division by rounding add up to the score and break this bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from scipy.special import expit, softmax

import axil
from tests.fuzz import spaces
from tests.fuzz.data import N_CATEGORIES, Array, Draw, Trial
from tests.fuzz.judge import Wrong, silence
from tests.fuzz.lightgbm import class_weights

ROUNDED = 1e-3  # of a bound: leaf values are shared out as the library rounds them
NEAR = 1e-5  # of the largest score: XGBoost's are in float32
N_NEW = 5


@dataclass(kw_only=True)
class Scored(Trial):
    """A fitted model with its scores on the way, and what its leaves record."""

    gradients: Callable[[Array], Array]  #: (N, K) of rows at scores (N, K)
    scores_after: Callable[
        [int], Array
    ]  #: (N, K) scores of the training rows after some iterations
    raw: Callable[[Any], Array]  #: (n, K) scores of rows
    leaf_weights: list[
        Array
    ]  #: (L_t,) sums of second derivatives that the model records, for each tree
    leaves: Array  #: (N, T)
    counted: Array  #: (N,) weights of rows with those of their classes
    rate: float
    l2: float


def _targets(draw: Draw, loss: str, signal: Array) -> Array:
    noisy = signal + draw.rng.normal(size=len(signal))
    if loss == "poisson":
        return draw.rng.poisson(np.exp(np.clip(noisy, -2, 2))).astype(float) + (
            np.arange(len(signal)) == 0
        )
    n_classes = 3 if loss == "softmax" else 2
    ranks = np.argsort(np.argsort(noisy))
    return (ranks * n_classes // len(signal)).astype(int)


def _gradients(loss: str, y: Array) -> Callable[[Array], Array]:
    if loss == "poisson":
        return lambda F: np.exp(F) - y[:, None]
    if loss == "softmax":
        return lambda F: softmax(F, axis=1) - (y[:, None] == np.arange(3))
    return lambda F: expit(F) - y[:, None]


def _bends(draw: Draw) -> dict[str, Any]:
    """Settings that put constants into leaf values, or mix the values of nodes."""
    return spaces.drawn(
        draw, {"max_delta_step": (0.02, 0.1, 0.7), "reg_alpha": (0.01, 0.5, 3.0)}, 0.5
    )


def make(draw: Draw, library: str) -> Scored:
    """A LightGBM or XGBoost model of a loss other than squared error."""
    loss = draw.pick("loss", "logistic", "logistic", "poisson", "softmax")
    n = draw.pick("rows", 20, 60, 150, 300)
    X = draw.rng.normal(size=(n + N_NEW, draw.pick("columns", 1, 3, 5))).round(
        draw.pick("digits", 1, 6)
    )
    if draw.flag("categories", 0.3) and library == "lightgbm":
        X[:, -1] = draw.rng.integers(0, N_CATEGORIES, n + N_NEW)
    X = X.astype(np.float32).astype(float)
    y = _targets(draw, loss, X[:n, 0])
    weight = (
        draw.rng.gamma(2.0, size=n).astype(np.float32).astype(float) + 0.05
        if draw.flag("weights", 0.4)
        else None
    )
    return (_lightgbm if library == "lightgbm" else _xgboost)(draw, loss, X[:n], y, weight, X[n:])


def _lightgbm(
    draw: Draw, loss: str, X: Array, y: Array, weight: Array | None, X_new: Array
) -> Scored:
    params: dict[str, Any] = {
        "n_estimators": draw.pick("trees", 1, 3, 8),
        "verbose": -1,
        "n_jobs": 1,
    }
    params |= {
        "learning_rate": draw.pick("rate", 0.1, 0.3, 1.0),
        "num_leaves": draw.pick("leaves", 3, 8, 31),
    }
    params |= {
        "min_child_samples": draw.pick("smallest", 2, 5),
        "reg_lambda": draw.pick("l2", 0.0, 0.0, 2.0),
    }
    params |= _bends(draw)
    categories = [X.shape[1] - 1] if draw.chosen.get("categories") else "auto"
    if draw.flag("monotone", 0.4) and categories == "auto":
        params["monotone_constraints"] = [int(draw.rng.integers(-1, 2)) for _ in range(X.shape[1])]
        params |= spaces.drawn(draw, spaces.METHODS, 0.7)
    elif draw.flag("smooth", 0.6):
        params["path_smooth"] = draw.pick("path_smooth", 0.5, 2.0, 20.0)
    if draw.flag("bagging", 0.2):
        params |= {"subsample": 0.6, "subsample_freq": 1}
    by_class = np.ones(len(y))
    if loss == "poisson":
        model = lgb.LGBMRegressor(objective="poisson", **params)
    else:
        setting, by_class = class_weights(draw, y)
        model = lgb.LGBMClassifier(**params, **setting)
    model.fit(X, y, sample_weight=weight, categorical_feature=categories)
    booster, n_outputs = model.booster_, 3 if loss == "softmax" else 1

    def raw(rows: Any, n_iterations: int = -1) -> Array:
        found = model.predict(rows, raw_score=True, num_iteration=n_iterations)
        return np.reshape(found, (len(rows), n_outputs))

    lines = booster.model_to_string().split("\nTree=")[1:]
    weights = [
        np.array(tree.split("leaf_weight=")[1].split("\n")[0].split(), dtype=float) if "\nleaf_weight=" in tree else np.ones(1)
        for tree in lines
    ]  # fmt: skip
    weights = [own if len(own) else np.ones(1) for own in weights]
    return Scored(
        model, X, y, weight, None, X_new, model.predict,
        gradients=_gradients(loss, y), scores_after=lambda t: raw(X, t), raw=raw, leaf_weights=weights,
        leaves=model.predict(X, pred_leaf=True).reshape(len(X), -1).astype(int),
        counted=by_class * (1.0 if weight is None else weight), rate=params["learning_rate"], l2=params["reg_lambda"],
    )  # fmt: skip


def _xgboost(
    draw: Draw, loss: str, X: Array, y: Array, weight: Array | None, X_new: Array
) -> Scored:
    params: dict[str, Any] = {
        "n_estimators": draw.pick("trees", 1, 3, 8),
        "n_jobs": 1,
        "min_child_weight": 0.01,
    }
    params |= {
        "learning_rate": draw.pick("rate", 0.1, 0.3, 1.0),
        "max_depth": draw.pick("depth", 1, 3, 5),
    }
    params |= {"reg_lambda": draw.pick("l2", 0.0, 1.0)} | _bends(draw)
    if draw.flag("monotone", 0.5):
        params["monotone_constraints"] = tuple(
            int(draw.rng.integers(-1, 2)) for _ in range(X.shape[1])
        )
    if draw.flag("bagging", 0.2):
        params["subsample"] = 0.6
    by_class = np.ones(len(y))
    if loss == "logistic" and draw.flag("scale_pos_weight", 0.2):
        params["scale_pos_weight"] = 3.5
        by_class = np.where(y == 1, 3.5, 1.0)
    kind: Any = xgb.XGBClassifier
    if loss == "poisson":
        kind, params["objective"] = xgb.XGBRegressor, "count:poisson"
    model = kind(**params).fit(X, y, sample_weight=weight)
    n_outputs = 3 if loss == "softmax" else 1

    def raw(rows: Any, n_iterations: int = 0) -> Array:
        found = model.predict(rows, output_margin=True, iteration_range=(0, n_iterations))
        return np.reshape(found, (len(rows), n_outputs)).astype(float)

    trees = json.loads(model.get_booster().save_raw("json"))["learner"]["gradient_booster"][
        "model"
    ]["trees"]
    return Scored(
        model, X, y, weight, None, X_new, model.predict,
        gradients=_gradients(loss, y), scores_after=lambda t: raw(X, t), raw=raw,
        leaf_weights=[np.array(tree["sum_hessian"], dtype=float) for tree in trees],
        leaves=model.apply(X).reshape(len(X), -1).astype(int),
        counted=by_class * (1.0 if weight is None else weight), rate=params["learning_rate"], l2=params["reg_lambda"],
    )  # fmt: skip


def terms(fit: Scored, start: Array) -> Array:
    """Return the most that each training row can put into each score, (N, K), where scores start from ``start`` (K,)."""
    n_outputs = len(start)
    found = np.zeros((len(fit.X), n_outputs))
    for t in range(fit.leaves.shape[1] // n_outputs):
        before = fit.scores_after(t) if t else np.tile(start, (len(fit.X), 1))
        sizes = np.abs(fit.gradients(before)) * fit.counted[:, None]
        for k in range(n_outputs):
            tree = t * n_outputs + k
            denominators = fit.leaf_weights[tree][fit.leaves[:, tree]] + fit.l2
            found[:, k] += fit.rate * np.divide(
                sizes[:, k], denominators, out=np.zeros(len(sizes)), where=denominators > 0
            )
    return found


def check(fit: Scored, draw: Draw) -> None:
    """Contributions add up to the library's scores, and no row puts more into one than the terms of leaf values allow."""
    with silence():
        explainer = axil.Explainer(fit.model, fit.X, fit.y, sample_weight=fit.sample_weight)
        found = explainer(fit.X_new)
        theirs = fit.raw(fit.X_new)
    parts = np.asarray(found.contributions)
    parts = parts[:, :, None] if parts.ndim == 2 else np.moveaxis(parts, 1, -1)  # (n, N, K)
    start = np.reshape(found.intercepts, theirs.shape)
    size = max(1.0, float(np.abs(fit.raw(fit.X)).max()))
    apart = float(np.abs(start + parts.sum(axis=1) - theirs).max())
    if not apart <= NEAR * size:
        raise Wrong(f"contributions add up to scores that are {apart:.3g} away from the library's")
    most = terms(fit, start[0])
    if not (np.abs(parts) <= (1 + ROUNDED) * most + NEAR * 1e-3).all():
        gross, allowed, net = (
            np.abs(parts).sum(axis=1).max(),
            most.sum(axis=0).max(),
            np.abs(theirs).max(),
        )
        worst = float((np.abs(parts) / np.maximum(most, 1e-12)).max())
        raise Wrong(
            f"a contribution is {worst:.3g} times the terms of its leaf values: {gross:.3g} in all, where the score is "
            f"{net:.3g} and all terms are {allowed:.3g}"
        )

"""Deletions of random models with any setting: `without` against `refit`, and single rows against `without`.

Both answers are axil's, but they come by different ways: `without` computes in float64, `refit` rounds as the library does and
writes a model of the library, which a new explainer verifies on the rows that remain. Half of the models are those of the kind
"weights"; the other half are classifiers and models of other losses, with class weights, constraints and categories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from sklearn import ensemble, tree

import axil
from axil.methods.method import verified_model
from tests.fuzz.data import Array, Draw, Trial
from tests.fuzz.judge import Wrong, silence
from tests.reference import predicted_numbers

SINGLE = 2e-6  # of the largest score: refits round as the library does, most in float32, and so do initial predictions
DOUBLE = 1e-9  # of the largest score: two answers about models in float64
SINGLE_ROWS = 4  # rows that are deleted one by one
N_NEW = 7
COUNT_LOSSES = ("poisson",)
POSITIVE_LOSSES = ("gamma", "tweedie")


def make(draw: Draw, library: str) -> Trial:
    """Return a random classifier, or model of another loss than squared error, of a library."""
    rng = draw.rng
    n_rows = draw.pick("rows", 20, 40, 80, 200)
    X = rng.normal(size=(n_rows + N_NEW, 4))
    X[:, 3] = rng.integers(0, 4, n_rows + N_NEW)
    signal = X[:, 0] + 0.5 * X[:, 3] + rng.normal(size=n_rows + N_NEW)
    weights = rng.integers(0, 4, n_rows) / 2 if draw.flag("weights", 0.3) else None
    model, loss, frame = MODELS[library](draw)
    y = _targets(rng, signal[:n_rows], loss)
    rows: Any = X
    if frame:
        rows = pd.DataFrame(X, columns=list("abcd"))
        codes = rows["d"].astype(int)
        rows["d"] = codes.astype(str) if library == "catboost" else codes.astype("category")
    X_train, X_new = rows[:n_rows], rows[n_rows:]
    if frame:
        X_new = X_new.reset_index(drop=True)
    model.fit(X_train, y, **({} if weights is None else {"sample_weight": weights}))
    return Trial(model, X_train, y, weights, None, X_new, model.predict)


def _targets(rng: np.random.Generator, signal: Array, loss: str) -> Array:
    """Return targets that a loss takes."""
    if loss in ("2 classes", "3 classes"):
        n_classes = int(loss[0])
        cuts = np.quantile(signal, [0.7] if n_classes == 2 else [0.3, 0.8])
        return np.searchsorted(cuts, signal).astype(float)
    if loss == "counts":
        return np.asarray(rng.poisson(np.exp(np.clip(signal, -2, 2))) + 0.0) + (
            np.arange(len(signal)) == 0
        )
    if loss == "positive":
        return np.exp(np.clip(signal, -2, 2))
    return signal


def _lightgbm(draw: Draw) -> tuple[Any, str, bool]:
    """Return an unfitted model, the kind of its targets, and whether its rows are a frame with a category."""
    settings: dict[str, Any] = {
        "n_estimators": draw.pick("trees", 1, 3, 8),
        "num_leaves": draw.pick("leaves", 2, 4, 12),
        "min_child_samples": draw.pick("least rows", 1, 5),
        "learning_rate": draw.pick("rate", 0.1, 0.5),
        "verbose": -1,
        "n_jobs": 1,
        "random_state": draw.seed() % 1000,
    }
    settings |= draw.some(
        {
            "reg_lambda": (0.5, 5.0),
            "reg_alpha": (0.3,),
            "max_delta_step": (0.3,),
            "path_smooth": (1.0, 5.0),
            "boosting_type": ("dart",),
            "boost_from_average": (False,),
        },
        0.2,
    )
    if draw.flag("bagging", 0.3):
        settings |= {"subsample": 0.6, "subsample_freq": 1}
    frame = draw.flag("category", 0.3)
    if not frame and draw.flag("monotone", 0.2):
        settings["monotone_constraints"] = [1, 0, 0, 1]
        settings["monotone_constraints_method"] = draw.pick(
            "method", "basic", "intermediate", "advanced"
        )
    loss = draw.pick("loss", "2 classes", "2 classes", "3 classes", "counts", "positive", "numbers")
    if "classes" in loss:
        weighing = draw.pick(
            "class weight",
            None,
            "balanced",
            {0.0: 1.0, 1.0: 3.0},
            "is_unbalance",
            "scale_pos_weight",
        )
        if weighing in ("is_unbalance", "scale_pos_weight"):
            if loss == "2 classes":
                settings[weighing] = True if weighing == "is_unbalance" else 2.5
        else:
            settings["class_weight"] = weighing
        return lgb.LGBMClassifier(**settings), loss, frame
    objectives = {"counts": ("poisson",), "positive": ("gamma", "tweedie", "mape")}
    objective = draw.pick("objective", *objectives.get(loss, ("huber", "fair", "l1", "quantile")))
    return lgb.LGBMRegressor(objective=objective, **settings), loss, frame


def _xgboost(draw: Draw) -> tuple[Any, str, bool]:
    """Return an unfitted model, the kind of its targets, and whether its rows are a frame with a category."""
    settings: dict[str, Any] = {
        "n_estimators": draw.pick("trees", 1, 3, 8),
        "max_depth": draw.pick("depth", 1, 2, 4),
        "learning_rate": draw.pick("rate", 0.1, 0.5),
        "n_jobs": 1,
        "random_state": draw.seed() % 1000,
        "enable_categorical": True,
    }
    settings |= draw.some(
        {
            "reg_lambda": (0.0, 5.0),
            "reg_alpha": (0.3,),
            "max_delta_step": (0.3,),
            "min_child_weight": (0.0, 3.0),
            "subsample": (0.6,),
            "booster": ("dart",),
            "base_score": (0.4,),
            "monotone_constraints": ((1, 0, 0, 1),),
        },
        0.2,
    )
    frame = "monotone_constraints" not in settings and draw.flag("category", 0.3)
    loss = draw.pick("loss", "2 classes", "2 classes", "3 classes", "counts", "positive", "numbers")
    if "classes" in loss:
        if loss == "2 classes":
            settings |= draw.some({"scale_pos_weight": (2.5,)}, 0.4)
        return xgb.XGBClassifier(**settings), loss, frame
    objectives = {"counts": ("count:poisson",), "positive": ("reg:gamma", "reg:tweedie")}
    numbers = ("reg:absoluteerror", "reg:quantileerror", "reg:pseudohubererror", "reg:squarederror")
    objective = draw.pick("objective", *objectives.get(loss, numbers))
    if objective == "reg:quantileerror":
        settings["quantile_alpha"] = draw.pick("alpha", 0.5, 0.8)
    return xgb.XGBRegressor(objective=objective, **settings), loss, frame


def _catboost(draw: Draw) -> tuple[Any, str, bool]:
    """Return an unfitted model, the kind of its targets, and whether its rows are a frame with a category."""
    settings: dict[str, Any] = {
        "iterations": draw.pick("trees", 1, 3, 8),
        "depth": draw.pick("depth", 1, 2, 4),
        "learning_rate": draw.pick("rate", 0.1, 0.5),
        "verbose": False,
        "allow_writing_files": False,
        "thread_count": 1,
        "random_seed": draw.seed() % 1000,
    }
    settings |= draw.some(
        {
            "l2_leaf_reg": (0.0, 10.0),
            "leaf_estimation_method": ("Gradient",),
            "leaf_estimation_iterations": (1, 3),
            "boost_from_average": (False,),
            "model_shrink_rate": (0.1,),
            "grow_policy": ("Lossguide",),
        },
        0.2,
    )
    frame = draw.flag("category", 0.3)
    if frame:
        settings |= {"cat_features": ["d"], "one_hot_max_size": 10}
    elif draw.flag("monotone", 0.15):
        settings["monotone_constraints"] = [1, 0, 0, 1]
    loss = draw.pick("loss", "2 classes", "2 classes", "3 classes", "counts", "positive", "numbers")
    if "classes" in loss:
        settings |= draw.some({"auto_class_weights": ("Balanced", "SqrtBalanced")}, 0.4)
        return cb.CatBoostClassifier(**settings), loss, frame
    objectives = {
        "counts": ("Poisson",),
        "positive": ("Tweedie:variance_power=1.5", "MAPE", "RMSE"),
    }
    numbers = ("MAE", "Quantile:alpha=0.8", "Huber:delta=0.5", "RMSE", "LogCosh")
    objective = draw.pick("objective", *objectives.get(loss, numbers))
    return cb.CatBoostRegressor(loss_function=objective, **settings), loss, frame


def _sklearn(draw: Draw) -> tuple[Any, str, bool]:
    """Return an unfitted model, the kind of its targets, and whether its rows are a frame with a category."""
    kind = draw.pick("kind", "histogram", "stages", "forest", "extra", "tree", "bagging")
    seed = draw.seed() % 1000
    loss = draw.pick("loss", "2 classes", "3 classes", "numbers")
    if "classes" in loss:
        weight = draw.pick("class weight", None, "balanced", {0.0: 1.0, 1.0: 3.0, 2.0: 2.0})
        if loss == "2 classes" and isinstance(weight, dict):
            weight = {0.0: 1.0, 1.0: 3.0}
        least = draw.pick("least rows", 1, 4)
        if kind == "histogram":
            model = ensemble.HistGradientBoostingClassifier(
                max_iter=4, min_samples_leaf=least, class_weight=weight
            )
        elif kind == "stages":
            model = ensemble.GradientBoostingClassifier(
                n_estimators=4, min_samples_leaf=least, random_state=seed
            )
        elif kind == "tree":
            model = tree.DecisionTreeClassifier(
                min_samples_leaf=least, class_weight=weight, random_state=seed
            )
        elif kind == "bagging":
            model = ensemble.BaggingClassifier(n_estimators=4, random_state=seed)
        else:
            forest = (
                ensemble.RandomForestClassifier
                if kind == "forest"
                else ensemble.ExtraTreesClassifier
            )
            bootstrap = draw.flag("bootstrap", 0.6)
            model = forest(
                4,
                min_samples_leaf=least,
                class_weight=weight,
                bootstrap=bootstrap,
                random_state=seed,
            )
        return model, loss, False
    if kind == "histogram":
        objective = draw.pick("objective", "squared_error", "absolute_error", "quantile")
        quantile = 0.8 if objective == "quantile" else None
        model = ensemble.HistGradientBoostingRegressor(
            loss=objective, quantile=quantile, max_iter=4, min_samples_leaf=3
        )
    elif kind == "stages":
        objective = draw.pick("objective", "squared_error", "huber", "quantile", "absolute_error")
        model = ensemble.GradientBoostingRegressor(
            loss=objective, n_estimators=4, random_state=seed
        )
    elif kind == "tree":
        model = tree.DecisionTreeRegressor(
            criterion=draw.pick("objective", "squared_error", "absolute_error")
        )
    elif kind == "bagging":
        model = ensemble.BaggingRegressor(
            n_estimators=4, bootstrap=draw.flag("bootstrap", 0.6), random_state=seed
        )
    else:
        forest = (
            ensemble.RandomForestRegressor if kind == "forest" else ensemble.ExtraTreesRegressor
        )
        model = forest(4, bootstrap=draw.flag("bootstrap", 0.6), random_state=seed)
    return model, loss, False


MODELS: dict[str, Callable[[Draw], tuple[Any, str, bool]]] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "catboost": _catboost,
    "sklearn": _sklearn,
}


def check_dropped(trial: Trial, draw: Draw) -> None:
    """Raise `Wrong` unless `without`, `refit` and the deletions of single rows agree."""
    with silence():
        explainer = axil.Explainer(
            trial.model,
            trial.X,
            trial.y,
            sample_weight=trial.sample_weight,
            init_score=trial.offsets,
        )
    n_rows = len(trial.y)
    gone = draw.rng.random(n_rows) < draw.pick("share deleted", 0.05, 0.3, 0.7)
    gone[int(draw.rng.integers(n_rows))] = True
    if not gone.all():
        _check_refit(explainer, trial, gone)
    if (
        not explainer.scale.is_identity
    ):  # effects of single rows are on the scale of the fit, `without` is in the targets' own units
        return
    singles = draw.rng.choice(n_rows, min(n_rows, SINGLE_ROWS), replace=False)
    _check_single_rows(explainer, trial, singles)


def _scores(table: Any, column: str, n_new: int) -> Array:
    """Return a column of a table of n_new explained rows, (n_new, K)."""
    return np.asarray(table[column], dtype=float).reshape(n_new, -1)


def _asked(method: Callable[[], Any]) -> Any:
    """Return an answer, or None where axil refuses the method or these rows by name."""
    try:
        with silence():
            return method()
    except (axil.UnsupportedQuestionError, axil.UnsupportedModelError, axil.InputError):
        return None


def _check_refit(explainer: Any, trial: Trial, gone: Array) -> None:
    """`without` and the model that `refit` writes predict the same."""
    n_new = trial.X_new.shape[0]
    table = _asked(lambda: explainer.without(trial.X_new, gone))
    again = _asked(lambda: explainer.refit(drop=gone))
    if table is None or again is None:
        return
    after = _scores(table, "after", n_new)
    with silence():
        refitted = again.scale.inverse(np.reshape(again(trial.X_new).predictions, after.shape))
    # Weights of balanced classes are in single precision, and terms of about 0.5 may cancel in a score.
    least_size = 0.1 if hasattr(trial.model, "predict_proba") else 1e-3
    before = _scores(table, "before", n_new)
    size = max(float(np.abs(after).max()), float(np.abs(before).max()), least_size)
    if explainer.kind == "exact":
        size = max(size, float(np.abs(explainer.targets).max()))
    apart = float(np.abs(refitted - after).max())
    if not apart <= SINGLE * size:
        raise Wrong(
            f"without and refit are {apart:.3g} apart, of scores up to {size:.3g}; {gone.sum()} rows deleted"
        )


def _check_single_rows(explainer: Any, trial: Trial, rows: Any) -> None:
    """`removal` and `leave_one_out` of single rows are `without` of these rows."""
    effects = _asked(lambda: explainer.removal(trial.X_new, method="exact"))
    if effects is not None:
        effects = np.asarray(effects).reshape(trial.X_new.shape[0], -1, len(trial.y))
    own = _asked(lambda: explainer.diagnostics.leave_one_out(method="exact"))
    if own is not None:
        # Predictions of classifiers and other losses are classes and means of their scores.
        own = predicted_numbers(own).reshape(len(trial.y), -1)
    for row in rows:
        _check_row(explainer, trial, int(row), effects, own)


def _check_row(
    explainer: Any, trial: Trial, row: int, effects: Array | None, own: Array | None
) -> None:
    """Compare the deletion of one row by each method."""
    gone = np.arange(len(trial.y)) == row
    n_new = trial.X_new.shape[0]
    tolerances = (verified_model(explainer).adapter.tolerance, explainer.verification.tolerance)
    allowed = DOUBLE if max(tolerances) <= DOUBLE else SINGLE
    table = _asked(lambda: explainer.without(trial.X_new, gone))
    if table is not None and effects is not None:
        change = _scores(table, "change", n_new)
        size = max(
            float(np.abs(_scores(table, "before", n_new)).max()),
            float(np.abs(explainer.targets).max()),
        )
        apart = np.abs(effects[:, :, row] - change)
        if (
            not (np.isnan(effects[:, :, row]) == np.isnan(change)).all()
            or not np.nanmax(apart) <= allowed * size
        ):
            raise Wrong(
                f"removal of row {row} and without are {np.nanmax(apart):.3g} apart, of scores up to {size:.3g}"
            )
    if own is None:
        return
    same = trial.X.iloc[[row]] if hasattr(trial.X, "iloc") else trial.X[[row]]
    offsets = None if trial.offsets is None else trial.offsets[[row]]
    table = _asked(lambda: explainer.without(same, gone, init_score=offsets))
    if table is None or np.isnan(own[row]).any():
        return
    after = _scores(table, "after", 1)[0]
    size = max(float(np.abs(after).max()), float(np.abs(explainer.targets).max()))
    if not np.abs(own[row] - after).max() <= allowed * size:
        raise Wrong(f"leave_one_out of row {row} is {own[row]} where without has {after}")

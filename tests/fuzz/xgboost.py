"""Random XGBoost models for the fuzzer."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb

from tests.adapters.xgboost_models import VERSION
from tests.fuzz import spaces
from tests.fuzz.data import Data, Draw, Trial, table

SETTINGS: dict[str, tuple[Any, ...]] = {
    "tree_method": ("hist", "approx", "exact"),
    "learning_rate": (0.01, 0.1, 1 / 3, 0.5, 1.0),
    "max_depth": (1, 2, 3, 8, 12),
    "min_child_weight": (0.0, 0.5, 5.0, 100.0),
    "gamma": (0.1, 3.0),
    "reg_lambda": (0.0, 0.1234567, 5.0, 100.0),
    "subsample": (0.1, 0.5, 0.9),
    "colsample_bytree": (0.5,),
    "colsample_bylevel": (0.5,),
    "colsample_bynode": (0.5,),
    "num_parallel_tree": (2, 3),
    "base_score": (0.0, 0.5, 3.3),
    "max_bin": (2, 7),
    "seed": (1, 12345, -4),
    "max_cat_to_onehot": (1, 20),
}
RARE: dict[str, tuple[Any, ...]] = {
    "reg_alpha": (0.5,),
    "max_delta_step": (0.3,),
    "scale_pos_weight": (2.0,),
    "seed_per_iteration": (True,),
    "sampling_method": ("uniform", "gradient_based"),
    "objective": (
        *(
            "reg:absoluteerror",
            "reg:quantileerror",
            "reg:pseudohubererror",
            "count:poisson",
            "reg:logistic",
        ),
        *("reg:squaredlogerror", "reg:gamma", "binary:logistic", "reg:tweedie"),
    ),
    "quantile_alpha": (0.5,),
    "max_cat_threshold": (2,),
    "refresh_leaf": (0,),
}
DART: dict[str, tuple[Any, ...]] = {
    "rate_drop": (0.05, 0.5, 1.0),
    "skip_drop": (0.5,),
    "one_drop": (1,),
    "sample_type": ("weighted",),
    "normalize_type": ("forest",),
}
LOST = (
    "reg_alpha",
    "max_delta_step",
    "monotone_constraints",
    "scale_pos_weight",
    "subsample",
    "sampling_method",
)


def settings(draw: Draw, data: Data) -> dict[str, Any]:
    """Parameters of `xgb.train`."""
    params = {"nthread": 1, "verbosity": 0, **draw.some(SETTINGS, 0.3), **draw.some(RARE, 0.02)}
    booster = draw.pick("booster", *("gbtree",) * 10, "dart", "dart", "gblinear")
    if booster != "gbtree":
        params["booster"] = booster
    if booster == "dart":
        params |= draw.some(DART, 0.5)
    if draw.flag("lossguide", 0.1):
        params |= {
            "grow_policy": "lossguide",
            "max_leaves": draw.pick("max_leaves", 3, 20),
            "max_depth": 0,
        }
    if data.y.ndim == 2 and draw.flag("multi_output_tree", 0.5):
        params["multi_strategy"] = "multi_output_tree"
    if draw.flag("monotone", 0.02):
        params["monotone_constraints"] = "(1" + ",0" * (data.X.shape[1] - 1) + ")"
    if data.X.shape[1] > 1 and draw.flag("interaction", 0.05):
        params["interaction_constraints"] = f"[[0], {list(range(1, data.X.shape[1]))}]"
    if draw.ranked:
        params["objective"] = draw.pick("objective", "reg:absoluteerror", "reg:quantileerror")
        if params["objective"] == "reg:quantileerror":
            params["quantile_alpha"] = draw.pick("quantile_alpha", 0.5, 0.1, 0.9, [0.2, 0.7])
    return params | held(draw.aside(), data)


def held(draw: Draw, data: Data) -> dict[str, Any]:
    """Penalties, steps and constraints whose active set is fixed."""
    params = spaces.regularised(draw, "reg_alpha")
    if draw.flag("constrained", 0.12):
        usable = [i for i in range(data.X.shape[1]) if i not in data.categories] or [0]
        given = spaces.signs(draw, data.X, data.y.reshape(len(data.y), -1)[:, 0], usable)
        params["monotone_constraints"] = "(" + ",".join(map(str, given)) + ")"
    return params


def make(draw: Draw) -> Trial:
    """A Booster or an estimator, as it was fitted or through a file."""
    data = table(
        draw, forms=("array", "array", "float32", "csr", "csc", "frame", "categories"), outputs=True
    )
    params, n_trees = settings(draw, data), draw.pick("trees", 1, 3, 10, 30)
    model = (_estimator if draw.flag("estimator", 0.35) else _booster)(draw, data, params, n_trees)
    form = draw.pick("through", *("memory",) * 6, "ubj", "json", "pickle", "native", "sliced")
    if form == "pickle":
        model = pickle.loads(pickle.dumps(model))
    elif form in ("ubj", "json"):
        inner = model if isinstance(model, xgb.Booster) else model.get_booster()
        model = xgb.Booster({"nthread": 1, "verbosity": 0})
        model.load_model(inner.save_raw(form))
    elif form == "native" and not isinstance(model, xgb.Booster):
        model = model.get_booster()
    elif form == "sliced" and isinstance(model, xgb.Booster):
        model = model[: max(1, n_trees // 2)]
    X, X_new, base = data.convert(data.X), data.convert(data.X_new), params.get("base_score") or 0.0
    return Trial(
        model,
        X,
        _targets(draw, data),
        data.weight,
        data.offset,
        X_new,
        lambda rows: _predict(model, rows),
        lossy(draw, params, model),
        base,
        predict_from=lambda rows, offsets: _predict(model, rows, offsets),
    )


def lossy(draw: Draw, params: dict[str, Any], model: Any) -> bool:
    """Whether the model is known to lack a setting of its fit.

    A file keeps none of LOST, nor rate and lambda. Few leaves and stumps do not show these, as they
    do not show a schedule of rates. Lambda is not found where training went on.

    A Booster knows neither `missing` nor a custom objective, and continued training draws from a stream begun again. With
    tree_method=approx XGBoost bins values beyond those of the rows drawn otherwise than it predicts.
    """
    chosen, sampled = draw.chosen, params.get("subsample", 1.0) < 1
    inner = model if isinstance(model, xgb.Booster) else model.get_booster()
    leaves = [
        line.split("leaf=")[1]
        for tree in inner.get_dump()
        for line in tree.splitlines()
        if "leaf=" in line
    ]
    dumps = inner.get_dump()
    stumps = all(dump.count("leaf=") <= 2 for dump in dumps)
    few = stumps or len(set(leaves)) <= len(dumps) + 3
    if chosen["through"] in ("ubj", "json"):
        forgotten = (
            any(params.get(name) is not None for name in LOST)
            or chosen.get("kind") is xgb.XGBRFRegressor
        )
        regularised = "continued" in chosen and "reg_lambda" in params
        if forgotten or few or regularised or "missing" in chosen:
            return True
    unsure = params.get("tree_method") == "approx" and (
        sampled or chosen["weights"] in ("zeros", "lone")
    )
    unseen = "missing" in chosen and chosen["through"] == "native"
    # Before 3.1 one of several parallel trees gets percentiles, and a second iteration is refused.
    half_ranked = draw.ranked and params.get("num_parallel_tree", 1) > 1 and VERSION < (3, 1)
    return (
        unsure
        or half_ranked
        or unseen
        or "custom" in chosen
        or ("continued" in chosen and sampled)
        or (few and "schedule" in chosen)
    )


def _predict(model: Any, rows: Any, offsets: Any = None) -> Any:
    if not isinstance(model, xgb.Booster):
        if (
            model.booster == "dart" and offsets is not None
        ):  # estimators add the margin once per tree
            rows = xgb.DMatrix(
                rows, base_margin=offsets, missing=model.missing, enable_categorical=True
            )
            return model.get_booster().predict(rows, iteration_range=_best(model))
        return model.predict(rows, base_margin=offsets)
    types = None if isinstance(rows, pd.DataFrame) else model.feature_types
    return model.predict(
        xgb.DMatrix(rows, base_margin=offsets, feature_types=types, enable_categorical=True)
    )


def _best(model: Any) -> tuple[int, int]:
    """The trees that an estimator predicts with after an early stop; all where there was none."""
    best = getattr(model, "best_iteration", None) if model.early_stopping_rounds else None
    return (0, 0) if best is None else (0, best + 1)


def _booster(draw: Draw, data: Data, params: dict[str, Any], n_trees: int) -> Any:
    types = None
    X = data.convert(data.X)
    if data.categories and not isinstance(X, pd.DataFrame) and draw.flag("feature_types", 0.5):
        types = ["c" if i in data.categories else "q" for i in range(data.X.shape[1])]
    how: dict[str, Any] = {"feature_types": types, "enable_categorical": True}
    rows = xgb.DMatrix(X, data.y, weight=data.weight, base_margin=data.offset, **how)
    kind = (
        {}
        if not draw.flag("schedule", 0.1)
        else {"callbacks": [xgb.callback.LearningRateScheduler(_decay)]}
    )
    if draw.flag("early stopping", 0.08):
        noisy = xgb.DMatrix(X, draw.rng.permutation(data.y), **how)
        kind |= {"evals": [(noisy, "noisy")], "early_stopping_rounds": 2, "verbose_eval": False}
    if draw.flag("continued", 0.06):
        kind["xgb_model"] = xgb.train(params, rows, 3)
    if draw.flag("custom", 0.01):
        kind["obj"] = lambda scores, matrix: (
            scores - matrix.get_label().reshape(scores.shape),
            np.ones(scores.shape),
        )
    return xgb.train(params, rows, n_trees, **kind)


def _targets(draw: Draw, data: Data) -> Any:
    """Return what the model is fitted on: labels 0 and 1 for a classifier."""
    if draw.chosen.get("kind") is xgb.XGBClassifier:
        return (data.y > np.median(data.y)).astype(int)
    return data.y


def _decay(i: int) -> float:
    return 0.3 * 0.9**i


def _estimator(draw: Draw, data: Data, params: dict[str, Any], n_trees: int) -> Any:
    params = {**params, "n_jobs": 1, "n_estimators": n_trees, "enable_categorical": True}
    del params["nthread"]
    params["random_state"] = params.pop("seed", None)
    kind: Any = draw.pick("kind", *(xgb.XGBRegressor,) * 6, xgb.XGBRFRegressor, xgb.XGBClassifier)
    y = _targets(draw, data)
    if kind is xgb.XGBRFRegressor:
        params.pop("num_parallel_tree", None)
    if draw.flag("missing", 0.05):
        params["missing"] = 0.0
    how: dict[str, Any] = {}
    X = data.convert(data.X)
    if kind is xgb.XGBRegressor and draw.flag("early stopping", 0.15):
        params["early_stopping_rounds"] = 2
        how = {"eval_set": [(X, draw.rng.permutation(y))], "verbose": False}
    return kind(**params).fit(X, y, sample_weight=data.weight, base_margin=data.offset, **how)

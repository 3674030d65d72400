"""Regression models as tuners make them, on tables of real data: settings drawn from the tuners' search spaces.

Most are squared error; ``chosen["squared error"]`` says whether one is. Others are fitted to quantiles, counts or classes, each
by a task of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from tests.fuzz import spaces
from tests.fuzz.data import Draw, Trial
from tests.fuzz.tables import Table, split


def _trial(model: Any, table: Table) -> Trial:
    return Trial(model, table.train, table.y, table.weight, None, table.new, model.predict)


TASKS = ("quantiles", "counts", "classes")


def _objective(draw: Draw, *others: str, **tasks: tuple[str, ...]) -> str | None:
    """None for squared error; one in fourteen is something else. Of a task one of its objectives."""
    if draw.task:
        draw.chosen["squared error"] = False
        return str(draw.pick("objective", *tasks[draw.task]))
    name = draw.pick("objective", *others) if draw.flag("other objective", 0.07) else None
    draw.chosen["squared error"] = name is None
    return name


_LIGHTGBM = {
    "quantiles": ("quantile", "quantile", "l1", "mape"),
    "counts": ("poisson", "tweedie"),
    "classes": ("binary",),
}
_XGBOOST = {
    "quantiles": ("reg:quantileerror", "reg:quantileerror", "reg:absoluteerror"),
    "counts": ("count:poisson", "reg:tweedie"),
    "classes": ("binary:logistic",),
}
_CATBOOST = {
    "quantiles": (
        "Quantile:alpha=0.9",
        "Quantile:alpha=0.1",
        "MAE",
        "MAPE",
        "MultiQuantile:alpha=0.1,0.9",
    ),
    "counts": ("Poisson", "Tweedie:variance_power=1.5"),
    "classes": ("Logloss",),
}
_HISTOGRAM = {
    "quantiles": ("quantile", "absolute_error"),
    "counts": ("poisson",),
    "classes": ("log_loss",),
}


def _classes(
    draw: Draw, table: Table, several: str, more: dict[str, Any], params: dict[str, Any]
) -> dict[str, Any]:
    """The objective for more than two classes, where there are."""
    return (
        {"objective": several, **more}
        if draw.task == "classes" and len(np.unique(table.y)) > 2
        else {}
    )


def _of_task(draw: Draw, y: Any) -> Any:
    """Targets for the task: counts from 0 up, or two or three classes of unequal size."""
    if draw.task == "counts":
        return np.floor(8 * ((y - y.min()) / (np.ptp(y) or 1.0)) ** 2)
    if draw.task == "classes":
        cuts = draw.pick("classes", [0.6], [0.6], [0.3, 0.8])
        return np.searchsorted(np.quantile(y, cuts), y, side="left").astype(float)
    return y


def lightgbm(draw: Draw, table: Table) -> Trial:
    """A Booster of `lgb.train`, as LightGBMTuner makes it, or an LGBMRegressor, as FLAML does."""
    tuner = draw.pick("tuner", "Optuna", "Optuna", "FLAML")
    params = spaces.drawn(
        draw, spaces.OPTUNA_LIGHTGBM if tuner == "Optuna" else spaces.FLAML_LIGHTGBM
    )
    params |= {
        "verbose": -1,
        "seed": draw.seed(),
        "objective": _objective(draw, "l1", "huber", "quantile", **_LIGHTGBM) or "l2",
    }
    params |= _classes(draw, table, "multiclass", {"num_class": 3}, params)
    params |= {"alpha": draw.pick("alpha", 0.5, 0.1, 0.9)} if draw.task == "quantiles" else {}
    params |= spaces.drawn(draw, spaces.STEP, 0.08) | spaces.drawn(
        draw, {"extra_trees": (True,)}, 0.05
    )
    free = (
        draw.task == "quantiles"
    )  # which takes no constraints; and LightGBM aborts where there are categories
    if not table.categories and draw.flag("constrained", 0.15) and not free:
        params["monotone_constraints"] = spaces.signs(draw, table.values(), table.y, table.numeric)
        params |= spaces.drawn(draw, spaces.METHODS)
    if draw.flag("interactions", 0.06):
        params["interaction_constraints"] = spaces.groups(draw, table.train.shape[1])
    stops = draw.flag("early stopping", 0.35)
    if draw.flag("dart", 0.08):
        params["boosting"] = "dart"  # never stops early
    elif draw.flag("goss", 0.05):
        params["data_sample_strategy"] = "goss"
        params = {name: value for name, value in params.items() if not name.startswith("bagging")}
    callbacks = [lgb.early_stopping(10, verbose=False)] if stops else []
    n_trees = params.pop("n_estimators")
    if tuner == "FLAML":
        kind = lgb.LGBMClassifier if draw.task == "classes" else lgb.LGBMRegressor
        model = kind(
            n_estimators=n_trees, n_jobs=1, **{k: v for k, v in params.items() if k != "num_class"}
        )
        evaluated = [(table.valid, table.y_valid)] if stops else None
        model.fit(
            table.train,
            table.y,
            sample_weight=table.weight,
            eval_set=evaluated,
            callbacks=callbacks,
        )
    else:
        data = lgb.Dataset(table.train, table.y, weight=table.weight)
        evaluated = [lgb.Dataset(table.valid, table.y_valid, reference=data)] if stops else None
        model = lgb.train(
            {**params, "num_threads": 1}, data, n_trees, valid_sets=evaluated, callbacks=callbacks
        )
    return _trial(model, table)


def xgboost(draw: Draw, table: Table) -> Trial:
    """An XGBRegressor, or a Booster of `xgb.train`, as Optuna's examples have it."""
    tuner = draw.pick("tuner", "Optuna", "FLAML")
    params = spaces.drawn(
        draw, spaces.OPTUNA_XGBOOST if tuner == "Optuna" else spaces.FLAML_XGBOOST
    )
    others = ("reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror")
    params |= {
        "verbosity": 0,
        "objective": _objective(draw, *others, **_XGBOOST) or "reg:squarederror",
    }
    params |= _classes(draw, table, "multi:softprob", {"num_class": 3}, params)
    alphas = (0.5, 0.1, 0.9, [0.1, 0.9]) if draw.task else (0.5,)
    params |= (
        {"quantile_alpha": draw.pick("alpha", *alphas)}
        if params["objective"] == "reg:quantileerror"
        else {}
    )
    params |= spaces.drawn(draw, spaces.STEP, 0.08) | spaces.drawn(
        draw, {"num_parallel_tree": (2, 3)}, 0.03
    )
    if draw.flag("constrained", 0.15):
        given = spaces.signs(draw, table.values(), table.y, table.numeric)
        params["monotone_constraints"] = "(" + ",".join(map(str, given)) + ")"
    if draw.flag("interactions", 0.06):
        names = list(table.train)
        params["interaction_constraints"] = [
            [names[i] for i in own] for own in spaces.groups(draw, len(names))
        ]
    stops = draw.flag("early stopping", 0.35)
    if draw.flag("dart", 0.08):
        params |= {"booster": "dart", **spaces.drawn(draw, spaces.DART_XGBOOST)}
    n_trees, seed = params.pop("n_estimators"), draw.seed()
    if tuner == "FLAML":
        kind = xgb.XGBClassifier if draw.task == "classes" else xgb.XGBRegressor
        model = kind(
            n_estimators=n_trees, n_jobs=1, random_state=seed, enable_categorical=True,
            early_stopping_rounds=10 if stops else None, **params,
        )  # fmt: skip
        evaluated = [(table.valid, table.y_valid)] if stops else None
        return _trial(
            model.fit(
                table.train, table.y, sample_weight=table.weight, eval_set=evaluated, verbose=False
            ),
            table,
        )
    data = xgb.DMatrix(table.train, table.y, weight=table.weight, enable_categorical=True)
    stop = xgb.DMatrix(table.valid, table.y_valid, enable_categorical=True)
    how: dict[str, Any] = {"evals": [(stop, "valid")], "early_stopping_rounds": 10} if stops else {}
    booster = xgb.train(
        {**params, "seed": seed, "nthread": 1}, data, n_trees, verbose_eval=False, **how
    )
    found = _trial(booster, table)
    found.predict = lambda rows: booster.predict(
        xgb.DMatrix(rows, enable_categorical=True)
    )  # with all trees
    return found


def catboost(draw: Draw, table: Table) -> Trial:
    """A CatBoostRegressor."""
    tuner = draw.pick("tuner", "Optuna", "FLAML")
    params = spaces.drawn(
        draw, spaces.OPTUNA_CATBOOST if tuner == "Optuna" else spaces.FLAML_CATBOOST
    )
    params |= {
        "loss_function": _objective(draw, "MAE", "Quantile", "Huber:delta=1", **_CATBOOST) or "RMSE"
    }
    if draw.task == "classes" and len(np.unique(table.y)) > 2:
        params["loss_function"] = "MultiClass"
    params |= {
        "random_seed": draw.seed(),
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
    }
    if tuner == "Optuna":
        kind = params["bootstrap_type"] = draw.pick(
            "bootstrap_type", "Bayesian", "Bernoulli", "MVS"
        )
        params |= spaces.drawn(
            draw,
            {"bagging_temperature": spaces.Range(0, 10)}
            if kind == "Bayesian"
            else {"subsample": spaces.Range(0.1, 1)},
        )
        if params["boosting_type"] == "Plain" and draw.flag("policy", 0.25):
            params["grow_policy"] = draw.pick("grow_policy", "Depthwise", "Lossguide")
    if (
        "grow_policy" not in params
        and params.get("boosting_type") != "Ordered"
        and draw.flag("constrained", 0.06)
    ):
        params["monotone_constraints"] = spaces.signs(draw, table.values(), table.y, table.numeric)
    categories = {"cat_features": table.categories} if table.categories else {}
    if categories:
        params["one_hot_max_size"] = draw.pick("one_hot_max_size", 2, 20, 20, 255)
    stops = tuner == "FLAML" or draw.flag("early stopping", 0.3)
    rounds = params.pop("early_stopping_rounds", 10)
    fitted, stop, new = (
        part.astype(dict.fromkeys(table.categories, str))
        for part in (table.train, table.valid, table.new)
    )
    how: dict[str, Any] = (
        {"eval_set": (stop, table.y_valid), "early_stopping_rounds": rounds} if stops else {}
    )
    kind = cb.CatBoostClassifier if draw.task == "classes" else cb.CatBoostRegressor
    model = kind(**params, **categories).fit(fitted, table.y, sample_weight=table.weight, **how)
    return Trial(model, fitted, table.y, table.weight, None, new, model.predict)


def histogram(draw: Draw, table: Table) -> Trial:
    """scikit-learn's histogram gradient boosting."""
    draw.pick("tuner", "auto-sklearn")
    params = spaces.drawn(draw, spaces.AUTO_SKLEARN)
    loss = _objective(draw, "absolute_error", "quantile", **_HISTOGRAM)
    params |= {"random_state": draw.seed() % 2**31, "loss": loss or "squared_error"}
    params |= (
        {"quantile": draw.pick("alpha", 0.1, 0.9) if draw.task else 0.5}
        if loss == "quantile"
        else {}
    )
    several = draw.task == "classes" and len(np.unique(table.y)) > 2  # which takes no constraints
    if draw.flag("constrained", 0.15) and not several:
        params["monotonic_cst"] = spaces.signs(draw, table.values(), table.y, table.numeric)
    if draw.flag("interactions", 0.06):
        params["interaction_cst"] = spaces.groups(draw, table.train.shape[1])
    kind = (
        HistGradientBoostingClassifier if draw.task == "classes" else HistGradientBoostingRegressor
    )
    model = kind(**params)
    return _trial(model.fit(table.train, table.y, sample_weight=table.weight), table)


LIBRARIES: dict[str, Callable[[Draw, Table], Trial]] = {
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "CatBoost": catboost,
    "HistGradientBoosting": histogram,
}


def model_of(
    number: int,
    seed: int,
    names: Sequence[str],
    read: Callable[[str], tuple[Any, Any]],
    task: str = "",
) -> tuple[Draw, Trial]:
    """The fitted model of this number, on one of the data sets named, and what was chosen for it."""
    draw = Draw(seed, number) if not task else Draw(seed, number, TASKS.index(task))
    draw.task = task
    library = draw.chosen["library"] = list(LIBRARIES)[number % len(LIBRARIES)]
    X, y = read(draw.pick("data", *names))
    return draw, LIBRARIES[library](
        draw, split(draw, X, _of_task(draw, np.asarray(y, dtype=float)))
    )

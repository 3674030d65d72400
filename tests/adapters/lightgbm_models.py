"""Real LightGBM models, one for each setting that decides how leaves are built, with their data and a replay in NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Coefficients, TrainingRows
from tests.adapters import common
from tests.adapters.common import Data, as_float32, drawn_rows, settled
from tests.reference import bent_values

Array = NDArray[np.float64]

VERSION = tuple(int(part) for part in lgb.__version__.split(".")[:2])
QUIET: dict[str, Any] = {"verbose": -1, "num_threads": 1, "seed": 7}
N_ROWS, N_NEW, N_TREES = 400, 60, 12


@dataclass(frozen=True)
class Case:
    model: Any
    X: Any
    y: NDArray[np.float64]
    sample_weight: NDArray[np.float64] | None
    init_score: NDArray[np.float64] | None
    X_new: Any


def table(n_rows: int = N_ROWS, seed: int = 0) -> Data:
    """The table that all libraries are tried on."""
    return common.table(n_rows, N_NEW, seed)


def booster(
    data: Data | None = None,
    *,
    weighted: bool = False,
    scored: bool = False,
    n_trees: int = N_TREES,
    convert: Callable[[Any], Any] = lambda X: X,
    categorical: Any = "auto",
    callbacks: Any = None,
    init_model: Any = None,
    **params: Any,
) -> Case:
    """A Booster with these parameters, on the data as ``convert`` turns it."""
    data = table() if data is None else data
    X, weight, score = (
        convert(data.X),
        data.weight if weighted else None,
        data.offset if scored else None,
    )
    train_set = lgb.Dataset(
        X, data.y, weight=weight, init_score=score, categorical_feature=categorical
    )
    params = {"objective": "l2", "min_data_in_leaf": 5, **QUIET, **params}
    model = lgb.train(params, train_set, n_trees, callbacks=callbacks, init_model=init_model)
    return Case(model, X, data.y, weight, score, convert(data.X_new))


def regressor(
    data: Data | None = None, *, weighted: bool = False, scored: bool = False, **params: Any
) -> Case:
    """An LGBMRegressor with these parameters."""
    data = table() if data is None else data
    weight, score = data.weight if weighted else None, data.offset if scored else None
    model = lgb.LGBMRegressor(
        **{"n_estimators": N_TREES, "min_child_samples": 5, "n_jobs": 1, "verbose": -1, **params}
    )
    model.fit(data.X, data.y, sample_weight=weight, init_score=score)
    return Case(model, data.X, data.y, weight, score, data.X_new)


def with_targets(change: Callable[[NDArray[np.float64]], Any]) -> Data:
    """The table with other targets."""
    data = table()
    return replace(data, y=np.asarray(change(data.y), dtype=np.float64))


def with_gaps() -> Data:
    """The table with a fifth of its entries missing."""
    data, rng = table(), np.random.default_rng(1)
    X, X_new = (np.where(rng.random(A.shape) < 0.2, np.nan, A) for A in (data.X, data.X_new))
    return replace(data, X=X, X_new=X_new)


def symmetric(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Targets whose mean in float32 is exactly zero."""
    half = (y[: len(y) // 2] - 5).astype(np.float32).astype(np.float64)
    return np.concatenate([half, -half])


def categories(X: NDArray[np.float64]) -> pd.DataFrame:
    """The table as a frame with two category columns, some of their entries missing."""
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame["f"] = pd.Categorical.from_codes(X[:, 5].astype(int), ["low", "mid", "high"])
    frame["g"] = pd.Categorical.from_codes(
        np.where(X[:, 6] > 10, -1, X[:, 6]).astype(int), [f"c{i}" for i in range(12)]
    )
    return frame


def early_stopped() -> Case:
    """An LGBMRegressor that trained on beyond its best iteration."""
    data = table()
    model = lgb.LGBMRegressor(n_estimators=200, learning_rate=0.4, n_jobs=1, verbose=-1)
    noisy = data.y + np.random.default_rng(3).normal(size=N_ROWS) * 3
    with warnings.catch_warnings():  # eval_set is deprecated from 4.7 on and the only way before
        warnings.simplefilter("ignore")
        model.fit(
            data.X,
            data.y,
            eval_set=[(data.X, noisy)],
            callbacks=[lgb.early_stopping(5, verbose=False)],
        )
    return Case(model, data.X, data.y, None, None, data.X_new)


def early_stopped_booster(**params: Any) -> Case:
    """A Booster that keeps the trees beyond its best iteration."""
    data = table()
    train_set = lgb.Dataset(data.X, data.y)
    valid_set = lgb.Dataset(
        data.X, data.y + np.random.default_rng(3).normal(size=N_ROWS) * 3, reference=train_set
    )
    stop = lgb.early_stopping(5, verbose=False)
    params = {"learning_rate": 0.4, **QUIET, **params}
    model = lgb.train(
        params, train_set, 200, [valid_set], callbacks=[stop], keep_training_booster=True
    )
    return Case(model, data.X, data.y, None, None, data.X_new)


def continued(first: dict[str, Any], then: dict[str, Any], **how: Any) -> Case:
    """Training that goes on from another model."""
    return booster(init_model=booster(**first, **how).model, **then, **how)


def loaded(case: Case) -> Case:
    """The same model through its text."""
    text = getattr(case.model, "booster_", case.model).model_to_string()
    return replace(case, model=lgb.Booster(model_str=text))


def first_trees(case: Case, n_trees: int) -> Case:
    """The model cut short after its fit."""
    return replace(
        case, model=lgb.Booster(model_str=case.model.model_to_string(num_iteration=n_trees))
    )


def decay(i: int) -> float:
    return 0.3 * 0.9**i


CAT: dict[str, Any] = {"categorical": [5, 6], "min_data_per_group": 5, "cat_smooth": 1}
L2_NAMES = (
    "regression",
    "regression_l2",
    "l2",
    "mean_squared_error",
    "mse",
    "l2_root",
    "root_mean_squared_error",
    "rmse",
)
MONOTONE = [1, 1, -1, 1, 0, 0, 0, -1]  # with and against what the targets do
INTERMEDIATE: dict[str, Any] = {
    "monotone_constraints_method": "intermediate",
    "monotone_constraints": MONOTONE,
    "num_leaves": 20,
    "min_data_in_leaf": 4,
}
ADVANCED: dict[str, Any] = {**INTERMEDIATE, "monotone_constraints_method": "advanced"}
BAG: dict[str, Any] = {"bagging_fraction": 0.6, "bagging_freq": 1}
GOSS: dict[str, Any] = {"data_sample_strategy": "goss", "learning_rate": 0.3, "n_trees": 20}
DART: dict[str, Any] = {"boosting": "dart", "drop_rate": 0.4, "skip_drop": 0.2, "n_trees": 30}
FAILING: dict[str, Any] = {
    "min_data_in_leaf": 18,
    "n_trees": 30,
}  # with 60 rows, about every other iteration
WIDE: dict[str, Any] = {"num_leaves": 300, "min_data_in_leaf": 1, "n_trees": 3}

_MAKERS: dict[str, Callable[[], Case]] = {
    **{
        f"objective={name}": lambda name=name: booster(objective=name, n_trees=3)
        for name in L2_NAMES
    },  # type: ignore[misc]
    "regressor": lambda: regressor(),
    "regressor weighted scored": lambda: regressor(weighted=True, scored=True, reg_lambda=0.7),
    "boost_from_average=False": lambda: booster(boost_from_average=False),
    "boost_from_average=False weighted": lambda: booster(boost_from_average=False, weighted=True),
    "mean zero": lambda: booster(with_targets(symmetric)),
    "mean near zero": lambda: booster(with_targets(lambda y: symmetric(y) * 1e-9 + 3e-16)),
    "mean near zero learning_rate=1": lambda: booster(with_targets(symmetric), learning_rate=1.0),
    "targets minute": lambda: booster(with_targets(lambda y: y * 1e-17)),
    "mean large": lambda: booster(with_targets(lambda y: y + 1e6)),
    "targets tiny": lambda: booster(with_targets(lambda y: y * 1e-12)),
    "targets constant": lambda: booster(with_targets(lambda y: 0 * y + 3.3)),
    "targets constant boost_from_average=False": lambda: booster(
        with_targets(lambda y: 0 * y + 3.3), boost_from_average=False
    ),
    "targets zero": lambda: booster(with_targets(lambda y: 0 * y)),
    "one leaf": lambda: booster(min_data_in_leaf=300),
    "one leaf boost_from_average=False": lambda: booster(
        min_data_in_leaf=300, boost_from_average=False
    ),
    "one leaf scored": lambda: booster(min_data_in_leaf=300, scored=True),
    "one leaf weighted": lambda: booster(min_data_in_leaf=300, weighted=True),
    "one leaf then more": lambda: continued({"min_data_in_leaf": 300}, {}),
    "one tree": lambda: booster(n_trees=1),
    "lambda_l2=1": lambda: booster(lambda_l2=1.0),
    "lambda_l2=0.1234567": lambda: booster(lambda_l2=0.1234567),
    "lambda_l2=0.1234567 loaded": lambda: loaded(booster(lambda_l2=0.1234567)),
    "lambda_l2 keeps first tree whole": lambda: regressor(
        reg_lambda=12.3456789, boost_from_average=False
    ),
    "weighted": lambda: booster(weighted=True),
    "weighted lambda_l2=3": lambda: booster(weighted=True, lambda_l2=3.0),
    "scored": lambda: booster(scored=True),
    "scored weighted boost_from_average=False": lambda: booster(
        scored=True, weighted=True, boost_from_average=False
    ),
    "rate schedule": lambda: booster(callbacks=[lgb.reset_parameter(learning_rate=decay)]),
    "rate schedule loaded": lambda: loaded(
        booster(callbacks=[lgb.reset_parameter(learning_rate=decay)])
    ),
    "rate schedule slow": lambda: booster(
        callbacks=[lgb.reset_parameter(learning_rate=lambda i: 0.1 - i * i * 3e-9)]
    ),
    "early stopping": lambda: early_stopped(),
    "early stopping loaded": lambda: loaded(early_stopped()),
    "early stopping, all trees kept": lambda: early_stopped_booster(),
    "early stopping one leaf kept": lambda: early_stopped_booster(min_data_in_leaf=300),
    "continued after early stopping": lambda: booster(
        init_model=early_stopped_booster().model, n_trees=3
    ),
    "continued": lambda: continued({}, {}),
    "continued average then not": lambda: continued(
        {}, {"boost_from_average": False, "learning_rate": 0.2}
    ),
    "continued not then average": lambda: continued(
        {"boost_from_average": False}, {"learning_rate": 0.2}
    ),
    "continued weighted": lambda: continued({}, {}, weighted=True),
    "categorical": lambda: booster(**CAT),
    "categorical cat_l2=0": lambda: booster(**CAT, cat_l2=0),
    "categorical cat_l2=1.2345678 lambda_l2=0.5": lambda: booster(
        **CAT, cat_l2=1.2345678, lambda_l2=0.5
    ),
    "categorical max_cat_to_onehot=3": lambda: booster(**CAT, max_cat_to_onehot=3),
    "categorical max_cat_to_onehot=20": lambda: booster(**CAT, max_cat_to_onehot=20),
    "categorical weighted": lambda: booster(**CAT, weighted=True),
    "categorical nan": lambda: booster(with_gaps(), **CAT),
    "categorical frame": lambda: booster(convert=categories, min_data_per_group=5, cat_smooth=1),
    "nan": lambda: booster(with_gaps()),
    "nan use_missing=False": lambda: booster(with_gaps(), use_missing=False),
    "zero_as_missing": lambda: booster(with_gaps(), zero_as_missing=True),
    "zero_as_missing sparse": lambda: booster(convert=sparse.csr_matrix, zero_as_missing=True),
    "csr": lambda: booster(convert=sparse.csr_matrix),
    "csc": lambda: booster(convert=sparse.csc_matrix),
    "float32": lambda: booster(convert=lambda X: X.astype(np.float32)),
    "float32 frame": lambda: booster(convert=lambda X: pd.DataFrame(X.astype(np.float32))),
    "path_smooth=2": lambda: booster(path_smooth=2.0),
    "path_smooth=50 lambda_l2=1": lambda: booster(
        path_smooth=50.0, lambda_l2=1.0, boost_from_average=False
    ),
    "path_smooth=5 categorical": lambda: booster(**CAT, path_smooth=5.0, num_leaves=15),
    "extra_trees": lambda: booster(extra_trees=True),
    "lambda_l1=2": lambda: booster(lambda_l1=2.0),
    "lambda_l1=2 lambda_l2=1 weighted scored": lambda: booster(
        lambda_l1=2.0, lambda_l2=1.0, weighted=True, scored=True
    ),
    "lambda_l1=1/3 loaded": lambda: loaded(booster(lambda_l1=1 / 3)),
    "lambda_l1 bagging": lambda: booster(lambda_l1=1.0, weighted=True, **BAG),
    "lambda_l1 goss": lambda: booster(lambda_l1=1.0, **GOSS),
    "lambda_l1 dart": lambda: booster(lambda_l1=1.0, **DART),
    "lambda_l1 rf": lambda: booster(boosting="rf", lambda_l1=1.0, **BAG),
    "lambda_l1 categorical": lambda: booster(**CAT, lambda_l1=1.0),
    "lambda_l1 path_smooth=3": lambda: booster(lambda_l1=1.0, path_smooth=3.0),
    "lambda_l1 quantized renewed": lambda: booster(
        lambda_l1=1.0, use_quantized_grad=True, quant_train_renew_leaf=True
    ),
    "lambda_l1=40": lambda: booster(lambda_l1=40.0),
    "max_delta_step=0.2": lambda: booster(max_delta_step=0.2, boost_from_average=False),
    "max_delta_step=1/3 loaded weighted": lambda: loaded(
        booster(max_delta_step=1 / 3, weighted=True)
    ),
    "max_delta_step=0.2 lambda_l1=1 path_smooth=2 bagging": lambda: booster(
        max_delta_step=0.2, lambda_l1=1.0, path_smooth=2.0, **BAG
    ),
    "monotone": lambda: booster(monotone_constraints=MONOTONE),
    "monotone weighted lambda_l2=2": lambda: booster(
        monotone_constraints=MONOTONE, weighted=True, lambda_l2=2.0
    ),
    "monotone loaded": lambda: loaded(booster(monotone_constraints=MONOTONE)),
    "monotone bagging": lambda: booster(monotone_constraints=MONOTONE, **BAG),
    "monotone dart": lambda: booster(monotone_constraints=MONOTONE, **DART),
    "monotone rf": lambda: booster(boosting="rf", monotone_constraints=MONOTONE, **BAG),
    "monotone lambda_l1 max_delta_step path_smooth": lambda: booster(
        monotone_constraints=MONOTONE, lambda_l1=1.0, max_delta_step=0.5, path_smooth=2.0
    ),
    "monotone monotone_penalty": lambda: booster(
        monotone_constraints=MONOTONE, monotone_penalty=1.5
    ),
    "monotone categorical": lambda: booster(
        **CAT, monotone_constraints=[1, 1, -1, 1, 0, 0, 0, 0], num_leaves=15
    ),
    "quantized renewed monotone": lambda: booster(
        monotone_constraints=MONOTONE, use_quantized_grad=True, quant_train_renew_leaf=True
    ),
    "monotone intermediate by node": lambda: booster(feature_fraction_bynode=0.6, **INTERMEDIATE),
    **{
        f"monotone {how['monotone_constraints_method']}{name}": lambda how=how, more=more: booster(
            **{**how, **more}
        )  # type: ignore[misc]
        for how in (INTERMEDIATE, ADVANCED)
        for name, more in {
            "": {},
            " weighted lambda_l1 max_delta_step": {
                "weighted": True,
                "lambda_l1": 1.0,
                "max_delta_step": 0.5,
            },
            " bagging": BAG,
            " dart": DART,
            " categorical": {**CAT, "monotone_constraints": [1, 1, -1, 1, 0, 0, 0, 0]},
            " goss interaction_constraints": {
                **GOSS,
                "interaction_constraints": [[0, 1, 2], [2, 3, 4, 5, 6, 7]],
            },
        }.items()
    },
    "feature_fraction": lambda: booster(feature_fraction=0.5, feature_fraction_bynode=0.5),
    "max_bin=7": lambda: booster(max_bin=7),
    "max_depth=3": lambda: booster(max_depth=3),
    "learning_rate=1/3": lambda: booster(learning_rate=1 / 3),
    "learning_rate=1/3 loaded": lambda: loaded(booster(learning_rate=1 / 3)),
    "learning_rate=1": lambda: booster(learning_rate=1.0),
    "learning_rate=1 lambda_l2=2": lambda: booster(learning_rate=1.0, lambda_l2=2.0),
    "learning_rate=1 boost_from_average=False": lambda: booster(
        learning_rate=1.0, boost_from_average=False, lambda_l2=2.0
    ),
    "learning_rate=1 scored": lambda: booster(learning_rate=1.0, scored=True),
    "many leaves": lambda: booster(table(800), **WIDE),
    "many leaves weighted": lambda: booster(
        table(800), weighted=True, min_sum_hessian_in_leaf=1e-9, **WIDE
    ),
    "many leaves path_smooth=1": lambda: booster(table(800), path_smooth=1.0, **WIDE),
    "weights one path_smooth=1": lambda: replace(
        booster(path_smooth=1.0), sample_weight=np.ones(N_ROWS)
    ),
    "weights some zero": lambda: booster(
        replace(table(), weight=np.maximum(table().weight - 1.5, 0)), weighted=True
    ),
    "interaction_constraints": lambda: booster(
        interaction_constraints=[[0, 1, 2], [3, 4, 5, 6, 7]]
    ),
    "monotone_constraints=0": lambda: booster(monotone_constraints=[0] * 8),
    "min_gain_to_split": lambda: booster(min_gain_to_split=2.0),
    "quantized renewed": lambda: booster(
        use_quantized_grad=True, quant_train_renew_leaf=True, lambda_l2=1.0
    ),
    "quantized renewed weighted categorical": lambda: booster(
        **CAT, use_quantized_grad=True, quant_train_renew_leaf=True, weighted=True
    ),
    "quantized renewed path_smooth=3": lambda: booster(
        use_quantized_grad=True, quant_train_renew_leaf=True, path_smooth=3.0
    ),
    "threads": lambda: booster(table(800), num_threads=4, weighted=True),
    "bagging": lambda: booster(**BAG),
    "bagging weighted lambda_l2=1": lambda: booster(
        table(1500), weighted=True, lambda_l2=1.0, **BAG
    ),
    "bagging every third tree": lambda: booster(bagging_fraction=0.3, bagging_freq=3),
    "bagging regressor": lambda: regressor(subsample=2 / 3, subsample_freq=1, random_state=5),
    "bagging loaded": lambda: loaded(booster(**BAG)),
    "bagging scored": lambda: booster(scored=True, **BAG),
    "weighted path_smooth=2": lambda: booster(path_smooth=2.0, weighted=True),
    "goss path_smooth=2": lambda: booster(path_smooth=2.0, **GOSS),
    "bagging path_smooth=3": lambda: booster(path_smooth=3.0, **BAG),
    "bagging categorical": lambda: booster(**CAT, **BAG),
    "bagging quantized renewed": lambda: booster(
        use_quantized_grad=True, quant_train_renew_leaf=True, **BAG
    ),
    "bagging rate schedule": lambda: booster(
        callbacks=[lgb.reset_parameter(learning_rate=decay)], **BAG
    ),
    "bagging one leaf": lambda: booster(min_data_in_leaf=200, **BAG),
    "bagging failing": lambda: booster(table(60), **BAG, **FAILING),
    "bagging continued": lambda: continued(BAG, BAG),
    "bagging continued from none": lambda: continued({}, BAG),
    "goss": lambda: booster(**GOSS),
    "goss boosting": lambda: booster(boosting="goss", learning_rate=0.3),
    "goss weighted": lambda: booster(table(1500), weighted=True, **GOSS),
    "goss threads": lambda: booster(table(3000), **GOSS, num_threads=2),
    "goss continued": lambda: continued(GOSS, GOSS),
    "dart": lambda: booster(**DART),
    "dart xgboost_dart_mode": lambda: booster(xgboost_dart_mode=True, **DART),
    "dart boost_from_average=False": lambda: booster(
        boost_from_average=False, lambda_l2=1.0, **DART
    ),
    "dart learning_rate=1": lambda: booster(learning_rate=1.0, **DART),
    "dart bagging weighted": lambda: booster(weighted=True, **DART, **BAG),
    "dart goss": lambda: booster(**{**GOSS, **DART}),
    "dart scored": lambda: booster(scored=True, **DART),
    "dart loaded": lambda: loaded(booster(**DART)),
    "dart continued": lambda: continued(DART, DART),
    "dart first trees only": lambda: first_trees(booster(**DART), 9),
    "dart failing": lambda: booster(table(60), **BAG, **{**DART, **FAILING}),
    "rf": lambda: booster(boosting="rf", **BAG),
    "rf weighted lambda_l2=2": lambda: booster(boosting="rf", weighted=True, lambda_l2=2.0, **BAG),
    "rf boost_from_average=False": lambda: booster(boosting="rf", boost_from_average=False, **BAG),
    "rf path_smooth=2": lambda: booster(boosting="rf", path_smooth=2.0, **BAG),
    "rf without bagging": lambda: booster(boosting="rf", feature_fraction=0.5),
    "rf failing": lambda: booster(table(60), boosting="rf", **BAG, **FAILING),
    "rf targets constant": lambda: booster(
        with_targets(lambda y: 0 * y + 3.3), boosting="rf", **BAG
    ),
    "rf nothing to split boost_from_average=False": lambda: booster(
        table(30),
        boosting="rf",
        boost_from_average=False,
        min_data_in_leaf=20,
        weighted=True,
        **BAG,
    ),
    "rf failing path_smooth=2": lambda: booster(
        table(60), boosting="rf", path_smooth=2.0, **BAG, **FAILING
    ),
    "rf loaded": lambda: loaded(booster(boosting="rf", **BAG)),
    "rf first trees only": lambda: first_trees(booster(boosting="rf", **BAG), 9),
}

CASES: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _MAKERS.items()}

_HIGH: dict[str, Any] = {"objective": "quantile", "alpha": 0.9}
_RANKED_MAKERS: dict[str, Callable[[], Case]] = {
    "quantile": lambda: booster(**_HIGH),
    "quantile weighted": lambda: booster(objective="quantile", alpha=0.3, weighted=True),
    "quantile alpha=1/3 bagging": lambda: booster(objective="quantile", alpha=1 / 3, **BAG),
    "quantile goss": lambda: booster(**_HIGH, **GOSS),
    "quantile dart bagging weighted": lambda: booster(weighted=True, **_HIGH, **DART, **BAG),
    "quantile rf": lambda: booster(boosting="rf", **_HIGH, **BAG),
    "quantile rate schedule": lambda: booster(
        callbacks=[lgb.reset_parameter(learning_rate=decay)], **_HIGH
    ),
    "quantile continued": lambda: continued(_HIGH, _HIGH),
    "l1": lambda: booster(objective="l1"),
    "l1 loaded": lambda: loaded(booster(objective="l1")),
    "l1 weighted bagging": lambda: booster(objective="l1", weighted=True, **BAG),
    "l1 light weights": lambda: booster(
        replace(table(), weight=table().weight / 4), objective="l1", weighted=True
    ),
    "l1 scored": lambda: booster(objective="l1", scored=True),
    "l1 boost_from_average=False": lambda: booster(
        with_targets(lambda y: y - 4), objective="l1", boost_from_average=False
    ),
    "l1 first tree unsplit": lambda: booster(
        objective="l1", boost_from_average=False
    ),  # as all are above zero
    "l1 regularised": lambda: booster(
        objective="l1", lambda_l1=1.0, lambda_l2=3.0, path_smooth=2.0, max_delta_step=0.1
    ),
    "l1 equal targets": lambda: booster(with_targets(np.round), objective="l1"),
    "l1 median zero": lambda: booster(with_targets(symmetric), objective="l1"),
    "l1 one leaf": lambda: booster(objective="l1", min_data_in_leaf=300),
    "mape": lambda: booster(objective="mape"),
    "mape weighted goss": lambda: booster(objective="mape", weighted=True, **GOSS),
}
#: Leaf values are percentiles of the residuals.
RANKED: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _RANKED_MAKERS.items()}

_HUBER: dict[str, Any] = {"objective": "huber", "alpha": 0.7}
_CUT_MAKERS: dict[str, Callable[[], Case]] = {
    "huber": lambda: booster(**_HUBER),
    "huber weighted l2": lambda: booster(weighted=True, lambda_l2=3.0, **_HUBER),
    "huber whole targets": lambda: booster(
        with_targets(lambda y: np.round(y - 5)),
        objective="huber",
        alpha=1.0,
        boost_from_average=False,
    ),
    "huber scored": lambda: booster(scored=True, **_HUBER),
    "huber regularised": lambda: booster(
        lambda_l1=1.5, max_delta_step=0.4, lambda_l2=0.5, **_HUBER
    ),
    "huber monotone": lambda: booster(monotone_constraints=MONOTONE, **_HUBER),
    "huber path_smooth weighted scored": lambda: booster(
        weighted=True, scored=True, path_smooth=2.0, **{**_HUBER, "alpha": 0.1}
    ),
    "huber path_smooth weighted": lambda: booster(weighted=True, path_smooth=2.0, **_HUBER),
    "huber bagging": lambda: booster(**_HUBER, **BAG),
    "huber goss weighted": lambda: booster(weighted=True, **_HUBER, **GOSS),
    "huber dart bagging weighted": lambda: booster(
        weighted=True, **{**_HUBER, **DART, **BAG, "alpha": 2.0, "n_trees": 15}
    ),
    "huber loaded": lambda: loaded(booster(**_HUBER)),
    "huber continued": lambda: continued(_HUBER, _HUBER),
    "huber nothing cut off": lambda: booster(objective="huber", alpha=1e6),
    "huber all cut off": lambda: booster(
        with_targets(lambda y: np.where(y < 5, y - 6, y)),
        objective="huber",
        alpha=1e-3,
        boost_from_average=False,
    ),
}
#: Residuals are cut off.
CUT: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _CUT_MAKERS.items()}


# -- the fit again, in plain NumPy ------------------------------------------------------------------------------------


def read_trees(case: Case, adapter: Adapter) -> BoostedFit:
    weights = None if case.sample_weight is None else as_float32(case.sample_weight)
    (trees,) = settled(
        adapter, TrainingRows(case.X, as_float32(case.y)[:, None], weights, case.init_score)
    )
    return trees


def coefficients(trees: BoostedFit) -> Coefficients:
    """Those given, or the ones that plain boosting has: rates after the fact, nan where the model does not state them."""
    if trees.schedule.coefficients is not None:
        return trees.schedule.coefficients
    T = len(trees.table.n_leaves)
    return Coefficients(np.tril(np.tile(trees.learning_rates, (T + 1, 1)), -1), np.ones(T + 1))


def replay(
    case: Case, trees: BoostedFit, leaves: NDArray[Any]
) -> tuple[Array, Array, Array, Array]:
    """Leaf counts, weights and values (L,) and scores (N,), each tree fitted to what the model's own trees leave over.

    LightGBM rounds the residual to float32, its product with the weight once more (GetGradients,
    src/objective/regression_objective.hpp) and, where a row is drawn with a factor, that product again.
    """
    y = as_float32(case.y)
    w = np.ones_like(y) if case.sample_weight is None else as_float32(case.sample_weight)
    offsets = np.zeros_like(y) if case.init_score is None else case.init_score
    table, T = coefficients(trees), len(trees.table.n_leaves)
    v: list[
        Array
    ] = []  # per tree, (N,): each row's leaf value before the rate, from the model's own leaf values

    def score(t: int) -> Array:
        return (
            offsets
            + table.beta[t] * trees.initial.values
            + sum(table.omega[t, s] * v[s] for s in range(t))
        )

    counts, weights, values = [], [], []
    start = 0
    for t, n in enumerate(trees.table.n_leaves):
        own, leaf = slice(start, start + n), leaves[:, t]
        residuals = y - score(t)
        drawn = (
            np.ones_like(y)
            if trees.sampler is None
            else drawn_rows(trees.sampler, t, leaf, residuals[:, None])
        )
        counts.append(np.bincount(leaf, drawn > 0, n))
        weights.append(np.bincount(leaf, as_float32(w * drawn), n))
        sums = np.bincount(leaf, as_float32(as_float32(w * as_float32(residuals)) * drawn), n)
        u = sums / (weights[-1] + trees.leaf_rule.l2[own])
        if trees.leaf_rule.nodes is not None:
            padded = np.zeros((2, len(trees.leaf_rule.l2)))
            padded[:, own] = sums, weights[-1]
            u = bent_values(
                trees.leaf_rule.l2,
                trees.leaf_rule.l1,
                trees.leaf_rule.max_step,
                trees.leaf_rule.nodes,
                t,
                *padded,
            )[0]
        final = trees.table.leaf_values[own, 0]
        if np.isnan(table.omega[T, t]):
            table.omega[t + 1 :, t] = final @ u / (u @ u)
        rate = table.omega[T, t]
        values.append(rate * u)
        v.append((final / rate if rate else np.zeros(n))[leaf])
        start += n
    return np.concatenate(counts), np.concatenate(weights), np.concatenate(values), score(T)

"""Real CatBoost models, one for each setting that decides how leaves are built, with the data they were fitted on."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from tests.adapters import common
from tests.adapters.common import Data

Array = NDArray[np.float64]

TAKES_NA = tuple(int(part) for part in cb.__version__.split(".")[:3]) > (
    1,
    2,
    0,
)  #: whether it takes pandas.NA
QUIET: dict[str, Any] = {"allow_writing_files": False, "thread_count": 1, "verbose": False}
N_ROWS, N_NEW, N_TREES = 300, 60, 8


@dataclass(frozen=True)
class Case:
    model: Any
    X: Any
    y: Array
    sample_weight: Array | None
    baseline: Array | None
    X_new: Any


def table(n_rows: int = N_ROWS, seed: int = 0) -> Data:
    """The table that all libraries are tried on."""
    return common.table(n_rows, N_NEW, seed)


def regressor(
    data: Data | None = None,
    *,
    weighted: bool = False,
    offset: bool = False,
    convert: Callable[[Any], Any] = lambda X: X,
    cat_features: Any = None,
    kind: Any = cb.CatBoostRegressor,
    fit: dict[str, Any] | None = None,
    **params: Any,
) -> Case:
    """A CatBoostRegressor with these parameters, on the data as ``convert`` turns it."""
    data = table() if data is None else data
    X, weight, baseline = (
        convert(data.X),
        data.weight if weighted else None,
        data.offset if offset else None,
    )
    params = {"iterations": N_TREES, "depth": 5, "learning_rate": 0.3, **QUIET, **params}
    model = cb.CatBoost(params) if kind is cb.CatBoost else kind(**params)
    model.fit(
        cb.Pool(X, data.y, weight=weight, baseline=baseline, cat_features=cat_features),
        **(fit or {}),
    )
    return Case(model, X, data.y, weight, baseline, convert(data.X_new))


def with_targets(change: Callable[[Array], Any]) -> Data:
    """The table with other targets."""
    data = table()
    return replace(data, y=np.asarray(change(data.y), dtype=np.float64))


def minute(data: Data) -> Data:
    """Weights so small that CatBoost leaves some leaves at zero (FLT_EPSILON)."""
    return replace(data, weight=data.weight * 1e-8)


def with_gaps() -> Data:
    """The table with a fifth of its entries missing."""
    data, rng = table(), np.random.default_rng(1)
    X, X_new = (np.where(rng.random(A.shape) < 0.2, np.nan, A) for A in (data.X, data.X_new))
    return replace(data, X=X, X_new=X_new)


def several(n_outputs: int = 3) -> Data:
    """The table with several targets."""
    data, rng = table(), np.random.default_rng(2)
    extra = [data.y * (-0.5) ** k + rng.normal(size=N_ROWS) for k in range(1, n_outputs)]
    return replace(data, y=np.stack([data.y, *extra], axis=1))


def multi(data: Data | None = None, **params: Any) -> Case:
    return regressor(several() if data is None else data, loss_function="MultiRMSE", **params)


def categories(X: Array) -> pd.DataFrame:
    """The table as a frame with a column of strings and one of integers."""
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame["f"] = np.array(["low", "mid", "high"], dtype=object)[X[:, 5].astype(int)]
    frame["g"] = X[:, 6].astype(int)
    return frame


def category_dtype(X: Array) -> pd.DataFrame:
    return categories(X).astype({"f": "category", "g": "category"})


def encoded(data: Data | None = None, **params: Any) -> Case:
    """A model with three columns of categories, two of them encoded by the targets, in combinations where it pays."""
    how = {
        "convert": letters,
        "cat_features": ["d", "f", "g"],
        "max_ctr_complexity": 3,
        "model_size_reg": 0,
        **params,
    }
    return regressor(data, **how)


def letters(X: Array) -> pd.DataFrame:
    """The table with categories of strings, pandas' categories and integers."""
    frame = categories(X)
    frame["d"] = pd.Categorical(np.array(list("uvwxyz"))[(X[:, 3] * 2).astype(int) % 6])
    return frame


def evaluated(init_model: Any = None, **params: Any) -> Case:
    """A model with an evaluation set that it fits worse after some trees: the targets drawn towards their mean."""
    data = table()
    drawn = 5 + (data.y - 5) * 0.4
    params = {"iterations": 60, "learning_rate": 0.1, **params}
    fit = {"eval_set": cb.Pool(data.X, drawn), "early_stopping_rounds": 5, "init_model": init_model}
    return regressor(data, fit=fit, **params)


def with_gaps_in_numbers() -> Data:
    """The table with missing values in columns that are no categories."""
    data = table()
    X, X_new = data.X.copy(), data.X_new.copy()
    X[::5, 0], X[::3, 1], X_new[::4, 0] = np.nan, np.nan, np.nan
    return replace(data, X=X, X_new=X_new)


def encoded_until_stopped() -> Case:
    """Categories with an evaluation set, which has some of its own, and whose rows count in encodings by numbers of rows."""
    data = table()
    later = letters(data.X_new)
    later["f"] = later["f"].replace("mid", "none")
    fit = {
        "eval_set": cb.Pool(later, np.full(N_NEW, 5.0), cat_features=["d", "f", "g"]),
        "early_stopping_rounds": 5,
    }
    return encoded(
        fit=fit, iterations=30, counter_calc_method="Full", simple_ctr=["Counter", "Borders"]
    )


def continued(
    first: dict[str, Any],
    then: dict[str, Any],
    change: Callable[[Case], Case] = lambda c: c,
    **how: Any,
) -> Case:
    """Training that goes on from another model, perhaps one that was saved."""
    return regressor(**then, **how, fit={"init_model": change(regressor(**first, **how)).model})


def loaded(case: Case, kind: str = "cbm") -> Case:
    """The same model through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / f"model.{kind}")
        case.model.save_model(path, format=kind)
        return replace(case, model=type(case.model)().load_model(path, format=kind))


def pickled(case: Case) -> Case:
    return replace(case, model=pickle.loads(pickle.dumps(case.model)))


def scaled(case: Case, scale: float, bias_too: bool) -> Case:
    """Predictions in other units."""
    bias = case.model.get_scale_and_bias()[1]
    case.model.set_scale_and_bias(scale, [bias * scale if bias_too else bias])
    return case


def truncated(case: Case, n_trees: int) -> Case:
    case.model.shrink(n_trees)
    return case


ONE_HOT: dict[str, Any] = {"one_hot_max_size": 20}
BOOTSTRAPS: dict[str, dict[str, Any]] = {
    "MVS": {"subsample": 0.4},
    "Bernoulli": {"subsample": 0.3},
    "Bayesian": {"bagging_temperature": 5},
    "No": {},
}
POLICIES: dict[str, dict[str, Any]] = {
    "SymmetricTree": {},
    "Depthwise": {"min_data_in_leaf": 3},
    "Lossguide": {"max_leaves": 13},
}
ZERO_WEIGHTS = replace(table(), weight=np.maximum(table().weight - 1.5, 0))
STEPS: dict[str, Any] = {"leaf_estimation_iterations": 4}
MONOTONE: dict[str, Any] = {"monotone_constraints": [-1, 1, 1, -1, 0, 0, 0, 0]}
SHRINK: dict[str, Any] = {"model_shrink_rate": 0.3}

_MAKERS: dict[str, Callable[[], Case]] = {
    "defaults": lambda: regressor(depth=6, learning_rate=None),
    "defaults many rows": lambda: regressor(table(800), learning_rate=None, iterations=20),
    "CatBoost": lambda: regressor(kind=cb.CatBoost, loss_function="RMSE"),
    **{
        f"{policy} {boosting}{' weighted' * weighted}": lambda p=policy, b=boosting, w=weighted: (
            regressor(  # type: ignore[misc]
                grow_policy=p, boosting_type=b, weighted=w, **POLICIES[p]
            )
        )
        for policy in POLICIES
        for boosting in ("Plain", "Ordered")
        for weighted in (False, True)
        if (policy, boosting) in {(p, "Plain") for p in POLICIES} | {("SymmetricTree", "Ordered")}
    },
    **{
        f"bootstrap_type={name}": lambda n=name: regressor(
            bootstrap_type=n, weighted=True, **BOOTSTRAPS[n]
        )  # type: ignore[misc]
        for name in BOOTSTRAPS
    },
    "sampling_frequency=PerTreeLevel": lambda: regressor(
        sampling_frequency="PerTreeLevel", subsample=0.5
    ),
    "random_strength rsm": lambda: regressor(random_strength=5, rsm=0.4, random_seed=3),
    "approx_on_full_history": lambda: regressor(
        boosting_type="Ordered", approx_on_full_history=True
    ),
    "fold settings": lambda: regressor(
        boosting_type="Ordered", fold_len_multiplier=1.2, fold_permutation_block=7
    ),
    "has_time": lambda: regressor(has_time=True),
    "weighted": lambda: regressor(weighted=True),
    "weights some zero": lambda: regressor(ZERO_WEIGHTS, weighted=True),
    "weights minute": lambda: regressor(minute(table()), weighted=True, bootstrap_type="No"),
    "weights minute Gradient steps": lambda: regressor(
        minute(table()),
        weighted=True,
        bootstrap_type="No",
        leaf_estimation_method="Gradient",
        **STEPS,
    ),
    "weights large": lambda: regressor(
        replace(table(), weight=table().weight * 1e6), weighted=True
    ),
    "baseline": lambda: regressor(offset=True),
    "baseline weighted steps": lambda: regressor(offset=True, weighted=True, **STEPS),
    "boost_from_average=False": lambda: regressor(boost_from_average=False),
    "boost_from_average=False weighted": lambda: regressor(boost_from_average=False, weighted=True),
    "l2_leaf_reg=0": lambda: regressor(l2_leaf_reg=0),
    "l2_leaf_reg=0 Gradient weighted": lambda: regressor(
        l2_leaf_reg=0, leaf_estimation_method="Gradient", weighted=True
    ),
    "l2_leaf_reg=0.123": lambda: regressor(l2_leaf_reg=0.123, weighted=True),
    "l2_leaf_reg=50": lambda: regressor(l2_leaf_reg=50, learning_rate=1 / 3),
    "learning_rate=1": lambda: regressor(learning_rate=1),
    "Gradient": lambda: regressor(leaf_estimation_method="Gradient", weighted=True),
    "Simple": lambda: regressor(leaf_estimation_method="Simple", weighted=True),
    "steps": lambda: regressor(**STEPS),
    "steps weighted Gradient": lambda: regressor(
        **STEPS, weighted=True, leaf_estimation_method="Gradient"
    ),
    "steps without backtracking": lambda: regressor(
        **STEPS, leaf_estimation_backtracking="No", weighted=True
    ),
    "steps l2_leaf_reg=0": lambda: regressor(**STEPS, l2_leaf_reg=0, boost_from_average=False),
    "30 steps": lambda: regressor(leaf_estimation_iterations=30, weighted=True),
    "30 steps without backtracking": lambda: regressor(
        leaf_estimation_iterations=30, leaf_estimation_backtracking="No", boost_from_average=False
    ),
    "shrink": lambda: regressor(**SHRINK),
    "shrink weighted steps": lambda: regressor(**SHRINK, **STEPS, weighted=True),
    "shrink Decreasing": lambda: regressor(model_shrink_rate=0.5, model_shrink_mode="Decreasing"),
    "shrink boost_from_average=False": lambda: regressor(**SHRINK, boost_from_average=False),
    "shrink stopped": lambda: evaluated(**SHRINK),
    "shrink Decreasing stopped": lambda: evaluated(
        model_shrink_rate=0.5, model_shrink_mode="Decreasing"
    ),
    "shrink one tree": lambda: regressor(**SHRINK, iterations=1),
    "stopped": lambda: evaluated(),
    "stopped, all trees kept": lambda: evaluated(use_best_model=False),
    "stopped Ordered": lambda: evaluated(boosting_type="Ordered"),
    "continued": lambda: continued({}, {}),
    "continued other settings": lambda: continued(
        {"l2_leaf_reg": 7, "learning_rate": 0.11}, {"iterations": 3}
    ),
    "continued fewer steps": lambda: continued({}, STEPS),
    "continued loaded": lambda: continued({}, {"learning_rate": 0.1, "l2_leaf_reg": 1}, loaded),
    "continued loaded steps": lambda: continued(
        STEPS, {"learning_rate": 0.1}, loaded, weighted=True
    ),
    "continued loaded without average": lambda: continued(
        {"boost_from_average": False}, {}, loaded
    ),
    "continued until stopped": lambda: evaluated(init_model=regressor(l2_leaf_reg=1).model),
    "continued from one leaf": lambda: continued(
        {"depth": 0}, {"learning_rate": 0.1, "l2_leaf_reg": 1}
    ),
    "continued twice": lambda: regressor(
        learning_rate=0.17,
        fit={"init_model": continued({"l2_leaf_reg": 1}, {"l2_leaf_reg": 9}).model},
    ),
    "continued after stopping": lambda: regressor(
        l2_leaf_reg=1, fit={"init_model": evaluated().model}
    ),
    "truncated": lambda: truncated(regressor(), 5),
    "one-hot": lambda: regressor(convert=categories, cat_features=["f", "g"], **ONE_HOT),
    "one-hot category dtype weighted": lambda: regressor(
        convert=category_dtype, cat_features=["f", "g"], weighted=True, **ONE_HOT
    ),
    "one-hot Lossguide": lambda: regressor(
        convert=categories, cat_features=["f", "g"], grow_policy="Lossguide", **ONE_HOT
    ),
    "one-hot objects": lambda: regressor(
        convert=lambda X: categories(X).to_numpy(object), cat_features=[5, 6], **ONE_HOT
    ),
    "encoded has_time": lambda: encoded(has_time=True),
    "encoded": lambda: encoded(),
    "encoded defaults": lambda: encoded(
        max_ctr_complexity=None, learning_rate=None, random_seed=12345
    ),
    "encoded Ordered": lambda: encoded(
        boosting_type="Ordered", fold_permutation_block=7, random_seed=3
    ),
    "encoded Depthwise": lambda: encoded(
        with_gaps_in_numbers(), grow_policy="Depthwise", nan_mode="Max"
    ),
    "encoded Lossguide weighted": lambda: encoded(
        grow_policy="Lossguide", weighted=True, max_leaves=13
    ),
    "encoded has_time weighted": lambda: encoded(has_time=True, weighted=True, one_hot_max_size=4),
    "encoded baseline": lambda: encoded(offset=True, one_hot_max_size=8),
    "encoded blocks of rows": lambda: encoded(table(2300), iterations=4),
    "encoded two permutations": lambda: encoded(
        kind=cb.CatBoost, loss_function="RMSE", permutation_count=2
    ),
    "encoded deep": lambda: encoded(depth=12, iterations=2),
    "encoded Buckets": lambda: encoded(
        simple_ctr=[
            "Buckets:TargetBorderCount=3",
            "Borders:Prior=2/1:Prior=-0.5/1:CtrBorderCount=60",
        ]
    ),
    "encoded means": lambda: encoded(
        simple_ctr=["BinarizedTargetMeanValue:TargetBorderCount=5:TargetBorderType=Median"],
        combinations_ctr=["BinarizedTargetMeanValue", "Counter"],
    ),
    "encoded by column": lambda: encoded(
        per_feature_ctr=["6:Borders:TargetBorderCount=2:Prior=0.3/1", "3:Counter:Prior=0.5/1"],
        store_all_simple_ctr=True,
    ),
    "encoded stopped": lambda: encoded_until_stopped(),
    "encoded shrink truncated": lambda: truncated(encoded(**SHRINK), 5),
    "encoded steps loaded": lambda: loaded(encoded(**STEPS)),
    "encoded objects": lambda: encoded(
        convert=lambda X: letters(X).to_numpy(object), cat_features=[3, 5, 6]
    ),
    "encoded integers": lambda: encoded(
        convert=lambda X: (10 * X).astype(np.int64), cat_features=[0, 1]
    ),
    "frame": lambda: regressor(
        convert=lambda X: pd.DataFrame(X, columns=[f"x {i}" for i in range(8)])
    ),
    "nan": lambda: regressor(with_gaps()),
    "nan_mode=Max": lambda: regressor(with_gaps(), nan_mode="Max", grow_policy="Depthwise"),
    "csr": lambda: regressor(convert=sparse.csr_matrix),
    "csc": lambda: regressor(convert=sparse.csc_matrix),
    "float32": lambda: regressor(convert=lambda X: X.astype(np.float32)),
    "border_count=7": lambda: regressor(border_count=7, feature_border_type="Uniform"),
    "penalties": lambda: regressor(
        feature_weights=[0.5] * 4 + [1.0] * 4,
        first_feature_use_penalties=[0.5] * 8,
        per_object_feature_penalties=[0.1] * 8,
        penalties_coefficient=2,
    ),
    "score_function=L2": lambda: regressor(score_function="L2", grow_policy="Lossguide"),
    "monotone_constraints=0": lambda: regressor(monotone_constraints=[0] * 8),
    "monotone constraints": lambda: regressor(**MONOTONE),
    "monotone weighted": lambda: regressor(
        **MONOTONE, weighted=True, l2_leaf_reg=0.123, bootstrap_type="MVS"
    ),
    "monotone Gradient Ordered": lambda: regressor(
        **MONOTONE, leaf_estimation_method="Gradient", boosting_type="Ordered", model_shrink_rate=0
    ),
    "monotone l2_leaf_reg=0": lambda: regressor(
        **MONOTONE, l2_leaf_reg=0, boost_from_average=False
    ),
    "monotone baseline": lambda: regressor(**MONOTONE, offset=True, weighted=True),
    "monotone some weights zero": lambda: regressor(ZERO_WEIGHTS, **MONOTONE, weighted=True),
    "monotone stopped": lambda: evaluated(**MONOTONE),
    "monotone stopped, much shrunk": lambda: evaluated(**MONOTONE, **SHRINK),
    "monotone truncated": lambda: truncated(regressor(**MONOTONE), 5),
    "monotone one-hot": lambda: regressor(
        convert=lambda X: categories(X)[list("fabcdegh")],
        cat_features=["f", "g"],
        monotone_constraints={"b": -1, "c": 1, "d": 1},
        **ONE_HOT,
    ),
    "monotone nan": lambda: regressor(with_gaps(), **MONOTONE, nan_mode="Max"),
    "monotone all": lambda: regressor(monotone_constraints=[1, -1] * 4, depth=7),
    "monotone loaded json": lambda: loaded(regressor(**MONOTONE), "json"),
    "monotone scale": lambda: scaled(regressor(**MONOTONE), 2.5, True),
    "multi monotone": lambda: multi(**MONOTONE, **STEPS),  # which several targets do not enforce
    "depth=0": lambda: regressor(depth=0),
    "depth=10": lambda: regressor(depth=10, iterations=3),
    "one tree": lambda: regressor(iterations=1),
    "targets large": lambda: regressor(with_targets(lambda y: y + 1e6)),
    "targets tiny": lambda: regressor(with_targets(lambda y: y * 1e-12)),
    "targets constant": lambda: regressor(
        with_targets(lambda y: 0 * y + 3.3), allow_const_label=True, bootstrap_type="No"
    ),
    "threads": lambda: regressor(table(800), thread_count=3, weighted=True),
    "pickled": lambda: pickled(regressor(weighted=True, learning_rate=1 / 3, l2_leaf_reg=0.1)),
    "loaded": lambda: loaded(regressor(weighted=True, learning_rate=1 / 3, l2_leaf_reg=0.1)),
    "loaded json": lambda: loaded(
        regressor(weighted=True, learning_rate=1 / 3, l2_leaf_reg=0.1), "json"
    ),
    "loaded json Lossguide": lambda: loaded(regressor(grow_policy="Lossguide"), "json"),
    "loaded shrink": lambda: loaded(regressor(**SHRINK)),
    "scale": lambda: scaled(regressor(), 2.5, False),
    "scale and bias": lambda: scaled(regressor(weighted=True), -0.4, True),
    "scale continued": lambda: scaled(
        continued({"learning_rate": 0.1, "l2_leaf_reg": 1}, {}), 2.0, True
    ),
    "scale shrink": lambda: scaled(regressor(**SHRINK), 3.0, True),
    "scale boost_from_average=False": lambda: scaled(
        regressor(boost_from_average=False), 2.0, True
    ),
    "multi": lambda: multi(),
    "multi one output": lambda: multi(several(1)),
    "multi weighted": lambda: multi(weighted=True, l2_leaf_reg=0.123),
    "multi Gradient": lambda: multi(
        weighted=True, l2_leaf_reg=0.123, leaf_estimation_method="Gradient"
    ),
    "multi Simple": lambda: multi(weighted=True, leaf_estimation_method="Simple"),
    "multi steps": lambda: multi(**STEPS, weighted=True),
    "multi l2_leaf_reg=0": lambda: multi(l2_leaf_reg=0, weighted=True),
    "multi weights minute": lambda: multi(minute(several()), weighted=True, bootstrap_type="No"),
    "multi weights minute Gradient": lambda: multi(
        minute(several()), weighted=True, bootstrap_type="No", leaf_estimation_method="Gradient"
    ),
    "multi Depthwise": lambda: multi(grow_policy="Depthwise"),
    "multi boost_from_average=False": lambda: multi(boost_from_average=False),
    "multi shrink": lambda: multi(**SHRINK),
    "multi loaded": lambda: loaded(multi(weighted=True)),
    "multi encoded": lambda: encoded(several(), loss_function="MultiRMSE"),
    "multi CatBoost": lambda: multi(kind=cb.CatBoost),
}

CASES: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _MAKERS.items()}

_RANKED_MAKERS: dict[str, Callable[[], Case]] = {
    "MAE": lambda: regressor(loss_function="MAE"),
    "MAE weighted": lambda: regressor(loss_function="MAE", weighted=True),
    "MAE offset": lambda: regressor(loss_function="MAE", offset=True),
    "MAE lossguide": lambda: regressor(loss_function="MAE", grow_policy="Lossguide", max_leaves=12),
    "MAE shrunk": lambda: regressor(loss_function="MAE", model_shrink_rate=0.1),
    "MAE boost_from_average=False": lambda: regressor(
        loss_function="MAE", boost_from_average=False
    ),
    "quantile": lambda: regressor(loss_function="Quantile:alpha=0.9"),
    "quantile delta": lambda: regressor(
        loss_function="Quantile:alpha=0.3;delta=0.01", weighted=True
    ),
    "quantile Bernoulli": lambda: regressor(
        loss_function="Quantile:alpha=0.9", bootstrap_type="Bernoulli", subsample=0.5
    ),
    "MAPE": lambda: regressor(loss_function="MAPE"),
    "MAPE weighted": lambda: regressor(loss_function="MAPE", weighted=True),
}
#: Leaf values are percentiles of the residuals.
RANKED: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _RANKED_MAKERS.items()}

_CUT_MAKERS: dict[str, Callable[[], Case]] = {
    "Huber": lambda: regressor(loss_function="Huber:delta=0.7"),
    "Huber weighted": lambda: regressor(loss_function="Huber:delta=0.7", weighted=True),
    "Huber Gradient weighted": lambda: regressor(
        loss_function="Huber:delta=0.7", leaf_estimation_method="Gradient", weighted=True
    ),
    "Huber whole targets": lambda: regressor(with_targets(np.round), loss_function="Huber:delta=1"),
    "Huber offset Depthwise": lambda: regressor(
        loss_function="Huber:delta=0.7", offset=True, grow_policy="Depthwise", l2_leaf_reg=1.0
    ),
    "Huber loaded": lambda: loaded(regressor(loss_function="Huber:delta=0.7")),
}
#: Residuals are cut off.
CUT: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _CUT_MAKERS.items()}

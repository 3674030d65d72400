"""Random CatBoost models for the fuzzer."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd

from tests.fuzz.data import Data, Draw, Trial, table

SETTINGS: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.01, 0.1, 1 / 3, 0.5, 1.0),
    "depth": (0, 1, 3, 6, 9),
    "l2_leaf_reg": (0.0, 0.123, 50.0),
    "boost_from_average": (False, True),
    "random_strength": (0.0, 5.0),
    "border_count": (1, 7),
    "random_seed": (1, 12345),
    "leaf_estimation_iterations": (2, 5),
    "leaf_estimation_method": ("Newton", "Gradient", "Simple", "Exact"),
    "leaf_estimation_backtracking": ("No", "AnyImprovement"),
    "model_size_reg": (0.5,),
    "nan_mode": ("Max", "Min"),
    "feature_border_type": ("Uniform", "MinEntropy"),
    "score_function": ("L2", "Cosine"),
}
RARE: dict[str, tuple[Any, ...]] = {
    "model_shrink_rate": (0.1, 0.5),
    "model_shrink_mode": ("Decreasing", "Constant"),
    "rsm": (0.5,),
    "has_time": (True,),
    "langevin": (True,),
    "posterior_sampling": (True,),
    "loss_function": (
        "MAE",
        "Quantile",
        "Poisson",
        "Huber:delta=1",
        "Lq:q=3",
        "Expectile:alpha=0.3",
        "MAPE",
        "LogCosh",
    ),
    "approx_on_full_history": (True,),
    "sampling_frequency": ("PerTreeLevel",),
    "one_hot_max_size": (2, 20),
    "sparse_features_conflict_fraction": (0.5,),
}
BOOTSTRAPS: dict[str, dict[str, tuple[Any, ...]]] = {
    "MVS": {"subsample": (0.3, 0.9)},
    "Bernoulli": {"subsample": (0.3, 0.9)},
    "Bayesian": {"bagging_temperature": (0.5, 5.0)},
    "No": {},
}


def settings(draw: Draw, data: Data) -> dict[str, Any]:
    """Parameters of `catboost.CatBoost`."""
    params = {"allow_writing_files": False, "thread_count": 1, "verbose": False}
    params |= draw.some(SETTINGS, 0.25) | draw.some(RARE, 0.04)
    bootstrap = draw.pick("bootstrap_type", None, None, *BOOTSTRAPS)
    if bootstrap is not None:
        params["bootstrap_type"] = bootstrap
        params |= draw.some(BOOTSTRAPS[bootstrap], 0.7)
    policy = draw.pick("grow_policy", *("SymmetricTree",) * 3, "Depthwise", "Lossguide")
    params["grow_policy"] = policy
    if policy != "SymmetricTree":
        params |= draw.some({"min_data_in_leaf": (1, 5)}, 0.5)
    if policy == "Lossguide":
        params |= draw.some({"max_leaves": (2, 13)}, 0.7)
    if policy == "SymmetricTree" and draw.flag("Ordered", 0.3):
        params["boosting_type"] = "Ordered"
    if data.y.ndim == 2:
        params["loss_function"] = "MultiRMSE"
    if policy == "SymmetricTree" and draw.flag("monotone", 0.1):
        params["monotone_constraints"] = [1] + [draw.pick("sign", 0, -1)] * (data.X.shape[1] - 1)
    if draw.ranked:
        losses = (
            "MAE",
            "Quantile:alpha=0.9",
            "Quantile:alpha=0.2;delta=0.01",
            "MAPE",
            "MultiQuantile:alpha=0.2,0.7",
        )
        params = {
            name: value for name, value in params.items() if not name.startswith("leaf_estimation")
        }
        params |= {
            "loss_function": draw.pick("loss_function", *losses),
            "leaf_estimation_method": "Exact",
        }
    return params


def make(draw: Draw) -> Trial:
    """A CatBoost or a CatBoostRegressor, as it was fitted or through a file."""
    data = table(
        draw, forms=("array", "array", "float32", "csr", "frame", "categories"), outputs=True
    )
    params, n_trees = settings(draw, data), draw.pick("trees", 1, 3, 10, 25)
    if draw.chosen["form"] == "categories":
        categories = [f"c{i}" for i in data.categories]
        plain = data.convert

        def convert(rows: Any) -> Any:
            return plain(rows).astype(dict.fromkeys(categories, str))

        data.convert = convert
        params |= {
            "cat_features": categories,
            "one_hot_max_size": draw.pick("one_hot_max_size", 2, 20, 20),
        }
    model = _fit(draw, data, {**params, "iterations": n_trees})
    model = _through(
        model, draw.pick("through", *("memory",) * 6, "cbm", "json", "pickle", "shrunk", "scaled")
    )
    X, X_new = data.convert(data.X), data.convert(data.X_new)
    return Trial(
        model,
        X,
        data.y,
        data.weight,
        data.offset,
        X_new,
        lambda rows: _predict(model, rows),
        lossy(draw.chosen),
    )


CARDINALITIES = (2, 3, 5, 12, 12, 40, 1000)
ENCODINGS: dict[str, tuple[Any, ...]] = {
    "simple_ctr": (
        ["Borders", "Counter"],
        ["Buckets"],
        ["Counter:Prior=0.5/1"],
        ["BinarizedTargetMeanValue"],
        ["Buckets:TargetBorderCount=3", "Borders:CtrBorderCount=40:Prior=0.2/1:Prior=-1/1"],
        ["BinarizedTargetMeanValue:TargetBorderCount=4:TargetBorderType=Median"],
        [
            "Borders:TargetBorderCount=6:TargetBorderType=Uniform",
            "BinarizedTargetMeanValue:TargetBorderCount=2",
        ],
    ),
    "combinations_ctr": (
        ["Borders"],
        ["Buckets:TargetBorderCount=2", "Counter"],
        ["BinarizedTargetMeanValue"],
    ),
    "max_ctr_complexity": (1, 2, 3, 5),
    "model_size_reg": (0, 0, 2),
    "one_hot_max_size": (1, 2, 4, 12),
    "has_time": (True,),
    "counter_calc_method": ("Full", "SkipTest"),
    "store_all_simple_ctr": (True,),
    "fold_permutation_block": (1, 3, 50),
    "ctr_target_border_count": (1, 3),
}
LOSSES = ("RMSE",) * 8 + (
    "Logloss",
    "MultiClass",
    "MultiClassOneVsAll",
    "Poisson",
    "Tweedie:variance_power=1.5",
)


def make_encoded(draw: Draw) -> Trial:
    """A model with columns of categories, of few and of many values, most of which are encoded by the targets.

    A continued model that is shrunk to as many trees as one fit has no trace of its first fit, whose
    settings it has lost.
    """
    data = table(draw, outputs=True)
    rng, n, n_new = draw.rng, len(data.y), len(data.X_new)
    sizes = [
        draw.pick("values", *CARDINALITIES) for _ in range(draw.pick("categories", 1, 2, 3, 4))
    ]
    codes = np.stack([rng.integers(0, size, n + n_new) for size in sizes], axis=1)
    effects = sum(rng.normal(size=size)[codes[:n, i]] for i, size in enumerate(sizes))
    spread = np.ptp(data.y) or 1.0
    data.y = data.y + spread * np.reshape(effects, (n, *[1] * (data.y.ndim - 1)))
    names = [f"k{i}" for i in range(len(sizes))]
    written = draw.pick("written", "text", "numbers", "categories")
    place = int(rng.integers(0, data.X.shape[1] + 1))

    def frame(rows: Any, own: Any) -> Any:
        made = pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])])
        for name, column in zip(names, own.T):
            made.insert(
                place,
                name,
                column if written == "numbers" else [f"value {code}" for code in column],
            )
        return made.astype(dict.fromkeys(names, "category")) if written == "categories" else made

    X, X_new = frame(data.X, codes[:n]), frame(data.X_new, codes[n:])
    params = settings(draw, data) | draw.some(ENCODINGS, 0.3)
    for name in (
        "monotone_constraints",
        "langevin",
        "posterior_sampling",
        "leaf_estimation_method",
    ):  # other subjects
        params.pop(name, None)
    loss = "MultiRMSE" if data.y.ndim == 2 else draw.pick("loss", *LOSSES)
    params["loss_function"] = params.get("loss_function", loss) if loss == "RMSE" else loss
    if params["loss_function"].startswith(("MAE", "Quantile", "MAPE")):
        params["loss_function"] = "RMSE"  # percentiles have trials of their own
    y = data.y
    if loss.startswith(("Log", "MultiClass")):
        data.offset = None
        y = np.digitize(y, np.quantile(y, [0.5] if loss == "Logloss" else [0.3, 0.7])).astype(float)
    elif loss.startswith(("Poisson", "Tweedie")):
        y = np.abs(np.rint(y / (np.abs(y).max() or 1.0) * 10))
    if draw.flag("by column", 0.1):
        params["per_feature_ctr"] = [
            f"{X.columns.get_loc(names[0])}:Borders:TargetBorderCount=2:Prior=0.3/1"
        ]
    if draw.flag("limit", 0.05):
        params["ctr_leaf_count_limit"] = draw.pick("ctr_leaf_count_limit", 2, 5, 500)
    params["iterations"] = draw.pick("trees", 1, 3, 10, 25)
    data.y, data.convert = y, lambda rows: X
    model = _fit(draw, data, {**params, "cat_features": names})
    form = draw.pick("through", *("memory",) * 5, "cbm", "json", "pickle", "shrunk")
    model = _through(model, form)
    return Trial(
        model,
        X,
        y,
        data.weight,
        data.offset,
        X_new,
        lambda rows: _predict(model, rows),
        lossy(draw.chosen) or ("continued" in draw.chosen and form == "shrunk"),
    )


def lossy(chosen: dict[str, Any]) -> bool:
    """Bundled columns overlap; the first of two fits does not keep its settings; CatBoost misplaces nan in sparse columns."""
    changed = "continued" in chosen and (
        chosen.get("leaf_estimation_iterations", 1) > 1
        or chosen["through"] == "scaled"
        or bool(chosen.get("model_shrink_rate"))
    )
    return (
        "sparse_features_conflict_fraction" in chosen
        or changed
        or (chosen["form"] == "csr" and "gaps" in chosen)
    )


def _through(model: Any, form: str) -> Any:
    if form == "pickle":
        return pickle.loads(pickle.dumps(model))
    if form in ("cbm", "json"):
        return _loaded(model, form)
    if form == "shrunk":
        model.shrink(max(1, model.tree_count_ // 2))
    elif form == "scaled":
        scale, bias = model.get_scale_and_bias()
        model.set_scale_and_bias(
            2.5 * scale, 2.5 * np.asarray(bias) if np.ndim(bias) else 2.5 * bias
        )
    return model


def _predict(model: Any, rows: Any) -> Any:
    return model.predict(rows, prediction_type="RawFormulaVal")


def _fit(draw: Draw, data: Data, params: dict[str, Any]) -> Any:
    categories = params.pop("cat_features", None)

    def pool(y: Any = data.y) -> Any:
        X = data.convert(data.X)
        return cb.Pool(X, y, weight=data.weight, baseline=data.offset, cat_features=categories)

    how: dict[str, Any] = {}
    if draw.flag("early stopping", 0.12):
        how = {"eval_set": pool(draw.rng.permutation(data.y)), "early_stopping_rounds": 2}
        params["use_best_model"] = draw.flag("use_best_model", 0.7)
    classes = str(params.get("loss_function")).startswith(("Logloss", "MultiClass"))
    usual = cb.CatBoostClassifier if classes else cb.CatBoostRegressor
    kind = draw.pick("kind", usual, usual, cb.CatBoost)
    if kind is cb.CatBoost:
        params.setdefault("loss_function", "RMSE")
    if draw.flag("continued", 0.08):
        first = {**params, "iterations": 3} | draw.some(
            {"l2_leaf_reg": (1.0, 7.0), "learning_rate": (0.2,)}, 0.5
        )
        first.pop("use_best_model", None)
        how["init_model"] = (cb.CatBoost(first) if kind is cb.CatBoost else kind(**first)).fit(
            pool()
        )
    model = cb.CatBoost(params) if kind is cb.CatBoost else kind(**params)
    return model.fit(pool(), **how)


def _loaded(model: Any, form: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / f"model.{form}")
        model.save_model(path, format=form)
        return type(model)().load_model(path, format=form)

"""Random CatBoost models for the fuzzer."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np

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
    return params


def make(draw: Draw) -> Trial:
    """A CatBoost or a CatBoostRegressor, as it was fitted or through a file."""
    data = table(draw, forms=("array", "array", "float32", "csr", "frame", "categories"), outputs=True)
    params, n_trees = settings(draw, data), draw.pick("trees", 1, 3, 10, 25)
    if draw.chosen["form"] == "categories":
        categories = [f"c{i}" for i in data.categories]
        plain = data.convert

        def convert(rows: Any) -> Any:
            return plain(rows).astype(dict.fromkeys(categories, str))

        data.convert = convert
        params |= {"cat_features": categories, "one_hot_max_size": draw.pick("one_hot_max_size", 2, 20, 20)}
    model = _fit(draw, data, {**params, "iterations": n_trees})
    form = draw.pick("through", *("memory",) * 6, "cbm", "json", "pickle", "shrunk", "scaled")
    if form == "pickle":
        model = pickle.loads(pickle.dumps(model))
    elif form in ("cbm", "json"):
        model = _loaded(model, form)
    elif form == "shrunk":
        model.shrink(max(1, model.tree_count_ // 2))
    elif form == "scaled":
        scale, bias = model.get_scale_and_bias()
        model.set_scale_and_bias(2.5 * scale, 2.5 * np.asarray(bias) if np.ndim(bias) else 2.5 * bias)
    X, X_new = data.convert(data.X), data.convert(data.X_new)
    return Trial(
        model, X, data.y, data.weight, data.offset, X_new, lambda rows: _predict(model, rows), lossy(draw.chosen)
    )


def lossy(chosen: dict[str, Any]) -> bool:
    """Bundled columns overlap; the first of two fits does not keep its settings; CatBoost misplaces nan in sparse columns."""
    changed = "continued" in chosen and (
        chosen.get("leaf_estimation_iterations", 1) > 1 or chosen["through"] == "scaled"
    )
    return "sparse_features_conflict_fraction" in chosen or changed or (chosen["form"] == "csr" and "gaps" in chosen)


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
    kind = draw.pick("kind", cb.CatBoostRegressor, cb.CatBoostRegressor, cb.CatBoost)
    if kind is cb.CatBoost:
        params.setdefault("loss_function", "RMSE")
    if draw.flag("continued", 0.08):
        first = {**params, "iterations": 3} | draw.some({"l2_leaf_reg": (1.0, 7.0), "learning_rate": (0.2,)}, 0.5)
        first.pop("use_best_model", None)
        how["init_model"] = (cb.CatBoost(first) if kind is cb.CatBoost else kind(**first)).fit(pool())
    model = cb.CatBoost(params) if kind is cb.CatBoost else kind(**params)
    return model.fit(pool(), **how)


def _loaded(model: Any, form: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / f"model.{form}")
        model.save_model(path, format=form)
        return type(model)().load_model(path, format=form)

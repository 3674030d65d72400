"""Random LightGBM models for the fuzzer."""

from __future__ import annotations

import pickle
from typing import Any

import lightgbm as lgb
import numpy as np

from tests.adapters.lightgbm_models import VERSION
from tests.fuzz import spaces
from tests.fuzz.data import Array, Data, Draw, Trial, table

SETTINGS: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.01, 0.1, 1 / 3, 0.5, 1.0),
    "num_leaves": (2, 3, 7, 31, 200),
    "min_data_in_leaf": (1, 1, 2, 5, 40),
    "min_sum_hessian_in_leaf": (0.0, 1e-9, 0.5, 5.0),
    "lambda_l2": (0.1234567, 1.0, 50.0),
    "boost_from_average": (False,),
    "max_depth": (1, 3),
    "max_bin": (2, 3, 15),
    "min_data_in_bin": (1,),
    "feature_fraction": (0.4,),
    "feature_fraction_bynode": (0.4,),
    "extra_trees": (True,),
    "min_gain_to_split": (0.5,),
    "force_row_wise": (True,),
    "seed": (1, 2, 12345),
}
RARE: dict[str, tuple[Any, ...]] = {
    "path_smooth": (0.5, 10.0),
    "lambda_l1": (0.5,),
    "max_delta_step": (0.3,),
    "linear_tree": (True,),
    "reg_sqrt": (True,),
    "zero_as_missing": (True,),
    "use_missing": (False,),
    "enable_bundle": (False,),
    "use_quantized_grad": (True,),
    "quant_train_renew_leaf": (True,),
    "bagging_seed": (77,),
    "data_random_seed": (5,),
    "feature_pre_filter": (False,),
    "deterministic": (True,),
    "max_cat_threshold": (2,),
    "objective": (
        "l1",
        "huber",
        "fair",
        "poisson",
        "quantile",
        "mape",
        "gamma",
        "tweedie",
        "binary",
        "cross_entropy",
    ),
}
if VERSION < (4, 2):  # whose texts do not say so, and which aborts where rows have categories
    del RARE["use_quantized_grad"], RARE["quant_train_renew_leaf"]
CATEGORICAL: dict[str, tuple[Any, ...]] = {
    "cat_l2": (0.0, 1.5),
    "cat_smooth": (0.0, 1.0),
    "min_data_per_group": (1, 5),
    "max_cat_to_onehot": (1, 20),
}
DART: dict[str, tuple[Any, ...]] = {
    "drop_rate": (0.05, 0.5, 1.0),
    "skip_drop": (0.0, 0.5, 1.0),
    "max_drop": (1, -1),
    "uniform_drop": (True,),
    "xgboost_dart_mode": (True,),
    "drop_seed": (9,),
}
GOSS: dict[str, tuple[Any, ...]] = {"top_rate": (0.1, 0.5), "other_rate": (0.1, 0.5)}


def settings(draw: Draw, data: Data) -> dict[str, Any]:
    """Parameters of `lgb.train`."""
    params = {
        "objective": "l2",
        "verbose": -1,
        "num_threads": 1,
        **draw.some(SETTINGS, 0.3),
        **draw.some(RARE, 0.02),
    }
    boosting = draw.pick("boosting", "gbdt", "gbdt", "gbdt", "gbdt", "dart", "rf", "goss")
    if boosting == "goss":
        params["data_sample_strategy"] = "goss"
        params |= draw.some(GOSS, 0.5)
    else:
        params["boosting"] = boosting
    if boosting == "dart":
        params |= draw.some(DART, 0.4)
    if boosting == "rf" or draw.flag("bagging", 0.25):
        params["bagging_fraction"] = draw.pick("bagging_fraction", 0.1, 0.5, 0.9, 0.99)
        params["bagging_freq"] = draw.pick("bagging_freq", 1, 1, 3)
    if data.categories:
        params |= draw.some(CATEGORICAL, 0.4)
    if not data.categories and draw.flag(
        "monotone", 0.02
    ):  # LightGBM aborts where there are categories
        params["monotone_constraints"] = [1] + [0] * (data.X.shape[1] - 1)
    if data.X.shape[1] > 1 and draw.flag("interaction", 0.05):
        params["interaction_constraints"] = [[0], list(range(1, data.X.shape[1]))]
    params |= held(draw.aside(), data)
    return ranked(draw, params) if draw.ranked else params


def ranked(draw: Draw, params: dict[str, Any]) -> dict[str, Any]:
    """Medians and quantiles, which take neither constraints nor linear leaves."""
    kept = {
        name: value
        for name, value in params.items()
        if "monotone" not in name and name != "linear_tree"
    }
    kept |= {"objective": draw.pick("objective", "l1", "quantile", "quantile", "mape")}
    return kept | {"alpha": draw.pick("alpha", 0.5, 0.1, 0.9, 1 / 3)}


def held(draw: Draw, data: Data) -> dict[str, Any]:
    """Penalties, steps and constraints whose active set is fixed."""
    params = spaces.regularised(draw, "lambda_l1")
    if not data.categories and draw.flag("constrained", 0.12):
        params["monotone_constraints"] = spaces.signs(
            draw, data.X, data.y, list(range(data.X.shape[1]))
        )
        params |= spaces.drawn(draw, spaces.METHODS, 0.8)
        params |= spaces.drawn(draw, {"monotone_penalty": (0.5, 2.0)}, 0.1)
    return params


def make(draw: Draw) -> Trial:
    """A Booster or an estimator, as it was fitted or through text."""
    data = table(
        draw, forms=("array", "array", "float32", "fortran", "csr", "csc", "frame", "categories")
    )
    params, n_trees = settings(draw, data), draw.pick("trees", 1, 3, 10, 30)
    as_categories = bool(data.categories) and draw.flag("categorical_feature", 0.5)
    y = data.y
    if draw.flag("estimator", 0.3):
        model, y = _estimator(draw, data, params, n_trees)
    else:
        model = _booster(draw, data, params, n_trees, as_categories)
    form = draw.pick("through", *("memory",) * 6, "text", "text", "pickle", "refit", "shorter")
    if (
        form == "refit" and isinstance(model, lgb.Booster) and "linear_tree" not in params
    ):  # refit of those crashes
        model = model.refit(data.convert(data.X), data.y + 1.0, decay_rate=0.5)
    elif form == "shorter":
        inner = getattr(model, "booster_", model)
        model = lgb.Booster(model_str=inner.model_to_string(num_iteration=max(1, n_trees // 2)))
    elif form in ("text", "pickle"):
        inner = getattr(model, "booster_", model)
        model = (
            lgb.Booster(model_str=inner.model_to_string())
            if form == "text"
            else pickle.loads(pickle.dumps(model))
        )
    X, X_new = data.convert(data.X), data.convert(data.X_new)
    # init_model overrides init_score, and GOSS draws from the iteration 1 / learning_rate on.
    lossy = "continued" in draw.chosen and data.offset is not None
    lossy = lossy or ("schedule" in draw.chosen and draw.chosen["boosting"] == "goss")
    weighed = draw.chosen.get("class weights") in ("balanced", "dict")
    # The first tree does not show its rate, and no other tree is left to show that there was a schedule.
    lossy = lossy or ("schedule" in draw.chosen and form == "shorter" and n_trees <= 3)
    lossy = lossy or (
        weighed and isinstance(model, lgb.Booster)
    )  # which an estimator's weights of classes are not in
    predict = _roots(model) if "reg_sqrt" in params else model.predict
    # Before 4.7 weighted percentiles go beyond the rows around them, which multiplies the rounding of targets.
    extrapolates = draw.ranked and data.weight is not None and VERSION < (4, 7)
    base = 1e3 * float(np.abs(data.y).max()) if extrapolates else 0.0
    return Trial(model, X, y, data.weight, data.offset, X_new, predict, lossy, base)


def _booster(
    draw: Draw, data: Data, params: dict[str, Any], n_trees: int, as_categories: bool
) -> Any:
    def dataset(y: Any = data.y) -> Any:
        categories: Any = data.categories if as_categories else "auto"
        return lgb.Dataset(
            data.convert(data.X),
            y,
            weight=data.weight,
            init_score=data.offset,
            categorical_feature=categories,
        )

    callbacks: list[Any] = []
    how: dict[str, Any] = {}
    if draw.flag("schedule", 0.1):
        callbacks.append(lgb.reset_parameter(learning_rate=lambda i: 0.3 * 0.9**i))
    train = dataset()
    if draw.flag("early stopping", 0.1):
        callbacks.append(lgb.early_stopping(2, verbose=False))
        noisy = draw.rng.permutation(data.y)
        how["valid_sets"] = [lgb.Dataset(data.convert(data.X), noisy, reference=train)]
        how["keep_training_booster"] = draw.flag("kept", 0.5)
    if draw.flag("continued", 0.06):
        how["init_model"] = lgb.train(params, dataset(), 3)
    if draw.flag("custom", 0.01):
        params = {
            **params,
            "objective": lambda scores, rows: (scores - rows.get_label(), np.ones(len(scores))),
        }
    model = lgb.train(params, train, n_trees, callbacks=callbacks or None, **how)
    if draw.flag("rollback", 0.03):
        model.rollback_one_iter()
    return model


def _estimator(draw: Draw, data: Data, params: dict[str, Any], n_trees: int) -> tuple[Any, Array]:
    """Return a fitted LGBMRegressor or LGBMClassifier, and the targets or classes that it was fitted to."""
    params, y = dict(params), data.y
    kind: Any = lgb.LGBMRegressor
    extra = draw.aside(2)
    if draw.flag("classifier", 0.05) or extra.flag("classes", 0.15):
        kind, y = lgb.LGBMClassifier, _labels(extra, data.y)
        params = {
            name: value for name, value in params.items() if name not in ("objective", "reg_sqrt")
        }
        params |= class_weights(extra, y)[0]
    how: dict[str, Any] = {}
    if draw.flag("early stopping", 0.15):
        how["eval_set"] = [(data.convert(data.X), draw.rng.permutation(y))]
        how["callbacks"] = [lgb.early_stopping(2, verbose=False)]
    model = kind(n_estimators=n_trees, n_jobs=params.pop("num_threads"), **params)
    return model.fit(
        data.convert(data.X), y, sample_weight=data.weight, init_score=data.offset, **how
    ), y


def _labels(draw: Draw, y: Array) -> Array:
    """Two or three classes, by rank."""
    if len(y) < 3 or not draw.flag("three classes", 0.3):
        return (y > np.median(y)).astype(int)
    return np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))


def class_weights(draw: Draw, y: Array) -> tuple[dict[str, Any], Array]:
    """Return a setting of an LGBMClassifier that weighs classes, and the weights (N,) that it stands for."""
    classes, numbers = np.unique(y, return_inverse=True)
    counts = np.bincount(numbers)
    kinds = ["none", "none", "balanced", "dict"]
    if len(classes) == 2:
        kinds += ["is_unbalance", "scale_pos_weight"]
    kind = draw.pick("class weights", *kinds)
    if kind == "balanced":
        return {"class_weight": "balanced"}, (len(y) / (len(classes) * counts))[numbers]
    if kind == "dict":
        given = {int(label): 0.5 + 2.0 * k for k, label in enumerate(classes)}
        return {"class_weight": given}, np.array(list(given.values()))[numbers]
    if kind == "is_unbalance":  # the smaller class counts as much as the larger one
        return {"is_unbalance": True}, (counts.max() / counts)[numbers]
    if kind == "scale_pos_weight":
        return {"scale_pos_weight": 3.5}, np.where(numbers == 1, 3.5, 1.0)
    return {}, np.ones(len(y))


def _roots(model: Any) -> Any:
    """Predictions with reg_sqrt on the scale of the fit."""

    def predict(rows: Any) -> Any:
        found = model.predict(rows)
        return np.sign(found) * np.sqrt(np.abs(found))

    return predict

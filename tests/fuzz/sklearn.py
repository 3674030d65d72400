"""Random scikit-learn models for the fuzzer: trees, forests, boosting, linear smoothers and pipelines."""

from __future__ import annotations

import pickle
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn import ensemble, linear_model, tree
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

from tests.fuzz import spaces
from tests.fuzz.data import Array, Data, Draw, Trial, table

GROWTH: dict[str, tuple[Any, ...]] = {
    "max_depth": (1, 3, None),
    "min_samples_leaf": (1, 2, 7, 0.1),
    "min_samples_split": (2, 9),
    "max_features": (1, "sqrt", 0.5),
    "max_leaf_nodes": (2, 6, 40),
    "min_weight_fraction_leaf": (0.05,),
    "min_impurity_decrease": (0.01,),
    "ccp_alpha": (0.01,),
}
STAGES: dict[str, tuple[Any, ...]] = {
    **GROWTH,
    "learning_rate": (0.01, 0.1, 1 / 3, 1.0),
    "subsample": (0.2, 0.5, 0.9),
    "criterion": ("squared_error", "friedman_mse"),
    "n_iter_no_change": (2,),
    "validation_fraction": (0.3,),
    "init": (
        "zero",
        DummyRegressor(),
        DummyRegressor(strategy="constant", constant=1.5),
        linear_model.Ridge(),
    ),
}
HIST: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.01, 0.1, 1 / 3, 1.0),
    "max_leaf_nodes": (2, 6, None),
    "max_depth": (1, 3),
    "min_samples_leaf": (1, 2, 40),
    "l2_regularization": (0.5, 20.0),
    "max_features": (0.5,),
    "max_bins": (2, 5),
    "early_stopping": (True, False),
    "validation_fraction": (0.3, None),
    "tol": (1e-3,),
    "n_iter_no_change": (1,),
}
FOREST: dict[str, tuple[Any, ...]] = {
    **GROWTH,
    "bootstrap": (True, False),
    "max_samples": (0.1, 0.5, 1),
}
BAGGING: dict[str, tuple[Any, ...]] = {
    "max_samples": (0.3, 0.9, 1),
    "max_features": (0.5, 1),
    "bootstrap": (False,),
    "bootstrap_features": (True,),
}
RARE = {"criterion": ("absolute_error", "poisson", "friedman_mse")}
CLASS: dict[str, tuple[Any, ...]] = {
    "class_weight": ("balanced", {0: 1.0, 1: 3.0, 2: 0.5}),
    "criterion": ("gini", "entropy", "log_loss"),
}
KINDS = (
    *("GradientBoostingRegressor", "HistGradientBoostingRegressor") * 3,
    *(
        "DecisionTreeRegressor",
        "ExtraTreeRegressor",
        "DecisionTreeClassifier",
        "ExtraTreeClassifier",
    ),
    *(
        "RandomForestRegressor",
        "ExtraTreesRegressor",
        "RandomForestClassifier",
        "ExtraTreesClassifier",
    ),
    *(
        "BaggingRegressor",
        "BaggingClassifier",
        "AdaBoostRegressor",
        "HistGradientBoostingClassifier",
    ),
)


RANKED = (
    *("GradientBoostingRegressor", "HistGradientBoostingRegressor") * 2,
    *("DecisionTreeRegressor", "RandomForestRegressor", "ExtraTreesRegressor"),
)


def _settings(draw: Draw, kind: str, data: Data) -> dict[str, Any]:
    seed = draw.pick("random_state", 0, 7, 7, None, np.random.RandomState(3))
    n = draw.pick("trees", 1, 3, 10, 20)
    if kind.startswith("Hist"):
        found = draw.some(HIST, 0.3) | draw.some(
            {"loss": ("absolute_error", "poisson", "quantile")}, 0.03
        )
        if data.categories and draw.flag("categorical_features", 0.5):
            found["categorical_features"] = data.categories
        if draw.flag("monotone", 0.03):
            found["monotonic_cst"] = [1] + [0] * (data.X.shape[1] - 1)
        found |= (
            {"loss": draw.pick("loss", "absolute_error", "quantile"), "quantile": 0.3}
            if draw.ranked
            else {}
        )
        return {**found, "max_iter": n, "random_state": seed}
    if kind.startswith("GradientBoosting"):
        found = draw.some(STAGES, 0.25) | draw.some(
            {"loss": ("absolute_error", "huber", "quantile")}, 0.03
        )
        found |= {"loss": draw.pick("loss", "absolute_error", "quantile")} if draw.ranked else {}
        return {**found, "n_estimators": n, "random_state": seed}
    if kind.startswith("AdaBoost"):
        return {"n_estimators": n, "random_state": seed}
    if kind.startswith("Bagging"):
        return {
            **draw.some(BAGGING, 0.4),
            "n_estimators": n,
            "random_state": seed,
            **_bagged(draw, kind),
        }
    single = kind in (
        "DecisionTreeRegressor",
        "ExtraTreeRegressor",
        "DecisionTreeClassifier",
        "ExtraTreeClassifier",
    )
    found = draw.some(GROWTH if single else FOREST, 0.25)
    if kind.endswith("Classifier"):
        found |= draw.some(CLASS, 0.4)
        if not single and draw.flag("balanced_subsample", 0.15):
            found["class_weight"] = "balanced_subsample"
    else:
        found |= {"criterion": "absolute_error"} if draw.ranked else draw.some(RARE, 0.06)
    if draw.flag("monotone", 0.03):
        found["monotonic_cst"] = [1] + [0] * (data.X.shape[1] - 1)
    return {**found, "random_state": seed, **({} if single else {"n_estimators": n})}


def _bagged(draw: Draw, kind: str) -> dict[str, Any]:
    if kind == "BaggingClassifier":
        inner: tuple[Any, ...] = (
            None,
            tree.DecisionTreeClassifier(class_weight="balanced", max_depth=3),
        )
    else:
        inner = (None, None, tree.ExtraTreeRegressor(max_depth=4), linear_model.Ridge())
    return {"estimator": draw.pick("estimator", *inner)}


def _held(draw: Draw, kind: str, data: Data) -> dict[str, Any]:
    """Monotone constraints for some models of the kinds that take them."""
    usable = [i for i in range(data.X.shape[1]) if i not in data.categories]
    if (
        kind.startswith(("GradientBoosting", "AdaBoost", "Bagging"))
        or not usable
        or not draw.flag("constrained", 0.15)
    ):
        return {}
    return {
        "monotonic_cst": spaces.signs(draw, data.X, data.y.reshape(len(data.y), -1)[:, 0], usable)
    }


def make(draw: Draw) -> Trial:
    """Trees, forests and boosting."""
    kind = draw.pick("kind", *(RANKED if draw.ranked else KINDS))
    several = kind.endswith("Regressor") and "Boosting" not in kind and "Ada" not in kind
    forms = ("array", "array", "float32", "fortran", "frame") + (
        ("csr", "csc") if "Hist" not in kind else ()
    )
    data = table(draw, forms=forms, outputs=several)
    model = getattr(ensemble, kind, None) or getattr(tree, kind)
    model = model(**_settings(draw, kind, data) | _held(draw.aside(), kind, data))
    y: Any = data.y
    if kind.endswith("Classifier"):
        edges = np.quantile(y, [0.3, 0.8])
        y = np.searchsorted(edges, y)
        if not isinstance(draw.chosen.get("class_weight"), dict) and draw.flag("labels", 0.4):
            y = np.array(["low", "mid", "top"])[y]
    X, X_new = data.convert(data.X), data.convert(data.X_new)
    model.fit(X, y, **({} if data.weight is None else {"sample_weight": data.weight}))
    if draw.flag("warm", 0.05) and "n_estimators" in model.get_params():
        model.set_params(warm_start=True, n_estimators=model.n_estimators + 3)
        model.fit(X, y, **({} if data.weight is None else {"sample_weight": data.weight}))
    if draw.flag("pickle", 0.1):
        model = pickle.loads(pickle.dumps(model))
    if not np.isfinite(np.asarray(_predict(model)(X), dtype=float)).all():
        raise RuntimeError("a sample without weight left leaves that are not numbers")
    lossy = "gaps" in draw.chosen and misplaces_missing_values(model, np.asarray(X), data.weight)
    return Trial(model, X, y, data.weight, None, X_new, _predict(model), lossy, base=1.5)


def misplaces_missing_values(model: BaseEstimator, X: Array, weight: Array | None) -> bool:
    """Whether trees were fitted to rows in other leaves than they have the same rows in now.

    Trees of scikit-learn before 1.8 do so with missing values. They do not count rows of weight zero.
    """
    if weight is None:
        weight = np.ones(len(X))
    if hasattr(model, "tree_"):
        trees = [model]
        samples = [np.arange(len(X))]
    elif type(model).__name__.startswith(("RandomForest", "ExtraTrees")):
        trees = list(model.estimators_)
        samples = [np.arange(len(X))] * len(trees)
        if model.bootstrap:
            samples = [np.unique(rows) for rows in model.estimators_samples_]
    else:
        return False
    for tree_model, sample in zip(trees, samples):
        nodes = tree_model.tree_
        rows = sample[weight[sample] > 0]
        counts = np.bincount(nodes.apply(X[rows].astype(np.float32)), minlength=nodes.node_count)
        is_leaf = nodes.children_left < 0
        if (counts != nodes.n_node_samples)[is_leaf].any():
            return True
    return False


def _predict(model: Any) -> Any:
    return getattr(model, "predict_proba", model.predict)


def _smoother(draw: Draw) -> Any:
    kind = draw.pick(
        "smoother",
        "linear",
        "ridge",
        "ridge cv",
        "kernel",
        "neighbours",
        "radius",
        "process",
        "lasso",
    )
    on = draw.pick("fit_intercept", True, True, False)
    alpha = draw.pick("alpha", 1e-3, 1.0, 30.0)
    if kind == "linear":
        return linear_model.LinearRegression(fit_intercept=on, positive=draw.flag("positive", 0.03))
    if kind == "ridge":
        solver = draw.pick("solver", "auto", "auto", "svd", "cholesky", "lsqr")
        return linear_model.Ridge(alpha, fit_intercept=on, solver=solver)
    if kind == "ridge cv":
        return linear_model.RidgeCV(
            [0.1, 1.0, 10.0], fit_intercept=on, alpha_per_target=draw.flag("own", 0.1)
        )
    if kind == "kernel":
        return KernelRidge(
            alpha=alpha, kernel=draw.pick("kernel", "linear", "rbf", "laplacian", "poly")
        )
    if kind == "neighbours":
        return KNeighborsRegressor(
            draw.pick("k", 1, 2, 5), weights=draw.pick("by", "uniform", "distance")
        )
    if kind == "radius":
        return RadiusNeighborsRegressor(
            draw.pick("radius", 2.0, 1e12), weights=draw.pick("by", "uniform", "distance")
        )
    if kind == "lasso":
        return linear_model.Lasso(alpha)
    kernel = RBF(2.0) + WhiteKernel(0.5)
    optimizer = draw.pick("optimizer", None, None, "fmin_l_bfgs_b")
    return GaussianProcessRegressor(
        kernel, optimizer=optimizer, normalize_y=draw.flag("normalize_y", 0.5), alpha=alpha
    )


def make_smoother(draw: Draw) -> Trial:
    """Linear smoothers, and pipelines of all kinds."""
    piped = draw.flag("pipeline", 0.4)
    data = table(
        draw, gaps=piped, forms=("array", "array", "float32", "frame", "csr"), outputs=not piped
    )
    model = _pipeline(draw) if piped else _smoother(draw)
    transformed = draw.flag("transformed targets", 0.1)
    if transformed:
        model = TransformedTargetRegressor(model, func=np.arcsinh, inverse_func=np.sinh)
    X, X_new = data.convert(data.X), data.convert(data.X_new)
    last = model.steps[-1][0] if piped and hasattr(model, "steps") else ""
    takes = not piped and isinstance(
        model, (linear_model.LinearRegression, linear_model.Ridge, KernelRidge)
    )
    weight = data.weight if takes or (last in _WEIGHTED and data.weight is not None) else None
    how = {} if weight is None else {f"{last}__sample_weight" if last else "sample_weight": weight}
    model.fit(X, data.y, **how)
    fixed = (
        {"kernel": model.kernel_, "optimizer": None} if hasattr(model, "kernel_") else {}
    )  # as the weights hold it
    other = piped or isinstance(model, linear_model.RidgeCV) or iterative(draw.chosen)
    refit = (
        None
        if other or transformed
        else lambda y: clone(model).set_params(**fixed).fit(X, y, **how)
    )
    predict = model.regressor_.predict if transformed else model.predict  # on the scale of the fit
    lossy = isinstance(model, linear_model.RidgeCV) and not _settled(model, X, data.y, X_new)
    return Trial(model, X, data.y, weight, None, X_new, predict, lossy, refit=refit)


def _settled(model: Any, X: Any, y: Any, X_new: Any) -> bool:
    """Whether the same rows in another order make the same model: where not, the fit is rounding and nothing else."""
    own, backwards = model.predict(X_new), clone(model).fit(X[::-1], y[::-1]).predict(X_new)
    return bool(np.abs(own - backwards).max() <= 1e-6 * max(np.abs(own).max(), np.abs(y).max()))


def iterative(chosen: dict[str, Any]) -> bool:
    """Whether the solver stops early, as those for sparse features do, or loses digits to columns of very different sizes."""
    last = str(chosen.get("last", chosen.get("smoother")))
    solved = last.startswith(("ridge", "Ridge", "linear", "kernel", "process"))
    rough = (
        chosen["form"] in ("csr", "float32")
        or "huge" in chosen["kinds"]
        or chosen.get("solver") == "lsqr"
    )
    return solved and (rough or chosen.get("step") is OneHotEncoder)


_WEIGHTED = ("lgbmregressor", "xgbregressor", "randomforestregressor", "ridge")


def _pipeline(draw: Draw) -> Any:
    steps: list[Any] = [SimpleImputer()]
    extra = draw.pick("step", None, StandardScaler, OneHotEncoder, SelectKBest, TargetEncoder)
    if extra is SelectKBest:
        steps.append(SelectKBest(f_regression, k=1))
    elif extra is OneHotEncoder:
        steps.append(OneHotEncoder(handle_unknown="ignore"))
    elif extra is not None:
        steps.append(extra() if extra is not TargetEncoder else TargetEncoder(cv=2))
    lasts = (
        lgb.LGBMRegressor(n_estimators=5, min_child_samples=2, n_jobs=1, verbose=-1),
        xgb.XGBRegressor(n_estimators=5, n_jobs=1),
        ensemble.RandomForestRegressor(5, random_state=0),
        linear_model.Ridge(),
        KNeighborsRegressor(2),
    )
    return make_pipeline(*steps, draw.pick("last", *lasts))

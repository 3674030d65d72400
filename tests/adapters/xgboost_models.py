"""Real XGBoost models, one for each setting that decides how leaves are built, with the data they were fitted on."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb
from numpy.typing import NDArray
from scipy import sparse

from tests.adapters import common
from tests.adapters.common import Data

QUIET: dict[str, Any] = {"nthread": 1, "verbosity": 0, "seed": 7}
N_ROWS, N_NEW, N_TREES = 400, 60, 10
VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])
OLD = VERSION < (3, 1)


@dataclass(frozen=True)
class Case:
    model: Any
    X: Any
    y: NDArray[np.float64]
    sample_weight: NDArray[np.float64] | None
    base_margin: NDArray[np.float64] | None
    X_new: Any

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(n, K): what the model predicts by default, by its own means."""
        booster = isinstance(self.model, xgb.Booster)
        types = self.model.feature_types if booster and isinstance(X, np.ndarray) else None
        rows = xgb.DMatrix(X, feature_types=types, enable_categorical=True) if booster else X
        return np.asarray(self.model.predict(rows), dtype=np.float64).reshape(X.shape[0], -1)


def table(n_rows: int = N_ROWS, seed: int = 0) -> Data:
    """The table that all libraries are tried on."""
    return common.table(n_rows, N_NEW, seed)


def booster(
    data: Data | None = None,
    *,
    weighted: bool = False,
    margin: bool = False,
    n_trees: int = N_TREES,
    convert: Callable[[Any], Any] = lambda X: X,
    callbacks: Any = None,
    xgb_model: Any = None,
    matrix: dict[str, Any] | None = None,
    **params: Any,
) -> Case:
    """A Booster with these parameters, on the data as ``convert`` turns it."""
    data = table() if data is None else data
    X, weight, offset = (
        convert(data.X),
        data.weight if weighted else None,
        data.offset if margin else None,
    )
    rows = xgb.DMatrix(
        X, data.y, weight=weight, base_margin=offset, enable_categorical=True, **(matrix or {})
    )
    model = xgb.train(
        {**QUIET, "max_depth": 4, **params}, rows, n_trees, callbacks=callbacks, xgb_model=xgb_model
    )
    return Case(model, X, data.y, weight, offset, convert(data.X_new))


def regressor(
    data: Data | None = None,
    *,
    weighted: bool = False,
    margin: bool = False,
    kind: type = xgb.XGBRegressor,
    convert: Callable[[Any], Any] = lambda X: X,
    **params: Any,
) -> Case:
    """An XGBRegressor, or another estimator, with these parameters."""
    data = table() if data is None else data
    weight, offset = data.weight if weighted else None, data.offset if margin else None
    model = kind(**{"n_estimators": N_TREES, "max_depth": 4, "n_jobs": 1, **params})
    model.fit(convert(data.X), data.y, sample_weight=weight, base_margin=offset)
    return Case(model, convert(data.X), data.y, weight, offset, convert(data.X_new))


def with_targets(change: Callable[[NDArray[np.float64]], Any], n_rows: int = N_ROWS) -> Data:
    """The table with other targets."""
    data = table(n_rows)
    return replace(data, y=np.asarray(change(data.y), dtype=np.float64))


def three(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Three targets in place of one."""
    return np.stack([y, np.sqrt(np.abs(y)) * 3, 100 - y[::-1]], axis=1)


def with_margins() -> Data:
    """Three targets and a margin for each."""
    data = with_targets(three)
    return replace(data, offset=data.y + np.random.default_rng(5).normal(size=data.y.shape))


def with_gaps(gap: float = np.nan) -> Data:
    """The table with a fifth of its entries missing."""
    data, rng = table(), np.random.default_rng(1)
    X, X_new = (np.where(rng.random(A.shape) < 0.2, gap, A) for A in (data.X, data.X_new))
    return replace(data, X=X, X_new=X_new)


def categories(X: NDArray[np.float64]) -> pd.DataFrame:
    """The table as a frame with two category columns, some of their entries missing."""
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame["f"] = pd.Categorical.from_codes(X[:, 5].astype(int), ["low", "mid", "high"])
    codes = np.where(X[:, 6] > 10, -1, X[:, 6]).astype(int)
    frame["g"] = pd.Categorical.from_codes(codes, [f"c{i}" for i in range(12)])
    return frame


def early_stopped(**params: Any) -> Case:
    """An XGBRegressor that trained on beyond its best iteration."""
    data = table()
    model = xgb.XGBRegressor(
        n_estimators=60, learning_rate=0.4, n_jobs=1, early_stopping_rounds=5, **params
    )
    noisy = data.y + np.random.default_rng(3).normal(size=N_ROWS) * 3
    model.fit(data.X, data.y, eval_set=[(data.X, noisy)], verbose=False)
    return Case(model, data.X, data.y, None, None, data.X_new)


def native(case: Case) -> Case:
    """The booster inside."""
    return replace(case, model=case.model.get_booster())


def loaded(case: Case, form: str = "ubj") -> Case:
    """The same model through a file's contents."""
    model = case.model if isinstance(case.model, xgb.Booster) else case.model.get_booster()
    copy = xgb.Booster({"nthread": 1})
    copy.load_model(model.save_raw(form))
    return replace(case, model=copy)


def set_again(**params: Any) -> Case:
    """A loaded model that was given the settings again that a file does not keep."""
    case = loaded(booster(**params))
    case.model.set_param(params)
    return case


def pickled(case: Case) -> Case:
    return replace(case, model=pickle.loads(pickle.dumps(case.model)))


def reset(case: Case, **params: Any) -> Case:
    """A loaded model that was told its settings again."""
    case.model.set_param(params)
    return case


def decay(i: int) -> float:
    return 0.3 * 0.9**i


def schedule() -> list[Any]:
    return [xgb.callback.LearningRateScheduler(decay)]


METHODS = ("hist", "approx", "exact")
CAT: dict[str, Any] = {"matrix": {"feature_types": ["q"] * 5 + ["c", "c", "q"]}}
DART: dict[str, Any] = {"booster": "dart", "n_trees": 15, "rate_drop": 0.3}
DARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "skip_drop": {"skip_drop": 0.5},
    "one_drop": {"rate_drop": 0.02, "one_drop": 1},
    "weighted": {"sample_type": "weighted"},
    "weighted one_drop": {"rate_drop": 0.02, "one_drop": 1, "sample_type": "weighted"},
    "forest": {"normalize_type": "forest"},
    "parallel": {"num_parallel_tree": 2},
    "no drops": {"rate_drop": 0.0},
}
FOREST: dict[str, Any] = {"num_parallel_tree": 3, "subsample": 0.7, "n_trees": 4}
MONOTONE = "(1,1,-1,1,0,0,0,-1)"  # with and against what the targets do
OUTPUTS = {
    "one_output_per_tree": "hist",
    "multi_output_tree": "hist",
    "one_output_per_tree exact": "exact",
}


def outputs(name: str, **params: Any) -> Case:
    """A model of three outputs; before 3.1 an estimated base is one number for all, which is refused."""
    if OLD:
        params = {"base_score": 0.5, **params}
    strategy = name.split()[0]
    return booster(
        with_targets(three),
        multi_strategy=strategy,
        tree_method=OUTPUTS.get(name, "hist"),
        **params,
    )


_MAKERS: dict[str, Callable[[], Case]] = {
    "regressor": lambda: regressor(),
    "regressor weighted": lambda: regressor(weighted=True, reg_lambda=0.7),
    "regressor pickled": lambda: pickled(regressor(weighted=True, reg_lambda=0.7, subsample=0.8)),
    "regressor forest": lambda: regressor(kind=xgb.XGBRFRegressor),
    "regressor forest weighted": lambda: regressor(
        kind=xgb.XGBRFRegressor, weighted=True, reg_lambda=2.0
    ),
    "regressor missing=-1": lambda: regressor(with_gaps(-1.0), missing=-1.0),
    **{f"{m}": lambda m=m: booster(tree_method=m) for m in METHODS},  # type: ignore[misc]
    **{f"{m} weighted": lambda m=m: booster(tree_method=m, weighted=True) for m in METHODS},  # type: ignore[misc]
    **{f"{m} gamma=3": lambda m=m: booster(tree_method=m, gamma=3.0) for m in METHODS},  # type: ignore[misc]
    **{f"{m} nan": lambda m=m: booster(with_gaps(), tree_method=m) for m in METHODS},  # type: ignore[misc]
    **{  # type: ignore[misc]
        f"{m} colsample": lambda m=m: booster(
            tree_method=m, colsample_bytree=0.6, colsample_bylevel=0.6, subsample=0.8
        )
        for m in METHODS
    },
    **{  # type: ignore[misc]
        f"{m} subsample={share} seed={seed}": lambda m=m, share=share, seed=seed: booster(
            tree_method=m, subsample=share, seed=seed
        )
        for m in METHODS
        for share, seed in ((0.5, 0), (0.9, 12345), (0.999, -4))
    },
    **{  # type: ignore[misc]
        f"{m} subsample weighted": lambda m=m: booster(
            table(800), tree_method=m, subsample=0.6, weighted=True
        )
        for m in METHODS
    },
    **{  # type: ignore[misc]
        f"{m} seed_per_iteration": lambda m=m: booster(
            tree_method=m, subsample=0.6, seed_per_iteration=True
        )
        for m in METHODS
    },
    **{f"{m} forests": lambda m=m: booster(tree_method=m, **FOREST) for m in METHODS},  # type: ignore[misc]
    **{  # type: ignore[misc]
        f"{m} dart subsample": lambda m=m: booster(tree_method=m, subsample=0.8, **DART)
        for m in METHODS
    },
    **{f"dart {name}": lambda how=how: booster(**{**DART, **how}) for name, how in DARTS.items()},  # type: ignore[misc]
    "dart no drops rate schedule": lambda: booster(booster="dart", callbacks=schedule()),
    "dart outputs": lambda: outputs("one_output_per_tree", **DART),
    "dart early stopping": lambda: early_stopped(booster="dart", rate_drop=0.2),
    "dart pickled": lambda: pickled(booster(weighted=True, **DART)),
    **{f"{name}": lambda name=name: outputs(name) for name in OUTPUTS},  # type: ignore[misc]
    **{
        f"{name} weighted": lambda name=name: outputs(name, weighted=True, eta=0.1)
        for name in OUTPUTS
    },  # type: ignore[misc]
    **{  # type: ignore[misc]
        f"{name} forests": lambda name=name: outputs(
            name, num_parallel_tree=2, subsample=0.6, n_trees=4
        )
        for name in OUTPUTS
    },
    **{
        f"{name} loaded": lambda name=name: loaded(outputs(name, eta=0.15, reg_lambda=0.4))
        for name in OUTPUTS
    },  # type: ignore[misc]
    "outputs base_score=2": lambda: outputs("one_output_per_tree", base_score=2.0),
    "reg_lambda=0": lambda: booster(reg_lambda=0.0),
    "reg_lambda=12.345678": lambda: booster(reg_lambda=12.345678),
    "eta=1/3": lambda: booster(eta=1 / 3),
    "eta=1": lambda: booster(eta=1.0),
    "eta=0.01": lambda: booster(eta=0.01),
    "lossguide": lambda: booster(grow_policy="lossguide", max_leaves=20, max_depth=0),
    "max_leaves": lambda: booster(max_leaves=6),
    "deep": lambda: booster(
        table(800), max_depth=12, min_child_weight=0, n_trees=4, reg_lambda=0.1
    ),
    "deep exact": lambda: booster(
        table(800), max_depth=12, tree_method="exact", n_trees=4, gamma=0.5
    ),
    "stumps": lambda: booster(max_depth=1, n_trees=20),
    "stumps reg_lambda=0": lambda: booster(max_depth=1, reg_lambda=0.0),
    "min_child_weight=30": lambda: booster(min_child_weight=30, weighted=True),
    "min_child_weight=1000": lambda: booster(min_child_weight=1000),
    "multi_output_tree min_child_weight=4": lambda: outputs(
        "multi_output_tree", min_child_weight=4, weighted=True
    ),
    "multi_output_tree min_child_weight=4 loaded": lambda: loaded(
        outputs("multi_output_tree", min_child_weight=4, weighted=True, eta=0.2)
    ),
    "one leaf": lambda: booster(gamma=1e9),
    "one leaf exact": lambda: booster(gamma=1e9, tree_method="exact"),
    "one leaf base_score=0": lambda: booster(gamma=1e9, base_score=0.0),
    "one tree": lambda: booster(n_trees=1),
    "base_score=0": lambda: booster(base_score=0.0),
    "base_score=3.3 weighted": lambda: booster(base_score=3.3, weighted=True),
    "base_margin": lambda: booster(margin=True),
    "base_margin base_score=0": lambda: booster(margin=True, base_score=0.0),
    "base_margin base_score=2 weighted": lambda: booster(
        margin=True, base_score=2.0, weighted=True
    ),
    "base_margin outputs": lambda: booster(with_margins(), margin=True, base_score=0.5),
    "base_margin multi_output_tree": lambda: booster(
        with_margins(),
        margin=True,
        base_score=0.5,
        multi_strategy="multi_output_tree",
        tree_method="hist",
    ),
    "base_margin forests": lambda: booster(margin=True, **FOREST),
    "regressor base_margin": lambda: regressor(margin=True, weighted=True),
    "targets large": lambda: booster(with_targets(lambda y: y * 10 + 1e5)),
    "targets tiny": lambda: booster(with_targets(lambda y: y * 1e-12)),
    "targets constant": lambda: booster(with_targets(lambda y: 0 * y + 3.3)),
    "targets zero": lambda: booster(with_targets(lambda y: 0 * y)),
    "weights some zero": lambda: booster(
        replace(table(), weight=np.maximum(table().weight - 1.5, 0)), weighted=True
    ),
    "weights some zero min_child_weight=0": lambda: booster(
        replace(table(), weight=np.maximum(table().weight - 1.5, 0)),
        weighted=True,
        min_child_weight=0,
        max_depth=8,
    ),
    "rate schedule": lambda: booster(callbacks=schedule()),
    "rate schedule loaded": lambda: loaded(booster(callbacks=schedule())),
    "rate schedule stumps": lambda: booster(callbacks=schedule(), max_depth=1),
    "rate schedule forests": lambda: booster(callbacks=schedule(), **FOREST),
    "rate schedule subsample": lambda: booster(callbacks=schedule(), subsample=0.5),
    "early stopping": lambda: early_stopped(),
    "early stopping, all trees": lambda: native(early_stopped()),
    "early stopping forests": lambda: early_stopped(num_parallel_tree=2),
    "early stopping subsample": lambda: early_stopped(subsample=0.7),
    "continued": lambda: booster(xgb_model=booster().model),
    "continued with other settings": lambda: booster(
        xgb_model=booster(reg_lambda=3.0, eta=0.1).model, reg_lambda=0.5, eta=0.2
    ),
    "categorical": lambda: booster(**CAT),
    "categorical one-hot": lambda: booster(**CAT, max_cat_to_onehot=20),
    "categorical weighted approx": lambda: booster(**CAT, weighted=True, tree_method="approx"),
    "categorical nan": lambda: booster(with_gaps(), **CAT, subsample=0.8),
    "categorical frame": lambda: booster(convert=categories),
    "categorical frame regressor": lambda: regressor(
        convert=categories, enable_categorical=True, tree_method="hist"
    ),
    "csr": lambda: booster(convert=sparse.csr_matrix),
    "csc": lambda: booster(convert=sparse.csc_matrix),
    "float32 frame": lambda: booster(convert=lambda X: pd.DataFrame(X.astype(np.float32))),
    "interaction_constraints": lambda: booster(
        interaction_constraints="[[0, 1, 2], [3, 4, 5, 6, 7]]"
    ),
    "reg_alpha=2": lambda: booster(reg_alpha=2.0),
    "reg_alpha weighted scheduled": lambda: booster(
        reg_alpha=1 / 3, weighted=True, callbacks=schedule()
    ),
    "reg_alpha subsample": lambda: booster(reg_alpha=1.0, subsample=0.6, weighted=True),
    "reg_alpha dart": lambda: booster(reg_alpha=1.0, **DART),
    "reg_alpha forests": lambda: booster(reg_alpha=1.0, **FOREST),
    "reg_alpha=500": lambda: booster(reg_alpha=500.0),
    "max_delta_step=0.2": lambda: booster(max_delta_step=0.2, weighted=True),
    "max_delta_step loaded": lambda: set_again(max_delta_step=0.3, reg_alpha=0.5, reg_lambda=2.0),
    "monotone": lambda: booster(monotone_constraints=MONOTONE),
    "monotone short, margin": lambda: booster(monotone_constraints="(1,0,-1)", margin=True),
    "monotone exact pruned weighted": lambda: booster(
        monotone_constraints=MONOTONE,
        tree_method="exact",
        gamma=1.0,
        min_child_weight=5.0,
        weighted=True,
    ),
    "monotone approx lossguide": lambda: booster(
        monotone_constraints=MONOTONE, tree_method="approx", grow_policy="lossguide", max_leaves=12
    ),
    "monotone reg_alpha max_delta_step": lambda: booster(
        monotone_constraints=MONOTONE, reg_alpha=1.0, max_delta_step=0.5, weighted=True
    ),
    "monotone subsample": lambda: booster(monotone_constraints=MONOTONE, subsample=0.6),
    "monotone dart": lambda: booster(monotone_constraints=MONOTONE, **DART),
    "monotone forests": lambda: booster(monotone_constraints=MONOTONE, **FOREST),
    "monotone outputs": lambda: outputs("one_output_per_tree", monotone_constraints=MONOTONE),
    "reg_alpha max_delta_step multi_output_tree": lambda: outputs(
        "multi_output_tree", reg_alpha=1.0, max_delta_step=0.4, weighted=True, subsample=0.8
    ),
    "monotone names": lambda: regressor(
        convert=lambda X: pd.DataFrame(X, columns=list("abcdefgh")),
        monotone_constraints={"a": 1, "c": -1, "h": 1},
    ),
    "monotone interaction_constraints": lambda: booster(
        monotone_constraints=MONOTONE, interaction_constraints="[[0, 1, 2], [3, 4, 5, 6, 7]]"
    ),
    "monotone_constraints=0": lambda: booster(monotone_constraints="(0,0,0,0,0,0,0,0)"),
    "max_bin=7": lambda: booster(max_bin=7),
    "threads": lambda: booster(table(800), nthread=2, weighted=True, subsample=0.5),
    "loaded": lambda: loaded(booster(eta=0.17, reg_lambda=2.5)),
    "loaded json": lambda: loaded(booster(eta=1 / 3, reg_lambda=0.1234567, weighted=True), "json"),
    "loaded reg_lambda=0": lambda: loaded(booster(eta=0.05, reg_lambda=0.0)),
    "loaded reg_lambda=500": lambda: loaded(booster(eta=0.05, reg_lambda=500.0)),
    "loaded exact": lambda: loaded(booster(eta=0.4, reg_lambda=0.3, tree_method="exact")),
    "loaded stumps": lambda: loaded(booster(eta=0.4, reg_lambda=7.0, max_depth=1)),
    "loaded forests": lambda: loaded(
        booster(eta=0.4, reg_lambda=7.0, num_parallel_tree=2, colsample_bynode=0.5)
    ),
    "loaded base_margin": lambda: loaded(booster(eta=0.4, reg_lambda=7.0, margin=True)),
    "loaded subsample, set again": lambda: reset(
        loaded(booster(subsample=0.5)), subsample=0.5, seed=7
    ),
}

CASES: dict[str, Callable[[], Case]] = {name: cache(make) for name, make in _MAKERS.items()}

_HIGH: dict[str, Any] = {"objective": "reg:quantileerror", "quantile_alpha": 0.9}
_MAE: dict[str, Any] = {"objective": "reg:absoluteerror"}
_RANKED_MAKERS: dict[str, Callable[[], Case]] = {
    "quantile": lambda: booster(**_HIGH),
    "quantile weighted subsample": lambda: regressor(weighted=True, subsample=0.7, **_HIGH),
    "quantile dart": lambda: booster(booster="dart", rate_drop=0.4, **_HIGH),
    "quantile 1/3 loaded": lambda: loaded(
        booster(objective="reg:quantileerror", quantile_alpha=1 / 3)
    ),
    "absolute error": lambda: regressor(**_MAE),
    "absolute error weighted": lambda: booster(weighted=True, **_MAE),
    "absolute error base_score": lambda: booster(base_score=3.0, **_MAE),
    "absolute error parallel": lambda: booster(num_parallel_tree=3, subsample=0.8, **_MAE),
    "absolute error regularised": lambda: booster(
        alpha=1.0, max_delta_step=0.3, reg_lambda=5.0, **_MAE
    ),
    "absolute error three targets": lambda: regressor(with_targets(three), **_MAE),
    "absolute error vector leaves": lambda: regressor(
        with_targets(three), multi_strategy="multi_output_tree", **_MAE
    ),
}
if (
    VERSION
    < (
        3,
        1,
    )
):  # parallel trees and vector leaves of medians are not trained, and all outputs start from one number
    for _name in ("parallel", "three targets", "vector leaves"):
        del _RANKED_MAKERS[f"absolute error {_name}"]

_TRAINED_BEFORE = Path(__file__).with_name(
    "percentile_models.zip"
)  # `_RANKED_MAKERS` of XGBoost 3.2
_RANKED_DATA: dict[str, Callable[[], Data]] = {
    "absolute error three targets": lambda: with_targets(three),
    "absolute error vector leaves": lambda: with_targets(three),
}
_LOST: dict[str, dict[str, Any]] = {  # settings that files do not keep
    "quantile weighted subsample": {"subsample": 0.7, "seed": 0},
    "quantile dart": {"rate_drop": 0.4, "seed": 7},
    "absolute error parallel": {"subsample": 0.8, "seed": 7},
}


def trained_before(name: str) -> Case:
    """A model of percentiles that XGBoost 3.2 trained: from 3.4 on leaf values are Newton steps."""
    data = _RANKED_DATA.get(name, table)()
    model = xgb.Booster(QUIET)
    model.load_model(
        bytearray(zipfile.ZipFile(_TRAINED_BEFORE).read(f"{name.replace('/', ' ')}.ubj"))
    )
    model.set_param(_LOST.get(name, {}))
    weight = data.weight if "weighted" in name else None
    return Case(model, data.X, data.y, weight, None, data.X_new)


#: Models whose leaf values are percentiles of the residuals.
RANKED: dict[str, Callable[[], Case]] = {
    name: cache(make if VERSION < (3, 4) else partial(trained_before, name))
    for name, make in _RANKED_MAKERS.items()
}

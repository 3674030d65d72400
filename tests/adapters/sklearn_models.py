"""Real scikit-learn models, one for each setting that decides how leaves are built, with the data they were fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn import ensemble, tree
from sklearn.dummy import DummyRegressor

Array = NDArray[np.float64]

N_ROWS, N_NEW, N_TREES = 300, 50, 8
VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


@dataclass(frozen=True)
class Case:
    model: Any
    X: Any
    y: NDArray[Any]
    sample_weight: Array | None
    X_new: Any

    @property
    def targets(self) -> Array:
        """(N, K): the targets; one-hot of a classifier."""
        if isinstance(getattr(self.model, "classes_", None), list):
            columns = zip(self.y.T, self.model.classes_)
            return np.hstack(
                [np.asarray(own[:, None] == classes, dtype=np.float64) for own, classes in columns]
            )
        if hasattr(self.model, "classes_"):
            return np.asarray(self.y[:, None] == self.model.classes_, dtype=np.float64)
        return np.asarray(self.y, dtype=np.float64).reshape(len(self.y), -1)


@dataclass(frozen=True)
class Data:
    X: Array
    y: NDArray[Any]
    weight: Array
    X_new: Array


def table(n_rows: int = N_ROWS, seed: int = 0) -> Data:
    """Six columns, one of 12 categories and one with many zeros; targets around 5."""
    rng = np.random.default_rng(seed)
    n = n_rows + N_NEW
    X = rng.normal(size=(n, 6))
    X[:, 4] = rng.integers(0, 12, n)
    X[:, 5] = np.where(rng.random(n) < 0.7, 0.0, X[:, 5])
    y = (
        5.0
        + X[:, 0]
        + np.sin(2 * X[:, 1]) * X[:, 2]
        + rng.normal(size=12)[X[:, 4].astype(int)]
        + rng.normal(size=n) / 2
    )
    return Data(X[:n_rows], y[:n_rows], rng.gamma(2.0, size=n_rows), X[n_rows:])


def gaps(data: Data) -> Data:
    rng = np.random.default_rng(1)
    X, X_new = (np.where(rng.random(A.shape) < 0.2, np.nan, A) for A in (data.X, data.X_new))
    return replace(data, X=X, X_new=X_new)


def labels(y: Array) -> NDArray[Any]:
    """Three classes of very different size, not in order of size."""
    return np.array(["plenty", "few", "middling"])[np.digitize(y, [6.5, 7.5])]


def fit(
    model: Any,
    data: Data | None = None,
    *,
    weighted: bool = False,
    convert: Callable[[Any], Any] = lambda X: X,
    change: Callable[[Array], NDArray[Any]] = lambda y: y,
    **how: Any,
) -> Case:
    """This model fitted to the data, targets and rows as the two functions turn them."""
    data = table() if data is None else data
    X, y, weight = convert(data.X), change(data.y), data.weight if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # criterion of boosting, deprecated from 1.9 on
        model.fit(X, y, sample_weight=weight, **how)
    return Case(model, X, y, weight, convert(data.X_new))


def boosted(
    data: Data | None = None, *, fit_with: dict[str, Any] | None = None, **params: Any
) -> Case:
    settings = {"n_estimators": N_TREES, "random_state": 3, **params}
    return fit(ensemble.GradientBoostingRegressor(**settings), data, **(fit_with or {}))


def hist(
    data: Data | None = None, *, fit_with: dict[str, Any] | None = None, **params: Any
) -> Case:
    settings = {"max_iter": N_TREES, "random_state": 3, "min_samples_leaf": 5, **params}
    return fit(ensemble.HistGradientBoostingRegressor(**settings), data, **(fit_with or {}))


def forest(
    kind: str, data: Data | None = None, *, fit_with: dict[str, Any] | None = None, **params: Any
) -> Case:
    settings = {"n_estimators": N_TREES, "random_state": 3, **params}
    how = {"change": labels, **(fit_with or {})} if kind.endswith("Classifier") else fit_with or {}
    return fit(getattr(ensemble, kind)(**settings), data, **how)


def lone(
    kind: str, data: Data | None = None, *, fit_with: dict[str, Any] | None = None, **params: Any
) -> Case:
    how = {"change": labels, **(fit_with or {})} if kind.endswith("Classifier") else fit_with or {}
    return fit(getattr(tree, kind)(**{"random_state": 3, **params}), data, **how)


def warmed(case: Case, **params: Any) -> Case:
    """The model fitted on with warm_start; what it is fitted to stays."""
    case.model.set_params(warm_start=True, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        case.model.fit(case.X, case.y, sample_weight=case.sample_weight)
    return case


def frame(X: Array) -> pd.DataFrame:
    """The table as a frame with a category column, some of its entries missing."""
    made = pd.DataFrame(X, columns=list("abcdef"))
    made["e"] = pd.Categorical.from_codes(
        np.where(X[:, 4] > 10, -1, X[:, 4]).astype(int), [f"c{i}" for i in range(12)]
    )
    return made


def named(X: Array) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"feature {i}" for i in range(6)])


def two(y: Array) -> Any:
    """Two classes."""
    return np.where(y > np.median(y), "above", "below")


def two_labels(y: Array) -> NDArray[Any]:
    """Labels of three classes and of two."""
    return np.stack([labels(y), two(y)], axis=1)


def indicators(y: Array) -> NDArray[Any]:
    """Two labels that a row may have."""
    return np.stack([y > 5, y > 6.5], axis=1).astype(int)


def pair(y: Array) -> Array:
    return np.stack([y, y**2 - 20], axis=1)


W: dict[str, Any] = {"weighted": True}
SIGNS = [-1, 1, -1, 0, 0, 1]  # with and against what the targets do
ZEROS = replace(table(), weight=np.maximum(table().weight - 1.5, 0))
LARGE = table(10_050)  # more than 10,000: early stopping by default
BAGGED_TREE = {"estimator": tree.DecisionTreeClassifier(class_weight="balanced", max_depth=4)}
FORESTS = (
    "RandomForestRegressor",
    "RandomForestClassifier",
    "ExtraTreesRegressor",
    "ExtraTreesClassifier",
)
LONE = (
    "DecisionTreeRegressor",
    "DecisionTreeClassifier",
    "ExtraTreeRegressor",
    "ExtraTreeClassifier",
)
COSTS = {"plenty": 1.0, "few": 7.5, "middling": 2.0}

Makers = dict[str, Callable[[], Case]]

_STAGES: Makers = {
    "plain": lambda: boosted(),
    "weighted": lambda: boosted(fit_with=W),
    "weights some zero": lambda: boosted(ZEROS, fit_with=W),
    "init=zero": lambda: boosted(init="zero"),
    "init=constant": lambda: boosted(init=DummyRegressor(strategy="constant", constant=4.25)),
    "init=mean weighted": lambda: boosted(init=DummyRegressor(), fit_with=W),
    "criterion=squared_error": lambda: boosted(criterion="squared_error"),
    "criterion=friedman_mse": lambda: boosted(criterion="friedman_mse"),
    **{
        f"subsample={share} seed={seed}": lambda share=share, seed=seed: boosted(
            subsample=share, random_state=seed
        )  # type: ignore[misc]
        for share, seed in ((0.5, 0), (0.9, 7), (0.001, 1), (0.333, np.int64(2)))
    },
    "subsample weighted": lambda: boosted(subsample=0.6, max_features=2, fit_with=W),
    "subsample weights some zero": lambda: boosted(ZEROS, subsample=0.6, fit_with=W),
    "subsample best first": lambda: boosted(subsample=0.6, max_leaf_nodes=9, max_depth=None),
    "subsample sparse": lambda: boosted(subsample=0.6, fit_with={"convert": sparse.csr_matrix}),
    "subsample pruned": lambda: boosted(subsample=0.6, ccp_alpha=0.01),
    "subsample warm": lambda: warmed(boosted(subsample=0.6), n_estimators=14),
    "n_iter_no_change": lambda: boosted(n_iter_no_change=3, n_estimators=300, learning_rate=0.5),
    "n_iter_no_change weighted": lambda: boosted(
        n_iter_no_change=3, validation_fraction=0.3, fit_with=W
    ),
    "n_iter_no_change subsample": lambda: boosted(n_iter_no_change=3, subsample=0.7, fit_with=W),
    "n_iter_no_change subsample zeros": lambda: boosted(
        ZEROS, n_iter_no_change=3, subsample=0.7, fit_with=W
    ),
    "warm": lambda: warmed(boosted(), n_estimators=14),
    "learning_rate=1": lambda: boosted(learning_rate=1.0),
    "learning_rate=0": lambda: boosted(learning_rate=0.0),
    "deep": lambda: boosted(max_depth=None),
    "leaf of one": lambda: boosted(
        max_depth=None, min_samples_leaf=1, learning_rate=1.0, n_estimators=2
    ),
    "ccp_alpha": lambda: boosted(ccp_alpha=0.05),
    "no split": lambda: boosted(min_samples_leaf=200),
    "targets constant": lambda: boosted(fit_with={"change": lambda y: 0 * y + 3.3}),
    "targets large": lambda: boosted(fit_with={"change": lambda y: y + 1e6}),
    "targets tiny": lambda: boosted(fit_with={"change": lambda y: y * 1e-12}),
    "sparse": lambda: boosted(fit_with={"convert": sparse.csc_matrix}),
    "frame": lambda: boosted(fit_with={"convert": named}),
    "monitor": lambda: boosted(fit_with={"monitor": lambda i, *_: i == 4}),
}

_HIST: Makers = {
    "plain": lambda: hist(),
    "weighted": lambda: hist(fit_with=W),
    "weights some zero": lambda: hist(ZEROS, fit_with=W),
    "l2": lambda: hist(l2_regularization=1.7),
    "l2 weighted": lambda: hist(l2_regularization=12.0, fit_with=W),
    "nan": lambda: hist(gaps(table())),
    "categorical": lambda: hist(categorical_features=[4]),
    "categorical nan weighted": lambda: hist(gaps(table()), categorical_features=[4], fit_with=W),
    "categorical frame": lambda: hist(
        categorical_features="from_dtype", fit_with={"convert": frame}
    ),
    "categorical names": lambda: hist(
        categorical_features=["feature 4"], fit_with={"convert": named}
    ),
    "frame": lambda: hist(fit_with={"convert": named}),
    "early stopping": lambda: hist(early_stopping=True, max_iter=100, learning_rate=0.5),
    "early stopping weighted": lambda: hist(early_stopping=True, fit_with=W),
    "early stopping unseeded": lambda: hist(early_stopping=True, random_state=None),
    "early stopping scoring": lambda: hist(early_stopping=True, scoring="neg_mean_absolute_error"),
    "early stopping on the rows themselves": lambda: hist(
        early_stopping=True, validation_fraction=None
    ),
    "early stopping 40 rows": lambda: hist(early_stopping=True, validation_fraction=40),
    "early stopping by default": lambda: hist(LARGE, l2_regularization=0.5),
    "early stopping by default weighted": lambda: hist(LARGE, fit_with=W),
    "early stopping categorical frame": lambda: hist(
        early_stopping=True, categorical_features="from_dtype", fit_with={"convert": frame}
    ),
    "max_leaf_nodes=None": lambda: hist(max_leaf_nodes=None, min_samples_leaf=1),
    "max_depth": lambda: hist(max_depth=2),
    "max_features": lambda: hist(max_features=0.4),
    "max_bins": lambda: hist(max_bins=5),
    "interaction_cst": lambda: hist(interaction_cst=[{0, 1}, {2, 3, 4, 5}]),
    "monotonic_cst=0": lambda: hist(monotonic_cst=[0] * 6),
    "monotonic_cst": lambda: hist(monotonic_cst=SIGNS, min_samples_leaf=3),
    "monotonic_cst l2 weighted": lambda: hist(
        monotonic_cst=SIGNS, l2_regularization=3.0, fit_with=W
    ),
    "monotonic_cst names categorical": lambda: hist(
        monotonic_cst={"feature 0": -1, "feature 5": 1},
        categorical_features=["feature 4"],
        fit_with={"convert": named},
    ),
    "monotonic_cst early stopping": lambda: hist(
        monotonic_cst=SIGNS, early_stopping=True, interaction_cst="pairwise"
    ),
    "learning_rate=1": lambda: hist(learning_rate=1.0),
    "no split": lambda: hist(min_samples_leaf=200),
    "warm": lambda: warmed(hist(), max_iter=14),
    "warm early stopping": lambda: warmed(
        hist(early_stopping=True, random_state=None), max_iter=14
    ),
    "targets constant": lambda: hist(fit_with={"change": lambda y: 0 * y + 3.3}),
    "targets large": lambda: hist(fit_with={"change": lambda y: y + 1e4}),
    "targets tiny": lambda: hist(fit_with={"change": lambda y: y * 1e-12}),
}

_TREES: Makers = {
    **{kind: lambda kind=kind: lone(kind) for kind in LONE},  # type: ignore[misc]
    **{f"{kind} weighted": lambda kind=kind: lone(kind, fit_with=W) for kind in LONE},  # type: ignore[misc]
    **{
        f"{kind} small nan": lambda kind=kind: lone(kind, gaps(table()), max_leaf_nodes=12)  # type: ignore[misc]
        for kind in LONE[:2]
    },
    "DecisionTreeRegressor friedman_mse": lambda: lone(
        "DecisionTreeRegressor", criterion="friedman_mse"
    ),
    "DecisionTreeRegressor poisson": lambda: lone(
        "DecisionTreeRegressor",
        criterion="poisson",
        min_samples_leaf=4,
        fit_with={"change": np.abs, **W},
    ),
    "DecisionTreeRegressor pruned": lambda: lone(
        "DecisionTreeRegressor", ccp_alpha=0.02, fit_with=W
    ),
    "DecisionTreeRegressor min_weight": lambda: lone(
        "DecisionTreeRegressor", ZEROS, min_weight_fraction_leaf=0.03, fit_with=W
    ),
    "DecisionTreeRegressor outputs": lambda: lone(
        "DecisionTreeRegressor", min_samples_leaf=7, fit_with={"change": pair, **W}
    ),
    "DecisionTreeRegressor stump": lambda: lone("DecisionTreeRegressor", max_depth=1),
    "DecisionTreeRegressor monotonic_cst=0": lambda: lone(
        "DecisionTreeRegressor", monotonic_cst=[0] * 6, max_depth=4
    ),
    **{
        f"{kind} monotonic_cst": lambda kind=kind: lone(  # type: ignore[misc]
            kind,
            monotonic_cst=SIGNS,
            fit_with={**W, **({"change": two} if kind.endswith("Classifier") else {})},
        )
        for kind in LONE
    },
    "DecisionTreeRegressor monotonic_cst stump": lambda: lone(
        "DecisionTreeRegressor", monotonic_cst=SIGNS, max_depth=1, fit_with=W
    ),
    "DecisionTreeRegressor monotonic_cst nan best first": lambda: lone(
        "DecisionTreeRegressor", gaps(table()), monotonic_cst=SIGNS, max_leaf_nodes=40
    ),
    "DecisionTreeRegressor no split": lambda: lone("DecisionTreeRegressor", min_samples_leaf=200),
    "DecisionTreeRegressor sparse": lambda: lone(
        "DecisionTreeRegressor", fit_with={"convert": sparse.csc_matrix}
    ),
    "DecisionTreeRegressor large": lambda: lone(
        "DecisionTreeRegressor", max_depth=3, fit_with={"change": lambda y: y + 1e9}
    ),
    **{
        f"DecisionTreeClassifier {criterion}": lambda criterion=criterion: lone(  # type: ignore[misc]
            "DecisionTreeClassifier", criterion=criterion, max_depth=4
        )
        for criterion in ("entropy", "log_loss")
    },
    "DecisionTreeClassifier balanced": lambda: lone(
        "DecisionTreeClassifier", class_weight="balanced", max_depth=3
    ),
    "DecisionTreeClassifier costs weighted": lambda: lone(
        "DecisionTreeClassifier", class_weight=COSTS, max_depth=3, fit_with=W
    ),
    "DecisionTreeClassifier pruned": lambda: lone("DecisionTreeClassifier", ccp_alpha=0.01),
    "DecisionTreeClassifier booleans": lambda: lone(
        "DecisionTreeClassifier", max_depth=3, fit_with={"change": lambda y: y > 5}
    ),
    "DecisionTreeClassifier outputs": lambda: lone(
        "DecisionTreeClassifier", max_depth=4, fit_with={"change": two_labels, **W}
    ),
    "DecisionTreeClassifier one class": lambda: lone(
        "DecisionTreeClassifier", fit_with={"change": lambda y: np.full(len(y), 7)}
    ),
}

_FORESTS: Makers = {
    **{kind: lambda kind=kind: forest(kind) for kind in FORESTS},  # type: ignore[misc]
    **{f"{kind} weighted": lambda kind=kind: forest(kind, fit_with=W) for kind in FORESTS},  # type: ignore[misc]
    **{
        f"{kind} bootstrap={on} weighted": lambda kind=kind, on=on: forest(
            kind, bootstrap=on, max_depth=4, fit_with=W
        )  # type: ignore[misc]
        for kind, on in zip(FORESTS, (False, False, True, True))
    },
    **{
        f"{kind} {name} bootstrap={on}": lambda kind=kind, on=on, setting=setting: forest(  # type: ignore[misc]
            kind, bootstrap=on, class_weight=setting, max_depth=4
        )
        for kind in FORESTS[1::2]
        for on in (False, True)
        for name, setting in {
            "balanced": "balanced",
            "balanced_subsample": "balanced_subsample",
            "costs": COSTS,
        }.items()
    },
    **{
        f"RandomForestClassifier {setting} weighted bootstrap={on}": lambda setting=setting, on=on: (
            forest(  # type: ignore[misc]
                "RandomForestClassifier",
                bootstrap=on,
                class_weight=setting,
                max_depth=4,
                fit_with=W,
            )
        )
        for on in (False, True)
        for setting in ("balanced", "balanced_subsample")
    },
    **{
        f"{kind} monotonic_cst": lambda kind=kind: forest(kind, monotonic_cst=SIGNS, fit_with=W)  # type: ignore[misc]
        for kind in FORESTS[::2]
    },
    "RandomForestClassifier monotonic_cst": lambda: forest(
        "RandomForestClassifier",
        monotonic_cst=SIGNS,
        class_weight="balanced_subsample",
        fit_with={"change": two},
    ),
    "RandomForestRegressor max_samples=0.4": lambda: forest(
        "RandomForestRegressor", max_samples=0.4, fit_with=W
    ),
    "RandomForestRegressor max_samples=17": lambda: forest("RandomForestRegressor", max_samples=17),
    "RandomForestClassifier few drawn": lambda: forest(
        "RandomForestClassifier", max_samples=9, class_weight="balanced_subsample"
    ),
    "RandomForestRegressor weights some zero": lambda: forest(
        "RandomForestRegressor", ZEROS, fit_with=W
    ),
    "ExtraTreesRegressor weights some zero": lambda: forest(
        "ExtraTreesRegressor", ZEROS, fit_with=W
    ),
    "RandomForestRegressor nan": lambda: forest(
        "RandomForestRegressor", gaps(table()), max_features=2
    ),
    "RandomForestRegressor outputs": lambda: forest(
        "RandomForestRegressor", fit_with={"change": pair}
    ),
    "ExtraTreesRegressor outputs weighted": lambda: forest(
        "ExtraTreesRegressor", min_samples_leaf=5, fit_with={"change": pair, **W}
    ),
    "RandomForestClassifier outputs": lambda: forest(
        "RandomForestClassifier", fit_with={"change": two_labels}
    ),
    "ExtraTreesClassifier indicators balanced": lambda: forest(
        "ExtraTreesClassifier",
        class_weight="balanced",
        max_depth=4,
        fit_with={"change": indicators, **W},
    ),
    "RandomForestClassifier indicators balanced_subsample": lambda: forest(
        "RandomForestClassifier",
        class_weight="balanced_subsample",
        max_depth=4,
        fit_with={"change": indicators},
    ),
    "RandomForestRegressor unseeded": lambda: forest("RandomForestRegressor", random_state=None),
    "RandomForestRegressor warm": lambda: warmed(forest("RandomForestRegressor"), n_estimators=12),
    "RandomForestRegressor friedman_mse": lambda: forest(
        "RandomForestRegressor", criterion="friedman_mse"
    ),
    "RandomForestRegressor poisson": lambda: forest(
        "RandomForestRegressor",
        criterion="poisson",
        min_samples_leaf=3,
        fit_with={"change": np.abs},
    ),
    "RandomForestRegressor sparse": lambda: forest(
        "RandomForestRegressor", fit_with={"convert": sparse.csr_matrix}
    ),
    "RandomForestRegressor frame": lambda: forest(
        "RandomForestRegressor", fit_with={"convert": named}
    ),
    "RandomForestRegressor one tree": lambda: forest(
        "RandomForestRegressor", n_estimators=1, max_leaf_nodes=20
    ),
    "RandomForestRegressor oob": lambda: forest(
        "RandomForestRegressor", n_estimators=30, oob_score=True, max_depth=3
    ),
}

_BAGGING: Makers = {
    "BaggingRegressor": lambda: forest("BaggingRegressor"),
    "BaggingRegressor weighted": lambda: forest("BaggingRegressor", max_samples=100, fit_with=W),
    "BaggingRegressor columns": lambda: forest("BaggingRegressor", max_features=0.5),
    "BaggingRegressor columns repeated": lambda: forest(
        "BaggingRegressor", bootstrap_features=True
    ),
    "BaggingRegressor all rows": lambda: forest(
        "BaggingRegressor", bootstrap=False, max_features=3
    ),
    "BaggingRegressor without replacement": lambda: forest(
        "BaggingRegressor", bootstrap=False, max_samples=0.3
    ),
    "BaggingRegressor ExtraTreeRegressor": lambda: forest(
        "BaggingRegressor", estimator=tree.ExtraTreeRegressor(max_depth=4)
    ),
    "BaggingRegressor monotonic_cst": lambda: forest(
        "BaggingRegressor",
        bootstrap_features=True,
        estimator=tree.DecisionTreeRegressor(monotonic_cst=SIGNS),
    ),
    "BaggingRegressor outputs": lambda: forest("BaggingRegressor", fit_with={"change": pair}),
    "BaggingRegressor sparse": lambda: forest(
        "BaggingRegressor", max_features=0.5, fit_with={"convert": sparse.csr_matrix}
    ),
    "BaggingRegressor frame": lambda: forest(
        "BaggingRegressor", max_features=3, fit_with={"convert": named}
    ),
    "BaggingRegressor nan": lambda: forest("BaggingRegressor", gaps(table())),
    "BaggingRegressor unseeded": lambda: forest("BaggingRegressor", random_state=None),
    "BaggingRegressor warm": lambda: warmed(
        forest("BaggingRegressor", max_features=3), n_estimators=12
    ),
    "BaggingClassifier": lambda: forest("BaggingClassifier"),
    "BaggingClassifier weighted": lambda: forest("BaggingClassifier", max_samples=100, fit_with=W),
    "BaggingClassifier few drawn": lambda: forest("BaggingClassifier", max_samples=6),
    "BaggingClassifier balanced": lambda: forest("BaggingClassifier", **BAGGED_TREE),
    "BaggingClassifier balanced weighted": lambda: forest(
        "BaggingClassifier", **BAGGED_TREE, max_samples=100, fit_with=W
    ),
}

CASES: Makers = {
    f"{group} {name}".strip(): cache(make)
    for group, makers in {
        "stages": _STAGES,
        "hist": _HIST,
        "": {**_TREES, **_FORESTS, **_BAGGING},
    }.items()
    for name, make in makers.items()
}
if VERSION < (
    1,
    8,
):  # where trees part rows with missing values otherwise than they predict: pull request 32351
    CASES = {
        name: make for name, make in CASES.items() if "nan" not in name or name.startswith("hist")
    }

_MAE = {"loss": "absolute_error"}
_WEIGHTED = {"fit_with": {"weighted": True}}
_MEDIANS = {"criterion": "absolute_error", "max_depth": 5}
_RANKED_MAKERS: Makers = {
    "stages absolute_error": lambda: boosted(**_MAE),
    "stages absolute_error weighted": lambda: boosted(**_MAE, **_WEIGHTED),
    "stages quantile subsample": lambda: boosted(loss="quantile", alpha=0.8, subsample=0.6),
    "stages absolute_error zero": lambda: boosted(**_MAE, init="zero"),
    "stages absolute_error early stopping": lambda: boosted(**_MAE, n_iter_no_change=3),
    "hist absolute_error": lambda: hist(**_MAE),
    "hist quantile": lambda: hist(loss="quantile", quantile=0.3),
    "hist absolute_error weighted": lambda: hist(**_MAE, **_WEIGHTED),
    "hist absolute_error early stopping": lambda: hist(**_MAE, early_stopping=True),
    "tree absolute_error": lambda: lone("DecisionTreeRegressor", **_MEDIANS),
    "forest absolute_error": lambda: forest("RandomForestRegressor", **_MEDIANS),
    "forest absolute_error weighted": lambda: forest(
        "ExtraTreesRegressor", **_MEDIANS, **_WEIGHTED
    ),
    "forest absolute_error two outputs": lambda: forest(
        "RandomForestRegressor",
        **_MEDIANS,
        fit_with={"change": lambda y: np.stack([y, -(y**2)], axis=1)},
    ),
    "bagged absolute_error": lambda: forest(
        "BaggingRegressor", estimator=tree.DecisionTreeRegressor(**_MEDIANS)
    ),
}
_CUT_MAKERS: Makers = {
    "stages huber": lambda: boosted(loss="huber"),
    "stages huber alpha=0.5": lambda: boosted(loss="huber", alpha=0.5),
    "stages huber zero whole targets": lambda: boosted(
        loss="huber", alpha=0.7, init="zero", fit_with={"change": np.round}
    ),
    "stages huber early stopping": lambda: boosted(loss="huber", n_iter_no_change=3),
    "stages huber subsample": lambda: boosted(loss="huber", alpha=0.8, subsample=0.6),
}
#: Residuals are cut off.
CUT: Makers = {name: cache(make) for name, make in _CUT_MAKERS.items()}
#: Leaf values are percentiles.
RANKED: Makers = {name: cache(make) for name, make in _RANKED_MAKERS.items()}

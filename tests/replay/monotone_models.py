"""Monotone models of all libraries, and their fits again in plain NumPy: a tree's nodes, clipped from its root down.

The rule is written here as the libraries have it: both children of a split are clipped to the interval of their parent, and a
split on a constrained feature cuts that interval at the middle of the two clipped values. LightGBM's other methods clip at values
of other nodes; here the node is found by its value alone, which the fitted leaf must share to the last digits. CatBoost pools the
leaves of its symmetric trees by isotonic regression; here that is scikit-learn's.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.isotonic import isotonic_regression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

Array = NDArray[np.float64]
SIGNS = np.array([1, -1, 0, 1, 0])
RATE = 0.3
RATE32 = float(np.float32(RATE))  # as CatBoost keeps it
N_ROWS, N_TREES = 160, 6


@dataclass(frozen=True)
class Tree:
    """One fitted tree; its root is node 0."""

    left: NDArray[np.int64]  #: (M,) -1 for a leaf
    right: NDArray[np.int64]
    signs: NDArray[np.int64]  #: (M,)
    rows: NDArray[np.int64]  #: (N,) the leaf, as a node, of each training row
    values: Array  #: (M,) of leaves: what they add to a prediction, without any base; nan elsewhere
    l2: Array | float = 0.0  #: (M,)

    def totals(self, of_rows: Array) -> Array:
        """(M,): the sums over the rows below each node."""
        found = np.bincount(self.rows, of_rows, len(self.left))

        def add(node: int) -> float:
            if self.left[node] >= 0:
                found[node] = add(self.left[node]) + add(self.right[node])
            return float(found[node])

        add(0)
        return found


@dataclass(frozen=True)
class Fit:
    """A fitted model and what is needed to fit it again to other targets with its splits, and its pattern where it has one."""

    model: Any
    X: Array
    y: Array
    weights: Array | None
    trees: list[Tree]
    l1: float = 0.0
    max_step: float = np.inf
    boosted: bool = True  #: else the trees are averaged
    by_value: bool = False  #: whether bounds are values of other nodes
    patterns: list[NDArray[np.int64]] = field(
        default_factory=list
    )  #: of each tree (M,), the node that a leaf's value is of

    def again(self, targets: Array) -> Array:
        """(N,): the predictions of the training rows by the fit to other targets."""
        w = np.ones(len(targets)) if self.weights is None else self.weights
        score = np.full(len(targets), w @ targets / w.sum() if self.boosted else 0.0)
        for t, tree in enumerate(self.trees):
            residual = targets - score if self.boosted else targets
            raw = self._raw(tree, tree.totals(w * residual), tree.totals(w))
            values = raw[self.patterns[t]] if self.by_value else clipped(tree, raw)
            score = score + (RATE if self.boosted else 1 / len(self.trees)) * values[tree.rows]
        return score

    def _raw(self, tree: Tree, sums: Array, weights: Array) -> Array:
        moved = np.sign(sums) * np.maximum(np.abs(sums) - self.l1, 0)
        values: Array = np.clip(moved / (weights + tree.l2), -self.max_step, self.max_step)
        return values

    def with_patterns(self) -> Fit:
        """The fit with, for each leaf, the node whose own value it has."""
        w = np.ones(len(self.y)) if self.weights is None else self.weights
        score = np.full(len(self.y), w @ self.y / w.sum())
        for tree in self.trees:
            raw = self._raw(tree, tree.totals(w * (self.y - score)), tree.totals(w))
            apart = np.abs(RATE * raw - tree.values[:, None])
            nearest = np.argmin(np.where(np.isnan(apart), np.inf, apart), axis=1)
            leaves = np.flatnonzero(tree.left < 0)
            # Residuals are rounded to float32 on the way.
            assert apart[leaves, nearest[leaves]].max() <= 1e-6 * np.nanmax(np.abs(tree.values))
            self.patterns.append(nearest)
            score = score + tree.values[tree.rows]
        return self


def clipped(tree: Tree, raw: Array) -> Array:
    """(M,): the values of the nodes, from the root down."""
    values = raw.copy()

    def go(node: int, low: float, high: float) -> None:
        left, right = tree.left[node], tree.right[node]
        if left < 0:
            return
        for child in (left, right):
            values[child] = min(max(raw[child], low), high)
        middle = (values[left] + values[right]) / 2
        ways = {
            0: ((low, high), (low, high)),
            1: ((low, middle), (middle, high)),
            -1: ((middle, high), (low, middle)),
        }
        for child, bounds in zip((left, right), ways[int(tree.signs[node])]):
            go(child, *bounds)

    go(0, -np.inf, np.inf)
    return values


@dataclass(frozen=True)
class Pooled:
    """A CatBoost model and the orders its leaves must rise in, listed here from the splits that it writes to JSON."""

    model: Any
    X: Array
    y: Array
    weights: Array | None
    rows: NDArray[np.int64]  #: (N, T) leaf of each training row
    signs: list[list[int]]  #: of each tree those of its splits
    l2: float
    shrink: float

    def again(self, targets: Array) -> Array:
        """(N,): the predictions of the training rows by the fit to other targets, pooled as these lead to."""
        w = np.ones(len(targets)) if self.weights is None else self.weights
        score = np.full(len(targets), w @ targets / w.sum())
        for t, signs in enumerate(self.signs):
            score = score * (1 if t == 0 else 1 - self.shrink * RATE32)
            leaf, n = self.rows[:, t], 1 << len(signs)
            weights = np.bincount(leaf, w, n) + self.l2 * w.mean()
            values = np.bincount(leaf, w * (targets - score), n) / weights
            for chain in orders(signs):
                values[chain] = isotonic_regression(values[chain], sample_weight=weights[chain])
            score = score + RATE32 * values[leaf]
        return score


def orders(signs: list[int]) -> list[list[int]]:
    """The leaves that free splits put together, as words of outcomes: lexical where signs are 1, turned over where -1."""
    found: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
    for leaf in range(1 << len(signs)):
        outcomes = [leaf >> split & 1 for split in range(len(signs))]
        free = tuple(outcome for outcome, sign in zip(outcomes, signs) if sign == 0)
        word = tuple(outcome * sign for outcome, sign in zip(outcomes, signs) if sign != 0)
        found.setdefault(free, []).append((word, leaf))
    return [[leaf for _, leaf in sorted(words)] for words in found.values()]


def of_catboost(weighted: bool = False, **params: Any) -> Pooled:
    X, y, weights = table()
    y, w = (
        y.astype(np.float32).astype(float),
        weights.astype(np.float32).astype(float) if weighted else None,
    )
    quiet = {
        "verbose": False,
        "allow_writing_files": False,
        "thread_count": 1,
        "iterations": N_TREES,
    }
    settings = {
        "depth": 4,
        "learning_rate": RATE,
        "monotone_constraints": SIGNS.tolist(),
        **quiet,
        **params,
    }
    model = cb.CatBoostRegressor(**settings).fit(X, y, sample_weight=w)
    with tempfile.TemporaryDirectory() as folder:
        model.save_model(f"{folder}/model.json", format="json")
        written = json.loads(Path(f"{folder}/model.json").read_text())
    signs = [
        [int(SIGNS[s["float_feature_index"]]) for s in tree["splits"]]
        for tree in written["oblivious_trees"]
    ]
    said = model.get_all_params()
    rows = np.asarray(model.calc_leaf_indexes(X)).astype(int)
    return Pooled(
        model,
        X,
        y,
        w,
        rows,
        signs,
        float(np.float32(said["l2_leaf_reg"])),
        said["model_shrink_rate"],
    )


def table(seed: int = 0) -> tuple[Array, Array, Array]:
    """Rows, targets that are monotone in some columns but for a strong rest, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 5)).round(2)
    y = X[:, 0] - X[:, 1] + 2 * np.sin(3 * X[:, 2]) + X[:, 0] * X[:, 3] + rng.normal(size=N_ROWS)
    return X, y, rng.uniform(0.2, 3.0, N_ROWS)


def of_lightgbm(method: str = "basic", weighted: bool = False, **params: Any) -> Fit:
    X, y, weights = table()
    settings = {
        **{
            "objective": "regression",
            "learning_rate": RATE,
            "num_leaves": 15,
            "min_data_in_leaf": 4,
            "verbose": -1,
        },
        **{
            "monotone_constraints": SIGNS.tolist(),
            "monotone_constraints_method": method,
            "num_threads": 1,
            **params,
        },
    }
    w = weights if weighted else None
    booster = lgb.train(settings, lgb.Dataset(X, y, weight=w), N_TREES)
    base = np.average(
        y.astype(np.float32).astype(float), weights=None if w is None else w.astype(np.float32)
    )
    leaves = np.asarray(booster.predict(X, pred_leaf=True)).reshape(N_ROWS, -1)
    trees = []
    for t, block in enumerate(booster.model_to_string().split("\nTree=")[1:]):
        fields = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        n = int(fields["num_leaves"]) - 1  # splits; leaf l is node n + l
        sides = [
            np.array(fields[side].split(), dtype=int) for side in ("left_child", "right_child")
        ]
        left, right = (
            np.append(np.where(own < 0, n + ~own, own), np.full(n + 1, -1)) for own in sides
        )
        signs = np.append(
            SIGNS[np.array(fields["split_feature"].split(), dtype=int)], np.zeros(n + 1, dtype=int)
        )
        values = np.append(
            np.full(n, np.nan),
            np.array(fields["leaf_value"].split(), float) - (base if t == 0 else 0),
        )
        trees.append(
            Tree(left, right, signs, n + leaves[:, t], values, settings.get("lambda_l2", 0.0))
        )
    fit = Fit(
        booster,
        X,
        y,
        w,
        trees,
        settings.get("lambda_l1", 0.0),
        settings.get("max_delta_step", 0) or np.inf,
    )
    if method == "basic":
        return fit
    return Fit(**{**vars(fit), "by_value": True}).with_patterns()


def of_xgboost(weighted: bool = False, **params: Any) -> Fit:
    X, y, weights = table()
    settings = {"learning_rate": RATE, "max_depth": 4, "nthread": 1, "reg_lambda": 1.0, **params}
    settings["monotone_constraints"] = str(tuple(SIGNS.tolist()))
    w = weights if weighted else None
    matrix = xgb.DMatrix(X, y, weight=w)
    booster = xgb.train(settings, matrix, N_TREES)
    leaves = booster.predict(matrix, pred_leaf=True).reshape(N_ROWS, -1).astype(int)
    trees = []
    for t, tree in enumerate(
        json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    ):
        left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
        signs = np.where(left < 0, 0, SIGNS[np.minimum(tree["split_indices"], len(SIGNS) - 1)])
        values = np.where(left < 0, np.array(tree["split_conditions"], dtype=float), np.nan)
        trees.append(Tree(left, right, signs, leaves[:, t], values, settings["reg_lambda"]))
    return Fit(
        booster,
        X,
        y,
        w,
        trees,
        settings.get("reg_alpha", 0.0),
        settings.get("max_delta_step", 0) or np.inf,
    )


def of_hist(weighted: bool = False, **params: Any) -> Fit:
    X, y, weights = table()
    w = weights if weighted else None
    settings = {
        "learning_rate": RATE,
        "max_iter": N_TREES,
        "min_samples_leaf": 4,
        "early_stopping": False,
        **params,
    }
    model = HistGradientBoostingRegressor(monotonic_cst=SIGNS, max_leaf_nodes=15, **settings).fit(
        X, y, w
    )
    trees = []
    for (predictor,) in model._predictors:
        nodes, inner = predictor.nodes, predictor.nodes["is_leaf"] == 0
        left, right = (np.where(inner, nodes[side].astype(int), -1) for side in ("left", "right"))
        rows = np.zeros(N_ROWS, dtype=int)
        while inner[rows].any():
            goes = X[np.arange(N_ROWS), nodes["feature_idx"][rows]] <= nodes["num_threshold"][rows]
            rows = np.where(inner[rows], np.where(goes, left[rows], right[rows]), rows)
        values = np.where(inner, np.nan, nodes["value"])
        signs = np.where(inner, SIGNS[np.where(inner, nodes["feature_idx"], 0)], 0)
        trees.append(Tree(left, right, signs, rows, values, model.l2_regularization))
    return Fit(model, X, y, w, trees)


def of_trees(kind: Any, weighted: bool = False, **params: Any) -> Fit:
    X, y, weights = table()
    w = weights if weighted else None
    y = (y > 0).astype(float) if kind is DecisionTreeClassifier else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of criteria that scikit-learn renames
        model = kind(monotonic_cst=SIGNS, random_state=0, **params).fit(X, y, sample_weight=w)
    trees = []
    for member in getattr(model, "estimators_", [model]):
        own = member.tree_
        signs = np.where(own.children_left < 0, 0, SIGNS[np.maximum(own.feature, 0)])
        values = np.where(own.children_left < 0, own.value[:, 0, -1], np.nan)
        trees.append(Tree(own.children_left, own.children_right, signs, member.apply(X), values))
    return Fit(model, X, y, w, trees, boosted=False)


_BENT: dict[str, Any] = {"lambda_l1": 1.0, "lambda_l2": 0.5, "max_delta_step": 0.8}
MODELS: dict[str, Callable[[], Fit | Pooled]] = {
    "CatBoost": of_catboost,
    "CatBoost weighted Gradient": lambda: of_catboost(
        True, leaf_estimation_method="Gradient", l2_leaf_reg=0.5
    ),
    "CatBoost without shrinking": lambda: of_catboost(
        True, model_shrink_rate=0, bootstrap_type="Bernoulli", depth=6
    ),
    **{
        f"LightGBM {method}": lambda method=method: of_lightgbm(method)
        for method in ("basic", "intermediate", "advanced")
    },
    **{
        f"LightGBM {method} weighted, L1, L2 and step": lambda method=method: of_lightgbm(
            method, weighted=True, **_BENT
        )
        for method in ("basic", "intermediate", "advanced")
    },
    "LightGBM monotone_penalty": lambda: of_lightgbm(monotone_penalty=1.2, extra_trees=True),
    "XGBoost": of_xgboost,
    "XGBoost exact weighted": lambda: of_xgboost(True, tree_method="exact", gamma=0.5),
    "XGBoost approx lossguide": lambda: of_xgboost(
        tree_method="approx", grow_policy="lossguide", max_leaves=12
    ),
    "XGBoost alpha and step": lambda: of_xgboost(
        True, reg_alpha=1.0, max_delta_step=0.8, reg_lambda=0.5
    ),
    "hist": of_hist,
    "hist weighted with L2": lambda: of_hist(True, l2_regularization=1.5),
    "tree": lambda: of_trees(DecisionTreeRegressor, max_depth=6),
    "tree best first weighted": lambda: of_trees(DecisionTreeRegressor, True, max_leaf_nodes=25),
    "tree of classes": lambda: of_trees(DecisionTreeClassifier, True, max_depth=6),
    "forest": lambda: of_trees(ExtraTreesRegressor, True, n_estimators=5, min_samples_leaf=3),
}

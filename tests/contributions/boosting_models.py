"""Fitted boosting models with smooth losses of every library, each with what an independent replay of it needs."""

from dataclasses import dataclass, field
from functools import cache

import catboost
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

import axil
from axil.adapters import find_by_gradients
from axil.implicit.readers import FitInputs
from axil.kernels.choose import limits_of
from axil.verify import additive_model
from tests.contributions.fixed_structure import replay
from tests.fits import explainer_of_fit

N, N_NEW = 120, 3
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(N + N_NEW, 4))
X, X_NEW = ROWS[:N], ROWS[N:]
SCORE = X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.5
WEIGHTS = RNG.uniform(0.5, 2.0, N)
OFFSETS = np.float32(RNG.normal(0, 0.3, N)).astype(float)
BINARY = (SCORE + RNG.logistic(size=N) > 0).astype(int)
CLASSES = np.digitize(SCORE + RNG.normal(0, 0.5, N), [-0.5, 0.6])
COUNTS = RNG.poisson(np.exp(0.5 * SCORE)).astype(float)
POSITIVE = RNG.gamma(2.0, np.exp(0.5 * SCORE) / 2) + 0.05
SHARES = 1 / (1 + np.exp(-SCORE))
WORDS = np.array(["no", "yes"])[BINARY]

LGB = {
    "n_estimators": 6,
    "num_leaves": 5,
    "min_child_samples": 5,
    "learning_rate": 0.25,
    "verbose": -1,
    "n_jobs": 1,
}
XGB = {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.25, "n_jobs": 1}
CAT = {
    "iterations": 6,
    "depth": 3,
    "learning_rate": 0.25,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
}
GB = {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.25, "random_state": 0}
HIST = {"max_iter": 6, "max_leaf_nodes": 5, "min_samples_leaf": 5, "learning_rate": 0.25}


@dataclass(frozen=True)
class Case:
    """A model, its data, and the arguments of `fixed_structure.replay`."""

    model: object
    y: np.ndarray
    loss: str
    start: str
    weights: np.ndarray | None = None
    offsets: np.ndarray | None = None
    more: dict = field(default_factory=dict)

    def fit(self):
        extra = {} if self.weights is None else {"sample_weight": self.weights}
        if self.offsets is not None:
            name = "init_score" if self.library == "lightgbm" else "base_margin"
            extra[name] = self.offsets
        if self.library == "catboost" and self.offsets is not None:
            self.model.fit(catboost.Pool(X, self.y, weight=self.weights, baseline=self.offsets))
        else:
            self.model.fit(X, self.y, **extra)
        return self

    @property
    def library(self):
        return type(self.model).__module__.split(".")[0]

    @property
    def targets(self):
        """(N, K)."""
        if not hasattr(self.model, "classes_") or len(self.model.classes_) == 0:
            return (
                np.float32(self.y)[:, None].astype(float)
                if self.library != "sklearn"
                else self.y[:, None]
            )
        onehot = (self.y[:, None] == self.model.classes_).astype(float)
        return onehot[:, 1:] if onehot.shape[1] == 2 else onehot

    @property
    def w(self):
        return np.ones(N) if self.weights is None else self.weights

    def leaves(self, rows):
        """(n, iterations, K), by the library's own account."""
        k, m = self.targets.shape[1], self.model
        if self.library == "lightgbm":
            found = m.predict(rows, pred_leaf=True)
        elif self.library == "xgboost":
            found = m.apply(rows)
        elif self.library == "catboost":
            found = np.repeat(np.asarray(m.calc_leaf_indexes(rows))[:, :, None], k, axis=2)
        elif "Hist" in type(m).__name__:
            found = np.stack(
                [hist_leaves(tree, rows) for trees in m._predictors for tree in trees], axis=1
            )
        else:
            found = m.apply(rows)
        return np.asarray(found).astype(int).reshape(len(rows), -1, k)

    def scores(self, rows):
        """(n, K)."""
        m = self.model
        if self.library == "lightgbm":
            found = m.predict(rows, raw_score=True)
        elif self.library == "xgboost":
            found = m.predict(rows, output_margin=True)
        elif self.library == "catboost":
            found = m.predict(rows, prediction_type="RawFormulaVal")
        elif hasattr(m, "decision_function"):
            found = m.decision_function(rows)
        else:
            found = np.log(m.predict(rows)) if self.start == "log" else m.predict(rows)
        return np.asarray(found, dtype=float).reshape(len(rows), -1)


def hist_leaves(tree, rows):
    """Which node of a tree with numeric splits each row ends in."""
    found = []
    for x in rows:
        node = 0
        while not tree.nodes[node]["is_leaf"]:
            own = tree.nodes[node]
            node = own["left"] if x[own["feature_idx"]] <= own["num_threshold"] else own["right"]
        found.append(node)
    return np.array(found)


def stages(share, n_iterations, n_classes=1):
    """(N, iterations): the rows of each stage of scikit-learn's gradient boosting with random_state=0."""
    from sklearn.ensemble._gradient_boosting import _random_sample_mask

    stream, bags = np.random.RandomState(0), []
    for _ in range(n_iterations):
        bags.append(np.asarray(_random_sample_mask(N, int(share * N), stream), dtype=float))
        stream.randint(0, 2**31 - 1, n_classes)
    return np.stack(bags, axis=1)


LC, LR, XC, XR = lgb.LGBMClassifier, lgb.LGBMRegressor, xgb.XGBClassifier, xgb.XGBRegressor
CC, CR = catboost.CatBoostClassifier, catboost.CatBoostRegressor
GC, GR = GradientBoostingClassifier, GradientBoostingRegressor
HC, HR = HistGradientBoostingClassifier, HistGradientBoostingRegressor
L2 = {"l2": 1.0}
# Before 3.1 XGBoost started from one Newton step, several classes from 0.5.
RECENT = tuple(int(part) for part in xgb.__version__.split(".")[:2]) >= (3, 1)
LOGIT, LOG, CENTRED = ("logit", "log", "centred above") if RECENT else ("newton", "newton", "half")
MORE = {"l2": 3.0, "scale_l2": True}
BALANCE = max(BINARY.sum(), N - BINARY.sum())

CASES = {
    "lightgbm binary": lambda: Case(LC(**LGB), BINARY, "logistic", "logit"),
    "lightgbm binary weighted": lambda: Case(
        LC(**LGB, sigmoid=2.0, reg_lambda=1.0), WORDS, "logistic2", "logit2", WEIGHTS, more=L2
    ),
    "lightgbm scale_pos_weight": lambda: Case(
        LC(**LGB, scale_pos_weight=3.0),
        BINARY,
        "logistic",
        "logit",
        more={"factors": np.where(BINARY, 3.0, 1.0)},
    ),
    "lightgbm is_unbalance": lambda: Case(
        LC(**LGB, is_unbalance=True),
        BINARY,
        "logistic",
        "logit",
        more={"factors": BALANCE / np.where(BINARY, BINARY.sum(), N - BINARY.sum())},
    ),
    "lightgbm binary from offsets": lambda: Case(
        LC(**LGB), BINARY, "logistic", "zero", offsets=OFFSETS
    ),
    "lightgbm multiclass": lambda: Case(LC(**LGB), CLASSES, "softmax3/2", "log", WEIGHTS),
    "lightgbm multiclassova": lambda: Case(
        LC(**LGB, objective="multiclassova"), CLASSES, "logistic", "logit"
    ),
    "lightgbm cross_entropy": lambda: Case(
        LR(**LGB, objective="cross_entropy"), SHARES, "logistic", "logit", WEIGHTS
    ),
    "lightgbm poisson": lambda: Case(
        LR(**LGB, objective="poisson"), COUNTS, "poisson0.7", "log", WEIGHTS
    ),
    "lightgbm gamma": lambda: Case(LR(**LGB, objective="gamma"), POSITIVE, "gamma", "log", WEIGHTS),
    "lightgbm tweedie": lambda: Case(
        LR(**LGB, objective="tweedie", tweedie_variance_power=1.3),
        COUNTS,
        "tweedie1.3",
        "log",
        WEIGHTS,
    ),
    "lightgbm l1 and clipped": lambda: Case(
        LR(**LGB, reg_alpha=1.5, max_delta_step=0.4),
        SCORE,
        "squared",
        "mean",
        WEIGHTS,
        more={"l1": 1.5, "most": 0.4},
    ),
    "xgboost binary": lambda: Case(XC(**XGB), BINARY, "logistic", LOGIT, WEIGHTS, more=L2),
    "xgboost binary from offsets": lambda: Case(
        XC(**XGB), BINARY, "logistic", "zero", WEIGHTS, OFFSETS, more={**L2, "query_start": LOGIT}
    ),
    "xgboost scale_pos_weight": lambda: Case(
        XC(**XGB, scale_pos_weight=3.0),
        BINARY,
        "logistic",
        "newton",
        more={**L2, "factors": np.where(BINARY, 3.0, 1.0), "start_factors": True},
    ),
    "xgboost multiclass": lambda: Case(XC(**XGB), CLASSES, "softmax2", CENTRED, WEIGHTS, more=L2),
    "xgboost poisson": lambda: Case(
        XR(**XGB, objective="count:poisson"),
        COUNTS,
        "poisson0.7",
        LOG,
        WEIGHTS,
        more={**L2, "most": 0.7},
    ),
    "xgboost gamma": lambda: Case(
        XR(**XGB, objective="reg:gamma"), POSITIVE, "gamma", LOG, WEIGHTS, more=L2
    ),
    "xgboost tweedie": lambda: Case(
        XR(**XGB, objective="reg:tweedie", tweedie_variance_power=1.3),
        COUNTS,
        "tweedie1.3",
        LOG,
        WEIGHTS,
        more=L2,
    ),
    "xgboost l1 and clipped": lambda: Case(
        XR(**XGB, reg_alpha=1.5, max_delta_step=0.4),
        SCORE,
        "squared",
        "mean",
        WEIGHTS,
        more={**L2, "l1": 1.5, "most": 0.4},
    ),
    "catboost binary": lambda: Case(CC(**CAT), BINARY, "logistic", "zero", WEIGHTS, more=MORE),
    "catboost binary from offsets": lambda: Case(
        CC(**CAT, leaf_estimation_iterations=2),
        BINARY,
        "logistic",
        "zero",
        WEIGHTS,
        OFFSETS,
        more={**MORE, "steps": 2},
    ),
    "catboost tweedie": lambda: Case(
        CR(**CAT, loss_function="Tweedie:variance_power=1.3"),
        COUNTS,
        "tweedie1.3",
        "zero",
        WEIGHTS,
        more=MORE,
    ),
    "catboost binary 4 steps": lambda: Case(
        CC(**CAT, leaf_estimation_iterations=4),
        WORDS,
        "logistic",
        "zero",
        WEIGHTS,
        more={**MORE, "steps": 4},
    ),
    "catboost binary gradient": lambda: Case(
        CC(**CAT, leaf_estimation_method="Gradient", leaf_estimation_iterations=2),
        BINARY,
        "gradient",
        "zero",
        WEIGHTS,
        more={**MORE, "steps": 2},
    ),
    "catboost multiclass": lambda: Case(CC(**CAT), CLASSES, "joint", "zero", WEIGHTS, more=MORE),
    "catboost multiclass 3 steps": lambda: Case(
        CC(**CAT, leaf_estimation_iterations=3),
        CLASSES,
        "joint",
        "zero",
        WEIGHTS,
        more={**MORE, "steps": 3},
    ),
    "catboost multiclass gradient": lambda: Case(
        CC(**CAT, leaf_estimation_method="Gradient"),
        CLASSES,
        "softmax gradient",
        "zero",
        WEIGHTS,
        more=MORE,
    ),
    "catboost one vs all": lambda: Case(
        CC(**CAT, loss_function="MultiClassOneVsAll"),
        CLASSES,
        "logistic",
        "zero",
        WEIGHTS,
        more=MORE,
    ),
    "catboost poisson": lambda: Case(
        CR(**CAT, loss_function="Poisson"), COUNTS, "poisson", "zero", WEIGHTS, more=MORE
    ),
    "sklearn binary": lambda: Case(GC(**GB), WORDS, "logistic", "logit", WEIGHTS),
    "sklearn subsample": lambda: Case(
        GC(**GB, subsample=0.7), BINARY, "logistic", "logit", WEIGHTS, more={"bags": stages(0.7, 6)}
    ),
    "sklearn multiclass": lambda: Case(
        GC(**GB), CLASSES, "softmax", "centred", WEIGHTS, more={"rate": 0.25 * 2 / 3}
    ),
    "sklearn hist binary": lambda: Case(
        HC(**HIST, l2_regularization=1.0), WORDS, "logistic", "logit", WEIGHTS, more=L2
    ),
    "sklearn hist multiclass": lambda: Case(HC(**HIST), CLASSES, "softmax", "centred"),
    "sklearn hist poisson": lambda: Case(
        HR(**HIST, loss="poisson"), COUNTS, "poisson", "log", WEIGHTS
    ),
    "sklearn hist gamma": lambda: Case(HR(**HIST, loss="gamma"), POSITIVE, "gamma", "log", WEIGHTS),
}


@cache
def case_of(name):
    return CASES[name]().fit()


def along_gradients(model, rows, y, weights=None, offsets=None, output="raw", n_threads=None):
    """An additive explainer of a model that has exact weights, read as one of any other loss: a second account of its fit."""
    limits = limits_of(n_threads, None)
    given = FitInputs(model, rows, y, weights, offsets, output, limits=limits)
    proven = additive_model(given, find_by_gradients(model))
    return axil.Explainer._of(lambda: proven)


def explain(case, rows=X, **settings):
    """The additive explainer of a case."""
    make = along_gradients if case.loss == "squared" else explainer_of_fit
    return make(case.model, rows, case.y, case.weights, case.offsets, **settings)


def replayed(case, y, w=None, gone=(), **others):
    """(n, K): the scores of X_NEW by an independent replay of the fit to targets y (N, K), with weights w (N,).

    The rows ``gone`` have no weight: they count in nothing that follows from all rows. ``others``: further arguments of `replay`.
    """
    more = {"rate": 0.25, **case.more, "n_gone": len(gone), **others}
    if case.offsets is not None:
        more["offsets"] = case.offsets[:, None]
    if "factors" in more:  # class weights follow the labels
        positive, n_rows = np.delete(y[:, 0], gone).sum(), N - len(gone)
        unbalanced = (
            np.where(y[:, 0] > 0, n_rows - positive, positive)
            if "is_unbalance" in str(case.model)
            else None
        )
        larger = max(positive, n_rows - positive)
        balanced = larger / np.where(y[:, 0] > 0, positive, n_rows - positive)
        more["factors"] = np.where(y[:, 0] > 0, 3.0, 1.0) if unbalanced is None else balanced
    if w is None:
        w = kept_weights(case)
    return replay(case.leaves(X), case.leaves(X_NEW), y, w, case.loss, case.start, **more)


def kept_weights(case):
    """(N,): the weights as the library keeps them."""
    return case.w if case.library == "sklearn" else np.float32(case.w).astype(float)

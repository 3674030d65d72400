"""Boosting that drops trees (DART) or draws rows by their gradients (GOSS), without squared error.

Which trees were dropped is seen in the models that the libraries have after each iteration, sampled
rows in a loop over rows: neither is taken from axil.
"""

import json
from functools import cache

import numpy as np
import xgboost as xgb

from tests.contributions.boosting_models import (
    BINARY,
    CENTRED,
    CLASSES,
    COUNTS,
    GB,
    GC,
    L2,
    LC,
    LGB,
    LOG,
    LOGIT,
    LR,
    OFFSETS,
    POSITIVE,
    WEIGHTS,
    XC,
    XGB,
    XR,
    Case,
    N,
    X,
    stages,
)
from tests.contributions.fixed_structure import replay

ITERATIONS = 10
RATE = 0.25
LGB_DART = {
    **LGB,
    "n_estimators": ITERATIONS,
    "boosting_type": "dart",
    "drop_rate": 0.4,
    "skip_drop": 0.2,
}
LGB_GOSS = {
    **LGB,
    "n_estimators": ITERATIONS,
    "data_sample_strategy": "goss",
    "top_rate": 0.3,
    "other_rate": 0.2,
    "bagging_seed": 5,
}
LGB_BAG = {
    **LGB,
    "n_estimators": ITERATIONS,
    "subsample": 0.6,
    "subsample_freq": 2,
    "bagging_seed": 5,
}
XGB_DART = {**XGB, "n_estimators": ITERATIONS, "booster": "dart", "rate_drop": 0.4}


def table(scales, births):
    """omega from the trees' scales after each iteration and those that they were born with, 1 for the rate; any shape after."""
    n = len(scales)
    omega = np.zeros((n + 1, n, *np.shape(births[0])))
    for t in range(1, n):
        before, after = np.array(scales[t - 1]), np.array(scales[t][:t])
        omega[t, :t] = np.where(before == after, before, 0.0)
    omega[n] = scales[-1]
    return omega


def lightgbm_dart(case):
    """Fit, and look at the leaf values after each iteration: a tree's scale is their ratio to those that it was born with."""
    leaves = []

    def look(env):
        found = env.model.model_to_string().split("leaf_value=")[1:]
        values = [np.array(part.split("\n")[0].split(), dtype=float) for part in found]
        leaves.append([own[np.abs(own).argmax()] for own in values])

    extra = {} if case.offsets is None else {"init_score": case.offsets}
    case.model.fit(X, case.y, sample_weight=case.weights, callbacks=[look], **extra)
    K = case.targets.shape[1]
    born = [leaves[s // K][s] for s in range(len(leaves[-1]))]
    shares = [
        [now[s] / born[s] for s in range(0, len(now), K)] for now in leaves
    ]  # of a tree as it was born
    shares = [[1.0 if abs(share - 1) < 1e-12 else share for share in row] for row in shares]
    rates = [RATE]
    for t in range(1, len(shares)):
        dropped = sum(abs(a - b) > 1e-12 for a, b in zip(shares[t - 1], shares[t]))
        rates.append(RATE / (1 + dropped))
    shares = [np.array(row) for row in shares]
    for t in range(1, len(shares)):  # the same number where nothing but rounding changed
        same = np.abs(shares[t][:t] - shares[t - 1]) < 1e-12
        shares[t][:t] = np.where(same, shares[t - 1], shares[t][:t])
    part = table(shares, np.ones(len(shares)))
    assert (part[1:-1] == 0)[np.tril_indices(len(shares) - 1)].any()  # or nothing was dropped
    omega = (part * np.array(rates))[:, :, None]
    case.more.update(omega=omega, beta=np.append(1.0, part[1:, 0]))
    return case


class Weights(xgb.callback.TrainingCallback):
    """The weight_drop of XGBoost after each iteration."""

    def __init__(self):
        self.found = []

    def after_iteration(self, model, epoch, evals_log):
        booster = json.loads(bytes(model.save_raw("json")))["learner"]["gradient_booster"]
        found = (
            booster["weight_drop"] if "weight_drop" in booster else booster["model"]["weight_drop"]
        )  # from 3.4 on
        self.found.append(np.array(found, dtype=float))
        return False


def xgboost_dart(case):
    look = Weights()
    case.model.set_params(callbacks=[look])
    case.fit()
    case.model.set_params(callbacks=None)
    K = case.targets.shape[1]
    scales = [weights.reshape(-1, K) for weights in look.found]
    omega = RATE * table(scales, np.ones((len(scales), K)))
    assert (omega[1:-1].min(axis=2) == 0)[np.tril_indices(len(scales) - 1)].any()
    beta = np.ones(len(scales) + 1)
    case.more.update(omega=omega, beta=beta)
    return case


def words(seed):
    x = seed
    while True:
        x = (214013 * x + 2531011) % 2**32
        yield (x >> 16 & 0x7FFF) / 32768


def goss(case, top_rate=0.3, other_rate=0.2):
    """Fit, and draw row by row (Helper, src/boosting/goss.hpp) along an independent replay."""
    case.fit()
    stream, bags = words(5), []

    def draw(t, g, h):
        size = np.abs(np.float32(g) * np.float32(h)).sum(axis=1, dtype=np.float32)
        bag, big, sampled = np.zeros(N), 0, 0
        top, others = int(N * top_rate), int(N * other_rate)
        least = np.sort(size)[-top]
        for i in range(N):
            if t < int(1 / RATE):
                bag[i] = 1.0
            elif size[i] >= least:
                bag[i], big = 1.0, big + 1
            elif next(stream) < (others - sampled) / (N - i - (top - big)):
                bag[i], sampled = (N - top) / others, sampled + 1
        bags.append(bag)
        return bag

    w = np.float32(case.w).astype(float)
    leaves = case.leaves(X)
    replay(
        leaves,
        leaves[:1],
        case.targets,
        w,
        case.loss,
        case.start,
        **{"rate": RATE, **case.more, "bags": draw},
    )
    case.more["bags"] = np.stack(bags, axis=1)
    assert set(np.unique(case.more["bags"])) == {0.0, 1.0, (N - 36) / 24}
    return case


def bagged(case, share=0.6):
    """Fit, and draw each row by its share, again in every other iteration."""
    case.fit()
    stream, bags = words(5), []
    for t in range(ITERATIONS):
        bags.append(
            bags[-1]
            if t % 2
            else np.array([next(stream) < s for s in share + np.zeros(N)], dtype=float)
        )
    case.more["bags"] = np.stack(bags, axis=1)
    return case


MODELS = {
    "lightgbm dart": lambda: lightgbm_dart(
        Case(LC(**LGB_DART), BINARY, "logistic", "logit", WEIGHTS)
    ),
    "lightgbm dart multiclass": lambda: lightgbm_dart(
        Case(LC(**LGB_DART, reg_alpha=0.2), CLASSES, "softmax3/2", "log", more={"l1": 0.2})
    ),
    "lightgbm dart poisson": lambda: lightgbm_dart(
        Case(
            LR(**LGB_DART, objective="poisson", max_delta_step=0.5),
            COUNTS,
            "poisson0.7",
            "log",
            more={"most": 0.5},
        )
    ),
    "lightgbm dart from offsets": lambda: lightgbm_dart(
        Case(LC(**LGB_DART), BINARY, "logistic", "zero", WEIGHTS, OFFSETS)
    ),
    "lightgbm goss": lambda: goss(
        Case(
            LC(**LGB_GOSS, scale_pos_weight=3.0),
            BINARY,
            "logistic",
            "logit",
            WEIGHTS,
            more={"factors": np.where(BINARY, 3.0, 1.0)},
        )
    ),
    "lightgbm goss multiclass": lambda: goss(
        Case(LC(**LGB_GOSS), CLASSES, "softmax3/2", "log", WEIGHTS)
    ),
    "lightgbm goss gamma": lambda: goss(
        Case(LR(**LGB_GOSS, objective="gamma"), POSITIVE, "gamma", "log")
    ),
    "lightgbm bagging multiclass": lambda: bagged(
        Case(LC(**LGB_BAG), CLASSES, "softmax3/2", "log", WEIGHTS)
    ),
    "lightgbm balanced bagging": lambda: bagged(
        Case(
            LC(**{**LGB_BAG, "subsample": 1.0}, pos_bagging_fraction=0.5, neg_bagging_fraction=0.8),
            BINARY,
            "logistic",
            "logit",
            WEIGHTS,
        ),
        np.where(BINARY, 0.5, 0.8),
    ),
    "sklearn subsample multiclass": lambda: Case(
        GC(**GB, subsample=0.7),
        CLASSES,
        "softmax",
        "centred",
        WEIGHTS,
        more={"rate": RATE * 2 / 3, "bags": stages(0.7, GB["n_estimators"], 3)},
    ).fit(),
    "xgboost dart": lambda: xgboost_dart(
        Case(
            XC(**XGB_DART, skip_drop=0.2, one_drop=True),
            BINARY,
            "logistic",
            LOGIT,
            WEIGHTS,
            more=dict(L2),
        )
    ),
    "xgboost dart multiclass": lambda: xgboost_dart(
        Case(
            XC(**XGB_DART, normalize_type="forest"),
            CLASSES,
            "softmax2",
            CENTRED,
            WEIGHTS,
            more=dict(L2),
        )
    ),
    "xgboost dart poisson": lambda: xgboost_dart(
        Case(
            XR(**XGB_DART, objective="count:poisson", sample_type="weighted"),
            COUNTS,
            "poisson0.7",
            LOG,
            more={**L2, "most": 0.7},
        )
    ),
}


@cache
def model_of(name):
    return MODELS[name]()

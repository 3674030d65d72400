"""How well the derivatives of boosting predict what happens when targets change: small changes, whole ones, and refits.

For some training rows j and rows x held out, the change of the score at x that J predicts, J[x, j] * delta, is compared with

- small: replays with the structure fixed and target j moved by 1e-4 up and down (the derivative itself);
- fixed: a replay with the structure fixed and a whole change: a label flipped, a target one standard deviation larger;
- refit: the model fitted again to the changed targets, splits and all.

Half of the rows j have the largest |J| for the rows held out, half are random. Reported are the
rank correlation over j (the median over x) and the relative error ||predicted - found|| / ||found||.
Data: scikit-learn's own, no download.

    python experiments/jacobian_fidelity_boosting.py [--rows 24]
"""

from __future__ import annotations

import argparse
import time
import warnings

import catboost
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from paper_setting import write_csv
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.model_selection import train_test_split

import axil
from axil.adapters import find_by_gradients
from axil.contributions import boosting as contributions
from axil.implicit.readers import FitInputs
from axil.machine.memory import Budget, Limits

COMMAND = "python experiments/jacobian_fidelity_boosting.py"
TREES, HELD_OUT, SMALL = 50, 20, 1e-4
LGB = {
    "n_estimators": TREES,
    "verbose": -1,
    "n_jobs": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_leaves": 15,
}
XGB = {"n_estimators": TREES, "n_jobs": 1, "max_depth": 4, "learning_rate": 0.3}
CAT = {
    "iterations": TREES,
    "verbose": 0,
    "thread_count": 1,
    "allow_writing_files": False,
    "random_seed": 0,
    "depth": 4,
}
CAT["leaf_estimation_iterations"] = 1  # the replay here takes one step a tree
HIST = {"max_iter": TREES, "random_state": 0, "max_leaf_nodes": 15}


def sigmoid(F):
    return 1 / (1 + np.exp(-F))


def softmax(F):
    e = np.exp(F - F.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


#: By the name of the loss: (y, F) -> g, h; and what a fit starts from, of the means.
LOSSES = {
    "squared": (lambda y, F: (F - y, np.ones_like(F)), lambda m: m),
    "logistic": (
        lambda y, F: (sigmoid(F) - y, sigmoid(F) * sigmoid(-F)),
        lambda m: np.log(m / (1 - m)),
    ),
    "softmax": (lambda y, F: (softmax(F) - y, softmax(F) * (1 - softmax(F))), np.log),
    "poisson": (lambda y, F: (np.exp(F) - y, np.exp(F)), np.log),
    "gamma": (lambda y, F: (1 - y * np.exp(-F), y * np.exp(-F)), np.log),
}


def replay(fit, leaves, queries, y):
    """(n, K): the scores in the leaves ``queries`` (n, T) when the trees with these leaves (N, T) are refitted to y (N, K)."""
    derivatives, start = LOSSES[fit.loss.name]
    rates = np.nan_to_num(
        fit.learning_rates, nan=XGB["learning_rate"]
    )  # which files of XGBoost do not state
    initial = fit.initial.constants
    if initial is None:
        initial = start(y.mean(axis=0))
    F, Q = initial + np.zeros_like(y), initial + np.zeros((len(queries), y.shape[1]))
    starts = fit.table.starts
    for trees in fit.schedule.trees_of_rounds:
        g, h = derivatives(y, F)
        for s in trees:
            k, n, leaf = fit.schedule.outputs[s], fit.table.n_leaves[s], leaves[:, s]
            G, H = (
                np.bincount(leaf, g[:, k], n),
                getattr(fit.loss, "factor", 1.0) * np.bincount(leaf, h[:, k], n),
            )
            v = (
                -np.sign(G)
                * np.maximum(np.abs(G) - fit.leaf_rule.l1, 0)
                / (H + fit.leaf_rule.l2[starts[s] : starts[s + 1]])
            )
            v = np.clip(v, -fit.leaf_rule.max_step, fit.leaf_rule.max_step)
            F[:, k] += rates[s] * v[leaf]
            Q[:, k] += rates[s] * v[queries[:, s]]
    return Q


def cases():
    """library, data, loss, model, X, y."""
    cancer, wine, diabetes = (
        load(return_X_y=True) for load in (load_breast_cancer, load_wine, load_diabetes)
    )
    counts = diabetes[0], np.rint(diabetes[1] / 25)
    yield "LightGBM", "breast_cancer", "binary", lgb.LGBMClassifier(**LGB), *cancer
    yield "XGBoost", "breast_cancer", "binary:logistic", xgb.XGBClassifier(**XGB), *cancer
    yield "CatBoost", "breast_cancer", "Logloss", catboost.CatBoostClassifier(**CAT), *cancer
    boosting = GradientBoostingClassifier(n_estimators=TREES, random_state=0)
    yield "scikit-learn", "breast_cancer", "log_loss", boosting, *cancer
    yield (
        "scikit-learn hist",
        "breast_cancer",
        "log_loss",
        HistGradientBoostingClassifier(**HIST),
        *cancer,
    )
    yield "LightGBM", "wine", "multiclass", lgb.LGBMClassifier(**LGB), *wine
    yield "LightGBM", "diabetes", "poisson", lgb.LGBMRegressor(**LGB, objective="poisson"), *counts
    yield (
        "scikit-learn hist",
        "diabetes",
        "gamma",
        HistGradientBoostingRegressor(**HIST, loss="gamma"),
        *diabetes,
    )
    yield (
        "XGBoost",
        "diabetes",
        "squared, alpha=50",
        xgb.XGBRegressor(**XGB, reg_alpha=50.0),
        *diabetes,
    )
    yield "LightGBM", "diabetes", "squared (exact)", lgb.LGBMRegressor(**LGB), *diabetes


def moved(targets, y, j):
    """The user's y with row j changed, and the change of its targets (K,): a class for another, or a larger number."""
    own, after = y.copy(), targets[j].copy()
    classes = np.unique(y) if y.dtype.kind == "i" else None
    if classes is None:
        own[j] = y[j] + y.std()
        after += y.std()
    else:
        own[j] = classes[(np.searchsorted(classes, y[j]) + 1) % len(classes)]
        after = (own[j] == (classes[1:] if len(after) == 1 else classes)).astype(float)
    return own, after - targets[j]


def agreement(predicted, found):
    """The median over rows x of the rank correlation over rows j, and the relative error; (n_j, n_x) each."""
    ranks = [
        spearmanr(a, b).statistic
        for a, b in zip(predicted.T, found.T)
        if np.ptp(a) > 0 and np.ptp(b) > 0
    ]
    return float(np.median(ranks)), float(np.linalg.norm(predicted - found) / np.linalg.norm(found))


def measure(model, X, y, n_rows, rng):
    X, X_out, y, _ = train_test_split(X, y, test_size=HELD_OUT, random_state=0)
    model = model.fit(X, y)
    explainer = axil.Explainer(model, X, y, n_threads=1)
    J = explainer(X_out).weights.reshape(HELD_OUT, -1, len(y)).swapaxes(0, 1)
    given = FitInputs(model, X, y, limits=Limits(1, Budget(None)))
    boosting = contributions.read(given, find_by_gradients(model))
    fit, adapter, targets = boosting.walked.fit, boosting.adapter, boosting.targets
    leaves, queries = (adapter.coordinates(rows).astype(int) for rows in (X, X_out))
    before = adapter.scores(X_out)
    size = np.abs(J).sum(axis=(0, 1))
    others = rng.permutation(np.argsort(size)[: -n_rows // 2])[: n_rows - n_rows // 2]
    chosen = np.concatenate([np.argsort(size)[-n_rows // 2 :], others])
    replayed = replay(fit, leaves, queries, targets)
    results = {"small": [], "fixed": [], "refit": []}
    for j in chosen:
        own, delta = moved(targets, y, j)
        k = (
            int(np.argmax(delta)) if len(delta) > 1 else 0
        )  # one output: the class that the row moves to
        predicted, only = J[k, :, j], targets.copy()
        ends = []
        for step in (SMALL, -SMALL):
            only[j, k] = targets[j, k] + step
            ends.append(replay(fit, leaves, queries, only)[:, k])
        results["small"].append((2 * SMALL * predicted, ends[0] - ends[1]))
        only[j, k] = targets[j, k] + delta[k]
        results["fixed"].append(
            (delta[k] * predicted, (replay(fit, leaves, queries, only) - replayed)[:, k])
        )
        if (
            len(delta) == 1
        ):  # a refit of several classes moves all columns at once, J is by one of them
            again = find_by_gradients(clone(model).fit(X, own)).scores(X_out)
            results["refit"].append((delta[k] * predicted, (again - before)[:, k]))
    row = {
        "rows": len(y),
        "trees": len(fit.table.n_leaves),
        "replay error": f"{np.abs(replayed - before).max():.1e}",
    }
    for name, pairs in results.items():
        rank, error = (
            agreement(*(np.array(part) for part in zip(*pairs))) if pairs else (np.nan, np.nan)
        )
        row[f"{name} rank"], row[f"{name} error"] = f"{rank:.4f}", f"{error:.2e}"
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=24, help="training rows whose targets are changed"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for library, data, loss, model, X, y in cases():
        start = time.perf_counter()
        found = measure(model, X, y, arguments.rows, np.random.default_rng(0))
        rows.append(
            {"library": library, "data": data, "loss": loss, "changed": arguments.rows, **found}
        )
        rows[-1] |= {"seconds": f"{time.perf_counter() - start:.1f}"}
        print(rows[-1], flush=True)
    packages = ("axil", "numpy", "scipy", "scikit-learn", "lightgbm", "xgboost", "catboost")
    write_csv("jacobian_fidelity_boosting", rows, COMMAND, packages)


if __name__ == "__main__":
    main()

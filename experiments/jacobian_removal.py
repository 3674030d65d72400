"""Do the rows that derivatives put first matter when they are deleted and the model is fitted again?

    python experiments/jacobian_removal.py        # about two minutes; writes experiments/results/jacobian_removal.csv

For each of 20 rows held out, training rows are ranked, the first 0.1 to 2 % deleted, the model fitted again, splits and all, and
the change of the raw score at that row measured. AURC is the mean |change| over the shares deleted. Rankings: |J| by the targets;
the first-order effect of deleting a row, |w dF/dw|; the same by the sign whose rows add up to more; and at random. p is of a
paired t-test against the random ranking.
"""

from __future__ import annotations

import argparse

import lightgbm as lgb
import numpy as np
from paper_setting import markdown, write_csv
from scipy.stats import ttest_rel
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes

import axil

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02)
QUERIES = 20
SETTINGS = {
    "n_estimators": 100,
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_child_samples": 2,
    "n_jobs": 1,
    "verbose": -1,
}
CASES = {
    "breast_cancer, binary": (load_breast_cancer, lgb.LGBMClassifier(**SETTINGS)),
    "diabetes, poisson": (load_diabetes, lgb.LGBMRegressor(objective="poisson", **SETTINGS)),
    "diabetes, gamma": (load_diabetes, lgb.LGBMRegressor(objective="gamma", **SETTINGS)),
    "diabetes, squared (exact)": (load_diabetes, lgb.LGBMRegressor(**SETTINGS)),
}


def rankings(explainer, X, rng):
    """(n, n_train) orders of the training rows by each rule, first the one to delete first."""
    targets, effects = explainer(X).weights, explainer.removal(X, method="first-order")
    best = np.sort(effects, axis=1)
    m = max(1, round(SHARES[-1] * effects.shape[1]))
    sign = np.where(best[:, -m:].sum(axis=1) >= -best[:, :m].sum(axis=1), 1.0, -1.0)[:, None]
    return {
        "by target": np.argsort(-np.abs(targets), axis=1),
        "by deletion": np.argsort(-np.abs(effects), axis=1),
        "by deletion, one sign": np.argsort(-sign * effects, axis=1),
        "random": np.argsort(rng.random(effects.shape), axis=1),
    }


def run(name):
    load, model = CASES[name]
    X, y = load(return_X_y=True)
    rng = np.random.default_rng(42)
    order = rng.permutation(len(y))
    train, held_out = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :][:QUERIES]
    fitted = model.fit(X[train], y[train])
    before = fitted.predict(X[held_out], raw_score=True)
    explainer = axil.Explainer(fitted, X[train], y[train])
    changes = {}
    for rule, orders in rankings(explainer, X[held_out], rng).items():
        changes[rule] = np.zeros((len(held_out), len(SHARES)))
        for i, own in enumerate(orders):
            for k, share in enumerate(SHARES):
                kept = np.delete(train, own[: max(1, round(share * len(train)))])
                again = clone(model).fit(X[kept], y[kept])
                changes[rule][i, k] = abs(
                    again.predict(X[held_out[i : i + 1]], raw_score=True)[0] - before[i]
                )
    areas = {rule: change.mean(axis=1) for rule, change in changes.items()}
    for rule, area in areas.items():
        p = "" if rule == "random" else f"{ttest_rel(area, areas['random']).pvalue:.1e}"
        ratio = area.mean() / areas["random"].mean()
        yield {
            "model": name,
            "ranking": rule,
            "AURC": f"{area.mean():.4f}",
            "to random": f"{ratio:.2f}",
            "p": p,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(CASES))
    lines = [line for name in parser.parse_args().only for line in run(name)]
    print("\n".join(markdown(lines)))
    write_csv(
        "jacobian_removal",
        lines,
        "python experiments/jacobian_removal.py",
        ("axil", "lightgbm", "numpy"),
    )


if __name__ == "__main__":
    main()

"""Weights of outcomes in causal estimates: partially linear and doubly robust ones, with cross-fitted nuisances.

    python experiments/outcome_weights.py --file 401k.csv     # participation in 401(k) plans, 9,915 households
    python experiments/outcome_weights.py --quick             # made-up data, some seconds; writes nothing

Both estimates are linear in the outcomes Y once the nuisances' structure is held fixed: theta = omega'Y. `Explainer.aggregate`
gives each fold's part of omega in one pass. "apart": |omega'Y - theta| over theta. "balance": the largest standardised difference
of a covariate between treated and others, weighted by omega; raw: unweighted. Errors in brackets are those of the influence
function.

The file is data/401k.csv of the repository CausalAIBook/MetricsMLNotebooks; the columns are those of its notebooks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_setting import Line, markdown, write_csv
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import StratifiedKFold

import axil

COVARIATES = ["age", "db", "educ", "fsize", "hown", "inc", "male", "marr", "pira", "twoearn"]
OUTCOME, TREATMENT = "net_tfa", "p401"
LEAST, FOLDS = 0.01, 2  # the smallest chance of a treatment that is not cut off
Nuisances = tuple[Callable[[], Any], Callable[[], Any]]
NUISANCES: dict[str, Nuisances] = {
    "forest": (
        lambda: RandomForestRegressor(
            500, min_samples_leaf=20, max_features=0.5, random_state=0, n_jobs=-1
        ),
        lambda: RandomForestClassifier(
            500, min_samples_leaf=20, max_features=0.5, random_state=0, n_jobs=-1
        ),
    ),
    "LightGBM": (
        lambda: lgb.LGBMRegressor(n_estimators=100, num_leaves=8, learning_rate=0.05, verbose=-1),
        lambda: lgb.LGBMClassifier(n_estimators=100, num_leaves=8, learning_rate=0.05, verbose=-1),
    ),
}


def outcome_weights(
    X: pd.DataFrame, D: np.ndarray, Y: np.ndarray, models: Nuisances, folds: int
) -> dict[str, Any]:
    """For each estimate: theta, its standard error, and omega (n,)."""
    n, outcome, treatment = len(Y), *models
    splits = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(X, D))
    chance, level, ones, zeros = np.zeros((4, n))
    for train, test in splits:
        chance[test] = treatment().fit(X.iloc[train], D[train]).predict_proba(X.iloc[test])[:, 1]
    e, left = np.clip(chance, LEAST, 1 - LEAST), D - chance
    omega_linear = left.copy()
    omega_robust = (D / e - (1 - D) / (1 - e)) / n
    for train, test in splits:
        for rows, coefficients, place in (
            (train, -left[test], level),
            (train[D[train] == 1], (1 - D[test] / e[test]) / n, ones),
            (train[D[train] == 0], -(1 - (1 - D[test]) / (1 - e[test])) / n, zeros),
        ):
            model = outcome().fit(X.iloc[rows], Y[rows])
            place[test] = model.predict(X.iloc[test])
            omega = omega_linear if place is level else omega_robust
            omega[rows] += (
                axil.Explainer(model, X.iloc[rows], Y[rows])
                .aggregate(X.iloc[test], coefficients)
                .weights[0]
            )
    omega_linear /= left @ left
    linear = left @ (Y - level) / (left @ left)
    influence = left * (Y - level - linear * left) / np.mean(left**2)
    scores = ones - zeros + D * (Y - ones) / e - (1 - D) * (Y - zeros) / (1 - e)
    return {
        "partially linear": (linear, np.std(influence) / np.sqrt(n), omega_linear),
        "AIPW": (scores.mean(), np.std(scores) / np.sqrt(n), omega_robust),
    }


def imbalance(X: pd.DataFrame, D: np.ndarray, omega: np.ndarray) -> pd.DataFrame:
    """Standardised differences of each covariate between treated and others: raw, and weighted by omega."""
    values, sizes = X.to_numpy(float), X.to_numpy(float).std(axis=0)
    treated, others = (np.where(d == D, sign * omega, 0.0) for d, sign in ((1, 1.0), (0, -1.0)))
    raw = values[D == 1].mean(axis=0) - values[D == 0].mean(axis=0)
    weighted = treated @ values / treated.sum() - others @ values / others.sum()
    return pd.DataFrame({"raw": raw / sizes, "weighted": weighted / sizes}, index=X.columns)


def measure(X: pd.DataFrame, D: np.ndarray, Y: np.ndarray, names: list[str]) -> list[Line]:
    """The lines of the table."""
    lines: list[Line] = []
    for name in names:
        for estimate, (theta, error, omega) in outcome_weights(
            X, D, Y, NUISANCES[name], FOLDS
        ).items():
            worst = imbalance(X, D, omega).abs().max()
            lines.append(
                {
                    "nuisances": name,
                    "estimate": estimate,
                    "theta": f"{theta:,.0f} ({error:,.0f})"
                    if abs(theta) > 10
                    else f"{theta:.3f} ({error:.3f})",
                    "apart": f"{abs(omega @ Y - theta) / abs(theta):.0e}",
                    "balance, raw": f"{worst['raw']:.3f}",
                    "balance": f"{worst['weighted']:.3f}",
                    "negative omega of treated": f"{np.mean(omega[D == 1] < 0):.1%}",
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, metavar="CSV", help="the 401(k) data")
    parser.add_argument("--quick", action="store_true", help="made-up data; prints, writes nothing")
    given = parser.parse_args()
    if given.quick or given.file is None:
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
        D = (rng.random(600) < 1 / (1 + np.exp(-X["a"]))).astype(float).to_numpy()
        Y = (2 * D + X["a"] + rng.normal(size=600)).to_numpy()
        print("\n".join(markdown(measure(X, D, Y, ["LightGBM"]))))
        return
    data = pd.read_csv(given.file)
    X, D, Y = data[COVARIATES], data[TREATMENT].to_numpy(float), data[OUTCOME].to_numpy(float)
    lines = measure(X, D, Y, list(NUISANCES))
    print("\n".join(markdown(lines)))
    write_csv("outcome_weights", lines, "python experiments/outcome_weights.py --file 401k.csv")


if __name__ == "__main__":
    main()

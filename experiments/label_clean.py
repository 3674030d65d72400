"""Measure whether find_label_issues leaves right counts and amounts alone.

Clean data of the distributions that models of counts and amounts assume.

    python experiments/label_clean.py       # a minute or two; needs no data

6,000 simulated rows, five columns of which three matter, 50 rounds. Every target is right, so a
good check has about 1 % of the rows below a quality of 0.01, and none that is suspect. "offsets":
counts over exposures of 0.1 to 1 years, whose logarithms are offsets; "weights": counts per
exposure, with exposures for weights. Overdispersed counts are Poisson around gamma means.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from paper_setting import Line, command, markdown, write
from sklearn.ensemble import HistGradientBoostingRegressor

import axil

ROWS, ROUNDS = 6000, 50
LIGHTGBM = {"poisson": "poisson", "gamma": "gamma", "tweedie": "tweedie"}
XGBOOST = {"poisson": "count:poisson", "gamma": "reg:gamma", "tweedie": "reg:tweedie"}


def amounts(kind: str, mean: np.ndarray, setting: float, draws: np.random.Generator) -> np.ndarray:
    """Targets of these means."""
    if kind == "poisson":
        return draws.poisson(mean).astype(float)
    if kind == "overdispersed":
        return draws.poisson(mean * draws.gamma(setting, 1 / setting, len(mean))).astype(float)
    if kind == "gamma":
        return draws.gamma(setting, mean / setting)
    claims = draws.poisson(setting * mean / mean.mean())
    return np.array([draws.gamma(2.0, 1.0, n).sum() for n in claims])


CASES: dict[
    str, tuple[str, float, float]
] = {  # of each: the kind, the mean, and the setting of `amounts`
    "Poisson, mean 0.05": ("poisson", 0.05, 0.0),
    "Poisson, mean 0.5": ("poisson", 0.5, 0.0),
    "Poisson, mean 5": ("poisson", 5.0, 0.0),
    "overdispersed, mean 0.5": ("overdispersed", 0.5, 1.0),
    "overdispersed, mean 5": ("overdispersed", 5.0, 3.0),
    "gamma, shape 0.7": ("gamma", 10.0, 0.7),
    "gamma, shape 3": ("gamma", 10.0, 3.0),
    "Tweedie, 0.3 claims": ("tweedie", 1.0, 0.3),
}


def models(loss: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield (
        "LightGBM",
        lambda: lgb.LGBMRegressor(
            n_estimators=ROUNDS, objective=LIGHTGBM[loss], verbose=-1, n_jobs=1
        ),
    )
    yield (
        "XGBoost",
        lambda: xgb.XGBRegressor(
            n_estimators=ROUNDS, max_depth=4, objective=XGBOOST[loss], n_jobs=1
        ),
    )
    if loss != "tweedie":
        yield "HistGB", lambda: HistGradientBoostingRegressor(loss=loss, max_iter=ROUNDS)


def explainers(case: str, seed: int) -> Iterator[tuple[str, str, axil.Explainer]]:
    """The exposure, the library and the explainer of each model."""
    kind, level, setting = CASES[case]
    draws = np.random.default_rng(seed)
    X = draws.normal(size=(ROWS, 5))
    mean = np.exp(0.4 * X[:, 0] - 0.3 * (X[:, 1] > 0) + 0.3 * X[:, 2] * (X[:, 0] > 0))
    mean *= level / mean.mean()
    y, loss = amounts(kind, mean, setting, draws), "poisson" if kind == "overdispersed" else kind
    y = np.maximum(y, 1e-6) if kind == "gamma" else y
    for name, make in models(loss):
        yield "none", name, axil.Explainer(make().fit(X, y), X, y)
    if loss == "poisson":
        exposure = draws.uniform(0.1, 1.0, ROWS)
        y = amounts(kind, mean * exposure, setting, draws)
        for name, make in models(loss):
            fitted = make().fit(X, y / exposure, sample_weight=exposure)
            yield "weights", name, axil.Explainer(fitted, X, y / exposure, sample_weight=exposure)
        offsets = np.log(exposure)
        fitted = next(models(loss))[1]().fit(X, y, init_score=offsets)
        yield "offsets", "LightGBM", axil.Explainer(fitted, X, y, init_score=offsets)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    lines: list[Line] = []
    for case in CASES:
        for exposure, library, explainer in explainers(case, 0):
            table = explainer.find_label_issues()
            line: Line = {"targets": case, "exposure": exposure, "model": library}
            line |= {"below 0.01, %": f"{100 * (table['label_quality'] < 0.01).mean():.2f}"}
            lines.append(line | {"suspects": int(table["is_label_issue"].sum())})
            print(lines[-1], flush=True)
    print("\n".join(markdown(lines)))
    write("label_clean", lines, command("label_clean", None))


if __name__ == "__main__":
    main()

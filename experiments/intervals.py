"""How good are prediction intervals? axil's against those of other methods, on the same rows and mostly the same model.

    python experiments/intervals.py --data FOLDER              # the paper's data sets
    python experiments/intervals.py --openml                   # those of IBUG's list that OpenML has, by id
    python experiments/intervals.py --data FOLDER --paper      # with the paper's model, methods that share a model
    python experiments/intervals.py --quick                    # two small ones

60 % of the rows are fitted on, 20 % calibrate, 20 % test; of more than 2,000 rows so many are drawn. Five such splits. The base
model is LightGBM with its defaults. No method sees a test target before it is scored, and no setting was chosen by these scores.
Each method's scores of each split are kept in a cache as soon as they are there, so that an interrupted run goes on; after a
change of a method, delete its files there. What is not installed is left out: `pip install ngboost quantile-forest catboost`.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from intervals_report import write_tables
from intervals_rivals import METHODS, MODEL, OWN_MODELS, Split
from intervals_scores import crps, nll_normal, winkler
from paper_data import QUICK, cache_folder, read
from paper_setting import SETTINGS, Line, arguments, command
from sklearn.datasets import fetch_openml
from sklearn.preprocessing import StandardScaler

import axil

MOST_ROWS, SEEDS = 2000, 5
LAST = ("NGBoost",)  # takes longer than all others together
NEEDED = {"quantile-forest": "quantile_forest", "NGBoost": "ngboost", "CatBoost": "catboost"}
CACHE = cache_folder() / "intervals"
# OpenML ids of IBUG's list, less those that are among the paper's; no committed result is of these.
OPENML = {
    "ames": 42165,
    "bike": 42712,
    "california": 44977,
    "naval": 44969,
    "protein": 44963,
    "superconductor": 44964,
    "wave": 44975,
}


def read_openml(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """OpenML's default target; categories one-hot, other columns without numbers and columns with gaps dropped."""
    bunch = fetch_openml(data_id=OPENML[name], as_frame=True, parser="pandas")
    features = bunch.data.dropna(axis=1).select_dtypes(["number", "category"])
    return pd.get_dummies(features, dtype=float), bunch.target.astype(float)


def split_of(
    X: np.ndarray, y: np.ndarray, seed: int, settings: dict[str, Any] = MODEL
) -> tuple[Split, np.ndarray]:
    """The rows of a split, and the numbers of its test rows in the data set."""
    order = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    train, cal, test = np.split(order, [round(0.6 * len(order)), round(0.8 * len(order))])
    return Split(X[train], y[train], X[cal], y[cal], X[test], seed, settings), test


def scores_of(method: str, split: Split, y: np.ndarray) -> dict[str, np.ndarray]:
    """Of each test row, and the seconds."""
    _ = split.model, split.made, split.left  # those of the shared model do not count
    refits = split.folds[2] if method in ("axil, out-of-fold", "axil, both", "CV+") else 0.0
    if method.startswith("IBUG"):
        split.__dict__.pop("neighbours", None)
    start = time.perf_counter()
    found = METHODS[method](split)
    seconds = time.perf_counter() - start + refits
    return {
        "crps": crps(found.quantiles, y),
        "nll": nll_normal(y, found.mean, found.std),
        "winkler": winkler(found.lower, found.upper, y),
        "covered": (found.lower <= y) & (y <= found.upper),
        "width": found.upper - found.lower,
        "seconds": np.array(seconds),
    }


def strata_of(split: Split, y: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """By what test rows are grouped, and what may say that an error will be large."""
    explainer = axil.Explainer(split.model, split.X_train, split.y_train)
    table = explainer.calibrate(split.X_cal, split.y_cal).interval(split.X)
    weights = explainer(split.X).weights
    norm = np.linalg.norm(weights, axis=1)
    scaler = StandardScaler().fit(split.X_train)
    train, new = scaler.transform(split.X_train), scaler.transform(split.X)
    return {
        "row": rows,
        "error": np.abs(y - split.made),
        "local scale": table["scale"].to_numpy(),
        "norm of the weights": norm,
        "effective size, inverse": np.square(norm / np.abs(weights).sum(axis=1)),
        "distance to a training row": np.array(
            [np.linalg.norm(train - row, axis=1).min() for row in new]
        ),
        "spread of targets, IBUG's": split.neighbours[1][:, 3],
        "size of the prediction": np.abs(split.made - split.y_train.mean()),
        "feature": split.X[:, split.model.booster_.feature_importance("gain").argmax()],
    }


def measure(
    data: dict[str, tuple[np.ndarray, np.ndarray]],
    methods: list[str],
    cache: Path,
    seeds: int,
    slow: int = SEEDS,
    settings: dict[str, Any] = MODEL,
) -> dict[tuple[str, int, str], dict[str, np.ndarray]]:
    """{(data, seed, method or "strata"): arrays}, from the cache or made now, small data sets first; ``slow``: seeds of LAST."""
    names = sorted(data, key=lambda name: len(data[name][1]))
    found = {}
    rounds = (
        ([m for m in methods if m not in LAST], seeds),
        ([m for m in methods if m in LAST], min(seeds, slow)),
    )
    for some, count in rounds:
        for seed, name in product(range(count), names):
            split, rows = split_of(*data[name], seed, settings)
            y, new = data[name][1][rows], []
            for what in ["strata", *some]:
                path = cache / f"{name}-{seed}-{what}.npz"
                if not path.exists():
                    arrays = (
                        strata_of(split, y, rows) if what == "strata" else scores_of(what, split, y)
                    )
                    path.parent.mkdir(parents=True, exist_ok=True)
                    np.savez_compressed(path.with_suffix(".part.npz"), **arrays)
                    path.with_suffix(".part.npz").replace(path)
                    new.append(what)
                with np.load(path) as kept:
                    found[name, seed, what] = dict(kept)
            if new:
                print(
                    f"{time.strftime('%H:%M:%S')} {name}, split {seed}: {'; '.join(new)}",
                    flush=True,
                )
    return found


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--openml", action="store_true", help="data sets of IBUG's list, which need a connection"
    )
    parser.add_argument(
        "--paper", action="store_true", help="the paper's model, methods that share a model"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two small data sets, two splits; prints, writes nothing",
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder in which scores are kept")
    parser.add_argument(
        "--without", nargs="*", default=[], choices=list(METHODS), help="methods to leave out"
    )
    parser.add_argument(
        "--slow-splits",
        type=int,
        default=SEEDS,
        help=f"splits for {', '.join(LAST)} (default: all)",
    )
    given = parser.parse_args()
    names = QUICK if given.quick else list(OPENML) if given.openml else given.only
    data = {name: read_openml(name) if given.openml else read(name, given.data) for name in names}
    numbers = {name: (X.to_numpy(float), y.to_numpy(float)) for name, (X, y) in data.items()}
    absent = [name for name, module in NEEDED.items() if find_spec(module) is None]
    absent += [*given.without, *(OWN_MODELS if given.paper else [])]
    methods = [name for name in METHODS if name not in absent]
    cache, settings = (given.cache / "paper", SETTINGS) if given.paper else (given.cache, MODEL)
    found = measure(
        numbers, methods, cache, 2 if given.quick else SEEDS, given.slow_splits, settings
    )
    shapes: dict[str, Line] = {
        name: {"N": X.shape[0], "M": X.shape[1]} for name, (X, _) in numbers.items()
    }
    line, table = command("intervals", given.data), "intervals"
    for flag in (flag for flag in ("openml", "paper") if getattr(given, flag)):
        line, table = f"{line} --{flag}", f"{table}_{flag}"
    line += (
        f" --slow-splits {given.slow_splits}"
        if given.slow_splits < SEEDS and not given.paper
        else ""
    )
    write_tables(found, shapes, None if given.quick else table, line, short=given.paper)


if __name__ == "__main__":
    main()

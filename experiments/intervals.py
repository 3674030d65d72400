"""How good are prediction intervals? axil's against those of other methods, on the same rows and mostly the same model.

    python experiments/intervals.py --data FOLDER              # the paper's data sets
    python experiments/intervals.py --openml                   # those of IBUG's list that OpenML has, by id
    python experiments/intervals.py --quick                    # two small ones

60 % of the rows are fitted on, 20 % calibrate, 20 % test; of more than 2,000 rows so many are drawn. Five such splits. The base
model is LightGBM with its defaults. No method sees a test target before it is scored, and no setting was chosen on these data.
Each method's scores of each split are kept in a cache as soon as they are there, so that an interrupted run goes on. What is not
installed is left out, and the tables say so: `pip install ngboost quantile-forest catboost`.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from intervals_report import write_tables
from intervals_rivals import METHODS, Split
from intervals_scores import crps, nll_normal, winkler
from paper_data import QUICK, cache_folder, read
from paper_setting import Line, arguments, command
from sklearn.datasets import fetch_openml
from sklearn.preprocessing import StandardScaler

import axil

MOST_ROWS, SEEDS = 2000, 5
LAST = ("NGBoost",)  # takes longer than all others together
NEEDED = {"quantile-forest": "quantile_forest", "NGBoost": "ngboost", "CatBoost": "catboost"}
CACHE = cache_folder() / "intervals"
# Of IBUG's list, less those that are among the paper's; name: OpenML id and target.
OPENML = {
    "ames": (42165, "SalePrice"),
    "bike": (42712, "count"),
    "california": (44977, "medianHouseValue"),
    "naval": (44969, "gt_compressor_decay_state_coefficient"),
    "protein": (44963, "RMSD"),
    "superconductor": (44964, "criticaltemp"),
    "wave": (44975, "energy_total"),
}


def read_openml(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Categories one-hot, other columns without numbers and columns with gaps dropped."""
    number, target = OPENML[name]
    frame = fetch_openml(data_id=number, target_column=None, as_frame=True, parser="pandas").frame
    y = frame.pop(target).astype(float)
    frame = frame.dropna(axis=1)
    return pd.get_dummies(frame.select_dtypes(["number", "category"]), dtype=float), y


def split_of(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Split, np.ndarray]:
    """The rows of a split, and the numbers of its test rows in the data set."""
    order = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    train, cal, test = np.split(order, [round(0.6 * len(order)), round(0.8 * len(order))])
    return Split(X[train], y[train], X[cal], y[cal], X[test], seed), test


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
        "distance to a training row": np.array([np.linalg.norm(train - row, axis=1).min() for row in new]),
        "spread of targets, IBUG's": split.neighbours[1][:, 3],
        "size of the prediction": np.abs(split.made - split.y_train.mean()),
        "feature": split.X[:, split.model.booster_.feature_importance("gain").argmax()],
    }


def measure(
    data: dict[str, tuple[np.ndarray, np.ndarray]], methods: list[str], cache: Path, seeds: int
) -> dict[tuple[str, int, str], dict[str, np.ndarray]]:
    """{(data, seed, method or "strata"): arrays}, from the cache or made now, small data sets first."""
    names = sorted(data, key=lambda name: len(data[name][1]))
    found = {}
    for some in ([m for m in methods if m not in LAST], [m for m in methods if m in LAST]):
        for seed in range(seeds):
            for name in names:
                made = None
                for what in ["strata", *some]:
                    path = cache / f"{name}-{seed}-{what}.npz"
                    if not path.exists():
                        made = made or split_of(*data[name], seed)
                        split, rows = made
                        y = data[name][1][rows]
                        arrays = strata_of(split, y, rows) if what == "strata" else scores_of(what, split, y)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        np.savez_compressed(path.with_suffix(".part.npz"), **arrays)
                        path.with_suffix(".part.npz").replace(path)
                    with np.load(path) as kept:
                        found[name, seed, what] = dict(kept)
                if made:
                    print(f"{time.strftime('%H:%M:%S')} {name}, split {seed}: {', '.join(some)}", flush=True)
    return found


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--openml", action="store_true", help="data sets of IBUG's list, which need a connection")
    parser.add_argument("--quick", action="store_true", help="two small data sets, two splits; prints, writes nothing")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder in which scores are kept")
    parser.add_argument("--without", nargs="*", default=[], choices=list(METHODS), help="methods to leave out")
    given = parser.parse_args()
    names = QUICK if given.quick else list(OPENML) if given.openml else given.only
    data = {name: read_openml(name) if given.openml else read(name, given.data) for name in names}
    numbers = {name: (X.to_numpy(float), y.to_numpy(float)) for name, (X, y) in data.items()}
    absent = [name for name, module in NEEDED.items() if find_spec(module) is None]
    methods = [name for name in METHODS if name not in absent and name not in given.without]
    found = measure(numbers, methods, given.cache, 2 if given.quick else SEEDS)
    shapes: dict[str, Line] = {name: {"N": X.shape[0], "M": X.shape[1]} for name, (X, _) in numbers.items()}
    table = "intervals_openml" if given.openml else "intervals"
    line = command("intervals", given.data) + (" --openml" if given.openml else "")
    write_tables(found, shapes, None if given.quick else table, line)


if __name__ == "__main__":
    main()

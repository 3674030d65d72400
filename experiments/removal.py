"""How close the first-order effect of deleting a row is to deleting it, with the trees fixed.

    python experiments/removal.py        # under a minute; writes experiments/results/removal.csv

For each model and number of training rows, single rows are deleted in turn, leaf values computed again, and the changes of the
predictions of 90 other rows compared with `Explainer.removal`: their correlation, and the slope of the exact changes on the
first-order ones. Then sets of ten rows, chosen to first order and greedily, are deleted whole: the mean |change| they make.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from paper_setting import write_csv
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from xgboost import XGBRegressor

import axil

N_QUERIES, N_DELETED, SET_SIZE, N_SETS = 90, 150, 10, 6
MODELS: dict[str, Any] = {
    "LightGBM": lambda: LGBMRegressor(n_estimators=100, num_leaves=15, verbose=-1, n_jobs=2),
    "XGBoost": lambda: XGBRegressor(n_estimators=100, max_depth=4, n_jobs=2),
    "CatBoost": lambda: CatBoostRegressor(
        iterations=100, depth=4, verbose=False, allow_writing_files=False, thread_count=2
    ),
    "random forest": lambda: RandomForestRegressor(
        50, min_samples_leaf=10, random_state=0, n_jobs=2
    ),
}
COLUMNS = ["model", "rows", "correlation", "slope", "set_first_order", "set_greedy"]


def measure(name: str, n_rows: int) -> list[object]:
    """One line of the table."""
    X, y = make_friedman1(n_rows + N_QUERIES, noise=1.0, random_state=0)
    train, queries = X[:n_rows], X[n_rows:]
    explainer = axil.Explainer(MODELS[name]().fit(train, y[:n_rows]), train, y[:n_rows])

    def change(rows: np.ndarray) -> np.ndarray:
        return explainer.without(queries, rows)["change"].to_numpy()

    deleted = np.random.default_rng(0).choice(n_rows, N_DELETED, replace=False)
    first = explainer.removal(queries, method="first-order")[:, deleted].ravel()
    exact = np.stack([change(np.array([row])) for row in deleted], axis=1).ravel()
    moved = []
    for greedy in (False, True):
        table = explainer.removal(
            queries[:N_SETS], SET_SIZE, same_sign=True, greedy=greedy, method="first-order"
        )
        rows = [table.loc[table["query"] == i, "row"].to_numpy() for i in range(N_SETS)]
        moved.append(np.mean([abs(change(own)[i]) for i, own in enumerate(rows)]))
    correlation, slope = np.corrcoef(first, exact)[0, 1], first @ exact / (first @ first)
    return [name, n_rows, *np.round([correlation, slope, *moved], 4)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 3000])
    arguments = parser.parse_args()
    libraries = ("axil", "lightgbm", "xgboost", "catboost", "scikit-learn", "numpy")
    lines = [
        dict(zip(COLUMNS, measure(name, n_rows))) for n_rows in arguments.rows for name in MODELS
    ]
    command = f"python experiments/removal.py --rows {' '.join(map(str, arguments.rows))}"
    write_csv("removal", lines, command, libraries)


if __name__ == "__main__":
    main()

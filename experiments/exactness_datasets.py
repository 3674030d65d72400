"""How exact weights are on the paper's data sets, for one model of each library with settings like the paper's.

    python experiments/exactness_datasets.py [--data FOLDER]     # a minute or two; writes results/exactness_datasets.csv

FOLDER holds the data sets as CSV files; without it they come from OpenML. 80/20 split with seed 42; 100 trees, at most 31 leaves
(the forest's are grown out), rate 0.1, at least 2 rows in a leaf. The error is the largest |prediction - weights @ targets -
intercept| over up to 1,000 training rows and all rows held out, relative to the largest |prediction|.
"""

from __future__ import annotations

import numpy as np
from catboost import CatBoostRegressor
from paper_data import NAMES
from paper_setting import PACKAGES, Fitted, furthest, run
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from xgboost import XGBRegressor

import axil
from axil.methods.method import verified_model

ROWS = 1000
MODELS = {
    "XGBoost": XGBRegressor(
        n_estimators=100, learning_rate=0.1, grow_policy="lossguide", max_leaves=31, max_depth=0, min_child_weight=2, n_jobs=1
    ),
    "CatBoost": CatBoostRegressor(
        iterations=100, learning_rate=0.1, grow_policy="Lossguide", max_leaves=31, min_data_in_leaf=2, random_seed=42,
        thread_count=1, verbose=False, allow_writing_files=False,
    ),
    "HistGradientBoosting": HistGradientBoostingRegressor(
        max_iter=100, learning_rate=0.1, max_leaf_nodes=31, min_samples_leaf=2, early_stopping=False, random_state=42
    ),
    "random forest": RandomForestRegressor(100, min_samples_leaf=2, random_state=42),
}  # fmt: skip


def error(model: object, fitted: Fitted) -> tuple[float, float]:
    """The largest error of a fitted model, and what is allowed."""
    explainer = axil.Explainer(model, fitted.train, fitted.y_train, n_threads=1)
    parts = (fitted.train[:ROWS], fitted.new)
    found = max(
        furthest(explainer, X, np.asarray(model.predict(X), float).reshape(-1, 1)) for X in parts
    )
    return found, verified_model(explainer).adapter.tolerance


def measure(name: str, fitted: Fitted) -> dict[str, object]:
    line: dict[str, object] = {"data": name, "N": fitted.shape[0], "M": fitted.shape[1]}
    models = {"LightGBM": fitted.model} | {
        title: model.fit(fitted.train, fitted.y_train) for title, model in MODELS.items()
    }
    for title, model in models.items():
        found, tolerance = error(model, fitted)
        line[f"{title} (allowed {tolerance:.1e})"] = f"{found:.1e}"
    return line


if __name__ == "__main__":
    run(
        "exactness_datasets",
        __doc__.splitlines()[0],
        NAMES,
        measure,
        [*PACKAGES, "xgboost", "catboost"],
    )

"""Models of real runs of Optuna's LightGBMTuner and of FLAML: exact, refused by which setting, or wrong.

    pip install optuna optuna-integration flaml
    python experiments/tuned_real.py [--data FOLDER] [--only NAME ...] [--seconds 4]     # 20 s per data set; prints a table

experiments/tuned.py draws settings from the tuners' search spaces, and needs none of them. This runs them for a few seconds per
model, and explains the model that each ends with on the rows that it was fitted on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from paper_setting import markdown, markdown_line

sys.path.insert(0, str(Path(__file__).parent.parent))
from tuned import line_of, reader, refused, summary

from tests.fuzz.data import Draw, Trial
from tests.fuzz.judge import silence
from tests.fuzz.tables import Table, split

FLAML = {
    "lgbm": "LightGBM",
    "xgboost": "XGBoost",
    "xgb_limitdepth": "XGBoost",
    "catboost": "CatBoost",
}


def optuna(draw: Draw, table: Table, seconds: float) -> Trial:
    """The best Booster of one LightGBMTuner."""
    from optuna_integration.lightgbm import LightGBMTuner

    data = lgb.Dataset(table.train, table.y, weight=table.weight, free_raw_data=False)
    valid = lgb.Dataset(table.valid, table.y_valid, reference=data, free_raw_data=False)
    settings = {
        "objective": "regression",
        "metric": "l2",
        "verbosity": -1,
        "num_threads": 1,
        "seed": draw.seed(),
    }
    stop = lgb.early_stopping(10, verbose=False)
    how: dict[str, Any] = {
        "time_budget": seconds,
        "optuna_seed": draw.seed(),
        "show_progress_bar": False,
    }
    tuner = LightGBMTuner(settings, data, 100, valid_sets=[valid], callbacks=[stop], **how)
    tuner.run()
    draw.chosen |= {"library": "LightGBM", "tuner": "Optuna", **tuner.best_params}
    model = tuner.get_best_booster()
    return Trial(model, table.train, table.y, table.weight, None, table.new, model.predict)


def flaml(draw: Draw, table: Table, seconds: float, kind: str) -> Trial:
    """The best model of one AutoML run with estimators of this kind."""
    from flaml import AutoML

    weight, n = table.weight, len(table.y)
    given = (
        {}
        if weight is None
        else {"sample_weight": weight, "sample_weight_val": np.ones(len(table.y_valid))}
    )
    how: dict[str, Any] = {
        "task": "regression",
        "metric": "mse",
        "n_jobs": 1,
        "verbose": 0,
        "seed": draw.seed() % 2**16,
    }
    how |= {
        "retrain_full": False,
        "sample": False,
        "split_type": "time",
    }  # all rows, as they come: FLAML shuffles them else
    search = AutoML()
    search.fit(
        table.train, table.y, X_val=table.valid, y_val=table.y_valid, estimator_list=[kind], time_budget=seconds, **how, **given
    )  # fmt: skip
    draw.chosen |= {"library": FLAML[kind], "tuner": "FLAML", **search.best_config}
    if kind == "catboost":
        n = max(int(0.9 * n), n - 1000)  # it keeps the last rows to stop by
    model, w = search.model.estimator, None if weight is None else weight[:n]
    return Trial(model, table.train[:n], table.y[:n], w, None, table.new, model.predict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="a folder of the paper's data sets as CSV files"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the data sets")
    parser.add_argument("--seconds", type=float, default=4.0, help="per run of a tuner")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names, read = reader(given.data)
    lines = []
    for name in given.only or names:
        X, y = read(name)
        for kind in ("optuna", *FLAML):
            draw = Draw(given.seed, len(lines))
            draw.chosen |= {"data": name, "squared error": True}
            table = split(draw, X, np.asarray(y, dtype=float))
            with silence():
                run = (
                    optuna(draw, table, given.seconds)
                    if kind == "optuna"
                    else flaml(draw, table, given.seconds, kind)
                )
            lines.append(line_of(len(lines), draw, run))
            print(markdown_line(lines[-1].values()), flush=True)
    print(
        "",
        *markdown(summary(lines)),
        "",
        *(markdown_line(line.values()) for line in refused(lines)),
        sep="\n",
    )
    return int(any(line["verdict"] == "wrong" for line in lines))


if __name__ == "__main__":
    sys.exit(main())

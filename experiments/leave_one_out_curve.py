"""Is the minimum of the leave-one-out error after every number of trees where that of ten-fold cross-validation is?

    python experiments/leave_one_out_curve.py --data FOLDER     # the paper's data sets, some
    minutes python experiments/leave_one_out_curve.py --quick           # two small ones, ten
    seconds

Up to 1,000 rows of each data set and a LightGBM model of 200 trees.
`Explainer.diagnostics.leave_one_out_curve` comes from that one fit, structure fixed;
cross-validation refits ten times on nine tenths of the rows. "trees": where each curve is lowest,
from 1 on. "costs": the error of cross-validation at the number of trees that leave-one-out chooses,
or at all trees, over its lowest. "error": the leave-one-out error, over that of cross-validation,
at the latter's choice. "seconds" on this machine, fit and proof included.
"""

from __future__ import annotations

from time import perf_counter

import lightgbm as lgb
import numpy as np
from paper_data import QUICK, read
from paper_setting import Line, arguments, command, markdown, write_csv
from sklearn.model_selection import KFold

import axil

MOST_ROWS, TREES, FOLDS = 1000, 200, 10
SETTINGS = {
    "n_estimators": TREES,
    "num_leaves": 15,
    "learning_rate": 0.1,
    "min_child_samples": 10,
    "force_col_wise": True,
    "n_jobs": 1,
    "verbose": -1,
}


def left_out_curve(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(TREES + 1,): from one fit."""
    explainer = axil.Explainer(lgb.LGBMRegressor(**SETTINGS).fit(X, y), X, y)
    curve = explainer.diagnostics.leave_one_out_curve()
    return np.interp(
        np.arange(TREES + 1), curve["trees"], curve["error"]
    )  # LightGBM stops where it finds no more splits


def cross_validated_curve(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(TREES + 1,): from ten fits."""
    total = np.zeros(TREES + 1)
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(X):
        told: dict[str, dict[str, list[float]]] = {}
        fitted, held = lgb.Dataset(X[train], y[train]), lgb.Dataset(X[test], y[test])
        lgb.train(
            {**SETTINGS, "metric": "l2"},
            fitted,
            valid_sets=[held],
            callbacks=[lgb.record_evaluation(told)],
        )
        errors = told["valid_0"]["l2"]
        errors = [
            np.mean((y[test] - y[train].mean()) ** 2),
            *errors,
            *errors[-1:] * (TREES - len(errors)),
        ]
        total += len(test) * np.array(errors)
    return total / len(y)


def measure(name: str, X: np.ndarray, y: np.ndarray) -> Line:
    """One line of the table."""
    some = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    X, y = X[some], y[some]
    started = perf_counter()
    alone = left_out_curve(X, y)
    between = perf_counter()
    folds = cross_validated_curve(X, y)
    ended = perf_counter()
    chosen, best = (1 + int(np.argmin(curve[1:])) for curve in (alone, folds))
    return {
        "data": name,
        "rows": len(y),
        "trees, leave-one-out": chosen,
        "trees, cross-validation": best,
        "costs, leave-one-out": f"{folds[chosen] / folds[best]:.3f}",
        "costs, all trees": f"{folds[TREES] / folds[best]:.3f}",
        "error": f"{alone[best] / folds[best]:.3f}",
        "seconds, leave-one-out": f"{between - started:.1f}",
        "seconds, cross-validation": f"{ended - between:.1f}",
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets; prints, writes nothing"
    )
    given = parser.parse_args()
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = (part.to_numpy(float) for part in read(name, given.data))
        lines.append(measure(name, X, y))
        print(name, flush=True)
    print("\n".join(markdown(lines)))
    if not given.quick:
        write_csv("leave_one_out_curve", lines, command("leave_one_out_curve", given.data))


if __name__ == "__main__":
    main()

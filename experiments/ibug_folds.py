"""IBUG's protocol with its published hyperparameters: CRPS and NLL of axil beside IBUG's, here and in its own table.

    python experiments/ibug_folds.py --data FOLDER             # others.py says what the folder holds
    python experiments/ibug_folds.py --quick                   # a small data set that is none of IBUG's

Ten folds, as jjbrophy47/ibug shuffles them. A fifth of a fold's training rows tunes IBUG's k and its factor or addend, by a model
of the others; then the model is fitted to all of them. axil has the same last model, and five more fits for the out-of-fold
predictions that calibrate it. Settings of the models and published scores: extended_results of commit e1960cd, each setting the
commonest over IBUG's folds. CRPS of IBUG: of normal distributions tuned by it; NLL: of those tuned by NLL.

Not here: the data sets of IBUG's list that these repositories have not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import others
import paper_data
from intervals_rivals import Split, both, ibug_scale, spreads
from intervals_scores import crps_normal, nll_normal
from paper_setting import Line, markdown, write
from scipy import stats
from sklearn.model_selection import KFold, cross_val_predict, train_test_split

import axil

# Trees, learning rate, leaves and least rows of a leaf; CRPS, NLL and RMSE of IBUG, then CRPS and NLL of NGBoost and PGBM.
SETS = {
    "communities": (50, 0.01, 15, 1, 0.064, -0.659, 0.132, 0.066, -0.715, 0.068, -0.686),
    "concrete": (2000, 0.1, 15, 20, 1.948, 2.866, 3.751, 3.266, 3.033, 1.895, 2.730),
    "energy": (2000, 0.1, 15, 1, 0.155, 0.861, 0.306, 0.528, 0.650, 0.163, 0.481),
    "kin8nm": (2000, 0.1, 31, 20, 0.060, -0.753, 0.103, 0.095, -0.411, 0.071, -0.729),
    "naval": (2000, 0.1, 31, 20, 0.000, -6.281, 0.000, 0.003, -5.405, 0.000, -4.706),
    "power": (2000, 0.1, 31, 1, 1.528, 2.556, 2.950, 2.112, 2.773, 1.534, 2.520),
    "protein": (2000, 0.1, 91, 20, 1.692, 2.598, 3.420, 2.672, 2.840, 1.853, 2.682),
    "star": (500, 0.01, 15, 20, 130.30, 6.854, 230.3, 131.50, 6.873, 131.00, 6.871),
    "wine": (2000, 0.01, 91, 1, 0.320, 0.904, 0.601, 0.385, 1.032, 0.324, 0.933),
    "yacht": (2000, 0.1, 15, 1, 0.300, 0.175, 0.899, 0.967, 0.540, 0.240, 0.248),
}
NAMES = ("trees", "learning rate", "leaves", "least rows", "CRPS, IBUG published", "NLL, IBUG published", "RMSE published",
         "CRPS, NGBoost", "NLL, NGBoost", "CRPS, PGBM", "NLL, PGBM")  # fmt: skip
FOLDS = 10
SCORES = (
    "CRPS, axil",
    "CRPS, IBUG here",
    "NLL, axil",
    "NLL, IBUG here",
    "RMSE here",
    "coverage of 90 %, axil",
)


@dataclass(eq=False)
class Fold(Split):
    """IBUG is tuned on the calibration rows; predictions are those of a model of these and the training rows."""

    @cached_property
    def whole(self) -> Any:
        return lgb.LGBMRegressor(**self.settings).fit(*both(self))

    @cached_property
    def made(self) -> np.ndarray:
        return self.whole.predict(self.X)

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        tuned = spreads(self.model, self.X_train, self.y_train, self.X_cal)
        return tuned, spreads(self.whole, *both(self), self.X)


def fold(folder: Path | None, name: str, number: int) -> np.ndarray:
    """SCORES of one fold."""
    X, y = (
        others.ibug(folder, name)
        if folder
        else (part.to_numpy(float) for part in paper_data.read(name))
    )
    train, test = list(KFold(FOLDS, shuffle=True, random_state=1).split(X))[number]
    tune, val = train_test_split(train, test_size=0.2, random_state=1)
    trees, rate, leaves, least = SETS.get(name, (100, 0.1, 15, 20))[:4]
    settings = {
        "n_estimators": trees, "learning_rate": rate, "num_leaves": leaves, "min_child_samples": least, "max_bin": 255,
        "random_state": 1, "n_jobs": 1, "verbose": -1,
    }  # fmt: skip
    split = Fold(X[tune], y[tune], X[val], y[val], X[test], 1, settings)
    rows, folds = both(split), KFold(5, shuffle=True, random_state=1)
    unseen = cross_val_predict(lgb.LGBMRegressor(**settings), *rows, cv=folds)
    predictive = axil.Explainer(split.whole, *rows, n_threads=1).calibrate(out_of_fold=unseen)
    made, std = predictive.predict(X[test], return_std=True)
    left, table = y[test] - made, predictive.interval(X[test])
    by_crps, by_nll = (ibug_scale(split, score)[1] for score in (crps_normal, nll_normal))
    scores = (
        predictive.crps(X[test], y[test]), crps_normal(left, 0, by_crps), nll_normal(left, 0, std), nll_normal(left, 0, by_nll),
    )  # fmt: skip
    covered = (table["lower"] <= y[test]) & (y[test] <= table["upper"])
    return np.array(
        [*(score.mean() for score in scores), np.sqrt(np.mean(left**2)), covered.mean()]
    )


def lines_of(found: dict[tuple[object, ...], np.ndarray]) -> list[Line]:
    """A line for each data set: means over the folds, and of axil less IBUG here the p of a paired t-test over them."""
    lines = []
    for name in dict.fromkeys(task[0] for task in found):
        own = np.array([scores for task, scores in found.items() if task[0] == name])
        line: Line = {"data": name, "folds": len(own)}
        line |= {score: f"{mean:.4g}" for score, mean in zip(SCORES, own.mean(axis=0))}
        for score, at in (("CRPS", 0), ("NLL", 2)):
            p = stats.ttest_rel(own[:, at], own[:, at + 1]).pvalue if len(own) > 1 else np.nan
            line[f"p, {score}"] = "" if np.isnan(p) else f"{p:.2g}"
        lines.append(line | dict(zip(NAMES, SETS.get(name, ()))))
    return lines


def shown(lines: list[Line]) -> list[Line]:
    heads = [
        f"{score}, {who}"
        for score in ("CRPS", "NLL")
        for who in ("axil", "IBUG here", "IBUG published", "NGBoost", "PGBM")
    ]
    heads[2:2], heads[8:8] = ["p, CRPS"], ["p, NLL"]
    heads += ["RMSE here", "RMSE published", "coverage of 90 %, axil"]
    return [
        {"data": line["data"], "folds": line["folds"]}
        | {head: line.get(head, "") for head in heads}
        for line in lines
    ]


def main() -> None:
    parser = others.arguments(__doc__.splitlines()[0], list(SETS))
    parser.add_argument(
        "--folds", type=int, default=FOLDS, help=f"folds of each data set (default: {FOLDS})"
    )
    given = parser.parse_args()
    names = paper_data.QUICK[1:] if given.quick else given.only
    tasks = [(name, number) for name in names for number in range(given.folds)]
    lines = lines_of(others.made(given, tasks, fold, (len(SCORES),)))
    print("\n".join(markdown(shown(lines))))
    if given.out:
        line = others.typed("ibug_folds", given, list(SETS), folds=FOLDS)
        write("ibug_folds", lines, line, shown=shown(lines), folder=given.out)


if __name__ == "__main__":
    main()

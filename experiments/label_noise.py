"""Do the rows that blame puts first have wrong labels? 5 % of the training targets are corrupted, then looked for.

    python experiments/label_noise.py                          # two data sets, about a minute
    python experiments/label_noise.py --paper                  # the paper's data sets, from OpenML
    python experiments/label_noise.py --data FOLDER            # every CSV file there, its last column the target

Two kinds of wrong labels: "swapped", the targets of other rows; "shifted", two standard deviations up or down. Half of the rows
are trained on, a quarter validates, labels unspoilt. Every method orders the training rows, residuals by their size; all see the
same fitted LightGBM model.
"precision": the share of wrong labels among as many rows from the top as there are wrong labels (which is the recall there too);
"recall at 10 %": of the wrong labels, when a tenth of the rows is looked at; "average precision" over the whole order. Means over
repetitions, written to experiments/results/label_noise.csv with their spread.
"""

from __future__ import annotations

import argparse
import csv
import platform
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import paper_data
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold, cross_val_predict

import axil
from axil import baselines

SHARE, REPETITIONS = 0.05, 5
SETTINGS = {
    "n_estimators": 100,
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_child_samples": 5,
    "n_jobs": 1,
    "verbose": -1,
}
METRICS = ("precision", "recall at 10 %", "average precision")
RESULTS = Path(__file__).parent / "results" / "label_noise.csv"


def data_sets(folder: Path | None, paper: bool) -> dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]]:
    """How to read each, by name; none is read yet."""
    if folder is None and not paper:
        made = partial(make_friedman1, 2000, noise=1.0, random_state=0)
        return {"diabetes": partial(load_diabetes, return_X_y=True), "friedman": made}
    names = paper_data.NAMES if paper else sorted(path.stem for path in folder.glob("*.csv"))
    return {name: partial(read, name, folder) for name in names}


def read(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    X, y = paper_data.read(name, folder)
    return X.to_numpy(float), y.to_numpy(float)


def spoil(y: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Targets of which some are wrong, and which."""
    wrong = rng.choice(len(y), max(1, round(SHARE * len(y))), replace=False)
    spoilt = y.copy()
    if kind == "shifted":
        spoilt[wrong] += 2 * y.std() * rng.choice([-1, 1], len(wrong))
    else:
        spoilt[wrong] = y[rng.permutation(len(y))[: len(wrong)]]
    return spoilt, np.isin(np.arange(len(y)), wrong[spoilt[wrong] != y[wrong]])


def orders(X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Each method's suspicion of every training row, larger for a wrong label."""
    model = lgb.LGBMRegressor(**SETTINGS).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    folds = KFold(5, shuffle=True, random_state=seed)
    out_of_fold = cross_val_predict(lgb.LGBMRegressor(**SETTINGS), X, y, cv=folds)

    def gains(correction: str | np.ndarray) -> np.ndarray:
        table = explainer.blame(X_val, y_val, correction=correction)
        return table.set_index("row")["gain"].fillna(-np.inf).loc[np.arange(len(y))].to_numpy()

    alone = explainer.blame(X_val, y_val).set_index("row")["corrected"].loc[np.arange(len(y))].to_numpy()
    found = {
        "blame, leave-one-out": gains("leave-one-out"),
        "blame, cross-fitted": gains(out_of_fold),
        "leave-one-out residual": np.nan_to_num(np.abs(y - alone), nan=np.inf),
        "out-of-fold residual": np.abs(y - out_of_fold),
        "residual": np.abs(y - model.predict(X)),
    }
    rivals = (baselines.BoostIn, baselines.LeafInfluence, baselines.TREX, baselines.TreeSim, baselines.Random)
    for rival in rivals:  # a positive score: the row lowers the loss
        found[rival.__name__] = -rival(explainer).scores(X_val, y_val).sum(axis=0)
    return found


def judge(suspicion: np.ndarray, wrong: np.ndarray) -> list[float]:
    order = np.argsort(-suspicion, kind="stable")
    m, tenth = int(wrong.sum()), round(0.1 * len(wrong))
    finite = np.nan_to_num(suspicion, posinf=np.nanmax(suspicion[np.isfinite(suspicion)]) + 1, neginf=-1e300)
    return [wrong[order[:m]].mean(), wrong[order[:tenth]].sum() / m, average_precision_score(wrong, finite)]


def run(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[dict[str, object]]:
    for kind in ("swapped", "shifted"):
        results: dict[str, list[list[float]]] = {}
        for seed in range(REPETITIONS):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(y))
            train, val = order[: len(y) // 2], order[len(y) // 2 : len(y) * 3 // 4]
            spoilt, wrong = spoil(y[train], kind, rng)
            for method, suspicion in orders(X[train], spoilt, X[val], y[val], seed).items():
                results.setdefault(method, []).append(judge(suspicion, wrong))
        for method, found in results.items():
            means, spreads = np.mean(found, axis=0), np.std(found, axis=0)
            line: dict[str, object] = {"data": name, "training rows": len(y) // 2, "wrong": kind, "method": method}
            line |= {metric: round(mean, 3) for metric, mean in zip(METRICS, means)}
            yield line | {f"{metric}, spread": round(spread, 3) for metric, spread in zip(METRICS, spreads)}


def summary(lines: list[dict[str, object]]) -> str:
    """Means over the data sets, as a Markdown table."""
    frame = pd.DataFrame(lines).groupby(["wrong", "method"])[list(METRICS)].mean().round(2).unstack("wrong")
    frame = frame.sort_values(("average precision", "shifted"), ascending=False)
    head = "| method | " + " | ".join(f"{metric}, {kind}" for metric, kind in frame.columns) + " |"
    body = ["| " + " | ".join([method, *(f"{value:.2f}" for value in row)]) + " |" for method, row in frame.iterrows()]
    return "\n".join([head, "|---" * (len(frame.columns) + 1) + "|", *body])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="a folder of CSV files")
    parser.add_argument("--paper", action="store_true", help="the paper's data sets (default: two others)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of data sets")
    arguments = parser.parse_args()
    sets = data_sets(arguments.data, arguments.paper)
    if unknown := set(arguments.only or ()) - set(sets):
        parser.error(f"no data sets {', '.join(sorted(unknown))}; there are {', '.join(sets)}")
    versions = (
        " ".join(f"{name} {version(name)}" for name in ("axil", "lightgbm", "numpy"))
        + f" Python {platform.python_version()}"
    )
    command = (
        "python experiments/label_noise.py" + " --paper" * arguments.paper + " --data FOLDER" * bool(arguments.data)
    )
    lines: list[dict[str, object]] = []
    for name in arguments.only or sets:
        lines += run(name, *sets[name]())
        print(name, flush=True)
    print(summary(lines))
    RESULTS.parent.mkdir(exist_ok=True)
    with open(RESULTS, "w", newline="") as file:
        writer = csv.DictWriter(file, [*lines[0], "versions", "command"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**line, "versions": versions, "command": command} for line in lines)


if __name__ == "__main__":
    main()

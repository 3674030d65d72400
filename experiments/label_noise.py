"""Do the rows that blame puts first have wrong labels? 5 % of the training targets are corrupted, then looked for.

    python experiments/label_noise.py --data FOLDER            # the paper's data sets
    python experiments/label_noise.py --quick                  # two small ones, ten seconds

Two kinds of wrong labels: "swapped", the targets of other rows; "shifted", two standard deviations up or down. Half of the rows
are trained on, a quarter validates, labels unspoilt. Every method orders the training rows, residuals by their size; all see the
same fitted LightGBM model.
"precision": the share of wrong labels among as many rows from the top as there are wrong labels (which is the recall there too);
"recall at 10 %": of the wrong labels, when a tenth of the rows is looked at; "average precision" over the whole order. Means over
repetitions, in results/label_noise.csv with their spread; means over the data sets in label_noise.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_data import QUICK, read
from paper_setting import Line, arguments, command, markdown, write
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


def run(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[Line]:
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
            line: Line = {"data": name, "training rows": len(y) // 2, "wrong": kind, "method": method}
            line |= {metric: round(mean, 3) for metric, mean in zip(METRICS, means)}
            yield line | {f"{metric}, spread": round(spread, 3) for metric, spread in zip(METRICS, spreads)}


def summary(lines: list[Line]) -> list[Line]:
    """Means over the data sets, the best average precision first."""
    frame = pd.DataFrame(lines).groupby(["wrong", "method"])[list(METRICS)].mean().unstack("wrong")
    frame = frame.sort_values(("average precision", "shifted"), ascending=False)
    return [
        {"method": method, **{f"{metric}, {kind}": f"{value:.2f}" for (metric, kind), value in row.items()}}
        for method, row in frame.iterrows()
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small data sets; prints, writes nothing")
    given = parser.parse_args()
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = (part.to_numpy(float) for part in read(name, given.data))
        lines += run(name, X, y)
        print(name, flush=True)
    print("\n".join(markdown(summary(lines))))
    if not given.quick:
        write("label_noise", lines, command("label_noise", given.data), shown=summary(lines))


if __name__ == "__main__":
    main()

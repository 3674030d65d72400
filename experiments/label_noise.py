"""Which method puts wrong labels first? 5 % of the training targets are corrupted, then looked for.

    python experiments/label_noise.py --data FOLDER --out experiments/results     # the paper's data sets
    python experiments/label_noise.py --quick                                     # two small ones, ten seconds

Two kinds of wrong labels: "swapped", the targets of other rows; "shifted", two standard deviations up or down. Half of the rows
are trained on, a quarter validates, labels unspoilt. Every method orders the training rows, residuals by their size; all see the
same fitted LightGBM model.

- find_label_issues: `Explainer.find_label_issues("leave-one-out")` (label_issues.py compares it
  with folds); "find_label_issues, out-of-fold":
  with the predictions of five more fits
- find_label_issues, by weights: with |weights| for the rows around a row, in place of leaves, on
  data sets of up to 1000 training rows
- cleanlab: CleanLearning of cleanlab.regression with its defaults, the first repetition of data sets of up to 525 training rows,
  where it is installed (AGPL; not a part of axil)

Audits and what else needs deletions are asked about data sets of more than 1000 training rows in two repetitions, not five.

"precision": the share of wrong labels among as many rows from the top as there are wrong labels (which is the recall there too);
"recall at 10 %": of the wrong labels, when a tenth of the rows is looked at; "average precision" over the whole order. "fits" and
"seconds" are those beyond the model itself and its explainer. Means over repetitions, in results/label_noise.csv with their
spread; means over the data sets in label_noise.md. "other ten": over the data sets that no choice
of the method was made on; its form was chosen on every second one. "smallest": over those of up to
525 training rows, which all methods were asked about. label_counts.py asks how many labels are held
for wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import lightgbm as lgb
import numpy as np
import others
import pandas as pd
from paper_data import NAMES, QUICK, read
from paper_setting import PACKAGES, Line, arguments, command, markdown, write
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold, cross_val_predict

import axil
from axil import baselines
from axil.methods.label_issues import Studentised
from axil.methods.method import verified_model

try:
    from cleanlab.regression.learn import CleanLearning
except ImportError:
    CleanLearning = None

SHARE, REPETITIONS = 0.05, 5
LARGE, FEWER = 1000, 2  # training rows above which deletions are asked for in so many repetitions
CLEANED = 525  # training rows up to which cleanlab is asked, some seventy fits
SETTINGS = {
    "n_estimators": 100,
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_child_samples": 5,
    "n_jobs": 1,
    "verbose": -1,
}
METRICS = ("precision", "recall at 10 %", "average precision")
KINDS = ("swapped", "shifted")
METHODS = (
    "find_label_issues",
    "find_label_issues, out-of-fold",
    "leave-one-out residual",
    "influence, leave-one-out",
    "out-of-fold residual",
    "influence, cross-fitted",
    "residual",
    "find_label_issues, by weights",
    "cleanlab",
    "BoostIn",
    "LeafInfluence",
    "TREX",
    "TreeSim",
    "Random",
)
CHOSEN_ON = NAMES[::2]


@dataclass
class Found:
    """What a method says of every training row, larger for a wrong label, and how many there are, where it says so."""

    suspicion: np.ndarray
    count: float = np.nan
    fits: int = 0
    seconds: float = np.nan


class Counted(lgb.LGBMRegressor):
    """LightGBM that counts its fits."""

    fits = 0

    def fit(self, *args, **kwargs):
        Counted.fits += 1
        return super().fit(*args, **kwargs)


def spoil(y: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Targets of which some are wrong, and which."""
    wrong = rng.choice(len(y), max(1, round(SHARE * len(y))), replace=False)
    spoilt = y.copy()
    if kind == "shifted":
        spoilt[wrong] += 2 * y.std() * rng.choice([-1, 1], len(wrong))
    else:
        spoilt[wrong] = y[rng.permutation(len(y))[: len(wrong)]]
    return spoilt, np.isin(np.arange(len(y)), wrong[spoilt[wrong] != y[wrong]])


def timed(work: Callable[[], object]) -> tuple[object, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def score_of_issues(table: pd.DataFrame, **known: object) -> Found:
    by_row = table.set_index("row").sort_index()
    count = int(re.search(r"about (\d+) of", table.attrs["axil"])[1])
    return Found(by_row["studentised"].abs().fillna(np.inf).to_numpy(), count, **known)


def by_weights(explainer: axil.Explainer, X: np.ndarray, y: np.ndarray, alone: np.ndarray) -> Found:
    """find_label_issues with means by |weight| for its scale."""
    weights = np.abs(explainer(X).weights)
    np.fill_diagonal(weights, 0.0)
    residuals = (y - alone)[:, None]
    made = Studentised.of(
        residuals, weights @ np.abs(residuals) / weights.sum(axis=1, keepdims=True)
    )
    return Found(np.abs(made.value[:, 0]), made.n_wrong)


def cleaned(X: np.ndarray, y: np.ndarray, seed: int) -> Found:
    Counted.fits = 0
    issues, seconds = timed(
        lambda: CleanLearning(Counted(**SETTINGS), seed=seed).find_label_issues(X, y)
    )
    count = int(issues["is_label_issue"].sum())
    return Found(-issues["label_quality"].to_numpy(), count, Counted.fits, seconds)


def explained(X: np.ndarray, y: np.ndarray) -> axil.Explainer:
    return axil.Explainer(lgb.LGBMRegressor(**SETTINGS).fit(X, y), X, y, n_threads=1)


def unseen_predictions(X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    folds = KFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(lgb.LGBMRegressor(**SETTINGS), X, y, cv=folds)


def label_checks(
    X: np.ndarray, y: np.ndarray, seed: int
) -> tuple[axil.Explainer, np.ndarray, np.ndarray, dict[str, Found]]:
    """Return the explainer, predictions without the row, out-of-fold predictions, and results."""
    explainer = explained(X, y)
    unseen, longer = timed(lambda: unseen_predictions(X, y, seed))
    table, seconds = timed(lambda: explainer.find_label_issues(out_of_fold="leave-one-out"))
    table_out_of_fold, more = timed(lambda: explainer.find_label_issues(out_of_fold=unseen))
    alone = table.set_index("row")["expected_label"].sort_index().to_numpy()
    found = {
        "find_label_issues": score_of_issues(table, seconds=seconds),
        "find_label_issues, out-of-fold": score_of_issues(
            table_out_of_fold, fits=5, seconds=longer + more
        ),
    }
    return explainer, alone, unseen, found


def orders(
    X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray, seed: int
) -> dict[str, Found]:
    """What each method says of every training row."""
    if len(y) <= LARGE or seed < FEWER:
        explainer, alone, unseen, found = label_checks(X, y, seed)
        found["leave-one-out residual"] = Found(np.nan_to_num(np.abs(y - alone), nan=np.inf))
        found["influence, leave-one-out"] = gains(
            explainer.influence(X_val, y_val, out_of_fold="leave-one-out")
        )
    else:
        explainer, unseen, found = explained(X, y), unseen_predictions(X, y, seed), {}
    found |= {
        "out-of-fold residual": Found(np.abs(y - unseen), fits=5),
        "influence, cross-fitted": gains(
            explainer.influence(X_val, y_val, out_of_fold=unseen), fits=5
        ),
        "residual": Found(np.abs(y - verified_model(explainer).fitted()[:, 0])),
    }
    if len(y) <= LARGE:
        found["find_label_issues, by weights"] = by_weights(explainer, X, y, alone)
    if CleanLearning is not None and seed == 0 and len(y) <= CLEANED:
        found["cleanlab"] = cleaned(X, y, seed)
    rivals = (
        baselines.BoostIn,
        baselines.LeafInfluence,
        baselines.TREX,
        baselines.TreeSim,
        baselines.Random,
    )
    for rival in rivals:  # a positive score: the row lowers the loss
        found[rival.__name__] = Found(-rival(explainer).scores(X_val, y_val).sum(axis=0))
    return found


def gains(table: pd.DataFrame, fits: int = 0) -> Found:
    return Found(table.set_index("row")["gain"].fillna(-np.inf).sort_index().to_numpy(), fits=fits)


def judge(suspicion: np.ndarray, wrong: np.ndarray) -> list[float]:
    order = np.argsort(-suspicion, kind="stable")
    m, tenth = int(wrong.sum()), round(0.1 * len(wrong))
    finite = np.nan_to_num(
        suspicion, posinf=np.nanmax(suspicion[np.isfinite(suspicion)]) + 1, neginf=-1e300
    )
    return [
        wrong[order[:m]].mean(),
        wrong[order[:tenth]].sum() / m,
        average_precision_score(wrong, finite),
    ]


def repetition(folder: Path | None, name: str, kind: str, seed: int) -> np.ndarray:
    """(methods, 5): METRICS, fits and seconds; no numbers of a method that is not asked."""
    X, y = (part.to_numpy(float) for part in read(name, folder))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, val = order[: len(y) // 2], order[len(y) // 2 : len(y) * 3 // 4]
    spoilt, wrong = spoil(y[train], kind, rng)
    found = orders(X[train], spoilt, X[val], y[val], seed)
    scores = {
        method: [*judge(own.suspicion, wrong), own.fits, own.seconds]
        for method, own in found.items()
    }
    return np.array([scores.get(method, [np.nan] * 5) for method in METHODS])


def lines_of(found: dict[tuple[object, ...], np.ndarray], rows: dict[str, int]) -> Iterator[Line]:
    """A line for each data set, kind of wrong label and method: means over the repetitions, and their spread."""
    for name, kind in dict.fromkeys(task[:2] for task in found):
        own = np.array([scores for task, scores in found.items() if task[:2] == (name, kind)])
        for at, method in enumerate(METHODS):
            scores = own[:, at][~np.isnan(own[:, at, 0])]
            if not len(scores):
                continue
            means, spreads = scores.mean(axis=0), scores.std(axis=0)
            line: Line = {
                "data": name,
                "training rows": rows[name],
                "wrong": kind,
                "method": method,
            }
            line |= {metric: round(mean, 3) for metric, mean in zip(METRICS, means)}
            line |= {
                f"{metric}, spread": round(spread, 3) for metric, spread in zip(METRICS, spreads)
            }
            yield line | {
                "fits": round(means[-2]),
                "seconds": "" if np.isnan(means[-1]) else round(means[-1], 3),
            }


def summary(lines: list[Line]) -> list[Line]:
    """Means over the data sets that a method was asked about, the best average precision first."""
    frame = pd.DataFrame(lines)
    frame["seconds"] = pd.to_numeric(frame["seconds"], errors="coerce")
    means = (
        frame.groupby(["wrong", "method"])[["precision", "average precision"]]
        .mean()
        .unstack("wrong")
    )
    other = (
        frame[~frame["data"].isin(CHOSEN_ON)]
        .groupby(["wrong", "method"])["precision"]
        .mean()
        .unstack("wrong")
    )
    small = (
        frame[frame["training rows"] <= CLEANED]
        .groupby(["wrong", "method"])["precision"]
        .mean()
        .unstack("wrong")
    )
    work = frame.groupby("method").agg({"fits": "max", "seconds": "mean", "data": "nunique"})
    made = []
    for method, row in means.sort_values(
        ("average precision", "shifted"), ascending=False
    ).iterrows():
        line: Line = {"method": method} | {
            f"{metric}, {kind}": f"{value:.2f}" for (metric, kind), value in row.items()
        }
        line |= {
            f"precision, {kind}, other ten": f"{value:.2f}"
            for kind, value in other.loc[method].items()
        }
        line |= {
            f"precision, {kind}, smallest": f"{value:.2f}"
            for kind, value in small.loc[method].items()
        }
        own = work.loc[method]
        seconds = "" if np.isnan(own["seconds"]) else f"{own['seconds']:.2g}"
        made.append(
            line | {"data sets": int(own["data"]), "fits": int(own["fits"]), "seconds": seconds}
        )
    return made


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets; prints, writes nothing"
    )
    others.running(parser)
    given = parser.parse_args()
    names = QUICK if given.quick else given.only
    tasks = [(name, kind, seed) for name in names for kind in KINDS for seed in range(REPETITIONS)]
    found = others.made(given, tasks, repetition, (len(METHODS), len(METRICS) + 2))
    lines = list(lines_of(found, {name: len(read(name, given.data)[1]) // 2 for name in names}))
    print("\n".join(markdown(summary(lines))))
    if given.out:
        packages = PACKAGES if CleanLearning is None else (*PACKAGES, "cleanlab")
        write(
            "label_noise",
            lines,
            command("label_noise", given.data),
            packages,
            summary(lines),
            given.out,
        )


if __name__ == "__main__":
    main()

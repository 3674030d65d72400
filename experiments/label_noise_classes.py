"""Do the rows that methods for classifiers put first have wrong labels? 5 % of the training labels are flipped, then looked for.

    python experiments/label_noise_classes.py --data FOLDER    # two classes: the paper's small data sets and scikit-learn's
    python experiments/label_noise_classes.py --quick          # two small ones

Half of the rows are trained on, a quarter validates, labels unspoilt. Model, repetitions and measures as in label_noise.py.
Every method orders the training rows; those on validation rows see their labels, the others do not. With g = p - y:

- find_label_issues: `Explainer.find_label_issues`, the share of the row's class among the other
  rows in its leaves
- score without self-push: the row's own score less its push on it, on the side of its label
- self-push: a row's push on its own score (class_contributions.py), the larger the more it
  holds its own label up
- pushes, influence: sum over validation rows of g times the row's push: how far it pushes them the
  wrong way
- J, influence: sum over validation rows of -g times the change of their scores if the row's label
  were the other one, first order
- BoostIn, self: BoostIn's score of a row for itself; BoostIn, LeafInfluence, TREX, TreeSim: on validation rows
- out-of-fold loss: log-loss of the label by a model that did not see it (5 fits); loss: by the model itself
- cleanlab: get_label_quality_scores of the same out-of-fold probabilities, where it is installed (AGPL; not a part of axil)

Means over repetitions in results/label_noise_classes.csv with their spread; means over the data sets in label_noise_classes.md.
"other nine": over the data sets that the form of find_label_issues was not chosen on; it was chosen
on every second one.

results/label_noise_classes_counts.md: by how much the share of rows that find_label_issues and
cleanlab hold for wrong is off, on the data as they are ("as given", where all labels count as
right) and with flipped ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import lightgbm as lgb
import numpy as np
import pandas as pd
from class_contributions import contributions
from class_data import NAMES, read_classes
from label_noise import METRICS, REPETITIONS, SETTINGS, SHARE, judge
from paper_data import QUICK
from paper_setting import PACKAGES, Line, arguments, command, markdown, write, write_shown
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import axil
from axil import baselines

try:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    get_label_quality_scores = None

CHOSEN_ON = NAMES[::2]
COUNTED = 2  # repetitions in which counts are made


def unseen_probabilities(X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(lgb.LGBMClassifier(**SETTINGS), X, y, cv=folds, method="predict_proba")


def orders(
    X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Each method's suspicion of every training row, larger for a wrong label."""
    model = lgb.LGBMClassifier(**SETTINGS).fit(X, y)
    fit = axil.Explainer(model, X, y, n_threads=1)
    unseen = unseen_probabilities(X, y, seed)
    gradient = model.predict_proba(X_val)[:, 1] - y_val
    explainer = axil.Explainer(model, X, y, n_threads=1)
    flip = explainer(X_val).weights * (1 - 2 * y)
    table = explainer.find_label_issues().set_index("row").sort_index()
    boostin, rows = baselines.BoostIn(fit), np.arange(len(y))
    found = {
        "find_label_issues": -table["label_quality"].fillna(0.0).to_numpy(),
        "score without self-push": -table["probability"].to_numpy(),
        "self-push": np.abs(np.diagonal(contributions(model, X, y, X))),
        "pushes, influence": gradient @ contributions(model, X, y, X_val),
        "J, influence": -gradient @ flip,
        "BoostIn, self": np.diagonal(boostin.scores(X, y)),
        "out-of-fold loss": -np.log(np.clip(unseen[rows, y], 1e-300, None)),
        "loss": -np.log(np.clip(model.predict_proba(X)[rows, y], 1e-300, None)),
    }
    if get_label_quality_scores is not None:
        found["cleanlab"] = -get_label_quality_scores(y, unseen)
        found["cleanlab, adjusted"] = -get_label_quality_scores(y, unseen, adjust_pred_probs=True)
        entropy = get_label_quality_scores(y, unseen, method="confidence_weighted_entropy")
        found["cleanlab, entropy"] = -entropy
    rivals = (baselines.LeafInfluence, baselines.TREX, baselines.TreeSim, baselines.Random)
    for rival in (
        boostin,
        *(kind(fit) for kind in rivals),
    ):  # a positive score: the row lowers the loss
        found[rival.name] = -rival.scores(X_val, y_val).sum(axis=0)
    return found


def held_wrong(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, int]:
    """How many labels each method holds for wrong."""
    explainer = axil.Explainer(lgb.LGBMClassifier(**SETTINGS).fit(X, y), X, y, n_threads=1)
    unseen = unseen_probabilities(X, y, seed)
    found = {
        "find_label_issues": explainer.find_label_issues(),
        "find_label_issues, out-of-fold": explainer.find_label_issues(out_of_fold=unseen),
    }
    counts = {
        method: int(re.search(r"about (\d+) of", table.attrs["axil"])[1])
        for method, table in found.items()
    }
    return (
        counts
        if get_label_quality_scores is None
        else counts | {"cleanlab": int(find_label_issues(y, unseen).sum())}
    )


def split(
    y: np.ndarray, seed: int, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on and to validate with, the labels of the former, some flipped, and which of them."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, val = order[: len(y) // 2], order[len(y) // 2 : len(y) * 3 // 4]
    flipped = rng.choice(len(train), max(1, round(SHARE * len(train))), replace=False)
    wrong = np.isin(np.arange(len(train)), flipped) & (share > 0)
    return train, val, np.where(wrong, 1 - y[train], y[train]), wrong


def run(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    results: dict[str, list[list[float]]] = {}
    for seed in range(REPETITIONS):
        train, val, labels, wrong = split(y, seed, SHARE)
        for method, suspicion in orders(X[train], labels, X[val], y[val], seed).items():
            results.setdefault(method, []).append(judge(suspicion, wrong))
    for method, found in results.items():
        means, spreads = np.mean(found, axis=0), np.std(found, axis=0)
        line: Line = {"data": name, "training rows": len(y) // 2, "method": method}
        line |= {metric: round(mean, 3) for metric, mean in zip(METRICS, means)}
        yield line | {
            f"{metric}, spread": round(spread, 3) for metric, spread in zip(METRICS, spreads)
        }


def run_counts(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    for kind, share in (("as given", 0.0), ("flipped", SHARE)):
        off: dict[str, list[float]] = {}
        for seed in range(COUNTED):
            train, _, labels, wrong = split(y, seed, share)
            for method, count in held_wrong(X[train], labels, seed).items():
                off.setdefault(method, []).append((count - wrong.sum()) / len(wrong))
        for method, found in off.items():
            yield {
                "data": name,
                "wrong": kind,
                "method": method,
                "off": np.mean(np.abs(found)),
                "high": np.mean(found),
            }


def summary(lines: list[Line]) -> list[Line]:
    """Means over the data sets, the best average precision first, and on how many a method has the best."""
    frame = pd.DataFrame(lines)
    best = frame.groupby("data")["average precision"].transform("max") == frame["average precision"]
    first = best.groupby(frame["method"]).sum()
    means = (
        frame.groupby("method")[list(METRICS)]
        .mean()
        .sort_values("average precision", ascending=False)
    )
    other = frame[~frame["data"].isin(CHOSEN_ON)].groupby("method")["average precision"].mean()
    return [
        {
            "method": method,
            **{metric: f"{row[metric]:.3f}" for metric in METRICS},
            "average precision, other nine": f"{other[method]:.3f}",
            "best on": int(first[method]),
        }
        for method, row in means.iterrows()
    ]


def summary_of_counts(lines: list[Line]) -> list[Line]:
    """How far the share of rows held for wrong is from the true one: mean size over the data sets, and mean with its sign."""
    frame = pd.DataFrame(lines)
    frame["other"] = frame["off"].where(~frame["data"].isin(CHOSEN_ON))
    means = frame.groupby(["method", "wrong"])[["off", "other", "high"]].mean()
    return [
        {
            "method": method,
            "wrong": kind,
            "share off": f"{row['off']:.3f}",
            "share off, other nine": f"{row['other']:.3f}",
            "share too high": f"{row['high']:+.3f}",
        }
        for (method, kind), row in means.iterrows()
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], NAMES)
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets; prints, writes nothing"
    )
    given = parser.parse_args()
    lines: list[Line] = []
    counted: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = read_classes(name, given.data)
        lines += run(name, X, y)
        counted += run_counts(name, X, y)
        print(name, flush=True)
    print("\n".join([*markdown(summary(lines)), "", *markdown(summary_of_counts(counted))]))
    if not given.quick:
        packages = PACKAGES if get_label_quality_scores is None else (*PACKAGES, "cleanlab")
        told = command("label_noise_classes", given.data)
        write("label_noise_classes", lines, told, packages, summary(lines))
        write_shown("label_noise_classes_counts", summary_of_counts(counted), told, packages)


if __name__ == "__main__":
    main()

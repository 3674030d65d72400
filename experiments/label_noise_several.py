"""Compare orders of find_label_issues that put wrong labels of several classes first.

10 % of the training labels are changed, then looked for.

    python experiments/label_noise_several.py --data FOLDER    # with three of the paper's data sets; some minutes
    python experiments/label_noise_several.py                  # without these

At most 900 rows per data set, LightGBM with 50 rounds, three repetitions; each wrong label is another class at random. Average
precision of the wrong labels among all, from the most suspicious on:

- share: the share of the row's class among the other rows in its leaves
- probability: of its class, by the row's own scores without its own pushes
- mean, product: of both; margins: less the largest of another class
- cleanlab: get_label_quality_scores of out-of-fold probabilities (5 fits), where it is installed (AGPL; not a part of axil)

"chosen": every second data set, by which the order was chosen; "judged": the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_setting import PACKAGES, Line, command, markdown, write
from sklearn import datasets
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import axil
from axil.methods import label_issues
from axil.methods.class_labels import both_classes
from axil.methods.method import verified_model

try:
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    get_label_quality_scores = None

MOST_ROWS, REPETITIONS, SHARE = 900, 3, 0.1
SETTINGS = {"n_estimators": 50, "num_leaves": 15, "verbose": -1, "n_jobs": 1}


def tables(folder: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Names, features and classes from 0 on."""
    yield "iris", *datasets.load_iris(return_X_y=True)
    yield "wine", *datasets.load_wine(return_X_y=True)
    yield "digits", *datasets.load_digits(return_X_y=True)
    yield (
        "blobs, 5 classes",
        *datasets.make_blobs(900, 4, centers=5, cluster_std=3.0, random_state=0),
    )
    yield (
        "shells, 4 classes",
        *datasets.make_gaussian_quantiles(n_samples=900, n_features=4, n_classes=4, random_state=0),
    )
    for seed, (n, k, informative, apart) in enumerate(
        (
            (600, 3, 5, 1.0),
            (900, 4, 8, 1.0),
            (900, 6, 10, 1.5),
            (900, 3, 4, 0.6),
            (900, 8, 12, 2.0),
            (900, 5, 6, 0.8),
        )
    ):
        X, y = datasets.make_classification(
            n,
            15,
            n_informative=informative,
            n_classes=k,
            n_clusters_per_class=1,
            class_sep=apart,
            random_state=seed,
        )
        yield f"{k} classes, {informative} columns, {apart} apart", X, y
    for name, ends in (
        ("red_wine", (5.5, 6.5)),
        ("abalone", (8.5, 10.5)),
        ("concrete", (22, 34, 46)),
    ):
        if folder is not None:
            table = pd.read_csv(folder / f"{name}.csv").to_numpy(float)
            yield f"{name}, {len(ends) + 1} classes", table[:, :-1], np.digitize(table[:, -1], ends)


def orders(X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The quality of each row by each method."""
    model = lgb.LGBMClassifier(**SETTINGS, random_state=seed).fit(X, y)
    proven = verified_model(axil.Explainer(model, X, y, n_threads=1))
    labels, every = both_classes(proven.targets), np.arange(len(y))
    shares = label_issues.class_shares(proven, labels)
    said = both_classes(label_issues.means_without_own_contribution(proven.boosting))
    found = {}
    for name, each in (("share", shares), ("probability", said)):
        own, others = each[every, y], np.where(labels == 1, -np.inf, each).max(axis=1)
        found |= {name: own, f"{name}, margin": own - others}
    found["mean"] = (found["share"] + found["probability"]) / 2
    found["product"] = found["share"] * found["probability"]
    found["mean of margins"] = (found["share, margin"] + found["probability, margin"]) / 2
    if get_label_quality_scores is not None:
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        made = cross_val_predict(
            lgb.LGBMClassifier(**SETTINGS), X, y, cv=folds, method="predict_proba"
        )
        found["cleanlab"] = get_label_quality_scores(y, made)
    return {name: np.nan_to_num(quality, nan=1.0) for name, quality in found.items()}


def measure(X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Mean average precisions."""
    found: dict[str, list[float]] = {}
    for seed in range(REPETITIONS):
        draws = np.random.default_rng(seed)
        rows = draws.permutation(len(y))[:MOST_ROWS]
        spoilt, wrong = y[rows].copy(), draws.random(len(rows)) < SHARE
        n_classes = int(y.max()) + 1
        spoilt[wrong] = (spoilt[wrong] + draws.integers(1, n_classes, wrong.sum())) % n_classes
        for name, quality in orders(X[rows], spoilt, seed).items():
            found.setdefault(name, []).append(average_precision_score(wrong, -quality))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="a folder of prepared CSV files"
    )
    given = parser.parse_args()
    scores, lines = {}, []
    for name, X, y in tables(given.data):
        scores[name] = measure(X, y)
        print(name, {method: round(value, 3) for method, value in scores[name].items()}, flush=True)
    frame = pd.DataFrame(scores).T
    halves = {"chosen": frame[::2], "judged": frame[1::2]}
    for name, own in (*((name, frame.loc[[name]]) for name in frame.index), *halves.items()):
        line: Line = {"data": name}
        lines.append(line | {method: f"{value:.3f}" for method, value in own.mean().items()})
    print("\n".join(markdown(lines)))
    packages = PACKAGES if get_label_quality_scores is None else (*PACKAGES, "cleanlab")
    write("label_noise_several", lines, command("label_noise_several", given.data), packages)


if __name__ == "__main__":
    main()

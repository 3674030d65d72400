"""Do the rows that methods for classifiers put first have wrong labels? 5 % of the training labels are flipped, then looked for.

    python experiments/label_noise_classes.py --data FOLDER    # two classes: the paper's small data sets and scikit-learn's
    python experiments/label_noise_classes.py --quick          # two small ones

Half of the rows are trained on, a quarter validates, labels unspoilt. Model, repetitions and measures as in label_noise.py.
Every method orders the training rows; those on validation rows see their labels, the others do not. With g = p - y:

- self-push: a row's push on its own score (class_pushes.py), the larger the more it holds its own label up
- pushes, blame: sum over validation rows of g times the row's push: how far it pushes them the wrong way
- J, blame: sum over validation rows of -g times the change of their scores if the row's label were the other one, first order
- BoostIn, self: BoostIn's score of a row for itself; BoostIn, LeafInfluence, TREX, TreeSim: on validation rows
- out-of-fold loss: log-loss of the label by a model that did not see it (5 fits); loss: by the model itself
- cleanlab: get_label_quality_scores of the same out-of-fold probabilities, where it is installed (AGPL; not a part of axil)

Means over repetitions in results/label_noise_classes.csv with their spread; means over the data sets in label_noise_classes.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import lightgbm as lgb
import numpy as np
import pandas as pd
from class_data import NAMES, read_classes
from class_pushes import pushes
from label_noise import METRICS, REPETITIONS, SETTINGS, SHARE, judge
from paper_data import QUICK
from paper_setting import PACKAGES, Line, arguments, command, markdown, write
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import axil
from axil import baselines

try:
    from cleanlab.rank import get_label_quality_scores
except ImportError:
    get_label_quality_scores = None


def orders(X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Each method's suspicion of every training row, larger for a wrong label."""
    model = lgb.LGBMClassifier(**SETTINGS).fit(X, y)
    fit = baselines.FittedClassifier(model, X, y, n_threads=1)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    unseen = cross_val_predict(lgb.LGBMClassifier(**SETTINGS), X, y, cv=folds, method="predict_proba")
    gradient = model.predict_proba(X_val)[:, 1] - y_val
    flip = axil.JacobianExplainer(model, X, y, n_threads=1)(X_val).weights * (1 - 2 * y)
    boostin, rows = baselines.BoostIn(fit), np.arange(len(y))
    found = {
        "self-push": np.abs(np.diagonal(pushes(model, X, y, X))),
        "pushes, blame": gradient @ pushes(model, X, y, X_val),
        "J, blame": -gradient @ flip,
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
    for rival in (boostin, *(kind(fit) for kind in rivals)):  # a positive score: the row lowers the loss
        found[rival.name] = -rival.scores(X_val, y_val).sum(axis=0)
    return found


def run(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    results: dict[str, list[list[float]]] = {}
    for seed in range(REPETITIONS):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        train, val = order[: len(y) // 2], order[len(y) // 2 : len(y) * 3 // 4]
        wrong = np.isin(np.arange(len(train)), rng.choice(len(train), max(1, round(SHARE * len(train))), replace=False))
        for method, suspicion in orders(
            X[train], np.where(wrong, 1 - y[train], y[train]), X[val], y[val], seed
        ).items():
            results.setdefault(method, []).append(judge(suspicion, wrong))
    for method, found in results.items():
        means, spreads = np.mean(found, axis=0), np.std(found, axis=0)
        line: Line = {"data": name, "training rows": len(y) // 2, "method": method}
        line |= {metric: round(mean, 3) for metric, mean in zip(METRICS, means)}
        yield line | {f"{metric}, spread": round(spread, 3) for metric, spread in zip(METRICS, spreads)}


def summary(lines: list[Line]) -> list[Line]:
    """Means over the data sets, the best average precision first, and on how many a method has the best."""
    frame = pd.DataFrame(lines)
    best = frame.groupby("data")["average precision"].transform("max") == frame["average precision"]
    first = best.groupby(frame["method"]).sum()
    means = frame.groupby("method")[list(METRICS)].mean().sort_values("average precision", ascending=False)
    return [
        {"method": method, **{metric: f"{row[metric]:.3f}" for metric in METRICS}, "best on": int(first[method])}
        for method, row in means.iterrows()
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], NAMES)
    parser.add_argument("--quick", action="store_true", help="two small data sets; prints, writes nothing")
    given = parser.parse_args()
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        lines += run(name, *read_classes(name, given.data))
        print(name, flush=True)
    print("\n".join(markdown(summary(lines))))
    if not given.quick:
        packages = PACKAGES if get_label_quality_scores is None else (*PACKAGES, "cleanlab")
        write("label_noise_classes", lines, command("label_noise_classes", given.data), packages, summary(lines))


if __name__ == "__main__":
    main()

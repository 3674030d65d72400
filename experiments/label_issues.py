"""Which labels does find_label_issues mark, beside cleanlab's and bare residuals? How long does it take?

    python experiments/label_issues.py --data FOLDER             # the paper's data sets and scikit-learn's; ten minutes
    python experiments/label_issues.py --only breast_cancer wine diabetes --part classes numbers

Classes: 3 % of the labels are changed to another class at random, or none. Real data: scikit-learn's
classes, classes that the paper's data hold (who survived, whether a grid is stable), and their targets
cut at usual or even places. At most 2,000 rows, two repetitions.

- find_label_issues: `Explainer.find_label_issues()`; find_label_issues, out-of-fold: with the
  probabilities that cleanlab gets, of five fits
- cleanlab: find_label_issues with its defaults and these probabilities, where it is installed (AGPL; not
  a part of axil)
- shares, probability, folds: rows whose most frequent class in the leaves (trees of boosting count by what they have left
  to fit of the labels), most probable class without the row's own push, or most probable class by folds, is another one

"marked": the share of all rows. "precision at its recall": of the rows from the top of the list down to
where as many wrong labels are found as cleanlab marks. "sets": of how many data sets a figure is at least
as good as cleanlab's.

Numbers: targets as they are; times 10 or a tenth (2 % of the rows of positive targets); times 2.5 or 0.4
(2 %); shifted by two standard deviations (5 %). At most 1,500 rows, one repetition. Methods differ in
where residuals come from: folds, leave-one-out, the fit, or out of bag. They also differ in what marks
rows: an fdr of 0.1 or 0.2; "excess", the estimated number; or "bare", five times the usual size of the
residuals alone.

Costs: processor seconds of find_label_issues and of the explainer, on made-up data, one thread.

"chosen": data sets on which the form of find_label_issues was chosen; "judged": the others. The rule that says
how many labels of boosted classifiers to mark was chosen on some of the former, on autos, cars, energy_efficiency
and yacht in classes, and on made-up data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from label_noise import SETTINGS
from paper_data import NAMES, read
from paper_setting import PACKAGES, Line, arguments, command, markdown, write
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import axil
from axil.attribution import Kind
from axil.methods import folds, label_issues, unseen_predictions
from axil.methods.class_labels import both_classes
from axil.methods.intervals.training_errors import out_of_bag_predictions
from axil.methods.method import verified_model

try:
    from cleanlab.filter import find_label_issues
except ImportError:
    find_label_issues = None

TREES = 100  # of a forest
FLIPPED, REPETITIONS, MOST_ROWS = 0.03, 2, 2000
MOST_ROWS_OF_NUMBERS = 1500
OWN = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
}
CUT: dict[
    str, tuple[str, Any]
] = {  # the column that is cut into classes, "" for the target, and where
    "titanic": ("2urvived", [0.5]),
    "red_wine": ("", [5.5]),
    "concrete": ("", 3),
    "kin8nm": ("", 2),
    "cpu_small": ("", 3),
    "qsar_fish": ("", 2),
    "grid_stability": ("", [0.0]),
    "white_wine": ("", [5.5, 6.5]),
    "abalone": ("", [8.5, 10.5]),
    "airfoil": ("", 2),
    "space_ga": ("", 2),
    "boston": ("", 3),
    "diabetes": ("", 2),
}  # a number: into so many classes of one size
CHOSEN = (
    "breast_cancer",
    "digits",
    "titanic",
    "red_wine",
    "concrete",
    "kin8nm",
    "cpu_small",
    "qsar_fish",
)
CHOSEN_NUMBERS = NAMES[::2]
KINDS = ("as given", "times 10", "times 2.5", "shifted")
COSTS = ((2000, 100), (15000, 400), (60000, 200))  # rows and trees


def read_classes(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes from 0 on."""
    if name in OWN:
        X, classes = OWN[name](return_X_y=True)
    else:
        column, ends = CUT[name]
        features, target = read(name, folder)
        if column:
            features, target = features.drop(columns=column), features[column]
        X, values = features.to_numpy(float), target.to_numpy(float)
        if isinstance(ends, int):
            ends = np.quantile(values, np.arange(1, ends) / ends)
        classes = np.digitize(values, ends, right=True)
    rows = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    return X[rows], classes[rows]


def flipped(y: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of which this share is another class at random, and which."""
    draws = np.random.default_rng(seed)
    wrong = np.zeros(len(y), dtype=bool)
    wrong[draws.choice(len(y), round(share * len(y)), replace=False)] = True
    n_classes = int(y.max()) + 1
    labels = y.copy()
    labels[wrong] = (y[wrong] + draws.integers(1, n_classes, wrong.sum())) % n_classes
    return labels, wrong


def boosting() -> Any:
    return lgb.LGBMClassifier(**SETTINGS)


def forest() -> Any:
    return RandomForestClassifier(TREES, min_samples_leaf=3, random_state=0, n_jobs=1)


def marks_of_classes(
    make: Callable[[], Any], X: np.ndarray, y: np.ndarray, seed: int
) -> dict[str, Any]:
    """Return the rows that each method marks, and the order of suspicion it has, smallest first."""
    explainer = axil.Explainer(make().fit(X, y), X, y, n_threads=1)
    model, rows = verified_model(explainer), np.arange(len(y))
    splits = StratifiedKFold(5, shuffle=True, random_state=seed)
    unseen = cross_val_predict(make(), X, y, cv=splits, method="predict_proba")
    found = {}
    for name, table in (
        ("find_label_issues", explainer.find_label_issues()),
        ("find_label_issues, out-of-fold", explainer.find_label_issues(out_of_fold=unseen)),
    ):
        by_row = table.set_index("row").sort_index()
        found[name] = (
            by_row["is_label_issue"].to_numpy(),
            by_row["label_quality"].fillna(1.0).to_numpy(),
        )
    shares = np.nan_to_num(label_issues.class_shares(model, both_classes(model.targets)), nan=0.5)
    parts = {"shares": shares}
    by_folds = folds.fold_predictions(model)
    if model.kind is Kind.ADDITIVE:
        parts["probability"] = both_classes(
            label_issues.means_without_own_contribution(model.boosting)
        )
        by_folds = model.boosting.means(by_folds)
    parts["folds"] = both_classes(by_folds)
    for name, values in parts.items():
        found[name] = values.argmax(axis=1) != y, values[rows, y]
    if find_label_issues is not None:
        found["cleanlab"] = find_label_issues(y, unseen), unseen[rows, y]
    return found


def precision_at(order: np.ndarray, wrong: np.ndarray, n_found: int) -> float:
    """Return the precision of the rows from the top down to where this many wrong labels are found."""
    hits = np.cumsum(wrong[np.argsort(order, kind="stable")])
    n_rows = int(np.searchsorted(hits, n_found)) + 1
    return n_found / n_rows


def measure_classes(name: str, folder: Path | None) -> Iterator[Line]:
    X, y = read_classes(name, folder)
    for model, make in (("boosting", boosting), ("forest", forest)):
        results: dict[str, list[dict[str, float]]] = {}
        for seed in range(REPETITIONS):
            for share in (0.0, FLIPPED):
                labels, wrong = flipped(y, share, seed)
                found = marks_of_classes(make, X, labels, seed)
                for method, (marks, order) in found.items():
                    if not share:
                        results.setdefault(method, []).append({"marked as given": marks.mean()})
                        continue
                    line = {"marked": marks.mean(), "recall": marks[wrong].mean()}
                    line["precision"] = wrong[marks].mean() if marks.any() else np.nan
                    line["average precision"] = average_precision_score(wrong, -order)
                    if "cleanlab" in found:
                        n_found = max(1, int(found["cleanlab"][0][wrong].sum()))
                        line["precision at its recall"] = precision_at(order, wrong, n_found)
                    results[method].append(line)
        for method, lines in results.items():
            means = pd.DataFrame(lines).mean()
            head: Line = {"data": name, "rows": len(y), "model": model, "method": method}
            yield head | {key: round(value, 4) for key, value in means.items()}


def summary_of_classes(lines: list[Line]) -> list[Line]:
    frame = pd.DataFrame(lines)
    frame["sets"] = np.where(frame["data"].isin(CHOSEN), "chosen", "judged")
    measures = [
        name for name in ("marked as given", "marked", "precision", "recall") if name in frame
    ]
    measures += [name for name in ("average precision", "precision at its recall") if name in frame]
    made: list[Line] = []
    for (sets, model), group in frame.groupby(["sets", "model"], sort=False):
        by_method = {
            method: own.set_index("data") for method, own in group.groupby("method", sort=False)
        }
        for method, own in by_method.items():
            line: Line = {"data": f"{sets}, {len(own)}", "model": model, "method": method}
            line |= {name: f"{own[name].mean():.3f}" for name in measures}
            if "cleanlab" in by_method:
                rival = by_method["cleanlab"]
                line["sets, as given"] = int(
                    (own["marked as given"] <= rival["marked as given"] + 1e-9).sum()
                )
                line["sets, precision"] = int((own["precision"] >= rival["precision"] - 1e-9).sum())
                line["sets, recall"] = int((own["recall"] >= rival["recall"] - 1e-9).sum())
            made.append(line)
    return made


def spoilt(y: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return targets of which some are wrong, and which."""
    draws = np.random.default_rng(0)
    n_wrong = {"as given": 0, "shifted": round(0.05 * len(y))}.get(
        kind, max(3, round(0.02 * len(y)))
    )
    wrong = np.zeros(len(y), dtype=bool)
    wrong[draws.choice(len(y), n_wrong, replace=False)] = True
    targets, up = y.copy(), draws.random(n_wrong) < 0.5
    if kind == "shifted":
        targets[wrong] += 2 * y.std() * np.where(up, 1.0, -1.0)
    elif kind != "as given":
        factor = float(kind.split()[1])
        targets[wrong] *= np.where(up, factor, 1 / factor)
    return targets, wrong


def residuals_of(model: Any) -> dict[str, np.ndarray]:
    """Return the residuals of the training rows by where they come from."""
    predictions_by_source = {"folds": folds.fold_predictions(model)}
    predictions_by_source["leave-one-out"] = unseen_predictions.unseen_predictions(
        model, "leave-one-out"
    )[0]
    predictions_by_source["fit"] = model.fitted()
    if model.deletions.is_exact_fast:
        predictions_by_source["out of bag"] = np.where(
            np.isnan(out_of_bag_predictions(model)),
            model.fitted(),
            out_of_bag_predictions(model),
        )
    return {
        name: model.targets - predictions for name, predictions in predictions_by_source.items()
    }


def measure_numbers(name: str, folder: Path | None) -> Iterator[Line]:
    X, y = (part.to_numpy(float) for part in read(name, folder))
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS_OF_NUMBERS]
    X, y = X[rows], y[rows]
    makers = {
        "boosting": lambda: lgb.LGBMRegressor(**SETTINGS),
        "forest": lambda: RandomForestRegressor(TREES, random_state=0, n_jobs=1),
    }
    for kind in KINDS:
        if kind.startswith("times") and y.min() <= 0:
            continue
        targets, wrong = spoilt(y, kind)
        for model, make in makers.items():
            explained = verified_model(
                axil.Explainer(make().fit(X, targets), X, targets, n_threads=1)
            )
            for source, residuals in residuals_of(explained).items():
                around = label_issues.around_rows(explained, np.abs(residuals))
                head: Line = {
                    "data": name,
                    "rows": len(y),
                    "wrong": kind,
                    "model": model,
                    "residuals": source,
                }
                for rule, marks, order in _rules(residuals, around):
                    line = head | {
                        "rule": rule,
                        "wrong rows": int(wrong.sum()),
                        "marked": int(marks.sum()),
                    }
                    line |= {"found": int(wrong[marks].sum()), "false": int((~wrong[marks]).sum())}
                    known = wrong.any()
                    line["average precision"] = (
                        round(average_precision_score(wrong, order), 4) if known else ""
                    )
                    yield line


def _rules(
    residuals: np.ndarray, around: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield rules, the rows that they mark, and the suspicion of each row, the largest first."""
    for fdr in (0.1, 0.2):
        made = label_issues.Studentised.of(residuals, around, fdr=fdr)
        sizes = np.abs(made.value[:, 0])
        yield f"fdr {fdr}", made.is_label_issue[:, 0], sizes
    first = np.zeros(len(sizes), dtype=bool)
    first[np.argsort(-sizes, kind="stable")[: made.n_wrong]] = True
    yield "excess", first, sizes
    bare = np.abs(residuals[:, 0])
    beyond = bare > 5 * 1.4826 * np.median(bare)
    yield "bare", beyond, bare


def summary_of_numbers(lines: list[Line]) -> list[Line]:
    frame = pd.DataFrame(lines)
    frame["sets"] = np.where(frame["data"].isin(CHOSEN_NUMBERS), "chosen", "judged")
    frame["average precision"] = pd.to_numeric(frame["average precision"], errors="coerce")
    made: list[Line] = []
    for (sets, wrong, model, source, rule), own in frame.groupby(
        ["sets", "wrong", "model", "residuals", "rule"], sort=False
    ):
        if rule != "fdr 0.1" and source != "folds":
            continue
        n_rows, n_wrong = own["rows"].sum(), own["wrong rows"].sum()
        line: Line = {
            "data": f"{sets}, {len(own)}",
            "wrong": wrong,
            "model": model,
            "residuals": source,
            "rule": rule,
        }
        line |= {
            "rows": n_rows,
            "wrong rows": n_wrong,
            "found": own["found"].sum(),
            "false": own["false"].sum(),
        }
        line["average precision"] = "" if not n_wrong else f"{own['average precision'].mean():.3f}"
        made.append(line)
    return made


def measure_costs() -> Iterator[Line]:
    """Yield the processor seconds of find_label_issues over those of making the explainer, on made-up data."""
    draws = np.random.default_rng(0)
    for n_rows, n_trees in COSTS:
        X = draws.normal(size=(n_rows, 8))
        y = X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + draws.normal(size=n_rows) / 2
        counts = draws.poisson(np.exp(0.3 * X[:, 0])).astype(float)
        settings = {"n_estimators": n_trees, "n_jobs": 1, "verbose": -1}
        cases = {
            "numbers": (lgb.LGBMRegressor(**settings), y),
            "numbers, bagging": (lgb.LGBMRegressor(**settings, subsample=0.7, subsample_freq=1), y),
            "medians": (lgb.LGBMRegressor(**settings, objective="l1"), y),
            "Huber": (lgb.LGBMRegressor(**settings, objective="huber"), y),
            "counts": (lgb.LGBMRegressor(**settings, objective="poisson"), counts),
            "three classes": (lgb.LGBMClassifier(**settings), np.digitize(y, [-1, 1])),
            "forest": (RandomForestRegressor(TREES, min_samples_leaf=3, n_jobs=1), y),
        }
        for name, (model, targets) in cases.items():
            if n_rows > 20_000 and name in ("medians", "forest"):
                continue  # some minutes
            make = partial(axil.Explainer, model.fit(X, targets), X, targets, n_threads=1)
            explainer, set_up = _timed(make)
            _, seconds = _timed(explainer.find_label_issues)
            line: Line = {
                "rows": n_rows,
                "trees": n_trees,
                "model": name,
                "set-up, s": f"{set_up:.2f}",
            }
            yield line | {
                "find_label_issues, s": f"{seconds:.2f}",
                "ratio": f"{seconds / set_up:.1f}",
            }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def main() -> None:
    names = list(dict.fromkeys((*OWN, *CUT, *NAMES)))
    parser = arguments(__doc__.splitlines()[0], names)
    parser.add_argument("--part", nargs="+", choices=("classes", "numbers", "costs"))
    given = parser.parse_args()
    parts = given.part or ("classes", "numbers", "costs")
    packages = PACKAGES if find_label_issues is None else (*PACKAGES, "cleanlab")
    told = command("label_issues", given.data)
    if "classes" in parts:
        lines: list[Line] = []
        for name in [*OWN, *CUT]:
            if name in given.only:
                lines += measure_classes(name, given.data)
                print(name, flush=True)
        shown = summary_of_classes(lines)
        print("\n".join(markdown(shown)))
        write("label_issues", lines, told, packages, shown)
    if "numbers" in parts:
        lines = []
        for name in NAMES:
            if name in given.only:
                lines += measure_numbers(name, given.data)
                print(name, flush=True)
        shown = summary_of_numbers(lines)
        print("\n".join(markdown(shown)))
        write("label_issues_numbers", lines, told, PACKAGES, shown)
    if "costs" in parts:
        lines = list(measure_costs())
        print("\n".join(markdown(lines)))
        write("label_issues_cost", lines, told)


if __name__ == "__main__":
    main()

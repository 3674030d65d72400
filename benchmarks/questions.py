"""Every question at several sizes, as a ratio of its processor time to that of making the explainer.

    python benchmarks/questions.py

Friedman #1, LightGBM, 100 trees of 31 leaves unless --trees says otherwise: squared error without and with sample weights, and a
classifier of two classes. Each question has an explainer of its own, so that nothing is kept from another; questions about
predictions are asked about ten rows, `without` deletes ten, and 5,000 rows calibrate. Processor seconds are of all threads
together: on a machine that others use too they vary less than seconds do. "ratio" is to the set-up of the same model, "to
squared" to the same question of squared error. A question that a kind of model does not answer has no line, nor have exact
deletions of classifiers of more than 2,000 rows, which take a fit for every row. Writes results/questions.csv. `--intervals` asks
for intervals of 5,000 rows in place of the questions.

    OMP_NUM_THREADS=1 python benchmarks/questions.py --libraries

measures the set-up alone, of models of every library: 20,000 rows, 200 trees, its processor time on one thread over that of
LightGBM's squared error, and over that of LightGBM's model of the same task. Writes results/libraries.csv.
"""

import argparse
import os
import time
import warnings
from functools import partial

import lightgbm as lgb
import numpy as np
from common import RATE, friedman, write_csv

import axil

TREES, LEAVES, ASKED = 100, 31, 10
MOST_FITS = (
    2_000  # rows of a classifier, each of which takes a fit of its own where deletions are exact
)
QUESTIONS = {
    "explain": lambda e, X, y: e(X),
    "top": lambda e, X, y: e.top(X, 10),
    "similar": lambda e, X, y: e.similar(X, 5),
    "group": lambda e, X, y: e.group(X, np.arange(len(e.index)) % 20),
    "concentration": lambda e, X, y: e.concentration(X),
    "contributions": lambda e, X, y: e.jacobian.gradient_contributions(X),
    "removal, first-order": lambda e, X, y: e.removal(X, method="first-order"),
    "removal, exact": lambda e, X, y: e.removal(X, method="exact"),
    "without": lambda e, X, y: e.without(X, list(range(ASKED))),
    "what_if": lambda e, X, y: e.what_if(X, {0: y[0], 1: y[1]}),
    "influence": lambda e, X, y: e.influence(
        X, y, **({"out_of_fold": None} if e.kind == "exact" else {})
    ),
    "leave_one_out": lambda e, X, y: e.diagnostics.leave_one_out(),
    "find_label_issues": lambda e, X, y: e.find_label_issues(),
    "leverage": lambda e, X, y: e.diagnostics.leverage(),
    "standard_error": lambda e, X, y: e.diagnostics.standard_error(X),
    "calibrate": lambda e, X, y: e.calibrate(*friedman(5000, seed=5)),
    "calibrate, exact": lambda e, X, y: e.calibrate(*friedman(5000, seed=5), method="exact"),
    "calibrate, and intervals of 5,000 rows": lambda e, X, y: intervals(e, "leaves"),
    "calibrate, and intervals, exact": lambda e, X, y: intervals(e, "exact"),
}


def intervals(explainer, method):
    """Intervals of 5,000 rows, from as many that calibrate."""
    return explainer.calibrate(*friedman(5000, seed=5), method=method).interval(
        friedman(5000, seed=6)[0]
    )


def kinds(n, trees):
    """For each kind of model the fitted model and what its explainer is made of."""
    X, y = friedman(n)
    labels, weights = (y > np.median(y)).astype(int), np.random.default_rng(1).uniform(0.5, 2.0, n)
    for kind, targets, own in (
        ("squared", y, None),
        ("weighted", y, weights),
        ("classes", labels, None),
    ):
        params = {"num_leaves": LEAVES, "learning_rate": RATE, "verbose": -1, "seed": 0}
        params["objective"] = "binary" if kind == "classes" else "regression"
        yield kind, lgb.train(params, lgb.Dataset(X, targets, weight=own), trees), X, targets, own


def taken(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(n, threads, asked, trees):
    """A line for every question and kind of model at n rows."""
    squared = {}
    for kind, model, X, targets, weights in kinds(n, trees):
        made = partial(axil.Explainer, model, X, targets, weights, n_threads=threads)
        queries, truth = friedman(ASKED, seed=3)
        truth = (truth > np.median(truth)).astype(int) if kind == "classes" else truth
        setup = min(taken(made) for _ in range(3))
        for name in ["set-up", *asked]:
            if name == "removal, exact" and kind == "classes" and n > MOST_FITS:
                continue
            try:
                processor = (
                    setup
                    if name == "set-up"
                    else taken(partial(QUESTIONS[name], made(), queries, truth))
                )
            except axil.UnsupportedQuestionError as error:
                print(f"{name}, {kind}: {error}"[:150])
                continue
            ratios = {
                "ratio": processor / setup,
                "to squared": processor / squared.setdefault(name, processor),
            }
            found = {
                "rows": n,
                "trees": trees,
                "kind": kind,
                "question": name,
                "processor": f"{processor:.4g}",
            }
            yield found | {what: f"{value:.3g}" for what, value in ratios.items()}


def grown(n, trees):
    """For every library and kind of input the fitted model and what its explainer is made of."""
    import catboost
    import pandas as pd
    import scipy.sparse
    import xgboost
    from sklearn import ensemble

    X, y = friedman(n)
    labels = (y > np.median(y)).astype(int)
    worded = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    for name in ("x3", "x4"):
        worded[name] = pd.Categorical.from_codes(
            (20 * worded[name]).astype(int), [f"c{i}" for i in range(20)]
        )
    gaps = scipy.sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
    own = {"n_estimators": trees, "learning_rate": RATE, "random_state": 0, "n_jobs": 1}
    light = {**own, "num_leaves": LEAVES, "verbose": -1}
    cat = {
        "n_estimators": trees,
        "learning_rate": RATE,
        "verbose": 0,
        "allow_writing_files": False,
        "thread_count": 1,
    }
    hist = {"max_iter": trees, "learning_rate": RATE, "early_stopping": False}
    forest = {"n_estimators": trees, "min_samples_leaf": 5, "max_features": 3, "random_state": 0}
    for name, model, rows, targets in (
        ("LightGBM", lgb.LGBMRegressor(**light), X, y),
        ("LightGBM, classes", lgb.LGBMClassifier(**light), X, labels),
        ("LightGBM, categories", lgb.LGBMRegressor(**light), worded, y),
        ("XGBoost", xgboost.XGBRegressor(**own), X, y),
        ("XGBoost, classes", xgboost.XGBClassifier(**own), X, labels),
        ("XGBoost, sparse", xgboost.XGBRegressor(**own), gaps, y),
        ("XGBoost, categories", xgboost.XGBRegressor(**own, enable_categorical=True), worded, y),
        ("CatBoost", catboost.CatBoostRegressor(**cat), X, y),
        ("CatBoost, classes", catboost.CatBoostClassifier(**cat), X, labels),
        ("HistGradientBoosting", ensemble.HistGradientBoostingRegressor(**hist), X, y),
        (
            "HistGradientBoosting, classes",
            ensemble.HistGradientBoostingClassifier(**hist),
            X,
            labels,
        ),
        (
            "HistGradientBoosting, categories",
            ensemble.HistGradientBoostingRegressor(**hist, categorical_features="from_dtype"),
            worded,
            y,
        ),
        (
            "GradientBoosting",
            ensemble.GradientBoostingRegressor(n_estimators=trees, learning_rate=RATE),
            X,
            y,
        ),
        ("RandomForest", ensemble.RandomForestRegressor(**forest), X, y),
        ("RandomForest, classes", ensemble.RandomForestClassifier(**forest), X, labels),
        ("ExtraTrees", ensemble.ExtraTreesRegressor(**forest), X, y),
    ):
        yield name, model.fit(rows, targets), rows, targets


def measure_libraries(n=20_000, trees=200):
    """A line for every library: processor seconds of the set-up, and their ratios to those of LightGBM's models.

    All models are fitted first, and measured one after the other three times: what else the machine does meets all alike.
    """
    models, times = list(grown(n, trees)), {}
    for _ in range(3):
        for name, model, X, y in models:
            setup = taken(partial(axil.Explainer, model, X, y, n_threads=1))
            times[name] = min(setup, times.get(name, setup))
    lines = []
    for name, setup in times.items():
        task = ", ".join(["LightGBM", *(part for part in name.split(", ")[1:] if part != "sparse")])
        lines.append({"rows": n, "trees": trees, "model": name, "processor": round(setup, 3)})
        lines[-1] |= {
            "ratio": round(setup / times["LightGBM"], 2),
            "ratio_same_task": round(setup / times[task], 2),
        }
        print("  ".join(f"{key} {value}" for key, value in lines[-1].items()), flush=True)
    write_csv("libraries.csv", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--questions",
        nargs="+",
        choices=list(QUESTIONS),
        help="all but the intervals, if not given",
    )
    parser.add_argument("--intervals", action="store_true", help="ask for intervals alone")
    parser.add_argument(
        "--libraries",
        action="store_true",
        help="measure the set-up of every library's models alone",
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    if arguments.libraries:
        return measure_libraries()
    lines, asked = (
        [],
        arguments.questions
        or [one for one in QUESTIONS if ("intervals" in one) == arguments.intervals],
    )
    for n in arguments.rows:
        for line in measure(n, arguments.threads, asked, arguments.trees):
            lines.append(line)
            print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
            write_csv("questions.csv", lines)


if __name__ == "__main__":
    main()

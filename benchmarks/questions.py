"""Every question at several sizes, as a ratio of its processor time to that of making the explainer.

    python benchmarks/questions.py --rows 100000 1000000

Friedman #1, LightGBM, 100 trees of 31 leaves unless --trees says otherwise: squared error without and with sample weights, and a
classifier of two classes. Each question has an explainer of its own, so that nothing is kept from another; questions about
predictions are asked about ten rows. Processor seconds are of all threads together: on a machine that others use too they vary
less than seconds do. A question that a kind of model does not answer has no number, nor have exact deletions of classifiers of
more than 2,000 rows, which take a fit for every row. Writes results/questions.csv.
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
MOST_FITS = 2_000  # rows of a classifier, each of which takes a fit of its own where deletions are exact
QUESTIONS = {
    "explain": lambda e, X, y: e(X),
    "top": lambda e, X, y: e.top(X, 10),
    "similar": lambda e, X, y: e.similar(X, 5),
    "group": lambda e, X, y: e.group(X, np.arange(len(e.index)) % 20),
    "statistics": lambda e, X, y: e.statistics(X),
    "pushes": lambda e, X, y: e.pushes(X),
    "removal, first-order": lambda e, X, y: e.removal(X, method="first-order"),
    "removal, exact": lambda e, X, y: e.removal(X, method="exact"),
    "without ten rows": lambda e, X, y: e.without(X, list(range(ASKED))),
    "what_if": lambda e, X, y: e.what_if(X, {0: y[0], 1: y[1]}),
    "blame": lambda e, X, y: e.blame(X, y, **({"out_of_fold": None} if e.kind == "exact" else {})),
    "leave_one_out": lambda e, X, y: e.leave_one_out(),
    "audit": lambda e, X, y: e.audit(),
    "leverage": lambda e, X, y: e.leverage(),
    "standard_error": lambda e, X, y: e.standard_error(X),
    "calibrate with 5,000 rows": lambda e, X, y: e.calibrate(*friedman(5000, seed=5)),
    "calibrate, exact": lambda e, X, y: e.calibrate(*friedman(5000, seed=5), method="exact"),
    "calibrate, and intervals of 5,000 rows": lambda e, X, y: intervals(e, "leaves"),
    "calibrate, and intervals, exact": lambda e, X, y: intervals(e, "exact"),
}


def intervals(explainer, method):
    """Intervals of 5,000 rows, from as many that calibrate."""
    return explainer.calibrate(*friedman(5000, seed=5), method=method).interval(friedman(5000, seed=6)[0])


def kinds(n, trees):
    """For each kind of model the fitted model and what its explainer is made of."""
    X, y = friedman(n)
    labels, weights = (y > np.median(y)).astype(int), np.random.default_rng(1).uniform(0.5, 2.0, n)
    for kind, targets, own in (("squared", y, None), ("weighted", y, weights), ("classes", labels, None)):
        params = {"num_leaves": LEAVES, "learning_rate": RATE, "verbose": -1, "seed": 0}
        params["objective"] = "binary" if kind == "classes" else "regression"
        yield kind, lgb.train(params, lgb.Dataset(X, targets, weight=own), trees), X, targets, own


def taken(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(n, threads, asked, trees):
    """A line for every question at n rows."""
    lines = {name: {"rows": n, "question": name} for name in ["set-up", *asked]}
    for kind, model, X, targets, weights in kinds(n, trees):

        def made(model=model, X=X, targets=targets, weights=weights):
            return axil.Explainer(model, X, targets, weights, n_threads=threads)

        setup = min(taken(made) for _ in range(2))
        lines["set-up"][kind] = round(setup, 3)
        queries, truth = friedman(ASKED, seed=3)
        truth = (truth > np.median(truth)).astype(int) if kind == "classes" else truth
        for name in asked:
            explainer = made()
            lines[name][kind] = ""
            if name == "removal, exact" and kind == "classes" and n > MOST_FITS:
                continue
            try:
                ratio = taken(partial(QUESTIONS[name], explainer, queries, truth)) / setup
                lines[name][kind] = round(ratio, 2 if ratio < 10 else 1)
            except axil.AxilError as error:
                print(f"{name}, {kind}: {error}"[:150])
    return list(lines.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--questions", nargs="+", default=list(QUESTIONS), choices=list(QUESTIONS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    lines = []
    for n in arguments.rows:
        for line in measure(n, arguments.threads, arguments.questions, arguments.trees):
            lines.append(line)
            print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
        write_csv("questions.csv", lines)


if __name__ == "__main__":
    main()

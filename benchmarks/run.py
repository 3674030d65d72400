"""The kernels, as ratios within one run to the paper's algorithm in tuned NumPy (for leaves, to LightGBM's pred_leaf).

Friedman #1, LightGBM, T = 100, 31 leaves. `make bench` prints the table and writes results/kernels.csv; `--rows` takes other
sizes. "prepared 10" is the kernel, "explain 10" the public call ``explainer(X)`` with its check. "wanted" is what a design of
these kernels reached on another machine, where NumPy took 5.8 s for 10 queries. Public calls on a classifier of the same rows,
trees and leaves, "contributions 10" and "contributions built", are relative to those on the
regression, and label
issues to the set-up of the explainer; intervals to reading out the weights; "top 10 of 1000" to the
same by reading all rows.
"""

import argparse
import os
import subprocess
import sys
import time
from itertools import chain

import lightgbm as lgb
import numpy as np
from common import RESULTS, fit, forget_peak, friedman, numpy_baseline, resident, seconds, write_csv

import axil
from axil.kernels import bounds
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from axil.weights.boosting import BoostedTrees

TREES, LEAVES, FULL = 100, 31, 10_000
WANTED = {
    "leaves": 30,
    "sweep 10": 8,
    "prepared 10": 45,
    "explain 10": 45,
    "prepared 100": 80,
    "top 10 of 100": 80,
    "top 10 of 1000": 5,
    "contributions 10": 0.67,
    "model to 10": 8,
    "find_label_issues": 0.1,
    "find_label_issues, given": 1,
    "find_label_issues, classes": 1,
    "all": 25,
}


def line(rows, step, taken, against, **more):
    wanted = WANTED.get(step, "") if rows in (1_000_000, FULL) else ""
    ratio = "" if against is None else round(against / taken, 1 if against > 2 * taken else 2)
    return {
        "rows": rows,
        "step": step,
        "seconds": round(taken, 4),
        "ratio": ratio,
        "wanted": wanted,
        "difference": "",
    } | more


def measure(n, threads):
    """All steps at n training rows."""
    bounds.BUILD = np.inf  # every row is read, until `largest`
    X, y = friedman(n)
    model = fit(X, y)
    few, many = friedman(10, seed=1)[0], friedman(100, seed=2)[0]
    queries, more = (model.predict(rows, pred_leaf=True) for rows in (few, many))
    explainer = axil.Explainer(model, X, y, n_threads=threads)
    trees = verified_model(explainer).engines[0]
    structure, adapter = trees.structure, verified_model(explainer).adapter

    own = np.empty_like(structure.cells)
    pred_leaf = seconds(lambda: model.predict(X, pred_leaf=True), 2)
    yield line(n, "pred_leaf", pred_leaf, None)
    yield line(n, "leaves", seconds(lambda: adapter.routes.assign(X, own, threads)), pred_leaf)

    leaves = structure.leaves().astype(np.intp)
    baseline = seconds(lambda: numpy_baseline(leaves, queries, LEAVES), 3)
    expected = numpy_baseline(leaves, queries, LEAVES)
    yield line(n, "NumPy 10", baseline, None)
    fresh = BoostedTrees(structure, Cpu(threads))
    apart = f"{np.abs(fresh.weight_rows(queries).dense() - expected).max():.0e}"
    taken = seconds(
        lambda: BoostedTrees(structure, Cpu(threads)).weight_rows(queries).dense()
    )  # nothing kept
    yield line(n, "sweep 10", taken, baseline, difference=apart)
    exact = seconds(lambda: explainer(few).weights)
    yield line(n, "weights 10", exact, baseline)

    start = time.perf_counter()
    trees = trees.prepared()
    yield line(n, "precompute", time.perf_counter() - start, None)
    apart = f"{np.abs(trees.weight_rows(queries).dense() - expected).max():.0e}"
    yield line(
        n,
        "prepared 10",
        seconds(lambda: trees.weight_rows(queries).dense(), 9),
        baseline,
        difference=apart,
    )
    read_out = seconds(lambda: trees.weight_rows(more).dense())
    yield line(n, "prepared 100", read_out, 10 * baseline)
    ready = explainer.precompute()
    yield line(n, "explain 10", seconds(lambda: ready(few), 9), baseline)
    yield intervals(n, ready, model.predict(X), many, read_out)
    yield line(n, "top 10 of 100", seconds(lambda: ready.top(many, 10)), 10 * baseline)
    yield from largest(n, ready)
    whole = seconds(lambda: axil.Explainer(model, X, y, n_threads=threads)(few), 3)
    yield line(n, "model to 10", whole, pred_leaf + baseline)
    built = seconds(lambda: axil.Explainer(model, X, y, n_threads=threads), 3)
    yield line(n, "weights built", built, None)
    labels = (y > np.median(y)).astype(int)
    classifier = fit(X, labels, objective="binary")
    account = axil.Explainer(classifier, X, labels, n_threads=threads)
    found = account(few)
    made = found.intercepts + found.contributions.sum(axis=1)
    apart = f"{np.abs(made - classifier.predict(few, raw_score=True)).max():.0e}"
    yield line(
        n,
        "contributions 10",
        seconds(lambda: account.jacobian.gradient_contributions(few)),
        exact,
        difference=apart,
    )
    taken = seconds(lambda: axil.Explainer(classifier, X, labels, n_threads=threads), 3)
    yield line(n, "contributions built", taken, built)


def measure_label_issues(n, threads):
    """Label issues of n training labels, with what they need, as ratios of the set-up to them."""
    X, y = friedman(n)
    model = fit(X, y)
    start = time.perf_counter()
    explainer = axil.Explainer(model, X, y, n_threads=threads)
    setup = time.perf_counter() - start
    yield line(n, "set-up", setup, None)
    start = time.perf_counter()
    table = explainer.find_label_issues()  # once: what it needs is kept
    yield line(
        n,
        "find_label_issues",
        time.perf_counter() - start,
        setup,
        difference=table.attrs["axil"].split(";")[0],
    )
    unseen = np.roll(y, 1)
    yield line(
        n,
        "find_label_issues, given",
        seconds(lambda: explainer.find_label_issues(out_of_fold=unseen)),
        setup,
    )
    labels = (y > np.median(y)).astype(int)
    classifier = fit(X, labels, objective="binary")
    start = time.perf_counter()
    account = axil.Explainer(classifier, X, labels, n_threads=threads)
    setup = time.perf_counter() - start
    yield line(n, "find_label_issues, classes", seconds(account.find_label_issues), setup)


def intervals(n, ready, predictions, queries, read_out):
    """Intervals of some queries, calibrated by 500 rows; relative to reading all weights of these queries out."""
    predictive = ready.calibrate(*friedman(500, seed=3), out_of_fold=predictions)
    return line(
        n, f"intervals {len(queries)}", seconds(lambda: predictive.interval(queries), 3), read_out
    )


def largest(n, ready):
    """The public call for 1,000 queries: reading all rows, making blocks of alike rows, and by bounds on them."""
    queries = friedman(1000, seed=4)[0]
    whole = seconds(lambda: ready.top(queries, 10), 2)
    yield line(n, "all rows", whole, None)
    bounds.BUILD = 0
    start = time.perf_counter()
    verified_model(ready).engines[0].rows.index(len(queries), 1 << 60)
    yield line(n, "blocks", time.perf_counter() - start, None)
    yield line(n, "top 10 of 1000", seconds(lambda: ready.top(queries, 10), 3), whole)


def measure_all(threads):
    """All weights of FULL training rows, everything included."""
    X, y = friedman(FULL)
    model = fit(X, y)
    explainer = axil.Explainer(model, X, y, n_threads=threads)
    leaves = verified_model(explainer).engines[0].structure.leaves().astype(np.intp)
    some = leaves.T[:100]
    baseline = FULL / len(some) * seconds(lambda: numpy_baseline(leaves, some, LEAVES), 3)
    weights = explainer.jacobian.matrix()[:100]
    apart = f"{np.abs(weights - numpy_baseline(leaves, some, LEAVES)).max():.0e}"
    taken = seconds(lambda: axil.Explainer(model, X, y, n_threads=threads).jacobian.matrix(), 6)
    yield line(FULL, "all", taken, baseline, difference=apart)


KINDS = (measure, measure_label_issues)


def setup_memory(n):
    """Print by how much the memory of a process that holds data and model peaks while it makes an explainer."""
    X, y = friedman(n)
    model = lgb.Booster(model_file=str(RESULTS / f"model-{n}.txt"))
    model.predict(X[:1000])
    forget_peak()
    before = resident("VmRSS")
    axil.Explainer(model, X, y)
    print(resident("VmHWM") - before)


def memory(n):
    RESULTS.mkdir(exist_ok=True)
    model_file = RESULTS / f"model-{n}.txt"
    fit(*friedman(n)).save_model(model_file)
    try:
        added = int(subprocess.check_output([sys.executable, __file__, "--setup-memory", str(n)]))
    finally:
        model_file.unlink()
    return added / (n * TREES)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--setup-memory", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.setup_memory:
        return setup_memory(arguments.setup_memory)
    lines = []
    print(f"{'rows':>9}  {'step':<14}{'seconds':>9}{'ratio':>8}{'wanted':>8}")
    for n in [*arguments.rows, FULL]:
        steps = (
            [measure_all(arguments.threads)]
            if n == FULL
            else [kind(n, arguments.threads) for kind in KINDS]
        )
        for one in chain(*steps):
            lines.append(one)
            ratio = f"{one['ratio']}x" if one["ratio"] else ""
            print(
                f"{n:>9}  {one['step']:<14}{one['seconds']:>9}{ratio:>8}{one['wanted']:>8}",
                flush=True,
            )
        if n != FULL:
            print(f"{n:>9}  set-up adds {memory(n):.2f} x N*T bytes at its peak", flush=True)
    write_csv("kernels.csv", lines)


if __name__ == "__main__":
    main()

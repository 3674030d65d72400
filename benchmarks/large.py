"""A county's model: 364,000 rows, 2,460 trees of 235 leaves, too many leaves for leaf space, so that every query is a sweep.

Splits come from a short LightGBM training on few of the rows, a tenth of the trees, which are taken ten times over. Leaf values
and counts are those of the fit to all rows, computed tree by tree and written into LightGBM's own model text, so that the proof
holds. `make bench-large` prints the figures and writes results/large.csv. Speed of sweeps is relative to the read-modify-write
bandwidth measured in the same run: what one tree a pass would move, the state read and written once per tree and query.
Core seconds are those of all threads together, which neighbours on the machine change less than the clock. `top` is measured on a
tenth of its queries unless `--all`.
"""

import argparse
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import lightgbm as lgb
import numpy as np
from common import forget_peak, friedman, resident, write_csv

import axil
from axil.adapters.lightgbm.adapter import LightGBMAdapter

ROWS, TREES, LEAVES, RATE = 364_000, 2_460, 235, 0.02
GROWN, REPEATS = 6_000, 10  # rows that choose the splits; how often each tree's splits are used
QUERIES, TOP = 100, 1_000
BANDWIDTH_BYTES = 1 << 29
SWEPT = 16  # queries of the sweep that is measured by itself


def grow(X, y, trees):
    """Splits from few rows, of which every leaf holds at least five; on one thread, as more wait for each other."""
    params = {"num_leaves": LEAVES, "learning_rate": RATE, "min_data_in_leaf": 5, "max_bin": 63, "verbose": -1}
    params["num_threads"] = 1
    return lgb.train(params, lgb.Dataset(X[:GROWN], y[:GROWN]), -(-trees // REPEATS))


def refit(model, n_trees, X, y):
    """So many trees with the model's splits, and leaf values and counts of the fit to all rows, in the precision of LightGBM."""
    adapter, threads = LightGBMAdapter(model), len(os.sched_getaffinity(0))
    leaves = np.empty((model.num_trees(), len(X)), np.uint8)
    adapter.routes.assign(X, leaves, threads)
    head, *grown = re.split(r"(?m)^(?=Tree=)", model.model_to_string())
    grown[-1], tail = grown[-1].split("end of trees", 1)
    trees = []
    base = y.mean()
    score = np.full(len(y), base)
    for t in range(n_trees):
        leaf, text = leaves[t % len(leaves)], grown[t % len(leaves)]
        gradients = (score - y).astype(np.float32)
        counts = np.bincount(leaf)
        values = -RATE * np.bincount(leaf, gradients) / counts
        score += values[leaf]
        text = re.sub(r"^Tree=.*", f"Tree={t}", text)
        trees.append(
            rewritten(
                re.sub(r"(?m)^shrinkage=.*$", f"shrinkage={RATE if t else 1}", text),
                values + (0 if t else base),
                counts,
            )
        )
    head = re.sub(r"(?m)^tree_sizes=.*\n", "", head)
    return lgb.Booster(model_str=head + "".join(trees) + "end of trees" + tail)


def rewritten(text, values, counts):
    """One tree's text with other leaf values and counts."""
    children = [np.array(re.search(rf"(?m)^{side}_child=(.*)$", text)[1].split(), int) for side in ("left", "right")]
    inner = np.zeros(len(children[0]), int)
    for node in reversed(range(len(inner))):  # children come after their parents
        inner[node] = sum(inner[own[node]] if own[node] >= 0 else counts[~own[node]] for own in children)
    lines = {"leaf_value": map(repr, values.tolist()), "leaf_weight": map(str, counts), "leaf_count": map(str, counts)}
    lines |= {"internal_weight": map(str, inner), "internal_count": map(str, inner)}
    for name, numbers in lines.items():
        text = re.sub(rf"(?m)^{name}=.*$", f"{name}={' '.join(numbers)}", text)
    return text


def cores(run, repeats=1):
    """Seconds by the clock and core seconds, which a busy machine changes less, of the shortest of several runs."""
    taken = []
    for _ in range(repeats):
        clock, core = time.perf_counter(), time.process_time()
        run()
        taken.append((time.perf_counter() - clock, time.process_time() - core))
    return tuple(map(min, zip(*taken)))


def bandwidth(threads):
    """Bytes per second, and per core second, of adding one to an array that no cache holds, on all threads."""
    parts = np.array_split(np.zeros(BANDWIDTH_BYTES // 8), threads)

    def one(part):
        for first in range(0, len(part), 1 << 15):
            part[first : first + (1 << 15)] += 1.0

    with ThreadPoolExecutor(threads) as pool:
        return [2 * BANDWIDTH_BYTES / taken for taken in cores(lambda: list(pool.map(one, parts)), 9)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="top of all queries, not of a tenth")
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    lines, threads = [], len(os.sched_getaffinity(0))

    def report(step, value, unit, core=None):
        in_cores = "" if core is None else f"{core:.4g}"
        lines.append({"step": step, "value": f"{value:.4g}", "unit": unit, "core seconds": in_cores})
        print(f"{step:60s} {value:10.4g} {unit:5s} {in_cores}", flush=True)

    def measure(step, run, times=1):
        clock, core = cores(run)
        report(step, times * clock, "s", times * core)

    X, y = friedman(arguments.rows)
    y = y.astype(np.float32).astype(float)
    model = refit(grow(X, y, arguments.trees), arguments.trees, X, y)
    X.setflags(write=False)
    new, found = friedman(TOP, seed=1)[0], {}

    forget_peak()
    before = resident("VmRSS")
    measure("model to explainer, proof included", lambda: found.update(explainer=axil.Explainer(model, X, y)))
    explainer = found["explainer"]
    engine = explainer._model.engines[0]
    report("leaves", engine.structure.total_leaves, "")

    queries = engine.structure.leaves()[:, :SWEPT].T.copy()
    measure(f"sweep of {SWEPT} queries, the first", lambda: engine.ask(queries))
    swept, moved = cores(lambda: engine.ask(queries), 3), 16 * arguments.rows * arguments.trees * SWEPT
    peak = resident("VmHWM")
    rates = bandwidth(threads)
    report("read-modify-write bandwidth", rates[0] / 1e9, "GB/s")
    report("the same per core second", rates[1] / 1e9, "GB")
    report(f"sweep of {SWEPT} queries", swept[0], "s", swept[1])
    report("sweep, of the bandwidth", 100 * moved / swept[0] / rates[0], "%")
    report("sweep, of the bandwidth, per core second", 100 * moved / swept[1] / rates[1], "%")

    forget_peak()
    measure(f"{QUERIES} explanations", lambda: explainer(new[:QUERIES]))
    asked = TOP if arguments.all else TOP // 10
    name = f"top 10 of {TOP}" + ("" if arguments.all else f", from {asked}")
    measure(name, lambda: explainer.top(new[:asked], 10), TOP // asked)
    measure("leverages, estimated", lambda: found.update(leverage=explainer.leverage(method="estimate")))
    value, error = found["leverage"]
    report("their standard error, of the mean leverage", 100 * error.mean() / value.mean(), "%")
    measure("degrees of freedom, estimated", lambda: found.update(df=explainer.degrees_of_freedom(method="estimate")))
    report("degrees of freedom", found["df"].value, "")
    report("their standard error", found["df"].standard_error, "")
    report("peak memory over data and model", (max(peak, resident("VmHWM")) - before) / 2**30, "GiB")
    write_csv("large.csv", lines)


if __name__ == "__main__":
    main()

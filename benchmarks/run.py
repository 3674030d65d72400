"""Speed and memory, as ratios within one run to the paper's algorithm in tuned NumPy.

Friedman #1, LightGBM, T = 100, 31 leaves, 10 queries. `make bench` prints the table and writes results/latest.csv with the
machine and the versions; `--rows` takes other sizes.
"""

import argparse
import csv
import os
import platform
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

import lightgbm as lgb
import numpy as np

import axil
from axil import _core
from axil.operators import Operators

TREES, LEAVES, QUERIES = 100, 31, 10
RESULTS = Path(__file__).parent / "results"


def friedman(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.normal(size=n)


def fit(X, y):
    params = {"objective": "regression", "num_leaves": LEAVES, "learning_rate": 0.1, "verbose": -1, "seed": 0}
    return lgb.train(params, lgb.Dataset(X, y), TREES)


def numpy_baseline(leaves, queries, rate):
    """The paper's AXIL-OOS, tuned: one bincount and one take per tree and query, leaf numbers ready as intp."""
    counts = [np.bincount(leaf, minlength=LEAVES) for leaf in leaves]
    out = np.empty((len(queries), leaves.shape[1]))
    for i, query in enumerate(queries):
        p = np.zeros(leaves.shape[1])
        for t in range(len(leaves) - 1, -1, -1):
            adjoint = -np.bincount(leaves[t], p, LEAVES)
            adjoint[query[t]] += 1.0
            p += np.take(rate * adjoint / np.maximum(counts[t], 1), leaves[t])
        out[i] = p + (1.0 - p.sum()) / len(p)
    return out


def seconds(run, repeats=5):
    """The shortest of several runs: the others measure the neighbours."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def time_baseline(leaves, queries):
    return seconds(lambda: numpy_baseline(leaves, queries, 0.1), 2), numpy_baseline(leaves, queries, 0.1)


def measure(n, threads):
    X, y = friedman(n)
    model = fit(X, y)
    X_new = friedman(QUERIES, seed=1)[0]
    start = time.perf_counter()
    explainer = axil.Explainer(model, X, y, n_threads=threads)
    setup = time.perf_counter() - start
    operators = explainer._engines[0].operators
    queries = model.predict(X_new, pred_leaf=True)
    pred_leaf = seconds(lambda: model.predict(X, pred_leaf=True), 1)
    baseline, expected = time_baseline(operators.structure.leaves().astype(np.intp), queries)
    results = {"pred_leaf": pred_leaf, "setup": setup, "baseline": baseline}
    results["sweep"] = seconds(lambda: Operators(operators.structure, threads).weights(queries))  # nothing kept
    error = np.abs(operators.weights(queries)[0] - expected).max()
    start = time.perf_counter()
    operators.prepare()
    results["prepare"] = time.perf_counter() - start
    results["prepared"] = seconds(lambda: operators.weights(queries))
    error = max(error, np.abs(operators.weights(queries)[0] - expected).max())
    many = friedman(100, seed=2)[0]
    results["top 10 of 100"] = seconds(lambda: explainer.top(many, 10), 3)
    return [
        {
            "rows": n,
            "step": step,
            "seconds": round(taken, 4),
            "queries": 100 if step == "top 10 of 100" else QUERIES,
            "ratio": round(baseline / taken * (10 if step == "top 10 of 100" else 1), 1),
            "largest difference": f"{error:.0e}",
        }
        for step, taken in results.items()
    ]


def resident(field):
    """Bytes of memory this process holds (VmRSS) or held at most since the last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def setup_memory(n):
    """Print by how much the memory of a process that holds data and model peaks while it makes an explainer."""
    X, y = friedman(n)
    model_file = RESULTS / f"model-{n}.txt"
    model = lgb.Booster(model_file=str(model_file))
    model.predict(X[:1000])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
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


def machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    names = ("axil", "numpy", "scipy", "lightgbm")
    return {
        "date": date.today().isoformat(),
        "machine": f"{model or platform.processor()}, {os.cpu_count()} cores, {_core.instruction_set()}",
        "versions": " ".join(f"{name} {version(name)}" for name in names) + f" Python {platform.python_version()}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--setup-memory", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.setup_memory:
        return setup_memory(arguments.setup_memory)
    lines = []
    print(f"{'rows':>9}  {'step':<14}{'seconds':>9}{'ratio':>8}   (ratio to the paper's algorithm in NumPy)")
    for n in arguments.rows:
        for line in measure(n, arguments.threads):
            lines.append(line)
            print(f"{n:>9}  {line['step']:<14}{line['seconds']:>9}{line['ratio']:>7}x")
        print(f"{n:>9}  set-up adds {memory(n):.2f} x N*T bytes at its peak")
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / "latest.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [*lines[0], *machine()])
        writer.writeheader()
        writer.writerows({**line, **machine()} for line in lines)


if __name__ == "__main__":
    main()

"""Data, models, clocks and machines that the benchmarks share."""

import csv
import ctypes
import os
import platform
import sys
import time
from datetime import date
from importlib import import_module
from pathlib import Path

import lightgbm as lgb
import numpy as np

from axil import _core

RATE = 0.1
RESULTS = Path(__file__).parent / "results"


def friedman(n, seed=0):
    """Friedman #1: ten features, five of which matter, and noise of size one."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 10))
    y = (
        10 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20 * (X[:, 2] - 0.5) ** 2
        + 10 * X[:, 3]
        + 5 * X[:, 4]
    )
    return X, y + rng.normal(size=n)


def fit(X, y, trees=100, leaves=31, objective="regression"):
    params = {
        "objective": objective,
        "num_leaves": leaves,
        "learning_rate": RATE,
        "verbose": -1,
        "seed": 0,
    }
    return lgb.train(params, lgb.Dataset(X, y), trees)


def numpy_baseline(leaves, queries, n_leaves):
    """The paper's AXIL-OOS, tuned: one bincount and one take per tree and query, leaf numbers ready as intp."""
    counts = [np.bincount(leaf, minlength=n_leaves) for leaf in leaves]
    out = np.empty((len(queries), leaves.shape[1]))
    for i, query in enumerate(queries):
        p = np.zeros(leaves.shape[1])
        for t in range(len(leaves) - 1, -1, -1):
            adjoint = -np.bincount(leaves[t], p, n_leaves)
            adjoint[query[t]] += 1.0
            p += np.take(RATE * adjoint / np.maximum(counts[t], 1), leaves[t])
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


def resident(field):
    """Bytes of memory this process holds (VmRSS) or held at most since the last `forget_peak` (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def forget_peak():
    """Give back what the allocator holds for later, and let the peak begin again."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def machine():
    """The date, the machine, the versions and the command of this run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), ""
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = {
        name: import_module(name).__version__ for name in ("axil", "numpy", "scipy", "lightgbm")
    }
    return {
        "date": date.today().isoformat(),
        "machine": f"{model or platform.processor()}, {cores} cores, {_core.instruction_set()}",
        "versions": " ".join(f"{name} {own}" for name, own in versions.items())
        + f" Python {platform.python_version()}",
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }


def write_csv(name, lines):
    """Write the results with the machine, the versions and the command, one file a benchmark."""
    RESULTS.mkdir(exist_ok=True)
    about = machine()
    with open(RESULTS / name, "w", newline="") as file:
        writer = csv.DictWriter(file, [*lines[0], *about], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**line, **about} for line in lines)

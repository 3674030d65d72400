"""The GPU back end against the cores of the same machine: kernels, weights, contributions.

    python benchmarks/gpu.py [--quick] [--out results.json]
    python benchmarks/gpu.py --cores    # the cores alone, without a GPU

Leaves are drawn at random with a few large ones per tree, as no model is needed to time a pass. Times on the GPU end with a
synchronisation; the copy of the leaf numbers to the device is given apart. The file is written after every figure. `--only` runs
some parts, and adds their figures to those that the file has of the same day, machine and versions.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine

from axil.kernels.choose import backend_of
from axil.kernels.cpu import Cpu
from axil.machine.memory import Budget, Limits
from axil.structure import Structure
from axil.weights.boosting import BoostedTrees

PARTS = ("county", "million", "ten million", "model", "contributions", "leaves", "fresh")
DELETED_ROWS = 1_000_000  # at most, whose deletions are measured at the public call


def trees_of(n_rows: int, n_trees: int, n_leaves: int, threads: int, seed: int = 0) -> Structure:
    """Random trees: squares of uniform numbers make early leaves larger."""
    rng = np.random.default_rng(seed)
    cells = np.empty((n_trees, n_rows), np.uint8)
    for t in range(n_trees):
        cells[t] = n_leaves * np.square(rng.random(n_rows, dtype=np.float32))
    sizes = np.full(n_trees, n_leaves)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    counts = Cpu(threads).rows(cells, starts).leaf_sums(np.ones((n_rows, 1)), None)[:, 0]
    return Structure(cells, sizes, counts, 1 / np.maximum(counts, 1), np.full(n_trees, 0.05), None)


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """The shortest of several runs after one that compiles."""
    import cupy

    work()
    taken = []
    for _ in range(repeat):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken)


class Report:
    """Figures by name, in a file from the first one on, with the machine and the versions."""

    def __init__(self, out: str | None = None, about: dict[str, Any] | None = None) -> None:
        self.lines: dict[str, float] = {}
        self.out, self.about = out, about

    def resume(self) -> None:
        """Keep the figures that the file has of the same day, machine and versions."""
        if self.out is not None and Path(self.out).exists():
            kept = json.loads(Path(self.out).read_text())
            if {**kept["machine"], "command": None} == {**(self.about or {}), "command": None}:
                self.lines = kept["figures"]

    def add(self, name: str, value: float, unit: str = "s") -> None:
        self.lines[f"{name} ({unit})"] = value
        print(f"{name:70s} {value:10.4g} {unit}", flush=True)
        if self.out is not None:
            Path(self.out).write_text(
                json.dumps({"machine": self.about, "figures": self.lines}, indent=1) + "\n"
            )


class Asking:
    """Collects the largest weights, as `Explainer.top` does."""

    def __init__(self, k: int, n_queries: int):
        self.k, self.scale, self.n_queries, self.room = k, None, n_queries, 0

    def merge(self, values: Any, rows: Any) -> None:
        self.found = values, rows

    def add(self, block: Any, first: int) -> None:
        values, rows = (
            np.zeros((block.shape[1], self.k)),
            np.full((block.shape[1], self.k), -1, np.int64),
        )
        Cpu(2).top(np.ascontiguousarray(block), first, None, values, rows)
        self.found = values, rows


def queries_of(s: Structure, n: int, seed: int = 1) -> Any:
    return s.cells[:, np.random.default_rng(seed).integers(0, s.n_rows, n)].T.copy()


def kernels(
    report: Report, gpu: Any, name: str, s: Structure, columns: int, with_pairs: bool
) -> None:
    import cupy as cp

    start = time.perf_counter()
    rows = gpu.rows_of(s)
    cp.cuda.Device().synchronize()
    report.add(f"{name}: leaf numbers to the device", time.perf_counter() - start)
    start = time.perf_counter()
    rows.sorted  # noqa: B018
    cp.cuda.Device().synchronize()
    report.add(f"{name}: rows of every tree sorted", time.perf_counter() - start)
    state, table = (
        cp.zeros((s.n_rows, columns)),
        cp.asarray(np.random.default_rng(0).normal(size=(s.total_leaves, columns))),
    )
    sums = cp.empty_like(table)
    for n_apply, n_gather in ((1, 1), (2, 2), (4, 4), (4, 0), (0, 4)):
        apply, gather = np.arange(n_apply), np.arange(4, 4 + n_gather)
        taken = seconds(lambda a=apply, g=gather: rows.sweep(state, a, table, None, g, sums, None))
        per_tree = max(n_apply, n_gather)
        whole = 1e3 * taken / per_tree / columns * s.n_trees
        report.add(
            f"{name}: sweep of {columns}, {n_apply} applied, {n_gather} gathered, all trees per query",
            whole,
            "ms",
        )
    v = cp.asarray(np.random.default_rng(0).normal(size=(s.n_rows, 1)))
    report.add(
        f"{name}: leaf sums of one column", 1e3 * seconds(lambda: rows.leaf_sums(v, None)), "ms"
    )
    if with_pairs:
        out = cp.empty((s.total_leaves, s.total_leaves))
        pairs = seconds(lambda: rows.cooccurrence(0, s.n_trees, None, out))
        report.add(f"{name}: co-occurrence of all pairs of trees", 1e3 * pairs, "ms")
        constant = cp.zeros(8)
        made = cp.empty((s.n_rows, 8))
        taken = seconds(lambda: rows.read_out(table[:, :8], constant, None, 0, made))
        report.add(f"{name}: read-out of 8 queries", 1e3 * taken, "ms")
        report.add(f"{name}: look-ups", 8 * s.n_rows * s.n_trees / taken / 1e12, "1e12/s")


def costs(report: Report, gpu: Any, name: str, s: Structure, columns: int = 128) -> None:
    """The steps of `Costs` but for sweeps, each in seconds per its own unit over ``visit_seconds``."""
    import cupy as cp

    rows, n, visit = gpu.rows_of(s), s.total_leaves, gpu.costs.visit_seconds
    rng = np.random.default_rng(0)
    factor = cp.triu(cp.asarray(rng.normal(size=(n, n)) / n), 1) + cp.eye(n)
    right, counted = cp.asarray(rng.normal(size=(n, columns))), cp.empty((n, n))
    made, constant = cp.empty((s.n_rows, columns)), cp.zeros(columns)
    triangle, all_pairs = gpu.triangle(factor), s.n_rows * s.n_trees * (s.n_trees - 1) / 2
    steps = {
        "pair": (lambda: rows.cooccurrence(0, s.n_trees, None, counted), all_pairs),
        "read": (
            lambda: rows.read_out(right, constant, None, 0, made),
            s.n_rows * s.n_trees * columns,
        ),
        "solve": (lambda: triangle.solve(right, transposed=False), n**2 * columns),
        "inverse": (lambda: triangle.inverse(overwrite=False), n**3),
        "product": (lambda: factor @ factor, n**3),
    }
    for step, (work, units) in steps.items():
        report.add(f"{name}: Costs.{step}", seconds(work) / units / visit, "of a sweep")


def ask(report: Report, engine: BoostedTrees, name: str, s: Structure, n: int, batch: int) -> None:
    """The ten largest weights of n queries, and their products with targets, as `top` checks them."""
    queries, y = queries_of(s, n), np.random.default_rng(2).normal(size=(s.n_rows, 1))
    engine.weight_rows(queries[:batch]).hand_to(Asking(10, n))
    start = time.perf_counter()
    for first in range(0, n, batch):
        answer = engine.weight_rows(queries[first : first + batch])
        answer.product(y)
        answer.hand_to(Asking(10, n))
    taken = time.perf_counter() - start
    report.add(f"{name}: top 10 of {n} queries", taken)
    report.add(f"{name}: per query", 1e3 * taken / n, "ms")


def copies(report: Report, X: Any, y: Any, n_trees: int) -> None:
    """The copies between host and device on the way to ten explanations, alone: into memory that nothing was in before."""
    import cupy as cp

    n_rows = len(y)

    def clock(name: str, work: Callable[[], Any]) -> Any:
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        made = work()
        cp.cuda.Device().synchronize()
        report.add(f"{n_rows:.0e} rows, copies: {name}", time.perf_counter() - start)
        return made

    clock("X to the device", lambda: [cp.asarray(part) for part in np.array_split(X, 4)])
    cells, leaves = cp.zeros((n_trees, n_rows), cp.uint8), np.empty((n_trees, n_rows), np.uint8)
    clock("leaf numbers to the host", lambda: [cells[t].get(out=leaves[t]) for t in range(n_trees)])
    clock("leaf numbers to the device", lambda: cp.asarray(leaves))
    targets = clock(
        "targets and scores to the device, three times", lambda: [cp.asarray(y) for _ in range(3)]
    )
    clock("scores and residuals to the host", lambda: [one.get() for one in targets[:2]])
    weights = cp.zeros((n_rows, 10))
    clock("weights to the host", lambda: weights.get())


def public(report: Report, n_rows: int, threads: int) -> None:
    """From a fitted LightGBM model to ten explanations, at the public call, with the proof."""
    import lightgbm

    from axil import Explainer

    rng = np.random.default_rng(0)
    X = rng.random((n_rows, 10), dtype=np.float32)
    y = (
        10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + rng.normal(size=n_rows)
    ).astype(np.float64)
    settings = {"verbose": -1, "num_leaves": 31, "num_threads": threads, "max_bin": 63}
    model = lightgbm.train(settings, lightgbm.Dataset(X, y, free_raw_data=True), 100)
    X.setflags(write=False)
    y.setflags(write=False)
    queries = np.ascontiguousarray(X[:10])
    some = lightgbm.train(settings, lightgbm.Dataset(X[:20_000], y[:20_000]), 100)
    small = Explainer(some, X[:20_000], y[:20_000], device="cuda").precompute()
    small(queries)  # compiles and loads
    left_out(Report(), "a first call that compiles", small, queries)
    copies(report, X, y, 100)
    for device in ("cuda", "cpu"):
        start = time.perf_counter()
        explainer = Explainer(model, X, y, device=device)
        made = time.perf_counter()
        explainer(queries)
        end = time.perf_counter()
        name = f"{n_rows:.0e} rows, 100 trees, LightGBM, " + (
            "GPU" if device == "cuda" else f"{threads} cores"
        )
        report.add(f"{name}: model to explainer, proof included", made - start)
        report.add(f"{name}: ten explanations", end - made)
        explainer.precompute()
        for n, what in ((1_000, ", first"), (100_000, ""), (1_000, "")):
            asked = np.ascontiguousarray(X[:n])
            start = time.perf_counter()
            explainer.top(asked, k=10)
            report.add(f"{name}: top 10 of {n:,}, prepared{what}", time.perf_counter() - start)
        asked = np.ascontiguousarray(X[:1_000])
        for _ in range(2):
            start = time.perf_counter()
            explainer.top(asked, k=10, by="contribution")
            taken = time.perf_counter() - start
        report.add(f"{name}: top 10 of 1,000 by contribution, prepared", taken)
        if n_rows <= DELETED_ROWS:
            left_out(report, name, Explainer(model, X, y, device=device), queries)


FRESH = """
import sys, time
import numpy, lightgbm, axil
folder, device = sys.argv[1:]
X, y, model = numpy.load(folder + "/X.npy"), numpy.load(folder + "/y.npy"), lightgbm.Booster(model_file=folder + "/model.txt")
X.setflags(write=False), y.setflags(write=False)
for _ in range(2):
    start = time.perf_counter()
    explainer = axil.Explainer(model, X, y, device=device)
    explainer(X[:10])
    print(time.perf_counter() - start, explainer._model.limits.device)
"""


def fresh(report: Report, threads: int) -> None:
    """Set-up and ten explanations in processes of their own, the shortest of three: the first in each, and the next."""
    import subprocess
    import sys
    import tempfile

    import lightgbm

    for n_rows in (20_000, 100_000, 1_000_000, 10_000_000):
        rng = np.random.default_rng(0)
        X = rng.random((n_rows, 10), dtype=np.float32)
        y = (
            10 * np.sin(np.pi * X[:, 0] * X[:, 1])
            + 20 * (X[:, 2] - 0.5) ** 2
            + rng.normal(size=n_rows)
        )
        settings = {"verbose": -1, "num_leaves": 31, "num_threads": threads, "max_bin": 63}
        with tempfile.TemporaryDirectory() as folder:
            lightgbm.train(settings, lightgbm.Dataset(X, y), 100).save_model(f"{folder}/model.txt")
            np.save(f"{folder}/X.npy", X), np.save(f"{folder}/y.npy", y)
            taken: dict[str, list[list[float]]] = {}
            for device in ("cuda", "cpu", "auto") * 4:  # the first of each does not count
                asked = [sys.executable, "-c", FRESH, folder, device]
                said = subprocess.run(
                    asked, capture_output=True, text=True, check=True
                ).stdout.split()
                name = device if device != "auto" else f"auto, on {said[1]}"
                taken.setdefault(name, []).append([float(one) for one in said[0::2]])
            for name, times in taken.items():
                for which, shortest in zip(
                    ("first of a process", "next"), np.min(times[1:], axis=0)
                ):
                    report.add(
                        f"{n_rows:.0e} rows, 100 trees, device={name}, {which}", float(shortest)
                    )


def matches(report: Report, gpu: Any, threads: int) -> None:
    """The ten rows that share most leaves with each query."""
    for n_rows, n_trees, n_leaves, n in (
        (100_000, 100, 31, 300),
        (50_000, 400, 31, 200),
        (1_000_000, 100, 31, 1024),
        (364_000, 2_460, 235, 300),
    ):
        s = trees_of(n_rows, n_trees, n_leaves, threads)
        asked = queries_of(s, n)
        for name, backend in (("GPU", gpu), (f"{threads} cores", Cpu(threads))):
            rows, taken = backend.rows(s.cells, s.cell_starts), []
            for _ in range(4):
                values, places = np.zeros((n, 10)), np.full((n, 10), -1, np.int64)
                start = time.perf_counter()
                rows.top_matches(asked, None, values, places)
                taken.append(time.perf_counter() - start)
            report.add(
                f"{n_rows:,} rows, {n_trees} trees, {name}: most shared leaves, {n} queries",
                min(taken),
            )


def left_out(report: Report, name: str, explainer: Any, queries: Any) -> None:
    """Every training row in the fit without it, the leaf matrix included; then the changes of ten predictions without
    each row."""
    start = time.perf_counter()
    explainer.diagnostics.leave_one_out()
    report.add(f"{name}: leave_one_out, explainer made before", time.perf_counter() - start)
    start = time.perf_counter()
    explainer.find_label_issues()
    report.add(f"{name}: find_label_issues after it", time.perf_counter() - start)
    for method in ("exact", "first-order"):
        start = time.perf_counter()
        explainer.removal(queries, method=method)
        report.add(f"{name}: removal of ten predictions, {method}", time.perf_counter() - start)


def contributions(report: Report, n_rows: int, threads: int) -> None:
    """Contributions and derivatives of a LightGBM classifier at the public call: construction, then answers."""
    import lightgbm

    from axil import Explainer

    rng = np.random.default_rng(0)
    X = rng.random((n_rows, 10), dtype=np.float32)
    score = 3 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 8 * (X[:, 2] - 0.5) ** 2 - 2
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-score))).astype(np.float64)
    settings = {
        "objective": "binary",
        "verbose": -1,
        "num_leaves": 31,
        "num_threads": threads,
        "max_bin": 63,
    }

    def fit(n: int, n_trees: int) -> Any:
        return lightgbm.train(settings, lightgbm.Dataset(X[:n], y[:n], free_raw_data=True), n_trees)

    model = fit(n_rows, 100)
    X.setflags(write=False)
    y.setflags(write=False)
    few, many, regions = (
        np.ascontiguousarray(X[:10]),
        np.ascontiguousarray(X[:1024]),
        np.arange(n_rows) % 20,
    )
    answers: dict[str, Callable[[Explainer], Any]] = {
        "ten explanations": lambda one: one(few),
        "ten explanations again": lambda one: one(few),
        "top 10 of 1,024": lambda one: one.top(many, k=10),
        "sums of 1,024 by 20 groups": lambda one: one.group(many, regions[: len(one.targets)]),
        "derivatives of ten by all weights": lambda one: one.jacobian.by_sample_weight(few),
    }
    small = Explainer(fit(20_000, 5), X[:20_000], y[:20_000], device="cuda")
    for ask in answers.values():  # compiles
        ask(small)
    for device in ("cuda", "cpu"):
        name = f"{n_rows:.0e} rows, 100 trees, LightGBM classifier, " + (
            "GPU" if device == "cuda" else f"{threads} cores"
        )
        start = time.perf_counter()
        explainer = Explainer(model, X, y, device=device)
        report.add(f"{name}: model to explainer, proof included", time.perf_counter() - start)
        for what, ask in answers.items():
            start = time.perf_counter()
            ask(explainer)
            report.add(f"{name}: {what}", time.perf_counter() - start)


def cores(threads: int) -> None:
    """The cores alone, for machines without a GPU."""
    report = Report()
    s = trees_of(364_000, 2_460, 235, threads)
    ask(
        report,
        BoostedTrees(s, Cpu(threads)),
        f"364,000 rows, 2,460 trees of 235 leaves, {threads} cores",
        s,
        16,
        16,
    )
    s = trees_of(1_000_000, 100, 31, threads)
    ask(
        report,
        BoostedTrees(s, Cpu(threads)).prepared(),
        f"1e6 rows, 100 trees of 31 leaves, {threads} cores",
        s,
        512,
        512,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the queries")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="parts to measure")
    parser.add_argument("--cores", action="store_true", help="the cores alone, without a GPU")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.cores:
        return cores(len(os.sched_getaffinity(0)))
    import cupy as cp

    threads = len(os.sched_getaffinity(0))
    gpu = backend_of(Limits(threads, Budget(None), "cuda"))
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(
        f"{device}, CUDA {cp.cuda.runtime.runtimeGetVersion()}, CuPy {cp.__version__}, NumPy {np.__version__}, {threads} cores"
    )
    about = machine() | {"device": device, "cupy": cp.__version__, "cores": threads}
    report, less, only = (
        Report(arguments.out, about),
        10 if arguments.quick else 1,
        arguments.only or PARTS,
    )
    if arguments.only:
        report.resume()
    if "county" in only:
        s = trees_of(364_000, 2_460, 235, threads)
        kernels(report, gpu, "364,000 rows, 2,460 trees of 235 leaves", s, 128, False)
        ask(
            report,
            BoostedTrees(s, gpu),
            "364,000 rows, 2,460 trees of 235 leaves, GPU",
            s,
            max(256, 2048 // less // 256 * 256),
            256,
        )
        ask(
            report,
            BoostedTrees(s, Cpu(threads)),
            f"364,000 rows, 2,460 trees of 235 leaves, {threads} cores",
            s,
            16,
            16,
        )
        del s
    if "million" in only:
        s = trees_of(1_000_000, 100, 31, threads)
        kernels(report, gpu, "1e6 rows, 100 trees of 31 leaves", s, 10, True)
        costs(report, gpu, "1e6 rows, 100 trees of 31 leaves", s)
        BoostedTrees(s, gpu).prepared()  # compiles
        engine = BoostedTrees(s, gpu)
        start = time.perf_counter()
        engine = engine.prepared()
        cp.cuda.Device().synchronize()
        report.add("1e6 rows, 100 trees of 31 leaves: the leaf matrix", time.perf_counter() - start)
        ask(report, engine, "1e6 rows, 100 trees of 31 leaves, GPU", s, 100_000 // less, 1024)
        ask(
            report,
            BoostedTrees(s, Cpu(threads)).prepared(),
            f"1e6 rows, 100 trees of 31 leaves, {threads} cores",
            s,
            1024,
            1024,
        )
        del s, engine
    if "ten million" in only:
        s = trees_of(10_000_000, 100, 31, threads)
        kernels(report, gpu, "1e7 rows, 100 trees of 31 leaves", s, 10, True)
        for ready in (False, True):
            start = time.perf_counter()
            engine = BoostedTrees(s, gpu)
            cp.cuda.Device().synchronize()
            moved = time.perf_counter()
            engine = engine.prepared() if ready else engine
            answer = engine.weight_rows(queries_of(s, 10))
            answer.product(np.ones((s.n_rows, 1)))
            cp.cuda.Device().synchronize()
            asked = time.perf_counter()
            answer.dense()
            end = time.perf_counter()
            how = "1e7 rows, 10 queries, " + ("the leaf matrix" if ready else "sweeps")
            report.add(f"{how}: leaf numbers to the device", moved - start)
            report.add(f"{how}: weights and their check", asked - moved)
            report.add(f"{how}: weights to the host", end - asked)
    if "model" in only:
        for n_rows in (1_000_000,) if arguments.quick else (1_000_000, 10_000_000):
            public(report, n_rows, threads)
    if "contributions" in only:
        contributions(report, 1_000_000, threads)
    if "leaves" in only:
        matches(report, gpu, threads)
    if "fresh" in only:
        fresh(report, threads)


if __name__ == "__main__":
    main()

"""A county's model: 364,000 sales, 2,460 trees of up to 235 leaves, too many for the leaf matrix, so that every query is a sweep.

The settings are those that the assessor of Cook County publishes: logarithms of prices, categories, L1 and L2, bins, depth. The
sales are made up. `make bench-large` prints the figures and writes results/large.csv. Speed of sweeps is relative to the
read-modify-write bandwidth measured in the same run: what one tree a pass would move, the state read and written once per tree
and query. Core seconds are those of all threads together, which neighbours on the machine change less than the clock. `top` is
measured on a tenth of its queries unless `--all`. The fit takes minutes on 16 cores; `--rows` and `--trees` make a smaller model.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor

import lightgbm as lgb
import numpy as np
import pandas as pd
from common import forget_peak, resident, write_csv

import axil
from axil.methods.method import verified_model

ROWS, TREES, LEAVES = 364_000, 2_460, 235
# github.com/ccao-data/model-res-avm, params.yaml, but for its own objective
SETTINGS = {
    "objective": "regression",
    "learning_rate": 0.012,
    "num_leaves": LEAVES,
    "max_depth": 9,
    "max_bin": 326,
    "feature_fraction": 0.31,
    "min_gain_to_split": 0.045,
    "min_data_in_leaf": 8,
    "max_cat_threshold": 170,
    "min_data_per_group": 29,
    "cat_smooth": 21.7,
    "cat_l2": 20.88,
    "lambda_l1": 0.349,
    "lambda_l2": 0.038,
    "seed": 0,
    "deterministic": True,
    "verbose": -1,
}
PLACES = {
    "neighbourhood": 600,
    "tract": 300,
    "municipality": 130,
    "school_district": 80,
    "township": 38,
}  # nested
KINDS = {"class": 16, "garage": 8, "wall": 4, "heat": 4}
QUERIES, TOP = 100, 1_000
BANDWIDTH_BYTES = 1 << 29
SWEPT = 16  # queries of the sweep that is measured by itself


def sales(n, seed=0):
    """Made-up sales: a frame of 20 features, nine of them categories of 4 to 600 values, and the logarithms of the prices."""
    rng = np.random.default_rng(seed)
    place = np.minimum(rng.gamma(2.0, 120.0, n).astype(int), PLACES["neighbourhood"] - 1)
    town = np.random.default_rng(7)  # the same town for every seed
    centres = np.column_stack([41.8 + town.normal(0, 0.15, 600), -87.8 + town.normal(0, 0.15, 600)])
    levels = town.normal(0, 0.35, 600) + 0.8 * (centres[:, 1] + 87.8)
    columns = {name: place * size // PLACES["neighbourhood"] for name, size in PLACES.items()}
    columns |= {
        name: np.minimum(rng.geometric(2.5 / size, n) - 1, size - 1) for name, size in KINDS.items()
    }
    frame = pd.DataFrame(
        {
            name: pd.Categorical.from_codes(
                codes, [f"{name} {i}" for i in range((PLACES | KINDS)[name])]
            )
            for name, codes in columns.items()
        }
    )
    frame["lat"], frame["lon"] = (centres[place] + rng.normal(0, 0.01, (n, 2))).T
    frame["area"], frame["land"] = rng.gamma(9, 170, n).round(), rng.lognormal(8.5, 0.5, n).round()
    frame["built"], frame["week"] = rng.integers(1880, 2024, n), rng.integers(0, 468, n)
    frame["rooms"] = np.clip((frame["area"] / 280 + rng.normal(0, 1, n)).round(), 2, 14)
    frame["baths"] = np.clip((frame["rooms"] / 3 + rng.normal(0, 0.5, n)).round(), 1, 6)
    frame["lake"] = np.abs(frame["lon"] + 87.55) * 270_000
    frame["station"], frame["tax_rate"] = (
        rng.gamma(2, 3000, n).round(),
        6 + 2 * town.random(600)[place],
    )
    frame["income"] = np.where(
        rng.random(n) < 0.05, np.nan, np.exp(11 + levels[place] / 2 + rng.normal(0, 0.1, n))
    )
    logs = 5.5 + levels[place] + 0.75 * np.log(frame["area"]) + 0.12 * np.log(frame["land"])
    logs += (
        0.002 * np.abs(frame["built"] - 1955)
        + 0.0008 * frame["week"]
        + 0.05 * np.sin(frame["week"] / 8.3)
    )
    logs += (
        0.04 * frame["baths"]
        - 0.02 * np.log1p(frame["station"])
        + 0.01 * columns["class"]
        + 0.02 * columns["garage"]
    )
    return frame, np.log(np.exp(logs + rng.normal(0, 0.25, n)).round().to_numpy())


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
        return [
            2 * BANDWIDTH_BYTES / taken for taken in cores(lambda: list(pool.map(one, parts)), 9)
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="top of all queries, not of a tenth")
    parser.add_argument("--trees", type=int, default=TREES)
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    lines, threads = [], len(os.sched_getaffinity(0))
    size = {"rows": arguments.rows, "trees": arguments.trees}

    def report(step, value, unit, core=None):
        in_cores = "" if core is None else f"{core:.4g}"
        lines.append(
            {**size, "step": step, "value": f"{value:.4g}", "unit": unit, "core seconds": in_cores}
        )
        print(f"{step:60s} {value:10.4g} {unit:5s} {in_cores}", flush=True)
        write_csv("large.csv", lines)

    def measure(step, run, times=1):
        clock, core = cores(run)
        report(step, times * clock, "s", times * core)

    X, y = sales(arguments.rows + TOP)
    new, truth, X, y, found = X[-TOP:], y[-TOP:], X[:-TOP], y[:-TOP], {}

    def fit():
        found["model"] = lgb.train(SETTINGS, lgb.Dataset(X, y), arguments.trees)

    measure("LightGBM's own fit", fit)
    model = found["model"]
    report(
        "the mean error of its logarithms on new sales",
        float(np.abs(model.predict(new) - truth).mean()),
        "",
    )

    forget_peak()
    before = resident("VmRSS")
    measure(
        "model to explainer, proof included",
        lambda: found.update(explainer=axil.Explainer(model, X, y, inverse_func=np.exp)),
    )
    explainer = found["explainer"]
    engine = verified_model(explainer).engines[0]
    report("leaves", engine.structure.total_leaves, "")

    queries = engine.structure.leaves()[:, :SWEPT].T.copy()
    measure(f"sweep of {SWEPT} queries, the first", lambda: engine.weight_rows(queries))
    swept, moved = (
        cores(lambda: engine.weight_rows(queries), 3),
        16 * arguments.rows * arguments.trees * SWEPT,
    )
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
    measure(f"five comparables of {QUERIES}", lambda: explainer.similar(new[:QUERIES], 5))
    measure(
        "leverages, estimated",
        lambda: found.update(leverage=explainer.diagnostics.leverage(method="estimate")),
    )
    value, error = found["leverage"]
    report("their standard error, of the mean leverage", 100 * error.mean() / value.mean(), "%")
    measure(
        "degrees of freedom, estimated",
        lambda: found.update(df=explainer.diagnostics.degrees_of_freedom(method="estimate")),
    )
    report("degrees of freedom", found["df"].value, "")
    report("their standard error", found["df"].standard_error, "")
    report(
        "peak memory over data and model", (max(peak, resident("VmHWM")) - before) / 2**30, "GiB"
    )


if __name__ == "__main__":
    main()

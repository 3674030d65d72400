"""`Explainer.similar` beside `axil.similarity`, which compares leaves alone.

    python benchmarks/comparables.py             # prints a table and writes results/comparables.csv
    python benchmarks/comparables.py --quick     # small sizes; prints

Five comparables of 300 rows by a LightGBM model of 63 leaves per tree on Friedman #1. Seconds are
processor seconds, the shortest of three calls; the first call, which prepares the leaves of the
training rows, is not counted. "weights" is ``similar(weights=True)``.
"""

import argparse
import time

from common import RESULTS, friedman, write_csv
from lightgbm import LGBMRegressor

import axil

K = 5
REPEATS = 3
SIZES = ((100_000, 200, 300), (100_000, 800, 300))
QUICK = ((5_000, 50, 40),)


def shortest(call):
    """Return the processor seconds of the fastest of some calls, after one that prepares."""
    call()
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure(n_rows, n_trees, n_queries):
    """Return a line of the table for one size."""
    X, y = friedman(n_rows)
    queries = friedman(n_queries, seed=1)[0]
    model = LGBMRegressor(n_estimators=n_trees, num_leaves=63, verbose=-1).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    by_leaves = shortest(lambda: explainer.similar(queries, K))
    with_weights = shortest(lambda: explainer.similar(queries, K, weights=True))
    similarity = shortest(lambda: axil.similarity(model, queries, X, k=K))
    return {
        "rows": n_rows,
        "trees": n_trees,
        "queries": n_queries,
        "similar, s": round(by_leaves, 3),
        "weights, s": round(with_weights, 3),
        "axil.similarity, s": round(similarity, 3),
        "similar / axil.similarity": round(by_leaves / similarity, 2),
    }


def main():
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; prints, writes nothing")
    is_quick = parser.parse_args().quick
    sizes = SIZES
    if is_quick:
        sizes = QUICK
    lines = []
    for size in sizes:
        line = measure(*size)
        lines.append(line)
        print(*line.values(), sep="\t", flush=True)
    if not is_quick:
        write_csv("comparables.csv", lines)
        print(RESULTS / "comparables.csv")


if __name__ == "__main__":
    main()

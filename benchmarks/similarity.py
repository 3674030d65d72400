"""Leaf similarity beside the loop that assessors run: every row against every tree, compiled by numba.

    python benchmarks/similarity.py             # needs numba; prints a table and writes results/similarity.csv
    python benchmarks/similarity.py --quick     # small sizes; prints

The five most similar rows of each query. The loop is ours, from its description: leaf numbers in 32 bits, a row after the other,
queries in parallel, sums in single precision, the largest kept in a sorted list. Both begin with leaf numbers; seconds are those
of all processors together (so the loop's threads are counted), the shortest of three runs. "trees": of LightGBM on Friedman #1,
or oblivious ones of random tests where a fit takes too long: there eight queries take not much longer than the leaves of all rows
take to come out of the memory. "weights": all trees alike, or by the variance of their values.
"""

import argparse
import time

import numpy as np
from common import RESULTS, fit, friedman, write_csv
from numba import get_num_threads, njit, prange

from axil.kernels.cpu import Cpu

K, PART = 5, 50_000  # rows listed; rows that the loop is given at a time, as 32-bit numbers
SIZES = (
    (100_000, 100, 300, "fitted"),
    (50_000, 400, 200, "fitted"),
    (364_000, 2460, 8, "random"),
    (364_000, 2460, 64, "random"),
)
QUICK = ((5_000, 50, 40, "fitted"), (5_000, 100, 8, "random"))


@njit(parallel=True, fastmath=True)
def loop(queries, rows, weights, first, scores, places):
    """Merge the rows, numbered from ``first`` on, into the most similar ones of every query."""
    for q in prange(len(queries)):
        for j in range(len(rows)):
            score = np.float32(0.0)
            for t in range(rows.shape[1]):
                if queries[q, t] == rows[j, t]:
                    score += weights[t]
            if score > scores[q, -1]:
                place = scores.shape[1] - 1
                while place > 0 and score > scores[q, place - 1]:
                    scores[q, place], places[q, place] = scores[q, place - 1], places[q, place - 1]
                    place -= 1
                scores[q, place], places[q, place] = score, first + j


def by_loop(leaves, queries, weights):
    """Seconds of the loop, and what it finds; the copy into its layout is not timed."""
    scores, places = (
        np.zeros((len(queries), K), np.float32),
        np.full((len(queries), K), -1, np.int32),
    )
    taken, asked, own = 0.0, queries.astype(np.int32), weights.astype(np.float32)
    for first in range(0, leaves.shape[1], PART):
        rows = np.ascontiguousarray(leaves[:, first : first + PART].T, dtype=np.int32)
        start = time.process_time()
        loop(asked, rows, own, first, scores, places)
        taken += time.process_time() - start
    return taken, scores


def by_axil(rows, queries, weights):
    values, places = np.zeros((len(queries), K)), np.full((len(queries), K), -1, np.int64)
    start = time.process_time()
    rows.top_matches(queries, weights, values, places)
    return time.process_time() - start, values


def leaves_of(n, trees, n_queries, kind):
    """(T, N) leaves of the rows and (n, T) of the queries, and each tree's values at its leaves."""
    X, y = friedman(n)
    asked = friedman(n_queries, seed=1)[0]
    if kind == "fitted":
        model = fit(X, y, trees)
        leaves = model.predict(X, pred_leaf=True).astype(np.uint8)
        values = [
            np.array([model.get_leaf_output(t, leaf) for leaf in range(31)]) for t in range(trees)
        ]
        spread = np.array([np.var(own[leaf]) for own, leaf in zip(values, leaves.T)])
        return (
            np.ascontiguousarray(leaves.T),
            model.predict(asked, pred_leaf=True).astype(np.uint8),
            spread,
        )
    rng = np.random.default_rng(2)
    features, thresholds = rng.integers(0, X.shape[1], (trees, 8)), rng.random((trees, 8))
    bits = 1 << np.arange(8)
    found = [
        np.stack([(table[:, own] < at) @ bits for own, at in zip(features, thresholds)]).astype(
            np.uint8
        )
        for table in (X, asked)
    ]
    return found[0], np.ascontiguousarray(found[1].T), 0.99 ** np.arange(trees)


def measure(n, trees, n_queries, kind, threads):
    leaves, queries, spread = leaves_of(n, trees, n_queries, kind)
    rows = Cpu(threads).rows(leaves, 256 * np.arange(trees + 1, dtype=np.int64))
    for name, weights in (("alike", None), ("variance", spread)):
        own = np.ones(trees) if weights is None else weights
        ours = min((by_axil(rows, queries, weights) for _ in range(3)), key=lambda one: one[0])
        loops = min(
            (by_loop(leaves, queries, own) for _ in range(3 if n < 200_000 else 1)),
            key=lambda one: one[0],
        )
        apart = float(np.abs(ours[1] - loops[1]).max() / own.sum())
        yield {
            "rows": n,
            "trees": f"{trees} {kind}",
            "queries": n_queries,
            "weights": name,
            "loop, s": round(loops[0], 3),
            "axil, s": round(ours[0], 4),
            "ratio": round(loops[0] / ours[0], 1),
            "difference": f"{apart:.0e}",
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; prints, writes nothing")
    quick = parser.parse_args().quick
    by_loop(np.zeros((3, 9), np.uint8), np.zeros((2, 3), np.uint8), np.ones(3))  # compiles
    lines = []
    for size in QUICK if quick else SIZES:
        for line in measure(*size, get_num_threads()):
            lines.append(line)
            print(*line.values(), sep="\t", flush=True)
    if not quick:
        write_csv("similarity.csv", lines)
        print(RESULTS / "similarity.csv")


if __name__ == "__main__":
    main()

"""The ten largest weights of 1,000 queries, by reading every training row and by bounds on blocks of alike rows.

    python benchmarks/largest.py --rows 1000000 10000000

LightGBM grows 100 trees of 31 leaves on 100,000 rows of Friedman #1; the rows of each size are then sent through these trees, and
boosting on them gives the weights. So ten million rows need no fit of their own. All rows are read for 128 of the queries, which
must give the same rows and bits, and the time is that of all. Writes results/largest.csv. Processor seconds are of all threads
together: on a machine that others use too they vary less than seconds do.
"""

import argparse
import os
import time
from dataclasses import replace

import numpy as np
from common import fit, friedman, write_csv

import axil
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from axil.structure import LinearLeaves
from axil.weights.boosting import BoostedTrees

GROWN, QUERIES, READ, K, ROUTED = 100_000, 1000, 128, 10, 1_000_000
MUCH = 1 << 60


def trees_of(n, threads):
    """Boosted trees over n rows, in the leaf matrix, with the leaves of the queries; and what the targets are."""
    X, y = friedman(GROWN)
    explainer = axil.Explainer(fit(X, y), X, y, n_threads=threads)
    assign, grown = (
        verified_model(explainer).adapter.routes.assign,
        verified_model(explainer).engines[0].structure,
    )
    cells, targets = np.empty((grown.n_trees, n), grown.cells.dtype), np.empty(n)
    for first in range(0, n, ROUTED):
        X, y = friedman(min(ROUTED, n - first), seed=10 + first)
        own = np.empty((grown.n_trees, len(X)), cells.dtype)
        assign(X, own, threads)
        cells[:, first : first + len(X)], targets[first : first + len(X)] = own, y
    counts = np.concatenate(
        [np.bincount(tree, minlength=m) for tree, m in zip(cells, grown.n_leaves)]
    ).astype(float)
    made = replace(
        grown,
        cells=cells,
        leaf_weights=counts,
        linear_leaves=LinearLeaves(1 / np.maximum(counts, 1)),
        leaf_rule=None,
    )
    queries = np.empty((grown.n_trees, QUERIES), grown.cells.dtype)
    assign(friedman(QUERIES, seed=2)[0], queries, threads)
    return BoostedTrees(made, Cpu(threads)).prepared(), np.ascontiguousarray(queries.T), targets


def timed(run):
    start, processor = time.perf_counter(), time.process_time()
    found = run()
    return found, time.perf_counter() - start, time.process_time() - processor


def measure(n, threads):
    """A line for each step at n rows."""
    trees, queries, targets = trees_of(n, threads)
    adjoints, some = trees.adjoints(queries), trees.adjoints(queries[:READ])
    plain, whole = {}, {}
    steps = {"weight": None, "contribution": targets}
    for by, scale in steps.items():
        whole[by], *taken = timed(lambda scale=scale: trees.largest(some, scale, K))
        plain[by] = [seconds * QUERIES / READ for seconds in taken]
    made, *built = timed(lambda: trees.rows.index(1 << 40, MUCH))
    yield {"rows": n, "step": "blocks", "by": "", **_times(built, None)}
    for by, scale in steps.items():
        _, *taken = timed(lambda scale=scale: trees.largest(adjoints, scale, K))
        again = trees.largest(some, scale, K)  # sums of other batches differ in their last bits
        assert all(np.array_equal(a, b) for a, b in zip(again, whole[by]))
        yield {"rows": n, "step": "all rows", "by": by, **_times(plain[by], None)}
        yield {"rows": n, "step": "bounds", "by": by, **_times(taken, plain[by])}
    if made:
        share = trees.rows.blocks.nbytes / trees.rows.cells.nbytes
        print(f"{n:>9}  blocks take {share:.2f} times the memory of the leaf numbers", flush=True)


def _times(taken, against):
    ratios = ["", ""] if against is None else [round(a / b, 1) for a, b in zip(against, taken)]
    return dict(
        zip(
            ("seconds", "processor", "ratio", "ratio_processor"),
            [*(round(t, 3) for t in taken), *ratios],
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    lines = []
    for n in arguments.rows:
        for line in measure(n, arguments.threads):
            lines.append(line)
            print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
    write_csv("largest.csv", lines)


if __name__ == "__main__":
    main()

"""The way that a request takes by itself, beside both ways: backward passes, and the leaf matrix with all that is built for it.

    python benchmarks/ways.py --rows 10000 100000 --trees 100 500

LightGBM grows trees of 31 leaves on 20,000 rows of Friedman #1; the rows of each size are then sent through these trees, and
boosting on them gives the weights, so that no size needs a fit of its own. Each cell is ``top(X, 10)`` of a fresh explainer, its
preparation included, in processor seconds of all threads together: on a machine that others use too they vary less than seconds
do. "over" is the time of the chosen way over the better of the two, and 1 where the leaf matrix does not fit into
memory. A way that
takes longer than ``--patience`` seconds by the costs that the choice is made from is not run: its time follows from the two
largest requests that were, which differ by a time for each query, and "not run" names it. Writes results/ways.csv.
"""

import argparse
import os
import time
from dataclasses import replace

import numpy as np
from common import fit, friedman, write_csv

import axil
from axil.kernels.cpu import Cpu
from axil.machine.threads import Cache
from axil.methods.method import verified_model
from axil.structure import LinearLeaves
from axil.weights.boosting import BoostedTrees

GROWN, QUERIES = 20_000, (1, 10, 100, 1_000, 10_000)
SHORT = 5.0  # seconds up to which a way is measured several times


def explainer_of(explainer, n, threads):
    """A copy of an explainer over n other rows, sent through its trees, without the comparison with its model."""
    model, (X, y) = verified_model(explainer), friedman(n, seed=10)
    grown = model.engines[0].structure
    cells = np.empty((grown.n_trees, n), grown.cells.dtype)
    model.adapter.routes.assign(X, cells, threads)
    counts = np.concatenate(
        [np.bincount(tree, minlength=m) for tree, m in zip(cells, grown.n_leaves)]
    ).astype(float)
    linear_leaves = LinearLeaves(1 / np.maximum(counts, 1))
    made = replace(
        grown, cells=cells, leaf_weights=counts, linear_leaves=linear_leaves, leaf_rule=None
    )
    return made, replace(
        model,
        engines=[],
        targets=y[:, None],
        index=np.arange(n),
        features=None,
        verification=None,
        kept=Cache(),
    )


def measure(structure, model, X, way, threads):
    """Processor seconds of one request that takes this way, by an engine of its own."""
    fresh = BoostedTrees(structure, Cpu(threads))
    start = time.process_time()
    engine = fresh._in_leaf_matrix(fresh.inverse_pays(len(X))) if way == "leaf matrix" else fresh
    engine.prepared = lambda *_: engine  # it stays in this way
    axil.Explainer._of(lambda: replace(model, engines=[engine])).top(X, 10)
    return time.process_time() - start


def extended(runs, n_queries):
    """Seconds of a larger request, from those of the two largest that were run; None of fewer."""
    if len(runs) < 2:
        return None
    (few, less), (many, more) = runs[-2:]
    return more + max(0.0, more - less) / (many - few) * (n_queries - many)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--trees", type=int, nargs="+", default=[100, 500, 2460])
    parser.add_argument("--queries", type=int, nargs="+", default=QUERIES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    lines, threads = [], arguments.threads
    for n_trees in arguments.trees:
        X, y = friedman(GROWN)
        grown = axil.Explainer(fit(X, y, trees=n_trees), X, y, n_threads=threads)
        for n in arguments.rows:
            structure, model = explainer_of(grown, n, threads)
            runs = {"sweeps": [], "leaf matrix": []}
            for n_queries in arguments.queries:
                asked, trees = friedman(n_queries, seed=2)[0], BoostedTrees(structure, Cpu(threads))
                visit_seconds = trees.backend.costs.visit_seconds
                work = trees.prediction_work(n_queries)
                ways = {
                    "sweeps": visit_seconds * work.by_passes,
                    "leaf matrix": visit_seconds * min(work.by_solves, work.by_inverse),
                }
                if 2 * trees.memory.preparation > model.budget.available // 2:
                    ways["leaf matrix"] = np.inf
                chosen = (
                    "leaf matrix"
                    if ways["leaf matrix"] < np.inf and trees.prepare_pays(n_queries)
                    else "sweeps"
                )
                cell = {}
                for way, estimate in ways.items():
                    if estimate < arguments.patience:
                        repeats = range(arguments.repeats if estimate < SHORT else 1)
                        cell[way] = min(
                            measure(structure, model, asked, way, threads) for _ in repeats
                        )
                        runs[way].append((n_queries, cell[way]))
                    elif (
                        estimate < np.inf
                        and (time_of := extended(runs[way], n_queries)) is not None
                    ):
                        cell[way] = time_of
                only = ways["leaf matrix"] == np.inf
                over = (
                    1.0
                    if only
                    else round(cell[chosen] / min(cell.values()), 2)
                    if len(cell) == 2
                    else ""
                )
                line = {"rows": n, "trees": n_trees, "queries": n_queries}
                line |= {way: round(cell[way], 4) if way in cell else "" for way in ways}
                line |= {"chosen": chosen, "over": over}
                line["not run"] = " and ".join(
                    way for way in ways if ways[way] >= arguments.patience
                )
                lines.append(line)
                print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
                write_csv("ways.csv", lines)


if __name__ == "__main__":
    main()

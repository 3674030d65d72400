"""What an explainer costs a service: to make, to save, to load, and to ask about one row.

    python benchmarks/production.py             # prints the table of docs/production.md and writes results/production.csv
    python benchmarks/production.py --quick     # small; prints

LightGBM on Friedman #1, trees of 31 leaves, one thread. Processor milliseconds, the shortest of several runs; the
model's own prediction of the row stands beside, so that the machine falls out of the comparison. So does the limit of one row's
weights, which are found from the last tree to the first: for each tree a row looks up one number by its leaf and adds one to its
leaf's sum. The limit is the time of as many look-ups and additions in any order, without what lies between two trees.
The limit of precomputed contributions is the time to read and add the numbers of the training
rows in the leaves of the row.
"""

import argparse
import os
import pickle
import tempfile
import time
from pathlib import Path

from axil.methods.method import verified_model

os.environ["OMP_NUM_THREADS"] = (
    "1"  # read as the libraries are loaded: threads of theirs that wait would count as work
)

import numpy as np
from common import fit, friedman, write_csv

import axil
from axil.output import archive

SIZES = ((10_000, 100), (100_000, 100), (160_000, 500))
QUICK = ((1_000, 10),)


def milliseconds(run, repeats):
    """Processor time of the shortest run."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def limit(explainer):
    """The look-ups and the additions of one backward pass, a number of every training row and tree each."""
    trees = verified_model(explainer).engines[0]
    ones, found, nothing = (
        np.ones((trees.structure.n_rows, 1)),
        np.empty((trees.structure.n_rows, 1)),
        np.zeros(1),
    )
    table = np.zeros((int(trees.structure.cell_starts[-1]), 1))
    trees.rows.leaf_sums(ones, None)
    trees.rows.read_out(table, nothing, None, 0, found)


def numbers_of_leaves(explainer, row):
    """Return as many precomputed numbers as the leaves of a row have training rows."""
    boosting = verified_model(explainer).boosting
    leaves = boosting.walked.leaves
    row_leaves = boosting.adapter.coordinates(np.ascontiguousarray(row), 1)[0]
    n_entries = sum(int((of_tree == leaf).sum()) for of_tree, leaf in zip(leaves, row_leaves))
    return boosting.leaf_order.outputs[0].values[:n_entries]


def written(value):
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def measured_of_classes(X, y, trees, row, repeats):
    """Yield (step, milliseconds) of a classifier, before and after `precompute`."""
    model = fit(X, y, trees, objective="binary")
    of_classes = axil.Explainer(model, X, y, n_threads=1)
    yield "top(row, k=5), two classes", milliseconds(lambda: of_classes.top(row, k=5), repeats)
    yield "explain(row), two classes", milliseconds(lambda: of_classes.explain(row), repeats)
    yield (
        "without(row, ten rows), two classes",
        milliseconds(lambda: of_classes.without(row, range(10)), 2),
    )
    yield "precompute, two classes", milliseconds(of_classes.precompute, 1)
    yield (
        "top(row, k=5), two classes, prepared",
        milliseconds(lambda: of_classes.top(row, k=5), repeats),
    )
    yield (
        "explain(row), two classes, prepared",
        milliseconds(lambda: of_classes.explain(row), repeats),
    )
    numbers = numbers_of_leaves(of_classes, row)
    yield "its limit: a number per tree and row of its leaf", milliseconds(numbers.sum, repeats)


def measured(n, trees, repeats):
    """(step, milliseconds), one after the other."""
    X, y = friedman(n)
    row, held_out = friedman(1, seed=1)[0], friedman(1_000, seed=2)[0]
    model = fit(X, y, trees)
    explainer = axil.Explainer(model, X, y, n_threads=1)
    yield "make the explainer", milliseconds(lambda: axil.Explainer(model, X, y, n_threads=1), 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explainer.npz"
        yield "save", milliseconds(lambda: explainer.save(path), 2)
        limits = verified_model(explainer).limits
        yield "read the file", milliseconds(lambda: archive.read(path, limits.budget), repeats)
        yield "axil.load", milliseconds(lambda: axil.load(path, model, n_threads=1), repeats)
        yield (
            "axil.load, verification",
            milliseconds(lambda: axil.load(path, model, n_threads=1).verification, 5),
        )
    pickled = pickle.dumps(explainer)
    yield "unpickle", milliseconds(lambda: pickle.loads(pickled), 2)
    yield "the model's predict", milliseconds(lambda: model.predict(row, num_threads=1), repeats)
    yield "top(row, k=5)", milliseconds(lambda: explainer.top(row, k=5), repeats)
    yield (
        "its limit: one look-up and one addition per row and tree",
        milliseconds(lambda: limit(explainer), repeats),
    )
    yield "without(row, [0])", milliseconds(lambda: explainer.without(row, [0]), 2)
    yield from measured_of_classes(X, y > np.median(y), trees, row, repeats)
    yield (
        "precompute",
        milliseconds(lambda: axil.Explainer(model, X, y, n_threads=1).precompute(), 1),
    )
    explainer.precompute()
    yield "top(row, k=5), prepared", milliseconds(lambda: explainer.top(row, k=5), repeats)
    many = friedman(100, seed=3)[0]
    yield (
        "top of 100 rows, prepared, each row",
        milliseconds(lambda: explainer.top(many, k=5), 3) / len(many),
    )
    yield (
        "novelty(model, row, X_train, held_out)",
        milliseconds(lambda: axil.novelty(model, row, X, held_out=held_out, n_threads=1), 2),
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; writes nothing")
    sizes = QUICK if (quick := parser.parse_args().quick) else SIZES
    found = {(n, trees): dict(measured(n, trees, 3 if quick else 20)) for n, trees in sizes}
    print("| processor ms |", " | ".join(f"{n:,} rows, {trees} trees" for n, trees in sizes), "|")
    print("|---|" + "---|" * len(sizes))
    for step in next(iter(found.values())):
        print(f"| {step} |", " | ".join(f"{written(one[step])}" for one in found.values()), "|")
    if not quick:
        write_csv(
            "production.csv",
            [
                {"rows": n, "trees": trees, "step": step, "processor_ms": f"{taken:.6g}"}
                for (n, trees), one in found.items()
                for step, taken in one.items()
            ],
        )


if __name__ == "__main__":
    main()

"""Peak memory of streamed answers about contributions: no (n, n_train) array is held.

Friedman #1 above or below its median, LightGBM, 10 trees of 31 leaves. `python benchmarks/streamed.py` prints by
how much the memory of the process peaks for each answer about 1,000 queries by 1,000,000 training
rows, and what their contributions would take.
"""

import argparse

import numpy as np
from common import fit, forget_peak, friedman, resident

import axil


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    arguments = parser.parse_args()
    X, y = friedman(arguments.rows)
    labels, groups = (y > np.median(y)).astype(int), np.arange(arguments.rows) % 5
    explainer = axil.Explainer(fit(X, labels, trees=10, objective="binary"), X, labels)
    queries = friedman(arguments.queries, seed=1)[0]
    answers = {
        "top": lambda: explainer.top(queries, 10),
        "similar": lambda: explainer.similar(queries, 10),
        "group": lambda: explainer.group(queries, groups),
    }
    print(f"{8 * arguments.rows * arguments.queries >> 20:>6} MiB  the contributions themselves")
    for name, ask in answers.items():
        forget_peak()
        before = resident("VmRSS")
        ask()
        print(f"{(resident('VmHWM') - before) >> 20:>6} MiB  {name}", flush=True)


if __name__ == "__main__":
    main()

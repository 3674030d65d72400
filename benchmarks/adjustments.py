"""Adjustments by feature: processor seconds of 200 homes, five comparables each, and 1,000 trees.

    OMP_NUM_THREADS=1 python benchmarks/adjustments.py

10,000 rows of 20 features, LightGBM of 31 leaves, on one thread. "similar" takes the five rows that
share most leaves; "any" takes five rows at random, which share few. The first call also reads the
trees. Writes results/adjustments.csv.
"""

import time

import lightgbm as lgb
import numpy as np
import pandas as pd
from common import write_csv

import axil

N_ROWS = 10_000
N_FEATURES = 20
N_HOMES = 200
N_COMPARABLES = 5
N_TREES = 1_000


def seconds(explainer, homes, comparables):
    """Return the processor seconds of one call."""
    start = time.process_time()
    explainer.adjustments(homes, comparables)
    return time.process_time() - start


def main():
    """Measure, and write the results."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + X[:, 3] + rng.normal(0, 0.3, N_ROWS)
    homes = rng.normal(size=(N_HOMES, N_FEATURES))
    model = lgb.LGBMRegressor(
        n_estimators=N_TREES, num_leaves=31, learning_rate=0.05, verbose=-1, n_jobs=1
    )
    explainer = axil.Explainer(model.fit(X, y), X, y, n_threads=1)
    similar = explainer.similar(homes, N_COMPARABLES, columns=[])
    labels = np.repeat(np.arange(N_HOMES), N_COMPARABLES)
    at_random = pd.DataFrame({"query": labels, "row": rng.integers(0, N_ROWS, len(labels))})
    lines = []
    for name, comparables in (("similar", similar), ("any", at_random)):
        first = seconds(explainer, homes, comparables)
        later = min(seconds(explainer, homes, comparables) for _ in range(3))
        lines.append(
            {
                "comparables": name,
                "pairs": len(labels),
                "trees": N_TREES,
                "first": round(first, 3),
                "later": round(later, 3),
            }
        )
        print(lines[-1])
    write_csv("adjustments.csv", lines)


if __name__ == "__main__":
    main()

"""axil.Explainer over a LocalCluster beside the same in one process: seconds of each step and bytes between workers.

python benchmarks/dask_cluster.py --rows 1000000 --trees 50 --leaves 31 --partitions 16 --workers 2
"""

import argparse
import json
import time

import dask.array as da
import lightgbm as lgb
import numpy as np
from common import friedman
from dask import delayed
from distributed import Client, LocalCluster

import axil
from axil.methods.method import verified_model


def timed(run):
    start = time.perf_counter()
    found = run()
    return found, round(time.perf_counter() - start, 2)


def block(seed, rows):
    """(rows, 11): features and target of one partition, made on the worker that holds it."""
    X, y = friedman(rows, seed)
    return np.column_stack([X, y])


def sent(client):
    """Bytes that the workers have sent each other so far."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {
        "rows": 1_000_000,
        "trees": 50,
        "leaves": 31,
        "partitions": 16,
        "workers": 2,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    size = a.rows // a.partitions
    parts = [
        da.from_delayed(delayed(block)(i, size), (size, 11), float) for i in range(a.partitions)
    ]
    options = {
        "n_workers": a.workers,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",
    }
    with LocalCluster(**options, silence_logs=50) as cluster, Client(cluster) as client:
        data = client.persist(da.concatenate(parts))
        whole = data.compute()
        X, y = whole[:, :-1], whole[:, -1]
        params = {"objective": "regression", "num_leaves": a.leaves, "verbose": -1, "seed": 0}
        model = lgb.train(params, lgb.Dataset(X, y), a.trees)
        queries, before = X[:: len(X) // 100][:100], sent(client)
        ours, built = timed(lambda: axil.Explainer(model, data[:, :-1], data[:, -1], client=client))
        between = sent(client) - before
        table, asked = timed(lambda: ours.top(queries, 10))
        found = {
            "construct_s": built,
            "top_100_s": asked,
            "MB_between_workers": round(between / 1e6, 1),
        }
        explanation = ours(queries[:4])
    alone, built = timed(lambda: axil.Explainer(model, X, y, n_threads=a.workers))
    _, prepared = timed(alone.precompute)
    expected, asked = timed(lambda: alone.top(queries, 10))
    found |= {
        "alone_construct_s": built,
        "alone_prepare_s": prepared,
        "alone_top_100_s": asked,
        "total_leaves": int(verified_model(alone).engines[0].structure.total_leaves),
        "weights_apart": float(np.abs(explanation.weights - alone(queries[:4]).weights).max()),
        "rows_of_top_equal": bool((table["row"] == expected["row"]).all()),
        "max_error": ours.verification.max_error,
    }
    print(json.dumps(vars(a) | found))


if __name__ == "__main__":
    main()

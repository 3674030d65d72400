"""Cancellation: a computation raises soon after another thread has cancelled it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from lightgbm import LGBMClassifier

import axil
from axil.kernels.cpu import Cpu
from axil.machine.cancellation import check_cancelled
from axil.machine.progress import track
from tests.kernels.forests import forest


def test_a_computation_that_was_cancelled_does_not_begin():
    cancellation = axil.Cancellation()
    assert not cancellation.is_cancelled
    assert cancellation.run(sorted, [2, 1], reverse=True) == [2, 1]
    cancellation.cancel()
    assert cancellation.is_cancelled
    with pytest.raises(axil.CancellationError, match=r"Make a new axil\.Cancellation"):
        cancellation.run(sorted, [2, 1])
    check_cancelled()  # of this thread, outside of run


def test_a_kernel_stops():
    """A call of a kernel that takes seconds raises before it has filled its result."""
    f = forest(n_rows=1500)
    leaves = np.ascontiguousarray(np.tile(f.leaves, (1, 400)))
    n_rows = leaves.shape[1]
    rows = Cpu(1).rows(leaves, f.starts)
    factors = np.ones(leaves.shape)
    table = f.normal(f.total, 64)
    out = np.full((n_rows, 64), np.nan)
    cancellation = axil.Cancellation()

    def work():
        for _ in range(1000):
            out[...] = np.nan
            rows.scaled_read_out(table, factors, 0, out)

    threading.Timer(0.5, cancellation.cancel).start()
    with pytest.raises(axil.CancellationError):
        cancellation.run(work)


def test_a_loop_over_batches_stops():
    cancellation = axil.Cancellation()
    steps = []

    def work():
        for step in track(range(5), "steps"):
            steps.append(step)
            if step == 2:
                cancellation.cancel()

    with pytest.raises(axil.CancellationError):
        cancellation.run(work)
    assert steps == [0, 1, 2]


def test_an_explainer_answers_as_before():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    y = X[:, 0] > 0
    model = LGBMClassifier(n_estimators=40, verbose=-1, n_jobs=1).fit(X, y)
    explainer = axil.Explainer(model, X, y, n_threads=1)
    expected = explainer.top(X[:3], k=4)
    cancellation = axil.Cancellation()

    def work():
        while True:
            explainer.top(X[:2000], k=4)

    with ThreadPoolExecutor(1) as pool:
        computation = pool.submit(cancellation.run, work)
        threading.Timer(0.3, cancellation.cancel).start()
        with pytest.raises(axil.CancellationError):
            computation.result(timeout=60)
    assert explainer.top(X[:3], k=4).equals(expected)

"""Work on a cluster of two processes, also where a worker dies on the way."""

import os
import signal

import numpy as np
import pandas as pd
import pytest

import axil
from tests.dask.dask_models import QUERIES, X, Y, changed, partitioned


def kill_a_worker(client):
    """The worker that holds most, without a farewell."""
    held = {worker: len(keys) for worker, keys in client.has_what().items()}
    pids = client.run(os.getpid)
    os.kill(pids[max(held, key=held.get)], signal.SIGKILL)


def test_results_do_not_depend_on_who_did_what(client, model):
    """Here or there; asked alike, for after many questions the leaf matrix is inverted."""
    spread, here = (
        axil.Explainer(model, partitioned(X), partitioned(Y), client=c) for c in (client, None)
    )
    np.testing.assert_array_equal(spread(QUERIES).weights, here(QUERIES).weights)
    pd.testing.assert_frame_equal(spread.top(QUERIES), here.top(QUERIES), check_exact=True)
    assert spread.verification == here.verification
    with pytest.raises(
        axil.ExactnessError, match="one"
    ):  # as raised on a worker or here, and not wrapped
        axil.Explainer(model, partitioned(X), partitioned(changed(300, 1.0)), client=client)
    with pytest.raises(axil.InputError, match=r"In partition \d"):
        axil.Explainer(model, partitioned(X.iloc[:, 1:]), partitioned(Y), client=client)


def test_a_worker_that_dies_is_made_up_for(client, model, whole, monkeypatch):
    """One is killed during construction, with leaves and sums on it, and one after, between two questions."""
    import axil.dask.build_exact as module

    killed = []

    def in_leaf_matrix(*arguments, original=module.in_leaf_matrix):
        kill_a_worker(client)
        killed.append(True)
        return original(*arguments)

    monkeypatch.setattr(module, "in_leaf_matrix", in_leaf_matrix)
    persisted = [client.persist(partitioned(values)) for values in (X, Y)]
    explainer = axil.Explainer(model, *persisted, client=client)
    assert killed
    kill_a_worker(client)
    found, expected = explainer(QUERIES), whole(QUERIES)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-12)
    pd.testing.assert_frame_equal(explainer.top(QUERIES), whole.top(QUERIES))
    client.wait_for_workers(2)

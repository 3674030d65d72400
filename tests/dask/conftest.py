"""One small model over Dask collections and on one machine, and a cluster of two processes."""

import dask
import lightgbm as lgb
import pytest
from distributed import Client, LocalCluster

import axil
from tests.dask.dask_models import X, Y, partitioned


@pytest.fixture(autouse=True)
def in_this_thread():
    """Where no client is given; a cluster's client is always passed on."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def model():
    return lgb.LGBMRegressor(n_estimators=25, num_leaves=9, n_jobs=1, verbose=-1).fit(X, Y)


@pytest.fixture(scope="module")
def explainer(model):
    with dask.config.set(scheduler="synchronous"):
        return axil.Explainer(model, partitioned(X), partitioned(Y))


@pytest.fixture(scope="module")
def whole(model):
    return axil.Explainer(model, X, Y)


@pytest.fixture(scope="module")
def client():
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",
    }
    with LocalCluster(**options, silence_logs=50) as cluster, Client(cluster) as client:
        yield client

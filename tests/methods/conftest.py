"""Explainers of every kind and place, for questions that all of them answer."""

import dask
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from tests.fits import explainer_of_fit
from tests.methods.method_models import CLASSES, QUIET, X, Y, partitioned

KINDS = [
    "exact",
    "derivative",
    "pushes",
    "pushes of classes",
    "exact over Dask",
    "pushes over Dask",
]


@pytest.fixture(scope="package", params=KINDS)
def any_explainer(request):
    """In this thread: Dask's own threads would be others in every run."""
    kind, over_dask = request.param.removesuffix(" over Dask"), request.param.endswith("over Dask")
    y = {
        "exact": Y,
        "derivative": CLASSES > 1,
        "pushes": np.exp(Y / 3),
        "pushes of classes": CLASSES,
    }[kind]
    model = {
        "exact": lgb.LGBMRegressor(**QUIET),
        "derivative": LogisticRegression(tol=1e-10),
        "pushes": lgb.LGBMRegressor(objective="poisson", **QUIET),
        "pushes of classes": lgb.LGBMClassifier(**QUIET),
    }[kind].fit(X, y)
    more = {} if kind in ("exact", "pushes") else {"output": "probability"}
    rows = [partitioned(X), partitioned(pd.Series(y, index=X.index))] if over_dask else [X, y]
    with dask.config.set(scheduler="synchronous"):
        yield explainer_of_fit(model, *rows, **more)


@pytest.fixture
def batches(monkeypatch):
    """Four queries at a time."""
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 4)

"""Nothing of the size of the training rows leaves the workers for questions whose answers are small."""

import pickle

import dask.array as da
import lightgbm as lgb
import numpy as np
import pytest

import axil
from axil.dask.cluster import Cluster
from axil.methods.intervals.calibration_rows import MOST_ROWS

N = 40_000
A = np.random.default_rng(0).normal(size=(N, 3))
QUESTIONS = {
    "top": lambda e: e.top(A[:4], 3),
    "top by contribution": lambda e: e.top(A[:4], 3, by="contribution"),
    "group": lambda e: e.group(A[:4], chunked(np.arange(N) % 2)),
    "similar": lambda e: e.similar(A[:4], 3),
    "similar, chosen": lambda e: e.similar(
        A[:4], 3, among=lambda rows: rows[:, 0] > 0, distinct=1, sign="for", within=(2, 0.5)
    ),
}
OF_WEIGHTS = {
    "similar, adjusted": lambda e: e.similar(A[:4], 3, adjust=True),
    "removal": lambda e: e.removal(A[:4], k=3),
    "removal of one sign": lambda e: e.removal(A[:4], k=3, same_sign=True),
    "removal by pushes": lambda e: e.removal(A[:4], k=3, by="contribution"),
    "removal of groups": lambda e: e.removal(A[:4], groups=chunked(np.arange(N) % 2)),
    "without": lambda e: e.without(A[:4], [7, 30_000]),
    "intervals": lambda e: e.calibrate(A[:50] + 0.1, A[:50].sum(axis=1)).interval(A[:4], 0.8),
}


def chunked(values):
    return da.from_array(values, chunks=(5000, *values.shape[1:]))


@pytest.fixture
def received(monkeypatch):
    """The bytes of each result that comes to this process."""
    found = []

    def collect(self, parts, collected=Cluster.collect):
        results = collected(self, parts)
        found.extend(len(pickle.dumps(part)) for part in results)
        return results

    monkeypatch.setattr(Cluster, "collect", collect)  # which `each` and `total` go through
    return found


@pytest.mark.parametrize("kind", ["exact", "additive"])
def test_nothing_of_the_size_of_the_training_rows_is_gathered(received, kind):
    y = A.sum(axis=1) if kind == "exact" else (A.sum(axis=1) > 0).astype(float)
    make = lgb.LGBMRegressor if kind == "exact" else lgb.LGBMClassifier
    model = make(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1).fit(A, y)
    explainer = axil.Explainer(model, chunked(A), chunked(y))
    assert explainer.kind == kind
    assert (
        kind == "additive" or max(received) < 6000
    )  # libraries read classes and shares from all targets of the others
    for name, ask in (QUESTIONS | (OF_WEIGHTS if kind == "exact" else {})).items():
        received.clear()
        ask(explainer)
        assert received, name
        # A byte for each row of a partition would be near 6000, for each row seven times that. Intervals ask how many training
        # rows equal each of `MOST_ROWS` of them, however many there are.
        assert max(received) < 6000 + (8 * MOST_ROWS if name == "intervals" else 0), name

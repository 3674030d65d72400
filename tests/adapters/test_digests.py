"""Digests of transformers that pickle cannot write: lambdas, local functions and local classes."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import axil
from axil.adapters.digests import digest
from tests.adapters.sklearn_models import table

DATA = table(80)
X, Y, X_NEW = DATA.X, DATA.y, DATA.X_new[:5]


def scaled_by(factor):
    """A function that closes over a number."""

    def scaled(rows):
        return rows * factor

    return scaled


def among():
    """A function with a set of texts, whose order differs between processes."""
    return lambda text: text in {"a", "b", "c"}


def counted_down():
    """A function that closes over itself."""

    def count(n):
        return 0 if n == 0 else count(n - 1)

    return count


class Locked:
    """Holds something that nothing can copy to a file."""

    def __init__(self):
        self.lock = threading.Lock()


def local_transformer():
    class Halved(TransformerMixin, BaseEstimator):
        def fit(self, rows, y=None):
            self.n_features_in_ = rows.shape[1]
            return self

        def transform(self, rows):
            return rows / 2

    return Halved()


@pytest.mark.parametrize(
    "transformer",
    [
        FunctionTransformer(lambda rows: rows * 2),
        FunctionTransformer(scaled_by(3.0)),
        local_transformer(),
    ],
    ids=["lambda", "local function", "local class"],
)
def test_pipelines_with_functions_that_have_no_name(transformer, tmp_path):
    model = make_pipeline(transformer, RandomForestRegressor(5, random_state=0)).fit(X, Y)
    assert axil.supports(model).exact
    explainer = axil.Explainer(model, X, Y)
    np.testing.assert_allclose(
        explainer(X_NEW).weights @ Y, model.predict(X_NEW), rtol=0, atol=1e-12
    )
    assert axil.similarity(model, X_NEW, X).shape == (5, 80)
    explainer.save(tmp_path / "saved.npz")
    loaded = axil.load(tmp_path / "saved.npz", model)
    np.testing.assert_array_equal(loaded(X_NEW).weights, explainer(X_NEW).weights)


def test_functions_differ_by_what_they_do():
    assert digest(scaled_by(2.0)) == digest(scaled_by(2.0)) != digest(scaled_by(3.0))
    double, triple = [lambda rows: rows * 2, lambda rows: rows * 3]
    assert digest([double]) != digest([triple])
    assert digest(lambda rows, by=1: rows) != digest(lambda rows, by=2: rows)
    assert digest(counted_down()) == digest(counted_down())
    assert digest(Locked()) == digest(Locked()) != digest(threading.Lock())


def test_digests_are_the_same_in_another_process():
    program = "from axil.adapters.digests import digest; from tests.adapters.test_digests import among, scaled_by; "
    program += "print(digest([scaled_by(2.0), among()]))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == digest([scaled_by(2.0), among()])

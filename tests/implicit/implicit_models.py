"""Data and calls that the tests of implicit differentiation share."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.preprocessing import scale

from axil.implicit import learners
from axil.implicit.readers import FitInputs
from axil.machine.memory import Budget, Limits


def diabetes(n=120):
    X, y = load_diabetes(return_X_y=True)
    return scale(X[:n]), y[:n]


def cancer(n=150):
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X[:n, :8]), y[:n]


def wine():
    X, y = load_wine(return_X_y=True)
    return scale(X[::2, :6]), y[::2]


def weights(n):
    return np.random.default_rng(3).uniform(0.5, 2.0, n)


def read(
    model,
    X,
    y,
    sample_weight=None,
    init_score=None,
    output="raw",
    loss=None,
    module=learners,
    limit=None,
    verify=True,
):
    limits = Limits(1, Budget(limit))
    given = FitInputs(
        model, X, y, sample_weight, init_score, output, loss, limits=limits, verify=verify
    )
    return module.read(given)


def slope(function, at, direction, step):
    """The derivative of a function at a point along a direction, by differences of fourth order."""
    moved = {k: function(at + k * step * direction) for k in (-2, -1, 1, 2)}
    return (8 * (moved[1] - moved[-1]) - (moved[2] - moved[-2])) / (12 * step)

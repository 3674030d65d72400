"""Networks of one hidden layer: the prediction of a training row as its own target moves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from boundary_measures import Array, Curve
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor

import axil

UNITS, RATE = 6, 0.1
OPTIMUM = {  # two units: of more some do the same work, and which ones do changes with the target
    "hidden_layer_sizes": (2,), "activation": "tanh", "alpha": 3.0, "solver": "lbfgs", "tol": 1e-12, "max_iter": 20000,
    "max_fun": 200000,
}  # fmt: skip
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
}
STEP = 1e-5  # of finite differences


def first_weights(n_columns: int) -> tuple[Array, Array]:
    """What all networks start from: (columns and a constant, units) and (units,)."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n_columns + 1, UNITS)), rng.normal(size=UNITS) / np.sqrt(UNITS)


def with_constant(X: Array) -> Array:
    return np.hstack([X, np.ones((len(X), 1))])


def train(X: Array, y: Array, activation: str, steps: int) -> Array:
    """(S, N): predictions of S networks, one for each row of targets (S, N), after full-batch gradient steps on squared error."""
    rows, (act, slope) = with_constant(X), ACTIVATIONS[activation]
    W, v = (np.repeat(part[None], len(y), axis=0) for part in first_weights(X.shape[1]))
    for _ in range(steps):
        z = rows @ W
        error = (np.einsum("snu,su->sn", act(z), v) - y) / len(rows)
        back = error[:, :, None] * v[:, None, :] * slope(z)
        v, W = v - RATE * np.einsum("snu,sn->su", act(z), error), W - RATE * (rows.T @ back)
    return np.einsum("snu,su->sn", act(rows @ W), v)


def moved_target(y: Array, row: int, changes: Array) -> Array:
    """(S, N): the targets with that of one row changed."""
    moved = np.repeat(y[None], len(changes), axis=0)
    moved[:, row] += changes
    return moved


def curves(X: Array, y: Array) -> Iterator[Curve]:
    """Networks after one and after many steps, and one at its optimum; the row furthest from the mean has the most say."""
    row = int(np.square(X).sum(axis=1).argmax())
    for activation in ACTIVATIONS:
        for steps in (1, 500):
            yield trained_curve(X, y, row, activation, steps)
    yield optimum_curve(X, y, row)


def trained_curve(X: Array, y: Array, row: int, activation: str, steps: int) -> Curve:
    """Beside the same network with its hidden layer as it starts and a ridge regression for its last."""
    x = np.linspace(-4, 4, 81)
    low, middle, high = train(
        X, moved_target(y, row, np.array([-STEP, 0.0, STEP])), activation, steps
    )[:, row]
    hidden = ACTIVATIONS[activation][0](with_constant(X) @ first_weights(X.shape[1])[0])
    return Curve(
        what=f"{activation} network, {steps} gradient step{'s' if steps > 1 else ''}",
        f=train(X, moved_target(y, row, x), activation, steps)[:, row],
        tangent=middle + x * (high - low) / (2 * STEP),
        counterpart="hidden layer fixed, ridge",
        **ridge_parts(hidden, y, row, x),
    )


def optimum_curve(X: Array, y: Array, row: int) -> Curve:
    """A network of scikit-learn, led on to its optimum for every target, with the derivative that axil finds."""
    x = np.linspace(-4, 4, 33)
    fitted = optimum(X, y)
    slope = axil.Explainer(fitted, X, y)(X[row : row + 1]).weights[0, row]
    found = [
        optimum(X, targets, fitted).predict(X[row : row + 1])[0]
        for targets in moved_target(y, row, x)
    ]
    return Curve(
        what="MLPRegressor (tanh) at its optimum",
        f=np.array(found),
        tangent=fitted.predict(X[row : row + 1])[0] + slope * x,
        counterpart="ridge",
        **ridge_parts(X, y, row, x),
    )


def optimum(X: Array, y: Array, start: Any = None) -> Any:
    """Fitted twice over, from the weights of ``start`` if given."""
    model = MLPRegressor(**OPTIMUM, random_state=0, warm_start=True)
    if start is not None:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of a single iteration, which only makes room for the weights
            model.set_params(max_iter=1).fit(X, y).set_params(max_iter=OPTIMUM["max_iter"])
        model.coefs_ = [part.copy() for part in start.coefs_]
        model.intercepts_ = [part.copy() for part in start.intercepts_]
    return model.fit(X, y).fit(X, y)


def ridge_parts(features: Array, y: Array, row: int, x: Array) -> dict[str, Any]:
    """The control: a ridge regression refitted for every target, and the weights of the first one."""
    query, moved = features[row : row + 1], moved_target(y, row, x)
    k = axil.Explainer(Ridge().fit(features, y), features, y)(query)
    return {
        "x": x,
        "at": 0.0,
        "control": np.array(
            [Ridge().fit(features, targets).predict(query)[0] for targets in moved]
        ),
        "exact": moved @ k.weights[0] + k.intercepts[0],
        "along": "change of the row's target, standard deviations",
        "predicted": "prediction",
    }

"""Log-loss, L1 leaves and median leaves: the targets sent through the leaves of real models, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from boundary_measures import DRAWS, Array, Curve, Map, additivity, root_mean_square
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.tree import DecisionTreeRegressor

import axil

TREES = {"n_estimators": 20, "num_leaves": 8, "n_jobs": 1, "verbose": -1}
RATE = 0.1
TURNED = 40  # labels


def sigmoid(score: Array) -> Array:
    return 1 / (1 + np.exp(-score))


def log_odds(y: Array) -> Any:
    return np.log(y.mean() / (1 - y.mean()))


def squared(score: Array, y: Array) -> tuple[Array, Array]:
    """First and second derivatives of the rows' losses by their scores."""
    return score - y, np.ones(len(y))


def logistic(score: Array, y: Array) -> tuple[Array, Array]:
    p = sigmoid(score)
    return p - y, p * (1 - p)


MEAN = {"loss": squared, "start": np.mean}
LOGIT = {"loss": logistic, "start": log_odds}
LOGIT_FROM_ZERO = {"loss": logistic, "start": lambda y: 0.0}


def replay(
    leaves: Array, loss: Any, start: Callable[[Array], Any], l1: float = 0.0, l2: float = 0.0
) -> Map:
    """Targets to the scores of the training rows, by Newton steps in the leaves (N, T), which are held fixed."""

    def scores(y: Array) -> Array:
        score = np.full(len(y), float(start(y)))
        for leaf in leaves.T:
            first, second = loss(score, y)
            G, H = np.bincount(leaf, first), np.bincount(leaf, second) + l2
            values = -np.sign(G) * np.maximum(np.abs(G) - l1, 0) / np.where(H > 0, H, 1)
            score = score + RATE * values[leaf]
        return score

    return scores


def replayed(model: Any, X: Array, y: Array, n_trees: int | None = None, **settings: Any) -> Map:
    """The replay of the first trees of a LightGBM model, fitted here; it must arrive at the model's own scores."""
    model.fit(X, y)
    leaves = model.predict(X, pred_leaf=True, num_iteration=n_trees).reshape(len(y), -1)
    made, own = replay(leaves, **settings), model.predict(X, raw_score=True, num_iteration=n_trees)
    if np.abs(made(y) - own).max() > 1e-6 * np.abs(own).max():
        raise RuntimeError(f"The replay of {model} strays from it.")
    return made


def one_tree(X: Array, y: Array, middle: Callable[[Array], Any]) -> Map:
    """Targets to the means or medians of the leaves of one tree of scikit-learn, which must be its own values."""
    criterion = {"mean": "squared_error", "median": "absolute_error"}[middle.__name__]
    model = DecisionTreeRegressor(criterion=criterion, max_leaf_nodes=8, random_state=0).fit(X, y)
    _, leaf = np.unique(model.apply(X), return_inverse=True)

    def predictions(y: Array) -> Array:
        return np.array([middle(y[leaf == own]) for own in range(leaf.max() + 1)])[leaf]

    if not np.allclose(predictions(y), model.predict(X)):
        raise RuntimeError(f"The leaves of {model} do not hold what was expected.")
    return predictions


def small_refits(X: Array, y: Array, **settings: Any) -> float:
    """Additivity of LightGBM as a whole, refitted to targets changed by a hundredth, wherever no row has changed its leaf."""

    def fit(targets: Array) -> tuple[Array, Array]:
        model = LGBMRegressor(**TREES | {"n_estimators": 5, "num_leaves": 4} | settings).fit(
            X, targets
        )
        return model.predict(X), model.predict(X, pred_leaf=True)

    (f, leaves), rng, defects, changes = fit(y), np.random.default_rng(0), [], []
    for _ in range(DRAWS):
        a, b = 0.01 * rng.normal(size=(2, len(y)))
        found = fit(y + a), fit(y + b), fit(y + a + b)
        if all(np.array_equal(leaves, own) for _, own in found):
            defects.append(found[0][0] + found[1][0] - f - found[2][0])
            changes.append(found[2][0] - f)
    if len(defects) < 5:
        raise RuntimeError(f"The leaves stayed in {len(defects)} of {DRAWS} draws only.")
    return root_mean_square(defects) / root_mean_square(changes)


def departures(X: Array, y: Array, labels: Array) -> Iterator[tuple[str, float, str, float]]:
    """What, how far it is from additive, its exact counterpart and how far that is."""
    yield "base logit", additivity(log_odds, labels), "mean", additivity(np.mean, labels)
    for n in (1, 20):
        control = additivity(
            replayed(LGBMRegressor(**TREES), X, labels.astype(float), n, **MEAN), labels
        )
        score = replayed(LGBMClassifier(**TREES), X, labels, n, **LOGIT)
        yield (
            f"log-loss, {trees(n)}: raw score",
            additivity(score, labels),
            "squared error",
            control,
        )
    probability = additivity(lambda y: sigmoid(score(y)), labels)
    yield f"log-loss, {trees(n)}: probability", probability, "squared error", control
    for n in (1, 2):
        control = additivity(
            replayed(LGBMRegressor(**TREES), X, labels.astype(float), n, **MEAN), labels
        )
        from_zero = LGBMClassifier(**TREES, boost_from_average=False)
        found = additivity(replayed(from_zero, X, labels, n, **LOGIT_FROM_ZERO), labels)
        yield f"log-loss from score 0, {trees(n)}: raw score", found, "squared error", control
    lasso = replayed(LGBMRegressor(**TREES, reg_alpha=5.0), X, y, l1=5.0, **MEAN)
    ridge = replayed(LGBMRegressor(**TREES, reg_lambda=5.0), X, y, l2=5.0, **MEAN)
    yield f"lambda_l1=5, {trees(20)}", additivity(lasso, y), "lambda_l2=5", additivity(ridge, y)
    medians, means = one_tree(X, y, np.median), one_tree(X, y, np.mean)
    yield "one tree with median leaves", additivity(medians, y), "mean leaves", additivity(means, y)
    yield (
        "linear_tree, 5 trees, refitted",
        small_refits(X, y, linear_tree=True),
        "mean leaves",
        small_refits(X, y),
    )


def trees(n: int) -> str:
    return f"{n} tree{'s' if n > 1 else ''}"


def base_curve(labels: Array) -> Curve:
    """The base logit as one label after the other becomes 1."""
    x, mean = np.arange(1, len(labels)) / len(labels), labels.mean()
    tangent = log_odds(labels) + (x - mean) / (mean * (1 - mean))
    return Curve(
        "base logit, labels flipped one by one", x, np.log(x / (1 - x)), tangent, mean, x, x, "mean",
        "share of labels that are 1", "base",
    )  # fmt: skip


def label_curve(X: Array, labels: Array) -> Curve:
    """The score of one row as the labels 0 with the largest derivatives turn into 1, all of them a little at a time."""
    model, plain = LGBMClassifier(**TREES), LGBMRegressor(**TREES)
    score = replayed(model, X, labels, **LOGIT)
    control = replayed(plain, X, labels.astype(float), **MEAN)
    J = axil.Explainer(model, X, labels)(X).weights
    zeros = np.flatnonzero(labels == 0)
    row = int(J[:, zeros].sum(axis=1).argmax())
    turned = np.zeros(len(labels))
    turned[zeros[np.argsort(-J[row, zeros])[:TURNED]]] = 1
    k = axil.Explainer(plain, X, labels.astype(float))(X[row : row + 1])
    x = np.linspace(0, 1, 41)
    moved = labels + x[:, None] * turned
    return Curve(
        what=f"log-loss, {trees(20)}, {TURNED} labels turned: raw score",
        x=x,
        f=np.array([score(targets)[row] for targets in moved]),
        tangent=score(labels)[row] + x * (J[row] @ turned),
        at=0.0,
        control=np.array([control(targets)[row] for targets in moved]),
        exact=moved @ k.weights[0] + k.intercepts[0],
        counterpart="squared error",
        along=f"{TURNED} labels on their way from 0 to 1",
        predicted="raw score",
    )

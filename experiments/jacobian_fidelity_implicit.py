"""How far implicit derivatives carry: predictions of smooth learners that are refitted with one target, or one row, changed.

    python experiments/jacobian_fidelity_implicit.py    # a minute; writes results/jacobian_fidelity_implicit.csv beside it

Each learner is fitted to a stationary point. Then the target of one training row at a time is moved by a tenth of the targets'
standard deviation or by all of it, or a label by a tenth (a row of each class shares the weight) or flipped, or the row is left
out, and the learner refitted. The changes of the predictions (raw scores) of other rows are compared with the derivative times
the change:
  relative_error    |refit - derivative| / |refit|, over all queries and changed rows
  slope             of the refits' changes on the derivatives'
  rank_correlation  over the changed rows, mean of the queries
Networks are refitted "on" from the fitted parameters, which leads to the optimum next to theirs, and "again" from the same
random start, which need not.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from paper_setting import write_csv
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import scale

import axil

N_TRAIN, N_QUERIES, N_CHANGED, ROUNDS = 250, 60, 25, 3
NETWORK = {"solver": "lbfgs", "max_iter": 20000, "max_fun": 200000, "tol": 1e-12, "random_state": 0}


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    return scale(X), y / y.std()


def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def wine() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_wine(return_X_y=True)
    return scale(X), y


NEWTON = {"tol": 1e-10, "solver": "newton-cholesky"}
LEARNERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Ridge(alpha=1)": (diabetes, Ridge(1.0)),
    "KernelRidge(rbf, gamma=0.05, alpha=0.5)": (
        diabetes,
        KernelRidge(kernel="rbf", gamma=0.05, alpha=0.5),
    ),
    "PoissonRegressor(alpha=0.1)": (diabetes, PoissonRegressor(alpha=0.1, **NEWTON)),
    "GammaRegressor(alpha=0.1)": (diabetes, GammaRegressor(alpha=0.1, **NEWTON)),
    "LogisticRegression(C=1)": (cancer, LogisticRegression(C=1.0, **NEWTON)),
    "LogisticRegression(C=1), default solver and tol": (cancer, LogisticRegression(C=1.0)),
    "LogisticRegression(C=100)": (cancer, LogisticRegression(C=100.0, **NEWTON)),
    "LogisticRegression(C=1), 3 classes": (wine, LogisticRegression(C=1.0, **NEWTON)),
    "MLPRegressor(8 tanh, alpha=10)": (
        diabetes,
        MLPRegressor(hidden_layer_sizes=(8,), alpha=10.0, activation="tanh", **NETWORK),
    ),
    "MLPRegressor(8 tanh, alpha=1)": (
        diabetes,
        MLPRegressor(hidden_layer_sizes=(8,), alpha=1.0, activation="tanh", **NETWORK),
    ),
    "MLPRegressor(8 relu, alpha=1)": (
        diabetes,
        MLPRegressor(hidden_layer_sizes=(8,), alpha=1.0, **NETWORK),
    ),
    "MLPRegressor(30 tanh, alpha=1)": (
        diabetes,
        MLPRegressor(hidden_layer_sizes=(30,), alpha=1.0, activation="tanh", **NETWORK),
    ),
    "MLPClassifier(4 tanh, alpha=1)": (
        cancer,
        MLPClassifier(hidden_layer_sizes=(4,), alpha=1.0, activation="tanh", **NETWORK),
    ),
    "MLPRegressor(8 tanh, alpha=1), adam": (
        diabetes,
        MLPRegressor(
            hidden_layer_sizes=(8,), alpha=1.0, activation="tanh", random_state=0, max_iter=2000
        ),
    ),
}
COLUMNS = [
    "learner",
    "training_rows",
    "newton_step",
    "damping",
    "change",
    "refit",
    "relative_error",
    "slope",
    "rank_correlation",
]


def fit(model: Any, X: np.ndarray, y: np.ndarray, w: np.ndarray, start: Any = None) -> Any:
    """A fit that is led on from where it ended until it stays, from the parameters of ``start`` if given."""
    model = clone(model)
    if not hasattr(model, "hidden_layer_sizes") or model.solver != "lbfgs":
        return model.fit(X, y, sample_weight=w)
    model.set_params(warm_start=True)
    if start is not None:
        model.set_params(max_iter=1).fit(X, y, sample_weight=w)
        model.coefs_ = [part.copy() for part in start.coefs_]
        model.intercepts_ = [part.copy() for part in start.intercepts_]
        model.set_params(max_iter=NETWORK["max_iter"])
    for _ in range(ROUNDS):
        model.fit(X, y, sample_weight=w)
    return model


class Change(NamedTuple):
    """Training data with one row changed, and by how much its target and its weight are."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray
    by_target: float = 0.0
    by_weight: float = 0.0


def changes(X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[int], Change]]:
    """What is done to a row."""
    ones, unit = np.ones(len(y)), np.eye(len(y))

    def moved(by: float) -> Callable[[int], Change]:
        return lambda row: Change(X, y + by * unit[row], ones, by)

    def shared(row: int) -> Change:
        w = np.append(ones - 0.1 * unit[row], 0.1)
        return Change(np.vstack([X, X[row]]), np.append(y, 1 - y[row]), w, 0.1 * (1 - 2 * y[row]))

    def flipped(row: int) -> Change:
        return Change(X, np.where(unit[row] == 1, 1 - y, y), ones, 1 - 2 * y[row])

    left_out = {"row left out": lambda row: Change(X, y, ones - unit[row], 0.0, -1.0)}
    if y.dtype.kind == "f":
        return {"target + 0.1 sd": moved(0.1 * y.std()), "target + 1 sd": moved(y.std())} | left_out
    return (
        {"label moved by 0.1": shared, "label flipped": flipped} if y.max() == 1 else {}
    ) | left_out


def measure(name: str) -> Iterator[list[object]]:
    """The lines of one learner."""
    (X, y), model = LEARNERS[name][0](), LEARNERS[name][1]
    order = np.random.default_rng(0).permutation(len(y))
    n_train = min(N_TRAIN, len(y) - N_QUERIES)
    train, queries = order[:n_train], X[order[n_train : n_train + N_QUERIES]]
    X, y = X[train], y[train]
    fitted = fit(model, X, y, np.ones(n_train))
    try:
        explainer = axil.Explainer(fitted, X, y, n_threads=1)
    except axil.AxilError as error:
        yield [name, n_train, "", "", f"refused: {type(error).__name__}", *[""] * 4]
        return
    details = (
        explainer.verification.details
    )  # an exact smoother is verified by its predictions alone
    proof = [
        f"{details[part]:.1e}" if part in details else "" for part in ("newton_step", "damping")
    ]
    rows = np.random.default_rng(1).choice(n_train, N_CHANGED, replace=False)
    by_targets = by_output(explainer(queries).weights)
    if (
        explainer.kind == "exact"
    ):  # weights are one: the first-order effect of a deletion is minus the derivative
        by_weights = by_output(-explainer.removal(queries, method="first-order"))
    else:
        by_weights = by_output(explainer.jacobian.by_sample_weight(queries))
    before = scores(fitted, queries)
    ways = (
        (("on", "again") if model.solver == "lbfgs" else ("again",))
        if hasattr(model, "hidden_layer_sizes")
        else ("",)
    )
    for change, make in changes(X, y).items():
        for way in ways:
            exact, first = [], []
            for row in rows:
                to = make(int(row))
                refitted = fit(model, to.X, to.y, to.w, fitted if way == "on" else None)
                exact.append(scores(refitted, queries) - before)
                first.append(
                    to.by_target * by_targets[:, :, row] + to.by_weight * by_weights[:, :, row]
                )
            yield [name, n_train, *proof, change, way, *compare(np.array(exact), np.array(first))]


def by_output(derivatives: np.ndarray) -> np.ndarray:
    """Return derivatives of shape (n, N) or (n, K, N) as (K, n, N)."""
    n_queries, n_rows = derivatives.shape[0], derivatives.shape[-1]
    return derivatives.reshape(n_queries, -1, n_rows).swapaxes(0, 1)


def scores(model: Any, X: np.ndarray) -> np.ndarray:
    """(K, n): raw scores."""
    if hasattr(model, "decision_function"):
        return np.atleast_2d(model.decision_function(X).T)
    found = model.predict_proba(X)[:, 1] if hasattr(model, "classes_") else model.predict(X)
    if hasattr(model, "classes_"):
        return np.log(found / (1 - found))[None]
    return (
        np.log(found)[None]
        if isinstance(model, (PoissonRegressor, GammaRegressor))
        else found[None]
    )


def compare(exact: np.ndarray, first: np.ndarray) -> list[object]:
    """Of changes (changed rows, K, n)."""
    error = np.linalg.norm(exact - first) / np.linalg.norm(exact)
    slope = (exact * first).sum() / (first**2).sum()
    ranks = [rankdata(part, axis=0).reshape(len(part), -1) for part in (exact, first)]
    correlation = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(ranks[0].T, ranks[1].T)])
    return [f"{error:.2g}", f"{slope:.3f}", f"{correlation:.3f}"]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    warnings.simplefilter(
        "ignore"
    )  # of fits that could not be led further, and of derivatives that rest on them
    lines = [dict(zip(COLUMNS, line)) for name in LEARNERS for line in measure(name)]
    command = "python experiments/jacobian_fidelity_implicit.py"
    write_csv(
        "jacobian_fidelity_implicit", lines, command, ("axil", "scikit-learn", "numpy", "scipy")
    )


if __name__ == "__main__":
    main()

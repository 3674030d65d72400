"""How often intervals of 1.96 standard errors hold what they should, on simulated data.

    python experiments/coverage.py        # under a minute; writes experiments/results/coverage.csv

Two designs. "fixed": the model is fitted once, then the training targets are drawn again and go through its structure, as
standard errors assume. "refitted": the model is fitted again to each draw, so that the splits follow the noise too. The intervals
are asked for two things: the mean of the predictions over draws, and the true function, from which a smoother is biased away.
"""

from __future__ import annotations

import argparse
from itertools import product

import lightgbm as lgb
import numpy as np
from paper_setting import write_csv

import axil

N_TRAIN, N_QUERIES, SIGMA = 600, 60, 1.0
SETTINGS = {
    "objective": "regression",
    "num_leaves": 8,
    "learning_rate": 0.1,
    "min_data_in_leaf": 10,
    "num_threads": 2,
    "verbose": -1,
}
N_TREES = 60
COLUMNS = [
    "design",
    "noise",
    "sigma",
    "holds",
    "draws",
    "coverage",
    "mean_standard_error",
    "mean_sigma",
]


def truth(X: np.ndarray) -> np.ndarray:
    """The function behind the targets."""
    return 2 * X[:, 0] + 2 * np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3]


def noise_size(X: np.ndarray, noise: str) -> np.ndarray:
    """One size for all rows, or sizes from 0.4 to 1.6 that depend on a feature; the mean square is near SIGMA ** 2 in both."""
    return np.full(len(X), SIGMA) if noise == "one size" else SIGMA * (1.0 + 0.6 * X[:, 0])


def fit(X: np.ndarray, y: np.ndarray) -> axil.Explainer:
    model = lgb.train(SETTINGS, lgb.Dataset(X, y), N_TREES)
    return axil.Explainer(model, X, y)


def fixed(
    X: np.ndarray, Q: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, draws: int
) -> dict[str, np.ndarray]:
    """Predictions, standard errors and sigma of each draw through one structure, chosen with other targets."""
    explainer = fit(X, truth(X) + sizes * rng.normal(size=len(X)))
    K, weights = explainer.jacobian.matrix(), explainer(Q).weights
    freedom = np.trace((np.eye(len(K)) - K).T @ (np.eye(len(K)) - K))
    y = truth(X)[:, None] + sizes[:, None] * rng.normal(size=(len(X), draws))
    sigma = np.sqrt(np.square(y - K @ y).sum(axis=0) / freedom)
    norms = np.linalg.norm(weights, axis=1)
    return {
        "predictions": (weights @ y).T,
        "errors": np.outer(sigma, norms),
        "norms": norms,
        "sigma": sigma,
    }


def refitted(
    X: np.ndarray, Q: np.ndarray, sizes: np.ndarray, rng: np.random.Generator, draws: int
) -> dict[str, np.ndarray]:
    """The same, each draw with a model of its own."""
    predictions, errors, norms = [], [], []
    for _ in range(draws):
        explainer = fit(X, truth(X) + sizes * rng.normal(size=len(X)))
        predictions.append(explainer(Q).predictions)
        errors.append(explainer.diagnostics.standard_error(Q))
        norms.append(explainer.diagnostics.standard_error(Q, 1.0))
    sigma = np.array(errors)[:, 0] / np.array(norms)[:, 0]
    return {
        "predictions": np.array(predictions),
        "errors": np.array(errors),
        "norms": np.array(norms),
        "sigma": sigma,
    }


def measure(design: str, noise: str, draws: int) -> list[list[object]]:
    """A line for each way to know sigma and each thing to hold."""
    rng = np.random.default_rng(0)
    X, Q = rng.uniform(-1, 1, (N_TRAIN, 6)), rng.uniform(-1, 1, (N_QUERIES, 6))
    found = {"fixed": fixed, "refitted": refitted}[design](X, Q, noise_size(X, noise), rng, draws)
    sigmas = {"estimated": found["errors"]}
    if noise == "one size":
        sigmas["known"] = SIGMA * np.broadcast_to(found["norms"], found["errors"].shape)
    parts = {noise: np.full(len(Q), True)}
    if noise != "one size":
        parts |= {f"{noise}, below the mean": Q[:, 0] < 0, f"{noise}, above the mean": Q[:, 0] >= 0}
    goals = {"mean of predictions": found["predictions"].mean(axis=0), "true function": truth(Q)}
    lines: list[list[object]] = []
    for part, queries in parts.items():
        for (known, errors), (holds, goal) in product(sigmas.items(), goals.items()):
            inside = (np.abs(found["predictions"] - goal) <= 1.96 * errors)[:, queries]
            size = float(np.mean(found["sigma"])) if known == "estimated" else SIGMA
            measured = np.round([inside.mean(), errors[:, queries].mean(), size], 3)
            lines.append([design, part, known, holds, draws, *measured])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    arguments = parser.parse_args()
    lines = [
        dict(zip(COLUMNS, line))
        for design in ("fixed", "refitted")
        for noise in ("one size", "by a feature")
        for line in measure(design, noise, arguments.draws)
    ]
    command = f"python experiments/coverage.py --draws {arguments.draws}"
    write_csv("coverage", lines, command, ("axil", "lightgbm", "numpy", "scipy"))


if __name__ == "__main__":
    main()

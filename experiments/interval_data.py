"""Data sets that the form of intervals was chosen on: none of the paper's, so that a comparison on those tests the choice.

Friedman's functions with several kinds of noise, columns of scikit-learn's breast cancer and wine tables as targets, and four
tables that statsmodels comes with.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import lightgbm as lgb
import numpy as np
from sklearn import datasets

import axil
from axil.methods.intervals.local import Local, Surroundings, around
from axil.methods.intervals.training_errors import training_errors
from axil.methods.method import verified_model

MOST_ROWS, SEEDS = 3000, 3
MODELS = {
    "100 trees of 31 leaves": {"n_estimators": 100, "num_leaves": 31},
    "60 trees of 8 leaves": {"n_estimators": 60, "num_leaves": 8},
}


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, features and targets."""
    yield "friedman1", *datasets.make_friedman1(1500, noise=1.0, random_state=0)
    yield "friedman2", *datasets.make_friedman2(1500, noise=100.0, random_state=0)
    yield "friedman3", *datasets.make_friedman3(1500, noise=0.2, random_state=0)
    for seed, kind in enumerate(("by feature", "skewed", "heavy tails"), 1):
        X, y = datasets.make_friedman1(1500, random_state=seed)
        draws = np.random.default_rng(seed)
        if kind == "by feature":
            noise = draws.standard_normal(1500) * (0.3 + 3 * X[:, 3])
        elif kind == "skewed":
            noise = (draws.exponential(1, 1500) - 1) * (0.3 + 0.2 * y)
        else:
            noise = draws.standard_t(3, 1500) * (0.5 + X[:, 8])
        yield f"friedman1, {kind}", X, y + noise
    cells = datasets.load_breast_cancer(as_frame=True).data
    for target in ("worst concavity", "mean smoothness", "area error"):
        others = [
            name
            for name in cells.columns
            if not set(name.split())
            & {w for w in target.split() if w not in ("mean", "worst", "error")}
        ]
        yield f"cells, {target}", cells[others].to_numpy(), 100 * cells[target].to_numpy()
    wine = datasets.load_wine(as_frame=True).data
    yield "wine, proline", wine.drop(columns="proline").to_numpy(), wine["proline"].to_numpy()
    try:
        from statsmodels import datasets as more
    except ImportError:
        print("statsmodels is not installed: without its four tables")
        return
    for name, target in (
        ("randhie", "mdvis"),
        ("fair", "affairs"),
        ("anes96", "age"),
        ("star98", None),
    ):
        frame = getattr(more, name).load_pandas().data.dropna().select_dtypes("number")
        if target is None:
            passed, failed = frame.pop("NABOVE"), frame.pop("NBELOW")
            y = 100 * passed / (passed + failed)
        else:
            y = frame.pop(target)
        some = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
        yield name, frame.to_numpy(float)[some], y.to_numpy(float)[some]


@dataclass(frozen=True)
class Case:
    """One model of one split: 60 % of the rows to fit, 20 % to calibrate, 20 % to test."""

    name: str
    calibration: Local
    test: Local
    calibration_errors: np.ndarray
    test_errors: np.ndarray
    norms: np.ndarray  #: of the test rows' weights
    distances: (
        np.ndarray
    )  #: of the test rows to the nearest training row, features in standard deviations


def cases(method: str = "leaves") -> Iterator[Case]:
    """Every split and model, with errors nearby by this method of `Explainer.calibrate`."""
    warnings.simplefilter("ignore")
    for name, X, y in tables():
        for seed in range(SEEDS):
            order, n = np.random.default_rng(seed).permutation(len(y)), len(y)
            fitted, held, tested = np.split(order, [int(0.6 * n), int(0.8 * n)])
            for settings in MODELS.values():
                model = lgb.LGBMRegressor(**settings, verbose=-1, n_jobs=1).fit(
                    X[fitted], y[fitted]
                )
                yield _case(
                    name, axil.Explainer(model, X[fitted], y[fitted]), X, y, held, tested, method
                )
        print(name, flush=True)


def _case(
    name: str,
    explainer: axil.Explainer,
    X: np.ndarray,
    y: np.ndarray,
    held: np.ndarray,
    tested: np.ndarray,
    method: str,
) -> Case:
    proven = verified_model(explainer)
    errors, source = training_errors(proven, None, method)
    known = Surroundings.of(proven, [errors], source, method)
    calibration, test = (around(proven, known, proven.queries(X[rows])) for rows in (held, tested))
    train = np.asarray(proven.features)
    unit = train.std(axis=0) + 1e-12
    distances = [np.sqrt(np.square((row - train) / unit).sum(axis=1)).min() for row in X[tested]]
    return Case(
        name,
        calibration,
        test,
        y[held] - calibration.predictions[:, 0],
        y[tested] - test.predictions[:, 0],
        np.sqrt(np.square(explainer(X[tested]).weights).sum(axis=1)),
        np.array(distances),
    )

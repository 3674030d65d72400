"""Random survival models for the fuzzer, beside replays of their losses in plain loops."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import axil
from tests.contributions import survival_models
from tests.contributions.ranking_models import Case
from tests.fuzz.data import Array, Draw
from tests.fuzz.judge import Wrong

Options: TypeAlias = dict[str, tuple[object, ...]]
CLOSE = 3e-4  # of the scores: the replays have no float32
XGBOOST: Options = {
    "max_leaves": (3, 10),
    "max_depth": (1, 6),
    "gamma": (0.01,),
    "tree_method": ("approx",),
    "base_score": (0.7, 3.0),
    "min_child_weight": (0.01, 5.0),
}
CATBOOST: Options = {
    "grow_policy": ("Depthwise", "Lossguide"),
    "leaf_estimation_method": ("Gradient",),
    "random_seed": (1, 7),
    "bootstrap_type": ("Bernoulli", "MVS"),
}


@dataclass
class SurvivalTrial:
    """A case of `survival_models`, with what trials of other kinds have."""

    case: Case
    lossy: bool = False
    offsets: Array | None = None
    base: float = 0.0

    @property
    def y(self) -> Array:
        """(N,): the times, or the finite bounds."""
        targets = np.ravel(self.case.labels)
        return targets[np.isfinite(targets)]

    @property
    def X_new(self) -> Array:
        """(n, features)."""
        return self.case.data.X_new

    def predict(self, rows: Array) -> Array:
        """Return the library's scores."""
        return survival_models.score_of(self.case.model, rows)


def make(draw: Draw, library: str) -> SurvivalTrial:
    """Return a fitted survival model of a library.

    Far from the bounds of a time XGBoost's differences cancel, and plain loops make other scores
    than the library. Such models are void here; the verification compares them with the library.
    """
    trial = _fitted(draw, library)
    with np.errstate(all="ignore"):
        contributions = trial.case.replay()
    scores = trial.predict(trial.X_new)
    size = np.abs(contributions).sum(axis=1).max() + np.abs(scores).max()
    error = np.abs(trial.case.start + contributions.sum(axis=1) - scores).max()
    if not error <= CLOSE / 3 * size:
        raise ArithmeticError("the plain loops make other scores than the library")
    return trial


def _fitted(draw: Draw, library: str) -> SurvivalTrial:
    """Return a fitted survival model of a library."""
    distribution = None
    if library == "xgboost":
        distribution = draw.pick("distribution", None, "normal", "logistic", "extreme")
    spreads = (0.3, 1.0)  # further away what_if and without leave the plain loops behind too
    if distribution is None:
        spreads = (0.3, 1.0, 2.0)
    data = survival_models.times_and_rows(
        draw.seed(),
        draw.pick("rows", 20, 60, 150),
        draw.pick("spread", *spreads),
        draw.pick("step", 0.25, 1.0, 1e-3),
        draw.pick("censored", 0.0, 0.35, 0.8),
    )
    weights = draw.pick("weights", None, data.row_weights)
    if library == "catboost":
        l2 = draw.pick("l2", 0.5, 3.0, 20.0)
        settings = draw.some(CATBOOST, 0.25)
        return SurvivalTrial(survival_models.catboost_case(weights, l2, data, **settings))
    settings = draw.some(XGBOOST, 0.25)
    if distribution is None:
        return SurvivalTrial(survival_models.xgboost_case(weights, data, **settings))
    sigma = draw.pick("sigma", 1.0, 1.5, 2.0)
    kinds = draw.pick("kinds", (0.4, 0.3, 0.15, 0.15), (1.0, 0.0, 0.0, 0.0), (0.2, 0.0, 0.4, 0.4))
    case = survival_models.failure_time_case(distribution, sigma, weights, data, kinds, **settings)
    return SurvivalTrial(case)


def check(trial: SurvivalTrial, draw: Draw) -> None:
    """Compare contributions with the replay, and other times and rows with replays and refits."""
    warnings.simplefilter("ignore", axil.SplitsWarning)
    warnings.simplefilter("ignore", RuntimeWarning)  # of the plain loops, far from the bounds
    case = trial.case
    explainer = case.explainer()
    explanation = explainer(case.data.X_new)
    expected = case.replay()
    scores = trial.predict(case.data.X_new)
    size = np.abs(expected).sum(axis=1).max() + np.abs(scores).max()
    _compare("contributions", explanation.contributions, expected, CLOSE * size)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    _compare("sums of contributions", sums, scores, 2e-5 * size)
    _check_changes(case, explainer, draw, size)


def _check_changes(case: Case, explainer: axil.Explainer, draw: Draw, size: float) -> None:
    """Compare `what_if` and `without` with replays, and see that wrong times change something."""
    rng = draw.rng
    row = int(rng.integers(len(case.labels)))
    times = survival_models.with_censored(case.labels, row)
    if case.labels.ndim == 1 and not (times > 0).any():
        return
    before = case.replay(own=True)
    expected = case.replay(times, own=True) - before
    table = explainer.what_if(case.data.X_new, {row: times[row]})
    difference = table["change"].to_numpy() - expected
    _compare("what_if", difference, difference.mean(), CLOSE * size)  # the start may move as well
    refitted = explainer.refit(targets={row: times[row]})(case.data.X_new).predictions
    _compare("refit", refitted, table["after"].to_numpy(), CLOSE * size)
    dropped = rng.choice(len(case.labels), 3, replace=False)
    is_present = np.ones(len(case.labels), dtype=bool)
    is_present[dropped] = False
    if case.labels.ndim == 1 and not (case.labels[is_present] > 0).any():
        return
    expected = case.replay(is_present=is_present, own=True) - before
    change = explainer.without(case.data.X_new, dropped.tolist())["change"].to_numpy()
    difference = change - expected
    _compare("without", difference, difference.mean(), CLOSE * size)
    try:
        wrong = case.explainer(y_train=times)
    except axil.AxilError:
        return
    moved = case.replay(times, own=True) - wrong(case.data.X_new).predictions
    if np.ptp(moved) > max(1e-3 * size, 1e-9):
        raise Wrong(f"the time of row {row} passed as censored, and makes another model")


def _compare(quantity: str, values: Array, expected: Array | float, allowed: float) -> None:
    """Raise if values differ by more than is allowed."""
    error = np.abs(values - expected).max()
    if error > max(allowed, 1e-9):
        raise Wrong(f"{quantity} are {error:.1e} off, {allowed:.1e} allowed")

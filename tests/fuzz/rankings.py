"""Random ranking models for the fuzzer, beside replays of their losses in plain loops."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import axil
from tests.contributions import ranking_models
from tests.fuzz.data import Array, Draw
from tests.fuzz.judge import Wrong

TURNED = 0.05  # of the scores: how far a tie that rounding turns moves them, between two fits
Options: TypeAlias = dict[str, tuple[object, ...]]
CLOSE = 3e-4  # the replays have no tables of sigmoids and no float32 sums
# Boosting that adds scores up in another order, where ranks may turn on the rounding.
LIGHTGBM: Options = {
    "num_leaves": (2, 4, 15, 31),
    "min_child_samples": (1, 3, 10),
    "lambdarank_truncation_level": (1, 2, 5, 100),
    "lambdarank_norm": (False,),
    "sigmoid": (0.5, 2.0),
    "min_child_weight": (1e-6, 0.1),
}
XGBOOST: Options = {
    "lambdarank_num_pair_per_sample": (1, 2, 5, 50),
    "lambdarank_normalization": (False,),
    "lambdarank_pair_method": ("mean", "mean"),
    "max_leaves": (3, 10),
    "gamma": (0.01,),
    "tree_method": ("approx",),
}
CATBOOST: Options = {
    "grow_policy": ("Depthwise", "Lossguide"),
    "boosting_type": ("Ordered",),
    "random_seed": (1, 7),
    "leaf_estimation_method": ("Gradient",),
    "bootstrap_type": ("Bernoulli", "MVS"),
}


@dataclass
class RankingTrial:
    """A case of `ranking_models`, with what trials of other kinds have."""

    case: ranking_models.Case
    lossy: bool = False
    offsets: Array | None = None
    base: float = 0.0

    @property
    def y(self) -> Array:
        """(N,)."""
        return self.case.labels

    @property
    def X_new(self) -> Array:
        """(n, features)."""
        return self.case.data.X_new

    def predict(self, rows: Array) -> Array:
        """Return the library's scores."""
        return self.case.model.predict(rows)


def make(draw: Draw, library: str) -> RankingTrial:
    """Return a fitted ranking model of a library."""
    data = ranking_models.groups_and_rows(
        draw.seed(),
        draw.pick("rows", 20, 60, 150),
        draw.pick("sizes", (1, 2, 5, 9, 17), (3,), (2, 60), (1, 1, 4)),
        draw.pick("labels", 5, 2, 3),
    )
    weights = draw.pick("weights", None, data.group_weights[data.group], data.row_weights)
    l2 = draw.pick("l2", 0.0, 1.0, 20.0)
    if library == "lightgbm":
        objective = draw.pick("objective", "lambdarank", "lambdarank", "rank_xendcg")
        gains = draw.pick("gains", None, None, [0.0, 1.0, 1.5, 5.0, 20.0])
        settings = draw.some(LIGHTGBM, 0.3)
        case = ranking_models.lightgbm_case(objective, weights, l2, gains, data, **settings)
    elif library == "xgboost":
        objective = draw.pick("objective", "rank:ndcg", "rank:pairwise", "rank:map")
        if weights is not None:
            weights = data.group_weights
        settings = draw.some(XGBOOST, 0.25)
        case = ranking_models.xgboost_case(objective, weights, l2, data, **settings)
    else:
        loss = draw.pick("loss", "QueryRMSE", "PairLogit")
        settings = draw.some(CATBOOST, 0.25)
        case = ranking_models.catboost_case(loss, weights, l2, data, **settings)
    return RankingTrial(case)


def check(trial: RankingTrial, draw: Draw) -> None:
    """Compare contributions with the replay, and other groups and labels with refits."""
    warnings.simplefilter("ignore", axil.SplitsWarning)
    case = trial.case
    explainer = case.explainer()
    explanation = explainer(case.data.X_new)
    expected = case.replay()
    size = np.abs(expected).sum(axis=1).max() + np.abs(case.scores()).max()
    error = np.abs(explanation.contributions - expected).max()
    if error > CLOSE * size and size > 1e-6:
        raise Wrong(f"contributions are {error / size:.1e} of their size off")
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    if np.abs(sums - case.scores()).max() > max(2e-5 * size, 1e-9):
        raise Wrong("contributions do not add up to the library's scores")
    _check_changes(case, explainer, draw, size)


def _check_changes(
    case: ranking_models.Case, explainer: axil.Explainer, draw: Draw, size: float
) -> None:
    """Compare `without` and `what_if` with refits, and see that wrong data change something."""
    rng = draw.rng
    ranked = {"lambdarank", "rank:ndcg", "rank:map", "rank:pairwise"}
    tolerance = CLOSE
    if ranked & set(map(str, draw.chosen.values())):
        tolerance = TURNED
    group = case.data.group
    dropped = np.flatnonzero(group == rng.integers(len(case.data.sizes)))
    if len(dropped) < len(group):
        after = explainer.without(case.data.X_new, dropped.tolist())["after"].to_numpy()
        if not case.draws:
            refitted = explainer.refit(drop=dropped.tolist())(case.data.X_new).predictions
            _compare("without", after, refitted, tolerance * size)
    row = int(rng.integers(len(group)))
    label = float(rng.choice(np.unique(case.labels)))
    after = explainer.what_if(case.data.X_new, {row: label})["after"].to_numpy()
    refitted = explainer.refit(targets={row: label})(case.data.X_new).predictions
    _compare("what_if", after, refitted, tolerance * size)
    labels = case.labels.copy()
    labels[row] = label
    try:
        wrong = case.explainer(y_train=labels)
    except axil.AxilError:
        return
    replayed = case.replay(labels, own=True)
    predictions = wrong(case.data.X_new).predictions
    if np.abs(replayed - predictions).max() > max(1e-3 * size, 1e-9):
        raise Wrong(f"label {label} of row {row} passed, and makes another model")


def _compare(method: str, after: Array, refitted: Array, allowed: float) -> None:
    error = np.abs(after - refitted).max()
    if error > max(allowed, 1e-9):
        raise Wrong(f"{method} and refit are {error:.1e} apart, {allowed:.1e} allowed")

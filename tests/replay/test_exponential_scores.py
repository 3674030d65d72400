"""The walk through a fit in the core, beside the same walk in NumPy."""

import catboost
import lightgbm as lgb
import numpy as np
import pytest

from axil import Explainer
from axil.methods.method import verified_model
from axil.replay import exponential_scores
from axil.replay.gradient_walk import GradientWalk
from axil.replay.newton_steps import StepSearch
from axil.trees.losses import Logistic

SETTINGS = {
    "binary": {"objective": "binary"},
    "weighted": {"objective": "binary", "scale_pos_weight": 2.0, "sigmoid": 0.7},
    "classes": {"objective": "multiclass", "num_class": 3},
}
OTHER = {
    "bagged": {"objective": "binary", "bagging_fraction": 0.6, "bagging_freq": 1},
    "goss": {"objective": "binary", "data_sample_strategy": "goss"},
    "dart": {"objective": "binary", "boosting": "dart"},
}
STEPS = {  # by CatBoost
    "halved": {"leaf_estimation_iterations": 10, "l2_leaf_reg": 0.5},
    "few": {"leaf_estimation_iterations": 3},
    "of each class": {"leaf_estimation_iterations": 4, "loss_function": "MultiClassOneVsAll"},
    "along gradients": {"leaf_estimation_iterations": 4, "leaf_estimation_method": "Gradient"},
}


def walked(settings, monkeypatch, in_core):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(300, 4)), rng.uniform(0.5, 2.0, 300)
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    if {"MultiClassOneVsAll", "multiclass"} & set(settings.values()):
        y += X[:, 1] > 1
    given = None if "bagging_fraction" in settings else weights
    if "objective" in settings:
        common = {"num_leaves": 6, "verbose": -1, "num_threads": 1, "deterministic": True}
        model = lgb.train(common | settings, lgb.Dataset(X, y, weight=given), 8)
    else:
        common = {
            "n_estimators": 20,
            "depth": 3,
            "verbose": 0,
            "thread_count": 1,
            "allow_writing_files": False,
        }
        model = catboost.CatBoostClassifier(**common | settings).fit(X, y, sample_weight=given)
    found = []
    own = GradientWalk._exponential_scores

    def states(self):
        found.append(own(self) if in_core else None)
        return found[-1]

    monkeypatch.setattr(GradientWalk, "_exponential_scores", states)
    return verified_model(Explainer(model, X, y, sample_weight=given)).boosting.walked, found


def assert_same(ours, theirs, atol):
    np.testing.assert_allclose(
        ours.score, theirs.score, rtol=0, atol=1e-13
    )  # few trees of values of about one
    assert np.array_equal(ours.scales, theirs.scales)
    for mine, other in zip(ours.steps, theirs.steps, strict=True):
        for part in ("value", "by_g", "by_h", "share"):  # sums of 300 gradients, in another order
            np.testing.assert_allclose(
                getattr(mine, part), getattr(other, part), rtol=1e-11, atol=atol
            )


@pytest.mark.parametrize("settings", [*SETTINGS.values(), *STEPS.values()], ids=[*SETTINGS, *STEPS])
def test_the_core_walks_as_numpy_does(settings, monkeypatch):
    with monkeypatch.context() as patch:
        ours, states = walked(settings, patch, True)
    theirs, _ = walked(settings, monkeypatch, False)
    assert all(each is not None for each in states)
    assert_same(ours, theirs, 1e-13)


def test_halved_steps_are_among_those_that_the_core_takes(monkeypatch):
    ours, _ = walked(STEPS["halved"], monkeypatch, True)
    assert ours.scales.min() < 1


def test_a_small_value_that_rounding_moves_is_reached_by_whole_steps(monkeypatch):
    """A probability of 1 - 1e-5 is rounded beside one, ten times over: no other ways need to be tried."""
    y, score, w = np.ones((1, 1)), np.full((1, 1), 11.5), np.ones(1)
    total = np.zeros(1)
    for _ in range(10):
        total += StepSearch(Logistic(), y, score, w, 3.0, total)._step(total)
    assert 1e-5 < total[0] < 1e-4
    tried = []
    step = StepSearch._step
    monkeypatch.setattr(
        StepSearch, "_step", lambda self, total: tried.append(total) or step(self, total)
    )
    assert StepSearch(Logistic(), y, score, w, 3.0, total + 1e-16).way(10) == (True, [1.0] * 10)
    assert len(tried) == 10


def test_steps_too_long_for_their_exponential_are_taken_by_numpy(monkeypatch):
    """Scores reached so far are kept: their logarithms are those of the states."""
    with monkeypatch.context() as patch:
        ours, _ = walked(STEPS["few"], patch, True)
    monkeypatch.setattr(
        exponential_scores, "FARTHEST", 0.8 * max(np.abs(step.value).max() for step in ours.steps)
    )
    monkeypatch.setattr("axil.replay.gradient_walk.FARTHEST", np.inf)
    left = []
    scores = exponential_scores.ExponentialScores.scores
    monkeypatch.setattr(
        exponential_scores.ExponentialScores,
        "scores",
        lambda self, rows: left.append(rows) or scores(self, rows),
    )
    theirs, _ = walked(STEPS["few"], monkeypatch, True)
    assert left == [slice(None)]
    assert_same(ours, theirs, 1e-13)


@pytest.mark.parametrize("name", OTHER)
def test_draws_that_may_need_gradients_and_dropped_trees_are_left_to_numpy(name, monkeypatch):
    _, states = walked(OTHER[name], monkeypatch, True)
    assert states == [None]

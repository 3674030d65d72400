"""Survival models of every library with a replay of their gradients in plain loops."""

from functools import cache

import catboost as cb
import numpy as np
import xgboost as xgb

from tests.contributions.ranking_models import (
    CAT,
    XGB,
    Case,
    RankingData,
    leaves_and_values_of_catboost,
    leaves_and_values_of_xgboost,
)

N = 120
N_NEW = 8


def times_and_rows(seed=0):
    """Return rows with times, negative where censored, many of them tied."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N + N_NEW, 4))
    spread = 0.8 * rows[:, 0] + 0.4 * rows[:, 1] * rows[:, 2] + 0.6 * rng.normal(size=len(rows))
    times = np.ceil(np.exp(spread) * 4) / 4
    signed = np.where(rng.random(len(rows)) < 0.35, -times, times)[:N]
    weights = np.float32(rng.uniform(0.3, 3, N)).astype(float)
    return RankingData(rows[:N], signed, np.array([N]), weights[:1], weights, rows[N:])


DATA = times_and_rows()


def cox_xgboost(scores, times, weights):
    """Return g and h (N,): rows of the same or a later time are at risk, events add up in order."""
    g = np.zeros(len(scores))
    h = np.zeros(len(scores))
    first = 0.0
    second = 0.0
    for row in np.argsort(np.abs(times), kind="stable"):
        if times[row] > 0:
            at_risk = np.exp(scores[np.abs(times) >= np.abs(times[row])]).sum()
            first += 1 / at_risk
            second += 1 / at_risk**2
        e = np.exp(scores[row])
        g[row] = weights[row] * (e * first - (times[row] > 0))
        h[row] = weights[row] * (e * first - e**2 * second)
    return g, h


def cox_catboost(scores, times, weights, gradient_steps=False):
    """Return g and h (N,): the rows before an event are not at risk; weights are in neither."""
    g = np.zeros(len(scores))
    h = np.zeros(len(scores))
    first = 0.0
    second = 0.0
    order = np.argsort(np.abs(times), kind="stable")
    for place, row in enumerate(order):
        if times[row] > 0:
            at_risk = np.exp(scores[order[place:]]).sum()
            first += 1 / at_risk
            second += 1 / at_risk**2
        e = np.exp(scores[row])
        g[row] = e * first - (times[row] > 0)
        h[row] = e * first - e**2 * second
        if gradient_steps:
            h[row] = weights[row]
    return g, h


def of_present(gradients, weights):
    """Return gradients of the rows that are there, as `Case.gradients` gives them."""

    def bound(times, is_present):
        def at_scores(scores):
            g = np.zeros(N)
            h = np.zeros(N)
            present_rows = [values[is_present] for values in (scores, times, weights)]
            g[is_present], h[is_present] = gradients(*present_rows)
            return g, h

        return at_scores

    return bound


def xgboost_case(weights=None, data=DATA, **settings):
    """Return a model of survival:cox."""
    model = xgb.XGBRegressor(objective="survival:cox", reg_lambda=1.0, **XGB, **settings)
    model.fit(data.X, data.labels, sample_weight=weights)
    row_weights = weights
    if weights is None:
        row_weights = np.ones(N)
    leaves, values, base = leaves_and_values_of_xgboost(model)
    return Case(
        model,
        data.labels,
        data,
        {"sample_weight": weights},
        of_present(cox_xgboost, row_weights),
        XGB["learning_rate"],
        1.0,
        leaves,
        values,
        start=np.log(base),
        precision=np.float32,
    )


def catboost_case(weights=None, l2=3.0, data=DATA, **settings):
    """Return a model of Cox."""
    model = cb.CatBoost({**CAT, **settings, "loss_function": "Cox", "l2_leaf_reg": l2})
    model.fit(cb.Pool(data.X, data.labels, weight=weights))
    row_weights = weights
    if weights is None:
        row_weights = np.ones(N)
    takes_gradient_steps = settings.get("leaf_estimation_method") == "Gradient"

    def gradients(scores, times, weights):
        return cox_catboost(scores, times, weights, takes_gradient_steps)

    leaves, values = leaves_and_values_of_catboost(model)
    return Case(
        model,
        data.labels,
        data,
        {"sample_weight": weights},
        of_present(gradients, row_weights),
        CAT["learning_rate"],
        lambda is_present: l2 * row_weights[is_present].mean(),
        leaves,
        values,
    )


_MAKERS = {
    "survival:cox": xgboost_case,
    "survival:cox weights": lambda: xgboost_case(DATA.row_weights),
    "survival:cox base_score": lambda: xgboost_case(base_score=2.0),
}
_OF_CATBOOST = {
    "Cox": catboost_case,
    "Cox weights": lambda: catboost_case(DATA.row_weights, l2=0.5),
    "Cox gradient steps": lambda: catboost_case(
        DATA.row_weights, leaf_estimation_method="Gradient", grow_policy="Depthwise"
    ),
}
HAS_COX = tuple(int(part) for part in cb.__version__.split(".")) >= (1, 2, 10)
if HAS_COX:
    _MAKERS |= _OF_CATBOOST
CASES = {name: cache(make) for name, make in _MAKERS.items()}

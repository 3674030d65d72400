"""Survival models of every library with a replay of their gradients in plain loops."""

from functools import cache

import catboost as cb
import numpy as np
import xgboost as xgb
from scipy import stats

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


def times_and_rows(seed=0, n_rows=N, spread=1.0, step=0.25, censored=0.35):
    """Return rows with times in whole steps, negative where censored; coarse steps make ties."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows + N_NEW, 4))
    effects = 0.8 * rows[:, 0] + 0.4 * rows[:, 1] * rows[:, 2] + 0.6 * rng.normal(size=len(rows))
    times = np.ceil(np.exp(spread * effects) / step) * step
    signed = np.where(rng.random(len(rows)) < censored, -times, times)[:n_rows]
    signed = np.float32(signed).astype(float)
    weights = np.float32(rng.uniform(0.3, 3, n_rows)).astype(float)
    return RankingData(
        rows[:n_rows], signed, np.array([n_rows]), weights[:1], weights, rows[n_rows:]
    )


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


DENSITIES = {"normal": stats.norm, "logistic": stats.logistic, "extreme": stats.gumbel_l}
LOG_SLOPES = {  # the derivatives of the logarithms of the densities
    "normal": lambda z: -z,
    "logistic": lambda z: 1 - 2 * stats.logistic.cdf(z),
    "extreme": lambda z: 1 - np.exp(z),
}
LOG_CURVATURES = {  # minus the second derivatives of the logarithms of the densities
    "normal": np.ones_like,
    "logistic": lambda z: 2 * stats.logistic.pdf(z),
    "extreme": np.exp,
}


KINDS = (0.4, 0.3, 0.15, 0.15)  # shares of events, censored rows, upper bounds and intervals


def times_between(data, kinds=KINDS, seed=7):
    """Return bounds (N, 2) of events, censored rows, upper bounds alone and intervals."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, len(data.labels), p=kinds)
    times = np.abs(data.labels)
    lower = np.select([kind == 2, kind == 3], [0.0, 0.8 * times], times)
    upper = np.select([kind == 1, kind == 3], [np.inf, 1.3 * times], times)
    return np.float32(np.stack([lower, upper], axis=1)).astype(float)


def failure_time(scores, bounds, weights, distribution, sigma):
    """Return g and h (N,) of minus the logarithm of the likelihood of survival:aft."""
    density = DENSITIES[distribution]
    g = np.zeros(len(scores))
    h = np.zeros(len(scores))
    for row, (lower, upper) in enumerate(bounds):
        with np.errstate(divide="ignore"):
            z_lower, z_upper = (np.log([lower, upper]) - scores[row]) / sigma
        if lower == upper:
            g[row] = LOG_SLOPES[distribution](z_lower) / sigma
            h[row] = LOG_CURVATURES[distribution](z_lower) / sigma**2
            continue
        probability = density.cdf(z_upper) - density.cdf(z_lower)
        ends = [(sign, z) for sign, z in ((-1, z_lower), (1, z_upper)) if np.isfinite(z)]
        slope = sum(sign * density.pdf(z) for sign, z in ends)
        curvature = sum(sign * density.pdf(z) * LOG_SLOPES[distribution](z) for sign, z in ends)
        g[row] = slope / probability / sigma
        h[row] = ((slope / probability) ** 2 - curvature / probability) / sigma**2
    return weights * np.clip(g, -15, 15), weights * np.clip(h, 1e-16, 15)


def of_present(gradients, weights):
    """Return gradients of the rows that are there, as `Case.gradients` gives them."""

    def bound(times, is_present):
        def at_scores(scores):
            g = np.zeros(len(scores))
            h = np.zeros(len(scores))
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
        row_weights = np.ones(len(data.X))
    leaves, values, base = leaves_and_values_of_xgboost(model.get_booster())
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
        row_weights = np.ones(len(data.X))
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


def matrix_of_times(rows, bounds, weights=None):
    """Return the DMatrix of rows whose times lie between bounds (N, 2)."""
    matrix = xgb.DMatrix(rows, weight=weights)
    matrix.set_float_info("label_lower_bound", bounds[:, 0])
    matrix.set_float_info("label_upper_bound", bounds[:, 1])
    return matrix


def failure_time_case(
    distribution="normal", sigma=1.0, weights=None, data=DATA, kinds=KINDS, **settings
):
    """Return a booster of survival:aft."""
    bounds = times_between(data, kinds)
    sigma = float(np.float32(sigma))
    parameters = {name: value for name, value in XGB.items() if name != "n_estimators"}
    parameters |= {
        "objective": "survival:aft",
        "aft_loss_distribution": distribution,
        "aft_loss_distribution_scale": sigma,
        "reg_lambda": 1.0,
        **settings,
    }
    matrix = matrix_of_times(data.X, bounds, weights)
    model = xgb.train(parameters, matrix, XGB["n_estimators"])
    row_weights = weights
    if weights is None:
        row_weights = np.ones(len(data.X))

    def gradients(scores, bounds, weights):
        return failure_time(scores, bounds, weights, distribution, sigma)

    leaves, values, base = leaves_and_values_of_xgboost(model)
    return Case(
        model,
        bounds,
        data,
        {"sample_weight": weights},
        of_present(gradients, row_weights),
        XGB["learning_rate"],
        1.0,
        leaves,
        values,
        start=np.log(base),
        precision=np.float32,
    )


_MAKERS = {
    "survival:cox": xgboost_case,
    "survival:cox weights": lambda: xgboost_case(DATA.row_weights),
    "survival:cox base_score": lambda: xgboost_case(base_score=2.0),
    "survival:aft": failure_time_case,
    "survival:aft logistic": lambda: failure_time_case("logistic", 0.7, DATA.row_weights),
    "survival:aft extreme": lambda: failure_time_case("extreme", 1.3, base_score=2.0),
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


def score_of(model, rows):
    """Return the library's own logarithms of hazards or times."""
    if isinstance(model, xgb.XGBModel):
        return model.predict(rows, output_margin=True)
    if isinstance(model, xgb.Booster):
        return model.predict(xgb.DMatrix(rows), output_margin=True)
    return model.predict(rows)


def with_censored(labels, row):
    """Return targets in which the time of a row is censored."""
    changed = labels.copy()
    if labels.ndim == 2:
        changed[row] = (max(labels[row, 0], 0.1), np.inf)
    else:
        changed[row] = -np.abs(labels[row])
    return changed

"""Survival models: contributions and refits, compared with replays in plain loops."""

import warnings

import catboost as cb
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

import axil
from tests.contributions.survival_models import (
    CASES,
    DATA,
    HAS_COX,
    N,
    catboost_case,
    matrix_of_times,
    score_of,
    times_between,
    with_censored,
    xgboost_case,
)

X_NEW = DATA.X_new
CLOSE = 1e-4  # of the scores: the replays have no float32


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


def first_event(case):
    """Return the position of a row whose time is of an event."""
    labels = case.labels
    if labels.ndim == 2:
        return int(np.flatnonzero(labels[:, 0] == labels[:, 1])[0])
    return int(np.flatnonzero(labels > 0)[0])


def as_events(labels):
    """Return targets without censored rows."""
    if labels.ndim == 1:
        return np.abs(labels)
    lower, upper = labels.T
    return np.stack([lower, np.where(np.isinf(upper), lower, upper)], axis=1)


def test_contributions_are_those_of_the_replay(case):
    explanation = case.explainer()(X_NEW)
    expected = case.replay()
    size = np.abs(expected).sum(axis=1).max()
    np.testing.assert_allclose(explanation.contributions, expected, rtol=0, atol=CLOSE * size)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    scores = score_of(case.model, X_NEW)
    np.testing.assert_allclose(sums, scores, rtol=0, atol=1e-5 * size)
    assert axil.supports(case.model).kind == "additive"


def test_changes_of_times_and_rows(case):
    explainer = case.explainer()
    size = np.abs(score_of(case.model, X_NEW)).max()
    starts = case.start  # that of the refits moves in XGBoost, with the scores of all rows alike
    row = first_event(case)
    times = with_censored(case.labels, row)
    expected = case.replay(times, own=True) - case.replay(own=True)
    changed = explainer.what_if(X_NEW, {row: times[row]})
    difference = changed["change"].to_numpy() - expected
    assert np.ptp(difference) < CLOSE * size, starts
    refitted = explainer.refit(targets={row: times[row]})(X_NEW).predictions
    np.testing.assert_allclose(refitted, changed["after"], atol=1e-5 * size)

    is_present = np.ones(N, dtype=bool)
    is_present[[1, 5, 8]] = False
    expected = case.replay(is_present=is_present, own=True) - case.replay(own=True)
    without = explainer.without(X_NEW, [1, 5, 8])
    difference = without["change"].to_numpy() - expected
    assert np.ptp(difference) < CLOSE * size
    refitted = explainer.refit(drop=[1, 5, 8])(X_NEW).predictions
    np.testing.assert_allclose(refitted, without["after"], atol=1e-5 * size)


def test_wrong_times_are_noticed(case):
    times = with_censored(case.labels, first_event(case))
    other_order = case.labels[::-1].copy()
    for wrong in (times, other_order, as_events(case.labels)):
        with pytest.raises(axil.ExactnessError):
            case.explainer(y_train=wrong)
    zeros = case.labels.copy()
    zeros[2] = 0.0
    with pytest.raises(axil.InputError, match=r"times of 0|bounds 0 and 0"):
        case.explainer(y_train=zeros)
    with pytest.raises(axil.InputError, match="group is for ranking models"):
        case.explainer(group=[N])
    with pytest.raises(axil.UnsupportedQuestionError):
        _ = case.explainer()(X_NEW).weights


def test_files_and_other_methods(case, tmp_path):
    explainer = case.explainer()
    assert len(explainer.top(X_NEW[:2], k=3)) == 6
    assert len(explainer.similar(X_NEW[:2], k=3)) == 6
    explainer.save(tmp_path / "survival.axil")
    loaded = axil.load(tmp_path / "survival.axil", case.model)
    np.testing.assert_array_equal(loaded(X_NEW).contributions, explainer(X_NEW).contributions)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (xgboost_case, {"subsample": 0.6}),
        (xgboost_case, {"reg_alpha": 0.1, "max_delta_step": 0.3}),
        (catboost_case, {"leaf_estimation_iterations": 10}),
        (catboost_case, {"model_shrink_rate": 0.1}),
        (catboost_case, {"monotone_constraints": [1, 0, 0, 0]}),
    ],
)
def test_settings(make, settings):
    if make is catboost_case and not HAS_COX:
        pytest.skip("its derivatives are others before 1.2.10")
    case = make(DATA.row_weights, **settings)
    explanation = case.explainer()(X_NEW)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    np.testing.assert_allclose(sums, score_of(case.model, X_NEW), atol=1e-5)


@pytest.mark.skipif(HAS_COX, reason="it is explained")
def test_older_versions_of_cox_are_refused():
    case = catboost_case()
    with pytest.raises(axil.UnsupportedModelError, match="Cox of"):
        case.explainer()


@pytest.mark.skipif(not HAS_COX, reason="its derivatives are others before 1.2.10")
def test_more_rows_than_catboost_takes_together_are_refused():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(501, 2))
    times = np.exp(rows[:, 0])
    model = cb.CatBoost({"loss_function": "Cox", "iterations": 2, "verbose": False})
    model.fit(cb.Pool(rows, times))
    with pytest.raises(axil.UnsupportedModelError, match="Cox on 501 rows"):
        axil.Explainer(model, rows, times)


def records(labels):
    """Return the events and censored rows of targets as records, as scikit-survival has them."""
    dtype = [("died", "?"), ("days", "f8")]
    return np.array([(time > 0, abs(time)) for time in labels], dtype=dtype)


@pytest.mark.parametrize("case_name", [name for name in CASES if name in ("Cox", "survival:cox")])
def test_records_are_signed_times(case_name):
    case = CASES[case_name]()
    expected = case.explainer()(X_NEW).contributions
    as_records = records(case.labels)
    frame = pd.DataFrame({"days": as_records["days"], "died": as_records["died"]})
    for targets in (as_records, frame):
        explainer = case.explainer(y_train=targets)
        np.testing.assert_array_equal(explainer(X_NEW).contributions, expected)
        np.testing.assert_array_equal(explainer.targets, case.labels)
        added = (DATA.X[-2:], targets[-2:])  # the last rows, as ties keep the order of the rows
        again = explainer.refit(drop=[N - 2, N - 1], add=added)(X_NEW).predictions
        np.testing.assert_allclose(again, explainer.refit()(X_NEW).predictions, atol=1e-4)
    as_records["days"][3] = -1.0
    with pytest.raises(axil.InputError, match="time -1 at position 3, beside a column of events"):
        case.explainer(y_train=as_records)


def test_events_and_censored_rows_of_bounds():
    signed_times = np.where(np.arange(N) % 3 == 0, -1.0, 1.0) * np.abs(DATA.labels)
    bounds = np.abs(signed_times)[:, None] * [1.0, 1.0]
    bounds[signed_times < 0, 1] = np.inf
    parameters = {"objective": "survival:aft", "max_depth": 3, "nthread": 1}
    model = xgb.train(parameters, matrix_of_times(DATA.X, bounds), 5)
    explainer = axil.Explainer(model, DATA.X, bounds)
    expected = explainer(X_NEW).contributions
    frame = pd.DataFrame({"at least": bounds[:, 0], "at most": bounds[:, 1]})
    for targets in (signed_times, records(signed_times), frame):
        other = axil.Explainer(model, DATA.X, targets)
        np.testing.assert_array_equal(other(X_NEW).contributions, expected)
        np.testing.assert_array_equal(other.targets, bounds)
        changed = other.what_if(X_NEW, {4: (2.0, np.inf)})
        refitted = other.refit(targets={4: (2.0, np.inf)})(X_NEW).predictions
        np.testing.assert_allclose(refitted, changed["after"], atol=1e-5)
        again = other.refit(drop=[0], add=(DATA.X[:1], targets[:1]))(X_NEW).predictions
        np.testing.assert_allclose(again, other.refit()(X_NEW).predictions, atol=1e-5)
    shown_targets = explainer.top(X_NEW[:1], k=N).sort_values("row")["target"]
    np.testing.assert_allclose(shown_targets, signed_times)
    wrong_bounds = [(-1.0, 2.0), (3.0, 2.0), (np.inf, np.inf), (np.nan, 1.0)]
    for wrong in wrong_bounds:
        targets = bounds.copy()
        targets[5] = wrong
        with pytest.raises(axil.InputError, match="at position 5"):
            axil.Explainer(model, DATA.X, targets)
    with pytest.raises(axil.InputError, match=r"shape \(120, 3\); expected \(120, 2\) or"):
        axil.Explainer(model, DATA.X, np.ones((N, 3)))
    with pytest.raises(axil.UnsupportedModelError, match="bounds of times"):
        axil.Explainer(model, da.from_array(DATA.X), da.from_array(bounds))


def test_dropped_trees_of_failure_times_are_refused():
    bounds = times_between(DATA)
    parameters = {"objective": "survival:aft", "booster": "dart", "rate_drop": 0.5, "seed": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # XGBoost's, of dart
        model = xgb.train(parameters, matrix_of_times(DATA.X, bounds), 5)
    with pytest.raises(axil.UnsupportedModelError, match="dart with survival:aft"):
        axil.Explainer(model, DATA.X, bounds)


@pytest.mark.parametrize("distribution", ["normal", "logistic", "extreme"])
@pytest.mark.parametrize(
    "settings",
    [
        {"aft_loss_distribution_scale": 0.05},  # most rows are far from their scores
        {"num_parallel_tree": 3, "subsample": 0.7},
        {"reg_alpha": 0.1, "max_delta_step": 0.3},
        {"monotone_constraints": "(1,0,0,0)", "base_score": 3.0},
    ],
)
def test_settings_of_failure_times(distribution, settings):
    bounds = times_between(DATA) ** np.array([[4.0, 4.0]])
    parameters = {"objective": "survival:aft", "aft_loss_distribution": distribution, "nthread": 1}
    matrix = matrix_of_times(DATA.X, bounds, DATA.row_weights)
    model = xgb.train({**parameters, "max_depth": 3, **settings}, matrix, 15)
    explainer = axil.Explainer(model, DATA.X, bounds, sample_weight=DATA.row_weights)
    explanation = explainer(X_NEW)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    scores = model.predict(xgb.DMatrix(X_NEW), output_margin=True)
    np.testing.assert_allclose(sums, scores, atol=1e-5 * np.abs(scores).max())
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, DATA.X, as_events(bounds), sample_weight=DATA.row_weights)

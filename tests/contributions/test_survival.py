"""Survival models: contributions and refits, compared with replays in plain loops."""

import catboost as cb
import numpy as np
import pytest
import xgboost as xgb

import axil
from tests.contributions.survival_models import CASES, DATA, HAS_COX, N, catboost_case, xgboost_case

X_NEW = DATA.X_new
CLOSE = 1e-4  # of the scores: the replays have no float32


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


def score_of(case, rows):
    """Return the library's own logarithms of hazards."""
    if isinstance(case.model, xgb.XGBModel):
        return case.model.predict(rows, output_margin=True)
    return case.model.predict(rows)


def test_contributions_are_those_of_the_replay(case):
    explanation = case.explainer()(X_NEW)
    expected = case.replay()
    size = np.abs(expected).sum(axis=1).max()
    np.testing.assert_allclose(explanation.contributions, expected, rtol=0, atol=CLOSE * size)
    sums = explanation.base_values + explanation.contributions.sum(axis=1)
    scores = score_of(case, X_NEW)
    np.testing.assert_allclose(sums, scores, rtol=0, atol=1e-5 * size)
    assert axil.supports(case.model).kind == "additive"


def test_changes_of_times_and_rows(case):
    explainer = case.explainer()
    size = np.abs(score_of(case, X_NEW)).max()
    starts = case.start  # that of the refits moves in XGBoost, with the scores of all rows alike
    times = case.labels.copy()
    times[3] = -times[3]
    expected = case.replay(times, own=True) - case.replay(own=True)
    changed = explainer.what_if(X_NEW, {3: times[3]})
    difference = changed["change"].to_numpy() - expected
    assert np.ptp(difference) < CLOSE * size, starts
    refitted = explainer.refit(targets={3: times[3]})(X_NEW).predictions
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
    times = case.labels.copy()
    times[0] = -times[0]
    other_order = case.labels[::-1].copy()
    for wrong in (times, other_order, np.abs(case.labels)):
        with pytest.raises(axil.ExactnessError):
            case.explainer(y_train=wrong)
    with pytest.raises(axil.InputError, match="times of 0"):
        case.explainer(y_train=np.where(np.arange(N) == 2, 0.0, case.labels))
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
    np.testing.assert_allclose(sums, score_of(case, X_NEW), atol=1e-5)


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

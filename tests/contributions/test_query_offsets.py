"""Offsets of the rows explained, such as logarithms of exposures: compared with the libraries' own predictions with them."""

from functools import cache

import catboost
import numpy as np
import pytest
import xgboost
from lightgbm import LGBMRegressor
from sklearn.linear_model import LogisticRegression

import axil
from axil.methods.folds import fold_numbers
from axil.methods.method import verified_model
from tests.contributions.boosting_models import (
    BINARY,
    CAT,
    CLASSES,
    COUNTS,
    LGB,
    OFFSETS,
    X_NEW,
    XGB,
    N,
    X,
    case_of,
)
from tests.contributions.fixed_structure import differences, replay

ASKED = X_NEW[:3]
SHIFT = np.log([0.1, 0.5, 2.0])
GROUPS = np.where(np.arange(N) % 3, "north", "south")
SAME = {"rtol": 0, "atol": 2e-6}  # XGBoost and CatBoost predict in float32


@cache
def lightgbm_poisson(output="raw"):
    model = LGBMRegressor(**LGB, objective="poisson").fit(X, COUNTS, init_score=OFFSETS)
    scores = model.predict(ASKED, raw_score=True) + SHIFT
    return (
        axil.Explainer(model, X, COUNTS, init_score=OFFSETS, output=output),
        SHIFT,
        scores,
        np.exp(scores),
    )


@cache
def xgboost_poisson(output="raw"):
    model = xgboost.XGBRegressor(**XGB, objective="count:poisson").fit(
        X, COUNTS, base_margin=OFFSETS
    )
    explainer = axil.Explainer(model, X, COUNTS, init_score=OFFSETS, output=output)
    return (
        explainer,
        SHIFT,
        *(model.predict(ASKED, output_margin=raw, base_margin=SHIFT) for raw in (True, False)),
    )


@cache
def xgboost_classes(output="raw"):
    """Whose fit had no offsets, so that its scores started from base_score."""
    shift = SHIFT[:, None] * [1.0, 0.0, -2.0]
    model = xgboost.XGBClassifier(**XGB).fit(X, CLASSES)
    scores = model.predict(ASKED, output_margin=True, base_margin=shift)
    explainer = axil.Explainer(model, X, CLASSES, output=output)
    return explainer, shift, scores, model.predict_proba(ASKED, base_margin=shift)


@cache
def catboost_poisson(output="raw"):
    model = catboost.CatBoostRegressor(**CAT, loss_function="Poisson").fit(
        catboost.Pool(X, COUNTS, baseline=OFFSETS)
    )
    asked = catboost.Pool(ASKED, baseline=SHIFT)
    predictions = [
        model.predict(asked, prediction_type=kind) for kind in ("RawFormulaVal", "Exponent")
    ]
    return axil.Explainer(model, X, COUNTS, init_score=OFFSETS, output=output), SHIFT, *predictions


MODELS = [lightgbm_poisson, xgboost_poisson, xgboost_classes, catboost_poisson]


@pytest.mark.parametrize("made", MODELS)
def test_scores_are_those_of_the_library_with_offsets(made):
    explainer, shift, scores, means = made()
    explanation = explainer(ASKED, init_score=shift)
    np.testing.assert_allclose(explanation.predictions, scores, **SAME)
    np.testing.assert_allclose(
        explanation.intercepts + explanation.contributions.sum(axis=-1), scores, **SAME
    )
    np.testing.assert_array_equal(explanation.contributions, explainer(ASKED).contributions)
    np.testing.assert_allclose(explanation.probabilities, means, **SAME)
    np.testing.assert_array_equal(
        [each.predictions for each in explainer.iter(ASKED, 1, init_score=shift)],
        explanation.predictions[:, None],
    )
    top = explainer.top(ASKED, 2, init_score=shift)
    np.testing.assert_allclose(top["score"][::2], np.ravel(scores), **SAME)
    column = {"mean": "prediction"}.get(explanation.meaning, explanation.meaning)
    np.testing.assert_allclose(top[column][::2], np.ravel(means), **SAME)
    np.testing.assert_allclose(
        explainer.similar(ASKED, 2, init_score=shift)["score"], top["score"], **SAME
    )
    grouped = (
        explainer.group(ASKED, GROUPS, init_score=shift)["contribution"]
        .to_numpy()
        .reshape(-1, 2)
        .sum(axis=1)
    )
    np.testing.assert_allclose(grouped + np.ravel(explanation.intercepts), np.ravel(scores), **SAME)


@pytest.mark.parametrize("made", MODELS)
def test_questions_start_from_scores_with_offsets(made):
    explainer, shift, scores, means = made()
    for table in (
        explainer.without(ASKED, [5, 9], init_score=shift),
        explainer.what_if(ASKED, {5: 1, 9: 2}, init_score=shift),
    ):
        np.testing.assert_allclose(table["before"], np.ravel(scores), **SAME)
        assert (table["change"] != 0).any()
        meaning = next(name for name in table if name.endswith(" before"))
        np.testing.assert_allclose(table[meaning], np.ravel(means), **SAME)


@pytest.mark.parametrize("made", [lightgbm_poisson, xgboost_poisson])
def test_means_move_with_targets_at_the_scores_with_offsets(made):
    """exp(s)' = exp(s) s', where exp(s) is the library's own mean with the offset; so too of explanations in part."""
    explainer, shift, _, means = made()
    expected = means[:, None] * explainer(ASKED, init_score=shift).weights
    found = made("probability")[0](ASKED, init_score=shift)
    np.testing.assert_allclose(found.weights, expected, rtol=1e-5)
    np.testing.assert_allclose(found[1:].weights, expected[1:], rtol=1e-5)
    by_weight = made("probability")[0].jacobian.by_sample_weight(ASKED, init_score=shift)
    np.testing.assert_allclose(
        by_weight,
        means[:, None] * explainer.jacobian.by_sample_weight(ASKED, init_score=shift),
        rtol=1e-5,
    )


def test_a_base_that_offsets_replace_moves_no_score():
    """Derivatives, and other targets, against an independent replay whose queries start from 0; see test_boosting."""
    case, rows = case_of("xgboost binary"), [0, 3, 17]
    explainer = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
    more = {"rate": 0.25, **case.more, "query_start": "zero"}
    w = np.float32(case.w).astype(float)

    def scores(column):
        return replay(
            case.leaves(X), case.leaves(ASKED), column[:, None], w, case.loss, case.start, **more
        )[:, 0]

    y = case.targets[:, 0]
    expected = differences(scores, y, rows, 1e-5)
    for found in (
        explainer(ASKED, init_score=SHIFT).weights,
        explainer.jacobian.derivatives(ASKED, init_score=SHIFT),
    ):
        assert np.abs(found[:, rows].T - expected).max() < 1e-6 * np.abs(found).max()
    assert (
        np.abs(explainer(ASKED).weights[:, rows].T - expected).max() > 1e-3 * np.abs(expected).max()
    )
    other = np.where(np.arange(N) == 3, 1 - y, y)
    table = explainer.what_if(ASKED, {3: other[3]}, init_score=SHIFT)
    np.testing.assert_allclose(table["change"], scores(other) - scores(y), **SAME)


def test_influence_is_the_gradient_of_the_deviance_with_offsets():
    """mean - y by every score, and by the chain rule by every target."""
    explainer, shift, _, means = lightgbm_poisson()
    y = np.array([0.0, 3.0, 1.0])
    expected = (means - y) @ explainer(ASKED, init_score=shift).weights / 3
    influences = explainer.influence(ASKED, y, init_score=shift).sort_values("row")["gradient"]
    np.testing.assert_allclose(influences, expected, rtol=1e-9, atol=1e-12)


def test_the_page_shows_means_with_offsets():
    explainer, shift, *_ = lightgbm_poisson()
    page = explainer.to_html(ASKED, init_score=shift)
    assert page == explainer(ASKED, init_score=shift).to_html()
    assert page != explainer.to_html(ASKED)


def test_models_without_offsets_of_rows():
    explainer = axil.Explainer(LogisticRegression().fit(X, BINARY), X, BINARY)
    for ask in (explainer, explainer.top, explainer.to_html, explainer.jacobian.by_sample_weight):
        with pytest.raises(axil.InputError, match=r"init_score is not taken here.* not boosted"):
            ask(ASKED, init_score=SHIFT)
    with pytest.raises(axil.InputError, match="init_score has shape"):
        lightgbm_poisson()[0](ASKED, init_score=SHIFT[:2])


def test_offsets_are_copied():
    explainer, given = lightgbm_poisson("probability")[0], SHIFT.copy()
    explanation = explainer(ASKED, init_score=given)
    given[:] = 7.0
    np.testing.assert_array_equal(explanation.weights, explainer(ASKED, init_score=SHIFT).weights)


def test_the_label_issues_expects_what_the_library_predicts_with_the_offsets_of_the_fit():
    """By folds; XGBoost's base_margin takes the place of base_score here too."""
    explainer = xgboost_poisson()[0]
    rows = np.flatnonzero(fold_numbers(verified_model(explainer)) == 0)
    scores = explainer.without(X[rows], rows, init_score=OFFSETS[rows])["after"]
    expected = explainer.find_label_issues().set_index("row")["expected_label"][rows]
    np.testing.assert_allclose(expected, np.exp(scores), rtol=1e-6)  # XGBoost predicts in float32


def test_without_a_whole_leaf_rows_are_at_their_offsets():
    """The one tree then adds nothing to the scores of rows in that leaf, and the fit has no base."""
    rng = np.random.default_rng(0)
    X, offsets = rng.normal(size=(60, 2)), rng.normal(size=60)
    y = rng.poisson(np.exp(0.3 * X[:, 0] + offsets))
    model = LGBMRegressor(
        objective="poisson", n_estimators=1, num_leaves=3, min_child_samples=5, verbose=-1, n_jobs=1
    )
    model.fit(X, y, init_score=offsets)
    leaf = model.predict(X, pred_leaf=True).ravel()
    rows = np.flatnonzero(leaf == leaf[0])
    explainer = axil.Explainer(model, X, y, init_score=offsets)
    table = explainer.without(X[rows[:4]], rows, init_score=offsets[rows[:4]])
    np.testing.assert_allclose(table["after"], offsets[rows[:4]], rtol=1e-9)

"""Contributions: an account of every score that adds up, against a loop over leaves that shares no code with axil."""

import copy
import json
import pickle
from dataclasses import replace
from functools import cache

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil.contributions.contributions import Contributions
from axil.machine.memory import Budget, Limits
from axil.methods.method import verified_model
from tests.adapters.xgboost_models import VERSION
from tests.contributions import sampled_models
from tests.contributions.boosting_models import (
    BINARY,
    CASES,
    CLASSES,
    LGB,
    SCORE,
    WEIGHTS,
    X_NEW,
    XGB,
    N,
    X,
    along_gradients,
    case_of,
    explain,
)
from tests.contributions.fixed_structure import first, pushes, sigmoid
from tests.contributions.more_models import MODELS, kernel, soft, weighted_logistic

ONE = Limits(1, Budget(None))  # thread
EVERY = [*CASES, *MODELS]
SAMPLED = [name for name in sampled_models.MODELS if name not in EVERY]


@cache
def fitted(name):
    if name in SAMPLED:
        return sampled_models.model_of(name)
    return case_of(name) if name in CASES else MODELS[name]().fit()


@cache
def explainer_of(name, threads=1):
    case = fitted(name)
    return explain(case, n_threads=threads)


def brute_force(case, explainer):
    """(n, K, N): from the library's own leaves and, where the start is no plain formula, its own first score."""
    targets = case.targets
    if (
        targets.shape[1] == 1
        and case.loss == "logistic"
        and case.library == "xgboost"
        and case.start == "own"
    ):
        targets = np.asarray(case.y, dtype=float)[:, None]
    w = case.w if case.library == "sklearn" else np.float32(case.w).astype(float)
    more = {"rate": 0.25, **case.more}
    if case.offsets is not None:
        more["offsets"] = case.offsets[:, None]
    counted = w * more["factors"] if more.pop("start_factors", False) else w
    start = case.start
    base = (
        np.atleast_1d(explainer(X_NEW[:1]).intercepts[0])
        if start == "own"
        else first(start, case.loss, counted @ targets / counted.sum())
    )
    more.pop("query_start", None)
    leaves = [case.leaves(rows) for rows in (X, X_NEW)]
    if (
        leaves[0].shape[1] * leaves[0].shape[2] < 6 * targets.shape[1]
    ):  # leaves that all outputs share
        leaves = [
            np.repeat(found.reshape(len(found), -1, 1), targets.shape[1], axis=2)
            for found in leaves
        ]
    return np.swapaxes(pushes(*leaves, targets, w, case.loss, base, **more), 0, 1)


@pytest.mark.parametrize("name", EVERY)
def test_pushes_add_up_and_are_what_the_rows_put_into_their_leaves(name):
    """The loop runs freely in float64 and the libraries fit in float32, which moves gradients by some 1e-7 of the largest."""
    case, explainer = fitted(name), explainer_of(name)
    scores = case.scores(X_NEW)
    found, starts = (
        explainer.jacobian.gradient_contributions(X_NEW).reshape(*scores.shape, N),
        explainer(X_NEW).intercepts.reshape(scores.shape),
    )
    assert np.abs(starts + found.sum(axis=2) - scores).max() <= 1e-6 * np.abs(scores).max()
    expected = brute_force(case, explainer)
    assert np.abs(found - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(found).max() > 0


@pytest.mark.parametrize(
    "name", [name for name in [*EVERY, *SAMPLED] if fitted(name).loss != "squared"]
)
def test_supports_says_the_kind_of_the_explainer(name):
    assert axil.supports(fitted(name).model).kind == explainer_of(name).kind


@pytest.mark.parametrize(
    "name", ["lightgbm binary", "lightgbm multiclass", "catboost multiclass", "lightgbm custom"]
)
def test_blocks_and_threads_change_nothing(name, monkeypatch):
    whole = explainer_of(name).jacobian.gradient_contributions(X)
    monkeypatch.setattr("axil.contributions.contributions.BLOCK_ENTRIES", 1)  # 64 rows at a time
    assert np.array_equal(explainer_of(name).jacobian.gradient_contributions(X), whole)
    assert np.array_equal(explainer_of(name, 3).jacobian.gradient_contributions(X), whole)
    assert explainer_of(name).jacobian.gradient_contributions(X[:0]).shape == (0, *whole.shape[1:])


def mutations(case):
    """Data that differ in one place from those of the fit."""
    y, other = case.y, int(np.flatnonzero(case.y != case.y[0])[0])
    flipped, swapped = y.copy(), y.copy()
    flipped[0] = y[other]
    swapped[[0, other]] = y[[other, 0]]
    weights = case.weights
    yield "flipped", X, flipped, weights
    yield "swapped", X, swapped, weights
    yield "missing", X[:-1], y[:-1], None if weights is None else weights[:-1]


@pytest.mark.parametrize(
    "name",
    ["lightgbm binary", "lightgbm fair", "lightgbm custom", "xgboost multiclass", "xgboost vector leaves", "xgboost custom",
     "xgboost pseudo-huber", "catboost multiclass", "catboost logcosh", "sklearn binary",
     "sklearn exponential", "sklearn hist poisson"],
)  # fmt: skip
def test_data_that_are_not_those_of_the_fit_are_caught(name):
    case = fitted(name)
    for what, rows, y, weights in mutations(case):
        try:
            axil.Explainer(case.model, rows, y, sample_weight=weights)
        except axil.ExactnessError:
            continue
        pytest.fail(what)


def native_logistic(scores, data):
    weight = data.get_weight()
    weight = 1.0 if weight is None or not len(weight) else weight
    p = sigmoid(scores)
    return weight * (p - data.get_label()), weight * p * (1 - p)


def native_softmax(scores, data):
    return soft(data.get_label(), scores)


TRAIN = {
    "num_leaves": 5,
    "min_data_in_leaf": 5,
    "learning_rate": 0.25,
    "verbose": -1,
    "num_threads": 1,
}
BOOST = {"eta": 0.25, "max_depth": 3, "nthread": 1}


def weighed(data):
    return {"data": X, "label": data, "weight": WEIGHTS}


BOOSTERS = {
    "lightgbm": lambda f: lgb.train(
        {**TRAIN, "objective": f}, lgb.Dataset(X, BINARY, weight=WEIGHTS), 6
    ),
    "xgboost": lambda f: xgb.train(BOOST, xgb.DMatrix(X, BINARY, weight=WEIGHTS), 6, obj=f),
}


@pytest.mark.parametrize("library", BOOSTERS)
def test_an_objective_of_your_own_is_asked_as_the_library_asks_it(library):
    booster = BOOSTERS[library](native_logistic)
    explainer = axil.Explainer(booster, X, BINARY, sample_weight=WEIGHTS, objective=native_logistic)
    raw = (
        booster.predict(X_NEW)
        if library == "lightgbm"
        else booster.predict(xgb.DMatrix(X_NEW), output_margin=True)
    )
    assert (
        np.abs(
            explainer(X_NEW).intercepts
            + explainer.jacobian.gradient_contributions(X_NEW).sum(axis=-1)
            - raw
        ).max()
        < 1e-6 * np.abs(raw).max()
    )
    with pytest.raises(axil.UnsupportedQuestionError, match="own objective"):
        explainer(X_NEW).weights  # noqa: B018

    def other(scores, data):
        g, h = native_logistic(scores, data)
        return 1.01 * g, h

    with pytest.raises(axil.ExactnessError):
        axil.Explainer(booster, X, BINARY, sample_weight=WEIGHTS, objective=other)
    with pytest.raises(axil.InputError, match="raised ZeroDivisionError"):
        axil.Explainer(
            booster, X, BINARY, sample_weight=WEIGHTS, objective=lambda scores, data: 1 / 0
        )
    with pytest.raises(axil.InputError, match="expected 120 numbers"):
        axil.Explainer(
            booster,
            X,
            BINARY,
            sample_weight=WEIGHTS,
            objective=lambda scores, data: (scores[1:], scores),
        )
    with pytest.raises(axil.InputError, match="expected the function"):
        axil.Explainer(booster, X, BINARY, sample_weight=WEIGHTS, objective="mse")


def test_an_objective_of_several_classes():
    booster = lgb.train(
        {**TRAIN, "objective": native_softmax, "num_class": 3}, lgb.Dataset(X, CLASSES), 6
    )
    other = xgb.train({**BOOST, "num_class": 3}, xgb.DMatrix(X, CLASSES), 6, obj=native_softmax)
    for model, raw in (
        (booster, booster.predict(X_NEW)),
        (other, other.predict(xgb.DMatrix(X_NEW), output_margin=True)),
    ):
        explainer = axil.Explainer(model, X, CLASSES, objective=native_softmax)
        assert np.allclose(
            explainer(X_NEW).intercepts
            + explainer.jacobian.gradient_contributions(X_NEW).sum(axis=-1),
            raw,
            atol=1e-6,
        )


@pytest.mark.parametrize(
    "named",
    ["reg:squarederror", "binary:logistic", "count:poisson", "reg:absoluteerror", "rank:ndcg"],
)
def test_an_objective_of_your_own_beside_the_name_of_another(named):
    """XGBoost then starts from the named one's base_score, through its link, and predicts by that link."""
    rows = xgb.DMatrix(X, BINARY, weight=None if named == "rank:ndcg" else WEIGHTS)
    weights = None if named == "rank:ndcg" else WEIGHTS
    booster = xgb.train({**BOOST, "objective": named}, rows, 6, obj=native_logistic)
    raw = booster.predict(xgb.DMatrix(X_NEW), output_margin=True)
    if named == "reg:absoluteerror" and VERSION < (3, 4):
        with pytest.raises(
            axil.UnsupportedModelError, match="replaced the steps of your function by percentiles"
        ):
            axil.Explainer(booster, X, BINARY, sample_weight=weights, objective=native_logistic)
        return
    explainer = axil.Explainer(booster, X, BINARY, sample_weight=weights, objective=native_logistic)
    sums = explainer(X_NEW).intercepts + explainer.jacobian.gradient_contributions(X_NEW).sum(
        axis=-1
    )
    assert np.abs(sums - raw).max() < 1e-6 * np.abs(raw).max()
    with pytest.raises(axil.ExactnessError, match="not the function of the fit"):
        axil.Explainer(booster, X, 1 - BINARY, sample_weight=weights, objective=native_logistic)


def test_an_estimator_knows_its_own_objective():
    weighted = xgb.XGBRegressor(**XGB, objective=weighted_logistic).fit(
        X, BINARY, sample_weight=WEIGHTS
    )
    found = axil.Explainer(
        weighted, X, BINARY, sample_weight=WEIGHTS
    ).jacobian.gradient_contributions(X_NEW)
    given = axil.Explainer(
        weighted, X, BINARY, sample_weight=WEIGHTS, objective=weighted_logistic
    ).jacobian.gradient_contributions(X_NEW)
    assert np.array_equal(found, given)
    coupled = lgb.LGBMRegressor(**LGB, objective=kernel).fit(
        X, SCORE
    )  # rows whose gradients depend on each other
    made = axil.Explainer(coupled, X, SCORE).jacobian.gradient_contributions(X_NEW)
    assert np.allclose(made.sum(axis=1), coupled.predict(X_NEW), atol=1e-9)


def test_an_objective_where_there_is_none_is_refused():
    with pytest.raises(axil.InputError, match=r"[Ll]eave it out"):
        axil.Explainer(fitted("lightgbm binary").model, X, BINARY, objective=native_logistic)
    with pytest.raises(axil.InputError, match=r"[Ll]eave it out"):
        axil.Explainer(fitted("xgboost binary").model, X, BINARY, objective=native_logistic)
    with pytest.raises(axil.InputError, match="only LightGBM and XGBoost"):
        axil.Explainer(fitted("sklearn binary").model, X, BINARY, objective=native_logistic)


@pytest.mark.parametrize(
    "name", ["catboost huber", "catboost mae by gradients", "xgboost pseudo-huber"]
)
def test_a_loss_without_derivatives_says_so(name):
    with pytest.raises(axil.UnsupportedQuestionError, match="add up to the score"):
        explainer_of(name).jacobian.by_sample_weight(X_NEW)


def test_squared_error_has_the_same_pushes_either_way():
    """Exact weights walk residuals, other losses gradients; L1 is in both."""
    for settings in ({}, {"reg_alpha": 1.5}, {"subsample": 0.6, "subsample_freq": 1}):
        model = lgb.LGBMRegressor(**LGB, **settings).fit(X, SCORE, sample_weight=WEIGHTS)
        exact = axil.Explainer(
            model, X, SCORE, sample_weight=WEIGHTS
        ).jacobian.gradient_contributions(X_NEW)
        found = along_gradients(model, X, SCORE, WEIGHTS).jacobian.gradient_contributions(X_NEW)
        assert (
            np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()
        )  # one of them takes the model's rounded leaves


def add_up(pushes, queries):
    """Compare the sums of all pushes with the scores, as every answer does."""
    made = sum(
        np.stack([block.sum(axis=0) for block in blocks], axis=1)
        for _, blocks in pushes.blocks(queries)
    )
    pushes.agree(pushes.base + made, queries)


@pytest.mark.parametrize("name", ["lightgbm binary", "catboost multiclass", "lightgbm custom"])
def test_an_account_that_does_not_add_up_raises_on_construction_and_on_use(name):
    """Rows that count a thousandth more than in the fit: the proof is not the replay of the leaves, which came before."""
    account = verified_model(explainer_of(name)).boosting.contributions
    walked = account.walked
    changes = {"weights": 1.001 * walked.weights}
    if walked.gradients is not None:  # with the weights in them
        changes = {"gradients": 1.001 * walked.gradients}
    wrong = Contributions(replace(walked, **changes), ONE)
    with pytest.raises(axil.ExactnessError, match="contributions in a leaf"):
        wrong.verify_sums()
    queries = verified_model(explainer_of(name)).queries(X_NEW).coordinates
    with pytest.raises(axil.ExactnessError, match="explained row"):
        add_up(wrong, queries)
    assert account.verify_sums() < 1e-12


def test_a_score_is_compared_with_its_own_terms():
    """Not with the largest score: beside one of 5e27, as in a fit that diverged, any other would pass for exact."""
    walked = verified_model(explainer_of("xgboost pseudo-huber")).boosting.contributions.walked
    far = np.zeros_like(walked.score)
    far[3] = 5e27
    wrong = Contributions(
        replace(walked, weights=1.01 * walked.weights, score=walked.score + far), ONE
    )
    with pytest.raises(
        axil.ExactnessError, match=r"training row \d+ .*diverged: .* up to 5\.0e\+27"
    ):
        wrong.verify_sums()
    with pytest.raises(axil.ExactnessError, match=r"explained row .*diverged"):
        add_up(
            wrong, verified_model(explainer_of("xgboost pseudo-huber")).queries(X_NEW).coordinates
        )


@pytest.mark.parametrize(
    "model", [lgb.LGBMClassifier(verbose=-1), xgb.XGBClassifier(), GradientBoostingClassifier()]
)
def test_scores_of_nothing_but_rounding(model):
    """No column says anything: every score is zero, or what sums of gradients leave over."""
    rows, classes = np.zeros((41, 2)), np.arange(41) % 2
    weights = np.where(classes, 1.0, 20 / 21) * 0.1
    model.set_params(n_estimators=5).fit(rows, classes, sample_weight=weights)
    explanation = axil.Explainer(model, rows, classes, sample_weight=weights)(rows[:2])
    assert np.abs(explanation.intercepts + explanation.contributions.sum(axis=-1)).max() < 1e-7


@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (HistGradientBoostingClassifier(max_iter=4), 2),
        (HistGradientBoostingClassifier(max_iter=4), 3),
        (GradientBoostingClassifier(n_estimators=4), 3),
    ],
)
def test_a_class_without_weight(model, classes):
    """The library cuts its share off just above zero before it takes the logarithm."""
    rows = np.random.default_rng(0).normal(size=(90, 2))
    labels = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0) * (classes - 2)
    for light in range(classes):
        weights = np.where(labels == light, 0.0, 1.0)
        model.fit(rows, labels, sample_weight=weights)
        explanation = axil.Explainer(model, rows, labels, sample_weight=weights)(rows[:9])
        made = explanation.intercepts + explanation.contributions.sum(axis=-1)
        scores = model.decision_function(rows[:9])
        np.testing.assert_allclose(made.reshape(scores.shape), scores, rtol=1e-6)


def test_scores_too_large_for_their_exponential_are_walked_plainly():
    walked = verified_model(explainer_of("lightgbm binary")).boosting.contributions.walked
    far = replace(walked, start=walked.start + 1e4, score=walked.score + 1e4)
    assert Contributions(walked, ONE)._exponent == -1
    assert Contributions(far, ONE)._exponent == 0
    assert np.isfinite(Contributions(far, ONE).factors(slice(0, N))[0]).all()
    plain = Contributions(walked, ONE)
    plain.__dict__["_exponent"] = 0.0
    assert np.allclose(
        plain.factors(slice(0, N))[0],
        Contributions(walked, ONE).factors(slice(0, N))[0],
        rtol=0,
        atol=1e-14,
    )


@pytest.mark.parametrize("name", [*EVERY, *SAMPLED])
def test_copies_of_explainers_and_explanations_give_the_same_bits(name):
    explainer = explainer_of(name)
    expected = explainer.jacobian.gradient_contributions(X_NEW)
    for again in (copy.deepcopy(explainer), pickle.loads(pickle.dumps(explainer))):
        assert np.array_equal(again.jacobian.gradient_contributions(X_NEW), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(explainer(X_NEW))).contributions, expected)


@pytest.mark.parametrize("outer", ["pipeline", "search", "search of pipelines"])
def test_copies_of_explainers_of_pipelines_and_searches_give_the_same_bits(outer):
    model = GradientBoostingClassifier(n_estimators=4, subsample=0.7, random_state=0)
    model = model if outer == "search" else make_pipeline(StandardScaler(), model)
    model = model if outer == "pipeline" else GridSearchCV(model, {}, cv=2)
    explainer = axil.Explainer(model.fit(X, CLASSES), X, CLASSES)
    for again in (copy.deepcopy(explainer), pickle.loads(pickle.dumps(explainer))):
        assert np.array_equal(
            again.jacobian.gradient_contributions(X_NEW),
            explainer.jacobian.gradient_contributions(X_NEW),
        )


@pytest.mark.parametrize(
    "settings", [{}, {"subsample": 0.6}, {"max_delta_step": 0.3}, {"reg_alpha": 0.02}]
)
def test_vector_leaves_with_single_classes_set_to_zero(settings):
    """XGBoost up to 3.3 does so where the class's own weight in the leaf is below min_child_weight, and keeps the others."""
    model = xgb.XGBClassifier(
        **{**XGB, "n_estimators": 16, **settings}, multi_strategy="multi_output_tree"
    )
    model.fit(X, CLASSES, sample_weight=WEIGHTS)
    explainer = axil.Explainer(model, X, CLASSES, sample_weight=WEIGHTS)
    walked = verified_model(explainer).boosting.walked
    if VERSION >= (3, 4):
        assert walked.zeroed is None or not walked.zeroed.any()
    else:
        assert (walked.zeroed.any(axis=1) & ~walked.zeroed.all(axis=1)).any()
    raw = model.predict(X_NEW, output_margin=True)
    assert (
        np.abs(
            explainer(X_NEW).intercepts
            + explainer.jacobian.gradient_contributions(X_NEW).sum(axis=-1)
            - raw
        ).max()
        < 1e-6 * np.abs(raw).max()
    )
    assert np.allclose(explainer.what_if(X_NEW, {})["change"], 0.0, rtol=0, atol=1e-15)
    flipped = CLASSES.copy()
    flipped[0] = (flipped[0] + 1) % 3
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, flipped, sample_weight=WEIGHTS)


def test_a_ranking_objective_of_your_own():
    """Pairs of rows of a group: gradients depend on other rows, and the function knows the groups."""
    groups, labels = np.repeat(np.arange(6), 20), CLASSES.astype(float)

    def pairs(scores, data):
        label, p = (
            data.get_label(),
            sigmoid(np.subtract.outer(scores, scores).T),
        )  # that the column is above the row
        above = np.greater.outer(label, label) & np.equal.outer(groups, groups)
        wrong, bend = np.where(above, p, 0.0), np.where(above, p * (1 - p), 0.0)
        return wrong.sum(axis=0) - wrong.sum(axis=1), np.maximum((bend + bend.T).sum(axis=1), 1e-6)

    for booster, raw in (
        (
            lgb.train({**TRAIN, "objective": pairs}, lgb.Dataset(X, labels), 6),
            lambda b: b.predict(X_NEW),
        ),
        (
            xgb.train(BOOST, xgb.DMatrix(X, labels), 6, obj=pairs),
            lambda b: b.predict(xgb.DMatrix(X_NEW)),
        ),
    ):
        explainer = axil.Explainer(booster, X, labels, objective=pairs)
        made = explainer(X_NEW).intercepts + explainer.jacobian.gradient_contributions(X_NEW).sum(
            axis=-1
        )
        assert np.abs(made - raw(booster)).max() < 1e-6 * np.abs(raw(booster)).max()


LABELS = np.stack([BINARY, X[:, 1] > 0.3, X[:, 2] > -1], axis=1).astype(int)


@pytest.mark.skipif(VERSION < (3, 1), reason="all labels start from one number")
@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_a_classifier_of_several_labels(strategy):
    """Its trees are those of classifiers of one label each, where each label has trees of its own."""
    model = xgb.XGBClassifier(**XGB, multi_strategy=strategy).fit(X, LABELS, sample_weight=WEIGHTS)
    explainer = axil.Explainer(model, X, LABELS, sample_weight=WEIGHTS)
    assert explainer.kind == "additive" == axil.supports(model).kind
    found, raw = explainer(X_NEW), model.predict(X_NEW, output_margin=True)
    pushed = explainer.jacobian.gradient_contributions(X_NEW)
    assert np.abs(found.intercepts + pushed.sum(axis=-1) - raw).max() < 1e-6 * np.abs(raw).max()
    np.testing.assert_allclose(found.probabilities, model.predict_proba(X_NEW), rtol=0, atol=1e-6)
    gone = [3, 40, 41]
    after = np.asarray(explainer.without(X_NEW, gone)["after"]).reshape(raw.shape)
    refitted = explainer.refit(drop=gone).model.predict(X_NEW, output_margin=True)
    assert np.abs(refitted - after).max() < 1e-6 * np.abs(raw).max()
    if strategy == "one_output_per_tree":
        for k in range(LABELS.shape[1]):
            single = xgb.XGBClassifier(**XGB).fit(X, LABELS[:, k], sample_weight=WEIGHTS)
            expected = axil.Explainer(
                single, X, LABELS[:, k], sample_weight=WEIGHTS
            ).jacobian.gradient_contributions(X_NEW)
            np.testing.assert_allclose(
                pushed[:, k], expected, rtol=0, atol=1e-6 * np.abs(expected).max()
            )
    flipped = LABELS.copy()
    flipped[0, 1] = 1 - flipped[0, 1]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, flipped, sample_weight=WEIGHTS)


@pytest.mark.parametrize(
    "name", ["xgboost binary", "xgboost multiclass", "xgboost vector leaves", "xgboost poisson"]
)
def test_the_weights_of_leaves_that_xgboost_recorded_are_compared(name):
    """A model whose leaf values are right and whose recorded sums of hessians are those of other rows or weights."""
    if name == "xgboost vector leaves" and VERSION < (3, 2):
        pytest.skip("such trees did not record them")
    case = fitted(name)
    assert "leaf hessians" in explainer_of(name).verification.compared
    booster = case.model.get_booster()
    document = json.loads(booster.save_raw("json"))
    part = document["learner"]["gradient_booster"]
    for tree in part.get("gbtree", part)["model"]["trees"]:
        tree["sum_hessian"] = [1.01 * sum_hessian for sum_hessian in tree.get("sum_hessian", [])]
    other = copy.copy(case.model)
    other._Booster = xgb.Booster(model_file=bytearray(json.dumps(document).encode()))
    other._Booster.load_config(booster.save_config())
    with pytest.raises(axil.ExactnessError, match="sum of hessians"):
        axil.Explainer(other, X, case.y, sample_weight=case.weights)

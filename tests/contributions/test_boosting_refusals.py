"""What boosting is not differentiated, by name, and what `supports` says of it."""

import catboost
import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.adapters.xgboost_models import VERSION
from tests.contributions.boosting_models import (
    BINARY,
    CASES,
    CAT,
    CLASSES,
    COUNTS,
    GB,
    LGB,
    SCORE,
    XGB,
    X,
    along_gradients,
    case_of,
)

LC, LR, XC, XR = lgb.LGBMClassifier, lgb.LGBMRegressor, xgb.XGBClassifier, xgb.XGBRegressor
CC, CR = catboost.CatBoostClassifier, catboost.CatBoostRegressor
NOISY = SCORE + np.random.default_rng(1).normal(0, 0.5, len(SCORE))
BAG = {"subsample": 0.7, "subsample_freq": 1}

REFUSED = [
    (LR(**LGB, objective="cross_entropy_lambda"), BINARY, "objective"),
    (LC(**LGB, use_quantized_grad=True), BINARY, "use_quantized_grad"),
    (LC(**LGB, pred_early_stop=True), BINARY, "pred_early_stop"),
    (LC(**LGB, pred_early_stop=True), CLASSES, "pred_early_stop"),
    (XC(**XGB, objective="binary:hinge"), BINARY, "objective"),
    (
        CR(**CAT, loss_function="Huber:delta=0.4", leaf_estimation_iterations=3),
        NOISY,
        "leaf_estimation_backtracking",
    ),
    (CC(**CAT, loss_function="Focal:focal_alpha=0.5;focal_gamma=1"), BINARY, "loss_function"),
    (CC(**CAT, model_shrink_rate=0.1, boost_from_average=True), BINARY, "model_shrink_rate"),
    (CC(**CAT, langevin=True), BINARY, "langevin"),
    (
        CC(
            **CAT,
            monotone_constraints=[1, 0, 0, 0],
            model_shrink_rate=0,
            leaf_estimation_iterations=3,
        ),
        BINARY,
        "leaf_estimation_iterations",
    ),
    (CC(**CAT, l2_leaf_reg=0), CLASSES, "l2_leaf_reg"),
    (
        GradientBoostingRegressor(**GB, loss="huber", subsample=0.5, n_iter_no_change=2),
        SCORE,
        "subsample",
    ),
    (
        GradientBoostingClassifier(**{**GB, "random_state": None}, subsample=0.5),
        BINARY,
        "random_state",
    ),
]
if VERSION >= (3, 2):  # before 3.2 only GPUs have it
    REFUSED.append(
        (XC(**XGB, sampling_method="gradient_based", subsample=0.5), BINARY, "sampling_method")
    )
if VERSION < (3, 4):  # which took steps along a gradient with a corner
    REFUSED.append(
        (XR(**XGB, objective="reg:absoluteerror", tree_method="exact"), SCORE, "objective")
    )


@pytest.mark.parametrize(("model", "y", "setting"), REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refused_by_name(model, y, setting):
    model.fit(X, y)
    with pytest.raises(axil.UnsupportedModelError) as caught:
        axil.Explainer(model, X, y)
    assert caught.value.setting == setting
    assert axil.supports(model).kind == "no"


BENT = [
    name for name in CASES if "l1 and clipped" in name
]  # squared error: exact with the active set fixed


@pytest.mark.parametrize("name", BENT)
def test_the_derivative_with_a_pattern_held_is_the_exact_weights(name):
    case = case_of(name)
    assert axil.supports(case.model).kind == "exact"
    exact = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)(X[:9])
    derivative = along_gradients(case.model, X, case.y, case.weights)(X[:9])
    np.testing.assert_allclose(
        derivative.weights, exact.weights, atol=1e-6
    )  # leaves in single precision


@pytest.mark.parametrize("name", [name for name in CASES if name not in BENT])
def test_models_of_other_losses_are_additive(name):
    case = case_of(name)
    assert axil.supports(case.model).kind == "additive"
    assert (
        axil.Explainer(
            case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
        ).kind
        == "additive"
    )


def test_only_predictions_that_can_stop_early_are_refused_for_it():
    stops = {"pred_early_stop": True, "pred_early_stop_freq": 1, "pred_early_stop_margin": 0.01}
    model = LC(**LGB, **stops).fit(X, BINARY)
    for taken, y in [
        (model.booster_, BINARY),
        (LC(**{**LGB, "pred_early_stop": False}).fit(X, BINARY), BINARY),
        (LR(**LGB, **stops, objective="poisson").fit(X, COUNTS), COUNTS),
        (LR(**LGB, **stops, objective="cross_entropy").fit(X, BINARY), BINARY),
    ]:
        explanation = axil.Explainer(taken, X, y)(X)
        np.testing.assert_allclose(
            explanation.predictions, taken.predict(X, raw_score=True), rtol=1e-9
        )
    assert (
        np.abs(model.predict(X, raw_score=True) - model.booster_.predict(X, raw_score=True)).max()
        > 0.01
    )


def test_rankings_that_draw_at_random_are_refused():
    model = catboost.CatBoostRanker(**CAT, loss_function="YetiRank")
    model.fit(X, CLASSES, group_id=np.repeat([0, 1], 60))
    with pytest.raises(axil.UnsupportedModelError, match="YetiRank"):
        axil.Explainer(model, X, CLASSES, group=[60, 60])
    assert axil.supports(model).kind == "no"


def test_custom_objectives_need_their_function():
    def squared(y, F):
        return F - y, np.ones_like(y)

    model = LR(**LGB, objective=squared).fit(X, SCORE)
    assert axil.supports(model).kind == "additive"
    assert axil.supports(model.booster_).kind == "no"
    with pytest.raises(axil.UnsupportedModelError, match="objective="):
        axil.Explainer(model.booster_, X, SCORE)
    for model in (LR(**LGB, objective=squared), XR(**XGB, objective=squared)):
        assert axil.Explainer(model.fit(X, SCORE), X, SCORE).kind == "additive"


def test_targets_outside_the_loss_are_refused():
    model = case_of("lightgbm gamma").model
    with pytest.raises(axil.InputError, match="above 0"):
        axil.Explainer(model, X, SCORE)
    booster = lgb.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1}, lgb.Dataset(X, BINARY), 2
    )
    with pytest.raises(axil.InputError, match="0 and 1"):
        axil.Explainer(booster, X, 2 * BINARY)


def test_offsets_where_there_are_none():
    with pytest.raises(axil.InputError, match="no offsets"):
        axil.Explainer(
            case_of("sklearn binary").model,
            X,
            case_of("sklearn binary").y,
            init_score=np.zeros(120),
        )


def test_pipelines_are_told_too():
    model = make_pipeline(StandardScaler(), GradientBoostingClassifier(**GB)).fit(X, BINARY)
    assert axil.supports(model).kind == "additive"


def test_a_single_class_moves_nothing():
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, np.ones(len(X), dtype=int))
    with pytest.raises(axil.UnsupportedModelError, match=r"classes_=\[1\]"):
        axil.Explainer(model, X, np.ones(len(X), dtype=int))

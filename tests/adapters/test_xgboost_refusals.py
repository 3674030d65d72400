"""What the XGBoost adapter refuses: by setting, value and broken condition, in memory and loaded."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from numpy.typing import NDArray

import axil
from axil.adapters import read
from axil.adapters.xgboost.refusals import REFUSALS
from axil.errors import UnsupportedModelError
from tests.adapters.common import check_refusal
from tests.adapters.xgboost_models import (
    CAT,
    OLD,
    booster,
    loaded,
    outputs,
    regressor,
    schedule,
    table,
    three,
    with_targets,
)

Array = NDArray[np.float64]

POSITIVE = with_targets(lambda y: np.abs(y) + 0.1)
SHARES = with_targets(lambda y: (y > 5).astype(float))
CLASSES = with_targets(lambda y: np.digitize(y, [4, 6]).astype(float))
VERSION = tuple(int(part) for part in xgb.__version__.split(".")[:2])

OBJECTIVES: dict[str, tuple[dict[str, Any], str]] = {
    "reg:squaredlogerror": ({"data": POSITIVE}, "(ii)"),
    "reg:pseudohubererror": ({}, "(ii)"),
    "reg:logistic": ({"data": SHARES}, "(i)"),
    "binary:logistic": ({"data": SHARES}, "(i)"),
    "binary:logitraw": ({"data": SHARES}, "(i)"),
    "binary:hinge": ({"data": SHARES}, "(ii)"),
    "multi:softmax": ({"data": CLASSES, "num_class": 3}, "(ii)"),
    "multi:softprob": ({"data": CLASSES, "num_class": 3}, "(ii)"),
    "count:poisson": ({"data": POSITIVE}, "(i)"),
    "reg:gamma": ({"data": POSITIVE}, "(i)"),
    "reg:tweedie": ({"data": POSITIVE}, "(i)"),
    "rank:ndcg": ({"data": CLASSES, "matrix": {"qid": np.zeros(400, dtype=int)}}, "(ii)"),
    "rank:pairwise": ({"data": CLASSES, "matrix": {"qid": np.zeros(400, dtype=int)}}, "(ii)"),
    "rank:map": ({"data": SHARES, "matrix": {"qid": np.zeros(400, dtype=int)}}, "(ii)"),
    "survival:cox": ({"data": POSITIVE}, "(ii)"),
    "survival:aft": (
        {
            "matrix": {"label_lower_bound": POSITIVE.y, "label_upper_bound": POSITIVE.y},
            "data": POSITIVE,
        },
        "(ii)",
    ),
}
REFUSED: dict[str, tuple[dict[str, Any], str, str, str | None]] = {
    **{
        name: ({"objective": name, **params}, "objective", name, condition)
        for name, (params, condition) in OBJECTIVES.items()
    },
    "gblinear": ({"booster": "gblinear"}, "booster", "gblinear", "(ii)"),
    "scale_pos_weight": ({"scale_pos_weight": 2.0}, "scale_pos_weight", "2", "(ii)"),
}
IN_MODEL = {"objective", "booster", "scale_pos_weight"}  # what a file keeps


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    params, setting, value, condition = REFUSED[name]
    case = booster(**{"n_trees": 3, "verbosity": 0, **params})
    check_refusal(case.model, setting, value, condition)
    check_refusal(pickle.loads(pickle.dumps(case.model)), setting, value, condition)
    if setting in IN_MODEL:
        check_refusal(loaded(case).model, setting, value, condition)


def test_log_loss_says_why_there_is_no_exact_answer() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"logit of a mean, .* is not linear in the targets"
    ):
        read(booster(SHARES, objective="binary:logistic", n_trees=2).model)


@pytest.mark.skipif(VERSION < (3, 2), reason="before 3.2 only GPUs have it")
def test_refuses_gradient_based_sampling() -> None:
    model = booster(sampling_method="gradient_based", subsample=0.5, n_trees=3).model
    check_refusal(model, "sampling_method", "gradient_based", "(ii)")
    read(booster(sampling_method="gradient_based", subsample=1.0, n_trees=3).model)


def test_refuses_classifier_and_ranker() -> None:
    data = table()
    quiet: dict[str, Any] = {"n_estimators": 2, "n_jobs": 1}
    check_refusal(
        xgb.XGBClassifier(**quiet).fit(data.X, data.y > 5), "objective", "binary:logistic", "(i)"
    )
    grades = np.digitize(data.y, [4, 6])
    check_refusal(
        xgb.XGBClassifier(**quiet).fit(data.X, grades), "objective", "multi:softprob", "(ii)"
    )
    ranker = xgb.XGBRanker(**quiet).fit(data.X, grades, qid=np.repeat([0, 1], 200))
    check_refusal(ranker, "objective", "rank:ndcg", "(ii)")
    odd = xgb.XGBClassifier(**quiet, objective="reg:squarederror").fit(data.X, data.y > 5)
    check_refusal(odd, "estimator", "XGBClassifier", None)


def test_refuses_custom_objectives() -> None:
    def doubled(y: Array, predictions: Array) -> tuple[Array, Array]:
        return predictions - y, np.full_like(y, 2.0)

    check_refusal(
        regressor(objective=doubled, n_estimators=2).model, "objective", "doubled", "(ii)"
    )


def test_refuses_trees_changed_after_the_fit() -> None:
    """As long as the booster knows of it; what `train` and files forget, the replay of the fit will notice."""
    case = booster(n_trees=3)
    rows = xgb.DMatrix(case.X, case.y + 1)
    case.model.set_param(
        {"process_type": "update", "updater": "refresh", "refresh_leaf": True, "verbosity": 0}
    )
    for i in range(3):
        case.model.update(rows, i)
    check_refusal(case.model, "updater", "refresh", "(ii)")


def test_refuses_loaded_models_whose_rows_are_lost() -> None:
    case = loaded(booster(subsample=0.5))
    check_refusal(case.model, "subsample", "1, but its trees saw different rows", None)
    case.model.set_param({"subsample": 0.5})
    read(case.model)


@pytest.mark.skipif(not OLD, reason="from 3.1 on each output has its own")
def test_refuses_one_base_for_all_outputs() -> None:
    check_refusal(booster(with_targets(three)).model, "base_score", "estimated", None)
    read(booster(with_targets(three), base_score=0.5).model)


@pytest.mark.parametrize("params", [{"max_depth": 1}, {"max_depth": 3, "reg_alpha": 1.0}])
def test_refuses_rates_that_clipped_leaves_do_not_show(params: dict[str, Any]) -> None:
    how = {"max_delta_step": 0.01, **params}
    case = booster(callbacks=schedule(), n_trees=3, **how)
    with pytest.raises(
        UnsupportedModelError, match=r"learning_rate=unknown for tree \d: .* max_delta_step clipped"
    ):
        axil.Explainer(case.model, case.X, case.y)
    case = booster(n_trees=3, **how)
    assert (
        axil.Explainer(case.model, case.X, case.y).verification is not None
    )  # one rate: nothing is unknown


@pytest.mark.parametrize(
    "params", [{"scale_pos_weight": 2.0}, {"objective": "reg:pseudohubererror"}, {"subsample": 0.5}]
)
def test_supports_says_what_an_explainer_says(params: dict[str, Any]) -> None:
    """Of a model whose rows are weighted by class, of another loss, and of a file that has lost its draws."""
    case = loaded(booster(n_trees=3, **params))
    told = axil.supports(case.model)
    if told.kind == "no":
        with pytest.raises(UnsupportedModelError) as refused:
            axil.Explainer(case.model, case.X, case.y)
        assert refused.value.setting == told.setting
    else:
        assert axil.Explainer(case.model, case.X, case.y).kind == told.kind


def test_a_file_without_its_constraints_says_what_keeps_them() -> None:
    """The advice works in Python and on the command line, which sets nothing on a model."""
    case = loaded(booster(n_trees=8, monotone_constraints="(1,-1,0,0,0,0,0,0)"), "json")
    with pytest.raises(axil.ExactnessError, match=r"Pickle the model.*--trust.*in Python"):
        axil.Explainer(case.model, case.X, case.y)


def test_settings_that_are_off_are_read() -> None:
    for params in (
        {"monotone_constraints": "(0,0)"},
        {"reg_alpha": 0.0, "max_delta_step": 0.0, "scale_pos_weight": 1.0},
        {"objective": "reg:squarederror", **CAT},
    ):
        assert read(booster(n_trees=2, **params).model) is not None


def test_refuses_constraints_on_trees_of_all_outputs() -> None:
    case = outputs(
        "multi_output_tree", n_trees=2
    )  # some versions fit them: the setting is what is looked at
    case.model.set_param({"monotone_constraints": "(1,0)"})
    check_refusal(case.model, "monotone_constraints", "(1,0) with multi_output_tree", None)


def test_every_refusal_says_what_to_do() -> None:
    for refusal in REFUSALS:
        assert refusal.reason[-1] != "."
        assert refusal.instead[-1] == "."


@pytest.mark.parametrize("gamma", [10.0, 30.0, 60.0])
def test_refuses_rates_that_single_leaves_do_not_show(gamma: float) -> None:
    """After a tree that confirms the data, a tree of one leaf has a rate of its own, which nothing else shows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = 5.0 * (X[:, 0] > 0) + 3.0 * (X[:, 1] > 0)
    schedule_of_rates = xgb.callback.LearningRateScheduler([0.9, 0.5, 0.3, 0.2])
    params = {"max_depth": 3, "gamma": gamma, "reg_lambda": 3.0, "base_score": 2.0}
    model = xgb.train(params, xgb.DMatrix(X, y), 4, callbacks=[schedule_of_rates])
    nodes = model.trees_to_dataframe()
    n_leaves = (nodes["Feature"] == "Leaf").groupby(nodes["Tree"]).sum()
    assert n_leaves.iloc[0] > 1
    assert n_leaves.iloc[-1] == 1
    with pytest.raises(
        UnsupportedModelError, match=r"learning_rate=unknown for tree \d: .* single leaf"
    ):
        axil.Explainer(model, X, y)

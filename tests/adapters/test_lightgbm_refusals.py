"""What the LightGBM adapter refuses: by setting, value and broken condition, in memory and loaded."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from numpy.typing import NDArray

from axil import Explainer
from axil.adapters import read
from axil.adapters.lightgbm.refusals import REFUSALS
from axil.errors import ExactnessError, UnsupportedModelError
from tests.adapters.common import check_refusal
from tests.adapters.lightgbm_models import (
    BAG,
    CAT,
    DART,
    booster,
    continued,
    decay,
    read_trees,
    table,
    with_gaps,
    with_targets,
)

Array = NDArray[np.float64]

POSITIVE = with_targets(lambda y: np.abs(y) + 0.1)
SHARES = with_targets(lambda y: (y > 5).astype(float))
CLASSES = with_targets(lambda y: np.digitize(y, [4, 6]).astype(float))


def custom(predictions: Array, train_set: Any) -> tuple[Array, Array]:
    return predictions - train_set.get_label(), np.ones_like(predictions)


REFUSED: dict[str, tuple[dict[str, Any], str, str, str | None]] = {
    **{name: ({"objective": name}, "objective", name, "(ii)") for name in ("fair",)},
    **{
        name: ({"objective": name, "data": POSITIVE}, "objective", name, "(i)")
        for name in ("poisson", "gamma", "tweedie")
    },
    **{
        name: ({"objective": name, "data": SHARES}, "objective", name, "(i)")
        for name in ("binary", "cross_entropy")
    },
    "cross_entropy_lambda": (
        {"objective": "cross_entropy_lambda", "data": SHARES},
        "objective",
        "cross_entropy",
        "(ii)",
    ),
    **{
        name: ({"objective": name, "num_class": 3, "data": CLASSES}, "objective", name, "(i)")
        for name in ("multiclass", "multiclassova")
    },
    "custom": ({"objective": custom}, "objective", "custom", None),
    "linear_tree": (
        {"linear_tree": True, "lambda_l1": 1.0},
        "linear_tree",
        "True with lambda_l1",
        None,
    ),
    **{
        f"monotone {method} {other}": (
            {"monotone_constraints": [1] * 8, "monotone_constraints_method": method, other: value},
            *("monotone_constraints_method", f"{method} with {other}", None),
        )
        for method in ("intermediate", "advanced")
        for other, value in {"path_smooth": 2.0, "histogram_pool_size": 64}.items()
    },
    "monotone advanced missing": (
        {
            "monotone_constraints": [1] * 8,
            "monotone_constraints_method": "advanced",
            "data": with_gaps(),
        },
        *("monotone_constraints_method", "advanced with missing values", None),
    ),
    "quantized": ({"use_quantized_grad": True}, "use_quantized_grad", "True", "(ii)"),
    "rf goss": (
        {"boosting": "rf", "data_sample_strategy": "goss"},
        "boosting",
        "rf with GOSS",
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    params, setting, value, condition = REFUSED[name]
    model = booster(**{"n_trees": 3, **params}).model
    check_refusal(model, setting, value, condition)
    text = model.model_to_string()
    # Before 4.2 the text keeps neither data_sample_strategy nor use_quantized_grad.
    keeps_strategy = "data_sample_strategy" not in params or "[data_sample_strategy: " in text
    if keeps_strategy and f"[{setting}: " in text:
        check_refusal(lgb.Booster(model_str=text), setting, value, condition)


def test_refuses_bags_of_groups() -> None:
    text = (
        booster(**BAG, n_trees=2)
        .model.model_to_string()
        .replace("[bagging_by_query: 0]", "[bagging_by_query: 1]")
    )
    if "[bagging_by_query: 1]" in text:  # from 4.6 on
        check_refusal(lgb.Booster(model_str=text), "bagging_by_query", "True", None)


def test_bagging_that_is_off_draws_no_rows() -> None:
    off: tuple[dict[str, Any], ...] = (
        {"bagging_fraction": 0.5},
        {"bagging_freq": 1},
        {**BAG, "bagging_fraction": 1.0},
    )
    for params in (
        *off,
        {"pos_bagging_fraction": 0.5, "neg_bagging_fraction": 0.5, "bagging_freq": 1},
    ):
        case = booster(n_trees=2, **params)
        assert read_trees(case, read(case.model)).sampler is None


def test_refuses_dart_whose_drops_are_not_those_of_its_seed() -> None:
    changed = [lgb.reset_parameter(learning_rate=decay)]
    for case in (booster(**DART, callbacks=changed), continued({}, DART), booster(**DART)):
        text = case.model.model_to_string()
        if "[drop_rate: 0.4]" in text and case.model.num_trees() == DART["n_trees"]:
            text = text.replace("[drop_rate: 0.4]", "[drop_rate: 0.3]")
        case = replace(case, model=lgb.Booster(model_str=text))
        with pytest.raises(
            UnsupportedModelError, match="boosting=dart: drop_seed gives other dropped trees"
        ) as error:
            read_trees(case, read(case.model))
        assert error.value.setting == "boosting"


def test_a_first_tree_of_two_leaves_with_a_rate_of_its_own_is_refused_by_name() -> None:
    rates = [lgb.reset_parameter(learning_rate=[0.5, 0.1, 0.1])]
    case = booster(n_trees=3, num_leaves=2, callbacks=rates)
    with pytest.raises(
        UnsupportedModelError,
        match="learning_rate=unknown for tree 0: all trees but the first agree",
    ):
        Explainer(case.model, case.X, case.y)
    with pytest.raises(ExactnessError):  # other targets show in the other trees too
        Explainer(case.model, case.X, case.y[::-1])
    case = booster(n_trees=3, num_leaves=2)
    with pytest.raises(ExactnessError):
        Explainer(case.model, case.X, case.y[::-1])


def test_refuses_classifier_and_ranker() -> None:
    data = table()
    quiet: dict[str, Any] = {"n_estimators": 2, "verbose": -1, "n_jobs": 1}
    check_refusal(lgb.LGBMClassifier(**quiet).fit(data.X, data.y > 5), "objective", "binary", "(i)")
    ranker = lgb.LGBMRanker(**quiet).fit(data.X, np.digitize(data.y, [4, 6]), group=[200, 200])
    check_refusal(ranker, "objective", "lambdarank", "(ii)")


def test_refuses_refit_models() -> None:
    case = booster(n_trees=3)
    refit = case.model.refit(case.X, case.y + 1, decay_rate=0.25)
    again = lgb.Booster(model_str=case.model.model_to_string()).refit(
        case.X, case.y + 1, decay_rate=0.25
    )
    for model in (refit, again, pickle.loads(pickle.dumps(refit))):
        check_refusal(model, "refit_decay_rate", "0.25", "(ii)")


def test_refuses_forced_splits_that_no_bound_holds_for(tmp_path: Any) -> None:
    forced = tmp_path / "forced.json"
    forced.write_text('{"feature": 0, "threshold": 0.1}')
    model = booster(
        forcedsplits_filename=str(forced), n_trees=2, monotone_constraints=[1] * 8
    ).model
    check_refusal(model, "monotone_constraints_method", "basic with forcedsplits_filename", None)


def test_refuses_constraints_that_changed_in_training() -> None:
    data = table()
    model = lgb.Booster(
        {"verbose": -1, "monotone_constraints": [1] * 8}, lgb.Dataset(data.X, data.y)
    )
    model.update()
    model.reset_parameter({"monotone_constraints": [0] * 8})
    model.update()
    check_refusal(model, "monotone_constraints", "1,1,1,1,1,1,1,1, then 0,0", None)


def test_refuses_forced_splits_whose_leaves_differ(tmp_path: Any) -> None:
    forced = tmp_path / "forced.json"
    forced.write_text('{"feature": 6, "threshold": 3}')
    read(booster(forcedsplits_filename=str(forced), n_trees=2).model)
    for params in (CAT, {"path_smooth": 2.0}):
        model = booster(forcedsplits_filename=str(forced), n_trees=2, **params).model
        check_refusal(model, "forcedsplits_filename", str(forced), None)


def test_refuses_text_without_parameters() -> None:
    text = booster(n_trees=2).model.model_to_string()
    start, end = (
        text.index("\nparameters:"),
        text.index("end of parameters") + len("end of parameters\n"),
    )
    check_refusal(lgb.Booster(model_str=text[:start] + text[end:]), "parameters", "none", None)


def test_every_refusal_says_what_to_do() -> None:
    for refusal in REFUSALS:
        assert refusal.reason[-1] != "."
        assert refusal.instead[-1] == "."
        assert refusal.condition in ("(i)", "(ii)", None)

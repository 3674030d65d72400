"""What the CatBoost adapter refuses: by setting, value and broken condition, in memory and loaded."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import catboost as cb
import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil import Explainer
from axil.adapters import read
from axil.adapters.catboost.blob import parse
from axil.adapters.catboost.refusals import REFUSALS
from axil.errors import UnsupportedModelError
from tests.adapters.catboost_models import (
    CASES,
    MONOTONE,
    ONE_HOT,
    QUIET,
    Case,
    categories,
    loaded,
    minute,
    regressor,
    several,
    table,
    with_targets,
)
from tests.adapters.common import check_refusal

Array = NDArray[np.float64]

POSITIVE = with_targets(lambda y: np.abs(y) + 0.1)
SHARES = with_targets(lambda y: (y > 5).astype(float))
CLASSES = with_targets(lambda y: np.digitize(y, [4, 6]).astype(float))


class Custom:
    """Squared error, as CatBoost cannot know."""

    def calc_ders_range(
        self, approxes: Any, targets: Any, weights: Any
    ) -> list[tuple[float, float]]:
        return [(target - approx, -1.0) for approx, target in zip(approxes, targets)]


def loss(name: str, data: Any = None, **params: Any) -> tuple[dict[str, Any], str, str, str | None]:
    named = name if ":" not in name else name[: name.index(":")]
    how = {"loss_function": name, "kind": cb.CatBoost, **params}
    condition = "(i)" if data is SHARES or data is CLASSES else "(ii)"
    return ({**how, "data": data} if data is not None else how), "loss_function", named, condition


REFUSED: dict[str, tuple[dict[str, Any], str, str, str | None]] = {
    **{
        name: loss(name)
        for name in (
            *("LogLinQuantile", "RMSEWithUncertainty", "Lq:q=3"),
            *("Expectile:alpha=0.3",),
        )
    },
    "MAE in steps": (
        {"loss_function": "MAE", "leaf_estimation_iterations": 3},
        "leaf_estimation_iterations",
        "3 with Exact leaves",
        "(ii)",
    ),
    "Huber in two steps": loss(
        "Huber:delta=1", leaf_estimation_iterations=2, leaf_estimation_backtracking="No"
    ),
    "LogCosh": (
        {"loss_function": "LogCosh", "kind": cb.CatBoost},
        "leaf_estimation_method",
        "Exact",
        "(ii)",
    ),
    "MAE by gradients": loss("MAE", leaf_estimation_method="Gradient"),
    "Quantile by gradients": loss("Quantile", leaf_estimation_method="Gradient"),
    "Poisson": loss("Poisson", POSITIVE),
    "Tweedie": loss("Tweedie:variance_power=1.5", POSITIVE),
    "RMSPE": loss("RMSPE", POSITIVE),
    "Logloss": loss("Logloss", SHARES),
    "CrossEntropy": loss("CrossEntropy", SHARES),
    "MultiClass": loss("MultiClass", CLASSES),
    "MultiClassOneVsAll": loss("MultiClassOneVsAll", CLASSES),
    "custom": (
        {"loss_function": Custom(), "eval_metric": "RMSE"},
        "loss_function",
        "custom",
        "(ii)",
    ),
    "missing targets": (
        {
            "loss_function": "MultiRMSEWithMissingValues",
            "data": several(),
            "leaf_estimation_method": "Gradient",
        },
        "loss_function",
        "MultiRMSEWithMissingValues with leaf_estimation_method=Gradient",
        None,
    ),
    "langevin": ({"langevin": True}, "langevin", "True", "(ii)"),
    "held out": ({"eval_fraction": 0.2}, "eval_fraction", "0.2", None),
    "langevin shrink": ({"langevin": True, "model_shrink_rate": 0.1}, "langevin", "True", "(ii)"),
    "diffusion_temperature": ({"diffusion_temperature": 10}, "langevin", "True", "(ii)"),
    "posterior_sampling": ({"posterior_sampling": True}, "posterior_sampling", "True", "(ii)"),
    "monotone Simple": (
        {**MONOTONE, "leaf_estimation_method": "Simple"},
        "leaf_estimation_method",
        "Simple with monotone_constraints",
        None,
    ),
    "monotone steps": (
        {"monotone_constraints": [0] * 7 + [1], "leaf_estimation_iterations": 3},
        "leaf_estimation_iterations",
        "3 with monotone_constraints",
        None,
    ),
}


def fitted(name: str) -> Case:
    with warnings.catch_warnings():  # without numba, CatBoost says that custom losses are slow
        warnings.simplefilter("ignore")
        try:
            return regressor(**{"iterations": 3, **REFUSED[name][0]})
        except cb.CatBoostError as error:
            if "not found in enum" in str(error):
                pytest.skip(f"this version of CatBoost does not have {name}")
            raise


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    case, (_, setting, value, condition) = fitted(name), REFUSED[name]
    check_refusal(case.model, setting, value, condition)
    check_refusal(loaded(case).model, setting, value, condition)


def test_refuses_classifier_and_ranker() -> None:
    data = table()
    quiet: dict[str, Any] = {"iterations": 2, **QUIET}
    classifier = cb.CatBoostClassifier(**quiet).fit(data.X, data.y > 5)
    check_refusal(classifier, "loss_function", "Logloss", "(i)")
    with pytest.raises(
        UnsupportedModelError,
        match=r"(?s)logit of a mean, .* is not linear in the targets.*No exact weights can exist",
    ):
        read(classifier)
    ranks, groups = np.digitize(data.y, [4, 6]), np.repeat(np.arange(30), 10)
    for name in ("YetiRank", "PairLogit", "QuerySoftMax", "QueryRMSE"):
        ranker = cb.CatBoostRanker(loss_function=name, **quiet).fit(data.X, ranks, group_id=groups)
        check_refusal(ranker, "loss_function", name, "(ii)")


def test_refuses_sums_of_models() -> None:
    one, other = (regressor(iterations=2, random_seed=seed).model for seed in (1, 2))
    summed, data = cb.sum_models([one, other], weights=[0.25, 0.75]), table()
    check_refusal(summed, "sum_models", "2 models", None)
    with pytest.raises(UnsupportedModelError) as refused:
        read(summed)
    lines = "\n".join(line.strip() for line in str(refused.value).splitlines()[1:3])
    names = {
        "axil": axil,
        "X_train": data.X,
        "y_train": data.y,
        "X": data.X_new,
        "models": [one, other],
    }
    names["shares"] = [0.25, 0.75]
    exec(lines, names)
    np.testing.assert_allclose(
        names["weights"] @ data.y, summed.predict(data.X_new), rtol=0, atol=1e-6
    )


def test_refuses_a_continued_model_of_which_some_trees_are_monotone() -> None:
    first = loaded(regressor(monotone_constraints=[1] + [0] * 7))
    check_refusal(
        regressor(fit={"init_model": first.model}).model,
        "monotone_constraints",
        "0: 1 with init_model",
        None,
    )
    then = regressor(
        monotone_constraints=[1] + [0] * 7, fit={"init_model": loaded(regressor()).model}
    )
    check_refusal(then.model, "monotone_constraints", "0: 1 with init_model", None)


def test_refuses_monotone_constraints_on_leaves_whose_rows_are_dropped() -> None:
    case = regressor(minute(table()), weighted=True, bootstrap_type="No", **MONOTONE)
    with pytest.raises(
        UnsupportedModelError,
        match=r"drops leaves that weigh less than 1\.2e-07 before it pools leaves",
    ):
        Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)


def test_refuses_a_continued_model_whose_first_trees_are_shrunk() -> None:
    first = loaded(regressor(model_shrink_rate=0.25))
    model = regressor(fit={"init_model": first.model}).model
    check_refusal(model, "model_shrink_rate", "0.25 with init_model", None)


def test_refuses_texts_and_embeddings() -> None:
    data = table()
    frame = categories(data.X)[["a", "f"]]
    frame["f"] = [f"{word} {word} house number {i % 7}" for i, word in enumerate(frame["f"])]
    text = cb.CatBoostRegressor(iterations=5, **QUIET).fit(frame, data.y, text_features=["f"])
    check_refusal(text, "text_features, embedding_features", "", "(ii)")


def test_categories_that_no_split_uses_by_their_targets_are_read() -> None:
    assert read(regressor(convert=categories, cat_features=["f", "g"], **ONE_HOT).model) is not None
    assert read(CASES["monotone_constraints=0"]().model) is not None


def with_settings(monkeypatch: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """A model that says other things of its fit than are true."""
    model = regressor(iterations=2).model
    blob = parse(model._serialize_model())
    params = json.loads(blob.info["params"])
    change(params)
    info = {**blob.info, "params": json.dumps(params)} if params else {}
    monkeypatch.setattr("axil.adapters.catboost.adapter.parse", lambda _: replace(blob, info=info))
    return model


def test_refuses_simple_leaves_of_a_gpu(monkeypatch: Any) -> None:
    def change(params: dict[str, Any]) -> None:
        params.update(task_type="GPU")
        params["tree_learner_options"].update(leaf_estimation_method="Simple")

    check_refusal(with_settings(monkeypatch, change), "leaf_estimation_method", "Simple", "(ii)")


def test_refuses_several_classes_of_a_gpu(monkeypatch: Any) -> None:
    def change(params: dict[str, Any]) -> None:
        params.update(task_type="GPU", loss_function={"type": "MultiClass"})

    check_refusal(
        with_settings(monkeypatch, change), "loss_function", "MultiClass with task_type=GPU", None
    )


def test_refuses_models_without_settings(monkeypatch: Any) -> None:
    check_refusal(with_settings(monkeypatch, lambda params: params.clear()), "params", "none", None)


def test_every_refusal_says_what_to_do() -> None:
    for refusal in REFUSALS:
        assert refusal.reason[-1] != "."
        assert refusal.instead[-1] == "."
        assert refusal.condition in ("(i)", "(ii)", None)

"""What the scikit-learn adapters refuse: by setting, value and broken condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import (
    ensemble,
    gaussian_process,
    isotonic,
    linear_model,
    multioutput,
    neural_network,
    svm,
    tree,
)
from sklearn.dummy import DummyRegressor

import axil
from axil.adapters import read
from axil.adapters.sklearn.adapter import ADAPTERS
from axil.adapters.sklearn.refusals import CLASSES, LOSSES, STAGES, TREES
from axil.adapters.sklearn.wrappers import WRAPPERS
from axil.errors import InputError, UnsupportedModelError
from tests.adapters.common import check_refusal
from tests.adapters.sklearn_models import boosted, fit, forest, hist, labels, lone, table, warmed

ABOVE = {"change": np.abs}

REFUSED: dict[str, tuple[Any, str, str, str | None]] = {
    "stages huber": (
        lambda: boosted(loss="huber", subsample=0.5, n_iter_no_change=2),
        "subsample",
        "0.5 with huber and n_iter_no_change",
        None,
    ),
    **{
        f"hist {loss}": (lambda loss=loss: hist(loss=loss, fit_with=ABOVE), "loss", loss, "(ii)")
        for loss in ("poisson", "gamma")
    },
    "init median": (
        lambda: boosted(init=DummyRegressor(strategy="median")),
        "init",
        "DummyRegressor",
        "(i)",
    ),
    "init clipped": (
        lambda: boosted(init=linear_model.LinearRegression(positive=True)),
        *("init.positive", "True", "(ii)"),
    ),
    "early stopping unseeded": (
        lambda: boosted(n_iter_no_change=2, random_state=None),
        *("random_state", "None with n_iter_no_change", None),
    ),
    "median monotone": (
        lambda: lone(
            "DecisionTreeRegressor", criterion="absolute_error", monotonic_cst=[1, 0, 0, 0, 0, 0]
        ),
        *("criterion", "absolute_error with monotonic_cst", None),
    ),
    "init mean of medians": (
        lambda: boosted(loss="absolute_error", init=DummyRegressor()),
        *("init", "DummyRegressor() with absolute_error", "(i)"),
    ),
    "bagging warm unseeded": (
        lambda: warmed(forest("BaggingRegressor", random_state=None), n_estimators=12),
        *("warm_start", "True", None),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_settings(name: str) -> None:
    make, setting, value, condition = REFUSED[name]
    check_refusal(make().model, setting, value, condition)


@pytest.mark.parametrize("seed", [None, np.random.RandomState(0)])
def test_draws_without_a_seed_are_refused_unless_recorded(seed: Any) -> None:
    refused = read(boosted(subsample=0.5, random_state=seed).model).refused_draws
    assert refused.setting == "random_state"
    assert "subsample=0.5" in refused.value
    assert "in_bag=" in str(refused)


def test_seeds_do_not_matter_where_nothing_is_drawn() -> None:
    assert read(boosted(random_state=None).model) is not None
    assert read(hist(monotonic_cst=[0] * 6).model) is not None
    assert read(boosted(subsample=0.5, random_state=np.int32(4)).model) is not None


REFUSED_CLASSES: dict[str, tuple[Any, str | None, str]] = {
    "GradientBoostingClassifier": (
        ensemble.GradientBoostingClassifier(n_estimators=2),
        "(i)",
        "odds",
    ),
    "HistGradientBoostingClassifier": (
        ensemble.HistGradientBoostingClassifier(max_iter=2),
        "(i)",
        "odds",
    ),
    "AdaBoostRegressor": (ensemble.AdaBoostRegressor(n_estimators=2), "(ii)", "median"),
    "AdaBoostClassifier": (ensemble.AdaBoostClassifier(n_estimators=2), "(ii)", "vote"),
    "StackingClassifier": (
        ensemble.StackingClassifier([("a", tree.DecisionTreeClassifier())]),
        "(ii)",
        "estimators_",
    ),
    "MLPRegressor": (
        neural_network.MLPRegressor(hidden_layer_sizes=(3,), max_iter=2),
        "(ii)",
        "curve",
    ),
    "GaussianProcessClassifier": (gaussian_process.GaussianProcessClassifier(), "(ii)", "Nystroem"),
    "MLPClassifier": (
        neural_network.MLPClassifier(hidden_layer_sizes=(3,), max_iter=2),
        "(ii)",
        "curve",
    ),
    "SVR": (svm.SVR(), "(ii)", "bound"),
    "LogisticRegression": (linear_model.LogisticRegression(), "(ii)", "link"),
    "Lasso": (linear_model.Lasso(), "(ii)", "threshold"),
    "HuberRegressor": (linear_model.HuberRegressor(), "(ii)", "clipped"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED_CLASSES)
def test_refused_classes(name: str) -> None:
    model, condition, word = REFUSED_CLASSES[name]
    data = table(100)
    model.fit(
        data.X, np.abs(data.y) if "Class" not in name and "Logistic" not in name else labels(data.y)
    )
    check_refusal(model, "class", name, condition)
    with pytest.raises(UnsupportedModelError, match=word):
        read(model)


def test_chains() -> None:
    data = table(100)
    two = np.stack([data.y, -data.y], axis=1)
    chain = multioutput.RegressorChain(linear_model.Ridge()).fit(data.X, two)
    check_refusal(chain, "class", "RegressorChain", "(ii)")
    chain = multioutput.ClassifierChain(tree.DecisionTreeClassifier()).fit(data.X, two > 5)
    check_refusal(chain, "class", "ClassifierChain", "(ii)")


def test_isotonic_regression() -> None:
    check_refusal(
        isotonic.IsotonicRegression().fit([1, 2, 3], [1, 3, 2]),
        "class",
        "IsotonicRegression",
        "(ii)",
    )


def test_log_loss_has_no_exact_weights() -> None:
    model = fit(ensemble.GradientBoostingClassifier(n_estimators=2), change=labels).model
    with pytest.raises(
        UnsupportedModelError, match="not a linear function of the targets"
    ) as error:
        read(model)
    assert "No exact weights can exist for it" in str(error.value)


@pytest.mark.parametrize(
    "kind",
    [
        "GradientBoostingRegressor",
        "HistGradientBoostingRegressor",
        "RandomForestClassifier",
        "BaggingRegressor",
    ],
)
def test_unfitted(kind: str) -> None:
    with pytest.raises(InputError, match=f"{kind} has not been fitted"):
        read(getattr(ensemble, kind)())


def test_unfitted_tree() -> None:
    with pytest.raises(InputError, match="DecisionTreeRegressor has not been fitted"):
        read(tree.DecisionTreeRegressor())


def test_leaf_values_of_nan() -> None:
    """scikit-learn 1.5 makes them if no row that a tree sampled has any weight."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = ensemble.RandomForestRegressor(3, random_state=0).fit(X, X[:, 0])
    model.estimators_[1].tree_.value[:] = np.nan
    with pytest.raises(UnsupportedModelError, match="leaf values of nan"):
        axil.Explainer(model, X, X[:, 0])


def test_every_refusal_says_what_to_do() -> None:
    for refusal in (*LOSSES, *STAGES, *TREES, *CLASSES.values()):
        assert refusal.reason[-1] != "."
        assert refusal.instead[-1] == "."
        assert refusal.condition in ("(i)", "(ii)", None)
    assert not set(CLASSES) & {*ADAPTERS, *WRAPPERS}

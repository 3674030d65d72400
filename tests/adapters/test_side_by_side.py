"""One classifier for each class or label: each score is that of its own classifier, probabilities as the wrapper makes them."""

from __future__ import annotations

import pickle
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil

X, NUMBERS = load_wine(return_X_y=True)
Y = np.array(["red", "rose", "white"])[NUMBERS]
NEW = X[::30]
LIGHT: dict[str, Any] = {"n_estimators": 4, "num_leaves": 5, "n_jobs": 1, "verbose": -1}
BOOSTED: dict[str, Any] = {
    "lightgbm": lgb.LGBMClassifier(**LIGHT),
    "lightgbm bagging": lgb.LGBMClassifier(**LIGHT, subsample=0.6, subsample_freq=1),
    "lightgbm goss": lgb.LGBMClassifier(
        **LIGHT | {"n_estimators": 14}, data_sample_strategy="goss"
    ),
    "xgboost subsample": xgb.XGBClassifier(n_estimators=4, max_depth=2, subsample=0.7, n_jobs=1),
    "stages subsample": GradientBoostingClassifier(
        n_estimators=4, max_depth=2, subsample=0.7, random_state=0
    ),
    "histograms": HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=4),
    "pipeline": make_pipeline(StandardScaler(), lgb.LGBMClassifier(**LIGHT)),
}


@pytest.mark.parametrize("name", BOOSTED)
def test_scores_of_each_class_are_those_of_its_own_classifier(name: str) -> None:
    model = OneVsRestClassifier(BOOSTED[name]).fit(X, Y)
    explainer = pickle.loads(pickle.dumps(axil.Explainer(model, X, Y)))
    assert axil.supports(model).kind == explainer.kind == "additive"
    explanation = explainer(NEW)
    assert explanation.outputs.tolist() == ["red", "rose", "white"]
    np.testing.assert_allclose(
        explanation.probabilities, model.predict_proba(NEW), rtol=0, atol=2e-7
    )  # XGBoost's are float32
    without = explainer.without(NEW, [0, 60, 170])
    for k, inside in enumerate(model.estimators_):
        own = axil.Explainer(inside, X, (model.classes_[k] == Y).astype(int))
        np.testing.assert_allclose(
            explanation.contributions[:, k], own(NEW).contributions, rtol=0, atol=1e-12
        )
        after = without["after"].to_numpy().reshape(len(NEW), 3)[:, k]
        np.testing.assert_allclose(
            after, own.without(NEW, [0, 60, 170])["after"], rtol=0, atol=1e-12
        )
    assert "divided by their sum" in explainer.top(NEW, k=1).attrs["axil"]
    swapped = Y.copy()
    swapped[[0, 100]] = swapped[[100, 0]]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, swapped)


@pytest.mark.parametrize(
    "kind", [RandomForestClassifier(4, random_state=0), KNeighborsClassifier(5)]
)
def test_probabilities_of_each_class_are_weighted_shares_of_its_rows(kind: Any) -> None:
    model = OneVsRestClassifier(kind).fit(X, Y)
    explainer = pickle.loads(pickle.dumps(axil.Explainer(model, X, Y)))
    assert axil.supports(model).kind == explainer.kind == "exact"
    explanation = explainer(NEW)
    made = np.einsum("nkj,jk->nk", explanation.weights, Y[:, None] == model.classes_)
    expected = np.stack([inside.predict_proba(NEW)[:, 1] for inside in model.estimators_], axis=1)
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(explanation.predictions, expected, rtol=0, atol=1e-12)
    assert "before they are divided" in explainer.top(NEW, k=1).attrs["axil"]
    swapped = Y.copy()
    swapped[[0, 100]] = swapped[[100, 0]]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, swapped)


@pytest.mark.parametrize("kind", [OneVsRestClassifier, MultiOutputClassifier])
@pytest.mark.parametrize("inside", ["lightgbm", "forest"])
def test_several_labels_per_row(kind: Any, inside: str) -> None:
    """No probability is divided by a sum, and labels are numbers."""
    labels = np.stack([NUMBERS == 0, X[:, 0] > 13], axis=1).astype(int)
    chosen = (
        BOOSTED["lightgbm"] if inside == "lightgbm" else RandomForestClassifier(4, random_state=0)
    )
    model = kind(chosen).fit(X, labels)
    explanation = axil.Explainer(model, X, labels)(NEW)
    expected = np.stack([part.predict_proba(NEW)[:, 1] for part in model.estimators_], axis=1)
    np.testing.assert_allclose(
        explanation.predictions if explanation.kind == "exact" else explanation.probabilities,
        expected,
        atol=1e-12,
    )


def test_several_outputs_of_counts() -> None:
    counts = np.stack([NUMBERS, 2.0 + np.round(X[:, 0])], axis=1)
    model = MultiOutputRegressor(lgb.LGBMRegressor(**LIGHT, objective="poisson")).fit(X, counts)
    assert axil.supports(model).kind == "additive"
    explanation = axil.Explainer(model, X, counts)(NEW)
    np.testing.assert_allclose(explanation.probabilities, model.predict(NEW), rtol=1e-12)
    for k, inside in enumerate(model.estimators_):
        own = axil.Explainer(inside, X, counts[:, k])(NEW)
        np.testing.assert_allclose(
            explanation.contributions[:, k], own.contributions, rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("inside", ["lightgbm", "forest"])
def test_two_classes_have_one_classifier(inside: str) -> None:
    rows, labels = X[NUMBERS < 2], Y[NUMBERS < 2]
    chosen = (
        BOOSTED["lightgbm"] if inside == "lightgbm" else RandomForestClassifier(4, random_state=0)
    )
    model = OneVsRestClassifier(chosen).fit(rows, labels)
    explanation = axil.Explainer(model, rows, labels)(NEW)
    expected = model.predict_proba(NEW)
    shown = explanation.predictions if explanation.kind == "exact" else explanation.probabilities
    np.testing.assert_allclose(
        shown, expected if explanation.kind == "exact" else expected[:, 1], rtol=0, atol=1e-12
    )


def test_weights_of_the_two_classes_of_one_classifier() -> None:
    rows, labels = X[NUMBERS < 2], Y[NUMBERS < 2]
    model = OneVsRestClassifier(lgb.LGBMClassifier(**LIGHT, class_weight={0: 1.0, 1: 3.0})).fit(
        rows, labels
    )
    explanation = axil.Explainer(model, rows, labels)(NEW)
    np.testing.assert_allclose(
        explanation.probabilities, model.predict_proba(NEW)[:, 1], rtol=0, atol=1e-12
    )


def test_a_calibration_around_it() -> None:
    model = CalibratedClassifierCV(
        OneVsRestClassifier(BOOSTED["lightgbm"]), cv=3, ensemble=False
    ).fit(X, Y)
    explanation = axil.Explainer(model, X, Y)(NEW)
    np.testing.assert_allclose(
        explanation.probabilities, model.predict_proba(NEW), rtol=0, atol=1e-12
    )


ALONE = {
    "class_weight": lgb.LGBMClassifier(**LIGHT, class_weight="balanced"),
    "scale_pos_weight": lgb.LGBMClassifier(**LIGHT, scale_pos_weight=2.0),
    "DART": lgb.LGBMClassifier(**LIGHT, boosting_type="dart"),
    "early stopping": GradientBoostingClassifier(
        n_estimators=3, n_iter_no_change=2, random_state=0
    ),
    "differ from output to output": GridSearchCV(
        lgb.LGBMClassifier(**LIGHT), {"reg_alpha": [0.0, 3.0]}, cv=2
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ALONE)
def test_the_line_of_a_refusal_works(name: str) -> None:
    model = OneVsRestClassifier(ALONE[name]).fit(StandardScaler().fit_transform(X), Y)
    if name == "differ from output to output":
        for part, alpha in zip(model.estimators_, (0.0, 3.0, 0.0)):
            part.best_estimator_.set_params(reg_alpha=alpha).fit(
                StandardScaler().fit_transform(X), Y == "red"
            )
    names = {"X": StandardScaler().fit_transform(X), "y": Y, "model": model, "axil": axil}
    with pytest.raises(axil.UnsupportedModelError, match=name) as refused:
        axil.Explainer(model, names["X"], Y)
    exec(f"explainer = {str(refused.value).splitlines()[1].strip()}", names)
    assert names["explainer"].kind in ("additive", "derivative")  # type: ignore[attr-defined]


def test_other_classifiers_of_several_are_refused_by_name() -> None:
    tree = RandomForestClassifier(2, random_state=0)
    for model in (OneVsOneClassifier(tree), OutputCodeClassifier(tree, random_state=0)):
        model.fit(X, Y)
        assert axil.supports(model).setting == "class"
        with pytest.raises(axil.UnsupportedModelError, match="Fit a OneVsRestClassifier"):
            axil.Explainer(model, X, Y)
    several = MultiOutputClassifier(tree).fit(X, np.stack([Y, Y], axis=1))
    with pytest.raises(
        axil.UnsupportedModelError, match=r"other classes than 0 and 1.*\n.*y\[:, 0\]"
    ):
        axil.Explainer(several, X, np.stack([Y, Y], axis=1))
    constant = OneVsRestClassifier(tree)
    with pytest.warns(UserWarning, match="present in all"):
        constant.fit(X, np.stack([NUMBERS == 0, np.ones(len(X))], axis=1).astype(int))
    with pytest.raises(axil.UnsupportedModelError, match="all rows or none have"):
        axil.Explainer(constant, X, np.stack([NUMBERS == 0, np.ones(len(X))], axis=1).astype(int))
    voting = VotingClassifier([("a", OneVsRestClassifier(tree))], voting="soft").fit(X, Y)
    with pytest.raises(axil.UnsupportedModelError, match="divided by their sum"):
        axil.Explainer(voting, X, Y)


def test_questions_without_an_answer() -> None:
    model = OneVsRestClassifier(BOOSTED["lightgbm"]).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    two = axil.Explainer(OneVsRestClassifier(BOOSTED["lightgbm"]).fit(X, Y == "red"), X, Y == "red")
    with pytest.raises(axil.UnsupportedQuestionError, match="several others are not written"):
        two.refit(drop=[0])
    with pytest.raises(axil.UnsupportedQuestionError, match="several others are not written"):
        explainer.refit(drop=[0])
    with pytest.raises(axil.InputError, match="differentiates scores alone"):
        axil.Explainer(model, X, Y, output="probability")
    with pytest.raises(axil.InputError, match="offsets"):
        axil.Explainer(model, X, Y, init_score=np.zeros((len(X), 3)))

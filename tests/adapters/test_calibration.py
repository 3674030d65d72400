"""Calibrated classifiers: the score inside is explained, and the probability beside it is the calibrated one."""

from __future__ import annotations

import pickle
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    GroupKFold,
    ShuffleSplit,
    StratifiedKFold,
    check_cv,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.fixes import parse_version

import axil
from tests.adapters.sklearn_models import table

DATA = table(150)
X, X_NEW = DATA.X, DATA.X_new[:6]
LABELS = np.where(np.median(DATA.y) < DATA.y, "yes", "no")
TEMPERATURE = parse_version(sklearn.__version__) >= parse_version("1.8")


def _lightgbm(**settings: Any) -> Any:
    return lgb.LGBMClassifier(
        **{"n_estimators": 5, "n_jobs": 1, "min_child_samples": 5, "verbose": -1} | settings
    )


def _stages() -> Any:
    return GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0)


METHODS = ["sigmoid", "isotonic", *(["temperature"] if TEMPERATURE else [])]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [_lightgbm, _stages])
@pytest.mark.parametrize("several", [False, True])
def test_the_probability_is_the_calibrated_one(method: str, kind: Any, several: bool) -> None:
    """Whether curves are fitted to scores (scikit-learn's boosting) or to probabilities (LightGBM)."""
    rows, labels = load_wine(return_X_y=True) if several else (X, LABELS)
    new = rows[::20] if several else X_NEW
    model = CalibratedClassifierCV(kind(), method=method, cv=3, ensemble=False).fit(rows, labels)
    assert axil.supports(model).kind == "additive"
    explainer = pickle.loads(pickle.dumps(axil.Explainer(model, rows, labels)))
    explanation = explainer(new)
    expected = model.predict_proba(new)
    np.testing.assert_allclose(
        explanation.probabilities, expected if several else expected[:, 1], atol=1e-12
    )
    inside = axil.Explainer(
        model.calibrated_classifiers_[0].estimator,
        rows,
        np.searchsorted(np.unique(labels), labels)
        if method == "temperature" and not several
        else labels,
    )(new)
    np.testing.assert_array_equal(explanation.contributions, inside.contributions)
    shown = explainer.top(new, k=1)["probability"].to_numpy()
    np.testing.assert_allclose(shown, expected.ravel() if several else expected[:, 1], atol=1e-12)
    assert "calibrated" in explainer.top(new, k=1).attrs["axil"]


def test_without_holds_the_curve() -> None:
    """Scores without some rows go through the same curve."""
    model = CalibratedClassifierCV(_stages(), cv=3, ensemble=False).fit(X, LABELS)
    changes = axil.Explainer(model, X, LABELS).without(X_NEW, [0, 5, 7])
    curve = model.calibrated_classifiers_[0].calibrators[0]
    np.testing.assert_allclose(
        changes["probability after"], 1 / (1 + np.exp(curve.a_ * changes["after"] + curve.b_))
    )
    np.testing.assert_allclose(changes["probability before"], model.predict_proba(X_NEW)[:, 1])
    assert (changes["change"] != 0).any()


@pytest.mark.skipif(not find_spec("sklearn.frozen"), reason="scikit-learn has it from 1.6 on")
def test_a_frozen_classifier_is_proven_on_the_rows_of_its_own_fit() -> None:
    frozen = import_module("sklearn.frozen").FrozenEstimator(_lightgbm().fit(X[:100], LABELS[:100]))
    model = CalibratedClassifierCV(frozen).fit(X[100:], LABELS[100:])
    explanation = axil.Explainer(model, X[:100], LABELS[:100])(X_NEW)
    np.testing.assert_allclose(
        explanation.probabilities, model.predict_proba(X_NEW)[:, 1], atol=1e-12
    )
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X[100:], LABELS[100:])


def test_forests_have_weights_of_their_probabilities_before_calibration() -> None:
    model = CalibratedClassifierCV(
        RandomForestClassifier(5, random_state=0), cv=3, ensemble=False
    ).fit(X, LABELS)
    explainer = pickle.loads(pickle.dumps(axil.Explainer(model, X, LABELS)))
    inside = model.calibrated_classifiers_[0].estimator
    np.testing.assert_allclose(
        explainer(X_NEW).predictions, inside.predict_proba(X_NEW), atol=1e-12
    )
    assert "before calibration" in explainer.top(X_NEW).attrs["axil"]


def test_a_logistic_regression_has_derivatives_of_its_score() -> None:
    inside = LogisticRegression(tol=1e-10, max_iter=1000)
    model = CalibratedClassifierCV(
        make_pipeline(StandardScaler(), inside), cv=3, ensemble=False
    ).fit(X, LABELS)
    assert axil.supports(model).kind == "derivative"
    assert axil.Explainer(model, X, LABELS).kind == "derivative"
    for wrapped in (
        model,
        make_pipeline(StandardScaler(), CalibratedClassifierCV(inside, ensemble=False)).fit(
            X, LABELS
        ),
    ):
        with pytest.raises(axil.InputError, match=r"calibrated_classifiers_\[0\].estimator"):
            axil.Explainer(wrapped, X, LABELS, output="probability")


def test_in_pipelines_and_thresholds_and_calibrated_twice() -> None:
    inner = CalibratedClassifierCV(_lightgbm(), cv=3, ensemble=False)
    models = [
        make_pipeline(StandardScaler(), inner),
        FixedThresholdClassifier(inner, threshold=0.3),
        CalibratedClassifierCV(inner, method="isotonic", cv=3, ensemble=False),
    ]
    for model in models:
        model.fit(X, LABELS)
        explanation = axil.Explainer(model, X, LABELS)(X_NEW)
        np.testing.assert_allclose(
            explanation.probabilities, model.predict_proba(X_NEW)[:, 1], atol=1e-12
        )


def _folds(model: Any, labels: Any) -> list[Any]:
    """The rows that each classifier of an ensemble was fitted on."""
    return [train for train, _ in check_cv(model.cv, labels, classifier=True).split(X, labels)]


SPLITS = {
    "by default": None,
    "three": 3,
    "shuffled": StratifiedKFold(3, shuffle=True, random_state=4),
    "drawn": ShuffleSplit(4, random_state=2),
    "listed": list(GroupKFold(3).split(X, LABELS, np.arange(150) // 5)),
}


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_an_ensemble_are_means_over_its_folds(splits: str, weighted: bool) -> None:
    """Leaves of trees that scikit-learn fitted to each fold: a row weighs its share of the leaf, where it is in the fold."""
    weight = DATA.weight if weighted else None
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    model = CalibratedClassifierCV(tree, cv=SPLITS[splits]).fit(X, LABELS, sample_weight=weight)
    assert axil.supports(model).exact
    explainer = axil.Explainer(model, X, LABELS, sample_weight=weight)
    given = np.ones(len(X)) if weight is None else weight
    expected = np.zeros((len(X_NEW), len(X)))
    folds = _folds(model, LABELS)
    for calibrated, fold in zip(model.calibrated_classifiers_, folds, strict=True):
        own = calibrated.estimator.apply(X_NEW)[:, None] == calibrated.estimator.apply(X[fold])
        own = own * given[fold]
        expected[:, fold] += own / own.sum(axis=1, keepdims=True) / len(folds)
    explanation = explainer(X_NEW)
    np.testing.assert_allclose(explanation.weights, expected, rtol=0, atol=1e-12)
    means = np.mean(
        [own.estimator.predict_proba(X_NEW) for own in model.calibrated_classifiers_], axis=0
    )
    np.testing.assert_allclose(explanation.predictions, means, atol=1e-12)
    np.testing.assert_allclose(explanation.probabilities, model.predict_proba(X_NEW), atol=1e-12)
    shown = explainer.top(X_NEW, k=1)
    np.testing.assert_allclose(shown["probability"], model.predict_proba(X_NEW).ravel(), atol=1e-12)
    assert "calibrated" in shown.attrs["axil"]
    np.testing.assert_allclose(
        explanation[:2].probabilities, model.predict_proba(X_NEW[:2]), atol=1e-12
    )


def test_an_ensemble_without_rows() -> None:
    """Trees of each fold, with the leaf's other rows."""
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    model = CalibratedClassifierCV(tree, cv=3).fit(X, LABELS)
    explainer, gone = axil.Explainer(model, X, LABELS), [0, 5, 7]
    expected = np.zeros(len(X_NEW))
    for calibrated, fold in zip(model.calibrated_classifiers_, _folds(model, LABELS)):
        left = np.setdiff1d(fold, gone)
        own = calibrated.estimator.apply(X_NEW)[:, None] == calibrated.estimator.apply(X[left])
        expected += own @ (LABELS[left] == "yes").astype(float) / own.sum(axis=1) / 3
    after = explainer.without(X_NEW, gone)["after"].to_numpy().reshape(-1, 2)[:, 1]
    np.testing.assert_allclose(after, expected, atol=1e-12)
    for ask in (
        explainer.diagnostics.leave_one_out,
        lambda: explainer.refit(drop=gone),
        lambda: explainer.save("there.npz"),
    ):
        with pytest.raises(axil.UnsupportedQuestionError):
            ask()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "inside",
    [
        RidgeClassifier(),
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), RandomForestClassifier(3)),
    ],
)
def test_ensembles_of_models_with_exact_weights(method: str, several: bool, inside: Any) -> None:
    found = load_wine(as_frame=True)
    rows, labels = (found.data, found.target.to_numpy()) if several else (pd.DataFrame(X), LABELS)
    new = rows.iloc[::20] if several else pd.DataFrame(X_NEW)
    model = CalibratedClassifierCV(inside, method=method, cv=4).fit(rows, labels)
    around = GridSearchCV(
        make_pipeline(MinMaxScaler(), model), {"calibratedclassifiercv__cv": [3]}, cv=2
    )
    wholes = [model, around.fit(rows, labels)]
    if not several:
        wholes.append(FixedThresholdClassifier(model).fit(rows, labels))
    for whole in wholes:
        explainer = pickle.loads(pickle.dumps(axil.Explainer(whole, rows, labels)))
        np.testing.assert_allclose(
            explainer(new).probabilities, whole.predict_proba(new), atol=1e-9
        )
        assert explainer(new[:0]).probabilities.shape == (0, len(whole.classes_))


def test_folds_that_cannot_be_drawn_again_are_refused_with_advice_that_works() -> None:
    rows, groups = pd.DataFrame(X, index=np.arange(150) + 7), np.arange(150) // 5
    forest = RandomForestClassifier(3, random_state=0)
    shuffled = CalibratedClassifierCV(forest, cv=StratifiedKFold(3, shuffle=True)).fit(rows, LABELS)
    used_up = CalibratedClassifierCV(forest, cv=GroupKFold(3).split(X, LABELS, groups)).fit(
        rows, LABELS
    )
    for model in (shuffled, used_up):
        support = axil.supports(model)
        assert (support.kind, support.setting) == ("no", "cv")
        with pytest.raises(
            axil.UnsupportedModelError, match=r"cv=list\(splitter.split\(X, y, groups\)\)"
        ):
            axil.Explainer(model, rows, LABELS)
    splitter, y = GroupKFold(3), LABELS
    model = CalibratedClassifierCV(forest, cv=list(splitter.split(rows, y, groups))).fit(rows, y)
    assert axil.Explainer(model, rows, y).kind == "exact"
    model = CalibratedClassifierCV(forest, ensemble=False).fit(rows, y)
    assert axil.Explainer(model, rows, y).kind == "exact"


def test_an_ensemble_is_proven_on_its_folds() -> None:
    model = CalibratedClassifierCV(RandomForestClassifier(3, random_state=0), cv=3).fit(X, LABELS)
    with pytest.raises(axil.ExactnessError, match=r"calibrated_classifiers_\[0\]"):
        axil.Explainer(model, X[::-1], LABELS[::-1])
    with pytest.raises(axil.AxilError):
        axil.Explainer(model, X[:100], LABELS[:100])
    model.cv = 4
    with pytest.raises(axil.InputError, match="4 folds, and it has 3 classifiers"):
        axil.Explainer(model, X, LABELS)


def test_wrong_labels_do_not_pass() -> None:
    model = CalibratedClassifierCV(_lightgbm(), cv=3, ensemble=False).fit(X, LABELS)
    swapped = LABELS.copy()
    swapped[[np.argmax(LABELS == "yes"), np.argmax(LABELS == "no")]] = ["no", "yes"]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, swapped)


def test_a_mean_of_calibrated_members_is_refused_by_name() -> None:
    calibrated = CalibratedClassifierCV(
        RandomForestClassifier(3, random_state=0), cv=3, ensemble=False
    )
    model = VotingClassifier([("a", calibrated)], voting="soft").fit(X, LABELS)
    with pytest.raises(
        axil.UnsupportedModelError, match=r"named_estimators_\['a'\].*Calibrate the whole"
    ):
        axil.Explainer(model, X, LABELS)


@pytest.mark.parametrize(
    "wrap", [lambda m: CalibratedClassifierCV(m, cv=3, ensemble=False), FixedThresholdClassifier]
)
def test_refit_keeps_the_curve_and_the_threshold(wrap: Any) -> None:
    model = wrap(_lightgbm()).fit(X, LABELS)
    explainer = axil.Explainer(model, X, LABELS)
    again = explainer.refit(drop=[3, 4])
    assert type(again.model) is type(model)
    expected = explainer.without(X_NEW, [3, 4])["probability after"]
    np.testing.assert_allclose(again.model.predict_proba(X_NEW)[:, 1], expected, atol=1e-6)

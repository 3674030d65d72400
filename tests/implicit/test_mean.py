"""Means of models without exact weights: each member by itself, fits with slightly other targets, and every question."""

from __future__ import annotations

import pickle
from functools import cache
from operator import attrgetter
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor
from sklearn.model_selection import GridSearchCV, check_cv
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import axil
from tests.adapters.sklearn_models import table, two

DATA = table(80)
X, WEIGHT, X_NEW = pd.DataFrame(DATA.X), DATA.weight, pd.DataFrame(DATA.X_new[:5])
Y, BINARY, SEVERAL = np.abs(DATA.y) + 0.1, two(DATA.y), np.digitize(DATA.y, [4, 6])
LABELS = np.stack([DATA.y > 5, DATA.y > 6], axis=1).astype(int)
CLOSE = {"tol": 1e-11, "max_iter": 10_000}
NEWTON = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
LOGIT, POISSON = LogisticRegression(**CLOSE), PoissonRegressor(**CLOSE)
BOOSTED = lgb.LGBMClassifier(n_estimators=4, min_child_samples=5, n_jobs=1, verbose=-1)
FOREST = RandomForestClassifier(4, random_state=0)

ADDITIVE: dict[str, Any] = {
    "lightgbm": (CalibratedClassifierCV(BOOSTED), BINARY),
    "lightgbm several": (CalibratedClassifierCV(BOOSTED, cv=3), SEVERAL),
    "histograms isotonic": (
        CalibratedClassifierCV(HistGradientBoostingClassifier(max_iter=4), method="isotonic", cv=3),
        BINARY,
    ),
    "stages": (
        CalibratedClassifierCV(
            GradientBoostingClassifier(n_estimators=4, subsample=0.7, random_state=0), cv=3
        ),
        SEVERAL,
    ),
    "xgboost": (CalibratedClassifierCV(xgb.XGBClassifier(n_estimators=4, n_jobs=1), cv=3), SEVERAL),
    "in a pipeline": (
        make_pipeline(StandardScaler(), CalibratedClassifierCV(BOOSTED, cv=3)),
        BINARY,
    ),
    "in a search": (GridSearchCV(CalibratedClassifierCV(BOOSTED), {"cv": [3]}, cv=2), BINARY),
}
MEMBERS = [("logit", LOGIT), ("forest", FOREST), ("boosted", BOOSTED)]
NUMBERS = [("poisson", POISSON), ("forest", RandomForestRegressor(3, random_state=0))]
DERIVATIVES: dict[str, Any] = {
    "calibrated": (CalibratedClassifierCV(make_pipeline(StandardScaler(), LOGIT)), BINARY),
    "voting": (VotingClassifier(MEMBERS, voting="soft", weights=[1, 2, 1]), BINARY),
    "voting several": (VotingClassifier(MEMBERS, voting="soft"), SEVERAL),
    "voting of numbers": (VotingRegressor([*NUMBERS, ("gamma", GammaRegressor(**CLOSE))]), Y),
    "bagging": (BaggingClassifier(LOGIT, n_estimators=3, random_state=0, max_features=0.7), BINARY),
    "bagging of pipelines": (
        BaggingClassifier(make_pipeline(StandardScaler(), LOGIT), n_estimators=3, random_state=0),
        SEVERAL,
    ),
    "bagging of numbers": (BaggingRegressor(POISSON, n_estimators=3, random_state=0), Y),
    "one against the rest": (OneVsRestClassifier(LOGIT), SEVERAL),
    "one against the rest of two": (OneVsRestClassifier(LOGIT), BINARY),
    "labels": (OneVsRestClassifier(LOGIT), LABELS),
    "several outputs": (MultiOutputClassifier(LOGIT), LABELS),
    "several numbers": (MultiOutputRegressor(POISSON), np.stack([Y, Y + 1], axis=1)),
    "in a pipeline": (
        make_pipeline(StandardScaler(), VotingClassifier(MEMBERS, voting="soft")),
        BINARY,
    ),
}
CASES = {f"additive {name}": case for name, case in ADDITIVE.items()}
CASES |= {f"derivative {name}": case for name, case in DERIVATIVES.items()}


@cache
def fitted(name: str) -> tuple[Any, Any]:
    model, y = CASES[name]
    model = clone(model).fit(X, y)
    return model, axil.Explainer(model, X, y)


@pytest.mark.parametrize("name", CASES)
def test_supports_agrees_and_every_question_is_answered_or_refused(
    name: str, tmp_path: Any
) -> None:
    model, explainer = fitted(name)
    y = CASES[name][1]
    assert axil.supports(model).kind == explainer.kind == name.split()[0]
    explainer = pickle.loads(pickle.dumps(explainer))
    explanation = explainer(X_NEW)
    k = 1 if explainer.outputs is None else len(explainer.outputs)
    assert explanation.predictions.shape == ((5,) if k == 1 else (5, k))
    assert explainer(X_NEW[:0]).predictions.shape == ((0,) if k == 1 else (0, k))
    rows = {
        "top": (X_NEW,),
        "group": (X_NEW, np.arange(80) % 3),
        "concentration": (X_NEW,),
        "similar": (X_NEW,),
    }
    rows |= {
        "aggregate": (X_NEW, np.ones((1, 5))),
        "removal": (X_NEW,),
        "find_label_issues": (),
        "influence": (X_NEW, y[:5]),
    }
    rows |= {
        "what_if": (X_NEW, {0: y[0]}),
        "diagnostics.leave_one_out": (),
        "shapley": (X_NEW, y[:5]),
        "diagnostics.leverage": (),
    }
    rows |= {
        "jacobian.derivatives": (X_NEW,),
        "jacobian.by_sample_weight": (X_NEW,),
        "refit": (),
        "jacobian.gradient_contributions": (X_NEW,),
    }
    rows |= {
        "precompute": (),
        "jacobian.matrix": (),
        "diagnostics.leave_one_out_curve": (),
        "calibrate": (X_NEW, y[:5]),
        "diagnostics.standard_error": (X_NEW,),
    }
    rows |= {
        "without": (X_NEW, [1]),
        "save": (tmp_path / "there.npz",),
        "to_html": (X_NEW, tmp_path / "page.html"),
    }
    refused = []
    for question, given in rows.items():
        try:
            attrgetter(question)(explainer)(*given)
        except axil.UnsupportedQuestionError:
            refused.append(question)
    with pytest.raises(axil.UnsupportedQuestionError):
        explainer.jacobian.operator  # noqa: B018
    assert {"top", "group", "concentration", "aggregate", "to_html"}.isdisjoint(refused)
    np.testing.assert_allclose(
        explainer.aggregate(X_NEW, np.ones((1, 5))).predictions,
        explanation.predictions.sum(0)[None],
    )


@pytest.mark.parametrize("name", ADDITIVE)
def test_contributions_are_means_of_those_of_the_classifiers(name: str) -> None:
    model, explainer = fitted(f"additive {name}")
    y, whole = CASES[f"additive {name}"][1], getattr(model, "best_estimator_", model)
    rows, new = X.to_numpy(), X_NEW.to_numpy()
    if hasattr(whole, "steps"):
        rows, new, whole = whole[:-1].transform(X), whole[:-1].transform(X_NEW), whole[-1]
    explanation = explainer(X_NEW)
    expected: Any = 0.0
    scores: Any = 0.0
    gone = [3, 8]
    change: Any = 0.0
    folds = [train for train, _ in check_cv(whole.cv, y, classifier=True).split(X, y)]
    for calibrated, fold in zip(whole.calibrated_classifiers_, folds, strict=True):
        alone = axil.Explainer(calibrated.estimator, rows[fold], y[fold])
        own = alone(new)
        spread = np.zeros((*own.contributions.shape[:-1], len(y)))
        spread[..., fold] = own.contributions
        expected, scores = expected + spread / len(folds), scores + own.predictions / len(folds)
        moved = alone.without(new, np.flatnonzero(np.isin(fold, gone)))["change"].to_numpy()
        change = change + moved / len(folds)
    np.testing.assert_allclose(explanation.contributions, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(explanation.predictions, scores, rtol=1e-6)
    probabilities = model.predict_proba(X_NEW)
    shown = probabilities if explainer.outputs is not None else probabilities[:, 1]
    np.testing.assert_allclose(explanation.probabilities, shown, atol=1e-12)
    np.testing.assert_allclose(explainer.top(X_NEW, k=1)["probability"], shown.ravel(), atol=1e-12)
    np.testing.assert_allclose(explainer.without(X_NEW, gone)["change"], change, atol=1e-9)
    assert "means of the classifiers' scores" in explainer.top(X_NEW).attrs["axil"]


def soft(model: Any, rows: Any, targets: Any, weights: Any) -> Any:
    """A logistic regression fitted to shares of the second class, by two weighted copies of each row."""
    twice, labels = np.vstack([rows, rows]), np.repeat([0, 1], len(rows))
    return clone(model).fit(
        twice, labels, sample_weight=np.concatenate([(1 - targets) * weights, targets * weights])
    )


def slope_at_zero(function: Any, step: float = 0.02) -> Any:
    """The derivative of a function at 0 from values on one side of it, to second order."""
    start = function(0.0)
    whole, half = (function(step) - start) / step, (function(step / 2) - start) / (step / 2)
    return 2 * half - whole


@pytest.mark.parametrize("name", ["voting", "bagging"])
def test_derivatives_are_those_of_fits_to_slightly_other_labels(name: str) -> None:
    """Finite differences of the mean probability, every member fitted again."""
    inside = [
        ("a", LogisticRegression(C=0.3, **NEWTON)),
        ("b", LogisticRegression(C=5.0, **NEWTON)),
    ]
    model: Any = VotingClassifier(inside, voting="soft", weights=[1, 3])
    if name == "bagging":
        model = BaggingClassifier(inside[0][1], n_estimators=3, random_state=0, max_features=4)
    model.fit(X.to_numpy(), BINARY)
    found = axil.Explainer(model, X.to_numpy(), BINARY)(X_NEW.to_numpy())
    np.testing.assert_allclose(
        found.predictions, model.predict_proba(X_NEW.to_numpy())[:, 1], atol=1e-9
    )
    targets, row = (model.classes_[1] == BINARY).astype(float), 7
    inwards = 1 - 2 * targets[row]

    def mean(y: Any) -> Any:
        if name == "voting":
            fits = [
                soft(member, X, y, np.ones(80)).predict_proba(X_NEW.to_numpy())[:, 1]
                for _, member in inside
            ]
            return (fits[0] + 3 * fits[1]) / 4
        total: Any = 0.0
        for columns, drawn in zip(model.estimators_features_, model.estimators_samples_):
            rows, counts = X.to_numpy()[:, columns], np.bincount(drawn, minlength=80).astype(float)
            fit = soft(inside[0][1], rows, y, counts)
            total = total + fit.predict_proba(X_NEW.to_numpy()[:, columns])[:, 1] / 3
        return total

    slope = inwards * slope_at_zero(
        lambda step: mean(targets + inwards * step * (np.arange(80) == row))
    )
    np.testing.assert_allclose(found.weights[:, row], slope, rtol=1e-2, atol=1e-5)


def test_derivatives_of_numbers_are_those_of_fits_to_slightly_other_targets() -> None:
    model = BaggingRegressor(PoissonRegressor(**NEWTON), n_estimators=3, random_state=0).fit(X, Y)
    explainer = axil.Explainer(model, X, Y)
    row = 7

    def mean(step: float) -> Any:
        targets, total = Y + step * (np.arange(80) == row), 0.0
        for member, drawn in zip(model.estimators_, model.estimators_samples_):
            counts = np.bincount(drawn, minlength=80).astype(float)
            again = clone(member).fit(X.to_numpy(), targets, sample_weight=counts)
            total = total + again.predict(X_NEW.to_numpy()) / 3
        return total

    np.testing.assert_allclose(
        explainer(X_NEW).weights[:, row], slope_at_zero(mean), rtol=1e-2, atol=1e-5
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_rows(weighted: bool) -> None:
    weight = WEIGHT if weighted else None
    for model in (CalibratedClassifierCV(BOOSTED, cv=3), VotingClassifier(MEMBERS, voting="soft")):
        made = clone(model).fit(X, BINARY, sample_weight=weight)
        explainer = axil.Explainer(made, X, BINARY, sample_weight=weight)
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(made, X, BINARY, sample_weight=None if weighted else WEIGHT)
        assert explainer.verification is not None


def test_members_that_cannot_be_explained_are_named() -> None:
    models = {
        "svc": VotingClassifier([("logit", LOGIT), ("svc", SVC(probability=True))], voting="soft"),
        "calibrated": VotingClassifier(
            [("logit", LOGIT), ("c", CalibratedClassifierCV(BOOSTED))], voting="soft"
        ),
    }
    for model in models.values():
        model.fit(X, BINARY)
        support = axil.supports(model)
        assert support.kind == "no"
        with pytest.raises(axil.UnsupportedModelError):
            axil.Explainer(model, X, BINARY)


def test_wrong_data_are_noticed() -> None:
    for name in ("additive lightgbm", "derivative voting", "derivative bagging"):
        model, _ = fitted(name)
        with pytest.raises(axil.ExactnessError, match="one of the models inside"):
            axil.Explainer(model, X, np.roll(BINARY, 1))
        with pytest.raises(axil.InputError, match="takes no"):
            axil.Explainer(model, X, BINARY, init_score=np.zeros(80))
    with pytest.raises(axil.InputError, match="calibrated by curves"):
        axil.Explainer(fitted("derivative calibrated")[0], X, BINARY, output="probability")


def test_one_against_the_rest_has_scores_or_probabilities() -> None:
    model, explainer = fitted("derivative one against the rest")
    np.testing.assert_allclose(
        explainer(X_NEW).predictions, model.decision_function(X_NEW), rtol=1e-9
    )
    found = axil.Explainer(model, X, SEVERAL, output="probability")(X_NEW)
    expected = np.stack(
        [part.predict_proba(X_NEW.to_numpy())[:, 1] for part in model.estimators_], axis=1
    )
    np.testing.assert_allclose(found.predictions, expected, rtol=1e-9)
    for k, part in enumerate(model.estimators_):
        own = axil.Explainer(part, X.to_numpy(), (k == SEVERAL).astype(int))(
            X_NEW.to_numpy()
        ).weights
        np.testing.assert_allclose(explainer(X_NEW).weights[:, k], own, rtol=1e-9, atol=1e-12)

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
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

import axil
from tests.adapters.sklearn_models import table

DATA = table(150)
X, X_NEW = DATA.X, DATA.X_new[:6]
LABELS = np.where(np.median(DATA.y) < DATA.y, "yes", "no")
TEMPERATURE = parse_version(sklearn.__version__) >= parse_version("1.8")


def _lightgbm(**settings: Any) -> Any:
    return lgb.LGBMClassifier(**{"n_estimators": 5, "n_jobs": 1, "min_child_samples": 5, "verbose": -1} | settings)


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
    np.testing.assert_allclose(explanation.probabilities, expected if several else expected[:, 1], atol=1e-12)
    inside = axil.Explainer(
        model.calibrated_classifiers_[0].estimator,
        rows,
        np.searchsorted(np.unique(labels), labels) if method == "temperature" and not several else labels,
    )(new)
    np.testing.assert_array_equal(explanation.contributions, inside.contributions)
    shown = explainer.top(new, k=1)["probability"].to_numpy()
    np.testing.assert_allclose(shown, expected.ravel() if several else expected[:, 1], atol=1e-12)
    assert "calibrated" in explainer.top(new, k=1).attrs["axil"]


def test_without_holds_the_curve() -> None:
    """Scores without some rows go through the same curve."""
    model = CalibratedClassifierCV(_stages(), cv=3, ensemble=False).fit(X, LABELS)
    found = axil.Explainer(model, X, LABELS).without(X_NEW, [0, 5, 7])
    curve = model.calibrated_classifiers_[0].calibrators[0]
    np.testing.assert_allclose(found["probability after"], 1 / (1 + np.exp(curve.a_ * found["after"] + curve.b_)))
    np.testing.assert_allclose(found["probability before"], model.predict_proba(X_NEW)[:, 1])
    assert (found["change"] != 0).any()


@pytest.mark.skipif(not find_spec("sklearn.frozen"), reason="scikit-learn has it from 1.6 on")
def test_a_frozen_classifier_is_proven_on_the_rows_of_its_own_fit() -> None:
    frozen = import_module("sklearn.frozen").FrozenEstimator(_lightgbm().fit(X[:100], LABELS[:100]))
    model = CalibratedClassifierCV(frozen).fit(X[100:], LABELS[100:])
    explanation = axil.Explainer(model, X[:100], LABELS[:100])(X_NEW)
    np.testing.assert_allclose(explanation.probabilities, model.predict_proba(X_NEW)[:, 1], atol=1e-12)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X[100:], LABELS[100:])


def test_forests_have_weights_of_their_probabilities_before_calibration() -> None:
    model = CalibratedClassifierCV(RandomForestClassifier(5, random_state=0), cv=3, ensemble=False).fit(X, LABELS)
    explainer = pickle.loads(pickle.dumps(axil.Explainer(model, X, LABELS)))
    inside = model.calibrated_classifiers_[0].estimator
    np.testing.assert_allclose(explainer(X_NEW).predictions, inside.predict_proba(X_NEW), atol=1e-12)
    assert "before calibration" in explainer.top(X_NEW).attrs["axil"]


def test_a_logistic_regression_has_derivatives_of_its_score() -> None:
    inside = LogisticRegression(tol=1e-10, max_iter=1000)
    model = CalibratedClassifierCV(make_pipeline(StandardScaler(), inside), cv=3, ensemble=False).fit(X, LABELS)
    assert axil.supports(model).kind == "derivative"
    assert axil.Explainer(model, X, LABELS).kind == "derivative"
    for wrapped in (
        model,
        make_pipeline(StandardScaler(), CalibratedClassifierCV(inside, ensemble=False)).fit(X, LABELS),
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
        found = axil.Explainer(model, X, LABELS)(X_NEW)
        np.testing.assert_allclose(found.probabilities, model.predict_proba(X_NEW)[:, 1], atol=1e-12)


def test_the_lines_of_the_refusal_of_an_ensemble_work() -> None:
    """Each classifier is proven on the rows of its own fold, which are drawn again, and shows its own calibrated probability."""
    model = CalibratedClassifierCV(_lightgbm(), cv=3).fit(X, LABELS)
    support = axil.supports(model)
    assert (support.kind, support.setting) == ("no", "ensemble")
    with pytest.raises(axil.UnsupportedModelError) as refused:
        axil.Explainer(model, X, LABELS)
    lines = "\n".join(line.strip() for line in str(refused.value).splitlines()[1:])
    names = {"sklearn": sklearn, "np": np, "axil": axil, "model": model, "X": pd.DataFrame(X), "y": LABELS}
    exec(lines.replace("axil.Explainer", "explainer = axil.Explainer"), names)
    own = model.calibrated_classifiers_[0]
    np.testing.assert_allclose(names["explainer"](X_NEW).probabilities, own.predict_proba(X_NEW)[:, 1], atol=1e-12)
    train, _ = list(check_cv(3, LABELS, classifier=True).split(X, LABELS))[1]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(own, X[train], LABELS[train])


def test_wrong_labels_do_not_pass() -> None:
    model = CalibratedClassifierCV(_lightgbm(), cv=3, ensemble=False).fit(X, LABELS)
    swapped = LABELS.copy()
    swapped[[np.argmax(LABELS == "yes"), np.argmax(LABELS == "no")]] = ["no", "yes"]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, swapped)


def test_a_mean_of_calibrated_members_is_refused_by_name() -> None:
    calibrated = CalibratedClassifierCV(RandomForestClassifier(3, random_state=0), cv=3, ensemble=False)
    model = VotingClassifier([("a", calibrated)], voting="soft").fit(X, LABELS)
    with pytest.raises(axil.UnsupportedModelError, match=r"named_estimators_\['a'\].*Calibrate the whole"):
        axil.Explainer(model, X, LABELS)


@pytest.mark.parametrize("wrap", [lambda m: CalibratedClassifierCV(m, cv=3, ensemble=False), FixedThresholdClassifier])
def test_refit_keeps_the_curve_and_the_threshold(wrap: Any) -> None:
    model = wrap(_lightgbm()).fit(X, LABELS)
    explainer = axil.Explainer(model, X, LABELS)
    again = explainer.refit(drop=[3, 4])
    assert type(again.model) is type(model)
    expected = explainer.without(X_NEW, [3, 4])["probability after"]
    np.testing.assert_allclose(again.model.predict_proba(X_NEW)[:, 1], expected, atol=1e-6)

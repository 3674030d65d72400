"""Searches over settings: the model inside is explained, wherever the search is."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

import axil
from tests.adapters.sklearn_models import table

DATA = table(120)
X, Y, X_NEW = DATA.X, DATA.y, DATA.X_new
GRID = {"alpha": [0.1, 10.0]}
TREES = lgb.LGBMRegressor(n_estimators=4, n_jobs=1, min_child_samples=5, verbose=-1)


class OwnSearch(BaseEstimator):
    """A search of another library, with the attributes that such have."""

    def __init__(self, estimator, refit=True):
        self.estimator, self.refit = estimator, refit

    @property
    def best_params_(self):
        return {}

    def fit(self, X, y):
        if self.refit:
            self.best_estimator_ = self.estimator.fit(X, y)
        return self

    def predict(self, X):
        return self.best_estimator_.predict(X)


class OtherSearchCV(OwnSearch):
    def fit(self, X, y):
        self.study_ = None
        return super().fit(X, y)


SEARCHES = {
    "grid": lambda: GridSearchCV(Ridge(), GRID, cv=3),
    "random": lambda: RandomizedSearchCV(
        Ridge(), {"alpha": loguniform(0.1, 10)}, n_iter=2, cv=2, random_state=0
    ),
    "halving grid": lambda: HalvingGridSearchCV(
        TREES, {"num_leaves": [4, 8]}, cv=2, random_state=0
    ),
    "halving random": lambda: HalvingRandomSearchCV(
        Ridge(), {"alpha": loguniform(0.1, 10)}, cv=2, random_state=0
    ),
    "of a pipeline": lambda: GridSearchCV(
        make_pipeline(StandardScaler(), TREES), {"lgbmregressor__num_leaves": [4, 8]}, cv=2
    ),
    "in a pipeline": lambda: make_pipeline(StandardScaler(), GridSearchCV(Ridge(), GRID, cv=3)),
    "in a pipeline in a search": lambda: GridSearchCV(
        make_pipeline(StandardScaler(), GridSearchCV(Ridge(), GRID, cv=2)),
        {"standardscaler__with_mean": [True, False]},
        cv=2,
    ),
    "forest": lambda: GridSearchCV(
        RandomForestRegressor(3, random_state=0), {"max_depth": [2, 4]}, cv=2
    ),
    "own": lambda: OwnSearch(Ridge()),
}


@cache
def fitted(name):
    return SEARCHES[name]().fit(X, Y)


@pytest.mark.parametrize("name", SEARCHES)
def test_weights_make_the_predictions_of_the_search(name):
    model = fitted(name)
    assert axil.supports(model).exact
    explanation = axil.Explainer(model, X, Y)(X_NEW)
    expected = model.predict(X_NEW)
    # 1e-6: LightGBM keeps targets in float32; all others are closer by far
    np.testing.assert_allclose(
        explanation.predictions, expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.parametrize("name", SEARCHES)
def test_other_data_than_those_of_the_fit_show(name):
    model = fitted(name)
    one, two = Y.copy(), Y.copy()
    one[3] += 0.5
    two[[4, 90]] = two[[90, 4]]
    for rows, targets in ((X, one), (X, two), (X[1:], Y[1:])):
        with pytest.raises((axil.ExactnessError, axil.InputError)):
            axil.Explainer(model, rows, targets)


def test_names_of_columns_are_those_of_the_fit():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = GridSearchCV(Ridge(), GRID, cv=3).fit(frame, Y)
    with pytest.raises(axil.InputError, match="another order"):
        axil.Explainer(model, frame[list("bacdef")], Y)


@pytest.mark.parametrize(
    "model", [GridSearchCV(Ridge(), GRID, refit=False, cv=3), OtherSearchCV(Ridge(), refit=False)]
)
def test_a_search_that_keeps_no_model_is_refused(model):
    model.fit(X, Y)
    for ask in (axil.supports, lambda found: axil.Explainer(found, X, Y)):
        with pytest.raises(axil.InputError, match=r"refit=False: it keeps no model.*best_params_"):
            ask(model)


def test_a_search_that_was_not_fitted():
    with pytest.raises(axil.InputError, match="GridSearchCV has not been fitted"):
        axil.supports(GridSearchCV(Ridge(), GRID))


def test_what_is_refused_alone_is_refused_inside():
    model = GridSearchCV(
        make_pipeline(TargetEncoder(), Ridge()), {"ridge__alpha": [1.0]}, cv=2
    ).fit(X.round(), Y)
    assert axil.supports(model).setting == "transformer"
    model = GridSearchCV(
        lgb.LGBMRegressor(n_estimators=2, objective="fair", verbose=-1), {"num_leaves": [4]}, cv=2
    ).fit(X, Y)
    assert axil.supports(model).setting == "objective"


@pytest.mark.parametrize(
    "wrap", [lambda search: search, lambda search: make_pipeline(StandardScaler(), search)]
)
def test_derivatives_look_into_searches_too(wrap):
    model = wrap(
        GridSearchCV(LogisticRegression(tol=1e-10, max_iter=1000), {"C": [0.1, 1.0]}, cv=3)
    ).fit(X, Y > 5)
    assert axil.supports(model).kind == "derivative"
    weights = axil.Explainer(model, X, Y > 5)(X_NEW).weights
    search = model if isinstance(model, GridSearchCV) else model[-1]
    rows = [X, X_NEW] if search is model else [model[:-1].transform(part) for part in (X, X_NEW)]
    np.testing.assert_array_equal(
        axil.Explainer(search.best_estimator_, rows[0], Y > 5)(rows[1]).weights, weights
    )


def test_frozen_models_are_looked_into():
    frozen = pytest.importorskip("sklearn.frozen", reason="scikit-learn has it from 1.6 on")
    for inner in (Ridge(), make_pipeline(StandardScaler(), Ridge())):
        model = frozen.FrozenEstimator(inner.fit(X, Y))
        np.testing.assert_allclose(
            axil.Explainer(model, X, Y)(X_NEW).predictions, model.predict(X_NEW)
        )


@pytest.mark.parametrize("kind", [RandomForestClassifier, GradientBoostingClassifier])
def test_a_threshold_leaves_the_model_inside_as_it_is(kind):
    """Its probabilities, or scores, are explained; the threshold moves the class alone."""
    labels = np.median(Y) < Y
    inside = kind(n_estimators=5, random_state=0)
    fixed = FixedThresholdClassifier(inside, threshold=0.3).fit(X, labels)
    tuned = TunedThresholdClassifierCV(inside, cv=3, random_state=0).fit(X, labels)
    models = [fixed, tuned]
    if find_spec("sklearn.frozen"):  # from scikit-learn 1.6 on
        kept = import_module("sklearn.frozen").FrozenEstimator(
            kind(n_estimators=5, random_state=0).fit(X, labels)
        )
        models.append(FixedThresholdClassifier(kept).fit(X, labels))
    for model in models:
        explainer = axil.Explainer(model, X, labels)
        assert axil.supports(model).kind == explainer.kind
        found = np.asarray(explainer.explain(X_NEW[:3]).predictions).reshape(3, -1)[:, -1]
        expected = model.predict_proba(X_NEW[:3])[:, 1]
        if explainer.kind == "additive":
            expected = np.log(expected / (1 - expected))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        table = explainer.top(X_NEW[:3], 1)
        if isinstance(model, FixedThresholdClassifier):
            left_out = "without the threshold 0.3 of FixedThresholdClassifier"
        else:
            left_out = f"the threshold {model.best_threshold_:.6g} of TunedThresholdClassifierCV"
        if getattr(model, "threshold", 0.3) != "auto":
            assert left_out in table.attrs["axil"]
        swapped = labels.copy()
        swapped[[np.argmax(labels), np.argmin(labels)]] = [False, True]
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(model, X, swapped)
    with pytest.raises(axil.InputError, match="has not been fitted"):
        axil.Explainer(FixedThresholdClassifier(inside), X, labels)


def test_tables_state_a_threshold_that_the_predicted_class_leaves_out():
    labels = np.median(Y) < Y
    inside = RandomForestClassifier(n_estimators=5, random_state=0)
    fixed = FixedThresholdClassifier(inside, threshold=0.9)
    in_pipeline = make_pipeline(StandardScaler(), fixed).fit(X, labels)
    table = axil.Explainer(in_pipeline, X, labels).top(X, 1).drop_duplicates("query")
    assert "without the threshold 0.9" in table.attrs["axil"]
    assert list(table["prediction"]) != list(in_pipeline.predict(X))
    counted = axil.Explainer(in_pipeline, X, labels).min_label_changes(X[:2], 0.5, (0.0, 1.0))
    assert "without the threshold 0.9" in counted.attrs["axil"]
    smooth = FixedThresholdClassifier(LogisticRegression(tol=1e-10), threshold=0.9).fit(X, labels)
    derivatives = axil.Explainer(smooth, X, labels).top(X[:2], 1)
    assert "without the threshold 0.9" in derivatives.attrs["axil"]
    around = FixedThresholdClassifier(inside, threshold="auto").fit(X, labels)
    calibrated = CalibratedClassifierCV(fixed, ensemble=False).fit(X, labels)
    for model in (around, calibrated):  # their class is that of largest probability
        table = axil.Explainer(model, X, labels).top(X, 1).drop_duplicates("query")
        assert "threshold" not in table.attrs["axil"]
        assert list(table["prediction"]) == list(model.predict(X))

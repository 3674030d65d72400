"""Classifiers by neighbours: probabilities are weighted means of the one-hot classes of the neighbours."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.ensemble import BaggingRegressor, VotingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.adapters.sklearn_models import Case, labels, table

DATA = table(150)
Y = labels(DATA.y)


def fit(model, X=DATA.X, y=Y, X_new=DATA.X_new):
    return Case(model.fit(X, y), X, y, None, X_new)


CASES = {
    "uniform": lambda: fit(KNeighborsClassifier(7)),
    "uniform brute": lambda: fit(KNeighborsClassifier(7, algorithm="brute")),
    "by distance": lambda: fit(KNeighborsClassifier(5, weights="distance")),
    "by a function": lambda: fit(KNeighborsClassifier(5, weights=lambda d: np.exp(-d))),
    "two classes of numbers": lambda: fit(KNeighborsClassifier(5), y=(DATA.y > 5) + 1),
    "sparse": lambda: fit(
        KNeighborsClassifier(5), csr_matrix(DATA.X), X_new=csr_matrix(DATA.X_new)
    ),
    "radius": lambda: fit(RadiusNeighborsClassifier(30.0)),
    "radius brute": lambda: fit(RadiusNeighborsClassifier(30.0, algorithm="brute")),
    "radius by distance": lambda: fit(
        RadiusNeighborsClassifier(30.0, weights="distance", outlier_label="few")
    ),
    "pipeline": lambda: fit(
        make_pipeline(StandardScaler(), KNeighborsClassifier(3, metric="manhattan"))
    ),
    "ties brute": lambda: fit(
        KNeighborsClassifier(5, algorithm="brute"), DATA.X.round(), X_new=DATA.X_new.round()
    ),
    "ties": lambda: fit(KNeighborsClassifier(5), DATA.X.round(), X_new=DATA.X_new.round()),
}
CASES = {name: cache(make) for name, make in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_weights_make_the_probabilities(name):
    case = CASES[name]()
    assert axil.supports(case.model).exact
    explainer = axil.Explainer(case.model, case.X, case.y)
    assert explainer.outputs.tolist() == case.model.classes_.tolist()
    expected = case.model.predict_proba(case.X_new)
    for sparse in (False, True):
        explanation = explainer.explain(case.X_new, sparse=sparse)
        # sums of a few float64 numbers
        np.testing.assert_allclose(explanation.weights @ case.targets, expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(explanation.weights.sum(axis=1), 1.0, rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_other_data_than_those_of_the_fit_show(name):
    case = CASES[name]()
    first, other = 3, int(np.flatnonzero(case.y != case.y[3])[0])
    one, two = case.y.copy(), case.y.copy()
    one[first] = case.y[other]
    two[[first, other]] = two[[other, first]]
    wrong = [replace(case, y=one), replace(case, y=two), replace(case, X=case.X[1:], y=case.y[1:])]
    for given in wrong:
        with pytest.raises((axil.ExactnessError, axil.InputError)):
            axil.Explainer(case.model, given.X, given.y)


def test_what_if_classes_were_others_is_a_refit():
    case = CASES["uniform"]()
    changed = case.y.copy()
    changed[:3] = "few"
    changes = axil.Explainer(case.model, case.X, case.y).what_if(
        case.X_new, dict.fromkeys(range(3), "few")
    )
    expected = KNeighborsClassifier(7).fit(case.X, changed).predict_proba(case.X_new)
    np.testing.assert_allclose(
        changes["after"].to_numpy().reshape(expected.shape), expected, rtol=0, atol=1e-14
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", [None, "few", "most_frequent"])
def test_a_row_without_neighbours_is_refused(label):
    model = RadiusNeighborsClassifier(30.0, outlier_label=label).fit(DATA.X, Y)
    explainer = axil.Explainer(model, DATA.X, Y)
    with pytest.raises(
        axil.InputError,
        match=r"no training row within radius=30\.0: the model predicts its outlier_label",
    ):
        explainer(DATA.X_new + 1e6)


@pytest.mark.parametrize("kind", [KNeighborsClassifier(3), RadiusNeighborsClassifier(30.0)])
def test_classes_of_several_labels(kind):
    """Each label has the weights of a classifier of its own, and other labels move both as a fit to them does."""
    labels = np.stack([Y, np.where(DATA.y > 5, "yes", "no")], axis=1).astype(object)
    model = clone(kind).fit(DATA.X, labels)
    explainer = axil.Explainer(model, DATA.X, pd.DataFrame(labels, columns=["size", "above"]))
    expected = np.hstack(model.predict_proba(DATA.X_new))
    np.testing.assert_allclose(explainer(DATA.X_new).predictions, expected, rtol=0, atol=1e-14)
    names = [f"{label}: {name}" for label, own in enumerate(model.classes_) for name in own]
    assert explainer.outputs.tolist() == names
    alone = axil.Explainer(clone(kind).fit(DATA.X, Y), DATA.X, Y)
    np.testing.assert_array_equal(explainer(DATA.X_new).weights, alone(DATA.X_new).weights)
    changed = labels.copy()
    changed[:3] = ["few", "no"]
    predictions_after = explainer.what_if(DATA.X_new, {row: ["few", "no"] for row in range(3)})[
        "after"
    ].to_numpy()
    expected = np.hstack(clone(kind).fit(DATA.X, changed).predict_proba(DATA.X_new))
    np.testing.assert_allclose(
        predictions_after.reshape(expected.shape), expected, rtol=0, atol=1e-14
    )
    for wrong, words in ((Y, "no columns; expected 2"), (labels[:, :1], "1 columns; expected 2")):
        with pytest.raises(axil.InputError, match=words):
            axil.Explainer(model, DATA.X, wrong)


@pytest.mark.parametrize("kind", [KNeighborsRegressor, KNeighborsClassifier])
def test_a_function_that_makes_no_shares_of_a_distance_of_zero(kind):
    """The model itself predicts nan for its training rows."""
    y = Y if kind is KNeighborsClassifier else DATA.y
    model = kind(5, weights=lambda d: 1 / d**2).fit(DATA.X, y)
    with pytest.raises(axil.InputError, match=r"row 0 \(from 0\): the model itself predicts nan"):
        axil.Explainer(model, DATA.X, y)


SINGLE = {
    "neighbours": lambda: KNeighborsRegressor(7),
    "by distance": lambda: KNeighborsRegressor(7, weights="distance"),
    "radius": lambda: RadiusNeighborsRegressor(30.0),
    "a process": lambda: GaussianProcessRegressor(alpha=0.1, normalize_y=True, optimizer=None),
    "bagging": lambda: BaggingRegressor(KNeighborsRegressor(5), 5, random_state=0),
    "voting": lambda: VotingRegressor([("near", KNeighborsRegressor(5)), ("far", Ridge())]),
    "outputs": lambda: MultiOutputRegressor(KNeighborsRegressor(4)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_means_of_targets_in_single_precision(name):
    """scikit-learn takes these means in the type of the targets; in double precision they are 1e-7 of the targets off."""
    y = (1000 + 300 * DATA.y).astype(np.float32)
    if name == "outputs":
        y = np.column_stack([y, y**2 / 1000])
    model = SINGLE[name]().fit(DATA.X, y)
    explanation = axil.Explainer(model, DATA.X, y).explain(DATA.X_new)
    expected, double = model.predict(DATA.X_new), SINGLE[name]().fit(DATA.X, y.astype(np.float64))
    np.testing.assert_allclose(explanation.predictions, expected, rtol=1e-5)
    np.testing.assert_allclose(explanation.predictions, double.predict(DATA.X_new), rtol=1e-12)
    changed = y.copy()
    changed[3] *= np.float32(1.001)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, DATA.X, changed)

"""Trees and forests of several labels per row, each with classes of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import axil
from tests.adapters.sklearn_models import indicators, table, two_labels

DATA = table(120)
X, X_NEW = DATA.X, DATA.X_new[:6]
Y = two_labels(DATA.y)
NAMES = ["0: few", "0: middling", "0: plenty", "1: above", "1: below"]
FOREST = RandomForestClassifier(5, random_state=0)


def test_weights_are_shares_of_leaves() -> None:
    """By scikit-learn's own leaves and counts."""
    model = DecisionTreeClassifier(max_depth=3).fit(X, Y, sample_weight=DATA.weight)
    explanation = axil.Explainer(model, X, Y, sample_weight=DATA.weight)(X_NEW)
    own = (model.apply(X_NEW)[:, None] == model.apply(X)) * DATA.weight
    np.testing.assert_allclose(
        explanation.weights, own / own.sum(axis=1, keepdims=True), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        explanation.predictions, np.hstack(model.predict_proba(X_NEW)), rtol=0, atol=1e-12
    )
    assert explanation.outputs is not None
    assert explanation.outputs.tolist() == NAMES


@pytest.mark.parametrize(
    "table_of",
    [
        lambda y: y,
        lambda y: y.tolist(),
        lambda y: pd.DataFrame(y, columns=["size", "half"]),
        lambda y: pl.DataFrame({"size": y[:, 0].tolist(), "half": y[:, 1].tolist()}),
    ],
    ids=["array", "list", "pandas", "polars"],
)
def test_labels_come_in_any_table(table_of: Any, tmp_path: Any) -> None:
    model = clone(FOREST).fit(X, Y)
    explainer = axil.Explainer(model, X, table_of(Y))
    top = explainer.top(X_NEW, k=1)
    assert list(dict.fromkeys(top["output"])) == NAMES
    explainer.save(tmp_path / "saved.npz")
    loaded = axil.load(tmp_path / "saved.npz", model)
    np.testing.assert_array_equal(loaded(X_NEW).weights, explainer(X_NEW).weights)
    assert loaded.outputs.tolist() == NAMES


def test_indicators() -> None:
    """Two outputs per label: that a row has it not, and that it has it."""
    y = indicators(DATA.y)
    model = clone(FOREST).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    assert explainer.outputs.tolist() == ["0: 0", "0: 1", "1: 0", "1: 1"]
    expected = np.stack([np.stack([1 - own, own], axis=1) for own in y.T], axis=1).reshape(
        len(y), 4
    )
    np.testing.assert_array_equal(explainer.targets, expected)


def test_changes_of_labels_and_rows() -> None:
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, Y)
    explainer = axil.Explainer(model, X, pd.DataFrame(Y))
    leaves, new = model.apply(X), model.apply(X_NEW)
    changed, gone = Y.copy(), np.array([2, 9, 11])
    changed[4] = ["few", "below"]

    def shares(y: Any, rows: Any) -> Any:
        hot = np.hstack([own[:, None] == classes for own, classes in zip(y.T, model.classes_)])
        return np.stack([hot[rows][leaves[rows] == leaf].mean(axis=0) for leaf in new])

    every = np.arange(len(Y))
    after = explainer.what_if(X_NEW, {4: ["few", "below"]})["after"].to_numpy().reshape(6, 5)
    np.testing.assert_allclose(after, shares(changed, every), rtol=0, atol=1e-12)
    left = np.setdiff1d(every, gone)
    expected = shares(Y, left)
    after = explainer.without(X_NEW, gone)["after"].to_numpy().reshape(6, 5)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12)
    again = explainer.refit(drop=gone)
    np.testing.assert_allclose(
        np.hstack(again.model.predict_proba(X_NEW)), expected, rtol=0, atol=1e-12
    )
    more = explainer.refit(add=(X_NEW, Y[:6]))
    assert len(more.targets) == len(Y) + 6


def test_around_them_and_wrong_labels() -> None:
    piped = make_pipeline(StandardScaler(), GridSearchCV(FOREST, {"max_depth": [3]}, cv=2)).fit(
        X, Y
    )
    assert axil.supports(piped).exact
    explanation = axil.Explainer(piped, X, Y)(X_NEW)
    np.testing.assert_allclose(
        explanation.predictions, np.hstack(piped.predict_proba(X_NEW)), rtol=0, atol=1e-12
    )
    model = clone(FOREST).fit(X, Y)
    for wrong, words in (
        (Y[:, 0], "y_train has no columns; expected 2"),
        (np.hstack([Y, Y]), "y_train has 4 columns; expected 2"),
        (Y[:, ::-1], "y_train holds 'below' at position 0; the model knows the classes few"),
    ):
        with pytest.raises(axil.InputError, match=words):
            axil.Explainer(model, X, wrong)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(model, X, np.roll(Y, 1, axis=0))

"""Transformers of all kinds before the last step: held fixed, refused where they need the targets."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

import axil
from tests.adapters.sklearn_models import table

DATA = table(150)
Y = DATA.y


def frame(rows):
    made = pd.DataFrame(rows[:, [0, 1, 2, 3, 5]], columns=list("abcde"))
    return made.assign(kind=[f"kind {int(kind)}" for kind in rows[:, 4]])


X, X_NEW = frame(DATA.X), frame(DATA.X_new)
TREES = lgb.LGBMRegressor(n_estimators=4, min_child_samples=5, n_jobs=1, verbose=-1)
# LightGBM keeps targets in float32
CLOSE = 1e-6 * np.abs(Y).max()


class Ratios(TransformerMixin, BaseEstimator):
    """A frame in, a frame out."""

    def fit(self, X, y=None):
        self.n_features_in_, self.feature_names_in_ = X.shape[1], np.array(X.columns, dtype=object)
        self.mean_ = X["b"].mean()
        return self

    def transform(self, X):
        return X.assign(ratio=X["a"] / (1 + X["b"] ** 2) - self.mean_)


class ByColumn(Ratios):
    """Keeps its transformers by the names of the columns."""

    def fit(self, X, y=None):
        super().fit(X)
        self.transformers_ = {
            "kind": OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(X[["kind"]])
        }
        return self

    def transform(self, X):
        coded = self.transformers_["kind"].transform(X[["kind"]])
        return X.drop(columns="kind").assign(
            **{f"kind {i}": column for i, column in enumerate(coded.T)}
        )


class ByTargets(ByColumn):
    """The same, with an encoder that looks at the targets."""

    def fit(self, X, y=None):
        super().fit(X)
        self.transformers_ = {"kind": TargetEncoder().fit(X[["kind"]], y)}
        return self


class Means(Ratios):
    """Demands the targets and says so in no tag."""

    def fit(self, X, y):
        super().fit(X)
        self.means_ = pd.Series(y, index=X.index).groupby(X["kind"]).mean()
        return self

    def transform(self, X):
        return X.assign(kind=X["kind"].map(self.means_))


class Bare:
    """Says nothing about the columns that it was fitted on."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X[list("abcd")]

    def fit_transform(self, X, y=None):
        return self.transform(X)


def encoder():
    onehot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (onehot, ["kind"]), remainder=StandardScaler(), verbose_feature_names_out=False
    )


CASES = {
    "frames out": lambda: make_pipeline(Ratios(), encoder().set_output(transform="pandas"), TREES),
    "set_output": lambda: make_pipeline(encoder(), StandardScaler(), Ridge()).set_output(
        transform="pandas"
    ),
    "by column": lambda: make_pipeline(ByColumn(), TREES),
    "union": lambda: make_pipeline(
        encoder(), make_union(StandardScaler(), SelectKBest(f_regression, k=2)), Ridge()
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_transformers_are_held_fixed(name):
    model = CASES[name]().fit(X, Y)
    assert axil.supports(model).exact
    explainer = axil.Explainer(model, X, Y)
    np.testing.assert_allclose(
        explainer(X_NEW).predictions, model.predict(X_NEW), rtol=0, atol=CLOSE
    )
    wrong = Y.copy()
    wrong[[3, int(Y.argmax())]] = wrong[[int(Y.argmax()), 3]]
    with pytest.raises((axil.ExactnessError, axil.InputError)):
        axil.Explainer(model, X, wrong)


@pytest.mark.parametrize(
    ("transformer", "name"), [(Means(), "Means"), (ByTargets(), "TargetEncoder"), (Bare(), "Bare")]
)
def test_other_transformers_are_refused_by_name(transformer, name):
    model = make_pipeline(transformer, StandardScaler(), Ridge()).fit(X, Y)
    found = axil.supports(model)
    assert (found.kind, found.setting) == ("no", "transformer")
    assert name in found.reason


PASSED = {
    "alone": lambda: make_pipeline("passthrough", TREES),
    "none": lambda: Pipeline([("scale", None), ("trees", TREES)]),
    "several": lambda: make_pipeline("passthrough", None, TREES),
    "before another": lambda: make_pipeline("passthrough", StandardScaler(), None, Ridge()),
    "nested": lambda: make_pipeline(make_pipeline("passthrough", StandardScaler()), TREES),
    "nested alone": lambda: make_pipeline(
        make_pipeline("passthrough"), make_pipeline(StandardScaler(), TREES)
    ),
    "search": lambda: GridSearchCV(
        Pipeline([("scale", StandardScaler()), ("trees", TREES)]),
        {"scale": ["passthrough", None]},
        cv=2,
    ),
}


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("name", PASSED)
def test_first_steps_that_hand_columns_on_are_left_out(name, framed):
    """They say nothing of the columns of the fit; the first step that was fitted does."""
    rows, new = (
        (X[list("abc")], X_NEW[list("abc")]) if framed else (DATA.X[:, :3], DATA.X_new[:, :3])
    )
    model = PASSED[name]().fit(rows, Y)
    assert axil.supports(model).exact
    explainer = axil.Explainer(model, rows, Y)
    np.testing.assert_allclose(explainer(new).predictions, model.predict(new), rtol=0, atol=CLOSE)
    with pytest.raises(axil.InputError, match=r"columns|features"):
        explainer(new[["a", "b"]] if framed else new[:, :2])


def test_first_steps_before_a_smooth_learner():
    rows, labels = DATA.X[:, :3], (np.median(Y) < Y).astype(int)
    model = make_pipeline("passthrough", LogisticRegression(tol=1e-10)).fit(rows, labels)
    alone = LogisticRegression(tol=1e-10).fit(rows, labels)
    found, expected = (
        axil.Explainer(own, rows, labels)(rows[:3]).weights for own in (model, alone)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)

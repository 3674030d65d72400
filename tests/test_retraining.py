"""Real refits: their spread against formulas and loops written by hand, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import axil
from axil import InputError

RNG = np.random.default_rng(0)
X = pd.DataFrame(
    RNG.normal(size=(80, 3)), columns=["a", "b", "c"], index=[f"row {i}" for i in range(80)]
)
Y = 3 * X["a"] + RNG.normal(size=80) + 10
NEW = X.head(5) + 0.1


def test_the_mean_of_drawn_rows_scatters_as_the_textbook_says():
    refits = axil.stability(DummyRegressor(), X, Y, NEW, n=600)
    np.testing.assert_allclose(
        refits.std, np.std(Y) / np.sqrt(len(Y)), rtol=0.15
    )  # the error of 600 draws is 2.9 %
    np.testing.assert_allclose(refits.mean, Y.mean(), atol=5 * np.std(Y) / np.sqrt(len(Y) * 600))


def test_refits_are_those_of_the_rows_drawn():
    found, rng = (
        axil.stability(LinearRegression(), X, Y, NEW, n=3, random_state=7),
        np.random.default_rng(7),
    )
    for own in found.predictions:
        rows = rng.integers(0, len(X), len(X))
        rng.integers(0, 2**31 - 1)  # the seed, which a linear fit has no use for
        np.testing.assert_allclose(
            own, LinearRegression().fit(X.iloc[rows], Y.iloc[rows]).predict(NEW)
        )


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestRegressor(3, random_state=5),
        make_pipeline(StandardScaler(), DecisionTreeRegressor(max_features=1)),
        CatBoostRegressor(
            iterations=3, verbose=False, bootstrap_type="Bernoulli", subsample=0.5, thread_count=1
        ),
        LGBMRegressor(n_estimators=3, subsample=0.5, subsample_freq=1, verbose=-1, n_jobs=1),
    ],
)
def test_other_seeds(estimator):
    refits = axil.stability(estimator, X, Y, NEW, n=4, method="seed")
    assert (refits.std > 0).all()
    np.testing.assert_array_equal(
        axil.stability(estimator, X, Y, NEW, n=4, method="seed").predictions, refits.predictions
    )
    assert (
        not hasattr(estimator, "tree_count_") or estimator.tree_count_ is None
    )  # the estimator itself is not fitted


def test_the_table():
    refits = axil.stability(clone(DecisionTreeRegressor(max_depth=2)), X, Y, NEW, n=40)
    table = refits.table(0.8)
    assert list(table.columns) == ["query", "mean", "std", "lower", "upper"]
    assert table["query"].tolist() == NEW.index.tolist()
    np.testing.assert_allclose(table["lower"], np.quantile(refits.predictions, 0.1, axis=0))
    assert (
        repr(refits)
        == "<axil.Stability: DecisionTreeRegressor, 40 refits to sampled rows, 5 predictions>"
    )


def test_classes_have_probabilities_even_where_none_was_drawn():
    y = np.where(np.arange(80) < 2, "rare", np.where(X["a"] > 0, "high", "low"))
    refits = axil.stability(LogisticRegression(), X, y, NEW, n=12)
    assert refits.predictions.shape == (12, 5, 3)
    np.testing.assert_allclose(refits.predictions.sum(axis=2), 1.0)
    assert refits.outputs.tolist() == ["high", "low", "rare"]
    assert (refits.predictions[:, :, 2] == 0).all(axis=1).any()
    assert list(refits.table().columns)[:2] == ["query", "output"]


def test_weights_are_drawn_with_their_rows():
    weights = np.where(np.arange(80) < 40, 1.0, 0.0)
    refits = axil.stability(DummyRegressor(), X, Y, NEW, n=400, sample_weight=weights)
    np.testing.assert_allclose(refits.mean, Y[:40].mean(), atol=0.2)


def test_the_page_says_how_far_retraining_moves_a_prediction():
    model = LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1)
    explainer = axil.Explainer(clone(model).fit(X, Y), X, Y)
    refits = axil.stability(model, X, Y, NEW, n=5)
    page = explainer.to_html(NEW, stability=refits)
    assert page != explainer.to_html(NEW)
    assert explainer(NEW).to_html(stability=refits, sigma=None) != explainer(NEW).to_html()
    with pytest.raises(
        InputError, match="stability has 5 predictions; expected those of the 3 rows of X"
    ):
        explainer.to_html(NEW.head(3), stability=refits)
    with pytest.raises(
        InputError, match=r"stability is .*; expected what axil\.stability returned"
    ):
        explainer.to_html(NEW, stability=0.1)
    two = LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(X, Y > 10)
    assert axil.Explainer(two, X, Y > 10).to_html(
        NEW, stability=axil.stability(two, X, Y > 10, NEW, n=3)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 1}, "n is 1; expected a whole number from 2 up"),
        ({"method": "jackknife"}, 'method is .*; expected "bootstrap" or "seed"'),
        ({"y": Y[1:]}, "y has shape|y has 79"),
        (
            {"estimator": LGBMRegressor(verbose=-1).fit(X, Y).booster_},
            "estimator is .*; expected an estimator",
        ),
        ({"estimator": LinearRegression(), "method": "seed"}, "LinearRegression has no seed"),
    ],
)
def test_bad_requests_are_named(given, message):
    asked = {"estimator": DecisionTreeRegressor(), "X": X, "y": Y, "X_new": NEW} | given
    with pytest.raises(InputError, match=message):
        axil.stability(**asked)


def test_a_seed_that_changes_nothing_is_told():
    with pytest.warns(
        axil.ApproximationWarning,
        match='the seed changes nothing in this model. .*method="bootstrap"',
    ):
        axil.stability(
            LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1), X, Y, NEW, n=3, method="seed"
        )

"""Sums of predictions: coefficients times the weights, or pushes, of all rows, against those of whole explanations."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import GradientBoostingRegressor

import axil
from axil import ExactnessError, InputError
from tests.contract_models import case_of, explainer_of
from tests.methods.method_models import CLASSES, GROUPS, MODELS, NEW, QUIET, X, Y
from tests.output.page.page_models import data_of

BY = np.array(["north", "south", "north", "west"] * 3)[: len(NEW)]


def mixture(n, m=3, seed=0):
    """(m, n): coefficients of both signs, some of them 0."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((m, n)) < 0.3, 0.0, rng.normal(size=(m, n)))


def assert_sums(found, whole, U):
    """Every array of a combination is U times that of the rows."""
    for name in ("predictions", "intercepts", "contributions"):
        own, each = getattr(found, name), getattr(whole, name)
        expected = np.tensordot(U, each, (1, 0))
        np.testing.assert_allclose(
            own, expected, rtol=0, atol=1e-9 * np.abs(each).max() * np.abs(U).sum(axis=1).max()
        )


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_combinations_are_sums_over_rows(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    U = mixture(case.X_new.shape[0])
    whole, found = explainer(case.X_new), explainer.aggregate(case.X_new, U)
    assert_sums(found, whole, U)
    np.testing.assert_allclose(
        found.weights, np.tensordot(U, whole.weights, (1, 0)), rtol=0, atol=1e-10 * np.abs(U).sum()
    )


@pytest.mark.parametrize("prepared", [False, True])
def test_sweeps_and_leaf_matrix_agree(prepared):
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET, reg_alpha=0.5).fit(X, Y), X, Y)
    if prepared:
        explainer.precompute()
    assert_sums(explainer.aggregate(NEW, mixture(len(NEW))), explainer(NEW), mixture(len(NEW)))


def test_every_kind_and_place(any_explainer, batches):
    whole, U = any_explainer(NEW), mixture(len(NEW))
    totals = any_explainer.aggregate(NEW, U)
    assert totals.kind == whole.kind
    assert_sums(totals, whole, U)
    mean = any_explainer.aggregate(NEW, by=BY)
    names, codes = np.unique(BY, return_inverse=True)
    assert mean.query_index.tolist() == names.tolist()
    assert_sums(mean, whole, np.eye(3)[codes].T / np.bincount(codes)[:, None])


def test_derivatives_of_combined_pushes():
    explainer = axil.Explainer(lgb.LGBMClassifier(**QUIET).fit(X, CLASSES > 1), X, CLASSES > 1)
    U, found = mixture(len(NEW)), explainer.aggregate(NEW, mixture(len(NEW)))
    np.testing.assert_allclose(
        found.weights, U @ explainer(NEW).weights, rtol=0, atol=1e-12 * np.abs(U).sum()
    )
    np.testing.assert_allclose(found[[2, 0]].weights, found.weights[[2, 0]], rtol=0, atol=1e-12)
    assert found.probabilities is None  # a sum of scores is no score
    assert "probability" not in found.top(2)


def test_words():
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    whole, n = explainer(NEW), len(NEW)
    assert_sums(explainer.aggregate(NEW), whole, np.full((1, n), 1 / n))
    assert_sums(explainer.aggregate(NEW, "sum"), whole, np.ones((1, n)))
    assert explainer.aggregate(NEW, "sum").query_index.tolist() == ["sum"]
    dearer = pd.DataFrame(mixture(n, 2), index=["a - b", "c - d"])
    assert explainer.aggregate(NEW, dearer).query_index.tolist() == ["a - b", "c - d"]
    assert explainer.aggregate(NEW, np.eye(n)[3]).predictions.shape == (1,)
    by_column = explainer.aggregate(NEW.assign(rooms=np.arange(n) % 2), "sum", by="rooms")
    assert by_column.query_index.tolist() == [0, 1]
    assert len(explainer.aggregate(NEW.head(0), np.zeros((2, 0)))) == 2


def test_offsets_are_in_the_intercepts():
    offsets, U = np.arange(len(NEW), dtype=float), mixture(len(NEW))
    base = np.linspace(-1, 1, len(X))
    model = xgb.XGBRegressor(n_estimators=4, max_depth=2).fit(X, Y, base_margin=base)
    for explainer in (
        axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y),
        axil.Explainer(model, X, Y, init_score=base),
        axil.Explainer(GradientBoostingRegressor(n_estimators=4, init="zero").fit(X, Y), X, Y),
        axil.Explainer(lgb.LGBMClassifier(**QUIET).fit(X, CLASSES > 1), X, CLASSES > 1),
    ):
        assert_sums(
            explainer.aggregate(NEW, U, init_score=offsets), explainer(NEW, init_score=offsets), U
        )


def test_views_of_a_combination():
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    totals = explainer.aggregate(NEW, by=BY)
    contributions = totals.group(GROUPS).groupby("query", sort=False)["contribution"].sum()
    np.testing.assert_allclose(contributions + totals.intercepts, totals.predictions)
    assert totals.top(4).groupby("query").size().tolist() == [4, 4, 4]
    assert totals.group("rooms").shape[1] == 4
    assert "<!DOCTYPE html>" in totals.to_html(columns=["rooms"], groups=GROUPS)
    assert totals.column("rooms")[0].tolist() == X["rooms"].tolist()
    assert totals.column("rooms")[1].tolist() == [None] * 3


def test_one_pass_for_any_number_of_rows(monkeypatch):
    """No effects of single rows are asked for."""
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    monkeypatch.setattr("axil.weights.boosting.BoostedTrees.weight_rows", None)
    assert explainer.aggregate(pd.concat([NEW] * 20)).weights.shape == (1, len(X))


def test_logarithms_have_means_and_ratios():
    prices = np.exp(Y / 3)
    model = TransformedTargetRegressor(
        lgb.LGBMRegressor(**QUIET), func=np.log, inverse_func=np.exp
    ).fit(X, prices)
    explainer = axil.Explainer(model, X, prices)
    each = model.predict(NEW)
    mean = explainer.aggregate(NEW).top(1)["prediction"]
    # the geometric mean; LightGBM keeps targets in single precision
    np.testing.assert_allclose(mean, np.exp(np.log(each).mean()), rtol=1e-7)
    pair = np.zeros(len(NEW))
    pair[:2] = 1, -1
    np.testing.assert_allclose(
        explainer.aggregate(NEW, pair).top(1)["prediction"], each[0] / each[1], rtol=1e-7
    )
    with pytest.raises(
        InputError,
        match="fitted to log of the targets, and a sum with coefficients that add up to 11",
    ):
        explainer.aggregate(NEW, "sum")


@pytest.mark.parametrize(
    ("forward", "inverse", "mean", "more"),
    [
        (np.log, np.exp, "geometric mean", ""),
        (np.log1p, np.expm1, "geometric mean", ", 1 added to each"),
        (np.sqrt, np.square, "mean", " on the scale of the fit (sqrt)"),
    ],
)
def test_sums_of_transformed_predictions_say_what_they_are(forward, inverse, mean, more):
    prices = np.exp(Y / 3)
    model = TransformedTargetRegressor(
        lgb.LGBMRegressor(**QUIET), func=forward, inverse_func=inverse
    ).fit(X, prices)
    explainer, n = axil.Explainer(model, X, prices), len(NEW)
    note = explainer.top(NEW, 1).attrs["axil"]
    whole = explainer.aggregate(NEW)
    for table in (whole.top(1), whole.group(GROUPS), whole[[0]].top(1)):
        assert (
            table.attrs["axil"] == f"{note}; each prediction is the {mean} of {n} predictions{more}"
        )
    some = explainer.aggregate(NEW, by=BY)
    counts = np.unique(BY, return_counts=True)[1]
    number = f"{counts.min()} to {counts.max()} predictions"
    assert some.top(1).attrs["axil"] == f"{note}; each prediction is the {mean} of {number}{more}"
    expected = [f"{mean} of {count} predictions{more}" for count in counts]
    assert data_of(some.to_html())["combined"] == expected
    uneven = explainer.aggregate(NEW, np.r_[0.9, 0.1, np.zeros(n - 2)])
    assert f"the weighted {mean} of 2 predictions{more}" in uneven.top(1).attrs["axil"]
    if forward is np.log:
        gap = explainer.aggregate(
            NEW, np.array([[1, -1, 0, 0], [0.5, 0.5, -0.5, -0.5]]) @ np.eye(4, n)
        )
        assert (
            gap.top(1)
            .attrs["axil"]
            .endswith("the ratio or ratio of geometric means of 2 to 4 predictions")
        )


def test_sums_of_plain_predictions_need_no_word():
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    assert explainer.aggregate(NEW).top(1).attrs == explainer.top(NEW, 1).attrs
    assert data_of(explainer.aggregate(NEW).to_html())["combined"] is None


def test_combinations_are_proven(monkeypatch):
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    explainer.aggregate(NEW)
    other = lgb.LGBMRegressor(**(QUIET | {"n_estimators": 2})).fit(X, Y).predict(NEW)
    monkeypatch.setattr("axil.replay.queries.QueryBatch.predictions", other[:, None])
    with pytest.raises(ExactnessError, match="prediction of row mean"):
        explainer.aggregate(NEW)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coefficients": "median"}, 'coefficients is \'median\'; expected "mean", "sum" or'),
        ({"coefficients": np.ones((2, 5))}, r"coefficients has shape \(2, 5\); expected .*11"),
        ({"coefficients": np.ones(11) * np.nan}, "coefficients holds nan"),
        ({"coefficients": np.ones(11), "by": BY}, "by is for coefficients of"),
        ({"by": BY[1:]}, "by has shape"),
    ],
)
def test_bad_requests_are_named(given, message):
    explainer = axil.Explainer(lgb.LGBMRegressor(**QUIET).fit(X, Y), X, Y)
    with pytest.raises(InputError, match=message):
        explainer.aggregate(NEW, **given)
    with pytest.raises(InputError, match="X has no rows"):
        explainer.aggregate(NEW.head(0))

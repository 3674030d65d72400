"""Deletions of training rows from boosted classifiers and other losses, against an independent replay without them."""

import warnings
from functools import cache

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import axil
from tests.contributions.boosting_models import (
    BINARY,
    CASES,
    COUNTS,
    LGB,
    POSITIVE,
    X_NEW,
    N,
    X,
    along_gradients,
    case_of,
    explain,
    kept_weights,
    replayed,
)
from tests.contributions.fixed_structure import replay
from tests.contributions.more_models import MODELS
from tests.contributions.sampled_models import MODELS as SAMPLED
from tests.contributions.sampled_models import RATE, model_of

LABELS = np.array([f"row {i}" for i in range(N)])
SETS = [3], [0, 3, 17, 60, 119]
SOME = "lightgbm binary weighted", "lightgbm tweedie", "catboost multiclass", "sklearn subsample"


@cache
def explainer_of(name, **settings):
    case = case_of(name)
    rows = pd.DataFrame(X, index=LABELS)
    return explain(case, rows, **settings)


def left(case, rows):
    w = kept_weights(case).copy()
    w[rows] = 0.0
    return w


@pytest.mark.parametrize("name", CASES)
def test_without_is_the_fit_again_with_no_weight_on_these_rows(name):
    """Both run in float64; sums in another order leave some 1e-13, targets rounded to float32 some 1e-7 of the change."""
    case, explainer = case_of(name), explainer_of(name)
    for rows in SETS:
        frame = explainer.without(X_NEW, LABELS[rows])
        expected = replayed(case, case.targets, left(case, rows), rows) - replayed(
            case, case.targets
        )
        found = frame["change"].to_numpy().reshape(expected.shape)
        assert np.abs(expected).max() > 1e-4
        assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
        assert np.allclose(frame["before"], case.scores(X_NEW).ravel())
        assert np.array_equal(frame["after"], frame["before"] + frame["change"])
    assert "structure fixed" in frame.attrs["axil"]


@pytest.mark.parametrize("name", SAMPLED)
def test_without_where_rows_are_drawn_or_trees_are_dropped(name):
    """Draws and drops are held fixed, also those of GOSS, which followed the gradients; slack as above."""
    case = model_of(name)
    explainer = axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
    )
    more = {"rate": RATE, **case.more} | (
        {} if case.offsets is None else {"offsets": case.offsets[:, None]}
    )
    given = case.leaves(X), case.leaves(X_NEW), case.targets
    before, after = (
        replay(*given, w, case.loss, case.start, **more)
        for w in (kept_weights(case), left(case, SETS[1]))
    )
    changes = explainer.without(X_NEW, SETS[1])["change"].to_numpy().reshape(before.shape)
    assert np.abs(changes - (after - before)).max() < 1e-6 * np.abs(after - before).max()


def test_a_leaf_without_rows_adds_nothing():
    """Every row of one query's leaf in the first tree goes; the replay has no such leaf any more."""
    case, explainer = case_of("xgboost binary"), explainer_of("xgboost binary")
    gone = np.flatnonzero(case.leaves(X)[:, 0, 0] == case.leaves(X_NEW)[0, 0, 0])
    expected = replayed(case, case.targets, left(case, gone), gone) - replayed(case, case.targets)
    changes = explainer.without(X_NEW, LABELS[gone])["change"]
    assert np.abs(changes - expected[:, 0]).max() < 1e-6 * np.abs(expected).max()
    assert (explainer.without(X_NEW, [])["change"] == 0).all()


@pytest.mark.parametrize("name", SOME)
def test_removal_is_without_row_by_row(name):
    """The same replays, many at a time: sums in another order."""
    explainer = explainer_of(name)
    found = explainer.removal(X_NEW, method="exact").reshape(len(X_NEW), -1, N)
    each = [
        explainer.without(X_NEW, [LABELS[j]])["change"].to_numpy().reshape(len(X_NEW), -1)
        for j in range(0, N, 17)
    ]
    assert (
        np.abs(found[:, :, ::17] - np.stack(each).transpose(1, 2, 0)).max()
        < 1e-12 * np.abs(found).max()
    )
    assert np.array_equal(
        explainer.removal(X_NEW), found.reshape(explainer.removal(X_NEW).shape)
    )  # it takes no time


@pytest.mark.parametrize("name", SOME)
def test_first_order_removal_is_the_derivative_of_a_replay(name):
    """Central differences by the weights of some rows are good to 1e-9 or so; weights are rounded to float32."""
    case = case_of(name)
    for output in ("raw", "probability"):  # effects are on scores either way
        explanation = (
            explainer_of(name, output=output)
            .removal(X_NEW, method="first-order")
            .reshape(len(X_NEW), -1, N)
        )
        for j in (0, 17, 60):
            w = kept_weights(case)
            ends = [
                replayed(case, case.targets, w * (1 - part * (np.arange(N) == j)), n_gone=part)
                for part in (1e-5, -1e-5)
            ]
            slope = (ends[0] - ends[1]) / 2e-5
            assert np.abs(explanation[:, :, j] - slope).max() < 1e-6 * np.abs(explanation).max()


def test_first_order_takes_over_where_replays_take_long(monkeypatch):
    explainer = explainer_of("lightgbm binary")
    monkeypatch.setattr("axil.methods.removal.PATIENCE", 0.0)
    with pytest.warns(axil.ApproximationWarning, match="first-order"):
        found = explainer.removal(X_NEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(found, explainer.removal(X_NEW, method="first-order"))
        exact = explainer.removal(X_NEW, method="exact")
    assert (
        0.8 < np.corrcoef(found.ravel(), exact.ravel())[0, 1] < 1 - 1e-6
    )  # close, and not the same


def test_removal_agrees_with_exact_weights():
    """Squared error, which both kinds of proven model answer for."""
    model = lgb.LGBMRegressor(**LGB).fit(X, COUNTS)
    exact = axil.Explainer(model, X, COUNTS)
    other = along_gradients(model, X, COUNTS)
    for method in ("exact", "first-order"):
        found, expected = (one.removal(X_NEW, method=method) for one in (other, exact))
        assert (
            np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
        )  # gradients in float32 in the fit


@pytest.mark.parametrize("name", ["lightgbm binary", "xgboost multiclass"])
def test_removal_sets_by_effects(name):
    explainer = explainer_of(name)
    for method, note in (("exact", "exact"), ("first-order", "first-order")):
        effects = explainer.removal(X_NEW, method=method).reshape(len(X_NEW), -1, N)
        frame = explainer.removal(X_NEW, 4, method=method, same_sign=True)
        assert note in frame.attrs["axil"]
        for i, of_query in enumerate(effects):
            for k, own in enumerate(of_query):
                lines = frame[
                    (frame["query"] == i)
                    & (frame["output"] == (k if explainer.outputs is not None else 1))
                ]
                sides = [np.sort(np.maximum(sign * own, 0))[::-1][:4].sum() for sign in (1, -1)]
                assert np.isclose(np.abs(lines["effect"].sum()), max(sides))
                assert np.allclose(
                    own[[list(LABELS).index(row) for row in lines["row"]]], lines["effect"]
                )


def test_what_has_no_deletions_is_refused_by_name():
    explainer = explainer_of("lightgbm binary")
    with pytest.raises(axil.InputError, match="no row with a weight is left"):
        explainer.without(X_NEW, LABELS)
    with pytest.raises(axil.InputError, match="row 999"):
        explainer.without(X_NEW, ["row 999"])
    with pytest.raises(axil.InputError, match="method"):
        explainer.removal(X_NEW, 3, by="contribution", method="exact")
    with pytest.raises(axil.InputError, match="exact"):
        explainer.removal(X_NEW, method="some")
    custom = MODELS["lightgbm custom"]().fit()
    own = axil.Explainer(custom.model, X, custom.y)
    with pytest.raises(axil.UnsupportedQuestionError, match="function of all rows"):
        own.without(X_NEW, [3])
    held = MODELS["xgboost pseudo-huber"]().fit()
    with pytest.raises(
        axil.UnsupportedQuestionError, match=r"without.*the initial score is one step from 0"
    ):
        axil.Explainer(held.model, X, held.y, sample_weight=held.weights).without(X_NEW, [3])
    smooth = axil.Explainer(
        LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, BINARY), X, BINARY
    )
    for ask in (smooth.removal, lambda rows: smooth.without(rows, [3])):
        with pytest.raises(axil.UnsupportedQuestionError, match="another optimum"):
            ask(X_NEW)


def test_losses_without_derivatives_have_exact_effects():
    case = MODELS["catboost huber"]().fit()
    explainer = axil.Explainer(case.model, X, case.y, sample_weight=case.weights)
    assert np.isclose(explainer.removal(X_NEW)[0, 3], explainer.without(X_NEW, [3])["change"][0])
    with pytest.raises(axil.UnsupportedQuestionError, match="changes in steps"):
        explainer.removal(X_NEW, method="first-order")


def test_the_last_row_of_any_weight():
    """Without it there is no fit: nan in `removal`, an error in `without`."""
    w = np.zeros(N)
    w[5] = 1.0
    model = lgb.LGBMRegressor(**LGB | {"min_sum_hessian_in_leaf": 0}, objective="gamma").fit(
        X, POSITIVE, w
    )
    explainer = axil.Explainer(model, X, POSITIVE, sample_weight=w)
    found = explainer.removal(X_NEW)
    assert np.isnan(found[:, 5]).all()
    assert (np.delete(found, 5, axis=1) == 0).all()

"""DART and GOSS with other losses than squared error: pushes, derivatives and other labels against an independent replay."""

from dataclasses import replace
from functools import cache

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import axil
from axil.baselines import LeafMatch
from tests.contributions.boosting_models import BINARY, WEIGHTS, X_NEW, N, X
from tests.contributions.fixed_structure import differences, first, pushes, replay
from tests.contributions.sampled_models import LGB_DART, LGB_GOSS, MODELS, RATE, model_of
from tests.fits import explainer_of_fit

COLUMNS = [0, 17, 119]


@cache
def explainer_of(name):
    case = model_of(name)
    return axil.Explainer(
        case.model, X, case.y, sample_weight=case.weights, init_score=case.offsets
    )


def settings(case):
    more = {"rate": RATE, **case.more}
    if case.offsets is not None:
        more["offsets"] = case.offsets[:, None]
    return more


def kept(case):
    """(N,): weights as the library keeps them."""
    return case.w if case.library == "sklearn" else np.float32(case.w).astype(float)


def replayed(case, y, w):
    w = w + (kept(case) - case.w)
    return replay(case.leaves(X), case.leaves(X_NEW), y, w, case.loss, case.start, **settings(case))


@pytest.mark.parametrize("name", MODELS)
def test_pushes_add_up_and_are_what_the_rows_put_into_their_leaves(name):
    """The loop runs freely in float64 and the libraries fit in float32, which moves gradients by some 1e-7 of the largest."""
    case, explainer = model_of(name), explainer_of(name)
    scores = case.scores(X_NEW)
    assert np.abs(replayed(case, case.targets, case.w) - scores).max() < 2e-6 * np.abs(scores).max()
    found, starts = (
        explainer.jacobian.gradient_contributions(X_NEW).reshape(*scores.shape, N),
        explainer(X_NEW).intercepts.reshape(scores.shape),
    )
    assert np.abs(starts + found.sum(axis=2) - scores).max() <= 1e-6 * np.abs(scores).max()
    w = kept(case)
    base = first(case.start, case.loss, w @ case.targets / w.sum())
    expected = pushes(
        case.leaves(X), case.leaves(X_NEW), case.targets, w, case.loss, base, **settings(case)
    )
    assert np.abs(found - np.swapaxes(expected, 0, 1)).max() < 2e-6 * np.abs(expected).max()
    assert explainer.verification.details["sum_error"] < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_are_finite_differences(name):
    """Central differences of 1e-5 are good to some 1e-9; the fit in float32 moves the point where they are taken by 1e-7."""
    case, explainer = model_of(name), explainer_of(name)
    K = case.targets.shape[1]
    found = explainer(X_NEW).weights.reshape(len(X_NEW), K, N)
    for k in range(K):

        def predict(column, k=k):
            y = case.targets.copy()
            y[:, k] = column
            return replayed(case, y, case.w)[:, k]

        expected = differences(predict, case.targets[:, k], COLUMNS, 1e-5)
        assert np.abs(found[:, k, COLUMNS].T - expected).max() < 1e-6 * np.abs(found[:, k]).max()
    by_weights = explainer.jacobian.by_sample_weight(X_NEW).reshape(len(X_NEW), K, N)
    expected = differences(lambda w: replayed(case, case.targets, w), case.w, COLUMNS, 1e-5)
    assert (
        np.abs(by_weights[:, :, COLUMNS].transpose(2, 0, 1) - expected).max()
        < 1e-6 * np.abs(by_weights).max()
    )


@pytest.mark.parametrize("name", MODELS)
def test_other_labels_are_replayed(name):
    """The change, not the score: both replays run freely, so that what float32 has moved is in both."""
    case, explainer = model_of(name), explainer_of(name)
    y, targets = case.y[60], case.targets.copy()
    row = int(np.flatnonzero(case.y != y)[0])
    targets[row] = targets[60]
    other = case
    if "factors" in case.more:  # which the fit gives to labels
        other = replace(case, more={**case.more, "factors": np.where(targets[:, 0] > 0, 3.0, 1.0)})
    expected = replayed(other, targets, case.w) - replayed(case, case.targets, case.w)
    changes = explainer.what_if(X_NEW, {row: y})["change"].to_numpy().reshape(expected.shape)
    assert np.abs(changes - expected).max() < 1e-6 * np.abs(expected).max()
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("name", [name for name in MODELS if "multiclass" not in name])
def test_the_operator_and_its_transpose(name):
    """J v of one walk, J'u of one sweep, and the rows of J one by one: the same sums, so rounding alone is between them."""
    explainer = explainer_of(name)
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, N))
    J = explainer(X).weights
    for found, expected in (
        (explainer.jacobian.operator @ v, J @ v),
        (explainer.jacobian.operator.T @ u, J.T @ u),
    ):
        assert np.abs(found - expected).max() < 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("name", MODELS)
def test_data_that_are_not_those_of_the_fit_are_caught(name):
    case = model_of(name)
    leaves = case.leaves(X)
    apart = (leaves != leaves[0]).any(
        axis=(1, 2)
    )  # swapping rows that share all leaves leads to the same fit
    other = int(np.flatnonzero(apart & (case.y != case.y[0]))[0])
    flipped, swapped = case.y.copy(), case.y.copy()
    flipped[0] = case.y[other]
    swapped[[0, other]] = case.y[[other, 0]]
    for y in (flipped, swapped):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(case.model, X, y, sample_weight=case.weights, init_score=case.offsets)
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(
            case.model,
            X,
            case.y,
            sample_weight=case.w * np.linspace(0.9, 1.1, N),
            init_score=case.offsets,
        )
    fewer = [
        None if part is None else part[:-1] for part in (X, case.y, case.weights, case.offsets)
    ]
    with pytest.raises(axil.ExactnessError):
        explainer_of_fit(case.model, *fewer)


def test_dart_whose_iterations_find_no_split():
    """Attempts without a tree drop trees all the same; other labels need no look at the rows again."""
    settings = {
        **LGB_DART,
        "n_estimators": 12,
        "min_child_samples": 40,
        "subsample": 0.7,
        "subsample_freq": 1,
    }
    model = lgb.LGBMClassifier(**settings).fit(X, BINARY)
    assert 5 < model.booster_.num_trees() < 12
    explainer = axil.Explainer(model, X, BINARY)
    raw = model.predict(X_NEW, raw_score=True)
    assert (
        np.abs(
            explainer(X_NEW).intercepts
            + explainer.jacobian.gradient_contributions(X_NEW).sum(axis=-1)
            - raw
        ).max()
        < 1e-12 * np.abs(raw).max()
    )
    assert np.allclose(explainer.what_if(X_NEW, {})["change"], 0.0, rtol=0, atol=1e-15)


def test_goss_in_parts_of_several_threads():
    """Each thread draws for its own rows, and rows alike have gradients alike: many are tied."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2500, 4)).round(1)
    labels = np.digitize(rows[:, 0] + rng.normal(size=2500), [-0.5, 0.5])
    for n_jobs in (1, 2):
        model = lgb.LGBMClassifier(**{**LGB_GOSS, "n_jobs": n_jobs}).fit(rows, labels)
        explainer = axil.Explainer(model, rows, labels)
        raw = model.predict(rows[:5], raw_score=True)
        explanation = explainer(rows[:5]).intercepts + explainer.jacobian.gradient_contributions(
            rows[:5]
        ).sum(axis=-1)
        assert np.abs(explanation - raw).max() < 1e-12 * np.abs(raw).max()


def test_a_dart_whose_drops_are_not_replayed_is_refused(tmp_path):
    model = model_of("xgboost dart").model
    model.save_model(tmp_path / "model.json")
    booster = xgb.Booster()
    booster.load_model(tmp_path / "model.json")
    with pytest.raises(axil.UnsupportedModelError, match="weight_drop does not follow"):
        axil.Explainer(booster, X, BINARY, sample_weight=WEIGHTS)


def test_baselines_refuse_dart():
    with pytest.raises(axil.InputError, match="fitted with DART"):
        LeafMatch(axil.Explainer(model_of("lightgbm dart").model, X, BINARY, sample_weight=WEIGHTS))

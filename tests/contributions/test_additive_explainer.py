"""Additive explainers as people meet them: shapes, labels, tables, batches, memory, bad input."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import axil

RNG = np.random.default_rng(3)
NAMES = ["rooms", "size", "age"]
X = pd.DataFrame(RNG.normal(size=(80, 3)), columns=NAMES, index=[f"house {i}" for i in range(80)])
LABELS = np.where(X["rooms"] + RNG.normal(0, 0.5, 80) > 0, "dear", "cheap")
THREE = np.digitize(X["rooms"], [-0.5, 0.5])
QUIET = {"n_estimators": 5, "num_leaves": 4, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
BINARY = lgb.LGBMClassifier(**QUIET).fit(X, LABELS)
MULTI = lgb.LGBMClassifier(**QUIET).fit(X, THREE)


@pytest.fixture(scope="module")
def binary():
    return axil.Explainer(BINARY, X, LABELS)


@pytest.fixture(scope="module")
def multi():
    return axil.Explainer(MULTI, X, THREE, output="probability")


def test_one_output(binary):
    explanation = binary(X.head(4))
    assert explanation.weights.shape == (4, 80)
    assert binary.outputs is None
    assert binary.kind == "additive"
    assert not explanation.exact
    assert np.array_equal(binary.targets, LABELS == "dear")
    assert np.allclose(explanation.predictions, BINARY.predict(X.head(4), raw_score=True))
    assert list(explanation.index) == list(X.index)
    assert list(explanation.query_index) == list(X.index[:4])
    assert "add up to the score" in repr(explanation)
    assert "add up to the score" in repr(binary)
    frames = (
        binary.top(X.head(2)),
        explanation.top(),
        explanation.group(LABELS),
        explanation.concentration(),
    )
    for frame in (*frames, explanation.to_frame()):
        assert "contributions" in frame.attrs["axil"]
        assert "weight" not in frame
    for frame in (binary.top(X.head(2), by="weight"), explanation.top(by="weight")):
        assert "derivative" in frame.attrs["axil"]
    assert "leaf values" in repr(binary.verification)
    assert binary.verification.tolerance <= 1e-5


def test_the_figure_of_the_proof_is_the_largest_error_that_was_measured(binary):
    """Scores added up as the library adds them are equal to the bit; XGBoost's single precision is what answers miss."""
    assert binary.verification.max_error == 0
    assert f"verified to {binary.verification.leaf_error:.1e}" in repr(binary)
    assert "leaf counts" in repr(binary.verification)
    model = XGBClassifier(n_estimators=200, n_jobs=1).fit(X, THREE > 0)
    explainer = axil.Explainer(model, X, THREE > 0)
    found, scores = explainer(X), model.predict(X, output_margin=True)
    gap = (
        np.abs(found.intercepts + found.contributions.sum(axis=1) - scores).max()
        / np.abs(scores).max()
    )
    assert gap > 1e-8
    assert explainer.verification.error == pytest.approx(gap, rel=1e-3)
    assert f"verified to {gap:.1e}" in repr(explainer)
    smooth = axil.Explainer(LogisticRegression(tol=1e-6).fit(X, LABELS), X, LABELS)
    assert f"verified to {smooth.verification.details['newton_step']:.1e}" in repr(smooth)


def test_several_outputs(multi):
    explanation = multi(X.head(4))
    assert explanation.weights.shape == (4, 3, 80)
    assert list(multi.outputs) == [0, 1, 2]
    assert np.array_equal(multi.targets, np.eye(3)[THREE])
    assert np.allclose(explanation.predictions, MULTI.predict(X.head(4), raw_score=True))
    assert np.allclose(explanation.probabilities, MULTI.predict_proba(X.head(4)))
    assert multi.jacobian.by_sample_weight(X.head(4)).shape == (4, 3, 80)


def test_top_streams_what_explanations_hold(binary, multi):
    for explainer in (binary, multi):
        for by in ("weight", "contribution"):
            pd.testing.assert_frame_equal(explainer.top(X, 3, by=by), explainer(X).top(3, by))
    assert binary.top(X.head(0)).shape == (0, 9)
    assert set(multi(X.head(2)).group(LABELS)["group"]) == {"cheap", "dear"}


def test_frames_of_other_libraries():
    rows = pl.DataFrame(X.reset_index(drop=True).to_dict("list"))
    explainer = axil.Explainer(BINARY, rows, LABELS)
    assert isinstance(explainer.top(rows.head(2), 3), pl.DataFrame)
    assert np.array_equal(
        explainer(rows.head(2)).weights, axil.Explainer(BINARY, X, LABELS)(X.head(2)).weights
    )


def test_no_rows(binary, multi):
    assert binary(X.head(0)).weights.shape == (0, 80)
    assert multi(X.head(0)).predictions.shape == (0, 3)
    assert list(binary.iter(X.head(0))) == []
    assert multi.jacobian.by_sample_weight(X.head(0)).shape == (0, 3, 80)


def test_no_verification_leaves_no_findings():
    explainer = axil.Explainer(BINARY, X, LABELS, verify=False)
    assert explainer.verification is None
    assert "not verified" in repr(explainer)


def test_memory_is_asked_for_first():
    explainer = axil.Explainer(BINARY, X, LABELS, memory_limit="50KB")
    for ask in (explainer.explain, explainer.jacobian.by_sample_weight):
        with pytest.raises(axil.InputError, match="memory_limit"):
            ask(X)
    assert len(explainer.top(X, k=2)) == 160
    with pytest.raises(axil.InputError, match="batch_size"):
        explainer.iter(X, batch_size=80)


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        ((BINARY, X, LABELS), {"output": "log-odds"}, "output is 'log-odds'"),
        ((BINARY, X, LABELS), {"loss": "log"}, "Leave it out"),
        ((BINARY, X.head(0), LABELS[:0]), {}, "no rows"),
        ((BINARY, X, LABELS[1:]), {}, "one label"),
        ((BINARY, X, THREE), {}, "classes"),
        ((BINARY, X[["size", "rooms", "age"]], LABELS), {}, "another order"),
        ((BINARY, X, LABELS), {"sample_weight": -np.ones(80)}, "not negative"),
        ((BINARY, X, LABELS), {"n_threads": 0}, "n_threads"),
        ((lgb.LGBMClassifier(), X, LABELS), {}, "not been fitted"),
        ((StandardScaler().fit(X), X, LABELS), {}, "StandardScaler"),
        (
            (RandomForestRegressor(3).fit(X, THREE), X, THREE),
            {"output": "probability"},
            "models with a link",
        ),
        ((RandomForestRegressor(3).fit(X, THREE), X, THREE), {"loss": "log"}, "loss"),
        ((BINARY, X, LABELS), {"inverse_func": np.exp}, "inverse_func is for"),
        (("model.txt", X, LABELS), {}, "The model is a builtins.str"),
    ],
)
def test_bad_input(arguments, more, words):
    with pytest.raises(axil.InputError, match=words):
        axil.Explainer(*arguments, **more)


def test_bad_queries(binary):
    for X_bad in (X[["rooms"]], X.to_numpy()[0], X.rename(columns={"age": "year"}), object()):
        with pytest.raises(axil.InputError):
            binary(X_bad)
    with pytest.raises(axil.InputError):
        binary.top(X, by="size")

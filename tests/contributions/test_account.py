"""The additive explanation as people read it: contributions are pushes, and every view of them adds up."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingClassifier

import axil
from axil.contributions.boosting import Boosting
from axil.contributions.contributions import Contributions
from tests.adapters.xgboost_models import VERSION
from tests.contributions.boosting_models import (
    BINARY,
    CLASSES,
    COUNTS,
    LGB,
    X_NEW,
    XGB,
    N,
    X,
    along_gradients,
)

BINARY_MODEL = lgb.LGBMClassifier(**LGB).fit(X, BINARY)
SEVERAL = xgb.XGBClassifier(**XGB).fit(X, CLASSES)
MEANS = lgb.LGBMRegressor(**LGB, objective="poisson").fit(X, COUNTS)
MODELS = {
    "binary": (BINARY_MODEL, BINARY, lambda rows: BINARY_MODEL.predict(rows, raw_score=True)),
    "several": (SEVERAL, CLASSES, lambda rows: SEVERAL.predict(rows, output_margin=True)),
    "poisson": (MEANS, COUNTS, lambda rows: MEANS.predict(rows, raw_score=True)),
}


@pytest.fixture(params=MODELS)
def case(request):
    model, y, scores = MODELS[request.param]
    return axil.Explainer(model, X, y), scores


def test_intercepts_and_contributions_are_the_raw_score(case):
    explainer, scores = case
    explanation = explainer(X_NEW)
    expected = scores(X_NEW)
    total = explanation.intercepts + explanation.contributions.sum(axis=-1)
    assert np.abs(total - expected).max() <= 1e-6 * np.abs(expected).max()
    assert np.abs(explanation.predictions - expected).max() <= 1e-6 * np.abs(expected).max()
    assert (explanation.kind, explanation.exact) == ("additive", False)
    assert np.array_equal(explanation.targets, explainer.targets)
    part = explanation[[2, 0]]
    assert np.array_equal(part.contributions, explanation.contributions[[2, 0]])
    assert np.array_equal(part.probabilities, explanation.probabilities[[2, 0]])


def test_probabilities_are_the_models_own():
    for (model, y, _), own in zip(
        MODELS.values(),
        (
            BINARY_MODEL.predict_proba(X_NEW)[:, 1],
            SEVERAL.predict_proba(X_NEW),
            MEANS.predict(X_NEW),
        ),
    ):
        explainer = axil.Explainer(model, X, y)
        explanation = explainer(X_NEW)
        assert np.allclose(explanation.probabilities, own, rtol=1e-6)
        for table in (explainer.top(X_NEW, 2), explanation.top(2), explainer.similar(X_NEW, 2)):
            column = {"mean": "prediction"}.get(explanation.meaning, explanation.meaning)
            assert np.allclose(table[column], np.repeat(own.ravel(), 2), rtol=1e-6)
    squared = lgb.LGBMRegressor(**LGB).fit(X, COUNTS)
    assert axil.Explainer(squared, X, COUNTS)(X_NEW).probabilities is None
    assert along_gradients(squared, X, COUNTS)(X_NEW).probabilities is None


def test_questions_about_contributions_do_not_pay_for_derivatives(case, monkeypatch):
    explainer, _ = case

    def refused(*_):
        raise AssertionError("a derivative was computed")

    with monkeypatch.context() as patch:
        patch.setattr(Boosting, "target_derivatives", refused)
        explanation = explainer(X_NEW)
        for ask in (explainer.top, explainer.similar, explainer.concentration):
            ask(X_NEW)
        explainer.to_html(X_NEW)
        explainer.group(X_NEW, CLASSES)
        explanation.top()
        explanation.group(CLASSES)
        with pytest.raises(AssertionError, match="derivative"):
            explanation.weights  # noqa: B018
    weights = explanation.weights
    assert np.shares_memory(explanation.weights, weights)  # computed once
    assert np.array_equal(explanation[1].weights, weights[1:2])
    assert weights.shape == explanation.contributions.shape
    assert not np.allclose(weights, explanation.contributions)


def test_tables_are_of_pushes_and_add_up(case):
    explainer, scores = case
    explanation = explainer(X_NEW)
    keys = ["query"] if explanation.outputs is None else ["query", "output"]
    expected = (scores(X_NEW) - explanation.intercepts).ravel()
    for frame in (
        explanation.top(N),
        explainer.top(X_NEW, N),
        explanation.group(CLASSES),
        explainer.group(X_NEW, CLASSES),
        explainer.similar(X_NEW, N, weights=True),
    ):
        assert "weight" not in frame
        assert "sum to it" in frame.attrs["axil"]
        sums = frame.groupby(keys, sort=False)["contribution"].sum().to_numpy()
        assert np.allclose(sums, expected, atol=1e-6)
    pd.testing.assert_frame_equal(explanation.top(7), explainer.top(X_NEW, 7))
    # Summed by leaf or by row: 200 numbers of size 1 in another order.
    pd.testing.assert_frame_equal(
        explanation.group(CLASSES), explainer.group(X_NEW, CLASSES), rtol=0, atol=1e-12
    )
    alone = explainer.group(X_NEW[:0], CLASSES)
    assert list(alone.columns) == list(explanation.group(CLASSES).columns)
    assert len(alone) == 0
    top = explanation.top(3)
    largest = np.sort(np.abs(explanation.contributions), axis=-1)[..., ::-1][..., :3]
    assert np.array_equal(np.abs(top["contribution"]).to_numpy(), largest.ravel())
    own = explainer.targets[top["row"]] if explainer.outputs is None else None
    assert own is None or np.array_equal(top["target"], own)
    by_weight = explainer.top(X_NEW, 3, by="weight")
    assert "weight" in by_weight
    assert "derivative" in by_weight.attrs["axil"]
    shown = explainer.concentration(X_NEW, shares=[0.5])["rows for 50%"].to_numpy()
    assert (shown >= 1).all()
    assert (shown < N / 2 + 1).all()


def test_groups_are_summed_by_leaf_in_one_walk_unless_there_are_too_many(case, monkeypatch):
    explainer, _ = case
    walks = []
    factors = Contributions.factors
    monkeypatch.setattr(
        Contributions, "factors", lambda self, rows: walks.append(rows) or factors(self, rows)
    )
    explainer.group(X_NEW, CLASSES)
    assert walks == [slice(0, N)]
    few = explainer.group(X_NEW, np.arange(N))
    monkeypatch.setattr("axil.contributions.additive_attribution.BATCH_BYTES", 1 << 10)
    many = explainer.group(X_NEW, np.arange(N))  # row by row, as explanations are
    pd.testing.assert_frame_equal(few, many, rtol=0, atol=1e-12)


def test_the_waterfall_ends_at_the_score(case):
    pytest.importorskip("matplotlib").use("Agg")
    explainer, _ = case
    explanation = explainer(X_NEW)
    output = None if explanation.outputs is None else explanation.outputs[1]
    ax = axil.plots.waterfall(explanation, 5, query=1, output=output)
    assert "score" in ax.get_xlabel()
    assert "derivative" not in ax.get_title()
    axil.plots.waterfall(explainer.top(X_NEW, 5), query=1, output=output, prediction=1.0)
    axil.plots.group(explanation, groups=CLASSES, output=output)
    axil.plots.weights(explanation, output=output)
    with pytest.raises(axil.InputError, match="reference"):
        axil.plots.waterfall(explanation, 5, output=output, reference=1.0)


def test_top_needs_no_table_of_all_rows():
    """300 queries by 120 rows would take 288 kB and more."""
    explainer = axil.Explainer(BINARY_MODEL, X, BINARY, memory_limit="200KB")
    many = np.repeat(X_NEW, 100, axis=0)
    with pytest.raises(axil.InputError, match="memory_limit"):
        explainer(many)
    assert len(explainer.top(many, 1)) == 300


def test_the_preview_and_files_name_what_they_show(case, tmp_path):
    explainer, _ = case
    explanation = explainer(X_NEW)
    text = explanation._repr_html_()
    for words in (
        "score",
        "largest contributions: row (contribution)",
        "mean" if "mean" in text else "probability",
    ):
        assert words in text
    explainer.write(X_NEW, tmp_path / "pushes.parquet")
    found = pd.read_parquet(tmp_path / "pushes.parquet")
    own = explanation.contributions
    assert np.array_equal(np.stack(found["contributions"]), own.reshape(-1, N))
    assert "weights" not in found


# Before 3.1 XGBoost starts counts from a Newton step, which is infinite far from 0.
BASE = 225.0 if VERSION < (3, 1) else None


def rounded_data():
    """Data on which the gradients of XGBoost, which it keeps in single precision, are mostly rounding in the end."""
    rng = np.random.default_rng(0)
    many, few = rng.normal(size=(300, 4)), rng.normal(size=(1000, 4))
    rare = np.repeat([0, 1, 2], [500, 490, 10])
    near = 225 + rng.uniform(-1, 1, size=300)
    weights = rng.uniform(0.5, 2, size=300)
    classifier, regressor = xgb.XGBClassifier, xgb.XGBRegressor
    return {
        "separable": (classifier(n_estimators=100), many, (many[:, 0] > 0).astype(int), None),
        "separable weighted": (
            classifier(scale_pos_weight=2.0),
            many,
            (many[:, 0] > 0).astype(int),
            weights,
        ),
        "separable classes": (
            classifier(n_estimators=60),
            many,
            np.digitize(many[:, 0], [-0.5, 0.5]),
            weights,
        ),
        "a rare class": (classifier(n_estimators=5), few + rare[:, None], rare, None),
        "hardly any of one class": (
            classifier(n_estimators=5),
            few,
            (np.arange(1000) < 999).astype(int),
            None,
        ),
        "gamma far from 0": (regressor(objective="reg:gamma"), many, near, None),
        "poisson far from 0": (
            regressor(objective="count:poisson", base_score=BASE),
            many,
            near,
            None,
        ),
        "tweedie far from 0": (regressor(objective="reg:tweedie"), many, near, weights),
        "pseudo-huber": (
            regressor(objective="reg:pseudohubererror", base_score=0.5),
            many,
            10 * many[:, 0],
            weights,
        ),
        "dart": (
            classifier(n_estimators=40, booster="dart", rate_drop=0.1),
            many,
            (many[:, 0] > 0).astype(int),
            None,
        ),
        "parallel": (
            classifier(n_estimators=40, num_parallel_tree=2),
            many,
            (many[:, 0] > 0).astype(int),
            None,
        ),
    }


@pytest.mark.parametrize("name", rounded_data())
def test_gradients_are_rounded_as_xgboost_rounds_them(name):
    """The leaves are XGBoost's own to the rounding of single precision, and pushes add up to its scores."""
    model, rows, y, weights = rounded_data()[name]
    model.fit(rows, y, sample_weight=weights)
    explainer = axil.Explainer(model, rows, y, sample_weight=weights)
    # one rounding of a leaf value; where targets are far from 0, of the means that gradients are differences of; scores with
    # dropped trees are added up in another order
    bounds = {"dart": 2e-6} | {name: 4e-6 for name in rounded_data() if "far from 0" in name}
    assert explainer.verification.leaf_error < bounds.get(name, 2e-7)
    assert explainer.verification.details["sum_error"] < 1e-9
    explanation = explainer(rows[:20])
    pushes = explanation.contributions.reshape(20, -1, len(rows)).sum(axis=2)
    expected = model.predict(rows[:20], output_margin=True).reshape(pushes.shape)
    found = explanation.intercepts.reshape(pushes.shape) + pushes
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )  # XGBoost's sums


@pytest.mark.parametrize("labels", [np.zeros(N), np.ones(N)])
def test_boosters_of_one_class_start_where_xgboost_does(labels):
    booster = xgb.train({"objective": "binary:logistic"}, xgb.DMatrix(X, labels), 3)
    explanation = axil.Explainer(booster, X, labels)(X[:3])
    expected = booster.predict(xgb.DMatrix(X[:3]), output_margin=True)
    np.testing.assert_allclose(
        explanation.intercepts + explanation.contributions.sum(axis=-1), expected, rtol=1e-6
    )


def test_a_class_without_rows():
    labels = (X[:, 0] > 0).astype(int)
    booster = xgb.train({"objective": "multi:softprob", "num_class": 3}, xgb.DMatrix(X, labels), 3)
    explanation = axil.Explainer(booster, X, labels)(X[:3])
    expected = booster.predict(xgb.DMatrix(X[:3]), output_margin=True)
    found = explanation.intercepts + explanation.contributions.sum(axis=-1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def own_squares(y, score):
    return score - y, np.ones_like(score)


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        (xgb.XGBClassifier(n_estimators=2), None),
        (HistGradientBoostingClassifier(max_iter=2), None),
        (lgb.LGBMClassifier(n_estimators=2, verbose=-1), None),
        (lgb.LGBMClassifier(n_estimators=2, verbose=-1, objective=own_squares), own_squares),
    ],
)
def test_classifiers_of_one_class_are_refused_by_name(model, objective):
    model.fit(X, np.zeros(N, dtype=int))
    with pytest.raises(axil.UnsupportedModelError, match="classes_"):
        axil.Explainer(model, X, np.zeros(N, dtype=int), objective=objective)


SCHEDULED = {
    "binary:logistic": (BINARY, {}),
    "count:poisson": (
        COUNTS,
        {"max_delta_step": 2.0},
    ),  # no leaf is clipped, whose gain would show no rate
    "reg:gamma": (COUNTS + 1, {}),
    "multi:softprob": (CLASSES, {"num_class": len(np.unique(CLASSES))}),
}


@pytest.mark.parametrize("start", [0.3, 0.0])
@pytest.mark.parametrize(
    "settings", [{"max_depth": 1}, {"max_depth": 3}, {"max_depth": 1, "alpha": 0.1}]
)
@pytest.mark.parametrize("objective", SCHEDULED)
def test_rates_of_a_schedule_are_read_from_gains(objective, settings, start, tmp_path):
    """Trees of two values too, whose values would fit any rate, and trees of a rate of zero."""
    if objective == "count:poisson" and "alpha" in settings:
        pytest.skip("gains with both alpha and max_delta_step do not show rates")
    y, more = SCHEDULED[objective]
    schedule = xgb.callback.LearningRateScheduler(lambda i: start if i < 2 else 0.5 * 0.8**i)
    parameters = {"objective": objective, "eta": start} | settings | more
    booster = xgb.train(parameters, xgb.DMatrix(X, y), 5, callbacks=[schedule])
    explanation = axil.Explainer(booster, X, y)(X[:5])
    pushes = explanation.contributions.reshape(5, -1, N).sum(axis=2)
    expected = booster.predict(xgb.DMatrix(X[:5]), output_margin=True).reshape(pushes.shape)
    np.testing.assert_allclose(
        explanation.intercepts.reshape(pushes.shape) + pushes, expected, rtol=0, atol=1e-6
    )
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(booster, X, y[::-1])


def test_an_own_objective_of_two_classes():
    """XGBClassifier's settings keep binary:logistic then, and its base_score passes through that link."""

    def logistic(y, score):
        p = 1 / (1 + np.exp(-score))
        return p - y, p * (1 - p)

    for settings in ({}, {"base_score": 0.3}):
        model = xgb.XGBClassifier(objective=logistic, n_estimators=5, **settings).fit(X, BINARY)
        for given in (None, logistic):
            explanation = axil.Explainer(model, X, BINARY, objective=given)(X[:5])
            expected = model.predict(X[:5], output_margin=True)
            found = explanation.intercepts + explanation.contributions.sum(axis=-1)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_scores_are_added_up_as_xgboost_adds_them():
    """In single precision a thousand trees of a separable problem lose 1e-6 of the score; the check follows them."""
    y = (X[:, 0] > 0).astype(int)
    model = xgb.XGBClassifier(n_estimators=1000, max_depth=2).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    assert explainer.verification.max_error < 1e-7
    explanation = explainer(X[:3])
    expected = model.predict(X[:3], output_margin=True)
    np.testing.assert_allclose(
        explanation.intercepts + explanation.contributions.sum(axis=-1), expected, rtol=1e-5
    )

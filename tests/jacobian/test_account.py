"""The additive explanation as people read it: contributions are pushes, and every view of them adds up."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from boosting_models import BINARY, CLASSES, COUNTS, LGB, X_NEW, XGB, N, X

import axil
from axil.jacobian.boosting import Boosting
from axil.jacobian.pushes import Pushes

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
    return axil.explain(model, X, y), scores


def test_intercepts_and_contributions_are_the_raw_score(case):
    explainer, scores = case
    explanation = explainer(X_NEW)
    expected = scores(X_NEW)
    total = np.moveaxis(explanation.contributions.sum(axis=-1), 0, -1) + explanation.intercepts
    assert np.abs(total - expected).max() <= 1e-6 * np.abs(expected).max()
    assert np.abs(explanation.predictions - expected).max() <= 1e-6 * np.abs(expected).max()
    assert (explanation.kind, explanation.exact) == ("additive", False)
    assert np.array_equal(explanation.targets, explainer.targets)
    part = explanation[[2, 0]]
    assert np.array_equal(part.contributions, explanation.contributions[..., [2, 0], :])
    assert np.array_equal(part.probabilities, explanation.probabilities[[2, 0]])


def test_probabilities_are_the_models_own():
    for (model, y, _), own in zip(
        MODELS.values(),
        (BINARY_MODEL.predict_proba(X_NEW)[:, 1], SEVERAL.predict_proba(X_NEW), MEANS.predict(X_NEW)),
    ):
        explainer = axil.explain(model, X, y)
        explanation = explainer(X_NEW)
        assert np.allclose(explanation.probabilities, own, rtol=1e-6)
        for table in (explainer.top(X_NEW, 2), explanation.top(2), explainer.similar(X_NEW, 2)):
            assert np.allclose(table[explanation.meaning], np.repeat(own.ravel(), 2), rtol=1e-6)
    squared = lgb.LGBMRegressor(**LGB).fit(X, COUNTS)
    assert axil.JacobianExplainer(squared, X, COUNTS)(X_NEW).probabilities is None
    assert axil.Explainer(squared, X, COUNTS)(X_NEW).probabilities is None


def test_questions_about_contributions_do_not_pay_for_derivatives(case, monkeypatch):
    explainer, _ = case

    def refused(*_):
        raise AssertionError("a derivative was computed")

    with monkeypatch.context() as patch:
        patch.setattr(Boosting, "target_derivatives", refused)
        explanation = explainer(X_NEW)
        for ask in (explainer.top, explainer.similar, explainer.concentration, explainer.effective_size):
            ask(X_NEW)
        explainer.to_html(X_NEW)
        explainer.group(X_NEW, CLASSES)
        explanation.top()
        explanation.group(CLASSES)
        with pytest.raises(AssertionError, match="derivative"):
            explanation.weights  # noqa: B018
    weights = explanation.weights
    assert np.shares_memory(explanation.weights, weights)  # computed once
    assert np.array_equal(explanation[1].weights, weights[..., 1:2, :])
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
        explainer.similar(X_NEW, N),
    ):
        assert "weight" not in frame
        assert "add up" in frame.attrs["axil"]
        sums = frame.groupby(keys, sort=False)["contribution"].sum().to_numpy()
        assert np.allclose(sums, expected, atol=1e-6)
    pd.testing.assert_frame_equal(explanation.top(7), explainer.top(X_NEW, 7))
    # Summed by leaf or by row: 200 numbers of size 1 in another order.
    pd.testing.assert_frame_equal(explanation.group(CLASSES), explainer.group(X_NEW, CLASSES), rtol=0, atol=1e-12)
    alone = explainer.group(X_NEW[:0], CLASSES)
    assert list(alone.columns) == list(explanation.group(CLASSES).columns)
    assert len(alone) == 0
    top = explanation.top(3)
    largest = np.sort(np.abs(explanation.contributions), axis=-1)[..., ::-1][..., :3]
    largest = largest if largest.ndim == 2 else np.moveaxis(largest, 0, 1)
    assert np.array_equal(np.abs(top["contribution"]).to_numpy(), largest.ravel())
    own = explainer.targets[top["row"]] if explainer.outputs is None else None
    assert own is None or np.array_equal(top["target"], own)
    by_weight = explainer.top(X_NEW, 3, by="weight")
    assert "weight" in by_weight
    assert "derivative" in by_weight.attrs["axil"]
    shown = explainer.concentration(X_NEW, [0.5])["rows"].to_numpy()
    assert (shown >= 1).all()
    assert (shown < N / 2 + 1).all()


def test_groups_are_summed_by_leaf_in_one_walk_unless_there_are_too_many(case, monkeypatch):
    explainer, _ = case
    walks = []
    factors = Pushes.factors
    monkeypatch.setattr(Pushes, "factors", lambda self, rows: walks.append(rows) or factors(self, rows))
    explainer.group(X_NEW, CLASSES)
    assert walks == [slice(0, N)]
    few = explainer.group(X_NEW, np.arange(N))
    monkeypatch.setattr("axil.jacobian.explainer.BATCH_BYTES", 1 << 10)
    many = explainer.group(X_NEW, np.arange(N))  # row by row, as explanations are
    pd.testing.assert_frame_equal(few, many, rtol=0, atol=1e-12)


def test_the_waterfall_ends_at_the_score(case):
    pytest.importorskip("matplotlib").use("Agg")
    explainer, _ = case
    explanation = explainer(X_NEW)
    output = None if explanation.outputs is None else explanation.outputs[1]
    ax = axil.plots.contributions(explanation, 5, query=1, output=output)
    assert "score" in ax.get_xlabel()
    assert "derivative" not in ax.get_title()
    axil.plots.contributions(explainer.top(X_NEW, 5), query=1, output=output, prediction=1.0)
    axil.plots.group(explanation, labels=CLASSES, output=output)
    axil.plots.weights(explanation, output=output)
    with pytest.raises(axil.InputError, match="reference"):
        axil.plots.contributions(explanation, 5, output=output, reference=1.0)


def test_top_needs_no_table_of_all_rows():
    """300 queries by 120 rows would take 288 kB and more."""
    explainer = axil.JacobianExplainer(BINARY_MODEL, X, BINARY, memory_limit="200KB")
    many = np.repeat(X_NEW, 100, axis=0)
    with pytest.raises(axil.InputError, match="memory_limit"):
        explainer(many)
    assert len(explainer.top(many, 1)) == 300


def test_the_preview_and_files_name_what_they_show(case, tmp_path):
    explainer, _ = case
    explanation = explainer(X_NEW)
    text = explanation._repr_html_()
    for words in ("score", "largest contributions: row (contribution)", "mean" if "mean" in text else "probability"):
        assert words in text
    explainer.write(X_NEW, tmp_path / "pushes.parquet")
    found = pd.read_parquet(tmp_path / "pushes.parquet")
    own = explanation.contributions
    own = own if own.ndim == 2 else np.moveaxis(own, 0, 1).reshape(-1, N)
    assert np.array_equal(np.stack(found["contributions"]), own)
    assert "weights" not in found

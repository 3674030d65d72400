"""A row's answer has the same bits alone, in any batch, after anything, with any threads, and saved and loaded."""

import numpy as np
import pytest

import axil
from axil.attribution import WEIGHTS
from axil.methods.method import verified_model
from tests.contract_models import case_of, offsets_of

MODELS = [
    ("lightgbm", "regressor"),
    ("lightgbm", "bagging"),
    ("lightgbm", "path_smooth=2"),  # leaves that mix
    ("lightgbm", "scored"),
    ("xgboost", "one_output_per_tree"),
    ("xgboost", "dart outputs"),
    ("catboost", "multi weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "RandomForestRegressor weighted"),
    ("smoother", "ridge two outputs"),
    ("smoother", "neighbours"),
    ("smoother", "pipeline linear leaves"),
]
SAVED = [one for one in MODELS if one[0] != "smoother"]


def made(library, name, prepared=False, n_threads=2):
    case = case_of(library, name)
    explainer = axil.Explainer(
        case.model,
        case.X,
        case.y,
        sample_weight=case.sample_weight,
        init_score=offsets_of(case),
        n_threads=n_threads,
    )
    return explainer.precompute() if prepared else explainer


def rows_of(case, n=20):
    return case.X_new[:n] if not hasattr(case.X_new, "iloc") else case.X_new.iloc[:n]


def answers(explainer, X):
    """The numbers of every streamed question, a line per row of X."""
    n, n_train = X.shape[0], len(explainer.index)
    labels = np.arange(n_train) % 3
    explanation = explainer(X)
    comparables = {
        "weights": explanation.weights,
        "predictions": explanation.predictions,
        "intercepts": explanation.intercepts,
        "top": explainer.top(X, 5)["weight"],
        "top by contribution": explainer.top(X, 5, by="contribution")["contribution"],
        "similar": explainer.similar(X, 3, weights=True)["share"],
        "group": explainer.group(X, labels)["contribution"],
        "concentration": explainer.concentration(X).drop(
            columns=["query", "output", "turnover"], errors="ignore"
        ),
        "standard error": explainer.diagnostics.standard_error(X, sigma=1.0),
        "of the explanation": explanation.top(5)["weight"],
        "effective size of the explanation": explanation.effective_size,
    }
    return {
        name: np.asarray(values, dtype=float).reshape(n, -1) for name, values in comparables.items()
    }


def assert_same(found, expected, how):
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name}, {how}")


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(("library", "name"), MODELS)
def test_rows_alone_and_in_any_batch(library, name, prepared):
    X, explainer = rows_of(case_of(library, name)), made(library, name, prepared)
    expected = answers(explainer, X)
    for size in (1, 13):
        for first in (0, 7, 19) if size == 1 else (0, 13):
            part = answers(explainer, X[first : first + size])
            assert_same(
                part,
                {key: of[first : first + size] for key, of in expected.items()},
                f"{size} at a time",
            )
    whole = explainer(X)
    for size in (1, 7):
        parts = list(explainer.iter(X, batch_size=size))
        for key in ("weights", "predictions"):
            found = np.concatenate([getattr(part, key) for part in parts])
            np.testing.assert_array_equal(found, getattr(whole, key))
    for part in (whole[4], whole[3:9], whole[[5, 2, 15]]):
        own = [list(whole.query_index).index(label) for label in part.query_index]
        np.testing.assert_array_equal(part.predictions, whole.predictions[own])
        np.testing.assert_array_equal(part.effective_size, whole.effective_size[own])


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(("library", "name"), MODELS)
def test_other_questions_before_and_other_threads(library, name, prepared):
    case = case_of(library, name)
    X, explainer = rows_of(case, 12), made(library, name, prepared)
    expected = answers(made(library, name, prepared, n_threads=1), X)
    explainer.diagnostics.leverage()
    explainer.top(case.X, 3)
    explainer.jacobian.matrix()
    explainer.diagnostics.standard_error(X)
    assert_same(answers(explainer, X), expected, "after others, by two threads")


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(("library", "name"), SAVED)
def test_saved_and_loaded(library, name, prepared, tmp_path):
    case = case_of(library, name)
    X, explainer = rows_of(case, 12), made(library, name, prepared)
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", case.model, X_train=case.X)
    assert verified_model(loaded).is_prepared == prepared
    assert_same(answers(loaded, X), answers(explainer, X), "loaded")


def test_the_request_as_a_whole_chooses_the_way(monkeypatch):
    """Not its batches; and what is kept already counts. The same request in the same state has the same bits."""
    X = rows_of(case_of("lightgbm", "regressor"))
    monkeypatch.setattr("axil.weights.boosting.BoostedTrees.prepare_pays", lambda self, n: n >= 10)
    swept, prepared = made("lightgbm", "regressor"), made("lightgbm", "regressor", prepared=True)
    monkeypatch.setattr("axil.weights.leaf_matrix.INVERTED", 0)
    solved = made("lightgbm", "regressor", prepared=True)
    one, many = explained(swept, X[:9]), explained(prepared, X)
    assert (one != many[:9]).any(), "the ways differ in their last bits"
    np.testing.assert_allclose(one, many[:9], rtol=1e-10, atol=1e-15)
    for n, inverts, expected in (
        (9, False, one),
        (20, False, explained(solved, X)),
        (20, True, many),
    ):
        monkeypatch.setattr(
            "axil.weights.boosting.BoostedTrees.inverse_pays",
            lambda self, n, inverts=inverts: inverts,
        )
        explainer = made("lightgbm", "regressor")
        for _ in range(2):
            np.testing.assert_array_equal(explained(explainer, X[:n]), expected)
            parts = [part.weights for part in explainer.iter(X[:n], batch_size=3)]
            np.testing.assert_array_equal(np.concatenate(parts), expected)
        assert (
            verified_model(explainer).engines[0].leaf_matrix is None
        )  # only the request was answered there


def explained(explainer, X):
    return explainer(X).weights


def test_a_limit_leaves_no_room_for_leaf_matrix(monkeypatch):
    monkeypatch.setattr("axil.weights.boosting.BoostedTrees.prepare_pays", lambda self, n: True)
    case = case_of("lightgbm", "regressor")
    for limit, prepared in (("1GiB", True), ("200KiB", False)):
        explainer = axil.Explainer(
            case.model, case.X, case.y, sample_weight=case.sample_weight, memory_limit=limit
        )
        (engine,) = verified_model(explainer).ready(WEIGHTS, 20).engines
        assert (engine.leaf_matrix is not None) == prepared

"""what_if and reach, against weights and replays."""

import numpy as np
import pandas as pd
import pytest

import axil
from axil import InputError
from tests.questions.question_models import MODELS, weights_of
from tests.reference import replay
from tests.test_contract import case_of, explainer_of, offsets_of, predict


def lines(frame, name, n):
    """(n, K): a column of a table with a line for each query and output."""
    return frame[name].to_numpy().reshape(n, -1)


def changed_targets(explainer, case):
    """Three rows with other targets, as the user writes them, and as numbers (N, K)."""
    y, rows = np.array(case.y), [1, 40, 7]
    if explainer._model.adapter.classes is not None:
        new = [next(c for c in explainer._model.adapter.classes if c != y[row]) for row in rows]
        after = explainer._model.targets.copy()
        after[rows] = np.array(new)[:, None] == explainer._model.adapter.classes
    else:
        new, after = [y[row] + 3 for row in rows], explainer._model.targets.copy()
        after[rows] += 3
    return dict(zip(explainer.index[rows], new)), after


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_what_if_moves_predictions_by_the_weights(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    new, after = changed_targets(explainer, case)
    frame = explainer.what_if(case.X_new, new)
    model, n = predict(case, case.X_new), case.X_new.shape[0]
    change = np.einsum("ikj,jk->ik", weights_of(explainer, case.X_new), after - explainer._model.targets)
    slack = 1e-12 * np.abs(after).max()
    np.testing.assert_allclose(lines(frame, "change", n), change, rtol=0, atol=slack)
    np.testing.assert_array_equal(lines(frame, "before", n), model)
    np.testing.assert_allclose(
        lines(frame, "after", n), model + change, rtol=0, atol=slack + 1e-15 * np.abs(model).max()
    )
    assert "structure held fixed" in frame.attrs["axil"]


def test_what_if_against_a_replay_with_the_new_targets():
    case, explainer = case_of("lightgbm", "bagging"), explainer_of("lightgbm", "bagging")
    new, after = changed_targets(explainer, case)
    leaves, s = explainer._model.adapter.leaves(case.X_new), explainer._model.engines[0].structure
    frame = explainer.what_if(case.X_new, new)
    moved = replay(s, after[:, 0], leaves) - replay(s, explainer.targets, leaves)
    np.testing.assert_allclose(frame["change"], moved, rtol=0, atol=1e-12)


def test_what_if_with_offsets_labels_and_nothing_new():
    case = case_of("lightgbm", "regressor weighted scored")
    X = pd.DataFrame(np.asarray(case.X), index=[f"r{i}" for i in range(len(case.y))])
    X.columns = getattr(case.model, "booster_", case.model).feature_name()
    explainer = axil.Explainer(case.model, X, case.y, case.sample_weight, offsets_of(case))
    frame = explainer.what_if(X.iloc[:4], {"r3": 0.0}, init_score=np.arange(4.0))
    plain = explainer.what_if(X.iloc[:4], pd.Series({"r3": 0.0}))
    np.testing.assert_allclose(frame["before"] - plain["before"], np.arange(4.0))
    assert list(frame["query"]) == ["r0", "r1", "r2", "r3"]
    assert not explainer.what_if(X.iloc[:4], {})["change"].any()
    assert len(explainer.what_if(X.iloc[:0], {"r3": 1.0})) == 0


def test_a_label_that_several_rows_share_means_all_of_them():
    case, plain = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    repeated = pd.DataFrame(np.asarray(case.X), index=np.arange(len(case.y)) // 2)
    repeated.columns = getattr(case.model, "booster_", case.model).feature_name()
    explainer = axil.Explainer(case.model, repeated, case.y)
    found, expected = explainer.what_if(case.X_new, {3: 1.0}), plain.what_if(case.X_new, {6: 1.0, 7: 1.0})
    pd.testing.assert_frame_equal(found, expected)
    np.testing.assert_array_equal(explainer.reach(case.X_new, [3, 0]), plain.reach(case.X_new, [6, 7, 0, 1]))


def test_bad_changes_are_refused():
    case, explainer = case_of("lightgbm", "regressor"), explainer_of("lightgbm", "regressor")
    bad = {
        "unknown": ({10**6: 1.0}, "names row 1000000"),
        "twice": (pd.Series([1.0, 2.0], index=[3, 3]), "names row 3 twice"),
        "nan": ({3: np.nan}, "targets holds nan"),
        "text": ({3: "high"}, "not numeric"),
        "a list": ([1.0], "targets is a list"),
    }
    for new, message in bad.values():
        with pytest.raises(InputError, match=message):
            explainer.what_if(case.X_new, new)
    classifier = explainer_of("sklearn", "RandomForestClassifier")
    with pytest.raises(InputError, match="knows the classes"):
        classifier.what_if(case_of("sklearn", "RandomForestClassifier").X_new, {0: "no such class"})


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("lightgbm", "regressor"),
        ("lightgbm", "bagging"),
        ("xgboost", "one_output_per_tree weighted"),
        ("xgboost", "base_margin base_score=2 weighted"),
        ("catboost", "multi weighted"),
        ("sklearn", "RandomForestRegressor weighted"),
        ("smoother", "ridge two outputs"),
        ("smoother", "neighbours"),
    ],
)
@pytest.mark.parametrize("scored", [False, True])
def test_reach_is_columns_of_the_weights(library, name, scored, monkeypatch):
    """Up to rounding: these are made by replays of the fit, those by sweeps back from the predictions."""
    monkeypatch.setattr("axil.questions.what_if.COLUMNS", 3)
    explainer, case = explainer_of(library, name), case_of(library, name)
    rows = [5, 0, 17, 3]
    offsets = np.arange(case.X_new.shape[0], dtype=float) if scored and library != "smoother" else None
    if offsets is not None and explainer.outputs is not None:
        offsets = np.stack([offsets] * len(explainer.outputs), axis=1)
    found = explainer.reach(case.X_new, explainer.index[rows], offsets)
    wanted = explainer(case.X_new, offsets).weights[..., rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert explainer.reach(case.X_new, []).shape == (*wanted.shape[:-1], 0)


def test_reach_refuses_what_it_cannot_answer():
    explainer, X = explainer_of("lightgbm", "regressor"), case_of("lightgbm", "regressor").X_new
    for rows, message in [
        (["nobody"], "rows"),
        ("nobody", "expected a list of labels"),
        (3, "expected a list of labels"),
    ]:
        with pytest.raises(axil.InputError, match=message):
            explainer.reach(X, rows)
    small = axil.Explainer(*(getattr(case_of("lightgbm", "regressor"), part) for part in ("model", "X", "y")))
    small._model.budget.limit = 1000
    with pytest.raises(axil.InputError, match=r"would take .* memory_limit"):
        small.reach(X, small.index[:2])

"""CatBoost's loss for targets of which some are missing: every output has rows of its own, and all share the splits."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axil
from tests.adapters.catboost_models import Case, loaded, regressor, several

LOSS = "MultiRMSEWithMissingValues"


def case(weighted: bool = False, n_outputs: int = 3, share: float = 0.3, **params: Any) -> Case:
    """A small model of targets with gaps; output 1 has more of them than the others."""
    data, rng = several(n_outputs), np.random.default_rng(3)
    y = np.asarray(data.y, dtype=np.float64).reshape(len(data.y), -1)[:80]
    y = np.where(rng.random(y.shape) < share * (1 + (np.arange(n_outputs) == 1)), np.nan, y)
    small = replace(data, X=data.X[:80], y=y, weight=data.weight[:80], X_new=data.X_new[:6])
    return regressor(small, loss_function=LOSS, weighted=weighted, iterations=5, depth=3, **params)


def explainer(case: Case, y: Any = None) -> axil.Explainer:
    targets = case.y if y is None else y
    return axil.Explainer(
        case.model, case.X, targets, sample_weight=case.sample_weight, init_score=case.baseline
    )


def replayed(case: Case, weights: Any, X: Any, targets: Any = None) -> Any:
    """(n, K): the fit again in NumPy with these row weights, 0 for rows that are gone; splits are held fixed."""
    y = (case.y if targets is None else targets).astype(np.float32).astype(np.float64)
    params = case.model.get_all_params()
    rate, steps = (
        float(np.float32(params["learning_rate"])),
        int(params["leaf_estimation_iterations"]),
    )
    l2 = float(np.float32(np.float32(params["l2_leaf_reg"]) * weights[weights > 0].mean()))
    leaves, asked = (case.model.calc_leaf_indexes(rows) for rows in (case.X, X))
    made = np.zeros((len(X), y.shape[1]))
    for k, column in enumerate(y.T):
        w = np.where(np.isnan(column), 0.0, weights)
        r = np.nan_to_num(column)
        base = np.average(r, weights=w)
        r, made[:, k] = r - base, base
        for leaf, at in zip(leaves.T, asked.T):
            size = 1 << 3
            S, W = np.bincount(leaf, w * r, size), np.bincount(leaf, w, size)
            left = (l2 / (W + l2)) ** steps
            value = rate * np.divide((1 - left) * S, W, out=np.zeros(size), where=W > 0)
            r, made[:, k] = r - value[leaf], made[:, k] + value[at]
    return made


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"weighted": True},
    "steps": {"leaf_estimation_iterations": 3, "leaf_estimation_backtracking": "No"},
    "one output": {"n_outputs": 1},
    "most are missing": {"share": 0.45},
}


@pytest.mark.parametrize("name", CASES)
def test_weights_deletions_and_other_targets(name: str) -> None:
    own = case(**CASES[name])
    explanation = explainer(own)
    assert axil.supports(own.model).kind == explanation.kind == "exact"
    answer, n = explanation(own.X_new), len(own.y)
    weights = answer.weights.reshape(len(own.X_new), -1, n)
    missing = np.isnan(own.y)
    assert missing.any()
    assert not weights.transpose(0, 2, 1)[:, missing].any()
    made = np.einsum("ikj,jk->ik", weights, np.nan_to_num(own.y))
    np.testing.assert_allclose(
        made, own.model.predict(own.X_new).reshape(made.shape), rtol=0, atol=1e-5
    )
    w = (
        np.ones(n)
        if own.sample_weight is None
        else own.sample_weight.astype(np.float32).astype(np.float64)
    )
    np.testing.assert_allclose(made, replayed(own, w, own.X_new), rtol=0, atol=1e-5)

    rows = [0, 7, 30, 31]
    left = w.copy()
    left[rows] = 0.0
    after = explanation.without(own.X_new, rows)["after"].to_numpy().reshape(made.shape)
    np.testing.assert_allclose(after, replayed(own, left, own.X_new), rtol=0, atol=1e-5)
    single = explanation.without(own.X_new, [7])["change"].to_numpy().reshape(made.shape)
    effects = explanation.removal(own.X_new, method="exact").reshape(*made.shape, n)[:, :, 7]
    np.testing.assert_allclose(effects, single, rtol=0, atol=1e-9)
    alone = np.stack([replayed(own, w * (np.arange(n) != j), own.X_new) for j in rows], axis=2)
    removed = explanation.removal(own.X_new, method="exact").reshape(*made.shape, n)[:, :, rows]
    np.testing.assert_allclose(
        removed, alone - replayed(own, w, own.X_new)[:, :, None], rtol=0, atol=1e-5
    )

    targets = own.y.copy()
    targets[rows] += 5.0
    changes = {j: targets[j] if targets.shape[1] > 1 else targets[j, 0] for j in rows}
    moved = explanation.what_if(own.X_new, changes)["after"].to_numpy().reshape(made.shape)
    np.testing.assert_allclose(moved, replayed(own, w, own.X_new, targets), rtol=0, atol=1e-5)


def test_no_target_is_missing() -> None:
    """The loss is then that of several outputs, and so is every answer."""
    data = several()
    one, other = (
        regressor(data, loss_function=loss, iterations=3, depth=3) for loss in ("MultiRMSE", LOSS)
    )
    first, second = explainer(one), explainer(other)
    np.testing.assert_array_equal(first(one.X_new).weights, second(one.X_new).weights)
    assert first.without(one.X_new, [3, 4]).equals(second.without(one.X_new, [3, 4]))
    assert not second.find_label_issues().empty


def test_the_page() -> None:
    own = case()
    assert "<html" in explainer(own).to_html(own.X_new)


def test_files_copies_and_other_models() -> None:
    own = case()
    explanation = explainer(own)
    for copied in (
        pickle.loads(pickle.dumps(explanation)),
        explainer(replace(own, model=loaded(own).model)),
    ):
        np.testing.assert_array_equal(copied(own.X_new).weights, explanation(own.X_new).weights)


def test_saved(tmp_path: Any) -> None:
    own = case()
    explanation = explainer(own)
    explanation.save(tmp_path / "explainer.npz")
    again = axil.load(tmp_path / "explainer.npz", own.model, X_train=own.X)
    np.testing.assert_array_equal(again(own.X_new).weights, explanation(own.X_new).weights)
    for one in (explanation, again):
        with pytest.raises(axil.UnsupportedQuestionError, match="have no target of some outputs"):
            one.find_label_issues()


def test_wrong_targets() -> None:
    own = case()
    there, gaps = (np.argwhere(np.isnan(own.y) == missing) for missing in (False, True))
    wrong = [own.y.copy() for _ in range(4)]
    wrong[0][tuple(there[0])] += 1.0
    wrong[1][tuple(there[5])] = np.nan
    wrong[2][tuple(gaps[0])] = 0.0
    wrong[3][[0, 1]] = wrong[3][[1, 0]]
    for targets in wrong:
        with pytest.raises(axil.ExactnessError):
            explainer(own, targets)
    wrong[0][:, 0] = np.nan
    with pytest.raises(axil.InputError, match="no number in column 0"):
        explainer(own, wrong[0])
    wrong[1][0, 0] = np.inf
    with pytest.raises(axil.InputError, match="holds inf at position 0"):
        explainer(own, wrong[1])


def test_missing_targets_are_shown_as_missing_and_stay_so() -> None:
    own = case()
    explanation = explainer(own)
    errors = explanation.diagnostics.leave_one_out()
    assert np.array_equal(
        np.isnan(errors["target"].to_numpy().reshape(own.y.shape)), np.isnan(own.y)
    )
    assert np.isnan(errors["residual"].to_numpy().reshape(own.y.shape)[np.isnan(own.y)]).all()
    row = int(np.flatnonzero(np.isnan(own.y).any(axis=1))[0])
    with pytest.raises(axil.InputError, match="which had no target there in the fit"):
        explanation.what_if(own.X_new, {row: np.zeros(3)})
    full = int(np.flatnonzero(~np.isnan(own.y).any(axis=1))[0])
    with pytest.raises(axil.InputError, match="which had a target there in the fit"):
        explanation.what_if(own.X_new, {full: np.full(3, np.nan)})


OTHER: dict[str, dict[str, Any]] = {
    "leaf_estimation_method=Gradient": {"leaf_estimation_method": "Gradient"},
    "model_shrink_rate": {"model_shrink_rate": 0.1},
}


@pytest.mark.parametrize("name", OTHER)
def test_other_settings_are_refused(name: str) -> None:
    with pytest.raises(axil.UnsupportedModelError, match=f"{LOSS} with {name}"):
        explainer(case(**OTHER[name]))

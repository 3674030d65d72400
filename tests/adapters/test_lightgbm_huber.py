"""Huber boosting of LightGBM against a replay in plain NumPy, which cuts residuals off itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from tests.adapters.common import as_float32, check_wrong_targets
from tests.adapters.huber import replayed
from tests.adapters.lightgbm_models import CUT, booster, table
from tests.subsets import mostly_slow

Array = NDArray[np.float64]

PLAIN: dict[str, dict[str, Any]] = {
    "huber": {},
    "huber weighted l2": {"l2": 3.0},
    "huber whole targets": {"base": 0.0, "delta": 1.0},
    "huber scored": {"base": 0.0},
    "huber nothing cut off": {"delta": 1e6},
    "huber all cut off": {"base": 0.0, "delta": 1e-3},
}


def oracle(name: str, rows: Any = slice(None)) -> tuple[Array, Array, Array]:
    """Predictions, weights and constants of the new rows in the fit to some rows on the model's splits."""
    case, more = CUT[name](), {"delta": 0.7, **PLAIN[name]}
    y, leaves = as_float32(case.y), read(case.model).leaves(case.X)  # type: ignore[attr-defined]
    weights = np.ones(len(y)) if case.sample_weight is None else as_float32(case.sample_weight)
    if case.init_score is not None:
        more["offsets"] = case.init_score[rows]
    queries = read(case.model).leaves(case.X_new)  # type: ignore[attr-defined]
    return replayed(
        y[rows], weights[rows], leaves[rows], [0.1] * leaves.shape[1], queries=queries, **more
    )


def explained(name: str) -> axil.Explainer:
    case = CUT[name]()
    return axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=case.init_score
    )


@pytest.mark.parametrize("name", PLAIN)
def test_weights_are_those_of_a_replay(name: str) -> None:
    case, explainer = CUT[name](), explained(name)
    F, K, constants = oracle(name)
    assert explainer.kind == "exact"
    np.testing.assert_allclose(
        F, case.model.predict(case.X_new), rtol=0, atol=1e-7 * np.abs(case.y).max()
    )
    explanation = explainer(case.X_new)
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        np.ravel(explanation.intercepts), constants, rtol=0, atol=1e-6 * np.abs(case.y).max()
    )


@pytest.mark.parametrize("name", mostly_slow(2, PLAIN))
def test_deletions_cut_the_residuals_of_the_rows_left(name: str) -> None:
    case, explainer = CUT[name](), explained(name)
    gone = [3, 7, 50]
    left = np.setdiff1d(np.arange(len(case.y)), gone)
    predictions_after = explainer.without(case.X_new, gone)["after"]
    np.testing.assert_allclose(
        predictions_after, oracle(name, left)[0], rtol=0, atol=1e-7 * np.abs(case.y).max()
    )
    alone = oracle(name, np.delete(np.arange(len(case.y)), 7))[0] - oracle(name)[0]
    assert np.abs(alone).max() > 0 or name == "huber all cut off"
    effects = explainer.removal(case.X_new)
    np.testing.assert_allclose(effects[:, 7], alone, rtol=0, atol=1e-7 * np.abs(case.y).max())


def test_a_row_left_out_is_predicted_by_the_others() -> None:
    case = booster(table(60), objective="huber", alpha=0.7, n_trees=4)
    left_out = axil.Explainer(case.model, case.X, case.y).diagnostics.leave_one_out()["prediction"]
    leaves, y = read(case.model).leaves(case.X), as_float32(case.y)  # type: ignore[attr-defined]
    for row in (0, 7, 31):
        rows = np.delete(np.arange(60), row)
        right = replayed(y[rows], np.ones(59), leaves[rows], [0.1] * 4, 0.7, queries=leaves[[row]])[
            0
        ]
        np.testing.assert_allclose([left_out[row]], right, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["huber", "huber regularised", "huber bagging", "huber dart bagging weighted"]
)
def test_a_refit_to_the_same_rows_is_the_model(name: str) -> None:
    case, explainer = CUT[name](), explained(name)
    again = explainer.refit()
    np.testing.assert_allclose(
        again.model.predict(case.X_new),
        case.model.predict(case.X_new),
        rtol=0,
        atol=1e-6 * np.abs(case.y).max(),
    )
    dropped = explainer.refit(drop=[3, 7, 50])
    after = explainer.without(case.X_new, [3, 7, 50])["after"]
    np.testing.assert_allclose(
        dropped.model.predict(case.X_new), after, rtol=0, atol=1e-6 * np.abs(case.y).max()
    )


@pytest.mark.parametrize(
    "name", ["huber", "huber weighted l2", "huber goss weighted", "huber dart bagging weighted"]
)
def test_wrong_targets_are_noticed(name: str) -> None:
    """A target without weight may be any that is cut off likewise; all others are noticed."""
    check_wrong_targets(CUT[name](), least=0.015)


def test_the_share_of_residuals_that_were_cut_off_is_told() -> None:
    case = CUT["huber whole targets"]()
    held = explained("huber whole targets").verification.active_set  # type: ignore[union-attr]
    y, leaves = as_float32(case.y), read(case.model).leaves(case.X)  # type: ignore[attr-defined]
    F, beyond = np.zeros(len(y)), 0
    for t in range(leaves.shape[1]):
        F = case.model.predict(case.X, num_iteration=t) if t else F
        beyond += int((np.abs(y - F) > 1.0).sum())
    assert held is not None
    assert held.cut == pytest.approx(beyond / leaves.size)
    assert f"which {100 * held.cut:.3g} % of the residuals are clipped" in str(held)
    assert explained("huber nothing cut off").verification.active_set.cut == 0  # type: ignore[union-attr]


def test_the_pattern_holds_within_the_radius() -> None:
    """A fit to targets that move by less leads where the weights say; one that moves further is replayed."""
    case, explainer = CUT["huber"](), explained("huber")
    held = explainer.verification.active_set  # type: ignore[union-attr]
    assert held is not None
    assert held.radius > 0
    weights = explainer(case.X_new).weights
    row = int(np.abs(weights).sum(axis=0).argmax())
    moved = explainer.what_if(case.X_new, {row: case.y[row] + 0.9 * held.radius})
    np.testing.assert_allclose(
        moved["change"], 0.9 * held.radius * weights[:, row], rtol=1e-6, atol=1e-12
    )
    y = as_float32(case.y)
    leaves, queries = (read(case.model).leaves(X) for X in (case.X, case.X_new))  # type: ignore[attr-defined]
    rates = [0.1] * leaves.shape[1]
    before, _, _ = replayed(y, np.ones(len(y)), leaves, rates, 0.7, queries=queries)
    y[row] += 0.9 * held.radius
    after, _, _ = replayed(y, np.ones(len(y)), leaves, rates, 0.7, queries=queries)
    np.testing.assert_allclose(after - before, moved["change"], rtol=0, atol=1e-10)
    y[row] = as_float32(case.y + 50)[row]
    far, _, _ = replayed(y, np.ones(len(y)), leaves, rates, 0.7, queries=queries)
    changes = explainer.what_if(case.X_new, {row: y[row]})["change"]
    np.testing.assert_allclose(
        far - before, changes, rtol=1e-6
    )  # rates come of values in single precision


def test_files_keep_the_pattern(tmp_path: Any) -> None:
    case = CUT["huber dart bagging weighted"]()
    explainer = explained("huber dart bagging weighted")
    explainer.save(tmp_path / "model.axil")
    again = axil.load(tmp_path / "model.axil", case.model)
    np.testing.assert_array_equal(again(case.X_new).weights, explainer(case.X_new).weights)
    assert again.verification == explainer.verification
    gone = again.without(case.X_new, [3])["after"]
    np.testing.assert_array_equal(gone, explainer.without(case.X_new, [3])["after"])


def test_derivatives_by_weights_are_refused_by_name() -> None:
    case = CUT["huber"]()
    with pytest.raises(axil.UnsupportedQuestionError, match="clipped"):
        explained("huber").removal(case.X_new, method="first-order")

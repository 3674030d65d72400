"""Quantile, L1 and MAPE boosting of LightGBM against percentiles in plain NumPy."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from axil.methods.method import verified_model
from tests.adapters.common import as_float32, check_wrong_targets
from tests.adapters.lightgbm_models import BAG, RANKED, VERSION, booster, table
from tests.adapters.percentiles import Rule, replayed

Array = NDArray[np.float64]


def even(alpha: float) -> Rule:
    """Linear between ranks, as np.quantile is; alpha in single precision."""

    def rule(weights: Array) -> tuple[int, int, float]:
        place = (len(weights) - 1) * float(np.float32(alpha))
        rank = min(int(np.floor(place + 1e-12)), len(weights) - 1)
        return rank, min(rank + 1, len(weights) - 1), max(place - rank, 0.0)

    return rule


def weighted(alpha: float) -> Rule:
    """Between the rows around the share of the weights.

    From LightGBM 4.7 on it is the lower one if the upper is light. Before 4.7 LightGBM interpolated with the weight of
    the row one further up, beyond the lower row, and took the upper one if that further row is light.
    """

    def rule(weights: Array) -> tuple[int, int, float]:
        threshold, total, below = alpha * np.cumsum(weights)[-1], 0.0, 0.0
        for rank, weight in enumerate(weights):
            below, total = total, total + weight
            if total > threshold or rank == len(weights) - 1:
                break
        if rank in (0, len(weights) - 1):
            return rank, rank, 0.0
        if VERSION < (4, 7):
            further = weights[rank + 1]
            share = (threshold - total) / further if further >= 1 else 1.0
        else:
            share = (threshold - below) / weight if weight >= 1 else 0.0
        return rank - 1, rank, share

    return rule


PLAIN: dict[str, Rule] = {
    "quantile": even(0.9),
    "quantile weighted": weighted(float(np.float32(0.3))),
    "quantile rate schedule": even(0.9),
    "l1": even(0.5),
    "l1 light weights": weighted(0.5),
    "l1 scored": even(0.5),
    "l1 boost_from_average=False": even(0.5),
    "l1 regularised": even(0.5),
    "l1 equal targets": even(0.5),
    "l1 median zero": even(0.5),
    "mape": weighted(0.5),
}


def fit_of(name: str) -> tuple[tuple[Array, Array, Any, Any], list[float], float | None]:
    """Targets, weights, leaves and offsets of the rows of a case; its rates; and its base, None where that is a percentile."""
    case = RANKED[name]()
    y = as_float32(case.y)
    weights = np.ones(len(y)) if case.sample_weight is None else as_float32(case.sample_weight)
    if name == "mape":
        weights = as_float32(
            np.float32(1.0) / np.maximum(np.float32(1.0), np.abs(case.y.astype(np.float32)))
        )
    rates = [0.3 * 0.9**t for t in range(12)] if "schedule" in name else [0.1] * 12
    offsets = 0.0 if case.init_score is None else case.init_score
    base = 0.0 if "False" in name or "scored" in name else None
    leaves = read(case.model).leaves(case.X)  # type: ignore[attr-defined]
    return (y, weights, leaves, offsets), rates, base


@pytest.mark.parametrize("name", PLAIN)
def test_weights_are_those_of_a_replay(name: str) -> None:
    case = RANKED[name]()
    (y, weights, leaves, offsets), rates, base = fit_of(name)
    F, K = replayed(PLAIN[name], y, weights, leaves, rates, base, offsets)
    model = case.model.predict(case.X) + offsets
    np.testing.assert_allclose(
        F, model, rtol=0, atol=1e-7 * np.abs(model).max()
    )  # the base is kept in single precision
    explanation = axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=case.init_score
    )(case.X, init_score=case.init_score)
    if (
        name == "l1 equal targets"
    ):  # of equal residuals rounding may choose another: the same numbers, other rows
        np.testing.assert_allclose(explanation.weights @ y, K @ y, rtol=0, atol=1e-9)
        return
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "name", ["quantile", "l1 weighted bagging", "mape", "quantile dart bagging weighted"]
)
def test_wrong_targets_are_noticed(name: str) -> None:
    """A target without weight may be any that keeps its ranks; all others are noticed."""
    check_wrong_targets(RANKED[name](), least=1e-6)


def test_the_pattern_is_told() -> None:
    case = RANKED["quantile"]()
    held = axil.Explainer(case.model, case.X, case.y).verification.active_set  # type: ignore[union-attr]
    assert held is not None
    assert held.ranked == held.n_leaves == 1 + sum(t.n_leaves for t in read(case.model)._trees)  # type: ignore[attr-defined]
    assert held.share == 1.0
    assert "by the ranks of their rows" in str(held)


@pytest.mark.parametrize(
    "name", ["quantile", "quantile weighted", "l1 scored", "l1 equal targets", "mape"]
)
def test_without_ranks_the_rows_that_are_left_again(name: str) -> None:
    """The fit to the other rows alone, at the same splits, tree by tree in NumPy."""
    case, rng = RANKED[name](), np.random.default_rng(0)
    given, rates, base = fit_of(name)
    gone = rng.choice(len(case.y), 25, replace=False)
    left = np.delete(np.arange(len(case.y)), gone)
    (y, weights, leaves), offsets = (part[left] for part in given[:3]), given[3]
    own = offsets if np.ndim(offsets) == 0 else np.asarray(offsets)[left]
    expected, _ = replayed(PLAIN[name], y, weights, leaves, rates, base, own)
    explainer = axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=case.init_score
    )
    scored = None if case.init_score is None else case.init_score[left]
    table = explainer.without(case.X[left], gone.tolist(), init_score=scored)
    np.testing.assert_allclose(table["after"], expected, rtol=0, atol=1e-6)
    assert "ranks of rows" in table.attrs["axil"]
    assert np.abs(table["change"]).max() > 1e-3


@pytest.mark.parametrize(
    "settings", [{"objective": "l1"}, {"objective": "quantile", "weighted": True, **BAG}]
)
def test_deletions_of_single_rows_are_fits_without_them(settings: dict[str, Any]) -> None:
    case = booster(table(90), n_trees=4, **settings)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    effects, left = explainer.removal(case.X_new[:3]), explainer.diagnostics.leave_one_out()
    for row in (0, 17, 80):
        changes = explainer.without(np.concatenate([case.X_new[:3], case.X[row : row + 1]]), [row])
        np.testing.assert_allclose(effects[:, row], changes["change"][:3], rtol=0, atol=1e-12)
        np.testing.assert_allclose(left["prediction"][row], changes["after"][3], rtol=0, atol=1e-12)
    with pytest.raises(axil.UnsupportedQuestionError, match="changes in jumps as weights change"):
        explainer.removal(case.X_new, method="first-order")
    with pytest.raises(axil.UnsupportedQuestionError, match="or percentiles"):
        explainer.diagnostics.leave_one_out_curve()
    chosen = explainer.removal(case.X_new[:1], k=2, greedy=True)
    best = np.abs(effects[0]).argmax()
    assert chosen["row"][0] == best
    assert chosen["effect"][0] == pytest.approx(effects[0, best], abs=1e-12)


def test_label_issues_and_calibrate_of_a_median_take_errors_without_the_row() -> None:
    case = booster(table(90), n_trees=4, objective="l1")
    explainer = axil.Explainer(case.model, case.X, case.y)
    left = explainer.diagnostics.leave_one_out()
    issues = (
        explainer.find_label_issues(out_of_fold="leave-one-out").set_index("row").loc[left["row"]]
    )
    np.testing.assert_allclose(issues["expected_label"], left["prediction"], rtol=0, atol=1e-12)
    half = len(case.X_new) // 2
    predictive = explainer.calibrate(
        case.X_new[:half], case.model.predict(case.X_new[:half]) + 0.1, method="exact"
    )
    assert predictive.training_errors == "leave-one-out"


def test_bags_that_were_recorded() -> None:
    case = booster(table(120), objective="l1", **BAG, n_trees=4)
    drawn = axil.Explainer(case.model, case.X, case.y)
    structure = verified_model(drawn).engines[0].structure  # type: ignore[attr-defined]
    assert structure.n_trees == 5
    sampler = read(case.model)._settings.bagging(120)  # type: ignore[attr-defined]
    bags = []
    for _ in range(4):
        bag, sampler = sampler.attempt(False, None)
        sampler = sampler.grown()
        bags.append(bag)
    again = axil.Explainer(case.model, case.X, case.y, in_bag=np.stack(bags, axis=1).astype(float))
    np.testing.assert_array_equal(again(case.X_new).weights, drawn(case.X_new).weights)


def test_files_keep_the_pattern(tmp_path: Any) -> None:
    case = RANKED["quantile dart bagging weighted"]()
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    explainer.save(tmp_path / "model.axil")
    again = axil.load(tmp_path / "model.axil", case.model)
    np.testing.assert_array_equal(again(case.X_new).weights, explainer(case.X_new).weights)
    assert again.verification == explainer.verification
    found, expected = (own.without(case.X_new, [0]) for own in (again, explainer))
    np.testing.assert_array_equal(found["after"], expected["after"])


def test_what_if_moves_predictions_as_a_fit_would_while_ranks_stay() -> None:
    """A target moves by little: LightGBM, fitted again by the same splits, moves as the weights say."""
    case = RANKED["l1"]()
    explainer = axil.Explainer(case.model, case.X, case.y)
    weights = explainer(case.X_new).weights
    row = int(np.abs(weights).sum(axis=0).argmax())
    moved = explainer.what_if(case.X_new, {row: case.y[row] + 1e-6})
    np.testing.assert_allclose(moved["change"], 1e-6 * weights[:, row], rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("objective", ["regression_l1", "mape"])
def test_a_start_between_targets_far_from_it(objective: str) -> None:
    """It is rounded as its targets are, which are larger, and a refit starts where LightGBM would."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, signs = rng.normal(size=(20, 2)), np.repeat([-1.0, 1.0], 10)
        y = signs * rng.uniform(0.9, 1.1, size=20)
        y[[0, 19]] = -0.9, 0.9 + 1e-4 * rng.normal()
        quiet = {
            "n_estimators": 2,
            "num_leaves": 3,
            "min_child_samples": 2,
            "verbose": -1,
            "n_jobs": 1,
        }
        model = lgb.LGBMRegressor(objective=objective, **quiet).fit(X, y)
        explainer = axil.Explainer(model, X, y)
        again = explainer.refit(drop=[3, 12])
        after = explainer.without(X, [3, 12])["after"]
        np.testing.assert_allclose(again.model.predict(X), after, rtol=0, atol=1e-6)


@pytest.mark.parametrize("objective", ["quantile", "regression_l1", "mape", "huber"])
def test_weights_of_one_are_none(objective: str) -> None:
    """LightGBM's package for Python drops weights that are all 1, so percentiles are those of a fit without weights."""
    rng = np.random.default_rng(2)
    X, ones = rng.normal(size=(80, 3)), np.ones(80)
    y = as_float32(X[:, 0] + rng.normal(size=80))
    quiet = {"n_estimators": 5, "min_child_samples": 5, "verbose": -1, "n_jobs": 1, "alpha": 0.7}
    model = lgb.LGBMRegressor(objective=objective, **quiet).fit(X, y, sample_weight=ones)
    explainer = axil.Explainer(model, X, y, sample_weight=ones)
    explanation = explainer(X)
    np.testing.assert_allclose(
        explanation.weights @ y + explanation.intercepts, model.predict(X), rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(explanation.weights, axil.Explainer(model, X, y)(X).weights)


@pytest.mark.parametrize("heavy", [[], [7], [7, 30, 31]])
def test_weights_of_one_that_are_left_over_are_none(heavy: list[int]) -> None:
    """Once the rows of other weights are gone, leaves have plain quantiles, as a fit to the rows left has."""
    rng = np.random.default_rng(4)
    X, w, alpha = rng.normal(size=(60, 2)), np.ones(60), 0.25
    y = as_float32(X[:, 0] + rng.normal(size=60))
    w[heavy] = 2.5
    quiet = {
        "n_estimators": 1,
        "num_leaves": 3,
        "min_child_samples": 15,
        "verbose": -1,
        "n_jobs": 1,
    }
    model = lgb.LGBMRegressor(objective="quantile", alpha=alpha, learning_rate=0.5, **quiet).fit(
        X, y, sample_weight=w
    )
    gone = heavy or [3]
    kept, leaves = np.delete(np.arange(60), gone), model.predict(X, pred_leaf=True).ravel()
    base = np.quantile(y[kept], alpha)
    expected = np.empty(60)
    for leaf in np.unique(leaves):
        rows = kept[leaves[kept] == leaf]
        expected[leaves == leaf] = base + 0.5 * np.quantile(y[rows] - base, alpha)
    explainer = axil.Explainer(model, X, y, sample_weight=w)
    np.testing.assert_allclose(explainer.without(X, gone)["after"], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        explainer.refit(drop=gone).model.predict(X), expected, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("objective", ["regression_l1", "mape"])
def test_goss_that_keeps_all_rows_but_multiplies_some(objective: str) -> None:
    """At a rate of 1 rows meet medians: their gradients are 0, the others' alike, and all are kept, these with a factor."""
    settings = {
        "data_sample_strategy": "goss",
        "top_rate": 0.2,
        "other_rate": 0.3,
        "learning_rate": 1.0,
    }
    quiet = {"n_estimators": 8, "num_leaves": 5, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
    multiplied = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 3))
        y = as_float32(X[:, 0] + rng.normal(size=60))
        model = lgb.LGBMRegressor(objective=objective, **settings, **quiet).fit(X, y)
        roots = [tree["tree_structure"] for tree in model.booster_.dump_model()["tree_info"]]
        multiplied += sum(r["internal_count"] == 60 and r["internal_weight"] > 60.1 for r in roots)
        explanation = axil.Explainer(model, X, y)(X)
        np.testing.assert_allclose(
            explanation.weights @ y + explanation.intercepts, model.predict(X), rtol=0, atol=1e-6
        )
    # LightGBM 4.1 records no weight of a root.
    assert multiplied or objective == "mape" or VERSION < (4, 2)

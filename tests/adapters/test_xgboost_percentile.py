"""Quantile and absolute-error boosting of XGBoost against percentiles in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from tests.adapters.common import check_wrong_targets
from tests.adapters.percentiles import Rule, replayed
from tests.adapters.xgboost_models import RANKED, VERSION, booster, regressor, table

Array = NDArray[np.float64]

TRAINED_HERE = pytest.mark.skipif(
    VERSION >= (3, 4), reason="from XGBoost 3.4 on leaves are Newton steps"
)


def even(alpha: float) -> Rule:
    """Linear between ranks 1 / (n + 1) apart, as in method 6 of Hyndman and Fan; alpha in single precision."""

    def rule(weights: Array) -> tuple[int, int, float]:
        n = len(weights)
        place = min(max(float(np.float32(alpha)) * (n + 1) - 1, 0.0), n - 1.0)
        return int(place), min(int(place) + 1, n - 1), place - int(place)

    return rule


def weighted(alpha: float) -> Rule:
    """The first row that reaches the share of the weights, added in single precision."""

    def rule(weights: Array) -> tuple[int, int, float]:
        sums = [np.float32(weights[0])]
        for weight in weights[1:]:
            sums.append(sums[-1] + np.float32(weight))
        threshold = np.float32(float(sums[-1]) * float(np.float32(alpha)))
        rank = next((i for i, found in enumerate(sums) if found >= threshold), len(weights) - 1)
        return rank, rank, 0.0

    return rule


PLAIN: dict[str, Rule] = {
    "quantile": even(0.9),
    "quantile 1/3 loaded": even(1 / 3),
    "absolute error": even(0.5),
    "absolute error weighted": weighted(0.5),
    "absolute error base_score": even(0.5),
    "absolute error regularised": even(0.5),
}


@pytest.mark.parametrize("name", PLAIN)
def test_weights_are_those_of_a_replay(name: str) -> None:
    case = RANKED[name]()
    y = case.y.astype(np.float32).astype(np.float64)
    weights = np.ones(len(y)) if case.sample_weight is None else case.sample_weight
    leaves = read(case.model).leaves(case.X)  # type: ignore[attr-defined]
    base = 3.0 if "base_score" in name else None
    F, K = replayed(PLAIN[name], y, weights, leaves, [0.3] * 10, base)
    model = case.predict(case.X)[:, 0]
    np.testing.assert_allclose(F, model, rtol=0, atol=1e-6 * np.abs(model).max())
    explanation = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)(
        case.X
    )
    np.testing.assert_allclose(explanation.weights, K, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["quantile", "absolute error weighted", "absolute error base_score"]
)
def test_without_ranks_the_rows_that_are_left_again(name: str) -> None:
    case = RANKED[name]()
    y = case.y.astype(np.float32).astype(np.float64)
    weights = np.ones(len(y)) if case.sample_weight is None else case.sample_weight
    gone = np.random.default_rng(0).choice(len(y), 30, replace=False)
    left = np.delete(np.arange(len(y)), gone)
    leaves = read(case.model).leaves(case.X)[left]  # type: ignore[attr-defined]
    base = 3.0 if "base_score" in name else None
    expected, _ = replayed(PLAIN[name], y[left], weights[left], leaves, [0.3] * 10, base)
    explainer = axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight)
    np.testing.assert_allclose(
        explainer.without(case.X[left], gone.tolist())["after"],
        expected,
        rtol=0,
        atol=1e-6 * np.abs(expected).max(),
    )


@TRAINED_HERE
@pytest.mark.skipif(VERSION < (3, 1), reason="before 3.1 all outputs start from one number")
@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_several_quantiles_of_one_column_of_targets(strategy: str) -> None:
    case = regressor(
        objective="reg:quantileerror", quantile_alpha=[0.2, 0.5, 0.9], multi_strategy=strategy
    )
    explainer = axil.Explainer(case.model, case.X, case.y)
    explanation = explainer(case.X_new)
    assert explanation.weights.shape == (len(case.X_new), 3, len(case.y))
    np.testing.assert_allclose(
        explanation.predictions, case.model.predict(case.X_new), rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(
        explanation.weights @ case.y + explanation.intercepts,
        explanation.predictions,
        rtol=0,
        atol=1e-5,
    )
    row = int(np.abs(explanation.weights).sum(axis=(0, 1)).argmax())
    moved = explainer.what_if(case.X_new, {row: case.y[row] + 1e-5})
    np.testing.assert_allclose(
        moved["change"], 1e-5 * explanation.weights[:, :, row].ravel(), rtol=1e-5, atol=1e-12
    )
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, case.X, case.y[::-1])


NOTICED = ("quantile", "quantile weighted subsample", "absolute error three targets")


@pytest.mark.parametrize("name", [name for name in NOTICED if name in RANKED])
def test_wrong_targets_are_noticed(name: str) -> None:
    check_wrong_targets(RANKED[name](), least=1e-3)


@TRAINED_HERE
def test_margins_in_the_place_of_a_percentile_are_refused() -> None:
    case = booster(table(120), margin=True, objective="reg:absoluteerror")
    with pytest.raises(axil.UnsupportedModelError, match="base_margin"):
        axil.Explainer(case.model, case.X, case.y, init_score=case.base_margin)
    plain: Any = booster(table(120), objective="reg:absoluteerror")
    with pytest.raises(axil.UnsupportedQuestionError, match="init_score"):
        axil.Explainer(plain.model, plain.X, plain.y)(
            plain.X_new, init_score=np.ones(len(plain.X_new))
        )


@TRAINED_HERE
def test_a_margin_beside_a_number_as_base() -> None:
    case = booster(table(120), margin=True, objective="reg:absoluteerror", base_score=0.0)
    explainer = axil.Explainer(case.model, case.X, case.y, init_score=case.base_margin)
    np.testing.assert_allclose(
        explainer(case.X_new).predictions, case.predict(case.X_new)[:, 0], rtol=0, atol=1e-5
    )


@pytest.mark.skipif(
    "absolute error vector leaves" not in RANKED, reason="XGBoost trains them from 3.1 on"
)
def test_refit_of_medians_that_share_trees_is_refused_by_name() -> None:
    case = RANKED["absolute error vector leaves"]()
    with pytest.raises(axil.UnsupportedQuestionError, match="several outputs share their trees"):
        axil.Explainer(case.model, case.X, case.y).refit(drop=[3])

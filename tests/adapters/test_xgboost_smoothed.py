"""Absolute error and quantiles of XGBoost 3.4 and later, which smooths them, against a replay in plain NumPy.

Older versions of XGBoost read the models of `smoothed_models.zip`, which 3.4.1 wrote.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from tests.adapters.xgboost_models import VERSION

Array = NDArray[np.float64]

pytestmark = pytest.mark.skipif(VERSION < (3, 1), reason="reads no files of XGBoost 3.4")
TRAINED_HERE = pytest.mark.skipif(
    VERSION < (3, 4), reason="XGBoost smooths these losses from 3.4 on"
)
TRAINED_ELSEWHERE = Path(__file__).with_name("smoothed_models.zip")

N_ROWS, N_TREES, RATE = 150, 8, 0.3
RNG = np.random.default_rng(1)
X = RNG.random((N_ROWS, 4)).astype(np.float32).astype(np.float64)
NOISE = RNG.standard_t(3, size=N_ROWS) * (0.3 + X[:, 3])
Y = np.float32(4 * np.sin(3 * X[:, 0] * X[:, 1]) + 2 * X[:, 2] + NOISE).astype(np.float64)
WEIGHTS = np.float32(RNG.gamma(2.0, 1.0, N_ROWS)).astype(np.float64)
WEIGHTS[::17] = 0.0
QUERIES = X[:9]
GONE = RNG.choice(N_ROWS, 20, replace=False)
KEPT = np.delete(np.arange(N_ROWS), GONE)

ABSOLUTE: dict[str, Any] = {"objective": "reg:absoluteerror"}
QUANTILES: dict[str, Any] = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}
PARAMS: dict[str, dict[str, Any]] = {
    "absolute error": ABSOLUTE,
    "absolute error weighted": ABSOLUTE,
    "absolute error two targets": ABSOLUTE,
    "absolute error base_score": {**ABSOLUTE, "base_score": 2.5},
    "quantile": {"objective": "reg:quantileerror", "quantile_alpha": 0.9},
    "quantiles": QUANTILES,
    "quantiles weighted": QUANTILES,
    "quantiles vector leaves": {**QUANTILES, "multi_strategy": "multi_output_tree"},
}
#: Settings that the plain replay does not have.
MORE: dict[str, dict[str, Any]] = {
    "dart": {"booster": "dart", "rate_drop": 0.4},
    "dart far from zero": {"booster": "dart", "rate_drop": 0.4},
    "subsample": {"subsample": 0.6},
    "subsample weighted": {"subsample": 0.6},
    "parallel trees": {"num_parallel_tree": 2, "colsample_bynode": 0.5},
    "reg_alpha": {"reg_alpha": 2.0},
    "max_delta_step": {"max_delta_step": 0.4},
    "no regularisation": {"reg_lambda": 0, "min_child_weight": 0},
    "exact": {"tree_method": "exact"},
    "far from zero": {},
    "monotone": {"monotone_constraints": "(1,1,0,0)"},
}


@dataclass(frozen=True)
class Case:
    model: Any
    y: Array
    weights: Array | None

    @property
    def explainer(self) -> axil.Explainer:
        return axil.Explainer(self.model, X, self.y, sample_weight=self.weights)

    def margins(self, rows: Array, model: Any = None) -> Array:
        booster = self.model if model is None else model
        return np.asarray(
            booster.predict(xgb.DMatrix(rows), output_margin=True), dtype=np.float64
        ).reshape(len(rows), -1)

    def leaves(self, rows: Array) -> NDArray[np.intp]:
        return (
            np.asarray(self.model.predict(xgb.DMatrix(rows), pred_leaf=True))
            .reshape(len(rows), -1)
            .astype(np.intp)
        )


def trained(name: str, params: dict[str, Any], **more: Any) -> Case:
    y = np.stack([Y, X[:, 0] - 2 * Y], axis=1) if "two targets" in name else Y
    y = y + 1000 * ("far from zero" in name)
    weights = WEIGHTS if "weighted" in name else None
    params = {"max_depth": 3, "eta": RATE, "nthread": 1, "seed": 3, "verbosity": 0, **params}
    return Case(
        xgb.train({**params, **more}, xgb.DMatrix(X, y, weight=weights), N_TREES), y, weights
    )


@cache
def case_of(name: str) -> Case:
    """A model that was trained here, or read from the file of another XGBoost."""
    if VERSION >= (3, 4):
        return trained(name, PARAMS[name])
    model = xgb.Booster({"nthread": 1})
    model.load_model(bytearray(zipfile.ZipFile(TRAINED_ELSEWHERE).read(f"{name}.ubj")))
    y = np.stack([Y, X[:, 0] - 2 * Y], axis=1) if "two targets" in name else Y
    return Case(model, y, WEIGHTS if "weighted" in name else None)


# -- the replay -------------------------------------------------------------------------------------------------------


def gradients(residuals: Array, w: Array, alpha: float | None) -> tuple[Array, Array]:
    """g and h of one output; no alpha: of the absolute error."""
    scale = float(np.sum(w * np.sqrt(np.abs(residuals))) / w.sum()) ** 2
    if alpha is None:
        d = scale / np.sqrt(scale**2 + residuals**2)
        return w * residuals * d, w * d
    x = residuals / (0.04 * scale)
    ratio = np.where(x == 0, 1.0, np.tanh(x) / np.where(x == 0, 1.0, x))
    return w * scale / 2 * (np.tanh(x) + 1 - 2 * float(np.float32(alpha))), w * 12.5 * np.maximum(
        ratio, 3e-4
    )


def start(y: Array, w: Array, weighted: bool, alpha: float | None) -> float:
    """The mean and a Newton step, or a quantile: interpolated without weights, of a row with them."""
    if alpha is None:
        mean = float(np.average(y, weights=w))
        g, h = gradients(mean - y, w, None)
        return mean - float(g.sum() / h.sum())
    order = np.argsort(y[w > 0], kind="stable")
    ordered, share = y[w > 0][order], float(np.float32(alpha))
    if weighted:
        sums = np.cumsum(np.float32(w[w > 0][order]), dtype=np.float32)
        return float(ordered[np.flatnonzero(sums >= np.float32(float(sums[-1]) * share))[0]])
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = int(place)
    return float(
        ordered[below]
        + (place - below) * (ordered[min(below + 1, len(ordered) - 1)] - ordered[below])
    )


def replayed(name: str, y: Array, w: Array, leaves: Any, asked: Any) -> tuple[Array, Array]:
    """Scores (n, K) of rows in leaves ``asked`` and contributions (n, K, N) to them, of a fit that runs freely in float64."""
    columns = y[:, None] if y.ndim == 1 else y
    alphas = PARAMS[name].get("quantile_alpha", [None] * columns.shape[1])
    alphas = alphas if isinstance(alphas, list) else [alphas]
    columns = np.broadcast_to(columns, (len(y), len(alphas)))
    shared = leaves.shape[1] == N_TREES and len(alphas) > 1
    base = [
        PARAMS[name].get("base_score", start(c, w, "weighted" in name, a))
        for c, a in zip(columns.T, alphas)
    ]
    F, scores = (
        np.tile(base, (len(y), 1)).astype(float),
        np.tile(base, (len(asked), 1)).astype(float),
    )
    contributions = np.zeros((len(asked), len(alphas), len(y)))
    for round_number in range(N_TREES):
        before = F.copy()
        for k, alpha in enumerate(alphas):
            g, h = gradients(before[:, k] - columns[:, k], w, alpha)
            t = round_number if shared else round_number * len(alphas) + k
            together = leaves[:, t, None] == leaves[:, t]
            F[:, k] -= RATE * together @ g / (together @ h + 1.0)
            met = asked[:, t, None] == leaves[:, t]
            parts = -RATE * met * g / (met @ h + 1.0)[:, None]
            contributions[:, k] += parts
            scores[:, k] += parts.sum(axis=1)
    return scores, contributions


def near(found: Any, expected: Array, scale: Array) -> None:
    """Within what single precision makes of scores of this size."""
    np.testing.assert_allclose(
        np.asarray(found).reshape(expected.shape), expected, rtol=0, atol=1e-6 * np.abs(scale).max()
    )


@pytest.mark.parametrize("name", PARAMS)
def test_contributions_and_changes_are_those_of_a_replay(name: str) -> None:
    case = case_of(name)
    w = np.ones(N_ROWS) if case.weights is None else case.weights
    leaves, asked, margins = case.leaves(X), case.leaves(QUERIES), case.margins(QUERIES)
    explainer = case.explainer
    assert explainer.kind == "additive" == axil.supports(case.model).kind
    scores, contributions = replayed(name, case.y, w, leaves, asked)
    near(margins, scores, margins)
    near(explainer.jacobian.gradient_contributions(QUERIES), contributions, margins)
    left, _ = replayed(name, case.y[KEPT], w[KEPT], leaves[KEPT], asked)
    near(explainer.without(QUERIES, GONE.tolist())["after"], left, margins)
    again = explainer.refit(drop=GONE.tolist())
    assert again.kind == "additive"
    near(case.margins(QUERIES, again.model), left, margins)
    other = case.y.copy()
    other[GONE] += 1.5
    moved, _ = replayed(name, other, w, leaves, asked)
    targets = {int(row): other[row] if other.ndim > 1 else float(other[row]) for row in GONE}
    near(explainer.what_if(QUERIES, targets)["after"], moved, margins)
    near(case.margins(QUERIES, explainer.refit(targets=targets).model), moved, margins)
    row = int(GONE[0])
    single, _ = replayed(
        name, np.delete(case.y, row, 0), np.delete(w, row), np.delete(leaves, row, 0), asked
    )
    effects = explainer.removal(QUERIES, k=N_ROWS)
    near(effects[effects["row"] == row]["effect"], single - scores, margins)


@TRAINED_HERE
@pytest.mark.parametrize("objective", ["reg:absoluteerror", "reg:quantileerror"])
@pytest.mark.parametrize("name", MORE)
def test_contributions_add_up(name: str, objective: str) -> None:
    alpha = {} if objective == "reg:absoluteerror" else {"quantile_alpha": [0.2, 0.9]}
    case = trained(name, MORE[name], objective=objective, **alpha)
    explainer, margins = case.explainer, case.margins(QUERIES)
    starts = explainer(QUERIES).intercepts.reshape(margins.shape)
    near(
        starts
        + explainer.jacobian.gradient_contributions(QUERIES)
        .reshape(*margins.shape, N_ROWS)
        .sum(axis=2),
        margins,
        margins,
    )
    near(explainer.without(QUERIES, [])["after"], margins, margins)
    swapped = case.y.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(case.model, X, swapped, sample_weight=case.weights)


@pytest.mark.parametrize("name", ["absolute error weighted", "quantiles"])
def test_all_doors_give_the_same(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    expected = case.explainer.jacobian.gradient_contributions(QUERIES)
    estimator = xgb.XGBRegressor()
    case.model.save_model(tmp_path / "model.json")
    estimator.load_model(tmp_path / "model.json")
    scaler = StandardScaler(with_mean=False, with_std=False).fit(X)
    booster = xgb.Booster(model_file=tmp_path / "model.json")
    for model in (booster, estimator, make_pipeline(scaler, estimator)):
        assert np.array_equal(
            axil.Explainer(
                model, X, case.y, sample_weight=case.weights
            ).jacobian.gradient_contributions(QUERIES),
            expected,
        )
    case.explainer.save(tmp_path / "explainer.npz")
    assert np.array_equal(
        axil.load(tmp_path / "explainer.npz", case.model).jacobian.gradient_contributions(QUERIES),
        expected,
    )


UNMOVED = {
    "one row": {"n_estimators": 2},
    "nothing to split": {"n_estimators": 4, "min_child_weight": 1e9},
    "one round of parallel trees": {"n_estimators": 1, "num_parallel_tree": 2},
    "one round of several outputs": {"n_estimators": 1, "base_score": 1.0},
}


@pytest.mark.parametrize("objective", ["reg:absoluteerror", "reg:quantileerror"])
@pytest.mark.parametrize("name", UNMOVED)
def test_trees_of_equal_weight_are_no_older_ones(name: str, objective: str) -> None:
    """Models of tree_method="exact" up to 3.3, whose second derivatives are 1, have trees of equal weight in every round."""
    n_rows = 1 if name == "one row" else 60
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(n_rows, 3)), rng.normal(size=n_rows)
    settings: dict[str, Any] = {
        "max_depth": 3,
        "n_jobs": 1,
        "objective": objective,
        **UNMOVED[name],
    }
    if objective == "reg:quantileerror":
        settings["quantile_alpha"] = [0.2, 0.9]
    model = xgb.XGBRegressor(**settings).fit(rows, targets)
    explanation = axil.Explainer(model, rows, targets)(rows[:5])
    expected = model.predict(rows[:5], output_margin=True)
    np.testing.assert_allclose(explanation.predictions, expected, rtol=0, atol=1e-5)


def test_derivatives_are_refused_by_name() -> None:
    explainer = case_of("quantile").explainer
    with pytest.raises(axil.UnsupportedQuestionError, match="scaled by the residuals of all rows"):
        explainer.jacobian.derivatives(QUERIES)


def test_other_targets_weights_and_rows_are_noticed() -> None:
    case = case_of("quantiles weighted")
    swapped, weights = case.y.copy(), WEIGHTS.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    weights[3] *= 2
    for y, w, rows in (
        (swapped, WEIGHTS, X),
        (case.y, weights, X),
        (case.y, None, X),
        (case.y, WEIGHTS, X[::-1]),
    ):
        with pytest.raises(axil.ExactnessError):
            axil.Explainer(case.model, rows, y, sample_weight=w)

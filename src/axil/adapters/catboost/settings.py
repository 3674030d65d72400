"""How CatBoost regularises leaves and adds up trees, from the settings of the fit, or of several where it was continued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters.contract import Coefficients
from axil.arrays import FloatArray
from axil.structure import Chains


@dataclass(frozen=True)
class FitSettings:
    """The settings of one call of fit that decide leaf values. CatBoost keeps them in float32."""

    iterations: int
    rate: float
    l2: float
    steps: int = 1
    backtracks: bool = False  #: gives up a step that does not lower the loss, be it by rounding
    scales_l2: bool = (
        True  #: by the mean weight; a GPU does not (catboost/cuda/methods/leaves_estimation)
    )
    #: l2 stays in float32 when it is scaled (CalcDeltaNewtonMulti, algo_helpers/online_predictor.cpp)
    rounds_l2: bool = False
    leaves_zero: bool = False  #: as the method "Simple" does for several outputs
    from_average: bool = False
    shrink: float = 0.0
    shrink_constant: bool = True

    def scaled_l2(self, mean_weight: float) -> float:
        """l2_leaf_reg times the mean weight (ScaleL2Reg, catboost/private/libs/algo_helpers/online_predictor.h)."""
        scaled = self.l2 * (mean_weight if self.scales_l2 else 1.0)
        return single(scaled) if self.rounds_l2 else scaled

    def shrinkage(self, tree: int) -> float:
        """Factor of the model so far before this tree (TrainOneIteration, catboost/private/libs/algo/train.cpp)."""
        if tree == 0:
            return 1.0
        return 1.0 - (self.shrink * self.rate if self.shrink_constant else self.shrink / tree)


def single(value: float) -> float:
    """Rounded to float32."""
    return float(np.float32(value))


def fit(settings: dict[str, Any]) -> FitSettings:
    """From the JSON that a model keeps as "params"."""
    boosting, tree = settings["boosting_options"], settings["tree_learner_options"]
    steps = int(tree["leaf_estimation_iterations"])
    several = str(settings["loss_function"]["type"]).startswith("Multi")
    return FitSettings(
        iterations=int(boosting["iterations"]),
        rate=single(boosting["learning_rate"]),
        l2=single(tree["l2_leaf_reg"]),
        steps=steps,
        backtracks=steps > 1 and tree.get("leaf_estimation_backtracking") != "No",
        scales_l2=settings.get("task_type") != "GPU",
        rounds_l2=several and tree["leaf_estimation_method"] == "Newton",
        leaves_zero=several and tree["leaf_estimation_method"] == "Simple",
        from_average=bool(boosting.get("boost_from_average", False)),
        shrink=single(boosting.get("model_shrink_rate", 0.0)),
        shrink_constant=boosting.get("model_shrink_mode", "Constant") == "Constant",
    )


def coefficients(
    fit: FitSettings, rates: FloatArray, scale: float, last_beta: float
) -> Coefficients | None:
    """Model shrinkage and the scale of predictions; None for neither, or where rates are open."""
    n_trees = len(rates)
    if (fit.shrink == 0.0 and scale == 1.0) or np.isnan(rates).any():
        return None
    omega, beta = np.zeros((n_trees + 1, n_trees)), np.ones(n_trees + 1)
    for t in range(1, n_trees + 1):
        factor = scale if t == n_trees else fit.shrinkage(t)
        omega[t] = omega[t - 1] * factor
        omega[t, t - 1] = rates[t - 1] * factor
        beta[t] = beta[t - 1] * factor
    beta[n_trees] = last_beta
    return Coefficients(omega, beta)


def base_factor(
    fit: FitSettings, n_trees: int, scale: float, bias: FloatArray, means: FloatArray
) -> float:
    """Factor of the base in predictions.

    Shrinking a model to its best iteration leaves the bias as all iterations that ran had shrunk it (ShrinkModel,
    catboost/libs/train_lib/train_model.cpp), and set_scale_and_bias scales it or not: whichever leads to the means.
    """
    last = fit.iterations if fit.shrink else n_trees
    shrunk = np.cumprod(
        [fit.shrinkage(t) if fit.shrink else 1.0 for t in range(max(n_trees, last))]
    )[n_trees - 1 :]
    factors = np.concatenate([shrunk, scale * shrunk])
    apart = np.abs(bias - np.outer(factors, means)).sum(axis=1)
    return float(factors[np.argmin(apart)])


@dataclass(frozen=True)
class Stage:
    """One tree as a replay meets it: sums of weight * residual (L, K), weights (L,) and the model's values (L, K)."""

    sums: FloatArray
    weights: FloatArray
    values: FloatArray
    negligible: float  #: a leaf value that rounding alone may make

    def l2(self, fit: FitSettings, scaled: float) -> FloatArray:
        """(L,): what one step would need as l2 for the value that this fit's steps lead to."""
        if fit.steps == 1 or scaled == 0.0:
            return np.full(len(self.weights), scaled)
        left = (scaled / (self.weights + scaled)) ** fit.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.weights > 0, self.weights * left / (1 - left), scaled)

    def misses(self, rate: float, l2: FloatArray) -> float:
        """How far leaf values are from rate * sums / (weights + l2), relative to the largest."""
        filled = self.weights > 0
        expected = rate * self.sums[filled] / (self.weights + l2)[filled, None]
        apart = float(np.abs(expected - self.values[filled]).max(initial=0.0))
        return apart / max(float(np.abs(self.values).max(initial=0.0)), self.negligible)

    def solve(self) -> tuple[float, float] | None:
        """rate and l2 from ``values * weights = rate * sums - l2 * values``, by least squares; None: more than one pair."""
        known = np.stack([self.sums.ravel(), -self.values.ravel()], axis=1)
        found, _, rank, _ = np.linalg.lstsq(
            known, (self.values * self.weights[:, None]).ravel(), rcond=1e-9
        )
        return (float(found[0]), float(found[1])) if rank == 2 else None

    def agrees(self, fit: FitSettings, mean_weight: float) -> bool:
        """Whether this fit's settings lead to the model's values."""
        return self.misses(fit.rate, self.l2(fit, fit.scaled_l2(mean_weight))) < _MISS

    def solved(self, mean_weight: float, rounds_l2: bool) -> FitSettings | None:
        """The settings that lead to the model's values with one step, rounded to float32 as CatBoost keeps them."""
        pair = self.solve()
        if pair is None or pair[0] <= 0:
            return None
        l2 = single(pair[1] / mean_weight)
        found = FitSettings(1, single(pair[0]), 0.0 if abs(l2) < _MISS else l2, rounds_l2=rounds_l2)
        return found if found.l2 >= 0 and self.agrees(found, mean_weight) else None


def shrunk_further(
    fit: FitSettings, n_trees: int, first: Stage, mean_weight: float, chains: Chains | None
) -> float:
    """Factor of the trees that are left, from those that ``shrink`` removed after the fit, as the first tree shows.

    ``chains`` are those of the first tree.
    """
    products = np.cumprod([fit.shrinkage(t) for t in range(fit.iterations)])[n_trees - 1 :]
    l2 = first.l2(fit, fit.scaled_l2(mean_weight))
    sums, weights = first.sums, first.weights + l2
    if chains is not None:
        pooled, weights = chains.pooled(sums[:, 0], weights)
        sums = pooled[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        made = products[0] * fit.rate * np.nan_to_num(sums / weights[:, None])
    ratio = float(np.sum(first.values * made)) / (float(np.sum(made**2)) or 1.0)
    later = products / products[0]
    return float(later[np.abs(later - ratio).argmin()])


def settings_of_each_tree(
    fits: list[FitSettings], stages: Iterator[Stage], mean_weight: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """rates (T,), l2 and steps (L,) of a continued model, of which CatBoost keeps the settings of the last fit, at times of more.

    Each tree takes the settings that lead to its values: those of a known fit, else those that solve for them, if more values
    than the two that any targets would be solved for bear them out. Where none do, or many (trees of one leaf), the rate
    stays open and the replay decides.
    """
    chosen, seen, known = list[FitSettings | None](), list[Stage](), list(fits)
    for stage in stages:
        own = next((fit for fit in reversed(known) if stage.agrees(fit, mean_weight)), None)
        if own is None:
            own = stage.solved(mean_weight, fits[-1].rounds_l2)
            known += [] if own is None else [own]
        chosen.append(own)
        seen.append(stage)
    for fit in known[len(fits) :]:
        values = np.concatenate(
            [stage.values.ravel() for own, stage in zip(chosen, seen) if own is fit]
        )
        if len(np.unique(values[values != 0])) <= 2:
            chosen = [None if own is fit else own for own in chosen]
    rates = np.array([np.nan if own is None else own.rate for own in chosen])
    closest, n_leaves = [own or fits[0] for own in chosen], [len(stage.weights) for stage in seen]
    l2 = np.repeat([fit.scaled_l2(mean_weight) for fit in closest], n_leaves)
    return rates, l2, np.repeat([float(fit.steps) for fit in closest], n_leaves)


_MISS = 1e-7  # a step that backtracking gave up moves a leaf by less

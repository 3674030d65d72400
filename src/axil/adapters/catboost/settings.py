"""How CatBoost regularises leaves and adds up trees, from the settings of its fits.

A continued model (init_model) has several fits, and CatBoost does not keep the settings of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters.contract import Coefficients
from axil.arrays import FloatArray
from axil.structure import Chains

#: Error of leaf values, relative to the largest, above which settings are not those of a tree. A
#: step that backtracking gave up moves a leaf by less.
LARGEST_ERROR = 1e-7


@dataclass(frozen=True)
class FitSettings:
    """The settings of one call of fit that decide leaf values. CatBoost keeps them in float32."""

    iterations: int
    rate: float
    l2: float
    steps: int = 1
    backtracks: bool = False  #: gives up a step that does not lower the loss, be it by rounding
    #: l2 is scaled by the mean weight; a GPU does not (catboost/cuda/methods/leaves_estimation)
    scales_l2: bool = True
    #: l2 stays in float32 when scaled (CalcDeltaNewtonMulti, algo_helpers/online_predictor.cpp)
    rounds_l2: bool = False
    leaves_zero: bool = False  #: as the method "Simple" does for several outputs
    from_average: bool = False
    shrink: float = 0.0
    shrink_constant: bool = True

    def scaled_l2(self, mean_weight: float) -> float:
        """Return l2_leaf_reg times the mean weight.

        See ScaleL2Reg, catboost/private/libs/algo_helpers/online_predictor.h.
        """
        scaled = self.l2
        if self.scales_l2:
            scaled *= mean_weight
        if self.rounds_l2:
            return to_single(scaled)
        return scaled

    def shrinkage(self, tree: int) -> float:
        """Return the factor of the model so far before this tree.

        See TrainOneIteration, catboost/private/libs/algo/train.cpp.
        """
        if tree == 0 or not self.shrink:
            return 1.0
        if self.shrink_constant:
            return 1.0 - self.shrink * self.rate
        return 1.0 - self.shrink / tree


def to_single(value: float) -> float:
    """Return a number rounded to float32."""
    return float(np.float32(value))


def fit_settings(settings: dict[str, Any]) -> FitSettings:
    """Return the settings of a fit from the JSON that a model keeps as "params"."""
    boosting = settings["boosting_options"]
    tree = settings["tree_learner_options"]
    steps = int(tree["leaf_estimation_iterations"])
    method = tree["leaf_estimation_method"]
    is_multi = str(settings["loss_function"]["type"]).startswith("Multi")
    return FitSettings(
        iterations=int(boosting["iterations"]),
        rate=to_single(boosting["learning_rate"]),
        l2=to_single(tree["l2_leaf_reg"]),
        steps=steps,
        backtracks=steps > 1 and tree.get("leaf_estimation_backtracking") != "No",
        scales_l2=settings.get("task_type") != "GPU",
        rounds_l2=is_multi and method == "Newton",
        leaves_zero=is_multi and method == "Simple",
        from_average=bool(boosting.get("boost_from_average", False)),
        shrink=to_single(boosting.get("model_shrink_rate", 0.0)),
        shrink_constant=boosting.get("model_shrink_mode", "Constant") == "Constant",
    )


def coefficients(
    fit: FitSettings, rates: FloatArray, scale: float, base_coefficient: float
) -> Coefficients | None:
    """Return the shares of trees and initial prediction in the scores before each tree.

    They follow from model shrinkage and the scale of predictions. None stands for neither of them,
    or for learning rates that are not known yet.
    """
    n_trees = len(rates)
    if (fit.shrink == 0.0 and scale == 1.0) or np.isnan(rates).any():
        return None
    omega = np.zeros((n_trees + 1, n_trees))
    beta = np.ones(n_trees + 1)
    for t in range(1, n_trees + 1):
        if t == n_trees:
            factor = scale
        else:
            factor = fit.shrinkage(t)
        omega[t] = omega[t - 1] * factor
        omega[t, t - 1] = rates[t - 1] * factor
        beta[t] = beta[t - 1] * factor
    beta[n_trees] = base_coefficient
    return Coefficients(omega, beta)


def base_factor(
    fit: FitSettings, n_trees: int, scale: float, bias: FloatArray, means: FloatArray
) -> float:
    """Return the factor of the initial prediction in predictions.

    Shrinking a model to its best iteration leaves the bias as all iterations that ran had shrunk it
    (ShrinkModel, catboost/libs/train_lib/train_model.cpp), and set_scale_and_bias scales it or not.
    The factor is the one that comes closest to the means (K,) of the targets.
    """
    if fit.shrink:
        most_trees = max(n_trees, fit.iterations)
    else:
        most_trees = n_trees
    shrunk = np.cumprod([fit.shrinkage(t) for t in range(most_trees)])[n_trees - 1 :]
    factors = np.concatenate([shrunk, scale * shrunk])
    errors = np.abs(bias - np.outer(factors, means)).sum(axis=1)
    return float(factors[np.argmin(errors)])


@dataclass(frozen=True)
class Stage:
    """One tree, with the numbers that a replay needs."""

    sums: FloatArray  #: (L, K) of weight times residual
    weights: FloatArray  #: (L,)
    values: FloatArray  #: (L, K) of the model
    negligible: float  #: a leaf value that rounding alone may make

    def l2(self, fit: FitSettings, scaled: float) -> FloatArray:
        """Return the l2 for which one step has the result of this fit's steps, (L,)."""
        if fit.steps == 1 or scaled == 0.0:
            return np.full(len(self.weights), scaled)
        remaining = (scaled / (self.weights + scaled)) ** fit.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.weights > 0, self.weights * remaining / (1 - remaining), scaled)

    def error(self, rate: float, l2: FloatArray) -> float:
        """Return the distance of leaf values from ``rate * sums / (weights + l2)``.

        The error is relative to the largest value.
        """
        filled = self.weights > 0
        expected = rate * self.sums[filled] / (self.weights + l2)[filled, None]
        error = float(np.abs(expected - self.values[filled]).max(initial=0.0))
        return error / max(float(np.abs(self.values).max(initial=0.0)), self.negligible)

    def solve(self) -> tuple[float, float] | None:
        """Return learning rate and l2, by least squares; None if they are not determined.

        They solve ``values * weights = rate * sums - l2 * values``.
        """
        matrix = np.stack([self.sums.ravel(), -self.values.ravel()], axis=1)
        right = (self.values * self.weights[:, None]).ravel()
        solution, _, rank, _ = np.linalg.lstsq(matrix, right, rcond=1e-9)
        if rank == 2:
            return (float(solution[0]), float(solution[1]))
        return None

    def agrees(self, fit: FitSettings, mean_weight: float) -> bool:
        """Return whether this fit's settings explain the model's values."""
        l2 = self.l2(fit, fit.scaled_l2(mean_weight))
        return self.error(fit.rate, l2) < LARGEST_ERROR

    def solved(self, mean_weight: float, rounds_l2: bool) -> FitSettings | None:
        """Return the settings that explain the model's values with one step, if there are any.

        They are rounded to float32, as CatBoost keeps them.
        """
        solution = self.solve()
        if solution is None or solution[0] <= 0:
            return None
        l2 = to_single(solution[1] / mean_weight)
        if abs(l2) < LARGEST_ERROR:
            l2 = 0.0
        fit = FitSettings(1, to_single(solution[0]), l2, rounds_l2=rounds_l2)
        if fit.l2 >= 0 and self.agrees(fit, mean_weight):
            return fit
        return None


def shrunk_further(
    fit: FitSettings, n_trees: int, first: Stage, mean_weight: float, chains: Chains | None
) -> float:
    """Return the factor of the remaining trees that is due to trees that `shrink` removed.

    Parameters
    ----------
    fit : FitSettings
        The settings of the fit.
    n_trees : int
        The number of trees that are left.
    first : Stage
        The first tree, which shows the factor.
    mean_weight : float
        The mean weight of the rows.
    chains : Chains, optional
        Those of the first tree, where it has monotone constraints.
    """
    products = np.cumprod([fit.shrinkage(t) for t in range(fit.iterations)])[n_trees - 1 :]
    sums = first.sums
    weights = first.weights + first.l2(fit, fit.scaled_l2(mean_weight))
    if chains is not None:
        pooled, weights = chains.pooled(sums[:, 0], weights)
        sums = pooled[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = products[0] * fit.rate * np.nan_to_num(sums / weights[:, None])
    ratio = float(np.sum(first.values * expected)) / (float(np.sum(expected**2)) or 1.0)
    factors = products / products[0]
    return float(factors[np.abs(factors - ratio).argmin()])


def settings_of_each_tree(
    fits: list[FitSettings], stages: Iterator[Stage], mean_weight: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return learning rates (T,), l2 (L,) and steps (L,) of a continued model.

    CatBoost keeps the settings of its last fit, and sometimes of more. Each tree takes the settings
    that lead to its values: those of a known fit, else those that solve for them. The solution must
    agree with more values than two, because any targets would be solved for two. Where no settings
    do, or many (trees of one leaf), the learning rate stays open and the replay decides.
    """
    chosen = list[FitSettings | None]()
    tree_stages = list[Stage]()
    candidates = list(fits)
    for stage in stages:
        fit = next((fit for fit in reversed(candidates) if stage.agrees(fit, mean_weight)), None)
        if fit is None:
            fit = stage.solved(mean_weight, fits[-1].rounds_l2)
            if fit is not None:
                candidates.append(fit)
        chosen.append(fit)
        tree_stages.append(stage)
    for solved in candidates[len(fits) :]:
        values = [stage.values.ravel() for fit, stage in zip(chosen, tree_stages) if fit is solved]
        distinct = np.unique(np.concatenate(values))
        if np.count_nonzero(distinct) <= 2:
            chosen = [None if fit is solved else fit for fit in chosen]
    rates = np.array([np.nan if fit is None else fit.rate for fit in chosen])
    closest = [fit or fits[0] for fit in chosen]
    n_leaves = [len(stage.weights) for stage in tree_stages]
    l2 = np.repeat([fit.scaled_l2(mean_weight) for fit in closest], n_leaves)
    return rates, l2, np.repeat([float(fit.steps) for fit in closest], n_leaves)

"""Learning rates and reg_lambda where a model's settings do not state them.

This is so after loading, and with schedules and continued training.

A leaf with weight H and sum of residuals S has the value ``v = rate * S / (H + lambda)``, rounded
to float32 twice: before and after the rate. Given v, H and S of a tree's leaves, rate and lambda
follow by least squares of ``v (H + lambda) = rate * S``. A split whose children are both leaves
says a little of it without data: XGBoost keeps there what its value would have been before the
rate, ``w = S / (H + lambda)``, so that ``v1 (H1 + lambda) + v2 (H2 + lambda) = rate * w (H +
lambda)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from axil.adapters.xgboost.document import Tree
from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedModelError

ROUNDING = 2.0**-24  # of float32, relative
LEAF_ROUNDING = 2 * ROUNDING
_SLACK = 1.2 * LEAF_ROUNDING
_MAX_STEPS = 60  # of Gauss-Newton
_CLIPPED = (
    "it is not the one stated, and max_delta_step clipped all leaves of that tree, so the leaves "
    "do not show it",
    "Fit with one learning rate, or without max_delta_step; if that changes nothing, see that the "
    "targets are those of the fit.",
)
_SINGLE_LEAF = (
    "it is not the one stated, and the tree has a single leaf, which agrees with any learning rate",
    "Fit with one learning rate, or stop before trees no longer split; if that changes nothing, "
    "see that the targets are those of the fit.",
)


@dataclass(frozen=True)
class ObservedLeaves:
    """Leaf values of one tree, and the sums over training rows that they were computed from.

    Leaves that XGBoost set to zero are left out of ``values``, ``weights`` and ``sums``.
    """

    values: FloatArray  #: (L' * K,)
    weights: FloatArray  #: (L' * K,)
    sums: FloatArray  #: (L' * K,) of residuals
    zero: BoolArray  #: (L,) which leaves XGBoost set to zero
    tree: Tree
    #: how far values before the rate may be off because XGBoost rounds scores in another order
    slack: float = 0.0
    #: the values before the rate for a lambda, where they are not sums over weights
    bent: Callable[[float], FloatArray] | None = None
    max_step: float = np.inf  #: max_delta_step

    @property
    def precision(self) -> FloatArray:
        """One over the rounding of each value, (L' * K,).

        Minute values count as a thousandth of the largest.
        """
        sizes = np.abs(self.values)
        return np.asarray(1.0 / (sizes + 1e-3 * sizes.max(initial=0.0) + 1e-300))

    def before_rate(self, l2: float) -> FloatArray:
        """Return the leaf values before the learning rate, (L' * K,), for this lambda."""
        if self.bent is not None:
            return self.bent(l2)
        return self.sums / (self.weights + l2)

    def rate(self, l2: float) -> float:
        """Return the learning rate that fits best with this lambda.

        It is nan if all values are zero.
        """
        steps = self.before_rate(l2) * self.precision
        squares = float(steps @ steps)
        if squares == 0 or not self.values.any():
            return np.nan
        return float(steps @ (self.values * self.precision)) / squares

    def are_clipped(self, l2: float) -> bool:
        """Whether max_delta_step or reg_alpha clipped every value, so that none shows a sum."""
        if self.max_step == np.inf:
            return False
        sizes = np.abs(self.before_rate(l2))
        return bool(np.all((sizes >= (1 - _SLACK) * self.max_step) | (sizes == 0)))

    def agree(self, rate: float, l2: float) -> bool:
        """Whether rate and lambda explain the values, up to their rounding and that of the sums."""
        sizes = np.abs(self.values)
        share_of_largest = 1e-9
        if self.bent is not None:  # a bound is rounded as the values it is the middle of
            share_of_largest = 2 * _SLACK
        slack = _SLACK * sizes + share_of_largest * sizes.max(initial=0.0)
        slack += rate * self.slack + 1e-37
        errors = np.abs(rate * self.before_rate(l2) - self.values)
        return bool(np.all(errors <= slack))

    def is_explained(self, l2: float) -> bool:
        """Whether some learning rate explains the values with this lambda."""
        rate = self.rate(l2)
        return bool(np.isnan(rate)) or self.agree(rate, l2)


@dataclass(frozen=True)
class TreeSettings:
    """The learning rate and the lambda of each of T trees."""

    rates: FloatArray  #: (T,)
    lambdas: FloatArray  #: (T,)

    def copy(self) -> TreeSettings:
        """Return a copy whose arrays can change."""
        return TreeSettings(self.rates.copy(), self.lambdas.copy())


# -- what a tree shows without data ---------------------------------------------------------------


def confirmed(tree: Tree, rate: float, l2: float) -> bool:
    """Whether the tree alone, without data, shows that it was grown with this rate and lambda.

    False if it shows otherwise and where it shows nothing: stumps whose root has hardly any
    residual left.
    """
    hessians = tree.node_hessians
    if hessians is None or not len(tree.splits):
        return False
    splits, left_nodes, right_nodes = tree.last_splits.T
    left_sums = tree.node_values[left_nodes] * (hessians[left_nodes] + l2)[:, None]
    right_sums = tree.node_values[right_nodes] * (hessians[right_nodes] + l2)[:, None]
    split_sums = rate * tree.base_weights[splits] * (hessians[splits] + l2)[:, None]
    noise = 4 * ROUNDING * (np.abs(left_sums) + np.abs(right_sums) + np.abs(split_sums)) + 1e-37
    errors = np.abs(left_sums + right_sums - split_sums)
    return bool(np.all(errors <= noise) and np.any(noise <= 1e-5 * np.abs(split_sums)))


def rate_of_steps(tree: Tree, l2: float) -> float:
    """Return the rate of a tree of percentiles, from the Newton steps that it was grown with.

    It is nan if they do not show it.

    XGBoost keeps these in ``base_weights``: with the rate at leaves, without it at splits.
    """
    hessians = tree.node_hessians
    if hessians is None or tree.n_outputs > 1 or not len(tree.splits):
        return np.nan
    steps = tree.base_weights[:, 0] * (hessians + l2)
    splits, left_nodes, right_nodes = tree.last_splits.T
    sums_below = steps[left_nodes] + steps[right_nodes]
    is_shown = np.abs(sums_below) > 0.01 * (np.abs(steps[left_nodes]) + np.abs(steps[right_nodes]))
    if not is_shown.any() or not (steps[splits][is_shown] != 0).all():
        return np.nan
    rates = sums_below[is_shown] / steps[splits][is_shown]
    if np.ptp(rates) > 1e-3 * np.abs(rates).max():
        return np.nan
    return float(np.median(rates))


def is_silent(tree: Tree) -> bool:
    """Return whether the tree was grown with a rate of zero.

    It then has splits, and all values are zero.
    """
    return len(tree.splits) > 0 and not tree.values.any()


def shows_rate(tree: Tree, rate: float, l2: float) -> bool:
    """Whether this rate explains the gain of a split into two leaves, which XGBoost stores.

    ``gain = S1^2 / (H1 + lambda) + S2^2 / (H2 + lambda) - w^2 (H + lambda)`` with ``S = v (H +
    lambda) / rate``: no data in it. The split of largest gain decides, as far as float32 shows it.
    """
    terms = _gain_terms(tree, l2)
    if terms is None or rate == 0:
        return False
    after = terms.leaves / rate**2
    slack = 16 * ROUNDING * (after + terms.split)
    return terms.gain > 0 and abs(after - terms.split - terms.gain) <= slack


def rate_of_gain(tree: Tree, l2: float) -> float:
    """Return the rate by the formula of `shows_rate`: the shortest number within the rounding.

    It is nan if no gain shows it.
    """
    terms = _gain_terms(tree, l2)
    if terms is None or not terms.gain > 0:
        return np.nan
    rate = float(np.sqrt(terms.leaves / (terms.split + terms.gain)))
    return float(np.float32(shortest(rate, 16 * ROUNDING * rate)))


def is_clipped(tree: Tree, max_step: float) -> bool:
    """Return whether max_delta_step clipped the value of a split into two leaves.

    The gain of the split follows from this value.
    """
    steps = np.abs(tree.base_weights[tree.last_splits[:, 0]])
    return bool(np.any(steps >= (1 - 1e-5) * max_step))


def rate_of_clip(tree: Tree, max_step: float) -> float:
    """Return the ratio of a tree's largest value to max_delta_step, which is its rate.

    It is nan unless it is a number of few digits.
    """
    rate = float(np.abs(tree.values).max()) / max_step
    rounded = shortest(rate, 2 * LEAF_ROUNDING * rate, most_digits=4)
    if rounded <= 0 or rounded == rate:
        return np.nan
    return float(np.float32(rounded))


@dataclass(frozen=True)
class _GainTerms:
    """The terms that the gain of a split into two leaves is computed from."""

    leaves: float  #: the sum of v^2 (H + lambda) over both leaves
    split: float  #: w^2 (H + lambda)
    gain: float


def _gain_terms(tree: Tree, l2: float) -> _GainTerms | None:
    """Return the terms of the split into two leaves that has the largest gain.

    It is None if the tree keeps none.
    """
    hessians = tree.node_hessians
    gains = tree.floats("loss_changes")
    has_gains = len(gains) == tree.n_nodes and len(tree.splits) > 0
    if hessians is None or not has_gains or (tree.n_outputs > 1 and not tree.has_whole_hessians):
        return None
    split, *children = tree.last_splits[np.argmax(gains[tree.last_splits[:, 0]])]
    leaf_squares = tree.node_values[children] ** 2 * (hessians[children] + l2)[:, None]
    split_squares = np.sum(tree.base_weights[split] ** 2) * (hessians[split] + l2)
    return _GainTerms(float(np.sum(leaf_squares)), float(split_squares), float(gains[split]))


# -- what the data show ---------------------------------------------------------------------------


def recover(
    trees: Sequence[ObservedLeaves], rate: float, l2: float, n_parallel: int
) -> TreeSettings:
    """Return rates and lambdas that explain the leaves.

    They are those that the settings state where these lead to the leaves, and where there are not
    more values than numbers to fit them with, for any data would then be explained. A lambda
    besides settings that bend the leaves is the one stated: with reg_alpha, files lose all three.
    """
    stated = TreeSettings(np.full(len(trees), rate), np.full(len(trees), l2))
    lambdas = _recover_lambdas(trees, l2)
    rates = np.zeros(len(trees))
    for t, tree in enumerate(trees):
        if not is_silent(tree.tree):
            rates[t] = tree.rate(lambdas[t])
    pairs = list(zip(trees, lambdas))
    if all(tree.agree(rate, tree_l2) for tree, tree_l2 in pairs if tree.values.any()):
        return _keep_shown(trees, TreeSettings(stated.rates.copy(), lambdas), stated)
    for candidate in (*_candidates(rates, n_parallel), rate):
        agrees = [tree.agree(candidate, tree_l2) for tree, tree_l2 in pairs]
        fits = np.isnan(rates) | np.array(agrees)
        rates[fits] = candidate
        if fits.all():
            break
    settings = _keep_shown(trees, TreeSettings(rates, lambdas), stated)
    settings.rates[[is_silent(tree.tree) for tree in trees]] = 0.0
    return settings


def _recover_lambdas(trees: Sequence[ObservedLeaves], l2: float) -> FloatArray:
    """Return the lambda of each tree, (T,).

    It is that of all trees, or the tree's own if continued training changed it.
    """
    lambdas = np.full(len(trees), l2)
    if any(tree.bent for tree in trees) or all(tree.is_explained(l2) for tree in trees):
        return lambdas
    lambdas[:] = _fit_lambda(trees, l2)
    for t, tree in enumerate(trees):
        if not tree.is_explained(lambdas[t]):
            lambdas[t] = _fit_lambda([tree], l2)
    return lambdas


def _keep_shown(
    trees: Sequence[ObservedLeaves], recovered: TreeSettings, stated: TreeSettings
) -> TreeSettings:
    """Return the recovered rates and lambdas if values determine them, otherwise the stated ones.

    Residuals add up to nearly zero, so that of a tree's values all but one are free: two leaves
    have some rate for any targets. A recovered number must therefore lead to one free value more,
    in all different trees that share it, than there are such numbers; or the gains that the trees
    keep must show it.
    """
    settings = recovered.copy()
    for numbers, stated_numbers in (
        (settings.rates, stated.rates),
        (settings.lambdas, stated.lambdas),
    ):
        for number in np.unique(numbers[~np.isnan(numbers) & (numbers != stated_numbers)]):
            shared = numbers == number
            if _is_shown(trees, settings, stated, shared):
                continue
            if numbers is settings.rates:
                _refuse_clipped(trees, settings, shared)
            settings.rates[shared] = stated.rates[shared]
            settings.lambdas[shared] = stated.lambdas[shared]
    _require_shown_rates(trees, settings)
    return settings


def _is_shown(
    trees: Sequence[ObservedLeaves], settings: TreeSettings, stated: TreeSettings, shared: BoolArray
) -> bool:
    """Return whether these trees (T,), which share a rate or a lambda, show it.

    They show it by their values or by their gains.
    """
    places = np.flatnonzero(shared).tolist()
    n_fitted = 1
    if (settings.rates != stated.rates)[shared].any():
        n_fitted += int((settings.lambdas != stated.lambdas)[shared].any())
    different_trees = {tuple(np.unique(trees[t].values[trees[t].values != 0])) for t in places}
    n_free = sum(max(len(values) - 1, 0) for values in different_trees)
    if n_free > n_fitted:
        return True
    return all(shows_rate(trees[t].tree, settings.rates[t], settings.lambdas[t]) for t in places)


def _refuse_clipped(
    trees: Sequence[ObservedLeaves], settings: TreeSettings, shared: BoolArray
) -> None:
    """Refuse trees (T,) of a rate that max_delta_step hides."""
    for t in np.flatnonzero(shared).tolist():
        if trees[t].are_clipped(settings.lambdas[t]):
            raise UnsupportedModelError("learning_rate", f"unknown for tree {t}", *_CLIPPED)


def _require_shown_rates(trees: Sequence[ObservedLeaves], settings: TreeSettings) -> None:
    """Refuse a tree of one leaf that disagrees with its rate, if other trees confirm the data.

    Trees that were pruned after the fit disagree for another reason, which has a refusal of its
    own.
    """
    if any(tree.tree.pruned for tree in trees):
        return
    agrees = []
    data_are_confirmed = False
    for tree, rate, l2 in zip(trees, settings.rates.tolist(), settings.lambdas.tolist()):
        agrees.append(tree.agree(rate, l2))
        shows_data = len(np.unique(tree.values)) > 2 or shows_rate(tree.tree, rate, l2)
        data_are_confirmed |= agrees[-1] and shows_data
    if not data_are_confirmed:
        return
    for t, tree in enumerate(trees):
        if len(tree.values) == 1 and not agrees[t] and not is_silent(tree.tree):
            raise UnsupportedModelError("learning_rate", f"unknown for tree {t}", *_SINGLE_LEAF)


def _candidates(rates: FloatArray, n_parallel: int) -> list[float]:
    """Return candidates for the rate that most trees share, round numbers first.

    XGBoost keeps it in float32.
    """
    known_rates = rates[~np.isnan(rates)]
    if not len(known_rates):
        return []
    typical = float(np.median(known_rates)) * n_parallel
    rounded = shortest(typical, 1e-6 * typical, most_digits=5)
    return [float(np.float32(rate) / np.float32(n_parallel)) for rate in (rounded, typical)]


def _fit_lambda(trees: Sequence[ObservedLeaves], start: float) -> float:
    """Return the lambda that fits best with a rate for each tree.

    The method is Gauss-Newton, with the rates projected out.
    """
    l2 = start
    information = 0.0
    for _ in range(_MAX_STEPS):
        slope = 0.0
        information = 0.0
        for tree in trees:
            rate = tree.rate(l2)
            if np.isnan(rate):
                continue
            steps = tree.before_rate(l2) * tree.precision
            change = -rate * steps / (tree.weights + l2)
            change -= steps * (steps @ change) / (steps @ steps)
            slope += float(change @ (tree.values * tree.precision - rate * steps))
            information += float(change @ change)
        if information < 1e-20:
            return start
        step = slope / information
        l2 = max(l2 + step, 0.0)
        if abs(step) <= 1e-12 * (1 + l2):
            break
    return float(np.float32(shortest(l2, 5 * ROUNDING / np.sqrt(information) + 1e-7 * l2)))


def shortest(value: float, slack: float, most_digits: int = 9) -> float:
    """Return the number with the fewest decimal digits within slack of the value.

    If there is none, return the value itself.
    """
    if abs(value) <= slack:
        return 0.0
    for digits in range(most_digits):
        rounded = float(f"{value:.{digits}e}")
        if abs(rounded - value) <= slack:
            return rounded
    return value

"""Learning rates and reg_lambda where a model's settings do not state them: after loading, schedules, continued training.

A leaf with weight H and sum of residuals S has the value ``v = rate * S / (H + lambda)``, rounded to float32 twice: before
and after the rate. Given v, H and S of a tree's leaves, rate and lambda follow by least squares of ``v (H + lambda) = rate * S``.
A split whose children are both leaves says a little of it without data: XGBoost keeps there what its value would have been
before the rate, ``w = S / (H + lambda)``, so that ``v1 (H1 + lambda) + v2 (H2 + lambda) = rate * w (H + lambda)``.
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
_ROUNDS = 60
_CLIPPED = (
    "it is not the one stated, and max_delta_step clipped all leaves of that tree, so that they do not show it",
    "Fit with one learning rate, or without max_delta_step; if that changes nothing, see that the targets are those of the fit.",
)
_SINGLE_LEAF = (
    "it is not the one stated, and the tree has a single leaf, whose value any learning rate leads to",
    "Fit with one learning rate, or stop before trees no longer split; if that changes nothing, see that the targets are those "
    "of the fit.",
)


@dataclass(frozen=True)
class Leaves:
    """Known facts about one tree's leaves: (L' * K,) values, weights and sums of residuals of those not set to zero."""

    values: FloatArray
    weights: FloatArray
    sums: FloatArray
    zero: BoolArray  #: (L,) which leaves XGBoost set to zero
    tree: Tree
    slack: float = (
        0.0  #: how far values before the rate may be off for scores that are rounded otherwise
    )
    #: the values before the rate for a lambda, where not sums over weights
    bent: Callable[[float], FloatArray] | None = None
    most: float = np.inf  #: max_delta_step

    @property
    def precision(self) -> FloatArray:
        """(L * K,): one over the rounding of each value, and for minute ones over that of the largest."""
        size = np.abs(self.values)
        found: FloatArray = 1.0 / (size + 1e-3 * size.max(initial=0.0) + 1e-300)
        return found

    def before_rate(self, l2: float) -> FloatArray:
        return self.sums / (self.weights + l2) if self.bent is None else self.bent(l2)

    def rate(self, l2: float) -> float:
        """The best rate for this lambda; nan where all is zero."""
        u = self.before_rate(l2) * self.precision
        squares = float(u @ u)
        return (
            float(u @ (self.values * self.precision)) / squares
            if squares > 0 and self.values.any()
            else np.nan
        )

    def clipped(self, l2: float) -> bool:
        """Whether all values were clipped, or set to zero by reg_alpha, so that no sum shows in any."""
        size = np.abs(self.before_rate(l2))
        return bool(self.most < np.inf and np.all((size >= (1 - _SLACK) * self.most) | (size == 0)))

    def agree(self, rate: float, l2: float) -> bool:
        """Whether rate and lambda lead to the values, up to their rounding and that of the sums."""
        found = rate * self.before_rate(l2)
        largest = (
            1e-9 if self.bent is None else 2 * _SLACK
        )  # a bound is rounded as the values it is the middle of
        slack = (
            _SLACK * np.abs(self.values)
            + largest * np.abs(self.values).max(initial=0.0)
            + rate * self.slack
            + 1e-37
        )
        return bool(np.all(np.abs(found - self.values) <= slack))


def confirmed(tree: Tree, rate: float, l2: float) -> bool:
    """Whether the tree alone, without data, shows that it was grown with this rate and lambda.

    False where it shows otherwise and where it shows nothing: stumps whose root has hardly any residual left.
    """
    hessians = tree.node_hessians
    if hessians is None or not len(tree.splits):
        return False
    own, left, right = tree.last_splits.T
    parts = [tree.node_values[child] * (hessians[child] + l2)[:, None] for child in (left, right)]
    whole = rate * tree.base_weights[own] * (hessians[own] + l2)[:, None]
    noise = 4 * ROUNDING * (np.abs(parts[0]) + np.abs(parts[1]) + np.abs(whole)) + 1e-37
    off = np.abs(parts[0] + parts[1] - whole)
    return bool(np.all(off <= noise) and np.any(noise <= 1e-5 * np.abs(whole)))


def rate_of_steps(tree: Tree, l2: float) -> float:
    """Return the rate of a tree of percentiles, from the Newton steps that it was grown with; nan where they do not show it.

    XGBoost keeps these in ``base_weights``: with the rate at leaves, without it at splits.
    """
    hessians = tree.node_hessians
    if hessians is None or tree.n_outputs > 1 or not len(tree.splits):
        return np.nan
    steps = tree.base_weights[:, 0] * (hessians + l2)
    own, left, right = tree.last_splits.T
    below, size = steps[left] + steps[right], np.abs(steps[left]) + np.abs(steps[right])
    is_shown = np.abs(below) > 0.01 * size
    if not is_shown.any() or not (steps[own][is_shown] != 0).all():
        return np.nan
    rates = below[is_shown] / steps[own][is_shown]
    return float(np.median(rates)) if np.ptp(rates) <= 1e-3 * np.abs(rates).max() else np.nan


def is_silent(tree: Tree) -> bool:
    """Return whether the tree was grown with a rate of zero: it has splits, and none of its values differs from zero."""
    return len(tree.splits) > 0 and not tree.values.any()


def shows_rate(tree: Tree, rate: float, l2: float) -> bool:
    """Whether the gain of a split into two leaves, which XGBoost keeps, is the one that this rate leads to.

    ``gain = S1^2 / (H1 + lambda) + S2^2 / (H2 + lambda) - w^2 (H + lambda)`` with ``S = v (H + lambda) / rate``: no data in it.
    The split of largest gain decides, as far as float32 shows it.
    """
    parts = _gain(tree, l2)
    if parts is None or rate == 0:
        return False
    after, before, gain = parts[0] / rate**2, parts[1], parts[2]
    return gain > 0 and abs(after - before - gain) <= 16 * ROUNDING * (after + before)


def rate_of_gain(tree: Tree, l2: float) -> float:
    """The rate by the same formula, the shortest number within the rounding of the gain; nan where no gain shows it."""
    parts = _gain(tree, l2)
    if parts is None or not parts[2] > 0:
        return np.nan
    rate = float(np.sqrt(parts[0] / (parts[1] + parts[2])))
    return float(np.float32(shortest(rate, 16 * ROUNDING * rate)))


def is_clipped(tree: Tree, most: float) -> bool:
    """Return whether max_delta_step clipped the value of a split into two leaves, which its gain follows from."""
    return bool(np.any(np.abs(tree.base_weights[tree.last_splits[:, 0]]) >= (1 - 1e-5) * most))


def rate_of_clip(tree: Tree, most: float) -> float:
    """Return the rate that leads from max_delta_step to a tree's largest value; nan unless it is a number of few digits."""
    rate = float(np.abs(tree.values).max()) / most
    rounded = shortest(rate, 2 * LEAF_ROUNDING * rate, most_digits=4)
    return float(np.float32(rounded)) if 0 < rounded != rate else np.nan


def _gain(tree: Tree, l2: float) -> tuple[float, float, float] | None:
    """Return ``sum of v^2 (H + lambda)``, ``w^2 (H + lambda)`` and the gain of the best split into two leaves."""
    hessians, gains = tree.node_hessians, tree.floats("loss_changes")
    has_gains = len(gains) == tree.n_nodes and len(tree.splits) > 0
    if hessians is None or not has_gains or (tree.n_outputs > 1 and not tree.has_whole_hessians):
        return None
    own, *children = tree.last_splits[np.argmax(gains[tree.last_splits[:, 0]])]
    squares = float(np.sum(tree.node_values[children] ** 2 * (hessians[children] + l2)[:, None]))
    return (
        squares,
        float(np.sum(tree.base_weights[own] ** 2) * (hessians[own] + l2)),
        float(gains[own]),
    )


def recover(
    trees: Sequence[Leaves], rate: float, l2: float, n_parallel: int
) -> tuple[FloatArray, FloatArray]:
    """(T,) rates and (T,) lambdas that lead to the leaves, those that the settings state where they do.

    And where there are not more values than numbers to fit them with, for any data would then be explained. A lambda besides
    settings that bend the leaves is the one stated: with reg_alpha, files lose all three.
    """
    stated = np.full(len(trees), rate), np.full(len(trees), l2)
    lambdas = np.full(len(trees), l2)
    if not any(tree.bent for tree in trees) and not all(_explains(tree, l2) for tree in trees):
        lambdas[:] = _lambda(trees, l2)
        for t, tree in enumerate(trees):  # continued training may have changed it
            if not _explains(tree, lambdas[t]):
                lambdas[t] = _lambda([tree], l2)
    rates = np.array(
        [0.0 if is_silent(tree.tree) else tree.rate(own) for tree, own in zip(trees, lambdas)]
    )
    if all(tree.agree(rate, own) for tree, own in zip(trees, lambdas) if tree.values.any()):
        return _shown(trees, (stated[0].copy(), lambdas), stated)
    for candidate in (*_candidates(rates, n_parallel), rate):
        fits = [
            np.isnan(r) or tree.agree(candidate, own) for tree, r, own in zip(trees, rates, lambdas)
        ]
        rates[np.array(fits)] = candidate
        if all(fits):
            break
    rates, lambdas = _shown(trees, (rates, lambdas), stated)
    rates[[is_silent(tree.tree) for tree in trees]] = 0.0
    return rates, lambdas


def _shown(
    trees: Sequence[Leaves],
    found: tuple[FloatArray, FloatArray],
    stated: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """The rates and lambdas found where values show them, those stated elsewhere.

    Residuals add up to nearly zero, so that of a tree's values all but one are free: two leaves have some rate for any targets. A
    number that was found must therefore lead to one free value more, in all different trees that share it, than there are such
    numbers; or the gains that the trees keep must show it.
    """
    rates, lambdas = (part.copy() for part in found)
    values = [tuple(np.unique(tree.values[tree.values != 0])) for tree in trees]
    for own, other in ((rates, stated[0]), (lambdas, stated[1])):
        for number in np.unique(own[~np.isnan(own) & (own != other)]):
            shared = own == number
            fitted = 1 + np.any((rates != stated[0]) & shared) * np.any(
                (lambdas != stated[1]) & shared
            )
            known = all(
                shows_rate(trees[t].tree, rates[t], lambdas[t])
                for t in np.flatnonzero(shared).tolist()
            )
            free = sum(
                max(len(own_values) - 1, 0)
                for own_values in {values[t] for t in np.flatnonzero(shared).tolist()}
            )
            if free <= fitted and not known:
                for t in np.flatnonzero(shared & (own is rates)).tolist():
                    if trees[t].clipped(lambdas[t]):
                        raise UnsupportedModelError(
                            "learning_rate", f"unknown for tree {t}", *_CLIPPED
                        )
                rates[shared], lambdas[shared] = stated[0][shared], stated[1][shared]
    _require_shown_rates(trees, rates, lambdas)
    return rates, lambdas


def _require_shown_rates(trees: Sequence[Leaves], rates: FloatArray, lambdas: FloatArray) -> None:
    """Refuse a tree of one leaf that disagrees with its rate, where trees of more leaves confirm the data."""
    agree = [
        tree.agree(rate, l2) for tree, rate, l2 in zip(trees, rates.tolist(), lambdas.tolist())
    ]
    data_are_confirmed = any(
        agrees and (len(np.unique(tree.values)) > 2 or shows_rate(tree.tree, rate, l2))
        for tree, rate, l2, agrees in zip(trees, rates.tolist(), lambdas.tolist(), agree)
    )
    if not data_are_confirmed:
        return
    for t, tree in enumerate(trees):
        if len(tree.values) == 1 and not agree[t] and not is_silent(tree.tree):
            raise UnsupportedModelError("learning_rate", f"unknown for tree {t}", *_SINGLE_LEAF)


def _candidates(rates: FloatArray, n_parallel: int) -> list[float]:
    """Candidates for the one rate of most trees, a number that a person typed first; XGBoost keeps it in float32."""
    known = rates[~np.isnan(rates)]
    if not len(known):
        return []
    typical = float(np.median(known)) * n_parallel
    rounded = shortest(typical, 1e-6 * typical, most_digits=5)
    return [float(np.float32(found) / np.float32(n_parallel)) for found in (rounded, typical)]


def _explains(tree: Leaves, l2: float) -> bool:
    rate = tree.rate(l2)
    return bool(np.isnan(rate)) or tree.agree(rate, l2)


def _lambda(trees: Sequence[Leaves], start: float) -> float:
    """The lambda that fits best with a rate for each tree: Gauss-Newton, the rates projected out."""
    l2, information = start, 0.0
    for _ in range(_ROUNDS):
        slope, information = 0.0, 0.0
        for tree in trees:
            rate = tree.rate(l2)
            if np.isnan(rate):
                continue
            u = tree.before_rate(l2) * tree.precision
            change = -rate * u / (tree.weights + l2)
            change -= u * (u @ change) / (u @ u)
            slope += float(change @ (tree.values * tree.precision - rate * u))
            information += float(change @ change)
        if information < 1e-20:
            return start
        step = slope / information
        l2 = max(l2 + step, 0.0)
        if abs(step) <= 1e-12 * (1 + l2):
            break
    return float(np.float32(shortest(l2, 5 * ROUNDING / np.sqrt(information) + 1e-7 * l2)))


def shortest(value: float, slack: float, most_digits: int = 9) -> float:
    """The number of fewest decimal digits within slack of the value, itself if there is none."""
    if abs(value) <= slack:
        return 0.0
    candidates = (float(f"{value:.{digits}e}") for digits in range(most_digits))
    return next((found for found in candidates if abs(found - value) <= slack), value)

"""Newton steps of a leaf value, including step halving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.losses import Loss
from axil.structure import Regularisation
from axil.structure.pattern import slopes_of
from axil.types import Array

SAME = 1e-14  # of a leaf value: no more than rounding
CLOSE = 1e-12  # of a leaf value, a sum over many rows: close enough to stop searching
NEAR = 1e-8  # of the same value: how close the best way comes to it, where rounding is amplified
ROUNDINGS = 8.0  # of a probability beside one, in every gradient of a leaf


@dataclass(frozen=True)
class LeafMix:
    """Leaf values of a tree that depend on the sums of other leaves: (L_t, L_t) each, a row for each value."""

    by_g: Array
    by_h: Array
    share: Array  #: a row of leaf m puts ``-w g share[l, m]`` into the value of leaf l


@dataclass(frozen=True)
class Step:
    """Leaf values of one output before the rate, and their derivatives by the leaf's G and H: (L_t,) each.

    Where the outputs' values are solved for together, ``inverse`` (L_t, K, K) is that of H + l2, and derivatives are by what it
    is applied to.
    """

    value: Array
    by_g: Array
    by_h: Array
    by_l2: Array
    share: Array  #: ``-value / G``: a row of the leaf puts ``-w g share`` into its value
    inverse: Array | None = None
    solved: Array | None = None  #: (L_t,) the value that was solved for, where the step is a part of that
    #: where leaves depend on each other; ``by_g`` and ``by_h`` are nan then, and ``share`` is 1
    mix: LeafMix | None = None

    def moved(self, G: NDArray[Any], H: NDArray[Any]) -> Array:
        """(L_t,): how the values move as the leaves' sums do by G and H."""
        return np.asarray(self.by_g * G + self.by_h * H if self.mix is None else self.mix.by_g @ G + self.mix.by_h @ H)

    def scaled(self, factor: float) -> Step:
        """The step times a factor."""
        if factor == 1:
            return self
        if self.inverse is not None:
            return replace(self, value=factor * self.value, inverse=factor * self.inverse)
        value, by_g, by_h, by_l2, share = (
            factor * part for part in (self.value, self.by_g, self.by_h, self.by_l2, self.share)
        )
        return Step(value, by_g, by_h, by_l2, share)


def leaf_step(G: Array, H: Array, l2: Array, l1: float, most: float) -> Step:
    """``v = -soft(G, l1) / (H + l2)`` clipped at ``most``; a threshold's or a clip's active pattern counts as fixed."""
    denominator = H + l2
    inverse = np.divide(1.0, denominator, out=np.zeros(denominator.shape), where=denominator > 0)
    value, share = -G * inverse, inverse
    if l1 <= 0 and most <= 0:
        by_h = -value * inverse
        return Step(value, -inverse, by_h, by_h, share)
    moves = np.ones(len(G), dtype=bool)
    if l1 > 0:
        left = np.maximum(np.abs(G) - l1, 0.0)
        moves = left > 0
        value = -np.sign(G) * left * inverse
        share = inverse * np.divide(left, np.abs(G), out=np.zeros_like(G), where=moves)
    if most > 0:
        clipped = np.abs(value) > most
        moves &= ~clipped
        share = share * np.divide(most, np.abs(value), out=np.ones_like(G), where=clipped)
        value = np.clip(value, -most, most)
    by_h = np.where(moves, -value * inverse, 0.0)
    return Step(value, np.where(moves, -inverse, 0.0), by_h, by_h, share)


def bounded_step(rule: Regularisation, G: Array, H: Array, plain: Step) -> Step:
    """The step of one tree whose splits must be monotone, by its rule; ``plain`` where no leaf is at a bound.

    A bound is the middle of two nodes' values, each made by all rows below the node: so rows of other leaves have their share
    in a leaf's value. Constants, of l1 or a clip, are shared out among those who made the rest of the value.
    """
    found = slopes_of(rule, -G, H)
    if found is None:
        return plain
    by_sum, by_weight = found
    value = rule.leaf_values(-G, H)
    linear = by_sum @ -G
    ratio = np.divide(value, linear, out=np.zeros_like(value), where=linear != 0)
    # no constants, and values next to zero
    ratio[np.abs(value - linear) <= SAME * np.abs(value).max(initial=0.0)] = 1.0
    share = ratio[:, None] * by_sum
    alone = (linear == 0) & (G != 0)
    share[alone, alone] = value[alone] / -G[alone]
    none = np.full_like(value, np.nan)
    return Step(value, none, none, none, np.ones_like(value), mix=LeafMix(-by_sum, by_weight, share))


def joint_steps(g: Array, p: Array, w: Array, leaf: NDArray[Any], l2: Array) -> list[Step]:
    """``v = -(H + l2)^-1 G`` of all outputs, H the sum of w (diag(p) - p p'); g and p (N, K), w and leaf (N,), l2 (L_t,)."""
    n, K = len(l2), g.shape[1]
    G = np.stack([np.bincount(leaf, w * g[:, k], n) for k in range(K)], axis=1)
    H = np.zeros((n, K, K))
    for k in range(K):
        H[:, k, k] += np.bincount(leaf, w * p[:, k], n)
        for m in range(K):
            H[:, k, m] -= np.bincount(leaf, w * p[:, k] * p[:, m], n)
    inverse, whole = np.zeros_like(H), np.isfinite(l2)
    inverse[whole] = np.linalg.inv(H[whole] + l2[whole, None, None] * np.eye(K))
    values = -np.einsum("lkm,lm->lk", inverse, G)
    minus = -np.ones(n)
    return [Step(values[:, k], minus, minus, -values[:, k], -minus, inverse, values[:, k]) for k in range(K)]


def rounded(loss: Loss, share: float, size: float) -> float:
    """How close to a leaf's value of this size the last step ends; ``share`` is the weight of its rows over H + l2.

    Probabilities next to one are rounded beside one, and their small gradients with them.
    """
    beside = loss.meaning == "probability" and not loss.joint
    found = ROUNDINGS * float(np.finfo(np.float64).eps) * share if beside else 0.0
    return max(CLOSE * size, min(found, NEAR * size))


def whole_steps(
    loss: Loss, steps: Sequence[Sequence[Step]], leaf: int, weight: float, goal: Array
) -> tuple[bool, list[float]] | None:
    """The way of `StepSearch` where whole steps, (K,) of all leaves each, lead to a leaf's value; None where they do not."""
    size = float(np.abs(goal).max(initial=0.0))
    reached = np.cumsum([[step.value[leaf] for step in own] for own in steps], axis=0)
    apart = np.abs(reached - goal).max(axis=1)
    share = max(float(step.share[leaf]) for step in steps[0])
    arrived = np.flatnonzero(apart <= CLOSE * size)
    if len(arrived):
        return True, [1.0] * (int(arrived[0]) + 1)
    return (True, [1.0] * len(steps)) if apart[-1] <= rounded(loss, weight * share, size) else None


@dataclass
class StepSearch:
    """Which steps lead from 0 to a leaf's value, when some may have been halved.

    A step that does not lower the loss is halved, again and again, and every attempt counts as one of ``n_steps``; what the
    library finds lower is a matter of its rounding. So all ways are tried, whole steps first, on one leaf that is slow to
    arrive: all leaves of a tree share the halvings.
    """

    loss: Loss
    y: Array  #: (rows, K) of the leaf
    score: Array  #: (rows, K) before the tree
    w: Array  #: (rows,)
    l2: float
    goal: Array  #: (K,) the leaf's value before the rate

    def way(self, n_steps: int) -> tuple[bool, list[float]]:
        """Whether the goal was reached, and the factor of each step on the way that ends closest to it."""
        size = float(np.abs(self.goal).max(initial=0.0))
        self._best: tuple[float, list[float]] = (np.inf, [1.0] * n_steps)
        bent = self.l2 + self.w @ np.broadcast_to(self.loss.leaf_slopes(self.y, self.score)[1], self.score.shape)
        share = float(self.w.sum() / bent.min()) if bent.min() > 0 else 0.0
        self._close, self._rounded = CLOSE * size, rounded(self.loss, share, size)
        self._go(np.zeros_like(self.goal), n_steps, [])
        return self._best[0] <= NEAR * size, self._best[1]

    def _go(self, total: Array, left: int, path: list[float]) -> bool:
        step = self._step(total)
        still = bool(np.abs(step).max() <= self._close)  # halves of no step lead nowhere else
        for halvings in range(1 if still else left):
            scale = 0.5**halvings
            after, taken = total + scale * step, [*path, scale]
            apart = float(np.abs(after - self.goal).max())
            if apart < self._best[0]:
                self._best = apart, taken
            last = left == halvings + 1
            if apart <= (self._rounded if last else self._close):
                return True
            if not last and self._go(after, left - halvings - 1, taken):
                return True
        return False

    def _step(self, total: Array) -> Array:
        score = self.score + total
        g, h = self.loss.leaf_slopes(self.y, score)
        if self.loss.joint:
            only = np.zeros(len(self.y), dtype=np.intp)
            steps = joint_steps(g, self.loss.mean(score), self.w, only, np.array([self.l2]))
            return np.array([step.value[0] for step in steps])
        G, bent = self.w @ g, self.l2 + (self.w @ h if np.shape(h) == g.shape else self.w.sum() * h)
        found: Array = np.divide(-G, bent, out=np.zeros_like(G), where=bent > 0)
        return found

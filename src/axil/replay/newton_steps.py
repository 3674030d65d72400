"""Newton steps of a leaf value, including step halving, and the share of each row in them.

A row j of a leaf with the sums G of ``w g`` and H of ``w h`` puts ``-w_j g_j share`` into the
leaf's value, where ``share`` is the same for all rows of the leaf. These parts add up to the value,
so ``share = -value / G`` wherever G is not zero. It is never computed as that quotient: G may be a
sum of gradients that cancel, of which only rounding is left, and the quotient then has no digit
that means anything. Each rule gives the share by itself:

    no constants                  v = -G / (H + l2)                      share = 1 / (H + l2)
    l1, or a largest step         v = -shrink G / (H + l2)               share = shrink / (H + l2)
    smoothing, monotone splits    v_l = sum over nodes n of a_ln v_n
                                  share_lm = sum over nodes n above m of a_ln shrink_n / (H_n + l2)

l1 and a largest step only bring a value closer to zero, by ``shrink = max(0, 1 - l1 / |G|)`` and by
``shrink = most (H + l2) / |G|`` where ``|G| > most (H + l2)``. Both lie between 0 and 1 whatever is
left of G. So the constants that they put into a value are carried by the rows of the node that they
act on, in proportion to the gradients. Smoothing and bounds are means of the values that nodes have
by themselves: no a_ln is negative, and they sum to 1 (`leaf_maps`). Hence for every rule

    |part of row j in leaf l| <= terms_lm |w_j g_j|,    terms = share with shrink = 1,

and all that rows put into a leaf, in absolute value, is at most ``terms @ (sums of |w g|)``: the
terms of that leaf's own value. Comparisons of sums with scores are relative to those terms
(`Contributions.prove`), and not to the parts themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.structure import NewtonRule
from axil.trees.losses import Loss

SAME = 1e-14  # of a leaf value: no more than rounding
CLOSE = 1e-12  # of a leaf value, a sum over many rows: close enough to stop searching
NEAR = 1e-8  # of the same value: how close the best way comes to it, where rounding is amplified
MIN_WEIGHT = 1e-9  # of the rows of a leaf whose value is not zero, where trees are centred
ROUNDINGS = 8.0  # of a probability beside one, in every gradient of a leaf


@dataclass(frozen=True)
class LeafMix:
    """Leaf values of a tree that depend on the sums of other leaves.

    Each matrix has shape (L_t, L_t), with a row for each value.
    """

    by_g: FloatArray
    by_h: FloatArray
    share: FloatArray  #: a row of leaf m puts ``-w g share[l, m]`` into the value of leaf l
    terms: (
        FloatArray  #: the same without l1 and a largest step; but for rounding, no share is larger
    )


@dataclass(frozen=True)
class Step:
    """Leaf values of one output before the learning rate, with their derivatives.

    Values and derivatives by G and H have shape (L_t,).
    """

    value: FloatArray
    by_g: FloatArray
    by_h: FloatArray
    by_l2: FloatArray
    share: FloatArray  #: ``-value / G``: a row of the leaf puts ``-w g share`` into its value
    inverse: FloatArray | None = None
    solved: FloatArray | None = (
        None  #: (L_t,) the value that was solved for, where the step is a part of that
    )
    #: where leaves depend on each other; ``by_g`` and ``by_h`` are nan then, and ``share``, which
    #: is 1 unless trees are centred, multiplies the rows before it
    mix: LeafMix | None = None

    def moved(self, G: AnyArray, H: AnyArray) -> FloatArray:
        """Return the changes of leaf values (L_t,) for changes of the leaf sums G and H."""
        return np.asarray(
            self.by_g * G + self.by_h * H
            if self.mix is None
            else self.mix.by_g @ G + self.mix.by_h @ H
        )

    def scaled(self, factor: float) -> Step:
        """Return the step times a factor."""
        if factor == 1:
            return self
        if self.inverse is not None:
            return replace(self, value=factor * self.value, inverse=factor * self.inverse)
        value, by_g, by_h, by_l2, share = (
            factor * term for term in (self.value, self.by_g, self.by_h, self.by_l2, self.share)
        )
        return Step(value, by_g, by_h, by_l2, share, mix=self.mix)


def leaf_step(G: FloatArray, H: FloatArray, l2: FloatArray, l1: float, most: float) -> Step:
    """Return ``v = -soft(G, l1) / (H + l2)``, clipped at ``most``.

    The active set of the threshold and of the clip counts as fixed.
    """
    denominator = H + l2
    inverse = np.divide(1.0, denominator, out=np.zeros(denominator.shape), where=denominator > 0)
    value = -G * inverse
    share = inverse
    if l1 <= 0 and most == np.inf:
        by_h = -value * inverse
        return Step(value, -inverse, by_h, by_h, share)
    moves = np.ones(len(G), dtype=bool)
    if l1 > 0:
        excess = np.maximum(np.abs(G) - l1, 0.0)
        moves = excess > 0
        value = -np.sign(G) * excess * inverse
        share = inverse * np.divide(excess, np.abs(G), out=np.zeros_like(G), where=moves)
    if most < np.inf:
        clipped = np.abs(value) > most
        moves &= ~clipped
        share = share * np.divide(most, np.abs(value), out=np.ones_like(G), where=clipped)
        value = np.clip(value, -most, most)
    by_h = np.where(moves, -value * inverse, 0.0)
    return Step(value, np.where(moves, -inverse, 0.0), by_h, by_h, share)


def bounded_step(rule: NewtonRule, G: FloatArray, H: FloatArray, plain: Step) -> Step:
    """Return the step of a tree whose leaf values depend on each other; else ``plain``."""
    maps = rule.coupled_leaves(-G, H)
    if maps is None:
        return plain
    value = rule.leaf_values(-G, H)
    none = np.full_like(value, np.nan)
    mix = LeafMix(-maps.by_sum, maps.by_weight, maps.share, maps.terms)
    return Step(value, none, none, none, np.ones_like(value), mix=mix)


def centring(leaf_weights: FloatArray) -> FloatArray:
    """Return the matrix (L_t, L_t) that takes the mean off leaf values.

    Leaves count by the weights (L_t,) of their rows. Those without rows get zero.
    """
    total = float(leaf_weights.sum())
    if not total > 0:
        return np.zeros((len(leaf_weights), len(leaf_weights)))
    matrix = np.eye(len(leaf_weights)) - leaf_weights / total
    matrix[leaf_weights <= MIN_WEIGHT] = 0.0
    return matrix


def centred_step(plain: Step, leaf_weights: FloatArray) -> Step:
    """Return the step of a tree whose mean value is subtracted; see `centring`."""
    matrix = centring(leaf_weights)
    mix = LeafMix(matrix * plain.by_g, matrix * plain.by_h, matrix, np.abs(matrix))
    none = np.full_like(plain.value, np.nan)
    return replace(plain, value=matrix @ plain.value, by_g=none, by_h=none, by_l2=none, mix=mix)


def joint_steps(
    g: FloatArray, p: FloatArray, w: FloatArray, leaf: AnyArray, l2: FloatArray
) -> list[Step]:
    """Return ``v = -(H + l2)^-1 G`` for all outputs together, with H the sum of w (diag(p) - p p').

    Parameters
    ----------
    g, p : arrays of shape (N, K)
    w, leaf : arrays of shape (N,)
    l2 : array of shape (L_t,)
    """
    n = len(l2)
    K = g.shape[1]
    G = np.stack([np.bincount(leaf, w * g[:, k], n) for k in range(K)], axis=1)
    H = np.zeros((n, K, K))
    for k in range(K):
        H[:, k, k] += np.bincount(leaf, w * p[:, k], n)
        for m in range(K):
            H[:, k, m] -= np.bincount(leaf, w * p[:, k] * p[:, m], n)
    inverse = np.zeros_like(H)
    whole = np.isfinite(l2)
    inverse[whole] = np.linalg.inv(H[whole] + l2[whole, None, None] * np.eye(K))
    values = -np.einsum("lkm,lm->lk", inverse, G)
    minus = -np.ones(n)
    return [
        Step(values[:, k], minus, minus, -values[:, k], -minus, inverse, values[:, k])
        for k in range(K)
    ]


def rounded(loss: Loss, share: float, size: float) -> float:
    """Return the allowed distance between the last step and a leaf value of this size.

    ``share`` is the weight of the leaf's rows over H + l2. Probabilities next to one are rounded
    relative to one, and so are their small gradients.
    """
    beside = loss.meaning == "probability" and not loss.joint
    if beside:
        allowed_error = ROUNDINGS * float(np.finfo(np.float64).eps) * share
    else:
        allowed_error = 0.0
    return max(CLOSE * size, min(allowed_error, NEAR * size))


def whole_steps(
    loss: Loss, steps: Sequence[Sequence[Step]], leaf: int, weight: float, goal: FloatArray
) -> tuple[bool, list[float]] | None:
    """Return the path of `StepSearch` if whole steps of all leaves reach the leaf value.

    Return None if they do not.
    """
    size = float(np.abs(goal).max(initial=0.0))
    reached = np.cumsum(
        [[step.value[leaf] for step in steps_of_leaf] for steps_of_leaf in steps], axis=0
    )
    apart = np.abs(reached - goal).max(axis=1)
    share = max(float(step.share[leaf]) for step in steps[0])
    arrived = np.flatnonzero(apart <= CLOSE * size)
    if len(arrived):
        return True, [1.0] * (int(arrived[0]) + 1)
    if apart[-1] <= rounded(loss, weight * share, size):
        return (True, [1.0] * len(steps))
    return None


@dataclass
class StepSearch:
    """The search for the steps from 0 to a leaf's value, some of which may have been halved.

    A step that does not lower the loss is halved, again and again, and every attempt counts as one
    of ``n_steps``; what the library finds lower is a matter of its rounding. So all ways are tried,
    whole steps first, on one leaf that is slow to arrive: all leaves of a tree share the halvings.
    """

    loss: Loss
    y: FloatArray  #: (rows, K) of the leaf
    score: FloatArray  #: (rows, K) before the tree
    w: FloatArray  #: (rows,)
    l2: float
    goal: FloatArray  #: (K,) the leaf's value before the rate

    def way(self, n_steps: int) -> tuple[bool, list[float]]:
        """Whether the steps reach the leaf value, and the factors on the path that ends closest."""
        size = float(np.abs(self.goal).max(initial=0.0))
        self._best: tuple[float, list[float]] = (np.inf, [1.0] * n_steps)
        bent = self.l2 + self.w @ np.broadcast_to(
            self.loss.leaf_slopes(self.y, self.score)[1], self.score.shape
        )
        if bent.min() > 0:
            share = float(self.w.sum() / bent.min())
        else:
            share = 0.0
        self._close, self._rounded = CLOSE * size, rounded(self.loss, share, size)
        self._go(np.zeros_like(self.goal), n_steps, [])
        return self._best[0] <= NEAR * size, self._best[1]

    def _go(self, total: FloatArray, left: int, path: list[float]) -> bool:
        step = self._step(total)
        still = bool(np.abs(step).max() <= self._close)  # halves of no step lead nowhere else
        for halvings in range(1 if still else left):
            scale = 0.5**halvings
            after = total + scale * step
            new_path = [*path, scale]
            apart = float(np.abs(after - self.goal).max())
            if apart < self._best[0]:
                self._best = apart, new_path
            last = left == halvings + 1
            if apart <= (self._rounded if last else self._close):
                return True
            if not last and self._go(after, left - halvings - 1, new_path):
                return True
        return False

    def _step(self, total: FloatArray) -> FloatArray:
        score = self.score + total
        g, h = self.loss.leaf_slopes(self.y, score)
        if self.loss.joint:
            only = np.zeros(len(self.y), dtype=np.intp)
            steps = joint_steps(g, self.loss.mean(score), self.w, only, np.array([self.l2]))
            return np.array([step.value[0] for step in steps])
        G = self.w @ g
        bent = self.l2 + (self.w @ h if np.shape(h) == g.shape else self.w.sum() * h)
        values: FloatArray = np.divide(-G, bent, out=np.zeros_like(G), where=bent > 0)
        return values

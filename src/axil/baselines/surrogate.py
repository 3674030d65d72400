"""TREX's surrogate of a classifier: a regularised logistic or softmax regression on the model's leaves.

    f minimises  sum_j w_j l(y_j, f_j) / W + l2 |f|^2,   f_j = phi(j)' theta,   W = sum_j w_j

with phi the features of `LeafKernel`. The problem is convex and far from singular, since l2 bounds its curvature from below: a
few Newton steps, each solved by conjugate gradients, that only ever multiply by phi.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logsumexp, softmax

from axil.arrays import FloatArray
from axil.baselines.kernel import LeafKernel
from axil.errors import UnsupportedQuestionError

CLOSE, ENOUGH = (
    1e-13,
    1e-9,
)  # gradient relative to the first one: where to stop, and what must be reached
MOST_STEPS, MOST_PRODUCTS = 60, 2000


def losses(y: FloatArray, f: FloatArray, coupled: bool) -> FloatArray:
    """(n,): of scores (n, K), log-losses summed over outputs, or the cross-entropy of a softmax."""
    if coupled:
        return np.asarray(logsumexp(f, axis=-1) - (y * f).sum(axis=-1))
    return np.asarray((np.logaddexp(0.0, f) - y * f).sum(axis=-1))


def means(f: FloatArray, coupled: bool) -> FloatArray:
    """(n, K): probabilities."""
    return np.asarray(softmax(f, axis=1) if coupled else expit(f))


def fit_classes(kernel: LeafKernel, targets: FloatArray, l2: float, coupled: bool) -> FloatArray:
    """(N, K): scores f of the training rows at the minimum."""
    weights = np.ones(kernel.rows.n_rows) if kernel.rows.weights is None else kernel.rows.weights
    total, phi = float(weights.sum()), kernel.features[:, None]

    def scores(theta: FloatArray) -> FloatArray:
        return kernel.read_out(phi * theta)

    def gathered(rows: FloatArray) -> FloatArray:
        return np.asarray(phi * kernel.gather(rows) / total)

    def value(theta: FloatArray, f: FloatArray) -> float:
        return float(weights @ losses(targets, f, coupled) / total + l2 * (theta**2).sum())

    theta = np.zeros((len(phi), targets.shape[1]))
    f = scores(theta)
    first, gradient, size = 0.0, theta, np.inf
    for _ in range(MOST_STEPS):
        p = means(f, coupled)
        gradient = gathered(p - targets) + 2.0 * l2 * theta
        size = float(np.linalg.norm(gradient))
        first = first or size
        if size <= CLOSE * first:
            break

        def product(d: FloatArray, p: FloatArray = p) -> FloatArray:
            moved = scores(d)
            bent = (
                p * (moved - (p * moved).sum(axis=1, keepdims=True))
                if coupled
                else p * (1 - p) * moved
            )
            return gathered(bent) + 2.0 * l2 * d

        step = _conjugate(product, -gradient)
        before, factor = value(theta, f), 1.0
        while True:
            tried = theta + factor * step
            reached = scores(tried)
            if value(tried, reached) <= before + 1e-13 * abs(before) or factor < 1e-6:
                break
            factor /= 2.0
        if factor < 1e-6:
            break
        theta, f = tried, reached
    if size > ENOUGH * first:
        reason = f"its surrogate with l2={l2:g} is too ill-conditioned to be fitted to these leaves"
        raise UnsupportedQuestionError("TREX", reason, "Raise l2.")
    return f


def _conjugate(product: Callable[[FloatArray], FloatArray], right: FloatArray) -> FloatArray:
    """Solve ``product(x) = right`` by conjugate gradients, to rounding or `MOST_PRODUCTS`."""
    x, r = np.zeros_like(right), right.copy()
    d, squared = r.copy(), float((r**2).sum())
    goal = 1e-20 * squared
    for _ in range(MOST_PRODUCTS):
        if squared <= goal:
            break
        bent = product(d)
        size = squared / float((d * bent).sum())
        x += size * d
        r -= size * bent
        after = float((r**2).sum())
        d = r + (after / squared) * d
        squared = after
    return x

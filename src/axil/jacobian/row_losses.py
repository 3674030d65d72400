"""Losses of single rows, differentiated by the row's scores and by its targets, and the links from scores to predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RowLosses:
    """Derivatives of each row's loss l(scores, targets), which has K scores and K targets."""

    gradient: Array  #: (N, K) dl / d score
    curvature: Array  #: (N, K, K) d2l / d score d score'
    cross: Array  #: (N, K, K) d2l / d score d target'


Loss = Callable[[Array, Array], RowLosses]  # from scores (N, K) and targets (N, K)


def deviance(power: float, log_link: bool) -> Loss:
    """Half the deviance of the Tweedie family, its outputs apart: dl / d mean = (mean - y) / mean ** power.

    power 0 is squared error, 1 Poisson, 2 gamma. The mean is the score s, or exp(s) with the log link; then
    ``dl/ds = m^(2-power) - y m^(1-power)``, else ``(s - y) s^-power``.
    """

    def losses(scores: Array, targets: Array) -> RowLosses:
        if log_link:
            cross = -np.exp((1 - power) * scores)
            mean_part = np.exp((2 - power) * scores)
            gradient = mean_part + targets * cross
            curvature = (2 - power) * mean_part + (1 - power) * targets * cross
        else:
            cross = -(scores**-power)
            gradient = (targets - scores) * cross
            curvature = -cross if power == 0 else -(1 - power) * cross + power * targets * scores ** (-power - 1)
        return RowLosses(gradient, _diagonal(curvature), _diagonal(cross))

    return losses


def log_loss(scores: Array, targets: Array) -> RowLosses:
    """Of two classes: dl/ds = p - y with p = 1 / (1 + exp(-s)), for each column by itself."""
    p = expit(scores)
    return RowLosses(p - targets, _diagonal(p * (1 - p)), _diagonal(np.full_like(p, -1.0)))


def softmax_loss(scores: Array, targets: Array) -> RowLosses:
    """Of K classes: dl/ds = p - y, with y centred where it moves: d2l / d s_j d y_k = 1 / K - [j = k].

    Targets that do not sum to one have no optimum, as probabilities do. So when one target of a row rises by one, all
    its targets give way by 1 / K.
    """
    p = softmax(scores, axis=1)
    n_classes = p.shape[1]
    cross = np.broadcast_to(1 / n_classes - np.eye(n_classes), (*p.shape, n_classes))
    return RowLosses(p - targets, softmax_link(scores)[1], cross)


def _diagonal(values: Array) -> Array:
    """(N, K, K) with the (N, K) values on the diagonals."""
    return np.asarray(values[:, :, None] * np.eye(values.shape[1]))


Link = Callable[
    [Array], tuple[Array, Array]
]  # from scores (n, K) to predictions (n, K) and their derivatives (n, K, K)


def identity_link(scores: Array) -> tuple[Array, Array]:
    """The scores themselves."""
    return scores, _diagonal(np.ones_like(scores))


def exp_link(scores: Array) -> tuple[Array, Array]:
    """exp(s), column by column."""
    means = np.exp(scores)
    return means, _diagonal(means)


def sigmoid_link(scores: Array) -> tuple[Array, Array]:
    """1 / (1 + exp(-s)), column by column."""
    p = expit(scores)
    return p, _diagonal(p * (1 - p))


def softmax_link(scores: Array) -> tuple[Array, Array]:
    """exp(s_k) / sum exp(s)."""
    p = softmax(scores, axis=1)
    return p, _diagonal(p) - p[:, :, None] * p[:, None, :]

"""Losses of single rows, differentiated by the row's scores and by its targets, and the links from scores to predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from axil.arrays import FloatArray
from axil.trees import losses


@dataclass(frozen=True)
class RowLosses:
    """Derivatives of each row's loss l(scores, targets), which has K scores and K targets."""

    gradient: FloatArray  #: (N, K) dl / d score
    curvature: FloatArray  #: (N, K, K) d2l / d score d score'
    cross: FloatArray  #: (N, K, K) d2l / d score d target'


Loss = Callable[[FloatArray, FloatArray], RowLosses]  # from scores (N, K) and targets (N, K)


Link = Callable[
    [FloatArray], tuple[FloatArray, FloatArray]
]  # scores (n, K) to predictions (n, K) and their derivatives (n, K, K)


@dataclass(frozen=True)
class Separate:
    """Derivatives of a loss that treats each of its columns by itself."""

    loss: losses.Loss

    def __call__(self, scores: FloatArray, targets: FloatArray) -> RowLosses:
        found = self.loss.slopes(targets, scores)
        curvature, cross = (
            np.broadcast_to(each, scores.shape) for each in (found.g_by_score, found.g_by_target)
        )
        return RowLosses(found.g, _diagonal(curvature), _diagonal(cross))


@dataclass(frozen=True)
class MeanLink:
    """Means of a loss as a function of its scores, with their derivatives; a copy is equal to the original."""

    loss: losses.Loss

    def __call__(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.loss.mean(scores), self.loss.mean_slopes(scores)


squared = Separate(losses.Squared())
log_loss = Separate(losses.Logistic())

identity_link = MeanLink(losses.Squared())
exp_link = MeanLink(losses.poisson())
sigmoid_link = MeanLink(losses.Logistic())
softmax_link = MeanLink(losses.Softmax())


def deviance(power: float, log_link: bool) -> Loss:
    """Half the deviance of the Tweedie family, column by column: dl / d mean = (mean - y) / mean ** power.

    power 0 is squared error, 1 Poisson, 2 gamma. The mean is exp(s) with the log link
    (`losses.Deviance`), else the score s itself; then ``dl/ds = (s - y) s^-power``.
    """
    if log_link:
        return Separate(losses.Deviance(power=power))
    if power == 0:
        return squared
    return partial(_identity_deviance, power)


def _identity_deviance(power: float, scores: FloatArray, targets: FloatArray) -> RowLosses:
    cross = -(scores**-power)
    curvature = -(1 - power) * cross + power * targets * scores ** (-power - 1)
    return RowLosses((targets - scores) * cross, _diagonal(curvature), _diagonal(cross))


def softmax_loss(scores: FloatArray, targets: FloatArray) -> RowLosses:
    """K classes: dl/ds = p - y, with y centred where it moves: d2l / d s_j d y_k = 1 / K - [j = k].

    Targets that do not sum to one have no optimum, as probabilities do. So when one target of a row
    rises by one, all its targets fall by 1 / K.
    """
    p, curvature = softmax_link(scores)
    n_classes = p.shape[1]
    cross = np.broadcast_to(1 / n_classes - np.eye(n_classes), (*p.shape, n_classes))
    return RowLosses(p - targets, curvature, cross)


def _diagonal(values: FloatArray) -> FloatArray:
    """(N, K, K) with the (N, K) values on the diagonals."""
    return np.asarray(values[:, :, None] * np.eye(values.shape[1]))

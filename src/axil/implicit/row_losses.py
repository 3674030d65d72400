"""Losses of single rows, with derivatives by scores and targets, and links to predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from axil.arrays import FloatArray
from axil.trees import losses


@dataclass(frozen=True)
class RowLosses:
    """Derivatives of each row's loss l(scores, targets), which has K scores and K targets."""

    gradient: FloatArray  #: (N, K) dl / d score
    curvature: FloatArray  #: (N, K, K) d2l / d score d score'
    cross: FloatArray  #: (N, K, K) d2l / d score d target'


#: From scores (N, K) and targets (N, K)
Loss: TypeAlias = Callable[[FloatArray, FloatArray], RowLosses]
#: From scores (n, K) to predictions (n, K) and their derivatives (n, K, K)
Link: TypeAlias = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Separate:
    """Derivatives of a loss that treats each of its columns by itself."""

    loss: losses.Loss

    def __call__(self, scores: FloatArray, targets: FloatArray) -> RowLosses:
        """Return the derivatives of the loss of each row."""
        slopes = self.loss.slopes(targets, scores)
        curvature = np.broadcast_to(slopes.g_by_score, scores.shape)
        cross = np.broadcast_to(slopes.g_by_target, scores.shape)
        return RowLosses(slopes.g, _diagonal(curvature), _diagonal(cross))


@dataclass(frozen=True)
class MeanLink:
    """Means of a loss as a function of its scores, with derivatives; copies are equal."""

    loss: losses.Loss

    def __call__(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return predictions (n, K) and their derivatives (n, K, K)."""
        return self.loss.mean(scores), self.loss.mean_slopes(scores)


squared = Separate(losses.Squared())
log_loss = Separate(losses.Logistic())

identity_link = MeanLink(losses.Squared())
exp_link = MeanLink(losses.poisson())
sigmoid_link = MeanLink(losses.Logistic())
softmax_link = MeanLink(losses.Softmax())


def deviance(power: float, log_link: bool) -> Loss:
    """Return half the deviance of the Tweedie family, column by column.

    Its derivative is ``dl / d mean = (mean - y) / mean ** power``. The power 0 is squared error, 1
    Poisson, 2 gamma. The mean is exp(s) with the log link (`losses.Deviance`), else the score s
    itself; then ``dl/ds = (s - y) s^-power``.
    """
    if log_link:
        return Separate(losses.Deviance(power=power))
    if power == 0:
        return squared
    return partial(_identity_deviance, power)


def _identity_deviance(power: float, scores: FloatArray, targets: FloatArray) -> RowLosses:
    """Return the derivatives of half the deviance whose mean is the score itself."""
    cross = -(scores**-power)
    curvature = -(1 - power) * cross + power * targets * scores ** (-power - 1)
    return RowLosses((targets - scores) * cross, _diagonal(curvature), _diagonal(cross))


def softmax_loss(scores: FloatArray, targets: FloatArray) -> RowLosses:
    """Return the derivatives of the softmax loss of K classes.

    They are dl/ds = p - y, with y centred where it moves: d2l / d s_j d y_k = 1 / K - [j = k].
    Targets that do not sum to one have no optimum, as probabilities do. So when one target of a row
    rises by one, all its targets fall by 1 / K.
    """
    p, curvature = softmax_link(scores)
    n_classes = p.shape[1]
    cross = np.broadcast_to(1 / n_classes - np.eye(n_classes), (*p.shape, n_classes))
    return RowLosses(p - targets, curvature, cross)


def _diagonal(values: FloatArray) -> FloatArray:
    """Return matrices (N, K, K) with the values (N, K) on their diagonals."""
    return np.asarray(values[:, :, None] * np.eye(values.shape[1]))

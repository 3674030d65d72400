"""The losses of boosting: derivatives by score and target, links, and the starts of a fit.

A row with target y and score F has g = dl/dF and h, the second derivative as the library uses it. Reverse mode needs
how both move with F and with y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from axil.adapters.smooth import LossName
from axil.errors import InputError

Array = NDArray[np.float64]

NEAR = 1e-15  # of a mean to 0 or 1, where its logit is cut off


@dataclass(frozen=True)
class Slopes:
    """(N, K) each, or a number for all: g, h, and their derivatives by the score and by the target.

    Where outputs are coupled, by_score is the derivative by the output's own mean, and `Loss.chain` does the rest.
    """

    g: Any
    h: Any
    g_by_score: Any
    h_by_score: Any
    g_by_target: Any
    h_by_target: Any = 0.0


class Loss(Protocol):
    """One loss with its link."""

    coupled: bool  #: whether an output's g and h depend on the scores of the others

    @property
    def joint(self) -> bool:
        """Whether leaf values of all outputs are solved for together."""

    def slopes(self, y: Array, F: Array) -> Slopes:
        """At targets and scores (N, K)."""

    def start(self, means: Array) -> Array:
        """(K,): the scores that a fit starts from, of the targets' weighted means (K,)."""

    def start_slopes(self, means: Array) -> Array:
        """(K, K): of those scores by those means."""

    def mean(self, F: Array) -> Array:
        """(n, K): what the link makes of scores: probabilities, expected values."""

    def mean_slopes(self, F: Array) -> Array:
        """(n, K, K): of mean o by score m."""

    def check(self, y: Array) -> None:
        """Refuse targets that the loss does not take."""


class _Single(ABC):
    """What losses with one score an output share."""

    coupled = joint = False

    def start_slopes(self, means: Array) -> Array:
        return np.diag(self._start_slope(means))

    def mean_slopes(self, F: Array) -> Array:
        return self._mean_slope(F)[:, :, None] * np.eye(F.shape[1])

    @abstractmethod
    def _start_slope(self, means: Array) -> Array:
        """(K,): of each start by its own mean."""

    @abstractmethod
    def _mean_slope(self, F: Array) -> Array:
        """(n, K): of each mean by its own score."""

    def check(self, y: Array) -> None:  # noqa: B027 - a loss takes any targets unless it says otherwise
        pass


class Squared(_Single):
    """g = F - y, h = 1."""

    def slopes(self, y: Array, F: Array) -> Slopes:
        return Slopes(F - y, 1.0, 1.0, 0.0, -1.0)

    def start(self, means: Array) -> Array:
        return means

    def _start_slope(self, means: Array) -> Array:
        return np.ones_like(means)

    def mean(self, F: Array) -> Array:
        return F

    def _mean_slope(self, F: Array) -> Array:
        return np.ones_like(F)


@dataclass(frozen=True)
class Logistic(_Single):
    """p = 1 / (1 + exp(-s F)), g = s (p - y), h = s^2 p (1 - p).

    A fit starts from the logit of the mean, or, as XGBoost's binary:logitraw does, from the mean itself.
    """

    scale: float = 1.0
    from_mean: bool = False

    def slopes(self, y: Array, F: Array) -> Slopes:
        s, p = self.scale, self.mean(F)
        spread = p * expit(-s * F)
        return Slopes(s * (p - y), s**2 * spread, s**2 * spread, s**3 * spread * (1 - 2 * p), -s)

    def start(self, means: Array) -> Array:
        if self.from_mean:
            return means
        p = np.clip(means, NEAR, 1 - NEAR)
        return np.asarray(np.log(p / (1 - p)) / self.scale)

    def _start_slope(self, means: Array) -> Array:
        if self.from_mean:
            return np.ones_like(means)
        p = np.clip(means, NEAR, 1 - NEAR)
        return np.asarray(1.0 / (self.scale * p * (1 - p)))

    def mean(self, F: Array) -> Array:
        return np.asarray(expit(self.scale * F))

    def _mean_slope(self, F: Array) -> Array:
        return np.asarray(self.scale * expit(self.scale * F) * expit(-self.scale * F))

    def check(self, y: Array) -> None:
        if y.min(initial=0.0) < 0 or y.max(initial=0.0) > 1:
            raise InputError(f"y_train goes from {y.min():g} to {y.max():g}; this loss takes targets from 0 to 1.")


@dataclass(frozen=True)
class Softmax:
    """p = softmax(F), g_k = p_k - y_k, h_k = c p_k (1 - p_k).

    ``joint``: a leaf's values v for all classes solve (H + l2) v = -G with H the sum of w (diag(p) - p p').
    """

    hessian: float = 1.0
    centred: bool = False
    joint: bool = False
    coupled = True

    def slopes(self, y: Array, F: Array) -> Slopes:
        p = self.mean(F)
        return Slopes(p - y, self.hessian * p * (1 - p), 1.0, self.hessian * (1 - 2 * p), -1.0)

    def joint_slopes(self, y: Array, F: Array, v: Array) -> Slopes:
        """g, and for h the product of the row's own part of H with its leaf's values v (N, K)."""
        p = self.mean(F)
        return Slopes(p - y, p * (v - (p * v).sum(axis=1, keepdims=True)), 1.0, 0.0, -1.0)

    def start(self, means: Array) -> Array:
        logs = np.log(np.maximum(means, NEAR))
        return np.asarray(logs - logs.mean() if self.centred else logs)

    def start_slopes(self, means: Array) -> Array:
        each = np.diag(1.0 / np.maximum(means, NEAR))
        return np.asarray(each - each.mean(axis=0) if self.centred else each)

    def mean(self, F: Array) -> Array:
        return np.asarray(softmax(F, axis=1))

    def mean_slopes(self, F: Array) -> Array:
        p = self.mean(F)
        return np.asarray(p[:, :, None] * (np.eye(F.shape[1]) - p[:, None, :]))

    def check(self, y: Array) -> None:
        pass


class _Exponential(_Single):
    """The mean is exp(F)."""

    positive = False

    def start(self, means: Array) -> Array:
        return np.asarray(np.log(means))

    def _start_slope(self, means: Array) -> Array:
        return np.asarray(1.0 / means)

    def mean(self, F: Array) -> Array:
        return np.asarray(np.exp(F))

    def _mean_slope(self, F: Array) -> Array:
        return np.asarray(np.exp(F))

    def check(self, y: Array) -> None:
        low = y.min(initial=1.0)
        if low < 0 or not y.any() or (self.positive and low <= 0):
            least = "above 0" if self.positive else "from 0 up, not all 0"
            raise InputError(f"y_train goes down to {low:g}; this loss takes targets {least}.")


@dataclass(frozen=True)
class Poisson(_Exponential):
    """g = exp(F) - y, h = c exp(F)."""

    hessian: float = 1.0

    def slopes(self, y: Array, F: Array) -> Slopes:
        mean = np.exp(F)
        return Slopes(mean - y, self.hessian * mean, mean, self.hessian * mean, -1.0)


class Gamma(_Exponential):
    """g = 1 - y exp(-F), h = y exp(-F)."""

    positive = True

    def slopes(self, y: Array, F: Array) -> Slopes:
        inverse = np.exp(-F)
        ratio = y * inverse
        return Slopes(1 - ratio, ratio, ratio, -ratio, -inverse, inverse)


@dataclass(frozen=True)
class Tweedie(_Exponential):
    """g = exp((2 - r) F) - y exp((1 - r) F), h = dg/dF, with r the power of the variance."""

    power: float = 1.5

    def slopes(self, y: Array, F: Array) -> Slopes:
        one, two = 1 - self.power, 2 - self.power
        a, b = np.exp(one * F), np.exp(two * F)
        h = two * b - one * y * a
        return Slopes(b - y * a, h, h, two**2 * b - one**2 * y * a, -a, -one * a)


@dataclass(frozen=True)
class GradientSteps:
    """A loss of which the library takes gradient steps: every h is 1."""

    inner: Loss

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def slopes(self, y: Array, F: Array) -> Slopes:
        found = self.inner.slopes(y, F)
        by_score = found.g_by_score
        return Slopes(found.g, 1.0, by_score, 0.0, found.g_by_target)


@dataclass(frozen=True)
class NewtonStart:
    """A loss whose fit starts from one Newton step from 0: ``-g / h`` at the mean, for g and h are affine in the target."""

    inner: Loss

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def start(self, means: Array) -> Array:
        at = self.inner.slopes(means[None], np.zeros((1, len(means))))
        return np.asarray(-np.broadcast_to(at.g / at.h, (1, len(means)))[0])

    def start_slopes(self, means: Array) -> Array:
        at = self.inner.slopes(means[None], np.zeros((1, len(means))))
        slope = -(at.g_by_target * at.h - at.g * at.h_by_target) / at.h**2
        return np.diag(np.broadcast_to(slope, (1, len(means)))[0])


def make(name: LossName) -> Loss:
    """The loss that an adapter names."""
    losses: dict[str, Loss] = {
        "squared": Squared(),
        "logistic": Logistic(name.scale, name.start == "mean"),
        "softmax": Softmax(name.hessian, name.start == "centred", name.joint),
        "poisson": Poisson(name.hessian),
        "gamma": Gamma(),
        "tweedie": Tweedie(name.power),
    }
    found = losses[name.name]
    if name.start == "newton":
        found = NewtonStart(found)
    return GradientSteps(found) if name.unit_hessian else found

"""Further losses of boosting: losses of residuals, exponential loss, and a user's own objective.

Huber and Fair are losses of residuals. Contributions need the gradients alone, which are known row
by row or come from the user's function. Losses with ``smooth`` also have derivatives by the
targets.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.trees.losses import Logit, Slopes, Squared

__all__ = [
    "Custom",
    "Exponential",
    "Fair",
    "Huber",
    "LogCosh",
    "Pinball",
    "PseudoHuber",
    "ResidualLoss",
    "SquaredLog",
]


@dataclass(frozen=True, kw_only=True)
class ResidualLoss(Squared):
    """A loss of the residual d = F - y: scores are predictions, and fits start from a mean."""

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        g, h, g_slope, h_slope = self.derivatives(F - y)
        return Slopes(g, h, g_slope, h_slope, -g_slope, -h_slope)

    @abstractmethod
    def derivatives(self, d: FloatArray) -> tuple[Any, Any, Any, Any]:
        """Return g and h, and their derivatives by d."""


@dataclass(frozen=True, kw_only=True)
class Huber(ResidualLoss):
    """Huber's loss: g is d clipped to [-delta, delta]; h is 1, or 0 outside if ``flat`` is set."""

    delta: float
    flat: bool = False  #: whether h is 0 where g is cut off

    name = "huber"
    smooth = False

    def derivatives(self, d: FloatArray) -> tuple[Any, Any, Any, Any]:
        """Return g and h, and their derivatives by d."""
        inside = (np.abs(d) < self.delta if self.flat else np.abs(d) <= self.delta).astype(float)
        return (
            np.clip(d, -self.delta, self.delta),
            inside if self.flat else np.ones_like(d),
            inside,
            0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Pinball(ResidualLoss):
    """Quantile loss: g = 1 - alpha above the target, -alpha below it, 0 within ``near``.

    Leaves take gradient steps: h is 1.
    """

    alpha: float = 0.5
    near: float = 0.0

    name = "quantile"
    smooth = False

    def derivatives(self, d: FloatArray) -> tuple[Any, Any, Any, Any]:
        """Return g and h, and their derivatives by d."""
        g = np.where(np.abs(d) < self.near, 0.0, np.where(d < 0, -self.alpha, 1 - self.alpha))
        return g, np.ones_like(d), 0.0, 0.0


@dataclass(frozen=True, kw_only=True)
class Fair(ResidualLoss):
    """The Fair loss: g = c d / (|d| + c), h = c^2 / (|d| + c)^2."""

    c: float

    name = "fair"

    def derivatives(self, d: FloatArray) -> tuple[Any, Any, Any, Any]:
        """Return g and h, and their derivatives by d."""
        c = self.c
        distance = np.abs(d) + self.c
        h = (c / distance) ** 2
        return c * d / distance, h, h, -2 * np.sign(d) * h / distance


@dataclass(frozen=True, kw_only=True)
class PseudoHuber(ResidualLoss):
    """The pseudo-Huber loss: g = d / sqrt(1 + (d / s)^2), h = (1 + (d / s)^2)^(-3/2)."""

    slope: float

    name = "pseudo-huber"

    def derivatives(self, d: FloatArray) -> tuple[Any, Any, Any, Any]:
        """Return g and h, and their derivatives by d."""
        u = 1 + (d / self.slope) ** 2
        h = u**-1.5
        return d / np.sqrt(u), h, h, -3 * d / self.slope**2 * u**-2.5


@dataclass(frozen=True, kw_only=True)
class LogCosh(ResidualLoss):
    """The logarithm of the hyperbolic cosine: g = tanh(d), h = 1 - tanh(d)^2."""

    name = "log-cosh"

    def derivatives(self, d: FloatArray) -> tuple[Any, Any, Any, Any]:
        """Return g and h, and their derivatives by d."""
        g = np.tanh(d)
        h = 1 - g * g
        return g, h, h, -2 * g * h


@dataclass(frozen=True, kw_only=True)
class SquaredLog(Squared):
    """Squared error of logarithms, with F at least -1 + 1e-6.

    g = (log(1 + F) - log(1 + y)) / (1 + F). With u = log(1 + F) - log(1 + y),
    h = (1 - u) / (1 + F)^2, at least 1e-6.
    """

    name = "squared-log"
    smooth = False  # h is cut off

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        F = np.maximum(F, np.float64(np.float32(-1 + 1e-6)))
        log_error = np.log1p(F) - np.log1p(y)
        return Slopes(
            log_error / (1 + F),
            np.maximum((1 - log_error) / (1 + F) ** 2, 1e-6),
            np.nan,
            np.nan,
            np.nan,
        )

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require targets above -1."""
        if y.min(initial=0.0) <= -1:
            raise InputError(
                f"{argument} goes down to {y.min():g}; this loss takes targets above -1."
            )


@dataclass(frozen=True, kw_only=True)
class Exponential(Logit):
    """Exponential loss; the probability is 1 / (1 + exp(-2 F)).

    g = (1 - y) exp(F) - y exp(-F), h = (1 - y) exp(F) + y exp(-F).
    """

    scale: float = 2.0

    name = "exponential"

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        up = np.exp(F)
        down = np.exp(-F)
        g = (1 - y) * up - y * down
        h = (1 - y) * up + y * down
        return Slopes(g, h, h, g, -up - down, down - up)


ObjectiveFunction = Callable[
    [FloatArray], tuple[Any, Any]
]  # scores (N, K) -> g and h as the user's function returns them


@dataclass(frozen=True, kw_only=True)
class Custom(Squared):
    """A user's own objective.

    axil calls it before each round with the scores of all rows, as the library does. Its gradients
    already include the row weights. What the scores mean is not known: `mean` is the score itself.
    """

    objective: ObjectiveFunction
    rounded: Any = np.float32  #: precision in which the library keeps gradients

    name = "custom"
    smooth = False
    recorded = True
    takes_other_rows = False

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        derivatives = []
        for name, returned in zip(("gradient", "hessian"), self.objective(F)):
            try:
                values = np.asarray(returned, dtype=self.rounded).astype(np.float64)
            except (TypeError, ValueError):
                values = np.zeros(0)
            if values.size != y.size:
                raise InputError(
                    f"objective returned {shown(returned)} for the {name} of {y.shape[0]} rows; "
                    f"expected {y.size} numbers."
                )
            if not np.isfinite(values).all():
                raise InputError(
                    f"objective returned a {name} that is not finite; expected numbers as in the "
                    "fit."
                )
            derivatives.append(values.reshape(y.shape))
        return Slopes(derivatives[0], derivatives[1], np.nan, np.nan, np.nan)

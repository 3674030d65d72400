"""The losses of boosting: derivatives, links, and the scores that a fit starts from.

A row with target y and score F has g = dl/dF and h, the second derivative as the library uses it.
Adapters return one of these objects. Reverse mode needs the derivatives of g and h by F and by y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray, RealType
from axil.errors import InputError, UnsupportedQuestionError

__all__ = [
    "Affine",
    "Deviance",
    "Logistic",
    "Logit",
    "Loss",
    "RoundRows",
    "Slopes",
    "Softmax",
    "Squared",
    "gamma",
    "poisson",
    "tweedie",
]

NEAR = 1e-15  # distance of a mean from 0 or 1 within which its logit is cut off
# likewise in XGBoost, which also adds it to the shares of classes (kRtEps, include/xgboost/base.h)
NEAR_SINGLE = 1e-6
LEAST_SINGLE = np.float32(1e-16)  # second derivative in XGBoost
ROUNDING = 2.0**-23  # of a number and of one that it is computed from, in single precision


@dataclass(frozen=True)
class Slopes:
    """The derivatives g and h of a loss, and their own derivatives by the score and by the target.

    Each is an array of shape (N, K), or one number for all rows. For coupled outputs,
    ``g_by_score`` and ``h_by_score`` are derivatives by the output's own mean, and
    `Loss.mean_slopes` has the derivatives of the means by the scores.
    """

    g: Any
    h: Any
    g_by_score: Any
    h_by_score: Any
    g_by_target: Any
    h_by_target: Any = 0.0


@dataclass(frozen=True)
class RoundRows:
    """All rows of one fit at the scores of a round, for losses that need all rows at once."""

    targets: FloatArray  #: (N, K)
    scores: AnyArray  #: (N, K) in the precision in which the fit keeps them
    weights: FloatArray  #: (N,) by which rows count in leaves
    number: int  #: how often the gradients of this fit were computed before
    is_present: BoolArray | None = None  #: (N,) rows that the fit has; None: all
    is_rounded: bool = True  #: whether gradients are rounded as the library rounds them

    @property
    def precision(self) -> RealType:
        """The precision of gradients in a library that keeps them in float32."""
        if self.is_rounded:
            return np.float32
        return np.float64

    @property
    def present(self) -> IntArray:
        """The positions of the rows that the fit has."""
        if self.is_present is None:
            return np.arange(len(self.targets))
        return np.flatnonzero(self.is_present)


@dataclass(frozen=True)
class Affine:
    """Gradients of the form ``intercepts + slopes * link(state)``, (N, K) each.

    The state of a row is ``exp(a F)``, or F if a is 0; a is `Loss.exponent`. The link is
    "identity", "inverse" for ``1 / (1 + state)``, or "share" for a state over the sum of the row's
    K states.
    """

    link: str
    intercepts: FloatArray
    slopes: FloatArray


@dataclass(frozen=True, kw_only=True)
class Loss(ABC):
    """A loss with its link, its initial scores, and the rounding of the library."""

    unit_hessian: bool = False  #: whether the library takes gradient steps: every h is 1
    #: distance of a mean from 0 or 1 within which the library cuts its logit or logarithm off
    near: float = NEAR
    #: whether the library computes in single precision, by the operations of `weighted_slopes` and
    #: `stored_link`
    single: bool = False
    #: whether gradients of rows that all have one class are differences of numbers near one, so
    #: that a fit to such rows is nothing but rounding
    needs_two_classes: bool = False
    newton_start: bool = (
        False  #: whether a fit starts from one Newton step from 0, in which the rows' factors count
    )

    #: whether g and h of an output depend on the scores of the others
    coupled = False
    #: whether leaf values of all outputs are solved for together
    joint = False
    #: whether scores move smoothly with the targets, so that there are derivatives
    smooth = True
    #: whether gradients can only be asked for all rows at once, with row weights in them already,
    #: and are kept
    recorded = False
    #: whether the gradient of a row depends on the scores of other rows: of its group, or of the
    #: rows at risk with it. Such a loss is ``recorded``
    couples_rows = False
    #: whether the rows of the fit came in groups
    has_groups: ClassVar[bool] = False
    #: whether gradients can be computed for other rows than those of the fit
    takes_other_rows = True
    #: whether rows draw random numbers in the order of the fit, so that other rows draw others
    draws_numbers = False
    #: why there are no derivatives by the targets; empty: there are, or `smooth` says that not
    no_derivative: ClassVar[str] = ""
    #: the type in which recorded gradients are kept
    gradient_type: ClassVar[RealType] = np.float32
    #: whether the gradients of a round depend on all rows together; `of_round` gives the loss of
    #: the round
    pooled = False
    #: a of `affine`: steps of a score multiply exp(a F), which spares the exponential; 0: the state
    #: is the score itself
    exponent = 0.0
    #: whether leaves need all digits of gradients next to zero, which `affine` takes as differences
    #: of numbers near one
    cancels = False
    #: what the link makes of a score: "probability", "mean", or "" for the score itself
    meaning = "probability"

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in reports."""

    @property
    def predicts_targets(self) -> bool:
        """Whether means are on the scale of the targets.

        Residuals are then differences of both.
        """
        return bool(self.meaning) or not self.recorded

    @property
    def curvature(self) -> float | None:
        """The factor c of ``h = c p (1 - p)``, where p is the link of the state in `affine`.

        It is 0 if h is 1, and None if h has another form.
        """
        return None

    def of_round(self, y: FloatArray, F: FloatArray, weights: FloatArray) -> Loss:
        """Return the loss of a boosting round.

        Parameters
        ----------
        y, F : arrays of shape (N, K)
            The targets, and the scores before the round.
        weights : array of shape (N,)
            The row weights.
        """
        return self

    def slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        """Return the derivatives at targets and scores (N, K), as the library uses them."""
        slopes = self._slopes(y, F)
        if self.unit_hessian:
            return Slopes(slopes.g, 1.0, slopes.g_by_score, 0.0, slopes.g_by_target)
        return slopes

    @property
    def anywhere(self) -> bool:
        """Whether `slopes` also accepts arrays of a GPU, and then returns such arrays."""
        return type(self)._slopes in _ANYWHERE

    def fit_gradients(self, rows: RoundRows) -> tuple[AnyArray, AnyArray]:
        """Return g and h (N, K) of all rows of a fit; ``recorded`` ones include the row weights."""
        return self.leaf_slopes(rows.targets, rows.scores.astype(np.float64))

    def total(self, rows: RoundRows) -> float:
        """Return the loss of all rows of a fit, up to a constant factor.

        It decides which steps are halved.
        """
        raise NotImplementedError(f"the sum of the {self.name} loss is not defined")

    def couple(self, of_rows: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the derivatives of gradients (N, ...) in a direction.

        They come from the derivatives by each row's own score and target, ``of_rows``. Where rows
        are not coupled they are the same. ``weights`` are of the rows, (N,).
        """
        return of_rows

    def couple_adjoints(self, of_rows: FloatArray, weights: FloatArray) -> FloatArray:
        """Apply the transpose of `couple` to adjoints (N, ...) with the row weights in them."""
        return of_rows

    def leaf_slopes(self, y: FloatArray, F: FloatArray) -> tuple[Any, Any]:
        """Return g and h of `slopes`; leaf values need no other derivatives."""
        slopes = self.slopes(y, F)
        return slopes.g, slopes.h

    def weighted_slopes(
        self, y: FloatArray, F: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return g and h times the row weights (N,), each of shape (N, K).

        They have the rounding of the library: single precision if ``single`` is set.
        """
        if not self.single:
            g, h = self.leaf_slopes(y, F)
            return weights[:, None] * np.broadcast_to(g, F.shape), weights[
                :, None
            ] * np.broadcast_to(h, F.shape)
        return self._single(*(values.astype(np.float32) for values in (y, F, weights[:, None])))

    def _single(self, y: Any, F: Any, w: Any) -> tuple[Any, Any]:
        """Return `weighted_slopes` of float32 numbers."""
        g, h = self.leaf_slopes(y.astype(np.float64), F.astype(np.float64))
        g, h = (np.broadcast_to(values, F.shape).astype(np.float32) for values in (g, h))
        return w * g, w * h

    def start_rounding(self, start: FloatArray) -> FloatArray:
        """Bound the rounding error of the initial scores, ``link(mean target)``, (K,)."""
        if not self.single:
            return np.zeros_like(start)
        means = self.mean(start[None])[0]
        return np.asarray(np.abs(self._link_slopes(means)) @ (ROUNDING * np.abs(means)))

    def gradient(self, y: FloatArray, F: FloatArray) -> FloatArray:
        """Return g, (N, K)."""
        return np.asarray(self.slopes(y, F).g)

    def affine(self, y: FloatArray) -> Affine | None:
        """Return the gradient at targets (N, K) in the form that a kernel computes, or None."""
        return None

    def start_of(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the initial scores of a fit, (K,).

        Parameters
        ----------
        y : array of shape (N, K)
            The targets.
        weights : array of shape (N,)
            The row weights.
        """
        return self.start(np.average(y, axis=0, weights=weights))

    def refit_start_of(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return `start_of` for the rows of another fit, (K,); refuse rows of one class."""
        if self.needs_two_classes and weights.any():
            means = np.average(y, axis=0, weights=weights)
            if (means == 1).any() or (means == 0).all():
                raise UnsupportedQuestionError(
                    "A deletion",
                    "all rows that are left are of one class, and rounding alone would decide "
                    "the values of leaves",
                    "Keep rows of two classes at least.",
                )
        return self.start_of(y, weights)

    def stored_means(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the means (K,) that the library stores for the scores of `start_of`."""
        if not self.newton_start:
            return np.asarray(np.average(y, axis=0, weights=weights))
        return np.asarray(self.mean(self.start_of(y, weights)[None])[0])

    def start(self, means: FloatArray) -> FloatArray:
        """Return the initial scores for the weighted means of the targets; both have shape (K,)."""
        if not self.newton_start:
            return self.link(means)
        at = self._at_zero(
            means
        )  # g and h are affine in the target: at the mean they are the means of g and h
        return np.asarray(-np.broadcast_to(at.g / at.h, (1, len(means)))[0])

    def start_slopes(self, means: FloatArray) -> FloatArray:
        """Return the derivatives of the initial scores by the means, (K, K)."""
        if not self.newton_start:
            return self._link_slopes(means)
        at = self._at_zero(means)
        slope = -(at.g_by_target * at.h - at.g * at.h_by_target) / at.h**2
        return np.diag(np.broadcast_to(slope, (1, len(means)))[0])

    def check(  # noqa: B027 - a loss takes any targets unless it overrides this
        self, y: FloatArray, argument: str = "y_train", whole: bool = True
    ) -> None:
        """Raise `InputError` for targets that the loss does not accept.

        ``whole`` says that they are all targets of a fit, and not those of some rows.
        """

    def _at_zero(self, means: FloatArray) -> Slopes:
        return self._slopes(means[None], np.zeros((1, len(means))))

    @abstractmethod
    def link(self, means: FloatArray) -> FloatArray:
        """Return the scores of these means, (K,)."""

    def stored_link(self, means: FloatArray) -> FloatArray:
        """Return the scores (K,) that the library computes from stored means, with its rounding."""
        return self.link(means)

    @abstractmethod
    def mean(self, F: FloatArray) -> FloatArray:
        """Return the probabilities or expected values at these scores, (n, K)."""

    @abstractmethod
    def mean_slopes(self, F: FloatArray) -> FloatArray:
        """Return the derivatives of mean o by score m at ``[:, o, m]``, (n, K, K)."""

    @abstractmethod
    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        """Return the derivatives at targets and scores (N, K).

        h is the true second derivative, or a constant times it.
        """

    @abstractmethod
    def _link_slopes(self, means: FloatArray) -> FloatArray:
        """Return the derivatives of `link` by the means, (K, K)."""


@dataclass(frozen=True, kw_only=True)
class Squared(Loss):
    """Squared error: g = F - y, h = 1."""

    name = "squared"
    meaning = ""

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        return Slopes(F - y, 1.0, 1.0, 0.0, -1.0)

    def affine(self, y: FloatArray) -> Affine | None:
        """Return the residual as an affine gradient.

        Return None for subclasses, whose gradients differ.
        """
        if type(self) is Squared:
            return Affine("identity", -y, np.ones_like(y))
        return None

    def link(self, means: FloatArray) -> FloatArray:
        """Return the means themselves."""
        return means

    def _link_slopes(self, means: FloatArray) -> FloatArray:
        return np.eye(len(means))

    def mean(self, F: FloatArray) -> FloatArray:
        """Return the scores themselves."""
        return F

    def mean_slopes(self, F: FloatArray) -> FloatArray:
        """Return identity matrices."""
        return _diagonal(np.ones_like(F))


@dataclass(frozen=True, kw_only=True)
class Logit(Loss):
    """A loss with the logit link: p = 1 / (1 + exp(-s F))."""

    scale: float = 1.0  #: s, LightGBM's sigmoid
    from_mean: bool = (
        False  #: whether a mean is taken for a score, as XGBoost's binary:logitraw does
    )

    def link(self, means: FloatArray) -> FloatArray:
        """Return the logits over the scale s."""
        if self.from_mean:
            return means
        if self.single:
            near = NEAR_SINGLE
        else:
            near = self.near
        p = np.clip(means, near, 1 - near)
        return np.asarray(np.log(p / (1 - p)) / self.scale)

    def stored_means(self, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the means, or the score itself if the library stores the score as a mean."""
        if self.newton_start and self.from_mean:
            return self.start_of(y, weights)
        return super().stored_means(y, weights)

    def stored_link(self, means: FloatArray) -> FloatArray:
        """Return the logits; in single precision they are computed as ``-log(1 / p - 1)``."""
        if not self.single or self.from_mean:
            return self.link(means)
        one = np.float32(1)
        near = np.float32(NEAR_SINGLE)
        return -_rounded_log(one / np.clip(means.astype(np.float32), near, one - near) - one)

    def _link_slopes(self, means: FloatArray) -> FloatArray:
        if self.from_mean:
            return np.eye(len(means))
        if self.single:
            near = NEAR_SINGLE
        else:
            near = self.near
        p = np.clip(means, near, 1 - near)
        return np.diag(1.0 / (self.scale * p * (1 - p)))

    def mean(self, F: FloatArray) -> FloatArray:
        """Return the probabilities p."""
        return np.asarray(expit(self.scale * F))

    def mean_slopes(self, F: FloatArray) -> FloatArray:
        """Return s p (1 - p) on the diagonals."""
        return _diagonal(np.asarray(self.scale * expit(self.scale * F) * expit(-self.scale * F)))

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require targets from 0 to 1."""
        if y.min(initial=0.0) < 0 or y.max(initial=0.0) > 1:
            raise InputError(
                f"{argument} goes from {y.min():g} to {y.max():g}; this loss takes targets from 0 "
                "to 1."
            )


@dataclass(frozen=True, kw_only=True)
class Logistic(Logit):
    """Log-loss: g = s (p - y), h = s^2 p (1 - p)."""

    name = "logistic"

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        s, (p, spread) = self.scale, self._spread(F)
        return Slopes(s * (p - y), s**2 * spread, s**2 * spread, s**3 * spread * (1 - 2 * p), -s)

    def _spread(self, F: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p and p (1 - p), from one exponential that cannot overflow."""
        odds = np.abs(F)
        odds *= -self.scale
        np.exp(odds, out=odds)  # of the less likely class
        most = 1.0 + odds
        np.divide(1.0, most, out=most)
        odds *= most
        return np.where(F >= 0, most, odds), most * odds

    def leaf_slopes(self, y: FloatArray, F: FloatArray) -> tuple[Any, Any]:
        """Return g and h of `slopes`."""
        p, spread = self._spread(F)
        p -= y
        return self.scale * p, 1.0 if self.unit_hessian else self.scale**2 * spread

    def gradient(self, y: FloatArray, F: FloatArray) -> FloatArray:
        """Return s (p - y)."""
        gradients = self.mean(F)
        gradients -= y
        if self.scale == 1:
            return gradients
        return self.scale * gradients

    @property
    def exponent(self) -> float:  # type: ignore[override]
        """Minus the scale."""
        return -self.scale

    @property
    def predicts_targets(self) -> bool:
        """Whether means are on the scale of the targets.

        Residuals are then differences of both.
        """
        return bool(self.meaning) or not self.recorded

    @property
    def curvature(self) -> float | None:
        """The scale squared, or 0 for gradient steps."""
        if self.unit_hessian:
            return 0.0
        return self.scale**2

    def affine(self, y: FloatArray) -> Affine | None:
        """Return s / (1 + exp(-s F)) - s y."""
        return Affine("inverse", -self.scale * y, np.full_like(y, self.scale))

    def _single(self, y: Any, F: Any, w: Any) -> tuple[Any, Any]:
        one = np.float32(1)
        p = one / (_exp(np.minimum(-F, np.float32(88.7))) + one)
        return (p - y) * w, np.maximum(p * (one - p), LEAST_SINGLE) * w


@dataclass(frozen=True, kw_only=True)
class Softmax(Loss):
    """Multinomial log-loss: p = softmax(F), g_k = p_k - y_k, h_k = c p_k (1 - p_k)."""

    factor: float = 1.0  #: c, which the library multiplies second derivatives by
    centred: bool = False  #: whether a fit starts from logarithms less their mean over the classes
    added: float = 0.0  #: to the means before these logarithms
    #: a leaf's values v for all classes solve (H + l2) v = -G, H the sum of w (diag(p) - p p')
    joint: bool = False

    name = "softmax"
    coupled = True
    exponent = 1.0

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        p = self.mean(F)
        return Slopes(p - y, self.factor * p * (1 - p), 1.0, self.factor * (1 - 2 * p), -1.0)

    def gradient(self, y: FloatArray, F: FloatArray) -> FloatArray:
        """Return p - y."""
        return self.mean(F) - y

    @property
    def predicts_targets(self) -> bool:
        """Whether means are on the scale of the targets.

        Residuals are then differences of both.
        """
        return bool(self.meaning) or not self.recorded

    @property
    def curvature(self) -> float | None:
        """The factor c; None if the leaf values of all classes are solved for together."""
        if self.joint:
            return None
        if self.unit_hessian:
            return 0.0
        return self.factor

    def affine(self, y: FloatArray) -> Affine | None:
        """Return exponentials over their sum, less y."""
        return Affine("share", -y, np.ones_like(y))

    def joint_slopes(self, y: FloatArray, F: FloatArray, v: FloatArray) -> Slopes:
        """Return g, and for h the row's term of H times its leaf's values v (N, K)."""
        p = self.mean(F)
        return Slopes(p - y, p * (v - (p * v).sum(axis=1, keepdims=True)), 1.0, 0.0, -1.0)

    def link(self, means: FloatArray) -> FloatArray:
        """Return the logarithms of the means, less their mean if ``centred`` is set."""
        logs = np.log(np.maximum(means + self.added, self.near))
        return np.asarray(logs - logs.mean() if self.centred else logs)

    def _link_slopes(self, means: FloatArray) -> FloatArray:
        slopes = np.diag(1.0 / np.maximum(means + self.added, self.near))
        return np.asarray(slopes - slopes.mean(axis=0) if self.centred else slopes)

    def _single(self, y: Any, F: Any, w: Any) -> tuple[Any, Any]:
        one = np.float32(1)
        two = np.float32(2)
        largest = np.maximum(F.max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        p = _exp(F - largest)
        p /= p.sum(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
        return (p - y) * w, np.maximum(two * p * (one - p) * w, LEAST_SINGLE)

    def mean(self, F: FloatArray) -> FloatArray:
        """Return p; the scores may be arrays of a GPU."""
        shares: FloatArray = np.exp(F - F.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def mean_slopes(self, F: FloatArray) -> FloatArray:
        """Return diag(p) - p p'."""
        p = self.mean(F)
        return np.asarray(p[:, :, None] * (np.eye(F.shape[1]) - p[:, None, :]))


@dataclass(frozen=True, kw_only=True)
class Deviance(Loss):
    """Half the deviance of the Tweedie family with the log link.

    The mean is exp(F), and the variance is the mean to the power r: r = 1 is Poisson, r = 2 gamma.
    ``g = exp((2 - r) F) - y exp((1 - r) F)`` and ``h = c dg/dF``.
    """

    power: float  #: r
    factor: float = 1.0  #: c, which the library multiplies second derivatives by
    name: str = "tweedie"

    meaning = "mean"

    def _slopes(self, y: FloatArray, F: FloatArray) -> Slopes:
        one_less_power = 1 - self.power
        two_less_power = 2 - self.power
        c = self.factor
        a = np.exp(one_less_power * F)
        b = np.exp(two_less_power * F)
        slope = two_less_power * b - one_less_power * y * a
        return Slopes(
            b - y * a,
            c * slope,
            slope,
            c * (two_less_power**2 * b - one_less_power**2 * y * a),
            -a,
            -c * one_less_power * a,
        )

    def gradient(self, y: FloatArray, F: FloatArray) -> FloatArray:
        """Return exp((2 - r) F) - y exp((1 - r) F)."""
        if self.power == 1:
            return np.exp(F) - y
        if self.power == 2:
            return 1 - y * np.exp(-F)
        return np.asarray(np.exp((2 - self.power) * F) - y * np.exp((1 - self.power) * F))

    @property
    def exponent(self) -> float:  # type: ignore[override]
        """1 for Poisson, -1 for gamma, and 0 between them.

        Between them the gradient has two exponentials.
        """
        return {1.0: 1.0, 2.0: -1.0}.get(self.power, 0.0)

    def affine(self, y: FloatArray) -> Affine | None:
        """Return exp(F) - y for Poisson and 1 - y exp(-F) for gamma."""
        if not self.exponent:
            return None
        if self.power == 1:
            return Affine("identity", -y, np.ones_like(y))
        return Affine("identity", np.ones_like(y), -y)

    def link(self, means: FloatArray) -> FloatArray:
        """Return the logarithms of the means."""
        return np.asarray(np.log(means))

    def stored_link(self, means: FloatArray) -> FloatArray:
        """Return the logarithms of the means, in single precision if ``single`` is set."""
        if self.single:
            return _rounded_log(means.astype(np.float32))
        return self.link(means)

    def _single(self, y: Any, F: Any, w: Any) -> tuple[Any, Any]:
        one = np.float32(1)
        two = np.float32(2)
        power = np.float32(self.power)
        if self.power == 1:
            return (_exp(F) - y) * w, _exp(F + np.float32(np.log(self.factor))) * w
        if self.power == 2:
            share = y / _exp(F)
            return (one - share) * w, share * w
        a = _exp((one - power) * F)
        b = _exp((two - power) * F)
        return (b - y * a) * w, ((two - power) * b - y * (one - power) * a) * w

    def _link_slopes(self, means: FloatArray) -> FloatArray:
        return np.diag(1.0 / means)

    def mean(self, F: FloatArray) -> FloatArray:
        """Return exp(F)."""
        return np.asarray(np.exp(F))

    def mean_slopes(self, F: FloatArray) -> FloatArray:
        """Return exp(F) on the diagonals."""
        return _diagonal(np.exp(F))

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require targets above 0, or at least 0 if the family has zeros.

        A fit starts from the mean of its targets, so some of them must then be above 0.
        """
        low = y.min(initial=1.0)
        positive = self.power >= 2
        if low < 0 or (whole and not y.any()) or (positive and low <= 0):
            if positive:
                least = "above 0"
            else:
                least = "from 0 up, not all 0"
            raise InputError(f"{argument} goes down to {low:g}; this loss takes targets {least}.")


#: slopes by operations that arrays of other modules have as well
_ANYWHERE = frozenset(kind._slopes for kind in (Squared, Logistic, Softmax, Deviance))


def poisson(factor: float = 1.0, **settings: bool) -> Deviance:
    """Return the Poisson loss: g = exp(F) - y, h = factor exp(F)."""
    return Deviance(name="poisson", power=1.0, factor=factor, **settings)


def gamma(**settings: bool) -> Deviance:
    """Return the gamma loss: g = 1 - y exp(-F), h = y exp(-F)."""
    return Deviance(name="gamma", power=2.0, **settings)


def tweedie(power: float, **settings: bool) -> Deviance:
    """Return the deviance whose variance is the mean to this power, between Poisson and gamma."""
    return Deviance(name="tweedie", power=power, **settings)


def _exp(values: Any) -> Any:
    """Return the exponentials of float32 numbers, rounded once.

    The C library rounds all but a few in the same way.
    """
    with np.errstate(over="ignore"):
        return np.exp(values.astype(np.float64)).astype(np.float32)


def _rounded_log(values: Any) -> FloatArray:
    """Return the logarithms of float32 numbers, rounded to single precision, as float64."""
    return np.asarray(np.log(values.astype(np.float64)).astype(np.float32).astype(np.float64))


def _diagonal(values: FloatArray) -> FloatArray:
    """Return matrices (N, K, K) that have the values (N, K) on their diagonals."""
    return np.asarray(values[:, :, None] * np.eye(values.shape[1]))

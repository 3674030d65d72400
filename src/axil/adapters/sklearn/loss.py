"""The losses of scikit-learn's gradient boosting whose gradients axil knows.

The module also has the refusals of all others.

Formulas: sklearn/_loss/link.py, sklearn/_loss/_loss.pyx.tp; leaves: _update_terminal_regions,
sklearn/ensemble/_gb.py, and compute_node_value,
sklearn/ensemble/_hist_gradient_boosting/splitting.pyx.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit

from axil.adapters.refusals import Refusal
from axil.adapters.sklearn.percentile import PERCENTILES
from axil.adapters.sklearn.refusals import UNKNOWN_SPLIT, fits_init, unknown_init
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.trees.losses import Logistic, Loss, Softmax, Squared, gamma, poisson
from axil.trees.residual_losses import Exponential

# mean second derivative of a leaf below which its value is zero (_safe_divide,
# sklearn/ensemble/_gb.py)
MIN_MEAN_HESSIAN = 1e-150


class StageLoss(Loss):
    """A loss without regularisation of leaves, so that the digits of tiny gradients count.

    h is that of ``p = y + g``, rounded.
    """

    cancels = True

    def leaf_slopes(self, y: FloatArray, F: FloatArray) -> tuple[ForeignObject, ForeignObject]:
        """Return g, and p (1 - p), where p is the probability that scikit-learn computes from g."""
        g = self.gradient(y, F)
        p = y + g
        return g, p * (1 - p)


@dataclass(frozen=True, kw_only=True)
class StageLogistic(StageLoss, Logistic):
    """Gradients of the logistic loss."""

    def gradient(self, y: FloatArray, F: FloatArray) -> FloatArray:
        """Return p - y without a difference of numbers near one, as scikit-learn does."""
        odds = np.exp(-np.maximum(F, -37.0))
        return np.where(F > -37, ((1 - y) - y * odds) / (1 + odds), np.exp(np.minimum(F, 0.0)) - y)


@dataclass(frozen=True, kw_only=True)
class StageSoftmax(StageLoss, Softmax):
    """The exponentials of a softmax summed class after class."""

    def mean(self, F: FloatArray) -> FloatArray:
        """Return p, with the exponentials summed class after class."""
        shares: FloatArray = np.exp(F - F.max(axis=1, keepdims=True))
        total = np.zeros((len(F), 1))
        for k in range(F.shape[1]):
            total += shares[:, k : k + 1]
        shares /= total
        return shares


# How close to 0 and 1 shares of classes come in the scores that a histogram fit starts from
# (fit_intercept_only, sklearn/_loss/loss.py).
_NEAR_OF_TWO = 10 * float(np.finfo(np.float64).eps)
_NEAR_OF_SEVERAL = float(np.finfo(np.float64).eps)


@cache
def _near_in_stages() -> float:
    """Return how close to 0 and 1 the class shares behind initial scores may come.

    scikit-learn cuts them off at the rounding of float32, from version 1.8 on at that of float64
    (_init_raw_predictions, sklearn/ensemble/_gb.py). An unfitted share of zero shows which.
    """
    from sklearn._loss.loss import HalfBinomialLoss
    from sklearn.ensemble import _gb

    class NoShare:
        """A model that gives the second class no share."""

        def predict_proba(self, X: FeatureTable) -> FloatArray:
            return np.array([[1.0, 0.0]])

    score = _gb._init_raw_predictions(None, NoShare(), HalfBinomialLoss(), True)
    return float(expit(np.ravel(score)[0]))


_LOSSES: dict[str, Loss] = {
    "squared_error": Squared(),
    "log_loss": Logistic(near=_NEAR_OF_TWO, needs_two_classes=True),
    "exponential": Exponential(),
    "poisson": poisson(),
    "gamma": gamma(),
}
#: Early stopping, in the words of `Adapter.single_output_setting`.
EARLY_STOPPING = "early stopping, which holds out rows of its own for each output"


def _other_loss(model: ForeignModel) -> str:
    is_known = isinstance(model.loss, str) and (model.loss in _LOSSES or model.loss in PERCENTILES)
    if is_known:
        return ""
    return str(model.loss)


def _init(model: ForeignModel) -> str:
    init = model.init_
    prior = type(init).__name__ == "DummyClassifier" and init.strategy == "prior"
    if prior or isinstance(init, str):
        return ""
    if fits_init(model):
        return str(init)
    return unknown_init(model)


_FIT = 'Fit with loss "log_loss", "exponential", "poisson", "gamma" or "squared_error".'
GRADIENT_LOSSES: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "loss",
        lambda model: model.loss in PERCENTILES and model.loss,
        "its leaf values are renewed by percentiles of the residuals, which are no sums over rows",
        _FIT,
    ),
    Refusal("loss", _other_loss, "axil does not know its gradient", _FIT),
)
GRADIENT_STAGES: tuple[Refusal[ForeignModel], ...] = (
    *GRADIENT_LOSSES,
    Refusal(
        "init",
        _init,
        "its initial prediction is neither a constant nor the link of the mean target, and axil "
        "replays only these two",
        'Fit with init=None or init="zero".',
    ),
    UNKNOWN_SPLIT,
)


def stage_loss(model: ForeignModel, n_outputs: int) -> Loss:
    """Return the loss of a fit by stages.

    For percentiles, whose leaves have a rule of their own, it is squared error.
    """
    if model.loss == "exponential":
        return Exponential(near=_near_in_stages())
    if model.loss == "log_loss" and n_outputs > 1:
        return StageSoftmax(centred=True, near=_near_in_stages())
    if model.loss == "log_loss":
        return StageLogistic(near=_near_in_stages())
    return _LOSSES.get(model.loss, Squared())


def histogram_loss(model: ForeignModel, n_outputs: int) -> Loss:
    """Return the loss of histogram boosting.

    For percentiles, whose leaves have a rule of their own, it is squared error.
    """
    if model.loss == "log_loss" and n_outputs > 1:
        return Softmax(centred=True, near=_NEAR_OF_SEVERAL, needs_two_classes=True)
    return _LOSSES.get(model.loss, Squared())


def label_numbers(targets: FloatArray) -> FloatArray:
    """Return the number of each row's class, (N,)."""
    if targets.shape[1] == 1:
        return targets[:, 0]
    return targets.argmax(axis=1).astype(float)

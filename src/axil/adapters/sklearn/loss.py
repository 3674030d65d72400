"""scikit-learn's gradient boosting whose gradient is known: classifiers, and Poisson and gamma regressors with histograms.

Formulas: sklearn/_loss/link.py, sklearn/_loss/_loss.pyx.tp; leaves: _update_terminal_regions,
sklearn/ensemble/_gb.py, and compute_node_value,
sklearn/ensemble/_hist_gradient_boosting/splitting.pyx.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import expit

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.class_weights import class_weight_advice
from axil.adapters.contract import GradientTrees, TrainingRows
from axil.adapters.refusals import Refusal, first_of
from axil.adapters.sklearn.base import require_no_offsets
from axil.adapters.sklearn.boosting import GradientBoostingAdapter, HistGradientBoostingAdapter
from axil.adapters.sklearn.percentile import PERCENTILES
from axil.adapters.sklearn.refusals import UNKNOWN_SPLIT, fits_init, unknown_init
from axil.arrays import FloatArray
from axil.trees.losses import Logistic, Loss, Softmax, Squared, gamma, poisson
from axil.trees.residual_losses import Exponential

# mean second derivative of a leaf below which its value is zero (_safe_divide,
# sklearn/ensemble/_gb.py)
LIGHTEST = 1e-150


class StageLoss(Loss):
    """Its leaves have no regularisation, so the digits of gradients next to zero count; h is that of ``p = y + g``, rounded."""

    cancels = True

    def leaf_slopes(self, y: FloatArray, F: FloatArray) -> tuple[Any, Any]:
        """g, and p (1 - p) of the probability that scikit-learn makes of g."""
        g = self.gradient(y, F)
        p = y + g
        return g, p * (1 - p)


@dataclass(frozen=True, kw_only=True)
class StageLogistic(StageLoss, Logistic):
    """Gradients of the logistic loss."""

    def gradient(self, y: FloatArray, F: FloatArray) -> FloatArray:
        """p - y without a difference of numbers near one, as scikit-learn takes it."""
        odds = np.exp(-np.maximum(F, -37.0))
        return np.where(F > -37, ((1 - y) - y * odds) / (1 + odds), np.exp(np.minimum(F, 0.0)) - y)


@dataclass(frozen=True, kw_only=True)
class StageSoftmax(StageLoss, Softmax):
    """The exponentials of a softmax summed class after class."""

    def mean(self, F: FloatArray) -> FloatArray:
        """p, with the exponentials summed class after class."""
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
    """Return how close to 0 and 1 shares of classes come in the scores that a fit by stages starts from.

    scikit-learn cuts them off at the rounding of float32, from version 1.8 on at that of float64
    (_init_raw_predictions, sklearn/ensemble/_gb.py). An unfitted share of zero shows which.
    """
    from sklearn._loss.loss import HalfBinomialLoss
    from sklearn.ensemble import _gb

    class NoShare:
        """A model that gives the second class no share."""

        def predict_proba(self, X: Any) -> FloatArray:
            return np.array([[1.0, 0.0]])

    score = _gb._init_raw_predictions(None, NoShare(), HalfBinomialLoss(), True)
    return float(expit(np.ravel(score)[0]))


_LOSSES: dict[str, Loss] = {
    "squared_error": Squared(),
    "log_loss": Logistic(near=_NEAR_OF_TWO),
    "exponential": Exponential(),
    "poisson": poisson(),
    "gamma": gamma(),
}
_STOPS = "early stopping, which holds out rows of its own for each output"


def _other_loss(model: Any) -> str:
    known = isinstance(model.loss, str) and (model.loss in _LOSSES or model.loss in PERCENTILES)
    if known:
        return ""
    return str(model.loss)


def _init(model: Any) -> str:
    init = model.init_
    prior = type(init).__name__ == "DummyClassifier" and init.strategy == "prior"
    if prior or isinstance(init, str):
        return ""
    if fits_init(model):
        return str(init)
    return unknown_init(model)


_FIT = 'Fit with loss "log_loss", "exponential", "poisson", "gamma" or "squared_error".'
LOSSES: tuple[Refusal[Any], ...] = (
    Refusal(
        "loss",
        lambda model: model.loss in PERCENTILES and model.loss,
        "its leaf values are renewed by percentiles of the residuals, which are no sums over rows",
        _FIT,
    ),
    Refusal("loss", _other_loss, "axil does not know its gradient", _FIT),
)
STAGES: tuple[Refusal[Any], ...] = (
    *LOSSES,
    Refusal(
        "init",
        _init,
        "its first prediction is neither a constant nor that of the targets' means, which are what axil replays",
        'Fit with init=None or init="zero".',
    ),
    UNKNOWN_SPLIT,
)


class StagesWithLoss(GradientBoostingAdapter, GradientTrees):
    """GradientBoostingClassifier and GradientBoostingRegressor: every leaf is a Newton step, in float64."""

    refusals = STAGES
    gradient_tolerance = 1e-7  # of leaves whose second derivatives nearly vanish

    @property
    def single_output_setting(self) -> str:
        """Return early stopping, which holds rows of each class out."""
        if self.classes is not None and self._model.n_iter_no_change is not None:
            return _STOPS
        return ""

    def scores(self, X: Any) -> FloatArray:
        """(n, K)."""
        rows = self._rows(X)
        if self.classes is None:
            found = self._model.predict(rows)
        else:
            found = self._model.decision_function(rows)
        return np.asarray(found, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def _start(self) -> tuple[FloatArray, bool]:
        init = self._model.init_
        if self.classes is None or isinstance(init, str):
            return super()._start()
        prior = np.asarray(init.class_prior_, dtype=np.float64)
        return self._loss.link(prior[1:] if self.n_outputs == 1 else prior), True

    @property
    def _loss(self) -> Loss:
        if self._model.loss == "exponential":
            return Exponential(near=_near_in_stages())
        if self._model.loss != "log_loss":
            return _LOSSES[self._model.loss]
        if self.n_outputs > 1:
            return StageSoftmax(centred=True, near=_near_in_stages())
        return StageLogistic(near=_near_in_stages())

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees, stage after stage."""
        require_no_offsets(rows)
        n_outputs = self.n_outputs
        trees = self._stages(rows, None if self.classes is None else _labels(rows.targets))
        # A softmax leaf is (K - 1) / K of its Newton step.
        step = trees.learning_rates * ((n_outputs - 1) / n_outputs if n_outputs > 1 else 1.0)
        fit = replace(
            trees,
            table=replace(trees.table, leaf_weights=None),
            leaf_rule=replace(trees.leaf_rule, min_hessian=LIGHTEST * rows.totals.weight),
            schedule=Schedule.in_stages(step, n_outputs),
            loss=self._loss,
        )
        return [fit]


class HistogramsWithLoss(HistGradientBoostingAdapter, GradientTrees):
    """HistGradientBoostingClassifier and HistGradientBoostingRegressor: first and second derivatives are float32."""

    gradient_tolerance = 2e-6

    refusals = LOSSES

    def __init__(self, model: Any):
        super().__init__(model)
        self.class_weight = getattr(
            model, "class_weight", None
        )  # by the numbers of the classes, not by their names

    @property
    def single_output_setting(self) -> str:
        """Return early stopping, which draws by a seed of each output, or monotone constraints; empty: it has neither."""
        model = self._model
        splits = model.do_early_stopping_ and model.validation_fraction is not None
        stops = splits and (self.classes is not None or model.random_state is None)
        return first_of({_STOPS: stops, "monotone constraints": self._nodes() is not None})

    def scores(self, X: Any) -> FloatArray:
        """(n, K)."""
        found = self._model._raw_predict(self._rows(X))
        return np.asarray(found, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees, iteration after iteration."""
        trees = self._trees(rows, None if self.classes is None else _labels(rows.targets))
        schedule = Schedule.in_stages(trees.learning_rates, self.n_outputs)
        return [replace(trees, schedule=schedule, loss=_loss(self._model, self.n_outputs))]

    def causes(self, what: str) -> str:
        """The most likely reason for a disagreement in "counts" or "values"."""
        return f"{class_weight_advice(self.class_weight)}\n{super().causes(what)}"


def _labels(targets: FloatArray) -> FloatArray:
    """(N,): the number of each row's class."""
    if targets.shape[1] == 1:
        return targets[:, 0]
    return targets.argmax(axis=1).astype(float)


def _loss(model: Any, n_outputs: int) -> Loss:
    if model.loss == "log_loss" and n_outputs > 1:
        return Softmax(centred=True, near=_NEAR_OF_SEVERAL)
    return _LOSSES[model.loss]

"""Audit of boosted models of any loss: which training labels look wrong, by what the other rows in their leaves say.

Of classes a row's quality is the share of its class among the other rows in its leaves, a tree at a time. On nine of
eighteen data sets that found more flipped labels than the row's push on its own score, its score without that push, or BoostIn's
score of a row for itself, so it was chosen; experiments/label_noise_classes.py counts the others by themselves.

Counts and amounts are skewed, and Student's t is not: a claim where few are expected is far from all others around it, and no
mistake. So no quality is below the tail probability of the loss's own distribution: Poisson, gamma or Tweedie around the expected
value, with the dispersion that most of the rows show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammaincinv
from scipy.stats import chi2, poisson

from axil import inputs
from axil.errors import UnsupportedQuestionError
from axil.jacobian.boosting import Boosting
from axil.questions.audit import BY_PREDICTION, ClassAudit, Studentised, as_probabilities, class_table, numbers_table
from axil.structure import Structure
from axil.types import Array
from axil.weights.spread import around_leaves

QUARTILES = np.array([0.25, 0.75])
SHAPES = np.geomspace(0.05, 1e4, 400)  # of gamma distributions
DISPERSIONS = np.geomspace(1e-6, 1e12, 400)
MANY = 100.0  # amounts expected in a sum, from where on it is nearly gamma
TINY = float(np.finfo(float).tiny)
BY_PUSHES = "by the mean of each row's score without its own push; not a retraining"


class LabelAudit(ABC):
    """The question about wrong labels, as a method of `JacobianExplainer`."""

    index: NDArray[Any]
    _backend: str

    @abstractmethod
    def _boosting(self, question: str) -> Boosting:
        """The model, where it is boosted: what `question` needs."""

    def audit(self, out_of_fold: Any = None) -> Any:
        """Which training labels look wrong, the most suspicious first, and how many; no validation rows, no refit.

        Of classes a frame with the columns row, target, expected (the class that most other rows in the row's leaves have),
        probability (of target, from the row's score without its own push), quality (from 0 to 1: the share of target among these
        other rows), suspect (expected is another class; where classes overlap that is so of many right labels too).

        Of counts and amounts the columns are those of `Explainer.audit`, with expected the mean of the row's score without its
        own push. Other rows saw the row's label too, so that is nearer to it than a refit would be. No quality is below the tail
        probability of the loss's own distribution (Poisson, gamma, Tweedie) around expected.

        Rows that are alone in all their leaves have nan and come last. O(T N), nothing of size (n_train, n_train).

        Parameters
        ----------
        out_of_fold : array of shape (n_train, K) or (n_train,), optional
            Probabilities of the classes, or predictions, of your own cross-validation; of two classes the second's will do.
            Quality is then the probability of target, and suspect rows are those where another class is at least as probable
            as it is on average for the rows that are of it.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> from axil import JacobianExplainer
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> y[11:13] = 1 - y[11:13]
        >>> table = JacobianExplainer(LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y), X, y).audit()
        >>> {11, 12} <= set(table["row"].head(5))
        True
        """
        model = self._boosting("audit")
        if not model.meaning:
            raise UnsupportedQuestionError(
                "audit", "it is of classes, counts and amounts", "Use axil.Explainer for squared error."
            )
        names = model.class_names
        if names is None:
            return _numbers(model, out_of_fold, self.index, self._backend)
        labels = _both(model.targets)
        without = model.means(model.fitted - model.pushes.on_itself())
        assert without is not None  # there is a meaning
        if out_of_fold is None:
            found, probabilities = (
                ClassAudit.of_neighbours(labels, around(model, labels)),
                _both(without),
            )
        else:
            probabilities = as_probabilities(out_of_fold, *labels.shape)
            found = ClassAudit.of_probabilities(labels, probabilities)
        columns = found.columns(self.index, names, probabilities)
        return class_table(columns, out_of_fold is not None, self._backend)


def _both(second: Array) -> Array:
    """(N, K): of two classes both columns, where there is one for the second."""
    return np.column_stack([1 - second, second]) if second.shape[1] == 1 else second


def around(model: Boosting, values: Array) -> Array:
    """(N, S): the means of values (N, S) over the other rows in each row's leaves, of the trees of all outputs."""
    walked = model.pushes.walked
    n_leaves = np.diff(walked.starts)
    ones, trees = np.ones(int(walked.starts[-1])), np.ones(len(n_leaves))
    membership = Structure(walked.leaves, n_leaves, ones, ones.copy(), trees, np.zeros(1))
    return around_leaves(membership, model.backend.rows_of(membership), None, values)


def _numbers(model: Boosting, out_of_fold: Any, index: NDArray[Any], backend: str) -> Any:
    """The table for counts and amounts."""
    targets = model.targets
    if out_of_fold is None:
        means = model.means(model.fitted - model.pushes.on_itself())
        assert means is not None
        expected, basis = means, BY_PUSHES
    else:
        n, n_outputs = targets.shape
        expected, basis = inputs.as_table(out_of_fold, n, n_outputs, "out_of_fold"), BY_PREDICTION
    residuals = targets - expected
    columns: dict[str, Any] = {"row": index, "target": targets[:, 0], "expected": expected[:, 0]}
    columns |= {"residual": residuals[:, 0]}
    power = model.variance_power
    tails = None if power is None else _tails(power, targets, expected, model.row_weights)
    columns |= Studentised.of(residuals, around(model, np.abs(residuals)), tails).columns("scale")
    return numbers_table(columns, basis, backend)


def _tails(power: float, y: Array, means: Array, weights: Array) -> Array:
    """(N, 1): probabilities of targets at least as far out, on either side, if the variance is a power of the mean; nan stays."""
    known = np.isfinite(means) & (means > 0)
    if power == 1:
        upper, lower = _poisson(y, means, weights)
    elif power == 2:
        upper, lower = _gamma(y, means, known)
    else:
        upper, lower = _tweedie(power, y, means, known)
    return np.where(known, np.minimum(2 * np.minimum(upper, lower), 1.0), np.nan)


def _poisson(y: Array, means: Array, weights: Array) -> tuple[Array, Array]:
    """(N, 1) twice: probabilities of counts from y up, and up to y.

    Counts per exposure, fitted with the exposures for weights, are no whole numbers; times their weights they are.
    """
    counts = y * weights[:, None]
    exposed = not _whole(y) and _whole(counts)
    y, means = (counts, means * weights[:, None]) if exposed else (y, means)
    upper = np.where(y > 0, gammainc(np.maximum(y, TINY), means), 1.0)
    return upper, gammaincc(y + 1, means)


def _whole(numbers: Array) -> bool:
    """Whether all are whole numbers, to the precision of those that libraries keep."""
    return bool(np.allclose(numbers, np.rint(numbers), rtol=0, atol=1e-5))


def _gamma(y: Array, means: Array, known: NDArray[np.bool_]) -> tuple[Array, Array]:
    """(N, 1) twice: probabilities of amounts above and below y, with the shape that the quartiles of log(y / mean) have."""
    ratios = y / np.where(known, means, 1.0)
    low, high = np.quantile(np.log(ratios[known]), QUARTILES) if known.any() else (-1.0, 1.0)
    widths = np.diff(np.log(gammaincinv(SHAPES[:, None], QUARTILES)), axis=1)[:, 0]  # falls with the shape
    shape = np.interp(-(high - low), -widths, SHAPES)
    return gammaincc(shape, shape * ratios), gammainc(shape, shape * ratios)


def _tweedie(power: float, y: Array, means: Array, known: NDArray[np.bool_]) -> tuple[Array, Array]:
    """(N, 1) twice: probabilities of sums of gamma amounts, Poisson in number, from y up and up to y.

    The dispersion is the one that makes as many zeros as there are, which few wrong amounts do not move; where there are none it
    is that of the middle residual.
    """
    mu = np.where(known, means, 1.0)
    zeros = float((y[known] == 0).mean()) if known.any() else 0.0
    counts_at_one = mu ** (2 - power) / (2 - power)  # expected numbers of amounts, at dispersion 1
    if 0 < zeros < 1:
        made = np.array([np.exp(-counts_at_one[known] / size).mean() for size in DISPERSIONS])  # rises
        dispersion = float(np.exp(np.interp(zeros, made, np.log(DISPERSIONS))))
    else:
        dispersion = float(np.median(((y - mu) ** 2 / mu**power)[known])) / chi2.ppf(0.5, 1) if known.any() else 1.0
    number, size, steps = counts_at_one / dispersion, (2 - power) / (power - 1), dispersion * (power - 1)
    shape = (
        2 - power
    ) * number  # of the gamma distribution with the same mean and variance, which sums of many tend to
    upper, lower = gammaincc(shape, shape * y / mu), gammainc(shape, shape * y / mu)
    few = number <= MANY
    number, at = number[few], y[few] / (steps * mu[few] ** (power - 1))
    above, below = np.zeros_like(number), np.exp(-number)
    for n in range(1, int(poisson.ppf(1 - 1e-12, number.max(initial=0.0))) + 1):
        chance = poisson.pmf(n, number)
        above += chance * gammaincc(n * size, at)
        below += chance * gammainc(n * size, at)
    upper[few], lower[few] = above, below
    return np.where(y > 0, upper, 1.0), lower

"""Tails: probabilities of counts and amounts at least as far from their mean.

The distribution is that of the model's own loss.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, gammainc, gammaincc, gammaincinv
from scipy.stats import chi2, poisson

from axil.arrays import BoolArray, FloatArray

QUARTILES = np.array([0.25, 0.75])
SHAPES = np.geomspace(0.05, 1e4, 400)  # of gamma distributions
DISPERSIONS = np.geomspace(1e-6, 1e12, 400)
EXCESSES = np.geomspace(
    1e-4, 20.0, 40
)  # of the variance of counts over the mean, by the squared mean
LEAST_BEYOND = 0.05  # of counts that are beyond the quartiles
MANY = 100.0  # amounts expected in a sum, from where on it is nearly gamma
TINY = float(np.finfo(float).tiny)


def tails(power: float, y: FloatArray, means: FloatArray, weights: FloatArray) -> FloatArray:
    """Return probabilities of targets at least as far out on either side, (N, 1); nan stays.

    The variance is a power of the mean.
    """
    is_known = np.isfinite(means) & (means > 0)
    if power == 1:
        upper, lower = _poisson(y, means, weights, is_known)
    elif power == 2:
        upper, lower = _gamma(y, means, is_known)
    else:
        upper, lower = _tweedie(power, y, means, is_known)
    return np.where(is_known, np.minimum(2 * np.minimum(upper, lower), 1.0), np.nan)


def _poisson(
    y: FloatArray, means: FloatArray, weights: FloatArray, is_known: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of counts of at least y, and of at most y, (N, 1) each.

    Counts per exposure, fitted with the exposures as weights, are no whole numbers; times their
    weights they are. Counts whose variance is larger than Poisson's are negative binomial.
    """
    counts = y * weights[:, None]
    exposed = not _whole(y) and _whole(counts)
    if exposed:
        y, means = (np.rint(counts), means * weights[:, None])
    else:
        y, means = (y, means)
    excess = _excess(y, means, is_known)
    if excess > 0:
        return _negative_binomial(y, np.where(is_known, means, 1.0), 1 / excess)
    upper = np.where(y > 0, gammainc(np.maximum(y, TINY), means), 1.0)
    return upper, gammaincc(y + 1, means)


def _excess(y: FloatArray, means: FloatArray, is_known: BoolArray) -> float:
    """Return the a for which counts have the variance mean + a mean^2; 0 if it may be chance.

    With it as many counts are beyond the quartiles of Poisson's distribution as there are. A few
    wrong counts do not move it. If means are so low that hardly any counts are beyond, it is 0,
    because wrong counts alone would decide.
    """
    at = y[is_known]
    known_means = means[is_known]
    if not len(at):
        return 0.0
    low = poisson.ppf(0.25, known_means)
    high = np.maximum(poisson.ppf(0.75, known_means), 1.0)
    share_beyond = float(((at < low) | (at > high)).mean())

    def beyond(excess: float) -> float:
        upper = _negative_binomial(high, known_means, 1 / excess)
        lower = _negative_binomial(low, known_means, 1 / excess)
        return float((2.0 - upper[1] - lower[0]).mean())

    usual = beyond(EXCESSES[0])
    if usual < LEAST_BEYOND or share_beyond <= usual + 3 * np.sqrt(usual * (1 - usual) / len(at)):
        return 0.0
    expected_shares = np.maximum.accumulate([beyond(excess) for excess in EXCESSES])
    return float(np.exp(np.interp(share_beyond, expected_shares, np.log(EXCESSES))))


def _negative_binomial(
    y: FloatArray, means: FloatArray, size: float
) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of counts of at least y, and of at most y.

    Counts are Poisson around gamma means of this shape.
    """
    share = means / (means + size)
    upper = np.where(y > 0, betainc(np.maximum(y, TINY), size, share), 1.0)
    return upper, betainc(size, y + 1, 1 - share)


def _whole(numbers: FloatArray) -> bool:
    """Whether all are whole numbers, to the precision of those that libraries keep."""
    return bool(np.allclose(numbers, np.rint(numbers), rtol=0, atol=1e-5))


def _gamma(y: FloatArray, means: FloatArray, is_known: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of amounts above and below y, (N, 1) each.

    The shape is the one with the quartiles of log(y / mean).
    """
    ratios = y / np.where(is_known, means, 1.0)
    if is_known.any():
        low, high = np.quantile(np.log(ratios[is_known]), QUARTILES)
    else:
        low, high = (-1.0, 1.0)
    widths = np.diff(np.log(gammaincinv(SHAPES[:, None], QUARTILES)), axis=1)[
        :, 0
    ]  # falls with the shape
    shape = np.interp(-(high - low), -widths, SHAPES)
    return gammaincc(shape, shape * ratios), gammainc(shape, shape * ratios)


def _tweedie(
    power: float, y: FloatArray, means: FloatArray, is_known: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of amounts of at least y, and of at most y, (N, 1) each.

    Amounts are sums of gamma amounts, Poisson in number. The dispersion is the one with as many
    zeros as there are, which a few wrong amounts do not move. Without zeros it is that of the
    median residual.
    """
    mu = np.where(is_known, means, 1.0)
    zeros = float((y[is_known] == 0).mean()) if is_known.any() else 0.0
    counts_at_one = mu ** (2 - power) / (2 - power)  # expected numbers of amounts, at dispersion 1
    if 0 < zeros < 1:
        expected_zeros = np.array(
            [np.exp(-counts_at_one[is_known] / size).mean() for size in DISPERSIONS]
        )  # rises
        dispersion = float(np.exp(np.interp(zeros, expected_zeros, np.log(DISPERSIONS))))
    else:
        dispersion = (
            float(np.median(((y - mu) ** 2 / mu**power)[is_known])) / chi2.ppf(0.5, 1)
            if is_known.any()
            else 1.0
        )
    number, size, steps = (
        counts_at_one / dispersion,
        (2 - power) / (power - 1),
        dispersion * (power - 1),
    )
    # of the gamma distribution with the same mean and variance, which sums of many tend to
    shape = (2 - power) * number
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

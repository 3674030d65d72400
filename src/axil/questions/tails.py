"""Tails: probabilities of counts and amounts at least as far from their mean, by the distribution of the model's own loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammaincinv
from scipy.stats import chi2, poisson

from axil.types import Array

QUARTILES = np.array([0.25, 0.75])
SHAPES = np.geomspace(0.05, 1e4, 400)  # of gamma distributions
DISPERSIONS = np.geomspace(1e-6, 1e12, 400)
MANY = 100.0  # amounts expected in a sum, from where on it is nearly gamma
TINY = float(np.finfo(float).tiny)


def tails(power: float, y: Array, means: Array, weights: Array) -> Array:
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

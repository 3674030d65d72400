"""Scores of predictive distributions, one for each row: the same functions for every method."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

COVERAGE = 0.9
LEVELS = (
    np.arange(20) + 0.5
) / 20  # midpoints: the mean over them is the midpoint rule of an integral over probabilities


def crps(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,): twice the pinball loss of the quantiles (n, 20), a mean over LEVELS."""
    below = y[:, None] - np.sort(quantiles, axis=1)
    return 2 * np.maximum(LEVELS * below, (LEVELS - 1) * below).mean(axis=1)


def crps_normal(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """(n,): the closed form, with which normal distributions are tuned on calibration rows."""
    z = (y - mean) / std
    return std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))


def nll_normal(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """(n,): less the logarithm of the normal density."""
    return 0.5 * np.log(2 * np.pi * np.square(std)) + np.square(y - mean) / (2 * np.square(std))


def winkler(lower: np.ndarray, upper: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,): the width, and 2 / (1 - coverage) times how far a target is outside."""
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return upper - lower + 2 / (1 - COVERAGE) * outside


def place(share: float, n: int) -> int:
    """The place, from 0, among n sorted errors that another one is at or below with this probability; the last at most."""
    return min(math.ceil(round((n + 1) * share, 9)), n) - 1


def outward(atoms: np.ndarray) -> np.ndarray:
    """(..., 20): quantiles of equally likely numbers (..., n), rounded away from the median as split conformal does."""
    n, ordered = atoms.shape[-1], np.sort(atoms, axis=-1)
    places = [place(q, n) if q >= 0.5 else n - 1 - place(1 - q, n) for q in LEVELS]
    return ordered[..., places]

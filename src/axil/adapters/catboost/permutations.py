"""The order of the training rows in CatBoost's averaging fold, sampled again from random_seed.

One generator serves the whole fit: two 32-bit PCG streams side by side, the first in the high word
(util/random/fast.h). CatBoost shuffles the rows before anything else. It then shuffles the learning
folds, all but the first, and then the averaging fold, on which it estimates leaf values:
ShuffleLearnDataIfNeeded (catboost/private/libs/algo/preprocess.cpp), TLearnProgress
(learn_context.cpp). Folds shuffle blocks of consecutive rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.kernels.cpu import exchanged

MULTIPLIER = 6364136223846793005
WORD = (1 << 64) - 1
HALF = (1 << 31) - 1
#: Rows that every fold samples for the borders of texts, whether there are texts or not
#: (InitOnlineEstimatedFeatures, fold.cpp).
SAMPLED = 100_000
#: Rows that CatBoost samples before the folds for the borders of numbers, if there are any.
QUANTIZED = 200_000

Order = NDArray[np.int64]


class _Stream:
    """A 32-bit PCG stream, whose output is that of the state after the step."""

    def __init__(self, state: int, sequence: int):
        self._state = state
        self._increment = (2 * sequence + 1) & WORD

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return the next outputs, (n,).

        State k is ``a^k x + c (1 + a + ... + a^(k - 1))``, modulo 2^64.
        """
        powers = np.full(n + 1, MULTIPLIER, dtype=np.uint64)
        powers[0] = 1
        np.cumprod(powers, out=powers)
        sums = np.cumsum(powers[:-1], dtype=np.uint64)
        x = powers[1:] * np.uint64(self._state) + sums * np.uint64(self._increment)
        if n:
            self._state = int(x[-1])
        low_half = np.uint64(0xFFFFFFFF)
        mixed = (((x >> np.uint64(18)) ^ x) >> np.uint64(27)) & low_half
        rotation = x >> np.uint64(59)
        opposite = (np.uint64(32) - rotation) & np.uint64(31)
        return ((mixed >> rotation) | (mixed << opposite)) & low_half

    def skip(self, n: int) -> None:
        """Skip n outputs."""
        factor = 1
        addend = 0
        multiplier = MULTIPLIER
        increment = self._increment
        while n:
            if n & 1:
                factor = factor * multiplier & WORD
                addend = (addend * multiplier + increment) & WORD
            increment = (multiplier + 1) * increment & WORD
            multiplier = multiplier * multiplier & WORD
            n >>= 1
        self._state = (factor * self._state + addend) & WORD


class Generator:
    """CatBoost's generator, seeded with random_seed."""

    def __init__(self, seed: int):
        low = _Stream(seed & WORD, 0).words(6).tolist()
        sequence = low[5]
        if low[2] & HALF == low[5] & HALF:
            sequence = ~low[5] & 0xFFFFFFFF
        self._high = _Stream(low[0] | low[1] << 32, low[2])
        self._low = _Stream(low[3] | low[4] << 32, sequence)

    def shuffled(self, n: int) -> Order:
        """Return the numbers from 0 on, shuffled: each is exchanged with one up to it, (n,)."""
        if n < 2:
            return np.arange(n)
        n_choices = np.arange(2, n + 1, dtype=np.uint64)
        limits = np.uint64(WORD) - np.uint64(WORD) % n_choices  # words from here on are dropped
        words = self._words(n - 1)
        while (words >= limits).any():
            dropped = int(np.argmax(words >= limits))
            words = np.concatenate([words[:dropped], words[dropped + 1 :], self._words(1)])
        return exchanged(np.append(0, (words % n_choices).astype(np.int64)))

    def _words(self, n: int) -> NDArray[np.uint64]:
        return (self._high.words(n) << np.uint64(32)) | self._low.words(n)

    def skip(self, n: int) -> None:
        """Skip the shuffle of n numbers; it drops a word with a probability of n^2 / 2^64."""
        for stream in (self._high, self._low):
            stream.skip(max(n - 1, 0))


@dataclass(frozen=True)
class AveragingFold:
    """The averaging fold of a fit that shuffles its rows."""

    first: Order  #: (N,) the row in each place once all rows are shuffled
    places: Order  #: (N,) which of these places is in each place of the fold

    @classmethod
    def of(cls, n_rows: int, settings: dict[str, Any], numbers: bool = False) -> AveragingFold:
        """Return the fold that a fit with these settings samples; ``has_time`` keeps the order.

        Parameters
        ----------
        n_rows : int
            Number of training rows.
        settings : dict
            The settings that the model keeps of its fit.
        numbers : bool
            Whether there are columns of numbers.
        """
        if settings["data_processing_options"].get("has_time"):
            return cls(np.arange(n_rows), np.arange(n_rows))
        boosting = settings["boosting_options"]
        generator = Generator(int(settings["random_seed"]))
        first = generator.shuffled(n_rows)
        if numbers and n_rows > QUANTIZED:
            generator.skip(1 + QUANTIZED)
        block = int(boosting["fold_permutation_block"]) or min(256, n_rows // 1000 + 1)
        n_blocks = -(-n_rows // block)
        for fold in range(max(1, int(boosting["permutation_count"]) - 1)):
            if fold:  # the first learning fold keeps the order
                generator.skip(n_blocks)
            generator.skip(1 + SAMPLED if n_rows > SAMPLED else 1)
        places = (generator.shuffled(n_blocks)[:, None] * block + np.arange(block)).reshape(-1)
        return cls(first, places[places < n_rows])

    @property
    def rows(self) -> Order:
        """Return the row in each place of the fold, (N,)."""
        return np.asarray(self.first[self.places])

    def recorded(self, weights: FloatArray) -> FloatArray:
        """Return the weights of the rows in the model's record of its leaves, (N,).

        CatBoost permutes them once too often there; leaf values are right. See SumLeafWeights,
        catboost/private/libs/algo_helpers/approx_updater_helpers.cpp.
        """
        permuted = np.empty_like(weights)
        permuted[self.rows[self.places]] = weights[self.first]
        return permuted

"""The order in which CatBoost's averaging fold has the training rows, drawn again from random_seed.

One generator serves the whole fit: two 32-bit PCG streams side by side, the first in the high word (util/random/fast.h). Rows are
shuffled before anything else, then the learning folds are, all but the first, and then the averaging fold, on which leaf values
are estimated: ShuffleLearnDataIfNeeded (catboost/private/libs/algo/preprocess.cpp), TLearnProgress (learn_context.cpp). Folds
shuffle blocks of consecutive rows.
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
# Rows that every fold samples for borders of texts, whether there are texts or not (InitOnlineEstimatedFeatures, fold.cpp)
SAMPLED = 100_000
QUANTIZED = (
    200_000  # likewise for borders of numbers, before the folds, where there are columns of numbers
)

Order = NDArray[np.int64]


class _Stream:
    """A 32-bit PCG stream, whose output is that of the state after the step."""

    def __init__(self, state: int, sequence: int):
        self._state, self._increment = state, (2 * sequence + 1) & WORD

    def words(self, n: int) -> NDArray[np.uint64]:
        """(n,): the next outputs, all at once: state k is ``a^k x + c (1 + a + ... + a^(k - 1))``, modulo 2^64."""
        powers = np.full(n + 1, MULTIPLIER, dtype=np.uint64)
        powers[0] = 1
        np.cumprod(powers, out=powers)
        sums = np.cumsum(powers[:-1], dtype=np.uint64)
        x = powers[1:] * np.uint64(self._state) + sums * np.uint64(self._increment)
        self._state = int(x[-1]) if n else self._state
        mixed = (((x >> np.uint64(18)) ^ x) >> np.uint64(27)) & np.uint64(0xFFFFFFFF)
        turn = x >> np.uint64(59)
        return ((mixed >> turn) | (mixed << ((np.uint64(32) - turn) & np.uint64(31)))) & np.uint64(
            0xFFFFFFFF
        )

    def skip(self, n: int) -> None:
        """Leave out n outputs."""
        factor, addend, multiplier, increment = 1, 0, MULTIPLIER, self._increment
        while n:
            if n & 1:
                factor, addend = (
                    factor * multiplier & WORD,
                    (addend * multiplier + increment) & WORD,
                )
            increment, multiplier = (
                (multiplier + 1) * increment & WORD,
                multiplier * multiplier & WORD,
            )
            n >>= 1
        self._state = (factor * self._state + addend) & WORD


class Generator:
    """CatBoost's generator, seeded with random_seed."""

    def __init__(self, seed: int):
        low = _Stream(seed & WORD, 0).words(6).tolist()
        first, second = low[0] | low[1] << 32, low[3] | low[4] << 32
        sequence = ~low[5] & 0xFFFFFFFF if low[2] & HALF == low[5] & HALF else low[5]
        self._high, self._low = _Stream(first, low[2]), _Stream(second, sequence)

    def shuffled(self, n: int) -> Order:
        """(n,): the numbers from 0, shuffled: number i changes places with one of those up to it, from 1 on."""
        if n < 2:
            return np.arange(n)
        most = np.arange(2, n + 1, dtype=np.uint64)
        largest = np.uint64(WORD) - np.uint64(WORD) % most  # draws from here on are drawn again
        drawn = self._words(n - 1)
        while (drawn >= largest).any():
            at = int(np.argmax(drawn >= largest))
            drawn = np.concatenate([drawn[:at], drawn[at + 1 :], self._words(1)])
        return exchanged(np.append(0, (drawn % most).astype(np.int64)))

    def _words(self, n: int) -> NDArray[np.uint64]:
        return (self._high.words(n) << np.uint64(32)) | self._low.words(n)

    def skip(self, n: int) -> None:
        """Leave out the shuffle of n numbers; that a draw in it is made again has a chance of n^2 / 2^64."""
        for stream in (self._high, self._low):
            stream.skip(max(n - 1, 0))


@dataclass(frozen=True)
class AveragingFold:
    """The averaging fold of a fit that shuffles its rows."""

    first: Order  #: (N,) the row in each place once all rows are shuffled
    places: Order  #: (N,) which of these places is in each place of the fold

    @classmethod
    def of(cls, n_rows: int, settings: dict[str, Any], numbers: bool = False) -> AveragingFold:
        """The fold of ``n_rows`` rows that a fit with these settings draws; ``has_time`` keeps the rows as they are."""
        if settings["data_processing_options"].get("has_time"):
            return cls(np.arange(n_rows), np.arange(n_rows))
        boosting, generator = settings["boosting_options"], Generator(int(settings["random_seed"]))
        first = generator.shuffled(n_rows)
        if numbers and n_rows > QUANTIZED:
            generator.skip(1 + QUANTIZED)
        block = int(boosting["fold_permutation_block"]) or min(256, n_rows // 1000 + 1)
        n_blocks = -(-n_rows // block)
        for fold in range(max(1, int(boosting["permutation_count"]) - 1)):
            generator.skip(n_blocks if fold else 0)  # the first learning fold keeps the rows
            generator.skip(1 + (SAMPLED if n_rows > SAMPLED else 0))
        places = (generator.shuffled(n_blocks)[:, None] * block + np.arange(block)).reshape(-1)
        return cls(first, places[places < n_rows])

    @property
    def rows(self) -> Order:
        """(N,): the row in each place of the fold."""
        return np.asarray(self.first[self.places])

    def recorded(self, weights: FloatArray) -> FloatArray:
        """(N,): the weights that rows have in the model's record of its leaves, which permutes them once too often.

        See SumLeafWeights, catboost/private/libs/algo_helpers/approx_updater_helpers.cpp; leaf values are right.
        """
        found = np.empty_like(weights)
        found[self.rows[self.places]] = weights[self.first]
        return found

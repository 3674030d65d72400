"""LightGBM's samplers of rows and DART's drops of trees, from parameters to samples.

All of them sample from the generator x <- 214013 x + 2531011 mod 2^32, of which a sample is
u = ((x >> 16) & 0x7FFF) / 32768 (include/LightGBM/utils/random.h). Samplers of rows keep one
generator for each block of 1024 rows, seeded bagging_seed + block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray

Words = NDArray[np.uint32]
FloatSingles = NDArray[np.float32]

BLOCK = 1024  # rows to a generator (bagging_rand_block_, include/LightGBM/sample_strategy.h)
CHUNK = 4096  # rows that GOSS settles at a time
MOST_THREADS = 256  # thread counts that are tried for GOSS

LOW = np.uint32(0x7FFFFFFF)
_MULTIPLIERS = np.full(BLOCK, 214013, dtype=np.uint32)
FACTORS: Words = np.cumprod(_MULTIPLIERS, dtype=np.uint32)
_SUMS: Words = np.cumsum(np.r_[np.uint32(0), FACTORS[:-1]], dtype=np.uint32)
TERMS: Words = np.uint32(2531011) * (_SUMS + np.uint32(1))


def streams(seed: int, n_rows: int) -> Words:
    """Return the generators of N rows as they begin, one for each block.

    k steps lead from x to ``FACTORS[k - 1] * x + TERMS[k - 1]``.
    """
    blocks = np.arange(-(-n_rows // BLOCK), dtype=np.int64)
    return ((seed + blocks) & 0xFFFFFFFF).astype(np.uint32)


def _uniforms(words: Words) -> FloatArray:
    """Return the numbers in [0, 1) that generators in these states produce."""
    return np.asarray(((words & LOW) >> np.uint32(16)) / 32768.0)


@dataclass(frozen=True)
class IterationGradients:
    """Gradients of one iteration, whose sums make its leaves, in float32 as LightGBM keeps them."""

    gradients: FloatArray  #: (N, K) -g
    hessians: FloatArray | None = None  #: (N, K); None: 1, of squared error
    weights: FloatArray | None = None  #: (N,) where they are not in the two above
    residuals: FloatArray | None = None  #: (N, K) where percentiles of them make the leaves

    @classmethod
    def rounded_once(cls, weights: FloatArray, residuals: FloatArray) -> IterationGradients:
        """Return gradients that are rounded once, with their weights (N,)."""
        return cls(residuals * weights[:, None], weights[:, None])

    @cached_property
    def weighted_gradients(self) -> FloatSingles:
        """The negative gradients times the weights, (N, K)."""
        return self._weighted(self.gradients.astype(np.float32))

    @cached_property
    def weighted_hessians(self) -> FloatSingles:
        """The hessians times the weights, (N, K)."""
        if self.hessians is None:
            return self._weighted(np.ones(self.gradients.shape, dtype=np.float32))
        return self._weighted(self.hessians.astype(np.float32))

    def _weighted(self, values: FloatSingles) -> FloatSingles:
        if self.weights is None:
            return values
        return values * self.weights.astype(np.float32)[:, None]

    @property
    def sizes(self) -> FloatSingles:
        """The sums of |g * h| over the outputs, one after the other, (N,)."""
        sizes = np.zeros(len(self.gradients), dtype=np.float32)
        for k in range(self.gradients.shape[1]):
            sizes += np.abs(self.weighted_gradients[:, k] * self.weighted_hessians[:, k])
        return sizes


@dataclass(frozen=True)
class Bagging:
    """Samples with u < bagging_fraction, anew every bagging_freq trees (src/boosting/bagging.hpp).

    Positive and negative rows may have different fractions.
    """

    fraction: float | FloatArray  # or (N,)
    frequency: int
    generators: Words
    n_rows: int
    bag: BoolArray | None = None
    iteration: int = 0

    def attempt(
        self, full: bool, gradients: IterationGradients | None
    ) -> tuple[BoolArray, Bagging]:
        """Return the sampled rows (N,) of one more attempt at an iteration, and the state after it.

        ``full``: they were fitted on all rows. An attempt that finds no split leaves no tree, but
        its samples are gone.
        """
        # A sample that by chance holds all rows is kept for good.
        if self.bag is not None and (self.iteration % self.frequency or self.bag.all()):
            return self.bag, self
        words = self.generators[:, None] * FACTORS
        words += TERMS
        last_words = words[:, -1].copy()
        last_words[-1] = words[-1, (self.n_rows - 1) % BLOCK]
        words &= LOW
        limits = np.ceil(np.multiply(self.fraction, 32768)).astype(np.uint32) << np.uint32(16)
        bag = words.ravel()[: self.n_rows] < limits
        return bag, replace(self, generators=last_words, bag=bag)

    def grown(self) -> Bagging:
        """Return the state after an attempt that made a tree."""
        return replace(self, iteration=self.iteration + 1)


@dataclass(frozen=True)
class Goss:
    """The rows of largest |gradient * hessian|, and some of the others with a factor.

    The source is src/boosting/goss.hpp. Several outputs have one sample, by the sum over them. Each
    thread does this for its part of the rows, all in float32. The first int(1 / learning_rate)
    iterations, which have all rows, sample nothing.
    """

    top_rate: float
    other_rate: float
    rows_per_thread: int
    generators: Words

    def attempt(
        self, full: bool, gradients: IterationGradients | None
    ) -> tuple[FloatSingles, Goss]:
        """Return the factor of each row, (N,), 0 if it is not sampled, and the state after it.

        See `Bagging.attempt`.
        """
        if gradients is None:
            return np.ones(0, dtype=np.float32), self
        if full:
            return np.ones(len(gradients.gradients), dtype=np.float32), self
        sizes = gradients.sizes
        starts = range(0, len(sizes), self.rows_per_thread)
        threads = [slice(start, start + self.rows_per_thread) for start in starts]
        factors = np.ones(len(sizes), dtype=np.float32)
        for thread in threads:
            n_top = max(1, int(len(sizes[thread]) * self.top_rate))
            factors[thread] = sizes[thread] >= np.partition(sizes[thread], -n_top)[-n_top]
        words, generators = self._words(factors == 0)
        for thread in threads:
            factors[thread] = self._draw_small(factors[thread], words[thread])
        return factors, replace(self, generators=generators)

    def grown(self) -> Goss:
        """Return the state after an attempt that made a tree."""
        return self

    def _words(self, is_small: BoolArray) -> tuple[Words, Words]:
        """Return the random words of rows (N,), and the generators after them.

        Rows with small gradients use one word each.
        """
        blocks = np.zeros((len(self.generators), BLOCK), dtype=np.bool_)
        blocks.ravel()[: len(is_small)] = is_small
        steps = np.cumsum(blocks, axis=1)
        last_steps = steps[:, -1]
        moved = FACTORS[last_steps - 1] * self.generators + TERMS[last_steps - 1]
        generators = np.where(last_steps > 0, moved, self.generators)
        words = FACTORS[steps - 1] * self.generators[:, None] + TERMS[steps - 1]
        return words.ravel()[: len(is_small)], generators

    def _draw_small(self, is_large: FloatSingles, words: Words) -> FloatSingles:
        """Return the factors of the rows of one thread, (n,).

        They are 1 for large rows, and 0 or more for the others. A row is sampled with probability
        n_needed / n_left, which depends on those sampled before it: chunks of rows are settled by
        iteration, each of which is right for at least one row more.
        """
        n_rows = len(is_large)
        n_top = max(1, int(n_rows * self.top_rate))
        n_others = int(n_rows * self.other_rate)
        factors = is_large.copy()
        if n_others == 0:
            return factors
        small = np.flatnonzero(is_large == 0)
        n_large_before = small - np.arange(len(small))
        n_left = (n_rows - small) - (n_top - n_large_before)
        u = _uniforms(words[small])
        factor = np.float32(n_rows - n_top) / np.float32(n_others)
        n_needed = n_others
        for start in range(0, len(small), CHUNK):
            chunk = slice(start, start + CHUNK)
            is_drawn = u[chunk] < n_needed / n_left[start]
            is_settled = False
            while not is_settled:
                n_drawn_before = np.cumsum(is_drawn) - is_drawn
                is_drawn_next = u[chunk] < (n_needed - n_drawn_before) / n_left[chunk]
                is_settled = np.array_equal(is_drawn_next, is_drawn)
                is_drawn = is_drawn_next
            n_needed -= int(is_drawn.sum())
            factors[small[chunk][is_drawn]] = factor
        return factors


SamplerState = Bagging | Goss  # a sampler between two iterations; never changed, only replaced


def goss(
    top_rate: float, other_rate: float, seed: int, n_rows: int, n_threads: int
) -> tuple[Goss, ...]:
    """Return one state for each possible split of the rows among threads.

    The one of ``n_threads``, if known, comes first.
    """
    generators = streams(seed, n_rows)
    most_threads = min(len(generators), MOST_THREADS)
    likely = [min(n, most_threads) for n in (n_threads, 2, 4, 8, 16, 1) if n > 0]
    # A dict keeps the order of what it first meets.
    sizes = dict.fromkeys(
        _rows_per_thread(n_rows, n) for n in (*likely, *range(1, most_threads + 1))
    )
    return tuple(Goss(top_rate, other_rate, size, generators) for size in sizes)


def _rows_per_thread(n_rows: int, n_threads: int) -> int:
    """Return how many rows each thread has.

    LightGBM computes it in BlockInfoForceSize (include/LightGBM/utils/threading.h).
    """
    if n_threads == 1:
        return n_rows
    return ceil(ceil(n_rows / n_threads) / BLOCK) * BLOCK


@dataclass(frozen=True)
class LightGBMDart:
    """DART's settings, and the rates that follow from them (src/boosting/dart.hpp)."""

    rate: float
    drop_rate: float
    skip_drop: float
    max_drop: int
    seed: int
    uniform: bool
    xgboost: bool

    def run(self, stages: Sequence[Sequence[bool]], n_trees: int) -> tuple[FloatArray, FloatArray]:
        """Return the coefficients of the first trees.

        They are omega (n_trees + 1, n_trees) and beta (n_trees + 1,).

        A stage is one training, which may go on from another, and says of each attempt at a tree
        whether it found a split. One that did not leaves the trees it dropped as they are then:
        gone from the scores, their sign turned in the model. Only the first of all attempts leaves
        a tree even so, which holds the base alone.
        """
        omega = np.zeros((n_trees + 1, n_trees))
        beta = np.ones(n_trees + 1)
        n_attempts = sum(map(len, stages))
        # Scales of the trees in the model and in the scores; the base is part of the first tree.
        model, scores = np.zeros((2, 1 + n_attempts))
        base_in_model = 1.0
        base_in_scores = 1.0
        t = 0
        for outcomes in stages:
            begin = t
            drops = _Drops(self)
            for finds_split in outcomes:
                dropped, new_rate = drops.next()
                dropped = dropped + begin
                drops_base = 0 in dropped
                model[dropped] *= -1
                scores[dropped] += model[dropped]
                if drops_base:
                    base_in_scores -= base_in_model
                    base_in_model = -base_in_model
                if (finds_split or t == 0) and t < n_trees:
                    omega[t, :t] = scores[:t]
                    beta[t] = base_in_scores
                if not finds_split:
                    t = max(t, 1)
                    continue
                model[t] = new_rate
                scores[t] = new_rate
                t += 1
                factor = drops.grown()
                model[dropped] *= factor
                scores[dropped] += model[dropped]
                if drops_base:
                    base_in_model *= factor
                    base_in_scores += base_in_model
        omega[n_trees] = model[:n_trees]
        beta[n_trees] = base_in_model
        return omega, beta


class _Drops:
    """The drops of one training."""

    def __init__(self, dart: LightGBMDart):
        self._dart = dart
        self._word = np.uint32(dart.seed & 0xFFFFFFFF)
        self._weights = np.zeros(0)
        self._total = 0.0
        self._dropped = np.zeros(0, dtype=np.int64)
        self._new_rate = 0.0

    def next(self) -> tuple[NDArray[np.int64], float]:
        """Return the trees, from 0, that the next attempt drops, and the rate of its tree."""
        dart = self._dart
        chances = self._chances()
        self._dropped = np.zeros(0, dtype=np.int64)
        if not self._draw(1)[0] < dart.skip_drop:
            word_before = self._word
            self._dropped = np.flatnonzero(self._draw(len(chances)) < chances)
            n_dropped = len(self._dropped)
            if n_dropped and 0 <= dart.max_drop <= n_dropped:
                # LightGBM looks at the limit after a drop: 0 allows one.
                self._dropped = self._dropped[: max(dart.max_drop, 1)]
                self._word = word_before
                self._draw(int(self._dropped[-1]) + 1)
        n_dropped = len(self._dropped)
        if not dart.xgboost:
            self._new_rate = dart.rate / (1 + n_dropped)
        elif n_dropped:
            self._new_rate = dart.rate / (dart.rate + n_dropped)
        else:
            self._new_rate = dart.rate
        return self._dropped, self._new_rate

    def _chances(self) -> FloatArray:
        """Return the probability with which each tree so far is dropped."""
        dart = self._dart
        n_trees = len(self._weights)
        limits_drops = dart.max_drop > 0
        if n_trees == 0 or (dart.uniform and not limits_drops):
            return np.full(n_trees, dart.drop_rate)
        if dart.uniform:
            return np.full(n_trees, min(dart.drop_rate, dart.max_drop / n_trees))
        inverse = n_trees / self._total
        drop_rate = dart.drop_rate
        if limits_drops:
            drop_rate = min(drop_rate, dart.max_drop * inverse / self._total)
        return np.asarray(drop_rate * self._weights * inverse)

    def grown(self) -> float:
        """Record that the attempt made a tree.

        Return by what factor the dropped ones, their sign turned, come back.
        """
        dart = self._dart
        n_dropped = len(self._dropped)
        if dart.xgboost:
            share = 1 / (n_dropped + dart.rate)  # not rate / (n_dropped + rate), as it should be
            shrinkage = n_dropped / (n_dropped + dart.rate)
            factor = self._new_rate * (-n_dropped / dart.rate)
        else:
            share = 1 / (n_dropped + 1)
            shrinkage = n_dropped / (n_dropped + 1)
            factor = share * -n_dropped
        # One after the other, since samples are compared with these to the last digit.
        for tree in self._dropped:
            self._total -= self._weights[tree] * share
        self._weights[self._dropped] *= shrinkage
        self._weights = np.append(self._weights, self._new_rate)
        self._total += self._new_rate
        return factor

    def _draw(self, n: int) -> FloatArray:
        """Return n samples, one after the other."""
        draws = [np.zeros(0)]
        while n > 0:
            words = FACTORS[:n] * self._word + TERMS[:n]
            self._word = words[-1]
            draws.append(_uniforms(words))
            n -= BLOCK
        return np.concatenate(draws)

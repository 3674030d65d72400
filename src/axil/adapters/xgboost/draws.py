"""Which rows each tree of an XGBoost model was fitted on, and which trees DART dropped.

Both follow from the settings alone.

XGBoost samples from one std::mt19937 (src/common/random.h), seeded with ``seed`` when training
starts and, with ``seed_per_iteration``, with ``127 * seed + iteration`` before each iteration
(src/learner.cc). An iteration samples, in order:

- DART: which trees to drop (src/gbm/gbtree.cc), from XGBoost 3.3 on not before there is a tree;
- hist, approx: one word s for each tree (approx: for all parallel trees together), from which row i
  has x = 16807^(i + 1) * s mod 2^63 (src/tree/hist/sampler.cc);
- exact: two words for each row, for every tree (src/tree/updater_colmaker.cc);
- on a GPU: one word s for each tree, from which row i has x = 48271^(i + 1) * s mod 2^31 - 1,
  Thrust's default engine (src/tree/gpu_hist/sampler.cu), or from XGBoost 3.3 on, by the CUDA it was
  built with (src/common/random.cuh), number i of std::philox4x64 seeded with s.

Columns take words from the same stream (src/common/random.h). Up to XGBoost 3.2 a sampler of
columns takes one: before the rows of the first iteration, and with exact after the rows of every
tree. From 3.3 on each sample of columns takes one: `ColumnDraws`.

A row is sampled iff u < subsample, where u is std::generate_canonical of x or of the two words; on
a GPU iff u = (x - 1) / 2^31 <= subsample, or x / 2^64, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import RowGradients
from axil.adapters.sample_counts import DrawnAgain
from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray

FloatSingles = NDArray[np.float32]
Words = NDArray[np.uint64]
Draw = int | BoolArray | None  #: of one tree: a word, whether each row was sampled, or all rows

_MULTIPLIER = 16807
_BITS = 63
_EXACT = "grow_colmaker"
_APPROX = "grow_histmaker"
_GPU_MULTIPLIER = np.uint64(48271)
_GPU_MODULUS = np.uint64(2**31 - 1)


class Stream:
    """std::mt19937, word by word: NumPy's RandomState with the same seed is the same generator."""

    def __init__(self, seed: int):
        self._state = np.random.RandomState(seed % (1 << 32))

    def words(self, n: int) -> NDArray[np.uint32]:
        """Return the next n words of 32 bits."""
        if n == 0:  # bytes(0) would take one
            return np.zeros(0, dtype=np.uint32)
        return np.frombuffer(self._state.bytes(4 * n), dtype="<u4")

    def uniforms(self, n: int) -> FloatArray:
        """Return the next n of std::generate_canonical<double, 53>.

        Each takes two words, the lower one first.
        """
        words = self.words(2 * n).astype(np.float64)
        return np.asarray((words[0::2] + words[1::2] * 2.0**32) / 2.0**64)


@dataclass(frozen=True)
class XGBoostDart:
    """The settings of booster="dart"; all arithmetic is in float32, as there."""

    rate_drop: float
    skip_drop: float
    one_drop: bool
    weighted: bool  #: sample_type="weighted"
    forest: bool  #: normalize_type="forest"
    rate: float  #: the learning rate, before it is shared among parallel trees
    #: whether the trees of an iteration share the rate when they are normalised: up to XGBoost 3.3
    shares: bool = True

    def drops(self, stream: Stream, weights: FloatSingles) -> IntArray:
        """Return which of the trees so far are dropped (Dart::DropTrees)."""
        n = len(weights)
        if self.skip_drop > 0 and stream.uniforms(1)[0] < np.float32(self.skip_drop):
            return np.zeros(0, dtype=np.intp)
        chances = np.full(n, self.rate_drop, dtype=np.float32)
        if self.weighted and n:
            chances = np.float32(self.rate_drop) * np.float32(n) * weights / np.cumsum(weights)[-1]
        dropped = np.flatnonzero(stream.uniforms(n) < chances)
        if not self.one_drop or n == 0 or len(dropped):
            return dropped
        if self.weighted:
            return np.array([_draw_by_weight(stream, weights)])
        return np.array([_draw_below(stream, n)])

    def normalised(self, weights: FloatSingles, dropped: IntArray, n_new: int) -> FloatSingles:
        """Return the trees' weights after n_new trees were added (Dart::NormalizeTrees)."""
        if self.shares:
            n_sharing = n_new
        else:
            n_sharing = 1
        rate = np.float32(np.float32(self.rate) / n_sharing)
        n_dropped = len(dropped)
        old = np.float32(1)
        new = np.float32(1)
        if n_dropped and self.forest:
            old = np.float32(1.0 / (1.0 + float(rate)))
            new = old
        elif n_dropped:
            total = float(np.float32(n_dropped) + rate)
            old = np.float32(n_dropped / total)
            new = np.float32(1.0 / total)
        scaled = weights.copy()
        scaled[dropped] *= old
        return np.append(scaled, np.full(n_new, new, dtype=np.float32))


def _draw_below(stream: Stream, n: int) -> int:
    """Return a sample of std::uniform_int_distribution from the numbers below n.

    It is that of libstdc++ since GCC 11.
    """
    while True:
        product = int(stream.words(1)[0]) * n
        if product % (1 << 32) >= (1 << 32) % n:
            return product >> 32


def _draw_by_weight(stream: Stream, weights: FloatSingles) -> int:
    """Return a sample of std::discrete_distribution; a single choice uses no random word."""
    if len(weights) < 2:
        return 0
    chances = weights.astype(np.float64)
    ends = np.cumsum(chances / chances.sum())
    ends[-1] = 1.0
    return int(np.searchsorted(ends, stream.uniforms(1)[0]))


@dataclass(frozen=True)
class ColumnDraws:
    """Samples of columns from XGBoost 3.3 on.

    They are per tree, per level and per node that may be split.
    """

    by_tree: bool  #: colsample_bytree < 1
    by_level: bool
    by_node: bool
    levels: tuple[
        int, ...
    ] = ()  #: how many each tree of the model has, where levels or nodes sample
    nodes: tuple[int, ...] = ()

    def words(self, tree: int, levels_before: int = 0) -> int:
        """Return how many words a tree took while it was grown.

        ``levels_before`` levels had been sampled for the trees beside it.
        """
        n_words = 0
        if self.by_level:
            n_words += max(self.levels[tree] - levels_before, 0)
        if self.by_node:
            n_words += self.nodes[tree]
        return n_words


@dataclass(frozen=True)
class DrawPlan:
    """The facts about the training that determine its sampled rows."""

    updater: str  #: grow_quantile_histmaker, grow_histmaker or grow_colmaker
    subsample: float
    seed: int
    seed_per_iteration: bool
    n_rows: int
    n_parallel: int
    n_groups: int  #: an iteration has n_parallel trees for each
    dart: XGBoostDart | None = None
    gpu: bool = False
    philox: bool = False  #: whether the GPU samples by Philox
    columns: ColumnDraws | None = None  #: None up to XGBoost 3.2

    @property
    def is_exact(self) -> bool:
        """Whether rows are sampled as by tree_method="exact" on a CPU."""
        return self.updater == _EXACT and not self.gpu

    @property
    def is_approx(self) -> bool:
        """Whether rows are sampled as by tree_method="approx" on a CPU."""
        return self.updater == _APPROX and not self.gpu

    @property
    def samples(self) -> bool:
        """Whether trees are fitted on samples of the rows.

        The methods hist and approx multiply in float32 and round down (Sampler::Sample).
        """
        share = np.float32(self.subsample)
        if self.gpu or self.updater == _EXACT:
            return bool(share < 1)
        return int(np.float32(self.n_rows) * share) < self.n_rows

    @property
    def n_trees(self) -> int:
        """The number of trees of one iteration."""
        return self.n_parallel * self.n_groups


@dataclass(frozen=True)
class Iteration:
    """Samples of one iteration."""

    #: of each earlier tree, as this iteration's trees see it; 0 where it was dropped
    factors: FloatSingles
    draws: list[Draw]  #: one for each of its trees
    after: FloatSingles  #: the factors of all trees once this iteration's have been added


def iterations(plan: DrawPlan) -> Iterator[Iteration]:
    """Return the sampled rows, iteration after iteration, without end."""
    stream = Stream(plan.seed)
    weights = np.zeros(0, dtype=np.float32)
    number = 0
    while True:
        if plan.seed_per_iteration:
            stream = Stream(plan.seed * 127 + number)
        dropped = np.zeros(0, dtype=np.intp)
        if plan.dart is not None and (number or plan.columns is None):
            dropped = plan.dart.drops(stream, weights)
        factors = weights.copy()
        factors[dropped] = 0
        if plan.columns is None and number == 0 and not plan.is_exact:
            stream.words(1)
        first_trees = range(number * plan.n_trees, (number + 1) * plan.n_trees, plan.n_parallel)
        draws = [draw for first in first_trees for draw in _draws(plan, stream, first)]
        if plan.dart is not None:
            weights = plan.dart.normalised(weights, dropped, plan.n_trees)
        else:
            weights = np.ones(len(weights) + plan.n_trees, dtype=np.float32)
        yield Iteration(factors, draws, weights)
        number += 1


def _draws(plan: DrawPlan, stream: Stream, first: int) -> list[Draw]:
    """Return the samples of the parallel trees of one output, from a tree with this number on."""
    if plan.is_approx:
        return _draws_of_approx(plan, stream, first)
    draws: list[Draw] = []
    for tree in range(first, first + plan.n_parallel):
        draw: Draw = None
        if plan.samples and plan.is_exact:
            draw = stream.uniforms(plan.n_rows) < np.float32(plan.subsample)
        elif plan.samples:
            draw = int(stream.words(1)[0])
        draws.append(draw)
        if plan.is_exact:
            stream.words(plan.columns is None)
        if plan.columns is not None:
            stream.words(plan.columns.by_tree + plan.columns.words(tree))
    return draws


def _draws_of_approx(plan: DrawPlan, stream: Stream, first: int) -> list[Draw]:
    """Return the samples of approx (src/tree/updater_approx.cc).

    Parallel trees share rows, and the columns of the tree and of its levels.
    """
    if plan.columns is not None:
        stream.words(plan.columns.by_tree)
    if plan.samples:
        draw = int(stream.words(1)[0])
    else:
        draw = None
    n_levels = 0
    for tree in range(first, first + plan.n_parallel):
        if plan.columns is not None:
            stream.words(plan.columns.words(tree, n_levels))
            if plan.columns.by_level:
                n_levels = max(n_levels, plan.columns.levels[tree])
    return [draw] * plan.n_parallel


def powers(n: int) -> Words:
    """Return 16807^1, 16807^2, ... modulo 2^64, (n,)."""
    return np.multiply.accumulate(np.full(n, _MULTIPLIER, dtype=np.uint64), dtype=np.uint64)


def bag(word: int, subsample: float, powers: Words) -> BoolArray:
    """Return which rows hist and approx sample from a word, (n,).

    They are those with (x - 1) / 2^63 < subsample. x - 1 is rounded to a double before it is
    compared; the limit of those integers that round to less than subsample * 2^63 lies half the
    distance to the next smaller double below it.
    """
    limit = float(np.float32(subsample)) * 2.0**_BITS
    limit_before_rounding = int(limit) - int((limit - np.nextafter(limit, 0.0)) / 2)
    x = powers * np.uint64(max(word, 1))
    x &= np.uint64((1 << _BITS) - 1)
    return np.asarray(x <= np.uint64(limit_before_rounding))


def gpu_powers(n: int) -> Words:
    """Return 48271^1, 48271^2, ... modulo 2^31 - 1, (n,)."""
    products = np.full(n, _GPU_MULTIPLIER, dtype=np.uint64)
    n_done = 1
    while n_done < n:  # each half from the one before
        n_more = min(n_done, n - n_done)
        last = products[n_done - 1]
        products[n_done : n_done + n_more] = products[:n_more] * last % _GPU_MODULUS
        n_done += n_more
    return products


def gpu_bag(word: int, subsample: float, powers: Words) -> BoolArray:
    """Return which rows a GPU samples with a random word, (n,), in its float32 arithmetic."""
    x = powers * np.uint64(word % int(_GPU_MODULUS) or 1) % _GPU_MODULUS
    u = (x - np.uint64(1)).astype(np.float32) / np.float32(2.0**31)
    return np.asarray(u <= np.float32(subsample))


def philox_bag(word: int, subsample: float, n: int) -> BoolArray:
    """Return which rows a GPU samples by Philox, (n,).

    NumPy's is the same, but counts before it samples.
    """
    x = np.random.Philox(key=word, counter=2**256 - 1).random_raw(n)
    return np.asarray(x.astype(np.float32) / np.float32(2.0**64) <= np.float32(subsample))


class Subsample:
    """A `Sampler` of the rows that XGBoost sampled for some trees of a model."""

    name = "XGBoost subsample"
    needs_gradients = False
    dtype: type[np.generic] = np.uint8

    def __init__(self, plan: DrawPlan, trees: NDArray[np.int64]):
        self.plan = plan
        self.trees = trees  # (T,) the number of each of these trees among all of the model
        self._iterations = DrawnAgain(partial(iterations, plan))
        self._powers: Words | None = None

    def draw(self, trees: range, leaves: LeafArray, gradients: RowGradients | None) -> BoolArray:
        """Return whether each row was sampled for each of these trees, (len(trees), N)."""
        return np.stack([self.bag(tree) for tree in trees])

    def bag(self, tree: int) -> BoolArray:
        """Return whether each row was sampled for a tree, (N,).

        The cost is N, and for "exact" N for each tree passed over.
        """
        plan = self.plan
        iteration, place = divmod(int(self.trees[tree]), plan.n_trees)
        draw = self._iterations[iteration].draws[place]
        if draw is None:
            return np.ones(plan.n_rows, dtype=np.bool_)
        if not isinstance(draw, int):
            return np.asarray(draw)
        if plan.philox:
            return philox_bag(draw, plan.subsample, plan.n_rows)
        if self._powers is None:
            if plan.gpu:
                self._powers = gpu_powers(plan.n_rows)
            else:
                self._powers = powers(plan.n_rows)
        if plan.gpu:
            rows_of_word = gpu_bag
        else:
            rows_of_word = bag
        return rows_of_word(draw, plan.subsample, self._powers)

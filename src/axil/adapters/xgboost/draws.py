"""Which rows each tree of an XGBoost model was fitted on, and which trees DART dropped, from the settings alone.

XGBoost draws from one std::mt19937 (src/common/random.h), seeded with ``seed`` when training starts and, with
``seed_per_iteration``, with ``127 * seed + iteration`` before each iteration (src/learner.cc). An iteration draws, in order:

- DART: which trees to drop (src/gbm/gbtree.cc), from XGBoost 3.3 on not before there is a tree;
- hist, approx: one word s for each tree (approx: for all parallel trees together), from which row i has
  x = 16807^(i + 1) * s mod 2^63 (src/tree/hist/sampler.cc);
- exact: two words for each row, for every tree (src/tree/updater_colmaker.cc);
- on a GPU: one word s for each tree, from which row i has x = 48271^(i + 1) * s mod 2^31 - 1, Thrust's default engine
  (src/tree/gpu_hist/sampler.cu), or from XGBoost 3.3 on, by the CUDA it was built with (src/common/random.cuh), number i of
  std::philox4x64 seeded with s.

Columns take words from the same stream (src/common/random.h). Up to XGBoost 3.2 a sampler of columns takes one: before the rows
of the first iteration, and with exact after the rows of every tree. From 3.3 on each draw of columns takes one: `ColumnDraws`.

A row is drawn iff u < subsample, where u is std::generate_canonical of x or of the two words; on a GPU iff
u = (x - 1) / 2^31 <= subsample, or x / 2^64, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.bags import DrawnAgain
from axil.adapters.boosted_fit import RowGradients
from axil.arrays import BoolArray, FloatArray, IntArray

Singles = NDArray[np.float32]
Bag = BoolArray

_MULTIPLIER = 16807
_BITS = 63
_EXACT, _APPROX = "grow_colmaker", "grow_histmaker"
_GPU_MULTIPLIER, _GPU_MODULUS = np.uint64(48271), np.uint64(2**31 - 1)


class Stream:
    """std::mt19937, word by word: NumPy's RandomState is the same generator, seeded alike."""

    def __init__(self, seed: int):
        self._state = np.random.RandomState(seed % (1 << 32))

    def words(self, n: int) -> NDArray[np.uint32]:
        """The next n words of 32 bits."""
        return np.frombuffer(
            self._state.bytes(4 * n) if n else b"", dtype="<u4"
        )  # bytes(0) would take one

    def uniforms(self, n: int) -> FloatArray:
        """The next n of std::generate_canonical<double, 53>: two words each, the lower one first."""
        words = self.words(2 * n).astype(np.float64)
        found: FloatArray = (words[0::2] + words[1::2] * 2.0**32) / 2.0**64
        return found


@dataclass(frozen=True)
class XGBoostDart:
    """The settings of booster="dart"; all arithmetic is in float32, as there."""

    rate_drop: float
    skip_drop: float
    one_drop: bool
    weighted: bool  #: sample_type="weighted"
    forest: bool  #: normalize_type="forest"
    rate: float  #: the learning rate, before it is shared among parallel trees
    shares: bool = True  #: whether the trees of an iteration share the rate when they are normalised: up to XGBoost 3.3

    def drops(self, stream: Stream, weights: Singles) -> IntArray:
        """Which of the trees so far are dropped (Dart::DropTrees)."""
        n = len(weights)
        if self.skip_drop > 0 and stream.uniforms(1)[0] < np.float32(self.skip_drop):
            return np.zeros(0, dtype=np.intp)
        chances = np.full(n, self.rate_drop, dtype=np.float32)
        if self.weighted and n:
            chances = np.float32(self.rate_drop) * np.float32(n) * weights / np.cumsum(weights)[-1]
        dropped = np.flatnonzero(stream.uniforms(n) < chances)
        if self.one_drop and n and not len(dropped):
            dropped = np.array([_pick(stream, weights) if self.weighted else _below(stream, n)])
        return dropped

    def normalised(self, weights: Singles, dropped: IntArray, n_new: int) -> Singles:
        """The trees' weights once n_new trees have been added (Dart::NormalizeTrees)."""
        rate, n_dropped = (
            np.float32(np.float32(self.rate) / (n_new if self.shares else 1)),
            len(dropped),
        )
        old, new = np.float32(1), np.float32(1)
        if n_dropped and self.forest:
            old = new = np.float32(1.0 / (1.0 + float(rate)))
        elif n_dropped:
            total = float(np.float32(n_dropped) + rate)
            old, new = np.float32(n_dropped / total), np.float32(1.0 / total)
        changed = weights.copy()
        changed[dropped] *= old
        return np.append(changed, np.full(n_new, new, dtype=np.float32))


def _below(stream: Stream, n: int) -> int:
    """std::uniform_int_distribution over 0 .. n - 1, as libstdc++ has it since GCC 11."""
    while True:
        product = int(stream.words(1)[0]) * n
        if product % (1 << 32) >= (1 << 32) % n:
            return product >> 32


def _pick(stream: Stream, weights: Singles) -> int:
    """std::discrete_distribution; a single choice draws nothing."""
    if len(weights) < 2:
        return 0
    chances = weights.astype(np.float64)
    ends = np.cumsum(chances / chances.sum())
    ends[-1] = 1.0
    return int(np.searchsorted(ends, stream.uniforms(1)[0]))


@dataclass(frozen=True)
class ColumnDraws:
    """Draws of columns, as XGBoost has them from 3.3 on: for each tree, for each level and for each node that may be split."""

    by_tree: bool  #: colsample_bytree < 1
    by_level: bool
    by_node: bool
    levels: tuple[int, ...] = ()  #: how many each tree of the model has, where levels or nodes draw
    nodes: tuple[int, ...] = ()

    def words(self, tree: int, levels_before: int = 0) -> int:
        """Words that a tree took while it was grown, where levels_before had been drawn for the trees beside it."""
        found = max(self.levels[tree] - levels_before, 0) if self.by_level else 0
        return found + (self.nodes[tree] if self.by_node else 0)


@dataclass(frozen=True)
class DrawPlan:
    """How a model was trained, as far as it decides what is drawn when."""

    updater: str  #: grow_quantile_histmaker, grow_histmaker or grow_colmaker
    subsample: float
    seed: int
    seed_per_iteration: bool
    n_rows: int
    n_parallel: int
    n_groups: int  #: an iteration has n_parallel trees for each
    dart: XGBoostDart | None = None
    gpu: bool = False
    philox: bool = False  #: whether the GPU draws by Philox
    columns: ColumnDraws | None = None  #: None up to XGBoost 3.2

    @property
    def samples(self) -> bool:
        """Whether rows are left out; hist and approx multiply in float32 and round down (Sampler::Sample)."""
        share = np.float32(self.subsample)
        if self.gpu or self.updater == _EXACT:
            return bool(share < 1)
        return int(np.float32(self.n_rows) * share) < self.n_rows

    @property
    def n_trees(self) -> int:
        """Trees of one iteration."""
        return self.n_parallel * self.n_groups


@dataclass(frozen=True)
class Iteration:
    """Draws of one iteration."""

    factors: (
        Singles  #: of each earlier tree, as this iteration's trees see it; 0 where it was dropped
    )
    bags: list[
        Any
    ]  #: for each of its trees: None (all rows), a word, or whether each row was drawn
    after: Singles  #: the factors of all trees once this iteration's have been added


def iterations(plan: DrawPlan) -> Iterator[Iteration]:
    """Draws, iteration after iteration, without end."""
    stream, weights = Stream(plan.seed), np.zeros(0, dtype=np.float32)
    number = 0
    while True:
        if plan.seed_per_iteration:
            stream = Stream(plan.seed * 127 + number)
        dropped = np.zeros(0, dtype=np.intp)
        if plan.dart and (number or plan.columns is None):
            dropped = plan.dart.drops(stream, weights)
        factors = weights.copy()
        factors[dropped] = 0
        if plan.columns is None and number == 0 and (plan.gpu or plan.updater != _EXACT):
            stream.words(1)
        starts = range(number * plan.n_trees, (number + 1) * plan.n_trees, plan.n_parallel)
        bags = [bag for first in starts for bag in _bags(plan, stream, first)]
        ones = np.ones(len(weights) + plan.n_trees, dtype=np.float32)
        weights = plan.dart.normalised(weights, dropped, plan.n_trees) if plan.dart else ones
        yield Iteration(factors, bags, weights)
        number += 1


def _bags(plan: DrawPlan, stream: Stream, first: int) -> list[Any]:
    """The draws for one group's parallel trees, of which the first has this number."""
    if plan.updater == _APPROX and not plan.gpu:
        return _bags_at_once(plan, stream, first)
    bags: list[Any] = []
    for tree in range(first, first + plan.n_parallel):
        if plan.updater == _EXACT and not plan.gpu:
            bags.append(
                stream.uniforms(plan.n_rows) < np.float32(plan.subsample) if plan.samples else None
            )
            stream.words(plan.columns is None)
        else:
            bags.append(int(stream.words(1)[0]) if plan.samples else None)
        if plan.columns is not None:
            stream.words(plan.columns.by_tree + plan.columns.words(tree))
    return bags


def _bags_at_once(plan: DrawPlan, stream: Stream, first: int) -> list[Any]:
    """The draws of approx: parallel trees share rows, columns of the tree and of levels (src/tree/updater_approx.cc)."""
    if plan.columns is not None:
        stream.words(plan.columns.by_tree)
    drawn = int(stream.words(1)[0]) if plan.samples else None
    levels = 0
    for tree in range(first, first + plan.n_parallel):
        if plan.columns is not None:
            stream.words(plan.columns.words(tree, levels))
            levels = max(levels, plan.columns.levels[tree]) if plan.columns.by_level else 0
    return [drawn] * plan.n_parallel


def powers(n: int) -> NDArray[np.uint64]:
    """(n,): 16807^1, 16807^2, ... modulo 2^64."""
    return np.multiply.accumulate(np.full(n, _MULTIPLIER, dtype=np.uint64), dtype=np.uint64)


def bag(word: int, subsample: float, powers: NDArray[np.uint64]) -> Bag:
    """(n,): which rows hist and approx draw from a word: those with (x - 1) / 2^63 < subsample.

    x - 1 is rounded to a double before it is compared; the limit of those integers that round to less than
    subsample * 2^63 lies half the distance to the next smaller double below it.
    """
    limit = float(np.float32(subsample)) * 2.0**_BITS
    limit_before_rounding = int(limit) - int((limit - np.nextafter(limit, 0.0)) / 2)
    x = powers * np.uint64(max(word, 1))
    x &= np.uint64((1 << _BITS) - 1)
    found: Bag = x <= np.uint64(limit_before_rounding)
    return found


def gpu_powers(n: int) -> NDArray[np.uint64]:
    """(n,): 48271^1, 48271^2, ... modulo 2^31 - 1."""
    found = np.full(n, _GPU_MULTIPLIER, dtype=np.uint64)
    done = 1
    while done < n:  # each half from the one before
        more = min(done, n - done)
        found[done : done + more] = found[:more] * found[done - 1] % _GPU_MODULUS
        done += more
    return found


def gpu_bag(word: int, subsample: float, powers: NDArray[np.uint64]) -> Bag:
    """(n,): which rows a GPU draws from a word; all in float32, as there."""
    x = powers * np.uint64(word % int(_GPU_MODULUS) or 1) % _GPU_MODULUS
    found: Bag = (x - np.uint64(1)).astype(np.float32) / np.float32(2.0**31) <= np.float32(
        subsample
    )
    return found


def philox_bag(word: int, subsample: float, n: int) -> Bag:
    """(n,): which rows a GPU draws by Philox. NumPy's is the same, but counts before it draws."""
    x = np.random.Philox(key=word, counter=2**256 - 1).random_raw(n)
    found: Bag = x.astype(np.float32) / np.float32(2.0**64) <= np.float32(subsample)
    return found


class Subsample:
    """A `Sampler`: which rows XGBoost drew for each of some trees of a model."""

    name = "XGBoost subsample"
    needs_gradients = False
    dtype: type[np.generic] = np.uint8

    def __init__(self, plan: DrawPlan, trees: NDArray[np.int64]):
        self.plan = plan
        self.trees = trees  # (T,) the number of each of these trees among all of the model
        self._drawn = DrawnAgain(partial(iterations, plan))
        self._powers: NDArray[np.uint64] | None = None

    def draw(
        self, trees: range, leaves: NDArray[np.integer[Any]], gradients: RowGradients | None
    ) -> Bag:
        """Return whether each row was drawn for each of these trees, (len(trees), N)."""
        return np.stack([self.bag(tree) for tree in trees])

    def bag(self, tree: int) -> Bag:
        """Return whether each row was drawn for a tree, (N,).

        The cost is N, and for "exact" N for each tree passed over.
        """
        iteration, place = divmod(int(self.trees[tree]), self.plan.n_trees)
        drawn = self._drawn[iteration].bags[place]
        if drawn is None:
            return np.ones(self.plan.n_rows, dtype=np.bool_)
        if isinstance(drawn, int) and self.plan.philox:
            return philox_bag(drawn, self.plan.subsample, self.plan.n_rows)
        if isinstance(drawn, int):
            make, take = (gpu_powers, gpu_bag) if self.plan.gpu else (powers, bag)
            if self._powers is None:
                self._powers = make(self.plan.n_rows)
            return take(drawn, self.plan.subsample, self._powers)
        return np.asarray(drawn)

"""LightGBM's row samplers, from parameters to bags.

All of them draw from the generator x <- 214013 x + 2531011 mod 2^32, of which a draw is u = ((x >> 16) & 0x7FFF) / 32768
(include/LightGBM/utils/random.h). Samplers keep one generator for each block of 1024 rows, seeded bagging_seed + block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import RowGradients
from axil.arrays import BoolArray, FloatArray
from axil.structure import NewtonRule, Ranks

Words = NDArray[np.uint32]

BLOCK = 1024  # rows to a generator (bagging_rand_block_, include/LightGBM/sample_strategy.h)
CHUNK = 4096  # rows that GOSS settles at a time
MOST_THREADS = 256  # thread counts that are tried for GOSS
MOST_STEPS = 20_000  # trees looked at in search of attempts that found no split
MANY_ROWS = 100_000  # from here on, leaf counts do not agree by coincidence
CLOSE_WEIGHTS = (
    1e-6  # of the weight of a leaf: what it may be off for its rounding to single precision
)

LOW = np.uint32(0x7FFFFFFF)
FACTORS: Words = np.cumprod(np.full(BLOCK, 214013, dtype=np.uint32), dtype=np.uint32)
TERMS: Words = np.uint32(2531011) * (
    np.cumsum(np.r_[np.uint32(0), FACTORS[:-1]], dtype=np.uint32) + np.uint32(1)
)


def streams(seed: int, n_rows: int) -> Words:
    """(B,): the generators of N rows as they begin; k steps lead from x to ``FACTORS[k - 1] * x + TERMS[k - 1]``."""
    return ((seed + np.arange(-(-n_rows // BLOCK), dtype=np.int64)) & 0xFFFFFFFF).astype(np.uint32)


@dataclass(frozen=True)
class Seen:
    """Gradients of one iteration, whose sums make its leaves, in float32 as LightGBM keeps them."""

    gradients: FloatArray  #: (N, K) -g
    hessians: FloatArray | None = None  #: (N, K); None: 1, of squared error
    weights: FloatArray | None = None  #: (N,) where they are not in the two above
    residuals: FloatArray | None = None  #: (N, K) where percentiles of them make the leaves

    @cached_property
    def pull(self) -> NDArray[np.float32]:
        """(N, K): -weight * g."""
        return self._weighed(self.gradients.astype(np.float32))

    @cached_property
    def bend(self) -> NDArray[np.float32]:
        """(N, K): weight * h."""
        given = np.ones(self.gradients.shape) if self.hessians is None else self.hessians
        return self._weighed(given.astype(np.float32))

    def _weighed(self, found: NDArray[np.float32]) -> NDArray[np.float32]:
        return found if self.weights is None else found * self.weights.astype(np.float32)[:, None]

    @classmethod
    def weighed(cls, weights: FloatArray, residuals: FloatArray) -> Seen:
        """Gradients that are rounded once, with their weights (N,)."""
        return cls(residuals * weights[:, None], weights[:, None])

    @property
    def sizes(self) -> NDArray[np.float32]:
        """(N,): |g * h|, added up over the outputs one after the other."""
        found = np.zeros(len(self.gradients), dtype=np.float32)
        for k in range(self.gradients.shape[1]):
            found += np.abs(self.pull[:, k] * self.bend[:, k])
        return found


@dataclass(frozen=True)
class Bagging:
    """Each row is in the bag iff u < bagging_fraction, drawn again every bagging_freq trees (src/boosting/bagging.hpp).

    Positive and negative rows may have fractions of their own.
    """

    fraction: float | FloatArray  # or (N,)
    frequency: int
    generators: Words
    n_rows: int
    bag: BoolArray | None = None
    iteration: int = 0

    def attempt(self, full: bool, seen: Seen | None) -> tuple[BoolArray, Bagging]:
        """The rows (N,) that one more attempt at the trees of an iteration draws, and the state after it.

        ``full``: they were fitted on all rows. An attempt that finds no split leaves no tree, but its draws are gone.
        """
        # A bag that by chance holds all rows is kept for good.
        if self.bag is not None and (self.iteration % self.frequency or self.bag.all()):
            return self.bag, self
        words = self.generators[:, None] * FACTORS
        words += TERMS
        last = words[:, -1].copy()
        last[-1] = words[-1, (self.n_rows - 1) % BLOCK]
        words &= LOW
        limits = np.ceil(np.multiply(self.fraction, 32768)).astype(np.uint32) << np.uint32(16)
        bag = words.ravel()[: self.n_rows] < limits
        return bag, replace(self, generators=last, bag=bag)

    def grown(self) -> Bagging:
        """The state once the attempt has led to a tree."""
        return replace(self, iteration=self.iteration + 1)


@dataclass(frozen=True)
class Goss:
    """The rows of largest |gradient * hessian|, and some of the others with a factor (src/boosting/goss.hpp).

    Several outputs have one draw, by the sum over them. Each thread does this for its part of the rows, all in float32. The
    first int(1 / learning_rate) iterations, which have all rows, draw nothing.
    """

    top_rate: float
    other_rate: float
    part: int  # rows to a thread
    generators: Words

    def attempt(self, full: bool, seen: Seen | None) -> tuple[NDArray[Any], Goss]:
        """See `Bagging.attempt`."""
        if full or seen is None:
            return np.ones(0 if seen is None else len(seen.gradients), dtype=np.float32), self
        size = seen.sizes
        drawn = np.ones(len(size), dtype=np.float32)
        parts = [slice(start, start + self.part) for start in range(0, len(size), self.part)]
        for own in parts:
            top = max(1, int(len(size[own]) * self.top_rate))
            drawn[own] = size[own] >= np.partition(size[own], -top)[-top]
        small = drawn == 0
        words, generators = self._words(small)
        for own in parts:
            drawn[own] = self._settle(drawn[own], words[own])
        return drawn, replace(self, generators=generators)

    def grown(self) -> Goss:
        """See `Bagging.grown`."""
        return self

    def _words(self, small: BoolArray) -> tuple[Words, Words]:
        """(N,) words of the rows that draw one, and the generators after that."""
        blocks = np.zeros((len(self.generators), BLOCK), dtype=np.bool_)
        blocks.ravel()[: len(small)] = small
        steps = np.cumsum(blocks, axis=1)
        last = steps[:, -1]
        after = np.where(
            last > 0, FACTORS[last - 1] * self.generators + TERMS[last - 1], self.generators
        )
        words = FACTORS[steps - 1] * self.generators[:, None] + TERMS[steps - 1]
        return words.ravel()[: len(small)], after

    def _settle(self, big: NDArray[np.float32], words: Words) -> NDArray[np.float32]:
        """(n,): 1 for the large rows of one part, a factor for the others that are drawn and else 0.

        A row is drawn with probability needed / left, which depends on those drawn before it: chunks of rows are settled
        by iteration, each of which is right for at least one row more.
        """
        n, top, others = (
            len(big),
            max(1, int(len(big) * self.top_rate)),
            int(len(big) * self.other_rate),
        )
        drawn = big.copy()
        if others == 0:
            return drawn
        small = np.flatnonzero(big == 0)
        left = (n - small) - (
            top - (small - np.arange(len(small)))
        )  # as many large rows came before as are not small
        u = ((words[small] & LOW) >> np.uint32(16)) / 32768.0
        factor = np.float32(n - top) / np.float32(others)
        needed = others
        for start in range(0, len(small), CHUNK):
            own = slice(start, start + CHUNK)
            taken, before = u[own] < needed / left[start], None
            while before is None or not np.array_equal(taken, before):
                before = taken
                taken = u[own] < (needed - (np.cumsum(before) - before)) / left[own]
            needed -= int(taken.sum())
            drawn[small[own][taken]] = factor
        return drawn


State = Bagging | Goss  # a sampler between two iterations; never changed, only replaced


def goss(
    top_rate: float, other_rate: float, seed: int, n_rows: int, n_threads: int
) -> tuple[Goss, ...]:
    """One state for each way that threads may have split the rows, that of ``n_threads`` (if known) first."""
    generators = streams(seed, n_rows)
    most = min(len(generators), MOST_THREADS)
    likely = [min(n, most) for n in (n_threads, 2, 4, 8, 16, 1) if n > 0]
    parts = dict.fromkeys(_part(n_rows, n) for n in (*likely, *range(1, most + 1)))
    return tuple(Goss(top_rate, other_rate, part, generators) for part in parts)


def _part(n_rows: int, n_parts: int) -> int:
    """How many rows each thread has (BlockInfoForceSize, include/LightGBM/utils/threading.h)."""
    return n_rows if n_parts == 1 else ceil(ceil(n_rows / n_parts) / BLOCK) * BLOCK


@dataclass(frozen=True)
class LeafEvidence:
    """Records of the model about its T trees, L leaves in all, by which draws are confirmed."""

    starts: NDArray[np.int64]  #: (T + 1,)
    counts: NDArray[np.int64]  #: (L,)
    values: FloatArray  #: (L,)
    rates: FloatArray  #: (T,) what multiplies the values of each tree; nan where it is not known
    rule: NewtonRule
    weights: FloatArray | None  #: (N,)
    ranks: Ranks | None = None  #: where leaf values are percentiles
    counts_alone: bool = (
        False  #: whether the values do not follow from sums by the rule: row counts were estimated
    )
    #: (L,) sums of second derivatives that the model records, where leaf values do not show them
    leaf_weights: FloatArray | None = None

    def tree_values(self, tree: int) -> FloatArray:
        """(L_t,): the values of one tree's leaves."""
        return self.values[self.starts[tree] : self.starts[tree + 1]]

    def lone(self, tree: int) -> bool:
        """Whether a tree found no split."""
        return int(self.starts[tree + 1] - self.starts[tree]) == 1

    def agreement(
        self, tree: int, leaf: NDArray[Any], drawn: NDArray[Any], seen: Seen | None, output: int = 0
    ) -> int:
        """0: the leaves have other counts, 1: the same counts but other values, 2: both are the same."""
        own = slice(self.starts[tree], self.starts[tree + 1])
        counts, n = self.counts[own], int(self.starts[tree + 1] - self.starts[tree])
        rows = np.flatnonzero(drawn)
        if len(rows) != counts.sum() or (np.bincount(leaf[rows], minlength=n) != counts).any():
            return 0
        if seen is not None and not self._weighs(own, leaf, drawn, seen, output):
            return 1
        if seen is None or self.counts_alone or len(drawn) >= MANY_ROWS:
            return 2
        if self.ranks is not None:
            assert seen.residuals is not None
            u = self.ranks.values(leaf, seen.residuals[:, output], drawn, n)
            return self._compared(tree, u)
        c = drawn[rows].astype(np.float64)
        sums, total = (
            np.bincount(leaf[rows], c * of_rows[rows, output], n).astype(np.float64)
            for of_rows in (seen.pull, seen.bend)
        )
        return self._compared(tree, self.rule.tree(tree, own).leaf_values(sums, total))

    def _weighs(
        self, own: slice, leaf: NDArray[Any], drawn: NDArray[Any], seen: Seen, output: int
    ) -> bool:
        """Return whether the leaves of a tree weigh as much as the model records, where it does."""
        if self.leaf_weights is None:
            return True
        recorded = self.leaf_weights[own]
        found = np.bincount(leaf, drawn * seen.bend[:, output].astype(np.float64), len(recorded))
        return bool(np.allclose(found, recorded, rtol=CLOSE_WEIGHTS, atol=0.0))

    def _compared(self, tree: int, u: FloatArray) -> int:
        """2 where leaf values u (L_t,) before the rate are those of the tree, 1 where they are others."""
        v = self.values[self.starts[tree] : self.starts[tree + 1]]
        rate = self.rates[tree]
        if np.isnan(rate):  # any draw then agrees with a tree of one value that is not zero
            rate = (u @ v) / ((u @ u) or 1.0)
        return 2 if np.abs(v - rate * u).max() <= 1e-5 * np.abs(v).max() else 1


class DrawReplay:
    """Which rows each tree was fitted on: the draws that a sampler makes, and where they go on from.

    Between two trees the fit may have tried others that found no split, and have begun again (continued training; GOSS also
    where the rate changes): what agrees with the model's leaves is taken, and where nothing does, the plain next draw.
    """

    def __init__(
        self,
        name: str,
        starts: Sequence[State],
        evidence: LeafEvidence,
        n_failures: int,
        forest: bool = False,
        seen: Callable[[FloatArray], Seen] = Seen,
    ):
        self.name = name
        self.needs_gradients = True
        self._seen = seen  # the gradients where residuals (N, K) are left
        self.dtype: type[np.generic] = np.float32 if isinstance(starts[0], Goss) else np.uint8
        self._starts = tuple(starts)
        self._evidence = evidence
        self._n_failures = n_failures  # attempts without a tree that are looked through
        self._forest = forest
        self._begin()

    def _begin(self) -> None:
        self._states = self._starts  # several, as long as the data do not show which is right
        self._left = self._n_failures

    def draw(
        self, trees: range, leaves: NDArray[np.integer[Any]], gradients: RowGradients | None
    ) -> NDArray[Any]:
        """Return with what factor each row was drawn for the trees of one iteration, which share their rows."""
        assert gradients is not None  # GOSS draws by them, and the evidence of leaves needs them
        if gradients.hessians is None:
            seen = self._seen(gradients.negative)
        else:
            seen = Seen(gradients.negative, gradients.hessians)
        drawn = self.draw_iteration(trees, leaves, seen)
        return np.broadcast_to(drawn, (len(trees), len(drawn)))

    def draw_iteration(
        self, trees: range, leaves: NDArray[np.integer[Any]], seen: Seen
    ) -> NDArray[Any]:
        """(N,): with what factor each row was drawn for these trees, whose ``leaves`` are (trees, N)."""
        tree = trees[0]
        if tree == 0:
            self._begin()
        starts, counts = self._evidence.starts, self._evidence.counts
        everyone = np.ones(leaves.shape[1], dtype=np.bool_)
        split = [t for t in trees if not self._evidence.lone(t)]
        if not split:  # a forest keeps such trees, boosting only the first
            if tree > 0 and not self._forest:
                return everyone
            drawn, states = zip(*(state.attempt(False, seen) for state in self._states))
            self._states = tuple(state.grown() if self._forest else state for state in states)
            return everyone if tree == 0 else drawn[0]
        full = int(counts[starts[split[0]] : starts[split[0] + 1]].sum()) == leaves.shape[1]
        best = -1
        chosen: tuple[NDArray[Any], tuple[State, ...], int] = everyone, self._states, 0
        for drawn, states, failures in self._candidates(tree, full, everyone, seen):
            agreement = min(
                self._evidence.agreement(t, leaves[t - tree], drawn, seen, t - tree) for t in split
            )
            if agreement > best:
                best, chosen = agreement, (drawn, states, failures)
            if agreement == 2:
                break
        found, self._states, failures = chosen
        self._left = (
            self._left - failures if best > 0 else -1
        )  # once lost, the draws go on but are not searched
        return found

    def _candidates(
        self, tree: int, full: bool, everyone: BoolArray, seen: Seen
    ) -> Iterator[tuple[NDArray[Any], tuple[State, ...], int]]:
        """Draws for one iteration, the most likely first, each with the states after it and the failed attempts before it."""
        search = self._left >= 0
        lanes = [*self._states, *(self._starts if search and tree > 0 else ())]
        for failures in range(max(self._left, 0) + 1):
            attempts = []
            for state in lanes:
                drawn, after = state.attempt(full, seen)
                attempts.append(after)
                same = (
                    self._states
                    if full and after is state and len(self._states) > 1
                    else (after.grown(),)
                )
                yield drawn, same, failures
            if full and failures == 0 and search:  # an earlier training without a sampler
                yield everyone, self._states, 0
            if self._forest or tree == 0:
                return
            if all(after is state for after, state in zip(attempts, lanes)):
                if not search:
                    return
                # a draw may by chance hold all rows, as that of GOSS does where few gradients are small
                attempts = []
                for state in lanes:
                    drawn, after = state.attempt(False, seen)
                    attempts.append(after)
                    if drawn.all():
                        yield drawn, (after.grown(),), failures
            lanes = attempts


def histories(
    start: Bagging | None, leaves: NDArray[np.integer[Any]], evidence: LeafEvidence, n_failures: int
) -> Iterator[list[bool]]:
    """Possible outcomes of the attempts at trees, all n_failures that left none included: whether each found a split.

    Bags, if there are any, must agree with the counts of the leaves (N, T); failures late in the training come first.
    """
    n_trees = leaves.shape[1]
    todo: list[tuple[int, Bagging | None, int, list[bool]]] = [(0, start, n_failures, [])]
    for _ in range(MOST_STEPS):
        if not todo:
            return
        t, state, spare, past = todo.pop()
        if t == n_trees:
            yield past + [False] * spare
            continue
        lone = evidence.lone(t)
        found = []
        for lost in range(1 if t == 0 else spare + 1):
            bag, state = (None, None) if state is None else state.attempt(False, None)
            if bag is None or lone or evidence.agreement(t, leaves[:, t], bag, None):
                after = state if state is None or lone else state.grown()
                found.append((t + 1, after, spare - lost, past + [False] * lost + [not lone]))
        todo.extend(reversed(found))

"""The work on one partition for pushes: rows walked through a fit by the model's own leaf values, and what each row pushed.

Given those values a row's scores before every tree depend on that row alone. So partitions are walked by themselves, and the sums
of gradients that made each leaf value are sums over partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import GradientTrees
from axil.arrays import FloatArray, IntArray
from axil.attribution import Attribution, Effects
from axil.attribution.block_effects import BlockEffects, NoEffects
from axil.attribution.leaf_matches import SharedLeaves, TreeWeights, count_rows
from axil.contributions.contributions import Contributions
from axil.dask.on_workers import HeldPart
from axil.dask.partitions import Observed, Place, Precision, observe
from axil.machine.memory import Budget, Limits
from axil.replay.checks import Miss, furthest, worse
from axil.replay.gradient_walk import ReplayedStages
from axil.replay.recover import assign_leaves
from axil.replay.score_checks import leaf_scores, lost_beside
from axil.structure import RowTotals, Transferable


@dataclass(frozen=True)
class SharedFit:
    """The fit as all partitions share it: without what belongs to single rows."""

    adapter: GradientTrees
    fit: BoostedFit
    start: FloatArray  #: (K,) scores before the first tree
    n_checked: int  #: rows of each partition whose score is asked of the library
    n_threads: int


@dataclass(frozen=True)
class WalkedRows(HeldPart, Attribution["AskedPushes"]):
    """The kept part of n training rows: their leaves, targets and labels."""

    leaves: NDArray[np.unsignedinteger[Any]]  #: (T, n)
    rounded: FloatArray  #: (n, K) targets as the library keeps them
    weights: FloatArray  #: (n,)
    score: FloatArray  #: (n, K) or (K,) before the first tree

    def contributions(self, walked: ReplayedStages, n_threads: int) -> Contributions:
        """Return what these rows put into scores, in a fit without rows."""
        fit_of_rows = replace(
            walked, leaves=self.leaves, targets=self.rounded, weights=self.weights, start=self.score
        )
        return Contributions(fit_of_rows, Limits(n_threads, Budget(None)))

    def contribution_effects(self, query_batch: AskedPushes) -> Effects:
        asked = query_batch
        walked, n_outputs = asked.walked, self.targets.shape[1]
        assert walked is not None
        if not len(self.index):
            return NoEffects([(k,) for k in range(n_outputs)], asked.starts, asked.first)
        pushes = self.contributions(walked, asked.n_threads)
        read = partial(
            pushes.read if isinstance(asked.leaves, list) else pushes.blocks, asked.leaves
        )
        found = BlockEffects(
            read, self.targets.shape, len(asked.starts), asked.starts, first=asked.first
        )
        found.alike = lambda: SharedLeaves.of([pushes.rows], [asked.leaves])
        return found


def leaf_row_counts(rows: WalkedRows, starts: IntArray, _: Any = None) -> IntArray:
    """Return the number of these rows in each leaf, (L,)."""
    return count_rows(rows.leaves, starts)


@dataclass(frozen=True, eq=False)
class WalkedTreeWeights(TreeWeights):
    """How much trees count for each row, by what they did to its error in a fit without rows."""

    walked: ReplayedStages | None = None
    n_threads: int = 1

    def on(self, shard: object) -> TreeWeights:
        """Return how much trees count for the rows of a partition."""
        assert isinstance(shard, WalkedRows)
        assert self.walked is not None
        rows = shard.contributions(self.walked, self.n_threads)
        return TreeWeights(None, lambda part: [rows.reductions(part)], self.counted)


@dataclass(frozen=True)
class GradientSums(RowTotals):
    """Sums of gradients over leaves, and how far scores are from the model's."""

    counts: NDArray[np.int64]  #: (L,) rows of the fit
    g: FloatArray  #: (L, 1), or (L, K) where trees are shared
    h: FloatArray
    sizes: FloatArray  #: likewise, of absolute values of g
    largest: float = field(metadata={"both": max})  #: |score| of these rows
    lost: float = field(
        metadata={"both": max}
    )  #: what is lost in the rounding of the scores that these rows start from
    miss: Miss = field(
        metadata={"both": worse}
    )  #: the largest distance of a score from the model's


def observe_targets(
    number: int, y: Any, weights: Any, offsets: Any, precision: Precision
) -> Observed:
    """Check and round what goes with the rows; of two classes, whether a row is of the second."""
    found = observe(number, y, weights, offsets, precision)
    if precision.classes is None or precision.n_outputs > 1:
        return found
    return replace(found, given=found.given[:, 1:], targets=found.targets[:, 1:])


def walk_partition(
    X: Any, observed: Observed, place: Place, shared: SharedFit
) -> tuple[WalkedRows, GradientSums]:
    """Assign the rows to their leaves and walk them through the fit; n * T leaf numbers are kept."""
    X, labels = place.read(X, observed, shared.adapter)
    n, (weights,), (held_out,) = len(observed.targets), place.row_weights, place.held_out
    assert weights is not None
    adapter, trees = shared.adapter, shared.fit
    limits = Limits(shared.n_threads, Budget(None))  # of this worker
    leaves = assign_leaves(adapter, X, n, trees.n_leaves, limits)
    start = shared.start if observed.offsets is None else shared.start + observed.offsets
    rows = WalkedRows(place.start, observed.given, labels, leaves, observed.targets, weights, start)
    counts, g, h, sizes, score = _sums(
        rows, shared.fit, slice(None) if held_out is None else ~held_out
    )
    asked = np.arange(0, n, max(1, -(-n // shared.n_checked)))
    expected = adapter.scores(inputs.take_rows(X, asked))
    found = leaf_scores(shared.fit, leaves[:, asked].T, rounded=True)
    miss = Miss(0.0, 0, 0.0, 0.0)
    if len(asked):
        miss = furthest(found, expected)
        miss = replace(miss, row=place.start + int(asked[miss.row]))
    largest = float(np.abs(score).max(initial=0.0))
    return rows, GradientSums(counts, g, h, sizes, largest, lost_beside(start), miss)


def _sums(
    rows: WalkedRows, fit: BoostedFit, fitted: Any
) -> tuple[NDArray[np.int64], FloatArray, FloatArray, FloatArray, FloatArray]:
    """Counts of the rows of the fit, sums of g, h and |g| over leaves, and the scores in the end."""
    loss = fit.loss
    starts = fit.starts
    G, H, sizes = (np.zeros_like(fit.leaf_values) for _ in range(3))
    counts = np.zeros(int(starts[-1]), dtype=np.int64)
    score = (rows.score + np.zeros_like(rows.rounded)).astype(fit.score_precision)
    for trees in fit.schedule.trees_of_rounds:
        g, h = loss.seen(rows.rounded, score, rows.weights)
        for t in trees:
            leaf, own, n = rows.leaves[t], slice(starts[t], starts[t + 1]), int(fit.n_leaves[t])
            counts[own] = np.bincount(leaf[fitted], minlength=n)
            for column, k in enumerate(fit.schedule.outputs_of(t, score.shape[1])):
                G[own, column], H[own, column] = (
                    np.bincount(leaf, each[:, k], n) for each in (g, h)
                )
                sizes[own, column] = np.bincount(leaf, np.abs(g[:, k]), n)
                score[:, k] += fit.leaf_values[own, column].astype(score.dtype, copy=False)[leaf]
    return counts, G, H, sizes, score


# -- queries ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskedPushes(Transferable):
    """n queries, by their leaves."""

    leaves: Any  #: (n, T); of sums of queries for each output a table (C_k, n), see `Contributions.read`
    starts: FloatArray  #: (n, K) scores before any push
    first: int  #: the position of the first query in the whole request
    n_threads: int
    walked: ReplayedStages | None = None  #: the fit, whose steps are those of all rows

    def with_fit(self, walked: ReplayedStages) -> AskedPushes:
        """These queries with the fit that they are asked of."""
        return replace(self, walked=walked)

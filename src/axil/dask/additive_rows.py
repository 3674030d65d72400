"""The work on one partition for pushes: rows walked through a fit by the model's own leaf values, and what each row pushed.

Given those values a row's scores before every tree depend on that row alone. So partitions are
walked by themselves, and the sums of gradients that made each leaf value are sums over partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.attribution import Attribution, Effects
from axil.attribution.block_effects import BlockEffects, NoEffects
from axil.attribution.leaf_matches import SharedLeaves, TreeWeights, count_rows
from axil.contributions.contributions import Contributions
from axil.dask.on_workers import HeldPart
from axil.dask.training_rows import ObservedRows, Place, SharedFit
from axil.machine.memory import Budget, Limits
from axil.replay.checks import Miss, furthest, worse
from axil.replay.recover import assign_leaves
from axil.replay.replayed_stages import ReplayedStages
from axil.replay.score_checks import leaf_scores, lost_beside
from axil.structure import RowTotals, Transferable


@dataclass(frozen=True)
class AdditivePartition(HeldPart, Attribution["LeafBatch"]):
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

    def contribution_effects(self, query_batch: LeafBatch) -> Effects:
        batch, n_outputs = query_batch, self.targets.shape[1]
        assert batch.walked is not None
        if not len(self.index):
            return NoEffects([(k,) for k in range(n_outputs)], batch.starts, batch.first)
        contributions = self.contributions(batch.walked, batch.n_threads)
        # A list has a table per output, of sums of queries.
        read = contributions.read if isinstance(batch.leaves, list) else contributions.blocks
        effects = BlockEffects(
            partial(read, batch.leaves),
            self.targets.shape,
            len(batch.starts),
            batch.starts,
            first=batch.first,
        )
        effects.alike = lambda: SharedLeaves.of([contributions.rows], [batch.leaves])
        return effects


def leaf_row_counts(rows: AdditivePartition, starts: IntArray, _: Any = None) -> IntArray:
    """Return the number of these rows in each leaf, (L,)."""
    return count_rows(rows.leaves, starts)


@dataclass(frozen=True, eq=False)
class AdditiveTreeWeights(TreeWeights):
    """How much trees count for each row, by what they did to its error in a fit without rows."""

    walked: ReplayedStages | None = None
    n_threads: int = 1

    def on(self, shard: object) -> TreeWeights:
        """Return how much trees count for the rows of a partition."""
        assert isinstance(shard, AdditivePartition)
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
    #: digits lost in the rounding of the scores that these rows start from
    lost: float = field(metadata={"both": max})
    miss: Miss = field(
        metadata={"both": worse}
    )  #: the largest distance of a score from the model's

    @classmethod
    def of(
        cls, rows: AdditivePartition, fit: BoostedFit, in_fit: BoolArray, miss: Miss
    ) -> GradientSums:
        """Walk the rows through the fit with the model's own leaf values; ``in_fit`` (n,) are not held out."""
        starts = fit.table.starts
        gradients, hessians, sizes = (np.zeros_like(fit.table.leaf_values) for _ in range(3))
        counts = np.zeros(int(starts[-1]), dtype=np.int64)
        score = (rows.score + np.zeros_like(rows.rounded)).astype(fit.score_precision)
        for trees in fit.schedule.trees_of_rounds:
            g, h = fit.loss.seen(rows.rounded, score, rows.weights)
            for t in trees:
                leaf = rows.leaves[t]
                n_leaves = int(fit.table.n_leaves[t])
                leaves = slice(starts[t], starts[t + 1])
                counts[leaves] = np.bincount(leaf[in_fit], minlength=n_leaves)
                for column, k in enumerate(fit.schedule.outputs_of(t, score.shape[1])):
                    gradients[leaves, column] = np.bincount(leaf, g[:, k], n_leaves)
                    hessians[leaves, column] = np.bincount(leaf, h[:, k], n_leaves)
                    sizes[leaves, column] = np.bincount(leaf, np.abs(g[:, k]), n_leaves)
                    values = fit.table.leaf_values[leaves, column].astype(score.dtype, copy=False)
                    score[:, k] += values[leaf]
        largest = float(np.abs(score).max(initial=0.0))
        return cls(counts, gradients, hessians, sizes, largest, lost_beside(rows.score), miss)


def walk_partition(
    X: Any, observed: ObservedRows, bags: Any, place: Place, shared: SharedFit
) -> tuple[AdditivePartition, GradientSums]:
    """Assign the rows to their leaves and walk them through the fit; n * T leaf numbers are kept."""
    (fit,) = shared.fits
    (weights,) = place.row_weights
    (held_out,) = place.held_out
    assert weights is not None
    X, labels = place.read(X, observed, shared.adapter)
    n_rows = len(observed.targets)
    limits = Limits(shared.n_threads, Budget(None))  # of this worker
    leaves = assign_leaves(shared.adapter, X, n_rows, fit.table.n_leaves, limits)
    start = fit.schedule.shares_of_initial[0] * fit.initial.values
    if observed.offsets is not None:
        start = start + observed.offsets
    rows = AdditivePartition(
        place.start, observed.targets_as_given, labels, leaves, observed.targets, weights, start
    )
    if held_out is None:
        in_fit = np.ones(n_rows, dtype=np.bool_)
    else:
        in_fit = ~held_out
    miss = _furthest_score(X, rows, shared)
    return rows, GradientSums.of(rows, fit, in_fit, miss)


def _furthest_score(X: Any, rows: AdditivePartition, shared: SharedFit) -> Miss:
    """Return where the sums of leaves are furthest from the library's scores, without offsets, of some rows."""
    n_rows = len(rows.index)
    checked = np.arange(0, n_rows, max(1, -(-n_rows // shared.n_checked)))
    if not len(checked):
        return Miss(0.0, 0, 0.0, 0.0)
    expected = shared.adapter.scores(inputs.take_rows(X, checked))
    found = leaf_scores(shared.fits[0], rows.leaves[:, checked].T, rounded=True)
    miss = furthest(found, expected)
    return replace(miss, row=rows.start + int(checked[miss.row]))


# -- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeafBatch(Transferable):
    """n queries, by their leaves."""

    #: (n, T); of sums of queries for each output a table (C_k, n), see `Contributions.read`
    leaves: Any
    starts: FloatArray  #: (n, K) scores before any push
    first: int  #: the position of the first query in the whole request
    n_threads: int
    walked: ReplayedStages | None = None  #: the fit, whose steps are those of all rows

    def with_fit(self, walked: ReplayedStages) -> LeafBatch:
        """These queries with the fit that they are asked of."""
        return replace(self, walked=walked)

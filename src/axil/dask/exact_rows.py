"""The work on one partition of the training rows, on the worker that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import FloatArray
from axil.attribution import Attribution, Effects, Quantity
from axil.attribution.block_effects import NoEffects
from axil.attribution.leaf_matches import SharedLeaves, leaf_rows
from axil.attribution.weight_effects import WeightEffects
from axil.dask.on_workers import HeldPart
from axil.dask.training_rows import ObservedRows, Place, SharedFit, named
from axil.kernels.choose import host_backend
from axil.machine.memory import Budget, Limits
from axil.replay.build import own_leaves_of, with_rows
from axil.replay.checks import Extent, Miss, furthest, with_predictions
from axil.replay.recover import assign_leaves, fitted_structure, regularisation_of
from axil.replay.walk import walk
from axil.structure import (
    CutRows,
    LinearLeaves,
    RowTotals,
    Structure,
    Transferable,
    aligned,
    all_n_leaves,
    served,
)
from axil.weights.boosting import BoostedTrees
from axil.weights.leaf_space import cooccurrence
from axil.weights.passes import Adjoints, leaf_sums
from axil.weights.tree_answers import ReadOutAnswer


@dataclass(frozen=True)
class ExactPartition(HeldPart, Attribution["AdjointBatch | DeletionQueries"]):
    """The kept part of n training rows: their leaves, targets and labels.

    ``structures``, one for each entry of the fitted trees, are of these rows alone: so are their leaf weights and scales.
    """

    structures: list[Structure]

    @property
    def row_weights(self) -> FloatArray:
        """(n,): what rows count in the fit."""
        weights = self.structures[0].row_weights
        return np.ones(len(self.index)) if weights is None else weights

    def own_targets(self, entry: int) -> FloatArray:
        """(n, K): the targets of the outputs that an entry of the fitted trees serves, as given."""
        several = len(self.structures) > 1
        return np.ascontiguousarray(self.targets[:, entry : entry + 1] if several else self.targets)

    def contribution_effects(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        return self._deletions(query_batch, Quantity.CONTRIBUTION)

    def deletion_effects(
        self, query_batch: AdjointBatch | DeletionQueries, available: int
    ) -> Effects:
        return self._deletions(query_batch, Quantity.DELETION)

    def first_order_effects(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        return self._deletions(query_batch, Quantity.FIRST_ORDER)

    def _deletions(
        self, query_batch: AdjointBatch | DeletionQueries, quantity: Quantity
    ) -> Effects:
        """Return what deleting these rows does, which the queries know."""
        assert not isinstance(query_batch, AdjointBatch)
        return query_batch.effects(self, quantity)

    def weight_effects(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        assert isinstance(query_batch, AdjointBatch)
        asked = query_batch
        n_outputs, several = self.targets.shape[1], len(self.structures) > 1
        if not len(self.index):
            parts = np.concatenate(asked.intercepts, axis=1)
            served: list[Sequence[int]] = (
                [(k,) for k in range(n_outputs)] if several else [range(n_outputs)]
            )
            return NoEffects(
                served, np.broadcast_to(parts, (len(parts), n_outputs)) + asked.offsets, asked.first
            )
        answers = []
        for e, s in enumerate(self.structures):
            own = replace(
                s, total=asked.totals[e], offsets=None
            )  # whose sums are in the intercepts
            adjoints = Adjoints(asked.phi[e], asked.beta[e])
            answers.append(
                ReadOutAnswer(
                    BoostedTrees(own, host_backend(asked.n_threads)), adjoints, asked.intercepts[e]
                )
            )
        targets = [self.own_targets(e) for e in range(len(answers))]
        weights = WeightEffects(answers, targets, asked.offsets, asked.first)
        weights.alike = lambda: SharedLeaves.of(
            leaf_rows(self.structures, 0, host_backend(asked.n_threads)),
            asked.leaves,
            asked.n_threads,
        )
        return weights


class DeletionQueries(Protocol):
    """Queries that bring along what the effects of deletions are computed from."""

    def effects(self, partition: ExactPartition, quantity: Quantity) -> Effects:
        """Return the effects of the rows of a partition: `DELETION`, `FIRST_ORDER` or `CONTRIBUTION`."""


@dataclass(frozen=True)
class AdjointBatch(Transferable):
    """Adjoints of n queries, the same for every training row; lists have one for each entry of the fitted trees."""

    phi: list[FloatArray]  #: (L, n)
    beta: list[FloatArray]  #: (n,)
    intercepts: list[FloatArray]  #: (n, K) what no target makes, offsets apart
    totals: list[float]  #: the weight of all training rows
    leaves: list[NDArray[Any]]  #: (n, T)
    offsets: FloatArray  #: (n, K) of the queries
    first: int  #: the position of the first query in the whole request
    n_threads: int


@dataclass(frozen=True)
class LeafSums(RowTotals):
    """Sums of the rows over the leaves of one entry of the fitted trees."""

    counts: NDArray[np.int64]  #: (L,)
    leaf_weights: FloatArray  #: (L,)
    drawn_weights: FloatArray  #: (L,) see `Walked`, as of the two that follow
    residuals: FloatArray  #: (L, K)
    cut: CutRows | None
    started: FloatArray  #: (L, K) of weight * draw * (target - offset)
    offsets: FloatArray | None  #: (L, K) of weight * draw * offset
    extent: Extent


@dataclass(frozen=True)
class Evidence(Transferable):
    """The numbers that the proof needs and queries do not."""

    sums: list[LeafSums]
    scores: list[FloatArray]  #: (n, K) the model's predictions, the library's own for some rows


def replay_partition(
    X: Any, observed: ObservedRows, bags: Any, place: Place, shared: SharedFit
) -> tuple[ExactPartition, Evidence]:
    """Assign the rows to their leaves and walk them through the fit; cost as on one machine, n * T cell numbers kept."""
    X, labels = place.read(X, observed, shared.adapter)
    adapter, n = shared.adapter, len(observed.targets)
    with named(place.number):
        bags = inputs.as_bags(bags, n)
    limits = Limits(shared.n_threads, Budget(None))  # of this worker
    leaves = assign_leaves(adapter, X, n, all_n_leaves(shared.fits), limits)
    asked = np.arange(0, n, max(1, -(-n // shared.n_checked)))
    structures, sums, scores = [], [], []
    for e, (trees, output) in enumerate(zip(shared.fits, served(len(shared.fits)))):
        trees = replace(trees, row_weights=place.row_weights[e], held_out=place.held_out[e])
        trees = with_rows(trees, observed.weights, bags)
        own = (
            leaves if trees.columns is None else own_leaves_of(leaves, trees.columns, limits.budget)
        )
        targets, offsets = (
            observed.targets[:, output],
            None if observed.offsets is None else observed.offsets[:, output],
        )
        walked = walk(adapter, trees, own, targets, offsets, limits)
        scale = regularisation_of(trees).scale(walked.leaf_weights)
        alone = LinearLeaves(scale, None, None, {})  # that of all rows is not known here
        free = walked.leaf_weights if walked.cut is None else walked.cut.free
        structure = fitted_structure(trees, walked.cells, walked.draws, free, alone, offsets)
        rows = host_backend(shared.n_threads).rows_of(structure)
        structures.append(structure)
        sums.append(
            LeafSums(
                walked.counts,
                walked.leaf_weights,
                walked.drawn_weights,
                walked.sums,
                walked.cut,
                leaf_sums(structure, rows, targets if offsets is None else targets - offsets),
                None if offsets is None else leaf_sums(structure, rows, offsets),
                Extent.of(targets, trees.row_weights, offsets, walked.score),
            )
        )
        scores.append(with_predictions(adapter, X, asked, offsets, walked.score, output))
    partition = ExactPartition(place.start, observed.targets_as_given, labels, structures)
    return partition, Evidence(sums, scores)


def cooccurrences(partition: ExactPartition, entry: int, n_threads: int) -> FloatArray:
    """(L, L): the co-occurrence of leaves in these rows; O(T^2 n)."""
    structure = partition.structures[entry]
    return np.asarray(
        cooccurrence(structure, host_backend(n_threads).rows_of(structure), 0, structure.n_trees)
    )


def furthest_row(
    partition: ExactPartition,
    evidence: Evidence,
    entry: int,
    made: tuple[FloatArray, FloatArray],
    n_threads: int,
) -> Miss | None:
    """Where predictions ``made`` of leaf values (L, K) and a base (K,) are furthest from the model's; None: no rows."""
    score = evidence.scores[entry]
    if not len(score):
        return None
    found, structure, (values, base) = (
        np.empty(score.shape),
        partition.structures[entry],
        aligned(made),
    )
    host_backend(n_threads).rows_of(structure).read_out(
        structure.by_cells(values, drawn=False), base, None, 0, found
    )
    if structure.offsets is not None:
        found += structure.offsets
    miss = furthest(found, score)
    return replace(miss, row=partition.start + miss.row)

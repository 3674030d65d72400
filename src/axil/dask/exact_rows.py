"""The work on one partition of the training rows, on the worker that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import Attribution, Effects, Quantity
from axil.attribution.block_effects import LeafComparison, NoEffects
from axil.attribution.leaf_matches import SharedLeaves, leaf_rows
from axil.attribution.weight_effects import WeightEffects
from axil.dask.cluster import Features, HeldRows, PartitionRows, UserValues, named
from axil.dask.training_rows import ObservedRows, Place, SharedFit
from axil.kernels.choose import host_backend
from axil.machine.memory import Budget, Limits
from axil.replay.build import leaves_of_trees, with_rows
from axil.replay.compare import Extent
from axil.replay.compare_predictions import Miss, furthest, with_predictions
from axil.replay.recover import assign_leaves, fitted_structure, leaf_rule_of, regularisation_of
from axil.replay.walk import Walked, walk
from axil.structure import (
    CutRows,
    LinearLeaves,
    RowTotals,
    Structure,
    Transferable,
    aligned,
    all_n_leaves,
    output_groups,
)
from axil.weights.boosting import BoostedTrees
from axil.weights.leaf_matrix import cooccurrence
from axil.weights.passes import Adjoints, leaf_sums
from axil.weights.tree_answers import ReadOutAnswer


@dataclass(frozen=True)
class HeldExactRows(HeldRows):
    """The training rows on the workers, and the trees here."""

    #: on structures without rows; the leaf matrix comes with `in_leaf_matrix`
    entries: list[BoostedTrees]


@dataclass(frozen=True)
class ExactPartition(PartitionRows, Attribution["AdjointBatch | DeletionQueries"]):
    """The stored part of n training rows: their leaves, targets and labels.

    ``structures``, one for each entry of the fitted trees, are of these rows alone. So are their
    leaf weights and scales.
    """

    structures: list[Structure]

    @property
    def row_weights(self) -> FloatArray:
        """The row weights of the fit, (n,)."""
        weights = self.structures[0].row_weights
        if weights is None:
            return np.ones(len(self.index))
        return weights

    def own_targets(self, entry: int) -> FloatArray:
        """Return the targets (n, K) of the outputs of one entry of the fitted trees."""
        several = len(self.structures) > 1
        return np.ascontiguousarray(self.targets[:, entry : entry + 1] if several else self.targets)

    def leaves_of(self, rows: IntArray) -> list[AnyArray]:
        """Return the leaves of some rows, (T, rows), for each entry of the fitted trees."""
        return [np.ascontiguousarray(s.leaves()[:, rows]) for s in self.structures]

    def contribution_effects(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        """Return the contributions of these rows to the steps of the trees."""
        return self._deletions(query_batch, Quantity.CONTRIBUTION)

    def deletion_effects(
        self, query_batch: AdjointBatch | DeletionQueries, available: int
    ) -> Effects:
        """Return the exact changes of predictions on deleting each row."""
        return self._deletions(query_batch, Quantity.DELETION)

    def first_order_effects(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        """Return the first-order changes of predictions on deleting each row."""
        return self._deletions(query_batch, Quantity.FIRST_ORDER)

    def _deletions(
        self, query_batch: AdjointBatch | DeletionQueries, quantity: Quantity
    ) -> Effects:
        """Return the effects of deleting these rows.

        They come from facts that the explained rows bring along.
        """
        assert not isinstance(query_batch, AdjointBatch)
        return query_batch.effects(self, quantity)

    def weight_effects(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        """Return the weights of these rows in predictions."""
        batch = query_batch
        assert isinstance(batch, AdjointBatch)
        if not len(self.index):
            return self._no_effects(batch)
        backend = host_backend(batch.n_threads)
        answers = []
        for entry, structure in enumerate(self.structures):
            # The sums of offsets are in the intercepts.
            whole = replace(structure, total=batch.totals[entry], offsets=None)
            adjoints = Adjoints(batch.phi[entry], batch.beta[entry])
            trees = BoostedTrees(whole, backend)
            answers.append(ReadOutAnswer(trees, adjoints, batch.intercepts[entry]))
        targets = [self.own_targets(entry) for entry in range(len(answers))]
        weights = WeightEffects(answers, targets, batch.offsets, batch.first)
        weights.shared_leaves = partial(self._shared_leaves, batch)
        return weights

    def leaf_comparison(self, query_batch: AdjointBatch | DeletionQueries) -> Effects:
        """Return the leaves that explained rows share with these rows."""
        batch = query_batch
        assert isinstance(batch, AdjointBatch)
        return LeafComparison(
            partial(self._shared_leaves, batch), self.targets.shape, len(batch.offsets), batch.first
        )

    def _shared_leaves(self, batch: AdjointBatch) -> SharedLeaves:
        """Return the leaves of the explained rows and of these rows."""
        rows = leaf_rows(self.structures, 0, host_backend(batch.n_threads))
        return SharedLeaves.of(rows, batch.leaves, batch.n_threads)

    def _no_effects(self, batch: AdjointBatch) -> Effects:
        """Return the effects of a partition without rows: the intercepts alone."""
        n_outputs = self.targets.shape[1]
        intercepts = np.concatenate(batch.intercepts, axis=1)
        outputs: list[Sequence[int]] = [range(n_outputs)]
        if len(self.structures) > 1:
            outputs = [(k,) for k in range(n_outputs)]
        starts = np.broadcast_to(intercepts, (len(intercepts), n_outputs)) + batch.offsets
        return NoEffects(outputs, starts, batch.first)


class DeletionQueries(Protocol):
    """Explained rows with everything that the effects of deletions follow from."""

    def effects(self, partition: ExactPartition, quantity: Quantity) -> Effects:
        """Return the effects of a partition's rows: `DELETION`, `FIRST_ORDER` or `CONTRIBUTION`."""


@dataclass(frozen=True)
class AdjointBatch(Transferable):
    """Adjoints of n explained rows, the same for every training row.

    Lists have one member for each entry of the fitted trees.
    """

    phi: list[FloatArray]  #: (L, n)
    beta: list[FloatArray]  #: (n,)
    intercepts: list[FloatArray]  #: (n, K) what no target makes, offsets apart
    totals: list[float]  #: the weight of all training rows
    leaves: list[AnyArray]  #: (n, T)
    offsets: FloatArray  #: (n, K) of the explained rows
    first: int  #: the position of the first row in the whole request
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

    @classmethod
    def of(
        cls,
        fit: BoostedFit,
        walked: Walked,
        structure: Structure,
        targets: FloatArray,
        n_threads: int,
    ) -> LeafSums:
        """Return the sums of the rows of a structure, with targets (n, K)."""
        rows = host_backend(n_threads).rows_of(structure)
        offsets = structure.offsets
        if offsets is None:
            offset_sums = None
        else:
            offset_sums = leaf_sums(structure, rows, offsets)
        if offsets is None:
            started = targets
        else:
            started = targets - offsets
        return cls(
            walked.counts,
            walked.leaf_weights,
            walked.drawn_weights,
            walked.sums,
            walked.cut,
            leaf_sums(structure, rows, started),
            offset_sums,
            Extent.of(targets, fit.weights.row_weights, offsets, walked.score),
        )


@dataclass(frozen=True)
class Evidence(Transferable):
    """The numbers that the verification needs, and later requests do not."""

    sums: list[LeafSums]
    scores: list[FloatArray]  #: (n, K) the model's predictions, the library's own for some rows


def replay_partition(
    X: Features, observed: ObservedRows, in_bag: UserValues, place: Place, shared: SharedFit
) -> tuple[ExactPartition, Evidence]:
    """Assign the rows to their leaves and walk them through the fit.

    Memory has their n T cell numbers.
    """
    X, labels = place.read(X, observed, shared.adapter)
    n_rows = len(observed.targets)
    with named(place.number):
        in_bag = inputs.as_in_bag(in_bag, n_rows)
    limits = Limits(shared.n_threads, Budget(None))  # of this worker
    leaves = assign_leaves(
        shared.adapter, X, n_rows, all_n_leaves([fit.table for fit in shared.fits]), limits
    )
    checked = np.arange(0, n_rows, max(1, -(-n_rows // shared.n_checked)))
    structures = []
    sums = []
    scores = []
    for entry, (fit, output) in enumerate(zip(shared.fits, output_groups(len(shared.fits)))):
        weights = replace(
            fit.weights, row_weights=place.row_weights[entry], held_out=place.held_out[entry]
        )
        fit = replace(fit, weights=weights)
        fit = with_rows(fit, observed.weights, in_bag)
        tree_leaves = leaves
        if fit.table.columns is not None:
            tree_leaves = leaves_of_trees(leaves, fit.table.columns, limits.budget)
        targets = observed.targets[:, output]
        if observed.offsets is None:
            offsets = None
        else:
            offsets = observed.offsets[:, output]
        walked = walk(shared.adapter, fit, tree_leaves, targets, offsets, limits)
        structure = _structure_of(fit, walked, offsets)
        structures.append(structure)
        sums.append(LeafSums.of(fit, walked, structure, targets, shared.n_threads))
        scores.append(with_predictions(shared.adapter, X, checked, offsets, walked.score, output))
    partition = ExactPartition(place.start, observed.targets_as_given, labels, structures)
    return partition, Evidence(sums, scores)


def _structure_of(fit: BoostedFit, walked: Walked, offsets: FloatArray | None) -> Structure:
    """Return the structure of these rows alone, without the active set of all rows."""
    newton = regularisation_of(fit)
    scale = newton.scale(walked.leaf_weights)
    leaves = LinearLeaves(scale, None, None, {})
    if walked.cut is None:
        weights = walked.leaf_weights
    else:
        weights = walked.cut.free
    rule = leaf_rule_of(fit, newton)
    return fitted_structure(fit, walked.cells, walked.draws, weights, leaves, offsets, rule)


def cooccurrences(partition: ExactPartition, entry: int, n_threads: int) -> FloatArray:
    """Return the co-occurrences of leaves in these rows, (L, L), in O(T^2 n)."""
    structure = partition.structures[entry]
    return np.asarray(
        cooccurrence(structure, host_backend(n_threads).rows_of(structure), 0, structure.n_trees)
    )


def furthest_row(
    partition: ExactPartition,
    evidence: Evidence,
    entry: int,
    leaf_values_and_base: tuple[FloatArray, FloatArray],
    n_threads: int,
) -> Miss | None:
    """Return the largest difference of predictions by leaf values from the model's; None: no rows.

    ``leaf_values_and_base`` are leaf values (L, K) and the initial prediction (K,).
    """
    score = evidence.scores[entry]
    if not len(score):
        return None
    structure = partition.structures[entry]
    leaf_values, base = aligned(leaf_values_and_base)
    predictions = np.empty(score.shape)
    table = structure.by_cells(leaf_values, drawn=False)
    host_backend(n_threads).rows_of(structure).read_out(table, base, None, 0, predictions)
    if structure.offsets is not None:
        predictions += structure.offsets
    miss = furthest(predictions, score)
    return replace(miss, row=partition.start + miss.row)

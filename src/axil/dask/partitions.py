"""The work on one partition of the training rows, on the worker that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Totals
from axil.arrays import BoolArray, FloatArray
from axil.attribution import Attribution, Effects, Quantity
from axil.attribution.block_effects import NoEffects
from axil.attribution.leaf_matches import SharedLeaves, leaf_rows
from axil.attribution.weight_effects import WeightEffects
from axil.dask.cluster import Cluster
from axil.dask.on_workers import HeldPart
from axil.errors import InputError
from axil.inputs.copies import frozen, owned
from axil.inputs.label_classes import LabelClasses
from axil.kernels.choose import host_backend
from axil.machine.memory import Budget, Limits
from axil.replay.build import own_leaves_of, with_rows
from axil.replay.checks import CHECKED_ROWS, Extent, Miss, furthest, with_predictions
from axil.replay.recover import assign_leaves, fitted_structure, regularisation_of
from axil.replay.walk import round_to, walk
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
class Precision:
    """The types in which a library keeps targets and offsets, and the outputs or classes that it reads targets as."""

    n_outputs: int
    classes: NDArray[Any] | LabelClasses | None
    targets: type[np.floating[Any]]
    offsets: type[np.floating[Any]]


@dataclass(frozen=True)
class Observed:
    """Targets, weights and offsets of a partition's n rows; targets as given and, as the others, as the library keeps them."""

    given: FloatArray  #: (n, K)
    targets: FloatArray  #: (n, K)
    weights: FloatArray | None  #: (n,)
    offsets: FloatArray | None  #: (n, K)

    @property
    def totals(self) -> Totals:
        return Totals.of(self.targets, self.weights, self.offsets)


@dataclass(frozen=True)
class Shared:
    """The objects that the work on every partition shares."""

    adapter: Adapter
    fitted: list[BoostedFit]  #: without what belongs to single rows
    n_checked: int  #: rows of each partition whose prediction is asked of the library
    n_threads: int


@dataclass(frozen=True)
class Place:
    """Which partition this is, and what the fit says of its rows alone, by entry of the fitted trees."""

    number: int
    start: int  #: its first row, among all
    row_weights: list[FloatArray | None]
    held_out: list[BoolArray | None]

    def read(self, X: Any, observed: Observed, adapter: Any) -> tuple[Any, NDArray[Any]]:
        """The features of the partition's rows, checked, and their labels: positions among all rows where X has none."""
        with named(self.number):
            X = inputs.as_features(X, adapter, "X")
            n = len(observed.targets)
            if X.shape[0] != n:
                raise InputError(
                    f"X has {X.shape[0]} rows and y {n}; expected the same rows. Repartition them alike."
                )
        labels = inputs.row_labels(X)
        return X, frozen(labels if hasattr(X, "index") else labels + self.start)


def places(sizes: list[int], weights: list[FloatArray | None], held_out: list[Any]) -> list[Place]:
    """The places of partitions of these sizes, from what the fit says of all rows, by entry of the fitted trees."""
    found = []
    for p, (first, last) in enumerate(pairwise(np.cumsum([0, *sizes]).tolist())):
        own_weights = [None if each is None else each[first:last] for each in weights]
        out = [None if each is None else each[first:last] for each in held_out]
        found.append(Place(p, first, own_weights, out))
    return found


def checked_each(sizes: list[int]) -> int:
    """How many rows of each partition are compared with the library's own predictions."""
    return -(-CHECKED_ROWS // max(1, sum(size > 0 for size in sizes)))


def held_pairs(cluster: Cluster, pairs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The first and the second results of tasks, held on the workers."""
    found = cluster.hold([pair[i] for i in (0, 1) for pair in pairs])
    return found[: len(pairs)], found[len(pairs) :]


def label_dtype(cluster: Cluster, partitions: list[Any], sizes: list[int]) -> np.dtype[Any]:
    """The type of the labels, as the first partition with rows has it."""
    kinds = cluster.collect([part.index.dtype for part in partitions])
    found: np.dtype[Any] = next(kind for kind, size in zip(kinds, sizes) if size)
    return found


@dataclass(frozen=True)
class Partition(HeldPart, Attribution["AskedWeights | DeletionQueries"]):
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

    def contribution_effects(self, query_batch: AskedWeights | DeletionQueries) -> Effects:
        return self._deletions(query_batch, Quantity.CONTRIBUTION)

    def deletion_effects(
        self, query_batch: AskedWeights | DeletionQueries, available: int
    ) -> Effects:
        return self._deletions(query_batch, Quantity.DELETION)

    def first_order_effects(self, query_batch: AskedWeights | DeletionQueries) -> Effects:
        return self._deletions(query_batch, Quantity.FIRST_ORDER)

    def _deletions(
        self, query_batch: AskedWeights | DeletionQueries, quantity: Quantity
    ) -> Effects:
        """Return what deleting these rows does, which the queries know."""
        assert not isinstance(query_batch, AskedWeights)
        return query_batch.effects(self, quantity)

    def weight_effects(self, query_batch: AskedWeights | DeletionQueries) -> Effects:
        assert isinstance(query_batch, AskedWeights)
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

    def effects(self, partition: Partition, quantity: Quantity) -> Effects:
        """Return the effects of the rows of a partition: `DELETION`, `FIRST_ORDER` or `CONTRIBUTION`."""


@dataclass(frozen=True)
class AskedWeights(Transferable):
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


@contextmanager
def named(number: int) -> Iterator[None]:
    """Say in which partition an input was found wrong."""
    try:
        yield
    except InputError as error:
        raise InputError(f"In partition {number} (from 0): {error}") from None


def observe(number: int, y: Any, weights: Any, offsets: Any, precision: Precision) -> Observed:
    """Check and round what goes with the rows; 8 bytes per row and number."""
    with named(number):
        n = len(y)
        given = owned(inputs.as_targets(y, n, precision.n_outputs, precision.classes))
        w = inputs.weights_of_some(weights, n)
        o = inputs.as_offsets(offsets, n, precision.n_outputs, "training")
        return Observed(
            given,
            round_to(precision.targets, given),
            None if w is None else round_to(precision.targets, w),
            None if o is None else round_to(precision.offsets, o),
        )


def replay_partition(
    X: Any, observed: Observed, bags: Any, place: Place, shared: Shared
) -> tuple[Partition, Evidence]:
    """Assign the rows to their leaves and walk them through the fit; cost as on one machine, n * T cell numbers kept."""
    X, labels = place.read(X, observed, shared.adapter)
    adapter, n = shared.adapter, len(observed.targets)
    with named(place.number):
        bags = inputs.as_bags(bags, n)
    limits = Limits(shared.n_threads, Budget(None))  # of this worker
    leaves = assign_leaves(adapter, X, n, all_n_leaves(shared.fitted), limits)
    asked = np.arange(0, n, max(1, -(-n // shared.n_checked)))
    structures, sums, scores = [], [], []
    for e, (trees, output) in enumerate(zip(shared.fitted, served(len(shared.fitted)))):
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
    partition = Partition(place.start, observed.given, labels, structures)
    return partition, Evidence(sums, scores)


def together(partition: Partition, entry: int, n_threads: int) -> FloatArray:
    """(L, L): the co-occurrence of leaves in these rows; O(T^2 n)."""
    structure = partition.structures[entry]
    return np.asarray(
        cooccurrence(structure, host_backend(n_threads).rows_of(structure), 0, structure.n_trees)
    )


def furthest_row(
    partition: Partition,
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

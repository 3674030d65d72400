"""Methods that need a number for every training row, while the rows stay on the workers.

Leverages, label checks, influence and changed targets have a number for every training row in
their answer, or in their argument. `GatheredModel` has these numbers, 8 bytes each, in this
process. It is a model like one in memory, but its engines, `PartitionedTrees`, cut vectors over the
training rows along the partitions, and have the workers do what takes the rows: sums over leaves,
and look-ups in tables of leaves. So every method is written once for all places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, cast

import numpy as np

from axil.adapters.contract import TrainingRows
from axil.arrays import FloatArray, IntArray, LeafArray
from axil.attribution import Capabilities, Source
from axil.dask.cluster import Features, Shared, UserValues
from axil.dask.columns import GatheredColumns
from axil.dask.deletions import ErrorSums, PartitionLeftOut
from axil.dask.exact_deletions import GatheredDeletions
from axil.dask.exact_rows import ExactPartition
from axil.dask.fits import (
    Fit,
    RowSums,
    SumsRequest,
    residual_sums,
    residuals,
    sums_of_vectors,
)
from axil.errors import UnsupportedQuestionError
from axil.kernels.choose import host_backend
from axil.reductions import Shards
from axil.replay.exact_model import ExactModel
from axil.replay.fitted_trees import FittedTrees
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import WeightLayout
from axil.structure import Structure
from axil.weights import hat_matrix
from axil.weights.boosting import BoostedTrees, approximate_rows
from axil.weights.engine import Engine, Memory, Seconds, own_leaves
from axil.weights.fit_rules import needs_walk
from axil.weights.forest import is_forest
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.left_out import LeftOut, means
from axil.weights.parts import Parts
from axil.weights.passes import Adjoints
from axil.weights.residuals import predictions
from axil.weights.spread import around_training_rows, known_leaf_sums
from axil.weights.sum_rule import NothingLeft
from axil.weights.tree_answers import ReadOutAnswer
from axil.weights.work import blocks_of

if TYPE_CHECKING:
    from axil.dask.exact_model import PartitionedExactModel

QUICK = Seconds(leverage=0.0, squares=0.0, column=0.0, deletion=0.0, replays=np.inf)
BLOCK_ENTRIES = 1 << 20  # of trees by rows that are looked up at a time


@dataclass(frozen=True, eq=False)
class PartitionedTrees:
    """The engine of one entry of the fitted trees: a `Deletable` over partitions.

    Vectors over the training rows are arrays in this process.
    """

    model: PartitionedExactModel
    entry: int
    known_fit: Fit | None = (
        None  #: of the targets or rows that it is a fit to; None: of all as given
    )

    is_sparse = False

    @property
    def structure(self) -> Structure:
        """The trees, without rows."""
        return self._fit_as_given.structure

    @property
    def structures(self) -> Sequence[Structure]:
        """The trees, as the only structure."""
        return (self.structure,)

    @property
    def _fit_as_given(self) -> Fit:
        if self.known_fit is not None:
            return self.known_fit
        return self.model.refits.fits()[self.entry]

    @property
    def _trees(self) -> BoostedTrees:
        """The trees in the leaf matrix, without rows."""
        return self.model.entries[self.entry]

    @property
    def _leaf_matrix(self) -> LeafMatrix:
        leaf_matrix = self._trees.leaf_matrix
        assert leaf_matrix is not None
        return leaf_matrix

    def _gathered(
        self, work: Callable[..., FloatArray], shared: object, vectors: FloatArray | None = None
    ) -> FloatArray:
        """Return the results of ``work(partition, shared, vectors)`` of all rows, in order."""
        shards = self.model.filled_shards
        columns = None
        if vectors is not None:
            columns = shards.cut(vectors)
        return np.concatenate(shards.collected(work, shared, columns))

    def _sums(self, vectors: FloatArray, with_offsets: bool) -> RowSums:
        """Return the leaf sums of vectors (N, S) in place of the targets."""
        shards = self.model.filled_shards
        with_cooccurrences = needs_walk(self.structure)
        request = SumsRequest(self.entry, with_cooccurrences, self.model.n_threads, with_offsets)
        sums: RowSums = shards.total(sums_of_vectors, request, shards.cut(vectors))
        return sums

    # -- fits --------------------------------------------------------------------------------------

    def fit(self, targets: FloatArray) -> Fit:
        """Return the fit to targets (N, K), with the active set fixed."""
        if self.known_fit is not None:
            return self.known_fit
        fit = self._fit_as_given
        if self._is_as_given(targets):
            return fit
        moved = Fit.of(self._leaf_matrix, self._sums(targets, with_offsets=True))
        if not needs_walk(fit.structure):
            return moved
        shards = self.model.filled_shards
        columns = shards.cut(targets)
        return replace(moved, sums=shards.total(residual_sums, (self.entry, moved), columns))

    def _is_as_given(self, targets: FloatArray) -> bool:
        """Return whether these are the targets of the fit."""
        all_targets = self.model.training.gathered()[0]
        outputs = self.model.weight_layout.output_groups[self.entry]
        return np.array_equal(targets, all_targets[:, outputs])

    def predicted(self, queries: LeafArray | None, targets: FloatArray) -> FloatArray:
        """Return predictions of the fit to targets (N, K), (n, K), without offsets."""
        assert queries is not None  # for the training rows see `GatheredModel.fitted`
        fit = self.fit(targets)
        return fit.predictions(np.ascontiguousarray(own_leaves(fit.structure, queries)))

    def with_targets(self, targets: FloatArray) -> PartitionedTrees:
        """Return the engine of the fit to other targets, (N, K), with an active set of its own."""
        sums = self._sums(targets, with_offsets=True)
        if needs_walk(self.structure):
            return replace(self, known_fit=Fit.by_rule(self.structure, sums))
        return replace(self, known_fit=Fit.of(self._leaf_matrix, sums))

    def matvec(self, queries: LeafArray | None, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return the linear map of vectors (N, S), without its constants, (n, S).

        None stands for the leaves of all training rows.
        """
        s = self.structure
        sums = self._sums(v, with_offsets=False)
        start = np.zeros(v.shape[1])
        if s.initial is None:
            start = sums.moment / sums.weight
        nothing = np.zeros((s.total_leaves, 1))
        constants = self._leaf_matrix.leaf_values(nothing, np.zeros(1))
        values = self._leaf_matrix.leaf_values(sums.started, start) - constants
        if queries is None:
            shared = self.entry, replace(self._fit_as_given, base=start, values=values)
            return self._gathered(rows_of_map, (*shared, self.model.n_threads))
        leaves = np.ascontiguousarray(own_leaves(s, queries))
        return predictions(s, base * start, values, leaves.T)

    def rmatvec(self, queries: LeafArray | None, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return the transposed map of vectors (n, S), (N, S)."""
        assert queries is not None
        trees = self._trees
        leaves = np.ascontiguousarray(own_leaves(trees.structure, queries))
        adjoints, intercepts = trees.mixed_adjoints(leaves, u, base)
        total = trees.structure.total_weight
        shared = self.entry, adjoints, intercepts, total, self.model.n_threads
        return self._gathered(weight_columns, shared)

    # -- statistics of the training rows -----------------------------------------------------------

    def leverage(self, available: int) -> FloatArray:
        """Return the weight of each training row in its own prediction, (N,)."""
        responses = None
        if not is_forest(self.structure):
            responses = self._leaf_matrix.responses
        shared = self.entry, self._fit_as_given, responses, self.model.n_threads
        return self._gathered(leverages_of, shared)

    def squares(self, available: int) -> float:
        """Return the sum of all squared weights of the training rows."""
        s = self.structure
        if is_forest(s):
            raise UnsupportedQuestionError(
                "diagnostics.standard_error",
                "the squared weights of a forest follow from all pairs of leaves that share rows, "
                "which are not counted over partitions",
                'Pass sigma="estimate", or the noise of the targets as a number.',
            )
        shared = self.entry, self._fit_as_given, self.model.n_threads
        grams = self.model.filled_shards.total(row_grams, shared)
        return hat_matrix.squares_of(self._leaf_matrix, grams)

    def approximate_matvec(self, v: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return the product with a matrix close to the map, (N, S), and its diagonal, (N,)."""
        if is_forest(self.structure):
            return None
        sums = self._sums(v, with_offsets=False).started
        shared = self.entry, self._fit_as_given, sums, self.model.n_threads
        pairs = self.model.filled_shards.collected(approximate_rows_of, shared)
        products = np.concatenate([product for product, _ in pairs])
        return products, np.concatenate([diagonal for _, diagonal in pairs])

    def costs(self, available: int) -> Seconds:
        """Return no costs: the workers share them."""
        return QUICK

    def around(self, queries: LeafArray | None, values: FloatArray) -> FloatArray:
        """Return the means of values (N, S) over the other rows in each row's leaves, (N, S)."""
        assert queries is None
        shards = self.model.filled_shards
        shared = self.entry, self.model.n_threads
        sums = shards.total(sums_around, shared, shards.cut(values))
        return self._gathered(means_around, (*shared, sums), values)

    # -- refits without rows -----------------------------------------------------------------------

    def deletable(self, question: str) -> PartitionedTrees:
        """Return this engine; refuse deletions that follow from more than sums over partitions."""
        self.model.refits.refuse_unknown(question)
        return self

    def without(self, rows: IntArray, targets: FloatArray) -> PartitionedTrees:
        """Return the engine of the refit without these rows."""
        fits = self.model.refits.without(self.model.training.positions_by_partition(rows))
        if fits is None:
            raise NothingLeft(
                f"Without {len(rows)} rows no row with a weight is left; ask for a smaller set."
            )
        return replace(self, known_fit=fits[self.entry])

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Return each training row in the refit without it."""
        return joined_left_out(self.model.refits.left_out(self.entry))

    @property
    def memory(self) -> Memory:
        """The bytes that an explained row takes."""
        return Memory(8 * self.structure.total_leaves, 0)

    def prepared(
        self, n_queries: int | None = None, available: int | None = None
    ) -> PartitionedTrees:
        """Return this engine, whose leaf matrix is there."""
        return self


def joined_left_out(results: list[PartitionLeftOut]) -> LeftOut:
    """Return each training row in the refit without it, from the results of all partitions."""
    rest = None
    if results[0].rest is not None:
        rest = np.concatenate([result.rest for result in results])
    emptied = None
    if results[0].emptied is not None:
        emptied = np.concatenate([result.emptied for result in results])
    row_predictions = np.concatenate([result.predictions for result in results])
    error_sums = [result.errors for result in results if result.errors is not None]
    curve = None
    if error_sums:
        curve = KnownCurve.of(reduce(add, error_sums))
    return LeftOut(row_predictions, rest, curve, emptied)


@dataclass(frozen=True)
class KnownCurve:
    """Mean squared errors after numbers of trees; see `axil.weights.left_out.Curve`."""

    trees: IntArray  #: (S,)
    left_out: FloatArray  #: (S, K) of each row in the refit without it
    fitted: FloatArray  #: (S, K) of the same rows in the fit with all
    rows: int

    @classmethod
    def of(cls, sums: ErrorSums) -> KnownCurve:
        """Return the means of errors from their sums over all rows."""
        left_out = means(sums.left_out, sums.weight)
        return cls(sums.trees, left_out, means(sums.fitted, sums.weight), sums.rows)


# -- the work on one partition ---------------------------------------------------------------------


def weight_columns(
    partition: ExactPartition, shared: tuple[int, Adjoints, FloatArray, float, int], _: None
) -> FloatArray:
    """Return the weights of these rows in sums of predictions, (n, S)."""
    entry, adjoints, intercepts, total, n_threads = shared
    structure = replace(partition.structures[entry], total=total, offsets=None)
    trees = BoostedTrees(structure, host_backend(n_threads))
    return np.ascontiguousarray(ReadOutAnswer(trees, adjoints, intercepts).dense().T)


def rows_of_map(partition: ExactPartition, shared: tuple[int, Fit, int], _: None) -> FloatArray:
    """Return the predictions of these rows by a fit, (n, S), without their offsets."""
    entry, fit, n_threads = shared
    fitted = fit.on(partition, entry)
    s = fitted.structure
    row_predictions = np.empty((s.n_rows, fit.values.shape[1]))
    table = np.ascontiguousarray(s.by_cells(fitted.added, drawn=False))
    base = s.initial_in_fit * s.beta[-1] * fit.base
    host_backend(n_threads).rows_of(s).read_out(table, base, None, 0, row_predictions)
    return row_predictions


def approximate_rows_of(
    partition: ExactPartition, shared: tuple[int, Fit, FloatArray, int], _: None
) -> tuple[FloatArray, FloatArray]:
    """Return rows of the product with a matrix that is close to the map, and of its diagonal."""
    entry, fit, sums, n_threads = shared
    s = fit.on(partition, entry).structure
    return approximate_rows(s, host_backend(n_threads).rows_of(s), sums)


def leverages_of(
    partition: ExactPartition, shared: tuple[int, Fit, FloatArray | None, int], _: None
) -> FloatArray:
    """Return the weight of each of these rows in its own prediction, (n,)."""
    entry, fit, responses, n_threads = shared
    s = fit.on(partition, entry).structure
    if not is_forest(s):
        backend = host_backend(n_threads)
        leaf_matrix = LeafMatrix(s, None, backend, responses=responses)
        return hat_matrix.leverage_in_leaf_matrix(leaf_matrix, backend.rows_of(s))
    leverages = np.empty(s.n_rows)
    for rows in blocks_of(s, s.n_trees, BLOCK_ENTRIES):
        parts = Parts.of_rows(s, rows)
        weights = parts.weight * s.linear_leaves.scale[parts.leaf]
        leverages[rows] = s.final @ weights
    return leverages


def row_grams(
    partition: ExactPartition, shared: tuple[int, Fit, int], _: None
) -> hat_matrix.RowGrams:
    """Return the sums over these rows that the squared weights of all rows follow from."""
    entry, fit, n_threads = shared
    s = fit.on(partition, entry).structure
    return hat_matrix.RowGrams.of(s, host_backend(n_threads).rows_of(s))


def sums_around(
    partition: ExactPartition, shared: tuple[int, int], values: FloatArray
) -> FloatArray:
    """Return the leaf sums of known values (n, S); see `known_leaf_sums`."""
    entry, n_threads = shared
    s = partition.structures[entry]
    return known_leaf_sums(s, host_backend(n_threads).rows_of(s), values)


def means_around(
    partition: ExactPartition, shared: tuple[int, int, FloatArray], values: FloatArray
) -> FloatArray:
    """Return the means of values over the other rows in each row's leaves, (n, S)."""
    entry, n_threads, sums = shared
    s = partition.structures[entry]
    return around_training_rows(s, host_backend(n_threads).rows_of(s), sums, values)


# -- the model -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class GatheredModel(ExactModel):
    """A model like one in memory whose rows are on the workers; see the module docstring."""

    _: KW_ONLY
    origin: PartitionedExactModel

    @classmethod
    def of(cls, origin: PartitionedExactModel) -> GatheredModel:
        """Gather targets and labels in this process."""
        n_rows, n_outputs = origin.shape
        origin.budget.require(
            8 * n_rows * (4 * n_outputs + 2),
            f"Numbers for each of {n_rows} training rows, gathered here,",
            "Raise memory_limit.",
        )
        targets, index = origin.training.gathered()
        n_entries = len(origin.training_rows.entries)
        return cls(
            adapter=origin.adapter,
            index=index,
            features=None,
            backend=origin.backend,
            limits=origin.limits,
            verification=origin.verification,
            engines=[cast(Engine, PartitionedTrees(origin, entry)) for entry in range(n_entries)],
            targets=targets,
            rows=TrainingRows(None, targets),
            origin=origin,
        )

    # -- reductions, which run on the partitions ---------------------------------------------------

    @property
    def shards(self) -> Shards:
        """The partitions of the training rows."""
        return self.origin.shards

    @property
    def capabilities(self) -> Capabilities:
        """The methods that the model in partitions answers."""
        return self.origin.capabilities

    def queries(self, X: Features, init_score: UserValues = None) -> QueryBatch:
        """Return the rows of X and their offsets, checked."""
        return self.origin.queries(X, init_score)

    def batches(
        self, queries: QueryBatch, size: int, what: str, even_empty: bool = False
    ) -> Iterator[tuple[int, QueryBatch]]:
        """Yield batches that are small enough to be sent to the workers."""
        return self.origin.batches(queries, size, what, even_empty)

    def asked(self, batch: QueryBatch, source: Source) -> Shared:
        """Return what the workers need to know about a batch."""
        return self.origin.asked(batch, source)

    def ready(self, source: Source, n_queries: int) -> GatheredModel:
        """Return this model: explained rows always go through the leaf matrix."""
        return self

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        """Return the bytes that an explained row takes in this process."""
        return self.origin.bytes_per_query(source, whole)

    @property
    def weight_layout(self) -> WeightLayout:
        """The groups of outputs that share their weights."""
        return self.origin.weight_layout

    # -- the fit -----------------------------------------------------------------------------------

    @property
    def trees(self) -> FittedTrees:  # type: ignore[override]
        """The trees."""
        return self.origin.trees

    @property
    def row_weights(self) -> FloatArray:
        """The weight of each row in the fit, (N,)."""
        return self.origin.kept.get("row weights", self._row_weights)

    def _row_weights(self) -> FloatArray:
        rows = self.origin.training_rows.partitions
        return np.concatenate(
            self.origin.cluster.collect([partition.row_weights for partition in rows])
        )

    def fitted(self) -> FloatArray:
        """Return the training rows' own predictions, (N, K), with the offsets of the fit."""
        shared = self.origin.refits.fits(), self.n_threads
        columns = self.origin.filled_shards.collected(residuals, shared)
        return np.asarray(self.targets - np.concatenate(columns))

    def base_numbers(self) -> FloatArray:
        """Return the part of the initial prediction in every prediction, (K,)."""
        fits = [cast(PartitionedTrees, engine).fit(self.targets) for engine in self.engines]
        return np.concatenate([fit.structure.beta[-1] * fit.base for fit in fits])

    @property
    def deletions(self) -> GatheredDeletions:
        """The refits without some of the training rows."""
        return GatheredDeletions(self)

    @property
    def training(self) -> GatheredColumns:
        """The columns of the training rows."""
        return GatheredColumns(self.origin)

"""Deletions over partitions: refits without sets of rows, and without each single row.

A refit without a set of rows follows from sums over the rows that remain. The refits without each
row by itself follow from the formulas of `axil.weights.deletion`. They need the fit of all rows and
the responses of leaf values to leaf sums, (L, L), which every partition shares; everything else is
a row's own. `Refits` keeps what is made once for a model. The functions below it do the work on one
partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.attribution import Effects, Quantity
from axil.attribution.block_effects import NoEffects
from axil.attribution.weight_effects import DeletionEffects
from axil.dask.cluster import Delayed, delayed_sum, literal, task
from axil.dask.exact_rows import AdjointBatch, ExactPartition, cooccurrences
from axil.dask.fits import (
    Fit,
    RowPart,
    RowSums,
    SumsRequest,
    leaf_matrix_of,
    predictions_of,
    refits_of,
    residual_sums,
    row_sums,
)
from axil.dask.forest_deletions import ForestEffects, left_out_of_forest
from axil.errors import UnsupportedQuestionError
from axil.kernels.choose import host_backend
from axil.replay.queries import QueryBatch
from axil.structure import RowTotals, Structure, Transferable
from axil.weights import removal
from axil.weights.answers import RowEffects
from axil.weights.deletion import InLeafMatrix
from axil.weights.engine import own_leaves
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import is_forest
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.left_out import Curve, LeftOut, error_weights, left_out
from axil.weights.levels import Level, at_share, shares_of
from axil.weights.parts import Parts, RowTest
from axil.weights.passes import Adjoints
from axil.weights.replays import ByReplay, sum_responses
from axil.weights.residuals import FittedValues

if TYPE_CHECKING:
    from axil.dask.exact_model import PartitionedExactModel

IN_MEMORY = "Use training rows in memory."
# Rows that outweigh the rest of a leaf by far: each takes a pass over all rows, as long as the leaf
# matrix does
MOST_REFITS = 64
# different row weights of a partition: of more only some are reported, which are enough to
# interpolate between
MANY_WEIGHTS = 1000


# -- records that travel to the workers ------------------------------------------------------------


@dataclass(frozen=True)
class DeletionPlan(Transferable):
    """The fits of one entry of the fitted trees that deletions of single rows need."""

    fit: Fit  #: with all rows
    levels: list[tuple[float, Fit]]  #: at shares of all weight; see `axil.weights.deletion`
    #: by number among all rows: without a row that the formula does not hold for; None: such rows
    #: are not known yet
    refits: dict[int, Fit] | None


@dataclass(frozen=True)
class Responses(Transferable):
    """The responses of leaf values to leaf sums at every level."""

    tables: list[FloatArray]  #: (L, L) each


@dataclass(frozen=True)
class Planned(Transferable):
    """A batch of explained rows with the fits that effects of deletions are computed from.

    Lists have one member for each entry of the fitted trees.
    """

    batch: AdjointBatch
    plans: list[DeletionPlan]
    responses: list[Responses | None]

    def effects(self, partition: ExactPartition, quantity: Quantity) -> Effects:
        """Return the effects of a partition's rows: `DELETION`, `FIRST_ORDER` or `CONTRIBUTION`."""
        n_explained = len(self.batch.offsets)
        n_outputs = partition.targets.shape[1]
        if not len(partition.index):
            outputs: list[Sequence[int]] = [(k,) for k in range(n_outputs)]
            return NoEffects(outputs, np.zeros((n_explained, n_outputs)), self.batch.first)
        effects = [
            effects_of(partition, entry, plan, responses, quantity, self.batch)
            for entry, (plan, responses) in enumerate(zip(self.plans, self.responses))
        ]
        return DeletionEffects(effects, partition.targets.shape, n_explained)


@dataclass(frozen=True)
class ErrorSums(RowTotals):
    """Sums of squared errors after numbers of trees, of rows with a leave-one-out prediction."""

    trees: IntArray = field(metadata={"both": lambda trees, _: trees})  #: (S,)
    left_out: FloatArray  #: (S, K) of each row in the refit without it
    fitted: FloatArray  #: (S, K) of the same rows in the fit with all
    weight: float
    rows: int


@dataclass(frozen=True)
class PartitionLeftOut:
    """The rows of a partition in the refits without them, of one entry of the fitted trees."""

    predictions: FloatArray  #: (n, K)
    rest: FloatArray | None  #: as in `LeftOut`
    emptied: BoolArray | None  #: as in `LeftOut`
    errors: ErrorSums | None  #: None where the first trees are no model


# -- fits of a model -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Refits:
    """Refits of a model without some of its training rows, which lie in partitions."""

    model: PartitionedExactModel

    def fits(self) -> list[Fit]:
        """Return the fit to the user's targets for each entry; computed once."""
        fits: list[Fit] = self.model.kept.get(
            "fits", lambda: [self._fit(entry) for entry in range(len(self.model.entries))]
        )
        return fits

    def _fit(self, entry: int) -> Fit:
        leaf_matrix = self.model.entries[entry].leaf_matrix
        assert leaf_matrix is not None
        fit = Fit.of(leaf_matrix, self._sums(entry))
        if not needs_walk(fit.structure):
            return fit
        return replace(fit, sums=self.model.shards.total(residual_sums, (entry, fit)))

    def _sums(
        self, entry: int, dropped: Sequence[Delayed] | None = None, with_cooccurrences: bool = False
    ) -> RowSums:
        """Return the sums over all partitions, without the rows at some positions of each."""
        request = SumsRequest(entry, with_cooccurrences, self.model.n_threads)
        sums: RowSums = self.model.shards.total(row_sums, request, dropped)
        return sums

    def without(self, dropped: Sequence[Delayed]) -> list[Fit] | None:
        """Return the refits without rows; None if no weight is left.

        Parameters
        ----------
        dropped : sequence
            The positions of the rows in each partition.
        """
        fits = []
        for entry, trees in enumerate(self.model.training_rows.entries):
            sums = self._sums(entry, dropped, not is_forest(trees.structure))
            if sums.weight <= 0:
                return None
            fits.append(Fit.without(trees.structure, sums, self.model.n_threads))
        return fits

    def predicted(self, fits: list[Fit], batch: QueryBatch) -> FloatArray:
        """Return the predictions of these fits, (n, K), offsets included."""
        predictions = []
        for fit in fits:
            leaves = np.ascontiguousarray(own_leaves(fit.structure, batch.coordinates))
            predictions.append(fit.predictions(leaves, batch.offsets.base))
        return np.concatenate(predictions, axis=1) + batch.offsets.values

    def own_predictions_without(self, positions: Sequence[IntArray]) -> FloatArray:
        """Return the predictions of training rows by the refit without them, (rows, K).

        Parameters
        ----------
        positions : sequence of array
            The positions of the rows in each partition. Predictions are in this order; they are
            nan if no weight is left.
        """
        fits = self.without(list(positions))
        if fits is None:
            return np.full((sum(map(len, positions)), self.model.shape[1]), np.nan)
        shards = self.model.shards
        parts = shards.collected(predictions_of, (fits, self.model.n_threads), list(positions))
        return np.concatenate(parts)

    def refuse_unknown(self, method: str) -> None:
        """Refuse a method whose deletions follow from more than sums over partitions."""
        reason = self.unknown_reason()
        if reason:
            raise UnsupportedQuestionError(method, reason, IN_MEMORY)

    def unknown_reason(self) -> str:
        """Return why sums over partitions do not suffice for refits; "" if they do."""
        for trees in self.model.training_rows.entries:
            rule = rule_of(trees.structure)
            if rule.clips_residuals:
                return (
                    "without some rows other residuals are clipped (Huber's loss), and axil does "
                    "not compute which over partitions"
                )
            if rule.newton.smooths_nodes:
                return (
                    "path_smooth depends on numbers of rows, which axil does not count over "
                    "partitions"
                )
        return ""

    # -- without each row --------------------------------------------------------------------------

    def left_out(self, entry: int) -> list[PartitionLeftOut]:
        """Return the leave-one-out predictions of each partition's rows, for one entry."""
        plans, responses = self.plans(True)
        n_threads = self.model.n_threads
        return self.model.cluster.collect(
            [
                task(left_out_rows, rows, entry, plans, responses[entry], n_threads)
                for rows in self.model.training_rows.partitions
            ]
        )

    def left_out_predictions(self) -> list[Delayed]:
        """Return the leave-one-out predictions (n, K) of the rows of each partition."""
        self.refuse_unknown("diagnostics.leave_one_out")
        plans, responses = self.plans(True)
        n_threads = self.model.n_threads
        return [
            task(left_out_predictions, rows, plans, responses, n_threads)
            for rows in self.model.training_rows.partitions
        ]

    def n_refits(self) -> int:
        """Return the number of rows whose leave-one-out fit must be computed again."""
        plans: list[DeletionPlan] = self.model.cluster.collect([self.plans(True)[0]])[0]
        return max(len(plan.refits or ()) for plan in plans)

    def plans(self, exact: bool) -> tuple[Delayed, list[Delayed]]:
        """Return the plans of all entries, shared, and their responses, on the workers.

        Without ``exact`` there are neither levels nor responses.
        """
        self.fits()
        plans: tuple[Delayed, list[Delayed]] = self.model.kept.get(
            ("plans", exact), lambda: self._plans(exact)
        )
        return plans

    def _plans(self, exact: bool) -> tuple[Delayed, list[Delayed]]:
        plans = []
        all_responses = []
        for entry, fit in enumerate(self.fits()):
            if exact and not is_forest(fit.structure):
                plan, responses = self._exact_plan(entry, fit)
            else:
                plan = DeletionPlan(fit, [(0.0, fit)], {})
                responses = None
            plans.append(plan)
            all_responses.append(responses)
        return self.model.cluster.share(plans), all_responses

    def _exact_plan(self, entry: int, fit: Fit) -> tuple[DeletionPlan, Delayed]:
        cluster = self.model.cluster
        n_threads = self.model.n_threads
        partitions = self.model.training_rows.partitions
        weights = cluster.collect([task(row_weights_of, rows, entry) for rows in partitions])
        distinct_weights = np.unique(np.concatenate(weights))
        shares = [float(share) for share in shares_of(fit.structure, distinct_weights)]
        structures = [at_share(fit.structure, share) for share in shares]
        together = delayed_sum([task(cooccurrences, rows, entry, n_threads) for rows in partitions])
        sums = self._sums(entry)
        pair = task(levels_of, together, literal(structures), literal(sums), n_threads)
        level_fits, responses = cluster.hold([pair[0], pair[1]])
        levels = list(zip(shares, cluster.collect([level_fits])[0]))
        plan = DeletionPlan(fit, levels, {})
        refits = self._refits(entry, plan, responses, together, sums)
        return replace(plan, refits=refits), responses

    def _refits(
        self, entry: int, plan: DeletionPlan, responses: Delayed, together: Delayed, sums: RowSums
    ) -> dict[int, Fit]:
        """Return the refits without rows that the formula does not hold for, by row number.

        See `InLeafMatrix.by_replay`. ``together`` (L, L) are the co-occurrences of leaves over all
        rows.
        """
        structure = plan.fit.structure
        cluster = self.model.cluster
        n_threads = self.model.n_threads
        shared_structure = literal(structure)
        sum_table = None
        if needs_walk(structure) and structure.linear_leaves.mixing is None:
            (sum_table,) = cluster.hold(
                [task(responses_of_sums, together, shared_structure, n_threads)]
            )
        shared_plan = literal(plan)
        partitions = self.model.training_rows.partitions
        pairs = cluster.collect(
            [
                task(replayed_rows, rows, entry, shared_plan, responses, sum_table, n_threads)
                for rows in partitions
            ]
        )
        heavy_rows = [heavy for heavy, _ in pairs]
        changing_rows = [changing for _, changing in pairs]
        self._require_few(sum(map(len, heavy_rows)), sum(map(len, changing_rows)), structure)
        refits: dict[int, Fit] = {}
        if any(changing_rows):
            work = task(
                refits_of,
                together,
                shared_structure,
                literal(sums),
                literal(changing_rows),
                n_threads,
            )
            refits = cluster.collect([work])[0]
        for partition, rows in enumerate(heavy_rows):
            start = int(self.model.shards.starts[partition])
            for row in rows:
                dropped: list[list[int]] = [[]] * len(partitions)
                dropped[partition] = [row]
                remaining_sums = self._sums(entry, dropped, with_cooccurrences=True)
                if remaining_sums.weight > 0:
                    refits[start + row] = Fit.without(structure, remaining_sums, n_threads)
        return refits

    def _require_few(self, n_heavy: int, n_changing: int, structure: Structure) -> None:
        """Refuse more refits without single rows than passes over all rows, or memory, allow."""
        if n_heavy > MOST_REFITS:
            raise UnsupportedQuestionError(
                "removal",
                f"{n_heavy} training rows outweigh all others in one of their leaves by far, and "
                "each takes a refit without it over all partitions (at most "
                f"{MOST_REFITS} are made)",
                'Use method="first-order", without(X, rows) for some rows, or training rows in '
                "memory.",
            )
        self.model.budget.require(
            8 * 8 * n_changing * structure.total_leaves,
            f"The refits without {n_changing:,} training rows, which may change the active set "
            "(L1, clips, bounds),",
            "Ask without(X, rows) for some rows, use training rows in memory, or raise "
            "memory_limit.",
        )


# -- what all partitions share ---------------------------------------------------------------------


def row_weights_of(partition: ExactPartition, entry: int) -> FloatArray:
    """Return the distinct weights of these rows, sorted, with the smallest and the largest."""
    structure = partition.structures[entry]
    if structure.row_weights is None:
        return np.ones(min(structure.n_rows, 1))
    weights = np.unique(structure.row_weights)
    if len(weights) <= MANY_WEIGHTS:
        return weights
    return weights[np.linspace(0, len(weights) - 1, MANY_WEIGHTS).astype(np.intp)]


def levels_of(
    together: FloatArray, structures: list[Structure], sums: RowSums, n_threads: int
) -> tuple[list[Fit], Responses]:
    """Return the fits of structures at several shares, and their responses.

    ``together`` (L, L) are the co-occurrences of leaves over all rows.
    """
    matrices = [leaf_matrix_of(structure, together, n_threads) for structure in structures]
    fits = [Fit.of(leaf_matrix, sums) for leaf_matrix in matrices]
    return fits, Responses([leaf_matrix.responses for leaf_matrix in matrices])


def responses_of_sums(together: FloatArray, structure: Structure, n_threads: int) -> FloatArray:
    """Return the responses of leaf sums to leaf sums, (L, L), from co-occurrences over all rows."""
    return sum_responses(structure, np.array(together, order="C"), host_backend(n_threads))


# -- the work on one partition ---------------------------------------------------------------------


def replayed_rows(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses,
    sum_table: FloatArray | None,
    n_threads: int,
) -> tuple[list[int], list[RowPart]]:
    """Return the rows whose deletion needs a replay, because the formula does not apply.

    Parameters
    ----------
    partition : ExactPartition
    entry : int
    plan : DeletionPlan
    responses : Responses
    sum_table : array of shape (L, L), optional
        The responses of leaf sums to leaf sums, where there is an active set.
    n_threads : int

    Returns
    -------
    list of int, list of RowPart
        The positions of the rows that outweigh the rest of a leaf, and the other rows.
    """
    structure = plan.fit.on(partition, entry).structure
    n_rows = len(partition.index)
    if not n_rows:
        return [], []
    every_row = slice(0, n_rows)
    is_heavy = RowTest(structure, Parts.dominant)(every_row)
    if structure.linear_leaves.mixing is not None:
        rows = np.arange(n_rows)  # leaves depend on others, and no formula knows how
    else:
        unknown = replace(plan, refits=None)
        deletion = deletion_of(partition, entry, unknown, responses, n_threads, sum_table)
        rows = deletion.by_replay(every_row)
    light_rows = [RowPart.of(partition, entry, int(row)) for row in rows if not is_heavy[row]]
    return np.flatnonzero(is_heavy).tolist(), light_rows


def effects_of(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses | None,
    quantity: Quantity,
    batch: AdjointBatch,
) -> Sequence[RowEffects]:
    """Return the effects of these rows on each output of an entry."""
    fitted = plan.fit.on(partition, entry)
    leaves = batch.leaves[entry]
    rows = host_backend(batch.n_threads).rows_of(fitted.structure)
    if quantity is Quantity.CONTRIBUTION:
        return removal.contributions(rows, fitted, leaves)
    if quantity is Quantity.FIRST_ORDER:
        adjoints = Adjoints(batch.phi[entry], batch.beta[entry])
        return [removal.ReadOutEffects(fit, adjoints) for fit in removal.fits(rows, fitted)]
    if is_forest(fitted.structure):
        return [
            ForestEffects(fitted, leaves, output, batch.n_threads, plan.fit.mean)
            for output in range(fitted.values.shape[1])
        ]
    assert responses is not None
    deletion = deletion_of(partition, entry, plan, responses, batch.n_threads)
    return deletion.effects(leaves)


def deletion_of(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses,
    n_threads: int,
    sum_table: FloatArray | None = None,
) -> InLeafMatrix:
    """Return the refits without each of these rows; see `replayed_rows`."""
    backend = host_backend(n_threads)
    levels = []
    refits = plan.refits
    start = partition.start
    for (share, fit), table in zip(plan.levels, responses.tables):
        fitted = fit.on(partition, entry)
        leaf_matrix = LeafMatrix(fitted.structure, None, backend, responses=table)
        levels.append(Level.of(share, backend.rows_of(fitted.structure), fitted, leaf_matrix))

    def refit(row: int, targets: FloatArray) -> FittedValues:
        assert refits is not None
        return refits[start + row].on(partition, entry)

    def is_refitted(rows: slice) -> BoolArray:
        return np.isin(np.arange(start + rows.start, start + rows.stop), list(refits or ()))

    by_replay = ByReplay(plan.fit.on(partition, entry), refit)
    if refits is None:
        return InLeafMatrix(levels, by_replay, 0, sum_table)
    return InLeafMatrix(levels, by_replay, 0, sum_table, is_refitted)


def left_out_rows(
    partition: ExactPartition,
    entry: int,
    plans: list[DeletionPlan],
    responses: Responses | None,
    n_threads: int,
) -> PartitionLeftOut:
    """Return the leave-one-out predictions of these rows for one entry of the fitted trees."""
    if not len(partition.index):
        empty = np.empty((0, partition.own_targets(entry).shape[1]))
        return PartitionLeftOut(empty, empty, np.empty(0, dtype=np.bool_), None)
    rows = _left_out(partition, entry, plans[entry], responses, n_threads)
    return PartitionLeftOut(rows.predictions, rows.rest, rows.emptied, _error_sums(rows))


def _left_out(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses | None,
    n_threads: int,
) -> LeftOut:
    if is_forest(plan.fit.structure):
        fitted = plan.fit.on(partition, entry)
        predictions = left_out_of_forest(fitted, plan.fit.mean, fitted.targets.shape[1])
        return LeftOut(predictions, emptied=np.asarray(np.isnan(predictions).any(axis=1)))
    assert responses is not None
    return left_out(deletion_of(partition, entry, plan, responses, n_threads))


def _error_sums(rows: LeftOut) -> ErrorSums | None:
    """Return the sums from which the mean errors of a curve follow."""
    curve = rows.curve
    if not isinstance(curve, Curve):
        return None
    structure = curve.model.structure
    weight = float(error_weights(structure, slice(0, structure.n_rows), curve.is_counted).sum())
    return ErrorSums(
        curve.trees,
        np.nan_to_num(curve.left_out) * weight,
        np.nan_to_num(curve.fitted) * weight,
        weight,
        curve.rows,
    )


def left_out_predictions(
    partition: ExactPartition,
    plans: list[DeletionPlan],
    responses: list[Responses | None],
    n_threads: int,
) -> FloatArray:
    """Return the leave-one-out predictions of these rows, (n, K); nan if there is none."""
    if not len(partition.index):
        return np.empty(partition.targets.shape)
    columns = [
        _left_out(partition, entry, plan, tables, n_threads).predictions
        for entry, (plan, tables) in enumerate(zip(plans, responses))
    ]
    return np.concatenate(columns, axis=1)

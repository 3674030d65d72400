"""The work on one partition for deletions: what predictions would change by without each of its rows, and its rows without them.

The formulas are those of `axil.weights.deletion`. They need the fit of all rows and the responses
of leaf values to leaf sums, (L, L), which every partition shares; the rest is a row's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.attribution import Effects, Quantity
from axil.attribution.block_effects import NoEffects
from axil.attribution.weight_effects import DeletionEffects
from axil.dask.exact_rows import AdjointBatch, ExactPartition
from axil.dask.fits import Fit, RowPart, RowSums, space_of
from axil.kernels.choose import host_backend
from axil.structure import NewtonRule, Structure, Transferable
from axil.weights import removal
from axil.weights.answers import RowEffects
from axil.weights.deletion import InLeafMatrix
from axil.weights.deletion_work import blocks_of
from axil.weights.forest import is_forest
from axil.weights.inherited import InheritedValues
from axil.weights.leaf_matrix import LeafMatrix, asked
from axil.weights.left_out import left_out
from axil.weights.levels import Level
from axil.weights.parts import Parts, RowTest, remaining_weight
from axil.weights.passes import Adjoints
from axil.weights.replays import ByReplay, sum_responses
from axil.weights.residuals import FittedValues

BLOCK_ENTRIES = 1 << 20  # of trees, or queries, by rows that are worked on at a time
# different row weights of a partition: of more only some are reported, which are enough to
# interpolate between
MANY = 1000


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
    """QueryBatch with the fits that effects of deletions are computed from; lists have one for each entry of the fitted trees."""

    batch: AdjointBatch
    plans: list[DeletionPlan]
    responses: list[Responses | None]

    def effects(self, partition: ExactPartition, quantity: Quantity) -> Effects:
        """Return the effects of a partition's rows: `DELETION`, `FIRST_ORDER` or `CONTRIBUTION`."""
        n_queries = len(self.batch.offsets)
        n_outputs = partition.targets.shape[1]
        if not len(partition.index):
            outputs: list[Sequence[int]] = [(k,) for k in range(n_outputs)]
            return NoEffects(outputs, np.zeros((n_queries, n_outputs)), self.batch.first)
        effects = [
            effects_of(partition, entry, plan, responses, quantity, self.batch)
            for entry, (plan, responses) in enumerate(zip(self.plans, self.responses))
        ]
        return DeletionEffects(effects, partition.targets.shape, n_queries)


def row_weights_of(partition: ExactPartition, entry: int) -> FloatArray:
    """Return the different row weights of these rows, sorted, the least and the largest among them."""
    structure = partition.structures[entry]
    if structure.row_weights is None:
        return np.ones(min(structure.n_rows, 1))
    weights = np.unique(structure.row_weights)
    if len(weights) <= MANY:
        return weights
    return weights[np.linspace(0, len(weights) - 1, MANY).astype(np.intp)]


def levels_of(
    together: FloatArray, structures: list[Structure], sums: RowSums, n_threads: int
) -> tuple[list[Fit], Responses]:
    """The fits of structures at several shares, and their responses, from co-occurrences over all rows, (L, L)."""
    spaces = [space_of(s, together, n_threads) for s in structures]
    return [Fit.of(space, sums) for space in spaces], Responses(
        [space.responses for space in spaces]
    )


def responses_of_sums(together: FloatArray, structure: Structure, n_threads: int) -> FloatArray:
    """(L, L): the responses of leaf sums to leaf sums, from co-occurrences over all rows."""
    return sum_responses(structure, np.array(together, order="C"), host_backend(n_threads))


def replayed_rows(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses,
    sum_table: FloatArray | None,
    n_threads: int,
) -> tuple[list[int], list[RowPart]]:
    """Return the rows that the formula does not hold for.

    Parameters
    ----------
    sum_table : array of shape (L, L), optional
        The responses of leaf sums to leaf sums, where there is an active set.

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
    if (
        structure.linear_leaves.mixing is not None
    ):  # leaves depend on others, and no formula knows how
        rows = np.arange(n_rows)
    else:
        unknown = replace(plan, refits=None)
        deletion = deletion_of(partition, entry, unknown, responses, n_threads, sum_table)
        rows = deletion.by_replay(every_row)
    others = [RowPart.of(partition, entry, int(row)) for row in rows if not is_heavy[row]]
    return np.flatnonzero(is_heavy).tolist(), others


def effects_of(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses | None,
    quantity: Quantity,
    batch: AdjointBatch,
) -> Sequence[RowEffects]:
    """Return the effects of these rows on each output that an entry serves."""
    fitted = plan.fit.on(partition, entry)
    query_leaves = batch.leaves[entry]
    rows = host_backend(batch.n_threads).rows_of(fitted.structure)
    if quantity is Quantity.CONTRIBUTION:
        return removal.pushes(rows, fitted, query_leaves)
    if quantity is Quantity.FIRST_ORDER:
        adjoints = Adjoints(batch.phi[entry], batch.beta[entry])
        return [removal.ReadOutEffects(fit, adjoints) for fit in removal.fits(rows, fitted)]
    if is_forest(fitted.structure):
        return [
            ForestEffects(fitted, query_leaves, output, batch.n_threads, plan.fit.mean)
            for output in range(fitted.values.shape[1])
        ]
    assert responses is not None
    deletion = deletion_of(partition, entry, plan, responses, batch.n_threads)
    return deletion.effects(query_leaves)


def deletion_of(
    partition: ExactPartition,
    entry: int,
    plan: DeletionPlan,
    responses: Responses,
    n_threads: int,
    sums: FloatArray | None = None,
) -> InLeafMatrix:
    """Return the fits without each of these rows."""
    backend = host_backend(n_threads)
    levels = []
    refits = plan.refits
    start = partition.start
    for (share, fit), table in zip(plan.levels, responses.tables):
        fitted = fit.on(partition, entry)
        space = LeafMatrix(fitted.structure, None, backend, responses=table)
        levels.append(Level.of(share, backend.rows_of(fitted.structure), fitted, space))

    def refit(row: int, targets: FloatArray) -> FittedValues:
        assert refits is not None
        return refits[start + row].on(partition, entry)

    def again(rows: slice) -> BoolArray:
        return np.isin(np.arange(start + rows.start, start + rows.stop), list(refits or ()))

    replayed = ByReplay(plan.fit.on(partition, entry), refit)
    return InLeafMatrix(levels, replayed, 0, sums, None if refits is None else again)


@dataclass(frozen=True)
class ForestEffects(RowEffects):
    """Changes of n predictions of one output on deleting each row of a forest: its own leaves change alone."""

    fitted: FittedValues
    queries: LeafArray
    output: int
    n_threads: int
    mean: FloatArray  #: (K,) of the targets of all rows

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        s = self.fitted.structure
        n = len(self.queries)
        rows = host_backend(self.n_threads).rows_of(s)
        table = s.by_cells(asked(s, self.queries), drawn=False)
        beside = beside_of(self.fitted)
        for part in blocks_of(s, max(n, s.n_trees), BLOCK_ENTRIES):
            out = np.empty((part.stop - part.start, n))
            changes = forest_changes(self.fitted, part, beside, self.mean)[:, :, self.output]
            rows.scaled_read_out(table, np.ascontiguousarray(changes), part.start, out)
            yield part.start, out


def beside_of(fitted: FittedValues) -> InheritedValues:
    """Return the values that the leaves of a forest would have without any row of theirs."""
    scale = fitted.structure.linear_leaves.scale[:, None]
    sums = np.divide(fitted.values, scale, out=np.zeros_like(fitted.values), where=scale > 0)
    return InheritedValues(fitted.structure, sums)


def forest_changes(
    fitted: FittedValues, rows: slice, beside: InheritedValues, mean: FloatArray
) -> FloatArray:
    """Return the changes of the values of each row's leaves without it, (T, rows, K).

    ``mean`` (K,): of the targets of all rows, in all partitions.
    """
    s = fitted.structure
    parts = Parts.of_rows(fitted.structure, rows)
    rule = s.newton_rule
    targets = fitted.targets[rows]
    left = parts.left(s)
    drawn = parts.weight != 0
    after = NewtonRule(rule.l2[parts.leaf], rule.steps[parts.leaf]).scale(left)[:, :, None]
    made = after * (beside.sums[parts.leaf] - parts.weight[:, :, None] * targets)

    if s.row_weights is None:
        weights = np.ones(len(targets))
    else:
        weights = s.row_weights[rows]
    others = remaining_weight(np.full(len(targets), s.total_weight), weights)[:, None]
    rest = s.total_weight * mean - weights[:, None] * targets
    of_others = np.divide(rest, others, out=np.full_like(rest, np.nan), where=others > 0)
    inherited = np.where(
        beside.has_rows[parts.leaf][:, :, None], beside.values[parts.leaf], of_others
    )

    changes = np.where((left == 0)[:, :, None], inherited, made) - fitted.values[parts.leaf]
    return np.where(drawn[:, :, None], changes, 0.0)


def alone(
    partition: ExactPartition,
    plans: list[DeletionPlan],
    responses: list[Responses | None],
    n_threads: int,
) -> FloatArray:
    """Return the leave-one-out predictions of these rows, (n, K); nan where there is none."""
    n_outputs = partition.targets.shape[1]
    predictions = []
    for entry, (plan, tables) in enumerate(zip(plans, responses)):
        if is_forest(plan.fit.structure):
            fitted = plan.fit.on(partition, entry)
            predictions.append(_forest_alone(fitted, plan.fit.mean, n_outputs))
        else:
            assert tables is not None
            deletion = deletion_of(partition, entry, plan, tables, n_threads)
            predictions.append(left_out(deletion).predictions)
    return np.concatenate(predictions, axis=1)


def _forest_alone(fitted: FittedValues, mean: FloatArray, n_outputs: int) -> FloatArray:
    """Return the leave-one-out predictions (n, K) of the rows of a forest."""
    s = fitted.structure
    beside = beside_of(fitted)
    predictions = np.empty_like(fitted.targets)
    for rows in blocks_of(s, s.n_trees * n_outputs, BLOCK_ENTRIES):
        changes = forest_changes(fitted, rows, beside, mean)
        moved = np.einsum("t,tjk->jk", s.final, changes)
        predictions[rows] = fitted.predictions(s.leaves(rows)) + moved
    return predictions

"""Fits over partitions: initial prediction and leaf values, with all rows or without some of them.

Leaf sums and co-occurrences of leaves are sums over partitions. The fit follows from these where
they are added up. Given the leaf values, everything about a row depends on that row alone:
`Fit.on` puts a partition's rows into the fit of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.attribution.leaf_matches import TreeWeights, count_rows
from axil.dask.exact_rows import ExactPartition
from axil.kernels.choose import host_backend
from axil.machine.blocks import spans
from axil.structure import RowTotals, Structure, Transferable
from axil.weights.fit_rules import needs_walk
from axil.weights.forest import is_forest
from axil.weights.inherited import inherited_values
from axil.weights.leaf_matrix import LeafMatrix, cooccurrence
from axil.weights.parts import Parts, remaining_weight
from axil.weights.passes import leaf_sums
from axil.weights.residuals import FittedValues, predictions
from axil.weights.sum_rule import (
    rescaled,
    sums_by_rule,
    with_leaf_weights,
)

BLOCK_ENTRIES = 1 << 20  # residuals of trees by rows that are walked at a time


# -- sums over the rows ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RowSums(RowTotals):
    """The sums over rows that a fit to them starts from."""

    weight: float
    n_rows: int  #: rows without weight count
    moment: FloatArray  #: (K,) of weight * target
    leaf_weights: FloatArray  #: (L,)
    started: FloatArray  #: (L, K) of weight * count in the sample * (target - offset)
    #: (L, L) co-occurrences of leaves; None where they are not counted
    together: FloatArray | None


@dataclass(frozen=True)
class SumsRequest(Transferable):
    """The request for `RowSums` of a partition, in one entry of the fitted trees."""

    entry: int
    with_cooccurrences: bool
    n_threads: int
    with_offsets: bool = True  #: whether the offsets of the rows are taken off their targets


def row_sums(
    partition: ExactPartition,
    request: SumsRequest,
    dropped: Sequence[int] | None = None,
    targets: FloatArray | None = None,
) -> RowSums:
    """Return sums over the rows of a partition.

    Parameters
    ----------
    partition : ExactPartition
    request : SumsRequest
    dropped : sequence of int, optional
        The positions of rows that are left out.
    targets : array of shape (n, K), optional
        Other targets than those of the rows.
    """
    s = partition.structures[request.entry]
    if targets is None:
        targets = partition.own_targets(request.entry)
    weights = s.row_weights
    n_dropped = 0
    if dropped is not None and len(dropped):
        if weights is None:
            weights = np.ones(s.n_rows)
        weights = weights.copy()
        weights[dropped] = 0.0
        n_dropped = len(np.unique(np.asarray(dropped, dtype=np.intp)))
    if weights is not s.row_weights:
        s = replace(s, row_weights=weights)
    rows = host_backend(request.n_threads).rows_of(s)
    started = np.ascontiguousarray(targets)
    if s.offsets is not None and request.with_offsets:
        started = targets - s.offsets
    if weights is None:
        weight = float(s.n_rows)
        moment = targets.sum(axis=0)
    else:
        weight = float(weights.sum())
        moment = weights @ targets
    together = None
    if request.with_cooccurrences:
        together = np.asarray(cooccurrence(s, rows, 0, s.n_trees))
    return RowSums(
        weight,
        s.n_rows - n_dropped,
        moment,
        leaf_sums(s, rows, np.ones((s.n_rows, 1)))[:, 0],
        leaf_sums(s, rows, started),
        together,
    )


def sums_of_vectors(
    partition: ExactPartition, request: SumsRequest, vectors: FloatArray
) -> RowSums:
    """Return sums over the rows of a partition, with vectors (n, S) in place of their targets."""
    return row_sums(partition, request, None, vectors)


# -- the fit ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit(Transferable):
    """A fit in float64 of one entry of the fitted trees; its structure has no rows."""

    structure: Structure
    base: FloatArray  #: (K,)
    values: FloatArray  #: (L, K) leaf values before the learning rate
    #: (L, K) which they are made of, with what clipped residuals put in; zeros unless trees are
    #: averaged or have an active set
    sums: FloatArray
    mean: FloatArray  #: (K,) the weighted mean of the targets

    @classmethod
    def of(cls, leaf_matrix: LeafMatrix, sums: RowSums) -> Fit:
        """Return the fit from the sums of its rows, with the active set of the leaf matrix."""
        s = leaf_matrix.structure
        mean = sums.moment / sums.weight
        base = _initial_prediction(s, mean)
        values = leaf_matrix.leaf_values(sums.started, base)
        value_sums = np.zeros_like(values)
        if s.averages:
            value_sums = sums.started - np.outer(s.initial_in_sums, base)
            values = inherited_values(s, values, value_sums, mean)
        return cls(s, base, values, value_sums, mean)

    @classmethod
    def by_rule(cls, structure: Structure, sums: RowSums) -> Fit:
        """Return the fit from the sums of its rows, with its own active set.

        Its values serve predictions alone: the structure has the active set of the model.
        """
        assert sums.together is not None
        mean = sums.moment / sums.weight
        base = _initial_prediction(structure, mean)
        values, value_sums = sums_by_rule(structure, sums.together, sums.started, base)
        values = inherited_values(structure, values, value_sums, mean)
        return cls(structure, base, values, value_sums, mean)

    @classmethod
    def without(cls, structure: Structure, sums: RowSums, n_threads: int) -> Fit:
        """Return the fit to the rows that remain after a deletion; see `axil.weights.sum_rule`.

        Parameters
        ----------
        structure : Structure
            The structure of the fit with all rows.
        sums : RowSums
            Sums over the rows that remain, with co-occurrences unless trees do not see each other.
        n_threads : int
        """
        mean_weight = structure.total_weight / structure.n_present
        rule = structure.newton_rule.scaled(sums.weight / sums.n_rows / mean_weight)
        rule = rule.emptied((structure.leaf_weights > 0) & (sums.leaf_weights == 0))
        s = replace(
            with_leaf_weights(structure, sums.leaf_weights, rule),
            total=sums.weight,
            total_rows=sums.n_rows,
        )
        if needs_walk(s):
            return cls.by_rule(s, sums)
        return cls.of(leaf_matrix_of(rescaled(s), sums.together, n_threads), sums)

    def on(
        self, partition: ExactPartition, entry: int, targets: FloatArray | None = None
    ) -> FittedValues:
        """Return this fit with a partition's rows in it, and their targets or others."""
        rows = partition.structures[entry]
        s = replace(
            self.structure,
            cells=rows.cells,
            row_weights=rows.row_weights,
            offsets=rows.offsets,
            sample_counts=rows.sample_counts,
        )
        if targets is None:
            targets = partition.own_targets(entry)
        return FittedValues(s, targets, self.base, self.values, self.sums)

    def predictions(self, leaves: NDArray[np.integer], base: float = 1.0) -> FloatArray:
        """Return predictions in these leaves, (n, T), without offsets, (n, K).

        ``base`` is how often the initial prediction counts.
        """
        return predictions(self.structure, base * self.base, self.values, leaves.T)


def _initial_prediction(structure: Structure, mean: FloatArray) -> FloatArray:
    """Return the initial prediction of a fit to targets of this mean, (K,)."""
    if structure.initial is None:
        return mean
    return structure.initial


def leaf_matrix_of(structure: Structure, together: FloatArray | None, n_threads: int) -> LeafMatrix:
    """Return the leaf matrix from co-occurrences over all rows, which are not changed."""
    if is_forest(structure):
        return LeafMatrix(structure, None, host_backend(n_threads))
    assert together is not None
    return LeafMatrix.of(structure, np.array(together, order="C"), host_backend(n_threads))


# -- refits without one row ------------------------------------------------------------------------


@dataclass(frozen=True)
class RowPart:
    """The part of one row in the sums over all rows."""

    number: int  #: among all rows
    weight: float
    target: FloatArray  #: (K,)
    started: FloatArray  #: (K,) target less offset
    leaves: NDArray[np.int64]  #: (T,) among all L
    tree_weights: FloatArray  #: (T,) weight * count in the sample of the tree

    @classmethod
    def of(cls, partition: ExactPartition, entry: int, row: int) -> RowPart:
        """Return the part of the row at this position of a partition."""
        s = partition.structures[entry]
        parts = Parts.of_rows(s, slice(row, row + 1))
        target = partition.own_targets(entry)[row]
        weight = 1.0
        if s.row_weights is not None:
            weight = float(s.row_weights[row])
        started = target
        if s.offsets is not None:
            started = target - s.offsets[row]
        return cls(
            number=partition.start + row,
            weight=weight,
            target=target,
            started=started,
            leaves=parts.leaf[:, 0],
            tree_weights=np.array(parts.weight[:, 0]),
        )

    def removed_from(self, sums: RowSums) -> RowSums:
        """Return the sums over all rows without this one; co-occurrences are changed in place."""
        assert sums.together is not None
        leaf_weights = sums.leaf_weights.copy()
        started = sums.started.copy()
        leaf_weights[self.leaves] = remaining_weight(leaf_weights[self.leaves], self.tree_weights)
        started[self.leaves] -= self.tree_weights[:, None] * self.started
        pairs = np.triu(np.tile(self.tree_weights, (len(self.tree_weights), 1)), 1)
        sums.together[np.ix_(self.leaves, self.leaves)] -= pairs
        moment = sums.moment - self.weight * self.target
        return RowSums(
            sums.weight - self.weight, sums.n_rows - 1, moment, leaf_weights, started, sums.together
        )


def refits_of(
    together: FloatArray,
    structure: Structure,
    sums: RowSums,
    rows_by_partition: list[list[RowPart]],
    n_threads: int,
) -> dict[int, Fit]:
    """Return refits without single rows, by their number, from sums over all rows.

    Each takes L^2 multiplications, and no pass over rows.
    """
    fits = {}
    together = np.array(together, order="C")
    for rows in rows_by_partition:
        for row in rows:
            pairs = np.ix_(row.leaves, row.leaves)
            before = together[pairs]
            remaining_sums = row.removed_from(replace(sums, together=together))
            if remaining_sums.weight > 0:
                fits[row.number] = Fit.without(structure, remaining_sums, n_threads)
            together[pairs] = before
    return fits


# -- rows in a fit ---------------------------------------------------------------------------------


def residual_sums(
    partition: ExactPartition, shared: tuple[int, Fit], targets: FloatArray | None
) -> FloatArray:
    """Return the leaf sums of the residuals of these rows, (L, K), by a fit to all rows.

    ``shared`` has the entry of the fitted trees, and the fit. ``targets`` are others than those of
    the rows, (n, K).
    """
    entry, fit = shared
    fitted = fit.on(partition, entry, targets)
    s = fitted.structure
    sums = np.zeros_like(fit.values)
    for rows in spans(s.n_rows, max(1, BLOCK_ENTRIES // s.n_trees)):
        if s.row_weights is None:
            weights = np.ones(rows.stop - rows.start)
        else:
            weights = s.row_weights[rows]
        for step in fitted.steps(rows):
            np.add.at(sums, step.leaf, (weights * step.count)[:, None] * step.residual)
    return sums


def residuals(
    partition: ExactPartition, shared: tuple[list[Fit], int], _: None = None
) -> FloatArray:
    """Return targets less the predictions of these rows, (n, K).

    The offsets of the rows may stand in for the initial prediction. ``shared`` has the fit of each
    entry of the fitted trees, and the number of threads.
    """
    columns = []
    fits, n_threads = shared
    for entry, fit in enumerate(fits):
        fitted = fit.on(partition, entry)
        s = fitted.structure
        row_predictions = np.empty_like(fitted.targets)
        table = np.ascontiguousarray(s.by_cells(fitted.added, drawn=False))
        base = s.initial_in_fit * s.beta[-1] * fit.base
        host_backend(n_threads).rows_of(s).read_out(table, base, None, 0, row_predictions)
        columns.append(fitted.started() - row_predictions)
    return np.concatenate(columns, axis=1)


def predictions_of(
    partition: ExactPartition, shared: tuple[list[Fit], int], rows: IntArray
) -> FloatArray:
    """Return predictions of rows by position, (rows, K), offsets included; see `residuals`."""
    return np.asarray((partition.targets - residuals(partition, shared))[rows])


def leaf_row_counts(partition: ExactPartition, entry: int, _: None = None) -> IntArray:
    """Return the number of these rows in each leaf, (L,)."""
    structure = partition.structures[entry]
    return count_rows(structure.leaves(), structure.starts)


@dataclass(frozen=True, eq=False)
class FitTreeWeights(TreeWeights):
    """The weight of each tree for each row: by how much it reduced the row's error."""

    fits: list[Fit] = field(default_factory=list)

    def on(self, shard: object) -> TreeWeights:
        """Return the weights of trees for the rows of a partition."""
        assert isinstance(shard, ExactPartition)
        fits_here = [fit.on(shard, entry) for entry, fit in enumerate(self.fits)]
        return TreeWeights(
            None, lambda rows: [fitted.reductions(rows) for fitted in fits_here], self.counted
        )

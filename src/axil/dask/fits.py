"""Fits over partitions: base and leaf values of the fit to the targets as given, with all rows or without some of them.

Leaf sums and co-occurrences of leaves are sums over partitions; what follows from them is done
where they are added up. Given the leaf values, everything about a row depends on that row alone:
`Fit.on` puts a partition's rows into the fit of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import FloatArray, IntArray
from axil.attribution.leaf_matches import TreeWeights, count_rows
from axil.dask.cluster import named
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

WALKED = 1 << 20  # residuals of trees and rows that are walked at a time


@dataclass(frozen=True)
class RowSums(RowTotals):
    """Sums over the rows that a fit without some of them starts from."""

    weight: float
    n_rows: int  #: rows without weight count
    moment: FloatArray  #: (K,) of weight * target
    leaf_weights: FloatArray  #: (L,)
    started: FloatArray  #: (L, K) of weight * draw * (target - offset)
    #: (L, L) co-occurrences of leaves; None where the leaf matrix is there, or trees do not see
    #: each other
    together: FloatArray | None


@dataclass(frozen=True)
class RowPart:
    """One row's part in the sums over all rows."""

    number: int  #: among all rows
    weight: float
    target: FloatArray  #: (K,)
    started: FloatArray  #: (K,) target less offset
    leaves: NDArray[np.int64]  #: (T,) among all L
    drawn: FloatArray  #: (T,) weight * draw

    @classmethod
    def of(cls, partition: ExactPartition, entry: int, row: int) -> RowPart:
        """Return the part of the row at this position of a partition."""
        s = partition.structures[entry]
        parts = Parts.of_rows(s, slice(row, row + 1))
        target = partition.own_targets(entry)[row]
        return cls(
            number=partition.start + row,
            weight=1.0 if s.row_weights is None else float(s.row_weights[row]),
            target=target,
            started=target if s.offsets is None else target - s.offsets[row],
            leaves=parts.leaf[:, 0],
            drawn=np.array(parts.weight[:, 0]),
        )

    def taken_from(self, sums: RowSums) -> RowSums:
        """The sums over all rows without this one; co-occurrences are changed in place."""
        assert sums.together is not None
        leaf_weights = sums.leaf_weights.copy()
        started = sums.started.copy()
        leaf_weights[self.leaves] = remaining_weight(leaf_weights[self.leaves], self.drawn)
        started[self.leaves] -= self.drawn[:, None] * self.started
        sums.together[np.ix_(self.leaves, self.leaves)] -= np.triu(
            np.tile(self.drawn, (len(self.drawn), 1)), 1
        )
        moment = sums.moment - self.weight * self.target
        return RowSums(
            sums.weight - self.weight, sums.n_rows - 1, moment, leaf_weights, started, sums.together
        )


def refits_of(
    cooccurrences: FloatArray,
    structure: Structure,
    sums: RowSums,
    rows_of_partitions: list[list[RowPart]],
    n_threads: int,
) -> dict[int, Fit]:
    """Return fits without single rows, by their number, from sums over all rows.

    L^2 multiplications each, and no pass over rows.
    """
    fits = {}
    counts = np.array(cooccurrences, order="C")
    for rows in rows_of_partitions:
        for row in rows:
            at = np.ix_(row.leaves, row.leaves)
            before = counts[at]
            sums_left = row.taken_from(replace(sums, together=counts))
            if sums_left.weight > 0:
                fits[row.number] = Fit.without(structure, sums_left, n_threads)
            counts[at] = before
    return fits


def row_sums(
    partition: ExactPartition, entry: int, dropped: Any, with_cooccurrences: bool, n_threads: int
) -> RowSums:
    """Return the sums over these rows without those at the positions ``dropped``."""
    s = partition.structures[entry]
    targets = partition.own_targets(entry)
    if len(dropped):
        if s.row_weights is None:
            weights = np.ones(s.n_rows)
        else:
            weights = s.row_weights.copy()
        weights[dropped] = 0.0
        s = replace(s, row_weights=weights)
    rows = host_backend(n_threads).rows_of(s)
    if s.offsets is None:
        started = targets
    else:
        started = targets - s.offsets
    if s.row_weights is None:
        weight = float(s.n_rows)
        moment = targets.sum(axis=0)
    else:
        weight = float(s.row_weights.sum())
        moment = s.row_weights @ targets
    n_dropped = len(np.unique(np.asarray(dropped, dtype=np.intp)))
    return RowSums(
        weight,
        s.n_rows - n_dropped,
        moment,
        leaf_sums(s, rows, np.ones((s.n_rows, 1)))[:, 0],
        leaf_sums(s, rows, started),
        np.asarray(cooccurrence(s, rows, 0, s.n_trees)) if with_cooccurrences else None,
    )


def places(partition: ExactPartition, labels: NDArray[Any], _: Any) -> IntArray:
    """Return which of the labels these rows have, and their positions, (2, n_labels_here)."""
    return inputs.places_among(labels, partition.index)


def marked(partition: ExactPartition, _: Any, numbered: list[Any]) -> IntArray:
    """Return the positions of the rows that truth values mark; ``numbered`` by partition."""
    number, mask = numbered
    with named(number):
        return np.flatnonzero(inputs.as_mask(mask, len(partition.index), "rows"))


def counted(coded: tuple[IntArray, NDArray[Any]]) -> tuple[NDArray[Any], IntArray]:
    """Return the names of a partition's groups, and how many rows each has."""
    codes, groups = coded
    return groups, np.bincount(codes, minlength=len(groups))


def members(coded: tuple[IntArray, NDArray[Any]], code: int) -> IntArray:
    """Return the positions of the rows of one group, by its number there; -1: it has none."""
    return np.flatnonzero(coded[0] == code)


@dataclass(frozen=True)
class Fit(Transferable):
    """A fit in float64 of one entry of the fitted trees; its structure has no rows."""

    structure: Structure
    base: FloatArray  #: (K,)
    values: FloatArray  #: (L, K) leaf values before any rate
    #: (L, K) which they are made of, with what residuals put in that are cut off; zeros unless
    #: trees are averaged or there are shifts
    sums: FloatArray
    mean: FloatArray  #: (K,) the weighted mean of the targets

    @classmethod
    def of(cls, space: LeafMatrix, sums: RowSums) -> Fit:
        """The fit whose the leaf matrix and sums over rows these are."""
        s = space.structure
        mean = sums.moment / sums.weight
        if s.initial is None:
            base = mean
        else:
            base = s.initial
        values = space.leaf_values(sums.started, base)
        of_leaves = np.zeros_like(values)
        if s.averages:
            of_leaves = sums.started - np.outer(s.initial_in_sums, base)
            values = inherited_values(s, values, of_leaves, mean)
        return cls(s, base, values, of_leaves, mean)

    @classmethod
    def without(cls, structure: Structure, sums: RowSums, n_threads: int) -> Fit:
        """The fit of a structure to these sums over the rows that are left; see `axil.weights.sum_rule`."""
        before = structure.total_weight / structure.n_present
        rule = structure.newton_rule.scaled(sums.weight / sums.n_rows / before)
        rule = rule.emptied((structure.leaf_weights > 0) & (sums.leaf_weights == 0))
        s = replace(
            with_leaf_weights(structure, sums.leaf_weights, rule),
            total=sums.weight,
            total_rows=sums.n_rows,
        )
        if not needs_walk(s):
            return cls.of(space_of(rescaled(s), sums.together, n_threads), sums)
        assert sums.together is not None
        mean = sums.moment / sums.weight
        if s.initial is None:
            base = mean
        else:
            base = s.initial
        values, of_leaves = sums_by_rule(s, sums.together, sums.started, base)
        values = inherited_values(s, values, of_leaves, mean)
        return cls(
            s, base, values, of_leaves, mean
        )  # of which predictions are asked alone, and no pattern

    def on(self, partition: ExactPartition, entry: int) -> FittedValues:
        """This fit with a partition's rows in it."""
        rows = partition.structures[entry]
        s = replace(
            self.structure,
            cells=rows.cells,
            row_weights=rows.row_weights,
            offsets=rows.offsets,
            sample_counts=rows.sample_counts,
        )
        return FittedValues(s, partition.own_targets(entry), self.base, self.values, self.sums)

    def predictions(self, leaves: NDArray[np.integer[Any]], base: float = 1.0) -> FloatArray:
        """(n, K): predictions in these leaves, (n, T), offsets apart, in which the base counts so often."""
        return predictions(self.structure, base * self.base, self.values, leaves.T)


def space_of(structure: Structure, together: FloatArray | None, n_threads: int) -> LeafMatrix:
    """The leaf matrix from co-occurrences over all rows, which are not changed."""
    if is_forest(structure):
        return LeafMatrix(structure, None, host_backend(n_threads))
    assert together is not None
    return LeafMatrix.of(structure, np.array(together, order="C"), host_backend(n_threads))


def residual_sums(partition: ExactPartition, entry: int, fit: Fit) -> FloatArray:
    """Return the sums of weight * draw * residual over these rows, tree by tree, (L, K)."""
    fitted = fit.on(partition, entry)
    s = fitted.structure
    sums = np.zeros_like(fit.values)
    for rows in spans(s.n_rows, max(1, WALKED // s.n_trees)):
        if s.row_weights is None:
            weights = np.ones(rows.stop - rows.start)
        else:
            weights = s.row_weights[rows]
        for step in fitted.steps(rows):
            np.add.at(sums, step.leaf, (weights * step.drawn)[:, None] * step.residual)
    return sums


def left_over(
    partition: ExactPartition, shared: tuple[list[Fit], int], _: Any = None
) -> FloatArray:
    """Return targets less the predictions of these rows, (n, K); their offsets may stand in for the base."""
    residuals = []
    fits, n_threads = shared
    for entry, fit in enumerate(fits):
        fitted = fit.on(partition, entry)
        s = fitted.structure
        predictions = np.empty_like(fitted.targets)
        table = np.ascontiguousarray(s.by_cells(fitted.added, drawn=False))
        base = s.initial_in_fit * s.beta[-1] * fit.base
        host_backend(n_threads).rows_of(s).read_out(table, base, None, 0, predictions)
        residuals.append(fitted.started() - predictions)
    return np.concatenate(residuals, axis=1)


def leaf_row_counts(partition: ExactPartition, entry: int, _: Any = None) -> IntArray:
    """Return the number of these rows in each leaf, (L,)."""
    structure = partition.structures[entry]
    return count_rows(structure.leaves(), structure.starts)


@dataclass(frozen=True, eq=False)
class FitTreeWeights(TreeWeights):
    """How much trees count for each row, by what they did to its error in these fits."""

    fits: list[Fit] = field(default_factory=list)

    def on(self, shard: object) -> TreeWeights:
        """Return how much trees count for the rows of a partition."""
        assert isinstance(shard, ExactPartition)
        fitted = [fit.on(shard, entry) for entry, fit in enumerate(self.fits)]
        return TreeWeights(
            None, lambda rows: [own.reductions(rows) for own in fitted], self.counted
        )


def residuals_of(partition: ExactPartition, shared: tuple[list[Fit], int], allowed: Any) -> Any:
    """The rows that may be listed with their residuals."""
    return replace(allowed, residuals=left_over(partition, shared))

"""Refits without some rows, for models whose training rows lie in partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from axil import inputs
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.dask.cluster import Cluster, Delayed, task
from axil.dask.columns import table_of
from axil.dask.exact_rows import ExactPartition
from axil.dask.fits import Fit, residuals
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.progress import track
from axil.methods.intervals.local import Known, known_of
from axil.replay.deletions import Deletions, WithoutGroups, WithoutRows
from axil.replay.exact_deletions import ExactDeletions
from axil.replay.queries import QueryBatch
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import is_forest

if TYPE_CHECKING:
    from axil.dask.exact_model import PartitionedExactModel
    from axil.dask.gathered_model import GatheredModel


@dataclass(frozen=True, eq=False)
class PartitionedDeletions(Deletions):
    """Deletions of rows in partitions, from sums over the rows that remain; see `Refits`."""

    model: PartitionedExactModel

    @property
    def has_first_order(self) -> bool:
        """Whether there are first-order effects of deletions."""
        return all(
            trees.structure.linear_leaves.mixing is None
            for trees in self.model.training_rows.entries
        )

    @property
    def has_active_set(self) -> bool:
        """Whether leaf values follow from row weights by a rule that has an active set."""
        return any(needs_walk(trees.structure) for trees in self.model.training_rows.entries)

    def n_replayed(self) -> int:
        """Return how many rows are refitted one by one for deletions of single rows."""
        return self.model.refits.n_refits()

    def share_of(self, rows: Sequence[Sequence[int]]) -> float:
        """Return the share of rows in the number of all; weights stay in the partitions."""
        return sum(map(len, rows)) / max(self.model.shape[0], 1)

    def without(self, queries: QueryBatch, rows: Sequence[Delayed]) -> WithoutRows:
        """Return predictions of the fit, and of the refit without some rows."""
        self.model.refits.refuse_unknown("without")
        before = self.model.predicted(queries)
        fits = self.model.refits.without(rows)
        if fits is None:
            raise InputError(
                "Without these rows no row with a weight is left; ask for a smaller set."
            )
        emptied = [rule_of(fit.structure).emptied for fit in fits]
        n_emptied = sum(int(leaves.sum()) for leaves in emptied if leaves is not None)
        return WithoutRows(before, self.model.refits.predicted(fits, queries), n_emptied)

    def without_groups(self, queries: QueryBatch, group_codes: Sequence[Delayed]) -> WithoutGroups:
        """Return predictions without each of some groups of training rows."""
        self.model.refits.refuse_unknown("removal")
        groups = PartitionedGroups.of(self.model.cluster, group_codes)
        before = self.model.predicted(queries)
        after = np.full((*before.shape, len(groups.names)), np.nan)
        for group in track(range(len(groups.names)), "groups"):
            rows = [
                task(rows_of_group, pair, codes.get(group, -1))
                for pair, codes in zip(group_codes, groups.local_codes)
            ]
            fits = self.model.refits.without(rows)
            if fits is not None:
                after[:, :, group] = self.model.refits.predicted(fits, queries)
        return WithoutGroups(groups.names, groups.counts, before, after)

    def training_errors(
        self, out_of_fold: list[Delayed] | None, method: str
    ) -> tuple[Sequence[Delayed], str]:
        """Return out-of-sample errors of the training rows, and their source."""
        shards = self.model.shards
        if out_of_fold is not None:
            numbered = [
                [number, "out_of_fold", column] for number, column in enumerate(out_of_fold)
            ]
            return shards.each(out_of_fold_errors, None, numbered), "out-of-fold"
        forests = all(is_forest(trees.structure) for trees in self.model.training_rows.entries)
        if forests and any(shards.collected(has_unsampled_rows)):
            return shards.each(out_of_bag_errors, self.model.refits.fits()), "out-of-bag"
        if method == "leaves" and self.model.trees.are_boosted:
            return shards.each(residuals, (self.model.refits.fits(), self.model.n_threads)), "fit"
        errors = shards.each(errors_of, None, self.model.refits.left_out_predictions())
        known_errors: Known = shards.total(known_of, None, errors)
        if known_errors.complete <= known_errors.rows / 2:
            raise UnsupportedQuestionError(
                "calibrate",
                "most training rows are alone in one of their leaves, so refits without them do "
                "not show how large errors are",
                "Pass out_of_fold=, predictions of the training rows by your own "
                "cross-validation, or use rows in memory.",
            )
        return errors, "leave-one-out"


@dataclass(frozen=True, eq=False)
class GatheredDeletions(ExactDeletions):
    """Deletions of rows in partitions, for answers with a number for every training row."""

    model: GatheredModel

    @property
    def is_exact_fast(self) -> bool:
        """Whether no tree sees another."""
        return not self.model.origin.trees.are_boosted

    @property
    def has_active_set(self) -> bool:
        """Whether leaf values follow from row weights by a rule that has an active set."""
        return self.model.origin.deletions.has_active_set

    def n_replayed(self) -> int:
        """Return how many rows change the active set if they are deleted."""
        return self.model.origin.deletions.n_replayed()

    def own_predictions(self, sets_of_rows: Sequence[IntArray]) -> Iterator[FloatArray]:
        """Yield the predictions (rows, K) of each set of rows by the refit without them."""
        origin = self.model.origin
        for rows in sets_of_rows:
            positions = origin.training.positions_by_partition(rows)
            yield origin.refits.own_predictions_without(positions)


@dataclass(frozen=True)
class PartitionedGroups:
    """Groups of training rows, with codes of its own labels in each partition."""

    names: AnyArray  #: (G,)
    counts: IntArray  #: (G,) the rows of each
    local_codes: list[dict[int, int]]  #: of each partition, by the code among all

    @classmethod
    def of(cls, cluster: Cluster, coded: Sequence[Delayed]) -> PartitionedGroups:
        """Return the groups of all partitions, from the codes and names of each."""
        groups_by_partition = cluster.collect([task(group_sizes, pair) for pair in coded])
        all_names = np.concatenate([names for names, _ in groups_by_partition if len(names)])
        codes, names = inputs.group_codes(all_names, len(all_names))
        counts = np.zeros(len(names), dtype=np.intp)
        local_codes: list[dict[int, int]] = []
        start = 0
        for names_here, sizes in groups_by_partition:
            codes_here = codes[start : start + len(names_here)]
            counts[codes_here] += sizes
            local_codes.append(dict(zip(codes_here.tolist(), range(len(names_here)))))
            start += len(names_here)
        return cls(names, counts, local_codes)


# -- the work on one partition ---------------------------------------------------------------------


def group_sizes(coded: tuple[IntArray, AnyArray]) -> tuple[AnyArray, IntArray]:
    """Return the names of a partition's groups, and how many rows each has."""
    codes, names = coded
    return names, np.bincount(codes, minlength=len(names))


def rows_of_group(coded: tuple[IntArray, AnyArray], code: int) -> IntArray:
    """Return the positions of the rows of one group by its code; -1 if the partition has none."""
    return np.flatnonzero(coded[0] == code)


def errors_of(partition: ExactPartition, _: None, predictions: FloatArray) -> FloatArray:
    """Return the targets minus out-of-fold predictions, (n, K)."""
    return np.asarray(partition.targets - predictions)


def out_of_fold_errors(partition: ExactPartition, _: None, numbered: list[Any]) -> FloatArray:
    """Return the errors of a user's own predictions, (n, K); see `table_of`."""
    return errors_of(partition, None, table_of(partition, None, numbered))


def has_unsampled_rows(partition: ExactPartition, *_: None) -> bool:
    """Return whether trees were fitted without some of these rows."""
    return any(structure.has_unsampled_rows for structure in partition.structures)


def out_of_bag_errors(partition: ExactPartition, fits: list[Fit], _: None) -> FloatArray:
    """Return the errors (n, K) of the trees of a forest that were fitted without each row.

    nan if there is no such tree.
    """
    errors = []
    for entry, fit in enumerate(fits):
        fitted = fit.on(partition, entry)
        s = fitted.structure
        leaves = s.leaves()
        sums = np.zeros_like(fitted.targets)
        shares = np.zeros(s.n_rows)
        for t, final in enumerate(s.final):
            is_out: BoolArray = s.sample_counts[(s.cells[t] // s.n_leaves[t]).astype(np.intp)] == 0
            values = fit.values[s.entries(t, leaves[t])]
            sums += np.where(is_out[:, None], final * values, 0.0)
            shares += np.where(is_out, final, 0.0)
        unknown = np.full_like(shares, np.nan)
        scale = np.divide(s.final.sum(), shares, out=unknown, where=shares != 0)
        errors.append(fitted.targets - (sums * scale[:, None] + s.beta[-1] * fit.base))
    return np.concatenate(errors, axis=1)

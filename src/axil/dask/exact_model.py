"""PartitionedExactModel: predictions as weighted sums of targets that lie in the partitions of Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.contract import OffsetRule
from axil.arrays import FloatArray
from axil.attribution import WEIGHTS, Kind, Quantity, Source
from axil.attribution.leaf_matches import TreeWeights, tree_spreads
from axil.dask.cluster import Cluster, literal, named, task
from axil.dask.exact_rows import AdjointBatch, ExactPartition, HeldExactRows, cooccurrences
from axil.dask.fits import (
    Fit,
    FitTreeWeights,
    counted,
    leaf_row_counts,
    left_over,
    marked,
    members,
    places,
    residuals_of,
)
from axil.dask.model import PartitionedModel, refuse_other_order
from axil.dask.refits import Refits
from axil.dask.row_deletions import Planned
from axil.errors import InputError, UnsupportedQuestionError, shown
from axil.machine.progress import track
from axil.machine.threads import Cache
from axil.methods.intervals.local import Known, known_of
from axil.output import tables
from axil.replay.compare import check_answer
from axil.replay.queries import Combination, QueryBatch
from axil.replay.verified_model import WithoutGroups, WithoutRows
from axil.structure import Structure, all_n_leaves, output_groups
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import own_leaves
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import is_forest
from axil.weights.leaf_matrix import LeafMatrix

ASKED_BYTES = 1 << 22  # of adjoints sent to the workers at a time: Dask warns of larger arguments


def in_leaf_matrix(
    cluster: Cluster, partitions: list[Any], trees: BoostedTrees, entry: int, n_threads: int
) -> BoostedTrees:
    """Return the trees in the leaf matrix: O(T^2 N) on the workers, 8 L^2 bytes from each of them and here."""
    if trees.leaf_matrix is not None:
        return trees
    if is_forest(trees.structure):
        return trees.in_leaf_matrix(LeafMatrix(trees.structure, None, trees.backend))
    counts = cluster.total([task(cooccurrences, part, entry, n_threads) for part in partitions])
    counts = np.require(counts, requirements=["C", "W", "A"])
    return trees.in_leaf_matrix(LeafMatrix.of(trees.structure, counts, trees.backend))


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedExactModel(PartitionedModel):
    """Training rows in partitions whose targets make the predictions; the trees are here, in the leaf matrix."""

    training_rows: HeldExactRows
    kept: Cache = field(default_factory=Cache)

    kind = Kind.EXACT
    source = WEIGHTS
    has_leaves = True

    @property
    def is_boosted(self) -> bool:
        return not any(is_forest(entry.structure) for entry in self.training_rows.entries)

    @property
    def shares_weights(self) -> bool:
        return len(self.training_rows.entries) == 1

    def prepared(self) -> PartitionedExactModel:
        """This model, in the leaf matrix."""
        _ = self.entries
        return self

    @property
    def entries(self) -> list[BoostedTrees]:
        """The entries of the fitted trees, in the leaf matrix."""
        return self.kept.get("entries", self._entries)

    def _entries(self) -> list[BoostedTrees]:
        rows = self.training_rows
        return [
            in_leaf_matrix(self.cluster, rows.partitions, trees, entry, self.n_threads)
            for entry, trees in enumerate(rows.entries)
        ]

    @property
    def structures(self) -> list[Structure] | None:
        """The boosted trees of each group of outputs; None where there is a forest."""
        structures = [entry.structure for entry in self.training_rows.entries]
        if any(map(is_forest, structures)):
            return None
        return structures

    @property
    def trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        structures = [entry.structure for entry in self.training_rows.entries]
        return all_n_leaves(structures), [
            slice(None) if s.columns is None else s.columns for s in structures
        ]

    @property
    def starts_elsewhere(self) -> bool:
        return (
            self.adapter.offset_rule is not OffsetRule.ADDED
            and not self.training_rows.entries[0].structure.initial_in_fit
        )

    def most_asked(self) -> int:
        total = sum(entry.structure.total_leaves for entry in self.training_rows.entries)
        return max(1, ASKED_BYTES // (8 * total))

    def asked(self, batch: Any, source: Source) -> Any:
        """The adjoints of a batch, from the leaf matrix alone."""
        phi = []
        beta = []
        intercepts = []
        leaves = []
        totals = []
        for entry in self.entries:
            query_leaves = np.ascontiguousarray(own_leaves(entry.structure, batch.coordinates))
            base = batch.offsets.base
            if isinstance(batch, Combination):
                adjoints, constants = entry.mixed_adjoints(query_leaves, batch.factors, base)
                query_leaves = query_leaves[:0]  # sums are in no leaf
            else:
                adjoints = entry.adjoints(query_leaves, base)
                constants = entry.intercepts(adjoints, entry.constants(query_leaves))
            intercepts.append(constants)
            phi.append(adjoints.phi)
            beta.append(adjoints.beta)
            leaves.append(query_leaves)
            totals.append(entry.structure.total_weight)
        query_batch = AdjointBatch(
            phi,
            beta,
            intercepts,
            totals,
            leaves,
            batch.offsets.values,
            batch.start,
            self.n_threads,
        )
        if source.quantity is Quantity.WEIGHT:
            return query_batch
        if source.quantity is not Quantity.CONTRIBUTION:
            self.refits.refuse_unknown("removal")
        return task(
            Planned, literal(query_batch), *self.refits.plans(source.quantity is Quantity.DELETION)
        )

    @property
    def refits(self) -> Refits:
        """Fits without some of the rows."""
        return Refits(self)

    def predicted(self, queries: QueryBatch) -> FloatArray:
        """(n, K): the predictions of the fit, offsets included, which must be the model's."""
        predictions = self.refits.predicted(self.refits.fits(), queries)
        check_answer(self.verification, predictions, queries.labels, lambda: queries.predictions)
        return predictions

    # -- changes of the training rows --------------------------------------------------------------

    @property
    def has_first_order(self) -> bool:
        return all(
            entry.structure.linear_leaves.mixing is None for entry in self.training_rows.entries
        )

    @property
    def rescales_trees(self) -> bool:
        return any(entry.structure.coefficients is not None for entry in self.training_rows.entries)

    def _tree_weights(self, rule: str) -> TreeWeights:
        fits = self.refits.fits()
        if rule != "variance":
            return FitTreeWeights(counted=rule == "improved", fits=fits)
        spreads = []
        for entry, fit in enumerate(fits):
            n_rows = self.shards.total(leaf_row_counts, entry)
            structure = fit.structure
            added = np.repeat(structure.final, structure.n_leaves)[:, None] * fit.values
            spreads.append(tree_spreads(n_rows, added, structure.starts))
        return TreeWeights(spreads)

    @property
    def bends(self) -> bool:
        return any(needs_walk(entry.structure) for entry in self.training_rows.entries)

    def n_replayed(self) -> int:
        return self.refits.n_refits()

    def positions(self, rows: Any) -> list[list[int]]:
        """Return the positions in each partition of the rows that labels name, or that truth values of X_train mark."""
        if dask.is_dask_collection(rows):
            masks = [list(numbered) for numbered in enumerate(self.cut(rows, "rows"))]
            return [marks.tolist() for marks in self.shards.collected(marked, None, masks)]
        labels = inputs.asked_labels(rows)
        places_by_partition = self.shards.collected(places, labels)
        which_labels = np.concatenate([pair[0] for pair in places_by_partition])
        missing = np.flatnonzero(np.bincount(which_labels, minlength=len(labels)) == 0)
        if len(missing):
            raise InputError(
                f"rows names row {shown(labels[missing[0]])} ({len(missing)} of {len(labels)} are unknown); expected labels of "
                "training rows: the index of a Dask DataFrame, else positions from 0."
            )
        return [pair[1].tolist() for pair in places_by_partition]

    # -- errors of the training rows ---------------------------------------------------------------

    def folds(self, given: Any) -> list[Any]:
        return self.cut(given, "out_of_fold")

    def training_errors(self, folds: Any, compute: Any, method: str) -> tuple[Sequence[Any], str]:
        shards = self.shards
        if folds is not None:
            numbered_folds = [list(numbered) for numbered in enumerate(folds)]
            return shards.each(out_of_fold_of, None, numbered_folds), "out-of-fold"
        forests = all(is_forest(entry.structure) for entry in self.training_rows.entries)
        if forests and any(shards.collected(has_unsampled_rows)):
            return shards.each(out_of_bag_of, self.refits.fits()), "out-of-bag"
        if method == "leaves" and self.structures is not None:
            return shards.each(left_over, (self.refits.fits(), self.n_threads)), "fit"
        errors = shards.each(errors_of, None, self.refits.left_out())
        known: Known = shards.total(known_of, None, errors)
        if known.complete <= known.rows / 2:
            raise UnsupportedQuestionError(
                "calibrate",
                "most training rows are alone in one of their leaves, so that no fit without them says how large errors are",
                "Pass out_of_fold=, predictions of the training rows by your own cross-validation, or use rows in memory.",
            )
        return errors, "leave-one-out"

    def output_groups(self) -> list[slice]:
        return output_groups(len(self.training_rows.entries))

    def with_residuals(self, allowed: Sequence[Any]) -> Sequence[Any]:
        """The rows that may be listed with their residuals, for adjusted targets."""
        shared = self.refits.fits(), self.n_threads
        return self.shards.each(residuals_of, shared, allowed)

    def without(self, queries: QueryBatch, rows: Any) -> WithoutRows:
        """Return predictions of the fit, and of the fit without these rows; the splits are held fixed."""
        self.refits.refuse_unknown("without")
        before = self.predicted(queries)
        fits = self.refits.without(rows)
        if fits is None:
            raise InputError(
                "Without these rows none of any weight is left; ask for a smaller set."
            )
        emptied = [rule_of(fit.structure).emptied for fit in fits]
        n_emptied = sum(int(leaves.sum()) for leaves in emptied if leaves is not None)
        return WithoutRows(before, self.refits.predicted(fits, queries), n_emptied)

    def without_groups(self, queries: QueryBatch, coded: Sequence[Any]) -> WithoutGroups:
        """Return predictions without each of some groups of training rows."""
        self.refits.refuse_unknown("removal")
        groups_by_partition = self.cluster.collect([task(counted, pair) for pair in coded])
        all_names = np.concatenate([names for names, _ in groups_by_partition if len(names)])
        codes, groups = inputs.group_codes(all_names, len(all_names))
        counts = np.zeros(len(groups), dtype=np.intp)
        local_codes: list[dict[int, int]] = []  # of each partition, by the code among all
        start = 0
        for names, sizes in groups_by_partition:
            partition_codes = codes[start : start + len(names)]
            counts[partition_codes] += sizes
            local_codes.append(dict(zip(partition_codes.tolist(), range(len(names)))))
            start += len(names)
        before = self.predicted(queries)
        after = np.full((*before.shape, len(groups)), np.nan)
        for group in track(range(len(groups)), "groups"):
            rows = [
                task(members, pair, codes_here.get(group, -1))
                for pair, codes_here in zip(coded, local_codes)
            ]
            fits = self.refits.without(rows)
            if fits is not None:
                after[:, :, group] = self.refits.predicted(fits, queries)
        return WithoutGroups(groups, counts, before, after)

    def left_out_predictions(self, compute: Any) -> FloatArray:
        """(N, K): the prediction of each training row by the fit without it."""
        n_train, n_outputs = self.shape
        needed = tables.bytes_of(n_train * n_outputs, 6)
        self.budget.require(
            needed,
            f"The table of {n_train * n_outputs} lines, gathered here",
            "Raise memory_limit.",
        )
        return np.concatenate(self.cluster.collect(self.refits.left_out()))

    def verify_predictions(self, batch: Any, predictions: FloatArray | None) -> None:
        if predictions is None:
            predictions = self.predicted(batch)
        check_answer(
            self.verification, predictions, batch.labels, lambda: batch.predictions, batch.sizes
        )

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        entries = self.training_rows.entries
        return 8 * (
            self.shape[0] * len(entries)
            if whole
            else sum(e.structure.total_leaves for e in entries)
        )


# -- the work on one partition for intervals: errors of its rows by predictions that did not see the


def errors_of(partition: ExactPartition, _: Any, predictions: FloatArray) -> FloatArray:
    """(n, K): targets less predictions that did not see them."""
    return np.asarray(partition.targets - predictions)


def out_of_fold_of(partition: ExactPartition, _: Any, numbered: tuple[int, Any]) -> FloatArray:
    """Return the errors of a user's own predictions, (n, K); the number of the partition comes with them."""
    number, predictions = numbered
    n_rows, n_outputs = partition.targets.shape
    with named(number):
        refuse_other_order(partition, predictions, "out_of_fold")
        table = inputs.as_table(predictions, n_rows, n_outputs, "out_of_fold")
        return errors_of(partition, None, table)


def has_unsampled_rows(partition: ExactPartition, *_: Any) -> bool:
    """Return whether trees were fitted without some of these rows."""
    return any(structure.has_unsampled_rows for structure in partition.structures)


def out_of_bag_of(partition: ExactPartition, fits: list[Fit], _: Any) -> FloatArray:
    """Return the errors (n, K) of the trees of a forest that were fitted without each row; nan where there is none."""
    errors = []
    for entry, fit in enumerate(fits):
        fitted = fit.on(partition, entry)
        s = fitted.structure
        leaves = s.leaves()
        sums = np.zeros_like(fitted.targets)
        shares = np.zeros(s.n_rows)
        for t, final in enumerate(s.final):
            is_out = s.sample_counts[(s.cells[t] // s.n_leaves[t]).astype(np.intp)] == 0
            values = fit.values[s.entries(t, leaves[t])]
            sums += np.where(is_out[:, None], final * values, 0.0)
            shares += np.where(is_out, final, 0.0)
        scale = np.divide(
            s.final.sum(), shares, out=np.full_like(shares, np.nan), where=shares != 0
        )
        errors.append(fitted.targets - (sums * scale[:, None] + s.beta[-1] * fit.base))
    return np.concatenate(errors, axis=1)

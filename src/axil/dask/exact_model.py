"""Predictions as weighted sums of targets that lie in the partitions of Dask collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.contract import OffsetRule
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.attribution import WEIGHTS, Kind, Quantity, Source
from axil.attribution.capabilities import Refusal
from axil.attribution.leaf_matches import TreeWeights, tree_spreads
from axil.dask.cluster import (
    Cluster,
    Delayed,
    literal,
    task,
)
from axil.dask.columns import table_of
from axil.dask.deletions import IN_MEMORY, Planned, Refits
from axil.dask.exact_rows import AdjointBatch, ExactPartition, HeldExactRows, cooccurrences
from axil.dask.fits import Fit, FitTreeWeights, leaf_row_counts, residuals
from axil.dask.gathered_model import GatheredModel
from axil.dask.model import PartitionedModel
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.progress import track
from axil.machine.threads import Cache
from axil.methods.intervals.local import Known, known_of
from axil.reductions.choice import Allowed
from axil.replay.compare import check_answer
from axil.replay.queries import Combination, QueryBatch
from axil.replay.verified_model import VerifiedModel, WithoutGroups, WithoutRows
from axil.structure import Structure, all_n_leaves, output_groups
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import own_leaves
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import is_forest
from axil.weights.leaf_matrix import LeafMatrix

SENT_BYTES = 1 << 22  # of adjoints that are sent to the workers at a time: Dask warns of more

#: Methods with a number for every training row in their answer or argument, see `GatheredModel`.
GATHERED_METHODS = frozenset(
    {
        "find_label_issues",
        "diagnostics.degrees_of_freedom",
        "influence",
        "diagnostics.leave_one_out",
        "diagnostics.leave_one_out_curve",
        "diagnostics.leverage",
        "min_label_changes",
        "jacobian.sensitivity",
        "shapley",
        "diagnostics.standard_error",
        "what_if",
    }
)
#: Those of them that fit the model again without some rows.
GATHERED_DELETIONS = (
    "find_label_issues",
    "influence",
    "diagnostics.leave_one_out_curve",
    "shapley",
)


def in_leaf_matrix(
    cluster: Cluster,
    partitions: list[Delayed],
    trees: BoostedTrees,
    entry: int,
    n_threads: int,
) -> BoostedTrees:
    """Return the trees in the leaf matrix: O(T^2 N) on the workers, 8 L^2 bytes from each."""
    if trees.leaf_matrix is not None:
        return trees
    if is_forest(trees.structure):
        return trees.in_leaf_matrix(LeafMatrix(trees.structure, None, trees.backend))
    tasks = [task(cooccurrences, partition, entry, n_threads) for partition in partitions]
    together = np.require(cluster.total(tasks), requirements=["C", "W", "A"])
    return trees.in_leaf_matrix(LeafMatrix.of(trees.structure, together, trees.backend))


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedExactModel(PartitionedModel):
    """Training rows in partitions whose targets make the predictions.

    The trees are in this process, in the leaf matrix.
    """

    training_rows: HeldExactRows
    kept: Cache = field(default_factory=Cache)

    kind = Kind.EXACT
    source = WEIGHTS
    has_leaves = True

    @property
    def is_boosted(self) -> bool:
        """Whether trees are fitted one after the other."""
        return not any(is_forest(trees.structure) for trees in self.training_rows.entries)

    @property
    def shares_weights(self) -> bool:
        """Whether all outputs have the same weights."""
        return len(self.training_rows.entries) == 1

    def prepared(self) -> PartitionedExactModel:
        """Return this model, in the leaf matrix."""
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
        structures = [trees.structure for trees in self.training_rows.entries]
        if any(map(is_forest, structures)):
            return None
        return structures

    @property
    def tree_layout(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The number of leaves of each tree, (T,), and which trees each entry has."""
        structures = [trees.structure for trees in self.training_rows.entries]
        trees_of_entries: list[Any] = []
        for structure in structures:
            if structure.columns is None:
                trees_of_entries.append(slice(None))
            else:
                trees_of_entries.append(structure.columns)
        return all_n_leaves(structures), trees_of_entries

    @property
    def starts_elsewhere(self) -> bool:
        """Whether the fit started from offsets in the place of its initial prediction."""
        structure = self.training_rows.entries[0].structure
        return self.adapter.offset_rule is not OffsetRule.ADDED and not structure.initial_in_fit

    def own_refusals(self) -> dict[str, Refusal]:
        """Return the methods that this model refuses because of its own fit."""
        refusals = super().own_refusals()
        reason = self.refits.unknown_reason()
        if reason:
            refusals |= dict.fromkeys(GATHERED_DELETIONS, (reason, IN_MEMORY))
        if any(rule_of(trees.structure).clips_residuals for trees in self.training_rows.entries):
            refusals["what_if"] = (
                "with other targets other residuals are cut off (Huber's loss), which is not found "
                "out over partitions",
                "Multiply explainer(X).weights by the changes of the targets, which holds fixed what "
                "is cut off.",
            )
        return refusals

    def for_method(self, method: str) -> VerifiedModel:
        """Return the model that answers a method: this one, or one with numbers for all rows."""
        if method in GATHERED_METHODS:
            return self.kept.get("gathered model", lambda: GatheredModel.of(self))
        return self

    # -- explained rows ----------------------------------------------------------------------------

    def most_asked(self) -> int:
        """Return how many explained rows are sent to the workers at a time."""
        n_leaves = sum(trees.structure.total_leaves for trees in self.training_rows.entries)
        return max(1, SENT_BYTES // (8 * n_leaves))

    def asked(self, batch: QueryBatch | Combination, source: Source) -> AdjointBatch | Delayed:
        """Return the adjoints of a batch, from the leaf matrix alone, for the workers."""
        phi = []
        beta = []
        intercepts = []
        leaves = []
        totals = []
        for trees in self.entries:
            batch_leaves = np.ascontiguousarray(own_leaves(trees.structure, batch.coordinates))
            base = batch.offsets.base
            if isinstance(batch, Combination):
                adjoints, constants = trees.mixed_adjoints(batch_leaves, batch.factors, base)
                batch_leaves = batch_leaves[:0]  # sums are in no leaf
            else:
                adjoints = trees.adjoints(batch_leaves, base)
                constants = trees.intercepts(adjoints, trees.constants(batch_leaves))
            intercepts.append(constants)
            phi.append(adjoints.phi)
            beta.append(adjoints.beta)
            leaves.append(batch_leaves)
            totals.append(trees.structure.total_weight)
        adjoint_batch = AdjointBatch(
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
            return adjoint_batch
        if source.quantity is not Quantity.CONTRIBUTION:
            self.refits.refuse_unknown("removal")
        plans = self.refits.plans(source.quantity is Quantity.DELETION)
        return task(Planned, literal(adjoint_batch), *plans)

    def predicted(self, queries: QueryBatch) -> FloatArray:
        """Return the predictions of the fit, (n, K), offsets included; they must be the model's."""
        predictions = self.refits.predicted(self.refits.fits(), queries)
        check_answer(self.verification, predictions, queries.labels, lambda: queries.predictions)
        return predictions

    def verify_predictions(
        self, batch: QueryBatch | Combination, predictions: FloatArray | None
    ) -> None:
        """Raise unless predictions (n, K) are the model's own; None: compute them."""
        if predictions is None:
            assert isinstance(batch, QueryBatch)
            predictions = self.predicted(batch)
        check_answer(
            self.verification, predictions, batch.labels, lambda: batch.predictions, batch.sizes
        )

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        """Return the bytes that an explained row takes in this process."""
        entries = self.training_rows.entries
        if whole:
            return 8 * self.shape[0] * len(entries)
        return 8 * sum(trees.structure.total_leaves for trees in entries)

    def output_groups(self) -> list[slice]:
        """Return the outputs of each entry of the fitted trees."""
        return output_groups(len(self.training_rows.entries))

    def with_residuals(self, allowed: Sequence[Delayed]) -> Sequence[Delayed]:
        """Return the rows that may be listed with their residuals, for adjusted targets."""
        shared = self.refits.fits(), self.n_threads
        return self.shards.each(residuals_of, shared, allowed)

    # -- changes of the training rows --------------------------------------------------------------

    @property
    def refits(self) -> Refits:
        """Refits without some of the rows."""
        return Refits(self)

    @property
    def has_first_order(self) -> bool:
        """Whether there are first-order effects of deletions."""
        return all(
            trees.structure.linear_leaves.mixing is None for trees in self.training_rows.entries
        )

    @property
    def rescales_trees(self) -> bool:
        """Whether trees are scaled again after others were fitted, as in DART."""
        return any(trees.structure.coefficients is not None for trees in self.training_rows.entries)

    @property
    def bends(self) -> bool:
        """Whether leaf values follow from row weights by a rule that has an active set."""
        return any(needs_walk(trees.structure) for trees in self.training_rows.entries)

    def n_replayed(self) -> int:
        """Return how many rows are refitted one by one for deletions of single rows."""
        return self.refits.n_refits()

    def _tree_weights(self, rule: str) -> TreeWeights:
        fits = self.refits.fits()
        if rule != "variance":
            return FitTreeWeights(counted=rule == "improved", fits=fits)
        spreads = []
        for entry, fit in enumerate(fits):
            n_rows = self.shards.total(leaf_row_counts, entry)
            structure = fit.structure
            leaf_effects = np.repeat(structure.final, structure.n_leaves)[:, None] * fit.values
            spreads.append(tree_spreads(n_rows, leaf_effects, structure.starts))
        return TreeWeights(spreads)

    def without(self, queries: QueryBatch, rows: Sequence[Delayed]) -> WithoutRows:
        """Return predictions of the fit, and of the refit without some rows."""
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

    def without_groups(self, queries: QueryBatch, coded: Sequence[Delayed]) -> WithoutGroups:
        """Return predictions without each of some groups of training rows."""
        self.refits.refuse_unknown("removal")
        groups = PartitionedGroups.of(self.cluster, coded)
        before = self.predicted(queries)
        after = np.full((*before.shape, len(groups.names)), np.nan)
        for group in track(range(len(groups.names)), "groups"):
            rows = [
                task(rows_of_group, pair, codes.get(group, -1))
                for pair, codes in zip(coded, groups.local_codes)
            ]
            fits = self.refits.without(rows)
            if fits is not None:
                after[:, :, group] = self.refits.predicted(fits, queries)
        return WithoutGroups(groups.names, groups.counts, before, after)

    # -- errors of the training rows ---------------------------------------------------------------

    def training_errors(
        self, folds: list[Delayed] | None, compute: object, method: str
    ) -> tuple[Sequence[Delayed], str]:
        """Return errors of predictions that did not see their rows, and where these are from."""
        shards = self.shards
        if folds is not None:
            numbered = [[number, "out_of_fold", column] for number, column in enumerate(folds)]
            return shards.each(out_of_fold_errors, None, numbered), "out-of-fold"
        forests = all(is_forest(trees.structure) for trees in self.training_rows.entries)
        if forests and any(shards.collected(has_unsampled_rows)):
            return shards.each(out_of_bag_errors, self.refits.fits()), "out-of-bag"
        if method == "leaves" and self.structures is not None:
            return shards.each(residuals, (self.refits.fits(), self.n_threads)), "fit"
        errors = shards.each(errors_of, None, self.refits.left_out_predictions())
        known_errors: Known = shards.total(known_of, None, errors)
        if known_errors.complete <= known_errors.rows / 2:
            raise UnsupportedQuestionError(
                "calibrate",
                "most training rows are alone in one of their leaves, so that no refit without "
                "them says how large errors are",
                "Pass out_of_fold=, predictions of the training rows by your own "
                "cross-validation, or use rows in memory.",
            )
        return errors, "leave-one-out"


@dataclass(frozen=True)
class PartitionedGroups:
    """Groups of training rows, whose codes in a partition are those of its own labels."""

    names: NDArray[Any]  #: (G,)
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


def group_sizes(coded: tuple[IntArray, NDArray[Any]]) -> tuple[NDArray[Any], IntArray]:
    """Return the names of a partition's groups, and how many rows each has."""
    codes, names = coded
    return names, np.bincount(codes, minlength=len(names))


def rows_of_group(coded: tuple[IntArray, NDArray[Any]], code: int) -> IntArray:
    """Return the positions of the rows of one group, by its code there; -1: it has none."""
    return np.flatnonzero(coded[0] == code)


def residuals_of(
    partition: ExactPartition, shared: tuple[list[Fit], int], allowed: Allowed
) -> Allowed:
    """Return the rows that may be listed with their residuals."""
    return replace(allowed, residuals=residuals(partition, shared))


def errors_of(partition: ExactPartition, _: None, predictions: FloatArray) -> FloatArray:
    """Return targets less predictions that did not see them, (n, K)."""
    return np.asarray(partition.targets - predictions)


def out_of_fold_errors(partition: ExactPartition, _: None, numbered: list[Any]) -> FloatArray:
    """Return the errors of a user's own predictions, (n, K); see `table_of`."""
    return errors_of(partition, None, table_of(partition, None, numbered))


def has_unsampled_rows(partition: ExactPartition, *_: None) -> bool:
    """Return whether trees were fitted without some of these rows."""
    return any(structure.has_unsampled_rows for structure in partition.structures)


def out_of_bag_errors(partition: ExactPartition, fits: list[Fit], _: None) -> FloatArray:
    """Return the errors (n, K) of the trees of a forest that were fitted without each row.

    nan where there is no such tree.
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

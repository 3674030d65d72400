"""Fits without some training rows in partitions, and all that deletions of single rows need, made once for a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.dask.cluster import delayed_sum, literal, task
from axil.dask.exact_rows import HeldExactRows, cooccurrences
from axil.dask.fits import Fit, RowSums, refits_of, residual_sums, row_sums
from axil.dask.row_deletions import (
    DeletionPlan,
    alone,
    levels_of,
    replayed_rows,
    responses_of_sums,
    row_weights_of,
)
from axil.errors import UnsupportedQuestionError
from axil.replay.queries import QueryBatch
from axil.structure import Structure
from axil.weights.engine import own_leaves
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import is_forest
from axil.weights.levels import at_share, shares_of

IN_MEMORY = "Use training rows in memory."
# Rows that outweigh the rest of a leaf by far: each takes a pass over all rows, as long as the leaf
# matrix does
MOST_REFITS = 64


@dataclass(frozen=True, eq=False)
class Refits:
    """Fits of a model without some of its training rows, which lie in partitions."""

    model: Any  #: `PartitionedExactModel`

    def fits(self) -> list[Fit]:
        """Return the fit to the targets as given, entry by entry; made once."""
        fits: list[Fit] = self.model.kept.get(
            "fits", lambda: [self._fit(entry) for entry in range(len(self.model.entries))]
        )
        return fits

    @property
    def _rows(self) -> HeldExactRows:
        rows: HeldExactRows = self.model.training_rows
        return rows

    def _fit(self, entry: int) -> Fit:
        space = self.model.entries[entry].leaf_matrix
        assert space is not None
        fit = Fit.of(space, self._sums_of_all(entry))
        if not needs_walk(fit.structure):
            return fit
        shared_fit = literal(fit)
        tasks = [task(residual_sums, rows, entry, shared_fit) for rows in self._rows.partitions]
        return replace(fit, sums=self.model.cluster.total(tasks))

    def _sums_of_all(self, entry: int) -> RowSums:
        nothing: list[tuple[int, ...]] = [()] * len(self._rows.sizes)
        return self._sums_without(entry, nothing, with_cooccurrences=False)

    def _sums_without(
        self, entry: int, dropped: Sequence[Any], with_cooccurrences: bool
    ) -> RowSums:
        """Return the sums over all partitions without the rows at these positions in each of them."""
        n_threads = self.model.n_threads
        tasks = [
            task(row_sums, rows, entry, positions, with_cooccurrences, n_threads)
            for rows, positions in zip(self._rows.partitions, dropped)
        ]
        sums: RowSums = self.model.cluster.total(tasks)
        return sums

    def without(self, dropped: Sequence[Any]) -> list[Fit] | None:
        """Return the fits without the rows at these positions of each partition; None: no weight is left."""
        fits = []
        for entry, trees in enumerate(self._rows.entries):
            sums = self._sums_without(entry, dropped, not is_forest(trees.structure))
            if sums.weight <= 0:
                return None
            fits.append(Fit.without(trees.structure, sums, self.model.n_threads))
        return fits

    def predicted(self, fits: list[Fit], queries: QueryBatch) -> FloatArray:
        """Return the predictions of these fits, (n, K), offsets included."""
        predictions = []
        for fit in fits:
            leaves = np.ascontiguousarray(own_leaves(fit.structure, queries.coordinates))
            predictions.append(fit.predictions(leaves, queries.offsets.base))
        return np.concatenate(predictions, axis=1) + queries.offsets.values

    def refuse_unknown(self, question: str) -> None:
        """Refuse a question whose deletions follow from more than sums over partitions."""
        for entry in self._rows.entries:
            rule = rule_of(entry.structure)
            if rule.clips_residuals:
                raise UnsupportedQuestionError(
                    question,
                    "without some rows other residuals are cut off (Huber's loss), which is not found out over partitions",
                    IN_MEMORY,
                )
            if rule.newton.smooths_nodes:
                raise UnsupportedQuestionError(
                    question,
                    "path_smooth follows numbers of rows, which are not counted over partitions",
                    IN_MEMORY,
                )

    def plans(self, exact: bool) -> tuple[Any, list[Any]]:
        """Return the plans of all entries, shared, and their responses, held; without these and levels unless ``exact``."""
        self.fits()
        plans: tuple[Any, list[Any]] = self.model.kept.get(
            ("plans", exact), lambda: self._made_plans(exact)
        )
        return plans

    def _made_plans(self, exact: bool) -> tuple[Any, list[Any]]:
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

    def _exact_plan(self, entry: int, fit: Fit) -> tuple[DeletionPlan, Any]:
        cluster = self.model.cluster
        n_threads = self.model.n_threads
        partitions = self._rows.partitions
        weights = cluster.collect([task(row_weights_of, rows, entry) for rows in partitions])
        distinct_weights = np.unique(np.concatenate(weights))
        shares = [float(share) for share in shares_of(fit.structure, distinct_weights)]
        structures = [at_share(fit.structure, share) for share in shares]
        counts = delayed_sum([task(cooccurrences, rows, entry, n_threads) for rows in partitions])
        sums = self._sums_of_all(entry)
        pair = task(levels_of, counts, literal(structures), literal(sums), n_threads)
        level_fits, responses = cluster.hold([pair[0], pair[1]])
        levels = list(zip(shares, cluster.collect([level_fits])[0]))
        plan = DeletionPlan(fit, levels, {})
        return replace(plan, refits=self._refits(entry, plan, responses, counts, sums)), responses

    def _refits(
        self, entry: int, plan: DeletionPlan, responses: Any, counts: Any, sums: RowSums
    ) -> dict[int, Fit]:
        """Return the fits without rows that the formula does not hold for, by their number among all rows.

        See `InLeafMatrix.by_replay`. ``counts`` (L, L) are the co-occurrences of leaves over all
        rows, delayed.
        """
        structure = plan.fit.structure
        cluster = self.model.cluster
        n_threads = self.model.n_threads
        shared_structure = literal(structure)
        sum_table = None
        if needs_walk(structure) and structure.linear_leaves.mixing is None:
            (sum_table,) = cluster.hold(
                [task(responses_of_sums, counts, shared_structure, n_threads)]
            )
        shared_plan = literal(plan)
        pairs = cluster.collect(
            [
                task(replayed_rows, rows, entry, shared_plan, responses, sum_table, n_threads)
                for rows in self._rows.partitions
            ]
        )
        heavy_rows = [heavy for heavy, _ in pairs]
        changing_rows = [changing for _, changing in pairs]
        self._require_few(sum(map(len, heavy_rows)), sum(map(len, changing_rows)), structure)
        refits: dict[int, Fit] = {}
        if any(changing_rows):
            work = task(
                refits_of,
                counts,
                shared_structure,
                literal(sums),
                literal(changing_rows),
                n_threads,
            )
            refits = cluster.collect([work])[0]
        for partition, rows in enumerate(heavy_rows):
            start = int(self.model.shards.starts[partition])
            for row in rows:
                dropped: list[list[int]] = [[]] * len(self._rows.sizes)
                dropped[partition] = [row]
                row_sums_left = self._sums_without(entry, dropped, with_cooccurrences=True)
                if row_sums_left.weight > 0:
                    refits[start + row] = Fit.without(structure, row_sums_left, n_threads)
        return refits

    def _require_few(self, n_heavy: int, n_changing: int, structure: Structure) -> None:
        """Refuse more refits without single rows than passes over all rows, or memory, allow."""
        if n_heavy > MOST_REFITS:
            raise UnsupportedQuestionError(
                "removal",
                f"{n_heavy} training rows outweigh all others in one of their leaves by far, and each takes a fit without "
                f"it over all partitions (at most {MOST_REFITS} are made)",
                'Use method="first-order", without(X, rows) for some rows, or training rows in memory.',
            )
        self.model.budget.require(
            8 * 8 * n_changing * structure.total_leaves,
            f"The fits without {n_changing:,} training rows, which may change a pattern (L1, clips, bounds),",
            "Ask without(X, rows) for some rows, use training rows in memory, or raise memory_limit.",
        )

    def n_refits(self) -> int:
        """Return the number of rows whose leave-one-out fit must be computed again."""
        plans: list[DeletionPlan] = self.model.cluster.collect([self.plans(True)[0]])[0]
        return max(len(plan.refits or ()) for plan in plans)

    def left_out(self) -> list[Any]:
        """Return the predictions (n, K) of the rows of each partition by fits without them, delayed."""
        self.refuse_unknown("leave_one_out")
        plans, responses = self.plans(True)
        n_threads = self.model.n_threads
        return [task(alone, rows, plans, responses, n_threads) for rows in self._rows.partitions]

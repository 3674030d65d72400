"""Fits without some training rows in partitions, and all that deletions of single rows need, made once for a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.dask.cluster import added, literal, task
from axil.dask.exact_rows import cooccurrences
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
from axil.replay.queries import Queries
from axil.weights.engine import own_leaves
from axil.weights.fit_rules import bends
from axil.weights.forest import is_forest
from axil.weights.levels import at_share, shares_of
from axil.weights.rows_left import known_regularisation

IN_MEMORY = "Use training rows in memory."
# Rows that outweigh the rest of a leaf by far: each takes a pass over all rows, as long as leaf space does
MOST_REFITS = 64


@dataclass(frozen=True, eq=False)
class Refits:
    """Fits of a model without some of its training rows, which lie in partitions."""

    model: Any  #: `PartitionedExactModel`

    def fits(self) -> list[Fit]:
        """The fit to the targets as given, entry by entry; made once."""
        found: list[Fit] = self.model.kept.get(
            "fits", lambda: [self._fit(e) for e in range(len(self.model.entries))]
        )
        return found

    def _fit(self, e: int) -> Fit:
        space = self.model.entries[e].leaf_space
        assert space is not None
        fit = Fit.of(space, self._sums_without(e, [()] * len(self.model.held.sizes), False))
        if not bends(fit.structure):
            return fit
        shared = literal(fit)
        sums = self.model.cluster.total(
            [task(residual_sums, part, e, shared) for part in self.model.held.partitions]
        )
        return replace(fit, sums=sums)

    def _sums_without(self, e: int, gone: list[Any], counted: bool) -> Any:
        held = zip(self.model.held.partitions, gone)
        return self.model.cluster.total(
            [task(row_sums, part, e, own, counted, self.model.n_threads) for part, own in held]
        )

    def without(self, gone: list[Any]) -> list[Fit] | None:
        """The fits without the rows at these positions, one list for each partition; None: no weight is left."""
        found = []
        for e, entry in enumerate(self.model.held.entries):
            sums = self._sums_without(e, gone, not is_forest(entry.structure))
            if sums.weight <= 0:
                return None
            found.append(Fit.without(entry.structure, sums, self.model.n_threads))
        return found

    def predicted(self, fits: list[Fit], queries: Queries) -> FloatArray:
        """(n, K): predictions of these fits, offsets included."""
        leaves = [
            np.ascontiguousarray(own_leaves(fit.structure, queries.coordinates)) for fit in fits
        ]
        parts = [fit.predictions(met, queries.offsets.base) for fit, met in zip(fits, leaves)]
        return np.concatenate(parts, axis=1) + queries.offsets.values

    def refuse_unknown(self, question: str) -> None:
        for entry in self.model.held.entries:
            rule = known_regularisation(entry.structure, question)
            if entry.structure.cut is not None:
                raise UnsupportedQuestionError(
                    question,
                    "without some rows other residuals are cut off (Huber's loss), which is not found out over partitions",
                    IN_MEMORY,
                )
            if rule.smooths_nodes:
                raise UnsupportedQuestionError(
                    question,
                    "path_smooth follows numbers of rows, which are not counted over partitions",
                    IN_MEMORY,
                )

    def plans(self, exact: bool) -> tuple[Any, list[Any]]:
        """Plans of all entries, shared, and their responses, held; without these and levels unless ``exact``."""
        self.fits()
        found: tuple[Any, list[Any]] = self.model.kept.get(
            ("plans", exact), lambda: self._made_plans(exact)
        )
        return found

    def _made_plans(self, exact: bool) -> tuple[Any, list[Any]]:
        plans, known = [], []
        for e, fit in enumerate(self.fits()):
            plan, responses = (
                self._exact_plan(e, fit) if exact else (DeletionPlan(fit, [(0.0, fit)], {}), None)
            )
            plans.append(plan)
            known.append(responses)
        return self.model.cluster.share(plans), known

    def _exact_plan(self, e: int, fit: Fit) -> tuple[DeletionPlan, Any]:
        structure, n_threads, cluster, held = (
            fit.structure,
            self.model.n_threads,
            self.model.cluster,
            self.model.held,
        )
        if is_forest(structure):
            return DeletionPlan(fit, [(0.0, fit)], {}), None
        weights = cluster.collect([task(row_weights_of, part, e) for part in held.partitions])
        shares = [
            float(share) for share in shares_of(structure, np.unique(np.concatenate(weights)))
        ]
        structures = [at_share(structure, share) for share in shares]
        counted = added([task(cooccurrences, part, e, n_threads) for part in held.partitions])
        sums = self._sums_without(e, [()] * len(held.sizes), False)
        pair = task(levels_of, counted, literal(structures), literal(sums), n_threads)
        fits, responses = cluster.hold([pair[0], pair[1]])
        plan = DeletionPlan(fit, list(zip(shares, cluster.collect([fits])[0])), {})
        return replace(plan, refits=self._refits(e, plan, responses, counted, sums)), responses

    def _refits(
        self, e: int, plan: DeletionPlan, responses: Any, counted: Any, sums: RowSums
    ) -> dict[int, Fit]:
        """Fits without rows that the formula does not hold for, by their number among all rows; see `InLeafSpace.by_replay`."""
        fit, held, starts, cluster = (
            plan.fit,
            self.model.held,
            self.model.shards.starts,
            self.model.cluster,
        )
        shared, n_threads, by_sums = literal(fit.structure), self.model.n_threads, None
        if bends(fit.structure) and fit.structure.linear_leaves.mixing is None:
            (by_sums,) = cluster.hold([task(responses_of_sums, counted, shared, n_threads)])
        asked = literal(plan), responses, by_sums, n_threads
        found = cluster.collect([task(replayed_rows, part, e, *asked) for part in held.partitions])
        heavy, parts = [own for own, _ in found], [own for _, own in found]
        n, changing = sum(map(len, heavy)), sum(map(len, parts))
        if n > MOST_REFITS:
            raise UnsupportedQuestionError(
                "removal",
                f"{n} training rows outweigh all others in one of their leaves by far, and each takes a fit without it over all "
                f"partitions (at most {MOST_REFITS} are made)",
                'Use method="first-order", without(X, rows) for some rows, or training rows in memory.',
            )
        self.model.budget.require(
            8 * 8 * changing * fit.structure.total_leaves,
            f"The fits without {changing:,} training rows, which may change a pattern (L1, clips, bounds),",
            "Ask without(X, rows) for some rows, use training rows in memory, or raise memory_limit.",
        )
        refits: dict[int, Fit] = {}
        if changing:
            refits = cluster.collect(
                [task(refits_of, counted, shared, literal(sums), literal(parts), n_threads)]
            )[0]
        for p, row in chain.from_iterable(
            [(p, row) for row in rows] for p, rows in enumerate(heavy)
        ):
            gone: list[Any] = [()] * len(held.sizes)
            gone[p] = [row]
            left = self._sums_without(e, gone, True)
            if left.weight > 0:
                refits[int(starts[p]) + row] = Fit.without(
                    fit.structure, left, self.model.n_threads
                )
        return refits

    def n_refits(self) -> int:
        """How many rows the fits without single rows are made again for."""
        plans: list[DeletionPlan] = self.model.cluster.collect([self.plans(True)[0]])[0]
        return max(len(plan.refits or ()) for plan in plans)

    def left_out(self) -> list[Any]:
        """(n, K) of each partition, delayed: the predictions of its rows by fits without them."""
        self.refuse_unknown("leave_one_out")
        plans, known = self.plans(True)
        return [
            task(alone, part, plans, known, self.model.n_threads)
            for part in self.model.held.partitions
        ]

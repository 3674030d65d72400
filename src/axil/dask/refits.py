"""Fits without some training rows in partitions, and all that deletions of single rows need, made once for a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from axil.dask.cluster import Cluster, added, literal, task
from axil.dask.deletion import (
    DeletionPlan,
    alone,
    dominant_rows,
    levels_of,
    responses_of_sums,
    row_beyond,
    row_weights_of,
)
from axil.dask.fits import Fit, group_sums, places_of_code, residual_sums, row_sums
from axil.dask.partitions import together
from axil.errors import UnsupportedQuestionError
from axil.replay.queries import Queries
from axil.types import Array
from axil.weights.contract import own_leaves
from axil.weights.deletion import at_share, leaves_beyond, shares_of
from axil.weights.forest import is_forest
from axil.weights.removal import known_regularisation

# Rows that outweigh the rest of a leaf by far: each takes a pass over all rows, as long as leaf space does
MOST_REFITS = 64


@dataclass(frozen=True, eq=False)
class Refits:
    """Fits of a model without some of its training rows, which lie in partitions."""

    model: Any  #: `PartitionedWeights`

    @property
    def _held(self) -> Any:
        return self.model.held

    @property
    def _cluster(self) -> Cluster:
        found: Cluster = self.model.cluster
        return found

    @property
    def _n_threads(self) -> int:
        return int(self.model.n_threads)

    def fits(self) -> list[Fit]:
        """The fit to the targets as given, entry by entry; made once."""
        found: list[Fit] = self.model.kept.get("fits", lambda: [self._fit(e) for e in range(len(self.model.entries))])
        return found

    def _fit(self, e: int) -> Fit:
        space = self.model.entries[e].trees.leaf_space
        assert space is not None
        fit = Fit.of(space, self._sums_without(e, [()] * len(self._held.sizes), False))
        rule = fit.structure.regularisation
        if fit.structure.shift is None and (rule is None or not rule.bends):
            return fit
        shared = literal(fit)
        sums = self._cluster.total([task(residual_sums, part, e, shared, ()) for part in self._held.partitions])
        return replace(fit, sums=sums)

    def _sums_without(self, e: int, gone: list[Any], counted: bool) -> Any:
        held = zip(self._held.partitions, gone)
        return self._cluster.total([task(row_sums, part, e, own, counted, self._n_threads) for part, own in held])

    def _fit_without(self, e: int, gone: list[Any]) -> Fit:
        """The fit without the rows at these positions, (partitions,) of lists."""
        structure = self._held.entries[e].trees.structure
        sums = self._sums_without(e, gone, not is_forest(structure))
        return Fit.without(structure, sums, self._n_threads)

    def without_group(self, coded_rows: list[Any], codes: list[int]) -> list[Fit] | None:
        """The fits without the rows that have these codes in their partitions; None: no row is left."""
        found = []
        for e, entry in enumerate(self._held.entries):
            structure = entry.trees.structure
            own = zip(self._held.partitions, coded_rows, codes)
            counted, n_threads = not is_forest(structure), self._n_threads
            sums = self._cluster.total([task(group_sums, *three, e, counted, n_threads) for three in own])
            if not sums.rows_left:
                return None
            found.append(Fit.without(structure, sums, n_threads))
        return found

    def predicted(self, fits: list[Fit], queries: Queries) -> Array:
        """(n, K): predictions of these fits, offsets included."""
        leaves = [np.ascontiguousarray(own_leaves(fit.structure, queries.coordinates)) for fit in fits]
        parts = [fit.predictions(met, queries.offsets.base) for fit, met in zip(fits, leaves)]
        return np.concatenate(parts, axis=1) + queries.offsets.values

    def without(self, gone: list[Any]) -> list[Fit]:
        """The fits without the rows at these positions, (partitions,) of lists."""
        self.refuse_unknown("without")
        return [self._fit_without(e, gone) for e in range(len(self._held.entries))]

    def beyond(self, fits: list[Fit], gone: list[Any]) -> int:
        """How many leaves would have another pattern in these fits, without the rows at these positions."""
        found = 0
        for e, fit in enumerate(fits):
            rule = fit.structure.regularisation
            if rule is not None and rule.bends:
                held, shared = zip(self._held.partitions, gone), literal(fit)
                sums = self._cluster.total([task(residual_sums, part, e, shared, own) for part, own in held])
                found += leaves_beyond(fit.structure, sums, fit.values)
        return found

    def group_beyond(self, fits: list[Fit], coded_rows: list[Any], codes: list[int]) -> int:
        """How many leaves would have another pattern without the rows that have these codes in their partitions."""
        held = zip(coded_rows, codes)
        return self.beyond(fits, [task(places_of_code, groups, code) for groups, code in held])

    def row_beyond(self) -> Any:
        """The label of a training row whose deletion changes the pattern; None: there is none."""
        for e, fit in enumerate(self.fits()):
            rule = fit.structure.regularisation
            if rule is None or not rule.bends:
                continue
            plans, known = self.plans(True)
            counted = added([task(together, part, e, self._n_threads) for part in self._held.partitions])
            (sums,) = self._cluster.hold([task(responses_of_sums, counted, literal(fit.structure), self._n_threads)])
            held = self._held.partitions
            tasks = [task(row_beyond, part, e, plans, known, sums, self._n_threads) for part in held]
            for found in self._cluster.collect(tasks):
                if found is not None:
                    return found[0]
        return None

    def refuse_unknown(self, question: str) -> None:
        for entry in self._held.entries:
            known_regularisation(entry.trees.structure, question)

    def plans(self, exact: bool) -> tuple[Any, list[Any]]:
        """Plans of all entries, shared, and their responses, held; without these and levels unless ``exact``."""
        self.fits()
        found: tuple[Any, list[Any]] = self.model.kept.get(("plans", exact), lambda: self._made_plans(exact))
        return found

    def _made_plans(self, exact: bool) -> tuple[Any, list[Any]]:
        plans, known = [], []
        for e, fit in enumerate(self.fits()):
            plan, responses = self._exact_plan(e, fit) if exact else (DeletionPlan(fit, [(0.0, fit)], {}), None)
            plans.append(plan)
            known.append(responses)
        return self._cluster.share(plans), known

    def _exact_plan(self, e: int, fit: Fit) -> tuple[DeletionPlan, Any]:
        structure, n_threads, cluster, held = fit.structure, self._n_threads, self._cluster, self._held
        if is_forest(structure):
            return DeletionPlan(fit, [(0.0, fit)], {}), None
        weights = cluster.collect([task(row_weights_of, part, e) for part in held.partitions])
        shares = [float(share) for share in shares_of(structure, np.unique(np.concatenate(weights)))]
        structures = [at_share(structure, share) for share in shares]
        counted = added([task(together, part, e, n_threads) for part in held.partitions])
        sums = self._sums_without(e, [()] * len(held.sizes), False)
        pair = task(levels_of, counted, literal(structures), literal(sums), n_threads)
        fits, responses = cluster.hold([pair[0], pair[1]])
        levels = list(zip(shares, cluster.collect([fits])[0]))
        return DeletionPlan(fit, levels, self._refits(e, fit)), responses

    def _refits(self, e: int, fit: Fit) -> dict[int, Fit]:
        """Fits without rows that outweigh the rest of a leaf by far, by their number among all rows."""
        shared, held, starts = literal(fit), self._held, self.model.shards.starts
        found = self._cluster.collect([task(dominant_rows, part, e, shared) for part in held.partitions])
        n = sum(map(len, found))
        if n > MOST_REFITS:
            raise UnsupportedQuestionError(
                "removal",
                f"{n} training rows outweigh all others in one of their leaves by far, and each takes a fit without it over all "
                f"partitions (at most {MOST_REFITS} are made)",
                'Use method="first-order", without(X, rows) for some rows, or training rows in memory.',
            )
        refits = {}
        for p, row in chain.from_iterable([(p, row) for row in rows] for p, rows in enumerate(found)):
            gone: list[Any] = [()] * len(held.sizes)
            gone[p] = [row]
            left = self._sums_without(e, gone, True)
            if left.weight > 0:
                refits[int(starts[p]) + row] = Fit.without(fit.structure, left, self._n_threads)
        return refits

    def left_out(self) -> list[Any]:
        """(n, K) of each partition, delayed: the predictions of its rows by fits without them."""
        self.refuse_unknown("leave_one_out")
        plans, known = self.plans(True)
        return [task(alone, part, plans, known, self._n_threads) for part in self._held.partitions]

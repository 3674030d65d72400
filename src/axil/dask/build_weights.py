"""From a fitted model and partitioned training rows to leaf space, with the same proof as on one machine.

Three passes over the rows: totals of the targets; leaves, replay and sums over leaves; co-occurrence of leaves. Each is a
sum over partitions, added on the workers. What follows from the sums is done here, where nothing has the size of N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, cast

import numpy as np

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, LeafTotals, Model, Totals, TrainingRows
from axil.dask.cluster import Cluster, layout, literal, partitions, task
from axil.dask.on_workers import HeldRows
from axil.dask.partitions import (
    LeafSums,
    Precision,
    Shared,
    checked_each,
    furthest_row,
    held_pairs,
    label_dtype,
    observe,
    places,
    replay_partition,
    together,
)
from axil.errors import InputError, UnsupportedModelError
from axil.kernels.choose import host_backend
from axil.machine.memory import Budget, Limits
from axil.replay.checks import Miss, Verification, check_leaves, refuse_rows, verified, worse, worst
from axil.replay.radius import Held as HeldPattern
from axil.replay.recover import Replay, replayed
from axil.replay.walk import Walked
from axil.structure import cell_dtype
from axil.weights.boosting import BoostedTrees
from axil.weights.forest import is_forest
from axil.weights.leaf_space import LeafSpace


class PartitionedRows(TrainingRows):
    """Training rows of which only the totals are here and, after the walk, those of leaves."""

    def __init__(self, totals: Totals, of_leaves: list[LeafTotals] | None = None):
        object.__setattr__(self, "_totals", totals)
        object.__setattr__(self, "_of_leaves", of_leaves)

    @property
    def at_hand(self) -> bool:
        return False

    @property
    def totals(self) -> Totals:
        return cast(Totals, vars(self)["_totals"])

    @property
    def leaf_totals(self) -> list[LeafTotals] | None:
        return cast("list[LeafTotals] | None", vars(self)["_of_leaves"])

    def _elsewhere(self) -> Any:
        raise UnsupportedModelError(
            "training rows",
            "on several machines",
            "what this model does not state itself (which trees were tried and dropped, weights of classes) follows from all "
            "of its training rows only",
            "Use training rows in memory, or fit the model in one go.",
        )

    X = targets = weights = offsets = bags = property(_elsewhere)


@dataclass(frozen=True)
class Collections:
    """The user's data as lists of delayed partitions, all of the same rows."""

    X: list[Any]
    y: list[Any]
    weights: list[Any]
    offsets: list[Any]
    bags: list[Any]

    @classmethod
    def of(
        cls, X: Any, y: Any, sample_weight: Any, init_score: Any, bags: Any = None
    ) -> Collections:
        """The partitions of these collections, which must be those of X."""
        parts = partitions(X, "X")
        given = {"y": y, "sample_weight": sample_weight, "init_score": init_score, "bags": bags}
        if y is None:
            raise InputError(
                "y is None; expected the targets, a Dask Series or Array with the partitions of X."
            )
        nothing: list[Any] = [None] * len(parts)
        like = layout(X)
        return cls(
            parts,
            *(
                nothing if own is None else partitions(own, what, like)
                for what, own in given.items()
            ),
        )

    def observed(self, cluster: Cluster, adapter: Any, look: Callable[..., Any]) -> list[Any]:
        """Targets, weights and offsets of each partition, delayed and held, as `observe` or another function sees them."""
        precision = Precision(
            adapter.n_outputs,
            inputs.coding_of(adapter),
            adapter.precision,
            adapter.offset_precision,
        )
        arguments = zip(range(len(self.y)), self.y, self.weights, self.offsets)
        return cluster.hold([task(look, *parts, precision) for parts in arguments])

    @property
    def recorded(self) -> bool:
        """Whether the draws are known."""
        return self.bags[0] is not None


@dataclass(frozen=True)
class HeldWeights(HeldRows):
    """The training rows on the workers, and the trees here."""

    entries: list[BoostedTrees]  #: on structures without rows; leaf space comes with `prepared`


def build(
    model: Model, data: Collections, cluster: Cluster, limits: Limits, check: bool
) -> tuple[HeldWeights, Verification | None]:
    """Replay the fit on the workers; raise where model and data disagree, as `axil.replay.build.build` does."""
    adapter, n_threads = _readable(model, data.recorded), limits.n_threads
    observed = data.observed(cluster, adapter, observe)
    each: list[Totals] = cluster.collect([part.totals for part in observed])
    whole = reduce(add, each)
    _check_totals(adapter, whole)
    fitted = adapter.trees(PartitionedRows(whole))
    _refuse_sampled(fitted, data.recorded)
    _require_leaf_space(fitted, limits.budget)
    sizes = [part.n_rows for part in each]
    shared = cluster.share(
        Shared(adapter, [_without_rows(t) for t in fitted], checked_each(sizes), n_threads)
    )
    own = places(
        sizes, [trees.row_weights for trees in fitted], [trees.held_out for trees in fitted]
    )
    walked = [
        task(replay_partition, *parts, shared) for parts in zip(data.X, observed, data.bags, own)
    ]
    partitions, evidence = held_pairs(cluster, walked)
    every: list[LeafSums] = [
        cluster.total([part.sums[e] for part in evidence]) for e in range(len(fitted))
    ]
    fitted = adapter.trees(
        PartitionedRows(whole, [LeafTotals(sums.leaf_weights, sums.residuals) for sums in every])
    )
    entries, found = [], []
    for e, (trees, sums) in enumerate(zip(fitted, every)):
        walked_all = _walked(trees, sums, whole.n_rows)
        leaf_error = (
            check_leaves(adapter, _without_rows(trees), walked_all, sums.extent) if check else 0.0
        )
        boosted = BoostedTrees(walked_all.structure, host_backend(n_threads), sums.offsets)
        if check:
            boosted = prepared(cluster, partitions, boosted, e, n_threads)
            miss = _furthest(cluster, partitions, evidence, boosted, e, sums, n_threads)
            held = HeldPattern.of(walked_all, None)
            found.append(verified(adapter, trees, walked_all, sums.extent, leaf_error, miss, held))
        entries.append(boosted)
    report = worst(found) if check else None
    return HeldWeights(partitions, sizes, label_dtype(cluster, partitions, sizes), entries), report


def prepared(
    cluster: Cluster, partitions: list[Any], trees: BoostedTrees, entry: int, n_threads: int
) -> BoostedTrees:
    """The trees in leaf space: O(T^2 N) on the workers, 8 L^2 bytes from each of them and here."""
    if trees.leaf_space is not None:
        return trees
    if is_forest(trees.structure):
        return trees.in_leaf_space(LeafSpace(trees.structure, None, trees.backend))
    counted = cluster.total([task(together, part, entry, n_threads) for part in partitions])
    counted = np.require(counted, requirements=["C", "W", "A"])
    return trees.in_leaf_space(LeafSpace.of(trees.structure, counted, trees.backend))


def _readable(model: Model, recorded: bool) -> Adapter:
    """The model as one of trees."""
    if hasattr(model, "smoother"):
        raise UnsupportedModelError(
            "model",
            f"a linear smoother of {model.library}",
            "its weights are a product of matrices of all training rows, which partitions do not add up to",
            "Use training rows in memory.",
        )
    if hasattr(model, "members"):
        raise UnsupportedModelError(
            "model",
            "several models in one",
            "partitions are replayed for the trees of one model",
            "Use training rows in memory, or explain the models inside one by one.",
        )
    if model.missing_targets:
        raise UnsupportedModelError(
            "targets",
            "that may be missing",
            "partitions are replayed with one weight per row, and such a row counts in some outputs alone",
            "Use training rows in memory.",
        )
    if model.refused_draws is not None and not recorded:
        raise model.refused_draws
    return cast(Adapter, model)


def require_rows(n_rows: int, weighs: bool) -> None:
    """Refuse partitions without rows, or without any weight."""
    if n_rows == 0:
        raise InputError(
            "X has no rows in any partition; expected the rows that the model was fitted on."
        )
    if not weighs:
        raise InputError("sample_weight is zero everywhere; expected at least one positive weight.")


def _check_totals(adapter: Adapter, whole: Totals) -> None:
    require_rows(whole.n_rows, whole.weight != 0)
    if adapter.fitted_rows is not None and adapter.fitted_rows != whole.n_rows:
        refuse_rows(adapter, whole.n_rows, adapter.fitted_rows)


def refuse_encoded(trees: BoostedFit) -> None:
    """Refuse encodings of categories, which partitions do not have by themselves."""
    if trees.placement is not None:
        raise UnsupportedModelError(
            "categories",
            f"{trees.placement.encodings} encodings by the targets",
            "a training row is encoded by the rows before it, wherever these are, in an order drawn from all rows",
            "Use training rows in memory, in the order of the fit.",
        )


def _refuse_sampled(fitted: list[BoostedFit], recorded: bool) -> None:
    sampler = fitted[0].sampler
    refuse_encoded(fitted[0])
    if sampler is not None and not recorded:
        raise UnsupportedModelError(
            "row sampling",
            sampler.name,
            "on a cluster each machine draws from its own rows, in an order that no model records, so the draws cannot be "
            "replayed on partitions",
            "Fit without it, use training rows in memory in the order of the fit, or pass recorded draws as bags=.",
        )


def _require_leaf_space(fitted: list[BoostedFit], budget: Budget) -> None:
    """Refuse before X is read what cannot be asked in the end."""
    needed = 0
    for trees in fitted:
        c, total = trees.schedule.coefficients, int(trees.n_leaves.sum())
        needed += 2 * 8 * total**2 if c is None or c.omega[:-1].any() else 0
    instead = (
        "On several machines weights are computed in leaf space only, 8 bytes for each pair of leaves and as much again "
        "while it is built. Raise memory_limit, fit fewer or smaller trees, or use training rows in memory, which can do without."
    )
    budget.require(needed, "Leaf space", instead)


def _without_rows(trees: BoostedFit) -> BoostedFit:
    """The part of the trees that holds for all partitions alike."""
    return replace(trees, row_weights=None, held_out=None, sampler=None)


def _walked(trees: BoostedFit, sums: LeafSums, n_rows: int) -> Replay:
    """Return the replay over all rows, of which there are ``n_rows``; its structure has no rows itself."""
    nothing = np.empty((len(trees.n_leaves), 0), dtype=cell_dtype(int(trees.n_leaves.max())))
    score = np.empty((0, sums.residuals.shape[1]))
    found = sums.counts, sums.leaf_weights, sums.residuals, score, sums.drawn_weights
    draws = np.ones(1) if sums.cut is None else np.array([1.0, 0.0])
    walked = Walked(nothing, draws, *found, cut=sums.cut)
    offsets = (
        None if sums.offsets is None else score
    )  # of no row, but there: trees that see them are no forest
    return replayed(_without_rows(trees), walked, offsets, (sums.extent.weight, n_rows))


def _furthest(
    cluster: Cluster,
    partitions: list[Any],
    evidence: list[Any],
    trees: BoostedTrees,
    entry: int,
    sums: LeafSums,
    n_threads: int,
) -> Miss:
    """Where the linear map, run over the targets in leaf space, is furthest from the model's predictions of its rows."""
    s, extent = trees.structure, sums.extent
    base = extent.sums / extent.weight if s.base is None else s.base
    assert trees.leaf_space is not None
    values = np.repeat(s.final, s.n_leaves)[:, None] * trees.leaf_space.leaf_values(
        sums.started, base
    )
    made = literal((values, s.beta[-1] * base))
    tasks = [
        task(furthest_row, *pair, entry, made, n_threads) for pair in zip(partitions, evidence)
    ]
    found: list[Miss] = [miss for miss in cluster.collect(tasks) if miss is not None]
    return reduce(worse, found)

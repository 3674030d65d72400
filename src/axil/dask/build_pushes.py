"""From a boosted model of any loss and partitioned training rows to pushes, with the same proof as on one machine.

Targets, weights and offsets travel here, 8 bytes each per row, as the model is read with them; features and leaves stay on the
workers. One pass over the rows sums the gradients that made each leaf value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import GradientTrees, TrainingRows
from axil.arrays import FloatArray
from axil.contributions.contributions import Contributions, mixed_terms
from axil.dask.build_weights import Collections, refuse_encoded, require_rows
from axil.dask.cluster import Cluster, task
from axil.dask.on_workers import HeldRows
from axil.dask.partitions import checked_each, held_pairs, label_dtype, places
from axil.dask.walked_rows import GradientSums, SharedFit, observe_targets, walk_partition
from axil.errors import UnsupportedModelError
from axil.machine.memory import Limits
from axil.replay.build import with_rows
from axil.replay.checks import Verification
from axil.replay.gradient_walk import ReplayedStages, walk
from axil.replay.score_checks import check_miss, compare_counts
from axil.structure import cell_dtype
from axil.trees.residual_losses import Custom


@dataclass(frozen=True)
class HeldPushes(HeldRows):
    """The training rows on the workers, and the fit here and there."""

    walked: ReplayedStages  #: without rows
    shared: Any  #: the same, delayed and held
    largest: float  #: |score| of a training row
    leaf_sizes: FloatArray  #: (L, 1), or (L, K) where trees are shared: what all rows push into each leaf, by absolute value


def build(
    adapter: GradientTrees, data: Collections, cluster: Cluster, limits: Limits, check: bool
) -> tuple[HeldPushes, Verification | None]:
    """Walk the rows through the fit on the workers; raise where model and data disagree. The rows held, and a report."""
    if adapter.refused_draws is not None:
        raise adapter.refused_draws
    observed = data.observed(cluster, adapter, observe_targets)
    sizes: list[int] = cluster.collect([task(len, part.targets) for part in observed])
    fit, weights = _read(adapter, cluster, observed, sizes, limits)
    _refuse(fit)
    alone = _without_rows(fit)
    base = fit.schedule.shares_of_initial[0] * fit.base_value
    shared = cluster.share(SharedFit(adapter, alone, base, checked_each(sizes), limits.n_threads))
    own = places(sizes, [weights], [fit.held_out])
    walks = [task(walk_partition, *parts, shared) for parts in zip(data.X, observed, own)]
    partitions, evidence = held_pairs(cluster, walks)
    sums: GradientSums = cluster.total(evidence)
    if check:
        compare_counts(adapter, fit, sums.counts)
    walked = _settled(adapter, alone, sums, check)
    report = _check_scores(adapter, fit, sums, walked) if check else None
    kind = label_dtype(cluster, partitions, sizes)
    leaf_sizes = _leaf_sizes(walked, sums, limits)
    return HeldPushes(
        partitions, sizes, kind, walked, cluster.share(walked), sums.largest, leaf_sizes
    ), report


def _read(
    adapter: GradientTrees, cluster: Cluster, observed: list[Any], sizes: list[int], limits: Limits
) -> tuple[BoostedFit, FloatArray]:
    """The model as its targets lead to it, and what each row counts with."""
    total = sum(sizes)
    require_rows(total, True)
    limits.budget.require(
        6 * 8 * total * (adapter.n_outputs + 1),
        f"The targets and weights of {total} training rows, gathered here",
        "Raise memory_limit.",
    )
    needed = (
        [getattr(part, name) for part in observed] for name in ("targets", "weights", "offsets")
    )
    targets, weights, offsets = (_joined(cluster.collect(parts)) for parts in needed)
    assert targets is not None
    require_rows(total, weights is None or bool(weights.any()))
    (fitted,) = adapter.trees(TrainingRows(None, targets, weights, offsets))
    fitted.loss.check(targets)
    counted = with_rows(fitted, weights, None).row_weights
    counted = np.ones(total) if counted is None else counted
    return fitted, counted if fitted.leaf_factors is None else counted * fitted.leaf_factors


def _joined(parts: list[FloatArray | None]) -> FloatArray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _refuse(fit: BoostedFit) -> None:
    """Refuse by name what is not summed over partitions."""
    rounds = fit.schedule.rounds
    outputs = fit.schedule.outputs
    place = (
        rounds if outputs is None else rounds * (int(outputs.max()) + 1) + outputs
    )  # round and output of each tree
    sampled = "" if fit.sampler is None else fit.sampler.name
    refuse_encoded(fit)
    found = {
        (
            "row sampling",
            sampled,
        ): "on a cluster each machine draws from its own rows, in an order that no model records",
        (
            "boosting",
            "dart" if fit.schedule.tree_shares is not None and not fit.averages else "",
        ): "trees are taken out of the scores and put back on the way",
        (
            "boosting",
            "rf" if fit.averages else "",
        ): "axil does not average trees over partitions with this loss",
        (
            "objective",
            "custom" if fit.loss.recorded else "",
        ): "its gradients are asked for on all rows at once",
        (
            "objective",
            fit.loss.name if fit.loss.pooled else "",
        ): "its gradients depend on the residuals of all rows",
        (
            "leaves",
            "solved for all classes together" if fit.loss.joint else "",
        ): "axil does not sum their systems over partitions",
        (
            "leaf steps",
            f"{np.max(fit.steps)} per tree" if np.max(fit.steps) > 1 else "",
        ): "each step follows the sums of the one before over all rows",
        (
            "parallel trees",
            "several per iteration" if len(np.unique(place)) < len(place) else "",
        ): "axil sums the gradients of one tree per iteration and output over partitions",
    }
    if fit.coupling_rule is not None:
        name = "monotone_constraints" if fit.smoothing is None else "path_smooth"
        found[name, "set"] = (
            "axil does not sum the nodes of such trees of this loss over partitions"
        )
    for (setting, value), reason in found.items():
        if value:
            instead = "Use training rows in memory, or fit without it."
            raise UnsupportedModelError(setting, value, reason, instead)


def _without_rows(fit: BoostedFit) -> BoostedFit:
    """The part of the fit that holds for all partitions alike."""
    return replace(
        fit, row_weights=None, held_out=None, sampler=None, base=fit.base_value, leaf_factors=None
    )


def _settled(
    adapter: GradientTrees, fit: BoostedFit, sums: GradientSums, check: bool
) -> ReplayedStages:
    """The walk of all rows from their sums: one row per leaf stands for all that are in it, tree by tree."""
    width, n_outputs = int(fit.n_leaves.max()), len(fit.base_value)
    leaves = np.minimum(np.arange(width), fit.n_leaves[:, None] - 1).astype(cell_dtype(width))
    rounds = iter(_rounds(fit, sums, width, n_outputs))
    standing = replace(
        fit,
        loss=Custom(asked=lambda F: next(rounds), rounded=np.float64),
        leaf_counts=None,
        value_slack=fit.value_slack + sums.lost,
    )
    found = walk(adapter, standing, leaves, np.zeros((width, n_outputs)), None, check, 1)
    nothing = leaves[:, :0]
    none = np.empty((0, n_outputs))
    return replace(
        found,
        fit=fit,
        leaves=nothing,
        targets=none,
        weights=np.empty(0),
        score=none,
        gradients=None,
    )


def _leaf_sizes(walked: ReplayedStages, sums: GradientSums, limits: Limits) -> FloatArray:
    found = np.zeros_like(sums.sizes)
    for term in (term for terms in Contributions(walked, limits).terms for term in terms):
        own, column = (
            slice(*walked.starts[term.tree : term.tree + 2]),
            walked.fit.schedule.column(term.output),
        )
        found[own, column] += np.abs(term.scale) * sums.sizes[own, column]
    return mixed_terms(walked, found)


def _rounds(
    fit: BoostedFit, sums: GradientSums, width: int, n_outputs: int
) -> list[tuple[FloatArray, FloatArray]]:
    """G and H (width, K) of each iteration: row i stands for leaf i of the iteration's tree of that output."""
    starts, found = np.concatenate([[0], np.cumsum(fit.n_leaves)]).astype(np.int64), []
    for iteration in np.unique(fit.schedule.rounds):
        g, h = np.zeros((2, width, n_outputs))
        for t in np.flatnonzero(fit.schedule.rounds == iteration):
            own, n = slice(starts[t], starts[t + 1]), int(fit.n_leaves[t])
            outputs = fit.schedule.outputs_served(int(t))
            g[:n, outputs], h[:n, outputs] = sums.g[own], sums.h[own]
        found.append((g, h))
    return found


def _check_scores(
    adapter: GradientTrees, fit: BoostedFit, sums: GradientSums, walked: ReplayedStages
) -> Verification:
    """Compare scores with the model's; leaf values were compared in the walk. What was found."""
    scale = max(sums.largest, 1e-300)
    details = {"loss": fit.loss.name}
    errors = (
        check_miss(adapter, sums.miss, scale),
        walked.leaf_error,
        adapter.gradient_tolerance,
        scale,
    )
    n_trees, recovered = len(fit.n_leaves), dict(walked.recovered)
    return Verification(
        int(sums.counts[: fit.n_leaves[0]].sum()),
        n_trees,
        *errors,
        recovered=recovered,
        details=details,
    )

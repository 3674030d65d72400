"""From a fitted model and its training rows to a structure.

axil walks through the fit with the model's own leaf values. At each tree the residuals are then
those that the library saw, rounded as it rounds, so every leaf value can be computed again from
them and must come out the same; and a sampler that looks at the residuals draws the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Placement, TrainingRows
from axil.aliases import FeatureTable
from axil.arrays import Cells, FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.inputs import take_rows
from axil.kernels.choose import backend_of
from axil.machine.blocks import spans
from axil.machine.memory import Budget, Limits
from axil.machine.progress import track
from axil.replay.walk import ELSEWHERE, Walked
from axil.structure import (
    IsotonicRule,
    LinearLeaves,
    NewtonRule,
    RankedFit,
    RuleState,
    Structure,
    cell_dtype,
    with_nodes,
)
from axil.weights.fit_rules import rule_of
from axil.weights.forest import is_forest
from axil.weights.huber_rule import HuberRule
from axil.weights.inherited import inherited_values, inheriting
from axil.weights.percentile_rule import PercentileRule
from axil.weights.sum_rule import SumRule

Leaves = Cells

SMALLER_TREES = (
    "Fit trees of fewer leaves, raise memory_limit, or leave out monotone constraints and "
    "smoothing."
)

OTHER_ROWS = (
    "The rows are not those of the fit, or their columns were scaled or otherwise changed for it."
)

BLOCK_ENTRIES = 1 << 22  # leaf numbers asked of the library at a time
GPU_ENTRIES = 1 << 28  # and of a GPU
# of each thread at least, where the core finds leaves:
# it plans its way through the trees for each block
ROUTED_ROWS = 1 << 13
NEGLIGIBLE = 1e-6  # of the largest leaf value: what rounding leaves of a mean that was taken out


@dataclass(frozen=True)
class Replay:
    """The result of the walk over all rows."""

    structure: Structure
    counts: NDArray[np.int64]  #: (L,) rows that each leaf was fitted on
    sums: FloatArray  #: (L, K) of weight * draw * residual, as the library rounds them
    values: FloatArray  #: (L, K) leaf values before any rate
    score: FloatArray  #: (N, K) the model's predictions of the training rows
    recovered: dict[str, Any]  #: what the model does not state and the walk supplied
    held: dict[
        str, Any
    ]  #: how many leaves have something held besides their rows; see `LinearLeaves`
    drawn_weights: FloatArray  #: (L,) see `Walked`


def assign_leaves(
    adapter: Adapter,
    X: FeatureTable,
    n_rows: int,
    n_leaves: NDArray[np.int64],
    limits: Limits,
    placement: Placement | None = None,
) -> Leaves:
    """Return the packed leaf numbers of the training rows, (T, N).

    They are computed block by block, so that a library's wide matrix never exists as a whole.
    """
    shape = (len(n_leaves), n_rows)
    dtype = cell_dtype(int(n_leaves.max()))
    leaves = limits.budget.empty(shape, dtype, "The leaf numbers of all training rows", ELSEWHERE)
    backend = backend_of(limits)
    if placement is not None:
        placement.assign(leaves, limits.n_threads, backend)
        return leaves
    if limits.device == "cuda":
        entries = GPU_ENTRIES
    else:
        entries = BLOCK_ENTRIES
    if adapter.routes is None:
        least = 1
    else:
        least = ROUTED_ROWS * limits.n_threads
    for rows in track(spans(n_rows, max(least, entries // len(n_leaves))), "leaves"):
        adapter.assign(take_rows(X, rows), leaves[:, rows], limits.n_threads, backend)
    return leaves


def training_leaves(
    adapter: Adapter,
    rows: TrainingRows,
    n_leaves: NDArray[np.int64],
    limits: Limits,
    placement: Placement | None,
) -> Leaves:
    """Return the leaf numbers (T, N) of the training rows, from a file or from their features."""
    if rows.leaves is None:
        n_rows = len(rows.targets)
        return assign_leaves(adapter, rows.X, n_rows, n_leaves, limits, placement)
    leaves = rows.leaves
    shape = len(n_leaves), len(rows.targets)
    if leaves.shape != shape or leaves.dtype != cell_dtype(int(n_leaves.max())):
        raise ValueError(f"leaves of shape {leaves.shape} and type {leaves.dtype}")
    if not leaves.flags.c_contiguous:
        raise ValueError("leaves that are not in the order of C")
    if (leaves.max(axis=1) >= n_leaves).any():
        raise ValueError("leaves that their trees do not have")
    return leaves


def check_placement(placement: Placement | None, leaves: Leaves, limits: Limits) -> None:
    """Raise unless training rows have the same leaves (T, N) as before."""
    if placement is None:
        return
    assigned = limits.budget.empty(
        leaves.shape, np.uint16, "The leaf numbers of all training rows", ELSEWHERE
    )
    placement.assign(assigned, limits.n_threads)
    if not np.array_equal(assigned, leaves):
        raise InputError(
            "X_train is not what the explainer was made of; expected the same rows in the same "
            "order."
        )


def replay(
    trees: BoostedFit,
    walked: Walked,
    offsets: FloatArray | None,
    budget: Budget,
    targets: FloatArray | None = None,
) -> Replay:
    """Return the replay of these trees from a walk over all rows at once.

    Parameters
    ----------
    targets : array of shape (N, K), optional
        Averaged trees without any row of their sample predict the mean of these.
    """
    needed = regularisation_of(trees).bytes_needed(walked.sums[:, 0], walked.leaf_weights)
    budget.require(
        needed, "Tables of which leaves depend on which (bounded or smoothed leaves)", SMALLER_TREES
    )
    replayed_fit = replayed(trees, walked, offsets)
    if targets is None or walked.ranks is not None or walked.cut is not None:
        return replayed_fit
    mean = np.average(targets, axis=0, weights=trees.weights.row_weights)
    return _with_inherited(replayed_fit, trees, mean)


def _with_inherited(replay_of_rows: Replay, trees: BoostedFit, mean: FloatArray) -> Replay:
    """Return the replay in which empty leaves of averaged trees have the value of an ancestor.

    Such leaves exist after a refit. A leaf whose value is nearer to that of an empty leaf of the
    library was empty in the fit.
    """
    s = replay_of_rows.structure
    empty = s.leaf_weights == 0
    if not s.averages or not empty.any():
        return replay_of_rows
    final = np.repeat(s.final, s.n_leaves)[:, None]
    rule = rule_of(s)
    lost = replace(s, leaf_rule=replace(rule, emptied=empty))
    values = inherited_values(lost, replay_of_rows.values, replay_of_rows.sums, mean)
    apart = [
        np.abs(final * leaf_values - trees.table.leaf_values).sum(axis=1)
        for leaf_values in (values, replay_of_rows.values)
    ]
    emptied = empty & (apart[0] <= apart[1])
    if not emptied.any():
        return replay_of_rows
    s = replace(s, leaf_rule=replace(rule, emptied=emptied))
    values = inherited_values(s, replay_of_rows.values, replay_of_rows.sums, mean)
    if not is_forest(s):
        pattern = inheriting(s).newton_rule.linearise(replay_of_rows.sums[:, 0], s.leaf_weights)
        s = replace(s, linear_leaves=pattern)
    return replace(replay_of_rows, structure=s, values=values)


def replayed(
    trees: BoostedFit,
    walked: Walked,
    offsets: FloatArray | None,
    totals: tuple[float, int] | None = None,
) -> Replay:
    """Return the replay from sums over all rows.

    ``totals`` has their weight and number, if the rows are not in this process.
    """
    # A refit may leave leaves without weight, which bound no others.
    rule = regularisation_of(trees).emptied(walked.drawn_weights == 0)
    alike = (
        rule.l1 == 0 and rule.max_step == np.inf
    )  # bounds alone: classes of a tree are all at theirs together
    assert walked.sums.shape[1] == 1 or alike, "outputs that share trees have different active sets"
    pattern = rule.linearise(walked.sums[:, 0], walked.leaf_weights)
    if walked.shift is not None:
        pattern = replace(pattern, shift=walked.shift)
    values = pattern.values(trees.table.n_leaves, walked.sums)
    rates, recovered = recover_rates(trees, values, walked.counts)
    trees = trees.with_learning_rates(rates)
    leaf_weights = walked.leaf_weights
    if trees.leaf_rule.ranks is None:
        counts: dict[str, Any] = pattern.counts
    else:
        counts = {"ranked": len(walked.sums)}
    if walked.cut is not None:
        constants = replace(pattern, shift=None).values(trees.table.n_leaves, walked.cut.sums)[:, 0]
        pattern = replace(
            pattern, shift=constants if pattern.shift is None else pattern.shift + constants
        )
        leaf_weights = walked.cut.free
        counts = counts | {"cut": walked.cut.share}
    structure = fitted_structure(
        trees,
        walked.cells,
        walked.draws,
        leaf_weights,
        pattern,
        offsets,
        leaf_rule_of(trees, rule, walked.ranks),
        totals,
    )
    return Replay(
        structure,
        walked.counts,
        walked.sums,
        values,
        walked.score,
        recovered,
        counts,
        walked.drawn_weights,
    )


def regularisation_of(trees: BoostedFit) -> NewtonRule:
    """Return the rule by which leaf values follow from their sums and weights; see `BoostedFit`."""
    l2 = np.asarray(trees.leaf_rule.l2, dtype=np.float64)
    steps = np.broadcast_to(np.asarray(trees.leaf_rule.steps, dtype=np.float64), l2.shape)
    settings = (
        l2,
        steps,
        trees.leaf_rule.l2_by_weight,
        trees.leaf_rule.l1,
        trees.leaf_rule.max_step,
    )
    if trees.leaf_rule.chains is not None:
        return IsotonicRule(*settings, chains=trees.leaf_rule.chains)
    return with_nodes(NewtonRule(*settings), trees.leaf_rule.nodes)


def leaf_rule_of(
    trees: BoostedFit, newton: NewtonRule, ranks: RankedFit | None = None
) -> SumRule | HuberRule | PercentileRule:
    """Return the rule of a fit, whose leaf values follow from leaf sums by ``newton``.

    ``ranks``: the rows that percentiles rank, and their rule; None: leaves are no percentiles.
    """
    state = (newton, trees.leaf_rule.ancestors, None, trees.weights.class_counts)
    if ranks is not None:
        return PercentileRule(*state, ranks=ranks)
    if trees.leaf_rule.cut is not None:
        return HuberRule(*state, cut=trees.leaf_rule.cut)
    return SumRule(*state)


def fitted_structure(
    trees: BoostedFit,
    cells: Leaves,
    draws: FloatArray,
    leaf_weights: FloatArray,
    pattern: LinearLeaves,
    offsets: FloatArray | None,
    leaf_rule: RuleState,
    totals: tuple[float, int] | None = None,
) -> Structure:
    """Return the structure of the trees from the weights of their leaves and their active set.

    ``totals``: the weight and the number of all training rows, where they are not here.
    """
    total, total_rows = totals or (None, None)
    return Structure(
        cells=cells,
        n_leaves=trees.table.n_leaves,
        leaf_weights=leaf_weights,
        linear_leaves=pattern,
        learning_rates=trees.learning_rates.copy(),
        initial=trees.initial.constants,
        row_weights=trees.weights.row_weights
        if trees.leaf_rule.ranks is None
        else None,  # they are in the ranks
        scaling_weights=trees.weights.scaling_weights,
        offsets=offsets,
        sample_counts=draws,
        coefficients=trees.schedule.coefficients,
        columns=trees.table.columns,
        leaf_rule=leaf_rule,
        total=total,
        total_rows=total_rows,
    )


def recover_rates(
    trees: BoostedFit, values: FloatArray, counts: NDArray[np.int64] | None = None
) -> tuple[FloatArray, dict[str, Any]]:
    """Return the learning rates of the trees.

    A rate that the model does not state is the least-squares ratio of the model's leaf values to
    those before the rate. If there is none, raise: the rows are not those of the fit if ``counts``
    (L,) shows that, else the model is refused.
    """
    rates = trees.learning_rates.copy()
    unknown = np.flatnonzero(np.isnan(rates))
    ends = np.cumsum(trees.table.n_leaves)
    negligible = NEGLIGIBLE * np.abs(
        trees.table.leaf_values[int(trees.initial.is_first_tree) :]
    ).max(initial=0.0)
    for t in unknown:
        leaves = slice(ends[t] - trees.table.n_leaves[t], ends[t])
        # One value, or two that balance each other, are led to by any targets with some rate or
        # other, and zeros by none.
        size = float(np.sum(values[leaves] ** 2))
        if (
            size == 0
            or 0 < np.count_nonzero(np.abs(trees.table.leaf_values[leaves]) > negligible) < 3
        ):
            if counts is not None and trees.table.leaf_counts is not None:
                _refuse_other_rows(trees, counts, int(t), leaves)
            raise UnsupportedModelError(
                "learning_rate",
                f"unknown for tree {t}",
                f"it is not stated, and a tree of {trees.table.n_leaves[t]} leaves does not tell "
                "it from the targets",
                "See that the targets are those of the fit, in its order; or fit with one "
                "learning rate, or with more leaves.",
            )
        rates[t] = np.sum(trees.table.leaf_values[leaves] * values[leaves]) / size
    return rates, {"rates": [[int(t), float(rates[t])] for t in unknown]} if len(unknown) else {}


def _refuse_other_rows(trees: BoostedFit, counts: NDArray[np.int64], t: int, leaves: slice) -> None:
    """Raise if the leaves of a tree have other numbers of rows than in the fit.

    Then the rate is not the cause.
    """
    assert trees.table.leaf_counts is not None
    apart = np.flatnonzero(counts[leaves] != trees.table.leaf_counts[leaves])
    if len(apart):
        leaf = int(apart[0])
        raise ExactnessError(
            "row count",
            float(counts[leaves][leaf]),
            float(trees.table.leaf_counts[leaves][leaf]),
            OTHER_ROWS,
            t,
            leaf,
        )

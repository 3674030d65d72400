"""Comparisons of a replay with the fitted model, for every loss.

They come in one order. The first that fails says most plainly what is wrong with the data:

1. row counts of the leaves
2. weights of the leaves
3. the initial prediction
4. leaf values, and the values of inner nodes
5. predictions, or scores (`axil.replay.compare_predictions`)

Where a fit may disagree because its trees are from another fit (`BoostedFit.explain_mismatch`),
leaf values come before the initial prediction, because they may show why that is another. Sums of
hessians follow the scores and, with some losses, the targets, so they come after the leaf values,
which show wrong targets more plainly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Model
from axil.adapters.sample_counts import RecordedCounts
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import ExactnessError
from axil.kernels import Rows
from axil.machine.arrays import largest_size
from axil.replay.compare_predictions import Miss, check_predictions
from axil.replay.radius import ActiveSet
from axil.replay.recover import Replay
from axil.replay.replayed_stages import lost_beside
from axil.replay.verification import Verification
from axil.replay.walk import leaf_totals
from axil.structure import NodeRule, Nodes, RowTotals
from axil.weights.inherited import inheriting

# Of a leaf's sum of weights, in some libraries in single precision, relative to the sum over all
# rows
WEIGHT_SLACK = 1e-7
MEAN_SLACK = 8  # roundings of the largest target that a mean, as a library keeps it, may be off by
# Of sums in float64 over any order of the rows, relative to the largest |prediction|
ROUNDING = 1e-12
# Of a leaf's sum: scores are float32 sums, and exponentials may be off by a rounding.
HESSIAN_TOLERANCE = 1e-4
# Of a row's weight: what is left of the hessian of a probability next to 0 or 1 in float32
HESSIAN_ROUNDING = 1e-6
SUBTRACTED = 1e-12  # of the sum over a tree: a library may subtract a child's sum from its parent's
INITIAL = "initial prediction"


@dataclass(frozen=True)
class Extent(RowTotals):
    """Totals over training rows that do not depend on leaves; those of several parts add up."""

    n_rows: int
    weight: float
    sums: FloatArray  #: (K,) of weight * target
    largest_target: float = field(metadata={"both": max})  #: in absolute value, as all that follow
    largest_offset: float = field(metadata={"both": max})
    #: of the predictions by the model's own leaf values
    largest_score: float = field(metadata={"both": max})

    @classmethod
    def of(
        cls,
        targets: FloatArray,
        weights: FloatArray | None,
        offsets: FloatArray | None,
        score: FloatArray,
    ) -> Extent:
        """Return the extent of rows.

        Parameters
        ----------
        targets, offsets, score : arrays of shape (N, K)
            The score is what the model's own leaf values add up to.
        weights : array of shape (N,) or None
        """
        total_weight = float(len(targets))
        sums = targets.sum(axis=0)
        if weights is not None:
            total_weight = float(weights.sum())
            sums = weights @ targets
        largest_offset = 0.0
        if offsets is not None:
            largest_offset = largest_size(offsets)
        return cls(
            n_rows=len(targets),
            weight=total_weight,
            sums=sums,
            largest_target=largest_size(targets),
            largest_offset=largest_offset,
            largest_score=largest_size(score),
        )

    @property
    def scale(self) -> float:
        """The number that errors are relative to."""
        return self.largest_score or 1.0

    def rounding(self, model: Model, initial: FloatArray | None) -> float:
        """Return the error of a prediction that rounding may cause.

        Scores go through the rounded targets, offsets and constant initial predictions (K,).
        """
        largest_initial = 0.0
        if initial is not None:
            largest_initial = largest_size(initial)
        largest = max(self.largest_target, self.largest_offset, largest_initial)
        return MEAN_SLACK * float(np.finfo(model.rounding.targets).eps) * largest


# -- a fit with exact weights ----------------------------------------------------------------------


def check_leaves(adapter: Adapter, fit: BoostedFit, replay: Replay, extent: Extent) -> float:
    """Compare the leaves and the initial prediction of a fit of residuals with the model.

    Returns
    -------
    float
        The largest error of a leaf value, relative to the largest |prediction|.
    """
    check_leaf_counts(adapter, fit, replay.counts)
    _check_leaf_weights(adapter, fit, replay)
    if fit.explain_mismatch is not None:
        _check_exact_values(adapter, fit, replay, extent.scale)
    if fit.initial.follows_targets:
        rounding = MEAN_SLACK * float(np.finfo(adapter.rounding.targets).eps) + ROUNDING
        slack = np.full(len(extent.sums), rounding * extent.largest_target)
        check_initial(adapter, fit, extent.sums / extent.weight, slack)
    leaf_error = _check_exact_values(adapter, fit, replay, extent.scale)
    _check_exact_nodes(adapter, fit, replay, extent.scale)
    return leaf_error


def verified(
    adapter: Adapter,
    fit: BoostedFit,
    replay: Replay,
    extent: Extent,
    leaf_error: float,
    miss: Miss,
    active_set: ActiveSet | None = None,
) -> Verification:
    """Compare predictions with the model's, and return the findings of the whole replay."""
    scale = extent.scale
    rounding = extent.rounding(adapter, fit.initial.constants)
    check_predictions(adapter, miss, adapter.tolerance * scale + rounding)
    compared = []
    if fit.table.leaf_counts is not None:
        compared.append("leaf counts")
    if fit.table.leaf_weights is not None:
        compared.append("leaf weights")
    sampled_by = []
    if fit.sampler is not None and not isinstance(fit.sampler, RecordedCounts):
        sampled_by.append(fit.sampler.name)
    if fit.weights.held_out is not None:
        sampled_by.append("the rows held out for early stopping")
    return Verification(
        n_rows=extent.n_rows,
        n_trees=len(fit.table.n_leaves) - fit.initial.is_first_tree,
        max_error=miss.error / scale,
        leaf_error=leaf_error,
        tolerance=adapter.tolerance,
        scale=scale,
        rounding=rounding,
        compared=compared,
        recovered=replay.recovered,
        replayed=" and ".join(sampled_by),
        active_set=active_set,
    )


# -- row counts ------------------------------------------------------------------------------------


def check_leaf_counts(adapter: Adapter, fit: BoostedFit, counts: AnyArray) -> None:
    """Compare the numbers of rows in each leaf, (L,), with those that the model records."""
    recorded = fit.table.leaf_counts
    if recorded is None:
        return
    if fit.sampler is None:
        of_first_tree = slice(0, fit.table.n_leaves[0])
        n_replayed = int(counts[of_first_tree].sum())
        n_recorded = int(recorded[of_first_tree].sum())
        if n_replayed != n_recorded:
            _raise_explanation(fit, np.flatnonzero(counts != recorded))
            leaf_weights = fit.table.leaf_weights
            may_be_weights = leaf_weights is not None and _are_whole(leaf_weights)
            refuse_rows(adapter, n_replayed, n_recorded, may_be_weights)
    cause = _sampling_cause(fit) + adapter.causes("counts")
    compare("row count", counts, recorded, 0.5, fit, cause)


def counts_of_leaves(fit: BoostedFit, rows: Rows, sample_counts: AnyArray | None) -> AnyArray:
    """Return how many rows fall into each leaf, (L,), or how many of those sampled, (T, N)."""
    if sample_counts is None:
        in_fit = np.ones(rows.n_rows)
        if fit.weights.held_out is not None:
            in_fit = (~fit.weights.held_out).astype(float)
        return rows.leaf_sums(in_fit[:, None], None)[:, 0]
    counts_of_trees = []
    for tree, sampled in enumerate(sample_counts):
        is_sampled = (sampled > 0).astype(float)
        counts_of_trees.append(rows.tree(tree).leaf_sums(is_sampled[:, None], None)[:, 0])
    counts = np.concatenate(counts_of_trees)
    if fit.table.leaf_counts is None:
        return counts
    # A tree without a split does not always say how many rows it had.
    is_single = np.repeat(fit.table.n_leaves == 1, fit.table.n_leaves)
    return np.where(is_single, fit.table.leaf_counts, counts)


def refuse_rows(
    model: Model, n_replayed: int, n_fitted: int, may_be_weights: bool = False
) -> NoReturn:
    """Raise because the model was fitted on another number of rows."""
    cause = f"The {model.library} model was fitted on {n_fitted} rows: pass exactly those."
    if may_be_weights:
        cause += (
            f"\nOr it was fitted with whole numbers as sample_weight that add up to {n_fitted}: "
            "pass the same."
        )
    raise ExactnessError("number of training rows", n_replayed, n_fitted, cause)


def _sampling_cause(fit: BoostedFit) -> str:
    """Return why the sampled rows of a tree may differ; empty if the fit samples none."""
    if fit.sampler is None:
        return ""
    return (
        f"The rows sampled for this tree could not be replayed ({fit.sampler.name}): rows are "
        "sampled by their position, so they must come in the order of the fit. If you recorded the "
        "samples, pass them as in_bag=.\n"
    )


# -- weights ---------------------------------------------------------------------------------------


def _check_leaf_weights(adapter: Adapter, fit: BoostedFit, replay: Replay) -> None:
    """Compare the weights of the leaves with those that the model records."""
    recorded = fit.table.leaf_weights
    if recorded is None:
        return
    structure = replay.structure
    total_weight = structure.total_weight
    row_weights = fit.weights.row_weights
    if fit.leaf_rule.ranks is not None and row_weights is not None:
        total_weight = float(row_weights.sum())  # the structure does not know the weights
    weights = replay.drawn_weights
    if fit.weights.recorded_by is not None:
        weights = leaf_totals(
            structure.leaves(), fit.table.n_leaves, fit.weights.recorded_by, n_threads=1
        )
    cause = _weighting_cause(fit, recorded, replay)
    cause += _sampling_cause(fit) + adapter.causes("weights")
    compare("sample weight", weights, recorded, WEIGHT_SLACK * total_weight, fit, cause)


def _weighting_cause(fit: BoostedFit, recorded: FloatArray, replay: Replay) -> str:
    """Return whether the model had sample weights, judged by the weights of its leaves."""
    has_weights = replay.structure.row_weights is not None
    if has_weights and fit.sampler is None and np.allclose(recorded, replay.counts, rtol=1e-6):
        return (
            "The model's leaves weigh as much as they have rows: it was fitted without "
            "sample_weight. Leave it out.\n"
        )
    if not has_weights and not _are_whole(recorded):
        return (
            "The model's leaves do not weigh as much as they have rows: it was fitted with "
            "sample_weight. Pass the same.\n"
        )
    return ""


def _are_whole(weights: FloatArray) -> bool:
    """Return whether these are whole numbers."""
    return bool(np.allclose(weights, np.rint(weights), rtol=1e-9, atol=0))


def check_hessians(
    adapter: Adapter, fit: BoostedFit, hessians: FloatArray, leaf_weights: FloatArray
) -> None:
    """Compare sums of row weight times hessian with those that the model records.

    Parameters
    ----------
    hessians : array of shape (L,)
    leaf_weights : array of shape (L,)
        The weights of the rows in each leaf.
    """
    recorded = fit.table.leaf_hessians
    if recorded is None:
        return
    n_leaves = fit.table.n_leaves
    tree_of_leaf = np.repeat(np.arange(len(n_leaves)), n_leaves)
    sums_of_trees = np.bincount(tree_of_leaf, recorded)[tree_of_leaf]
    slack = (
        HESSIAN_TOLERANCE * recorded + HESSIAN_ROUNDING * leaf_weights + SUBTRACTED * sums_of_trees
    )
    compare("sum of hessians", hessians, recorded, slack, fit, adapter.causes("weights"))


# -- the initial prediction ------------------------------------------------------------------------


def check_initial(
    adapter: Adapter, fit: BoostedFit, computed: FloatArray, slack: FloatArray
) -> None:
    """Compare the initial prediction with the model's, because far from zero no leaf shows it.

    Parameters
    ----------
    computed, slack : arrays of shape (K,)
    """
    recorded = fit.initial.values
    for output in np.flatnonzero(~(np.abs(computed - recorded) <= slack)):
        raise ExactnessError(
            INITIAL, float(computed[output]), float(recorded[output]), adapter.causes("values")
        )


# -- leaf values -----------------------------------------------------------------------------------


def _check_exact_values(adapter: Adapter, fit: BoostedFit, replay: Replay, scale: float) -> float:
    """Compare leaf values; return the largest error, relative to the largest |prediction|."""
    table = fit.table
    values = replay.values * np.repeat(replay.structure.final, table.n_leaves)[:, None]
    # A first tree that is the initial prediction says nothing of the leaves.
    largest = float(np.abs(table.leaf_values[int(fit.initial.is_first_tree) :]).max(initial=0.0))
    slack = adapter.leaf_tolerance * largest + ROUNDING * scale + table.value_slack
    cause = _cause_of_values(adapter, fit, replay, values, scale) + adapter.causes("values")
    return _compare_values(fit, values, slack, cause, table.printed_shift) / scale


def _cause_of_values(
    adapter: Adapter, fit: BoostedFit, replay: Replay, values: FloatArray, scale: float
) -> str:
    """Return whether the mean of the targets differs, if leaf values disagree."""
    first_tree = slice(0, fit.table.n_leaves[0])
    weights = replay.structure.leaf_weights[first_tree]
    differences = values[first_tree] - fit.table.leaf_values[first_tree]
    shift = np.abs(weights @ differences) / max(weights.sum(), 1e-300)
    # `check_initial` compares it, unless it is hidden in the first tree: then the targets alone
    # tell it.
    is_compared = fit.initial.follows_targets and not np.any(fit.table.printed_shift)
    if not is_compared and shift.max() > adapter.tolerance * scale:
        return "The targets' mean differs from that of the targets the model was fitted on.\n"
    return (
        "The targets' mean agrees, so the same targets may be in another order, or single ones "
        "differ.\n"
    )


def check_gradient_values(
    adapter: Adapter,
    fit: BoostedFit,
    values: FloatArray,
    initial_scores: FloatArray,
    noise: Callable[[], FloatArray],
) -> float:
    """Compare the leaf values of a walk by gradients with the model's.

    Values that are lost in the rounding of the initial scores agree: where these leave nothing to
    learn, leaf values are roundings of probabilities next to 0 and 1.

    Parameters
    ----------
    values : array of shape (L, K)
    initial_scores : array of shape (N, K) or (K,)
    noise : callable
        Returns what rounding leaves over of gradients that cancel, (L, K), which is all there is in
        leaves of a fit that had nothing to learn. It is called where some values are apart.

    Returns
    -------
    float
        The largest difference, relative to the largest leaf value.
    """
    recorded = fit.table.leaf_values
    largest = float(np.abs(recorded).max(initial=0.0)) or 1.0
    allowed = adapter.gradient_tolerance * largest + fit.table.value_slack
    allowed = allowed + lost_beside(initial_scores)
    slack = np.broadcast_to(np.reshape(allowed, (-1, 1)), values.shape)
    if not (np.abs(values - recorded) <= slack).all():
        slack = slack + noise()
    return _compare_values(fit, values, slack, adapter.causes("values")) / largest


def _compare_values(
    fit: BoostedFit,
    values: FloatArray,
    slack: FloatArray | float,
    cause: str,
    printed_shift: FloatArray | float = 0.0,
) -> float:
    """Compare leaf values (L, K) with the model's, and return the largest difference."""
    recorded = fit.table.leaf_values
    slack_of_outputs = np.asarray(slack)
    if slack_of_outputs.ndim < 2:
        slack_of_outputs = np.reshape(slack_of_outputs, (-1, 1))
    slack_of_outputs = np.broadcast_to(slack_of_outputs, values.shape)
    for output in range(values.shape[1]):
        compare(
            "value",
            values[:, output],
            recorded[:, output],
            slack_of_outputs[:, output],
            fit,
            cause,
            printed_shift,
        )
    return float(np.abs(values - recorded).max(initial=0.0))


def _check_exact_nodes(adapter: Adapter, fit: BoostedFit, replay: Replay, scale: float) -> None:
    """Compare the values of inner nodes, if an active set hides the sums of leaves.

    A leaf at zero or at a bound says little of its own sum.
    """
    structure = replay.structure
    rule = structure.newton_rule
    if not isinstance(rule, NodeRule) or not rule.has_active_set:
        return
    inherited_rule = inheriting(structure).newton_rule
    assert isinstance(inherited_rule, NodeRule)
    values = inherited_rule.node_values(replay.sums[:, 0], replay.drawn_weights).bounded
    values = np.repeat(structure.final, np.diff(rule.nodes.starts)) * values
    largest = float(np.abs(fit.table.leaf_values).max(initial=0.0))
    slack = adapter.leaf_tolerance * largest + ROUNDING * scale
    compare_nodes(rule.nodes, values, slack, adapter.causes("values"))


def check_gradient_nodes(adapter: Adapter, fit: BoostedFit, values: FloatArray) -> None:
    """Compare the values (M,) of inner nodes of monotone trees in a walk by gradients."""
    nodes = fit.leaf_rule.nodes
    assert nodes is not None
    largest = float(np.abs(fit.table.leaf_values).max(initial=0.0)) or 1.0
    compare_nodes(nodes, values, adapter.gradient_tolerance * largest, adapter.causes("values"))


def compare_nodes(nodes: Nodes, values: FloatArray, slack: float, causes: str) -> None:
    """Raise for the first inner node whose value, (M,), is not the model's own."""
    is_apart = np.abs(values - nodes.values) > slack + nodes.slack
    for node in np.flatnonzero(is_apart & (nodes.leaf < 0)):
        tree = int(np.searchsorted(nodes.starts, node, side="right")) - 1
        split = f"value of split {node - nodes.starts[tree]}"
        cause = (
            "Its leaves agree, but the values that the model records for its inner nodes come "
            f"from other sums.\n{causes}"
        )
        raise ExactnessError(split, float(values[node]), float(nodes.values[node]), cause, tree)


def compare(
    quantity: str,
    replayed: AnyArray,
    recorded: AnyArray,
    slack: FloatArray | float,
    fit: BoostedFit,
    cause: str,
    printed_shift: FloatArray | float = 0.0,
) -> None:
    """Raise for the first leaf whose replayed and recorded numbers are too far apart.

    A refusal that explains why just these trees disagree comes first.

    Parameters
    ----------
    quantity : str
        What the numbers are, for the message.
    replayed, recorded : arrays of shape (L,)
    slack : array of shape (L,) or float
    printed_shift : array of shape (L,) or float
        What is added to both numbers in the message.
    """
    apart = np.flatnonzero(~(np.abs(replayed - recorded) <= slack))
    if not len(apart):
        return
    _raise_explanation(fit, apart)
    place = int(apart[0])
    n_leaves = fit.table.n_leaves
    ends = np.cumsum(n_leaves)
    tree = int(np.searchsorted(ends, place, side="right"))
    n_base_trees = int(fit.initial.is_first_tree)
    if tree < n_base_trees:
        raise ExactnessError(
            f"{quantity} of the base", float(replayed[place]), float(recorded[place]), cause
        )
    shift = float(np.broadcast_to(printed_shift, replayed.shape)[place])
    raise ExactnessError(
        quantity,
        float(replayed[place]) + shift,
        float(recorded[place]) + shift,
        cause,
        tree - n_base_trees,
        place - int(ends[tree] - n_leaves[tree]),
    )


def _raise_explanation(fit: BoostedFit, leaves_apart: IntArray) -> None:
    """Raise the refusal that explains why only these leaves disagree, if the model has one."""
    if fit.explain_mismatch is None:
        return
    ends = np.cumsum(fit.table.n_leaves)
    trees_apart = np.searchsorted(ends, leaves_apart, side="right")
    agrees: BoolArray = ~np.isin(np.arange(len(ends)), trees_apart)
    refusal = fit.explain_mismatch(agrees)
    if refusal is not None:
        raise refusal

"""Comparisons of a gradient walk with the fitted model: initial scores, leaf counts, leaf values, hessians, scores.

`checks` has the comparisons of leaves and predictions that both walks share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter
from axil.arrays import FloatArray
from axil.errors import ExactnessError
from axil.inputs import take_rows
from axil.kernels import Rows
from axil.replay.checks import Miss, checked_rows, compare, compare_nodes, furthest, refuse_rows

LOST = 4  # roundings of the largest score, below which a value changes no score that it is added to
HESSIAN_TOLERANCE = (
    1e-4  # of a leaf's sum: scores are float32 sums, and exponentials may be off by a rounding
)
# of a row's weight: what is left of a second derivative of a probability next to 0 or 1 in float32
ROUNDING = 1e-6
SUBTRACTED = 1e-12  # of the sum over a tree
ADDED_ENTRIES = 1 << 18  # leaf values added up at a time, of all trees


def lost_beside(scores: FloatArray) -> float:
    """Return the size of what is lost, in double precision, in the rounding of sums with these scores."""
    return LOST * float(np.finfo(np.float64).eps) * float(np.abs(scores).max(initial=0.0))


def check_start(
    adapter: Adapter,
    found: FloatArray,
    trees: BoostedFit,
    targets: FloatArray,
    rounding: FloatArray,
) -> None:
    """Compare the scores (K,) that the targets lead to at first with those that the fit started from, up to rounding (K,)."""
    largest_target = float(np.abs(targets).max())
    for replayed, recorded, slack in zip(found, trees.initial.values, rounding):
        scale = max(1.0, largest_target, abs(recorded))
        if not abs(replayed - recorded) <= slack + adapter.gradient_tolerance * scale:
            what = "score that the fit starts from"
            raise ExactnessError(what, float(replayed), float(recorded), adapter.causes("values"))


def check_counts(
    adapter: Adapter, trees: BoostedFit, rows: Rows, drawn: NDArray[Any] | None
) -> None:
    """Compare how many rows fall into each leaf, or how many of those drawn (T, N), with what the model records."""
    if trees.table.leaf_counts is None:
        return
    if drawn is None:
        in_fit = np.ones(rows.n_rows)
        if trees.weights.held_out is not None:
            in_fit = (~trees.weights.held_out).astype(float)
        return compare_counts(adapter, trees, rows.leaf_sums(in_fit[:, None], None)[:, 0])
    counts_of_trees = [
        rows.tree(t).leaf_sums((sampled > 0)[:, None].astype(float), None)
        for t, sampled in enumerate(drawn)
    ]
    # A tree without a split does not always say how many rows it had.
    is_single = np.repeat(trees.table.n_leaves == 1, trees.table.n_leaves)
    counts = np.where(is_single, trees.table.leaf_counts, np.concatenate(counts_of_trees)[:, 0])
    compare("row count", counts, trees.table.leaf_counts, 0.5, trees, adapter.causes("counts"))


def compare_counts(adapter: Adapter, trees: BoostedFit, found: NDArray[Any]) -> None:
    """Compare the numbers of rows of the fit in each leaf, (L,), where all are in every tree, with what the model records."""
    if trees.table.leaf_counts is None:
        return
    of_first_tree = slice(0, trees.table.n_leaves[0])
    n_given = int(found[of_first_tree].sum())
    n_fitted = int(trees.table.leaf_counts[of_first_tree].sum())
    if n_given != n_fitted:
        refuse_rows(adapter, n_given, n_fitted)
    compare("row count", found, trees.table.leaf_counts, 0.5, trees, adapter.causes("counts"))


def check_values(
    adapter: Adapter,
    trees: BoostedFit,
    found: FloatArray,
    start: FloatArray,
    noise: Callable[[], FloatArray],
) -> float:
    """Compare leaf values (L, K) with the model's, and return the largest difference, relative to the largest of them.

    Values that are lost in the rounding of the scores that the fit starts from, ``start`` (N, K) or
    (K,), agree: where these leave nothing to learn, leaf values are roundings of probabilities next
    to 0 and 1.

    ``noise`` (L, K), asked for where some are apart, is what rounding leaves over of gradients that cancel: all there is in
    leaves of a fit that had nothing to learn.
    """
    largest = float(np.abs(trees.table.leaf_values).max(initial=0.0)) or 1.0
    allowed = adapter.gradient_tolerance * largest + trees.table.value_slack + lost_beside(start)
    slack = np.broadcast_to(np.reshape(allowed, (-1, 1)), found.shape)
    if not (np.abs(found - trees.table.leaf_values) <= slack).all():
        slack = slack + noise()
    for k in range(found.shape[1]):
        compare(
            "value",
            found[:, k],
            trees.table.leaf_values[:, k],
            slack[:, k],
            trees,
            adapter.causes("values"),
        )
    return float(np.abs(found - trees.table.leaf_values).max(initial=0.0)) / largest


def check_hessians(
    adapter: Adapter, fit: BoostedFit, found: FloatArray, leaf_weights: FloatArray
) -> None:
    """Compare sums (L,) of row weight times second derivative with those recorded, in leaves of rows of these weights (L,)."""
    assert fit.table.leaf_hessians is not None
    trees = np.repeat(np.arange(len(fit.table.n_leaves)), fit.table.n_leaves)
    of_trees = np.bincount(trees, fit.table.leaf_hessians)[
        trees
    ]  # a library may subtract one child's sum from its parent's
    slack = (
        HESSIAN_TOLERANCE * fit.table.leaf_hessians
        + ROUNDING * leaf_weights
        + SUBTRACTED * of_trees
    )
    compare(
        "sum of hessians", found, fit.table.leaf_hessians, slack, fit, adapter.causes("weights")
    )


def check_nodes(adapter: Adapter, trees: BoostedFit, found: FloatArray) -> None:
    """Compare the values (M,) of inner nodes where splits are monotone: a leaf at a bound says little of its own sum."""
    nodes = trees.leaf_rule.nodes
    assert nodes is not None
    slack = adapter.gradient_tolerance * (
        float(np.abs(trees.table.leaf_values).max(initial=0.0)) or 1.0
    )
    compare_nodes(nodes, found, slack, adapter.causes("values"))


def check_scores(
    adapter: Adapter, X: Any, fit: BoostedFit, leaves: NDArray[Any]
) -> tuple[float, float | None]:
    """Compare the sums of the leaves, (T, N), with the scores that the library gives; the largest difference, relative.

    With it the largest difference of sums in float64, such as pushes make, where the library adds
    in single precision; else None. Up to `CHECKED_ROWS` training rows are asked for.
    """
    asked = checked_rows(leaves.shape[1])
    expected = adapter.scores(take_rows(X, asked))
    if fit.placement is None:
        at = leaves[:, asked].T
    else:
        at = adapter.coordinates(take_rows(X, asked))
    found = leaf_scores(fit, at, rounded=True)
    scale = float(np.abs(expected).max()) or 1.0
    miss = furthest(found, expected)
    error = check_miss(adapter, replace(miss, row=int(asked[miss.row])), scale)
    if fit.score_precision is np.float64:
        return error, None
    return error, furthest(leaf_scores(fit, at), expected).error / scale


def check_miss(adapter: Adapter, miss: Miss, scale: float) -> float:
    """Raise where the score of a training row is further from the model's than allowed; the difference, relative to the scale."""
    if not miss.error / scale <= adapter.gradient_tolerance:
        what = f"score of training row {miss.row} (from 0)"
        raise ExactnessError(what, miss.found, miss.expected, adapter.causes("values"))
    return miss.error / scale


def leaf_scores(
    fit: BoostedFit,
    leaves: NDArray[Any],
    start: FloatArray | None = None,
    rounded: bool = False,
    values: FloatArray | None = None,
) -> FloatArray:
    """(n, K): sums of the model's own leaf values in these leaves, (n, T), from the base, or from scores (K,) or (n, K).

    ``values`` (L, 1), or (L, K) where outputs share trees: others than the model's. ``rounded``: added up as
    the library adds them, in its precision, in which a thousand trees are off by 1e-5 and more.
    """
    if values is None:
        values = fit.table.leaf_values
    if start is None:
        start = fit.schedule.shares_of_initial[-1] * fit.initial.values
    scores = start + np.zeros((len(leaves), 1))
    if rounded:
        scores = scores.astype(fit.score_precision)
    first_leaves = np.cumsum(fit.table.n_leaves) - fit.table.n_leaves
    all_outputs = np.arange(scores.shape[1])
    trees_of_outputs: list[tuple[Any, Any]] = [(all_outputs, slice(None))]
    if fit.schedule.outputs is not None:
        trees_of_outputs = [(all_outputs[[k]], fit.schedule.outputs == k) for k in all_outputs]
    n_together = max(1, ADDED_ENTRIES // max(len(first_leaves), 1))
    for begin in range(0, len(leaves), n_together):
        rows = slice(begin, begin + n_together)
        for outputs, trees in trees_of_outputs:
            places = first_leaves[trees] + leaves[rows, trees].astype(np.intp)
            gains = values[places].astype(scores.dtype, copy=False)
            terms = np.concatenate([scores[rows, None, outputs], gains], axis=1)
            scores[rows, outputs] = np.cumsum(terms, axis=1)[:, -1]  # tree after tree
    return np.asarray(scores, dtype=np.float64)

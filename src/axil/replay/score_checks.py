"""Comparisons of a walk through a fit with the fitted model: its start, its leaf counts, its leaf values, its scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import GradientTrees
from axil.arrays import FloatArray
from axil.errors import ExactnessError
from axil.inputs import take_rows
from axil.kernels import Rows
from axil.replay.checks import Miss, checked_rows, compare, compare_nodes, furthest

LOST = 4  # roundings of the largest score, below which a value changes no score that it is added to
HESSIAN_TOLERANCE = (
    1e-4  # of a leaf's sum: scores are float32 sums, and exponentials may be off by a rounding
)
ROUNDING = 1e-6  # of a row's weight: what is left of a second derivative of a probability next to 0 or 1 in float32
SUBTRACTED = 1e-12  # of the sum over a tree
ADDED_ENTRIES = 1 << 18  # leaf values added up at a time, of all trees


def lost_beside(scores: FloatArray) -> float:
    """Return the size of what is lost, in double precision, in the rounding of sums with these scores."""
    return LOST * float(np.finfo(np.float64).eps) * float(np.abs(scores).max(initial=0.0))


def check_start(
    adapter: GradientTrees,
    found: FloatArray,
    trees: BoostedFit,
    targets: FloatArray,
    rounding: FloatArray,
) -> None:
    """Compare the scores (K,) that the targets lead to at first with those that the fit started from, up to rounding (K,)."""
    for mine, own, slack in zip(found, trees.base_value, rounding):
        if not abs(mine - own) <= slack + adapter.gradient_tolerance * max(
            1.0, float(np.abs(targets).max()), abs(own)
        ):
            raise ExactnessError(
                "score that the fit starts from", float(mine), float(own), adapter.causes("values")
            )


def check_counts(
    adapter: GradientTrees, trees: BoostedFit, rows: Rows, drawn: NDArray[Any] | None
) -> None:
    """Compare how many rows fall into each leaf, or how many of those drawn (T, N), with what the model records."""
    if trees.leaf_counts is None:
        return
    if drawn is None:
        taken = np.ones(rows.n_rows) if trees.held_out is None else (~trees.held_out).astype(float)
        return compare_counts(adapter, trees, rows.leaf_sums(taken[:, None], None)[:, 0])
    # a tree without a split does not always say how many rows it had
    counted = (
        rows.tree(t).leaf_sums((own > 0)[:, None].astype(float), None)
        for t, own in enumerate(drawn)
    )
    found = np.where(
        np.repeat(trees.n_leaves == 1, trees.n_leaves),
        trees.leaf_counts,
        np.concatenate(list(counted))[:, 0],
    )
    compare("row count", found, trees.leaf_counts, 0.5, trees, adapter.causes("counts"))


def compare_counts(adapter: GradientTrees, trees: BoostedFit, found: NDArray[Any]) -> None:
    """Compare the numbers of rows of the fit in each leaf, (L,), where all are in every tree, with what the model records."""
    if trees.leaf_counts is None:
        return
    n_given, n_fitted = (int(own[: trees.n_leaves[0]].sum()) for own in (found, trees.leaf_counts))
    if n_given != n_fitted:
        cause = f"The {adapter.library} model was fitted on {n_fitted} rows: pass exactly those."
        raise ExactnessError("number of training rows", n_given, n_fitted, cause)
    compare("row count", found, trees.leaf_counts, 0.5, trees, adapter.causes("counts"))


def check_values(
    adapter: GradientTrees,
    trees: BoostedFit,
    found: FloatArray,
    start: FloatArray,
    noise: Callable[[], FloatArray],
) -> float:
    """Compare leaf values (L, K) with the model's, and return the largest difference, relative to the largest of them.

    Values that are lost in the rounding of the scores that the fit starts from, ``start`` (N, K) or (K,), agree: where these
    leave nothing to learn, leaf values are roundings of probabilities next to 0 and 1.

    ``noise`` (L, K), asked for where some are apart, is what rounding leaves over of gradients that cancel: all there is in
    leaves of a fit that had nothing to learn.
    """
    largest = float(np.abs(trees.leaf_values).max(initial=0.0)) or 1.0
    allowed = adapter.gradient_tolerance * largest + trees.value_slack + lost_beside(start)
    slack = np.broadcast_to(np.reshape(allowed, (-1, 1)), found.shape)
    if not (np.abs(found - trees.leaf_values) <= slack).all():
        slack = slack + noise()
    for k in range(found.shape[1]):
        compare(
            "value",
            found[:, k],
            trees.leaf_values[:, k],
            slack[:, k],
            trees,
            adapter.causes("values"),
        )
    return float(np.abs(found - trees.leaf_values).max(initial=0.0)) / largest


def check_hessians(
    adapter: GradientTrees, fit: BoostedFit, found: FloatArray, leaf_weights: FloatArray
) -> None:
    """Compare sums (L,) of row weight times second derivative with those recorded, in leaves of rows of these weights (L,)."""
    assert fit.leaf_hessians is not None
    trees = np.repeat(np.arange(len(fit.n_leaves)), fit.n_leaves)
    of_trees = np.bincount(trees, fit.leaf_hessians)[
        trees
    ]  # a library may subtract one child's sum from its parent's
    slack = HESSIAN_TOLERANCE * fit.leaf_hessians + ROUNDING * leaf_weights + SUBTRACTED * of_trees
    compare("sum of hessians", found, fit.leaf_hessians, slack, fit, adapter.causes("weights"))


def check_nodes(adapter: GradientTrees, trees: BoostedFit, found: FloatArray) -> None:
    """Compare the values (M,) of inner nodes where splits are monotone: a leaf at a bound says little of its own sum."""
    nodes = trees.nodes
    assert nodes is not None
    slack = adapter.gradient_tolerance * (float(np.abs(trees.leaf_values).max(initial=0.0)) or 1.0)
    compare_nodes(nodes, found, slack, adapter.causes("values"))


def check_scores(
    adapter: GradientTrees, X: Any, fit: BoostedFit, leaves: NDArray[Any]
) -> tuple[float, float | None]:
    """Compare the sums of the leaves, (T, N), with the scores that the library gives; the largest difference, relative.

    With it the largest difference of sums in float64, such as pushes make, where the library adds in single precision; else
    None. Up to `CHECKED_ROWS` training rows are asked for.
    """
    asked = checked_rows(leaves.shape[1])
    expected = adapter.scores(take_rows(X, asked))
    at = leaves[:, asked].T if fit.placement is None else adapter.coordinates(take_rows(X, asked))
    found = leaf_scores(fit, at, rounded=True)
    scale, miss = float(np.abs(expected).max()) or 1.0, furthest(found, expected)
    error = check_miss(adapter, replace(miss, row=int(asked[miss.row])), scale)
    if fit.score_precision is np.float64:
        return error, None
    return error, furthest(leaf_scores(fit, at), expected).error / scale


def check_miss(adapter: GradientTrees, miss: Miss, scale: float) -> float:
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
    trees, table = fit, fit.leaf_values if values is None else values
    made = (
        fit.schedule.shares_of_initial[-1] * trees.base_value if start is None else start
    ) + np.zeros((len(leaves), 1))
    if rounded:
        made = made.astype(fit.score_precision)
    firsts = np.cumsum(trees.n_leaves) - trees.n_leaves
    every = np.arange(made.shape[1])
    outputs = fit.schedule.outputs
    served: list[tuple[Any, Any]] = [(every, slice(None))]
    if outputs is not None:
        served = [(every[[k]], outputs == k) for k in every]
    step = max(1, ADDED_ENTRIES // max(len(firsts), 1))
    for begin in range(0, len(leaves), step):
        rows = slice(begin, begin + step)
        for own, some in served:  # tree after tree, as `cumsum` adds
            met = table[firsts[some] + leaves[rows, some].astype(np.intp)].astype(
                made.dtype, copy=False
            )
            made[rows, own] = np.cumsum(
                np.concatenate([made[rows, None, own], met], axis=1), axis=1
            )[:, -1]
    return np.asarray(made, dtype=np.float64)

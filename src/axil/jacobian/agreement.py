"""Comparisons of a walk through a fit with the fitted model: its start, its leaf counts, its leaf values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import FittedTrees
from axil.adapters.smooth import SmoothModel
from axil.errors import ExactnessError
from axil.replay.checks import compare
from axil.types import Array, Leaves


def check_start(adapter: SmoothModel, found: Array, trees: FittedTrees, targets: Array) -> None:
    """Compare the scores (K,) that the targets lead to at first with those that the fit started from."""
    for mine, own in zip(found, trees.base_value):
        if not abs(mine - own) <= adapter.smooth_tolerance * max(1.0, float(np.abs(targets).max()), abs(own)):
            raise ExactnessError("score that the fit starts from", float(mine), float(own), adapter.causes("values"))


def check_counts(adapter: SmoothModel, trees: FittedTrees, leaves: Leaves, drawn: NDArray[Any] | None) -> None:
    """Compare how many rows fall into each leaf, or how many of those drawn (T, N), with what the model records."""
    if trees.counts is None:
        return
    n_rows = leaves.shape[1]
    taken = np.ones(n_rows) if trees.held_out is None else (~trees.held_out).astype(float)
    n_given, n_fitted = int(taken.sum()), int(trees.counts[: trees.n_leaves[0]].sum())
    if drawn is None and n_given != n_fitted:
        cause = f"The {adapter.library} model was fitted on {n_fitted} rows: pass exactly those."
        raise ExactnessError("number of training rows", n_given, n_fitted, cause)
    counted = [taken] * len(leaves) if drawn is None else [own > 0 for own in drawn]
    found = np.concatenate([np.bincount(leaf, own, n) for leaf, own, n in zip(leaves, counted, trees.n_leaves)])
    if drawn is not None:  # a tree without a split does not always say how many rows it had
        found = np.where(np.repeat(trees.n_leaves == 1, trees.n_leaves), trees.counts, found)
    compare("row count", found, trees.counts, 0.5, trees, adapter.causes("counts"))


def check_values(adapter: SmoothModel, trees: FittedTrees, found: Array) -> float:
    """Compare leaf values (L, K); the largest difference, relative to the largest of them."""
    largest = float(np.abs(trees.values).max(initial=0.0)) or 1.0
    for k in range(found.shape[1]):
        slack = adapter.smooth_tolerance * largest + trees.slack
        compare("value", found[:, k], trees.values[:, k], slack, trees, adapter.causes("values"))
    return float(np.abs(found - trees.values).max(initial=0.0)) / largest

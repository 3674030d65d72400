"""Splits of LightGBM's trees, for assigning rows to leaves without the library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.text import CATEGORICAL, DEFAULT_LEFT, MISSING_SHIFT, TreeText
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes


def routes(trees: Sequence[TreeText]) -> Routes | None:
    """Left is up to the threshold; values within kZeroThreshold of 0 are 0 (LGBM_BoosterPredictForMat, src/c_api.cpp)."""
    stacked = {
        key: np.concatenate([tree.integers(key)[: tree.n_leaves - 1] for tree in trees])
        for key in ("split_feature", "decision_type", "left_child", "right_child")
    }
    thresholds = np.concatenate([tree.floats("threshold")[: tree.n_leaves - 1] for tree in trees])
    starts = np.concatenate([[0], np.cumsum([tree.n_leaves - 1 for tree in trees])])
    outcomes = {
        int(start + split): table
        for start, tree in zip(starts, trees)
        if tree.n_leaves > 1
        for split, table in tree.outcomes().items()
    }
    nodes = Splits(
        starts=starts,
        features=stacked["split_feature"],
        thresholds=thresholds,
        kinds=_kinds(stacked["decision_type"]),
        children=np.stack([stacked["left_child"], stacked["right_child"]], axis=1),
        outcomes=outcomes,
    )
    return make_routes(
        nodes, single=False, strict=False, zero=float(np.float32(1e-35)), infinite=True
    )


def _kinds(decision_types: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each split sends missing values: none, zeros or NaN count as such."""
    left = (decision_types & DEFAULT_LEFT) != 0
    missing = decision_types >> MISSING_SHIFT & 3
    kinds = np.where(left, SplitKind.LEFT, SplitKind.RIGHT)
    kinds = np.where(missing == 1, np.where(left, SplitKind.ZERO_LEFT, SplitKind.ZERO_RIGHT), kinds)
    kinds = np.where(missing == 0, SplitKind.AS_ZERO, kinds)
    return np.where(decision_types & CATEGORICAL, SplitKind.CATEGORIES, kinds).astype(np.int64)

"""Rows as LightGBM takes them, and the splits of its trees.

They serve to assign rows to leaves without the library.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.frames import as_frame, compressed, floats, word_columns
from axil.adapters.lightgbm.text import CATEGORICAL, DEFAULT_LEFT, MISSING_SHIFT, TreeText
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes
from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import FloatArray
from axil.errors import InputError


def as_lightgbm(X: FeatureTable, categories: list[ForeignObject]) -> FeatureTable:
    """Return X in a type that every version of LightGBM accepts without a warning.

    That is numpy, pandas, or a csr or csc matrix (not array). ``categories`` are those of each
    column of categories in the fit.
    """
    if bool(sparse.issparse(X)):
        return compressed(X)
    frame = as_frame(X)
    if frame is None:
        return np.asarray(X)
    if frame.implementation.is_pandas():
        if len(X) == 1:
            return X.copy()  # LightGBM 4.1 warns of one row that is part of a larger table
        return X
    categorical = word_columns(frame)
    if len(categorical) != len(categories):
        raise InputError(
            f"The model was fitted with {len(categories)} category columns of a pandas frame, this "
            f"table has {len(categorical)} ({', '.join(categorical[:5])}). Pass a pandas frame "
            "with the same categories."
        )
    return floats(frame, categories=dict(zip(categorical, categories)))


def from_pandas(frame: ForeignObject, categories: list[ForeignObject]) -> FloatArray | None:
    """Return a pandas frame in float64, categories numbered as at the fit.

    It is None if it has columns of other kinds.
    """
    is_categorical = [str(dtype) == "category" for dtype in frame.dtypes]
    for dtype, has_categories in zip(frame.dtypes, is_categorical):
        is_number = isinstance(dtype, np.dtype) and dtype.kind in "biuf"
        if not (has_categories or is_number):
            return None
    if not any(is_categorical):
        return np.asarray(frame.to_numpy(dtype=np.float64))
    categorical = np.flatnonzero(is_categorical).tolist()
    if len(categories) != len(categorical):
        return None
    categories_of = dict(zip(categorical, categories))
    table = np.empty(frame.shape, dtype=np.float64, order="F")
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        if i in categories_of:
            values = column.array
            if not _has_categories(values, categories_of[i]):
                values = values.set_categories(categories_of[i])
            table[:, i] = np.where(values.codes < 0, np.nan, values.codes)
        else:
            table[:, i] = column.to_numpy()
    return table


def _has_categories(values: ForeignObject, categories: ForeignObject) -> bool:
    """Return whether a pandas array has these very categories, in this order."""
    of_values = values.categories.tolist()
    if of_values != categories:
        return False
    return [type(name) for name in of_values] == [type(name) for name in categories]


def routes_of(trees: Sequence[TreeText]) -> Routes | None:
    """Return the tests of these trees; None if they have too many thresholds or leaves.

    Left is up to the threshold; values within kZeroThreshold of 0 are 0 (LGBM_BoosterPredictForMat,
    src/c_api.cpp).
    """

    def stacked(name: str) -> NDArray[np.int64]:
        return np.concatenate([tree.integers(name)[: tree.n_leaves - 1] for tree in trees])

    starts = np.cumsum([0, *(tree.n_leaves - 1 for tree in trees)])
    outcomes = {}
    for start, tree in zip(starts.tolist(), trees):
        if tree.n_leaves > 1:
            for split, table in tree.outcomes().items():
                outcomes[start + split] = table
    nodes = Splits(
        starts=starts,
        features=stacked("split_feature"),
        thresholds=np.concatenate(
            [tree.floats("threshold")[: tree.n_leaves - 1] for tree in trees]
        ),
        kinds=_kinds(stacked("decision_type")),
        children=np.stack([stacked("left_child"), stacked("right_child")], axis=1),
        outcomes=outcomes,
    )
    return make_routes(
        nodes, single=False, strict=False, zero=float(np.float32(1e-35)), infinite=True
    )


def _kinds(decision_types: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which values each split counts as missing, a `SplitKind`: none, zeros or NaN."""
    goes_left = (decision_types & DEFAULT_LEFT) != 0
    missing = decision_types >> MISSING_SHIFT & 3
    kinds = np.where(goes_left, SplitKind.LEFT, SplitKind.RIGHT)
    zeros_are_missing = np.where(goes_left, SplitKind.ZERO_LEFT, SplitKind.ZERO_RIGHT)
    kinds = np.where(missing == 1, zeros_are_missing, kinds)
    kinds = np.where(missing == 0, SplitKind.AS_ZERO, kinds)
    return np.where(decision_types & CATEGORICAL, SplitKind.CATEGORIES, kinds).astype(np.int64)

"""Splits of CatBoost's trees, for assigning rows to leaves without the library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from axil.adapters.catboost.blob import ModelBlob, Table
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes
from axil.arrays import BoolArray, FloatArray

DEEPEST = 10  # symmetric trees of more levels are left to CatBoost, which tests one split per level and not one per node
NONE_AS_LARGE = 2  # NanValueTreatment, catboost/libs/model/flatbuffers/features.fbs: a missing value is above every border

Ids = NDArray[np.int64]


def routes(blob: ModelBlob, n_leaves: Ids) -> Routes | None:
    """Values in float32, left up to the border; None where splits are on something else than numbers."""
    features = blob.trees.tables(5)
    of_border = np.repeat(np.arange(len(features)), [feature.length(3) for feature in features])
    borders = np.concatenate(
        [np.zeros(0), *(feature.numbers(3, "<f4").astype(np.float64) for feature in features)]
    )
    columns = np.array([feature.integer(2) for feature in features], dtype=np.int64)
    high = np.array([is_high(feature) for feature in features], dtype=bool)
    if not blob.trees.length(10) and blob.depths.max(initial=0) > DEEPEST:
        return None
    starts, split, children = tree_nodes(blob, n_leaves)
    if split.max(initial=-1) >= len(borders):  # categories, target statistics, texts
        return None
    own = of_border[split]
    return split_routes(starts, columns[own], borders[split], high[own], children)


def split_routes(
    starts: Ids, columns: Ids, borders: FloatArray, high: BoolArray, children: Ids
) -> Routes | None:
    """Routes through nodes of these columns, borders and children; ``high``: missing values are above every border."""
    kinds = np.where(high, SplitKind.RIGHT, SplitKind.LEFT).astype(np.int64)
    nodes = Splits(starts, columns, borders, kinds, children, {})
    return make_routes(nodes, single=True, strict=False, zero=-1.0, infinite=True)


def is_high(feature: Table) -> bool:
    """Whether missing values of a feature of numbers are above every border."""
    return feature.number(5, "b", 0) == NONE_AS_LARGE


def tree_nodes(blob: ModelBlob, n_leaves: Ids) -> tuple[Ids, Ids, Ids]:
    """Where the nodes of each tree begin, their splits and their children."""
    return _nested(blob, n_leaves) if blob.trees.length(10) else _symmetric(blob)


def _symmetric(blob: ModelBlob) -> tuple[Ids, Ids, Ids]:
    """Where the nodes of each tree begin, their splits and children: the last split comes first, and has the highest bit."""
    splits, children = [], []
    ends = np.cumsum(blob.depths)
    for own in np.split(blob.split_numbers, ends[:-1]):
        levels = np.arange(len(own))
        splits.append(np.repeat(own[::-1], 1 << levels))
        below = np.arange(1, (1 << len(own)) * 2 - 1).reshape(
            -1, 2
        )  # numbered level by level, leaves last
        inner = (1 << len(own)) - 1
        children.append(np.where(below < inner, below, ~(below - inner)))
    starts = np.append(0, np.cumsum((1 << blob.depths) - 1))
    return (
        starts,
        np.concatenate(splits).astype(np.int64),
        np.concatenate(children).astype(np.int64),
    )


def _nested(blob: ModelBlob, n_leaves: Ids) -> tuple[Ids, Ids, Ids]:
    """Takes trees apart whose nodes have splits of their own; a child that is 0 steps away is the node's own leaf."""
    steps = blob.trees.numbers(10, "<u4").view("<u2").reshape(-1, 2).astype(np.int64)
    leaf = blob.trees.numbers(11, "<u4").astype(np.int64) // blob.n_outputs
    sizes = blob.trees.numbers(2, "<i4").astype(np.int64)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    inner = (steps[:, 0] > 0) | (steps[:, 1] > 0)
    number = np.cumsum(inner) - 1  # of nodes with children, among all trees
    starts = np.append(0, np.cumsum(np.bincount(tree[inner], minlength=len(sizes))))
    own = ~(leaf - (np.cumsum(n_leaves) - n_leaves)[tree])
    below = np.arange(len(steps))[:, None] + steps
    children = np.where(
        (steps == 0) | ~inner[below], own[below], number[below] - starts[tree][:, None]
    )
    return starts, blob.split_numbers[inner], children[inner]

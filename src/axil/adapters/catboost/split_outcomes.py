"""The outcomes of CatBoost's tests, read off the leaves that it finds itself.

A test on an encoded category, or on a combination of them, is computed from tables that only
CatBoost reads. Its outcome is a bit of the leaf number of every symmetric tree that has the test.
"""

from __future__ import annotations

import numpy as np

from axil.adapters.catboost.blob import ModelBlob
from axil.adapters.catboost.encodings import Encoding
from axil.adapters.catboost.leaves import Ids, tree_nodes
from axil.adapters.routes import FeatureTests, SplitKind, Splits, make_routes
from axil.arrays import FloatArray, LeafArray


def outcome_tests(blob: ModelBlob, n_leaves: Ids) -> FeatureTests | None:
    """Return the tests of symmetric trees on the columns of `outcomes`.

    It is None for trees whose nodes have splits of their own, and for splits on texts and
    embeddings.
    """
    sources = _features_of_splits(blob)
    used = np.unique(blob.split_numbers)
    if blob.has_nested_trees or used.max(initial=-1) >= len(sources):
        return None
    starts, split, children = tree_nodes(blob, n_leaves)
    nodes = Splits(
        starts=starts,
        features=np.searchsorted(used, split).astype(np.int64),
        thresholds=np.full(len(split), 0.5),
        kinds=np.full(len(split), SplitKind.LEFT, dtype=np.int64),
        children=children,
        outcomes={},
    )
    routes = make_routes(nodes, single=False, strict=False, zero=-1.0, infinite=True)
    if routes is None:
        return None
    return FeatureTests([routes], [sources[number] for number in used.tolist()])


def outcomes(blob: ModelBlob, leaves: LeafArray) -> FloatArray:
    """Return the outcome of each used split, (n, splits): 1 if a row goes right.

    The rows are in these leaves, (n, T). The first split of a tree gives the lowest bit of the leaf
    number.
    """
    depths = blob.depths
    tree = np.repeat(np.arange(len(depths)), depths)
    level = np.arange(len(tree)) - np.repeat(np.cumsum(depths) - depths, depths)
    _, first = np.unique(blob.split_numbers, return_index=True)
    return (leaves[:, tree[first]] >> level[first] & 1).astype(np.float64)


def _features_of_splits(blob: ModelBlob) -> list[tuple[int, ...]]:
    """Return the features that each split looks at: on numbers, then categories, then encodings."""
    column_of_number = {feature.number: feature.column for feature in blob.number_features}
    column_of_category = dict(blob.category_columns)
    sources: list[tuple[int, ...]] = []
    for feature in blob.number_features:
        sources += [(feature.column,)] * len(feature.borders)
    for number, _ in blob.one_hot_values:
        sources.append((column_of_category[number],))
    for table in blob.trees.tables(7):
        encoding = Encoding.of(table)
        statistic = encoding.statistic
        columns = {column_of_category[number] for number in statistic.categories}
        columns |= {column_of_number[number] for number, _ in statistic.tests}
        columns |= {column_of_category[number] for number, _ in statistic.one_hot}
        sources += [tuple(sorted(columns))] * len(encoding.borders)
    return sources

"""The leaves of CatBoost's trees that rows fall into, found without the library.

`routes` serves models whose splits are on numbers. `EncodedRows` finds the leaves that the training
rows had in the fit where splits are on encodings of categories. Predictions encode them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.catboost.blob import ModelBlob
from axil.adapters.catboost.categories import Categories
from axil.adapters.catboost.encodings import Encoder, Fold, above, classifications
from axil.adapters.catboost.permutations import AveragingFold
from axil.adapters.catboost.pool import category_column, number_column
from axil.adapters.contract import TrainingRows
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes
from axil.arrays import AnyArray, BoolArray, Cells, FloatArray
from axil.errors import UnsupportedModelError
from axil.kernels import Backend

#: Deeper symmetric trees are left to CatBoost, which tests one split per level and not per node.
DEEPEST = 10
MOST_ENCODINGS = 64  # of those kept at a time, each a byte per row
BLOCK = 1 << 14  # rows whose columns are put side by side

Ids = NDArray[np.int64]
LeafNumbers = Cells


def routes(blob: ModelBlob, n_leaves: Ids) -> Routes | None:
    """Return routes for values in float32; None if some splits are not on numbers.

    Rows with a value up to the border go left.
    """
    if not blob.has_nested_trees and blob.depths.max(initial=0) > DEEPEST:
        return None
    features = blob.number_features
    feature_of_border = np.repeat(np.arange(len(features)), [len(f.borders) for f in features])
    borders = np.concatenate([np.zeros(0), *(feature.borders for feature in features)])
    starts, split, children = tree_nodes(blob, n_leaves)
    if split.max(initial=-1) >= len(borders):  # categories, target statistics, texts
        return None
    columns = np.array([feature.column for feature in features], dtype=np.int64)
    missing_right = np.array([feature.missing_right for feature in features], dtype=bool)
    feature = feature_of_border[split]
    return split_routes(starts, columns[feature], borders[split], missing_right[feature], children)


def split_routes(
    starts: Ids, columns: Ids, borders: FloatArray, missing_right: BoolArray, children: Ids
) -> Routes | None:
    """Return routes through nodes with these columns, borders and children."""
    kinds = np.where(missing_right, SplitKind.RIGHT, SplitKind.LEFT).astype(np.int64)
    nodes = Splits(starts, columns, borders, kinds, children, {})
    return make_routes(nodes, single=True, strict=False, zero=-1.0, infinite=True)


def tree_nodes(blob: ModelBlob, n_leaves: Ids) -> tuple[Ids, Ids, Ids]:
    """Return the first node of each tree, the split of each node, and its two children."""
    if blob.has_nested_trees:
        return _nested_nodes(blob, n_leaves)
    return _symmetric_nodes(blob)


def _symmetric_nodes(blob: ModelBlob) -> tuple[Ids, Ids, Ids]:
    """Return the nodes of trees with one split per level; the root tests the last split."""
    splits = []
    children = []
    ends = np.cumsum(blob.depths)
    for tree_splits in np.split(blob.split_numbers, ends[:-1]):
        depth = len(tree_splits)
        n_inner = (1 << depth) - 1
        splits.append(np.repeat(tree_splits[::-1], 1 << np.arange(depth)))
        # Nodes are numbered level by level, and the leaves come last.
        below = np.arange(1, (1 << depth) * 2 - 1).reshape(-1, 2)
        children.append(np.where(below < n_inner, below, ~(below - n_inner)))
    starts = np.append(0, np.cumsum((1 << blob.depths) - 1))
    return (
        starts,
        np.concatenate(splits).astype(np.int64),
        np.concatenate(children).astype(np.int64),
    )


def _nested_nodes(blob: ModelBlob, n_leaves: Ids) -> tuple[Ids, Ids, Ids]:
    """Return the nodes of trees whose nodes have splits of their own.

    A child that is 0 steps away is the leaf of the node itself.
    """
    steps = blob.trees.numbers(10, "<u4").view("<u2").reshape(-1, 2).astype(np.int64)
    leaf = blob.trees.numbers(11, "<u4").astype(np.int64) // blob.n_outputs
    sizes = blob.trees.numbers(2, "<i4").astype(np.int64)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    is_inner = (steps[:, 0] > 0) | (steps[:, 1] > 0)
    inner_number = np.cumsum(is_inner) - 1  # among the inner nodes of all trees
    starts = np.append(0, np.cumsum(np.bincount(tree[is_inner], minlength=len(sizes))))
    first_leaf = np.cumsum(n_leaves) - n_leaves
    leaf_child = ~(leaf - first_leaf[tree])
    below = np.arange(len(steps))[:, None] + steps
    inner_child = inner_number[below] - starts[tree][:, None]
    children = np.where((steps == 0) | ~is_inner[below], leaf_child[below], inner_child)
    return starts, blob.split_numbers[is_inner], children[is_inner]


@dataclass(frozen=True)
class EncodedRows:
    """`Placement` of the training rows of a fit that encodes categories by the targets."""

    blob: ModelBlob
    n_leaves: Ids
    rows: TrainingRows
    has_initial_tree: bool  #: whether a tree of one leaf stands for the initial prediction

    @property
    def encodings(self) -> int:
        """Return the number of encodings that trees have splits on."""
        return self.blob.features("target statistics")

    def assign(self, out: LeafNumbers, n_threads: int, backend: Backend | None = None) -> None:
        """Fill ``out`` (T, N) with the leaves of all training rows."""
        if self.has_initial_tree:
            out[0] = 0
            out = out[1:]
        tests = SplitTests(self.blob, self._fold())
        if self.blob.has_nested_trees:
            self._assign_nested(tests, out, n_threads, backend)
        else:
            self._assign_symmetric(tests, out)
        place_of_row = np.empty_like(tests.order)
        place_of_row[tests.order] = np.arange(len(place_of_row))
        for leaves in out:
            leaves[:] = leaves[place_of_row]

    def _assign_symmetric(self, tests: SplitTests, out: LeafNumbers) -> None:
        """Assign rows to trees with one split per level, split by split.

        The first split of a tree gives the lowest bit of the leaf number.
        """
        depths = self.blob.depths
        splits = self.blob.split_numbers
        tree = np.repeat(np.arange(len(depths)), depths)
        level = np.arange(len(splits)) - np.repeat(np.cumsum(depths) - depths, depths)
        out[:] = 0
        for split in np.unique(splits).tolist():
            goes_right = tests.goes_right(split).astype(out.dtype)
            for i in np.flatnonzero(splits == split):
                out[tree[i]] |= goes_right << out.dtype.type(level[i])

    def _assign_nested(
        self, tests: SplitTests, out: LeafNumbers, n_threads: int, backend: Backend | None
    ) -> None:
        """Assign rows to trees whose nodes have splits of their own, some trees at a time."""
        starts, split, children = tree_nodes(self.blob, self.n_leaves)
        for first, end in tests.tree_groups(starts, split):
            nodes = slice(starts[first], starts[end])
            columns, values = tests.columns(split[nodes])
            group_routes = split_routes(
                starts[first : end + 1] - starts[first],
                columns,
                tests.borders[split[nodes]],
                tests.missing_right[split[nodes]],
                children[nodes],
            )
            if group_routes is None or out.dtype.itemsize > 2:
                raise UnsupportedModelError(
                    "depth",
                    f"trees of up to {self.n_leaves.max()} leaves",
                    "rows are encoded and assigned to trees of fewer leaves",
                    "Fit trees of at most 65,535 leaves.",
                )
            for row in range(0, out.shape[1], BLOCK):
                block = slice(row, row + BLOCK)
                table = np.column_stack([column[block] for column in values]).astype(np.float32)
                group_routes.assign(table, out[first:end, block], n_threads, backend)

    def _fold(self) -> Fold:
        """Return the training rows in the order of the averaging fold."""
        settings = self.blob.settings[-1]
        X = self.rows.X
        n_rows, n_outputs = self.rows.targets.shape
        features = [feature for feature in self.blob.number_features if len(feature.borders)]
        order = AveragingFold.of(n_rows, settings, bool(self.blob.number_features)).rows
        categories = {}
        for number, column in self.blob.category_columns:
            categories[number] = Categories.of(category_column(X, column)[order])
        numbers = {}
        for feature in features:
            numbers[feature.number] = number_column(X, feature.column)[order]
        category_settings = settings["cat_feature_params"]
        return Fold(
            order=order,
            categories=categories,
            numbers=numbers,
            missing_right={feature.number for feature in features if feature.missing_right},
            targets=self.rows.targets,
            most_categories=int(category_settings["ctr_leaf_count_limit"]),
            keeps_all_simple=bool(category_settings["store_all_simple_ctr"]),
            classifications=classifications(settings, n_outputs),
        )


class SplitTests:
    """The tests of all splits, by their numbers: on numbers, then categories, then encodings."""

    def __init__(self, blob: ModelBlob, fold: Fold):
        self._fold = fold
        self._encoder = Encoder(blob, fold)
        features = [feature for feature in blob.number_features if len(feature.borders)]
        encodings = self._encoder.encodings
        self._numbers = [feature.number for feature in features]
        self._one_hot = blob.one_hot_values
        borders = [feature.borders for feature in features]
        borders += [np.array([0.5])] * len(self._one_hot)
        borders += [encoding.borders for encoding in encodings]
        self.borders: FloatArray = np.concatenate(borders)
        #: The column of each split: numbers first, then one-hot values, then encodings.
        self._column = np.repeat(np.arange(len(borders)), [len(values) for values in borders])
        missing_right = np.zeros(len(borders), dtype=np.bool_)
        missing_right[: len(features)] = [feature.missing_right for feature in features]
        self.missing_right: BoolArray = missing_right[self._column]

    @property
    def order(self) -> Ids:
        """Return the row at each position of the fold, (N,)."""
        return self._fold.order

    def columns(self, splits: Ids) -> tuple[Ids, list[AnyArray]]:
        """Return the column of each of these splits, and the values (N,) of these columns."""
        used, places = np.unique(self._column[splits], return_inverse=True)
        return places.reshape(-1).astype(np.int64), [self._values(int(i)) for i in used]

    def goes_right(self, split: int) -> BoolArray:
        """Return whether each row goes right at a split, (N,)."""
        values = self._values(int(self._column[split]))
        border = self.borders[split]
        if values.dtype.kind == "f":
            return above(values, border, bool(self.missing_right[split]))
        return np.asarray(values > int(border))  # borders are whole, or 0.5 of two values

    def _values(self, column: int) -> AnyArray:
        if column < len(self._numbers):
            return self._fold.numbers[self._numbers[column]]
        column -= len(self._numbers)
        if column < len(self._one_hot):
            return self._fold.equals(*self._one_hot[column])
        return self._encoder.bins(column - len(self._one_hot))

    def tree_groups(self, starts: Ids, split: Ids) -> Iterator[tuple[int, int]]:
        """Yield the first and the end of consecutive trees whose splits use few encodings."""
        first_encoding = len(self._numbers) + len(self._one_hot)
        first = 0
        group_encodings = set[int]()
        for t in range(len(starts) - 1):
            columns = self._column[split[starts[t] : starts[t + 1]]]
            tree_encodings = set(columns[columns >= first_encoding].tolist())
            if t > first and len(group_encodings | tree_encodings) > MOST_ENCODINGS:
                yield first, t
                first = t
                group_encodings = set()
            group_encodings |= tree_encodings
        yield first, len(starts) - 1

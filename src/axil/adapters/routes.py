"""Routes: the tests of a model's trees.

From them the kernels find the leaf of every row without the library.

A library's own answer is the reference; routes are made only if its decisions are known to the
last bit: how values are rounded, which side equality goes to, where missing values, zeros and
categories go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, BoolArray, Cells, FloatArray, RealArray
from axil.kernels import Backend, cpu
from axil.kernels.choose import host_backend

MOST_THRESHOLDS = 65535  # of a column: ranks have two bytes
MOST_LEAVES = 65535  # of a tree: leaf numbers have two bytes
# nodes of a tree, in the mean: from here on it is faster to follow each row than to show all rows
# to each node
LARGE = 500


class SplitKind(IntEnum):
    """The side to which a node sends missing values, or that it tests for categories.

    The numbers are those of cpp/kernels.hpp.
    """

    LEFT = 0
    RIGHT = 1
    AS_ZERO = 2
    ZERO_LEFT = 3  # and zeros with them
    ZERO_RIGHT = 4
    CATEGORIES = 5


@dataclass(frozen=True)
class Splits:
    """The M nodes of T trees, tree after tree, parents before children."""

    starts: NDArray[np.int64]  #: (T + 1,) where each tree's nodes begin
    features: NDArray[np.int64]  #: (M,)
    thresholds: FloatArray  #: (M,); of no account for categories
    kinds: NDArray[np.int64]  #: (M,) of `SplitKind`
    #: (M, 2) left and right: nodes by their number within the tree, or leaves as ~leaf
    children: NDArray[np.int64]
    #: of each node that tests for categories: 0 (left) or 1 for categories 0, 1, ..., for others,
    #: for missing values
    outcomes: dict[int, NDArray[np.uint8]]


@dataclass(frozen=True)
class Routes:
    """The nodes with each value's rank among its column's thresholds in place of the value."""

    columns: NDArray[np.int64]
    thresholds: FloatArray
    views: NDArray[np.int64]
    outcomes: NDArray[np.uint8]
    nodes: NDArray[np.int32]
    starts: NDArray[np.int64]
    single: bool  #: values are rounded to float32
    strict: bool  #: left is below a threshold; else up to it
    zero: float  #: values up to this size are 0; below 0: none
    infinite: bool  #: whether the library takes infinite values

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return len(self.starts) - 1

    def assign(
        self,
        table: RealArray,
        out: Cells,
        n_threads: int,
        backend: Backend | None = None,
    ) -> bool:
        """Fill in the leaves of rows.

        Parameters
        ----------
        table : array of shape (n, features)
            The rows.
        out : array of shape (T, n)
            Receives the leaf of each row in each tree.
        n_threads : int
            How many threads the host may use.
        backend : Backend, optional
            Where it is computed; by default on the host.

        Returns
        -------
        bool
            Whether the leaves are those of the library.
        """
        if out.dtype.itemsize > 2:
            return False
        if backend is None:
            backend = host_backend(n_threads)
        has_infinite_values = backend.assign(
            np.require(table, requirements="A"),  # the kernel takes nothing else
            self.columns,
            self.thresholds,
            self.views,
            self.outcomes,
            self.nodes,
            self.starts,
            self.single,
            self.strict,
            self.zero,
            out,
        )
        return self.infinite or not has_infinite_values


class Ways:
    """Large trees, whose nodes rows follow one by one, in float32: left is up to a threshold."""

    def __init__(self, trees: Iterable[tuple[AnyArray, ...]]):
        """Place the nodes of trees.

        A tree is left and right children (-1: leaf), features, thresholds, and whether missing
        values go left.
        """
        self._placed = cpu.Ways()
        for nodes in trees:
            self._placed.add(*nodes)

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return len(self._placed)

    def assign(
        self,
        table: RealArray,
        out: Cells,
        n_threads: int,
        backend: Backend | None = None,
    ) -> bool:
        """Fill in the leaves of rows, as `Routes.assign` does.

        It runs on the host, whatever the back end.
        """
        cpu.descend(self._placed, np.require(table, np.float32, "A"), out, n_threads)
        return True


def make_routes(
    nodes: Splits, *, single: bool, strict: bool, zero: float, infinite: bool
) -> Routes | None:
    """Return routes through these trees.

    Parameters
    ----------
    nodes : Splits
        The nodes of the trees.
    single, strict, zero, infinite
        How the library applies their tests: see `Routes`.

    Returns
    -------
    Routes or None
        It is None if a column has too many thresholds or a tree too many leaves.
    """
    if -nodes.children.min(initial=0) > MOST_LEAVES:
        return None
    is_categorical = nodes.kinds == SplitKind.CATEGORIES
    used_features = np.flatnonzero(np.bincount(nodes.features))
    column = np.searchsorted(used_features, nodes.features)
    thresholds, ranks, ends = _ranks(column, nodes.thresholds, ~is_categorical, len(used_features))
    if np.diff(ends, prepend=0).max(initial=0) > MOST_THRESHOLDS:
        return None
    # There is one view for each kind of test of a column, and for each test of categories.
    kind = np.where(is_categorical, len(SplitKind) + np.arange(len(column)), nodes.kinds)
    keys = column * (int(kind.max(initial=0)) + 1) + kind  # one number sorts much faster than two
    _, first_nodes, view_of_node = np.unique(keys, return_index=True, return_inverse=True)
    has_categories = is_categorical[first_nodes]
    tables = [nodes.outcomes[int(node)] for node in first_nodes[has_categories]]
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    views = np.zeros((len(first_nodes), 4), dtype=np.int64)
    views[:, 0] = column[first_nodes]
    views[:, 1] = nodes.kinds[first_nodes]
    views[has_categories, 2] = np.cumsum(sizes) - sizes
    views[has_categories, 3] = sizes - 2
    packed = np.empty((len(column), 4), dtype=np.int32)
    packed[:, 0] = view_of_node.reshape(-1)
    packed[:, 1] = ranks
    packed[:, 2:] = nodes.children
    columns = np.stack([np.append(used_features, 0), np.append(0, ends)], axis=1)
    return Routes(
        columns=columns.astype(np.int64),
        thresholds=thresholds,
        views=views,
        outcomes=np.concatenate([*tables, np.zeros(0)]).astype(np.uint8),
        nodes=packed,
        starts=nodes.starts,
        single=single,
        strict=strict,
        zero=zero,
        infinite=infinite,
    )


def _ranks(
    column: NDArray[np.int64], thresholds: FloatArray, numeric: BoolArray, n_columns: int
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct thresholds, the ranks of the nodes' thresholds and the ends of columns.

    Thresholds stand column after column, and ranks are within the column. ``numeric`` says which
    nodes, (M,), test for numbers.
    """
    nodes = np.flatnonzero(numeric)
    order = nodes[np.lexsort((thresholds[nodes], column[nodes]))]
    sorted_columns = column[order]
    sorted_thresholds = thresholds[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = np.diff(sorted_columns) != 0
    is_new[1:] |= sorted_thresholds[1:] != sorted_thresholds[:-1]
    ends = np.cumsum(np.bincount(sorted_columns[is_new], minlength=n_columns))
    places = np.cumsum(is_new) - 1
    ranks = np.zeros(len(column), dtype=np.int64)
    ranks[order] = places - np.append(0, ends)[sorted_columns]
    return sorted_thresholds[is_new], ranks, ends


@dataclass(frozen=True)
class FeatureTests:
    """The tests of T trees on the columns of `TreeModel.tested_values`."""

    #: the trees, some at a time, in the order of the model
    routes: list[Routes]
    #: of each tested column the features that it follows from; None: the columns are the features
    sources: list[tuple[int, ...]] | None = None

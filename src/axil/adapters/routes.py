"""Routes: the tests of a model's trees, from which the kernels find the leaf of every row without the library.

A library's own answer is the reference; routes are made only where its decisions are known to the last bit: how values are
rounded, which side equality goes to, where missing values, zeros and categories go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.kernels import Backend, cpu
from axil.kernels.choose import host_backend

MOST_THRESHOLDS = MOST_LEAVES = 65535  # of a column, of a tree: both are numbered in two bytes
LARGE = 500  # nodes of a tree, in the mean: to follow every row's way takes less time than to have every node look at every row


class SplitKind(IntEnum):
    """Where a node sends missing values; or that it tests for categories. The numbers are those of cpp/kernels.hpp."""

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
    children: NDArray[
        np.int64
    ]  #: (M, 2) left and right: nodes by their number within the tree, or leaves as ~leaf
    outcomes: dict[
        int, NDArray[np.uint8]
    ]  #: node -> 0 (left) or 1 for categories 0, 1, ..., for others, for missing


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
        return len(self.starts) - 1

    def assign(
        self,
        table: NDArray[np.floating[Any]],
        out: NDArray[np.unsignedinteger[Any]],
        n_threads: int,
        backend: Backend | None = None,
    ) -> bool:
        """Fill ``out`` (T, n) with the leaves of the rows of ``table`` (n, features); whether that is the library's answer."""
        if out.dtype.itemsize > 2:
            return False
        routes = (self.columns, self.thresholds, self.views, self.outcomes, self.nodes, self.starts)
        table = np.require(table, requirements="A")  # the kernel takes nothing else
        odd = (backend or host_backend(n_threads)).assign(
            table, *routes, self.single, self.strict, self.zero, out
        )
        return self.infinite or not odd


class Ways:
    """Large trees, whose nodes rows follow one by one, in float32: left is up to a threshold."""

    def __init__(self, trees: Iterable[tuple[NDArray[Any], ...]]):
        """Trees by their nodes: left and right children (-1: leaf), features, thresholds, whether missing values go left."""
        self._placed = cpu.Ways()
        for nodes in trees:
            self._placed.add(*nodes)

    @property
    def n_trees(self) -> int:
        return len(self._placed)

    def assign(
        self,
        table: NDArray[np.floating[Any]],
        out: NDArray[np.unsignedinteger[Any]],
        n_threads: int,
        backend: Backend | None = None,
    ) -> bool:
        """`Routes.assign`; on the host, whatever the back end."""
        cpu.descend(self._placed, np.require(table, np.float32, "A"), out, n_threads)
        return True


def make_routes(
    nodes: Splits, *, single: bool, strict: bool, zero: float, infinite: bool
) -> Routes | None:
    """Routes through these trees; None where a column has too many thresholds or a tree too many leaves."""
    if -nodes.children.min(initial=0) > MOST_LEAVES:
        return None
    categorical = nodes.kinds == SplitKind.CATEGORIES
    used = np.flatnonzero(np.bincount(nodes.features))
    column = np.searchsorted(used, nodes.features)
    thresholds, ranks, ends = _ranks(column, nodes.thresholds, ~categorical, len(used))
    if np.diff(ends, prepend=0).max(initial=0) > MOST_THRESHOLDS:
        return None
    # A view for each way that a column is looked at, and for each test of categories.
    way = np.where(categorical, len(SplitKind) + np.arange(len(column)), nodes.kinds)
    keys = column * (int(way.max(initial=0)) + 1) + way  # one number sorts much faster than two
    _, first, view = np.unique(keys, return_index=True, return_inverse=True)
    views = np.zeros((len(first), 4), dtype=np.int64)
    views[:, 0], views[:, 1] = column[first], nodes.kinds[first]
    tables = [nodes.outcomes[int(node)] for node in first[categorical[first]]]
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    views[categorical[first], 2] = np.cumsum(sizes) - sizes
    views[categorical[first], 3] = sizes - 2
    packed = np.empty((len(column), 4), dtype=np.int32)
    packed[:, 0], packed[:, 1], packed[:, 2:] = view.reshape(-1), ranks, nodes.children
    return Routes(
        columns=np.stack([np.append(used, 0), np.append(0, ends)], axis=1).astype(np.int64),
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
    """The distinct thresholds of all columns, column after column, each node's rank among its own, and the columns' ends."""
    chosen = np.flatnonzero(numeric)
    order = chosen[np.lexsort((thresholds[chosen], column[chosen]))]
    own, values = column[order], thresholds[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (own[1:] != own[:-1]) | (values[1:] != values[:-1])
    ends = np.cumsum(np.bincount(own[new], minlength=n_columns))
    place = np.cumsum(new) - 1
    ranks = np.zeros(len(column), dtype=np.int64)
    ranks[order] = place - np.append(0, ends)[own]
    return values[new], ranks, ends

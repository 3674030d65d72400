"""Ancestors: the inner nodes of averaged trees. Leaves that lose all rows take their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray
from axil.structure.nodes import Nodes
from axil.structure.records import Transferable

Ids = NDArray[np.int64]

NO_NODE = -1
MOST_DOUBLINGS = 64


@dataclass(frozen=True)
class Ancestors(Transferable):
    """The nodes of T averaged trees of L leaves.

    The leaves of all trees are the nodes 0 .. L - 1. The inner nodes follow. A leaf of an averaged
    tree without rows has the value of its nearest ancestor that has rows of the tree's sample.
    """

    parents: NDArray[np.int32]  #: (M,) the parent of each node; -1 for a root
    #: (M - L,) what regularisation adds to the weight of each inner node; None: nothing
    l2: FloatArray | None = None

    def __post_init__(self) -> None:
        for array in (self.parents, self.l2):
            if array is not None:
                array.setflags(write=False)

    @classmethod
    def of(cls, children: Sequence[NDArray[np.integer]], l2: FloatArray | None = None) -> Ancestors:
        """Return the ancestors of trees from the children of their splits.

        Parameters
        ----------
        children : sequence of arrays of shape (S_t, 2)
            The children of each split of each tree: the number of a split, or ``~leaf``. The root
            is split 0. A tree of one leaf has no split.
        l2 : array of shape (sum of S_t,), optional
            What regularisation adds to the weight of each split.
        """
        n_splits = np.array([len(tree_children) for tree_children in children], dtype=np.int64)
        n_leaves = n_splits + 1
        total = int(n_leaves.sum())
        parents = np.full(total + int(n_splits.sum()), NO_NODE, dtype=np.int32)
        first_leaves = np.cumsum(n_leaves) - n_leaves
        first_splits = total + np.cumsum(n_splits) - n_splits
        for tree_children, first_leaf, first_split in zip(children, first_leaves, first_splits):
            numbered = np.where(
                tree_children < 0,
                first_leaf + ~tree_children.astype(np.int64),
                first_split + tree_children,
            )
            parents[numbered.ravel()] = first_split + np.repeat(np.arange(len(tree_children)), 2)
        return cls(parents, l2)

    @classmethod
    def roots(cls, n_leaves: Ids) -> Ancestors:
        """Return ancestors of trees with unknown splits: every leaf is directly below its root."""
        total = int(n_leaves.sum())
        parents = np.full(total + len(n_leaves), NO_NODE, dtype=np.int32)
        parents[:total] = total + np.repeat(np.arange(len(n_leaves)), n_leaves)
        return cls(parents)

    def after_a_leaf(self) -> Ancestors:
        """Return the ancestors of these trees with a tree of one leaf before them."""
        parents = np.append(NO_NODE, np.where(self.parents == NO_NODE, NO_NODE, self.parents + 1))
        return Ancestors(parents.astype(np.int32), self.l2)

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless each leaf of these trees, (T,), is below the root of its tree."""
        if not np.array_equal(self.n_leaves, n_leaves):
            raise ValueError(
                "leaves of one tree below several roots, or of several trees below one"
            )

    @cached_property
    def n_leaves(self) -> Ids:
        """The number of leaves below each root, (T,). Raises ValueError if there are no trees."""
        size = len(self.parents)
        if self.parents.dtype != np.int32 or self.parents.ndim != 1:
            raise ValueError(
                f"parents of nodes are {self.parents.dtype} {self.parents.shape}, expected int32 "
                "numbers"
            )
        has_parent = self.parents != NO_NODE
        if ((self.parents < NO_NODE) | (self.parents >= size)).any():
            raise ValueError("a parent that is no inner node")
        inner = np.unique(self.parents[has_parent])
        total = size - len(inner)
        if len(inner) and inner[0] < total:
            raise ValueError("a parent that is no inner node")
        if self.l2 is not None and (
            self.l2.dtype != np.float64 or self.l2.shape != (size - total,)
        ):
            raise ValueError(
                f"l2 of inner nodes is {self.l2.dtype} {self.l2.shape}, expected {(size - total,)}"
            )
        self._climb()  # which refuses a node that is its own ancestor
        root = np.arange(size)
        while (is_below := has_parent[root]).any():
            root[is_below] = self.parents[root[is_below]]
        is_first = np.append(True, np.diff(root[:total]) != 0)
        first_leaves = np.flatnonzero(is_first)
        if len(np.unique(root[first_leaves])) < len(first_leaves):
            raise ValueError("leaves of a tree that are not numbered one after the other")
        return np.diff(np.append(first_leaves, total))

    def _climb(self) -> Ids:
        """Return the depth of each node, (M,); a root has depth 0."""
        jump = self.parents.astype(np.int64)
        depth: Ids = (jump != NO_NODE).astype(np.int64)
        for _ in range(MOST_DOUBLINGS):
            above = np.flatnonzero(jump != NO_NODE)
            if not len(above):
                return depth
            depth[above] += depth[jump[above]]
            jump[above] = jump[jump[above]]
        raise ValueError("nodes that are their own ancestors")

    @cached_property
    def levels(self) -> list[Ids]:
        """All nodes except the roots by their depth, the deepest first."""
        depth = self._climb()
        order = np.argsort(-depth, kind="stable")
        counts = np.bincount(depth, minlength=1)[::-1]
        return np.split(order, np.cumsum(counts)[:-1])[:-1]

    def totals(self, of_leaves: FloatArray) -> FloatArray:
        """Return the sums, (M, ...), of the numbers of the leaves, (L, ...), below each node."""
        n_leaves = len(of_leaves)
        sums = np.zeros((len(self.parents), *of_leaves.shape[1:]))
        sums[:n_leaves] = of_leaves
        for nodes in self.levels:
            np.add.at(sums, self.parents[nodes], sums[nodes])
        return sums

    def nearest(self, leaves: Ids, has_rows: BoolArray) -> Ids:
        """Return the nearest node at or above each of these leaves that has rows.

        The node is -1 if the leaf's tree has none.

        Parameters
        ----------
        leaves : array of shape (n,)
        has_rows : array of shape (M,)
            Whether there are rows in each node.
        """
        nearest_nodes = np.asarray(leaves, dtype=np.int64).copy()
        above = np.flatnonzero(~has_rows[nearest_nodes])
        while len(above):
            nearest_nodes[above] = self.parents[nearest_nodes[above]]
            above = above[nearest_nodes[above] != NO_NODE]
            above = above[~has_rows[nearest_nodes[above]]]
        return nearest_nodes

    def nearest_beside(self, nodes: Ids, filled: Ids) -> Ids:
        """Return each node's nearest ancestor, (n,), that has rows outside the node; -1 if none.

        ``filled`` (M,): the number of leaves with rows below each node.
        """
        parents = self.parents[nodes].astype(np.int64)
        own_totals = filled[nodes]
        above = np.flatnonzero(parents != NO_NODE)
        while len(above):
            above = above[filled[parents[above]] == own_totals[above]]
            parents[above] = self.parents[parents[above]]
            above = above[parents[above] != NO_NODE]
        return parents

    def below(self, nodes: Ids, leaves: Ids, n_leaves: int) -> csr_array:
        """Return a table (n, L) with ones where a leaf is below one of distinct nodes, (n,)."""
        place = np.full(len(self.parents), NO_NODE)
        place[nodes] = np.arange(len(nodes))
        rows = []
        columns = []
        at = leaves.astype(np.int64)
        leaf = leaves
        while len(at):
            is_wanted = place[at] != NO_NODE
            rows.append(place[at[is_wanted]])
            columns.append(leaf[is_wanted])
            at = self.parents[at].astype(np.int64)
            inside = at != NO_NODE
            at = at[inside]
            leaf = leaf[inside]
        if rows:
            index = (np.concatenate(rows), np.concatenate(columns))
        else:
            index = (np.zeros(0, int), np.zeros(0, int))
        return csr_array((np.ones(len(index[0])), index), shape=(len(nodes), n_leaves))

    def l2_of(self, nodes: Ids, n_leaves: int) -> FloatArray:
        """Return what regularisation adds to the weight of each of these inner nodes, (n,)."""
        if self.l2 is None:
            return np.zeros(len(nodes))
        return self.l2[nodes - n_leaves]

    def nodes(self, n_leaves: Ids, l2: FloatArray) -> Nodes | None:
        """Return the nodes, a parent before its children; None if a node has not two children.

        ``l2`` (L,): what regularisation adds to the weight of each leaf.
        """
        total = int(n_leaves.sum())
        size = len(self.parents)
        if size != 2 * total - len(n_leaves):
            return None
        depth = self._climb()
        of_leaves = np.repeat(np.arange(len(n_leaves)), n_leaves)
        tree = np.zeros(size, dtype=np.int64)
        tree[:total] = of_leaves
        for level in self.levels:
            tree[self.parents[level]] = tree[level]
        order = np.lexsort((np.arange(size), depth, tree))
        place = np.empty(size, dtype=np.int64)
        place[order] = np.arange(size)
        children = np.full((size, 2), -1)
        inner = np.flatnonzero(self.parents != NO_NODE)
        inner = inner[np.lexsort((place[inner], place[self.parents[inner]]))]
        above = place[self.parents[inner]]
        if len(np.unique(above)) * 2 != len(above):
            return None
        children[above[::2], 0], children[above[1::2], 1] = place[inner[::2]], place[inner[1::2]]
        leaf = np.full(size, -1)
        leaf[place[:total]] = np.arange(total)
        added = np.zeros(size)
        added[place[:total]] = l2
        added[place[total:]] = self.l2_of(np.arange(total, size), total)
        starts = np.concatenate([[0], np.cumsum(2 * n_leaves - 1)])
        return Nodes(starts, children, leaf, added, np.full(size, np.nan))

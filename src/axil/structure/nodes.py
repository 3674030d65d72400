"""Nodes: trees from their roots down, for leaf values that depend on other rows too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.structure.records import Transferable

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Nodes(Transferable):
    """All M nodes of T trees, tree after tree, a parent before its children.

    A library gives every node a value when it splits the node's parent. Some settings make the
    value of a leaf depend on the values above it: smoothing draws it towards its parent's, and a
    monotone split keeps all below it on one side of the middle of its two children's values, or of
    values that other splits made before. The values that a model keeps of its inner nodes are
    further evidence of its targets.
    """

    starts: Ids  #: (T + 1,) where each tree's nodes begin
    children: Ids  #: (M, 2) left and right child of a split; -1, -1 for a leaf
    leaf: Ids  #: (M,) the number of a leaf among all L; -1 for a split
    l2: FloatArray  #: (M,) what regularisation adds to the node's weight
    #: (M,) what the model says each node would add to a prediction; nan: it does not say
    values: FloatArray
    slack: FloatArray | float = (
        0.0  #: (M,) how far these values may be off for the digits they are kept in
    )
    signs: NDArray[np.int8] | None = (
        None  #: (M,) whether predictions must rise (1) or fall (-1) from left to right
    )
    own: FloatArray | None = (
        None  #: (M,) the share of a node's own value where the rest is its parent's; None: all
    )
    path_smooth: float = (
        0.0  #: n / (n + path_smooth) of n rows is that share, where n may be an estimate
    )
    #: (R, 3) a node, 0 or 1, and one its value must not be below (0) or above (1); see `stages`
    rivals: Ids | None = None

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless the nodes form trees of these numbers of leaves, (T,).

        Readers follow children unchecked.
        """
        sizes, m, n_trees = 2 * n_leaves - 1, len(self.leaf), len(n_leaves)
        shapes = {
            "starts": (n_trees + 1,),
            "children": (m, 2),
            "leaf": (m,),
            "l2": (m,),
            "values": (m,),
        }
        if self.signs is not None:
            shapes["signs"] = (m,)
        if self.own is not None:
            shapes["own"] = (m,)
        kinds = {"l2": "f", "values": "f", "own": "f"}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype.kind != kinds.get(name, "i"):
                raise ValueError(
                    f"{name} of the nodes is {array.dtype} {array.shape}, expected {shape}"
                )
        if (
            not np.array_equal(np.diff(self.starts), sizes)
            or self.starts[0] != 0
            or self.starts[-1] != m
        ):
            raise ValueError(
                f"expected 2 L - 1 nodes for each tree of L leaves, {sizes.sum()} in all; {m} are "
                "there"
            )
        splits, tree = np.flatnonzero(self.leaf < 0), np.repeat(np.arange(n_trees), sizes)
        children, below = self.children[splits], np.setdiff1d(np.arange(m), self.starts[:-1])
        if not (children > splits[:, None]).all() or not np.array_equal(
            np.sort(children.ravel()), below
        ):
            raise ValueError(
                "nodes that are their own ancestors, have two parents or are not there"
            )
        first, leaves = np.cumsum(n_leaves) - n_leaves, self.leaf[self.leaf >= 0]
        of_leaves = np.flatnonzero(self.leaf >= 0)
        if (
            not (tree[children] == tree[splits][:, None]).all()
            or len(np.unique(leaves)) != n_leaves.sum()
        ):
            raise ValueError(
                "nodes below a tree they do not belong to, or a leaf that is there twice"
            )
        if not (
            (leaves >= first[tree[of_leaves]]) & (leaves < (first + n_leaves)[tree[of_leaves]])
        ).all():
            raise ValueError("a leaf number of another tree")
        if self.rivals is not None:
            self._check_rivals(tree)

    def _check_rivals(self, tree: Ids) -> None:
        """Raise ValueError unless rivals exist and were made before the node that they limit."""
        rows = self.rivals
        assert rows is not None
        if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind != "i":
            raise ValueError(
                f"rivals of the nodes are {rows.dtype} {rows.shape}, expected three columns of "
                "numbers"
            )
        node, side, rival = rows.T
        exist = (rows >= 0).all() and (rows[:, ::2] < len(tree)).all() and (side <= 1).all()
        if not (
            exist
            and (tree[node] == tree[rival]).all()
            and (self.parents[rival] < self.parents[node]).all()
        ):
            raise ValueError(
                "a rival of another tree, or that is not made before the node it limits"
            )

    @cached_property
    def levels(self) -> list[Ids]:
        """The splits of all trees by their depth, the roots first."""
        levels = []
        level = self.starts[:-1]
        while len(level := level[self.leaf[level] < 0]):
            levels.append(level)
            level = self.children[level].ravel()
        return levels

    @cached_property
    def stages(self) -> list[Ids]:
        """The splits of all trees in an order in which values come before those that need them.

        By depth; where there are rivals, splits are numbered in the order they were made, and each
        stage has one of each tree.
        """
        if self.rivals is None:
            return self.levels
        splits = np.flatnonzero(self.leaf < 0)
        splits = splits[np.argsort(self._ages[splits], kind="stable")]
        if len(splits):
            return np.split(splits, np.flatnonzero(np.diff(self._ages[splits])) + 1)
        return []

    @cached_property
    def _ages(self) -> Ids:
        """The number of splits of the same tree before a split, (M,); -1 for a leaf."""
        before = np.cumsum(self.leaf < 0) - 1
        first = np.repeat(before[self.starts[:-1]], np.diff(self.starts))
        return np.where(self.leaf < 0, before - first, -1)

    @cached_property
    def rivals_by_stage(self) -> list[Ids]:
        """The rows of ``rivals`` whose node each stage makes."""
        if self.rivals is None:
            return []
        ages = self._ages[self.parents[self.rivals[:, 0]]]
        rows = self.rivals[np.argsort(ages, kind="stable")]
        return np.split(rows, np.searchsorted(np.sort(ages), np.arange(1, len(self.stages))))

    @cached_property
    def parents(self) -> Ids:
        """The parent of each node, (M,); a root is its own parent."""
        parents = np.arange(len(self.leaf))
        splits = np.flatnonzero(self.leaf < 0)
        parents[self.children[splits]] = splits[:, None]
        return parents

    @cached_property
    def ends(self) -> tuple[Ids, Ids]:
        """The nodes that are leaves, and the numbers of these leaves."""
        at = np.flatnonzero(self.leaf >= 0)
        return at, self.leaf[at]

    def totals(self, of_leaves: FloatArray) -> FloatArray:
        """Return the sums of numbers of leaves (L,) over the leaves below each node, (M,)."""
        at, leaves = self.ends
        totals = np.zeros(len(self.leaf))
        totals[at] = of_leaves[leaves]
        for splits in reversed(self.levels):
            left_child, right_child = self.children[splits].T
            totals[splits] = totals[left_child] + totals[right_child]
        return totals

    def inside(self) -> FloatArray:
        """Return 1 for the leaves below each node, and for a leaf itself, (M, L)."""
        at, leaves = self.ends
        is_inside = np.zeros((len(self.leaf), len(leaves)))
        is_inside[at, leaves] = 1.0
        for splits in reversed(self.levels):
            is_inside[splits] = is_inside[self.children[splits]].sum(axis=1)
        return is_inside

    def recounted(
        self, rows: tuple[FloatArray, FloatArray], weights: tuple[FloatArray, FloatArray]
    ) -> Nodes:
        """Return the nodes with the shares of smoothing after rows were deleted.

        A library may estimate the rows of a child from its share of its parent's weight, rounded,
        so that bins of values lead it a whole number of rows away. The estimate is made again for
        the rows that are left, as far away as before.

        Parameters
        ----------
        rows, weights : pairs of (L,)
            The numbers of rows and the weights of all leaves, with the deleted rows and without
            them.
        """
        assert self.own is not None
        splits = np.flatnonzero(self.leaf < 0)
        splits = splits[self.own[self.children[splits, 0]] < 1]  # all others are not smoothed
        children = self.children[splits]
        shares = self.own[children[:, 0]]
        estimated = self.path_smooth * shares / (1 - shares)
        away = np.round(estimated - self._left_rows(splits, rows[0], weights[0]))
        total = self.totals(rows[1])[splits]
        left_rows = np.clip(self._left_rows(splits, rows[1], weights[1]) + away, 0.0, total)
        counts = np.stack([left_rows, total - left_rows], axis=1)
        own_shares = self.own.copy()
        own_shares[children] = counts / (counts + self.path_smooth)
        return replace(self, own=own_shares)

    def _left_rows(self, splits: Ids, rows: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the rows of the left child of each split by its share of the split's weight.

        The rows of the right child are rounded.
        """
        totals = self.totals(weights)
        whole = totals[splits]
        right = np.divide(
            totals[self.children[splits, 1]], whole, out=np.zeros(len(splits)), where=whole > 0
        )
        all_rows = self.totals(rows)[splits]
        return np.asarray(all_rows - np.floor(all_rows * right + 0.5))

    def emptied(self, leaves: BoolArray) -> Nodes:
        """Return the nodes after these leaves, (L,), have lost their rows: they bound no others."""
        if not leaves.any() or (self.signs is None and self.rivals is None):
            return self
        is_empty = self.totals((~leaves).astype(np.float64)) == 0
        signs = self.signs
        rivals = self.rivals
        if signs is not None:
            signs = np.where(
                (self.leaf < 0) & is_empty[self.children].any(axis=1), 0, signs
            ).astype(signs.dtype)
        return replace(
            self, signs=signs, rivals=None if rivals is None else rivals[~is_empty[rivals[:, 2]]]
        )

    def tree(self, t: int) -> Nodes:
        """Return the nodes of one tree, its leaves numbered from 0."""
        first, last = self.starts[t : t + 2]
        children = self.children[first:last]
        leaf = self.leaf[first:last]
        return Nodes(
            starts=np.array([0, last - first]),
            children=np.where(children < 0, -1, children - first),
            leaf=np.where(leaf < 0, -1, leaf - leaf[leaf >= 0].min()),
            l2=self.l2[first:last],
            values=self.values[first:last],
            slack=self.slack if isinstance(self.slack, float) else self.slack[first:last],
            signs=None if self.signs is None else self.signs[first:last],
            own=None if self.own is None else self.own[first:last],
            path_smooth=self.path_smooth,
            rivals=None if self.rivals is None else self._rivals_of(first, last),
        )

    def _rivals_of(self, first: int, last: int) -> Ids:
        assert self.rivals is not None
        node = self.rivals[:, 0]
        rivals: Ids = self.rivals[(node >= first) & (node < last)] - np.array([first, 0, first])
        return rivals

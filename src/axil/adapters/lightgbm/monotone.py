"""Which values bound which in a LightGBM tree that grew under monotone constraints.

The constraints are those of monotone_constraints_method intermediate or advanced.

With these methods a node's value is kept between the values of nodes that other splits made before
(src/treelearner/monotone_constraints.hpp). Values decide which of them is the nearest; which of
them count follows from the tree alone: from its splits in the order they were made, their features,
thresholds and signs. This module goes through the splits in that order, as LightGBM does, and lists
for each new node those that count.

A leaf, while it is not split, has limits: nodes that its children's values must not be below, or
above. A split on a monotone feature limits each child by the other, and every split below a
monotone one limits the leaves across it that touch the new ones. With the advanced method limits
hold for a range of a feature's thresholds, and are looked for again before a leaf is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.text import CATEGORICAL, TreeText
from axil.arrays import BoolArray, FloatArray

Ids = NDArray[np.int64]
LAST = 1 << 30  # beyond all thresholds
ANY = (
    -1
)  # in place of a feature: limits whatever is split, by the intermediate method and for categories


@dataclass(frozen=True)
class Grown:
    """A tree of S splits, in the order they were made.

    Nodes are the splits and then the S + 1 leaves.
    """

    children: Ids  #: (S, 2)
    features: Ids  #: (S,)
    thresholds: FloatArray  #: (S,)
    numerical: BoolArray  #: (S,)
    signs: Ids  #: (S,) 1 where predictions must rise from left to right, -1 where they must fall


class Limit(NamedTuple):
    """A node that limits a leaf with ``first <= threshold < stop`` of its feature; see `_ranks`."""

    first: int
    stop: int
    node: int


class LeafLimits:
    """Limits of one leaf for splits on one feature: of values from below and from above."""

    def __init__(
        self, sides: tuple[list[Limit], list[Limit]], stale: tuple[bool, bool] = (False, False)
    ):
        self.sides = sides
        self.stale = list(stale)

    def copy(self) -> LeafLimits:
        """Return a copy whose lists can change."""
        low, high = self.sides
        return LeafLimits((list(low), list(high)), (self.stale[0], self.stale[1]))

    def add(self, side: int, node: int, stale: bool) -> None:
        """Add a node that limits all thresholds from a side."""
        self.sides[side].append(Limit(0, LAST, node))
        self.stale[side] |= stale


class Path(NamedTuple):
    """A split on the path up from a leaf, with the side of the leaf."""

    feature: int
    threshold: int
    right: bool  #: whether the leaf is on its right


def all_rivals(
    trees: Sequence[TreeText], starts: Ids, signs: NDArray[np.int8], advanced: bool
) -> Ids:
    """Return `rivals` of all trees, (R, 3).

    The nodes of the trees begin at ``starts`` and have these signs.
    """
    rivals_of_trees = [np.empty((0, 3), dtype=np.int64)]
    for tree, start in zip(trees, starts):
        if tree.n_leaves > 1:
            numerical = (tree.integers("decision_type") & CATEGORICAL) == 0
            tree_signs = signs[start : start + tree.n_leaves - 1].astype(np.int64)
            features = tree.integers("split_feature")
            thresholds = tree.floats("threshold")
            grown = Grown(tree.children, features, thresholds, numerical, tree_signs)
            rivals_of_trees.append(np.add(rivals(grown, advanced), [start, 0, start]))
    return np.concatenate(rivals_of_trees)


def rivals(tree: Grown, advanced: bool) -> Ids:
    """Return pairs of nodes whose values are ordered, (R, 3).

    A line has a node, 0 or 1, and a second node. The value of the first must not be below (0) or
    above (1) that of the second.
    """
    growing = _Growing(tree, advanced)
    rows = []
    for split, pair in enumerate(tree.children):
        for child, node in enumerate(pair):
            for side in (0, 1):
                limiting_nodes = dict.fromkeys(growing.counted(split, side, child))
                rows += [(int(node), side, limiting_node) for limiting_node in limiting_nodes]
        growing.split(split)
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


class _Growing:
    """A tree while it grows, and the limits of its leaves."""

    def __init__(self, tree: Grown, advanced: bool):
        self.children: list[tuple[int, int]] = [(int(a), int(b)) for a, b in tree.children]
        self.features = tree.features.tolist()
        self.signs = tree.signs.tolist()
        self.numerical = tree.numerical.tolist()
        self.thresholds = _ranks(tree)
        self.parent = [-1] * (2 * len(self.children) + 1)
        self.made = 0  # splits so far; a node below this is no leaf any more
        self.keys = [f if advanced and n else ANY for f, n in zip(self.features, self.numerical)]
        self.below = self._keys_below()
        self.limits: dict[int, dict[int, LeafLimits]] = {
            0: {key: LeafLimits(([], [])) for key in self.below[0]}
        }
        self.below_monotone = {0: False}

    def _keys_below(self) -> list[frozenset[int]]:
        """Return the features of the split of each node and of the splits below it.

        LightGBM needs no limits of other features.
        """
        keys_below: list[frozenset[int]] = [frozenset()] * len(self.parent)
        for split in reversed(range(len(self.children))):
            left_child, right_child = self.children[split]
            keys_below[split] = (
                keys_below[left_child] | keys_below[right_child] | {self.keys[split]}
            )
        return keys_below

    def counted(self, split: int, side: int, child: int) -> list[int]:
        """Return the nodes that limit a child (0: left, 1: right) of the next split."""
        limits = self.limits[split][self.keys[split]].sides[side]
        at = self.thresholds[split]
        if self.keys[split] == ANY:
            return [limit.node for limit in limits]
        return [
            limit.node for limit in limits if (limit.stop > at + 1 if child else limit.first <= at)
        ]

    def split(self, split: int) -> None:
        """Split a leaf, and update the limits of all leaves."""
        left_child, right_child = self.children[split]
        self.parent[left_child] = self.parent[right_child] = split
        self.made = split + 1
        split_limits = self.limits.pop(split)
        for child in (left_child, right_child):
            self.limits[child] = {key: split_limits[key].copy() for key in self.below[child]}
        below = self.below_monotone.pop(split) or self.signs[split] != 0
        self.below_monotone[left_child] = self.below_monotone[right_child] = below
        if not below:
            return
        if self.signs[split]:
            if self.signs[split] > 0:
                upper, lower = (left_child, right_child)
            else:
                upper, lower = (right_child, left_child)
            self._limit(upper, 1, lower, stale=False)
            self._limit(lower, 0, upper, stale=False)
        touched = self._limit_across(split)
        for leaf in (*dict.fromkeys(touched), left_child, right_child):
            self._look_again(leaf)

    def _limit(self, leaf: int, side: int, node: int, stale: bool) -> None:
        for limits in self.limits[leaf].values():
            limits.add(side, node, stale)

    def _limit_across(self, split: int) -> list[int]:
        """Limit leaves on the other side of monotone splits that touch a new leaf; return them."""
        path: list[Path] = []
        touched: list[int] = []
        node = split
        while (above := self.parent[node]) >= 0:
            right = self.children[above][1] == node
            if self._says_more(path, above, right):
                if self.signs[above]:
                    side = int(
                        (self.signs[above] > 0) == right
                    )  # leaves across are below a leaf that must be larger
                    touched += self._go_down(self.children[above][not right], split, side, path)
                path.append(Path(self.features[above], self.thresholds[above], right))
            node = above
        return touched

    def _go_down(self, top: int, split: int, side: int, path: list[Path]) -> list[int]:
        """Limit the leaves below a node that touch the new left leaf, the right one or both.

        Return these leaves.
        """
        touched: list[int] = []
        waiting = [(top, True, True)]
        while waiting:
            node, touches_left, touches_right = waiting.pop()
            if node >= self.made:
                for new, counts in zip(
                    self.children[split], (touches_left or not touches_right, touches_right)
                ):
                    if counts:
                        self._limit(node, side, new, stale=True)
                touched.append(node)
                continue
            below = [touches_left, touches_right], [touches_left, touches_right]
            if (
                self.numerical[node]
                and self.numerical[split]
                and self.features[node] == self.features[split]
            ):
                below[1][0] &= self.thresholds[node] < self.thresholds[split]
                below[0][1] &= self.thresholds[node] > self.thresholds[split]
            for child, goes, (to_left, to_right) in zip(
                self.children[node], self._ways(node, path), below
            ):
                if goes:
                    waiting.append((child, to_left, to_right))
        return touched

    def _look_again(self, leaf: int) -> None:
        """Find the limits of a leaf again if they are stale.

        If both sides are stale, LightGBM looks for the lower one only.
        """
        for feature, limits in self.limits[leaf].items():
            if feature == ANY or not any(
                limits.stale
            ):  # with categories they are never looked for again
                continue
            if limits.stale[0]:
                side = 0
            else:
                side = 1
            limits.sides[side][:] = self._limits_around(leaf, feature, side)
            limits.stale = [False, False]

    def _limits_around(self, leaf: int, feature: int, side: int) -> list[Limit]:
        """Return the leaves that limit a leaf.

        Each comes with the thresholds of the feature at which it limits the leaf.
        """
        path: list[Path] = []
        limits: list[Limit] = []
        first = 0
        stop = LAST
        node = leaf
        while (above := self.parent[node]) >= 0:
            is_right = self.children[above][1] == node
            if self.features[above] == feature and self.numerical[above]:
                at = self.thresholds[above]
                if is_right:
                    first, stop = (max(first, at), stop)
                else:
                    first, stop = (first, min(stop, at + 1))
            if self._says_more(path, above, is_right):
                if self.signs[above] and int((self.signs[above] > 0) != is_right) == side:
                    across = Limit(first, stop, self.children[above][not is_right])
                    limits += self._gather(across, feature, self.features[above], side, path)
                path.append(Path(self.features[above], self.thresholds[above], is_right))
            node = above
        return limits

    def _gather(
        self, top: Limit, feature: int, crossed: int, side: int, path: list[Path]
    ) -> list[Limit]:
        """Return the leaves below a node that touch a leaf.

        Of two children that both touch, where one's values are smaller, only one counts.
        """
        limits: list[Limit] = []
        waiting = [top]
        while waiting:
            first, stop, node = limit = waiting.pop()
            if node >= self.made:
                limits.append(limit)
                continue
            has_feature = self.features[node] == feature
            sign = self.signs[node]
            at = self.thresholds[node]
            both = sign == 0 or (has_feature and crossed != feature)
            only = int(
                (sign > 0) != bool(side)
            )  # the child with the tighter values: 1 is the right one
            ways, (left_child, right_child) = self._ways(node, path), self.children[node]
            child_limits = Limit(first, stop, left_child), Limit(first, stop, right_child)
            if has_feature and self.numerical[node]:
                child_limits = (
                    Limit(first, min(stop, at + 1), left_child),
                    Limit(max(first, at + 1), stop, right_child),
                )
            waiting += [
                child_limits[i]
                for i in (0, 1)
                if ways[i] and (both or only == i or not ways[not i])
            ]
        return limits

    def _says_more(self, path: list[Path], above: int, right: bool) -> bool:
        """Whether leaves on both sides of a split may touch.

        They do not beyond a second split on the same side of the same feature.
        """
        feature = self.features[above]
        return self.numerical[above] and not any(
            step.feature == feature and step.right == right for step in path
        )

    def _ways(self, node: int, path: list[Path]) -> tuple[bool, bool]:
        """Return whether the leaves on each side of a split may touch the start of the path."""
        left_touches = right_touches = True
        if self.numerical[node]:
            for feature, threshold, on_right in path:
                if feature == self.features[node]:
                    right_touches &= on_right or self.thresholds[node] < threshold
                    left_touches &= not on_right or self.thresholds[node] > threshold
        return left_touches, right_touches


def _ranks(tree: Grown) -> list[int]:
    """Return the ranks of thresholds among those of the same feature as odd numbers, (S,).

    So there is room for a number after each.
    """
    ranks = np.zeros(len(tree.features), dtype=np.int64)
    for feature in np.unique(tree.features[tree.numerical]):
        at = np.flatnonzero(tree.numerical & (tree.features == feature))
        ranks[at] = 2 * np.unique(tree.thresholds[at], return_inverse=True)[1] + 1
    return [int(rank) for rank in ranks]

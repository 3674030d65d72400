"""Regularisation: how the sums and weights of leaves become leaf values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.machine.arrays import where
from axil.structure.chains import Chains
from axil.structure.nodes import Ids, Nodes
from axil.structure.transfer import Transferable


@dataclass(frozen=True)
class Values:
    """Values of nodes and how they came about."""

    raw: FloatArray  #: (M,) before bounds
    bounded: FloatArray  #: (M,) the values themselves
    bounds: FloatArray  #: (2, M) what each is kept above and below
    #: (2, M, 2) the two nodes in the middle of whose values that is, or twice the same; -1 where there is none
    ends: Ids


@dataclass(frozen=True)
class Regularisation(Transferable):
    """How the values of L leaves follow from their sums S and weights W.

    A leaf's value is ``scale * S`` with ``scale = 1 / (W + l2)``, after ``steps`` Newton steps ``(1 - q ** steps) / W`` with
    ``q = l2 / (W + l2)``. With l1 the sum is first moved towards zero by l1, up to zero; a value beyond ``max_step`` is put
    back to it; and then come the smoothing and the bounds of `Nodes`. Leaves of `Chains` are pooled instead, and have neither
    l1 nor a largest step nor nodes.
    """

    l2: FloatArray  #: (L,); inf: the leaf is left at zero
    steps: FloatArray  #: (L,)
    by_weight: bool = False  #: whether l2 is in proportion to the mean weight of all rows
    l1: float = 0.0
    max_step: float = np.inf
    nodes: Nodes | None = None  #: None: a leaf's value depends on nothing but its own rows
    chains: Chains | None = None  #: along which values must rise

    @property
    def bends(self) -> bool:
        """Whether leaf values are linear in the sums with a pattern held fixed only."""
        return self.l1 > 0 or self.max_step < np.inf or self.bounds

    @property
    def bounds(self) -> bool:
        """Whether splits must be monotone."""
        nodes = self.nodes
        if nodes is None:
            return self.chains is not None
        return (nodes.signs is not None and bool(nodes.signs.any())) or (
            nodes.rivals is not None and len(nodes.rivals) > 0
        )

    @property
    def mixes(self) -> bool:
        """Whether leaf values may depend on the sums of other leaves."""
        return self.bounds or (self.nodes is not None and self.nodes.own is not None)

    def scale(self, leaf_weights: Any) -> Any:
        """(L,): what each leaf's sum is multiplied by; of the host, or of a device where all arrays are there."""
        denominator = leaf_weights + self.l2
        some = denominator > 0
        scale = where(some, 1.0 / where(some, denominator, 1.0), 0.0)
        more = self.steps > 1
        if more.any():
            more &= (leaf_weights > 0) & np.isfinite(self.l2)
            left = (self.l2[more] * scale[more]) ** self.steps[more]
            scale[more] = (1.0 - left) / leaf_weights[more]
        return scale

    def slopes(self, leaf_weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(L,) twice: the derivatives of the scale with respect to the leaf's weight and to l2."""
        single = Regularisation(self.l2, np.ones_like(self.steps)).scale(leaf_weights)
        by_weight, by_l2 = -(single**2), -(single**2)
        more = (leaf_weights > 0) & np.isfinite(self.l2) & (self.steps > 1)
        W, steps, inverse = leaf_weights[more], self.steps[more], single[more]
        q = self.l2[more] * inverse
        by_weight[more] = (steps * q**steps * W * inverse - (1.0 - q**steps)) / W**2
        by_l2[more] = -steps * q ** (steps - 1) * inverse**2
        return by_weight, by_l2

    def scaled(self, factor: float) -> Regularisation:
        """Return the rule where the mean weight of all rows is this many times as large."""
        return replace(self, l2=self.l2 * factor) if self.by_weight else self

    def reached(self, empty: BoolArray) -> Regularisation:
        """The rule where rows may come into leaves that had none, and were left at zero for it: they follow the others."""
        common = self.l2[np.isfinite(self.l2)].min(initial=np.inf)
        l2, nodes = np.where(empty & np.isinf(self.l2), common, self.l2), self.nodes
        if nodes is not None:
            at, leaves = nodes.ends
            of_nodes = nodes.l2.copy()
            of_nodes[at] = l2[leaves]
            nodes = replace(nodes, l2=of_nodes)
        return replace(self, l2=l2, nodes=nodes)

    def step(self, sums: FloatArray, denominators: FloatArray) -> FloatArray:
        """Values from sums and ``W + l2``: moved by l1, divided, and not beyond max_step."""
        moved = np.sign(sums) * np.maximum(np.abs(sums) - self.l1, 0.0)
        values = np.divide(moved, denominators, out=np.zeros_like(moved), where=denominators > 0)
        return np.asarray(np.clip(values, -self.max_step, self.max_step))

    def leaf_values(self, sums: FloatArray, leaf_weights: FloatArray) -> FloatArray:
        """(L,): the values of leaves with these sums (L,) and weights (L,), before the rate."""
        if self.nodes is None:
            scale = self.scale(leaf_weights)
            denominators = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
            if self.chains is not None:
                sums, denominators = self.chains.pooled(sums, denominators)
            return self.step(sums, denominators)
        at, leaves = self.nodes.ends
        found = np.empty_like(sums)
        found[leaves] = self.node_values(sums, leaf_weights).bounded[at]
        return found

    def node_values(self, sums: FloatArray, leaf_weights: FloatArray) -> Values:
        """The values of all nodes, from the roots down."""
        assert self.nodes is not None
        nodes, n = self.nodes, len(self.nodes.leaf)
        raw = self.step(nodes.totals(sums), nodes.totals(leaf_weights) + nodes.l2)
        values = Values(
            raw, raw.copy(), np.repeat([[-np.inf], [np.inf]], n, axis=1), np.full((2, n, 2), -1)
        )
        inner, inner_ends = values.bounds.copy(), values.ends.copy()  # of the values below a node
        for stage, splits in enumerate(nodes.stages if self.mixes else ()):
            children = nodes.children[splits]
            if nodes.own is not None:
                own = nodes.own[children]
                raw[children] = own * raw[children] + (1.0 - own) * values.bounded[splits, None]
            if nodes.rivals is not None:
                _meet(values, nodes.rivals_by_stage[stage])
            elif nodes.signs is not None:
                for made, passed in ((values.bounds, inner), (values.ends, inner_ends)):
                    made[:, children] = passed[:, children] = passed[:, splits, None]
            values.bounded[children] = np.clip(raw[children], *values.bounds[:, children])
            if nodes.signs is not None and nodes.rivals is None:
                _cut(nodes.signs[splits], children, values.bounded, inner, inner_ends)
        return values

    def tree(self, t: int, leaves: slice) -> Regularisation:
        """The rule for one tree, whose leaves these are."""
        if t not in self._trees:
            nodes = None if self.nodes is None else self.nodes.tree(t)
            chains = None if self.chains is None else self.chains.tree(t)
            own = replace(
                self, l2=self.l2[leaves], steps=self.steps[leaves], nodes=nodes, chains=chains
            )
            self._trees[t] = own
        return self._trees[t]

    @cached_property
    def _trees(self) -> dict[int, Regularisation]:
        """The rules of single trees that were asked for."""
        return {}


def _meet(values: Values, rivals: Ids) -> None:
    """Bound nodes by the nearest of their rivals on each side."""
    node, side, other = rivals.T
    nearness = np.where(side == 0, 1.0, -1.0) * values.bounded[other]
    order = np.lexsort((nearness, side, node))
    key = (2 * node + side)[order]
    last = np.ones(len(key), dtype=np.bool_)
    last[:-1] = key[1:] != key[:-1]
    nearest = order[last]
    values.bounds[side[nearest], node[nearest]] = values.bounded[other[nearest]]
    values.ends[side[nearest], node[nearest]] = other[nearest, None]


def _cut(
    signs: NDArray[np.int8], children: Ids, bounded: FloatArray, inner: FloatArray, inner_ends: Ids
) -> None:
    """Bound what is below the children of monotone splits by the middle of their values."""
    middles = bounded[children].mean(axis=1)
    for sign, sides in (
        (1, (1, 0)),
        (-1, (0, 1)),
    ):  # rising: left gets an upper bound, right a lower one
        at = np.flatnonzero(signs == sign)
        for side, own in zip(sides, children[at].T):
            inner[side, own], inner_ends[side, own] = middles[at], children[at]

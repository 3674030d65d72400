"""How XGBoost makes leaf values where reg_alpha, max_delta_step or monotone_constraints bend them.

CalcWeight in src/tree/param.h: the sum is moved towards zero by reg_alpha, divided by weight +
reg_lambda and put back to max_delta_step. src/tree/split_evaluator.h: the values of both children
of a split are then kept within the bounds of the node, and a split on a constrained feature cuts
these bounds at the middle of the two values. Each of these is rounded to float32. ``base_weights``
keeps the values of splits, before the rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import Nodes
from axil.adapters.xgboost.document import Tree, XGBoostSettings
from axil.adapters.xgboost.rates import ROUNDING
from axil.arrays import FloatArray
from axil.structure import NewtonRule, with_nodes


@dataclass(frozen=True)
class XGBoostRule:
    """The settings that constrain the leaf values of all trees."""

    l1: float
    max_step: float
    #: (features,) 1 where predictions must rise with a feature, -1 where they must fall, else 0
    signs: NDArray[np.int8]

    @classmethod
    def of(cls, settings: XGBoostSettings, n_features: int) -> XGBoostRule:
        """Return the rule of a model with these settings."""
        signs = np.zeros(n_features, dtype=np.int8)
        stated_signs = settings.monotone_signs
        signs[: len(stated_signs)] = stated_signs
        return cls(settings.number("reg_alpha"), settings.max_step or np.inf, signs)

    @property
    def bends(self) -> bool:
        """Whether leaf values are not S / (H + l2)."""
        return self.l1 > 0 or self.max_step < np.inf or bool(self.signs.any())

    def nodes(
        self, trees: Sequence[Tree], output: int, l2: Sequence[FloatArray], final: FloatArray
    ) -> Nodes:
        """Return the nodes of the trees for one output.

        ``l2``: of each tree (L_t,), what is added to the weights of its leaves. ``final``: (T,)
        what its values count in the end.
        """
        n_splits = np.array([len(tree.splits) for tree in trees], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(2 * n_splits + 1)])
        size = int(starts[-1])
        children = np.full((size, 2), -1, dtype=np.int64)
        leaf = np.full(size, -1, dtype=np.int64)
        added = np.zeros(size)
        values = np.full(size, np.nan)
        signs = np.zeros(size, dtype=np.int8)
        n_leaves = 0
        for tree, start, n, own_l2, factor in zip(trees, starts, n_splits, l2, final):
            splits = slice(start, start + n)
            leaves = slice(start + n, start + 2 * n + 1)
            below = tree.children
            children[splits] = start + np.where(below < 0, n + ~below, below)
            leaf[leaves] = np.arange(n_leaves, n_leaves + n + 1)
            n_leaves += int(n) + 1
            added[leaves] = own_l2
            added[splits] = own_l2[np.isfinite(own_l2)].min(initial=np.inf)
            values[splits] = factor * tree.base_weights[tree.splits, output]
            signs[splits] = self.signs[tree.features]
        slack = 4 * ROUNDING * np.abs(values)
        return Nodes(starts, children, leaf, added, values, slack, signs if signs.any() else None)

    def values(
        self,
        tree: Tree,
        l2: FloatArray,
        sums: FloatArray,
        weights: FloatArray,
    ) -> FloatArray:
        """Return the values (L, K) of one tree's leaves before the rate.

        ``sums`` (L, K) and ``weights`` (L,) are those of the leaves. Nodes without rows, as a refit
        may leave them, bound no others.
        """
        if self.signs.any():
            nodes = self.nodes([tree], 0, [l2], np.ones(1))
        else:
            nodes = None
        if nodes is not None:
            nodes = nodes.emptied(weights == 0)
        plain = NewtonRule(l2, np.ones_like(l2), False, self.l1, self.max_step)
        rule = with_nodes(plain, nodes)
        return np.stack([rule.leaf_values(column, weights) for column in sums.T], axis=1)

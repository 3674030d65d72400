"""How LightGBM makes leaf values of sums.

The rule covers lambda_l2, cat_l2, path_smooth, lambda_l1, max_delta_step and monotone bounds. Some
of these numbers are known to six digits only, so the rule also says how closely leaf values can
agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from axil.adapters.contract import Ancestors, Nodes
from axil.adapters.lightgbm.monotone import all_rivals
from axil.adapters.lightgbm.rates import refit_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.text import CATEGORICAL, TreeText
from axil.arrays import FloatArray

# in the weight of every leaf of a split (kEpsilon, src/treelearner/feature_histogram.hpp)
EPSILON = 1e-15
PRINTED_SLACK = 1e-5  # of itself: a value that is printed in six digits
# Of the largest leaf value: a sum over all rows in float32, 256 roundings of which 16 remain.
SINGLE_SLACK = 16 * 2.0**-24


@dataclass(frozen=True)
class LightGBMRule:
    """Regularisation, smoothing and bounds of the leaf values of all trees."""

    reading: LightGBMReading
    l2: float  #: lambda_l2
    cat_l2: float  #: added to it below a split that groups categories
    smooth: float  #: path_smooth
    l1: float  #: lambda_l1
    max_step: float  #: max_delta_step, before the rate; infinite where there is none
    #: leaves have exact sums and lambda_l2 alone (src/treelearner/gradient_discretizer.cpp)
    renewed: bool
    digits_lost: bool
    tolerance: float  #: how closely leaf values can agree, relative to the largest of a tree

    @classmethod
    def of(cls, reading: LightGBMReading) -> LightGBMRule:
        """Return the rule of a model.

        A leaf of weight W is off by up to lost / (W + lambda_l2) of the largest leaf value, twice
        that for path_smooth.
        """
        settings, trees = reading.settings, reading.text.trees
        l2, lost = settings.precisely("lambda_l2")
        cat_l2, cat_lost = settings.precisely("cat_l2")
        smooth, smooth_lost = settings.precisely("path_smooth")
        l1, l1_lost = settings.precisely("lambda_l1")
        step, step_lost = settings.precisely("max_delta_step")
        renewed = settings.flag("use_quantized_grad")
        if reading.ranked:  # whose leaves are renewed without any of them
            l2 = cat_l2 = smooth = l1 = step = lost = cat_lost = smooth_lost = l1_lost = (
                step_lost
            ) = 0.0
            if reading.text.objective == "quantile":
                lost = settings.precisely("alpha")[1]
        elif reading.cuts:
            step_lost += settings.precisely("alpha")[1]
        if renewed and not reading.ranked:
            cat_l2 = smooth = smooth_lost = 0.0
        elif reading.splits_subsets and not reading.ranked:
            lost += cat_lost
        lost += 2 * smooth_lost
        smallest = min(float(tree.floats("leaf_weight").min(initial=np.inf)) for tree in trees)
        rounded = 1e-8 if reading.on_gpu else 1e-10
        tolerance = rounded + (lost and lost / (smallest + l2))
        if (
            l1_lost or step_lost
        ):  # absolute, so relative to half of what the leaves of a tree are apart at least
            largest = _largest_range(trees) / 2
            off = settings.number("learning_rate") * (l1_lost / (smallest + l2) + step_lost)
            tolerance += off / largest if largest > 0 else 0.0
            lost += l1_lost + step_lost
        if reading.dart:
            rate, rate_lost = settings.precisely("learning_rate")
            lost += rate_lost
            tolerance += 2 * rate_lost / rate
        # GOSS rounds weights once more, after the factor of each row, and DART takes its trees from
        # the predictions and adds them again, which now and then tips a residual over to the next
        # number of single precision.
        if reading.goss or reading.dart:
            tolerance = max(tolerance, 2e-7)
        if reading.refitted:
            tolerance += 2 * refit_rates(trees, settings)[1]
        max_step = step if step > 0 and not reading.cuda else np.inf
        return cls(reading, l2, cat_l2, smooth, l1, max_step, renewed, lost > 0, tolerance)

    @property
    def _trees(self) -> tuple[TreeText, ...]:
        return self.reading.text.trees

    def denominators(self, tree: TreeText) -> FloatArray:
        """Return what regularisation adds to the denominators of a tree, (2L - 1,).

        These are the denominators of its splits and leaves. The term is lambda_l2, and cat_l2 below
        a split that groups categories
        (src/treelearner/feature_histogram.cpp).
        """
        if self.reading.forest and tree.n_leaves == 1 and tree.floats("leaf_value")[0] == 0.0:
            return np.array(
                [np.inf]
            )  # the first of a forest, if it found no split (src/boosting/rf.hpp)
        l2 = np.full(2 * tree.n_leaves - 1, self.l2)
        l2[tree.children[tree.splits_on(self.reading.subset_features)]] += self.cat_l2
        return l2

    def leaf_denominators(self) -> FloatArray:
        """Return what regularisation adds to the denominators of the leaves of all trees, (L,)."""
        return np.concatenate(
            [self.denominators(tree)[tree.n_leaves - 1 :] for tree in self._trees]
        )

    def slack(self, values: FloatArray) -> FloatArray:
        """Return the possible error of leaf values before the initial prediction, (L,).

        LightGBM adds a little to their weights, and a GPU rounds their sums.
        """
        alone = np.full(1, np.inf)  # not divided by a weight
        weights = [
            tree.floats("leaf_weight") if tree.n_leaves > 1 else alone for tree in self._trees
        ]
        weight_slack = (
            EPSILON
            * np.abs(values)
            / np.maximum(np.concatenate(weights) + self.leaf_denominators(), EPSILON)
        )
        return np.asarray(
            weight_slack + self.single_slack(values)
            if self.reading.adds_in_single
            else weight_slack
        )

    def single_slack(self, values: FloatArray) -> FloatArray:
        """Return the possible error of leaf values if a GPU adds histograms in float32, (L,).

        A leaf's sum is the difference of sums over more rows, up to those of all, so it has the
        error of those.
        """
        shares = [self._shares(tree)[tree.n_leaves - 1 :] for tree in self._trees]
        return np.asarray(
            SINGLE_SLACK * float(np.abs(values).max(initial=0.0)) / np.concatenate(shares)
        )

    def _shares(self, tree: TreeText) -> FloatArray:
        """Return the weight of each node with l2, divided by that of all rows, (2L - 1,)."""
        if tree.n_leaves == 1:
            return np.ones(1)
        weights = np.concatenate([tree.floats("internal_weight"), tree.floats("leaf_weight")])
        return np.asarray((weights + self.denominators(tree)) / tree.floats("leaf_weight").sum())

    def ancestors(self) -> Ancestors:
        """Return the splits of all trees, as parents of their leaves."""
        children = []
        l2 = []
        for tree in self._trees:
            n_splits = tree.n_leaves - 1
            if n_splits:
                below = tree.children
            else:
                below = np.zeros((0, 2), dtype=np.int64)
            children.append(np.where(below < n_splits, below, ~(below - n_splits)))
            l2.append(self.denominators(tree)[:n_splits])
        return Ancestors.of(children, np.concatenate(l2))

    @cached_property
    def nodes(self) -> Nodes | None:
        """The nodes of the trees, if leaf values depend on them or verification needs them."""
        signs = self.reading.monotone_signs * (not self.renewed)  # renewed leaves are not bounded
        if not (self.smooth > 0 or self.l1 > 0 or self.max_step < np.inf or signs.any()):
            return None
        n_leaves = np.array([tree.n_leaves for tree in self._trees], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(2 * n_leaves - 1)])
        children = np.full((starts[-1], 2), -1)
        leaf = np.full(starts[-1], -1)
        values = np.full(starts[-1], np.nan)
        ways = np.zeros(starts[-1], dtype=np.int8)
        for tree, start, end in zip(self._trees, starts, np.cumsum(n_leaves)):
            n = tree.n_leaves
            splits = slice(start, start + tree.n_leaves - 1)
            leaf[splits.stop : splits.stop + n] = np.arange(end - n, end)
            if n == 1:
                continue
            children[splits] = start + tree.children
            if not self.renewed:
                values[splits] = tree.floats("internal_value")
            if (
                self.reading.cuda
            ):  # which sums all rows up otherwise (src/treelearner/cuda/cuda_leaf_splits.cu)
                values[start] = np.nan
            number = (tree.integers("decision_type") & CATEGORICAL) == 0
            ways[splits] = np.where(number, signs[tree.integers("split_feature")], 0)
        l2 = np.concatenate([self.denominators(tree) for tree in self._trees])
        slack = PRINTED_SLACK * np.abs(values)
        if self.reading.adds_in_single:
            shares = np.concatenate([self._shares(tree) for tree in self._trees])
            slack = slack + SINGLE_SLACK * _largest_range(self._trees) / shares
        nodes = Nodes(starts, children, leaf, l2, values, slack, ways if signs.any() else None)
        if signs.any() and self.reading.monotone_method != "basic":
            advanced = self.reading.monotone_method == "advanced"
            nodes = replace(
                nodes, signs=None, rivals=all_rivals(self._trees, starts, ways, advanced)
            )
        if not self.smooth:
            return nodes
        counts = nodes.totals(
            np.concatenate([tree.leaf_counts(1) for tree in self._trees]).astype(np.float64)
        )
        shares_of_nodes = (counts / self.smooth) / (counts / self.smooth + 1.0)
        return replace(nodes, own=shares_of_nodes, path_smooth=self.smooth)


def _largest_range(trees: Sequence[TreeText]) -> float:
    """Return the largest range of the leaf values of a tree, over all trees."""
    return max(float(np.ptp(tree.floats("leaf_value"))) for tree in trees)

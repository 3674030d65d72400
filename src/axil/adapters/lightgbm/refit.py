"""Booster.refit with decay_rate=0: what the trees say once all their leaf values have been computed again.

A refit takes all rows, starts from no base and knows neither cat_l2 nor bounds (GBDT::RefitTree, src/boosting/gbdt.cpp, and
FitByExistingTree, src/treelearner/serial_tree_learner.cpp). Leaves keep the counts and weights of the first fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from axil.adapters.contract import FittedTrees
from axil.adapters.lightgbm.text import LightGBMSettings, TreeText
from axil.types import Array

SHOWN = 1e-6  # of the largest leaf value: from here on a rate can be recovered from leaf values


def refitted_trees(trees: Sequence[TreeText], settings: LightGBMSettings, l2: float) -> FittedTrees:
    """The trees of a refit with this lambda_l2."""
    values = np.concatenate([tree.floats("leaf_value") for tree in trees])
    n_leaves, none = np.array([tree.n_leaves for tree in trees], dtype=np.int64), np.zeros(1)
    denominators, rates = np.full(len(values), l2), refit_rates(trees, settings)[0]
    return FittedTrees(n_leaves, values[:, None], None, None, denominators, rates, none, none)


def refit_rates(trees: Sequence[TreeText], settings: LightGBMSettings) -> tuple[Array, float]:
    """(T,) rates of a refit, and the error of its leaf values where digits of theirs are lost, relative to the largest.

    They are those in memory: of a first tree that held the base 1 (Tree::AddBias, include/LightGBM/tree.h), others as they
    were set or, where the booster was loaded meanwhile, as printed. nan: these may differ, and the tree's leaves show it.
    """
    values = [np.abs(tree.floats("leaf_value")) for tree in trees]
    largest, rates, error = max(float(own.max()) for own in values) or 1.0, np.ones(len(values)), 0.0
    for t, (own, tree) in enumerate(zip(values, trees)):
        rates[t], lost = settings.precisely("", tree.shrinkage)
        if lost and np.count_nonzero(own > SHOWN * largest) > 2:
            rates[t] = np.nan
        elif lost:
            error = max(error, lost / rates[t] * float(own.max()) / largest)
    return rates, error

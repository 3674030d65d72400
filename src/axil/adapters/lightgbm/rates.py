"""Learning rates of a LightGBM model: as its trees state them, that of the first tree, which a base hides, and those of a refit.

Booster.refit with decay_rate=0 takes all rows, starts from no base and knows neither cat_l2 nor bounds (GBDT::RefitTree,
src/boosting/gbdt.cpp, and FitByExistingTree, src/treelearner/serial_tree_learner.cpp). Leaves keep the counts and weights of the
first fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.lightgbm.text import LightGBMSettings, TreeText
from axil.adapters.refusals import Refusal
from axil.arrays import BoolArray, FloatArray

SHOWN = 1e-6  # of the largest leaf value: from here on a rate can be recovered from leaf values
NEGLIGIBLE = 1e-6  # of the largest leaf value: what rounding leaves of a base that was taken out


def stated_rates(
    trees: Sequence[TreeText], settings: LightGBMSettings, n_outputs: int = 1
) -> FloatArray:
    """(T,): the learning rate where it is one number, surely known; nan otherwise, and 0 for trees of one leaf."""
    printed = {tree.shrinkage for tree in trees[n_outputs:] if tree.n_leaves > 1}
    printed |= {tree.shrinkage for tree in trees[:n_outputs]} - {"1"}  # which a base hides
    rate = np.nan  # a schedule: rates that print alike may still differ
    if not printed:
        printed = {settings.text("learning_rate")}
    if len(printed) == 1:
        rate, slack = settings.precisely("learning_rate", printed.pop())
        rate = np.nan if slack else rate
    return np.array([rate if tree.n_leaves > 1 else 0.0 for tree in trees])


def hidden_rate(values: FloatArray, others: FloatArray, settings: LightGBMSettings) -> float:
    """The rate of a first tree of leaf values (L,) for which LightGBM writes 1 (Tree::AddBias, include/LightGBM/tree.h).

    Two leaves do not separate the rate from the targets, so it is taken for that of all ``others``; see `FIRST`. Else nan: to be
    recovered.
    """
    different = np.count_nonzero(
        np.abs(values) > NEGLIGIBLE * np.abs(values).max()
    )  # L1 may put some to zero
    recoverable = different > 2 or bool(np.isnan(others).any())
    return np.nan if recoverable else settings.precisely("learning_rate")[0]


def _first_alone(agree: BoolArray) -> str:
    """Other targets would show in later trees as well."""
    return "unknown for tree 0" if len(agree) > 1 and not agree[0] and agree[1:].all() else ""


#: Of models whose first rate was taken for that of the others, asked with the trees (T,) that agree with the data.
FIRST: tuple[Refusal[BoolArray], ...] = (
    Refusal(
        "learning_rate",
        _first_alone,
        "all other trees agree with these data, but the first one, of two leaves, had another rate, which LightGBM does not "
        "record and two leaves do not separate from the targets",
        "Fit with one learning rate, or with more leaves; if that changes nothing, see that the targets are those of the fit.",
    ),
)


def refitted_trees(trees: Sequence[TreeText], settings: LightGBMSettings, l2: float) -> BoostedFit:
    """The trees of a refit with this lambda_l2."""
    values = np.concatenate([tree.floats("leaf_value") for tree in trees])
    return BoostedFit(
        n_leaves=np.array([tree.n_leaves for tree in trees], dtype=np.int64),
        leaf_values=values[:, None],
        leaf_counts=None,
        leaf_weights=None,
        l2=np.full(len(values), l2),
        schedule=Schedule.one_by_one(refit_rates(trees, settings)[0]),
        base=np.zeros(1),
        base_value=np.zeros(1),
    )


def refit_rates(trees: Sequence[TreeText], settings: LightGBMSettings) -> tuple[FloatArray, float]:
    """(T,) rates of a refit, and the error of its leaf values where digits of theirs are lost, relative to the largest.

    They are those in memory: of a first tree that held the base 1 (Tree::AddBias, include/LightGBM/tree.h), others as they
    were set or, where the booster was loaded meanwhile, as printed. nan: these may differ, and the tree's leaves show it.
    """
    values = [np.abs(tree.floats("leaf_value")) for tree in trees]
    largest, rates, error = (
        max(float(own.max()) for own in values) or 1.0,
        np.ones(len(values)),
        0.0,
    )
    for t, (own, tree) in enumerate(zip(values, trees)):
        rates[t], lost = settings.precisely("", tree.shrinkage)
        if lost and np.count_nonzero(own > SHOWN * largest) > 2:
            rates[t] = np.nan
        elif lost:
            error = max(error, lost / rates[t] * float(own.max()) / largest)
    return rates, error

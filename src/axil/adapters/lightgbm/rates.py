"""Learning rates of a LightGBM model.

The trees state their rates, except that a base hides the rate of the first tree. The module also
has the rates of a refit.

Booster.refit with decay_rate=0 takes all rows, starts from no base and knows neither cat_l2 nor
bounds (GBDT::RefitTree, src/boosting/gbdt.cpp, and FitByExistingTree,
src/treelearner/serial_tree_learner.cpp). Leaves keep the counts and weights of the first fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.lightgbm.text import LightGBMSettings, TreeText
from axil.adapters.refusals import Refusal
from axil.arrays import BoolArray, FloatArray

SHOWN = 1e-6  # of the largest leaf value: from here on a rate can be recovered from leaf values
NEGLIGIBLE = 1e-6  # of the largest leaf value: what rounding leaves of a base that was taken out


def stated_rates(
    trees: Sequence[TreeText], settings: LightGBMSettings, n_outputs: int = 1
) -> FloatArray:
    """Return the learning rate, (T,), if the model surely has a single one.

    It is nan otherwise, and 0 for trees of one leaf.
    """
    printed = {tree.shrinkage for tree in trees[n_outputs:] if tree.n_leaves > 1}
    printed |= {tree.shrinkage for tree in trees[:n_outputs]} - {"1"}  # which a base hides
    if not printed:
        printed = {settings.text("learning_rate")}
    rate = np.nan  # a schedule: rates that print alike may still differ
    if len(printed) == 1:
        stated, slack = settings.precisely("learning_rate", printed.pop())
        if slack == 0:
            rate = stated
    has_split = np.array([tree.n_leaves > 1 for tree in trees])
    return np.where(has_split, rate, 0.0)


def hidden_rate(values: FloatArray, later_rates: FloatArray, settings: LightGBMSettings) -> float:
    """Return the rate of a first tree for which LightGBM writes 1.

    LightGBM writes it in Tree::AddBias (include/LightGBM/tree.h). Two leaves do not separate the
    rate from the targets, so it is taken for that of all later trees; see `FIRST`. Of more leaves,
    with values (L,), it is nan: to be recovered.
    """
    sizes = np.abs(values)
    n_values = np.count_nonzero(sizes > NEGLIGIBLE * sizes.max())  # L1 may put some to zero
    if n_values > 2 or np.isnan(later_rates).any():
        return np.nan
    return settings.precisely("learning_rate")[0]


def _first_alone(agree: BoolArray) -> str:
    """Return the unknown setting if the first tree alone disagrees.

    Wrong targets would show in later trees as well.
    """
    if len(agree) < 2 or agree[0] or not agree[1:].all():
        return ""
    return "unknown for tree 0"


#: Of models whose first rate was taken for that of the others, asked with the trees (T,) that agree
#: with the data.
FIRST: tuple[Refusal[BoolArray], ...] = (
    Refusal(
        "learning_rate",
        _first_alone,
        "all trees but the first agree with these data. The first one, of two leaves, had "
        "another learning rate, which LightGBM does not record, and two leaves do not separate "
        "it from the targets",
        "Fit with one learning rate, or with more leaves; if that changes nothing, see that the "
        "targets are those of the fit.",
    ),
)


def refitted_trees(trees: Sequence[TreeText], settings: LightGBMSettings, l2: float) -> BoostedFit:
    """Return the trees of a refit with this lambda_l2."""
    values = np.concatenate([tree.floats("leaf_value") for tree in trees])
    return BoostedFit(
        table=TreeTable(
            n_leaves=np.array([tree.n_leaves for tree in trees], dtype=np.int64),
            leaf_values=values[:, None],
            leaf_counts=None,
            leaf_weights=None,
        ),
        leaf_rule=LeafRule(l2=np.full(len(values), l2)),
        initial=InitialPrediction(values=np.zeros(1)),
        schedule=Schedule.one_by_one(refit_rates(trees, settings)[0]),
    )


def refit_rates(trees: Sequence[TreeText], settings: LightGBMSettings) -> tuple[FloatArray, float]:
    """Return the rates of a refit, (T,), and the error of leaf values from lost digits of rates.

    The error is relative to the largest leaf value.

    The rates are those in memory: of a first tree that held the base 1 (Tree::AddBias,
    include/LightGBM/tree.h), others as they were set or, where the booster was loaded meanwhile, as
    printed. nan: these may differ, and the tree's leaves show it.
    """
    sizes = [np.abs(tree.floats("leaf_value")) for tree in trees]
    largest = max(float(tree_sizes.max()) for tree_sizes in sizes) or 1.0
    rates = np.ones(len(trees))
    error = 0.0
    for t, tree in enumerate(trees):
        rates[t], lost = settings.precisely("", tree.shrinkage)
        if lost and np.count_nonzero(sizes[t] > SHOWN * largest) > 2:
            rates[t] = np.nan
        elif lost:
            error = max(error, lost / rates[t] * float(sizes[t].max()) / largest)
    return rates, error

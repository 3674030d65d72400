"""LightGBM's boosters with exact weights.

These have squared error, its Huber, or an objective whose leaf values are percentiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.contract import Coefficients, Rounding, Totals, TrainingRows
from axil.adapters.lightgbm.base import LightGBMAdapter
from axil.adapters.lightgbm.draw_replay import LeafEvidence
from axil.adapters.lightgbm.path_smooth import PathSmooth
from axil.adapters.lightgbm.percentile import Gradients
from axil.adapters.lightgbm.rates import FIRST, hidden_rate, refitted_trees, stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.percentiles import require_rows, with_initial_tree
from axil.adapters.refusals import refusal
from axil.aliases import ForeignModel
from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedModelError
from axil.structure import Cut

#: tolerance of leaf values beyond which residuals are rounded otherwise than the library's
CLOSE = 1e-9
ROUNDING = 1e-13  # of the largest value of a tree: what sums in another order are off by


@dataclass(frozen=True)
class Base:
    """The initial scores of a fit."""

    fixed: float | None  #: None: the mean or a percentile of the targets
    value: float
    #: how much of it the leaves of the first tree hold; in a forest, those of all trees
    hidden: float


class ExactLightGBM(LightGBMAdapter):
    """A LightGBM booster whose predictions are weighted sums of the targets."""

    def __init__(self, booster: ForeignModel, reading: LightGBMReading):
        super().__init__(booster, reading)
        self.has_initial_tree = reading.ranked
        if self.has_initial_tree:
            self.rounding = Rounding(targets=np.float32, initial=np.float32)
        self.settles = self._rule.smooth > 0

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees without the initial prediction that LightGBM adds to the first one."""
        rule = self._rule
        if self._reading.refitted:
            return [refitted_trees(self._trees, self._settings, rule.l2)]
        totals = rows.totals
        coefficients = self._coefficients(rows)
        gradients = self._gradients(rows)
        start = float(totals.means[0])
        start_error = 0.0
        if gradients is not None:
            start, start_error = gradients.start(rows.targets[:, 0])
        base = self._base(start, totals, coefficients)
        hides_base = np.arange(len(self._trees)) == 0
        if self._reading.forest:
            hides_base = self._n_leaves > 1
        hidden = np.where(hides_base, base.hidden, 0.0)
        values, nodes = self._without_base(hidden)
        hides_rate = coefficients is None and base.hidden != 0.0 and self._trees[0].n_leaves > 1
        if coefficients is None:
            rates = stated_rates(self._trees, self._settings)
        else:
            rates = coefficients.omega[-1].copy()
        if hides_rate:
            rates[0] = hidden_rate(values[0], rates[1:], self._settings)
        # Weights are for samples, which are not replayed on several machines.
        weights = rows.weights if rows.at_hand else None
        evidence = self._evidence(totals.n_rows, weights)
        evidence = replace(evidence, values=np.concatenate(values), rates=rates)
        if gradients is not None:
            evidence = replace(evidence, ranks=gradients.ranks, leaf_weights=self._goss_weights())
        leaf_weights = self._leaf_weights(totals)
        if self._reading.forest and self._reading.samples_rows:
            self._count_lone_leaves(evidence, leaf_weights, totals.n_rows, rows.in_bag)
        printed_shift: FloatArray | float = 0.0
        if not self._reading.forest:
            printed_shift = np.repeat(hidden, self._n_leaves)
        guesses_rate = hides_rate and not np.isnan(rates[0])
        trees = BoostedFit(
            table=TreeTable(
                n_leaves=self._n_leaves,
                leaf_values=evidence.values[:, None],
                leaf_counts=evidence.counts if self._reading.counts_rows or totals.even else None,
                leaf_weights=leaf_weights,
                printed_shift=printed_shift,
                value_slack=rule.slack(evidence.values),
            ),
            leaf_rule=LeafRule(
                l2=evidence.rule.l2,
                l1=rule.l1,
                max_step=rule.max_step,
                nodes=nodes,
                ancestors=rule.ancestors() if self._reading.forest else None,
                cut=Cut(self._settings.precisely("alpha")[0]) if self._reading.cuts else None,
            ),
            initial=InitialPrediction(
                follows_targets=base.fixed is None,
                values=np.array([base.value]),
            ),
            schedule=Schedule.one_by_one(rates, coefficients),
            sampler=self._sampler(evidence, totals.n_rows, gradients),
            explain_mismatch=self._explain_mismatch(guesses_rate),
        )
        if gradients is not None:
            trees = self._without_lone_steps(trees, coefficients)
            estimated_start = start if base.fixed is None else None
            return [with_initial_tree(trees, gradients.ranks, rows, estimated_start, start_error)]
        if self._estimates(totals):
            return [self._smoothed(trees, rows, evidence)]
        return [trees]

    def _explain_mismatch(
        self, guesses_rate: bool
    ) -> Callable[[BoolArray], UnsupportedModelError | None] | None:
        """Return what explains trees that disagree with the data; None: nothing does."""
        if guesses_rate:
            return partial(refusal, FIRST)
        if self._has_several_drops:
            return self._explain_drops
        return None

    def _without_lone_steps(
        self, trees: BoostedFit, coefficients: Coefficients | None
    ) -> BoostedFit:
        """Return the trees of a forest of percentiles; trees without a split count for nothing."""
        if coefficients is None or not self._reading.forest:
            return trees
        is_lone = self._n_leaves == 1
        first_values = trees.table.leaf_values[trees.table.starts[:-1]]
        if first_values[is_lone].any():
            raise UnsupportedModelError(
                "boosting",
                f"rf with {self._reading.text.objective} and trees of one leaf",
                "LightGBM leaves a step along the gradient in a tree that finds no split, and no "
                "percentile",
                "Fit with fewer trees or smaller leaves, so that all find a split.",
            )
        coefficients.omega[:, is_lone] = 0.0
        return trees.with_learning_rates(coefficients.omega[-1].copy())

    def _estimates(self, totals: Totals) -> bool:
        """Return whether LightGBM smoothed by estimated row counts.

        It does so because weights or the factors of GOSS differ.
        """
        return self._rule.smooth > 0 and (self._reading.goss or not totals.even)

    def _smoothed(
        self, trees: BoostedFit, rows: TrainingRows, evidence: LeafEvidence
    ) -> BoostedFit:
        """Return the trees with the row counts of their path smoothing, inferred from leaf sums."""
        assert trees.leaf_rule.nodes is not None  # path_smooth is above zero
        rates = trees.learning_rates.copy()
        tolerance = self._rule.tolerance
        if np.isnan(rates[0]):  # which a base hides
            rates[0] = self._settings.precisely("learning_rate")[0]
        if tolerance > CLOSE:
            rounding = tolerance
        else:
            rounding = ROUNDING
        smooth = PathSmooth.of(self._rule, rates, trees.leaf_rule.nodes, tolerance, rounding)
        if rows.leaf_totals is None:  # the rows are walked first
            return trees
        (totals,) = rows.leaf_totals
        shift = np.broadcast_to(trees.table.printed_shift, len(trees.table.leaf_values))
        shares = []
        for t in range(len(self._trees)):
            leaves = evidence.leaves_of(t)
            sums = totals.sums[leaves, 0]
            weights = totals.weights[leaves]
            hidden = float(shift[leaves.start])
            shares.append(smooth.own(t, sums, weights, evidence.values[leaves], hidden))
        return replace(
            trees,
            leaf_rule=replace(
                trees.leaf_rule, nodes=replace(trees.leaf_rule.nodes, own=np.concatenate(shares))
            ),
        )

    def _gradients(self, rows: TrainingRows) -> Gradients | None:
        """Return the gradients of an objective whose leaf values are percentiles.

        It is None for any other objective.
        """
        if not self.has_initial_tree:
            return None
        name = self._reading.text.objective
        require_rows(rows, "objective", name)
        alpha = self._settings.precisely("alpha")[0]
        return Gradients.of(name, alpha, rows.targets[:, 0], rows.weights)

    def _base(self, start: float, totals: Totals, coefficients: Coefficients | None) -> Base:
        """Return the initial scores.

        ``start`` is the mean or the percentile from which the objective starts.
        """
        from_average = self._settings.flag("boost_from_average") and not totals.offset
        # A mean of zero is not boosted from (src/boosting/gbdt.cpp), but with other targets the fit
        # starts from theirs.
        is_zero = abs(start) <= 1e-14 * totals.size / totals.n_rows
        drop_scale = 1.0
        if coefficients is not None and not self._reading.forest:
            drop_scale = float(coefficients.beta[-1])
        if self._reading.forest:
            # without a feature to split on it starts from the mean in any case
            starts_there = from_average or self._reading.no_features
            is_hidden = starts_there and not is_zero and abs(start) > 1e-15
        else:
            is_hidden = self._first_tree_hides(start, totals, drop_scale, coefficients is None)
        if is_hidden:
            return Base(None, start, drop_scale * start)
        if from_average and is_zero:
            return Base(None, start, 0.0)
        return Base(0.0, 0.0, 0.0)

    def _first_tree_hides(
        self, start: float, totals: Totals, drop_scale: float, is_plain: bool
    ) -> bool:
        """Return whether the leaf values of the first tree include the initial prediction.

        ``drop_scale`` is DART's factor of the base, ``is_plain`` whether trees are added one after
        the other.
        """
        first = self._trees[0]
        if first.n_leaves == 1:
            # It holds the mean even where boost_from_average is off, and 0 where there are offsets.
            is_lost = 0 < abs(start) <= 1e-15 and first.floats("leaf_value")[0] == 0.0
            return not totals.offset and not is_lost
        shrinkage = first.shrinkage
        if drop_scale != 1:
            shrinkage = f"{float(first.shrinkage) / drop_scale:.5g}"
        if shrinkage != "1":
            return False
        # Only for a rate of 1 does boost_from_average decide: continued training may have changed
        # it since.
        if self._settings.flag("boost_from_average") and not totals.offset:
            return True
        if is_plain:
            later = [tree.shrinkage for tree in self._trees[1:]]
        else:
            later = []
        return "1" not in (later or [self._settings.text("learning_rate")])

    def _coefficients(self, rows: TrainingRows) -> Coefficients | None:
        """Return how the trees add up: None for plain boosting."""
        if not self._reading.forest:
            if self._reading.dart:
                return self._drops(rows)
            return None
        n = len(self._trees)
        omega = np.vstack([np.zeros((n, n)), np.full(n, 1 / n)])
        # A tree that found no split lacks the base (src/boosting/rf.hpp).
        return Coefficients(omega, np.append(np.ones(n), np.mean(self._n_leaves > 1)))

    def _count_lone_leaves(
        self,
        evidence: LeafEvidence,
        leaf_weights: FloatArray | None,
        n_rows: int,
        in_bag: FloatArray | None,
    ) -> None:
        """Fill in the row counts of trees without a split in a forest; LightGBM records none.

        The rows are those of ``in_bag`` (N, T) where there are some. Otherwise they are sampled
        as LightGBM samples them.
        """
        lone_trees = np.flatnonzero(self._n_leaves[1:] == 1) + 1
        state = self._settings.bagging(n_rows)
        for t in range(lone_trees.max(initial=-1) + 1):
            bag, state = state.attempt(False, None)
            state = state.grown()
            if in_bag is not None:
                bag = in_bag[:, t] > 0
            if t in lone_trees:
                leaf = evidence.starts[t]
                evidence.counts[leaf] = bag.sum()
                if leaf_weights is None:
                    continue
                if evidence.weights is None:
                    leaf_weights[leaf] = bag.sum()
                else:
                    leaf_weights[leaf] = evidence.weights[bag].sum()

    def _goss_weights(self) -> FloatArray | None:
        """Return the sums of second derivatives times the factors of GOSS, (L,).

        None without GOSS, or where a GPU rounds them.
        """
        if not self._reading.goss or self._reading.on_gpu:
            return None
        return self._recorded_weights(np.nan)

    def _leaf_weights(self, totals: Totals) -> FloatArray | None:
        """Return the sums of weights that LightGBM recorded, (L,).

        It is None if it summed rounded ones.
        """
        if self._reading.on_gpu or self._rule.renewed:
            return None
        if self._reading.text.objective == "mape" and not totals.even:
            return None
        return self._recorded_weights(totals.weight)

    def _recorded_weights(self, of_lone_leaf: float) -> FloatArray:
        """Return leaf_weight of all leaves, (L,).

        A tree of one leaf records none, or 0 if it is still in memory.
        """
        lone = np.array([of_lone_leaf])
        weights = [
            tree.floats("leaf_weight") if tree.n_leaves > 1 else lone for tree in self._trees
        ]
        return np.concatenate(weights)

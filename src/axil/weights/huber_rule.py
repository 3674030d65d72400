"""Fits with Huber's loss: residuals beyond a threshold count as the threshold.

A walk finds these residuals.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.kernels import Backend
from axil.structure import Cut, Structure
from axil.weights.borders import Border, radius
from axil.weights.fit_rules import FitRule, RankedOrClippedRule, TreeFits
from axil.weights.inherited import inheriting
from axil.weights.residuals import FittedValues
from axil.weights.sum_rule import (
    SumRule,
    count_leaves_beyond,
    l2_factor,
    present_without,
    remaining_rule,
    remaining_weights,
    with_emptied_leaves,
)


@dataclass(frozen=True)
class HuberRule(RankedOrClippedRule):
    """The rule of a fit whose residuals are clipped; see `FitRule`.

    The structure has two levels for each sample count: the first half are those of rows within the
    threshold, the second half are zeros, for rows whose residuals are clipped.
    """

    cut: Cut = field(kw_only=True)
    clips_residuals: ClassVar[bool] = True

    def check(self, n_leaves: NDArray[np.int64], n_rows: int, sample_counts: FloatArray) -> None:
        """Raise ValueError unless the rule fits these trees, and clipped rows have no counts."""
        super().check(n_leaves, n_rows, sample_counts)
        half = len(sample_counts) // 2
        if len(sample_counts) % 2 or sample_counts[half:].any():
            raise ValueError("sample counts of rows with clipped residuals that are not zero")

    def levels_sampled(self, sample_counts: FloatArray) -> FloatArray:
        """Return how often rows of each level were sampled, (D,), clipped or not."""
        return np.tile(sample_counts[: len(sample_counts) // 2], 2)

    def counted_residuals(self, residuals: FloatArray) -> FloatArray:
        """Return the residuals, clipped as they are in the sums of their leaves."""
        return self.cut.kept(residuals)

    def no_first_order(self, structure: Structure) -> str:
        """Return why the derivative by a row's weight is unknown."""
        return (
            "residuals are clipped (Huber's loss), and axil does not differentiate leaf values "
            "by the weight of such a row"
        )

    def with_all_rows(self, structure: Structure) -> Structure:
        """Return the structure as if no residual were clipped, with all leaf weights.

        Its leaf values are as before.
        """
        s = structure
        counts = s.levels_sampled
        if s.row_weights is None:
            row_weights = np.ones(s.n_rows)
        else:
            row_weights = s.row_weights
        leaf_weights = []
        for cells, n in zip(s.cells.astype(np.intp), s.n_leaves):
            leaf_weights.append(np.bincount(cells % n, row_weights * counts[cells // n], n))
        rule = SumRule(self.newton, self.ancestors, self.emptied, self.class_counts)
        return replace(
            s, sample_counts=counts, leaf_weights=np.concatenate(leaf_weights), leaf_rule=rule
        )

    def without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of a fit to these targets without these rows; see `FitRule`."""
        return self.fit_without(structure, rows, targets, backend).structure

    def with_targets(
        self, structure: Structure, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of the fit to other targets (N, K), with its own active set."""
        return self.without(structure, np.zeros(0, dtype=np.intp), targets, backend)

    def fit_without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> FittedValues:
        """Return the fit of `without`: each tree finds which residuals are cut off."""
        s = structure
        weights = remaining_weights(s, rows)
        present = present_without(s, rows)
        level, leaf = np.divmod(s.cells, s.n_leaves[:, None].astype(s.cells.dtype))
        drawn = [weights * s.levels_sampled[of_tree] for of_tree in level]
        remaining = np.concatenate(
            [np.bincount(tree_leaves, w, n) for tree_leaves, w, n in zip(leaf, drawn, s.n_leaves)]
        )
        before = self.with_all_rows(s).leaf_weights
        rule = remaining_rule(s, self.newton.scaled(l2_factor(s, present)), rows, before, remaining)
        leaf_rule: FitRule = replace(self, newton=rule)
        if s.averages:
            leaf_rule = with_emptied_leaves(leaf_rule, (before > 0) & (remaining == 0))
            rule = inheriting(replace(s, leaf_rule=leaf_rule, leaf_weights=remaining)).newton_rule
            leaf_rule = replace(leaf_rule, newton=rule)
        if s.initial is None:
            base = np.average(targets, axis=0, weights=weights)
        else:
            base = s.initial
        leaf_weights, sums, constants, free = (np.zeros(s.total_leaves) for _ in range(4))
        cells = np.empty_like(s.cells)
        n_draws = len(s.sample_counts) // 2
        fit = FittedValues(s, targets, base, *np.zeros((2, s.total_leaves, 1)))
        rounding = self.cut.rounding(targets, s.offsets)
        for t, residuals in zip(range(s.n_trees), fit.residuals(leaf, fit.started())):
            places = slice(s.starts[t], s.starts[t + 1])
            n = int(s.n_leaves[t])
            residual = residuals[:, 0]
            is_cut = self.cut.beyond(residual + rounding)
            added = drawn[t] * self.cut.kept(residual)
            sums[places] = np.bincount(leaf[t], added, n)
            constants[places] = np.bincount(leaf[t][is_cut], added[is_cut], n)
            free[places] = np.bincount(leaf[t][~is_cut], drawn[t][~is_cut], n)
            leaf_weights[places] = free[places]
            if self.cut.weighs:
                leaf_weights[places] = np.bincount(leaf[t], drawn[t], n)
            fit.values[places, 0] = rule.tree(t, places).leaf_values(
                sums[places], leaf_weights[places]
            )
            new_level = (level[t] % n_draws + n_draws * is_cut).astype(cells.dtype)
            cells[t] = leaf[t] + new_level * cells.dtype.type(n)
        linear = rule.linearise(sums, leaf_weights)
        shift = replace(linear, shift=None).values(s.n_leaves, constants[:, None])[:, 0]
        if linear.shift is not None:
            shift = linear.shift + shift
        structure = replace(
            s,
            cells=cells,
            leaf_weights=free,
            linear_leaves=replace(linear, shift=shift),
            leaf_rule=leaf_rule,
            row_weights=weights,
            present=present,
        )
        return replace(fit, structure=structure, sums=(sums - constants)[:, None])

    def count_changed_leaves(self, trees: TreeFits, before: FloatArray, after: FloatArray) -> int:
        """Return how many leaves have another active set with the targets ``after``."""
        fit = trees.fit(after)
        sums, leaf_weights = self._totals(fit)
        whole = replace(self.with_all_rows(trees.structure), leaf_weights=leaf_weights)
        return count_leaves_beyond(whole, sums, fit.values)

    def whole_sums(self, fitted: FittedValues) -> FloatArray:
        """Return the leaf sums of a fit with the residuals that are cut off, (L, K)."""
        if fitted.structure.total is not None:  # the rows are elsewhere, and the sums are whole
            return fitted.sums
        return self._totals(fitted)[0]

    def _totals(self, fitted: FittedValues) -> tuple[FloatArray, FloatArray]:
        """Return the leaf sums of a fit, (L, 1), and the leaf weights by the rule, (L,)."""
        s = fitted.structure
        leaves = s.leaves()
        levels = s.cells // s.n_leaves[:, None]
        sums = np.zeros((s.total_leaves, 1))
        leaf_weights = np.zeros(s.total_leaves)
        row_weights = 1.0 if s.row_weights is None else s.row_weights
        rounding = self.cut.rounding(fitted.targets, s.offsets)
        for t, residuals in zip(range(s.n_trees), fitted.residuals(leaves, fitted.started())):
            places = slice(s.starts[t], s.starts[t + 1])
            n = int(s.n_leaves[t])
            residual = residuals[:, 0]
            drawn = s.levels_sampled[levels[t]] * row_weights
            sums[places, 0] = np.bincount(leaves[t], drawn * self.cut.kept(residual), n)
            if not self.cut.weighs:
                drawn = drawn * ~self.cut.beyond(residual + rounding)
            leaf_weights[places] = np.bincount(leaves[t], drawn, n)
        return sums, leaf_weights

    def radius(self, trees: TreeFits, targets: FloatArray) -> float:
        """Return the least change of one target that changes the active set, or a lower bound."""
        if self.newton.has_active_set:
            return 0.0
        thresholds = [Border(None, -self.cut.delta), Border(None, self.cut.delta)]
        return radius(trees, targets, [thresholds] * trees.structure.n_trees)

"""Fits with Huber's loss: residuals beyond a threshold count as the threshold, and which ones do is found by a walk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.kernels import Backend
from axil.structure import Cut, Structure
from axil.weights.borders import Border, radius
from axil.weights.inherited import inheriting
from axil.weights.residuals import FittedValues
from axil.weights.rows_left import (
    count_leaves_beyond,
    emptied_leaves,
    known_regularisation,
    l2_factor,
    present_without,
    remaining_rule,
    remaining_weights,
)

if TYPE_CHECKING:
    from axil.weights.boosting import BoostedTrees
    from axil.weights.forest import Forest


@dataclass(frozen=True)
class HuberRule:
    """The rule of a fit in which residuals are cut off; see `FitRule`."""

    structure: Structure
    cut: Cut
    has_active_set = True
    needs_walk = True
    has_formula = False
    ranks_rows = False
    no_first_order = (
        "residuals are cut off (Huber's loss), and how a leaf follows the weight of such a row is not "
        "differentiated"
    )

    def without(self, rows: IntArray, targets: FloatArray, backend: Backend) -> Structure:
        """Return the structure of a fit to these targets without these rows; see `FitRule`."""
        return self.fit_without(rows, targets, backend).structure

    def with_targets(self, targets: FloatArray, backend: Backend) -> Structure:
        """Return the structure of the fit to other targets (N, K), with its own active set."""
        return self.without(np.zeros(0, dtype=np.intp), targets, backend)

    def fit_without(self, rows: IntArray, targets: FloatArray, backend: Backend) -> FittedValues:
        """Return the fit of `without`: each tree finds which residuals are cut off."""
        s = self.structure
        weights = remaining_weights(s, rows)
        present = present_without(s, rows)
        level, leaf = np.divmod(s.cells, s.n_leaves[:, None].astype(s.cells.dtype))
        drawn = [weights * s.whole_draws[of_tree] for of_tree in level]
        left = np.concatenate(
            [np.bincount(own, w, n) for own, w, n in zip(leaf, drawn, s.n_leaves)]
        )
        before = s.uncut().leaf_weights
        rule = known_regularisation(s).scaled(l2_factor(s, present))
        rule = remaining_rule(s, rule, rows, before, left)
        if s.averages:
            emptied = emptied_leaves(s, (before > 0) & (left == 0))
            s = replace(s, emptied=emptied, regularisation=rule)
            rule = known_regularisation(inheriting(replace(s, leaf_weights=left)))
        if s.base is None:
            base = np.average(targets, axis=0, weights=weights)
        else:
            base = s.base
        leaf_weights, sums, constants, free = (np.zeros(s.total_leaves) for _ in range(4))
        cells = np.empty_like(s.cells)
        n_draws = len(s.draws) // 2
        fit = FittedValues(s, targets, base, *np.zeros((2, s.total_leaves, 1)))
        for t, residuals in zip(range(s.n_trees), fit.residuals(leaf, fit.started())):
            own = slice(s.starts[t], s.starts[t + 1])
            n = int(s.n_leaves[t])
            residual = residuals[:, 0]
            is_cut = self.cut.beyond(residual)
            added = drawn[t] * self.cut.kept(residual)
            sums[own] = np.bincount(leaf[t], added, n)
            constants[own] = np.bincount(leaf[t][is_cut], added[is_cut], n)
            free[own] = np.bincount(leaf[t][~is_cut], drawn[t][~is_cut], n)
            leaf_weights[own] = free[own]
            if self.cut.weighs:
                leaf_weights[own] = np.bincount(leaf[t], drawn[t], n)
            fit.values[own, 0] = rule.tree(t, own).leaf_values(sums[own], leaf_weights[own])
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
            regularisation=rule,
            row_weights=weights,
            present=present,
        )
        return replace(fit, structure=structure, sums=(sums - constants)[:, None])

    def count_changed_leaves(
        self, engine: BoostedTrees | Forest, before: FloatArray, after: FloatArray
    ) -> int:
        """Return how many leaves have another active set with the targets ``after``."""
        fit = cast("BoostedTrees", engine).fit(after)
        sums, weights = self._totals(fit)
        uncut = replace(self.structure.uncut(), leaf_weights=weights)
        return count_leaves_beyond(uncut, sums, fit.values)

    def whole_sums(self, fitted: FittedValues) -> FloatArray:
        """Return the leaf sums of a fit with the residuals that are cut off, (L, K)."""
        if self.structure.total is not None:  # the rows are elsewhere, and the sums are whole
            return fitted.sums
        return self._totals(fitted)[0]

    def _totals(self, fitted: FittedValues) -> tuple[FloatArray, FloatArray]:
        """Return the leaf sums of a fit, (L, 1), and the leaf weights by the rule, (L,)."""
        s = self.structure
        leaves = s.leaves()
        levels = s.cells // s.n_leaves[:, None]
        sums = np.zeros((s.total_leaves, 1))
        leaf_weights = np.zeros(s.total_leaves)
        row_weights = 1.0 if s.row_weights is None else s.row_weights
        for t, residuals in zip(range(s.n_trees), fitted.residuals(leaves, fitted.started())):
            own = slice(s.starts[t], s.starts[t + 1])
            n = int(s.n_leaves[t])
            residual = residuals[:, 0]
            drawn = s.whole_draws[levels[t]] * row_weights
            sums[own, 0] = np.bincount(leaves[t], drawn * self.cut.kept(residual), n)
            if not self.cut.weighs:
                drawn = drawn * ~self.cut.beyond(residual)
            leaf_weights[own] = np.bincount(leaves[t], drawn, n)
        return sums, leaf_weights

    def held(self, counts: dict[str, Any]) -> dict[str, Any]:
        """Return the counts of what is fixed, as the replay found them."""
        return counts

    def radius(self, engine: BoostedTrees | Forest, targets: FloatArray) -> float:
        """Return the smallest change of one target that changes the active set, or a lower bound."""
        if known_regularisation(self.structure).has_active_set:
            return 0.0
        thresholds = [Border(None, -self.cut.delta), Border(None, self.cut.delta)]
        return radius(engine, targets, [thresholds] * self.structure.n_trees)

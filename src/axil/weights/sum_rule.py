"""Fits by sums: a library's rule turns sums and weights of remaining rows into leaf values.

Deleted rows are gone: they have no weight, and nothing that a library derives from the number of
rows counts them. A row that the fit itself gave no weight stays: an l2 in proportion to the mean
weight of the rows follows the rows that remain.

While the active set is fixed, a leaf value is an affine map of the sums of its tree
(`axil.structure.newton`). Deleted rows may change the active set: a sum falls within L1, a clipped
value comes free, a bound moves. So the fit is walked through with the rule itself, tree by tree,
and the active set is that of the sums of the walk.

`axil.replay.computed_walk` is the walk for every other loss: it computes the gradients of all rows
again before each round. With squared error a residual follows from the one before it, so the walk
here is one forward pass of a kernel (`axil.weights.passes`), and over partitions it needs no rows
at all (`sums_by_rule`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError
from axil.kernels import Backend
from axil.machine.arrays import host, like
from axil.machine.blocks import spans
from axil.structure import LinearLeaves, NewtonRule, Structure
from axil.weights.fit_rules import FitRule, TreeFits, needs_walk, rule_of
from axil.weights.inherited import inheriting
from axil.weights.passes import Passes, leaf_sums
from axil.weights.residuals import FittedValues

LEAST = 16  # changes of the active set, the nearest first, whose derivatives are always computed
SECONDS = 2.0  # that the derivatives of more of them may take
TOGETHER = 64  # of them in one backward pass
ROUNDING = 1e-13  # of a leaf's weight: a derivative of its sum that is less is none
MAP_ENTRIES = 1 << 25  # entries of the maps of changes that are held
BEYOND = 1e-7  # of the largest leaf value: a smaller difference is within the rounding of a value


class NothingLeft(InputError):
    """The error of a deletion that leaves no row with a weight."""


def couples_leaves(s: Structure) -> bool:
    """Return whether a leaf's value may depend on the sums of other leaves."""
    return s.leaf_rule is not None and s.leaf_rule.newton.couples_leaves


def estimates_rows(s: Structure) -> bool:
    """Return whether smoothing uses row counts that LightGBM estimates from weights.

    This is so if rows, or their sample counts, have different weights.
    """
    if s.leaf_rule is None or not s.leaf_rule.newton.smooths_nodes:
        return False
    drawn = s.levels_sampled[s.levels_sampled > 0]
    weights = s.row_weights
    return bool(
        (drawn != drawn[:1]).any() or (weights is not None and (weights != weights[:1]).any())
    )


@dataclass(frozen=True)
class SumRule(FitRule):
    """The rule of a fit whose leaf values follow from leaf sums; see `FitRule`."""

    @property
    def has_active_set(self) -> bool:
        """Whether leaf values are linear in the targets only while an active set is fixed."""
        return self.newton.has_active_set

    @property
    def needs_walk(self) -> bool:
        """Whether the rule has an active set or couples leaves.

        If so, deletions may be replayed.
        """
        return self.newton.has_active_set or self.newton.couples_leaves

    def has_formula(self, structure: Structure) -> bool:
        """Return whether deletions of single rows follow from the leaf matrix."""
        return structure.linear_leaves.mixing is None

    def no_first_order(self, structure: Structure) -> str:
        """Return why the derivative by a row's weight is unknown, or "" if it is known."""
        if structure.linear_leaves.mixing is None:
            return ""
        return (
            "with path_smooth or monotone constraints the value of a leaf depends on other "
            "nodes, and axil does not differentiate these by the weight of a row"
        )

    def without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of a fit to these targets without these rows; see `FitRule`."""
        remaining = inheriting(lighter(structure, rows, backend))
        if not needs_walk(remaining):
            return rescaled(remaining)
        return with_active_set(remaining, fit_by_rule(remaining, targets, backend).sums)

    def fit_without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> FittedValues:
        """Return the refit without some rows, with its leaf values and sums; see `without`."""
        return fit_by_rule(inheriting(lighter(structure, rows, backend)), targets, backend)

    def with_targets(
        self, structure: Structure, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of the fit to other targets (N, K), with its own active set."""
        if not self.has_active_set:
            return structure
        structure = inheriting(structure)
        return with_active_set(structure, fit_by_rule(structure, targets, backend).sums)

    def count_changed_leaves(self, trees: TreeFits, before: FloatArray, after: FloatArray) -> int:
        """Return how many leaves have another active set with the targets ``after``."""
        if not self.has_active_set:
            return 0
        fit = trees.fit(after)
        return count_leaves_beyond(fit.structure, fit.sums, fit.values)

    def radius(self, trees: TreeFits, targets: FloatArray) -> float:
        """Return the smallest change of one target that changes the active set, or a lower bound.

        That is the least of ``distance / max_j |d distance / d y_j|`` over all changes. Changes are
        taken in turn, those first whose distance is small for the steepest slope that they may
        have. Where it is known how steep the rest may be (`_slope_bounds`), those that cannot be
        nearer are left out. Of a model with more changes than `SECONDS` allow, the bound of the
        rest counts as well, and is 0 if none is known.
        """
        s = trees.structure
        rule = self.newton
        # At a rate of one, a leaf that comes again has a sum of l1, the edge, whatever the targets.
        if rule.l1 > 0 and (s.learning_rates >= 1.0).any():
            return 0.0
        bound = self._slope_bounds(s)
        costs = trees.backend.costs
        seconds = costs.visit_seconds * costs.sweep * s.n_rows * s.n_trees
        most = max(LEAST, min(int(SECONDS / seconds), MAP_ENTRIES // s.total_leaves))
        sums = trees.fit(targets).sums[:, 0]
        maps, distances = rule.nearest_changes(sums, s.leaf_weights, most + 1, bound)
        radius = np.inf
        for block in spans(min(len(distances), most), TOGETHER):
            least = _least_radius(maps[:, block], distances[block], bound)
            if least >= radius:
                return radius
            slopes = np.abs(trees.sum_weights(maps[:, block])).max(axis=0)
            largest = (np.abs(maps[:, block]) * s.leaf_weights[:, None]).max(axis=0)
            slopes[slopes <= ROUNDING * largest] = 0.0
            unreached = np.full_like(slopes, np.inf)
            radii = np.divide(distances[block], slopes, out=unreached, where=slopes > 0)
            radius = min(radius, float(radii.min(initial=np.inf)))
        if len(distances) <= most:
            return radius
        return min(radius, _least_radius(maps[:, most:], distances[most:], bound))

    def _slope_bounds(self, s: Structure) -> FloatArray | None:
        """Return bounds of the derivatives of leaf sums by single targets, (L,); None: unknown.

        Where every tree sees all rows, and what the trees before leave over, no tree makes
        residuals larger: ``I - eta A P A' w`` has a norm of at most one in the weighted mean
        square, as its eigenvalues are between ``1 - eta`` and 1. A target that moves by one moves
        residuals by at most ``sqrt(w_j)`` in that norm, and a leaf's sum by at most ``sqrt(w_j
        W_l)``.
        """
        sees_all_rows = len(s.sample_counts) == 1 and s.sample_counts[0] == 1.0
        if s.coefficients is not None or not sees_all_rows or not (s.learning_rates <= 2.0).all():
            return None
        if s.linear_leaves.mixing is not None or self.newton.couples_leaves:
            return None
        if s.row_weights is None:
            heaviest = 1.0
        else:
            heaviest = float(s.row_weights.max(initial=0.0))
        return np.asarray(np.sqrt(heaviest * np.maximum(s.leaf_weights, heaviest)))


def _least_radius(maps: FloatArray, distances: FloatArray, bound: FloatArray | None) -> float:
    """Return a lower bound of the radius of the first of some changes, and of all later ones."""
    if bound is None:
        return 0.0
    return float(distances[0] / bound[maps[:, 0].argmax()])


def count_leaves_beyond(s: Structure, sums: FloatArray, values: FloatArray) -> int:
    """Return how many leaves of these sums differ between the rule and the active set.

    ``sums`` and ``values``: (L, 1).
    """
    by_rule = s.newton_rule.leaf_values(sums[:, 0], s.leaf_weights)
    apart = np.abs(by_rule - values[:, 0])
    return int((apart > BEYOND * np.abs(values[:, 0]).max(initial=0.0)).sum())


def remaining_weights(s: Structure, rows: IntArray) -> FloatArray:
    """Return the row weights (N,) without these rows, with class weights counted again.

    Refuse to leave no row.
    """
    if s.row_weights is None:
        weights = np.ones(s.n_rows)
    else:
        weights = s.row_weights.copy()
    counts = rule_of(s).class_counts
    if counts is not None:
        weights = counts.weights(present_without(s, rows))
    weights[rows] = 0.0
    if not weights.any():
        raise NothingLeft(
            f"Without {len(rows)} rows no row with a weight is left; ask for a smaller set."
        )
    return weights


def present_without(s: Structure, rows: IntArray) -> BoolArray:
    """Return which rows remain, (N,), after these are deleted too; rows without weight remain."""
    if s.present is None:
        present = np.ones(s.n_rows, dtype=np.bool_)
    else:
        present = s.present.copy()
    present[rows] = False
    return present


def l2_factor(s: Structure, present: BoolArray) -> float:
    """Return the factor of l2 if only these rows (N,) remain.

    It is the ratio of their mean weight to that of all rows.
    """
    weights = s.l2_weights
    if weights is None:
        return 1.0
    if s.present is None:
        before = weights
    else:
        before = weights[s.present]
    return float(weights[present].mean() / before.mean())


def lighter(structure: Structure, rows: IntArray, backend: Backend) -> Structure:
    """Return the structure without these rows.

    Leaf weights and the rule are those of the remaining rows; leaf values are unchanged.
    """
    s = structure
    weights = remaining_weights(s, rows)
    present = present_without(s, rows)
    weighted = replace(s, row_weights=weights, present=present)
    leaf_weights = leaf_sums(weighted, backend.rows_of(weighted), np.ones((s.n_rows, 1)))[:, 0]
    scaled = s.newton_rule.scaled(l2_factor(s, present))
    newton = remaining_rule(s, scaled, rows, s.leaf_weights, leaf_weights)
    return with_leaf_weights(weighted, leaf_weights, newton)


def remaining_rule(
    s: Structure, rule: NewtonRule, rows: IntArray, before: FloatArray, left: FloatArray
) -> NewtonRule:
    """Return the rule without these rows.

    `NewtonRule.for_remaining` explains ``before`` and ``left``.
    """
    counts = None
    if rule.smooths_nodes:
        if s.present is None:
            present = np.arange(s.n_rows)
        else:
            present = np.flatnonzero(s.present)
        all_counts = _counts(s, present)
        counts = (all_counts, all_counts - _counts(s, rows))
    return rule.for_remaining(before, left, counts)


def _counts(s: Structure, rows: IntArray) -> FloatArray:
    """Return how many of these rows were sampled for a tree and are in its leaf, (L,)."""
    level, leaf = np.divmod(s.cells[:, rows].astype(np.int64), s.n_leaves[:, None])
    drawn = (s.levels_sampled[level] > 0).astype(np.float64)
    return np.bincount((s.starts[:-1, None] + leaf).ravel(), drawn.ravel(), s.total_leaves).astype(
        np.float64
    )


def with_leaf_weights(s: Structure, leaf_weights: FloatArray, newton: NewtonRule) -> Structure:
    """Return the structure with other leaf weights, (L,), and the rule of the rows that remain.

    It has the leaves of averaged trees where no weight remains.
    """
    rule = replace(rule_of(s), newton=newton)
    if s.averages:
        rule = with_emptied_leaves(rule, (s.leaf_weights > 0) & (leaf_weights == 0))
    return replace(s, leaf_weights=leaf_weights, leaf_rule=rule)


def with_emptied_leaves(rule: FitRule, emptied: BoolArray) -> FitRule:
    """Return the rule of averaged trees after these leaves, (L,), have lost their rows too."""
    if rule.emptied is not None:
        emptied = rule.emptied | emptied
    if emptied.any():
        return replace(rule, emptied=emptied)
    return replace(rule, emptied=None)


def rescaled(structure: Structure) -> Structure:
    """Return the structure with leaf values by its rule and its leaf weights.

    The rule has no active set. A constant leaf stays constant. A leaf without rows has neither
    scale nor shift. The rule may have lost its active set: once each monotone split has a child
    without rows, none bounds another value. So the matrices of the active set that the structure
    had are dropped.
    """
    s = structure
    before = s.linear_leaves
    shift = before.shift
    scale = s.newton_rule.scale(s.leaf_weights)
    if shift is not None:
        moving = before.scale > 0
        scale = np.where(moving & (s.leaf_weights > 0), scale, 0.0)
        ratio = np.divide(scale, before.scale, out=np.zeros_like(scale), where=moving)
        shift = np.where(moving, shift * ratio, shift)
    return replace(s, linear_leaves=LinearLeaves(scale, shift))


def with_active_set(structure: Structure, sums: FloatArray) -> Structure:
    """Return the structure with the active set of leaf sums (L, K).

    The active set follows from the structure's rule and leaf weights.
    """
    rule = structure.newton_rule
    return replace(structure, linear_leaves=rule.linearise(sums[:, 0], structure.leaf_weights))


def fit_by_rule(structure: Structure, targets: FloatArray, backend: Backend) -> FittedValues:
    """Return the fit to targets (N, K) by the rule, on the splits and leaf weights of a structure.

    It costs O(T N K).
    """
    s = structure
    if s.offsets is None:
        started = targets
    else:
        started = targets - s.offsets
    if s.initial is None:
        base = np.average(targets, axis=0, weights=s.row_weights)
    else:
        base = s.initial
    _, values, sums = Passes(s, backend.rows_of(s), once=True).forward(
        started, base, lambda t, tree_sums: like(by_rule(s, t, host(tree_sums)), tree_sums)
    )
    return FittedValues(s, targets, base, host(values), host(sums))


def sums_by_rule(
    structure: Structure, together: FloatArray, started: FloatArray, base: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the leaf values and sums of `fit_by_rule`, (L, K) each, from sums over distant rows.

    ``together`` (L, L) has co-occurrences of leaves, and ``started`` (L, K) leaf sums of targets
    less offsets.
    """
    s = structure
    values = np.empty_like(started)
    sums = started - np.outer(structure.initial_in_sums, base)
    for t in range(s.n_trees):
        places = slice(s.starts[t], s.starts[t + 1])
        later = slice(s.starts[t + 1], None)
        values[places] = by_rule(s, t, sums[places])
        if s.coefficients is None:
            of_later = s.learning_rates[[t]]
        else:
            of_later = np.repeat(s.coefficients.omega[t + 1 : -1, t], s.n_leaves[t + 1 :])
        sums[later] -= of_later[:, None] * (together[places, later].T @ values[places])
    return values, sums


def by_rule(s: Structure, t: int, sums: FloatArray) -> FloatArray:
    """Return the leaf values of tree t from their sums before the learning rate, (L_t, K).

    Outputs that share a tree share its active set.
    """
    places = slice(int(s.starts[t]), int(s.starts[t + 1]))
    rule = s.newton_rule.tree(t, places)
    weights = s.leaf_weights[places]
    if sums.shape[1] == 1:
        return rule.leaf_values(sums[:, 0], weights)[:, None]
    return rule.linearise(sums[:, 0], weights).values(s.n_leaves[t : t + 1], sums)

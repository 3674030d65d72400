"""Rows left: fits without some rows on the same splits, every leaf value computed again by the rule of its library.

Deleted rows are gone: they have no weight, and nothing that a library derives from the number of rows counts them. A row that
the fit itself gave no weight stays: an l2 in proportion to the mean weight of the rows follows the rows that remain.

While the active set is fixed, a leaf value is an affine map of the sums of its tree (`axil.structure.newton`). Deleted rows may
change the active set: a sum falls within L1, a clipped value comes free, a bound moves. So the fit is walked through with the
rule itself, tree by tree, and the active set is that of the sums of the walk.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.kernels import Backend
from axil.machine.arrays import host, like
from axil.structure import Cut, NewtonRule, Structure
from axil.weights import ranks_left
from axil.weights.inherited import inheriting
from axil.weights.passes import Passes, leaf_sums
from axil.weights.residuals import FittedValues


class NothingLeft(InputError):
    """No row of any weight is left of those that a model was fitted to."""


def known_regularisation(s: Structure, question: str = "removal") -> NewtonRule:
    """How leaf values follow from row weights; the question is refused where that is not known."""
    if s.regularisation is None or (s.is_ranked and s.ranks is None):
        raise UnsupportedQuestionError(
            question,
            "how leaf values follow from row weights was not recorded",
            "Make the explainer again.",
        )
    return s.regularisation


def bends(s: Structure) -> bool:
    """Whether leaf values follow from row weights by a rule that has an active set, or couples leaves."""
    rule = s.regularisation
    if rule is None:
        return s.is_ranked
    return s.is_ranked or s.cut is not None or rule.has_active_set or rule.couples_leaves


def mixes(s: Structure) -> bool:
    """Whether a leaf's value may depend on the sums of other leaves, without some rows if not with all."""
    return s.regularisation is not None and s.regularisation.couples_leaves


def estimates_rows(s: Structure) -> bool:
    """Return whether leaves are smoothed by numbers of rows that follow from weights, as rows or draws weigh differently."""
    rule = s.regularisation
    if rule is None or not rule.smooths_nodes:
        return False
    drawn, weights = s.whole_draws[s.whole_draws > 0], s.row_weights
    return bool(
        (drawn != drawn[:1]).any() or (weights is not None and (weights != weights[:1]).any())
    )


def without(
    structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
) -> Structure:
    """The structure of a fit to these targets in which the rows have no weight and the splits are held fixed. Cost O(T N)."""
    if structure.is_ranked:
        return ranks_left.without(ranked_less(structure, rows), targets)
    if structure.cut is not None:
        return _cut_without(structure, structure.cut, rows, targets).structure
    left = inheriting(lighter(structure, rows, backend))
    return (
        with_pattern(left, fit_by_rule(left, targets, backend).sums)
        if bends(left)
        else rescaled(left)
    )


def fit_without(
    structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
) -> FittedValues:
    """The fit to these targets in which the rows have no weight, where `bends`: `without` and its fit, with no pattern made."""
    if structure.is_ranked:
        return ranks_left.fit(ranked_less(structure, rows), targets)
    if structure.cut is not None:
        return _cut_without(structure, structure.cut, rows, targets)
    return fit_by_rule(inheriting(lighter(structure, rows, backend)), targets, backend)


def ranked_less(structure: Structure, rows: IntArray) -> Structure:
    """The structure of percentiles, whose ranks are to be found without these rows."""
    known_regularisation(structure, "without")
    assert structure.ranks is not None
    ranks = structure.ranks.less(rows, structure.n_rows)
    if ranks.rows is not None and not len(ranks.rows):
        raise NothingLeft(
            f"Without {len(rows)} rows none of any weight is left; ask for a smaller set."
        )
    return replace(structure, ranks=ranks)


def _cut_without(
    structure: Structure, cut: Cut, rows: IntArray, targets: FloatArray
) -> FittedValues:
    """`fit_without` where residuals are cut off: which of them are is found out tree by tree, in the structure of the fit."""
    s, rule = structure, structure.regularisation
    assert rule is not None
    weights, present = _left_weights(s, rows), present_without(s, rows)
    level, leaf = np.divmod(s.cells, s.n_leaves[:, None].astype(s.cells.dtype))
    half = len(s.draws) // 2
    drawn = [weights * s.whole_draws[own] for own in level]
    left = np.concatenate([np.bincount(own, w, n) for own, w, n in zip(leaf, drawn, s.n_leaves)])
    before = s.uncut().leaf_weights
    rule = _rule_left(s, rule.scaled(l2_factor(s, present)), rows, before, left)
    if s.averages:
        emptied = _emptied_now(s, (before > 0) & (left == 0))
        s = replace(s, emptied=emptied, regularisation=rule)
        rule = known_regularisation(inheriting(replace(s, leaf_weights=left)))
    base = np.average(targets, axis=0, weights=weights) if s.base is None else s.base
    whole, sums, constants, free = (np.zeros(s.total_leaves) for _ in range(4))
    cells, fit = (
        np.empty_like(s.cells),
        FittedValues(s, targets, base, *np.zeros((2, s.total_leaves, 1))),
    )
    for t, residual in zip(range(s.n_trees), fit.residuals(leaf, fit.started())):
        own, n, r = slice(s.starts[t], s.starts[t + 1]), int(s.n_leaves[t]), residual[:, 0]
        off = cut.beyond(r)
        added = drawn[t] * cut.kept(r)
        sums[own], constants[own] = (
            np.bincount(leaf[t], added, n),
            np.bincount(leaf[t][off], added[off], n),
        )
        free[own] = np.bincount(leaf[t][~off], drawn[t][~off], n)
        whole[own] = np.bincount(leaf[t], drawn[t], n) if cut.weighs else free[own]
        fit.values[own, 0] = rule.tree(t, own).leaf_values(sums[own], whole[own])
        cells[t] = leaf[t] + (level[t] % half + half * off).astype(cells.dtype) * cells.dtype.type(
            n
        )
    found = rule.linearise(sums, whole)
    shift = replace(found, shift=None).values(s.n_leaves, constants[:, None])[:, 0]
    shift = shift if found.shift is None else found.shift + shift
    made = replace(s, leaf_scale=found.scale, mixing=found.mixing, shift=shift, regularisation=rule)
    made = replace(made, cells=cells, row_weights=weights, present=present, leaf_weights=free)
    return replace(fit, structure=made, sums=(sums - constants)[:, None])


def _left_weights(s: Structure, rows: IntArray) -> FloatArray:
    """Return the row weights (N,) without these rows, those of classes counted again; refuses to leave none."""
    weights = np.ones(s.n_rows) if s.row_weights is None else s.row_weights.copy()
    if s.class_counts is not None:
        weights = s.class_counts.weights(present_without(s, rows))
    weights[rows] = 0.0
    if not weights.any():
        raise NothingLeft(
            f"Without {len(rows)} rows none of any weight is left; ask for a smaller set."
        )
    return weights


def present_without(s: Structure, rows: IntArray) -> BoolArray:
    """Return which rows remain, (N,), once these are deleted too; rows without weight remain."""
    present = np.ones(s.n_rows, dtype=np.bool_) if s.present is None else s.present.copy()
    present[rows] = False
    return present


def l2_factor(s: Structure, present: BoolArray) -> float:
    """Return what l2 is multiplied by where only these rows, (N,), remain: the ratio of their mean weight to that of all."""
    weights = s.l2_weights
    if weights is None:
        return 1.0
    before = weights if s.present is None else weights[s.present]
    return float(weights[present].mean() / before.mean())


def lighter(structure: Structure, rows: IntArray, backend: Backend) -> Structure:
    """Return the structure without these rows: leaf weights and the rule are those of the rows left, leaf values as before."""
    s, rule = structure, known_regularisation(structure, "without")
    weights, present = _left_weights(s, rows), present_without(s, rows)
    weighted = replace(s, row_weights=weights, present=present)
    leaf_weights = leaf_sums(weighted, backend.rows_of(weighted), np.ones((s.n_rows, 1)))[:, 0]
    rule = _rule_left(s, rule.scaled(l2_factor(s, present)), rows, s.leaf_weights, leaf_weights)
    return replace(with_leaf_weights(weighted, leaf_weights), regularisation=rule)


def _rule_left(
    s: Structure, rule: NewtonRule, rows: IntArray, before: FloatArray, left: FloatArray
) -> NewtonRule:
    """Return the rule without these rows; ``before`` and ``left``: see `NewtonRule.for_remaining`."""
    counts = None
    if rule.smooths_nodes:
        present = np.arange(s.n_rows) if s.present is None else np.flatnonzero(s.present)
        all_counts = _counts(s, present)
        counts = (all_counts, all_counts - _counts(s, rows))
    return rule.for_remaining(before, left, counts)


def _counts(s: Structure, rows: IntArray) -> FloatArray:
    """(L,): how many of these rows were drawn for the tree of each leaf and are in the leaf."""
    level, leaf = np.divmod(s.cells[:, rows].astype(np.int64), s.n_leaves[:, None])
    drawn = (s.whole_draws[level] > 0).astype(np.float64)
    return np.bincount((s.starts[:-1, None] + leaf).ravel(), drawn.ravel(), s.total_leaves).astype(
        np.float64
    )


def with_leaf_weights(structure: Structure, leaf_weights: FloatArray) -> Structure:
    """The structure with other leaf weights, (L,), which knows the leaves of averaged trees where no weight is left."""
    emptied = structure.emptied
    if structure.averages:
        emptied = _emptied_now(structure, (structure.leaf_weights > 0) & (leaf_weights == 0))
    return replace(structure, leaf_weights=leaf_weights, emptied=emptied)


def _emptied_now(structure: Structure, lost: BoolArray) -> BoolArray | None:
    """Return which leaves of averaged trees have no rows, once these have ``lost`` theirs; None where there is none."""
    emptied = lost if structure.emptied is None else structure.emptied | lost
    return emptied if emptied.any() else None


def rescaled(structure: Structure) -> Structure:
    """The structure with leaf values by its rule, which has no pattern, and its leaf weights; a constant leaf stays one.

    A leaf that no row is left in has neither scale nor shift.
    """
    s, shift = structure, structure.shift
    scale = known_regularisation(s).scale(s.leaf_weights)
    if shift is not None:
        moving = s.leaf_scale > 0
        scale = np.where(moving & (s.leaf_weights > 0), scale, 0.0)
        shift = np.where(
            moving,
            shift * np.divide(scale, s.leaf_scale, out=np.zeros_like(scale), where=moving),
            shift,
        )
    return replace(s, leaf_scale=scale, shift=shift)


def with_pattern(structure: Structure, sums: FloatArray) -> Structure:
    """The structure with the pattern that leaf sums (L, K) are in by its rule and its leaf weights."""
    found = known_regularisation(structure).linearise(sums[:, 0], structure.leaf_weights)
    return replace(structure, leaf_scale=found.scale, shift=found.shift, mixing=found.mixing)


def fit_by_rule(structure: Structure, targets: FloatArray, backend: Backend) -> FittedValues:
    """The fit to targets (N, K) on the splits and leaf weights of a structure, with leaf values by the rule. Cost O(T N K)."""
    s = structure
    started = targets if s.offsets is None else targets - s.offsets
    base = np.average(targets, axis=0, weights=s.row_weights) if s.base is None else s.base
    _, values, sums = Passes(s, backend.rows_of(s), once=True).forward(
        started, base, lambda t, own: like(by_rule(s, t, host(own)), own)
    )
    return FittedValues(s, targets, base, host(values), host(sums))


def sums_by_rule(
    structure: Structure, together: FloatArray, started: FloatArray, base: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(L, K) twice: the leaf values and sums of `fit_by_rule` from sums over rows that are elsewhere.

    ``together`` (L, L): co-occurrences of leaves. ``started`` (L, K): leaf sums of targets less offsets.
    """
    s, values, sums = (
        structure,
        np.empty_like(started),
        started - np.outer(structure.base_share, base),
    )
    for t in range(s.n_trees):
        own, later = slice(s.starts[t], s.starts[t + 1]), slice(s.starts[t + 1], None)
        values[own] = by_rule(s, t, sums[own])
        of_later = (
            s.rates[[t]]
            if s.coefficients is None
            else np.repeat(s.coefficients.omega[t + 1 : -1, t], s.n_leaves[t + 1 :])
        )
        sums[later] -= of_later[:, None] * (together[own, later].T @ values[own])
    return values, sums


def by_rule(s: Structure, t: int, sums: FloatArray) -> FloatArray:
    """(L_t, K): the values of tree t's leaves from their sums, before the rate. Outputs that share a tree share its pattern."""
    own = slice(int(s.starts[t]), int(s.starts[t + 1]))
    rule, weights = known_regularisation(s).tree(t, own), s.leaf_weights[own]
    if sums.shape[1] == 1:
        return rule.leaf_values(sums[:, 0], weights)[:, None]
    return rule.linearise(sums[:, 0], weights).values(s.n_leaves[t : t + 1], sums)

"""Pattern changes: the training rows whose deletion changes the pattern of some leaf, by the formula of leaf space."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray
from axil.kernels import Backend
from axil.machine.arrays import host
from axil.structure import LinearLeaves, NewtonRule, Structure
from axil.weights.leaf_space import LeafSpace
from axil.weights.levels import base_without
from axil.weights.parts import Parts
from axil.weights.residuals import FittedValues
from axil.weights.rows_left import BEYOND, known_regularisation

TINY = 1e-150  # a scale of leaves whose values are constant


def sum_responses(s: Structure, together: Any, backend: Backend) -> FloatArray:
    """(L, L): the responses of leaf sums to leaf sums, from co-occurrences over all rows, which are overwritten."""
    free = np.where(
        s.linear_leaves.scale > 0, s.linear_leaves.scale, TINY
    )  # of a constant leaf the sum counts, and moves nothing
    space = LeafSpace.of(
        replace(s, linear_leaves=LinearLeaves(free, mixing=s.linear_leaves.mixing)),
        together,
        backend,
    )
    return np.asarray(host(space.responses) / free[:, None])


def changing_rows(
    fitted: FittedValues, added: Any, rows: slice, responses: FloatArray
) -> BoolArray:
    """(rows,): whether the deletion of each of these rows changes the pattern of a leaf.

    ``added`` (K, T, rows) is what the deletions add to the sums of the rows' leaves, ``responses`` those of `sum_responses`. Leaf
    sums and values without the row follow for all leaves, and the rule must give the same values.
    """
    f, s, n = fitted, fitted.structure, rows.stop - rows.start
    rule, shift = (
        known_regularisation(s),
        np.zeros(s.total_leaves) if s.linear_leaves.shift is None else s.linear_leaves.shift,
    )
    parts = Parts.of_rows(s, rows)
    column = np.broadcast_to(np.arange(n), parts.leaf.shape)
    placed = csr_array(
        (host(added)[0].ravel(), (column.ravel(), parts.leaf.ravel())), shape=(n, s.total_leaves)
    )
    moved = base_without(f, rows)[0] - f.base[0]
    sums = f.sums[:, 0] + placed @ responses.T - np.outer(moved, responses @ s.base_share)
    values, weights = s.linear_leaves.scale * sums + shift, np.tile(s.leaf_weights, (n, 1))
    left, scale, after = parts.left(s), parts.of(s.linear_leaves.scale), parts.left_scale(s)
    ratio = np.divide(after, scale, out=np.zeros_like(scale), where=scale > 0)
    own = np.divide(
        values[column, parts.leaf] - parts.of(shift) * ratio,
        after,
        out=np.zeros_like(scale),
        where=after > 0,
    )
    sums[column, parts.leaf] = np.where(
        scale > 0, own, np.where(left > 0, sums[column, parts.leaf], 0.0)
    )
    weights[column, parts.leaf] = left
    if rule.couples_leaves:  # a bound that acts on no leaf may act on one without a row
        values_by_rule = [rule.leaf_values(*of_row) for of_row in zip(sums, weights)]
    else:
        plain = NewtonRule(rule.l2, rule.steps, rule.by_weight, rule.l1, rule.max_step)
        values_by_rule = [plain.leaf_values(sums, weights)]
    ruled = np.vstack(values_by_rule)
    apart = np.abs(ruled - values) > BEYOND * np.abs(values).max(axis=1, initial=0.0)[:, None]
    return np.asarray(apart.any(axis=1) & ~np.isnan(moved))

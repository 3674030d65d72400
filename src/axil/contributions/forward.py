"""Forward mode through a boosting fit with its tree structure fixed.

It computes J v: how all training rows' scores move with a direction v.

With dF the movement of the scores, for a stage with leaf values v of G and H:

    dg = dg/dF dF + dg/dy dy,   dh likewise
    dv[l] = v_G sum of w dg + v_H sum of w dh over the rows in l,   dF += coefficient dv[leaf]

Softmax scores of one row are coupled: there dg/dF is by the output's own mean, which moves by ``p
(dF - p'dF)``. Where the values of a leaf for all classes solve one system ``(H + l2) v = -G``, ``dv
= -(H + l2)^-1 (dG + dH v)``.

The transpose is `reverse.Combined`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from axil.arrays import FloatArray
from axil.machine.arrays import AnyPlaceArray
from axil.replay.replayed_stages import ReplayedStages


def moved(walked: ReplayedStages, direction: FloatArray) -> FloatArray:
    """Return the derivatives of training scores along a direction, (N, K); O(T N)."""
    w = walked
    dy = direction
    counted = w.weights * w.start_factors
    base = w.start_slopes() @ ((counted @ dy) / counted.sum())
    dF = np.tile(w.fit.schedule.shares_of_initial[0] * base, (len(dy), 1))
    score = w.start + np.zeros_like(w.targets)
    tangents: dict[int, FloatArray] = {}
    for round_ in w.rounds:
        if w.loss.joint:
            tangents |= _joint_tangents(w, round_.stages, score, dF, dy)
        else:
            tangents |= _tangents(w, round_.stages, score, dF, dy)
        for stage, coefficient in round_.changes:
            leaf = w.leaves[w.stage_tree[stage]]
            dF[:, w.stage_output[stage]] += coefficient * tangents[stage][leaf]
        dF += round_.base * base
        for t, k, gain in w.gains(round_):
            score[:, k] += gain[w.leaves[t]]
    return dF


def _tangents(
    w: ReplayedStages, stages: Sequence[int], score: FloatArray, dF: FloatArray, dy: FloatArray
) -> dict[int, FloatArray]:
    """Return the derivatives of leaf values of each stage along the direction, (L_t,)."""
    slopes = w.loss.slopes(w.targets, score)
    moves = dF
    if w.loss.coupled:
        p = w.loss.mean(score)
        moves = p * (dF - (p * dF).sum(axis=1, keepdims=True))
    tangents = {}
    for stage in stages:
        t = int(w.stage_tree[stage])
        k = int(w.stage_output[stage])
        step = w.steps[stage]
        dg = _column(slopes.g_by_score, k) * moves[:, k] + _column(slopes.g_by_target, k) * dy[:, k]
        dh = _column(slopes.h_by_score, k) * moves[:, k] + _column(slopes.h_by_target, k) * dy[:, k]
        if w.loss.couples_rows:
            dg = w.loss.couple(dg, w.weights)
        rows = w.weights * w.counted(t)
        n_leaves = len(step.value)
        dG, dH = (np.bincount(w.leaves[t], rows * each, n_leaves) for each in (dg, dh))
        tangents[stage] = step.moved(dG, dH)
    return tangents


def _joint_tangents(
    w: ReplayedStages, stages: Sequence[int], score: FloatArray, dF: FloatArray, dy: FloatArray
) -> dict[int, FloatArray]:
    """Return the tangents of leaf values that are solved for all classes together."""
    t = int(w.stage_tree[stages[0]])
    inverse = w.steps[stages[0]].inverse
    assert inverse is not None
    leaf = w.leaves[t]
    rows = w.weights * w.counted(t)
    solved_values = [solved for stage in stages if (solved := w.steps[stage].solved) is not None]
    values = np.stack(solved_values, axis=1)[leaf]
    p = w.loss.mean(score)
    dp = p * (dF - (p * dF).sum(axis=1, keepdims=True))
    inner = (p * values).sum(axis=1, keepdims=True)
    moved_inner = (dp * values).sum(axis=1, keepdims=True)
    by_row = dp - dy + dp * (values - inner) - p * moved_inner  # dg + dH v
    sums = np.stack([np.bincount(leaf, rows * column, len(inverse)) for column in by_row.T], axis=1)
    solved = -np.einsum("lkm,lm->lk", inverse, sums)
    return {stage: solved[:, k] for k, stage in enumerate(stages)}


def _column(slope: AnyPlaceArray, k: int) -> AnyPlaceArray:
    if np.ndim(slope) == 0:
        return slope
    return slope[:, k]

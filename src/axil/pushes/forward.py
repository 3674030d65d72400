"""Forward mode through a boosting fit with its structure held fixed: J v, how all training rows' scores move with a direction v.

With dF the movement of the scores, for a stage with leaf values v of G and H:

    dg = dg/dF dF + dg/dy dy,   dh likewise
    dv[l] = v_G sum of w dg + v_H sum of w dh over the rows in l,   dF += coefficient dv[leaf]

For one output; the transpose is `reverse.Combined`.
"""

from __future__ import annotations

import numpy as np

from axil.pushes.stages import WalkedStages
from axil.types import Array


def moved(walked: WalkedStages, direction: Array) -> Array:
    """(N,): how the scores of the training rows move as their targets do by ``direction`` (N,); O(T N)."""
    w, dy = walked, direction
    counted = w.weights * w.start_factors
    base = float(w.start_slopes()[0, 0]) * float(counted @ dy) / float(counted.sum())
    dF = np.full(len(dy), w.smooth.base_shares[0] * base)
    score = w.start + np.zeros_like(w.targets)
    tangents: dict[int, Array] = {}
    for one in w.rounds:
        slopes = w.loss.slopes(w.targets, score)
        dg, dh = (
            _column(by_score) * dF + _column(by_target) * dy
            for by_score, by_target in (
                (slopes.g_by_score, slopes.g_by_target),
                (slopes.h_by_score, slopes.h_by_target),
            )
        )
        for stage in one.stages:
            t, step = int(w.stage_tree[stage]), w.steps[stage]
            rows, n = w.weights * w.counted(t), len(step.value)
            dG, dH = (np.bincount(w.leaves[t], rows * each, n) for each in (dg, dh))
            tangents[stage] = step.moved(dG, dH)
        for stage, coefficient in one.changes:
            dF = dF + coefficient * tangents[stage][w.leaves[w.stage_tree[stage]]]
        dF = dF + one.base * base
        for t, _, gain in w.gains(one):
            score[:, 0] += gain[w.leaves[t]]
    return dF


def _column(slope: Array) -> Array:
    return slope if np.ndim(slope) == 0 else slope[:, 0]

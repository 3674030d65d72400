"""The fit again with other targets: splits, rates, draws and halved steps held fixed, every leaf value computed again.

Nothing is linear here: gradients follow the scores, scores the leaf values of the trees before. The walk runs freely, so that the
change it makes is that of the fit in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.adapters.losses import Loss
from axil.jacobian.stages import Round, Walked
from axil.jacobian.steps import Step, joint_steps, leaf_step
from axil.machine.progress import track
from axil.types import Array, Leaves


@dataclass(frozen=True)
class Refit:
    """A fit at a fixed structure: where scores start, and what each leaf adds to them."""

    walked: Walked
    base: Array  #: (K,)
    values: Array  #: (L, 1), or (L, K) where trees are shared

    def scores(self, queries: Leaves) -> Array:
        """(n, K): of rows in these leaves, (n, T)."""
        w = self.walked
        made = self.base + np.zeros((len(queries), w.targets.shape[1]))
        for t in range(len(w.leaves)):
            own = slice(None) if w.smooth.shared else slice(int(w.smooth.outputs[t]), int(w.smooth.outputs[t]) + 1)
            made[:, own] += self.values[w.starts[t] + queries[:, t].astype(np.intp)]
        return made


def refit(walked: Walked, targets: Array, loss: Loss, factors: Array | None) -> Refit:
    """The fit to other targets (N, K), whose loss and class weights may be others too; O(T N)."""
    w, smooth = walked, walked.smooth
    base = smooth.trees.base_value
    if smooth.trees.base is None:
        counted = w.weights * (factors if loss.newton_start and factors is not None else 1.0)
        base = loss.start(np.average(targets, axis=0, weights=counted))
    shares = smooth.base_shares
    score = w.start + shares[0] * (base - smooth.trees.base_value) + np.zeros_like(targets)
    weights = w.weights if factors is None else w.weights * factors
    made: dict[int, Array] = {}
    values = np.zeros_like(smooth.trees.values)
    for one in track(w.rounds, "refit"):
        for stage, step in zip(one.stages, _steps(w, one, targets, score, loss, weights)):
            made[stage] = step.scaled(float(w.scales[stage])).value
        for stage, coefficient in one.changes:
            t, k = int(w.stage_tree[stage]), int(w.stage_output[stage])
            gain = coefficient * made[stage]
            score[:, k] += gain[w.leaves[t]]
            values[w.starts[t] : w.starts[t + 1], k if smooth.shared else 0] += gain
        score += one.base * base
    return Refit(walked, shares[-1] * base, values)


def _steps(w: Walked, one: Round, targets: Array, score: Array, loss: Loss, weights: Array) -> list[Step]:
    """The steps of a round's stages from these scores."""
    slopes = loss.slopes(targets, score)
    trees = w.smooth.trees
    if loss.joint:
        t = int(w.stage_tree[one.stages[0]])
        l2 = trees.l2[w.starts[t] : w.starts[t + 1]]
        return joint_steps(slopes.g, loss.mean(score), _counted(w, t, weights), w.leaves[t], l2)
    found = []
    for stage in one.stages:
        t, k = int(w.stage_tree[stage]), int(w.stage_output[stage])
        n, own = int(trees.n_leaves[t]), _counted(w, t, weights)
        g, h = (np.broadcast_to(each, targets.shape)[:, k] for each in (slopes.g, slopes.h))
        G, H = (np.asarray(np.bincount(w.leaves[t], own * each, n), dtype=np.float64) for each in (g, h))
        found.append(leaf_step(G, H, w.l2(t, k), w.smooth.l1, w.smooth.most))
    return found


def _counted(w: Walked, tree: int, weights: Array) -> Array:
    return weights if w.drawn is None else weights * w.drawn[tree]

"""Reverse mode through a boosting fit with its structure held fixed: derivatives by all targets or all row weights at once.

P holds how each query's output moves with the scores of the training rows; the rounds are run backwards. For a stage with leaf
values v of G and H, and a query x whose output moves by ``seed`` with its own score:

    a[l]  = sum of coefficients * (seed 1[l = leaf(x)] + sum over rows j in l of P_j)        how it moves with v[l]
    by targets  += a w (v_G dg/dy + v_H dh/dy)
    by weights  += a   (v_G g + v_H h)
    P           += a w (v_G dg/dF + v_H dh/dF)

with v_G = dv/dG and v_H = dv/dH of the row's own leaf. Softmax scores of one row are coupled: there dg/dF is by the output's own
probability p and P_m gains ``p_m (q_m - sum_k p_k q_k)``. What is left in P then moves with the base.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.jacobian.stages import Round, Walked
from axil.kernels.cpu import Cpu
from axil.machine.progress import track
from axil.types import Array, Leaves

Numbers = NDArray[np.int64]

NONE, ALL = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)  # of one tree


class Reverse:
    """Reverse mode for n queries and O outputs; the columns of every table are outputs times queries."""

    def __init__(self, walked: Walked, queries: Leaves, seeds: Array, n_threads: int):
        """``queries`` (n, T): leaves; ``seeds`` (n, O, K): how output o moves with the query's own score m."""
        self.walked, self.queries, self.backend = walked, queries.astype(np.intp), Cpu(n_threads)
        n, n_outputs, n_scores = seeds.shape
        self.n, self.n_outputs, self.n_scores, self.n_rows = n, n_outputs, n_scores, len(walked.targets)
        self.seeds = np.ascontiguousarray(seeds.transpose(2, 1, 0).reshape(n_scores, n_outputs * n))
        self.P = [np.zeros((self.n_rows, n_outputs * n)) for _ in range(n_scores)]
        self.score = walked.score.copy()
        self.a: dict[int, Array] = {}  # by stage: how the outputs move with its leaf values, (L_t, O * n)

    def by_targets(self) -> Array:
        """(O, n, N): output o by column o of the targets, in O(T N) a query and output."""
        w = self.walked
        out = [np.zeros((self.n_rows, self.n)) for _ in range(self.n_outputs)]

        def take(stage: int, slopes: Any, counted: Array, by_g: Array, by_h: Array) -> None:
            k = int(w.stage_output[stage])
            rows = w.weights * counted * (by_g * _of(slopes.g_by_target, k) + by_h * _of(slopes.h_by_target, k))
            own = np.ascontiguousarray(self.a[stage][:, k * self.n : (k + 1) * self.n])
            self._apply(out[k], int(w.stage_tree[stage]), own, rows)

        start = self._run(take) @ w.start_slopes()  # (O * n, K): by the means
        counted = w.weights * w.start_factors
        share = counted / counted.sum()
        for k, part in enumerate(out):
            part += np.outer(share, start[k * self.n : (k + 1) * self.n, k])
        return np.stack([part.T for part in out])

    def by_weights(self) -> Array:
        """(O, n, N): output o by the row weights, in O(T N) a query and output for each score."""
        w = self.walked
        out, everyone = np.zeros((self.n_rows, self.n_outputs * self.n)), np.zeros(self.n_outputs * self.n)

        def take(stage: int, slopes: Any, counted: Array, by_g: Array, by_h: Array) -> None:
            k = int(w.stage_output[stage])
            rows = counted * (by_g * _of(slopes.g, k) + by_h * _of(slopes.h, k))
            self._apply(out, int(w.stage_tree[stage]), self.a[stage], rows)
            if w.smooth.l2_by_weight:
                everyone[:] += w.smooth.l2_by_weight * (w.steps[stage].by_l2 @ self.a[stage])

        start = self._run(take) @ w.start_slopes()
        factors = w.start_factors
        pull = factors[:, None] * (w.targets - w.means) / (w.weights @ factors)
        if w.smooth.trees.held_out is not None:
            pull[w.smooth.trees.held_out] = 0.0
            out[w.smooth.trees.held_out] = 0.0
        out += pull @ start.T + everyone
        return np.ascontiguousarray(out.T).reshape(self.n_outputs, self.n, self.n_rows)

    def _run(self, take: Any) -> Array:
        """Run the rounds backwards, giving every stage to ``take``; (O * n, K): by the scores that the fit starts from."""
        w = self.walked
        by_base = np.zeros_like(self.seeds.T)
        for one in track(w.rounds[::-1], "derivatives"):
            self._gather(one)
            if one.base:
                by_base += one.base * self._by_all_scores()
            for t, k, gain in w.gains(one):
                self.score[:, k] -= gain[w.leaves[t]]
            slopes = self._joint_slopes(one) if w.loss.joint else w.loss.slopes(w.targets, self.score)
            for stage in one.stages:
                t = int(w.stage_tree[stage])
                leaf, step = w.leaves[t], w.steps[stage]
                take(stage, slopes, w.counted(t), step.by_g[leaf], step.by_h[leaf])
            (self._pull_joint if w.loss.joint else self._pull)(one, slopes)
            for stage in one.stages:
                del self.a[stage]
        return np.asarray(by_base + w.smooth.base_shares[0] * self._by_all_scores())

    def _by_all_scores(self) -> Array:
        """(O * n, K): how the outputs move with all scores of an output together, those of training rows and queries."""
        return np.asarray(np.stack([part.sum(axis=0) for part in self.P], axis=1) + self.seeds.T)

    def _gather(self, one: Round) -> None:
        """Add to ``a`` what the scores after this round ask of the stages that changed them."""
        w = self.walked
        gathered: dict[tuple[int, int], Array] = {}  # steps of one tree have their sums in common
        for stage, coefficient in one.changes:
            t, k = int(w.stage_tree[stage]), int(w.stage_output[stage])
            if (t, k) not in gathered:
                sums = np.empty((int(w.smooth.trees.n_leaves[t]), self.n_outputs * self.n))
                self._sweep(t, self.P[k], NONE, sums, None, ALL)
                self._asked(t, k, sums)
                gathered[t, k] = sums
            part = coefficient * gathered[t, k]
            self.a[stage] = self.a[stage] + part if stage in self.a else part

    def _asked(self, t: int, k: int, sums: Array) -> None:
        """Add what the queries' own scores ask of their leaves in tree t."""
        sums[np.tile(self.queries[:, t], self.n_outputs), np.arange(self.n_outputs * self.n)] += self.seeds[k]

    def _pull(self, one: Round, slopes: Any) -> None:
        """Add to P what the stages of this round ask of the scores before it."""
        w = self.walked
        p = w.loss.mean(self.score) if w.loss.coupled else None
        mixed = None if p is None else np.zeros_like(self.P[0])
        for stage in one.stages:
            t, k = int(w.stage_tree[stage]), int(w.stage_output[stage])
            leaf, step = w.leaves[t], w.steps[stage]
            rows = step.by_g[leaf] * _of(slopes.g_by_score, k) + step.by_h[leaf] * _of(slopes.h_by_score, k)
            rows = rows * w.weights * w.counted(t)
            if p is not None and mixed is not None:
                rows = rows * p[:, k]
                self._apply(mixed, t, self.a[stage], rows)
            self._apply(self.P[k], t, self.a[stage], rows)
        if p is not None and mixed is not None:
            for k, part in enumerate(self.P):
                part -= p[:, k, None] * mixed

    def _joint_slopes(self, one: Round) -> Any:
        """Turn ``a`` into what it asks of the right sides of the leaves' systems; the slopes that go with that."""
        w = self.walked
        asked = np.stack([self.a[stage] for stage in one.stages], axis=1)  # (L_t, K, O * n)
        inverse = w.steps[one.stages[0]].inverse
        assert inverse is not None
        solved = inverse @ asked
        for k, stage in enumerate(one.stages):
            self.a[stage] = np.ascontiguousarray(solved[:, k])
        return w.loss.joint_slopes(w.targets, self.score, self._solved(one))  # type: ignore[attr-defined]

    def _solved(self, one: Round) -> Array:
        """(N, K): the values of the rows' leaves that this round's systems were solved for."""
        leaf = self.walked.leaves[self.walked.stage_tree[one.stages[0]]]
        values = [self.walked.steps[stage].solved for stage in one.stages]
        return np.stack([value[leaf] for value in values if value is not None], axis=1)

    def _pull_joint(self, one: Round, slopes: Any) -> None:
        """`_pull` where H is whole: with u for ``a`` now, v the leaf's values and p the probabilities,

        P_m -= w p_m (q_m - sum_k p_k q_k),   q_k = u_k (1 + v_k - v'p) - v_k u'p.
        """
        w = self.walked
        t = int(w.stage_tree[one.stages[0]])
        p, v, rows = w.loss.mean(self.score), self._solved(one), w.weights * w.counted(t)
        vp = (p * v).sum(axis=1)
        up, mixed = np.zeros_like(self.P[0]), np.zeros_like(self.P[0])
        for k, stage in enumerate(one.stages):
            self._apply(up, t, self.a[stage], p[:, k].copy())
            self._apply(mixed, t, self.a[stage], p[:, k] * (1 + v[:, k] - vp))
        mixed -= vp[:, None] * up
        for k, stage in enumerate(one.stages):
            own = rows * p[:, k]
            self._apply(self.P[k], t, self.a[stage], -own * (1 + v[:, k] - vp))
            self.P[k] += (own * v[:, k])[:, None] * up + own[:, None] * mixed

    def _apply(self, state: Array, tree: int, table: Array, rows: Array) -> None:
        """``state[j] += rows[j] * table[leaf of j]``."""
        self._sweep(tree, state, ALL, table, rows, NONE)

    def _sweep(
        self, tree: int, state: Array, apply: Numbers, table: Array, rows: Array | None, gather: Numbers
    ) -> None:
        leaves, starts = self.walked.leaves[tree : tree + 1], np.array([0, len(table)])
        self.backend.rows(leaves, starts).sweep(state, apply, table, rows, gather, table, None)


class Combined(Reverse):
    """Reverse mode for one number that moves with the scores of n queries: J'u, over all outputs and columns of the targets."""

    def __init__(self, walked: Walked, queries: Leaves, slopes: Array, n_threads: int):
        """``queries`` (n, T): leaves; ``slopes`` (n, K): how the number moves with each score."""
        super().__init__(walked, queries[:1], slopes.sum(axis=0)[None, None, :], n_threads)
        self.queries, self.slopes = queries.astype(np.intp), slopes

    def by_targets(self) -> Array:
        """(N, K): by every column of the targets, in O(T N) for each score."""
        w = self.walked
        out = np.zeros((self.n_scores, self.n_rows, 1))

        def take(stage: int, slopes: Any, counted: Array, by_g: Array, by_h: Array) -> None:
            k = int(w.stage_output[stage])
            rows = w.weights * counted * (by_g * _of(slopes.g_by_target, k) + by_h * _of(slopes.h_by_target, k))
            self._apply(out[k], int(w.stage_tree[stage]), self.a[stage], rows)

        start = self._run(take) @ w.start_slopes()  # (1, K): by the means
        counted = w.weights * w.start_factors
        return np.asarray(out[:, :, 0].T + np.outer(counted / counted.sum(), start[0]))

    def _asked(self, t: int, k: int, sums: Array) -> None:
        sums[:, 0] += np.bincount(self.queries[:, t], self.slopes[:, k], len(sums))


def _of(slope: Any, k: int) -> Any:
    """Column k of slopes (N, K), or the number that all share."""
    return slope if np.ndim(slope) == 0 else slope[:, k]

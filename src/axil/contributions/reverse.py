"""Reverse mode through a boosting fit with its structure held fixed: derivatives by all targets or all row weights at once.

P holds how each query's output moves with the scores of the training rows; the rounds are run
backwards. For a stage with leaf values v of G and H, and a query x whose output moves by ``seed``
with its own score:

    a[l]  = sum of coefficients * (seed 1[l = leaf(x)] + sum over rows j in l of P_j)        how it moves with v[l]
    by targets  += a w (v_G dg/dy + v_H dh/dy)
    by weights  += a   (v_G g + v_H h)
    P           += a w (v_G dg/dF + v_H dh/dF)

with v_G = dv/dG and v_H = dv/dH of the row's own leaf. Softmax scores of one row are coupled: there
dg/dF is by the output's own probability p and P_m gains ``p_m (q_m - sum_k p_k q_k)``. What is left
in P then moves with the base.

P, tables of leaves, scores of the training rows and slopes of the loss are arrays of the rows' back
end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, LeafArray
from axil.kernels import Rows
from axil.machine.arrays import host
from axil.machine.blocks import row_blocks
from axil.machine.progress import track
from axil.replay.replayed_stages import ReplayedStages, Round
from axil.trees.losses import Slopes

Numbers = NDArray[np.int64]

# of one tree
NONE = np.zeros(0, dtype=np.int64)
ALL = np.zeros(1, dtype=np.int64)


class Reverse:
    """Reverse mode for n queries and O outputs; the columns of every table are outputs times queries."""

    def __init__(
        self,
        walked: ReplayedStages,
        rows: Rows,
        queries: LeafArray,
        seeds: FloatArray,
        n_threads: int,
        base: float = 1.0,
    ):
        """``rows``: the walked ones; ``queries`` (n, T): leaves; ``seeds`` (n, O, K): how output o moves with score m.

        ``base``: how often the base counts in the scores of the queries.
        """
        self.walked = walked
        self.rows = rows
        self.queries = queries.astype(np.intp)
        self.xp = rows.xp
        self.n_threads = n_threads
        self.base = base
        n, n_outputs, n_scores = seeds.shape
        self.n = n
        self.n_outputs = n_outputs
        self.n_scores = n_scores
        self.n_rows = len(walked.targets)
        self.seeds = np.ascontiguousarray(seeds.transpose(2, 1, 0).reshape(n_scores, n_outputs * n))
        self.P = [self.xp.zeros((self.n_rows, n_outputs * n)) for _ in range(n_scores)]
        self.y, self.weights = self.xp.asarray(walked.targets), self.xp.asarray(walked.weights)
        if walked.fit.weights.leaf_factors is None:
            self.factors = None
        else:
            self.factors = self.xp.asarray(walked.fit.weights.leaf_factors)
        self.score = self.xp.array(walked.score)
        self.a: dict[
            int, Any
        ] = {}  # by stage: how the outputs move with its leaf values, (L_t, O * n)

    def by_targets(self) -> FloatArray:
        """(O, n, N): output o by column o of the targets, in O(T N) a query and output."""
        each = {k: slice(k * self.n, (k + 1) * self.n) for k in range(self.n_outputs)}
        return np.stack([part.T for part in self._by_columns(each)])

    def by_columns(self, columns: Sequence[int]) -> FloatArray:
        """(columns, n, N): a single output by these columns of the targets, in O(T N K) a query for all of them.

        Scores of classes are coupled by softmax, so the score of one class moves with the labels of
        all; each stage hands on what its own output's column asks.
        """
        return np.stack(
            [part.T for part in self._by_columns(dict.fromkeys(columns, slice(0, self.n)))]
        )

    def _by_columns(self, wanted: dict[int, slice]) -> list[FloatArray]:
        """For each of these columns of the targets (N, outputs times queries): those of this slice by the column."""
        w = self.walked
        out = {k: self.xp.zeros((self.n_rows, own.stop - own.start)) for k, own in wanted.items()}

        def take(stage: int, slopes: Any) -> None:
            k = int(w.stage_output[stage])
            if k in out:
                self._put(
                    out[k], stage, slopes.g_by_target, slopes.h_by_target, self.weights, wanted[k]
                )

        start = self._run(take) @ w.start_slopes()  # (O * n, K): by the means
        counted = w.weights * w.start_factors
        share = counted / counted.sum()
        return [host(part) + np.outer(share, start[wanted[k], k]) for k, part in out.items()]

    def by_weights(self) -> FloatArray:
        """(O, n, N): output o by the row weights, in O(T N) a query and output for each score."""
        out, by_l2 = self._by_weights()
        return self._by_row(out + by_l2)

    def by_deletions(self) -> FloatArray:
        """(O, n, N): the changes of output o on deleting each row, to first order.

        A row takes its weight with it, and out of the rows whose mean weight an l2 is in proportion
        to.
        """
        w = self.walked
        out, by_l2 = self._by_weights()
        out += by_l2
        out *= -self.weights[:, None]
        return self._by_row(out + w.weights.mean() * by_l2)

    def _by_weights(self) -> tuple[Any, Any]:
        """(N, O * n): the outputs by the row weights, and (O * n,) by the weight of any row through l2."""
        w = self.walked
        out, by_l2 = (
            self.xp.zeros((*shape, self.n_outputs * self.n)) for shape in ((self.n_rows,), ())
        )

        def take(stage: int, slopes: Any) -> None:
            self._put(out, stage, slopes.g, slopes.h, None)
            if w.fit.leaf_rule.l2_by_weight:
                own = slice(w.starts[w.stage_tree[stage]], w.starts[w.stage_tree[stage] + 1])
                # l2 is in proportion to the mean weight: with the weight of any row it grows by l2
                # / (sum of weights)
                growth = (
                    np.where(np.isfinite(w.fit.leaf_rule.l2[own]), w.fit.leaf_rule.l2[own], 0.0)
                    / w.weights.sum()
                )
                by_l2[:] += self.xp.asarray(growth * w.steps[stage].by_l2) @ self.a[stage]

        start = self._run(take) @ w.start_slopes()
        factors = w.start_factors
        pull = factors[:, None] * (w.targets - w.means) / (w.weights @ factors)
        if w.fit.weights.held_out is not None:
            pull[w.fit.weights.held_out] = 0.0
            out[self.xp.asarray(w.fit.weights.held_out)] = 0.0
        out += self.xp.asarray(pull) @ self.xp.asarray(start.T)
        return out, by_l2

    def _by_row(self, of_rows: Any) -> FloatArray:
        """(O, n, N), from (N, O * n) of the back end."""
        return np.ascontiguousarray(host(of_rows).T).reshape(self.n_outputs, self.n, self.n_rows)

    def _run(self, take: Any) -> FloatArray:
        """Run the rounds backwards, giving every stage to ``take``; (O * n, K): by the scores that the fit starts from."""
        with row_blocks(self.n_rows, self.n_threads) as self.each:
            return self._backwards(take)

    def _backwards(self, take: Any) -> FloatArray:
        w = self.walked
        by_base = np.zeros_like(self.seeds.T)
        for one in track(w.rounds[::-1], "derivatives"):
            self._gather(one)
            if one.base:
                by_base += one.base * self._by_all_scores()
            for t, k, gain in w.gains(one):
                self.score[:, k] -= self._numbers(
                    partial(_looked_up, self.xp.asarray(gain), self.rows.cells[t])
                )
            # a tree that no score has anything of, as one without a split under DART, asks for
            # nothing
            one = replace(one, stages=tuple(stage for stage in one.stages if stage in self.a))
            if not one.stages:
                continue
            if w.loss.joint:
                slopes = self._joint_slopes(one)
            else:
                slopes = self._slopes()
            for stage in one.stages:
                take(stage, slopes)
            (self._pull_joint if w.loss.joint else self._pull)(one, slopes)
            for stage in one.stages:
                del self.a[stage]
        return np.asarray(by_base + w.fit.schedule.shares_of_initial[0] * self._by_all_scores())

    def _by_all_scores(self) -> FloatArray:
        """(O * n, K): how the outputs move with all scores of an output together, those of training rows and,

        where they start from the base, of queries.
        """
        rows = np.stack([host(part.sum(axis=0)) for part in self.P], axis=1)
        return np.asarray(rows + self.base * self.seeds.T)

    def _gather(self, one: Round) -> None:
        """Add to ``a`` what the scores after this round ask of the stages that changed them."""
        w = self.walked
        gathered: dict[tuple[int, int], Any] = {}  # steps of one tree have their sums in common
        for stage, coefficient in one.changes:
            t = int(w.stage_tree[stage])
            k = int(w.stage_output[stage])
            if (t, k) not in gathered:
                sums = self.xp.empty((int(w.fit.table.n_leaves[t]), self.n_outputs * self.n))
                self._sweep(t, self.P[k], NONE, sums, None, ALL)
                self._asked(t, k, sums)
                gathered[t, k] = sums
            part = coefficient * gathered[t, k]
            if stage in self.a:
                self.a[stage] = self.a[stage] + part
            else:
                self.a[stage] = part

    def _asked(self, t: int, k: int, sums: Any) -> None:
        """Add what the queries' own scores ask of their leaves in tree t."""
        at = (
            self.xp.asarray(np.tile(self.queries[:, t], self.n_outputs)),
            self.xp.arange(self.n_outputs * self.n),
        )
        sums[at] += self.xp.asarray(self.seeds[k])

    def _pull(self, one: Round, slopes: Any) -> None:
        """Add to P what the stages of this round ask of the scores before it."""
        w = self.walked
        if w.loss.coupled:
            p = w.loss.mean(self.score)
        else:
            p = None
        if p is None:
            mixed = None
        else:
            mixed = self.xp.zeros_like(self.P[0])
        for stage in one.stages:
            k = int(w.stage_output[stage])
            asked = stage, slopes.g_by_score, slopes.h_by_score, self.weights
            if p is None or mixed is None:
                self._put(self.P[k], *asked)
            else:
                for state in (mixed, self.P[k]):
                    self._put(state, *asked, times=p[:, k])
        if p is not None and mixed is not None:
            for k, part in enumerate(self.P):
                part -= p[:, k, None] * mixed

    def _joint_slopes(self, one: Round) -> Any:
        """Turn ``a`` into what it asks of the right sides of the leaves' systems; the slopes that go with that."""
        w = self.walked
        asked = self.xp.stack([self.a[stage] for stage in one.stages], axis=1)  # (L_t, K, O * n)
        inverse = w.steps[one.stages[0]].inverse
        assert inverse is not None
        solved = self.xp.asarray(inverse) @ asked
        for k, stage in enumerate(one.stages):
            self.a[stage] = self.xp.ascontiguousarray(solved[:, k])
        return w.loss.joint_slopes(self.y, self.score, self._solved(one))  # type: ignore[attr-defined]

    def _solved(self, one: Round) -> Any:
        """(N, K): the values of the rows' leaves that this round's systems were solved for."""
        leaf = self.rows.cells[int(self.walked.stage_tree[one.stages[0]])]
        values = [self.walked.steps[stage].solved for stage in one.stages]
        return self.xp.stack(
            [self.xp.asarray(value)[leaf] for value in values if value is not None], axis=1
        )

    def _pull_joint(self, one: Round, slopes: Any) -> None:
        """`_pull` where H is whole: with u for ``a`` now, v the leaf's values and p the probabilities,

        P_m -= w p_m (q_m - sum_k p_k q_k),   q_k = u_k (1 + v_k - v'p) - v_k u'p.
        """
        w = self.walked
        t = int(w.stage_tree[one.stages[0]])
        p = w.loss.mean(self.score)
        v = self._solved(one)
        rows = self.weights * self.xp.asarray(w.counted(t))
        vp = (p * v).sum(axis=1)
        up = self.xp.zeros_like(self.P[0])
        mixed = self.xp.zeros_like(self.P[0])
        for k, stage in enumerate(one.stages):
            self._apply(up, t, self.a[stage], p[:, k].copy())
            self._apply(mixed, t, self.a[stage], p[:, k] * (1 + v[:, k] - vp))
        mixed -= vp[:, None] * up
        for k, stage in enumerate(one.stages):
            own = rows * p[:, k]
            self._apply(self.P[k], t, self.a[stage], -own * (1 + v[:, k] - vp))
            self.P[k] += (own * v[:, k])[:, None] * up + own[:, None] * mixed

    def _put(
        self,
        state: Any,
        stage: int,
        g: Any,
        h: Any,
        weights: Any,
        columns: slice = slice(None),
        times: Any = None,
    ) -> None:
        """Add ``a w c (v_G g + v_H h)`` of every row to a state, g and h as slopes are; no weights for ones.

        ``columns``: of ``a``. ``times`` (N,): a factor of each row besides.
        """
        w = self.walked
        xp = self.xp
        t = int(self.walked.stage_tree[stage])
        step = w.steps[stage]
        asked = self.a[stage][:, columns]
        if step.mix is None:
            parts = [(xp.ascontiguousarray(asked), step.by_g, step.by_h)]
        else:  # values move with the sums of other leaves: what is asked of them is asked of these
            one = np.ones_like(step.value)
            none = np.zeros_like(step.value)
            parts = [
                (xp.asarray(step.mix.by_g.T) @ asked, one, none),
                (xp.asarray(step.mix.by_h.T) @ asked, none, one),
            ]
        for table, by_g, by_h in parts:
            rows = self._rows_of(stage, g, h, weights, xp.asarray(by_g), xp.asarray(by_h))
            self._apply(state, t, table, rows if times is None else rows * times)

    def _rows_of(self, stage: int, g: Any, h: Any, weights: Any, by_g: Any, by_h: Any) -> Any:
        """(N,): ``w c (v_G g + v_H h)`` of every row, from v_G and v_H of its leaf."""
        w = self.walked
        t = int(self.walked.stage_tree[stage])
        k = int(self.walked.stage_output[stage])
        leaf = self.rows.cells[t]
        if w.drawn is None:
            drawn = None
        else:
            drawn = self.xp.asarray(w.drawn[t])

        def make(rows: slice) -> Any:
            own = leaf[rows]
            found = by_g[own] * _of(g, k, rows)
            if np.ndim(h) or h:  # most second derivatives do not move with the targets
                found += by_h[own] * _of(h, k, rows)
            for each in (weights, self.factors, drawn):
                if each is not None:
                    found *= each[rows]
            return found

        return self._numbers(make)

    def _slopes(self) -> Slopes:
        """The slopes of the loss at the scores reached."""
        w = self.walked
        if self.xp is not np:
            if w.loss.anywhere:
                return w.loss.slopes(self.y, self.score)
            found = w.loss.slopes(w.targets, host(self.score))
            return replace(
                found,
                **{name: self.xp.asarray(own) for name, own in vars(found).items() if np.ndim(own)},
            )
        kinds = w.loss.slopes(self.y[:1], self.score[:1])
        made = {name: np.empty_like(self.y) for name, own in vars(kinds).items() if np.ndim(own)}

        def put(rows: slice) -> None:
            found = w.loss.slopes(self.y[rows], self.score[rows])
            for name, whole in made.items():
                whole[rows] = getattr(found, name)

        self.each(put)
        return replace(kinds, **made)

    def _numbers(self, make: Callable[[slice], Any]) -> Any:
        """(N,): one number for every row."""
        if self.xp is not np:
            return make(slice(None))
        out = np.empty(self.n_rows)

        def put(rows: slice) -> None:
            out[rows] = make(rows)

        self.each(put)
        return out

    def _apply(self, state: Any, tree: int, table: Any, rows: Any) -> None:
        """``state[j] += rows[j] * table[leaf of j]``."""
        self._sweep(tree, state, ALL, table, rows, NONE)

    def _sweep(
        self, tree: int, state: Any, apply: Numbers, table: Any, rows: Any, gather: Numbers
    ) -> None:
        self.rows.tree(tree).sweep(state, apply, table, rows, gather, table, None)


class Combined(Reverse):
    """Reverse mode for one number that moves with the scores of n queries: J'u, over all outputs and columns of the targets."""

    def __init__(
        self,
        walked: ReplayedStages,
        rows: Rows,
        queries: LeafArray,
        slopes: FloatArray,
        n_threads: int,
        base: float = 1.0,
    ):
        """``queries`` (n, T): leaves; ``slopes`` (n, K): how the number moves with each score."""
        super().__init__(
            walked, rows, queries[:1], slopes.sum(axis=0)[None, None, :], n_threads, base
        )
        self.queries = queries.astype(np.intp)
        self.slopes = slopes

    def by_targets(self) -> FloatArray:
        """(N, K): by every column of the targets, in O(T N) for each score."""
        return np.concatenate(
            self._by_columns(dict.fromkeys(range(self.n_scores), slice(0, 1))), axis=1
        )

    def _asked(self, t: int, k: int, sums: Any) -> None:
        sums[:, 0] += self.xp.asarray(np.bincount(self.queries[:, t], self.slopes[:, k], len(sums)))


def _looked_up(table: Any, leaf: Any, rows: slice) -> Any:
    return table[leaf[rows]]


def _of(slope: Any, k: int, rows: slice) -> Any:
    """Some rows of column k of slopes (N, K), or the number that all share."""
    if getattr(slope, "ndim", 0):
        return slope[rows, k]
    return slope

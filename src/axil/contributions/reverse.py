"""Reverse mode through a boosting fit with the tree structure fixed.

It gives derivatives by all targets or all row weights at once. P holds how each query's output
moves with the scores of the training rows; the rounds are run backwards. For a stage with leaf
values v of G and H, and a query x whose output moves by ``seed`` with its own score:

    a[l]  = sum of coefficients * (seed 1[l = leaf(x)] + sum over rows j in l of P_j)        how it
    moves with v[l] by targets  += a w (v_G dg/dy + v_H dh/dy) by weights  += a   (v_G g + v_H h) P
    += a w (v_G dg/dF + v_H dh/dF)

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
from axil.machine.arrays import DeviceArray, host
from axil.machine.blocks import row_blocks
from axil.machine.progress import track
from axil.replay.replayed_stages import ReplayedStages, Round
from axil.trees.losses import Slopes

Numbers = NDArray[np.int64]

# of one tree
NONE = np.zeros(0, dtype=np.int64)
ALL = np.zeros(1, dtype=np.int64)


class Reverse:
    """Reverse mode for n rows and O outputs. Tables have a column per output and row."""

    def __init__(
        self,
        walked: ReplayedStages,
        rows: Rows,
        queries: LeafArray,
        seeds: FloatArray,
        n_threads: int,
        base: float = 1.0,
    ):
        """Prepare the backward pass for rows to explain.

        Parameters
        ----------
        rows : Rows
            The training rows that were walked through the fit.
        queries : array of shape (n, T)
            The leaves of the rows to explain.
        seeds : array of shape (n, O, K)
            How output o moves with score m.
        base : float
            How often the initial prediction counts in their scores.
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
        """Return the derivatives of output o by column o of the targets, (O, n, N).

        They take O(T N) for each explained row and output.
        """
        columns = {k: slice(k * self.n, (k + 1) * self.n) for k in range(self.n_outputs)}
        return np.stack([derivatives.T for derivatives in self._by_columns(columns)])

    def by_columns(self, columns: Sequence[int]) -> FloatArray:
        """Return the derivatives of a single output by these columns of the targets.

        They have the shape (columns, n, N). The cost is O(T N K) per explained row.

        Scores of classes are coupled by softmax, so the score of one class moves with the labels of
        all; each stage hands on what its own output's column asks.
        """
        places = dict.fromkeys(columns, slice(0, self.n))
        return np.stack([derivatives.T for derivatives in self._by_columns(places)])

    def _by_columns(self, columns: dict[int, slice]) -> list[FloatArray]:
        """Return the derivatives by columns of the targets, (N, outputs times rows) each.

        ``columns`` has, for each column of the targets, the slice of outputs times explained rows.
        """
        w = self.walked
        out = {}
        for k, place in columns.items():
            out[k] = self.xp.zeros((self.n_rows, place.stop - place.start))

        def take(stage: int, slopes: Slopes) -> None:
            k = int(w.stage_output[stage])
            if k in out:
                self._put_coupled(out[k], stage, slopes.g_by_target, slopes.h_by_target, columns[k])

        start = self._run(take) @ w.start_slopes()  # (O * n, K): by the means
        counted = w.weights * w.start_factors
        share = counted / counted.sum()
        derivatives = []
        for k, through_rounds in out.items():
            through_start = np.outer(share, start[columns[k], k])
            derivatives.append(host(through_rounds) + through_start)
        return derivatives

    def by_weights(self) -> FloatArray:
        """Return the derivatives of the outputs by the row weights, (O, n, N).

        They take O(T N) for each explained row, output and score.
        """
        out, by_l2 = self._by_weights()
        return self._by_row(out + by_l2)

    def by_deletions(self) -> FloatArray:
        """Return the changes of the outputs if each row is deleted, to first order, (O, n, N).

        If l2 is proportional to the mean row weight, the deleted row also leaves that mean.
        """
        w = self.walked
        out, by_l2 = self._by_weights()
        out += by_l2
        out *= -self.weights[:, None]
        return self._by_row(out + w.weights.mean() * by_l2)

    def _by_weights(self) -> tuple[DeviceArray, DeviceArray]:
        """Return the derivatives of the outputs by the row weights.

        Returns
        -------
        by_weights : array of shape (N, O * n)
        by_l2 : array of shape (O * n,)
            By the weight of any row through l2.
        """
        replayed = self.walked
        fit = replayed.fit
        by_weights = self.xp.zeros((self.n_rows, self.n_outputs * self.n))
        by_l2 = self.xp.zeros(self.n_outputs * self.n)

        def take(stage: int, slopes: Slopes) -> None:
            self._put(by_weights, stage, slopes.g, slopes.h, None)
            if fit.leaf_rule.l2_by_weight:
                # l2 is in proportion to the mean weight: with the weight of any row it grows by
                # l2 / (sum of weights).
                tree = replayed.stage_tree[stage]
                l2 = fit.leaf_rule.l2[replayed.starts[tree] : replayed.starts[tree + 1]]
                growth = np.where(np.isfinite(l2), l2, 0.0) / replayed.weights.sum()
                by_l2_of_leaf = self.xp.asarray(growth * replayed.steps[stage].by_l2)
                by_l2[:] += by_l2_of_leaf @ self.a[stage]

        by_means = self._run(take) @ replayed.start_slopes()
        factors = replayed.start_factors
        means_by_weights = factors[:, None] * (replayed.targets - replayed.means)
        means_by_weights /= replayed.weights @ factors
        held_out = fit.weights.held_out
        if held_out is not None:
            means_by_weights[held_out] = 0.0
            by_weights[self.xp.asarray(held_out)] = 0.0
        by_weights += self.xp.asarray(means_by_weights) @ self.xp.asarray(by_means.T)
        return by_weights, by_l2

    def _by_row(self, of_rows: DeviceArray) -> FloatArray:
        """Return derivatives of shape (O, n, N), from (N, O * n) of the back end."""
        return np.ascontiguousarray(host(of_rows).T).reshape(self.n_outputs, self.n, self.n_rows)

    def _run(self, take: Callable[[int, Slopes], None]) -> FloatArray:
        """Run the rounds backwards, and pass every stage and its slopes to ``take``.

        Returns
        -------
        array of shape (O * n, K)
            The derivatives by the scores that the fit starts from.
        """
        with row_blocks(self.n_rows, self.n_threads) as self.each:
            return self._backwards(take)

    def _backwards(self, take: Callable[[int, Slopes], None]) -> FloatArray:
        """Run the rounds backwards; see `_run`."""
        replayed = self.walked
        by_initial = np.zeros_like(self.seeds.T)
        for step_round in track(replayed.rounds[::-1], "derivatives"):
            self._gather(step_round)
            if step_round.base:
                by_initial += step_round.base * self._by_all_scores()
            for tree, output, gain in replayed.gains(step_round):
                gains_of_leaves = self.xp.asarray(gain)
                of_rows = partial(_looked_up, gains_of_leaves, self.rows.cells[tree])
                self.score[:, output] -= self._numbers(of_rows)
            # A tree that has no part in any score, as one without a split under DART, moves
            # nothing.
            stages = tuple(stage for stage in step_round.stages if stage in self.a)
            if not stages:
                continue
            step_round = replace(step_round, stages=stages)
            if replayed.loss.joint:
                slopes = self._joint_slopes(step_round)
            else:
                slopes = self._slopes()
            for stage in stages:
                take(stage, slopes)
            if replayed.loss.joint:
                self._pull_joint(step_round)
            else:
                self._pull(step_round, slopes)
            for stage in stages:
                del self.a[stage]
        share = replayed.fit.schedule.shares_of_initial[0]
        return np.asarray(by_initial + share * self._by_all_scores())

    def _by_all_scores(self) -> FloatArray:
        """Return the derivatives by all scores of an output together, (O * n, K).

        These are the scores of the training rows and, if they start from the initial prediction, of
        the explained rows.
        """
        sums = np.stack([host(adjoints.sum(axis=0)) for adjoints in self.P], axis=1)
        return np.asarray(sums + self.base * self.seeds.T)

    def _gather(self, step_round: Round) -> None:
        """Add to ``a`` the derivatives through the scores after this round by its stages."""
        replayed = self.walked
        # Steps of one tree have their sums in common.
        sums_of_terms: dict[tuple[int, int], DeviceArray] = {}
        for stage, coefficient in step_round.changes:
            tree = int(replayed.stage_tree[stage])
            output = int(replayed.stage_output[stage])
            if (tree, output) not in sums_of_terms:
                n_leaves = int(replayed.fit.table.n_leaves[tree])
                sums = self.xp.empty((n_leaves, self.n_outputs * self.n))
                self._sweep(tree, self.P[output], NONE, sums, None, ALL)
                self._add_seeds(tree, output, sums)
                sums_of_terms[tree, output] = sums
            gathered = coefficient * sums_of_terms[tree, output]
            if stage in self.a:
                self.a[stage] = self.a[stage] + gathered
            else:
                self.a[stage] = gathered

    def _add_seeds(self, tree: int, output: int, sums: DeviceArray) -> None:
        """Add the derivatives by the values of the rows' own leaves to sums (L_t, O * n)."""
        leaves = self.xp.asarray(np.tile(self.queries[:, tree], self.n_outputs))
        columns = self.xp.arange(self.n_outputs * self.n)
        sums[leaves, columns] += self.xp.asarray(self.seeds[output])

    def _pull(self, step_round: Round, slopes: Slopes) -> None:
        """Add to P the derivatives through the stages of this round by the scores before it."""
        replayed = self.walked
        if not replayed.loss.coupled:
            for stage in step_round.stages:
                adjoints = self.P[int(replayed.stage_output[stage])]
                self._put_coupled(adjoints, stage, slopes.g_by_score, slopes.h_by_score)
            return
        p = replayed.loss.mean(self.score)
        mixed = self.xp.zeros_like(self.P[0])
        for stage in step_round.stages:
            output = int(replayed.stage_output[stage])
            for state in (mixed, self.P[output]):
                self._put(
                    state,
                    stage,
                    slopes.g_by_score,
                    slopes.h_by_score,
                    self.weights,
                    times=p[:, output],
                )
        for output, adjoints in enumerate(self.P):
            adjoints -= p[:, output, None] * mixed

    def _put_coupled(
        self,
        state: DeviceArray,
        stage: int,
        g: DeviceArray | float,
        h: DeviceArray | float,
        columns: slice = slice(None),
    ) -> None:
        """Add derivatives like `_put`, also if gradients depend on other rows."""
        if not self.walked.loss.couples_rows:
            self._put(state, stage, g, h, self.weights, columns)
            return
        of_rows = self.xp.zeros_like(state)
        self._put(of_rows, stage, g, h, self.weights, columns)
        coupled = self.walked.loss.couple_adjoints(host(of_rows), self.walked.weights)
        state += self.xp.asarray(coupled)

    def _joint_slopes(self, step_round: Round) -> Slopes:
        """Turn ``a`` into derivatives by the systems' right sides, and return their slopes."""
        replayed = self.walked
        by_values = [self.a[stage] for stage in step_round.stages]
        by_values_of_leaves = self.xp.stack(by_values, axis=1)  # (L_t, K, O * n)
        inverse = replayed.steps[step_round.stages[0]].inverse
        assert inverse is not None
        solved = self.xp.asarray(inverse) @ by_values_of_leaves
        for output, stage in enumerate(step_round.stages):
            self.a[stage] = self.xp.ascontiguousarray(solved[:, output])
        solved_of_rows = self._solved(step_round)
        slopes: Slopes = replayed.loss.joint_slopes(  # type: ignore[attr-defined]
            self.y, self.score, solved_of_rows
        )
        return slopes

    def _solved(self, step_round: Round) -> DeviceArray:
        """Return the leaf values of rows in a round whose system couples the classes, (N, K)."""
        leaves = self.rows.cells[int(self.walked.stage_tree[step_round.stages[0]])]
        values = [self.walked.steps[stage].solved for stage in step_round.stages]
        columns = [self.xp.asarray(value)[leaves] for value in values if value is not None]
        return self.xp.stack(columns, axis=1)

    def _pull_joint(self, step_round: Round) -> None:
        """Do the same as `_pull` for a full matrix H of several classes.

        With u for ``a`` now, v the leaf's values and p the probabilities,

            P_m -= w p_m (q_m - sum_k p_k q_k),   q_k = u_k (1 + v_k - v'p) - v_k u'p.
        """
        replayed = self.walked
        tree = int(replayed.stage_tree[step_round.stages[0]])
        p = replayed.loss.mean(self.score)
        v = self._solved(step_round)
        weights = self.weights * self.xp.asarray(replayed.counted(tree))
        vp = (p * v).sum(axis=1)
        up = self.xp.zeros_like(self.P[0])
        mixed = self.xp.zeros_like(self.P[0])
        for k, stage in enumerate(step_round.stages):
            self._apply(up, tree, self.a[stage], p[:, k].copy())
            self._apply(mixed, tree, self.a[stage], p[:, k] * (1 + v[:, k] - vp))
        mixed -= vp[:, None] * up
        for k, stage in enumerate(step_round.stages):
            wp = weights * p[:, k]
            self._apply(self.P[k], tree, self.a[stage], -wp * (1 + v[:, k] - vp))
            self.P[k] += (wp * v[:, k])[:, None] * up + wp[:, None] * mixed

    def _put(
        self,
        state: DeviceArray,
        stage: int,
        g: DeviceArray | float,
        h: DeviceArray | float,
        weights: DeviceArray | None,
        columns: slice = slice(None),
        times: DeviceArray | None = None,
    ) -> None:
        """Add ``a w c (v_G g + v_H h)`` of every row to a state.

        Parameters
        ----------
        state : array of shape (N, columns)
        g, h : arrays of shape (N, K), or numbers that all rows share
        weights : array of shape (N,) or None
            None stands for ones.
        columns : slice
            Of ``a``.
        times : array of shape (N,) or None
            A factor of each row besides.
        """
        xp = self.xp
        tree = int(self.walked.stage_tree[stage])
        step = self.walked.steps[stage]
        by_values = self.a[stage][:, columns]
        if step.mix is None:
            terms = [(xp.ascontiguousarray(by_values), step.by_g, step.by_h)]
        else:
            # Values move with the sums of other leaves.
            ones = np.ones_like(step.value)
            zeros = np.zeros_like(step.value)
            terms = [
                (xp.asarray(step.mix.by_g.T) @ by_values, ones, zeros),
                (xp.asarray(step.mix.by_h.T) @ by_values, zeros, ones),
            ]
        for table, by_g, by_h in terms:
            of_rows = self._of_rows(stage, g, h, weights, xp.asarray(by_g), xp.asarray(by_h))
            if times is not None:
                of_rows = of_rows * times
            self._apply(state, tree, table, of_rows)

    def _of_rows(
        self,
        stage: int,
        g: DeviceArray | float,
        h: DeviceArray | float,
        weights: DeviceArray | None,
        by_g: DeviceArray,
        by_h: DeviceArray,
    ) -> DeviceArray:
        """Return ``w c (v_G g + v_H h)`` of every row, (N,), from v_G and v_H of its leaf."""
        replayed = self.walked
        tree = int(replayed.stage_tree[stage])
        output = int(replayed.stage_output[stage])
        leaves = self.rows.cells[tree]
        # Most hessians do not move with the targets.
        has_h = bool(np.ndim(h) or h)
        sample_counts = None
        if replayed.drawn is not None:
            sample_counts = self.xp.asarray(replayed.drawn[tree])
        all_factors = (weights, self.factors, sample_counts)
        factors = [factor for factor in all_factors if factor is not None]

        def of_block(rows: slice) -> DeviceArray:
            leaves_of_block = leaves[rows]
            of_rows = by_g[leaves_of_block] * _column_of(g, output, rows)
            if has_h:
                of_rows += by_h[leaves_of_block] * _column_of(h, output, rows)
            for factor in factors:
                of_rows *= factor[rows]
            return of_rows

        return self._numbers(of_block)

    def _slopes(self) -> Slopes:
        """Return the slopes of the loss at the scores reached."""
        replayed = self.walked
        loss = replayed.loss
        if self.xp is not np:
            if loss.anywhere:
                return loss.slopes(self.y, self.score)
            on_host = loss.slopes(replayed.targets, host(self.score))
            arrays = {name: slope for name, slope in vars(on_host).items() if np.ndim(slope)}
            on_device = {name: self.xp.asarray(slope) for name, slope in arrays.items()}
            return replace(on_host, **on_device)
        of_first_row = loss.slopes(self.y[:1], self.score[:1])
        arrays = {
            name: np.empty_like(self.y)
            for name, slope in vars(of_first_row).items()
            if np.ndim(slope)
        }

        def fill(rows: slice) -> None:
            slopes = vars(loss.slopes(self.y[rows], self.score[rows]))
            for name, of_all_rows in arrays.items():
                of_all_rows[rows] = slopes[name]

        self.each(fill)
        return replace(of_first_row, **arrays)

    def _numbers(self, of_block: Callable[[slice], DeviceArray]) -> DeviceArray:
        """Return one number for every row, (N,), from a function of blocks of rows."""
        if self.xp is not np:
            return of_block(slice(None))
        numbers = np.empty(self.n_rows)

        def fill(rows: slice) -> None:
            numbers[rows] = of_block(rows)

        self.each(fill)
        return numbers

    def _apply(self, state: DeviceArray, tree: int, table: DeviceArray, rows: DeviceArray) -> None:
        """Compute ``state[j] += rows[j] * table[leaf of j]``."""
        self._sweep(tree, state, ALL, table, rows, NONE)

    def _sweep(
        self,
        tree: int,
        state: DeviceArray,
        apply: Numbers,
        table: DeviceArray,
        rows: DeviceArray | None,
        gather: Numbers,
    ) -> None:
        """Apply a table to a state, or gather sums of it, for one tree; see `Rows.sweep`."""
        self.rows.tree(tree).sweep(state, apply, table, rows, gather, table, None)


class Combined(Reverse):
    """Reverse mode for one number that moves with the scores of n rows: J'u, over all outputs."""

    def __init__(
        self,
        walked: ReplayedStages,
        rows: Rows,
        queries: LeafArray,
        slopes: FloatArray,
        n_threads: int,
        base: float = 1.0,
    ):
        """Prepare the backward pass.

        Parameters
        ----------
        queries : array of shape (n, T)
            The leaves of the rows to explain.
        slopes : array of shape (n, K)
            How the number moves with each score.
        """
        seeds = slopes.sum(axis=0)[None, None, :]
        super().__init__(walked, rows, queries[:1], seeds, n_threads, base)
        self.queries = queries.astype(np.intp)
        self.slopes = slopes

    def by_targets(self) -> FloatArray:
        """Return derivatives by every column of the targets, (N, K), in O(T N) for each score."""
        columns = dict.fromkeys(range(self.n_scores), slice(0, 1))
        return np.concatenate(self._by_columns(columns), axis=1)

    def _add_seeds(self, tree: int, output: int, sums: DeviceArray) -> None:
        slopes_of_leaves = np.bincount(self.queries[:, tree], self.slopes[:, output], len(sums))
        sums[:, 0] += self.xp.asarray(slopes_of_leaves)


def _looked_up(table: DeviceArray, leaves: DeviceArray, rows: slice) -> DeviceArray:
    """Return the entries of the leaves of some rows."""
    return table[leaves[rows]]


def _column_of(slope: DeviceArray | float, output: int, rows: slice) -> DeviceArray | float:
    """Return some rows of one column of slopes (N, K), or the number for all rows."""
    if isinstance(slope, float | int) or np.ndim(slope) == 0:
        return slope
    return slope[rows, output]

"""Factors of rows: what each training row's own gradient puts into each tree of a fit.

They come from a walk through the rounds of the fit. Given the model's own leaf values a row's
scores before every tree depend on that row alone, so blocks of rows are walked: by a kernel, where
the loss has a form that it knows, on the back end of the rows, else by NumPy on the host.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, FloatArray, IntArray, RealType
from axil.attribution.leaf_matches import tree_spreads
from axil.kernels import Backend, Program, Rows
from axil.kernels.choose import backend_of
from axil.machine.arrays import AnyPlaceArray
from axil.machine.memory import Limits
from axil.replay.replayed_stages import ReplayedStages

LARGEST = 300.0  # of |a F|: far from where exp(a F) overflows
FULL_DIGITS = (
    7.0  # of |a F|: a gradient of some exp(-2 |a F|) is still known to ten digits beside one
)


@dataclass(frozen=True)
class StageTerm:
    """One stage, ready for blocks of rows."""

    round: int
    tree: int
    output: int
    place: int  #: of its tree among those of its output
    scale: FloatArray  #: (L_t,) or (L_t, K): what ``w c g``, or its column m, is multiplied by


@dataclass(frozen=True)
class Factors:
    """The walk through one replayed fit, for blocks of its rows. It does not change."""

    walked: ReplayedStages
    limits: Limits

    @cached_property
    def backend(self) -> Backend:
        """The back end that stores rows and factors."""
        return backend_of(self.limits)

    @cached_property
    def rows(self) -> Rows:
        """The leaves of the training rows in all trees, on the back end."""
        return self.backend.rows(self.walked.leaves, self.walked.starts)

    @property
    def n_outputs(self) -> int:
        """The number of outputs, K."""
        return int(self.walked.targets.shape[1])

    @cached_property
    def trees(self) -> list[IntArray]:
        """For each output the trees that serve it, in order."""
        fit = self.walked.fit
        T = len(self.walked.leaves)
        if fit.schedule.outputs is None:
            return [np.arange(T)] * self.n_outputs
        return [np.flatnonzero(fit.schedule.outputs == k) for k in range(self.n_outputs)]

    @cached_property
    def starts(self) -> list[NDArray[np.int64]]:
        """For each output, where the leaves of each of its trees begin among all, (T_k + 1,)."""
        n_leaves = self.walked.fit.table.n_leaves
        return [np.append(0, np.cumsum(n_leaves[trees])) for trees in self.trees]

    @cached_property
    def terms(self) -> list[list[StageTerm]]:
        """The stages of each round."""
        w = self.walked
        coefficients = np.zeros(len(w.steps))
        for round_stages in w.rounds:
            for s, coefficient in round_stages.changes:
                coefficients[s] += coefficient
        places = [{int(t): i for i, t in enumerate(trees)} for trees in self.trees]
        terms_by_round = []
        for number, round_stages in enumerate(w.rounds):
            terms = []
            for s in round_stages.stages:
                t = int(w.stage_tree[s])
                k = int(w.stage_output[s])
                step = w.steps[s]
                scale = -coefficients[s] * step.share
                if step.inverse is not None:
                    scale = scale[:, None] * step.inverse[:, k, :]
                terms.append(StageTerm(number, t, k, places[k][t], scale))
            terms_by_round.append(terms)
        return terms_by_round

    @cached_property
    def _exponent(self) -> float:
        """The exponent a of the loss if exp(a F) neither overflows nor loses digits, else 0.

        All training rows on their way through the trees count.
        """
        w = self.walked
        if not w.loss.exponent:
            return 0.0
        gained: dict[
            tuple[int, int], tuple[FloatArray, float]
        ] = {}  # by each tree so far, and the largest of it
        most = reached = float(np.abs(w.start).max(initial=0.0))
        for t, k, gain in (move for round_moves in self._moves for move in round_moves):
            before, size = gained.get((t, k), (np.zeros(()), 0.0))
            after = before + gain
            gained[t, k] = after, float(np.abs(after).max(initial=0.0))
            reached += gained[t, k][1] - size
            most = max(most, reached)
        if w.loss.cancels:
            largest = FULL_DIGITS
        else:
            largest = LARGEST
        if abs(w.loss.exponent) * most <= largest:
            return float(w.loss.exponent)
        return 0.0

    @cached_property
    def _moves(self) -> list[list[tuple[int, int, FloatArray]]]:
        """For each round the tree, the output, and the change of scores in each leaf, (L_t,)."""
        return [self.walked.gains(step_round) for step_round in self.walked.rounds]

    @cached_property
    def _program(self) -> Program | None:
        """The rounds of the fit, encoded for the kernel of the back end.

        It is None if the kernel lacks the loss or the kind of leaves.
        """
        w = self.walked
        a = self._exponent
        # kernels compute in double precision
        if w.loss.single:
            form = None
        else:
            form = w.loss.affine(w.targets[:1])
        terms = [term for round_entries in self.terms for term in round_entries]
        if (
            form is None
            or w.gradients is not None
            or w.deviations is not None
            or a != w.loss.exponent
            or any(t.scale.ndim > 1 for t in terms)
        ):
            return None
        if w.drawn is not None and w.drawn.dtype != np.uint8:
            return None
        moves = [move for round_entries in self._moves for move in round_entries]
        begin = np.append(0, np.cumsum([len(trees) for trees in self.trees]))
        bounds = [
            (0, 0),
            *(
                (len(some), len(moves_of_round))
                for some, moves_of_round in zip(self.terms, self._moves)
            ),
        ]
        steps = np.concatenate([np.zeros(0), *(gain for *_, gain in moves)])
        return Program(
            rounds=np.cumsum(bounds, axis=0, dtype=np.int64),
            terms=_numbers(
                [(term.tree, term.output, begin[term.output] + term.place) for term in terms], 3
            ),
            scales=np.concatenate([np.zeros(0), *(term.scale for term in terms)]),
            moves=_numbers([(t, k) for t, k, _ in moves], 2),
            steps=np.exp(a * steps) if a else steps,
            draws=w.drawn,
            link=form.link,
            product=bool(a),
        )

    def factors(self, rows: slice) -> list[AnyPlaceArray]:
        """Return the contribution of each row to the scores of the rows in its leaf, by output.

        The arrays (T_k, rows) have a line per tree and belong to the back end.
        """
        n = rows.stop - rows.start
        xp = self.backend.xp
        bounds = list(
            pairwise(np.append(0, np.cumsum([len(trees) for trees in self.trees])).tolist())
        )
        if self._program is not None:
            whole = xp.empty((bounds[-1][1], n))
            self.rows.gradient_factors(self._program, *self._given(rows), rows.start, whole)
        else:
            factors = np.zeros((bounds[-1][1], n))
            self._share([factors[first:last] for first, last in bounds], rows)
            whole = xp.asarray(factors)
        return [whole[first:last] for first, last in bounds]

    @property
    def added(self) -> FloatArray:
        """The total contribution of each leaf to the scores of its rows, (L, K)."""
        starts = self.walked.starts
        added = np.zeros((int(starts[-1]), self.walked.targets.shape[1]))
        for moves in self._moves:
            for tree, output, gain in moves:
                added[starts[tree] : starts[tree + 1], output] += gain
        return added

    def spreads(self, n_rows: IntArray) -> FloatArray:
        """Return the variance of what each tree adds to the scores of rows, (T,).

        ``n_rows`` (L,) has the number of rows in each leaf.
        """
        return tree_spreads(n_rows, self.added, self.walked.starts)

    def reductions(self, rows: slice) -> FloatArray:
        """Return the decrease of the error of predicted means by each tree, (T, rows).

        Distances are summed over the outputs of the tree.
        """
        w = self.walked
        score = np.array(self._start(rows))
        reductions = np.zeros((len(w.leaves), len(score)))
        leaves = w.leaves[:, rows]
        before = np.abs(w.targets[rows] - w.loss.mean(score))
        for terms, moves in zip(self.terms, self._moves):
            for t, k, gain in moves:
                score[:, k] += gain[leaves[t]]
            after = np.abs(w.targets[rows] - w.loss.mean(score))
            for t, k in {(term.tree, term.output) for term in terms}:
                reductions[t] += before[:, k] - after[:, k]
            before = after
        return reductions

    def _start(self, rows: slice) -> FloatArray:
        w = self.walked
        return np.broadcast_to(
            w.start if w.start.ndim == 1 else w.start[rows], w.targets[rows].shape
        )

    def _counted(self, rows: slice) -> FloatArray:
        """Return the factor of the gradient of each row in every tree."""
        w = self.walked
        if w.fit.weights.leaf_factors is None:
            return w.weights[rows]
        return w.weights[rows] * w.fit.weights.leaf_factors[rows]

    def _given(self, rows: slice) -> tuple[AnyPlaceArray, AnyPlaceArray, AnyPlaceArray]:
        """Return intercepts, slopes and first states of these rows for the kernel, (K, rows) each.

        The kernel may overwrite the states.
        """
        xp = self.backend.xp
        if xp is np:
            return self._made(rows)
        intercepts, slopes, states = (xp.array(values[:, rows], order="C") for values in self._kept)
        return intercepts, slopes, states

    @cached_property
    def _kept(self) -> list[AnyPlaceArray]:
        """Intercepts, slopes and first states of all rows, stored on a GPU."""
        return [
            self.backend.xp.asarray(values)
            for values in self._made(slice(0, len(self.walked.targets)))
        ]

    def _made(self, rows: slice) -> tuple[FloatArray, FloatArray, FloatArray]:
        w = self.walked
        a = self._exponent
        counted = self._counted(rows)
        form = w.loss.affine(w.targets[rows])
        assert form is not None  # there is a program
        start = self._start(rows).T
        if a:
            state = np.ascontiguousarray(np.exp(a * start))
        else:
            state = np.array(start, order="C")
        intercepts, slopes = (
            np.ascontiguousarray(counted * values.T) for values in (form.intercepts, form.slopes)
        )
        return intercepts, slopes, state

    def _share(self, factors: list[FloatArray], rows: slice) -> None:
        """Distribute the rows over threads, which walk them through the fit."""
        parts = np.linspace(rows.start, rows.stop, self.limits.n_threads + 1).astype(int)
        spans = [slice(a, b) for a, b in pairwise(parts) if b > a]
        if len(spans) < 2 or self.walked.gradients is not None:
            self._fill(factors, rows, rows.start)
        else:
            with ThreadPoolExecutor(len(spans)) as pool:
                list(pool.map(lambda span: self._fill(factors, span, rows.start), spans))

    def _fill(self, factors: list[FloatArray], rows: slice, first: int) -> None:
        """Walk these rows through the fit and write their factors.

        They go into the columns from ``first`` on.
        """
        w = self.walked
        columns = slice(rows.start - first, rows.stop - first)
        y = w.targets[rows]
        weights = self._counted(rows)
        leaves = w.leaves[:, rows]
        precision: RealType = np.float64
        # Where trees are dropped, the library adds them up again.
        if w.loss.single and w.fit.schedule.tree_shares is None:
            precision = w.fit.score_precision
        score: AnyArray = np.array(self._start(rows), dtype=precision)
        for number, (terms, moves) in enumerate(zip(self.terms, self._moves)):
            loss = w.loss_of_round(number)
            seen_score = w.seen_scores(w.rounds[number], score, rows)
            gradients = w.gradients
            if gradients is not None:
                g = gradients[terms[0].round, rows].astype(np.float64)  # with the weights in them
            elif loss.single:
                g = loss.weighted_slopes(y, seen_score, weights)[0].astype(np.float64)
            else:
                g = weights[:, None] * loss.gradient(y, seen_score)
            for term in terms:
                leaf = leaves[term.tree]
                if term.scale.ndim == 1:
                    put = np.take(term.scale, leaf)
                    put *= g[:, term.output]
                else:
                    put = np.einsum("jm,jm->j", term.scale[leaf], g)
                if w.drawn is not None:
                    put *= w.drawn[term.tree, rows]
                factors[term.output][term.place, columns] += put
            for t, k, gain in moves:
                score[:, k] += np.take(gain.astype(score.dtype, copy=False), leaves[t])


def _numbers(lines: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(lines, dtype=np.int64).reshape(-1, columns)

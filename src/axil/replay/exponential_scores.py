"""Scores of training rows on their way through a fit as exponentials, which the core multiplies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.arrays import AnyArray, BoolArray, FloatArray
from axil.kernels import Cells
from axil.kernels.cpu import refit_rounds
from axil.replay.newton_steps import Step
from axil.trees.losses import Affine, Loss

FARTHEST = 300.0  # of |a F|: far from where exp(a F) overflows

Term = tuple[int, int]  # tree and output
#: tree, output and (C, L_t): what is added to the scores of its leaves
Move = tuple[int, int, FloatArray]


@dataclass(frozen=True)
class ExponentialScores:
    """The rows of C fits of the same trees."""

    leaves: Cells  #: (T, N)
    starts: NDArray[np.int64]  #: (T + 1,)
    exponent: float
    form: Affine  #: gradients by the states
    curvature: float
    weights: FloatArray  #: (C, N)
    drawn: NDArray[np.uint8] | None  #: (T, N)
    state: FloatArray  #: (C, K, N)
    n_threads: int

    @classmethod
    def of(
        cls,
        loss: Loss,
        leaves: Cells,
        starts: NDArray[np.int64],
        targets: FloatArray,
        weights: FloatArray,
        drawn: AnyArray | None,
        score: FloatArray,
        n_threads: int,
    ) -> ExponentialScores | None:
        """Return the rows with their scores; None if the core has no form of the loss.

        Parameters
        ----------
        leaves : unsigned array of shape (T, N)
        starts : array of shape (T + 1,)
            Where each tree's leaves begin among all.
        targets : array of shape (N, K)
        weights : array of shape (C, N)
        drawn : array of shape (T, N) or None
            How often each row was sampled for each tree.
        score : array of shape (C, N, K)
        """
        affine = loss.affine(targets)
        curvature = loss.curvature
        if affine is None or curvature is None or loss.cancels:
            return None
        if drawn is not None and drawn.dtype != np.uint8:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            state = np.exp(loss.exponent * score.transpose(0, 2, 1), order="C")
        intercepts = np.ascontiguousarray(affine.intercepts.T)
        slopes = np.ascontiguousarray(affine.slopes.T)
        form = Affine(affine.link, intercepts, slopes)
        return cls(leaves, starts, loss.exponent, form, curvature, weights, drawn, state, n_threads)

    def sums(self, rounds: Sequence[tuple[Sequence[Move], Sequence[Term]]]) -> list[FloatArray]:
        """Return the sums of weighted g and h over the leaves of each term of these rounds.

        A round is its moves, then the terms that see the scores after them.

        Returns
        -------
        list of arrays of shape (C, L_t, 2)
        """
        moves = [move for moves_of_round, _ in rounds for move in moves_of_round]
        terms = [term for _, terms_of_round in rounds for term in terms_of_round]
        no_gain = np.zeros((len(self.state), 0))
        gains = np.concatenate([no_gain, *(gain for *_, gain in moves)], axis=1)
        # Sums that are not finite are computed again in another form.
        with np.errstate(over="ignore"):
            factors = np.exp(self.exponent * gains)
        lengths = np.diff(self.starts)[[tree for tree, _ in terms]]
        counts = [(0, 0)]
        for moves_of_round, terms_of_round in rounds:
            counts.append((len(moves_of_round), len(terms_of_round)))
        bounds = np.cumsum(counts, axis=0, dtype=np.int64)
        moved = _numbers([(tree, output) for tree, output, _ in moves])
        sums = self._walk(bounds, moved, factors, _numbers(terms), int(lengths.sum()))
        return np.split(sums, np.cumsum(lengths)[:-1], axis=1)

    def _walk(
        self,
        bounds: NDArray[np.int64],
        moved: NDArray[np.int64],
        factors: FloatArray,
        terms: NDArray[np.int64],
        n_sums: int,
    ) -> FloatArray:
        """Return the sums of `_core.refit_rounds`, (C, n_sums, 2).

        Parameters
        ----------
        bounds : array of shape (rounds + 1, 2)
            Where the moves and the terms of each round begin.
        moved, terms : arrays of shape (., 2)
            Trees and outputs.
        factors : array of shape (C, .)
            What the states of the moved leaves are multiplied by.
        """
        sums = np.empty((len(self.state), n_sums, 2))
        refit_rounds(
            self.leaves,
            self.starts,
            bounds,
            moved,
            factors,
            terms,
            self.form.link,
            self.curvature,
            self.form.intercepts,
            self.form.slopes,
            self.weights,
            self.drawn,
            self.state,
            sums,
            self.n_threads,
        )
        return sums

    def move(self, moves: Sequence[Move]) -> None:
        """Add these moves to the scores."""
        moved = _numbers([(tree, output) for tree, output, _ in moves])
        gains = np.concatenate([gain for *_, gain in moves], axis=1)
        bounds = np.array([(0, 0), (len(moves), 0)])
        self._walk(bounds, moved, np.exp(self.exponent * gains), moved[:0], 0)

    def steps(
        self,
        tree: int,
        outputs: Sequence[int],
        scales: Sequence[float],
        step_of: Callable[[FloatArray], Step],
    ) -> list[list[Step]]:
        """Return the steps of a tree, each from the end of the one before.

        The scores of a single fit stay as they are.

        Parameters
        ----------
        scales : sequence of float
            The factor of each step.
        step_of : callable
            Returns the step that sums (L_t, 2) of g and h lead to.

        Returns
        -------
        list of lists of Step
            For each factor, the steps of the outputs; empty where steps lead too far.
        """
        state_before = self.state.copy()
        steps: list[list[Step]] = []
        n_leaves = int(self.starts[tree + 1] - self.starts[tree])
        n_outputs = len(outputs)
        n_sums = n_outputs * n_leaves
        terms = _numbers([(tree, output) for output in outputs])
        bounds = np.array([(0, 0), (0, n_outputs)])
        moved = terms[:0]
        gains = np.zeros((1, 0))
        reached = np.zeros((1, n_sums))
        for scale in scales:
            sums = self._walk(bounds, moved, np.exp(self.exponent * gains), terms, n_sums)
            steps.append(
                [step_of(sums[0, first : first + n_leaves]) for first in range(0, n_sums, n_leaves)]
            )
            bounds = np.array([(0, 0), (n_outputs, n_outputs)])
            moved = terms
            gains = scale * np.concatenate([step.value for step in steps[-1]])[None]
            reached += gains
            if not abs(self.exponent) * np.abs(reached).max() <= FARTHEST:
                steps = []
                break
        self.state[...] = state_before
        return steps

    def scores(self, rows: slice | BoolArray) -> FloatArray:
        """Return the scores of some rows, (rows, K), in a single fit."""
        return np.asarray(np.log(self.state[0][:, rows].T) / self.exponent, order="C")


def _numbers(pairs: Sequence[Term]) -> NDArray[np.int64]:
    """Return trees and outputs as an array of two columns."""
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)

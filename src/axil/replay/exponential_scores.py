"""Scores of training rows on their way through a fit as exponentials, which the core multiplies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.kernels import Cells
from axil.kernels.cpu import refit_rounds
from axil.replay.newton_steps import Step
from axil.trees.losses import Affine, Loss

FARTHEST = 300.0  # of |a F|: far from where exp(a F) overflows

Term = tuple[int, int]  # tree and output
Move = tuple[
    int, int, FloatArray
]  # tree, output and (C, L_t): what is added to the scores of its leaves


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
        drawn: NDArray[Any] | None,
        score: FloatArray,
        n_threads: int,
    ) -> ExponentialScores | None:
        """The states for targets (N, K), row weights (C, N) and scores (C, N, K); None where the core has no form of the loss."""
        affine = loss.affine(targets)
        curvature = loss.curvature
        if (
            affine is None
            or curvature is None
            or loss.cancels
            or (drawn is not None and drawn.dtype != np.uint8)
        ):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            state = np.exp(loss.exponent * score.transpose(0, 2, 1), order="C")
        form = Affine(
            affine.link,
            *(np.ascontiguousarray(part.T) for part in (affine.intercepts, affine.slopes)),
        )
        return cls(leaves, starts, loss.exponent, form, curvature, weights, drawn, state, n_threads)

    def sums(self, rounds: Sequence[tuple[Sequence[Move], Sequence[Term]]]) -> list[FloatArray]:
        """For each term of these rounds (C, L_t, 2): the sums of weighted g and h over its leaves, after its round's moves."""
        moves, terms = ([one for own in kind for one in own] for kind in zip(*rounds))
        gains = np.concatenate(
            [np.zeros((len(self.state), 0)), *(gain for *_, gain in moves)], axis=1
        )
        with np.errstate(
            over="ignore"
        ):  # sums that are not finite are computed again in another form
            steps = np.exp(self.exponent * gains)
        lengths = np.diff(self.starts)[[t for t, _ in terms]]
        bounds = np.cumsum(
            [(0, 0), *((len(moved), len(own)) for moved, own in rounds)], axis=0, dtype=np.int64
        )
        moved, wanted = (
            np.array(each, dtype=np.int64).reshape(-1, 2)
            for each in ([m[:2] for m in moves], terms)
        )
        return np.split(
            self._walk(bounds, moved, steps, wanted, int(lengths.sum())),
            np.cumsum(lengths)[:-1],
            axis=1,
        )

    def _walk(
        self,
        bounds: NDArray[np.int64],
        moved: NDArray[np.int64],
        steps: FloatArray,
        wanted: NDArray[np.int64],
        n: int,
    ) -> FloatArray:
        """(C, n, 2): what `_core.refit_rounds` sums up."""
        sums = np.empty((len(self.state), n, 2))
        by_state = (
            self.form.link,
            self.curvature,
            self.form.intercepts,
            self.form.slopes,
            self.weights,
            self.drawn,
        )
        given = self.leaves, self.starts, bounds, moved, steps, wanted
        refit_rounds(*given, *by_state, self.state, sums, self.n_threads)
        return sums

    def move(self, moves: Sequence[Move]) -> None:
        """Add these moves to the scores."""
        terms = np.array([move[:2] for move in moves], dtype=np.int64)
        gains = np.concatenate([gains for *_, gains in moves], axis=1)
        self._walk(
            np.array([(0, 0), (len(moves), 0)]), terms, np.exp(self.exponent * gains), terms[:0], 0
        )

    def steps(
        self,
        tree: int,
        outputs: Sequence[int],
        scales: Sequence[float],
        made: Callable[[FloatArray], Step],
    ) -> list[list[Step]]:
        """The steps of a tree for these outputs that ``made`` makes of sums (L_t, 2), each from where the last ones ended.

        They are taken times their scales. The scores of a single fit stay as they are; empty where
        steps lead too far.
        """
        before = self.state.copy()
        found = list[list[Step]]()
        n_leaves = int(self.starts[tree + 1] - self.starts[tree])
        n = len(outputs)
        terms = np.array([(tree, k) for k in outputs], dtype=np.int64)
        first = np.array([(0, 0), (0, n)])
        later = np.array([(0, 0), (n, n)])
        reached = np.zeros((1, n * n_leaves))
        gains = np.zeros((1, 0))
        for scale in scales:
            if found:
                given = (later, terms)
            else:
                given = (first, terms[:0])
            sums = self._walk(*given, np.exp(self.exponent * gains), terms, n * n_leaves)
            found.append(
                [made(sums[0, a : a + n_leaves]) for a in range(0, n * n_leaves, n_leaves)]
            )
            gains = scale * np.concatenate([step.value for step in found[-1]])[None]
            reached += gains
            if not abs(self.exponent) * np.abs(reached).max() <= FARTHEST:
                found = []
                break
        self.state[...] = before
        return found

    def scores(self, rows: Any) -> FloatArray:
        """(rows, K): the scores of these rows in a single fit."""
        return np.asarray(np.log(self.state[0][:, rows].T) / self.exponent, order="C")

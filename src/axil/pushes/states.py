"""Scores of training rows on their way through a fit as exponentials, which the core multiplies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.losses import Affine, Loss
from axil.kernels import Cells
from axil.kernels.cpu import refit_round
from axil.types import Array


@dataclass(frozen=True)
class States:
    """The rows of C fits of the same trees."""

    leaves: Cells  #: (T, N)
    starts: NDArray[np.int64]  #: (T + 1,)
    exponent: float
    form: Affine  #: gradients by the states
    curvature: float
    weights: Array  #: (C, N)
    drawn: NDArray[np.uint8] | None  #: (T, N)
    state: Array  #: (C, K, N)
    n_threads: int
    moves: list[tuple[int, int, Array]] = field(default_factory=list)  #: tree, output and (C, L_t), since the last sums

    @classmethod
    def of(
        cls,
        loss: Loss,
        leaves: Cells,
        starts: NDArray[np.int64],
        targets: Array,
        weights: Array,
        drawn: NDArray[Any] | None,
        score: Array,
        n_threads: int,
    ) -> States | None:
        """The states for targets (N, K), row weights (C, N) and scores (C, N, K); None where the core has no form of the loss."""
        affine, curvature = loss.affine(targets), loss.curvature
        if affine is None or curvature is None or loss.cancels or (drawn is not None and drawn.dtype != np.uint8):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            state = np.exp(loss.exponent * score.transpose(0, 2, 1), order="C")
        form = Affine(affine.link, *(np.ascontiguousarray(part.T) for part in (affine.intercepts, affine.slopes)))
        return cls(leaves, starts, loss.exponent, form, curvature, weights, drawn, state, n_threads)

    def move(self, tree: int, output: int, gains: Array) -> None:
        """Add gains (C, L_t) of the leaves of a tree to the scores of an output, before the next sums."""
        self.moves.append((tree, output, gains))

    def sums(self, terms: list[tuple[int, int]]) -> list[Array]:
        """For each tree and output (C, L_t, 2): the sums of weighted g and h over its leaves."""
        moves, gains = ([move[:2] for move in self.moves], [gain for *_, gain in self.moves])
        steps = np.exp(self.exponent * np.concatenate([np.zeros((len(self.state), 0)), *gains], axis=1))
        sizes = np.diff(self.starts)[[t for t, _ in terms]]
        sums = np.empty((len(self.state), int(sizes.sum()), 2))
        by_state = self.form.link, self.curvature, self.form.intercepts, self.form.slopes, self.weights, self.drawn
        pairs = (np.array(each, dtype=np.int64).reshape(-1, 2) for each in (moves, terms))
        refit_round(
            self.leaves, self.starts, next(pairs), steps, next(pairs), *by_state, self.state, sums, self.n_threads
        )
        self.moves.clear()
        return np.split(sums, np.cumsum(sizes)[:-1], axis=1)

"""Scores of training rows on their way through a fit as exponentials, which the core multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.losses import Affine, Loss
from axil.kernels import Cells
from axil.kernels.cpu import refit_rounds
from axil.types import Array

Term = tuple[int, int]  # tree and output
Move = tuple[int, int, Array]  # tree, output and (C, L_t): what is added to the scores of its leaves


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

    def sums(self, rounds: Sequence[tuple[Sequence[Move], Sequence[Term]]]) -> list[Array]:
        """For each term of these rounds (C, L_t, 2): the sums of weighted g and h over its leaves, after its round's moves."""
        moves, terms = ([one for own in kind for one in own] for kind in zip(*rounds))
        steps = np.exp(
            self.exponent * np.concatenate([np.zeros((len(self.state), 0)), *(gain for *_, gain in moves)], 1)
        )
        lengths = np.diff(self.starts)[[t for t, _ in terms]]
        sums = np.empty((len(self.state), int(lengths.sum()), 2))
        bounds = np.cumsum([(0, 0), *((len(moved), len(own)) for moved, own in rounds)], axis=0, dtype=np.int64)
        moved, wanted = (np.array(each, dtype=np.int64).reshape(-1, 2) for each in ([m[:2] for m in moves], terms))
        by_state = self.form.link, self.curvature, self.form.intercepts, self.form.slopes, self.weights, self.drawn
        walked = self.leaves, self.starts, bounds, moved, steps, wanted
        refit_rounds(*walked, *by_state, self.state, sums, self.n_threads)
        return np.split(sums, np.cumsum(lengths)[:-1], axis=1)

"""Answers of an engine about a batch of queries: weights or effects, dense, sparse or still to be read out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.kernels.products import weighted
from axil.weights.largest import Largest


def dense(found: Any) -> FloatArray:
    """An array of numbers that may be sparse."""
    return np.asarray(found.toarray() if issparse(found) else found)


def gathered(effects: RowEffects, n_rows: int) -> FloatArray:
    """(n, N): effects that come in blocks, of one training row or more."""
    out = np.empty((0, 0))
    for first, block in effects.blocks():
        if not first:
            out = np.empty((n_rows, block.shape[1]))
        out[first : first + len(block)] = block
    return out.T


class RowEffects(Protocol):
    """One number for each of n queries and N training rows."""

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Blocks (rows, n) of the transpose with the number of their first row, never all of it at once if avoidable."""

    def sparse(self) -> csr_array | None:
        """(n, N) where most are zero and known to be, else None."""
        return None


class Answer(RowEffects, Protocol):
    """The weights of n queries over N training rows, and what no target makes of their predictions."""

    intercepts: FloatArray  #: (n, K)

    def dense(self) -> FloatArray:
        """(n, N)."""

    def hand_to(self, collector: Largest) -> None:
        """Give all weights to a collector in the form that is cheapest."""

    def product(self, targets: FloatArray) -> FloatArray:
        """(n, K): weights @ targets, for targets (N, K) that should be the same array from one batch to the next."""

    def moments(self, values: FloatArray) -> FloatArray:
        """(2, n, M): ``sum_j |k_j| v_j`` and ``sum_j k_j^2 v_j`` for values (N, M)."""


@dataclass(frozen=True)
class KnownEffects(RowEffects):
    """Numbers that are there already, in one array or sparse."""

    numbers: Any  #: (n, N)

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        yield 0, dense(self.numbers).T

    def sparse(self) -> csr_array | None:
        if issparse(self.numbers):
            return self.numbers
        return None


@dataclass(frozen=True)
class KnownAnswer(KnownEffects, Answer):
    """Weights that are there already; those of a forest or of neighbours are sparse."""

    intercepts: FloatArray

    def dense(self) -> FloatArray:
        return dense(self.numbers)

    def hand_to(self, collector: Largest) -> None:
        collector.add_all(self.numbers)

    def product(self, targets: FloatArray) -> FloatArray:
        return weighted(self.numbers, targets)

    def moments(self, values: FloatArray) -> FloatArray:
        return np.stack([weighted(self.numbers, values, measure) for measure in ("size", "square")])

"""Answers of an engine about a batch of explained rows.

An answer has weights or effects. It gives them dense, sparse or in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.kernels.products import weighted
from axil.weights.largest import Largest, MaybeSparse


def dense(numbers: MaybeSparse) -> FloatArray:
    """Return numbers that may be sparse as a dense array."""
    if isinstance(numbers, np.ndarray):
        return numbers
    return np.asarray(numbers.toarray())


def gathered(effects: RowEffects, n_rows: int) -> FloatArray:
    """Return effects from blocks of training rows as one array, (n, N)."""
    by_row = np.empty((0, 0))
    for first, block in effects.blocks():
        if first == 0:
            by_row = np.empty((n_rows, block.shape[1]))
        by_row[first : first + len(block)] = block
    return by_row.T


class RowEffects(Protocol):
    """One number for each of n explained rows and N training rows."""

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the first training row of each block, and the block, (rows, n).

        Blocks are transposed. All of them are never made at once where this can be avoided.
        """

    def sparse(self) -> csr_array | None:
        """Return the numbers, (n, N), if most are known to be zero, otherwise None."""
        return None


class Answer(RowEffects, Protocol):
    """The weights of n explained rows over N training rows, with the predictions' constants."""

    intercepts: FloatArray  #: (n, K) the part of each prediction that no target makes

    def dense(self) -> FloatArray:
        """Return all weights, (n, N)."""

    def hand_to(self, collector: Largest) -> None:
        """Give all weights to a collector in the form that is cheapest."""

    def product(self, targets: FloatArray) -> FloatArray:
        """Return ``weights @ targets``, (n, K), for targets (N, K).

        It is fastest if the targets are the same array from one batch to the next.
        """

    def moments(self, values: FloatArray) -> FloatArray:
        """Return ``sum_j |k_j| v_j`` and ``sum_j k_j^2 v_j``, (2, n, M), for values (N, M)."""


@dataclass(frozen=True)
class KnownEffects(RowEffects):
    """Numbers that were computed before, in one array or sparse."""

    numbers: MaybeSparse  #: (n, N)

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield all numbers as one block, (N, n)."""
        yield 0, dense(self.numbers).T

    def sparse(self) -> csr_array | None:
        """Return the numbers if they are sparse, else None."""
        if issparse(self.numbers):
            return self.numbers
        return None


@dataclass(frozen=True)
class KnownAnswer(KnownEffects, Answer):
    """Weights that were computed before; those of a forest or of neighbours are sparse."""

    intercepts: FloatArray

    def dense(self) -> FloatArray:
        """Return all weights, (n, N)."""
        return dense(self.numbers)

    def hand_to(self, collector: Largest) -> None:
        """Give all weights to a collector."""
        collector.add_all(self.numbers)

    def product(self, targets: FloatArray) -> FloatArray:
        """Return ``weights @ targets``, (n, K)."""
        return weighted(self.numbers, targets)

    def moments(self, values: FloatArray) -> FloatArray:
        """Return sums of values under the sizes of the weights and their squares, (2, n, M)."""
        return np.stack([weighted(self.numbers, values, measure) for measure in ("size", "square")])

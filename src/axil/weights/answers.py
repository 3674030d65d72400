"""Answers of an engine about a batch of queries: weights or effects, dense, sparse or still to be read out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.kernels.products import weighted
from axil.types import Array
from axil.weights.largest import Largest


def dense(found: Any) -> Array:
    """An array of numbers that may be sparse."""
    return np.asarray(found.toarray() if issparse(found) else found)


class RowEffects(Protocol):
    """One number for each of n queries and N training rows."""

    def dense(self) -> Array:
        """(n, N)."""

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Blocks (rows, n) of the transpose with the number of their first row, never all of it at once if avoidable."""

    def sparse(self) -> csr_array | None:
        """(n, N) where most are zero and known to be, else None."""


class Answer(RowEffects, Protocol):
    """The weights of n queries over N training rows, and what no target makes of their predictions."""

    @property
    def intercepts(self) -> Array:
        """(n, K)."""

    def hand_to(self, collector: Largest) -> None:
        """Give all weights to a collector in the form that is cheapest."""

    def product(self, targets: Array) -> Array:
        """(n, K): weights @ targets, for targets (N, K) that should be the same array from one batch to the next."""

    def moments(self, values: Array) -> Array:
        """(2, n, M): ``sum_j |k_j| v_j`` and ``sum_j k_j^2 v_j`` for values (N, M)."""


@dataclass(frozen=True)
class DenseAnswer:
    """Weights that are there already."""

    weights: Array
    intercepts: Array

    def dense(self) -> Array:
        return self.weights

    def blocks(self) -> Iterator[tuple[int, Array]]:
        yield 0, self.weights.T

    def sparse(self) -> csr_array | None:
        return None

    def hand_to(self, collector: Largest) -> None:
        collector.add(self.weights.T, 0)

    def product(self, targets: Array) -> Array:
        return weighted(self.weights, targets)

    def moments(self, values: Array) -> Array:
        return np.stack([weighted(self.weights, values, measure) for measure in ("size", "square")])


@dataclass(frozen=True)
class SparseAnswer:
    """Weights of a forest or of neighbours: few of them are not zero."""

    weights: csr_array
    intercepts: Array

    def dense(self) -> Array:
        return np.asarray(self.weights.toarray())

    def blocks(self) -> Iterator[tuple[int, Array]]:
        yield 0, self.dense().T

    def sparse(self) -> csr_array | None:
        return self.weights

    def hand_to(self, collector: Largest) -> None:
        collector.add_sparse(self.weights)

    def product(self, targets: Array) -> Array:
        return weighted(self.weights, targets)

    def moments(self, values: Array) -> Array:
        return np.stack([weighted(self.weights, values, measure) for measure in ("size", "square")])

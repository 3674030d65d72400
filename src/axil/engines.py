"""Engines: the ways to compute weights, behind one contract, and what they answer about a batch of queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.adapters.base import FittedSmoother
from axil.errors import InputError
from axil.forest import Forest
from axil.leaf_space import LeafSpace
from axil.operators import Adjoints, Operators
from axil.structure import Structure

Array = NDArray[np.float64]
Leaves = NDArray[np.integer[Any]]

READ_ROWS = 1 << 15  # training rows read out of leaf space at a time


class Collector(Protocol):
    """What takes in the weights of a batch of queries, in whatever form they come."""

    def add(self, block: Array, first: int) -> None:
        """The weights (rows, n) of the training rows from ``first`` on."""

    def add_sparse(self, weights: csr_array) -> None:
        """All weights, (n, N)."""

    def add_leaves(self, operators: Operators, adjoints: Adjoints) -> None:
        """All weights, to be read out of leaf space."""


class Answer(Protocol):
    """The weights of n queries over N training rows, and what no target makes of their predictions."""

    @property
    def intercepts(self) -> Array:
        """(n, K)."""

    def dense(self) -> Array:
        """(n, N)."""

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Blocks (rows, n) of the transpose with the number of their first row, never all of it at once if avoidable."""

    def sparse(self) -> csr_array | None:
        """(n, N) where most weights are zero and known to be, else None."""

    def hand_to(self, collector: Collector) -> None:
        """Give all weights to a collector in the form that is cheapest."""

    def product(self, targets: Array) -> Array:
        """(n, K): weights @ targets, for targets (N, K) that should be the same array from one batch to the next."""


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

    def hand_to(self, collector: Collector) -> None:
        collector.add(self.weights.T, 0)

    def product(self, targets: Array) -> Array:
        return self.weights @ targets


@dataclass(frozen=True)
class ReadOutAnswer:
    """Weights to be read out of leaf space."""

    operators: Operators
    adjoints: Adjoints
    intercepts: Array

    def dense(self) -> Array:
        out = np.empty((self.operators.structure.n_rows, len(self.adjoints.beta)))
        self.operators.read_out(self.adjoints, 0, out)
        return out.T

    def blocks(self) -> Iterator[tuple[int, Array]]:
        for first in range(0, self.operators.structure.n_rows, READ_ROWS):
            rows = min(READ_ROWS, self.operators.structure.n_rows - first)
            out = np.empty((rows, len(self.adjoints.beta)))
            self.operators.read_out(self.adjoints, first, out)
            yield first, out

    def sparse(self) -> csr_array | None:
        return None

    def hand_to(self, collector: Collector) -> None:
        collector.add_leaves(self.operators, self.adjoints)

    def product(self, targets: Array) -> Array:
        return self.operators.product(self.adjoints, targets)


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

    def hand_to(self, collector: Collector) -> None:
        collector.add_sparse(self.weights)

    def product(self, targets: Array) -> Array:
        return np.asarray(self.weights @ targets)


class Engine(Protocol):
    """K of a fitted model, however it is computed."""

    @property
    def is_sparse(self) -> bool:
        """Whether most weights are zero and known to be."""

    @property
    def structure(self) -> Structure:
        """What the weights are computed from."""

    def ask(self, queries: Any) -> Answer:
        """The weights of queries given by their coordinates: leaves in all the model's trees, (n, T), or features."""

    def ask_training_rows(self) -> Answer:
        """The weights of the training rows' own predictions."""

    def fitted(self, targets: Array) -> Array:
        """(N, K): the training rows' predictions, as the map from targets (N, K), with its constants, makes them."""

    def forward(self, v: Array) -> Array:
        """K v for (N, S) vectors."""

    def backward(self, u: Array) -> Array:
        """K'u for (N, S) vectors."""

    def streamed_bytes(self) -> int:
        """Bytes that one query takes while its answer is handed on block by block."""

    def preparation(self) -> int:
        """Bytes that `prepare` takes."""

    def prepare(self) -> None:
        """Do ahead what makes queries cheaper."""

    def prepare_for(self, n_queries: int, available: int) -> None:
        """The same, if it pays for this many queries and fits into these bytes."""


@dataclass(frozen=True)
class TreeEngine:
    """Boosted trees: sweeps, or leaf space where that pays."""

    operators: Operators
    is_sparse: bool = False

    @property
    def structure(self) -> Structure:
        return self.operators.structure

    def ask(self, queries: Leaves) -> Answer:
        columns = self.structure.columns
        return self._ask(queries if columns is None else queries[:, columns])

    def ask_training_rows(self) -> Answer:
        return self._ask(self.structure.leaves().T)

    def _ask(self, leaves: Leaves) -> Answer:
        if self.operators.leaf_space is None:
            weights, adjoints = self.operators.weights(leaves)
            return DenseAnswer(weights, self.operators.intercepts(adjoints))
        adjoints = self.operators.adjoints(leaves)
        return ReadOutAnswer(self.operators, adjoints, self.operators.intercepts(adjoints))

    def fitted(self, targets: Array) -> Array:
        s = self.structure
        base = self.operators.mean(targets) if s.base is None else s.base
        if s.offsets is None:
            return self.operators.forward(targets, base)
        return self.operators.forward(targets - s.offsets, base) + s.offsets

    def forward(self, v: Array) -> Array:
        return self.operators.forward(v)

    def backward(self, u: Array) -> Array:
        return self.operators.backward(u)

    def streamed_bytes(self) -> int:
        s = self.structure
        return 8 * (s.n_rows if self.operators.leaf_space is None else 3 * int(s.cell_starts[-1]))

    def preparation(self) -> int:
        return LeafSpace.size(self.structure)

    def prepare(self) -> None:
        self.operators.prepare()

    def prepare_for(self, n_queries: int, available: int) -> None:
        fits = 2 * self.preparation() <= available
        if self.operators.leaf_space is None and fits and self.operators.prepare_pays(n_queries):
            self.operators.prepare()


@dataclass(frozen=True)
class ForestEngine:
    """Forests: an inverted index."""

    forest: Forest
    is_sparse: bool = True

    @property
    def structure(self) -> Structure:
        return self.forest.structure

    def ask(self, queries: Leaves) -> Answer:
        columns = self.structure.columns
        return self._answer(self.forest.weights(queries if columns is None else queries[:, columns]))

    def ask_training_rows(self) -> Answer:
        return self._answer(self.forest.weights(self.structure.leaves().T))

    def _answer(self, weights: csr_array) -> Answer:
        assert self.structure.base is not None
        return SparseAnswer(weights, np.tile(self.structure.beta[-1] * self.structure.base, (weights.shape[0], 1)))

    def fitted(self, targets: Array) -> Array:
        s = self.structure
        return np.asarray(self.forest.forward(targets) + s.beta[-1] * (0.0 if s.base is None else s.base))

    def forward(self, v: Array) -> Array:
        return self.forest.forward(v)

    def backward(self, u: Array) -> Array:
        return self.forest.backward(u)

    def streamed_bytes(self) -> int:
        return (
            24
            * self.structure.n_trees
            * -(-self.structure.n_rows * self.structure.n_trees // self.structure.total_leaves)
        )

    def preparation(self) -> int:
        return 0

    def prepare(self) -> None:
        """Nothing to do: the index is there."""

    def prepare_for(self, n_queries: int, available: int) -> None:
        """Nothing to do either."""


@dataclass(frozen=True)
class SmootherEngine:
    """Linear smoothers: a product of features and solution, or sparse weights as they are."""

    smoother: FittedSmoother
    n_outputs: int

    @property
    def is_sparse(self) -> bool:
        return self.smoother.solution is None

    @property
    def structure(self) -> Structure:
        raise InputError("An explainer of a linear smoother is not saved: make it anew from the model and its data.")

    def ask(self, queries: Any) -> Answer:
        intercepts = np.zeros((queries.shape[0], self.n_outputs))
        if self.smoother.solution is None:
            return SparseAnswer(queries, intercepts)
        return DenseAnswer(queries @ self.smoother.solution, intercepts)

    def ask_training_rows(self) -> Answer:
        return self.ask(self.smoother.training)

    def fitted(self, targets: Array) -> Array:
        return self.forward(targets)

    def forward(self, v: Array) -> Array:
        s = self.smoother
        return np.asarray(s.training @ (v if s.solution is None else s.solution @ v))

    def backward(self, u: Array) -> Array:
        s = self.smoother
        seen = s.training.T @ u
        return np.asarray(seen if s.solution is None else s.solution.T @ seen)

    def streamed_bytes(self) -> int:
        return 8 * int(self.smoother.training.shape[0])

    def preparation(self) -> int:
        return 0

    def prepare(self) -> None:
        """Nothing to do: the solution is there."""

    def prepare_for(self, n_queries: int, available: int) -> None:
        """Nothing to do either."""

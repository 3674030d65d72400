"""Answers of boosted trees: weights on the back end of the rows, or to be read out by adjoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.kernels import MEASURES, Backend, Rows
from axil.machine.arrays import AnyPlaceArray, host, is_host
from axil.machine.blocks import spans
from axil.machine.threads import one_blas_thread
from axil.structure import Structure
from axil.weights.answers import Answer
from axil.weights.largest import Largest
from axil.weights.passes import Adjoints

READ_ROWS = 1 << 15  # training rows whose weights are read out at a time

P = ParamSpec("P")
R = TypeVar("R")


class WeightReader(Protocol):
    """The interface of boosted trees through which adjoints give weights."""

    structure: Structure
    backend: Backend
    rows: Rows

    def read_out(self, adjoints: Adjoints, first: int, out: FloatArray) -> None:
        """Fill ``out``, (rows, S), with the weights of the training rows from ``first`` on."""

    def largest(
        self, adjoints: Adjoints, scale: FloatArray | None, k: int
    ) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return the k weights of largest ``|scale * weight|`` and their rows, (S, k) each."""

    def product(self, adjoints: Adjoints, targets: FloatArray) -> FloatArray:
        """Return weights times targets (N, K), (S, K)."""

    def moments(self, adjoints: Adjoints, values: FloatArray) -> FloatArray:
        """Return sums of values (N, M) under |weight| and under weight^2, (2, S, M)."""


def guarded(method: Callable[P, R]) -> Callable[P, R]:
    """Return the method run under the guard of its object's back end (`Backend.guard`)."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with cast(WeightReader, args[0]).backend.guard():
            return method(*args, **kwargs)

    return call


@dataclass(frozen=True)
class StateAnswer(Answer):
    """Weights that a backward pass computed on the back end of the rows."""

    backend: Backend
    state: AnyPlaceArray  #: (N, n), an array of the back end
    intercepts: FloatArray

    @guarded
    def dense(self) -> FloatArray:
        """Return all weights, (n, N)."""
        return host(self.state).T

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield all weights as one block, (N, n)."""
        yield 0, host(self.state)

    @guarded
    def hand_to(self, collector: Largest) -> None:
        """Pass all weights to a collector; those on a GPU are selected there."""
        if is_host(self.state):
            collector.add(self.state, 0)
            return
        n = self.state.shape[1]
        values = np.zeros((n, collector.k))
        rows = np.full((n, collector.k), -1, dtype=np.int64)
        self.backend.top(self.state, 0, collector.scale, values, rows)
        collector.merge(values, rows)

    @guarded
    @one_blas_thread()
    def product(self, targets: FloatArray) -> FloatArray:
        """Return ``weights @ targets``, (n, K)."""
        return self.backend.sums(self.state, targets)

    @guarded
    @one_blas_thread()
    def moments(self, values: FloatArray) -> FloatArray:
        """Return sums of values (N, M) under |weight| and under weight^2, (2, n, M)."""
        measures = [MEASURES.index(name) for name in ("size", "square")]
        return np.stack([self.backend.sums(self.state, values, measure) for measure in measures])


@dataclass(frozen=True)
class ReadOutAnswer(Answer):
    """Weights that are read out by adjoints from the leaf matrix."""

    trees: WeightReader
    adjoints: Adjoints
    intercepts: FloatArray

    @property
    def backend(self) -> Backend:
        """The back end of the rows."""
        return self.trees.backend

    @guarded
    def dense(self) -> FloatArray:
        """Return all weights, (n, N)."""
        weights = np.empty((self.trees.structure.n_rows, len(self.adjoints.beta)))
        self.trees.read_out(self.adjoints, 0, weights)
        return weights.T

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield the weights of `READ_ROWS` training rows at a time."""
        for rows in spans(self.trees.structure.n_rows, READ_ROWS):
            weights = np.empty((rows.stop - rows.start, len(self.adjoints.beta)))
            self.trees.read_out(self.adjoints, rows.start, weights)
            yield rows.start, weights

    @guarded
    def hand_to(self, collector: Largest) -> None:
        """Give the largest weights to a collector, without reading out the others."""
        self.trees.rows.index(collector.n_queries, collector.room)
        collector.merge(*self.trees.largest(self.adjoints, collector.scale, collector.k))

    @guarded
    def product(self, targets: FloatArray) -> FloatArray:
        """Return ``weights @ targets``, (n, K), from leaf sums alone."""
        return self.trees.product(self.adjoints, targets)

    def moments(self, values: FloatArray) -> FloatArray:
        """Return sums of values (N, M) under |weight| and under weight^2, (2, n, M)."""
        return self.trees.moments(self.adjoints, values)

"""Answers of boosted trees: weights that lie where the rows are, or that are still to be read out of the leaf matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np

from axil.arrays import FloatArray
from axil.kernels import MEASURES, Backend
from axil.machine.arrays import host, is_host
from axil.machine.blocks import spans
from axil.machine.threads import one_blas_thread
from axil.weights.answers import Answer
from axil.weights.largest import Largest
from axil.weights.passes import Adjoints

if TYPE_CHECKING:
    from axil.weights.boosting import BoostedTrees

READ_ROWS = 1 << 15  # training rows read out of the leaf matrix at a time

P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[P, R]) -> Callable[P, R]:
    """Runs a method under the guard of its object's back end (`Backend.guard`)."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with cast(Any, args[0]).backend.guard():
            return method(*args, **kwargs)

    return call


@dataclass(frozen=True)
class SweptAnswer(Answer):
    """Weights that a sweep left where the rows are."""

    backend: Backend
    state: Any  #: (N, n), an array of the back end
    intercepts: FloatArray

    @guarded
    def dense(self) -> FloatArray:
        return host(self.state).T

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        yield 0, host(self.state)

    @guarded
    def hand_to(self, collector: Largest) -> None:
        if is_host(self.state):
            return collector.add(self.state, 0)
        n = self.state.shape[1]
        values = np.zeros((n, collector.k))
        rows = np.full((n, collector.k), -1, dtype=np.int64)
        self.backend.top(self.state, 0, collector.scale, values, rows)
        collector.merge(values, rows)

    @guarded
    @one_blas_thread()
    def product(self, targets: FloatArray) -> FloatArray:
        return self.backend.sums(self.state, targets)

    @guarded
    @one_blas_thread()
    def moments(self, values: FloatArray) -> FloatArray:
        return np.stack(
            [
                self.backend.sums(self.state, values, MEASURES.index(name))
                for name in ("size", "square")
            ]
        )


@dataclass(frozen=True)
class ReadOutAnswer(Answer):
    """Weights to be read out of the leaf matrix."""

    trees: BoostedTrees
    adjoints: Adjoints
    intercepts: FloatArray

    @property
    def backend(self) -> Backend:
        return self.trees.backend

    @guarded
    def dense(self) -> FloatArray:
        out = np.empty((self.trees.structure.n_rows, len(self.adjoints.beta)))
        self.trees.read_out(self.adjoints, 0, out)
        return out.T

    def blocks(self) -> Iterator[tuple[int, FloatArray]]:
        for rows in spans(self.trees.structure.n_rows, READ_ROWS):
            out = np.empty((rows.stop - rows.start, len(self.adjoints.beta)))
            self.trees.read_out(self.adjoints, rows.start, out)
            yield rows.start, out

    @guarded
    def hand_to(self, collector: Largest) -> None:
        self.trees.rows.index(collector.n_queries, collector.room)
        collector.merge(*self.trees.largest(self.adjoints, collector.scale, collector.k))

    @guarded
    def product(self, targets: FloatArray) -> FloatArray:
        return self.trees.product(self.adjoints, targets)

    def moments(self, values: FloatArray) -> FloatArray:
        return self.trees.moments(self.adjoints, values)

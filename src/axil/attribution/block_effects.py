"""Effects that come in blocks of training rows, all outputs of a block together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.attribution.effects import Effects, add_made
from axil.kernels import Backend
from axil.machine.arrays import host

Read = Callable[
    [], Iterator[tuple[int, Sequence[Any]]]
]  #: the first row of each block, and for each output (rows, n)


class NoEffects(Effects):
    """The numbers of a shard without rows."""

    def __init__(self, output_groups: list[Sequence[int]], intercepts: FloatArray, first: int):
        self._served = output_groups
        self.intercepts = intercepts
        self.first = first
        self.n = len(intercepts)
        self.shape = (0, intercepts.shape[1])
        self.factors = np.zeros(self.shape)

    @property
    def output_groups(self) -> list[Sequence[int]]:
        return self._served

    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        return iter(())

    def dense(self) -> list[FloatArray]:
        return [np.zeros((self.n, 0)) for _ in self._served]


class BlockEffects(Effects):
    """Numbers that a function reads out block by block."""

    def __init__(
        self,
        read: Read,
        shape: tuple[int, int],
        n: int,
        intercepts: FloatArray | None = None,
        factors: FloatArray | None = None,
        backend: Backend | None = None,
        first: int = 0,
    ):
        self._read = read
        self.shape = shape
        self.n = n
        self.factors = factors
        self.backend = backend
        self.first = first
        if intercepts is None:
            self.intercepts = np.zeros((n, shape[1]))
        else:
            self.intercepts = intercepts

    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        for first, parts in self._read():
            for output, block in enumerate(parts):
                yield (output,), first, block


class Once(Effects):
    """Blocks that take a walk to read: sums over the rows are taken while they are read for something else."""

    def __init__(self, effects: BlockEffects, sizes: bool = True):
        self._effects = effects
        self.n = effects.n
        self.shape = effects.shape
        self.first = effects.first
        self.factors = effects.factors
        self.intercepts = effects.intercepts
        self.backend = effects.backend
        self.measured = sizes  #: whether somebody asks for sums of |effect|
        #: (n, K): what rows add to predictions; sums of |effect|
        self.total, self.sizes = np.zeros((2, self.n, self.shape[1]))

    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        for outputs, first, block in self._effects.blocks():
            add_made(self.total, self.factors, outputs, first, block)
            for output in outputs if self.measured else ():
                self.sizes[:, output] += host(abs(block).sum(axis=0))
            yield outputs, first, block


def mixed(asked: Any, size: int, derive: Callable[[Any], FloatArray]) -> FloatArray:
    """(K, m, N): sums of the derivatives (K, ., N) of a combination's rows, ``size`` of them at a time."""
    return sum(np.stack([u @ own for own in derive(part)]) for u, part in asked.parts(size))  # type: ignore[return-value]


def derived(
    derivatives: FloatArray, predictions: FloatArray, targets: FloatArray, first: int = 0
) -> BlockEffects:
    """Derivatives (K, n, N) by the targets as effects; the intercept is what they leave over of the prediction."""
    made = np.stack([own @ y for own, y in zip(derivatives, targets.T)], axis=1)
    shape = (len(targets), targets.shape[1])
    n = len(predictions)
    blocks = [(0, [own.T for own in derivatives])]
    return BlockEffects(lambda: iter(blocks), shape, n, predictions - made, targets, first=first)

"""Effects that come in blocks of training rows, all outputs of a block together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.attribution.effects import Block, Effects, add_contributions
from axil.attribution.leaf_matches import SharedLeaves
from axil.kernels import Backend
from axil.machine.arrays import host

#: Yields the first row of each block, and for each output (rows, n), on the host or a device.
ReadBlocks = Callable[[], Iterator[tuple[int, Sequence[Any]]]]


class NoEffects(Effects):
    """The numbers of a shard without rows."""

    def __init__(self, output_groups: list[Sequence[int]], intercepts: FloatArray, first: int):
        self._output_groups = output_groups
        self.intercepts = intercepts
        self.first = first
        self.n = len(intercepts)
        self.shape = (0, intercepts.shape[1])
        self.factors = np.zeros(self.shape)

    @property
    def output_groups(self) -> list[Sequence[int]]:
        """The outputs that share their numbers, group by group."""
        return self._output_groups

    def blocks(self) -> Iterator[Block]:
        """Yield nothing."""
        return iter(())

    def dense(self) -> list[FloatArray]:
        """Return arrays without columns."""
        return [np.zeros((self.n, 0)) for _ in self._output_groups]


class LeafComparison(Effects):
    """The leaves that explained rows share with the rows of a shard; the rows have no numbers.

    Parameters
    ----------
    shared_leaves : callable
        Returns the shared leaves.
    shape : tuple of int
        The number of rows of the shard, and of outputs.
    n : int
        The number of explained rows.
    first : int
        The position of the first explained row in the whole request.
    """

    has_numbers = False

    def __init__(
        self, shared_leaves: Callable[[], SharedLeaves], shape: tuple[int, int], n: int, first: int
    ):
        self.shared_leaves = shared_leaves
        self.shape = shape
        self.n = n
        self.first = first
        self.intercepts = np.zeros((n, shape[1]))

    def blocks(self) -> Iterator[Block]:
        """Raise, because the rows have no numbers."""
        raise NotImplementedError("rows that are compared by their leaves have no numbers")


class BlockEffects(Effects):
    """Numbers that a function reads out block by block."""

    def __init__(
        self,
        read: ReadBlocks,
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

    def blocks(self) -> Iterator[Block]:
        """Yield the numbers block by block, output by output."""
        for first, of_outputs in self._read():
            for output, block in enumerate(of_outputs):
                yield (output,), first, block


class Reflected(Effects):
    """The numbers of the other of two classes: the negatives of those of a single score."""

    def __init__(self, effects: Effects):
        self._effects = effects
        self.n = effects.n
        self.shape = effects.shape
        self.factors = effects.factors
        self.intercepts = 0.0 - effects.intercepts
        self.backend = effects.backend
        self.first = effects.first
        self.shared_leaves = effects.shared_leaves

    def blocks(self) -> Iterator[Block]:
        """Yield the negative numbers block by block."""
        for outputs, first, block in self._effects.blocks():
            yield outputs, first, -block

    def by_group(self, codes: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray] | None:
        """Return the negative sums by group, if there is a faster algorithm than to read blocks."""
        sums = self._effects.by_group(codes, n_groups)
        if sums is None:
            return None
        numbers, contributions = sums
        return -numbers, -contributions


class Once(Effects):
    """Blocks that need a walk to read; sums over the rows are computed on the way.

    Parameters
    ----------
    effects : BlockEffects
    sizes : bool
        Whether sums of ``|effect|`` are needed.
    """

    def __init__(self, effects: BlockEffects, sizes: bool = True):
        self._effects = effects
        self.n = effects.n
        self.shape = effects.shape
        self.first = effects.first
        self.factors = effects.factors
        self.intercepts = effects.intercepts
        self.backend = effects.backend
        self._sums_sizes = sizes
        #: (n, K): what rows add to predictions; sums of |effect|
        self.total, self.sizes = np.zeros((2, self.n, self.shape[1]))

    def blocks(self) -> Iterator[Block]:
        """Yield the numbers block by block, and add them up."""
        for outputs, first, block in self._effects.blocks():
            add_contributions(self.total, self.factors, outputs, first, block)
            if self._sums_sizes:
                for output in outputs:
                    self.sizes[:, output] += host(abs(block).sum(axis=0))
            yield outputs, first, block


def mixed(combination: Any, size: int, derive: Callable[[Any], FloatArray]) -> FloatArray:
    """Return sums of the derivatives of a combination's rows, (K, m, N).

    Parameters
    ----------
    asked : Combination
        Sums of explained rows.
    size : int
        The explained rows whose derivatives are held at a time.
    derive : callable
        Derivatives (K, n, N) of some explained rows.
    """
    sums: Any = 0
    for factors, rows in combination.parts(size):
        sums = sums + np.stack([factors @ derivatives for derivatives in derive(rows)])
    return np.asarray(sums)


def derived(
    derivatives: FloatArray, predictions: FloatArray, targets: FloatArray, first: int = 0
) -> BlockEffects:
    """Return derivatives by the targets, (K, n, N), as effects.

    The intercept is what they leave over of the predictions (n, K).
    """
    products = [of_output @ y for of_output, y in zip(derivatives, targets.T)]
    intercepts = predictions - np.stack(products, axis=1)
    shape = (len(targets), targets.shape[1])
    blocks = [(0, [of_output.T for of_output in derivatives])]
    n = len(predictions)
    return BlockEffects(lambda: iter(blocks), shape, n, intercepts, targets, first=first)

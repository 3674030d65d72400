"""Effects that engines answer with: weights of targets, and what deletions of rows do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.attribution.effects import Block, Effects
from axil.weights.answers import Answer, RowEffects, dense
from axil.weights.largest import Largest


class WeightEffects(Effects):
    """The weights of n explained rows, from each engine; contributions are weights times targets.

    Parameters
    ----------
    answers : sequence of Answer
        One for all outputs, or one for each.
    targets : sequence of arrays of shape (N, K)
        Those of each engine.
    offsets : array of shape (n, K)
        Those of the explained rows.
    first : int
        The position of the first explained row in the whole request.
    """

    def __init__(
        self,
        answers: Sequence[Answer],
        targets: Sequence[FloatArray],
        offsets: FloatArray,
        first: int = 0,
    ):
        self.answers = answers
        self._targets = targets
        self.first = first
        # one array from batch to batch, so that products with it are fast
        self.factors = targets[0] if len(targets) == 1 else np.concatenate(targets, axis=1)
        self.n = len(offsets)
        self.shape = (len(self.factors), self.factors.shape[1])
        intercepts = np.concatenate([answer.intercepts for answer in answers], axis=1)
        self.intercepts = np.broadcast_to(intercepts, (self.n, self.shape[1])) + offsets

    @property
    def output_groups(self) -> list[Sequence[int]]:
        """The outputs of each engine."""
        if len(self.answers) == 1:
            return [range(self.shape[1])]
        return [(k,) for k in range(len(self.answers))]

    def blocks(self) -> Iterator[Block]:
        """Yield the weights of each engine in blocks."""
        for outputs, answer in zip(self.output_groups, self.answers):
            for first, block in answer.blocks():
                yield outputs, first, block

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        """Return the weights if there is one engine, whose weights are sparse."""
        if len(self.answers) > 1:
            return None
        weights = self.answers[0].sparse()
        if weights is None:
            return None
        return [(self.output_groups[0], weights)]

    def dense(self) -> list[FloatArray]:
        """Return the weights of each engine, (n, N)."""
        return [answer.dense() for answer in self.answers]

    def contribution_sums(self) -> FloatArray:
        """Return weights times targets, (n, K)."""
        return np.concatenate(self.products(self._targets), axis=1)

    def largest(self, collectors: Sequence[Largest]) -> FloatArray:
        """Give the weights to the collector of each output; return `contribution_sums`."""
        for outputs, answer in zip(self.output_groups, self.answers):
            for output in outputs:
                answer.hand_to(collectors[output])
        return self.contribution_sums()

    def products(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """Return weights times values (N, M), (n, M), for each engine."""
        return [answer.product(columns) for answer, columns in zip(self.answers, values)]

    def moments(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """Return sums of values (N, M) under |weight| and weight^2, (2, n, M), for each engine."""
        return [answer.moments(columns) for answer, columns in zip(self.answers, values)]


class SumEffects(Effects):
    """Weights or contributions that were computed before, dense or sparse.

    They are (n, N), or (K, n, N) if each output has its own.
    """

    def __init__(
        self, weights: FloatArray | csr_array, targets: FloatArray, intercepts: FloatArray
    ):
        self._weights = weights
        self.factors = targets
        self.intercepts = intercepts
        self.n = len(intercepts)
        self.shape = (len(targets), targets.shape[1])

    @property
    def output_groups(self) -> list[Sequence[int]]:
        """The outputs that share their weights."""
        n_outputs = self.shape[1]
        if self._weights.ndim == 3:
            return [(k,) for k in range(n_outputs)]
        return [range(n_outputs)]

    def blocks(self) -> Iterator[Block]:
        """Yield the weights of each group of outputs as one block."""
        tables = self._weights if self._weights.ndim == 3 else [self._weights]
        for outputs, table in zip(self.output_groups, tables):
            yield outputs, 0, dense(table).T

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        """Return the weights if they are sparse."""
        if issparse(self._weights):
            return [(self.output_groups[0], self._weights)]
        return None


class DeletionEffects(Effects):
    """The effects of training rows on n predictions.

    Each engine gives one for each of its outputs.
    """

    def __init__(self, effects: Sequence[Sequence[RowEffects]], shape: tuple[int, int], n: int):
        self._effects = effects
        self.shape = shape
        self.n = n
        self.intercepts = np.zeros((n, shape[1]))

    def blocks(self) -> Iterator[Block]:
        """Yield the outputs of one engine in turn, because they share the terms of blocks."""
        first_output = 0
        for of_engine in self._effects:
            for blocks in zip(*(effects.blocks() for effects in of_engine)):
                for output, (first, block) in enumerate(blocks, first_output):
                    yield (output,), first, block
            first_output += len(of_engine)

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        """Return the effects on each output if all are sparse."""
        sparse: list[tuple[Sequence[int], csr_array]] = []
        of_outputs = [effects for of_engine in self._effects for effects in of_engine]
        for output, effects in enumerate(of_outputs):
            numbers = effects.sparse()
            if numbers is None:
                return None
            sparse.append(((output,), numbers))
        return sparse

"""Effects that engines answer with: weights of targets, and what deletions of rows do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.attribution.effects import Effects
from axil.weights.answers import Answer, RowEffects
from axil.weights.largest import Largest


class WeightEffects(Effects):
    """The weights of n queries, from each engine; contributions are weights times targets."""

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
        if len(targets) == 1:
            self.factors = targets[0]
        else:
            self.factors = np.concatenate(targets, axis=1)
        self.n, self.shape = len(offsets), (len(self.factors), self.factors.shape[1])
        parts = np.concatenate([answer.intercepts for answer in answers], axis=1)
        self.intercepts = np.broadcast_to(parts, (self.n, self.shape[1])) + offsets

    @property
    def output_groups(self) -> list[Sequence[int]]:
        """The outputs that each engine serves."""
        if len(self.answers) == 1:
            return [range(self.shape[1])]
        return [(k,) for k in range(len(self.answers))]

    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        for outputs, answer in zip(self.output_groups, self.answers):
            for first, block in answer.blocks():
                yield outputs, first, block

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        if len(self.answers) == 1:
            known = self.answers[0].sparse()
        else:
            known = None
        if known is None:
            return None
        return [(self.output_groups[0], known)]

    def dense(self) -> list[FloatArray]:
        return [answer.dense() for answer in self.answers]

    def made(self) -> FloatArray:
        return np.concatenate(
            [answer.product(own) for answer, own in zip(self.answers, self._targets)], axis=1
        )

    def largest(self, wanted: Sequence[Largest]) -> FloatArray:
        for outputs, answer in zip(self.output_groups, self.answers):
            for output in outputs:
                answer.hand_to(wanted[output])
        return self.made()

    def products(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        return [answer.product(own) for answer, own in zip(self.answers, values)]

    def moments(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        return [answer.moments(own) for answer, own in zip(self.answers, values)]


class SumEffects(Effects):
    """Weights or pushes that are there already, dense or sparse: (n, N), or (K, n, N) where outputs have their own."""

    def __init__(self, weights: Any, targets: FloatArray, intercepts: FloatArray):
        self._weights = weights
        self.factors = targets
        self.intercepts = intercepts
        self.n = len(intercepts)
        self.shape = (len(targets), targets.shape[1])

    @property
    def output_groups(self) -> list[Sequence[int]]:
        n_outputs = self.shape[1]
        if self._weights.ndim == 3:
            return [(k,) for k in range(n_outputs)]
        return [range(n_outputs)]

    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        if self._weights.ndim == 3:
            parts = self._weights
        else:
            parts = [self._weights]
        for outputs, numbers in zip(self.output_groups, parts):
            yield outputs, 0, (numbers.toarray() if issparse(numbers) else numbers).T

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        if issparse(self._weights):
            return [(self.output_groups[0], self._weights)]
        return None


class DeletionEffects(Effects):
    """The effects of training rows on n predictions, from each engine one for each output that it serves."""

    def __init__(self, found: Sequence[Sequence[RowEffects]], shape: tuple[int, int], n: int):
        self._found = found
        self.shape = shape
        self.n = n
        self.intercepts = np.zeros((n, shape[1]))

    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        """The outputs of one engine in turn, as they share what blocks are made of."""
        before = 0
        for own in self._found:
            for parts in zip(*(one.blocks() for one in own)):
                for output, (first, block) in enumerate(parts, before):
                    yield (output,), first, block
            before += len(own)

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        found = [one.sparse() for own in self._found for one in own]
        known: list[tuple[Sequence[int], csr_array]] = [
            ((output,), numbers) for output, numbers in enumerate(found) if numbers is not None
        ]
        if len(known) == len(found):
            return known
        return None

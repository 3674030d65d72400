"""Effects: one number for each explained row, output and training row of one shard, handed on in blocks of rows.

A shard is the training rows that lie in one place. A `Source` names the number. Subclasses of
`Effects` have faster ways for what kernels do at once. `Attribution` has one method per quantity,
and is the one place that tells quantities apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray, IntArray
from axil.attribution.leaf_matches import SharedLeaves
from axil.attribution.source import Quantity, Source
from axil.kernels import Backend
from axil.machine.arrays import host, is_host
from axil.weights.largest import Largest


class Effects(ABC):
    """One number for each of n queries, K outputs and the training rows of one shard."""

    n: int  #: queries
    shape: tuple[int, int]  #: rows of the shard, and K
    factors: FloatArray | None = (
        None  #: (rows, K) that turn the numbers into contributions; None: they are contributions
    )
    intercepts: FloatArray  #: (n, K) what no row adds to a prediction; the same in every shard
    backend: Backend | None = None  #: whose arrays the blocks are; None: the host's
    first: int = 0  #: the position of the first query in the whole request
    #: the leaves that queries share with the rows; None: there are no trees
    alike: Callable[[], SharedLeaves] | None = None

    @property
    def output_groups(self) -> list[Sequence[int]]:
        """The outputs that share their numbers, group by group."""
        return [(output,) for output in range(self.shape[1])]

    @abstractmethod
    def blocks(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        """Outputs that share a block, the number of its first row in the shard, and the block (rows, n) itself."""

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        """For the outputs that share them (n, rows), where most numbers are zero and known to be; None elsewhere."""
        return None

    def parts(self) -> Iterator[tuple[Sequence[int], int, Any]]:
        """`blocks`; where most numbers are zero, all of them as one sparse block."""
        sparse = self.sparse()
        if sparse is None:
            yield from self.blocks()
        for outputs, numbers in sparse or ():
            yield outputs, 0, numbers.T

    def made(self) -> FloatArray:
        """(n, K): what the rows of the shard add to each prediction."""
        total = np.zeros((self.n, self.shape[1]))
        for outputs, first, block in self.blocks():
            add_made(total, self.factors, outputs, first, block)
        return total

    def largest(self, wanted: Sequence[Largest]) -> FloatArray:
        """Fill the largest of each output, and return `made`."""
        total = np.zeros((self.n, self.shape[1]))
        sparse = self.sparse()
        for outputs, first, block in self.blocks() if sparse is None else ():
            for output in outputs:
                wanted[output].add(block, first)
            add_made(total, self.factors, outputs, first, block)
        for outputs, numbers in sparse or ():
            for output in outputs:
                wanted[output].add_sparse(numbers)
        if sparse is None:
            return total
        return self.made()

    def dense(self) -> list[FloatArray]:
        """(n, rows), once for all outputs that share them, on the host."""
        found: dict[int, FloatArray] = {}
        for outputs, first, block in self.blocks():
            own = found.setdefault(outputs[0], np.empty((self.shape[0], self.n)))
            part = own[first : first + len(block)]
            if is_host(block):
                part[...] = block
            else:
                block.get(out=part)
        return [found[output].T for output in sorted(found)]

    def by_group(self, codes: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray] | None:
        """(n, K, groups) twice: sums of the numbers and of contributions by group; None: there is no faster way than blocks."""
        return None

    def moments(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """(2, n, M) for each group of outputs that share their numbers: sums of values (rows, M) under |number| and number^2."""
        return self._summed(values, np.abs, np.square)

    def products(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """(n, M) for each group of outputs that share their numbers: sums of the numbers times values (rows, M)."""
        return [sums for (sums,) in self._summed(values, np.asarray)]

    def _summed(
        self, values: Sequence[FloatArray], *measures: Callable[[FloatArray], FloatArray]
    ) -> list[FloatArray]:
        """(measures, n, M) for each group of outputs that share their numbers: sums of values (rows, M) under each measure."""
        found = [np.zeros((len(measures), self.n, own.shape[1])) for own in values]
        places = {outputs[0]: place for place, outputs in enumerate(self.output_groups)}
        for outputs, first, block in self.blocks():
            place = places[outputs[0]]
            numbers = host(block)
            for total, measure in zip(found[place], measures):
                total += measure(numbers).T @ values[place][first : first + len(block)]
        return found


def numbers_at(
    effects: Effects, rows: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(n, K, k) the numbers of these rows (n, K, k), -1 for none; (n, K) what all rows add up to, and sums of |number|."""
    n = effects.n
    n_outputs = effects.shape[1]
    found, (total, sizes) = np.zeros(rows.shape), np.zeros((2, n, n_outputs))
    sparse = effects.sparse()
    asked = np.arange(n)[:, None]
    for outputs, numbers in sparse or ():
        for output in outputs:
            own = rows[:, output]
            picked = numbers[np.broadcast_to(asked, own.shape).ravel(), own.ravel()]
            # sparse from SciPy 1.15 on
            if issparse(picked):
                dense = picked.toarray()
            else:
                dense = np.asarray(picked)
            found[:, output] = np.where(own < 0, 0.0, dense.reshape(own.shape))
            sizes[:, output] = abs(numbers).sum(axis=1)
    for outputs, first, block in effects.blocks() if sparse is None else ():
        add_made(total, effects.factors, outputs, first, block)
        own_sizes = host(abs(block).sum(axis=0))
        numbers = host(block)
        for output in outputs:
            sizes[:, output] += own_sizes
            at = rows[:, output] - first
            inside = (at >= 0) & (at < len(numbers))
            found[:, output][inside] = numbers[at[inside], np.broadcast_to(asked, at.shape)[inside]]
    return found, total if sparse is None else effects.made(), sizes


def add_made(
    total: FloatArray, factors: FloatArray | None, outputs: Sequence[int], first: int, block: Any
) -> None:
    """Add what a block of rows, dense or sparse, makes of the predictions (n, K)."""
    summed = None
    for output in outputs:
        if factors is not None:
            own = factors[first : first + block.shape[0], output]
            total[:, output] += (block if issparse(block) else host(block)).T @ own
        else:
            if summed is None:
                summed = host(block.sum(axis=0))
            total[:, output] += summed


Q = TypeVar("Q", contravariant=True)  # what training rows are told of the explained rows


class Attribution(ABC, Generic[Q]):
    """Training rows in one place, which can say what belongs to each of them and the explained rows.

    A subclass defines the methods of the quantities that its kind of model has. `Capabilities`
    refuses all others before.
    """

    def effects(self, source: Source, query_batch: Q) -> Effects:
        """Return the numbers that the source names."""
        match source.quantity:
            case Quantity.WEIGHT:
                return self.weight_effects(query_batch)
            case Quantity.CONTRIBUTION:
                return self.contribution_effects(query_batch)
            case Quantity.DERIVATIVE:
                return self.derivative_effects(query_batch)
            case Quantity.DELETION:
                return self.deletion_effects(query_batch, source.available)
            case Quantity.FIRST_ORDER:
                return self.first_order_effects(query_batch)

    def weight_effects(self, query_batch: Q) -> Effects:
        """Return the weights of the targets."""
        raise NotImplementedError

    def contribution_effects(self, query_batch: Q) -> Effects:
        """Return what the rows' own gradients add to the scores."""
        raise NotImplementedError

    def derivative_effects(self, query_batch: Q) -> Effects:
        """Return the derivatives of the predictions by the targets."""
        raise NotImplementedError

    def deletion_effects(self, query_batch: Q, available: int) -> Effects:
        """Return the exact changes of the predictions without each row, within ``available`` bytes."""
        raise NotImplementedError

    def first_order_effects(self, query_batch: Q) -> Effects:
        """Return the first-order changes of the predictions without each row."""
        raise NotImplementedError

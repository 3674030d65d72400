"""Effects: one number for each explained row, output and training row of a shard.

The numbers come in blocks of rows. A shard is the training rows that lie in one place. A `Source`
names the number. Subclasses of `Effects` do at once what kernels have a faster algorithm for.
`Attribution` has one method per quantity, and is the one place that tells quantities apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution.leaf_matches import SharedLeaves
from axil.attribution.source import Quantity, Source
from axil.kernels import Backend
from axil.machine.arrays import host, is_host
from axil.weights.largest import Largest

#: Outputs that share a block, the first row of the block in the shard, and the block (rows, n). The
#: block may be an array of a device.
Block = tuple[Sequence[int], int, Any]


class Effects(ABC):
    """One number for each of n explained rows, K outputs and the training rows of one shard."""

    n: int  #: explained rows
    shape: tuple[int, int]  #: rows of the shard, and K
    #: (rows, K) that turn the numbers into contributions; None: they are contributions
    factors: FloatArray | None = None
    intercepts: FloatArray  #: (n, K) what no row adds to a prediction; the same in every shard
    backend: Backend | None = None  #: whose arrays the blocks are; None: the host's
    first: int = 0  #: the position of the first explained row in the whole request
    #: the leaves that explained rows share with the rows; None: there are no trees
    shared_leaves: Callable[[], SharedLeaves] | None = None
    #: whether there are numbers; without them rows can only be compared by their leaves
    has_numbers: bool = True

    @property
    def output_groups(self) -> list[Sequence[int]]:
        """The outputs that share their numbers, group by group."""
        return [(output,) for output in range(self.shape[1])]

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the numbers of all rows in blocks."""

    def sparse(self) -> list[tuple[Sequence[int], csr_array]] | None:
        """Return the numbers (n, rows) for the outputs that share them.

        Return None unless most of them are known to be zero.
        """
        return None

    def parts(self) -> Iterator[Block]:
        """Yield `blocks`; if most numbers are zero, all of them as one sparse block."""
        sparse = self.sparse()
        if sparse is None:
            yield from self.blocks()
            return
        for outputs, numbers in sparse:
            yield outputs, 0, numbers.T

    def contribution_sums(self) -> FloatArray:
        """Return what the rows of the shard add to each prediction, (n, K)."""
        sums = np.zeros((self.n, self.shape[1]))
        for outputs, first, block in self.blocks():
            add_contributions(sums, self.factors, outputs, first, block)
        return sums

    def largest(self, collectors: Sequence[Largest]) -> FloatArray:
        """Give all numbers to the collector of each output; return `contribution_sums`."""
        sparse = self.sparse()
        if sparse is not None:
            for outputs, numbers in sparse:
                for output in outputs:
                    collectors[output].add_sparse(numbers)
            return self.contribution_sums()
        sums = np.zeros((self.n, self.shape[1]))
        for outputs, first, block in self.blocks():
            for output in outputs:
                collectors[output].add(block, first)
            add_contributions(sums, self.factors, outputs, first, block)
        return sums

    def dense(self) -> list[FloatArray]:
        """Return the numbers (n, rows) on the host, once for all outputs that share them."""
        by_output: dict[int, FloatArray] = {}
        for outputs, first, block in self.blocks():
            if outputs[0] not in by_output:
                by_output[outputs[0]] = np.empty((self.shape[0], self.n))
            rows = by_output[outputs[0]][first : first + len(block)]
            if is_host(block):
                rows[...] = block
            else:
                block.get(out=rows)
        return [by_output[output].T for output in sorted(by_output)]

    def by_group(self, codes: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray] | None:
        """Return sums of the numbers and of contributions by group, (n, K, n_groups) each.

        None if there is no faster algorithm than to read blocks.
        """
        return None

    def moments(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """Return sums of values (rows, M) under |number| and number^2, by output group.

        The sums of one group have the shape (2, n, M).
        """
        return self._summed(values, np.abs, np.square)

    def products(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """Return sums of the numbers times values (rows, M), (n, M), by output group."""
        return [sums for (sums,) in self._summed(values, np.asarray)]

    def _summed(
        self, values: Sequence[FloatArray], *measures: Callable[[FloatArray], FloatArray]
    ) -> list[FloatArray]:
        """Return sums of values (rows, M) under each measure, (measures, n, M), by output group."""
        sums = [np.zeros((len(measures), self.n, columns.shape[1])) for columns in values]
        place_of_output = {outputs[0]: place for place, outputs in enumerate(self.output_groups)}
        for outputs, first, block in self.blocks():
            place = place_of_output[outputs[0]]
            numbers = host(block)
            rows = values[place][first : first + len(block)]
            for total, measure in zip(sums[place], measures):
                total += measure(numbers).T @ rows
        return sums


class LabelledRows(Protocol):
    """Training rows with the columns that tables show about them."""

    @property
    def start(self) -> int:
        """The number of the first row among all training rows."""

    @property
    def shown(self) -> FloatArray:
        """The targets in the user's units, (rows, K)."""

    @property
    def index(self) -> AnyArray:
        """The user's labels, (rows,)."""


class Shard(LabelledRows, Protocol):
    """Training rows in one place."""

    @property
    def targets(self) -> FloatArray:
        """The targets on the scale of the fit, (rows, K)."""

    def effects(self, source: Source, query_batch: Any) -> Effects:
        """Return the effects of these rows on the explained rows of a batch."""


def numbers_at(
    effects: Effects, rows: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the numbers of some rows, and sums over all rows.

    Parameters
    ----------
    effects : Effects
    rows : array of shape (n, K, k)
        Row numbers; -1 for none.

    Returns
    -------
    numbers : array of shape (n, K, k)
    contribution_sums, sizes : arrays of shape (n, K)
        What all rows add up to, and sums of ``|number|``.
    """
    sparse = effects.sparse()
    if sparse is not None:
        return _sparse_numbers_at(effects, sparse, rows)
    n = effects.n
    numbers = np.zeros(rows.shape)
    sums, sizes = np.zeros((2, n, effects.shape[1]))
    queries = np.arange(n)[:, None]
    for outputs, first, block in effects.blocks():
        add_contributions(sums, effects.factors, outputs, first, block)
        block_sizes = host(abs(block).sum(axis=0))
        block_numbers = host(block)
        for output in outputs:
            sizes[:, output] += block_sizes
            at = rows[:, output] - first
            inside = (at >= 0) & (at < len(block_numbers))
            query_of_row = np.broadcast_to(queries, at.shape)[inside]
            numbers[:, output][inside] = block_numbers[at[inside], query_of_row]
    return numbers, sums, sizes


def _sparse_numbers_at(
    effects: Effects, sparse: list[tuple[Sequence[int], csr_array]], rows: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return `numbers_at` of sparse effects."""
    n = effects.n
    numbers = np.zeros(rows.shape)
    sizes = np.zeros((n, effects.shape[1]))
    queries = np.arange(n)[:, None]
    for outputs, table in sparse:
        for output in outputs:
            of_output = rows[:, output]
            query_of_row = np.broadcast_to(queries, of_output.shape).ravel()
            entries = table[query_of_row, of_output.ravel()]
            if issparse(entries):  # from SciPy 1.15 on
                entries = entries.toarray()
            entries = np.asarray(entries).reshape(of_output.shape)
            numbers[:, output] = np.where(of_output < 0, 0.0, entries)
            sizes[:, output] = abs(table).sum(axis=1)
    return numbers, effects.contribution_sums(), sizes


def add_contributions(
    sums: FloatArray, factors: FloatArray | None, outputs: Sequence[int], first: int, block: Any
) -> None:
    """Add the contributions of a block of rows, dense or sparse, to the predictions (n, K)."""
    if factors is None:
        block_sums = host(block.sum(axis=0))
        for output in outputs:
            sums[:, output] += block_sums
        return
    for output in outputs:
        row_factors = factors[first : first + block.shape[0], output]
        numbers = block if issparse(block) else host(block)
        sums[:, output] += numbers.T @ row_factors


Q = TypeVar("Q", contravariant=True)  # what training rows are told about the explained rows


class Attribution(ABC, Generic[Q]):
    """Training rows in one place, with the numbers of each of them and each explained row.

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
            case Quantity.SIMILARITY:
                return self.leaf_comparison(query_batch)

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
        """Return the exact changes of the predictions without each row.

        They are computed within ``available`` bytes.
        """
        raise NotImplementedError

    def first_order_effects(self, query_batch: Q) -> Effects:
        """Return the first-order changes of the predictions without each row."""
        raise NotImplementedError

    def leaf_comparison(self, query_batch: Q) -> Effects:
        """Return the leaves that explained rows share with these rows, without numbers."""
        raise NotImplementedError

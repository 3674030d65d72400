"""LeafOrder: the factors of all training rows, stored in the order of the leaves of each tree.

A row contributes to a score through the trees in which it shares a leaf with the explained row:

    c_j(x) = sum_t [leaf_t(j) = leaf_t(x)] f_tj

The factors f_tj depend on no explained row. Sorted by leaf, those of one leaf lie next to each
other. An explained row then reads one run of factors per tree and visits no other row. The trees
are added in the order of `Contributions.read`, so the sums have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray
from axil.contributions.contributions import BLOCK_ENTRIES, Contributions
from axil.kernels.cpu import ordered_read_out
from axil.machine.arrays import AnyPlaceArray
from axil.machine.blocks import spans
from axil.machine.log import logger
from axil.machine.memory import Budget, in_words
from axil.machine.progress import track

#: Rows of a block: their numbers fit into two bytes, and their sums into the second-level cache.
ORDERED_ROWS = 1 << 16
DENSE = 0.6  #: of the rows of a block: from here on it is faster to add an entry of every row
ENTRY_BYTES = 8 + 2  #: of a factor and the number of its row
NAME = "The contributions in leaf order"
INSTEAD = "Explanations work without precompute(), by walks through all training rows."


@dataclass(frozen=True, eq=False)
class OrderedFactors:
    """The factors of one output: blocks of rows, in each of them tree after tree, leaf after leaf.

    A leaf with more than `DENSE` of the rows of a block has an entry for each of them, zero for the
    rows of other leaves, because entries of all rows are added faster.
    """

    values: FloatArray  #: (entries,) the factors
    rows: NDArray[np.uint16]  #: (entries,) their rows, counted from the first row of the block
    ends: NDArray[np.int64]  #: (blocks, C_k + 1) where the entries of each leaf begin

    @classmethod
    def empty(cls, ends: NDArray[np.int64], budget: Budget) -> OrderedFactors:
        """Return factors that are not filled in, on disk if the budget has a directory."""
        shape = (1, int(ends[-1, -1]))
        values = budget.empty(shape, np.float64, NAME, INSTEAD)
        rows = budget.empty(shape, np.uint16, NAME, INSTEAD)
        return cls(values[0], rows[0], ends)

    def unsorted(self, block: int, n_trees: int, n_rows: int) -> FloatArray:
        """Return the place of a block's factors before they are sorted, (T_k, rows).

        It is the end of the block. A tree has as many entries as rows, or more. So what `sort`
        writes never reaches the trees that are not sorted yet.
        """
        last = self.ends[block, -1]
        return self.values[last - n_trees * n_rows : last].reshape(n_trees, n_rows)

    def sort(self, block: int, leaves: LeafArray, starts: NDArray[np.int64]) -> None:
        """Sort the factors of a block by leaf.

        Parameters
        ----------
        block : int
            The number of the block.
        leaves : array of shape (T_k, rows)
            The leaves of its rows.
        starts : array of shape (T_k + 1,)
            Where the leaves of each tree begin.
        """
        n_trees, n_rows = leaves.shape
        unsorted = self.unsorted(block, n_trees, n_rows)
        for tree, (first, last) in enumerate(pairwise(starts.tolist())):
            ends = self.ends[block, first : last + 1]
            order = np.argsort(leaves[tree], kind="stable")
            factors = unsorted[tree][order]
            dense = np.flatnonzero(np.diff(ends) == n_rows)
            if len(dense) and last - first > 1:
                factors, order = _with_dense_leaf(factors, order, leaves[tree] == dense[0])
            entries = slice(int(ends[0]), int(ends[-1]))
            self.values[entries] = factors
            self.rows[entries] = order


def _with_dense_leaf(
    factors: FloatArray, order: IntArray, is_in_leaf: BoolArray
) -> tuple[FloatArray, IntArray]:
    """Return sorted factors and their rows, with entries of all rows in the place of one leaf.

    Parameters
    ----------
    factors, order : arrays of shape (rows,)
        The factors of a tree in the order of its leaves, and the rows that they belong to.
    is_in_leaf : array of shape (rows,)
    """
    places = np.flatnonzero(is_in_leaf[order])
    of_all_rows = np.zeros(len(order))
    of_all_rows[order[places]] = factors[places]
    before = slice(0, places[0])
    after = slice(places[-1] + 1, None)
    return (
        np.concatenate([factors[before], of_all_rows, factors[after]]),
        np.concatenate([order[before], np.arange(len(order)), order[after]]),
    )


def _ends_of(contributions: Contributions, k: int) -> NDArray[np.int64]:
    """Return where the entries of each leaf begin in each block, (blocks, C_k + 1), of output k."""
    walked = contributions.walked
    starts = contributions.starts[k].tolist()
    blocks = spans(len(walked.targets), ORDERED_ROWS)
    sizes = np.zeros((len(blocks), starts[-1]), dtype=np.int64)
    for block, rows in enumerate(blocks):
        n_rows = rows.stop - rows.start
        for tree, (first, last) in zip(contributions.trees[k].tolist(), pairwise(starts)):
            counts = np.bincount(walked.leaves[tree, rows], minlength=last - first)
            sizes[block, first:last] = np.where(counts > DENSE * n_rows, n_rows, counts)
    ends = np.zeros((len(blocks), starts[-1] + 1), dtype=np.int64)
    ends[:, 1:] = np.cumsum(sizes, axis=1)
    ends[1:] += np.cumsum(ends[:-1, -1])[:, None]
    return ends


@dataclass(frozen=True, eq=False)
class LeafOrder:
    """The contributions of one fit in the order of the leaves."""

    contributions: Contributions
    outputs: list[OrderedFactors]

    @classmethod
    def of(cls, contributions: Contributions) -> LeafOrder:
        """Walk through the training rows once, and sort their factors by leaf.

        Raise before they are allocated if they exceed the memory limit.
        """
        walked = contributions.walked
        budget = contributions.limits.budget
        ends = [_ends_of(contributions, k) for k in range(contributions.n_outputs)]
        n_bytes = ENTRY_BYTES * sum(int(ends_of_output[-1, -1]) for ends_of_output in ends)
        logger.info("%s take %s", NAME, in_words(n_bytes))
        if budget.scratch is None:
            budget.require(n_bytes, NAME, INSTEAD)
        outputs = [OrderedFactors.empty(ends_of_output, budget) for ends_of_output in ends]
        blocks = spans(len(walked.targets), ORDERED_ROWS)
        for block, rows in enumerate(track(blocks, "the leaf order")):
            _fill(contributions, outputs, block, rows)
            for trees, starts, ordered in zip(contributions.trees, contributions.starts, outputs):
                ordered.sort(block, walked.leaves[trees, rows], starts)
        return cls(contributions, outputs)

    def blocks(self, leaves: LeafArray) -> Iterator[tuple[int, list[AnyPlaceArray]]]:
        """Yield `Contributions.blocks` for explained rows in the leaves (n, T)."""
        n_rows = len(self.contributions.walked.targets)
        n_together = max(1, BLOCK_ENTRIES // (ORDERED_ROWS * max(1, len(leaves))))
        cells = [self.contributions.cells_of(leaves, k) for k in range(len(self.outputs))]
        for rows in spans(n_rows, n_together * ORDERED_ROWS):
            blocks = slice(rows.start // ORDERED_ROWS, -(-rows.stop // ORDERED_ROWS))
            block_contributions = []
            for ordered, cells_of_output in zip(self.outputs, cells):
                out = np.empty((len(leaves), rows.stop - rows.start))
                ordered_read_out(
                    ordered.values,
                    ordered.rows,
                    ordered.ends[blocks],
                    ORDERED_ROWS,
                    cells_of_output,
                    out,
                    self.contributions.limits.n_threads,
                )
                block_contributions.append(out.T)
            yield rows.start, block_contributions


def _fill(
    contributions: Contributions, outputs: list[OrderedFactors], block: int, rows: slice
) -> None:
    """Write the factors of a block, in the order of the rows."""
    for some_rows in contributions.row_blocks(rows):
        columns = slice(some_rows.start - rows.start, some_rows.stop - rows.start)
        for ordered, factors in zip(outputs, contributions.factors(some_rows)):
            unsorted = ordered.unsorted(block, len(factors), rows.stop - rows.start)
            unsorted[:, columns] = factors


def bytes_per_query(n_rows: int, n_outputs: int) -> int:
    """Return the bytes of a block of contributions to one score, and of its copy for a table."""
    return 2 * 8 * n_outputs * min(n_rows, ORDERED_ROWS)

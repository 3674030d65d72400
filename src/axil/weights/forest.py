"""Forests: trees that do not see each other, kept as an inverted index from leaves to the rows that made them.

A prediction is ``sum_t c_t v_t[leaf_t(x)]`` with ``v_t[l] = leaf_scale[l] * sum over rows j in l of w_j draw_j y_j``, so the
weights of a query are the entries of the T leaves it meets, added up: their cost is the size of these leaves, not T * N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.kernels.cpu import Cpu
from axil.structure import Structure
from axil.types import Array, Leaves
from axil.weights import removal
from axil.weights.answers import Answer, Effects, SparseAnswer
from axil.weights.contract import Engine, own_leaves

FOREST_SECONDS = 5e-9  # per row, tree and column, or row and pair of trees


def is_forest(structure: Structure) -> bool:
    """Whether no tree sees another, nor a base or offsets: leaves hold means of the targets themselves."""
    c, base = structure.coefficients, structure.base
    if c is None or base is None or structure.offsets is not None or structure.mixing is not None:
        return False
    return not c.omega[:-1].any() and (not base.any() or not c.beta[:-1].any())


class Forest:
    """K of a forest as a product of two sparse matrices; 12 bytes for each row that each tree was fitted on."""

    def __init__(self, structure: Structure):
        self.structure = s = structure
        leaf = s.leaves()
        draw = (
            s.draws[(s.cells // s.n_leaves[:, None].astype(s.cells.dtype)).astype(np.intp)]
            if len(s.draws) > 1
            else None
        )
        data, columns, starts = [], [], [np.zeros(1, dtype=np.int64)]
        for t in range(s.n_trees):
            weight = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
            weight = weight if draw is None else weight * draw[t]
            order = np.argsort(leaf[t], kind="stable").astype(np.int32)
            order = order[weight[order] != 0]
            own = leaf[t][order].astype(np.intp)
            data.append(weight[order] * (s.leaf_scale[s.starts[t] + own] * s.final[t]))
            columns.append(order)
            starts.append(starts[-1][-1] + np.cumsum(np.bincount(own, minlength=int(s.n_leaves[t]))))
        parts = (np.concatenate(data), np.concatenate(columns), np.concatenate(starts))
        self._rows_of_leaves = csr_array(parts, shape=(s.total_leaves, s.n_rows))
        self._train = self._met(leaf.T)

    def weights(self, queries: Leaves) -> csr_array:
        """(n, N) sparse weights of the predictions in these leaves, (n, T)."""
        return csr_array(self._met(queries) @ self._rows_of_leaves)

    def forward(self, v: Array) -> Array:
        """K v for (N, S) vectors."""
        return np.asarray(self._train @ (self._rows_of_leaves @ v))

    def backward(self, u: Array) -> Array:
        """K'u for (N, S) vectors."""
        return np.asarray(self._rows_of_leaves.T @ (self._train.T @ u))

    def apply(self, queries: Leaves, v: Array) -> Array:
        """(n, S): the weights of these predictions times (N, S) vectors."""
        return np.asarray(self._met(queries) @ (self._rows_of_leaves @ v))

    def combine(self, queries: Leaves, u: Array) -> Array:
        """(N, S): the transpose of `apply`."""
        return np.asarray(self._rows_of_leaves.T @ (self._met(queries).T @ u))

    def removal(self, queries: Leaves, targets: Array, level: Array) -> csr_array:
        """(n, N): the effects of deleting rows, ``-weight * (y_j - level[l] v[l])`` over the leaves l met; see `removal`."""
        R = self._rows_of_leaves
        final = np.repeat(self.structure.final, self.structure.n_leaves)
        values = np.divide(R @ targets, final, out=np.zeros(len(final)), where=final != 0)
        at = np.repeat(level * values, np.diff(R.indptr))
        effects = csr_array((R.data * (at - targets[R.indices]), R.indices, R.indptr), shape=R.shape)
        return csr_array(self._met(queries) @ effects)

    def leverage(self) -> Array:
        """(N,): K[j, j]; a row meets no other leaves than its own."""
        return np.asarray(self._rows_of_leaves.sum(axis=0)).ravel()

    def squares(self) -> float:
        """The sum of all squared weights, tree by tree over the pairs of leaves that share rows: O(T^2 N)."""
        R, members, total = self._rows_of_leaves, csr_array(self._train.T), 0.0
        others = csr_array(R.T)
        for a, b in pairwise(self.structure.starts):
            total += float((members[a:b] @ self._train).multiply(R[a:b] @ others).sum())
        return total

    def _met(self, queries: Leaves) -> csr_array:
        """(n, L): one for each leaf that a query meets."""
        n, n_trees = queries.shape
        columns = (queries.astype(np.int64) + self.structure.starts[:-1]).ravel()
        ends = np.arange(0, n * n_trees + 1, n_trees)
        return csr_array((np.ones(n * n_trees), columns, ends), shape=(n, self.structure.total_leaves))


@dataclass(frozen=True)
class ForestEngine:
    """Forests: an inverted index."""

    forest: Forest
    is_sparse: bool = True

    @property
    def structure(self) -> Structure:
        return self.forest.structure

    def ask(self, queries: Leaves, base: float = 1.0) -> Answer:
        return self._answer(self.forest.weights(own_leaves(self.structure, queries)), base)

    def ask_training_rows(self) -> Answer:
        return self._answer(self.forest.weights(self.structure.leaves().T))

    def _answer(self, weights: csr_array, base: float = 1.0) -> Answer:
        return SparseAnswer(weights, np.tile(base * self._constant, (weights.shape[0], 1)))

    def fitted(self, targets: Array) -> Array:
        return self.forest.forward(targets) + self._constant

    def predicted(self, queries: Leaves, targets: Array) -> Array:
        return self.apply(queries, targets) + self._constant

    @property
    def _constant(self) -> Array:
        s = self.structure
        return np.asarray(s.beta[-1] * (np.zeros(1) if s.base is None else s.base))

    def forward(self, v: Array) -> Array:
        return self.forest.forward(v)

    def backward(self, u: Array) -> Array:
        return self.forest.backward(u)

    def apply(self, queries: Leaves, v: Array, base: float = 1.0) -> Array:
        return self.forest.apply(own_leaves(self.structure, queries), v)

    def combine(self, queries: Leaves, u: Array, base: float = 1.0) -> Array:
        return self.forest.combine(own_leaves(self.structure, queries), u)

    def leverage(self, available: int) -> Array:
        return self.forest.leverage()

    def squares(self, available: int) -> float:
        return self.forest.squares()

    def leverage_seconds(self, available: int) -> float:
        return self.forward_seconds(1)

    def squares_seconds(self, available: int) -> float:
        return FOREST_SECONDS * self.structure.n_rows * self.structure.n_trees**2

    def forward_seconds(self, columns: int) -> float:
        return FOREST_SECONDS * columns * self.structure.n_rows * self.structure.n_trees

    def removal(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        own, level = own_leaves(self.structure, queries), removal.levels(self.structure)[0]
        none = np.zeros((len(own), 1))
        return [SparseAnswer(self.forest.removal(own, column, level), none) for column in targets.T]

    def steps(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        """No tree sees another: the residuals are the targets, and the steps weights times targets."""
        weights, none = self.forest.weights(own_leaves(self.structure, queries)), np.zeros((len(queries), 1))
        return [SparseAnswer(csr_array(weights.multiply(column)), none) for column in targets.T]

    def without(self, rows: NDArray[np.intp]) -> Engine:
        return ForestEngine(Forest(removal.without(self.structure, rows, Cpu(1)).structure))

    def streamed_bytes(self) -> int:
        return (
            24
            * self.structure.n_trees
            * -(-self.structure.n_rows * self.structure.n_trees // self.structure.total_leaves)
        )

    def preparation(self) -> int:
        return 0

    def prepared(self) -> ForestEngine:
        return self  # the index is there

    def prepared_for(self, n_queries: int, available: int) -> ForestEngine:
        return self
